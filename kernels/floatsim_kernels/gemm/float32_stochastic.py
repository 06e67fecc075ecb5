"""Matrix products in float32, sequential or along trees; products and sums are rounded stochastically to BF16.

The hardware rounds toward zero. The low 16 bits of the code of a float32 sum are then the first 16 bits that BF16
discards. The first 16 bits of a draw, added to that code, carry into the kept bits where the sum is to be rounded up.
The further bits of the sum and of the draw matter only where those 16 bits are all ones after the addition. Such *tied*
sums, one in 2**16, are found afterwards and decided in float64, which keeps 45 of the bits that BF16 discards. Products
are exact in float32: BF16 discards 16 of their bits.

Arguments and tiles are as in float32.py. For sequential sums, the first half of the rows of `acc` holds the codes of
the sums after the addition, which are cut before the next step. The second half holds the sums one step earlier.
"""

import functools

import numpy as np

from ..rounding.float32 import (
    BAILED_OUT,
    EXACT,
    NONE,
    RANDOM_MASK,
    TIES_TO_EVEN,
    TO_ODD,
    TOWARD_ZERO,
    bail_out_of_rows,
    epilogue,
)
from ..rounding.random import draw_key, draw_word
from ..runtime.intrinsics import (
    add32,
    and32,
    bits_from_double,
    bits_from_float,
    float_from_bits,
    left32,
    right32,
    set_rounding,
    wide_vectors,
    zero_array,
)
from ..runtime.jit import inline, kernel_of
from .float32 import PROGRAMS, SINGLE, arguments, copy, load_accumulators, pack_panel, tile, tiles

_16, _UPPER = np.uint32(16), np.uint32(0xFFFF0000)
_LOW, _R32, _NO_BLOCK = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(0)
_MAGNITUDE, _LEAST = np.uint64(0x7FFFFFFFFFFFFFFF), np.uint64(0x3810000000000000)  # 2**-126, in float64
_DISCARDED, _13 = np.uint64((1 << 45) - 1), np.uint64(13)


@inline
def cut(code):
    """The BF16 number in the upper half of a code."""
    return float_from_bits(and32(code, _UPPER))


@inline
def with_draw(x, key_low, key_high, index, mask):
    """The code of x plus the first bits of a draw."""
    word = and32(draw_word(key_low, key_high, index), mask)
    return add32(bits_from_float(x), right32(word, _16))


@inline
def term(products, x, y, key_low, key_high, index, mask):
    """The product x * y, exact or rounded."""
    return x * y if products == EXACT else cut(with_draw(x * y, key_low, key_high, index, mask))


@inline
def is_tied(code):
    """Whether the low 16 bits of a code are all ones."""
    return left32(code, _16) == _UPPER


@inline
def decided_in_float64(u, v, word):
    """The code of u + v, cut, and one quantum up if the draw `word` carries."""
    wide = bits_from_double(np.float64(u) + np.float64(v))
    code = and32(bits_from_float(u + v), _UPPER)
    if wide & _MAGNITUDE < _LEAST:  # exact
        return code
    up = ((wide & _DISCARDED) >> _13) + np.uint64(word) > _LOW
    return add32(code, np.uint32(0x10000)) if up else code


@inline
def key_words(seed, step, r):
    """The key of the draws at site 8 * step + r, as two words."""
    key = draw_key(seed, np.uint64(2 * (8 * step + r)), _NO_BLOCK)
    return np.uint32(key & _LOW), np.uint32(key >> _R32)


@inline
def number_columns(numbers, stride):
    """Write j * stride to numbers[j]."""
    for j in range(numbers.size):
        numbers[j] = np.uint32(j * stride)


@functools.cache
def in_order(products):
    """Return the kernel of sequential sums. Sites: 8 * step of the product, 8 * step + 1 of the sum."""

    @kernel_of(arguments(SINGLE))
    def kernel(acc, panel, bailed_out, a, b, out, ranges, index, seeds, fresh, direction, params):
        wide_vectors()
        bail_out_of_rows(TO_ODD, products, a, b, params, bailed_out)
        mask = params[RANDOM_MASK]
        tile_rows = acc.shape[0] // 2
        keys = zero_array((panel.shape[0], 4), np.uint32)
        numbers = zero_array(acc.shape[1], np.uint32)
        number_columns(numbers, index[2])
        set_rounding(np.int32(TOWARD_ZERO))
        for n in range(tiles(tile_rows, acc.shape[1], out)):
            part, i0, rows, c, j0, columns = tile(n, tile_rows, acc.shape[1], out)
            for i in range(rows):
                load_accumulators(True, fresh, out[part, i0 + i, j0 : j0 + columns], np.float32(1), acc[i])
            start, stop, step, steps = ranges[part, 0], ranges[part, 1], ranges[part, 2], 0
            while start < stop:
                depth = min(panel.shape[0], (stop - start + step - 1) // step)
                pack_panel(b, start, step, depth, j0, columns, panel)
                for d in range(depth):
                    keys[d, 0], keys[d, 1] = key_words(seeds[part], steps + d, 0)
                    keys[d, 2], keys[d, 3] = key_words(seeds[part], steps + d, 1)
                for i in range(rows):
                    if bailed_out[part, i0 + i, c]:
                        continue
                    sums, before = acc[i], acc[tile_rows + i]
                    first = np.uint32(index[0] + (i0 + i) * index[1] + j0 * index[2])
                    for d in range(depth):
                        ys, x = panel[d], a[i0 + i, start + d * step]
                        k0, k1, k2, k3 = keys[d, 0], keys[d, 1], keys[d, 2], keys[d, 3]
                        largest_tail = NONE
                        for j in range(sums.size):
                            at = add32(first, numbers[j])
                            u = cut(bits_from_float(sums[j]))
                            s = u + term(products, x, ys[j], k0, k1, at, mask)
                            code = with_draw(s, k2, k3, at, mask)
                            largest_tail = max(largest_tail, left32(code, _16))
                            before[j] = u
                            sums[j] = float_from_bits(code)
                        if largest_tail == _UPPER:
                            for j in range(sums.size):
                                if is_tied(bits_from_float(sums[j])):
                                    at = add32(first, numbers[j])
                                    v = term(products, x, ys[j], k0, k1, at, mask)
                                    word = and32(draw_word(k2, k3, at), mask)
                                    sums[j] = float_from_bits(decided_in_float64(before[j], v, word))
                start, steps = start + depth * step, steps + depth
            for i in range(rows):
                for j in range(acc.shape[1]):
                    acc[i, j] = cut(bits_from_float(acc[i, j]))
                if not bailed_out[part, i0 + i, c]:
                    target = out[part, i0 + i, j0 : j0 + columns]
                    bailed_out[part, i0 + i, c] = epilogue(acc[i], target, params, True, False, fresh) == BAILED_OUT
        set_rounding(np.int32(TIES_TO_EVEN))

    return kernel


@inline
def add_rows(u, v, codes, key, first, numbers, mask):
    """u = round(u + v), by column."""
    largest_tail = NONE
    for j in range(u.size):
        codes[j] = with_draw(u[j] + v[j], key[0], key[1], add32(first, numbers[j]), mask)
        largest_tail = max(largest_tail, left32(codes[j], _16))
    if largest_tail == _UPPER:
        for j in range(u.size):
            if is_tied(codes[j]):
                word = and32(draw_word(key[0], key[1], add32(first, numbers[j])), mask)
                codes[j] = decided_in_float64(u[j], v[j], word)
    for j in range(u.size):
        u[j] = cut(codes[j])


@functools.cache
def in_tree(products):
    """Return the kernel of trees. Sites: 8 * step of the product of a term, 8 * n + 1 of the n-th addition."""

    @kernel_of(arguments(SINGLE, PROGRAMS))
    def kernel(stack, panel, bailed_out, a, b, out, ranges, index, seeds, orders, merges, depth, direction, params):
        wide_vectors()
        bail_out_of_rows(TO_ODD, products, a, b, params, bailed_out)
        mask = params[RANDOM_MASK]
        tile_rows = stack.shape[0] // depth
        codes, numbers = zero_array(stack.shape[1], np.uint32), zero_array(stack.shape[1], np.uint32)
        number_columns(numbers, index[2])
        set_rounding(np.int32(TOWARD_ZERO))
        for n in range(tiles(tile_rows, stack.shape[1], out)):
            part, i0, rows, c, j0, columns = tile(n, tile_rows, stack.shape[1], out)
            start, stop, step, program = ranges[part, 0], ranges[part, 1], ranges[part, 2], ranges[part, 3]
            length = max((stop - start + step - 1) // step, 0)
            top, adds = -tile_rows, 0
            for at in range(program, program + length):
                k = start + orders[at] * step
                copy(b[k, j0 : j0 + columns], panel[0])
                ys = panel[0]
                top += tile_rows
                key = key_words(seeds[part], orders[at], 0)
                for i in range(rows):
                    first = np.uint32(index[0] + (i0 + i) * index[1] + j0 * index[2])
                    u, x = stack[top + i], a[i0 + i, k]
                    for j in range(u.size):
                        u[j] = term(products, x, ys[j], key[0], key[1], add32(first, numbers[j]), mask)
                for _ in range(merges[at]):
                    key = key_words(seeds[part], adds, 1)
                    for i in range(rows):
                        first = np.uint32(index[0] + (i0 + i) * index[1] + j0 * index[2])
                        add_rows(stack[top - tile_rows + i], stack[top + i], codes, key, first, numbers, mask)
                    top -= tile_rows
                    adds += 1
            for i in range(rows):
                target = out[part, i0 + i, j0 : j0 + columns]
                if length == 1:  # a single term is added to a zero of its own sign
                    zeros = panel[1]
                    first = np.uint32(index[0] + (i0 + i) * index[1] + j0 * index[2])
                    for j in range(zeros.size):
                        zeros[j] = stack[i, j] * np.float32(0)
                    add_rows(stack[i], zeros, codes, key_words(seeds[part], 0, 1), first, numbers, mask)
                if length == 0:
                    target[:] = 0
                elif not bailed_out[part, i0 + i, c]:
                    bailed_out[part, i0 + i, c] = epilogue(stack[i], target, params, True, False, True) == BAILED_OUT
        set_rounding(np.int32(TIES_TO_EVEN))

    return kernel
