"""Gradients of attention."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Unpack

import numpy as np

from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise.arithmetic import add, fma, multiply
from floatsim.formats._validation import as_index, as_real
from floatsim.operators.attention import attention_mask, attention_probabilities, compared_shapes, scaled_operands
from floatsim.operators.attention_kernels import KERNELS, fused_gradients
from floatsim.operators.computation import Array, RecipeKeywords, computation, operator
from floatsim.operators.softmax_backward import softmax_gradient

__all__ = ["AttentionGradients", "attention_backward"]


class AttentionGradients(NamedTuple):
    """The result of `attention_backward`.

    Attributes
    ----------
    query, key, value : FloatArray or ndarray
        The gradients by the operands of `attention`.

    Examples
    --------
    >>> import floatsim as fs
    >>> one = fs.array([[1.0], [0.0]], "fp16")
    >>> found = fs.operators.attention_backward(one, one, one, one)
    >>> found._fields, found.value.shape
    (('query', 'key', 'value'), (2, 1))
    """

    query: Any
    key: Any
    value: Any


@operator
def attention_backward(
    gradient: Floats, query: Floats, key: Floats, value: Floats, *, mask: Any = None, causal: bool = False,
    scale: float | None = None, block: int | None = None, **keywords: Unpack[RecipeKeywords],
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
    block : int, optional
        For "flash-kernel", the numbers of queries and of keys of a block. Default: 128, for d of 64. For
        "cudnn-kernel", which needs it for d other than 64, and for more than 64 queries or keys, whose bits are not all
        known.
    {keywords}

    Returns
    -------
    AttentionGradients
        The gradients, as ndarrays if gradient is one and their formats have dtypes.

    {raises}

    Notes
    -----
    The steps of "standard": gradient, query, key and value, the conversions of the operands; scores to probabilities
    as in the variant "scale-after" of `fs.operators.attention`; value_gradient = probabilities.T @ gradient;
    probability_gradient = gradient @ value.T; product, sum_of_products, difference and result as the steps of
    `fs.operators.softmax_backward`, of probability_gradient and probabilities; scaled_result = result * scale;
    query_gradient = scaled_result @ key; key_gradient = scaled_result.T @ query. The results are converted to the
    format of output.

    "scale-both": scaled to probabilities as in the variant of that name of `fs.operators.attention`; value_gradient and
    probability_gradient as above; product = probability_gradient * probabilities; sum_of_products = sum of product;
    result = product - probabilities * sum_of_products, one rounding; query_product = result @ scaled_key;
    query_gradient = query_product * sqrt(scale), with the sign of scale; key_product = result.T @ scaled; key_gradient
    = key_product * sqrt(scale).

    "flash-kernel": scores to logsumexp as in the variant of that name of `fs.operators.attention`, with keys in one
    part; forward_output = the conversion of normalized. delta_lanes: lane i multiplies the elements 8i to 8i + 7 of
    gradient and forward_output, and adds with one rounding of each; delta = sum of the lanes. scaled_logsumexp =
    logsumexp * log2(e); power_shifted = scaled_scores - scaled_logsumexp; power = ex2.approx(power_shifted);
    rounded_power = the conversion of power; probability_gradient as above; centred = probability_gradient - delta;
    result = power * centred; rounded_result = the conversion of result. value_gradient = rounded_power.T @ gradient,
    and key_product = rounded_result.T @ query, both over blocks of queries from the last to the first;
    query_product = rounded_result @ key of a block of keys; query_sum adds the second block to the first.
    query_gradient and key_gradient are the products times scale. The kernel adds three and more blocks of keys in no
    fixed order, so they are refused.

    "cudnn-kernel": the same with these differences. delta_pairs: a lane multiplies two elements and adds them with one
    rounding; delta_lanes adds the pairs. natural_max = max * scale; logsumexp = log * ln(2) + natural_max, one
    rounding. natural_scores = scores * scale; power_shifted = natural_scores - logsumexp; power_exponent =
    power_shifted * log2(e); power = ex2.approx(power_exponent). scaled_result = result * scale, before the conversion
    to rounded_result, and the products are the gradients. The blocks of queries run from the first to the last.

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
        factor = 1 / math.sqrt(q.shape[-1]) if scale is None else as_real(scale, "scale")

        compared_shapes(c, q, k, v, "none" if mask is None else "given", causal, scale is None and block is None)

        def turned(x: Array) -> Array:
            return np.swapaxes(x, -1, -2)

        if c.variant in KERNELS:
            kept, addend = attention_mask(mask, causal, q.shape[-2], k.shape[-2])
            if addend is not None:
                raise TypeError(f"mask must be booleans for the variant {c.variant!r}")
            size = None if block is None else as_index(block, "block", 1, 1 << 31)
            found = fused_gradients(c, g, q, k, v, kept, factor, size)
            return AttentionGradients(*(c.result(c.converted("output", each)) for each in found))
        both = c.variant == "scale-both"
        if both:
            scaled, scaled_key = scaled_operands(c, q, k, factor)
            scores = c.product("scores", scaled, turned(scaled_key))
        else:
            scores = c.product("scores", q, turned(k))
            scores = c.value("scaled", multiply, scores, c.number(factor, scores))
        kept, addend = attention_mask(mask, causal, q.shape[-2], k.shape[-2])
        if addend is not None:
            scores = c.value("masked", add, scores, addend)
        probabilities = attention_probabilities(c, scores, kept)
        by_value = c.product("value_gradient", turned(probabilities), g)
        by_probability = c.product("probability_gradient", g, turned(v))
        if both:
            product = c.value("product", multiply, by_probability, probabilities)
            total = c.sum("sum_of_products", product)
            result = c.value("result", fma, c.negative(probabilities), total, product)
            by_query, by_key = (
                c.product("query_product", result, scaled_key),
                c.product("key_product", turned(result), scaled),
            )
            root = math.sqrt(abs(factor))
            by_query = c.value("query_gradient", multiply, by_query, c.number(math.copysign(root, factor), by_query))
            by_key = c.value("key_gradient", multiply, by_key, c.number(root, by_key))
        else:
            result = softmax_gradient(c, by_probability, probabilities, "sum_of_products")
            scaled = c.value("scaled_result", multiply, result, c.number(factor, result))
            by_query = c.product("query_gradient", scaled, k)
            by_key = c.product("key_gradient", turned(scaled), q)
        return AttentionGradients(*(c.result(c.converted("output", each)) for each in (by_query, by_key, by_value)))
