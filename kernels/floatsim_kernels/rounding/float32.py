"""Sums of terms in float32, one rounding after the other to a narrower grid: the scalar steps of gemm/float32.py.

A *style* says how sums are rounded, and `products` how products enter. Both are constants of a kernel, from its closure,
so that of the branches on them one is left.

Rounding a float32 number x to p <= 11 bits, ties to even, takes two operations (NEAREST): with K = 2**(24 - p),

    t = x - K * x    rounded to float32 (the product is exact),    r = t + K * x    exact.

t lies in the binade of K * x, or for x next above a power of two below it; so it is rounded to a multiple of x's
quantum at p bits, and of two such in a tie the even one is taken, as x is even then. In the binade below t would be
rounded to half that quantum, but only for x closer to the power of two than a quarter of it, which becomes that power
either way. (After G. W. Veltkamp's splitting, 1968; tried for every significand and every p by the tests.) A product of
numbers of at most p and 24 - p bits needs no more: t = ((1 - K) * x) * y and r = (K * x) * y + t.

Where the quantum does not shrink with x, below 2**emin, K * x gives way to 1.5 * K * max(2**exponent of x, 2**emin). A
sum of two numbers of the format needs none of that: below 2**emin it is exact.

That a sum of two numbers of p bits is rounded to 24 bits first does not matter for 2 * p + 2 <= 24 (S. A. Figueroa,
"When is double rounding innocuous?", 1995), and directed roundings may follow each other on nested grids anyway.

Exact terms of more bits are added toward zero, and an inexact sum's last bit counts as set (S. Boldo and G. Melquiond,
"Emulation of a FMA and correctly rounded sums", IEEE Trans. Computers 57(4), 2008). The sum s of u and v is exact where
s - u, toward zero, is v: for |u| >= |v| that difference is exact (S. Boldo, S. Graillat and J.-M. Muller, "On the
robustness of the 2Sum and Fast2Sum algorithms", ACM TOMS 44(1), 2017); else s has the sign of v, and an inexact s - u
is v less something of that sign. This is ODD, for BF16 alone, which is then rounded in the code.

The other styles but PLAIN and NARROW are *quick*: made for finite numbers, and without the tests that NARROW makes.
Numbers are scaled, by a power of two. NEAREST is told what it cannot do by infinities and NaN in the results, for K * x
overflows float32 where x has the format's largest exponent, and both stay. UPWARD and INWARD bring sums back to what
the rounding of a much larger one would give, so that only non-finite operands and too large products are not for them.
UPWARD sums beyond max become infinite by themselves: 2**emax is K * x's exponent at float32's end, and the factor that
clamps is 2 * K - 2.
"""

import numpy as np

from ..runtime.intrinsics import (
    add32,
    and32,
    bits_from_float,
    float_from_bits,
    float_from_half,
    half_from_float,
    left32,
    multiply_add,
    or32,
    right32,
    wide_vectors,
)
from ..runtime.jit import inline

TOWARD_ZERO, TIES_TO_EVEN, TOWARD_POSITIVE, TOWARD_NEGATIVE = range(4)
"""Rounding directions, as `intrinsics.set_rounding` numbers them."""

NATIVE, GENERAL, RNE, DIRECTED, RTZ, TO_ODD, DIRECTED_MONOTONE = range(7)
"""The carrier's own format, any direction; any format and direction, every case tested for; ties to even; toward
positive, and toward negative with a negative scale; toward zero; ties to even, of BF16, for exact terms of any kind;
UPWARD for sums in order that stay below the format's largest power of two."""

ROUNDED, ROUNDED_SUBNORMAL, ROUNDED_WIDE_RANGE, EXACT, EXACT_SUBNORMAL = range(5)
"""Products rounded (in the quick styles: where none is below 2**emin); products rounded; those of BF16, which float32
does not hold; exact terms that are multiples of the format's smallest number (to nearest: of p bits at most); any exact
terms."""

FAST_FIELDS = (
    "emin", "factor", "clamp_factor", "scale", "unscale", "lowest", "highest", "above_highest", "infinite_result",
    "zero", "random_mask",
)  # fmt: skip
PARAMS_SIZE = 11
EMIN, FACTOR, CLAMP_FACTOR, SCALE, UNSCALE, LOWEST, HIGHEST, ABOVE_HIGHEST = range(8)
INFINITE_RESULT, ZERO, RANDOM_MASK = range(8, PARAMS_SIZE)
"""The bits of 2**emin; K; the factor of clamping, 1.5 * K or so; the scale and its inverse; the least and the largest
sum to round, and what stands for larger ones; what becomes of infinities, 0 for not known; the zero that sums of both
signs have; and the bits of a 32-bit draw that are used."""

GENERAL_FIELDS = ("emin", "limit", "above", "max", "overflow", "negative_overflow", "infinity", "nan")
(
    GENERAL_EMIN, GENERAL_LIMIT, GENERAL_ABOVE, GENERAL_MAX, GENERAL_OVERFLOW, GENERAL_NEGATIVE_OVERFLOW,
    GENERAL_INFINITY, GENERAL_NAN,
) = range(8)  # fmt: skip
"""The bits of 2**emin; 2**(emax + 1); the exponent of K; max; what becomes of overflow (+, -) and of infinity, as
magnitudes; NaN, or what stands for it."""

_SMALLEST, _LARGE, _FINITE = np.float32(2.0**-126), np.float32(2.0**111), np.float32(3.4028234663852886e38)
MAGNITUDE, SIGN, EXPONENT = np.uint32(0x7FFFFFFF), np.uint32(0x80000000), np.uint32(0x7F800000)
NONE, ONE, ALL = np.uint32(0), np.uint32(1), np.uint32(0xFFFFFFFF)


@inline
def fields_of(params):
    return params[0], params[1], params[2], params[3], params[4], params[5], params[6], params[7], params[8], params[9]


# -- roundings ---------------------------------------------------------------------------------------------------------


@inline
def veltkamp_rne(x, factor):
    """Ties to even at p bits. An infinity or NaN if x is too large."""
    return multiply_add(x, factor, multiply_add(x, -factor, x))


@inline
def rounded_at_exponent(x, exponent, factor):
    """x on the grid of p-bit numbers of this power of two, in the direction of the hardware."""
    c = float_from_bits(exponent)
    return multiply_add(c, -factor, multiply_add(c, factor, x))


@inline
def exponent_of(x):
    return and32(bits_from_float(x), EXPONENT)


@inline
def round_clamped(x, emin, factor):
    return rounded_at_exponent(x, max(exponent_of(x), emin), factor)


@inline
def round_clamped_magnitude(x, emin, factor):
    u = bits_from_float(x)
    return rounded_at_exponent(x, or32(max(and32(u, EXPONENT), emin), and32(u, SIGN)), factor)


@inline
def truncated(x, kept):
    return float_from_bits(and32(bits_from_float(x), kept))


@inline
def with_sign_of(r, x):
    """r, which may be a zero, with the sign of x."""
    return float_from_bits(or32(and32(bits_from_float(r), MAGNITUDE), and32(bits_from_float(x), SIGN)))


@inline
def clamp(x, lowest, highest):
    x = lowest if x < lowest else x
    return highest if x > highest else x


@inline
def clamp_to(x, lowest, highest, above):
    x = lowest if x < lowest else x
    return above if x > highest else x


@inline
def rounded_general(x, g):
    """In the direction of the hardware, whatever x is."""
    u = bits_from_float(x)
    m, s = and32(u, MAGNITUDE), and32(u, SIGN)
    e = min(max(and32(u, EXPONENT), g[GENERAL_EMIN]), g[GENERAL_LIMIT])
    c = float_from_bits(or32(add32(e, g[GENERAL_ABOVE]), s))
    r = and32(bits_from_float((x + c) - c), MAGNITUDE)
    over = g[GENERAL_OVERFLOW] if s == NONE else g[GENERAL_NEGATIVE_OVERFLOW]
    r = over if r > g[GENERAL_MAX] else r
    r = or32(g[GENERAL_INFINITY] if m == EXPONENT else r, s)
    return float_from_bits(g[GENERAL_NAN] if m > EXPONENT else r)


_16 = np.uint32(16)


@inline
def last_kept_bit(code, dropped):
    """The last bit of a float32 code that stays if `dropped` low bits go, as 0 or 1."""
    return and32(right32(code, dropped), ONE)


@inline
def nearest_code(code, dropped, odd):
    """A float32 code without its `dropped` low bits, to nearest; ties go up where `odd` is 1, else down.

    Ties to even need odd = last_kept_bit(code, dropped).
    """
    half = left32(ONE, np.uint32(dropped - ONE))
    return and32(add32(add32(code, np.uint32(half - ONE)), odd), np.uint32(~(np.uint32(half + half) - ONE)))


@inline
def bf16_sum(u, v):
    """u + v, ties to even, with hardware that rounds toward zero."""
    s = u + v
    code = bits_from_float(s)
    return float_from_bits(nearest_code(code, _16, ONE if s - u != v else last_kept_bit(code, _16)))


# -- steps -------------------------------------------------------------------------------------------------------------


@inline
def rounded_product(style, products, x, y, g):
    """g is the grid's row."""
    factor, clamp_factor = float_from_bits(g[FACTOR]), float_from_bits(g[CLAMP_FACTOR])
    if style == GENERAL:
        return rounded_general(x * y, g)
    if products == ROUNDED and style == RTZ:
        return truncated(x * y, kept_bits(g))
    if products == ROUNDED:
        return multiply_add(x * factor, y, (x * (np.float32(1) - factor)) * y)
    if style == RTZ:
        return round_clamped_magnitude(x * y, g[EMIN], clamp_factor)
    return round_clamped(x * y, g[EMIN], clamp_factor)


@inline
def kept_bits(g):
    """The bits of the code of a number of the format."""
    return and32(~np.uint32(np.int64(float_from_bits(g[FACTOR])) - 1), ALL)


@inline
def rounded_upward(products, s, g):
    """A sum toward positive, if it is not beyond the largest number."""
    clamp_factor = float_from_bits(g[CLAMP_FACTOR])
    if products == EXACT_SUBNORMAL:
        return with_sign_of(round_clamped(s, g[EMIN], clamp_factor), s)
    return rounded_at_exponent(s, exponent_of(s), clamp_factor)


@inline
def rounded_sum(style, products, s, g):
    """A float32 number, rounded once more."""
    factor, clamp_factor = float_from_bits(g[FACTOR]), float_from_bits(g[CLAMP_FACTOR])
    lowest, highest, above = float_from_bits(g[LOWEST]), float_from_bits(g[HIGHEST]), float_from_bits(g[ABOVE_HIGHEST])
    if style == GENERAL:
        return rounded_general(s, g)
    if style == RNE:
        return (
            with_sign_of(round_clamped(s, g[EMIN], clamp_factor), s)
            if products == EXACT_SUBNORMAL
            else veltkamp_rne(s, factor)
        )
    if style == DIRECTED:
        return rounded_upward(products, s if products == ROUNDED else clamp_to(s, lowest, highest, above), g)
    t = s if products == ROUNDED else clamp(s, lowest, above)
    if products == EXACT_SUBNORMAL:
        return with_sign_of(round_clamped_magnitude(t, g[EMIN], clamp_factor), s)
    return truncated(t, kept_bits(g))


@inline
def rounded_add(style, products, u, v, g):
    """The rounded sum of two terms or sums."""
    return bf16_sum(u, v) if style == TO_ODD else rounded_sum(style, products, u + v, g)


@inline
def rounded_term(style, products, x, g):
    """A rounded exact term."""
    return bf16_sum(x, x * 0) if style == TO_ODD else rounded_sum(style, products, x, g)


@inline
def add_product(style, products, acc, x, y, g):
    """The sum of an accumulator and a product, rounded to float32 only."""
    if products >= EXACT:
        return multiply_add(x, y, acc)
    return acc + rounded_product(style, products, x, y, g)


@inline
def rounded_add_product(style, products, acc, x, y, g):
    """The rounded sum of an accumulator and a product."""
    if style == TO_ODD:
        return bf16_sum(acc, x * y)
    return rounded_sum(style, products, add_product(style, products, acc, x, y, g), g)


# -- WIDE: products of BF16 whose exponents leave float32's range ------------------------------------------------------
# One factor is brought to [1, 2), the other is scaled by B_SCALE: products are then normal numbers, which are rounded
# on the grid as it is there, and scaled back as they are added. (Numbers below 2**-126 would be slow, too.)

B_SCALE, B_SHIFT = np.float32(256), 8
_23, _TINY, _UP, UP_SHIFT = np.uint32(23), np.float32(2.0**-100), np.float32(2.0**64), 64


@inline
def power(exponent):
    """2**exponent, -126 <= exponent <= 127."""
    return float_from_bits(left32(np.uint32(exponent + 127), _23))


@inline
def normalized(x):
    """(m, e): x = m * 2**e, 1 <= |m| < 2; (x, 0) of what has no such."""
    shift = 0
    if abs(x) < _TINY:
        x, shift = x * _UP, UP_SHIFT
    if x == 0 or not abs(x) <= _FINITE:
        return x, np.int64(0)
    u = bits_from_float(x)
    m = or32(and32(u, np.uint32(0x807FFFFF)), np.uint32(0x3F800000))
    return float_from_bits(m), np.int64(and32(right32(u, _23), np.uint32(0xFF))) - 127 - shift


# -- what the quick styles cannot do -----------------------------------------------------------------------------------


def needs_range_check(style, products):
    """Whether there are finite operands that the style is not for; a constant of a kernel."""
    return style >= RNE and not (style == RNE and products != ROUNDED)


EMPTY_RANGE = ALL, NONE
"""The extent of no numbers: codes of the least magnitude but zeros, less 1, and of the largest."""


@inline
def extended_range(known, x):
    """An extent, and a number more."""
    m = and32(bits_from_float(x), MAGNITUDE)
    return min(known[0], add32(m, ALL)), max(known[1], m)


@inline
def magnitude_range(matrix):
    wide_vectors()
    known = EMPTY_RANGE
    for k in range(matrix.shape[0]):
        row = matrix[k]
        for j in range(row.size):
            known = extended_range(known, row[j])
    return known


@inline
def in_range(style, products, range_a, range_b, params):
    """Whether a style is for products of numbers of these extents."""
    lowest_a, lowest_b = (
        float_from_bits(add32(range_a[0], ONE)),
        float_from_bits(add32(range_b[0], ONE)),
    )  # NaN of zeros alone
    highest_a, highest_b = float_from_bits(range_a[1]), float_from_bits(range_b[1])
    scale = abs(float_from_bits(params[SCALE]))
    if style == TO_ODD or (products == ROUNDED and style != RTZ):
        inside = not lowest_a * lowest_b < _SMALLEST and highest_a * highest_b <= _LARGE
    elif products == ROUNDED_SUBNORMAL:
        inside = highest_a * highest_b <= float_from_bits(params[HIGHEST]) / scale
    else:
        inside = highest_a <= _FINITE and highest_b <= _FINITE
    return inside and highest_a * scale <= _FINITE


@inline
def bail_out_of_rows(style, products, a, b, params, bailed_out):
    """Mark the rows with operands that a quick style is not for."""
    range_b = magnitude_range(b)
    for i in range(a.shape[0]):
        if not in_range(style, products, magnitude_range(a[i : i + 1]), range_b, params):
            bailed_out[:, i] = True


@inline
def keeps_zero_signs(style, products):
    """Whether zeros have the sign that they should have."""
    return style == TO_ODD or products == EXACT_SUBNORMAL or (style == RTZ and products != ROUNDED_SUBNORMAL)


BAILED_OUT, STORED, ZERO_SIGNS_UNKNOWN = range(3)


@inline
def final_value(x, start, infinite, zero, unscale, signs_known, caller_fixes_zeros):
    """A sum as it is written."""
    u = bits_from_float(x * unscale)
    m = and32(u, MAGNITUDE)
    if m == NONE and not signs_known:
        u = start if caller_fixes_zeros and and32(start, MAGNITUDE) == NONE else zero
    return float_from_bits(or32(infinite, and32(u, SIGN)) if m == EXPONENT else u)


@inline
def epilogue(sums, target, params, signs_known, caller_fixes_zeros, fresh):
    """Write a row of quick sums over its start values, or +0 if it is fresh; or leave it, if something in it cannot be
    told, and then what is written over fresh ones means nothing.

    That is what is not finite. And where the signs of zeros were not kept, a zero that came from a zero with the sign
    that sums of both signs do not have: it has that sign yet if all the terms had. Where the caller tells that,
    `caller_fixes_zeros`, it finds the start's sign there, and is told that there are such.
    """
    wide_vectors()
    infinite, zero, unscale = params[INFINITE_RESULT], params[ZERO], float_from_bits(params[UNSCALE])
    limit = EXPONENT if infinite == NONE else add32(EXPONENT, ONE)
    not_finite, unknown_zeros = NONE, NONE
    if fresh:
        for j in range(target.size):
            m = and32(bits_from_float(sums[j]), MAGNITUDE)
            unknown_zeros = or32(unknown_zeros, ONE if not signs_known and m == NONE and zero != NONE else NONE)
            not_finite = or32(not_finite, ONE if m >= limit else NONE)
            target[j] = final_value(sums[j], NONE, infinite, zero, unscale, signs_known, caller_fixes_zeros)
    else:
        for j in range(target.size):
            m, start = and32(bits_from_float(sums[j]), MAGNITUDE), bits_from_float(target[j])
            unknown = not signs_known and m == NONE and start != zero and and32(start, MAGNITUDE) == NONE
            unknown_zeros = or32(unknown_zeros, ONE if unknown else NONE)
            not_finite = or32(not_finite, ONE if m >= limit or and32(start, EXPONENT) == EXPONENT else NONE)
    if not_finite != NONE or (unknown_zeros != NONE and not caller_fixes_zeros):
        return BAILED_OUT
    if not fresh:
        for j in range(target.size):
            start = bits_from_float(target[j])
            target[j] = final_value(sums[j], start, infinite, zero, unscale, signs_known, caller_fixes_zeros)
    return STORED if unknown_zeros == NONE else ZERO_SIGNS_UNKNOWN


# -- one float32 value rounded, ties to even, to the grid of FP16, of BF16, or of a narrow format that is data ---------


@inline
def rounded_to_fp16(x):
    """Only where `machine.has_f16c()`."""
    return float_from_half(half_from_float(x))


@inline
def rounded_to_bf16(x):
    """Of hardware NaNs only the upper half is set, so that they stay NaN."""
    u = bits_from_float(x)
    return float_from_bits(nearest_code(u, _16, last_kept_bit(u, _16)))


RNE_FIELDS = ("emin", "limit", "above", "max", "overflow")
"""As float32's bits: 2**emin; 2**(emax + 1); exponent of what is added, over the number's; max; what is beyond."""
_EMIN, _LIMIT, _ABOVE, _MAX, _OVER = range(5)


@inline
def rounded_to_format(x, g):
    """By adding and subtracting a power of two: for formats whose quanta are normal numbers of float32."""
    u = bits_from_float(x)
    m, s = and32(u, MAGNITUDE), and32(u, SIGN)
    e = min(max(and32(m, EXPONENT), g[_EMIN]), g[_LIMIT])
    v, c = float_from_bits(m), float_from_bits(add32(e, g[_ABOVE]))
    r = (v + c) - c
    r = float_from_bits(g[_OVER]) if r > float_from_bits(g[_MAX]) else r  # not so for NaN, which stays
    return float_from_bits(or32(bits_from_float(r), s))
