"""Random descriptions and operands at the edges of their formats: no result is outside its bound, in exact integers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import oracles
import pytest

import floatsim as fs
from floatsim.accumulation import leaves, tensor_cores
from floatsim.formats.value_sets import contains
from floatsim.tensorcore.architectures import ARCHITECTURES
from floatsim.tensorcore.instructions import FlushedTree, RoundedSteps

SCALE = 1 << 1074  # every float64 is a multiple of 1 / SCALE

MODES = ("ties_to_even", "ties_to_away", "toward_zero", "toward_positive", "toward_negative", "to_odd", "stochastic")
FORMATS = ("fp32", "fp32", "fp16", "bf16", "tf32", "e5m2", "e4m3", "ieee(6,3)", "fp64")
OPERANDS = ("fp16", "bf16", "fp32", "e4m3", "e5m2")
UNITS = [
    (unit.name, row.name, a.name, b.name, row.output.name)
    for unit in ARCHITECTURES.values()
    for row in unit.instructions
    for a in (*row.inputs, *([fs.FP32] if row.truncates else []))
    for b in ((a, *row.inputs) if row.mixes and a in row.inputs else (a,))
    if not row.scales
]


def random_leaf(rng, fmt=None):
    fmt = rng.choice(FORMATS) if fmt is None else fmt
    options = {}
    if rng.random() < 0.3:
        options["rounding"] = rng.choice(MODES)
    options |= {name: bool(rng.integers(2)) for name in ("ftz", "daz") if rng.random() < 0.3}
    if rng.random() < 0.2:
        options["overflow"] = "saturate_finite"
    if rng.random() < 0.15:
        return fs.Exact(str(fmt), **options)
    product = ("same", "same", None, *FORMATS)[rng.integers(3 + len(FORMATS))]
    if product is not None and rng.random() < 0.2:
        options["product_rounding"] = rng.choice(MODES)
    if rng.random() < 0.25:
        return (fs.Kahan, fs.Neumaier)[rng.integers(2)](str(fmt), product, **options)
    if rng.random() < 0.4:
        tree = rng.choice(["adjacent", "halving", "numpy"])
        return fs.Pairwise(str(fmt), str(tree), product, **options)
    return fs.Sequential(str(fmt), product=product, **options)


def random_tree(rng, terms):
    nodes = list(range(terms))
    while len(nodes) > 1:
        left, right = (nodes.pop(rng.integers(len(nodes))) for _ in range(2))
        nodes.append((left, right))
    return nodes[0]


def random_description(rng, inner=None, depth=0):
    """Return a description around an inner one, by default a leaf."""
    kind = rng.integers(6 if depth < 2 else 2)
    if kind < 2:
        return random_leaf(rng) if inner is None else inner
    inner = random_description(rng, inner, depth + 1)
    if kind == 2:
        return fs.Blocked(inner, int(rng.integers(1, 20)), random_description(rng, None, depth + 1))
    if kind == 3 and not fs.accumulation.tensor_cores(inner):
        return fs.Strided(inner, int(rng.integers(1, 9)), random_description(rng, None, depth + 1))
    if kind == 4:
        return fs.Permuted(str(rng.choice(["reversed", "swapped", "strided-3"])), inner)
    outer, through = random_leaf(rng), None
    if isinstance(outer, fs.Sequential) and rng.integers(2):
        through = next(fmt for fmt in rng.permutation(FORMATS) if contains(outer.format, fs.as_format(fmt)))
    return fs.SplitK(int(rng.integers(1, 9)), inner, outer, through=through and str(through))


def random_parts(rng, k):
    """Return `Parts` of k terms."""
    lengths = []
    while sum(lengths) < k:
        lengths.append(int(rng.integers(1, k - sum(lengths) + 1)))
    while True:
        try:
            return fs.Parts([random_description(rng) for _ in lengths], lengths, random_description(rng))
        except ValueError:  # no format has all results
            continue


def formats_of(accumulation, a, b):
    """Return the formats that a description rounds to."""
    found = [fmt for leaf in leaves(accumulation) for fmt in (leaf.format, getattr(leaf, "product", None)) if fmt]
    return [*found, *(unit.row(a, b).output for unit in tensor_cores(accumulation))]


def random_exponents(rng, formats, a, b, k):
    """Return exponents of a and of b for each k: products around 1 or near an end of a format, or any operands."""
    (a_low, a_least, a_high), (b_low, b_least, b_high) = ((x.emin - x.trailing_bits, x.emin, x.emax) for x in (a, b))
    kind = rng.integers(6)
    if kind == 0:
        return rng.integers(a_low, a_high + 1, k), rng.integers(b_low, b_high + 1, k)
    if kind == 1:  # subnormal operands among normal ones
        return rng.integers(a_low, a_least + 3, k), rng.integers(b_least // 2, b_high // 2 + 1, k)
    fmt = formats[rng.integers(len(formats))]
    middle = {2: fmt.emin, 3: fmt.emax - int(rng.integers(6))}.get(int(kind), 0)
    width = int(rng.choice([0, 2, fmt.trailing_bits, 30]))
    products = middle + rng.integers(-width, width + 1, k)
    left = np.clip(products // 2 + rng.integers(-3, 4, k), a_low, a_high)
    right = np.clip(products - left, b_low, b_high)
    return np.clip(products - right, a_low, a_high), right


def random_numbers(rng, fmt, exponents):
    """Return numbers of a format with these exponents: random ones, or with all bits set; some are zeros."""
    shape = exponents.shape
    digits = rng.random(shape) if rng.integers(2) else 1 - 2.0**-fmt.trailing_bits * rng.integers(0, 3, shape)
    significands = np.minimum(1 + digits, 2 - 2.0**-52)  # below 2, or the largest numbers of FP64 overflow
    signs = rng.choice([-1.0, 1.0], shape) if rng.integers(3) else 1.0
    x = np.where(rng.random(shape) < rng.choice([0, 0.1]), 0.0, np.ldexp(significands * signs, exponents))
    return fs.array(np.asarray(fs.convert(fs.array(x, "fp64"), fmt, overflow="saturate_finite").values), fmt)


def as_read(accumulation, a, b):
    """Return the values of the operands as the sums read them."""
    if isinstance(accumulation, fs.Parts):
        read, start = [], 0
        for inner, length in zip(accumulation.inners, accumulation.lengths, strict=True):
            read.append(as_read(inner, a[:, start : start + length], b[start : start + length]))
            start += length
        return [np.concatenate(sides, axis) for axis, sides in zip((1, 0), zip(*read, strict=True), strict=True)]
    reader = accumulation
    while reader.children:
        if isinstance(reader, fs.Converted):
            a, b = (fs.array(fs.convert(x, reader.format, rounding=reader.rounding), reader.format) for x in (a, b))
        if isinstance(reader, fs.Tf32x3):
            a, b = three_products(a, b)
        reader = reader.children[0]
    values = []
    for x in (a, b):
        value, least = np.asarray(x.values).copy(), 0.0
        if not isinstance(reader, fs.TensorCore):
            least = x.format.smallest_normal if reader.daz else 0.0
        else:
            row = reader.row(a.format, b.format)
            if row.truncates and x.format == fs.FP32:
                value = (value.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
            if isinstance(row.model, FlushedTree):
                least = x.format.smallest_normal
            elif isinstance(row.model, RoundedSteps) and row.model.flushes:
                least = row.output.smallest_normal
        values.append(np.where(np.abs(value) < least, 0.0, value))
    return values


def three_products(a, b):
    """Return the operands of `Tf32x3` side by side, by operations on the bits of FP32 numbers."""

    def parts(x):
        value = np.asarray(x.values, np.float32)
        large = ((value.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
        small = ((value - large).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        return large, small

    (large_a, small_a), (large_b, small_b) = parts(a), parts(b)
    left, right = np.hstack([small_a, large_a, large_a]), np.vstack([large_b, small_b, large_b])
    return fs.array(left, "tf32"), fs.array(right, "tf32")


def integers(x):
    return [[int(Fraction(float(v)) * SCALE) if np.isfinite(v) else 0 for v in row] for row in x]


def check(accumulation, a, b, c, format, rounding):
    """Compare each element with its bound. Return the number of elements, and that of finite bounds."""
    result = fs.matmul(a, b, c, accumulate=accumulation, format=format, rounding=rounding, seed=1)
    values = np.asarray(fs.array(result).values)
    found = fs.testing.error_bound(a, b, c, accumulate=accumulation, format=format, rounding=rounding)
    left, right = as_read(accumulation, a, b)
    rows, columns = integers(left), integers(right.T)
    last, relu = accumulation, getattr(accumulation, "activation", None) == "relu"
    while last.children and not isinstance(last, fs.Epilogue):  # which reads c itself
        last = last.children[-1]
    start = np.zeros(values.shape) if c is None else np.asarray(c.values)
    if getattr(last, "daz", False) and c is not None:
        start = np.where(np.abs(start) < c.format.smallest_normal, 0.0, start)
    start = integers(start)
    for i, j in np.ndindex(values.shape):
        exact = sum(x * y for x, y in zip(rows[i], columns[j], strict=True)) + start[i][j] * SCALE
        exact = max(exact, 0) if relu else exact
        bound, value = float(found.bound[i, j]), float(values[i, j])
        told = f"{accumulation!r} {a.format} {b.format} {format} {rounding} [{i}, {j}]: {value}, bound {bound}"
        told += f"\na = {a.values[i].tolist()}\nb = {b.values[:, j].tolist()}\nc = {start[i][j] / SCALE}"
        if math.isinf(bound):
            continue
        assert np.isfinite(left[i]).all() and np.isfinite(right[:, j]).all(), told  # else a conversion overflowed
        assert math.isfinite(value), told
        rounded = Fraction(exact, SCALE * SCALE)
        assert float(found.exact[i, j]) == float(rounded), told
        error = abs(Fraction(value) - rounded)
        assert error <= Fraction(bound), f"{told}, error {float(error)}"
    return values.size, int(np.isfinite(found.bound).sum())


def random_case(rng, number, size):
    """Return a description, its operands and c, the format of the result, and the rounding mode of the call."""
    if number % 2:
        arch, name, left, right, output = UNITS[rng.integers(len(UNITS))]
        unit = fs.TensorCore(arch, name, output if rng.integers(2) else None)
        accumulation = unit if rng.random() < 0.7 else random_description(rng, unit)
    else:
        accumulation = random_leaf(rng) if rng.random() < 0.4 else random_description(rng)
        left, right = (str(x) for x in rng.choice(OPERANDS, 2))
    a, b = fs.as_format(left), fs.as_format(right)
    k = int(rng.integers(*((0, 4), (1, 10), (1, 40), (1, 140))[rng.integers(4)]))
    if k > 1 and isinstance(accumulation, fs.Pairwise):
        leaf, product = accumulation, accumulation.product
        options = {name: getattr(leaf, name) for name in ("product_rounding", "rounding", "ftz", "daz", "overflow")}
        accumulation = rng.choice([leaf, fs.Tree(leaf.format, random_tree(rng, k), product, **options)])
    elif k and number % 2 == 0 and rng.random() < 0.25:
        accumulation = random_parts(rng, k)
    return accumulation, *random_call(rng, formats_of(accumulation, a, b), a, b, k, size)


def random_call(rng, formats, a, b, k, size):
    """Return operands, c, the format of the result, and the rounding mode of the call."""
    of_a, of_b = random_exponents(rng, formats, a, b, k)
    noise = rng.integers(0, rng.choice([1, 3]), (size, k))
    x = random_numbers(rng, a, np.broadcast_to(of_a, (size, k)) - noise)
    y = random_numbers(rng, b, np.broadcast_to(of_b[:, np.newaxis], (k, size)))
    if k > 3 and rng.random() < 0.3:  # cancellation
        half = k // 2
        x[:, half : 2 * half] = -x[:, :half]
        y[half : 2 * half] = y[:half]
    c = None
    if rng.random() < 0.4:
        fmt = fs.as_format(str(rng.choice(["fp32", "fp16", "fp64"])))
        top = int(rng.choice(of_a + of_b)) if k and rng.integers(2) else 0
        c = random_numbers(rng, fmt, np.clip(top + rng.integers(-3, 4, (size, size)), fmt.emin - 5, fmt.emax))
    format = (None, "fp64", str(rng.choice(FORMATS)))[rng.integers(3)]
    return x, y, c, format, str(rng.choice(MODES)) if rng.random() < 0.3 else "ties_to_even"


KERNEL_UNITS = (
    ("fp16", "hopper"), ("fp16", "tensorcore(hopper, output=fp16)"), ("bf16", "ampere"), ("e4m3", "hopper"),
    ("fp16", "cdna1"), ("bf16", "cdna3"), ("fp32", "hopper"), ("fp32", "ampere"),
)  # fmt: skip


def random_kernel(rng, number, size):
    """As `random_case`, with parts of GPU kernels: residues, dealt tiles, conversions, three products, epilogues."""
    name, unit = KERNEL_UNITS[number % len(KERNEL_UNITS)]
    fmt, k = fs.as_format(name), int(rng.integers(*((0, 4), (1, 40), (1, 140))[rng.integers(3)]))
    tile = max(1, int(rng.choice([k - 1, k, 8, 15, 16, 17, 32])))
    found = fs.Residue(unit, tile) if rng.integers(2) else fs.as_accumulation(unit)
    if name == "fp32" and rng.integers(2):
        found = fs.Tf32x3(unit)
    if rng.random() < 0.4:
        outer = random_leaf(rng)
        if rng.integers(2):
            outer = fs.Converted(str(rng.choice(FORMATS)), outer, str(rng.choice(MODES[:6])))
        found = fs.SplitK(int(rng.integers(1, 6)), found, outer, tile, str(rng.choice(["serial", "dealt"])))
    formats = [*(leaf.format for leaf in leaves(found)), fs.FP32]
    if name == "fp32" and "tf32x3" not in str(found):
        found = fs.Converted("tf32", found, str(rng.choice(MODES[:6])))
    if rng.random() < 0.4:
        through = str(rng.choice(["fp16", "bf16"])) if rng.integers(2) else None
        to = str(rng.choice(["fp32", "fp16", "bf16", "fp64"]))
        found = fs.Epilogue(found, to, through=through, activation="relu" if rng.integers(2) else None)
    return found, *random_call(rng, formats, fmt, fmt, k, size)


def run(seed, cases, size=5, case=random_case):
    """Check random cases. Return the number of elements, and that of finite bounds."""
    rng = np.random.default_rng(seed)
    counts = [check(*case(rng, number, size)) for number in range(cases)]
    return tuple(map(sum, zip(*counts, strict=True)))


@pytest.mark.full
@pytest.mark.parametrize("seed", [1, 2, None])
def test_no_result_is_outside_its_bound(seed):
    """With seed None each commit has its own seed."""
    elements, finite = run(oracles.test_seed() if seed is None else seed, 800)
    assert elements == 800 * 25 and finite > elements // 2


@pytest.mark.full
@pytest.mark.parametrize("seed", [3, None])
def test_no_result_of_a_gpu_kernel_is_outside_its_bound(seed):
    elements, finite = run(oracles.test_seed() if seed is None else seed, 400, case=random_kernel)
    assert elements == 400 * 25 and finite > elements // 3
