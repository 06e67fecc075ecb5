"""The product of FP8 matrices with FP32 scales, as `torch._scaled_mm` and cuBLASLt compute it."""

from __future__ import annotations

from typing import Any

import numpy as np

from floatsim._types import Codes
from floatsim.accumulation import Accumulation, AccumulationLike, Blocked, TensorCore, as_accumulation, has_epilogue
from floatsim.arrays.array.conversion import convert, read_floats
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.interop import stays_on_device
from floatsim.arrays.array.operands import deliver
from floatsim.arrays.array.types import FloatResult, Floats, Out, Values
from floatsim.arrays.call.options import context
from floatsim.arrays.elementwise.arithmetic import add, fma, multiply
from floatsim.arrays.sums.products import matmul
from floatsim.formats import FP32, FloatFormat, FormatLike, as_format
from floatsim.formats._validation import as_flag

__all__ = ["scaled_mm"]


@stays_on_device
def scaled_mm(
    a: Floats, b: Floats, scale_a: Values, scale_b: Values, *, bias: Floats | None = None,
    scale_result: Values | None = None, format: FormatLike = "bf16", use_fast_accum: bool = False,
    accumulate: AccumulationLike = "hopper", out: Out = None,
) -> FloatResult:  # fmt: skip
    """Return the product of FP8 matrices with FP32 scales, as `torch._scaled_mm` and cuBLASLt compute it.

    The elements are multiplied and summed in FP32 as the matrix unit does. Then, in FP32 with ties to even:

    - scales of the tensors: y = round(sum * round(scale_a * scale_b) + 0), which turns a product of -0 into +0;
    - scales of the rows of a and the columns of b: y = round(round(sum * scale_b + 0) * scale_a);
    - y = round(y + bias);
    - with a result of 8 bits: y = round(y * scale_result). Other results do not read it.

    y is rounded once more to the format of the result. Results of 8 bits saturate.

    Parameters
    ----------
    a : array_like of floats, (M, K)
    b : array_like of floats, (K, N)
        FP8 matrices: FloatArrays, or arrays of ml_dtypes.
    scale_a, scale_b : number or array_like of floats
        FP32 scales that the elements are multiplied with: one number each, () or (1, 1), or (M, 1) and (1, N).
    bias : array_like of floats, (N,), optional
        The addend of each column.
    scale_result : number, optional
        The scale of an 8-bit result.
    format : format
        The format of the result. torch supports BF16, FP16, FP32 and FP8.
    use_fast_accum : bool
        True: one chain of instructions over all of K. False: the sums of 128 terms each are added in FP32 (promotion),
        as cuBLASLt does on Hopper.
    accumulate : description, format or text, optional
        The matrix unit, such as "hopper" or "ada", to which `use_fast_accum` applies. Or a whole description, such as
        "splitk(3, hopper, fp32, tile=128)", for which `use_fast_accum` must be True, because it is taken as it is.
    out : FloatArray or ndarray, optional
        The array that receives the result.

    Returns
    -------
    FloatArray or ndarray, (M, N)
        For K = 0 zeros: torch calls no kernel.

    Raises
    ------
    TypeError
        For inputs without a float format, and for a description with an epilogue.
    ValueError
        For operands that the matrix unit does not multiply, and for shapes that do not fit.

    Notes
    -----
    The order of row scales was not told apart from others by results of 16 bits; it is that of torch's kernel in
    CUTLASS. Contexts and `fs.record` have no effect on the scales.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> a, b = fs.array(rng.standard_normal((2, 256)), "e4m3"), fs.array(rng.standard_normal((256, 2)), "e4m3")
    >>> y = fs.scaled_mm(a, b, 0.5, 0.25, format="fp32", use_fast_accum=True)
    >>> np.array_equal(y, fs.matmul(a, b, accumulate="hopper").values / 8)
    True
    """
    fmt = as_format(format)
    (x, x_format, x_float), (y, y_format, y_float) = read_floats(a, "a"), read_floats(b, "b")
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[0]:
        raise ValueError(f"a {x.shape} and b {y.shape} must be matrices (M, K) and (K, N)")
    description = _description(accumulate, as_flag(use_fast_accum, "use_fast_accum"))
    m, n = x.shape[0], y.shape[1]
    left, right = _scale(scale_a, "scale_a", (m, 1)), _scale(scale_b, "scale_b", (1, n))
    if (left.size == 1) != (right.size == 1) and m * n != 1:
        raise ValueError(
            f"scale_a {left.shape} and scale_b {right.shape} must be one number each, or ({m}, 1) and (1, {n})"
        )
    with context(rounding="ties_to_even", overflow="infinity", daz=False, ftz=False, tininess="after"):
        value = _scaled(x, x_format, y, y_format, left, right, description)
        if bias is not None:
            value = add(value, _vector(bias, n), format=FP32)
        if scale_result is not None and fmt.bits <= 8:
            value = multiply(value, _scale(scale_result, "scale_result", (1, 1)), format=FP32)
        codes = convert(value, fmt, overflow="saturate_finite" if fmt.bits <= 8 else "infinity").codes
    if not x.shape[1]:
        codes = np.zeros((m, n), fmt.code_dtype)
    return deliver(codes, fmt, x_float or y_float, out)


def _scaled(
    x: Codes, x_format: FloatFormat, y: Codes, y_format: FloatFormat, left: FloatArray, right: FloatArray,
    description: Accumulation,
) -> FloatArray:  # fmt: skip
    product = matmul(FloatArray(x, x_format), FloatArray(y, y_format), accumulate=description, format=FP32)
    zero = FloatArray(np.zeros((), np.uint32), FP32)
    if left.size == right.size == 1:
        return _array(fma(product, multiply(left, right), zero))
    return _array(multiply(fma(product, right, zero), left))


def _array(x: Any) -> FloatArray:
    assert isinstance(x, FloatArray)
    return x


def _description(accumulate: AccumulationLike, fast: bool) -> Accumulation:
    found = as_accumulation(accumulate)
    if has_epilogue(found):
        raise TypeError(f"accumulate={found}: scaled_mm has an epilogue of its own; pass the inner description")
    if isinstance(found, TensorCore):
        return found if fast else Blocked(found, 128, FP32)
    if not fast:
        raise ValueError(
            f"accumulate={found} is taken as it is: pass use_fast_accum=True, or a matrix unit such as 'hopper'"
        )
    return found


def _scale(scale: Any, argument: str, rows: tuple[int, int]) -> FloatArray:
    """Return FP32 scales of the shape (1, 1) or `rows`."""
    codes, fmt, _ = read_floats(scale, argument)
    if codes.shape not in ((), (1,), (1, 1), rows):
        raise ValueError(f"{argument} {codes.shape} must be one number, or of the shape {rows}")
    shape = rows if codes.shape == rows else (1, 1)
    return _array(convert(FloatArray(codes.reshape(shape), fmt), FP32))


def _vector(bias: Any, n: int) -> FloatArray:
    codes, fmt, _ = read_floats(bias, "bias")
    if codes.shape != (n,):
        raise ValueError(f"bias {codes.shape} must have the shape ({n},)")
    return FloatArray(codes, fmt)
