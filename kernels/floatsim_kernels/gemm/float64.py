"""Sums of products in float64, for formats that float64 holds with margin, in all roundings.

A row of the result is computed in passes over its columns (runtime/simd.py). A pass rounds products, x * b[k, j], or
sums, x * b[k, j] + c[j]. Products are exact in float64. A sum is rounded to float64 in a way that makes the second
rounding, to the format, innocuous:

- to nearest, where double rounding is innocuous (floatsim/emulator/proofs.py lists the cases);
- toward negative and toward zero, if the second rounding has the same direction;
- to odd in 53 bits: every rounding of the result to at most 51 bits is the rounding of the exact sum (S. Boldo and G.
  Melquiond, "Emulation of a FMA and correctly rounded sums", IEEE Trans. Computers 57(4), 2008).

The second rounding is an addition of C = 1.5 * 2**52 quanta, where a quantum is 2**(max(e, emin) - p + 1): (x + C) - C
is x to nearest, ties to even, or in the direction of the addition. For magnitudes C is 2**52 quanta.

The kernels need `cpu.environment_is_default()`. Arrays are float64: a (M, K), b (K, N), out (ranges * M, N), each sum
over the k of a range (start, stop, step). Sequential sums start at the values in `out` on entry, or, if they are
`fresh`, at +0. `rounding_rules` are the rules of sums and of products. Toward positive is computed as toward negative
with all signs changed: `negate` is -1 to change the signs of all terms and sums, `negate_products` is -1 to change the
signs of products before they are rounded; otherwise they are 1. `params` and `product_params` have the layout
ROUNDING_FIELDS. `work` has WIDTH columns, starts on a cache line, and holds zeros on entry, except for the row NUMBERS:
uint32, n * index[2] for the n-th column of a block, where of sixteen columns the first eight are in the even places.
"""

import numba
import numpy as np

from ..rounding.random import draw_key, draw_words
from ..runtime.intrinsics import add32, bits_from_double, double_from_bits
from ..runtime.jit import inline, kernel_of
from ..runtime.simd import (
    EXPONENT,
    LANES,
    SIGN,
    F64x8,
    U32x16,
    U64x8,
    choose,
    copy_columns,
    far_add_down,
    far_add_odd,
    largest_code,
    maximum,
    minimum,
    multiply_add,
    multiply_add_down,
    multiply_add_odd,
    multiply_add_toward_zero,
    row_pass,
    row_pass_of,
    row_pass_with_least,
)

(
    EXACT,
    TIES_TO_EVEN,
    TIES_TO_EVEN_FROM_ODD,
    TIES_TO_AWAY,
    TOWARD_ZERO,
    TOWARD_NEGATIVE,
    TO_ODD,
    STOCHASTIC,
    STOCHASTIC_FP32,
) = range(9)
"""The rules. EXACT rounds nothing. TIES_TO_EVEN takes sums that are rounded to nearest in float64, and
TIES_TO_EVEN_FROM_ODD sums that are rounded to odd. STOCHASTIC_FP32 rounds sums of two numbers of FP32 to FP32. The
rules from STOCHASTIC on draw random numbers."""
SUM_RULE, PRODUCT_RULE = range(2)
BOTH_SIGNS = TIES_TO_EVEN, TIES_TO_EVEN_FROM_ODD, TOWARD_NEGATIVE, TO_ODD
"""The rules that round x itself; the other rules round its magnitude."""

ROUNDING_FIELDS = ("lowest", "scale", "half", "max", "overflow", "negative_overflow", "random_mask", "infinity")
"""2**emin, times 1.5 for BOTH_SIGNS; C / 2**e, for STOCHASTIC such that a quantum is bit 32 of the sum; half a quantum
/ 2**e; max; the results of overflow (+, -), as magnitudes; the mask of the random bits used, of 32; the format's
stand-in for infinity, which exact sums read."""
_MAX, _RANDOM_MASK, INFINITY = (ROUNDING_FIELDS.index(name) for name in ("max", "random_mask", "infinity"))

_LARGEST_POWER = 2.0**960
"""Replaces the power of two of an infinity. Times C / 2**e, at most 2**52, it is finite."""

# -- one rounding, in vectors ------------------------------------------------------------------------------------------


class _Rounding:
    """The fields of the parameters as vectors."""

    def __init__(self, values):
        self.lowest, self.scale, self.half, self.max, self.overflow, self.negative_overflow = values[:6]


def _with_sign_and_overflow(rounding_rule, checked, r, x, fields):
    """r with the sign of x, or the result of overflow; infinities and NaNs stay.

    If it is not `checked`, there is no overflow.
    """
    sign = x.bits & SIGN
    if not checked:
        return (r.bits | sign).as_f64
    over = fields.overflow
    if rounding_rule == TOWARD_NEGATIVE:
        over = choose(sign != 0, fields.negative_overflow, over)
    r = abs(r) if rounding_rule in BOTH_SIGNS else r
    return (choose((r > fields.max) & (r < np.inf), over, r).bits | sign).as_f64


def _rounded(rounding_rule, checked, x, fields, random):
    """x rounded by a rule; STOCHASTIC with random words of 32 bits."""
    if rounding_rule == EXACT:
        return x
    exponent = x.bits & EXPONENT
    if not checked and rounding_rule in (TIES_TO_EVEN, TIES_TO_EVEN_FROM_ODD):  # no infinity or NaN: 2**e, and 1.5 * C
        power, scale = maximum(exponent.as_f64, (fields.lowest.bits & EXPONENT).as_f64), fields.scale * 1.5
        r = multiply_add(power, -scale, multiply_add(power, scale, x))
        return _with_sign_and_overflow(rounding_rule, checked, r, x, fields)
    if rounding_rule in BOTH_SIGNS:
        power = maximum((exponent | 1 << 51).as_f64, fields.lowest)  # the lowest for infinity and NaN
        add = {TOWARD_NEGATIVE: far_add_down, TO_ODD: far_add_odd}.get(rounding_rule, multiply_add)
        s = add(power, fields.scale, x)
    else:
        power, v = maximum(exponent.as_f64, fields.lowest), abs(x)
        power = minimum(power, _LARGEST_POWER) if checked else power
        if rounding_rule == TIES_TO_AWAY:
            v = multiply_add_toward_zero(power, fields.half, v)
        s = far_add_down(power, fields.scale, v)
        if rounding_rule == STOCHASTIC:
            if checked:  # a NaN whose bits are all ones must not carry
                random = choose(v < np.inf, random, 0)
            s = ((s.bits + random) & ~0xFFFFFFFF).as_f64
    return _with_sign_and_overflow(rounding_rule, checked, multiply_add(power, -fields.scale, s), x, fields)


_SUMS = {
    TIES_TO_EVEN: multiply_add,
    TIES_TO_EVEN_FROM_ODD: multiply_add_odd,
    TIES_TO_AWAY: multiply_add_toward_zero,
    TOWARD_ZERO: multiply_add_toward_zero,
    TOWARD_NEGATIVE: multiply_add_down,
    TO_ODD: multiply_add_odd,
    STOCHASTIC: multiply_add_toward_zero,
}
"""For each rule, a * b + c in float64 such that the rule gives the rounding of the exact sum."""


def _sum_to_fp32(checked, x, y, z, fields, random):
    """x * y + z rounded stochastically to FP32; x * y and z are numbers of FP32.

    The sum in float64, toward zero, has 29 bits behind the last bit of FP32. A draw has 32 bits, so that three of the
    lost bits count too. Below 2**-126 they are all zeros. The larger of the two terms less the sum is exact.
    """
    p, s = x * y, multiply_add_toward_zero(x, y, z)
    first = abs(p) >= abs(z)
    lost = abs(choose(first, z, p) - (s - choose(first, p, z)))
    # the number of eighths of the last bit in 1
    eighths = (U64x8.spread(s.builder, 55 + 2046 << 52) - (s.bits & EXPONENT)).as_f64
    one = F64x8.spread(s.builder, 1.0)
    three = far_add_down(one, F64x8.spread(s.builder, 2.0**52), lost * eighths).bits & 7
    raised = (random + three) >> 3
    if checked:  # a NaN whose bits are all ones must not carry
        raised = choose(abs(s) < np.inf, raised, 0)
    r = (s.bits + raised) & ~((1 << 29) - 1)
    return _with_sign_and_overflow(STOCHASTIC_FP32, checked, abs(r.as_f64), s, fields)


def _lanes(rounding_rule):
    """The columns that one step of a pass works on."""
    return U32x16.lanes if rounding_rule >= STOCHASTIC else LANES


def _steps(rounding_rule, columns, words, numbers):
    """For each vector of a step: the columns to skip, and the random words."""
    if _lanes(rounding_rule) == LANES:
        return [(0, None)]
    key_low, key_high, mask = (U32x16.spread(columns.builder, x) for x in words)
    drawn = draw_words(key_low, key_high, columns.load_u32(numbers)) & mask
    return zip((0, LANES), drawn.even_and_odd)


def _sum(rounding_rule, checked, columns, rows, values, words):
    (to, row, other, numbers), (x, *fields) = rows, values
    for skip, random in _steps(rounding_rule, columns, words, numbers):
        y, z = columns.load(row, skip), columns.load(other, skip)
        if rounding_rule == STOCHASTIC_FP32:
            s = _sum_to_fp32(checked, x, y, z, _Rounding(fields), random)
        else:
            s = _rounded(rounding_rule, checked, _SUMS[rounding_rule](x, y, z), _Rounding(fields), random)
        columns.store(to, s, skip)


def _two_normal_sums(columns, rows, values):
    """Two sums of a row, in ties to even, by Veltkamp's splitting; return the least magnitude before a rounding."""
    (to, start, first, second), (x, y, factor) = rows, values
    s, least = columns.load(start), None
    for number, row in (x, first), (y, second):
        s = multiply_add(number, columns.load(row), s)
        least = abs(s) if least is None else minimum(least, abs(s))
        s = multiply_add(s, factor, multiply_add(s, -factor, s))
    columns.store(to, s)
    return least


def _product(rounding_rule, checked, columns, rows, values, words):
    (to, row, numbers), (x, negate_products, *fields) = rows, values
    for skip, random in _steps(rounding_rule, columns, words, numbers):
        p = _rounded(rounding_rule, checked, columns.load(row, skip) * x, _Rounding(fields), random)
        columns.store(to, p * negate_products if rounding_rule == TOWARD_NEGATIVE else p, skip)


def _pair(rounding_rule, checked, columns, rows, values, words):
    (to, row, other), (x, y, *fields) = rows, values
    s = _SUMS[rounding_rule](y, columns.load(other), x * columns.load(row))
    columns.store(to, _rounded(rounding_rule, checked, s, _Rounding(fields), None))


_BOTH, _CHECKED = (False, True), (True,)
_DETERMINISTIC = {
    TIES_TO_EVEN: _BOTH,
    TIES_TO_EVEN_FROM_ODD: _BOTH,
    TIES_TO_AWAY: _CHECKED,
    TOWARD_ZERO: _CHECKED,
    TOWARD_NEGATIVE: _CHECKED,
    TO_ODD: _CHECKED,
}
"""The rules and the loops compiled for them: with a check for overflow only, or also without. The loops without a check
are for rules that are common, because each loop costs compile time."""
_pair_by = row_pass_of(_pair, _DETERMINISTIC)
_sum_by = row_pass_of(_sum, _DETERMINISTIC | {STOCHASTIC: _BOTH, STOCHASTIC_FP32: _CHECKED}, _lanes)
_product_by = row_pass_of(
    _product,
    {EXACT: _CHECKED, STOCHASTIC: _BOTH}
    | {rule: loops for rule, loops in _DETERMINISTIC.items() if rule != TIES_TO_EVEN_FROM_ODD},
    _lanes,
)  # fmt: skip


def _order(rounding_rule, checked, columns, rows, values, words):
    """The larger and the smaller in magnitude; a number is larger than NaN."""
    larger, smaller, x, y = rows
    v, w = columns.load(x), columns.load(y)
    first = abs(v) >= abs(w)
    columns.store(larger, choose(first, v, w))
    columns.store(smaller, choose(first, w, v))


def _end_step(rounding_rule, checked, columns, rows, values, words):
    """s = t; comp is the new one where t is finite, else the old one, or zero."""
    s, t, comp, new, otherwise = rows
    v = columns.load(t)
    columns.store(s, v)
    columns.store(comp, choose(abs(v) < np.inf, columns.load(new), columns.load(otherwise)))


def _scale(rounding_rule, checked, columns, rows, values, words):
    """A row times a number."""
    columns.store(rows[0], columns.load(rows[0]) * values[0])


def _zero(rounding_rule, checked, columns, rows, values, words):
    """Zeros with the signs of another row."""
    columns.store(rows[0], (columns.load(rows[1]).bits & SIGN).as_f64)


def _fill(rounding_rule, checked, columns, rows, values, words):
    """A number in every column."""
    columns.store(rows[0], values[0])


_two_normal_sums_of = row_pass_with_least("two_normal_sums", _two_normal_sums)
_order_rows, _end, _zero_like = row_pass(_order), row_pass(_end_step), row_pass(_zero)
scale_row, fill_row = row_pass(_scale), row_pass(_fill)

TERM, NUMBERS, STATE = range(3)
"""Rows of work: a term; the columns' numbers; the first row of a kernel's own state."""

# -- passes over a row -------------------------------------------------------------------------------------------------


@inline
def sum_pass(rounding_rule, checked, work, width, rows, x, g, draws):
    """work[to] = round(x * work[row] + work[other]); `rows` is (to, row, other)."""
    rows, values = (rows[0], rows[1], rows[2], np.int64(NUMBERS)), (x, g[0], g[1], g[2], g[3], g[4], g[5])
    _sum_by(rounding_rule, checked, work, width, rows, values, draws)


@inline
def two_normal_sums_pass(work, width, rows, x, y, g):
    """work[to] = round(y * work[second] + round(x * work[start] + work[first])), in ties to even, without overflow;
    `rows` is (to, start, first, second).

    Return whether the results hold: no sum is below 2**emin. With K = 2**(53 - p), the scale, s - K * s is rounded to
    the quantum of s, and K * s is added again, exactly: the splitting of rounding/float32.py, in float64. Where s is
    just above a power of two, s - K * s may be rounded to half that quantum. Then s is closer to the power than
    2**(2 * p - 54) quanta, at most a quarter of one for p <= 26, and both roundings give the power. K * s is finite,
    because exponents are at most 900.
    """
    least = _two_normal_sums_of(work, width, rows, (x, y, g[1]))
    return least >= bits_from_double(g[0]) & np.uint64(EXPONENT)


@inline
def product_pass(rounding_rule, checked, work, width, rows, x, negate_products, g, draws):
    """work[to] = round(x * work[row]); `rows` is (to, row).

    The rule TOWARD_NEGATIVE rounds `negate_products` times the product, and changes the sign back.
    """
    rows, values = (
        (rows[0], rows[1], np.int64(NUMBERS)),
        (x * negate_products, negate_products, g[0], g[1], g[2], g[3], g[4], g[5]),
    )
    rounding_rule = np.int64(TIES_TO_EVEN) if rounding_rule == TIES_TO_EVEN_FROM_ODD else rounding_rule
    rounding_rule = np.int64(STOCHASTIC) if rounding_rule == STOCHASTIC_FP32 else rounding_rule
    _product_by(rounding_rule, checked, work, width, rows, values, draws)


@inline
def pair_pass(rounding_rule, checked, work, width, rows, x, y, g):
    """work[to] = round(x * work[row] + y * work[other]); `rows` is (to, row, other); no rule that draws."""
    _pair_by(rounding_rule, checked, work, width, rows, (x, y, g[0], g[1], g[2], g[3], g[4], g[5]), ())


# -- blocks ------------------------------------------------------------------------------------------------------------

_LOW, _R32, _NO_KEY, _0 = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(0), np.uint32(0)

WIDTH = 512
"""Columns of a block."""
_ROWS, DEPTH = 32, 16
"""Rows of a block of the result, and rows of b in a panel: 48 rows of 512 float64 are 192 KiB, for the L2 cache."""


@inline
def negate_row(work, width, row, negate):
    """Change the signs of a row if `negate` is -1."""
    if negate != 1.0:
        scale_row(0, True, work, width, (row,), (negate,), ())


@inline
def load_accumulators(work, whole, row, negate, fresh, out, i, j0, width):
    """Set work[row] to the start values in out[i, j0 : j0 + width]."""
    if fresh:
        fill_row(0, True, work, whole, (row,), (0.0,), ())
    else:
        copy_columns(work, row, 0, out, i, j0, width)
    negate_row(work, whole, row, negate)


@inline
def fields_of(g):
    return g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7]


LEAST_FACTOR = 2.0**27
"""The least scale, 2**(53 - p), of a format whose sums `two_normal_sums_pass` rounds: p is at most 26."""


@inline
def lesser(x, y):
    return x if x < y else y


@inline
def greater(x, y):
    return x if x > y else y


@inline
def padded(width):
    """The number of columns that the passes work on, a multiple of two vectors.

    Columns beyond `width` hold zeros: only the last block has such columns, and it is computed first.
    """
    return (width + 2 * LANES - 1) & -(2 * LANES)


@inline
def length_of(start, stop, step):
    """The number of k in a range."""
    return (stop - start + step - 1) // step


@inline
def key_of(rounding_rule, seed, step, r):
    """The key of the draws at site 8 * step + r."""
    return draw_key(seed, np.uint64(2 * (8 * step + r)), _NO_KEY) if rounding_rule >= STOCHASTIC else _NO_KEY


@inline
def draws_of(key, g, first):
    """The words that a pass needs for its draws, from the index `first` on."""
    return add32(np.uint32(key & _LOW), first), np.uint32(key >> _R32), np.uint32(np.int64(g[_RANDOM_MASK]))


def array(scalar, dimensions, readonly=True):
    return numba.types.Array(scalar, dimensions, "C", readonly=readonly)


MATRIX, WORK = array(numba.float64, 2), array(numba.float64, 2, False)
COMMON = (MATRIX, MATRIX, WORK, array(numba.int64, 2), array(numba.int64, 1), array(numba.uint64, 1))
_ROUNDINGS = (
    array(numba.int64, 1), numba.float64, numba.float64, array(numba.float64, 1), array(numba.float64, 1),
    numba.float64, numba.float64, array(numba.uint64, 2, False), WORK,
)  # fmt: skip
KEYS = DEPTH, 5

BOUNDS = STATE
_S = BOUNDS + 1
SEQUENTIAL_ROWS = _S + _ROWS + DEPTH


@kernel_of(numba.void(*COMMON, numba.boolean, *_ROUNDINGS))
def sequential(
    a,
    b,
    out,
    ranges,
    index,
    seeds,
    fresh,
    rounding_rules,
    negate,
    negate_products,
    params,
    product_params,
    rel_growth,
    abs_error,
    keys,
    work,
):
    """acc = round(acc + round(a * b)), k ascending; r: 0 product, 1 sum. Needs SEQUENTIAL_ROWS of work.

    A row that cannot overflow within a block of k is computed without checks for overflow. The roundings of a block
    turn a sum of magnitudes into at most (sum + abs_error) * rel_growth.
    """
    g, gp = fields_of(params), fields_of(product_params)
    limit = lesser(g[_MAX], gp[_MAX])
    splits = rounding_rules[PRODUCT_RULE] == EXACT and rounding_rules[SUM_RULE] == TIES_TO_EVEN and g[1] >= LEAST_FACTOR
    rows, columns = a.shape[0], b.shape[1]
    for block in range((columns - 1) // WIDTH, -1, -1):
        j0 = block * WIDTH
        width = lesser(WIDTH, columns - j0)
        whole = padded(width)
        for part in range(ranges.shape[0]):
            start, step = ranges[part, 0], ranges[part, 2]
            terms = length_of(start, ranges[part, 1], step)
            for i0 in range(0, rows, _ROWS):
                height = lesser(_ROWS, rows - i0)
                for k0 in range(0, greater(terms, 1), DEPTH):  # a sum of few terms stays in the first-level cache
                    depth = lesser(DEPTH, terms - k0)
                    for d in range(depth):
                        copy_columns(work, _S + _ROWS + d, 0, b, start + (k0 + d) * step, j0, width)
                        work[BOUNDS, d] = double_from_bits(largest_code(work, whole, _S + _ROWS + d))
                        keys[d, 0] = key_of(rounding_rules[PRODUCT_RULE], seeds[part], k0 + d, 0)
                        keys[d, 1] = key_of(rounding_rules[SUM_RULE], seeds[part], k0 + d, 1)
                    for i in range(height):
                        first = np.uint32(index[0] + (i0 + i) * index[1] + j0 * index[2])
                        to = _S + i
                        if k0 == 0:
                            load_accumulators(work, whole, to, negate, fresh, out, part * rows + i0 + i, j0, width)
                        bound = abs_error
                        if k0 > 0 or not fresh:
                            bound += double_from_bits(largest_code(work, whole, to))
                        for d in range(depth):
                            bound += abs(a[i0 + i, start + (k0 + d) * step]) * work[BOUNDS, d]
                        checked = not bound * rel_growth < limit
                        done, row = 0, to
                        while splits and not checked and width == whole and done + 1 < depth:
                            k, panel, other = start + (k0 + done) * step, _S + _ROWS + done, TERM if row == to else to
                            x, y = negate * a[i0 + i, k], negate * a[i0 + i, k + step]
                            if not two_normal_sums_pass(work, whole, (other, row, panel, panel + 1), x, y, g):
                                break
                            done, row = done + 2, other
                        if row != to:
                            copy_columns(work, to, 0, work, row, 0, whole)
                        for d in range(done, depth):
                            x, row = negate * a[i0 + i, start + (k0 + d) * step], _S + _ROWS + d
                            if rounding_rules[PRODUCT_RULE] != EXACT:
                                draws = draws_of(keys[d, 0], gp, first)
                                product_pass(
                                    rounding_rules[PRODUCT_RULE],
                                    checked,
                                    work,
                                    whole,
                                    (TERM, row),
                                    x,
                                    negate_products,
                                    gp,
                                    draws,
                                )
                                x, row = 1.0, np.int64(TERM)
                            draws = draws_of(keys[d, 1], g, first)
                            sum_pass(rounding_rules[SUM_RULE], checked, work, whole, (to, row, to), x, g, draws)
                        if k0 + DEPTH >= terms:
                            negate_row(work, whole, to, negate)
                            copy_columns(out, part * rows + i0 + i, j0, work, to, 0, width)


FIRST, T, ERROR, LARGER, SMALLER, NEW, ZERO, _PAIRS = range(STATE, STATE + 8)
COMPENSATED_ROWS = _PAIRS + 2 * _ROWS + DEPTH
S, COMP = -1, -2  # stand for rows of each row of the result

_PASSES = np.array(
    [
        # row, 1 if it is subtracted, other row, row of the result
        [(COMP, 1, TERM, FIRST), (FIRST, 0, S, T), (S, 1, T, ERROR), (FIRST, 1, ERROR, NEW)],
        [(TERM, 0, S, T), (T, 1, LARGER, ERROR), (SMALLER, 0, ERROR, ERROR), (ERROR, 0, COMP, NEW)],
    ]
)


@inline
def state_row(row, s):
    """The row of work that a pass of compensated sums means: s and comp belong to each row of the result."""
    return s if row == S else s + 1 if row == COMP else row


@kernel_of(numba.void(*COMMON, numba.boolean, numba.int64, *_ROUNDINGS))
def compensated(
    a, b, out, ranges, index, seeds, fresh, neumaier, rounding_rules, negate, negate_products, params, product_params,
    rel_growth, abs_error, keys, work,
):  # fmt: skip
    """Kahan's sum: y = round(x - comp); t = round(s + y); comp = round(round(t - s) - y), 0 after an infinite t; s = t.

    Neumaier's sum: t = round(s + x); comp = round(comp + round(round(s - t) + x)), with x and s exchanged if |s| < |x|;
    s = t; in the end round(s + comp). After an infinite t, comp stays. r: 0 product, 1 to 4 the passes; the last sum
    has r = 1 at one step more. Needs COMPENSATED_ROWS of work.
    """
    g, gp = fields_of(params), fields_of(product_params)
    rows, columns = a.shape[0], b.shape[1]
    panel = _PAIRS + 2 * _ROWS
    negate_row(work, WIDTH, np.int64(ZERO), negate)
    for block in range((columns - 1) // WIDTH, -1, -1):
        j0 = block * WIDTH
        width = lesser(WIDTH, columns - j0)
        whole = padded(width)
        for part in range(ranges.shape[0]):
            start, step = ranges[part, 0], ranges[part, 2]
            terms = length_of(start, ranges[part, 1], step)
            for i0 in range(0, rows, _ROWS):
                height = lesser(_ROWS, rows - i0)
                for i in range(height):
                    load_accumulators(work, whole, _PAIRS + 2 * i, negate, fresh, out, part * rows + i0 + i, j0, width)
                    copy_columns(work, _PAIRS + 2 * i + 1, 0, work, ZERO, 0, whole)
                for k0 in range(0, terms, DEPTH):
                    depth = lesser(DEPTH, terms - k0)
                    for d in range(depth):
                        copy_columns(work, panel + d, 0, b, start + (k0 + d) * step, j0, width)
                        for r in range(5):
                            keys[d, r] = key_of(rounding_rules[SUM_RULE if r else PRODUCT_RULE], seeds[part], k0 + d, r)
                    for i in range(height):
                        first = np.uint32(index[0] + (i0 + i) * index[1] + j0 * index[2])
                        s = _PAIRS + 2 * i
                        for d in range(depth):
                            x, use = negate * a[i0 + i, start + (k0 + d) * step], (np.int64(TERM), panel + d)
                            draws = draws_of(keys[d, 0], gp, first)
                            product_pass(
                                rounding_rules[PRODUCT_RULE], True, work, whole, use, x, negate_products, gp, draws
                            )
                            if neumaier:
                                _order_rows(0, True, work, whole, (LARGER, SMALLER, s, np.int64(TERM)), (), ())
                            for r in range(4):
                                add = _PASSES[neumaier, r]
                                used = (add[3], state_row(add[0], s), state_row(add[2], s))
                                draws = draws_of(keys[d, r + 1], g, first)
                                x = -1.0 if add[1] else 1.0
                                sum_pass(rounding_rules[SUM_RULE], True, work, whole, used, x, g, draws)
                            otherwise = s + 1 if neumaier else np.int64(ZERO)
                            _end(0, True, work, whole, (s, np.int64(T), s + 1, np.int64(NEW), otherwise), (), ())
                for i in range(height):
                    s = _PAIRS + 2 * i
                    if neumaier and terms:
                        first = np.uint32(index[0] + (i0 + i) * index[1] + j0 * index[2])
                        draws = draws_of(key_of(rounding_rules[SUM_RULE], seeds[part], terms, 1), g, first)
                        sum_pass(rounding_rules[SUM_RULE], True, work, whole, (s, s + 1, s), 1.0, g, draws)
                    negate_row(work, whole, s, negate)
                    copy_columns(out, part * rows + i0 + i, j0, work, s, 0, width)


_TREE_ROWS, _WORTH_A_SCAN = 16, 4  # rows of a tile; rows from which on a scan of b for its largest magnitude is cheap
_OTHER_TERM, _STACK = STATE, STATE + 1


def rows_of_tree(depth):
    """The rows of work of a tree whose program holds at most `depth` values at a time."""
    return _STACK + _TREE_ROWS * (depth + 1)


@kernel_of(numba.void(*COMMON, array(numba.int32, 1), array(numba.int8, 1), numba.int64, *_ROUNDINGS))
def tree(
    a, b, out, ranges, index, seeds, orders, merges, depth, rounding_rules, negate, negate_products, params,
    product_params, rel_growth, abs_error, keys, work,
):  # fmt: skip
    """Sums along a tree. The fourth number of a range is the start of its program in `orders` and `merges` (see
    floatsim/accumulation/trees.py), which holds at most `depth` values at a time. r: 0 of a product at its own step, 1
    of the n-th addition at step n. A single term is rounded as addition 0. The values of `out` on entry are not read.

    The sums of a tree are at most (sum of magnitudes + abs_error * terms) * rel_growth. The stack holds rows of
    results, one after the other, for each depth. Before them are as many rows, to which a single term is added.
    """
    g, gp = fields_of(params), fields_of(product_params)
    rows, columns, rounding_rule = a.shape[0], b.shape[1], rounding_rules[SUM_RULE]
    limit = lesser(g[_MAX], gp[_MAX])
    in_pairs = rounding_rules[PRODUCT_RULE] == EXACT and rounding_rule < STOCHASTIC
    for block in range((columns - 1) // WIDTH, -1, -1):
        j0 = block * WIDTH
        width = lesser(WIDTH, columns - j0)
        whole = padded(width)
        for part in range(ranges.shape[0]):
            start, stop, step, program = ranges[part, 0], ranges[part, 1], ranges[part, 2], ranges[part, 3]
            terms = length_of(start, stop, step)
            scans_range, largest = rows >= _WORTH_A_SCAN, np.uint64(0)
            for k in range(start, stop if scans_range else start, step):
                copy_columns(work, TERM, 0, b, k, j0, width)
                code = largest_code(work, whole, np.int64(TERM))
                largest = code if code > largest else largest
            for i0 in range(0, rows, _TREE_ROWS):
                height = lesser(_TREE_ROWS, rows - i0)
                checked = not scans_range
                for i in range(height if scans_range else 0):
                    total = 0.0
                    for k in range(start, stop, step):
                        total += abs(a[i0 + i, k])
                    bound = total * double_from_bits(largest) + abs_error * terms
                    checked = checked or not bound * rel_growth < limit
                top, adds, n = np.int64(_STACK), 0, 0
                while n < terms:
                    paired = in_pairs and n + 1 < terms and merges[program + n] == 0 and merges[program + n + 1] > 0
                    site = np.int64(orders[program + n])
                    k0 = start + site * step
                    copy_columns(work, TERM, 0, b, k0, j0, width)
                    n += 2 if paired else 1
                    fused = in_pairs and not paired and merges[program + n - 1] > 0
                    if not fused:
                        top += _TREE_ROWS
                    if fused:
                        for i in range(height):
                            use = (top + i, np.int64(TERM), top + i)
                            sum_pass(
                                rounding_rule,
                                checked,
                                work,
                                whole,
                                use,
                                negate * a[i0 + i, k0],
                                g,
                                draws_of(_NO_KEY, g, _0),
                            )
                        adds += 1
                    elif paired:
                        k1 = start + orders[program + n - 1] * step
                        copy_columns(work, _OTHER_TERM, 0, b, k1, j0, width)
                        for i in range(height):
                            x, y = negate * a[i0 + i, k0], negate * a[i0 + i, k1]
                            use = (top + i, np.int64(TERM), np.int64(_OTHER_TERM))
                            pair_pass(rounding_rule, checked, work, whole, use, x, y, g)
                        adds += 1
                    else:
                        key = key_of(rounding_rules[PRODUCT_RULE], seeds[part], site, 0)
                        for i in range(height):
                            draws = draws_of(key, gp, np.uint32(index[0] + (i0 + i) * index[1] + j0 * index[2]))
                            x, use = negate * a[i0 + i, k0], (top + i, np.int64(TERM))
                            product_pass(
                                rounding_rules[PRODUCT_RULE], checked, work, whole, use, x, negate_products, gp, draws
                            )
                    for _ in range(1 if terms == 1 else merges[program + n - 1] - (fused or paired)):
                        key = key_of(rounding_rule, seeds[part], adds, 1)
                        for i in range(height):
                            draws = draws_of(key, g, np.uint32(index[0] + (i0 + i) * index[1] + j0 * index[2]))
                            other, last = top - _TREE_ROWS + i, top + i
                            if terms == 1:  # a single term is added to a zero of its own sign
                                _zero_like(0, True, work, whole, (other, last), (), ())
                            sum_pass(rounding_rule, checked, work, whole, (other, last, other), 1.0, g, draws)
                        top -= _TREE_ROWS
                        adds += 1
                for i in range(height):
                    result = top + i
                    if terms == 0:
                        fill_row(0, True, work, whole, (result,), (negate * 0.0,), ())
                    negate_row(work, whole, result, negate)
                    copy_columns(out, part * rows + i0 + i, j0, work, result, 0, width)
