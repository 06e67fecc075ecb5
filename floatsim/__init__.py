"""floatsim: floating-point formats, roundings and summation orders as data, carried out bit for bit.

The names below are imported when first used: `import floatsim` itself loads nothing, not even NumPy.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "formats": (
        "BF16 E2M1 E2M3 E3M2 E3M4 E4M3 E4M3B11FNUZ E4M3FNUZ E4M3IEEE E5M2 E5M2FNUZ E8M0 FP16 FP32 FP64 TF32 "
        "FloatFormat Specials as_format named_formats"
    ),
    "rounding": "DIVIDE_BY_ZERO INEXACT INVALID OVERFLOW UNDERFLOW FloatClass Overflow Rounding Tininess",
    "contexts": "Context context get_context",
    "recording": "record",
    "streams": "RandomStream",
    "arrays": "FloatArray from_codes load save",
    "conversion": "array convert decode encode from_integer quantize to_integer",
    "arithmetic": (
        "absolute add ceil classify copysign divide equal floor fma fmod greater greater_equal isfinite isinf isnan "
        "issubnormal less less_equal logb maximum maximum_number minimum minimum_number multiply negative next_down "
        "next_up not_equal remainder rint scalb signbit sqrt subtract total_order trunc unordered"
    ),
    "accumulation": "Blocked Exact Kahan Neumaier Pairwise Sequential SplitK Strided TensorCore as_accumulation",
    "linalg": "dot matmul",
    "orders": "reveal_order reveal_width",
    "reductions": "cumsum mean norm prod sum var vdot",
    "ulps": "ulp ulp_distance",
    "explanation": "explain_rounding",
    "surveys": "survey",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_MODULES = ("hardware", "njit", "plot", "reference", "tensorcore")

__all__ = sorted([*_HOME_OF, *_MODULES])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        globals()[name] = value  # also where a module of the same name has just been imported
        return value
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
