"""Published measures of the difference of two arrays: DeepGEMM's `calc_diff` and the error ratio of FlashAttention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from floatsim.arrays.array.conversion import as_float_array

__all__ = ["calc_diff", "error_ratio"]


def _values(**arrays: Any) -> list[Any]:
    read = [np.asarray(as_float_array(x, name).values) for name, x in arrays.items()]
    shapes = {x.shape for x in read}
    if len(shapes) > 1:
        named = ", ".join(f"{name} {x.shape}" for name, x in zip(arrays, read, strict=True))
        raise AssertionError(f"the shapes differ: {named}")
    return read


def calc_diff(actual: Any, desired: Any) -> float:
    """Return DeepGEMM's measure of two arrays, 1 - 2<x, y> / (<x, x> + <y, y>), computed in float64.

    DeepGEMM's tests accept values below 0.001 for FP8 (https://github.com/deepseek-ai/DeepGEMM, `calc_diff`). The
    measure depends on the large elements only, and a single wrong element rarely changes it.

    Parameters
    ----------
    actual, desired : array_like of floats, of one shape
        The formats may differ.

    Returns
    -------
    float
        0 for equal arrays and for two arrays of zeros; 1 for orthogonal ones; NaN if an array has NaN or infinity.

    Raises
    ------
    AssertionError
        If the shapes differ.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> round(fs.testing.calc_diff(np.array([1.0, 2.0]), np.array([1.0, 2.1])), 6)
    0.000961
    """
    x, y = _values(actual=actual, desired=desired)
    with np.errstate(all="ignore"):
        most = max(float(np.max(np.abs(side), initial=0.0)) for side in (x, y))
        if 0 < most < math.inf:  # a power of two, so that no square overflows, and the largest does not underflow
            x, y = (np.ldexp(side, -math.frexp(most)[1]) for side in (x, y))
        squares = float((x * x + y * y).sum())
        return 0.0 if squares == 0 else float(1 - 2 * (x * y).sum() / squares)


def error_ratio(actual: Any, desired: Any, baseline: Any) -> float:
    """Return the largest error of `actual`, divided by the largest error of a baseline in low precision.

    FlashAttention's tests accept a ratio of 2, plus 1e-5 (https://github.com/Dao-AILab/flash-attention, tests).

    Parameters
    ----------
    actual : array_like of floats
        The result to check.
    desired : array_like of floats
        The reference, of more precision.
    baseline : array_like of floats
        A plain computation in the precision of `actual`.

    Returns
    -------
    float
        max|actual - desired| / max|baseline - desired|; 0 if `actual` equals the reference; infinity if only the
        baseline does. NaN in `actual` alone gives NaN.

    Raises
    ------
    AssertionError
        If the shapes differ.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> fs.testing.error_ratio(np.float32([1.0, 2.5]), np.float64([1.0, 2.0]), np.float32([1.25, 2.0]))
    2.0
    """
    got, reference, plain = _values(actual=actual, desired=desired, baseline=baseline)
    with np.errstate(invalid="ignore"):
        errors = [np.where(x == reference, 0.0, np.abs(x - reference)) for x in (got, plain)]
    own, other = (float(error.max()) if error.size else 0.0 for error in errors)
    if own == 0:
        return 0.0
    return own / other if other else (math.nan if math.isnan(own) else math.inf)
