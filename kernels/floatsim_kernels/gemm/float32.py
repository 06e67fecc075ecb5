"""Matrix products in float32 and float64, sums in order, each rounded to the accumulator's grid.

A kernel sums the terms a[i, k] * b[k, j] over each range (start, stop, step) of k into out[range, i, j]. Sums in order
begin with what is there on entry, or, if they are `fresh`, with +0. a (M, K), b (K, N) and out are C-contiguous float32
*values* on their formats' grids (float64 for an FP64 accumulator). How a step is rounded, and the `grid` that it is
rounded to, is rounding/float32.py's matter.

The loops run i, k, j with j innermost, so that each element sums its terms in the order of k while the columns fill the
lanes of a vector register. `acc` and `panel` are scratch: the accumulators of a tile of rows and columns of out, and
some rows of b. Their rows start on cache lines (vectors across two of them cost twice), and stay in the caches. They
may be longer than the tile's: what is computed behind its columns, from zeros or from another tile, is not used.

The quick styles leave alone the rows that they cannot do, and mark them in `failed` (range, row, column tile), zero on
entry. PLAIN sums may also be in FP16, in scratch of float16 codes, where `machine.has_half_arithmetic()`. Needs
`machine.environment_is_default()`, and exact terms that the carrier does not hold need `machine.has_fma()`.
"""

import functools

import numba
import numpy as np

from ..rounding.float32 import (
    B_SCALE,
    B_SHIFT,
    EXACT,
    EXPONENT,
    FACTOR,
    LEFT,
    MORE,
    MOST,
    NEAREST,
    NONE,
    NOTHING,
    PLAIN,
    RISING,
    SCALE,
    SIGN,
    TIES_TO_EVEN,
    UP_SHIFT,
    WIDE,
    ZERO,
    ZEROS_LEFT,
    alone,
    clamped,
    exponent_of,
    extent,
    finish,
    fits,
    keeps_signs,
    must_look,
    normalized,
    power,
    refuse,
    rounded_product,
    row_of,
    sum_of,
    sum_with_term,
    to_even,
    upward,
    wider,
    with_term,
)
from ..runtime.intrinsics import (
    add_floats,
    and32,
    bits_from_float,
    float_from_bits,
    is_finite,
    magnitude_of,
    multiply_add,
    multiply_floats,
    resized,
    right32,
    set_rounding,
    subtract_floats,
    wide_vectors,
    xor32,
)
from ..runtime.jit import inline, kernel_of

HALF, SINGLE, DOUBLE = numba.uint16, numba.float32, numba.float64
"""What sums are computed in: codes of float16, float32, float64."""


def arguments(scratch, more=(numba.boolean,)):
    """The types of a kernel's arguments."""
    carrier = SINGLE if scratch == HALF else scratch
    scratch = numba.types.Array(scratch, 2, "C")
    failed = numba.types.Array(numba.boolean, 3, "C")
    matrix = numba.types.Array(carrier, 2, "C", readonly=True)
    out = numba.types.Array(carrier, 3, "C")
    integers = {n: numba.types.Array(numba.int64, n, "C", readonly=True) for n in (1, 2)}
    seeds, grid = (numba.types.Array(x, 1, "C", readonly=True) for x in (numba.uint64, numba.uint32))
    common = scratch, scratch, failed, matrix, matrix, out, integers[2], integers[1], seeds
    return *common, *more, numba.int64, grid


PROGRAMS = *(numba.types.Array(x, 1, "C", readonly=True) for x in (numba.int32, numba.int8)), numba.int64


@inline
def tiles(most_rows, width, out):
    """How many tiles of so many rows and columns there are."""
    if out.size == 0:
        return 0
    return out.shape[0] * (-(-out.shape[1] // most_rows)) * (-(-out.shape[2] // width))


@inline
def tile(n, most_rows, width, out):
    """(range, first row, rows, tile of columns, first column, columns) of the n-th tile."""
    down, across = -(-out.shape[1] // most_rows), -(-out.shape[2] // width)
    i, c = n // across % down * most_rows, n % across
    return n // (down * across), i, min(most_rows, out.shape[1] - i), c, c * width, min(width, out.shape[2] - c * width)


@inline
def copy(source, target):
    """To numbers of another size."""
    for j in range(source.size):
        target[j] = resized(source[j], target[0])


@inline
def copy_scaled(source, scale, target):
    for j in range(source.size):
        target[j] = source[j] * scale


@inline
def begin(quick, fresh, start, scale, row):
    """Set sums to their start values."""
    if fresh:
        row[:] = np.float32(0) * scale if quick else 0
    elif quick:
        copy_scaled(start, scale, row)
    else:
        copy(start, row)


@inline
def take(b, k, step, depth, j0, columns, panel):
    """Some terms of b."""
    for d in range(depth):
        copy(b[k + d * step, j0 : j0 + columns], panel[d])


@inline
def take_looking(b, k, step, depth, j0, columns, panel, found):
    """`take`, and the extent of the terms and of what was found before."""
    wide_vectors()
    for d in range(depth):
        row, target = b[k + d * step, j0 : j0 + columns], panel[d]
        for j in range(row.size):
            target[j] = row[j]
            found = wider(found, row[j])
    return found


@inline
def add_wide(row, x, ys, scale, g):
    """Add a row of products to sums that are scaled."""
    wide_vectors()  # LLVM vectorises loops of inlined functions before it inlines them
    factor, more = float_from_bits(g[FACTOR]), float_from_bits(g[MORE])
    m, e = normalized(x)
    emin = bits_from_float(power(max(-126, -126 - e + B_SHIFT)))
    down = e - B_SHIFT + np.int64(right32(bits_from_float(scale), np.uint32(23))) - 127
    if down >= -126:
        unscale = power(down)
        for j in range(row.size):
            row[j] = to_even(multiply_add(clamped(m * ys[j], emin, more), unscale, row[j]), factor)
    else:
        unscale, half_way = power(down + UP_SHIFT), power(-UP_SHIFT)
        for j in range(row.size):
            row[j] = to_even(multiply_add(clamped(m * ys[j], emin, more) * half_way, unscale, row[j]), factor)


@inline
def only_negative_zeros(style, terms, a, b, i, j, start, stop, step, scale, g):
    """Whether all terms of an element are, or are rounded to, -0."""
    for k in range(start, stop, step):
        x, y = a[i, k] * scale, b[k, j]
        if x * y > 0 or bits_from_float(x * y) == NONE:
            return False
        if (x * y if terms >= EXACT else rounded_product(style, terms, x, y, g)) != 0:
            return False
    return True


@functools.cache
def in_order(style, terms, scratch=SINGLE):
    """The kernel for terms one after the other: acc = round(acc + term)."""
    quick, looks = style >= NEAREST, must_look(style, terms)

    @kernel_of(arguments(scratch))
    def kernel(acc, panel, failed, a, b, out, ranges, index, seeds, fresh, direction, grid):
        wide_vectors()
        if style != PLAIN:
            g = row_of(grid)
        scale = float_from_bits(grid[SCALE])
        unit = scale if quick else np.float32(1)
        if looks:
            extents = np.empty((a.shape[0], 2), np.uint32)
            for i in range(a.shape[0]):
                extents[i, 0], extents[i, 1] = extent(a[i : i + 1])
        set_rounding(np.int32(direction))
        for n in range(tiles(*acc.shape, out)):
            part, i0, rows, c, j0, columns = tile(n, *acc.shape, out)
            start, stop, step = ranges[part, 0], ranges[part, 1], ranges[part, 2]
            begins, ends, found = True, False, NOTHING
            while not ends:  # few terms begin and end while their sums are in the nearest cache
                depth = max(min(panel.shape[0], (stop - start + step - 1) // step), 0)
                ends = start + depth * step >= stop
                if terms == WIDE:
                    for d in range(depth):
                        copy_scaled(b[start + d * step, j0 : j0 + columns], B_SCALE, panel[d])
                elif looks:
                    found = take_looking(b, start, step, depth, j0, columns, panel, found)
                else:
                    take(b, start, step, depth, j0, columns, panel)
                for i in range(rows):
                    if looks and not fits(style, terms, extents[i0 + i], found, grid):
                        failed[part, i0 + i, c] = True
                    if failed[part, i0 + i, c]:
                        continue
                    row, target = acc[i], out[part, i0 + i, j0 : j0 + columns]
                    if begins:
                        begin(quick, fresh, target, scale, row)
                    for d in range(depth):
                        ys = panel[d]
                        if terms == WIDE:
                            add_wide(row, a[i0 + i, start + d * step], ys, scale, g)
                        elif style == PLAIN:
                            x = resized(a[i0 + i, start + d * step], row[0])
                            for j in range(row.size):
                                if terms >= EXACT:
                                    row[j] = multiply_add(x, ys[j], row[j])
                                else:
                                    row[j] = add_floats(row[j], multiply_floats(x, ys[j]))
                        elif style == RISING:
                            x, top = a[i0 + i, start + d * step] * unit, NONE
                            for j in range(row.size):
                                s = sum_with_term(style, terms, row[j], x, ys[j], g)
                                top = max(top, exponent_of(s))
                                row[j] = upward(terms, s, g)
                            if top >= and32(g[MOST], EXPONENT):  # there may be sums beyond the largest number
                                failed[part, i0 + i, c] = True
                                break
                        else:
                            x = a[i0 + i, start + d * step] * unit
                            for j in range(row.size):
                                row[j] = with_term(style, terms, row[j], x, ys[j], g)
                    if not ends:
                        continue
                    if not quick:
                        copy(row[:columns], target)
                    elif not failed[part, i0 + i, c]:
                        done = finish(row, target, grid, keeps_signs(style, terms), True, fresh)
                        failed[part, i0 + i, c] = done == LEFT
                        for j in range(columns if done == ZEROS_LEFT else 0):
                            if target[j] == 0 and bits_from_float(target[j]) != grid[ZERO]:
                                first = ranges[part, 0]
                                if not only_negative_zeros(
                                    style, terms, a, b, i0 + i, j0 + j, first, stop, step, scale, g
                                ):
                                    target[j] = float_from_bits(grid[ZERO])
                start, begins = start + depth * step, False
        set_rounding(np.int32(TIES_TO_EVEN))

    return kernel


@inline
def kahan_step(style, terms, x, y, s, c, g):
    """(sum, its compensation) after one more term."""
    factor = float_from_bits(g[FACTOR])
    p = x * y if terms >= EXACT else rounded_product(style, terms, x, y, g)
    z = to_even(p - c, factor)
    t = to_even(s + z, factor)
    return t, to_even(to_even(t - s, factor) - z, factor)


@inline
def neumaier_step(style, terms, x, y, s, c, g):
    factor = float_from_bits(g[FACTOR])
    p = x * y if terms >= EXACT else rounded_product(style, terms, x, y, g)
    t = to_even(s + p, factor)
    keeps = abs(s) >= abs(p)
    large, small = s if keeps else p, p if keeps else s
    return t, to_even(c + to_even(to_even(large - t, factor) + small, factor), factor)


@inline
def plain_kahan_step(x, y, s, c):
    z = subtract_floats(multiply_floats(x, y), c)
    t = add_floats(s, z)
    lost = subtract_floats(subtract_floats(t, s), z)
    return t, lost if is_finite(t) else resized(np.float32(0), c)


@inline
def plain_neumaier_step(x, y, s, c):
    p = multiply_floats(x, y)
    t = add_floats(s, p)
    keeps = magnitude_of(s) >= magnitude_of(p)
    large, small = s if keeps else p, p if keeps else s
    more = add_floats(c, add_floats(subtract_floats(large, t), small))
    return t, more if is_finite(t) else c


@functools.cache
def compensated(style, terms, scratch=SINGLE, neumaier=False):
    """The kernel of Kahan's sum, or of Neumaier's. Exact terms are numbers of the format. The compensations of a tile's
    rows lie behind the sums. Of the quick styles, NEAREST alone: infinities and NaN stay there, too."""
    quick, looks = style >= NEAREST, must_look(style, terms)

    @kernel_of(arguments(scratch))
    def kernel(acc, panel, failed, a, b, out, ranges, index, seeds, fresh, direction, grid):
        wide_vectors()
        if looks:
            refuse(style, terms, a, b, grid, failed)
        if style != PLAIN:
            g = row_of(grid)
        scale = float_from_bits(grid[SCALE])
        most_rows = acc.shape[0] // 2
        set_rounding(np.int32(direction))
        for n in range(tiles(most_rows, acc.shape[1], out)):
            part, i0, rows, c, j0, columns = tile(n, most_rows, acc.shape[1], out)
            for i in range(rows):
                begin(quick, fresh, out[part, i0 + i, j0 : j0 + columns], scale, acc[i])
                acc[most_rows + i] = 0
            start, stop, step = ranges[part, 0], ranges[part, 1], ranges[part, 2]
            adds = neumaier and start < stop
            while start < stop:
                depth = min(panel.shape[0], (stop - start + step - 1) // step)
                take(b, start, step, depth, j0, columns, panel)
                for i in range(rows):
                    if failed[part, i0 + i, c]:
                        continue
                    s, r = acc[i], acc[most_rows + i]
                    for d in range(depth):
                        ys = panel[d]
                        if style == PLAIN:
                            x = resized(a[i0 + i, start + d * step], s[0])
                            for j in range(s.size):
                                if neumaier:
                                    s[j], r[j] = plain_neumaier_step(x, ys[j], s[j], r[j])
                                else:
                                    s[j], r[j] = plain_kahan_step(x, ys[j], s[j], r[j])
                        else:
                            x = a[i0 + i, start + d * step] * scale
                            for j in range(s.size):
                                if neumaier:
                                    s[j], r[j] = neumaier_step(style, terms, x, ys[j], s[j], r[j], g)
                                else:
                                    s[j], r[j] = kahan_step(style, terms, x, ys[j], s[j], r[j], g)
                start += depth * step
            for i in range(rows):
                s, r, target = acc[i], acc[most_rows + i], out[part, i0 + i, j0 : j0 + columns]
                if adds:
                    for j in range(s.size):
                        if style == PLAIN:
                            s[j] = add_floats(s[j], r[j])
                        else:
                            s[j] = to_even(s[j] + r[j], float_from_bits(g[FACTOR]))
                if not quick:
                    copy(s[:columns], target)
                elif not failed[part, i0 + i, c]:
                    failed[part, i0 + i, c] = finish(s, target, grid, False, False, fresh) == LEFT
        set_rounding(np.int32(TIES_TO_EVEN))

    return kernel


@inline
def plain_pair(terms, x0, y0, x1, y1):
    p = multiply_floats(x0, y0)
    return multiply_add(x1, y1, p) if terms >= EXACT else add_floats(p, multiply_floats(x1, y1))


@inline
def pair(style, terms, x0, y0, x1, y1, g):
    p = x0 * y0 if terms >= EXACT else rounded_product(style, terms, x0, y0, g)
    return with_term(style, terms, p, x1, y1, g)


@functools.cache
def in_tree(style, terms, scratch=SINGLE):
    """The kernel for sums along trees: programs of accumulation/trees.py, which need at most `depth` values at a time.

    A range's fourth number says where its program begins in `orders` and `merges`. `stack` holds the values of some
    rows, one after the other, times depth. Terms are added as they come: to the topmost value, in pairs, or in pairs of
    pairs.
    """
    quick, looks = style >= NEAREST, must_look(style, terms)

    @kernel_of(arguments(scratch, PROGRAMS))
    def kernel(stack, panel, failed, a, b, out, ranges, index, seeds, orders, merges, depth, direction, grid):
        wide_vectors()
        if looks:
            refuse(style, terms, a, b, grid, failed)
        if style != PLAIN:
            g = row_of(grid)
        scale = float_from_bits(grid[SCALE])
        unit = scale if quick else np.float32(1)
        most_rows = stack.shape[0] // depth
        ks, ends = np.zeros(4, np.int64), np.empty(4, np.int64)
        set_rounding(np.int32(direction))
        for n in range(tiles(most_rows, stack.shape[1], out)):
            part, i0, rows, c, j0, columns = tile(n, most_rows, stack.shape[1], out)
            start, stop, step = ranges[part, 0], ranges[part, 1], ranges[part, 2]
            length, program = max((stop - start + step - 1) // step, 0), ranges[part, 3]
            at, top = 0, -most_rows
            while at < length:
                few = min(length - at, 4)
                for d in range(few):
                    ks[d] = start + orders[program + at + d] * step
                    ends[d] = merges[program + at + d]
                if few == 4 and ends[0] == 0 and ends[1] == 1 and ends[2] == 0 and ends[3] > 1:
                    few, adds = 4, ends[3] - 2
                elif few > 1 and ends[0] == 0 and ends[1] > 0:
                    few, adds = 2, ends[1] - 1
                else:
                    few, adds = 1, max(ends[0] - 1, 0)
                at += few
                y0, y1, y2, y3 = panel[0], panel[1], panel[2], panel[3]
                if rows == 1 and scratch != HALF:  # not worth a copy
                    y0, y1 = b[ks[0], j0 : j0 + columns], b[ks[1], j0 : j0 + columns]
                    y2, y3 = b[ks[2], j0 : j0 + columns], b[ks[3], j0 : j0 + columns]
                else:
                    for d in range(few):
                        copy(b[ks[d], j0 : j0 + columns], panel[d])
                if few == 4:
                    top += most_rows
                    for i in range(rows):
                        u, xs = stack[top + i], a[i0 + i]
                        if style == PLAIN:
                            x0, x1 = resized(xs[ks[0]], u[0]), resized(xs[ks[1]], u[0])
                            x2, x3 = resized(xs[ks[2]], u[0]), resized(xs[ks[3]], u[0])
                            for j in range(y0.size):
                                v = plain_pair(terms, x0, y0[j], x1, y1[j])
                                u[j] = add_floats(v, plain_pair(terms, x2, y2[j], x3, y3[j]))
                        else:
                            x0, x1, x2, x3 = xs[ks[0]] * unit, xs[ks[1]] * unit, xs[ks[2]] * unit, xs[ks[3]] * unit
                            for j in range(y0.size):
                                v = pair(style, terms, x0, y0[j], x1, y1[j], g)
                                w = pair(style, terms, x2, y2[j], x3, y3[j], g)
                                u[j] = sum_of(style, terms, v, w, g)
                elif few == 2:
                    top += most_rows
                    for i in range(rows):
                        u, xs = stack[top + i], a[i0 + i]
                        if style == PLAIN:
                            x0, x1 = resized(xs[ks[0]], u[0]), resized(xs[ks[1]], u[0])
                            for j in range(y0.size):
                                u[j] = plain_pair(terms, x0, y0[j], x1, y1[j])
                        else:
                            x0, x1 = xs[ks[0]] * unit, xs[ks[1]] * unit
                            for j in range(y0.size):
                                u[j] = pair(style, terms, x0, y0[j], x1, y1[j], g)
                elif ends[0] > 0:
                    for i in range(rows):
                        u = stack[top + i]
                        if style == PLAIN:
                            x = resized(a[i0 + i, ks[0]], u[0])
                            for j in range(y0.size):
                                if terms >= EXACT:
                                    u[j] = multiply_add(x, y0[j], u[j])
                                else:
                                    u[j] = add_floats(u[j], multiply_floats(x, y0[j]))
                        else:
                            x = a[i0 + i, ks[0]] * unit
                            for j in range(y0.size):
                                u[j] = with_term(style, terms, u[j], x, y0[j], g)
                else:
                    top += most_rows
                    for i in range(rows):
                        u = stack[top + i]
                        if style == PLAIN:
                            x = resized(a[i0 + i, ks[0]], u[0])
                            for j in range(y0.size):
                                u[j] = multiply_floats(x, y0[j])
                        else:
                            x = a[i0 + i, ks[0]] * unit
                            for j in range(y0.size):
                                v = x * y0[j] if terms >= EXACT else rounded_product(style, terms, x, y0[j], g)
                                u[j] = alone(style, terms, v, g) if terms >= EXACT and length == 1 else v
                for _ in range(adds):
                    for i in range(rows):
                        u, v = stack[top - most_rows + i], stack[top + i]
                        for j in range(u.size):
                            if style == PLAIN:
                                u[j] = add_floats(u[j], v[j])
                            else:
                                u[j] = sum_of(style, terms, u[j], v[j], g)
                    top -= most_rows
            for i in range(rows):
                target = out[part, i0 + i, j0 : j0 + columns]
                if length == 0:
                    target[:] = 0
                elif not quick:
                    copy(stack[i][:columns], target)
                elif not failed[part, i0 + i, c]:
                    failed[part, i0 + i, c] = finish(stack[i], target, grid, True, False, True) == LEFT
                    if not keeps_signs(style, terms):
                        for j in range(columns):
                            if target[j] == 0:
                                negative = only_negative_zeros(
                                    style, terms, a, b, i0 + i, j0 + j, start, stop, step, scale, g
                                )
                                target[j] = float_from_bits(xor32(grid[ZERO], SIGN) if negative else grid[ZERO])
        set_rounding(np.int32(TIES_TO_EVEN))

    return kernel
