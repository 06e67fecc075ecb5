"""Attention: plain, in the order of FlashAttention-2, and in the orders of fused GPU kernels."""

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
from floatsim.operators.attention_kernels import KERNELS, fused_attention, kept_scores
from floatsim.operators.computation import Array, Computation, RecipeKeywords, computation, operator

__all__ = ["attention", "attention_mask", "attention_probabilities", "compared_shapes", "scaled_operands"]


@operator
def attention(
    query: Floats, key: Floats, value: Floats, *, mask: Any = None, causal: bool = False, scale: float | None = None,
    block: int | None = None, last_block_first: bool | None = None, splits: int | None = None,
    **keywords: Unpack[RecipeKeywords],
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
        before; not for FlashAttention-2 and the fused kernels.
    causal : bool
        Query i takes the keys up to i + keys - queries.
    scale : float, optional
        Default: 1 / sqrt(d). Rounded to the format of the step that it multiplies.
    block : int, optional
        The number of keys of a block of FlashAttention-2 and of the fused kernels. The last block may be shorter.
        Default: 64 for "flash-attention-2"; for the fused kernels their own, by d.
    last_block_first : bool, optional
        The order of the key blocks: from the last to the first, or from the first to the last. Default: from the last
        for the variants of FlashAttention-2, from the first for "cudnn-kernel" and "efficient-kernel".
    splits : int, optional
        For "flash-kernel", into how many parts of whole blocks the keys are split. Default: 1 if `block` is given, else
        as on a GPU with 132 multiprocessors, by `fs.operators.key_splits`.
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
        that the accumulation of a step does not take, such as FP32 in a Tensor Core. For a fused kernel without
        `block`, if its blocks are not known for d. They are for d up to 128 in "flash-kernel" and "efficient-kernel",
        where 64 and 128 were recorded, and for 64 and 128 in "cudnn-kernel".

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

    - "scale-both": scaled = query * sqrt(scale), with the sign of scale; scaled_key = key * sqrt(scale); scores =
      scaled @ scaled_key.T; the rest as in "scale-after".
    - The fused kernels "flash-kernel", "cudnn-kernel" and "efficient-kernel": c = scale * log2(e), rounded once. In
      "efficient-kernel" c = log2(e), and each score is multiplied by scale first (scaled). For each block: scores and
      max as above;
      scaled_max = max * c; scaled_scores = scores * c; shifted = scaled_scores - scaled_max; exp = ex2.approx(shifted);
      probabilities = the conversion of exp. From the second block on, with the largest score m of the blocks before:
      in "flash-kernel" difference = m - max; scaled_difference = difference * c; factor =
      ex2.approx(scaled_difference); else scaled_previous = m * c; difference = scaled_previous - scaled_max; factor =
      ex2.approx(difference). rescaled_output and product as above. Lane q of a row has the columns 8n + 2q and
      8n + 2q + 1 of a block, n = 0, 1, ..., q = 0 to 3.
      "flash-kernel": the first term of a block in a lane is rescaled = lane * factor + exp, one rounding; lanes adds
      the others in order. Last, sum = sum of the lanes.
      "cudnn-kernel": block_sum = sum of a lane's terms; lanes = lane * factor + block_sum, one rounding. Last, sum as
      above.
      "efficient-kernel": block_sum = sum of a lane's terms in 32 keys; warp_sum = sum of the lanes; rescaled = sum *
      factor; sum adds the warps in order.
      At the end, inverse = 1 / sum, in "cudnn-kernel" rcp.approx(sum); normalized = product * inverse.
      Keys in parts: log = lg2.approx(sum); scaled_log = log * ln(2); logsumexp = max * scale + scaled_log, one
      rounding. largest = the largest logsumexp; weight_shifted = logsumexp - largest; weight_exp = exp(weight_shifted);
      weight_sum = sum of weight_exp, with zeros up to a power of two; weight_log = log(weight_sum); total = weight_log
      + largest; weight_exponent = logsumexp - total; part_weight = exp(weight_exponent); combined = part_weight *
      normalized + combined, one rounding, from the first part on.

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
        block = None if block is None else as_index(block, "block", 1, 1 << 31)
        splits = None if splits is None else as_index(splits, "splits", 1, 1 << 31)
        last_first = None if last_block_first is None else as_flag(last_block_first, "last_block_first")
        default = scale is None and block is None and splits is None and last_first is None
        compared_shapes(c, q, k, v, "none" if mask is None else "given", causal, default)
        if addend is not None and (c.variant in KERNELS or c.variant == "flash-attention-2"):
            raise TypeError(f"mask must be booleans for the variant {c.variant!r}")
        if c.variant in KERNELS:
            found = fused_attention(c, q, k, v, kept, factor, block=block, last_block_first=last_first, splits=splits)
        elif c.variant == "flash-attention-2":
            found = _flash(c, q, k, v, kept, factor, block or 64, last_first is not False)
        else:
            found = _plain(c, q, k, v, kept, addend, factor)
        return c.result(c.converted("output", found))


def compared_shapes(c: Computation, q: Array, k: Array, v: Array, mask: str, causal: bool, default: bool) -> None:
    """Refuse a strict call with other shapes or options than the compared ones."""
    one_length = q.shape == k.shape == v.shape
    c.must_be_compared(
        heads=math.prod(q.shape[:-2]), keys=k.shape[-2], d=q.shape[-1],
        shapes="of one length" if one_length else "of several lengths",
        mask="causal" if causal and mask == "none" else mask, options="default" if default else "given",
    )  # fmt: skip


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


def scaled_operands(c: Computation, q: Array, k: Array, scale: float) -> tuple[Array, Array]:
    """Return the steps scaled and scaled_key of the variant "scale-both"."""
    root = math.sqrt(abs(scale))
    scaled = c.value("scaled", multiply, q, c.number(math.copysign(root, scale), q))
    return scaled, c.value("scaled_key", multiply, k, c.number(root, k))


def attention_probabilities(c: Computation, scores: Array, kept: NDArray[np.bool_] | None) -> Array:
    """Return the steps max to probabilities, from the masked scores. `kept` has the keys that take part."""
    scores = kept_scores(c, scores, kept)
    largest = c.finite_or_zero(c.maximum("max", scores))
    powers = c.value("exp", exp, c.value("shifted", subtract, scores, largest))
    powers = _kept_powers(c, scores, powers, kept)
    total = c.one_for_zero(c.sum("sum", powers))
    return c.converted("probabilities", c.value("quotient", divide, powers, total))


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
    elif c.variant == "scale-both":
        scaled, scaled_key = scaled_operands(c, q, k, scale)
        scores = c.product("scores", scaled, np.swapaxes(scaled_key, -1, -2))
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
    for start in reversed(starts) if last_block_first else starts:
        part = slice(start, min(start + block, keys))
        scores = c.product("scores", q, np.swapaxes(k[..., part, :], -1, -2))
        visible = None if kept is None else np.broadcast_to(kept, (*kept.shape[:-1], keys))[..., part]
        scores = kept_scores(c, scores, visible)
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
