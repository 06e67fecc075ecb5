"""The parts of GPU kernels: converted operands, the residue of K first, and three products of TF32 parts.

Each is the kernel of its inner accumulation, on other operands or on ranges of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from floatsim._types import Codes, Indices, Seeds
from floatsim.accumulation import Converted, Residue, Tf32x3
from floatsim.emulator.dispatch.kernel import Case, Kernel, Planned, Work
from floatsim.emulator.dispatch.matrix_units import TensorCoreKernel
from floatsim.emulator.dispatch.operands import Operand, Partials, Products, Source
from floatsim.emulator.elementwise.execute import convert, elementwise
from floatsim.formats import FP32, TF32, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import Rounding, RoundingAttributes
from floatsim.formats.value_sets import TermRange

__all__ = ["ConvertedCandidate", "ResidueCandidate", "Tf32x3Candidate"]


def _converted(codes: Codes, source: FloatFormat, target: FloatFormat, rounding: Rounding) -> Codes:
    if source == target:
        return codes
    options = CallOptions(RoundingAttributes(rounding))
    converted, _ = convert(np.asarray(codes, source.code_dtype), source, target, options, False)
    return converted


class ConvertedKernel:
    """The kernel of the inner accumulation, on converted operands."""

    def __init__(self, case: Case, plan: Callable[[Case], Planned]) -> None:
        assert isinstance(case.accumulation, Converted)
        self._format, self._rounding = case.accumulation.format, case.accumulation.rounding
        terms = TermRange(self._format, None if case.terms.b is None else self._format)
        inner = replace(case, accumulation=case.accumulation.inner, terms=terms, by_vectors=False)
        self._kernel: Kernel = plan(inner).kernel

    @property
    def fast(self) -> bool:
        """Return whether the terms are summed by fast kernels."""
        return self._kernel.fast

    def evaluate(self, work: Work, source: Source, ranges: Indices, seeds: Seeds, start: Operand | None) -> Partials:
        """Return the results of every range; `start` is c."""
        change = "converted", self._format, self._rounding
        return self._kernel.evaluate(work, source.changed(change, self._change), ranges, seeds, start)

    def _change(self, codes: Codes, fmt: FloatFormat) -> tuple[Codes, FloatFormat]:
        return _converted(codes, fmt, self._format, self._rounding), self._format


class ResidueKernel:
    """The chains of the inner matrix unit over the first K % tile terms of each range, continued over the others."""

    def __init__(self, case: Case, plan: Callable[[Case], Planned]) -> None:
        assert isinstance(case.accumulation, Residue)
        self._tile = case.accumulation.tile
        self._kernel: TensorCoreKernel = plan(replace(case, accumulation=case.accumulation.inner)).kernel

    @property
    def fast(self) -> bool:
        """Return whether the terms are summed by fast kernels."""
        return self._kernel.fast

    def evaluate(self, work: Work, source: Source, ranges: Indices, seeds: Seeds, start: Operand | None) -> Partials:
        """Return the results of every range; `start` is c."""
        assert isinstance(source, Products)
        first, stop, step = ranges.T
        cuts = first + (stop - first) % self._tile
        chains = [np.stack(columns, axis=1) for columns in ((first, cuts, step), (cuts, stop, step))]
        return self._kernel.chains(work, [(source, chain) for chain in chains], seeds, start)


class Tf32x3Kernel:
    """One chain of the inner matrix unit over the products of small and large, large and small, large and large."""

    def __init__(self, case: Case, plan: Callable[[Case], Planned]) -> None:
        assert isinstance(case.accumulation, Tf32x3)
        inner = replace(case, accumulation=case.accumulation.inner, terms=TermRange(TF32, TF32))
        self._kernel: TensorCoreKernel = plan(inner).kernel

    @property
    def fast(self) -> bool:
        """Return whether the terms are summed by fast kernels."""
        return self._kernel.fast

    def evaluate(self, work: Work, source: Source, ranges: Indices, seeds: Seeds, start: Operand | None) -> Partials:
        """Return the results of every range; `start` is c."""
        assert isinstance(source, Products)
        large, small = source.changed("large", _large_part), source.changed("small", _small_part)
        chains = [(small.beside(large), ranges), (large.beside(small), ranges), (large, ranges)]
        return self._kernel.chains(work, chains, seeds, start)


def _large_part(codes: Codes, fmt: FloatFormat) -> tuple[Codes, FloatFormat]:
    """Return FP32 numbers rounded to TF32, ties away from zero."""
    return _converted(codes, fmt, TF32, Rounding.TIES_TO_AWAY), TF32


def _small_part(codes: Codes, fmt: FloatFormat) -> tuple[Codes, FloatFormat]:
    """Return the differences of FP32 numbers and their large parts, cut off to TF32."""
    exactly = CallOptions(RoundingAttributes())
    difference, _ = elementwise("subtract", [(codes, fmt), _large_part(codes, fmt)], FP32, exactly, False)
    return _converted(difference, FP32, TF32, Rounding.TOWARD_ZERO), TF32


class ConvertedCandidate:
    """Converts the operands, then accumulates by the plan of the inner accumulation. Never refuses."""

    name = "converted"
    takes = (Converted,)

    def refusal(self, case: Case) -> str | None:
        return None

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> ConvertedKernel:
        return ConvertedKernel(case, plan)


class ResidueCandidate:
    """Accumulates the residue of K, then whole tiles, by the plan of the matrix unit. Never refuses."""

    name = "residue"
    takes = (Residue,)

    def refusal(self, case: Case) -> str | None:
        return None

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> ResidueKernel:
        return ResidueKernel(case, plan)


class Tf32x3Candidate:
    """Accumulates three products of TF32 parts by the plan of the matrix unit. Never refuses."""

    name = "tf32x3"
    takes = (Tf32x3,)

    def refusal(self, case: Case) -> str | None:
        return None

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> Tf32x3Kernel:
        return Tf32x3Kernel(case, plan)
