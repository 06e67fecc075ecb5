"""Scalar operations on unpacked numbers: exact except for a sticky bit, then rounded once by `round_pack`.

Each operation takes codes with the parameters of their formats and returns (code, events), as
floatsim/reference/scalar.py does.
"""

import math

import numpy as np

from ..rounding.integer import (
    ABSORBED,
    DAZ,
    DIVIDE_BY_ZERO,
    EMIN,
    FINITE,
    INEXACT,
    INFINITE,
    INVALID,
    MAX,
    NAN,
    NO_EXPONENT,
    OVERFLOW,
    QUIET_NAN,
    RANDOM_BITS,
    ROUNDING,
    SATURATE_FINITE,
    SCALE,
    SIGN,
    SIGNALING_NAN,
    SIGNED_ZERO,
    STOCHASTIC,
    TOWARD_NEGATIVE,
    U0,
    U1,
    ZERO,
    P,
    infinity_code,
    left,
    nan_code,
    right,
    round_at,
    round_pack,
    round_pack_scale,
    signed_code,
    unpack,
    zero_code,
)
from ..runtime.intrinsics import leading_zeros, multiply_high
from ..runtime.jit import inline
from ..runtime.uint128 import add_signed_wide, leading_zeros_wide, shift_left, shift_right_jam


@inline
def normalize(hi, lo, e):
    """Shift (hi, lo), hi below 2**63, left until bit 62 of hi is set; zero stays zero."""
    s = leading_zeros_wide(hi, lo) - 1
    hi, lo = shift_left(hi, lo, s)
    return hi, lo, e - s


@inline
def jam(x, n):
    """x >> n, the last bit set if any bit was lost."""
    n = min(n, 63)
    shifted = right(x, n)
    return shifted | np.uint64(left(shifted, n) != x)


@inline
def add_signed(sa, a, sb, b):
    """(sign, magnitude) of the sum of two numbers with signs 0 or 1 and magnitudes below 2**62."""
    total = (np.int64(a) ^ -sa) + sa + (np.int64(b) ^ -sb) + sb
    s = np.int64(total < 0)
    return s, np.uint64((total ^ -s) + s)


@inline
def exact_sum(sa, ea, ha, la, sb, eb, hb, lb):
    """(sign, e, hi, lo) of a sum of two finite numbers that are exact; hi = 0 when it is zero."""
    e = max(ea, eb) + 1  # room for a carry
    ha, la = shift_right_jam(ha, la, e - ea)
    hb, lb = shift_right_jam(hb, lb, e - eb)
    s, hi, lo = add_signed_wide(sa, ha, la, sb, hb, lb)
    hi, lo, e = normalize(hi, lo, e)
    return s, e, hi, lo


@inline
def narrow_sum(sa, ea, a, sb, eb, b):
    """(sign, e, hi) of `exact_sum` for numbers of at most 55 bits, where no random bits read further bits."""
    e = max(ea, eb) + 1
    s, hi = add_signed(sa, jam(a, e - ea), sb, jam(b, e - eb))
    shift = leading_zeros(hi) - 1
    return s, e - shift, left(hi, shift)


@inline
def unpack_wide(code, f, daz):
    """(kind, sign, e, hi, lo) of a code."""
    k, s, e, h = unpack(code, f, daz)
    return k, s, e, h, U0


@inline
def negative(x):
    return x[0], x[1] ^ 1, x[2], x[3], x[4]


@inline
def same(x, y):
    """Whether two finite numbers are equal; zeros of both signs are equal."""
    return x[0] == y[0] and (
        x[0] == ZERO or (x[0] == FINITE and x[1] == y[1] and x[2] == y[2] and x[3] == y[3] and x[4] == y[4])
    )


@inline
def product(x, y):
    """x * y, unpacked. inf * 0 is a signaling NaN: its use raises INVALID."""
    kx, ky, sign = x[0], y[0], x[1] ^ y[1]
    if kx > FINITE or ky > FINITE:
        kind = np.int64(max(kx, ky))
        if kind == INFINITE and (kx == ZERO or ky == ZERO):
            kind = np.int64(SIGNALING_NAN)
        return kind, sign, x[2], U0, U0
    hi, lo = multiply_high(x[3], y[3]), x[3] * y[3]
    s = leading_zeros(hi) - 1  # 1 or 2; 63 for a zero
    return np.int64(min(kx, ky)), sign, x[2] + y[2] + 2 - s, left(hi, s) | right(lo, 64 - s), left(lo, s)


@inline
def nan_events(ka, kb):
    """INVALID if an operand is a signaling NaN."""
    return np.int64(INVALID if ka == SIGNALING_NAN or kb == SIGNALING_NAN else 0)


@inline
def rounded_sum(x, y, f, m, random):
    """(code, events) of x + y, exact numbers, rounded; absorption is not counted."""
    if x[0] > FINITE or y[0] > FINITE:
        if x[0] >= QUIET_NAN or y[0] >= QUIET_NAN:
            return nan_code(f, nan_events(x[0], y[0]))
        if x[0] == y[0] and x[1] != y[1]:
            return nan_code(f, np.int64(INVALID))
        return infinity_code(x[1] if x[0] == INFINITE else y[1], f), np.int64(0)
    ex, ey = NO_EXPONENT if x[0] == ZERO else x[2], NO_EXPONENT if y[0] == ZERO else y[2]
    if m[ROUNDING] != STOCHASTIC and (x[4] | y[4] | ((x[3] | y[3]) & np.uint64(0xFF))) == U0:
        s, e, hi = narrow_sum(x[1], ex, x[3], y[1], ey, y[3])
        lo = U0
    else:
        s, e, hi, lo = exact_sum(x[1], ex, x[3], x[4], y[1], ey, y[3], y[4])
    if hi == U0:
        return zero_code(x[1] if x[1] == y[1] else np.int64(m[ROUNDING] == TOWARD_NEGATIVE), f), np.int64(0)
    return round_pack(s, e, hi, lo, f, m, random)


@inline
def add(a, fa, b, fb, negate, f, m, random):
    """a + b, or a - b with negate = 1."""
    x, y = unpack_wide(a, fa, m[DAZ]), unpack_wide(b, fb, m[DAZ])
    if negate:
        y = negative(y)
    code, events = rounded_sum(x, y, f, m, random)
    if events & INEXACT:  # an exact sum is neither operand, unless the other is zero
        result = unpack_wide(code, f, np.int64(0))
        if (same(result, x) and y[0] != ZERO) or (same(result, y) and x[0] != ZERO):
            events |= ABSORBED
    return code, events


@inline
def multiply(a, fa, b, fb, f, m, random):
    k, s, e, hi, lo = product(unpack_wide(a, fa, m[DAZ]), unpack_wide(b, fb, m[DAZ]))
    if k >= QUIET_NAN:
        return nan_code(f, nan_events(k, k))
    if k == INFINITE:
        return infinity_code(s, f), np.int64(0)
    if k == ZERO:
        return zero_code(s, f), np.int64(0)
    return round_pack(s, e, hi, lo, f, m, random)


@inline
def working_bits(f, m):
    """Quotient or root bits that decide any rounding into f, given a sticky bit below them."""
    return f[P] + 2 + (m[RANDOM_BITS] if m[ROUNDING] == STOCHASTIC else 0)


@inline
def divide(a, fa, b, fb, f, m, random):
    ka, sa, ea, ha = unpack(a, fa, m[DAZ])
    kb, sb, eb, hb = unpack(b, fb, m[DAZ])
    sign = sa ^ sb
    if ka >= QUIET_NAN or kb >= QUIET_NAN:
        return nan_code(f, nan_events(ka, kb))
    if ka == kb and (ka == INFINITE or ka == ZERO):
        return nan_code(f, np.int64(INVALID))
    if ka == INFINITE:
        return infinity_code(sign, f), np.int64(0)
    if kb == ZERO:
        return infinity_code(sign, f), np.int64(DIVIDE_BY_ZERO)
    if kb == INFINITE or ka == ZERO:
        return zero_code(sign, f), np.int64(0)
    # long division with as many bits a step as fit: the remainder has at most the width of the divisor
    width = max(fa[P], fb[P])
    residue, divisor = right(ha, 63 - width), right(hb, 63 - width)
    hi, lo = U0, np.uint64(residue >= divisor)
    if residue >= divisor:
        residue -= divisor
    done, needed = np.int64(0), working_bits(f, m)
    while done < needed:
        step = min(64 - width, 126 - done)
        digit = left(residue, step) // divisor
        residue = left(residue, step) - digit * divisor
        hi, lo = left(hi, step) | right(lo, 64 - step), left(lo, step) | digit
        done += step
    hi, lo, e = normalize(hi, lo, ea - eb + 126 - done)
    return round_pack(sign, e, hi, lo | np.uint64(residue != U0), f, m, random)


@inline
def root_of_64_bits(radicand):
    """floor(sqrt(radicand)) and the remainder, for 2**62 <= radicand < 2**64."""
    root = np.uint64(min(math.sqrt(np.float64(radicand)), 4294967295.0))
    while root * root > radicand:  # the float root may be one off in any rounding mode
        root -= U1
    while radicand - root * root > root + root:
        root += U1
    return root, radicand - root * root


@inline
def sqrt(a, fa, f, m, random):
    k, s, e, h = unpack(a, fa, m[DAZ])
    if k >= QUIET_NAN:
        return nan_code(f, nan_events(k, k))
    if k == ZERO:
        return zero_code(s, f), np.int64(0)
    if s:
        return nan_code(f, np.int64(INVALID))
    if k == INFINITE:
        return infinity_code(s, f), np.int64(0)
    radicand = left(h, e & 1)
    needed = working_bits(f, m)
    if needed <= 62:
        root, residue = root_of_64_bits(radicand)
        hi, lo, inexact = left(root, 31), U0, residue != U0
        if needed > 31 and inexact:
            # 32 more bits from the remainder: q = rest * 2**32 / (2 * root), at most a little too large
            q = left(residue, 31) // root
            u = left(residue, 31) - q * root
            while right(q, 32) != U0 or (right(u, 31) == U0 and left(u, 33) < q * q):
                q -= U1
                u += root
            full = left(root, 32) | q
            hi, lo, inexact = right(full, 1), left(full, 63), right(u, 31) != U0 or left(u, 33) != q * q
        e >>= 1
    else:
        # bit by bit: residue and trial stay below 2**122
        root_hi, root_lo, residue_hi, residue_lo = U0, U0, U0, U0
        for i in range(needed):
            two = right(radicand, 62 - 2 * i) & np.uint64(3) if i < 32 else U0
            residue_hi, residue_lo = left(residue_hi, 2) | right(residue_lo, 62), left(residue_lo, 2) | two
            trial_hi, trial_lo = left(root_hi, 2) | right(root_lo, 62), left(root_lo, 2) | U1
            root_hi, root_lo = left(root_hi, 1) | right(root_lo, 63), left(root_lo, 1)
            if residue_hi > trial_hi or (residue_hi == trial_hi and residue_lo >= trial_lo):
                residue_hi = residue_hi - trial_hi - np.uint64(residue_lo < trial_lo)
                residue_lo -= trial_lo
                root_lo |= U1
        hi, lo, e = normalize(root_hi, root_lo, (e >> 1) + 127 - needed)
        inexact = residue_hi != U0 or residue_lo != U0
    return round_pack(s, e, hi, lo | np.uint64(inexact), f, m, random)


@inline
def fma(a, fa, b, fb, c, fc, f, m, random):
    """a * b + c, rounded once. inf * 0 + NaN raises INVALID."""
    x = product(unpack_wide(a, fa, m[DAZ]), unpack_wide(b, fb, m[DAZ]))
    y = unpack_wide(c, fc, m[DAZ])
    code, events = rounded_sum(x, y, f, m, random)
    if events & INEXACT and x[0] != ZERO and same(unpack_wide(code, f, np.int64(0)), y):
        events |= ABSORBED
    return code, events


@inline
def remainder(a, fa, b, fb, to_nearest, f, m, random):
    """a - n*b: n = a/b to nearest, ties to even (to_nearest = 1), or truncated (0)."""
    ka, sa, ea, ha = unpack(a, fa, m[DAZ])
    kb, _, eb, hb = unpack(b, fb, m[DAZ])
    if ka >= QUIET_NAN or kb >= QUIET_NAN:
        return nan_code(f, nan_events(ka, kb))
    if ka == INFINITE or kb == ZERO:
        return nan_code(f, np.int64(INVALID))
    if ka == ZERO:
        return zero_code(sa, f), np.int64(0)
    d = ea - eb
    if kb == INFINITE or d < -1 or (d == -1 and (not to_nearest or ha <= hb)):
        e, hi = ea, ha
    else:
        width = max(fa[P], fb[P])
        x, y = right(ha, 63 - width), right(hb, 63 - width)
        scale = eb - width + 1  # the exponent of a unit of y
        if d == -1:  # b/2 < a < b, so n = 1 and the residue is negative
            residue, scale, sa = left(y, 1) - x, scale - 1, sa ^ 1
        else:
            quotient, residue = x // y, x % y
            while d > 0:
                step = min(64 - width, d)
                quotient, residue = left(residue, step) // y, left(residue, step) % y
                d -= step
            twice = left(residue, 1)
            if to_nearest and (twice > y or (twice == y and quotient & U1 != U0)):
                residue, sa = y - residue, sa ^ 1
            if residue == U0:
                return zero_code(sa, f), np.int64(0)
        hi, _, e = normalize(residue, U0, scale + 62)
    return round_pack(sa, e, hi, U0, f, m, random)


@inline
def convert(a, fa, f, m, random):
    """Conversion between formats; only here SATURATE_FINITE clamps infinities."""
    k, s, e, h = unpack(a, fa, m[DAZ])
    if k >= QUIET_NAN:
        return nan_code(f, nan_events(k, k))
    if f[SCALE]:
        if k == ZERO:
            return nan_code(f, np.int64(INVALID))
        if k == INFINITE:
            return nan_code(f, np.int64(0))
        return round_pack_scale(s, e, h, U0, f, m, random)
    if k == INFINITE:
        if m[OVERFLOW] == SATURATE_FINITE:
            return signed_code(s, f[MAX], f), np.int64(0)
        return infinity_code(s, f), np.int64(0)
    if k == ZERO:
        return zero_code(s, f), np.int64(0)
    return round_pack(s, e, h, U0, f, m, random)


@inline
def scalb(a, fa, n, f, m, random):
    """a * 2**n, rounded once."""
    k, s, e, h = unpack(a, fa, m[DAZ])
    if k >= QUIET_NAN:
        return nan_code(f, nan_events(k, k))
    if k == INFINITE:
        return infinity_code(s, f), np.int64(0)
    if k == ZERO:
        return zero_code(s, f), np.int64(0)
    return round_pack(s, e + min(max(n, -10000), 10000), h, U0, f, m, random)


@inline
def rint(a, fa, rounding, exact, f, m, random):
    """a rounded to an integral value in direction `rounding`; with exact = 1, INEXACT where it differs."""
    k, s, e, h = unpack(a, fa, m[DAZ])
    if k >= QUIET_NAN:
        return nan_code(f, nan_events(k, k))
    if k == INFINITE:
        return infinity_code(s, f), np.int64(0)
    if k == ZERO:
        return zero_code(s, f), np.int64(0)
    inexact = False
    if e < 62:
        whole, inexact = round_at(s, h, U0, 62 - e, rounding, m[RANDOM_BITS], random)
        if whole == U0:
            return zero_code(s, f), np.int64(exact and inexact)
        h, _, e = normalize(whole, U0, np.int64(62))
    code, events = round_pack(s, e, h, U0, f, m, U0)
    if exact and inexact:
        events |= INEXACT
    return code, events


@inline
def to_integer(a, fa, low, high, m, random):
    """(integer as two's complement bits, flags); low and high are the magnitudes of the ends of its range."""
    k, s, e, h = unpack(a, fa, m[DAZ])
    if k >= QUIET_NAN:
        return U0, np.int64(INVALID)
    limit = low if s else high
    whole, inexact = U0, False
    if k == FINITE and e < 62:
        whole, inexact = round_at(s, h, U0, 62 - e, m[ROUNDING], m[RANDOM_BITS], random)
    elif k == FINITE and e < 64:
        whole = left(h, e - 62)
    if k == INFINITE or (k == FINITE and (e >= 64 or whole > limit)):
        whole, inexact = limit, False
        return (U0 - whole if s else whole), np.int64(INVALID)
    return (U0 - whole if s else whole), np.int64(inexact)


@inline
def from_integer(sign, magnitude, f, m, random):
    """A sign and a uint64 magnitude, rounded once."""
    if f[SCALE]:
        if magnitude == U0:
            return nan_code(f, np.int64(INVALID))
        hi, lo, e = normalize(U0, magnitude, np.int64(126))
        return round_pack_scale(sign, e, hi, lo, f, m, random)
    if magnitude == U0:
        return zero_code(sign, f), np.int64(0)
    hi, lo, e = normalize(U0, magnitude, np.int64(126))
    return round_pack(sign, e, hi, lo, f, m, random)


LESS, EQUAL, GREATER, UNORDERED = range(4)


@inline
def compare(a, fa, b, fb, daz, signaling):
    """(LESS, EQUAL, GREATER or UNORDERED; flags)."""
    ka, sa, ea, ha = unpack(a, fa, daz)
    kb, sb, eb, hb = unpack(b, fb, daz)
    if ka >= QUIET_NAN or kb >= QUIET_NAN:
        return UNORDERED, np.int64(INVALID) if signaling else nan_events(ka, kb)
    if ka == ZERO and kb == ZERO:
        return EQUAL, np.int64(0)
    if ka == ZERO:
        return (GREATER if sb else LESS), np.int64(0)
    if kb == ZERO or sa != sb:
        return (LESS if sa else GREATER), np.int64(0)
    if ka == INFINITE or kb == INFINITE:
        if ka == kb:
            return EQUAL, np.int64(0)
        return (GREATER if (ka == INFINITE) != (sa == 1) else LESS), np.int64(0)
    if ea == eb and ha == hb:
        return EQUAL, np.int64(0)
    larger = ea > eb or (ea == eb and ha > hb)
    return (GREATER if larger != (sa == 1) else LESS), np.int64(0)


@inline
def extremum(a, fa, b, fb, larger, number, f, m, random):
    """minimum and maximum (754-2019, 9.6); with number = 1 the *_number operations."""
    ka, sa, ea, ha = unpack(a, fa, m[DAZ])
    kb, sb, eb, hb = unpack(b, fb, m[DAZ])
    events = nan_events(ka, kb)
    take_a = True
    if ka >= QUIET_NAN or kb >= QUIET_NAN:
        if not number or (ka >= QUIET_NAN and kb >= QUIET_NAN):
            return nan_code(f, events)
        take_a = kb >= QUIET_NAN
    else:
        relation, _ = compare(a, fa, b, fb, m[DAZ], np.int64(0))
        if relation == EQUAL:
            take_a = (sa < sb) == (larger == 1)
        else:
            take_a = (relation == GREATER) == (larger == 1)
    k, s, e, h = (ka, sa, ea, ha) if take_a else (kb, sb, eb, hb)
    if k == INFINITE:
        return infinity_code(s, f), events
    if k == ZERO:
        return zero_code(s, f), events
    code, rounding_events = round_pack(s, e, h, U0, f, m, random)
    return code, rounding_events | events


@inline
def neighbour(a, f, daz, up):
    """next_up (up = 1) and next_down (up = 0) within one format."""
    k, s, _, _ = unpack(a, f, daz)
    if k >= QUIET_NAN:
        return nan_code(f, nan_events(k, k))
    if f[SCALE]:
        code = np.int64(a) + (1 if up else -1)
        if code < 0 or code > f[MAX]:
            return nan_code(f, np.int64(0))
        return np.uint64(code), np.int64(0)
    magnitude = np.int64(np.uint64(a) & (left(U1, f[SIGN]) - U1))
    if k == ZERO:
        return signed_code(np.int64(up == 0), np.int64(1), f), np.int64(0)
    if (s == 0) == (up == 1):
        if k == INFINITE:
            return np.uint64(a), np.int64(0)
        if magnitude == f[MAX]:
            return infinity_code(s, f), np.int64(0)
        return signed_code(s, magnitude + 1, f), np.int64(0)
    if magnitude == 1:
        return zero_code(s, f), np.int64(0)
    return signed_code(s, magnitude - 1, f), np.int64(0)


@inline
def classify(a, f):
    """The class of 754-2019, 5.7.2, numbered as floatsim.FloatClass."""
    k, s, e, _ = unpack(a, f, np.int64(0))
    if k == SIGNALING_NAN:
        return 0
    if k == QUIET_NAN:
        return 1
    if k == INFINITE:
        positive = 9
    elif k == ZERO:
        positive = 6
    elif e < f[EMIN]:
        positive = 7
    else:
        positive = 8
    return 11 - positive if s else positive


@inline
def order_place(a, f):
    """An int64 that sorts codes as totalOrder does (754-2019, 5.10)."""
    if not f[SIGNED_ZERO] and not f[SCALE] and np.int64(a) == f[NAN]:  # the NaN of FNUZ formats is above everything
        return f[NAN]
    if f[SCALE]:
        return np.int64(a)
    magnitude = np.int64(np.uint64(a) & (left(U1, f[SIGN]) - U1))
    return -magnitude - 1 if right(np.uint64(a), f[SIGN]) != U0 else magnitude


@inline
def logb(a, fa, daz):
    """The exponent, as an int64 within int32's range, and flags."""
    k, _, e, _ = unpack(a, fa, daz)
    if k >= QUIET_NAN:
        return np.int64(-(2**31)), np.int64(INVALID)
    if k == INFINITE:
        return np.int64(2**31 - 1), np.int64(0)
    if k == ZERO:
        return np.int64(-(2**31)), np.int64(DIVIDE_BY_ZERO)
    return e, np.int64(0)
