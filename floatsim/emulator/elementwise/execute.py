"""Carry out element-wise operations on arrays of codes: find the plan, broadcast the operands, and run the kernel."""

from __future__ import annotations

import math
from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from floatsim_kernels.runtime import cpu

from floatsim._types import Codes, Seeds
from floatsim.emulator.elementwise import pieces
from floatsim.emulator.elementwise.candidates import ELEMENTWISE
from floatsim.emulator.elementwise.case import SIZES, Case
from floatsim.emulator.elementwise.kernel import Cut
from floatsim.emulator.elementwise.pieces import NO_DRAWS, Array, Arrays, Events, draws_of, in_pieces
from floatsim.emulator.elementwise.plan import Plan, plan
from floatsim.emulator.planning import processor
from floatsim.formats import FP64, FloatFormat
from floatsim.formats._hashing import IdentityCache
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Operand", "convert", "decode", "elementwise", "execute", "plan_elementwise", "quantize"]

Operand: TypeAlias = tuple[Any, FloatFormat]

_RECENT = IdentityCache()
_formats_of = itemgetter(1)


def plan_elementwise(
    name: str, operands: list[Operand], fmt: FloatFormat, attributes: RoundingAttributes, events: bool, size: int
) -> Plan:
    """Return the plan of a call of `elementwise` with these arguments, on `size` elements."""
    kind = SIZES[bisect_right(SIZES, size) - 1]
    sources, default = tuple(map(_formats_of, operands)), cpu.environment_is_default()
    key = (name, fmt, attributes, events, kind, default, ELEMENTWISE.allowed, *sources)
    found: Plan | None = _RECENT.find(key)
    if found is None:
        found = plan(Case(name, sources, fmt, attributes, processor(default), events, kind))
        _RECENT.keep(key, found)
    return found


def elementwise(
    name: str, operands: list[Operand], fmt: FloatFormat, options: CallOptions, want_events: bool = True,
    out: Codes | None = None,
) -> tuple[Codes, Events | None]:  # fmt: skip
    """Return (codes in `fmt`, event bytes) of an operation or function of broadcastable arrays of codes.

    Without `want_events` the events are None. The codes may use the memory of `out`, which has the shape of the result.
    """
    shape = operands[0][0].shape
    for codes, _ in operands:
        if codes.shape != shape:
            shape = np.broadcast_shapes(shape, codes.shape)
    planned = plan_elementwise(name, operands, fmt, options.attributes, want_events, math.prod(shape))
    return execute(planned, operands, shape, options, out)


def execute(
    plan: Plan, operands: list[Operand], shape: tuple[int, ...], options: CallOptions, out: Codes | None = None
) -> tuple[Codes, Events | None]:
    """Return (codes, event bytes or None) of a plan's operation on operands that broadcast to a shape."""
    kernel, case = plan.kernel, plan.case
    arrays: Arrays = []
    for codes, source in operands:
        if kernel.cut is Cut.BROADCAST:
            arrays.append(codes)
        else:
            whole = codes if codes.shape == shape else np.broadcast_to(codes, shape)
            arrays.append(np.ascontiguousarray(whole, source.code_dtype).reshape(-1))
    results = out if out is not None and _may_write(out, plan, shape, arrays) else np.empty(shape, plan.code_dtype)
    events = np.empty(shape, np.uint8) if case.events else None
    draws = draws_of(options) if case.draws else NO_DRAWS
    if kernel.cut is Cut.BROADCAST:
        kernel.run(arrays, results, None, draws)
        return results, None
    flat, happened = results.reshape(-1), None if events is None else events.reshape(-1)
    if flat.size <= pieces.PIECE or kernel.cut is Cut.WHOLE:
        kernel.run(arrays, flat, happened, draws)
        return results, events
    count = len(arrays)

    def run(cut: Arrays, written: Array, draws: Seeds) -> None:
        kernel.run(cut[:count], written, cut[count] if case.events else None, draws)

    together = arrays if happened is None else [*arrays, happened]
    in_pieces(case.name, run, together, flat, draws, long=kernel.cut is Cut.LONG_PIECES)
    return results, events


def _may_write(out: Codes, plan: Plan, shape: tuple[int, ...], read: Arrays) -> bool:
    """Return whether a kernel may write to `out` while it reads the operands."""
    fits = out.shape == shape and out.dtype == plan.code_dtype and out.flags.c_contiguous
    return fits and not any(np.may_share_memory(out, codes) for codes in read)


# -- conversions -------------------------------------------------------------------------------------------------------


def convert(
    codes: Codes, source: FloatFormat, fmt: FloatFormat, options: CallOptions, want_events: bool = True,
    out: Codes | None = None,
) -> tuple[Codes, Events | None]:  # fmt: skip
    """Return (codes in `fmt`, event bytes if wanted) of a conversion. The codes may use the memory of `out`."""
    return elementwise("convert", [(codes, source)], fmt, options, want_events, out)


_EXACT = CallOptions(RoundingAttributes())


def decode(codes: Codes, fmt: FloatFormat, out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return the exact values as float64, in `out` if given. Every NaN becomes the canonical NaN."""
    if out is None:
        return elementwise("convert", [(codes, fmt)], FP64, _EXACT, False)[0].view(np.float64)
    target = out.view(np.uint64)
    values, _ = elementwise("convert", [(codes, fmt)], FP64, _EXACT, False, target)
    if values is not target:
        target[...] = values
    return out


def quantize(
    codes: Codes, carrier: FloatFormat, fmt: FloatFormat, options: CallOptions, want_events: bool, out: Codes
) -> Events | None:
    """Write the values of `codes`, rounded to `fmt`, to `out`, both in the carrier. Return event bytes if wanted."""
    rounded, events = elementwise("quantize", [(codes, carrier)], fmt, options, want_events, out)
    if rounded is not out:
        out[...] = rounded
    return events
