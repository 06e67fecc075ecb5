"""PyTorch's operations as the kernels of a GPU compute them, for policies with a `device`.

`DEVICES` has one row for each device: the operations that were compared with recordings of it, by the names of ATen.
What was not compared runs by the handlers of other policies, and is listed in `run.unverified`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_pre_hook

from floatsim.accumulation import Accumulation, Epilogue, TensorCore, parse
from floatsim.accumulation.libraries import NotDescribedError, library_sum
from floatsim.arrays.array.conversion import convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.types import NanRule
from floatsim.arrays.elementwise.arithmetic import add, divide, fma, multiply, subtract
from floatsim.arrays.elementwise.library_functions import library_function
from floatsim.arrays.library_reductions import library_reduction
from floatsim.arrays.sums.products import matmul
from floatsim.formats import BF16, E4M3, E5M2, FP16, FP32, FP64
from floatsim.operators.activations_backward import gelu_backward, silu_backward
from floatsim.operators.norms import layer_norm, rms_norm
from floatsim.operators.norms_backward import layer_norm_backward, rms_norm_backward
from floatsim.operators.softmax import log_softmax, softmax
from floatsim.operators.softmax_backward import log_softmax_backward, softmax_backward
from floatsim.torch.call import Call, Handler
from floatsim.torch.device_attention import ATTENTION, attention_of
from floatsim.torch.normalizations import NORMALIZATIONS, eps_of, norm_of_rows
from floatsim.torch.reductions import reduced_axes
from floatsim.torch.table import Entry
from floatsim.torch.tensors import format_of_dtype, read, tensor_of
from floatsim.training.optimizers.optimizers import SGD, Adam, AdamW, Optimizer

__all__ = ["DEVICES", "Device", "cast", "choices_of", "entry_on"]

_DEVICE = "h200"
_RECIPE = "pytorch-cuda"
_DTYPES = {FP32: "float32", FP16: "float16", BF16: "bfloat16"}
"""The dtypes of the device's tensors by format. A tensor in FP32 may hold numbers of 16 bits, under autocast."""


def _asked(c: Call, function: Callable[..., Any], *args: Any, **words: Any) -> Any:
    """Return a description or a result for what was compared; otherwise note why not, and extrapolate."""
    try:
        return function(*args, **words, device=_DEVICE, strict=True)
    except NotDescribedError as error:
        c.unverified(str(error))
        return function(*args, **words, device=_DEVICE)


# -- matrix products ---------------------------------------------------------------------------------------------------

_CHAIN: Accumulation = TensorCore("hopper")
_MOST = 1024
"""The terms up to which aligned products of 16-bit numbers were one chain of instructions in all recordings."""


@functools.cache
def _product_sum(
    function: str, dtype: str, shape: tuple[int, ...], layout: str, aligned: bool, settings: tuple[str, ...]
) -> tuple[Accumulation, str]:
    """Return how cuBLAS adds a product ([batch,] M, N, K), and why this is not known, "" if it is."""
    m, _, k = shape[-3:]
    if aligned and m > 1 and 1 < k <= _MOST:
        return _CHAIN, ""
    try:
        (region,) = library_sum(function, dtype, shape, device=_DEVICE, layout=layout, settings=settings)
        return region.accumulate, ""
    except NotDescribedError as error:
        if dtype != "float32":
            return _CHAIN, str(error)
        return parse("converted(tf32, hopper)" if settings else "sequential(fp32, fused)", FP32), str(error)


def _layout(x: torch.Tensor) -> tuple[str, int]:
    """Return "n" for matrices whose rows are contiguous, "t" if their columns are, and the leading dimension."""
    (rows, columns), (m, n) = x.stride()[-2:], x.shape[-2:]
    if columns == 1 or n == 1:
        return "n", max(rows, n)
    return ("t", max(columns, m)) if rows == 1 or m == 1 else ("", 0)


def _is_aligned(x: torch.Tensor, leading: int) -> bool:
    """Return whether each row or column of matrices starts at a multiple of 16 bytes, if their numbers have 16 bits."""
    return leading % 8 == 0 and x.storage_offset() % 8 == 0 and (x.ndim < 3 or x.shape[0] < 2 or x.stride(0) % 8 == 0)


def _operand(c: Call, x: torch.Tensor, like: torch.Tensor | None = None) -> FloatArray:
    """Return an operand in the format of the operation, or in that of a tensor whose gradient it is.

    Under autocast the gradient of a 16-bit tensor has 16 bits, also where an operation in FP32 took the tensor.
    """
    return c.rounded(read(x), c.formats.operands if like is None else c.format_of(like))


def _product(c: Call, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> FloatArray:
    """Return a @ b + bias as cuBLAS: the bias after the sum in FP32, and one rounding. Batches of matrices, too."""
    left, right = (c.rounded(read(x), role) for x, role in zip((a, b), map(c.of_role, c.roles(a, b)), strict=True))
    out = c.formats.out
    (first, lda), (second, ldb) = _layout(a), _layout(b)
    shape = *a.shape[:-1], b.shape[-1], a.shape[-1]
    function = "torch.nn.functional.linear" if bias is not None else "torch.matmul" if a.ndim == 2 else "torch.bmm"
    dtype = _DTYPES.get(left.format, str(a.dtype))
    if not (first and second) and a.ndim == 2:
        order, why = _CHAIN, "an operand has neither contiguous rows nor contiguous columns"
    else:
        (a, first, lda), (b, second, ldb) = (
            (x, layout, leading) if layout else (x.contiguous(), "n", x.shape[-1])  # PyTorch copies such batches
            for x, layout, leading in ((a, first, lda), (b, second, ldb))
        )
        aligned = left.format != FP32 and _is_aligned(a, lda) and _is_aligned(b, ldb) and shape[-2] % 8 == 0
        tf32 = left.format == FP32 and torch.backends.cuda.matmul.allow_tf32
        order, why = _product_sum(function, dtype, shape, first + second, aligned, ("allow_tf32",) * tf32)
    if c.formats.accumulate != c.formats.sums:
        order, why = c.formats.accumulate, "the policy states the order of this product, in place of the device's"
    if why:
        c.unverified(why)
    if bias is None:
        return matmul(left, right, accumulate=order, format=out)  # type: ignore[no-any-return]
    last = order if isinstance(order, Epilogue) else Epilogue(order, FP32)
    return matmul(left, right, c.operand(bias), accumulate=last, format=out)  # type: ignore[no-any-return]


def _addmm(c: Call, bias: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> FloatArray:
    if bias.ndim != 1 or (alpha, beta) != (1, 1):
        raise NotDescribedError("addmm with a matrix c, alpha or beta: only the bias of linear layers was compared")
    return _product(c, a, b, bias)


def _baddbmm(c: Call, addend: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> FloatArray:
    """Return addend + a @ b: in 16 bits the product is rounded, then the sum, as by the kernels of aligned rows."""
    whole = addend.ndim == 3 and addend.shape == (*a.shape[:-1], b.shape[-1])
    if not whole or (alpha, beta) != (1, 1) or c.formats.out == FP32:
        raise NotDescribedError("baddbmm in FP32, with alpha or beta, or with an addend of another shape")
    return c.result(c.value(add, _product(c, a, b), c.operand(addend)))


def _linear(c: Call, x: Any, weight: Any, bias: Any = None) -> FloatArray:
    found = _product(c, x.reshape(-1, x.shape[-1]), weight.t(), bias)
    return found.reshape(*x.shape[:-1], weight.shape[0])


# -- reductions --------------------------------------------------------------------------------------------------------


def _reduction(function: str) -> Handler:
    """Return the handler of a sum or mean of a contiguous tensor along its first axes, its last ones, or all."""

    def run(c: Call, x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> FloatArray:
        axes = reduced_axes(x, dim)
        kept = [n for axis, n in enumerate(x.shape) if axis not in axes]
        shape = [1 if axis in axes else n for axis, n in enumerate(x.shape)] if keepdim else kept
        count = x.numel() // max(torch.Size(kept).numel(), 1)
        wide = [axis for axis, n in enumerate(x.shape) if n > 1]
        inside = [axis for axis in wide if axis in axes]
        if not x.is_contiguous() or not x.numel():
            raise NotDescribedError("a sum of a tensor that is empty or not contiguous")
        if len(inside) == len(wide):
            rows, axis = x.reshape(-1), None
        elif inside == wide[len(wide) - len(inside) :] and inside:
            rows, axis = x.reshape(-1, count), -1
        elif inside == wide[: len(inside)]:
            rows, axis = x.reshape(count, -1), 0
        else:
            raise NotDescribedError("a sum along axes between others")
        found = _asked(c, library_reduction, function, c.operand(rows), axis, format=c.formats.out)
        return found.reshape(shape)  # type: ignore[no-any-return]

    return run


# -- functions ---------------------------------------------------------------------------------------------------------


def _function(name: str) -> Handler:
    def run(c: Call, x: Any) -> FloatArray:
        return c.result(_asked(c, library_function, name, c.operand(x)))

    return run


def _gelu(c: Call, x: Any, approximate: str = "none") -> FloatArray:
    return _function("gelu" if approximate == "none" else "gelu_tanh")(c, x)  # type: ignore[no-any-return]


def _gelu_backward(c: Call, gradient: Any, x: Any, approximate: str = "none") -> FloatArray:
    if approximate != "none":
        raise NotDescribedError("the gradient of gelu(approximate='tanh')")
    return gelu_backward(_operand(c, gradient, x), _operand(c, x, x), recipe=_RECIPE)  # type: ignore[no-any-return]


def _silu_backward(c: Call, gradient: Any, x: Any) -> FloatArray:
    return silu_backward(_operand(c, gradient, x), _operand(c, x, x), recipe=_RECIPE)  # type: ignore[no-any-return]


def _tanh_backward(c: Call, gradient: Any, y: Any) -> FloatArray:
    """Return gradient * (1 - y * y), each step rounded to the format of the operands."""
    fmt = c.format_of(y)

    def step(function: Callable[..., Any], *operands: FloatArray) -> FloatArray:
        return c.rounded(c.value(function, *operands), fmt)

    result = _operand(c, y, y)
    slope = step(subtract, c.number(1.0), step(multiply, result, result))
    return step(multiply, _operand(c, gradient, y), slope)


def _pow(c: Call, x: Any, y: Any) -> FloatArray:
    if isinstance(y, torch.Tensor):
        raise NotDescribedError("a power with a tensor of exponents")
    if y == 1:
        return c.result(c.operand(x))
    return c.result(_asked(c, library_function, "power", c.operand(x), float(y)))


def _number_or_operand(c: Call, x: Any) -> FloatArray:
    """Return a Python number in FP32, and a tensor in the format of the operands, also one without dimensions."""
    return c.operand(x) if isinstance(x, torch.Tensor) else c.number(x)


def _add(c: Call, x: Any, y: Any, alpha: float = 1) -> FloatArray:
    left, right = c.operand(x), _number_or_operand(c, y)
    if alpha in (1, -1):
        return c.result(c.value(add if alpha == 1 else subtract, left, right))
    return c.result(c.value(fma, c.number(alpha), right, left))


def _sub(c: Call, x: Any, y: Any, alpha: float = 1) -> FloatArray:
    return _add(c, x, y, -alpha)


def _rsub(c: Call, x: Any, y: Any, alpha: float = 1) -> FloatArray:
    left, right = _number_or_operand(c, y), c.operand(x)
    if alpha == 1:
        return c.result(c.value(subtract, left, right))
    return c.result(c.value(fma, c.number(-alpha), right, left))


def _mul(c: Call, x: Any, y: Any) -> FloatArray:
    return c.result(c.value(multiply, c.operand(x), _number_or_operand(c, y)))


def _div(c: Call, x: Any, y: Any, rounding_mode: str | None = None) -> FloatArray:
    """Return x / y; by a number, x times the rounded reciprocal."""
    if rounding_mode is not None:
        raise NotDescribedError(f"a division with rounding_mode={rounding_mode!r}")
    if isinstance(y, torch.Tensor):
        return c.result(c.value(divide, c.operand(x), c.operand(y)))
    if y == 0:
        raise NotDescribedError("a division by the number 0")
    return c.result(c.value(multiply, c.operand(x), c.number(1.0 / y)))


def _addcmul(c: Call, x: Any, y: Any, z: Any, value: float = 1) -> FloatArray:
    """Return value * (y * z) + x, where the product in brackets is rounded."""
    product = c.value(multiply, c.operand(y), c.operand(z))
    return c.result(c.value(fma, c.number(value), product, c.operand(x)))


def _addcdiv(c: Call, x: Any, y: Any, z: Any, value: float = 1) -> FloatArray:
    """Return value * (y / z) + x, where the quotient is rounded."""
    quotient = c.value(divide, c.operand(y), c.operand(z))
    return c.result(c.value(fma, c.number(value), quotient, c.operand(x)))


# -- norms, softmax and losses -----------------------------------------------------------------------------------------


def _check_rows(c: Call, function: str, x: torch.Tensor, size: int, *axes: int) -> None:
    """Note if rows of this length, or this number of rows, were not compared."""
    rows = x.numel() // max(size, 1)
    if not x.is_contiguous():
        c.unverified("a tensor that is not contiguous")
    for axis in axes:
        _asked(c, library_sum, function, _DTYPES.get(c.formats.operands, str(x.dtype)), (rows, size), axis=axis)


def _same(c: Call, *tensors: Any) -> None:
    """Raise if tensors have different dtypes."""
    if len({x.dtype for x in tensors if x is not None}) > 1:
        raise NotDescribedError("tensors of different dtypes")


def _layer_norm(c: Call, x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> tuple[FloatArray, ...]:
    _same(c, x, weight, bias)
    _check_rows(c, "torch.native_layer_norm", x, torch.Size(shape).numel(), -1)
    return norm_of_rows(c, layer_norm, x, shape, (weight, bias), eps, recipe=_RECIPE)


def _layer_norm_backward(
    c: Call, gradient: Any, x: Any, shape: Sequence[int], mean: Any, root: Any, weight: Any, bias: Any,
    mask: Sequence[bool],
) -> tuple[FloatArray | None, ...]:  # fmt: skip
    _same(c, gradient, x, weight)
    size = torch.Size(shape).numel()
    _check_rows(c, "torch.native_layer_norm_backward", x, size, -1, 0)
    g, rows = (_operand(c, each).reshape(-1, size) for each in (gradient, x))
    by_x, *others = layer_norm_backward(g, rows, _flat(c, weight), eps=eps_of(root), recipe=_RECIPE)
    return _wanted((c.rounded(by_x, c.format_of(x)), *others), (x.shape, shape, shape), mask)


def _rms_norm(c: Call, x: Any, shape: Sequence[int], weight: Any, eps: float | None) -> tuple[FloatArray, ...]:
    _same(c, x, weight)
    _check_rows(c, "torch.rms_norm", x, torch.Size(shape).numel(), -1)
    output, _, root = norm_of_rows(
        c, rms_norm, x, shape, (weight,), 2.0**-23 if eps is None else eps, recipe=_RECIPE
    )  # fmt: skip
    return output, root


def _rms_norm_backward(
    c: Call, gradient: Any, x: Any, shape: Sequence[int], root: Any, weight: Any, mask: Sequence[bool]
) -> tuple[FloatArray | None, ...]:  # fmt: skip
    _same(c, gradient, x, weight)
    size = torch.Size(shape).numel()
    _check_rows(c, "torch.native_layer_norm_backward", x, size, -1, 0)
    g, rows = (_operand(c, each).reshape(-1, size) for each in (gradient, x))
    found = rms_norm_backward(g, rows, _flat(c, weight), eps=eps_of(root), recipe=_RECIPE)
    return _wanted((c.rounded(found.x, c.format_of(x)), found.weight), (x.shape, shape), mask)


def _flat(c: Call, x: Any) -> FloatArray | None:
    return None if x is None else _operand(c, x).reshape(-1)


def _wanted(found: Sequence[Any], shapes: Sequence[Any], mask: Sequence[bool]) -> tuple[FloatArray | None, ...]:
    return tuple(
        each.reshape(*shape) if wanted and each is not None else None
        for each, shape, wanted in zip(found, shapes, mask, strict=True)
    )


def _softmax(function: Callable[..., Any], name: str) -> Handler:
    def run(c: Call, x: Any, dim: int, half_to_float: bool = False) -> FloatArray:
        if half_to_float or dim % x.ndim != x.ndim - 1:
            raise NotDescribedError("softmax along another axis than the last, or of 16 bits to FP32")
        _check_rows(c, f"torch.{name}", x, x.shape[-1], -1)
        return function(_operand(c, x), -1, recipe=_RECIPE)  # type: ignore[no-any-return]

    return run


def _softmax_backward(function: Callable[..., Any], name: str) -> Handler:
    def run(c: Call, gradient: Any, y: Any, dim: int, dtype: Any) -> FloatArray:
        if dtype != y.dtype or dim % y.ndim != y.ndim - 1:
            raise NotDescribedError("softmax along another axis than the last, or of 16 bits to FP32")
        _same(c, gradient, y)
        _check_rows(c, f"torch._{name}_backward_data", y, y.shape[-1], -1)
        return function(_operand(c, gradient), _operand(c, y), -1, recipe=_RECIPE)  # type: ignore[no-any-return]

    return run


_MEAN_LOSS = parse("threads(fp32, 32, pairwise(fp32, tree=halving))", FP32)
"""The sum of the losses of a batch: 32 threads, then their sums by halves."""


def _nll_loss(c: Call, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    if weight is not None or x.ndim != 2 or x.dtype != torch.float32:
        raise NotDescribedError("nll_loss of other operands than FP32 (rows, classes), or with weights of classes")
    c.formats = replace(c.formats, sums=_MEAN_LOSS)
    return NORMALIZATIONS["nll_loss_forward"][1](c, x, target, weight, reduction, ignore_index)


# -- fused optimizers --------------------------------------------------------------------------------------------------


def _step(
    c: Call, store: Callable[..., None], optimizer: Optimizer, step: int, param: torch.Tensor, gradient: torch.Tensor,
    moments: Mapping[str, torch.Tensor], first: bool = False,
) -> None:  # fmt: skip
    """Carry out one step of an optimizer of the laboratory for one weight, and store weight and moments.

    In the `first` step of SGD the moments have no value yet.
    """
    _same(c, param, gradient, *moments.values())
    optimizer.moments = {"w": {} if first else {key: read(x) for key, x in moments.items()}}
    optimizer.weight_steps = {"w": step - 1}
    found = optimizer.step({"w": read(param)}, {"w": read(gradient)})["w"]
    for key, x in moments.items():
        store(x, optimizer.moments["w"][key])
    store(param, found)


def _plain(**options: Any) -> None:
    """Raise for options of an optimizer that were not compared: each must be False, zero or None."""
    for name, value in options.items():
        if value is not None and value:
            raise NotDescribedError(f"a fused optimizer with {name}")


def _fused_adam(kind: type[Adam]) -> Callable[..., None]:
    def run(
        c: Call, store: Any, params: Any, grads: Any, means: Any, squares: Any, largest: Any, steps: Any, *, lr: Any,
        beta1: float, beta2: float, weight_decay: float, eps: float, amsgrad: bool, maximize: bool,
        grad_scale: Any = None, found_inf: Any = None,
    ) -> None:  # fmt: skip
        _plain(amsgrad=amsgrad, maximize=maximize, grad_scale=grad_scale is not None, found_inf=found_inf is not None)
        if kind is Adam:
            _plain(weight_decay=weight_decay)
        for param, gradient, m, v, step in zip(params, grads, means, squares, steps, strict=True):
            optimizer = kind(
                float(lr), betas=(beta1, beta2), eps=eps, weight_decay=weight_decay, recipe="cuda-fused"
            )  # fmt: skip
            _step(c, store, optimizer, int(step), param, gradient, {"mean": m, "squares": v})

    return run


def _fused_sgd(
    c: Call, store: Any, params: Any, grads: Any, moments: Any, *, weight_decay: float, momentum: float, lr: Any,
    dampening: float, nesterov: bool, maximize: bool, is_first_step: bool, grad_scale: Any = None,
    found_inf: Any = None,
) -> None:  # fmt: skip
    _plain(dampening=dampening, nesterov=nesterov, maximize=maximize, grad_scale=grad_scale is not None,
           found_inf=found_inf is not None)  # fmt: skip
    for i, (param, gradient) in enumerate(zip(params, grads, strict=True)):
        optimizer = SGD(float(lr), momentum=momentum, weight_decay=weight_decay, recipe="cuda-fused")
        _step(c, store, optimizer, 1, param, gradient, {"momentum": moments[i]} if momentum else {}, is_first_step)


# -- casts -------------------------------------------------------------------------------------------------------------


def cast(x: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Store x in `result`, converted to its dtype as on the device, and return it.

    >>> import torch
    >>> nan = torch.tensor([float("nan")])
    >>> hex(cast(nan, torch.empty(1, dtype=torch.float16)).view(torch.int16).item())
    '0x7fff'
    """
    source, target = format_of_dtype(x.dtype), format_of_dtype(result.dtype)
    recorded = source in _DTYPES and target in (*_DTYPES, E4M3, E5M2)
    rule: NanRule = "cuda" if recorded or (source in (E4M3, E5M2) and target in (FP32, BF16)) else "canonical"
    return result.copy_(tensor_of(convert(read(x), target, nan=rule), result.dtype))


# -- the table ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Device:
    """A GPU and the operations of PyTorch that were compared with recordings of it.

    Attributes
    ----------
    what : str
        The GPU and the versions of its libraries.
    handlers : mapping
        By the name of the ATen operation: how the device computes it.
    as_others : frozenset of str
        The operations that the handlers of all policies compute as the device does: IEEE operations in FP32 and one
        rounding, selections, and formulas that were compared. The losses among them are written out.
    in_lists : frozenset of str
        The operations on lists of tensors that are in `as_others`, and single ones that have another handler.
    """

    what: str
    handlers: Mapping[str, Handler]
    as_others: frozenset[str]
    in_lists: frozenset[str]


_OPTIMIZERS = {"_fused_adam": _fused_adam(Adam), "_fused_adamw": _fused_adam(AdamW), "_fused_sgd": _fused_sgd}
_FUNCTIONS = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin atan erf sqrt rsqrt reciprocal sigmoid silu "
    "mish"
)
_AS_OTHERS = (
    "neg abs maximum minimum clamp clamp_min clamp_max relu threshold_backward lerp "
    "nll_loss_backward embedding mse_loss mse_loss_backward _amp_foreach_non_finite_check_and_unscale_"
)

DEVICES: dict[str, Device] = {
    _DEVICE: Device(
        "NVIDIA H200 (sm_90), torch 2.11.0, CUDA 13.0, cuBLAS 13.1.0.3",
        {
            **{name: _function(name) for name in _FUNCTIONS.split()},
            "mm": _product, "bmm": _product, "addmm": _addmm, "baddbmm": _baddbmm, "linear": _linear, **ATTENTION,
            "sum": _reduction("torch.sum"), "mean": _reduction("torch.mean"),
            "gelu": _gelu, "gelu_backward": _gelu_backward, "silu_backward": _silu_backward,
            "tanh_backward": _tanh_backward,
            "add": _add, "sub": _sub, "rsub": _rsub, "mul": _mul, "pow": _pow, "div": _div,
            "addcmul": _addcmul, "addcdiv": _addcdiv,
            "native_layer_norm": _layer_norm, "native_layer_norm_backward": _layer_norm_backward,
            "_fused_rms_norm": _rms_norm, "_fused_rms_norm_backward": _rms_norm_backward,
            "_softmax": _softmax(softmax, "softmax"), "_log_softmax": _softmax(log_softmax, "log_softmax"),
            "_softmax_backward_data": _softmax_backward(softmax_backward, "softmax"),
            "_log_softmax_backward_data": _softmax_backward(log_softmax_backward, "log_softmax"),
            "nll_loss_forward": _nll_loss, **{f"{name}_": run for name, run in _OPTIMIZERS.items()},
        },
        frozenset(_AS_OTHERS.split()),
        frozenset(("div",)),
    ),
}  # fmt: skip
"""The devices by name."""


def _or_else(handler: Handler, other: Callable[..., Any]) -> Handler:
    """Return a handler that notes what the device's handler does not describe, and computes it by another one.

    FP64, which every call notes, was never recorded: the other one computes it.
    """

    def run(c: Call, *args: Any, **kwargs: Any) -> Any:
        if c.formats.operands == FP64:
            return other(c, *args, **kwargs)
        try:
            return handler(c, *args, **kwargs)
        except NotDescribedError as error:
            c.unverified(str(error))
            return other(c, *args, **kwargs)

    return run


def _noted(handler: Callable[..., Any]) -> Handler:
    def run(c: Call, *args: Any, **kwargs: Any) -> Any:
        c.unverified("the operation was not compared with the device")
        return handler(c, *args, **kwargs)

    return run


def entry_on(device: str, entry: Entry) -> Entry:
    """Return how an ATen operation is carried out on a device.

    Parameters
    ----------
    device : str
        A name of `DEVICES`, or "" for an entry as it is.
    entry : Entry
        How other policies carry it out.

    Returns
    -------
    Entry
        With `compared` False if the operation is not known to have the bits of the device.

    Examples
    --------
    >>> import torch
    >>> from floatsim.torch.table import entry_of
    >>> [entry_on("h200", entry_of(f)).compared for f in (torch.ops.aten.add.Tensor, torch.ops.aten.asinh.default)]
    [True, False]
    """
    if not device:
        return entry
    row = DEVICES[device]
    if entry.kind in ("handler", "each") or entry.name in row.handlers:
        assert entry.run is not None
        if entry.name in row.handlers and not (entry.kind == "each" and entry.name in row.in_lists):
            return replace(entry, run=_or_else(row.handlers[entry.name], entry.run))
        known = entry.name in row.as_others or entry.name in row.in_lists
        return entry if known else replace(entry, run=_noted(entry.run), compared=False)
    if entry.kind in ("view", "unrounded", "implicit"):
        return entry
    return replace(entry, compared=entry.name in row.as_others)


class _FusedRmsNorm(torch.autograd.Function):  # type: ignore[misc]
    """rms_norm as one operation of ATen, and its gradient as another one. A CPU takes both apart."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shape: Any, weight: torch.Tensor | None, eps: float | None) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            result, root = torch.ops.aten._fused_rms_norm(x, shape, weight, eps)
        ctx.shape = shape
        ctx.save_for_backward(x, root, weight)
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, root, weight = ctx.saved_tensors
        mask = [ctx.needs_input_grad[0], weight is not None and ctx.needs_input_grad[2]]
        with torch._C._AutoDispatchBelowAutograd():
            by_x, by_weight = torch.ops.aten._fused_rms_norm_backward(gradient, x, ctx.shape, root, weight, mask)
        return by_x, None, by_weight, None


_RECURRENT = (
    "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
)  # fmt: skip
"""The functions behind recurrent layers, each one kernel of cuDNN or PyTorch on a GPU."""


def _fused_on_device(module: torch.nn.Module, x: Any) -> bool:
    """Return whether PyTorch computes an encoder layer, or its attention, by one fused operation of inference."""
    attention = module.self_attn if isinstance(module, torch.nn.TransformerEncoderLayer) else module
    return (
        isinstance(attention, torch.nn.MultiheadAttention)
        and isinstance(x, torch.Tensor)
        and x.ndim == 3
        and not module.training
        and attention.batch_first
        and attention.in_proj_bias is not None
        and attention._qkv_same_embed_dim
        and attention.num_heads % 2 == 0
        and not torch.is_autocast_enabled()
        and not (torch.is_grad_enabled() and any(each.requires_grad for each in (x, *module.parameters())))
    )


@contextmanager
def choices_of(
    device: str, unverified: Callable[..., None], as_part: Callable[[str], AbstractContextManager[None]]
) -> Iterator[None]:
    """Let PyTorch choose as on a GPU.

    Optimizers run on lists of tensors (foreach), rms_norm is one operation, and attention is that of the GPU. A linear
    layer of an input that is not contiguous is a product and a sum, its parts: autocast converts the bias, too.
    Recurrent layers, and layers for which PyTorch has a fused operation of inference, are noted.

    Parameters
    ----------
    device : str
        The device of the policy, "" for none.
    unverified : callable
        Notes an operation, the shapes of its operands, and why it is not known to have the bits of the GPU.
    as_part : callable
        Returns a context in which operations are parts of the one that is named.
    """
    module: Any = sys.modules["torch.optim.optimizer"]
    found, norm = module._get_foreach_kernels_supported_devices, torch.rms_norm
    attention, linear = functional.scaled_dot_product_attention, functional.linear
    kernels: Any = torch._VF
    recurrent, hooks = {name: getattr(kernels, name) for name in _RECURRENT}, []
    if device:
        fast = torch.backends.mha.get_fastpath_enabled()

        def note_fused(module: torch.nn.Module, args: Any) -> None:
            if fast and args and _fused_on_device(module, args[0]):
                why = "a GPU runs PyTorch's fused path of inference (torch.backends.mha), which was not compared"
                unverified(type(module).__name__, (tuple(args[0].shape),), why)

        def noted(name: str) -> Callable[..., Any]:
            def run(x: Any, *args: Any, **words: Any) -> Any:
                unverified(name, (tuple(x.shape),), "a GPU has one kernel for it; computed step by step")
                return recurrent[name](x, *args, **words)

            return run

        def rms_norm(x: Any, shape: Any, weight: Any = None, eps: Any = None) -> Any:
            if type(x) not in (torch.Tensor, torch.nn.Parameter) or (weight is not None and weight.dtype != x.dtype):
                return norm(x, shape, weight, eps)  # its parts, on a GPU too
            return _FusedRmsNorm.apply(x, shape, weight, eps)

        def linear_layer(input: Any, weight: Any, bias: Any = None) -> Any:
            if bias is None or input.is_contiguous():
                return linear(input, weight, bias)
            with as_part("linear"):
                return linear(input, weight, bias)

        for name in _RECURRENT:
            setattr(kernels, name, noted(name))
        hooks.append(register_module_forward_pre_hook(note_fused))
        torch.rms_norm, functional.linear = rms_norm, linear_layer
        functional.scaled_dot_product_attention = attention_of(attention, unverified)
        module._get_foreach_kernels_supported_devices = lambda: [*found(), "cpu"]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for name, function in recurrent.items():
            setattr(kernels, name, function)
        module._get_foreach_kernels_supported_devices = found
        torch.rms_norm, functional.linear = norm, linear
        functional.scaled_dot_product_attention = attention
