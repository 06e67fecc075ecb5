"""float32 values rounded, ties to even, to the grid of FP16, of BF16, or of a narrow format that is data."""

import numpy as np

from .intrinsics import add32, and32, bits_from_float, float_from_bits, float_from_half, half_from_float, or32, right32
from .jit import inline

_16, _1, _BELOW_HALF, _UPPER = np.uint32(16), np.uint32(1), np.uint32(0x7FFF), np.uint32(0xFFFF0000)


@inline
def on_half_grid(x):
    """Only where `machine.has_f16c()`."""
    return float_from_half(half_from_float(x))


@inline
def on_bfloat_grid(x):
    """Of hardware NaNs only the upper half is set, so that they stay NaN."""
    u = bits_from_float(x)
    odd = and32(right32(u, _16), _1)
    return float_from_bits(and32(add32(add32(u, _BELOW_HALF), odd), _UPPER))


NARROW_FIELDS = ("emin", "limit", "above", "max", "overflow")
"""As float32's bits: 2**emin; 2**(emax + 1); exponent of what is added, over the number's; max; what is beyond."""
_EMIN, _LIMIT, _ABOVE, _MAX, _OVER = range(5)
_MAGNITUDE, _SIGN, _EXPONENT = np.uint32(0x7FFFFFFF), np.uint32(0x80000000), np.uint32(0x7F800000)


@inline
def narrow_row(g):
    return g[0], g[1], g[2], g[3], g[4]


@inline
def on_narrow_grid(x, g):
    """By adding and subtracting a power of two: for formats whose quanta are normal numbers of float32."""
    u = bits_from_float(x)
    m, s = and32(u, _MAGNITUDE), and32(u, _SIGN)
    e = min(max(and32(m, _EXPONENT), g[_EMIN]), g[_LIMIT])
    v, c = float_from_bits(m), float_from_bits(add32(e, g[_ABOVE]))
    r = (v + c) - c
    r = float_from_bits(g[_OVER]) if r > float_from_bits(g[_MAX]) else r  # not so for NaN, which stays
    return float_from_bits(or32(bits_from_float(r), s))
