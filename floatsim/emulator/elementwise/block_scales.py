"""Block-wise steps of quantization: the largest code of each block, scaled elements as codes, codes times scales.

A stack of matrices is walked in pieces that stay in a cache. The kernels that compute in hardware floats run only while
the processor's floating-point environment is the default. Otherwise the integer kernels compute the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from floatsim_kernels.quantization import blocks as loops
from floatsim_kernels.quantization import packed as packed_loops
from floatsim_kernels.quantization import scales as scale_loops
from floatsim_kernels.runtime import cpu as machine

from floatsim.emulator import parallel
from floatsim.emulator.elementwise.execute import convert, elementwise
from floatsim.emulator.elementwise.operations import OPERATIONS, Family
from floatsim.emulator.elementwise.rounding import rounding_loop
from floatsim.emulator.params import unpack_params
from floatsim.emulator.proofs import divisions_may_be_lifted
from floatsim.formats import BF16, E4M3, E8M0, FP32, FP64, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import Overflow, Rounding, RoundingAttributes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

__all__ = [
    "Blocks", "LookUp", "Piece", "UnpackedRuns", "affine_values", "environment_is_default", "float_codes",
    "float_values", "in_pieces", "integer_codes", "integer_values", "largest", "largest_of_piece", "largest_of_signs",
    "largest_of_signs_of_piece", "nearest", "numbers_of", "nvfp4_scales", "pieces", "powers_of_two", "scaled",
    "shift_to_codes", "table_values", "unpacked_codes", "unpacked_fields", "unpacked_points", "unpacked_runs",
    "usable_scales",
]  # fmt: skip

_PIECE = 1 << 17  # elements: three arrays of float32 fit in 2 MiB; 2**15 took 1.3 times as long (November 2026)
_LARGEST_PIECE = 4 * _PIECE  # so that whole blocks of a matrix with 4096 columns and blocks of 128 x 128 are one piece
_PIECES = 32  # that a long array is cut into, enough for all threads. The numbers of the blocks of a piece are computed
# by short array operations: pieces of 2**19 elements took 0.8 of the time of 2**17 (AVX-512, 2 MiB, November 2026)
_WORTH_THREADS = 1 << 20  # elements, as in pieces.py


class Blocks(NamedTuple):
    """A stack of matrices that is cut into blocks: its shape (stack, rows, columns), a block's height and width.

    `single`: there is one block, even if the matrices are empty.
    """

    shape: tuple[int, int, int]
    height: int
    width: int
    single: bool = False

    @property
    def flattened(self) -> Blocks:
        """One row, if all blocks are whole and lie one after the other in memory; else these blocks."""
        stack, rows, columns = self.shape
        if self.single or self.height != 1 or columns % self.width:
            return self
        return Blocks((1, 1, stack * rows * columns), 1, self.width)

    @property
    def grid(self) -> tuple[int, int, int]:
        """The shape of an array with one number for each block. The last blocks may be short."""
        stack, rows, columns = self.shape
        return (1, 1, 1) if self.single else (stack, -(-rows // self.height), -(-columns // self.width))

    @property
    def piece(self) -> tuple[int, int]:
        """The rows and columns of a piece: whole blocks if these are not too large."""
        stack, rows, columns = self.shape
        size = max(_PIECE, min(_LARGEST_PIECE, stack * rows * columns // _PIECES))
        if columns > size:
            return 1, size // self.width * self.width or size
        height = max(1, size // max(columns, 1))
        whole = -(-height // self.height) * self.height
        return min(rows, whole if whole * columns <= _LARGEST_PIECE else height), columns

    @property
    def are_local(self) -> bool:
        """Whether there are pieces, and each block lies in one."""
        (stack, rows, columns), (height, width) = self.shape, self.piece
        return bool(
            stack * rows * columns
            and (height >= rows or height % self.height == 0)
            and (width >= columns or width % self.width == 0)
        )


class Piece(NamedTuple):
    """A part of a stack of matrices that is contiguous in memory: whole rows, or a part of one row."""

    matrix: int
    rows: slice
    columns: slice
    start: int
    """The flat index of the first element."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    def of(self, array: Array) -> Array:
        """Return this part of an array (stack, rows, columns)."""
        part: Array = array[self.matrix, self.rows, self.columns]
        return part

    def of_grid(self, blocks: Blocks) -> tuple[slice, slice, slice]:
        """Return the index of the blocks of this part in an array of the grid."""
        rows, columns = self.rows, self.columns
        if blocks.single:
            return slice(0, 1), slice(0, 1), slice(0, 1)
        down = slice(rows.start // blocks.height, -(-rows.stop // blocks.height))
        across = slice(columns.start // blocks.width, -(-columns.stop // blocks.width))
        return slice(self.matrix, self.matrix + 1), down, across


def pieces(blocks: Blocks) -> Iterator[Piece]:
    """Yield the pieces of the matrices, in the order of memory."""
    stack, rows, columns = blocks.shape
    height, width = blocks.piece
    for matrix in range(stack):
        for row in range(0, rows, max(height, 1)):
            below = min(rows, row + height)
            for column in range(0, columns, max(width, 1)):
                right = min(columns, column + width)
                start = (matrix * rows + row) * columns + column
                yield Piece(matrix, slice(row, below), slice(column, right), start)


def in_pieces(title: str, blocks: Blocks, work: Callable[[Piece], None]) -> None:
    """Call `work` on every piece, on all threads if there are many elements."""
    threads = parallel.get_num_threads() if math.prod(blocks.shape) > _WORTH_THREADS else 1
    found = list(pieces(blocks))
    if found:
        parallel.run(found, work, threads, title)


def environment_is_default() -> bool:
    """Return whether hardware floats return IEEE 754's results: no flushing to zero, ties to even."""
    return bool(machine.environment_is_default())


# -- the largest code of each block ------------------------------------------------------------------------------------


def _place(blocks: Blocks, piece: Piece) -> tuple[int, int, int, int, int]:
    """Return what the loops take: columns of a piece, its first row and column, and the height and width of a block."""
    return piece.shape[1], piece.rows.start, piece.columns.start, blocks.height, blocks.width


def _masks(fmt: FloatFormat) -> tuple[Any, Any, Any]:
    kind = fmt.code_dtype.type
    return kind(0), kind(fmt.magnitude_mask), kind(fmt.magnitude_mask)


def largest_of_piece(codes: Array, fmt: FloatFormat, blocks: Blocks, piece: Piece) -> Array:
    """Return the largest codes of the blocks of a piece, which has whole blocks, as `largest` does."""
    index = piece.of_grid(blocks)
    out = np.zeros([each.stop - each.start for each in index], fmt.code_dtype)
    size = blocks.height, blocks.width
    loops.largest(piece.of(codes).reshape(-1), piece.shape[1], 0, 0, *size, *_masks(fmt), out[0])
    return out


def largest(codes: Array, fmt: FloatFormat, blocks: Blocks) -> Array:
    """Return the code of the largest magnitude of each block, (stack, blocks down, blocks across).

    The code of a NaN is larger than that of infinity. The code is 0 if there is no element.
    """
    out = np.zeros(blocks.grid, fmt.code_dtype)
    for piece in pieces(blocks):
        loops.largest(piece.of(codes).reshape(-1), *_place(blocks, piece), *_masks(fmt), out[piece.matrix])
    return out


def _signed(fmt: FloatFormat) -> tuple[Any, Any]:
    """Return the sign bit and the largest magnitude of codes."""
    return fmt.code_dtype.type(fmt.sign_mask), fmt.code_dtype.type(fmt.magnitude_mask)


def largest_of_signs(codes: Array, fmt: FloatFormat, blocks: Blocks) -> tuple[Array, Array]:
    """Return the codes of `largest` for the positive and for the negative elements."""
    both = np.zeros(blocks.grid, fmt.code_dtype), np.zeros(blocks.grid, fmt.code_dtype)
    for piece in pieces(blocks):
        out = (each[piece.matrix] for each in both)
        loops.largest_of_signs(piece.of(codes).reshape(-1), *_place(blocks, piece), *_signed(fmt), *out)
    return both


def largest_of_signs_of_piece(codes: Array, fmt: FloatFormat, blocks: Blocks, piece: Piece) -> tuple[Array, Array]:
    """Return the codes of `largest_of_piece` for the positive and for the negative elements."""
    shape = [each.stop - each.start for each in piece.of_grid(blocks)]
    both = np.zeros(shape, fmt.code_dtype), np.zeros(shape, fmt.code_dtype)
    size = blocks.height, blocks.width
    loops.largest_of_signs(
        piece.of(codes).reshape(-1), piece.shape[1], 0, 0, *size, *_signed(fmt), both[0][0], both[1][0]
    )  # fmt: skip
    return both


# -- operations on the numbers of blocks -------------------------------------------------------------------------------

_DTYPES: dict[FloatFormat, np.dtype[Any]] = {FP32: np.dtype(np.float32), FP64: np.dtype(np.float64)}
_NEAREST = CallOptions(RoundingAttributes())
_SATURATING = CallOptions(RoundingAttributes(overflow=Overflow.SATURATE_FINITE))


def nearest(name: str, x: Array, y: Array, fmt: FloatFormat, saturate: bool) -> Array:
    """Return the codes of an operation on codes of FP32 or FP64, rounded to nearest, ties to even.

    With `saturate`, a finite result beyond the largest number becomes that number.
    """
    ufunc = OPERATIONS[name].float64
    if ufunc is None or OPERATIONS[name].family is not Family.ARITHMETIC or not environment_is_default():
        operands = [(x, fmt), (y, fmt)]
        return elementwise(name, operands, fmt, _SATURATING if saturate else _NEAREST, False)[0]
    dtype = _DTYPES[fmt]
    a, b = x.view(dtype), y.view(dtype)
    with np.errstate(all="ignore"):
        result = np.asarray(ufunc(a, b))
    codes: Array = result.view(fmt.code_dtype)
    magnitude = codes & fmt.code_dtype.type(fmt.magnitude_mask)
    if int(magnitude.max(initial=0)) > fmt.max_code:
        codes[np.isnan(result)] = fmt.canonical_nan
        if saturate:
            overflow = np.isinf(result) & np.isfinite(a) & np.isfinite(b) & ((b != 0) | (name != "divide"))
            codes[overflow] = np.where(result[overflow] < 0, fmt.max_code | fmt.sign_mask, fmt.max_code)
    return codes


def numbers_of(x: Any) -> Array:
    """Return the numbers of a FloatArray as floats: of FP32 and FP64 without a copy, if hardware floats are exact."""
    if x.format in _DTYPES and environment_is_default():
        numbers: Array = np.asarray(x.codes).view(_DTYPES[x.format])
        return numbers
    values: Array = x.values
    return values


# -- scales of blocks --------------------------------------------------------------------------------------------------

Factors: TypeAlias = "tuple[Array, Array] | None"
"""The codes of the scales in their format, and those of the factors in FP32 or FP64; None without a kernel."""


def _arrays(amax: Array, fmt: FloatFormat) -> tuple[Array, Array, Any]:
    """Return the numbers of amax, flat, an array for the factors, and the largest number."""
    dtype = _DTYPES[fmt]
    return amax.view(dtype).reshape(-1), np.empty(amax.size, dtype), np.finfo(dtype).max


def powers_of_two(
    amax: Array, fmt: FloatFormat, target: FloatFormat, least: float, carry: int, offset: int, inverts: bool
) -> Factors:
    """Return scales that are powers of two: `floatsim_kernels.quantization.scales.powers_of_two` has the parameters.

    Target formats without zero are E8M0 only, those with zero FP32 and BF16.
    """
    if not environment_is_default() or target not in _TOP_BITS:
        return None
    numbers, factors, largest_number = _arrays(amax, fmt)
    scales = np.empty(amax.size, np.float32)
    ends = target.emin - target.trailing_bits, target.emax
    special = (1.0, 1.0) if target.has_zero else (math.ldexp(1.0, target.emin), math.nan)
    dtype = _DTYPES[fmt].type
    scale_loops.powers_of_two(
        numbers, dtype(least), carry, offset, ends, *special, inverts, largest_number, scales, factors
    )
    shift = _TOP_BITS[target]
    codes = (scales.view(np.uint32) >> shift if shift else scales.view(np.uint32)).astype(target.code_dtype, copy=False)
    return codes.reshape(amax.shape), factors.view(fmt.code_dtype).reshape(amax.shape)


_TOP_BITS = {FP32: 0, BF16: 16, E8M0: 23}
"""The low bits of a float32 number, which is 2**n or NaN, that its code in a format has not."""


def usable_scales(quotients: Array, amax: Array, fmt: FloatFormat, target: FloatFormat, inverts: bool) -> Factors:
    """Return quotients, in FP32 or FP64, as scales: rounded to a format, positive; 1 where amax is 0 or not finite."""
    if not environment_is_default():
        return None
    numbers, factors, largest_number = _arrays(amax, fmt)
    dtype, rounded = _DTYPES[fmt], quotients
    if target != fmt:
        codes = convert(quotients, fmt, target, _SATURATING, False)[0]
        rounded = convert(codes, target, fmt, _NEAREST, False)[0]
    scales = rounded.view(dtype).reshape(-1)
    scales = scales.copy() if target == fmt else scales
    ends = dtype.type(target.smallest_subnormal), dtype.type(target.max)
    scale_loops.usable(numbers, *ends, inverts, largest_number, scales, factors)
    found = scales.view(fmt.code_dtype).reshape(amax.shape)
    codes = found if target == fmt else convert(found, fmt, target, _NEAREST, False)[0]
    return codes, factors.view(fmt.code_dtype).reshape(amax.shape)


_NVFP4 = {"nvfp4": scale_loops.TENSOR, "nvfp4_torchao": scale_loops.QUOTIENT, "nvfp4_single": scale_loops.SINGLE}


def nvfp4_scales(rule: str, amax: Array, first: Array, second: Array, inverts: bool) -> Factors:
    """Return the scales of NVFP4 in E4M3, by a rule of `quantize_blocks`: `floatsim_kernels.quantization.scales.nvfp4`.

    All codes that are given are of FP32.
    """
    rounds, read = rounding_loop(FP32, E4M3, _SATURATING.attributes, True), unpack_params(E4M3)
    if not environment_is_default() or rounds is None or read is None:
        return None
    numbers, factors, largest_number = _arrays(amax, FP32)
    codes = np.empty(amax.size, E4M3.code_dtype)
    of_tensor = [np.float32(each.view(np.float32)) for each in (first, second)]
    least = np.float32(E4M3.smallest_normal)
    scale_loops.nvfp4(_NVFP4[rule])(
        numbers, *of_tensor, least, largest_number, inverts, rounds.params, read, codes, factors
    )
    return codes.reshape(amax.shape), factors.view(FP32.code_dtype).reshape(amax.shape)


# -- from numbers to codes ---------------------------------------------------------------------------------------------

_NONE = {dtype: (np.zeros((1, 1), dtype), np.zeros(3, dtype)) for dtype in _DTYPES.values()}
"""No zero points, and no ends of a range."""
_NO_PARAMS = np.zeros(1, np.uint32)


def _spread(numbers: Array, blocks: Blocks, piece: Piece) -> Array:
    """Return the numbers of the blocks of the elements of a piece, in its shape."""
    rows, columns = (np.arange(part.start, part.stop) for part in (piece.rows, piece.columns))
    spread: Array = numbers[piece.matrix][np.ix_(rows // blocks.height, columns // blocks.width)]
    return spread


def scaled(name: str, codes: Array, scales: Array, fmt: FloatFormat, blocks: Blocks, piece: Piece, out: Array) -> None:
    """Write the products or quotients of a piece and the scales of its blocks, rounded to nearest, ties to even.

    All codes are of `fmt`, which is FP32 or FP64. `name` is "multiply" or "divide". `codes` and `out` have the shape of
    the piece.
    """
    if environment_is_default():
        dtype = _DTYPES[fmt]
        x, factors, written = codes.view(dtype).reshape(-1), scales.view(dtype)[piece.matrix], out.view(dtype)
        zeros, ends = _NONE[dtype]
        loops.products(name == "divide")(
            x, *_place(blocks, piece), factors, zeros, _NO_PARAMS, ends, written.reshape(-1)
        )  # fmt: skip
        return
    out[...] = elementwise(name, [(codes, fmt), (_spread(scales, blocks, piece), fmt)], fmt, _NEAREST, False)[0]


def _is_fused(attributes: RoundingAttributes) -> bool:
    return attributes.rounding is not Rounding.STOCHASTIC and environment_is_default()


def float_codes(
    name: str, codes: Array, scales: Array, fmt: FloatFormat, target: FloatFormat, options: CallOptions, blocks: Blocks,
    piece: Piece, out: Array,
) -> bool:  # fmt: skip
    """Write the scaled elements of a piece (`scaled`), rounded to a format, in one pass. Return False if none can."""
    attributes = options.attributes
    rounds = rounding_loop(fmt, target, attributes, True) if _is_fused(attributes) else None
    if rounds is None:
        return False
    dtype = _DTYPES[fmt]
    factors, (zeros, ends) = scales.view(dtype)[piece.matrix], _NONE[dtype]
    own = piece.of_grid(blocks)[1:]
    power = _lift(factors[own]) if name == "divide" else 0
    if power:
        lifted, ends = np.empty_like(factors), np.full(3, power, dtype)
        lifted[own] = factors[own] * dtype.type(power)
        factors = lifted
    loop = loops.float_codes(
        fmt.bits, attributes.rounding.value, name == "divide", rounds.shared, rounds.results, power > 0
    )
    loop(
        codes.view(dtype).reshape(-1), *_place(blocks, piece), factors, zeros, rounds.params, ends, out.reshape(-1)
    )  # fmt: skip
    return True


def _lift(divisors: Array) -> float:
    """Return a power of two by which dividends and divisors may be multiplied, if a divisor is subnormal; else 0.

    Processors divide by subnormal numbers slowly: ten times the time was measured (AVX-512, November 2026).
    """
    info = np.finfo(divisors.dtype)
    power = 2.0 ** (info.nmant + 1)
    least, largest = float(divisors.min(initial=1.0)), float(divisors.max(initial=0.0))
    return power if least < info.smallest_normal and divisions_may_be_lifted(largest, power) else 0.0


def integer_codes(
    name: str, codes: Array, scales: Array, fmt: FloatFormat, integers: FloatFormat, ends: tuple[int, int, int],
    zero_points: Array | None, options: CallOptions, blocks: Blocks, piece: Piece, out: Array,
) -> bool:  # fmt: skip
    """Write the scaled elements of a piece, rounded to integers, plus the zero point of their block, clamped.

    `ends` are the least and the largest integer, and the bits after the binary point: a unit is 2**-bits. `integers` is
    a format whose numbers are integers. The zero points are floats. Return False if one pass cannot.
    """
    dtype, attributes = _DTYPES[fmt], options.attributes
    rounds = rounding_loop(fmt, integers, attributes, False) if _is_fused(attributes) else None
    if rounds is None:
        return False
    loop = loops.integer_codes(fmt.bits, attributes.rounding.value, name == "divide", zero_points is not None)
    zeros = _NONE[dtype][0] if zero_points is None else zero_points[piece.matrix]
    loop(
        codes.view(dtype).reshape(-1), *_place(blocks, piece), scales.view(dtype)[piece.matrix], zeros, rounds.params,
        np.array([*ends[:2], 1 << ends[2]], dtype), out.reshape(-1),
    )  # fmt: skip
    return True


def shift_to_codes(
    codes: Array, fmt: FloatFormat, ends: tuple[int, int], zero_points: Array | None, blocks: Blocks, piece: Piece,
    out: Array,
) -> None:  # fmt: skip
    """Write integers, given as codes of FP32 or FP64, plus the zero point of their block, clamped to `ends`."""
    numbers = codes.view(_DTYPES[fmt])
    shifted = numbers if zero_points is None else numbers + _spread(zero_points, blocks, piece)
    out[...] = np.clip(shifted, *ends)


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
        missing = -len(keys) % 4  # no number is above the last key, and none changes a code
        self._keys = np.append(keys, np.full(missing, 0x7FFFFFFF)).astype(np.int32)
        changes = by_order[1:] ^ by_order[:-1]
        self._changes = np.append(changes, np.zeros(missing)).astype(np.int32)
        self._codes = by_order
        self._count = next((n for n in (loops.FEW, loops.MANY) if len(thresholds) <= n), 0)
        room = self._count - len(self._keys)
        if self._count:
            last, none, first = np.full(room, 0x7FFFFFFF), np.zeros(room), by_order[:1]
            self._params = np.concatenate([self._keys, last, self._changes, none, first]).astype(np.int32)

    def scaled(self, name: str, codes: Array, scales: Array, blocks: Blocks, piece: Piece, out: Array) -> bool:
        """Write the codes of the scaled elements of a piece (`scaled`), FP32, in one pass. Return False if none can."""
        if not self._count or not environment_is_default():
            return False
        dtype = _DTYPES[FP32]
        zeros, ends = _NONE[dtype]
        loops.table_codes(name == "divide", self._count)(
            codes.view(dtype).reshape(-1), *_place(blocks, piece), scales.view(dtype)[piece.matrix], zeros,
            self._params, ends, out.reshape(-1),
        )  # fmt: skip
        return True

    def __call__(self, codes: Array, out: Array) -> None:
        """Write the codes of the numbers of one dimension, which are given as FP32 codes."""
        loops.look_up(codes.view(np.int32), self._keys, self._codes, self._changes, out)


# -- from codes to numbers ---------------------------------------------------------------------------------------------


def _times_scales(numbers: Array, scales: Array, fmt: FloatFormat, blocks: Blocks, piece: Piece, out: Array) -> None:
    scaled("multiply", numbers, scales, fmt, blocks, piece, piece.of(out))


def float_values(
    codes: Array, source: FloatFormat, scales: Array, fmt: FloatFormat, blocks: Blocks, piece: Piece, out: Array
) -> None:
    """Write the numbers of a piece of codes times the scales of their blocks, as codes of FP32 or FP64.

    `codes`, `scales` and `out` are the whole arrays. Each product is rounded once, to nearest, ties to even.
    """
    part, dtype, params = piece.of(codes), _DTYPES[fmt], unpack_params(source)
    if not environment_is_default() or params is None:
        numbers = convert(part, source, fmt, _NEAREST, False)[0]
        _times_scales(numbers, scales, fmt, blocks, piece, out)
        return
    zeros, ends = _NONE[dtype]
    loops.float_values(fmt.bits)(
        part.reshape(-1), *_place(blocks, piece), scales.view(dtype)[piece.matrix], zeros, params, ends,
        piece.of(out).view(dtype).reshape(-1),
    )  # fmt: skip


def integer_values(
    codes: Array, fraction_bits: int, zero_points: Array | None, scales: Array, fmt: FloatFormat, blocks: Blocks,
    piece: Piece, out: Array,
) -> None:  # fmt: skip
    """Do for integers less their zero points, which are floats, what `float_values` does for numbers.

    The integers count units of 2**-fraction_bits.
    """
    part, dtype = piece.of(codes), _DTYPES[fmt]
    unit = np.array([2.0**-fraction_bits, 0, 0], dtype)
    if not environment_is_default():
        whole = part.astype(dtype)
        numbers = whole if zero_points is None else whole - _spread(zero_points, blocks, piece)
        _times_scales((numbers * unit[0]).view(fmt.code_dtype), scales, fmt, blocks, piece, out)
        return
    zeros = _NONE[dtype][0] if zero_points is None else zero_points[piece.matrix]
    loops.integer_values(fmt.bits, zero_points is not None)(
        part.reshape(-1), *_place(blocks, piece), scales.view(dtype)[piece.matrix], zeros, _NO_PARAMS, unit,
        piece.of(out).view(dtype).reshape(-1),
    )  # fmt: skip


def affine_values(
    codes: Array, fraction_bits: int, offsets: Array, scales: Array, fmt: FloatFormat, blocks: Blocks, piece: Piece,
    out: Array,
) -> None:  # fmt: skip
    """Do what `integer_values` does, without zero points, and add the offsets of the blocks, with a second rounding.

    The offsets are codes of `fmt`, like the scales.
    """
    part, dtype = piece.of(codes), _DTYPES[fmt]
    unit = np.array([2.0**-fraction_bits, 0, 0], dtype)
    if not environment_is_default():
        _times_scales((part.astype(dtype) * unit[0]).view(fmt.code_dtype), scales, fmt, blocks, piece, out)
        operands = [(piece.of(out).copy(), fmt), (_spread(offsets, blocks, piece), fmt)]
        piece.of(out)[...] = elementwise("add", operands, fmt, _NEAREST, False)[0]
        return
    loops.affine_values(fmt.bits)(
        part.reshape(-1), *_place(blocks, piece), scales.view(dtype)[piece.matrix], offsets.view(dtype)[piece.matrix],
        _NO_PARAMS, unit, piece.of(out).view(dtype).reshape(-1),
    )  # fmt: skip


def table_values(
    codes: Array, table: Array, scales: Array, fmt: FloatFormat, blocks: Blocks, piece: Piece, out: Array
) -> None:
    """Do for the float32 numbers of a table what `float_values` does for numbers."""
    part, dtype = piece.of(codes), _DTYPES[fmt]
    numbers = np.resize(table.astype(dtype), 256)
    if not environment_is_default():
        _times_scales(numbers[part].view(fmt.code_dtype), scales, fmt, blocks, piece, out)
        return
    zeros, ends = _NONE[dtype]
    loops.table_values(
        part.reshape(-1), *_place(blocks, piece), scales.view(dtype)[piece.matrix], zeros, numbers, ends,
        piece.of(out).view(dtype).reshape(-1),
    )  # fmt: skip


# -- packed codes ------------------------------------------------------------------------------------------------------

_NO_TABLE = np.zeros(0, np.int8)
_PACKED_PIECE = 1 << 18  # elements


def _in_rows(title: str, rows: int, width: int, work: Callable[[slice], None]) -> None:
    """Call `work` on slices of rows of `width` elements, on all threads if there are many elements."""
    threads = parallel.get_num_threads() if rows * width > _WORTH_THREADS else 1
    parallel.run_rows(rows, max(1, _PACKED_PIECE // width), work, threads, title)


_WHOLE_BYTES = np.array([[byte >> j & 1 for j in range(8)] for byte in range(256)], np.uint8)
"""The bits of each byte, the lowest one first."""


class UnpackedRuns(NamedTuple):
    """How codes are unpacked: the arguments of `floatsim_kernels.quantization.packed.unpack`."""

    runs: Array
    words: Array
    spread: Array
    bias: int
    table: Array


def _joined(runs: list[list[int]]) -> list[list[int]]:
    """Return runs with those of the bits of neighbouring bytes in one."""
    joined: list[list[int]] = []
    for start, count, byte, *rest in runs:
        last = joined[-1] if joined else None
        if last and rest[-1] and last[3:] == rest and (last[0] + last[1], last[2] + last[1] // 8) == (start, byte):
            last[1] += count
        else:
            joined.append([start, count, byte, *rest])
    return joined


def unpacked_runs(runs: Array, bias: int, table: Array | None) -> UnpackedRuns:
    """Return the arguments of the kernel for runs of digits.

    A row of `runs` is (first element, elements, first byte, factor, base, place, halves). Each element has a byte of
    its own, the neighbour of the one before; or, if the run `halves`, eight elements have one byte. A digit is
    ((byte * factor mod 256) * base) >> 8: a field of w bits whose lowest bit is s has the factor 2**(8 - s - w) and the
    base 2**w. The digit times `place` is written if the place is 1, less `bias`, and added otherwise. The sum is the
    index of an entry of `table`, if there is one.
    """
    bits_only = bool(np.all(runs[:, 6] != 0))
    places = {int(row[5]) for row in runs if row[6]}
    spread = _WHOLE_BYTES * np.uint8(places.pop() if places else 1)
    if table is not None and bits_only:
        spread = table[spread].view(np.uint8)
    joined = _joined(runs.tolist())
    kinds, words = np.zeros((len(joined), 6), np.int64), np.zeros((len(joined), 3), np.uint64)
    for k, (start, count, byte, factor, base, place, halves) in enumerate(joined):
        kind = packed_loops.BITS if halves else packed_loops.TRITS if base == 3 else packed_loops.FIELDS
        kinds[k] = kind, start, count, byte, factor, place != 1
        if kind == packed_loops.FIELDS:
            shift = 9 - factor.bit_length() - (base.bit_length() - 1)
            words[k] = shift, (base - 1) * 0x0101010101010101, place.bit_length() - 1
    entries = _NO_TABLE if table is None or bits_only else table[:16]
    return UnpackedRuns(kinds, words, spread.view("<u8").ravel(), bias, entries.view(np.uint8))


def unpacked_codes(blocks: Array, size: int, runs: UnpackedRuns) -> Array:
    """Return the codes (blocks, size), int8, of packed blocks (blocks, bytes)."""
    out, source = np.empty((len(blocks), size), np.int8), np.ascontiguousarray(blocks)
    nbytes = source.shape[1]

    def work(part: slice) -> None:
        codes = out[part].reshape(-1)
        packed_loops.unpack(source[part].reshape(-1), nbytes, *runs, codes.view(np.uint8), codes.view(np.uint64))

    _in_rows("unpack", len(blocks), size, work)
    return out


def unpacked_fields(blocks: Array, pieces: Array, dtype: Any) -> Array:
    """Return unsigned numbers (blocks, numbers) that are made of fields of bytes of blocks (blocks, bytes).

    `pieces` is int64 (numbers, pieces, 4): the byte, a shift to the right, a mask, and a shift to the left; a piece
    with the mask 0 is none.
    """
    out, source = np.empty((len(blocks), len(pieces)), dtype), np.ascontiguousarray(blocks)

    def work(part: slice) -> None:
        packed_loops.fields(source[part], pieces, out[part])

    _in_rows("unpack", len(out), max(8 * out.shape[1], 1), work)
    return out


_MASKS = (np.uint8(255) * _WHOLE_BYTES).view("<u8").ravel()
"""For each byte of signs, a byte of ones for each negative element."""
_MASKS_OF_EVEN = _MASKS[[k | (k.bit_count() & 1) << 7 for k in range(128)]]
"""For each seven bits of signs: an eighth one makes the number of negative elements even."""


def unpacked_points(index: Array, signs: Array, grid: Array, even: bool = False) -> Array:
    """Return the points (blocks, elements) of a grid, int8 (points, 4 or 8), with signs.

    `index` is (blocks, points). `signs` is (blocks, elements / 8): the lowest bit of a byte is the first element. The
    points have no zeros, or there are no signs. With `even` a number of signs has seven bits, and the eighth element is
    negative if an odd number of the others is.
    """
    masks = _MASKS_OF_EVEN if even else _MASKS
    width = grid.shape[1]
    words = np.ascontiguousarray(grid).view(f"<u{width}").ravel().astype(np.uint64)
    out = np.empty((len(index), index.shape[1] * width), np.int8)

    def work(part: slice) -> None:
        flat = np.ascontiguousarray(index[part]).reshape(-1), np.ascontiguousarray(signs[part]).reshape(-1)
        packed_loops.points(*flat, words, masks, out[part].reshape(-1).view(np.uint64))

    _in_rows("unpack", out.shape[0], out.shape[1], work)
    return out
