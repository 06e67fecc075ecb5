"""Codes as the hardware floats of a carrier format, and back: exact, for the kernels that compute in a carrier."""

from __future__ import annotations

import functools

import numpy as np
from floatsim_kernels.elementwise import loops
from floatsim_kernels.elementwise import unpack as unpack_loops
from floatsim_kernels.runtime import cpu

from floatsim.emulator.params import format_params, rounding_params, unpack_params
from floatsim.emulator.types import Codes, Floats
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats.rounding import Attributes

__all__ = ["pack", "unpack"]

_EXACT, _NO_DRAWS = rounding_params(Attributes()), np.zeros(2, np.uint64)


def _converted(codes: Codes, fmt: FloatFormat, target: FloatFormat) -> Codes:
    """Return the codes in another format, which holds their values, by the integer kernels."""
    flat, out = codes.reshape(-1).astype(np.uint64), np.empty(codes.size, np.uint64)
    events = np.empty(codes.size, np.uint8)
    loops.convert(flat, format_params(fmt), out, format_params(target), _EXACT, _NO_DRAWS, events)
    return out.astype(target.code_dtype).reshape(codes.shape)


@functools.lru_cache(maxsize=64)
def _every_value(fmt: FloatFormat, carrier: FloatFormat) -> Floats:
    """Return the values of a small format by code."""
    assert carrier.dtype is not None
    values: Floats = _converted(fmt.codes(), fmt, carrier).view(carrier.dtype)
    return values


def unpack(codes: Codes, fmt: FloatFormat, carrier: FloatFormat) -> Floats:
    """Return the values, C-contiguous, in the dtype of the carrier (FP32 or FP64), which must hold them all."""
    assert carrier.dtype is not None
    if fmt == carrier:
        return np.ascontiguousarray(codes).view(carrier.dtype)
    if fmt == FP32 and carrier == FP64:
        with np.errstate(invalid="ignore"):  # signaling NaNs raise the flag
            return np.ascontiguousarray(codes).view(np.float32).astype(np.float64)
    codes = np.ascontiguousarray(codes)
    if (params := unpack_params(fmt)) is None or not cpu.environment_is_default():
        if fmt.bits <= 8:
            return _every_value(fmt, carrier)[codes]
        return _converted(codes, fmt, carrier).view(carrier.dtype)
    single: Floats = np.empty(codes.shape, np.float32)
    unpack_loops.widen(codes.reshape(-1), single.reshape(-1), params)
    return single if carrier == FP32 else single.astype(carrier.dtype)


def pack(values: Floats, carrier: FloatFormat, fmt: FloatFormat) -> Codes:
    """Return the codes of values on the format's grid: C-contiguous, in the dtype of the carrier."""
    if (params := unpack_params(fmt)) is None or not cpu.environment_is_default():
        return _converted(values.view(carrier.code_dtype), carrier, fmt)
    codes: Codes = np.empty(values.shape, fmt.code_dtype)
    single = values
    if carrier != FP32:
        with np.errstate(invalid="ignore"):
            single = values.astype(np.float32)
    unpack_loops.narrow(single.reshape(-1), codes.reshape(-1), params)
    return codes
