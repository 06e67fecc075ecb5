"""Descriptions of cuBLASLt's FP8 products with split-K on an RTX 4060, as the package mmaemu records them."""

from __future__ import annotations

from typing import Any

import floatsim as fs

TILE = 64
"""The terms of a tile of K. With split-K, tile t belongs to part t % parts."""


def split_on_ada(k: int, parts: int, scheme: str, fast: bool) -> fs.SplitK:
    """The description of a sum of k terms. The parts are added in order, or in pairs of which the last part is none."""
    unit = fs.TensorCore("ada", output="fp32")
    inner = unit if fast else fs.Blocked(unit, 128, "fp32")
    used = min(parts, -(-k // TILE))  # the other parts are zeros
    outer: Any = "fp32"
    if scheme == "pairwise" and used > 1:
        last, half = parts - 1, -(-parts // 2)
        pairs = [joined(i, i + half if i + half < last else None, used) for i in range(half)]
        tree = last if last < used else None
        for pair in pairs:
            tree = pair if tree is None else tree if pair is None else (tree, pair)
        outer = fs.Tree("fp32", tree)
    return fs.SplitK(parts, inner, outer, TILE, "dealt")


def joined(first: int, second: int | None, used: int) -> Any:
    """A node of the tree: the sum of two parts, of those that are used."""
    there = [part for part in (first, second) if part is not None and part < used]
    return tuple(there) if len(there) == 2 else there[0] if there else None
