"""Rows that the threads of a GPU share, in hardware float32, one row after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from floatsim_kernels.reduce import threads as loops
from floatsim_kernels.runtime import cpu

from floatsim._types import Codes, Floats, Indices, Seeds
from floatsim.accumulation import Accumulation, Leaf, Pairwise, Sequential, Threads, Welford, leaves, settled
from floatsim.accumulation.lane_programs import lane_program
from floatsim.accumulation.trees import stack_depth
from floatsim.emulator.dispatch.composite import CompositeKernel
from floatsim.emulator.dispatch.kernel import Case, Planned, Work
from floatsim.emulator.dispatch.operands import Operand, Partials, Source, Values
from floatsim.emulator.unpack import unpack
from floatsim.formats import FP32, FloatFormat
from floatsim.formats.rounding import Overflow, Rounding, RoundingAttributes
from floatsim.formats.value_sets import contains

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ThreadsCandidate", "ThreadsKernel", "moments", "moments_refusal"]


class _Lanes(NamedTuple):
    """The arguments of the kernels; `floatsim_kernels.reduce.threads` documents them."""

    layout: Indices
    lanes: int
    order: NDArray[np.int32]
    merges: NDArray[np.int8]
    depth: int


@lru_cache(maxsize=64)
def _lanes(order: Threads, n: int) -> _Lanes:
    """Return the lanes of n terms. The kernels' lanes are those that lie together in a round of terms."""
    threads, each, width = order.threads, order.accumulators, order.width
    head = order.head(n)
    whole = order.whole(n - head)
    made = lane_program(order.outer, threads * each)
    assert made is not None
    lanes = made.order
    if width == each:  # term j of a round belongs to lane j
        layout = head, order.shift * each, each, whole, threads * width, 1, 0, threads
    elif width == 1:  # the first accumulators of all threads lie together, then the second ones
        layout = head, order.shift, 1, whole, threads, each, 0, threads
        lanes = lanes % each * threads + lanes // each
    else:
        layout = head, order.shift, 1, whole, threads * width, 1, width, threads
    array = np.array(layout, np.int64)
    return _Lanes(array, threads * each, np.ascontiguousarray(lanes, np.int32), made.merges, stack_depth(made))


def _plain(leaf: Leaf, call: RoundingAttributes) -> bool:
    return leaf.format == FP32 and all(
        attributes.rounding is Rounding.TIES_TO_EVEN
        and not attributes.ftz
        and not attributes.daz
        and attributes.overflow is Overflow.INFINITY
        for attributes in settled(leaf, call)
    )


def _refusal(order: Accumulation, call: RoundingAttributes) -> str | None:
    assert isinstance(order, Threads)
    if not isinstance(order.inner, Sequential) or not all(_plain(leaf, call) for leaf in leaves(order)):
        return "only sums in order in FP32, ties to even, without saturation, FTZ and DAZ"
    return _layout_refusal(order)


def _layout_refusal(order: Threads) -> str | None:
    if order.accumulators not in (1, order.width) and order.width != 1:
        return "only one accumulator, or one for each term of a vector"
    if lane_program(order.outer, order.threads * order.accumulators) is None:
        return "the accumulators are added by an unusual description"
    return None


class ThreadsKernel:
    """Sums of rows whose terms lie together; others are summed by the plans of the parts."""

    fast: ClassVar[bool] = True

    def __init__(self, case: Case, plan: Callable[[Case], Planned]) -> None:
        assert isinstance(case.accumulation, Threads)
        self._order = case.accumulation
        self._others = CompositeKernel(case, plan)

    def evaluate(self, work: Work, source: Source, ranges: Indices, seeds: Seeds, start: Operand | None) -> Partials:
        """Return the results of every range; there is no c."""
        rows = self._rows(source, ranges)
        if rows is None:
            return self._others.evaluate(work, source, ranges, seeds, start)
        out = np.empty(len(rows[0]), np.float32)
        lanes = _lanes(self._order, rows[0].shape[1])
        (loops.sums if len(rows) == 1 else loops.dots)(*rows, *lanes, out)
        return Partials(FP32, floats=(FP32, out.reshape(1, -1)))

    def _rows(self, source: Source, ranges: Indices) -> tuple[Floats, ...] | None:
        """Return the terms of every result as rows, or the rows of both factors; None where they are no rows."""
        if len(ranges) != 1 or ranges[0].tolist() != [0, source.length, 1] or not source.length:
            return None
        if isinstance(source, Values):
            codes = source.values.codes
            return (_floats(codes.T, source.values.format),) if codes.T.flags.c_contiguous else None
        if source.shape[1:] != (1, 1):
            return None
        a, a_format, b, b_format = source.narrow_codes()
        return tuple(_floats(x.reshape(len(x), -1), fmt) for x, fmt in ((a, a_format), (b, b_format)))


def _floats(codes: Codes, fmt: FloatFormat) -> Floats:
    if fmt == FP32:
        return np.ascontiguousarray(codes, np.uint32).view(np.float32)
    return unpack(np.ascontiguousarray(codes), fmt, FP32)


class ThreadsCandidate:
    """Rows of numbers of FP32, ties to even, without events and c."""

    name = "threads"
    takes = (Threads,)

    def refusal(self, case: Case) -> str | None:
        if (reason := case.float_refusal()) is not None:
            return reason
        if case.c is not None:
            return "c is added"
        if not all(contains(FP32, factor, specials=False) for factor in case.terms.factors):
            return "terms are not all numbers of FP32"
        inner = case.accumulation.inner  # type: ignore[attr-defined]
        if case.terms.b is not None and getattr(inner, "product", None) is not None:
            return "products are rounded before they are added"
        return _refusal(case.accumulation, case.rounding)

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> ThreadsKernel:
        return ThreadsKernel(case, plan)


# -- moments -----------------------------------------------------------------------------------------------------------


def moments_refusal(order: Welford, fmt: FloatFormat, call: RoundingAttributes) -> str | None:
    """Return why `moments` does not compute the moments of values of a format."""
    if not cpu.environment_is_default():
        return "this thread's floating-point environment flushes subnormals or does not round to nearest"
    if not contains(FP32, fmt, specials=False):
        return "terms are not all numbers of FP32"
    if isinstance(order.order, Threads) and (reason := _layout_refusal(order.order)) is not None:
        return reason
    if not all(_plain(leaf, call) for leaf in leaves(order.order)):
        return "only FP32, ties to even, without saturation, FTZ and DAZ"
    return None


def moments(order: Welford, rows: Codes, fmt: FloatFormat) -> Any:
    """Return the means and the sums of squared differences of rows of codes, as float32 (2, rows)."""
    x = _floats(rows, fmt)
    out = np.empty((2, len(x)), np.float32)
    lanes = _moment_lanes(order, x.shape[1])
    runs = _runs(lanes.order.tobytes(), lanes.merges.tobytes())
    loops.moments(x, lanes.layout, lanes.lanes, runs, order.steps == "reciprocal", out)
    return out


@lru_cache(maxsize=64)
def _runs(order: bytes, merges: bytes) -> Indices:
    """Return the additions of a program as runs (a, b, n) of independent ones: lane a + i gets those of a + i and b +
    i."""
    lanes, additions = np.frombuffer(order, np.int32).tolist(), np.frombuffer(merges, np.int8).tolist()
    stack: list[tuple[int, int]] = []  # the lane of a value, and its height
    found: list[tuple[int, int, int]] = []
    for lane, after in zip(lanes, additions, strict=True):
        stack.append((lane, 0))
        for _ in range(after):
            right, below = stack.pop()
            left, height = stack.pop()
            level = max(below, height) + 1
            found.append((level, left, right))
            stack.append((left, level))
    runs: list[list[int]] = []
    before = 0
    for level, left, right in sorted(found):
        if runs and level == before and [left, right] == [runs[-1][0] + runs[-1][2], runs[-1][1] + runs[-1][2]]:
            runs[-1][2] += 1
        else:
            runs.append([left, right, 1])
        before = level
    return np.array(runs, np.int64).reshape(-1, 3)


def _moment_lanes(order: Welford, n: int) -> _Lanes:
    shared = order.order
    if not isinstance(shared, Threads):
        shared = Threads(Sequential(order.format), n if isinstance(shared, Pairwise) else 1, shared)
    return _lanes(shared, n)
