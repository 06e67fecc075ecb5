"""Rounding float32 and float64 values to a narrower grid at memory speed: branch-free, in hardware floats.

A value's rounding quantum is q = 2**(max(e, emin) - p + 1). Two ways to round a magnitude x to a multiple of q:

- *added*: with C = q * 2**23 (float64: 2**52), (x + C) - C is x rounded to nearest, ties to even; the other directions
  follow from comparing the result with x. For formats whose quanta are normal numbers of the carrier.
- *shared*: where the format has the carrier's exponents (BF16 and TF32 in float32), q is a fixed bit of the carrier's
  code, subnormals included, and rounding is integer arithmetic on the code.

Needs `machine.environment_is_default()`. `grid` holds, as the carrier's bits (uint32 or uint64): 2**emin; the last
number below 2**(emax + 2); the exponents of 2**e / q and of C / 2**e; max; then what becomes of overflow (+, -),
infinity (+, -) and NaN, and the sign bit of a zero. One loop a rounding direction.
"""

import numpy as np

from ..rounding.random import draw_key, draw_word
from ..runtime.intrinsics import (
    add32,
    bits_from_double,
    bits_from_float,
    double_from_bits,
    float_from_bits,
    low32,
    right32,
)
from ..runtime.jit import inline, kernel

GRID_FIELDS = (
    "emin",
    "limit",
    "below",
    "above",
    "max",
    "overflow",
    "negative_overflow",
    "infinity",
    "negative_infinity",
    "nan",
    "zero_sign",
)
EMIN, LIMIT, BELOW, ABOVE, MAX, OVER, NEGATIVE_OVER, INFINITY, NEGATIVE_INFINITY, NAN, ZERO_SIGN = range(11)

_MAGNITUDE32, _SIGN32, _INF32 = np.uint32(0x7FFFFFFF), np.uint32(0x80000000), np.uint32(0x7F800000)
_MAGNITUDE64, _SIGN64, _INF64 = (
    np.uint64(0x7FFFFFFFFFFFFFFF),
    np.uint64(0x8000000000000000),
    np.uint64(0x7FF0000000000000),
)
# the bits of 2**32 / q are these less the bits of q, a power of two
_INVERSE32, _INVERSE64 = np.uint32(286 << 23), np.uint64(2078 << 52)


@inline
def grid_row(g):
    return g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], g[10]


# -- float32 -----------------------------------------------------------------------------------------------------------


@inline
def split32(u, g):
    """(magnitude as a finite float, C, q) of a code. One far beyond max is brought nearer; it still overflows."""
    m = min(np.uint32(u & _MAGNITUDE32), g[LIMIT])
    e = max(np.uint32(m & _INF32), g[EMIN])
    return float_from_bits(m), float_from_bits(np.uint32(e + g[ABOVE])), float_from_bits(np.uint32(e - g[BELOW]))


@inline
def join32(u, r, g):
    """The code of the rounded magnitude r under the sign of u; overflow, infinities and NaN as the grid says."""
    m, s = np.uint32(u & _MAGNITUDE32), np.uint32(u & _SIGN32)
    code = np.uint32(r | s)
    code = np.uint32(s & g[ZERO_SIGN]) if r == np.uint32(0) else code
    over = g[NEGATIVE_OVER] if s != np.uint32(0) else g[OVER]
    code = over if r > g[MAX] else code
    infinite = g[NEGATIVE_INFINITY] if s != np.uint32(0) else g[INFINITY]
    code = infinite if m == _INF32 else code
    return g[NAN] if m > _INF32 else code


@inline
def toward_zero32(x, c, q):
    r = (x + c) - c
    return r - q if r > x else r


@kernel
def added32_ties_to_even(x, out, grid):
    g = grid_row(grid)
    for i in range(x.size):
        v, c, _ = split32(x[i], g)
        out[i] = join32(x[i], bits_from_float((v + c) - c), g)


@kernel
def added32_ties_to_away(x, out, grid):
    g = grid_row(grid)
    for i in range(x.size):
        v, c, q = split32(x[i], g)
        r = (v + c) - c
        rest = v - r
        out[i] = join32(x[i], bits_from_float(r + q if rest + rest == q else r), g)


@kernel
def added32_toward_zero(x, out, grid):
    g = grid_row(grid)
    for i in range(x.size):
        v, c, q = split32(x[i], g)
        out[i] = join32(x[i], bits_from_float(toward_zero32(v, c, q)), g)


@kernel
def added32_directed(x, out, grid, away):
    """Away from zero where the sign bit equals `away`, else toward zero."""
    g = grid_row(grid)
    for i in range(x.size):
        v, c, q = split32(x[i], g)
        r = (v + c) - c
        up = r + q if r < v else r
        down = r - q if r > v else r
        outward = np.uint32(x[i] & _SIGN32) == away
        out[i] = join32(x[i], bits_from_float(up if outward else down), g)


@kernel
def added32_to_odd(x, out, grid):
    g = grid_row(grid)
    for i in range(x.size):
        v, c, q = split32(x[i], g)
        r = toward_zero32(v, c, q)
        even = np.uint32(bits_from_float(r + c) & np.uint32(1)) == np.uint32(0)
        out[i] = join32(x[i], bits_from_float(r + q if even and r != v else r), g)


@inline
def run(index, n):
    """How many of n elements, the first of this index, share a key."""
    return min(n, np.int64(1 << 32) - np.int64(index & np.uint64(0xFFFFFFFF)))


@kernel
def added32_stochastic(x, out, grid, draws, random_bits):
    """random_bits at most 32: up if the first bits of the discarded fraction plus as many random ones carry."""
    g = grid_row(grid)
    mask = np.uint32(np.uint64(0xFFFFFFFF) << np.uint64(32 - random_bits))
    done = np.int64(0)
    while done < x.size:
        index = draws[1] + np.uint64(done)
        key = draw_key(draws[0], np.uint64(0), index >> np.uint64(32))
        low, high, first = np.uint32(key & np.uint64(0xFFFFFFFF)), np.uint32(key >> np.uint64(32)), np.uint32(index)
        n = run(index, x.size - done)
        xs, ys = x[done : done + n], out[done : done + n]
        for i in range(n):
            v, c, q = split32(xs[i], g)
            r = toward_zero32(v, c, q)
            inverse = float_from_bits(np.uint32(_INVERSE32 - bits_from_float(q)))
            fraction = np.uint32(np.uint32((v - r) * inverse) & mask)
            word = np.uint32(draw_word(low, high, add32(first, low32(i))) & mask)
            carries = add32(fraction, word) < fraction
            ys[i] = join32(xs[i], bits_from_float(r + q if carries else r), g)
        done += n


@kernel
def shared32_nearest(x, out, grid, drop, to_even):
    """Ties to even (1) or away from zero (0); `drop` low bits of the code go."""
    g = grid_row(grid)
    one, d = np.uint32(1), np.uint32(drop)
    mask, even = np.uint32(~((one << d) - one)), np.uint32(to_even)
    below = np.uint32((one << np.uint32(d - one)) - even)
    for i in range(x.size):
        m = np.uint32(x[i] & _MAGNITUDE32)
        odd = right32(m, d) & even
        out[i] = join32(x[i], np.uint32(add32(m, add32(below, odd)) & mask), g)


@kernel
def shared32_directed(x, out, grid, drop, positive, negative):
    """Away from zero for positive and for negative numbers where that is 1, else toward zero."""
    g = grid_row(grid)
    one, d = np.uint32(1), np.uint32(drop)
    low = np.uint32((one << d) - one)
    mask, up, down = np.uint32(~low), np.uint32(low * np.uint32(positive)), np.uint32(low * np.uint32(negative))
    for i in range(x.size):
        m = np.uint32(x[i] & _MAGNITUDE32)
        add = down if np.uint32(x[i] & _SIGN32) != np.uint32(0) else up
        out[i] = join32(x[i], np.uint32(add32(m, add) & mask), g)


@kernel
def shared32_to_odd(x, out, grid, drop):
    g = grid_row(grid)
    one, d = np.uint32(1), np.uint32(drop)
    low = np.uint32((one << d) - one)
    mask, last = np.uint32(~low), np.uint32(one << d)
    for i in range(x.size):
        m = np.uint32(x[i] & _MAGNITUDE32)
        kept = np.uint32(m & mask)
        out[i] = join32(x[i], np.uint32(kept | last) if np.uint32(m & low) != np.uint32(0) else kept, g)


@kernel
def shared32_stochastic(x, out, grid, drop, draws, random_bits):
    """random_bits at most 32: the first discarded bits plus as many random ones, carried upward."""
    g = grid_row(grid)
    one, d = np.uint32(1), np.uint32(drop)
    unused = np.uint32(max(0, drop - random_bits))
    mask, seen, shift = np.uint32(~((one << d) - one)), np.uint32(~((one << unused) - one)), np.uint32(32 - drop)
    used = np.uint32(np.uint64(0xFFFFFFFF) << np.uint64(32 - random_bits))
    done = np.int64(0)
    while done < x.size:
        index = draws[1] + np.uint64(done)
        key = draw_key(draws[0], np.uint64(0), index >> np.uint64(32))
        low, high, first = np.uint32(key & np.uint64(0xFFFFFFFF)), np.uint32(key >> np.uint64(32)), np.uint32(index)
        n = run(index, x.size - done)
        xs, ys = x[done : done + n], out[done : done + n]
        for i in range(n):
            m = np.uint32(xs[i] & _MAGNITUDE32)
            word = np.uint32(draw_word(low, high, add32(first, low32(i))) & used)
            r = np.uint32(add32(m & seen, right32(word, shift) & seen) & mask)
            ys[i] = join32(xs[i], r, g)
        done += n


# -- float64 -----------------------------------------------------------------------------------------------------------


@inline
def split64(u, g):
    """(magnitude as a finite float, C, q) of a code. One far beyond max is brought nearer; it still overflows."""
    m = min(u & _MAGNITUDE64, g[LIMIT])
    e = max(m & _INF64, g[EMIN])
    return double_from_bits(m), double_from_bits(e + g[ABOVE]), double_from_bits(e - g[BELOW])


@inline
def join64(u, r, g):
    """The code of the rounded magnitude r under the sign of u; overflow, infinities and NaN as the grid says."""
    m, s = np.uint64(u & _MAGNITUDE64), np.uint64(u & _SIGN64)
    code = np.uint64(r | s)
    code = np.uint64(s & g[ZERO_SIGN]) if r == np.uint64(0) else code
    over = g[NEGATIVE_OVER] if s != np.uint64(0) else g[OVER]
    code = over if r > g[MAX] else code
    infinite = g[NEGATIVE_INFINITY] if s != np.uint64(0) else g[INFINITY]
    code = infinite if m == _INF64 else code
    return g[NAN] if m > _INF64 else code


@inline
def toward_zero64(x, c, q):
    r = (x + c) - c
    return r - q if r > x else r


@kernel
def added64_ties_to_even(x, out, grid):
    g = grid_row(grid)
    for i in range(x.size):
        v, c, _ = split64(x[i], g)
        out[i] = join64(x[i], bits_from_double((v + c) - c), g)


@kernel
def added64_ties_to_away(x, out, grid):
    g = grid_row(grid)
    for i in range(x.size):
        v, c, q = split64(x[i], g)
        r = (v + c) - c
        rest = v - r
        out[i] = join64(x[i], bits_from_double(r + q if rest + rest == q else r), g)


@kernel
def added64_toward_zero(x, out, grid):
    g = grid_row(grid)
    for i in range(x.size):
        v, c, q = split64(x[i], g)
        out[i] = join64(x[i], bits_from_double(toward_zero64(v, c, q)), g)


@kernel
def added64_directed(x, out, grid, away):
    """Away from zero where the sign bit equals `away`, else toward zero."""
    g = grid_row(grid)
    for i in range(x.size):
        v, c, q = split64(x[i], g)
        r = (v + c) - c
        up = r + q if r < v else r
        down = r - q if r > v else r
        outward = (x[i] & _SIGN64) == away
        out[i] = join64(x[i], bits_from_double(up if outward else down), g)


@kernel
def added64_to_odd(x, out, grid):
    g = grid_row(grid)
    for i in range(x.size):
        v, c, q = split64(x[i], g)
        r = toward_zero64(v, c, q)
        even = (bits_from_double(r + c) & np.uint64(1)) == np.uint64(0)
        out[i] = join64(x[i], bits_from_double(r + q if even and r != v else r), g)


@kernel
def added64_stochastic(x, out, grid, draws, random_bits):
    """random_bits at most 32: up if the first bits of the discarded fraction plus as many random ones carry."""
    g = grid_row(grid)
    mask = np.uint32(np.uint64(0xFFFFFFFF) << np.uint64(32 - random_bits))
    done = np.int64(0)
    while done < x.size:
        index = draws[1] + np.uint64(done)
        key = draw_key(draws[0], np.uint64(0), index >> np.uint64(32))
        low, high, first = np.uint32(key & np.uint64(0xFFFFFFFF)), np.uint32(key >> np.uint64(32)), np.uint32(index)
        n = run(index, x.size - done)
        xs, ys = x[done : done + n], out[done : done + n]
        for i in range(n):
            v, c, q = split64(xs[i], g)
            r = toward_zero64(v, c, q)
            inverse = double_from_bits(_INVERSE64 - bits_from_double(q))
            fraction = np.uint32(np.uint32(np.int64((v - r) * inverse)) & mask)
            word = np.uint32(draw_word(low, high, add32(first, low32(i))) & mask)
            carries = add32(fraction, word) < fraction
            ys[i] = join64(xs[i], bits_from_double(r + q if carries else r), g)
        done += n
