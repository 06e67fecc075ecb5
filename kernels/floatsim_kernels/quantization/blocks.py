"""Loops over blocks of a matrix that share a scale.

Each loop takes a piece of a matrix, the row and the column of its first element, and the height and the width of a
block. An array `(blocks down, blocks across)` has one number for each block. The last blocks may be short.
`multiply` and `divide` compute in hardware floats: they need `cpu.environment_is_default()`.
"""

import numpy as np

from ..runtime.jit import inline, kernel

_MAGNITUDE = np.int32(0x7FFFFFFF)


@inline
def ordinal(bits):
    """An int32 that orders the float32 numbers as their values. -0 is below +0."""
    return bits if bits >= 0 else np.int32(bits ^ _MAGNITUDE)


@kernel
def largest(codes, first_row, first_column, height, width, flip, keep, limit, out):
    """Raise out[block] to the largest (code ^ flip) & keep that is at most `limit`."""
    for i in range(codes.shape[0]):
        row = (first_row + i) // height
        start = 0
        while start < codes.shape[1]:
            block = (first_column + start) // width
            end = min(codes.shape[1], (block + 1) * width - first_column)
            found = out[row, block]
            for k in range(start, end):
                code = (codes[i, k] ^ flip) & keep
                code = code if code <= limit else found
                found = max(found, code)
            out[row, block] = found
            start = end


@kernel
def multiply(x, first_row, first_column, height, width, scales, out):
    """Write the products of the elements and the scale of their block, rounded to their dtype."""
    for i in range(x.shape[0]):
        row = (first_row + i) // height
        start = 0
        while start < x.shape[1]:
            block = (first_column + start) // width
            end = min(x.shape[1], (block + 1) * width - first_column)
            scale = scales[row, block]
            for k in range(start, end):
                out[i, k] = x[i, k] * scale
            start = end


@kernel
def divide(x, first_row, first_column, height, width, scales, out):
    """Write the quotients of the elements and the scale of their block, rounded to their dtype."""
    for i in range(x.shape[0]):
        row = (first_row + i) // height
        start = 0
        while start < x.shape[1]:
            block = (first_column + start) // width
            end = min(x.shape[1], (block + 1) * width - first_column)
            scale = scales[row, block]
            for k in range(start, end):
                out[i, k] = x[i, k] / scale
            start = end


@kernel
def look_up(bits, thresholds, codes, out):
    """Write codes[the number of thresholds below x] for float32 numbers x, given as their bits, int32.

    The thresholds are keys of `ordinal` in ascending order.
    """
    for i in range(bits.size):
        key, number = ordinal(bits[i]), 0
        for k in range(thresholds.size):
            number += 1 if key > thresholds[k] else 0
        out[i] = codes[number]


@kernel
def to_integers(x, zero_points, lowest, highest, out):
    """Write x + zero point, clamped. x holds integers; `zero_points` has one element, or one for each of x."""
    step = 0 if zero_points.size == 1 else 1
    for i in range(x.size):
        number = x[i] + zero_points[i * step]
        number = lowest if number < lowest else number
        out[i] = highest if number > highest else number
