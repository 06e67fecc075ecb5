"""How a result is cut into tiles, and the memory that a tile takes."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.emulator.operands import Tile
from floatsim.emulator.types import Codes

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FAST_TILE", "GENERAL_TILE", "MEMORY", "RECORDED_TILE", "WORTH_THREADS", "lies_better_turned", "tiles_of"]


class _Memory(threading.local):
    """A thread's room for partial results, taken again by the next tile: new memory costs as much as sums."""

    _MOST = 1 << 23  # bytes of a block worth keeping

    def __init__(self) -> None:
        self._blocks: list[NDArray[np.uint8]] = []
        self._taken = 0

    def clear(self) -> None:
        self._taken = 0

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
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


MEMORY = _Memory()
FAST_TILE, RECORDED_TILE, GENERAL_TILE = 1 << 26, 1 << 24, 1 << 21  # multiply-adds: some tens of milliseconds
_PARTIAL_VALUES = 1 << 19  # values of partial results that a tile may hold: they should stay in the cache


def tiles_of(shape: tuple[int, int, int], depth: int, parts: int, work: int, threads: int) -> list[Tile]:
    """The result in pieces of at most `work` multiply-adds, where rows can be cut so; each contiguous."""
    batch, rows, columns = shape
    per_cell = max(depth, 1)
    cells = max(1, min(work // per_cell, max(_PARTIAL_VALUES // parts, 1)))
    if threads > 1 and batch * rows * columns * per_cell > WORTH_THREADS:
        cells = min(cells, -(-batch * rows * columns // (4 * threads)))
    if rows * columns <= cells:
        every = max(1, cells // max(1, rows * columns))
        return [
            Tile(slice(n, min(n + every, batch)), slice(0, rows), slice(0, columns)) for n in range(0, batch, every)
        ]
    found = []
    for n in range(batch):
        if columns <= cells:
            every = cells // columns
            found += [
                Tile(slice(n, n + 1), slice(i, min(i + every, rows)), slice(0, columns)) for i in range(0, rows, every)
            ]
        else:
            found += [
                Tile(slice(n, n + 1), slice(i, i + 1), slice(j, min(j + cells, columns)))
                for i in range(rows)
                for j in range(0, columns, cells)
            ]
    return found


WORTH_THREADS = 1 << 24
_LANES = 16  # of a vector register


def lies_better_turned(a: Codes, b: Codes) -> bool:
    """Whether rows of b.T @ a.T, which has the same bits, fill a vector register's lanes and those of a @ b do not."""
    columns: int = b.shape[2]
    rows: int = a.shape[1]
    return columns < min(_LANES, rows)
