"""Operands of matrix units in the form that kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from floatsim_kernels.tensorcore import integer as integers

from floatsim._types import Codes, Indices
from floatsim.emulator.elementwise.execute import convert
from floatsim.emulator.params import format_params
from floatsim.emulator.unpack import unpack
from floatsim.formats import FP16, FP32, FP64, TF32, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes
from floatsim.tensorcore.instructions import Instruction, Scales, TwoHalves

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BlockScales", "Matrix", "Record", "as_read", "bits_read", "decoded", "decoded_scales", "floats_of", "store",
    "values_of",
]  # fmt: skip

Floats: TypeAlias = "NDArray[np.floating[Any]]"


class Matrix(NamedTuple):
    """Codes of a matrix or a stack of matrices, and their values as float32 if known, of a stack one array for each."""

    codes: Codes
    format: FloatFormat
    floats: NDArray[np.float32] | Sequence[NDArray[np.float32]] | None = None


class Record(NamedTuple):
    """The arrays in which kernels count events: where (K), counts (2, 256), first (events, batch, M, N)."""

    where: Indices
    counts: Indices
    first: Indices


class BlockScales(NamedTuple):
    """Codes of the scales of a, (batch, M, ceil(K / every)), and of b, (batch, ceil(K / every), N)."""

    a: Codes
    b: Codes
    of: Scales

    def transposed(self) -> BlockScales:
        """Return the scales of b.T @ a.T."""
        return BlockScales(np.swapaxes(self.b, 1, 2), np.swapaxes(self.a, 1, 2), self.of)


def floats_of(x: Matrix) -> NDArray[np.float32]:
    """Return the values as a C-contiguous float32 array."""
    known = x.floats
    if known is None:
        known = unpack(x.codes.astype(x.format.code_dtype, copy=False), x.format, FP32)
    return np.ascontiguousarray(known)


def bits_read(row: Instruction) -> int:
    """Return a mask of the float32 bits that the instruction reads: those of TF32 if it truncates."""
    return 0xFFFFFFFF << (FP32.trailing_bits - TF32.trailing_bits if row.truncates else 0) & 0xFFFFFFFF


def as_read(row: Instruction, x: Matrix) -> tuple[Codes, FloatFormat]:
    """Return uint64 codes and their format as the instruction reads them: FP32 as TF32, or FP8 as FP16."""
    codes, fmt = x.codes.astype(np.uint64, copy=False), x.format
    if row.truncates and fmt == FP32:
        return codes >> np.uint64(FP32.trailing_bits - TF32.trailing_bits), TF32
    return _converted(codes, fmt, FP16) if isinstance(row.model, TwoHalves) else (codes, fmt)


def _converted(codes: Codes, own: FloatFormat, fmt: FloatFormat) -> tuple[Codes, FloatFormat]:
    converted, _ = convert(codes.astype(own.code_dtype), own, fmt, CallOptions(RoundingAttributes()))
    return converted.astype(np.uint64), fmt


def decoded(operand: tuple[Codes, FloatFormat]) -> tuple[Indices, Indices]:
    """Return the significands and exponents of a matrix or a stack of matrices."""
    codes, fmt = operand
    stack = codes.astype(np.uint64, copy=False).reshape(-1, *codes.shape[-2:])
    significands, exponents = np.empty(stack.shape, np.int64), np.empty(stack.shape, np.int64)
    integers.significands(stack, format_params(fmt), significands, exponents)
    return significands.reshape(codes.shape), exponents.reshape(codes.shape)


def decoded_scales(scales: BlockScales) -> list[tuple[Indices, Indices]]:
    """Return (significands, exponents) of the scales of a and of b. Signs are ignored."""
    fmt = scales.of.format
    magnitudes = (side.astype(np.uint64) & np.uint64(fmt.magnitude_mask) for side in (scales.a, scales.b))
    return [decoded((side, fmt)) for side in magnitudes]


def values_of(codes: Codes, fmt: FloatFormat) -> Floats:
    """Return accumulators as float64 for FP64, else as float32. The result uses the codes' memory if possible."""
    own = np.ascontiguousarray(codes, fmt.code_dtype)
    if fmt == FP16:
        return unpack(own, FP16, FP32)
    return own.view(np.float64 if fmt == FP64 else np.float32)


def store(sums: Floats, failed: NDArray[np.bool_], width: int, out: Codes, fmt: FloatFormat) -> None:
    """Write the codes of the results without a bailout. `failed` has one mark for each `width` columns of a row."""
    if np.may_share_memory(sums, out):  # the sums are already in place
        return
    with np.errstate(all="ignore"):  # the sums of a bailout may be any numbers
        codes = sums.astype(np.float16).view(np.uint16) if fmt == FP16 else sums.view(fmt.code_dtype)
    if failed.any():
        out[...] = np.where(failed.repeat(width, axis=2)[:, :, : out.shape[2]], out, codes)
    else:
        out[...] = codes
