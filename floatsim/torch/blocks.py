"""Building blocks with gradients: `quantize`, `matmul` and `Linear`, as custom operators of `torch.library`.

Custom operators have a fake implementation for shapes, a gradient, and a rule for `torch.vmap`, so `torch.compile` and
`torch.func` take them. Formats and accumulations pass as texts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from floatsim.accumulation import Accumulation, AccumulationLike, as_accumulation
from floatsim.arrays.array.conversion import convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.sums.products import matmul as matmul_of
from floatsim.formats import FloatFormat, FormatLike, as_format, named_formats
from floatsim.formats._validation import name_hint, with_keyword_hints
from floatsim.formats.rounding import Overflow, OverflowLike, Rounding, RoundingLike, as_member
from floatsim.formats.value_sets import contains
from floatsim.torch.tensors import format_of_dtype, is_float, read, tensor_of

__all__ = ["Linear", "checked", "matmul", "quantize"]

_WORDS = ("ste", "none")

# -- texts of formats and accumulations --------------------------------------------------------------------------------

_NAMED = {fmt.name for fmt in named_formats()}
_FORMATS: dict[str, FloatFormat] = {}
_ACCUMULATIONS: dict[str, Any] = {}


def _name(fmt: FormatLike, x: Tensor, argument: str = "format") -> str:
    """Return a text of a format, after a check that the dtype of a tensor contains it."""
    found = as_format(fmt)
    if not contains(format_of_dtype(x.dtype), found):
        raise ValueError(
            f"{argument}={found.name} is no subset of {x.dtype}; convert the tensor to a wider dtype first"
        )
    return _format_text(found)


def _format_text(fmt: FloatFormat) -> str:
    """Return the name of a named format, or a text under which a custom format is kept."""
    if fmt.name in _NAMED and as_format(fmt.name) == fmt:
        return fmt.name
    _FORMATS[repr(fmt)] = fmt
    return repr(fmt)


def _format(text: str) -> FloatFormat:
    return _FORMATS[text] if text in _FORMATS else as_format(text)


def _text(accumulate: AccumulationLike) -> str:
    """Return the text of an accumulation, or a text under which it is kept if it has more options than its text."""
    found = as_accumulation(accumulate)
    if as_accumulation(str(found)) == found:
        return str(found)
    _ACCUMULATIONS[repr(found)] = found
    return repr(found)


def _accumulation(text: str) -> Accumulation:
    return _ACCUMULATIONS[text] if text in _ACCUMULATIONS else as_accumulation(text)


def checked(x: Any, argument: str) -> Tensor:
    if not is_float(x):
        kind = str(x.dtype) if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"{argument} must be a tensor of floating-point numbers, not {kind}")
    return x


# -- quantize ----------------------------------------------------------------------------------------------------------


@torch.library.custom_op("floatsim::quantize", mutates_args=())  # type: ignore[untyped-decorator]
def _quantize(x: Tensor, fmt: str, rounding: str, overflow: str, seed: int) -> Tensor:
    drawn: dict[str, Any] = {"seed": seed} if rounding == Rounding.STOCHASTIC.name else {}
    rounded = convert(read(x.cpu()), _format(fmt), rounding=Rounding[rounding], overflow=Overflow[overflow], **drawn)
    return tensor_of(rounded, x.dtype).to(x.device)


@_quantize.register_fake  # type: ignore[untyped-decorator]
def _(x: Tensor, fmt: str, rounding: str, overflow: str, seed: int) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


@torch.library.custom_op("floatsim::quantize_with_gradient", mutates_args=())  # type: ignore[untyped-decorator]
def _quantize_with_gradient(x: Tensor, fmt: str, rounding: str, overflow: str, seed: int, gradient: str) -> Tensor:
    return torch.ops.floatsim.quantize(x, fmt, rounding, overflow, seed)


@_quantize_with_gradient.register_fake  # type: ignore[untyped-decorator]
def _(x: Tensor, fmt: str, rounding: str, overflow: str, seed: int, gradient: str) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _keep_options(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.rounding, ctx.overflow, ctx.seed, ctx.gradient = inputs[2:]


def _gradient_of_quantize(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    if ctx.gradient == "none":
        return (torch.zeros_like(gradient), *[None] * 5)
    if ctx.gradient != "ste":
        gradient = torch.ops.floatsim.quantize(gradient, ctx.gradient, ctx.rounding, ctx.overflow, ctx.seed + 1)
    return (gradient, *[None] * 5)


_quantize_with_gradient.register_autograd(_gradient_of_quantize, setup_context=_keep_options)


@torch.library.register_vmap("floatsim::quantize")  # type: ignore[untyped-decorator]
def _(info: Any, in_dims: Any, x: Tensor, *options: Any) -> Any:
    return torch.ops.floatsim.quantize(x, *options), in_dims[0]


@torch.library.register_vmap("floatsim::quantize_with_gradient")  # type: ignore[untyped-decorator]
def _(info: Any, in_dims: Any, x: Tensor, *options: Any) -> Any:
    return torch.ops.floatsim.quantize_with_gradient(x, *options), in_dims[0]


@with_keyword_hints
def quantize(
    x: Tensor, format: FormatLike, grad: FormatLike = "ste", *, rounding: RoundingLike = "ties_to_even",
    overflow: OverflowLike = "infinity", seed: int = 0,
) -> Tensor:  # fmt: skip
    """Round a tensor to the values of a format. Its dtype stays.

    Parameters
    ----------
    x : torch.Tensor
        Floating-point numbers, whose dtype contains the format.
    format : format
        The format.
    grad : str or format
        The gradient by x. "ste": the gradient passes unchanged (straight-through estimator). "none": it is zero. A
        format: it is rounded to the format.
    rounding, overflow
        As in `fs.quantize`, for x and for its gradient.
    seed : int
        The seed of stochastic rounding. The gradient has the next one.

    Returns
    -------
    torch.Tensor

    Raises
    ------
    TypeError
        If x is no tensor of floating-point numbers.
    ValueError
        For unknown formats and rounding modes, and for a format that the dtype does not contain.

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> x = torch.tensor([0.1, 300.0], requires_grad=True)
    >>> y = ft.quantize(x, "e4m3", grad="e5m2")
    >>> y.tolist()
    [0.1015625, 288.0]
    >>> (y * 1.1).sum().backward()
    >>> x.grad
    tensor([1., 1.])
    """
    checked(x, "x")
    if isinstance(grad, str) and grad.strip().lower() in _WORDS:
        gradient = grad.strip().lower()
    else:
        try:
            gradient = _name(grad, x, "grad")
        except (TypeError, ValueError) as error:
            raise type(error)(f"grad must be 'ste', 'none' or a format: {error}; {name_hint(grad, _WORDS)}") from None
    options = (as_member(Rounding, rounding, "rounding").name, as_member(Overflow, overflow, "overflow").name, seed)
    return torch.ops.floatsim.quantize_with_gradient(x, _name(format, x), *options, gradient)


# -- matmul ------------------------------------------------------------------------------------------------------------


@torch.library.custom_op("floatsim::matmul", mutates_args=())  # type: ignore[untyped-decorator]
def _matmul(a: Tensor, b: Tensor, accumulate: str, fmt: str, backward: str, formats: str) -> Tensor:
    operands = [_in_format(x, text) for x, text in zip((a, b), formats.split("|"), strict=False)]
    found = matmul_of(*operands, accumulate=_accumulation(accumulate), format=_format(fmt))
    result = found if isinstance(found, FloatArray) else FloatArray(np.asarray(found), _format(fmt))
    return tensor_of(result, torch.promote_types(a.dtype, b.dtype)).to(a.device)


def _in_format(x: Tensor, text: str) -> FloatArray:
    """Return a tensor rounded to a format; as it is for an empty text."""
    given = read(x.cpu())
    return convert(given, _format(text)) if text else given


@_matmul.register_fake  # type: ignore[untyped-decorator]
def _(a: Tensor, b: Tensor, accumulate: str, fmt: str, backward: str, formats: str) -> Tensor:
    return torch.matmul(a, b)


def _keep_operands(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, ctx.accumulate, ctx.fmt, ctx.backward, ctx.formats = inputs
    ctx.save_for_backward(a, b)


def _summed_to(x: Tensor, shape: torch.Size) -> Tensor:
    """Return the gradient of an operand whose leading axes were broadcast."""
    return x.sum_to_size(shape) if x.shape != shape else x


def _gradient_of_matmul(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    options = (ctx.backward, ctx.fmt, ctx.backward)
    of_a, of_b, of_gradient = ctx.formats.split("|")
    by_a = torch.ops.floatsim.matmul(gradient, b.transpose(-1, -2), *options, f"{of_gradient}|{of_b}|")
    by_b = torch.ops.floatsim.matmul(a.transpose(-1, -2), gradient, *options, f"{of_a}|{of_gradient}|")
    return _summed_to(by_a, a.shape), _summed_to(by_b, b.shape), None, None, None, None


_matmul.register_autograd(_gradient_of_matmul, setup_context=_keep_operands)


@torch.library.register_vmap("floatsim::matmul")  # type: ignore[untyped-decorator]
def _(info: Any, in_dims: Any, a: Tensor, b: Tensor, *options: Any) -> Any:
    """Put the mapped axis before the stacks of matrices of both operands."""
    depth = max(x.ndim - (dim is not None) for x, dim in zip((a, b), in_dims[:2], strict=True))
    operands = []
    for x, dim in zip((a, b), in_dims[:2], strict=True):
        moved = x if dim is None else x.movedim(dim, 0)
        missing = depth - (moved.ndim - (dim is not None))
        if dim is not None and missing:
            moved = moved.reshape(moved.shape[0], *[1] * missing, *moved.shape[1:])
        operands.append(moved)
    return torch.ops.floatsim.matmul(*operands, *options), 0


@with_keyword_hints
def matmul(
    a: Tensor, b: Tensor, *, accumulate: AccumulationLike = "fp32", format: FormatLike | None = None,
    backward: AccumulationLike | None = None, operands: FormatLike | None = None, grad: FormatLike | None = None,
) -> Tensor:  # fmt: skip
    """Return the matrix product with a chosen accumulation, forward and backward.

    Parameters
    ----------
    a : torch.Tensor, (..., M, K)
    b : torch.Tensor, (..., K, N)
        Floating-point numbers.
    accumulate : description
        The order and the formats of the sums, as in `fs.matmul`.
    format : format, optional
        The format of the result. Default: that of the dtype of the result.
    backward : description, optional
        The accumulation of the two products of the backward pass. Default: `accumulate`.
    operands : format, optional
        a and b are rounded to it, forward and backward. Tensor Cores need it, because they take no FP32. The gradient
        passes these roundings unchanged. Default: they are not rounded.
    grad : format, optional
        The gradient operand of the backward products is rounded to it. Default: it is not rounded.

    Returns
    -------
    torch.Tensor
        In the dtype that PyTorch promotes a and b to.

    Raises
    ------
    TypeError
        For operands that are no tensors of floating-point numbers.
    ValueError
        For shapes that do not fit, unknown accumulations, and formats that the dtype does not contain.

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> a, b = torch.full((1, 4096), 0.1), torch.ones(4096, 1)
    >>> ft.matmul(ft.quantize(a, "bf16"), b, accumulate="bf16")
    tensor([[32.]])
    """
    for x, argument in ((a, "a"), (b, "b")):
        if checked(x, argument).ndim < 2:
            raise ValueError(f"{argument} must have at least two axes, not the shape {tuple(x.shape)}")
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"a {tuple(a.shape)} and b {tuple(b.shape)} do not fit: the K of both must be equal")
    wide = a if torch.promote_types(a.dtype, b.dtype) == a.dtype else b
    fmt = _name(format_of_dtype(wide.dtype) if format is None else format, wide, "format")
    forward = _text(accumulate)
    rounded = "" if operands is None else _name(operands, wide, "operands")
    formats = f"{rounded}|{rounded}|{'' if grad is None else _name(grad, wide, 'grad')}"
    return torch.ops.floatsim.matmul(a, b, forward, fmt, forward if backward is None else _text(backward), formats)


# -- Linear ------------------------------------------------------------------------------------------------------------


@with_keyword_hints
class Linear(torch.nn.Linear):  # type: ignore[misc]
    """A linear layer whose operands are rounded to formats, and whose sums have a chosen accumulation.

    Parameters
    ----------
    in_features, out_features : int
    bias : bool
        As in `torch.nn.Linear`.
    format : format
        The format of the input and of the weight.
    grad : format, optional
        The format of the gradient operand of the two backward products. Default: it is not rounded.
    accumulate : description
        The accumulation of the product.
    backward : description, optional
        The accumulation of the backward products. Default: `accumulate`.
    device, dtype
        As in `torch.nn.Linear`.

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> layer = ft.Linear(4, 2, format="e4m3", grad="e5m2", accumulate="hopper")
    >>> layer
    Linear(in_features=4, out_features=2, bias=True, format=E4M3, grad=E5M2, accumulate=tensorcore(hopper))
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, format: FormatLike = "e4m3",
        grad: FormatLike | None = None, accumulate: AccumulationLike = "fp32",
        backward: AccumulationLike | None = None, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.format, self.accumulate = as_format(format), as_accumulation(accumulate)
        self.grad = None if grad is None else as_format(grad)
        self.backward_accumulate = self.accumulate if backward is None else as_accumulation(backward)

    def forward(self, input: Tensor) -> Tensor:
        """Return input @ weight.T + bias."""
        product = matmul(
            input.reshape(-1, input.shape[-1]), self.weight.transpose(0, 1), accumulate=self.accumulate,
            backward=self.backward_accumulate, operands=self.format, grad=self.grad,
        )  # fmt: skip
        y = product.reshape(*input.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        """Return the arguments."""
        grad = "" if self.grad is None else f", grad={self.grad}"
        return f"{super().extra_repr()}, format={self.format}{grad}, accumulate={self.accumulate}"
