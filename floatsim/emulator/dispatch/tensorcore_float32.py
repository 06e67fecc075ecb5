"""The sums of matrix units that are computed in float32, and the calls of their kernels."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
from floatsim_kernels.runtime import cpu as machine
from floatsim_kernels.tensorcore import float32 as loops
from floatsim_kernels.tensorcore import integer as integers

from floatsim._types import Codes, Indices
from floatsim.emulator.dispatch.kernel import FIRST_EVENTS, NEVER
from floatsim.emulator.dispatch.tensorcore_operands import (
    BlockScales,
    Matrix,
    Record,
    bits_read,
    floats_of,
    store,
    values_of,
)
from floatsim.emulator.params import pack
from floatsim.formats import E8M0, FP16, FP32, FloatFormat
from floatsim.formats.rounding import EVENT_BITS
from floatsim.tensorcore.instructions import FusedBlocks, GroupedBlocks, Instruction, TwoHalves

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["COUNTED", "WIDTH", "accumulate", "can_do"]


WIDTH = loops.WIDTH
"""Columns of which a row is done, or left alone, together."""


COUNTED = frozenset(EVENT_BITS) | {"nan"}
"""The events that a call may count: here all. Rows with other ones than those of the kernel are left as they were."""


def can_do(row: Instruction) -> bool:
    """Return whether the kernels on float32 are for such sums."""
    if not isinstance(row.model, FusedBlocks | TwoHalves) or isinstance(row.model, GroupedBlocks):
        return False
    return row.output != FP16 or bool(machine.has_half_conversion())


def accumulate(
    row: Instruction, a: Matrix, b: Matrix, out: Codes, ranges: Indices, scales: BlockScales | None,
    record: Record | None = None,
) -> NDArray[np.bool_]:  # fmt: skip
    """Sums of a (M, K) times b (K, N) over each range into out (ranges, M, N), codes.

    Returns which rows, of which groups of WIDTH columns, of each range are left as they were. The events of the others
    are counted in `record`, whose `first` is (events, M, N).
    """
    sums = values_of(out, row.output)
    failed = np.zeros((*out.shape[:2], -(-out.shape[2] // WIDTH)), np.bool_)
    if not sums.size:
        return failed
    rows, terms = a.codes.shape
    even, length = rows + rows % 2, -(-terms // row.k) * row.k
    of_rows, of_columns = np.zeros((rows, 0), np.int16), np.zeros((1, 0), np.int16)
    if scales is not None:
        of_rows, of_columns = (_exponents(side) for side in (scales.a, scales.b))
    counter = _NOTHING_COUNTED if record is None else _Counter(row, ranges, record, even)
    loops.fused(int(record is not None))(
        int(row.output == FP16), floats_of(a), floats_of(b), sums, np.ascontiguousarray(ranges),
        _kernel_row(row, a.format, b.format), failed, of_rows, of_columns,
        np.empty((even, length), np.float32), np.empty((even, length), np.int32),
        np.empty((loops.DEPTH, WIDTH), np.float32), np.empty((loops.DEPTH, WIDTH), np.int16),
        np.empty((even, WIDTH), np.float32), np.empty((2, even), np.bool_), *counter.arguments,
    )  # fmt: skip
    if record is not None:
        counter.add_to(record)
    store(sums, failed, WIDTH, out, row.output)
    return failed


class _Counter:
    """The arrays in which the kernel counts events."""

    def __init__(self, row: Instruction | None, ranges: Indices, record: Record | None, even: int) -> None:
        shape = (0, 0) if record is None else record.first.shape[1:]
        self._first = np.full((len(loops.PLACED), *shape), NEVER, np.int64)
        self._counts = np.zeros(len(loops.EVENTS), np.int64)
        latest = np.zeros((1, 0), np.int32)
        if row is not None and record is not None:
            latest = _places_of_blocks(row, ranges, record.where)
        self.arguments = (
            latest, self._counts, self._first, np.empty((even, len(loops.EVENTS)), np.int64),
            np.empty((len(loops.PLACED), even, WIDTH), np.int32),
        )  # fmt: skip

    def add_to(self, record: Record) -> None:
        """Add the events of a call: each is moved from the bin of roundings without an event to one of its own.

        A sum of bins is all that counts are taken for.
        """
        for name, number in zip(loops.EVENTS, self._counts, strict=True):
            record.counts[integers.SUM, EVENT_BITS[name]] += number
            record.counts[integers.SUM, 0] -= number
        for name, places in zip(loops.PLACED, self._first, strict=True):
            of_event = record.first[FIRST_EVENTS.index(name)]
            np.minimum(of_event, places, out=of_event)


def _places_of_blocks(row: Instruction, ranges: Indices, where: Indices) -> NDArray[np.int32]:
    """Return the place (ranges, blocks) of each block's rounding: the largest original index so far in its
    instruction, or in all of it if D is computed in two halves."""
    each = row.k // row.block
    counts = [-(-(stop - start) // row.k) for start, stop in ranges[:, :2].tolist()]
    places = np.zeros((len(ranges), each * max(0, *counts)), np.int32)
    for of_range, (start, stop), count in zip(places, ranges[:, :2].tolist(), counts, strict=True):
        terms = np.zeros(max(count, 0) * row.k, np.int32)
        terms[: max(stop - start, 0)] = where[start:stop]
        latest = np.maximum.accumulate(terms.reshape(-1, each, row.block).max(axis=2), axis=1)
        if isinstance(row.model, TwoHalves):
            latest[:] = latest[:, -1:]
        of_range[: latest.size] = latest.ravel()
    return places


@functools.lru_cache(maxsize=256)
def _kernel_row(row: Instruction, a: FloatFormat, b: FloatFormat) -> Indices:
    halves = isinstance(row.model, TwoHalves)
    block = row.model.block if isinstance(row.model, TwoHalves) else row.model
    assert isinstance(block, FusedBlocks)
    fields = {
        "terms": block.terms,
        "k": row.k,
        "fraction_bits": block.fraction_bits,
        "floor": block.floor + 2 * FP32.bias if row.output == FP16 else loops.NO_FLOOR,
        "kept": -1 << row.output.trailing_bits - block.grid.trailing_bits,
        "emin_a": FP16.emin if halves else a.emin,
        "emin_b": FP16.emin if halves else b.emin,
        "read": bits_read(row),
        "halves": int(halves),
        "every": row.scales[0].every.bit_length() - 1 if row.scales else 0,
    }
    return pack(loops.BLOCK_FIELDS, fields, np.int64)


def _exponents(codes: Codes) -> NDArray[np.int16]:
    """Return the exponents of scales that are powers of two; NaN gets an exponent that no kernel takes."""
    assert E8M0.canonical_nan is not None
    exponents: NDArray[np.int16] = np.where(codes == E8M0.canonical_nan, 1 << 12, codes.astype(np.int16) - E8M0.bias)
    return np.ascontiguousarray(exponents, dtype=np.int16)


_NOTHING_COUNTED = _Counter(None, np.zeros((0, 2), np.int64), None, 0)
