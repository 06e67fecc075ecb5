"""Gradients of operators: each backward pass is an operator of its own, with steps and recipes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Unpack

import numpy as np

from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise.arithmetic import add, divide, multiply, subtract
from floatsim.arrays.elementwise.functions import exp
from floatsim.operators.engine import Array, Computation, RecipeKeywords, computation, count, operator
from floatsim.operators.norms import inverse_root, parameter, training_variant, two_pass
from floatsim.operators.probabilities import target_classes
from floatsim.operators.scaled_dot_product import attention_mask, attention_probabilities

__all__ = [
    "AttentionGradients", "LinearGradients", "NormGradients", "ResidualGradients", "attention_backward",
    "batch_norm_backward", "cross_entropy_backward", "layer_norm_backward", "linear_backward", "log_softmax_backward",
    "residual_add_backward", "rms_norm_backward", "softmax_backward",
]  # fmt: skip


# -- softmax -----------------------------------------------------------------------------------------------------------


def softmax_gradient(c: Computation, gradient: Array, y: Array, sum_step: str = "sum") -> Array:
    """Return the steps product, sum, difference and result along the last axis."""
    total = c.sum(sum_step, c.value("product", multiply, gradient, y))
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
    product; difference = gradient - sum; result = difference * y; output = the conversion of result.

    Examples
    --------
    >>> import floatsim as fs
    >>> y = fs.array([0.25, 0.75], "fp16")
    >>> fs.operators.softmax_backward(fs.array([1.0, 0.0], "fp16"), y, recipe="all-fp16")
    FloatArray([0.1875, -0.1875], FP16)
    """
    with computation("softmax_backward", gradient, keywords) as c:
        g, y = (np.moveaxis(x, axis, -1) for x in c.operands(gradient=gradient, result_of_forward=y))
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
    product = exp * sum; result = gradient - product; output = the conversion of result.

    Examples
    --------
    >>> import floatsim as fs
    >>> y = fs.operators.log_softmax(fs.array([0.0, 0.0], "fp16"))
    >>> fs.operators.log_softmax_backward(fs.array([-1.0, 0.0], "fp16"), y)
    FloatArray([-0.5, 0.5], FP16)
    """
    with computation("log_softmax_backward", gradient, keywords) as c:
        g, y = (np.moveaxis(x, axis, -1) for x in c.operands(gradient=gradient, result_of_forward=y))
        product = c.value("product", multiply, c.value("exp", exp, y), c.sum("sum", g))
        result = c.value("result", subtract, g, product)
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
        classes = target_classes(target, rows.shape)
        powers = c.value("exp", exp, c.value("shifted", subtract, rows, c.maximum("max", rows)))
        quotient = c.value("quotient", divide, powers, c.sum("sum", powers))
        chosen = classes[..., np.newaxis] == np.arange(rows.shape[-1])
        ones = c.select(chosen, c.number(1.0, quotient), c.number(0.0, quotient))
        scaled = c.value("difference", subtract, quotient, ones)
        scaled = c.value("scaled", multiply, scaled, c.number(loss_scale, scaled))
        return c.result(c.converted("output", c.value("mean", divide, scaled, count(classes.size))))


# -- linear ------------------------------------------------------------------------------------------------------------


class LinearGradients(NamedTuple):
    """The result of `linear_backward` and `conv2d_backward`.

    Attributes
    ----------
    x, weight, bias : FloatArray or ndarray
        The gradients by the operands.
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


# -- residual_add ------------------------------------------------------------------------------------------------------


class ResidualGradients(NamedTuple):
    """The result of `residual_add_backward`.

    Attributes
    ----------
    x, residual : FloatArray or ndarray
        The gradients by the operands of `residual_add`.
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


# -- layer_norm, rms_norm and batch_norm -------------------------------------------------------------------------------


class NormGradients(NamedTuple):
    """The result of `layer_norm_backward`, `rms_norm_backward` and `batch_norm_backward`.

    Attributes
    ----------
    x, weight, bias : FloatArray or ndarray
        The gradients by the operands. `bias` is None for `rms_norm_backward`.
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

    Examples
    --------
    >>> import floatsim as fs
    >>> x, gradient = fs.array([[1.0, 2.0, 4.0]], "bf16"), fs.array([[1.0, 0.0, 0.0]], "bf16")
    >>> fs.operators.layer_norm_backward(gradient, x).x
    FloatArray([[0.2295, -0.3438, 0.1147]], BF16)
    """
    with computation("layer_norm_backward", gradient, keywords) as c:
        g, rows, w = _norm_operands(c, gradient, x, weight)
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
    the gradient and of the bias: corrected = weighted_gradient - correction.

    Examples
    --------
    >>> import floatsim as fs
    >>> x, gradient = fs.array([[1.0, 2.0]], "bf16"), fs.array([[1.0, 0.0]], "bf16")
    >>> fs.operators.rms_norm_backward(gradient, x).x
    FloatArray([[0.5078, -0.2539]], BF16)
    """
    with computation("rms_norm_backward", gradient, keywords) as c:
        g, rows, w = _norm_operands(c, gradient, x, weight)
        total = c.sum("square_sum", c.value("square", multiply, rows, rows))
        mean_square = c.value("mean_square", divide, total, count(rows.shape[-1]))
        root = inverse_root(c, mean_square, eps)
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


# -- attention ---------------------------------------------------------------------------------------------------------


class AttentionGradients(NamedTuple):
    """The result of `attention_backward`.

    Attributes
    ----------
    query, key, value : FloatArray or ndarray
        The gradients by the operands of `attention`.
    """

    query: Any
    key: Any
    value: Any


@operator
def attention_backward(
    gradient: Floats, query: Floats, key: Floats, value: Floats, *, mask: Any = None, causal: bool = False,
    scale: float | None = None, **keywords: Unpack[RecipeKeywords],
) -> AttentionGradients:  # fmt: skip
    """Return the gradients of attention by its operands. The probabilities are computed again.

    Parameters
    ----------
    gradient : array_like of floats, (..., queries, outputs)
        The gradient of the loss by the result of attention.
    query : array_like of floats, (..., queries, d)
    key : array_like of floats, (..., keys, d)
    value : array_like of floats, (..., keys, outputs)
        The operands of attention, with equal leading axes.
    mask : array_like, (..., queries, keys), optional
    causal : bool
        As in `fs.operators.attention`. A mask of floats has no gradient.
    scale : float, optional
        Default: 1 / sqrt(d). Rounded to the format of the step that it multiplies.
    {keywords}

    Returns
    -------
    AttentionGradients
        The gradients, as ndarrays if gradient is one and their formats have dtypes.

    {raises}

    Notes
    -----
    The steps: gradient, query, key and value, the conversions of the operands; scores to probabilities as in the
    variant "scale-after" of `fs.operators.attention`; value_gradient = probabilities.T @ gradient; probability_gradient
    = gradient @ value.T; product, sum_of_products, difference and result as the steps of
    `fs.operators.softmax_backward`, of probability_gradient and probabilities; scaled_result = result * scale;
    query_gradient = scaled_result @ key; key_gradient = scaled_result.T @ query. The results are converted to the
    format of output.

    Examples
    --------
    >>> import floatsim as fs
    >>> one = fs.array([[1.0], [0.0]], "fp16")
    >>> fs.operators.attention_backward(one, one, one, one).value
    FloatArray([[0.73096],
                [0.26904]], FP16)
    """
    with computation("attention_backward", gradient, keywords) as c:
        given = {"gradient": gradient, "query": query, "key": key, "value": value}
        g, q, k, v = (c.operand(step, x) for step, x in given.items())
        if (
            min(x.ndim for x in (g, q, k, v)) < 2
            or q.shape[-1] != k.shape[-1]
            or k.shape[:-1] != v.shape[:-1]
            or g.shape != (*q.shape[:-1], v.shape[-1])
        ):
            raise ValueError(f"gradient {g.shape}, query {q.shape}, key {k.shape} and value {v.shape} do not fit")
        factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale

        def turned(x: Array) -> Array:
            return np.swapaxes(x, -1, -2)

        scores = c.product("scores", q, turned(k))
        scores = c.value("scaled", multiply, scores, c.number(factor, scores))
        kept, addend = attention_mask(mask, causal, *scores.shape[-2:])
        if addend is not None:
            scores = c.value("masked", add, scores, addend)
        probabilities = attention_probabilities(c, scores, kept)
        by_value = c.product("value_gradient", turned(probabilities), g)
        by_probability = c.product("probability_gradient", g, turned(v))
        result = softmax_gradient(c, by_probability, probabilities, "sum_of_products")
        scaled = c.value("scaled_result", multiply, result, c.number(factor, result))
        by_query = c.product("query_gradient", scaled, k)
        by_key = c.product("key_gradient", turned(scaled), q)
        return AttentionGradients(*(c.result(c.converted("output", each)) for each in (by_query, by_key, by_value)))
