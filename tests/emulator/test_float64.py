"""The kernels on float64 against the general ones: every leaf, rounding and overflow policy; which sums they take."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import oracles as o
import pytest
from floatsim_kernels.gemm import float64 as gemm_doubles
from floatsim_kernels.runtime import cpu as machine

import floatsim as fs
from floatsim import Overflow, Rounding
from floatsim.accumulation import trees
from floatsim.emulator.dispatch import float64
from floatsim.emulator.dispatch.candidates import only
from floatsim.emulator.dispatch.float64 import Float64
from floatsim.emulator.unpack import pack, unpack
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes
from tests.emulator.planning import case_of, kernel_by
from tests.emulator.test_sums import by_kernel, cancelling, operand

FORMATS = (
    fs.FP32, fs.TF32, fs.FP16, fs.BF16, fs.E5M2, fs.E4M3, fs.E4M3FNUZ, *o.CUSTOM, fs.FloatFormat.ieee(8, 15),
    fs.FloatFormat("fn(7,2)", 7, 2, "fn"), fs.FloatFormat.ieee(4, 20),
)  # fmt: skip


def kernel_of(leaf, a_format, b_format, attributes):
    found = kernel_by(Float64(), leaf, a_format, b_format, attributes)
    return None if found is None else found.kernel


def by_doubles(fast, leaf, a, b, options, ranges, index, start=None):
    """(ranges, 1, M, N) codes."""
    (x, x_format), (y, y_format) = a, b
    fmt = leaf.format
    left, right = (
        unpack(codes[0].astype(f.code_dtype), f, fs.FP64) for codes, f in ((x, x_format), (y, y_format or fmt))
    )
    out = np.full((len(ranges), left.shape[0], right.shape[1]), np.nan)
    if start is not None:
        out[:] = unpack(start[0][0].astype(fmt.code_dtype), fmt, fs.FP64)
    more = () if isinstance(leaf, fs.Exact) else (start is None,)
    if isinstance(leaf, fs.Pairwise):
        lengths = [len(range(*map(int, row))) for row in ranges]
        made = [trees.program(leaf.tree, n) for n in lengths]
        ranges = np.column_stack([ranges, np.cumsum([0, *lengths[:-1]])])
        more = (*(np.concatenate([p[i] for p in made]) for i in (0, 1)), 40)
    seeds = np.full(len(ranges), options.seed, np.uint64)
    fast(left, right, out, ranges, index[[0, 2, 3]], seeds, *more)
    return pack(out, fs.FP64, fmt)[:, np.newaxis].astype(np.uint64)


def random_ranges(r, depth):
    ranges = [(0, depth, 1)]
    if r.random() < 0.4:
        cuts = np.sort(r.integers(0, depth + 1, 2))
        ranges = [(0, cuts[0], 1), (cuts[0], cuts[1], 2), (cuts[0] // 2, depth, int(r.integers(1, 9)))]
    return np.array(ranges, np.int64)


def compare(r, leaf, a_format, b_format, options, shape):
    """Whether there was a fast kernel to compare; `b_format` None: values."""
    fast = kernel_of(leaf, a_format, b_format, options.attributes)
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
        start = pack(unpack(codes, leaf.format, fs.FP64), fs.FP64, leaf.format).astype(np.uint64), leaf.format
    want, _, _ = by_kernel(leaf, a, b, options, ranges, index, start, values, record=False)
    got = by_doubles(fast, leaf, a, b, options, ranges, index, start)
    assert np.array_equal(got, want), (
        f"{leaf!r} of {a[1]!r} x {b[1]!r}, {options}, {ranges.tolist()}, {index}, {shape}: "
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
    """Vectors and their rests, blocks and theirs; few terms or many."""
    if r.integers(8):
        return tuple(int(r.integers(*bounds)) for bounds in ((0, 5), (0, 40), (0, 35)))
    columns = gemm_doubles.WIDTH * r.integers(1, 3) + r.integers(-1, 10)
    return int(r.choice([1, 3])), int(r.choice([0, 5, 35])), int(columns)


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
        options = CallOptions(
            RoundingAttributes(rounding, random_bits=int(r.choice([1, 7, 24, 32]))), int(r.integers(1 << 63))
        )
        compared += compare(r, a_leaf(r, name, fmt), a_format, None if case % 5 == 4 else b_format, options, a_shape(r))
    assert compared > 20 or not machine.environment_is_default(), compared


def test_many_rows_and_terms():
    r = o.rng("doubles, blocks")
    for name in LEAVES:
        for a_format, fmt in (fs.BF16, fs.BF16), (fs.FP16, fs.FP32), (fs.FP32, fs.TF32):
            leaf = LEAVES[name](fmt, product=None if r.integers(2) else fmt)
            for shape in (67, 50, 3), (2, 1000, 5):
                assert compare(r, leaf, a_format, a_format, CallOptions(RoundingAttributes()), shape)


def near_the_smallest(r, fmt, size):
    """Codes of signed numbers from half the smallest normal number to four times it, some of them zeros."""
    magnitudes = r.integers(1 << fmt.trailing_bits - 1, 3 << fmt.trailing_bits, size)
    magnitudes[r.random(size) < 0.1] = 0
    return (magnitudes + fmt.sign_mask * r.integers(0, 2, size)).astype(np.uint64)


@pytest.mark.parametrize(
    ("fmt", "a_format", "splits"),
    [
        (fs.FP16, fs.FP16, True), (fs.E5M2, fs.E5M2, True), (fs.E4M3, fs.E4M3, True),
        (fs.FloatFormat.ieee(4, 25), fs.FloatFormat.ieee(3, 2), True),
        (fs.FloatFormat.ieee(4, 26), fs.FloatFormat.ieee(3, 2), False),
        (fs.FloatFormat.ieee(10, 9), fs.E4M3, True),
    ],
    ids=lambda x: getattr(x, "name", ""),
)  # fmt: skip
def test_sums_rounded_by_splitting(fmt, a_format, splits):
    """Blocks of whole vectors whose sums are normal numbers, or fall below 2**emin, at the bound of p."""
    r = o.rng("splitting", fmt)
    leaf, options = fs.Sequential(fmt, fused=fmt is a_format), CallOptions(RoundingAttributes())
    fast = kernel_of(leaf, a_format, a_format, options.attributes)
    params = fast.arguments[3]
    assert rule_of(leaf, a_format, a_format) == (gemm_doubles.TIES_TO_EVEN, gemm_doubles.EXACT)
    assert (params[1] >= gemm_doubles.LEAST_FACTOR) == splits
    index = np.array([0, 0, 48, 1], np.int64)
    one = int(fs.array(1.0, a_format).codes)
    for case in range(30):
        depth, columns = int(r.integers(1, 40)), int(r.choice([16, 48, gemm_doubles.WIDTH]))
        shapes = (1, 3, depth), (1, depth, columns)
        x, y = (fs.encode(r.standard_normal(shape), a_format).astype(np.uint64) for shape in shapes)
        start = None
        if case % 3 == 1:  # ties: sums of numbers whose last bits lie around the last bit of the sum
            x[:] = one
            y = operand(r, a_format, shapes[1])
        if case % 3 == 2:  # products have more bits than the smallest numbers
            start = near_the_smallest(r, fmt, (1, 3, columns)), fmt
            y = near_the_smallest(r, a_format, shapes[1])
        ranges = np.array([(0, depth, 1)], np.int64)
        a, b = (x, a_format), (y, a_format)
        want, _, _ = by_kernel(leaf, a, b, options, ranges, index, start, False, record=False)
        assert np.array_equal(by_doubles(fast, leaf, a, b, options, ranges, index, start), want), case


def rule_of(leaf, a_format, b_format, **keywords):
    fast = kernel_of(leaf, a_format, b_format, RoundingAttributes(**keywords))
    if fast is None:
        return None
    return tuple(int(rule) for rule in fast.arguments[0])


def test_which_sums_are_taken():
    even, odd, exact = gemm_doubles.TIES_TO_EVEN, gemm_doubles.TIES_TO_EVEN_FROM_ODD, gemm_doubles.EXACT
    # rounded products and sums of two numbers of the format: float64 to nearest in between does no harm
    for fmt in fs.FP32, fs.TF32, fs.BF16, fs.FP16, fs.E5M2, fs.E4M3:
        assert rule_of(fs.Sequential(fmt), fmt, fmt) == (even, even)
        assert rule_of(fs.Kahan(fmt), fmt, fmt) == rule_of(fs.Pairwise(fmt), fmt, fmt) == (even, even)
    # exact products: only where the format's quantum is not too small beside them
    for fmt in fs.FP16, fs.E5M2, fs.E4M3:
        assert rule_of(fs.Sequential(fmt, fused=True), fmt, fmt) == (even, exact)
    for fmt in fs.BF16, fs.TF32, fs.FP32:
        assert rule_of(fs.Sequential(fmt, fused=True), fmt, fmt) == (odd, exact)
    assert rule_of(fs.Pairwise(fs.FP16, product=None), fs.FP16, fs.FP16) == (odd, exact)
    assert rule_of(fs.Pairwise(fs.E4M3, product=None), fs.E4M3, fs.E4M3) == (even, exact)
    assert rule_of(fs.Sequential(fs.FP16, product=fs.FP32), fs.FP32, fs.E4M3) == (even, even)
    # products that the product's format holds, and values, are not rounded
    assert rule_of(fs.Sequential(fs.FP32), fs.FP16, fs.E4M3) == rule_of(fs.Sequential(fs.FP32), fs.FP16, None)
    for formats in (fs.FP64, fs.FP32), (fs.FP64, fs.E4M3):
        assert rule_of(fs.Sequential(fs.FP32), *formats) is None
    assert rule_of(fs.Sequential(fs.FP64), fs.FP32, fs.FP32) is None
    assert rule_of(fs.Sequential(fs.E2M1), fs.E2M1, fs.E2M1) is None  # without a NaN
    assert rule_of(fs.Sequential(fs.E4M3), fs.E5M2, fs.E5M2) is None  # infinities that are not E4M3's
    for keywords in {"daz": True}, {"ftz": True}, {"rounding": Rounding.STOCHASTIC, "random_bits": 33}:
        assert rule_of(fs.Sequential(fs.FP16), fs.FP16, fs.FP16, **keywords) is None
    assert rule_of(fs.Sequential(fs.FP32), fs.FP32, fs.FP32, rounding=Rounding.STOCHASTIC) is None


def test_a_tie_far_from_what_breaks_it():
    """BF16: 2**-8 + 1 is a tie, and the accumulator 2**-100 decides; float64 would have lost it."""
    for rounding, sign in itertools.product(list(Rounding)[:6], (1, -1)):
        x, y = fs.array([2.0**-50, 1 + 2.0**-4], "bf16"), fs.array([sign * 2.0**-50, 1 + 2.0**-4], "bf16")
        options = CallOptions(RoundingAttributes(rounding))
        for leaf in fs.Sequential(fs.BF16, fused=True), fs.Pairwise(fs.BF16, product=None):
            a, b = (
                (x.codes.astype(np.uint64)[np.newaxis, np.newaxis], fs.BF16),
                (y.codes.astype(np.uint64)[np.newaxis, :, np.newaxis], fs.BF16),
            )
            ranges, index = np.array([[0, 2, 1]]), np.array([0, 0, 1, 1])
            fast = kernel_of(leaf, fs.BF16, fs.BF16, options.attributes)
            got = by_doubles(fast, leaf, a, b, options, ranges, index)
            assert np.array_equal(got, by_kernel(leaf, a, b, options, ranges, index)[0])
            if rounding is Rounding.TIES_TO_EVEN and isinstance(leaf, fs.Sequential):
                # 1 + 2**-3 + 2**-8 is halfway between two BF16 numbers, of which the lower is even
                assert fs.from_codes(got.ravel().astype(np.uint16), fs.BF16).tolist() == [1.125 + (sign > 0) * 2.0**-7]


_PORTABLE = """
import hashlib, sys
sys.path[:0] = {path!r}
import numpy as np
from tests.emulator.test_float64 import by_doubles, kernel_of
from tests.emulator.test_sums import operand
import floatsim as fs
from floatsim import Rounding
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes

r, digest = np.random.default_rng(3), hashlib.sha256()
for rounding in Rounding:
    for fmt in fs.FP16, fs.BF16, fs.TF32:
        options = CallOptions(RoundingAttributes(rounding), 7)
        leaf = fs.Sequential(fmt, product=None if r.integers(2) else fmt)
        a, b = operand(r, fmt, (1, 3, 20)), operand(r, fmt, (1, 20, 19))
        fast = kernel_of(leaf, fmt, fmt, options.attributes)
        ranges, index = np.array([[0, 20, 1]]), np.array([0, 0, 19, 1])
        digest.update(by_doubles(fast, leaf, (a, fmt), (b, fmt), options, ranges, index).tobytes())
print(digest.hexdigest())
"""


@pytest.mark.full
def test_a_processor_without_extensions():
    """No fused multiply-adds and no directed instructions: the same bits."""
    code = _PORTABLE.format(path=sys.path)
    digests = [
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | settings, check=True, capture_output=True, text=True
        ).stdout
        for settings in ({}, {"NUMBA_CPU_NAME": "generic"})
    ]
    assert digests[0] == digests[1]


@pytest.mark.full
@pytest.mark.parametrize("trailing", [7, 9, 10])
@pytest.mark.parametrize("name", LEAVES)
def test_short_products_are_rounded_to_fp32_stochastically(name, trailing):
    """Products of at most 20 bits, with magnitudes around 2**-149, 2**-130, 2**-126 and FP32's largest number."""
    fmt = fs.FloatFormat(f"ieee(8,{trailing})", 8, trailing, "ieee")
    case = case_of(LEAVES[name]("fp32"), fmt, fmt, RoundingAttributes(Rounding.STOCHASTIC))
    short = 2 * fmt.precision <= 20
    assert (Float64().refusal(case) is None) == short
    r = np.random.default_rng(trailing)
    for low, high in ((-80, -60), (-68, -60), (-67, -50), (-5, 5), (55, 66)):
        x, y = (
            fs.array(r.standard_normal(shape) * np.exp2(r.integers(low, high, shape)), fmt)
            for shape in ((5, 23), (23, 35))
        )
        for accumulate in (LEAVES[name]("fp32"), LEAVES[name]("fp32", product_rounding="toward_zero")):
            options = {"accumulate": accumulate, "format": "fp32", "rounding": "stochastic", "seed": 5}
            with only("float64"):
                got = fs.matmul(x, y, **options)
            with only("integer"):
                want = fs.matmul(x, y, **options)
            np.testing.assert_array_equal(got.codes, want.codes)


@pytest.mark.parametrize("exponent", [-67, -66, -65, 63, 64])
def test_products_beside_the_bounds_of_exact_products(exponent):
    """BF16 products enter exactly from 2**-133 up to FP32's largest number."""
    kernel = kernel_of(fs.Sequential("fp32"), fs.BF16, fs.BF16, RoundingAttributes(Rounding.STOCHASTIC))
    least = 2.0**-133
    assert kernel.least == least
    x = fs.array([[2.0**exponent, 0.0]], "bf16")
    inside = float64._products_between(x.values, x.values, least, fs.FP32.max)
    assert inside == (-133 <= 2 * exponent < 128)
