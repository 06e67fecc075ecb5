"""Codes as the hardware floats that hold them, and back: exact, for the kernels that compute in a carrier format."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from floatsim_kernels.elementwise import loops as elementwise
from floatsim_kernels.elementwise import unpack as widths
from floatsim_kernels.runtime import cpu as machine

from floatsim.emulator.params import format_row, manner_row
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats.rounding import Attributes

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["narrow", "widen"]

Codes: TypeAlias = "NDArray[np.unsignedinteger[Any]]"
Floats: TypeAlias = "NDArray[np.floating[Any]]"

_EXACT, _NO_DRAWS = manner_row(Attributes()), np.zeros(2, np.uint64)


def _converted(codes: Codes, fmt: FloatFormat, target: FloatFormat) -> Codes:
    """The codes in another format, which holds their values, by the integer kernels."""
    flat, out = codes.reshape(-1).astype(np.uint64), np.empty(codes.size, np.uint64)
    events = np.empty(codes.size, np.uint8)
    elementwise.convert(flat, format_row(fmt), out, format_row(target), _EXACT, _NO_DRAWS, events)
    return out.astype(target.code_dtype).reshape(codes.shape)


@functools.lru_cache(maxsize=64)
def _row(fmt: FloatFormat) -> NDArray[np.uint32] | None:
    """What the kernels of `widths` need to know; None for formats that they are not for."""
    if not (fmt.emin - fmt.trailing_bits >= FP32.emin - FP32.trailing_bits and fmt.emax <= FP32.emax):
        return None
    if fmt.precision > FP32.precision or fmt.emin > 1 or fmt.bits > 32 or fmt.canonical_nan is None or fmt.is_scale:
        return None

    def power(exponent: int) -> int:
        return int(np.ldexp(np.float32(1), exponent).view(np.uint32))

    fields = {
        "sign": fmt.sign_mask,
        "magnitude": fmt.magnitude_mask,
        "sign_shift": 32 - fmt.bits,
        "shift": FP32.trailing_bits - fmt.trailing_bits,
        "scale": power(fmt.emin - FP32.emin),
        "unscale": power(FP32.emin - fmt.emin),
        "max_code": fmt.max_code,
        "infinity": fmt.infinity_code or 0,  # 0 is beyond no largest number
        "nan": fmt.canonical_nan,
        "infinite_result": fmt.infinity_code or 0,
        "zero_sign": 0xFFFFFFFF if fmt.has_signed_zero else 0,
    }
    row = np.array([fields[name] for name in widths.WIDTH_FIELDS], dtype=np.uint32)
    row.flags.writeable = False
    return row


@functools.lru_cache(maxsize=64)
def _every_value(fmt: FloatFormat, carrier: FloatFormat) -> Floats:
    """Of a format of at most 8 bits, by code: 256 values, so that every uint8 is an index. Unused bits do not count."""
    assert carrier.dtype is not None
    values: Floats = _converted(fmt.codes(), fmt, carrier).view(carrier.dtype)
    return np.resize(values, 256)


def widen(codes: Codes, fmt: FloatFormat, carrier: FloatFormat) -> Floats:
    """The values, C-contiguous, in the carrier's dtype (FP32 or FP64), which must hold them all."""
    assert carrier.dtype is not None
    if fmt == carrier:
        return np.ascontiguousarray(codes).view(carrier.dtype)
    if fmt == FP32 and carrier == FP64:
        with np.errstate(invalid="ignore"):  # of signalling NaNs
            return np.ascontiguousarray(codes).view(np.float32).astype(np.float64)
    codes = np.ascontiguousarray(codes)
    if (row := _row(fmt)) is None or not machine.environment_is_default():
        if fmt.bits <= 8:
            return _every_value(fmt, carrier)[codes]
        return _converted(codes, fmt, carrier).view(carrier.dtype)
    single: Floats = np.empty(codes.shape, np.float32)
    widths.widen(codes.reshape(-1), single.reshape(-1), row)
    return single if carrier == FP32 else single.astype(carrier.dtype)


def narrow(values: Floats, carrier: FloatFormat, fmt: FloatFormat) -> Codes:
    """The codes of values that lie on the format's grid: C-contiguous, in the carrier's dtype."""
    if (row := _row(fmt)) is None or not machine.environment_is_default():
        return _converted(values.view(carrier.code_dtype), carrier, fmt)
    codes: Codes = np.empty(values.shape, fmt.code_dtype)
    single = values
    if carrier != FP32:
        with np.errstate(invalid="ignore"):
            single = values.astype(np.float32)
    widths.narrow(single.reshape(-1), codes.reshape(-1), row)
    return codes
