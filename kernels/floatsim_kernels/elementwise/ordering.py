"""Comparisons, minimum and maximum on packed codes of one format of at most 64 bits, in integers of their width.

A code becomes a key whose order is the order of the values: the magnitude, or its negative. Both zeros have the same
key. Keys and the tests for NaN are compared as signed integers: AVX2 has no comparison of unsigned ones. `params` holds
the fields of ORDER_FIELDS, in the dtype of the codes.
"""

import functools

import numpy as np

from ..runtime.intrinsics import wide_vectors
from ..runtime.jit import inline, kernel

ORDER_FIELDS = ("sign", "magnitude", "flip", "nan_base", "nan_mask", "nan_limit", "nan_result")
SIGN, MAGNITUDE, FLIP, NAN_BASE, NAN_MASK, NAN_LIMIT, NAN_RESULT = range(7)
"""Masks of the sign and the magnitude; the bits that change so that magnitudes of all bits have the order of signed
integers; three numbers such that NaNs are the codes with (code - base) & mask > limit, as signed integers; the code of
a NaN result."""

_KINDS = {bits: (getattr(np, f"uint{bits}"), getattr(np, f"int{bits}")) for bits in (8, 16, 32, 64)}


@inline
def fields_of(g):
    return g[0], g[1], g[2], g[3], g[4], g[5], g[6]


@inline
def is_nan(kind, signed, c, g):
    return signed(kind(c - g[NAN_BASE]) & g[NAN_MASK]) > signed(g[NAN_LIMIT])


@inline
def key(kind, signed, c, g):
    """A signed integer in the order of the values."""
    magnitude = signed(kind(c & g[MAGNITUDE]) ^ g[FLIP])
    negative = signed(-1) if kind(c & g[SIGN]) != kind(0) else signed(0)
    return signed(signed(magnitude ^ negative) - negative)


@functools.cache
def extremum(bits, larger, number):
    """Return the kernel of minimum or maximum (IEEE 754-2019, 9.6) for codes in unsigned integers of `bits` bits.

    `number` selects minimumNumber or maximumNumber. -0 is less than +0.
    """
    kind, signed = _KINDS[bits]

    @kernel
    def loop(a, b, out, params):
        wide_vectors()
        g = fields_of(params)
        for i in range(out.size):
            x, y = a[i], b[i]
            p, q = key(kind, signed, x, g), key(kind, signed, y, g)
            zero = kind(x & y) if larger else kind(x | y)  # of equal values only zeros differ, in their sign
            first = p > q if larger else p < q
            r = zero if p == q else (x if first else y)
            left, right = is_nan(kind, signed, x, g), is_nan(kind, signed, y, g)
            if number:
                r = y if left else (x if right else r)
                r = g[NAN_RESULT] if left and right else r
            else:
                r = g[NAN_RESULT] if left or right else r
            out[i] = r

    return loop


@functools.cache
def compare(bits):
    """Return the kernel that writes 0 or 1 for each pair of codes in unsigned integers of `bits` bits, as uint8.

    `holds` says for which relations it is 1: less, equal, greater, unordered.
    """
    kind, signed = _KINDS[bits]

    @kernel
    def loop(a, b, out, params, holds):
        wide_vectors()
        g = fields_of(params)
        less, equal, greater, unordered = kind(holds[0]), kind(holds[1]), kind(holds[2]), kind(holds[3])
        for i in range(out.size):
            x, y = a[i], b[i]
            p, q = key(kind, signed, x, g), key(kind, signed, y, g)
            r = less if p < q else (equal if p == q else greater)  # in the codes' width, as the comparisons
            out[i] = np.uint8(unordered if is_nan(kind, signed, x, g) or is_nan(kind, signed, y, g) else r)

    return loop
