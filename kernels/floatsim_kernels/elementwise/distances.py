"""Distances of two arrays of codes in ulps, counted in one pass: the number of pairs for each distance.

Blocks whose bits are all equal are found by a comparison of 64-bit words. In blocks with distances of at most 16,
vector comparisons count. In all other blocks, each distance is an index of a table of counts. Neighbouring elements
count in different tables, so that a frequent distance does not wait for its own last count.

Codes of at most 16 bits have a count for each distance; 8-bit codes have one for each pair of distances of neighbours.
Wider codes have a count for each distance of at most 2048, and 1024 for each power of two beyond. `window` counts the
distances of one of these ranges in a second pass.
"""

import functools

import numpy as np

from ..runtime.intrinsics import leading_zeros, wide_vectors
from ..runtime.jit import inline, kernel
from .ordering import INFINITY, MAGNITUDE, MAX_CODE, NAN, fields_of, key

BLOCK = 1024
"""Elements of a block: the distances of one block stay in the first-level cache."""
TABLES = 2
"""Tables of counts, which neighbouring elements use in turn."""
SPARE = 64
"""Places after the counts for elements that are not counted: many, because one would wait for its own last count."""
FEW = 16
"""The largest distance of a block that vector comparisons count."""
WINDOW_BITS = 21
"""The second pass counts 2**WINDOW_BITS distances one by one: the widest range of 32-bit codes."""
GROUP = 64
"""Elements that the second pass compares with its range at a time."""
TOTALS = 5
EQUAL, ZEROS, NANS, UNORDERED, LARGEST = range(TOTALS)
"""Totals: pairs with equal bits; pairs of +0 and -0; pairs of NaNs with other bits; pairs with one NaN; the largest
distance without NaN."""
STEPS = 10
"""Wide codes have 2**STEPS counts for each power of two."""

_KINDS = {bits: (getattr(np, f"uint{bits}"), 1 << bits - 1) for bits in (8, 16, 32, 64)}


def counts(bits):
    """The number of counts of one table for codes of `bits` bits: 8, 16, 32 or 64. SPARE places follow."""
    return 1 << 16 if bits <= 16 else (bits - STEPS + 1) << STEPS


@functools.cache
def count(bits):
    """Return the kernel that counts all distances of codes of `bits` bits: 8, 16, 32 or 64.

    Its arguments: the codes of both arrays, the same memory as uint64 words, the parameters of ORDER_FIELDS, the tables
    of counts, uint32 of shape (TABLES, counts(bits) + SPARE), and the totals. The index of the distance d is:
    - 16 bits: d. Pairs with one NaN have the last index.
    - 8 bits: d + 256 e for neighbours of the distances d and e, or with e = 0 for d alone.
    - 32 and 64 bits: d - 1 up to 2048, then (s << STEPS) + (d - 1 >> s), where d - 1 has STEPS + 1 + s bits. The last
      index also has the pairs with one NaN.
    """
    kind, half = _KINDS[bits]
    base, none, direct = kind(half), kind(2 * half - 1), bits <= 16
    size = counts(bits)
    few = np.uint16 if bits <= 16 else np.uint32  # counts up to the length of a block

    @kernel
    def loop(a, b, words_a, words_b, params, tables, totals):
        wide_vectors()
        g = fields_of(params)
        even, odd = tables[0], tables[1]
        distances, places = np.empty(BLOCK, kind), np.empty(BLOCK, np.uint32)
        for start in range(0, a.size, BLOCK):
            n = min(BLOCK, a.size - start)
            if n == BLOCK and _same_words(words_a, words_b, start * a.itemsize // 8, n * a.itemsize // 8):
                totals[EQUAL] += np.uint64(n)
                continue
            x, y = a[start : start + n], b[start : start + n]
            _measure(kind, base, none, x, y, g, distances)
            most = _largest(kind, none, distances, n)
            _total(kind, few, none, most, x, y, g, distances, totals)
            if most <= kind(FEW) and most != none:
                for d in range(1, np.int64(most) + 1):
                    even[d if direct else d - 1] += np.uint32(_occurrences(few, kind(d), distances, n))
            elif bits == 8:
                if n & 1:
                    even[distances[n - 1]] += np.uint32(1)
                pairs = distances.view(np.uint16)
                _indices(size, pairs, places, n // 2)
                _tally(places, n // 2, even, odd)
            elif direct:
                _indices(size, distances, places, n)
                _tally(places, n, even, odd)
            else:
                _ranges(kind, size, distances, places, n)
                _tally(places, n, even, odd)

    return loop


@functools.cache
def window(bits):
    """Return the kernel that counts the distances from `low` on, 2**shift to a place, for codes of 32 or 64 bits."""
    kind, half = _KINDS[bits]
    base, none = kind(half), kind(2 * half - 1)

    @kernel
    def loop(a, b, words_a, words_b, params, low, span, shift, found):
        wide_vectors()
        g = fields_of(params)
        distances = np.empty(BLOCK, kind)
        for start in range(0, a.size, BLOCK):
            n = min(BLOCK, a.size - start)
            if n == BLOCK and _same_words(words_a, words_b, start * a.itemsize // 8, n * a.itemsize // 8):
                continue
            _measure(kind, base, none, a[start : start + n], b[start : start + n], g, distances)
            for first in range(0, n, GROUP):
                group = distances[first : min(first + GROUP, n)]
                if _within(kind, group, kind(low), kind(span)):
                    for d in group:
                        place = kind(d - kind(low))
                        if place <= kind(span):
                            found[np.int64(np.uint64(place) >> shift)] += np.uint32(1)

    return loop


@inline
def _within(kind, distances, low, span):
    found = kind(0)
    for i in range(distances.size):
        found |= kind(kind(distances[i] - low) <= span)
    return found != kind(0)


@inline
def _same_words(a, b, first, words):
    x, y, different = a[first : first + words], b[first : first + words], np.uint64(0)
    for i in range(x.size):
        different |= x[i] ^ y[i]
    return different == np.uint64(0)


@inline
def _is_nan(kind, c, g):
    """`ordering.is_nan` without branches: loops with branches are not vectorised."""
    magnitude = kind(c & kind(g[MAGNITUDE]))
    beyond = (magnitude > kind(g[MAX_CODE])) & (magnitude != kind(g[INFINITY]))
    return beyond | ((c == kind(g[NAN])) & (c != kind(g[MAX_CODE])))


@inline
def _measure(kind, base, none, a, b, g, distances):
    """Write the distances of a block: 0 for NaNs of both arrays, `none` for a NaN and a number.

    `none` is beyond every distance: the sum of two finite magnitudes is smaller.
    """
    for i in range(a.size):
        x, y = kind(a[i]), kind(b[i])
        p, q = key(kind, base, x, g), key(kind, base, y, g)
        d = kind(p - q) if p > q else kind(q - p)
        left, right = _is_nan(kind, x, g), _is_nan(kind, y, g)
        d = kind(0) if left & right else d
        distances[i] = none if left ^ right else d


@inline
def _largest(kind, none, distances, n):
    most = kind(0)
    for i in range(n):
        most = distances[i] if distances[i] > most else most
    return most


@inline
def _total(kind, few, none, most, a, b, g, distances, totals):
    """Add a block to the totals."""
    n = a.size
    same, near = np.int64(_equal_codes(few, a, b)), np.int64(_occurrences(few, kind(0), distances, n))
    nans = np.int64(_nan_pairs(kind, few, a, b, g)) if near != same else 0
    totals[EQUAL] += np.uint64(same)
    totals[NANS] += np.uint64(nans)
    totals[ZEROS] += np.uint64(near - same - nans)
    if most == none:
        totals[UNORDERED] += np.uint64(_occurrences(few, none, distances, n))
        most = kind(0)
        for i in range(n):
            d = distances[i] if distances[i] != none else kind(0)
            most = d if d > most else most
    totals[LARGEST] = max(totals[LARGEST], np.uint64(most))


@inline
def _equal_codes(few, a, b):
    found = few(0)
    for i in range(a.size):
        found = few(found + few(a[i] == b[i]))
    return found


@inline
def _nan_pairs(kind, few, a, b, g):
    """The number of NaNs in both arrays with different codes."""
    found = few(0)
    for i in range(a.size):
        x, y = kind(a[i]), kind(b[i])
        found = few(found + few((x != y) & _is_nan(kind, x, g) & _is_nan(kind, y, g)))
    return found


@inline
def _occurrences(few, value, distances, n):
    found = few(0)
    for i in range(n):
        found = few(found + few(distances[i] == value))
    return found


@inline
def _indices(size, distances, places, n):
    """Write the distances as indices of the counts. Distances of 0 have spare places."""
    for i in range(n):
        d = np.uint32(distances[i])
        places[i] = d if d != np.uint32(0) else np.uint32(size + (i & SPARE - 1))


@inline
def _ranges(kind, size, distances, places, n):
    """Write the indices of the counts of wide codes. Distances of 0 have spare places."""
    for i in range(n):
        d = np.uint64(kind(distances[i] - kind(1)))
        shift = np.uint64(63 - STEPS) - np.uint64(leading_zeros(d | np.uint64(2 << STEPS) - np.uint64(1)))
        place = np.uint32((shift << np.uint64(STEPS)) + (d >> shift))
        places[i] = place if distances[i] != kind(0) else np.uint32(size + (i & SPARE - 1))


@inline
def _tally(places, n, even, odd):
    for i in range(0, n - 1, 2):
        even[places[i]] += np.uint32(1)
        odd[places[i + 1]] += np.uint32(1)
    if n & 1:
        even[places[n - 1]] += np.uint32(1)
