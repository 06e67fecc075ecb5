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
UInt32: TypeAlias = NDArray[np.uint32]

OZAKI_MODULI = (
    256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181, 179, 173,
)  # fmt: skip
"""The moduli of the scheme, in the order in which they are used. No two have a common divisor.

>>> import floatsim as fs, math
>>> math.log2(math.prod(fs.algorithms.OZAKI_MODULI[:14])) > 110
True
"""

_BITS = 30
_MASK = (1 << _BITS) - 1
"""Long integers are words of 30 bits in int64: a word times a modulus has 38 bits."""

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
    >>> int(x.exponents_a[0, 0]), int(x.a[0, 1])
    (-53, 0)
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


def _digits(x: ScaledIntegers) -> list[UInt32]:
    """Return the product of the integer matrices modulo the product of the moduli, as digits of the mixed radix.

    value = d[0] + p[0] * (d[1] + p[1] * (d[2] + ...)), by Garner's algorithm. Each product of residues is exact in
    FP64, because K * 2**14 is below 2**53.
    """
    digits: list[UInt32] = []
    for i, p in enumerate(x.moduli):
        product = _residues(x.a, p) @ _residues(x.b, p)
        rest = (product - np.floor(product / p) * p).astype(np.uint32)  # below 2**31: no quotient rounds to an integer
        for digit, q in zip(digits, x.moduli[:i], strict=True):
            scaled = (rest + np.uint32(256) * np.uint32(p) - digit) * np.uint32(pow(q, -1, p))
            rest = scaled - scaled // np.uint32(p) * np.uint32(p)
        digits.append(rest)
    return digits


def _magnitudes(digits: list[UInt32], moduli: tuple[int, ...]) -> tuple[Int64, NDArray[np.bool_]]:
    """Return the magnitudes of the numbers as words of 30 bits (words, M, N), the lowest first, and their signs."""
    whole = math.prod(moduli)
    count = -(-whole.bit_length() // _BITS)
    words = np.zeros((count, *digits[0].shape), np.int64)
    for digit, p in zip(digits[::-1], moduli[::-1], strict=True):
        words *= p
        words[0] += digit
        _carry(words)
    top = np.array([whole >> _BITS * n & _MASK for n in range(count)], np.int64).reshape(-1, *[1] * digits[0].ndim)
    doubled = _carry(2 * words)  # the top word may have one bit more
    negative = np.zeros(digits[0].shape, bool)
    undecided = np.ones(digits[0].shape, bool)
    for n in range(
        count - 1, -1, -1
    ):  # 2 * value > whole: the value is above (whole - 1) / 2, and stands for value - whole
        negative |= undecided & (doubled[n] > top[n])
        undecided &= doubled[n] == top[n]
    return np.where(negative, _carry(top - words), words), negative


def _carry(words: Int64) -> Int64:
    """Move what is beyond 30 bits of each word, or below zero, to the next word, in place. The last word keeps it."""
    for n in range(len(words) - 1):
        words[n + 1] += words[n] >> _BITS
        words[n] &= _MASK
    return words


def _to_float64(words: Int64, negative: NDArray[np.bool_], exponents: Int64) -> Float64:
    """Return the numbers times 2**exponents, rounded once to FP64, ties to even.

    The first 60 bits of a number become an int64, whose last bit is set if a lower bit is. Its conversion to FP64
    rounds as that of the whole number. Subnormal results have fewer bits: Python's integers round them.
    """
    padded = np.concatenate([np.zeros((2, *words.shape[1:]), np.int64), words])
    nonzero = padded != 0
    top = np.maximum(len(padded) - 1 - nonzero[::-1].argmax(axis=0), 2)
    first, second, third = (np.take_along_axis(padded, (top - n)[np.newaxis], axis=0)[0] for n in range(3))
    shift = _BITS - np.frexp(first.astype(np.float64))[1].astype(np.int64)
    lead = (first << _BITS | second) << shift | third >> _BITS - shift
    lower = nonzero.cumsum(axis=0)
    below = np.take_along_axis(lower, (top - 2)[np.newaxis], axis=0)[0] > (third != 0)
    lead |= below | (third & ((1 << _BITS - shift) - 1) != 0)
    scales = exponents + _BITS * (top - 3) - shift  # of numbers that are not zero
    with np.errstate(over="ignore"):
        found: Float64 = np.ldexp(lead.astype(np.float64), scales)
    for place in np.argwhere((scales < -1080) & nonzero.any(axis=0)):  # 2**59 * 2**-1081 is normal
        where = tuple(place)
        value = sum(int(word) << _BITS * n for n, word in enumerate(words[(slice(None), *where)]))
        found[where] = value / (1 << -int(exponents[where]))  # Python rounds the quotient of two integers once
    return np.where(negative, -found, found)


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
    exponents = np.broadcast_to(x.exponents_a + x.exponents_b, (x.a.shape[0], x.b.shape[1]))
    return _to_float64(*_magnitudes(_digits(x), x.moduli), exponents)
