"""Fake quantization for quantization-aware training (QAT): straight-through gradients, and a learned scale (LSQ)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from floatsim.formats import FloatFormat
from floatsim.formats._validation import as_flag, as_real, with_keyword_hints
from floatsim.quantization.blocks import quantize_blocks
from floatsim.quantization.integer import IntegerFormat
from floatsim.quantization.lookup import LookupFormat
from floatsim.quantization.quantized import Quantized
from floatsim.quantization.scheme import Scheme, SchemeLike, as_name, as_scheme, layout
from floatsim.torch.blocks import checked
from floatsim.torch.tensors import read, tensor_of

__all__ = ["FakeQuantize", "fake_quantize"]

_GRADIENTS = ("clipped", "ste")
_LEAST_SCALE = 2.0**-23


def _ends(q: Quantized) -> tuple[Any, Any]:
    """Return the smallest and the largest element, less the zero points, in the shape of the scales or as numbers."""
    fmt = q.format
    if isinstance(fmt, FloatFormat):
        return -fmt.max, fmt.max
    if isinstance(fmt, LookupFormat):
        return min(fmt.values), max(fmt.values)
    unit = 2.0**-fmt.fraction_bits
    zero = 0 if q.zero_points is None else q.zero_points
    return (fmt.min - zero) * unit, (fmt.max - zero) * unit


def _spread(numbers: Any, scheme: Scheme, shape: tuple[int, ...]) -> Any:
    """Return one number for each element: that of its block."""
    array = np.asarray(numbers)
    if not array.ndim:
        return array
    blocks = layout(scheme, shape).blocks
    matrix = shape if len(shape) > 1 else (1, *shape)
    grid = array if len(shape) > 1 else array.reshape(1, -1)
    height = matrix[-2] if scheme.block[0] is None else min(scheme.block[0], matrix[-2])
    width = blocks.width if scheme.block[1] is not None else matrix[-1]
    spread = np.repeat(np.repeat(grid, height, axis=-2), width, axis=-1)
    return spread[..., : matrix[-2], : matrix[-1]].reshape(shape)


def _sums(x: Any, scheme: Scheme, shape: tuple[int, ...]) -> Any:
    """Return the sum of the elements of each block, in float64, in the shape of the scales."""
    scale_shape = layout(scheme, shape).scale_shape
    if not scale_shape:
        return np.asarray(x.sum())
    matrix = x if x.ndim > 1 else x.reshape(1, -1)
    height = scheme.block[0] or matrix.shape[-2]
    width = scheme.block[1] or matrix.shape[-1]
    down = np.add.reduceat(matrix, np.arange(0, matrix.shape[-2], height), axis=-2)
    return np.add.reduceat(down, np.arange(0, matrix.shape[-1], width), axis=-1).reshape(scale_shape)


class _FakeQuantize(torch.autograd.Function):  # type: ignore[misc]
    """Quantization and back; the gradients of x and of the scale."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor | None, scheme: Scheme, grad: str, factor: float | None) -> Tensor:
        given = None if scale is None else read(scale.detach().cpu())
        table = isinstance(scheme.format, LookupFormat)
        rounding = {} if table else {"rounding": "ties_to_even"}
        q = quantize_blocks(read(x.detach().cpu()), scheme, scale=given, **rounding)  # type: ignore[arg-type]
        ctx.save_for_backward(x, torch.tensor([]) if scale is None else scale)
        ctx.quantized, ctx.grad, ctx.factor, ctx.learns = q, grad, factor, scale is not None
        return tensor_of(q.dequantize(), x.dtype).to(x.device)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, scale = ctx.saved_tensors
        q: Quantized = ctx.quantized
        scheme, shape = q.scheme, tuple(x.shape)
        scaled, values = _scaled(x, q), x.detach().cpu().double().numpy()
        low, high = (_spread(end, scheme, shape) for end in _ends(q))
        rounded, reach = scaled, 0.0
        if isinstance(q.format, IntegerFormat):
            unit = 2.0**-q.format.fraction_bits
            rounded = np.rint(scaled / unit) * unit
        elif isinstance(q.format, FloatFormat):
            reach = 2.0 ** (q.format.emax - q.format.trailing_bits - 1)  # half a unit: beyond it, rounding overflows
        inside = (rounded >= low - reach) & (rounded <= high + reach)
        of_x = gradient
        if ctx.grad == "clipped":
            of_x = gradient * torch.from_numpy(np.ascontiguousarray(inside)).to(gradient.device)
        of_scale = None
        if ctx.learns and ctx.needs_input_grad[1]:
            element = q.elements.values
            slope = np.where(inside, element - scaled, np.where(scaled < low, low, high))
            sums = _sums(gradient.detach().cpu().double().numpy() * slope, scheme, shape)
            terms = max(values.size // max(q.scales.size, 1), 1)
            top = float(np.max(_ends(q)[1]))
            factor = 1 / math.sqrt(terms * top) if ctx.factor is None else ctx.factor
            of_scale = torch.from_numpy(np.asarray(sums * factor)).reshape(scale.shape).to(scale)
        return of_x, of_scale, None, None, None


def _scaled(x: Tensor, q: Quantized) -> Any:
    """Return the elements before they are rounded, computed in FP32 as in `fs.quantize_blocks`, in float64."""
    scheme, shape = q.scheme, tuple(x.shape)
    scales = _spread(q.scales.values, scheme, shape)
    if q.tensor_scale is not None:
        scales = scales * _spread_second(q, shape)
    values, divisors = x.detach().cpu().float().numpy(), np.asarray(scales, np.float32)
    with np.errstate(all="ignore"):
        scaled = values / divisors if scheme.factor == "divide" else values * (np.float32(1) / divisors)
    return scaled.astype(np.float64)


def _spread_second(q: Quantized, shape: tuple[int, ...]) -> Any:
    """Return the tensor scale for each element."""
    assert q.tensor_scale is not None
    values = np.asarray(q.tensor_scale.values)
    if q.scheme.outer == "tensor":
        return values
    size = q.scales.shape[-1] if q.scheme.outer == "row" else q.scheme.outer // q.scheme.block[1]
    return _spread(np.repeat(values, size, axis=-1)[..., : q.scales.shape[-1]], q.scheme, shape)


@with_keyword_hints
def fake_quantize(
    x: Tensor, scheme: SchemeLike, *, scale: Tensor | None = None, grad: str = "clipped",
    scale_gradient: float | None = None, **changes: Any,
) -> Tensor:  # fmt: skip
    """Quantize a tensor and return the numbers that the codes stand for, with gradients for training.

    Parameters
    ----------
    x : torch.Tensor
        Floating-point numbers of FP32, BF16 or FP16.
    scheme : str, Scheme or format
        As in `fs.quantize_blocks`.
    scale : torch.Tensor, optional
        The scales, positive, in the shape of the scales of `fs.quantize_blocks`. A tensor with `requires_grad` is
        learned (LSQ, arXiv 1902.08153). Default: the rule of the scheme, without a gradient.
    grad : str
        The gradient by x. "clipped": it passes unchanged where the rounded element is in the range of the format, and
        is zero elsewhere, as in `torch.fake_quantize_per_tensor_affine`. "ste": it passes everywhere.
    scale_gradient : float, optional
        The factor of the gradient by the scale. Default: LSQ's 1 / sqrt(N max), for N elements with one scale and the
        largest number max.
    **changes
        Fields of the scheme, such as `block=128` or `rule="asymmetric"`.

    Returns
    -------
    torch.Tensor
        In the shape and the dtype of x.

    Raises
    ------
    TypeError
        If x is no tensor of floating-point numbers.
    ValueError
        For unknown schemes and words, with the nearest match, and for scales that are not positive.

    Notes
    -----
    The gradient by the scale of a block is the sum over its elements of gradient * slope, in float64. With t = x / s
    the slope is round(t) - t where round(t) is in the range, and the end of the range elsewhere, as in PyTorch.

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> x = torch.tensor([[0.6, -1.0, 0.25, 9.0]], requires_grad=True)
    >>> s = torch.tensor(1.0, requires_grad=True)
    >>> y = ft.fake_quantize(x, "int4", scale=s, scale_gradient=1.0)
    >>> y.sum().backward()
    >>> y.tolist(), x.grad.tolist(), round(s.grad.item(), 2)
    ([[1.0, -1.0, 0.0, 7.0]], [[1.0, 1.0, 1.0, 0.0]], 7.15)
    """
    settled = as_scheme(scheme)
    if changes:
        known = [each.name for each in dataclasses.fields(Scheme)]
        for name in changes:
            as_name(name, known, "keyword")
        settled = dataclasses.replace(settled, **changes)
    if scale_gradient is not None:
        as_real(scale_gradient, "scale_gradient")
    if scale is not None and not isinstance(scale, Tensor):
        raise TypeError(f"scale must be a tensor, not {type(scale).__name__}; torch.tensor({scale!r:.40}) makes one")
    return _FakeQuantize.apply(checked(x, "x"), scale, settled, as_name(grad, _GRADIENTS, "grad"), scale_gradient)


@with_keyword_hints
class FakeQuantize(torch.nn.Module):  # type: ignore[misc]
    """A module that fake-quantizes its input: for activations, or as a parametrization of weights.

    `torch.nn.utils.parametrize.register_parametrization(layer, "weight", FakeQuantize("int4", block="row"))` trains a
    layer whose weights are quantized in every forward pass.

    Parameters
    ----------
    scheme : str, Scheme or format
        As in `fs.quantize_blocks`.
    learned : bool
        Whether the scale is a parameter (LSQ). Its first value follows from the first input of the module:
        2 mean|x| / sqrt(max), for each block. A step that leaves it below 2^-23, or negative, sets it to 2^-23, as
        PyTorch's learnable fake quantization does.
    grad : str
        The gradient by the input: "clipped" or "ste", as in `fake_quantize`.
    **changes
        Fields of the scheme.

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> layer = torch.nn.Linear(4, 2, bias=False)
    >>> _ = torch.nn.utils.parametrize.register_parametrization(layer, "weight", ft.FakeQuantize("int4", block="row"))
    >>> layer(torch.eye(4)).sum().backward()
    >>> layer.parametrizations.weight.original.grad.abs().sum() > 0
    tensor(True)
    """

    def __init__(self, scheme: SchemeLike, *, learned: bool = False, grad: str = "clipped", **changes: Any) -> None:
        super().__init__()
        self.scheme = dataclasses.replace(as_scheme(scheme), **changes)
        self.grad = as_name(grad, _GRADIENTS, "grad")
        self.scale: torch.nn.Parameter | None = None
        if as_flag(learned, "learned"):
            if isinstance(self.scheme.format, IntegerFormat) and self.scheme.rule in ("asymmetric", "full_range"):
                raise ValueError(f"learned=True is for scales without zero points, not for rule={self.scheme.rule!r}")
            self.scale = torch.nn.Parameter(torch.empty(0))

    def forward(self, x: Tensor) -> Tensor:
        """Return the fake-quantized input."""
        if self.scale is not None and not self.scale.numel():
            self._start(x)
        if self.scale is not None:
            self.scale.data.clamp_(min=_LEAST_SCALE)
        return fake_quantize(x, self.scheme, scale=self.scale, grad=self.grad)

    def _start(self, x: Tensor) -> None:
        """Set the first scales from an input."""
        assert self.scale is not None
        values = x.detach().cpu().double().numpy()
        shape = tuple(x.shape)
        sums = _sums(np.abs(values), self.scheme, shape)
        counts = _sums(np.ones(shape), self.scheme, shape)
        fmt = self.scheme.format
        top = fmt.max if isinstance(fmt, FloatFormat) else fmt.largest
        mean = sums / counts
        first = np.where(mean > 0, 2 * mean / math.sqrt(top), 1.0)
        self.scale.data = torch.from_numpy(np.asarray(first)).to(dtype=torch.float32, device=x.device)
