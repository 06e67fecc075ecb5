"""The general kernels of sums against the reference: codes, counts of events, and the places of the first ones."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import oracles as o
import pytest
from floatsim_kernels.gemm import integer as sums

import floatsim as fs
from floatsim import Overflow, Rounding, Tininess
from floatsim.accumulation import ProductLeaf, trees
from floatsim.emulator.params import format_params, rounding_params
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes
from floatsim.reference import sums as reference_sums
from floatsim.reference.sums import Code

NEVER = np.iinfo(np.int64).max
INPUTS = (fs.FP64, fs.FP32, fs.TF32, fs.FP16, fs.BF16, fs.E5M2, fs.E4M3, fs.E2M1, fs.E4M3FNUZ, *o.CUSTOM)
SUMS = INPUTS
KERNELS = {fs.Sequential: sums.sequential, fs.Kahan: sums.kahan, fs.Neumaier: sums.neumaier}
TREES = tuple(reference_sums.TREES)
LEAVES = ("sequential", "kahan", "neumaier", *TREES, "exact")


def settled(leaf, attributes):
    """The rounding attributes of a leaf's sums, and of its products."""
    own = {name: getattr(leaf, name) for name in ("rounding", "ftz", "daz") if getattr(leaf, name) is not None}
    rounding_attributes = replace(attributes, overflow=leaf.overflow, **own)
    if isinstance(leaf, ProductLeaf) and leaf.product_rounding is not None:
        return rounding_attributes, replace(rounding_attributes, rounding=leaf.product_rounding)
    return rounding_attributes, rounding_attributes


def by_kernel(leaf, a, b, options, ranges, index, start=None, values=False, record=True):
    """(ranges, batch, M, N) codes, {site: {event byte: count}}, {event: places}."""
    (x, x_format), (y, y_format) = a, b
    attributes, products = settled(leaf, options.attributes)
    fmt = leaf.format
    shape = (*x.shape[:2], y.shape[2])
    out = np.full((len(ranges), *shape), 0xDEAD if isinstance(leaf, fs.Pairwise | fs.Exact) else 0, np.uint64)
    counts = np.zeros((2, 256), np.int64)
    first = np.full((len(sums.FIRST) if record else 0, *shape), NEVER, np.int64)
    seeds = np.full(len(ranges), options.seed, np.uint64)
    tail = (seeds, index, np.arange(x.shape[2], dtype=np.int64), counts, first)
    operands = (
        x,
        format_params(x_format),
        y,
        format_params(y_format),
        out,
        format_params(fmt),
        rounding_params(attributes),
    )
    if isinstance(leaf, fs.Exact):
        formats = (x_format, y_format, *([start[1]] if start else []))
        weight = 2 * min(f.emin - f.precision for f in formats) - 256
        limbs = np.zeros((2 * max(f.emax for f in formats) + 40 - weight) // 32 + 6, np.int64)
        c, c_format = start or (np.empty((0, 0, 0), np.uint64), fmt)
        sums.exact(*operands, ranges, *tail, limbs, weight, c, format_params(c_format))
    else:
        if start is not None and not isinstance(leaf, fs.Pairwise):
            out[:] = start[0]
        keep_exact = leaf.product is None or values
        rows = (np.zeros(9, np.int64) if keep_exact else format_params(leaf.product), rounding_params(products))
        if isinstance(leaf, fs.Pairwise):
            lengths = [len(range(*map(int, row))) for row in ranges]
            programs = [trees.program(leaf.tree, n) for n in lengths]
            offsets = np.cumsum([0, *lengths[:-1]])
            orders, merges = (np.concatenate([p[i] for p in programs]) for i in (0, 1))
            sums.tree(*operands, *rows, np.column_stack([ranges, offsets]), *tail, orders, merges, 40)
        else:
            KERNELS[type(leaf)](*operands, *rows, ranges, *tail)
    by_site = [{int(e): int(row[e]) for e in np.flatnonzero(row)} for row in counts]
    return out, dict(zip(("product", "sum"), by_site, strict=True)), first


def by_reference(leaf, a, b, options, ranges, index, start=None, values=False):
    """The same, from the reference."""
    (x, x_format), (y, y_format) = a, b
    shape = (*x.shape[:2], y.shape[2])
    out = np.zeros((len(ranges), *shape), np.uint64)
    first = np.full((len(sums.FIRST), *shape), NEVER, np.int64)
    counts = {"product": Counter(), "sum": Counter()}
    seeded = start is not None and not isinstance(leaf, fs.Exact)
    for (part, row), cell in itertools.product(enumerate(ranges), np.ndindex(shape)):
        n, i, j = cell
        at = range(*map(int, row))
        left = [Code(int(x[n, i, k]), x_format) for k in at]
        right = [Code(int(y[n, k, j]), y_format) for k in at]
        terms = [(q, None) for q in right] if values else list(zip(left, right, strict=True))
        element = int(index[0] + np.dot(index[1:], cell))
        c = Code(int(start[0][cell]), start[1]) if start else None
        want = reference_sums.accumulate(leaf, terms, options, element, c)
        out[part][cell] = want.code
        for site, counter in want.counts.items():
            counts[site].update(counter)
        if seeded:  # the kernels' start values have been rounded before: here an exact conversion
            counts["sum"][0] -= 1
        for event, k in enumerate(want.first.values()):
            if k is not None:
                first[event][cell] = min(first[event][cell], at[k] if at else 0)
    return out, {site: {e: n for e, n in counter.items() if n} for site, counter in counts.items()}, first


def compare(leaf, a, b, options, ranges, index, **keywords):
    got, want = (f(leaf, a, b, options, ranges, index, **keywords) for f in (by_kernel, by_reference))
    what = f"{leaf!r} of {a[1]!r} x {b[1]!r}, {options}, {keywords}\na={a[0]}\nb={b[0]}"
    assert np.array_equal(got[0], want[0]), f"{what}\n{got[0]}\n{want[0]}"
    assert got[1] == want[1], f"{what}\n{got[1]}\n{want[1]}"
    assert np.array_equal(got[2], want[2]), f"{what}\n{got[2]}\n{want[2]}"


def codes_of(values, fmt):
    return fs.array(values, fmt, overflow="saturate_finite").codes.astype(np.uint64)


def operand(r, fmt, shape, like=None):
    """Bit patterns, ordinary numbers, all sizes, subnormals, large numbers, specials; in `like`'s range where given."""
    kind = r.integers(7)
    codes = r.integers(0, 2**fmt.bits - 1, shape, dtype=np.uint64, endpoint=True)
    if kind == 0:
        return codes
    x = r.standard_normal(shape)
    like = like or fmt
    with np.errstate(over="ignore", under="ignore"):
        if kind == 1:
            x *= 2.0 ** r.integers(-3 * like.precision // 2, 3 * like.precision // 2 + 1, shape)
        elif kind == 2:
            x *= 2.0 ** max(like.emin // 2 + int(r.integers(-like.precision, 3)), -1000)
        elif kind == 3:
            x *= 2.0 ** max(fmt.emin - int(r.integers(fmt.precision)), -1000)
        elif kind == 4:
            x *= 2.0 ** (min(fmt.emax, like.emax) - r.integers(0, 4, shape))
        elif kind == 5:
            x = np.round(x * 2)
        else:
            return np.where(r.random(shape) < 0.2, r.choice(o.special_codes(fmt).astype(np.uint64), shape),
                            codes_of(x, fmt))  # fmt: skip
    return codes_of(x, fmt)


def cancelling(r, codes, fmt, axis):
    """Half of the terms with the sign of the other half's turned, in any order; sometimes one last bit away."""
    n = codes.shape[axis] // 2
    first, second = (np.take(codes, range(at, at + n), axis) for at in (0, n))
    if fmt.has_signed_zero:
        second = first ^ np.uint64(fmt.sign_mask) ^ (r.random(first.shape) < 0.2).astype(np.uint64)
    mixed = np.concatenate([first, second, np.take(codes, range(2 * n, codes.shape[axis]), axis)], axis)
    return np.take(mixed, r.permutation(codes.shape[axis]), axis) if r.integers(2) else mixed


def laid_out(r, codes):
    """The same array in some layout: strided, transposed, turned round, or read-only."""
    match r.integers(5):
        case 0:
            wide = np.zeros([2 * s + 1 for s in codes.shape], np.uint64)
            view = wide[tuple(slice(1, 2 * s + 1, 2) for s in codes.shape)]
        case 1:
            view = np.empty(codes.shape[::-1], np.uint64).transpose()
        case 2:
            view = np.empty(codes.shape, np.uint64)[:, ::-1, ::-1]
        case 3:
            codes.flags.writeable = False
            return codes
        case _:
            return codes
    view[...] = codes
    return view


def a_call(r, rounding):
    flags = [bool(x) for x in r.integers(0, 2, 2)] if r.integers(2) else [False, False]
    attributes = RoundingAttributes(
        rounding, Overflow.INFINITY, *flags, Tininess(int(r.integers(2))),
        int(r.choice([1, 4, 8, 32, 33, 64])),
    )  # fmt: skip
    return CallOptions(attributes, int(r.integers(1 << 63)))


def a_leaf(r, name, fmt):
    overflow = Overflow(int(r.choice([0, 0, 0, 1, 2])))
    own = {"overflow": overflow}
    if r.integers(4) == 0:
        own |= {"ftz": bool(r.integers(2)), "daz": bool(r.integers(2))}
    if name == "exact":
        return fs.Exact(fmt, **own)
    product = [None, fmt, SUMS[r.integers(len(SUMS))]][r.integers(3)]
    if product is not None and r.integers(2):
        own["product_rounding"] = Rounding(int(r.integers(7)))
    build = {"sequential": fs.Sequential, "kahan": fs.Kahan, "neumaier": fs.Neumaier}.get(name, fs.Pairwise)
    if build is fs.Pairwise:
        own["tree"] = name
    return build(fmt, product=product, **own)


def an_index(r, shape):
    _, rows, columns = shape
    base = int(r.choice([0, 5, 2**32 - 2, 2**40 + 3]))
    return np.array([base, rows * columns, columns, 1], np.int64)


def some_ranges(r, k):
    """The whole, or pieces of it, strided ones too."""
    match r.integers(3):
        case 0:
            cut = int(r.integers(k + 1))
            rows = [[0, cut, 1], [cut, k, 1]]
        case 1:
            rows = [[lane, k, 3] for lane in range(min(3, k))] or [[0, 0, 1]]
        case _:
            rows = [[0, k, 1]]
    return np.array(rows, np.int64)


def a_start(r, name, fmt, shape, alone):
    """Start values or a c for a single range; finite and normal or zero, so that converting them raises nothing."""
    if not alone or name in TREES or r.integers(3):
        return None
    c = operand(r, fmt, shape)
    magnitude = c & np.uint64(fmt.magnitude_mask)
    if name != "exact":
        normal = (magnitude >> np.uint64(fmt.trailing_bits) != 0) & (magnitude <= fmt.max_code)
        c = np.where(normal, c, np.uint64(0))
    return c, fmt


@pytest.mark.parametrize("rounding", Rounding, ids=lambda r: r.name.lower())
@pytest.mark.parametrize("name", LEAVES)
def test_equals_the_reference(name, rounding):
    r = o.rng("sums", name, rounding)
    for case in range(20):
        fmt = SUMS[r.integers(len(SUMS))]
        x_format, y_format = (INPUTS[i] for i in r.integers(0, len(INPUTS), 2))
        if r.integers(2):
            y_format = x_format
        if r.integers(3) == 0:
            x_format = y_format = fmt
        batch, rows, k, columns = (int(r.integers(*b)) for b in ((1, 3), (1, 3), (0, 14), (1, 4)))
        values = case % 4 == 3
        a, b = operand(r, x_format, (batch, rows, k), fmt), operand(r, y_format, (batch, k, columns), fmt)
        if values:
            x_format = fs.FP32
            a = codes_of(np.ones((batch, rows, k)), fs.FP32)
        if r.integers(3) == 0:
            a = a if values else np.broadcast_to(codes_of(np.ones((1, 1, k)), x_format), a.shape)
            b = cancelling(r, b, y_format, 1)
        ranges = some_ranges(r, k)
        start_format = SUMS[r.integers(len(SUMS))] if name == "exact" else fmt
        compare(
            a_leaf(r, name, fmt), (laid_out(r, a), x_format), (laid_out(r, b), y_format), a_call(r, rounding), ranges,
            an_index(r, (batch, rows, columns)), values=values,
            start=a_start(r, name, start_format, (batch, rows, columns), len(ranges) == 1),
        )  # fmt: skip


@pytest.mark.parametrize("name", LEAVES)
def test_mixed_operands_and_many_terms(name):
    """E4M3 by E5M2 into narrow and wide accumulators; as many terms as the trees' branches need."""
    r = o.rng("many", name)
    for k, fmt in zip((9, 127, 130, 300), (fs.E5M2, fs.FP16, fs.BF16, fs.FP32), strict=True):
        a, b = operand(r, fs.E4M3, (1, 1, k), fmt), operand(r, fs.E5M2, (1, k, 2), fmt)
        for rounding in (Rounding.TIES_TO_EVEN, Rounding.STOCHASTIC):
            ranges = np.array([[0, k, 1]], np.int64)
            compare(
                a_leaf(r, name, fmt), (a, fs.E4M3), (b, fs.E5M2), a_call(r, rounding), ranges, an_index(r, (1, 1, 2))
            )  # fmt: skip


@pytest.mark.parametrize("name", LEAVES)
def test_without_places(name):
    """Nothing else changes where no first places are wanted."""
    r = o.rng("without places", name)
    a, b = operand(r, fs.FP16, (2, 3, 20)), operand(r, fs.FP16, (2, 20, 5))
    ranges, index = np.array([[0, 20, 1], [3, 20, 4]], np.int64), an_index(r, (2, 3, 5))
    leaf, options = a_leaf(r, name, fs.FP16), a_call(r, Rounding.TIES_TO_EVEN)
    with_places, without = (
        by_kernel(leaf, (a, fs.FP16), (b, fs.FP16), options, ranges, index, record=record) for record in (True, False)
    )
    assert np.array_equal(with_places[0], without[0])
    assert with_places[1] == without[1]


def nested(program):
    """The tree that a program makes, as nested pairs."""
    stack = []
    for position, adds in zip(*(x.tolist() for x in program), strict=True):
        stack.append(position)
        for _ in range(adds):
            right, left = stack.pop(), stack.pop()
            stack.append((left, right))
    (tree,) = stack
    return tree


@pytest.mark.parametrize("name", TREES)
def test_tree_programs(name):
    for n in (*range(1, 301), 1000, 1023, 1024, 1025, 4099):
        assert nested(trees.program(name, n)) == reference_sums.TREES[name](list(range(n))), n
    assert [x.size for x in trees.program(name, 0)] == [0, 0]


@pytest.mark.parametrize("n", [2**20 - 1, 2**20, 2**20 + 129])
@pytest.mark.parametrize("name", TREES)
def test_large_tree_programs(name, n):
    order, merges = trees.program(name, n)
    assert np.array_equal(np.sort(order), np.arange(n))
    depth = np.cumsum(1 - merges, dtype=np.int64) + merges  # before the adds
    assert merges.sum(dtype=np.int64) == n - 1
    assert depth[-1] - merges[-1] == 1
    assert depth.max() <= 30
    assert not order.flags.writeable
