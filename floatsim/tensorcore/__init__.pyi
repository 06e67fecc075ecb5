# Written by tools/write_stubs.py. Do not edit.

from floatsim.analysis.describe import Description, describe
from floatsim.analysis.trace.steps import TracedBlock, TracedTerm
from floatsim.analysis.trace.sums import SumTrace, TracedRounding
from floatsim.analysis.trace.trace import Trace, trace
from floatsim.arrays.elementwise.instruction_conversions import convert_as
from floatsim.tensorcore.architectures import ARCHITECTURES, Architecture
from floatsim.tensorcore.conversions import CONVERSIONS, Conversion
from floatsim.tensorcore.instructions import E8M13, Evidence, Instruction, NanRule, RoundedSteps, Scales

__all__ = [
    "ARCHITECTURES", "Architecture", "CONVERSIONS", "Conversion", "Description", "E8M13", "Evidence", "Instruction",
    "NanRule", "RoundedSteps", "Scales", "SumTrace", "Trace", "TracedBlock", "TracedRounding", "TracedTerm",
    "convert_as", "describe", "trace",
]
