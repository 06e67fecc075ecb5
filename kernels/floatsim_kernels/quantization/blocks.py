"""Loops over blocks of a matrix that share a scale.

Each loop takes a piece of a matrix, the row and the column of its first element, and the height and the width of a
block. An array `(blocks down, blocks across)` has one number for each block. The last blocks may be short.
`multiply` and `divide` compute in hardware floats: they need `cpu.environment_is_default()`. The inner loops run over
slices from their first element on: an index that may be negative keeps LLVM from using vectors.
"""

import numpy as np

from ..runtime.intrinsics import bits_of_both, differing_bits, larger_integer, wide_vectors, zero_beyond
from ..runtime.jit import inline, kernel

_MAGNITUDE, _SIGN_PLACE = np.int32(0x7FFFFFFF), np.int32(31)
_CHUNK = 2048


@kernel
def largest(codes, first_row, first_column, height, width, flip, keep, limit, out):
    """Raise out[block] to the largest (code ^ flip) & keep that is at most `limit`."""
    wide_vectors()
    for i in range(codes.shape[0]):
        row = (first_row + i) // height
        start = 0
        while start < codes.shape[1]:
            block = (first_column + start) // width
            end = min(codes.shape[1], (block + 1) * width - first_column)
            found = out[row, block]
            part = codes[i, start:end]
            for k in range(part.size):
                code = bits_of_both(differing_bits(part[k], flip), keep)
                found = larger_integer(found, zero_beyond(code, limit))
            out[row, block] = found
            start = end


def _scaled(divides):
    """Return the kernel that multiplies or divides the elements by the scale of their block."""

    @kernel
    def loop(x, first_row, first_column, height, width, scales, out):
        wide_vectors()
        for i in range(x.shape[0]):
            row = (first_row + i) // height
            start = 0
            while start < x.shape[1]:
                block = (first_column + start) // width
                end = min(x.shape[1], (block + 1) * width - first_column)
                scale = scales[row, block]
                part, written = x[i, start:end], out[i, start:end]
                for k in range(part.size):
                    written[k] = part[k] / scale if divides else part[k] * scale
                start = end

    return loop


multiply, divide = _scaled(False), _scaled(True)
"""Write the products, or the quotients, of the elements and the scale of their block, rounded to their dtype."""


# -- whole blocks, one after the other in memory: arrays (blocks, width) -----------------------------------------------


@kernel
def largest_of_rows(codes, flip, keep, limit, out):
    """Do for the rows of a matrix what `largest` does for blocks."""
    wide_vectors()
    for i in range(out.size):
        row, found = codes[i], out[i]
        for k in range(row.size):
            found = larger_integer(found, zero_beyond(bits_of_both(differing_bits(row[k], flip), keep), limit))
        out[i] = found


def _scaled_rows(divides):
    """Return the kernel that multiplies or divides the elements by the scale of their row."""

    @kernel
    def loop(x, scales, out):
        wide_vectors()
        for i in range(scales.size):
            scale, row, written = scales[i], x[i], out[i]
            for k in range(row.size):
                written[k] = row[k] / scale if divides else row[k] * scale

    return loop


multiply_rows, divide_rows = _scaled_rows(False), _scaled_rows(True)


# -- zero points -------------------------------------------------------------------------------------------------------


@kernel
def to_integers(x, first_row, first_column, height, width, zeros, low, high, out):
    """Write x + the zero point of the block, clamped. x and the zero points are integers as floats."""
    wide_vectors()
    for i in range(x.shape[0]):
        row = (first_row + i) // height
        start = 0
        while start < x.shape[1]:
            block = (first_column + start) // width
            end = min(x.shape[1], (block + 1) * width - first_column)
            zero = zeros[row, block]
            part, written = x[i, start:end], out[i, start:end]
            for k in range(part.size):
                number = part[k] + zero
                number = low if number < low else number
                written[k] = np.int32(high if number > high else number)
            start = end


@kernel
def from_integers(codes, first_row, first_column, height, width, zeros, out):
    """Write the codes less the zero point of the block, as floats of the dtype of the zero points."""
    wide_vectors()
    for i in range(codes.shape[0]):
        row = (first_row + i) // height
        start = 0
        while start < codes.shape[1]:
            block = (first_column + start) // width
            end = min(codes.shape[1], (block + 1) * width - first_column)
            zero = zeros[row, block]
            part, written = codes[i, start:end], out[i, start:end]
            for k in range(part.size):
                written[k] = np.int32(part[k]) - zero
            start = end


@inline
def ordinal(bits):
    """An integer that orders the float32 numbers as their values. -0 is below +0. Without a branch on the sign."""
    return bits ^ ((bits >> _SIGN_PLACE) & _MAGNITUDE)


@kernel
def look_up(bits, thresholds, codes, out):
    """Write codes[the number of thresholds below x] for float32 numbers x, given as their bits, int32.

    The thresholds are results of `ordinal`. Each is compared with a chunk of numbers, in vectors.
    """
    wide_vectors()
    keys, counts = np.empty(_CHUNK, np.int32), np.empty(_CHUNK, np.int32)
    for start in range(0, bits.size, _CHUNK):
        part, written = bits[start : start + _CHUNK], out[start : start + _CHUNK]
        for i in range(part.size):
            keys[i] = ordinal(part[i])
            counts[i] = 0
        for k in range(thresholds.size):
            limit = thresholds[k]
            for i in range(part.size):
                counts[i] += 1 if keys[i] > limit else 0
        for i in range(part.size):
            written[i] = codes[counts[i]]
