"""Partitions: how composites split the terms of a sum, as ranges (start, stop, step) and sub-ranges."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from floatsim.accumulation.base import Accumulation
from floatsim.accumulation.composites import Blocked, SplitK, Strided

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Partition", "count", "partials", "partition", "rows"]

Indices: TypeAlias = "NDArray[np.int64]"


def rows(ranges: bytes) -> Indices:
    """Return ranges from their bytes, which are keys of caches."""
    return np.frombuffer(ranges, np.int64).reshape(-1, 3)


def count(ranges: Indices) -> Indices:
    """Return the number of terms of each range."""
    counts: Indices = (ranges[:, 1] - ranges[:, 0] + ranges[:, 2] - 1) // ranges[:, 2]
    return counts


def _blocks(start: int, stop: int, step: int, every: int) -> Indices:
    starts = np.arange(start, stop, every * step, dtype=np.int64)
    return np.stack([starts, np.minimum(starts + every * step, stop), np.full_like(starts, step)], axis=1)


def _cut(accumulation: Accumulation, start: int, stop: int, step: int) -> Indices:
    """Return the non-empty sub-ranges of a range, in the order in which the outer description adds them."""
    n = -(-(stop - start) // step)
    if isinstance(accumulation, Blocked):
        return _blocks(start, stop, step, min(accumulation.every, max(n, 1)))
    if isinstance(accumulation, SplitK):
        return _blocks(start, stop, step, max(1, -(-n // accumulation.parts)))
    assert isinstance(accumulation, Strided)
    lanes = min(accumulation.lanes, n)
    starts = start + step * np.arange(lanes, dtype=np.int64)
    return np.stack([starts, np.full_like(starts, stop), np.full_like(starts, step * accumulation.lanes)], axis=1)


class Partition(NamedTuple):
    """The sub-ranges that a composite splits ranges into.

    `parts` are the sub-ranges of all ranges, in order. `groups` has, for each range, its parts, as a range of indices.
    `counts` has their number. `numbers` has the number of each part within its range.
    """

    parts: Indices
    groups: Indices
    counts: Indices
    numbers: Indices


@lru_cache(maxsize=64)
def partition(accumulation: Accumulation, ranges: bytes) -> Partition:
    """Return the partition of ranges, which are given as the bytes of an (R, 3) int64 array."""
    cuts = [_cut(accumulation, *map(int, row)) for row in rows(ranges)]
    counts = np.array([len(cut) for cut in cuts], np.int64)
    ends = np.cumsum([0, *counts], dtype=np.int64)
    groups = np.stack([ends[:-1], ends[1:], np.ones(len(cuts), np.int64)], axis=1)
    numbers = np.concatenate([np.empty(0, np.int64), *(np.arange(len(cut), dtype=np.int64) for cut in cuts)])
    return Partition(np.concatenate([np.empty((0, 3), np.int64), *cuts]), groups, counts, numbers)


@lru_cache(maxsize=1024)
def partials(accumulation: Accumulation, terms: int) -> int:
    """Return an estimate of the largest number of partial results during an evaluation."""
    if not isinstance(accumulation, Blocked | SplitK | Strided) or terms <= 1:
        return 1
    cut = _cut(accumulation, 0, terms, 1)
    length = int(count(cut[:1])[0])
    return max(len(cut) * partials(accumulation.inner, length), len(cut) + partials(accumulation.outer, len(cut)))
