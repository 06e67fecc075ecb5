"""`python -m benchmarks.approximations`: results per second of `fs.approx`, one thread, the worst of several runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import floatsim as fs
from floatsim.tensorcore.special_functions import FORMS

from .targets import Row, program

TARGET = 100e6
"""Results a second of each function and form, written to an array that exists (`out=`)."""


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
    return found


def _call(name: str, x: Any, ftz: bool | None, out: Any) -> Callable[[], Any]:
    function, operands = getattr(fs.approx, name), (x, x) if name == "div" else (x,)
    return lambda: function(*operands, device="sm_90", ftz=ftz, out=out)


if __name__ == "__main__":
    program("approximations", __doc__, rows, quick=1 << 12, full=1 << 22)
