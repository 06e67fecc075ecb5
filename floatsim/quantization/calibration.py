"""Calibration: scales that lose less than the one of the largest magnitude."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.types import Floats
from floatsim.emulator.elementwise.block_scales import Blocks, largest
from floatsim.formats import FormatLike
from floatsim.formats._validation import as_index
from floatsim.quantization.blocks import quantize_blocks, read_tensor
from floatsim.quantization.integer import IntegerFormat
from floatsim.quantization.scales import number
from floatsim.quantization.scheme import BlockLike, Scheme, SchemeLike, as_name, as_scheme, largest_number, layout

__all__ = ["METHODS", "best_scale"]

Array: TypeAlias = NDArray[Any]


class _Calibration:
    """A tensor, its blocks, and the largest magnitude of each."""

    def __init__(self, x: Any, scheme: Scheme) -> None:
        self.scheme, self.tensor = scheme, read_tensor(x, scheme)
        self.blocks, self.scale_shape = layout(scheme, self.tensor.shape)
        stack = self.tensor.codes.reshape(self.blocks.shape)
        self.amax = FloatArray(largest(stack, self.tensor.format, self.blocks), self.tensor.format).values
        if not np.all(np.isfinite(self.amax)):
            raise ValueError("x has NaN or infinity; a scale is chosen for finite numbers")
        self.values = FloatArray(stack, self.tensor.format).values

    def scales(self, limits: Array) -> FloatArray:
        """Return the scales that map a magnitude of each block to the largest number of the format."""
        target = self.scheme.scale_format
        scales = number(np.where(self.amax > 0, limits / largest_number(self.scheme.format), 1.0), target)
        usable = np.where(scales.values > 0, scales.codes, number(target.smallest_subnormal, target).codes)
        return FloatArray(usable.astype(target.code_dtype), target)

    def magnitudes(self, index: tuple[int, ...]) -> Array:
        """Return the magnitudes of the elements of one block."""
        matrix, down, across = index
        height, width = self.blocks.height, self.blocks.width
        part = self.values[matrix, down * height : (down + 1) * height, across * width : (across + 1) * width]
        return np.abs(part).reshape(-1)

    def of_each_block(self, function: Callable[[Array], float]) -> Array:
        """Return an array of a function of the magnitudes of each block."""
        limits = np.zeros(self.amax.shape)
        for index in np.ndindex(*self.amax.shape):
            limits[index] = function(self.magnitudes(index))
        return limits


def _sums(x: Array, blocks: Blocks) -> Array:
    """Return the sum of each block, in float64."""
    _, rows, columns = blocks.shape
    if not x.size:
        return np.zeros(blocks.grid)
    down = np.add.reduceat(x, np.arange(0, rows, blocks.height), axis=1)
    sums: Array = np.add.reduceat(down, np.arange(0, columns, blocks.width), axis=2)
    return sums


def _min_max(x: _Calibration, candidates: int, percentile: float, bins: int) -> Array:
    return x.amax


def _percentile(x: _Calibration, candidates: int, percentile: float, bins: int) -> Array:
    def limit(magnitudes: Array) -> float:
        return float(np.percentile(magnitudes, percentile, method="inverted_cdf")) if magnitudes.size else 0.0

    limits = x.of_each_block(limit)
    return np.where(limits > 0, limits, x.amax)


def _mse(x: _Calibration, candidates: int, percentile: float, bins: int) -> Array:
    best, error = x.amax, np.full(x.amax.shape, np.inf)
    for i in range(candidates):
        limits = x.amax * (1 - i / candidates)
        scale = x.scales(limits)
        found = quantize_blocks(x.tensor, x.scheme, scale=FloatArray(scale.codes.reshape(x.scale_shape), scale.format))
        squares = (found.values.reshape(x.values.shape) - x.values) ** 2
        sums = _sums(squares, x.blocks)
        best, error = np.where(sums < error, limits, best), np.minimum(sums, error)
    return best


def _kl(x: _Calibration, candidates: int, percentile: float, bins: int) -> Array:
    element = x.scheme.format
    if not isinstance(element, IntegerFormat):
        raise ValueError(f"method='kl' counts the levels of an integer format, which {element.name} is not; use 'mse'")
    levels = element.max + 1
    return x.of_each_block(lambda magnitudes: _least_divergence(magnitudes, levels, bins))


def _least_divergence(magnitudes: Array, levels: int, bins: int) -> float:
    """Return the limit whose clipped histogram diverges least from the histogram with `levels` bins."""
    top = magnitudes.max(initial=0.0)
    if top == 0 or bins <= levels:
        return float(top)
    counts = np.histogram(magnitudes, bins, (0, top))[0].astype(np.float64)
    best, least = bins, np.inf
    for kept in range(levels, bins + 1):
        reference = counts[:kept].copy()
        reference[-1] += counts[kept:].sum()
        starts = np.arange(levels) * kept // levels
        filled = np.add.reduceat((counts[:kept] > 0).astype(np.float64), starts)
        level = np.divide(np.add.reduceat(counts[:kept], starts), filled, out=np.zeros(levels), where=filled > 0)
        widths = np.diff(np.append(starts, kept))
        candidate = np.repeat(level, widths) * (counts[:kept] > 0)
        there = reference > 0
        if np.any(candidate[there] == 0):
            continue  # the divergence is infinite
        p, q = reference[there] / reference.sum(), candidate[there] / candidate.sum()
        divergence = float(np.sum(p * np.log(p / q)))
        if divergence < least:
            best, least = kept, divergence
    return float(min((best + 0.5) * top / bins, top))


METHODS: dict[str, Callable[[_Calibration, int, float, int], Array]] = {
    "min_max": _min_max, "percentile": _percentile, "mse": _mse, "kl": _kl,
}  # fmt: skip
"""The methods of `best_scale`."""


def best_scale(
    x: Floats,
    scheme: SchemeLike,
    *,
    method: str = "mse",
    block: BlockLike | None = None,
    scale_format: FormatLike | None = None,
    candidates: int = 100,
    percentile: float = 99.99,
    bins: int = 2048,
) -> FloatArray:
    """Return the scale with which a tensor loses least in a format: one, or one for each block.

    Parameters
    ----------
    x : array_like of floats
        The tensor. Its values are finite.
    scheme : str, Scheme or format
        As in `fs.quantize_blocks`. Zero points are 0, and the rule of the scheme has no effect.
    method : str
        How the limit of each block is chosen, the magnitude that its scale maps to the largest number of the format:

        - "mse": the limit with the least sum of squared errors, among amax * (1 - i / candidates) for i = 0, 1, ...
        - "min_max": amax, the largest magnitude.
        - "percentile": the magnitude of rank ceil(percentile / 100 * n) of n. If it is zero, amax.
        - "kl": for integer formats, the limit whose histogram, with the larger magnitudes in its last bin, has the
          least Kullback-Leibler divergence from the same histogram with max + 1 levels, as in TensorRT 2. The limit is
          0.5 bins above the last bin. Limits with an infinite divergence are excluded.
    block, scale_format : optional
        As in `fs.quantize_blocks`.
    candidates : int
        The number of limits of "mse".
    percentile : float
        The percentage of "percentile", above 0 and at most 100.
    bins : int
        The bins of the histogram of "kl".

    Returns
    -------
    FloatArray
        The scales, in the format and the shape of the scales: `fs.quantize_blocks(x, scheme, scale=...)` takes them.

    Raises
    ------
    ValueError
        For unknown names, for NaN and infinity, for "kl" and a format without levels, and for numbers out of range.

    Notes
    -----
    Limits and errors are computed in float64, and the scale limit / max is rounded once to the format of the scales. Of
    limits with equal errors, the largest is taken. A block of zeros has the scale 1.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = np.random.default_rng(0).normal(size=4096).astype(np.float32)
    >>> for method in ("min_max", "mse"):
    ...     scale = fs.best_scale(x, "int4", method=method)
    ...     error = np.std(fs.quantize_blocks(x, "int4", scale=scale).values - x)
    ...     print(method, round(scale.item(), 3), round(error, 3))
    min_max 0.557 0.162
    mse 0.329 0.106
    """
    name = as_name(method, METHODS, "method")
    count = as_index(candidates, "candidates", 1, 100_000)
    if not (isinstance(percentile, int | float) and 0 < percentile <= 100):
        raise ValueError(f"percentile must be above 0 and at most 100, not {percentile!r}")
    given = {"block": block, "scale_format": scale_format}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    settled = replace(as_scheme(scheme), rule="absmax", **changes)
    calibration = _Calibration(x, settled)
    limits = METHODS[name](calibration, count, float(percentile), as_index(bins, "bins", 2, 1 << 20))
    scales = calibration.scales(limits)
    return FloatArray(scales.codes.reshape(calibration.scale_shape), scales.format)
