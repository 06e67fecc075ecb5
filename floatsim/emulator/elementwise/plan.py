"""Plans of element-wise operations: which kernel computes a case, decided once and cached.

`plan(case)` asks the candidates of `candidates.py` in order. The first that does not refuse makes the kernel. Executing
the plan (execute.py) asks nothing again.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from floatsim.emulator.elementwise.candidates import ELEMENTWISE
from floatsim.emulator.elementwise.case import Case
from floatsim.emulator.elementwise.kernel import Kernel
from floatsim.emulator.planning import BasePlan

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Plan", "plan"]


@dataclass(frozen=True, repr=False)
class Plan(BasePlan[Kernel]):
    """The kernel of a case, why the candidates before it refused, and the plans of the conversions that it uses.

    >>> import floatsim as fs
    >>> fs.explain_plan("exp", fs.array([1.0], "fp16"), rounding="toward_zero")
    exp of fp16 to fp16: enclosed
      not table: a table of 2**16 entries is made for a fourth as many elements
      not nearest float32: only functions of one FP32 operand, with default attributes and without events
      convert of fp16 to fp64: widened
        not rounded: additions in FP32 do not round to FP64
      convert of fp64 to fp16: rounded
    """

    @cached_property
    def code_dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """The dtype of the results' codes."""
        dtype: np.dtype[np.unsignedinteger[Any]] = self.case.result.code_dtype
        return dtype


def plan(case: Case) -> Plan:
    """Return the plan of a case: from the cache, or made and kept there."""
    return _plan(case, ELEMENTWISE.allowed)


@functools.lru_cache(maxsize=2048)
def _plan(case: Case, names: frozenset[str] | None) -> Plan:
    parts: list[Plan] = []

    def plan_part(part: Case, *only: str) -> Plan:
        parts.append(_plan(part, ELEMENTWISE.always.union(only) if only else names))
        return parts[-1]

    source = case.attributes.source if case.draws else None
    candidate, refused = ELEMENTWISE.choose(case, lambda each: case.operation.family in each.takes, names, source)
    kernel = candidate.kernel(case, plan_part)
    return Plan(case, candidate.name, kernel, refused, tuple(parts))
