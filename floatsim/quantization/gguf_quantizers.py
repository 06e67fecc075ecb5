"""Quantize a tensor into the blocks of a GGUF file, with the rules of ggml and, optionally, with weights.

The rules are those of ggml's reference functions (ggml-quants.c, MIT licence, see NOTICE). All arithmetic is in FP32,
each operation rounded, and all sums go from the first element to the last, as ggml's loops do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.conversion import read_floats
from floatsim.arrays.array.float_array import FloatArray
from floatsim.emulator.elementwise import group_fits
from floatsim.emulator.elementwise.block_scales import environment_is_default
from floatsim.formats import FP32
from floatsim.formats._validation import every_name_hint
from floatsim.quantization.gguf_points import POINT_QUANTIZERS
from floatsim.quantization.gguf_types import E4M3_HALF, GgufType, as_gguf_type, packing_of
from floatsim.quantization.scales import to_format
from floatsim.reference.group_fits import ends, nearest, signed_peaks, sums

__all__ = ["QUANTIZED_TYPES", "to_gguf"]

Array: TypeAlias = NDArray[Any]

_F = np.float32
_TINY = _F(1e-15)  # GROUP_MAX_EPS of ggml: a group of smaller numbers is a group of zeros
_CHUNK = 1 << 18  # elements that are quantized at a time


class Rows(NamedTuple):
    """Blocks of elements (blocks, elements), their weights or None, and the mean square of the row of each block."""

    x: Array
    weights: Array | None
    mean_square: Array

    def groups(self, width: int) -> tuple[Array, Array | None]:
        """Return elements and weights in groups, (groups, width)."""
        return self.x.reshape(-1, width), None if self.weights is None else self.weights.reshape(-1, width)


# -- arithmetic --------------------------------------------------------------------------------------------------------


def _inverse(d: Array) -> Array:
    return np.where(d == 0, _F(0), _F(1) / d)


def _whole(x: Array) -> Array:
    """Return whole numbers, and 0 for infinity, NaN and numbers beyond 32 bits, as a conversion on x86 has it."""
    return np.where(np.abs(x) < 2.0**31, x, _F(0))


def _away(x: Array) -> Array:
    """Return the nearest integers, ties away from zero."""
    whole = np.floor(np.abs(x))
    rounded: Array = np.sign(x) * (whole + np.floor(2 * (np.abs(x) - whole)))
    return rounded


def _halves(*numbers: Array) -> list[Array]:
    """Return FP32 numbers (blocks,) as bytes of FP16 numbers, (blocks, 2) each."""
    return [np.ascontiguousarray(x.reshape(-1, 1).astype("<f2")).view(np.uint8) for x in numbers]


def _float(half: Array) -> Array:
    return half.view("<f2").astype(np.float32)


# -- types of one scale ------------------------------------------------------------------------------------------------


def _row_weights(rows: Rows) -> Array:
    """Return the weights of elements: the given ones times sqrt(mean square of the row + x * x)."""
    found: Array = rows.weights * np.sqrt(rows.mean_square[:, None] + rows.x * rows.x)
    return found


def _signed_absmax(nmax: int) -> Callable[[Rows], tuple[Array, list[Array]]]:
    """Q4_0, Q5_0: the element of the largest magnitude becomes the code 0."""

    def quantize(rows: Rows) -> tuple[Array, list[Array]]:
        if rows.weights is not None:
            d, codes = group_fits.symmetric(rows.x, nmax, _row_weights(rows))
            return codes, _halves(d)
        d = signed_peaks(rows.x) / _F(-nmax)
        codes = _whole(np.trunc(rows.x * _inverse(d) + _F(nmax + 0.5)))
        return np.minimum(codes, 2 * nmax - 1), _halves(d)

    return quantize


def _min_max(nmax: int) -> Callable[[Rows], tuple[Array, list[Array]]]:
    """Q4_1, Q5_1: the range from the smallest to the largest element."""

    def quantize(rows: Rows) -> tuple[Array, list[Array]]:
        if rows.weights is not None:
            d, minima, codes = group_fits.affine(rows.x, nmax, _row_weights(rows), group_fits.Search(-0.9, 0.05, 36))
            return codes, _halves(d, -minima)
        low, high = ends(rows.x)
        d = (high - low) / _F(nmax)
        codes = _whole(np.trunc((rows.x - low) * _inverse(d) + _F(0.5)))
        return np.minimum(codes, nmax), _halves(d, low)

    return quantize


def _absmax(largest: int, bias: int) -> Callable[[Rows], tuple[Array, list[Array]]]:
    """Q8_0, TQ1_0, TQ2_0: the largest magnitude becomes the largest code, ties away from zero. No weights."""

    def quantize(rows: Rows) -> tuple[Array, list[Array]]:
        d = np.abs(rows.x).max(axis=1, keepdims=True) / _F(largest)
        return _whole(_away(rows.x * _inverse(d))) + bias, _halves(d)

    return quantize


def _signs(rows: Rows) -> tuple[Array, list[Array]]:
    """Q1_0: the signs, and the mean magnitude. No weights."""
    return rows.x >= 0, _halves(sums(np.abs(rows.x)) / _F(rows.x.shape[1]))


_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def _nearest_e2m1(x: Array, d: Array) -> Array:
    """Return the first of the nearest codes. `x` is (groups, elements), and `d` (groups, 1) half of the scale."""
    best, codes = np.abs(d * _E2M1[0] - x), np.zeros(x.shape)
    for code in range(1, 16):
        error = np.abs(d * _E2M1[code] - x)
        better = error < best
        codes, best = np.where(better, code, codes), np.where(better, error, best)
    return codes


def _mxfp4(rows: Rows) -> tuple[Array, list[Array]]:
    """Quantize to MXFP4: the exponent of the largest magnitude, less two. No weights."""
    peak = np.abs(rows.x).max(axis=1, keepdims=True)
    exponent = np.where(peak > 0, np.floor(np.log2(peak)) + _F(125), _F(0)).astype(np.int64).astype(np.uint8)
    d = np.ldexp(_F(1), exponent.astype(np.int32) - 128).astype(np.float32)
    return _nearest_e2m1(rows.x, d), [exponent]


def _unsigned_e4m3(x: Array) -> Array:
    """Return the codes of NVFP4's scales as ggml rounds them: the bit below the last one is added to it."""
    x = np.clip(x, _F(0), _F(448))
    bits = x.view(np.uint32)
    exponent = (bits >> 23 & 255).astype(np.int32) - 120
    rounded = (exponent << 3) + (bits >> 20 & 7).astype(np.int32) + (bits >> 19 & 1).astype(np.int32)
    small = np.clip((x * _F(512) + _F(0.5)).astype(np.int32), 0, 7)
    codes = np.where(exponent <= 0, small, np.where((exponent >= 15) | (rounded >= 120), 0x7E, rounded))
    return np.where(x <= 0, 0, codes).astype(np.uint8)


def _nvfp4(rows: Rows) -> tuple[Array, list[Array]]:
    """Quantize to NVFP4 without a scale of the tensor. No weights."""
    x = rows.x.reshape(-1, 16)
    codes = _unsigned_e4m3(np.abs(x).max(axis=1, keepdims=True) / _F(6))
    return _nearest_e2m1(x, E4M3_HALF[codes]).reshape(rows.x.shape), [codes.reshape(-1, 4)]


# -- K types -----------------------------------------------------------------------------------------------------------


def _again(x: Array, d: Array, low: Array | None, limits: tuple[int, int], codes: Array) -> Array:
    """Return the codes for the rounded scales, and minima, of groups. Groups of scale 0 keep their codes."""
    shifted = x if low is None else x + low[:, None]
    found = np.clip(nearest(shifted / d[:, None]), *limits) - limits[0]
    return np.where((d == 0)[:, None], codes, found)


def _with_minima(
    nmax: int, top: int, width: int, search: group_fits.Search, stored: Callable[[Array, Array], tuple[Array, Array]]
) -> Callable[[Rows], tuple[Array, list[Array], Array, Array]]:
    """Q2_K, Q4_K, Q5_K: codes from 0 to nmax, and scales and minima of groups from 0 to `top`.

    `stored` returns the scales and minima that are read back. They differ if a scale is a byte above `top`.
    """
    magnitudes = width == 16

    def quantize(rows: Rows) -> tuple[Array, list[Array], Array, Array]:
        x, weights = rows.groups(width)
        count = rows.x.shape[1] // width
        if weights is None:
            own = np.abs(x) if magnitudes else np.sqrt(sums(x * x) / _F(width))[:, None] + np.abs(x)
            scales, minima, codes = group_fits.affine(x, nmax, own, search)
            scales, minima = scales.reshape(-1, count), minima.reshape(-1, count)
            whole = []
            for numbers in (scales, minima):
                peak = np.fmax.reduce(numbers, axis=1, keepdims=True, initial=_F(0)) + _F(0)
                inverse = np.where(peak > 0, _F(top) / peak, _F(0))
                integers = nearest(inverse * numbers).astype(np.int32).astype(np.uint8)
                whole.append((peak / _F(top), np.minimum(integers, top)))
            (d, steps), (low, low_steps) = whole
        else:
            square = sums(rows.x * rows.x)
            square = square / _F(256) if magnitudes else _F(2) * square / _F(256)
            own = weights * np.sqrt(np.repeat(square, count)[:, None] + x * x)
            scales, minima, codes = group_fits.affine(x, nmax, own, group_fits.Search(-0.9, 0.05, 36))
            of_groups = sums(own).reshape(-1, count)
            d, steps = group_fits.positive(scales.reshape(-1, count), top, of_groups)
            low, low_steps = group_fits.positive(minima.reshape(-1, count), top, of_groups)
        halves = _halves(d, low)
        rounded, rounded_low = (_float(half) for half in halves)
        steps, low_steps = stored(steps.astype(np.uint8), low_steps.astype(np.uint8))
        group_d = (rounded * steps.astype(np.float32)).ravel()
        group_low = (rounded_low * low_steps.astype(np.float32)).ravel()
        codes = _again(x, group_d, group_low, (0, nmax), codes)
        return codes.reshape(rows.x.shape), halves, steps, low_steps

    return quantize


def _of_four_bits(scales: Array, minima: Array) -> tuple[Array, Array]:
    """Return the scales and minima of a byte: ggml adds the high bits of the scale to the minimum."""
    return scales & 15, (scales >> 4 | minima) & 15


def _of_six_bits(scales: Array, minima: Array) -> tuple[Array, Array]:
    """Return the scales and minima of 12 bytes: ggml adds the high bits of the first four to those of the last four."""
    first, second = (
        np.concatenate([of[:, :4] & 63, of[:, 4:] & 15 | ((of[:, :4] >> 6 | of[:, 4:] >> 4) & 3) << 4], axis=1)
        for of in (scales, minima)
    )
    return first, second


def _at_most_63(scales: Array, minima: Array) -> tuple[Array, Array]:
    return np.minimum(scales, 63), np.minimum(minima, 63)


_Q2 = _with_minima(3, 15, 16, group_fits.Search(-0.5, 0.1, 15, absolute=True), _of_four_bits)
_Q4 = _with_minima(15, 63, 32, group_fits.Search(-1.0, 0.1, 20), _of_six_bits)
_Q5 = _with_minima(31, 63, 32, group_fits.Search(-0.5, 0.1, 15), _at_most_63)


def _q2_k(rows: Rows) -> tuple[Array, list[Array]]:
    codes, halves, scales, minima = _Q2(rows)
    return codes, [scales | minima << 4, *halves]


def _packed_scales(scales: Array, minima: Array) -> Array:
    """Return 8 scales and 8 minima of 6 bits in 12 bytes, as `from_gguf` reads them."""
    first = scales[:, :4] | (scales[:, 4:] >> 4 << 6)
    second = minima[:, :4] | (minima[:, 4:] >> 4 << 6)
    return np.concatenate([first, second, (scales[:, 4:] & 15) | (minima[:, 4:] & 15) << 4], axis=1)


def _of_q4(
    own: Callable[[Rows], tuple[Array, list[Array], Array, Array]],
) -> Callable[[Rows], tuple[Array, list[Array]]]:
    def quantize(rows: Rows) -> tuple[Array, list[Array]]:
        codes, halves, scales, minima = own(rows)
        return codes, [*halves, _packed_scales(scales, minima)]

    return quantize


def _q3_k(rows: Rows) -> tuple[Array, list[Array]]:
    x, weights = rows.groups(16)
    if weights is None:
        scales, codes = group_fits.refined(x, 4)
        scales = scales.reshape(-1, 16)
        peak = signed_peaks(scales)
        inverse = np.where(peak != 0, _F(-32) / peak, _F(0))
        steps = np.clip(nearest(inverse * scales), -32, 31) + 32
        steps = np.where(peak != 0, steps, 0)
        d = np.where(peak != 0, _F(1) / inverse, _F(0))
    else:
        square = np.repeat(_F(2) * sums(rows.x * rows.x) / _F(256), 16)
        own = weights * np.sqrt(square[:, None] + x * x)
        scales, codes = group_fits.symmetric(x, 4, own)
        d, steps = group_fits.symmetric(scales.reshape(-1, 16), 32, sums(own).reshape(-1, 16))
    (half,) = _halves(d)
    group_d = (_float(half) * (steps - 32).astype(np.float32)).ravel()
    codes = _again(x, group_d, None, (-4, 3), codes)
    steps = steps.astype(np.uint8)
    low = (steps[:, :8] & 15) | (steps[:, 8:] & 15) << 4
    high = sum((steps[:, 4 * k : 4 * k + 4] >> 4) << (2 * k) for k in range(4))
    return codes.reshape(rows.x.shape), [np.concatenate([low, high], axis=1).astype(np.uint8), half]


def _q6_k(rows: Rows) -> tuple[Array, list[Array]]:
    x, weights = rows.groups(16)
    scales, codes = group_fits.symmetric(x, 32, x * x if weights is None else weights)
    scales = scales.reshape(-1, 16)
    peak = signed_peaks(scales)
    zero = np.abs(peak) < _TINY
    inverse = _F(-128) / peak
    steps = np.where(zero, _F(0), np.minimum(nearest(inverse * scales), 127))
    (half,) = _halves(np.where(zero, _F(0), _F(1) / inverse))
    codes = _again(x, (_float(half) * steps).ravel(), None, (-32, 31), codes)
    codes = np.where(zero, 0, codes.reshape(rows.x.shape))
    return codes, [steps.astype(np.int8).view(np.uint8), half]


# -- the table ---------------------------------------------------------------------------------------------------------


class Quantizer(NamedTuple):
    """A function of blocks that returns codes (None: they are fields) and the other fields, and where these begin."""

    of: Callable[[Rows], tuple[Array | None, list[Array]]]
    places: tuple[int, ...]
    weighted: bool = True
    """Whether the bytes depend on the weights."""
    needs_weights: bool = False


def _of_points(name: str, needs_weights: bool = False) -> Quantizer:
    """Return the quantizer of a type with a grid or a table."""
    own, places = POINT_QUANTIZERS[name]
    return Quantizer(lambda rows: own(rows.x, rows.weights), places, needs_weights=needs_weights)


QUANTIZED_TYPES: dict[str, Quantizer] = {
    "Q4_0": Quantizer(_signed_absmax(8), (0,)),
    "Q4_1": Quantizer(_min_max(15), (0, 2)),
    "Q5_0": Quantizer(_signed_absmax(16), (0,)),
    "Q5_1": Quantizer(_min_max(31), (0, 2)),
    "Q8_0": Quantizer(_absmax(127, 0), (0,), weighted=False),
    "Q2_K": Quantizer(_q2_k, (0, 80, 82)),
    "Q3_K": Quantizer(_q3_k, (96, 108)),
    "Q4_K": Quantizer(_of_q4(_Q4), (0, 2, 4)),
    "Q5_K": Quantizer(_of_q4(_Q5), (0, 2, 4)),
    "Q6_K": Quantizer(_q6_k, (192, 208)),
    "TQ1_0": Quantizer(_absmax(1, 1), (52,), weighted=False),
    "TQ2_0": Quantizer(_absmax(1, 1), (64,), weighted=False),
    "MXFP4": Quantizer(_mxfp4, (0,), weighted=False),
    "NVFP4": Quantizer(_nvfp4, (0,), weighted=False),
    "Q1_0": Quantizer(_signs, (0,), weighted=False),
    "IQ2_XXS": _of_points("IQ2_XXS", needs_weights=True),
    "IQ2_XS": _of_points("IQ2_XS", needs_weights=True),
    "IQ2_S": _of_points("IQ2_S"),
    "IQ3_XXS": _of_points("IQ3_XXS"),
    "IQ3_S": _of_points("IQ3_S"),
    "IQ1_S": _of_points("IQ1_S", needs_weights=True),
    "IQ1_M": _of_points("IQ1_M"),
    "IQ4_NL": _of_points("IQ4_NL"),
    "IQ4_XS": _of_points("IQ4_XS"),
}
"""The types that `to_gguf` writes, and the places of their scales."""


def to_gguf(x: Any, type: GgufType | str, *, weights: Any = None) -> Array:
    """Quantize a tensor into the blocks of a GGUF file.

    Parameters
    ----------
    x : array_like of floats
        The tensor, of any shape. Its last axis has whole blocks. It is rounded to FP32 first.
    type : str or GgufType
        A key of `fs.quantization.GGUF_TYPES`, in any case: all types but Q8_K.
    weights : array_like of floats, optional
        The importance of each column, positive numbers in the shape of the last axis: the importance matrix of
        llama.cpp. IQ2_XXS, IQ2_XS and IQ1_S need it. Q8_0, TQ1_0, TQ2_0, MXFP4, NVFP4 and Q1_0 do not depend on it.

    Returns
    -------
    uint8 array
        The blocks of each row, along the last axis. `from_gguf` reads them.

    Raises
    ------
    TypeError
        If x or the weights are no floats.
    ValueError
        For a shape without whole blocks, for NaN and infinity in FP32, for negative weights, for types that are only
        read, for types that need weights without these, and if the weighted squares of numbers overflow FP32 in a type
        with a grid: no point has a finite error, and ggml aborts or writes some block.

    Notes
    -----
    The bytes are those of ggml's reference functions, which the package libgguf compiles. This includes IQ3_S blocks
    with a group of 32 zeros before other numbers: ggml writes the points of the later groups in the wrong place.

    Examples
    --------
    >>> import numpy as np
    >>> from floatsim.quantization import from_gguf, to_gguf
    >>> x = np.linspace(-1, 2, 32, dtype=np.float32)
    >>> blocks = to_gguf(x, "q4_0")
    >>> blocks.shape, from_gguf(blocks, "q4_0").scales.values
    ((18,), array([-0.25]))
    """
    kind = as_gguf_type(type)
    if kind.name not in QUANTIZED_TYPES:
        raise ValueError(f"type={kind.name!r} is only read; {every_name_hint(kind.name, list(QUANTIZED_TYPES))}")
    quantizer = QUANTIZED_TYPES[kind.name]
    numbers = _numbers(x, "x")
    if numbers.ndim == 0 or numbers.shape[-1] % kind.size:
        raise ValueError(f"x {numbers.shape}: a row of {kind.name} has whole blocks of {kind.size} elements")
    width = numbers.shape[-1]
    importance = None
    if weights is not None:
        importance = _numbers(weights, "weights")
        if importance.shape != (width,):
            raise ValueError(f"weights {importance.shape} must have the shape of a row of x, {(width,)}")
        if np.any(importance < 0):
            raise ValueError("weights must not be negative")
    elif quantizer.needs_weights:
        raise ValueError(
            f"type={kind.name!r} needs weights, an array {(width,)}: ggml writes it only with an importance matrix; "
            "without a calibration, (x * x).mean(axis=0) of a matrix x will do"
        )
    if not environment_is_default():
        raise RuntimeError("to_gguf needs a processor that does not flush subnormal numbers; a library has set that")
    out = np.zeros((numbers.size // kind.size, kind.nbytes), np.uint8)
    matrix = numbers.reshape(-1, width) if width else numbers.reshape(0, 1)
    step, per_row = max(1, _CHUNK // max(width, 1)), width // kind.size
    for start in range(0, len(matrix), step):
        part = matrix[start : start + step]
        try:
            with np.errstate(all="ignore"):
                blocks = _blocks(part, importance if quantizer.weighted else None, kind, quantizer)
        except OverflowError:
            raise ValueError(
                f"x has rows from {start} on whose weighted squares overflow FP32, so that no point of {kind.name} "
                "has a finite error; scale x or the weights down"
            ) from None
        out[start * per_row : start * per_row + len(blocks)] = blocks
    return out.reshape(*numbers.shape[:-1], per_row * kind.nbytes)


_ROUNDS_TO_INFINITY = 2.0**128 - 2.0**103  # the tie between the largest FP32 number and 2**128


def _numbers(x: Any, argument: str) -> Array:
    """Return finite float32 numbers. Numbers that round to infinity are refused, as in `quantize_blocks`."""
    codes, fmt, _ = read_floats(x, argument)
    single = to_format(FloatArray(codes, fmt), FP32) if fmt != FP32 else FloatArray(codes, fmt)
    numbers: Array = np.ascontiguousarray(single.codes).view(np.float32)
    if not (np.abs(FloatArray(codes, fmt).values) < _ROUNDS_TO_INFINITY).all():
        raise ValueError(f"{argument} has NaN or infinity in FP32, which no block stands for")
    return numbers


def _blocks(part: Array, importance: Array | None, kind: GgufType, quantizer: Quantizer) -> Array:
    """Return the blocks of some rows."""
    per_row = part.shape[1] // kind.size
    mean = sums(part * part) / _F(part.shape[1]) if importance is not None else np.zeros(len(part), np.float32)
    weights = None if importance is None else np.tile(importance.reshape(per_row, kind.size), (len(part), 1))
    codes, fields = quantizer.of(Rows(part.reshape(-1, kind.size), weights, np.repeat(mean, per_row)))
    if codes is None:
        out = np.zeros((len(fields[0]), kind.nbytes), np.uint8)
    else:
        out = packing_of(kind).pack(codes.astype(np.int64), kind.nbytes)
    for place, values in zip(quantizer.places, fields, strict=True):
        out[:, place : place + values.shape[1]] = values
    return out
