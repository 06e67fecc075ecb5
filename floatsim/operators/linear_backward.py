"""Gradients of linear layers and of residual additions."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Unpack

import numpy as np

from floatsim.arrays.array.types import Floats
from floatsim.operators.computation import Array, Computation, RecipeKeywords, computation, operator

__all__ = ["LinearGradients", "ResidualGradients", "linear_backward", "residual_add_backward"]


class LinearGradients(NamedTuple):
    """The result of `linear_backward` and `conv2d_backward`.

    Attributes
    ----------
    x, weight, bias : FloatArray or ndarray
        The gradients by the operands.

    Examples
    --------
    >>> import floatsim as fs
    >>> x, w = fs.array([[1.0, 2.0]], "fp32"), fs.array([[3.0, 4.0]], "fp32")
    >>> found = fs.operators.linear_backward(fs.array([[1.0]], "fp32"), x, w)
    >>> found.x.tolist(), found.weight.tolist(), found.bias.tolist()
    ([[3.0, 4.0]], [[1.0, 2.0]], [1.0])
    """

    x: Any
    weight: Any
    bias: Any


@operator
def linear_backward(gradient: Floats, x: Floats, weight: Floats, **keywords: Unpack[RecipeKeywords]) -> LinearGradients:
    """Return the gradients of linear by its operands.

    Parameters
    ----------
    gradient : array_like of floats, (..., outputs)
        The gradient of the loss by the result of linear.
    x : array_like of floats, (..., inputs)
    weight : array_like of floats, (outputs, inputs)
        The operands of linear.
    {keywords}

    Returns
    -------
    LinearGradients
        The gradients, as ndarrays if gradient is one and their formats have dtypes.

    {raises}

    Notes
    -----
    The steps: gradient, input and weight, the conversions of the operands; input_gradient = gradient @ weight;
    weight_gradient = gradient.T @ x, over all rows in C order; bias_gradient = the sum of the rows of gradient. Each is
    converted to the format of output.

    Examples
    --------
    >>> import floatsim as fs
    >>> one = fs.array([[1.0]], "bf16")
    >>> fs.operators.linear_backward(one, fs.array([[3.0]], "bf16"), fs.array([[2.0]], "bf16"))
    LinearGradients(x=FloatArray([[2.0]], BF16), weight=FloatArray([[3.0]], BF16), bias=FloatArray([1.0], BF16))
    """
    with computation("linear_backward", gradient, keywords) as c:
        g, rows, w = c.operand("gradient", gradient), c.operand("input", x), c.operand("weight", weight)
        if w.ndim != 2 or not g.ndim or (*g.shape[:-1], w.shape[1]) != rows.shape or g.shape[-1] != w.shape[0]:
            raise ValueError(f"gradient {g.shape}, x {rows.shape} and weight {w.shape} do not fit")
        flat = g.reshape(-1, g.shape[-1])
        found = (
            c.product("input_gradient", g, w),
            c.product("weight_gradient", np.transpose(flat), rows.reshape(-1, rows.shape[-1])),
            c.sum("bias_gradient", flat, 0).reshape(-1),
        )
        return LinearGradients(*(c.result(c.converted("output", each)) for each in found))


class ResidualGradients(NamedTuple):
    """The result of `residual_add_backward`.

    Attributes
    ----------
    x, residual : FloatArray or ndarray
        The gradients by the operands of `residual_add`.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> found = fs.operators.residual_add_backward(fs.array(np.ones((3, 2)), "fp16"), residual_shape=(2,))
    >>> found.x.shape, found.residual
    ((3, 2), FloatArray([3.0, 3.0], FP16))
    """

    x: Any
    residual: Any


@operator
def residual_add_backward(
    gradient: Floats, x_shape: tuple[int, ...] | None = None, residual_shape: tuple[int, ...] | None = None,
    **keywords: Unpack[RecipeKeywords],
) -> ResidualGradients:  # fmt: skip
    """Return the gradients of residual_add by its operands.

    Parameters
    ----------
    gradient : array_like of floats
        The gradient of the loss by the result of residual_add.
    x_shape, residual_shape : tuple of int, optional
        The shapes of the operands. Default: that of gradient.
    {keywords}

    Returns
    -------
    ResidualGradients
        The gradients, as ndarrays if gradient is one and their formats have dtypes.

    Raises
    ------
    TypeError
        For operands without a float format, and for unknown keywords.
    ValueError
        For unknown recipes and steps, with the nearest match, and for shapes that do not broadcast to that of gradient.

    Notes
    -----
    The steps: gradient, the conversion of the operand; input_gradient and residual_gradient = the sums of gradient over
    the axes that were broadcast, in C order, or the conversion of gradient without such an axis. Both are converted to
    the format of output.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> gradient = fs.array(np.ones((3, 2)), "fp16")
    >>> fs.operators.residual_add_backward(gradient, residual_shape=(2,)).residual
    FloatArray([3.0, 3.0], FP16)
    """
    with computation("residual_add_backward", gradient, keywords) as c:
        g = c.operand("gradient", gradient)
        found = [
            _without_broadcast(c, step, g, g.shape if shape is None else tuple(shape))
            for step, shape in (("input_gradient", x_shape), ("residual_gradient", residual_shape))
        ]
        return ResidualGradients(*(c.result(c.converted("output", each)) for each in found))


def _without_broadcast(c: Computation, step: str, gradient: Array, shape: tuple[int, ...]) -> Array:
    """Return the gradient of an operand of this shape, which was broadcast."""
    aligned = (1,) * (gradient.ndim - len(shape)) + shape
    if len(aligned) != gradient.ndim or any(k not in (1, n) for k, n in zip(aligned, gradient.shape, strict=True)):
        raise ValueError(f"the shape {shape} does not broadcast to {gradient.shape}, the shape of gradient")
    if math.prod(shape) == gradient.size:
        return c.converted(step, gradient.reshape(shape))
    summed = [axis for axis, k in enumerate(aligned) if k == 1]
    kept = [axis for axis, k in enumerate(aligned) if k != 1]
    terms = np.transpose(gradient, (*kept, *summed)).reshape(*(aligned[axis] for axis in kept), -1)
    return c.sum(step, terms).reshape(shape)
