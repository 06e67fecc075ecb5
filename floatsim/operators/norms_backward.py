"""Gradients of layer, RMS and batch norm."""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import numpy as np

from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise.arithmetic import divide, fma, multiply, subtract
from floatsim.operators.computation import Array, Computation, RecipeKeywords, computation, count, operator
from floatsim.operators.norms import (
    by_threads,
    compared_rows,
    inverse_root,
    parameter,
    root_mean_square,
    training_variant,
    two_pass,
)

__all__ = ["NormGradients", "batch_norm_backward", "layer_norm_backward", "rms_norm_backward"]


class NormGradients(NamedTuple):
    """The result of `layer_norm_backward`, `rms_norm_backward` and `batch_norm_backward`.

    Attributes
    ----------
    x, weight, bias : FloatArray or ndarray
        The gradients by the operands. `bias` is None for `rms_norm_backward`.

    Examples
    --------
    >>> import floatsim as fs
    >>> x, gradient = fs.array([[1.0, 2.0]], "bf16"), fs.array([[1.0, 0.0]], "bf16")
    >>> found = fs.operators.rms_norm_backward(gradient, x)
    >>> found.x, found.bias
    (FloatArray([[0.5078, -0.2539]], BF16), None)
    """

    x: Any
    weight: Any
    bias: Any


def _norm_operands(c: Computation, gradient: Any, x: Any, weight: Any) -> tuple[Array, Array, Array | None]:
    """Return gradient, x and weight; the first two as rows."""
    g, rows = c.operands(gradient=gradient, input=x)
    if not rows.ndim or not rows.shape[-1]:
        raise ValueError(f"x of shape {rows.shape} has no features along its last axis")
    w = None if weight is None else c.operand("weight", weight)
    if w is not None and w.shape != rows.shape[-1:]:
        raise ValueError(f"weight has the shape {w.shape}; x has {rows.shape[-1]} features")
    compared_rows(c, rows, w)
    return g, rows, w


def _through_the_root(c: Computation, gradient: Array, normalized: Array, root: Array, centre: bool, n: Array) -> Array:
    """Return the gradient by x: (gradient - its mean - normalized * mean(gradient * normalized)) * root."""
    product = c.value("product", multiply, gradient, normalized)
    slope = c.value("mean_product", divide, c.sum("product_sum", product), n)
    if centre:
        mean = c.value("mean_gradient", divide, c.sum("gradient_sum", gradient), n)
        gradient = c.value("centred_gradient", subtract, gradient, mean)
    corrected = c.value("corrected", subtract, gradient, c.value("correction", multiply, normalized, slope))
    return c.value("result", multiply, corrected, root)


def _norm_gradients(
    c: Computation, g: Array, normalized: Array, root: Array, w: Array | None, centre: bool
) -> NormGradients:
    """Return the gradients of layer_norm or, without `centre`, of rms_norm."""
    n = count(normalized.shape[-1])
    weighted = g if w is None else c.value("weighted_gradient", multiply, g, w)
    by_x = _through_the_root(c, weighted, normalized, root, centre, n)
    rows = g.reshape(-1, g.shape[-1])
    by_parameters = _parameter_gradients(c, rows, normalized.reshape(rows.shape), 0, centre)
    outputs = [c.result(c.converted("output", each)) for each in (by_x, *by_parameters)]
    return NormGradients(*outputs, *([] if centre else [None]))


def _parameter_gradients(c: Computation, g: Array, normalized: Array, axis: int, bias: bool) -> list[Array]:
    """Return the gradients by the weight and, if wanted, by the bias: sums along an axis."""
    found = [c.sum("weight_gradient", c.value("weight_product", multiply, g, normalized), axis).reshape(-1)]
    return [*found, c.sum("bias_gradient", g, axis).reshape(-1)] if bias else found


def _by_threads(c: Computation, g: Array, centred: Array, root: Array, w: Array | None, centre: bool) -> NormGradients:
    """Return the gradients of the variant "threads"; without `centre`, those of rms_norm."""
    n = c.number(g.shape[-1], root)
    weighted = g if w is None else c.value("weighted_gradient", multiply, g, w)
    scaled = n if w is None else c.value("scaled_weight", multiply, n, w)
    slope = c.dot("product_sum", c.value("product", multiply, weighted, centred), root)
    correction = c.value("correction", multiply, c.value("normalized", multiply, centred, root), slope)
    corrected = c.value("corrected", fma, scaled, g, c.negative(correction))
    if centre:
        corrected = c.value("centred_gradient", subtract, corrected, c.sum("gradient_sum", weighted))
    share = c.value("share", divide, c.number(1.0, root), n)
    by_x = c.value("result", multiply, corrected, c.value("scaled_root", multiply, share, root))
    rows, roots = g.reshape(-1, g.shape[-1]), root.reshape(-1, 1)
    products = c.value("weight_product", multiply, rows, centred.reshape(rows.shape))
    by_parameters = [c.dot("weight_gradient", products, roots, 0).reshape(-1)]
    if centre:
        by_parameters.append(c.sum("bias_gradient", rows, 0).reshape(-1))
    outputs = [c.result(c.converted("output", each)) for each in (by_x, *by_parameters)]
    return NormGradients(*outputs, *([] if centre else [None]))


@operator
def layer_norm_backward(
    gradient: Floats, x: Floats, weight: Floats | None = None, *, eps: float = 1e-5, **keywords: Unpack[RecipeKeywords]
) -> NormGradients:
    """Return the gradients of layer_norm by its operands. The statistics are computed again, in two passes.

    Parameters
    ----------
    gradient : array_like of floats, (..., features)
        The gradient of the loss by the result of layer_norm.
    x : array_like of floats, (..., features)
    weight : array_like of floats, (features,), optional
        The operands of layer_norm.
    eps : float
        As in `fs.operators.layer_norm`.
    {keywords}

    Returns
    -------
    NormGradients
        The gradients, as ndarrays if gradient is one and their formats have dtypes.

    {raises}

    Notes
    -----
    The steps: gradient, input and weight, the conversions of the operands; sum to normalized as in the two-pass
    `fs.operators.layer_norm`; weighted_gradient = gradient * weight (without a weight, the gradient); product =
    weighted_gradient * normalized; product_sum = its sum; mean_product = product_sum / n; gradient_sum = sum of
    weighted_gradient; mean_gradient = gradient_sum / n; centred_gradient = weighted_gradient - mean_gradient;
    correction = normalized * mean_product; corrected = centred_gradient - correction; result = corrected * rsqrt. Then,
    over all rows in C order, weight_product = gradient * normalized; weight_gradient = its sum; bias_gradient = the sum
    of gradient. The results are converted to the format of output.

    The variant "threads", PyTorch's CUDA kernels: mean to centred as in the variant "threads" of
    `fs.operators.layer_norm`; weighted_gradient = gradient * weight; scaled_weight = n * weight; product =
    weighted_gradient * centred; product_sum = sum of product * rsqrt; normalized = centred * rsqrt; correction =
    normalized * product_sum; corrected = scaled_weight * gradient - correction, rounded once; gradient_sum = sum of
    weighted_gradient; centred_gradient = corrected - gradient_sum; share = 1 / n; scaled_root = share * rsqrt; result =
    centred_gradient * scaled_root. Over all rows, weight_product = gradient * centred; weight_gradient = sum of
    weight_product * rsqrt; bias_gradient = sum of gradient. The accumulation rounds or fuses the products in sums.

    Examples
    --------
    >>> import floatsim as fs
    >>> x, gradient = fs.array([[1.0, 2.0, 4.0]], "bf16"), fs.array([[1.0, 0.0, 0.0]], "bf16")
    >>> fs.operators.layer_norm_backward(gradient, x).x
    FloatArray([[0.2295, -0.3438, 0.1147]], BF16)
    """
    with computation("layer_norm_backward", gradient, keywords) as c:
        g, rows, w = _norm_operands(c, gradient, x, weight)
        if c.variant == "threads":
            mean, variance = by_threads(c, rows)
            root = inverse_root(c, variance, eps)
            return _by_threads(c, g, c.value("centred", subtract, rows, mean), root, w, True)
        centred, variance = two_pass(c, rows)
        root = inverse_root(c, variance, eps)
        return _norm_gradients(c, g, c.value("normalized", multiply, centred, root), root, w, True)


@operator
def rms_norm_backward(
    gradient: Floats, x: Floats, weight: Floats | None = None, *, eps: float = 2.0**-23,
    **keywords: Unpack[RecipeKeywords],
) -> NormGradients:  # fmt: skip
    """Return the gradients of rms_norm by its operands. The root is computed again.

    Parameters
    ----------
    gradient : array_like of floats, (..., features)
        The gradient of the loss by the result of rms_norm.
    x : array_like of floats, (..., features)
    weight : array_like of floats, (features,), optional
        The operands of rms_norm.
    eps : float
        As in `fs.operators.rms_norm`.
    {keywords}

    Returns
    -------
    NormGradients
        The gradients, as ndarrays if gradient is one and their formats have dtypes.

    {raises}

    Notes
    -----
    The steps: gradient, input and weight, the conversions of the operands; square to normalized as in
    `fs.operators.rms_norm`; the further steps as in `fs.operators.layer_norm_backward`, without those of the means of
    the gradient and of the bias: corrected = weighted_gradient - correction. In the variant "threads" centred is the
    input, and corrected takes the place of centred_gradient.

    Examples
    --------
    >>> import floatsim as fs
    >>> x, gradient = fs.array([[1.0, 2.0]], "bf16"), fs.array([[1.0, 0.0]], "bf16")
    >>> fs.operators.rms_norm_backward(gradient, x).x
    FloatArray([[0.5078, -0.2539]], BF16)
    """
    with computation("rms_norm_backward", gradient, keywords) as c:
        g, rows, w = _norm_operands(c, gradient, x, weight)
        root = root_mean_square(c, rows, eps)
        if c.variant == "threads":
            return _by_threads(c, g, rows, root, w, False)
        return _norm_gradients(c, g, c.value("normalized", multiply, rows, root), root, w, False)


@operator
def batch_norm_backward(
    gradient: Floats, x: Floats, running_mean: Floats, running_var: Floats, weight: Floats | None = None, *,
    training: bool = False, eps: float = 1e-5, **keywords: Unpack[RecipeKeywords],
) -> NormGradients:  # fmt: skip
    """Return the gradients of the output of batch_norm by its operands. The statistics are computed again.

    Parameters
    ----------
    gradient : array_like of floats, (batch, channels, ...)
        The gradient of the loss by the output of batch_norm.
    x : array_like of floats, (batch, channels, ...)
    running_mean, running_var : array_like of floats, (channels,)
    weight : array_like of floats, (channels,), optional
        The operands of batch_norm.
    training : bool
        As in `fs.operators.batch_norm`. This selects the variant.
    eps : float
        As in `fs.operators.batch_norm`.
    {keywords}

    Returns
    -------
    NormGradients
        The gradients, as ndarrays if gradient is one and their formats have dtypes. The running statistics are
        constants.

    {raises}

    Notes
    -----
    All operands are converted first. Then, over the elements of each channel in C order, by variant:

    - "training": sum to normalized as in the variant "training" of `fs.operators.batch_norm`; weighted_gradient to
      result as in `fs.operators.layer_norm_backward`.
    - "inference": centred = x - running_mean; stabilized = running_var + eps; rsqrt; normalized = centred * rsqrt;
      weighted_gradient = gradient * weight (without a weight, the gradient); result = weighted_gradient * rsqrt.

    Last, weight_product = gradient * normalized; weight_gradient = its sum; bias_gradient = the sum of gradient. The
    results are converted to the format of output.

    Examples
    --------
    >>> import floatsim as fs
    >>> x, gradient = fs.array([[1.0], [2.0], [4.0]], "bf16"), fs.array([[1.0], [0.0], [0.0]], "bf16")
    >>> zero, one = fs.array([0.0], "bf16"), fs.array([1.0], "bf16")
    >>> fs.operators.batch_norm_backward(gradient, x, zero, one, training=True).x.tolist()
    [[0.2294921875], [-0.34375], [0.11474609375]]
    """
    variant = training_variant(training, keywords)
    with computation("batch_norm_backward", gradient, {**keywords, "variant": variant}) as c:
        g, batch = c.operands(gradient=gradient, input=x)
        if batch.ndim < 2 or not batch.size:
            raise ValueError(f"x must have the shape (batch, channels, ...) and elements, not {batch.shape}")
        channels = batch.shape[1]
        parameters = {"running_mean": running_mean, "running_var": running_var, "weight": weight}
        mean, var, w = (
            None if each is None else each.reshape(-1, 1)
            for each in (parameter(c, step, given, channels) for step, given in parameters.items())
        )
        if mean is None or var is None:
            raise TypeError("running_mean and running_var must be arrays")
        columns = np.moveaxis(batch, 1, 0)
        g, rows = np.moveaxis(g, 1, 0).reshape(channels, -1), columns.reshape(channels, -1)
        if c.variant == "training":
            centred, var = two_pass(c, rows)
        else:
            centred = c.value("centred", subtract, rows, mean)
        root = inverse_root(c, var, eps)
        normalized = c.value("normalized", multiply, centred, root)
        weighted = g if w is None else c.value("weighted_gradient", multiply, g, w)
        if c.variant == "training":
            by_x = _through_the_root(c, weighted, normalized, root, True, count(rows.shape[-1]))
        else:
            by_x = c.value("result", multiply, weighted, root)
        by_x = np.moveaxis(by_x.reshape(columns.shape), 0, 1)
        found = (by_x, *_parameter_gradients(c, g, normalized, -1, True))
        return NormGradients(*(c.result(c.converted("output", each)) for each in found))
