"""Loops over blocks of a matrix that share a scale.

Each loop takes a flat piece of a matrix, its number of columns, the row and the column of its first element in the
matrix, and the height and the width of a block. An array `(blocks down, blocks across)` has one number for each block.
The last blocks may be short.

`walk` is the loop of all element-wise steps. It spreads the numbers of the blocks over the columns of a part of the
piece, so that the inner loop runs over elements, whatever the blocks are: (1, 16), (128, 128) or (K, 1). The kernels
compute in hardware floats: they need `cpu.environment_is_default()`, except `largest`. The inner loops run over slices
from their first element on: an index that may be negative keeps LLVM from using vectors.
"""

import functools

import numpy as np

from ..elementwise import quantize, unpack
from ..rounding.integer import TIES_TO_EVEN
from ..runtime.intrinsics import (
    as_bits,
    as_float,
    bits_from_float,
    bits_of_both,
    differing_bits,
    larger_integer,
    wide_vectors,
    zero_array,
    zero_beyond,
)
from ..runtime.jit import inline, kernel
from ..runtime.simd import SIXTEEN, largest_of_sixteen, prefetch, store_sixteen

_CHUNK = 2048
"""Elements: a part of x, its scales and its results stay in the first cache level."""
_AHEAD, _STEP = 4096, 256
"""Elements: how far ahead, and how many at a time, `walk` requests x from memory. It took 0.9 of the time without that,
with blocks of 128 and of 16 (AVX-512, November 2026)."""


# -- the largest code of each block ------------------------------------------------------------------------------------


@inline
def code_of(code, flip, keep, limit):
    """(code ^ flip) & keep, or 0 if that is more than `limit`."""
    return zero_beyond(bits_of_both(differing_bits(code, flip), keep), limit)


@inline
def raise_steps(codes, steps, flip, keep, limit, out):
    """`raise_to_largest` for whole blocks of `steps` times 16 codes, the first of which begins at codes[0]."""
    size = steps * SIXTEEN
    for block in range(codes.size // size):
        found = out[block]
        for start in range(block * size, (block + 1) * size, SIXTEEN):
            found = larger_integer(found, largest_of_sixteen(codes, start, flip, keep, limit))
        out[block] = found


@inline
def raise_to_largest(codes, column, width, flip, keep, limit, out):
    """Raise out[block] to the largest `code_of` its codes. The codes are a row from a column on."""
    start, block = 0, column // width
    if width == SIXTEEN and column % width == 0:
        raise_steps(codes, 1, flip, keep, limit, out[block:])
        start = codes.size // width * width
    elif width == 2 * SIXTEEN and column % width == 0:
        raise_steps(codes, 2, flip, keep, limit, out[block:])
        start = codes.size // width * width
    elif width == 1:
        start, numbers = codes.size, out[column:]
        for k in range(codes.size):
            numbers[k] = larger_integer(numbers[k], code_of(codes[k], flip, keep, limit))
    block = (column + start) // width
    while start < codes.size:
        end = min(codes.size, (block + 1) * width - column)
        part, found = codes[start:end], out[block]
        for k in range(part.size):
            found = larger_integer(found, code_of(part[k], flip, keep, limit))
        out[block] = found
        start, block = end, block + 1


@inline
def raise_rows(codes, columns, start, n, rows, of_rows, flip, keep, limit):
    """Write the largest `code_of` each of n columns to of_rows[:n]. Rows that are short are taken several at a time."""
    together = max(1, min(_CHUNK // n, rows)) if n == columns else 1
    for k in range(together * n):
        of_rows[k] = 0
    for row in range(0, rows, together):
        part = codes[row * columns + start :][: min(together, rows - row) * n]
        for k in range(part.size):
            of_rows[k] = larger_integer(of_rows[k], code_of(part[k], flip, keep, limit))
    for row in range(1, together):
        part = of_rows[row * n : (row + 1) * n]
        for k in range(n):
            of_rows[k] = larger_integer(of_rows[k], part[k])


@inline
def raise_blocks(codes, columns, first_row, first_column, height, width, flip, keep, limit, out):
    """Raise out[block] to the largest (code ^ flip) & keep that is at most `limit`."""
    rows = codes.size // columns
    if height == 1:
        for i in range(rows):
            row = codes[i * columns : (i + 1) * columns]
            raise_to_largest(row, first_column, width, flip, keep, limit, out[first_row + i])
        return
    of_rows, no_flip = zero_array(min(_CHUNK, codes.size), codes.dtype), differing_bits(flip, flip)
    for start in range(0, columns, _CHUNK):
        n, i = min(columns - start, _CHUNK), 0
        while i < rows:
            down = (first_row + i) // height
            stop = min(rows, (down + 1) * height - first_row)
            raise_rows(codes[i * columns : stop * columns], columns, start, n, stop - i, of_rows, flip, keep, limit)
            raise_to_largest(of_rows[:n], first_column + start, width, no_flip, keep, limit, out[down])
            i = stop


@kernel
def largest(codes, columns, first_row, first_column, height, width, flip, keep, limit, out):
    """Raise out[block] to the largest (code ^ flip) & keep that is at most `limit`."""
    wide_vectors()
    raise_blocks(codes, columns, first_row, first_column, height, width, flip, keep, limit, out)


_PART = 1 << 14
"""Elements that are read twice while they are in the second cache level; 16 chunks."""


@kernel
def largest_of_signs(codes, columns, first_row, first_column, height, width, sign, limit, positive, negative):
    """Raise positive[block] and negative[block] to the largest magnitudes of both signs that are at most `limit`."""
    wide_vectors()
    none, everything = differing_bits(sign, sign), differing_bits(sign, limit)
    rows, n = codes.size // columns, min(columns, max(1, _PART // width) * width)
    together = max(1, _PART // columns)
    for i in range(0, rows, together):
        m = min(together, rows - i)
        for start in range(0, columns, n):
            across = min(n, columns - start)
            part = codes[i * columns + start :][: (m - 1) * columns + across]
            where = first_row + i, first_column + start
            raise_blocks(part, across, *where, height, width, none, everything, limit, positive)
            raise_blocks(part, across, *where, height, width, sign, everything, limit, negative)


# -- the walk over elements --------------------------------------------------------------------------------------------


@inline
def fill(out, number):
    """Write a number to all elements."""
    done = out.size // SIXTEEN * SIXTEEN
    for start in range(0, done, SIXTEEN):
        store_sixteen(out, start, number)
    for k in range(done, out.size):
        out[k] = number


@inline
def spread_row(numbers, column, width, out):
    """Write the number of the block of each element of a row, from a column on."""
    if width == 1:
        part = numbers[column:]
        for k in range(out.size):
            out[k] = part[k]
        return
    if width < SIXTEEN and width & (width - 1) == 0 and column % width == 0:
        part, shift = numbers[column // width :], (width >> 1) - (width >> 3)  # 1, 2, 3 for 2, 4, 8
        for k in range(out.size):
            out[k] = part[k >> shift]
        return
    if (width == SIXTEEN or width == 2 * SIXTEEN) and (column | out.size) % width == 0:
        part, last = numbers[column // width :], width - SIXTEEN
        for k in range(out.size // width):
            store_sixteen(out, k * width, part[k])
            store_sixteen(out, k * width + last, part[k])
        return
    start, block = 0, column // width
    while start < out.size:
        end = min(out.size, (block + 1) * width - column)
        fill(out[start:end], numbers[block])
        start, block = end, block + 1


@inline
def spread_rows(numbers, row, rows, height, column, n, width, out):
    """Write the numbers of the blocks of the elements of some rows of n columns."""
    for i in range(rows):
        spread_row(numbers[(row + i) // height], column, width, out[i * n : (i + 1) * n])


def walk(element, fields_of, shifts):
    """Return the kernel that writes element(x, factor, zero, fields, ends) for each x.

    `factor` and `zero` are the numbers of the block; `fields` is the tuple fields_of(params), `ends` has three numbers.
    Unless it `shifts`, zero is zeros[0, 0] for all blocks.
    """

    @kernel
    def loop(x, columns, first_row, first_column, height, width, factors, zeros, params, ends, out):
        wide_vectors()
        fields, three = fields_of(params), (ends[0], ends[1], ends[2])
        together, rows = max(1, _CHUNK // columns), x.size // columns
        factor = zero_array(min(_CHUNK, x.size), factors.dtype)
        zero = zero_array(min(_CHUNK, x.size) if shifts else 0, zeros.dtype)
        constant = zeros[0, 0]
        for i in range(0, rows, together):
            m = min(together, rows - i)
            for start in range(0, columns, _CHUNK):
                n, first = min(columns - start, _CHUNK), i * columns + start
                spread_rows(factors, first_row + i, m, height, first_column + start, n, width, factor)
                if shifts:
                    spread_rows(zeros, first_row + i, m, height, first_column + start, n, width, zero)
                for done in range(0, m * n, _STEP):
                    stop = min(m * n, done + _STEP)
                    part, written = x[first + done : first + stop], out[first + done : first + stop]
                    of_block, shift = factor[done:stop], zero[done:stop] if shifts else zero
                    prefetch(x, first + done + _AHEAD, first + stop + _AHEAD)
                    for k in range(part.size):
                        written[k] = element(part[k], of_block[k], shift[k] if shifts else constant, fields, three)

    return loop


@inline
def no_fields(params):
    return params[0]


_FLOATS = {32: np.float32, 64: np.float64}


# -- from numbers to codes ---------------------------------------------------------------------------------------------


@functools.cache
def products(divides):
    """Return the kernel that writes x * factor, or x / factor, rounded to their dtype."""

    @inline
    def element(x, factor, zero, g, ends):
        return x / factor if divides else x * factor

    return walk(element, no_fields, False)


@functools.cache
def float_codes(bits, rounding, divides, shared, codes, lifts=False):
    """Return the kernel that writes the codes of the scaled elements in a floating-point format.

    `bits` is the width of x, `rounding` a deterministic mode as in rounding/integer.py, and `shared` whether the format
    has the exponents of float32. `codes` is their kind, as quantize.CODES, and `params` holds the fields of
    quantize.ROUNDING_FIELDS for codes. A kernel that `lifts` divides x * ends[0] by the factors.
    """
    kind, masks = quantize.carrier(bits)

    if shared:

        @inline
        def element(x, factor, zero, g, ends):
            t = (x * ends[0] if lifts else x) / factor if divides else x * factor
            return quantize.shared_element(rounding, codes, bits_from_float(t), g[quantize.DROPPED], g)

    else:

        @inline
        def element(x, factor, zero, g, ends):
            t = (x * ends[0] if lifts else x) / factor if divides else x * factor
            return quantize.rounded_element(kind, masks, rounding, codes, as_bits(t), g)

    return walk(element, quantize.fields_of, False)


@functools.cache
def integer_codes(bits, rounding, divides, shifts):
    """Return the kernel that writes the scaled elements rounded to integers, plus the zero point, clamped.

    `ends` are the least and the largest integer, and the power of two that the scaled elements are multiplied with.
    `params` holds the fields of quantize.ROUNDING_FIELDS for values of a format whose numbers are integers.
    """
    kind, masks = quantize.carrier(bits)

    @inline
    def element(x, factor, zero, g, ends):
        t = (x / factor if divides else x * factor) * ends[2]
        if rounding == TIES_TO_EVEN:  # beyond the largest of these integers, both numbers are clamped
            number = np.rint(t) + zero
        else:
            number = as_float(quantize.rounded_element(kind, masks, rounding, quantize.VALUES, as_bits(t), g)) + zero
        number = ends[0] if number < ends[0] else number
        return np.int32(ends[1] if number > ends[1] else number)

    return walk(element, quantize.fields_of, shifts)


# -- from codes to numbers ---------------------------------------------------------------------------------------------


@functools.cache
def float_values(bits):
    """Return the kernel that writes the numbers of floating-point codes times their scales, as float32 or float64.

    `params` holds the fields of unpack.UNPACK_FIELDS.
    """
    kind = _FLOATS[bits]

    @inline
    def element(code, scale, zero, g, ends):
        return kind(unpack.number_of(code, g)) * scale

    return walk(element, unpack.fields_of, False)


@functools.cache
def integer_values(bits, shifts):
    """Return the kernel that writes the integers less the zero point times their scales, as float32 or float64.

    The integers count units of ends[0], a power of two.
    """
    kind = _FLOATS[bits]

    @inline
    def element(code, scale, zero, g, ends):
        return ((kind(code) - zero) * ends[0]) * scale

    return walk(element, no_fields, shifts)


@functools.cache
def affine_values(bits):
    """Return the kernel that writes the integers times their scales plus the offset of their block, each rounded.

    The integers count units of ends[0], a power of two. The offsets are given as the zero points.
    """
    kind = _FLOATS[bits]

    @inline
    def element(code, scale, zero, g, ends):
        return ((kind(code) * ends[0]) * scale) + zero

    return walk(element, no_fields, True)


# -- tables ------------------------------------------------------------------------------------------------------------

_MAGNITUDE, _SIGN_PLACE = np.int32(0x7FFFFFFF), np.int32(31)


@inline
def ordinal(bits):
    """An integer that orders the float32 numbers as their values. -0 is below +0. Without a branch on the sign."""
    return bits ^ ((bits >> _SIGN_PLACE) & _MAGNITUDE)


@inline
def key_fields(p):
    """Four thresholds, what each changes in a code, and the first code."""
    return p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8]


@inline
def many_key_fields(p):
    """Sixteen thresholds, what each changes in a code, and the first code."""
    return (
        p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11], p[12], p[13], p[14], p[15], p[16],
        p[17], p[18], p[19], p[20], p[21], p[22], p[23], p[24], p[25], p[26], p[27], p[28], p[29], p[30], p[31], p[32],
    )  # fmt: skip


@inline
def change(key, g, k, count):
    """What the k-th threshold changes in the code of a key."""
    return np.int32(g[count + k] if key > g[k] else np.int32(0))


@inline
def four_changes(key, g, k, count):
    both = change(key, g, k, count) ^ change(key, g, k + 1, count)
    return np.int32(both ^ change(key, g, k + 2, count) ^ change(key, g, k + 3, count))


FEW, MANY = 4, 16
"""The numbers of thresholds that `table_codes` has kernels for."""


@functools.cache
def table_codes(divides, count):
    """Return the kernel that writes the codes of the scaled elements, float32, as `look_up` does, in one pass.

    `params` holds `count` thresholds, which is FEW or MANY, as many changes, and codes[0].
    """

    @inline
    def element(x, factor, zero, g, ends):
        key = np.int32(ordinal(np.int32(bits_from_float(x / factor if divides else x * factor))))
        code = g[2 * count] ^ four_changes(key, g, 0, count)
        if count == MANY:
            code ^= four_changes(key, g, 4, count) ^ four_changes(key, g, 8, count) ^ four_changes(key, g, 12, count)
        return code

    return walk(element, key_fields if count == FEW else many_key_fields, False)


@kernel
def look_up(bits, thresholds, codes, changes, out):
    """Write codes[the number of thresholds below x] for float32 numbers x, given as their bits, int32.

    The thresholds are results of `ordinal`, in ascending order. changes[k] = codes[k] ^ codes[k + 1], so the code is
    codes[0] ^ changes[0] ^ changes[1] ... for the thresholds below x. Each four are compared with a part of the
    numbers, in vectors; `thresholds` and `changes` are filled up to a multiple of four.
    """
    wide_vectors()
    keys, found = zero_array(_CHUNK, np.int32), zero_array(_CHUNK, np.int32)
    zero, first = np.int32(0), np.int32(codes[0])
    for start in range(0, bits.size, _CHUNK):
        part, written = bits[start : start + _CHUNK], out[start : start + _CHUNK]
        for i in range(part.size):
            keys[i] = ordinal(part[i])
            found[i] = first
        for k in range(0, thresholds.size, 4):
            a, b, c, d = thresholds[k], thresholds[k + 1], thresholds[k + 2], thresholds[k + 3]
            p, q, r, s = changes[k], changes[k + 1], changes[k + 2], changes[k + 3]
            for i in range(part.size):
                key = keys[i]
                both = (p if key > a else zero) ^ (q if key > b else zero)
                found[i] ^= both ^ (r if key > c else zero) ^ (s if key > d else zero)
        for i in range(part.size):
            written[i] = found[i]


@inline
def as_numbers(params):
    return params


@inline
def entry(code, scale, zero, table, ends):
    """The number of a code, from a table of 256, times the scale."""
    return table[code] * scale


table_values = walk(entry, as_numbers, False)
"""Write the numbers of codes, which `params` holds for every uint8, times their scales."""
