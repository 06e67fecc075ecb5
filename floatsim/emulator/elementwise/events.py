"""Kernels that find the events of fast element-wise results: when they apply, and their calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from floatsim_kernels.elementwise import events as loops
from floatsim_kernels.elementwise import packed

from floatsim._types import Seeds
from floatsim.emulator.elementwise.case import LONG, Case
from floatsim.emulator.elementwise.operations import Family
from floatsim.emulator.elementwise.pieces import Array, Events
from floatsim.emulator.proofs import events_follow_from_results, odd_float64_rounds_once
from floatsim.emulator.unpack import reader_of
from floatsim.formats import FP64

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["EventKernel", "complete", "event_histogram", "finder", "refusal"]

EventKernel: TypeAlias = Callable[[Sequence[Array], Array, Events], None]
"""Called as `kernel(codes, results, events)` with flat arrays; it writes the events, and RARE where it decides none."""

_FAMILIES = frozenset({Family.CONVERSION, Family.ARITHMETIC, Family.INTEGRAL, Family.EXTREMUM})


def refusal(case: Case) -> str | None:
    """Return why only the integer kernels find the events of a case, or None."""
    family, fmt = case.operation.family, case.fmt
    if family not in _FAMILIES:
        return f"no kernel finds the events of {case.name}"
    if case.size < LONG:
        return "the integer kernels find the events of few elements"
    if (reason := case.cpu.refusal()) is not None:
        return reason
    if not events_follow_from_results(case.attributes):
        return "with DAZ, FTZ or stochastic rounding, events do not follow from results"
    if family is Family.CONVERSION:
        unread = [x.name for x in (*case.sources, fmt) if reader_of(x) is None]
        return f"{unread[0]} is not read as hardware floats" if unread else None
    if fmt == FP64 or reader_of(fmt) is None:
        return f"{fmt.name} is not read as float32 numbers"
    if family is Family.ARITHMETIC and not odd_float64_rounds_once(fmt, case.attributes.rounding, 0):
        return f"errors of results in {fmt.name} are no float64 numbers"
    return case.mixed()


def finder(case: Case) -> EventKernel:
    """Return the kernel that finds the events of a case that is not refused."""
    operation, fmt = case.operation, case.fmt
    own, ends = reader_of(fmt), np.array([np.ldexp(1.0, fmt.emin), fmt.max])
    assert own is not None
    if operation.family is Family.CONVERSION:
        source = reader_of(case.sources[0])
        assert source is not None
        convert, read = loops.conversion(source.number, own.number), source.params
        return lambda x, out, events: convert(x[0], out, read, own.params, ends, events)
    if operation.family is Family.EXTREMUM:
        extremum = loops.extremum(own.number)
        return lambda x, out, events: extremum(x[0], x[1], out, own.params, ends, events)
    if operation.family is Family.INTEGRAL:
        integral = loops.integral(own.number, bool(operation.numbers[-1]))  # whether a difference is an event
        return lambda x, out, events: integral(x[0], out, own.params, ends, events)
    loop = loops.arithmetic(getattr(packed, operation.packed), own.number)
    return lambda x, out, events: loop(x[0], x[min(1, len(x) - 1)], x[-1], out, own.params, ends, events)


def complete(codes: Sequence[Array], out: Array, events: Events, draws: Seeds, integers: Callable[..., None]) -> None:
    """Write the events of the rare elements, which the integer kernels have to decide."""
    rare = np.flatnonzero(events == loops.RARE)
    if rare.size:
        happened = np.empty(rare.size, np.uint8)
        integers([x[rare] for x in codes], np.empty(rare.size, out.dtype), happened, draws)
        events[rare] = happened


def event_histogram(events: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return how often each event byte occurs, an array of 256 counts."""
    if events.size < LONG:
        return np.bincount(events.ravel(), minlength=256).astype(np.int64)
    counts = np.zeros((4, 256), np.int64)
    loops.histogram(np.ascontiguousarray(events).reshape(-1), counts)
    total: NDArray[np.int64] = counts.sum(axis=0)
    return total
