"""Summation trees as two arrays: the leaves in the order of a walk, and the size of the node where neighbours meet.

In a post-order walk, `joins[t]` is the number of leaves below the node where leaves t and t + 1 of the walk meet.
Leaves further apart meet at the largest node between them. A node with more than two children has its size several
times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from floatsim.accumulation import (
    Accumulation,
    Composite,
    Parts,
    Permuted,
    Sequential,
    SplitK,
    Threads,
    TreeLeaf,
    leaves,
)
from floatsim.accumulation.partition import is_dealt, partition, positions
from floatsim.accumulation.trees import program

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["OrderTree", "meeting_sizes", "same_sum", "tree_of"]

_ALL_PAIRS = 512  # terms up to which all pairs are compared


class OrderTree(NamedTuple):
    """The leaves in the order of a walk, and the sizes of the nodes where neighbours meet."""

    leaves: NDArray[np.int64]
    joins: NDArray[np.int64]


def tree_of(accumulation: Accumulation, k: int) -> OrderTree | None:
    """Return the tree of a description for k terms; None for matrix units, compensated and exact sums.

    >>> import floatsim as fs
    >>> leaves, joins = tree_of(fs.as_accumulation("blocked(fp32, 2, fp32)"), 5)
    >>> leaves.tolist(), joins.tolist()
    ([0, 1, 2, 3, 4], [2, 4, 2, 5])
    """
    return _tree(accumulation, [OrderTree(np.array([i]), np.empty(0, np.int64)) for i in range(k)])


def _tree(accumulation: Accumulation, items: Sequence[OrderTree]) -> OrderTree | None:
    n = len(items)
    if isinstance(accumulation, Sequential):
        return _merged(items, np.arange(n), np.minimum(np.arange(n), 1))
    if isinstance(accumulation, TreeLeaf):
        return _merged(items, *program(accumulation.tree, n))
    if isinstance(accumulation, Permuted):
        return _tree(accumulation.inner, [items[k] for k in positions(accumulation, n).tolist()])
    if not isinstance(accumulation, Composite | Parts):
        return None
    *inners, outer = accumulation.children
    if is_dealt(accumulation):
        assert isinstance(accumulation, SplitK | Threads)
        items = [items[k] for k in positions(accumulation, n).tolist()]
    ranges = partition(accumulation, np.array([[0, n, 1]]).tobytes()).parts.tolist()
    if any(start == stop for start, stop, _ in ranges):
        return None  # an accumulator of `Threads` without a term
    if not isinstance(accumulation, Parts):
        inners *= len(ranges)
    inner = [_tree(each, items[start:stop:step]) for each, (start, stop, step) in zip(inners, ranges, strict=True)]
    return None if any(each is None for each in inner) else _tree(outer, inner)  # type: ignore[arg-type]


def _merged(items: Sequence[OrderTree], order: NDArray[np.integer], merges: NDArray[np.integer]) -> OrderTree:
    """Return the tree of a program of `floatsim.accumulation.trees` whose leaves are trees."""
    walk, joins, starts = [], [], []
    size = 0
    for item, after in zip(order.tolist(), merges.tolist(), strict=True):
        tree = items[item]
        walk.append(tree.leaves)
        joins += [*tree.joins.tolist(), 0]  # 0: where this item meets the next one, filled in below
        starts.append(size)
        size += len(tree.leaves)
        for _ in range(after):
            right = starts.pop()
            joins[right - 1] = size - starts[-1]
    return OrderTree(np.concatenate(walk), np.array(joins[:-1], np.int64))


def meeting_sizes(tree: OrderTree, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the number of leaves below the nodes where leaves i and j meet. i and j differ."""
    places = np.empty(len(tree.leaves), np.int64)
    places[tree.leaves] = np.arange(len(tree.leaves))
    low, high = np.minimum(places[i], places[j]), np.maximum(places[i], places[j])
    levels = [tree.joins]  # levels[n][t]: the largest of 2**n joins from t on
    while 2 << len(levels) - 1 <= len(tree.joins):
        step = 1 << len(levels) - 1
        levels.append(np.maximum(levels[-1][:-step], levels[-1][step:]))
    length = high - low
    sizes = np.empty(len(low), np.int64)
    powers = np.frexp(length.astype(float))[1] - 1
    for power in np.unique(powers).tolist():
        of = powers == power
        level, step = levels[power], 1 << power
        sizes[of] = np.maximum(level[low[of]], level[high[of] - step])
    return sizes


def same_sum(one: Accumulation, other: Accumulation, k: int) -> bool:
    """Return whether two descriptions are the same sum of k terms: the same tree, with the same roundings.

    >>> import floatsim as fs
    >>> x, y = map(fs.as_accumulation, ("pairwise(fp32)", "blocked(pairwise(fp32), 32, fp32)"))
    >>> same_sum(x, y, 64), same_sum(x, y, 128)
    (True, False)
    """
    if _roundings(one) != _roundings(other):
        return False
    trees = tree_of(one, k), tree_of(other, k)
    if trees[0] is None or trees[1] is None or k < 2:
        return trees[0] is not None and trees[1] is not None
    i, j = np.triu_indices(k, 1) if k <= _ALL_PAIRS else _some_pairs(k)
    return bool(np.array_equal(meeting_sizes(trees[0], i, j), meeting_sizes(trees[1], i, j)))


def _some_pairs(k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return pairs of neighbours at all distances that are powers of two."""
    steps = [1 << n for n in range((k - 1).bit_length())]
    starts = [np.arange(k - step) for step in steps]
    return np.concatenate(starts), np.concatenate([start + step for start, step in zip(starts, steps, strict=True)])


def _roundings(accumulation: Accumulation) -> set[tuple[object, ...]]:
    """Return the roundings of the sums, and that of the products."""
    ends = leaves(accumulation)
    found: set[tuple[object, ...]] = {(leaf.format, leaf.rounding, leaf.ftz, leaf.daz, leaf.overflow) for leaf in ends}
    first = ends[0] if ends else None
    found |= {("through", each) for each in _through(accumulation)}
    return found | {("product", getattr(first, "product", None), getattr(first, "product_rounding", None))}


def _through(accumulation: Accumulation) -> set[object]:
    """Return the formats that partial results of split-K sums pass through."""
    own = {accumulation.through} if isinstance(accumulation, SplitK) else set()
    return own.union(*(_through(each) for each in accumulation.children)) - {None}
