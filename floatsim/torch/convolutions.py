"""ATen's convolutions and pooling, on `fs.operators.conv2d` and the pools.

One dimension is a height of one. Groups are convolutions of their own. A dilated filter is a filter with zeros between
its elements, which are terms as those of the padding are. A transposed convolution is the gradient of a convolution by
its images, and the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from floatsim.arrays.arithmetic import add, divide
from floatsim.arrays.float_array import FloatArray
from floatsim.operators.convolution import conv2d
from floatsim.operators.convolution_backward import avg_pool_backward, conv2d_backward, max_pool_backward
from floatsim.operators.engine import count
from floatsim.torch.call import Call, Handler, number
from floatsim.torch.tensors import read, tensor_of

__all__ = ["CONVOLUTIONS"]


# -- convolution -------------------------------------------------------------------------------------------------------


def _dilated(w: FloatArray, dilation: tuple[int, int]) -> FloatArray:
    """Return filters with zeros between their elements."""
    if dilation == (1, 1):
        return w
    sizes = [(n - 1) * d + 1 for n, d in zip(w.shape[-2:], dilation, strict=True)]
    codes = np.zeros((*w.shape[:-2], *sizes), w.codes.dtype)
    codes[..., :: dilation[0], :: dilation[1]] = w.codes
    return FloatArray(codes, w.format)


def _two(values: Sequence[int], least: int) -> tuple[int, int]:
    """Return the numbers of two axes; one axis is the second one."""
    numbers = [int(n) for n in values]
    first, second = (least, numbers[0]) if len(numbers) == 1 else numbers
    return first, second


def _images(x: FloatArray) -> FloatArray:
    return x[:, :, np.newaxis] if x.ndim == 3 else x


def _parts(x: FloatArray, groups: int, axis: int) -> list[FloatArray]:
    """Return the groups of channels."""
    return [FloatArray(codes, x.format) for codes in np.split(x.codes, groups, axis)]


def _joined(parts: list[FloatArray], axis: int) -> FloatArray:
    return FloatArray(np.concatenate([each.codes for each in parts], axis), parts[0].format)


def _convolution(
    c: Call, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    if weight.ndim > 4 or weight.ndim < 3 or c.formats.scaling is not None:
        return NotImplemented
    images, filters = _images(c.array(x)), _images(c.array(weight))
    steps, around = _two(stride, 1), _two(padding, 0)
    filters = _dilated(filters, _two(dilation, 1))
    if transposed:
        found = _transposed(c, images, filters, steps, around, _two(output_padding, 0), groups)
    else:
        found = _joined(
            [
                c.operator(conv2d, part, w, stride=steps, padding=around, formats={"output": c.formats.inside})
                for part, w in zip(_parts(images, groups, 1), _parts(filters, groups, 0), strict=True)
            ],
            1,
        )
    if bias is not None:
        found = c.value(add, found, c.bias(bias).reshape(-1, 1, 1))
    found = c.result(found)
    return found[:, :, 0] if x.ndim == 3 else found


def _transposed(
    c: Call, x: FloatArray, w: FloatArray, steps: tuple[int, int], around: tuple[int, int], more: tuple[int, int],
    groups: int,
) -> FloatArray:  # fmt: skip
    """Return the transposed convolution, the gradient of a convolution by its images."""
    lengths = [
        (n - 1) * step - 2 * pad + size + extra
        for n, step, pad, size, extra in zip(x.shape[-2:], steps, around, w.shape[-2:], more, strict=True)
    ]
    formats = {"gradient": c.formats.operands, "output": c.formats.inside}
    return _joined(
        [
            c.operator(
                conv2d_backward, part, _no_images(part, each, lengths), each, stride=steps, padding=around,
                formats=formats,
            ).x
            for part, each in zip(_parts(x, groups, 1), _parts(w, groups, 0), strict=True)
        ],
        1,
    )  # fmt: skip


def _no_images(gradient: FloatArray, w: FloatArray, lengths: Sequence[int]) -> FloatArray:
    """Return images of zeros, of which only the shape matters."""
    return FloatArray(np.zeros((gradient.shape[0], w.shape[1], *lengths), w.codes.dtype), w.format)


def _convolution_backward(
    c: Call, gradient: Any, x: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, mask: Sequence[bool],
) -> Any:  # fmt: skip
    if weight.ndim > 4 or weight.ndim < 3 or c.formats.scaling is not None:
        return NotImplemented
    g, images, filters = (_images(c.array(each)) for each in (gradient, x, weight))
    steps, around, apart = _two(stride, 1), _two(padding, 0), _two(dilation, 1)
    wide = _dilated(filters, apart)
    by_x, by_weight, by_bias = [], [], []
    inner = {"output": c.formats.inside}
    split = zip(_parts(g, groups, 1), _parts(images, groups, 1), _parts(wide, groups, 0), strict=True)
    for part, each, w in split:
        if transposed:  # the roles of gradient and images are exchanged
            product = {"input": c.formats.gradient, **inner}
            by_x.append(c.operator(conv2d, part, w, stride=steps, padding=around, formats=product))
            exchanged = {"gradient": c.formats.operands, "input": c.formats.gradient, **inner}
            found = c.operator(conv2d_backward, each, part, w, stride=steps, padding=around, formats=exchanged)
            by_bias.append(c.sum(c.rounded(part, c.formats.gradient), (0, 2, 3)))
        else:
            found = c.operator(conv2d_backward, part, each, w, stride=steps, padding=around, formats=inner)
            by_x.append(found.x)
            by_bias.append(found.bias)
        by_weight.append(found.weight)
    weight_gradient = _joined(by_weight, 0)[..., :: apart[0], :: apart[1]]
    results = (c.result(_joined(by_x, 1)), c.weight_result(weight_gradient), c.weight_result(_joined(by_bias, 0)))
    if x.ndim == 3:
        results = (results[0][:, :, 0], results[1][:, :, 0], results[2])
    return tuple(each if wanted else None for each, wanted in zip(results, mask, strict=True))


# -- pooling -----------------------------------------------------------------------------------------------------------


def _pool_sizes(size: Any, stride: Any, padding: Any) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    window = (size[0], size[-1])
    steps = (stride[0], stride[-1]) if len(stride) else window
    around = (padding, padding) if isinstance(padding, int) else (padding[0], padding[-1])
    return window, steps, around


def _max_pool(
    c: Call, x: Any, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """Return the largest elements, which PyTorch selects, and their indices."""
    given = c.result(c.operand(x))
    function = torch.ops.aten.max_pool2d_with_indices.default
    values, indices = function(tensor_of(given, x.dtype), size, stride, padding, dilation, ceil_mode)
    return c.rounded(read(values), given.format), indices


def _max_pool_backward(
    c: Call, gradient: Any, x: Any, size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: Any
) -> Any:
    """Return for each element the sum of the gradients of the windows that it is the largest of."""
    if any(n != 1 for n in dilation):
        return NotImplemented
    window, steps, around = _pool_sizes(size, stride, padding)
    g = c.array(gradient if gradient.ndim == 4 else gradient.unsqueeze(0))
    images = c.operand(x if x.ndim == 4 else x.unsqueeze(0))
    before, lengths = around, images.shape[-2:]
    needed = [(n - 1) * step + w for n, step, w in zip(g.shape[-2:], steps, window, strict=True)]
    after = [max(0, n - length - pad) for n, length, pad in zip(needed, lengths, before, strict=True)]
    lowest = -np.inf if images.format.has_infinity else -images.format.max
    fill = number(lowest, images.format).codes.item()
    widths = ((0, 0), (0, 0), *zip(before, after, strict=True))
    padded = FloatArray(np.pad(images.codes, widths, constant_values=fill), images.format)
    cut = tuple(slice(None, max(n, length + pad)) for n, length, pad in zip(needed, lengths, before, strict=True))
    found = c.operator(max_pool_backward, g, padded[..., cut[0], cut[1]], window, stride=steps)
    inner = [slice(pad, pad + length) for pad, length in zip(before, lengths, strict=True)]
    result = found[..., inner[0], inner[1]]
    return result if x.ndim == 4 else result[0]


def _avg_counts(
    lengths: Sequence[int], window: tuple[int, int], steps: tuple[int, int], around: tuple[int, int],
    outputs: Sequence[int], include: bool, divisor: int | None,
) -> Any:  # fmt: skip
    """Return the divisor of each window, (rows, columns)."""
    if divisor is not None:
        return np.full(tuple(outputs), divisor, np.float64)
    axes = []
    for length, size, step, pad, n in zip(lengths, window, steps, around, outputs, strict=True):
        start = np.arange(n) * step - pad
        end = np.minimum(start + size, length + pad)
        axes.append(end - start if include else np.minimum(end, length) - np.maximum(start, 0))
    return np.multiply.outer(*axes).astype(np.float64)


def _avg_pool(
    c: Call, x: Any, size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Any:  # fmt: skip
    """Return the sums of the windows, divided by the exact numbers of elements. The zeros of the padding are terms."""
    window, steps, around = _pool_sizes(size, stride, padding)
    images = c.operand(x if x.ndim == 4 else x.unsqueeze(0))
    lengths = images.shape[-2:]
    outputs = [_outputs(n, w, s, p, ceil_mode) for n, w, s, p in zip(lengths, window, steps, around, strict=True)]
    after = [
        max(p, (n - 1) * s + w - length - p)
        for n, s, w, length, p in zip(outputs, steps, window, lengths, around, strict=True)
    ]
    codes = np.pad(images.codes, ((0, 0), (0, 0), *zip(around, after, strict=True)))
    windows = np.lib.stride_tricks.sliding_window_view(codes, window, (-2, -1))[..., :: steps[0], :: steps[1], :, :]
    windows = windows[..., : outputs[0], : outputs[1], :, :]
    total = c.sum(FloatArray(windows.reshape(*windows.shape[:4], -1), images.format), -1)
    counts = _avg_counts(lengths, window, steps, around, outputs, count_include_pad, divisor_override)
    found = c.result(c.value(divide, total, FloatArray(counts.view(np.uint64), count(1).format)))
    return found if x.ndim == 4 else found[0]


def _outputs(length: int, size: int, step: int, pad: int, ceil_mode: bool) -> int:
    """Return the number of windows along an axis, as PyTorch counts them."""
    free = length + 2 * pad - size
    n = (-(-free // step) if ceil_mode else free // step) + 1
    return n - 1 if ceil_mode and (n - 1) * step >= length + pad else n


def _avg_pool_backward(
    c: Call, gradient: Any, x: Any, size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool,
    divisor_override: int | None,
) -> Any:  # fmt: skip
    window, steps, around = _pool_sizes(size, stride, padding)
    if any(around) or ceil_mode or divisor_override is not None:
        return NotImplemented
    g = c.array(gradient if gradient.ndim == 4 else gradient.unsqueeze(0))
    found = c.operator(avg_pool_backward, g, tuple(x.shape[-2:]), window, stride=steps)
    return found if x.ndim == 4 else found[0]


def _adaptive_sizes(x: Any, output_size: Any) -> tuple[int, int] | None:
    """Return the windows of an adaptive pool whose windows have one size, or None."""
    lengths, wanted = x.shape[-2:], [int(n) for n in output_size]
    if any(length % n for length, n in zip(lengths, wanted, strict=True)):
        return None
    return lengths[0] // wanted[0], lengths[1] // wanted[1]


def _adaptive_avg_pool(c: Call, x: Any, output_size: Any) -> Any:
    window = _adaptive_sizes(x, output_size)
    return NotImplemented if window is None else _avg_pool(c, x, window)


def _adaptive_avg_pool_backward(c: Call, gradient: Any, x: Any) -> Any:
    window = _adaptive_sizes(x, gradient.shape[-2:])
    if window is None:
        return NotImplemented
    return _avg_pool_backward(c, gradient, x, window, (), 0, False, True, None)


CONVOLUTIONS: dict[str, tuple[str, Handler]] = {
    "convolution": ("convolution", _convolution),
    "convolution_backward": ("convolution", _convolution_backward),
    "max_pool2d_with_indices": ("max_pool2d", _max_pool),
    "max_pool2d_with_indices_backward": ("max_pool2d", _max_pool_backward),
    "avg_pool2d": ("avg_pool2d", _avg_pool),
    "avg_pool2d_backward": ("avg_pool2d", _avg_pool_backward),
    "_adaptive_avg_pool2d": ("adaptive_avg_pool2d", _adaptive_avg_pool),
    "_adaptive_avg_pool2d_backward": ("adaptive_avg_pool2d", _adaptive_avg_pool_backward),
}
"""By the name of the ATen operation: the operation of policies, and the handler."""
