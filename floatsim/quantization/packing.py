"""Packed codes: how libraries store codes of 2 to 8 bits in bytes and words, and scales in tiles.

Sources: `onnx.helper` and PyTorch (the low half of a byte first), bitsandbytes (the high half first), GPTQModel
(`PackableQuantLinear.pack`), AutoAWQ (`WQLinear_GEMM`), compressed-tensors (`pack_to_int32` of 0.20,
where a code may straddle words, and that of versions before, 32 // bits codes to a word), MLX (`quantize`) and the
cuBLAS manual ("1D Block Scaling Factors Layout").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.interop import widened
from floatsim.formats._validation import as_index, every_name_hint

__all__ = ["PACKED_LAYOUTS", "PackedLayout", "as_packed_layout", "pack", "packed_digits", "unpack"]

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class PackedLayout:
    """How codes are packed. `fs.quantization.PACKED_LAYOUTS` has the layouts by name.

    Attributes
    ----------
    name : str
        The name of the layout.
    word : dtype
        The dtype of the packed array.
    bits : tuple of int
        The widths of the codes.
    axis : int
        The axis along which codes share a word: -1, or -2 for the rows of a matrix.
    order : str or tuple of int
        Which code of a word is in the lowest bits, the next ones, and so on: "low first", "high first", or numbers.
    straddles : bool
        Whether a code may begin in one word and end in the next. Otherwise the highest bits of a word are unused
        where the width does not divide it.
    pads : bool
        Whether the last word may be incomplete; its other bits are 0.
    stored : str
        What is stored for a code: "code", "code - 1", or "code + half", half of the range, for signed codes.
    signed : str
        What `Quantized.packed` stores for signed integers: "two's complement" or "code + half".
    tile : tuple of int, optional
        The rows and columns of a tile, for scales. They are padded with 0.

    Examples
    --------
    >>> from floatsim.quantization import PACKED_LAYOUTS
    >>> PACKED_LAYOUTS["awq"].order, PACKED_LAYOUTS["gptq"].axis
    ((0, 2, 4, 6, 1, 3, 5, 7), -2)
    """

    name: str
    word: np.dtype[Any]
    bits: tuple[int, ...]
    axis: int = -1
    order: str | tuple[int, ...] = "low first"
    straddles: bool = False
    pads: bool = False
    stored: str = "code"
    signed: str = "two's complement"
    tile: tuple[int, int] | None = None

    def unit(self, bits: int) -> tuple[int, int]:
        """Return how many codes fill how many words."""
        size = 8 * self.word.itemsize
        if self.straddles:
            whole = math.lcm(bits, size)
            return whole // bits, whole // size
        return size // bits, 1

    def added(self, bits: int) -> int:
        """Return what is added to a code before it is stored."""
        return {"code": 0, "code - 1": -1, "code + half": 1 << (bits - 1)}[self.stored]

    def shifts(self, bits: int) -> Array:
        """Return the lowest bit of each code of a word."""
        codes = self.unit(bits)[0]
        order = {"low first": range(codes), "high first": range(codes)[::-1]}.get(str(self.order), self.order)
        return np.argsort(np.array(order)).astype(np.uint32) * np.uint32(bits)


_BYTE, _INT32, _UINT32 = np.dtype(np.uint8), np.dtype(np.int32), np.dtype(np.uint32)
_GPTQ = (2, 3, 4, 8)

PACKED_LAYOUTS = {
    row.name: row
    for row in (
        PackedLayout("low-nibble-first", _BYTE, (2, 3, 4, 5, 6, 7, 8), straddles=True, pads=True),
        PackedLayout("high-nibble-first", _BYTE, (2, 4), order="high first", pads=True),
        PackedLayout("gptq", _INT32, _GPTQ, axis=-2, straddles=True, signed="code + half"),
        PackedLayout("gptq-zeros-v1", _INT32, _GPTQ, straddles=True, stored="code - 1"),
        PackedLayout("gptq-zeros-v2", _INT32, _GPTQ, straddles=True),
        PackedLayout("awq", _INT32, (4,), order=(0, 2, 4, 6, 1, 3, 5, 7), signed="code + half"),
        PackedLayout("compressed-tensors", _INT32, (2, 3, 4, 5, 6, 7, 8), straddles=True, pads=True,
                     stored="code + half", signed="code + half"),
        PackedLayout("compressed-tensors-words", _INT32, (2, 3, 4, 5, 6, 7, 8), pads=True,
                     stored="code + half", signed="code + half"),
        PackedLayout("mlx", _UINT32, (2, 3, 4, 5, 6, 8), straddles=True, signed="code + half"),
        PackedLayout("cublas-128x4", _BYTE, (8,), pads=True, tile=(128, 4)),
    )
}  # fmt: skip
"""The layouts of packed codes by name.

>>> import floatsim as fs
>>> fs.quantization.PACKED_LAYOUTS["awq"].bits
(4,)
"""


def as_packed_layout(layout: Any, bits: int | None) -> tuple[PackedLayout, int]:
    """Return a layout by its name, and the width of its codes."""
    key = layout.strip().lower() if isinstance(layout, str) else layout
    row = layout if isinstance(layout, PackedLayout) else None
    if row is None:
        if not isinstance(key, str) or key not in PACKED_LAYOUTS:
            raise ValueError(f"unknown layout={layout!r:.60}; {every_name_hint(key, PACKED_LAYOUTS)}")
        row = PACKED_LAYOUTS[key]
    width = (4 if 4 in row.bits else row.bits[0]) if bits is None else as_index(bits, "bits", 1, 8)
    if width not in row.bits:
        raise ValueError(f"bits={width} is no width of layout={row.name!r}; it has {', '.join(map(str, row.bits))}")
    return row, width


def _checked(x: Any, argument: str) -> Array:
    """Return an array of integers, or raise a TypeError."""
    if isinstance(x, FloatArray):
        raise TypeError(f"{argument} must be integers, not a FloatArray of {x.format.name}: pass its `codes`")
    array: Array = widened(np.asarray(x))
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{argument} must be integers, not {array.dtype}")
    return array


def _axes(row: PackedLayout, x: Array, argument: str) -> None:
    least = 2 if row.tile is not None else -row.axis
    if x.ndim < least:
        raise ValueError(f"{argument} {x.shape}: layout={row.name!r} needs at least {least} axes")


def packed_digits(row: PackedLayout, digits: Array, bits: int) -> Array:
    """Return packed words of digits, integers from 0 to 2**bits - 1 that are stored as they are."""
    _axes(row, digits, "codes")
    if row.tile is not None:
        return _tiled(row.tile, digits.astype(row.word))
    lines = np.moveaxis(digits, row.axis, -1)
    codes, words = row.unit(bits)
    rest = -lines.shape[-1] % codes
    if rest and row.pads and words > 1 and row.straddles:  # only the bytes that are begun are written
        words_used = -(-lines.shape[-1] * bits // (8 * row.word.itemsize))
    elif rest and not row.pads:
        length = lines.shape[-1]
        raise ValueError(f"codes {digits.shape}: axis {row.axis} of layout={row.name!r} has a multiple of {codes} "
                         f"codes of {bits} bits, not {length}")  # fmt: skip
    else:
        words_used = (lines.shape[-1] + rest) // codes * words
    lines = np.pad(lines, [(0, 0)] * (lines.ndim - 1) + [(0, rest)]).astype(np.uint32)
    if words == 1:
        groups = lines.reshape(*lines.shape[:-1], lines.shape[-1] // codes, codes)
        out = np.bitwise_or.reduce(groups << row.shifts(bits), axis=-1)
    else:
        size = 8 * row.word.itemsize
        single = (lines[..., None] >> np.arange(bits, dtype=np.uint32)) & np.uint32(1)
        single = single.reshape(*lines.shape[:-1], lines.shape[-1] * bits // size, size)
        out = np.bitwise_or.reduce(single << np.arange(size, dtype=np.uint32), axis=-1)[..., :words_used]
    narrow = out.astype(_BYTE) if row.word == _BYTE else out.view(row.word)
    return np.ascontiguousarray(np.moveaxis(narrow, -1, row.axis))


def _tiled(tile: tuple[int, int], x: Array) -> Array:
    """Return the tiles of a matrix one after the other: 32 rows of a tile are 16 bytes apart, the next 32 follow."""
    rows, columns = (-(-n // part) for n, part in zip(x.shape[-2:], tile, strict=True))
    whole = np.pad(
        x, [(0, 0)] * (x.ndim - 2) + [(0, rows * tile[0] - x.shape[-2]), (0, columns * tile[1] - x.shape[-1])]
    )
    parts = whole.reshape(*x.shape[:-2], rows, tile[0] // 32, 32, columns, tile[1])
    moved = np.moveaxis(parts, (-5, -2, -3, -4, -1), (-5, -4, -3, -2, -1))
    return np.ascontiguousarray(moved).reshape(*x.shape[:-2], rows * columns * tile[0] * tile[1])


def _untiled(tile: tuple[int, int], x: Array, shape: tuple[int, ...]) -> Array:
    rows, columns = (-(-n // part) for n, part in zip(shape[-2:], tile, strict=True))
    parts = x.reshape(*shape[:-2], rows, columns, 32, tile[0] // 32, tile[1])
    moved = np.moveaxis(parts, (-5, -4, -3, -2, -1), (-5, -2, -3, -4, -1))
    whole = moved.reshape(*shape[:-2], rows * tile[0], columns * tile[1])
    return np.ascontiguousarray(whole[..., : shape[-2], : shape[-1]])


def pack(codes: Any, layout: PackedLayout | str, *, bits: int | None = None) -> Array:
    """Pack codes of a few bits into bytes or words, as a library stores them.

    Parameters
    ----------
    codes : array_like of int
        Codes from 0 to 2**bits - 1. For compressed-tensors they are signed, -2**(bits - 1) to 2**(bits - 1) - 1, and
        for "gptq-zeros-v1" zero points from 1 to 2**bits.
    layout : str or PackedLayout
        A key of `fs.quantization.PACKED_LAYOUTS`.
    bits : int, optional
        The width of a code. Default: 4, or the only width of the layout.

    Returns
    -------
    array of uint8, int32 or uint32
        The axis of the layout is shorter. "cublas-128x4" has the tiles of the last two axes in one axis.

    Raises
    ------
    TypeError
        If the codes are no integers.
    ValueError
        For an unknown layout, a width that it lacks, a code out of range, and a shape without whole words.

    Notes
    -----
    "gptq" packs the rows of a matrix (in_features, out_features), "awq" its columns: the transpose of a weight of
    torch.

    Examples
    --------
    >>> from floatsim.quantization import pack, unpack
    >>> pack([1, 2, 3], "low-nibble-first"), pack([1, 2, 3], "high-nibble-first")
    (array([33,  3], dtype=uint8), array([18, 48], dtype=uint8))
    >>> hex(pack(range(8), "awq").item())
    '0x75316420'
    >>> unpack([33, 3], "low-nibble-first", shape=(3,))
    array([1, 2, 3], dtype=uint8)
    """
    row, width = as_packed_layout(layout, bits)
    array, added = _checked(codes, "codes"), row.added(width)
    low, high = -added, (1 << width) - 1 - added
    for end in (int(array.min()), int(array.max())) if array.size else ():
        if not low <= end <= high:
            raise ValueError(f"codes must be {low} to {high}, {width} bits of layout={row.name!r}, not {end}")
    return packed_digits(row, array.astype(np.int64) + added, width)


def unpack(
    packed: Any, layout: PackedLayout | str, *, bits: int | None = None, shape: tuple[int, ...] | None = None
) -> Array:
    """Return the codes of packed bytes or words. It reads what `fs.quantization.pack` writes.

    Parameters
    ----------
    packed : array_like of int
        Bytes or words of the layout. Words of 32 bits may be int32 or uint32.
    layout : str or PackedLayout
        A key of `fs.quantization.PACKED_LAYOUTS`.
    bits : int, optional
        The width of a code. Default: 4, or the only width of the layout.
    shape : tuple of int, optional
        The shape of the codes, if the last word is incomplete. Default: all codes. "cublas-128x4" needs it.

    Returns
    -------
    array of uint8, int8 or int16
        The codes: int8 if they are signed, int16 for "gptq-zeros-v1".

    Raises
    ------
    TypeError
        If the packed array has no integers, or the shape is no tuple.
    ValueError
        For an unknown layout, a width that it lacks, integers that are no bytes or words, and a shape that does not
        fit.

    Examples
    --------
    >>> from floatsim.quantization import pack, unpack
    >>> unpack(pack([[-8, 7, -1]], "compressed-tensors"), "compressed-tensors", shape=(1, 3))
    array([[-8,  7, -1]], dtype=int8)
    """
    row, width = as_packed_layout(layout, bits)
    array, size = _checked(packed, "packed"), 8 * row.word.itemsize
    low, high = (0 if size == 8 else -(1 << 31)), (1 << size) - 1
    for end in (int(array.min()), int(array.max())) if array.size else ():
        if not low <= end <= high:
            raise ValueError(f"packed must be {low} to {high}, words of layout={row.name!r}, not {end}")
    if not isinstance(shape, tuple | list | None):
        raise TypeError(f"shape must be a tuple of integers, not {shape!r:.60}")
    wanted = None if shape is None else tuple(as_index(n, "shape", 0, 1 << 62) for n in shape)
    if row.tile is not None:
        if wanted is None or len(wanted) < 2:
            raise ValueError(f"layout={row.name!r} needs shape=, the rows and columns of the scales")
        count = math.prod(-(-n // part) * part for n, part in zip(wanted[-2:], row.tile, strict=True))
        if array.size != math.prod(wanted[:-2]) * count:
            raise ValueError(f"packed {array.shape} has no {math.prod(wanted[:-2]) * count} bytes, as shape={wanted}")
        return _untiled(row.tile, array.astype(_BYTE), wanted)
    if array.ndim < -row.axis:
        raise ValueError(f"packed {array.shape}: layout={row.name!r} needs at least {-row.axis} axes")
    lines = np.moveaxis(array, row.axis, -1).astype(np.int64).astype(np.uint32)
    codes, words = row.unit(width)
    if words == 1:
        digits = (lines[..., None] >> row.shifts(width)) & np.uint32((1 << width) - 1)
        digits = digits.reshape(*lines.shape[:-1], lines.shape[-1] * codes)
    else:
        length = lines.shape[-1] * size // width
        single = ((lines[..., None] >> np.arange(size, dtype=np.uint32)) & np.uint32(1)).astype(_BYTE)
        single = single.reshape(*lines.shape[:-1], lines.shape[-1] * size)[..., : length * width]
        single = single.reshape(*lines.shape[:-1], length, width)
        digits = (single << np.arange(width, dtype=_BYTE)).sum(axis=-1)
    numbers = np.moveaxis(digits.astype(np.int16) - np.int16(row.added(width)), -1, row.axis)
    if wanted is not None:
        numbers = _cut(row, numbers, wanted, array.shape, width)
    kind = {"code": np.uint8, "code - 1": np.int16, "code + half": np.int8}[row.stored]
    return np.ascontiguousarray(numbers.astype(kind))


def _cut(row: PackedLayout, numbers: Array, shape: tuple[int, ...], packed: tuple[int, ...], bits: int) -> Array:
    """Return the codes of a shape, or raise an error if other words belong to it."""
    expected = list(shape)
    if len(shape) == len(packed):
        size, (codes, words) = 8 * row.word.itemsize, row.unit(bits)
        length = shape[row.axis]
        expected[row.axis] = -(-length * bits // size) if row.straddles else -(-length // codes) * words
    if tuple(expected) != packed or (not row.pads and shape[row.axis] != numbers.shape[row.axis]):
        raise ValueError(f"packed {packed} does not fit shape={shape}: {bits} bits of layout={row.name!r} "
                         f"hold {numbers.shape}")  # fmt: skip
    keep = [slice(n) for n in shape]
    return numbers[tuple(keep)]
