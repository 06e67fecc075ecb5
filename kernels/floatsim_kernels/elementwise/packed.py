"""Arithmetic on packed codes in hardware floats.

Each element is unpacked, computed in float32 or float64, and rounded once more.

- In float32, ties to even: the second rounding is innocuous, because float32 has at least 2p + 2 significand bits
  (S. A. Figueroa, "When is double rounding innocuous?", 1995). Where float32 itself would lose subnormal digits (BF16
  products below 2**-126) the result is a multiple of 2**-149 or rounds to zero either way.
- In float32 or float64, any rounding mode: the result is rounded to odd, from its exact error (S. Boldo and
  G. Melquiond, "Emulation of a FMA and correctly rounded sums", 2008). Every later rounding to fewer bits is correct.
- In float32, stochastic rounding of sums and products: the bits that a format discards are those of the float32 result
  and those of its exact error.
- In float64, stochastic rounding to FP32: 29 of the bits that FP32 discards are known, and three more are decided by
  the integer kernels where they matter, for one element in 2**29.

The exhaustive tests compare every pair of codes with the integer kernels. The kernels need
`cpu.environment_is_default()`; `fp16` and the reader HALF also need `cpu.has_half_conversion()`, and the `odd_...`
kernels need `cpu.has_fma()`, as does `single_stochastic`.
"""

import functools
import math

import numpy as np

from ..rounding.float32 import rounded_to_bf16
from ..rounding.integer import STOCHASTIC, TIES_TO_EVEN, TOWARD_NEGATIVE
from ..rounding.random import draw_word
from ..runtime.intrinsics import (
    add32,
    as_bits,
    as_float,
    bits_from_double,
    bits_from_float,
    float_from_bits,
    float_from_half,
    half_from_float,
    integer_part,
    left32,
    low32,
    multiply_add,
    right32,
    subtract32,
    wide_vectors,
)
from ..runtime.jit import inline, kernel
from . import quantize, unpack
from .unpack import float32_of

ADD, SUBTRACT, MULTIPLY, DIVIDE, SQRT, FMA, RINT, FLOOR, CEIL, TRUNC = range(10)


@inline
def computed(operation, x, y):
    """The float32 result of an operation. SQRT and the roundings to integers do not read y."""
    if operation == ADD:
        return x + y
    if operation == SUBTRACT:
        return x - y
    if operation == MULTIPLY:
        return x * y
    if operation == DIVIDE:
        return x / y
    if operation == SQRT:
        return np.float32(math.sqrt(x))
    if operation == RINT:
        return np.float32(np.rint(x))
    if operation == FLOOR:
        return np.float32(np.floor(x))
    if operation == CEIL:
        return np.float32(np.ceil(x))
    return np.float32(np.trunc(x))


_INTEGRAL = np.float32(1 << 23)  # from here on, every float32 number is an integer


@inline
def integral(operation, x):
    """A float32 number between -2**22 and 2**22, infinite or NaN, rounded to an integer.

    LLVM computes `rint` and the like between two conversions in FP16, one number at a time.
    """
    magnitude = abs(x)
    n = math.copysign((magnitude + _INTEGRAL) - _INTEGRAL, x)
    if operation == FLOOR:
        n = n - np.float32(1) if n > x else n
    if operation == CEIL:
        n = n + np.float32(1) if n < x else n
    if operation == TRUNC:
        n = abs(n)
        n = n - np.float32(1) if n > magnitude else n
    return math.copysign(n, x)


# -- FP16: the processor's own conversions -----------------------------------------------------------------------------

_FP16_NAN = np.uint16(0x7E00)


@inline
def to_fp16(x):
    """The FP16 code of a float32 number."""
    return half_from_float(x) if x == x else _FP16_NAN


@functools.cache
def fp16(operation):
    """Return the kernel of an operation on FP16 codes."""

    @kernel
    def loop(a, b, out):
        wide_vectors()
        for i in range(out.size):
            x = float_from_half(a[i])
            if operation >= RINT:
                out[i] = to_fp16(integral(operation, x))
            else:
                out[i] = to_fp16(computed(operation, x, float_from_half(b[i])))

    return loop


# -- BF16: the upper half of a float32 ---------------------------------------------------------------------------------

_16, _BF16_NAN = np.uint32(16), np.uint16(0x7FC0)


@inline
def to_bf16(x):
    """The BF16 code of a float32 number."""
    return np.uint16(right32(bits_from_float(rounded_to_bf16(x)), _16)) if x == x else _BF16_NAN


@functools.cache
def bf16(operation):
    """Return the kernel of an operation on BF16 codes."""

    @kernel
    def loop(a, b, out):
        wide_vectors()
        for i in range(out.size):
            out[i] = to_bf16(computed(operation, unpack.from_bf16(a[i]), unpack.from_bf16(b[i])))

    return loop


# -- any format whose arithmetic float32 holds -------------------------------------------------------------------------

_KIND32, _MASKS32 = quantize.carrier(32)
_KIND64, _MASKS64 = quantize.carrier(64)


@functools.cache
def general(operation):
    """Return the kernel of an operation on codes of one format.

    `read` holds the fields of unpack.UNPACK_FIELDS, and `write` those of quantize.ROUNDING_FIELDS for codes.
    """

    @kernel
    def loop(a, b, out, read, write):
        wide_vectors()
        r, w = unpack.fields_of(read), quantize.fields_of(write)
        for i in range(out.size):
            x = computed(operation, unpack.number_of(a[i], r), unpack.number_of(b[i], r))
            out[i] = quantize.rounded_element(_KIND32, _MASKS32, TIES_TO_EVEN, quantize.CODES, bits_from_float(x), w)

    return loop


# -- results rounded to odd --------------------------------------------------------------------------------------------

_SIGN_MASK = 1  # in the masks of a carrier
TO_FORMAT, TO_SHARED, TO_BF16, TO_HALF = range(4)
"""How float32 codes are rounded: by the fields of quantize.ROUNDING_FIELDS, or of its *shared* family; ties to even to
BF16, or to FP16 by the processor's instruction, with IEEE 754's overflow."""


@inline
def two_sum(x, y):
    """x + y and the exact error (D. E. Knuth's TwoSum), which is NaN beside infinities."""
    s = x + y
    part = s - x
    return s, (x - (s - part)) + (y - part)


@inline
def directed_sum(kind, masks, rounding, x, y):
    """x + y and the exact error, with the sign that a zero has in a rounding mode."""
    s, error = two_sum(x, y)
    if rounding == TOWARD_NEGATIVE:
        s = as_float(kind(kind(as_bits(x) | as_bits(y)) & masks[_SIGN_MASK])) if s == 0 else s
    return s, error


@inline
def result_and_error(kind, masks, operation, rounding, x, y, z):
    """The result s of an operation, to nearest, and a number with the sign of the exact result less s.

    The numbers are float32 or float64; `kind` and `masks` are those of the carrier. Products are exact. Only FMA reads
    z. The error of a sum is exact.
    """
    if operation == ADD:
        return directed_sum(kind, masks, rounding, x, y)
    if operation == SUBTRACT:
        return directed_sum(kind, masks, rounding, x, -y)
    if operation == MULTIPLY:
        return x * y, as_float(kind(0))
    if operation == FMA:
        return directed_sum(kind, masks, rounding, x * y, z)
    if operation == DIVIDE:
        s = x / y
        rest = multiply_add(-s, y, x)
        return s, rest if y > 0 else -rest
    s = math.sqrt(x)
    return s, multiply_add(-s, s, x)


@inline
def odd_code(kind, bits, negative, rest):
    """The code of a number rounded to nearest, as rounded to odd; `rest` has the sign of the exact result less it."""
    inexact = abs(rest) > 0  # not if it is NaN
    inward = (rest < 0) != negative
    bits = kind(bits - kind(1)) if inexact and inward else bits
    return kind(bits | kind(1)) if inexact else bits


@inline
def odd_code_of(kind, masks, operation, rounding, x, y, z):
    """The carrier's code of an exact result rounded to odd."""
    s, error = result_and_error(kind, masks, operation, rounding, x, y, z)
    return odd_code(kind, as_bits(s), s < 0, error)


@inline
def odd32(operation, rounding, x, y, z):
    """The float32 code of an exact result of float64 numbers rounded to odd; beyond float32 the largest number's."""
    s, error = result_and_error(_KIND64, _MASKS64, operation, rounding, x, y, z)
    single = np.float32(s)
    rest = s - np.float64(single)
    return odd_code(_KIND32, bits_from_float(single), s < 0, error if rest == 0 else rest)


@inline
def to_code(target, rounding, u, g):
    """The format's code of a float32 code u."""
    if target == TO_BF16:
        return to_bf16(float_from_bits(u))
    if target == TO_HALF:
        return to_fp16(float_from_bits(u))
    if target == TO_SHARED:
        return quantize.shared_element(rounding, quantize.CODES, u, g[quantize.DROPPED], g)
    return quantize.rounded_element(_KIND32, _MASKS32, rounding, quantize.CODES, u, g)


@functools.cache
def odd_single(operation, rounding, reader, target, narrow):
    """Return the kernel of an operation, and of a deterministic rounding mode numbered as in rounding/integer.py.

    The exact result is rounded to odd in float32, and then to the format. It is computed in float64, or in float32 if
    the format is `narrow`. `read` holds the fields of unpack.UNPACK_FIELDS, and `write` those of
    quantize.ROUNDING_FIELDS for codes from float32. Operands that an operation does not have are any arrays of codes.
    """

    @kernel
    def loop(a, b, c, out, read, write):
        wide_vectors()
        r, w = unpack.fields_of(read), quantize.fields_of(write)
        for i in range(out.size):
            x, y, z = (
                float32_of(reader, a[i], r),
                float32_of(reader, b[i], r),
                float32_of(reader, c[i], r),
            )
            if narrow:
                u = odd_code_of(_KIND32, _MASKS32, operation, rounding, x, y, z)
            else:
                u = odd32(operation, rounding, np.float64(x), np.float64(y), np.float64(z))
            out[i] = to_code(target, rounding, u, w)

    return loop


@functools.cache
def odd_double(operation, rounding):
    """Return the kernel as `odd_single` does, with float64 in the place of float32."""

    @kernel
    def loop(a, b, c, out, read, write):
        wide_vectors()
        r, w = unpack.fields_of(read), quantize.fields_of(write)
        for i in range(out.size):
            x, y, z = unpack.number_of(a[i], r), unpack.number_of(b[i], r), unpack.number_of(c[i], r)
            u = odd_code_of(_KIND64, _MASKS64, operation, rounding, np.float64(x), np.float64(y), np.float64(z))
            out[i] = quantize.rounded_element(_KIND64, _MASKS64, rounding, quantize.CODES, u, w)

    return loop


@functools.cache
def odd_stochastic(operation, reader):
    """Return the kernel as `odd_double` does, for stochastic rounding with at most 32 random bits."""

    @kernel
    def loop(a, b, c, out, read, write, draws, random_bits):
        wide_vectors()
        r, w = unpack.fields_of(read), quantize.fields_of(write)
        used = quantize.used_bits(random_bits)
        done = np.int64(0)
        while done < out.size:
            low, high, first, n = quantize.run_from(draws, done, out.size - done)
            end = done + n
            xs, ys, zs, results = a[done:end], b[done:end], c[done:end], out[done:end]
            for i in range(n):
                x, y, z = (
                    float32_of(reader, xs[i], r),
                    float32_of(reader, ys[i], r),
                    float32_of(reader, zs[i], r),
                )
                x, y, z = np.float64(x), np.float64(y), np.float64(z)
                u = odd_code_of(_KIND64, _MASKS64, operation, STOCHASTIC, x, y, z)
                word = np.uint32(draw_word(low, high, add32(first, low32(i))) & used)
                m, k, q, fraction = quantize.truncated(_KIND64, _MASKS64, quantize.CODES, u, w)
                m = m + q if add32(np.uint32(fraction & used), word) < word else m
                results[i] = quantize.joined(_KIND64, _MASKS64, quantize.CODES, u, m, k, w)
            done = end

    return loop


# -- sums and products in float32, stochastic --------------------------------------------------------------------------

_1, _EXPONENT, _TO_LAST_BIT = np.uint32(1), np.uint32(0xFF << 23), np.uint32(23 << 23)


@inline
def toward_zero(s, error):
    """The float32 code of an exact result toward zero, and whether it is below the result to nearest s."""
    u = bits_from_float(s)
    inward = abs(error) > 0 and (error < 0) != (s < 0)
    return subtract32(u, _1) if inward else u, inward


@inline
def lacking(u, error, inward, q):
    """The integer part of 2**32 / q times what a result toward zero with the float32 code u lacks.

    That is the magnitude of the error of the result to nearest, or an ulp less it. The difference would be rounded.
    """
    size = abs(error) * quantize.inverse(_KIND32, _MASKS32, q)
    ulp = float_from_bits(subtract32(np.uint32(u & _EXPONENT), _TO_LAST_BIT))
    whole = quantize.scaled_by(_KIND32, _MASKS32, ulp, q)
    return subtract32(whole, integer_part(np.float32(np.ceil(size)))) if inward else integer_part(size)


@functools.cache
def narrow_stochastic(operation, reader, target):
    """Return the kernel of a sum, a product or FMA as `odd_stochastic` does, computed in float32."""

    @kernel
    def loop(a, b, c, out, read, write, draws, random_bits):
        wide_vectors()
        r, w = unpack.fields_of(read), quantize.fields_of(write)
        used = quantize.used_bits(random_bits)
        done = np.int64(0)
        while done < out.size:
            low, high, first, n = quantize.run_from(draws, done, out.size - done)
            end = done + n
            xs, ys, zs, results = a[done:end], b[done:end], c[done:end], out[done:end]
            for i in range(n):
                x, y, z = (
                    float32_of(reader, xs[i], r),
                    float32_of(reader, ys[i], r),
                    float32_of(reader, zs[i], r),
                )
                s, error = result_and_error(_KIND32, _MASKS32, operation, STOCHASTIC, x, y, z)
                u, inward = toward_zero(s, error)
                word = np.uint32(draw_word(low, high, add32(first, low32(i))) & used)
                m, k, q, fraction = quantize.truncated(_KIND32, _MASKS32, quantize.CODES, u, w)
                fraction = np.uint32(add32(fraction, lacking(u, error, inward, q)) & used)
                m = m + q if add32(fraction, word) < word else m
                if target == TO_HALF:
                    results[i] = to_fp16(math.copysign(m, s) if s == s else s)
                else:
                    results[i] = quantize.joined(_KIND32, _MASKS32, quantize.CODES, u, m, k, w)
            done = end

    return loop


_SIGN, _INFINITY = np.uint32(1 << 31), np.uint32(0xFF << 23)
_FIRST_BIT, _LAST_OF_BF16, _31, _23 = np.uint32(1 << 23), np.uint32(1 << 16), np.uint32(31), np.uint32(23)
_2_M16, _128, _2_39, _2_82, _2_83 = (np.float32(2.0**n) for n in (-16, 7, 39, 82, 83))


@inline
def lacking_bits(u, error, inward, bits):
    """The integer part of 2**bits / ulp times what a result toward zero with the float32 code u lacks.

    In integers: multiplications of subnormal numbers take a hundred cycles on many processors.
    """
    m = np.uint32(bits_from_float(error) & ~_SIGN)
    exponent = right32(m, _23)
    significand = np.uint32(np.uint32(m & np.uint32(_FIRST_BIT - _1)) | (_FIRST_BIT if exponent else np.uint32(0)))
    # less than an ulp: the shift is at least 24 - bits
    shift = subtract32(right32(np.uint32(u & _EXPONENT), _23), add32(np.uint32(max(exponent, _1)), bits))
    shift = np.uint32(min(shift, _31))
    whole = right32(significand, shift)
    more = add32(whole, _1) if left32(whole, shift) != significand else whole
    return subtract32(left32(_1, bits), more) if inward else whole


@inline
def sum_and_fraction(operation, x, y, more):
    """A sum to nearest, float32's code of its magnitude toward zero, and the first 32 bits that this code discards.

    `more`: 32 less the bits of float32's code that the format discards.
    """
    s, error = result_and_error(_KIND32, _MASKS32, operation, STOCHASTIC, x, y, y)
    u, inward = toward_zero(s, error)
    m = np.uint32(u & ~_SIGN)
    return s, m, add32(left32(m, more), lacking_bits(u, error, inward, more))


@inline
def at_most_128(x):
    """The magnitude of x, at most 128; NaN stays NaN."""
    return _128 if abs(x) > _128 else abs(x)


@inline
def product_and_fraction(x, y):
    """The product of two BF16 numbers, as `sum_and_fraction`: exact, or zero where float32 would be subnormal.

    Below 2**-126 the code, and the fraction of BF16's least number, come from 2**165 times the product. No factor is
    more than 128 there; larger ones are cut, so that none times zero is infinite.
    """
    large = (at_most_128(x) * _2_83) * (at_most_128(y) * _2_82)
    small = (large < _2_39) & (abs(y) <= _128)
    s = x * (math.copysign(np.float32(0), y) if small else y)
    m = integer_part(large * _2_M16) if small else np.uint32(bits_from_float(s) & ~_SIGN)
    return s, m, integer_part(large) if m < _LAST_OF_BF16 else left32(m, _16)


@functools.cache
def carrying(operation, reader):
    """Return the kernel of a sum of BF16 or FP16 numbers, or of a BF16 product, with stochastic rounding.

    It carries into the last bit that the format keeps of float32's code, and gives IEEE 754's overflow.
    """
    dropped = 16 if reader == unpack.BF16 else 13
    last, kept, more = np.uint32(1 << dropped), np.uint32((1 << 32) - (1 << dropped)), np.uint32(32 - dropped)

    @kernel
    def loop(a, b, out, draws, random_bits):
        wide_vectors()
        used = quantize.used_bits(random_bits)
        done = np.int64(0)
        while done < out.size:
            low, high, first, n = quantize.run_from(draws, done, out.size - done)
            end = done + n
            xs, ys, results = a[done:end], b[done:end], out[done:end]
            for i in range(n):
                x, y = float32_of(reader, xs[i], None), float32_of(reader, ys[i], None)
                if operation == MULTIPLY:
                    s, m, fraction = product_and_fraction(x, y)
                else:
                    s, m, fraction = sum_and_fraction(operation, x, y, more)
                fraction = np.uint32(fraction & used)
                word = np.uint32(draw_word(low, high, add32(first, low32(i))) & used)
                r = np.uint32(m & kept)
                r = np.uint32(min(add32(r, last) if add32(fraction, word) < word else r, _INFINITY))
                r = np.uint32(r | np.uint32(bits_from_float(s) & _SIGN))
                if reader == unpack.HALF:
                    results[i] = to_fp16(float_from_bits(r) if s == s else s)
                else:
                    results[i] = np.uint16(right32(r, _16)) if s == s else _BF16_NAN
            done = end

    return loop


# -- FP32, stochastic --------------------------------------------------------------------------------------------------

BLOCK = 1024
"""Elements of a block that `single_stochastic` marks."""
_DROPPED, _FRACTION = np.uint64(29), np.uint64((1 << 29) - 1)
_REBIAS = np.uint64((1023 - 127) << 23)
_MAGNITUDE = np.uint64((1 << 63) - 1)
_LEAST, _MOST = np.uint64(897 << 52), np.uint64((1150 << 52) + ((1 << 52) - (1 << 29)))  # 2**-126, FP32's max
_LARGEST_SURE = np.uint32(0xFFFFFFF8)
_3, _UPPER = np.uint32(3), np.uint64(32)


@inline
def truncated_code(s, error):
    """The float64 code of an exact result toward zero, of the result to nearest and a number with the error's sign."""
    bits = bits_from_double(s)
    inward = (error < 0) if s > 0 else (error > 0)
    return np.uint64(bits - np.uint64(1)) if inward else bits


@functools.cache
def single_stochastic(operation):
    """Return the kernel of an operation on float32 numbers, rounded stochastically to FP32 with at most 32 random bits.

    The exact result toward zero in float64 has 29 of the bits that FP32 discards, and a draw has 32. If the three bits
    between them can carry, or if the result is neither zero nor between 2**-126 and FP32's largest number, the element
    is undecided. `undecided` marks the blocks of BLOCK elements that have such an element.
    """

    @kernel
    def loop(a, b, c, out, draws, random_bits, undecided):
        wide_vectors()
        used = quantize.used_bits(random_bits)
        done = np.int64(0)
        while done < out.size:
            block = done // BLOCK
            low, high, first, n = quantize.run_from(draws, done, min(out.size, (block + 1) * BLOCK) - done)
            end = done + n
            xs, ys, zs, results = a[done:end], b[done:end], c[done:end], out[done:end]
            unknown = np.uint32(0)
            for i in range(n):
                x, y, z = np.float64(xs[i]), np.float64(ys[i]), np.float64(zs[i])
                s, error = result_and_error(_KIND64, _MASKS64, operation, STOCHASTIC, x, y, z)
                bits = truncated_code(s, error)
                m = np.uint64(bits & _MAGNITUDE)
                word = np.uint32(draw_word(low, high, add32(first, low32(i))) & used)
                fraction = left32(np.uint32(m & _FRACTION), _3)
                total = add32(fraction, word)
                code = np.uint32((m >> _DROPPED) - _REBIAS)
                code = add32(code, np.uint32(1)) if total < fraction else code
                zero = m == np.uint64(0)
                fine = (m >= _LEAST) & (m < _MOST) & (total < _LARGEST_SURE)
                unknown = unknown | (np.uint32(0) if fine | zero else np.uint32(1))
                sign = np.uint32(np.uint64(bits >> _UPPER) & np.uint64(0x80000000))
                results[i] = np.uint32((np.uint32(0) if zero else code) | sign)
            undecided[block] |= unknown != np.uint32(0)
            done = end

    return loop
