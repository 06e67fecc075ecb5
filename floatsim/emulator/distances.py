"""Counts of the distances of two arrays in ulps, on several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from floatsim_kernels.elementwise import distances as loops

from floatsim.emulator.parallel import get_num_threads, run
from floatsim.emulator.params import order_params
from floatsim.formats import FloatFormat

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Distances", "count_distances", "distance_of_rank"]

_PIECE = 1 << 20  # elements of one piece of work: a multiple of the kernel's blocks
_SEGMENT = 1 << 31  # elements whose counts fit uint32: a multiple of a piece

_Work = Callable[[list[Any], Any], None]


class Distances(NamedTuple):
    """The number of pairs by distance. NaNs of both arrays are 0 apart; a NaN and a number have no distance.

    `counts[i]` is the number of the distances d > 0 whose `_place` is i. `classes[n]` is the number of the distances
    d > 0 with n bits in d - 1: 1, 2, 3-4, 5-8 and so on.
    """

    elements: int
    equal: int
    zeros: int
    nans: int
    nan: int
    largest: int
    counts: NDArray[np.uint64]
    classes: NDArray[np.uint64]


def _width(fmt: FloatFormat) -> int:
    return 8 * np.dtype(fmt.code_dtype).itemsize


def _place(beyond: int, width: int) -> int:
    """Return the index of the count of the distance beyond + 1, as `floatsim_kernels` defines it."""
    shift = 0 if width <= 16 else max(0, beyond.bit_length() - loops.STEPS - 1)
    return int(shift << loops.STEPS) + (beyond >> shift)


def _range(place: int, width: int) -> tuple[int, int]:
    """Return the least distance of a place, and the number of bits in which its distances differ."""
    shift = 0 if width <= 16 else max(0, (place >> loops.STEPS) - 1)
    return (place - (shift << loops.STEPS) << shift) + 1, shift


def _tables(a: NDArray[Any], b: NDArray[Any], shape: tuple[int, ...], work: _Work) -> Iterator[NDArray[np.uint32]]:
    """Yield the tables of counts that `work(arrays, table)` fills from pieces of the arrays: one for each thread."""
    left, right = (np.ascontiguousarray(x).reshape(-1) for x in (a, b))
    words = [x[: x.size // 8 * 8].view(np.uint64) for x in (left, right)]
    for segment in range(0, left.size, _SEGMENT):
        tables: list[Any] = []

        def piece(start: int, tables: list[Any] = tables) -> None:
            first, end = (at * left.itemsize // 8 for at in (start, start + _PIECE))
            arrays = [x[start : start + _PIECE] for x in (left, right)] + [x[first:end] for x in words]
            try:
                table = tables.pop()
            except IndexError:
                table = np.zeros(shape, np.uint32)
            work(arrays, table)
            tables.append(table)

        run(range(segment, min(segment + _SEGMENT, left.size), _PIECE), piece, get_num_threads(), "distances")
        yield from tables


def count_distances(a: NDArray[Any], b: NDArray[Any], fmt: FloatFormat) -> Distances:
    """Count the distances of two arrays of codes, of one format and shape."""
    width, params = _width(fmt), order_params(fmt)
    kernel, totals, lock = loops.count(width), np.zeros(loops.TOTALS, np.uint64), threading.Lock()

    def work(arrays: list[Any], table: Any) -> None:
        own = np.zeros_like(totals)
        kernel(*arrays, params, table, own)
        with lock:
            largest = max(totals[loops.LARGEST], own[loops.LARGEST])
            np.add(totals, own, out=totals)
            totals[loops.LARGEST] = largest

    tables = list(_tables(a, b, (loops.TABLES, loops.counts(width) + loops.SPARE), work))
    equal, zeros, nans, nan, largest = totals.tolist()
    counts = _folded(tables, width, largest)
    if width > 16 and counts.size == loops.counts(width):  # the last place has other pairs, too
        counts[-1] = a.size - equal - zeros - nans - nan - int(counts[:-1].sum())
    ends = [min(_place(1 << n, width), counts.size) for n in range(width + 1)]
    classes = [int(counts[low:high].sum()) for low, high in zip([0, *ends], ends, strict=False)]
    return Distances(a.size, equal, zeros, nans, nan, largest, counts, np.array(classes, np.uint64))


def _folded(tables: list[Any], width: int, largest: int) -> NDArray[np.uint64]:
    """Return the sums of the tables, from the distance 1 to the largest."""
    if largest == 0:
        return np.zeros(0, np.uint64)
    first = 1 if width == 16 else 0
    end = loops.counts(width) if width == 8 else first + _place(largest - 1, width) + 1
    found = np.zeros(end - first, np.uint64)
    for table in tables:
        for row in table:
            found += row[first:end]
    if width == 8:  # pairs of distances
        pairs = found.reshape(256, 256)
        found = np.add(pairs.sum(axis=0), pairs.sum(axis=1))[1 : largest + 1]
    return found


def distance_of_rank(a: NDArray[Any], b: NDArray[Any], fmt: FloatFormat, found: Distances, rank: int) -> int:
    """Return the distance > 0 of this rank among the distances > 0: 1 for the least.

    `found` has the counts of a and b. Counts of single distances give the rank at once. Otherwise each pass over the
    arrays finds 21 more bits.
    """
    width = _width(fmt)
    place, rank = _search(found.counts, rank)
    low, bits = _range(place, width)
    while bits:
        bits, shift = max(0, bits - loops.WINDOW_BITS), bits
        place, rank = _search(_window(a, b, fmt, low, shift, bits), rank)
        low += place << bits
    return low


def _search(counts: NDArray[np.uint64], rank: int) -> tuple[int, int]:
    """Return the place that has this rank, and the rank within the place."""
    below = np.cumsum(counts, dtype=np.uint64)
    place = int(np.searchsorted(below, np.uint64(rank)))
    return place, rank - (int(below[place - 1]) if place else 0)


def _window(a: NDArray[Any], b: NDArray[Any], fmt: FloatFormat, low: int, bits: int, shift: int) -> NDArray[np.uint64]:
    """Return the counts of the distances from low to low + 2**bits - 1, 2**shift to a place."""
    kernel, params = loops.window(_width(fmt)), order_params(fmt)
    span = np.uint64((1 << bits) - 1)

    def work(arrays: list[Any], table: Any) -> None:
        kernel(*arrays, params, np.uint64(low), span, np.uint64(shift), table)

    found = np.zeros(1 << bits - shift, np.uint64)
    for table in _tables(a, b, found.shape, work):
        found += table
    return found
