"""What is summed: products of two matrices, or values, as the kernels want to see them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from floatsim.emulator.tensorcore_operands import BlockScales, Matrix
from floatsim.emulator.unpack import narrow, widen
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats.value_sets import Terms, embeds

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Operand", "Partials", "Products", "Source", "Tile", "Values"]

Codes: TypeAlias = "NDArray[np.unsignedinteger[Any]]"
Floats: TypeAlias = "NDArray[np.floating[Any]]"
Indices: TypeAlias = "NDArray[np.int64]"

_ONE = np.array(FP32.emax << FP32.trailing_bits, np.uint64)


class Operand:
    """The codes of a stack of matrices, and what the kernels want to see of them, made once."""

    def __init__(self, codes: Codes, fmt: FloatFormat) -> None:
        self.codes, self.format = codes, fmt
        self._floats: dict[FloatFormat, Floats] = {}
        self._lock = threading.Lock()

    @cached_property
    def wide(self) -> Codes:
        """As uint64: the general kernels are long to compile, so there is one of each, for all codes."""
        return np.ascontiguousarray(self.codes, dtype=np.uint64)

    def floats(self, carrier: FloatFormat) -> Floats:
        """As the carrier's floats, C-contiguous."""
        with self._lock:
            if carrier not in self._floats:
                self._floats[carrier] = widen(self.codes, self.format, carrier)
            return self._floats[carrier]


class Tile(NamedTuple):
    """A piece of the result: matrices, rows and columns; contiguous in the result's memory."""

    batch: slice
    rows: slice
    columns: slice


class Products:
    """The terms a[i, k] * b[k, j] of a tile of the result."""

    def __init__(
        self, a: Operand, b: Operand, tile: Tile, shape: tuple[int, int, int], pairs: Indices,
        scales: BlockScales | None = None,
    ) -> None:  # fmt: skip
        self._a, self._b, self._tile = a, b, tile
        self.shape = tuple(s.stop - s.start for s in tile)
        _, rows, columns = shape
        base = (tile.batch.start * rows + tile.rows.start) * columns + tile.columns.start
        self.index = np.array([base, rows * columns, columns, 1], np.int64)
        self.terms = Terms(a.format, b.format)
        self._pairs = pairs[tile.batch]
        self._scales = scales
        self.length = a.codes.shape[2]

    @property
    def where(self) -> Indices:
        return np.arange(self.length, dtype=np.int64)

    def codes(self) -> tuple[Codes, FloatFormat, Codes, FloatFormat]:
        a, b = self._cut(self._a.wide, self._b.wide)
        return a, self._a.format, b, self._b.format

    def matrices(self) -> tuple[Matrix, Matrix]:
        """Codes of the formats' own dtypes, and values as float32 where that has them all."""
        codes = self._cut(self._a.codes, self._b.codes)
        formats = self._a.format, self._b.format
        if FP64 in formats:
            return Matrix(codes[0], formats[0]), Matrix(codes[1], formats[1])
        a, b = self._cut(self._a.floats(FP32), self._b.floats(FP32))
        return Matrix(codes[0], formats[0], a), Matrix(codes[1], formats[1], b)

    def _cut(self, a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The tile's part of two stacks; of single matrices a view."""
        n, (_, i, j) = self._pairs, self._tile
        if len(n) == 1:
            (left, right), *_ = n
            return a[left : left + 1, i], b[right : right + 1, :, j]
        return a[n[:, 0], i], b[n[:, 1], :, j]

    def scales(self) -> BlockScales | None:
        """Those of the tile's operands, if they have some."""
        if self._scales is None:
            return None
        return BlockScales(*self._cut(self._scales.a, self._scales.b), self._scales.of)

    def floats(self, carrier: FloatFormat) -> Iterator[tuple[Floats, Floats]]:
        a, b = self._a.floats(carrier), self._b.floats(carrier)
        for left, right in self._pairs:
            yield a[left, self._tile.rows], np.ascontiguousarray(b[right, :, self._tile.columns])


class Values:
    """Terms that are no products: values of one format, (K, cells); the largest original index of each in `where`."""

    def __init__(self, values: Partials, base: int, where: Indices) -> None:
        self.values, self.where = values, where
        self.length, cells = values.shape
        self.shape = (1, 1, cells)
        self.index = np.array([base, 0, 0, 1], np.int64)
        self.terms = Terms(values.format)

    def codes(self) -> tuple[Codes, FloatFormat, Codes, FloatFormat]:
        ones = np.broadcast_to(_ONE, (1, 1, self.length))
        return ones, FP32, self.values.codes[np.newaxis].astype(np.uint64, copy=False), self.values.format

    def floats(self, carrier: FloatFormat) -> Iterator[tuple[Floats, Floats]]:
        yield _ones(self.length, carrier), self.values.floats(carrier)


@lru_cache(maxsize=64)
def _ones(n: int, carrier: FloatFormat) -> Floats:
    ones: Floats = np.ones((1, n), carrier.dtype)
    ones.flags.writeable = False
    return ones


Source: TypeAlias = "Products | Values"


class Partials:
    """The results of some ranges, (ranges, cells), as codes or as a carrier's floats, whichever was computed."""

    def __init__(
        self, fmt: FloatFormat, codes: Codes | None = None, floats: tuple[FloatFormat, Floats] | None = None
    ) -> None:
        self.format = fmt
        self._codes, self._floats = codes, dict([floats] if floats else [])

    @property
    def shape(self) -> tuple[int, int]:
        rows, cells = (self._codes if self._codes is not None else next(iter(self._floats.values()))).shape
        return rows, cells

    @property
    def codes(self) -> Codes:
        """Of the format's own dtype, or as uint64."""
        if self._codes is None:
            carrier, floats = next(iter(self._floats.items()))
            self._codes = narrow(floats, carrier, self.format)
        return self._codes

    def floats(self, carrier: FloatFormat) -> Floats:
        if carrier not in self._floats:
            other = {FP32: FP64, FP64: FP32}.get(carrier)
            if other in self._floats and (other == FP32 or embeds(self.format, FP32)):
                self._floats[carrier] = self._floats[other].astype(carrier.dtype)
            else:
                codes = self.codes.astype(self.format.code_dtype, copy=False)
                self._floats[carrier] = widen(codes, self.format, carrier)
        return self._floats[carrier]
