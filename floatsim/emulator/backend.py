"""The backend that runs `kernels/`: every function that a backend has, from the module where it stands."""

from __future__ import annotations

from floatsim.emulator.compile_notice import announce_compilation
from floatsim.emulator.elementwise.comparisons import classify, compare, total_order
from floatsim.emulator.elementwise.conversions import convert_as
from floatsim.emulator.elementwise.cuda_functions import cuda_function
from floatsim.emulator.elementwise.events import event_histogram
from floatsim.emulator.elementwise.execute import convert, decode, elementwise, plan_elementwise, quantize
from floatsim.emulator.elementwise.integers import from_integer, logb, neighbour, scalb, to_integer
from floatsim.emulator.elementwise.nan_rules import NAN_RULES, with_nan_rule
from floatsim.emulator.random_draws import source_draws
from floatsim.emulator.sums.execute import accumulate, plan_sums
from floatsim.emulator.sums.moments import moments
from floatsim.emulator.sums.scan import multiply_all, running_sums

__all__ = [
    "NAN_RULES", "accumulate", "classify", "compare", "convert", "convert_as", "cuda_function", "decode", "elementwise",
    "event_histogram", "from_integer", "function", "logb", "moments", "multiply_all", "neighbour", "plan_elementwise",
    "plan_sums", "quantize", "running_sums", "scalb", "source_draws", "to_integer", "total_order", "with_nan_rule",
]  # fmt: skip

function = elementwise
"""Mathematical functions have a name of their own, because other backends have arithmetic and no functions."""

announce_compilation()
