"""Mathematical functions: kernels enclose the exact value in float64, and the reference settles what they leave open.

A kernel gives two float64 numbers between which the exact value lies. Both are rounded to the format of the result, as
conversions. Rounding is monotonic, so that equal results are the result of the exact value. Few elements remain, most
of them exact results or midpoints: they go to `reference.functions`, each operand once. A function of one operand of at
most 16 bits is read from a table of all results, made on the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from floatsim_kernels.functions import loops
from floatsim_kernels.runtime import cpu as machine

from floatsim import reference
from floatsim.emulator import tables
from floatsim.emulator.elementwise import Operand, decode, elementwise
from floatsim.emulator.elementwise_fast import is_default
from floatsim.emulator.pieces import Arrays, Codes, Events, flattened, run_in_pieces
from floatsim.emulator.proofs import enclosed_in_float64, one_float64_rounds_to_nearest
from floatsim.emulator.types import Seeds
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import DIVIDE_BY_ZERO, INVALID, Rounding, RoundingAttributes
from floatsim.reference import functions as exact

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["function"]


def function(
    name: str,
    operands: list[Operand],
    fmt: FloatFormat,
    options: CallOptions,
    want_events: bool = True,
    out: Codes | None = None,
) -> tuple[Codes, Events | None]:
    """Return (codes in `fmt`, event bytes) of a mathematical function of broadcastable arrays of codes.

    Without `want_events` the events are None. The results are in `out` if it is given, contiguous and shares no memory
    with the operands; else in new memory.
    """
    shape = np.broadcast_shapes(*(codes.shape for codes, _ in operands))
    flat = [(flattened(codes, shape, source.code_dtype), source) for codes, source in operands]
    sources, size = tuple(source for _, source in operands), flat[0][0].size
    if tables.is_worthwhile(sources, options.attributes, size):
        results, happened = np.empty(size, fmt.code_dtype), np.empty(size, np.uint8) if want_events else None
        read = tables.reader(_computed, name, sources, fmt, options.attributes, want_events)
        arrays = [codes for codes, _ in flat] + ([] if happened is None else [happened])
        run_in_pieces(name, read, arrays, results, options, fast=True)
    else:
        results, happened = _computed(name, flat, fmt, options, want_events, _own(out, shape, fmt, operands))
    return results.reshape(shape), None if happened is None else happened.reshape(shape)


def _own(out: Codes | None, shape: tuple[int, ...], fmt: FloatFormat, operands: list[Operand]) -> Codes | None:
    """Return `out`, flat, if results may be written there while operands are read."""
    if out is None or out.shape != shape or out.dtype != fmt.code_dtype or not out.flags.c_contiguous:
        return None
    return None if any(np.may_share_memory(out, codes) for codes, _ in operands) else out.reshape(-1)


# -- kernels -----------------------------------------------------------------------------------------------------------


def _computed(
    name: str, operands: list[Operand], fmt: FloatFormat, options: CallOptions, want_events: bool,
    out: Codes | None = None,
) -> tuple[Codes, Events | None]:  # fmt: skip
    """Return (codes, events) of flat operands."""
    size = operands[0][0].size
    results, unknown = np.empty(size, fmt.code_dtype) if out is None else out, None
    events = np.empty(size, np.uint8) if want_events else None
    enclosed = machine.environment_is_default() and enclosed_in_float64([source for _, source in operands], fmt)
    if enclosed:
        of_float32 = len(operands) == 1 and operands[0][1] == fmt == FP32
        unknown = np.zeros(size, np.uint8)
        if events is None and of_float32 and is_default(options.attributes):
            if not _nearest_float32(name, operands[0][0], results, unknown):
                return results, events
        else:
            _between_ends(name, operands, fmt, options, results, events, unknown)
    places = np.arange(size) if unknown is None else _marked(unknown)
    if places.size:
        _settle(name, operands, fmt, options, results, events, places)
    return results, events


_ROW = 4096


def _marked(unknown: Events) -> NDArray[np.intp]:
    """Return the indices of the marks. Few rows have one, and NumPy tests rows for any mark quickly."""
    marks = unknown.view(np.bool_)
    whole = marks.size // _ROW * _ROW
    rows = np.flatnonzero(marks[:whole].reshape(-1, _ROW).any(axis=1))
    parts = [_ROW * row + np.flatnonzero(marks[_ROW * row : _ROW * (row + 1)]) for row in rows.tolist()]
    return np.concatenate([*parts, whole + np.flatnonzero(marks[whole:])])


_NO_OPTIONS = CallOptions(RoundingAttributes())


def _nearest_float32(name: str, codes: Codes, results: Codes, unknown: Events) -> int:
    """Write the results, mark those that are unknown, and return their number."""
    loop, counts = loops.nearest_float32(name, one_float64_rounds_to_nearest(name)), []

    def run(pieces: Arrays, written: NDArray[Any], draws: Seeds) -> None:
        counts.append(loop(pieces[0], written, pieces[1]))

    run_in_pieces(name, run, [codes, unknown], results, _NO_OPTIONS)
    return sum(counts)


def _between_ends(
    name: str, operands: list[Operand], fmt: FloatFormat, options: CallOptions, results: Codes, events: Events | None,
    unknown: Events,
) -> None:  # fmt: skip
    """Round both ends of each value, and mark the elements whose ends differ."""
    loop = loops.ends(name) if len(operands) == 1 else loops.ends_of_two(name)
    attributes = options.attributes
    inside = attributes.rounding is not Rounding.STOCHASTIC  # else an end may be the exact value, which never moves
    reading = CallOptions(RoundingAttributes(daz=attributes.daz))
    of_nan = reference.nan_result(fmt)[0]
    infinities = [reference.infinite_result(sign, fmt) for sign in (0, 1)]

    def rounded(ends: NDArray[np.float64], draws: Seeds) -> tuple[Codes, Events | None]:
        options = CallOptions(attributes, int(draws[0]), int(draws[1]))
        return elementwise("convert", [(ends.view(np.uint64), FP64)], fmt, options, events is not None)

    def run(pieces: Arrays, written: NDArray[Any], draws: Seeds) -> None:
        codes = pieces[: len(operands)]
        read = [
            elementwise("convert", [(x, source)], FP64, reading, events is not None)
            for x, (_, source) in zip(codes, operands, strict=True)
        ]
        values = [x.view(np.float64) for x, _ in read]
        low, high = np.empty(written.size), np.empty(written.size)
        loop(*values, low, high, inside)
        written[...], of_low = rounded(low, draws)
        of_high, events_of_high = rounded(high, draws)
        marks = pieces[len(operands)]
        if events is None:
            loops.compare_codes(
                low, high, of_high, written, marks, *(fmt.code_dtype.type(x) for x in (*infinities, of_nan))
            )
            return
        assert of_low is not None and events_of_high is not None
        pieces[-1][...] = of_low
        special = np.array([*infinities, of_nan], fmt.code_dtype)
        operand = np.zeros(written.size, np.uint8)
        for x in values:
            operand[np.isinf(x) & (operand == 0)] = 2
            operand[np.isnan(x)] = 1
        invalid = np.uint8(INVALID)
        loops.compare_events(
            low, high, decode(written, fmt), of_high, pieces[-1], events_of_high, written, marks, special, invalid,
            np.uint8(DIVIDE_BY_ZERO), operand,
        )  # fmt: skip
        for _, happened in read:
            assert happened is not None
            pieces[-1][happened & INVALID != 0] = INVALID  # a signalling NaN
        if fmt.canonical_nan is None:
            pieces[-1][np.isnan(low)] = INVALID

    arrays = [x for x, _ in operands] + [unknown] + ([] if events is None else [events])
    run_in_pieces(name, run, arrays, results, options)


# -- the reference -----------------------------------------------------------------------------------------------------


def _settle(
    name: str, operands: list[Operand], fmt: FloatFormat, options: CallOptions, results: Codes, events: Events | None,
    places: NDArray[np.intp],
) -> None:  # fmt: skip
    """Write the results of elements that no kernel knows: every set of operands once, if the rounding is not random."""
    attributes = options.attributes
    rows = np.stack([codes[places].astype(np.uint64) for codes, _ in operands], axis=-1)
    inverse = np.arange(len(rows))
    draws = [0] * len(rows)
    if attributes.rounding is Rounding.STOCHASTIC:
        draws = [
            reference.draw(options.seed, (options.offset + int(i)) % (1 << 64), attributes.random_bits) for i in places
        ]
    else:
        rows, inverse = np.unique(rows, axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
    codes, happened = np.empty(len(rows), fmt.code_dtype), np.empty(len(rows), np.uint8)
    for i, row in enumerate(rows.tolist()):
        numbers = tuple(
            reference.decode(code, source, attributes.daz) for code, (_, source) in zip(row, operands, strict=True)
        )
        codes[i], happened[i] = exact.apply(name, numbers, fmt, attributes, draws[i])
    results[places] = codes[inverse]
    if events is not None:
        events[places] = happened[inverse]
