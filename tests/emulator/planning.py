"""Cases, plans and kernels of single candidates, for tests that look at one kernel or force a candidate."""

from __future__ import annotations

from typing import Any

from floatsim.arrays.call.options import resolve
from floatsim.emulator import backend as emulator
from floatsim.emulator.dispatch.kernel import Case
from floatsim.emulator.elementwise import candidates
from floatsim.emulator.elementwise import plan as elementwise_plans
from floatsim.emulator.elementwise.case import SIZES
from floatsim.emulator.elementwise.case import Case as ElementwiseCase
from floatsim.emulator.elementwise.execute import execute
from floatsim.emulator.planning import processor
from floatsim.emulator.sums.plan import plan
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


def elementwise_case(name, sources, fmt, *, cpu=None, events=False, size=SIZES[-1], **keywords: Any) -> ElementwiseCase:
    """The case of an element-wise operation with rounding keywords, of many elements."""
    attributes = resolve({"seed": 0, **keywords}).attributes
    return ElementwiseCase(name, tuple(sources), fmt, attributes, cpu or processor(True), events, size)


def elementwise_plan(name, sources, fmt, **keywords: Any) -> Any:
    """The plan of `elementwise_case`."""
    return elementwise_plans.plan(elementwise_case(name, sources, fmt, **keywords))


def by_integers(name, operands, fmt, options) -> Any:
    """(codes, events) of an operation by the integer kernels."""
    with candidates.only("integers"):
        return emulator.elementwise(name, operands, fmt, options)


def as_if_long(name, operands, fmt, options, events=True) -> Any:
    """(codes, events) of an operation by the plan for many elements, however few there are."""
    sources, attributes = tuple(source for _, source in operands), options.attributes
    case = ElementwiseCase(name, sources, fmt, attributes, processor(True), events, SIZES[-1])
    return execute(elementwise_plans.plan(case), operands, operands[0][0].shape, options)
