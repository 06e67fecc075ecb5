"""The readable specification of the fits of groups: scales and codes of the K types of GGUF files.

The rules are those of ggml's reference functions (ggml-quants.c, MIT licence, see NOTICE), as array operations of FP32:
each operation is rounded, and all sums go from the first element to the last, as ggml's loops do. Groups are rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Search", "affine", "ends", "nearest", "positive", "refined", "signed_peaks", "sums", "symmetric"]

Array: TypeAlias = NDArray[Any]

_F = np.float32
_TINY = _F(1e-15)  # GROUP_MAX_EPS of ggml: a group of smaller numbers is a group of zeros


def _sums_of_terms(terms: Array) -> Array:
    """Return the sums along the last axis, in order, each addition rounded to FP32. -0 and -0 is -0."""
    total: Array = np.add.accumulate(terms, axis=-1, dtype=np.float32)[..., -1]
    return total


def sums(terms: Array) -> Array:
    """Return the sums along the last axis, in order, from +0, each addition rounded to FP32."""
    return _sums_of_terms(terms) + _F(0)


_MAGIC = _F(12582912)  # 1.5 * 2**23: the last bit of a sum with it is a unit


def nearest(x: Array) -> Array:
    """Return the nearest integers, ties to even, as ggml's nearest_int: beyond +-2**22 the bits of a sum, NaN is 0."""
    bits = np.asarray(x + _MAGIC, np.float32).view(np.int32)
    whole: Array = ((bits & 0x7FFFFF) - 0x400000).astype(np.float32)
    return whole


def _byte(codes: Array) -> Array:
    """Return the codes modulo 256: ggml stores them in bytes."""
    return codes - _F(256) * np.floor(codes / _F(256))


def signed_peaks(x: Array) -> Array:
    """Return the first element of the largest magnitude of each group, (groups, 1); +0 for zeros and NaN."""
    x = np.where(np.isnan(x), _F(0), x)
    return np.take_along_axis(x, np.abs(x).argmax(axis=-1, keepdims=True), axis=-1) + _F(0)


def _largest(x: Array) -> Array:
    """Return the largest element of each group, at least 0, (groups, 1), with the rule for NaN of ggml's MAX."""
    peak = np.zeros(len(x), np.float32)
    for column in x.T:
        peak = np.where(peak > column, peak, column)
    return peak[:, None]


def ends(x: Array) -> tuple[Array, Array]:
    """Return the first of the smallest and of the largest elements of each group, (groups, 1): the sign of a zero."""
    found = (each(x, axis=-1, keepdims=True) for each in (np.argmin, np.argmax))
    low, high = (np.take_along_axis(x, index, axis=-1) for index in found)
    return low, high


def symmetric(x: Array, nmax: int, weights: Array) -> tuple[Array, Array]:
    """Return scales and codes, from 0 to 2 nmax - 1, of the best of 19 scales around -nmax / (largest element)."""
    peak = signed_peaks(x)
    products = weights * x

    def attempt(step: int) -> tuple[Array, Array, Array]:
        inverse = -(_F(nmax) + _F(0.1) * _F(step)) / peak
        codes = np.clip(nearest(inverse * x), -nmax, nmax - 1)
        return codes, sums(products * codes), sums(weights * codes * codes)

    codes, cross, square = attempt(0)
    scale = np.where(square != 0, cross / square, _F(0))
    best = scale * cross
    for step in [*range(-9, 0), *range(1, 10)]:
        other, cross, square = attempt(step)
        better = (square > 0) & (cross * cross > best * square)
        scale = np.where(better, cross / square, scale)
        best = np.where(better, scale * cross, best)
        codes = np.where(better[:, None], other, codes)
    zero = np.abs(peak[:, 0]) < _TINY
    return np.where(zero, _F(0), scale), np.where(zero[:, None], 0, codes + nmax)


def _moved(
    x: Array, weights: Array, codes: Array, totals: tuple[Array, Array], limits: tuple[int, int], strict: bool
) -> tuple[Array, Array]:
    """Move single codes while the weighted squared error falls, at most five times each, in place.

    `totals` are sum(w * x * code) and sum(w * code * code). Return those after the moves. With `strict`, the sum of
    squares without the element must be positive, too, and codes are stored in bytes.
    """
    cross, square = totals
    for _ in range(5):
        changed = False
        for i in range(x.shape[1]):
            w, product, code = weights[:, i], weights[:, i] * x[:, i], codes[:, i]
            rest, rest_square = cross - product * code, square - w * code * code
            moved = np.clip(nearest(x[:, i] * rest_square / rest), *limits)
            able = (rest > 0) & (moved != code) & ((rest_square > 0) if strict else True)
            rest, rest_square = rest + product * moved, rest_square + w * moved * moved
            better = able & (rest_square > 0) & (rest * rest * square > cross * cross * rest_square)
            codes[:, i] = np.where(better, _byte(moved) if strict else moved, code)
            cross, square = np.where(better, rest, cross), np.where(better, rest_square, square)
            changed = changed or bool(better.any())
        if not changed:
            break
    return cross, square


def refined(x: Array, nmax: int) -> tuple[Array, Array]:
    """Return scales and codes, from 0 to 2 nmax - 1, for the weights x * x (Q3_K)."""
    peak = signed_peaks(x)
    codes = np.clip(nearest((-_F(nmax) / peak) * x), -nmax, nmax - 1)
    weights = x * x
    totals = sums(weights * x * codes), sums(weights * codes * codes)
    cross, square = _moved(x, weights, codes, totals, (-nmax, nmax - 1), strict=False)
    zero = np.abs(peak[:, 0]) < _TINY
    scale = np.where(square > 0, cross / square, _F(0))
    return np.where(zero, _F(0), scale), np.where(zero[:, None], 0, codes + nmax)


def positive(x: Array, nmax: int, weights: Array) -> tuple[Array, Array]:
    """Return a scale and codes, from 0 to nmax, for numbers that are not negative: the scales of groups.

    A scale can be negative, if large weights move the minimum beyond the largest element. ggml stores the code of a
    negative number modulo 256: the sums begin with the code, and the first error and the moves have the stored byte.
    """
    peak = _largest(x)

    def error(inverse: Array, top: int | None) -> Array:
        codes = nearest(inverse * x)
        codes = _byte(codes) if top is None else np.minimum(codes, top)
        rest = x - (_F(1) / inverse) * codes
        return sums(weights * rest * rest)

    inverse = _F(nmax) / peak
    best = error(inverse, None)
    for step in [*range(-4, 0), *range(1, 5)]:
        other = (_F(0.1) * _F(step) + _F(nmax)) / peak
        found = error(other, nmax)
        better = found < best
        best = np.where(better, found, best)
        inverse = np.where(better[:, None], other, inverse)
    codes = np.minimum(nearest(inverse * x), nmax)
    totals = sums(weights * x * codes), sums(weights * codes * codes)
    codes = _byte(codes)
    cross, square = _moved(x, weights, codes, totals, (-(1 << 24), nmax), strict=True)
    zero = peak[:, 0] < _TINY
    scale = np.where(square > 0, cross / square, _F(0))
    return np.where(zero, _F(0), scale), np.where(zero[:, None], 0, codes)


class Search(NamedTuple):
    """The candidates of `affine`: (first + step * k + nmax) / range for k from 0 to `steps`."""

    first: float
    step: float
    steps: int
    absolute: bool = False
    """Whether the error is the absolute one, not the squared one."""


def affine(x: Array, nmax: int, weights: Array, search: Search) -> tuple[Array, Array, Array]:
    """Return scales, minima (their negatives) and codes, from 0 to nmax, of the best weighted fit."""
    low, high = (end[:, 0] for end in ends(x))
    whole, moment = _sums_of_terms(weights), _sums_of_terms(weights * x)  # ggml begins with the first term
    low = np.where(low > 0, _F(0), low)
    flat = high <= low

    def error(scale: Array, least: Array, codes: Array) -> Array:
        rest = scale[:, None] * codes + least[:, None] - x
        return sums(weights * (np.abs(rest) if search.absolute else rest * rest))

    inverse = _F(nmax) / (high - low)
    scale = _F(1) / inverse
    codes = np.clip(nearest(inverse[:, None] * (x - low[:, None])), 0, nmax)
    best = error(scale, low, codes)
    for k in range(search.steps + 1):
        inverse = (_F(search.first) + _F(search.step) * _F(k) + _F(nmax)) / (high - low)
        scaled = inverse[:, None] * (x - low[:, None])
        other = np.clip(nearest(scaled), 0, nmax)
        weighted = weights * other
        first, second, cross = sums(weighted), sums(weighted * other), sums(weighted * x)
        determinant = whole * second - first * first
        new_scale = (whole * cross - moment * first) / determinant
        new_low = (second * moment - first * cross) / determinant
        above = new_low > 0
        new_scale, new_low = np.where(above, cross / second, new_scale), np.where(above, _F(0), new_low)
        found = error(new_scale, new_low, other)
        better = (determinant > 0) & (found < best)
        best = np.where(better, found, best)
        codes = np.where(better[:, None], other, codes)
        scale, low = np.where(better, new_scale, scale), np.where(better, new_low, low)
    return np.where(flat, _F(0), scale), -low, np.where(flat[:, None], 0, codes)
