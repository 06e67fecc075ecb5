"""Matrix products in float32, sums in order, products and sums rounded stochastically to BF16.

With hardware that rounds toward zero, the code of a float32 sum ends with the first 16 bits of what BF16 discards. The
first 16 bits of a draw, added to that code, carry into the bits that stay where the sum is to be rounded up. What else
there is of the sum and of the draw matters only where those 16 bits are all ones after the addition: such sums, one in
2**16, are found afterwards, and done again in float64, which keeps 45 bits of what BF16 discards. Of products, which
are exact in float32, BF16 discards 16 bits.

Arguments and tiles are those of gemm_singles.py. Of the rows of `acc`, half hold the sums: their codes after the
addition, which are cut when they are used next. The others hold what the sums were one step before.
"""

import functools

import numpy as np

from .gemm_singles import SINGLE, arguments, begin, take, tile, tiles
from .intrinsics import (
    add32,
    and32,
    bits_from_double,
    bits_from_float,
    float_from_bits,
    left32,
    right32,
    set_rounding,
    wide_vectors,
)
from .jit import inline, kernel_of
from .random import draw_key, draw_word
from .single_steps import EXACT, LEFT, MASK, NONE, ODD, TIES_TO_EVEN, TOWARD_ZERO, finish, refuse

_16, _UPPER = np.uint32(16), np.uint32(0xFFFF0000)
_LOW, _R32, _NO_BLOCK = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(0)
_MAGNITUDE, _LEAST = np.uint64(0x7FFFFFFFFFFFFFFF), np.uint64(0x3810000000000000)  # 2**-126, in float64
_DISCARDED, _13 = np.uint64((1 << 45) - 1), np.uint64(13)


@inline
def cut(code):
    return float_from_bits(and32(code, _UPPER))


@inline
def with_draw(x, key_low, key_high, index, mask):
    """The code of x with the first bits of a draw added."""
    word = and32(draw_word(key_low, key_high, index), mask)
    return add32(bits_from_float(x), right32(word, _16))


@inline
def term(terms, x, y, key_low, key_high, index, mask):
    return x * y if terms == EXACT else cut(with_draw(x * y, key_low, key_high, index, mask))


@inline
def in_doubt(code):
    return left32(code, _16) == _UPPER


@inline
def done_again(u, v, word):
    """The code of u + v, cut, and raised if the draw says so."""
    wide = bits_from_double(np.float64(u) + np.float64(v))
    code = and32(bits_from_float(u + v), _UPPER)
    if wide & _MAGNITUDE < _LEAST:  # exact
        return code
    up = ((wide & _DISCARDED) >> _13) + np.uint64(word) > _LOW
    return add32(code, np.uint32(0x10000)) if up else code


@functools.cache
def in_order(terms):
    """The kernel for terms one after the other: sites 8 * step and 8 * step + 1, of the product and of the sum."""

    @kernel_of(arguments(SINGLE))
    def kernel(acc, panel, failed, a, b, out, ranges, index, seeds, fresh, direction, grid):
        wide_vectors()
        refuse(ODD, terms, a, b, grid, failed)
        mask = grid[MASK]
        most_rows = acc.shape[0] // 2
        keys = np.empty((panel.shape[0], 4), np.uint32)
        numbers = np.empty(acc.shape[1], np.uint32)
        for j in range(numbers.size):
            numbers[j] = np.uint32(j * index[2])
        set_rounding(np.int32(TOWARD_ZERO))
        for n in range(tiles(most_rows, acc.shape[1], out)):
            part, i0, rows, c, j0, columns = tile(n, most_rows, acc.shape[1], out)
            for i in range(rows):
                begin(True, fresh, out[part, i0 + i, j0 : j0 + columns], np.float32(1), acc[i])
            start, stop, step, site = ranges[part, 0], ranges[part, 1], ranges[part, 2], np.uint64(0)
            while start < stop:
                depth = min(panel.shape[0], (stop - start + step - 1) // step)
                take(b, start, step, depth, j0, columns, panel)
                for d in range(depth):
                    for r in range(2):
                        key = draw_key(seeds[part], site + np.uint64(2 * r), _NO_BLOCK)
                        keys[d, 2 * r], keys[d, 2 * r + 1] = np.uint32(key & _LOW), np.uint32(key >> _R32)
                    site += np.uint64(16)
                for i in range(rows):
                    if failed[part, i0 + i, c]:
                        continue
                    sums, before = acc[i], acc[most_rows + i]
                    first = np.uint32(index[0] + (i0 + i) * index[1] + j0 * index[2])
                    for d in range(depth):
                        ys, x = panel[d], a[i0 + i, start + d * step]
                        k0, k1, k2, k3 = keys[d, 0], keys[d, 1], keys[d, 2], keys[d, 3]
                        most = NONE
                        for j in range(sums.size):
                            at = add32(first, numbers[j])
                            u = cut(bits_from_float(sums[j]))
                            s = u + term(terms, x, ys[j], k0, k1, at, mask)
                            code = with_draw(s, k2, k3, at, mask)
                            most = max(most, left32(code, _16))
                            before[j] = u
                            sums[j] = float_from_bits(code)
                        if most == _UPPER:
                            for j in range(sums.size):
                                if in_doubt(bits_from_float(sums[j])):
                                    at = add32(first, numbers[j])
                                    v = term(terms, x, ys[j], k0, k1, at, mask)
                                    word = and32(draw_word(k2, k3, at), mask)
                                    sums[j] = float_from_bits(done_again(before[j], v, word))
                start += depth * step
            for i in range(rows):
                for j in range(acc.shape[1]):
                    acc[i, j] = cut(bits_from_float(acc[i, j]))
                if not failed[part, i0 + i, c]:
                    target = out[part, i0 + i, j0 : j0 + columns]
                    failed[part, i0 + i, c] = finish(acc[i], target, grid, True, False, fresh) == LEFT
        set_rounding(np.int32(TIES_TO_EVEN))

    return kernel
