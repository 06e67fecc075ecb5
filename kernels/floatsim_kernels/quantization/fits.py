"""Scales and codes of groups of elements: the searches of the K types of GGUF files, and of Q4 and Q5 with weights.

The rules are those of ggml's reference functions (ggml-quants.c, MIT licence, see NOTICE). All arithmetic is in FP32,
each operation rounded; all sums go from the first element to the last. The kernels need
`cpu.environment_is_default()`.

`LANES` groups are one tile, and the innermost loops go over them, so that LLVM makes vector instructions. A tile is a
part of one array `t` whose strides are constants: LLVM proves with them that planes and rows do not overlap. `t[X]` to
`t[BEST_CODES]` have a row for each element, `t[NUMBERS]` a row for each number of a group. Lanes without a group hold
zeros. 16 lanes took twice the time of 32: LLVM unrolls loops of 16 before it can make them vectors (AVX2 and AVX-512,
November 2026).
"""

import numpy as np

from ..runtime.intrinsics import as_float, bits_from_float
from ..runtime.jit import inline, kernel
from .grids import MAGIC, TINY, nearest_bits

LANES = 32
WIDEST = 32
"""The most elements of a group."""

_BYTE = np.float32(8388608)  # 2**23: its last eight bits are those of a byte
_0, _1 = np.float32(0), np.float32(1)
_TENTH = np.float32(0.1)
_EMPTY = np.float32(-0.0)  # an empty sum of those that ggml begins with the first term, which can be -0

X, W, CODES, BEST_CODES, NUMBERS = range(5)
PEAK, INVERSE, CROSS, SQUARE, SCALE, BEST, CHOSEN = range(7)
LOW, HIGH, FLAT, WHOLE, MOMENT, SUM, DETERMINANT, NEW_SCALE, NEW_LOW, ERROR = range(7, 17)


@inline
def nearest(x):
    """The nearest integer as float32, by `nearest_bits`: as an integer it could not be in a vector without AVX-512."""
    return as_float(np.uint32(nearest_bits(x) | np.uint32(0x4B000000))) - MAGIC


@inline
def byte(code):
    """The code modulo 256: ggml stores it in a byte. Codes are whole numbers from -2**22 to 2**22."""
    return as_float(np.uint32(bits_from_float(code + MAGIC) & np.uint32(0xFF) | np.uint32(0x4B000000))) - _BYTE


@inline
def set_row(t, number, value):
    for lane in range(LANES):
        t[NUMBERS, number, lane] = value


@inline
def load(t, plane, x, first):
    """Load the groups `first` and following of x, (groups, elements)."""
    for lane in range(LANES):
        inside = first + lane < x.shape[0]
        for i in range(x.shape[1]):
            t[plane, i, lane] = x[first + lane, i] if inside else _0


@inline
def load_signed_peaks(t, width):
    """The first element of the largest magnitude. A NaN counts as 0, and a zero is +0."""
    set_row(t, PEAK, _0)
    for i in range(width):
        for lane in range(LANES):
            x, peak = t[X, i, lane], t[NUMBERS, PEAK, lane]
            t[NUMBERS, PEAK, lane] = x if abs(x) > abs(peak) else peak


@inline
def store(t, plane, first, offset, signed, scales, codes):
    """Store the scales and codes of the groups `first` and following; zeros for groups of tiny numbers.

    Without `signed`, a peak can be negative if a NaN stands before the last number: ggml takes it for a tiny one.
    """
    for lane in range(min(LANES, scales.size - first)):
        peak = t[NUMBERS, PEAK, lane]
        zero = (abs(peak) if signed else peak) < TINY
        scales[first + lane] = _0 if zero else t[NUMBERS, SCALE, lane]
        for i in range(codes.shape[1]):
            codes[first + lane, i] = _0 if zero else t[plane, i, lane] + offset


# -- signed codes, and scales of groups --------------------------------------------------------------------------------


@inline
def attempt(t, width, low, high):
    """Write the codes for the inverse scales, from `low` to `high`, and the sums of w x code and w code code."""
    set_row(t, CROSS, _0)
    set_row(t, SQUARE, _0)
    for i in range(width):
        for lane in range(LANES):
            x, w = t[X, i, lane], t[W, i, lane]
            code = min(max(nearest(t[NUMBERS, INVERSE, lane] * x), low), high)
            t[CODES, i, lane] = code
            t[NUMBERS, CROSS, lane] += w * x * code
            t[NUMBERS, SQUARE, lane] += w * code * code


@inline
def copy_chosen(t, width):
    """Copy the codes of the groups with a 1 in `CHOSEN` to the best codes."""
    for i in range(width):
        for lane in range(LANES):
            chosen = t[NUMBERS, CHOSEN, lane] > 0
            t[BEST_CODES, i, lane] = t[CODES, i, lane] if chosen else t[BEST_CODES, i, lane]


@kernel
def symmetric(x, weights, nmax, scales, codes):
    """Write scales and codes, from 0 to 2 nmax - 1, of the best of 19 scales around -nmax / (largest element)."""
    width = x.shape[1]
    t = np.empty((5, WIDEST, LANES), np.float32)
    for first in range(0, x.shape[0], LANES):
        load(t, X, x, first)
        load(t, W, weights, first)
        load_signed_peaks(t, width)
        for k in range(19):
            step = 0 if k == 0 else k - 10 if k < 10 else k - 9
            top = -(nmax + _TENTH * np.float32(step))
            for lane in range(LANES):
                t[NUMBERS, INVERSE, lane] = top / t[NUMBERS, PEAK, lane]
            attempt(t, width, -nmax, nmax - _1)
            for lane in range(LANES):
                cross, square = t[NUMBERS, CROSS, lane], t[NUMBERS, SQUARE, lane]
                scale, best = t[NUMBERS, SCALE, lane], t[NUMBERS, BEST, lane]
                if k == 0:
                    better = True
                    found = cross / square if square != 0 else _0
                else:
                    better = square > 0 and cross * cross > best * square
                    found = cross / square
                t[NUMBERS, SCALE, lane] = found if better else scale
                t[NUMBERS, BEST, lane] = found * cross if better else best
                t[NUMBERS, CHOSEN, lane] = _1 if better else _0
            copy_chosen(t, width)
        store(t, BEST_CODES, first, nmax, True, scales, codes)


@inline
def move(t, width, low, high, strict):
    """Move single codes while the weighted squared error falls, at most five times each.

    With `strict`, the sum of squares without the element must be positive, too, and codes are stored in bytes.
    """
    for _ in range(5):
        set_row(t, CHOSEN, _0)
        for i in range(width):
            for lane in range(LANES):
                x, w, code = t[X, i, lane], t[W, i, lane], t[CODES, i, lane]
                cross, square = t[NUMBERS, CROSS, lane], t[NUMBERS, SQUARE, lane]
                rest, rest_square = cross - w * x * code, square - w * code * code
                moved = min(max(nearest(x * rest_square / rest), low), high)
                able = rest > 0 and moved != code and (not strict or rest_square > 0)
                rest, rest_square = rest + w * x * moved, rest_square + w * moved * moved
                better = able and rest_square > 0 and rest * rest * square > cross * cross * rest_square
                t[CODES, i, lane] = (byte(moved) if strict else moved) if better else code
                t[NUMBERS, CROSS, lane] = rest if better else cross
                t[NUMBERS, SQUARE, lane] = rest_square if better else square
                t[NUMBERS, CHOSEN, lane] = _1 if better else t[NUMBERS, CHOSEN, lane]
        changed = _0
        for lane in range(LANES):
            changed = max(changed, t[NUMBERS, CHOSEN, lane])
        if changed == 0:
            break
    for lane in range(LANES):
        cross, square = t[NUMBERS, CROSS, lane], t[NUMBERS, SQUARE, lane]
        t[NUMBERS, SCALE, lane] = cross / square if square > 0 else _0


@kernel
def refined(x, nmax, scales, codes):
    """Write scales and codes, from 0 to 2 nmax - 1, for the weights x * x (Q3_K)."""
    width = x.shape[1]
    t = np.empty((5, WIDEST, LANES), np.float32)
    for first in range(0, x.shape[0], LANES):
        load(t, X, x, first)
        load_signed_peaks(t, width)
        for i in range(width):
            for lane in range(LANES):
                t[W, i, lane] = t[X, i, lane] * t[X, i, lane]
        for lane in range(LANES):
            t[NUMBERS, INVERSE, lane] = -nmax / t[NUMBERS, PEAK, lane]
        attempt(t, width, -nmax, nmax - _1)
        move(t, width, -nmax, nmax - _1, False)
        store(t, CODES, first, nmax, True, scales, codes)


@inline
def error_of_positive(t, width, inverse, top, stored):
    """Write the sums of w (x - code / inverse)**2; codes are at most `top`, and in bytes if `stored`."""
    for lane in range(LANES):
        t[NUMBERS, NEW_SCALE, lane] = _1 / t[NUMBERS, inverse, lane]
    set_row(t, ERROR, _0)
    for i in range(width):
        for lane in range(LANES):
            code = min(nearest(t[NUMBERS, inverse, lane] * t[X, i, lane]), top)
            code = byte(code) if stored else code
            rest = t[X, i, lane] - t[NUMBERS, NEW_SCALE, lane] * code
            t[NUMBERS, ERROR, lane] += t[W, i, lane] * rest * rest


@kernel
def positive(x, weights, nmax, scales, codes):
    """Write a scale and codes, at most nmax, for numbers that are not negative: the scales of groups.

    Negative numbers have codes modulo 256.
    """
    width = x.shape[1]
    t = np.empty((5, WIDEST, LANES), np.float32)
    lowest = np.float32(-(1 << 24))  # below all codes
    for first in range(0, x.shape[0], LANES):
        load(t, X, x, first)
        load(t, W, weights, first)
        set_row(t, PEAK, _0)
        for i in range(width):
            for lane in range(LANES):
                peak = t[NUMBERS, PEAK, lane]
                t[NUMBERS, PEAK, lane] = peak if peak > t[X, i, lane] else t[X, i, lane]  # ggml's MAX: NaN is replaced
        for lane in range(LANES):
            t[NUMBERS, INVERSE, lane] = nmax / t[NUMBERS, PEAK, lane]
        error_of_positive(t, width, INVERSE, -lowest, True)
        for lane in range(LANES):
            t[NUMBERS, BEST, lane] = t[NUMBERS, ERROR, lane]
        for step in range(-4, 5):
            if step != 0:
                top = _TENTH * np.float32(step) + nmax
                for lane in range(LANES):
                    t[NUMBERS, SUM, lane] = top / t[NUMBERS, PEAK, lane]
                error_of_positive(t, width, SUM, nmax, False)
                for lane in range(LANES):
                    better = t[NUMBERS, ERROR, lane] < t[NUMBERS, BEST, lane]
                    t[NUMBERS, BEST, lane] = t[NUMBERS, ERROR, lane] if better else t[NUMBERS, BEST, lane]
                    t[NUMBERS, INVERSE, lane] = t[NUMBERS, SUM, lane] if better else t[NUMBERS, INVERSE, lane]
        attempt(t, width, lowest, nmax)
        for i in range(width):
            for lane in range(LANES):
                t[CODES, i, lane] = byte(t[CODES, i, lane])
        move(t, width, lowest, nmax, True)
        store(t, CODES, first, _0, False, scales, codes)


# -- scales and minima -------------------------------------------------------------------------------------------------


@inline
def error_of_affine(t, width, plane, scale, low, absolute):
    """Write the sums of the weighted errors of scale * code + low, squared or absolute."""
    set_row(t, ERROR, _0)
    for i in range(width):
        for lane in range(LANES):
            rest = t[NUMBERS, scale, lane] * t[plane, i, lane] + t[NUMBERS, low, lane] - t[X, i, lane]
            t[NUMBERS, ERROR, lane] += t[W, i, lane] * (abs(rest) if absolute else rest * rest)


@kernel
def affine(x, weights, nmax, start, step, steps, absolute, scales, minima, codes):
    """Write scales, minima (their negatives) and codes, from 0 to nmax, of the best weighted fit.

    The candidates of the inverse scale are (start + step * k + nmax) / range, for k from 0 to `steps`.
    """
    width = x.shape[1]
    t = np.empty((5, WIDEST, LANES), np.float32)
    for first in range(0, x.shape[0], LANES):
        load(t, X, x, first)
        load(t, W, weights, first)
        for lane in range(LANES):
            t[NUMBERS, LOW, lane] = t[NUMBERS, HIGH, lane] = t[X, 0, lane]
        set_row(t, WHOLE, _EMPTY)
        set_row(t, MOMENT, _EMPTY)
        for i in range(width):
            for lane in range(LANES):
                value, low, high = t[X, i, lane], t[NUMBERS, LOW, lane], t[NUMBERS, HIGH, lane]
                t[NUMBERS, LOW, lane] = value if value < low else low
                t[NUMBERS, HIGH, lane] = value if value > high else high
                t[NUMBERS, WHOLE, lane] += t[W, i, lane]
                t[NUMBERS, MOMENT, lane] += t[W, i, lane] * value
        for lane in range(LANES):
            low, high = t[NUMBERS, LOW, lane], t[NUMBERS, HIGH, lane]
            low = _0 if low > 0 else low
            t[NUMBERS, LOW, lane] = low
            t[NUMBERS, FLAT, lane] = _1 if high <= low else _0
            t[NUMBERS, INVERSE, lane] = nmax / (high - low)
            t[NUMBERS, SCALE, lane] = _1 / t[NUMBERS, INVERSE, lane]
        for i in range(width):
            for lane in range(LANES):
                code = nearest(t[NUMBERS, INVERSE, lane] * (t[X, i, lane] - t[NUMBERS, LOW, lane]))
                t[BEST_CODES, i, lane] = min(max(code, _0), nmax)
        error_of_affine(t, width, BEST_CODES, SCALE, LOW, absolute)
        for lane in range(LANES):
            t[NUMBERS, BEST, lane] = t[NUMBERS, ERROR, lane]
        for k in range(steps + 1):
            top = start + step * np.float32(k) + nmax
            for lane in range(LANES):
                t[NUMBERS, INVERSE, lane] = top / (t[NUMBERS, HIGH, lane] - t[NUMBERS, LOW, lane])
            set_row(t, SUM, _0)
            set_row(t, SQUARE, _0)
            set_row(t, CROSS, _0)
            for i in range(width):
                for lane in range(LANES):
                    scaled = t[NUMBERS, INVERSE, lane] * (t[X, i, lane] - t[NUMBERS, LOW, lane])
                    code = min(max(nearest(scaled), _0), nmax)
                    weighted = t[W, i, lane] * code
                    t[CODES, i, lane] = code
                    t[NUMBERS, SUM, lane] += weighted
                    t[NUMBERS, SQUARE, lane] += weighted * code
                    t[NUMBERS, CROSS, lane] += weighted * t[X, i, lane]
            for lane in range(LANES):
                total, square, cross = t[NUMBERS, SUM, lane], t[NUMBERS, SQUARE, lane], t[NUMBERS, CROSS, lane]
                whole, moment = t[NUMBERS, WHOLE, lane], t[NUMBERS, MOMENT, lane]
                determinant = whole * square - total * total
                scale = (whole * cross - moment * total) / determinant
                low = (square * moment - total * cross) / determinant
                t[NUMBERS, DETERMINANT, lane] = determinant
                t[NUMBERS, NEW_SCALE, lane] = cross / square if low > 0 else scale
                t[NUMBERS, NEW_LOW, lane] = _0 if low > 0 else low
            error_of_affine(t, width, CODES, NEW_SCALE, NEW_LOW, absolute)
            for lane in range(LANES):
                better = t[NUMBERS, DETERMINANT, lane] > 0 and t[NUMBERS, ERROR, lane] < t[NUMBERS, BEST, lane]
                t[NUMBERS, BEST, lane] = t[NUMBERS, ERROR, lane] if better else t[NUMBERS, BEST, lane]
                t[NUMBERS, SCALE, lane] = t[NUMBERS, NEW_SCALE, lane] if better else t[NUMBERS, SCALE, lane]
                t[NUMBERS, LOW, lane] = t[NUMBERS, NEW_LOW, lane] if better else t[NUMBERS, LOW, lane]
                t[NUMBERS, CHOSEN, lane] = _1 if better else _0
            copy_chosen(t, width)
        for lane in range(min(LANES, x.shape[0] - first)):
            flat = t[NUMBERS, FLAT, lane] > 0
            scales[first + lane] = _0 if flat else t[NUMBERS, SCALE, lane]
            minima[first + lane] = -t[NUMBERS, LOW, lane]
            for i in range(width):
                codes[first + lane, i] = _0 if flat else t[BEST_CODES, i, lane]
