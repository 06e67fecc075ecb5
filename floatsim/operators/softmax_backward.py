"""Gradients of softmax, log-softmax and cross-entropy."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise.arithmetic import divide, fma, multiply, subtract
from floatsim.arrays.elementwise.functions import exp, log
from floatsim.operators.computation import Array, Computation, RecipeKeywords, computation, count, operator
from floatsim.operators.softmax import along, target_classes

__all__ = ["cross_entropy_backward", "log_softmax_backward", "softmax_backward", "softmax_gradient"]


def softmax_gradient(c: Computation, gradient: Array, y: Array, sum_step: str = "sum") -> Array:
    """Return the steps product, sum, difference and result along the last axis; "fused" has no difference."""
    product = c.value("product", multiply, gradient, y)
    total = c.sum(sum_step, product)
    if c.variant == "fused":
        return c.value("result", fma, c.negative(y), total, product)
    return c.value("result", multiply, c.value("difference", subtract, gradient, total), y)


@operator
def softmax_backward(gradient: Floats, y: Floats, axis: int = -1, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return the gradient of softmax by its input.

    Parameters
    ----------
    gradient : array_like of floats
        The gradient of the loss by the result of softmax.
    y : array_like of floats
        The result of softmax, in the same shape.
    axis : int
        The axis of softmax.
    {keywords}

    {results}

    Notes
    -----
    The steps: gradient and result_of_forward, the conversions of the operands; product = gradient * y; sum = sum of
    product; difference = gradient - sum; result = difference * y; output = the conversion of result. In the variant
    "fused", PyTorch's on CUDA, result = product - y * sum, rounded once.

    Examples
    --------
    >>> import floatsim as fs
    >>> y = fs.array([0.25, 0.75], "fp16")
    >>> fs.operators.softmax_backward(fs.array([1.0, 0.0], "fp16"), y, recipe="all-fp16")
    FloatArray([0.1875, -0.1875], FP16)
    """
    with computation("softmax_backward", gradient, keywords) as c:
        g, y = (along(c, x, axis) for x in c.operands(gradient=gradient, result_of_forward=y))
        return c.result(np.moveaxis(c.converted("output", softmax_gradient(c, g, y)), -1, axis))


@operator
def log_softmax_backward(gradient: Floats, y: Floats, axis: int = -1, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return the gradient of log_softmax by its input.

    Parameters
    ----------
    gradient : array_like of floats
        The gradient of the loss by the result of log_softmax.
    y : array_like of floats
        The result of log_softmax, in the same shape.
    axis : int
        The axis of log_softmax.
    {keywords}

    {results}

    Notes
    -----
    The steps: gradient and result_of_forward, the conversions of the operands; sum = sum of gradient; exp = exp(y);
    product = exp * sum; result = gradient - product; output = the conversion of result. In the variant "fused",
    PyTorch's on CUDA, result = gradient - exp * sum, rounded once.

    Examples
    --------
    >>> import floatsim as fs
    >>> y = fs.operators.log_softmax(fs.array([0.0, 0.0], "fp16"))
    >>> fs.operators.log_softmax_backward(fs.array([-1.0, 0.0], "fp16"), y)
    FloatArray([-0.5, 0.5], FP16)
    """
    with computation("log_softmax_backward", gradient, keywords) as c:
        g, y = (along(c, x, axis) for x in c.operands(gradient=gradient, result_of_forward=y))
        powers, total = c.value("exp", exp, y), c.sum("sum", g)
        if c.variant == "fused":
            result = c.value("result", fma, c.negative(powers), total, g)
        else:
            result = c.value("result", subtract, g, c.value("product", multiply, powers, total))
        return c.result(np.moveaxis(c.converted("output", result), -1, axis))


@operator
def cross_entropy_backward(
    x: Floats, target: Any, *, loss_scale: float = 1.0, **keywords: Unpack[RecipeKeywords]
) -> Any:
    """Return the gradient of cross_entropy by the logits.

    Parameters
    ----------
    x : array_like of floats, (..., classes)
        The logits.
    target : array_like of int, (...)
        The class of each row.
    loss_scale : float
        The gradient of the loss, as in loss scaling. Rounded to the format of the step "difference".
    {keywords}

    Returns
    -------
    FloatArray or ndarray, (..., classes)
        As in `fs.operators.softmax_backward`.

    {raises}

    Notes
    -----
    The steps: input, the conversion of x; max = largest x; shifted = x - max; exp = exp(shifted); sum = sum of exp;
    quotient = exp / sum; difference = quotient - 1 at the targets, and quotient elsewhere; scaled = difference *
    loss_scale; mean = scaled / n, with the exact number n of rows; output = the conversion of mean.

    The variant "from-log-softmax", as PyTorch's automatic differentiation: max to sum as above; log = log(sum); result
    = shifted - log; target_gradient = -loss_scale / n; probability = exp(result); difference = target_gradient -
    probability * target_gradient, rounded once, at the targets, and -probability * target_gradient elsewhere.

    Examples
    --------
    With many rows, a gradient in FP16 becomes zero without loss scaling:

    >>> import floatsim as fs, numpy as np
    >>> x, target = fs.array(np.tile([10.0, 0.0], (4096, 1)), "fp16"), np.zeros(4096, int)
    >>> gradients = [
    ...     fs.operators.cross_entropy_backward(x, target, recipe="all-fp16", loss_scale=scale) for scale in (1, 1024)
    ... ]
    >>> [int(np.count_nonzero(g.values)) for g in gradients]
    [0, 4096]
    """
    with computation("cross_entropy_backward", x, keywords) as c:
        rows = c.operand("input", x)
        if not rows.ndim or not rows.shape[-1]:
            raise ValueError(f"x of shape {rows.shape} has no classes along its last axis")
        classes = target_classes(target, along(c, rows, -1).shape)
        shifted = c.value("shifted", subtract, rows, c.maximum("max", rows))
        powers = c.value("exp", exp, shifted)
        total = c.sum("sum", powers)
        chosen = classes[..., np.newaxis] == np.arange(rows.shape[-1])
        if c.variant == "from-log-softmax":
            result = c.value("result", subtract, shifted, c.value("log", log, total))
            scale = c.negative(c.number(loss_scale, total))
            gradient = c.value("target_gradient", divide, scale, count(classes.size))
            at_targets = c.select(chosen, gradient, c.number(0.0, gradient))
            share = c.negative(c.value("probability", exp, result))
            return c.result(c.converted("output", c.value("difference", fma, share, gradient, at_targets)))
        quotient = c.value("quotient", divide, powers, total)
        ones = c.select(chosen, c.number(1.0, quotient), c.number(0.0, quotient))
        scaled = c.value("difference", subtract, quotient, ones)
        scaled = c.value("scaled", multiply, scaled, c.number(loss_scale, scaled))
        return c.result(c.converted("output", c.value("mean", divide, scaled, count(classes.size))))
