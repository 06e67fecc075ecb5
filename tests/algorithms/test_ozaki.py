"""`fs.algorithms.ozaki2_matmul`: the Ozaki scheme II against Python's integers and exact fractions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import floatsim as fs
from floatsim.algorithms import OZAKI_MODULI, ozaki2_matmul, scaled_integers
from floatsim.algorithms.ozaki import _digits, _residues


def integers(x: np.ndarray) -> np.ndarray:
    assert (x == np.trunc(x)).all()
    return np.array([[int(v) for v in row] for row in x.tolist()], object).reshape(x.shape)


def integer_product(x: fs.algorithms.ScaledIntegers) -> np.ndarray:
    """The number of the mixed radix, above half of the product of the moduli a negative one."""
    value, radix = 0, 1
    for digit, p in zip(_digits(x), x.moduli, strict=True):
        assert ((digit >= 0) & (digit < p)).all()
        value, radix = value + digit.astype(object) * radix, radix * p
    return np.where(value > (radix - 1) // 2, value - radix, value)


def matrices(seed: int, m: int = 5, k: int = 12, n: int = 4, spread: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    return a * np.exp2(rng.integers(-spread, spread + 1, a.shape)), b * np.exp2(
        rng.integers(-spread, spread + 1, b.shape)
    )


def test_moduli():
    assert all(math.gcd(p, q) == 1 for p, q in itertools.combinations(OZAKI_MODULI, 2))
    assert len(OZAKI_MODULI) == 20 and max(OZAKI_MODULI) == 256


@pytest.mark.parametrize("p", [256, 255, 173])
def test_residues_are_int8(p):
    x = np.float64([0, 1, -1, 127, 128, -128, -129, 2.0**70 + 2.0**20, -(2.0**60) - 256, p // 2, -(p // 2)])
    found = _residues(x, p)
    assert found.min() >= -128 and found.max() <= 127
    assert all((int(v) - int(r)) % p == 0 for v, r in zip(x, found, strict=True))


@pytest.mark.parametrize(("moduli", "spread"), [(2, 0), (3, 5), (8, 20), (14, 0), (16, 100), (20, 0), ([256, 255], 3)])
def test_the_integer_product_is_exact(moduli, spread):
    a, b = matrices(1, spread=spread)
    x = scaled_integers(a, b, moduli)
    left, right = integers(x.a), integers(x.b)
    exact = left @ right
    assert (integer_product(x) == exact).all()
    assert 2 * int(np.abs(left).sum(axis=1).max()) > 0 and 2 * max(abs(v) for v in exact.ravel()) < math.prod(x.moduli)
    found = ozaki2_matmul(a, b, moduli)
    for i, j in np.ndindex(*found.shape):
        e = int(x.exponents_a[i, 0] + x.exponents_b[0, j])
        assert found[i, j] == float(Fraction(exact[i, j]) * Fraction(2) ** e)


@pytest.mark.parametrize("exponent", [-1100, -560, 0, 400])
def test_the_last_rounding(exponent):
    """Products that end near ties, in the subnormal range, and beyond FP64: one rounding of the exact integer."""
    rng, ends = np.random.default_rng(7), 2.0 ** (exponent / 2 - 26)
    a, b = (rng.integers(-(2**53), 2**53, shape) * ends for shape in ((20, 3), (3, 20)))
    a[:5], b[:, :5] = np.ldexp(np.round(np.ldexp(a[:5] / ends, -30)), 30) * ends, b[:, :5] / 2.0**10
    x = scaled_integers(a, b, 17)
    exact, found = integers(x.a) @ integers(x.b), ozaki2_matmul(a, b, 17)
    for i, j in np.ndindex(*found.shape):
        value = Fraction(exact[i, j]) * Fraction(2) ** int(x.exponents_a[i, 0] + x.exponents_b[0, j])
        assert found[i, j] == float(value) and np.signbit(found[i, j]) == (value < 0)


def test_the_largest_integers():
    """Rows of equal numbers, all bits of the integers set: no result leaves the range of the moduli."""
    for moduli, k in itertools.product((2, 3, 5, 20), (1, 2, 7, 100)):
        a = np.full((1, k), 1 - 2.0**-53)
        for b in (a.T, -a.T):
            x = scaled_integers(a, b, moduli)
            assert integer_product(x)[0, 0] == (integers(x.a) @ integers(x.b))[0, 0]


def test_integers_are_the_operands_cut_toward_zero():
    a, b = matrices(2, spread=40)
    x = scaled_integers(a, b, 9)
    for i, k in np.ndindex(*a.shape):
        assert int(x.a[i, k]) == int(Fraction(a[i, k]) / Fraction(2) ** int(x.exponents_a[i, 0]))  # int() cuts
    for k, j in np.ndindex(*b.shape):
        assert int(x.b[k, j]) == int(Fraction(b[k, j]) / Fraction(2) ** int(x.exponents_b[0, j]))


@pytest.mark.parametrize(("moduli", "spread"), [(4, 0), (10, 10), (15, 0), (18, 60)])
def test_the_error_bound(moduli, spread):
    a, b = matrices(3, spread=spread)
    x, found = scaled_integers(a, b, moduli), ozaki2_matmul(a, b, moduli)
    left, right = ([[Fraction(v) for v in row] for row in z.tolist()] for z in (a, b))
    for i, j in np.ndindex(*found.shape):
        column = [row[j] for row in right]
        exact = sum((p * q for p, q in zip(left[i], column, strict=True)), Fraction(0))
        scales = [Fraction(2) ** int(e) for e in (x.exponents_a[i, 0], x.exponents_b[0, j])]
        bound = scales[1] * sum(map(abs, left[i])) + scales[0] * sum(map(abs, column))
        assert abs(exact - Fraction(found[i, j])) < bound + Fraction(2) ** -53 * abs(Fraction(found[i, j]))


def test_15_moduli_have_the_accuracy_of_fp64():
    a, b = matrices(4, m=8, k=200, n=8)
    exact = fs.matmul(a, b, accumulate="exact(fp64)")
    share = [np.abs(ozaki2_matmul(a, b, n) - exact).max() / (np.abs(a) @ np.abs(b)).max() for n in (6, 10, 15)]
    assert share[0] > 2.0**-24 and share[1] < 2.0**-30 and share[2] < 2.0**-49


def test_products_of_residues_on_an_integer_unit():
    """INT32 holds every sum, so that the unit's instruction returns the product of the residues."""
    a, b = matrices(5, k=64)
    x = scaled_integers(a, b, 6)
    for p in x.moduli:
        left, right = (_residues(z, p).astype(np.int8) for z in (x.a, x.b))
        found = fs.quantization.integer_matmul(left, right, instruction="wgmma.k32.s8.s8")
        assert np.array_equal(found % p, np.int64(left) @ np.int64(right) % p)


def test_ends_of_the_range():
    tiny, huge = np.float64([[5e-324, 1e-310]]), np.float64([[1e308, 1.7e308]])
    ones = np.ones((2, 1))
    assert ozaki2_matmul(tiny, ones)[0, 0] == 5e-324 + 1e-310
    assert ozaki2_matmul(huge, ones)[0, 0] == np.inf and ozaki2_matmul(-huge, ones)[0, 0] == -np.inf
    assert ozaki2_matmul(huge, np.float64([[1], [-1]]))[0, 0] == 1e308 - 1.7e308
    assert ozaki2_matmul(tiny, huge.T)[0, 0] == float(
        Fraction(5e-324) * Fraction(1e308) + Fraction(1e-310) * Fraction(1.7e308)
    )
    assert ozaki2_matmul(tiny, tiny.T)[0, 0] == 0
    assert ozaki2_matmul(np.zeros((2, 3)), np.zeros((3, 1))).tolist() == [[0], [0]]
    assert ozaki2_matmul(np.zeros((2, 0)), np.zeros((0, 3))).tolist() == [[0] * 3] * 2
    assert ozaki2_matmul(np.zeros((0, 3)), np.zeros((3, 2))).shape == (0, 2)


def test_fp32_operands_and_bits_of_a_floatarray():
    a, b = (np.float32(x) for x in matrices(6))
    found = ozaki2_matmul(a, fs.array(b, "fp32"))
    assert found.dtype == np.float64 and np.array_equal(found, ozaki2_matmul(np.float64(a), np.float64(b)))


def test_zeros_beside_subnormal_numbers_need_no_long_integers():
    """A zero is not rounded by Python's integers."""
    a, b = np.zeros((30, 1)), np.full((1, 30), 5e-324)
    a[7] = 2.0
    found = ozaki2_matmul(a, b)
    assert np.count_nonzero(found) == 30 and (found[7] == 1e-323).all() and not np.signbit(found).any()


@pytest.mark.parametrize(("arguments", "says"), [
    (([[1.0, np.nan]], [[1.0], [1.0]]), r"a has nan at \(0, 1\); the scheme is defined for finite numbers"),
    (([[1.0]], [[-np.inf]]), r"b has -inf at \(0, 0\)"),
    (([[1.0, 2.0]], [[1.0]]), "do not fit"),
    (([1.0], [[1.0]]), "do not fit"),
    (([[1.0]], [[1.0]], 1), "moduli must be"),
    (([[1.0]], [[1.0]], 21), "moduli must be"),
    (([[1.0]], [[1.0]], [256, 254]), "moduli has 256 and 254, with the common divisor 2"),
    (([[1.0]], [[1.0]], [257, 255]), r"moduli\[0\] must be"),
    (([[1.0]], [[1.0]], [255]), "must have 2 moduli or more"),
    (([[1.0]], [[1.0]], [2, 3]), "too small for K=1; use more moduli"),
    ((np.ones((1, 1 << 17)), np.ones((1 << 17, 1))), "K=131072: sums of products of INT8 residues fit in INT32 up to"),
])  # fmt: skip
def test_errors(arguments, says):
    with pytest.raises(ValueError, match=says):
        ozaki2_matmul(*arguments)
