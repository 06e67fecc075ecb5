"""The trees of `Pairwise` and `Tree` as programs of a stack machine, so that one kernel evaluates all of them.

A post-order walk (left subtree, right subtree, node) pushes the term of a leaf, and adds the two topmost values once
for each node that ends there. `order` has the leaves in the order of the walk, `merges` the number of adds after each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from floatsim.accumulation.tree_shape import TreeShape

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Program", "program", "stack_depth"]

Order: TypeAlias = "NDArray[np.int32]"
Merges: TypeAlias = "NDArray[np.int8]"


class Program(NamedTuple):
    """Leaf positions in the order of the walk, and the number of adds after each leaf. Both arrays are read-only."""

    order: Order
    merges: Merges


def _adjacent(n: int) -> Program:
    """Level by level (0,1) (2,3) ...: nodes of 2**l leaves end after every 2**l-th leaf, shorter nodes at the end."""
    merges = np.zeros(n, np.int8)
    length = 2
    while length <= n:
        merges[length - 1 : n - 1 : length] += 1
        length *= 2
    merges[-1] = n - 1 - merges[:-1].sum(dtype=np.int64)
    return Program(np.arange(n, dtype=np.int32), merges)


def _halving(n: int) -> Program:
    """Leaf g of the tree of ceil(n/2) leaves becomes the node of the leaves g and g + ceil(n/2)."""
    if n == 1:
        return Program(np.zeros(1, np.int32), np.zeros(1, np.int8))
    half = n - n // 2
    outer = _halving(half)
    order = np.stack([outer.order, outer.order + np.int32(half)], axis=1).reshape(-1)
    merges = np.stack([np.zeros_like(outer.merges), outer.merges + np.int8(1)], axis=1).reshape(-1)
    if n % 2:  # the middle one has no partner
        alone = 2 * int(np.flatnonzero(outer.order == half - 1)[0])
        merges[alone] = merges[alone + 1] - 1
        order, merges = np.delete(order, alone + 1), np.delete(merges, alone + 1)
    return Program(order, merges)


_LANES, _BLOCK = 8, 128


def _numpy(n: int) -> Program:
    """The tree of NumPy: numpy/_core/src/umath/loops_utils.h.src, `pairwise_sum`."""
    known: dict[int, Program] = {}

    def made(n: int) -> Program:
        if n not in known:
            known[n] = block(n) if n <= _BLOCK else halves(n)
        return known[n]

    def block(n: int) -> Program:
        if n < _LANES:
            return Program(np.arange(n, dtype=np.int32), np.minimum(np.arange(n), 1).astype(np.int8))
        whole = n - n % _LANES
        order, merges = np.arange(n, dtype=np.int32), np.ones(n, np.int8)
        order[:whole] = order[:whole].reshape(-1, _LANES).T.reshape(-1)
        lanes = merges[:whole].reshape(_LANES, -1)  # of each accumulator: pushed, then added to
        lanes[:, 0] = 0
        lanes[:, -1] += np.array([0, 1, 0, 2, 0, 1, 0, 3], np.int8)  # ((r0+r1)+(r2+r3))+((r4+r5)+(r6+r7))
        return Program(order, merges)

    def halves(n: int) -> Program:
        cut = n // 2
        cut -= cut % _LANES
        left, right = made(cut), made(n - cut)
        merges = np.concatenate([left.merges, right.merges])
        merges[-1] += 1
        return Program(np.concatenate([left.order, right.order + np.int32(cut)]), merges)

    return made(n)


def _given(shape: TreeShape, n: int) -> Program:
    if n != len(shape.order):
        raise ValueError(f"the Tree has {len(shape.order)} terms; this sum has {n}")
    return Program(np.array(shape.order, np.int32), np.array(shape.merges, np.int8))


_TREES: dict[str, Callable[[int], Program]] = {"adjacent": _adjacent, "halving": _halving, "numpy": _numpy}


@lru_cache(maxsize=32)
def program(tree: str | TreeShape, n: int) -> Program:
    """Return the program of a tree of n leaves: of a name of `Pairwise`, or of the shape of a `Tree`.

    A shape of another number of leaves is a ValueError; no leaves are no tree.

    >>> order, merges = program("halving", 5)
    >>> order.tolist(), merges.tolist()
    ([0, 3, 2, 1, 4], [0, 1, 1, 0, 2])
    """
    if n and isinstance(tree, TreeShape):
        made = _given(tree, n)
    else:
        made = _TREES[str(tree)](n) if n else Program(np.empty(0, np.int32), np.empty(0, np.int8))
    for array in made:
        array.flags.writeable = False
    return made


def stack_depth(program: Program) -> int:
    """Return an upper bound of the number of values on the stack during a program.

    >>> stack_depth(program("adjacent", 8))
    6
    """
    return int(np.cumsum(1 - program.merges.astype(np.int64)).max() + program.merges.max())
