"""The exponents of a tensor, and what conversions to formats do to the numbers of each exponent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floatsim.analysis.conversion_losses import (
    FLUSHED,
    NORMAL,
    OVERFLOWED,
    SUBNORMAL,
    ConversionLosses,
    classify_losses,
    finite_nonzero_or_none,
    shares,
)
from floatsim.formats import FloatFormat, FormatLike, as_formats

__all__ = ["ExponentHistogram", "exponent_histogram"]


@dataclass(frozen=True, eq=False)
class ExponentHistogram:
    """The number of finite non-zero values in each power of two, and their losses in conversions to formats.

    Attributes
    ----------
    exponents : int64 array, (bins,)
        Consecutive exponents e. Bin e has the values of magnitude 2**e to below 2**(e + 1).
    numbers : int64 array, (bins,)
        The number of values in each bin.
    formats : tuple of FloatFormat
        The target formats.
    flushed, subnormal, normal, overflowed : int64 array, (formats, bins)
        The number of values in each bin that the conversion to each format flushes to zero, makes subnormal, makes a
        normal number, or overflows, as in `fs.ConversionLosses`. The four arrays sum to `numbers` in each row.

    Examples
    --------
    >>> import floatsim as fs
    >>> histogram = fs.exponent_histogram([1.0, 1.5, 4.0], "fp16")
    >>> histogram.exponents, histogram.numbers
    (array([0, 1, 2]), array([2, 0, 1]))
    """

    exponents: NDArray[np.int64]
    numbers: NDArray[np.int64]
    formats: tuple[FloatFormat, ...]
    flushed: NDArray[np.int64]
    subnormal: NDArray[np.int64]
    normal: NDArray[np.int64]
    overflowed: NDArray[np.int64]

    @property
    def losses(self) -> tuple[ConversionLosses, ...]:
        """The shares of each format, of all values.

        >>> import floatsim as fs
        >>> fs.exponent_histogram([1e-9, 1.0], ["fp16", "fp32"]).losses[0].flushed
        0.5
        """
        kinds = np.stack([self.flushed, self.subnormal, self.normal, self.overflowed], axis=-1).sum(axis=1)
        return tuple(shares(row) for row in kinds)


def exponent_histogram(x: Any, formats: Iterable[FormatLike] | FormatLike) -> ExponentHistogram:
    """Count the values of x in each power of two, and what conversions to formats do to them.

    Rounding is ties to even, without FTZ. `fs.plot.exponent_histogram` draws the numbers.

    Parameters
    ----------
    x : array_like
        Real numbers of any shape, or a FloatArray. Zeros, infinities and NaNs are excluded.
    formats : format or iterable of format
        The target formats.

    Returns
    -------
    ExponentHistogram
        Its bins are the exponents from the smallest to the largest one of x. An array without elements has no bins.

    Raises
    ------
    ValueError
        If x has elements, but no finite non-zero value, or no format is given.

    Examples
    --------
    >>> import floatsim as fs
    >>> histogram = fs.exponent_histogram([1e-9, 1e-6, 1.0, 1e6], ["fp16", "e4m3"])
    >>> histogram.exponents[histogram.numbers > 0]
    array([-30, -20,   0,  19])
    >>> histogram.flushed.sum(axis=1), histogram.subnormal.sum(axis=1), histogram.overflowed.sum(axis=1)
    (array([1, 2]), array([1, 0]), array([1, 1]))
    """
    targets = as_formats(formats)
    values = finite_nonzero_or_none(x)
    exponents = np.frexp(values)[1].astype(np.int64) - 1
    lowest, bins = (int(exponents.min()), int(np.ptp(exponents)) + 1) if values.size else (0, 0)
    tables = np.zeros((4, len(targets), bins), np.int64)
    for row, fmt in enumerate(targets):
        kinds = classify_losses(values, fmt, rounding="ties_to_even", ftz=False)
        tables[:, row] = np.bincount(kinds * bins + exponents - lowest, minlength=4 * bins).reshape(4, bins)
    return ExponentHistogram(
        lowest + np.arange(bins), np.bincount(exponents - lowest), tuple(targets), tables[FLUSHED], tables[SUBNORMAL],
        tables[NORMAL], tables[OVERFLOWED],
    )  # fmt: skip
