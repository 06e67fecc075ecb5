"""Codes to float32 numbers and back: exact, branch-free, at the speed of vector registers.

The fields of a code are shifted to their places in float32. A multiplication by a power of two moves the exponent, of
subnormals too. The kernels need `cpu.environment_is_default()`. `params` has the layout UNPACK_FIELDS.
"""

import numpy as np

from ..runtime.intrinsics import bits_from_float, float_from_bits, left32, right32
from ..runtime.jit import inline, kernel

UNPACK_FIELDS = (
    "sign", "magnitude", "sign_shift", "shift", "scale", "unscale", "max_code", "infinity", "nan", "infinite_result",
    "zero_sign",
)  # fmt: skip
SIGN, MAGNITUDE, SIGN_SHIFT, SHIFT, SCALE, UNSCALE, MAX_CODE, INFINITY, NAN, INFINITE_RESULT, ZERO_SIGN = range(11)
"""Masks of the sign and the magnitude; the shifts of the sign and of the other fields; the power of two that moves the
exponent, and its inverse, as bits of float32; the codes of max, infinity and NaN; the code of an infinite result; and
the mask of the sign of a zero."""
_INF, _NAN, _SIGN, _MAGNITUDE = (np.uint32(x) for x in (0x7F800000, 0x7FC00000, 0x80000000, 0x7FFFFFFF))
_0 = np.uint32(0)


@inline
def fields_of(g):
    return g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], g[10]


@kernel
def unpack(codes, out, params):
    """Write the float32 numbers of codes; every NaN becomes the canonical one."""
    g = fields_of(params)
    for i in range(codes.size):
        c = np.uint32(codes[i])
        magnitude = np.uint32(c & g[MAGNITUDE])
        bits = bits_from_float(float_from_bits(left32(magnitude, g[SHIFT])) * float_from_bits(g[SCALE]))
        special = _INF if magnitude == g[INFINITY] else _NAN
        bits = special if magnitude > g[MAX_CODE] else bits
        bits = _NAN if c == g[NAN] else bits
        out[i] = float_from_bits(np.uint32(bits | left32(np.uint32(c & g[SIGN]), g[SIGN_SHIFT])))


@kernel
def pack(values, out, params):
    """Write the codes of float32 numbers of the format, infinities and NaNs."""
    g = fields_of(params)
    for i in range(out.size):
        u = bits_from_float(values[i])
        m, s = np.uint32(u & _MAGNITUDE), right32(np.uint32(u & _SIGN), g[SIGN_SHIFT])
        code = right32(bits_from_float(float_from_bits(m) * float_from_bits(g[UNSCALE])), g[SHIFT])
        s = np.uint32(s & g[ZERO_SIGN]) if code == _0 else s
        code = np.uint32((g[INFINITE_RESULT] if m == _INF else code) | s)
        out[i] = g[NAN] if m > _INF else code
