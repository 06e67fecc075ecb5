"""Blocks of the IEEE draft P3109: elements that share a scale in a format of any kind, and exact reductions.

Source: IEEE working group P3109, interim report 4.0 (June 2026, a draft), clause 5. The scale is the largest magnitude
of the block. OCP MX and NVFP4 divide it by the largest number of the elements' format (`fs.quantize_blocks`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.arrays.array.conversion import array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.arithmetic import divide, multiply
from floatsim.arrays.elementwise.projection import project
from floatsim.formats import FP64, FormatLike, OverflowLike, RoundingLike, as_format
from floatsim.formats.value_sets import TermRange, contains

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from floatsim.arrays.array.types import Values

__all__ = ["P3109Block", "block_dot", "block_product", "block_sum", "project_block"]


@dataclass(frozen=True)
class P3109Block:
    """Blocks of elements with a scale each.

    Attributes
    ----------
    scale : FloatArray, (...)
        One scale for each block.
    elements : FloatArray, (..., B)
        The elements, along the last axis.

    Examples
    --------
    >>> import floatsim as fs
    >>> block = fs.quantization.project_block([0.5, 1.5, -3.0], "binary8p4se", "binary8p1uf")
    >>> block.scale, block.values
    (FloatArray(4.0, Binary8p1uf), array([ 0.5,  1.5, -3. ]))
    """

    scale: FloatArray
    elements: FloatArray

    def __post_init__(self) -> None:
        if self.elements.shape[:-1] != self.scale.shape:
            raise ValueError(
                f"scale has the shape {self.scale.shape}, but must have one number for each block of elements "
                f"{self.elements.shape}: {self.elements.shape[:-1]}"
            )
        if not contains(FP64, TermRange(self.scale.format, self.elements.format), specials=False):
            raise ValueError(
                f"products of {self.scale.format.name} and {self.elements.format.name} are no float64 numbers"
            )

    @property
    def values(self) -> NDArray[np.float64]:
        """The exact products of scale and element, as float64; 0 times infinity is NaN."""
        products = multiply(np.asarray(self.scale.values)[..., None], np.asarray(self.elements.values), **_EXACTLY)
        return np.where(products == 0, 0.0, products)  # there is no -0


_EXACTLY: Any = {"rounding": "to_odd", "overflow": "infinity", "daz": False, "ftz": False}


def project_block(
    x: Values, format: FormatLike, scale_format: FormatLike, *, scale: Values | None = None,
    rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    scale_rounding: RoundingLike = "ties_to_even", scale_overflow: OverflowLike = "infinity", **stochastic: Any,
) -> P3109Block:  # fmt: skip
    """Round blocks of values to elements with a common scale (ConvertToBlock, ConvertToBlockMaxAbsFinite).

    Parameters
    ----------
    x : array_like, (..., B)
        Values as in `fs.encode`. The last axis is a block.
    format : format
        The format of the elements: a format of P3109.
    scale_format : format
        The format of the scales: a format of P3109, also an unsigned one.
    scale : array_like, (...), optional
        The scales, before their rounding. Default: the largest finite magnitude of each block, NaN if there is none.
    rounding, overflow
        The projection of the elements, as in `fs.project`.
    scale_rounding, scale_overflow
        The projection of the scales.
    **stochastic : stochastic, seed, random, random_bits
        Further options of `fs.project`, for the elements.

    Returns
    -------
    P3109Block
        Each element is the exact quotient x / scale, rounded once. A scale of 0 gives elements 0, NaN gives NaN.

    Raises
    ------
    ValueError
        For formats that are not in P3109, for infinite scales, and for scales with another shape.

    Examples
    --------
    >>> import floatsim as fs
    >>> block = fs.quantization.project_block([1.0, 100.0], "binary4p2se", "binary8p4ue")
    >>> block.scale, block.elements, block.values
    (FloatArray(96.0, Binary8p4ue), FloatArray([0.0, 1.0], Binary4p2se), array([ 0., 96.]))
    """
    values = np.atleast_1d(np.asarray(array(x, FP64, **_EXACTLY).values))
    sizes = _largest_finite(values) if scale is None else scale
    scales = project(sizes, scale_format, rounding=scale_rounding, overflow=scale_overflow)
    s = np.asarray(scales.values)
    if s.shape != values.shape[:-1]:
        raise ValueError(f"scale has the shape {s.shape}, but must have one number for each block: {values.shape[:-1]}")
    if np.isinf(s).any():
        raise ValueError(f"scale is infinite in {scales.format.name}; use scale_overflow='saturate_finite'")
    divisor = np.where(s == 0, 1.0, s)[..., None]
    quotients = np.asarray(divide(values, np.broadcast_to(divisor, values.shape).copy(), **_EXACTLY))
    quotients = np.where((s[..., None] == 0) & ~np.isnan(values), 0.0, quotients)
    elements = project(quotients, as_format(format), rounding=rounding, overflow=overflow, **stochastic)
    return P3109Block(scales, elements)


def _largest_finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest finite magnitude of each block, NaN for a block without a finite number."""
    finite = np.isfinite(values)
    largest = np.where(finite, np.abs(values), 0.0).max(axis=-1, initial=0.0)
    return np.where(finite.any(axis=-1), largest, np.nan)


def block_dot(a: P3109Block, b: P3109Block, format: FormatLike, **projection: Any) -> FloatArray:
    """Return the exact sum of the products of two blocks, rounded once (BlockDotProduct).

    Parameters
    ----------
    a, b : P3109Block
        Blocks of one shape.
    format : format
        The format of the results: a format of P3109.
    **projection : rounding, overflow, stochastic, seed, random, random_bits
        The projection, as in `fs.project`.

    Returns
    -------
    FloatArray
        One number for each block.

    Raises
    ------
    ValueError
        If the shapes differ, and as `fs.project`.

    Examples
    --------
    >>> import floatsim as fs
    >>> a = fs.quantization.project_block([1.0, 2.0, -4.0], "binary8p4se", "binary8p1uf")
    >>> fs.quantization.block_dot(a, a, "binary8p4se")
    FloatArray(20.0, Binary8p4se)
    """
    x, y = a.values, b.values
    if x.shape != y.shape:
        raise ValueError(f"a and b must have one shape, not {x.shape} and {y.shape}")
    terms = np.stack([x, y], axis=-1)
    return _reduced(
        terms, 2, lambda rows: sum((_product(row) for row in rows), _Extended(Fraction(0))), format, projection
    )


def block_sum(a: P3109Block, format: FormatLike, **projection: Any) -> FloatArray:
    """Return the exact sum of each block, rounded once (BlockReduceAdd).

    Parameters
    ----------
    a : P3109Block
    format : format
        The format of the results: a format of P3109.
    **projection : rounding, overflow, stochastic, seed, random, random_bits
        The projection, as in `fs.project`.

    Returns
    -------
    FloatArray
        One number for each block.

    Raises
    ------
    ValueError
        As `fs.project`.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.quantization.block_sum(fs.quantization.project_block([1, 2, 4], "binary8p4se", "binary8p1uf"), "binary8p3se")
    FloatArray(7.0, Binary8p3se)
    """
    return _reduced(a.values, 1, lambda row: sum(map(_Extended.of, row), _Extended(Fraction(0))), format, projection)


def block_product(a: P3109Block, format: FormatLike, **projection: Any) -> FloatArray:
    """Return the exact product of each block, rounded once (BlockReduceMultiply).

    Parameters
    ----------
    a : P3109Block
    format : format
        The format of the results: a format of P3109.
    **projection : rounding, overflow, stochastic, seed, random, random_bits
        The projection, as in `fs.project`.

    Returns
    -------
    FloatArray
        One number for each block.

    Raises
    ------
    ValueError
        As `fs.project`.

    Examples
    --------
    >>> import floatsim as fs
    >>> block = fs.quantization.project_block([1, 2, 4], "binary8p4se", "binary8p1uf")
    >>> fs.quantization.block_product(block, "binary8p3se")
    FloatArray(8.0, Binary8p3se)
    """
    return _reduced(a.values, 1, _product, format, projection)


@dataclass(frozen=True)
class _Extended:
    """An exact number, an infinity or a NaN: a number of the closed extended reals."""

    finite: Fraction
    special: float = 0.0  # 0 for finite numbers

    @classmethod
    def of(cls, x: float) -> _Extended:
        return cls(Fraction(x)) if math.isfinite(x) else cls(Fraction(0), x)

    def __add__(self, other: _Extended) -> _Extended:
        return _Extended(self.finite + other.finite, self.special + other.special)

    def __mul__(self, other: _Extended) -> _Extended:
        if self.special == 0 == other.special:
            return _Extended(self.finite * other.finite)
        return _Extended(Fraction(0), self.size * other.size)

    @property
    def size(self) -> float:
        """The special value, or the sign of a finite number."""
        return self.special or float((self.finite > 0) - (self.finite < 0))

    @property
    def result(self) -> Fraction | float:
        return self.special or self.finite


def _product(row: NDArray[np.float64]) -> _Extended:
    return math.prod(map(_Extended.of, row), start=_Extended(Fraction(1)))


def _reduced(
    terms: NDArray[np.float64], axes: int, reduce: Callable[[Any], _Extended], fmt: FormatLike, projection: Any
) -> FloatArray:
    """Return the projection of the reduced blocks, whose last `axes` axes are reduced."""
    shape = terms.shape[:-axes]
    exact = [reduce(terms[place].tolist()).result for place in np.ndindex(shape)]
    return project(exact if exact else np.empty(0), fmt, **projection).reshape(shape)
