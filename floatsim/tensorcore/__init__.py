"""Matrix units of NVIDIA and AMD, and dot and conversion instructions of CPUs: a table, and the model of each.

`describe` prints the known facts of an instruction and what they have been verified against. `trace` shows one dot
product step by step. `architectures` is the table, and `instructions` defines its rows. `floatsim.reference.tensorcore`
defines the models in exact integers.

>>> import floatsim as fs
>>> list(fs.tensorcore.ARCHITECTURES)[:4]
['volta', 'turing', 'ampere', 'ada']
"""

from __future__ import annotations

from floatsim._lazy import lazy_exports

_HOMES = {
    ".architectures": "ARCHITECTURES Architecture",
    ".conversions": "CONVERSIONS Conversion",
    ".instructions": "E8M13 Evidence Instruction NanRule RoundedSteps Scales",
    "..arrays.elementwise.instruction_conversions": "convert_as",
    "..analysis.describe": "Description describe",
    "..analysis.trace.steps": "TracedBlock TracedTerm",
    "..analysis.trace.sums": "SumTrace TracedRounding",
    "..analysis.trace.trace": "Trace trace",
}
__getattr__, __dir__, __all__ = lazy_exports(__name__, _HOMES)
