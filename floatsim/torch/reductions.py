"""ATen's sums and means along axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from floatsim.arrays.array.conversion import array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.arithmetic import add, divide, multiply, sqrt, subtract
from floatsim.arrays.elementwise.functions import exp, log
from floatsim.arrays.sums.reductions import cumsum, prod
from floatsim.operators.computation import count
from floatsim.torch.call import Call, Handler
from floatsim.training.policies.operations import operation_of

__all__ = ["REDUCTIONS", "reduced_axes"]


def reduced_axes(x: Any, dim: Any) -> tuple[int, ...]:
    """Return the axes of a reduction; all without one.

    >>> import torch
    >>> reduced_axes(torch.ones(2, 3), -1), reduced_axes(torch.ones(2, 3), None)
    ((1,), (0, 1))
    """
    if dim is None or (isinstance(dim, list | tuple) and not len(dim)):
        return tuple(range(x.ndim))
    dims = [dim] if isinstance(dim, int) else dim
    return tuple(sorted(int(each) % max(x.ndim, 1) for each in dims)) if x.ndim else ()


def _total(c: Call, terms: FloatArray, axes: tuple[int, ...], keepdim: bool) -> FloatArray:
    if terms.ndim and axes:
        return c.sum(terms, axes, keepdim)
    return c.rounded(terms, c.formats.inside)


def _sum(c: Call, x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> FloatArray:
    """Return the sum. In the backward pass of a matrix product it is the gradient of the bias."""
    terms = c.gradient(x) if c.backward else c.operand(x)
    total = _total(c, terms, reduced_axes(x, dim), keepdim)
    of_bias = c.backward and operation_of(c.formats.operation).product
    return (c.weight_result if of_bias else c.result)(total)


def _mean(c: Call, x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> FloatArray:
    """Return the sum divided by the exact number of terms."""
    axes = reduced_axes(x, dim)
    n = math.prod(x.shape[axis] for axis in axes)
    return c.result(c.value(divide, _total(c, c.operand(x), axes, keepdim), count(n)))


def _squares(c: Call, x: Any, axes: tuple[int, ...], correction: float) -> tuple[FloatArray, FloatArray]:
    """Return the variance and the mean, with the reduced axes kept."""
    operand = c.operand(x)
    n = math.prod(x.shape[axis] for axis in axes)
    mean = c.value(divide, _total(c, operand, axes, True), count(n))
    centred = c.value(subtract, operand, mean)
    total = _total(c, c.value(multiply, centred, centred), axes, True)
    return c.value(divide, total, count(max(n - correction, 0))), mean


def _without(c: Call, x: FloatArray, axes: tuple[int, ...], keepdim: bool) -> FloatArray:
    return c.result(x if keepdim or not x.ndim else FloatArray(np.squeeze(x.codes, axes), x.format))


def _var(c: Call, x: Any, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> FloatArray:
    axes = reduced_axes(x, dim)
    return _without(c, _squares(c, x, axes, 1 if correction is None else correction)[0], axes, keepdim)


def _std(c: Call, x: Any, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> FloatArray:
    axes = reduced_axes(x, dim)
    variance, _ = _squares(c, x, axes, 1 if correction is None else correction)
    return _without(c, c.value(sqrt, variance), axes, keepdim)


def _var_mean(c: Call, x: Any, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    axes = reduced_axes(x, dim)
    found = _squares(c, x, axes, 1 if correction is None else correction)
    return tuple(_without(c, each, axes, keepdim) for each in found)


def _vector_norm(c: Call, x: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """Return the Euclidean norm: squares, their sum, and its square root."""
    if ord != 2:
        return NotImplemented
    operand = c.operand(x)
    total = _total(c, c.value(multiply, operand, operand), reduced_axes(x, dim), keepdim)
    return c.result(c.value(sqrt, total))


def _logsumexp(c: Call, x: Any, dim: Any, keepdim: bool = False) -> FloatArray:
    """Return max + log(sum(exp(x - max)))."""
    axes, operand = reduced_axes(x, dim), c.operand(x)
    largest = FloatArray(_largest(operand, axes), operand.format)
    powers = c.value(exp, c.value(subtract, operand, largest))
    found = c.value(add, c.value(log, _total(c, powers, axes, True)), largest)
    return _without(c, found, axes, keepdim)


def _largest(x: FloatArray, axes: tuple[int, ...]) -> Any:
    """Return the codes of the largest finite elements; 0 for rows of -infinity."""
    numbers = np.max(x.values, axis=axes, keepdims=True)
    numbers = np.where(np.isfinite(numbers), numbers, 0.0)
    return array(numbers, x.format).codes


def _prod(c: Call, x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> FloatArray:
    axis = None if dim is None else int(dim)
    found = prod(c.operand(x), axis, keepdims=keepdim, accumulate=c.formats.sums, format=c.formats.inside)
    return c.result(found)


def _cumsum(c: Call, x: Any, dim: int, *, dtype: Any = None) -> FloatArray:
    if not x.ndim:
        return c.result(c.operand(x))
    return c.result(cumsum(c.operand(x), dim, accumulate=c.formats.sums, format=c.formats.inside))


def _cumprod(c: Call, x: Any, dim: int, *, dtype: Any = None) -> FloatArray:
    """Return running products in order, each rounded."""
    operand = c.rounded(c.operand(x), c.formats.inside)
    operand = FloatArray(operand.codes.copy(), operand.format)
    if operand.ndim:
        lines = np.moveaxis(operand.codes, dim, 0)  # a view
        for i in range(1, len(lines)):
            last, term = (FloatArray(lines[n], operand.format) for n in (i - 1, i))
            lines[i] = c.value(multiply, last, term).codes
    return c.result(operand)


REDUCTIONS: dict[str, tuple[str, Handler]] = {
    "sum": ("sum", _sum),
    "mean": ("mean", _mean),
    "var": ("var", _var),
    "std": ("std", _std),
    "var_mean": ("var_mean", _var_mean),
    "linalg_vector_norm": ("norm", _vector_norm),
    "logsumexp": ("logsumexp", _logsumexp),
    "prod": ("prod", _prod),
    "cumsum": ("cumsum", _cumsum),
    "cumprod": ("cumprod", _cumprod),
}
"""By the name of the ATen operation: the operation of policies, and the handler."""
