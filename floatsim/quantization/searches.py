"""Searches for factors, scales and codes that keep the output of a layer: AWQ, SmoothQuant, ranges, SignRound.

A weight is (N, K), as a linear layer of PyTorch stores it, and inputs are (samples, K). All searches are computed in
float64, those of factors and ranges on the values that `quantize_blocks` returns.
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
from floatsim.quantization.quantized import Quantized
from floatsim.quantization.scales import number
from floatsim.quantization.scheme import Scheme, SchemeLike, as_scheme, layout

__all__ = ["ChannelFactors", "SignRounded", "awq_factors", "best_range", "sign_round", "smoothquant_factors"]

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


class _BlockGrid:
    """The blocks of a matrix, on a stack of matrices (stack, rows, columns)."""

    def __init__(self, scheme: Scheme, shape: tuple[int, ...]) -> None:
        self._blocks, self.scale_shape = layout(scheme, shape)
        self._size = self._blocks.height, self._blocks.width
        self._starts = [np.arange(0, n, size) for n, size in zip(self._blocks.shape[1:], self._size, strict=True)]

    def stacked(self, x: Array) -> Array:
        """Return the elements as a stack of matrices."""
        return x.reshape(self._blocks.shape)

    def reduced(self, function: np.ufunc, x: Array) -> Array:
        """Return the sum, maximum or minimum of each block."""
        found: Array = function.reduceat(function.reduceat(x, self._starts[0], axis=1), self._starts[1], axis=2)
        return found

    def ends(self, stack: Array) -> tuple[Array, Array]:
        """Return the high and the low end of each block: at least, and at most, zero."""
        return np.maximum(self.reduced(np.maximum, stack), 0), np.minimum(self.reduced(np.minimum, stack), 0)

    def spread(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the number of its block for each element."""
        for axis, size in enumerate(self._size, 1):
            x = np.repeat(x, size, axis=axis)
        return x[:, : self._blocks.shape[1], : self._blocks.shape[2]]


def _positive_scales(numbers: Array, scheme: Scheme) -> FloatArray:
    """Return scales in the format of the scheme; the least number instead of zero."""
    fmt = scheme.scale_format
    scales, least = number(numbers, fmt), number(fmt.smallest_subnormal, fmt).codes
    return FloatArray(np.where(scales.values > 0, scales.codes, least).astype(scales.codes.dtype), fmt)


def _of_range(high: Array, low: Array, scheme: Scheme) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return the scales and zero points of ranges that include zero."""
    fmt = scheme.format
    assert isinstance(fmt, IntegerFormat)
    scales = _positive_scales(np.where(high > low, (high - low) / (fmt.max - fmt.min), 1.0), scheme)
    return scales, np.clip(fmt.min - np.rint(low / scales.values), fmt.min, fmt.max).astype(np.int64)


def _with_scales(
    x: Floats, scheme: Scheme, blocks: _BlockGrid, scales: FloatArray, zero_points: NDArray[Any] | None
) -> Quantized:
    """Quantize with the scales and zero points of a stack of blocks."""
    return quantize_blocks(
        x, replace(scheme, rule="absmax"), scale=scales.reshape(blocks.scale_shape),
        zero_point=None if zero_points is None else zero_points.reshape(blocks.scale_shape), rounding="ties_to_even",
    )  # fmt: skip


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
    blocks = _BlockGrid(settled, values.shape)
    stack = blocks.stacked(values)
    high, low = blocks.ends(stack)
    best: list[Any] = [np.full(high.shape, np.inf), None, None]
    for i in range(count):
        share = 1 - i / count
        scales, zero = _of_range(high * share, low * share, settled)
        q = _with_scales(FloatArray(codes, own), settled, blocks, scales, zero)
        error = blocks.reduced(np.add, (np.asarray(q.values).reshape(stack.shape) - stack) ** 2)
        better = error < best[0]
        if best[1] is None:
            best[1], best[2] = scales.codes, zero
        best = [np.where(better, new, old) for new, old in zip((error, scales.codes, zero), best, strict=True)]
    codes = best[1].astype(settled.scale_format.code_dtype).reshape(blocks.scale_shape)
    return FloatArray(codes, settled.scale_format), best[2].reshape(blocks.scale_shape)


class SignRounded(NamedTuple):
    """The codes that SignRound chose.

    >>> import floatsim as fs, numpy as np
    >>> found = fs.quantization.sign_round(np.ones((2, 4)), np.ones((3, 4)), "int4", block="row", steps=1)
    >>> found.quantized.codes.tolist(), found.errors.shape
    ([[7, 7, 7, 7], [7, 7, 7, 7]], (2,))
    """

    quantized: Quantized
    """The weight, as `fs.quantize_blocks` returns it, with the codes of the step of the least error."""
    errors: Array
    """The mean squared error of the output before each step and after the last. The first is that of nearest codes."""


def sign_round(w: Floats, x: Floats, scheme: SchemeLike = "int4", *, steps: int = 200, **changes: Any) -> SignRounded:
    """Return the codes of SignRound: the rounding of each weight and the range of each block, trained on inputs.

    A weight is s * (clip(round(w / s + v) + z, min, max) - z). The offset v of each weight is from -1/2 to 1/2, and
    starts at 0. The high and the low end of each block are multiplied by factors from 0 to 1, which start at 1; without
    zero points, one factor multiplies the scale. Step k of n moves each offset and factor by (1 - k / n) / n against
    the sign of the gradient of the mean squared error of x @ Q(w)^T against x @ w^T. Both roundings, of the code and of
    the zero point, have the gradient 1; a clipped code has none. The step with the least error is taken, the first of
    equal ones.

    Parameters
    ----------
    w : array_like of floats, (N, K)
        The weight. It is rounded to FP32, and so is w / s.
    x : array_like of floats, (samples, K)
        Inputs of the layer. All of them are used in each step.
    scheme : str, Scheme or format
        A scheme of an integer format without a tensor scale.
    steps : int
        The number of steps; 0 is rounding to nearest.
    **changes
        Fields of the scheme, such as `block=64`.

    Returns
    -------
    SignRounded

    Raises
    ------
    ValueError
        For other schemes, for shapes that do not fit, and for NaN and infinity.

    Notes
    -----
    Cheng et al., "Optimize Weight Rounding via Signed Gradient Descent" (arXiv 2309.05516), equations 3 to 6 and
    algorithm 1, for one layer. The program AutoRound trains the layers of a block together, on random batches of eight
    samples: its codes are others. Gradients are float64 sums in the order of NumPy's product: one that is nearly zero
    may have another sign with another BLAS.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> w, x = rng.normal(size=(16, 64)), rng.normal(size=(200, 64)) @ rng.normal(size=(64, 64))
    >>> found = fs.quantization.sign_round(w, x, "int4", block="row")
    >>> bool(found.errors.min() < 0.7 * found.errors[0])
    True
    """
    weight, inputs = _pair(w, x)
    settled, count = _changed(scheme, changes), as_index(steps, "steps", 0, 100_000)
    weight = weight.astype(np.float32)
    fmt, nearest = settled.format, quantize_blocks(weight, settled)
    if not isinstance(fmt, IntegerFormat) or nearest.tensor_scale is not None:
        raise ValueError(
            f"scheme={settled!r}: sign_round is for integer formats without a tensor scale, such as 'int4'"
        )
    blocks = _BlockGrid(settled, weight.shape)
    stack = blocks.stacked(weight)
    high, low = blocks.ends(stack)
    asymmetric, span = settled.rule == "asymmetric", fmt.max - fmt.min
    own = nearest.scales.values.reshape(high.shape)
    fixed = np.zeros(high.shape, np.int64) if nearest.zero_points is None else nearest.zero_points.reshape(high.shape)
    hessian = inputs.T @ inputs / inputs.shape[0]
    v, top, bottom = np.zeros(stack.shape), np.ones(high.shape), np.ones(high.shape)
    errors, best = np.zeros(count + 1), (stack, _positive_scales(own, settled), fixed)
    for k in range(count + 1):
        scales, zeros = _of_range(high * top, low * bottom, settled) if asymmetric else (
            _positive_scales(own * top, settled), fixed
        )  # fmt: skip
        s, z = blocks.spread(scales.values), blocks.spread(zeros)
        with np.errstate(over="ignore"):  # a factor of 0 makes the least scale; infinity is clipped
            unclipped = np.rint(stack / s.astype(np.float32) + v) + z  # the quotient in FP32, as in `quantize_blocks`
        codes = np.clip(unclipped, fmt.min, fmt.max) - z
        inside = unclipped == codes + z
        difference = (s * codes - stack).reshape(weight.shape)
        product = difference @ hessian
        errors[k] = np.sum(product * difference) / weight.shape[0]
        if errors[k] < errors[:k].min(initial=np.inf):
            best = s * codes, scales, zeros
        if k == count:
            break
        rate, gradient = (1 - k / count) / count, blocks.stacked(product)
        of_scale = blocks.reduced(np.add, gradient * (codes - inside * stack / s))
        if asymmetric:  # z = min - bottom * low / s, and s = (top * high - bottom * low) / span
            of_zero = blocks.reduced(np.add, gradient * s * (inside.astype(np.float64) - 1))
            of_scale = of_scale + of_zero * bottom * low / scales.values**2
            bottom = np.clip(bottom - rate * np.sign(-of_scale * low / span - of_zero * low / scales.values), 0, 1)
            top = np.clip(top - rate * np.sign(of_scale * high), 0, 1)
        else:
            top = np.clip(top - rate * np.sign(of_scale), 0, 1)
        v = np.clip(v - rate * np.sign(gradient * inside), -0.5, 0.5)
    values, scales, zeros = best
    chosen = None if nearest.zero_points is None else zeros
    quantized = _with_scales(values.reshape(weight.shape).astype(np.float32), settled, blocks, scales, chosen)
    return SignRounded(quantized, errors)
