"""Plans: which kernel carries out an accumulation, decided once for each description and cached.

`plan(case)` asks the candidates of `dispatch/candidates.py` in order. The first that does not refuse makes the kernel.
Executing the plan asks nothing again.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from floatsim_kernels.runtime import cpu

from floatsim.emulator.dispatch import candidates
from floatsim.emulator.dispatch.kernel import CPU, Case, Kernel, Refusal
from floatsim.emulator.tiling import tile_work

if TYPE_CHECKING:
    import numpy as np


__all__ = ["Plan", "plan", "processor"]


@dataclass(frozen=True, repr=False)
class Plan:
    """The kernel of a case, and why the candidates before it refused.

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

    case: Case
    candidate: str
    kernel: Kernel
    refused: tuple[Refusal, ...] = ()
    parts: tuple[Plan, ...] = ()
    """The plans of the inner and outer accumulation, and of c."""

    @cached_property
    def tile_work(self) -> int:
        """The multiply-adds of a tile."""
        return tile_work(self.kernel.fast, bool(self.case.events))

    @cached_property
    def code_dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """The dtype of the results' codes."""
        return self.case.accumulation.result_format.code_dtype

    def lines(self) -> list[str]:
        """Return the plan as lines of text: the kernel, the refusals, and the plans of the parts."""
        formats = " x ".join(factor.name.lower() for factor in self.case.terms.factors)
        text = [f"{self.case.accumulation} of {formats}: {self.candidate}"]
        text += [f"  not {refusal.candidate}: {refusal.reason}" for refusal in self.refused]
        for part in self.parts:
            text += ["  " + line for line in part.lines()]
        return text

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__


def plan(case: Case) -> Plan:
    """Return the plan of a case: from the cache, or made and kept there."""
    return _plan(case, candidates.allowed)


@functools.lru_cache(maxsize=2048)
def _plan(case: Case, names: frozenset[str] | None) -> Plan:
    refused: list[Refusal] = []
    parts: list[Plan] = []

    def plan_part(part: Case) -> Plan:
        parts.append(_plan(part, names))
        return parts[-1]

    for candidate in candidates.CANDIDATES:
        if not isinstance(case.accumulation, candidate.takes):
            continue
        if names is not None and candidate.name not in names:
            reason: str | None = "left out by `only`"
        else:
            reason = candidate.refusal(case)
        if reason is None:
            kernel = candidate.kernel(case, plan_part)
            return Plan(case, candidate.name, kernel, tuple(refused), tuple(parts))
        refused.append(Refusal(candidate.name, reason))
    raise AssertionError(f"no candidate takes {case.accumulation}")  # the last ones never refuse


@functools.cache
def processor(keeps_subnormals: bool) -> CPU:
    """Return the properties of this processor; the caller passes its thread's floating-point environment."""
    return CPU(keeps_subnormals, cpu.has_fma(), cpu.has_f16c(), cpu.has_half_arithmetic())
