"""Layers without a nonlinear function: linear and residual_add."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise.arithmetic import add
from floatsim.operators.computation import RecipeKeywords, computation, operator

__all__ = ["linear", "residual_add"]


@operator
def linear(x: Floats, weight: Floats, bias: Floats | None = None, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return x @ weight.T + bias.

    Parameters
    ----------
    x : array_like of floats, (..., inputs)
        A FloatArray or an array whose dtype is a format.
    weight : array_like of floats, (outputs, inputs)
        The weights, one row for each output, as in PyTorch.
    bias : array_like of floats, (outputs,), optional
        Without it, the step "biased" is omitted.
    {keywords}

    Returns
    -------
    FloatArray or ndarray, (..., outputs)
        An ndarray if x is one and the format of the step "output" has a dtype.

    {raises}

    Notes
    -----
    The steps: input, weight and bias, the conversions of the operands; product = `fs.matmul(x, weight.T)` with the
    accumulation of the step; then, by variant:

    - "bias-last": biased = product + bias.
    - "bias-first": the bias enters the sum, as `c` does that of `fs.matmul`. There is no step biased.

    Last, output = the conversion of the last value.

    Examples
    --------
    >>> import floatsim as fs
    >>> x, weight = fs.array([[0.1] * 4096], "bf16"), fs.array([[1.0] * 4096], "bf16")
    >>> [fs.operators.linear(x, weight, recipe=recipe).item() for recipe in ("fp32-inside", "all-bf16")]
    [410.0, 32.0]
    """
    with computation("linear", x, keywords) as c:
        rows, w = c.operand("input", x), c.operand("weight", weight)
        if w.ndim != 2 or not rows.ndim or rows.shape[-1] != w.shape[1]:
            raise ValueError(f"x {rows.shape} and weight {w.shape} do not fit: weight must be (outputs, inputs of x)")
        b = None if bias is None else c.operand("bias", bias)
        if b is not None and b.shape != (w.shape[0],):
            raise ValueError(f"bias {b.shape} does not fit the {w.shape[0]} outputs of weight")
        product = c.product("product", rows, np.transpose(w), b if c.variant == "bias-first" else None)
        if b is not None and c.variant == "bias-last":
            product = c.value("biased", add, product, b)
        return c.result(c.converted("output", product))


@operator
def residual_add(x: Floats, residual: Floats, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return x + residual.

    Parameters
    ----------
    x, residual : array_like of floats
        FloatArrays or arrays whose dtype is a format. Their shapes broadcast.
    {keywords}

    Returns
    -------
    FloatArray or ndarray
        An ndarray if x is one and the format of the step "output" has a dtype.

    Raises
    ------
    TypeError
        For operands without a float format, and for unknown keywords.
    ValueError
        For unknown recipes and steps, with the nearest match, and for shapes that do not broadcast.

    Notes
    -----
    The steps: input and residual, the conversions of the operands; total = x + residual; output = the conversion of
    total.

    Examples
    --------
    The residual stream of a deep network is large. In BF16 it absorbs a small output of a layer:

    >>> import floatsim as fs
    >>> fs.operators.residual_add(fs.array([0.5], "bf16"), fs.array([256.0], "bf16"))
    FloatArray([256.0], BF16)
    """
    with computation("residual_add", x, keywords) as c:
        total = c.value("total", add, c.operand("input", x), c.operand("residual", residual))
        return c.result(c.converted("output", total))
