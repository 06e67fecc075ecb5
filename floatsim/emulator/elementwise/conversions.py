"""Conversion instructions of CPUs on codes."""

from __future__ import annotations

import numpy as np

from floatsim._types import Codes
from floatsim.emulator.elementwise.comparisons import classify
from floatsim.emulator.elementwise.execute import convert
from floatsim.formats import FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import FloatClass, Rounding, RoundingAttributes
from floatsim.tensorcore.conversions import Conversion

__all__ = ["convert_as"]


def convert_as(conversion: Conversion, codes: Codes, rounding: Rounding, daz: bool) -> Codes:
    """Return codes of the result's format, as the instruction converts them. A NaN keeps its sign and payload."""
    source, result = conversion.source, conversion.result
    options = CallOptions(RoundingAttributes(rounding, daz=daz))
    converted: Codes = convert(codes, source, result, options, False)[0]
    is_nan = classify(codes, source) <= FloatClass.QUIET_NAN
    return np.where(is_nan, _nans(codes, source, result), converted) if is_nan.any() else converted


def _nans(codes: Codes, source: FloatFormat, result: FloatFormat) -> Codes:
    """Return NaN codes in another format: the sign, the high bits of the payload, and the quiet bit."""
    wide = codes.astype(np.uint64)
    payload = wide & np.uint64((1 << source.trailing_bits) - 1)
    shift = result.trailing_bits - source.trailing_bits
    payload = payload << np.uint64(shift) if shift >= 0 else payload >> np.uint64(-shift)
    sign = (wide >> np.uint64(source.bits - 1)) << np.uint64(result.bits - 1)
    quiet = np.uint64((result.infinity_code or 0) | 1 << result.trailing_bits - 1)
    nans: Codes = (sign | quiet | payload).astype(result.code_dtype)
    return nans
