"""Kernel calls for matrix instructions: dot products of whole tiles, with the bits of `reference.tensorcore.dot`."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from floatsim_kernels.tensorcore import integer as integers
from floatsim_kernels.tensorcore import steps_integer as steps

from floatsim._types import Codes, Indices
from floatsim.emulator.dispatch.tensorcore_operands import BlockScales, Matrix, Record, as_read, decoded, decoded_scales
from floatsim.emulator.params import format_params, pack, rounding_params
from floatsim.formats.rounding import RoundingAttributes, Tininess
from floatsim.tensorcore.instructions import (
    EvenAndOdd,
    ExactBlocks,
    FlushedTree,
    FmaChain,
    FusedBlocks,
    GroupedBlocks,
    Instruction,
    LateAccumulator,
    Model,
    NanRule,
    RoundedSteps,
    TwoHalves,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BlockScales", "Matrix", "Record", "accumulate"]


def accumulate(
    row: Instruction, a: Matrix, b: Matrix, out: Codes, ranges: Indices, kernels: ModuleType | None = None,
    scales: BlockScales | None = None, record: Record | None = None,
) -> None:  # fmt: skip
    """Add sums of products over each range of k to the accumulators, as the instruction does.

    Parameters
    ----------
    row : Instruction
        An instruction that takes the operands' formats.
    a, b : Matrix
        (batch, M, K) and (batch, K, N).
    out : (ranges, batch, M, N)
        The accumulators: c on entry, D on exit. Codes of the row's output format, in its code dtype or as uint64.
    ranges : (ranges, 2 or 3)
        start and stop of each range. A step must be 1. The instructions of a range begin at its start.
    kernels : module, optional
        The fast kernels, which bail out of rare cases; None selects the integer kernels.
    scales : BlockScales, optional
        The block scales, for an instruction that takes them. Then ranges must start at multiples of `every`.
    record : Record, optional
        The arrays that receive the events. With fast kernels: of those in their COUNTED.
    """
    ranges = np.ascontiguousarray(ranges)
    if kernels is None:
        wide = out.astype(np.uint64)
        _in_integers(row, a, b, wide, ranges, scales, record)
        out[...] = wide
        return
    for n in range(out.shape[1]):
        one = slice(n, n + 1)
        lines, stripes = (Matrix(x.codes[n], x.format, None if x.floats is None else x.floats[n]) for x in (a, b))
        of_one = BlockScales(scales.a[n], scales.b[n], scales.of) if scales else None
        of_matrix = None if record is None else record._replace(first=record.first[:, n])
        failed = kernels.accumulate(row, lines, stripes, out[:, n], ranges, of_one, of_matrix)
        if record is not None:
            record.counts[integers.SUM, 0] += _roundings(row, ranges, failed, kernels.WIDTH, out.shape[3])
        for part, rows, columns in _pieces(failed, kernels.WIDTH, out.shape[3]):
            some = np.ascontiguousarray(out[part, n, rows, columns], np.uint64)[np.newaxis, np.newaxis]
            left, right = Matrix(a.codes[one, rows], a.format), Matrix(b.codes[one, :, columns], b.format)
            cut = BlockScales(scales.a[one, rows], scales.b[one, :, columns], scales.of) if scales else None
            piece = record
            if record is not None:
                first = np.array(record.first[:, one, rows, columns], order="C")
                piece = record._replace(first=first)
            _in_integers(row, left, right, some, ranges[part : part + 1], cut, piece)
            out[part, n, rows, columns] = some[0, 0]
            if record is not None:
                record.first[:, one, rows, columns] = first


def _roundings(row: Instruction, ranges: Indices, failed: NDArray[np.bool_], width: int, columns: int) -> int:
    """Return the number of roundings of D in the rows that the fast kernels did not bail out of."""
    instructions = np.maximum(-(-(ranges[:, 1] - ranges[:, 0]) // row.k), 0)
    widths = np.minimum(columns - np.arange(0, columns, width), width)
    done = ((~failed) @ widths).sum(axis=1)
    return int(instructions @ done) * row.roundings


def _pieces(failed: NDArray[np.bool_], width: int, columns: int) -> Iterator[tuple[int, Any, slice]]:
    """Yield (range, rows, columns) of the cases that the fast kernels bailed out of."""
    if not failed.any():
        return
    if failed.all():
        yield from ((part, slice(None), slice(0, columns)) for part in range(len(failed)))
        return
    for part, group in np.argwhere(failed.any(axis=1)).tolist():
        yield part, np.flatnonzero(failed[part, :, group]), slice(group * width, (group + 1) * width)


def _in_integers(
    row: Instruction, a: Matrix, b: Matrix, out: NDArray[np.uint64], ranges: Indices, scales: BlockScales | None,
    record: Record | None,
) -> None:  # fmt: skip
    if record is None:
        terms = a.codes.shape[2]
        record = Record(np.zeros(terms, np.int64), np.zeros((2, 256), np.int64), np.zeros((0, 0, 0, 0), np.int64))
    left, right = as_read(row, a), as_read(row, b)
    common = ranges, *record
    fd = format_params(row.output)
    model = row.model
    bits = left[1].trailing_bits + right[1].trailing_bits
    match model:
        case _ if type(model) in _IEEE:
            kind, rounding = _IEEE[type(model)]
            operands = left[0], format_params(left[1]), right[0], format_params(right[1])
            integers.ieee(kind, *operands, out, _model_params(row, 0, 0), fd, rounding, *common)
        case RoundedSteps():
            operands = left[0], format_params(left[1]), right[0], format_params(right[1])
            steps.rounded_steps(*operands, out, _step_params(row), fd, _step_rounding(model), *common)
        case LateAccumulator():
            integers.late(*decoded(left), *decoded(right), out, _model_params(row, bits, 0), fd, _TO_EVEN, *common)
        case FusedBlocks() | TwoHalves():
            block = model.block if isinstance(model, TwoHalves) else model
            scale_bits, of_groups = 0, [_NO_SCALES] * 4
            sa, ea, sb, eb = *decoded(left), *decoded(right)
            if scales is not None:
                of_rows, of_columns = decoded_scales(scales)
                if isinstance(model, GroupedBlocks):
                    repeat, scale_bits = scales.of.every // model.group, 2 * scales.of.format.trailing_bits
                    of_groups = [*(x.repeat(repeat, 2) for x in of_rows), *(x.repeat(repeat, 1) for x in of_columns)]
                else:  # powers of two, one for each block
                    if scales.of.every != row.block:
                        raise ValueError(
                            f"{row.name} takes a scale for each {row.block} products, not each {scales.of.every}"
                        )
                    ea, eb = _moved(ea, of_rows[1], scales.of.every, 2), _moved(eb, of_columns[1], scales.of.every, 1)
                    of_groups = [*of_rows, *of_columns]
            rows = _model_params(row, bits, scale_bits), format_params(block.grid), fd
            rounding = rounding_params(RoundingAttributes(block.rounding))
            integers.fused(sa, ea, sb, eb, *of_groups, out, *rows, rounding, _TO_EVEN, *common)


_TO_EVEN = rounding_params(RoundingAttributes())
_IEEE: dict[type[Model], Any] = {
    FmaChain: (integers.CHAIN, _TO_EVEN),
    ExactBlocks: (integers.EXACT, _TO_EVEN),
    FlushedTree: (integers.FLUSHED_TREE, rounding_params(RoundingAttributes(ftz=True))),
}
"""The models of IEEE operations: the kernel's number of each, and its rounding."""
_NO_SCALES = np.zeros((0, 0, 0), np.int64)


@functools.lru_cache(maxsize=256)
def _model_params(row: Instruction, factor_bits: int, scale_bits: int) -> Indices:
    """Return the parameters of a model as the kernels read them, as listed in MODEL_FIELDS."""
    model = row.model.block if isinstance(row.model, TwoHalves) else row.model
    fields = dict.fromkeys(integers.MODEL_FIELDS, 0)
    fields |= {"terms": row.block, "k": row.k, "factor_bits": factor_bits, "scale_bits": scale_bits}
    if isinstance(model, FusedBlocks):
        fields |= {
            "fraction_bits": model.fraction_bits,
            "floor": model.floor,
            "widened": row.output.trailing_bits - model.grid.trailing_bits,
            "group": model.group if isinstance(model, GroupedBlocks) else 0,
            "halves": int(isinstance(row.model, TwoHalves)),
        }
    if isinstance(model, ExactBlocks):
        fields |= {"apart": int(model.signed_zero)}
    if isinstance(model, LateAccumulator):
        apart = int(isinstance(model, EvenAndOdd))
        fields |= {"fraction_bits": model.fraction_bits, "floor": model.sum_bits, "apart": apart}
    return pack(integers.MODEL_FIELDS, fields, np.int64)


@functools.lru_cache(maxsize=256)
def _step_params(row: Instruction) -> Indices:
    """Return the parameters of rounded steps as the kernel reads them, as listed in STEP_FIELDS."""
    model = row.model
    assert isinstance(model, RoundedSteps)
    fields = {
        "terms": model.terms, "k": row.k, "group": model.group, "fused": int(model.fused), "lanes": model.lanes,
        "late": int(model.late), "from_zero": int(model.from_zero), "reverse": int(model.reverse),
        "first_nan": int(model.nan is NanRule.FIRST_OPERAND),
    }  # fmt: skip
    return pack(steps.STEP_FIELDS, fields, np.int64)


@functools.lru_cache(maxsize=256)
def _step_rounding(model: RoundedSteps) -> Any:
    flushes = model.flushes is not None
    tininess = model.flushes or Tininess.AFTER
    return rounding_params(RoundingAttributes(model.rounding, daz=flushes, ftz=flushes, tininess=tininess))


def _moved(exponents: Indices, scales: Indices, every: int, axis: int) -> Indices:
    """Return the exponents of the elements times power-of-two scales. Codes of infinities and NaNs do not change."""
    each = scales.repeat(every, axis=axis)
    each = each[:, :, : exponents.shape[2]] if axis == 2 else each[:, : exponents.shape[1]]
    special = np.maximum(exponents, each) >= integers.INFINITE
    moved: Indices = np.where(special, exponents, exponents + each)
    return moved
