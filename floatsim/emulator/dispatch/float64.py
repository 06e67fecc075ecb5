"""When kernels on float64 give the same bits as the general ones, and how they are called.

They take any format that float64 holds with margin, in all roundings.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from floatsim_kernels.gemm import float64 as loops

from floatsim.accumulation import Kahan, Leaf, Neumaier, Pairwise, ProductLeaf
from floatsim.emulator.dispatch.kernel import FastLeaf
from floatsim.emulator.params import rule_of
from floatsim.emulator.proofs import FARTHEST, can_round, infinite, nearest_does
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats.rounding import Attributes, Rounding
from floatsim.formats.value_sets import Terms, quantum

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["leaf_kernel", "rows_of", "work_rows"]


_HEIGHT = 96
"""Of trees: 64, or NumPy's: up to 64 halvings, 16 terms one after the other, 3 levels and 7 terms more."""


def _holds(fmt: FloatFormat, terms: Terms) -> bool:
    """Whether all terms are numbers of the format."""
    return (
        terms.precision <= fmt.precision
        and terms.lowest >= quantum(fmt)
        and terms.highest <= fmt.emax
        and fmt.has_signed_zero
        and (fmt.has_infinity or not infinite(terms))
    )


def leaf_kernel(leaf: Leaf, terms: Terms, attributes: Attributes, product_attributes: Attributes) -> FastLeaf | None:
    """The kernel that sums a leaf in float64, or None."""
    if not isinstance(leaf, ProductLeaf):
        return None
    fmt, product = leaf.format, leaf.product
    if terms.b is None or product is None or _holds(product, terms):
        product = None
    # products are exact in float64
    if terms.precision > FP64.precision or terms.lowest < quantum(FP64) or terms.highest > FARTHEST:
        return None
    to_single = fmt == FP32 and attributes.rounding is Rounding.STOCHASTIC and not product
    if to_single:
        if not _holds(fmt, terms) or attributes.random_bits > 32 or attributes.daz or attributes.ftz:
            return None
    elif not can_round(fmt, attributes) or (product and not can_round(product, product_attributes)):
        return None
    # what is infinite stays so, and zeros keep their signs
    if product and ((infinite(terms) and not product.has_infinity) or (fmt.has_signed_zero > product.has_signed_zero)):
        return None
    if (product.has_infinity if product else infinite(terms)) and not fmt.has_infinity:
        return None
    rule, sign, grid = rule_of(fmt, attributes)
    rule = loops.STOCHASTIC_SINGLE if to_single else rule
    product_rule, turn, product_grid, least = loops.EXACT, 1.0, grid, fmt.precision
    if product:
        product_rule, product_sign, product_grid = rule_of(product, product_attributes)
        turn = sign * product_sign if product_rule == loops.DOWN else 1.0
        least = min(least, product.precision)
    if rule == loops.EVEN and not nearest_does(fmt, Terms(product) if product else terms, isinstance(leaf, Pairwise)):
        rule = loops.EVEN_FROM_ODD
    # one rounding multiplies by at most 1 + 2**(1 - p) or adds a least quantum; and the bound itself is rounded
    tree = isinstance(leaf, Pairwise)
    growth = (1 + 2.0 ** (1 - least)) ** ((_HEIGHT if tree else loops.DEPTH) + 1) * (1 + 2.0**-40)
    slack = (1 if tree else loops.DEPTH) * sum(2.0 ** quantum(f) for f in (fmt, product or fmt))
    rules = np.array([rule, product_rule], np.int64)
    extra = (rules, sign, turn, grid, product_grid, growth, slack)
    if tree:
        return FastLeaf(FP64, _tree, extra)
    if isinstance(leaf, Kahan | Neumaier):
        return FastLeaf(FP64, _compensated, (int(isinstance(leaf, Neumaier)), *extra))
    return FastLeaf(FP64, _sequential, extra)


# -- calls -------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _numbers(stride: int) -> NDArray[np.uint32]:
    """The row NUMBERS."""
    numbers = (np.arange(loops.WIDTH, dtype=np.int64) * stride).astype(np.uint32)
    return numbers.reshape(-1, 2, 8).swapaxes(1, 2).reshape(-1)


def work_rows(n: int, index: NDArray[np.int64]) -> NDArray[np.float64]:
    """n rows for a kernel to work in. They begin at a cache line: vectors that lie across two cost twice."""
    memory = np.zeros(n * loops.WIDTH + 8)
    skip = -memory.__array_interface__["data"][0] // 8 % 8
    work = memory[skip : skip + n * loops.WIDTH].reshape(n, loops.WIDTH)
    work[loops.NUMBERS].view(np.uint32)[: loops.WIDTH] = _numbers(int(index[2]))
    return work


def rows_of(out: NDArray[np.float64]) -> NDArray[np.float64]:
    """The results (ranges, M, N) as one matrix."""
    return out.reshape(out.shape[0] * out.shape[1], out.shape[2])


def _sequential(a: Any, b: Any, out: Any, ranges: Any, index: Any, *arguments: Any) -> None:
    work = np.empty(loops.KEYS, np.uint64), work_rows(loops.SEQUENTIAL_ROWS, index)
    loops.sequential(a, b, rows_of(out), ranges, index, *arguments, *work)


def _compensated(a: Any, b: Any, out: Any, ranges: Any, index: Any, *arguments: Any) -> None:
    work = np.empty(loops.KEYS, np.uint64), work_rows(loops.COMPENSATED_ROWS, index)
    loops.compensated(a, b, rows_of(out), ranges, index, *arguments, *work)


def _tree(
    a: Any, b: Any, out: Any, ranges: Any, index: Any, seeds: Any, orders: Any, merges: Any, depth: int, *arguments: Any
) -> None:
    work = np.empty(loops.KEYS, np.uint64), work_rows(loops.rows_of_tree(depth), index)
    loops.tree(a, b, rows_of(out), ranges, index, seeds, orders, merges, depth, *arguments, *work)
