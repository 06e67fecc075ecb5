"""The tensors of Triton's interpreter as floatsim's arrays. The interpreter stores BF16 and FP8 numbers as integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from floatsim.arrays.array.conversion import convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.formats import BF16, E4M3, E4M3FNUZ, E5M2, E5M2FNUZ, FP16, FP32, FP64, FloatFormat
from floatsim.triton.errors import UndefinedOperationError

__all__ = ["STORED_AS_INTEGERS", "float_array", "format_of", "handle", "is_float", "numbers", "rounded_handle"]

_FORMATS: dict[Any, FloatFormat] = {
    tl.float64: FP64, tl.float32: FP32, tl.float16: FP16, tl.bfloat16: BF16,
    tl.float8e4nv: E4M3, tl.float8e5: E5M2, tl.float8e4b8: E4M3FNUZ, tl.float8e5b16: E5M2FNUZ,
}  # fmt: skip
"""Triton's dtypes and their formats. fp8e4b15, which no GPU of today has, is not among them."""

STORED_AS_INTEGERS = {BF16, E4M3, E5M2, E4M3FNUZ, E5M2FNUZ}
"""Formats whose codes the interpreter treats as integers."""


def is_float(dtype: Any) -> bool:
    """Return whether a dtype of Triton is one of floating-point numbers."""
    return bool(dtype.scalar.is_floating())


def format_of(dtype: Any) -> FloatFormat:
    """Return the format of a dtype of Triton."""
    fmt = _FORMATS.get(dtype.scalar)
    if fmt is None:
        known = ", ".join(map(str, _FORMATS))
        raise UndefinedOperationError(f"{dtype.scalar} has no format; cast to one of {known}")
    return fmt


def float_array(x: Any) -> FloatArray:
    """Return the numbers of a tensor's handle."""
    fmt = format_of(x.dtype)
    data = np.asarray(x.data)
    codes = data if data.dtype == fmt.code_dtype else np.ascontiguousarray(data).view(fmt.code_dtype)
    return FloatArray(codes.reshape(data.shape), fmt)


def numbers(x: Any) -> Any:
    """Return a handle whose numbers NumPy can compute with: BF16 and FP8 become FP32, exactly."""
    if not is_float(x.dtype) or format_of(x.dtype) not in STORED_AS_INTEGERS:
        return x
    return handle(convert(float_array(x), FP32), tl.float32)


def handle(x: FloatArray, dtype: Any) -> Any:
    """Return the handle of an array of the dtype's format."""
    stored = {FP64: np.float64, FP32: np.float32, FP16: np.float16}.get(x.format)
    codes = np.asarray(x.codes)
    return TensorHandle(codes if stored is None else codes.view(stored), dtype.scalar)


def rounded_handle(x: Any, dtype: Any) -> Any:
    """Return FP32 numbers, rounded to a dtype whose codes are stored as integers."""
    return handle(convert(FloatArray(np.asarray(x, np.float32).view(np.uint32), FP32), format_of(dtype)), dtype)
