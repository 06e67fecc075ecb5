"""Loops of the mathematical functions: the ends of their values, and the codes to which both ends round."""

import functools
import importlib

import numpy as np

from ..runtime.intrinsics import and32, bits_from_double, bits_from_float, float_from_bits, subtract32, wide_vectors
from ..runtime.jit import inline, kernel
from . import enclosures

_NAN_32 = np.uint32(0x7FC00000)


def enclosure(name):
    """Return the function of `enclosures` or `normal`; the latter makes a table, and is imported when it is needed."""
    if hasattr(enclosures, name):
        return getattr(enclosures, name)
    return getattr(importlib.import_module(f"{__package__}.normal"), name)


@functools.cache
def ends(name):
    """Return the kernel that writes the ends of a function of float64 numbers.

    `inside`: ends that differ are moved to numbers strictly between them.
    """
    function, inward = enclosure(name), enclosures.inward

    @kernel
    def loop(x, low, high, inside):
        wide_vectors()
        for i in range(x.size):
            a, b = function(x[i])
            if inside:
                a, b = inward(a, b)
            low[i] = a
            high[i] = b

    return loop


@functools.cache
def ends_of_two(name):
    """Return the kernel that writes the ends of a function of two float64 numbers; see `ends`."""
    function, inward = enclosure(name), enclosures.inward

    @kernel
    def loop(x, y, low, high, inside):
        wide_vectors()
        for i in range(x.size):
            a, b = function(x[i], y[i])
            if inside:
                a, b = inward(a, b)
            low[i] = a
            high[i] = b

    return loop


@inline
def _enclosed(function, x, out, unknown):
    """Write the codes of float32 codes by both ends of their values, mark the unknown ones, and return their number."""
    for i in range(x.size):
        low, high = function(np.float64(float_from_bits(x[i])))
        a, b = bits_from_float(np.float32(low)), bits_from_float(np.float32(high))
        out[i] = a if low == low else _NAN_32
        unknown[i] = np.uint8(low == low and a != b)
    count = 0
    for i in range(x.size):
        count += unknown[i]
    return count


_CHUNK = 512
_BELOW_HALF = np.uint64((1 << 29) - 1)
"""The bits of a float64 number that float32 lacks."""
_NEAR, _TWICE_NEAR = np.uint64((1 << 28) - 64), np.uint64(128)


@inline
def _is_near_midpoint(y):
    """Whether a midpoint of float32 numbers is at most 64 last places of y away, for y in the range of normal numbers.

    If there is none, every number with a distance of at most y * 2**-47 rounds to the float32 number nearest to y.
    """
    return np.uint64((bits_from_double(y) & _BELOW_HALF) - _NEAR) <= _TWICE_NEAR


@functools.cache
def nearest_float32(name, by_one_number):
    """Return the kernel of a function of float32 codes, ties to even, which returns how many results it does not know.

    `unknown` is zero before the call. The kernel sets it to 1 for these results, and otherwise may leave it alone.
    `by_one_number`: the function has a row in INSIDE, whose number is rounded where no midpoint is near. In chunks with
    other arguments or a midpoint, and for other functions, both ends of the value are rounded.
    """
    function = enclosure(name)
    if not by_one_number:

        @kernel
        def loop(x, out, unknown):
            wide_vectors()
            return _enclosed(function, x, out, unknown)

        return loop
    value, mask, first, size = enclosures.INSIDE[name]

    @kernel
    def of_chunks(x, out, unknown):
        wide_vectors()
        count = 0
        for start in range(0, x.size, _CHUNK):
            codes, written = x[start : start + _CHUNK], out[start : start + _CHUNK]
            is_open = False
            for i in range(codes.size):
                y = value(np.float64(float_from_bits(codes[i])))
                written[i] = bits_from_float(np.float32(y))
                is_open |= _is_near_midpoint(y) | (subtract32(and32(codes[i], mask), first) >= size)
            if is_open:
                count += _enclosed(function, codes, written, unknown[start : start + _CHUNK])
        return count

    return of_chunks


@inline
def _special(low, code, positive, negative, nan):
    if low != low:
        return nan
    if low == np.inf:
        return positive
    return negative if low == -np.inf else code


@kernel
def compare_codes(low, high, of_high, out, unknown, positive, negative, nan):
    """Mark the results whose ends have two codes. `out` holds the codes of the low ends.

    `positive`, `negative` and `nan` are the codes of exact infinities and of NaN.
    """
    for i in range(out.size):
        unknown[i] = np.uint8(low[i] == low[i] and (out[i] != of_high[i] or low[i] > high[i]))
        out[i] = _special(low[i], out[i], positive, negative, nan)


@kernel
def compare_events(low, high, values, of_high, events, events_of_high, out, unknown, codes, of_nan, of_pole, operand):
    """As `compare_codes`, for calls with events: a result that both ends may equal is unknown, too.

    `values` are the numbers of the codes of the low ends. `codes` are those of exact infinities, positive and negative,
    and of NaN. `operand` has 1 for operands that are NaN, and 2 for infinite ones.
    """
    for i in range(out.size):
        known = out[i] == of_high[i] and events[i] == events_of_high[i]
        known = known and (low[i] == high[i] or not low[i] <= values[i] <= high[i])
        unknown[i] = np.uint8(low[i] == low[i] and not (known and low[i] <= high[i]))
        out[i] = _special(low[i], out[i], codes[0], codes[1], codes[2])
        if low[i] != low[i]:
            events[i] = np.uint8(0) if operand[i] == np.uint8(1) else of_nan
        elif abs(low[i]) == np.inf:
            events[i] = np.uint8(0) if operand[i] == np.uint8(2) else of_pole
