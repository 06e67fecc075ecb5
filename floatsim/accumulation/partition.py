"""Partitions: the terms of a sum as composites split them, as ranges (start, stop, step), and reordered."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from floatsim._types import Indices
from floatsim.accumulation.base import Accumulation
from floatsim.accumulation.composites import Blocked, Parts, Runs, SplitK, Strided
from floatsim.accumulation.permuted import Permuted
from floatsim.accumulation.threads import Threads

__all__ = [
    "Partition", "count", "is_dealt", "partials", "partition", "permutation", "positions", "rows", "thread_lanes",
]  # fmt: skip


def rows(ranges: bytes) -> Indices:
    """Return ranges from their bytes, which are keys of caches."""
    return np.frombuffer(ranges, np.int64).reshape(-1, 3)


def count(ranges: Indices) -> Indices:
    """Return the number of terms of each range."""
    counts: Indices = (ranges[:, 1] - ranges[:, 0] + ranges[:, 2] - 1) // ranges[:, 2]
    return counts


def _parts(start: int, stop: int, step: int, runs: Runs) -> Indices:
    """Return the sub-ranges of consecutive parts of a range."""
    lengths = np.repeat(*np.array(runs or [(0, 0)], np.int64).T)
    ends = start + step * np.cumsum(lengths)
    return np.stack([ends - step * lengths, np.minimum(ends, stop), np.full_like(ends, step)], axis=1)


def _cut(accumulation: Accumulation, start: int, stop: int, step: int) -> Indices:
    """Return the sub-ranges of a range, in the order in which the outer description adds them.

    Only the accumulators of `Threads` may be empty.
    """
    n = -(-(stop - start) // step)
    if isinstance(accumulation, Blocked | SplitK | Parts):
        return _parts(start, stop, step, accumulation.runs(max(n, 0)))
    if isinstance(accumulation, Threads):  # the terms are in the order of the lanes
        lanes = accumulation.threads * accumulation.accumulators
        lengths = np.bincount(thread_lanes(accumulation, max(n, 0)), minlength=lanes)
        ends = start + step * np.cumsum(lengths)
        return np.stack([ends - step * lengths, ends, np.full_like(ends, step)], axis=1)
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
    if len(accumulation.children) == 1:
        return partials(accumulation.children[0], terms)
    if not isinstance(accumulation, Blocked | SplitK | Strided | Parts | Threads) or terms <= 1:
        return 1
    cut = _cut(accumulation, 0, terms, 1)
    *inners, outer = accumulation.children
    inside = len(cut) * partials(inners[0], int(count(cut).max()))
    if isinstance(accumulation, Parts):
        inside = sum(partials(inner, length) for inner, length in zip(inners, accumulation.lengths, strict=True))
    return max(inside, len(cut) + partials(outer, len(cut)))


def is_dealt(accumulation: Accumulation) -> bool:
    """Return whether the parts of a description are not consecutive terms, so that it reorders them first."""
    return isinstance(accumulation, Threads) or (isinstance(accumulation, SplitK) and accumulation.rule == "dealt")


@lru_cache(maxsize=64)
def thread_lanes(accumulation: Threads, n: int) -> Indices:
    """Return the accumulator of each of n terms: thread * accumulators + the accumulator of the thread.

    >>> import floatsim as fs
    >>> thread_lanes(fs.Threads("fp32", 4, "fp32", width=2, accumulators=2, shift=1, rest="threads"), 12).tolist()
    [2, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 0]
    """
    threads, width, each = accumulation.threads, accumulation.width, accumulation.accumulators
    head = accumulation.head(n)
    whole = accumulation.whole(n - head)
    lanes = np.zeros(n, np.int64)
    lanes[:head] = (accumulation.shift + np.arange(head)) * each
    vectors, places = np.divmod(np.arange(whole, dtype=np.int64), width)
    lanes[head : head + whole] = vectors % threads * each + (vectors // threads * width + places) % each
    lanes[head + whole :] = np.arange(n - head - whole) % threads * each
    lanes.flags.writeable = False
    return lanes


@lru_cache(maxsize=64)
def positions(accumulation: Permuted | SplitK | Threads, n: int) -> Indices:
    """Return the order of n terms: element i is the term that position i gets.

    The parts of a `SplitK` of dealt tiles are consecutive positions, and the terms of each accumulator of `Threads`.

    >>> import floatsim as fs
    >>> positions(fs.Permuted([2, 0, 1], "fp32"), 7).tolist()
    [2, 0, 1, 5, 3, 4, 6]
    >>> positions(fs.SplitK(2, "fp32", "fp32", 2, "dealt"), 7).tolist()
    [0, 1, 4, 5, 2, 3, 6]
    """
    if isinstance(accumulation, Threads):
        in_lanes: Indices = np.argsort(thread_lanes(accumulation, n), kind="stable")
        in_lanes.flags.writeable = False
        return in_lanes
    order = np.arange(n, dtype=np.int64)
    if isinstance(accumulation, SplitK):
        assert is_dealt(accumulation)
        dealt: Indices = np.argsort(order // accumulation.tile % accumulation.parts, kind="stable")
        dealt.flags.writeable = False
        return dealt
    group = accumulation.group
    if group is not None:
        whole = n - n % len(group)
        order[:whole] = order[:whole].reshape(-1, len(group))[:, group].reshape(-1)
    elif accumulation.lanes is not None:
        order = np.concatenate([order[lane :: accumulation.lanes] for lane in range(min(accumulation.lanes, n) or 1)])
    else:
        order = order[::-1].copy()
    order.flags.writeable = False
    return order


@lru_cache(maxsize=64)
def permutation(accumulation: Permuted | SplitK | Threads, ranges: bytes) -> tuple[Indices, Indices]:
    """Return the terms of all ranges in the new order, one range after the other, and the ranges of these terms.

    >>> import floatsim as fs
    >>> terms, ranges = permutation(fs.Permuted("reversed", "fp32"), np.array([[0, 3, 1], [4, 9, 2]]).tobytes())
    >>> terms.tolist(), ranges.tolist()
    ([2, 1, 0, 8, 6, 4], [[0, 3, 1], [3, 6, 1]])
    """
    table = rows(ranges)
    counts = np.maximum(count(table), 0)
    pieces = [start + step * positions(accumulation, n) for (start, _, step), n in zip(table, counts.tolist())]  # noqa: B905
    ends = np.cumsum(counts)
    terms = np.concatenate([np.empty(0, np.int64), *pieces])
    terms.flags.writeable = False
    return terms, np.stack([ends - counts, ends, np.ones_like(ends)], axis=1)
