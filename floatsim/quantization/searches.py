"""Searches for factors and scales that keep the output of a layer: AWQ, SmoothQuant, ranges with zero points.

A weight is (N, K), as a linear layer of PyTorch stores it, and inputs are (samples, K). All searches are computed in
float64 on the values that `quantize_blocks` returns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.conversion import read_floats
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.types import Floats
from floatsim.formats import FP32
from floatsim.formats._validation import as_index, as_real, refuse_unknown_keyword
from floatsim.quantization.blocks import quantize_blocks
from floatsim.quantization.integer import IntegerFormat
from floatsim.quantization.scales import number
from floatsim.quantization.scheme import Scheme, SchemeLike, as_scheme, layout

__all__ = ["ChannelFactors", "awq_factors", "best_range", "smoothquant_factors"]

Array: TypeAlias = NDArray[np.float64]


class ChannelFactors(NamedTuple):
    """The factors of the input channels that a search chose.

    >>> import floatsim as fs, numpy as np
    >>> found = fs.quantization.awq_factors(np.ones((2, 4)), np.ones((3, 4)), "int4", block="row")
    >>> found.factors.shape, found.exponent
    ((4,), 0.0)
    """

    factors: FloatArray
    """One positive FP32 number for each channel: weights are multiplied by it, inputs divided."""
    exponent: float
    """The chosen ratio of AWQ, or alpha of SmoothQuant."""
    errors: Array
    """The mean squared error of the output for each candidate."""


def _matrix(x: Any, name: str) -> Array:
    codes, fmt, _ = read_floats(x, name)
    values = np.asarray(FloatArray(codes, fmt).values)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"{name} {values.shape} must be a matrix with elements")
    if not np.all(np.isfinite(values)):
        raise ValueError(f"{name} has NaN or infinity; a search needs finite numbers")
    return values


def _pair(w: Any, x: Any) -> tuple[Array, Array]:
    weight, inputs = _matrix(w, "w"), _matrix(x, "x")
    if weight.shape[1] != inputs.shape[1]:
        raise ValueError(f"w {weight.shape} and x {inputs.shape} do not fit: w is (N, K), and x is (samples, K)")
    return weight, inputs


def _values(x: Array, scheme: Scheme) -> Array:
    return np.asarray(quantize_blocks(x.astype(np.float32), scheme).values)


def _changed(scheme: SchemeLike, changes: dict[str, Any]) -> Scheme:
    """Return the scheme with changed fields, the keywords of a search."""
    refuse_unknown_keyword(Scheme.__init__, changes)
    return replace(as_scheme(scheme), **changes)


def awq_factors(w: Floats, x: Floats, scheme: SchemeLike = "awq", *, grid: int = 20, **changes: Any) -> ChannelFactors:
    """Return the factors of AWQ's search, which protect the weights of channels with large inputs.

    Candidate i of the grid has the exponent r = i / grid, and the factors s = max(m**r, 1e-4) / sqrt(max(s) min(s)),
    where m is the mean magnitude of each channel of x. The one with the least mean squared error of
    x @ (Q(w s) / s)^T against x @ w^T is taken; of equal ones the first.

    Parameters
    ----------
    w : array_like of floats, (N, K)
        The weight.
    x : array_like of floats, (samples, K)
        Inputs of the layer.
    scheme : str, Scheme or format
        The scheme of the weight.
    grid : int
        The number of candidates.
    **changes
        Fields of the scheme, such as `block=64`.

    Returns
    -------
    ChannelFactors

    Raises
    ------
    ValueError
        For shapes that do not fit, and for NaN and infinity.

    Notes
    -----
    Lin et al., AWQ (arXiv 2306.00978), section 3.2, and the function that searches for scales in llm-awq's
    `auto_scale.py`. There the output is computed in FP16 by the whole block of layers.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> w, x = rng.normal(size=(16, 64)), rng.normal(size=(100, 64)) * np.where(np.arange(64) % 16, 1, 30)
    >>> found = fs.quantization.awq_factors(w, x, "int3", block="row")
    >>> bool(found.exponent > 0), bool(found.errors.min() < 0.7 * found.errors[0])
    (True, True)
    """
    weight, inputs = _pair(w, x)
    settled, count = _changed(scheme, changes), as_index(grid, "grid", 1, 1000)
    means, output = np.abs(inputs).mean(axis=0), inputs @ weight.T
    best: tuple[float, Array, float] = (np.inf, np.ones(weight.shape[1]), 0.0)
    errors = np.zeros(count)
    for i in range(count):
        s = np.maximum(means ** (i / count), 1e-4)
        s = number(s / np.sqrt(s.max() * s.min()), FP32).values
        errors[i] = np.mean((inputs @ (_values(weight * s, settled) / s).T - output) ** 2)
        if errors[i] < best[0]:
            best = float(errors[i]), s, i / count
    return ChannelFactors(number(best[1], FP32), best[2], errors)


def smoothquant_factors(
    w: Floats, x: Floats, scheme: SchemeLike = "w8a8", *, alpha: float | None = None,
    input_scheme: SchemeLike | None = None, grid: int = 20,
) -> ChannelFactors:  # fmt: skip
    """Return the factors of SmoothQuant, which move outliers of the inputs into the weights.

    s = max|x_j|**alpha / max|w_j|**(1 - alpha) for channel j, 1 where a maximum is zero. Without `alpha`, the candidate
    i / grid, i = 0 ... grid, with the least mean squared error of Q(x / s) @ Q(w s)^T against x @ w^T is taken.

    Parameters
    ----------
    w : array_like of floats, (N, K)
        The weight.
    x : array_like of floats, (samples, K)
        Inputs of the layer.
    scheme : str, Scheme or format
        The scheme of the weight.
    alpha : float, optional
        From 0 to 1; 0.5 in the paper. Default: searched for.
    input_scheme : str, Scheme or format, optional
        The scheme of the inputs. Default: that of the weight.
    grid : int
        The number of steps of the search.

    Returns
    -------
    ChannelFactors

    Raises
    ------
    ValueError
        For shapes that do not fit, for NaN and infinity, and for an alpha out of range.

    Notes
    -----
    Xiao et al., SmoothQuant (arXiv 2211.10438), equation 4.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> w, x = rng.normal(size=(16, 64)), rng.normal(size=(100, 64)) * np.where(np.arange(64) % 16, 1, 30)
    >>> found = fs.quantization.smoothquant_factors(w, x)
    >>> bool(found.errors.min() < 0.5 * found.errors[0])
    True
    """
    weight, inputs = _pair(w, x)
    of_weight = as_scheme(scheme)
    of_input = of_weight if input_scheme is None else as_scheme(input_scheme)
    if alpha is not None and not as_real(alpha, "alpha", 0.0) <= 1:
        raise ValueError(f"alpha must be from 0 to 1, such as 0.5, not {alpha!r}")
    count = as_index(grid, "grid", 1, 1000)
    candidates = [i / count for i in range(count + 1)] if alpha is None else [float(alpha)]
    high, low = np.abs(inputs).max(axis=0), np.abs(weight).max(axis=0)
    plain = (high == 0) | (low == 0)
    output = inputs @ weight.T
    errors, factors = np.zeros(len(candidates)), []
    for i, each in enumerate(candidates):
        s = np.where(plain, 1.0, np.where(plain, 1, high) ** each / np.where(plain, 1, low) ** (1 - each))
        s = number(s, FP32).values
        errors[i] = np.mean((_values(inputs / s, of_input) @ _values(weight * s, of_weight).T - output) ** 2)
        factors.append(s)
    best = int(np.argmin(errors))
    return ChannelFactors(number(factors[best], FP32), candidates[best], errors)


def best_range(
    x: Floats, scheme: SchemeLike, *, candidates: int = 100, **changes: Any
) -> tuple[FloatArray, NDArray[Any]]:
    """Return the scales and zero points with which a tensor loses least in an integer format: `best_scale`, asymmetric.

    Candidate i clips the range of each block to (1 - i / candidates) of its low and high end, where low is at most 0
    and high at least 0. The scale is (high - low) / (max - min), the zero point min - round(low / scale), clamped. The
    candidate with the least sum of squared errors of a block is taken; of equal ones the first.

    Parameters
    ----------
    x : array_like of floats
        The tensor. Its values are finite.
    scheme : str, Scheme or format
        As in `fs.quantize_blocks`, with an integer format.
    candidates : int
        The number of ranges.
    **changes
        Fields of the scheme, such as `block=64`.

    Returns
    -------
    scales, zero_points : FloatArray, ndarray of int
        `fs.quantize_blocks(x, scheme, scale=scales, zero_point=zero_points)` takes them.

    Raises
    ------
    ValueError
        For a format that is no integer format, and for NaN and infinity.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = np.random.default_rng(0).exponential(size=4096).astype(np.float32)
    >>> scale, zero = fs.quantization.best_range(x, "uint4")
    >>> own = fs.quantize_blocks(x, "uint4", rule="asymmetric").values
    >>> found = fs.quantize_blocks(x, "uint4", scale=scale, zero_point=zero).values
    >>> bool(np.sum((found - x) ** 2) < 0.7 * np.sum((own - x) ** 2))
    True
    """
    settled = _changed(scheme, {"rule": "asymmetric", **changes})
    fmt, count = settled.format, as_index(candidates, "candidates", 1, 100_000)
    assert isinstance(fmt, IntegerFormat)  # `Scheme` refuses the rule for others
    codes, own, _ = read_floats(x, "x")
    values = np.asarray(FloatArray(codes, own).values)
    if not np.all(np.isfinite(values)):
        raise ValueError("x has NaN or infinity; a scale is chosen for finite numbers")
    blocks, scale_shape = layout(settled, values.shape)
    stack = values.reshape(blocks.shape)
    starts = np.arange(0, stack.shape[1], blocks.height), np.arange(0, stack.shape[2], blocks.width)

    def reduced(function: Any, numbers: Array) -> Array:
        found: Array = function.reduceat(function.reduceat(numbers, starts[0], axis=1), starts[1], axis=2)
        return found

    high, low = np.maximum(reduced(np.maximum, stack), 0), np.minimum(reduced(np.minimum, stack), 0)
    width = np.where(high > low, high - low, 1.0)
    best: list[Any] = [np.full(high.shape, np.inf), None, None]
    for i in range(count):
        share = 1 - i / count
        scales = number(np.where(high > low, width * share / (fmt.max - fmt.min), 1.0), settled.scale_format)
        least = number(settled.scale_format.smallest_subnormal, settled.scale_format).codes
        scales = FloatArray(np.where(scales.values > 0, scales.codes, least).astype(scales.codes.dtype), scales.format)
        zero = np.clip(fmt.min - np.rint(low * share / scales.values), fmt.min, fmt.max).astype(np.int64)
        q = quantize_blocks(
            FloatArray(codes, own), replace(settled, rule="absmax"),
            scale=FloatArray(scales.codes.reshape(scale_shape), scales.format),
            zero_point=zero.reshape(scale_shape), rounding="ties_to_even",
        )  # fmt: skip
        error = reduced(np.add, (np.asarray(q.values).reshape(stack.shape) - stack) ** 2)
        better = error < best[0]
        if best[1] is None:
            best[1], best[2] = scales.codes, zero
        best = [np.where(better, new, old) for new, old in zip((error, scales.codes, zero), best, strict=True)]
    chosen = FloatArray(best[1].astype(settled.scale_format.code_dtype).reshape(scale_shape), settled.scale_format)
    return chosen, best[2].reshape(scale_shape)
