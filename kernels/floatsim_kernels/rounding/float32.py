"""Rounding of float32 numbers to a narrower format: the scalar steps of gemm/float32.py.

The *style* of a kernel says how sums are rounded, and `products` how products enter. Both are constants of a kernel,
from its closure, so that one of the branches on them is left after compilation. The style GENERAL reads parameters of
the layout GENERAL_FIELDS, and the fast styles read FAST_FIELDS.

RNE. Rounding a float32 number x to p <= 11 bits, ties to even, takes two operations. With K = 2**(24 - p),

    t = x - K * x    rounded to float32 (the product is exact),    r = t + K * x    exact.

t lies in the binade of K * x, or in the binade below if x is just above a power of two. In the first case t is rounded
to a multiple of the quantum of x at p bits. In a tie the 24-bit significand of x is even, so that the even multiple is
taken. In the second case t is rounded to half that quantum, but only if x is closer to the power of two than a quarter
of the quantum; then both roundings give that power. (After G. W. Veltkamp's splitting, 1968. The tests try every
significand and every p.) A product of numbers of at most p and 24 - p bits is rounded directly: t = ((1 - K) * x) * y
and r = (K * x) * y + t.

Below 2**emin the quantum does not shrink with x. There 1.5 * K * max(2**exponent of x, 2**emin) takes the place of K *
x. A sum of two numbers of the format does not need that: below 2**emin it is exact.

A sum of two numbers of p bits is rounded to 24 bits first. That is innocuous for 2 * p + 2 <= 24 (S. A. Figueroa, "When
is double rounding innocuous?", 1995). Directed roundings may follow each other on nested grids in any case.

TO_ODD, for BF16 only. Exact terms of more bits are added toward zero, and the last bit of an inexact sum counts as set
(S. Boldo and G. Melquiond, "Emulation of a FMA and correctly rounded sums", IEEE Trans. Computers 57(4), 2008). The
code of the sum is then rounded to BF16. The sum s of u and v is exact where s - u, toward zero, is v. For |u| >= |v|
that difference is exact (S. Boldo, S. Graillat and J.-M. Muller, "On the robustness of the 2Sum and Fast2Sum
algorithms", ACM TOMS 44(1), 2017). Otherwise s has the sign of v, and an inexact s - u is v less a number of that sign.

The styles other than NATIVE and GENERAL are *fast*: they are made for finite numbers and leave out the tests that
GENERAL makes. They work on numbers scaled by a power of two. RNE shows a failure by infinities and NaNs in the results:
K * x overflows float32 where x has the format's largest exponent, and infinities and NaNs stay to the end. DIRECTED and
RTZ clamp sums to the value that the rounding of a much larger sum would have, so that they fail only for non-finite
operands and for products that are too large. DIRECTED sums beyond max become infinite without a test: 2**emax is the
exponent of K * x at the end of float32, and the factor for clamped exponents is 2 * K - 2.
"""

import numpy as np

from ..runtime.intrinsics import (
    add32,
    add_floats,
    and32,
    bits_from_float,
    converted,
    float_from_bits,
    float_from_half,
    half_from_float,
    left32,
    multiply_add,
    multiply_floats,
    or32,
    right32,
)
from ..runtime.jit import inline

TOWARD_ZERO, TIES_TO_EVEN, TOWARD_POSITIVE, TOWARD_NEGATIVE = range(4)
"""Rounding directions, numbered as in `intrinsics.set_rounding`."""

NATIVE, GENERAL, RNE, DIRECTED, RTZ, TO_ODD, DIRECTED_MONOTONE = range(7)
"""The styles.
- NATIVE: the carrier's own format, any direction.
- GENERAL: any format, direction and number.
- RNE: ties to even.
- DIRECTED: toward positive; with a negative scale toward negative.
- RTZ: toward zero.
- TO_ODD: BF16, ties to even, for exact terms of any kind.
- DIRECTED_MONOTONE: DIRECTED for sequential sums that stay below the format's largest power of two."""

ROUNDED, ROUNDED_SUBNORMAL, ROUNDED_WIDE_RANGE, EXACT, EXACT_SUBNORMAL = range(5)
"""How products enter.
- ROUNDED: rounded; in the fast styles no product is below 2**emin.
- ROUNDED_SUBNORMAL: rounded, also below 2**emin.
- ROUNDED_WIDE_RANGE: rounded; products of BF16 numbers that float32 does not hold.
- EXACT: exact, multiples of the format's smallest number; in the style RNE of at most p bits.
- EXACT_SUBNORMAL: exact, any number."""

FAST_FIELDS = (
    "emin", "factor", "clamp_factor", "scale", "unscale", "lowest", "highest", "above_highest", "infinite_result",
    "zero", "random_mask",
)  # fmt: skip
PARAMS_SIZE = 11
"""Elements of a parameter vector of either layout."""
EMIN, FACTOR, CLAMP_FACTOR, SCALE, UNSCALE, LOWEST, HIGHEST, ABOVE_HIGHEST = range(8)
INFINITE_RESULT, ZERO, RANDOM_MASK = range(8, PARAMS_SIZE)
"""Indices of FAST_FIELDS. Bits of float32: 2**emin; K; the factor for clamped exponents, about 1.5 * K; the scale and
its inverse; the least and the largest sum that is rounded; the stand-in for larger sums; the result of an infinite sum,
0 if that is not known; the zero that a sum of numbers of both signs has. Then the mask of the bits of a 32-bit draw
that are used."""

GENERAL_FIELDS = ("emin", "limit", "above", "max", "overflow", "negative_overflow", "infinity", "nan")
(
    GENERAL_EMIN, GENERAL_LIMIT, GENERAL_ABOVE, GENERAL_MAX, GENERAL_OVERFLOW, GENERAL_NEGATIVE_OVERFLOW,
    GENERAL_INFINITY, GENERAL_NAN,
) = range(8)  # fmt: skip
"""Indices of GENERAL_FIELDS. Bits of float32: 2**emin; 2**(emax + 1); the exponent field of K; max; the results of
overflow (+, -) and of an infinity, as magnitudes; NaN, or what the format has instead."""

# below the first, products lose bits; up to the second, K * x is finite for K <= 2**16 (BF16); the last is max
_SMALLEST, _LARGE, _FINITE = np.float32(2.0**-126), np.float32(2.0**111), np.float32(3.4028234663852886e38)
MAGNITUDE, SIGN, EXPONENT = np.uint32(0x7FFFFFFF), np.uint32(0x80000000), np.uint32(0x7F800000)
NONE, ONE, ALL = np.uint32(0), np.uint32(1), np.uint32(0xFFFFFFFF)


@inline
def fields_of(params):
    """The parameters of either layout as a tuple, without `random_mask`."""
    return params[0], params[1], params[2], params[3], params[4], params[5], params[6], params[7], params[8], params[9]


# -- roundings ---------------------------------------------------------------------------------------------------------


@inline
def veltkamp_rne(x, factor):
    """x to p bits, ties to even; an infinity or NaN if x is too large."""
    return multiply_add(x, factor, multiply_add(x, -factor, x))


@inline
def rounded_at_exponent(x, exponent, factor):
    """x to a multiple of the quantum of p-bit numbers of this power of two, in the hardware's direction."""
    c = float_from_bits(exponent)
    return multiply_add(c, -factor, multiply_add(c, factor, x))


@inline
def exponent_of(x):
    return and32(bits_from_float(x), EXPONENT)


@inline
def round_clamped(x, emin, factor):
    """x to p bits in the hardware's direction, with the quantum of 2**emin below that."""
    return rounded_at_exponent(x, max(exponent_of(x), emin), factor)


@inline
def round_clamped_magnitude(x, emin, factor):
    """`round_clamped` with a stand-in of the sign of x, so that the direction applies to the magnitude."""
    u = bits_from_float(x)
    return rounded_at_exponent(x, or32(max(and32(u, EXPONENT), emin), and32(u, SIGN)), factor)


@inline
def truncated(x, kept):
    """x with the code's bits of a mask."""
    return float_from_bits(and32(bits_from_float(x), kept))


@inline
def with_sign_of(r, x):
    """r, which may be a zero, with the sign of x."""
    return float_from_bits(or32(and32(bits_from_float(r), MAGNITUDE), and32(bits_from_float(x), SIGN)))


@inline
def clamp(x, lowest, highest):
    """x clamped to the range from `lowest` to `highest`."""
    x = lowest if x < lowest else x
    return highest if x > highest else x


@inline
def clamp_to(x, lowest, highest, above):
    """x, at least `lowest`, and `above` if it is larger than `highest`."""
    x = lowest if x < lowest else x
    return above if x > highest else x


@inline
def rounded_general(x, g):
    """x in the format, in the hardware's direction, for every x."""
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
    """u + v in BF16, ties to even; the hardware rounds toward zero."""
    s = u + v
    code = bits_from_float(s)
    return float_from_bits(nearest_code(code, _16, ONE if s - u != v else last_kept_bit(code, _16)))


# -- steps -------------------------------------------------------------------------------------------------------------


@inline
def factor_of_row(style, a, unit, like):
    """One factor of the products of a row: scaled, or in the style NATIVE as a number of the type of `like`."""
    return converted(a, like) if style == NATIVE else a * unit


@inline
def product(style, products, x, y, g):
    """x * y as it enters a sum."""
    if style == NATIVE:
        return multiply_floats(x, y)
    return x * y if products >= EXACT else rounded_product(style, products, x, y, g)


@inline
def rounded_product(style, products, x, y, g):
    """x * y in the format; g: the fields of the parameters."""
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
    """The mask of the bits of a float32 code that a number of the format uses."""
    return and32(~np.uint32(np.int64(float_from_bits(g[FACTOR])) - 1), ALL)


@inline
def rounded_upward(products, s, g):
    """A sum s, not beyond the largest number, toward positive."""
    clamp_factor = float_from_bits(g[CLAMP_FACTOR])
    if products == EXACT_SUBNORMAL:
        return with_sign_of(round_clamped(s, g[EMIN], clamp_factor), s)
    return rounded_at_exponent(s, exponent_of(s), clamp_factor)


@inline
def rounded_sum(style, products, s, g):
    """A float32 number s in the format."""
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
    if style == NATIVE:
        return add_floats(u, v)
    return bf16_sum(u, v) if style == TO_ODD else rounded_sum(style, products, u + v, g)


@inline
def rounded_term(style, products, x, g):
    """An exact term, rounded."""
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
    if style == NATIVE:
        return multiply_add(x, y, acc) if products >= EXACT else add_floats(acc, multiply_floats(x, y))
    if style == TO_ODD:
        return bf16_sum(acc, x * y)
    return rounded_sum(style, products, add_product(style, products, acc, x, y, g), g)


# -- ROUNDED_WIDE_RANGE: products of BF16 whose exponents leave the range of float32 -----------------------------------
# One factor is scaled to [1, 2), the other by B_SCALE: products are then normal numbers. They are rounded with the
# quanta that belong to their scale, and scaled back when they are added. (Numbers below 2**-126 would also be slow.)

B_SCALE, B_SHIFT = np.float32(256), 8
_23, _TINY, _UP, UP_SHIFT = np.uint32(23), np.float32(2.0**-100), np.float32(2.0**64), 64


@inline
def power(exponent):
    """2**exponent, for -126 <= exponent <= 127."""
    return float_from_bits(left32(np.uint32(exponent + 127), _23))


@inline
def normalized(x):
    """(m, e) with x = m * 2**e and 1 <= |m| < 2; (x, 0) for zeros, infinities and NaNs."""
    shift = 0
    if abs(x) < _TINY:
        x, shift = x * _UP, UP_SHIFT
    if x == 0 or not abs(x) <= _FINITE:
        return x, np.int64(0)
    u = bits_from_float(x)
    m = or32(and32(u, np.uint32(0x807FFFFF)), np.uint32(0x3F800000))
    return float_from_bits(m), np.int64(and32(right32(u, _23), np.uint32(0xFF))) - 127 - shift


# -- the range of operands of the fast styles --------------------------------------------------------------------------


def needs_range_check(style, products):
    """Whether a kernel must check the range of its operands; a constant of the kernel."""
    return style >= RNE and not (style == RNE and products != ROUNDED)


EMPTY_RANGE = ALL, NONE
"""A magnitude range: (code of the least magnitude except zeros, less 1; code of the largest magnitude). This is the
range of no numbers."""


@inline
def extended_range(known, x):
    """The range of a set of numbers and one number more."""
    m = and32(bits_from_float(x), MAGNITUDE)
    return min(known[0], add32(m, ALL)), max(known[1], m)


@inline
def magnitude_range(matrix):
    """The magnitude range of a matrix."""
    known = EMPTY_RANGE
    for k in range(matrix.shape[0]):
        row = matrix[k]
        for j in range(row.size):
            known = extended_range(known, row[j])
    return known


@inline
def in_range(style, products, range_a, range_b, params):
    """Whether a style is exact for products of operands of these ranges."""
    lowest_a, lowest_b = (
        float_from_bits(add32(range_a[0], ONE)),
        float_from_bits(add32(range_b[0], ONE)),
    )  # NaN if all are zeros
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
    """Mark the rows of a whose products are out of range for the style."""
    range_b = magnitude_range(b)
    for i in range(a.shape[0]):
        if not in_range(style, products, magnitude_range(a[i : i + 1]), range_b, params):
            bailed_out[:, i] = True


@inline
def keeps_zero_signs(style, products):
    """Whether zeros of the result have their correct sign."""
    return style == TO_ODD or products == EXACT_SUBNORMAL or (style == RTZ and products != ROUNDED_SUBNORMAL)


BAILED_OUT, STORED, ZERO_SIGNS_UNKNOWN = range(3)
"""The status that `epilogue` returns."""


@inline
def final_value(x, start, infinite, zero, unscale, signs_known, caller_fixes_zeros):
    """A scaled sum as it is written to the result."""
    u = bits_from_float(x * unscale)
    m = and32(u, MAGNITUDE)
    if m == NONE and not signs_known:
        u = start if caller_fixes_zeros and and32(start, MAGNITUDE) == NONE else zero
    return float_from_bits(or32(infinite, and32(u, SIGN)) if m == EXPONENT else u)


@inline
def epilogue(sums, target, params, signs_known, caller_fixes_zeros, fresh):
    """Write a row of fast sums to `target`: over its start values, or over +0 if the sums are `fresh`.

    Return BAILED_OUT where the row cannot be decided: a sum is NaN, or infinite while the parameters do not say what
    infinite sums become. The start values are then unchanged; over fresh ones nothing useful is written.

    If the style loses the signs of zeros, a zero sum whose start value is the zero that cancelling sums do not have
    keeps that sign only if all its terms have it. A caller that decides these sums sets `caller_fixes_zeros`: `target`
    then holds the sign of the start value, and the status is ZERO_SIGNS_UNKNOWN. For other callers the row is
    BAILED_OUT.
    """
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


# -- one float32 number rounded, ties to even, to FP16, to BF16, or to a format given by parameters --------------------


@inline
def rounded_to_fp16(x):
    """A float32 number in FP16, ties to even. Needs `cpu.has_half_conversion()`."""
    return float_from_half(half_from_float(x))


@inline
def rounded_to_bf16(x):
    """A float32 number in BF16, ties to even. A NaN of the hardware has only upper bits set, so it stays NaN."""
    u = bits_from_float(x)
    return float_from_bits(nearest_code(u, _16, last_kept_bit(u, _16)))


RNE_FIELDS = ("emin", "limit", "above", "max", "overflow")
"""Fields of `rounded_to_format`, bits of float32: 2**emin; 2**(emax + 1); the exponent field of C / 2**exponent; max;
the result of overflow."""
_EMIN, _LIMIT, _ABOVE, _MAX, _OVER = range(5)


@inline
def rounded_to_format(x, g):
    """A float32 number in the format, ties to even, by adding and subtracting a power of two C. The format's quanta
    must be normal numbers of float32.
    """
    u = bits_from_float(x)
    m, s = and32(u, MAGNITUDE), and32(u, SIGN)
    e = min(max(and32(m, EXPONENT), g[_EMIN]), g[_LIMIT])
    v, c = float_from_bits(m), float_from_bits(add32(e, g[_ABOVE]))
    r = (v + c) - c
    r = float_from_bits(g[_OVER]) if r > float_from_bits(g[_MAX]) else r  # false for NaN, which stays
    return float_from_bits(or32(bits_from_float(r), s))
