"""Exact sums of products in float64, each rounded once.

The terms of a sum are split into levels (ExtractVector of S. M. Rump, T. Ogita and S. Oishi, "Accurate floating-point
summation part I", SIAM J. Sci. Comput. 31(1), 2008). Level l takes the nearest multiple of its unit 2**u(l) from each
term, and leaves the remainder, at most half a unit, to the next level. Units are 2**W apart. W is so small that the sum
of a level stays below 2**51 units, so that every addition is exact. With C = 1.5 * 2**52 units in an accumulator, a
level takes its part of the term p by

    t = acc + p;  p = p - (t - acc);  acc = t

The last level takes acc + p, because every remainder is a multiple of its unit. The products of a number of a and a row
of b span only a few levels. The kernel reads these from the exponents and skips the others.

In the end the levels carry into each other, in the same way, and are added to odd, from the last to the first. That
gives at least 51 bits, from which every rounding to at most 49 bits is correct, as in float64.py. Or the kernel returns
the levels, for the integer kernel of gemm/integer.py.

The kernel needs `cpu.environment_is_default()`. Arrays are as in float64.py, but the values of `out` on entry are not
read.
"""

import math

import numba
import numpy as np

from ..runtime.intrinsics import bits_from_double, double_from_bits
from ..runtime.jit import CHECKED, inline, kernel_of
from ..runtime.simd import (
    SIGN,
    F64x8,
    choose,
    copy_columns,
    largest_code,
    least_code_less_1,
    multiply_add,
    multiply_add_odd,
    row_pass,
    row_pass_of,
)
from .float64 import (
    COMMON,
    INFINITY,
    STATE,
    SUM_RULE,
    TERM,
    WIDTH,
    WORK,
    array,
    draws_of,
    fields_of,
    fill_row,
    greater,
    key_of,
    length_of,
    lesser,
    padded,
    product_pass,
)

_MOST_LEVELS = 3
"""Levels of a pass that leaves a remainder."""


# -- passes ------------------------------------------------------------------------------------------------------------


def _levels(count, leaves_remainder, columns, rows, values, words):
    """Add x * work[row] to `count` levels. The last level takes the whole remainder, or leaves it in
    work[remainder]."""
    (first, row, remainder), (x,) = rows, values
    accumulators = [columns.below(first, i) for i in range(count)]
    y = columns.load(row)
    p = x * y
    for i, at in enumerate(accumulators):
        acc = columns.load(at)
        total = multiply_add(x, y, acc) if i == 0 else acc + p
        if leaves_remainder or at is not accumulators[-1]:
            p = p - (total - acc)
        columns.store(at, total)
    if leaves_remainder:
        columns.store(remainder, p)


def _carry(kind, checked, columns, rows, values, words):
    """Carry the excess of a level to the level above, and subtract C."""
    (upper, lower), (c,) = rows, values
    acc, p = columns.load(upper), columns.load(lower) - c
    total = acc + p
    columns.store(upper, total)
    columns.store(lower, p - (total - acc))


def _join(kind, checked, columns, rows, values, words):
    """work[to] = work[to] + (work[row] - c), to odd."""
    (to, row), (c,) = rows, values
    one = F64x8.spread(columns.builder, 1.0)
    columns.store(to, multiply_add_odd(one, columns.load(row) - c, columns.load(to)))


def _classify(kind, checked, columns, rows, values, words):
    """work[to] += x * work[row], with 0 or the sign in place of each finite number of work[row]."""
    (to, row), (x,) = rows, values
    y = columns.load(row)
    sign = ((y.bits & SIGN) | 1023 << 52).as_f64
    y = choose((abs(y) > 0.0) & (abs(y) < np.inf), sign, y)
    columns.store(to, x * y + columns.load(to))


def _split(kind, checked, columns, rows, values, words):
    """The products x * work[row] as two numbers each: the rounded product and its rounding error."""
    (to, row), (x,) = rows, values
    y = columns.load(row)
    p = x * y
    columns.store(to, p)
    columns.store(columns.below(to, 1), multiply_add(x, y, -p))


def _clean(kind, checked, columns, rows, values, words):
    """Replace infinities and NaNs by zeros."""
    y = columns.load(rows[0])
    columns.store(rows[0], choose(abs(y) < np.inf, y, 0.0))


_levels_by = row_pass_of(_levels, {1: (False,), 2: (False,), 3: (False, True), 4: (False,)})
_carry_by, _join_by = row_pass(_carry), row_pass(_join)
_classify_by, _split_by, _clean_by = row_pass(_classify), row_pass(_split), row_pass(_clean)


@inline
def add_to_levels(work, width, first, count, row, x):
    """Add x * work[row] to `count` levels from row `first` on."""
    remainder = np.int64(TERM)
    while count > _MOST_LEVELS + 1:
        _levels_by(_MOST_LEVELS, True, work, width, (first, row, remainder), (x,), ())
        first, count, row, x = first + _MOST_LEVELS, count - _MOST_LEVELS, remainder, 1.0
    _levels_by(count, False, work, width, (first, row, remainder), (x,), ())


# -- rounding the sum --------------------------------------------------------------------------------------------------

_MAGNITUDE, _INFINITY = np.uint64((1 << 63) - 1), np.uint64(0x7FF << 52)
_T, _ONE = np.uint64(52), np.uint64(1)


@inline
def exponent(magnitude):
    """The exponent of the power of two in a code of a magnitude."""
    return np.int64(magnitude >> _T) - 1023


@inline
def offset_of(unit, width, level, levels):
    """C of a level; 0 if there is only one level."""
    return 1.5 * double_from_bits(np.uint64(52 + unit - level * width + 1023) << _T) if levels > 1 else 0.0


@inline
def class_of(x):
    """The factor that `_classify` takes for x: 0, a special value, or the sign."""
    return x if x == 0.0 or not abs(x) < np.inf else math.copysign(1.0, x)


@inline
def zero_of(a, b, i, j, start, stop, step, zero_negative):
    """The zero of an exact sum whose terms cancel.

    It has the common sign of the terms if they are all zeros of one sign; otherwise it is positive, or negative if
    `zero_negative` is set.
    """
    for k in range(start, stop, step):
        x, y = a[i, k], b[k, j]
        sign = bits_from_double(x) ^ bits_from_double(y)
        if (x != 0 and y != 0) or (sign > _MAGNITUDE) == zero_negative:
            return -0.0 if zero_negative else 0.0
    return 0.0 if zero_negative or start >= stop else -0.0


_ROWS, _DEPTH = 16, 16
_TOTAL = STATE
_HIGH, _LOW = _TOTAL + 1, _TOTAL + 2
_PANEL = _LOW + 1
_SPECIALS = _PANEL + 2 * _DEPTH
_ACCUMULATORS = _SPECIALS + _ROWS
"""Rows of work: a remainder or a result; the sum; two parts of products; the panel of b, with zeros for infinities and
NaNs, and unchanged; the class of the special values of each row of the result; the levels."""


def rows_of_work(levels):
    """The rows of work for a number of levels."""
    return _ACCUMULATORS + _ROWS * levels


_FIRST, _LAST, _LARGEST, _LEAST, _RAW_ROW = range(5)
"""Rows of `bounds`: the levels that a row of the result uses, first and last; the largest and the least exponent of a
row of b; the row of work that holds it unchanged."""
BOUNDS_SHAPE = 5, max(_ROWS, _DEPTH)


@kernel_of(
    numba.void(
        *COMMON, WORK, *(numba.int64,) * 8, array(numba.int64, 1), numba.float64, array(numba.float64, 1),
        array(numba.int64, 2, False), WORK,
    )
)  # fmt: skip
def exact(
    a, b, out, ranges, index, seeds, digits, precisions, split, lowest, levels, unit, width, high, zero_negative,
    rounding_rules, negate, params, bounds, work,
):  # fmt: skip
    """Exact sums, rounded once by a rule of gemm/float64.py. If `digits` (ranges * M * levels, N) is not empty, it
    takes the levels of each sum instead, as float64 numbers. Step 0, r = 1.

    Terms have at most `precisions` bits, are multiples of 2**lowest and are below 2**high. `split` is 1 if float64 does
    not hold them: each is split into two numbers, which needs `cpu.has_fma()`. `unit` is the exponent of the first
    level's unit, and `width` is W. `zero_negative`: sums of cancelling terms are -0.
    """
    g = fields_of(params)
    rows, columns = a.shape[0], b.shape[1]
    inverse = ((1 << 24) + width - 1) // width  # n // width = n * inverse >> 24 for 0 <= n < 2**24 / width
    for block in range((columns - 1) // WIDTH, -1, -1):
        j0 = block * WIDTH
        block_width = lesser(WIDTH, columns - j0)
        whole = padded(block_width)
        for part in range(ranges.shape[0]):
            start, stop, step = ranges[part, 0], ranges[part, 1], ranges[part, 2]
            terms = length_of(start, stop, step)
            for i0 in range(0, rows, _ROWS):
                height = lesser(_ROWS, rows - i0)
                for i in range(height):
                    bounds[_FIRST, i], bounds[_LAST, i] = levels, levels - 1
                    fill_row(0, True, work, whole, (_SPECIALS + i,), (0.0,), ())
                for k0 in range(0, terms, _DEPTH):
                    depth = lesser(_DEPTH, terms - k0)
                    for d in range(depth):
                        row = _PANEL + d
                        copy_columns(work, row, 0, b, start + (k0 + d) * step, j0, block_width)
                        bounds[_RAW_ROW, d] = row
                        if largest_code(work, whole, row) >= _INFINITY:
                            bounds[_RAW_ROW, d] = row + _DEPTH
                            copy_columns(work, row + _DEPTH, 0, work, row, 0, whole)
                            _clean_by(0, True, work, whole, (row,), (), ())
                        bounds[_LARGEST, d] = exponent(largest_code(work, whole, row))
                        bounds[_LEAST, d] = exponent(least_code_less_1(work, whole, row) + _ONE)
                    for i in range(height):
                        base = _ACCUMULATORS + i * levels
                        for d in range(depth):
                            x, row = a[i0 + i, start + (k0 + d) * step], _PANEL + d
                            if bounds[_RAW_ROW, d] != row or not abs(x) < np.inf:
                                use = (_SPECIALS + i, bounds[_RAW_ROW, d])
                                _classify_by(0, True, work, whole, use, (class_of(x),), ())
                            if x == 0.0 or not abs(x) < np.inf or bounds[_LARGEST, d] < -1022:
                                continue
                            # the products are below 2**above and multiples of 2**under
                            e = exponent(bits_from_double(x) & _MAGNITUDE) + 2
                            above, under = e + bounds[_LARGEST, d], e + bounds[_LEAST, d] - precisions
                            if split:
                                _split_by(0, True, work, whole, (np.int64(_HIGH), row), (x,), ())
                                x = 1.0
                            for half in range(1 + split):
                                first_level = last_level = 0
                                if levels > 1:
                                    first_level = ((high - above) * inverse) >> 24
                                    if first_level >= levels:
                                        continue  # rounding errors below half of 2**lowest are all 0
                                    least = greater(e + bounds[_LEAST, d] - 54 if split > half else under, lowest)
                                    last_level = (greater(unit - least + width - 1, 0) * inverse) >> 24
                                    last_level = greater(first_level, lesser(last_level, levels - 1))
                                if CHECKED and not 0 <= first_level <= last_level < levels:
                                    raise IndexError("a level is out of bounds")
                                if bounds[_FIRST, i] == levels:
                                    bounds[_FIRST, i], bounds[_LAST, i] = first_level, first_level - 1
                                while bounds[_FIRST, i] > first_level:
                                    bounds[_FIRST, i] -= 1
                                    c = offset_of(unit, width, bounds[_FIRST, i], levels)
                                    fill_row(0, True, work, whole, (base + bounds[_FIRST, i],), (c,), ())
                                while bounds[_LAST, i] < last_level:
                                    bounds[_LAST, i] += 1
                                    c = offset_of(unit, width, bounds[_LAST, i], levels)
                                    fill_row(0, True, work, whole, (base + bounds[_LAST, i],), (c,), ())
                                use = _HIGH + half if split else row
                                add_to_levels(work, whole, base + first_level, last_level - first_level + 1, use, x)
                                above -= 53
                for i in range(height):
                    base, at = _ACCUMULATORS + i * levels, part * rows + i0 + i
                    from_level, last = bounds[_FIRST, i], bounds[_LAST, i]
                    c = offset_of(unit, width, from_level, levels)
                    for level in range(last, from_level, -1):
                        off = (offset_of(unit, width, level, levels),)
                        _carry_by(0, True, work, whole, (base + level - 1, base + level), off, ())
                    fill_row(0, True, work, whole, (np.int64(_TOTAL),), (0.0,), ())
                    for level in range(last, from_level - 1, -1):
                        off = (c if level == from_level else 0.0,)
                        _join_by(0, True, work, whole, (np.int64(_TOTAL), base + level), off, ())
                    for level in range(levels if digits.size else 0):
                        fill_row(0, True, work, whole, (np.int64(TERM),), (0.0,), ())
                        if from_level <= level <= last:
                            off = (c if level == from_level else 0.0,)
                            _join_by(0, True, work, whole, (np.int64(TERM), base + level), off, ())
                        copy_columns(digits, at * levels + level, j0, work, TERM, 0, block_width)
                    if digits.size == 0:
                        first = np.uint32(index[0] + (i0 + i) * index[1] + j0 * index[2])
                        draws = draws_of(key_of(rounding_rules[SUM_RULE], seeds[part], 0, 1), g, first)
                        use = (np.int64(TERM), np.int64(_TOTAL))
                        product_pass(rounding_rules[SUM_RULE], True, work, whole, use, 1.0, negate, g, draws)
                        copy_columns(out, at, j0, work, TERM, 0, block_width)
                    for j in range(block_width):
                        v = work[_SPECIALS + i, j]
                        if abs(v) < np.inf:
                            if work[_TOTAL, j] != 0.0:
                                continue
                            v = zero_of(a, b, i0 + i, j0 + j, start, stop, step, zero_negative)
                        elif digits.size == 0:
                            v = math.copysign(g[INFINITY], v) if v == v else v
                        if digits.size == 0:
                            out[at, j0 + j] = v
                        else:
                            for level in range(levels):
                                digits[at * levels + level, j0 + j] = v
