"""Accumulations that add terms: in order, in a tree, compensated, or exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from floatsim.accumulation.base import TREES, Leaf, ProductLeaf, Same, TreeLeaf
from floatsim.accumulation.tree_shape import TreeShape, as_tree_shape
from floatsim.formats import FormatLike
from floatsim.formats._hashing import hashed_once
from floatsim.formats._validation import as_flag, name_hint
from floatsim.formats.rounding import Overflow, OverflowLike, RoundingLike

__all__ = ["Exact", "Kahan", "Neumaier", "Pairwise", "Sequential", "Tree"]


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Sequential(ProductLeaf):
    """One accumulator, k ascending: acc = +0 (or c, rounded to the format); acc = round(acc + p), p = round(a*b).

    With `fused`, acc = round(a*b + acc): the product is not rounded, as in a chain of fused multiply-adds.
    A zero sum has the sign of IEEE 754: +0 + -0 is +0, but -0 when rounding toward negative. After a NaN term, inf*0 or
    inf - inf the accumulator stays NaN.

    Parameters
    ----------
    format : format
        The accumulator's format.
    fused : bool
        Whether products enter without a rounding: the same as product=None.
    product : format, "same" or None
        The format that products are rounded to before they are added. Default: the accumulator's. None keeps products
        exact.
    product_rounding : Rounding or str, optional
        The rounding mode of products. None means that of the sums.
    rounding, ftz, daz : optional
        The rounding mode, flush to zero and denormals are zero, for every rounding of this description. None inherits
        the call's, then the context's.
    overflow : Overflow or str
        The overflow policy of the accumulator and of rounded products. It is never inherited.

    Raises
    ------
    TypeError
        If a format is a scale format (E8M0), or `fused` is given together with `product`.
    ValueError
        If a name is unknown, or `product_rounding` is given for products that are not rounded.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.Sequential("bf16", fused=True))
    sequential(bf16, fused)
    >>> fs.Sequential("fp16", overflow="saturate_finite")
    Sequential(FP16, overflow='saturate_finite')
    """

    text_form = "sequential(format) or sequential(format, fused)"
    text_words: ClassVar = {"fused": {"fused": True}}

    def __init__(
        self, format: FormatLike, fused: bool = False, product: FormatLike | Same | None = "same", *,
        product_rounding: RoundingLike | None = None, rounding: RoundingLike | None = None, ftz: bool | None = None,
        daz: bool | None = None, overflow: OverflowLike = Overflow.INFINITY,
    ) -> None:  # fmt: skip
        if as_flag(fused, "fused"):
            if not (product is None or (isinstance(product, str) and product == "same")):
                raise TypeError("fused=True rounds no product: pass either fused=True or product=")
            product = None
        super().__init__(
            format, product, product_rounding=product_rounding, rounding=rounding, ftz=ftz, daz=daz, overflow=overflow
        )

    @property
    def fused(self) -> bool:
        """Return whether products are not rounded."""
        return self.product is None

    def _product_texts(self, show: Any) -> list[str]:
        if self.fused:
            return ["fused=True" if show is repr else "fused"]
        return super()._product_texts(show)


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Pairwise(TreeLeaf):
    """A tree of adds: the terms are its leaves, and every inner node is the rounded sum of two nodes.

    There is no seed: the sum of one term is that term, rounded to the format, also for -0. `c` is added last, with one
    more rounding.

    - "adjacent": neighbours (0,1) (2,3) ..., level by level; an odd last node moves up unchanged.
    - "halving": i with i + ceil(n/2), level by level; an odd middle node moves up unchanged. With 32 lanes this is
      CUDA's warp reduction by `__shfl_down_sync` with offsets 16, 8, 4, 2, 1 (CUDA C++ Programming Guide, warp shuffle
      functions).
    - "numpy": NumPy's pairwise sum of contiguous numbers (numpy/_core/src/umath/loops_utils.h.src, `pairwise_sum`):
      fewer than 8 terms in order. Up to 128 terms in eight accumulators r[i] over every eighth term, added as
      ((r0+r1)+(r2+r3))+((r4+r5)+(r6+r7)), then the remaining terms (at most seven) in order. More terms are split in
      two; the first part has n/2 terms, rounded down to a multiple of 8. NumPy's seed -0 of fewer than 8 terms is not
      added.

    Parameters
    ----------
    format : format
        The format of every node.
    tree : str
        "adjacent", "halving" or "numpy".
    product : format, "same" or None
        The format that products are rounded to before they are added. Default: the accumulator's. None keeps products
        exact.
    product_rounding : Rounding or str, optional
        The rounding mode of products. None means that of the sums.
    rounding, ftz, daz : optional
        The rounding mode, flush to zero and denormals are zero, for every rounding of this description. None inherits
        the call's, then the context's.
    overflow : Overflow or str
        The overflow policy of the accumulator and of rounded products. It is never inherited.

    Raises
    ------
    TypeError, ValueError
        If a format is a scale format or a name is unknown.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.Pairwise("fp16", tree="halving"))
    pairwise(fp16, halving)
    """

    text_form = "pairwise(format) or pairwise(format, tree)"
    text_words: ClassVar = {tree: {"tree": tree} for tree in TREES}

    tree: str = "adjacent"

    def __init__(
        self, format: FormatLike, tree: str = "adjacent", product: FormatLike | Same | None = "same", *,
        product_rounding: RoundingLike | None = None, rounding: RoundingLike | None = None, ftz: bool | None = None,
        daz: bool | None = None, overflow: OverflowLike = Overflow.INFINITY,
    ) -> None:  # fmt: skip
        super().__init__(
            format, product, product_rounding=product_rounding, rounding=rounding, ftz=ftz, daz=daz, overflow=overflow
        )
        if tree not in TREES:
            raise ValueError(f"tree={tree!r} is not known; {name_hint(tree, TREES)}")
        self._set(tree=str(tree))

    def _texts(self, show: Any) -> list[str]:
        fmt, *rest = super()._texts(show)
        if self.tree == "adjacent":
            return [fmt, *rest]
        return [fmt, f"tree={self.tree!r}" if show is repr else self.tree, *rest]


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Tree(TreeLeaf):
    """A summation tree given term by term, for a fixed number of terms.

    The terms are the leaves, and every inner node is the rounded sum of two nodes, as in `Pairwise`. The operands of an
    addition have no order. The sum of one term is that term, rounded to the format. `c` is added last, with one more
    rounding. A sum of another number of terms than the tree has is a ValueError; a sum without terms is c or +0.

    Parameters
    ----------
    format : format
        The format of every node.
    tree : nested tuples of int, text, or matrix
        `((0, 1), 2)` adds the terms 0 and 1, then term 2. A longer tuple adds from left to right: `(0, 1, 2)` is the
        same tree. Or a matrix that `fs.reveal_order` returned.
    product : format, "same" or None
        The format that products are rounded to before they are added. Default: the accumulator's. None keeps products
        exact.
    product_rounding : Rounding or str, optional
        The rounding mode of products. None means that of the sums.
    rounding, ftz, daz : optional
        The rounding mode, flush to zero and denormals are zero, for every rounding of this description. None inherits
        the call's, then the context's.
    overflow : Overflow or str
        The overflow policy of the accumulator and of rounded products. It is never inherited.

    Raises
    ------
    TypeError, ValueError
        If a format is a scale format or a name is unknown, or if the tree does not have each term once. If a matrix
        shows values that are added at once, as in a matrix unit, or belongs to no tree.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.Tree("fp32", ((0, 4), (1, 5), (2, (3, 6)))))
    tree(fp32, (0, 4, (1, 5), (3, 6, 2)))
    >>> found = fs.reveal_order("strided(fp32, 2)", 6)
    >>> print(fs.Tree("fp32", found))
    tree(fp32, (0, 2, 4, (1, 3, 5)))
    """

    text_form = "tree(format, ((0, 1), 2))"

    tree: TreeShape

    def __init__(
        self, format: FormatLike, tree: Any, product: FormatLike | Same | None = "same", *,
        product_rounding: RoundingLike | None = None, rounding: RoundingLike | None = None, ftz: bool | None = None,
        daz: bool | None = None, overflow: OverflowLike = Overflow.INFINITY,
    ) -> None:  # fmt: skip
        super().__init__(
            format, product, product_rounding=product_rounding, rounding=rounding, ftz=ftz, daz=daz, overflow=overflow
        )
        self._set(tree=as_tree_shape(tree))

    def _texts(self, show: Any) -> list[str]:
        fmt, *rest = super()._texts(show)
        return [fmt, str(self.tree), *rest]


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Kahan(ProductLeaf):
    """Kahan's compensated sum, every operation rounded to the format.

    s, comp = 0 (s = c, rounded to the format); for each term x, a rounded product: y = round(x - comp);
    t = round(s + y); comp = round(round(t - s) - y); s = t. Returns s. From an infinite or NaN t on, comp stays 0.

    Kahan, "Pracniques: further remarks on reducing truncation errors", CACM 8(1), 1965.

    Parameters
    ----------
    format : format
        The format of s and comp.
    product : format, "same" or None
        The format that products are rounded to before they are added. Default: the accumulator's. None keeps products
        exact.
    product_rounding : Rounding or str, optional
        The rounding mode of products. None means that of the sums.
    rounding, ftz, daz : optional
        The rounding mode, flush to zero and denormals are zero, for every rounding of this description. None inherits
        the call's, then the context's.
    overflow : Overflow or str
        The overflow policy of the accumulator and of rounded products. It is never inherited.

    Raises
    ------
    TypeError, ValueError
        If a format is a scale format or a name is unknown.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> ones = np.ones(4096, np.float16)
    >>> [float(fs.matmul(ones, ones, accumulate=order)) for order in (fs.Kahan("fp16"), "fp16")]
    [4096.0, 2048.0]
    """

    text_form = "kahan(format)"


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Neumaier(ProductLeaf):
    """Neumaier's compensated sum (Kahan-Babuska), every operation rounded to the format.

    s, comp = 0 (s = c, rounded to the format); for each term x, a rounded product: t = round(s + x);
    if |s| >= |x|: comp = round(comp + round(round(s - t) + x)), else comp = round(comp + round(round(x - t) + s));
    s = t. Returns round(s + comp). An infinite or NaN t does not change comp.

    Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen", ZAMM 54, 1974.

    Parameters
    ----------
    format : format
        The format of s and comp.
    product : format, "same" or None
        The format that products are rounded to before they are added. Default: the accumulator's. None keeps products
        exact.
    product_rounding : Rounding or str, optional
        The rounding mode of products. None means that of the sums.
    rounding, ftz, daz : optional
        The rounding mode, flush to zero and denormals are zero, for every rounding of this description. None inherits
        the call's, then the context's.
    overflow : Overflow or str
        The overflow policy of the accumulator and of rounded products. It is never inherited.

    Raises
    ------
    TypeError, ValueError
        If a format is a scale format or a name is unknown.

    Examples
    --------
    >>> import floatsim as fs
    >>> x, one = fs.array([1.0, 30000.0, 1.0, -30000.0], "fp16"), fs.array([1.0] * 4, "fp16")
    >>> [fs.matmul(x, one, accumulate=text).item() for text in ("fp16", "kahan(fp16)", "neumaier(fp16)")]
    [0.0, 0.0, 2.0]
    """

    text_form = "neumaier(format)"


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Exact(Leaf):
    """The exact sum of the exact products, rounded once to the format; `c` is one more exact term.

    An exact zero sum is +0 if all terms are +0, and -0 if all are -0. Otherwise it is +0 (-0 when rounding toward
    negative). NaN, or infinities of both signs, give NaN. Otherwise an infinity wins. With `daz`, subnormal operands
    are read as zeros.

    Parameters
    ----------
    format : format
        The format that the sum is rounded to.
    rounding, ftz, daz : optional
        The rounding mode, flush to zero and denormals are zero. None inherits the call's, then the context's.
    overflow : Overflow or str
        The overflow policy of the last rounding. It is never inherited.

    Raises
    ------
    TypeError, ValueError
        If a format is a scale format or a name is unknown.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.Exact(fs.FP16))
    exact(fp16)
    """

    text_form = "exact(format)"
