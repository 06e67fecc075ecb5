"""Conversions to nearest, whatever the context, for models of systems that always round so."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from floatsim.arrays.array.conversion import as_float_array, convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.call.options import Context, context
from floatsim.emulator.elementwise.execute import convert as convert_codes
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes

__all__ = [
    "NEAREST", "as_tensor", "check_tensors", "inside_format", "nearest", "nearest_number", "plain",
    "to_format", "with_cuda_nan",
]  # fmt: skip

NEAREST: dict[str, Any] = {
    "rounding": "ties_to_even", "overflow": "infinity", "daz": False, "ftz": False, "tininess": "after",
}  # fmt: skip
"""The options of IEEE's default rounding."""


def plain() -> AbstractContextManager[Context]:
    """Return a context in which every rounding is to nearest, and nothing is flushed.

    >>> import floatsim as fs
    >>> with fs.context(rounding="toward_zero"), plain():
    ...     fs.array(0.1, "bf16")
    FloatArray(0.1001, BF16)
    """
    return context(**NEAREST)


def as_tensor(x: Any, argument: str) -> FloatArray:
    """Return a FloatArray, or raise a TypeError for anything else."""
    if not isinstance(x, FloatArray):
        raise TypeError(f"{argument} must be a FloatArray, not {type(x).__name__}; use fs.array(x, format)")
    return x


def check_tensors(tensors: Any, argument: str) -> None:
    """Raise a TypeError unless the argument is a mapping of names to FloatArrays."""
    if not isinstance(tensors, Mapping):
        raise TypeError(f"{argument} must be a mapping of names to FloatArrays, not {type(tensors).__name__}")
    for name, x in tensors.items():
        as_tensor(x, f"{argument}[{name!r}]")


def to_format(x: FloatArray, fmt: FloatFormat, **options: Any) -> FloatArray:
    """Return x rounded to a format; x itself if it has the format already."""
    return x if x.format == fmt else as_float_array(convert(x, fmt, **options), "x")


def nearest(x: FloatArray, fmt: FloatFormat, *, saturate: bool = False) -> FloatArray:
    """Return x rounded to a format, to nearest, ties to even, whatever the context.

    With `saturate`, numbers beyond the largest one and infinities become the largest one.
    """
    overflow = "saturate_finite" if saturate else "infinity"
    return to_format(x, fmt, **{**NEAREST, "overflow": overflow})


def nearest_number(value: float, fmt: FloatFormat) -> FloatArray:
    """Return a number in a format, rounded to nearest, ties to even, whatever the context. It is not recorded.

    >>> import floatsim as fs
    >>> with fs.context(overflow="saturate_finite"):
    ...     nearest_number(1e6, fs.FP16)
    FloatArray(inf, FP16)
    """
    codes = np.asarray(value, np.float64).view(np.uint64)
    return FloatArray(convert_codes(codes, FP64, fmt, CallOptions(RoundingAttributes()), False)[0], fmt)


def inside_format(fmt: FloatFormat) -> FloatFormat:
    """Return the format in which PyTorch computes with tensors of a format: FP32, or FP64 for FP64."""
    return FP64 if fmt == FP64 else FP32


def with_cuda_nan(x: FloatArray) -> FloatArray:
    """Return x with the NaN of a GPU's arithmetic and conversions: all bits are one except the sign.

    >>> import floatsim as fs
    >>> hex(with_cuda_nan(fs.array(float("nan"), "fp16")).codes.item())
    '0x7fff'
    """
    codes, fmt = x.codes, x.format
    if fmt.infinity_code is None:
        marked = np.isnan(x.values)
    else:
        marked = (codes & fmt.code_dtype.type(fmt.sign_mask - 1)) > fmt.infinity_code
    return FloatArray(np.where(marked, fmt.code_dtype.type(fmt.sign_mask - 1), codes), fmt) if marked.any() else x
