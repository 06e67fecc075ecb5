"""Inputs of matrix products that show differences: orders, widths, roundings, and both ends of the range.

Normal random numbers rarely tell two kernels apart once the result is rounded to few bits. Each kind here aims at one
property of a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from floatsim.arrays.array.conversion import encode
from floatsim.arrays.array.float_array import wrap
from floatsim.formats import FloatFormat, FormatLike
from floatsim.formats._validation import as_index, name_hint
from floatsim.formats.rounding import OverflowLike
from floatsim.testing.compare.operands import as_operand_formats, as_shape, operand_format

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

__all__ = ["KINDS", "HardInputs", "hard_inputs"]


class HardInputs(NamedTuple):
    """The operands a (M, K) and b (K, N): arrays of the formats' dtypes, or FloatArrays where there is no dtype.

    >>> import floatsim as fs
    >>> inputs = fs.testing.hard_inputs((2, 8, 3), "fp16")
    >>> inputs.a.shape, inputs.b.shape, inputs.a.dtype.name
    ((2, 8), (8, 3), 'float16')
    """

    a: Any
    b: Any


@dataclass(frozen=True)
class _Case:
    """The shape, the formats of the operands, the accumulator and the result, and the random numbers."""

    m: int
    k: int
    n: int
    a: FloatFormat
    b: FloatFormat
    accumulator: FloatFormat
    result: FloatFormat
    rng: np.random.Generator

    @property
    def lowest(self) -> int:
        """The exponent of the smallest product of two powers of two."""
        return sum(fmt.emin - fmt.trailing_bits * fmt.has_subnormals for fmt in (self.a, self.b))

    @property
    def highest(self) -> int:
        """The largest exponent of a product; a sum of K such products does not overflow the accumulator."""
        room = (self.k - 1).bit_length() + 1
        return min(self.a.emax + self.b.emax, min(self.accumulator.emax, self.result.emax) - room)

    def factors(self, exponents: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
        """Return powers of two in both formats with these products."""
        middle = (self.a.emax + self.a.emin - self.b.emax - self.b.emin) // 2
        left = np.clip((exponents + middle) // 2, self.a.emin, self.a.emax)
        right = np.clip(exponents - left, self.b.emin - self.b.trailing_bits, self.b.emax)
        left = np.clip(exponents - right, self.a.emin - self.a.trailing_bits, self.a.emax)
        return np.ldexp(1.0, left), np.ldexp(1.0, right)

    def significands(self, fmt: FloatFormat, *shape: int) -> Numbers:
        """Return random numbers in +-[1, 2) with all bits of the format."""
        bits = min(fmt.trailing_bits, 52)
        size = 1 + self.rng.integers(0, 1 << bits, shape) / 2.0**bits
        signed: Numbers = np.asarray(size * self.signs(*shape), np.float64)
        return signed

    def signs(self, *shape: int) -> Numbers:
        chosen: Numbers = np.asarray(1.0 - 2.0 * self.rng.integers(0, 2, shape), np.float64)
        return chosen


def _normal(case: _Case) -> tuple[Numbers, Numbers]:
    return case.rng.standard_normal((case.m, case.k)), case.rng.standard_normal((case.k, case.n))


def _cancelling(case: _Case) -> tuple[Numbers, Numbers]:
    """Pairs of large products cancel, in random places. What remains is rounding errors and a few small products."""
    pairs = 3 * case.k // 8
    order = case.rng.permutation(case.k)
    first, second, rest = order[:pairs], order[pairs : 2 * pairs], order[2 * pairs :]
    span = min(case.accumulator.precision + 2, case.highest - 2 - case.lowest)
    top = case.highest - 2
    exponents = np.empty(case.k, np.int64)
    exponents[first] = exponents[second] = top - case.rng.integers(0, max(1, span // 3), pairs)
    exponents[rest] = top - span + case.rng.integers(0, 4, len(rest))
    left, right = case.factors(exponents)
    a = case.significands(case.a, case.m, case.k) * left
    b = case.significands(case.b, case.k, case.n) * right[:, np.newaxis]
    a[:, second], b[second] = -a[:, first], b[first]
    return a, b


def _cancelling_parts(case: _Case) -> tuple[Numbers, Numbers]:
    """The second and third quarter of K have large sums that cancel.

    A sum of the quarters in order absorbs the first and returns the last. Other orders of the parts return others.
    """
    width = case.k // 4
    if width == 0:
        raise ValueError(f"K = {case.k} is too short: kind='cancelling_parts' needs four products")
    second, third = slice(width, 2 * width), slice(2 * width, 3 * width)
    top = case.highest - 2
    exponents = np.full(case.k, max(case.lowest, top - case.accumulator.precision - 2))
    exponents[width : 3 * width] = top
    left, right = case.factors(exponents)
    a = case.significands(case.a, case.m, case.k) * left
    b = case.significands(case.b, case.k, case.n) * right[:, np.newaxis]
    a[:, third], b[third] = -a[:, second], b[second]
    return a, b


def _integers(case: _Case) -> tuple[Numbers, Numbers]:
    """Integers whose sums of magnitudes every accumulator and the result hold exactly."""
    most = 1 << min(case.accumulator.precision, case.result.precision)
    most = min(most, int(min(case.accumulator.max, case.result.max, 2.0**53)))
    limits = [min(1 << fmt.precision, int(fmt.max)) for fmt in (case.a, case.b)]
    largest = max(1, min(math.isqrt(max(1, most // case.k)), *limits))
    used = min(case.k, most // largest**2)
    a = case.rng.integers(1, largest + 1, (case.m, case.k)) * case.signs(case.m, case.k)
    b = case.rng.integers(1, largest + 1, (case.k, case.n)) * case.signs(case.k, case.n)
    ranks = case.rng.random((case.m, case.k)).argsort(axis=1).argsort(axis=1)
    return np.where(ranks < used, a, 0.0), b


def _one_k(case: _Case) -> tuple[Numbers, Numbers]:
    """Each result is one product, and all k occur if M * N >= K. The products are exact in the result."""
    width = min(case.n, case.k)
    k = np.arange(case.k)
    bits = max(0, min(case.b.trailing_bits, case.result.precision, case.accumulator.precision) - 1)
    sizes = 1 + case.rng.integers(0, 1 << bits, (case.k, case.n)) / 2.0**bits
    a = np.where(k // width % case.m == np.arange(case.m)[:, np.newaxis], case.signs(case.m, case.k), 0.0)
    b = np.where(k[:, np.newaxis] % width == np.arange(case.n) % width, sizes * case.signs(case.k, case.n), 0.0)
    return a, b


def _subnormal(case: _Case) -> tuple[Numbers, Numbers]:
    """Rows in turn: subnormal a; the smallest normal a; products whose sums are subnormal in the result."""
    steps = case.rng.integers(1, 1 << max(case.a.trailing_bits, 1), (case.m, case.k))
    a = steps * case.a.smallest_subnormal * case.signs(case.m, case.k)
    a[1::3] = a[1::3] + np.copysign(case.a.smallest_normal, a[1::3])
    b = case.significands(case.b, case.k, case.n) / max(1.0, 2.0 ** ((case.k - 1).bit_length() // 2))
    target = case.result.emin - 2 - (case.k - 1).bit_length() // 2
    low = max(target, case.a.emin - case.a.trailing_bits)
    a[2::3] = np.ldexp(case.significands(case.a, *a[2::3].shape), low)
    return a, b


def _flushed(case: _Case) -> tuple[Numbers, Numbers]:
    """Rows and columns in turn: subnormal a times large b; cancelling products at the accumulator's smallest normal."""
    left, right = case.factors(np.array([max(case.accumulator.emin + 1, case.lowest)]))
    a = np.ldexp(case.significands(case.a, case.m, case.k) * left, -case.rng.integers(0, 4, (case.m, case.k)))
    b = case.significands(case.b, case.k, case.n) * right
    steps = case.rng.integers(1, 1 << max(case.a.trailing_bits, 1), a[1::2].shape)
    a[1::2] = steps * case.a.smallest_subnormal * case.signs(*a[1::2].shape)
    large = max(case.b.emin, min(case.b.emax - 1, -case.a.emin))
    b[:, 1::2] = np.ldexp(case.significands(case.b, *b[:, 1::2].shape), large)
    return a, b


def _overflow(case: _Case) -> tuple[Numbers, Numbers]:
    """Sums around the largest number; in odd rows, large products of both signs whose order decides the overflow."""
    end = min(case.accumulator.emax, case.result.emax)
    top = min(case.a.emax + case.b.emax, end)
    spread = max(0.0, (case.k.bit_length() - 1) / 2)
    left, right = case.factors(np.array([min(top, round(end - spread))]))
    a = case.significands(case.a, case.m, case.k) * left
    b = case.significands(case.b, case.k, case.n) * right
    odd = a[1::2]
    high, _ = case.factors(np.array([top]))
    few = case.rng.random(odd.shape) < 4 / case.k
    a[1::2] = np.where(few, np.copysign(min(high[0], case.a.max), odd), odd)
    return a, b


def _special(case: _Case) -> tuple[Numbers, Numbers]:
    """Normal numbers; one of 2 K elements is an infinity, a NaN, a zero, or an extreme number."""
    sides = []
    for fmt, x in zip((case.a, case.b), _normal(case), strict=True):
        extremes = [0.0, -0.0, fmt.max, -fmt.max, fmt.smallest_normal, -fmt.smallest_subnormal]
        extremes += [math.inf, -math.inf] if fmt.has_infinity else []
        extremes += [math.nan] if fmt.has_nan else []
        chosen = case.rng.choice(extremes, x.shape)
        sides.append(np.where(case.rng.random(x.shape) < 1 / (2 * case.k), chosen, x))
    return sides[0], sides[1]


# -- results of chosen bits --------------------------------------------------------------------------------------------


def _exact_sums(case: _Case, bits: Sequence[Sequence[int]], top: int) -> tuple[Numbers, Numbers]:
    """Return operands whose row i has the exact sum of 2**(top - bit), for each bit of `bits[i]`, times a sign.

    The products are powers of two at random k.
    """
    deepest = max(max(row) for row in bits)
    if deepest >= case.k:
        raise ValueError(f"K = {case.k} is too short: these sums have {deepest + 1} products")
    reach = top - case.lowest
    if deepest > reach:
        raise ValueError(
            f"formats={case.a.name}, {case.b.name}: these sums need products from 2**{top} down to 2**{top - deepest}; "
            f"the smallest is 2**{case.lowest}"
        )
    places = case.rng.permutation(case.k)[: deepest + 1]
    left, right = case.factors(top - np.arange(deepest + 1))
    a, b = np.zeros((case.m, case.k)), np.zeros((case.k, case.n))
    for i in range(case.m):
        row = list(bits[i % len(bits)])
        a[i, places[row]] = left[row]
    b[places] = right[:, np.newaxis] * case.signs(case.n)
    return a, b


def _random_bits(case: _Case, rows: int) -> list[list[int]]:
    """Return rows of bits of a random number of the result's precision: 0 is the leading bit."""
    p = case.result.precision
    return [[0, *(np.flatnonzero(case.rng.integers(0, 2, p - 1)) + 1).tolist()] for _ in range(rows)]


def _top(case: _Case, depth: int) -> int:
    """The exponent of the leading bit: near 1, as high as the range below it needs."""
    return max(min(case.highest, 0), min(case.highest, case.lowest + depth))


def _ties(case: _Case) -> tuple[Numbers, Numbers]:
    """Sums at the midpoints of neighbouring numbers of the result."""
    p = case.result.precision
    return _exact_sums(case, [[*row, p] for row in _random_bits(case, case.m)], _top(case, p))


def _double_rounding(case: _Case) -> tuple[Numbers, Numbers]:
    """Midpoints of the result with a far smaller bit: a rounding to any width between them makes a tie."""
    p = case.result.precision
    last = min(case.accumulator.precision + 1, case.highest - case.lowest, case.k - 1)
    if last <= p:
        raise ValueError(
            f"K = {case.k}, formats={case.a.name}, {case.b.name}: no bit fits below the midpoints of {case.result.name}"
        )
    rows = _random_bits(case, case.m)
    return _exact_sums(case, [[*row, p, p + 1 + i % (last - p)] for i, row in enumerate(rows)], _top(case, last))


def _saturation(case: _Case) -> tuple[Numbers, Numbers]:
    """Sums around the largest number of the result: just below, at it, at the midpoint beyond it, and far beyond it."""
    fmt = case.result
    p, trailing = fmt.precision, fmt.max_code & ((1 << fmt.trailing_bits) - 1)
    largest = [0, *(n for n in range(1, p) if trailing >> p - 1 - n & 1)]
    beside = [[*largest, p + 1], [*largest, p], [*largest, p, p + 1], largest, largest[:-1] or largest]
    rows = [[bit + 1 for bit in row] for row in beside] + [[0], [0, 1]]
    return _exact_sums(case, rows, fmt.emax + 1)


KINDS: dict[str, Callable[[_Case], tuple[Numbers, Numbers]]] = {
    "normal": _normal, "cancelling": _cancelling, "integers": _integers, "one_k": _one_k, "subnormal": _subnormal,
    "overflow": _overflow, "saturation": _saturation, "special": _special, "double_rounding": _double_rounding,
    "ties": _ties, "flushed": _flushed, "cancelling_parts": _cancelling_parts,
}  # fmt: skip
"""The kinds of inputs, by name."""


def hard_inputs(
    shape: Sequence[int], formats: FormatLike | Sequence[FormatLike], kind: str = "cancelling", *,
    accumulator: FormatLike = "fp32", result: FormatLike | None = None, seed: int = 0,
) -> HardInputs:  # fmt: skip
    """Return operands of a matrix product that show one kind of difference between kernels.

    Parameters
    ----------
    shape : (int, int, int)
        M, K and N.
    formats : format, or two
        The formats of a and of b.
    kind : str
        - "normal": normal(0, 1) numbers.
        - "cancelling": large products cancel, and rounding errors remain. Different orders and widths give different
          bits, in a result of few bits too.
        - "cancelling_parts": the second and third quarter of K cancel. They show the order in which a kernel adds parts
          of K.
        - "integers": all sums are exact, in every order. A difference is a bug, not a rounding.
        - "one_k": each result is one product. A k that is dropped or misread shows.
        - "subnormal": subnormal operands, and sums that are subnormal in the result.
        - "overflow": sums around the largest number, and orders that overflow on the way.
        - "saturation": sums at and beyond the largest number of the result: infinity, NaN, or the largest number.
        - "special": infinities, NaNs, zeros and extreme numbers among normal ones.
        - "double_rounding": sums beside midpoints, which a rounding to an intermediate width moves to the midpoint.
        - "ties": sums at midpoints of the result.
        - "flushed": partial sums that are subnormal in the accumulator, and subnormal operands times large ones. They
          show FTZ and DAZ.
    accumulator : format
        The accumulator that the inputs aim at.
    result : format, optional
        The format of the result. Default: the accumulator's.
    seed : int
        The seed of the random numbers.

    Returns
    -------
    HardInputs
        a (M, K) and b (K, N).

    Raises
    ------
    ValueError
        For an unknown kind, for a scale format, and if the formats or K have no such products.

    Examples
    --------
    FP8 products of normal numbers give the same BF16 results in two orders. Cancelling products do not.

    >>> import floatsim as fs
    >>> for kind in ("normal", "cancelling"):
    ...     a, b = hard_inputs((32, 128, 32), "e4m3", kind, result="bf16")
    ...     orders = (fs.matmul(a, b, accumulate=order, format="bf16") for order in ("fp32", "pairwise(fp32)"))
    ...     print(kind, fs.equal_shares(dict(zip("xy", orders)))[0, 1] < 1)
    normal False
    cancelling True
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"kind={kind!r} is not known; {name_hint(kind, KINDS)}")
    m, k, n = as_shape(shape)
    left, right = as_operand_formats(formats)
    acc = operand_format(accumulator, "accumulator")
    fmt = acc if result is None else operand_format(result, "result")
    rng = np.random.default_rng([as_index(seed, "seed", 0, 1 << 64), list(KINDS).index(kind)])
    case = _Case(m, k, n, left, right, acc, fmt, rng)
    overflow: OverflowLike = "infinity" if kind == "special" else "saturate_finite"
    operands = zip(KINDS[kind](case), (left, right), strict=True)
    return HardInputs(*(wrap(encode(x, side, overflow=overflow), side, False) for x, side in operands))
