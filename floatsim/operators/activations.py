"""Activation functions: rounded once, or composed of single operations as libraries do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Unpack

from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise import functions
from floatsim.arrays.elementwise.arithmetic import add, divide, maximum, multiply
from floatsim.operators.computation import Array, Computation, RecipeKeywords, computation, operator

__all__ = [
    "denominator", "erf_of_gelu", "gelu", "relu", "sigmoid", "silu", "softplus", "tanh", "tanh_of_gelu", "times",
]  # fmt: skip


def _activated(
    operator: str, x: Any, keywords: RecipeKeywords, variants: dict[str, Callable[[Computation, Array], Array]]
) -> Any:
    """Return an activation function. `variants` has its variants that have more than one step."""
    with computation(operator, x, keywords) as c:
        operand = c.operand("input", x)
        c.must_be_compared()
        if c.variant in variants:
            value = variants[c.variant](c, operand)
        else:
            value = c.activation("activation", getattr(functions, operator), operand)
        return c.result(c.converted("output", value))


def denominator(c: Computation, x: Array) -> Array:
    """Return the steps exp = exp(-x) and denominator = exp + 1."""
    powers = c.value("exp", functions.exp, c.negative(x))
    return c.value("denominator", add, powers, c.number(1.0, powers))


@operator
def relu(x: Floats, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return the larger of x and 0.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    {keywords}

    {results}

    Notes
    -----
    The steps: input, the conversion of x; activation = the larger of x and +0; output = the conversion of activation.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.operators.relu(fs.array([-1.0, 2.0], "e4m3"))
    FloatArray([0.0, 2.0], E4M3)
    """
    with computation("relu", x, keywords) as c:
        operand = c.operand("input", x)
        return c.result(c.converted("output", c.value("activation", maximum, operand, c.number(0.0, operand))))


@operator
def tanh(x: Floats, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return the hyperbolic tangent of x.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    {keywords}

    {results}

    Notes
    -----
    The steps: input, the conversion of x; activation = tanh(x), correctly rounded; output = the conversion of
    activation.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.operators.tanh(fs.array([0.5, 4.0], "bf16"))
    FloatArray([0.4629, 1.0], BF16)
    """
    return _activated("tanh", x, keywords, {})


@operator
def sigmoid(x: Floats, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return 1 / (1 + exp(-x)).

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    {keywords}

    {results}

    Notes
    -----
    The steps of each variant, after input and before output:

    - "once": activation = sigmoid(x), correctly rounded.
    - "composed": exp = exp(-x); denominator = exp + 1; inverse = 1 / denominator.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.array([-12.0], "fp16")
    >>> [fs.operators.sigmoid(x, recipe="all-fp16", variant=v).item() for v in ("once", "composed")]
    [6.139278411865234e-06, 0.0]
    """

    def composed(c: Computation, x: Array) -> Array:
        return c.value("inverse", functions.reciprocal, denominator(c, x))

    return _activated("sigmoid", x, keywords, {"composed": composed})


@operator
def softplus(x: Floats, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return log(1 + exp(x)).

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    {keywords}

    {results}

    Notes
    -----
    The steps of each variant, after input and before output:

    - "once": activation = softplus(x), correctly rounded.
    - "composed": exp = exp(x); result = log1p(exp). There is no threshold: a large x gives infinity.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.array([12.0], "fp16")
    >>> [fs.operators.softplus(x, recipe="all-fp16", variant=v).item() for v in ("once", "composed")]
    [12.0, inf]
    """

    def composed(c: Computation, x: Array) -> Array:
        return c.value("result", functions.log1p, c.value("exp", functions.exp, x))

    return _activated("softplus", x, keywords, {"composed": composed})


@operator
def silu(x: Floats, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return x * sigmoid(x), also known as swish.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    {keywords}

    {results}

    Notes
    -----
    The steps of each variant, after input and before output:

    - "once": activation = silu(x), correctly rounded.
    - "composed": exp = exp(-x); denominator = exp + 1; quotient = x / denominator, as PyTorch.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.operators.silu(fs.array([-1.0, 1.0], "bf16"), recipe="all-bf16", variant="composed")
    FloatArray([-0.2695, 0.7305], BF16)
    """

    def composed(c: Computation, x: Array) -> Array:
        return c.value("quotient", divide, x, denominator(c, x))

    return _activated("silu", x, keywords, {"composed": composed})


@operator
def gelu(x: Floats, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return x times the normal distribution function at x.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    {keywords}

    {results}

    Notes
    -----
    The steps of each variant, after input and before output:

    - "once": activation = gelu(x), correctly rounded.
    - "erf": scaled = x * sqrt(1/2); erf = erf(scaled); shifted = erf + 1; half = x * 0.5; product = half * shifted.
    - "tanh", the approximation: square = x * x; cube = square * x; cubic = cube * 0.044715; inner = x + cubic; scaled =
      inner * sqrt(2/pi); tanh = tanh(scaled); shifted = tanh + 1; half = x * 0.5; product = half * shifted.

    The constants are rounded to the format of the other factor.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.array([-4.0], "bf16")
    >>> [fs.operators.gelu(x, recipe="all-bf16", variant=v).item() for v in ("once", "erf", "tanh")]
    [-0.00012683868408203125, -0.0, -0.0]
    """
    return _activated("gelu", x, keywords, {"erf": _gelu_erf, "tanh": _gelu_tanh})


def times(c: Computation, step: str, x: Array, factor: float) -> Array:
    """Return x times a number, which is rounded to the format of x."""
    return c.value(step, multiply, x, c.number(factor, x))


def erf_of_gelu(c: Computation, x: Array) -> Array:
    """Return the steps scaled and erf."""
    return c.value("erf", functions.erf, times(c, "scaled", x, math.sqrt(0.5)))


def tanh_of_gelu(c: Computation, x: Array) -> tuple[Array, Array]:
    """Return the steps square and tanh, with all steps between them."""
    square = c.value("square", multiply, x, x)
    cube = c.value("cube", multiply, square, x)
    inner = c.value("inner", add, x, times(c, "cubic", cube, 0.044715))
    return square, c.value("tanh", functions.tanh, times(c, "scaled", inner, math.sqrt(2 / math.pi)))


def _half_product(c: Computation, x: Array, distribution: Array) -> Array:
    shifted = c.value("shifted", add, distribution, c.number(1.0, distribution))
    return c.value("product", multiply, times(c, "half", x, 0.5), shifted)


def _gelu_erf(c: Computation, x: Array) -> Array:
    return _half_product(c, x, erf_of_gelu(c, x))


def _gelu_tanh(c: Computation, x: Array) -> Array:
    _, tanh = tanh_of_gelu(c, x)
    return _half_product(c, x, tanh)
