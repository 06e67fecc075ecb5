"""Orders in which GPU libraries split K: blocks, parts of split-K, dealt tiles, and the residue of K first.

An order is data: a row of `every_order`. What a row does with k terms is its layout, from which the summation tree
follows, whatever unit adds the terms of a part.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from floatsim.accumulation import (
    Accumulation,
    Blocked,
    Converted,
    Epilogue,
    Permuted,
    Residue,
    SplitK,
    TensorCore,
)
from floatsim.accumulation.partition import positions
from floatsim.formats import FloatFormat
from floatsim.testing.identify.sum_forms import sum_form
from floatsim.testing.identify.tree_search import Meetings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

__all__ = ["RESIDUES", "Layout", "Order", "alternatives", "ends_of_blocks", "every_order", "layout_of", "matches"]

RESIDUES = (0, 16, 32, 64, 128, 256)
"""The tiles of K whose residue comes first; 0: no residue."""

_ROUND = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
_PARTS = range(2, 65)
_TILES = (64, 128, 32, 16, 8, 4, 2, 256)
_DEALT = (4, 8, 16, 32, 64, 128)
_FEW = 64  # pairs that are compared first


class Order(NamedTuple):
    """How K is split: `n` terms in a block, or `n` parts of whole tiles. The rule "chain" has one part."""

    rule: str
    n: int = 0
    tile: int = 1

    def of(self, chain: Accumulation, outer: Accumulation, through: FloatFormat | None = None) -> Accumulation:
        """Return the description with a sum for each part, and one of their results.

        >>> import floatsim as fs
        >>> print(Order("dealt", 4, 8).of(fs.as_accumulation("hopper"), fs.as_accumulation("fp32")))
        splitk(4, tensorcore(hopper), sequential(fp32), tile=8, dealt)
        """
        if self.rule == "chain":
            return chain
        if self.rule == "blocked":
            if through is not None:
                raise ValueError("a Blocked stores no running sum")
            return Blocked(chain, self.n, outer)
        return SplitK(self.n, chain, outer, self.tile, self.rule, through)


class Layout(NamedTuple):
    """The part of each term, its place in the part, and the lengths of the parts."""

    part: Numbers
    place: Numbers
    lengths: Numbers


@functools.lru_cache(maxsize=8)
def every_order(k: int) -> tuple[Order, ...]:
    """Return the orders of k terms, the simplest first.

    >>> every_order(64)[:3]
    (Order(rule='chain', n=0, tile=1), Order(rule='blocked', n=4, tile=1), Order(rule='blocked', n=8, tile=1))
    """
    parts = [n for n in _PARTS if n < k]
    others = [n for n in (*range(2, min(k, 65)), *range(68, k, 4)) if n not in _ROUND]
    return (
        Order("chain"),
        *(Order("blocked", n) for n in _ROUND if n < k),
        *(Order("serial", n) for n in parts if _parts_of(k, n, 1) == n),
        *(Order("serial", n, tile) for tile in _TILES if tile < k for n in parts if _parts_of(k, n, tile) == n),
        *(Order("dealt", n, tile) for tile in _DEALT if tile < k for n in parts if (n - 1) * tile < k),
        *(Order("blocked", n) for n in others),
    )


def _parts_of(k: int, n: int, tile: int) -> int:
    """Return how many of n parts of whole tiles have terms. An order with empty parts is one of fewer parts."""
    shortest = -(-k // n)
    length = -(-shortest // tile) * tile
    return -(-k // length)


def layout_of(order: Order, k: int) -> Layout:
    """Return the layout of k terms.

    >>> layout_of(Order("dealt", 2, 2), 7).part.tolist()
    [0, 0, 1, 1, 0, 0, 1]
    """
    if order.rule == "chain":
        return Layout(np.zeros(k, np.int64), np.arange(k), np.array([k]))
    description = order.of(_FP32, _FP32)
    assert isinstance(description, Blocked | SplitK)
    lengths = np.repeat(*np.array(description.runs(k), np.int64).T)
    part = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(k) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    if order.rule == "dealt":
        assert isinstance(description, SplitK)
        terms = positions(description, k)
        ordered = part.copy(), place.copy()
        part[terms], place[terms] = ordered
    return Layout(part, place, lengths)


_FP32 = Blocked("fp32", 2, "fp32").outer


def ends_of_blocks(layout: Layout, every: int, residue: int = 0) -> Numbers:
    """Return for each term how many terms of its part are added once its block of `every` terms is added.

    >>> ends_of_blocks(layout_of(Order("chain"), 7), 2, 3).tolist()
    [1, 3, 3, 5, 5, 7, 7]
    """
    length = layout.lengths[layout.part]
    first = length % residue if residue else np.zeros_like(length)
    rest = layout.place - first
    in_first = np.minimum((layout.place // every + 1) * every, first)
    return np.where(rest < 0, in_first, np.minimum(first + (rest // every + 1) * every, length))


def matches(layout: Layout, ends: Numbers, meetings: Meetings) -> bool:
    """Return whether terms meet where blocks of chains, and the results of parts in order, put them together."""
    ordered = np.cumsum(layout.lengths)
    few = np.random.default_rng(0).integers(0, len(meetings.i), _FEW)
    for chosen in (few, slice(None)):
        i, j = meetings.i[chosen], meetings.j[chosen]
        one, other = layout.part[i], layout.part[j]
        inside, across = np.maximum(ends[i], ends[j]), ordered[np.maximum(one, other)]
        if not np.array_equal(np.where(one == other, inside, across), meetings.sizes[chosen]):
            return False
    return True


# -- other names of one sum --------------------------------------------------------------------------------------------


def alternatives(description: Accumulation, a: FloatFormat, b: FloatFormat, k: int) -> list[Accumulation]:
    """Return the descriptions that split k terms into the same parts by another rule, the simplest first.

    The given one is among them. For another K they are different sums.

    >>> import floatsim as fs
    >>> given = fs.as_accumulation("blocked(hopper, 128, fp32)")
    >>> [str(each)[:12] for each in alternatives(given, fs.E4M3, fs.E4M3, 512)][:2]
    ['blocked(tens', 'splitk(4, te']
    """
    form = sum_form(description, a, b, k)
    found: dict[Accumulation, None] = {}
    for other in _others(description, k):
        try:
            equal = other == description or sum_form(other, a, b, k) == form
        except (TypeError, ValueError):
            continue
        if equal:
            found[other] = None
    return list(found) or [description]


def _others(description: Accumulation, k: int) -> Iterator[Accumulation]:
    if isinstance(description, Converted | Epilogue | Permuted):
        for inner in _others(description.inner, k):
            yield description.with_children(lambda _, inner=inner: inner)  # type: ignore[misc]
        return
    order = _order_of(description)
    if order is None:
        if isinstance(description, Residue):
            yield from _residues(description, k)
        return
    assert isinstance(description, Blocked | SplitK)
    through = description.through if isinstance(description, SplitK) else None
    own = layout_of(order, k)
    for other in dict.fromkeys((*every_order(k), order)):
        layout = layout_of(other, k)
        if not all(np.array_equal(x, y) for x, y in zip(layout, own, strict=True)):
            continue
        for chain in _residues(description.inner, int(own.lengths.max())):
            try:
                yield other.of(chain, description.outer, through)
            except ValueError:  # the running sum is stored
                continue


def _order_of(description: Accumulation) -> Order | None:
    if isinstance(description, Blocked) and isinstance(description.every, int) and description.rule == "full":
        return Order("blocked", description.every)
    if isinstance(description, SplitK) and description.rule in ("serial", "dealt"):
        return Order(description.rule, description.parts, description.tile)
    return None


def _residues(chain: Accumulation, k: int) -> list[Accumulation]:
    """Return a chain with the residue of other tiles; another chain as it is."""
    if not (isinstance(chain, Residue) and isinstance(chain.inner, TensorCore)):
        return [chain]
    return [Residue(chain.inner, tile) for tile in sorted({*RESIDUES[1:], chain.tile}) if tile <= max(k, chain.tile)]
