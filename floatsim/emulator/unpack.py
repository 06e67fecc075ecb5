"""Codes as the hardware floats of a carrier format, and back: exact, for the kernels that compute in a carrier.

Both need the default floating-point environment (`cpu.environment_is_default()`), as these kernels do.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from floatsim_kernels.elementwise import loops
from floatsim_kernels.elementwise import unpack as unpack_loops
from floatsim_kernels.runtime import cpu as machine

from floatsim._types import Codes, Floats
from floatsim.emulator.params import format_params, rounding_params, unpack_params
from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat
from floatsim.formats.rounding import RoundingAttributes

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Reader", "canonical_codes", "pack", "reader_of", "unpack"]

_EXACT, _NO_DRAWS = rounding_params(RoundingAttributes()), np.zeros(2, np.uint64)


class Reader(NamedTuple):
    """How a kernel reads the codes of a format: a number of `unpack_loops`, and its parameters."""

    number: int
    params: NDArray[np.uint32]


_READERS = {BF16: unpack_loops.BF16, FP32: unpack_loops.SINGLE, FP64: unpack_loops.DOUBLE}


@functools.lru_cache(maxsize=256)
def reader_of(fmt: FloatFormat) -> Reader | None:
    """Return how kernels read the codes of a format as float32 numbers, or FP64's as float64; None if they cannot."""
    params = unpack_params(FP16 if fmt == FP64 else fmt)  # FP64 is read without parameters; those of FP16 are not used
    if params is None:
        return None
    in_fp16 = fmt == FP16 and machine.has_half_conversion()
    return Reader(unpack_loops.HALF if in_fp16 else _READERS.get(fmt, unpack_loops.GENERAL), params)


def _converted(codes: Codes, fmt: FloatFormat, target: FloatFormat) -> Codes:
    """Return the codes in another format, which holds their values, by the integer kernels."""
    flat, out = codes.reshape(-1).astype(np.uint64), np.empty(codes.size, np.uint64)
    events = np.empty(codes.size, np.uint8)
    loops.convert(flat, format_params(fmt), out, format_params(target), _EXACT, _NO_DRAWS, events)
    return out.astype(target.code_dtype).reshape(codes.shape)


_PARAMS: dict[int, tuple[FloatFormat, NDArray[np.uint32] | None]] = {}
"""`unpack_params` by the identity of a format, which each entry keeps: no hash is computed in Python."""


def _remember(fmt: FloatFormat) -> tuple[FloatFormat, NDArray[np.uint32] | None]:
    if len(_PARAMS) >= 256:
        _PARAMS.clear()
    entry = _PARAMS[id(fmt)] = fmt, unpack_params(fmt)
    return entry


@functools.lru_cache(maxsize=64)
def _every_value(fmt: FloatFormat, carrier: FloatFormat) -> Floats:
    """Return the 256 values of a format of at most 8 bits by code, so that every uint8 is an index."""
    assert carrier.dtype is not None
    values: Floats = _converted(fmt.codes(), fmt, carrier).view(carrier.dtype)
    return np.resize(values, 256)


def unpack(codes: Codes, fmt: FloatFormat, carrier: FloatFormat) -> Floats:
    """Return the values, C-contiguous, in the dtype of the carrier (FP32 or FP64), which must hold them all."""
    assert carrier.dtype is not None
    if fmt.bits == carrier.bits and fmt == carrier:
        return np.ascontiguousarray(codes).view(carrier.dtype)
    if fmt is FP32:
        with np.errstate(invalid="ignore"):  # signaling NaNs raise the flag
            return np.ascontiguousarray(codes).view(np.float32).astype(np.float64)
    codes = np.ascontiguousarray(codes)
    _, params = _PARAMS.get(id(fmt)) or _remember(fmt)
    if params is None:
        if fmt.bits <= 8:
            return _every_value(fmt, carrier)[codes]
        return _converted(codes, fmt, carrier).view(carrier.dtype)
    values: Floats = np.empty(codes.shape, carrier.dtype)
    unpack_loops.unpack(codes.reshape(-1), values.reshape(-1), params)
    return values


def canonical_codes(values: Floats, fmt: FloatFormat) -> Codes:
    """Return the codes of floats of the format's dtype, in their memory, with the canonical NaN for every NaN."""
    codes: Codes = values.view(fmt.code_dtype)
    assert fmt.canonical_nan is not None
    codes[np.isnan(values)] = fmt.canonical_nan
    return codes


def pack(values: Floats, carrier: FloatFormat, fmt: FloatFormat) -> Codes:
    """Return the codes of values on the format's grid, as a new array that is C-contiguous."""
    codes: Codes
    _, params = _PARAMS.get(id(fmt)) or _remember(fmt)
    if params is None:
        if fmt == carrier:
            return canonical_codes(np.array(values, order="C"), fmt)
        return _converted(values.view(carrier.code_dtype), carrier, fmt)
    codes = np.empty(values.shape, fmt.code_dtype)
    single = values
    if carrier is not FP32:
        with np.errstate(invalid="ignore"):
            single = values.astype(np.float32)
    unpack_loops.pack(single.reshape(-1), codes.reshape(-1), params)
    return codes
