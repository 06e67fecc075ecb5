"""The Ozaki scheme II: a product of FP64 matrices from products of INT8 residues, by the Chinese remainder theorem.

Source: Ozaki, Uchino and Imamura, "Ozaki Scheme II: A GEMM-oriented emulation of floating-point matrix multiplication
using an integer modular technique", arXiv 2504.08009. The moduli are those of RIKEN-RCCS/GEMMul8.

A and B are scaled by powers of two, row by row and column by column, and cut to integers. For each modulus p the
residues of both, from -p / 2 to p / 2, are INT8 numbers, and their product is exact in INT32. The residues of the
result for all moduli determine it, because twice its magnitude is below the product of the moduli.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.conversion import array
from floatsim.formats._validation import as_index

__all__ = ["OZAKI_MODULI", "ScaledIntegers", "ozaki2_matmul", "scaled_integers"]

Float64: TypeAlias = NDArray[np.float64]
Int64: TypeAlias = NDArray[np.int64]

OZAKI_MODULI = (
    256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181, 179, 173,
)  # fmt: skip
"""The moduli of the scheme, in the order in which they are used. No two have a common divisor.

>>> import floatsim as fs, math
>>> math.log2(math.prod(fs.algorithms.OZAKI_MODULI[:14])) > 110
True
"""

_LONGEST = (1 << 17) - 1
"""The most terms of a sum of products of INT8 residues that INT32 holds: K * 2**14 is at most 2**31 - 1."""


@dataclass(frozen=True, eq=False)
class ScaledIntegers:
    """The integer matrices of the scheme. `scaled_integers` returns them.

    Attributes
    ----------
    a : float64 ndarray, (M, K)
        Integers: A * 2**-exponents, cut toward zero.
    b : float64 ndarray, (K, N)
        Integers: B * 2**-exponents, cut toward zero.
    exponents_a : int64 ndarray, (M, 1)
        The exponent of the scale of each row: A is about a * 2**exponents_a.
    exponents_b : int64 ndarray, (1, N)
        The exponent of the scale of each column.
    moduli : tuple of int
        The moduli. Twice the magnitude of every element of a @ b is below their product.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = fs.algorithms.scaled_integers(np.float64([[0.75, 0.3]]), np.float64([[1.0], [0.5]]), moduli=2)
    >>> x.a.tolist(), x.exponents_a.tolist(), x.b.ravel().tolist(), x.exponents_b.tolist()
    ([[96.0, 38.0]], [[-7]], [32.0, 16.0], [[-5]])
    """

    a: Float64
    b: Float64
    exponents_a: Int64
    exponents_b: Int64
    moduli: tuple[int, ...]


def _matrices(a: Any, b: Any) -> tuple[Float64, Float64]:
    found = []
    for x, argument in ((a, "a"), (b, "b")):
        numbers = np.asarray(array(x, "fp64"), np.float64)
        if not np.isfinite(numbers).all():
            place = tuple(int(n) for n in np.argwhere(~np.isfinite(numbers))[0])
            raise ValueError(f"{argument} has {numbers[place]} at {place}; the scheme is defined for finite numbers")
        found.append(numbers)
    x, y = found
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[0]:
        raise ValueError(f"a {x.shape} and b {y.shape} do not fit: a is (M, K), and b is (K, N)")
    if x.shape[1] > _LONGEST:
        raise ValueError(
            f"K={x.shape[1]}: sums of products of INT8 residues fit in INT32 up to K={_LONGEST}; add products of parts"
        )
    return x, y


def _moduli(moduli: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(moduli, Sequence):
        found = tuple(as_index(p, f"moduli[{i}]", 2, 256) for i, p in enumerate(moduli))
        if len(found) < 2:
            raise ValueError(f"moduli={moduli!r} must have 2 moduli or more")
        for i, p in enumerate(found):
            for q in found[:i]:
                if math.gcd(p, q) != 1:
                    raise ValueError(f"moduli has {q} and {p}, with the common divisor {math.gcd(p, q)}")
        return found
    return OZAKI_MODULI[: as_index(moduli, "moduli", 2, len(OZAKI_MODULI))]


def _to_integers(x: Float64, bits: int, axis: int) -> tuple[Float64, Int64]:
    """Return integers below 2**bits in magnitude, and the exponents of the scales along the axis."""
    largest = np.abs(x).max(axis=axis, keepdims=True, initial=0)
    exponents = np.frexp(largest)[1].astype(np.int64) - bits
    return np.trunc(_scaled(x, -exponents)), exponents


def _scaled(x: Float64, exponents: Int64) -> Float64:
    """Return x * 2**exponents in two steps, because 2**exponents itself may be beyond FP64."""
    half = exponents // 2
    scaled: Float64 = np.ldexp(np.ldexp(x, half), exponents - half)
    return scaled


def scaled_integers(a: Any, b: Any, moduli: int | Sequence[int] = 16) -> ScaledIntegers:
    """Return the integer matrices whose product the scheme computes without error.

    Parameters
    ----------
    a : array_like of float, (M, K)
    b : array_like of float, (K, N)
        Finite numbers.
    moduli : int or sequence of int
        The number of moduli, from 2 to 20: the first ones of `OZAKI_MODULI`. Or the moduli, from 2 to 256, without
        common divisors.

    Returns
    -------
    ScaledIntegers

    Raises
    ------
    ValueError
        For infinities and NaN, shapes that do not fit, K above 2**17 - 1, and moduli with a common divisor or too few
        for one bit of each operand.

    Notes
    -----
    With P the product of the moduli, the integers of A have t bits and those of B u bits, with K * 2**(t + u) < P / 2
    and t - u of 0 or 1. The scale follows from the largest magnitude of a row or column. GEMMul8 has sharper bounds,
    from norms ("fast") or from a product of INT8 estimates ("accurate"), which keep up to log2(K) / 2 bits more.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = fs.algorithms.scaled_integers(np.float64([[1.0, 2.0**-60]]), np.ones((2, 1)), moduli=14)
    >>> int(x.exponents_a[0, 0]), x.a[0, 1]
    (-53, 0.0)
    """
    x, y = _matrices(a, b)
    chosen = _moduli(moduli)
    product, k = math.prod(chosen), max(1, x.shape[1])
    bits = ((product - 1) // 2 // k).bit_length() - 1  # the largest with K * 2**bits <= (P - 1) / 2
    if bits < 2:
        raise ValueError(f"moduli={chosen} have the product {product}, too small for K={k}; use more moduli")
    left, e = _to_integers(x, bits - bits // 2, 1)
    right, f = _to_integers(y, bits // 2, 0)
    return ScaledIntegers(left, right, e, f, chosen)


def _residues(x: Float64, p: int) -> Float64:
    """Return the residues of integers in FP64, from -p / 2 to (p - 1) / 2: INT8 numbers. np.fmod is exact."""
    rest = np.fmod(x, p)
    rest = np.where(rest < 0, rest + p, rest)
    centred: Float64 = np.where(rest > (p - 1) // 2, rest - p, rest)
    return centred


def _integer_product(x: ScaledIntegers) -> Any:
    """Return the exact product of the integer matrices, as an array of Python integers.

    The digits of the mixed radix are int64 (Garner): value = d[0] + p[0] * (d[1] + p[1] * (d[2] + ...)). Each product
    of residues is exact in FP64, because K * 2**14 is below 2**53.
    """
    digits: list[Int64] = []
    for i, p in enumerate(x.moduli):
        product = (_residues(x.a, p) @ _residues(x.b, p)).astype(np.int64)
        rest = product % p
        for digit, q in zip(digits, x.moduli[:i], strict=True):
            rest = (rest - digit) * pow(q, -1, p) % p
        digits.append(rest)
    value = digits[-1].astype(object)
    for digit, p in zip(digits[-2::-1], x.moduli[-2::-1], strict=True):
        value = value * p + digit
    whole = math.prod(x.moduli)
    return np.where(value > (whole - 1) // 2, value - whole, value)


def _rounded(value: int, exponent: int) -> float:
    """Return value * 2**exponent rounded once to FP64, ties to even: Python's division of integers does so."""
    try:
        return float(value << exponent) if exponent >= 0 else value / (1 << -exponent)
    except OverflowError:
        return math.copysign(math.inf, value)


def ozaki2_matmul(a: Any, b: Any, moduli: int | Sequence[int] = 16) -> Float64:
    """Return the product of two matrices by the Ozaki scheme II.

    Parameters
    ----------
    a : array_like of float, (M, K)
    b : array_like of float, (K, N)
        Finite numbers.
    moduli : int or sequence of int
        The number of moduli, which is that of INT8 products, or the moduli, as in `scaled_integers`. About 15 moduli
        have the accuracy of FP64 for rows of equal magnitudes.

    Returns
    -------
    float64 ndarray, (M, N)
        The exact product of the integer matrices, scaled back and rounded once, ties to even.

    Raises
    ------
    ValueError
        As in `scaled_integers`.

    Notes
    -----
    With x and y the integers, and s and t the scales 2**exponents of row i and column j, the error is below
    t[j] * sum(abs(a[i])) + s[i] * sum(abs(b[:, j])) + 2**-53 * abs(result) (+ 2**-1075 for subnormal results): cutting
    moves each element by less than one scale, toward zero.

    The published programs compute the last step, from the residues to FP64, in floating point. Here it is exact, so
    that the bits of a program may differ in the last place.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> a, b = np.random.default_rng(0).normal(size=(2, 4, 4))
    >>> exact = fs.matmul(a, b, accumulate="exact(fp64)")
    >>> [float(np.abs(fs.algorithms.ozaki2_matmul(a, b, n) - exact).max()) < 2.0**-e for n, e in ((6, 16), (15, 49))]
    [True, True]
    """
    x = scaled_integers(a, b, moduli)
    exact = _integer_product(x)
    exponents = np.broadcast_to(x.exponents_a + x.exponents_b, exact.shape)
    found = [_rounded(int(value), int(e)) for value, e in zip(exact.ravel(), exponents.ravel(), strict=True)]
    return np.asarray(found, np.float64).reshape(exact.shape)
