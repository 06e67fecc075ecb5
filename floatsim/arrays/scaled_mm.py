"""The product of FP8 matrices with FP32 scales, as `torch._scaled_mm` and cuBLASLt compute it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from floatsim.accumulation import Accumulation, AccumulationLike, Blocked, TensorCore, as_accumulation, has_epilogue
from floatsim.arrays.array.conversion import convert, read_floats
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.interop import stays_on_device
from floatsim.arrays.array.operands import deliver
from floatsim.arrays.array.types import FloatResult, Floats, Out, Values
from floatsim.arrays.call.options import context
from floatsim.arrays.elementwise.arithmetic import add, fma, multiply
from floatsim.arrays.elementwise.comparison import isnan
from floatsim.arrays.sums.products import matmul
from floatsim.formats import FP32, FormatLike, as_format
from floatsim.formats._validation import as_flag

__all__ = ["scaled_mm"]

Operands: TypeAlias = tuple[FloatArray, FloatArray]


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
    - scales of blocks, 1 x 128 of a and 128 x 128 of b: for each 128 terms of K, from 0 on, y = round(sum of these
      terms * round(scale_a * scale_b) + y), a fused multiply-add;
    - y = round(y + bias);
    - with a result of 8 bits: y = round(y * scale_result). Other results do not read it.

    y is rounded once more to the format of the result. Results of 8 bits saturate. A NaN has all bits set but the sign,
    as on these GPUs.

    Scales of E8M0 (MX) or E4M3 (NVFP4) belong to the instructions of a matrix unit: `accumulate="blackwell"` has them,
    and Hopper has none. The sum is then that of `fs.matmul` with these scales, and y is the sum.

    Parameters
    ----------
    a : array_like of floats, (M, K)
    b : array_like of floats, (K, N)
        FP8 matrices: FloatArrays, or arrays of ml_dtypes.
    scale_a, scale_b : number or array_like of floats
        Scales that the elements are multiplied with. In FP32: one number each, () or (1, 1); or (M, 1) and (1, N); or
        of blocks (M, K / 128) and (K / 128, N / 128). In E8M0 or E4M3 as in `fs.matmul`.
    bias : array_like of floats, (N,), optional
        The addend of each column. Not with scales of blocks.
    scale_result : number, optional
        The scale of an 8-bit result. Not with scales of blocks.
    format : format
        The format of the result. torch supports BF16, FP16, FP32 and FP8.
    use_fast_accum : bool
        True: one chain of instructions over all of K. False: the sums of 128 terms each are added in FP32 (promotion),
        as cuBLASLt does on Hopper. Scales of blocks in FP32 need False, those of E8M0 and E4M3 True.
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
        For operands that the matrix unit does not multiply, and for shapes that do not fit. For combinations of scales
        that were not recorded: 1 x 128 of both operands, 128 x 128 of a, and other units than Hopper's.

    Notes
    -----
    Compared with an H200, all bits: 792 products without scales; 46 with scales of tensors, of rows, of blocks (2
    shapes) and with a bias. With an RTX 4060: 4,270 products with split-K, scales and five formats of results.
    The order of row scales was not told apart from others by results of 16 bits; it is that of torch's kernel in
    CUTLASS. MX and NVFP4 were not compared with a library. Contexts and `fs.record` have no effect on the scales.

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
    fast = as_flag(use_fast_accum, "use_fast_accum")
    description = _description(accumulate, fast)
    m, n = x.shape[0], y.shape[1]
    operands = FloatArray(x, x_format), FloatArray(y, y_format)
    with context(rounding="ties_to_even", overflow="infinity", daz=False, ftz=False, tininess="after"):
        left, right = _scales(scale_a, "scale_a"), _scales(scale_b, "scale_b")
        if left.format.bits <= 8 or right.format.bits <= 8:
            value = _of_instructions(operands, left, right, description)
        else:
            value = _scaled(operands, left, right, description, fast, {"bias": bias, "scale_result": scale_result})
        if bias is not None:
            value = add(value, _vector(bias, n), format=FP32)
        if scale_result is not None and fmt.bits <= 8:
            value = multiply(value, _one(scale_result, "scale_result"), format=FP32)
        codes = convert(value, fmt, overflow="saturate_finite" if fmt.bits <= 8 else "infinity").codes
    if fmt.canonical_nan is not None:
        codes = np.where(np.asarray(isnan(value)), codes.dtype.type(fmt.magnitude_mask), codes)
    if not x.shape[1]:
        codes = np.zeros((m, n), fmt.code_dtype)
    return deliver(codes, fmt, x_float or y_float, out)


def _of_instructions(
    operands: Operands, left: FloatArray, right: FloatArray, description: Accumulation
) -> FloatArray:  # fmt: skip
    """Return the sums of a unit whose instructions take the scales."""
    if not isinstance(description, TensorCore):
        raise ValueError(
            f"scales of {left.format} and {right.format} belong to instructions of one chain: pass "
            "use_fast_accum=True and a matrix unit that takes them, such as accumulate='blackwell'"
        )
    return _array(matmul(*operands, accumulate=description, format=FP32, scale_a=left, scale_b=right))


def _scaled(
    operands: Operands, left: FloatArray, right: FloatArray, description: Accumulation, fast: bool,
    others: Mapping[str, Any],
) -> FloatArray:  # fmt: skip
    """Return the sums times their scales, in FP32. The shapes of the scales choose the order."""
    x, y = operands
    (m, k), n = x.shape, y.shape[1]
    single = (), (1,), (1, 1)
    zero = FloatArray(np.zeros((), np.uint32), FP32)
    blocks, columns = (k // _BLOCK, n // _BLOCK) if k % _BLOCK == n % _BLOCK == 0 else (0, 0)
    of_tensors = left.shape in single and right.shape in single
    of_rows = left.shape == (m, 1) and right.shape == (1, n)
    if of_tensors or of_rows:
        product = matmul(x, y, accumulate=description, format=FP32)
        if of_tensors:
            return _array(fma(product, multiply(left.reshape(()), right.reshape(())), zero))
        return _array(multiply(fma(product, right, zero), left))
    if blocks and (left.shape, right.shape) == ((m, blocks), (blocks, columns)):
        return _of_blocks(operands, left, right, description, fast, others)
    shapes = f"scale_a {left.shape} and scale_b {right.shape} for a {x.shape} and b {y.shape}"
    blocks_of_a = {(m, blocks): "1 x 128", (-(-m // _BLOCK), blocks): "128 x 128"}
    if blocks and right.shape in ((blocks, n), (blocks, columns)) and left.shape in blocks_of_a:
        of_a = next(kind for shape, kind in blocks_of_a.items() if shape == left.shape)
        of_b = "1 x 128" if right.shape == (blocks, n) else "128 x 128"
        raise ValueError(
            f"{shapes}: blocks of {of_a} of a and {of_b} of b were not recorded; described are 1 x 128 of a, "
            f"({m}, {blocks}), and 128 x 128 of b, ({blocks}, {columns})"
        )
    of_blocks = f"; or ({m}, {blocks}) and ({blocks}, {columns})" if blocks else ""
    raise ValueError(f"{shapes} must be one number each; or ({m}, 1) and (1, {n}){of_blocks}")


_BLOCK = 128
"""The terms and the columns that share a scale."""


def _of_blocks(
    operands: Operands, left: FloatArray, right: FloatArray, description: Accumulation, fast: bool,
    others: Mapping[str, Any],
) -> FloatArray:  # fmt: skip
    """Return the sums of blocks of K, each fused with its scale and added in FP32."""
    x, y = operands
    unit = description.inner if isinstance(description, Blocked) and not fast else description
    if fast or unit != TensorCore("hopper"):
        raise ValueError(
            f"accumulate={unit} with scales of blocks and use_fast_accum={fast} was not recorded; described is "
            "'hopper' with use_fast_accum=False"
        )
    for name, given in others.items():
        if given is not None:
            raise ValueError(f"{name}= with scales of blocks was not recorded; add it to the result")
    total = FloatArray(np.zeros((x.shape[0], y.shape[1]), np.uint32), FP32)
    for block in range(left.shape[1]):
        part = slice(_BLOCK * block, _BLOCK * (block + 1))
        of_columns = FloatArray(np.repeat(right.codes[block], _BLOCK), FP32)
        product = matmul(x[:, part], y[part], accumulate=unit, format=FP32)
        total = _array(fma(product, multiply(left[:, block : block + 1], of_columns), total))
    return total


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


def _scales(scale: Any, argument: str) -> FloatArray:
    """Return scales of 8 bits as they are, and others in FP32."""
    codes, fmt, _ = read_floats(scale, argument)
    given = FloatArray(codes, fmt)
    return given if fmt.bits <= 8 and codes.ndim == 2 else _array(convert(given, FP32))


def _one(scale: Any, argument: str) -> FloatArray:
    """Return a single scale in FP32."""
    found = _scales(scale, argument)
    if found.size != 1:
        raise ValueError(f"{argument} {found.shape} must be one number")
    return _array(convert(found.reshape(()), FP32))


def _vector(bias: Any, n: int) -> FloatArray:
    codes, fmt, _ = read_floats(bias, "bias")
    if codes.shape != (n,):
        raise ValueError(f"bias {codes.shape} must have the shape ({n},)")
    return FloatArray(codes, fmt)
