"""Mathematical functions: kernels enclose the exact value in float64, and the reference settles what they leave open.

A kernel gives two float64 numbers between which the exact value lies. Both are rounded to the format of the result, as
conversions. Rounding is monotonic, so that equal results are the result of the exact value. Few elements remain, most
of them exact results or midpoints: they go to `reference.functions`, each operand once. A function of one operand of at
most 16 bits is read from a table of all results (tables.py), which is made on the first long call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from floatsim_kernels.functions import loops

from floatsim import reference
from floatsim._types import Seeds
from floatsim.emulator.elementwise.case import Case
from floatsim.emulator.elementwise.kernel import Cut, Kernel, PlanPart
from floatsim.emulator.elementwise.operations import Family
from floatsim.emulator.elementwise.pieces import NO_DRAWS, Array, Arrays, Events, in_pieces
from floatsim.emulator.proofs import enclosed_in_float64, one_float64_rounds_to_nearest
from floatsim.formats import FP32, FP64
from floatsim.formats.rounding import DIVIDE_BY_ZERO, INVALID, RoundingAttributes
from floatsim.reference import functions as exact
from floatsim.reference.random_sources import source_draw

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Enclosed", "NearestFloat32", "Reference"]

_FUNCTION = frozenset({Family.FUNCTION})


def _refusal(case: Case) -> str | None:
    """Return why no kernel encloses the values of a function."""
    if not enclosed_in_float64(case.sources, case.fmt):
        return "kernels enclose results of at most 30 bits, of operands of at most 24 bits, inside float64's range"
    return case.cpu.refusal()


class NearestFloat32:
    """Rounds one float64 number to FP32, ties to even, and the number is not near a midpoint."""

    name = "nearest float32"
    takes = _FUNCTION

    def refusal(self, case: Case) -> str | None:
        if case.sources != (FP32,) or case.fmt != FP32 or case.events or not case.is_default:
            return "only functions of one FP32 operand, with default attributes and without events"
        return _refusal(case)

    def kernel(self, case: Case, plan: PlanPart) -> Kernel:
        loop = loops.nearest_float32(case.name, one_float64_rounds_to_nearest(case.name))

        def run(codes: Sequence[Array], out: Array, events: Events | None, draws: Seeds) -> None:
            unknown, counts = np.zeros(out.size, np.uint8), []

            def piece(arrays: Arrays, written: Array, draws: Seeds) -> None:
                counts.append(loop(arrays[0], written, arrays[1]))

            in_pieces(case.name, piece, [codes[0], unknown], out, NO_DRAWS)
            if sum(counts):
                _settle(case, codes, out, None, draws, _marked(unknown))

        return Kernel(run, Cut.WHOLE)


class Enclosed:
    """Rounds both ends of an enclosure in float64; elements whose ends differ go to the reference."""

    name = "enclosed"
    takes = _FUNCTION

    def refusal(self, case: Case) -> str | None:
        return _refusal(case)

    def kernel(self, case: Case, plan: PlanPart) -> Kernel:
        return Kernel(_EnclosedKernel(case, plan).run, Cut.WHOLE)


class _EnclosedKernel:
    """The loops of a function: operands to float64, the ends, both rounded, and a comparison."""

    def __init__(self, case: Case, plan: PlanPart) -> None:
        fmt, attributes = case.fmt, case.attributes
        reading = RoundingAttributes(daz=attributes.daz)
        self._case = case
        self._read = [plan(case.conversion(x, FP64, reading, case.events)).kernel.run for x in case.sources]
        self._round = plan(case.conversion(FP64, fmt, attributes, case.events)).kernel.run
        self._loop = (loops.ends if len(case.sources) == 1 else loops.ends_of_two)(case.name)
        self._inside = not case.draws  # else an end may be the exact value, which never moves
        infinities = [reference.infinite_result(sign, fmt) for sign in (0, 1)]
        self._special = np.array([*infinities, reference.nan_result(fmt)[0]], fmt.code_dtype)
        if case.events:
            self._decode = plan(case.conversion(fmt, FP64)).kernel.run

    def run(self, codes: Sequence[Array], out: Array, events: Events | None, draws: Seeds) -> None:
        unknown = np.zeros(out.size, np.uint8)
        if events is None:
            in_pieces(self._case.name, self._piece, [*codes, unknown], out, draws)
        else:
            in_pieces(self._case.name, self._piece_with_events, [*codes, unknown, events], out, draws)
        places = _marked(unknown)
        if places.size:
            _settle(self._case, codes, out, events, draws, places)

    def _piece(self, arrays: Arrays, out: Array, draws: Seeds) -> None:
        *values, low, high = np.empty((len(self._read) + 2, out.size))
        for read, codes, value in zip(self._read, arrays, values, strict=False):
            read([codes], value.view(np.uint64), None, NO_DRAWS)
        self._loop(*values, low, high, self._inside)
        of_high = np.empty(out.size, out.dtype)
        self._round([low.view(np.uint64)], out, None, draws)
        self._round([high.view(np.uint64)], of_high, None, draws)
        loops.compare_codes(low, high, of_high, out, arrays[-1], *self._special)

    def _piece_with_events(self, arrays: Arrays, out: Array, draws: Seeds) -> None:
        *operands, unknown, events = arrays
        *values, low, high, rounded = np.empty((len(operands) + 3, out.size))
        of_read, of_high = np.empty((len(operands), out.size), np.uint8), np.empty(out.size, np.uint8)
        for read, codes, value, happened in zip(self._read, operands, values, of_read, strict=True):
            read([codes], value.view(np.uint64), happened, NO_DRAWS)
        self._loop(*values, low, high, self._inside)
        high_codes = np.empty(out.size, out.dtype)
        self._round([low.view(np.uint64)], out, events, draws)
        self._round([high.view(np.uint64)], high_codes, of_high, draws)
        self._decode([out], rounded.view(np.uint64), None, NO_DRAWS)
        operand = np.zeros(out.size, np.uint8)
        for x in values:
            operand[np.isinf(x) & (operand == 0)] = 2
            operand[np.isnan(x)] = 1
        loops.compare_events(
            low, high, rounded, high_codes, events, of_high, out, unknown, self._special, np.uint8(INVALID),
            np.uint8(DIVIDE_BY_ZERO), operand,
        )  # fmt: skip
        for happened in of_read:
            events[happened & INVALID != 0] = INVALID  # a signalling NaN
        if self._case.fmt.canonical_nan is None:
            events[np.isnan(low)] = INVALID


class Reference:
    """The specification on exact integers: a thousand results a second. Never refuses."""

    name = "reference"
    takes = _FUNCTION

    def refusal(self, case: Case) -> str | None:
        return None

    def kernel(self, case: Case, plan: PlanPart) -> Kernel:
        return Kernel(
            lambda codes, out, events, draws: _settle(case, codes, out, events, draws, np.arange(out.size)), Cut.WHOLE
        )


_ROW = 4096


def _marked(unknown: Events) -> NDArray[np.intp]:
    """Return the indices of the marks. Few rows have one, and NumPy tests rows for any mark quickly."""
    marks = unknown.view(np.bool_)
    whole = marks.size // _ROW * _ROW
    if not whole:
        return np.flatnonzero(marks)
    rows = np.flatnonzero(marks[:whole].reshape(-1, _ROW).any(axis=1))
    parts = [_ROW * row + np.flatnonzero(marks[_ROW * row : _ROW * (row + 1)]) for row in rows.tolist()]
    return np.concatenate([*parts, whole + np.flatnonzero(marks[whole:])])


def _settle(
    case: Case, operands: Sequence[Array], out: Array, events: Events | None, draws: Seeds, places: NDArray[np.intp]
) -> None:
    """Write the results of elements that no kernel knows: every set of operands once, if the rounding is not random."""
    attributes = case.attributes
    rows = np.stack([codes[places].astype(np.uint64) for codes in operands], axis=-1)
    inverse, drawn = np.arange(len(rows)), [0] * len(rows)
    if case.draws:
        seed, first = draws.tolist()
        source, bits = attributes.source, attributes.random_bits
        drawn = [source_draw(source, seed, (first + i) % (1 << 64), bits) for i in places.tolist()]
    else:
        rows, inverse = np.unique(rows, axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
    codes, happened = np.empty(len(rows), out.dtype), np.empty(len(rows), np.uint8)
    for i, row in enumerate(rows.tolist()):
        numbers = tuple(
            reference.decode(code, source, attributes.daz) for code, source in zip(row, case.sources, strict=True)
        )
        codes[i], happened[i] = exact.apply(case.name, numbers, case.fmt, attributes, drawn[i])
    out[places] = codes[inverse]
    if events is not None:
        events[places] = happened[inverse]
