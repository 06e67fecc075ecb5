"""Plans: which kernel carries out an accumulation, decided once for each description and cached.

`plan(case)` asks the candidates of `dispatch/candidates.py` in order. The first that does not refuse makes the kernel.
Executing the plan asks nothing again.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from floatsim.emulator.dispatch.candidates import SUMS
from floatsim.emulator.dispatch.kernel import Case, Kernel
from floatsim.emulator.dispatch.tiling import tile_work
from floatsim.emulator.planning import BasePlan

if TYPE_CHECKING:
    import numpy as np


__all__ = ["Plan", "plan"]


@dataclass(frozen=True, repr=False)
class Plan(BasePlan[Kernel]):
    """The kernel of a case, why the candidates before it refused, and the plans of inner and outer accumulation and c.

    >>> import floatsim as fs
    >>> one = fs.array([[1.0]], "fp16")
    >>> fs.explain_plan(one, one, accumulate="exact(fp32)")
    exact(fp32) of fp16 x fp16: exact float64
    >>> fs.explain_plan(one, one, accumulate="blocked(hopper, 64, kahan(tf32))")
    blocked(tensorcore(hopper, wgmma.k16, output=fp32), 64, kahan(tf32)) of fp16 x fp16: parts
      not vectors: many results, few terms for each, events, or c
      tensorcore(hopper, wgmma.k16, output=fp32) of fp16 x fp16: tensorcore float32
      kahan(tf32) of fp32: float64
        not native: the processor has no arithmetic in TF32 for these operands
        not stochastic bf16: only stochastic sums in BF16
        not float32: exact terms of a compensated sum are not all numbers of TF32 and of float32
    """

    @cached_property
    def tile_work(self) -> int:
        """The multiply-adds of a tile."""
        return tile_work(self.kernel.fast, bool(self.case.events))

    @cached_property
    def code_dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """The dtype of the results' codes."""
        dtype: np.dtype[np.unsignedinteger[Any]] = self.case.accumulation.result_format.code_dtype
        return dtype


def plan(case: Case) -> Plan:
    """Return the plan of a case: from the cache, or made and kept there."""
    return _plan(case, SUMS.allowed)


@functools.lru_cache(maxsize=2048)
def _plan(case: Case, names: frozenset[str] | None) -> Plan:
    parts: list[Plan] = []

    def plan_part(part: Case) -> Plan:
        parts.append(_plan(part, names))
        return parts[-1]

    source = case.rounding.source if case.draws else None
    candidate, refused = SUMS.choose(case, lambda each: isinstance(case.accumulation, each.takes), names, source)
    kernel = candidate.kernel(case, plan_part)
    return Plan(case, candidate.name, kernel, refused, tuple(parts))
