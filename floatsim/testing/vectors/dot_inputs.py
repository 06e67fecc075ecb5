"""Test vectors for matrix instructions: a fixed set of dot products for each, made from a seed and a counter.

The random words are SplitMix64 (Steele, Lea and Flood 2014) of a counter. Normal numbers are sums of twelve uniform
integers. So the set is the same on every machine and with every version of NumPy. A change of
this file that changes the set must increase `GENERATOR`. Captures store it, and the SHA-256 of their inputs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from floatsim._types import Codes
from floatsim.arrays.array.conversion import encode
from floatsim.formats import FloatFormat
from floatsim.testing.vectors.dot_unit import ScaleCodes, Unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GENERATOR", "ROWS", "SHARES", "Draws", "Inputs", "digest_of", "input_set"]

GENERATOR = 1
ROWS = 20_000
SHARES = {"normal": 2, "bits": 3, "cancelling": 2, "edge": 1, "subnormal": 1, "special": 1}
"""The kinds of rows in their order, with their shares in tenths."""

Words: TypeAlias = "NDArray[np.uint64]"


class Inputs(NamedTuple):
    """Codes of a batch of dot products: a and b (n, K), c (n,), and scales if the instruction takes them."""

    a: Codes
    b: Codes
    c: Codes
    scales: ScaleCodes | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of a, b, c and the scales, each as little-endian bytes."""
        return digest_of((self.a, self.b, self.c, *(self.scales or ())))


def digest_of(arrays: Iterable[Codes]) -> str:
    """Return the SHA-256 of arrays of codes, each as little-endian bytes, in hexadecimal digits."""
    digest = hashlib.sha256()
    for x in arrays:
        digest.update(np.ascontiguousarray(x).astype(x.dtype.newbyteorder("<"), copy=False).tobytes())
    return digest.hexdigest()


def input_set(unit: Unit, rows: int = ROWS, seed: int = 0) -> Inputs:
    """Return the test vectors of a unit.

    Parameters
    ----------
    unit : Unit
        The unit to test.
    rows : int
        The number of dot products, at least 10.
    seed : int
        The seed of all random numbers.

    Returns
    -------
    Inputs
        In this order: 2/10 of the rows with normal(0, 1) numbers, 3/10 with random bits, 2/10 in which products cancel,
        1/10 in which a small product decides the rounding of the sum, 1/10 with subnormal numbers and their neighbours,
        1/10 with infinities, NaN, zeros and extreme numbers.

    Raises
    ------
    ValueError
        If `rows` is less than 10.

    Examples
    --------
    >>> import floatsim as fs
    >>> from floatsim.testing.vectors.dot_unit import named_unit
    >>> x = input_set(named_unit("ampere", "mma.m16n8k8", fs.FP16, fs.FP16), rows=100)
    >>> x.a.shape, x.digest[:16]
    ((100, 8), '9754cab28801c381')
    """
    if rows < 10:
        raise ValueError(f"rows must be at least 10, not {rows}")
    ends = [round(rows * share / 10) for share in np.cumsum(list(SHARES.values())).tolist()]
    parts, start = [], 0
    for number, (kind, end) in enumerate(zip(SHARES, ends, strict=True)):
        parts.append(_KINDS[kind](unit, end - start, Draws(seed, number)))
        start = end
    columns = [np.concatenate(column) for column in zip(*(part[:3] for part in parts), strict=True)]
    scales = None
    if unit.scales:
        sides = zip(*(part.scales for part in parts if part.scales), strict=True)
        scales = ScaleCodes(*(np.concatenate(side) for side in sides))
    return Inputs(columns[0], columns[1], columns[2], scales)


# -- random numbers ----------------------------------------------------------------------------------------------------

_GOLDEN, _MIX1, _MIX2 = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))

_EVERY_SECOND = np.uint64(0x0000FFFF0000FFFF)  # two of a word's four 16-bit integers


def _mixed(z: Words) -> Words:
    """Mix the bits of each word, in place."""
    for shift, factor in ((30, _MIX1), (27, _MIX2)):
        z ^= z >> np.uint64(shift)
        z *= factor
    z ^= z >> np.uint64(31)
    return z


@lru_cache(maxsize=16)
def _counters(n: int) -> Words:
    """Return 1 to n times the increment of SplitMix64."""
    counters = np.arange(1, n + 1, dtype=np.uint64) * _GOLDEN
    counters.setflags(write=False)
    return counters


class Draws:
    """The random numbers of one kind of rows. Each call uses a stream of its own."""

    def __init__(self, seed: int, kind: int) -> None:
        self.key = _mixed(np.array([seed * 64 + kind & (1 << 64) - 1], np.uint64) * _GOLDEN + _GOLDEN)
        self.calls = 0

    def words(self, *shape: int) -> Words:
        self.calls += 1
        key = _mixed(self.key + np.uint64(self.calls * int(_GOLDEN) & (1 << 64) - 1))
        return _mixed(key + _counters(math.prod(shape))).reshape(shape)

    def below(self, n: int, *shape: int) -> NDArray[np.int64]:
        """Return integers from 0 to n - 1."""
        return (self.words(*shape) >> np.uint64(33)).astype(np.int64) % n

    def normal(self, *shape: int) -> NDArray[np.float64]:
        """Return nearly normal(0, 1) numbers: sums of twelve uniform 16-bit integers, centred and scaled by 2^-16."""
        words = self.words(*shape, 3)
        halves = words & _EVERY_SECOND
        halves += (words >> np.uint64(16)) & _EVERY_SECOND
        pairs = halves[..., 0] + halves[..., 1] + halves[..., 2]  # two sums of six quarters, of 32 bits each
        sums: NDArray[np.float64] = ((pairs & np.uint64(0xFFFFFFFF)) + (pairs >> np.uint64(32))).astype(np.float64)
        sums -= 6 * 65535
        sums += (self.words(*shape) >> np.uint64(32)) / 2**32  # further bits, for precise formats; all steps are exact
        sums /= 65536
        return sums


# -- kinds of rows -----------------------------------------------------------------------------------------------------


def _codes(x: NDArray[np.float64], fmt: FloatFormat) -> Codes:
    codes: Codes = encode(x, fmt, overflow="saturate_finite")
    return codes


def _scales(unit: Unit, n: int, draw: Draws, any_bits: bool = False) -> ScaleCodes | None:
    """Return scales from 2^-4 up to 2^5: powers of two, in E4M3 also numbers between them; or random codes."""
    if unit.scales is None:
        return None
    fmt, shape = unit.scales.format, (n, unit.scale_blocks)
    sides = []
    for _ in range(2):
        if any_bits:
            sides.append((draw.words(*shape) & np.uint64((1 << fmt.bits) - 1)).astype(fmt.code_dtype))
        else:
            x = np.ldexp(1 + draw.below(8, *shape) / 8 * (fmt.trailing_bits > 0), draw.below(9, *shape) - 4)
            sides.append(_codes(x, fmt))
    return ScaleCodes(*sides)


def _normal(unit: Unit, n: int, draw: Draws) -> Inputs:
    a, b = (_codes(draw.normal(n, unit.k), fmt) for fmt in (unit.a, unit.b))
    return Inputs(a, b, _codes(4 * draw.normal(n), unit.output), _scales(unit, n, draw))


def _any_bits(fmt: FloatFormat, draw: Draws, *shape: int) -> Codes:
    """Return random codes. Every second row has no infinities and NaNs."""
    codes = draw.words(*shape) & np.uint64((1 << fmt.bits) - 1)
    if fmt.has_nan:
        finite = np.uint64(fmt.magnitude_mask & ~(1 << fmt.trailing_bits) | fmt.sign_mask)
        special = (codes & np.uint64(fmt.magnitude_mask)) > np.uint64(fmt.max_code)
        codes[1::2] = np.where(special[1::2], codes[1::2] & finite, codes[1::2])
    return codes.astype(fmt.code_dtype)


def _wide(unit: Unit, n: int, draw: Draws) -> NDArray[np.float64]:
    """Return numbers of D whose exponents cover the exponents of the products."""
    low = max(unit.a.emin + unit.b.emin, unit.output.emin)
    high = min(unit.a.emax + unit.b.emax, unit.output.emax - 3)
    return np.ldexp(draw.normal(n), low + draw.below(high - low + 1, n))


def _bits(unit: Unit, n: int, draw: Draws) -> Inputs:
    a, b = (_any_bits(fmt, draw, n, unit.k) for fmt in (unit.a, unit.b))
    c = _any_bits(unit.output, draw, n)
    c = np.where(draw.below(2, n) == 0, c, _codes(_wide(unit, n, draw), unit.output))
    return Inputs(a, b, c, _scales(unit, n, draw, any_bits=True))


def _cancelling(unit: Unit, n: int, draw: Draws) -> Inputs:
    """Return rows whose second half of products negates the first, except for the last bit of b in one of eight."""
    half = unit.k // 2
    spread = min(8, unit.a.emax - 1, unit.b.emax - 1)
    a, b = (_codes(np.ldexp(draw.normal(n, unit.k), draw.below(spread + 1, n, unit.k) - spread // 2), fmt)
            for fmt in (unit.a, unit.b))  # fmt: skip
    if half:
        a[:, half : 2 * half] = a[:, :half] ^ a.dtype.type(unit.a.sign_mask)
        b[:, half : 2 * half] = b[:, :half] ^ (draw.below(8, n, half) == 0).astype(b.dtype)
    small = np.ldexp(draw.normal(n), -draw.below(24, n))
    return Inputs(a, b, _codes(small, unit.output), _scales(unit, n, draw))


def _tiny(fmt: FloatFormat, draw: Draws, *shape: int) -> Codes:
    """Return subnormal numbers, and normal numbers of the least exponent."""
    return (draw.words(*shape) & np.uint64(fmt.sign_mask | (1 << fmt.trailing_bits + 1) - 1)).astype(fmt.code_dtype)


def _subnormal(unit: Unit, n: int, draw: Draws) -> Inputs:
    """Return rows of tiny a, and of tiny and any b in turn. c is tiny, or in each third row of the products' size."""
    a, b = _tiny(unit.a, draw, n, unit.k), _tiny(unit.b, draw, n, unit.k)
    b[1::2] = _any_bits(unit.b, draw, n, unit.k)[1::2]
    c = _tiny(unit.output, draw, n)
    c[2::3] = _codes(_wide(unit, n, draw), unit.output)[2::3]
    return Inputs(a, b, c, _scales(unit, n, draw))


def _powers(exponent: NDArray[np.int64], a: FloatFormat, b: FloatFormat) -> tuple[Codes, Codes]:
    """Return factors of 2**exponent as codes of the two formats; factors of zero if there are none."""
    ranges = [(fmt.emin - fmt.trailing_bits * fmt.has_subnormals, fmt.emax) for fmt in (a, b)]
    left = np.clip(exponent // 2, *ranges[0])
    right = np.clip(exponent - left, *ranges[1])
    left = np.clip(exponent - right, *ranges[0])
    exact = left + right == exponent
    return _codes(np.where(exact, np.ldexp(1.0, left), 0.0), a), _codes(np.ldexp(1.0, right), b)


def _edge(unit: Unit, n: int, draw: Draws) -> Inputs:
    """Return rows with a large product, half a unit in the last place of D in a product or in c, and a small product.

    The small product has either sign, and lies 4 to 39 bits below the large one. In every second row, half a unit is
    missing, and the sum lies near D's smallest numbers if formats or scales reach them.
    """
    d, below = unit.output, 4 + draw.below(36, n)
    lowest = d.emin - d.trailing_bits
    top = min(unit.a.emax + unit.b.emax, d.emax - 1) - draw.below(4, n)
    base = np.zeros(n, np.int64)
    if unit.scales:
        reach = (1 if unit.scales.format.is_scale else 2) * min(unit.scales.format.emax, 8)
        base = reach - draw.below(8, n)
        base[::2] = (lowest - 1 + draw.below(3, n) - top)[::2]
    else:
        top[::2] = (lowest - 1 + draw.below(3, n))[::2]
    exponents = np.full((n, unit.k), 1 << 20)  # a zero
    first = draw.below(unit.k, n)
    stride = np.where(draw.below(2, n) == 0, 1, max(1, unit.k // 3))  # neighbours, or a third of k apart
    positions = [(first + step * stride) % unit.k for step in range(3)]
    rows, half = np.arange(n), np.maximum(top - d.trailing_bits, lowest - base) - 1
    several = unit.scale_blocks > 1  # then the scales are small, not the product
    exponents[rows, positions[0]] = top
    exponents[rows, positions[1]] = np.where((draw.below(2, n) == 0) & (rows % 2 == 1) & (not several), half, 1 << 20)
    exponents[rows, positions[2]] = np.where(several, top - draw.below(3, n), top - below)
    a, b = _powers(exponents, unit.a, unit.b)
    minus = a.dtype.type(unit.a.sign_mask)
    a[rows, positions[2]] ^= (draw.below(2, n) == 0).astype(a.dtype) * minus
    c = np.where((draw.below(2, n) == 0) & (rows % 2 == 1), np.ldexp(1.0, np.clip(half + base, -1074, 1023)), 0.0)
    sign = draw.below(2, n)
    a ^= sign[:, np.newaxis].astype(a.dtype) * minus
    c = np.where(sign, -c, c)
    scales = None
    if unit.scales:
        blocks = np.repeat((base - (below if several else 0))[:, np.newaxis], unit.scale_blocks, axis=1)
        blocks[rows, positions[0] // unit.scales.every] = base
        scales = ScaleCodes(*_powers(blocks, unit.scales.format, unit.scales.format))
    return Inputs(a, b, _codes(c, d), scales)


def _extremes(fmt: FloatFormat) -> list[int]:
    """Return the codes of zeros, of extreme numbers, and of infinities and NaNs if the format has them."""
    codes = {0, 1, 1 << fmt.trailing_bits, (1 << fmt.trailing_bits) - 1, fmt.max_code}
    if fmt.has_nan:
        assert fmt.canonical_nan is not None
        codes |= {fmt.canonical_nan & fmt.magnitude_mask or fmt.canonical_nan}
    if fmt.infinity_code is not None:
        codes |= {fmt.infinity_code, fmt.infinity_code | 1}  # also a signalling NaN
    return sorted({code | sign for code in codes for sign in (0, fmt.sign_mask)})


def _special(unit: Unit, n: int, draw: Draws) -> Inputs:
    """Return normal rows with extreme values: one of 2 K elements of a and b, and one of eight c."""
    plain = _normal(unit, n, draw)
    sides = []
    for x, fmt, every in ((plain.a, unit.a, 2 * unit.k), (plain.b, unit.b, 2 * unit.k), (plain.c, unit.output, 8)):
        extremes = np.array(_extremes(fmt), fmt.code_dtype)
        chosen = extremes[draw.below(len(extremes), *x.shape)]
        sides.append(np.where(draw.below(every, *x.shape) == 0, chosen, x))
    return Inputs(sides[0], sides[1], sides[2], plain.scales)


_KINDS: Mapping[str, Callable[[Unit, int, Any], Inputs]] = {
    "normal": _normal, "bits": _bits, "cancelling": _cancelling, "edge": _edge, "subnormal": _subnormal,
    "special": _special,
}  # fmt: skip
