"""Guaranteed bounds of a matrix product: the same sums rounded down and rounded up.

Source: S. Rump, "Fast and parallel interval arithmetic", BIT 39 (1999), 534-554.
"""

from __future__ import annotations

from typing import Any

from floatsim.accumulation import (
    AccumulationLike,
    Blocked,
    Exact,
    Pairwise,
    Sequential,
    SplitK,
    Strided,
    Tree,
    as_accumulation,
    leaves,
)
from floatsim.accumulation.base import Accumulation, ProductLeaf
from floatsim.arrays.array.types import FloatResult, Floats
from floatsim.arrays.sums.products import matmul
from floatsim.formats import FormatLike, as_format
from floatsim.formats.rounding import Overflow

__all__ = ["product_bounds"]

_MONOTONIC = (Sequential, Pairwise, Tree, Exact, Strided, Blocked, SplitK)


def product_bounds(
    a: Floats, b: Floats, c: Floats | None = None, *, accumulate: AccumulationLike = "fp32",
    format: FormatLike | None = None,
) -> tuple[FloatResult, FloatResult]:  # fmt: skip
    """Return bounds between which the exact product a @ b + c lies, by two products with directed roundings.

    Each product and each sum is rounded toward -infinity for the lower bound, and toward +infinity for the upper one.
    A rounding toward -infinity returns no more than its exact operation, and additions keep that order. So every
    partial sum is a bound of the exact partial sum, in any order of summation.

    Parameters
    ----------
    a : array_like of floats, (..., M, K) or (K,)
    b : array_like of floats, (..., K, N) or (K,)
        The operands of `fs.matmul`.
    c : array_like of floats, optional
        The addend of `fs.matmul`.
    accumulate : accumulation or text
        The order and the formats of the sums: `Sequential`, `Pairwise`, `Tree`, `Strided`, `Blocked`, `SplitK` or
        `Exact`, without rounding options of their own.
    format : format, optional
        The format of the bounds. Default: the accumulator's.

    Returns
    -------
    low, high : FloatArray or ndarray
        low <= a @ b + c <= high. The bounds are infinite where a sum overflows. Infinite operands give both bounds the
        infinity of the product. They are NaN where an operand is NaN, and where the product is: 0 * inf and inf - inf.
        Subnormal numbers are kept, whatever `fs.context` says.

    Raises
    ------
    ValueError
        If the description corrects errors (Kahan, Neumaier), is a matrix unit, fixes rounding options, or has a format
        without infinity: its two results are no bounds.

    Examples
    --------
    >>> import floatsim as fs
    >>> a, b = fs.array([1.0, 2.0**-11, 2.0**-11], "fp16"), fs.array([1.0, 1.0, 1.0], "fp16")
    >>> low, high = fs.product_bounds(a, b, accumulate="fp16")  # the exact sum is 1 + 2**-10
    >>> float(low), float(high), float(fs.matmul(a, b, accumulate="fp16"))
    (1.0, 1.001953125, 1.0)
    """
    accumulation = as_accumulation(accumulate)
    _check(accumulation)
    if format is not None and not as_format(format).has_infinity:
        raise ValueError(f"format={as_format(format).name} has no infinity, so that an overflow would be no bound")
    options: dict[str, Any] = {
        "c": c, "accumulate": accumulation, "format": format, "daz": False, "ftz": False, "overflow": "infinity",
        "backend": "emulator",
    }  # fmt: skip
    return (
        matmul(a, b, rounding="toward_negative", result_rounding="toward_negative", **options),
        matmul(a, b, rounding="toward_positive", result_rounding="toward_positive", **options),
    )


def _check(accumulation: Accumulation) -> None:
    parts = [accumulation]
    while parts:
        part = parts.pop()
        if type(part) not in _MONOTONIC:
            names = ", ".join(kind.__name__ for kind in _MONOTONIC)
            raise ValueError(
                f"accumulate: {part} has no bounds by two directed roundings; descriptions of {names} have"
            )
        parts += part.children
    for leaf in leaves(accumulation):
        product = leaf.product if isinstance(leaf, ProductLeaf) else None
        for fmt in (leaf.format, product):
            if fmt is not None and not fmt.has_infinity:
                raise ValueError(f"accumulate: {fmt.name} has no infinity, so that an overflow would be no bound")
        fixed = [leaf.rounding, leaf.ftz, leaf.daz, getattr(leaf, "product_rounding", None)]
        if any(x is not None for x in fixed) or leaf.overflow is not Overflow.INFINITY:
            raise ValueError(f"accumulate: {leaf} fixes rounding options; bounds need a description without them")
