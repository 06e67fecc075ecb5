"""Number formats and roundings. Imports neither NumPy nor Numba."""

from __future__ import annotations

from floatsim.formats._enums import NamedEnum
from floatsim.formats.format import (
    BF16,
    CUSTOM_COLOUR,
    E2M1,
    E2M3,
    E3M2,
    E3M4,
    E4M3,
    E4M3B11FNUZ,
    E4M3FNUZ,
    E4M3IEEE,
    E5M2,
    E5M2FNUZ,
    E8M0,
    FORMATS,
    FP16,
    FP32,
    FP64,
    TF32,
    FloatFormat,
    FormatLike,
    Specials,
    as_format,
    as_formats,
    html_name,
    named_formats,
    p3109,
)
from floatsim.formats.rounding import (
    ABSORBED,
    DIVIDE_BY_ZERO,
    FLAGS,
    FLUSHED,
    INEXACT,
    INVALID,
    OVERFLOW,
    SUBNORMAL,
    UNDERFLOW,
    FloatClass,
    Overflow,
    OverflowLike,
    Rounding,
    RoundingAttributes,
    RoundingLike,
    Tininess,
    TininessLike,
    as_member,
)

__all__ = [
    "ABSORBED", "BF16", "CUSTOM_COLOUR", "DIVIDE_BY_ZERO", "E2M1", "E2M3", "E3M2", "E3M4", "E4M3", "E4M3B11FNUZ",
    "E4M3FNUZ", "E4M3IEEE", "E5M2", "E5M2FNUZ", "E8M0", "FLAGS", "FLUSHED", "FORMATS", "FP16", "FP32", "FP64",
    "INEXACT", "INVALID", "OVERFLOW", "SUBNORMAL", "TF32", "UNDERFLOW", "FloatClass", "FloatFormat", "FormatLike",
    "NamedEnum", "Overflow", "OverflowLike", "Rounding", "RoundingAttributes", "RoundingLike", "Specials", "Tininess",
    "TininessLike", "as_format", "as_formats", "as_member", "html_name", "named_formats", "p3109",
]  # fmt: skip
