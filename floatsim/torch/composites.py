"""Fused ATen operations that are written out as PyTorch operations, each of which is emulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

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


COMPOSITES: dict[str, Callable[..., Any]] = {
    "_native_multi_head_attention": _multi_head_attention,
    "_transformer_encoder_layer_fwd": _encoder_layer,
}
"""By the name of the ATen operation: a function of PyTorch operations."""
