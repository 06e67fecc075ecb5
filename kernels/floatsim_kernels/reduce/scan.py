"""Running sums and products on codes, in integers, for every format and rounding, with events.

x: (K, cells) codes as uint64, of format fx. The draw of a rounding is keyed by `seed`, the site 8 * step + r, and the
cell's index: its column, plus `base`. counts (256) counts event bytes. first (events of FIRST in gemm/integer.py,
cells) takes the least step of each event, or is empty.
"""

import numba
import numpy as np

from ..elementwise import scalar_ops as op
from ..gemm.integer import (
    COMP,
    ERROR,
    FIRST,
    KAHAN,
    NEUMAIER,
    NEW_NAN,
    SEQUENTIAL,
    TERM,
    S,
    T,
    absorbed,
    at_least,
    chosen,
    is_finite,
    keys_of,
    negative,
    rounded_sum,
    unpack_wide,
)
from ..rounding.integer import (
    DAZ,
    INEXACT,
    NAN,
    QUIET_NAN,
    RANDOM_BITS,
    ROUNDING,
    SOURCE,
    STOCHASTIC,
    U0,
    format_fields,
    rounding_fields,
    unpack,
)
from ..rounding.random_sources import draw_at, source_fields
from ..runtime.intrinsics import zero_array
from ..runtime.jit import inline, kernel_of

RESULT = 8
_STATE_ROWS = 9


def _numbered(passes):
    """Passes of gemm/integer.py with two more columns: r, and 1 if the draw belongs to the next step."""
    r = np.arange(1, len(passes) + 1)
    return np.column_stack([passes, r, np.zeros_like(r)])


PASSES = {
    "sequential": _numbered(SEQUENTIAL),
    "kahan": _numbered(KAHAN),
    "neumaier": np.vstack([_numbered(NEUMAIER), (T, COMP, 0, RESULT, 1, 1)]),
}
"""Passes over the cells. Neumaier's last pass gives the result and changes no state."""


@inline
def place(first, j, events, step):
    """Keep `step` as the place of the events that have no earlier place."""
    if first.shape[0]:
        for event in range(len(FIRST)):
            if events & FIRST[event]:
                first[event, j] = min(first[event, j], step)


_CODES = numba.types.Array(numba.uint64, 2, "A", readonly=True)
_OUT = numba.types.Array(numba.uint64, 2, "C")
_PARAMS = numba.types.Array(numba.int64, 1, "C", readonly=True)
_TABLE = numba.types.Array(numba.int64, 2, "C", readonly=True)
_COUNTS, _FIRST = numba.types.Array(numba.int64, 1, "C"), numba.types.Array(numba.int64, 2, "C")


@kernel_of(
    numba.void(_TABLE, numba.boolean, _CODES, _PARAMS, _OUT, _PARAMS, _PARAMS, numba.uint64, _COUNTS, _FIRST)
)  # fmt: skip
def running_sums(passes, clears, x, fx, out, f, m, seed, counts, first):
    """out[k] is the sum of the terms 0 to k, from +0. `clears`: comp becomes zero with an infinite or NaN t."""
    source = source_fields(m, SOURCE)
    fx, f, m = format_fields(fx), format_fields(f), rounding_fields(m)
    daz, compensated = m[DAZ], passes.shape[0] > 1
    final = passes[passes.shape[0] - 1, 3]
    state = zero_array((_STATE_ROWS, x.shape[1]), np.uint64)
    s_is_larger = zero_array(x.shape[1], np.bool_)
    for step in range(x.shape[0]):
        for p in range(passes.shape[0]):
            x_row, y_row, minus, to, r = passes[p, 0], passes[p, 1], passes[p, 2], passes[p, 3], passes[p, 4]
            adds, after_t = x_row == S, to == ERROR or to == COMP
            block, key, second_key = np.int64(-1), U0, U0
            for j in range(x.shape[1]):
                if after_t and not is_finite(state[T, j], f):
                    continue
                x_from, y_from = chosen(x_row, s_is_larger[j]), chosen(y_row, s_is_larger[j])
                term = unpack_wide(x[step, j], fx, daz)
                left, right = term, term
                if x_from != TERM:
                    left = unpack_wide(state[x_from, j], f, daz)
                if y_from != TERM:
                    right = unpack_wide(state[y_from, j], f, daz)
                if minus:
                    right = negative(right)
                random = U0
                if m[ROUNDING] == STOCHASTIC:
                    if j >> 32 != block:
                        block = j >> 32
                        key, second_key = keys_of(m, source, seed, step + passes[p, 5], r, np.uint64(block))
                    random = draw_at(source, key, second_key, np.uint64(j), m[RANDOM_BITS])
                code, events = rounded_sum(left, right, f, m, random)
                if adds:
                    s_is_larger[j] = at_least(left, right)
                    if events & INEXACT:
                        events |= absorbed(code, left, right, f)
                    if clears and not is_finite(code, f):
                        state[COMP, j] = U0
                old = T if to == RESULT else S
                if np.int64(code) == f[NAN] and np.int64(state[old, j]) != f[NAN]:
                    events |= NEW_NAN
                state[to, j] = code
                counts[events] += 1
                place(first, j, events, step)
        for j in range(x.shape[1]):
            if compensated:
                state[S, j] = state[T, j]
            out[step, j] = state[RESULT if final == RESULT else S, j]


@inline
def rounded_product(x, fx, y, fy, f, m, daz, random):
    """(code, events) of x * y, and whether x is NaN."""
    code, events = op.multiply(x, fx, y, fy, f, m, random)
    return code, events, unpack(x, fx, daz)[0] >= QUIET_NAN


@kernel_of(
    numba.void(_CODES, _PARAMS, _CODES, _PARAMS, _OUT, _PARAMS, _PARAMS, numba.uint64, numba.int64, _COUNTS, _FIRST)
)  # fmt: skip
def running_products(x, fx, start, fs, out, f, m, seed, base, counts, first):
    """acc = round(acc * x), from start (1, cells) of format fs; out (1, cells) is the last product. r: 1."""
    source = source_fields(m, SOURCE)
    fx, fs, f, m = format_fields(fx), format_fields(fs), format_fields(f), rounding_fields(m)
    for step in range(x.shape[0]):
        block, key, second_key = np.int64(-1), U0, U0
        old_format = f if step else fs
        for j in range(x.shape[1]):
            old = out[0, j] if step else start[0, j]
            random = U0
            if m[ROUNDING] == STOCHASTIC:
                element = base + j
                if element >> 32 != block:
                    block = element >> 32
                    key, second_key = keys_of(m, source, seed, step, 1, np.uint64(block))
                random = draw_at(source, key, second_key, np.uint64(element), m[RANDOM_BITS])
            code, events, was_nan = rounded_product(old, old_format, x[step, j], fx, f, m, m[DAZ], random)
            if np.int64(code) == f[NAN] and not was_nan:
                events |= NEW_NAN
            out[0, j] = code
            counts[events] += 1
            place(first, j, events, step)


_ORDER, _MERGES = (numba.types.Array(kind, 1, "C", readonly=True) for kind in (numba.int32, numba.int8))
_ONE = np.uint64(127 << 23)


@kernel_of(
    numba.void(
        _CODES, _PARAMS, _ORDER, _MERGES, numba.int64, _PARAMS, _OUT, _PARAMS, _PARAMS, numba.uint64, numba.int64,
        _COUNTS, _FIRST,
    )
)  # fmt: skip
def tree_products(x, fx, order, merges, depth, fone, out, f, m, seed, base, counts, first):
    """Products along a tree (accumulation/trees.py) of at least one term.

    A single term is multiplied by 1, of format fone. out: (1, cells). r: 1 of the n-th multiplication at step n.
    """
    source = source_fields(m, SOURCE)
    fx, fone, f, m = format_fields(fx), format_fields(fone), format_fields(f), rounding_fields(m)
    columns = x.shape[1]
    stack = zero_array((depth, columns), np.uint64)
    leaf, latest = zero_array(depth, np.int64), zero_array(depth, np.int64)
    top, multiplications = -1, 0
    for t in range(order.size):
        top += 1
        leaf[top] = latest[top] = order[t]
        single_term = order.size == 1
        for _ in range(1 if single_term else merges[t]):
            to = top if single_term else top - 1
            k_x, k_y = leaf[to], leaf[top]
            k = max(latest[to], latest[top])
            f_x, f_y = fx if k_x >= 0 else f, fone if single_term else (fx if k_y >= 0 else f)
            block, key, second_key = np.int64(-1), U0, U0
            for j in range(columns):
                a = x[k_x, j] if k_x >= 0 else stack[to, j]
                b = _ONE if single_term else (x[k_y, j] if k_y >= 0 else stack[top, j])
                random = U0
                if m[ROUNDING] == STOCHASTIC:
                    element = base + j
                    if element >> 32 != block:
                        block = element >> 32
                        key, second_key = keys_of(m, source, seed, multiplications, 1, np.uint64(block))
                    random = draw_at(source, key, second_key, np.uint64(element), m[RANDOM_BITS])
                code, events, a_nan = rounded_product(a, f_x, b, f_y, f, m, m[DAZ], random)
                if np.int64(code) == f[NAN]:
                    b_nan = unpack(b, f_y, m[DAZ])[0] >= QUIET_NAN
                    if not (a_nan and k_x < 0) and not (b_nan and k_y < 0):
                        events |= NEW_NAN
                stack[to, j] = code
                counts[events] += 1
                place(first, j, events, k)
            leaf[to], latest[to] = -1, k
            top, multiplications = to, multiplications + 1
    for j in range(columns):
        out[0, j] = stack[0, j]
