"""The counter-based random number generator of stochastic rounding."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GOLDEN", "MIX", "Site", "draw", "draw_key", "draw_word", "draws", "split_seed", "split_seeds"]


class Site(enum.IntEnum):
    """The rounding sites with random bits of their own, beside the terms of a leaf.

    Each site splits the seed of the call by its number. Two sites with one number would use the same random bits for
    different roundings, which is a bias.
    """

    RESULT = 1
    """The conversion of a sum to the result's format."""
    LAST = 2
    """The addition of c after the sum."""
    OUTER = 3
    """The outer accumulation of a composite."""
    START = 4
    """The conversion of c to the start value of a sum."""
    ALPHA = 5
    """The product alpha * acc."""
    BETA = 6
    """The product beta * c."""
    SCALED_SUM = 7
    """The sum alpha * acc + beta * c."""
    MEAN = 8
    """The mean of a variance."""
    QUOTIENT = 9
    """The division of a sum by the number of its terms."""
    DIFFERENCES = 10
    """The differences from the mean."""
    PARTS = 16
    """The first part of a composite; part n has the number 16 + n."""


_M32, _M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def _mix64(z: int) -> int:
    """Return the output function of SplitMix64 (Steele, Lea and Flood 2014), a bijection of 64-bit integers."""
    z = (z ^ z >> 30) * MIX[0] & _M64
    z = (z ^ z >> 27) * MIX[1] & _M64
    return z ^ z >> 31


GOLDEN = 0x9E3779B97F4A7C15
"""The increment of SplitMix64: 2**64 divided by the golden ratio, as an odd integer.

>>> from floatsim import E4M3, reference
>>> hex(reference.GOLDEN)
'0x9e3779b97f4a7c15'
"""
MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""The two factors of the output function of SplitMix64.

>>> from floatsim import E4M3, reference
>>> [hex(factor) for factor in reference.MIX]
['0xbf58476d1ce4e5b9', '0x94d049bb133111eb']
"""


def split_seed(seed: int, n: int) -> int:
    """Return the n-th output of SplitMix64 with this seed.

    >>> from floatsim import reference
    >>> hex(reference.split_seed(0, 1))
    '0xe220a8397b1dcdaf'
    """
    return _mix64(seed + n * GOLDEN & _M64)


def split_seeds(seeds: NDArray[np.uint64], n: NDArray[np.int64] | int) -> NDArray[np.uint64]:
    """Return `split_seed` of every element.

    >>> split_seeds(np.array([7], np.uint64), 3).item() == split_seed(7, 3)
    True
    """
    with np.errstate(over="ignore"):
        z = seeds + np.asarray(n).astype(np.uint64) * np.uint64(GOLDEN)
        for shift, factor in zip((30, 27), MIX, strict=True):
            z = (z ^ z >> np.uint64(shift)) * np.uint64(factor)
    split: NDArray[np.uint64] = z ^ z >> np.uint64(31)
    return split


def draw_key(seed: int, site: int, block: int) -> int:
    """Return the 64-bit key of 2**32 consecutive elements: SplitMix64's mixer over seed, site and index >> 32.

    >>> from floatsim import reference
    >>> hex(reference.draw_key(seed=1, site=0, block=0))
    '0xa385ef24fa6a992'
    """
    key = split_seed(seed, 1)
    return split_seed(split_seed(key, site), block)


def draw_word(key: int, index: int) -> int:
    """Return 32 bits for one element: Wellons' triple32 hash of the index, with the key added before two rounds.

    >>> from floatsim import reference
    >>> key = reference.draw_key(1, 0, 0)
    >>> [reference.draw_word(key, i) >> 24 for i in range(4)]
    [51, 154, 150, 68]
    """
    x = (index + (key & _M32)) & _M32
    x = (x ^ x >> 17) * 0xED5AD4BB & _M32
    x = ((x ^ x >> 11) + (key >> 32)) * 0xAC4C1B51 & _M32
    x = (x ^ x >> 15) * 0x31848BAB & _M32
    return x ^ x >> 14


def draw(seed: int, index: int, random_bits: int = 32, site: int = 0) -> int:
    """Return the `random_bits`-bit integer of the stochastic rounding of element `index` at rounding site `site`.

    >>> [draw(1, i, 8) for i in range(4)]
    [51, 154, 150, 68]
    """
    block, low = index >> 32, index & _M32
    word = draw_word(draw_key(seed, 2 * site, block), low)
    if random_bits <= 32:
        return word >> (32 - random_bits)
    more = draw_word(draw_key(seed, 2 * site + 1, block), low)
    return (word << 32 | more) >> (64 - random_bits)


def draws(seed: int, offset: int, count: int, random_bits: int) -> NDArray[np.uint32]:
    """Return the draws of the elements offset, offset + 1, ..., each of `random_bits` bits, 1 to 32.

    >>> draws(1, 0, 4, 8).tolist()
    [51, 154, 150, 68]
    """
    index = np.arange(count, dtype=np.uint64) + np.uint64(offset)
    blocks, low = index >> np.uint64(32), index.astype(np.uint32)
    out = np.empty(count, np.uint32)
    for block in np.unique(blocks).tolist():
        key, here = draw_key(seed, 0, block), blocks == block
        x = low[here] + np.uint32(key & 0xFFFFFFFF)  # modulo 2**32, as the lines below
        x = (x ^ x >> np.uint32(17)) * np.uint32(0xED5AD4BB)
        x = ((x ^ x >> np.uint32(11)) + np.uint32(key >> 32)) * np.uint32(0xAC4C1B51)
        x = (x ^ x >> np.uint32(15)) * np.uint32(0x31848BAB)
        out[here] = x ^ x >> np.uint32(14)
    return out >> np.uint32(32 - random_bits)
