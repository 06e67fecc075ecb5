"""The backend that runs `kernels/`: every function that a backend has, from the module where it stands."""

from __future__ import annotations

from floatsim.emulator.accumulate import accumulate, plan_sums
from floatsim.emulator.compile_notice import announce_compilation
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
from floatsim.emulator.elementwise_events import event_histogram
from floatsim.emulator.functions import function
from floatsim.emulator.instruction_conversions import convert_as
from floatsim.emulator.scan import multiply_all, running_sums

__all__ = [
    "accumulate", "classify", "compare", "convert", "convert_as", "decode", "elementwise", "event_histogram",
    "from_integer", "function", "logb", "multiply_all", "neighbour", "plan_sums", "quantize", "running_sums", "scalb",
    "to_integer", "total_order",
]  # fmt: skip

announce_compilation()
