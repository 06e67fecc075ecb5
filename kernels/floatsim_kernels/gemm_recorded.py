"""Sequential products in float32 with events: the sums of `gemm_singles`, each product and each sum rounded, ties to
even, to FP16, BF16 or a narrow format; beside each step, what happened in it.

Operands are finite, and their products exact in float32 where they do not overflow. A rounded sum r of the numbers x
and y of one format is exact where r - x == y and r - y == x: the difference from the larger one is exact (T. J. Dekker,
1971). A sum of two numbers of a format is exact where it is tiny, so it neither underflows nor is flushed.

`recorded` writes the event words of each row's step; their counts are taken and places looked for only where a word has
such a bit. `tiny_products` tells of underflow alone, without the sums. a (M, K), b (K, N): float32. out (ranges, M, N):
start values on entry, sums on exit. `counts` (len(EVENTS),), int64, grows by the events; `first` (len(PLACES), M, N),
int32, takes the least where[k] of each. `grid`: see GRID_FIELDS. Needs
`machine.environment_is_default()`, FP16 `machine.has_f16c()`.
"""

import numpy as np

from .grids import NARROW_FIELDS, on_bfloat_grid, on_half_grid, on_narrow_grid
from .intrinsics import add32, and32, float_from_bits, or32, right32, wide_vectors
from .jit import inline, kernel

HALF, BFLOAT, NARROW = range(3)

EVENTS = (
    "product inexact", "product underflow", "product overflow", "product flushed", "product subnormal", "product nan",
    "sum inexact", "sum overflow", "sum subnormal", "sum absorbed", "sum invalid", "sum nan",
)  # fmt: skip
"""What the bits of an event word stand for."""
_P_INEXACT, _P_UNDERFLOW, _P_OVERFLOW, _P_FLUSHED, _P_SUBNORMAL, _P_NAN = (np.uint32(1 << i) for i in range(6))
_S_INEXACT, _S_OVERFLOW, _S_SUBNORMAL, _S_ABSORBED, _S_INVALID, _S_NAN = (np.uint32(1 << i) for i in range(6, 12))
_NONE, _1 = np.uint32(0), np.uint32(1)

PLACES = ("invalid", "nan", "overflow", "underflow", "flushed", "absorbed")
"""The events whose first place is kept."""
_PLACE_BITS = (
    _S_INVALID, np.uint32(_P_NAN | _S_NAN), np.uint32(_P_OVERFLOW | _S_OVERFLOW), _P_UNDERFLOW, _P_FLUSHED, _S_ABSORBED,
)  # fmt: skip

GRID_FIELDS = (*NARROW_FIELDS, "tiny", "smallest_normal")
_TINY, _SMALLEST_NORMAL = 5, 6
_INF, _ZERO = np.float32(np.inf), np.float32(0)


@inline
def bit(condition, value, word):
    return or32(word, value) if condition else word


@inline
def product_events(x, p, g):
    """Of the exact product x, of finite factors, rounded to p."""
    size, tiny = abs(x), float_from_bits(g[_TINY])
    over, inexact = not abs(p) < _INF, p != x
    word = bit(inexact | over, _P_INEXACT, _NONE)
    word = bit(inexact & (size < tiny), _P_UNDERFLOW, word)
    word = bit(over, _P_OVERFLOW, word)
    word = bit(inexact & (p == _ZERO), _P_FLUSHED, word)
    word = bit(p != p, _P_NAN, word)
    return bit((p != _ZERO) & (abs(p) < float_from_bits(g[_SMALLEST_NORMAL])), _P_SUBNORMAL, word)


@inline
def sum_events(acc, p, r, g, word):
    """Of acc + p, rounded to r, added to the word."""
    finite = (abs(acc) < _INF) & (abs(p) < _INF)
    new = (r != r) & (acc == acc)
    word = bit(finite & ((r - acc != p) | (r - p != acc)), _S_INEXACT, word)
    word = bit(finite & (not abs(r) < _INF), _S_OVERFLOW, word)
    word = bit(finite & (r == acc) & (p != _ZERO), _S_ABSORBED, word)
    word = bit(new, _S_NAN, word)
    word = bit(new & (p == p) & (not finite), _S_INVALID, word)
    return bit((r != _ZERO) & (abs(r) < float_from_bits(g[_SMALLEST_NORMAL])), _S_SUBNORMAL, word)


@inline
def step_half(x, bs, row, words, g, wanted):
    seen = _NONE
    for j in range(row.size):
        acc, exact = row[j], x * bs[j]
        p = on_half_grid(exact)
        r = on_half_grid(acc + p)
        row[j] = r
        word = and32(sum_events(acc, p, r, g, product_events(exact, p, g)), wanted)
        words[j] = word
        seen = or32(seen, word)
    return seen


@inline
def step_bfloat(x, bs, row, words, g, wanted):
    seen = _NONE
    for j in range(row.size):
        acc, exact = row[j], x * bs[j]
        p = on_bfloat_grid(exact)
        r = on_bfloat_grid(acc + p)
        row[j] = r
        word = and32(sum_events(acc, p, r, g, product_events(exact, p, g)), wanted)
        words[j] = word
        seen = or32(seen, word)
    return seen


@inline
def step_narrow(x, bs, row, words, g, wanted):
    seen = _NONE
    for j in range(row.size):
        acc, exact = row[j], x * bs[j]
        p = on_narrow_grid(exact, g)
        r = on_narrow_grid(acc + p, g)
        row[j] = r
        word = and32(sum_events(acc, p, r, g, product_events(exact, p, g)), wanted)
        words[j] = word
        seen = or32(seen, word)
    return seen


@inline
def count(words, seen, counts):
    """How often each event happened in a row."""
    for event in range(counts.size):
        shift = np.uint32(event)
        if right32(seen, shift) & _1:
            happened = _NONE
            for j in range(words.size):
                happened = add32(happened, and32(right32(words[j], shift), _1))
            counts[event] += happened


@inline
def locate(words, seen, k, places):
    """Keep k where an event of the row had no earlier place."""
    for event in range(len(_PLACE_BITS)):
        mask = _PLACE_BITS[event]
        if seen & mask:
            earliest = places[event]
            for j in range(words.size):
                earliest[j] = min(earliest[j], k) if and32(words[j], mask) != _NONE else earliest[j]


@inline
def step_products(kind, x, bs, words, g, wanted):
    seen = _NONE
    for j in range(bs.size):
        exact = x * bs[j]
        if kind == HALF:
            p = on_half_grid(exact)
        elif kind == BFLOAT:
            p = on_bfloat_grid(exact)
        else:
            p = on_narrow_grid(exact, g)
        words[j] = and32(product_events(exact, p, g), wanted)
        seen = or32(seen, words[j])
    return seen


@kernel
def recorded(kind, a, b, out, ranges, where, wanted, counts, first, grid):
    """`wanted`: the event words' bits to look at."""
    wide_vectors()
    g = (grid[0], grid[1], grid[2], grid[3], grid[4], grid[5], grid[6])
    words = np.empty(out.shape[2], np.uint32)
    places = np.empty((first.shape[0], out.shape[2]), np.int32)
    for part in range(ranges.shape[0]):
        for i in range(out.shape[1]):
            row = out[part, i]
            places[:] = first[:, i]
            latest = np.int32(-1)
            for k in range(ranges[part, 0], ranges[part, 1], ranges[part, 2]):
                x, bs = a[i, k], b[k]
                if kind == HALF:
                    seen = step_half(x, bs, row, words, g, wanted)
                elif kind == BFLOAT:
                    seen = step_bfloat(x, bs, row, words, g, wanted)
                else:
                    seen = step_narrow(x, bs, row, words, g, wanted)
                latest = max(latest, np.int32(where[k]))
                if seen:
                    count(words, seen, counts)
                    locate(words, seen, latest, places)
            first[:, i] = places


@kernel
def tiny_products(kind, a, b, ranges, where, wanted, counts, first, grid):
    """What `recorded` says of products below the normal numbers; rows of b are looked at where there can be one."""
    wide_vectors()
    g = (grid[0], grid[1], grid[2], grid[3], grid[4], grid[5], grid[6])
    tiny = np.float64(float_from_bits(g[_TINY]))
    smallest = np.full(b.shape[0], np.inf)  # of the non-zero magnitudes of each row of b
    for k in range(b.shape[0]):
        for j in range(b.shape[1]):
            size = np.float64(abs(b[k, j]))
            smallest[k] = size if size < smallest[k] and size > 0 else smallest[k]
    words = np.empty(b.shape[1], np.uint32)
    places = np.empty((first.shape[0], b.shape[1]), np.int32)
    for part in range(ranges.shape[0]):
        for i in range(a.shape[0]):
            places[:] = first[:, i]
            for k in range(ranges[part, 0], ranges[part, 1], ranges[part, 2]):
                x = a[i, k]
                if x != 0 and np.float64(abs(x)) * smallest[k] < tiny:
                    seen = step_products(kind, x, b[k], words, g, wanted)
                    if seen:
                        count(words, seen, counts)
                        locate(words, seen, np.int32(where[k]), places)
            first[:, i] = places
