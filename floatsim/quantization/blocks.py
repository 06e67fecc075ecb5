"""Quantization of a tensor in blocks that share a scale, and the way back."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from floatsim._warnings import warn
from floatsim.arrays.array.conversion import read_floats
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.types import Floats
from floatsim.arrays.call.options import RoundingKeywords, resolve
from floatsim.arrays.call.random_stream import SeedLike
from floatsim.arrays.events import record as recording
from floatsim.emulator.elementwise.block_scales import (
    Blocks,
    Piece,
    float_codes,
    in_pieces,
    integer_codes,
    scaled,
    shift_to_codes,
)
from floatsim.emulator.elementwise.execute import convert, quantize
from floatsim.formats import FP32, FloatFormat, FormatLike
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import Rounding, RoundingAttributes, RoundingLike
from floatsim.quantization.integer import FIXED_POINT, IntegerFormat
from floatsim.quantization.lookup import LookupFormat
from floatsim.quantization.nested_mean import torch_mean
from floatsim.quantization.quantized import NestedScales, Quantized, outer_shape
from floatsim.quantization.scales import (
    SIGNED_RULES,
    Extremes,
    OfTensor,
    OuterGroups,
    Scaling,
    given_scaling,
    number,
    rounded,
    scaling_of,
)
from floatsim.quantization.scheme import (
    FOUR_OVER_SIX,
    TENSOR_RULES,
    BlockLike,
    Layout,
    Scheme,
    SchemeLike,
    as_scheme,
    carrier,
    layout,
)

__all__ = ["dequantize_blocks", "quantize_blocks", "read_tensor"]

Array: TypeAlias = NDArray[Any]

_NEAREST = CallOptions(RoundingAttributes())


def read_tensor(x: Any, scheme: Scheme) -> FloatArray:
    """Return a tensor in the format of the scheme's arithmetic, contiguous in memory."""
    codes, fmt, _ = read_floats(x, "x")
    target = carrier(scheme, fmt)
    if fmt != target:
        codes, _ = convert(codes, fmt, target, _NEAREST, False)
    return FloatArray(np.ascontiguousarray(codes).reshape(codes.shape), target)


def _refuse_special_values(extremes: Extremes, scheme: Scheme) -> None:
    """Raise a ValueError if x has NaN or infinity, and the format of the elements has not."""
    if isinstance(scheme.format, FloatFormat):
        return
    fmt = extremes.format
    if scheme.rule in SIGNED_RULES:
        extremes.of_signs()
    if int(extremes.magnitude().codes.max(initial=0)) > fmt.max_code:
        raise ValueError(f"x has NaN or infinity in {fmt.name}, which no code of {scheme.format.name} stands for")


class _Writer:
    """Writes the codes of the elements piece by piece, and their events if a log needs them."""

    def __init__(self, tensor: FloatArray, scheme: Scheme, blocks: Blocks, options: CallOptions) -> None:
        self.tensor, self.format, self.blocks, self.options = tensor, scheme.format, blocks, options
        self.stack, self.codes = tensor.codes.reshape(blocks.shape), np.empty(blocks.shape, scheme.format.code_dtype)
        wanted = recording.recording() and not isinstance(scheme.format, LookupFormat)
        self.events = np.empty(blocks.shape, np.uint8) if wanted else None

    def write(self, piece: Piece, scaling: Scaling) -> None:
        """Write the codes of a piece. The scaling is that of all blocks."""
        if self.events is None and self._in_one_pass(piece, scaling):
            return
        fmt, element, wanted = self.tensor.format, self.format, self.events is not None
        x, out, numbers = piece.of(self.stack), piece.of(self.codes), np.empty(piece.shape, self.stack.dtype)
        scaled(scaling.operation, x, scaling.factors.codes, fmt, self.blocks, piece, numbers)
        if isinstance(element, LookupFormat):
            element.look_up(numbers.reshape(-1), out.reshape(-1))
            return
        options = self.options
        own = CallOptions(options.attributes, options.seed, (options.offset + piece.start) % (1 << 64))
        if isinstance(element, FloatFormat):
            written, happened = convert(numbers, fmt, element, own, wanted, out)
            if written is not out:
                out[...] = written
        else:
            whole = np.empty_like(numbers)
            if element.fraction_bits:
                numbers = rounded("multiply", FloatArray(numbers, fmt), number(2.0**element.fraction_bits, fmt)).codes
            happened = quantize(numbers, fmt, FIXED_POINT, own, wanted, whole)
            ends = element.min, element.max
            shift_to_codes(whole, fmt, ends, scaling.zeros, self.blocks, piece, out)
        if self.events is not None:
            piece.of(self.events)[...] = happened

    def _in_one_pass(self, piece: Piece, scaling: Scaling) -> bool:
        """Write the codes by a kernel that scales and rounds, and return whether there is one."""
        element, out = self.format, piece.of(self.codes)
        what = scaling.operation, piece.of(self.stack), scaling.factors.codes, self.tensor.format
        where = self.options, self.blocks, piece, out
        if isinstance(element, FloatFormat):
            return float_codes(*what, element, *where)
        if isinstance(element, IntegerFormat):
            return integer_codes(
                *what, FIXED_POINT, (element.min, element.max, element.fraction_bits), scaling.zeros, *where
            )
        return element.look_up.scaled(*what[:3], self.blocks, piece, out)

    def result(self) -> Array:
        """Return the codes in the shape of the tensor."""
        codes = self.codes.reshape(self.tensor.shape)
        if self.events is not None:
            numbers = (codes, self.format) if isinstance(self.format, FloatFormat) else None
            operands = [(self.tensor.codes, self.tensor.format)]
            recording.note("quantize_blocks", self.events.reshape(self.tensor.shape), operands, numbers)
        return codes


def _scaled_by_rule(writer: _Writer, x: Extremes, scheme: Scheme) -> Scaling:
    """Write the codes with the scales of the scheme's rule, and return the scaling."""
    blocks = writer.blocks
    if not blocks.are_local:
        _refuse_special_values(x, scheme)
        scaling = scaling_of(x, scheme)
        in_pieces("quantize_blocks", blocks, lambda piece: writer.write(piece, scaling))
        return scaling
    if scheme.rule in TENSOR_RULES:
        x.magnitude()  # once, before the threads start
    whole = Scaling.empty(x, scheme)

    def work(piece: Piece) -> None:
        """Quantize the blocks of a piece while it is in a cache."""
        part = x.of(piece)
        _refuse_special_values(part, scheme)
        whole.store(piece.of_grid(blocks), scaling_of(part, scheme))
        writer.write(piece, whole)

    in_pieces("quantize_blocks", blocks, work)
    return whole


def quantize_blocks(
    x: Floats,
    scheme: SchemeLike,
    *,
    block: BlockLike | None = None,
    rule: str | None = None,
    scale_format: FormatLike | None = None,
    factor: str | None = None,
    least_amax: float | None = None,
    nested: SchemeLike | None = None,
    outer: str | int | None = None,
    scale_max: float | None = None,
    scale_overflow: str | None = None,
    scale: Floats | None = None,
    zero_point: Any = None,
    tensor_scale: Floats | None = None,
    tensor_amax: Floats | None = None,
    rounding: RoundingLike | None = None,
    seed: SeedLike | None = None,
    random_bits: int | None = None,
) -> Quantized:
    """Quantize a tensor in blocks that share a scale.

    Parameters
    ----------
    x : array_like of floats
        The tensor, of any shape.
    scheme : str, Scheme or format
        A name of `fs.quantization.SCHEMES` such as "mxfp8", "nvfp4" or "nf4"; or the format of the elements, such as
        "int8", "int4", "e4m3", with one scale for the tensor. The next nine keywords change it.
    block : str, int or tuple, optional
        The elements that share a scale: "tensor"; "row" or "column"; g, for g neighbours along the last axis; or
        (height, width) in the last two axes. The last blocks of an axis may be short.
    rule : str, optional
        How the scale of a block follows from amax, its largest magnitude, and max, the largest number of the format:

        - "absmax": round(amax / max). A lookup format has max = 1.
        - "full_range" (integers): round(2 amax / (max - min)), zero point (max + min + 1) // 2.
        - "no_clipping" (integers): round(maximum of largest / max and smallest / min).
        - "asymmetric" (integers): round((high - low) / (max - min)), where high and low are the largest and smallest
          element and 0; zero point min - round(low / scale), clamped.
        - "floor": 2**(floor(log2(amax)) - emax). "ceil": 2**(ceil(log2(amax)) - emax). "rceil": the least power of two
          that is at least amax / max. "even": as "floor", of amax rounded to the precision of the format, ties away.
        - "nvfp4", "nvfp4_torchao", "nvfp4_modelopt": the two levels of TransformerEngine, torchao and Model Optimizer.
          "nvfp4_single": one level.
        - "te_4over6_mae", "te_4over6_mse", "fouroversix_mae", "fouroversix_mse", "fouroversix_absmax": NVFP4 with the
          largest magnitude of a block at 4 or at 6, whichever has the smaller error.
    scale_format : format, optional
        The format of the scales: FP32, or a format whose numbers are FP32 numbers, such as FP16, BF16, E4M3, E8M0.
    factor : str, optional
        How an element t is scaled: "divide", t = x / scale; "reciprocal", t = x * (1 / scale); "multiplier",
        t = x * (max / amax), and the scale is 1 / (max / amax).
    least_amax : float, optional
        amax counts as at least this number.
    nested : Scheme or str, optional
        The scheme by which the scales are quantized too, such as "dynamic8": less their mean, as one vector. The codes
        are those of the exact scales; the values are those of the scales that are read back. For FP32 scales.
    outer : str or int, optional
        The elements that share the second scale of NVFP4: "tensor", "row", or a width, such as 64 for 1x64.
    scale_max : float, optional
        The largest block scale to which the second scale maps the largest magnitude. Default: 256 for 4over6, else 448.
    scale_overflow : str, optional
        What a block scale of NVFP4 above 464 becomes: "saturate", 448; "nan", NaN, as in PyTorch's conversion. It
        happens with a given `tensor_scale` or `tensor_amax`. A FloatsimWarning reports the number of blocks. A block
        with infinity has such a scale, too, without a warning.
    scale : array_like of floats, optional
        The scales, positive, in the shape of the scales of the result or broadcastable to it. They replace the rule.
    zero_point : array_like of int, optional
        The zero points to `scale`, for an integer format. Default: 0.
    tensor_scale : array_like of floats, optional
        The second scale of NVFP4, from a calibration: one positive number, or one for each row or group of `outer`.
    tensor_amax : array_like of floats, optional
        The calibrated largest magnitude, from which the second scale follows by the rule. Not with `tensor_scale`.
    rounding : Rounding or str, optional
        The rounding mode of t to the format of the elements: "ties_to_even", "ties_to_away", "toward_zero",
        "toward_positive", "toward_negative", "to_odd" or "stochastic". Default: the context's. A lookup format has no
        rounding mode: t is assigned to the nearest number by thresholds.
    seed : int, generator or RandomStream, optional
        The seed of stochastic rounding. The draws belong to the flat index of the element.
    random_bits : int, optional
        The random bits of stochastic rounding, 1 to 64.

    Returns
    -------
    Quantized
        The codes, the scales and the scheme.

    Raises
    ------
    TypeError
        If x has no float format.
    ValueError
        For unknown names, with the nearest known one; for a rule that is not for the format; for scales that are zero,
        negative or not finite; for NaN and infinity in x, if the elements are integers or numbers of a lookup format.

    Notes
    -----
    The arithmetic is in FP64 if x is FP64, otherwise, and always for lookup formats and NVFP4, in FP32. Each operation
    above is one rounding to it, ties to even. A scale is then rounded to the format of the scales, ties to even. If it
    would be zero, it is the least positive number. The codes are, by the format of the elements:

    - floating point: t rounded to the format, beyond max +-max
    - integer: clamp(round(t) + zero point), between min and max
    - lookup: the nearest number of the table; `fs.quantization.LookupFormat` defines ties

    A block of zeros has the scale 1 by the rules for integers and by "absmax", as has a block with NaN or infinity. In
    UE5M3 a block with NaN has the scale NaN, as by the other rules of NVFP4.
    By the rules with powers of two, its scale in E8M0 is 2**-127, or NaN. The page "Quantization" of the documentation
    has the sources, and where libraries differ.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = np.float32([[1.0, -2.0, 3.0, 100.0], [0.0, 0.0, 0.0, 0.25]])
    >>> q = fs.quantize_blocks(x, "mxfp8")
    >>> q.scales.values, q.elements.values
    (array([[0.25      ],
           [0.00097656]]), array([[  4.,  -8.,  12., 384.],
           [  0.,   0.,   0., 256.]]))
    >>> fs.quantize_blocks(x, "int8", block="row").codes
    array([[  1,  -3,   4, 127],
           [  0,   0,   0, 127]], dtype=int8)
    >>> fs.quantize_blocks(x, "uint8", rule="asymmetric").zero_points
    array(5)
    """
    given = {
        "block": block, "rule": rule, "scale_format": scale_format, "factor": factor, "least_amax": least_amax,
        "nested": nested, "outer": outer, "scale_max": scale_max, "scale_overflow": scale_overflow,
    }  # fmt: skip
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    settled = replace(as_scheme(scheme), **changes)
    keywords: dict[str, Any] = {"rounding": rounding, "seed": seed, "random_bits": random_bits}
    if isinstance(settled.format, LookupFormat):
        if any(value is not None for value in keywords.values()):
            raise ValueError(f"{settled.format.name} is a table: it has no rounding, seed or random_bits")
        keywords["rounding"] = Rounding.TIES_TO_EVEN  # of no effect
    fixed: dict[str, Any] = {"overflow": "saturate_finite", "daz": False, "ftz": False}
    options = resolve(cast("RoundingKeywords", {**keywords, **fixed}))  # type: ignore[arg-type]
    tensor = read_tensor(x, settled)
    plan = layout(settled, tensor.shape)
    blocks, writer = plan.blocks, _Writer(tensor, settled, plan.blocks, options)
    of_tensor = _of_tensor(tensor_scale, tensor_amax, settled, tensor.shape, scale is not None)
    extremes = Extremes(writer.stack, tensor.format, blocks, _groups(settled, plan), of_tensor)
    if scale is None:
        if zero_point is not None:
            raise ValueError("zero_point needs scale: the rule of the scales determines both")
        scaling = _scaled_by_rule(writer, extremes, settled)
    else:
        _refuse_special_values(extremes, settled)
        scales, zero = _given(scale, zero_point, plan.scale_shape, settled)
        scaling = given_scaling(scales, zero, tensor.format, blocks, settled)
        in_pieces("quantize_blocks", blocks, lambda piece: writer.write(piece, scaling))
    _clear_codes(writer, scaling, settled)
    codes = writer.result()
    shape = plan.scale_shape
    _warn_of_overflow(scaling, extremes, settled)
    second = scaling.tensor_scale
    if second is not None and second.shape:
        second = second.reshape(*outer_shape(settled, tensor.shape))
    scales = FloatArray(scaling.scales.codes.reshape(shape), scaling.scales.format)
    nested_scales = _nested(scales, settled)
    return Quantized(
        codes, scales if nested_scales is None else nested_scales.restored(shape), settled,
        None if scaling.zero_points is None else scaling.zero_points.reshape(shape), second,
        tensor.format, nested_scales,
    )  # fmt: skip


def _groups(scheme: Scheme, plan: Layout) -> OuterGroups | None:
    """Return the blocks that share a second scale, if not all do."""
    if scheme.outer == "tensor":
        return None
    across = max(plan.scale_shape[-1], 1)
    return OuterGroups(across, across if scheme.outer == "row" else scheme.outer // scheme.block[1])


def _of_tensor(scale: Any, amax: Any, scheme: Scheme, shape: tuple[int, ...], has_scales: bool) -> OfTensor:
    """Return what the caller gives in place of the largest magnitude of the tensor, in FP32."""
    given = {name: value for name, value in (("tensor_scale", scale), ("tensor_amax", amax)) if value is not None}
    if not given:
        return OfTensor()
    (name, value), *more = given.items()
    if more:
        raise ValueError("tensor_scale and tensor_amax determine each other: give one")
    if has_scales or scheme.rule not in TENSOR_RULES:
        reason = "scale replaces the rule" if has_scales else f"rule={scheme.rule!r} has no scale of the tensor"
        raise ValueError(f"{name} is for the rules {', '.join(TENSOR_RULES)}: {reason}")
    codes, fmt, _ = read_floats(value, name)
    numbers = number(FloatArray(codes, fmt).values, FP32)
    exact, may_be_zero = FloatArray(codes, fmt).values, name == "tensor_amax"
    usable = (numbers.values > 0) & (exact <= FP32.max) & np.isfinite(exact)
    if not np.all(usable | (exact == 0) if may_be_zero else usable):
        wanted_sign = "0 or positive" if may_be_zero else "positive"
        raise ValueError(
            f"{name} must be {wanted_sign} and finite in FP32, and at most its largest number, {FP32.max:g}; "
            f"got {value!r:.60}"
        )
    wanted = outer_shape(scheme, shape)
    spread = _broadcast(numbers.codes, wanted, name, "the groups of `outer`")
    found = FloatArray(spread.reshape(math.prod(wanted[:-1]), wanted[-1]) if wanted else spread, FP32)
    return OfTensor(scale=found) if name == "tensor_scale" else OfTensor(amax=found)


def _clear_codes(writer: _Writer, scaling: Scaling, scheme: Scheme) -> None:
    """Set the codes of blocks with the scale zero to 0, by the rules that do so."""
    kind = FOUR_OVER_SIX.get(scheme.rule)
    if kind is None or not kind.clears or not np.any(scaling.scales.codes == 0):
        return
    blocks = writer.blocks
    spread = np.repeat(np.repeat(scaling.scales.codes == 0, blocks.height, axis=1), blocks.width, axis=2)
    _, rows, columns = blocks.shape
    writer.codes[spread[:, :rows, :columns]] = 0


def _warn_of_overflow(scaling: Scaling, x: Extremes, scheme: Scheme) -> None:
    """Warn if scales of blocks overflow, and say what they become and why."""
    count = 0 if scaling.overflowed is None else int(np.count_nonzero(scaling.overflowed))
    if not count:
        return
    largest = FloatArray(x.magnitude().codes.max(initial=0), x.format).item()
    becomes = "NaN" if scheme.scale_overflow == "nan" else "448, and their largest elements are clipped"
    if x.given.scale is not None:
        reason = f"tensor_scale={x.given.scale.values.min():.6g} is below {largest / (scheme.scale_limit * 6):.6g}"
    elif x.given.amax is not None:
        reason = f"tensor_amax={x.given.amax.values.min():.6g} is smaller than the data's, {largest:.6g}"
    else:
        reason = f"the largest magnitude is {largest:.6g}"
    other = "scale_overflow='saturate' makes them 448" if scheme.scale_overflow == "nan" else "'nan' makes them NaN"
    warn(
        f"{count} of {scaling.scales.size} block scales are beyond 448, the largest number of E4M3: {reason}. "
        f"They become {becomes} (rule={scheme.rule!r}, scale_overflow={scheme.scale_overflow!r}; {other})"
    )


def _nested(scales: FloatArray, scheme: Scheme) -> NestedScales | None:
    """Return the scales less their mean, quantized, if the scheme has nested scales."""
    if scheme.nested is None:
        return None
    offset = number(float(torch_mean(scales.values.reshape(-1).astype(np.float32))), scales.format)
    rest = rounded("subtract", scales.reshape(1, -1), offset)
    return NestedScales(quantize_blocks(rest, scheme.nested), offset)


def _given(scale: Any, zero_point: Any, shape: tuple[int, ...], scheme: Scheme) -> tuple[FloatArray, Array | None]:
    """Return the scales and zero points of the caller in the shape of the scales."""
    codes, fmt, _ = read_floats(scale, "scale")
    scales = FloatArray(_broadcast(codes, shape, "scale"), fmt)
    if zero_point is None:
        return scales, None
    element = scheme.format
    if not isinstance(element, IntegerFormat):
        raise ValueError(f"zero_point is for integer formats, not for {element.name}")
    zero = np.asarray(zero_point)
    if zero.dtype.kind not in "iu":
        raise TypeError(f"zero_point must be integers, not {zero.dtype}")
    if zero.size and not (element.min <= zero.min() and zero.max() <= element.max):
        raise ValueError(f"zero_point must be {element.min} to {element.max}, the codes of {element.name}")
    return scales, _broadcast(zero.astype(np.int64), shape, "zero_point")


def _broadcast(array: Array, shape: tuple[int, ...], argument: str, what: str = "the scales") -> Array:
    try:
        return np.broadcast_to(array, shape).copy()
    except ValueError:
        raise ValueError(f"{argument} {array.shape} does not fit {what}, which have the shape {shape}") from None


def dequantize_blocks(q: Quantized, format: FormatLike | None = None) -> FloatArray:
    """Return the numbers that codes and scales stand for: `q.dequantize(format)`.

    Parameters
    ----------
    q : Quantized
        The result of `fs.quantize_blocks`.
    format : format, optional
        The format of the result. Default: FP32, or FP64 if the tensor was FP64.

    Returns
    -------
    FloatArray
        In the shape of the tensor. `fs.quantization.Quantized.dequantize` documents the roundings.

    Raises
    ------
    TypeError
        If q is not the result of `fs.quantize_blocks`.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.dequantize_blocks(fs.quantize_blocks(np.float32([0.1, 0.7, -1.0]), "int4"))
    FloatArray([0.142857149, 0.714285731, -1.0], FP32)
    """
    if not isinstance(q, Quantized):
        raise TypeError(f"q must be a result of fs.quantize_blocks, not {type(q).__name__}")
    return q.dequantize(format)
