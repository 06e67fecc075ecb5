"""Blocks of matrix instructions in float64, which holds every sum in them exactly: groups of FP4, the models of AMD,
and chains of fused multiply-adds.

floatsim/reference/tensorcore/nvidia.py and amd.py define the blocks. The loops run over columns. A row's results are
written unless it contains infinities or NaNs, on entry or on the way: then the kernel bails out, `bailed_out` (ranges,
M, groups of WIDTH columns) marks the row, and the integer kernels compute it. out (ranges, M, N) holds float32 numbers,
c on entry.
"""

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..runtime.intrinsics import (
    bits_from_double,
    bits_from_float,
    double_from_bits,
    float_from_bits,
    multiply_add,
    wide_vectors,
    zero_array,
)
from ..runtime.jit import inline, kernel_of
from .integer import INFINITE, NONE

WIDTH = 256
"""Columns of a tile."""

_FIELD32, _SIGN32, _TRAILING = np.uint32(0x7F800000), np.uint32(0x80000000), np.uint32(23)
_TRAILING_BITS = np.uint32(0x7FFFFF)
_SHIFT, _SIGN64 = np.uint64(52), np.uint64(1 << 63)
_BEYOND = 2.0**128


@intrinsic
def toward_zero(typingctx, x):
    """np.trunc as one instruction."""

    def codegen(context, builder, signature, args):
        kind, name = ir.FunctionType(ir.DoubleType(), [ir.DoubleType()]), "llvm.trunc.f64"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        return builder.call(function, args)

    return types.float64(types.float64), codegen


@inline
def power(n):
    """2**n, a normal number."""
    return double_from_bits(np.uint64(np.int64(n) + 1023) << _SHIFT)


@inline
def exponent_of_c(x):
    """The exponent by which c is aligned: -126 for subnormal numbers, NONE for a zero."""
    u = np.uint32(bits_from_float(x) & np.uint32(0x7FFFFFFF))
    e = max(np.int32(u >> _TRAILING), np.int32(1)) - np.int32(127)
    return e if u else np.int32(NONE)


@inline
def field_of(x):
    """The exponent field; infinities and NaNs have the largest."""
    return np.uint32(bits_from_float(x) & _FIELD32)


@inline
def largest_field(row):
    """The largest exponent field of a row."""
    most = np.uint32(0)
    for j in range(row.size):
        most = max(most, field_of(row[j]))
    return most


@inline
def cut_to_float(x):
    """x in float32, toward zero; infinite from 2**128 on; a zero is positive."""
    near = np.float32(x)
    u = bits_from_float(near)
    away = abs(np.float64(near)) > abs(x) and abs(x) < _BEYOND
    return float_from_bits(np.uint32(u - np.uint32(away))) + np.float32(0)


def _array(scalar, dimensions, readonly=True):
    return types.Array(scalar, dimensions, "C", readonly=readonly)


_FLOATS, _DOUBLES, _INTS = _array(numba.float32, 2), _array(numba.float64, 2), _array(numba.int32, 2)
_RANGES, _FAILED = _array(numba.int64, 2), _array(numba.boolean, 3, False)


@kernel_of((_FLOATS, numba.int64, numba.int64, _array(numba.float64, 2, False), _array(numba.int64, 2, False)))
def prepare(x, emin, read, values, exponents):
    """Write the values of operands, 0 for infinities and NaNs, and the exponents by which they are aligned: NONE for a
    zero, INFINITE for infinities and NaNs. `read` is the mask of the bits that the instruction reads.
    """
    wide_vectors()
    mask = np.uint32(read)
    for i in range(x.shape[0]):
        row, into, own = x[i], values[i], exponents[i]
        for j in range(row.size):
            u = np.uint32(bits_from_float(row[j]) & mask)
            magnitude = np.uint32(u & ~_SIGN32)
            finite = magnitude < _FIELD32
            e = max(np.int64(magnitude >> _TRAILING) - 127, emin) if finite else np.int64(INFINITE)
            into[j] = np.float64(float_from_bits(u if finite else np.uint32(0)))
            own[j] = e if magnitude else np.int64(NONE)


@kernel_of(
    (
        _FLOATS, _FLOATS, _DOUBLES, _DOUBLES, _INTS, _INTS, _INTS, _INTS, _array(numba.float32, 3, False), _RANGES,
        numba.int64, numba.int64, numba.int64, numba.int64, _FAILED,
    )
)  # fmt: skip
def grouped(
    a, b, scales_a, scales_b, exponents_a, exponents_b, nonzero_a, nonzero_b, out, ranges, group, groups,
    fraction, floor, bailed_out,
):  # fmt: skip
    """Blocks of a few groups of FP4, with a scale for each group: (M, groups of K) and (groups of K, N).

    The bits of nonzero_a and nonzero_b mark the non-zero elements of a group. Exponents of zero scales are NONE.
    """
    wide_vectors()
    rows, columns = out.shape[1], out.shape[2]
    sums, e = zero_array((groups, WIDTH), np.float32), zero_array(WIDTH, np.int32)
    acc, total, up = zero_array(WIDTH, np.float32), zero_array(WIDTH, np.float64), zero_array(WIDTH, np.float64)
    for part in range(out.shape[0]):
        start, stop = ranges[part, 0], ranges[part, 1]
        for tile in range(bailed_out.shape[2]):
            j0 = tile * WIDTH
            n = min(WIDTH, columns - j0)
            for i in range(rows):
                row = out[part, i, j0 : j0 + n]
                most = largest_field(row)
                for j in range(n):
                    acc[j] = row[j] + np.float32(0) if stop > start else row[j]
                for first in range(start, stop, group * groups):
                    for j in range(n):
                        e[j] = max(exponent_of_c(acc[j]), np.int32(floor))
                    here = min(groups, (stop - first + group - 1) // group)
                    for g in range(here):
                        k0 = first + g * group
                        at = k0 // group
                        into, nonzero_group, own = sums[g], nonzero_a[i, at], exponents_a[i, at]
                        for j in range(n):
                            into[j] = 0
                        k1 = min(k0 + group, stop)
                        for k in range(k0, k1 - 3, 4):
                            x0, x1, x2, x3 = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
                            y0, y1 = b[k, j0 : j0 + n], b[k + 1, j0 : j0 + n]
                            y2, y3 = b[k + 2, j0 : j0 + n], b[k + 3, j0 : j0 + n]
                            for j in range(n):
                                into[j] += x0 * y0[j] + x1 * y1[j] + (x2 * y2[j] + x3 * y3[j])
                        for k in range(k1 - (k1 - k0) % 4, k1):
                            x, ys = a[i, k], b[k, j0 : j0 + n]
                            for j in range(n):
                                into[j] += x * ys[j]
                        nonzero, others = nonzero_b[at, j0 : j0 + n], exponents_b[at, j0 : j0 + n]
                        for j in range(n):
                            counts = (nonzero_group & nonzero[j]) != 0
                            e[j] = max(e[j], own + others[j] if counts else np.int32(NONE))
                    for j in range(n):
                        up[j] = power(fraction - e[j])
                        total[j] = toward_zero(np.float64(acc[j]) * up[j])
                    for g in range(here):
                        at = (first + g * group) // group
                        x, ys, own_sums = scales_a[i, at], scales_b[at, j0 : j0 + n], sums[g]
                        for j in range(n):
                            total[j] += toward_zero(np.float64(own_sums[j]) * (x * ys[j]) * up[j])
                    for j in range(n):
                        acc[j] = cut_to_float(total[j] * power(e[j] - fraction))
                    most = max(most, largest_field(acc[:n]))
                bailed_out[part, i, tile] = most == _FIELD32
                if most != _FIELD32:
                    for j in range(n):
                        row[j] = acc[j]


# -- AMD ---------------------------------------------------------------------------------------------------------------

_LEAST, _LARGE = -300, 125
"""A number below the exponent of every product; the largest exponent of a block whose products are all below 2**128."""


@inline
def cut_products(a, e_a, b, e_b, k0, k1, step, j0, n, fraction, top, total, up):
    """Align every `step`-th product from k0 on, truncate it to `fraction` bits, and add it to `total`; return the
    largest exponent.
    """
    for j in range(n):
        top[j], total[j] = np.int64(_LEAST), 0.0
    fours = k0 + max(k1 - k0, 0) // (4 * step) * (4 * step)
    for k in range(k0, fours, 4 * step):
        x0, x1, x2, x3 = e_a[k], e_a[k + step], e_a[k + 2 * step], e_a[k + 3 * step]
        y0, y1 = e_b[k, j0 : j0 + n], e_b[k + step, j0 : j0 + n]
        y2, y3 = e_b[k + 2 * step, j0 : j0 + n], e_b[k + 3 * step, j0 : j0 + n]
        for j in range(n):
            top[j] = max(top[j], max(max(x0 + y0[j], x1 + y1[j]), max(x2 + y2[j], x3 + y3[j])))
    for k in range(fours, k1, step):
        x, ys = e_a[k], e_b[k, j0 : j0 + n]
        for j in range(n):
            top[j] = max(top[j], x + ys[j])
    for j in range(n):
        up[j] = power(fraction - top[j])
    for k in range(k0, fours, 4 * step):
        u0, u1, u2, u3 = a[k], a[k + step], a[k + 2 * step], a[k + 3 * step]
        v0, v1 = b[k, j0 : j0 + n], b[k + step, j0 : j0 + n]
        v2, v3 = b[k + 2 * step, j0 : j0 + n], b[k + 3 * step, j0 : j0 + n]
        for j in range(n):
            first = toward_zero(u0 * v0[j] * up[j]) + toward_zero(u1 * v1[j] * up[j])
            total[j] += first + (toward_zero(u2 * v2[j] * up[j]) + toward_zero(u3 * v3[j] * up[j]))
    for k in range(fours, k1, step):
        u, vs = a[k], b[k, j0 : j0 + n]
        for j in range(n):
            total[j] += toward_zero(u * vs[j] * up[j])
    most = np.int64(_LEAST)
    for j in range(n):
        most = max(most, top[j])
        total[j] *= power(top[j] - fraction)
    return most


@kernel_of(
    (
        _DOUBLES, _DOUBLES, _RANGES, _RANGES, _array(numba.float32, 3, False), _RANGES, numba.int64, numba.int64,
        numba.int64, numba.int64, numba.int64, _FAILED,
    )
)  # fmt: skip
def late(a, b, e_a, e_b, out, ranges, terms, k_of_instruction, fraction, sum_bits, apart, bailed_out):
    """Blocks that add c after the products. `apart`: even and odd products are summed apart. Exponents of zeros are
    NONE.
    """
    wide_vectors()
    rows, columns = out.shape[1], out.shape[2]
    acc, c = zero_array(WIDTH, np.float32), zero_array(WIDTH, np.float64)
    top, top_odd = zero_array(WIDTH, np.int64), zero_array(WIDTH, np.int64)
    total, odd, up = zero_array(WIDTH, np.float64), zero_array(WIDTH, np.float64), zero_array(WIDTH, np.float64)
    step = 2 if apart else 1
    for part in range(out.shape[0]):
        start, stop = ranges[part, 0], ranges[part, 1]
        filled = start - (start - stop) // k_of_instruction * k_of_instruction
        for tile in range(bailed_out.shape[2]):
            j0 = tile * WIDTH
            n = min(WIDTH, columns - j0)
            for i in range(rows):
                row = out[part, i, j0 : j0 + n]
                most, large = largest_field(row), np.int64(_LEAST)
                for j in range(n):
                    acc[j] = row[j]
                for k0 in range(start, filled, terms):
                    k1 = max(k0, min(k0 + terms, stop))
                    largest = cut_products(a[i], e_a[i], b, e_b, k0, k1, step, j0, n, fraction, top, total, up)
                    large = max(large, largest)
                    if apart:
                        largest = cut_products(
                            a[i], e_a[i], b, e_b, k0 + 1, k1, step, j0, n, fraction, top_odd, odd, up
                        )
                        large = max(large, largest)
                        for j in range(n):
                            both = max(top[j], top_odd[j])
                            finer, back = power(fraction - both), power(both - fraction)
                            total[j] = (np.floor(total[j] * finer) + np.floor(odd[j] * finer)) * back
                            top[j] = both
                    for j in range(n):
                        x = np.float64(acc[j])
                        at = max(np.int64(exponent_of_c(acc[j])), np.int64(-126))
                        e = max(top[j], at)
                        dropped = apart != 0 and at < e - fraction - 1
                        y = 0.0 if dropped else np.floor(x * power(fraction - e)) * power(sum_bits + 1 - fraction)
                        c[j] = np.floor(total[j] * power(sum_bits + 1 - e)) + y
                        top[j] = e - sum_bits - 1
                    for j in range(n):
                        own = np.int64((bits_from_double(c[j]) & ~_SIGN64) >> _SHIFT) - 1023
                        drop = max(np.int64(0), max(own + top[j], np.int64(-126)) - sum_bits - top[j])
                        x = np.floor(c[j] * power(-drop)) * power(drop + top[j])
                        acc[j] = np.float32(x + 0.0)  # a sum of zero is +0
                    most = max(most, largest_field(acc[:n]))
                in_range = most != _FIELD32 and large <= _LARGE
                bailed_out[part, i, tile] = not in_range
                if in_range:
                    for j in range(n):
                        row[j] = acc[j]


@kernel_of((_FLOATS, _array(numba.int64, 2, False)))
def magnitude_ranges(x, out):
    """Write (low, high) for each row: its finite elements are multiples of 2**low and less than 2**high."""
    wide_vectors()
    for i in range(x.shape[0]):
        row = x[i]
        low, high = np.int32(1 << 10), np.int32(-(1 << 10))
        for j in range(row.size):
            u = np.uint32(bits_from_float(row[j]) & ~_SIGN32)
            field = np.int32(u >> _TRAILING)
            significand = np.int32(u & _TRAILING_BITS) | (np.int32(1 << 23) if field else np.int32(0))
            last = np.int32(bits_from_float(np.float32(significand & -significand)) >> _TRAILING) - np.int32(127)
            at = max(field, np.int32(1)) - np.int32(150)
            counts = u != 0 and u < _FIELD32
            low = min(low, at + last if counts else np.int32(1 << 10))
            high = max(high, at + np.int32(24) if counts else np.int32(-(1 << 10)))
        out[i, 0], out[i, 1] = low, high


@inline
def two_sum(x, y):
    """(x + y, its rounding error)."""
    s = x + y
    z = s - x
    return s, (x - (s - z)) + (y - z)


@inline
def exponent_of_double(x):
    return np.int64((bits_from_double(x) & ~_SIGN64) >> _SHIFT) - 1023


@inline
def to_odd(x, lost):
    """x plus its rounding error, rounded to odd: an even x is replaced by its neighbour toward the error."""
    u = bits_from_double(x)
    even = np.uint64(1) - (u & np.uint64(1)) if lost != 0 else np.uint64(0)
    inward = (lost < 0) != (x < 0)
    return double_from_bits(u - even if inward else u + even)


@inline
def add_two(s, p, q):
    """(s + p + q, the sum of the rounding errors)."""
    s, lost = two_sum(s, p)
    s, rest = two_sum(s, q)
    return s, lost + rest


@inline
def nearest_half(x):
    """x rounded to a multiple of float16's quantum at x, ties to even, with the sign of x."""
    shift = 1.5 * power(max(exponent_of_double(x) - 10, np.int64(-24)) + 52)
    return double_from_bits(bits_from_double((x + shift) - shift) | (bits_from_double(x) & _SIGN64))


_EXACT, _IN_TWO = 52, 104  # binades that one float64 holds, and that a sum and its summed errors hold
_FIELD16 = np.uint32(0x47800000)  # of 2**16, where float16 overflows


@kernel_of(
    (
        _DOUBLES, _DOUBLES, _RANGES, _RANGES, _array(numba.float32, 3, False), _RANGES, numba.int64, numba.int64,
        numba.int64, numba.int64, _FAILED,
    )
)  # fmt: skip
def exact(a, b, range_a, range_b, out, ranges, terms, k_of_instruction, half, signed_zero, bailed_out):
    """Exact sums of up to eight products and c, rounded to float32, or with `half` to the numbers of float16.

    range_a (M, 2) and range_b (N, 2): all elements are multiples of 2**low and less than 2**high. Sums are held in two
    float64 numbers; the second decides how the first is rounded. A sum of zero is +0; with `signed_zero`, one of
    negative zeros is -0.
    """
    wide_vectors()
    rows, columns = out.shape[1], out.shape[2]
    acc, s, error = zero_array(WIDTH, np.float32), zero_array(WIDTH, np.float64), zero_array(WIDTH, np.float64)
    ones = zero_array(WIDTH, np.float64)
    for j in range(WIDTH):
        ones[j] = 1
    limit = _FIELD16 if half else _FIELD32
    for part in range(out.shape[0]):
        start, stop = ranges[part, 0], ranges[part, 1]
        filled = start - (start - stop) // k_of_instruction * k_of_instruction
        room = exponent_of_double(np.float64(max(stop - start, 1))) + 2
        for tile in range(bailed_out.shape[2]):
            j0 = tile * WIDTH
            n = min(WIDTH, columns - j0)
            low_b, high_b = range_b[j0, 0], range_b[j0, 1]
            for j in range(1, n):
                low_b, high_b = min(low_b, range_b[j0 + j, 0]), max(high_b, range_b[j0 + j, 1])
            for i in range(rows):
                row = out[part, i, j0 : j0 + n]
                most = largest_field(row)
                low, high = range_a[i, 0] + low_b, range_a[i, 1] + high_b + room
                for j in range(n):
                    acc[j] = row[j]
                    if row[j] != 0:
                        e = np.int64(exponent_of_c(row[j]))
                        low, high = min(low, e - 23), max(high, e + room)
                valid, exactly = high - low <= _IN_TWO and most < limit, high - low <= _EXACT
                for k0 in range(start, filled if valid else start, terms):
                    plus = -0.0 if signed_zero and k0 + terms <= stop else 0.0  # the zeros behind the end are positive
                    if exactly:
                        for j in range(n):
                            s[j] = np.float64(acc[j])
                    end = min(k0 + terms, stop)
                    for k in range(k0, end, 2):
                        x, ys = a[i, k], b[k, j0 : j0 + n]
                        y, zs = -0.0, ones[:n]  # a product that changes no sum
                        if k + 1 < end:
                            y, zs = a[i, k + 1], b[k + 1, j0 : j0 + n]
                        if exactly:
                            for j in range(n):
                                s[j] = s[j] + x * ys[j] + y * zs[j]
                        elif k == k0:
                            for j in range(n):
                                s[j], error[j] = add_two(np.float64(acc[j]), x * ys[j], y * zs[j])
                        else:
                            for j in range(n):
                                s[j], lost = add_two(s[j], x * ys[j], y * zs[j])
                                error[j] += lost
                    if not exactly:
                        for j in range(n):
                            x, lost = two_sum(s[j], error[j])
                            s[j] = to_odd(x, lost) if error[j] != 0 else s[j]
                    if half:
                        for j in range(n):
                            acc[j] = np.float32(nearest_half(s[j] + plus))
                        most = max(most, largest_field(acc[:n]))
                    else:
                        for j in range(n):
                            acc[j] = np.float32(s[j] + plus)
                valid = valid and max(most, largest_field(acc[:n])) < limit
                bailed_out[part, i, tile] = not valid
                if valid:
                    for j in range(n):
                        row[j] = acc[j]


@inline
def flushed(x):
    """x, with subnormal numbers replaced by zeros of their sign."""
    u = bits_from_float(x)
    return float_from_bits(np.uint32(u & _SIGN32)) if field_of(x) == 0 else x


@kernel_of((_FLOATS, _FLOATS, _array(numba.float32, 3, False), _RANGES, numba.int64, numba.int64, _FAILED))
def flushed_tree(a, b, out, ranges, terms, k_of_instruction, bailed_out):
    """Two or four products, added as neighbours, then to c. Subnormal operands and their -0 are +0 on entry."""
    wide_vectors()
    rows, columns = out.shape[1], out.shape[2]
    acc, sums = zero_array(WIDTH, np.float32), zero_array((2, WIDTH), np.float32)
    zero = np.float32(0)
    for part in range(out.shape[0]):
        start, stop = ranges[part, 0], ranges[part, 1]
        filled = start - (start - stop) // k_of_instruction * k_of_instruction
        for tile in range(bailed_out.shape[2]):
            j0 = tile * WIDTH
            n = min(WIDTH, columns - j0)
            for i in range(rows):
                row = out[part, i, j0 : j0 + n]
                most = largest_field(row)
                for j in range(n):
                    acc[j] = row[j]
                for k0 in range(start, filled, terms):
                    for pair in range(terms // 2):
                        k, into = k0 + 2 * pair, sums[pair]
                        last = b.shape[0] - 1
                        x = a[i, k] if k < stop else zero
                        y = a[i, k + 1] if k + 1 < stop else zero
                        xs, ys = b[min(k, last), j0 : j0 + n], b[min(k + 1, last), j0 : j0 + n]
                        one, other = np.float32(k < stop), np.float32(k + 1 < stop)
                        for j in range(n):
                            p = flushed(x * (xs[j] * one + zero))
                            q = flushed(y * (ys[j] * other + zero))
                            into[j] = flushed(p + q)
                    if terms == 4:
                        first, second = sums[0], sums[1]
                        for j in range(n):
                            first[j] = flushed(first[j] + second[j])
                    first = sums[0]
                    for j in range(n):
                        acc[j] = flushed((flushed(acc[j]) + zero) + first[j])
                    most = max(most, largest_field(acc[:n]))
                bailed_out[part, i, tile] = most == _FIELD32
                if most != _FIELD32:
                    for j in range(n):
                        row[j] = acc[j]


def chain_loop(a, b, out, ranges, k_of_instruction, bailed_out):
    """acc = fma(a, b, acc), in the format of `out`, with zeros behind the last term. Needs `cpu.has_fma()`."""
    wide_vectors()
    rows, columns = out.shape[1], out.shape[2]
    acc, zero = zero_array(WIDTH, out.dtype), out.dtype.type(0)
    for part in range(out.shape[0]):
        start, stop = ranges[part, 0], ranges[part, 1]
        filled = (stop - start) % k_of_instruction != 0
        for tile in range(bailed_out.shape[2]):
            j0 = tile * WIDTH
            n = min(WIDTH, columns - j0)
            for i in range(rows):
                row = out[part, i, j0 : j0 + n]
                for j in range(n):
                    acc[j] = row[j]
                for k in range(start, stop):
                    x, ys = a[i, k], b[k, j0 : j0 + n]
                    for j in range(n):
                        acc[j] = multiply_add(x, ys[j], acc[j])
                nans = 0
                for j in range(n):
                    nans += acc[j] != acc[j]
                bailed_out[part, i, tile] = nans > 0
                if nans == 0:
                    for j in range(n):
                        row[j] = acc[j] + zero if filled else acc[j]


chain32 = kernel_of((_FLOATS, _FLOATS, _array(numba.float32, 3, False), _RANGES, numba.int64, _FAILED))(chain_loop)
chain64 = kernel_of((_DOUBLES, _DOUBLES, _array(numba.float64, 3, False), _RANGES, numba.int64, _FAILED))(chain_loop)
