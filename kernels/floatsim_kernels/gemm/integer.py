"""Sums of products on codes, in integers: sequential, compensated, along a tree, and exact, for every format and
rounding.

The kernels count events, and their results do not depend on the floating-point environment. Every kernel sums the
products a[n, i, k] * b[n, k, j], a (batch, M, K) and b (batch, K, N), over ranges (start, stop, step) of k, into out
(ranges, batch, M, N). Codes are uint64. Formats and roundings are parameter vectors, FORMAT_FIELDS and ROUNDING_FIELDS
of rounding/integer.py.

- `fp` is the format that products are rounded to, with rounding `mp`; with precision 0 products enter exactly.
- `out` holds the start values on entry, codes of format f; `tree` and `exact` do not read them.
- The draw of a rounding is keyed by `seeds[range]`, the site 8 * step + r, and the element's index index[0] + n *
  index[1] + i * index[2] + j * index[3]. `step` is the position within the range; each kernel defines r.
- `where[k]` is the largest original index under term k. The place of an event is the largest original index that the
  rounded value contains. `first` (events of FIRST, batch, M, N) takes the least place of each event, or is empty.
- `counts` (2, 256) counts event bytes, of products and of all other roundings.

A row of `out` is computed in passes, one for each rounding of a step. A pass adds two numbers in every column; a single
number is rounded as its sum with a zero of its own sign. So each kernel has one rounding in its code, and the additions
of a row overlap, because they do not depend on each other.
"""

import numba
import numpy as np

from ..elementwise.scalar_ops import negative, product, rounded_sum, same, unpack_wide
from ..rounding.integer import (
    ABSORBED,
    DAZ,
    FINITE,
    FLUSHED,
    INEXACT,
    INFINITE,
    INVALID,
    MAX,
    NAN,
    OVERFLOWED,
    QUIET_NAN,
    RANDOM_BITS,
    ROUNDING,
    SIGN,
    SIGNALING_NAN,
    SOURCE,
    STOCHASTIC,
    TOWARD_NEGATIVE,
    U0,
    U1,
    UNDERFLOW,
    ZERO,
    P,
    format_fields,
    left,
    right,
    rounding_fields,
)
from ..rounding.random import draw_key
from ..rounding.random_sources import GENERATOR, TRIPLE32, draw_at, source_fields
from ..runtime.intrinsics import leading_zeros, zero_array
from ..runtime.jit import inline, kernel_of

PRODUCT, SUM = 0, 1

NEW_NAN = 8
"""A NaN from an accumulator that was not NaN. It has the bit of the division by zero, which sums cannot have."""

FIRST = (INVALID, NEW_NAN, OVERFLOWED, UNDERFLOW, FLUSHED, ABSORBED)
"""The events whose first place is kept."""
_PLACED = INVALID | NEW_NAN | OVERFLOWED | UNDERFLOW | FLUSHED | ABSORBED

ONE = (np.int64(FINITE), np.int64(0), np.int64(0), np.uint64(1 << 62), U0)


@inline
def zero_like(x):
    """A zero with the sign of x."""
    return np.int64(ZERO), x[1], np.int64(0), U0, U0


@inline
def place(first, n, i, j, events, k):
    """Keep k as the place of the events that have no earlier place."""
    if events & _PLACED and first.shape[0]:
        for event in range(len(FIRST)):
            if events & FIRST[event]:
                first[event, n, i, j] = min(first[event, n, i, j], k)


@inline
def length_of(start, stop, step):
    """The number of k in a range."""
    return (stop - start + step - 1) // step


@inline
def keys_of(m, source, seed, step, r, block):
    """The keys of the draws at site 8 * step + r, for indices of one block of 2**32.

    Those of another generator are the seed and the site.
    """
    if source[GENERATOR] != TRIPLE32:
        return seed, np.uint64(8 * step + r)
    site = np.uint64(2 * (8 * step + r))
    second_key = draw_key(seed, site + U1, block) if m[RANDOM_BITS] > 32 else U0
    return draw_key(seed, site, block), second_key


@inline
def magnitude_of(code, f):
    """The magnitude bits of a code."""
    return np.int64(code & (left(U1, f[SIGN]) - U1))


@inline
def is_finite(code, f):
    return magnitude_of(code, f) <= f[MAX] and np.int64(code) != f[NAN]


@inline
def absorbed(code, x, y, f):
    """ABSORBED if the inexact sum of two finite numbers has the value of x, though y is not zero."""
    if y[0] == FINITE and same(unpack_wide(code, f, np.int64(0)), x):
        return np.int64(ABSORBED)
    return np.int64(0)


@inline
def keeps_value(before, x, after, f):
    """Whether the code `after` has the value of x, a finite number with the code `before`."""
    if x[0] == ZERO:
        return magnitude_of(after, f) == 0 and np.int64(after) != f[NAN]
    return before == after


@inline
def at_least(x, y):
    """Whether |x| >= |y|; false for NaNs."""
    if x[0] != FINITE or y[0] != FINITE:
        return x[0] >= y[0] and x[0] <= INFINITE
    if x[2] != y[2]:
        return x[2] > y[2]
    return x[3] > y[3] or (x[3] == y[3] and x[4] >= y[4])


@inline
def pass_of(array, row):
    """A pass as a tuple."""
    return array[row, 0], array[row, 1], array[row, 2], array[row, 3]


_CODES = numba.types.Array(numba.uint64, 3, "A", readonly=True)
_INTS = {n: numba.types.Array(numba.int64, n, "C") for n in (1, 2, 4)}
_FIXED = {n: numba.types.Array(numba.int64, n, "C", readonly=True) for n in (1, 2)}
_SEEDS = numba.types.Array(numba.uint64, 1, "C", readonly=True)
_OPERANDS = (_CODES, _FIXED[1], _CODES, _FIXED[1], numba.types.Array(numba.uint64, 4, "C"), _FIXED[1], _FIXED[1])
_PRODUCTS = (_FIXED[1], _FIXED[1])
_PLACES = (_FIXED[2], _SEEDS, _FIXED[1], _FIXED[1], _INTS[2], _INTS[4])

# rows of state: the rounded product, Kahan's y, t, the error of a step, comp, s
TERM, FIRST_OF_STEP, T, ERROR, COMP, S = range(6)
# of s and the term, the larger and the smaller in magnitude; and no second number
LARGER, SMALLER, NOTHING = range(6, 9)


def _passes(*rows):
    """A table of passes (x, y, 1 for x - y, row of the result)."""
    return np.array(rows, np.int64).reshape(-1, 4)


_NO_PASSES = _passes()
SEQUENTIAL = _passes((S, TERM, 0, S))
KAHAN = _passes(
    (TERM, COMP, 1, FIRST_OF_STEP), (S, FIRST_OF_STEP, 0, T), (T, S, 1, ERROR), (ERROR, FIRST_OF_STEP, 1, COMP)
)
NEUMAIER = _passes((S, TERM, 0, T), (LARGER, T, 1, ERROR), (ERROR, SMALLER, 0, ERROR), (COMP, ERROR, 0, COMP))
_NEUMAIER_END = _passes((S, COMP, 0, S))


@inline
def chosen(row, s_is_larger):
    """The row of state that a pass reads: LARGER and SMALLER are s or the term."""
    if row == LARGER:
        return S if s_is_larger else TERM
    if row == SMALLER:
        return TERM if s_is_larger else S
    return row


@kernel_of(numba.void(_FIXED[2], _FIXED[2], numba.int64, *_OPERANDS, *_PRODUCTS, *_PLACES))
def in_order(passes, closing, clears, a, fa, b, fb, out, f, m, fp, mp, ranges, seeds, index, where, counts, first):
    """Sequential sums, k ascending. r: 0 of the product, then the number of the pass, from 1 on.

    `passes` run for every term; `closing` runs at the step after the last term, if there is a term. The passes after t
    do not run where t is infinite or NaN; with `clears`, comp then becomes zero.
    """
    fa, f_sum = format_fields(fa), format_fields(f)
    daz, rounds, source = m[DAZ], fp[P] != 0, source_fields(m, SOURCE)
    columns = b.shape[2]
    state = zero_array((S + 1, columns), np.uint64)
    s_is_larger = zero_array(columns, np.bool_)
    for part in range(ranges.shape[0]):
        steps = length_of(ranges[part, 0], ranges[part, 1], ranges[part, 2])
        for n in range(a.shape[0]):
            for i in range(a.shape[1]):
                for j in range(columns):
                    state[S, j] = out[part, n, i, j]
                    state[COMP, j] = U0
                latest = np.int64(0)
                base = index[0] + n * index[1] + i * index[2]
                for step in range(steps + (steps > 0 and closing.shape[0] > 0)):
                    closes = step == steps
                    table = closing if closes else passes
                    k = ranges[part, 0] + (step - closes) * ranges[part, 2]
                    latest = max(latest, where[k])
                    factor = unpack_wide(a[n, i, k], fa, daz)
                    for r in range(0 if rounds and not closes else 1, table.shape[0] + 1):
                        x_row, y_row, minus, to = TERM, NOTHING, np.int64(0), TERM
                        if r:
                            x_row, y_row, minus, to = pass_of(table, r - 1)
                        fr, mr = format_fields(f if r else fp), rounding_fields(m if r else mp)
                        adds, after_t = x_row == S and y_row != COMP, x_row != S and x_row != TERM
                        site, k_event = np.int64(r > 0), latest if r else where[k]
                        # a rounded product is read as 1 times its code
                        stored = rounds and r
                        left_factor = ONE if stored else factor
                        f_right = format_fields(fp if stored else fb)
                        block, key, second_key = np.int64(-1), U0, U0
                        for j in range(columns):
                            if after_t and not is_finite(state[T, j], f_sum):
                                continue
                            x_from, y_from = chosen(x_row, s_is_larger[j]), chosen(y_row, s_is_larger[j])
                            term = ONE
                            if x_from == TERM or y_from == TERM:
                                code = state[TERM, j] if stored else b[n, k, j]
                                term = product(left_factor, unpack_wide(code, f_right, daz))
                            x = term
                            if x_from != TERM:
                                x = unpack_wide(state[x_from, j], f_sum, daz)
                            y = zero_like(x)
                            if y_from == TERM:
                                y = term
                            elif y_from != NOTHING:
                                y = unpack_wide(state[y_from, j], f_sum, daz)
                            if minus:
                                y = negative(y)
                            random = U0
                            if mr[ROUNDING] == STOCHASTIC:
                                element = base + j * index[3]
                                if element >> 32 != block:
                                    block = element >> 32
                                    key, second_key = keys_of(mr, source, seeds[part], step, r, np.uint64(block))
                                random = draw_at(source, key, second_key, np.uint64(element), mr[RANDOM_BITS])
                            code, events = rounded_sum(x, y, fr, mr, random)
                            if adds:
                                s_is_larger[j] = at_least(x, y)
                                if events & INEXACT and y[0] == FINITE and keeps_value(state[S, j], x, code, f_sum):
                                    events |= ABSORBED
                                if clears and not is_finite(code, f_sum):
                                    state[COMP, j] = U0
                            if np.int64(code) == fr[NAN] and (r == 0 or np.int64(state[S, j]) != fr[NAN]):
                                events |= NEW_NAN
                            state[to, j] = code
                            counts[site, events] += 1
                            place(first, n, i, j, events, k_event)
                    if passes.shape[0] > 1 and not closes:
                        for j in range(columns):
                            state[S, j] = state[T, j]
                for j in range(columns):
                    out[part, n, i, j] = state[S, j]


def sequential(*arguments):
    """s = round(s + x)."""
    in_order(SEQUENTIAL, _NO_PASSES, 0, *arguments)


def kahan(*arguments):
    """y = round(x - comp); t = round(s + y); comp = round(round(t - s) - y), or 0 if t is infinite or NaN; s = t."""
    in_order(KAHAN, _NO_PASSES, 1, *arguments)


def neumaier(*arguments):
    """t = round(s + x); comp = round(comp + round(round(s - t) + x)) if |s| >= |x|, else with s and x exchanged; s = t.

    If t is infinite or NaN, comp stays. In the end s = round(s + comp).
    """
    in_order(NEUMAIER, _NEUMAIER_END, 0, *arguments)


_PROGRAMS = tuple(numba.types.Array(dtype, 1, "C", readonly=True) for dtype in (numba.int32, numba.int8))


@kernel_of(numba.void(*_OPERANDS, *_PRODUCTS, *_PLACES, *_PROGRAMS, numba.int64))
def tree(a, fa, b, fb, out, f, m, fp, mp, ranges, seeds, index, where, counts, first, orders, merges, depth):
    """Sums along a tree. The fourth number of a range is the start of its program in `orders` and `merges` (see
    floatsim/accumulation/trees.py), which holds at most `depth` values at a time. r: 0 of a product at its own step, 1
    of the n-th addition at step n. A single term is rounded as addition 0.
    """
    fa, daz, rounds, source = format_fields(fa), m[DAZ], fp[P] != 0, source_fields(m, SOURCE)
    columns = b.shape[2]
    stack = zero_array((depth, columns), np.uint64)
    leaf = zero_array(depth, np.int64)  # k + 1 of a term, 0 for a sum
    latest = zero_array(depth, np.int64)
    for part in range(ranges.shape[0]):
        terms = length_of(ranges[part, 0], ranges[part, 1], ranges[part, 2])
        for n in range(a.shape[0]):
            for i in range(a.shape[1]):
                base = index[0] + n * index[1] + i * index[2]
                top, adds = -1, 0
                for t in range(terms):
                    step = np.int64(orders[ranges[part, 3] + t])
                    k = ranges[part, 0] + step * ranges[part, 2]
                    top += 1
                    leaf[top], latest[top] = k + 1, where[k]
                    # pass 0 rounds the product, the others add; a single term is added to a zero
                    additions = max(np.int64(merges[ranges[part, 3] + t]), np.int64(terms == 1))
                    for r in range(0 if rounds else 1, 1 + additions):
                        single_operand = r == 0 or terms == 1
                        to = top if single_operand else top - 1
                        k_x, k_y = leaf[to], leaf[top]
                        # a stored sum or rounded product is read as 1 times its code
                        x_product, y_product = k_x and not (rounds and r), k_y and not (rounds and r)
                        left_x = unpack_wide(a[n, i, k_x - 1], fa, daz) if x_product else ONE
                        left_y = unpack_wide(a[n, i, k_y - 1], fa, daz) if y_product else ONE
                        f_x = format_fields(fb if x_product else (fp if k_x else f))
                        f_y = format_fields(fb if y_product else (fp if k_y else f))
                        fr, mr = format_fields(f if r else fp), rounding_fields(m if r else mp)
                        k_event = max(latest[to], latest[top])
                        block, key, second_key = np.int64(-1), U0, U0
                        for j in range(columns):
                            code = b[n, k_x - 1, j] if x_product else stack[to, j]
                            x = product(left_x, unpack_wide(code, f_x, daz))
                            y = zero_like(x)
                            if not single_operand:
                                code = b[n, k_y - 1, j] if y_product else stack[top, j]
                                y = product(left_y, unpack_wide(code, f_y, daz))
                            random = U0
                            if mr[ROUNDING] == STOCHASTIC:
                                element = base + j * index[3]
                                if element >> 32 != block:
                                    block = element >> 32
                                    site_step = adds if r else step
                                    key, second_key = keys_of(
                                        mr, source, seeds[part], site_step, min(r, 1), np.uint64(block)
                                    )
                                random = draw_at(source, key, second_key, np.uint64(element), mr[RANDOM_BITS])
                            code, events = rounded_sum(x, y, fr, mr, random)
                            if not single_operand and events & INEXACT:
                                events |= absorbed(code, x, y, fr) | absorbed(code, y, x, fr)
                            if np.int64(code) == fr[NAN]:
                                known = (k_x == 0 and x[0] >= QUIET_NAN) or (k_y == 0 and y[0] >= QUIET_NAN)
                                if not known:
                                    events |= NEW_NAN
                            stack[to, j] = code
                            counts[np.int64(r > 0), events] += 1
                            place(first, n, i, j, events, k_event)
                        if r:
                            adds += 1
                            top = to
                            leaf[top], latest[top] = 0, k_event
                for j in range(columns):
                    out[part, n, i, j] = stack[0, j] if terms else U0


_LIMB = np.uint64(0xFFFFFFFF)


@inline
def add_to_limbs(limbs, position, sign, hi, lo):
    """Add (hi * 2**64 + lo) * 2**position to limbs of 32 bits, or subtract it; carries are not propagated."""
    at, off = position >> 5, position & 31
    w4 = right(hi, 64 - off) if off else U0
    w23 = left(hi, off) | (right(lo, 64 - off) if off else U0)
    w01 = left(lo, off)
    words = (w01 & _LIMB, right(w01, 32), w23 & _LIMB, right(w23, 32), w4)
    for w in range(5):
        limbs[at + w] += -np.int64(words[w]) if sign else np.int64(words[w])


@inline
def carry(limbs):
    """Bring every limb to 0 .. 2**32 - 1 by carrying upward; the top limb keeps the sign."""
    carried = np.int64(0)
    for i in range(limbs.size):
        carried += limbs[i]
        if i + 1 < limbs.size:
            limbs[i] = carried & 0xFFFFFFFF
            carried >>= 32
        else:
            limbs[i] = carried


@inline
def total_of_limbs(limbs, weight):
    """The sum in the limbs, in units of 2**weight, as an unpacked number. The limbs are overwritten."""
    carry(limbs)
    sign = np.int64(limbs[limbs.size - 1] < 0)
    if sign:
        for i in range(limbs.size):
            limbs[i] = -limbs[i]
        carry(limbs)
    top = limbs.size - 1
    while top >= 0 and limbs[top] == 0:
        top -= 1
    if top < 0:
        return np.int64(ZERO), np.int64(0), np.int64(0), U0, U0
    # five limbs from the top one, which may have only one bit: at least 129 bits
    hi = left(np.uint64(limbs[top]), 32) | np.uint64(limbs[top - 1])
    lo = left(np.uint64(limbs[top - 2]), 32) | np.uint64(limbs[top - 3])
    below = left(np.uint64(limbs[top - 4]), 32)
    e = weight + 32 * (top + 1) - 1 - leading_zeros(hi)
    sticky = U0
    for i in range(top - 4):
        sticky |= np.uint64(limbs[i])
    # shift until bit 62 of hi is the leading one
    s = leading_zeros(hi) - 1
    if s < 0:
        sticky |= (lo & U1) | below
        hi, lo = right(hi, 1), left(hi, 63) | right(lo, 1)
    elif s:
        sticky |= left(below, s)
        hi, lo = left(hi, s) | right(lo, 64 - s), left(lo, s) | right(below, 64 - s)
    else:
        sticky |= below
    return np.int64(FINITE), sign, e, hi, lo | np.uint64(sticky != U0)


@kernel_of(numba.void(*_OPERANDS, *_PLACES, _INTS[1], numba.int64, _CODES, _FIXED[1]))
def exact(a, fa, b, fb, out, f, m, ranges, seeds, index, where, counts, first, limbs, weight, c, fc):
    """The exact sum of the exact products and of c (batch, M, N) of format fc, unless that is empty, rounded once.

    `limbs` is scratch for every sum of fewer than 2**31 terms, 32 bits each, in units of 2**weight. It has at least
    four limbs below the last bit of any term. Step 0, r = 1.
    """
    source = source_fields(m, SOURCE)
    fa, f, m = format_fields(fa), format_fields(f), rounding_fields(m)
    daz, has_c = m[DAZ], np.int64(c.size > 0)
    for part in range(ranges.shape[0]):
        terms = length_of(ranges[part, 0], ranges[part, 1], ranges[part, 2])
        for n in range(a.shape[0]):
            for i in range(a.shape[1]):
                latest = np.int64(0)
                for step in range(terms):
                    latest = max(latest, where[ranges[part, 0] + step * ranges[part, 2]])
                for j in range(b.shape[2] if terms or has_c else 0):
                    limbs[:] = 0
                    nan, invalid, infinite, zeros, finite = False, False, 0, 0, False
                    for with_c in range(1 + has_c):
                        f_right = format_fields(fc if with_c else fb)
                        for step in range(1 if with_c else terms):
                            if with_c:
                                x, code = ONE, c[n, i, j]
                            else:
                                k = ranges[part, 0] + step * ranges[part, 2]
                                x, code = unpack_wide(a[n, i, k], fa, daz), b[n, k, j]
                            y = unpack_wide(code, f_right, daz)
                            kind, sign, e, hi, lo = product(x, y)
                            if kind >= QUIET_NAN:
                                nan |= x[0] >= QUIET_NAN or y[0] >= QUIET_NAN
                                invalid |= kind == SIGNALING_NAN
                            elif kind == INFINITE:
                                infinite |= 2 if sign else 1
                            elif kind == ZERO:
                                zeros |= 2 if sign else 1
                            else:
                                finite = True
                                add_to_limbs(limbs, e - 126 - weight, sign, hi, lo)
                    # the sum as x + y, to be rounded as all others
                    x = total_of_limbs(limbs, weight)
                    y = zero_like(x)
                    if nan or invalid or infinite == 3:
                        kind = np.int64(SIGNALING_NAN if invalid or not nan else QUIET_NAN)
                        x = (kind, np.int64(0), np.int64(0), U0, U0)
                    elif infinite:
                        x = (np.int64(INFINITE), np.int64(infinite == 2), np.int64(0), U0, U0)
                    elif x[0] == ZERO:
                        minus = zeros == 2 and not finite
                        minus |= m[ROUNDING] == TOWARD_NEGATIVE and (finite or zeros == 3)
                        x = (np.int64(ZERO), np.int64(minus), np.int64(0), U0, U0)
                        y = zero_like(x)
                    random = U0
                    if m[ROUNDING] == STOCHASTIC:
                        element = index[0] + n * index[1] + i * index[2] + j * index[3]
                        key, second_key = keys_of(m, source, seeds[part], 0, 1, np.uint64(element >> 32))
                        random = draw_at(source, key, second_key, np.uint64(element), m[RANDOM_BITS])
                    code, events = rounded_sum(x, y, f, m, random)
                    if np.int64(code) == f[NAN]:
                        events |= NEW_NAN
                    out[part, n, i, j] = code
                    counts[SUM, events] += 1
                    place(first, n, i, j, events, latest)
                if not (terms or has_c):
                    out[part, n, i, :] = U0
