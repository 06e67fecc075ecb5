"""The sum of the accumulators of `Threads` as a program of a stack machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from floatsim.accumulation.base import Accumulation
from floatsim.accumulation.composites import Blocked, Strided
from floatsim.accumulation.leaves import Pairwise, Sequential
from floatsim.accumulation.partition import is_dealt, partition, positions
from floatsim.accumulation.threads import Threads
from floatsim.accumulation.trees import Program, program

__all__ = ["lane_program", "term_program"]

_Tree: TypeAlias = "Any"
"""The number of a lane, a pair of trees, or None for a sum without terms."""


@lru_cache(maxsize=64)
def lane_program(outer: Accumulation, lanes: int) -> Program | None:
    """Return the program that adds lanes as `outer` does, the earlier operand first; None for sums of another kind.

    The lanes are sums that start from +0, so that an addition of +0 changes nothing.

    >>> import floatsim as fs
    >>> order, merges = lane_program(fs.as_accumulation("blocked(fp32, 2, pairwise(fp32, halving))"), 6)
    >>> order.tolist(), merges.tolist()
    ([0, 1, 4, 5, 2, 3], [0, 1, 0, 2, 0, 2])
    """
    tree = _joined(outer, list(range(lanes)))
    return None if tree is NotImplemented else _flat(tree)


@lru_cache(maxsize=16)
def term_program(order: Threads, n: int) -> Program | None:
    """Return the program of n terms that `Threads` combines, without the start values of its accumulators.

    >>> import floatsim as fs
    >>> order, merges = term_program(fs.Threads("fp32", 2, "fp32"), 5)
    >>> order.tolist(), merges.tolist()
    ([0, 2, 4, 1, 3], [0, 1, 1, 0, 2])
    """
    tree = _joined(order, list(range(n)))
    return None if tree is NotImplemented else _flat(tree)


def _flat(tree: _Tree) -> Program:
    """Return the program of a tree."""
    order: list[int] = []
    merges: list[int] = []
    pending: list[_Tree] = [tree]
    while pending:
        node = pending.pop()
        if node is None:  # both operands are on the stack
            merges[-1] += 1
        elif isinstance(node, tuple):
            pending += [None, node[1], node[0]]
        else:
            order.append(node)
            merges.append(0)
    made = Program(np.array(order, np.int32), np.array(merges, np.int8))
    for array in made:
        array.flags.writeable = False
    return made


def _pair(left: _Tree, right: _Tree) -> _Tree:
    return right if left is None else left if right is None else (left, right)


def _joined(outer: Accumulation, items: Sequence[_Tree]) -> _Tree:
    """Return the tree of a description over trees, or NotImplemented."""
    n = len(items)
    if isinstance(outer, Sequential | Pairwise):
        order, merges = (np.arange(n), np.minimum(np.arange(n), 1)) if isinstance(outer, Sequential) else program(
            outer.tree, n
        )  # fmt: skip
        stack: list[_Tree] = []
        for k, after in zip(order.tolist(), merges.tolist(), strict=True):
            stack.append(items[k])
            for _ in range(after):
                right = stack.pop()
                stack.append(_pair(stack.pop(), right))
        return stack[0] if stack else None
    if not isinstance(outer, Blocked | Strided | Threads):
        return NotImplemented
    if is_dealt(outer):
        assert isinstance(outer, Threads)
        items = [items[k] for k in positions(outer, n).tolist()]
    parts = []
    for start, stop, step in partition(outer, np.array([[0, n, 1]]).tobytes()).parts.tolist():
        parts.append(_joined(outer.inner, items[start:stop:step]))
        if parts[-1] is NotImplemented:
            return NotImplemented
    return _joined(outer.outer, parts)
