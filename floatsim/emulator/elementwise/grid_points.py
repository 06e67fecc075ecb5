"""Fits of blocks of numbers by the points of a grid or by the entries of a table: the IQ types of GGUF files.

The kernels compute in hardware floats: they need `environment_is_default()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from floatsim_kernels.quantization import grids as loops
from floatsim_kernels.quantization.grids import Rule

from floatsim.emulator import parallel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

__all__ = [
    "ALL_IF_ONE_IS_OFF_GRID", "ALL_POINTS", "OFF_GRID", "SQUARES", "SQUARES_AND_MEAN", "Neighbours", "Rule",
    "fit_entries", "fit_points", "fit_ternary",
]  # fmt: skip

ALL_POINTS, OFF_GRID, ALL_IF_ONE_IS_OFF_GRID = loops.ALL_POINTS, loops.OFF_GRID, loops.ALL_IF_ONE_IS_OFF_GRID
SQUARES, SQUARES_AND_MEAN = loops.SQUARES, loops.SQUARES_AND_MEAN

_PIECE = 64  # blocks that one thread takes at a time: 2**14 elements take milliseconds
_NO_WEIGHTS = np.zeros((0, 0), np.float32)


class Neighbours(NamedTuple):
    """The points of a grid, and the nearest points of each number whose digits are levels.

    `places` is uint8 (points, elements): level + levels * element. `index_of` is int32: the point of each number, the
    lowest digit first, or -1. `neighbours` from `starts[number]` to `starts[number + 1]` are the points next to one
    that is no point of the grid.
    """

    places: Array
    index_of: Array
    starts: Array
    neighbours: Array


def _in_pieces(blocks: int, size: int, work: Callable[[slice], int]) -> None:
    """Call `work` on slices of blocks, on all threads. It returns 0 or the number of a block that it cannot fit."""

    def checked(part: slice) -> None:
        failed = work(part)
        if failed:
            raise OverflowError(f"block {part.start + failed - 1} has no point with a finite error")

    parallel.run_rows(blocks, max(1, _PIECE * 256 // size), checked, parallel.get_num_threads(), "quantize")


def _of(weights: Array | None, part: slice) -> Array:
    return _NO_WEIGHTS if weights is None else weights[part]


def fit_points(x: Array, weights: Array | None, rule: Rule, grid: Neighbours) -> tuple[Array, Array, Array, Array]:
    """Return points, signs, integer scales and scales of blocks: `floatsim_kernels.quantization.grids.fit`.

    Raise an OverflowError if no point of a block has a finite weighted error.
    """
    count = len(x)
    index = np.empty((count, 256 // grid.places.shape[1]), np.uint16)
    signs, steps = np.empty((count, 32), np.uint8), np.empty((count, 256 // rule.group), np.uint8)
    scales = np.empty(count, np.float32)
    out = index, signs, steps, scales
    _in_pieces(count, 256, lambda part: int(
        loops.fit(x[part], _of(weights, part), rule, *grid, *(each[part] for each in out))
    ))  # fmt: skip
    return out


def fit_ternary(
    x: Array, weights: Array | None, halves: bool, least: float, factor: float, grid: Neighbours
) -> tuple[Array, Array, Array, Array]:
    """Return points, shifts, integer scales and scales: `floatsim_kernels.quantization.grids.fit_ternary`.

    Raise an OverflowError if no point of a block has a finite weighted error.
    """
    count = len(x)
    index, negative = np.empty((count, 32), np.uint16), np.empty((count, 32), np.uint8)
    steps, scales = np.empty((count, 16 if halves else 8), np.uint8), np.empty(count, np.float32)
    out, numbers = (index, negative, steps, scales), (np.float32(least), np.float32(factor))
    _in_pieces(count, 256, lambda part: int(
        loops.fit_ternary(x[part], _of(weights, part), halves, *numbers, *grid, *(each[part] for each in out))
    ))  # fmt: skip
    return out


def fit_entries(
    x: Array, weights: Array | None, bounds: Array, values: Array, tries: int
) -> tuple[Array, Array, Array]:
    """Return codes, integer scales and scales of blocks: `floatsim_kernels.quantization.grids.fit_entries`."""
    count, size = x.shape
    out = np.empty((count, size), np.uint8), np.zeros((count, size // 32), np.int8), np.empty(count, np.float32)
    numbers = bounds.astype(np.float32), values.astype(np.float32)

    def work(part: slice) -> int:
        loops.fit_entries(x[part], _of(weights, part), *numbers, tries, *(each[part] for each in out))
        return 0

    _in_pieces(count, size, work)
    return out
