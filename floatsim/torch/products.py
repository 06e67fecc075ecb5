"""ATen's matrix products, convolutions, embeddings and attention, on `fs.matmul` and `floatsim.operators`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.arithmetic import add, multiply
from floatsim.formats import FloatFormat
from floatsim.operators.attention import attention
from floatsim.operators.attention_backward import attention_backward
from floatsim.operators.convolution_backward import embedding_backward
from floatsim.operators.softmax import softmax
from floatsim.operators.softmax_backward import softmax_backward
from floatsim.torch.call import Call, Handler, number
from floatsim.torch.tensors import read

__all__ = ["PRODUCTS", "placed_mask", "repeated", "sum_of_groups", "zeros"]


def _mm(c: Call, a: Any, b: Any) -> FloatArray:
    return (c.weight_result if c.is_weight_gradient(a, b) else c.result)(c.product(a, b))


def _addmm(c: Call, bias: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> FloatArray:
    """Return beta * bias + alpha * (a @ b); the product, then the bias, as the variant "bias-last" of linear."""
    product = c.product(a, b)
    if alpha != 1:
        product = c.value(multiply, c.number(alpha), product)
    if beta == 0:
        return c.result(product)
    addend = c.bias(bias)
    if beta != 1:
        addend = c.value(multiply, c.number(beta), addend)
    return c.result(c.value(add, product, addend))


def _addbmm(c: Call, bias: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> FloatArray:
    """Return beta * bias + alpha * the sum of a[i] @ b[i], which is one product with a longer sum."""
    left = a.transpose(0, 1).reshape(a.shape[1], -1)
    return _addmm(c, bias, left, b.reshape(-1, b.shape[-1]), beta, alpha)


def _mv(c: Call, a: Any, x: Any) -> FloatArray:
    return c.result(c.product(a, x.unsqueeze(1)))[..., 0]


def _addmv(c: Call, bias: Any, a: Any, x: Any, beta: float = 1, alpha: float = 1) -> FloatArray:
    return _addmm(c, bias.expand(a.shape[0]).unsqueeze(1), a, x.unsqueeze(1), beta, alpha)[..., 0]


def _dot(c: Call, a: Any, b: Any) -> FloatArray:
    return c.result(c.product(a.unsqueeze(0), b.unsqueeze(1))).reshape(())


def _linear(c: Call, x: Any, weight: Any, bias: Any = None) -> FloatArray:
    """Return x @ weight.T + bias, which ATen has undecomposed in inference mode."""
    rows = x.reshape(-1, x.shape[-1])
    product = c.biased(c.product(rows, weight.t()), bias)
    return c.result(product).reshape(*x.shape[:-1], weight.shape[0])


# -- attention ---------------------------------------------------------------------------------------------------------


def placed_mask(mask: Any, causal: bool, query: torch.Tensor, key: torch.Tensor) -> Any:
    """Return the mask of attention: booleans as they are, floats as a FloatArray, which is added unrounded.

    The causal mask of PyTorch begins at the first key, also with other numbers of queries and of keys.

    >>> x = torch.ones(2, 4)
    >>> placed_mask(None, True, x, torch.ones(3, 4)).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0]]
    """
    if causal:
        return np.tri(query.shape[-2], key.shape[-2], dtype=np.bool_)
    if mask is None:
        return None
    return mask.detach().numpy() if mask.dtype == torch.bool else read(mask)


def _attention(
    c: Call, query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Any = None, scale: float | None = None,
) -> tuple[FloatArray, Any]:  # fmt: skip
    """Return attention, and an empty tensor for the logarithms of the sums, which the backward pass does not use."""
    key, value = (repeated(x, query) for x in (key, value))
    empty = query.new_empty((*query.shape[:-2], 0), dtype=torch.float32)
    mask = placed_mask(attn_mask, is_causal, query, key)
    if c.formats.scaling is not None:
        probabilities = _scaled_probabilities(c, query, key, mask, scale)
        found = c.product_of(probabilities, read(value), ("input", "input"), "values")
        return c.result(found), empty
    arrays = (c.array(x) for x in (query, key, value))
    return c.operator(attention, *arrays, mask=mask, scale=scale), empty


def _attention_backward(
    c: Call, gradient: Any, query: Any, key: Any, value: Any, output: Any, sums: Any, dropout_p: float,
    is_causal: bool, *, attn_mask: Any = None, scale: float | None = None,
) -> tuple[FloatArray, ...]:  # fmt: skip
    heads, mask = key.shape[-3], placed_mask(attn_mask, is_causal, query, key)
    key, value = (repeated(x, query) for x in (key, value))
    if c.formats.scaling is not None:
        found = _scaled_backward(c, gradient, query, key, value, mask, scale)
    else:
        arrays = (c.array(x) for x in (gradient, query, key, value))
        inner = {"output": c.formats.inside}
        found = c.operator(attention_backward, *arrays, mask=mask, scale=scale, formats=inner)
    by_query, *others = found
    return tuple(map(c.result, (by_query, *(sum_of_groups(c, each, heads) for each in others))))


def repeated(x: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Return keys or values, repeated for the queries of their group if there are fewer heads (enable_gqa).

    >>> repeated(torch.ones(1, 2, 3, 4), torch.ones(1, 6, 3, 4)).shape
    torch.Size([1, 6, 3, 4])
    """
    if x.ndim < 3 or query.ndim < 3:
        return x
    groups = query.shape[-3] // x.shape[-3]
    return x if groups == 1 else x.repeat_interleave(groups, -3)


def sum_of_groups(c: Call, gradient: FloatArray, heads: int) -> FloatArray:
    """Return the sums of the gradients by the heads of each group."""
    if gradient.ndim < 3 or gradient.shape[-3] == heads:
        return gradient
    return c.sum(gradient.reshape(*gradient.shape[:-3], heads, -1, *gradient.shape[-2:]), -3)


def _scaled_probabilities(c: Call, query: Any, key: Any, mask: Any, scale: float | None) -> FloatArray:
    """Return softmax(query @ key^T * scale + mask): a scaled product, then the format of the intermediates."""
    scores = c.product_of(read(query), read(key.transpose(-1, -2)), ("input", "input"), "scores")
    scores = c.value(multiply, scores, c.number(_factor(query, scale)))
    if isinstance(mask, FloatArray):
        scores = c.value(add, scores, mask)
    kept = mask if isinstance(mask, np.ndarray) else np.True_
    inside = {"input": c.formats.inside, "output": c.formats.inside}
    removed = number(-np.inf, scores.format).codes
    masked = FloatArray(np.where(kept, scores.codes, removed), scores.format)
    shares = c.operator(softmax, masked, -1, formats=inside)
    empty = np.isneginf(masked.values).all(-1, keepdims=True)
    return FloatArray(np.where(empty, shares.codes.dtype.type(0), shares.codes), shares.format)


def _factor(query: Any, scale: float | None) -> float:
    return query.shape[-1] ** -0.5 if scale is None else scale


def _scaled_backward(
    c: Call, gradient: Any, query: Any, key: Any, value: Any, mask: Any, scale: float | None
) -> tuple[FloatArray, ...]:  # fmt: skip
    """Return the gradients of attention by scaled products, unrounded: those by query, key and value."""
    shares, g = _scaled_probabilities(c, query, key, mask, scale), read(gradient)
    by_value = c.product_of(_turned(shares), g, ("input", "gradient"), "value_gradient")
    by_shares = c.product_of(g, read(value.transpose(-1, -2)), ("gradient", "input"), "probability_gradient")
    inside = {"gradient": c.formats.inside, "result_of_forward": c.formats.inside, "output": c.formats.inside}
    by_scores = c.operator(softmax_backward, by_shares, shares, -1, formats=inside)
    by_scores = c.value(multiply, by_scores, c.number(_factor(query, scale)))
    by_query = c.product_of(by_scores, read(key), ("gradient", "input"), "query_gradient")
    by_key = c.product_of(_turned(by_scores), read(query), ("gradient", "input"), "key_gradient")
    return by_query, by_key, by_value


def _turned(x: FloatArray) -> FloatArray:
    return FloatArray(np.swapaxes(x.codes, -1, -2), x.format)


# -- embedding ---------------------------------------------------------------------------------------------------------


def _embedding(c: Call, weight: Any, indices: Any, padding_idx: int = -1, *_: Any) -> FloatArray:
    """Return rows of the table. Only these rows are converted."""
    return c.result(c.operand(weight[indices]))


def _embedding_backward(c: Call, gradient: Any, indices: Any, rows: int, padding_idx: int, by_frequency: bool) -> Any:
    """Return the sums of the gradients of each row of the table. A padding row has the gradient 0."""
    if by_frequency:
        return NotImplemented
    flat, positions = gradient.reshape(-1, gradient.shape[-1]), indices.reshape(-1)
    if padding_idx >= 0:
        kept = positions != padding_idx
        flat, positions = flat[kept], positions[kept]
    if not positions.numel():
        return c.weight_result(zeros((rows, flat.shape[-1]), c.formats.inside))
    inner = {"output": c.formats.inside}
    return c.weight_result(c.operator(embedding_backward, c.array(flat), positions.numpy(), rows, formats=inner))


def zeros(shape: tuple[int, ...], fmt: FloatFormat) -> FloatArray:
    """Return an array of +0.

    >>> import floatsim as fs
    >>> zeros((2,), fs.BF16)
    FloatArray([0.0, 0.0], BF16)
    """
    return FloatArray(np.zeros(shape, fmt.code_dtype), fmt)


PRODUCTS: dict[str, tuple[str, Handler]] = {
    "mm": ("mm", _mm),
    "bmm": ("bmm", _mm),
    "addmm": ("addmm", _addmm),
    "baddbmm": ("baddbmm", _addmm),
    "addbmm": ("addbmm", _addbmm),
    "mv": ("mv", _mv),
    "addmv": ("addmv", _addmv),
    "dot": ("dot", _dot),
    "vdot": ("vdot", _dot),
    "linear": ("linear", _linear),
    "_scaled_dot_product_flash_attention_for_cpu": ("attention", _attention),
    "_scaled_dot_product_flash_attention_for_cpu_backward": ("attention", _attention_backward),
    "embedding": ("embedding", _embedding),
    "embedding_dense_backward": ("embedding", _embedding_backward),
}
"""By the name of the ATen operation: the operation of policies, and the handler."""
