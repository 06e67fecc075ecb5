"""Quantization to the points of a grid: the types IQ1, IQ2 and IQ3 of GGUF files, and the table of IQ4.

The rules are those of ggml's reference functions (ggml-quants.c, MIT licence, see NOTICE). All arithmetic is in FP32,
each operation rounded; all sums go from the first element to the last. The kernels need
`cpu.environment_is_default()`. They return 0, or the number of the first block, from 1 up, for which ggml's functions
abort: a weight overflows, so that no point has a finite error.
"""

from typing import NamedTuple

import numpy as np

from ..runtime.intrinsics import bits_from_float
from ..runtime.jit import inline, kernel

MAGIC = np.float32(12582912)  # 1.5 * 2**23: the last bit of a sum with it is a unit
_0, _1, _2, _HALF, _QUARTER = np.float32(0), np.float32(1), np.float32(2), np.float32(0.5), np.float32(0.25)
_MAX = np.finfo(np.float32).max
TINY = np.float32(1e-15)  # GROUP_MAX_EPS of ggml: a group of smaller numbers is a group of zeros

SQUARES, SQUARES_AND_MEAN = 1, 2
"""Weights of elements without an importance matrix: x * x, and that plus half of the mean square."""
ALL_POINTS, OFF_GRID, ALL_IF_ONE_IS_OFF_GRID = range(3)
"""The points that are rounded once more, with the best scale."""


class Rule(NamedTuple):
    """A type of a grid of odd numbers 2 * level + 1."""

    group: int
    """The elements that share a scale."""
    levels: int
    even: bool
    """Whether an even number of eight elements is negative: the sign of the least important one is changed."""
    tries: int
    step: np.float32
    """The candidates of the inverse scale: (2 * levels - 1 + step * k) / largest element, k from -tries to tries."""
    least: np.float32
    """A group of smaller numbers is a group of zeros."""
    doubled: np.float32
    """The factor of the mean square in the weights of elements."""
    own: int
    """The weights without an importance matrix."""
    fitted: bool
    """Whether the candidates start from a fit without the grid instead of the largest element."""
    again: int
    keeps: bool
    """Whether a block without a scale keeps its points and signs."""
    factor: np.float32
    """The factor of the scale of a block."""


@inline
def nearest_bits(x):
    """The nearest integer plus 2**22, ties to even, as ggml's nearest_int: beyond that the bits of a sum. NaN is 0."""
    return bits_from_float(x + MAGIC) & np.uint32(0x7FFFFF)


@inline
def nearest(x):
    """The nearest integer, by `nearest_bits`."""
    return np.int64(nearest_bits(x)) - 0x400000


@inline
def level_of(x, inverse, top):
    """The level of the odd number 2 * level + 1 nearest to x * inverse, from 0 to `top`."""
    return min(max(nearest(_HALF * (inverse * x - _1)), 0), top)


@inline
def sum_of_squares(x, block):
    """The sum of the squares of the elements of a block."""
    total = _0
    for i in range(x.shape[1]):
        total += x[block, i] * x[block, i]
    return total


@inline
def fill(row, first, last, number):
    for i in range(first, last):
        row[i] = number


@inline
def fitted_scale(x, w, largest, codes):
    """The scale of the best fit of 4 * x / largest by integers (ggml's make_qp_quants). Codes wrap as bytes do."""
    n = x.size
    top = np.float32(4)
    if largest < TINY:
        return _0
    inverse = top / largest
    best, scale = _0, _1 / inverse
    for i in range(n):
        rest = x[i] - scale * np.float32(nearest(inverse * x[i]) & 255)
        best += w[i] * rest * rest
    for k in range(-4, 5):
        if k != 0:
            other = (np.float32(0.1) * np.float32(k) + top) / largest
            error, scale = _0, _1 / other
            for i in range(n):
                rest = x[i] - scale * np.float32(min(4, nearest(other * x[i])))
                error += w[i] * rest * rest
            if error < best:
                best, inverse = error, other
    cross, square = _0, _0
    for i in range(n):
        code = min(4, nearest(inverse * x[i]))
        codes[i] = code & 255
        whole = np.float32(code)
        cross += w[i] * x[i] * whole
        square += w[i] * whole * whole
    for _ in range(5):
        changed = False
        for i in range(n):
            whole = np.float32(codes[i])
            rest, rest_square = cross - w[i] * x[i] * whole, square - w[i] * whole * whole
            if rest > 0 and rest_square > 0:
                code = min(4, nearest(x[i] * rest_square / rest))
                if code != codes[i]:
                    whole = np.float32(code)
                    rest += w[i] * x[i] * whole
                    rest_square += w[i] * whole * whole
                    if rest * rest * square > cross * cross * rest_square:
                        codes[i] = code & 255
                        cross, square, changed = rest, rest_square, True
        if not changed:
            break
    return cross / square if square > 0 else _0


@inline
def nearest_neighbour(x, roots, start, scale, levels, places, neighbours, first, last, terms):
    """The neighbour of the smallest error, which is weighted with `roots`; -1 if no error is finite."""
    width = places.shape[1]
    for i in range(width):
        for level in range(levels):
            rest = scale * np.float32(2 * level + 1) - x[start + i]
            terms[i * levels + level] = roots[start + i] * rest * rest
    best, found = _MAX, -1
    for j in range(first, last):
        point = neighbours[j]
        total = _0
        for i in range(width):
            total += terms[places[point, i]]
        if total < best:
            best, found = total, point
    return found


@kernel
def fit(x, weights, rule, places, index_of, starts, neighbours, index, signs, steps, scales):
    """Write the points, signs and scale of blocks of 256 elements, (blocks, 256) each of x and weights.

    `weights` is empty without an importance matrix. A row of `places` is a point: level + levels * element for each of
    its elements. `index_of` has the point of a number whose digits to the base `levels` are levels, or -1; then its
    neighbours are `neighbours` from `starts` of the number on. `index` is (blocks, points), `signs` (blocks, 32) with
    a bit for each element, `steps` (blocks, groups) from 0 to 15, and `scales` has the scale of each block.
    """
    width, levels, group = places.shape[1], rule.levels, rule.group
    pieces, groups, weighted = group // width, 256 // group, weights.size > 0
    top, largest_odd = levels - 1, np.float32(2 * levels - 1)
    w, roots, xs = np.empty(group, np.float32), np.empty(group, np.float32), np.empty(group, np.float32)
    codes, tried = np.empty(group, np.uint8), np.empty(group, np.uint8)
    off, off_tried = np.empty(pieces, np.bool_), np.empty(pieces, np.bool_)
    terms, found_scales = np.empty(width * levels, np.float32), np.empty(groups, np.float32)
    for block in range(x.shape[0]):
        flat, points, signs_of = x[block], index[block], signs[block]
        mean = rule.doubled * sum_of_squares(x, block) / np.float32(256)
        fill(points, 0, points.size, 0)
        fill(signs_of, 0, 32, 0)
        highest = _0
        for g in range(groups):
            start = group * g
            for i in range(group):
                value = flat[start + i]
                if weighted:
                    w[i] = weights[block, start + i] * np.sqrt(mean + value * value)
                elif rule.own == SQUARES:
                    w[i] = value * value
                else:
                    w[i] = _QUARTER * mean + value * value
                roots[i] = np.sqrt(w[i])
            for k in range(group // 8):
                byte, least, least_error = 0, 0, _0
                odd = False
                for i in range(8 * k, 8 * k + 8):
                    value = flat[start + i]
                    error = w[i] * value * value
                    if i == 8 * k or error < least_error:
                        least, least_error = i, error
                    if value >= 0:
                        xs[i] = value
                    else:
                        xs[i] = -value
                        byte |= 1 << (i - 8 * k)
                        odd = not odd
                if rule.even:
                    if odd:
                        xs[least] = -xs[least]
                        byte ^= 1 << (least - 8 * k)
                    byte &= 127
                signs_of[start // 8 + k] = byte
            largest = xs[0]
            for i in range(1, group):
                largest = largest if largest > xs[i] else xs[i]
            found_scales[g] = _0
            fill(codes, 0, group, 0)
            scale, base, zeros = largest / largest_odd, largest, largest < rule.least
            if rule.fitted and not zeros:
                scale = fitted_scale(xs, w, largest, codes)
                base = scale * np.float32(levels)
                zeros = base <= 0
            if zeros:
                fill(signs_of, start // 8, (start + group) // 8, 0)
                continue
            best = _0
            fill(off, 0, pieces, rule.again == ALL_IF_ONE_IS_OFF_GRID)
            for k in range(-rule.tries, rule.tries + 2):
                last = k > rule.tries  # once more, with the best scale
                if last:
                    repeats = rule.again == ALL_POINTS
                    for piece in range(pieces):
                        repeats = repeats or off[piece]
                    if not (repeats and scale > 0):
                        break
                    inverse, own_scale = _1 / scale, scale
                else:
                    inverse = (largest_odd + np.float32(k) * rule.step) / base
                    own_scale = _1 / inverse
                for i in range(group):
                    tried[i] = level_of(xs[i], inverse, top)
                for piece in range(pieces):
                    start_of = piece * width
                    if last and rule.again == OFF_GRID and not off[piece]:
                        for i in range(start_of, start_of + width):
                            tried[i] = codes[i]
                        continue
                    number, place = 0, 1
                    for i in range(start_of, start_of + width):
                        number += np.int64(tried[i]) * place
                        place *= levels
                    off_tried[piece] = index_of[number] < 0
                    if off_tried[piece]:
                        found = nearest_neighbour(
                            xs, roots, start_of, own_scale, levels, places, neighbours, starts[number],
                            starts[number + 1], terms,
                        )  # fmt: skip
                        if found < 0:
                            return block + 1
                        for i in range(width):
                            tried[start_of + i] = places[found, i] - i * levels
                cross, square = _0, _0
                for i in range(group):
                    odd_number = np.float32(2 * np.int64(tried[i]) + 1)
                    cross += w[i] * xs[i] * odd_number
                    square += w[i] * odd_number * odd_number
                if last or (square > 0 and cross * cross > best * square):
                    if square > 0:
                        scale = cross / square
                    best = scale * cross
                    for i in range(group):
                        codes[i] = tried[i]
                    for piece in range(pieces):
                        off[piece] = off_tried[piece]
            if scale < 0:
                scale = -scale
                for k in range(start // 8, (start + group) // 8):
                    signs_of[k] ^= 127 if rule.even else 255
            if not scale >= 0:
                return block + 1
            for piece in range(pieces):
                number, place = 0, 1
                for i in range(piece * width, piece * width + width):
                    number += np.int64(codes[i]) * place
                    place *= levels
                if index_of[number] < 0:
                    return block + 1
                points[start // width + piece] = index_of[number]
            found_scales[g] = scale
            highest = highest if highest > scale else scale
        if highest == 0 and not rule.keeps:
            fill(points, 0, points.size, 0)
            fill(signs_of, 0, 32, 0)
        d = highest / np.float32(31)
        scales[block] = d * rule.factor
        inverse = _1 / d
        for g in range(groups):
            steps[block, g] = level_of(found_scales[g], inverse, 15) if highest > 0 else 0
    return 0


# -- IQ1: -1, 0 and 1, plus or minus 1/8 -------------------------------------------------------------------------------


@inline
def sort(x, order):
    """Write the order of the elements, from the smallest up; equal ones stay in order."""
    for i in range(x.size):
        j = i
        while j > 0 and x[order[j - 1]] > x[i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i


@inline
def number_of(shift, level):
    """The number of a level 0, 1 or 2: -1, 0 or 1, plus `shift`."""
    return np.float32(level - 1) + shift


@inline
def best_split(x, w, order, sums_x, sums_w, largest):
    """The scale, the two places of the sorted elements, and the shifts (0 or 3) of the best fit of a group of IQ1_S."""
    n = x.size
    sums_x[0] = sums_w[0] = _0
    for j in range(n):
        i = order[j]
        sums_x[j + 1] = sums_x[j] + w[i] * x[i]
        sums_w[j + 1] = sums_w[j] + w[i]
    best, scale, first, second, shifts = -_MAX, largest, -1, -1, 0
    for a in range(n + 1):
        low, low_w = sums_x[a] - sums_x[0], sums_w[a] - sums_w[0]
        for b in range(a, n + 1):
            middle, middle_w = sums_x[b] - sums_x[a], sums_w[b] - sums_w[a]
            high, high_w = sums_x[n] - sums_x[b], sums_w[n] - sums_w[b]
            for sign in (1, -1):
                shift = np.float32(0.125) * np.float32(sign)
                p, q, r = number_of(shift, 0), number_of(shift, 1), number_of(shift, 2)
                cross = low * p + middle * q + high * r
                square = low_w * p * p + middle_w * q * q + high_w * r * r
                if square > 0 and cross * cross > best * square:
                    scale = cross / square
                    best = scale * cross
                    first, second, shifts = a, b, 3 if sign < 0 else 0
    return scale, first, second, shifts


@inline
def best_split_of_halves(x, w, order, products, largest):
    """The scale, the two places of the sorted elements, and the shifts of the best fit of a group of IQ1_M.

    The shifts are a number: bit 1 for the first eight elements, bit 0 for the others; 1 is minus. `products` is
    (3, elements, 8): for each level and each element in order, w * number * x for the four shifts, and w * number *
    number.
    """
    n = x.size
    for level in range(3):
        for j in range(n):
            i = order[j]
            for k in range(4):
                negative = k >> 1 if i < n // 2 else k & 1
                number = number_of(np.float32(-0.125) if negative else np.float32(0.125), level)
                products[level, j, k] = w[i] * number * x[i]
                products[level, j, 4 + k] = w[i] * number * number
    best, scale, first, second, shifts = -_MAX, largest, -1, -1, -1
    low, middle, sums = np.zeros(8, np.float32), np.empty(8, np.float32), np.empty(8, np.float32)
    for a in range(n + 1):
        if a:
            for k in range(8):
                low[k] += products[0, a - 1, k]
        for k in range(8):
            middle[k] = low[k]
        for b in range(a, n + 1):
            if b > a:
                for k in range(8):
                    middle[k] += products[1, b - 1, k]
            for k in range(8):
                sums[k] = middle[k]
            for j in range(b, n):
                for k in range(8):
                    sums[k] += products[2, j, k]
            for k in range(4):
                cross, square = sums[k], sums[4 + k]
                if square > 0 and cross * cross > best * square:
                    scale = cross / square
                    best = scale * cross
                    first, second, shifts = a, b, k
    return scale, first, second, shifts


@inline
def nearest_ternary(x, w, start, scale, shift, places, neighbours, first, last, terms):
    """The neighbour of the smallest weighted error; -1 if no error is finite."""
    for i in range(8):
        for level in range(3):
            rest = scale * number_of(shift, level) - x[start + i]
            terms[i * 3 + level] = w[start + i] * rest * rest
    best, found = _MAX, -1
    for j in range(first, last):
        point = neighbours[j]
        total = _0
        for i in range(8):
            total += terms[places[point, i]]
        if total < best:
            best, found = total, point
    return found


@inline
def shift_of(negative):
    return np.float32(-0.125) if negative else np.float32(0.125)


@kernel
def fit_ternary(
    x, weights, halves, least, factor, places, index_of, starts, neighbours, index, negative, steps, scales
):  # fmt: skip
    """Write the points, shifts and scale of blocks of 256 elements: IQ1_S, or IQ1_M if `halves`.

    The parameters are those of `fit`. `negative` is (blocks, points): 1 if the shift of the point is -1/8. `steps` is
    (blocks, groups) from 0 to 7.
    """
    group = 16 if halves else 32
    pieces, groups, weighted = group // 8, 256 // group, weights.size > 0
    w, order, codes = np.empty(256, np.float32), np.empty(group, np.int64), np.empty(group, np.uint8)
    sums_x, sums_w = np.empty(group + 1, np.float32), np.empty(group + 1, np.float32)
    products, terms = np.empty((3, group, 8), np.float32), np.empty(24, np.float32)
    found_scales = np.empty(groups, np.float32)
    for block in range(x.shape[0]):
        flat, points, minus_of = x[block], index[block], negative[block]
        mean = _2 * sum_of_squares(x, block) / np.float32(256)
        fill(points, 0, 32, 0)
        fill(minus_of, 0, 32, 0)
        fill(found_scales, 0, groups, _0)
        highest = _0
        for i in range(256):
            value = flat[i]
            w[i] = weights[block, i] * np.sqrt(mean + value * value) if weighted else value * value
        for g in range(groups):
            start = group * g
            xs, ws = flat[start : start + group], w[start : start + group]
            largest = abs(xs[0])
            for i in range(1, group):
                largest = largest if largest > abs(xs[i]) else abs(xs[i])
            if largest < least:
                continue
            sort(xs, order)
            if halves:
                scale, first, second, shifts = best_split_of_halves(xs, ws, order, products, largest)
            else:
                scale, first, second, shifts = best_split(xs, ws, order, sums_x, sums_w, largest)
            if first < 0:
                continue
            for j in range(group):
                codes[order[j]] = 0 if j < first else 1 if j < second else 2
            if scale < 0:
                scale, shifts = -scale, 3 - shifts
                for i in range(group):
                    codes[i] = 2 - codes[i]
            on_grid = True
            for piece in range(pieces):
                minus = shifts >> 1 if piece == 0 else shifts & 1
                number, place = 0, 1
                for i in range(8 * piece, 8 * piece + 8):
                    number += np.int64(codes[i]) * place
                    place *= 3
                found = np.int64(index_of[number])
                if found < 0:
                    on_grid = False
                    found = np.int64(nearest_ternary(
                        xs, ws, 8 * piece, scale, shift_of(minus), places, neighbours, starts[number],
                        starts[number + 1], terms,
                    ))  # fmt: skip
                    if found < 0:
                        return block + 1
                points[start // 8 + piece] = found
                minus_of[start // 8 + piece] = minus
            if not on_grid:
                cross, square = _0, _0
                for piece in range(pieces):
                    k = start // 8 + piece
                    shift = shift_of(minus_of[k])
                    for i in range(8):
                        number_f = number_of(shift, np.int64(places[points[k], i]) - 3 * i)
                        cross += ws[8 * piece + i] * number_f * xs[8 * piece + i]
                        square += ws[8 * piece + i] * number_f * number_f
                if cross > 0 and square > 0:
                    scale = cross / square
            if not scale >= 0:
                return block + 1
            found_scales[g] = scale
            highest = highest if highest > scale else scale
        if highest == 0:
            scales[block] = _0
            fill(minus_of, 0, 32, 0)
            fill(steps[block], 0, groups, 0)
            continue
        d = highest / np.float32(15)
        inverse = _1 / d
        for g in range(groups):
            steps[block, g] = level_of(found_scales[g], inverse, 7)
        if halves:
            cross, square = _0, _0
            for k in range(32):
                shift, odd_number = shift_of(minus_of[k]), np.float32(2 * np.int64(steps[block, k // 2]) + 1)
                for i in range(8):
                    number_f = number_of(shift, np.int64(places[points[k], i]) - 3 * i) * odd_number
                    cross += w[8 * k + i] * number_f * flat[8 * k + i]
                    square += w[8 * k + i] * number_f * number_f
            if square > 0:
                d = cross / square
        scales[block] = d * factor
    return 0


# -- IQ4: the entries of a table ---------------------------------------------------------------------------------------


@inline
def sums_of_entries(x, w, inverse, bounds, values, counts):
    """sum(w * value * x) and sum(w * value * value) for the entries nearest to x * inverse."""
    n = x.size
    for j in range(n):
        counts[j] = 0
    for k in range(bounds.size):
        bound = bounds[k]
        for j in range(n):
            counts[j] += not inverse * x[j] < bound
    cross, square = _0, _0
    for j in range(n):
        value = values[counts[j]]
        cross += w[j] * value * x[j]
        square += w[j] * value * value
    return cross, square


@kernel
def fit_entries(x, weights, bounds, values, tries, codes, steps, scales):
    """Write the codes and the scales of blocks: IQ4_NL, one group of 32 elements, or IQ4_XS, eight groups.

    `values` is the table, from the smallest up, and `bounds` the smallest float32 numbers that are nearest to each
    entry but the first. `steps` is (blocks, groups), from -32 to 31, for IQ4_XS.
    """
    size = x.shape[1]
    groups, weighted = size // 32, weights.size > 0
    w, counts, found_scales = np.empty(32, np.float32), np.empty(32, np.int32), np.empty(groups, np.float32)
    for block in range(x.shape[0]):
        mean = sum_of_squares(x, block) * (_2 / np.float32(size))
        highest, of_highest = _0, _0
        for g in range(groups):
            xs = x[block, 32 * g : 32 * g + 32]
            largest, peak = _0, _0
            for j in range(32):
                value = xs[j]
                w[j] = weights[block, 32 * g + j] * np.sqrt(mean + value * value) if weighted else value * value
                if abs(value) > largest:
                    largest, peak = abs(value), value
            found_scales[g] = _0
            if largest < TINY:
                continue
            cross, square = sums_of_entries(xs, w, _1 / (-peak / values[0]), bounds, values, counts)
            d = cross / square if square > 0 else _0
            best = d * cross
            for k in range(-tries, tries + 1):
                cross, square = sums_of_entries(xs, w, (np.float32(k) + values[0]) / peak, bounds, values, counts)
                if square > 0 and cross * cross > best * square:
                    d = cross / square
                    best = d * cross
            found_scales[g] = d
            if abs(d) > highest:
                highest, of_highest = abs(d), d
        scale = found_scales[0] if groups == 1 else -of_highest / np.float32(32)
        scales[block] = scale
        inverse = _1 / scale if scale != 0 else _0
        for g in range(groups):
            if groups > 1:
                step = min(max(nearest(inverse * found_scales[g]), -32), 31)
                own = scale * np.float32(step)
                own_inverse = _1 / own if own != 0 else _0
                steps[block, g] = step
            else:
                own_inverse = inverse
            for j in range(32):
                counts[j] = 0
            for k in range(bounds.size):
                for j in range(32):
                    counts[j] += not own_inverse * x[block, 32 * g + j] < bounds[k]
            for j in range(32):
                codes[block, 32 * g + j] = counts[j]
    return 0
