"""ATen's sums into indexed elements, on `fs.operators.embedding_backward`: sums of each element in C order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.arithmetic import add, multiply
from floatsim.operators.convolution_backward import embedding_backward
from floatsim.torch.call import Call, Handler

__all__ = ["SCATTER"]


def _places(x: torch.Tensor) -> torch.Tensor:
    """Return the flat index of each element."""
    return torch.arange(x.numel()).view(x.shape)


def _added(c: Call, x: Any, places: torch.Tensor, terms: FloatArray) -> FloatArray:
    """Return x + the sums of the terms at these flat places. Elements without a term are only converted."""
    flat = FloatArray(np.ascontiguousarray(terms.codes).reshape(-1, 1), terms.format)
    positions = places.reshape(-1).numpy()
    inside = {"output": c.formats.inside}
    base = c.rounded(c.operand(x), c.formats.inside)
    total = c.operator(embedding_backward, flat, positions, x.numel(), formats=inside).reshape(tuple(x.shape))
    found = c.value(add, base, total)
    touched = np.zeros(x.numel(), bool)
    touched[positions] = True
    return c.result(FloatArray(np.where(touched.reshape(x.shape), found.codes, base.codes), base.format))


def _index_put(c: Call, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, *_: Any) -> FloatArray:
    """Return x with values at indices: instead of the elements, or added to them."""
    chosen = tuple(slice(None) if each is None else each for each in indices)
    places = _places(x)[chosen]
    terms = values.expand(places.shape)
    if accumulate:
        return _added(c, x, places, c.array(terms))
    found, numbers = c.result(c.operand(x)), c.result(c.operand(terms))
    codes = np.array(found.codes).reshape(-1)
    codes[places.reshape(-1).numpy()] = numbers.codes.reshape(-1)
    return FloatArray(codes.reshape(x.shape), found.format)


def _index_add(c: Call, x: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> FloatArray:
    terms = c.array(source)
    if alpha != 1:
        terms = c.value(multiply, c.operand(source), c.number(alpha))
    return _added(c, x, _places(x).index_select(dim, index.reshape(-1)), terms)


def _scatter_add(c: Call, x: Any, dim: int, index: Any, source: Any) -> FloatArray:
    part = source[tuple(slice(0, n) for n in index.shape)]
    return _added(c, x, _places(x).gather(dim, index), c.array(part))


# -- gradients of copies -----------------------------------------------------------------------------------------------


def _copies_backward(c: Call, gradient: Any, lengths: Sequence[int], copied: Callable[[Any], Any]) -> FloatArray:
    """Return for each element the sum of the gradients of its copies in C order.

    `copied` copies elements of (1, 1, *lengths) as the forward pass does.
    """
    places = copied(torch.arange(math.prod(lengths), dtype=torch.float64).view(1, 1, *lengths)).reshape(-1).long()
    rows = np.ascontiguousarray(c.array(gradient).codes.reshape(-1, places.numel()).T)
    terms = FloatArray(rows, c.array(gradient).format)
    found = c.operator(embedding_backward, terms, places.numpy(), math.prod(lengths))
    leading = gradient.shape[: gradient.ndim - len(lengths)]
    return FloatArray(np.ascontiguousarray(found.codes.T).reshape(*leading, *lengths), found.format)


def _pad_backward(axes: int) -> Handler:
    forward = getattr(torch.ops.aten, f"replication_pad{axes}d").default

    def run(c: Call, gradient: Any, x: Any, padding: Any) -> FloatArray:
        return _copies_backward(c, gradient, x.shape[-axes:], lambda places: forward(places, padding))

    return run


def _nearest_backward(name: str, axes: int) -> Handler:
    forward = getattr(torch.ops.aten, f"{name}{axes}d").default

    def run(c: Call, gradient: Any, output_size: Any, input_size: Any, *scales: Any) -> FloatArray:
        return _copies_backward(c, gradient, input_size[2:], lambda places: forward(places, output_size, *scales))

    return run


SCATTER: dict[str, tuple[str, Handler]] = {
    "index_put": ("index_put", _index_put),
    "_index_put_impl": ("index_put", _index_put),
    "_unsafe_index_put": ("index_put", _index_put),
    "index_add": ("scatter_add", _index_add),
    "scatter_add": ("scatter_add", _scatter_add),
    **{f"replication_pad{n}d_backward": ("scatter_add", _pad_backward(n)) for n in (1, 2, 3)},
    **{f"upsample_nearest{n}d_backward": ("scatter_add", _nearest_backward("upsample_nearest", n)) for n in (1, 2, 3)},
    **{
        f"_upsample_nearest_exact{n}d_backward": ("scatter_add", _nearest_backward("_upsample_nearest_exact", n))
        for n in (1, 2, 3)
    },
}
"""By the name of the ATen operation: the operation of policies, and the handler."""
