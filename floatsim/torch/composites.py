"""Fused ATen operations that are written out as PyTorch operations, each of which is emulated."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from floatsim.torch.stepwise import STEPWISE

__all__ = ["COMPOSITES"]

_SOURCE_MASK, _PADDING_MASK = 0, 1


def _merged_mask(mask: Any, mask_type: int | None, scores: Any) -> Any:
    """Return a mask that broadcasts to scores (batch, heads, queries, keys); True removes a key."""
    if mask_type == _PADDING_MASK:
        return mask.to(torch.bool)[:, None, None, :]
    if mask_type == _SOURCE_MASK and mask.ndim == 3:
        return mask.view(scores.shape)
    return mask


def _multi_head_attention(
    query: Any, key: Any, value: Any, embed_dim: int, num_head: int, qkv_weight: Any, qkv_bias: Any, proj_weight: Any,
    proj_bias: Any, mask: Any = None, need_weights: bool = True, average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:  # fmt: skip
    """Return multi-head attention and its weights: scale before, softmax, two products for each head."""
    batch, queries, width = query.shape
    size = width // num_head
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    heads = [
        functional.linear(x, w, b).view(x.shape[0], x.shape[1], num_head, size).transpose(1, 2)
        for x, w, b in zip((query, key, value), weights, biases, strict=True)
    ]
    scores = torch.matmul(heads[0] * (size**-0.5), heads[1].transpose(-2, -1))
    if mask is not None:
        given = _merged_mask(mask, mask_type, scores)
        scores = scores.masked_fill(given, -torch.inf) if given.dtype == torch.bool else scores + given
    shares = torch.softmax(scores, -1)
    joined = torch.matmul(shares, heads[2]).transpose(1, 2).reshape(batch, queries, width)
    output = functional.linear(joined, proj_weight, proj_bias)
    if not need_weights:
        return output, query.new_empty(0)
    return output, shares.mean(1) if average_attn_weights else shares


def _encoder_layer(
    src: Any, embed_dim: int, num_heads: int, qkv_weight: Any, qkv_bias: Any, proj_weight: Any, proj_bias: Any,
    use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Any, norm_bias_1: Any, norm_weight_2: Any,
    norm_bias_2: Any, ffn_weight_1: Any, ffn_bias_1: Any, ffn_weight_2: Any, ffn_bias_2: Any, mask: Any = None,
    mask_type: int | None = None,
) -> Any:  # fmt: skip
    """Return a layer of a transformer encoder in eval mode."""

    def norm(x: Any, weight: Any, bias: Any) -> Any:
        return functional.layer_norm(x, (embed_dim,), weight, bias, eps)

    def attend(x: Any) -> Any:
        return _multi_head_attention(
            x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type
        )[0]

    def feed(x: Any) -> Any:
        inner = functional.linear(x, ffn_weight_1, ffn_bias_1)
        inner = functional.gelu(inner) if use_gelu else functional.relu(inner)
        return functional.linear(inner, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attend(norm(src, norm_weight_1, norm_bias_1))
        return x + feed(norm(x, norm_weight_2, norm_bias_2))
    x = norm(src + attend(src), norm_weight_1, norm_bias_1)
    return norm(x + feed(x), norm_weight_2, norm_bias_2)


def _neighbours(length: int, count: int, align: bool, scale: float | None) -> tuple[Any, Any]:
    """Return the two elements that each result of a linear interpolation lies between, and their weights: (2, count).

    The lines of aten/src/ATen/native/UpSample.h, in FP32.
    """
    position = np.arange(count, dtype=np.float32)
    if align:
        position *= np.float32((length - 1) / (count - 1) if count > 1 else 0.0)
    else:
        ratio = np.float32(1 / scale if scale else length / count)
        position = np.maximum((position + np.float32(0.5)) * ratio - np.float32(0.5), np.float32(0))
    first = np.minimum(position.astype(np.int64), length - 1)
    part = np.clip(position - first.astype(np.float32), 0, 1)
    return np.stack([first, np.minimum(first + 1, length - 1)]), np.stack([1 - part, part])


def _linear(x: Any, output_size: Any, align: bool, *scales: Any) -> Any:
    """Return a linear interpolation along the last axis, then along those before it, as PyTorch's own kernels.

    The positions and weights are computed in FP32, whatever the policy; each step is left * weight + right * weight.
    """
    lengths = x.shape[2:]
    given = scales[0] if scales and isinstance(scales[0], list | tuple) else scales  # the overload "vec" has a list
    if len(given) < len(lengths) or given[0] is None:
        given = (None,) * len(lengths)
    counts = output_size or [int(length * scale) for length, scale in zip(lengths, given, strict=True)]
    for axis, each in reversed(list(enumerate(zip(lengths, counts, [align] * len(lengths), given, strict=True), 2))):
        shape = [-1 if n == axis else 1 for n in range(x.ndim)]
        sides, weights = map(torch.from_numpy, _neighbours(*each))
        left, right = (
            x.index_select(axis, side) * weight.to(x.dtype).view(shape)
            for side, weight in zip(sides, weights, strict=True)
        )
        x = left + right
    return x


def _linear_backward(gradient: Any, output_size: Any, input_size: Any, align: bool, *scales: Any) -> Any:
    """Return the gradient of a linear interpolation: gradient times weight, added to each neighbour in C order."""
    lengths = input_size[2:]
    given = scales or (None,) * len(lengths)
    axes = [_neighbours(*each) for each in zip(lengths, output_size, [align] * len(lengths), given, strict=True)]
    places, weights = [], []
    for corner in itertools.product((0, 1), repeat=len(axes)):
        index = np.ix_(*(neighbours[side] for (neighbours, _), side in zip(axes, corner, strict=True)))
        places.append(np.ravel_multi_index(np.broadcast_arrays(*index), tuple(lengths)))
        parts = np.ix_(*(weight[side] for (_, weight), side in zip(axes, corner, strict=True)))
        weights.append(functools.reduce(np.multiply, parts))
    factors = torch.from_numpy(np.stack(weights, -1)).to(gradient.dtype)
    terms = (gradient.unsqueeze(-1) * factors).flatten(2)
    zeros = gradient.new_zeros((*input_size[:2], math.prod(lengths)))
    return zeros.index_add(2, torch.from_numpy(np.stack(places, -1).reshape(-1)), terms).view(tuple(input_size))


COMPOSITES: dict[str, Callable[..., Any]] = {
    **STEPWISE,
    "_native_multi_head_attention": _multi_head_attention,
    "_transformer_encoder_layer_fwd": _encoder_layer,
    "upsample_linear1d": _linear,
    "upsample_bilinear2d": _linear,
    "upsample_trilinear3d": _linear,
    "upsample_linear1d_backward": _linear_backward,
    "upsample_bilinear2d_backward": _linear_backward,
    "upsample_trilinear3d_backward": _linear_backward,
}
"""By the name of the ATen operation: a function of PyTorch operations."""
