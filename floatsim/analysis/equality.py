"""Equality of results: the share of elements with equal bits, for every pair of results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.conversion import read_floats

__all__ = ["equal_shares"]


def equal_shares(results: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return the share of elements whose bits are all equal, for every pair of results.

    Parameters
    ----------
    results : mapping of name to array_like of floats
        Results of accumulations or of kernels, with one shape and one format.

    Returns
    -------
    float64 array (n, n)
        Rows and columns in the order of the mapping, 1 on the diagonal. +0 and -0 differ, and so do NaNs with
        different bits.

    Raises
    ------
    ValueError
        If two results differ in shape or format, or there is no element to compare.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.equal_shares({"one": np.float32([1, 2, 3, 4]), "other": np.float32([1, 2, 3, 5])}).tolist()
    [[1.0, 0.75], [0.75, 1.0]]
    """
    read = {name: read_floats(x, name)[:2] for name, x in results.items()}
    if not read:
        raise ValueError("results must hold at least one array")
    first, (codes, fmt) = next(iter(read.items()))
    for name, (other, of) in read.items():
        if of != fmt or other.shape != codes.shape:
            raise ValueError(
                f"results must be of one format and shape: {first!r} is {fmt.name} {codes.shape}, "
                f"{name!r} is {of.name} {other.shape}"
            )
    if not codes.size:
        raise ValueError(f"results hold no elements: they are of shape {codes.shape}")
    flat = [other.ravel() for other, _ in read.values()]
    return np.array([[np.count_nonzero(x == y) / codes.size for y in flat] for x in flat])
