"""Codes to float32 numbers and back: exact, branch-free, at the speed of vector registers.

The fields of a code are shifted to their places in float32, and the exponent field is moved by an addition. A subnormal
code is read as 2**emin more than its value, and 2**emin is subtracted. So no operand is a subnormal float32 number
unless the format has the exponents of float32: multiplications of these take a hundred cycles on many processors.
The kernels need `cpu.environment_is_default()`; the reader HALF also needs `cpu.has_half_conversion()`. `params` has
the layout UNPACK_FIELDS.
"""

import numpy as np

from ..runtime.intrinsics import (
    add32,
    bits_from_float,
    double_from_bits,
    float_from_bits,
    float_from_half,
    left32,
    right32,
    subtract32,
    wide_vectors,
)
from ..runtime.jit import inline, kernel

UNPACK_FIELDS = (
    "sign", "magnitude", "sign_shift", "shift", "emin", "max_code", "infinity", "nan", "infinite_result", "nan_result",
    "zero_sign",
)  # fmt: skip
SIGN, MAGNITUDE, SIGN_SHIFT, SHIFT, EMIN, MAX_CODE, INFINITY, NAN, INFINITE_RESULT, NAN_RESULT, ZERO_SIGN = range(11)
"""Masks of the sign and the magnitude; the shifts of the sign and of the other fields; the bits of 2**emin as float32;
the codes of max, infinity and NaN, or numbers that are no codes; the codes of an infinite result and of NaN; and the
mask of the sign of a zero."""
GENERAL, HALF, BF16, SINGLE, DOUBLE = range(5)
"""How codes are read: by the fields, or as the codes of one format."""

_16 = np.uint32(16)
_INF, _NAN, _SIGN, _MAGNITUDE = (np.uint32(x) for x in (0x7F800000, 0x7FC00000, 0x80000000, 0x7FFFFFFF))
_0, _ONE_MORE = np.uint32(0), np.uint32(1 << 23)  # the latter in the exponent field


@inline
def fields_of(g):
    return g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], g[10]


@inline
def number_of(code, g):
    """The float32 number of a code; every NaN is the canonical one."""
    c = np.uint32(code)
    magnitude = np.uint32(c & g[MAGNITUDE])
    fields = left32(magnitude, g[SHIFT])
    raised = add32(fields, g[EMIN])  # the exponent field is too large by one
    subnormal = bits_from_float(float_from_bits(raised) - float_from_bits(g[EMIN]))
    bits = subtract32(raised, _ONE_MORE) if fields >= _ONE_MORE else subnormal
    bits = np.uint32((_INF if magnitude == g[INFINITY] else bits) | left32(np.uint32(c & g[SIGN]), g[SIGN_SHIFT]))
    is_nan = (magnitude > g[MAX_CODE] and magnitude != g[INFINITY]) or c == g[NAN]
    return float_from_bits(_NAN if is_nan else bits)


@inline
def from_bf16(code):
    """The float32 number of a BF16 code."""
    return float_from_bits(left32(np.uint32(code), _16))


@inline
def float32_of(reader, code, g):
    """The float32 number of a code, by a reader that is not DOUBLE."""
    if reader == SINGLE:
        return float_from_bits(np.uint32(code))
    if reader == BF16:
        return from_bf16(code)
    if reader == HALF:
        return float_from_half(np.uint16(code))
    return number_of(code, g)


@inline
def float64_of(reader, code, g):
    """The float64 number of a code."""
    if reader == DOUBLE:
        return double_from_bits(np.uint64(code))
    return np.float64(float32_of(reader, code, g))


@inline
def code_of(x, g):
    """The code of a float32 number of the format, an infinity or a NaN."""
    u = bits_from_float(x)
    m, s = np.uint32(u & _MAGNITUDE), right32(np.uint32(u & _SIGN), g[SIGN_SHIFT])
    raised = bits_from_float(float_from_bits(m) + float_from_bits(g[EMIN]))
    fields = add32(m, _ONE_MORE) if m >= g[EMIN] else raised
    code = right32(subtract32(fields, g[EMIN]), g[SHIFT])
    s = np.uint32(s & g[ZERO_SIGN]) if code == _0 else s
    code = np.uint32((g[INFINITE_RESULT] if m == _INF else code) | s)
    return g[NAN_RESULT] if m > _INF else code


@kernel
def unpack(codes, out, params):
    """Write the numbers of codes, as float32 or float64."""
    wide_vectors()
    g = fields_of(params)
    for i in range(codes.size):
        out[i] = number_of(codes[i], g)


@kernel
def pack(values, out, params):
    """Write the codes of float32 numbers of the format, infinities and NaNs."""
    wide_vectors()
    g = fields_of(params)
    for i in range(out.size):
        out[i] = code_of(values[i], g)
