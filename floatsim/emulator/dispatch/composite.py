"""Strided, Blocked and SplitK: the inner accumulation sums parts of K, the outer one adds their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from floatsim.accumulation import Composite, Strided, leaves
from floatsim.accumulation.partition import partition
from floatsim.emulator.dispatch.kernel import Case, Kernel, LastAdd, Planned, Work
from floatsim.emulator.operands import Operand, Partials, Source, Values
from floatsim.emulator.types import Indices, Seeds
from floatsim.formats.value_sets import TermRange
from floatsim.reference.random import Site

__all__ = ["CompositeCandidate", "CompositeKernel"]


class CompositeKernel:
    """The kernels of the inner and of the outer accumulation, and the addition of c where it comes last."""

    def __init__(self, case: Case, plan: Callable[[Case], Planned]) -> None:
        assert isinstance(case.accumulation, Composite)
        self.accumulation = case.accumulation
        inner, outer = parts_of(case)
        self.inner: Kernel = plan(inner).kernel
        self.outer: Kernel = plan(outer).kernel
        self._add_last = None
        if case.c is not None and isinstance(self.accumulation, Strided):
            self._add_last = LastAdd(leaves(self.accumulation)[-1], case, plan)

    @property
    def fast(self) -> bool:
        """Return whether the terms are summed by fast kernels; the addition of the parts aside."""
        return self.inner.fast

    def evaluate(self, work: Work, source: Source, ranges: Indices, seeds: Seeds, start: Operand | None) -> Partials:
        """Return the results of every range; `start` is c."""
        parts = partition(self.accumulation, ranges.tobytes())
        inner_seeds = work.split(np.repeat(seeds, parts.counts), Site.PARTS + parts.numbers)
        inner = self.inner.evaluate(work, source, parts.parts, inner_seeds, None)
        values = Values(inner, int(source.index[0]), work.last(source, parts.parts))
        outer_seeds = work.split(seeds, Site.OUTER)
        if start is None or self._add_last is None or not source.length:  # without terms, c is the result
            return self.outer.evaluate(work, values, parts.groups, outer_seeds, start)
        result = self.outer.evaluate(work, values, parts.groups, outer_seeds, None)
        return self._add_last(work, result, source, seeds, start)


def parts_of(case: Case) -> tuple[Case, Case]:
    """Return the cases of the inner and of the outer accumulation."""
    assert isinstance(case.accumulation, Composite)
    inner, outer = case.accumulation.inner, case.accumulation.outer
    values = TermRange(inner.result_format)
    return (
        replace(case, accumulation=inner, c=None, by_vectors=False),
        replace(case, accumulation=outer, terms=values, by_vectors=False, scales=None),
    )


class CompositeCandidate:
    """Accumulates parts, each by the plan of its own accumulation. Never refuses."""

    name = "parts"
    takes = (Composite,)

    def refusal(self, case: Case) -> str | None:
        return None

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> CompositeKernel:
        return CompositeKernel(case, plan)
