"""The shape of a summation tree: which terms and partial sums each addition adds."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from floatsim.formats._hashing import hashed_once

__all__ = ["TreeShape", "as_tree_shape"]

_ADD = object()


@hashed_once
@dataclass(frozen=True, repr=False)
class TreeShape:
    """A tree of additions as a program of a stack machine. Both operands of an addition are equivalent.

    An addition of equal operands in another order has the same result, so shapes that differ in this alone are equal.
    The operand that needs the deeper stack comes first; of two alike, the operand with the least term. So the stack of
    n terms has at most 1 + log2(n) values, also for one long chain.

    Attributes
    ----------
    order : tuple of int
        The terms in the order in which the program pushes them.
    merges : tuple of int
        The number of additions of the two topmost values after each push.
    height : int
        The largest number of additions between a term and the result.

    Examples
    --------
    >>> as_tree_shape(((0, 1), (2, 3)))  # the sum of 0 and 1 comes first in the tuple
    (0, 1, (2, 3))
    >>> as_tree_shape("(3, (2, (0, 1)))")  # a chain; (0, 1, 2, 3) adds from left to right
    (0, 1, 2, 3)
    """

    order: tuple[int, ...]
    merges: tuple[int, ...]
    height: int

    def __str__(self) -> str:
        stack: list[list[str]] = []
        for term, merges in zip(self.order, self.merges, strict=True):
            stack.append([str(term)])
            for _ in range(merges):
                last = stack.pop()
                stack[-1].append(last[0] if len(last) == 1 else f"({', '.join(last)})")
        return f"({', '.join(stack[0])})"

    __repr__ = __str__


class _Node(NamedTuple):
    """A subtree: the stack that it needs, its least term, its height, and its operands."""

    depth: int
    least: int
    height: int
    operands: tuple[Any, ...]


def as_tree_shape(tree: Any) -> TreeShape:
    """Return the shape of a tree: nested tuples or lists of terms, their text, or the counts of `fs.reveal_order`.

    A tuple of more than two adds its elements from left to right.
    """
    if isinstance(tree, TreeShape):
        return tree
    if isinstance(tree, str):
        tree = _parsed(tree)
    if getattr(tree, "ndim", 0) == 2:
        tree = _from_counts(tree)
    stack: list[_Node] = []
    for token in _postfix(tree):
        if token is _ADD:
            last, first = stack.pop(), stack.pop()
            stack.append(_sum(first, last))
        else:
            stack.append(_Node(1, token, 0, (token,)))
    return _shape(stack[0])


def _postfix(tree: Any) -> Iterable[Any]:
    """Yield the terms and additions of nested tuples, operands first."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple | list):
            if not node:
                raise ValueError("tree has a node without terms: ()")
            first, *others = node
            pending += [token for other in reversed(others) for token in (_ADD, other)]
            pending.append(first)
        else:
            yield node if node is _ADD else _term(node)


def _term(node: Any) -> int:
    try:
        if isinstance(node, bool):
            raise TypeError
        return operator.index(node)
    except TypeError:
        raise TypeError(f"tree must be nested tuples of terms such as ((0, 1), 2), not {node!r}") from None


def _sum(x: _Node, y: _Node) -> _Node:
    first, last = sorted((x, y), key=lambda node: (-node.depth, node.least))
    depth = first.depth + (first.depth == last.depth)
    return _Node(depth, min(x.least, y.least), 1 + max(x.height, y.height), (first, last))


def _shape(root: _Node) -> TreeShape:
    order: list[int] = []
    merges: list[int] = []
    pending: list[Any] = [root]
    while pending:
        node = pending.pop()
        if node is _ADD:
            merges[-1] += 1
        elif node.height:
            pending += [_ADD, node.operands[1], node.operands[0]]
        else:
            order.append(node.least)
            merges.append(0)
    if sorted(order) != list(range(len(order))):
        wrong = next((k for k in order if order.count(k) > 1 or not 0 <= k < len(order)), order[0])
        raise ValueError(f"tree must have each of the terms 0 to {len(order) - 1} once; look at {wrong}")
    return TreeShape(tuple(order), tuple(merges), root.height)


def _parsed(text: str) -> Any:
    """Return nested lists from text such as "((0, 1), 2)"."""
    wrong = ValueError(f"tree={text!r} is no tree; write nested terms such as ((0, 1), 2)")
    if re.fullmatch(r"[\d,()\s]*", text) is None:
        raise wrong
    stack: list[list[Any]] = [[]]
    for token in re.findall(r"\d+|[()]", text):
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise wrong
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(int(token))
    if len(stack) != 1 or len(stack[0]) != 1:
        raise wrong
    return stack[0][0]


def _from_counts(counts: Any) -> Any:
    """Return the nested tuples of the tree that a matrix of `fs.reveal_order` shows.

    Terms i and j meet in a node of n - counts[i, j] terms. Nodes are built from the smallest to the largest.
    """
    import numpy as np

    table = np.asarray(counts)
    n = len(table)
    if table.shape != (n, n) or n < 1:
        raise ValueError(f"tree must be nested terms, or the square matrix of fs.reveal_order, not shape {table.shape}")
    terms = n - table
    np.fill_diagonal(terms, 1)
    nodes: dict[int, Any] = {k: k for k in range(n)}
    node_of = np.arange(n)
    for size in np.unique(terms)[1:].tolist():
        for i in np.flatnonzero((terms == size).any(axis=1)).tolist():
            members = np.flatnonzero(terms[i] <= size)
            operands = np.unique(node_of[members])
            if len(operands) == 1:
                continue
            if len(members) != size or np.isin(node_of, operands).sum() != size:
                raise ValueError("tree: these counts belong to no summation tree")
            if len(operands) != 2:
                raise ValueError(
                    f"tree: {len(operands)} values are added at once, among them term {i}; a Tree adds two at a time"
                )
            left, right = (np.flatnonzero(node_of == node) for node in operands)
            if (terms[np.ix_(left, right)] != size).any() or (terms[np.ix_(right, left)] != size).any():
                raise ValueError("tree: these counts belong to no summation tree")
            nodes[int(operands[0])] = nodes[int(operands[0])], nodes[int(operands[1])]
            node_of[members] = operands[0]
    if len(np.unique(node_of)) != 1:
        raise ValueError("tree: these counts belong to no summation tree")
    return nodes[int(node_of[0])]
