"""Loops over arrays of codes: any format, any rounding, with events, one element after the other.

All arrays are one-dimensional, contiguous and of equal length. Codes are unsigned integers, `events` is uint8. `draws`
holds (seed, offset) as uint64: element i takes the draw of index offset + i. Draws of another generator follow these
two, one for each element.
"""

import numpy as np

from ..rounding.integer import RANDOM_BITS, ROUNDING, STOCHASTIC, U0, format_fields, rounding_fields
from ..rounding.random import draw
from ..runtime.jit import inline, kernel
from . import scalar_ops as op

SITE = np.uint64(0)
SEED_FIELDS = 2


@inline
def random_of(m, draws, i):
    """The random bits of element i, 0 for deterministic rounding modes."""
    if m[ROUNDING] == STOCHASTIC:
        if draws.size > SEED_FIELDS:
            return draws[SEED_FIELDS + i]
        return draw(draws[0], SITE, draws[1] + np.uint64(i), m[RANDOM_BITS])
    return U0


@kernel
def add(a, fa, b, fb, negate, out, f, rounding_params, draws, events):
    fa, fb, f, m = format_fields(fa), format_fields(fb), format_fields(f), rounding_fields(rounding_params)
    for i in range(out.size):
        code, happened = op.add(a[i], fa, b[i], fb, negate, f, m, random_of(m, draws, i))
        out[i] = code
        events[i] = happened


@kernel
def multiply(a, fa, b, fb, out, f, rounding_params, draws, events):
    fa, fb, f, m = format_fields(fa), format_fields(fb), format_fields(f), rounding_fields(rounding_params)
    for i in range(out.size):
        code, happened = op.multiply(a[i], fa, b[i], fb, f, m, random_of(m, draws, i))
        out[i] = code
        events[i] = happened


@kernel
def divide(a, fa, b, fb, out, f, rounding_params, draws, events):
    fa, fb, f, m = format_fields(fa), format_fields(fb), format_fields(f), rounding_fields(rounding_params)
    for i in range(out.size):
        code, happened = op.divide(a[i], fa, b[i], fb, f, m, random_of(m, draws, i))
        out[i] = code
        events[i] = happened


@kernel
def sqrt(a, fa, out, f, rounding_params, draws, events):
    fa, f, m = format_fields(fa), format_fields(f), rounding_fields(rounding_params)
    for i in range(out.size):
        code, happened = op.sqrt(a[i], fa, f, m, random_of(m, draws, i))
        out[i] = code
        events[i] = happened


@kernel
def fma(a, fa, b, fb, c, fc, out, f, rounding_params, draws, events):
    fa, fb, fc, f, m = (
        format_fields(fa),
        format_fields(fb),
        format_fields(fc),
        format_fields(f),
        rounding_fields(rounding_params),
    )
    for i in range(out.size):
        code, happened = op.fma(a[i], fa, b[i], fb, c[i], fc, f, m, random_of(m, draws, i))
        out[i] = code
        events[i] = happened


@kernel
def remainder(a, fa, b, fb, to_nearest, out, f, rounding_params, draws, events):
    fa, fb, f, m = format_fields(fa), format_fields(fb), format_fields(f), rounding_fields(rounding_params)
    for i in range(out.size):
        code, happened = op.remainder(a[i], fa, b[i], fb, to_nearest, f, m, random_of(m, draws, i))
        out[i] = code
        events[i] = happened


@kernel
def extremum(a, fa, b, fb, larger, number, out, f, rounding_params, draws, events):
    fa, fb, f, m = format_fields(fa), format_fields(fb), format_fields(f), rounding_fields(rounding_params)
    for i in range(out.size):
        code, happened = op.extremum(a[i], fa, b[i], fb, larger, number, f, m, random_of(m, draws, i))
        out[i] = code
        events[i] = happened


@kernel
def convert(a, fa, out, f, rounding_params, draws, events):
    fa, f, m = format_fields(fa), format_fields(f), rounding_fields(rounding_params)
    for i in range(out.size):
        code, happened = op.convert(a[i], fa, f, m, random_of(m, draws, i))
        out[i] = code
        events[i] = happened


@kernel
def rint(a, fa, rounding, exact, out, f, rounding_params, draws, events):
    fa, f, m = format_fields(fa), format_fields(f), rounding_fields(rounding_params)
    for i in range(out.size):
        code, happened = op.rint(a[i], fa, rounding, exact, f, m, random_of(m, draws, i))
        out[i] = code
        events[i] = happened


@kernel
def scalb(a, fa, n, out, f, rounding_params, draws, events):
    fa, f, m = format_fields(fa), format_fields(f), rounding_fields(rounding_params)
    for i in range(out.size):
        code, happened = op.scalb(a[i], fa, n[i], f, m, random_of(m, draws, i))
        out[i] = code
        events[i] = happened


@kernel
def to_integer(a, fa, low, high, out, rounding_params, draws, events):
    """out: uint64, integers in two's complement; low, high: magnitudes of the ends of the range."""
    fa, m = format_fields(fa), rounding_fields(rounding_params)
    for i in range(out.size):
        value, happened = op.to_integer(a[i], fa, low, high, m, random_of(m, draws, i))
        out[i] = value
        events[i] = happened


@kernel
def from_integer(negative, magnitude, out, f, rounding_params, draws, events):
    """negative: uint8, magnitude: uint64."""
    f, m = format_fields(f), rounding_fields(rounding_params)
    for i in range(out.size):
        code, happened = op.from_integer(np.int64(negative[i]), magnitude[i], f, m, random_of(m, draws, i))
        out[i] = code
        events[i] = happened


@kernel
def compare(a, fa, b, fb, daz, signaling, out, events):
    """out: uint8, LESS, EQUAL, GREATER or UNORDERED."""
    fa, fb = format_fields(fa), format_fields(fb)
    for i in range(out.size):
        out[i], events[i] = op.compare(a[i], fa, b[i], fb, daz, signaling)


@kernel
def neighbour(a, f, daz, up, out, events):
    f = format_fields(f)
    for i in range(out.size):
        code, happened = op.neighbour(a[i], f, daz, up)
        out[i] = code
        events[i] = happened


@kernel
def classify(a, f, out):
    f = format_fields(f)
    for i in range(out.size):
        out[i] = op.classify(a[i], f)


@kernel
def total_order(a, b, f, out):
    f = format_fields(f)
    for i in range(out.size):
        out[i] = op.order_place(a[i], f) <= op.order_place(b[i], f)


@kernel
def logb(a, f, daz, out, events):
    """out: int32."""
    f = format_fields(f)
    for i in range(out.size):
        out[i], events[i] = op.logb(a[i], f, daz)
