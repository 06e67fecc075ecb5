"""A priori error bounds of softmax and attention.

They compose the bounds of their steps, with the standard model of Higham 2002, section 2.2: every operation has a
relative error of at most its unit roundoff u. The exponential of an argument with the absolute error e has the relative
error expm1(e). P. Blanchard, D. Higham and N. Higham, "Accurately computing the log-sum-exp and softmax functions", IMA
J. Numer. Anal. 41(4), 2021, analyse the same algorithm with first-order terms.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from floatsim.accumulation import AccumulationLike, as_accumulation
from floatsim.formats import FloatFormat, FormatLike, as_format
from floatsim.formats._validation import as_index, as_real
from floatsim.formats.rounding import Rounding
from floatsim.testing.bounds import ErrorBound, Path, growth, path_of, step
from floatsim.testing.operands import as_float_array

__all__ = ["attention_bound", "softmax_bound"]

_STEPS = "Higham 2002, section 2.2, step by step; see Blanchard, Higham and Higham 2021"


def _sum_path(accumulate: AccumulationLike, n: int, fmt: FloatFormat) -> Path:
    """Return the path of a sum of n terms of a format, which enter exactly."""
    return path_of(as_accumulation(accumulate), n, fmt, fmt, products=False)


def _weights(scores: Any, errors: Any, accumulate: AccumulationLike, fmt: FloatFormat, ulps: float) -> tuple[Any, Any]:
    """Return the exact softmax of scores in FP64, and bounds of its relative errors, given those of the scores.

    s - max, exp, the sum and the division are each rounded to `fmt`; exp has an error of `ulps` ulps.
    """
    u, n = step(fmt), scores.shape[-1]
    shifted = scores - scores.max(axis=-1, keepdims=True)
    spread = np.abs(shifted) * (1 + u) * u + errors + errors.max(axis=-1, keepdims=True)
    terms = np.exp(shifted)
    each = np.expm1(spread) + ulps * fmt.eps * np.exp(spread)
    lowest = fmt.smallest_subnormal / np.maximum(terms, 1e-300)
    exact = terms / terms.sum(axis=-1, keepdims=True)
    together = (exact * np.minimum(each + lowest, 1e6)).sum(axis=-1, keepdims=True)
    path = growth(_sum_path(accumulate, n, fmt), 1, None)
    denominator = np.minimum((1 + together) * (1 + path) - 1, 0.5)
    return exact, ((1 + each + lowest) / (1 - denominator)) * (1 + u) - 1


def softmax_bound(
    x: Any, *, accumulate: AccumulationLike = "fp32", format: FormatLike | None = None, exp_ulps: float = 2.0
) -> ErrorBound:
    """Return the a priori error bound of each element of a softmax over the last axis.

    Parameters
    ----------
    x : array_like of floats, (..., N)
        The scores, in their own format.
    accumulate : accumulation or text
        The sum of the exponentials. Its format is that of every step.
    format : format, optional
        The format of the result. Default: the accumulator's.
    exp_ulps : float
        The largest error of the exponential in ulps. CUDA's `expf` has 2 (CUDA C++ Programming Guide, mathematical
        functions).

    Returns
    -------
    ErrorBound
        `factor` is the largest relative bound.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> bound = softmax_bound(np.zeros((1, 8), np.float32))
    >>> bool(bound.bound.max() < 1e-6 and bound.exact[0, 0] == 0.125)
    True
    """
    scores = np.asarray(as_float_array(x, "x").values)
    fmt = as_accumulation(accumulate).result_format
    with np.errstate(all="ignore"):
        exact, relative = _weights(scores, np.zeros_like(scores), accumulate, fmt, as_real(exp_ulps, "exp_ulps", 0.0))
        bound = exact * relative + fmt.smallest_subnormal
        return _rounded(
            exact, bound, fmt if format is None else as_format(format), _sum_path(accumulate, scores.shape[-1], fmt)
        )


def _rounded(exact: Any, bound: Any, fmt: FloatFormat, path: Path) -> ErrorBound:
    """Return the bound with the rounding of the result. FP64 reference values have errors of their own."""
    bound = bound + step(fmt, Rounding.TIES_TO_EVEN) * (np.abs(exact) + bound) + fmt.smallest_subnormal
    bound = bound * (1 + 1e-9) + 1e-13 * np.abs(exact)
    factor = float(np.max(bound / np.maximum(np.abs(exact), 1e-300), initial=0.0))
    return ErrorBound(bound, exact, path.steps + 1, factor, _STEPS)


def attention_bound(
    q: Any, k: Any, v: Any, *, scale: float | None = None, mask: Any = None, accumulate: AccumulationLike = "fp32",
    weights: FormatLike | None = None, format: FormatLike | None = None, exp_ulps: float = 2.0, blocks: int = 1,
) -> ErrorBound:  # fmt: skip
    """Return the a priori error bound of each element of softmax(scale * q @ k.T) @ v.

    Parameters
    ----------
    q, k, v : array_like of floats, (..., M, D), (..., N, D) and (..., N, E)
        Queries, keys and values.
    scale : float, optional
        The factor of the scores. Default: 1 / sqrt(D).
    mask : array of bool, optional
        True where a query reads a key, broadcast to (..., M, N). Each query must read one.
    accumulate : accumulation or text
        All sums.
    weights : format, optional
        The format that the weights are rounded to before the product with v. Default: the format of v.
    format : format, optional
        The format of the result. Default: the accumulator's.
    exp_ulps : float
        The largest error of the exponential in ulps.
    blocks : int
        The number of blocks of keys of an online softmax. Each block multiplies sum and result by one more rounded
        factor (T. Dao et al., "FlashAttention", NeurIPS 2022, algorithm 1).

    Returns
    -------
    ErrorBound

    Raises
    ------
    ValueError
        If the shapes do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> x = fs.array(np.ones((4, 16)), "bf16")
    >>> bool(attention_bound(x, x, x, format="bf16").bound.max() < 0.02)
    True
    """
    arrays = {name: as_float_array(x, name) for name, x in (("q", q), ("k", k), ("v", v))}
    left, right, values = (np.asarray(x.values) for x in arrays.values())
    if left.shape[-1] != right.shape[-1] or right.shape[-2] != values.shape[-2]:
        raise ValueError(
            f"q, k and v must be (M, D), (N, D) and (N, E), not {left.shape}, {right.shape}, {values.shape}"
        )
    accumulation = as_accumulation(accumulate)
    fmt = accumulation.result_format
    factor = 1 / math.sqrt(left.shape[-1]) if scale is None else as_real(scale, "scale")
    path = path_of(accumulation, left.shape[-1], arrays["q"].format, arrays["k"].format)
    with np.errstate(all="ignore"):
        keys = np.swapaxes(right, -1, -2)
        scores, magnitude = factor * (left @ keys), abs(factor) * (np.abs(left) @ np.abs(keys))
        errors = growth(path, 1, None) * magnitude + abs(factor) * path.underflow
        errors = errors + 2 * step(fmt) * (np.abs(scores) + errors)  # the factor is rounded, and the multiplication
        if mask is not None:
            scores = np.where(np.asarray(mask), scores, -1e30)
            errors = np.where(np.asarray(mask), errors, 0.0)
        exact, relative = _weights(scores, errors, accumulation, fmt, as_real(exp_ulps, "exp_ulps", 0.0))
        if mask is not None:
            exact, relative = np.where(np.asarray(mask), exact, 0.0), np.where(np.asarray(mask), relative, 0.0)
        count = as_index(blocks, "blocks", 1, 1 << 30)
        rounded = arrays["v"].format if weights is None else as_format(weights)
        second = path_of(accumulation, right.shape[-2], rounded, arrays["v"].format)
        chain = second.then(Path(((step(rounded), 1), (step(fmt) * (2 + exp_ulps), 2 * count))))
        relative = (1 + relative) * (1 + growth(chain, 1, None)) - 1
        sizes = np.abs(values)
        bound = (
            (exact * relative) @ sizes
            + rounded.smallest_subnormal * sizes.sum(axis=-2, keepdims=True)
            + second.underflow
        )
        return _rounded(exact @ values, bound, fmt if format is None else as_format(format), chain)
