"""Arithmetic on BF16 and FP8, whose codes Triton's interpreter treats as integers, and mathematical functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise import arithmetic, functions
from floatsim.formats import BF16
from floatsim.triton.errors import UndefinedOperationError
from floatsim.triton.handles import (
    STORED_AS_INTEGERS,
    float_array,
    format_of,
    handle,
    is_float,
    numbers,
    rounded_handle,
)

__all__ = ["FUNCTIONS", "fused", "high_product", "in_numbers", "of_function"]

FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "create_exp": functions.exp, "create_exp2": functions.exp2, "create_log": functions.log,
    "create_log2": functions.log2, "create_sin": functions.sin, "create_cos": functions.cos,
    "create_sqrt": arithmetic.sqrt, "create_precise_sqrt": arithmetic.sqrt, "create_rsqrt": functions.rsqrt,
    "create_erf": functions.erf,
}  # fmt: skip
"""Functions of the interpreter's builder, each correctly rounded. Results of NumPy depend on the machine."""


_EXTREMES: Mapping[Any, bool] = {np.fmin: True, np.minimum: True, np.fmax: False, np.maximum: False}
"""The operations of `tl.minimum` and `tl.maximum`, and whether they return the smallest number."""


def _with_signed_zeros(found: Any, given: Sequence[Any], smallest: bool) -> Any:
    """Return an extreme whose zeros have the sign of the smallest or largest zero. NumPy returns either zero."""
    zeros = [(x.data == 0) & (np.signbit(x.data) == smallest) for x in given]
    negative = np.logical_or(*zeros) == smallest
    data = np.where(found.data == 0, np.where(negative, -0.0, 0.0).astype(found.data.dtype), found.data)
    return TensorHandle(data, found.dtype)


def is_stored_as_integers(x: Any) -> bool:
    """Return whether a handle holds numbers that the interpreter reads as integers."""
    return isinstance(x, TensorHandle) and is_float(x.dtype) and format_of(x.dtype) in STORED_AS_INTEGERS


def in_numbers(original: Callable[..., Any], builder: Any, operands: tuple[Any, ...], rest: tuple[Any, ...]) -> Any:
    """Call an operation of the builder with the numbers of its operands, and round the result to their format.

    BF16 results are rounded once: FP32 holds sums and products of BF16 numbers with enough bits for this. A comparison
    of floats has booleans; the interpreter gives them the dtype of the floats, and a cast would read them as such.
    """
    stored = [x.dtype.scalar for x in operands if is_stored_as_integers(x)]
    given = [numbers(x) for x in operands] if stored else operands
    with np.errstate(all="ignore"):
        found = original(builder, *given, *rest)
    if found.data.dtype == np.bool_:
        return TensorHandle(found.data, tl.int1) if is_float(found.dtype) else found
    if rest[-1] in _EXTREMES and is_float(found.dtype):
        found = _with_signed_zeros(found, given, _EXTREMES[rest[-1]])
    if not stored:
        return found
    dtype = stored[0]
    if format_of(dtype) != BF16:
        raise UndefinedOperationError(f"arithmetic on {dtype} has no definition; cast to tl.float32 first")
    return rounded_handle(found.data, dtype)


def of_function(function: Callable[[Any], Any], x: Any) -> Any:
    """Return a correctly rounded function of a handle."""
    return handle(function(float_array(x)), x.dtype)


def fused(x: Any, y: Any, z: Any) -> Any:
    """Return x * y + z with one rounding."""
    a, b, c = (FloatArray(codes, format_of(each.dtype)) for codes, each in zip(
        np.broadcast_arrays(*(float_array(each).codes for each in (x, y, z))), (x, y, z), strict=True
    ))  # fmt: skip
    return handle(arithmetic.fma(a, b, c), z.dtype)


def high_product(x: Any, y: Any) -> Any:
    """Return the high half of a product of unsigned integers. Signed ones take part with their bits."""
    bits = x.data.dtype.itemsize * 8
    unsigned = np.dtype(f"u{x.data.dtype.itemsize}")
    a, b = (np.ascontiguousarray(each.data).view(unsigned) for each in (x, y))
    if bits < 64:
        wide = np.dtype(f"u{2 * x.data.dtype.itemsize}")
        high = (a.astype(wide) * b.astype(wide)) >> bits
    else:
        low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
        middle = (a >> half) * (b & low) + (((a & low) * (b & low)) >> half)
        other = (a & low) * (b >> half) + (middle & low)
        high = (a >> half) * (b >> half) + (middle >> half) + (other >> half)
    return TensorHandle(high.astype(unsigned).view(x.data.dtype), x.dtype.scalar)
