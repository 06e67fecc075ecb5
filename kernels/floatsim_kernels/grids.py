"""float32 values rounded to the grid of FP16 or BF16, ties to even."""

import numpy as np

from .intrinsics import add32, and32, bits_from_float, float_from_bits, float_from_half, half_from_float, right32
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
