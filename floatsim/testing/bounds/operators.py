"""A priori error bounds of softmax and attention.

They compose the bounds of their steps, with the standard model of Higham 2002, section 2.2: every operation has a
relative error of at most its unit roundoff u. The exponential of an argument with the absolute error e has the relative
error expm1(e). P. Blanchard, D. Higham and N. Higham, "Accurately computing the log-sum-exp and softmax functions", IMA
J. Numer. Anal. 41(4), 2021, analyse the same algorithm with first-order terms.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from floatsim.accumulation import Accumulation, AccumulationLike, as_accumulation
from floatsim.arrays.array.conversion import as_float_array
from floatsim.formats import FloatFormat, FormatLike, as_format
from floatsim.formats._validation import as_index, as_real
from floatsim.formats.value_sets import TermRange
from floatsim.testing.bounds.bounds import ErrorBound, Path, path_of, spread, step

__all__ = ["attention_bound", "softmax_bound"]

_STEPS = "Higham 2002, section 2.2, step by step; see Blanchard, Higham and Higham 2021"


class _Weights(NamedTuple):
    """The exact softmax of scores in FP64, the bounds of its errors, and the path of the sum of the exponentials."""

    exact: Any
    errors: Any
    path: Path


def _weights(scores: Any, errors: Any, mask: Any, accumulation: Accumulation, ulps: float) -> _Weights:
    """Return the softmax of the scores where the mask is True, given the bounds of their errors.

    s - max, exp, the sum and the division are each rounded to the format of the sum; exp has an error of `ulps` ulps.
    """
    fmt, n = accumulation.result_format, scores.shape[-1]
    u, tiny = step(fmt), fmt.smallest_subnormal
    highest = scores.max(axis=-1, keepdims=True, where=mask, initial=-math.inf)
    shifted = np.where(mask, scores - highest, -math.inf)
    errors = errors + errors.max(axis=-1, keepdims=True, where=mask, initial=0.0)
    errors = errors + u * (np.abs(shifted) + errors)
    terms, most = np.exp(shifted), np.exp(np.where(mask, shifted + errors, -math.inf))
    of_terms = np.where(errors < 1, terms * np.expm1(errors), most) + ulps * fmt.eps * most + max(1.0, ulps) * tiny
    of_terms = np.where(mask, of_terms, 0.0)
    total, together = terms.sum(axis=-1, keepdims=True), of_terms.sum(axis=-1, keepdims=True)
    path = path_of(accumulation, n, TermRange(fmt))
    below = (together + spread(path, total + together)) / total  # the relative error of the sum
    exact = terms / total
    found = np.where(below < 1, (of_terms / total + exact * below) / (1 - below), math.inf)
    found = found + u * (exact + found) + tiny
    return _Weights(exact, np.where(mask, found, 0.0), path)


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

    Raises
    ------
    ValueError
        If a row has no score, or `accumulate` is a matrix unit or a compensated sum.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> bound = softmax_bound(np.zeros((1, 8), np.float32))
    >>> bool(bound.bound.max() < 1e-6 and bound.exact[0, 0] == 0.125)
    True
    """
    scores = np.asarray(as_float_array(x, "x").values)
    if scores.ndim == 0 or scores.shape[-1] == 0:
        raise ValueError(f"x must have rows of at least one score, but its shape is {scores.shape}")
    accumulation = as_accumulation(accumulate)
    fmt = accumulation.result_format if format is None else as_format(format)
    with np.errstate(all="ignore"):
        found = _weights(scores, np.zeros_like(scores), True, accumulation, as_real(exp_ulps, "exp_ulps", 0.0))
        return _result(found.exact, found.errors, found.exact, fmt, found.path)


def _result(exact: Any, errors: Any, magnitude: Any, fmt: FloatFormat, path: Path) -> ErrorBound:
    """Return the bound with the rounding of the result. FP64 reference values have errors of their own."""
    bound = errors + step(fmt) * (np.abs(exact) + errors) + fmt.smallest_subnormal
    bound = bound * (1 + 1e-9) + 1e-13 * magnitude
    bound = np.where(np.abs(exact) + bound <= fmt.max, bound, math.inf)
    factor = float(np.max(bound / np.maximum(np.abs(exact), 1e-300), initial=0.0))
    return ErrorBound(bound, exact, path.steps + 1, factor, _STEPS)


def _as_mask(mask: Any, shape: tuple[int, ...]) -> Any:
    """Return a mask in the shape of the scores, or raise an error that names it."""
    given = np.asarray(mask)
    if given.dtype != np.bool_:
        raise TypeError(f"mask must be an array of bool, True where a query reads a key, not of {given.dtype}")
    try:
        wide = np.broadcast_to(given, shape)
    except ValueError:
        raise ValueError(f"mask has the shape {given.shape}, which does not broadcast to the scores {shape}") from None
    if not (reads := wide.any(axis=-1)).all():
        first = tuple(np.argwhere(~reads)[0].tolist())
        raise ValueError(
            f"mask: each query must read a key, but query {first if len(first) > 1 else first[0]} reads none"
        )
    return wide


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
        If the shapes do not fit, or a query reads no key.
    TypeError
        If `mask` is no array of bool.

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
    if (
        min(left.ndim, right.ndim, values.ndim) < 2 or left.shape[-1] != right.shape[-1]
        or right.shape[-2] != values.shape[-2] or 0 in (left.shape[-1], right.shape[-2])
    ):  # fmt: skip
        raise ValueError(
            f"q, k and v must be (M, D), (N, D) and (N, E), not {left.shape}, {right.shape}, {values.shape}"
        )
    try:
        leading = np.broadcast_shapes(left.shape[:-2], right.shape[:-2], values.shape[:-2])
    except ValueError:
        raise ValueError(
            f"the leading axes of q, k and v do not fit: {left.shape}, {right.shape}, {values.shape}"
        ) from None
    read = True if mask is None else _as_mask(mask, (*leading, left.shape[-2], right.shape[-2]))
    accumulation = as_accumulation(accumulate)
    fmt = accumulation.result_format
    factor = 1 / math.sqrt(left.shape[-1]) if scale is None else as_real(scale, "scale")
    ulps, count = as_real(exp_ulps, "exp_ulps", 0.0), as_index(blocks, "blocks", 1, 1 << 30)
    path = path_of(accumulation, left.shape[-1], TermRange(arrays["q"].format, arrays["k"].format))
    rounded = arrays["v"].format if weights is None else as_format(weights)
    with np.errstate(all="ignore"):
        keys = np.swapaxes(right, -1, -2)
        scores, errors = factor * (left @ keys), abs(factor) * spread(path, np.abs(left) @ np.abs(keys))
        # the factor is rounded, and the multiplication
        errors = errors + 2 * step(fmt) * (np.abs(scores) + errors) + fmt.smallest_subnormal
        found = _weights(scores, errors, read, accumulation, ulps)
        stored = found.errors + step(rounded) * (found.exact + found.errors) + rounded.smallest_subnormal
        stored = np.where(read, stored, 0.0)
        sizes = np.abs(values)
        second = path_of(accumulation, right.shape[-2], TermRange(rounded, arrays["v"].format))
        factors = Path(((step(fmt) * (2 + ulps), 2 * count),), 2 * count * fmt.smallest_subnormal)
        chain = second.then(factors)
        magnitude = (found.exact + stored) @ sizes
        bound = stored @ sizes + spread(chain, magnitude)
        result = fmt if format is None else as_format(format)
        return _result(found.exact @ values, bound, magnitude, result, chain)
