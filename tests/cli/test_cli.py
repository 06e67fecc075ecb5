"""The commands: their text and JSON output, their exit codes, and their one-line errors about bad input."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import rich.console
from typer.testing import CliRunner

import floatsim as fs
from floatsim import cli
from floatsim.cli.console import json_value, split, track
from floatsim.cli.matrix_files import load_csv

pytestmark = pytest.mark.versions

MAIN = importlib.import_module("floatsim.cli.main")  # floatsim.cli.main is the function
ROOT = Path(__file__).parents[2]
SMALL = ["--operands", "fp16,e4m3", "--accumulate", "same", "--accumulate", "exact(fp32)"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def rejected(result):
    """Return the one line on stderr of a command with bad input."""
    code, out, err = result
    assert code == 2
    assert out == ""
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert err.startswith("floatsim: ")
    return err


# -- the command ----------------------------------------------------------------------------------------------------


def test_version(run):
    assert run("--version") == (0, f"floatsim {fs.__version__}\n", "")


COMMANDS = ("survey", "show", "formats", "explain", "kernel", "probe", "compare", "capture", "check-silicon")


@pytest.mark.parametrize("arguments", [("formats",), ("show", "1"), ("probe", "--emulated", "volta")], ids=" ".join)
def test_an_unhandled_error_ends_with_exit_code_3(run, monkeypatch, arguments):
    """The traceback is on stderr. Python's own exit code is 1, which means a difference."""

    def broken(*_, **__):
        raise RuntimeError("a fault of the program")

    for name in ("_format_facts", "_exact", "rich_console"):
        monkeypatch.setattr(MAIN, name, broken)
    monkeypatch.setattr("floatsim.hardware.questions.probe_device", broken)
    code, out, err = run(*arguments)
    assert (code, out) == (3, "")
    assert err.startswith("Traceback")
    assert err.endswith("RuntimeError: a fault of the program\n")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interruption_is_no_error(run, monkeypatch, error):
    def stopped(*_, **__):
        raise error(7)

    monkeypatch.setattr(MAIN, "rich_console", stopped)
    code, out, err = run("formats")
    assert (code, out) == ((130, "") if error is KeyboardInterrupt else (7, ""))
    assert "Traceback" not in err


MODULE, _, NAME = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["floatsim"].partition(":")
AS_A_SCRIPT = f"import sys; from {MODULE} import {NAME}; sys.exit({NAME}())"
"""The code that pip writes into the script `floatsim`."""


@pytest.mark.parametrize("how", [["-m", "floatsim"], ["-c", AS_A_SCRIPT]], ids=["module", "script"])
def test_a_missing_package_ends_with_exit_code_3(tmp_path, how):
    (tmp_path / "typer.py").write_text("raise ImportError('no typer')")
    path = os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "kernels")])
    ran = subprocess.run(
        [sys.executable, *how, "formats"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 3
    assert ran.stderr.endswith("ImportError: no typer\n")


@pytest.mark.parametrize("command", ["probe", "compare", "capture", "check-silicon", "bench-hardware"])
def test_help_lists_the_exit_codes(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert "3 a row could not run" in " ".join(out.split())


def test_help_names_every_command(run):
    for arguments in ([], ["--help"]):
        code, out, err = run(*arguments)
        assert (code, err) == (0, "")
        assert all(command in out for command in COMMANDS)
    for command in COMMANDS:
        code, out, _ = run(command, "--help")
        assert code == 0
        assert "--json" in out


@pytest.mark.parametrize(("arguments", "see"), [
    (["nonsense"], "floatsim"), (["formats", "--nonsense"], "floatsim formats"), (["show", "1", "2"], "floatsim show"),
    (["survey", "--limit", "x"], "floatsim survey"),
])  # fmt: skip
def test_bad_usage_is_one_line(run, arguments, see):
    assert rejected(run(*arguments)).endswith(f"; see `{see} --help`\n")


@pytest.mark.parametrize(
    ("command", "write"), [("capture", "capture --out FOLDER"), ("check-silicon", "check-silicon PATH")]
)
def test_a_missing_argument_says_what_to_write(run, command, write):
    assert f": write `floatsim {write}`; see `floatsim {command} --help`" in rejected(run(command))


def test_typer_runs_the_app():
    done = CliRunner().invoke(cli.app, ["formats", "e5m2", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["formats"][0]["name"] == "E5M2"


def process(*arguments, **environment):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")])} | environment
    return subprocess.run([sys.executable, "-m", "floatsim", *arguments], capture_output=True, encoding="utf-8",
                          env=environment, check=False)  # fmt: skip


@pytest.mark.full
def test_the_command_runs_as_a_process():
    done = process("show", "0.1", "--format", "bf16")
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 01111011 1001101" in done.stdout
    assert "\x1b" not in done.stdout
    done = process("show", "abc")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("floatsim: VALUE is not a number: 'abc'")
    assert "Traceback" not in done.stderr


@pytest.mark.full
def test_colours_appear_only_on_terminals():
    assert "\x1b[" in process("show", "1", FORCE_COLOR="1", TERM="xterm-256color").stdout
    assert "\x1b[3" not in process("show", "1", FORCE_COLOR="1", NO_COLOR="1", TERM="xterm-256color").stdout


# -- formats ---------------------------------------------------------------------------------------------------------


def test_formats_lists_all_formats(run):
    code, out, err = run("formats")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    for fmt in fs.named_formats():
        assert any(line.split()[0] == fmt.name for line in lines[2:])
    assert next(line for line in lines if line.startswith("E4M3 ")).split() == (
        ["E4M3", "8", "1+4+3", "4", "-6..8", "448", "0.0156", "0.00195", "0.125", "NaN", "-0"]
    )


def test_formats_json(run):
    code, out, _ = run("formats", "e4m3,ieee(4,3)", "e8m0", "--json")
    assert code == 0
    first, custom, scale = json.loads(out)["formats"]
    assert first == {
        "name": "E4M3", "bits": 8, "layout": "s eeee ttt", "exponent_bits": 4, "trailing_bits": 3, "precision": 4,
        "bias": 7, "emin": -6, "emax": 8, "max": 448.0, "smallest_normal": 2.0**-6, "smallest_subnormal": 2.0**-9,
        "eps": 0.125, "has_infinity": False, "has_nan": True, "has_signed_zero": True, "dtype": "float8_e4m3fn",
    }  # fmt: skip
    assert (custom["name"], custom["max"]) == ("ieee(4,3)", 240.0)
    assert scale["smallest_subnormal"] is None


def test_formats_unknown(run):
    assert "'fp61'" in (line := rejected(run("formats", "fp61")))
    assert "did you mean" in line


# -- show ------------------------------------------------------------------------------------------------------------


def test_show(run):
    code, out, err = run("show", "0.1", "--format", "bf16")
    assert (code, err) == (0, "")
    lines = [line.strip() for line in out.splitlines()]
    assert lines[0] == "0.1 in BF16"
    assert lines[1].split(None, 1) == ["bits", "0 01111011 1001101  0x3DCD"]
    assert "0.10009765625" in lines[2]
    assert lines[3].endswith("(+0.2 ulp)")
    assert lines[4].split() == ["above", "0.1005859375", "0x3DCE"]
    assert lines[5].split() == ["below", "0.099609375", "0x3DCC"]
    assert lines[6].split() == ["flags", "inexact"]
    for name in ("FP32", "TF32", "FP16", "BF16", "E5M2", "E4M3", "E3M2", "E2M3", "E2M1"):
        assert any(line.startswith(name) for line in lines[8:])


def shown(run, *arguments):
    code, out, err = run("show", *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_show_json(run):
    data = shown(run, "0.1", "-f", "bf16")
    assert data["given"] == "0.1"
    assert data["shown"] == {
        "format": "BF16", "code": "0x3DCD", "bits": "0 01111011 1001101", "value": 0.10009765625,
        "hex": "0x1.9a00000000000p-4", "error": 0.10009765625 - 0.1, "error_ulps": 0.2, "flags": ["inexact"],
        "below": {"code": "0x3DCC", "bits": "0 01111011 1001100", "value": 0.099609375, "hex": "0x1.9800000000000p-4"},
        "above": {"code": "0x3DCE", "bits": "0 01111011 1001110", "value": 0.1005859375, "hex": "0x1.9c00000000000p-4"},
    } | {"error": data["shown"]["error"]}  # fmt: skip
    assert data["shown"]["error"] == pytest.approx(9.765625e-05, rel=1e-15)
    assert [row["format"] for row in data["formats"]].count("BF16") == 1


def test_show_rounds_a_text_once(run):
    """The text lies slightly above a BF16 midpoint. Rounding it to float64 first gives a wrong result."""
    text = "1.00390625000000000000000000000000001"
    assert shown(run, text, "-f", "bf16")["shown"]["value"] == 1.0078125
    assert shown(run, "1.00390625", "-f", "bf16")["shown"]["value"] == 1.0


@pytest.mark.parametrize(("text", "code", "flags"), [
    ("-1e-3", "0x9419", ["inexact"]), ("0x1.8p3", "0x4A00", []), ("-0x1p-24", "0x8001", []), ("inf", "0x7C00", []),
    ("nan", "0x7E00", []), ("1e400", "0x7C00", ["overflow", "inexact"]), ("-0", "0x8000", []),
    ("1e-400", "0x0000", ["underflow", "inexact"]), ("1e99999", "0x7C00", ["overflow", "inexact"]),
])  # fmt: skip
def test_show_any_number(run, text, code, flags):
    row = shown(run, text, "-f", "fp16")["shown"]
    assert (row["code"], row["flags"]) == (code, flags)
    assert run("show", text, "-f", "fp16")[0] == 0


@pytest.mark.parametrize(("overflow", "value"), [("infinity", "nan"), ("saturate_finite", 448.0)])
def test_show_overflow(run, overflow, value):
    assert shown(run, "1e6", "-f", "e4m3", "--overflow", overflow)["shown"]["value"] == value
    assert shown(run, "1e6", "-f", "e4m3", "--overflow", overflow)["formats"][5]["value"] == value
    assert "did you mean 'saturate_finite'" in rejected(run("show", "1", "--overflow", "saturate"))


def test_show_a_fraction(run):
    row = shown(run, "-1/3", "-f", "fp16")["shown"]
    assert (row["value"], row["flags"]) == (-0.333251953125, ["inexact"])
    assert row["error"] == pytest.approx(1 / 3 - 0.333251953125, rel=1e-12)
    assert "guard bit" in run("show", "1/3", "--explain")[1]


def test_show_json_writes_what_json_cannot_hold_as_text(run):
    data = shown(run, "-inf", "-f", "fp16")
    assert data["shown"]["value"] == "-inf"
    assert data["shown"]["error"] is None
    assert shown(run, "1e400", "-f", "e2m1")["shown"]["error"] == "-1e+400"


@pytest.mark.parametrize(("text", "fmt", "error", "ulps"), [
    ("1e-400", "fp32", "-1e-400", "-7.14e-356"), ("-1e-400", "e2m1", "+1e-400", "+2e-400"),
    ("1e400", "e2m1", "-1e+400", "-5e+399"), ("1e-310", "fp32", "-1e-310", "-7.14e-266"),
])  # fmt: skip
def test_show_errors_beyond_float64(run, text, fmt, error, ulps):
    out = run("show", text, "-f", fmt)[1]
    assert f"error  {error}   ({ulps} ulp)" in out
    assert "0.00" not in out  # no error reads as none
    assert shown(run, text, "-f", fmt)["shown"]["error"] == error.removeprefix("+")


def test_show_has_the_same_flags_above_and_below(run):
    out = run("show", "1e-9", "-f", "fp16")[1]
    assert "flags  underflow, inexact" in out
    assert next(line for line in out.splitlines() if line.startswith("FP16")).split()[-2:] == ["underflow", "inexact"]


@pytest.mark.parametrize(("code", "fmt", "words", "nan"), [
    ("0x7c01", "fp16", "NaN, signalling, payload 0x1", {"quiet": False, "payload": 1}),
    ("0xfe05", "fp16", "NaN, quiet, payload 0x5", {"quiet": True, "payload": 5}),
    ("0x7d", "e5m2", "NaN, signalling, payload 0x1", {"quiet": False, "payload": 1}),
    ("0x7f", "e4m3", "NaN, quiet", {"quiet": True, "payload": None}),
    ("0xff", "e8m0", "NaN, quiet", {"quiet": True, "payload": None}),
])  # fmt: skip
def test_show_describes_a_nan(run, code, fmt, words, nan):
    lines = [line.strip() for line in run("show", "--code", code, "-f", fmt)[1].splitlines()]
    assert lines[2] == f"value  {words}"
    data = shown(run, "--code", code, "-f", fmt)
    assert data["shown"]["nan"] == nan
    assert data["shown"]["above"] is None
    assert data["shown"] in data["formats"]
    signalled = "invalid" in next(row for row in data["formats"] if row["format"] == "TF32")["flags"]
    assert signalled is not nan["quiet"]


@pytest.mark.parametrize(("code", "fmt", "value"), [("0x3DCD", "bf16", 0.10009765625), ("0b1111110", "e4m3", 448.0),
                                                    ("126", "e4m3", 448.0), ("0x7f", "e4m3", "nan"),
                                                    ("0x7c01", "fp16", "nan"), ("0x7f", "e8m0", 1.0)])  # fmt: skip
def test_show_a_code(run, code, fmt, value):
    row = shown(run, "--code", code, "-f", fmt)["shown"]
    assert row["value"] == value
    assert int(row["code"], 16) == int(code, 0)
    assert row["flags"] == []
    assert run("show", "--code", code, "-f", fmt)[1].startswith("code 0x")


def test_show_explains(run):
    code, out, _ = run("show", "0.1", "-f", "e4m3", "--explain")
    assert code == 0
    assert str(fs.explain_rounding("0.1", "e4m3")) in out
    assert "guard bit" in shown(run, "0.1", "-f", "e4m3", "--explain")["steps"]


def test_show_uses_the_rounding_options(run):
    assert shown(run, "0.1", "-f", "bf16", "--rounding", "RTZ")["shown"]["code"] == "0x3DCC"
    assert shown(run, "0.1", "-f", "bf16", "--rounding", "SR", "--seed", "1")["shown"]["code"] in ("0x3DCC", "0x3DCD")


@pytest.mark.parametrize(("arguments", "message"), [
    (["abc"], "VALUE is not a number: 'abc'; write decimal"),
    (["0.1", "--format", "fp61"], "--format: unknown format 'fp61'; did you mean"),
    (["0.1", "--rounding", "RNX"], "'RNX' is not known"),
    (["0.1", "--rounding", "SR"], "needs a seed: add --seed 1"),
    ([], "a number or --code"),
    (["1", "--code", "1"], "a number or --code"),
    (["--code", "zz", "-f", "fp16"], "--code: 'zz' is not an integer; write it as"),
    (["--code", "0x100", "-f", "e4m3"], "does not fit the 8 bits of E4M3"),
    (["--code", "-1", "-f", "e4m3"], "does not fit"),
])  # fmt: skip
def test_show_bad_input(run, arguments, message):
    assert message in rejected(run("show", *arguments))


# -- explain ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "told"), [
    (["add", "1.5", "-1/3", "-f", "e4m3"], lambda: fs.explain_add("1.5", "-1/3", "e4m3")),
    (["multiply", "0.1", "3"], lambda: fs.explain_multiply("0.1", "3", "fp32")),
    (["fma", "1.5", "1.5", "-inf", "-f", "fp16"], lambda: fs.explain_fma("1.5", "1.5", "-inf", "fp16")),
    (["add", "1", "0.1", "-f", "bf16", "--rounding", "SR", "--seed", "3"],
     lambda: fs.explain_add("1", "0.1", "bf16", rounding="SR", seed=3)),
])  # fmt: skip
def test_explain(run, arguments, told):
    told = told()
    assert run("explain", *arguments) == (0, f"{told}\n", "")
    code, out, err = run("explain", *arguments, "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert (int(data["code"], 16), data["aligned"], data["normalized"]) == (told.code, told.aligned, told.normalized)
    assert [int(x["code"], 16) for x in data["operands"]] == [x.code for x in told.operands]
    assert [row["bits"] for step in data["steps"] for row in step["rows"]] == [
        row.bits for step in told.steps for row in step.rows
    ]  # fmt: skip
    assert ("inexact" in data["flags"]) == bool(told.flags & fs.INEXACT)


def test_explain_writes_a_picture(run, tmp_path):
    assert run("explain", "add", "1.5", "0.1", "-f", "e4m3", "--picture", "sum.png")[0] == 0
    assert (tmp_path / "sum.png").read_bytes().startswith(b"\x89PNG")


CORES = """\
;; -*- mode: scheme -*-
(FPCore (x) :name "roots (example 3.1)" :pre (>= x 0)
  (- (sqrt (+ x 1)) (sqrt x)))
(FPCore area (r) :precision binary64 (* PI (* r r)))
(FPCore (x) :name "loop"
  (while (< x 1) ([x x (+ x 1)]) x))
"""


@pytest.mark.parametrize("arguments", [["--é", "2"], ["--é=2"], ["é=2"]])
def test_explain_reads_every_name_of_a_variable(run, arguments):
    assert run("explain", "é + 1", *arguments) == (0, f"{fs.explain('é + 1', 'fp32', é=2)}\n", "")


@pytest.mark.parametrize("arguments", [
    ["--x", "-1/3", "--y", "2"], ["--x=-1/3", "--y=2"], ["x=-1/3", "y=2"], ["--y=2", "--x", "-1/3"],
])  # fmt: skip
def test_explain_expression(run, arguments):
    told = fs.explain("(x + y)**2 - 1", "bf16", rounding="RTZ", x="-1/3", y=2)
    given = "explain", "(x + y)**2 - 1", *arguments, "-f", "bf16", "--rounding", "RTZ"
    assert run(*given) == (0, f"{told}\n", "")
    code, out, err = run(*given, "--json")
    data = json.loads(out)
    assert (code, err, data["expression"], data["format"]) == (0, "", told.expression, "BF16")
    assert [(int(x["code"], 16), x["operation"], x["reach"]) for x in data["steps"]] == [
        (x.code, x.operation, x.reach) for x in told.steps
    ]
    assert float(data["exact"]) == float(told.exact)
    assert data["ulps"] == told.ulps


def test_explain_expression_json_of_special_results(run):
    code, out, _ = run("explain", "log(1 + 1/x)", "--x", "0", "--json")
    data = json.loads(out)
    assert (code, data["value"], data["exact"]) == (0, "inf", None)
    assert data["steps"][1]["flags"] == ["divide_by_zero"]
    code, out, _ = run("explain", "exp(x) - 1", "--x", "1e-3", "--daz", "--ftz", "--json")
    assert [x["expression"] for x in json.loads(out)["stable"]] == ["expm1(x)"]
    code, out, _ = run("explain", "x*x", "--x", "1e9000", "--json")
    assert (code, json.loads(out)["exact"]) == (0, "1E+18000")


def test_explain_fpcores(run, tmp_path):
    (tmp_path / "cores.fpcore").write_text(CORES, encoding="utf-8")
    (tmp_path / "one.fpcore").write_text("(FPCore (x) (/ x 3))", encoding="utf-8")
    told = fs.explain("sqrt(x + 1) - sqrt(x)", "fp16", x=100)
    for core in ("1", "roots (example 3.1)"):
        assert run("explain", "cores.fpcore", "--core", core, "--x", "100", "-f", "fp16") == (0, f"{told}\n", "")
    assert "result 3.140625" in run("explain", "cores.fpcore", "--core", "area", "--r", "1", "-f", "fp16")[1]
    assert run("explain", "one.fpcore", "--x", "2")[0] == 0
    for arguments, message in [
        (
            [],
            "cores.fpcore: one must be chosen with --core; the FPCores are 1 'roots (example 3.1)', 2 'area', 3 'loop'",
        ),
        (["--core", "none"], "--core none: 0 have this name; the FPCores are 1 'roots"),
        (["--core", "loop"], "FPCore, line 6, column 4: 'while' is not supported"),
        (["--core", "2"], "'r' has no value; add --r 1.5"),
    ]:
        assert message in rejected(run("explain", "cores.fpcore", *arguments)), message
    (tmp_path / "cores.fpcore").write_text(CORES + "\n(+ 1 2)", encoding="utf-8")
    assert "FPCore, line 8, column 1: only (FPCore ...) may stand here" in rejected(run("explain", "cores.fpcore"))
    (tmp_path / "cores.fpcore").write_bytes(b"\xff")
    assert "it is not UTF-8" in rejected(run("explain", "cores.fpcore"))


def test_explain_draws_the_errors(run, tmp_path):
    given = "explain", "log(1 + x)", "--x", "0.5", "-f", "bf16"
    assert run(*given, "--picture", "errors.png", "--over", "x", "0.1", "1")[0] == 0
    assert (tmp_path / "errors.png").read_bytes().startswith(b"\x89PNG")
    for arguments, message in [
        (["--picture", "errors.png"], "needs an interval: --over x 1e-4 1"),
        (["--over", "x", "0.1", "1"], "--over is the interval of --picture"),
        (["--picture", "errors.png", "--over", "y", "0.1", "1"], "--over: variable='y' is no variable"),
        (["--picture", "errors.png", "--over", "x", "1", "-1"], "--over: low=1 and high=-1 are no interval"),
        (["--picture", "no/errors.png", "--over", "x", "0.1", "1"], "--picture: no/errors.png cannot be written"),
    ]:
        assert message in rejected(run(*given, *arguments)), message


@pytest.mark.parametrize(("arguments", "message"), [
    (["x + z", "--x", "1"], "'z' has no value; add --z 1.5"),
    (["x + z", "--x", "1", "--frmat", "bf16"], "--frmat: no option, and no variable of the expression"),
    (["x", "--x", "one"], "--x: not a number: 'one'"),
    (["x", "--x"], "--x needs a value: --x 1.5"),
    (["x + y", "--x", "--y", "2"], "--x needs a value"),
    (["x + y", "3"], "'3' belongs to no variable; write --x 3"),
    (["x", "--x", "1", "x=2"], "--x is given twice: 1 and 2"),
    (["2*x +", "--x", "1"], "expression, column 6: invalid syntax"),
    (["sqrt(x) + y.z", "--x", "1"], "expression, column 11: 'y.z' is not in the grammar"),
    (["x", "--x", "1", "--seed", "1"], "--seed: the steps of an expression have no random bits"),
    (["x", "--x", "1", "--rounding", "SR"], "have no random bits"),
    (["x", "format=1"], "format is an option, and no variable"),
    (["x", "--x", "1", "--core", "1"], "--core: 'x' is no file of FPCores"),
    (["none.fpcore"], "none.fpcore cannot be read: No such file"),
    (["add", "1", "2", "--over", "x", "1", "2"], "--over is for an expression"),
    (["add", "1", "2", "--y", "1"], "no such option: --y"),
    (["divide", "1", "2"], "OPERATION: 'divide' is not known; known are add, multiply, fma"),
    (["add", "1"], "add needs 2 operands, not 1"),
    (["add", "1", "2", "3"], "add needs 2 operands, not 3"),
    (["fma", "1", "2"], "fma needs 3 operands, not 2"),
    (["add", "1", "two"], "b is not a number: 'two'"),
    (["add", "1", "2", "-f", "fp17"], "--format: unknown format 'fp17'"),
    (["add", "1", "2", "-f", "e8m0"], "scale format"),
    (["add", "1", "2", "--rounding", "SR"], "needs a seed: add --seed 1"),
    (["add", "1", "nan", "--picture", "sum.png"], "has no bits to draw"),
    (["add", "1", "2", "--picture", "sum.doc"], "doc"),
])  # fmt: skip
def test_explain_bad_input(run, arguments, message):
    assert message in rejected(run("explain", *arguments))


# -- survey ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def matrices(tmp_path):
    """Write the same two matrices in every kind of file."""
    rng = np.random.default_rng(3)
    a, b = rng.integers(-8, 9, (4, 6)) * 1.5, rng.integers(-8, 9, (6, 3)) * 100.0
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b.astype(np.float32))
    np.savez(tmp_path / "both.npz", a=a, b=b)
    np.savez(tmp_path / "more.npz", a=a, b=b, c=np.ones((2, 2)))
    fs.save(tmp_path / "saved.npz", fs.array(b, "fp32"))
    for name, x in (("a", a), ("b", b)):
        np.savetxt(tmp_path / f"{name}.csv", x, delimiter=",")
    (tmp_path / "head.csv").write_text("u,v,w\n" + (tmp_path / "b.csv").read_text(), encoding="utf-8-sig")
    return tmp_path


def surveyed(run, *arguments):
    code, out, err = run("survey", *arguments, *SMALL, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.mark.full
@pytest.mark.parametrize("files", [
    ["a.npy", "b.npy"], ["both.npz"], ["more.npz:a", "more.npz:b"], ["a.csv", "b.csv"],
    ["a.npy", "saved.npz"], ["more.npz", "-m", "a @ b"],
], ids=" ".join)  # fmt: skip
def test_survey_of_own_files(run, matrices, files):
    data = surveyed(run, *files)
    expected = fs.survey(np.load("a.npy"), np.load("b.npy"), formats=["fp16", "e4m3"],
                         accumulators=["same", "exact(fp32)"]).to_dict()  # fmt: skip
    named = {"product": None}
    assert [row | named for row in data["rows"]] == [row | named for row in expected["rows"]]
    assert data["floatsim"] == fs.__version__
    assert Path(data["picture"]).read_bytes().startswith(b"\x89PNG")


@pytest.mark.full
def test_survey_reports_a_skipped_header(run, matrices):
    code, out, err = run("survey", "a.npy", "head.csv", *SMALL, "--json")
    assert (code, err) == (0, "floatsim: head.csv: row 1 skipped as a header: u,v,w\n")
    assert json.loads(out)["rows"][0]["sums"] == surveyed(run, "a.npy", "b.csv")["rows"][0]["sums"]


def test_csv_keeps_every_row_of_numbers(tmp_path):
    (tmp_path / "x.csv").write_text("\n1, nan,3\n\n4,-inf,6e1\n")
    assert repr(load_csv(tmp_path / "x.csv").tolist()) == "[[1.0, nan, 3.0], [4.0, -inf, 60.0]]"


@pytest.mark.parametrize(("text", "where"), [
    ("1,,3\n4,5,6", "row 1, cell 2: ''"), ("1,foo\n3,4", "row 1, cell 2: 'foo'"), ("u,v\n\n3,x", "row 3, cell 2: 'x'"),
    ("1;2\n3;4", "row 1, cell 1: '1;2'"), ("1,5;2,5\n1,5;2,5", "row 1, cell 2: '5;2'"), ("1 2\n3 4", "cell 1: '1 2'"),
    ('"1","2"\n3,4', "row 1, cell 1: '\"1\"'"), ("1_0,2", "row 1, cell 1: '1_0'"), ("u,v", "no row of numbers"),
    ("1,2\n\n3", "row 3 has 1 cells, and row 1 has 2"),
])  # fmt: skip
def test_csv_errors_name_row_cell_and_comma(run, tmp_path, text, where):
    (tmp_path / "x.csv").write_text(text)
    line = rejected(run("survey", "x.csv"))
    assert line.startswith("floatsim: FILES: x.csv cannot be read: ")
    assert where in line
    assert "separated by commas" in line


@pytest.mark.full
def test_survey_selects_one_array_of_a_file(run, strange):
    assert [t["tensor"] for t in surveyed(run, "mixed.npz:a")["tensors"]] == ["a", "a"]


def test_survey_of_one_matrix_is_its_second_moments(run, matrices):
    data = surveyed(run, "a.csv")
    assert [(p["expression"], p["shape"]) for p in data["products"]] == [("a.T @ a", [6, 4, 6])]


def test_survey_numbers_equal_names(run, matrices):
    data = surveyed(run, "b.npy", "b.csv", "-m", "b.T @ b_2")
    assert [t["tensor"] for t in data["tensors"]] == ["b", "b", "b_2", "b_2"]


def test_survey_prints_the_table_and_the_path_of_the_picture(run, matrices):
    code, out, err = run("survey", "a.npy", "b.npy", *SMALL)
    assert (code, err) == (0, "")
    assert "a @ b   (M = 4, K = 6, N = 3)" in out
    assert out.splitlines()[-1] == f"picture: {(Path.cwd() / 'floatsim-survey.png').resolve()}"
    assert [path.name for path in Path.cwd().glob("*.png")] == ["floatsim-survey.png"]


def test_survey_of_the_shipped_data(run):
    code, out, err = run("survey", "--limit", "4096", "--out", "digits.svg", *SMALL)
    assert (code, err) == (0, "")
    assert "activations.T @ gradients" in out
    assert "<svg" in Path("digits.svg").read_text(encoding="utf-8")


@pytest.mark.full
def test_survey_of_matrix_units(run, matrices):
    code, out, err = run("survey", "a.npy", "b.npy", "--operands", "fp16,e4m3", "--accumulate", "tensorcore", "--json")
    assert (code, err) == (0, "")
    rows = json.loads(out)["rows"]
    units = [(row["format"], row["accumulator"]) for row in rows]
    assert ("FP16", "tensorcore(volta)") in units
    assert ("E4M3", "tensorcore(volta)") not in units
    assert rows[0]["differs"] is None
    assert rows[1]["differs"] is not None
    both = "tensorcore(hopper),blocked(tensorcore(hopper, wgmma.k16), 128, fp32)"
    code, out, err = run("survey", "a.npy", "b.npy", "--operands", "fp16", "--accumulate", both, "--json")
    assert (code, err) == (0, "")
    assert len(json.loads(out)["rows"]) == 2
    assert "volta does not multiply E4M3" in rejected(
        run("survey", "a.npy", "--operands", "e4m3", "-a", "tensorcore(volta)")
    )


@pytest.mark.full
def test_survey_uses_the_rounding_options(run, matrices):
    down = surveyed(run, "a.npy", "b.npy", "--rounding", "RTZ", "--overflow", "saturate_finite")
    nearest = surveyed(run, "a.npy", "b.npy")
    assert down["rows"] != nearest["rows"]
    assert sum(t["overflow"] for t in nearest["tensors"]) > 0  # 800 is beyond E4M3
    assert down["rows"][-1]["nonfinite"] == 0 < nearest["rows"][-1]["nonfinite"]
    assert surveyed(run, "a.npy", "b.npy", "--daz", "--ftz", "--rounding", "sr", "--seed", "7")


@pytest.fixture
def strange(tmp_path):
    arrays = {
        "vector": np.ones(3), "zeros": np.zeros((2, 2)), "complex": np.eye(2) * 1j, "wide": np.ones((2, 9)),
        "bf16": np.ones((2, 2), ml_dtypes.bfloat16), "bool": np.eye(2, dtype=bool),
    }  # fmt: skip
    for name, x in arrays.items():
        np.save(tmp_path / f"{name}.npy", x)
    np.save(tmp_path / "object.npy", np.array([[1, "x"]], object), allow_pickle=True)
    (tmp_path / "ragged.csv").write_text("1,2\n3\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "text.csv").write_text("a,b\nc,d\n")
    (tmp_path / "matrix.txt").write_text("1 2")
    np.save(tmp_path / "longdouble.npy", np.eye(2, dtype=np.longdouble))
    np.save(tmp_path / "narrow.npy", np.ones((3, 2)))
    np.savez(tmp_path / "none.npz")
    np.savez(tmp_path / "three.npz", a=np.eye(2), b=np.eye(2), c=np.eye(2))
    np.savez(tmp_path / "mixed.npz", a=np.eye(2), names=np.array(["x", "y"]), o=np.array([{}], object))
    np.savez(tmp_path / "bias.npz", a=np.eye(2), bias=np.ones(2), c=np.eye(2))
    for name in ("junk.npy", "junk.npz", "cut.npz"):
        (tmp_path / name).write_bytes(b"PK\x03\x04 cut" if name == "cut.npz" else b"junk")
    (tmp_path / "none.npy").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(("arguments", "message"), [
    (["no.npy"], "FILES: there is no file no.npy"),
    (["vector.npy"], "vector must be a matrix (2 dimensions), but its shape is (3,)"),
    (["zeros.npy"], "zeros has no finite non-zero number"),
    (["complex.npy"], "complex is complex"),
    (["bool.npy"], "bool has dtype bool"),
    (["bf16.npy"], "np.save forgets ml_dtypes; use fs.save"),
    (["wide.npy", "wide.npy"], "the shapes (2, 9) and (2, 9) do not fit"),
    (["object.npy"], "object.npy cannot be read"),
    (["ragged.csv"], "ragged.csv cannot be read"),
    (["empty.csv"], "empty.csv cannot be read: it has no row of numbers"),
    (["text.csv"], "text.csv cannot be read"),
    (["wide.npy", "narrow.npy"], "9 columns meet 3 rows; --multiply 'narrow @ wide' would fit"),
    (["three.npz"], "--multiply must name the tensors to multiply; there are a (2, 2), b (2, 2), c (2, 2); write 'a @"),
    (["wide.npy", "-m", "wide * wide"], "--multiply: cannot read 'wide * wide'"),
    (["none.npz"], "none.npz holds no array"),
    (["none.npz:a"], "none.npz has no 'a'; it has no array"),
    (["mixed.npz"], "mixed.npz:NAME picks one array"),
    (["mixed.npz:names"], "names holds text (dtype <U1), not numbers"),
    (["mixed.npz:b"], "has no 'b'; it has a, names, o"),
    (["bias.npz"], "shape is (2,); bias.npz:NAME picks one array, and NAME can be a, c"),
    (["wide.npy", "--rounding", "sr"], "needs a seed: add --seed 1"),
    (["matrix.txt"], "matrix.txt must be one of .npy, .npz, .safetensors and .csv"),
    (["junk.npy"], "junk.npy cannot be read"),
    (["junk.npz"], "junk.npz cannot be read"),
    (["cut.npz"], "cut.npz cannot be read"),
    (["none.npy"], "none.npy cannot be read"),
    (["wide.npy:x"], "has no 'x'; it has wide"),
    (["wide.npy", "-m", "wide @ b"], "names 'b', but there are wide"),
    (["wide.npy", "--operands", "fp61"], "--operands: unknown format 'fp61'"),
    (["wide.npy", "--operands", "e8m0"], "E8M0 is a scale format"),
    (["wide.npy", "--accumulate", "kahn(fp16)"], "unknown accumulation 'kahn(fp16)'"),
    (["wide.npy", "--out", "no/x.png"], "--out: there is no folder no"),
    (["wide.npy", "--out", "x.gif"], "must end in .png, .pdf or .svg"),
    (["wide.npy", "--limit", "0"], "--limit"),
    (["wide.npy", "--overflow", "clamp"], "overflow='clamp' is not known"),
])  # fmt: skip
def test_survey_bad_input(run, strange, arguments, message):
    assert message in rejected(run("survey", *arguments))
    assert not list(Path.cwd().glob("*.png"))


@pytest.mark.skipif(np.longdouble(0).itemsize == 8, reason="longdouble is float64 here")
def test_survey_of_longdouble(run, strange):
    line = rejected(run("survey", "longdouble.npy"))
    assert "longdouble.npy: longdouble is an array of longdouble" in line
    assert "save x.astype('float64')" in line


def test_progress_appears_only_on_terminals(capsys, monkeypatch):
    assert list(track([1, 2, 3])) == [1, 2, 3]
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich: pretend that this is a terminal
    assert list(track([1, 2])) == [1, 2]
    out, err = capsys.readouterr()
    assert out == ""
    assert "multiplying" in err


def test_json_holds_no_bare_nan():
    assert json_value({"a": [math.nan, (math.inf,), 1.5, None, "x"]}) == {"a": ["nan", ["inf"], 1.5, None, "x"]}


def test_split_at_commas_outside_parentheses():
    assert split("sequential(fp16, fused), ieee(4,3),,exact(fp32)") == [
        "sequential(fp16, fused)", "ieee(4,3)", "exact(fp32)",
    ]  # fmt: skip


@pytest.mark.full
def test_warmup(run):
    code, out, _ = run("warmup", "fp16, fp32", "--operands", "fp16,e4m3", "--json")
    calls = [row["call"] for row in json.loads(out)["calls"]]
    assert code == 0 and calls == ["matmul fp16", "sum fp16", "matmul fp32", "sum fp32"] * 2
    code, out, _ = run("warmup", "hopper")
    assert code == 0 and "Calls: 1. Seconds: " in out
    for arguments, message in ((("nonsense",), "nonsense"), (("hopper", "--operands", "e2m1"), "hopper")):
        code, _, error = run("warmup", *arguments)
        assert code == 2 and message in error


def test_every_call_of_warmup_by_default():
    from floatsim.cli import warmup

    calls = list(warmup._calls_of_formats())
    assert {name.split()[0] for name, _ in calls} >= {"encode", "quantize", "decode", "add", "maximum", "flags"}
    assert all(fs.as_accumulation(text) for text in warmup.COMMON)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("arguments", [["formats"], ["show", "0.1"], ["show", "1e-40", "-f", "fp64"]], ids=" ".join)
def test_tables_cut_no_cell(run, monkeypatch, width, arguments):
    """Columns that do not fit a narrow terminal follow in further tables with the first column."""
    whole = run(*arguments)[1]
    main = importlib.import_module("floatsim.cli.main")
    monkeypatch.setattr(main, "rich_console", lambda: rich.console.Console(width=width, highlight=False))
    narrow = run(*arguments)[1]
    assert "\u2026" not in narrow
    table = whole.partition("\n\n")[2] if arguments[0] == "show" else whole
    cells = {cell for line in table.splitlines() for cell in re.split(r"\s{2,}", line.strip()) if cell}
    cells = {cell for cell in cells if len(cell) + 12 <= width}  # beside the longest name
    assert not [cell for cell in cells if cell not in narrow and not cell.startswith("layout:")]
    if width >= 60:
        rows = narrow.partition("layout:")[0] if arguments[0] == "formats" else narrow.partition("\n\n")[2]
        assert max(map(len, (line.rstrip() for line in rows.splitlines()))) <= width


# -- kernel ------------------------------------------------------------------------------------------------------------

_KERNEL = "cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_128x2_nn_align2"


def test_kernel(run):
    assert run("kernel", _KERNEL) == (0, f"{fs.hardware.describe_kernel(_KERNEL)}\n", "")
    call = ["kernel", _KERNEL, "--shape", "64,64,300", "--grid", "2x2x1"]
    code, out, _ = run(*call)
    assert code == 0 and "accumulate='residue(tensorcore(hopper), 128)', format='fp16'" in out
    data = json.loads(run(*call, "--json")[1])
    assert data["described"] and data["accumulate"] == "residue(tensorcore(hopper), 128)"
    split = run("kernel", _KERNEL, "--shape", "64,64,300", "--grid", "2,2,2", "--also",
                "void cublasLt::splitKreduce_kernel<32, 16, int, float, __half, float>")  # fmt: skip
    assert "splitk(2, residue(tensorcore(hopper), 128), sequential(fp32), tile=8)" in split[1]


@pytest.mark.parametrize(("arguments", "message"), [
    (["unknown_kernel"], "no rule knows it; the nearest recorded kernel is"),
    ([_KERNEL, "--shape", "64,64"], "is not (M, N, K)"),
    ([_KERNEL, "--shape", "a,b,c"], "--shape: 'a,b,c' is no list of integers"),
    ([_KERNEL, "--shape", "64,64,64"], "pass grid=(x, y, z)"),
    ([_KERNEL, "--shape", "64,64,64", "--grid", "2,2,1", "--device", "h100"], "device='h100' is not described"),
])  # fmt: skip
def test_kernel_bad_input(run, arguments, message):
    assert message in rejected(run("kernel", *arguments))
