"""Quantize blocks to the types of GGUF files with grids: IQ1, IQ2 and IQ3, and to the table of IQ4.

A row of `POINT_QUANTIZERS` is a type. The rules are those of ggml (ggml-quants.c, MIT licence, see NOTICE). A group of
elements is rounded to the points of the grid with several scales, and the best one is taken. Numbers that are no point
are rounded to the one of their nearest points that has the smallest weighted error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.emulator.elementwise.grid_points import (
    ALL_IF_ONE_IS_OFF_GRID,
    ALL_POINTS,
    OFF_GRID,
    SQUARES,
    SQUARES_AND_MEAN,
    Neighbours,
    Rule,
    fit_entries,
    fit_points,
    fit_ternary,
)
from floatsim.quantization.gguf_types import GGUF_TYPES, grid_of, packing_of

__all__ = ["POINT_QUANTIZERS", "neighbours_of"]

Array: TypeAlias = NDArray[Any]
Fields: TypeAlias = "tuple[Array | None, list[Array]]"

_F = np.float32

# -- tables ------------------------------------------------------------------------------------------------------------

_DISTANCES = {"IQ2_XXS": 2, "IQ2_XS": 2, "IQ2_S": 1, "IQ3_XXS": 2, "IQ3_S": 3, "IQ1_S": 3}
"""The grids, and how many different distances the neighbours of a number have."""


@functools.cache
def neighbours_of(name: str) -> Neighbours:
    """Return the points of the grid of a type, and the nearest points of every number that is none.

    The neighbours are in the order of distance, and of the grid where distances are equal.

    Parameters
    ----------
    name : str
        IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S or IQ1_S.

    Examples
    --------
    >>> from floatsim.quantization.gguf_points import neighbours_of
    >>> neighbours_of("IQ3_XXS").places.shape, len(neighbours_of("IQ3_XXS").index_of)
    ((256, 4), 4096)
    """
    grid = grid_of(name)
    numbers, levels = np.unique(grid, return_inverse=True)
    count, width, levels = len(numbers), grid.shape[1], levels.reshape(grid.shape)
    digits = np.arange(count**width)[:, None] // count ** np.arange(width) % count
    index_of = np.full(len(digits), -1, np.int32)
    index_of[levels @ count ** np.arange(width)] = np.arange(len(levels))
    starts, found = np.zeros(len(digits) + 1, np.int64), []
    squares = (levels**2).sum(axis=1)
    for number in np.flatnonzero(index_of < 0):
        distances = squares - 2 * (levels @ digits[number])
        order = np.argsort(distances, kind="stable")
        sorted_distances = distances[order]
        rank = np.cumsum(sorted_distances[1:] != sorted_distances[:-1])
        own = order[: 1 + int(np.searchsorted(rank, _DISTANCES[name]))]
        starts[number + 1] = len(own)
        found.append(own)
    places = (levels + count * np.arange(width)).astype(np.uint8)
    return Neighbours(places, index_of, np.cumsum(starts), np.concatenate(found).astype(np.uint16))


def _nearest_entry(x: Array, values: Array) -> Array:
    """Return the index of the nearest entry of a sorted table; the larger one of two at equal FP32 distance."""
    above = np.clip(np.searchsorted(values, x, side="right"), 1, len(values) - 1)
    below = above - 1
    return np.where(x - values[below] < values[above] - x, below, above)


@functools.cache
def _bounds() -> tuple[Array, Array]:
    """Return the smallest float32 numbers nearest to each entry of the table of IQ4 but the first, and the table."""
    values = np.array(packing_of(GGUF_TYPES["IQ4_NL"]).entries[:16], np.float32)
    low, high = values[:-1].copy(), values[1:].copy()
    want = np.arange(1, 16)
    while True:  # bisection: `high` has the index, `low` has not
        middle = (low + high) / _F(2)
        inside = (middle > low) & (middle < high)
        if not inside.any():
            return high, values
        reached = _nearest_entry(middle, values) >= want
        high, low = np.where(inside & reached, middle, high), np.where(inside & ~reached, middle, low)


# -- bytes -------------------------------------------------------------------------------------------------------------


def _bytes(x: Array, dtype: str = "u1") -> Array:
    """Return integers (blocks, numbers) as bytes (blocks, bytes)."""
    return np.ascontiguousarray(x.astype(dtype)).view(np.uint8).reshape(len(x), -1)


def _half(x: Array) -> Array:
    """Return float32 numbers (blocks,) as the bytes of FP16 numbers, (blocks, 2)."""
    return _bytes(x.reshape(-1, 1), "<f2")


def _joined(x: Array, bits: int, count: int) -> Array:
    """Return numbers of `bits` bits, `count` of them in each integer, the first one in the lowest bits."""
    parts = x.reshape(len(x), -1, count).astype(np.uint32)
    joined: Array = np.bitwise_or.reduce(parts << (bits * np.arange(count, dtype=np.uint32)), axis=2)
    return joined


def _words(signs: Array, steps: Array) -> Array:
    """Return 32-bit words: four times 7 bits of signs, and the scale of the group."""
    words: Array = _joined(signs, 7, 4) | steps.astype(np.uint32) << 28
    return words


# -- grids -------------------------------------------------------------------------------------------------------------


def _points(name: str, rule: Rule, pack: Callable[..., list[Array]]) -> Callable[[Array, Array | None], Fields]:
    """Return the function of a type: `pack` returns the fields of points, signs and integer scales."""

    def quantize(x: Array, weights: Array | None) -> Fields:
        index, signs, steps, scales = fit_points(x, weights, rule, neighbours_of(name))
        return None, [_half(scales), *pack(index, signs, steps)]

    return quantize


def _iq2_xxs(index: Array, signs: Array, steps: Array) -> list[Array]:
    words = np.stack([_joined(index, 8, 4), _words(signs, steps)], axis=2)
    return [_bytes(words.reshape(len(index), -1), "<u4")]


def _iq2_xs(index: Array, signs: Array, steps: Array) -> list[Array]:
    return [_bytes(index | signs.astype(np.uint16) << 9, "<u2"), _bytes(_joined(steps, 4, 2))]


def _iq2_s(index: Array, signs: Array, steps: Array) -> list[Array]:
    return [_bytes(index & 255), signs, _bytes(_joined(index >> 8, 2, 4)), _bytes(_joined(steps, 4, 2))]


def _iq3_xxs(index: Array, signs: Array, steps: Array) -> list[Array]:
    return [_bytes(index), _bytes(_words(signs, steps), "<u4")]


def _iq3_s(x: Array, weights: Array | None) -> Fields:
    """Quantize to IQ3_S. As in ggml, groups of zeros have no points and signs: those of later groups move up.

    The highest bits of the points stay in place. So a block with a group of zeros before another group is damaged.
    """
    index, signs, steps, scales = fit_points(x, weights, _RULES["IQ3_S"], neighbours_of("IQ3_S"))
    zeros = ~x.reshape(-1, 8, 32).any(axis=2)
    order = np.argsort(zeros, axis=1, kind="stable")[:, :, None]
    low, moved = (np.take_along_axis(each.reshape(len(x), 8, -1), order, axis=1) for each in (index & 255, signs))
    return None, [
        _half(scales), _bytes(low.reshape(len(x), -1)), _bytes(_joined(index >> 8, 1, 8)), moved.reshape(len(x), -1),
        _bytes(_joined(steps, 4, 2)),
    ]  # fmt: skip


def _iq1_s(x: Array, weights: Array | None) -> Fields:
    index, negative, steps, scales = fit_ternary(x, weights, False, 1e-12, 1.125, neighbours_of("IQ1_S"))
    high = _joined(index >> 8, 3, 4) | (steps.astype(np.uint32) | negative[:, ::4].astype(np.uint32) << 3) << 12
    return None, [_half(scales), _bytes(index & 255), _bytes(high, "<u2")]


def _iq1_m(x: Array, weights: Array | None) -> Fields:
    index, negative, steps, scales = fit_ternary(x, weights, True, 1e-7, 1.1125, neighbours_of("IQ1_S"))
    high = _joined((index >> 8).astype(np.uint8) | negative << 3, 4, 2)
    d = scales.astype("<f2").view("<u2").reshape(-1, 1).astype(np.uint32)
    words = _joined(steps, 3, 4) | (d >> np.array([0, 4, 8, 12], np.uint32) & 15) << 12
    return None, [_bytes(index & 255), _bytes(high), _bytes(words, "<u2")]


def _iq4_nl(x: Array, weights: Array | None) -> Fields:
    codes, _, scales = fit_entries(x, weights, *_bounds(), 7)
    return codes, [_half(scales)]


def _iq4_xs(x: Array, weights: Array | None) -> Fields:
    codes, steps, scales = fit_entries(x, weights, *_bounds(), 7)
    steps = (steps + np.int8(32)).astype(np.uint8)
    return codes, [_half(scales), _bytes(_joined(steps >> 4, 2, 8), "<u2"), _bytes(_joined(steps & 15, 4, 2))]


def _rule(
    group: int, levels: int, even: bool, tries: int, step: float, least: float, doubled: float, own: int, again: int,
    factor: float, fitted: bool = False,
) -> Rule:  # fmt: skip
    """Return the parameters of the kernel. The types with 8 signs of 8 elements keep points without a scale."""
    return Rule(group, levels, even, tries, _F(step), _F(least), _F(doubled), own, fitted, again, not even, _F(factor))


_SMALLEST = float(np.finfo(np.float32).smallest_subnormal)

_RULES = {
    "IQ2_XXS": _rule(32, 3, True, 6, 0.1, 1e-15, 1, SQUARES, ALL_POINTS, 1, fitted=True),
    "IQ2_XS": _rule(16, 3, True, 9, 0.1, 1e-15, 1, SQUARES, OFF_GRID, 1),
    "IQ2_S": _rule(16, 3, False, 9, 0.1, 1e-8, 2, SQUARES_AND_MEAN, OFF_GRID, 0.9875),
    "IQ3_XXS": _rule(32, 8, True, 15, 0.2, 1e-8, 2, SQUARES, OFF_GRID, 1.0125),
    "IQ3_S": _rule(32, 8, False, 9, 0.2, _SMALLEST, 2, SQUARES, ALL_IF_ONE_IS_OFF_GRID, 1.033),
}

POINT_QUANTIZERS: dict[str, tuple[Callable[[Array, Array | None], Fields], tuple[int, ...]]] = {
    "IQ2_XXS": (_points("IQ2_XXS", _RULES["IQ2_XXS"], _iq2_xxs), (0, 2)),
    "IQ2_XS": (_points("IQ2_XS", _RULES["IQ2_XS"], _iq2_xs), (0, 2, 66)),
    "IQ2_S": (_points("IQ2_S", _RULES["IQ2_S"], _iq2_s), (0, 2, 34, 66, 74)),
    "IQ3_XXS": (_points("IQ3_XXS", _RULES["IQ3_XXS"], _iq3_xxs), (0, 2, 66)),
    "IQ3_S": (_iq3_s, (0, 2, 66, 74, 106)),
    "IQ1_S": (_iq1_s, (0, 2, 34)),
    "IQ1_M": (_iq1_m, (0, 32, 48)),
    "IQ4_NL": (_iq4_nl, (0,)),
    "IQ4_XS": (_iq4_xs, (0, 2, 4)),
}
"""Functions of blocks and their weights that return codes, or None, and fields; and the first bytes of the fields."""
