"""Leaves summed in float64: any format that float64 holds with margin, in every rounding."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from floatsim_kernels.gemm import float64 as loops

from floatsim._types import Floats
from floatsim.accumulation import Kahan, Neumaier, ProductLeaf, Sequential, Tree, TreeLeaf
from floatsim.emulator.dispatch.kernel import Case, FloatKernel, Planned
from floatsim.emulator.dispatch.tiling import SCRATCH
from floatsim.emulator.params import float64_rounding, pack
from floatsim.emulator.proofs import (
    nearest_then_nearest,
    products_are_not_rounded,
    rounds_in_float64,
    short_products_round_in_float64,
    terms_fit_float64,
)
from floatsim.formats import FP32, FP64
from floatsim.formats.rounding import Rounding
from floatsim.formats.value_sets import TermRange, contains, quantum

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LEAVES", "Float64", "Float64Kernel", "float64_kernel", "work_rows"]

LEAVES = (Sequential, TreeLeaf, Kahan, Neumaier)
"""The accumulations that the kernels on float32 and float64 have loops for."""

_HEIGHT = 96
"""Height of the tallest tree of `Pairwise`: 64 levels; or NumPy's, 64 halvings, 16 terms in order, 3 levels and 7 more
terms."""


class Float64:
    """Sums in float64, rounded to the accumulator's format by a second operation."""

    name = "float64"
    takes = LEAVES

    def refusal(self, case: Case) -> str | None:
        leaf, terms = case.accumulation, case.terms
        assert isinstance(leaf, ProductLeaf)
        fmt, product = leaf.format, _rounded_product(leaf, terms)
        if reason := case.float_refusal():
            return reason
        if not terms_fit_float64(terms):
            exponents = f"exponents {terms.lowest} to {terms.highest}"
            return f"float64 does not hold every term: {terms.precision} bits, {exponents}"
        entering = TermRange(product) if product is not None else terms
        if _to_single(case):
            attributes = case.sums
            if not contains(FP32, entering) or attributes.random_bits > 32 or attributes.daz or attributes.ftz:
                return "stochastic sums in FP32 need FP32 terms, at most 32 random bits, and neither DAZ nor FTZ"
        elif not rounds_in_float64(fmt, case.sums):
            return f"float64 does not round to {fmt} in this way"
        if product is not None:
            short = short_products_round_in_float64(product, terms, case.products)
            if not (short or rounds_in_float64(product, case.products)):
                return f"float64 does not round products to {product} in this way"
            if terms.has_infinity and not product.has_infinity:
                return f"products can be infinite, and {product} has no infinity"
            if fmt.has_signed_zero and not product.has_signed_zero:
                return f"products can be -0, and {product} has no -0"
        if entering.has_infinity and not fmt.has_infinity:
            return f"terms can be infinite, and {fmt} has no infinity"
        return None

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> FloatKernel:
        return FloatKernel(case, plan, FP64, float64_kernel(case))


def _rounded_product(leaf: ProductLeaf, terms: TermRange) -> Any:
    """Return the format that products are rounded to, or None if they enter exactly."""
    return None if products_are_not_rounded(leaf.product, terms) else leaf.product


def _to_single(case: Case) -> bool:
    """Return whether the case is a stochastic sum in FP32, which has a rule of its own."""
    leaf = case.accumulation
    assert isinstance(leaf, ProductLeaf)
    return leaf.format == FP32 and case.sums.rounding is Rounding.STOCHASTIC


@dataclass(frozen=True)
class Float64Kernel:
    """A matrix kernel of `floatsim_kernels.gemm.float64`, and its arguments behind those of every matrix kernel."""

    call: Callable[..., None]
    arguments: tuple[Any, ...]
    least: float | None = None
    """The least magnitude of a product that FP32 holds for certain, where products are rounded to FP32. If all products
    are zero or between it and FP32's largest number, they enter exactly."""

    def __call__(self, a: Floats, b: Floats, *arguments: Any) -> None:
        rules, *more = self.arguments
        if self.least is not None and _products_between(a, b, self.least, FP32.max):
            rules = np.array([rules[loops.SUM_RULE], loops.EXACT], np.int64)
        self.call(a, b, *arguments, rules, *more)


def _products_between(a: Floats, b: Floats, least: float, most: float) -> bool:
    """Return whether the magnitudes of all products of elements are 0 or between two bounds."""
    low, high = 1.0, 1.0
    for x in map(np.abs, (a, b)):
        low *= x.min(initial=np.inf, where=x > 0)
        high *= x.max(initial=0.0)
    return bool(low >= least and high <= most)


def float64_kernel(case: Case) -> Float64Kernel:
    """Return the matrix kernel of a case that `Float64` does not refuse."""
    leaf, terms = case.accumulation, case.terms
    assert isinstance(leaf, ProductLeaf)
    fmt, product = leaf.format, _rounded_product(leaf, terms)
    rule, sign, params = float64_rounding(fmt, case.sums)
    if _to_single(case):
        rule = loops.STOCHASTIC_FP32
    product_rule, turn, product_params, least = loops.EXACT, 1.0, params, fmt.precision
    exact_from: float | None = None
    if product is not None:
        product_rule, product_sign, product_params = float64_rounding(product, case.products)
        turn = sign * product_sign if product_rule == loops.TOWARD_NEGATIVE else 1.0
        if short_products_round_in_float64(product, terms, case.products):
            product_params, exact_from = _short_rounding(product_params), 2.0 ** (quantum(FP32) + terms.precision)
        least = min(least, product.precision)
    tree = isinstance(leaf, TreeLeaf)
    entering = terms if product is None else TermRange(product)
    if rule == loops.TIES_TO_EVEN and not nearest_then_nearest(fmt, entering, both_terms=tree):
        rule = loops.TIES_TO_EVEN_FROM_ODD
    # A bound of sums without overflow: one rounding multiplies by at most 1 + 2**(1 - p), or adds a smallest subnormal;
    # the factor 1 + 2**-40 covers the rounding of the bound itself.
    height = max(_HEIGHT, leaf.tree.height) if isinstance(leaf, Tree) else _HEIGHT
    growth = _power(1 + 2.0 ** (1 - least), (height if tree else loops.DEPTH) + 1) * (1 + 2.0**-40)
    slack = (1 if tree else loops.DEPTH) * sum(2.0 ** quantum(f) for f in (fmt, product or fmt))
    rules = np.array([rule, product_rule], np.int64)
    arguments = (rules, sign, turn, params, product_params, growth, slack)
    if tree:
        return Float64Kernel(_tree, arguments, exact_from)
    if isinstance(leaf, Kahan | Neumaier):
        call = functools.partial(_compensated, int(isinstance(leaf, Neumaier)))
        return Float64Kernel(call, arguments, exact_from)
    return Float64Kernel(_sequential, arguments, exact_from)


_SHORT = 20
"""The bits of numbers that the rule STOCHASTIC rounds to: 32 random bits are behind them."""


def _short_rounding(params: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the parameters of a stochastic rounding to FP32 for products of at most 20 bits."""
    fields = dict(zip(loops.ROUNDING_FIELDS, params, strict=True))
    fields["lowest"] = 2.0 ** (quantum(FP32) + _SHORT - 1)
    fields["scale"] = 2.0 ** (52 - 32 - (_SHORT - 1))
    return pack(loops.ROUNDING_FIELDS, fields, np.float64)


def _power(x: float, n: int) -> float:
    """Return x**n, infinite beyond float64's range."""
    return x**n if n * math.log2(x) < FP64.emax else math.inf


# -- calls -------------------------------------------------------------------------------------------------------------


_FLOAT64 = np.dtype(np.float64)


@functools.lru_cache(maxsize=64)
def _numbers(stride: int) -> NDArray[np.uint32]:
    """Return the row NUMBERS of the kernels' scratch."""
    numbers = (np.arange(loops.WIDTH, dtype=np.int64) * stride).astype(np.uint32)
    return numbers.reshape(-1, 2, 8).swapaxes(1, 2).reshape(-1)


def work_rows(n: int, index: NDArray[np.int64], columns: int) -> NDArray[np.float64]:
    """Return n rows of scratch for so many columns of results, with the numbers of the columns' draws.

    The kernels read whole vectors: at most the next multiple of 16 columns, and no column beyond WIDTH.
    """
    work = SCRATCH.take(n, loops.WIDTH, _FLOAT64, columns + 15 & -16)
    work[loops.NUMBERS].view(np.uint32)[: loops.WIDTH] = _numbers(int(index[2]))
    return work


def rows_of(out: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the results (ranges, M, N) as one matrix."""
    return out.reshape(out.shape[0] * out.shape[1], out.shape[2])


def _sequential(a: Any, b: Any, out: Any, ranges: Any, index: Any, *arguments: Any) -> None:
    work = np.empty(loops.KEYS, np.uint64), work_rows(loops.SEQUENTIAL_ROWS, index, b.shape[1])
    loops.sequential(a, b, rows_of(out), ranges, index, *arguments, *work)


def _compensated(
    neumaier: int, a: Any, b: Any, out: Any, ranges: Any, index: Any, seeds: Any, fresh: bool, *arguments: Any
) -> None:
    work = np.empty(loops.KEYS, np.uint64), work_rows(loops.COMPENSATED_ROWS, index, b.shape[1])
    loops.compensated(a, b, rows_of(out), ranges, index, seeds, fresh, neumaier, *arguments, *work)


def _tree(
    a: Any, b: Any, out: Any, ranges: Any, index: Any, seeds: Any, orders: Any, merges: Any, depth: int, *arguments: Any
) -> None:
    work = np.empty(loops.KEYS, np.uint64), work_rows(loops.rows_of_tree(depth), index, b.shape[1])
    loops.tree(a, b, rows_of(out), ranges, index, seeds, orders, merges, depth, *arguments, *work)
