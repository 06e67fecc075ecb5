"""Which sums of matrix units are done in float64, and how the kernels for it are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from floatsim_kernels import machine
from floatsim_kernels import tensorcore as integers
from floatsim_kernels import tensorcore_doubles as loops

from floatsim.formats import FP64
from floatsim.tensorcore.instructions import (
    EvenAndOdd,
    ExactBlocks,
    FlushedTree,
    FmaChain,
    GroupedBlocks,
    Instruction,
    LateAccumulator,
)
from floatsim.tensorcore.operands import BlockScales, Matrix, as_read, decoded, decoded_scales, store, values_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["WIDTH", "accumulate", "can_do"]

Codes: TypeAlias = "NDArray[np.unsignedinteger[Any]]"
Floats: TypeAlias = "NDArray[np.floating[Any]]"
Indices: TypeAlias = "NDArray[np.int64]"
Exponents: TypeAlias = "NDArray[np.int32]"

WIDTH = loops.WIDTH
"""Columns of which a row is done, or left alone, together."""


def can_do(row: Instruction) -> bool:
    """Whether the kernels on float64 are for such sums, and may run in this thread."""
    if not isinstance(row.model, GroupedBlocks | LateAccumulator | ExactBlocks | FlushedTree | FmaChain):
        return False
    return bool((machine.has_fma() or not isinstance(row.model, FmaChain)) and machine.environment_is_default())


def accumulate(
    row: Instruction, a: Matrix, b: Matrix, out: Codes, ranges: Indices, scales: BlockScales | None
) -> NDArray[np.bool_]:
    """Sums of a (M, K) times b (K, N) over each range into out (ranges, M, N), codes.

    Returns which rows, of which groups of WIDTH columns, of each range are left as they were.
    """
    sums = values_of(out, row.output).copy()  # some are written that are found to have failed
    failed = np.zeros((*out.shape[:2], -(-out.shape[2] // WIDTH)), np.bool_)
    if not sums.size:
        return failed
    _run(row, a, b, sums, np.ascontiguousarray(ranges), scales, failed)
    store(sums, failed, WIDTH, out, row.output)
    return failed


def _run(
    row: Instruction, a: Matrix, b: Matrix, sums: Floats, ranges: Indices, scales: BlockScales | None,
    failed: NDArray[np.bool_],
) -> None:  # fmt: skip
    model = row.model
    (x, x_exponents), (y, y_exponents) = (_values(row, side) for side in (a, b))
    special = _marks(x_exponents.max(axis=1, initial=0), y_exponents.max(axis=0, initial=0))
    match model:
        case GroupedBlocks():
            assert scales is not None
            special |= _grouped(model, x, y, sums, ranges, scales, failed)
        case FmaChain():
            loop = loops.chain64 if row.output == FP64 else loops.chain32
            loop(x.astype(sums.dtype), y.astype(sums.dtype), sums, ranges, row.k, failed)
        case ExactBlocks():
            loops.exact(x, y, _extents(x, 1), _extents(y, 0), sums, ranges, row.block, row.k, failed)
        case FlushedTree():
            left, right = _flushed(x, a.format.emin), _flushed(y, b.format.emin)
            loops.flushed_tree(left, right, sums, ranges, row.block, row.k, failed)
        case LateAccumulator():
            bits = model.fraction_bits, model.sum_bits, int(isinstance(model, EvenAndOdd))
            wide = (e.astype(np.int64) for e in (x_exponents, y_exponents))
            loops.late(x, y, *wide, sums, ranges, row.block, row.k, *bits, failed)
    failed |= special


def _values(row: Instruction, x: Matrix) -> tuple[NDArray[np.float64], Exponents]:
    """Values as float64, what is not finite as 0, and exponents."""
    codes, fmt = as_read(row, x)
    significands, exponents = decoded((codes, fmt))
    finite = np.abs(exponents) < integers.INFINITE
    power = np.where(finite, exponents, 0).astype(np.int32) - fmt.trailing_bits
    values = np.ldexp(np.where(finite, significands, 0).astype(np.float64), power)
    return values, exponents.astype(np.int32)


def _marks(largest_of_rows: Exponents, largest_of_columns: Exponents) -> NDArray[np.bool_]:
    """(1, M, groups): where something is not finite."""
    rows = largest_of_rows >= integers.INFINITE
    starts = np.arange(0, len(largest_of_columns), WIDTH)
    columns = np.logical_or.reduceat(largest_of_columns >= integers.INFINITE, starts)
    marks: NDArray[np.bool_] = (rows[:, np.newaxis] | columns)[np.newaxis]
    return marks


def _extents(values: NDArray[np.float64], axis: int) -> Indices:
    """(lines, 2): every element of a line is a multiple of 2**low and less than 2**high."""
    mantissas, exponents = np.frexp(values)  # 0.5 <= |mantissa| < 1
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    last = np.frexp((whole & -whole).astype(np.float64))[1] - 1  # of the last bit that is set
    zero = values == 0
    low = np.where(zero, 1 << 10, exponents - 53 + last).min(axis=axis, initial=1 << 10)
    high = np.where(zero, -(1 << 10), exponents).max(axis=axis, initial=-(1 << 10))
    return np.ascontiguousarray(np.stack([low, high], axis=1), dtype=np.int64)


def _flushed(values: NDArray[np.float64], emin: int) -> NDArray[np.float32]:
    """As float32; subnormal numbers and zeros of either sign are +0."""
    return np.where(np.abs(values) < 2.0**emin, 0.0, values).astype(np.float32)


def _grouped(
    model: GroupedBlocks, a: NDArray[np.float64], b: NDArray[np.float64], sums: Floats, ranges: Indices,
    scales: BlockScales, failed: NDArray[np.bool_],
) -> NDArray[np.bool_]:  # fmt: skip
    """Where scales are NaN."""
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
        a.astype(np.float32), b.astype(np.float32), *factors, *exponents, *marks, sums, ranges, group,
        model.terms // group, model.fraction_bits, model.floor, failed,
    )  # fmt: skip
    return _marks(exponents[0].max(axis=1, initial=0), exponents[1].max(axis=0, initial=0))


def _nonzero(x: NDArray[np.float64], group: int, groups: int, axis: int) -> NDArray[np.int32]:
    """A bit for each element of a group that is not zero."""
    lines = (x if axis else x.T) != 0
    padded = np.zeros((len(lines), groups * group), np.int32)
    padded[:, : lines.shape[1]] = lines
    bits = (padded.reshape(len(lines), groups, group) << np.arange(group, dtype=np.int32)).sum(axis=2, dtype=np.int32)
    return np.ascontiguousarray(bits if axis else bits.T)
