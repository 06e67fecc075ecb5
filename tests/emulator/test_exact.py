"""Exact sums in float64 against the general kernel and the reference: every rounding, and terms of all sizes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import oracles as o
import pytest
from floatsim_kernels.gemm import float64 as gemm_doubles
from floatsim_kernels.runtime import cpu as machine

import floatsim as fs
from floatsim import Overflow, Rounding, Specials
from floatsim.emulator.dispatch import exact
from floatsim.emulator.dispatch.exact import ExactInFloat64
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes
from floatsim.formats.value_sets import TermRange
from tests.emulator.planning import kernel_by
from tests.emulator.test_float64 import by_doubles, random_ranges
from tests.emulator.test_sums import by_kernel, by_reference, cancelling, codes_of, operand

INPUTS = (fs.FP64, fs.FP32, fs.TF32, fs.FP16, fs.BF16, fs.E5M2, fs.E4M3, fs.E2M1, fs.E4M3FNUZ, *o.CUSTOM)

pytestmark = pytest.mark.skipif(not machine.environment_is_default(), reason="not this thread's arithmetic")


@pytest.fixture(autouse=True)
def levels_always(monkeypatch, request):
    """The kernel of levels runs for all sizes, also for those that are faster without it."""
    if "sizes_as_they_are" not in request.fixturenames:
        monkeypatch.setattr(exact, "_FEW_TERMS", -1)
        monkeypatch.setattr(exact, "_FEW_COLUMNS", -1)


@pytest.fixture
def sizes_as_they_are():
    """The sizes decide, as for users."""


def kernel_of(leaf, a_format, b_format, attributes):
    found = kernel_by(ExactInFloat64(), leaf, a_format, b_format, attributes)
    return None if found is None else found.kernel


def sums_of(leaf, a, b, options=None, ranges=None, index=None, by=by_kernel):
    """(general or reference, fast) codes, (ranges, 1, M, N)."""
    options = options or CallOptions(RoundingAttributes())
    ranges = np.array([[0, a[0].shape[2], 1]]) if ranges is None else ranges
    index = np.array([0, 0, b[0].shape[2], 1]) if index is None else index
    fast = kernel_of(leaf, a[1], b[1], options.attributes)
    return by(leaf, a, b, options, ranges, index)[0], by_doubles(fast, leaf, a, b, options, ranges, index)


def assert_same(leaf, a, b, *arguments, **keywords):
    want, got = sums_of(leaf, a, b, *arguments, **keywords)
    wrong = got != want
    assert not wrong.any(), (
        f"{leaf!r} of {a[1].name} x {b[1].name}, {arguments}: {np.argwhere(wrong)[:5].tolist()} "
        f"{got[wrong][:5]} {want[wrong][:5]}"
    )


def random_options(r, rounding):
    attributes = RoundingAttributes(
        rounding, ftz=bool(r.random() < 0.15), random_bits=int(r.choice([1, 9, 24, 32, 33, 64]))
    )
    return CallOptions(attributes, int(r.integers(1 << 63)))


@pytest.mark.parametrize("rounding", Rounding, ids=lambda r: r.name.lower())
def test_equals_the_general_kernel(rounding):
    r = o.rng("exact sums", rounding)
    for _ in range(100):
        fmt = INPUTS[r.integers(len(INPUTS))]
        a_format, b_format = (INPUTS[i] for i in r.integers(0, len(INPUTS), 2))
        rows, depth, columns = int(r.integers(0, 4)), int(r.integers(0, 40)), int(r.integers(0, 35))
        a, b = operand(r, a_format, (1, rows, depth), fmt), operand(r, b_format, (1, depth, columns), fmt)
        if r.random() < 0.4:
            a = cancelling(r, a, a_format, 2)
            b = np.repeat(b[:, :1], depth, axis=1) if r.integers(2) else b
        index = np.array([r.integers(2**20), 0, columns, 1] if r.integers(2) else [5, 0, 1, rows], np.int64)
        leaf = fs.Exact(fmt, overflow=Overflow(int(r.integers(3))))
        assert_same(leaf, (a, a_format), (b, b_format), random_options(r, rounding), random_ranges(r, depth), index)


def test_equals_the_reference():
    r = o.rng("exact sums, reference")
    for rounding in list(Rounding) * 2:
        fmt, a_format, b_format = (INPUTS[i] for i in r.integers(0, len(INPUTS), 3))
        a, b = operand(r, a_format, (1, 2, 12), fmt), operand(r, b_format, (1, 12, 3), fmt)
        assert_same(fs.Exact(fmt), (a, a_format), (b, b_format), random_options(r, rounding), by=by_reference)


@pytest.mark.usefixtures("sizes_as_they_are")
def test_few_terms_or_columns():
    """Both sides of the sizes from which the levels are used, with narrow and with wide ranges of exponents."""
    r = o.rng("exact sums, few terms")
    for rows, depth, columns in (1, 4, 1), (1, 5000, 2), (1, 1700, 3), (4, 128, 8), (4, 129, 8), (2, 0, 3):
        for spread in 0, 40, 900:
            x, y = (
                r.standard_normal((1, *shape)) * 2.0 ** r.integers(-spread, spread + 1, (1, *shape))
                for shape in ((rows, depth), (depth, columns))
            )
            a, b = cancelling(r, x.view(np.uint64), fs.FP64, 2), y.view(np.uint64)
            options = CallOptions(RoundingAttributes(Rounding(int(r.integers(6)))))
            assert_same(fs.Exact(fs.FP64), (a, fs.FP64), (b, fs.FP64), options)


PAIRS = [
    (fs.E4M3, fs.E5M2), (fs.E5M2, fs.E5M2), (fs.FP16, fs.BF16), (fs.FP16, fs.FP16), (fs.BF16, fs.BF16),
    (fs.FP32, fs.FP32), (fs.FP32, fs.E4M3),
]  # fmt: skip


@pytest.mark.parametrize("fmt", [fs.FP32, fs.FP16, fs.FP64], ids=lambda f: f.name)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: f"{p[0].name}-{p[1].name}")
def test_sizes(pair, fmt):
    """Whole blocks and more, all bit patterns: exponents from end to end."""
    r = o.rng("exact sums, sizes", pair[0].name, pair[1].name, fmt.name)
    a_format, b_format = pair
    for rows, depth, columns in ((1, 33, gemm_doubles.WIDTH + 1), (17, 16, 24), (2, 700, 9), (33, 1, 8)):
        a, b = (
            r.integers(0, 2**f.bits - 1, shape, dtype=np.uint64, endpoint=True)
            for f, shape in ((a_format, (1, rows, depth)), (b_format, (1, depth, columns)))
        )
        if r.integers(2):  # no infinities or NaN
            a, b = (
                np.where(codes & np.uint64(f.magnitude_mask) > f.max_code, np.uint64(0), codes)
                for codes, f in ((a, a_format), (b, b_format))
            )
        assert_same(
            fs.Exact(fmt), (a, a_format), (b, b_format), CallOptions(RoundingAttributes(Rounding(int(r.integers(6)))))
        )


def test_products_of_float64():
    """Products that are cut in two; and exponents that leave no room for that."""
    r = o.rng("exact sums, float64")
    for spread in 0, 3, 60, 300, 900:
        for rows, depth, columns in (3, 50, 20), (1, 300, 3):
            x, y = (
                r.standard_normal((1, *shape)) * 2.0 ** r.integers(-spread, spread + 1, (1, *shape))
                for shape in ((rows, depth), (depth, columns))
            )
            x[0, :, depth // 2 :] = np.where(r.random((rows, depth - depth // 2)) < 0.2, 0, x[0, :, depth // 2 :])
            a, b = x.view(np.uint64), y.view(np.uint64)
            if r.integers(2):
                a, b = cancelling(r, a, fs.FP64, 2), np.repeat(b[:, :1], depth, axis=1)
            for fmt in fs.FP64, fs.FP32, fs.FP16:
                options = CallOptions(RoundingAttributes(Rounding(int(r.integers(6)))))
                assert_same(fs.Exact(fmt), (a, fs.FP64), (b, fs.FP64), options, random_ranges(r, depth))
        c = r.integers(0, 2**32 - 1, (1, 30, 8), dtype=np.uint64)
        assert_same(fs.Exact(fs.FP64), (x[:, :, :30].copy().view(np.uint64), fs.FP64), (c, fs.FP32))


WIDE = fs.FloatFormat("wide", 8, 51, Specials.FN, 127)
WIDE_PAIRS = [
    (WIDE, fs.E4M3), (fs.E4M3, WIDE), (WIDE, WIDE), (fs.FloatFormat.ieee(8, 52), fs.FloatFormat.ieee(5, 2)),
    (fs.FloatFormat.ieee(6, 45), fs.FP16), (fs.FloatFormat("steep", 9, 29, Specials.FNUZ), fs.FP32),
    (fs.FloatFormat("one step", 8, 52, Specials.FINITE), fs.FloatFormat("no subnormals", 4, 0, Specials.FN)),
]  # fmt: skip


@pytest.mark.parametrize("pair", WIDE_PAIRS, ids=lambda p: f"{p[0].name}-{p[1].name}")
def test_products_of_more_than_53_bits(pair):
    """Products that are cut in two, next to the least and the largest number: the second half may be below all levels.

    Each row of the sums has levels of its own, so that an access behind the last one changes the next row's sum.
    """
    r = o.rng("exact sums, more than 53 bits", pair[0].name, pair[1].name)
    assert TermRange(*pair).precision > 53
    for rows, depth, columns in ((2, 2, 2), (17, 5, 9), (3, 40, 33), (5, 1, 8)):
        for case in range(4):
            a = at_the_ends(r, pair[0], (rows, depth), (rows, depth), case)
            b = at_the_ends(r, pair[1], (depth, columns), (depth, 1), case)
            for fmt in pair[0], fs.FP64, fs.E5M2:
                options = CallOptions(RoundingAttributes(Rounding(int(r.integers(6)))))
                assert_same(fs.Exact(fmt), (a[np.newaxis], pair[0]), (b[np.newaxis], pair[1]), options)


def at_the_ends(r, fmt, shape, together, case):
    """Codes next to zero; a share of them, none, half, all or a tenth, next to the largest number instead."""
    low = r.integers(0, 1 << fmt.trailing_bits + 1, shape, dtype=np.uint64)
    low >>= r.integers(0, fmt.trailing_bits + 2, together).astype(np.uint64)
    high = np.uint64(fmt.max_code) - np.minimum(low, np.uint64(fmt.max_code))
    low = np.minimum(low, np.uint64(fmt.max_code))
    codes = np.where(r.random(together) < (0.0, 0.5, 1.0, 0.1)[case], high, low)
    return codes | r.integers(0, 2, shape, dtype=np.uint64) << np.uint64(fmt.bits - 1)


def test_no_row_writes_to_the_next():
    """Found with an oracle of big integers: the first row's sums were those of the second, then the process ended."""
    a = fs.array([[-(2.0**-177), -(2.0**-52)], [2.0**-79, 2.0**103]], WIDE)
    b = fs.array([[-448.0, 1.875], [1.0, 1.0]], fs.E4M3)
    with np.errstate(all="raise"):
        found = fs.matmul(a, b, accumulate="exact(e5m2)").values
    assert [str(x) for x in found.ravel()] == ["-0.0", "-0.0", "inf", "inf"]


@pytest.mark.parametrize("fmt", [fs.FP16, fs.BF16, fs.FP32], ids=lambda f: f.name)
def test_ties_and_what_breaks_them(fmt):
    """1 + half an ulp, plus or minus the least term there is, which may be hundreds of bits away."""
    tiny = Fraction(fmt.smallest_subnormal) ** 2
    half = Fraction(2) ** -fmt.precision
    least = fmt.smallest_subnormal
    for rounding in list(Rounding)[:6]:
        for sign in (1, -1):
            for bit in (-1, 0, 1):
                x = [sign * 1.0, sign * float(half) * 2**3, bit * least, 3.0, -3.0]
                y = [1.0, 2.0**-3, least, 1.0, 1.0]
                a, b = codes_of([[x]], fmt), codes_of([np.array(y)[:, np.newaxis]], fmt)
                want, got = sums_of(fs.Exact(fmt), (a, fmt), (b, fmt), CallOptions(RoundingAttributes(rounding)))
                assert np.array_equal(want, got)
                exact = sign * (1 + half) + bit * tiny
                value = Fraction(fs.from_codes(got[0, 0, 0].astype(fmt.code_dtype), fmt).tolist()[0])
                assert abs(value - exact) < 2 * half
                if bit and rounding in (Rounding.TIES_TO_EVEN, Rounding.TIES_TO_AWAY):
                    assert abs(value - exact) < half


@pytest.mark.parametrize("rounding", [Rounding.TIES_TO_EVEN, Rounding.TOWARD_NEGATIVE, Rounding.TOWARD_POSITIVE])
def test_zeros(rounding):
    """All terms +0, all -0, both, sums that cancel, no terms; also in a format without a negative zero."""
    rows = [[0.0, 0.0], [-0.0, -0.0], [0.0, -0.0], [1.0, -1.0], [0.0, 0.0]]
    for fmt in fs.FP32, fs.FP64, fs.E4M3FNUZ:
        for signs in [1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [0.0, -0.0]:
            a, b = codes_of([rows], fs.FP16), codes_of([np.array(signs)[:, np.newaxis]], fs.FP16)
            ranges = np.array([[0, 2, 1], [0, 1, 1], [1, 1, 1]])
            assert_same(fs.Exact(fmt), (a, fs.FP16), (b, fs.FP16), CallOptions(RoundingAttributes(rounding)), ranges)


def test_specials():
    """Infinities and NaN among large numbers, in rows and in columns, and none of them beside."""
    r = o.rng("exact sums, specials")
    for fmt in fs.FP32, fs.E4M3, fs.E2M1, fs.FP64:
        for _ in range(6):
            x, y = (r.choice([0.0, -0.0, 1.0, -2.0, 6e4, -6e4, np.inf, -np.inf, np.nan], (1, 9, 11),
                             p=[0.1, 0.1, 0.3, 0.3, 0.07, 0.07, 0.02, 0.02, 0.02]) for _ in range(2))  # fmt: skip
            a, b = (fs.array(v, fs.FP16).codes.astype(np.uint64) for v in (x, y.swapaxes(1, 2)))
            assert_same(fs.Exact(fmt), (a, fs.FP16), (b, fs.FP16))


def test_long_sums():
    """Many terms, so that levels are nearer to each other; and cancellation to the last bit."""
    r = o.rng("exact sums, long")
    for fmt, depth in ((fs.FP16, 20001), (fs.FP32, 5000), (fs.BF16, 70000)):
        x = r.standard_normal((1, 1, depth)) * 2.0 ** r.integers(-30, 30, depth)
        a, b = codes_of(x, fmt), codes_of(np.ones((1, depth, 2)), fmt)
        a[0, 0, : depth // 2] = a[0, 0, depth // 2 : 2 * (depth // 2)] ^ np.uint64(fmt.sign_mask)
        assert_same(fs.Exact(fs.FP32), (a, fmt), (b, fmt))


def test_which_sums_are_taken():
    def taken(a, b, leaf=fs.Exact(fs.FP32), **keywords):
        return kernel_of(leaf, a, b, RoundingAttributes(**keywords)) is not None

    for pair in PAIRS:
        assert taken(*pair)
    assert taken(fs.FP32, fs.FP32, fs.Exact(fs.FP64))
    assert taken(fs.FP32, None)  # values
    assert taken(fs.FP64, fs.FP64)
    assert not taken(fs.FP16, fs.FP16, daz=True)
    assert not taken(fs.FP16, fs.FP16, fs.Sequential(fs.FP32))
