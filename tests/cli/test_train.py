"""The command `floatsim train`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import floatsim as fs

pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.mark.full
def test_one_policy(run):
    code, out, error = run("train", "--policy", "fp16", "--loss-scale", "dynamic", "--epochs", 1, "-o", "one.png")
    assert (code, error) == (0, "")
    assert "fp16" in out
    assert "loss scale 65536 -> 32768" in out
    assert "one.png" in out


@pytest.mark.full
def test_comparison_as_json(run):
    code, out, _ = run("train", "--compare", "fp32", "fp16+scaling", "--epochs", 1, "--json", "-o", "two.svg")
    found = json.loads(out)
    assert code == 0
    assert [each["policy"] for each in found["runs"]] == ["fp32", "fp16+scaling"]
    assert len(found["runs"][0]["losses"]) == 45
    assert "</svg>" in Path(found["picture"]).read_text(encoding="utf-8")


@pytest.mark.full
def test_a_diverging_run_is_a_report(run):
    code, out, error = run("train", "fp16", "--lr", 1e4, "--epochs", 2)
    assert (code, error) == (0, "")
    assert "the run diverged in step" in out
    assert "The first operation with infinity: linear, layer" in out


def test_list(run):
    code, out, _ = run("train", "--list", "--json")
    assert code == 0
    assert {"fp16", "apex-o1", "te-fp8", "deepseek", "nvfp4"} <= {row["name"] for row in json.loads(out)}
    assert {other: row["name"] for row in json.loads(out) for other in row["also"]} == dict(fs.training.POLICY_ALIASES)


def test_the_list_has_every_name_of_the_documentation(run):
    """Other names and modifiers, too: fp8-delayed, fp16+scaling."""
    root = Path(__file__).parents[2]
    text = "".join((root / page).read_text(encoding="utf-8") for page in ("README.md", "docs/training.md"))
    used = {
        name
        for line in re.findall(r"floatsim train --compare ([^`\n#]*?)(?: --|[`\n#])", text)
        for name in line.split()
    }
    assert len(used) > 3
    _, out, _ = run("train", "--list")
    listed = set(re.findall(r"[+\w-]+", out))
    for name, *modifiers in (name.split("+") for name in used):
        assert name in listed and {f"+{modifier}" for modifier in modifiers} <= listed, name


@pytest.mark.parametrize(("arguments", "message"), [
    (["fp61"], "policy 'fp61' is not known; did you mean 'fp16'?"),
    (["fp8"], "policy 'fp8' is not known; did you mean one of 'te-fp8', 'mxfp8',"),
    (["FP4"], "did you mean one of 'nvfp4', 'mxfp4'?"),
    (["fp16", "--lr", "nan"], "lr must be a finite number"),
    (["fp16", "--loss-scale", "0"], "scale must be above 0"),
    (["fp16", "--loss-scale", "dynamik"], "did you mean 'dynamic'?"),
    (["fp16", "--network", "ccn"], "did you mean 'cnn'?"),
    (["fp16", "--optimizer", "adamm"], "did you mean 'adam"),
    (["--compare", "fp16"], "--compare needs two policies"),
    (["fp16", "-o", "x.txt"], "must end in .png"),
    (["fp16", "-o", "missing/x.png"], "there is no folder missing"),
])  # fmt: skip
def test_bad_input(run, arguments, message):
    code, out, error = run("train", *arguments)
    assert (code, out) == (2, "")
    assert message in error
