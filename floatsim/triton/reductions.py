"""Reductions and scans along an axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from floatsim.accumulation import Accumulation, AccumulationLike, Pairwise, Sequential, as_accumulation
from floatsim.arrays.array.conversion import array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.arithmetic import add, multiply
from floatsim.arrays.sums.reductions import sum as sum_of
from floatsim.formats import FloatFormat
from floatsim.triton.handles import STORED_AS_INTEGERS, float_array, format_of, handle, is_float, numbers

__all__ = ["ORDERS", "Sums", "extremes", "scanned"]

ORDERS: Mapping[str, Callable[[FloatFormat], Accumulation]] = {
    "halving": lambda fmt: Pairwise(fmt, "halving"),
    "adjacent": lambda fmt: Pairwise(fmt, "adjacent"),
    "sequential": Sequential,
}
"""Orders of `tl.sum` in the format of the operand. On a GPU the order depends on the layout of the tensor."""


def _tensor(x: FloatArray, dtype: Any) -> Any:
    """Return a tensor of Triton; a scalar has one element, as the interpreter stores it."""
    kind = tl.block_type(dtype.scalar, list(x.shape)) if x.shape else dtype.scalar
    return tl.core.tensor(handle(x if x.shape else x.reshape(1), dtype), kind)


class Sums:
    """The order of `tl.sum`: a name of ORDERS, or a description for all formats."""

    def __init__(self, order: AccumulationLike) -> None:
        named = ORDERS.get(order) if isinstance(order, str) else None
        self._of: Callable[[FloatFormat], Accumulation]
        if named is not None:
            self._of = named
        else:
            try:
                accumulate = as_accumulation(order, "sums")
            except ValueError as error:
                raise ValueError(
                    f"sums={order!r} is none of {', '.join(ORDERS)}, and no description: {error}"
                ) from None
            self._of = lambda _: accumulate

    def sum(self, x: Any, axis: int | None, keep_dims: bool) -> Any:
        """Return the sum of a tensor of Triton along an axis, or None for integers."""
        if not is_float(x.dtype):
            return None
        fmt = format_of(x.dtype)
        found = sum_of(float_array(x.handle), axis, keepdims=keep_dims, accumulate=self._of(fmt), format=fmt)
        return _tensor(found, x.dtype)


def extremes(x: Any, axis: int | None, keep_dims: bool, smallest: bool, with_index: bool) -> Any:
    """Return the smallest or largest numbers of a tensor of Triton, and their first indices; None for integers.

    NaN is no extreme; of NaN alone, the extreme is NaN, and its index 0. A zero has the sign of the smallest or largest
    zero, as in the instructions min.f32 and max.f32.
    """
    if not is_float(x.dtype):
        return None
    data = numbers(x.handle).data
    extreme: Any = np.fmin if smallest else np.fmax
    found = extreme.reduce(data, axis=axis, keepdims=keep_dims)
    of_all = extreme.reduce(data, axis=axis, keepdims=True)
    other = (data == 0) & (np.signbit(data) if smallest else ~np.signbit(data))
    negative = np.any(other, axis=axis, keepdims=keep_dims) == smallest
    found = np.where(found == 0, np.where(negative, -0.0, 0.0), found)
    values = _tensor(array(found, format_of(x.dtype)), x.dtype)
    if not with_index:
        return values
    places = np.asarray(np.argmax(data == of_all, axis=axis, keepdims=keep_dims), np.int32)
    kind = tl.block_type(tl.int32, list(places.shape)) if places.shape else tl.int32
    return values, tl.core.tensor(TensorHandle(places if places.shape else places.reshape(1), tl.int32), kind)


def scanned(x: Any, axis: int, kind: str) -> Any:
    """Return running sums or products, each step rounded to the format; None if NumPy's are the same."""
    if not is_float(x.dtype) or format_of(x.dtype) not in STORED_AS_INTEGERS:
        return None
    operation = {"cumsum": add, "cumprod": multiply}[kind]
    read: Any = float_array(x.handle)
    steps: Any = np.moveaxis(read, axis, 0)
    found = [steps[0]]
    for step in steps[1:]:
        found.append(operation(found[-1], step))
    joined: Any = np.moveaxis(np.stack(found), 0, axis)
    return _tensor(joined, x.dtype)
