"""A row of the table as kernel calls: dot products of whole tiles, with the bits of `floatsim.tensorcore.reference`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from floatsim_kernels import tensorcore as integers

from floatsim import elements
from floatsim.contexts import Manner
from floatsim.elements import format_row, manner_row
from floatsim.formats import FP16, FP32, TF32, FloatFormat
from floatsim.rounding import Attributes
from floatsim.tensorcore.instructions import (
    EvenAndOdd,
    ExactBlocks,
    FlushedTree,
    FmaChain,
    FusedBlocks,
    GroupedBlocks,
    Instruction,
    LateAccumulator,
    Scales,
    TwoHalves,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BlockScales", "Record", "accumulate", "no_record"]

Codes: TypeAlias = "NDArray[np.unsignedinteger[Any]]"
Indices: TypeAlias = "NDArray[np.int64]"
Operand: TypeAlias = tuple[Codes, FloatFormat]


class BlockScales(NamedTuple):
    """Codes of the scales of a, (batch, M, ceil(K / every)), and of b, (batch, ceil(K / every), N)."""

    a: Codes
    b: Codes
    of: Scales


class Record(NamedTuple):
    """What sums count, as the kernels of sums.py take it: where (K), counts (2, 256), first (events, batch, M, N)."""

    where: Indices
    counts: Indices
    first: Indices


def no_record(terms: int) -> Record:
    """For sums that are not recorded."""
    return Record(np.zeros(terms, np.int64), np.zeros((2, 256), np.int64), np.zeros((0, 0, 0, 0), np.int64))


def accumulate(
    row: Instruction, a: Operand, b: Operand, out: NDArray[np.uint64], ranges: Indices,
    scales: BlockScales | None = None, record: Record | None = None,
) -> None:  # fmt: skip
    """Sums of products over each range of k, as the instruction gives them.

    Parameters
    ----------
    row : Instruction
        Which takes the operands' formats.
    a, b : codes and format
        (batch, M, K) and (batch, K, N).
    out : (ranges, batch, M, N)
        Codes of the row's output format, the accumulators: c on entry, D on exit.
    ranges : (ranges, 2 or 3)
        start and stop of each; if there is a step, it is 1. The instructions of a range begin at its start.
    scales : BlockScales, optional
        For an instruction that takes them. Ranges must start on a multiple of `every` then.
    record : Record, optional
        Filled in where given.
    """
    a, b = _as_read(row, a), _as_read(row, b)
    if isinstance(row.model, TwoHalves):
        a, b = _converted(a, FP16), _converted(b, FP16)
    common = np.ascontiguousarray(ranges), *(record or no_record(a[0].shape[2]))
    fd = format_row(row.output)
    model = row.model
    match model:
        case FmaChain() | ExactBlocks() | FlushedTree():
            kind, manner = _IEEE[type(model)]
            operands = a[0], format_row(a[1]), b[0], format_row(b[1])
            integers.ieee(kind, *operands, out, _model_row(row, 0, 0), fd, manner, *common)
        case LateAccumulator():
            bits = a[1].trailing_bits + b[1].trailing_bits
            integers.late(*_decoded(a), *_decoded(b), out, _model_row(row, bits, 0), fd, _TO_EVEN, *common)
        case FusedBlocks() | TwoHalves():
            block = model.block if isinstance(model, TwoHalves) else model
            bits, scale_bits = a[1].trailing_bits + b[1].trailing_bits, 0
            sa, ea, sb, eb = *_decoded(a), *_decoded(b)
            of_groups = [_NO_SCALES] * 4
            if scales is not None:
                fmt = scales.of.format
                left, right = (_decoded((_magnitudes(codes, fmt), fmt)) for codes in (scales.a, scales.b))
                if isinstance(model, GroupedBlocks):
                    repeat = scales.of.every // model.group
                    of_groups = [
                        np.ascontiguousarray(x.repeat(repeat, axis=axis))
                        for side, axis in ((left, 2), (right, 1)) for x in side
                    ]  # fmt: skip
                    scale_bits = 2 * fmt.trailing_bits
                else:  # powers of two
                    ea, eb = _moved(ea, left[1], scales.of.every, 2), _moved(eb, right[1], scales.of.every, 1)
            manner = manner_row(Attributes(block.rounding))
            rows = _model_row(row, bits, scale_bits), format_row(block.grid), fd, manner, _TO_EVEN
            integers.fused(sa, ea, sb, eb, *of_groups, out, *rows, *common)


_TO_EVEN = manner_row(Attributes())
_IEEE = {
    FmaChain: (integers.CHAIN, _TO_EVEN),
    ExactBlocks: (integers.EXACT, _TO_EVEN),
    FlushedTree: (integers.FLUSHED_TREE, manner_row(Attributes(ftz=True))),
}
_NO_SCALES = np.zeros((0, 0, 0), np.int64)


@functools.lru_cache(maxsize=256)
def _model_row(row: Instruction, factor_bits: int, scale_bits: int) -> Indices:
    """What the kernels need to know of a model."""
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
    if isinstance(model, LateAccumulator):
        apart = int(isinstance(model, EvenAndOdd))
        fields |= {"fraction_bits": model.fraction_bits, "floor": model.sum_bits, "apart": apart}
    return np.array([fields[name] for name in integers.MODEL_FIELDS], np.int64)


def _as_read(row: Instruction, operand: Operand) -> Operand:
    """uint64 codes; FP32 ones truncated to TF32 where the instruction reads them so."""
    codes, fmt = operand
    codes = codes.astype(np.uint64, copy=False)
    if row.truncates and fmt == FP32:
        return codes >> np.uint64(FP32.trailing_bits - TF32.trailing_bits), TF32
    return codes, fmt


def _magnitudes(codes: Codes, fmt: FloatFormat) -> Codes:
    """The sign of a scale is ignored."""
    magnitudes: Codes = codes.astype(np.uint64) & np.uint64(fmt.magnitude_mask)
    return magnitudes


def _converted(operand: Operand, fmt: FloatFormat) -> Operand:
    codes, own = operand
    converted, _ = elements.convert(codes.astype(own.code_dtype), own, fmt, Manner(Attributes()))
    return converted.astype(np.uint64), fmt


def _decoded(operand: Operand) -> tuple[Indices, Indices]:
    """Significands and exponents."""
    codes, fmt = operand
    codes = codes.astype(np.uint64, copy=False)
    significands, exponents = np.empty(codes.shape, np.int64), np.empty(codes.shape, np.int64)
    integers.significands(codes, format_row(fmt), significands, exponents)
    return significands, exponents


def _moved(exponents: Indices, scales: Indices, every: int, axis: int) -> Indices:
    """The exponents of the elements, times scales that are powers of two; a NaN makes all of its elements NaN."""
    each = scales.repeat(every, axis=axis)
    each = each[:, :, : exponents.shape[2]] if axis == 2 else each[:, : exponents.shape[1]]
    special = np.maximum(exponents, each) >= integers.INFINITE
    moved: Indices = np.where(special, np.maximum(exponents, each), exponents + each)
    return moved
