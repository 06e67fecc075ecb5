"""Events of element-wise operations, from their operands and their rounded results, in float64 vectors.

The results have been rounded by another kernel. Whether they are exact is decided in float64, where products of two
numbers of at most 26 bits and the errors of sums are exact. Where a result and its exactness do not decide the events,
the kernels write RARE: NaNs, infinities, and inexact results that are the largest or the smallest normal number. The
integer kernels compute these elements again. The kernels need `cpu.environment_is_default()`.
"""

import functools

import numpy as np

from ..rounding.integer import ABSORBED, FLUSHED, INEXACT, SUBNORMAL, UNDERFLOW
from ..runtime.intrinsics import wide_vectors
from ..runtime.jit import inline, kernel
from . import packed, unpack
from .unpack import float64_of

RARE = np.uint8(0xFF)
"""Written where the integer kernels have to decide. No operation has all events."""
_0, _INEXACT, _ABSORBED, _SUBNORMAL = (np.uint8(x) for x in (0, INEXACT, ABSORBED, SUBNORMAL))
_TINY, _LOST = np.uint8(INEXACT | UNDERFLOW | SUBNORMAL), np.uint8(INEXACT | UNDERFLOW | FLUSHED)


@inline
def event_of(r, inexact, least, largest):
    """The event byte of a result r; `least` and `largest` are the ends of the format's normal numbers."""
    m = abs(r)
    of_tiny = _LOST if m == 0 else _TINY
    of_inexact = of_tiny if m < least else _INEXACT
    of_exact = _SUBNORMAL if m < least and m > 0 else _0
    event = of_inexact if inexact else of_exact
    open_ = not (m <= largest) or (inexact and (m == least or m == largest))
    return RARE if open_ else event


@inline
def error_of(operation, x, y, z, r):
    """A number that is zero if and only if the number r is the exact result; NaN where that stays open."""
    if operation == packed.MULTIPLY:
        return x * y - r
    if operation == packed.DIVIDE:
        return r * y - x if y != 0 else np.nan
    if operation == packed.SQRT:
        return r * r - x
    left = x * y if operation == packed.FMA else x
    right = z if operation == packed.FMA else (-y if operation == packed.SUBTRACT else y)
    s, rest = packed.two_sum(left, right)
    return rest if s == r else s - r


@functools.cache
def arithmetic(operation, reader):
    """Return the kernel of an arithmetic operation of packed.py on codes of one format, in any deterministic mode.

    `ends` holds the smallest and the largest normal number of the format. Operands that an operation does not have are
    any arrays of codes.
    """
    is_sum, is_fma = operation in (packed.ADD, packed.SUBTRACT), operation == packed.FMA

    @kernel
    def loop(a, b, c, out, read, ends, events):
        wide_vectors()
        g, least, largest = unpack.fields_of(read), ends[0], ends[1]
        for i in range(out.size):
            x, y, z = (
                float64_of(reader, a[i], g),
                float64_of(reader, b[i], g),
                float64_of(reader, c[i], g),
            )
            r = float64_of(reader, out[i], g)
            error = error_of(operation, x, y, z, r)
            inexact = error != 0
            event = event_of(r, inexact, least, largest) if error == error else RARE
            absorbed = False
            if is_sum:
                other = -y if operation == packed.SUBTRACT else y
                absorbed = (r == x and y != 0) or (r == other and x != 0)
            if is_fma:
                absorbed = r == z and x * y != 0
            events[i] = np.uint8(event | _ABSORBED) if absorbed and inexact and event != RARE else event

    return loop


@functools.cache
def conversion(source_reader, reader):
    """Return the kernel of conversions; `read` and `write` hold the fields of unpack.UNPACK_FIELDS of both formats."""

    @kernel
    def loop(a, out, read, write, ends, events):
        wide_vectors()
        g, w, least, largest = unpack.fields_of(read), unpack.fields_of(write), ends[0], ends[1]
        for i in range(out.size):
            r = float64_of(reader, out[i], w)
            events[i] = event_of(r, float64_of(source_reader, a[i], g) != r, least, largest)

    return loop


@functools.cache
def extremum(reader):
    """Return the kernel of minimum and maximum: the result is an operand."""

    @kernel
    def loop(a, b, out, read, ends, events):
        wide_vectors()
        g, least, largest = unpack.fields_of(read), ends[0], ends[1]
        for i in range(out.size):
            x, y, r = (
                float64_of(reader, a[i], g),
                float64_of(reader, b[i], g),
                float64_of(reader, out[i], g),
            )
            events[i] = event_of(r, False, least, largest) if x == x and y == y else RARE

    return loop


@functools.cache
def integral(reader, exact):
    """Return the kernel of roundings to integers; `exact`: a difference is INEXACT."""

    @kernel
    def loop(a, out, read, ends, events):
        wide_vectors()
        g, least, largest = unpack.fields_of(read), ends[0], ends[1]
        for i in range(out.size):
            x, r = float64_of(reader, a[i], g), float64_of(reader, out[i], g)
            m = abs(r)
            event = _INEXACT if exact and x != r else _0
            events[i] = event if m < largest and (m >= least or m == 0) else RARE

    return loop


# -- counts ------------------------------------------------------------------------------------------------------------


@kernel
def histogram(events, counts):
    """Add to `counts`, of shape (4, 256), how often each byte occurs. With four rows an addition waits for no other."""
    n = events.size // 4 * 4
    for i in range(0, n, 4):
        for k in range(4):
            counts[k, events[i + k]] += 1
    for i in range(n, events.size):
        counts[0, events[i]] += 1
