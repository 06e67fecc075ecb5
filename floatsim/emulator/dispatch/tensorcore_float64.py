"""The sums of matrix units that are computed in float64, and the calls of their kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from floatsim_kernels.runtime import cpu as machine
from floatsim_kernels.tensorcore import float64 as loops
from floatsim_kernels.tensorcore import integer as integers

from floatsim._types import Codes, Indices
from floatsim.emulator.dispatch.tensorcore_operands import (
    BlockScales,
    Matrix,
    Record,
    bits_read,
    decoded_scales,
    floats_of,
    store,
    values_of,
)
from floatsim.emulator.proofs import two_floats_hold_blocks
from floatsim.formats import FP16, FP64
from floatsim.formats.value_sets import TermRange
from floatsim.tensorcore.instructions import (
    EvenAndOdd,
    ExactBlocks,
    FlushedTree,
    FmaChain,
    GroupedBlocks,
    Instruction,
    LateAccumulator,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["COUNTED", "WIDTH", "accumulate", "can_do"]

Floats: TypeAlias = "NDArray[np.floating[Any]]"

WIDTH = loops.WIDTH
"""Columns of which a row is done, or left alone, together."""


COUNTED = frozenset({"overflow", "invalid", "nan"})
"""The events that a call may count. The kernels count none: rows with infinities or NaNs are left as they were."""


def can_do(row: Instruction) -> bool:
    """Return whether the kernels on float64 are for such sums."""
    if not isinstance(row.model, GroupedBlocks | LateAccumulator | ExactBlocks | FlushedTree | FmaChain):
        return False
    if isinstance(row.model, ExactBlocks):
        pairs = ((a, b) for a in row.inputs for b in row.inputs)
        return all(two_floats_hold_blocks(TermRange(*pair), row.block, row.output) for pair in pairs)
    return not isinstance(row.model, FmaChain) or bool(machine.has_fma())


def accumulate(
    row: Instruction, a: Matrix, b: Matrix, out: Codes, ranges: Indices, scales: BlockScales | None,
    record: Record | None = None,
) -> NDArray[np.bool_]:  # fmt: skip
    """Sums of a (M, K) times b (K, N) over each range into out (ranges, M, N), codes.

    Returns which rows, of which groups of WIDTH columns, of each range are left as they were. With `record` these are
    also those with a result that is not finite, so that the others have no event of COUNTED.
    """
    sums = values_of(out, row.output).copy()  # some are written that are found to have failed
    failed = np.zeros((*out.shape[:2], -(-out.shape[2] // WIDTH)), np.bool_)
    if not sums.size:
        return failed
    _run(row, a, b, sums, np.ascontiguousarray(ranges), scales, failed)
    if record is not None:
        starts = np.arange(0, sums.shape[2], WIDTH)
        failed |= np.logical_or.reduceat(~np.isfinite(sums), starts, axis=2)
    store(sums, failed, WIDTH, out, row.output)
    return failed


def _run(
    row: Instruction, a: Matrix, b: Matrix, sums: Floats, ranges: Indices, scales: BlockScales | None,
    failed: NDArray[np.bool_],
) -> None:  # fmt: skip
    model = row.model
    match model:
        case GroupedBlocks():
            assert scales is not None
            failed |= _grouped(model, floats_of(a), floats_of(b), sums, ranges, scales, failed)
        case FmaChain() if row.output == FP64:
            loops.chain64(
                *(np.ascontiguousarray(values_of(x.codes, FP64)) for x in (a, b)), sums, ranges, row.k, failed
            )
        case FmaChain():
            loops.chain32(floats_of(a), floats_of(b), sums, ranges, row.k, failed)
        case FlushedTree():
            left, right = _flushed(floats_of(a), a.format.emin), _flushed(floats_of(b), b.format.emin)
            loops.flushed_tree(left, right, sums, ranges, row.block, row.k, failed)
        case ExactBlocks() | LateAccumulator():
            (x, x_exponents), (y, y_exponents) = (_values(row, side) for side in (a, b))
            if isinstance(model, ExactBlocks):
                lines = _extents(floats_of(a)), _extents(np.ascontiguousarray(floats_of(b).T))
                kind = int(row.output == FP16), int(model.signed_zero)
                loops.exact(x, y, *lines, sums, ranges, row.block, row.k, *kind, failed)
            else:
                bits = model.fraction_bits, model.sum_bits, int(isinstance(model, EvenAndOdd))
                loops.late(x, y, x_exponents, y_exponents, sums, ranges, row.block, row.k, *bits, failed)
            failed |= _marks(x_exponents.max(axis=1, initial=0), y_exponents.max(axis=0, initial=0))


def _values(row: Instruction, x: Matrix) -> tuple[NDArray[np.float64], Indices]:
    """Return the values as float64, with 0 for infinities and NaNs, and their exponents."""
    floats = floats_of(x)
    values, exponents = np.empty(floats.shape, np.float64), np.empty(floats.shape, np.int64)
    loops.prepare(floats, x.format.emin, bits_read(row), values, exponents)
    return values, exponents


def _marks(largest_of_rows: Indices, largest_of_columns: Indices) -> NDArray[np.bool_]:
    """Return a mask (1, M, groups) of the groups that have an infinity or a NaN."""
    rows = largest_of_rows >= integers.INFINITE
    starts = np.arange(0, len(largest_of_columns), WIDTH)
    columns = np.logical_or.reduceat(largest_of_columns >= integers.INFINITE, starts)
    marks: NDArray[np.bool_] = (rows[:, np.newaxis] | columns)[np.newaxis]
    return marks


def _extents(lines: NDArray[np.float32]) -> Indices:
    """Return (low, high) of each line (lines, 2): its elements are multiples of 2**low and less than 2**high."""
    found = np.empty((len(lines), 2), np.int64)
    loops.magnitude_ranges(lines, found)
    return found


def _flushed(values: NDArray[np.float32], emin: int) -> NDArray[np.float32]:
    """Return the values with subnormal numbers and zeros of either sign replaced by +0."""
    return np.where(np.abs(values) < np.float32(2.0**emin), np.float32(0), values)


def _grouped(
    model: GroupedBlocks, a: NDArray[np.float32], b: NDArray[np.float32], sums: Floats, ranges: Indices,
    scales: BlockScales, failed: NDArray[np.bool_],
) -> NDArray[np.bool_]:  # fmt: skip
    """Add the groups to `sums`. Return the mask of the groups whose scales are NaN."""
    group, repeat, t = model.group, scales.of.every // model.group, scales.of.format.trailing_bits
    groups = -(-a.shape[1] // group)
    factors, exponents, marks = [], [], []
    for axis, (significand, exponent) in zip((1, 0), decoded_scales(scales), strict=True):
        power = np.where(np.abs(exponent) < integers.INFINITE, exponent, 0).astype(np.int32)
        factor = np.ldexp(significand.astype(np.float64), power - t).repeat(repeat, axis)
        each = exponent.astype(np.int32).repeat(repeat, axis)
        short = (slice(None), slice(groups)) if axis else (slice(groups),)
        factors.append(np.ascontiguousarray(factor[short]))
        exponents.append(np.ascontiguousarray(each[short]))
        marks.append(_nonzero(a if axis else b, group, groups, axis))
    loops.grouped(
        a, b, *factors, *exponents, *marks, sums, ranges, group,
        model.terms // group, model.fraction_bits, model.floor, failed,
    )  # fmt: skip
    return _marks(exponents[0].max(axis=1, initial=0), exponents[1].max(axis=0, initial=0))


def _nonzero(x: NDArray[np.float32], group: int, groups: int, axis: int) -> NDArray[np.int32]:
    """A bit for each element of a group that is not zero."""
    lines = (x if axis else x.T) != 0
    padded = np.zeros((len(lines), groups * group), np.int32)
    padded[:, : lines.shape[1]] = lines
    bits = (padded.reshape(len(lines), groups, group) << np.arange(group, dtype=np.int32)).sum(axis=2, dtype=np.int32)
    return np.ascontiguousarray(bits if axis else bits.T)
