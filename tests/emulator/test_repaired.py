"""Results that were wrong once, found by a search with an oracle of big integers; each with its neighbours."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.emulator.dispatch.candidates import only
from tests.marks import cases

KINDS = [fs.Sequential, fs.Pairwise, fs.Kahan, fs.Neumaier]


def recorded(call):
    with fs.record():
        return call()


def by_integers(call):
    with only("integer"):
        return call()


@pytest.mark.parametrize("zeros", [(0.0, -0.0), (-0.0, 0.0)])
def test_alpha_keeps_the_sign_of_its_zero(zeros):
    """A cache keyed by == took -0.0 for 0.0."""
    one = fs.array([[1.0]], "fp16")
    for alpha in zeros:
        sign = int(np.signbit(alpha)) << 31
        assert fs.matmul(one, one, alpha=alpha).codes.item() == sign
        assert fs.matmul(one, one, alpha=np.float32(alpha)).codes.item() == sign
        c = fs.array([[-0.0]], "fp32")
        assert fs.matmul(one, one, c, alpha=alpha).codes.item() == sign


@pytest.mark.parametrize("rounding", cases(quick=["RNE"], full=["RNA", "RTZ", "RTN", "RTP", "RTO"]))
@pytest.mark.parametrize(
    "fmt", cases(quick=["ieee(5,23)"], full=["ieee(6,23)", "ieee(7,23)", "ieee(5,22)", "ieee(5,24)"])
)
def test_accumulators_about_the_precision_of_float32(fmt, rounding):
    """24 bits with exponents that are not FP32's: x + C rounded to a quantum of one bit too few, or too many."""
    x = fs.array([1.5, -(2.0**-23)], "ieee(5,20)")
    rng = np.random.default_rng(1)
    y = fs.array(rng.standard_normal((40, 7)) * 2.0 ** rng.integers(-6, 6, (40, 7)), fmt)
    for kind in KINDS:
        if rounding == "RNE" and fmt != "ieee(5,22)":
            total = fs.sum(x, accumulate=kind(fmt), rounding=rounding).values.item()
            assert total == 1.5 - 2.0**-23
        for call in (
            lambda kind=kind: fs.sum(x, accumulate=kind(fmt), rounding=rounding).codes,
            lambda kind=kind: fs.sum(y, axis=0, accumulate=kind(fmt), rounding=rounding).codes,
        ):
            assert np.array_equal(call(), recorded(call)), kind


@pytest.mark.full
@pytest.mark.parametrize(
    ("specials", "bias"), [("fnuz", 128), ("fn", 128), ("fnuz", 140), ("finite", 128), ("fn", 127)]
)
def test_formats_whose_largest_exponent_field_is_finite(specials, bias):
    """Eight exponent bits: float32 reads all ones as infinity or NaN, these formats as numbers."""
    fmt = fs.FloatFormat("w", 8, 7, specials=specials, bias=bias)
    values = [fmt.max, -fmt.max, 2.0**fmt.emax, fmt.smallest_subnormal, 1.0, -fmt.max / 2]
    x, one = fs.array(values, fmt), fs.array([1.0] * len(values), fmt)
    wide = fs.array([values] * 9, fmt)
    for accumulation in ("fp32", "bf16", "pairwise(bf16)", "kahan(tf32)", "fp64", "exact(fp32)", "exact(fp64)"):
        for call in (
            lambda accumulation=accumulation: fs.sum(x, accumulate=accumulation).codes,
            lambda accumulation=accumulation: fs.dot(x, one, accumulate=accumulation).codes,
            lambda accumulation=accumulation: fs.matmul(wide, wide.T, accumulate=accumulation).codes,
            lambda accumulation=accumulation: fs.sum(x, accumulate=accumulation, format=fmt).codes,
        ):
            assert np.array_equal(call(), recorded(call)), accumulation
    own = fs.Sequential(fmt)
    start = fs.array(np.full((9, 9), fmt.max), fmt)
    for call in (
        lambda: fs.sum(x, accumulate=own).codes,
        lambda: fs.matmul(wide, wide.T, accumulate=own).codes,
        lambda: fs.matmul(wide, wide.T, start, accumulate=own).codes,
        lambda: fs.matmul(wide, wide.T, start, accumulate="fp32").codes,
    ):
        assert np.array_equal(call(), recorded(call))


@pytest.mark.parametrize("specials", ["finite", "fn", "fnuz", "ieee"])
@pytest.mark.parametrize("kind", cases(quick=[fs.Sequential], full=KINDS))
def test_product_formats_that_hold_every_finite_product(kind, specials):
    """Infinite and NaN products have to become max or NaN before they are added."""
    product = fs.FloatFormat("p", 6, 25, specials=specials)
    for accumulator in ("fp32", "fp64", "fp16", "bf16"):
        for value in (np.inf, -np.inf, np.nan):
            a, b = fs.array([[1.0, value]], "e4m3ieee"), fs.array(np.ones((2, 17)), "e4m3ieee")

            def call(a=a, b=b, accumulator=accumulator):
                return fs.matmul(a, b, accumulate=kind(accumulator, product=product)).codes

            assert np.array_equal(call(), recorded(call)), (accumulator, value)


@pytest.mark.parametrize("rounding", ["RNE", "RTZ", "RTN", "RTP"])
@pytest.mark.parametrize("widths", cases(quick=[(7, 12)], full=[(6, 13), (7, 20), (7, 10), (7, 11)]))
def test_infinite_products_in_accumulators_without_infinity(widths, rounding):
    """inf * 1 is max in the product's format; -4 + max toward zero is the number below max."""
    fmt = fs.FloatFormat("a", *widths, specials="finite")
    a, b = fs.array([[-4.0, np.inf]], "e5m2"), fs.array(np.ones((2, 17)), "e5m2")

    def call():
        return fs.matmul(a, b, accumulate=fs.Sequential(fmt, rounding=rounding)).codes

    assert np.array_equal(call(), recorded(call))
    below = fmt.max_code - 1 if rounding in ("RTZ", "RTN") else fmt.max_code
    assert call()[0, 0] == below


@pytest.mark.parametrize(
    "unit", cases(quick=[fs.TensorCore("hopper", "wgmma.k32")], full=[fs.TensorCore("ada")]), ids=str
)
def test_a_zero_of_a_matrix_unit_is_positive(unit):
    """Products are zero, and c is below the sum's smallest number: -0 came out of the fast kernel."""
    zero, one = fs.array([[0.0]], "e4m3"), fs.array([[1.0]], "e4m3")
    codes = np.concatenate([np.arange(1, 40), 1 << np.arange(23), (1 << 10) + np.arange(-3, 4)]).astype(np.uint32)
    for code in np.concatenate([codes, codes | np.uint32(1 << 31)]):
        c = fs.from_codes(np.array([[code]], np.uint32), "fp32")

        def call(c=c):
            return fs.matmul(zero, one, c, accumulate=unit).codes.item()

        assert call() == recorded(call), hex(code)
        assert call() != 0x80000000, hex(code)


@pytest.mark.full
@pytest.mark.parametrize("rounding", ["RNE", "RNA", "RTZ", "RTP", "RTN", "RTO"])
@pytest.mark.parametrize("bias", [126, 127, 128, 129, 130, 140])
@pytest.mark.parametrize("specials", ["ieee", "finite"])
def test_accumulators_among_the_subnormal_numbers_of_float32(specials, bias, rounding):
    """The least exponents of the format and of float32: its kernels read the exponent field of sums."""
    fmt = fs.FloatFormat("low", 4, 7, specials, bias)
    x = fs.from_codes(np.arange(fmt.max_code + 1, dtype=np.uint16)[:, None], fmt)
    for kind in fs.Sequential, fs.Pairwise:
        assert np.array_equal(fs.sum(x, 1, accumulate=kind(fmt), rounding=rounding).codes, x.codes[:, 0])
    pairs = fs.from_codes(np.random.default_rng(1).integers(0, fmt.max_code + 1, (60, 3), np.uint16), fmt)

    for kind in KINDS:

        def call(kind=kind):
            return fs.sum(pairs, 1, accumulate=kind(fmt), rounding=rounding).codes

        assert np.array_equal(call(), recorded(call)), kind


@pytest.mark.parametrize("bias", [1010, 1020, 1021, 1022, 1060, 1073])
def test_exact_sums_of_subnormal_numbers_of_float64(bias):
    """Levels are chosen by the exponents of the factors, which a subnormal number's exponent field does not tell."""
    a, b = fs.FloatFormat("a", 5, 2, "finite", bias), fs.FloatFormat("b", 5, 2, "finite", -992)
    codes = np.arange(128, dtype=np.uint8)
    x, y = fs.from_codes(codes[:, None], a), fs.from_codes(codes[None], b)
    assert np.array_equal(fs.matmul(x, y, accumulate="exact(fp64)").values, x.values * y.values)
    assert np.array_equal(fs.matmul(y.T, x.T, accumulate="exact(fp64)").values, y.T.values * x.T.values)


@pytest.mark.parametrize("options", [{"daz": True}, {"ftz": True}], ids=str)
def test_saturation_in_the_accumulators_own_format_changes_infinities_only(options):
    terms = np.float16([[1.5 * 2.0**-14, -(2.0**-14)], [np.inf, 1.0], [-np.inf, 1.0]])
    accumulation = fs.Sequential("fp16", daz=False, ftz=False)
    sums = fs.sum(terms, axis=1, accumulate=accumulation, overflow="saturate_finite", **options)
    assert sums.tolist() == [2.0**-15, 65504, -65504]


@pytest.mark.parametrize("axis", [0, 1])
def test_running_sums_draw_for_their_results_as_sums_do(axis):
    x = fs.array(np.random.default_rng(1).normal(size=(9, 9)) * 3, "fp32")
    options = {"rounding": "stochastic", "seed": 5, "accumulate": "fp32", "format": "e4m3", "axis": axis}
    running = fs.cumsum(x, **options).codes
    for k in range(9):
        head = x[: k + 1] if axis == 0 else x[:, : k + 1]
        assert fs.sum(head, **options).codes.tolist() == running.take(k, axis).tolist()
