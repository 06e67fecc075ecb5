"""A priori bounds of rounding errors: how far a correct kernel can be from the exact result.

Deterministic bounds hold for every input. With roundings r of unit roundoff u_r on the longest path from a product to
the result, the error of a sum is at most (prod(1 + u_r) - 1) * sum |a_k * b_k|; with n equal roundings this is below
n*u / (1 - n*u) (N. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, 2002, Lemma 3.1, section
3.1 and section 4.2 for trees).

Probabilistic bounds replace the sum of the u_r by lambda * sqrt(sum of u_r^2). They hold with a given probability, if
the rounding errors have mean 0 and are independent (N. Higham and T. Mary, "A new approach to probabilistic rounding
error analysis", SIAM J. Sci. Comput. 41(5), 2019, Theorems 2.4 and 3.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from floatsim.accumulation import (
    Accumulation,
    AccumulationLike,
    Composite,
    Exact,
    Kahan,
    Leaf,
    Neumaier,
    Parts,
    Permuted,
    ProductLeaf,
    SplitK,
    TensorCore,
    TreeLeaf,
    as_accumulation,
    fitted,
    leaves,
    tensor_cores,
)
from floatsim.accumulation.partition import count, partition
from floatsim.accumulation.trees import program
from floatsim.arrays.comparison import issubnormal
from floatsim.arrays.float_array import FloatArray
from floatsim.formats import FP32, FP64, FloatFormat, FormatLike, as_format
from floatsim.formats.rounding import Rounding, RoundingLike, as_member
from floatsim.tensorcore.instructions import ExactBlocks, FlushedTree, FmaChain, FusedBlocks, LateAccumulator, TwoHalves
from floatsim.testing.products import Product, product_of

__all__ = ["DETERMINISTIC", "PROBABILISTIC", "ErrorBound", "Path", "error_bound", "growth", "path_of", "step", "total"]

DETERMINISTIC = "Higham 2002, Lemma 3.1 and section 4.2"
PROBABILISTIC = "Higham and Mary 2019, Theorems 2.4 and 3.1"

_NEAREST = (Rounding.TIES_TO_EVEN, Rounding.TIES_TO_AWAY)


class Path(NamedTuple):
    """The roundings on the longest path from a product to a sum.

    Attributes
    ----------
    roundings : tuple of (float, int)
        Unit roundoffs, and the number of roundings with each.
    underflow : float
        The largest absolute error of all underflows together.
    centred : bool
        Whether the rounding errors can have mean 0: all roundings are to nearest.
    """

    roundings: tuple[tuple[float, int], ...] = ()
    underflow: float = 0.0
    centred: bool = True

    def then(self, other: Path) -> Path:
        """Return the path that goes on with another one."""
        return Path(self.roundings + other.roundings, self.underflow + other.underflow, self.centred and other.centred)

    @property
    def steps(self) -> int:
        """The number of roundings."""
        return sum(n for _, n in self.roundings)


@dataclass(frozen=True)
class ErrorBound:
    """A bound of the error of each element of a result. Prints as a sentence.

    Attributes
    ----------
    bound : float64 array
        The largest error |computed - exact| of each element; infinity where a correct kernel may overflow.
    exact : float64 array
        The exact results, rounded to FP64.
    roundings : int
        The number of roundings on the longest path, the rounding of the result included.
    factor : float
        The relative part: bound = factor * magnitude + underflow, before the rounding of the result.
    theorem : str
        The source of the bound.
    probability : float or None
        The probability with which all elements meet the bound; None if they always do.
    """

    bound: Any
    exact: Any
    roundings: int
    factor: float
    theorem: str
    probability: float | None = None

    def __str__(self) -> str:
        holds = "always" if self.probability is None else f"with probability {self.probability:.6g}"
        return (
            f"|error| <= {self.factor:.3g} * magnitude, {holds}: {self.roundings} roundings on the longest path "
            f"({self.theorem})"
        )

    __repr__ = __str__


# -- paths -------------------------------------------------------------------------------------------------------------


def step(fmt: FloatFormat, rounding: Rounding | None = None) -> float:
    """Return the largest relative error of one rounding: 2**-p to nearest, 2**(1-p) in other modes."""
    return fmt.unit_roundoff if rounding is None or rounding in _NEAREST else fmt.eps


def path_of(
    accumulation: Accumulation, n: int, a: FloatFormat, b: FloatFormat, *, with_c: bool = False,
    rounding: Rounding = Rounding.TIES_TO_EVEN, products: bool = True,
) -> Path:  # fmt: skip
    """Return the longest path of a sum of n terms. `products`: the terms are products, which are rounded first."""
    if isinstance(accumulation, TensorCore):
        return _unit_path(accumulation, n, a, b)
    if isinstance(accumulation, Permuted):
        return path_of(accumulation.inner, n, a, b, with_c=with_c, rounding=rounding, products=products)
    if isinstance(accumulation, Parts):
        raise ValueError(f"{accumulation} has no bound here: its parts have accumulations of their own")
    if isinstance(accumulation, Composite):
        parts, length = _parts(accumulation, n)
        inner = path_of(accumulation.inner, length, a, b, rounding=rounding, products=products)
        outer = path_of(accumulation.outer, parts, a, b, with_c=with_c, rounding=rounding, products=False)
        between = _through(accumulation, parts, rounding)
        return inner._replace(underflow=inner.underflow * parts).then(between).then(outer)
    assert isinstance(accumulation, Leaf)
    return _leaf_path(accumulation, n, with_c, accumulation.rounding or rounding, products)


def _leaf_path(leaf: Leaf, n: int, with_c: bool, mode: Rounding, products: bool) -> Path:
    if isinstance(leaf, Kahan | Neumaier):
        raise ValueError(f"{leaf} has no bound here: the published bounds of compensated sums hide constants")
    tiny = leaf.format.smallest_normal if leaf.ftz else leaf.format.smallest_subnormal
    u, centred = step(leaf.format, mode), mode in _NEAREST
    if isinstance(leaf, Exact):
        return Path(((u, 1),), tiny, centred)
    assert isinstance(leaf, ProductLeaf)
    depth, additions = _depth(leaf, n + with_c, with_c), n if leaf.ftz else 0  # only FTZ makes an addition underflow
    if not products:
        return Path(((u, depth),), additions * tiny, centred)
    if leaf.product is None:  # one more rounding than additions: the first product is rounded, too
        return Path(((u, depth + 1),), n * tiny, centred)
    own = leaf.product_rounding or mode
    rounded = Path(((step(leaf.product, own), 1),), n * leaf.product.smallest_subnormal, own in _NEAREST)
    return rounded.then(Path(((u, depth),), additions * tiny, centred))


def _depth(leaf: ProductLeaf, terms: int, with_c: bool) -> int:
    """Return the number of additions on the longest path. The first addition to 0 is exact."""
    if not isinstance(leaf, TreeLeaf):
        return max(terms, 1) - 1
    n = terms - with_c
    heights: list[int] = []
    for merges in program(leaf.tree, n).merges.tolist():
        heights.append(0)
        for _ in range(merges):
            top = heights.pop()
            heights[-1] = max(heights[-1], top) + 1
    return (heights[0] if heights else 0) + with_c


def _parts(accumulation: Composite, n: int) -> tuple[int, int]:
    """Return the number of parts and the length of the longest one."""
    lengths = count(partition(accumulation, np.array([[0, n, 1]]).tobytes()).parts)
    return max(len(lengths), 1), int(lengths.max(initial=0))


def _through(accumulation: Composite, parts: int, rounding: Rounding) -> Path:
    """Return the path of the roundings to the format that partial results pass through, at most one for each part."""
    fmt = accumulation.through if isinstance(accumulation, SplitK) else None
    if fmt is None:
        return Path()
    return Path(((step(fmt, rounding), parts),), parts * fmt.smallest_subnormal, rounding in _NEAREST)


def _unit_path(unit: TensorCore, n: int, a: FloatFormat, b: FloatFormat) -> Path:
    """Return the path of a matrix unit: one entry for each block.

    A block of L terms that are truncated F bits below the largest exponent e has an error below (L + 1) * 2**(e - F).
    The largest magnitude among the terms is at least 2**e, and at most the sum of all magnitudes. So a block acts as a
    rounding with u = (L + 1) * 2**-F, and then the rounding of the sum.
    """
    settled = fitted(unit, a, b)
    assert isinstance(settled, TensorCore)
    row = settled.row(a, b)
    model = row.model
    block = model.block if isinstance(model, TwoHalves) else model
    blocks = -(-n // max(1, row.block)) + isinstance(model, TwoHalves) * -(-n // row.k)
    if isinstance(block, FmaChain):
        return Path(((step(row.output), n),), n * row.output.smallest_subnormal)
    if isinstance(block, ExactBlocks):
        return Path(((step(FP32), blocks),), blocks * FP32.smallest_subnormal)
    if isinstance(block, FlushedTree):
        depth = (row.block - 1).bit_length() + 1
        return Path(((step(FP32), 1 + depth * blocks),), 2 * n * FP32.smallest_normal)
    assert isinstance(block, FusedBlocks | LateAccumulator)
    if isinstance(block, FusedBlocks):
        cut, last, floor = (row.block + 1) * 2.0**-block.fraction_bits, step(block.grid, block.rounding), block.floor
    else:
        cut, last, floor = (row.block + 2) * 2.0**-block.fraction_bits, 2.0**-block.sum_bits + step(FP32), FP32.emin
    least = (row.block + 1) * 2.0 ** max(floor - block.fraction_bits, -1000) + row.output.smallest_subnormal
    return Path(((cut, blocks), (last, blocks)), blocks * least, centred=False)


# -- bounds ------------------------------------------------------------------------------------------------------------


def growth(path: Path, elements: int, probability: float | None) -> float:
    """Return the factor prod(1 + u) - 1 of a path, or its probabilistic counterpart for this many elements at once."""
    if probability is None:
        return math.expm1(sum(n * math.log1p(u) for u, n in path.roundings))
    if not path.centred:
        raise ValueError(
            "probability= needs rounding errors with mean 0: these sums truncate, and their errors add up; "
            "omit it for the deterministic bound"
        )
    largest = max((u for u, _ in path.roundings), default=0.0)
    failures = (1 - probability) / max(1, elements * path.steps)
    scale = math.sqrt(2 * math.log(2 / failures)) / (1 - largest)
    squares = sum(n * u * u for u, n in path.roundings)
    return math.expm1(scale * math.sqrt(squares) + squares / (1 - largest))


def as_probability(probability: float | None) -> float | None:
    """Return a probability between 0 and 1, or None, or raise a ValueError."""
    if probability is not None and not 0 < probability < 1:
        raise ValueError(f"probability must be between 0 and 1, as in 0.999, not {probability!r}")
    return probability


def total(
    exact: Any, magnitude: Any, path: Path, fmt: FloatFormat, rounding: Rounding, probability: float | None,
    largest: float = math.inf,
) -> ErrorBound:  # fmt: skip
    """Return the bound of results with these exact values, after one more rounding to `fmt`.

    `largest` is the largest number of the narrowest accumulator: beyond it a correct kernel overflows.
    """
    factor = growth(path, np.size(exact), probability)
    inner = factor * magnitude + path.underflow
    last = step(fmt, rounding) * (np.abs(exact) + inner) + fmt.smallest_subnormal
    bound = (inner + last) * (1 + 1e-9)  # the bound itself is computed in FP64
    bound = np.where(np.abs(exact) + bound > min(fmt.max, largest), math.inf, bound)
    bound = np.where(magnitude + path.underflow > min(fmt.max, largest), math.inf, bound)
    theorem = DETERMINISTIC if probability is None else PROBABILISTIC
    return ErrorBound(bound, exact, path.steps + 1, factor, theorem, probability)


def error_bound(
    a: Any, b: Any, c: Any = None, *, accumulate: AccumulationLike = "fp32", format: FormatLike | None = None,
    rounding: RoundingLike = "ties_to_even", probability: float | None = None,
) -> ErrorBound:  # fmt: skip
    """Return the a priori error bound of each element of a matrix product.

    Parameters
    ----------
    a, b : array_like of floats, (..., M, K) and (..., K, N)
        The operands.
    c : array_like of floats, optional
        The accumulator at the start.
    accumulate : accumulation or text
        The description of the sums.
    format : format, optional
        The format of the result, whose rounding is included. Default: the accumulator's.
    rounding : Rounding or str
        The rounding mode of the sums and of the result.
    probability : float, optional
        The probability that all elements meet the bound. Default: the deterministic bound, which grows with K instead
        of sqrt(K).

    Returns
    -------
    ErrorBound
        `bound` and `exact` have the shape of the product. Subnormal operands count as zeros where the sums read them
        so (DAZ). The bound is infinite where magnitudes reach the end of the
        accumulator's range.

    Raises
    ------
    ValueError
        For compensated sums, whose bounds are published without constants; for a probability outside (0, 1), or with
        sums that truncate.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> a, b = fs.array(np.ones((2, 1024)), "bf16"), fs.array(np.ones((1024, 2)), "bf16")
    >>> error_bound(a, b, accumulate="fp32")
    |error| <= 6.1e-05 * magnitude, always: 1025 roundings on the longest path (Higham 2002, Lemma 3.1 and section 4.2)
    >>> error_bound(a, b, accumulate="fp32", probability=0.999).factor < 2e-5
    True
    """
    product = _as_read(product_of(a, b, c, accumulate))
    mode, chance = as_member(Rounding, rounding, "rounding"), as_probability(probability)
    accumulation = as_accumulation(accumulate)
    fmt = accumulation.result_format if format is None else as_format(format)
    path = path_of(
        accumulation, product.k, product.a.format, product.b.format, with_c=product.c is not None, rounding=mode
    )
    exact = np.asarray(product.result("exact(fp64)", FP64).values)
    with np.errstate(all="ignore"):
        sides = [np.abs(np.asarray(x.values)) for x in (product.a, product.b)]
        magnitude = sides[0] @ sides[1]
        if product.c is not None:
            magnitude = magnitude + np.abs(np.asarray(product.c.values))
        return total(exact, magnitude, path, fmt, mode, chance, _narrowest(accumulation))


def _as_read(product: Product) -> Product:
    """Return the product with the operands that the sums read: without subnormals, where they are read as zeros."""
    flushes = any(leaf.daz for leaf in leaves(product.accumulate))
    for unit in tensor_cores(fitted(product.accumulate, product.a.format, product.b.format)):
        flushes |= isinstance(unit.row(product.a.format, product.b.format).model, FlushedTree)
    if not flushes:
        return product
    sides = [
        FloatArray(np.where(issubnormal(x), x.codes.dtype.type(0), x.codes), x.format) for x in (product.a, product.b)
    ]
    return replace(product, a=sides[0], b=sides[1])


def _narrowest(accumulation: Accumulation) -> float:
    return min([leaf.format.max for leaf in leaves(accumulation)] + [accumulation.result_format.max])
