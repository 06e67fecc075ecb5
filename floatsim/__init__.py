"""floatsim: floating-point formats, roundings and summation orders as data, carried out bit for bit.

The names below are imported when first used: `import floatsim` itself loads nothing, not even NumPy.
"""

from __future__ import annotations

from floatsim._lazy import lazy_exports

__version__ = "0.1.0"

_HOMES = {
    ".formats.format": (
        "BF16 E2M1 E2M3 E3M2 E3M4 E4M3 E4M3B11FNUZ E4M3FNUZ E4M3IEEE E5M2 E5M2FNUZ E8M0 FP16 FP32 FP64 TF32 "
        "FloatFormat Specials as_format named_formats"
    ),
    ".formats.rounding": "DIVIDE_BY_ZERO INEXACT INVALID OVERFLOW UNDERFLOW FloatClass Overflow Rounding Tininess",
    ".arrays.options": "Context context get_context",
    ".arrays.events": "record",
    ".arrays.random_stream": "RandomStream",
    ".arrays.float_array": "FloatArray from_codes load save",
    ".arrays.conversion": "array convert decode encode from_integer quantize to_integer",
    ".arrays.arithmetic": (
        "absolute add ceil copysign divide floor fma fmod logb maximum maximum_number minimum minimum_number multiply "
        "negative next_down next_up remainder rint scalb sqrt subtract trunc"
    ),
    ".arrays.comparison": (
        "classify equal greater greater_equal isfinite isinf isnan issubnormal less less_equal not_equal signbit "
        "total_order unordered"
    ),
    ".accumulation": "Blocked Exact Kahan Neumaier Pairwise Sequential SplitK Strided TensorCore as_accumulation",
    ".arrays.linalg": "dot explain_plan matmul",
    ".analysis.summation_order": "reveal_order reveal_width",
    ".arrays.reductions": "cumsum mean norm prod sum var vdot",
    ".arrays.ulps": "ulp ulp_distance",
    ".analysis.explain": "explain_rounding",
    ".analysis.losses": "ConversionLosses conversion_losses",
    ".analysis.survey.survey": "survey",
}
__getattr__, __dir__, __all__ = lazy_exports(__name__, _HOMES, modules="hardware njit plot reference tensorcore")
