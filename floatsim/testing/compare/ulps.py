"""Statistics of the distances of two arrays in ulps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from floatsim.arrays.array.float_array import FloatArray
from floatsim.emulator.elementwise.distances import Distances, count_distances
from floatsim.formats import FloatFormat, FormatLike
from floatsim.testing.compare.operands import read_pair

__all__ = ["UlpStats", "stats_of", "ulp_stats"]

_UNORDERED = 2**64 - 1


@dataclass(frozen=True)
class UlpStats:
    """The distances of two arrays in ulps. Prints as text.

    Attributes
    ----------
    format : FloatFormat
        The format whose steps are counted.
    count : int
        The number of elements.
    equal : int
        The number of elements with equal bits.
    max : int
        The largest distance; 2**64 - 1 if a NaN meets a number. Two NaNs are 0 apart, also with other bits. 0 if there
        are no elements.
    p99 : int
        The least distance that 99 % of the elements do not exceed. 0 if there are no elements.
    histogram : dict of str to int
        The number of elements by distance: "equal"; "0, other bits" (+0 and -0); "NaN, other bits" (NaN in both); "1";
        "2"; "3-4"; "5-8"; ...; "NaN" (NaN in one of them).

    Examples
    --------
    >>> import floatsim as fs
    >>> x, y = fs.array([1.0, 2.0], "bf16"), fs.array([1.0, 2.03125], "bf16")
    >>> stats = fs.testing.ulp_stats(x, y)
    >>> stats.count, stats.equal, stats.max
    (2, 1, 2)
    """

    format: FloatFormat
    count: int
    equal: int
    max: int
    p99: int
    histogram: dict[str, int]

    @property
    def share_exact(self) -> float:
        """The share of elements with equal bits; 1 if there are no elements."""
        return self.equal / self.count if self.count else 1.0

    def __str__(self) -> str:
        classes = ", ".join(f"{name}: {n}" for name, n in self.histogram.items() if n)
        return (
            f"{self.count - self.equal} of {self.count} elements differ ({100 * self.share_exact:.6g} % are equal); "
            f"ulps of {self.format.name}: max {_text(self.max)}, p99 {_text(self.p99)}; {classes}"
        )

    __repr__ = __str__


def _text(ulps: int) -> str:
    return "NaN" if ulps == _UNORDERED else str(ulps)


def ulp_stats(actual: Any, desired: Any, format: FormatLike | None = None) -> UlpStats:
    """Return statistics of the distances of two arrays in ulps: largest, 99th percentile, histogram, share of equals.

    Parameters
    ----------
    actual, desired : array_like of floats, of one shape
        FloatArrays, or arrays of NumPy, ml_dtypes, torch, JAX or CuPy. Arrays of unsigned integers hold codes of
        `format`.
    format : format, optional
        The format whose steps are counted. Default: the format of `actual`. All values must be numbers of it.

    Returns
    -------
    UlpStats

    Raises
    ------
    TypeError
        If an array holds no floats, or values that are no numbers of the format.
    AssertionError
        If the shapes differ.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.array([1.0, 2.0, -0.0, 4.0], "bf16")
    >>> y = fs.array([1.0, 2.03125, 0.0, 4.0], "bf16")
    >>> fs.testing.ulp_stats(x, y)
    2 of 4 elements differ (50 % are equal); ulps of BF16: max 2, p99 2; equal: 2, 0, other bits: 1, 2: 1
    """
    return stats_of(*read_pair(actual, desired, format))


def stats_of(actual: FloatArray, desired: FloatArray) -> UlpStats:
    """Return the statistics of two FloatArrays of one format and shape."""
    rank = -(-99 * actual.size // 100)
    found = count_distances(actual.codes, desired.codes, actual.format, rank)
    largest = _UNORDERED if found.nan else found.largest
    p99 = _UNORDERED if found.ranked is None else found.ranked
    return UlpStats(actual.format, found.elements, found.equal, largest, p99, _histogram(found))


def _histogram(found: Distances) -> dict[str, int]:
    counts = {"equal": found.equal}
    if found.nans:
        counts["NaN, other bits"] = found.nans
    if found.zeros:
        counts["0, other bits"] = found.zeros
    used = max((n + 1 for n, pairs in enumerate(found.classes) if pairs), default=0)
    for n, pairs in enumerate(found.classes[:used]):
        low, high = (1 << n - 1) + 1 if n else 1, 1 << n
        counts[str(high) if low == high else f"{low}-{high}"] = pairs
    return counts | ({"NaN": found.nan} if found.nan else {})
