"""Matrix products in float32 and float64: sequential, compensated and pairwise sums, rounded to the accumulator's
format.

A kernel sums the products a[i, k] * b[k, j] over each range (start, stop, step) of k into out[range, i, j]. Sequential
sums start at the values in `out` on entry, or, if they are `fresh`, at +0. a (M, K), b (K, N) and out are C-contiguous
float32 *values* of their formats (float64 for an FP64 accumulator). rounding/float32.py defines the roundings of a step
and the layouts of `params`.

The loops run over i, k, j with j innermost. So each element sums its products in the order of k, and the columns fill
the lanes of a vector register. `acc` and `panel` are scratch: the accumulators of a tile of rows and columns of out,
and a panel of rows of b. Their rows start on cache lines, because vectors across two lines cost twice, and they stay in
the caches. Scratch rows may be longer than the tile. Values computed behind the tile's columns, from zeros or from
another tile, are not used.

The fast styles bail out of the rows that they cannot compute. They mark them in `bailed_out` (range, row, column tile),
zero on entry. NATIVE sums may also be in FP16, in scratch of float16 codes, where `cpu.has_half_arithmetic()`. The
kernels need `cpu.environment_is_default()`. Exact products that the carrier does not hold need `cpu.has_fma()`.
"""

import functools

import numba
import numpy as np

from ..rounding.float32 import (
    B_SCALE,
    B_SHIFT,
    BAILED_OUT,
    CLAMP_FACTOR,
    DIRECTED_MONOTONE,
    EMPTY_RANGE,
    EXACT,
    EXPONENT,
    FACTOR,
    HIGHEST,
    NATIVE,
    NONE,
    RNE,
    ROUNDED_WIDE_RANGE,
    SCALE,
    SIGN,
    TIES_TO_EVEN,
    UP_SHIFT,
    ZERO,
    ZERO_SIGNS_UNKNOWN,
    add_product,
    bail_out_of_rows,
    epilogue,
    exponent_of,
    extended_range,
    factor_of_row,
    fields_of,
    in_range,
    keeps_zero_signs,
    magnitude_range,
    needs_range_check,
    normalized,
    power,
    product,
    round_clamped,
    rounded_add,
    rounded_add_product,
    rounded_term,
    rounded_upward,
    veltkamp_rne,
)
from ..runtime.intrinsics import (
    add_floats,
    and32,
    bits_from_float,
    converted,
    float_from_bits,
    is_finite,
    magnitude_of,
    multiply_add,
    right32,
    set_rounding,
    subtract_floats,
    wide_vectors,
    xor32,
    zero_array,
)
from ..runtime.jit import inline, kernel_of

HALF, SINGLE, DOUBLE = numba.uint16, numba.float32, numba.float64
"""The type that sums are computed in: float16 codes, float32 or float64."""


def arguments(scratch, extra=(numba.boolean,)):
    """The types of a kernel's arguments."""
    carrier = SINGLE if scratch == HALF else scratch
    scratch = numba.types.Array(scratch, 2, "C")
    bailed_out = numba.types.Array(numba.boolean, 3, "C")
    matrix = numba.types.Array(carrier, 2, "C", readonly=True)
    out = numba.types.Array(carrier, 3, "C")
    integers = {n: numba.types.Array(numba.int64, n, "C", readonly=True) for n in (1, 2)}
    seeds, params = (numba.types.Array(x, 1, "C", readonly=True) for x in (numba.uint64, numba.uint32))
    common = scratch, scratch, bailed_out, matrix, matrix, out, integers[2], integers[1], seeds
    return *common, *extra, numba.int64, params


PROGRAMS = *(numba.types.Array(x, 1, "C", readonly=True) for x in (numba.int32, numba.int8)), numba.int64


@inline
def tiles(tile_rows, width, out):
    """The number of tiles of at most `most_rows` rows and `width` columns of the result."""
    if out.size == 0:
        return 0
    return out.shape[0] * (-(-out.shape[1] // tile_rows)) * (-(-out.shape[2] // width))


@inline
def tile(n, tile_rows, width, out):
    """(range, first row, rows, column tile, first column, columns) of the n-th tile."""
    down, across = -(-out.shape[1] // tile_rows), -(-out.shape[2] // width)
    i, c = n // across % down * tile_rows, n % across
    return n // (down * across), i, min(tile_rows, out.shape[1] - i), c, c * width, min(width, out.shape[2] - c * width)


@inline
def copy(source, target):
    """Copy numbers to an array of another size of number."""
    for j in range(source.size):
        target[j] = converted(source[j], target[0])


@inline
def copy_scaled(source, scale, target):
    """Copy numbers times a scale."""
    for j in range(source.size):
        target[j] = source[j] * scale


@inline
def load_accumulators(fast, fresh, start, scale, row):
    """Set a row of sums to their start values."""
    if fresh:
        row[:] = np.float32(0) * scale if fast else 0
    elif fast:
        copy_scaled(start, scale, row)
    else:
        copy(start, row)


@inline
def pack_panel(b, k, step, depth, j0, columns, panel):
    """Copy `depth` rows of b to the panel."""
    for d in range(depth):
        copy(b[k + d * step, j0 : j0 + columns], panel[d])


@inline
def pack_panel_and_range(b, k, step, depth, j0, columns, panel, panel_range):
    """Copy as `pack_panel` does; return the magnitude range of the rows and of earlier panels."""
    for d in range(depth):
        row, target = b[k + d * step, j0 : j0 + columns], panel[d]
        for j in range(row.size):
            target[j] = row[j]
            panel_range = extended_range(panel_range, row[j])
    return panel_range


@inline
def add_wide_range(row, x, ys, scale, g):
    """Add a row of ROUNDED_WIDE_RANGE products to scaled sums."""
    factor, clamp_factor = float_from_bits(g[FACTOR]), float_from_bits(g[CLAMP_FACTOR])
    m, e = normalized(x)
    emin = bits_from_float(power(max(-126, -126 - e + B_SHIFT)))
    down = e - B_SHIFT + np.int64(right32(bits_from_float(scale), np.uint32(23))) - 127
    if down >= -126:
        unscale = power(down)
        for j in range(row.size):
            row[j] = veltkamp_rne(multiply_add(round_clamped(m * ys[j], emin, clamp_factor), unscale, row[j]), factor)
    else:
        unscale, half_way = power(down + UP_SHIFT), power(-UP_SHIFT)
        for j in range(row.size):
            row[j] = veltkamp_rne(
                multiply_add(round_clamped(m * ys[j], emin, clamp_factor) * half_way, unscale, row[j]), factor
            )


@inline
def only_negative_zeros(style, products, a, b, i, j, start, stop, step, scale, g):
    """Whether all products of an element are -0, or are rounded to -0."""
    for k in range(start, stop, step):
        x, y = a[i, k] * scale, b[k, j]
        if x * y > 0 or bits_from_float(x * y) == NONE:
            return False
        if product(style, products, x, y, g) != 0:
            return False
    return True


@functools.cache
def in_order(style, products, scratch=SINGLE):
    """Return the kernel of sequential sums: acc = round(acc + product)."""
    fast, scans_range = style >= RNE, needs_range_check(style, products)

    @kernel_of(arguments(scratch))
    def kernel(acc, panel, bailed_out, a, b, out, ranges, index, seeds, fresh, direction, params):
        wide_vectors()
        g = fields_of(params)
        scale = float_from_bits(params[SCALE])
        unit = scale if fast else np.float32(1)
        if scans_range:
            ranges_a = zero_array((a.shape[0], 2), np.uint32)
            for i in range(a.shape[0]):
                ranges_a[i, 0], ranges_a[i, 1] = magnitude_range(a[i : i + 1])
        set_rounding(np.int32(direction))
        for n in range(tiles(*acc.shape, out)):
            part, i0, rows, c, j0, columns = tile(n, *acc.shape, out)
            start, stop, step = ranges[part, 0], ranges[part, 1], ranges[part, 2]
            is_first_panel, is_last_panel, panel_range = True, False, EMPTY_RANGE
            while not is_last_panel:  # a sum of few terms stays in the first-level cache from its start to its end
                depth = max(min(panel.shape[0], (stop - start + step - 1) // step), 0)
                is_last_panel = start + depth * step >= stop
                if products == ROUNDED_WIDE_RANGE:
                    for d in range(depth):
                        copy_scaled(b[start + d * step, j0 : j0 + columns], B_SCALE, panel[d])
                elif scans_range:
                    panel_range = pack_panel_and_range(b, start, step, depth, j0, columns, panel, panel_range)
                else:
                    pack_panel(b, start, step, depth, j0, columns, panel)
                for i in range(rows):
                    if scans_range and not in_range(style, products, ranges_a[i0 + i], panel_range, params):
                        bailed_out[part, i0 + i, c] = True
                    if bailed_out[part, i0 + i, c]:
                        continue
                    row, target = acc[i], out[part, i0 + i, j0 : j0 + columns]
                    if is_first_panel:
                        load_accumulators(fast, fresh, target, scale, row)
                    for d in range(depth):
                        ys = panel[d]
                        if products == ROUNDED_WIDE_RANGE:
                            add_wide_range(row, a[i0 + i, start + d * step], ys, scale, g)
                        elif style == DIRECTED_MONOTONE:
                            x, top = a[i0 + i, start + d * step] * unit, NONE
                            for j in range(row.size):
                                s = add_product(style, products, row[j], x, ys[j], g)
                                top = max(top, exponent_of(s))
                                row[j] = rounded_upward(products, s, g)
                            if top >= and32(g[HIGHEST], EXPONENT):  # a sum may be beyond the largest number
                                bailed_out[part, i0 + i, c] = True
                                break
                        else:
                            x = factor_of_row(style, a[i0 + i, start + d * step], unit, row[0])
                            for j in range(row.size):
                                row[j] = rounded_add_product(style, products, row[j], x, ys[j], g)
                    if not is_last_panel:
                        continue
                    if not fast:
                        copy(row[:columns], target)
                    elif not bailed_out[part, i0 + i, c]:
                        status = epilogue(row, target, params, keeps_zero_signs(style, products), True, fresh)
                        bailed_out[part, i0 + i, c] = status == BAILED_OUT
                        for j in range(columns if status == ZERO_SIGNS_UNKNOWN else 0):
                            if target[j] == 0 and bits_from_float(target[j]) != params[ZERO]:
                                first = ranges[part, 0]
                                if not only_negative_zeros(
                                    style, products, a, b, i0 + i, j0 + j, first, stop, step, scale, g
                                ):
                                    target[j] = float_from_bits(params[ZERO])
                start, is_first_panel = start + depth * step, False
        set_rounding(np.int32(TIES_TO_EVEN))

    return kernel


@inline
def nearest_add(style, u, v, g):
    """u + v to nearest."""
    return add_floats(u, v) if style == NATIVE else veltkamp_rne(u + v, float_from_bits(g[FACTOR]))


@inline
def nearest_subtract(style, u, v, g):
    """u - v to nearest."""
    return subtract_floats(u, v) if style == NATIVE else veltkamp_rne(u - v, float_from_bits(g[FACTOR]))


@inline
def kahan_step(style, products, x, y, s, c, g):
    """(sum, compensation) after one more product."""
    z = nearest_subtract(style, product(style, products, x, y, g), c, g)
    t = nearest_add(style, s, z, g)
    compensation = nearest_subtract(style, nearest_subtract(style, t, s, g), z, g)
    return t, compensation if style != NATIVE or is_finite(t) else converted(np.float32(0), c)


@inline
def neumaier_step(style, products, x, y, s, c, g):
    """(sum, compensation) after one more product."""
    p = product(style, products, x, y, g)
    t = nearest_add(style, s, p, g)
    s_is_larger = magnitude_of(s) >= magnitude_of(p)
    large, small = s if s_is_larger else p, p if s_is_larger else s
    compensation = nearest_add(style, c, nearest_add(style, nearest_subtract(style, large, t, g), small, g), g)
    return t, compensation if style != NATIVE or is_finite(t) else c


@functools.cache
def compensated(style, products, scratch=SINGLE, neumaier=False):
    """Return the kernel of Kahan's or Neumaier's sum. Exact products are numbers of the format.

    The compensations of a tile's rows follow the sums in `acc`. RNE is the only fast style: with it, infinities and
    NaNs stay in the sums.
    """
    fast, scans_range = style >= RNE, needs_range_check(style, products)

    @kernel_of(arguments(scratch))
    def kernel(acc, panel, bailed_out, a, b, out, ranges, index, seeds, fresh, direction, params):
        wide_vectors()
        if scans_range:
            bail_out_of_rows(style, products, a, b, params, bailed_out)
        g = fields_of(params)
        scale = float_from_bits(params[SCALE])
        tile_rows = acc.shape[0] // 2
        set_rounding(np.int32(direction))
        for n in range(tiles(tile_rows, acc.shape[1], out)):
            part, i0, rows, c, j0, columns = tile(n, tile_rows, acc.shape[1], out)
            for i in range(rows):
                load_accumulators(fast, fresh, out[part, i0 + i, j0 : j0 + columns], scale, acc[i])
                acc[tile_rows + i] = 0
            start, stop, step = ranges[part, 0], ranges[part, 1], ranges[part, 2]
            adds = neumaier and start < stop
            while start < stop:
                depth = min(panel.shape[0], (stop - start + step - 1) // step)
                pack_panel(b, start, step, depth, j0, columns, panel)
                for i in range(rows):
                    if bailed_out[part, i0 + i, c]:
                        continue
                    s, r = acc[i], acc[tile_rows + i]
                    for d in range(depth):
                        ys = panel[d]
                        x = factor_of_row(style, a[i0 + i, start + d * step], scale, s[0])
                        for j in range(s.size):
                            if neumaier:
                                s[j], r[j] = neumaier_step(style, products, x, ys[j], s[j], r[j], g)
                            else:
                                s[j], r[j] = kahan_step(style, products, x, ys[j], s[j], r[j], g)
                start += depth * step
            for i in range(rows):
                s, r, target = acc[i], acc[tile_rows + i], out[part, i0 + i, j0 : j0 + columns]
                if adds:
                    for j in range(s.size):
                        s[j] = nearest_add(style, s[j], r[j], g)
                if not fast:
                    copy(s[:columns], target)
                elif not bailed_out[part, i0 + i, c]:
                    bailed_out[part, i0 + i, c] = epilogue(s, target, params, False, False, fresh) == BAILED_OUT
        set_rounding(np.int32(TIES_TO_EVEN))

    return kernel


@inline
def pair_sum(style, products, x0, y0, x1, y1, g):
    """The rounded sum of two products."""
    return rounded_add_product(style, products, product(style, products, x0, y0, g), x1, y1, g)


@functools.cache
def in_tree(style, products, scratch=SINGLE):
    """Return the kernel of sums along trees: programs of accumulation/trees.py, which hold at most `depth` values.

    The fourth number of a range is the start of its program in `orders` and `merges`. `stack` holds the values of a
    tile's rows, one row after the other, for each depth. Products are added as they come: to the topmost value, in
    pairs, or in pairs of pairs.
    """
    fast, scans_range = style >= RNE, needs_range_check(style, products)

    @kernel_of(arguments(scratch, PROGRAMS))
    def kernel(stack, panel, bailed_out, a, b, out, ranges, index, seeds, orders, merges, depth, direction, params):
        wide_vectors()
        if scans_range:
            bail_out_of_rows(style, products, a, b, params, bailed_out)
        g = fields_of(params)
        scale = float_from_bits(params[SCALE])
        unit = scale if fast else np.float32(1)
        tile_rows = stack.shape[0] // depth
        ks, merged = zero_array(4, np.int64), zero_array(4, np.int64)
        set_rounding(np.int32(direction))
        for n in range(tiles(tile_rows, stack.shape[1], out)):
            part, i0, rows, c, j0, columns = tile(n, tile_rows, stack.shape[1], out)
            start, stop, step = ranges[part, 0], ranges[part, 1], ranges[part, 2]
            length, program = max((stop - start + step - 1) // step, 0), ranges[part, 3]
            at, top = 0, -tile_rows
            while at < length:
                count = min(length - at, 4)
                for d in range(count):
                    ks[d] = start + orders[program + at + d] * step
                    merged[d] = merges[program + at + d]
                if count == 4 and merged[0] == 0 and merged[1] == 1 and merged[2] == 0 and merged[3] > 1:
                    count, adds = 4, merged[3] - 2
                elif count > 1 and merged[0] == 0 and merged[1] > 0:
                    count, adds = 2, merged[1] - 1
                else:
                    count, adds = 1, max(merged[0] - 1, 0)
                at += count
                y0, y1, y2, y3 = panel[0], panel[1], panel[2], panel[3]
                if rows == 1 and scratch != HALF:  # a copy costs more than it saves
                    y0, y1 = b[ks[0], j0 : j0 + columns], b[ks[1], j0 : j0 + columns]
                    y2, y3 = b[ks[2], j0 : j0 + columns], b[ks[3], j0 : j0 + columns]
                else:
                    for d in range(count):
                        copy(b[ks[d], j0 : j0 + columns], panel[d])
                if count == 4:
                    top += tile_rows
                    for i in range(rows):
                        u, xs = stack[top + i], a[i0 + i]
                        x0 = factor_of_row(style, xs[ks[0]], unit, u[0])
                        x1 = factor_of_row(style, xs[ks[1]], unit, u[0])
                        x2 = factor_of_row(style, xs[ks[2]], unit, u[0])
                        x3 = factor_of_row(style, xs[ks[3]], unit, u[0])
                        for j in range(y0.size):
                            v = pair_sum(style, products, x0, y0[j], x1, y1[j], g)
                            w = pair_sum(style, products, x2, y2[j], x3, y3[j], g)
                            u[j] = rounded_add(style, products, v, w, g)
                elif count == 2:
                    top += tile_rows
                    for i in range(rows):
                        u, xs = stack[top + i], a[i0 + i]
                        x0 = factor_of_row(style, xs[ks[0]], unit, u[0])
                        x1 = factor_of_row(style, xs[ks[1]], unit, u[0])
                        for j in range(y0.size):
                            u[j] = pair_sum(style, products, x0, y0[j], x1, y1[j], g)
                elif merged[0] > 0:
                    for i in range(rows):
                        u = stack[top + i]
                        x = factor_of_row(style, a[i0 + i, ks[0]], unit, u[0])
                        for j in range(y0.size):
                            u[j] = rounded_add_product(style, products, u[j], x, y0[j], g)
                else:
                    top += tile_rows
                    for i in range(rows):
                        u = stack[top + i]
                        x = factor_of_row(style, a[i0 + i, ks[0]], unit, u[0])
                        for j in range(y0.size):
                            v = product(style, products, x, y0[j], g)
                            if style != NATIVE and products >= EXACT and length == 1:
                                v = rounded_term(style, products, v, g)
                            u[j] = v
                for _ in range(adds):
                    for i in range(rows):
                        u, v = stack[top - tile_rows + i], stack[top + i]
                        for j in range(u.size):
                            u[j] = rounded_add(style, products, u[j], v[j], g)
                    top -= tile_rows
            for i in range(rows):
                target = out[part, i0 + i, j0 : j0 + columns]
                if length == 0:
                    target[:] = 0
                elif not fast:
                    copy(stack[i][:columns], target)
                elif not bailed_out[part, i0 + i, c]:
                    bailed_out[part, i0 + i, c] = epilogue(stack[i], target, params, True, False, True) == BAILED_OUT
                    if not keeps_zero_signs(style, products):
                        for j in range(columns):
                            if target[j] == 0:
                                negative = only_negative_zeros(
                                    style, products, a, b, i0 + i, j0 + j, start, stop, step, scale, g
                                )
                                target[j] = float_from_bits(xor32(params[ZERO], SIGN) if negative else params[ZERO])
        set_rounding(np.int32(TIES_TO_EVEN))

    return kernel
