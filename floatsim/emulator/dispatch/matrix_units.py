"""Sums of matrix units: instructions on float32 or float64 where these give the bits, or on integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from floatsim._types import Codes, Indices, Seeds
from floatsim.accumulation import Sequential, TensorCore
from floatsim.emulator.dispatch import tensorcore_calls, tensorcore_float32, tensorcore_float64, tensorcore_steps
from floatsim.emulator.dispatch.kernel import Case, Planned, StartValue, Work
from floatsim.emulator.dispatch.operands import Operand, Partials, Products, Source
from floatsim.formats import FP32
from floatsim.formats.rounding import RoundingAttributes
from floatsim.tensorcore.instructions import Instruction

__all__ = [
    "TensorCoreFloat32", "TensorCoreFloat64", "TensorCoreInteger", "TensorCoreKernel", "TensorCoreSteps",
    "fast_kernels",
]  # fmt: skip


def fast_kernels(row: Instruction) -> ModuleType | None:
    """Return the module of kernels on hardware floats that computes an instruction, or None if there is none."""
    return next(
        (module for module in (tensorcore_float32, tensorcore_float64, tensorcore_steps) if module.can_do(row)), None
    )


def _instruction(case: Case) -> Instruction:
    """Return the row of the table that a case's operands, output and scales select."""
    unit, (a, b) = case.accumulation, case.terms
    assert isinstance(unit, TensorCore)
    assert b is not None
    return unit.row(a, b, case.scales)


class TensorCoreKernel:
    """Every range by a chain of instructions. c is rounded to the output's format, ties to even.

    `floats` is the module of fast kernels, or None for the integer kernels.
    """

    fast: ClassVar[bool] = True

    def __init__(self, case: Case, plan: Callable[[Case], Planned], floats: ModuleType | None) -> None:
        self._row, self._floats = _instruction(case), floats
        if case.c is not None:
            plain = replace(case, rounding=RoundingAttributes())
            self._start = StartValue(Sequential(self._row.output), plain, plan)

    def evaluate(self, work: Work, source: Source, ranges: Indices, seeds: Seeds, start: Operand | None) -> Partials:
        """Return the results of every range; `start` is c."""
        assert isinstance(source, Products)
        return self.chains(work, [(source, ranges)], seeds, start)

    def chains(
        self, work: Work, chains: Sequence[tuple[Products, Indices]], seeds: Seeds, start: Operand | None
    ) -> Partials:  # fmt: skip
        """Return the results of chains over their ranges; the D of each chain is the c of the next one."""
        source, ranges = chains[0]
        row = self._row
        out = np.zeros((len(ranges), *source.shape), row.output.code_dtype)
        if start is not None:
            out[...] = self._start(work, source, seeds, start).codes.reshape(out.shape)
        for each, of_chain in chains:
            at = np.flatnonzero(of_chain[:, 1] > of_chain[:, 0])
            if len(at) == len(ranges) > 0:
                self._add(work, each, of_chain, out)
            elif len(at):
                some = out[at]
                self._add(work, each, of_chain[at], some)
                out[at] = some
        codes = out.reshape(len(ranges), math.prod(source.shape))
        return Partials(row.output, codes, (FP32, codes.view(np.float32)) if row.output == FP32 else None)

    def _add(self, work: Work, source: Products, ranges: Indices, out: Codes) -> None:
        """Add the products of each range to the accumulators `out`."""
        (a, b), record = source.matrices(self._floats is not None), None
        if work.record:
            first = work.first.reshape(len(work.first), *source.shape)
            record = tensorcore_calls.Record(source.where, work.counts, first)
        tensorcore_calls.accumulate(self._row, a, b, out, ranges, self._floats, source.scales(), record)


class _FloatCandidate:
    """Instructions whose sums fit hardware floats."""

    name: str
    takes = (TensorCore,)
    floats: Any
    carrier: str

    def refusal(self, case: Case) -> str | None:
        if reason := replace(case, events=case.events - self.floats.COUNTED).float_refusal():
            return reason
        row = _instruction(case)
        return None if self.floats.can_do(row) else f"{row.name} is not computed in {self.carrier}"

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> TensorCoreKernel:
        return TensorCoreKernel(case, plan, self.floats)


class TensorCoreFloat32(_FloatCandidate):
    """Fused blocks of few bits, sixteen columns at a time in float32 and int32."""

    name, floats, carrier = "tensorcore float32", tensorcore_float32, "float32"


class TensorCoreFloat64(_FloatCandidate):
    """The other models of GPUs, and exact sums of FP8 products, in float64 and int64."""

    name, floats, carrier = "tensorcore float64", tensorcore_float64, "float64"


class TensorCoreSteps(_FloatCandidate):
    """Instructions of CPUs, whose operations round one by one."""

    name, floats, carrier = "tensorcore steps", tensorcore_steps, "hardware floats"


class TensorCoreInteger:
    """Instructions on integers. Never refuses."""

    name = "tensorcore integer"
    takes = (TensorCore,)

    def refusal(self, case: Case) -> str | None:
        return None

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> TensorCoreKernel:
        return TensorCoreKernel(case, plan, None)
