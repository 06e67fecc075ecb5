"""Block-wise steps of quantization: the largest code of each block, and products with the scale of each block.

A matrix of codes is walked in pieces that stay in a cache. The kernels that compute in hardware floats run only while
the processor's floating-point environment is the default. Otherwise the integer kernels compute the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from floatsim_kernels.quantization import blocks as loops
from floatsim_kernels.runtime import cpu as machine

from floatsim.emulator.elementwise import elementwise
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

__all__ = ["Blocks", "Piece", "largest", "look_up", "pieces", "scaled", "to_integers"]

_PIECE = 1 << 16  # elements: two arrays of float32 fit in a cache of 512 KiB


class Blocks(NamedTuple):
    """A stack of matrices that is cut into blocks: its shape (stack, rows, columns), a block's height and width.

    `single`: there is one block, even if the matrices are empty.
    """

    shape: tuple[int, int, int]
    height: int
    width: int
    single: bool = False

    @property
    def grid(self) -> tuple[int, int, int]:
        """The shape of an array with one number for each block. The last blocks may be short."""
        stack, rows, columns = self.shape
        return (1, 1, 1) if self.single else (stack, -(-rows // self.height), -(-columns // self.width))


class Piece(NamedTuple):
    """A part of a stack of matrices that is contiguous in memory: whole rows, or a part of one row."""

    matrix: int
    rows: slice
    columns: slice
    flat: slice

    def of(self, array: Array) -> Array:
        """Return this part of an array (stack, rows, columns)."""
        part: Array = array[self.matrix, self.rows, self.columns]
        return part


def pieces(blocks: Blocks) -> Iterator[Piece]:
    """Yield the pieces of the matrices, in the order of memory."""
    stack, rows, columns = blocks.shape
    width = min(columns, _PIECE)
    height = max(1, _PIECE // max(columns, 1))
    for matrix in range(stack):
        for row in range(0, rows, height):
            below = min(rows, row + height)
            for column in range(0, columns, max(width, 1)):
                right = min(columns, column + width)
                start = (matrix * rows + row) * columns + column
                size = (below - row) * (right - column)
                yield Piece(matrix, slice(row, below), slice(column, right), slice(start, start + size))


def largest(codes: Array, fmt: FloatFormat, blocks: Blocks, part: str = "magnitude") -> Array:
    """Return the code of the largest magnitude of each block, (stack, blocks down, blocks across).

    `part`: of all elements ("magnitude"), of the positive ones ("positive") or of the negative ones ("negative"). The
    code of a NaN is larger than that of infinity. The code is 0 if there is no such element.
    """
    kind = fmt.code_dtype.type
    everything, mask, sign = kind(2**fmt.bits - 1), kind(fmt.magnitude_mask), kind(fmt.sign_mask)
    flip, keep = {"magnitude": (kind(0), mask), "positive": (kind(0), everything), "negative": (sign, everything)}[part]
    out = np.zeros(blocks.grid, fmt.code_dtype)
    for piece in pieces(blocks):
        loops.largest(
            piece.of(codes), piece.rows.start, piece.columns.start, blocks.height, blocks.width, flip, keep, mask,
            out[piece.matrix],
        )  # fmt: skip
    return out


_NEAREST = CallOptions(RoundingAttributes())
_KERNELS = {"multiply": loops.multiply, "divide": loops.divide}


def scaled(name: str, codes: Array, scales: Array, fmt: FloatFormat, blocks: Blocks, piece: Piece) -> Array:
    """Return the products or quotients of a piece and the scales of its blocks, rounded to nearest, ties to even.

    All codes are of `fmt`, which is FP32 or FP64. `name` is "multiply" or "divide". The result has one dimension.
    """
    part, of_blocks = piece.of(codes), scales[piece.matrix]
    row, column, height, width = piece.rows.start, piece.columns.start, blocks.height, blocks.width
    if machine.environment_is_default():
        dtype = np.dtype({FP32: np.float32, FP64: np.float64}[fmt])
        out = np.empty(part.shape, dtype)
        _KERNELS[name](part.view(dtype), row, column, height, width, of_blocks.view(dtype), out)
        return out.reshape(-1).view(fmt.code_dtype)
    rows, columns = (np.arange(part.shape[axis]) + start for axis, start in ((0, row), (1, column)))
    spread = of_blocks[np.ix_(rows // height, columns // width)]
    result: Array = elementwise(name, [(part, fmt), (spread, fmt)], fmt, _NEAREST, False)[0]
    return result.reshape(-1)


def look_up(codes: Array, thresholds: NDArray[np.float32], by_order: NDArray[np.uint8], out: Array) -> None:
    """Write by_order[the number of thresholds below the value] for each FP32 code of one dimension."""
    bits = thresholds.view(np.int32)
    keys = np.where(bits >= 0, bits, bits ^ np.int32(0x7FFFFFFF))  # in the order of the values
    loops.look_up(codes.view(np.int32), keys, by_order, out)


def to_integers(values: Array, zero_points: NDArray[np.int64], lowest: int, highest: int, out: Array) -> None:
    """Write values + zero points, clamped. `values` are integers as floats; one zero point, or one for each value."""
    loops.to_integers(values, zero_points, lowest, highest, out)
