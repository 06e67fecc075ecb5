# Written by tools/write_stubs.py. Do not edit.

from floatsim.analysis.describe import Description as Description
from floatsim.analysis.describe import describe as describe
from floatsim.analysis.trace.steps import TracedBlock as TracedBlock
from floatsim.analysis.trace.steps import TracedTerm as TracedTerm
from floatsim.analysis.trace.trace import Trace as Trace
from floatsim.analysis.trace.trace import trace as trace
from floatsim.tensorcore.architectures import ARCHITECTURES as ARCHITECTURES
from floatsim.tensorcore.architectures import Architecture as Architecture
from floatsim.tensorcore.instructions import E8M13 as E8M13
from floatsim.tensorcore.instructions import Evidence as Evidence
from floatsim.tensorcore.instructions import Instruction as Instruction
from floatsim.tensorcore.instructions import Scales as Scales

__all__: list[str]
