"""Candidates of `identify`: descriptions whose summation tree was found, in accumulators and roundings."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from floatsim.accumulation import Accumulation, parse
from floatsim.accumulation.tree_shape import TreeShape, as_tree_shape
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.testing.compare.descriptions import ORDERS
from floatsim.testing.identify.gpu_sums import matched_layouts
from floatsim.testing.identify.order_trees import meeting_sizes, tree_of
from floatsim.testing.identify.tree_search import Meetings

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["orders_with_tree", "variants"]

_LEAVES = ("same", "pairwise(same)", "pairwise(same, halving)", "pairwise(same, numpy)")
_LANES = (2, 4, 8, 16, 32)
_VECTORS = (2, 4, 8, 16)
_LIST = 64  # blocks of a list


def _templates(meetings: Meetings, k: int) -> Iterator[str]:
    """Yield the texts of orders with the accumulator `same`, the simplest first.

    A block length n and a number of lanes n are tried only if term 0 meets the terms of its own part below all others.
    """
    yield from (text for text in ORDERS if "rounding=" not in text and "fused" not in text)
    with_first = np.full(k, k, np.int64)
    first = meetings.i == 0
    with_first[meetings.j[first]] = meetings.sizes[first]
    with_first[0] = 1
    yield from _unequal_blocks(with_first)
    blocks = [n for n in range(2, k) if (with_first[:n] <= n).all() and with_first[n] > n]
    lanes = [n for n in range(2, k) if (with_first[::n] <= -(-k // n)).all()]
    for form, lengths in (("blocked({inner}, {n}, {outer})", blocks), ("strided({inner}, {n}, {outer})", lanes)):
        for n in lengths:
            for inner in _LEAVES:
                for outer in _LEAVES:
                    yield form.format(inner=inner, n=n, outer=outer)
    for n in blocks:
        for lane in (lane for lane in _LANES if lane < n):
            yield f"blocked(strided(same, {lane}), {n}, same)"
            yield f"blocked(strided(same, {lane}, same), {n}, same)"
    for lane in lanes:
        for n in range(2, -(-k // lane)):
            yield f"strided(blocked(same, {n}, same), {lane})"
    for lane in lanes:
        yield from _threads(lane)


def _threads(lanes: int) -> Iterator[str]:
    """Yield sums of threads that own several lanes, as `torch.sum` on a GPU: a thread adds its lanes, then they join.

    Threads of several warps join in their warps first.
    """
    for n in (n for n in _VECTORS if n < lanes):
        for joined in _LEAVES:
            for vector in ("same", "pairwise(same)"):
                yield f"strided(same, {lanes}, blocked({vector}, {n}, {joined}))"
                yield f"strided(same, {lanes}, strided({vector}, {lanes // n}, {joined}))"
    for n in (n for n in _VECTORS if lanes % (32 * n) == 0 and lanes > 32 * n):
        warp = f"blocked(same, {n}, pairwise(same, halving))"
        yield f"strided(same, {lanes}, blocked({warp}, {32 * n}, pairwise(same, halving)))"


def _unequal_blocks(with_first: NDArray[np.int64]) -> Iterator[str]:
    """Yield sums of blocks in order whose lengths differ, by the rule of BLAS libraries or as a list.

    `with_first[t]` is the number of terms below the node where terms 0 and t meet. In its own block it grows by 1 from
    term to term, and at the start of another block by the length of that block.
    """
    starts = np.flatnonzero(np.diff(with_first) > 1) + 1
    lengths = np.diff([0, *starts.tolist(), len(with_first)]).tolist()
    if 3 <= len(lengths) <= _LIST and lengths[0] > 1 and len(set(lengths[:-1])) > 1:
        for tile in ("", ", tile=16"):
            yield f"blocked(same, {lengths[0]}, same, halve{tile})"
        yield f"blocked(same, {lengths}, same)"


def orders_with_tree(meetings: Meetings, k: int) -> list[str]:
    """Return the text of the simplest order, with the accumulator `same`, whose tree has these meetings.

    Without a simple order it is lanes that a tree joins, then the tree itself, if all pairs of terms were tested and
    each node adds two values, then an order whose last terms are added in a wider accumulator. The result is a list of
    one text, or empty.
    """
    few = np.random.default_rng(0).permutation(len(meetings.i))[:64]
    for text in itertools.chain(_templates(meetings, k), _parts(meetings, k), _joined_lanes(meetings, k)):
        tree = tree_of(parse(text, FP32), k)
        if tree is None or not np.array_equal(
            meeting_sizes(tree, meetings.i[few], meetings.j[few]), meetings.sizes[few]
        ):
            continue
        if np.array_equal(meeting_sizes(tree, meetings.i, meetings.j), meetings.sizes):
            return [text]
    return _tree_itself(meetings, k) or _wide_tail(meetings, k)


def _parts(meetings: Meetings, k: int) -> Iterator[str]:
    """Yield sums of parts of K: whole tiles that follow each other, or that are dealt to the parts."""
    for orders, _ in matched_layouts(meetings, k, 1, (0,)):
        yield from (f"splitk({n}, same, same, tile={tile}, {rule})" for rule, n, tile in orders if rule in _SPLIT)


_SPLIT = ("serial", "dealt")


def _table(meetings: Meetings, k: int) -> NDArray[np.int64] | None:
    """Return the sizes of the nodes where each two terms meet, 1 for a term itself; None if some are not known."""
    if len(meetings.i) != k * (k - 1) // 2:
        return None
    sizes = np.ones((k, k), np.int64)
    sizes[meetings.i, meetings.j] = sizes[meetings.j, meetings.i] = meetings.sizes
    return sizes


def _tree_itself(meetings: Meetings, k: int) -> list[str]:
    sizes = _table(meetings, k)
    return [] if sizes is None else [f"tree(same, {shape})" for shape in _shapes(k - sizes)]


def _shapes(counts: NDArray[np.int64]) -> list[TreeShape]:
    """Return the tree of counts as those of `fs.reveal_order`, or nothing if they belong to none."""
    np.fill_diagonal(counts, -1)
    try:
        return [as_tree_shape(counts)]
    except ValueError:  # several values are added at once
        return []


def _joined_lanes(meetings: Meetings, k: int) -> Iterator[str]:
    """Yield lanes that a tree of their own joins, as those of the accumulators of a loop over vectors.

    Lanes meet first in themselves. The tree of n lanes is the tree of their first terms, with the lanes below each node
    counted in place of the terms.
    """
    sizes = _table(meetings, k)
    if sizes is None:
        return
    for n in (n for n in range(2, k // 2 + 1) if (sizes[0, ::n] <= -(-k // n)).all()):
        first = sizes[:n, :n]
        below = np.array([[(row <= size).sum() for size in row] for row in first])
        yield from (f"strided(same, {n}, tree(same, {shape}))" for shape in _shapes(n - below))


def _wide_tail(meetings: Meetings, k: int) -> list[str]:
    """Return an order whose last terms are added in FP64, which absorbs no unit: they meet in twos.

    OpenBLAS's `sdot` is one: its products are rounded to FP32, and a vector loop adds the first terms in FP32.
    """
    sizes = _table(meetings, k)
    if sizes is None:
        return []
    unabsorbed = [r for r in range(2, k - 1) if (sizes[k - r :, k - r :] <= 2).all()]
    if not unabsorbed:
        return []
    main = k - unabsorbed[-1]
    inside = (meetings.i < main) & (meetings.j < main)
    own = Meetings(meetings.i[inside], meetings.j[inside], meetings.sizes[inside])
    tail = f"sequential(fp64, product=fp32)], [{main}, {k - main}], sequential(fp64))"
    return [f"parts([{text}, {tail}" for text in orders_with_tree(own, main)]


_PRODUCTS = ("", "fused")
_NARROW = "product=fp32"  # rounded to FP32 and added in FP64, as in the scalar loop of OpenBLAS's `sdot`
_OPTIONS = ("", "rounding=toward_zero", "ftz", "daz", "ftz, daz")


@functools.lru_cache(maxsize=256)
def variants(order: str, accumulator: FloatFormat, exact_products: bool) -> tuple[Accumulation, ...]:
    """Return an order in an accumulator, with rounded and exact products and other rounding options.

    >>> import floatsim as fs
    >>> [str(each) for each in variants("blocked(same, 8, same)", fs.FP32, False)[:2]]
    ['blocked(sequential(fp32), 8, sequential(fp32))', 'blocked(sequential(fp32, fused), 8, sequential(fp32))']
    """
    found: dict[Accumulation, None] = {}
    products = [*_PRODUCTS[: 1 if exact_products else 2], *[_NARROW] * (accumulator == FP64)]
    for option in _OPTIONS:
        for product in products:
            found.setdefault(parse(_with_options(order, product, option), accumulator))
    return tuple(found)


def _with_options(order: str, product: str, option: str) -> str:
    """Return the text with options in every leaf; `product` belongs to the leaves that add products."""
    texts, depth_words = [], re.sub(r"\b(pairwise|tree)\(same", r"\1<same", order).split("same")
    first = True
    for before in depth_words[:-1]:
        leaf = before.endswith("<")  # of a tree, which has arguments of its own
        words = [] if not (product and first) else (["product=none"] if leaf and product == "fused" else [product])
        words += [option] if option else []
        first = False
        if leaf:
            texts.append(before[:-1] + "(same" + "".join(f", {word}" for word in words))
        else:
            texts.append(before + (f"sequential(same, {', '.join(words)})" if words else "same"))
    return "".join(texts) + depth_words[-1]
