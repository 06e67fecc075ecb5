"""Counts of the distances of two arrays in ulps, and the distance of one rank, on several threads.

The distance of a rank is found as in R. W. Floyd and R. L. Rivest, "Expected time bounds for selection",
Communications of the ACM 18(3), 1975. A sample gives two bounds that enclose it with high probability. One pass over
the arrays counts the distances below and at the bounds, and collects the few between them. The result is exact: bounds
that do not enclose the rank are replaced by wider ones.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from floatsim_kernels.elementwise import distances as loops

from floatsim.emulator.parallel import get_num_threads, run
from floatsim.emulator.params import pack
from floatsim.formats import FloatFormat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["Distances", "count_distances"]

_PIECE = 1 << 20  # elements of one piece of work: a multiple of the kernel's blocks
_SAMPLE = 1 << 13  # pairs: twice as many take as much longer as the fewer distances between the bounds save
_STEP = 0x9E3779B1  # 2**32 divided by the golden ratio: its multiples modulo 2**32 are evenly spread
_WIDTHS = 3, 24  # standard deviations from the rank in the sample to the bounds: 3 are too few once in 400 arrays


class Distances(NamedTuple):
    """The number of pairs by distance. NaNs of both arrays are 0 apart; a NaN and a number have no distance.

    `classes[n]` is the number of the distances d > 0 with n bits in d - 1: 1, 2, 3-4, 5-8 and so on. `ranked` is the
    distance of the rank that was asked for, or None if a NaN and a number have it.
    """

    elements: int
    equal: int
    zeros: int
    nans: int
    nan: int
    largest: int
    classes: list[int]
    ranked: int | None


class _Pass(NamedTuple):
    """The counts of classes, the totals, and the distances between the bounds."""

    counts: NDArray[np.int64]
    totals: NDArray[np.uint64]
    between: list[Any]


def count_distances(a: NDArray[Any], b: NDArray[Any], fmt: FloatFormat, rank: int) -> Distances:
    """Count the distances of two arrays of codes, of one format and shape, and find the distance of a rank.

    The least distance has the rank 1, and pairs of a NaN and a number have the last ranks. The rank of empty arrays is
    0, and its distance, too.
    """
    left, right = (np.ascontiguousarray(x).reshape(-1) for x in (a, b))
    params, none = _params(fmt), int(np.iinfo(left.dtype).max)
    for low, high in _bounds(left, right, params, rank):
        found = _count(left, right, params, low, high)
        ranked = _distance(found, low, high, rank) if rank else 0
        if ranked is not None:
            break
    zeros, nans, nan = loops.last_classes(8 * left.itemsize)
    counts = found.counts.tolist()
    return Distances(
        left.size, counts[loops.EQUAL], counts[zeros], counts[nans], counts[nan], int(found.totals[loops.LARGEST]),
        counts[loops.FIRST : zeros], None if ranked == none else ranked,
    )  # fmt: skip


def _params(fmt: FloatFormat) -> NDArray[Any]:
    every = fmt.sign_mask | fmt.magnitude_mask
    limit = fmt.max_code if fmt.infinity_code is None else fmt.infinity_code
    flip, keep = 0, fmt.magnitude_mask
    if fmt.canonical_nan is not None and fmt.canonical_nan == fmt.sign_mask:  # the code of -0 is the only NaN
        flip, keep, limit = fmt.magnitude_mask, every, every - 1
    fields = {"sign": fmt.sign_mask, "magnitude": fmt.magnitude_mask, "flip": flip, "keep": keep, "limit": limit}
    return pack(loops.FIELDS, fields, fmt.code_dtype)


def _count(a: NDArray[Any], b: NDArray[Any], params: NDArray[Any], low: int, high: int) -> _Pass:
    """Count the distances of two flat arrays, and collect those between the bounds."""
    bits, whole = 8 * a.itemsize, a.size // loops.BLOCK * loops.BLOCK
    kernel, bounds = loops.count(bits), (np.uint64(low), np.uint64(high))
    found = _Pass(np.zeros(loops.last_classes(bits)[-1] + 1, np.int64), np.zeros(loops.TOTALS, np.uint64), [])
    buffers: list[Any] = []
    lock = threading.Lock()

    def count(x: NDArray[Any], y: NDArray[Any]) -> None:
        counts, totals = np.zeros_like(found.counts), np.zeros_like(found.totals)
        try:
            buffer = buffers.pop()
        except IndexError:
            buffer = np.empty(_PIECE + 1, a.dtype)
        kernel(x, y, params, *bounds, buffer, counts, totals)
        between = buffer[: int(totals[loops.BETWEEN])].copy()
        buffers.append(buffer)
        with lock:
            largest = max(found.totals[loops.LARGEST], totals[loops.LARGEST])
            np.add(found.counts, counts, out=found.counts)
            np.add(found.totals, totals, out=found.totals)
            found.totals[loops.LARGEST] = largest
            found.between.append(between)

    def piece(start: int) -> None:
        end = min(start + _PIECE, whole)
        count(a[start:end], b[start:end])

    run(range(0, whole, _PIECE), piece, get_num_threads(), "distances")
    rest = a.size - whole
    if rest:
        last = np.zeros((2, loops.BLOCK), a.dtype)
        last[0, :rest], last[1, :rest] = a[whole:], b[whole:]
        count(*last)
        added = loops.BLOCK - rest  # pairs of equal bits
        found.counts[loops.EQUAL] -= added
        found.totals[loops.BELOW if low else loops.AT_LOW] -= np.uint64(added)
    return found


def _bounds(a: NDArray[Any], b: NDArray[Any], params: NDArray[Any], rank: int) -> Iterator[tuple[int, int]]:
    """Yield a lower and an upper bound of the distance of a rank, then wider ones, in the end of all distances.

    With a sample of m pairs, the share of smaller distances in the sample has the deviation sqrt(p (1 - p) / m).
    """
    least, none = 0, int(np.iinfo(a.dtype).max)
    if a.size > _SAMPLE:
        parts = np.arange(_SAMPLE + 1) * a.size // _SAMPLE
        steps = np.arange(_SAMPLE) * _STEP % (1 << 32)
        places = parts[:-1] + (steps * np.diff(parts) >> 32)  # one of each part, each at another place of its part
        found = _count(a[places], b[places], params, least, none)
        share = rank / a.size
        for width in _WIDTHS:
            half = math.ceil(width * math.sqrt(share * (1 - share) * _SAMPLE)) + 1
            middle = math.ceil(share * _SAMPLE)
            low, high = (_distance(found, least, none, middle + side) for side in (-half, half))
            yield least if low is None else low, none if high is None else high
    yield least, none


def _distance(found: _Pass, low: int, high: int, rank: int) -> int | None:
    """Return the distance of a rank, or None if it is not between the bounds of a pass, or equal to one of them."""
    below, at_low, between, at_high = found.totals[loops.BELOW :].tolist()
    rank -= below
    if 0 < rank <= at_low:
        return low
    rank -= at_low
    if 0 < rank <= between:
        return _of_rank(np.concatenate(found.between), rank)
    return high if 0 < rank - between <= at_high else None


def _of_rank(distances: NDArray[Any], rank: int) -> int:
    """Return the distance of a rank among some: by counts of each distance if few are possible, which is faster."""
    if distances.itemsize <= 2:
        return int(np.searchsorted(np.cumsum(np.bincount(distances)), rank))
    return int(np.partition(distances, rank - 1)[rank - 1])
