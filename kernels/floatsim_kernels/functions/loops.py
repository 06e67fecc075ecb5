"""Loops of the mathematical functions: the ends of their values, and the codes to which both ends round."""

import functools
import importlib

import numpy as np

from ..runtime.intrinsics import bits_from_float, float_from_bits, wide_vectors
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


@functools.cache
def nearest_float32(name):
    """Return the kernel of a function of float32 codes, ties to even; it marks the results that it does not know."""
    function = enclosure(name)

    @kernel
    def loop(x, out, unknown):
        wide_vectors()
        for i in range(x.size):
            low, high = function(np.float64(float_from_bits(x[i])))
            a, b = bits_from_float(np.float32(low)), bits_from_float(np.float32(high))
            out[i] = a if low == low else _NAN_32
            unknown[i] = np.uint8(low == low and a != b)

    return loop


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
