"""Mathematical functions of one or two numbers: the kernels that users' own jitted code calls (see floatsim/njit.py).

An operand is a code of a *carrier*, float64 or float32, with its format parameters. The parameters f of the result's
format and m of the rounding are tuples of int64. A kernel returns (code in f, events, whether the result is open). An
open result needs the reference.

The conditions of `enclosures` are checked for the numbers, and not for their format: many float64 numbers have at most
24 significant bits.
"""

import functools

import numpy as np

from ..elementwise import scalar_ops as op
from ..elementwise.njit_entry import check, double_of, random_of, to_carrier
from ..rounding.integer import (
    DAZ,
    DIVIDE_BY_ZERO,
    EMIN,
    FINITE,
    INFINITE,
    INVALID,
    MAX,
    QUIET_NAN,
    ROUNDING,
    SIGN,
    STOCHASTIC,
    U0,
    ZERO,
    P,
    infinity_code,
    left,
    nan_code,
    unpack,
)
from ..runtime.intrinsics import bits_from_double, opaque
from ..runtime.jit import inline, kernel
from .enclosures import ARGUMENT_BITS, ARGUMENT_EXPONENT, RESULT_BITS, RESULT_EXPONENT, inward
from .loops import enclosure

_FLOAT64 = (53, -1022, (2047 << 52) - 1, 2047 << 52, (2047 << 52) | (1 << 51), 63, 1 << 51, 1, 0)  # format parameters
_BEYOND_BITS = np.uint64((1 << (63 - ARGUMENT_BITS)) - 1)  # of a significand whose first bit is bit 62
_SMALLEST, _BEYOND = np.int64(-ARGUMENT_EXPONENT), np.int64(ARGUMENT_EXPONENT)
_PRECISION, _EXPONENT = np.int64(RESULT_BITS), np.int64(RESULT_EXPONENT)


@inline
def environment_is_default():
    """Whether float64 arithmetic keeps subnormals and rounds to nearest; see `cpu.environment_is_default`."""
    tiny, one, half, above_half = opaque(2.0**-1074), opaque(1.0), opaque(2.0**-53), opaque(1.5 * 2.0**-53)
    return tiny * one != 0 and one + half == one and -one - half == -one and one + above_half != one


@inline
def operand(a, fa, m):
    """(kind, number, whether the enclosures take it) of an operand; subnormals of the carrier are zeros with DAZ."""
    k, s, e, h = unpack(a, fa, m[DAZ])
    x = double_of(left(np.uint64(s), fa[SIGN]) if k == ZERO else a, fa)
    return k, x, k != FINITE or (_SMALLEST <= e < _BEYOND and h & _BEYOND_BITS == U0)


@inline
def encloses(f):
    """Whether the results of a format are known if both ends have one code."""
    t = f[P] - 1
    return f[P] <= _PRECISION and f[EMIN] - t >= -_EXPONENT and (f[MAX] >> t) + f[EMIN] - 1 < _EXPONENT


@kernel
def between(low, high, of_infinity, f, m, random, want):
    """(code in f, events, whether the result is open) of a value between two ends.

    `of_infinity`: an operand is infinite. With `want`, a result that the value may equal is open, too.
    """
    if low != low:
        code, events = nan_code(f, np.int64(INVALID))
        return code, events, False
    if low > high:
        return U0, np.int64(0), True
    if abs(low) == np.inf:
        events = np.int64(0) if of_infinity else np.int64(DIVIDE_BY_ZERO)
        return infinity_code(np.int64(low < 0.0), f), events, False
    if low < high and m[ROUNDING] != STOCHASTIC:  # a random rounding of an exact value never moves it
        low, high = inward(low, high)
    code, events = op.convert(bits_from_double(low), _FLOAT64, f, m, random)
    if low == high:
        return code, events, False
    other, events_of_other = op.convert(bits_from_double(high), _FLOAT64, f, m, random)
    if code != other:
        return code, events, True
    if want:
        value = double_of(to_carrier(code, f, _FLOAT64), _FLOAT64)
        return code, events, events != events_of_other or low <= value <= high
    return code, events, False


@functools.cache
def of_one(name, reference):
    """Return the entry of a function of one number.

    `reference(a, fa, b, fb, f, m, random)`: the compiled function that returns (code in f, events) of an open result.
    """
    ends = enclosure(name)

    @kernel
    def function(a, fa, f, c, m, draws, want):
        check(f, c)
        random = random_of(m, draws)
        k, x, enclosed = operand(a, fa, m)
        if k >= QUIET_NAN:
            code, events = nan_code(f, op.nan_events(k, k))
            return to_carrier(code, f, c), events
        code, events, is_open = U0, np.int64(0), True
        if enclosed and encloses(f) and environment_is_default():
            low, high = ends(x)
            code, events, is_open = between(low, high, k == INFINITE, f, m, random, want)
        if is_open:
            code, events = reference(a, fa, a, fa, f, m, random)
        return to_carrier(code, f, c), events

    return function


@functools.cache
def of_two(name, reference):
    """Return the entry of a function of two numbers; see `of_one`. NaNs are open: power(NaN, 0) is 1."""
    ends = enclosure(name)

    @kernel
    def function(a, fa, b, fb, f, c, m, draws, want):
        check(f, c)
        random = random_of(m, draws)
        k, x, enclosed = operand(a, fa, m)
        n, y, enclosed_too = operand(b, fb, m)
        code, events, is_open = U0, np.int64(0), True
        if k < QUIET_NAN and n < QUIET_NAN and enclosed and enclosed_too and encloses(f) and environment_is_default():
            low, high = ends(x, y)
            code, events, is_open = between(low, high, k == INFINITE or n == INFINITE, f, m, random, want)
        if is_open:
            code, events = reference(a, fa, b, fb, f, m, random)
        return to_carrier(code, f, c), events

    return function
