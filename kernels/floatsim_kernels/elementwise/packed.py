"""Arithmetic on packed codes in hardware floats: ties to even, default policies.

Each element is unpacked to float32, computed there, and rounded once more. The second rounding is innocuous: float32
has at least 2p + 2 significand bits for these formats (S. A. Figueroa, "When is double rounding innocuous?", 1995).
Where float32 itself would lose subnormal digits (BF16 products below 2**-126) the result is a multiple of 2**-149 or
rounds to zero either way. The exhaustive tests compare every pair of codes with the integer kernels.

The kernels need `cpu.environment_is_default()`; `fp16` also needs `cpu.has_f16c()`.
"""

import math

import numpy as np

from ..rounding.float32 import rounded_to_bf16
from ..runtime.intrinsics import (
    add32,
    bits_from_float,
    float_from_bits,
    float_from_half,
    half_from_float,
    left32,
    right32,
)
from ..runtime.jit import inline, kernel

ADD, SUBTRACT, MULTIPLY, DIVIDE, SQRT = range(5)

# -- FP16: the processor's own conversions -----------------------------------------------------------------------------

_FP16_NAN = np.uint16(0x7E00)


@inline
def to_fp16(x):
    """The FP16 code of a float32 number."""
    return half_from_float(x) if x == x else _FP16_NAN


@kernel
def fp16(operation, a, b, out):
    """Compute on FP16 codes. SQRT does not read b."""
    if operation == ADD:
        for i in range(out.size):
            out[i] = to_fp16(float_from_half(a[i]) + float_from_half(b[i]))
    elif operation == SUBTRACT:
        for i in range(out.size):
            out[i] = to_fp16(float_from_half(a[i]) - float_from_half(b[i]))
    elif operation == MULTIPLY:
        for i in range(out.size):
            out[i] = to_fp16(float_from_half(a[i]) * float_from_half(b[i]))
    elif operation == DIVIDE:
        for i in range(out.size):
            out[i] = to_fp16(float_from_half(a[i]) / float_from_half(b[i]))
    else:
        for i in range(out.size):
            out[i] = to_fp16(np.float32(math.sqrt(float_from_half(a[i]))))


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


@kernel
def bf16(operation, a, b, out):
    """Compute on BF16 codes. SQRT does not read b."""
    if operation == ADD:
        for i in range(out.size):
            out[i] = to_bf16(from_bf16(a[i]) + from_bf16(b[i]))
    elif operation == SUBTRACT:
        for i in range(out.size):
            out[i] = to_bf16(from_bf16(a[i]) - from_bf16(b[i]))
    elif operation == MULTIPLY:
        for i in range(out.size):
            out[i] = to_bf16(from_bf16(a[i]) * from_bf16(b[i]))
    elif operation == DIVIDE:
        for i in range(out.size):
            out[i] = to_bf16(from_bf16(a[i]) / from_bf16(b[i]))
    else:
        for i in range(out.size):
            out[i] = to_bf16(np.float32(math.sqrt(from_bf16(a[i]))))


# -- other formats: fields shifted to their places in float32, exponents moved by a multiplication ---------------------

GENERAL_FIELDS = (
    "sign", "magnitude", "sign_shift", "shift", "scale", "unscale", "emin", "limit", "above", "max",
    "max_code", "infinite_operand", "infinity", "nan", "infinity_keeps_sign",
)  # fmt: skip
"""Masks of the sign and the magnitude; the shifts of the sign and of the other fields to their places in float32; the
power of two that moves the exponent, and its inverse; as bits of float32: 2**emin, the last number below 2**(emax + 2),
the exponent field of C / 2**e and max; the codes of max, of infinity and of the results of overflow and NaN; and the
sign bit, or 0 if an infinite result has no sign."""
SIGN, MAGNITUDE, SIGN_SHIFT, SHIFT, SCALE, UNSCALE, EXPONENT, LIMIT, ABOVE, MAX = range(10)
MAX_CODE, INFINITE_OPERAND, INFINITY, NAN, KEEPS_SIGN = range(10, 15)
_INF, _NAN, _SIGN32, _MAGNITUDE32 = (np.uint32(x) for x in (0x7F800000, 0x7FC00000, 0x80000000, 0x7FFFFFFF))


@inline
def fields_of(g):
    return g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], g[10], g[11], g[12], g[13], g[14]


@inline
def from_general(code, g):
    """The float32 number of a code."""
    c = np.uint32(code)
    magnitude = np.uint32(c & g[MAGNITUDE])
    scaled = float_from_bits(left32(magnitude, g[SHIFT])) * float_from_bits(g[SCALE])
    bits = bits_from_float(scaled)
    special = _INF if magnitude == g[INFINITE_OPERAND] else _NAN
    bits = special if magnitude > g[MAX_CODE] else bits
    return float_from_bits(np.uint32(bits | left32(np.uint32(c & g[SIGN]), g[SIGN_SHIFT])))


@inline
def to_general(x, g):
    """The code of a float32 number, rounded; C as in quantize.py."""
    u = bits_from_float(x)
    m, s = np.uint32(u & _MAGNITUDE32), right32(np.uint32(u & _SIGN32), g[SIGN_SHIFT])
    near = min(m, g[LIMIT])
    e = max(np.uint32(near & _INF), g[EXPONENT])
    v, c = float_from_bits(near), float_from_bits(add32(e, g[ABOVE]))
    r = (v + c) - c
    code = right32(bits_from_float(r * float_from_bits(g[UNSCALE])), g[SHIFT])
    over = bits_from_float(r) > g[MAX]
    code = g[INFINITY] if over else code
    code = np.uint32(code | (s & g[KEEPS_SIGN] if over else s))
    return g[NAN] if m > _INF else code


@kernel
def general(operation, a, b, out, params):
    """Compute on codes of formats of at most 11 bits whose products and quotients float32 holds. SQRT does not read
    b."""
    g = fields_of(params)
    if operation == ADD:
        for i in range(out.size):
            out[i] = to_general(from_general(a[i], g) + from_general(b[i], g), g)
    elif operation == SUBTRACT:
        for i in range(out.size):
            out[i] = to_general(from_general(a[i], g) - from_general(b[i], g), g)
    elif operation == MULTIPLY:
        for i in range(out.size):
            out[i] = to_general(from_general(a[i], g) * from_general(b[i], g), g)
    elif operation == DIVIDE:
        for i in range(out.size):
            out[i] = to_general(from_general(a[i], g) / from_general(b[i], g), g)
    else:
        for i in range(out.size):
            out[i] = to_general(np.float32(math.sqrt(from_general(a[i], g))), g)
