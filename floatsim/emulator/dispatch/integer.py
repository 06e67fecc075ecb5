"""The kernels on integers: every leaf, format, rounding and event. They are the last candidates and never refuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from floatsim_kernels.gemm import integer as loops

from floatsim._types import Codes, Indices, Seeds
from floatsim.accumulation import Exact, Kahan, Leaf, Neumaier, ProductLeaf, Sequential, TreeLeaf
from floatsim.emulator.dispatch.kernel import Case, LeafKernel, Planned, Work, programs
from floatsim.emulator.dispatch.operands import Operand, Partials, Source
from floatsim.emulator.params import format_params, rounding_params
from floatsim.formats import FP32, FloatFormat
from floatsim.formats.value_sets import TermRange

__all__ = ["IntegerCandidate", "IntegerKernel"]


class IntegerKernel(LeafKernel):
    """A leaf summed code by code, with the events of every rounding."""

    fast: ClassVar[bool] = False

    def __init__(self, case: Case, plan: Callable[[Case], Planned]) -> None:
        super().__init__(case, plan)
        self._terms, self._params = case.terms, (format_params(self.leaf.format), rounding_params(case.sums))
        self._product_params = rounding_params(case.products)
        product = self.leaf.product if isinstance(self.leaf, ProductLeaf) and case.terms.b is not None else None
        self._product_format = _EXACT_PRODUCTS if product is None else format_params(product)

    def sum(
        self, work: Work, source: Source, ranges: Indices, seeds: Seeds, start: Codes | None, term: Operand | None
    ) -> Partials:
        a, a_format, b, b_format = source.codes()
        shape = (len(ranges), *source.shape)
        out = np.zeros(shape, np.uint64)
        if start is not None:
            out[...] = start.reshape(shape)
        where = source.where if work.record else np.zeros(source.length, np.int64)
        first = work.first.reshape(len(work.first), *source.shape)
        operands = (a, format_params(a_format), b, format_params(b_format), out, *self._params)
        if isinstance(self.leaf, Exact):
            lowest, limbs = limbs_for(self._terms, term.format if term else None)
            c, c_params = _NO_TERM, self._params[0]
            if term is not None:
                c, c_params = term.wide.reshape(source.shape), format_params(term.format)
            events = source.index, where, work.counts, first
            loops.exact(*operands, ranges, seeds, *events, limbs, lowest, c, c_params)
        else:
            common = (*operands, self._product_format, self._product_params)
            tail = (seeds, source.index, where, work.counts, first)
            if isinstance(self.leaf, TreeLeaf):
                table, orders, merges, depth = programs(self.leaf.tree, ranges.tobytes())
                loops.tree(*common, table, *tail, orders, merges, depth)
            else:
                _IN_ORDER[type(self.leaf)](*common, ranges, *tail)
        return Partials(self.leaf.format, codes=out.reshape(len(ranges), math.prod(source.shape)))


_IN_ORDER: dict[type[Leaf], Any] = {Sequential: loops.sequential, Kahan: loops.kahan, Neumaier: loops.neumaier}
"""The kernels of sums in order: `loops.in_order` with a table of passes (x, y, 1 for x - y, row of the result) for each
term, a table for the step after the last term, and whether an infinite or NaN t clears comp.

The pass whose x is S is the addition of the term. Only this pass counts absorbed terms; S + COMP is no such pass. The
passes whose x is neither S nor TERM do not run where t is infinite or NaN. A table with more than one pass leaves the
new accumulator in T.
"""
_EXACT_PRODUCTS = np.zeros_like(format_params(FP32))
_NO_TERM = np.empty((0, 0, 0), np.uint64)


def limbs_for(terms: TermRange, c: FloatFormat | None) -> tuple[int, Indices]:
    """Return (weight of the lowest bit, scratch limbs) of an accumulator that holds every sum of terms, and c, exactly.

    It has room for every product bit, for the carries of 2**31 terms, and for the 128-bit window of the smallest term.
    """
    both = [terms] if c is None else [terms, TermRange(c)]
    lowest = min(t.lowest - t.precision - 128 for t in both)
    highest = max(t.highest for t in both) + 2 + 31
    return lowest, np.zeros((highest - lowest) // 32 + 6, np.int64)


class IntegerCandidate:
    """Sums on integers. Never refuses."""

    name = "integer"
    takes = (Leaf,)

    def refusal(self, case: Case) -> str | None:
        return None

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> IntegerKernel:
        return IntegerKernel(case, plan)
