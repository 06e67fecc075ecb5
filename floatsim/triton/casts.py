"""Casts between formats and integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from triton._C.libtriton import ir
from triton.runtime.interpreter import TensorHandle

from floatsim.arrays.array.conversion import array, convert, from_integer, to_integer
from floatsim.formats import FP16, FP32, FP64, FloatFormat, Overflow, Rounding
from floatsim.triton.errors import UndefinedOperationError
from floatsim.triton.handles import float_array, format_of, handle, is_float

__all__ = ["CASTS", "cast"]

CASTS: Mapping[str, Overflow] = {"ieee": Overflow.INFINITY, "hopper": Overflow.SATURATE_FINITE}
"""The overflow of a cast to FP8. "ieee": to infinity or NaN, as torch and ml_dtypes cast. "hopper": to the largest
finite number, as the instructions cvt.satfinite do that Triton uses (third_party/nvidia, ElementwiseOpToLLVM.cpp)."""

_ROUNDINGS = {None: Rounding.TIES_TO_EVEN, ir.ROUNDING_MODE.RTNE: Rounding.TIES_TO_EVEN,
              ir.ROUNDING_MODE.RTZ: Rounding.TOWARD_ZERO}  # fmt: skip


def _narrowed(x: Any, fmt: FloatFormat, mode: Any, casts: str) -> Any:
    rounding = _ROUNDINGS.get(mode)
    if rounding is None:
        raise UndefinedOperationError(f"fp_downcast_rounding={mode} has no definition; use 'rtne' or 'rtz'")
    if fmt.bits > 8:
        return convert(x, fmt, rounding=rounding)
    if casts != "ieee" and rounding is not Rounding.TIES_TO_EVEN:
        raise UndefinedOperationError("casts to FP8 with fp_downcast_rounding='rtz' are defined for casts='ieee' only")
    return convert(x, fmt, rounding=rounding, overflow=CASTS[casts])


def cast(x: Any, dtype: Any, mode: Any, casts: str) -> Any:
    """Return a handle in another dtype, rounded once; None if Triton's own cast is correct.

    A cast to integers rounds toward zero and saturates, and NaN becomes 0.
    """
    source, target = x.dtype.scalar, dtype.scalar
    if is_float(source) and is_float(target):
        return handle(_narrowed(float_array(x), format_of(target), mode, casts), target)
    if is_float(target):
        fmt = format_of(target)
        if fmt in (FP64, FP32, FP16):
            return None  # NumPy rounds integers once, to nearest
        return handle(array(from_integer(np.asarray(x.data, np.int64 if x.data.dtype == bool else None), fmt)), target)
    if not is_float(source):
        return None
    kind = np.dtype(f"{'int' if target.is_int_signed() else 'uint'}{max(8, target.int_bitwidth)}")
    return TensorHandle(np.asarray(to_integer(float_array(x), kind, rounding=Rounding.TOWARD_ZERO)), target)
