"""Dot instructions of CPUs on hardware floats: operations that round one after the other.

floatsim/reference/tensorcore/cpu.py defines them. The loops run over columns. out (ranges, M, N) holds float32 numbers,
c on entry. A row is written unless it contains infinities or NaNs, or a result where detection of tininess would need
the exact value: then the kernel bails out, `bailed_out` (ranges, M, groups of WIDTH columns) marks the row, and the
integer kernels compute it.
"""

import numba
import numpy as np

from ..runtime.intrinsics import (
    bits_from_double,
    bits_from_float,
    double_from_bits,
    float_from_bits,
    float_from_half,
    half_from_float,
    multiply_add,
    wide_vectors,
    zero_array,
)
from ..runtime.jit import inline, kernel_of
from .float64 import WIDTH, largest_field, to_odd, two_sum

_FIELD32, _SIGN32, _MAGNITUDE32 = np.uint32(0x7F800000), np.uint32(0x80000000), np.uint32(0x7FFFFFFF)
_LEAST = np.uint32(0x00800000)  # 2**-126, the least normal number
_DROPPED, _LAST_KEPT = np.uint64((1 << 29) - 1), np.uint64(1 << 29)  # of a float64 number that becomes a float32 one
_NEVER = np.uint32(0xFFFFFFFF)


@inline
def flushed_below(x, least):
    """x, or a zero of its sign if its magnitude is below a code."""
    u = bits_from_float(x)
    return float_from_bits(np.uint32(u & _SIGN32)) if np.uint32(u & _MAGNITUDE32) < least else x


@inline
def float_to_odd(x):
    """A float64 number as float32, rounded to odd. Below 2**-126 the result is a zero of its sign."""
    u = bits_from_double(x)
    kept = np.uint64(u & ~_DROPPED) | (_LAST_KEPT if u & _DROPPED else np.uint64(0))
    return np.float32(double_from_bits(kept)) if abs(x) >= 2.0**-126 else np.float32(0) * np.float32(x)


@inline
def narrowed(x, lost, odd):
    """x plus its rounding error as float32, rounded to odd or to nearest."""
    y = to_odd(x, lost)
    return float_to_odd(y) if odd else np.float32(y)


def _array(scalar, dimensions, readonly=True):
    return numba.types.Array(scalar, dimensions, "C", readonly=readonly)


_FLOATS, _OUT = _array(numba.float32, 2), _array(numba.float32, 3, False)
_RANGES, _FAILED, _PARAMS = _array(numba.int64, 2), _array(numba.boolean, 3, False), _array(numba.int64, 1)

CHAIN_FIELDS = ("terms", "k", "lanes", "late", "reverse", "flushes")


@inline
def join_lanes(acc, sums, n, lanes, late, least):
    """Add the second lane to the first one, and add that to the accumulators, or store it there."""
    into, other = sums[0], sums[1]
    if lanes == 2:
        for j in range(n):
            into[j] = flushed_below(into[j] + other[j], least)  # a tiny sum of floats is exact
    for j in range(n):
        acc[j] = flushed_below(flushed_below(acc[j], least) + into[j], least) if late else into[j]


@inline
def stored(row, acc, marks, n, most):
    """Store the results, unless one of them was marked or is not finite. Return whether they were stored."""
    marked = np.uint32(0)
    for j in range(n):
        marked |= marks[j]
    valid = most != _FIELD32 and marked == 0
    if valid:
        for j in range(n):
            row[j] = acc[j]
    return valid


@kernel_of((_FLOATS, _FLOATS, _OUT, _RANGES, _PARAMS, _FAILED))
def chains(a, b, out, ranges, params, bailed_out):
    """Fused multiply-adds onto one or two lanes. Lanes that are joined before c start from zero. Needs `cpu.has_fma()`.

    With `flushes`, subnormal numbers of a and b are zeros on entry, and tiny results are flushed. A result of exactly
    2**-126 may have been rounded up to it, which counts as tiny: the kernel bails out.
    """
    wide_vectors()
    terms, k_of_instruction, lanes, late, reverse = params[0], params[1], params[2], params[3], params[4]
    least = _LEAST if params[5] else np.uint32(0)
    edge = _LEAST if params[5] else _NEVER
    rows, columns = out.shape[1], out.shape[2]
    acc, sums = zero_array(WIDTH, np.float32), zero_array((2, WIDTH), np.float32)
    marks = zero_array(WIDTH, np.uint32)
    bottom = b.shape[0] - 1
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
                    acc[j], marks[j] = row[j], np.uint32(0)
                for k0 in range(start, filled, terms):
                    for lane in range(lanes):
                        into = sums[lane]
                        for j in range(n):
                            into[j] = np.float32(0) if late else flushed_below(acc[j], least)
                    for number in range(terms):
                        k = k0 + (terms - 1 - number if reverse else number)
                        into = sums[number % lanes]
                        x, one = (a[i, k], np.float32(1)) if k < stop else (np.float32(0), np.float32(0))
                        ys = b[min(k, bottom), j0 : j0 + n]
                        for j in range(n):
                            y = multiply_add(x, ys[j] if k < stop else one, into[j])
                            marks[j] |= np.uint32(np.uint32(bits_from_float(y) & _MAGNITUDE32) == edge)
                            into[j] = flushed_below(y, least)
                    join_lanes(acc, sums, n, lanes, late, least)
                    most = max(most, largest_field(acc[:n]))
                bailed_out[part, i, tile] = not stored(row, acc, marks, n, most)


@kernel_of((_FLOATS, _FLOATS, _OUT, _RANGES, _FAILED))
def half_chain(a, b, out, ranges, bailed_out):
    """acc = fma(a, b, acc) in float16, whose numbers a, b and out hold. Needs `cpu.has_half_conversion()`."""
    wide_vectors()
    rows, columns = out.shape[1], out.shape[2]
    acc = zero_array(WIDTH, np.float32)
    for part in range(out.shape[0]):
        start, stop = ranges[part, 0], ranges[part, 1]
        for tile in range(bailed_out.shape[2]):
            j0 = tile * WIDTH
            n = min(WIDTH, columns - j0)
            for i in range(rows):
                row = out[part, i, j0 : j0 + n]
                most = largest_field(row)
                for j in range(n):
                    acc[j] = row[j]
                for k in range(start, stop):
                    x, ys = np.float64(a[i, k]), b[k, j0 : j0 + n]
                    for j in range(n):
                        s, lost = two_sum(x * np.float64(ys[j]), np.float64(acc[j]))
                        y = to_odd(s, lost)
                        # a float16 number has at most 24 bits above 2**-24, and odd sums of them more: twice to odd
                        u = bits_from_double(y)
                        kept = np.uint64(u & ~_DROPPED) | (_LAST_KEPT if u & _DROPPED else np.uint64(0))
                        acc[j] = float_from_half(half_from_float(np.float32(double_from_bits(kept))))
                    most = max(most, largest_field(acc[:n]))
                bailed_out[part, i, tile] = most == _FIELD32
                if most != _FIELD32:
                    for j in range(n):
                        row[j] = acc[j]


PAIR_FIELDS = ("terms", "k", "lanes", "late", "from_zero", "fused", "odd", "flushes")


@inline
def rounded_at(x, lost, odd, least, edge):
    """(x plus its rounding error as float32, flushed; whether the detection of tininess needs the exact value)."""
    y = narrowed(x, lost, odd)
    return flushed_below(y, least), np.uint32(np.uint32(bits_from_float(y) & _MAGNITUDE32) == edge)


@kernel_of((_FLOATS, _FLOATS, _OUT, _RANGES, _PARAMS, _FAILED))
def pairs(a, b, out, ranges, params, bailed_out):
    """Sums of two products, rounded once or in three operations, added to one or two lanes.

    `odd` rounds to odd, and then the exact value decides whether `flushes` applies. Otherwise the rounded one decides,
    and the kernel bails out as `chains` does.
    """
    wide_vectors()
    terms, k_of_instruction, lanes, late, from_zero = params[0], params[1], params[2], params[3], params[4]
    fused, odd = params[5], params[6]
    least = _LEAST if params[7] else np.uint32(0)
    edge = _LEAST if params[7] and not odd else _NEVER
    rows, columns = out.shape[1], out.shape[2]
    acc, sums = zero_array(WIDTH, np.float32), zero_array((2, WIDTH), np.float32)
    marks = zero_array(WIDTH, np.uint32)
    bottom = b.shape[0] - 1
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
                    acc[j], marks[j] = row[j], np.uint32(0)
                for k0 in range(start, filled, terms):
                    for lane in range(lanes):
                        into = sums[lane]
                        for j in range(n):
                            into[j] = np.float32(0) if late else flushed_below(acc[j], least)
                    for number in range(terms // 2):
                        k = k0 + 2 * number
                        into, joins = sums[number % lanes], not late or from_zero != 0 or number >= lanes
                        x0, one0 = (np.float64(a[i, k]), 1.0) if k < stop else (0.0, 0.0)
                        x1, one1 = (np.float64(a[i, k + 1]), 1.0) if k + 1 < stop else (0.0, 0.0)
                        ys, zs = b[min(k, bottom), j0 : j0 + n], b[min(k + 1, bottom), j0 : j0 + n]
                        for j in range(n):
                            p = x0 * np.float64(ys[j]) if one0 != 0 else 0.0
                            q = x1 * np.float64(zs[j]) if one1 != 0 else 0.0
                            if not fused:
                                p32, mark = rounded_at(p, 0.0, odd, least, edge)
                                q32, mark_q = rounded_at(q, 0.0, odd, least, edge)
                                p, q = np.float64(p32), np.float64(q32)
                                marks[j] |= mark | mark_q
                            s, lost = two_sum(p, q)
                            y, mark = rounded_at(s, lost, odd, least, edge)
                            marks[j] |= mark
                            if joins:
                                s, lost = two_sum(np.float64(into[j]), np.float64(y))
                                y, mark = rounded_at(s, lost, odd, least, edge)
                                marks[j] |= mark
                            into[j] = y
                        most = max(most, largest_field(into[:n]))
                    join_lanes(acc, sums, n, lanes, late, least)
                    most = max(most, largest_field(acc[:n]))
                bailed_out[part, i, tile] = not stored(row, acc, marks, n, most)
