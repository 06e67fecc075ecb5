"""`python -m benchmarks.approximations`: results per second of `fs.approx` and of CUDA's functions in FP32.

One thread, the worst of several runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import floatsim as fs
from floatsim.tensorcore.cuda_functions import CUDA_FUNCTIONS
from floatsim.tensorcore.special_functions import FORMS

from .targets import Row, program

TARGET = 100e6
"""Results a second of each function and form, written to an array that exists (`out=`)."""
CUDA_TARGET = 20e6
"""Results a second of each function of CUDA's library in FP32."""


def rows(size: int) -> list[Row]:
    """Return the calls on `size` numbers: positive normal ones, and codes of all exponents for "any"."""
    rng = np.random.default_rng(0)
    normal = np.abs(rng.standard_normal(size)).astype(np.float32) + np.float32(0.01)
    codes = rng.integers(0, 1 << 32, size, np.uint32)
    out = np.empty(size, np.float32)
    found = []
    for name, formats in FORMS.items():
        for ftz in formats[fs.FP32]:
            for data, x in (("normal", normal), ("any", codes.view(np.float32))):
                label, target = f"{name}{'.ftz' if ftz else ''}, {data}", TARGET if data == "normal" else None
                found.append(Row(label, _call(name, x, ftz, out), size, target))
    half = fs.array(normal, "fp16")
    found += [Row(f"{name}, FP16", _call(name, half, None, None), size) for name in ("ex2", "tanh")]
    found += [
        Row(f"{name}, CUDA", lambda n=name: fs.library_function(n, normal), size, CUDA_TARGET)
        for name, row in CUDA_FUNCTIONS.items() if row.in_fp32 and not row.takes_number
    ]  # fmt: skip
    return found


def _call(name: str, x: Any, ftz: bool | None, out: Any) -> Callable[[], Any]:
    function, operands = getattr(fs.approx, name), (x, x) if name == "div" else (x,)
    return lambda: function(*operands, device="sm_90", ftz=ftz, out=out)


if __name__ == "__main__":
    program("approximations", __doc__, rows, quick=1 << 12, full=1 << 22)
