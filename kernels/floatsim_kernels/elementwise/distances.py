"""Distances of two arrays of codes in ulps, counted in one pass: by classes, and around a percentile.

Blocks with equal bits need no more than a comparison. For each other block the distances are written to a buffer, and
a class of one byte for each. Vector comparisons count the classes in lanes of bytes. They also count the distances
below, at and between two bounds: a comparison of 64 elements gives a word of 64 bits, and one instruction counts its
ones.
"""

import functools

import numpy as np

from ..runtime.intrinsics import bit_length, ones, trailing_zeros, wide_vectors, zero_array
from ..runtime.jit import inline, kernel
from ..runtime.simd import GROUP, differ, equal_to, largest, less_than, occurrences

BLOCK = 2048
"""Elements of a block, a multiple of GROUP: the distances of a block of 32-bit codes stay in the first-level cache."""
FIELDS = ("sign", "magnitude", "flip", "keep", "limit")
SIGN, MAGNITUDE, FLIP, KEEP, LIMIT = range(5)
"""Masks of the sign and the magnitude. A code c is NaN where (c ^ flip) & keep is more than limit."""
EQUAL, FIRST = 0, 1
"""The first classes: equal bits; the distance 1. After FIRST follow the distances with n bits in d - 1, n = 1, 2 ..."""
TOTALS = 5
LARGEST, BELOW, AT_LOW, BETWEEN, AT_HIGH = range(TOTALS)
"""Totals: the largest distance without NaN; the number of distances below the lower bound, equal to it, between the
bounds, and equal to the upper bound. The last two are 0 where the bounds are equal."""

_largest, _occurrences = largest(BLOCK), occurrences(BLOCK)
_KINDS = {bits: getattr(np, f"uint{bits}") for bits in (8, 16, 32, 64)}


def last_classes(bits):
    """The last classes of codes of `bits` bits: zeros with other bits; NaNs with other bits; a NaN and a number.

    The last one is even: `_count_classes` counts pairs of classes, from an even one down.
    """
    return bits + 2, bits + 3, bits + 4


@functools.cache
def count(bits):
    """Return the kernel that counts the distances of codes of `bits` bits: 8, 16, 32 or 64.

    Its arguments: the codes of both arrays, a multiple of BLOCK of them; the parameters of FIELDS in their dtype; the
    lower and the upper bound, as uint64; an array of their dtype for the distances between the bounds, and one element
    more; the counts of the classes, int64; the totals, uint64. It adds to the counts and to the totals. Two NaNs are 0
    apart. The distance of a NaN and a number is the largest number of the dtype.
    """
    kind = _KINDS[bits]
    zeros, none = bits + 2, kind((1 << bits) - 1)

    @kernel
    def loop(a, b, params, low, high, between, counts, totals):
        wide_vectors()
        g = params[0], params[1], params[2], params[3], params[4]
        low, high, after = kind(low), kind(high), kind(kind(low) + kind(1))
        distances, largest = zero_array(BLOCK, kind), zero_array(BLOCK, kind)
        numbers = zero_array(BLOCK, np.uint8)  # of the classes
        below, at_low, inside, at_high = 0, 0, 0, 0
        for start in range(0, a.size, BLOCK):
            if _same(a, b, start):
                counts[EQUAL] += BLOCK
                if low:
                    below += BLOCK
                else:
                    at_low += BLOCK
                continue
            _measure(kind, zeros, none, a, b, start, g, distances, numbers, largest)
            _count_classes(numbers, counts)
            for group in range(0, BLOCK, GROUP):
                first = less_than(distances, group, low)
                below += ones(first)
                if low == high:
                    at_low += ones(equal_to(distances, group, low))
                    continue
                to_low = less_than(distances, group, after)
                at_low += ones(to_low ^ first)
                at_high += ones(equal_to(distances, group, high))
                lanes = less_than(distances, group, high) & ~to_low
                while True:  # most groups have none or one: the first one is stored without a branch
                    between[inside] = distances[group + (trailing_zeros(lanes) & GROUP - 1)]
                    inside += 1 if lanes else 0
                    lanes &= lanes - np.uint64(1)
                    if not lanes:
                        break
        totals[LARGEST] = max(totals[LARGEST], np.uint64(largest.max()))
        totals[BELOW] += np.uint64(below)
        totals[AT_LOW] += np.uint64(at_low)
        totals[BETWEEN] += np.uint64(inside)
        totals[AT_HIGH] += np.uint64(at_high)

    return loop


@inline
def _same(a, b, start):
    for group in range(0, BLOCK, GROUP):
        if differ(a, b, start + group):
            return False
    return True


@inline
def _is_nan(kind, c, g):
    return kind(kind(c ^ g[FLIP]) & g[KEEP]) > g[LIMIT]


@inline
def _measure(kind, zeros, none, a, b, start, g, distances, numbers, largest):
    """Write the distances and the classes of a block, and raise the largest distance of each place in a block.

    There are no branches: loops with branches are not vectorised. `none` is beyond every distance, because the sum of
    two finite magnitudes is smaller.
    """
    for i in range(BLOCK):
        place = np.uint64(start) + np.uint64(i)
        x, y = a[place], b[place]
        p, q = kind(x & g[MAGNITUDE]), kind(y & g[MAGNITUDE])
        apart = kind(p - q) if p > q else kind(q - p)
        d = kind(p + q) if kind(kind(x ^ y) & g[SIGN]) != kind(0) else apart
        left, right = _is_nan(kind, x, g), _is_nan(kind, y, g)
        number = np.uint8(bit_length(kind(d - kind(1))) + np.uint8(FIRST))
        number = np.uint8(zeros) if d == kind(0) else number
        number = np.uint8(zeros + 1) if left & right else number
        d = kind(0) if left | right else d
        largest[i] = d if d > largest[i] else largest[i]
        number = np.uint8(zeros + 2) if left ^ right else number
        numbers[i] = np.uint8(EQUAL) if x == y else number
        distances[i] = none if left ^ right else d


@inline
def _count_classes(numbers, counts):
    """Count the classes of a block: EQUAL, then two at a time, from the last one down to FIRST."""
    same, _ = _occurrences(numbers, np.uint8(EQUAL))
    counts[EQUAL] += same
    number, rest = (_largest(numbers) + 1) // 2 * 2, BLOCK - same
    while rest:
        upper, lower = _occurrences(numbers, np.uint8(number))
        counts[number] += upper
        counts[number - 1] += lower
        rest -= upper + lower
        number -= 2
