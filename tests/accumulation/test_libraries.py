"""`fs.library_sum`: what it describes, and every row against the library, where it and the CPU are the row's."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import floatsim as fs
from floatsim.accumulation.libraries import CPUS, ROWS, library_table
from tests.accumulation import library_runs

COUNT = 200
"""Shapes of each row and dtype."""


@cache
def this_cpu() -> str | None:
    """The name of this CPU in the table, or None."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return None
    first = dict(line.split("\t", 1) for line in text.split("\n\n")[0].splitlines() if "\t" in line)
    flags = set(first.get("flags", "").split())
    if "GenuineIntel" in text and {"amx_bf16", "avx512_fp16", "avx512_bf16"} <= flags:
        return "intel-amx"
    amd = "AuthenticAMD" in text and "cpu family\t: 25" in text and "avx512_bf16" in flags
    return "zen4" if amd else None


def installed(package: str) -> str:
    """The version of a library, without its local part; skips the test where there is none."""
    try:
        return importlib.metadata.version(package).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"needs {package}")


RUNS = [
    (row, dtype, cpu, threads)
    for row in ROWS
    for dtype in row.dtypes
    for cpu in row.cpus
    for threads in row.threads or (1,)
]


def _name(value: object) -> str:
    return value.function if hasattr(value, "function") else str(value)


@pytest.mark.full
@pytest.mark.parametrize(("row", "dtype", "cpu", "threads"), RUNS, ids=_name)
def test_bits_of_the_library(row, dtype, cpu, threads):
    version = installed(row.function.partition(".")[0])
    if version not in row.versions:
        pytest.skip(f"verified for {', '.join(row.versions)}, not {version}")
    environment = {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    if cpu == "intel-avx512-bf16" and this_cpu() == "intel-amx":
        environment["ONEDNN_MAX_CPU_ISA"] = "avx512_core_bf16"
    elif cpu != this_cpu():
        pytest.skip(f"needs the CPU {cpu}: {CPUS[cpu]}")
    case = f"{row.function}/{dtype}" + (f" to {row.result}" if row.result else "")
    arguments = [library_runs.__file__, case, cpu, str(threads), str(COUNT)]
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, *arguments], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [COUNT, []]


@pytest.mark.full
@pytest.mark.parametrize("name", ["numpy.matmul/float16", "numpy.sum/float32", "numpy.einsum/float32"])
def test_some_bits_of_numpy(name):
    """These rows are the same on every CPU."""
    if installed("numpy") not in ROWS[0].versions:
        pytest.skip("another NumPy")
    assert library_runs.compare(name, "zen4", 1, 4) == (4, [])


def test_every_row_has_a_run():
    assert {f"{row.function}/{dtype}" for row, dtype, *_ in RUNS if row.result is None} <= library_runs.CASES.keys()
    assert {cpu for row in ROWS for cpu in row.cpus} <= CPUS.keys()


def test_regions_cover_the_result():
    for shape in [(30, 19, 300), (5, 8, 40), (4, 67, 33), (2, 2, 64), (3, 17, 32), (33, 33, 31)]:
        for dtype in ("float32", "float64"):
            covered = [[0] * shape[1] for _ in range(shape[0])]
            for region in fs.library_sum("numpy.matmul", dtype, shape, cpu="intel-amx"):
                for i in range(shape[0])[region.rows]:
                    for j in range(shape[1])[region.columns]:
                        covered[i][j] += 1
            assert {cell for row in covered for cell in row} == {1}, (shape, dtype)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            ("numpy.matmul", "float32", (300, 300, 700)),
            "blocked(sequential(fp32, fused), [352, 348], sequential(fp32))",
        ),
        (
            ("numpy.matmul", "float64", (300, 304, 385)),
            "blocked(sequential(fp64, fused), [192, 193], sequential(fp64))",
        ),
        (("torch.matmul", "float32", (64, 64, 385)), "blocked(sequential(fp32, fused), [193, 192], sequential(fp32))"),
        (
            ("torch.matmul", "float32", (192, 192, 1000)),
            "blocked(sequential(fp32, fused), [384, 384, 232], sequential(fp32))",
        ),
        (("torch.matmul", "float16", (100, 100, 600)), "blocked(sequential(fp32), 512, sequential(fp32))"),
        (("torch.matmul", "float16", (2, 2, 10)), "tree(fp32, (0, 4, 8, 9, (1, 5), (2, 6), (3, 7)))"),
        (
            ("torch.sum", "float32", 20),
            "tree(fp32, "
            "(0, 8, (16, 17, 18, 19), (1, 9), (2, 10), (3, 11), (4, 12), (5, 13), (6, 14), (7, 15)))",
        ),
    ],
)  # fmt: skip
def test_texts(call, text):
    (region,) = fs.library_sum(*call, cpu="intel-amx")
    assert str(region.accumulate) == text
    assert fs.as_accumulation(text) == region.accumulate


@pytest.mark.parametrize(
    ("arguments", "keywords", "says"),
    [
        (("numpy.matmull", "float32", (2, 2, 2)), {}, "did you mean 'numpy.matmul'"),
        (("cblas", "float32", (2, 2, 2)), {}, "described are numpy.matmul, "),
        (("numpy.matmul", "int8", (2, 2, 2)), {}, "described: float32, float64, float16"),
        (("numpy.matmul", "float32", (2, 2, 2)), {"version": "1.0"}, "version='1.0' of numpy.matmul"),
        (("numpy.matmul", "float32", (2, 2, 2)), {"cpu": "arm"}, "described: intel-amx, zen4"),
        (("torch.matmul", "float32", (16, 16, 2)), {}, "depends on the CPU; pass cpu=, one of intel-amx, zen4"),
        (("numpy.matmul", "float32", (2, 2, 2)), {"threads": 8}, "threads=8 is not described; described: 1, 2"),
        (("numpy.matmul", "float32", (1, 2, 2)), {}, "a product with a vector"),
        (("numpy.matmul", "float32", (2, 2)), {}, "a shape other than \\(M, N, K\\)"),
        (("numpy.dot", "float32", 100), {}, "K % 64 >= 32 with K >= 96 is not described"),
        (("jax.numpy.matmul", "float32", (2, 2, 2)), {"result": "bfloat16"}, "with result='bfloat16'"),
    ],
)
def test_what_is_not_described(arguments, keywords, says):
    with pytest.raises(fs.NotDescribedError, match=says):
        fs.library_sum(*arguments, **keywords)


def test_bad_shapes():
    with pytest.raises(TypeError, match="shape must be an integer"):
        fs.library_sum("numpy.sum", "float32", (1.5,))
    with pytest.raises(ValueError, match="threads must be at least 1"):
        fs.library_sum("numpy.sum", "float32", 5, threads=0)


def test_the_table_in_the_documentation():
    page = Path(__file__).parents[2] / "docs" / "libraries.md"
    assert library_table() in page.read_text(encoding="utf-8")
