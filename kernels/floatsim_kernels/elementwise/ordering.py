"""Comparisons, minimum and maximum on packed codes of one format of at most 64 bits, in integers of their width.

A code becomes a key whose unsigned order is the order of the values: the mask of the sign plus or minus the magnitude.
Both zeros have the same key. `params` holds the fields of ORDER_FIELDS, in the dtype of the codes.
"""

import functools

import numpy as np

from ..runtime.intrinsics import wide_vectors
from ..runtime.jit import inline, kernel

ORDER_FIELDS = ("sign", "magnitude", "max_code", "infinity", "nan", "nan_result")
SIGN, MAGNITUDE, MAX_CODE, INFINITY, NAN, NAN_RESULT = range(6)
"""Masks of the sign and the magnitude; the codes of max, infinity and NaN, or of max where there is none; the code of a
NaN result."""

_KINDS = {bits: getattr(np, f"uint{bits}") for bits in (8, 16, 32, 64)}


@inline
def fields_of(g):
    return g[0], g[1], g[2], g[3], g[4], g[5]


@inline
def is_nan(kind, c, g):
    magnitude = kind(c & g[MAGNITUDE])
    return (magnitude > g[MAX_CODE] and magnitude != g[INFINITY]) or (c == g[NAN] and c != g[MAX_CODE])


@inline
def key(kind, c, g):
    """A number in the order of the values; the largest magnitude is less than the mask of the sign, if there is one."""
    magnitude = kind(c & g[MAGNITUDE])
    return kind(g[SIGN] - magnitude) if kind(c & g[SIGN]) != kind(0) else kind(g[SIGN] + magnitude)


@functools.cache
def extremum(bits, larger, number):
    """Return the kernel of minimum or maximum (IEEE 754-2019, 9.6) for codes in unsigned integers of `bits` bits.

    `number` selects minimumNumber or maximumNumber. -0 is less than +0.
    """
    kind = _KINDS[bits]

    @kernel
    def loop(a, b, out, params):
        wide_vectors()
        g = fields_of(params)
        for i in range(out.size):
            x, y = a[i], b[i]
            p, q = key(kind, x, g), key(kind, y, g)
            zero = kind(x & y) if larger else kind(x | y)  # of equal values only zeros differ, in their sign
            first = p > q if larger else p < q
            r = zero if p == q else (x if first else y)
            left, right = is_nan(kind, x, g), is_nan(kind, y, g)
            if number:
                r = y if left else (x if right else r)
                r = g[NAN_RESULT] if left and right else r
            else:
                r = g[NAN_RESULT] if left or right else r
            out[i] = r

    return loop


@functools.cache
def compare(bits):
    """Return the kernel that writes a bool for each pair of codes in unsigned integers of `bits` bits.

    `holds` says for which relations it is true: less, equal, greater, unordered.
    """
    kind = _KINDS[bits]

    @kernel
    def loop(a, b, out, params, holds):
        wide_vectors()
        g = fields_of(params)
        less, equal, greater, unordered = holds[0], holds[1], holds[2], holds[3]
        for i in range(out.size):
            x, y = a[i], b[i]
            p, q = key(kind, x, g), key(kind, y, g)
            r = less if p < q else (equal if p == q else greater)
            out[i] = unordered if is_nan(kind, x, g) or is_nan(kind, y, g) else r

    return loop
