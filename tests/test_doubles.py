"""The kernels on float64 against the general ones: every leaf, rounding and overflow policy; which sums they take."""

from __future__ import annotations

import numpy as np
import oracles as o
import pytest
from floatsim_kernels import gemm_doubles, machine
from test_sums import by_kernel, cancelling, operand, settled

import floatsim as fs
from floatsim import Overflow, Rounding, doubles, trees
from floatsim.contexts import Manner
from floatsim.leaves import Terms
from floatsim.rounding import Attributes
from floatsim.widening import narrow, widen

FORMATS = (
    fs.FP32, fs.TF32, fs.FP16, fs.BF16, fs.E5M2, fs.E4M3, fs.E4M3FNUZ, *o.CUSTOM, fs.FloatFormat.ieee(8, 15),
    fs.FloatFormat("fn(7,2)", 7, 2, "fn"), fs.FloatFormat.ieee(4, 20),
)  # fmt: skip


def kernel_of(leaf, a_format, b_format, attributes):
    return doubles.leaf_kernel(leaf, Terms(a_format, b_format), *settled(leaf, attributes))


def by_doubles(fast, leaf, a, b, manner, ranges, index, start=None):
    """(ranges, 1, M, N) codes."""
    (x, x_format), (y, y_format) = a, b
    fmt = leaf.format
    left, right = (
        widen(codes[0].astype(f.code_dtype), f, fs.FP64) for codes, f in ((x, x_format), (y, y_format or fmt))
    )
    out = np.full((len(ranges), left.shape[0], right.shape[1]), 0.0 if start is None else np.nan)
    if start is not None:
        out[:] = widen(start[0][0].astype(fmt.code_dtype), fmt, fs.FP64)
    programs = ()
    if isinstance(leaf, fs.Pairwise):
        out[:] = np.nan
        lengths = [len(range(*map(int, row))) for row in ranges]
        made = [trees.program(leaf.tree, n) for n in lengths]
        ranges = np.column_stack([ranges, np.cumsum([0, *lengths[:-1]])])
        programs = (*(np.concatenate([p[i] for p in made]) for i in (0, 1)), 40)
    seeds = np.full(len(ranges), manner.seed, np.uint64)
    fast.kernel(left, right, out, ranges, index[[0, 2, 3]], seeds, *programs, *fast.extra)
    return narrow(out, fs.FP64, fmt)[:, np.newaxis].astype(np.uint64)


def random_ranges(r, depth):
    ranges = [(0, depth, 1)]
    if r.random() < 0.4:
        cuts = np.sort(r.integers(0, depth + 1, 2))
        ranges = [(0, cuts[0], 1), (cuts[0], cuts[1], 2), (cuts[0] // 2, depth, int(r.integers(1, 9)))]
    return np.array(ranges, np.int64)


def compare(r, leaf, a_format, b_format, manner, shape):
    """Whether there was a fast kernel to compare; `b_format` None: values."""
    fast = kernel_of(leaf, a_format, b_format, manner.attributes)
    if fast is None or not machine.environment_is_default():
        return False
    rows, depth, columns = shape
    values = b_format is None
    x = operand(r, a_format, (1, rows, depth), leaf.format)
    y = operand(r, b_format or a_format, (1, depth, columns), leaf.format)
    if values:
        x = np.full((1, 1, depth), fs.array(1.0, fs.FP32).codes, np.uint64)
    elif r.random() < 0.4:
        x = cancelling(r, x, a_format, 2)
    a, b = (x, fs.FP32 if values else a_format), (y, a_format if values else b_format)
    ranges = random_ranges(r, depth)
    index = np.array([r.integers(2**20), 0, columns, 1] if r.random() < 0.8 else [5, 0, 1, rows], np.int64)
    start = None
    if not isinstance(leaf, fs.Pairwise) and r.random() < 0.4:
        codes = operand(r, leaf.format, (1, x.shape[1], columns)).astype(leaf.format.code_dtype)
        start = narrow(widen(codes, leaf.format, fs.FP64), fs.FP64, leaf.format).astype(np.uint64), leaf.format
    want, _, _ = by_kernel(leaf, a, b, manner, ranges, index, start, values, record=False)
    got = by_doubles(fast, leaf, a, b, manner, ranges, index, start)
    assert np.array_equal(got, want), (
        f"{leaf!r} of {a[1]!r} x {b[1]!r}, {manner}, {ranges.tolist()}, {index}, {shape}: "
        f"{np.argwhere(got != want)[:5].tolist()} {got[got != want][:5]} {want[got != want][:5]}"
    )
    return True


LEAVES = {
    "sequential": fs.Sequential, "kahan": fs.Kahan, "neumaier": fs.Neumaier, "pairwise": fs.Pairwise,
}  # fmt: skip


def a_leaf(r, name, fmt):
    product = [None, fmt, fmt, FORMATS[r.integers(len(FORMATS))]][r.integers(4)]
    own = {"overflow": Overflow(int(r.choice([0, 0, 0, 1, 2]))), "product": product}
    if product is not None and r.integers(4) == 0:
        own["product_rounding"] = Rounding(int(r.integers(7)))
    if name == "pairwise":
        own["tree"] = str(r.choice(["adjacent", "halving", "numpy"]))
    return LEAVES[name](fmt, **own)


def a_shape(r):
    """One cell, vectors and their rests, blocks and theirs; few terms or many."""
    if r.integers(3):
        return tuple(int(r.integers(*bounds)) for bounds in ((0, 5), (0, 40), (0, 35)))
    block = [
        int(r.choice([1, 33])),
        int(r.choice([0, 5, 70])),
        int(gemm_doubles.WIDTH * r.integers(1, 3) + r.integers(-1, 10)),
    ]
    return tuple(block)


@pytest.mark.parametrize("rounding", Rounding, ids=lambda r: r.name.lower())
@pytest.mark.parametrize("name", LEAVES)
def test_equals_the_general_kernels(name, rounding):
    r = o.rng("doubles", name, rounding)
    compared = 0
    for case in range(90):
        fmt = FORMATS[r.integers(len(FORMATS))]
        a_format, b_format = (FORMATS[i] for i in r.integers(0, len(FORMATS), 2))
        if r.integers(3) == 0:
            a_format = b_format = fmt
        manner = Manner(Attributes(rounding, random_bits=int(r.choice([1, 7, 24, 32]))), int(r.integers(1 << 63)))
        compared += compare(r, a_leaf(r, name, fmt), a_format, None if case % 5 == 4 else b_format, manner, a_shape(r))
    assert compared > 20 or not machine.environment_is_default(), compared
