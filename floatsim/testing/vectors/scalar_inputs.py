"""Test vectors for operations of CUDA cores: a fixed set of operands for each, made from a seed and a counter.

Random words rarely decide a rounding: 2^20 of them contain 0 to 67 that tell two rounding modes apart. The vectors
therefore hold the midpoints between neighbouring codes of the result. The generator of random numbers is in
`floatsim.testing.vectors.dot_inputs`. A change of this file that changes a set must increase `SCALAR_GENERATOR`.
Captures store it, and the SHA-256 of their inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from floatsim._types import Codes
from floatsim.arrays.array.conversion import decode, encode
from floatsim.formats import FP64, FloatFormat
from floatsim.testing.vectors.dot_inputs import Draws

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ARITY", "SCALAR_GENERATOR", "scalar_inputs"]

SCALAR_GENERATOR = 1
ARITY = {"convert": 1, "sqrt": 1, "fma": 3}
"""The number of operands of an operation, if it is not 2."""

_MAGNITUDES = 1 << 13  # codes of a result whose midpoints are sampled: at least 32 of each of the 255 binades of FP32
_EVERY = 1 << 15  # up to so many magnitudes, the midpoints between all codes are in the set
_RANDOM = 2048  # random words of a conversion, and half as many random numbers in the range of a narrow result
_ROWS = 1024  # rows of each kind of arithmetic

Words: TypeAlias = "NDArray[np.uint64]"


@functools.lru_cache(maxsize=64)
def scalar_inputs(operation: str, source: FloatFormat, result: FloatFormat, seed: int = 0) -> tuple[Codes, ...]:
    """Return the operands of an operation, as codes of the source's format.

    Parameters
    ----------
    operation : str
        The emulator's name: "add", "fma", "convert".
    source, result : FloatFormat
        The formats of the operands and of the result.
    seed : int
        The seed of all random numbers.

    Returns
    -------
    tuple of (n,) codes
        One array for each operand, at most about 2^18 elements each. They are read-only.

        For conversions from formats of at most 16 bits: all codes. For other conversions: codes of the result, the
        midpoints between them and their neighbours in the source's format, of both signs; from FP64 also numbers that
        FP32 would round to a midpoint. They cover all codes of a result that has at most 2^15 magnitudes, if the
        source is FP32. Otherwise 2^13 magnitudes are sampled, the first and the last two of each binade among them.
        Then infinities, NaNs with each single bit of the payload, zeros, subnormals, and random words.

        For arithmetic on formats of at most 16 bits: all codes of the first operand with random other ones. For all
        arithmetic: random words, numbers of similar size, results at midpoints and beside them, results near the
        smallest and the largest numbers, infinities, NaNs and zeros.

    Examples
    --------
    >>> import floatsim as fs
    >>> (x,) = scalar_inputs("convert", fs.FP32, fs.E4M3)
    >>> 464.0 in fs.from_codes(x, "fp32").values  # the midpoint of 448 and the missing 480
    True
    """
    draw = Draws(seed, 63)  # a stream that the kinds of dot products do not use
    if operation == "convert":
        columns = [_conversion(source, result, draw)]
    else:
        arity = ARITY.get(operation, 2)
        parts = [kind(operation, source, arity, draw) for kind in _KINDS]
        if source.bits <= 16:
            every = [np.arange(1 << source.bits, dtype=np.uint64)]
            parts.insert(0, every + [_bits(source, len(every[0]), draw) for _ in range(arity - 1)])
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    codes = tuple(column.astype(source.code_dtype) for column in columns)
    for x in codes:
        x.flags.writeable = False
    return codes


# -- conversions -------------------------------------------------------------------------------------------------------


def _conversion(source: FloatFormat, result: FloatFormat, draw: Draws) -> Words:
    if source.bits <= 16:
        return np.arange(1 << source.bits, dtype=np.uint64)
    random = [_bits(source, _RANDOM, draw)]
    if result.trailing_bits < source.trailing_bits:
        random.append(_within(source, result, draw))
        every = result.max_code < _EVERY and source != FP64
        magnitudes = np.arange(result.max_code + 1) if every else _sampled(result, draw)
        positive = _around_midpoints(source, result, magnitudes)
    else:
        positive = _sampled(source, draw).astype(np.uint64)
    minus = np.uint64(source.sign_mask)
    special = _special(source)
    return np.concatenate([positive, positive | minus, special, special | minus, *random])


def _within(source: FloatFormat, result: FloatFormat, draw: Draws) -> Words:
    """Return random numbers from a quarter of the result's smallest number up to twice its largest number."""
    low, high = encode(np.array([result.smallest_subnormal / 4, 2 * result.max]), source).astype(np.int64).tolist()
    codes = low + draw.below(min(high, source.max_code) - low + 1, _RANDOM // 2)
    signs = draw.below(2, len(codes)).astype(np.uint64) * np.uint64(source.sign_mask)
    within: Words = codes.astype(np.uint64) | signs
    return within


def _sampled(fmt: FloatFormat, draw: Draws) -> NDArray[np.int64]:
    """Return magnitudes of all binades as codes: the first two, the last two, and random ones between them."""
    binades, size = fmt.max_code + 1 >> fmt.trailing_bits, 1 << fmt.trailing_bits
    each = min(size, _MAGNITUDES // binades)
    inside = draw.below(size, binades, each)
    inside[:, :4] = 0, 1, size - 2, size - 1
    codes: NDArray[np.int64] = np.unique(np.arange(binades)[:, np.newaxis] * size + inside)
    return codes


def _around_midpoints(source: FloatFormat, result: FloatFormat, magnitudes: NDArray[np.int64]) -> Words:
    """Return codes of the result, the midpoints above them, and the neighbours of both, as codes of the source.

    The number above the largest one has its distance to the number below, as if the format went on.
    """
    below, above = (_values(codes, result) for codes in (magnitudes, magnitudes + 1))
    last = magnitudes == result.max_code
    above[last] = 2 * below[last] - _values(magnitudes[last] - 1, result)
    middle = (below + above) / 2  # exact: FP64 has at least two bits more than every result
    codes, middles = (encode(x, source).astype(np.int64) for x in (below, middle))
    steps = [-1, 0, 1]
    if source == FP64:  # a quarter of a unit of FP32's last place away: FP32 would round to the midpoint
        steps += [-(1 << 27), 1 << 27]
    around = [middles + step for step in steps]
    if result.bits <= 8:
        around += [codes - 1, codes + 1]
    found = np.concatenate([codes, *around])
    kept: Words = np.unique(found[(found >= 0) & (found <= source.max_code)]).astype(np.uint64)
    return kept


def _values(codes: NDArray[np.int64], fmt: FloatFormat) -> NDArray[np.float64]:
    values: NDArray[np.float64] = decode(codes.astype(fmt.code_dtype), fmt)
    return values


def _special(fmt: FloatFormat) -> Words:
    """Return positive zero, infinity, NaNs, single bits, and the numbers at the ends of normal numbers, as codes."""
    infinity, smallest = fmt.infinity_code, 1 << fmt.trailing_bits
    assert infinity is not None
    bits = [1 << i for i in range(fmt.trailing_bits)]
    payloads = [*bits, *(bit - 1 for bit in bits[1:]), smallest - 1, smallest - 2, smallest // 2 + 1]
    numbers = [0, *bits, smallest - 1, smallest, smallest + 1, fmt.max_code, infinity]
    return np.array([*numbers, *(infinity + payload for payload in payloads)], np.uint64)


# -- arithmetic --------------------------------------------------------------------------------------------------------


def _bits(fmt: FloatFormat, n: int, draw: Draws) -> Words:
    words: Words = draw.words(n) & np.uint64((1 << fmt.bits) - 1)
    return words


def _numbers(fmt: FloatFormat, exponents: NDArray[np.int64], draw: Draws, significant: int | None = None) -> Words:
    """Return numbers of these exponents and random signs. Of their bits only the first `significant` may be set."""
    n, t = len(exponents), fmt.trailing_bits
    trailing = draw.words(n) & np.uint64((1 << t) - 1)
    if significant is not None:
        trailing &= ~np.uint64((1 << max(0, t + 1 - significant)) - 1)
    field = np.clip(exponents + fmt.bias, 0, fmt.emax + fmt.bias).astype(np.uint64)
    signs = draw.below(2, n).astype(np.uint64) * np.uint64(fmt.sign_mask)
    codes: Words = signs | field << np.uint64(t) | trailing
    return codes


def _near(fmt: FloatFormat, n: int, draw: Draws, centre: int, spread: int) -> Words:
    return _numbers(fmt, centre - spread + draw.below(2 * spread + 1, n), draw)


def _random(operation: str, fmt: FloatFormat, arity: int, draw: Draws) -> list[Words]:
    return [_bits(fmt, _ROWS, draw) for _ in range(arity)]


def _similar(operation: str, fmt: FloatFormat, arity: int, draw: Draws) -> list[Words]:
    """Return numbers near 1, so that products and sums have all distances up to the precision."""
    return [_near(fmt, _ROWS, draw, 0, min(fmt.precision // 2 + 1, fmt.emax // 3)) for _ in range(arity)]


def _tiny(operation: str, fmt: FloatFormat, arity: int, draw: Draws) -> list[Words]:
    """Return operands whose result is near the smallest normal number, or subnormal."""
    low, small = fmt.emin, fmt.precision
    centres = {
        "multiply": [low // 2, low - low // 2], "fma": [low // 2, low - low // 2, low],
        "divide": [low + fmt.emax // 2, fmt.emax // 2],
    }  # fmt: skip
    spread = min(small, fmt.emax // 3)
    return [_near(fmt, _ROWS, draw, centre, spread) for centre in centres.get(operation, [low] * arity)]


def _huge(operation: str, fmt: FloatFormat, arity: int, draw: Draws) -> list[Words]:
    """Return operands whose result is near the largest number, or beyond it."""
    top = fmt.emax
    centres = {
        "multiply": [top // 2, top - top // 2], "fma": [top // 2, top - top // 2, top - 1],
        "divide": [top // 2, top // 2 - top],
    }  # fmt: skip
    return [_near(fmt, _ROWS, draw, centre, 2) for centre in centres.get(operation, [top - 1] * arity)]


def _beside(x: Words, draw: Draws) -> Words:
    """Move two of three codes to a neighbour."""
    moved: Words = (x.astype(np.int64) + draw.below(3, len(x)) - 1).astype(np.uint64)
    return moved


def _ties(operation: str, fmt: FloatFormat, arity: int, draw: Draws) -> list[Words]:
    """Return operands whose result is a midpoint, or beside one."""
    n, p = 2 * _ROWS, fmt.precision
    if operation == "sqrt":  # no root is a midpoint: squares, and their neighbours
        exponents = draw.below(2 * min(fmt.emax // 2, 100), n) - min(fmt.emax // 2, 100)
        roots = decode(_numbers(fmt, exponents // 2, draw, p // 2).astype(fmt.code_dtype), fmt)
        return [_beside(encode(roots * roots, fmt).astype(np.uint64), draw)]
    if operation == "divide":  # subnormal results: an odd number, divided by a power of two
        low = fmt.emin + draw.below(3, n)
        return [_numbers(fmt, low, draw), _numbers(fmt, 1 + draw.below(p, n), draw, 1)]
    exponents = draw.below(min(fmt.emax - p, 100), n)
    if operation == "multiply":  # two factors with p + 1 bits together
        return _factors(fmt, exponents, draw)
    large = _numbers(fmt, exponents, draw)
    if operation == "fma":  # such a product with a small term; and half a unit of the last place of the third operand
        x, y = _factors(fmt, exponents, draw)
        z = _numbers(fmt, exponents - p - draw.below(p, n), draw)
        odd = np.arange(n) % 2 == 1
        halves = _numbers(fmt, exponents - p, draw, 1), _numbers(fmt, np.zeros(n, np.int64), draw, 1)
        return [np.where(odd, _beside(halves[0], draw), x), np.where(odd, halves[1], y), np.where(odd, large, z)]
    return [large, _beside(_numbers(fmt, exponents - p, draw, 1), draw)]


def _factors(fmt: FloatFormat, exponents: NDArray[np.int64], draw: Draws) -> list[Words]:
    """Return two numbers whose product has one or two bits more than the format holds. The last bits are set."""
    p, n = fmt.precision, len(exponents)
    first = p // 2 + 1
    sides = []
    for bits, exponent in ((first, exponents // 2), (p + 1 - first, exponents - exponents // 2)):
        last = np.uint64(1 << fmt.trailing_bits + 1 - bits)
        sides.append(_numbers(fmt, exponent, draw, bits) | last)
    assert len(sides[0]) == n
    return sides


def _extreme(operation: str, fmt: FloatFormat, arity: int, draw: Draws) -> list[Words]:
    """Return infinities, NaNs, zeros, single bits and extreme numbers, in random pairs or triples."""
    special = _special(fmt)
    chosen = special[draw.below(len(special), arity, _ROWS)]
    few = np.array([0, 1, 1 << fmt.trailing_bits, fmt.max_code, fmt.infinity_code, (fmt.infinity_code or 0) + 1])
    chosen = np.where(draw.below(2, arity, _ROWS) == 0, chosen, few[draw.below(len(few), arity, _ROWS)])
    signs = draw.below(2, arity, _ROWS).astype(np.uint64) * np.uint64(fmt.sign_mask)
    return list(chosen.astype(np.uint64) | signs)


_Kind: TypeAlias = Callable[[str, FloatFormat, int, Draws], "list[Words]"]
_KINDS: tuple[_Kind, ...] = (_random, _similar, _ties, _tiny, _huge, _extreme)
