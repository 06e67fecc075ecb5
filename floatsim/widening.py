"""Codes as the hardware floats that hold them, and back: exact, for the kernels that compute in a carrier format."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from floatsim import elements
from floatsim.contexts import Manner
from floatsim.formats import BF16, FP32, FP64, FloatFormat
from floatsim.rounding import Attributes

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["narrow", "widen"]

Codes: TypeAlias = "NDArray[np.unsignedinteger[Any]]"
Floats: TypeAlias = "NDArray[np.floating[Any]]"

_EXACT = Manner(Attributes())


@functools.lru_cache(maxsize=64)
def _table(fmt: FloatFormat, carrier: FloatFormat) -> Floats:
    """The value of every code of a small format."""
    return _converted(np.arange(1 << fmt.bits, dtype=fmt.code_dtype), fmt, carrier)


def _converted(codes: Codes, fmt: FloatFormat, carrier: FloatFormat) -> Floats:
    assert carrier.dtype is not None
    floats: Floats = elements.convert(codes, fmt, carrier, _EXACT)[0].view(carrier.dtype)
    return floats


def widen(codes: Codes, fmt: FloatFormat, carrier: FloatFormat) -> Floats:
    """The values, C-contiguous, in the carrier's dtype (FP32 or FP64), which must hold them all."""
    assert carrier.dtype is not None
    if fmt == carrier:
        return np.ascontiguousarray(codes).view(carrier.dtype)
    if fmt.bits <= 8 or (fmt.bits <= 16 and codes.size > 1 << 18):
        return np.take(_table(fmt, carrier), codes)
    if fmt == BF16:
        single: Floats = (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return np.ascontiguousarray(single, carrier.dtype)
    if fmt == FP32 and carrier == FP64:
        with np.errstate(invalid="ignore"):  # of signalling NaNs
            return np.ascontiguousarray(codes).view(np.float32).astype(np.float64)
    return _converted(np.ascontiguousarray(codes), fmt, carrier)


def narrow(values: Floats, carrier: FloatFormat, fmt: FloatFormat) -> Codes:
    """The codes of values that lie on the format's grid."""
    codes: Codes = elements.convert(values.view(carrier.code_dtype), carrier, fmt, _EXACT)[0]
    return codes
