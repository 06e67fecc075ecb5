"""The result of a quantization: codes, scales, and the scheme."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.analysis.conversion_losses import FLUSHED, NORMAL, OVERFLOWED, SUBNORMAL
from floatsim.arrays.array.conversion import read_floats
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.interop import widened
from floatsim.emulator.elementwise.block_scales import (
    Piece,
    affine_values,
    float_values,
    in_pieces,
    integer_values,
    table_values,
)
from floatsim.emulator.elementwise.execute import convert
from floatsim.formats import FP32, FP64, FloatFormat, FormatLike, as_format
from floatsim.formats._validation import as_word
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes
from floatsim.quantization.integer import IntegerFormat
from floatsim.quantization.lookup import LookupFormat
from floatsim.quantization.packing import PackedLayout, as_packed_layout, packed_digits
from floatsim.quantization.scales import number, rounded, to_format
from floatsim.quantization.scheme import ElementFormat, Scheme, layout

__all__ = ["TENSOR_SCALE_RULES", "NestedScales", "Quantized", "outer_shape"]

Array: TypeAlias = NDArray[Any]

_NEAREST = CallOptions(RoundingAttributes())

TENSOR_SCALE_RULES = ("multiply", "divide", "multiply_values")
"""How a tensor scale is used. `Quantized` documents them."""


def outer_shape(scheme: Scheme, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the second scales of a tensor of this shape: (), or that of the scales with fewer columns."""
    if scheme.outer == "tensor":
        return ()
    *rows, across = layout(scheme, shape).scale_shape
    size = max(across, 1) if scheme.outer == "row" else scheme.outer // scheme.block[1]
    return (*rows, -(-across // size))


def _read_only(x: Any) -> Any:
    """Return a view of an array that cannot be written."""
    if isinstance(x, FloatArray):
        return FloatArray(_read_only(x.codes), x.format)
    view = x.view()
    view.flags.writeable = False
    return view


def _codes_of(codes: Any, fmt: ElementFormat) -> Array:
    """Return codes as an array of the format's code dtype, or raise an error if one is no code of the format."""
    if isinstance(fmt, FloatFormat):
        own = codes.format if isinstance(codes, FloatArray) else None
        if own is None and isinstance(codes, np.ndarray) and codes.dtype == fmt.dtype:
            return codes.view(fmt.code_dtype)
        if own == fmt:
            array: Array = codes.codes
            return array
        low, high = 0, fmt.sign_mask | fmt.magnitude_mask
    elif isinstance(fmt, LookupFormat):
        low, high = 0, len(fmt.values) - 1
    else:
        low, high = fmt.min, fmt.max
    return _integers(codes, "codes", low, high, fmt).astype(fmt.code_dtype, copy=False)


def _integers(x: Any, argument: str, low: int, high: int, fmt: ElementFormat) -> Array:
    """Return an integer array whose numbers are from low to high, or raise an error that names a number."""
    if isinstance(x, FloatArray):
        raise TypeError(f"{argument} must be integers, codes of {fmt.name}, not a FloatArray of {x.format.name}")
    array = widened(np.asarray(x))
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{argument} must be integers, codes of {fmt.name}, not {array.dtype}")
    for end in (int(array.min()), int(array.max())) if array.size else ():
        if not low <= end <= high:
            raise ValueError(f"{argument} must be {low} to {high}, the codes of {fmt.name}, not {end}")
    return array


def _zero_points_of(zero_points: Any, shape: tuple[int, ...], fmt: ElementFormat) -> Array:
    """Return zero points as int64 in the shape of the scales, or raise an error."""
    if not isinstance(fmt, IntegerFormat):
        raise ValueError(f"zero_points are for integer formats, not for {fmt.name}")
    array = _integers(zero_points, "zero_points", fmt.min, fmt.max, fmt).astype(np.int64, copy=False)
    if array.shape != shape:
        raise ValueError(f"zero_points {array.shape} do not have the shape of the scales, {shape}")
    return array


def _widened(x: FloatArray, fmt: FloatFormat) -> FloatArray:
    """Return stored scales in the format of the arithmetic. Infinities of files stay infinities."""
    return FloatArray(convert(x.codes, x.format, fmt, _NEAREST, False)[0], fmt)


class NestedScales(NamedTuple):
    """Scales that are quantized themselves: a vector, less its mean.

    The scales are read back as round(elements * scale) + `offset`, rounded to FP32.
    """

    quantized: Quantized
    offset: FloatArray

    def restored(self, shape: tuple[int, ...]) -> FloatArray:
        """Return the scales as they are read back, in the shape of the scales."""
        numbers = self.quantized.dequantize(self.offset.format)
        return rounded("add", numbers, self.offset).reshape(*shape)

    @property
    def nbits(self) -> int:
        """The size in bits, the mean included."""
        return self.quantized.nbits + self.offset.format.bits


_MADE_BY = {
    "scheme": ", such as fs.quantization.as_scheme('mxfp8')", "arithmetic": ", such as fs.FP32",
    "scales": ", such as fs.from_codes(data, 'e8m0') of bytes, or fs.array(x, 'fp32') of numbers",
}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Quantized:
    """Codes of a tensor, the scales of its blocks, and the scheme. `fs.quantize_blocks` makes one.

    Its arrays are read-only.

    Parameters
    ----------
    codes : array_like of int
        The codes of the elements, in the shape of the tensor: integers of an IntegerFormat, indices of a LookupFormat,
        or codes of a FloatFormat. Any integer dtype is taken, also int4, uint4, int2 and uint2 of ml_dtypes. For a
        FloatFormat also a FloatArray or an array whose dtype is the format. `codes` has the `code_dtype` of the format.
    scales : FloatArray
        One scale for each block: of shape () for one scale, (K / width,) for a vector, else (..., M / height,
        K / width). The last block of an axis may be short.
    scheme : Scheme
        How the tensor was quantized.
    zero_points : array_like of int, optional
        The integers that stand for zero, in the shape of the scales: codes of an IntegerFormat.
    tensor_scale : FloatArray, optional
        A further scale of the whole tensor (NVFP4), of shape (). With `outer` it is one for each row, (..., M, 1), or
        for each group of blocks.
    tensor_scale_rule : str
        How the tensor scale is used. "multiply": the scale of a block times it; "divide": the scale of a block divided
        by it (compressed-tensors); "multiply_values": each number times it, with one more rounding (LLM.int8).
    arithmetic : FloatFormat
        The format in which scales and elements were computed: FP32 or FP64.
    nested : NestedScales, optional
        The scales as they are stored, if the scheme quantizes them: `quantized` and `offset`. `scales` has the numbers
        that are read back.
    offsets : FloatArray, optional
        Numbers that are added to the elements of a block after the scaling, in the shape of the scales, for an
        IntegerFormat without zero points: the minima of Q4_1 and Q4_K in GGUF files.

    Raises
    ------
    TypeError
        If codes or zero points are no integers, and for scales, schemes and formats of another type.
    ValueError
        If a code or a zero point is none of the format, or a shape does not fit. 4-bit codes that are still packed in
        pairs are such codes.

    Examples
    --------
    >>> import floatsim as fs
    >>> q = fs.quantize_blocks([[0.6, -1.0, 0.25, 7.0]], "int4", block=2)
    >>> q
    Quantized((1, 4), INT4, block=(1, 2), scales FP32 (1, 2))
    >>> q.codes, q.scales.values
    (array([[ 4, -7,  0,  7]], dtype=int8), array([[0.14285715, 1.        ]]))
    >>> q.values.round(3)
    array([[ 0.571, -1.   ,  0.   ,  7.   ]])
    """

    codes: Array
    scales: FloatArray
    scheme: Scheme
    zero_points: Array | None = None
    tensor_scale: FloatArray | None = None
    arithmetic: FloatFormat = field(default_factory=lambda: FP32)
    nested: NestedScales | None = None
    offsets: FloatArray | None = None
    tensor_scale_rule: str = "multiply"

    def __post_init__(self) -> None:
        for name, kind in (("scheme", Scheme), ("scales", FloatArray), ("arithmetic", FloatFormat)):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} must be a {kind.__name__}{_MADE_BY[name]}, not {getattr(self, name)!r:.60}")
        for name in ("tensor_scale", "offsets"):
            if not isinstance(getattr(self, name), FloatArray | None):
                raise TypeError(
                    f"{name} must be a FloatArray such as fs.array(x, 'fp32'), or None, not {getattr(self, name)!r:.60}"
                )
        as_word(self.tensor_scale_rule, "tensor_scale_rule", TENSOR_SCALE_RULES)
        object.__setattr__(self, "codes", _codes_of(self.codes, self.format))
        if self.scales.shape != layout(self.scheme, self.codes.shape).scale_shape:
            raise ValueError(f"scales {self.scales.shape} do not fit codes {self.codes.shape} and {self.scheme}")
        if self.zero_points is not None:
            object.__setattr__(self, "zero_points", _zero_points_of(self.zero_points, self.scales.shape, self.format))
        if self.offsets is not None:
            if not isinstance(self.format, IntegerFormat) or self.zero_points is not None:
                raise ValueError(f"offsets are for an integer format without zero points, not for {self.format.name}")
            if self.offsets.shape != self.scales.shape:
                raise ValueError(
                    f"offsets {self.offsets.shape} do not have the shape of the scales, {self.scales.shape}"
                )
        if self.tensor_scale is not None and self.tensor_scale.size > 1:
            wanted = outer_shape(self.scheme, self.codes.shape)
            if self.tensor_scale.shape != wanted:
                raise ValueError(f"tensor_scale {self.tensor_scale.shape} must have the shape {wanted}")
        for name in ("codes", "scales", "zero_points", "tensor_scale", "offsets"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _read_only(value))

    def __array__(self, *args: Any, **keywords: Any) -> Any:
        raise TypeError(
            "a Quantized is no array: `values` has its numbers; products take `elements` with `scales` "
            "(fs.matmul, scale_a= and scale_b=), or both operands as they are (fs.quantization.scaled_matmul)"
        )

    @property
    def format(self) -> Any:
        """The format of the elements."""
        return self.scheme.format

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return self.codes.shape

    @property
    def elements(self) -> FloatArray:
        """The numbers that the codes stand for, without scales: a FloatArray, for instance for `fs.matmul`.

        Integers less their zero point and numbers of a lookup format are in the format of the arithmetic.
        """
        if isinstance(self.format, FloatFormat):
            return FloatArray(self.codes, self.format)
        return self._times(number(np.ones(self.scales.shape), self.arithmetic))

    def _times(self, scales: FloatArray, offsets: FloatArray | None = None) -> FloatArray:
        """Return the elements times the scales of their blocks, plus their offsets, in the format of the arithmetic."""
        fmt, element, blocks = self.arithmetic, self.format, layout(self.scheme, self.shape).blocks
        codes, of_blocks = self.codes.reshape(blocks.shape), scales.codes.reshape(blocks.grid)
        zeros = None if self.zero_points is None else self.zero_points.reshape(blocks.grid).astype(fmt.dtype)
        out = np.empty(blocks.shape, fmt.code_dtype)

        def work(piece: Piece) -> None:
            where = of_blocks, fmt, blocks, piece, out
            if isinstance(element, FloatFormat):
                float_values(codes, element, *where)
            elif isinstance(element, LookupFormat):
                table_values(codes, element.table, *where)
            elif offsets is not None:
                affine_values(codes, element.fraction_bits, offsets.codes.reshape(blocks.grid), *where)
            else:
                integer_values(codes, element.fraction_bits, zeros, *where)

        in_pieces("dequantize_blocks", blocks, work)
        return FloatArray(out.reshape(self.shape), fmt)

    def dequantize(self, format: FormatLike | None = None) -> FloatArray:
        """Return the numbers that the codes and scales stand for.

        The product of the element and the scale of its block is rounded once, to the format of the arithmetic. With a
        tensor scale, the scale of the block is first multiplied by it, or divided by it, and rounded; or the product is
        multiplied by it and rounded (`tensor_scale_rule`). Offsets are added with one more rounding. `format` adds one
        more rounding. All roundings are to nearest, ties to even.

        Parameters
        ----------
        format : format, optional
            The format of the result. Default: that of the arithmetic.

        Returns
        -------
        FloatArray
            In the shape of the tensor.
        """
        fmt = self.arithmetic
        scales = _widened(self.scales, fmt)
        whole = None if self.tensor_scale is None else self._second_scales(fmt)
        of_values = self.tensor_scale_rule == "multiply_values"
        if whole is not None and not of_values:
            scales = rounded(self.tensor_scale_rule, scales, whole)
        result = self._times(scales, None if self.offsets is None else _widened(self.offsets, fmt))
        if whole is not None and of_values:
            result = rounded("multiply", result, whole)
        if format is None or as_format(format) == fmt:
            return result
        target = as_format(format)
        return FloatArray(convert(result.codes, fmt, target, _NEAREST, False)[0], target)

    def _second_scales(self, fmt: FloatFormat) -> FloatArray:
        """Return the tensor scale, or one for each block."""
        assert self.tensor_scale is not None
        second = _widened(self.tensor_scale, fmt)
        if not second.shape or self.scheme.outer == "tensor":
            return second
        across = self.scales.shape[-1]
        size = across if self.scheme.outer == "row" else self.scheme.outer // self.scheme.block[1]
        return FloatArray(np.repeat(second.codes, size, axis=-1)[..., :across], fmt)

    @property
    def values(self) -> NDArray[np.float64]:
        """The values of `dequantize()` as float64, exact."""
        return self.dequantize().values

    def classify_losses(self, x: Any) -> NDArray[np.intp]:
        """Return FLUSHED, SUBNORMAL, NORMAL or OVERFLOWED for each finite non-zero value of x, in one dimension.

        `fs.conversion_losses` counts them. x is the tensor before its quantization.

        Parameters
        ----------
        x : array_like of floats
            The tensor that was quantized.

        Returns
        -------
        ndarray of int
            One number for each finite non-zero value, in the order of memory.

        Raises
        ------
        ValueError
            If x has another shape.
        """
        codes, fmt, _ = read_floats(x, "x")
        if codes.shape != self.shape:
            raise ValueError(f"x {codes.shape} is not the tensor of shape {self.shape} that was quantized")
        before, after, elements = FloatArray(codes, fmt).values, self.values, np.abs(self.elements.values)
        element, kinds = self.format, np.full(self.shape, NORMAL)
        if isinstance(element, FloatFormat):
            kinds[elements < element.smallest_normal] = SUBNORMAL
            highest, lowest = element.max, -element.max
        elif isinstance(element, LookupFormat):
            highest, lowest = max(element.values), min(element.values)
        else:
            highest, lowest = element.max, element.min
        kinds[after == 0] = FLUSHED
        ends = [self._filled(end).values for end in (highest, lowest)]
        kinds[(before > np.maximum(*ends)) | (before < np.minimum(*ends))] = OVERFLOWED
        classified: NDArray[np.intp] = kinds[np.isfinite(before) & (before != 0)].astype(np.intp)
        return classified

    def _filled(self, number: float) -> FloatArray:
        """Return the numbers of a tensor with these scales, and one number, less its zero point, in all elements."""
        element = self.format
        if isinstance(element, FloatFormat):
            code = to_format(FloatArray(np.array(number).view(np.uint64), FP64), element).codes
        elif isinstance(element, LookupFormat):
            code = np.array(element.values.index(number))
        else:
            code = np.array(number)
        codes = np.broadcast_to(code.astype(self.codes.dtype), self.shape).copy()
        return replace(self, codes=codes).dequantize()

    def packed(self, layout: PackedLayout | str) -> Array:
        """Return the codes packed as a library stores them. `fs.quantization.unpack` is the inverse.

        Signed integers are stored as two's complement in bytes, and with half of the range added in the layouts of
        GPTQ, AWQ, MLX and compressed-tensors.

        Parameters
        ----------
        layout : str or PackedLayout
            A key of `fs.quantization.PACKED_LAYOUTS`.

        Returns
        -------
        array of uint8, int32 or uint32
            The axis of the layout is shorter.

        Raises
        ------
        ValueError
            For an unknown layout, one of scales or zero points, codes of a width that it lacks, and a shape without
            whole words.

        Examples
        --------
        >>> import floatsim as fs
        >>> q = fs.quantize_blocks([[0.6, -1.0, 0.25, 7.0]], "int4", block=2)
        >>> q.codes.tolist(), [f"{x:02x}" for x in q.packed("low-nibble-first")[0]]
        ([[4, -7, 0, 7]], ['94', '70'])
        """
        row, bits = as_packed_layout(layout, self.format.bits)
        if row.tile is not None or row.name.startswith("gptq-zeros"):
            raise ValueError(f"layout={row.name!r} is for scales or zero points; `fs.quantization.pack` packs them")
        digits = self.codes.astype(np.int64)
        if isinstance(self.format, IntegerFormat) and self.format.min < 0:
            digits = digits + (1 << (bits - 1)) if row.signed == "code + half" else digits & ((1 << bits) - 1)
        return packed_digits(row, digits, bits)

    @property
    def nbits(self) -> int:
        """The size of the codes, packed, and of the scales, zero points and offsets, in bits."""
        scales = self.scales.size * self.scales.format.bits if self.nested is None else self.nested.nbits
        zero_points = 0 if self.zero_points is None else self.zero_points.size * self.format.bits
        whole = 0 if self.tensor_scale is None else self.tensor_scale.size * self.tensor_scale.format.bits
        offsets = 0 if self.offsets is None else self.offsets.size * self.offsets.format.bits
        return int(self.codes.size * self.format.bits + scales + zero_points + whole + offsets)

    def __repr__(self) -> str:
        scheme = self.scheme
        parts = [f"{self.shape}", scheme.format.name, f"block={scheme.block!r}",
                 f"scales {self.scales.format.name} {self.scales.shape}"]  # fmt: skip
        if self.tensor_scale is not None:
            second = self.tensor_scale
            told = f"tensor scale {second.item():.6g}" if second.size == 1 else f"tensor scales {second.shape}"
            parts.append(told if self.tensor_scale_rule == "multiply" else f"{told} ({self.tensor_scale_rule})")
        last = ", offsets" if self.offsets is not None else ""
        return f"Quantized({', '.join(parts)}{', zero points' if self.zero_points is not None else ''}{last})"
