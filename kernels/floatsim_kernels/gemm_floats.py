"""Sequential matrix products in hardware floats: one product rounding and one sum rounding a step, ties to even.

The loops run i, k, j with j innermost: each result element sums its products in the order of k, while the columns fill
the lanes of a vector register. Operands and accumulators are float32 (float64) *values* on their formats' grids; the
roundings back to the accumulator's grid are those of packed.py and carriers.py, and are innocuous for the same reasons.

a: (M, K), b: (K, N), acc: (M, N), zero at the start and the result at the end. Needs
`machine.environment_is_default()`, and `half` `machine.has_f16c()`.
"""

import numpy as np

from .intrinsics import add32, bits_from_float, float_from_bits, float_from_half, half_from_float, right32
from .jit import inline, kernel


@kernel
def plain(a, b, acc):
    """An accumulator in the carrier's own format: float32 or float64."""
    for i in range(acc.shape[0]):
        row = acc[i]
        for k in range(a.shape[1]):
            x, bs = a[i, k], b[k]
            for j in range(row.size):
                row[j] = row[j] + x * bs[j]


@inline
def on_half_grid(x):
    return float_from_half(half_from_float(x))


@kernel
def half(a, b, acc):
    """An FP16 accumulator."""
    for i in range(acc.shape[0]):
        row = acc[i]
        for k in range(a.shape[1]):
            x, bs = a[i, k], b[k]
            for j in range(row.size):
                row[j] = on_half_grid(row[j] + on_half_grid(x * bs[j]))


_16, _1, _BELOW_HALF, _UPPER = np.uint32(16), np.uint32(1), np.uint32(0x7FFF), np.uint32(0xFFFF0000)


@inline
def on_bfloat_grid(x):
    """Of hardware NaNs only the upper half is set, so that they stay NaN."""
    u = bits_from_float(x)
    odd = right32(u, _16) & _1
    return float_from_bits(np.uint32(add32(add32(u, _BELOW_HALF), odd) & _UPPER))


@kernel
def bfloat(a, b, acc):
    """A BF16 accumulator."""
    for i in range(acc.shape[0]):
        row = acc[i]
        for k in range(a.shape[1]):
            x, bs = a[i, k], b[k]
            for j in range(row.size):
                row[j] = on_bfloat_grid(row[j] + on_bfloat_grid(x * bs[j]))


_MAGNITUDE, _SIGN, _EXPONENT = np.uint32(0x7FFFFFFF), np.uint32(0x80000000), np.uint32(0x7F800000)

GRID_FIELDS = ("emin", "limit", "above", "max", "overflow")
EMIN, LIMIT, ABOVE, MAX, OVER = range(5)


@inline
def on_grid(x, g):
    """Ties to even on the grid of a narrow format; beyond max, the overflow value (an infinity or a NaN)."""
    u = bits_from_float(x)
    m, s = np.uint32(u & _MAGNITUDE), np.uint32(u & _SIGN)
    e = min(max(np.uint32(m & _EXPONENT), g[EMIN]), g[LIMIT])
    v, c = float_from_bits(m), float_from_bits(add32(e, g[ABOVE]))
    r = (v + c) - c
    r = float_from_bits(g[OVER]) if r > float_from_bits(g[MAX]) else r  # not so for NaN, which stays
    return float_from_bits(np.uint32(bits_from_float(r) | s))


@kernel
def narrow(a, b, acc, row_of_grid):
    """An accumulator of any format that `carriers` rounds to by addition."""
    g = (row_of_grid[0], row_of_grid[1], row_of_grid[2], row_of_grid[3], row_of_grid[4])
    for i in range(acc.shape[0]):
        row = acc[i]
        for k in range(a.shape[1]):
            x, bs = a[i, k], b[k]
            for j in range(row.size):
                row[j] = on_grid(row[j] + on_grid(x * bs[j], g), g)
