"""Plans: which kernel carries out an accumulation, decided once for each description and cached.

`plan(case)` asks the candidates of `dispatch/candidates.py` in order. The first that does not refuse makes the kernel.
Executing the plan asks nothing again.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floatsim_kernels.runtime import cpu

from floatsim.accumulation import Accumulation
from floatsim.emulator.dispatch.candidates import CANDIDATES, allowed
from floatsim.emulator.dispatch.kernel import CPU, Case, Kernel, Refusal
from floatsim.formats import FloatFormat
from floatsim.formats.rounding import Attributes
from floatsim.formats.value_sets import TermRange

if TYPE_CHECKING:
    from floatsim.tensorcore.instructions import Scales

__all__ = ["Plan", "plan", "plan_of_call"]


@dataclass(frozen=True)
class Plan:
    """The kernel of a case, and why the candidates before it refused.

    >>> import floatsim as fs
    >>> print(fs.explain_plan(fs.array([[1.0]], "fp16"), fs.array([[1.0]], "fp16"), accumulate="exact(fp32)"))
    exact(fp32) of fp16 x fp16: exact float64
    """

    case: Case
    candidate: str
    kernel: Kernel
    refused: tuple[Refusal, ...] = ()
    parts: tuple[Plan, ...] = ()
    """The plans of the inner and outer accumulation, and of c."""

    def lines(self) -> list[str]:
        """Return the plan as lines of text: the kernel, the refusals, and the plans of the parts."""
        formats = " x ".join(str(factor).lower() for factor in self.case.terms.factors)
        text = [f"{self.case.accumulation} of {formats}: {self.candidate}"]
        text += [f"  not {refusal.candidate}: {refusal.reason}" for refusal in self.refused]
        for part in self.parts:
            text += ["  " + line for line in part.lines()]
        return text

    def __str__(self) -> str:
        return "\n".join(self.lines())


def plan(case: Case) -> Plan:
    """Return the plan of a case: from the cache, or made and kept there."""
    return _plan(case, allowed())


@functools.lru_cache(maxsize=2048)
def _plan(case: Case, names: frozenset[str] | None) -> Plan:
    refused: list[Refusal] = []
    parts: list[Plan] = []

    def plan_part(part: Case) -> Plan:
        parts.append(_plan(part, names))
        return parts[-1]

    for candidate in CANDIDATES:
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


# -- the plans of calls ------------------------------------------------------------------------------------------------

_RECENT: dict[tuple[Any, ...], tuple[Plan, tuple[Any, ...]]] = {}
"""Plans by the identities of what they were made for, which are kept, so that no other object takes their place. Equal
objects make equal plans; this saves their comparison."""
_MOST_RECENT = 512


def plan_of_call(
    accumulation: Accumulation, a: FloatFormat, b: FloatFormat | None, c: FloatFormat | None, rounding: Attributes,
    events: frozenset[str], by_vectors: bool, scales: Scales | None, many_draws: bool,
) -> Plan:  # fmt: skip
    """Return the plan of a call of `accumulate`. Its arguments are those of `Case`, but for the CPU."""
    keeps_subnormals = cpu.environment_is_default()
    objects = (accumulation, a, b, c, rounding, events, scales, allowed())
    key = (*map(id, objects), by_vectors, many_draws, keeps_subnormals)
    found = _RECENT.get(key)
    if found is not None:
        return found[0]
    case = Case(
        accumulation, TermRange(a, b), rounding, _cpu(keeps_subnormals), c, events, by_vectors, scales, many_draws
    )
    made = plan(case)
    if len(_RECENT) >= _MOST_RECENT:
        _RECENT.clear()
    _RECENT[key] = made, objects
    return made


@functools.cache
def _cpu(keeps_subnormals: bool) -> CPU:
    return CPU(keeps_subnormals, cpu.has_fma(), cpu.has_f16c(), cpu.has_half_arithmetic())
