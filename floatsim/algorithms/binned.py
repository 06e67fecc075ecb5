"""Reproducible sums: numbers are cut at fixed exponents into bins, so that the sum has one result in every order.

Source: Ahrens, Demmel and Nguyen, "Algorithms for Efficient Reproducible Floating Point Summation", ACM TOMS 46(3),
2020; willow-ahrens/ReproBLAS 2.1.0, the binned types of double precision.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.conversion import array
from floatsim.formats._validation import as_index

__all__ = ["binned_sum"]

Float64: TypeAlias = NDArray[np.float64]

_WIDTH = 40
"""The bits of a bin: DBWIDTH of ReproBLAS."""
_LAST = (1024 + 1021 + 53 - 1) // _WIDTH - 1
"""The bin of the smallest numbers: binned_DBMAXINDEX."""
_LARGE = 2.0**-14
"""The factor of numbers in the first bin, whose unit would be beyond FP64: binned_DMCOMPRESSION."""
_CHUNK = 1 << 20
"""The slices of a chunk are below 2**41 units: 2**20 of them are summed exactly in int64."""


def _bin(index: int) -> float:
    """Return 1.5 times a power of two: the start of the accumulator of a bin, and 4 * 1.5 times its unit of carry."""
    return 1.5 * 2.0**1023 if index == 0 else math.ldexp(0.75, 1024 + 53 - _WIDTH + 1 - min(index, _LAST) * _WIDTH)


def _odd(x: Float64) -> Float64:
    """Return x with the last bit set, so that no rounding to a bin is a tie."""
    return (x.view(np.uint64) | np.uint64(1)).view(np.float64)


def _index(x: Float64) -> int:
    largest = float(np.abs(x).max())
    return _LAST if largest == 0 else min((1024 - math.frexp(largest)[1]) // _WIDTH, _LAST)


def _bins(x: Float64, first: int, fold: int) -> list[int]:
    """Return the sum of the slices of each bin, in units in the last place of the bin's accumulator."""
    sums = [0] * fold
    for start in range(0, x.size, _CHUNK):
        rest = x[start : start + _CHUNK].copy()
        for i in range(fold):
            middle = _bin(first + i)
            factor = _LARGE if first + i == 0 else 1.0
            slices = (middle + _odd(rest * factor)) - middle
            unit = math.ulp(middle)
            sums[i] += int((slices / unit).astype(np.int64).sum())
            rest -= slices / 2 * (2 / factor)
    return sums


def _converted(sums: list[int], first: int) -> float:
    """Return the FP64 number of the bins by the additions of ReproBLAS's binned_ddmconv, in its order."""
    bins = [_bin(first + i) for i in range(len(sums))]
    quarter = 1 << 50  # a carry is a quarter of the first binary digit of the accumulator, in units in its last place
    carries = [float(total // quarter) for total in sums]
    rests = [float(total % quarter) * math.ulp(middle) for total, middle in zip(sums, bins, strict=True)]
    fold, total, i, scaled = len(sums), 0.0, 1, 0
    down, up = 2.0 ** -(2 * 53 - _WIDTH), 2.0 ** (2 * 53 - _WIDTH)
    near_the_end = first <= 3 * 53 // _WIDTH
    if near_the_end:
        scaled = max(min(fold, 3 * 53 // _WIDTH - first), 0)
        if first == 0:
            total += carries[0] * (bins[0] / 6 * down / _LARGE)
            total += carries[1] * (bins[1] / 6 * down)
            total += rests[0] * down / _LARGE
            i = 2
        else:
            total += carries[0] * (bins[0] / 6 * down)
        while i < scaled:
            total += carries[i] * (bins[i] / 6 * down)
            total += rests[i - 1] * down
            i += 1
        if i == fold:
            return (total + rests[-1] * down) * up
        if math.isinf(total * up):
            return total * up
        total *= up
    else:
        total += carries[0] * (bins[0] / 6)
    for j in range(i, fold):
        total += carries[j] * (bins[j] / 6)
        total += rests[j - 1]
    return total + rests[-1]


def binned_sum(x: Any, fold: int = 3) -> float:
    """Return the sum of FP64 numbers that ReproBLAS's `reproBLAS_rdsum` returns: the same in every order.

    Parameters
    ----------
    x : array_like of float
        The terms. All elements are added, of any shape.
    fold : int
        The number of bins that are kept, from 2 to 52. ReproBLAS recommends 3.

    Returns
    -------
    float
        NaN if a term is NaN or infinities of both signs are added. An infinity if there is one.

    Raises
    ------
    ValueError
        If fold is not from 2 to 52.

    Notes
    -----
    The largest magnitude chooses the first bin of 40 bits. Each number is cut into slices, one for each bin, and the
    slices of a bin are added without error. The bins are added in FP64. With N terms the error is about N *
    2**(40 * (1 - fold)) * max(abs(x)) + 7 * 2**-53 * abs(sum). The last bin ends at 2**-1055, so that numbers below
    2**-1056 count as zero: in a sum of tiny numbers the error is up to N * 2**-1056.

    Tested equal to ReproBLAS 2.1.0, compiled from its sources. The package bitrep of PyPI computes other sums: exact
    ones, rounded once, which are `fs.sum(x, accumulate="exact(fp64)")`.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = np.array([1e16, 1.0, -1e16, 2.0**-80])
    >>> fs.algorithms.binned_sum(x), fs.algorithms.binned_sum(x[::-1]), fs.algorithms.binned_sum(x, fold=2)
    (1.0, 1.0, 1.0)
    """
    bins = as_index(fold, "fold", 2, _LAST + 1)
    terms = np.asarray(array(x, "fp64"), np.float64).ravel()
    infinite = terms[~np.isfinite(terms)]
    if infinite.size:
        with np.errstate(invalid="ignore"):
            return float(infinite.sum())
    if not terms.any():
        return 0.0
    first = _index(terms)
    return _converted(_bins(terms, first, bins), first)
