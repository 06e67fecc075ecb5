"""Loops that unpack small codes from the bytes of blocks.

A code of up to 8 bits is one digit of a byte, or a sum of digits of several bytes. Eight digits of eight neighbouring
bytes are eight bytes of a word: (word >> shift) & mask, moved to their place in the codes.
"""

import numpy as np

from ..runtime.intrinsics import shifted_right, wide_vectors
from ..runtime.jit import kernel
from ..runtime.simd import load_word

FIELDS, BITS, TRITS = range(3)
"""Runs of fields of neighbouring bytes, of the bits of single bytes, and of digits to base 3 of fractions of 256."""

_ONES = np.uint64(0x0101010101010101)
_TOPS = np.uint64(0x8080808080808080)
_NONE = np.uint64(0)
_TILE = 1 << 13  # elements, which stay in the first cache level from run to run


@kernel
def unpack(data, nbytes, runs, words_of_runs, spread, bias, table, codes, words):
    """Write the codes of blocks of `nbytes` bytes, which are flat in `data`, as bytes.

    A row of `runs` is (kind, first element, elements, first byte, factor, adds). FIELDS and BITS have multiples of
    eight elements. A row of `words_of_runs` is (shift, mask, place): eight elements are
    ((word >> shift) & mask) << place. Eight elements of BITS are the entry of `spread` for a byte. A digit of TRITS is
    ((byte * factor mod 256) * 3) >> 8. A run writes its elements or, if it `adds`, completes them. `bias` is
    subtracted from codes below 128. The codes are indices of `table`, if that is not empty. `words`
    is the memory of `codes`.
    """
    wide_vectors()
    count = data.size // nbytes
    size = codes.size // max(count, 1)
    length, less = size >> 3, np.uint64(bias) * _ONES
    tile = max(1, _TILE // max(size, 1))
    for first in range(0, count, tile):
        stop = min(count, first + tile)
        for r in range(runs.shape[0]):
            kind, start, n, byte, factor, adds = runs[r]
            right, mask, left = words_of_runs[r]
            n_words, place = n >> 3, start >> 3
            if kind == FIELDS:
                for i in range(first, stop):
                    for j in range(n_words):
                        digits = shifted_right(load_word(data, i * nbytes + byte + 8 * j), right) & mask
                        word = i * length + place + j
                        words[word] = digits << left | (words[word] if adds else _NONE)
            elif kind == BITS:
                for i in range(first, stop):
                    for j in range(n_words):
                        word = i * length + place + j
                        words[word] = spread[data[i * nbytes + byte + j]] | (words[word] if adds else _NONE)
            else:
                for i in range(first, stop):
                    for j in range(n):
                        codes[i * size + start + j] = (((data[i * nbytes + byte + j] * factor) & 255) * 3) >> 8
        if bias:
            part = words[first * length : stop * length]
            for j in range(part.size):
                part[j] = ((part[j] | _TOPS) - less) ^ _TOPS
        if table.size:
            own = codes[first * size : stop * size]
            for j in range(own.size):
                own[j] = table[own[j]]


_HALF = np.uint64(32)
_BLOCKS = 64  # whose bytes stay in the first cache level from number to number


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


@kernel
def fields(blocks, pieces, out):
    """Write numbers (blocks, numbers) that are made of fields of the bytes of blocks, (blocks, bytes).

    `pieces` is (numbers, pieces, 4): the byte of the block, a shift to the right, a mask, and a shift to the left.
    """
    for first in range(0, out.shape[0], _BLOCKS):
        source, written = blocks[first : first + _BLOCKS], out[first : first + _BLOCKS]
        for k in range(pieces.shape[0]):
            for p in range(pieces.shape[1]):
                byte, right, mask, left = pieces[k, p]
                if mask and p:
                    for i in range(written.shape[0]):
                        written[i, k] |= ((source[i, byte] >> right) & mask) << left
                elif mask:
                    for i in range(written.shape[0]):
                        written[i, k] = ((source[i, byte] >> right) & mask) << left
