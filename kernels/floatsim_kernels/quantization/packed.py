"""Loops that unpack small codes from the bytes of blocks.

A code of up to 8 bits is one digit of a byte, or a sum of digits of several bytes. A digit is
((byte * factor mod 256) * base) >> 8: a field of w bits whose lowest bit is s has the factor 2**(8 - s - w) and the
base 2**w, and the digits to base 3 of the ternary types have the factors 3**k and the base 3.
"""

import numpy as np

from ..runtime.intrinsics import wide_vectors
from ..runtime.jit import kernel


@kernel
def unpack(blocks, runs, bias, table, out):
    """Write the codes of blocks, one row of bytes each, as int8.

    A row of `runs` is (first element, elements, first byte, factor, base, place, halves). Each element has a byte of
    its own, the neighbour of the one before; or, if the run `halves`, all have one byte, and each has half the factor
    of the one before. The digit times `place` is written if the place is 1, less `bias`, and added otherwise. The sum
    is the index of an entry of `table`, if that is not empty.
    """
    wide_vectors()
    for i in range(blocks.shape[0]):
        source, written = blocks[i], out[i]
        for r in range(runs.shape[0]):
            start, n, byte, factor, base, place, halves = runs[r]
            part, codes = source[byte : byte + n], written[start : start + n]
            if halves and place == 1:
                for j in range(n):
                    codes[j] = ((((part[0] * (factor >> j)) & 255) * base) >> 8) - bias
            elif halves:
                for j in range(n):
                    codes[j] += ((((part[0] * (factor >> j)) & 255) * base) >> 8) * place
            elif place == 1:
                for j in range(n):
                    codes[j] = ((((part[j] * factor) & 255) * base) >> 8) - bias
            else:
                for j in range(n):
                    codes[j] += ((((part[j] * factor) & 255) * base) >> 8) * place
        if table.size:
            for j in range(written.size):
                written[j] = table[written[j] & 255]


_ONES = np.uint64(0x0101010101010101)
_HALF = np.uint64(32)


@kernel
def points(index, signs, grid, masks, out):
    """Write eight elements of a grid, one byte each, for each byte of `signs`: negated where the bit is 1.

    `grid` has uint64 words: points of eight elements, or of four, which are two to a word. `masks` has a word for each
    byte of signs: 255 for the negated elements. No byte that is negated is 0, so there is no carry between bytes.
    """
    wide_vectors()
    if index.size == signs.size:
        for i in range(signs.size):
            mask = masks[signs[i]]
            out[i] = (grid[index[i]] ^ mask) + (mask & _ONES)
    else:
        for i in range(signs.size):
            mask = masks[signs[i]]
            word = grid[index[2 * i]] | (grid[index[2 * i + 1]] << _HALF)
            out[i] = (word ^ mask) + (mask & _ONES)
