"""Scaling methods of matrix products: one scale for each tensor, for blocks, MX and NVFP4.

A method is immutable. `start(seed)` returns a scaler, the state of one run: `matmul` scales, rounds and multiplies two
operands, and `finish_step` ends a training step. The protocols `Scaling` and `Scaler` are in
`floatsim.training.policies.rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from floatsim.accumulation import AccumulationLike, TensorCore, as_accumulation
from floatsim.arrays.array.conversion import as_float_array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.call.random_sources import RandomGenerator
from floatsim.arrays.call.random_stream import RandomStream
from floatsim.arrays.elementwise.arithmetic import multiply
from floatsim.arrays.sums.products import matmul
from floatsim.formats import E2M1, FP32, FloatFormat
from floatsim.formats._validation import as_flag, as_index, with_keyword_hints
from floatsim.quantization.blocks import quantize_blocks
from floatsim.quantization.hadamard_transform import NVFP4_SIGNS, hadamard
from floatsim.quantization.products import ORDERS, scaled_matmul
from floatsim.quantization.quantized import Quantized
from floatsim.quantization.scales import number
from floatsim.quantization.scheme import SCHEMES, Scheme, as_name, as_scheme
from floatsim.training.policies.conversions import nearest, plain
from floatsim.training.policies.rules import (
    Scaling,
    ScalingLike,
    StatelessScaler,
    check_product,
    scaling_parts,
)
from floatsim.training.scaling.schemes import ProductScheme, SchemeScaling, integer_scaling, scaling_by_blocks
from floatsim.training.scaling.tensor_scaling import CurrentScaling, DelayedScaling

__all__ = [
    "SCALING_METHODS", "BlockScaler", "BlockScaling", "MXScaler", "MXScaling", "NVFP4Scaler", "NVFP4Scaling",
    "as_scaling",
]  # fmt: skip

Pair = tuple[FloatArray, FloatArray]
Formats = tuple[FloatFormat, FloatFormat]
Roles = tuple[str, str]


# -- FP32 scales of blocks ---------------------------------------------------------------------------------------------


@with_keyword_hints
@dataclass(frozen=True)
class BlockScaling:
    """FP32 scales for blocks along K: DeepSeek-V3, DeepGEMM, TransformerEngine's Float8BlockScaling.

    Inputs and gradients have blocks of 1 x `block` along K, weights of `block` x `block`. Each block of K is summed in
    an accumulator of its own, then scaled and added in FP32: `fs.quantization.scaled_matmul`.

    Parameters
    ----------
    scheme : str or Scheme
        The scheme of inputs and gradients. Its format is replaced by that of the operand, its block by `block`.
    weight_scheme : str or Scheme, optional
        The scheme of weights. Default: `scheme`.
    block : int
        The length of a block.
    order : str
        How the scales are applied: "product_first" or "separate", as in `fs.quantization.scaled_matmul`.
    accumulate : description, format or text
        How the sum of one block is carried out, if the policy names none.

    Raises
    ------
    ValueError
        For unknown schemes and orders. The message has the nearest match.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> scaler = fs.training.as_scaling("deepseek").start(seed=0)
    >>> x = fs.array(np.float32([[1, 1000]]), "fp32")
    >>> y = fs.array(np.float32([[1], [1]]), "fp32")
    >>> scaler.matmul(x, y, formats=(fs.E4M3, fs.E4M3), roles=("input", "weight"), product="forward")
    FloatArray([[1000.95673]], FP32)
    """

    scheme: str | Scheme = "deepseek"
    weight_scheme: str | Scheme | None = None
    block: int = 128
    order: str = "product_first"
    accumulate: AccumulationLike = "hopper"

    def __post_init__(self) -> None:
        weights = self.scheme if self.weight_scheme is None else self.weight_scheme
        object.__setattr__(self, "scheme", replace(as_scheme(self.scheme), block=(1, self.block)))
        object.__setattr__(self, "weight_scheme", replace(as_scheme(weights), block=(self.block, self.block)))
        object.__setattr__(self, "order", as_name(self.order, ORDERS, "order"))

    def start(self, seed: int | RandomGenerator = 0) -> BlockScaler:
        """Return the state of a run. The scales of blocks have none."""
        return BlockScaler(self)

    def quantize(self, x: FloatArray, format: FloatFormat, *, role: str, axis: int) -> Quantized:
        """Return an operand quantized in blocks along `axis`, the axis of K."""
        weight = role == "weight"
        scheme = replace(as_scheme(self.weight_scheme if weight else self.scheme), format=format)  # type: ignore[arg-type]
        block = (self.block, self.block) if weight else (1, self.block) if axis else (self.block, 1)
        return quantize_blocks(x, scheme, block=block, rounding="ties_to_even")


class BlockScaler(StatelessScaler):
    """Scales of blocks in one run."""

    def __init__(self, method: BlockScaling) -> None:
        self.method = method

    def matmul(
        self, a: FloatArray, b: FloatArray, *, formats: Formats, roles: Roles, product: str, module: str = "",
        step: int = 0, accumulate: AccumulationLike | None = None,
    ) -> FloatArray:  # fmt: skip
        """Return a @ b in FP32. The keywords are those of the protocol `Scaler`."""
        check_product(roles, product)
        method = self.method
        left = method.quantize(a, formats[0], role=roles[0], axis=1)
        right = method.quantize(b, formats[1], role=roles[1], axis=0)
        inner = method.accumulate if accumulate is None else accumulate
        return scaled_matmul(left, right, accumulate=inner, order=method.order)


# -- MX ----------------------------------------------------------------------------------------------------------------


def _takes_scales(accumulate: AccumulationLike) -> bool:
    return isinstance(as_accumulation(accumulate), TensorCore)


def _product_of_blocks(a: Quantized, b: Quantized, accumulate: AccumulationLike) -> FloatArray:
    """Return the product of the elements and the scales of their blocks, in FP32, without scales of tensors.

    A `TensorCore` takes the scales. Other accumulations add the products of elements times scales, which are exact.
    """
    if _takes_scales(accumulate):
        product: Any = matmul(
            a.elements, b.elements, accumulate=accumulate, format=FP32, scale_a=a.scales, scale_b=b.scales
        )
    else:
        whole = [replace(q, tensor_scale=None).dequantize() for q in (a, b)]
        product = matmul(*whole, accumulate=accumulate, format=FP32)
    return as_float_array(product, "product")


@with_keyword_hints
@dataclass(frozen=True)
class MXScaling:
    """Blocks of 32 along K with E8M0 scales: OCP MX.

    Parameters
    ----------
    rule : str
        The rule of the scale: "floor" (OCP), "rceil" (TransformerEngine), "ceil" or "even", as in `fs.quantize_blocks`.
    accumulate : description, format or text
        How products are summed, if the policy names no accumulation. A `TensorCore` takes elements and scales. With
        others, the dequantized operands are multiplied.

    Raises
    ------
    ValueError
        For an unknown rule.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> scaler = fs.training.MXScaling().start(seed=0)
    >>> x, y = (fs.array(np.full(shape, 3.0), "fp32") for shape in ((1, 40), (40, 1)))
    >>> scaler.matmul(x, y, formats=(fs.E2M1, fs.E2M1), roles=("input", "weight"), product="forward")
    FloatArray([[360.0]], FP32)
    """

    rule: str = "floor"
    accumulate: AccumulationLike = "blackwell"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", as_name(self.rule, ("floor", "rceil", "ceil", "even"), "rule"))

    def start(self, seed: int | RandomGenerator = 0) -> MXScaler:
        """Return the state of a run. MX has none."""
        return MXScaler(self)

    def quantize(self, x: FloatArray, format: FloatFormat, *, axis: int) -> Quantized:
        """Return an operand quantized in blocks along `axis`, the axis of K."""
        scheme = replace(SCHEMES["mxfp8"], format=format, rule=self.rule)
        return quantize_blocks(x, scheme, block=(1, 32) if axis else (32, 1), rounding="ties_to_even")


class MXScaler(StatelessScaler):
    """MX in one run."""

    def __init__(self, method: MXScaling) -> None:
        self.method = method

    def matmul(
        self, a: FloatArray, b: FloatArray, *, formats: Formats, roles: Roles, product: str, module: str = "",
        step: int = 0, accumulate: AccumulationLike | None = None,
    ) -> FloatArray:  # fmt: skip
        """Return a @ b in FP32. The keywords are those of the protocol `Scaler`."""
        check_product(roles, product)
        left, right = self.method.quantize(a, formats[0], axis=1), self.method.quantize(b, formats[1], axis=0)
        inner = self.method.accumulate if accumulate is None else accumulate
        return _product_of_blocks(left, right, inner)


# -- NVFP4 -------------------------------------------------------------------------------------------------------------


@with_keyword_hints
@dataclass(frozen=True)
class NVFP4Scaling:
    """NVFP4 training as in TransformerEngine: two levels of scales, random Hadamard transform, stochastic rounding.

    Inputs and gradients have blocks of 16 along K, weights of 16 x 16. Each block has an E4M3 scale, and each tensor an
    FP32 scale. In the product of the weight gradient, both operands are transformed along K first, and K is padded
    with zeros to a multiple of 16. Gradients are rounded stochastically.

    The result is round(acc * alpha), with alpha = round(round(amax_a * amax_b) * round(1 / (6 * 6 * 448 * 448))) in
    FP32, as in TransformerEngine's nvfp4.cu.

    Parameters
    ----------
    transform : bool
        Whether the operands of the weight gradient are transformed.
    stochastic : bool
        Whether gradients are rounded stochastically.
    accumulate : description, format or text
        How products are summed, if the policy names no accumulation. A `TensorCore` takes elements and scales.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> scaler = fs.training.NVFP4Scaling().start(seed=0)
    >>> x = fs.array(np.eye(16), "fp32")
    >>> y = scaler.matmul(x, x, formats=(fs.E2M1, fs.E2M1), roles=("input", "weight"), product="forward")
    >>> bool(np.abs(y.values - np.eye(16)).max() < 0.1)
    True
    """

    transform: bool = True
    stochastic: bool = True
    accumulate: AccumulationLike = "blackwell"

    def __post_init__(self) -> None:
        as_flag(self.transform, "transform")
        as_flag(self.stochastic, "stochastic")

    def start(self, seed: int | RandomGenerator = 0) -> NVFP4Scaler:
        """Return the state of a run: the stream of random numbers of stochastic rounding."""
        return NVFP4Scaler(self, RandomStream(seed))


_BLOCK = 16
_ALPHA = 1.0 / (6.0 * 6.0 * 448.0 * 448.0)


class NVFP4Scaler(StatelessScaler):
    """NVFP4 in one run, with its stream of random numbers."""

    def __init__(self, method: NVFP4Scaling, stream: RandomStream) -> None:
        self.method, self.stream = method, stream

    def state_dict(self) -> dict[str, Any]:
        """Return the number of draws."""
        return {"calls": self.stream.calls}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after so many draws."""
        self.stream.calls = as_index(state["calls"], "calls", 0, 1 << 62)

    def quantize(self, x: FloatArray, *, role: str, axis: int) -> Quantized:
        """Return an operand quantized in blocks along `axis`, the axis of K; a weight in square blocks."""
        block = (_BLOCK, _BLOCK) if role == "weight" else (1, _BLOCK) if axis else (_BLOCK, 1)
        if role == "gradient" and self.method.stochastic:
            return quantize_blocks(x, "nvfp4", block=block, rounding="stochastic", seed=self.stream)
        return quantize_blocks(x, "nvfp4", block=block, rounding="ties_to_even")

    def matmul(
        self, a: FloatArray, b: FloatArray, *, formats: Formats, roles: Roles, product: str, module: str = "",
        step: int = 0, accumulate: AccumulationLike | None = None,
    ) -> FloatArray:  # fmt: skip
        """Return a @ b in FP32. The keywords are those of the protocol `Scaler`."""
        check_product(roles, product)
        if formats != (E2M1, E2M1):
            names = " and ".join(fmt.name for fmt in formats)
            raise ValueError(f"formats: NVFP4 is for operands in E2M1, not {names}; use another scaling method")
        left, right = nearest(a, FP32), nearest(b, FP32)
        if self.method.transform and product == "weight_gradient":
            with plain():
                left = hadamard(_padded(left, 1), _BLOCK, signs=NVFP4_SIGNS, axis=1)
                right = hadamard(_padded(right, 0), _BLOCK, signs=NVFP4_SIGNS, axis=0)
        of_a, of_b = self.quantize(left, role=roles[0], axis=1), self.quantize(right, role=roles[1], axis=0)
        of_a, of_b = _one_scale_for_each_row(of_a, 0), _one_scale_for_each_row(of_b, 1)
        inner = self.method.accumulate if accumulate is None else accumulate
        acc = _product_of_blocks(of_a, of_b, inner)
        with plain():
            alpha = multiply(multiply(_amax(left), _amax(right)), number(_ALPHA, FP32))
            return as_float_array(multiply(acc, alpha), "product")


def _amax(x: FloatArray) -> FloatArray:
    return number(np.max(np.abs(x.values), initial=0.0), FP32)


def _padded(x: FloatArray, axis: int) -> FloatArray:
    """Return x with zeros at the end of the axis, up to a multiple of the block."""
    missing = -x.shape[axis] % _BLOCK
    widths = [(0, missing if i == axis else 0) for i in range(2)]
    return FloatArray(np.pad(x.codes, widths), x.format)


def _one_scale_for_each_row(q: Quantized, axis: int) -> Quantized:
    """Return a quantized weight with the scales of its square blocks repeated for each row (column) of the operand."""
    if q.scheme.block != (_BLOCK, _BLOCK):
        return q
    codes = np.repeat(q.scales.codes, _BLOCK, axis=axis)
    codes = codes[: q.shape[0]] if axis == 0 else codes[:, : q.shape[1]]
    scheme = replace(q.scheme, block=(_BLOCK, 1) if axis else (1, _BLOCK))
    return replace(q, scales=FloatArray(np.ascontiguousarray(codes), q.scales.format), scheme=scheme)


# -- names -------------------------------------------------------------------------------------------------------------

_MX = ProductScheme("te_mxfp8", "te_mxfp8", "te_mxfp8")
_METHODS: dict[str, Callable[..., Scaling]] = {
    "current": CurrentScaling,
    "delayed": DelayedScaling,
    "te_block": lambda **options: BlockScaling(**{"scheme": "te_block", "weight_scheme": "te_block_weight", **options}),
    "deepseek": lambda **options: BlockScaling(
        **{"scheme": "deepseek", "weight_scheme": "deepseek_weight", "order": "separate", **options}
    ),
    "deepgemm": lambda **options: BlockScaling(
        **{"scheme": "deepgemm", "weight_scheme": "deepgemm_weight", **options}
    ),
    "mx": MXScaling,
    "te_mx": lambda **options: MXScaling(**{"rule": "rceil", **options}),
    "nvfp4": NVFP4Scaling,
    "row": lambda **options: scaling_by_blocks("row", **options),
    "tensor": lambda **options: scaling_by_blocks("tensor", **options),
    "smoothquant": lambda **options: integer_scaling(
        "row", ProductScheme(smoothing=0.5), **{"format": "int8", **options}
    ),
    "llm_int8": lambda **options: integer_scaling("row", ProductScheme(outliers=6.0), **{"format": "int8", **options}),
    "nvfp4_row_mxfp8": lambda **options: SchemeScaling(
        **{"forward": ProductScheme("nvfp4_row", "nvfp4"), "input_gradient": _MX, "weight_gradient": _MX, **options}
    ),
}  # fmt: skip

SCALING_METHODS: Mapping[str, Scaling] = MappingProxyType({name: make() for name, make in _METHODS.items()})
"""The named scaling methods with their defaults.

>>> import floatsim as fs
>>> fs.training.SCALING_METHODS["delayed"]
DelayedScaling(history_length=1024, algorithm='max', margin=0.0)
"""


def as_scaling(scaling: ScalingLike, **options: Any) -> Scaling:
    """Return a scaling method by its name, or the method itself.

    Parameters
    ----------
    scaling : str or Scaling
        "current" and "delayed": one scale for each tensor, as TransformerEngine. "te_block", "deepseek", "deepgemm":
        FP32 scales for blocks of 128. "mx" and "te_mx": MX with OCP's and with TransformerEngine's rule. "nvfp4". "row"
        and "tensor": FP32 scales for rows along K, or for the tensor. "smoothquant", "llm_int8": these methods with
        INT8. "nvfp4_row_mxfp8": NVFP4 with scales of rows forward, MXFP8 backward. A format in parentheses, as in
        "row(int8)" or "row(int8, int4)", is that of input and weight.
    **options
        Parameters of the method, such as `history_length=16` of "delayed".

    Returns
    -------
    CurrentScaling, DelayedScaling, BlockScaling, MXScaling, NVFP4Scaling or SchemeScaling

    Raises
    ------
    TypeError
        For an object without a method `start`, and for unknown options.
    ValueError
        For an unknown name. The message has the nearest match.

    Notes
    -----
    "deepseek" divides by the scale, and applies the scales of the operands one after the other, as the Triton kernel of
    DeepSeek-V3's `inference/kernel.py`. "deepgemm" multiplies by the rounded reciprocal, and multiplies both scales
    first. Both sum 128 products on a Hopper Tensor Core, then in FP32.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.as_scaling("delayed", history_length=16)
    DelayedScaling(history_length=16, algorithm='max', margin=0.0)
    >>> fs.training.as_scaling("deepsek")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: scaling='deepsek' is not known; did you mean 'deepseek'? known are deepseek, deepgemm, delayed, ...
    """
    if isinstance(scaling, str):
        name, given = scaling_parts(scaling)
        return _METHODS[as_name(name, _METHODS, "scaling")](**{**given, **options})
    if not callable(getattr(scaling, "start", None)):
        raise TypeError(f"scaling must be the name of a method or have a method start(seed), not {scaling!r}")
    return replace(scaling, **options) if options else scaling  # type: ignore[type-var]
