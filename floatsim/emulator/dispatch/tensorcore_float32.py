"""The sums of matrix units that are computed in float32, and the calls of their kernels."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from floatsim_kernels.runtime import cpu as machine
from floatsim_kernels.tensorcore import float32 as loops

from floatsim.emulator.params import pack
from floatsim.emulator.tensorcore_operands import BlockScales, Matrix, bits_read, floats_of, store, values_of
from floatsim.formats import E8M0, FP16, FP32, FloatFormat
from floatsim.tensorcore.instructions import FusedBlocks, GroupedBlocks, Instruction, TwoHalves

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["WIDTH", "accumulate", "can_do"]

Codes: TypeAlias = "NDArray[np.unsignedinteger[Any]]"
Indices: TypeAlias = "NDArray[np.int64]"


WIDTH = loops.WIDTH
"""Columns of which a row is done, or left alone, together."""


def can_do(row: Instruction) -> bool:
    """Return whether the kernels on float32 are for such sums."""
    if not isinstance(row.model, FusedBlocks | TwoHalves) or isinstance(row.model, GroupedBlocks):
        return False
    return row.output != FP16 or bool(machine.has_f16c())


def accumulate(
    row: Instruction, a: Matrix, b: Matrix, out: Codes, ranges: Indices, scales: BlockScales | None
) -> NDArray[np.bool_]:
    """Sums of a (M, K) times b (K, N) over each range into out (ranges, M, N), codes.

    Returns which rows, of which groups of WIDTH columns, of each range are left as they were.
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
    loops.fused(
        int(row.output == FP16), floats_of(a), floats_of(b), sums, np.ascontiguousarray(ranges),
        _kernel_row(row, a.format, b.format), failed, of_rows, of_columns,
        np.empty((even, length), np.float32), np.empty((even, length), np.int32),
        np.empty((loops.DEPTH, WIDTH), np.float32), np.empty((loops.DEPTH, WIDTH), np.int16),
        np.empty((even, WIDTH), np.float32), np.empty((2, even), np.bool_),
    )  # fmt: skip
    store(sums, failed, WIDTH, out, row.output)
    return failed


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
