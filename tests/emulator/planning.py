"""Cases and kernels of single candidates, for tests that look at one kernel."""

from __future__ import annotations

from typing import Any

from floatsim.emulator.dispatch.kernel import Case
from floatsim.emulator.plan import plan, processor
from floatsim.formats.rounding import RoundingAttributes
from floatsim.formats.value_sets import TermRange


def case_of(accumulation, a, b=None, rounding=None, **more: Any) -> Case:
    """The case of products of values of two formats, or of values of one."""
    return Case(accumulation, TermRange(a, b), rounding or RoundingAttributes(), processor(True), **more)


def kernel_by(candidate, accumulation, a, b=None, rounding=None, **more: Any) -> Any:
    """The kernel that a candidate makes, or None if it refuses."""
    case = case_of(accumulation, a, b, rounding, **more)
    if not isinstance(accumulation, candidate.takes) or candidate.refusal(case) is not None:
        return None
    return candidate.kernel(case, plan)
