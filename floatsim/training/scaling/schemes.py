"""Scaling by schemes: what each operand of each of the three products of a layer is quantized to, as data.

Integer products (W8A8, LLM.int8(), SmoothQuant) and recipes with other formats in the backward products are values of
`SchemeScaling`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from floatsim.accumulation import AccumulationLike, TensorCore, as_accumulation
from floatsim.arrays.array.conversion import as_float_array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.call.random_sources import RandomGenerator
from floatsim.arrays.call.random_stream import RandomStream
from floatsim.arrays.elementwise.arithmetic import divide, multiply
from floatsim.arrays.sums.products import matmul
from floatsim.formats import E4M3, E8M0, FP32, FloatFormat
from floatsim.formats._validation import as_index, as_real, with_keyword_hints
from floatsim.quantization.blocks import quantize_blocks
from floatsim.quantization.hadamard_transform import hadamard
from floatsim.quantization.integer import IntegerFormat
from floatsim.quantization.products import integer_matmul, llm_int8_matmul
from floatsim.quantization.quantized import Quantized
from floatsim.quantization.scales import number
from floatsim.quantization.scheme import ElementFormatLike, Scheme, as_element_format, as_name, as_scheme
from floatsim.training.policies.conversions import nearest, plain
from floatsim.training.policies.rules import StatelessScaler, check_product

__all__ = ["ProductScheme", "SchemeScaler", "SchemeScaling", "integer_scaling", "scaling_by_blocks"]

_BLOCKS = ("row", "tensor")
"""In place of a scheme: the format of the `Gemm`, with one FP32 scale for each row along K, or for the tensor."""
_ROLES = ("input", "weight", "gradient")


def _settled(value: Any, role: str) -> Scheme | str | None:
    """Return a scheme, "row", "tensor", or None."""
    if value is None or (isinstance(value, str) and value.strip().lower() in _BLOCKS):
        return None if value is None else value.strip().lower()
    try:
        return as_scheme(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{role}: {error}") from None


@with_keyword_hints
@dataclass(frozen=True)
class ProductScheme:
    """The schemes of the operands of one product.

    Blocks lie along K for both operands. A block of a scheme such as (1, 32) is 32 elements along K. "row" is one scale
    for all elements along K: for each row of the left operand, and for each column of the right one.

    Parameters
    ----------
    input, weight, gradient : str, Scheme or None
        The scheme of the operand with this role, as in `fs.quantize_blocks`. "row" or "tensor": the format of the
        `Gemm`, with FP32 scales by the rule "absmax". None: the operand is not quantized.
    rotate : int
        Both operands are rotated first: a Hadamard transform of blocks of so many elements along K, a power of two. K
        is filled with zeros to a multiple. 0: no rotation.
    signs : sequence of 1 and -1, optional
        The signs of the rotation, as in `fs.quantization.hadamard`.
    smoothing : float, optional
        SmoothQuant's alpha, from 0 to 1: column j of the input is divided by s_j, and row j of the weight multiplied by
        it, with s_j = max|x_j|**alpha / max|w_j|**(1 - alpha). The maxima are those of the operands.
    outliers : float, optional
        The threshold of LLM.int8(): `fs.quantization.llm_int8_matmul` computes the product, with the outlier columns of
        the input in FP16. The schemes have no effect.
    stochastic : tuple of str
        The roles whose operands are rounded stochastically.

    Raises
    ------
    TypeError, ValueError
        For unknown schemes and roles, with the nearest match, and for numbers out of range.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.ProductScheme("w8a8", "w8a8", rotate=128).weight.format.name
    'INT8'
    """

    input: Any = None
    weight: Any = None
    gradient: Any = None
    rotate: int = 0
    signs: Any = None
    smoothing: float | None = None
    outliers: float | None = None
    stochastic: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for role in _ROLES:
            object.__setattr__(self, role, _settled(getattr(self, role), role))
        size = as_index(self.rotate, "rotate", 0, 1 << 16)
        if size & (size - 1):
            raise ValueError(f"rotate must be 0 or a power of two, such as 16, not {size}")
        if self.smoothing is not None and not as_real(self.smoothing, "smoothing", 0.0) <= 1:
            raise ValueError(f"smoothing must be from 0 to 1, such as 0.5, not {self.smoothing!r}")
        if self.outliers is not None:
            as_real(self.outliers, "outliers", 0.0)
        given: Any = self.stochastic
        roles = (given,) if isinstance(given, str) else tuple(given)
        object.__setattr__(self, "stochastic", tuple(as_name(role, _ROLES, "stochastic") for role in roles))

    def of(self, role: str, format: FloatFormat) -> Scheme | None:
        """Return the scheme of an operand with this role, whose format in the `Gemm` is given."""
        scheme: Any = getattr(self, role)
        return Scheme(format, scheme) if isinstance(scheme, str) else scheme


@with_keyword_hints
@dataclass(frozen=True)
class SchemeScaling:
    """The schemes of the three products of a layer, as data.

    A product without a scheme is computed with the operands in the formats of the `Gemm`, without scales. So is an
    operand without a scheme.

    Parameters
    ----------
    forward : ProductScheme, optional
        input @ weight.
    input_gradient : ProductScheme, optional
        gradient @ weight^T.
    weight_gradient : ProductScheme, optional
        input^T @ gradient.
    accumulate : description, format or text
        How products are summed, if the policy names no accumulation. A `TensorCore` takes elements and scales of MX and
        NVFP4. Other accumulations add the products of dequantized operands. Integers whose scales are constant along
        K, without zero points, are multiplied with an int32 accumulator: acc, then round(round(acc * s_a) * s_b).

    Raises
    ------
    TypeError
        For products that are no ProductScheme.

    Examples
    --------
    NVFP4 with a scale for each row forward, and MXFP8 backward, as a recipe of TransformerEngine:

    >>> import floatsim as fs, numpy as np
    >>> backward = fs.training.ProductScheme(*["te_mxfp8"] * 3)
    >>> recipe = fs.training.SchemeScaling(fs.training.ProductScheme("nvfp4_row", "nvfp4"), backward, backward)
    >>> policy = fs.training.Policy("bf16", rules={"linear": fs.training.Gemm("bf16", scaling=recipe)})
    >>> x = fs.array(np.eye(32), "fp32")
    >>> y = recipe.start(0).matmul(x, x, formats=(fs.BF16, fs.BF16), roles=("input", "weight"), product="forward")
    >>> bool((y.values == np.eye(32)).all())
    True
    """

    forward: ProductScheme | None = None
    input_gradient: ProductScheme | None = None
    weight_gradient: ProductScheme | None = None
    accumulate: AccumulationLike = "fp32"

    def __post_init__(self) -> None:
        for name in ("forward", "input_gradient", "weight_gradient"):
            if not isinstance(given := getattr(self, name), ProductScheme | None):
                raise TypeError(f"{name} must be a ProductScheme or None, not {given!r}")

    def start(self, seed: int | RandomGenerator = 0) -> SchemeScaler:
        """Return the state of a run: the stream of random numbers of stochastic rounding."""
        return SchemeScaler(self, RandomStream(seed))


class SchemeScaler(StatelessScaler):
    """Schemes in one run, with its stream of random numbers."""

    def __init__(self, method: SchemeScaling, stream: RandomStream) -> None:
        self.method, self.stream = method, stream

    def state_dict(self) -> dict[str, Any]:
        """Return the number of draws."""
        return {"calls": self.stream.calls}

    def load_state_dict(self, state: Any) -> None:
        """Continue after so many draws."""
        self.stream.calls = as_index(state["calls"], "calls", 0, 1 << 62)

    def matmul(
        self, a: FloatArray, b: FloatArray, *, formats: tuple[FloatFormat, FloatFormat], roles: tuple[str, str],
        product: str, module: str = "", step: int = 0, accumulate: AccumulationLike | None = None,
    ) -> FloatArray:  # fmt: skip
        """Return a @ b in FP32. The keywords are those of the protocol `Scaler`."""
        check_product(roles, product)
        schemes: ProductScheme = getattr(self.method, product) or ProductScheme()
        inner = self.method.accumulate if accumulate is None else accumulate
        if schemes.outliers is not None:
            return _with_outliers(a, b, schemes.outliers, roles, inner)
        left, right = nearest(a, FP32), _turned(nearest(b, FP32))  # both with K along the last axis
        with plain():
            if schemes.smoothing is not None:
                left, right = _smoothed(left, right, schemes.smoothing, roles)
            if schemes.rotate:
                left, right = (_rotated(x, schemes) for x in (left, right))
        first = self._quantized(left, roles[0], formats[0], schemes)
        return _product(first, self._quantized(right, roles[1], formats[1], schemes), inner)

    def _quantized(
        self, x: FloatArray, role: str, format: FloatFormat, schemes: ProductScheme
    ) -> Quantized | FloatArray:
        scheme = schemes.of(role, format)
        if scheme is None:
            return nearest(x, format)
        if role in schemes.stochastic:
            return quantize_blocks(x, scheme, rounding="stochastic", seed=self.stream)
        table = hasattr(scheme.format, "look_up")
        return quantize_blocks(x, scheme) if table else quantize_blocks(x, scheme, rounding="ties_to_even")


def _turned(x: FloatArray) -> FloatArray:
    return FloatArray(np.ascontiguousarray(x.codes.T), x.format)


def _smoothed(a: FloatArray, b: FloatArray, alpha: float, roles: tuple[str, str]) -> tuple[FloatArray, FloatArray]:
    """Return input / s and weight * s, each rounded to FP32, along K."""
    given = a if roles[0] != "weight" else b
    weight = b if given is a else a
    of_input, of_weight = (np.abs(x.values).max(axis=0, initial=0.0) for x in (given, weight))
    both = (of_input > 0) & (of_weight > 0)
    factors = np.where(both, of_input, 1.0) ** alpha / np.where(both, of_weight, 1.0) ** (1 - alpha)
    s = number(factors, FP32)
    divided = as_float_array(divide(given, s), "input")
    multiplied = as_float_array(multiply(weight, s), "weight")
    return (divided, multiplied) if given is a else (multiplied, divided)


def _rotated(x: FloatArray, schemes: ProductScheme) -> FloatArray:
    padded = np.pad(x.codes, ((0, 0), (0, -x.shape[1] % schemes.rotate)))
    return hadamard(FloatArray(padded, x.format), schemes.rotate, signs=schemes.signs)


def _with_outliers(
    a: FloatArray, b: FloatArray, threshold: float, roles: tuple[str, str], accumulate: AccumulationLike
) -> FloatArray:
    """Return the product of LLM.int8(), in FP16; the outlier columns are those of the input."""
    if roles[0] == "weight":
        turned = llm_int8_matmul(_turned(b), _turned(a), threshold=threshold, accumulate=accumulate)
        return nearest(_turned(turned), FP32)
    return nearest(llm_int8_matmul(a, b, threshold=threshold, accumulate=accumulate), FP32)


def _is_integer(x: Any) -> bool:
    """Return whether an operand is integers without zero points and with scales that are constant along K."""
    return (
        isinstance(x, Quantized)
        and isinstance(x.format, IntegerFormat)
        and not x.format.fraction_bits
        and x.zero_points is None
        and (x.scheme.block == "tensor" or x.scales.shape[-1] == 1)
        and (x.scheme.block == "tensor" or x.scheme.block[0] == 1)
    )


def _takes_scales(x: Any) -> bool:
    return isinstance(x, Quantized) and x.scheme.block != "tensor" and x.scales.format in (E8M0, E4M3)


def _product(a: Any, b: Any, accumulate: AccumulationLike) -> FloatArray:
    """Return a @ b^T in FP32."""
    with plain():
        if _is_integer(a) and _is_integer(b):
            result = number(integer_matmul(a.codes, b.codes.T).astype(np.float64), FP32)
            return _times(_times(result, a.scales, 0), b.scales, 1)
        if _takes_scales(a) and _takes_scales(b) and isinstance(as_accumulation(accumulate), TensorCore):
            scales = _by_row(a), _turned(_by_row(b))
            product: Any = matmul(
                a.elements, _turned(b.elements), accumulate=accumulate, format=FP32, scale_a=scales[0],
                scale_b=scales[1],
            )  # fmt: skip
            result = as_float_array(product, "product")
            for axis, x in enumerate((a, b)):
                if x.tensor_scale is not None:
                    result = _times(result, x.tensor_scale, axis)
            return result
        left, right = (x.dequantize() if isinstance(x, Quantized) else x for x in (a, b))
        return as_float_array(matmul(left, _turned(right), accumulate=accumulate, format=FP32), "product")


def _times(x: FloatArray, scales: FloatArray, axis: int) -> FloatArray:
    """Return x times a scale for each row (axis 0) or column, or one scale, in FP32."""
    if scales.size > 1 and scales.shape[-1] != 1:
        raise ValueError(f"accumulate: scales {scales.shape} that change along K are for sums without a matrix unit")
    factors = nearest(scales, FP32)
    shaped = factors.reshape(-1, 1) if axis == 0 else factors.reshape(1, -1)
    return as_float_array(multiply(x, shaped), "product")


def _by_row(x: Quantized) -> FloatArray:
    """Return the scales of blocks, once for each row of a block of several rows."""
    codes = np.repeat(x.scales.codes, x.scheme.block[0] or x.shape[0], axis=0)[: x.shape[0]]
    return FloatArray(np.ascontiguousarray(codes), x.scales.format)


# -- names -------------------------------------------------------------------------------------------------------------


def scaling_by_blocks(block: str, **options: Any) -> SchemeScaling:
    """Return the scaling with one FP32 scale for each row along K, or for each tensor.

    Without the option `format`, the formats are those of the `Gemm`, and all three products are scaled. With it, the
    forward product is.
    """
    return integer_scaling(block, ProductScheme(), **options)


def integer_scaling(
    block: str, product: ProductScheme, *, format: ElementFormatLike | None = None,
    weight_format: ElementFormatLike | None = None, accumulate: AccumulationLike = "fp32", **changes: Any,
) -> SchemeScaling:  # fmt: skip
    """Return a scaling whose forward product has one format of elements for each operand, with scales of blocks."""
    if format is None:
        every = replace(product, input=block, weight=block, gradient=block, **changes)
        return SchemeScaling(every, every, every, accumulate)
    of_input = as_element_format(format)
    of_weight = of_input if weight_format is None else as_element_format(weight_format)
    schemes: dict[str, Any] = {"input": Scheme(of_input, block), "weight": Scheme(of_weight, block)}
    return SchemeScaling(replace(product, **schemes, **changes), accumulate=accumulate)
