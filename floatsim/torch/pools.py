"""ATen's pools over one, two or three axes: regular and adaptive windows, padding, dilation and rounded-up sizes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.arithmetic import divide
from floatsim.operators.computation import count
from floatsim.torch.call import Call, Handler
from floatsim.torch.tensors import read, tensor_of
from floatsim.torch.windows import Windows, adaptive_windows, flat_places, gathered, regular_windows

__all__ = ["POOLS"]


def _numbers(given: Any, axes: int) -> tuple[int, ...]:
    """Return a number for each axis."""
    values = (given,) if isinstance(given, int) else tuple(int(n) for n in given)
    return values if len(values) == axes else values * axes


def _count(length: int, size: int, step: int, pad: int, apart: int, ceil_mode: bool) -> int:
    """Return the number of windows along an axis, as PyTorch counts them."""
    free = length + 2 * pad - (size - 1) * apart - 1
    n = (-(-free // step) if ceil_mode else free // step) + 1
    return n - 1 if ceil_mode and (n - 1) * step >= length + pad else n


def _regular(
    lengths: Sequence[int], size: Any, stride: Any, padding: Any, dilation: Any = 1, ceil_mode: bool = False
) -> list[Windows]:
    """Return the windows of each axis."""
    axes = len(lengths)
    sizes = _numbers(size, axes)
    steps = _numbers(stride, axes) if isinstance(stride, int) or len(stride) else sizes
    pads, aparts = _numbers(padding, axes), _numbers(dilation, axes)
    return [
        regular_windows(length, _count(length, n, step, pad, apart, ceil_mode), n, step, pad, apart)
        for length, n, step, pad, apart in zip(lengths, sizes, steps, pads, aparts, strict=True)
    ]


def _adaptive(lengths: Sequence[int], counts: Sequence[int]) -> list[Windows]:
    return [adaptive_windows(length, int(n)) for length, n in zip(lengths, counts, strict=True)]


def _batched(x: FloatArray, axes: int) -> FloatArray:
    return x if x.ndim == axes + 2 else x[np.newaxis]


def _divisors(
    windows: Sequence[Windows], lengths: Sequence[int], pads: Sequence[int], include: bool, divisor: int | None
) -> FloatArray:
    """Return the exact number of elements of each window. With `include`, those of the padding count."""
    if divisor is not None:
        return count(divisor)
    numbers = []
    for each, length, pad in zip(windows, lengths, pads, strict=True):
        place, exists = each.elements
        inside = (place >= -pad) & (place < length + pad) if include else exists
        numbers.append(inside.sum(1))
    found = functools.reduce(np.multiply.outer, numbers).astype(np.float64)
    return FloatArray(found.view(np.uint64), count(1).format)


def _sum_of(c: Call, values: FloatArray, axes: Sequence[Any], chosen: Any = None) -> FloatArray:
    """Return the sums of the gathered values. Those that do not exist, or are not chosen, are zeros."""
    terms, _ = gathered(values.codes, axes)
    if chosen is not None:
        terms = np.where(chosen, terms, terms.dtype.type(0))
    rows = terms.shape[: 2 + len(axes)]
    return c.sum(FloatArray(terms.reshape(*rows, -1), values.format), -1)


def _average(c: Call, x: Any, windows: Sequence[Windows], divisors: FloatArray) -> FloatArray:
    """Return the sums of the windows, divided by the numbers of elements. The zeros of the padding are terms."""
    total = _sum_of(c, _batched(c.operand(x), len(windows)), [each.elements for each in windows])
    found = c.result(c.value(divide, total, divisors))
    return found if x.ndim == len(windows) + 2 else found[0]


def _average_backward(c: Call, gradient: Any, windows: Sequence[Windows], divisors: FloatArray) -> FloatArray:
    """Return for each element the sum of the shares of the windows that contain it."""
    share = c.value(divide, _batched(c.gradient(gradient), len(windows)), divisors)
    found = c.result(_sum_of(c, share, [each.containing for each in windows]))
    return found if gradient.ndim == len(windows) + 2 else found[0]


def _avg_pool(axes: int) -> Handler:
    def run(
        c: Call, x: Any, size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> FloatArray:  # fmt: skip
        lengths, pads = x.shape[-axes:], _numbers(padding, axes)
        windows = _regular(lengths, size, stride, padding, 1, ceil_mode)
        return _average(c, x, windows, _divisors(windows, lengths, pads, count_include_pad, divisor_override))

    return run


def _avg_pool_backward(axes: int) -> Handler:
    def run(
        c: Call, gradient: Any, x: Any, size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool,
        divisor_override: int | None,
    ) -> FloatArray:  # fmt: skip
        lengths, pads = x.shape[-axes:], _numbers(padding, axes)
        windows = _regular(lengths, size, stride, padding, 1, ceil_mode)
        divisors = _divisors(windows, lengths, pads, count_include_pad, divisor_override)
        return _average_backward(c, gradient, windows, divisors)

    return run


def _adaptive_avg_pool(axes: int) -> Handler:
    def run(c: Call, x: Any, output_size: Any) -> FloatArray:
        lengths = x.shape[-axes:]
        windows = _adaptive(lengths, output_size)
        return _average(c, x, windows, _divisors(windows, lengths, (0,) * axes, False, None))

    return run


def _adaptive_avg_pool_backward(axes: int) -> Handler:
    def run(c: Call, gradient: Any, x: Any) -> FloatArray:
        lengths = x.shape[-axes:]
        windows = _adaptive(lengths, gradient.shape[-axes:])
        return _average_backward(c, gradient, windows, _divisors(windows, lengths, (0,) * axes, False, None))

    return run


def _max_pool(name: str) -> Handler:
    """Return the handler of a pool that selects the largest elements: PyTorch selects them, with their places."""

    def run(c: Call, x: Any, *arguments: Any) -> tuple[FloatArray, Any]:
        given = c.result(c.operand(x))
        values, places = getattr(torch.ops.aten, name).default(tensor_of(given, x.dtype), *arguments)
        return c.rounded(read(values), given.format), places

    return run


def _largest_backward(c: Call, gradient: Any, x: Any, windows: Sequence[Windows], places: Any) -> FloatArray:
    """Return for each element the sum of the gradients of the windows that it is the largest of."""
    axes = len(windows)
    lengths, containing = x.shape[-axes:], [each.containing for each in windows]
    selected = places.numpy().reshape(-1, x.shape[-axes - 1], *places.shape[-axes:])
    selected, exists = gathered(selected, containing)
    chosen = exists & (selected == flat_places(lengths).reshape(*lengths, *[1] * axes))
    found = c.result(_sum_of(c, _batched(c.gradient(gradient), axes), containing, chosen))
    return found if x.ndim == axes + 2 else found[0]


def _max_pool_backward(axes: int) -> Handler:
    def run(
        c: Call, gradient: Any, x: Any, size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
        places: Any,
    ) -> FloatArray:  # fmt: skip
        windows = _regular(x.shape[-axes:], size, stride, padding, dilation, ceil_mode)
        return _largest_backward(c, gradient, x, windows, places)

    return run


def _adaptive_max_pool_backward(axes: int) -> Handler:
    def run(c: Call, gradient: Any, x: Any, places: Any) -> FloatArray:
        return _largest_backward(c, gradient, x, _adaptive(x.shape[-axes:], places.shape[-axes:]), places)

    return run


POOLS: dict[str, tuple[str, Handler]] = {}
"""By the name of the ATen operation: the operation of policies, and the handler."""
for _axes in (2, 3):
    _d = f"{_axes}d"
    POOLS |= {
        f"max_pool{_d}_with_indices": (f"max_pool{_d}", _max_pool(f"max_pool{_d}_with_indices")),
        f"max_pool{_d}_with_indices_backward": (f"max_pool{_d}", _max_pool_backward(_axes)),
        f"adaptive_max_pool{_d}": (f"adaptive_max_pool{_d}", _max_pool(f"adaptive_max_pool{_d}")),
        f"adaptive_max_pool{_d}_backward": (f"adaptive_max_pool{_d}", _adaptive_max_pool_backward(_axes)),
        f"avg_pool{_d}": (f"avg_pool{_d}", _avg_pool(_axes)),
        f"avg_pool{_d}_backward": (f"avg_pool{_d}", _avg_pool_backward(_axes)),
        f"_adaptive_avg_pool{_d}": (f"adaptive_avg_pool{_d}", _adaptive_avg_pool(_axes)),
        f"_adaptive_avg_pool{_d}_backward": (f"adaptive_avg_pool{_d}", _adaptive_avg_pool_backward(_axes)),
    }
