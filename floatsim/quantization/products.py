"""Products of quantized operands: integers with an int32 accumulator, requantization, LLM.int8(), scaled blocks."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.accumulation import AccumulationLike
from floatsim.arrays.array.conversion import convert, read_floats
from floatsim.arrays.array.float_array import FloatArray, from_codes
from floatsim.arrays.array.types import Floats, Integers
from floatsim.arrays.call.options import context
from floatsim.arrays.elementwise.arithmetic import add, fma, multiply
from floatsim.arrays.sums.products import matmul
from floatsim.formats import FP32, FloatFormat, FormatLike, as_format
from floatsim.quantization.blocks import quantize_blocks
from floatsim.quantization.integer import IntegerFormat
from floatsim.quantization.integer_instructions import as_integer_dot, sums_by_steps
from floatsim.quantization.quantized import Quantized
from floatsim.quantization.scales import number, to_format
from floatsim.quantization.scheme import ElementFormatLike, as_element_format, as_name, layout

__all__ = ["ORDERS", "integer_matmul", "llm_int8_matmul", "quantize_multiplier", "requantize", "scaled_matmul"]

Array: TypeAlias = NDArray[Any]

_INT32 = np.iinfo(np.int32)
_EXACT_BELOW = 1 << 53


def _integers(x: Any, argument: str) -> NDArray[np.int64]:
    array = np.asarray(x)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{argument} must be integers, not {array.dtype}")
    return array.astype(np.int64)


def integer_matmul(
    a: Integers, b: Integers, c: Integers | None = None, *, zero_a: Integers = 0, zero_b: Integers = 0,
    accumulator_overflow: str = "wrap", instruction: str | None = None,
) -> NDArray[np.int32]:  # fmt: skip
    """Return the product of integer matrices in an int32 accumulator.

    Parameters
    ----------
    a : array_like of int, (..., M, K)
    b : array_like of int, (..., K, N)
        The codes, for instance of INT8. Batches broadcast as in np.matmul.
    c : array_like of int, optional
        An addend, for instance an int32 bias.
    zero_a, zero_b : array_like of int
        Zero points, broadcastable to a and b. They are subtracted before the product.
    accumulator_overflow : str
        "wrap": the exact sum modulo 2**32, which is what any order of wrapping additions gives. "saturate": the exact
        sum, clamped once.
    instruction : str, optional
        An integer instruction of a CPU, which adds 4 (or 2) products along K at a time: "vpdpbusd", "vpdpbusds",
        "vpdpwssd", "vpdpwssds" (AVX512_VNNI), "tdpbssd", "tdpbsud", "tdpbusd" or "tdpbuud" (AMX). The instructions
        whose name ends in "ds" clamp the sum after each step, the others wrap. `accumulator_overflow` has no effect.
        Or a matrix instruction of an NVIDIA GPU, with the types of a and b: "mma.m16n8k32.s8.s8", "wgmma.k32.u8.s8",
        "mma.m16n8k64.s4.u4". With ".satfinite" it clamps the sum of each instruction, otherwise it wraps.

    Returns
    -------
    int32 ndarray, (..., M, N)

    Raises
    ------
    TypeError
        If an argument holds no integers.
    ValueError
        For shapes that do not fit, for numbers so large that the sums are not exact in float64, for an unknown
        instruction, and for integers that the instruction does not read.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> a = np.full((1, 4), 127, np.int8)
    >>> fs.quantization.integer_matmul(a, a.T, zero_a=-1)
    array([[65024]], dtype=int32)
    >>> big = np.full((1, 140_000), 127, np.int8)
    >>> [int(fs.quantization.integer_matmul(big, big.T, accumulator_overflow=o)[0, 0]) for o in ("wrap", "saturate")]
    [-2036907296, 2147483647]

    An instruction that saturates does so in every step:

    >>> a, b = np.full((1, 8), 32767, np.int16), np.array([[32767] * 4 + [-32768] * 4], np.int16)
    >>> [int(fs.quantization.integer_matmul(a, b.T, instruction=name)[0, 0]) for name in ("vpdpwssd", "vpdpwssds")]
    [-131068, -2147352577]
    """
    policy = as_name(accumulator_overflow, ("wrap", "saturate"), "accumulator_overflow")
    x, y = _integers(a, "a") - _integers(zero_a, "zero_a"), _integers(b, "b") - _integers(zero_b, "zero_b")
    if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-2]:
        raise ValueError(f"a {x.shape} and b {y.shape} do not fit: a is (..., M, K), and b is (..., K, N)")
    ends = [max(abs(int(z.max(initial=0))), abs(int(z.min(initial=0)))) for z in (x, y)]
    if ends[0] * ends[1] * x.shape[-1] >= _EXACT_BELOW:
        raise ValueError(
            f"the sums of {x.shape[-1]} products of up to {ends[0]} * {ends[1]} may reach 2**53, beyond which float64 "
            "is not exact; use smaller integers, such as INT8"
        )
    exact: Array = np.matmul(x.astype(np.float64), y.astype(np.float64)).astype(np.int64)  # every partial sum is exact
    if instruction is not None:
        start = np.zeros(exact.shape, np.int64) if c is None else np.broadcast_to(_integers(c, "c"), exact.shape)
        return sums_by_steps(as_integer_dot(instruction), x, y, start).astype(np.int32)
    if c is not None:
        exact = exact + _integers(c, "c")
    if policy == "saturate":
        exact = np.clip(exact, _INT32.min, _INT32.max)
    result: NDArray[np.int32] = exact.astype(np.int32)  # the low 32 bits
    return result


def quantize_multiplier(multiplier: float) -> tuple[int, int]:
    """Return a positive multiplier as (m, shift): multiplier is about m * 2**(shift - 31), and m has 31 bits.

    Parameters
    ----------
    multiplier : float
        For instance scale_a * scale_b / scale_of_the_result.

    Returns
    -------
    m : int
        From 2**30 to 2**31 - 1: the significand times 2**31, rounded to nearest, ties away. 0 if shift is below -31.
    shift : int
        Positive: to the left; negative: to the right.

    Raises
    ------
    ValueError
        If the multiplier is negative, not finite, or 2**30 and more.

    Notes
    -----
    QuantizeMultiplier of TensorFlow Lite.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.quantization.quantize_multiplier(0.75 / 256)
    (1610612736, -8)
    """
    value = float(multiplier)
    if not 0 <= value < 2.0**30:
        raise ValueError(f"multiplier must be from 0 to below 2**30, not {multiplier!r}")
    significand, shift = math.frexp(value)
    m = math.floor(significand * 2**31 + 0.5)  # exact: the significand has 53 bits
    if m == 1 << 31:
        m, shift = m // 2, shift + 1
    return (0, 0) if shift < -31 or m == 0 else (m, shift)


def requantize(
    acc: Integers, multiplier: Integers, shift: Integers, zero_point: Integers = 0, format: ElementFormatLike = "int8"
) -> NDArray[np.integer[Any]]:
    """Scale int32 accumulators to codes of an integer format, with integers only.

    The result is clamp(rounded_shift(high(acc * 2**left, m), right) + zero_point), as in gemmlowp and TensorFlow Lite:

    - left is the shift if it is positive, right its magnitude if it is negative. acc * 2**left saturates.
    - high(x, m) is x * m / 2**31 to the nearest integer; a tie goes up, toward positive infinity
      (SaturatingRoundingDoublingHighMul).
    - rounded_shift(x, n) is x / 2**n to the nearest integer; a tie goes away from zero (RoundingDivideByPOT).

    Parameters
    ----------
    acc : array_like of int
        Accumulators in the range of int32.
    multiplier, shift : array_like of int
        The results of `quantize_multiplier`, one pair or one for each column; they broadcast with acc.
    zero_point : array_like of int
        The zero point of the result.
    format : format
        The integer format of the result.

    Returns
    -------
    ndarray of int8 or uint8
        The codes, in the shape of acc.

    Raises
    ------
    TypeError, ValueError
        For arguments that are no integers or out of range, and for a format of no integers.

    Examples
    --------
    >>> import floatsim as fs
    >>> m, shift = fs.quantization.quantize_multiplier(0.01)
    >>> fs.quantization.requantize([150, -150, 250, 12345, -99999], m, shift)
    array([   2,   -2,    3,  123, -128], dtype=int8)
    """
    element = as_element_format(format)
    if not isinstance(element, IntegerFormat):
        raise ValueError(f"format must be an integer format such as 'int8', not {element.name}")
    x, m, s, zero = (
        _integers(v, name)
        for v, name in ((acc, "acc"), (multiplier, "multiplier"), (shift, "shift"), (zero_point, "zero_point"))
    )
    for values, name, low, high in ((x, "acc", _INT32.min, _INT32.max), (m, "multiplier", 0, _INT32.max),
                                    (s, "shift", -31, 30)):  # fmt: skip
        if values.size and not (low <= values.min() and values.max() <= high):
            raise ValueError(f"{name} must be {low} to {high}")
    wide = np.clip(x << np.maximum(s, 0), _INT32.min, _INT32.max)
    product = wide * m  # below 2**62
    nudge = np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    total = product + nudge
    high_half = np.where(total >= 0, total >> 31, -(-total >> 31))  # C's division, toward zero
    right = np.maximum(-s, 0)
    mask = (np.int64(1) << right) - 1
    shifted = (high_half >> right) + ((high_half & mask) > (mask >> 1) + (high_half < 0))
    codes: NDArray[np.integer[Any]] = np.clip(shifted + zero, element.min, element.max).astype(element.code_dtype)
    return codes


def llm_int8_matmul(
    a: Floats, b: Floats, *, threshold: float = 6.0, format: FormatLike = "fp16", accumulate: AccumulationLike = "fp32"
) -> FloatArray:
    """Return a @ b as LLM.int8() computes it: INT8, except for the columns of a with outliers.

    1. An outlier column k of a has an element of at least `threshold` in magnitude. a0 is a with zeros there.
    2. The rows of a0 and the columns of b are quantized to INT8: q = round(x * (127 / amax)), ties to even.
    3. The int32 product is scaled in FP32: round(round(round(acc * amax_row) * amax_column) * round(1 / 127**2)),
       then rounded to `format`.
    4. The product of the outlier columns of a and the same rows of b, with the given accumulation and rounded to
       `format`, is added, and the sum is rounded to `format`.

    Parameters
    ----------
    a : array_like of floats, (M, K)
        Activations. They are rounded to `format`, as is b.
    b : array_like of floats, (K, N)
        Weights.
    threshold : float
        6.0 in the paper (Dettmers et al., 2022). 0 means that there are no outliers, the default of bitsandbytes' API.
    format : format
        The format of the operands and of the result.
    accumulate : description, format or text
        How the sums of the outlier columns are carried out.

    Returns
    -------
    FloatArray, (M, N)

    Raises
    ------
    ValueError
        For shapes that do not fit, NaN or infinity, and a negative threshold.

    Notes
    -----
    bitsandbytes takes the outliers' rows of b from its INT8 copy of the weights. Here, as in the paper, they are in
    `format`.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(4, 64)), rng.normal(size=(64, 4))
    >>> a[:, 7] *= 60
    >>> for threshold in (0.0, 6.0):
    ...     product = fs.quantization.llm_int8_matmul(a, b, threshold=threshold)
    ...     print(threshold, round(np.abs(product.values - a @ b).max(), 2))
    0.0 2.59
    6.0 0.12
    """
    fmt = as_format(format)
    x, y = (_to(v, fmt, name) for v, name in ((a, "a"), (b, "b")))
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[0]:
        raise ValueError(f"a {x.shape} and b {y.shape} do not fit: a is (M, K), and b is (K, N)")
    if not (isinstance(threshold, int | float) and threshold >= 0):
        raise ValueError(f"threshold must be a number from 0 up, not {threshold!r}")
    outlier = np.max(np.abs(x.values), axis=0, initial=0.0) >= (threshold or np.inf)
    regular = FloatArray(np.where(outlier, fmt.code_dtype.type(0), x.codes), fmt)
    left = quantize_blocks(regular, "llm_int8", rounding="ties_to_even")
    right = quantize_blocks(y, "llm_int8", block="column", rounding="ties_to_even")
    acc = integer_matmul(left.codes, right.codes)
    with _plain():
        scaled = number(acc.astype(np.float64), FP32)
        rows, columns = (number(np.abs(v.values).max(axis=axis, keepdims=True, initial=0.0), FP32)
                         for v, axis in ((regular, 1), (y, 0)))  # fmt: skip
        for factor in (rows, columns, number(1 / 127**2, FP32)):
            scaled = multiply(scaled, factor)
        result = to_format(scaled, fmt)
        if outlier.any():
            part = matmul(x[:, outlier], y[outlier], accumulate=accumulate, format=fmt)
            result = add(result, FloatArray(read_floats(part, "part")[0], fmt))
    return result


def _plain() -> Any:
    """Return a context in which every rounding is to nearest, and nothing is flushed."""
    return context(rounding="ties_to_even", overflow="infinity", daz=False, ftz=False, tininess="after")


def _to(x: Any, fmt: FloatFormat, argument: str) -> FloatArray:
    codes, own, _ = read_floats(x, argument)
    if own == fmt:
        return FloatArray(codes, own)
    with _plain():
        return from_codes(convert(FloatArray(codes, own), fmt).codes, fmt)


ORDERS = ("product_first", "separate")
"""How the scales of blocks are applied. `scaled_matmul` documents them."""


def scaled_matmul(
    a: Quantized, b: Quantized, *, accumulate: AccumulationLike | None = None, order: str = "product_first",
    format: FormatLike = "fp32",
) -> FloatArray:  # fmt: skip
    """Return the product of operands with FP32 scales for blocks along K, each block in an accumulator of its own.

    For each block of K, in ascending order: acc is the product of the elements, from a fresh accumulator, rounded to
    FP32. It is scaled by the scales sa and sb of its blocks and added to an FP32 sum:

    - "product_first" (DeepGEMM): s = round(sa * sb), then sum = round(acc * s + sum), one fused multiply-add.
    - "separate": sum = round(sum + round(round(acc * sa) * sb)).

    Parameters
    ----------
    a : Quantized, (M, K)
        With blocks (height, width) such as (1, 128), or one scale for the row or the tensor.
    b : Quantized, (K, N)
        With blocks (height, width) such as (128, 128): their height is the width of a's blocks.
    accumulate : description, format or text, optional
        How the sum of one block is carried out, such as "hopper". Default: that of `fs.matmul`.
    order : str
        "product_first" or "separate".
    format : format
        The format of the result: one more rounding of the FP32 sum, ties to even.

    Returns
    -------
    FloatArray, (M, N)

    Raises
    ------
    TypeError
        If an operand is no result of `fs.quantize_blocks`.
    ValueError
        For shapes and blocks that do not fit, for zero points, and for elements that the accumulation does not take.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, w = (rng.normal(size=s).astype(np.float32) for s in ((4, 256), (256, 8)))
    >>> a, b = fs.quantize_blocks(x, "deepgemm"), fs.quantize_blocks(w, "deepgemm_weight")
    >>> y = fs.quantization.scaled_matmul(a, b, accumulate="hopper")
    >>> bool(np.linalg.norm(y.values - x @ w) < 0.05 * np.linalg.norm(x @ w))
    True
    """
    chosen = as_name(order, ORDERS, "order")
    for q, name in ((a, "a"), (b, "b")):
        if not isinstance(q, Quantized):
            raise TypeError(f"{name} must be a result of fs.quantize_blocks, not {type(q).__name__}")
        more = (q.zero_points, q.offsets, q.tensor_scale)
        if any(each is not None for each in more) or len(q.shape) != 2:
            raise ValueError(f"{name} must be a matrix without zero points, offsets and a tensor scale, not {q}")
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"a {a.shape} and b {b.shape} do not fit: K is {a.shape[1]} in a and {b.shape[0]} in b")
    size = _block_of_k(a, b)
    scales_a, scales_b = _by_block_of_k(a, 0, size), _by_block_of_k(b, 1, size)
    x, y = a.elements, b.elements
    total = number(np.zeros((a.shape[0], b.shape[1])), FP32)
    with _plain():
        for i, start in enumerate(range(0, a.shape[1], size)):
            part = slice(start, start + size)
            product = matmul(x[:, part], y[part], accumulate=accumulate, format=FP32)
            acc = FloatArray(read_floats(product, "product")[0], FP32)
            of_a, of_b = scales_a[:, i : i + 1], scales_b[i : i + 1]
            if chosen == "product_first":
                total = fma(acc, multiply(of_a, of_b), total)
            else:
                total = add(total, multiply(multiply(acc, of_a), of_b))
    return to_format(total, as_format(format))


def _along_k(q: Quantized, axis: int) -> tuple[int, int]:
    """Return the length of the blocks of an operand along K, which is the other axis, and along `axis`."""
    if q.scheme.block == "tensor":
        return q.shape[1 - axis], q.shape[axis]
    blocks = layout(q.scheme, q.shape).blocks
    return (blocks.width, blocks.height) if axis == 0 else (blocks.height, blocks.width)


def _block_of_k(a: Quantized, b: Quantized) -> int:
    """Return the common length of the blocks along K. An operand with one scale along K takes the other's length."""
    whole = a.shape[1]
    sizes = {_along_k(a, 0)[0], _along_k(b, 1)[0]} - {whole} or {max(whole, 1)}
    if len(sizes) > 1:
        low, high = sorted(sizes)
        raise ValueError(f"the blocks of a and b differ along K, {low} and {high}; quantize both with one length")
    return sizes.pop()


def _by_block_of_k(q: Quantized, axis: int, size: int) -> FloatArray:
    """Return the scales in FP32: (M, blocks of K) for axis 0, (blocks of K, N) for axis 1."""
    scales = to_format(q.scales, FP32).codes.reshape(q.scales.shape or (1, 1))
    spread = np.repeat(scales, _along_k(q, axis)[1], axis=axis)
    parts = -(-q.shape[1 - axis] // size)
    if spread.shape[1 - axis] == 1:
        spread = np.repeat(spread, parts, axis=1 - axis)
    return FloatArray(spread[: q.shape[0]] if axis == 0 else spread[:, : q.shape[1]], FP32)
