"""What `identify_quantizer` is given: codes, scales and zero points in the shape of the tensor, for each layout.

A reading is one way to understand the arrays: the layout of packed codes, the format of the elements, and the blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.conversion import as_float_array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.interop import widened
from floatsim.formats import BF16, E2M1, E2M3, E3M2, E4M3, E5M2, E8M0, FP16, FP32, FP64, FloatFormat, as_format
from floatsim.formats.value_sets import contains
from floatsim.quantization import (
    BNB_FP4,
    DYNAMIC8,
    GGUF_TYPES,
    INT2,
    INT3,
    INT4,
    INT5,
    INT6,
    INT7,
    INT8,
    MXINT8,
    NF4,
    PACKED_LAYOUTS,
    TERNARY,
    UINT2,
    UINT3,
    UINT4,
    UINT5,
    UINT6,
    UINT7,
    UINT8,
    GgufTensor,
    IntegerFormat,
    LookupFormat,
    Quantized,
    SafetensorsTensor,
    as_element_format,
    from_gguf,
    unpack,
)
from floatsim.quantization.scheme import ElementFormat

__all__ = ["AS_GIVEN", "Given", "Grid", "Outer", "Reading", "ScaleReading", "read", "readings"]

Array: TypeAlias = NDArray[Any]

AS_GIVEN, SWAPPED = "as given", "as given, the two codes of each byte in the opposite order"
_UNSIGNED: dict[int, tuple[ElementFormat, ...]] = {
    2: (UINT2,), 3: (UINT3,), 4: (E2M1, UINT4, NF4, BNB_FP4), 5: (UINT5,), 6: (E3M2, E2M3, UINT6), 7: (UINT7,),
    8: (E4M3, E5M2, UINT8, DYNAMIC8),
}  # fmt: skip
_SIGNED: dict[int, ElementFormat] = {2: INT2, 3: INT3, 4: INT4, 5: INT5, 6: INT6, 7: INT7, 8: INT8}
_WIDTHS = (16, 32, 64, 128, 256, 512)  # of blocks that are tried first


class Grid(NamedTuple):
    """The blocks of a tensor: its shape as a stack of matrices, and the height and width of a block."""

    shape: tuple[int, int, int]
    height: int
    width: int
    single: bool
    text: str

    @property
    def counts(self) -> tuple[int, int, int]:
        """The shape of an array with a number for each block."""
        stack, rows, columns = self.shape
        return (1, 1, 1) if self.single else (stack, -(-rows // self.height), -(-columns // self.width))

    def is_block(self, height: int, width: int) -> bool:
        """Return whether the blocks have these sides, in either order, or are cut off by the ends of the tensor."""
        _, rows, columns = self.shape
        sides = (height, width), (width, height)
        return any((self.height, self.width) == (min(h, rows), min(w, columns)) for h, w in sides)

    def group_of_blocks(self, outer: Grid) -> Array | None:
        """Return the index of the larger block of `outer` that each block is in; None if a block is in none."""
        fits = outer.shape == self.shape and not self.single and outer.height == self.height == 1
        if not fits or (outer.width % self.width and outer.width != self.shape[2]):
            return None
        first = np.arange(self.counts[2]) * self.width // outer.width
        of_rows = np.arange(self.shape[0] * self.shape[1])[:, None] * outer.counts[2]
        return (of_rows + first).reshape(-1)

    def spread(self, start: int, stop: int) -> Array:
        """Return the flat index of the block of each element from `start` to `stop`."""
        index = np.arange(start, stop)
        if self.single:
            return np.zeros(stop - start, np.int64)
        _, rows, columns = self.shape
        _, down, across = self.counts
        row, column = index // columns, index % columns
        blocks = (row // rows * down + row % rows // self.height) * across + column // self.width
        return np.asarray(blocks)

    def blocks(self, x: Array, missing: float) -> Array:
        """Return the elements of each block as a row of a matrix; a short block ends with `missing`."""
        if self.single:
            return x.reshape(1, -1)
        stack, rows, columns = self.shape
        _, down, across = self.counts
        more = (0, 0), (0, down * self.height - rows), (0, across * self.width - columns)
        whole = x.reshape(self.shape)
        if down * self.height != rows or across * self.width != columns:
            whole = np.pad(whole, more, constant_values=missing)
        parts = whole.reshape(stack, down, self.height, across, self.width).swapaxes(2, 3)
        return np.ascontiguousarray(parts).reshape(stack * down * across, self.height * self.width)


class ScaleReading(NamedTuple):
    """Scales as numbers, in the order of the blocks: the format in which they are stored, and narrower ones."""

    stored: FloatFormat
    formats: tuple[FloatFormat, ...]
    values: Array


@dataclass(frozen=True)
class Reading:
    """One way to read the arrays. `codes` is flat, in the order of x; scales and zero points in that of the blocks."""

    format: ElementFormat
    layout: str
    codes: Array
    grid: Grid
    scales: ScaleReading
    zero_points: Array | None
    offsets: Array | None
    outer: Outer | None = None


class Outer(NamedTuple):
    """The second scales of parts of the tensor: the parts, and the part of each block."""

    grid: Grid
    of_blocks: Array

    @property
    def text(self) -> str:
        return "one for each row" if self.grid.text == "row" else f"one for each {self.grid.width} neighbours"


@dataclass(frozen=True)
class Given:
    """The arguments of `identify_quantizer`, checked. `x` is a FloatArray, `source` its exact numbers, flat."""

    x: FloatArray
    source: Array
    codes: Any
    scales: Any
    zero_points: Any
    offsets: Any
    tensor_scale: float | Array | None
    format: ElementFormat | None
    layout: str | None
    bits: int | None
    block: Any
    scale_format: FloatFormat | None


def read(
    codes: Any, scales: Any, x: Any, format: Any, layout: Any, bits: Any, block: Any, scale_format: Any,
    zero_points: Any, tensor_scale: Any, offsets: Any,
) -> Given:  # fmt: skip
    """Return the checked arguments. A Quantized brings its own scales, and the bytes of a GGUF type too."""
    tensor = as_float_array(x, "x")
    if not tensor.size:
        raise ValueError(f"x {tensor.shape} has no elements, which identify no quantizer")
    name = layout.strip().lower() if isinstance(layout, str) else layout
    if isinstance(name, str) and name.upper() in GGUF_TYPES:
        codes, name = from_gguf(np.asarray(codes), name, tensor.shape), None
    if name is not None and name not in PACKED_LAYOUTS:
        known = ", ".join(each for each, row in PACKED_LAYOUTS.items() if row.tile is None)
        raise ValueError(f"unknown layout={layout!r:.60}; known are {known}, and the types of GGUF")
    if isinstance(codes, GgufTensor | SafetensorsTensor):
        columns = getattr(codes, "columns", None)
        codes = codes.quantized()
        if columns is not None and tensor.shape == codes.shape:  # the columns in the order of the groups
            tensor = tensor[:, columns]
        if tensor.shape != codes.shape and tensor.size == math.prod(codes.shape):
            tensor = tensor.reshape(codes.shape)
    if isinstance(codes, Quantized):
        if scales is not None:
            raise ValueError("codes is a Quantized, which has its own scales; pass scales=None")
        block = codes.scheme.block if block is None else block
        format, scales, codes, more = codes.format, codes.scales, codes.codes, codes
        zero_points = more.zero_points if zero_points is None else zero_points
        offsets = more.offsets if offsets is None else offsets
        if tensor_scale is None and more.tensor_scale is not None:
            tensor_scale = more.tensor_scale
    elif scales is None:
        raise ValueError("scales=None is for a Quantized or the bytes of a GGUF type; pass the scales of the blocks")
    whole: float | Array | None = None
    if tensor_scale is not None:
        whole = np.asarray(as_float_array(tensor_scale, "tensor_scale").values, np.float64)
        whole = float(whole.reshape(-1)[0]) if whole.size == 1 else whole
    return Given(
        tensor, np.asarray(tensor.values, np.float64).reshape(-1), codes, scales, zero_points, offsets, whole,
        None if format is None else as_element_format(format), name, bits, block,
        None if scale_format is None else as_format(scale_format),
    )  # fmt: skip


# -- scales ------------------------------------------------------------------------------------------------------------


def _as_number_array(x: Any) -> Any:
    return np.asarray(x.detach() if hasattr(x, "detach") else x)


def _scale_arrays(given: Given) -> Iterator[tuple[FloatFormat, Array]]:
    """Yield the formats that the stored scales may have, and their numbers."""
    raw = given.scales
    if not isinstance(raw, FloatArray):
        array = widened(_as_number_array(raw))
        if array.dtype.kind in "iub" and array.dtype.itemsize == 1:
            if array.dtype.kind == "b":
                raise TypeError("scales must be floats or bytes of E8M0 or E4M3, not bool")
            kinds = [given.scale_format] if given.scale_format is not None else [E8M0, E4M3]
            for kind in kinds:
                if kind.bits != 8:
                    raise ValueError(f"scale_format={kind.name} has no codes of one byte, as the scales have")
                yield kind, np.asarray(FloatArray(array.view(np.uint8), kind).values)
            return
        if array.dtype.kind in "iu":
            raise TypeError(f"scales must be floats or bytes of E8M0 or E4M3, not {array.dtype}")
    numbers = as_float_array(raw, "scales")
    values = np.asarray(numbers.values, np.float64)
    stored = numbers.format
    if stored == FP64 and np.array_equal(values.astype(np.float32).astype(np.float64), values, equal_nan=True):
        stored = FP32  # numbers in a list or read back as float64
    yield stored, values


def _narrower(stored: FloatFormat, values: Array, wanted: FloatFormat | None) -> tuple[FloatFormat, ...]:
    """Return the format of stored scales, and narrower ones that have all of their numbers, the narrowest first."""
    if wanted is not None:
        return (wanted,)
    numbers = values[np.isfinite(values) & (values != 0)]
    found = [stored]
    for kind in (FP16, BF16, E4M3, E8M0):
        if kind == stored or not contains(stored, kind, specials=False) or numbers.size < 4:
            continue
        if kind == E8M0:
            fits = np.all(np.frexp(np.abs(numbers))[0] == 0.5) and np.all(numbers > 0)
        else:
            codes = FloatArray(np.arange(1 << kind.bits, dtype=kind.code_dtype), kind).values
            fits = np.isin(numbers, codes).all()
        if fits:
            found.insert(0, kind)
    return tuple(found)


# -- blocks ------------------------------------------------------------------------------------------------------------


def _length(size: int, count: int) -> int | None:
    """Return the length of blocks of which `count` cover an axis; the last one may be short. None: there is none."""
    if count < 1 or count > size:
        return None
    if size % count == 0:
        return size // count
    fitting = [n for n in range(1, size + 1) if -(-size // n) == count]
    return next((n for n in fitting if n in _WIDTHS), fitting[-1] if len(fitting) == 1 else None)


def _grid(shape: tuple[int, ...], scales: tuple[int, ...], block: Any) -> Grid | None:
    """Return the blocks of a tensor that have scales of this shape, or None."""
    size, count = math.prod(shape), math.prod(scales)
    stack, rows, columns = math.prod(shape[:-2]), (shape[-2] if len(shape) > 1 else 1), (shape[-1] if shape else 1)
    if block == "tensor" or (block is None and count == 1):
        return Grid((1, 1, size), 1, size, True, "tensor") if count == 1 else None
    if block is not None:
        given = {"row": (1, None), "column": (None, 1)}.get(block, block) if isinstance(block, str) else block
        if isinstance(given, int | np.integer):
            given = (1, int(given))
        if not isinstance(given, tuple) or len(given) != 2:
            raise ValueError(f"block must be 'tensor', 'row', 'column', a width or (height, width), not {block!r:.60}")
        height, width = min(given[0] or rows, rows), min(given[1] or columns, columns)
        if height < 1 or width < 1:
            raise ValueError(f"block must have a height and width of at least 1, not {block!r:.60}")
        found = Grid((stack, rows, columns), height, width, False, _text(height, width, rows, columns))
        if math.prod(found.counts) == count:
            return found
        flat = Grid((1, 1, size), 1, width, False, f"{width} neighbours in memory")
        return flat if height == 1 and math.prod(flat.counts) == count else None
    if len(scales) >= 2 and (scales[:-2] == shape[:-2] or math.prod(scales[:-2]) == stack) and len(shape) > 1:
        down, across = _length(rows, scales[-2]), _length(columns, scales[-1])
        if down is not None and across is not None:
            return Grid((stack, rows, columns), down, across, False, _text(down, across, rows, columns))
    if len(scales) == len(shape) == 1:
        width = _length(columns, count)
        return None if width is None else Grid((1, 1, columns), 1, width, False, _text(1, width, 1, columns))
    if count == stack * rows and len(shape) > 1:
        return Grid((stack, rows, columns), 1, columns, False, "row")
    if count == columns and stack == 1 and len(shape) > 1 and max(scales) == count:
        return Grid((stack, rows, columns), rows, 1, False, "column")
    if max(scales, default=1) == count and size % count == 0:
        width = size // count
        if columns % width == 0:
            return Grid((stack, rows, columns), 1, width, False, _text(1, width, rows, columns))
        return Grid((1, 1, size), 1, width, False, f"{width} neighbours in memory")
    return None


def _text(height: int, width: int, rows: int, columns: int) -> str:
    if (height, width) == (1, columns) and rows > 1:
        return "row"
    return "column" if (height, width) == (rows, 1) and columns > 1 and rows > 1 else f"({height}, {width})"


# -- codes -------------------------------------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """Codes in the shape of x, and whether the arrays have the axes of its transpose."""

    name: str
    bits: int | None
    codes: Array
    turned: bool
    signed: bool


def _layouts(given: Given) -> list[_Layout]:
    """Return the codes in the shape of x, for each layout that fits."""
    shape = given.x.shape
    raw = given.codes
    if isinstance(raw, FloatArray):
        return _checked_shape([_Layout(AS_GIVEN, None, raw.codes, False, False)], shape)
    array = _as_number_array(raw)
    fmt = given.format
    if fmt is not None and isinstance(fmt, FloatFormat) and array.dtype == fmt.dtype and array.dtype.kind not in "iu":
        return _checked_shape([_Layout(AS_GIVEN, None, array.view(fmt.code_dtype), False, False)], shape)
    array = widened(array)
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"codes must be integers, packed bytes or words, or floats of a narrow format, not {array.dtype}"
        )
    found = []
    if given.layout is None:
        if array.shape == shape:
            found.append(_Layout(AS_GIVEN, None, array, False, False))
        elif len(shape) == 2 and array.shape == shape[::-1]:
            found.append(_Layout("as given, transposed", None, array.T, True, False))
    return found or _unpacked(given, array, shape)


def _checked_shape(found: list[_Layout], shape: tuple[int, ...]) -> list[_Layout]:
    for each in found:
        if each.codes.shape != shape:
            raise ValueError(f"codes {each.codes.shape} do not have the shape of x, {shape}")
    return found


def _unpacked(given: Given, array: Array, shape: tuple[int, ...]) -> list[_Layout]:
    found: list[_Layout] = []
    rows = {
        name: row for name, row in PACKED_LAYOUTS.items()
        if row.tile is None and not name.startswith("gptq-zeros") and array.dtype.itemsize == row.word.itemsize
        and (row.word == array.dtype if given.layout is None else name == given.layout)
    }  # fmt: skip
    for name, row in rows.items():
        for bits in row.bits if given.bits is None else [b for b in row.bits if b == given.bits]:
            if bits == 8 and row.word.itemsize == 1:
                continue
            for codes, turned in _orientations(array, name, bits, shape):
                same = any(each.bits == bits and np.array_equal(each.codes, codes) for each in found)
                if not same or given.layout is not None:
                    found.append(_Layout(name, bits, codes, turned, row.stored == "code + half"))
    if not found:
        one = "" if given.layout is None else f" in layout={given.layout!r}"
        raise ValueError(
            f"codes {array.shape} of {array.dtype} do not fit x {shape}{one}: pass integers in the shape of x, or "
            "bytes or words of a layout of `fs.quantization.PACKED_LAYOUTS`, with bits= if the shape leaves it open"
        )
    return found


def _orientations(array: Array, name: str, bits: int, shape: tuple[int, ...]) -> Iterator[tuple[Array, bool]]:
    """Yield the codes of packed words in the shape of x. GPTQ and AWQ store the transpose of a weight of torch."""
    flat = name.endswith("nibble-first") and array.size == -(-math.prod(shape) * bits // 8)
    if name in ("gptq", "awq"):
        turned = [(shape[::-1], True)] if len(shape) == 2 else []
        orders = [*turned, (shape, False)]
    else:
        orders = [(shape, False)]
    for order, is_turned in orders:
        try:
            found = unpack(array, name, bits=bits, shape=order)
        except ValueError:
            continue
        yield (found.T if is_turned else found), is_turned
        return
    if flat:
        yield unpack(array.reshape(-1), name, bits=bits, shape=(math.prod(shape),)).reshape(shape), False


def _formats(layout: _Layout, given: Given) -> Iterator[tuple[ElementFormat, Array]]:
    """Yield the formats that the codes may have, and the codes as that format counts them."""
    codes = layout.codes
    if isinstance(given.codes, FloatArray):
        yield given.codes.format, codes
        return
    low, high = int(codes.min()), int(codes.max())
    if given.format is not None:
        found = _codes_of(codes, given.format, layout, low, high)
        if found is not None:
            yield given.format, found
        return
    if low < 0 or layout.signed or codes.dtype == np.int8:
        bits = layout.bits or next((b for b in (4, 8) if -(1 << (b - 1)) <= low and high < 1 << (b - 1)), None)
        if bits is None:
            raise ValueError(f"codes must be integers of at most 8 bits, not {low} to {high}")
        kinds = [_SIGNED[bits], *([INT8] if bits == 4 and layout.bits is None else [])]
        if (low, high) == (-1, 1):
            kinds.insert(0, TERNARY)
        if bits == 8:
            kinds.append(MXINT8)
        for kind in kinds:
            yield kind, codes.astype(np.int64)
        return
    if high > 255:
        raise ValueError(f"codes must be integers of at most 8 bits, not {low} to {high}")
    widths = (layout.bits,) if layout.bits is not None else (4,) if high < 16 else (6, 8) if high < 64 else (8,)
    for bits in widths:
        for each in _UNSIGNED[bits]:
            yield each, codes.astype(np.int64)
    if layout.bits is not None:
        bits = layout.bits
        half = 1 << (bits - 1)
        yield _SIGNED[bits], (codes.astype(np.int64) ^ half) - half  # two's complement


def _codes_of(codes: Array, fmt: ElementFormat, layout: _Layout, low: int, high: int) -> Array | None:
    """Return codes as a format counts them; None if they are none of the format."""
    numbers = codes.astype(np.int64)
    if isinstance(fmt, IntegerFormat):
        if fmt.min < 0 and layout.bits is not None and not layout.signed:
            half = 1 << (layout.bits - 1)
            numbers = (numbers ^ half) - half
        elif fmt.min >= 0 and layout.signed and layout.bits is not None:
            numbers = numbers + (1 << (layout.bits - 1))
        elif fmt.min < 0 <= low and codes.dtype == np.uint8 and fmt.bits == 8:
            numbers = codes.view(np.int8).astype(np.int64)
        low, high, ends = int(numbers.min()), int(numbers.max()), (fmt.min, fmt.max)
    elif isinstance(fmt, LookupFormat):
        ends = 0, len(fmt.values) - 1
    else:
        numbers = numbers & 0xFF if low < 0 and fmt.bits == 8 else numbers
        low, ends = int(numbers.min()), (0, fmt.sign_mask | fmt.magnitude_mask)
    if ends[0] <= low and high <= ends[1]:
        return numbers
    if layout.name == AS_GIVEN:
        raise ValueError(f"codes must be {ends[0]} to {ends[1]}, the codes of {fmt.name}, not {low} to {high}")
    return None


def readings(given: Given) -> list[Reading]:
    """Return the ways to read the arguments, or raise an error that says which shapes do not fit."""
    found, errors = [], []
    for layout in _layouts(given):
        for stored, values in _scale_arrays(given):
            grid, ordered = _placed(given, values, layout.turned)
            if grid is None:
                errors.append(f"scales {values.shape} do not fit x {given.x.shape}; pass block=")
                continue
            try:
                outer = _outer(given, grid)
                zeros = _zero_points(given, values.shape, layout)
            except ValueError as error:  # second scales that fit no blocks, or zero points packed by another layout
                errors.append(str(error))
                continue
            scales = ScaleReading(stored, _narrower(stored, values, given.scale_format), ordered)
            offsets = None if given.offsets is None else _like_scales(given.offsets, values.shape, layout.turned)
            for fmt, codes in _formats(layout, given):
                if fmt == MXINT8 and given.format is None and E8M0 not in scales.formats:
                    continue
                ordered_zeros = None if zeros is None or not isinstance(fmt, IntegerFormat) else zeros
                flat = np.ascontiguousarray(codes).reshape(-1)
                found.append(Reading(fmt, layout.name, flat, grid, scales, ordered_zeros, offsets, outer))
                if layout.name == AS_GIVEN and fmt.bits == 4 and given.x.shape[-1:] and given.x.shape[-1] % 2 == 0:
                    other = np.ascontiguousarray(flat.reshape(-1, 2)[:, ::-1]).reshape(-1)
                    found.append(Reading(fmt, SWAPPED, other, grid, scales, ordered_zeros, offsets, outer))
    if not found:
        raise ValueError(errors[0] if errors else "codes and scales fit no format of elements; pass format=")
    return found


def _outer(given: Given, grid: Grid) -> Outer | None:
    """Return the parts of the tensor that have second scales, if there are several."""
    scale = given.tensor_scale
    if not isinstance(scale, np.ndarray):
        return None
    outer = _grid(given.x.shape, scale.shape, None) if scale.size else None
    of_blocks = None if outer is None else grid.group_of_blocks(outer)
    if outer is None or of_blocks is None:
        raise ValueError(
            f"tensor_scale must be one number, one for each row of x {given.x.shape}, or one for each group of whole "
            f"blocks {grid.text} in a row, in an array of the dimensions of x, not an array of shape {scale.shape}"
        )
    return Outer(outer, of_blocks)


def _placed(given: Given, values: Array, turned: bool) -> tuple[Grid | None, Array]:
    """Return the blocks, and the scales in their order. Arrays of a transposed weight are transposed, too."""
    shape = given.x.shape
    if turned and values.ndim == 2:
        return _grid(shape, values.shape[::-1], given.block), np.ascontiguousarray(values.T).reshape(-1)
    return _grid(shape, values.shape, given.block), values.reshape(-1)


def _like_scales(x: Any, shape: tuple[int, ...], turned: bool) -> Array:
    values = np.asarray(as_float_array(x, "offsets").values, np.float64)
    if values.shape != shape:
        raise ValueError(f"offsets {values.shape} do not have the shape of the scales, {shape}")
    return np.ascontiguousarray(values.T if turned else values).reshape(-1)


def _zero_points(given: Given, shape: tuple[int, ...], layout: _Layout) -> Array | None:
    """Return the stored zero points in the order of the blocks. Packed ones are unpacked as they are stored."""
    if given.zero_points is None:
        return None
    raw = widened(_as_number_array(given.zero_points))
    if raw.dtype.kind == "f" and np.array_equal(raw, np.rint(raw)):
        raw = raw.astype(np.int64)
    if raw.dtype.kind not in "iu":
        raise TypeError(f"zero_points must be integers, not {raw.dtype}")
    count = math.prod(shape)
    numbers: Array | None = None
    if raw.shape == shape:
        numbers = raw
    elif raw.size == 1:
        numbers = np.full(shape, raw.reshape(-1)[0])
    elif raw.size == count and raw.ndim == 1:
        numbers = raw.reshape(shape)
    elif layout.bits is not None and raw.dtype.itemsize == 4 and len(shape) == 2:
        numbers = _packed_zeros(raw, shape, layout)
    if numbers is None:
        raise ValueError(f"zero_points {raw.shape} do not have the shape of the scales, {shape}")
    return np.ascontiguousarray(numbers.T if layout.turned else numbers).reshape(-1).astype(np.int64)


def _packed_zeros(raw: Array, shape: tuple[int, ...], layout: _Layout) -> Array | None:
    assert layout.bits is not None
    name = {"gptq": "gptq-zeros-v2"}.get(layout.name, layout.name)
    try:
        if layout.name.startswith("compressed-tensors"):  # along the rows
            return unpack(np.ascontiguousarray(raw.T), name, bits=layout.bits, shape=shape[::-1]).T
        return unpack(raw, name, bits=layout.bits, shape=shape)
    except ValueError:
        return None
