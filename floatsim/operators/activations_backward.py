"""Gradients of activation functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise import functions
from floatsim.arrays.elementwise.arithmetic import add, divide, multiply, subtract
from floatsim.operators.activations import denominator, erf_of_gelu, tanh_of_gelu, times
from floatsim.operators.computation import Array, Computation, RecipeKeywords, computation, operator

__all__ = [
    "gelu_backward", "relu_backward", "sigmoid_backward", "silu_backward", "softplus_backward", "tanh_backward",
    "through_sigmoid", "through_tanh",
]  # fmt: skip


def _gradient(
    operator: str, gradient: Any, operand: dict[str, Any], keywords: RecipeKeywords,
    rule: Callable[[Computation, Array, Array], Array],
) -> Any:  # fmt: skip
    """Return the gradient that the rule computes from the two operands."""
    with computation(operator, gradient, keywords) as c:
        return c.result(c.converted("output", rule(c, *c.operands(gradient=gradient, **operand))))


def _from_one(c: Computation, step: str, x: Array) -> Array:
    """Return 1 - x."""
    return c.value(step, subtract, c.number(1.0, x), x)


def _plus_one(c: Computation, step: str, x: Array) -> Array:
    return c.value(step, add, x, c.number(1.0, x))


def through_tanh(c: Computation, gradient: Array, y: Array, step: str = "result") -> Array:
    """Return the steps square, slope and the last one: gradient * (1 - y * y)."""
    slope = _from_one(c, "slope", c.value("square", multiply, y, y))
    return c.value(step, multiply, gradient, slope)


def through_sigmoid(c: Computation, gradient: Array, y: Array, step: str = "result") -> Array:
    """Return the steps complement, scaled and the last one: gradient * (1 - y) * y."""
    scaled = c.value("scaled", multiply, gradient, _from_one(c, "complement", y))
    return c.value(step, multiply, scaled, y)


@operator
def relu_backward(gradient: Floats, x: Floats, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return the gradient of relu by its input. Nothing is rounded but the conversions.

    Parameters
    ----------
    gradient : array_like of floats
        The gradient of the loss by the result of relu.
    x : array_like of floats
        The operand of relu, in the same shape.
    {keywords}

    {results}

    Notes
    -----
    The steps: gradient and input, the conversions of the operands; output = the conversion of +0 where x <= 0, and of
    gradient elsewhere, also where x is NaN.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.operators.relu_backward(fs.array([3.0, 4.0], "bf16"), fs.array([-1.0, 2.0], "bf16"))
    FloatArray([0.0, 4.0], BF16)
    """

    def rule(c: Computation, g: Array, x: Array) -> Array:
        return c.select(np.less_equal(x, 0), c.number(0.0, g), g)

    return _gradient("relu_backward", gradient, {"input": x}, keywords, rule)


@operator
def tanh_backward(gradient: Floats, y: Floats, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return the gradient of tanh by its input.

    Parameters
    ----------
    gradient : array_like of floats
        The gradient of the loss by the result of tanh.
    y : array_like of floats
        The result of tanh, in the same shape.
    {keywords}

    {results}

    Notes
    -----
    The steps: gradient and result_of_forward, the conversions of the operands; square = y * y; slope = 1 - square;
    result = gradient * slope; output = the conversion of result.

    Examples
    --------
    A result close to 1 rounds to 1 in BF16, and its gradient is zero:

    >>> import floatsim as fs
    >>> one = fs.array([1.0], "bf16")
    >>> fs.operators.tanh_backward(one, fs.operators.tanh(fs.array([3.5], "bf16")))
    FloatArray([0.0], BF16)
    """
    return _gradient("tanh_backward", gradient, {"result_of_forward": y}, keywords, through_tanh)


@operator
def sigmoid_backward(gradient: Floats, y: Floats, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return the gradient of sigmoid by its input.

    Parameters
    ----------
    gradient : array_like of floats
        The gradient of the loss by the result of sigmoid.
    y : array_like of floats
        The result of sigmoid, in the same shape.
    {keywords}

    {results}

    Notes
    -----
    The steps: gradient and result_of_forward, the conversions of the operands; complement = 1 - y; scaled = gradient *
    complement; result = scaled * y; output = the conversion of result.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.operators.sigmoid_backward(fs.array([1.0], "fp16"), fs.array([0.5], "fp16"))
    FloatArray([0.25], FP16)
    """
    return _gradient("sigmoid_backward", gradient, {"result_of_forward": y}, keywords, through_sigmoid)


@operator
def softplus_backward(gradient: Floats, x: Floats, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return the gradient of softplus by its input.

    Parameters
    ----------
    gradient : array_like of floats
        The gradient of the loss by the result of softplus.
    x : array_like of floats
        The operand of softplus, in the same shape.
    {keywords}

    {results}

    Notes
    -----
    The steps of each variant, after gradient and input and before output:

    - "once": slope = sigmoid(x), correctly rounded; result = gradient * slope.
    - "composed": exp = exp(x); denominator = exp + 1; scaled = gradient * exp; result = scaled / denominator. There is
      no threshold: a large x gives NaN.

    Examples
    --------
    >>> import floatsim as fs
    >>> one, x = fs.array([1.0], "fp16"), fs.array([12.0], "fp16")
    >>> [fs.operators.softplus_backward(one, x, recipe="all-fp16", variant=v).item() for v in ("once", "composed")]
    [1.0, nan]
    """

    def rule(c: Computation, g: Array, x: Array) -> Array:
        if c.variant == "once":
            return c.value("result", multiply, g, c.value("slope", functions.sigmoid, x))
        powers = c.value("exp", functions.exp, x)
        below = _plus_one(c, "denominator", powers)
        return c.value("result", divide, c.value("scaled", multiply, g, powers), below)

    return _gradient("softplus_backward", gradient, {"input": x}, keywords, rule)


@operator
def silu_backward(gradient: Floats, x: Floats, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return the gradient of silu by its input.

    Parameters
    ----------
    gradient : array_like of floats
        The gradient of the loss by the result of silu.
    x : array_like of floats
        The operand of silu, in the same shape.
    {keywords}

    {results}

    Notes
    -----
    The first step after gradient and input, by variant:

    - "once": sigmoid = sigmoid(x), correctly rounded.
    - "composed": exp = exp(-x); denominator = exp + 1; sigmoid = 1 / denominator.

    Then complement = 1 - sigmoid; weighted = x * complement; shifted = weighted + 1; scaled = gradient * sigmoid;
    result = scaled * shifted; output = the conversion of result.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.operators.silu_backward(fs.array([1.0, 1.0], "bf16"), fs.array([0.0, 2.0], "bf16"))
    FloatArray([0.5, 1.094], BF16)
    """

    def rule(c: Computation, g: Array, x: Array) -> Array:
        if c.variant == "once":
            sigmoid = c.value("sigmoid", functions.sigmoid, x)
        else:
            sigmoid = c.value("sigmoid", functions.reciprocal, denominator(c, x))
        weighted = c.value("weighted", multiply, x, _from_one(c, "complement", sigmoid))
        shifted = _plus_one(c, "shifted", weighted)
        return c.value("result", multiply, c.value("scaled", multiply, g, sigmoid), shifted)

    return _gradient("silu_backward", gradient, {"input": x}, keywords, rule)


@operator
def gelu_backward(gradient: Floats, x: Floats, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return the gradient of gelu by its input.

    Parameters
    ----------
    gradient : array_like of floats
        The gradient of the loss by the result of gelu.
    x : array_like of floats
        The operand of gelu, in the same shape.
    {keywords}

    {results}

    Notes
    -----
    The steps of each variant, after gradient and input:

    - "erf": scaled and erf as in `fs.operators.gelu`; shifted = erf + 1; distribution = shifted * 0.5; square = x * x;
      exponent = square * -0.5; exp = exp(exponent); density = exp * sqrt(1 / (2 pi)); weighted = x * density.
    - "tanh": square to tanh as in the variant "tanh" of `fs.operators.gelu`; shifted = tanh + 1; distribution = shifted
      * 0.5; tanh_square = tanh * tanh; tanh_slope = 1 - tanh_square; half = x * 0.5; through_tanh = half * tanh_slope;
      tripled = square * (3 * 0.044715); tripled_shifted = tripled + 1; inner_slope = tripled_shifted * sqrt(2 / pi);
      weighted = through_tanh * inner_slope.

    Both end with slope = distribution + weighted; result = gradient * slope; output = the conversion of result. The
    constants are rounded to the format of the other factor.

    Examples
    --------
    >>> import floatsim as fs
    >>> one, x = fs.array([1.0, 1.0], "bf16"), fs.array([0.0, 1.0], "bf16")
    >>> [fs.operators.gelu_backward(one, x, variant=v).tolist() for v in ("erf", "tanh")]
    [[0.5, 1.0859375], [0.5, 1.0859375]]
    """

    def by_erf(c: Computation, x: Array) -> tuple[Array, Array]:
        shifted = _plus_one(c, "shifted", erf_of_gelu(c, x))
        distribution = times(c, "distribution", shifted, 0.5)
        exponent = times(c, "exponent", c.value("square", multiply, x, x), -0.5)
        density = times(c, "density", c.value("exp", functions.exp, exponent), math.sqrt(0.5 / math.pi))
        return distribution, c.value("weighted", multiply, x, density)

    def by_tanh(c: Computation, x: Array) -> tuple[Array, Array]:
        square, tanh = tanh_of_gelu(c, x)
        distribution = times(c, "distribution", _plus_one(c, "shifted", tanh), 0.5)
        slope = _from_one(c, "tanh_slope", c.value("tanh_square", multiply, tanh, tanh))
        through = c.value("through_tanh", multiply, times(c, "half", x, 0.5), slope)
        tripled = _plus_one(c, "tripled_shifted", times(c, "tripled", square, 3 * 0.044715))
        inner_slope = times(c, "inner_slope", tripled, math.sqrt(2 / math.pi))
        return distribution, c.value("weighted", multiply, through, inner_slope)

    def rule(c: Computation, g: Array, x: Array) -> Array:
        slope = c.value("slope", add, *{"erf": by_erf, "tanh": by_tanh}[c.variant](c, x))
        return c.value("result", multiply, g, slope)

    return _gradient("gelu_backward", gradient, {"input": x}, keywords, rule)
