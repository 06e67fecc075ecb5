"""Sums of matrix instructions on integers: every model, every number, and all events.

floatsim/reference/tensorcore/nvidia.py and amd.py define the models. Operands arrive as signed significands and the
exponents by which they are aligned, int64 each: a (batch, M, K) and b (batch, K, N), from `significands`. Zeros,
infinities and NaNs have exponents outside the range of the others: NONE, INFINITE, QUIET and SIGNALING. `out` (ranges,
batch, M, N) holds codes of D's format, and c on entry. Every rounding of D counts one event byte in counts[SUM];
`where`, `counts` and `first` are as in gemm/integer.py.
"""

import numba
import numpy as np

from ..elementwise.scalar_ops import exact_sum
from ..gemm.integer import NEW_NAN, SUM, absorbed, place, product, rounded_sum, unpack_wide
from ..rounding.integer import (
    ABSORBED,
    EMIN,
    FINITE,
    FLUSHED,
    INEXACT,
    INF,
    INVALID,
    OVERFLOWED,
    QUIET_NAN,
    SIGN,
    SIGNALING_NAN,
    U0,
    U1,
    UNDERFLOW,
    ZERO,
    P,
    format_fields,
    infinity_code,
    left,
    right,
    round_pack,
    rounding_fields,
    unpack,
)
from ..rounding.integer import (
    INFINITE as INFINITE_KIND,
)
from ..runtime.intrinsics import leading_zeros, zero_array
from ..runtime.jit import inline, kernel_of

NONE, INFINITE, QUIET, SIGNALING = -(1 << 20), 1 << 20, 1 << 21, 1 << 22
_BELOW, _BEYOND = NONE // 2, INFINITE // 2

MODEL_FIELDS = (
    "terms", "k", "fraction_bits", "floor", "factor_bits", "scale_bits", "widened", "group", "halves", "apart",
)  # fmt: skip
TERMS, K, FRACTION, FLOOR, FACTOR, SCALE, WIDENED, GROUP, HALVES, APART = range(10)
"""Terms of a block and of an instruction; fraction bits that are kept; the least exponent; fraction bits of the
significand of a product and of a scale; bits by which the codes of the block's grid are shorter than D's; terms of a
group, or 0; whether D is computed in two halves; whether even and odd products are summed apart, or whether an exact
sum of negative zeros is negative."""


@inline
def significand(code, f):
    """(signed significand with p - 1 fraction bits, exponent) of a code."""
    kind, sign, e, hi = unpack(code, f, np.int64(0))
    if kind == ZERO:
        return np.int64(0), np.int64(NONE)
    if kind == FINITE:
        exponent = max(e, f[EMIN])
        s = np.int64(right(hi, 63 - f[P] + exponent - e))
        return (-s if sign else s), exponent
    if kind == INFINITE_KIND:
        return np.int64(1 - 2 * sign), np.int64(INFINITE)
    return np.int64(0), np.int64(SIGNALING if kind == SIGNALING_NAN else QUIET)


@kernel_of(
    numba.void(
        numba.types.Array(numba.uint64, 3, "A", readonly=True), numba.types.Array(numba.int64, 1, "C", readonly=True),
        numba.types.Array(numba.int64, 3, "C"), numba.types.Array(numba.int64, 3, "C"),
    )
)  # fmt: skip
def significands(codes, f, significand_out, exponent_out):
    """Write the signed significands and the exponents of codes."""
    f = format_fields(f)
    for n in range(codes.shape[0]):
        for i in range(codes.shape[1]):
            for k in range(codes.shape[2]):
                s, e = significand(codes[n, i, k], f)
                significand_out[n, i, k], exponent_out[n, i, k] = s, e


# -- infinities and NaNs -----------------------------------------------------------------------------------------------

_PLUS, _MINUS, _QUIET, _SIGNALING = 1, 2, 4, 8


@inline
def special_product(sa, ea, sb, eb):
    """The bit of a product that contains an infinity or a NaN."""
    if ea == SIGNALING or eb == SIGNALING:
        return _SIGNALING
    if ea == QUIET or eb == QUIET:
        return _QUIET
    if sa == 0 or sb == 0:
        return _SIGNALING
    return _MINUS if (sa < 0) != (sb < 0) else _PLUS


@inline
def special_term(s, e):
    """The bit of a term that is an infinity or a NaN."""
    if e == INFINITE:
        return _MINUS if s < 0 else _PLUS
    return _SIGNALING if e == SIGNALING else _QUIET


@inline
def special_result(specials, f, nan):
    """(code, events) of a sum that contains infinities or NaNs; `specials` is the union of their bits."""
    if specials & (_QUIET | _SIGNALING) or specials == _PLUS | _MINUS:
        quiet = specials & _QUIET and not specials & _SIGNALING
        return nan, np.int64(0 if quiet else INVALID)
    return infinity_code(np.int64(specials == _MINUS), f), np.int64(0)


# -- cutting and rounding ----------------------------------------------------------------------------------------------


@inline
def cut(s, shift):
    """(s * 2**shift truncated toward zero, events)."""
    if shift >= 0 or s == 0:
        return s << max(shift, 0), np.int64(0)
    n = min(-shift, 63)
    magnitude = abs(s)
    kept = magnitude >> n
    events = np.int64(0)
    if kept << n != magnitude:
        events = np.int64(INEXACT if kept else INEXACT | ABSORBED)
    return (-kept if s < 0 else kept), events


@inline
def cut_down(s, shift):
    """s * 2**shift, rounded toward negative."""
    return s << shift if shift >= 0 else s >> min(-shift, 63)


@inline
def rounded(total, quantum, f, m):
    """(code, events) of total * 2**quantum, not zero."""
    magnitude = np.uint64(abs(total))
    spare = leading_zeros(magnitude)
    return round_pack(np.int64(total < 0), 63 - spare + quantum, left(magnitude, spare - 1), U0, f, m, U0)


@inline
def count_event(code, events, c, nan, f, n, i, j, k, counts, first):
    """Count one rounding of D; `c` is the accumulator before it."""
    magnitude = left(U1, f[SIGN]) - U1
    if (code & magnitude) > np.uint64(f[INF]) and (c & magnitude) <= np.uint64(f[INF]):
        events |= NEW_NAN
    counts[SUM, events] += 1
    place(first, n, i, j, events, k)


@inline
def last_of(where, start, first, stop):
    """The largest original index in a block; if zeros fill the block, in its instruction."""
    latest = np.int64(0)
    for k in range(start, stop):
        if k <= max(first, start):
            latest = max(latest, where[k])
    return latest


# -- NVIDIA ------------------------------------------------------------------------------------------------------------

_OPERAND = numba.types.Array(numba.int64, 3, "C", readonly=True)
_PARAMS = numba.types.Array(numba.int64, 1, "C", readonly=True)
_OUT = numba.types.Array(numba.uint64, 4, "C")
_TAIL = (
    numba.types.Array(numba.int64, 2, "C", readonly=True), _PARAMS, numba.types.Array(numba.int64, 2, "C"),
    numba.types.Array(numba.int64, 4, "C"),
)  # fmt: skip


@inline
def block(ts, te, size, specials, term_bits, c, model, grid_format, m, fd, nan):
    """(code, events) of one block: terms ts * 2**(te - term_bits) and the code c."""
    cs, ce = significand(c, fd)
    if ce > _BEYOND:
        specials |= special_term(cs, ce)
    if specials:
        return special_result(specials, fd, nan)
    top = max(model[FLOOR], ce)
    for t in range(size):
        top = max(top, te[t])
    total, events = cut(cs, model[FRACTION] - (fd[P] - 1) + ce - top)
    any_kept = total != 0
    for t in range(size):
        kept, lost = cut(ts[t], model[FRACTION] - term_bits + te[t] - top)
        total += kept
        events |= lost
        any_kept |= kept != 0
    if events & ABSORBED and not any_kept:
        return U0, events | FLUSHED | UNDERFLOW
    if total == 0:
        return U0, events
    code, rounding_events = rounded(total, top - model[FRACTION], grid_format, m)
    if rounding_events & OVERFLOWED:
        code = infinity_code(np.int64(total < 0), grid_format)
    if code & (left(U1, grid_format[SIGN]) - U1) == U0:
        code = U0
    return left(code, model[WIDENED]), events | rounding_events


@inline
def product_term(sa, ea, sb, eb):
    """(significand, exponent, special bits) of a product."""
    if ea > _BEYOND or eb > _BEYOND:
        return np.int64(0), np.int64(NONE), np.int64(special_product(sa, ea, sb, eb))
    if ea < _BELOW or eb < _BELOW:
        return np.int64(0), np.int64(NONE), np.int64(0)
    return sa * sb, ea + eb, np.int64(0)


@kernel_of(numba.void(*[_OPERAND] * 8, _OUT, *[_PARAMS] * 5, *_TAIL))
def fused(
    sa, ea, sb, eb, scale_sa, scale_ea, scale_sb, scale_eb, out, model, grid_format, fd, rounding_params, to_even,
    ranges, where, counts, first,
):  # fmt: skip
    """Fused blocks, grouped blocks, or blocks in two halves.

    There is one scale for each group; or one for each block, which is already in its products, except for NaNs.
    """
    grid_format, fd, m, even = (
        format_fields(grid_format),
        format_fields(fd),
        rounding_fields(rounding_params),
        rounding_fields(to_even),
    )
    model = (
        model[0], model[1], model[2], model[3], model[4], model[5], model[6], model[7], model[8], model[9],
    )  # fmt: skip
    nan = left(U1, fd[SIGN]) - U1
    ts, te = zero_array(64, np.int64), zero_array(64, np.int64)
    bits = model[FACTOR] + model[SCALE]
    for part in range(ranges.shape[0]):
        range_start, range_stop = ranges[part, 0], ranges[part, 1]
        for n in range(sa.shape[0]):
            for i in range(sa.shape[1]):
                for j in range(sb.shape[2]):
                    c = out[part, n, i, j]
                    for start in range(range_start, range_stop, model[K]):
                        stop = min(start + model[K], range_stop)
                        code = U0 if model[HALVES] else c
                        for at in range(0, model[K], model[TERMS]):
                            specials, size = np.int64(0), np.int64(0)
                            k0 = start if model[HALVES] else start + at
                            k1 = stop if model[HALVES] else min(k0 + model[TERMS], stop)
                            if model[GROUP]:
                                for g in range(k0, k1, model[GROUP]):
                                    ts[size], te[size], special = group_term(
                                        sa, ea, sb, eb, scale_sa, scale_ea, scale_sb, scale_eb, n, i, j, g,
                                        min(g + model[GROUP], k1), model[GROUP],
                                    )  # fmt: skip
                                    specials |= special
                                    size += 1
                            else:
                                for k in range(k0, k1):
                                    if model[HALVES] and ((k - start) % 4 < 2) != (at == 0):
                                        continue
                                    p = product_term(sa[n, i, k], ea[n, i, k], sb[n, k, j], eb[n, k, j])
                                    ts[size], te[size] = p[0], p[1]
                                    specials |= p[2]
                                    size += 1
                                if scale_ea.size:
                                    scale = max(scale_ea[n, i, k0 // model[TERMS]], scale_eb[n, k0 // model[TERMS], j])
                                    if scale > _BEYOND:
                                        specials |= special_term(np.int64(0), scale)
                            old = code
                            code, events = block(ts, te, size, specials, bits, old, model, grid_format, m, fd, nan)
                            latest = last_of(where, start, stop - 1 if model[HALVES] else k0 + model[TERMS] - 1, stop)
                            count_event(code, events, old, nan, fd, n, i, j, latest, counts, first)
                        if model[HALVES]:
                            x, y = unpack_wide(code, fd, np.int64(0)), unpack_wide(c, fd, np.int64(0))
                            old = code
                            code, events = rounded_sum(x, y, fd, even, U0)
                            events |= absorbed(code, x, y, fd) | absorbed(code, y, x, fd)
                            if code & nan > np.uint64(fd[INF]):
                                code = nan
                            count_event(
                                code, events, old, nan, fd, n, i, j, last_of(where, start, stop, stop), counts, first
                            )
                        c = code
                    out[part, n, i, j] = c


@inline
def group_term(sa, ea, sb, eb, scale_sa, scale_ea, scale_sb, scale_eb, n, i, j, start, stop, group):
    """(significand, exponent, special bits) of a group: the sum of its products times its scales."""
    g = start // group
    es, et = scale_ea[n, i, g], scale_eb[n, g, j]
    if es > _BEYOND or et > _BEYOND:
        return np.int64(0), np.int64(NONE), np.int64(_SIGNALING if es == SIGNALING or et == SIGNALING else _QUIET)
    total, any_product = np.int64(0), False
    for k in range(start, stop):
        e = ea[n, i, k] + eb[n, k, j]
        if e > _BELOW:
            total += (sa[n, i, k] * sb[n, k, j]) << e  # exponents of FP4 products are not negative
            any_product = True
    if not any_product or es < _BELOW or et < _BELOW:
        return np.int64(0), np.int64(NONE), np.int64(0)
    return total * scale_sa[n, i, g] * scale_sb[n, g, j], es + et, np.int64(0)


# -- AMD ---------------------------------------------------------------------------------------------------------------


@inline
def late_sum(ts, te, size, first, step, bits, keeps):
    """(sum, exponent, events) of every `step`-th term from `first` on, truncated to `keeps` fraction bits."""
    top = np.int64(NONE)
    for t in range(first, size, step):
        top = max(top, te[t])
    total, events, any_kept = np.int64(0), np.int64(0), False
    for t in range(first, size, step):
        kept, lost = cut(ts[t], keeps - bits + te[t] - top)
        total += kept
        events |= lost
        any_kept |= kept != 0
    if events & ABSORBED and not any_kept:
        events |= FLUSHED | UNDERFLOW
    return total, top, events


@inline
def join(total, top, cs, ce, bits, model, fd, m):
    """(code, events) of c plus the products' sum, total * 2**(top - fraction bits); both are rounded toward
    negative."""
    at = max(ce, fd[EMIN])
    e = max(top, at)
    keeps, sum_bits = model[FRACTION], model[FLOOR]
    fine = e - sum_bits - 1
    x = cut_down(total, top - keeps - fine)
    y = cut_down(cs, at - (fd[P] - 1) - (e - keeps))
    if model[APART] and at < e - keeps - 1:
        y = np.int64(0)
    joined = x + (y << (sum_bits + 1 - keeps))
    if joined == 0:
        return U0, np.int64(0)
    lowest = max(fine + 63 - leading_zeros(np.uint64(abs(joined))), fd[EMIN]) - sum_bits
    kept = cut_down(joined, fine - lowest)
    if kept == 0:
        return U0, np.int64(0)
    return rounded(kept, lowest, fd, m)


@kernel_of(numba.void(*[_OPERAND] * 4, _OUT, *[_PARAMS] * 3, *_TAIL))
def late(sa, ea, sb, eb, out, model, fd, rounding_params, ranges, where, counts, first):
    """Blocks that add c after the products. FLOOR holds the fraction bits of the normalized sum."""
    fd, m = format_fields(fd), rounding_fields(rounding_params)
    nan = np.uint64(fd[INF]) | left(U1, fd[P] - 2)
    size = model[TERMS]
    ts, te = zero_array(size, np.int64), zero_array(size, np.int64)
    for part in range(ranges.shape[0]):
        range_start, range_stop = ranges[part, 0], ranges[part, 1]
        for n in range(sa.shape[0]):
            for i in range(sa.shape[1]):
                for j in range(sb.shape[2]):
                    c = out[part, n, i, j]
                    for start in range(range_start, range_stop, model[K]):
                        stop = min(start + model[K], range_stop)
                        for k0 in range(start, start + model[K], size):
                            specials = np.int64(0)
                            for t in range(size):
                                ts[t], te[t] = 0, NONE
                                if k0 + t < stop:
                                    k = k0 + t
                                    s, e, special = product_term(sa[n, i, k], ea[n, i, k], sb[n, k, j], eb[n, k, j])
                                    if s != 0 and e - model[FACTOR] + 64 - leading_zeros(np.uint64(abs(s))) > 128:
                                        special = np.int64(_MINUS if s < 0 else _PLUS)
                                        s, e = np.int64(0), np.int64(NONE)
                                    ts[t], te[t] = s, e
                                    specials |= special
                            cs, ce = significand(c, fd)
                            if ce > _BEYOND:
                                specials |= special_term(cs, ce)
                            old = c
                            if specials:
                                c, events = special_result(specials, fd, nan)
                            else:
                                total, top, events = late_sum(
                                    ts, te, size, 0, 2 if model[APART] else 1, model[FACTOR], model[FRACTION]
                                )
                                if model[APART]:
                                    odd, top_odd, other_events = late_sum(
                                        ts, te, size, 1, 2, model[FACTOR], model[FRACTION]
                                    )
                                    both = max(top, top_odd)
                                    total = cut_down(total, top - both) + cut_down(odd, top_odd - both)
                                    top, events = both, events | other_events
                                c, other_events = join(total, top, cs, ce, model[FACTOR], model, fd, m)
                                events |= other_events
                            latest = last_of(where, start, k0 + size - 1, stop)
                            count_event(c, events, old, nan, fd, n, i, j, latest, counts, first)
                    out[part, n, i, j] = c


_CODES = numba.types.Array(numba.uint64, 3, "A", readonly=True)

CHAIN, EXACT, FLUSHED_TREE = range(3)

_FAR_APART = 100  # binades: two numbers of 24 bits that are closer fill at most 126 bits


@inline
def zero_term():
    return np.int64(ZERO), np.int64(0), np.int64(0), U0, U0


@inline
def unpacked_sum(x, y):
    """x + y, exact except for a sticky bit; a zero is positive."""
    if x[0] == ZERO:
        return y
    if y[0] == ZERO:
        return x
    s, e, hi, lo = exact_sum(x[1], x[2], x[3], x[4], y[1], y[2], y[3], y[4])
    if hi == U0:
        return zero_term()
    return np.int64(FINITE), s, e, hi, lo


@inline
def flushed_operand(code, f):
    """An operand whose subnormal numbers and zeros of both signs are +0."""
    x = unpack_wide(code, f, np.int64(1))
    return zero_term() if x[0] == ZERO else x


@inline
def sum_of_flushed(x, y, f, m):
    code, events = rounded_sum(x, y, f, m, U0)
    x_left, y_left = absorbed(code, y, x, f), absorbed(code, x, y, f)
    return unpack_wide(code, f, np.int64(0)), events | x_left | y_left


@kernel_of(numba.void(numba.int64, _CODES, _PARAMS, _CODES, _PARAMS, _OUT, *[_PARAMS] * 3, *_TAIL))
def ieee(kind, a, fa, b, fb, out, model, fd, rounding_params, ranges, where, counts, first):
    """Models of IEEE operations, on codes: chains of fused multiply-adds, exact blocks, trees that flush."""
    fa, fb, fd, m = format_fields(fa), format_fields(fb), format_fields(fd), rounding_fields(rounding_params)
    nan = np.uint64(fd[INF]) | left(U1, fd[P] - 2)
    size = model[TERMS]
    for part in range(ranges.shape[0]):
        range_start, range_stop = ranges[part, 0], ranges[part, 1]
        for n in range(a.shape[0]):
            for i in range(a.shape[1]):
                for j in range(b.shape[2]):
                    c = out[part, n, i, j]
                    for start in range(range_start, range_stop, model[K]):
                        stop = min(start + model[K], range_stop)
                        for k0 in range(start, start + model[K], size):
                            old, events = c, np.int64(0)
                            if kind == FLUSHED_TREE:
                                even, odd = zero_term(), zero_term()
                                for pair in range(0, size, 2):
                                    odd = even
                                    x, y = zero_term(), zero_term()
                                    for t in range(2):
                                        k = k0 + pair + t
                                        p = zero_term()
                                        if k < stop:
                                            u, v = flushed_operand(a[n, i, k], fa), flushed_operand(b[n, k, j], fb)
                                            p = product(u, v)
                                        p = p[0], p[1], p[2], p[3], p[4]
                                        # a single product is rounded as its sum with a zero of its own sign
                                        like = np.int64(ZERO), p[1], np.int64(0), U0, U0
                                        code, other_events = rounded_sum(p, like, fd, m, U0)
                                        events |= other_events
                                        if t:
                                            y = unpack_wide(code, fd, np.int64(0))
                                        else:
                                            x = unpack_wide(code, fd, np.int64(0))
                                    even, other_events = sum_of_flushed(x, y, fd, m)
                                    events |= other_events
                                if size == 4:
                                    even, other_events = sum_of_flushed(odd, even, fd, m)
                                    events |= other_events
                                x = flushed_operand(c, fd)
                                c, other_events = rounded_sum(x, even, fd, m, U0)
                                events |= other_events | absorbed(c, x, even, fd) | absorbed(c, even, x, fd)
                            elif kind == CHAIN:
                                x, p = unpack_wide(c, fd, np.int64(0)), zero_term()
                                if k0 < stop:
                                    p = product(
                                        unpack_wide(a[n, i, k0], fa, np.int64(0)),
                                        unpack_wide(b[n, k0, j], fb, np.int64(0)),
                                    )
                                c, events = rounded_sum(p, x, fd, m, U0)
                                events |= absorbed(c, x, p, fd)
                            else:
                                c, events = exact_block(
                                    a, fa, b, fb, c, fd, m, n, i, j, k0, min(k0 + size, stop), nan, model
                                )
                            latest = last_of(where, start, k0 + size - 1, stop)
                            count_event(c, events, old, nan, fd, n, i, j, latest, counts, first)
                    out[part, n, i, j] = c


@inline
def exact_block(a, fa, b, fb, c, fd, m, n, i, j, start, stop, nan, model):
    """The exact sum of c and four products of FP16, two of BF16 or eight of FP8, rounded once.

    A zero is positive, or with APART negative if all terms are negative zeros.

    126 bits hold four products of FP16 and c, and eight of FP8. Of two products of BF16 and c, the two largest are
    added first: a number that then becomes part of the sticky bit is too small to matter after any cancellation.
    """
    total = unpack_wide(c, fd, np.int64(0))
    kinds, signs = np.int64(total[0]), np.int64(0)
    if total[0] == INFINITE_KIND:
        signs = np.int64(1 << total[1])
    x, y = zero_term(), zero_term()
    minus = model[APART] and total[0] == ZERO and total[1] == 1 and stop - start == model[TERMS]
    for k in range(start, stop):
        p = product(unpack_wide(a[n, i, k], fa, np.int64(0)), unpack_wide(b[n, k, j], fb, np.int64(0)))
        kinds = max(kinds, p[0])
        minus = minus and p[0] == ZERO and p[1] == 1
        if p[0] == INFINITE_KIND:
            signs |= np.int64(1 << p[1])
        if p[0] == FINITE and (stop - start > 2 or k == start):
            x = unpacked_sum(x, p)
        elif p[0] == FINITE:
            y = p
    if kinds >= QUIET_NAN:
        return nan, np.int64(INVALID if kinds == SIGNALING_NAN else 0)
    if kinds == INFINITE_KIND:
        return (nan, np.int64(INVALID)) if signs == 3 else (infinity_code(signs >> 1, fd), np.int64(0))
    if x[0] == FINITE and y[0] == FINITE and total[0] == FINITE:
        if x[2] < y[2]:
            x, y = y, x
        if y[2] < total[2]:
            y, total = total, y
        if x[2] < y[2]:
            x, y = y, x
        if x[2] - y[2] > _FAR_APART:
            total, y = unpacked_sum(y, total), zero_term()
    x = unpacked_sum(x, y)
    total = unpacked_sum(x, total)
    if total[0] == ZERO:
        return left(np.uint64(minus), fd[SIGN]), np.int64(0)
    return round_pack(total[1], total[2], total[3], total[4], fd, m, U0)
