"""Composites: inner accumulations sum parts of K, the outer one adds their results. And terms in another order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from floatsim._types import Indices, Seeds
from floatsim.accumulation import Accumulation, Composite, Parts, Permuted, Sequential, SplitK, Strided, Threads, leaves
from floatsim.accumulation.partition import is_dealt, partition, permutation
from floatsim.emulator.dispatch.kernel import (
    Case,
    Conversion,
    Kernel,
    LastAdd,
    LeafKernel,
    Planned,
    Work,
    lone_term,
)
from floatsim.emulator.dispatch.operands import Operand, Partials, Source, Values
from floatsim.formats import FloatFormat
from floatsim.formats.value_sets import TermRange
from floatsim.reference.random import Site

__all__ = ["CompositeCandidate", "CompositeKernel", "PermutedCandidate"]


class CompositeKernel:
    """The kernels of the inner and of the outer accumulations, and the addition of c where it comes last."""

    def __init__(self, case: Case, plan: Callable[[Case], Planned]) -> None:
        self.accumulation = case.accumulation
        assert isinstance(self.accumulation, Composite | Parts)
        self.inner: Inner = (_EachPart if isinstance(self.accumulation, Parts) else _EqualParts)(case, plan)
        outer = _of_results(case)
        memory = self.accumulation.through if isinstance(self.accumulation, SplitK) else None
        self.outer: Kernel = plan(outer).kernel if memory is None else ThroughMemory(outer, memory, plan)
        self._dealt = is_dealt(self.accumulation)
        self._add_last = None
        if case.c is not None and isinstance(self.accumulation, Strided):
            self._add_last = LastAdd(leaves(self.accumulation)[-1], case, plan)

    @property
    def fast(self) -> bool:
        """Return whether the terms are summed by fast kernels; the addition of the parts aside."""
        return self.inner.fast

    def evaluate(self, work: Work, source: Source, ranges: Indices, seeds: Seeds, start: Operand | None) -> Partials:
        """Return the results of every range; `start` is c."""
        if self._dealt:
            assert isinstance(self.accumulation, SplitK | Threads)
            terms, ranges = permutation(self.accumulation, ranges.tobytes())
            source = source.taken(terms)
        parts = partition(self.accumulation, ranges.tobytes())
        inner_seeds = work.split(np.repeat(seeds, parts.counts), Site.PARTS + parts.numbers)
        inner = self.inner.evaluate(work, source, parts.parts, inner_seeds, parts.numbers)
        values = Values(inner, int(source.index[0]), work.last(source, parts.parts))
        outer_seeds = work.split(seeds, Site.OUTER)
        if start is None or self._add_last is None or not source.length:  # without terms, c is the result
            return self.outer.evaluate(work, values, parts.groups, outer_seeds, start)
        result = self.outer.evaluate(work, values, parts.groups, outer_seeds, None)
        return self._add_last(work, result, source, seeds, start)


class _EqualParts:
    """The parts of a composite with one inner accumulation."""

    def __init__(self, case: Case, plan: Callable[[Case], Planned]) -> None:
        assert isinstance(case.accumulation, Composite)
        self._kernel: Kernel = plan(_of_terms(case, case.accumulation.inner)).kernel
        self.fast = self._kernel.fast

    def evaluate(self, work: Work, source: Source, ranges: Indices, seeds: Seeds, numbers: Indices) -> Partials:
        return self._kernel.evaluate(work, source, ranges, seeds, None)


class _EachPart:
    """The parts of `Parts`: number n is summed by inner number n, and its result converted to the widest format."""

    def __init__(self, case: Case, plan: Callable[[Case], Planned]) -> None:
        assert isinstance(case.accumulation, Parts)
        self._format = case.accumulation.part_format
        self._kernels: list[Kernel] = []
        self._conversions: list[Conversion] = []
        for inner in case.accumulation.inners:
            self._kernels.append(plan(_of_terms(case, inner)).kernel)
            self._conversions.append(Conversion(inner.result_format, self._format, case, plan))
        self.fast = all(kernel.fast for kernel in self._kernels)

    def evaluate(self, work: Work, source: Source, ranges: Indices, seeds: Seeds, numbers: Indices) -> Partials:
        codes = np.zeros((len(ranges), int(np.prod(source.shape))), self._format.code_dtype)
        for n, (kernel, conversion) in enumerate(zip(self._kernels, self._conversions, strict=True)):
            at = np.flatnonzero(numbers == n)
            if len(at):
                found = kernel.evaluate(work, source, np.ascontiguousarray(ranges[at]), seeds[at], None)
                codes[at] = conversion(found).codes
        return Partials(self._format, codes)


Inner = _EqualParts | _EachPart


class ThroughMemory:
    """Sums in order of the results of parts, each sum rounded to the format in memory."""

    def __init__(self, outer: Case, memory: FloatFormat, plan: Callable[[Case], Planned]) -> None:
        leaf = outer.accumulation
        assert isinstance(leaf, Sequential)
        self._add: LeafKernel = plan(outer).kernel
        stored = replace(lone_term(leaf), format=memory)
        terms = TermRange(leaf.format)
        self._store: LeafKernel = plan(replace(outer, accumulation=stored, terms=terms, c=None)).kernel
        self._load = Conversion(memory, leaf.format, outer, plan)
        self.fast = True

    def evaluate(self, work: Work, source: Source, ranges: Indices, seeds: Seeds, start: Operand | None) -> Partials:
        """Return the running sums of every range; `start` is c."""
        assert isinstance(source, Values)
        steps = int((ranges[:, 1] - ranges[:, 0]).max(initial=0))
        if steps == 0 or source.length == 0:
            return self._add.evaluate(work, source, ranges, seeds, start)
        base, where = int(source.index[0]), source.where.copy()
        for first, stop, _ in ranges.tolist():
            where[first:stop] = np.maximum.accumulate(where[first:stop])
        source = Values(source.values, base, where)
        acc = np.zeros((len(ranges), int(np.prod(source.shape))), self._add.leaf.format.code_dtype)
        if start is not None:
            acc[...] = self._add.seed(work, source, seeds, start).codes
        for t in range(steps):
            at = np.flatnonzero(ranges[:, 0] + t < ranges[:, 1])
            parts, split = ranges[at, 0] + t, work.split(seeds[at], Site.PARTS + t)
            total = self._add.sum(work, source, _single(parts), split, acc[at], None)
            sums, last = Values(total, base, where[parts]), work.split(split, Site.RESULT)
            stored = self._store.sum(work, sums, _single(np.arange(len(at))), last, None, None)
            acc[at] = self._load(stored).codes
        return Partials(self._add.leaf.format, acc)


def _single(terms: Indices) -> Indices:
    """Return the ranges of single terms."""
    return np.stack([terms, terms + 1, np.ones_like(terms)], axis=1)


class PermutedKernel:
    """The kernel of the inner accumulation, on the terms in another order."""

    def __init__(self, case: Case, plan: Callable[[Case], Planned]) -> None:
        assert isinstance(case.accumulation, Permuted)
        self.accumulation = case.accumulation
        self._kernel: Kernel = plan(replace(case, accumulation=case.accumulation.inner, by_vectors=False)).kernel

    @property
    def fast(self) -> bool:
        """Return whether the terms are summed by fast kernels."""
        return self._kernel.fast

    def evaluate(self, work: Work, source: Source, ranges: Indices, seeds: Seeds, start: Operand | None) -> Partials:
        """Return the results of every range; `start` is c."""
        terms, moved = permutation(self.accumulation, ranges.tobytes())
        return self._kernel.evaluate(work, source.taken(terms), moved, seeds, start)


def _of_terms(case: Case, inner: Accumulation) -> Case:
    """Return the case of an inner accumulation."""
    return replace(case, accumulation=inner, c=None, by_vectors=False)


def _of_results(case: Case) -> Case:
    """Return the case of the outer accumulation."""
    accumulation = case.accumulation
    assert isinstance(accumulation, Composite | Parts)
    fmt = accumulation.part_format if isinstance(accumulation, Parts) else accumulation.inner.result_format
    return replace(case, accumulation=accumulation.outer, terms=TermRange(fmt), by_vectors=False, scales=None)


class CompositeCandidate:
    """Accumulates parts, each by the plan of its own accumulation. Never refuses."""

    name = "parts"
    takes = (Composite, Parts)

    def refusal(self, case: Case) -> str | None:
        return None

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> CompositeKernel:
        return CompositeKernel(case, plan)


class PermutedCandidate:
    """Reorders the terms, then accumulates them by the plan of the inner accumulation. Never refuses."""

    name = "permuted"
    takes = (Permuted,)

    def refusal(self, case: Case) -> str | None:
        return None

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> PermutedKernel:
        return PermutedKernel(case, plan)
