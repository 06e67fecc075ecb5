"""NaN codes of conversions as libraries return them: the codes that replace the canonical NaN.

The rules are tables over pairs of formats. A rule changes results that are NaN, and, for the conversion of CUDA to the
scale format E8M0, those of zeros and negative numbers, which are NaN otherwise.
"""

from __future__ import annotations

import numpy as np

from floatsim._types import Codes
from floatsim.emulator.elementwise.comparisons import classify
from floatsim.emulator.elementwise.execute import convert
from floatsim.formats import (
    BF16,
    E4M3,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    E8M0,
    FP16,
    FP32,
    FP64,
    FloatFormat,
)
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import FloatClass

__all__ = ["NAN_RULES", "with_nan_rule"]

NAN_RULES = ("canonical", "ml_dtypes", "cuda")
"""The names of the rules."""

_OF_CUDA = frozenset(
    {(source, fmt) for source in (FP32, FP16, BF16)
     for fmt in (FP32, FP16, BF16, E4M3, E5M2, E4M3FNUZ, E5M2FNUZ, E8M0)}
    | {(source, fmt) for source in (E4M3, E5M2) for fmt in (FP32, BF16)}
)  # fmt: skip
"""The conversions of PyTorch on an NVIDIA H200 that were recorded."""
_NUMPY = frozenset({FP16, FP32, FP64})


def with_nan_rule(
    rule: str, codes: Codes, source: FloatFormat, converted: Codes, fmt: FloatFormat, options: CallOptions
) -> Codes:
    """Return the results of a conversion with the NaN codes of a rule.

    Raises a ValueError for conversions that the rule does not have.
    """
    if rule == "canonical":
        return converted
    if rule == "ml_dtypes" and source in _NUMPY and fmt in _NUMPY:
        raise ValueError(f"nan='ml_dtypes': {source.name} to {fmt.name} is a conversion of NumPy, not of ml_dtypes")
    if rule == "cuda" and (source, fmt) not in _OF_CUDA:
        raise ValueError(
            f"nan='cuda': {source.name} to {fmt.name} was not recorded; recorded are FP32, FP16 and BF16 to each other "
            "and to E4M3, E5M2, E4M3FNUZ, E5M2FNUZ and E8M0, and E4M3 and E5M2 to FP32 and BF16"
        )
    if rule == "cuda" and fmt == E8M0:
        return _scales(codes, source, options)
    is_nan = classify(converted, fmt) <= FloatClass.QUIET_NAN
    if not is_nan.any():
        return converted
    result = converted.copy()
    result[is_nan] = (_ml_dtypes if rule == "ml_dtypes" else _cuda)(codes[is_nan], source, fmt)
    return result


def _signs(codes: Codes, source: FloatFormat, fmt: FloatFormat) -> Codes:
    """Return the signs of codes as sign bits of another format."""
    signs: Codes = ((codes & source.code_dtype.type(source.sign_mask)) != 0).astype(fmt.code_dtype)
    signs <<= fmt.code_dtype.type(fmt.bits - 1)
    return signs


def _shifted(codes: Codes, source: FloatFormat, fmt: FloatFormat) -> Codes:
    """Return NaN codes in a format with a longer significand: ones in the exponent, and the significand's bits."""
    trailing = codes.astype(fmt.code_dtype) & fmt.code_dtype.type((1 << source.trailing_bits) - 1)
    payload = trailing << fmt.code_dtype.type(fmt.trailing_bits - source.trailing_bits)
    return _signs(codes, source, fmt) | fmt.code_dtype.type(fmt.infinity_code or 0) | payload


def _ml_dtypes(codes: Codes, source: FloatFormat, fmt: FloatFormat) -> Codes:
    """Return the canonical NaN with the sign of the operand; BF16 to FP32 appends zeros to the code."""
    if (source, fmt) == (BF16, FP32):
        return _shifted(codes, source, fmt)
    canonical = np.full(codes.shape, fmt.canonical_nan, fmt.code_dtype)
    if not fmt.has_signed_zero or fmt.is_scale:
        return canonical
    return canonical | _signs(codes, source, fmt)


def _cuda(codes: Codes, source: FloatFormat, fmt: FloatFormat) -> Codes:
    if source == fmt:
        return codes
    if (source, fmt) in ((BF16, FP32), (E4M3, FP32)):
        return _shifted(codes, source, fmt)
    if fmt in (E4M3FNUZ, E5M2FNUZ):
        return np.full(codes.shape, fmt.canonical_nan, fmt.code_dtype)
    ones = np.full(codes.shape, fmt.magnitude_mask, fmt.code_dtype)
    if fmt in (FP32, FP16, BF16) and (source, fmt) != (E5M2, FP32):
        return ones
    signs = _signs(codes, source, fmt)
    if source == FP16:  # the sign of a NaN is lost, the sign of a number beyond the format is not
        signs[classify(codes, source) <= FloatClass.QUIET_NAN] = 0
    return ones | signs


def _scales(codes: Codes, source: FloatFormat, options: CallOptions) -> Codes:
    """Return E8M0 of the magnitudes; a zero becomes the smallest scale, 2**-127. From there to 2**-126 it rounds up."""
    number = source.code_dtype.type
    sizes = codes & number(source.magnitude_mask)
    scales: Codes = convert(sizes, source, E8M0, options, False)[0].copy()
    scales[sizes == 0] = 0
    if source.emin == FP32.emin:
        least = number(1 << source.trailing_bits - 1)
        scales[(sizes > least) & (sizes < number(2) * least)] = 1
    return scales
