"""Parts of a stochastic product have the bits of the whole product, for every kernel and every description."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.emulator.dispatch.candidates import only
from tests.marks import cases

BATCH, M, N, K = 3, 7, 37, 24
RNG = np.random.default_rng(11)

CASES = {
    # the fast stochastic kernels, the integer kernels, composites, trees, compensated sums, Exact, matrix units
    "float32 sequential": ("sequential(bf16)", "bf16", {}),
    "float32 fused": ("sequential(fp16, fused)", "e4m3", {}),
    "float32 tree": ("pairwise(bf16)", "bf16", {}),
    "integer": ("sequential(fp32)", "fp32", {}),
    "integer tf32": ("sequential(tf32)", "bf16", {}),
    "integer, 64 random bits": ("sequential(bf16)", "bf16", {"random_bits": 64}),
    "kahan": ("kahan(bf16)", "bf16", {}),
    "neumaier": ("neumaier(fp16)", "fp16", {}),
    "exact": ("exact(bf16)", "bf16", {}),
    "strided": ("strided(sequential(bf16), 4)", "bf16", {}),
    "blocked": ("blocked(sequential(bf16), 8, fp16)", "e5m2", {}),
    "split": ("splitk(3, sequential(bf16), kahan(fp16))", "bf16", {}),
    "result": ("fp32", "bf16", {"format": "e4m3", "rounding": "ties_to_even", "result_rounding": "stochastic"}),
    "leaf": (fs.Sequential("bf16", rounding="stochastic"), "bf16", {"rounding": "toward_zero", "format": "e5m2"}),
    "matrix unit": ("hopper", "e4m3", {"format": "bf16"}),
    "blocked matrix unit": ("blocked(hopper, 8, bf16)", "e4m3", {}),
}


def operands(fmt):
    a, b = RNG.standard_normal((BATCH, M, K)), RNG.standard_normal((K, N))
    return fs.array(a, fmt), fs.array(b, fmt)


def assembled(a, b, c=None, **options):
    """The product from parts: single matrices or all, cut rows and cut columns."""
    found = np.empty((BATCH, M, N), options.pop("code_dtype"))
    for matrices in slice(0, 1), slice(1, 3):
        for rows in slice(0, 3), slice(3, 4), slice(4, 7):
            for columns in slice(0, 20), slice(20, 37):
                part = fs.matmul(
                    a[matrices, rows], b[:, columns], None if c is None else c[matrices, rows, columns],
                    part=fs.Part((matrices.start, rows.start, columns.start), (M, N)), **options,
                )  # fmt: skip
                found[matrices, rows, columns] = part.codes
    return found


@pytest.mark.parametrize("case", cases(quick=["float32 sequential", "exact", "leaf", "result"], full=CASES))
def test_parts_equal_the_whole(case):
    accumulate, fmt, more = CASES[case]
    options = {"accumulate": accumulate, "rounding": "stochastic", "seed": 5, **more}
    a, b = operands(fmt)
    whole = fs.matmul(a, b, **options)
    assert np.array_equal(assembled(a, b, code_dtype=whole.codes.dtype, **options), whole.codes)
    with only("integer"):
        assert np.array_equal(assembled(a, b, code_dtype=whole.codes.dtype, **options), whole.codes)
    other = fs.matmul(a, b, **(options | {"seed": 6}))
    moved = fs.matmul(a, b, part=fs.Part((0, 1, 0), (M + 1, N)), **options)
    if case != "matrix unit" or "format" in more:
        assert not np.array_equal(other.codes, whole.codes) and not np.array_equal(moved.codes, whole.codes)


@pytest.mark.parametrize(
    "accumulate",
    cases(
        quick=["blocked(sequential(bf16), 8, fp16)"],
        full=["sequential(bf16)", "pairwise(bf16)", "strided(sequential(bf16), 4)", "sequential(fp32)", "exact(bf16)"],
    ),
)
@pytest.mark.parametrize("scaled", cases(quick=[{}], full=[{"alpha": 0.3, "beta": 0.7}]))
def test_parts_with_c(accumulate, scaled):
    a, b = operands("bf16")
    c = fs.array(RNG.standard_normal((BATCH, M, N)), "bf16")
    options = {"accumulate": accumulate, "rounding": "stochastic", "seed": 5, "format": "e5m2", **scaled}
    whole = fs.matmul(a, b, c, **options)
    assert np.array_equal(assembled(a, b, c, code_dtype=whole.codes.dtype, **options), whole.codes)


def test_events_and_first_k_of_parts():
    """Where events are counted, other kernels compute: the bits are the same, and the counts add up."""
    a, b = operands("bf16")
    options = {"accumulate": "blocked(sequential(bf16), 8, fp16)", "rounding": "stochastic", "seed": 5}
    with fs.record() as log:
        whole = fs.matmul(a, b, **options)
    with fs.record() as parts:
        assert np.array_equal(assembled(a, b, code_dtype=whole.codes.dtype, **options), whole.codes)
    assert parts["matmul.sum"].inexact == log["matmul.sum"].inexact > 0
    assert parts["matmul.sum"].absorbed == log["matmul.sum"].absorbed


def test_vectors_and_dot():
    a, b = operands("bf16")
    options = {"accumulate": "bf16", "rounding": "stochastic", "seed": 3}
    whole = fs.matmul(a[0], b, **options)
    row = fs.matmul(a[0, 4], b[:, 5:], part=fs.Part((0, 4, 5), (M, N)), **options)
    column = fs.dot(a[0, 2:], b[:, 9], part=fs.Part((0, 2, 9), (M, N)), **options)
    one = fs.dot(a[0, 6], b[:, 36], part=fs.Part((0, 6, 36), (M, N)), **options)
    assert np.array_equal(row.codes, whole.codes[4, 5:]) and np.array_equal(column.codes, whole.codes[2:, 9])
    assert one.codes == whole.codes[6, 36]


def test_large_offsets():
    """The index exceeds 32 bits: the integer kernels compute. The reference gives the draws."""
    a, b = operands("bf16")
    options = {"accumulate": "bf16", "rounding": "stochastic", "seed": 3}
    shape = 1 << 20, 1 << 21
    one = fs.matmul(a[0, :1], b[:, :1], part=fs.Part((4, 1000, 5), shape), **options)
    more = fs.matmul(a[0, :1], b[:, :3], part=fs.Part((4, 1000, 5), shape), **options)
    assert one.codes[0, 0] == more.codes[0, 0]
    first = fs.matmul(np.repeat(a, 5, 0)[:5, :3], b, part=fs.Part((0, 0, 0), (3, N)), **options)
    last = fs.matmul(np.repeat(a, 5, 0)[4:5, :3], b, part=fs.Part((4, 0, 0), (3, N)), **options)
    assert np.array_equal(first.codes[4:], last.codes)


def test_parts_that_are_refused():
    a, b = operands("bf16")
    for first, whole, error, text in (
        ((0, 0, 0), None, ValueError, r"whole must be \(rows, columns\), not None"),
        (None, (M, N), ValueError, r"first must be \(batch, row, column\), not None"),
        ((0, 0), (M, N), ValueError, r"first must be \(batch, row, column\), not \(0, 0\)"),
        ((0, 1.5, 0), (M, N), TypeError, r"first\[1\] must be an integer, not 1.5"),
        ((0, 1, 0), (M, N), ValueError, "no part of a whole"),
        ((0, 0, 1), (M, N), ValueError, "no part of a whole"),
        ((-1, 0, 0), (M, N), ValueError, r"first\[0\]"),
        ((0, 0, 0), (M, 1 << 63), ValueError, r"whole\[1\]"),
        ((1 << 40, 0, 0), (1 << 20, 1 << 20), ValueError, "more than 2"),
    ):
        with pytest.raises(error, match=text):
            fs.matmul(a, b, part=fs.Part(first, whole))
    with pytest.raises(TypeError, match=r"part must be fs.Part\(.*\), not \(\(0, 0, 0\), \(7, 37\)\)"):
        fs.matmul(a, b, part=((0, 0, 0), (M, N)))
    assert np.array_equal(fs.matmul(a, b, part=fs.Part((0, 0, 0), (M, N))), fs.matmul(a, b))
