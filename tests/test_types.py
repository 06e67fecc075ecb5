"""Static types: mypy and pyright find planted errors in a user's script, and none in the corrected script.

Each checker is optional. Without it, its tests are skipped.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import floatsim as fs

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[1]

PRELUDE = """\
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

import floatsim as fs
from floatsim.formats import FormatLike

a = np.ones((2, 2), np.float16)
x = fs.array([0.1, 2.0], "fp16")
"""

# A line with an error that a type checker can see, and the corrected line.
PLANTED = (
    # unknown names
    ("fs.nonsense(x)", "fs.absolute(x)"),
    ("fs.E4M4.max", "fs.E4M3.max"),
    ("fs.plot.nonsense", "fs.plot.number_line"),
    ("fs.tensorcore.describes('hopper')", "fs.tensorcore.describe('hopper')"),
    ("fs.hardware.is_there()", "fs.hardware.is_available()"),
    # types of arguments
    ("fs.add(x, 'one')", "fs.add(x, 1.0)"),
    ("fs.matmul(a, None)", "fs.matmul(a, a)"),
    ("fs.sqrt({1.0})", "fs.sqrt([1.0])"),
    ("fs.sqrt([[1.0], ['2']])", "fs.sqrt([[1.0, 2], [3, 4]])"),
    ("fs.array(0.1, 16)", "fs.array(0.1, 'fp16')"),
    ("fs.decode(0.5, 'fp16')", "fs.decode(15360, 'fp16')"),
    ("fs.from_integer(0.5, 'fp16')", "fs.from_integer(2**70, 'fp16')"),
    ("fs.scalb(x, 0.5)", "fs.scalb(x, [1, -1])"),
    ("fs.FloatFormat('own', '5', 2)", "fs.FloatFormat('own', 5, 2)"),
    ("fs.RandomStream('seed')", "fs.RandomStream(1)"),
    ("fs.explain_rounding(0.1)", "fs.explain_rounding(0.1, 'bf16')"),
    # names of modes
    ("fs.add(x, x, rounding='down')", "fs.add(x, x, rounding='toward_negative')"),
    ("fs.quantize(a, 'e4m3', overflow='saturate')", "fs.quantize(a, 'e4m3', overflow='saturate_finite')"),
    ("fs.multiply(x, x, tininess='never')", "fs.multiply(x, x, tininess='before')"),
    ("fs.matmul(a, a, backend='gpu')", "fs.matmul(a, a, backend='emulator')"),
    ("fs.sum(x, result_rounding='RTX')", "fs.sum(x, result_rounding='RTZ')"),
    ("fs.ulp(1.0, 'fp16', kind='knuth')", "fs.ulp(1.0, 'fp16', kind='kahan')"),
    # names of keywords
    ("fs.add(x, x, round='RTZ')", "fs.add(x, x, rounding='RTZ')"),
    ("fs.matmul(a, a, accumulator='fp16')", "fs.matmul(a, a, accumulate='fp16')"),
    ("fs.sum(x, axes=0)", "fs.sum(x, axis=0)"),
    ("x.sum(round='RTZ')", "x.sum(rounding='RTZ')"),
    # use of results
    ("fs.add(x, x).code", "fs.add(x, x).codes"),
    ("fs.add(x, x, return_flags=True).codes", "fs.add(x, x, return_flags=True)[0].codes"),
    ("fs.quantize(a, 'e4m3').codes", "fs.quantize(a, 'e4m3').nbytes"),
    ("fs.matmul(a, a, accumulate='hopper').values", "fs.matmul(a, a, accumulate='hopper').dtype"),
    ("fs.isnan(x).codes", "fs.isnan(x).any()"),
    ("x.format.precison", "x.format.precision"),
    ("(x + 1.0).value", "(x + 1.0).values"),
    ("x << 2", "x**2"),
)

# Correct uses, with the types of the results declared.
CLEAN = """\
y: fs.FloatArray = fs.add(x, 2.0, rounding="RTZ", overflow="saturate_finite", tininess="before")
z, flags = fs.fma(1.0, x, y, return_flags=True)
z = abs(-z) + x * a[0, 0] - 1.0 / x
codes: NDArray[np.unsignedinteger] = z.codes
inexact: NDArray[np.bool_] = (flags & fs.INEXACT) != 0
quantized: NDArray[np.float16] = fs.quantize(a, "ieee(5,9)")
custom = fs.FloatFormat.ieee(5, 9)
print(fs.convert(a, custom).codes, fs.convert(a, "bf16").astype(np.float32) + 1, fs.convert(x, "e4m3").format.name)
print(fs.matmul(a, a.T, accumulate="blocked(hopper, 128, fp32)", format="fp16").dtype)
print(fs.matmul(a, a.T, accumulate="tf32").codes, fs.matmul(x, a, accumulate=fs.Kahan(fs.FP16)).values.mean())
out = np.empty((2, 2), np.float32)
print(fs.matmul(a, a, out=out) is out, fs.dot(x, x, accumulate="exact(fp32)").item(), fs.vdot(a, a, format=np.float16))
with fs.context(rounding="toward_zero", backend="emulator"), fs.record() as log:
    total = fs.sum(x, accumulate="kahan(fp16)")
print(log["sum.sum"].inexact, float(total), x.sum(axis=0, accumulate="fp16", keepdims=True).shape)
print(fs.encode("0.1", "bf16"), fs.encode([Fraction(1, 3), 2], "fp16").sum(), fs.decode([0x3C00], np.float16).mean())
print(fs.encode([[Fraction(1, 3), 2], ["0.1", 3.0]], "fp16"), fs.from_integer([[1, 2**70]], "fp32"))
print(fs.less(x, y).sum(), (x < 1.0).any(), bool(fs.isfinite(1.0)), fs.classify(x)[0], fs.ulp_distance(x, y).max())
print(fs.as_format(np.float16).emax, fs.as_format("FP16").bits, fs.as_format(np.dtype("float32")).name)


def rounded(values: NDArray[np.float64], fmt: FormatLike, mode: fs.Rounding) -> NDArray[np.float64]:
    return fs.quantize(values, fmt, rounding=mode, seed=fs.RandomStream(1))


for mode in fs.Rounding:
    print(rounded(np.ones(3), fs.E4M3, mode), mode.name, [element.item() for element in x])
function = fs.add
print(function.__name__, list(map(fs.negative, [x, y])), fs.tensorcore.ARCHITECTURES["hopper"].name)
"""


def scripts(folder: Path) -> tuple[Path, Path]:
    """Write the script with the planted errors and the clean one, and return their paths."""
    planted, clean = folder / "planted.py", folder / "clean.py"
    planted.write_text(PRELUDE + "".join(f"print({wrong})\n" for wrong, _ in PLANTED), encoding="utf-8")
    clean.write_text(PRELUDE + "".join(f"print({right})\n" for _, right in PLANTED) + CLEAN, encoding="utf-8")
    return planted, clean


def run(command: list[str], folder: Path, **variables: str) -> str:
    """Run a checker, which exits with 1 if it finds errors, and return its output."""
    environment = os.environ | variables
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy_errors(folder: Path, files: tuple[Path, ...]) -> dict[str, set[int]]:
    """Return the lines in which `mypy --strict` finds errors, by file.

    The sources stand for an installed floatsim: mypy reports no errors of installed packages.
    """
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed: pip install mypy")
    settings = folder / "mypy.ini"
    settings.write_text(
        "[mypy]\nstrict = True\nfollow_imports = silent\n"
        "[mypy-numba.*,llvmlite.*,floatsim_kernels.*,ml_dtypes.*,pandas.*,tqdm.*]\n"
        "follow_imports = skip\nignore_missing_imports = True\n"
    )
    names = [path.name for path in files]
    command = [sys.executable, "-m", "mypy", "--config-file", str(settings), *names]
    output = run(command, folder, MYPYPATH=str(ROOT))
    assert not re.search(r"^(?!planted|clean).*: error:", output, re.MULTILINE), output
    return {
        name: {int(line) for line in re.findall(rf"^{re.escape(name)}:(\d+): error:", output, re.MULTILINE)}
        for name in names
    }


def pyright_command(name: str = "pyright") -> str:
    """Return the path of pyright beside this Python or in PATH. Skip the test if it cannot run."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(name, path=folders)
    if found is None:
        pytest.skip("pyright is not installed: pip install 'pyright[nodejs]'")
    if name == "pyright":
        done = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"pyright does not run; its first run needs the network: {done.stderr.strip()[-200:]}")
    return found


def pyright_errors(folder: Path, files: tuple[Path, ...]) -> dict[str, set[int]]:
    """Return the lines in which pyright finds errors, by file."""
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    report = json.loads(run([pyright_command(), "--outputjson", "--pythonpath", sys.executable], folder))
    return {
        path.name: {
            each["range"]["start"]["line"] + 1
            for each in report["generalDiagnostics"]
            if each["severity"] == "error" and Path(each["file"]).name == path.name
        }
        for path in files
    }


@pytest.mark.parametrize("errors_of", [mypy_errors, pyright_errors])
def test_all_errors_are_found_and_none_is_invented(tmp_path, errors_of):
    planted, clean = scripts(tmp_path)
    found = errors_of(tmp_path, (planted, clean))
    first = PRELUDE.count("\n") + 1
    lines = clean.read_text(encoding="utf-8").splitlines()
    assert [wrong for line, (wrong, _) in enumerate(PLANTED, first) if line not in found["planted.py"]] == []
    assert found["planted.py"] == set(range(first, first + len(PLANTED)))
    assert [lines[line - 1] for line in sorted(found["clean.py"])] == []


def test_planted_errors_are_errors_at_run_time():
    """At least 25 lines are planted. Each raises an exception, and the corrected line does not."""
    assert len(PLANTED) >= 25
    scope: dict[str, Any] = {}
    exec(PRELUDE, scope)
    for wrong, right in PLANTED:
        eval(right, scope)
        with pytest.raises((AttributeError, TypeError, ValueError)):
            eval(wrong, scope)


def test_clean_script_runs():
    scope: dict[str, Any] = {}
    exec(PRELUDE + CLEAN, scope)


# -- results at run time -----------------------------------------------------------------------------------------------


def write_stubs() -> Any:
    """Return the module `tools/write_stubs.py`."""
    spec = importlib.util.spec_from_file_location("write_stubs", ROOT / "tools" / "write_stubs.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["write_stubs"] = module  # for its dataclass
    spec.loader.exec_module(module)
    return module


STUBS = write_stubs()
EXPANDED = {name: getattr(fs, name) for name in fs.__all__ if STUBS.is_expanded(getattr(fs, name))}
CHOICES = {
    "format": "fp16", "dtype": np.int32, "n": 2, "codes": np.arange(4, dtype=np.uint8), "scale_a": 1.0, "scale_b": 1.0,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["FloatArray", "ndarray"])
@pytest.mark.parametrize("name", EXPANDED)
def test_results_have_the_declared_types(name, kind):
    """The overloads that `tools/write_stubs.py` derives from the return types are correct at run time."""
    function, operand = EXPANDED[name], fs.array([[1.0, 2.0], [0.5, 1.0]], "fp16")
    signature = inspect.signature(function)
    if kind == "ndarray":
        operand = np.asarray(operand)
    required = [each.name for each in signature.parameters.values() if each.default is each.empty]
    arguments = {key: CHOICES.get(key, operand) for key in required if key != "options"}
    if name == "from_integer":
        arguments["n"] = np.arange(4)
    if name == "scaled_mm":
        arguments["format"] = "fp16"  # the default, BF16, is no dtype of NumPy
    result = function(**arguments)
    if "RoundingOptions" in str(signature):
        with_flags = function(**arguments, return_flags=True)
        assert type(with_flags) is tuple
        assert type(with_flags[0]) is type(result)
        assert with_flags[1].dtype == np.uint8
    declared = STUBS.RESULTS[signature.return_annotation]
    if declared is None:
        declared = "FloatArray" if kind == "FloatArray" and name != "from_integer" else "NDArray[np.floating]"
    if declared == "FloatArray":
        assert type(result) is fs.FloatArray
    else:
        dtype = re.search(r"np\.(\w+)", declared)[1]
        assert isinstance(result, np.ndarray | np.generic)
        assert np.issubdtype(result.dtype, getattr(np, dtype))


# -- completion in editors ---------------------------------------------------------------------------------------------


class LanguageServer:
    """A client of pyright's language server, for one file."""

    def __init__(self, command: str, folder: Path) -> None:
        self.process = subprocess.Popen([command, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder)
        self.limit = threading.Timer(120, self.process.kill)  # no answer would block the test
        self.limit.start()
        self.calls = 0
        folders = [{"uri": folder.as_uri(), "name": folder.name}]
        self.call("initialize", {"processId": None, "rootUri": None, "workspaceFolders": folders, "capabilities": {}})
        self.send({"method": "initialized", "params": {}})

    def close(self) -> None:
        self.limit.cancel()
        self.process.kill()
        self.process.communicate()

    def send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        length = 0
        while line := self.process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        assert length, "pyright's language server has ended"
        return json.loads(self.process.stdout.read(length))

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """Return the result of a request. Requests of the server get an empty response."""
        self.calls += 1
        self.send({"id": self.calls, "method": method, "params": params})
        while True:
            message = self.read()
            if "method" not in message and message.get("id") == self.calls:
                return message["result"]
            if "method" in message and "id" in message:
                items = message.get("params", {}).get("items")
                self.send({"id": message["id"], "result": None if items is None else [{} for _ in items]})


@pytest.fixture
def server(tmp_path) -> Iterator[LanguageServer]:
    pyright_command()
    settings = {"extraPaths": [str(ROOT)], "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    running = LanguageServer(pyright_command("pyright-langserver"), tmp_path)
    yield running
    running.close()


def test_completion(server, tmp_path):
    """An editor offers `matmul` for `fs.mat`, the rounding modes, the formats, and the documentation of a function."""
    lines = ["import floatsim as fs", "fs.mat", 'fs.quantize(1.0, "")', 'fs.quantize(1.0, "bf16", rounding="")']
    path = tmp_path / "edited.py"
    path.write_text("\n".join(lines), encoding="utf-8")
    document = {"uri": path.as_uri(), "languageId": "python", "version": 1, "text": "\n".join(lines)}
    server.send({"method": "textDocument/didOpen", "params": {"textDocument": document}})

    def position(line: int, character: int) -> dict[str, Any]:
        return {"textDocument": {"uri": path.as_uri()}, "position": {"line": line, "character": character}}

    def offered(line: int, behind: str) -> set[str]:
        at = position(line, lines[line].index(behind) + len(behind))
        return {item["label"].strip("\"'") for item in server.call("textDocument/completion", at)["items"]}

    assert "matmul" in offered(1, "fs.mat")
    assert {"fp16", "bf16", "e4m3", "float32"} <= offered(2, '1.0, "')
    assert {"toward_zero", "RTZ", "stochastic"} <= offered(3, 'rounding="')
    hover = server.call("textDocument/hover", position(2, len("fs.qua")))
    assert "Round values to the values of a format" in json.dumps(hover)
