"""Sequential sums of rounded products in float32 whose events are counted on the way.

Overflows and NaNs stay in the sums, and only products underflow. If no more is asked for, the sums are computed as if
nothing were counted, tiny products are searched where there can be some, and only rows with an infinite or NaN result
are computed again with everything counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from floatsim_kernels.gemm import float32_counting as loops
from floatsim_kernels.rounding import float32 as steps

from floatsim._types import Codes, Floats, Indices, Seeds
from floatsim.accumulation import Sequential
from floatsim.emulator.dispatch.integer import IntegerKernel
from floatsim.emulator.dispatch.kernel import NEVER, Case, FloatKernel, LeafKernel, Planned, Work, by_range
from floatsim.emulator.dispatch.operands import Operand, Partials, Source
from floatsim.emulator.params import counting_rounding, fast_float32_rounding
from floatsim.emulator.proofs import counted_in_float32
from floatsim.emulator.unpack import unpack
from floatsim.formats import BF16, FP32
from floatsim.formats.rounding import EVENT_BITS, Overflow, Rounding
from floatsim.formats.value_sets import contains

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["STICKY", "Counting", "CountingKernel", "EventCounter"]

STICKY = frozenset({"overflow", "invalid", "nan", "underflow", "flushed"})
"""Events that the result or the products show, so that the sums need not be watched."""

_SITES = ("product", "sum")
_BITS = [(_SITES.index(site), name) for site, name in (event.split() for event in loops.EVENTS)]
_OF_PRODUCTS = ("underflow", "flushed")
_LATE = np.iinfo(np.int32).max


class EventCounter(NamedTuple):
    """The counting kernels' arguments for a format, and their calls."""

    bfloat: bool
    terms: int
    grid: NDArray[np.uint32]
    quick: NDArray[np.uint32]
    exact: bool  # whether all products are in float32; else those are that are not below its normal numbers

    def accepts(self, a: Floats, b: Floats) -> bool:
        """Return whether the numbers are finite and their products exact in float32."""
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            return False
        return self.exact or _smallest(a) * _smallest(b) >= float(FP32.smallest_normal)

    def wanted(self, events: frozenset[str]) -> np.uint32:
        """Return the bits of these events in the event words."""
        return np.uint32(sum(1 << bit for bit, (_, name) in enumerate(_BITS) if name in events))

    def record(
        self, a: Floats, b: Floats, out: Floats, ranges: Indices, where: Indices, events: frozenset[str],
        counts: Indices, first: Indices, fast: Callable[[], None] | None,
    ) -> None:  # fmt: skip
        """Sum into `out` (ranges, M, N), add to `counts` (2, 256) of event bytes, and take the least k into `first`.

        `fast` sums into `out` without a look at events.
        """
        places = np.full(first.shape, _LATE, np.int32)
        tally = np.zeros(len(_BITS), np.int64)
        if fast is None or not events <= STICKY:
            self._sum(a, b, out, ranges, where, self.wanted(events), tally, places)
        else:
            start = out.copy()
            fast()
            if products := self.wanted(events & frozenset(_OF_PRODUCTS)):
                tiny_products = loops.tiny_products(self.bfloat)
                tiny_products(a, b, ranges, where, products, tally, places, self.grid)
            self._again(a, b, out, start, ranges, where, self.wanted(events - frozenset(_OF_PRODUCTS)), tally, places)
        np.minimum(first, np.where(places == _LATE, np.int64(NEVER), places), out=first)
        for (site, name), number in zip(_BITS, tally, strict=True):
            if name in EVENT_BITS:
                counts[site, EVENT_BITS[name]] += number
        lengths = np.maximum(-(-(ranges[:, 1] - ranges[:, 0]) // ranges[:, 2]), 0)
        steps = int(lengths.sum()) * out.shape[1] * out.shape[2]
        for site in range(2):  # the rest of them; a sum of bins is all that counts are taken for
            counts[site, 0] += steps - sum(
                int(n) for (s, name), n in zip(_BITS, tally, strict=True) if s == site and name in EVENT_BITS
            )

    def _sum(self, *arguments: Any) -> None:
        loops.counting(self.bfloat, self.terms)(*arguments, self.grid, self.quick)

    def _again(
        self, a: Floats, b: Floats, out: Floats, start: Floats, ranges: Indices, where: Indices, wanted: np.uint32,
        tally: Indices, places: NDArray[np.int32],
    ) -> None:  # fmt: skip
        """The rows with a result that is not finite."""
        for part in range(len(ranges)):
            rows = np.flatnonzero(~np.isfinite(out[part]).all(axis=1))
            if rows.size:
                some = np.ascontiguousarray(places[:, rows])
                sums = np.ascontiguousarray(start[part : part + 1, rows])
                one = ranges[part : part + 1]
                self._sum(a[rows], b, sums, one, where, wanted, tally, some)
                places[:, rows] = some


def _smallest(x: Floats) -> float:
    """The smallest non-zero magnitude."""
    sizes = np.abs(x)
    return float(np.min(sizes, where=sizes > 0, initial=np.inf))


class CountingKernel(LeafKernel):
    """A leaf whose events are counted in float32, or by the integer kernel where the numbers are not for that."""

    def __init__(self, case: Case, plan: Callable[[Case], Planned], counter: EventCounter) -> None:
        super().__init__(case, plan)
        self._counter, self._integer = counter, IntegerKernel(case, plan)
        fast = plan(replace(case, events=frozenset(), by_vectors=False)).kernel
        self._fast = fast.kernel if isinstance(fast, FloatKernel) and fast.carrier == FP32 else None

    def sum(
        self, work: Work, source: Source, ranges: Indices, seeds: Seeds, start: Codes | None, term: Operand | None
    ) -> Partials:
        operands = source.floats(FP32)
        if not all(self._counter.accepts(a, b) for a, b, _ in operands):
            return self._integer.sum(work, source, ranges, seeds, start, term)
        batch, rows, columns = source.shape
        out = np.zeros((batch, len(ranges), rows, columns), np.float32)
        if start is not None:
            out[...] = unpack(start.astype(self.leaf.format.code_dtype), self.leaf.format, FP32).reshape(out.shape)
        first = work.first.reshape(len(work.first), *source.shape)
        for n, (a, b, index) in enumerate(operands):

            def fast(a: Floats = a, b: Floats = b, n: int = n, index: Indices = index) -> None:
                assert self._fast is not None
                self._fast(a, b, out[n], ranges, index, seeds, start is None)

            self._counter.record(
                a, b, out[n], ranges, source.where, work.events, work.counts, first[:, n],
                None if self._fast is None else fast,
            )  # fmt: skip
        return Partials(self.leaf.format, floats=(FP32, by_range(out)))


class Counting:
    """Counts the events of sequential sums of rounded products, ties to even, in float32."""

    name = "counting float32"
    takes = (Sequential,)

    def refusal(self, case: Case) -> str | None:
        leaf, terms, attributes = case.accumulation, case.terms, case.sums
        assert isinstance(leaf, Sequential)
        fmt = leaf.format
        if not case.events:
            return "no events are counted"
        if not case.cpu.keeps_subnormals:
            return "this thread's floating-point environment flushes subnormals or does not round to nearest"
        if leaf.product != fmt or terms.b is None or case.products != attributes:
            return "only products that are rounded as the sums"
        if (
            attributes.rounding is not Rounding.TIES_TO_EVEN
            or attributes.overflow is not Overflow.INFINITY
            or attributes.ftz
            or attributes.daz
        ):
            return "only ties to even, without saturation, FTZ and DAZ"
        inside = all(contains(FP32, factor, specials=False) for factor in terms.factors)
        if terms.precision > FP32.precision or not inside:
            return "float32 does not hold every operand and the bits of every product"
        return None if fmt == BF16 or counted_in_float32(fmt) else f"float32 does not round to {fmt} once"

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> CountingKernel:
        fmt, terms, attributes = case.accumulation.result_format, case.terms, case.sums
        fast = fast_float32_rounding(fmt, steps.RNE, steps.TIES_TO_EVEN, attributes)
        exact = terms.lowest >= FP32.emin and terms.highest <= FP32.emax
        rounds_bits = fmt == BF16 and all(factor.precision <= fmt.precision for factor in terms.factors)
        products = steps.ROUNDED if rounds_bits else steps.ROUNDED_SUBNORMAL
        params = counting_rounding(fmt, attributes.tininess)
        counter = EventCounter(fmt == BF16, products, params, _NOT_FAST if fast is None else fast, exact)
        return CountingKernel(case, plan, counter)


_NOT_FAST = np.zeros(steps.PARAMS_SIZE, np.uint32)
