"""Conversion losses: the shares of a tensor that a conversion flushes to zero, makes subnormal, and overflows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.conversion import decode, encode
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.call.options import context
from floatsim.arrays.call.random_stream import SeedLike
from floatsim.formats import FloatFormat, FormatLike, as_format
from floatsim.formats.rounding import OVERFLOW, RoundingLike

__all__ = [
    "FLUSHED", "NORMAL", "OVERFLOWED", "SUBNORMAL", "ClassifiesLosses", "ConversionLosses", "classify_losses",
    "conversion_losses", "finite_nonzero", "finite_nonzero_or_none", "shares",
]  # fmt: skip

FLUSHED, SUBNORMAL, NORMAL, OVERFLOWED = range(4)


@runtime_checkable
class ClassifiesLosses(Protocol):
    """A quantized tensor that classifies the losses of its finite non-zero values, in one dimension."""

    def classify_losses(self, x: Any, /) -> NDArray[np.intp]:
        """Return FLUSHED, SUBNORMAL, NORMAL or OVERFLOWED for each finite non-zero value of x, the tensor before."""
        ...


@dataclass(frozen=True)
class ConversionLosses:
    """The shares of a tensor's finite non-zero values that a conversion flushes, makes subnormal, and overflows.

    The shares sum to 1.

    Attributes
    ----------
    flushed : float
        The share flushed to zero.
    subnormal : float
        The share that becomes subnormal: below the smallest normal number, with fewer significant bits.
    normal : float
        The share that becomes a normal number.
    overflowed : float
        The share beyond the largest number, including negative values if the format has no sign.

    Examples
    --------
    >>> import floatsim as fs
    >>> losses = fs.conversion_losses([1.0, 2.0, 3.0, 1e6], "fp16")
    >>> losses.normal, losses.overflowed
    (0.75, 0.25)
    """

    flushed: float
    subnormal: float
    normal: float
    overflowed: float


def shares(numbers: NDArray[np.int64]) -> ConversionLosses:
    """Return the shares of the numbers of values flushed, made subnormal, kept normal and overflowed; NaN of none."""
    total = int(numbers.sum())
    return ConversionLosses(*(int(n) / total if total else math.nan for n in numbers))


def finite_nonzero(x: Any) -> NDArray[np.float64]:
    """Return the finite non-zero values of x in one dimension. Raise ValueError if there are none."""
    values = x.values if isinstance(x, FloatArray) else np.asarray(x, np.float64)
    kept: NDArray[np.float64] = values[np.isfinite(values) & (values != 0)]
    if not kept.size:
        raise ValueError("x has no finite non-zero number")
    return kept


def finite_nonzero_or_none(x: Any) -> NDArray[np.float64]:
    """Return the finite non-zero values of x in one dimension, none of an array without elements.

    Raise ValueError if x has elements, but none of these.
    """
    return np.empty(0) if np.size(x.codes if isinstance(x, FloatArray) else x) == 0 else finite_nonzero(x)


def classify_losses(
    values: NDArray[np.float64],
    fmt: FloatFormat,
    *,
    rounding: RoundingLike | None = None,
    ftz: bool | None = None,
    seed: SeedLike | None = None,
) -> NDArray[np.intp]:
    """Return FLUSHED, SUBNORMAL, NORMAL or OVERFLOWED for each finite non-zero value, in the shape of `values`."""
    with context(overflow="infinity", daz=False):
        codes, flags = encode(values, fmt, rounding=rounding, ftz=ftz, seed=seed, return_flags=True)
    size = np.abs(decode(codes, fmt))
    kinds = np.select([size == 0, size < fmt.smallest_normal], [FLUSHED, SUBNORMAL], NORMAL)
    return np.where((flags & OVERFLOW != 0) | np.isnan(size), OVERFLOWED, kinds)


def conversion_losses(
    x: Any,
    format: FormatLike | ClassifiesLosses,
    *,
    rounding: RoundingLike | None = None,
    ftz: bool | None = None,
    seed: SeedLike | None = None,
) -> ConversionLosses:
    """Return the shares of x that a conversion flushes to zero, makes subnormal, and overflows.

    Parameters
    ----------
    x : array_like
        Real numbers of any shape, or a FloatArray. Zeros, infinities and NaNs are excluded.
    format : format or result of fs.quantize_blocks
        The target format; or x quantized with `fs.quantize_blocks`. Then "overflowed" means beyond the largest number
        that the scale of the element's block allows, and "subnormal" means that the element is subnormal before its
        scale is applied. The next three keywords are then errors.
    rounding : Rounding or str, optional
        The rounding mode: "ties_to_even", "ties_to_away", "toward_zero", "toward_positive", "toward_negative",
        "to_odd" or "stochastic". Default: the context's, which is "ties_to_even" unless changed.
    ftz : bool, optional
        Flush subnormal results to zero. Default: the context's, which is False unless changed.
    seed : int, generator or RandomStream, optional
        The seed of stochastic rounding.

    Returns
    -------
    ConversionLosses
        Its attributes flushed, subnormal, normal and overflowed sum to 1. They are NaN for an array without elements.

    Raises
    ------
    ValueError
        If x has elements, but no finite non-zero value, or an argument is invalid.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.conversion_losses([1e-9, 1e-6, 1.0, 1e6], "fp16")
    ConversionLosses(flushed=0.25, subnormal=0.25, normal=0.25, overflowed=0.25)
    >>> fs.conversion_losses([1e-9, 1e-6, 1.0, 1e6], "fp16", ftz=True).flushed
    0.5
    >>> x = np.float32([0.01, 1, 2, 100])
    >>> fs.conversion_losses(x, fs.quantize_blocks(x, "int8")).flushed
    0.25
    """
    if isinstance(format, ClassifiesLosses):
        if rounding is not None or ftz is not None or seed is not None:
            raise ValueError("rounding, ftz and seed are arguments of fs.quantize_blocks; x is quantized already")
        finite_nonzero_or_none(x)  # raises the error for none
        return shares(np.bincount(format.classify_losses(x), minlength=4))
    values = finite_nonzero_or_none(x)
    kinds = classify_losses(values, as_format(format), rounding=rounding, ftz=ftz, seed=seed)
    return shares(np.bincount(kinds, minlength=4))
