"""Dot instructions of CPUs on integers: operations that round one after the other, with every number and all events.

floatsim/reference/tensorcore/cpu.py defines them. a (batch, M, K) and b (batch, K, N) hold codes. `out` (ranges, batch,
M, N) holds codes of D's format, and c on entry. Every block counts one event byte, the union over its operations.
"""

import numba
import numpy as np

from ..elementwise.scalar_ops import product, rounded_sum, unpack_wide
from ..gemm.integer import absorbed
from ..rounding.integer import (
    DAZ,
    EMIN,
    FINITE,
    INF,
    OVERFLOWED,
    QUIET_NAN,
    SIGN,
    U0,
    U1,
    ZERO,
    P,
    format_fields,
    infinity_code,
    left,
    right,
    rounding_fields,
)
from ..runtime.jit import OPTIONS, inline, kernel_of
from .integer import count_event, last_of

STEP_FIELDS = ("terms", "k", "group", "fused", "lanes", "late", "from_zero", "reverse", "first_nan")
TERMS, K, GROUP, FUSED, LANES, LATE, FROM_ZERO, REVERSE, FIRST_NAN = range(9)
"""The fields of RoundedSteps in floatsim/tensorcore/instructions.py, with the products of an instruction; whether the
NaN is that of the first NaN operand."""

_MISSING = np.uint64(1 << 63)
"""A lane without a sum. Codes of the formats of CPU instructions have at most 32 bits, FP64 excepted."""

_routine = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **OPTIONS)


@inline
def is_nan(code, f):
    return unpack_wide(code, f, np.int64(0))[0] >= QUIET_NAN


@inline
def quiet(code, f, fd):
    """A NaN code of format f as a quiet NaN of D's format, with its sign and payload."""
    payload = left(code & (left(U1, f[P] - 1) - U1), fd[P] - f[P])
    return left(right(code, f[SIGN]) & U1, fd[SIGN]) | np.uint64(fd[INF]) | left(U1, fd[P] - 2) | payload


@inline
def operand(code, f, fd, m):
    """An operand. With DAZ, a number below D's least normal number is a zero of its sign."""
    x = unpack_wide(code, f, np.int64(0))
    if m[DAZ] and x[0] == FINITE and x[2] < fd[EMIN]:
        return np.int64(ZERO), x[1], np.int64(0), U0, U0
    return x[0], x[1], x[2], x[3], x[4]


@_routine
def sum_of(x, y, fd, m):
    """(code, events) of x + y, exact numbers. Overflow gives an infinity, also when rounding to odd."""
    code, events = rounded_sum(x, y, fd, m, U0)
    if events & OVERFLOWED:
        code = infinity_code(np.int64(right(code, fd[SIGN]) & U1), fd)
    return code, events


@inline
def finished(code, ca, fa, cb, fb, cc, fc, fd, first_nan):
    """A result, whose NaN is that of the first NaN among three codes; without one it has the sign set."""
    if not first_nan or not is_nan(code, fd):
        return code
    if is_nan(ca, fa):
        return quiet(ca, fa, fd)
    if is_nan(cb, fb):
        return quiet(cb, fb, fd)
    if is_nan(cc, fc):
        return quiet(cc, fc, fd)
    return code | left(U1, fd[SIGN])


@_routine
def fused(ca, fa, cb, fb, acc, fd, m, first_nan):
    """(code, events) of a * b + acc, rounded once."""
    z, p = operand(acc, fd, fd, m), product(operand(ca, fa, fd, m), operand(cb, fb, fd, m))
    p = p[0], p[1], p[2], p[3], p[4]
    code, events = sum_of(p, z, fd, m)
    events |= absorbed(code, z, p, fd)
    return finished(code, ca, fa, cb, fb, acc, fd, fd, first_nan), events


@_routine
def added(ca, cb, fd, m, first_nan):
    """(code, events) of the sum of two codes of D's format."""
    x, y = operand(ca, fd, fd, m), operand(cb, fd, fd, m)
    code, events = sum_of(x, y, fd, m)
    events |= absorbed(code, x, y, fd) | absorbed(code, y, x, fd)
    return finished(code, ca, fd, cb, fd, U0, fd, fd, first_nan), events


@_routine
def rounded_product(ca, fa, cb, fb, fd, m, first_nan):
    """(code, events) of a product: it is rounded as its sum with a zero of its own sign."""
    p = product(operand(ca, fa, fd, m), operand(cb, fb, fd, m))
    p = p[0], p[1], p[2], p[3], p[4]
    code, events = sum_of(p, (np.int64(ZERO), p[1], np.int64(0), U0, U0), fd, m)
    return finished(code, ca, fa, cb, fb, U0, fd, fd, first_nan), events


@_routine
def pair(ca, fa, cb, fb, da, db, model, fd, m):
    """(code, events) of a[0] * b[0] + a[1] * b[1], rounded once or in three operations."""
    if model[FUSED]:
        p = product(operand(ca, fa, fd, m), operand(cb, fb, fd, m))
        q = product(operand(da, fa, fd, m), operand(db, fb, fd, m))
        p, q = (p[0], p[1], p[2], p[3], p[4]), (q[0], q[1], q[2], q[3], q[4])
        code, events = sum_of(p, q, fd, m)
        return code, events | absorbed(code, q, p, fd)
    x, events = rounded_product(ca, fa, cb, fb, fd, m, model[FIRST_NAN])
    y, other_events = rounded_product(da, fa, db, fb, fd, m, model[FIRST_NAN])
    code, last_events = added(x, y, fd, m, model[FIRST_NAN])
    return code, events | other_events | last_events


@_routine
def block(a, fa, b, fb, n, i, j, start, stop, c, model, fd, m):
    """(code, events) of one block of an instruction."""
    first = U0 if model[FROM_ZERO] else _MISSING
    lane0, lane1, events = first if model[LATE] else c, first, np.int64(0)
    groups = model[TERMS] // model[GROUP]
    for number in range(groups):
        place = groups - 1 - number if model[REVERSE] else number
        k = start + place * model[GROUP]
        lane = lane1 if model[LANES] == 2 and number & 1 else lane0
        ca, cb = (a[n, i, k], b[n, k, j]) if k < stop else (U0, U0)
        if model[GROUP] == 1:
            code, more = fused(ca, fa, cb, fb, lane, fd, m, model[FIRST_NAN])
        else:
            da, db = (a[n, i, k + 1], b[n, k + 1, j]) if k + 1 < stop else (U0, U0)
            code, more = pair(ca, fa, cb, fb, da, db, model, fd, m)
            if lane != _MISSING:
                events |= more
                code, more = added(lane, code, fd, m, model[FIRST_NAN])
        events |= more
        if model[LANES] == 2 and number & 1:
            lane1 = code
        else:
            lane0 = code
    if model[LANES] == 2:
        lane0, more = added(lane0, lane1, fd, m, model[FIRST_NAN])
        events |= more
    if model[LATE]:
        lane0, more = added(c, lane0, fd, m, model[FIRST_NAN])
        events |= more
    return lane0, events


_CODES = numba.types.Array(numba.uint64, 3, "A", readonly=True)
_PARAMS = numba.types.Array(numba.int64, 1, "C", readonly=True)


@kernel_of(
    numba.void(
        _CODES, _PARAMS, _CODES, _PARAMS, numba.types.Array(numba.uint64, 4, "C"), *[_PARAMS] * 3,
        numba.types.Array(numba.int64, 2, "C", readonly=True), _PARAMS, numba.types.Array(numba.int64, 2, "C"),
        numba.types.Array(numba.int64, 4, "C"),
    )
)  # fmt: skip
def rounded_steps(a, fa, b, fb, out, model, fd, rounding_params, ranges, where, counts, first):
    """Blocks of operations that round one after the other."""
    fa, fb, fd, m = format_fields(fa), format_fields(fb), format_fields(fd), rounding_fields(rounding_params)
    model = (
        model[0], model[1], model[2], model[3], model[4], model[5], model[6], model[7], model[8],
    )  # fmt: skip
    nan = np.uint64(fd[INF]) | left(U1, fd[P] - 2)
    for part in range(ranges.shape[0]):
        range_start, range_stop = ranges[part, 0], ranges[part, 1]
        for n in range(a.shape[0]):
            for i in range(a.shape[1]):
                for j in range(b.shape[2]):
                    c = out[part, n, i, j]
                    for start in range(range_start, range_stop, model[K]):
                        stop = min(start + model[K], range_stop)
                        for k0 in range(start, start + model[K], model[TERMS]):
                            old = c
                            c, events = block(a, fa, b, fb, n, i, j, k0, stop, c, model, fd, m)
                            latest = last_of(where, start, k0 + model[TERMS] - 1, stop)
                            count_event(c, events, old, nan, fd, n, i, j, latest, counts, first)
                    out[part, n, i, j] = c
