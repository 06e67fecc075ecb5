"""The division of results into tiles, and the memory that the tiles of a thread use again."""

from __future__ import annotations

import itertools
import math
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "LANES", "LONG_ROW", "PARTIAL_RESULTS", "SCRATCH", "WORTH_THREADS", "Tile", "by_vectors", "single_rows",
    "tile_work", "tiles",
]  # fmt: skip


class Tile(NamedTuple):
    """A piece of the result: matrices, rows and columns."""

    batch: slice
    rows: slice
    columns: slice


_FAST_TILE, _COUNTING_TILE, _INTEGER_TILE = 1 << 27, 1 << 24, 1 << 21
"""Multiply-adds of a tile: some tens of milliseconds by fast kernels, by counting ones, and by integer ones."""
_IN_CACHES, _PANEL_ROWS, _NARROWEST, _WIDEST = 1 << 20, 64, 128, 512
"""Elements of b that stay in the caches without panels, rows of a tile below which b is loaded too often, and the
columns of a panel of b."""
_PARTIAL_VALUES = 1 << 19  # values of partial results in a tile: 4 MB of float64, which stay in the caches
WORTH_THREADS = 1 << 24
"""Multiply-adds from which a second thread pays."""
LANES = 16
"""float32 numbers in a vector register of 512 bits."""
_FEW, _LONG = 4, 256  # results, and terms of each, from which kernels for single vectors pay
LONG_ROW = 32
"""Terms of a result, together in memory, from which kernels for single vectors pay for any number of results."""


def tile_work(fast: bool, record: bool) -> int:
    """Return the multiply-adds of a tile."""
    if not fast:
        return _INTEGER_TILE
    return _COUNTING_TILE if record else _FAST_TILE


def by_vectors(results: int, depth: int, together: bool) -> bool:
    """Return whether kernels for single vectors pay; `together`: the terms of each result lie together in memory."""
    return (results <= _FEW and depth >= _LONG) or (together and depth >= LONG_ROW)


def tiles(
    shape: tuple[int, int, int], depth: int, partials: int, work: int, threads: int, whole_rows: bool = False
) -> list[Tile]:
    """Return tiles of a result (batch, M, N).

    The tiles of wide matrices lie in panels of a few columns, and tiles of one panel follow each other. So the
    operands stay in the caches.

    Parameters
    ----------
    depth : int
        Terms of each element.
    partials : int
        Partial results that an element needs at the same time.
    work : int
        Multiply-adds of a tile at most, where rows can be cut that small.
    threads : int
        Large results are cut into at least four tiles for each.
    whole_rows : bool
        Whether each tile must be contiguous in the result's memory.
    """
    batch, rows, columns = shape
    total, per_cell = batch * rows * columns, max(depth, 1)
    cells = max(1, min(work // per_cell, max(_PARTIAL_VALUES // partials, 1)))
    if threads > 1 and total * per_cell > WORTH_THREADS:
        cells = min(cells, -(-total // (4 * threads)))
    if total <= cells:
        return [Tile(slice(0, batch), slice(0, rows), slice(0, columns))]
    if rows * columns <= cells:
        every = max(1, cells // max(1, rows * columns))
        return [
            Tile(slice(n, min(n + every, batch)), slice(0, rows), slice(0, columns)) for n in range(0, batch, every)
        ]
    width = min(columns, cells)
    if not whole_rows and depth * columns > _IN_CACHES and cells // columns < _PANEL_ROWS:
        width = min(width, max(_NARROWEST, min(cells // _PANEL_ROWS, _WIDEST)))
    height = max(1, cells // width)
    across, down = range(0, columns, width), range(0, rows, height)
    corners = ((i, j) for i in down for j in across) if whole_rows else ((i, j) for j in across for i in down)
    return [
        Tile(slice(n, n + 1), slice(i, min(i + height, rows)), slice(j, min(j + width, columns)))
        for n, (i, j) in itertools.product(range(batch), corners)
    ]


def single_rows(tile: Tile) -> list[Tile]:
    """Return the rows of a tile as tiles. The elements of each have consecutive numbers in any larger matrix."""
    batch, rows, columns = tile
    return [
        Tile(slice(n, n + 1), slice(i, i + 1), columns)
        for n in range(batch.start, batch.stop)
        for i in range(rows.start, rows.stop)
    ]


# -- memory: new memory costs as much as the sums of a small product ---------------------------------------------------

_LINE = 64
"""Bytes of a cache line. A vector across two lines costs twice."""


class _PartialResults(threading.local):
    """The partial results of one tile. The thread's next tile uses the same memory."""

    _MOST = 1 << 23  # bytes of a block worth keeping

    def __init__(self) -> None:
        self._blocks: list[NDArray[np.uint8]] = []
        self._taken = 0

    def clear(self) -> None:
        """Start a tile: all blocks can be taken again."""
        self._taken = 0

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return uninitialised memory until the next `clear`."""
        size = math.prod(shape) * dtype.itemsize
        if size > self._MOST:
            return np.empty(shape, dtype)
        if self._taken == len(self._blocks):
            self._blocks.append(np.empty(size, np.uint8))
        elif self._blocks[self._taken].size < size:
            self._blocks[self._taken] = np.empty(size, np.uint8)
        found = self._blocks[self._taken][:size].view(dtype).reshape(shape)
        self._taken += 1
        return found


class _Scratch(threading.local):
    """The scratch rows of one kernel. The thread's next kernel uses the same memory."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def take(self, rows: int, width: int, dtype: np.dtype[Any], used: int) -> NDArray[Any]:
        """Return an array (rows, width) until the next `take`. Its first row starts on a cache line.

        The first `used` columns hold zeros, the others are uninitialised.
        """
        size = rows * width * dtype.itemsize
        if self._memory.size < size:
            memory = np.empty(size + _LINE, np.uint8)
            self._memory = memory[-memory.__array_interface__["data"][0] % _LINE :]
        found = self._memory[:size].view(dtype).reshape(rows, width)
        found[:, :used] = 0
        return found


PARTIAL_RESULTS, SCRATCH = _PartialResults(), _Scratch()
