"""Run the checks of `floatsim.triton` in a process with TRITON_INTERPRET=1: Triton reads it at its first import."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs

ROOT = Path(__file__).parents[2]
needs_triton = pytest.mark.skipif(
    not (importlib.util.find_spec("triton") and importlib.util.find_spec("torch")),
    reason="needs Triton and PyTorch: the extra `triton`",
)


def run(*arguments: str, interpret: str = "1", together: bool = False) -> subprocess.CompletedProcess[str]:
    """Run Python in the repository, with or without the interpreter; with stderr in stdout, if `together`."""
    paths = [str(ROOT), str(ROOT / "kernels"), *filter(None, sys.path)]
    environment = os.environ | {"TRITON_INTERPRET": interpret, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, text=True, check=False, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if together else subprocess.PIPE,
    )  # fmt: skip


@needs_triton
@pytest.mark.torch
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.full)], ids=["some", "all"])
def test_in_the_interpreter(every):
    """The checks of checks.py, and the examples of the docstrings; only some of them in the quick tests."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-o", "python_files=checks.py"]
    if not every:
        options += ["-k", "restored or saturate or sample or version or floatsim.triton"]
    found = run("-m", "pytest", "tests/triton_interpreter/checks.py", "floatsim/triton", *options)
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
    assert 'floatsim.triton needs Triton: pip install "torch>=2.7" "triton>=' in found.stderr


KERNELS = """
import torch
from tests.triton_interpreter import kernels

def matmul(a, b):
    return kernels.matmul(a, b, block=(32, 32, 32))

def faulty(a, b):
    return kernels.matmul(a, b, block=(32, 32, 32), SKIP=1)

def undefined(a, b):
    return kernels.matmul(a.double(), b.double(), block=(32, 32, 32))

def failing(a, b):
    kernels.failing_kernel[(1,)](a)

kernel = kernels.matmul_kernel
"""


@needs_triton
@pytest.mark.torch
@pytest.mark.full
def test_the_commands(tmp_path):
    """`floatsim check` and `identify --triton` run a kernel on operands of files: equal, faulty, and bad input."""
    rng = np.random.default_rng(0)
    for name, shape in (("a", (32, 64)), ("b", (64, 32))):
        np.save(tmp_path / f"{name}.npy", fs.array(rng.standard_normal(shape), "fp16").codes.view(np.float16))
    (tmp_path / "mine.py").write_text(KERNELS, encoding="utf-8")
    lines = {
        "mine.py:matmul --accumulate hopper": (0, "all 1024 elements of FP32 pass"),
        "mine.py:matmul --accumulate fp32 --dot fp32": (0, "all 1024 elements of FP32 pass"),
        "mine.py:faulty --accumulate hopper": (1, "1024 of 1024"),
        "mine.py:undefined --accumulate hopper": (2, "--triton: tl.dot of FP64 and FP64 was not recorded"),
        "mine.py:failing --accumulate hopper": (3, "a fault of the kernel"),
        "mine.py:kernel --accumulate hopper": (2, "kernel is a kernel; name a function"),
        "mine.py:matmull --accumulate hopper": (2, "has no function 'matmull'; did you mean 'matmul'"),
        "other.py:matmul --accumulate hopper": (2, "there is no file"),
        "matmul --accumulate hopper": (2, "is no FILE.py:NAME"),
        "mine.py:matmul --accumulate hopper --dot hoper": (2, "--triton: unknown accumulation 'hoper'"),
        "mine.py:matmul --accumulate hopper --out a.npy": (2, "check needs one result"),
    }  # fmt: skip
    lines = {f"check --triton {line}": expected for line, expected in lines.items()} | {
        "identify --triton mine.py:matmul --device h200 --other-k 32": (0, "hopper, result in FP32"),
        "identify --triton mine.py:undefined": (2, "--triton: tl.dot of FP64 and FP64 was not recorded"),
        "identify --triton mine.py:failing": (3, "a fault of the kernel"),
        "identify --triton mine.py:matmul --dot hoper": (2, "--triton: unknown accumulation 'hoper'"),
        "identify --triton mine.py:matmul --out a.npy": (2, "identify needs one kernel"),
        "identify": (2, "identify needs one kernel"),
    }
    code = f"""import os, sys
from floatsim import cli
os.chdir({str(tmp_path)!r})
for line in {list(lines)!r}:
    try:
        cli.main([*line.split(), "--a", "a.npy", "--b", "b.npy"])
    except SystemExit as error:
        sys.stderr.flush()
        print(f"exit {{error.code}}", flush=True)"""
    found = run("-c", code, interpret="0", together=True).stdout
    parts = re.split(r"^exit (\d)$", found, flags=re.MULTILINE)
    assert len(parts) == 2 * len(lines) + 1, found
    for line, shown, exit_code in zip(lines, parts[::2], parts[1::2], strict=False):
        assert (int(exit_code), lines[line][1] in " ".join(shown.split())) == (lines[line][0], True), (line, shown)
