"""Rounding of float32 and float64 values to a narrower format at memory speed: branch-free, in hardware floats.

Arrays hold the values' codes, uint32 or uint64, and are flat. The results are values of the carrier, or codes of the
format. The rounding quantum of a value is q = 2**(max(e, emin) - p + 1). There are two families of kernels:

- *added*: with C = q * 2**23 (float64: q * 2**52), (x + C) - C is the magnitude x rounded to nearest, ties to even.
  The other directions follow from comparing the result with x. The quanta of the format must be normal numbers of the
  carrier. The low bits of x + C hold the rounded x / q, which is the significand of the format's code.
- *shared*: the format has the exponents of float32 (BF16 and TF32). q is then a fixed bit of the code, for subnormals
  too, and rounding is integer arithmetic on the code. The format's code is the upper part of float32's.

Each factory returns the kernel of one rounding mode, numbered as in rounding/integer.py. `params` holds the fields of
ROUNDING_FIELDS. The kernels need `cpu.environment_is_default()`.
"""

import functools

import numpy as np

from ..rounding.float32 import last_kept_bit, nearest_code
from ..rounding.integer import TIES_TO_AWAY, TIES_TO_EVEN, TO_ODD, TOWARD_NEGATIVE, TOWARD_POSITIVE, TOWARD_ZERO
from ..rounding.random import draw_key, draw_word
from ..runtime.intrinsics import (
    add32,
    as_bits,
    as_float,
    half_from_float,
    integer_part,
    low32,
    right32,
    set_rounding,
    shifted_right,
    wide_vectors,
)
from ..runtime.jit import inline, kernel

ROUNDING_FIELDS = (
    "emin", "limit", "below", "above", "max", "overflow", "negative_overflow", "infinity", "negative_infinity", "nan",
    "zero_sign", "sign_shift", "origin", "dropped", "clamp", "negative_clamp",
    "last", "negative_last",
)  # fmt: skip
EMIN, LIMIT, BELOW, ABOVE, MAX, OVERFLOW, NEGATIVE_OVERFLOW, INFINITY, NEGATIVE_INFINITY, NAN = range(10)
ZERO_SIGN, SIGN_SHIFT, ORIGIN, DROPPED, CLAMP, NEGATIVE_CLAMP, LAST, NEGATIVE_LAST = range(10, 18)
"""Bits of the carrier: 2**emin; the last number below 2**(emax + 2); the exponent fields of 2**e / q and of C / 2**e.
Of the result, a value or a code: max; the results of overflow (+, -), of infinity (+, -) and of NaN; and the sign bit
of a zero, or 0 if the format has no negative zero. To form a code: the shift of the sign, the bits of C at emin, and
the carrier's trailing bits that the format lacks; 0 if the results are values, except that of C. Of clamped codes, the
largest magnitudes (+, -), and the last magnitudes (+, -) that do not give NaN."""

VALUES, CODES, CLAMPED_CODES, CLAMPED_NUMBER_CODES, CLAMPED_BY_SIGN_CODES, UNIFORM_CODES = range(6)
"""What a kernel writes: values of the carrier, or codes. Codes of formats with a negative zero may need fewer steps.

- Clamped: overflow gives max or the code after max. Magnitudes are lowered to that code's number before they are
  rounded. Infinity gives the same magnitude, or NaN.
- Clamped number: the same, but infinity gives another magnitude, or NaN.
- Clamped by sign: the same, but the result of overflow depends on the sign. It may be that of NaN.
- Uniform: infinity, overflow and NaN are one code, and the numbers of both signs overflow alike."""

_TO_NEAREST = 1
_DIRECTIONS = {TOWARD_ZERO: 0, TOWARD_POSITIVE: 2, TOWARD_NEGATIVE: 3}
"""As `intrinsics.set_rounding` numbers them."""

_MAGNITUDE, _SIGN, _INFINITY, _INVERSE = range(4)
_CARRIERS = {
    32: (np.uint32, tuple(np.uint32(x) for x in ((1 << 31) - 1, 1 << 31, 0xFF << 23, 286 << 23))),
    64: (np.uint64, tuple(np.uint64(x) for x in ((1 << 63) - 1, 1 << 63, 0x7FF << 52, 2078 << 52))),
}
"""The code's type; the masks of the magnitude, the sign and the exponent, which is the code of infinity; and, q being a
power of two, the number that gives the code of 2**32 / q if the code of q is subtracted: (2 * bias + 32) << trailing
bits."""


def carrier(bits):
    """Return the type of a carrier's codes, and its masks, as `rounded_element` takes them."""
    return _CARRIERS[bits]


@inline
def fields_of(p):
    return (
        p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11], p[12], p[13], p[14], p[15], p[16],
        p[17],
    )  # fmt: skip


@inline
def lowered(kind, masks, codes, u, g):
    """The magnitude of a code. A magnitude far beyond max is lowered to `limit`; it still overflows."""
    if codes == UNIFORM_CODES:  # no magnitude beyond `last` is rounded
        return kind(u & masks[_MAGNITUDE])
    limit = g[LIMIT]
    if codes == CLAMPED_CODES or codes == CLAMPED_NUMBER_CODES:
        limit = g[CLAMP]
    if codes == CLAMPED_BY_SIGN_CODES:
        limit = g[NEGATIVE_CLAMP] if kind(u & masks[_SIGN]) != kind(0) else g[CLAMP]
    return kind(min(kind(u & masks[_MAGNITUDE]), limit))


@inline
def split(kind, masks, codes, u, g):
    """(magnitude, C, q) of a code, as floats."""
    m = lowered(kind, masks, codes, u, g)
    e = kind(max(kind(m & masks[_INFINITY]), g[EMIN]))
    return as_float(m), as_float(kind(e + g[ABOVE])), as_float(kind(e - g[BELOW]))


@inline
def join(kind, masks, codes, u, r, g):
    """The result of the code u whose rounded magnitude has the code r: its sign, overflow, infinities and NaN."""
    m, s, zero = kind(u & masks[_MAGNITUDE]), kind(u & masks[_SIGN]), kind(0)
    sign = shifted_right(s, g[SIGN_SHIFT]) if codes else s
    code = kind(r | sign)
    if codes == CLAMPED_NUMBER_CODES or codes == CLAMPED_BY_SIGN_CODES:
        code = kind(g[INFINITY] | sign) if m == masks[_INFINITY] else code
    if codes > CODES:
        last = g[NEGATIVE_LAST] if codes == CLAMPED_BY_SIGN_CODES and s != zero else g[LAST]
        return g[NAN] if m > last else code
    code = kind(sign & g[ZERO_SIGN]) if r == zero else code
    over = g[NEGATIVE_OVERFLOW] if s != zero else g[OVERFLOW]
    code = over if r > g[MAX] else code
    infinite = g[NEGATIVE_INFINITY] if s != zero else g[INFINITY]
    code = infinite if m == masks[_INFINITY] else code
    return g[NAN] if m > masks[_INFINITY] else code


# -- added -------------------------------------------------------------------------------------------------------------


@inline
def toward_zero(x, c, q):
    r = (x + c) - c
    return r - q if r > x else r


@inline
def rounded(rounding, kind, x, c, q, negative):
    """The magnitude x as a multiple of q; `negative` is the sign of the value."""
    r = (x + c) - c
    if rounding == TIES_TO_EVEN:
        return r
    if rounding == TIES_TO_AWAY:
        discarded = x - r
        return r + q if discarded + discarded == q else r
    below = r - q if r > x else r
    if rounding == TOWARD_ZERO:
        return below
    if rounding == TO_ODD:
        even = kind(as_bits(below + c) & kind(1)) == kind(0)
        return below + q if even and below != x else below
    above = r + q if r < x else r
    return above if negative == (rounding == TOWARD_NEGATIVE) else below


@inline
def significand_step(rounding, kind, x, nearest, q, negative):
    """What the rounding adds to the significand of `nearest`, the magnitude x rounded to nearest, ties to even.

    The sum is meant modulo a power of two. It may be q * 2**p, which is the next binade's first number.
    """
    zero, one = kind(0), kind(1)
    if rounding == TIES_TO_EVEN:
        return zero
    if rounding == TIES_TO_AWAY:
        discarded = x - nearest
        return one if discarded + discarded == q else zero
    down = kind(zero - one) if nearest > x else zero
    if rounding == TOWARD_ZERO:
        return down
    up = one if nearest < x else zero
    return up if negative == (rounding == TOWARD_NEGATIVE) else down


@inline
def exponent_part(kind, c, g):
    """What the exponent adds to the significand, to form the code of a magnitude."""
    return shifted_right(kind(as_bits(c) - g[ORIGIN]), g[DROPPED])


@inline
def magnitude_code(kind, total, c, step, g):
    """The format's code of a rounded magnitude r; total + step * q = r + C."""
    return kind(kind(kind(as_bits(total) - as_bits(c)) + step) + exponent_part(kind, c, g))


@inline
def joined(kind, masks, codes, u, r, c, g):
    """The result of the code u whose magnitude was rounded to r: a value of the carrier, or a code of the format."""
    return join(kind, masks, codes, u, magnitude_code(kind, r + c, c, kind(0), g) if codes else as_bits(r), g)


@inline
def rounded_element(kind, masks, rounding, codes, u, g):
    """The carrier's code u, rounded: a value of the carrier, or a code of the format."""
    v, c, q = split(kind, masks, codes, u, g)
    negative = kind(u & masks[_SIGN]) != kind(0)
    if codes and rounding != TO_ODD:
        step = significand_step(rounding, kind, v, (v + c) - c, q, negative)
        return join(kind, masks, codes, u, magnitude_code(kind, v + c, c, step, g), g)
    r = rounded(rounding, kind, v, c, q, negative)
    return joined(kind, masks, codes, u, r, c, g)


@inline
def code_in_direction(kind, masks, codes, u, g):
    """The code of the carrier's code u, rounded in the processor's direction: x + C has the sign of the value."""
    v, c, _ = split(kind, masks, codes, u, g)
    s = kind(u & masks[_SIGN])
    x, signed_c = as_float(kind(as_bits(v) | s)), as_float(kind(as_bits(c) | s))
    significand = kind(as_bits(x + signed_c) - as_bits(signed_c))
    return join(kind, masks, codes, u, kind(significand + exponent_part(kind, c, g)), g)


@functools.cache
def in_direction(bits, direction, codes):
    """Return the kernel that writes codes, rounded in a direction of `intrinsics.set_rounding`."""
    kind, masks = _CARRIERS[bits]

    @kernel
    def loop(x, out, params):
        wide_vectors()
        g = fields_of(params)
        set_rounding(np.int32(direction))
        for i in range(x.size):
            out[i] = code_in_direction(kind, masks, codes, x[i], g)
        set_rounding(np.int32(_TO_NEAREST))

    return loop


@functools.cache
def added(bits, rounding, codes=VALUES):
    """Return the kernel for a carrier of `bits` bits and a deterministic rounding mode; `codes`: what it writes."""
    kind, masks = _CARRIERS[bits]
    if codes and rounding in _DIRECTIONS:
        return in_direction(bits, _DIRECTIONS[rounding], codes)

    @kernel
    def loop(x, out, params):
        wide_vectors()
        g = fields_of(params)
        for i in range(x.size):
            out[i] = rounded_element(kind, masks, rounding, codes, x[i], g)

    return loop


@inline
def run_length(index, n):
    """How many of n elements, from this index on, have the same key: indices with the same index >> 32."""
    return min(n, np.int64(1 << 32) - np.int64(index & np.uint64(0xFFFFFFFF)))


@inline
def run_from(draws, done, n):
    """The two halves of the key, the first low index, and the length of the next run of n elements."""
    index = draws[1] + np.uint64(done)
    key = draw_key(draws[0], np.uint64(0), index >> np.uint64(32))
    return (
        np.uint32(key & np.uint64(0xFFFFFFFF)),
        np.uint32(key >> np.uint64(32)),
        np.uint32(index),
        run_length(index, n),
    )


@inline
def used_bits(random_bits):
    """The mask of the bits of a 32-bit draw that are used."""
    return np.uint32(np.uint64(0xFFFFFFFF) << np.uint64(32 - random_bits))


@inline
def inverse(kind, masks, q):
    """2**32 / q."""
    return as_float(kind(masks[_INVERSE] - as_bits(q)))


@inline
def scaled_by(kind, masks, x, q):
    """The integer part of 2**32 x / q, as uint32, for 0 <= x < q."""
    return integer_part(x * inverse(kind, masks, q))


@inline
def truncated(kind, masks, codes, u, g):
    """The magnitude of the carrier's code u toward zero, C and q, and the first 32 bits of the discarded fraction.

    The magnitude is rounded up by q if the first bits of the fraction and as many random bits carry. The loops test
    this themselves: LLVM does not vectorize them if an inlined function does.
    """
    v, c, q = split(kind, masks, codes, u, g)
    r = toward_zero(v, c, q)
    return r, c, q, scaled_by(kind, masks, v - r, q)


@functools.cache
def added_stochastic(bits, codes=VALUES):
    """Return the kernel for a carrier of `bits` bits and stochastic rounding with at most 32 random bits."""
    kind, masks = _CARRIERS[bits]

    @kernel
    def loop(x, out, params, draws, random_bits):
        wide_vectors()
        g, used = fields_of(params), used_bits(random_bits)
        done = np.int64(0)
        while done < x.size:
            low, high, first, n = run_from(draws, done, x.size - done)
            xs, ys = x[done : done + n], out[done : done + n]
            for i in range(n):
                word = np.uint32(draw_word(low, high, add32(first, low32(i))) & used)
                r, c, q, fraction = truncated(kind, masks, codes, xs[i], g)
                r = r + q if add32(np.uint32(fraction & used), word) < word else r
                ys[i] = joined(kind, masks, codes, xs[i], r, c, g)
            done += n

    return loop


# -- FP16 by the processor's instruction -------------------------------------------------------------------------------


@functools.cache
def half(rounding):
    """Return the kernel that writes FP16 codes of float32 codes, or None if the processor has no such direction.

    Overflow is IEEE 754's. The kernel needs `cpu.has_half_conversion()`.
    """
    if rounding != TIES_TO_EVEN and rounding not in _DIRECTIONS:
        return None
    direction = _DIRECTIONS.get(rounding, _TO_NEAREST)

    @kernel
    def loop(x, out, params):
        wide_vectors()
        nan = np.uint16(params[NAN])
        set_rounding(np.int32(direction))
        for i in range(x.size):
            number = as_float(x[i])
            out[i] = half_from_float(number) if number == number else nan
        set_rounding(np.int32(_TO_NEAREST))

    return loop


# -- shared ------------------------------------------------------------------------------------------------------------

_KIND32, _MASKS32 = _CARRIERS[32]
_1 = np.uint32(1)


@inline
def rounded_code(rounding, m, dropped, negative):
    """The code m of a magnitude without its `dropped` low bits, which are at least one."""
    low = np.uint32((_1 << dropped) - _1)
    if rounding == TIES_TO_EVEN or rounding == TIES_TO_AWAY:
        return nearest_code(m, dropped, last_kept_bit(m, dropped) if rounding == TIES_TO_EVEN else _1)
    kept = np.uint32(m & np.uint32(~low))
    if rounding == TOWARD_ZERO:
        return kept
    if rounding == TO_ODD:
        return np.uint32(kept | np.uint32(_1 << dropped)) if np.uint32(m & low) != np.uint32(0) else kept
    outward = negative == (rounding == TOWARD_NEGATIVE)
    return np.uint32(add32(m, low if outward else np.uint32(0)) & np.uint32(~low))


@inline
def shared_magnitude(codes, u, g):
    """The magnitude of the float32 code u. Numbers beyond max need not be lowered, except for clamped codes."""
    return lowered(_KIND32, _MASKS32, codes, u, g) if codes > CODES else np.uint32(u & _MASKS32[_MAGNITUDE])


@inline
def shared_joined(codes, u, r, g):
    """The result of the float32 code u whose magnitude was rounded to the code r: a value, or a code of the format."""
    return join(_KIND32, _MASKS32, codes, u, right32(r, g[DROPPED]) if codes else r, g)


@inline
def shared_element(rounding, codes, u, dropped, g):
    """The float32 code u, rounded: a value of float32, or a code of the format."""
    m = shared_magnitude(codes, u, g)
    negative = np.uint32(u & _MASKS32[_SIGN]) != np.uint32(0)
    return shared_joined(codes, u, rounded_code(rounding, m, dropped, negative), g)


@functools.cache
def shared(rounding, codes=VALUES):
    """Return the kernel for a deterministic rounding mode; the format has `dropped` trailing bits fewer."""

    @kernel
    def loop(x, out, params, dropped):
        wide_vectors()
        g, d = fields_of(params), np.uint32(dropped)
        for i in range(x.size):
            out[i] = shared_element(rounding, codes, x[i], d, g)

    return loop


@functools.cache
def shared_stochastic(codes=VALUES):
    """Return the kernel for stochastic rounding: the first discarded bits plus as many random bits carry."""

    @kernel
    def loop(x, out, params, dropped, draws, random_bits):
        g = fields_of(params)
        d = np.uint32(dropped)
        unused = np.uint32(max(0, dropped - random_bits))
        mask, seen, shift = np.uint32(~((_1 << d) - _1)), np.uint32(~((_1 << unused) - _1)), np.uint32(32 - dropped)
        used = used_bits(random_bits)
        done = np.int64(0)
        while done < x.size:
            low, high, first, n = run_from(draws, done, x.size - done)
            xs, ys = x[done : done + n], out[done : done + n]
            for i in range(n):
                m = shared_magnitude(codes, xs[i], g)
                word = np.uint32(draw_word(low, high, add32(first, low32(i))) & used)
                r = np.uint32(add32(m & seen, right32(word, shift) & seen) & mask)
                ys[i] = shared_joined(codes, xs[i], r, g)
            done += n

    return loop
