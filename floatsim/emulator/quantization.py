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

__all__ = ["Blocks", "LookUp", "Piece", "from_integers", "largest", "pieces", "scaled", "to_integers", "zeros_of"]

_PIECE = 1 << 17  # elements: three arrays of float32 fit in 2 MiB; 2**15 took 1.3 times as long (November 2026)


class Blocks(NamedTuple):
    """A stack of matrices that is cut into blocks: its shape (stack, rows, columns), a block's height and width.

    `single`: there is one block, even if the matrices are empty.
    """

    shape: tuple[int, int, int]
    height: int
    width: int
    single: bool = False

    @property
    def piece_size(self) -> int:
        """The largest number of elements of a piece."""
        _, rows, columns = self.shape
        return min(rows * columns, _PIECE)

    @property
    def in_order(self) -> bool:
        """Whether all blocks are whole and lie one after the other in memory, also in every piece."""
        whole = self.shape[2] % self.width == 0 and (self.shape[2] <= _PIECE or _PIECE % self.width == 0)
        return self.height == 1 and whole and not self.single

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
    start: int
    """The flat index of the first element."""

    def buffer(self, memory: Array) -> Array:
        """Return the start of a flat array in the shape of this part."""
        rows, columns = self.rows.stop - self.rows.start, self.columns.stop - self.columns.start
        return memory[: rows * columns].reshape(rows, columns)

    def of(self, array: Array) -> Array:
        """Return this part of an array (stack, rows, columns)."""
        part: Array = array[self.matrix, self.rows, self.columns]
        return part

    def of_blocks(self, array: Array, blocks: Blocks) -> Array:
        """Return the numbers of the blocks of this part, from an array of the grid; the blocks are `in_order`."""
        size = (self.rows.stop - self.rows.start) * (self.columns.stop - self.columns.start)
        return array.reshape(-1)[self.start // blocks.width : (self.start + size) // blocks.width]


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
                yield Piece(matrix, slice(row, below), slice(column, right), start)


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
        if blocks.in_order:
            rows = piece.of(codes).reshape(-1, blocks.width)
            loops.largest_of_rows(rows, flip, keep, mask, piece.of_blocks(out, blocks))
        else:
            loops.largest(piece.of(codes), *_place(blocks, piece), flip, keep, mask, out[piece.matrix])
    return out


_DTYPES: dict[FloatFormat, np.dtype[Any]] = {FP32: np.dtype(np.float32), FP64: np.dtype(np.float64)}
_NEAREST = CallOptions(RoundingAttributes())
_KERNELS = {"multiply": loops.multiply, "divide": loops.divide}
_OF_ROWS = {"multiply": loops.multiply_rows, "divide": loops.divide_rows}


def _place(blocks: Blocks, piece: Piece) -> tuple[int, int, int, int]:
    """Return what the loops take: the first row and column of the piece, and the height and width of a block."""
    return piece.rows.start, piece.columns.start, blocks.height, blocks.width


def scaled(name: str, codes: Array, scales: Array, fmt: FloatFormat, blocks: Blocks, piece: Piece, out: Array) -> None:
    """Write the products or quotients of a piece and the scales of its blocks, rounded to nearest, ties to even.

    All codes are of `fmt`, which is FP32 or FP64. `name` is "multiply" or "divide". `codes` and `out` have the shape of
    the piece.
    """
    if machine.environment_is_default():
        dtype = _DTYPES[fmt]
        x, written, factors = codes.view(dtype), out.view(dtype), scales.view(dtype)
        if blocks.in_order:
            shape = -1, blocks.width
            _OF_ROWS[name](x.reshape(shape), piece.of_blocks(factors, blocks), written.reshape(shape))
        else:
            _KERNELS[name](x, *_place(blocks, piece), factors[piece.matrix], written)
        return
    rows, columns = (np.arange(part.start, part.stop) for part in (piece.rows, piece.columns))
    spread = scales[piece.matrix][np.ix_(rows // blocks.height, columns // blocks.width)]
    out[...] = elementwise(name, [(codes, fmt), (spread, fmt)], fmt, _NEAREST, False)[0]


def to_integers(
    codes: Array, fmt: FloatFormat, zeros: Array, low: int, high: int, blocks: Blocks, piece: Piece, out: Array
) -> None:
    """Write x + zero point, clamped, for codes of integers x of at most 2**20 in FP32 or FP64.

    `zeros` has a number of the format's dtype for each block. `codes` and `out` have the shape of the piece.
    """
    dtype = _DTYPES[fmt].type
    loops.to_integers(
        codes.view(dtype), *_place(blocks, piece), zeros[piece.matrix], dtype(low), dtype(high), out
    )  # fmt: skip


def from_integers(codes: Array, fmt: FloatFormat, zeros: Array, blocks: Blocks, piece: Piece) -> Array:
    """Return the integers of a piece less the zero points of their blocks, as codes of FP32 or FP64."""
    out = np.empty(codes.shape, _DTYPES[fmt])
    loops.from_integers(codes, *_place(blocks, piece), zeros[piece.matrix], out)
    return out.view(fmt.code_dtype)


def zeros_of(zero_points: Array | None, fmt: FloatFormat, blocks: Blocks) -> Array:
    """Return zero points, or zeros, as numbers of the dtype of FP32 or FP64."""
    return np.zeros(blocks.grid, _DTYPES[fmt]) if zero_points is None else zero_points.astype(_DTYPES[fmt])


class LookUp:
    """The assignment of float32 numbers to codes by thresholds.

    Parameters
    ----------
    thresholds : float32 ndarray
        In ascending order.
    by_order : uint8 ndarray
        The code for each number of thresholds below a value.
    """

    def __init__(self, thresholds: NDArray[np.float32], by_order: NDArray[np.uint8]) -> None:
        bits = thresholds.view(np.int32)
        keys = np.where(bits >= 0, bits, bits ^ np.int32(0x7FFFFFFF))  # in the order of the values
        self._keys, self._codes = keys, by_order

    def __call__(self, codes: Array, out: Array) -> None:
        """Write the codes of the numbers of one dimension, which are given as FP32 codes."""
        loops.look_up(codes.view(np.int32), self._keys, self._codes, out)
