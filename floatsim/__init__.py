"""Floating-point formats, roundings and summation orders as data, carried out bit for bit.

Where to begin
--------------
>>> import floatsim as fs
>>> fs.array([0.1, 1e5], "fp16")            # numbers in a format; NumPy's operators and functions work on them
FloatArray([0.099976, inf], FP16)
>>> fs.quantize([0.1, 1e5], "bf16")         # the same values in float64, rounded to a format
array([1.00097656e-01, 9.98400000e+04])
>>> fs.explain_rounding("0.1", "e4m3").code  # print it: one rounding step by step
29

formats           FP64 FP32 TF32 FP16 BF16 E4M3 E5M2 ... FloatFormat as_format named_formats; `print(fs.E4M3)`
in and out        array encode decode quantize convert from_codes to_integer from_integer save load conversion_losses
arithmetic        add subtract multiply divide sqrt fma remainder ..., comparisons and predicates
sums              matmul dot sum mean norm var prod cumsum with `accumulate=`: "fp16", "kahan(bf16)", "hopper", ...
                  reveal_order reveal_width explain_plan
rounding options  rounding= overflow= daz= ftz= tininess= seed=, in each call (`help(fs.quantize)`) or in `fs.context`
events            `with fs.record() as log:` counts overflow, underflow, absorbed terms, ...
a first study     survey; the modules plot tensorcore hardware njit datasets

Each function has its own page: `help(fs.matmul)`. The command `floatsim --help` needs no Python. Names are imported
when first used: `import floatsim` itself loads nothing, not even NumPy.
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
    "._warnings": "FloatsimWarning",
    ".arrays.options": "Context bind_context context get_context",
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
__getattr__, __dir__, __all__ = lazy_exports(
    __name__, _HOMES, modules="datasets hardware njit plot reference tensorcore"
)
