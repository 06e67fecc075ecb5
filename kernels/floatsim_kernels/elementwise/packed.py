"""Arithmetic on packed codes in hardware floats.

Each element is unpacked, computed in float32 or float64, and rounded once more.

- In float32, ties to even: the second rounding is innocuous, because float32 has at least 2p + 2 significand bits
  (S. A. Figueroa, "When is double rounding innocuous?", 1995). Where float32 itself would lose subnormal digits (BF16
  products below 2**-126) the result is a multiple of 2**-149 or rounds to zero either way.
- In float64, any rounding mode: the float64 result is rounded to odd, from its exact error (S. Boldo and
  G. Melquiond, "Emulation of a FMA and correctly rounded sums", 2008). Every later rounding to fewer bits is correct.
- In float64, stochastic rounding to FP32: 29 of the bits that FP32 discards are known, and three more are decided by
  the integer kernels where they matter, for one element in 2**29.

The exhaustive tests compare every pair of codes with the integer kernels. The kernels need
`cpu.environment_is_default()`; `fp16` also needs `cpu.has_f16c()`, and the `odd_...` kernels need `cpu.has_fma()`,
as does `single_stochastic`.
"""

import functools
import math

import numpy as np

from ..rounding.float32 import rounded_to_bf16
from ..rounding.integer import STOCHASTIC, TIES_TO_EVEN, TOWARD_NEGATIVE
from ..rounding.random import draw_word
from ..runtime.intrinsics import (
    add32,
    bits_from_double,
    bits_from_float,
    double_from_bits,
    float_from_bits,
    float_from_half,
    half_from_float,
    left32,
    low32,
    multiply_add,
    right32,
    wide_vectors,
)
from ..runtime.jit import inline, kernel
from . import quantize, unpack

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
            out[i] = to_fp16(computed(operation, float_from_half(a[i]), float_from_half(b[i])))

    return loop


# -- BF16: the upper half of a float32 ---------------------------------------------------------------------------------

_16, _BF16_NAN = np.uint32(16), np.uint16(0x7FC0)


@inline
def from_bf16(code):
    """The float32 number of a BF16 code."""
    return float_from_bits(left32(np.uint32(code), _16))


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
            out[i] = to_bf16(computed(operation, from_bf16(a[i]), from_bf16(b[i])))

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


# -- float64 results rounded to odd ------------------------------------------------------------------------------------

_SIGN = np.uint64(1 << 63)


@inline
def two_sum(rounding, x, y):
    """x + y and the sign of the error, with the sign that a zero has in a rounding mode (D. E. Knuth's TwoSum)."""
    s = x + y
    part = s - x
    error = (x - (s - part)) + (y - part)  # exact; NaN beside infinities
    if rounding == TOWARD_NEGATIVE:
        s = double_from_bits((bits_from_double(x) | bits_from_double(y)) & _SIGN) if s == 0 else s
    return s, error


@inline
def result_and_error(operation, rounding, x, y, z):
    """The float64 result s of an operation, to nearest, and a number with the sign of the exact result less s.

    Products are exact. Only FMA reads z.
    """
    if operation == ADD:
        return two_sum(rounding, x, y)
    if operation == SUBTRACT:
        return two_sum(rounding, x, -y)
    if operation == MULTIPLY:
        return x * y, 0.0
    if operation == FMA:
        return two_sum(rounding, x * y, z)
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
def odd64(s, error):
    """The float64 code of an exact result rounded to odd."""
    return odd_code(_KIND64, bits_from_double(s), s < 0, error)


@inline
def odd32(s, error):
    """The float32 code of an exact result rounded to odd. A result beyond float32 becomes its largest number."""
    single = np.float32(s)
    rest = s - np.float64(single)
    return odd_code(_KIND32, bits_from_float(single), s < 0, error if rest == 0 else rest)


@inline
def double_of(brain, code, g):
    """The float64 number of a code; `brain`: the format is BF16."""
    return np.float64(from_bf16(code) if brain else unpack.number_of(code, g))


@inline
def to_single_code(rounding, shared, u, g):
    """The format's code of a float32 code u; `shared`: the format has float32's exponents."""
    if shared:
        return quantize.shared_element(rounding, quantize.CODES, u, g[quantize.DROPPED], g)
    return quantize.rounded_element(_KIND32, _MASKS32, rounding, quantize.CODES, u, g)


@functools.cache
def odd_single(operation, rounding, brain, shared):
    """Return the kernel of an operation, and of a deterministic rounding mode numbered as in rounding/integer.py.

    The exact result is rounded to odd in float32, and then to the format. `read` holds the fields of
    unpack.UNPACK_FIELDS, and `write` those of quantize.ROUNDING_FIELDS for codes from float32. Operands that an
    operation does not have are any arrays of codes. `brain`: the format is BF16, `shared`: it has float32's exponents.
    """

    @kernel
    def loop(a, b, c, out, read, write):
        wide_vectors()
        r, w = unpack.fields_of(read), quantize.fields_of(write)
        for i in range(out.size):
            x, y, z = double_of(brain, a[i], r), double_of(brain, b[i], r), double_of(brain, c[i], r)
            s, error = result_and_error(operation, rounding, x, y, z)
            out[i] = to_single_code(rounding, shared, odd32(s, error), w)

    return loop


@functools.cache
def odd_double(operation, rounding):
    """Return the kernel as `odd_single` does, with float64 in the place of float32."""

    @kernel
    def loop(a, b, c, out, read, write):
        wide_vectors()
        r, w = unpack.fields_of(read), quantize.fields_of(write)
        for i in range(out.size):
            x, y, z = double_of(False, a[i], r), double_of(False, b[i], r), double_of(False, c[i], r)
            s, error = result_and_error(operation, rounding, x, y, z)
            out[i] = quantize.rounded_element(_KIND64, _MASKS64, rounding, quantize.CODES, odd64(s, error), w)

    return loop


@functools.cache
def odd_stochastic(operation, brain):
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
                x, y, z = double_of(brain, xs[i], r), double_of(brain, ys[i], r), double_of(brain, zs[i], r)
                s, error = result_and_error(operation, STOCHASTIC, x, y, z)
                u = odd64(s, error)
                word = np.uint32(draw_word(low, high, add32(first, low32(i))) & used)
                m, k, q, fraction = quantize.truncated(_KIND64, _MASKS64, quantize.CODES, u, used, w)
                m = m + q if add32(fraction, word) < fraction else m
                results[i] = quantize.joined(_KIND64, _MASKS64, quantize.CODES, u, m, k, w)
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
_3, _32 = np.uint32(3), np.uint64(32)


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
                s, error = result_and_error(operation, STOCHASTIC, x, y, z)
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
                sign = np.uint32(np.uint64(bits >> _32) & np.uint64(0x80000000))
                results[i] = np.uint32((np.uint32(0) if zero else code) | sign)
            undecided[block] |= unknown != np.uint32(0)
            done = end

    return loop
