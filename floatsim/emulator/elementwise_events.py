"""Kernels that find the events of fast element-wise results: when they apply, and their calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from floatsim_kernels.elementwise import events as loops
from floatsim_kernels.elementwise import packed
from floatsim_kernels.runtime import cpu as machine

from floatsim.emulator.proofs import events_follow_from_results, odd_float64_rounds_once
from floatsim.emulator.unpack import reader_of
from floatsim.formats import FP64, FloatFormat
from floatsim.formats.rounding import RoundingAttributes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

__all__ = ["EventKernel", "event_histogram", "event_kernel", "rare_elements"]

EventKernel: TypeAlias = Callable[["list[Array]", "Array", "Array"], None]
"""Called as `kernel(operands, results, events)` with flat arrays; it writes the events."""


_FEWEST = 1 << 12
"""Elements from which the kernels are worth their compilation. The integer kernels take 0.1 ms for so many."""
_ARITHMETIC = {
    "add": packed.ADD, "subtract": packed.SUBTRACT, "multiply": packed.MULTIPLY, "divide": packed.DIVIDE,
    "sqrt": packed.SQRT, "fma": packed.FMA,
}  # fmt: skip
_EXTREMA = ("minimum", "maximum", "minimum_number", "maximum_number")
_INTEGRAL = {"rint": True, "floor": False, "ceil": False, "trunc": False}
"""The roundings to integers, and whether a difference is an event."""


@functools.lru_cache(maxsize=1024)
def _kernel(
    name: str, sources: tuple[FloatFormat, ...], fmt: FloatFormat, attributes: RoundingAttributes
) -> EventKernel | None:
    own = reader_of(fmt)
    if own is None or not events_follow_from_results(attributes):
        return None
    ends = np.array([np.ldexp(1.0, fmt.emin), fmt.max])
    if name == "convert":
        source = reader_of(sources[0])
        if source is None:
            return None
        convert = loops.conversion(source.number, own.number)
        return lambda x, out, events: convert(x[0], out, source.params, own.params, ends, events)
    if any(source != fmt for source in sources) or fmt == FP64:
        return None
    if name in _EXTREMA:
        extremum = loops.extremum(own.number)
        return lambda x, out, events: extremum(x[0], x[1], out, own.params, ends, events)
    if name in _INTEGRAL:
        integral = loops.integral(own.number, _INTEGRAL[name])
        return lambda x, out, events: integral(x[0], out, own.params, ends, events)
    if name not in _ARITHMETIC or not odd_float64_rounds_once(fmt, attributes.rounding, 0):
        return None
    loop = loops.arithmetic(_ARITHMETIC[name], own.number)
    return lambda x, out, events: loop(x[0], x[min(1, len(x) - 1)], x[-1], out, own.params, ends, events)


def event_kernel(
    name: str, sources: tuple[FloatFormat, ...], fmt: FloatFormat, attributes: RoundingAttributes, size: int
) -> EventKernel | None:
    """Return the kernel that finds the events of an operation's results, or None if only the integer kernels do."""
    if size < _FEWEST or not machine.environment_is_default():
        return None
    return _kernel(name, sources, fmt, attributes)


def rare_elements(events: Array) -> NDArray[np.intp]:
    """Return the places of the elements whose events the integer kernels have to decide."""
    return np.flatnonzero(events == loops.RARE)


def event_histogram(events: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return how often each event byte occurs, an array of 256 counts."""
    if events.size < _FEWEST:
        return np.bincount(events.ravel(), minlength=256).astype(np.int64)
    counts = np.zeros((4, 256), np.int64)
    loops.histogram(np.ascontiguousarray(events).reshape(-1), counts)
    total: NDArray[np.int64] = counts.sum(axis=0)
    return total
