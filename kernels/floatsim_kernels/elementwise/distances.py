"""Distances of two arrays of codes in ulps, counted in one pass: the number of pairs for each distance.

Blocks whose bits are all equal are found by a comparison of 64-bit words. In blocks with distances of at most 16,
vector comparisons count. All other blocks are counted element by element.
"""

import functools

import numpy as np

from ..runtime.intrinsics import leading_zeros, wide_vectors
from ..runtime.jit import inline, kernel
from .ordering import INFINITY, MAGNITUDE, MAX_CODE, NAN, fields_of, key

BLOCK = 1024
"""Elements of a block: the distances of one block (8 KiB) stay in the first-level cache."""
WINDOW = 4096
"""The number of distances that are counted one by one."""
CLASSES = 66
"""Classes of larger distances: class n has the distances d with d - 1 of n bits."""
FEW = 16
"""The largest distance of a block that vector comparisons count."""
EQUAL, ZEROS, NANS, UNORDERED, LARGEST = range(5)
"""Totals: pairs with equal bits; pairs of +0 and -0; pairs of NaNs with other bits; pairs with one NaN; the largest
distance without NaN."""

_KINDS = {32: (np.uint32, np.uint32(1 << 31)), 64: (np.uint64, np.uint64(1 << 63))}


@functools.cache
def count(bits):
    """Return the kernel for codes of at most `bits` bits.

    Its arguments: the codes of both arrays, the same memory as uint64 words, the parameters of ORDER_FIELDS, the first
    distance of the window, the shift that maps distances to places of the window, and the counts: of the window, of the
    classes, and the totals.
    """
    kind, base = _KINDS[bits]
    unordered = kind(2**bits - 1)  # beyond every distance: the sum of two finite magnitudes is smaller

    @kernel
    def loop(a, b, words_a, words_b, params, low, shift, window, classes, totals):
        wide_vectors()
        g = fields_of(params)
        distances = np.empty(BLOCK, kind)
        words = BLOCK * a.itemsize // 8
        first_pass = low == np.uint64(0) and shift == np.uint64(0)
        for start in range(0, a.size, BLOCK):
            n = min(BLOCK, a.size - start)
            if n == BLOCK:
                first = start * a.itemsize // 8
                different = np.uint64(0)
                for i in range(first, first + words):
                    different |= words_a[i] ^ words_b[i]
                if different == np.uint64(0):
                    totals[EQUAL] += np.uint64(n)
                    continue
            x, y = a[start : start + n], b[start : start + n]
            _measure(kind, base, unordered, x, y, g, distances)
            most, same, nans = _largest(kind, distances, n), _equal_codes(kind, x, y), kind(0)
            near = _occurrences(kind, kind(0), distances, n)
            if near != same:
                nans = _nan_pairs(kind, x, y, g)
            totals[EQUAL] += np.uint64(same)
            totals[NANS] += np.uint64(nans)
            totals[ZEROS] += np.uint64(near) - np.uint64(same) - np.uint64(nans)
            if most <= kind(FEW) and first_pass:
                for d in range(1, np.int64(most) + 1):
                    window[d] += np.uint64(_occurrences(kind, kind(d), distances, n))
                totals[LARGEST] = max(totals[LARGEST], np.uint64(most))
                continue
            for i in range(n):
                d = np.uint64(distances[i])
                if first_pass and d < np.uint64(WINDOW):
                    window[np.int64(d)] += np.uint64(1)
                elif distances[i] == unordered:
                    totals[UNORDERED] += np.uint64(1)
                else:
                    totals[LARGEST] = max(totals[LARGEST], d)
                    if first_pass:
                        classes[np.int64(64) - leading_zeros(d - np.uint64(1))] += np.uint64(1)
                    elif d >= low and (d - low) >> shift < np.uint64(WINDOW):
                        window[np.int64((d - low) >> shift)] += np.uint64(1)

    return loop


@inline
def _is_nan(kind, c, g):
    """`ordering.is_nan` without branches: loops with branches are not vectorised."""
    magnitude = kind(c & g[MAGNITUDE])
    return ((magnitude > g[MAX_CODE]) & (magnitude != g[INFINITY])) | ((c == g[NAN]) & (c != g[MAX_CODE]))


@inline
def _measure(kind, base, unordered, a, b, g, distances):
    """Write the distances of a block. NaNs of both arrays are 0 apart."""
    for i in range(a.size):
        x, y = kind(a[i]), kind(b[i])
        p, q = key(kind, base, x, g), key(kind, base, y, g)
        d = kind(p - q) if p > q else kind(q - p)
        left, right = _is_nan(kind, x, g), _is_nan(kind, y, g)
        d = kind(0) if left & right else d
        distances[i] = unordered if left ^ right else d


@inline
def _largest(kind, distances, n):
    most = kind(0)
    for i in range(n):
        most = distances[i] if distances[i] > most else most
    return most


@inline
def _equal_codes(kind, a, b):
    found = kind(0)
    for i in range(a.size):
        found = kind(found + kind(a[i] == b[i]))
    return found


@inline
def _nan_pairs(kind, a, b, g):
    """The number of NaNs in both arrays with different codes."""
    found = kind(0)
    for i in range(a.size):
        x, y = kind(a[i]), kind(b[i])
        found = kind(found + kind((x != y) & _is_nan(kind, x, g) & _is_nan(kind, y, g)))
    return found


@inline
def _occurrences(kind, value, distances, n):
    found = kind(0)
    for i in range(n):
        found = kind(found + kind(distances[i] == value))
    return found
