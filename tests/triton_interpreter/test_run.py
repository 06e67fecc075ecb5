"""Run the checks of `floatsim.triton` in a process with TRITON_INTERPRET=1: Triton reads it at its first import."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
needs_triton = pytest.mark.skipif(
    not (importlib.util.find_spec("triton") and importlib.util.find_spec("torch")),
    reason="needs Triton and PyTorch: the extra `triton`",
)


def run(*arguments: str, interpret: str = "1") -> subprocess.CompletedProcess[str]:
    """Run Python in the repository, with or without the interpreter."""
    environment = os.environ | {"TRITON_INTERPRET": interpret, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@needs_triton
@pytest.mark.torch
@pytest.mark.parametrize("what", ["checks.py", "examples"])
def test_in_the_interpreter(what):
    """The checks of checks.py, and the examples of the docstrings."""
    path = "floatsim/triton" if what == "examples" else f"tests/triton_interpreter/{what}"
    found = run("-m", "pytest", path, "-q", "-x", "-p", "no:cacheprovider", "-o", "python_files=checks.py")
    assert found.returncode == 0, found.stdout + found.stderr
    assert " passed" in found.stdout


@needs_triton
def test_an_import_without_the_interpreter():
    code = """import triton, floatsim.triton as ftl
from triton.runtime import interpreter
before = dict(vars(interpreter.InterpreterBuilder))
try:
    with ftl.interpret():
        raise SystemExit("entered")
except RuntimeError as error:
    print(error)
assert before == dict(vars(interpreter.InterpreterBuilder))"""
    found = run("-c", code, interpret="0")
    assert found.returncode == 0, found.stderr
    assert "set TRITON_INTERPRET=1 in the environment before the first import" in found.stdout


def test_without_triton():
    """The message names the extra."""
    code = "import sys; sys.modules['triton'] = None; import floatsim.triton"
    found = run("-c", code)
    assert found.returncode
    assert "floatsim.triton needs Triton: pip install 'floatsim[triton]'" in found.stderr
