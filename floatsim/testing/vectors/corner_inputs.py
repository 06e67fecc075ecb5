"""Operands of any format for tests of hardware: corner cases first, then hard cases and random numbers.

The rows come in blocks. Each block is made from the seed and its number, so the first rows of a larger set are the
rows of a smaller one. The generator of random numbers is in `floatsim.testing.vectors.dot_inputs`. A change of this
file that changes a set must increase `CORNER_GENERATOR`, which the digests of the tests pin.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from floatsim._types import Codes
from floatsim.arrays.array.conversion import decode, encode
from floatsim.formats import FloatFormat
from floatsim.testing.vectors.dot_inputs import Draws

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BLOCK", "CORNER_GENERATOR", "corner_codes", "draws", "interleaved", "operand_blocks"]

CORNER_GENERATOR = 2
BLOCK = 1 << 15
"""Rows of a block."""
_STREAM = 62  # of `Draws`: neither that of dot products (0 to 5) nor that of scalar inputs (63)
_SEEDS = 1 << 32  # blocks of one seed
_CORNERS_OF_THREE = 14  # corner codes of each operand of an fma: 14**3 = 2744 rows

Words: TypeAlias = "NDArray[np.uint64]"
_Kind: TypeAlias = Callable[[str, "tuple[FloatFormat, ...]", FloatFormat, int, Draws], "list[Words] | None"]


def draws(seed: int, block: int) -> Draws:
    """Return the random numbers of a block."""
    return Draws(seed * _SEEDS + block, _STREAM)


def corner_codes(fmt: FloatFormat) -> list[int]:
    """Return the codes of zeros, infinities, NaNs, 1, and the ends of the subnormal and normal numbers.

    Parameters
    ----------
    fmt : FloatFormat
        Any format.

    Returns
    -------
    list of int
        Without duplicates. The most important ones come first: zeros, the largest and smallest numbers, infinities
        and NaNs, of both signs.

    Examples
    --------
    >>> import floatsim as fs
    >>> [f"{code:02X}" for code in corner_codes(fs.E4M3)[:10]]
    ['00', '80', '7E', 'FE', '01', '81', '08', '88', '7F', 'FF']
    >>> [float(x) for x in fs.from_codes(np.array(corner_codes(fs.E2M1), np.uint8), "e2m1").values[:6]]
    [0.0, -0.0, 6.0, -6.0, 0.5, -0.5]
    """
    t, largest = fmt.trailing_bits, fmt.max_code
    one = int(encode(1.0, fmt))
    magnitudes = [0, largest, 1, 1 << t]
    if fmt.infinity_code is not None:
        magnitudes.append(fmt.infinity_code)
    if fmt.has_nan:
        assert fmt.canonical_nan is not None
        magnitudes.append(fmt.canonical_nan)
    magnitudes += [(1 << t) - 1, one]
    if fmt.infinity_code is not None:  # IEEE: the smallest and the largest payload of signalling and quiet NaNs
        magnitudes += [code for code in (fmt.infinity_code + 1, (1 << fmt.bits - 1) - 1) if code <= fmt.magnitude_mask]
    magnitudes += [(1 << t) + 1, one + 1, one - 1, largest - 1, 2]
    every = (1 << fmt.bits) - 1
    codes = [code | sign for code in magnitudes if 0 <= code <= every for sign in (0, fmt.sign_mask)]
    return list(dict.fromkeys(codes))


def interleaved(parts: Sequence[Sequence[Words]]) -> list[Words]:
    """Mix kinds of rows in proportion to their numbers.

    >>> (mixed,) = interleaved([[np.arange(4)], [np.arange(10, 12)]])
    >>> mixed.tolist()
    [0, 10, 1, 2, 11, 3]
    """
    kept = [part for part in parts if len(part[0])]
    keys = [np.arange(len(part[0])) / len(part[0]) for part in kept]
    order = np.argsort(np.concatenate(keys), kind="stable")
    return [np.concatenate(column)[order] for column in zip(*kept, strict=True)]


def operand_blocks(
    operation: str, sources: tuple[FloatFormat, ...], result: FloatFormat, seed: int = 0
) -> Iterator[list[Codes]]:
    """Yield blocks of operands without an end: first all pairs of corner codes, then hard cases and random numbers.

    Parameters
    ----------
    operation : str
        The name of the operation: "add", "fma", "convert", "exp".
    sources : tuple of FloatFormat
        The format of each operand.
    result : FloatFormat
        The format of the result.
    seed : int
        The seed of all random numbers.

    Yields
    ------
    list of (n,) codes
        One array for each operand. The first block has the corner codes: all of them for one operand, all pairs of two,
        and all triples of the first ones for three. The other blocks have ties and their neighbours, results near the
        smallest and the largest numbers, cancellation, numbers near 1, and random codes.

    Examples
    --------
    >>> import floatsim as fs
    >>> a, b = next(operand_blocks("add", (fs.E4M3, fs.E4M3), fs.E4M3))
    >>> len(a) == len(corner_codes(fs.E4M3)) ** 2, [hex(code) for code in b[:4]]
    (True, ['0x0', '0x80', '0x7e', '0xfe'])
    """
    corners = [corner_codes(fmt)[: _CORNERS_OF_THREE if len(sources) > 2 else None] for fmt in sources]
    grid = np.array(list(itertools.product(*corners)), np.uint64)
    yield [column.astype(fmt.code_dtype) for column, fmt in zip(grid.T, sources, strict=True)]
    for block in itertools.count():
        draw = draws(seed, block)
        shares = [(kind, share * BLOCK // 16) for kind, share in _KINDS]
        parts = [part for kind, n in shares if (part := kind(operation, sources, result, n, draw)) is not None]
        mixed = interleaved(parts)
        yield [column.astype(fmt.code_dtype) for column, fmt in zip(mixed, sources, strict=True)]


# -- numbers -----------------------------------------------------------------------------------------------------------


def _bits(fmt: FloatFormat, n: int, draw: Draws) -> Words:
    words: Words = draw.words(n) & np.uint64((1 << fmt.bits) - 1)
    return words


def _numbers(fmt: FloatFormat, exponents: NDArray[np.int64], draw: Draws, significant: int | None = None) -> Words:
    """Return finite numbers of these exponents and random signs. Of their bits only the first `significant` are set."""
    n, t = len(exponents), fmt.trailing_bits
    trailing = draw.words(n) & np.uint64((1 << t) - 1)
    if significant is not None:
        trailing &= ~np.uint64((1 << max(0, min(t, t + 1 - significant))) - 1)
    field = np.clip(exponents + fmt.bias, 0, fmt.emax + fmt.bias).astype(np.uint64)
    codes: Words = np.minimum(field << np.uint64(t) | trailing, np.uint64(fmt.max_code))
    signs = draw.below(2, n).astype(np.uint64) * np.uint64(fmt.sign_mask)
    signed: Words = codes | np.where(codes > 0, signs, np.uint64(0))  # the code of -0 is NaN in some formats
    return signed


def _between(low: int, high: int, n: int, draw: Draws) -> NDArray[np.int64]:
    """Return integers from low to high; those nearest to low if there are none."""
    found: NDArray[np.int64] = low + draw.below(max(1, high - low + 1), n)
    return found


def _near(fmt: FloatFormat, n: int, draw: Draws, centre: int, spread: int) -> Words:
    return _numbers(fmt, _between(centre - spread, centre + spread, n, draw), draw)


def _beside(x: Words, fmt: FloatFormat, draw: Draws) -> Words:
    """Move two of three codes to a neighbour. No code becomes special."""
    moved = (x & np.uint64(fmt.magnitude_mask)).astype(np.int64) + draw.below(3, len(x)) - 1
    finite = np.clip(moved, 0, fmt.max_code).astype(np.uint64) | x & np.uint64(fmt.sign_mask)
    beside: Words = np.where(finite == np.uint64(fmt.sign_mask), x, finite)
    return beside


# -- kinds of rows -----------------------------------------------------------------------------------------------------


def _random(
    operation: str, sources: tuple[FloatFormat, ...], result: FloatFormat, n: int, draw: Draws
) -> list[Words] | None:
    return [_bits(fmt, n, draw) for fmt in sources]


def _similar(
    operation: str, sources: tuple[FloatFormat, ...], result: FloatFormat, n: int, draw: Draws
) -> list[Words] | None:
    """Return numbers near 1, so that products and sums have all distances up to the precision."""
    return [_near(fmt, n, draw, 0, min(fmt.precision // 2 + 1, max(1, fmt.emax // 3))) for fmt in sources]


def _cancelling(
    operation: str, sources: tuple[FloatFormat, ...], result: FloatFormat, n: int, draw: Draws
) -> list[Words] | None:
    """Return operands of which the last is near the first, with random signs."""
    if len(sources) < 2:
        return None
    a, *others = (_near(fmt, n, draw, 0, max(1, fmt.emax // 2)) for fmt in sources)
    last = sources[-1]
    if last != sources[0] or not last.signed:
        return [a, *others]
    signs = draw.below(2, n).astype(np.uint64) * np.uint64(last.sign_mask)
    near = _beside(a, last, draw)
    others[-1] = np.where(near > 0, near ^ signs, near)
    if len(sources) == 3:  # a product a * 1 that the last operand cancels
        others[0] = np.full(n, int(encode(1.0, sources[1])), np.uint64)
    return [a, *others]


_TINY_AT = {"multiply": (0.5, 0.5), "fma": (0.5, 0.5, 1.0), "divide": (1.0, 0.0)}
"""The exponents of operands whose result is near the smallest number, as shares of the smallest exponent."""
_HUGE_AT = {"multiply": (0.5, 0.5), "fma": (0.5, 0.5, 1.0), "divide": (1.0, 0.0)}


def _tiny(
    operation: str, sources: tuple[FloatFormat, ...], result: FloatFormat, n: int, draw: Draws
) -> list[Words] | None:
    """Return operands whose result is near the smallest normal number, or subnormal."""
    shares = _TINY_AT.get(operation, (1.0,) * len(sources))
    return [
        _near(fmt, n, draw, round(share * result.emin), min(fmt.precision, max(1, fmt.emax // 3)))
        for fmt, share in zip(sources, shares, strict=True)
    ]


def _huge(
    operation: str, sources: tuple[FloatFormat, ...], result: FloatFormat, n: int, draw: Draws
) -> list[Words] | None:
    """Return operands whose result is near the largest number, or beyond it."""
    shares = _HUGE_AT.get(operation, (1.0,) * len(sources))
    return [
        _near(fmt, n, draw, round(share * result.emax), 1 if share == 1 else 2)
        for fmt, share in zip(sources, shares, strict=True)
    ]


def _ties(
    operation: str, sources: tuple[FloatFormat, ...], result: FloatFormat, n: int, draw: Draws
) -> list[Words] | None:
    """Return operands whose result is half way between two numbers, or beside that; None for other operations."""
    maker = _TIES.get(operation)
    return None if maker is None else maker(sources, result, n, draw)


def _ties_of_conversion(
    sources: tuple[FloatFormat, ...], result: FloatFormat, n: int, draw: Draws
) -> list[Words] | None:
    """Return the midpoints of the result's numbers, the largest one's midpoint among them, and their neighbours.

    The number above the largest one has its distance to the number below, as if the format went on.
    """
    (fmt,) = sources
    codes = draw.below(result.max_code + 1, n)
    codes[:: max(1, n // 16)] = result.max_code
    below, above = (
        np.asarray(decode(np.minimum(x, result.max_code).astype(result.code_dtype), result)) for x in (codes, codes + 1)
    )
    last = codes == result.max_code
    if result.max_code:
        above[last] = 2 * below[last] - np.asarray(decode(np.array(result.max_code - 1, result.code_dtype), result))
    signs = np.where(draw.below(2, n) == 0, 1.0, -1.0 if fmt.signed else 1.0)
    middles = encode((below + above) / 2 * signs, fmt, overflow="saturate_finite").astype(np.uint64)
    return [_beside(middles, fmt, draw)]


def _ties_of_sum(sources: tuple[FloatFormat, ...], result: FloatFormat, n: int, draw: Draws) -> list[Words] | None:
    a, b = sources
    p = result.precision
    exponents = _between(min(a.emax, b.emin + p), min(a.emax - 1, b.emax + p), n, draw)
    return [_numbers(a, exponents, draw), _beside(_numbers(b, exponents - p, draw, 1), b, draw)]


def _factors(sources: Sequence[FloatFormat], result: FloatFormat, n: int, draw: Draws) -> list[Words]:
    """Return two numbers whose product has one bit more than the result holds, and whose last bits are set."""
    p = result.precision
    first = p // 2 + 1
    codes = []
    for fmt, bits in zip(sources, (first, p + 1 - first), strict=True):
        x = _near(fmt, n, draw, 0, max(1, fmt.emax // 3))
        place = max(0, fmt.trailing_bits + 1 - bits)
        kept = x & ~np.uint64((1 << place) - 1)
        codes.append(np.where((x & np.uint64(fmt.magnitude_mask)) > 0, kept | np.uint64(1 << place), x))
    for i, fmt in enumerate(sources):
        codes[i] = np.where((codes[i] & np.uint64(fmt.magnitude_mask)) > fmt.max_code, np.uint64(0), codes[i])
    return codes


def _ties_of_product(sources: tuple[FloatFormat, ...], result: FloatFormat, n: int, draw: Draws) -> list[Words] | None:
    x, y = _factors(sources, result, n, draw)
    return [x, _beside(y, sources[1], draw)]


def _ties_of_fma(sources: tuple[FloatFormat, ...], result: FloatFormat, n: int, draw: Draws) -> list[Words] | None:
    """Return products at a midpoint with a small term; and half a unit of the last place of the third operand."""
    a, b, c = sources
    x, y = _factors((a, b), result, n, draw)
    p = result.precision
    small = _numbers(c, _between(-2 * p, -p, n, draw), draw)
    exponents = _between(min(c.emax, a.emin + p), min(c.emax - 1, a.emax + p), n, draw)
    large, half = _numbers(c, exponents, draw), _beside(_numbers(a, exponents - p, draw, 1), a, draw)
    one = _numbers(b, np.zeros(n, np.int64), draw, 1)
    odd = np.arange(n) % 2 == 1
    return [np.where(odd, half, x), np.where(odd, one, y), np.where(odd, large, small)]


def _ties_of_quotient(sources: tuple[FloatFormat, ...], result: FloatFormat, n: int, draw: Draws) -> list[Words] | None:
    """Return an odd number divided by a power of two, with a subnormal quotient. No other quotient is a midpoint."""
    a, b = sources
    powers = _between(1, result.precision, n, draw)
    return [_numbers(a, result.emin + _between(0, 2, n, draw), draw), _numbers(b, powers, draw, 1)]


def _ties_of_root(sources: tuple[FloatFormat, ...], result: FloatFormat, n: int, draw: Draws) -> list[Words] | None:
    """Return squares and their neighbours. No root is a midpoint."""
    (fmt,) = sources
    most = max(1, fmt.emax // 2 - 1)
    roots = _numbers(fmt, _between(-most, most, n, draw), draw, max(1, fmt.precision // 2))
    values = np.abs(np.asarray(decode(roots.astype(fmt.code_dtype), fmt)))
    return [_beside(encode(values * values, fmt, overflow="saturate_finite").astype(np.uint64), fmt, draw)]


def _ties_of_integer(sources: tuple[FloatFormat, ...], result: FloatFormat, n: int, draw: Draws) -> list[Words] | None:
    """Return odd numbers divided by 2, and their neighbours: midpoints of two integers."""
    (fmt,) = sources
    t = fmt.trailing_bits
    exponents = _between(-1, t - 1, n, draw)
    last = (t - 1 - exponents).astype(np.uint64)  # the place of one half; t: the hidden bit is one half
    trailing = draw.words(n) & np.uint64((1 << t) - 1)
    trailing = (trailing >> last | np.uint64(1)) << last & np.uint64((1 << t) - 1)
    field = np.clip(exponents + fmt.bias, 0, fmt.emax + fmt.bias).astype(np.uint64)
    codes: Words = np.minimum(field << np.uint64(t) | trailing, np.uint64(fmt.max_code))
    signs = draw.below(2, n).astype(np.uint64) * np.uint64(fmt.sign_mask)
    signed: Words = codes | np.where(codes > 0, signs, np.uint64(0))
    return [_beside(signed, fmt, draw)]


_TIES: dict[str, Callable[[tuple[FloatFormat, ...], FloatFormat, int, Draws], list[Words] | None]] = {
    "convert": _ties_of_conversion, "add": _ties_of_sum, "subtract": _ties_of_sum, "multiply": _ties_of_product,
    "fma": _ties_of_fma, "divide": _ties_of_quotient, "sqrt": _ties_of_root,
    **dict.fromkeys(("rint", "floor", "ceil", "trunc"), _ties_of_integer),
}  # fmt: skip
_KINDS: tuple[tuple[_Kind, int], ...] = (
    (_ties, 4), (_tiny, 2), (_huge, 2), (_cancelling, 2), (_similar, 3), (_random, 3),
)  # fmt: skip
"""The kinds of rows of a block, with their shares in sixteenths."""
