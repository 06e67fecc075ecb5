"""The backend that runs `kernels/`: every function that a backend has, from the module where it stands."""

from __future__ import annotations

from floatsim.emulator.accumulate import accumulate
from floatsim.emulator.elementwise import (
    classify,
    compare,
    convert,
    decode,
    elementwise,
    from_integer,
    logb,
    neighbour,
    quantize,
    scalb,
    to_integer,
    total_order,
)
from floatsim.emulator.scan import multiply_all, running_sums

__all__ = [
    "accumulate", "classify", "compare", "convert", "decode", "elementwise", "from_integer", "logb",
    "multiply_all", "neighbour", "quantize", "running_sums", "scalb", "to_integer", "total_order",
]  # fmt: skip
