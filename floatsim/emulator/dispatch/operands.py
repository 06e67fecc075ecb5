"""The terms of a sum: products of two matrices, or values, as codes and as hardware floats."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Hashable, Iterator
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np

from floatsim._types import Codes, Floats, Indices
from floatsim.emulator.dispatch.tensorcore_operands import BlockScales, Matrix
from floatsim.emulator.dispatch.tiling import Tile
from floatsim.emulator.unpack import pack, unpack
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats.value_sets import contains

__all__ = ["Operand", "Partials", "Products", "Source", "Values"]

Change: TypeAlias = "Callable[[Codes, FloatFormat], tuple[Codes, FloatFormat]]"
"""From codes and their format to other ones."""

_ONE = np.array(FP32.emax << FP32.trailing_bits, np.uint64)


class Operand:
    """The codes of a stack of matrices, and the forms of them that kernels read, each made once."""

    def __init__(self, codes: Codes, fmt: FloatFormat) -> None:
        self.codes, self.format = codes, fmt
        self._floats: dict[int, Floats] = {}  # by the bits of the carrier
        self._taken: dict[int, tuple[Indices, Operand]] = {}  # by the identity of the terms, which are kept
        self._changed: dict[Hashable, Operand] = {}
        self._panel: tuple[tuple[int, ...], Floats] | None = None
        self._lock = threading.Lock()

    @cached_property
    def wide(self) -> Codes:
        """The codes as uint64. The integer kernels take long to compile, so there is one of each for all codes."""
        return np.ascontiguousarray(self.codes, dtype=np.uint64)

    def floats(self, carrier: FloatFormat) -> Floats:
        """Return the values as floats of the carrier, C-contiguous."""
        with self._lock:
            found = self._floats.get(carrier.bits)
            if found is None:
                found = self._floats[carrier.bits] = unpack(self.codes, self.format, carrier)
            return found

    def panel(self, carrier: FloatFormat, matrix: int, columns: slice) -> Floats:
        """Return some columns of one matrix as floats of the carrier, C-contiguous. The last panel is kept."""
        floats = self.floats(carrier)[matrix, :, columns]
        if floats.flags.c_contiguous:
            return floats
        key = carrier.bits, matrix, columns.start, columns.stop
        with self._lock:
            if self._panel is None or self._panel[0] != key:
                self._panel = key, np.ascontiguousarray(floats)
            return self._panel[1]

    def taken(self, terms: Indices, axis: int) -> Operand:
        """Return the operand with these terms along an axis, made once for one array of terms."""
        with self._lock:
            found = self._taken.get(id(terms))
            if found is None:
                found = self._taken[id(terms)] = terms, Operand(np.take(self.codes, terms, axis), self.format)
            return found[1]

    def changed(self, name: Hashable, change: Change) -> Operand:
        """Return the operand with other codes, made once for each name."""
        with self._lock:
            found = self._changed.get(name)
            if found is None:
                found = self._changed[name] = Operand(*change(self.codes, self.format))
            return found


class Products:
    """The terms a[i, k] * b[k, j] of a tile of the result."""

    def __init__(
        self, a: Operand, b: Operand, tile: Tile, whole: tuple[int, int], pairs: Indices, base: int = 0,
        scales: BlockScales | None = None,
    ) -> None:  # fmt: skip
        self._a, self._b, self._tile = a, b, tile
        batch, i, j = tile
        self.shape = batch.stop - batch.start, i.stop - i.start, j.stop - j.start
        rows, columns = whole  # of the matrices by which elements are numbered
        first = base + (batch.start * rows + i.start) * columns + j.start
        self.index = np.array([first, rows * columns, columns, 1], np.int64)
        self._pairs = pairs[batch]
        self._scales = scales
        self._where: Indices | None = None
        self.length = a.codes.shape[2]

    @property
    def where(self) -> Indices:
        """The original index of each term."""
        return np.arange(self.length, dtype=np.int64) if self._where is None else self._where

    def taken(self, terms: Indices) -> Products:
        """Return these terms of the tile, in this order."""
        found = copy.copy(self)
        found._a, found._b = self._a.taken(terms, 2), self._b.taken(terms, 1)
        found._where, found.length = self.where[terms], len(terms)
        return found

    def changed(self, name: Hashable, change: Change) -> Products:
        """Return the tile with other operands: `change` of the codes and formats. A name stands for one change."""
        found = copy.copy(self)
        found._a, found._b = self._a.changed(name, change), self._b.changed(name, change)
        return found

    def beside(self, other: Products) -> Products:
        """Return the products of this tile's a and the other tile's b."""
        found = copy.copy(self)
        found._b = other._b
        return found

    def codes(self) -> tuple[Codes, FloatFormat, Codes, FloatFormat]:
        """Return the operands' codes as uint64, with their formats."""
        a, b = self._cut(self._a.wide, self._b.wide)
        return a, self._a.format, b, self._b.format

    def narrow_codes(self) -> tuple[Codes, FloatFormat, Codes, FloatFormat]:
        """Return the operands' codes in the dtypes of their formats, with their formats."""
        a, b = self._cut(self._a.codes, self._b.codes)
        return a, self._a.format, b, self._b.format

    def matrices(self, floats: bool) -> tuple[Matrix, Matrix]:
        """Return codes of the formats' own dtypes; with `floats`, the values as float32 where that holds them all."""
        a, b = self._cut(self._a.codes, self._b.codes)
        formats = self._a.format, self._b.format
        if not floats or FP64 in formats:
            return Matrix(a, formats[0]), Matrix(b, formats[1])
        x, y = self._a.floats(FP32), self._b
        left = [x[n, self._tile.rows] for n in self._pairs[:, 0].tolist()]
        right = [y.panel(FP32, n, self._tile.columns) for n in self._pairs[:, 1].tolist()]
        return Matrix(a, formats[0], left), Matrix(b, formats[1], right)

    def vectors(self) -> Iterator[tuple[Codes, Codes]]:
        """Yield a row of a and a column of b, as codes, for each result."""
        a, b = self._cut(self._a.codes, self._b.codes)
        for n, i, j in np.ndindex(*self.shape):
            yield a[n, i], b[n, :, j]

    def _cut(self, a: Codes | Floats, b: Codes | Floats) -> tuple[Any, Any]:
        """Return the tile's part of two stacks; of single matrices a view."""
        n, (_, i, j) = self._pairs, self._tile
        if len(n) == 1:
            (left, right), *_ = n
            return a[left : left + 1, i], b[right : right + 1, :, j]
        return a[n[:, 0], i], b[n[:, 1], :, j]

    def scales(self) -> BlockScales | None:
        """Return the scales of the tile's operands, if they have some."""
        if self._scales is None:
            return None
        return BlockScales(*self._cut(self._scales.a, self._scales.b), self._scales.of)

    def floats(self, carrier: FloatFormat) -> list[tuple[Floats, Floats, Indices]]:
        """Return (a, b, index) of each product of matrices: floats of the carrier, and the index of its results."""
        a = self._a.floats(carrier)
        first, matrix, row, column = self.index.tolist()
        found = []
        for n, (left, right) in enumerate(self._pairs.tolist()):
            panel = self._b.panel(carrier, right, self._tile.columns)
            found.append((a[left, self._tile.rows], panel, np.array([first + n * matrix, row, column])))
        return found


class Values:
    """Terms that are values of one format, (K, cells).

    `where` has the largest original index of each; by default the terms are numbered in order.
    """

    def __init__(self, values: Partials, base: int, where: Indices | None = None) -> None:
        self.values, self._where = values, where
        self.length, cells = values.shape
        self.shape = (1, 1, cells)
        self.index = np.array([base, 0, 0, 1], np.int64)

    @property
    def where(self) -> Indices:
        """The original index of each term. Most kernels do not need it, and it is long for a vector."""
        return np.arange(self.length, dtype=np.int64) if self._where is None else self._where

    def taken(self, terms: Indices) -> Values:
        """Return these terms, in this order."""
        return Values(self.values.taken(terms), int(self.index[0]), self.where[terms])

    def changed(self, name: Hashable, change: Change) -> Values:
        """Return the terms with other codes: `change` of the codes and the format."""
        codes, fmt = change(self.values.codes, self.values.format)
        return Values(Partials(fmt, codes), int(self.index[0]), self._where)

    def codes(self) -> tuple[Codes, FloatFormat, Codes, FloatFormat]:
        """Return the codes as the products of a row of ones with them."""
        ones = np.broadcast_to(_ONE, (1, 1, self.length))
        codes = np.ascontiguousarray(self.values.codes, np.uint64)
        return ones, FP32, codes[np.newaxis], self.values.format

    def floats(self, carrier: FloatFormat) -> list[tuple[Floats, Floats, Indices]]:
        """Return the values as one product of a row of ones with them."""
        return [(_ones(self.length, carrier), self.values.floats(carrier), self.index[[0, 2, 3]])]


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
        self._codes, self._floats = codes, floats

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (ranges, cells)."""
        held = self._codes if self._floats is None else self._floats[1]
        assert held is not None
        rows, cells = held.shape
        return rows, cells

    @property
    def codes(self) -> Codes:
        """The codes, of the format's own dtype or as uint64."""
        if self._codes is None:
            assert self._floats is not None
            carrier, floats = self._floats
            self._codes = pack(floats, carrier, self.format)
        return self._codes

    def taken(self, ranges: Indices) -> Partials:
        """Return the results of these ranges, in this order."""
        if self._floats is not None:
            carrier, floats = self._floats
            return Partials(self.format, floats=(carrier, floats[ranges]))
        assert self._codes is not None
        return Partials(self.format, self._codes[ranges])

    def floats(self, carrier: FloatFormat) -> Floats:
        """Return the values as floats of a carrier that holds them."""
        if self._floats is not None:
            held, floats = self._floats
            if held == carrier:
                return floats
            if held == FP32 or contains(FP32, self.format, specials=False):
                return floats.astype(carrier.dtype)
        return unpack(self.codes.astype(self.format.code_dtype, copy=False), self.format, carrier)
