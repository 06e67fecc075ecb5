"""Attention: plain, and in the order of FlashAttention-2."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise.arithmetic import add, divide, fma, multiply, subtract
from floatsim.arrays.elementwise.functions import exp, exp2, reciprocal
from floatsim.formats._validation import as_flag, as_index, as_real
from floatsim.operators.computation import Array, Computation, RecipeKeywords, computation, operator

__all__ = ["attention", "attention_mask", "attention_probabilities"]


@operator
def attention(
    query: Floats, key: Floats, value: Floats, *, mask: Any = None, causal: bool = False, scale: float | None = None,
    block: int = 64, last_block_first: bool = True, **keywords: Unpack[RecipeKeywords],
) -> Any:  # fmt: skip
    """Return softmax(query @ key.T * scale) @ value.

    Parameters
    ----------
    query : array_like of floats, (..., queries, d)
    key : array_like of floats, (..., keys, d)
    value : array_like of floats, (..., keys, outputs)
        FloatArrays or arrays whose dtype is a format. The leading axes, batch and heads, broadcast.
    mask : array_like, (..., queries, keys), optional
        Booleans: True for the keys that take part. Or floats, which are added to the scaled scores and not rounded
        before; not for FlashAttention-2.
    causal : bool
        Query i takes the keys up to i + keys - queries.
    scale : float, optional
        Default: 1 / sqrt(d). Rounded to the format of the step that it multiplies.
    block : int
        The number of keys of a block of FlashAttention-2. The last block may be shorter.
    last_block_first : bool
        The order of the key blocks of FlashAttention-2: from the last to the first, as its kernel runs them, or from
        the first to the last.
    {keywords}

    Returns
    -------
    FloatArray or ndarray, (..., queries, outputs)
        An ndarray if query is one and the format of the step "output" has a dtype. A query without keys gives zeros.

    Raises
    ------
    TypeError
        For operands without a float format, for other masks, and for unknown keywords.
    ValueError
        For unknown recipes, variants and steps, with the nearest match, for shapes that do not fit, and for operands
        that the accumulation of a step does not take, such as FP32 in a Tensor Core.

    Notes
    -----
    The steps of each variant, after query, key and value, the conversions of the operands:

    - "scale-after": scores = query @ key.T; scaled = scores * scale; masked = scaled + mask; max = the largest of each
      row; shifted = masked - max; exp = exp(shifted); sum = sum of exp; quotient = exp / sum; probabilities = the
      conversion of quotient; product = probabilities @ value.
    - "scale-before": scaled = query * scale; scores = scaled @ key.T; the rest as above.
    - "flash-attention-2": c = scale * log2(e), in float64. m, l and o are the running maximum, sum and output. For each
      block of keys: scores = query @ key.T; max = the larger of m and the largest score; difference = m - max;
      scaled_difference = difference * c; factor = exp2(scaled_difference); rescaled = l * factor; scaled_max = max * c;
      shifted = scores * c - scaled_max, one rounding; exp = exp2(shifted); block_sum = sum of exp; sum = rescaled +
      block_sum; probabilities = the conversion of exp; rescaled_output = o * factor; product = rescaled_output +
      probabilities @ value, where rescaled_output enters the sum as `c` of `fs.matmul`. The first block has no steps
      difference to rescaled, and no rescaled_output. Last, inverse = 1 / sum; normalized = product * inverse.

    A boolean mask replaces scores by -infinity. In a format without infinity it replaces them by the lowest finite
    number, and the exponentials by 0. It is no step, because it rounds nothing. A largest score of -infinity counts as
    0, and a sum of 0 as 1, so a mask that removes every key gives zeros.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> rng = np.random.default_rng(1)
    >>> q, k, v = (fs.array(rng.standard_normal((4, 64)) * 90, "fp16") for _ in range(3))
    >>> print(np.isfinite(fs.operators.attention(q, k, v, recipe="all-fp16").values).all(axis=-1))
    [False False False  True]
    >>> before = fs.operators.attention(q, k, v, recipe="all-fp16", variant="scale-before")
    >>> print(np.isfinite(before.values).all())
    True
    """
    with computation("attention", query, keywords) as c:
        q, k, v = c.operand("query", query), c.operand("key", key), c.operand("value", value)
        if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
            raise ValueError(
                f"the shapes query {q.shape}, key {k.shape} and value {v.shape} do not fit: they must be "
                "(..., queries, d), (..., keys, d) and (..., keys, outputs)"
            )
        if not k.shape[-2]:
            raise ValueError("attention without keys; a mask may remove keys")
        kept, addend = attention_mask(mask, causal, q.shape[-2], k.shape[-2])
        factor = 1 / math.sqrt(q.shape[-1]) if scale is None else as_real(scale, "scale")
        block = as_index(block, "block", 1, 1 << 31)
        if c.variant == "flash-attention-2":
            if addend is not None:
                raise TypeError("mask must be booleans for the variant 'flash-attention-2'")
            found = _flash(c, q, k, v, kept, factor, block, last_block_first)
        else:
            found = _plain(c, q, k, v, kept, addend, factor)
        return c.result(c.converted("output", found))


def attention_mask(mask: Any, causal: bool, queries: int, keys: int) -> tuple[NDArray[np.bool_] | None, Any]:
    """Return the booleans of a mask, and the floats of a mask; None without them."""
    kept = addend = None
    if mask is not None:
        given = mask if isinstance(mask, FloatArray) else np.asarray(mask)
        if isinstance(given, np.ndarray) and given.dtype == np.bool_:
            kept = given
        elif isinstance(given, np.ndarray) and given.dtype.kind in "iu":
            raise TypeError("mask must be booleans or floats, not integers")
        else:
            addend = given
        try:
            np.broadcast_to(np.empty(given.shape[-2:]), (queries, keys))
        except ValueError:
            raise ValueError(f"mask {given.shape} does not fit {queries} queries and {keys} keys") from None
    if as_flag(causal, "causal"):
        visible = np.tri(queries, keys, keys - queries, dtype=np.bool_)
        kept = visible if kept is None else kept & visible
    return kept, addend


def attention_probabilities(c: Computation, scores: Array, kept: NDArray[np.bool_] | None) -> Array:
    """Return the steps max to probabilities, from the masked scores. `kept` has the keys that take part."""
    scores = _kept(c, scores, kept)
    largest = c.finite_or_zero(c.maximum("max", scores))
    powers = c.value("exp", exp, c.value("shifted", subtract, scores, largest))
    powers = _kept_powers(c, scores, powers, kept)
    total = c.one_for_zero(c.sum("sum", powers))
    return c.converted("probabilities", c.value("quotient", divide, powers, total))


def _kept(c: Computation, scores: Array, kept: NDArray[np.bool_] | None) -> Array:
    return scores if kept is None else c.select(kept, scores, c.lowest(scores))


def _kept_powers(c: Computation, scores: Array, powers: Array, kept: NDArray[np.bool_] | None) -> Array:
    """Return the exponentials, with zeros for removed keys if the format of the scores has no infinity."""
    if kept is None or c.has_infinity(scores):
        return powers
    return c.select(kept, powers, c.number(0.0, powers))


def _plain(
    c: Computation, q: Array, k: Array, v: Array, kept: NDArray[np.bool_] | None, addend: Any, scale: float
) -> Array:
    keys = np.swapaxes(k, -1, -2)
    if c.variant == "scale-before":
        scores = c.product("scores", c.value("scaled", multiply, q, c.number(scale, q)), keys)
    else:
        scores = c.product("scores", q, keys)
        scores = c.value("scaled", multiply, scores, c.number(scale, scores))
    if addend is not None:
        scores = c.value("masked", add, scores, addend)
    return c.product("product", attention_probabilities(c, scores, kept), v)


def _flash(
    c: Computation, q: Array, k: Array, v: Array, kept: NDArray[np.bool_] | None, scale: float, block: int,
    last_block_first: bool,
) -> Array:  # fmt: skip
    factor_of_exp2 = scale * math.log2(math.e)
    keys, starts = k.shape[-2], range(0, k.shape[-2], block)
    largest: Array | None = None
    total: Array | None = None
    output: Array | None = None
    for start in reversed(starts) if as_flag(last_block_first, "last_block_first") else starts:
        part = slice(start, min(start + block, keys))
        scores = c.product("scores", q, np.swapaxes(k[..., part, :], -1, -2))
        visible = None if kept is None else np.broadcast_to(kept, (*kept.shape[:-1], keys))[..., part]
        scores = _kept(c, scores, visible)
        previous, largest = largest, c.maximum("max", scores)
        if previous is not None:
            largest = c.larger("max", previous, largest)
        reference = c.finite_or_zero(largest)
        scaled_max = c.value("scaled_max", multiply, reference, c.number(factor_of_exp2, reference))
        shifted = c.value("shifted", fma, scores, c.number(factor_of_exp2, scores), c.negative(scaled_max))
        powers = _kept_powers(c, scores, c.value("exp", exp2, shifted), visible)
        block_sum = c.sum("block_sum", powers)
        probabilities = c.converted("probabilities", powers)
        if previous is None:
            total = c.converted("sum", block_sum)
            output = c.product("product", probabilities, v[..., part, :])
            continue
        difference = c.value("difference", subtract, previous, reference)
        scaled = c.value("scaled_difference", multiply, difference, c.number(factor_of_exp2, difference))
        factor = c.value("factor", exp2, scaled)
        total = c.value("sum", add, c.value("rescaled", multiply, total, factor), block_sum)
        rescaled = c.value("rescaled_output", multiply, output, factor)
        output = c.product("product", probabilities, v[..., part, :], rescaled)
    inverse = c.value("inverse", reciprocal, c.one_for_zero(total))
    return c.value("normalized", multiply, output, inverse)
