"""The checked build of the kernels: accesses outside an array are reported, and the search finds none."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim.emulator.dispatch import tiling

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]

KERNELS = """
import sys
import numba
import numpy as np
from floatsim_kernels.gemm import exact, float64
from floatsim_kernels.reduce import vector
from floatsim_kernels.runtime.jit import CHECKED, inline, kernel
from floatsim_kernels.runtime.simd import copy_columns, largest_code
from floatsim_kernels.tensorcore import float32

@inline
def taken(x, i):
    return x[i]

@kernel
def index(x, i):
    return taken(x, i)

@kernel
def fill(work, width, row):
    float64.fill_row(0, True, work, width, (row,), (2.0,), ())

@kernel
def classes(work, width, row):
    exact._split_by(0, True, work, width, (row, np.int64(0)), (1.0,), ())

@kernel
def extreme(work, width, row):
    return largest_code(work, width, row)

@kernel
def copy(work, i, j, k, l, n):
    copy_columns(work, i, j, work, k, l, n)

@kernel
def lanes(values, first, second):
    return vector.eight_lanes(vector.FP32Accumulator(), values, (first, second))

@kernel
def blocks(va, xa, vb, xb, acc, tally, places, latest, i, first, blocks):
    model = np.int64(4), np.int64(24), np.int64(-32000), np.int64(-1), np.int64(0)
    return float32._blocks(0, 1, va, xa, vb, xb, acc, tally, places, latest, i, first, blocks, model)

def matrix(rows, columns, dtype=np.float64):
    return np.zeros((rows, columns), dtype)

def of_blocks(rows=2, terms=8, depth=8, width=32, height=2, counted=2, events=5, placed=3, seen=2, across=32, count=2):
    return (
        matrix(rows, terms, np.float32), matrix(rows, terms, np.int32), matrix(depth, width, np.float32),
        matrix(depth, width, np.int16), matrix(height, width, np.float32), matrix(counted, events, np.int64),
        np.zeros((placed, seen, across), np.int32), np.zeros(count, np.int32),
    )
"""

VIOLATIONS = {
    "index above": "index(np.ones(3), 3)",
    "index below": "index(np.ones(3), -4)",
    "pass, row": "fill(matrix(4, 16), 16, 4)",
    "pass, negative row": "fill(matrix(4, 16), 16, -1)",
    "pass, columns": "fill(matrix(4, 16), 17, 3)",
    "pass, row below": "classes(matrix(4, 16), 16, 3)",
    "extreme": "extreme(matrix(4, 16), 16, 4)",
    "copy to": "copy(matrix(4, 16), 4, 0, 0, 0, 1)",
    "copy from": "copy(matrix(4, 16), 0, 0, 4, 0, 1)",
    "copy, columns": "copy(matrix(4, 16), 0, 8, 0, 0, 9)",
    "copy, negative": "copy(matrix(4, 16), 1, -1, 0, 0, 1)",
    "lanes": "lanes(np.ones(39, np.float32), 2, 3)",
    "lanes, first shorter": "lanes(np.ones(40, np.float32), 3, 2)",
    "lanes, none": "lanes(np.ones(40, np.float32), 0, 5)",
    "blocks, row of a": "blocks(*of_blocks(), 1, 0, 2)",
    "blocks, term of a": "blocks(*of_blocks(), 0, 4, 2)",
    "blocks, term of b": "blocks(*of_blocks(depth=7), 0, 0, 2)",
    "blocks, columns": "blocks(*of_blocks(width=31), 0, 0, 2)",
    "blocks, accumulators": "blocks(*of_blocks(height=1), 0, 0, 2)",
    "blocks, rows of counts": "blocks(*of_blocks(counted=1), 0, 0, 2)",
    "blocks, counts": "blocks(*of_blocks(events=4), 0, 0, 2)",
    "blocks, places": "blocks(*of_blocks(placed=2), 0, 0, 2)",
    "blocks, rows of places": "blocks(*of_blocks(seen=1), 0, 0, 2)",
    "blocks, columns of places": "blocks(*of_blocks(across=31), 0, 0, 2)",
    "blocks, place of a block": "blocks(*of_blocks(count=1), 0, 0, 2)",
    "blocks, place of a later block": "blocks(*of_blocks(count=1), 0, 4, 1)",
}
"""Each one step outside of an array."""
ALLOWED = (
    "index(np.ones(3), 2)", "index(np.ones(3), -3)", "fill(matrix(4, 16), 16, 3)", "classes(matrix(4, 16), 16, 2)",
    "extreme(matrix(4, 16), 16, 3)", "copy(matrix(4, 16), 3, 8, 0, 8, 8)", "copy(matrix(4, 16), 3, 16, 0, 16, 0)",
    "lanes(np.ones(40, np.float32), 2, 3)", "blocks(*of_blocks(), 0, 0, 2)", "blocks(*of_blocks(), 0, 4, 1)",
)  # fmt: skip
"""Each up to the last element."""


def run(folder: Path, code: str, checked: bool) -> str:
    """What a new process prints that imports KERNELS from a module, whose compiled kernels stay in the folder."""
    (folder / "some_kernels.py").write_text(KERNELS, encoding="utf-8")
    paths = [str(folder), str(ROOT), str(ROOT / "kernels")]
    environment = os.environ | {"FLOATSIM_CHECKED": str(int(checked)), "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", "from some_kernels import *\n" + code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_every_kind_of_access_is_checked(tmp_path):
    """Array indexes and raw pointers, one step outside; and nothing is reported up to the last element."""
    lines = [f"for name, call in {list(VIOLATIONS.items())!r} + [('allowed', c) for c in {ALLOWED!r}]:"]
    lines += ["    try: eval(call); print(name, '|')", "    except IndexError as error: print(name, '|', error)"]
    found = dict(line.split(" |") for line in run(tmp_path, "\n".join(lines), checked=True).splitlines())
    assert found.pop("allowed") == ""
    assert set(found) == set(VIOLATIONS)
    for name, message in found.items():
        kernel = VIOLATIONS[name].split("(")[0]
        assert message.startswith(f" kernel some_kernels.{kernel}: ") and "out" in message, (name, message)


USED = "print(CHECKED, index(np.ones(3), 0), index.stats.cache_hits.total())"
STEPPED_OUTSIDE = """
try: index(np.ones(3), 3)
except IndexError: print(CHECKED, 'reported', index.stats.cache_hits.total())
"""


def test_the_flag_is_part_of_the_cache_key(tmp_path):
    """A kernel compiled without checks is not taken from the cache by a checked process, nor the other way."""
    assert run(tmp_path, USED, checked=False).split() == ["False", "1.0", "0"]
    assert run(tmp_path, STEPPED_OUTSIDE, checked=True).split() == ["True", "reported", "0"]
    assert run(tmp_path, STEPPED_OUTSIDE, checked=True).split() == ["True", "reported", "1"]
    assert run(tmp_path, USED, checked=False).split() == ["False", "1.0", "1"]


SHORT_WORK = """
import numpy as np
from floatsim_kernels.gemm import exact
import floatsim as fs

needed = exact.rows_of_work
exact.rows_of_work = lambda levels: needed(levels) - 1
a, b = (fs.array(np.full(shape, 2.0**-40), "fp32") for shape in ((16, 40), (40, 20)))
a.codes[:, 0] = b.codes[0] = 1  # the least number: its square is in the last level
try:
    fs.matmul(a, b, accumulate="exact(fp32)")
except IndexError as error:
    print(error)
"""


def test_a_kernel_with_too_short_scratch_is_named(tmp_path):
    """The levels of an exact sum, one row short: the error that this build was made for."""
    message = run(tmp_path, SHORT_WORK, checked=True)
    assert message.strip() == "kernel floatsim_kernels.gemm.exact.exact: a row that a pass writes is outside its array"


WIDE_PRODUCTS = """
import numpy as np
import floatsim as fs

wide = fs.FloatFormat("wide", 8, 51, specials="fn", bias=127)
a = fs.array([[-(2.0**-177), -(2.0**-52)], [2.0**-79, 2.0**103]], wide)
b = fs.array([[-448.0, 1.875], [1.0, 1.0]], "e4m3")
print(fs.matmul(a, b, accumulate="exact(e5m2)").values.tolist())
ones = fs.FloatArray(np.ones((16, 40), np.uint64), wide), fs.FloatArray(np.ones((40, 40), np.uint8), fs.E4M3)
print(set(fs.matmul(*ones, accumulate="exact(fp64)").values.ravel().tolist()) == {40 * 2.0**-177 * 2.0**-9})
"""


def test_exact_sums_of_wide_products(tmp_path):
    """Products of more than 53 bits: their second halves were added behind the last level."""
    assert run(tmp_path, WIDE_PRODUCTS, checked=True).splitlines() == ["[[-0.0, -0.0], [inf, inf]]", "True"]


def test_scratch_that_threads_keep():
    """Arrays that are taken again have the wanted size, share no memory, and begin at cache lines where promised."""
    r = np.random.default_rng(1)
    partial, scratch = tiling._PartialResults(), tiling._Scratch()
    for _ in range(200):
        partial.clear()
        taken = []
        for _ in range(int(r.integers(1, 5))):
            shape = tuple(int(n) for n in r.integers(0, 30, int(r.integers(1, 4))))
            dtype = np.dtype(str(r.choice(["u1", "f4", "f8"])))
            taken.append(partial.take(shape, dtype))
            assert taken[-1].shape == shape and taken[-1].dtype == dtype and taken[-1].flags.c_contiguous
        assert not any(np.shares_memory(x, y) for x, y in itertools.combinations(taken, 2))
        shape, dtype = (int(r.integers(0, 140)), int(r.integers(1, 33)) * 16), np.dtype(str(r.choice(["f4", "f8"])))
        used = int(r.integers(0, shape[1] + 1))
        rows = scratch.take(*shape, dtype, used)
        assert rows.shape == shape and rows.dtype == dtype and not rows[:, :used].any()
        assert rows.size == 0 or rows.__array_interface__["data"][0] % 64 == 0
        rows[...] = 1


def test_codes_with_unused_bits():
    """A code with bits that its format does not have is no index beyond a table of values."""
    fmt = fs.FloatFormat("five bits", 3, 1, specials="finite")
    codes = np.full(300, 0xE9, np.uint8)
    for accumulation in ("fp32", "exact(fp32)"):
        found = fs.sum(fs.FloatArray(codes, fmt), accumulate=accumulation)
        assert found == fs.sum(fs.from_codes(codes & 0x1F, fmt), accumulate=accumulation), accumulation
