"""ATen's convolutions over one, two or three axes, as matrix products of windows and filters (implicit GEMM).

The order of the terms is that of `fs.operators.conv2d`: channels, then the elements of the filter in C order. Elements
of the padding are terms. Groups are a stack of products. A transposed convolution is the gradient of a convolution by
its images, and the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.arithmetic import add
from floatsim.torch.call import Call, Handler
from floatsim.torch.windows import filter_places, gathered, regular_windows

__all__ = ["CONVOLUTIONS"]


class _Geometry(NamedTuple):
    """The shape of a convolution of images (batch, channels, *lengths) with filters (outputs, channels, *sizes)."""

    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    pads: tuple[int, ...]
    aparts: tuple[int, ...]
    groups: int


def _geometry(
    lengths: Sequence[int], weight: Any, stride: Any, padding: Any, dilation: Any, groups: int,
    counts: Sequence[int] | None = None,
) -> _Geometry:  # fmt: skip
    """Return the geometry. The numbers of windows follow from the lengths, if they are not given."""
    axes, sizes = len(lengths), tuple(weight.shape[2:])
    steps, pads, aparts = (tuple(int(n) for n in (x if len(x) > 1 else x * axes)) for x in (stride, padding, dilation))
    if counts is None:
        spans = [(size - 1) * apart + 1 for size, apart in zip(sizes, aparts, strict=True)]
        free = (n + 2 * pad - span for n, pad, span in zip(lengths, pads, spans, strict=True))
        counts = [n // step + 1 for n, step in zip(free, steps, strict=True)]
    return _Geometry(tuple(lengths), tuple(counts), sizes, steps, pads, aparts, groups)


def _stacked(values: Any, groups: int) -> Any:
    """Return (batch, channels, *rows, *terms) as (groups, batch, *rows, channels of a group, *terms), a copy later."""
    split = values.reshape(values.shape[0], groups, -1, *values.shape[2:])
    return np.moveaxis(split, 1, 0)


def _matrix(values: Any, groups: int, rows: int) -> Any:
    """Return (batch, channels, *rows, *terms) as stacks of matrices: a row for each place, channels before terms."""
    split = np.moveaxis(_stacked(values, groups), 2, 2 + rows)
    return split.reshape(groups, int(np.prod(split.shape[1 : 2 + rows])), -1)


def _windows(x: FloatArray, g: _Geometry) -> FloatArray:
    """Return the windows of images, (groups, batch * windows, terms)."""
    axes = [regular_windows(*each).elements for each in zip(g.lengths, g.counts, *g[2:6], strict=True)]
    return FloatArray(_matrix(gathered(x.codes, axes)[0], g.groups, len(axes)), x.format)


def _product(c: Call, left: FloatArray, right: FloatArray, roles: tuple[str, str]) -> FloatArray:
    """Return the product of two stacks of matrices."""
    if left.shape[0] == 1:
        return c.product_of(left[0], right[0], roles)[np.newaxis]
    return c.product_of(left, right, roles)


def _unstacked(product: FloatArray, batch: int, places: Sequence[int]) -> FloatArray:
    """Return (groups, batch * places, channels of a group) as (batch, channels, *places)."""
    split = product.codes.reshape(product.shape[0], batch, *places, -1)
    moved = np.moveaxis(split, (0, -1), (1, 2))
    return FloatArray(moved.reshape(batch, -1, *places), product.format)


def _forward(c: Call, x: FloatArray, w: FloatArray, g: _Geometry, roles: tuple[str, str]) -> FloatArray:
    """Return the cross-correlation of images with filters."""
    filters = w.codes.reshape(g.groups, w.shape[0] // g.groups, -1)
    right = FloatArray(np.swapaxes(filters, 1, 2), w.format)
    return _unstacked(_product(c, _windows(x, g), right, roles), x.shape[0], g.counts)


def _by_images(c: Call, y: FloatArray, w: FloatArray, g: _Geometry, roles: tuple[str, str]) -> FloatArray:
    """Return the gradient by the images: one sum over outputs and the filter rotated by 180 degrees."""
    axes = [filter_places(*each) for each in zip(g.lengths, g.counts, *g[2:6], strict=True)]
    left = FloatArray(_matrix(gathered(y.codes, axes)[0], g.groups, len(axes)), y.format)
    turned = np.flip(w.codes, tuple(range(2, w.ndim)))
    split = turned.reshape(g.groups, w.shape[0] // g.groups, *w.shape[1:])
    right = np.moveaxis(split, 2, -1).reshape(g.groups, -1, w.shape[1])
    return _unstacked(_product(c, left, FloatArray(right, w.format), roles), y.shape[0], g.lengths)


def _by_filters(
    c: Call, y: FloatArray, x: FloatArray, shape: Sequence[int], g: _Geometry, roles: tuple[str, str]
) -> FloatArray:
    """Return the gradient by the filters: one sum over images and windows in C order."""
    left = np.swapaxes(_matrix(y.codes, g.groups, len(g.lengths)), 1, 2)
    found = _product(c, FloatArray(left, y.format), _windows(x, g), roles)
    return found.reshape(*shape)


def _convolution(
    c: Call, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> FloatArray:  # fmt: skip
    images, w = c.prepared(x, "input"), c.prepared(weight, "weight")
    roles = ("input", "weight")
    if transposed:
        counts = tuple(x.shape[2:])
        small = _geometry(counts, weight, stride, padding, dilation, groups, counts)
        more = output_padding if len(output_padding) > 1 else output_padding * len(counts)
        lengths = [
            (n - 1) * step - 2 * pad + (size - 1) * apart + 1 + extra
            for n, size, step, pad, apart, extra in zip(counts, *small[2:6], more, strict=True)
        ]
        found = _by_images(c, images, w, small._replace(lengths=tuple(lengths)), roles)
    else:
        found = _forward(c, images, w, _geometry(x.shape[2:], weight, stride, padding, dilation, groups), roles)
    if bias is not None:
        found = c.value(add, found, c.bias(bias).reshape(-1, *[1] * (x.ndim - 2)))
    return c.result(found)


def _convolution_backward(
    c: Call, gradient: Any, x: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, mask: Sequence[bool],
) -> tuple[FloatArray | None, ...]:  # fmt: skip
    wide, small = (gradient, x) if transposed else (x, gradient)
    geometry = _geometry(wide.shape[2:], weight, stride, padding, dilation, groups, tuple(small.shape[2:]))
    g = c.prepared(gradient, "gradient")
    by_x = by_weight = by_bias = None
    if mask[0]:
        step = _forward if transposed else _by_images
        by_x = c.result(step(c, g, c.prepared(weight, "weight"), geometry, ("gradient", "weight")))
    if mask[1]:
        images = c.prepared(x, "input")
        pair = (images, g, ("input", "gradient")) if transposed else (g, images, ("gradient", "input"))
        by_weight = c.weight_result(_by_filters(c, pair[0], pair[1], weight.shape, geometry, pair[2]))
    if mask[2]:
        terms = c.gradient(gradient)
        rows = FloatArray(np.moveaxis(terms.codes, 1, -1).reshape(-1, terms.shape[1]), terms.format)
        by_bias = c.weight_result(c.sum(rows, 0))
    return by_x, by_weight, by_bias


CONVOLUTIONS: dict[str, tuple[str, Handler]] = {
    "convolution": ("convolution", _convolution),
    "convolution_backward": ("convolution", _convolution_backward),
}
"""By the name of the ATen operation: the operation of policies, and the handler."""
