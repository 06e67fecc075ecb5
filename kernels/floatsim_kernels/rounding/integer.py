"""Unpacking and the one rounding, on integers alone: the same on every machine and in every floating-point mode.

A format is a vector of int64 (FORMAT_FIELDS), and a rounding is another (ROUNDING_FIELDS); floatsim/emulator/params.py
makes both. A finite non-zero number is unpacked to (sign, e, hi, lo): its magnitude is (hi * 2**64 + lo) * 2**(e - 126)
with bit 62 of hi set, so that 2**e <= magnitude < 2**(e + 1). The last bit of lo may be a sticky bit. 126 bits hold
every exact intermediate result of two operands of at most 53 bits well enough to round it to at most 53 bits, also
stochastically with up to 64 random bits.
"""

import numpy as np

from ..runtime.intrinsics import leading_zeros
from ..runtime.jit import inline
from ..runtime.uint128 import split

FORMAT_FIELDS = (
    "precision",
    "emin",
    "max_code",
    "infinity",
    "nan",
    "sign_shift",
    "quiet_bit",
    "signed_zero",
    "is_scale",
)
P, EMIN, MAX, INF, NAN, SIGN, QUIET, SIGNED_ZERO, SCALE = range(9)

ROUNDING_FIELDS = ("rounding", "overflow", "daz", "ftz", "tiny_before", "random_bits")
ROUNDING, OVERFLOW, DAZ, FTZ, TINY_BEFORE, RANDOM_BITS = range(6)
SOURCE = 6
"""The index of the first field of the generator (random_sources.py), which stand behind these in a vector."""

TIES_TO_EVEN, TIES_TO_AWAY, TOWARD_ZERO, TOWARD_POSITIVE, TOWARD_NEGATIVE, TO_ODD, STOCHASTIC = range(7)
TO_INFINITY, SATURATE_FINITE, SATURATE_PROPAGATE = range(3)

INEXACT, UNDERFLOW, OVERFLOWED, DIVIDE_BY_ZERO, INVALID, FLUSHED, SUBNORMAL, ABSORBED = 1, 2, 4, 8, 16, 32, 64, 128

ZERO, FINITE, INFINITE, QUIET_NAN, SIGNALING_NAN = range(5)

U0, U1, TOP, ALL = np.uint64(0), np.uint64(1), np.uint64(1 << 63), np.uint64((1 << 64) - 1)
NO_EXPONENT = np.int64(-(1 << 20))  # the exponent of a zero, below every other
_LARGE_FIELD = 4000  # beyond every exponent field of at most 11 bits; 4000 << 52 fits 64 bits


@inline
def format_fields(f):
    """The format parameters as a tuple."""
    return f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7], f[8]


@inline
def rounding_fields(m):
    """The rounding parameters as a tuple."""
    return m[0], m[1], m[2], m[3], m[4], m[5]


@inline
def left(x, n):
    return x << np.uint64(n)


@inline
def right(x, n):
    return x >> np.uint64(n)


@inline
def unpack(code, f, daz):
    """(kind, sign, e, hi) of a code; bit 62 of hi is set when the kind is FINITE, and a zero has hi = 0."""
    code = np.uint64(code)
    sign = np.int64(right(code, f[SIGN])) & 1
    magnitude = np.int64(code & (left(U1, f[SIGN]) - U1))
    if f[SCALE]:
        magnitude = np.int64(code)
        if magnitude > f[MAX]:
            return QUIET_NAN, np.int64(0), np.int64(0), U0
        return FINITE, np.int64(0), magnitude + f[EMIN], left(U1, 62)
    if magnitude > f[MAX]:
        if magnitude == f[INF]:
            return INFINITE, sign, np.int64(0), U0
        if f[QUIET] != 0 and magnitude & f[QUIET] == 0:
            return SIGNALING_NAN, sign, np.int64(0), U0
        return QUIET_NAN, sign, np.int64(0), U0
    t = f[P] - 1
    field = magnitude >> t
    if magnitude == 0 or (daz and field == 0):
        if sign and magnitude == 0 and not f[SIGNED_ZERO]:
            return QUIET_NAN, np.int64(0), np.int64(0), U0
        return ZERO, sign, np.int64(0), U0
    field = max(field, 1)
    significand = np.uint64(magnitude - ((field - 1) << t))
    spare = leading_zeros(significand) - 1
    return FINITE, sign, f[EMIN] + field - 1 + 62 - t - spare, left(significand, spare)


@inline
def signed_code(sign, magnitude, f):
    """The code of a sign and a magnitude code."""
    return np.uint64(magnitude) | left(np.uint64(sign), f[SIGN])


@inline
def zero_code(sign, f):
    """The code of a zero."""
    if f[SIGNED_ZERO]:
        return left(np.uint64(sign), f[SIGN])
    return U0


@inline
def infinity_code(sign, f):
    """The code of an exact infinity, or its stand-in in a format without infinity."""
    if f[INF] >= 0:
        return signed_code(sign, f[INF], f)
    if f[NAN] >= 0:
        return np.uint64(f[NAN])
    return signed_code(sign, f[MAX], f)


@inline
def nan_code(f, events):
    """(canonical NaN, events); (max, INVALID) in a format without NaN."""
    if f[NAN] >= 0:
        return np.uint64(f[NAN]), events
    return np.uint64(f[MAX]), INVALID


@inline
def overflowed_code(sign, f, m):
    """The code of an overflow."""
    rounding = m[ROUNDING]
    stays = rounding == TOWARD_ZERO or rounding == TO_ODD
    stays |= (rounding == TOWARD_POSITIVE and sign == 1) or (rounding == TOWARD_NEGATIVE and sign == 0)
    if m[OVERFLOW] == TO_INFINITY and (f[SCALE] or not stays):
        return infinity_code(sign, f)
    return signed_code(sign, f[MAX], f)


@inline
def round_at(sign, hi, lo, shift, rounding, random_bits, random):
    """Drop the `shift` low bits of hi (at least 1) and all of lo, rounded; return (result, whether it is inexact).

    The magnitude is rounded up where the discarded fraction, in units of 2**-64 ulp, plus a bias is at least 2**64.
    """
    if shift < 64:
        kept, fraction, sticky = right(hi, shift), left(hi, 64 - shift) | right(lo, shift), left(lo, 64 - shift)
    else:
        kept, fraction, sticky = split(hi, lo, shift)
    inexact = fraction | sticky
    odd = kept & U1
    if rounding == STOCHASTIC:
        bias = left(random, 64 - random_bits)
    else:
        fraction |= np.uint64(sticky != U0)
        if rounding == TIES_TO_EVEN:
            bias = TOP - U1 + odd
        elif rounding == TIES_TO_AWAY:
            bias = TOP
        elif rounding == TO_ODD:
            bias = odd - U1
        elif (rounding == TOWARD_POSITIVE and sign == 0) or (rounding == TOWARD_NEGATIVE and sign == 1):
            bias = ALL
        else:
            bias = U0
    return kept + np.uint64(fraction + bias < fraction), inexact != U0


@inline
def round_pack(sign, e, hi, lo, f, m, random):
    """Round a finite non-zero magnitude to (code, events). This is the only rounding of the integer kernels."""
    p, t, emin = f[P], f[P] - 1, f[EMIN]
    tiny = e < emin
    shift = 63 - p
    if tiny:
        shift += emin - e
    kept, inexact = round_at(sign, hi, lo, shift, m[ROUNDING], m[RANDOM_BITS], random)
    events = np.int64(inexact)
    if tiny:
        if m[TINY_BEFORE] == 0 and e == emin - 1:
            carried, _ = round_at(sign, hi, lo, 63 - p, m[ROUNDING], m[RANDOM_BITS], random)
            tiny = carried != left(U1, p)
        if tiny:
            if m[FTZ]:
                return zero_code(sign, f), np.int64(UNDERFLOW | INEXACT | FLUSHED)
            if inexact:
                events |= UNDERFLOW
        field = np.int64(0)
    else:
        field = min(e - emin, _LARGE_FIELD)
    magnitude = left(np.uint64(field), t) + kept
    if magnitude > np.uint64(f[MAX]):
        return overflowed_code(sign, f, m), np.int64(OVERFLOWED | INEXACT)
    if magnitude == U0:
        return zero_code(sign, f), events | FLUSHED
    if right(magnitude, t) == U0:
        events |= SUBNORMAL
    return magnitude | left(np.uint64(sign), f[SIGN]), events


@inline
def round_pack_scale(sign, e, hi, lo, f, m, random):
    """Rounding to a power of two (OCP MX 1.0): ties go up; no sign, no zero."""
    if sign:
        return nan_code(f, np.int64(INVALID))
    if e < f[EMIN]:
        return U0, np.int64(UNDERFLOW | INEXACT)
    rounding = m[ROUNDING]
    if rounding == TIES_TO_EVEN:
        rounding = TIES_TO_AWAY
    kept, inexact = round_at(sign, hi, lo, np.int64(62), rounding, m[RANDOM_BITS], random)
    code = e - f[EMIN] + np.int64(kept) - 1
    if code > f[MAX]:
        return overflowed_code(sign, f, m), np.int64(OVERFLOWED | INEXACT)
    return np.uint64(code), np.int64(inexact)
