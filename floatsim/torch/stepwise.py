"""Losses and activations, written out with the steps of PyTorch's kernels, each of which is emulated.

Each step is rounded to the dtype, as in the kernels for 16 bits, unless the function says that the kernel computes in
FP32. The files are those of aten/src/ATen/native of PyTorch 2.13. Comparisons treat NaN as the vectorized kernels do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

__all__ = ["STEPWISE"]

_NONE, _MEAN, _SUM = 0, 1, 2


def _reduced(losses: Any, reduction: int) -> Any:
    """Return the losses, their mean or their sum."""
    return {_NONE: lambda: losses, _MEAN: losses.mean, _SUM: losses.sum}[reduction]()


def _like(value: Any, x: Any) -> Any:
    """Return a number as a tensor like x, so that it is rounded as a tensor; tensors as they are."""
    return value if isinstance(value, torch.Tensor) else torch.full_like(x, value)


_16_BITS = (torch.float16, torch.bfloat16)


def _in_fp32(dtypes: tuple[torch.dtype, ...], *tensors: Any) -> tuple[Any, ...]:
    """Return tensors of these dtypes in FP32, for a kernel that computes in FP32."""
    return tuple(x.float() if x.dtype in dtypes else x for x in tensors)


def _norm(x: Any, reduction: int) -> float:
    """Return the share of an element in a loss."""
    return 1 / x.numel() if reduction == _MEAN else 1.0


def _mse_loss(x: Any, target: Any, reduction: int = _MEAN) -> Any:
    """Return (x - target) ** 2, as cpu/BinaryOpsKernel.cpp, mse_kernel."""
    difference = x - target
    return _reduced(difference * difference, reduction)


def _mse_loss_backward(gradient: Any, x: Any, target: Any, reduction: int) -> Any:
    difference = x - target
    return _like(2 * _norm(x, reduction), difference) * difference * gradient


def _huber_loss(x: Any, target: Any, reduction: int = _MEAN, delta: float = 1.0) -> Any:
    """Return 0.5 * z * z for z = |x - target| up to delta, and delta * (z - 0.5 * delta) beyond, as huber_kernel.

    The kernel for FP16 computes in FP32.
    """
    left, right = _in_fp32((torch.float16,), x, target)
    z = (left - right).abs()
    bound = _like(delta, z)
    losses = torch.where(z <= bound, z * 0.5 * z, bound * (z - bound * 0.5))
    return _reduced(losses.to(torch.promote_types(x.dtype, target.dtype)), reduction)


def _huber_loss_backward(gradient: Any, x: Any, target: Any, reduction: int, delta: float) -> Any:
    """Return the gradient times the difference, or times delta beyond it, as huber_backward_cpu_kernel."""
    difference = x - target
    norm, bound = _like(_norm(x, reduction), difference), _like(delta, difference)
    beyond = norm * gradient * bound
    inside = torch.where(difference >= bound, beyond, norm * difference * gradient)
    return torch.where(difference <= -bound, -beyond, inside)


def _smooth_l1_loss(x: Any, target: Any, reduction: int = _MEAN, beta: float = 1.0) -> Any:
    """Return 0.5 * z * z / beta for z = |x - target| below beta, and z - 0.5 * beta elsewhere, as smooth_l1_kernel.

    The kernel for BF16 computes in FP32.
    """
    left, right = _in_fp32((torch.bfloat16,), x, target)
    z = (left - right).abs()
    bound = _like(beta, z)
    losses = torch.where(z < bound, z * 0.5 * z / bound, z - bound * 0.5)
    return _reduced(losses.to(torch.promote_types(x.dtype, target.dtype)), reduction)


def _smooth_l1_loss_backward(gradient: Any, x: Any, target: Any, reduction: int, beta: float) -> Any:
    """Return the gradient times the difference / beta, or its sign beyond beta, in FP32."""
    g, left, right = _in_fp32(_16_BITS, gradient, x, target)
    difference = left - right
    slope = torch.where(difference.abs() >= beta, torch.sign(difference), difference / beta)
    return (_like(_norm(x, reduction), slope) * slope * g).to(x.dtype)


def _binary_cross_entropy(x: Any, target: Any, weight: Any = None, reduction: int = _MEAN) -> Any:
    """Return (target - 1) * max(log1p(-x), -100) - target * max(log(x), -100), as Loss.cpp."""
    first = (target - 1) * torch.log1p(-x).clamp_min(-100)
    losses = first - target * torch.log(x).clamp_min(-100)
    return _reduced(losses if weight is None else losses * weight, reduction)


def _soft_margin_loss(x: Any, target: Any, reduction: int = _MEAN) -> Any:
    """Return log1p(exp(-target * x)), as Loss.cpp."""
    return _reduced((-target * x).exp().log1p(), reduction)


def _soft_margin_loss_backward(gradient: Any, x: Any, target: Any, reduction: int) -> Any:
    z = torch.exp(-target * x)
    return target * z * _like(-_norm(x, reduction), z) / (z + 1) * gradient


def _xlogy(x: Any, y: Any) -> Any:
    """Return x * log(y), 0 where x is 0, and NaN where y is NaN, as cpu/BinaryOpsKernel.cpp, xlogy_kernel."""
    like = y if isinstance(y, torch.Tensor) else x
    left, right = _like(x, like), _like(y, like)
    product = left * torch.log(right)
    return torch.where(torch.isnan(right), torch.nan, torch.where(left == 0, 0.0, product))


def _logit(x: Any, eps: float | None = None) -> Any:
    """Return log(x / (1 - x)) for x between eps and 1 - eps, as cpu/UnaryOpsKernel.cpp, logit_kernel."""
    given = x if eps is None else x.clamp(eps, 1 - eps)
    return torch.log(given / (1 - given))


def _logit_backward(gradient: Any, x: Any, eps: float | None = None) -> Any:
    """Return gradient / (x * (1 - x)); outside the bounds NaN, or 0 with eps; infinity at 0 and 1."""
    low, outside = (0.0, torch.nan) if eps is None else (eps, 0.0)
    ends = (x == 0) | (x == 1)
    inside = torch.where(ends, gradient * torch.inf, gradient / (x * (1 - x)))
    return torch.where((x < low) | (x > 1 - low), outside, inside)


# -- gradients of activations ------------------------------------------------------------------------------------------


def _hardtanh_backward(gradient: Any, x: Any, low: float, high: float) -> Any:
    (given,) = _in_fp32(_16_BITS, x)  # the bounds are not rounded
    return torch.where((given > low) & (given < high), gradient, 0.0)


def _hardshrink_backward(gradient: Any, x: Any, threshold: float) -> Any:
    (given,) = _in_fp32(_16_BITS, x)
    return torch.where((given < -threshold) | (given > threshold), gradient, 0.0)


def _hardsigmoid_backward(gradient: Any, x: Any) -> Any:
    """Return the gradient / 6 between -3 and 3. The kernel has 1 / 6 in FP32, also for FP64."""
    inside = gradient * float(np.float32(1 / 6))
    return torch.where((x > -3) & (x < 3), inside, 0.0)


def _hardswish_backward(gradient: Any, x: Any) -> Any:
    g, given = _in_fp32(_16_BITS, gradient, x)
    inside = torch.where(given >= 3, g, g * (given / 3 + 0.5))
    return torch.where(given <= -3, 0.0, inside).to(x.dtype)


def _elu_backward(
    gradient: Any, alpha: float, scale: float, input_scale: float, is_result: bool, given: Any
) -> Any:  # fmt: skip
    """Return the gradient of elu, celu and selu from the operand, or from the result."""
    g, x = _in_fp32(_16_BITS, gradient, given)
    factor = alpha * scale
    low = g * input_scale * (x + factor) if is_result else g * input_scale * factor * torch.exp(x * input_scale)
    return torch.where(x > 0, g * scale, low).to(given.dtype)


def _glu_backward(gradient: Any, x: Any, dim: int) -> Any:
    """Return the gradients of x * sigmoid(y). The sigmoid is rounded to the dtype, the rest is in FP32."""
    first, second = x.chunk(2, dim)
    gate = torch.sigmoid(second)
    s, left, g = _in_fp32(_16_BITS, gate, first, gradient)
    return torch.cat([gate * gradient, ((1 - s) * s * left * g).to(x.dtype)], dim)


def _mish_backward(gradient: Any, x: Any) -> Any:
    """Return gradient * (t + x * sigmoid(x) * (1 - t * t)) for t = tanh(softplus(x)), in FP32."""
    g, given = _in_fp32(_16_BITS, gradient, x)
    t = torch.tanh(torch.nn.functional.softplus(given))
    return (g * (t + given * torch.sigmoid(given) * (1 - t * t))).to(x.dtype)


# -- products ----------------------------------------------------------------------------------------------------------


def _multiplied_and_added(x: Any, y: Any, z: Any) -> Any:
    """Return x * y + z with one rounding, as the compiled kernels for FP32; in 16 bits each step is rounded."""
    return x * y + z if x.dtype.itemsize == 2 else torch.addcmul(z, x, y)


def _addr(x: Any, column: Any, row: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """Return beta * x + alpha * column * row, as cpu/LinearAlgebraKernel.cpp."""
    left = (column if alpha == 1 else _like(alpha, column) * column).unsqueeze(1)
    if beta == 0:
        return left * row
    return _multiplied_and_added(left, row, x if beta == 1 else _like(beta, x) * x)


def _cross(x: Any, y: Any, *, dim: int = -1) -> Any:
    """Return the cross product along an axis of length 3, as cpu/CrossKernel.cpp."""
    left, right = torch.broadcast_tensors(x, y)
    next_, last = torch.tensor([1, 2, 0]), torch.tensor([2, 0, 1])
    parts = [each.index_select(dim, places) for places in (next_, last) for each in (left, right)]
    return _multiplied_and_added(parts[0], parts[3], -(parts[2] * parts[1]))


# -- the margin losses ------------------------------------------------------------------------------------------------


def _multi_margin_loss(
    x: Any, target: Any, p: float = 1, margin: float = 1, weight: Any = None, reduction: int = _MEAN
) -> Any:  # fmt: skip
    """Return the mean of max(0, margin - x[target] + x[class]) ** p over the classes, as LossMultiMargin.cpp.

    A margin that is NaN counts as 0, as in the kernel.
    """
    rows, labels = x.reshape(-1, x.shape[-1]), target.reshape(-1, 1)
    margins = margin - rows.gather(1, labels) + rows
    others = torch.ones(margins.shape, dtype=torch.bool).scatter(1, labels, False)
    margins = torch.where(others & (margins > 0), margins, 0.0)
    terms = margins if p == 1 else margins * margins
    if weight is not None:
        terms = terms * weight[labels]
    losses = terms.sum(1) / x.shape[-1]
    return _reduced(losses.view(x.shape[:-1]) if reduction == _NONE else losses, reduction)


def _margins(x: Any, target: Any) -> tuple[Any, Any, Any]:
    """Return the labels of each row up to the first -1, which classes are labels, and the margins.

    Shapes: (rows, labels), (rows, classes), and twice (rows, labels, classes). A margin is 1 - x[label] + x[class], and
    zero where the label does not exist, where the class is a label, and where the margin is not positive.
    """
    rows, labels = x.reshape(-1, x.shape[-1]), target.reshape(-1, x.shape[-1])
    exists = (labels >= 0).long().cumprod(1).bool()
    labels = labels.clamp_min(0)
    is_label = torch.zeros(labels.shape, dtype=torch.long).scatter_add(1, labels, exists.long()) > 0
    margins = (1 - rows.gather(1, labels)).unsqueeze(2) + rows.unsqueeze(1)
    kept = exists.unsqueeze(2) & ~is_label.unsqueeze(1) & (margins > 0)
    return labels, is_label, torch.where(kept, margins, 0.0)


def _multilabel_margin_loss(x: Any, target: Any, reduction: int) -> tuple[Any, Any]:
    """Return the sum of the margins of each row, divided by the number of classes, as LossMultiLabelMargin.cpp.

    PyTorch's own decomposition (torch._decomp) ends neither the labels at -1 nor keeps the shape of one row.
    """
    _, is_label, margins = _margins(x, target)
    losses = margins.sum((1, 2)) / x.shape[-1]
    marks = is_label.to(x.dtype).view(target.shape)
    if reduction == _NONE:
        return losses.view(x.shape[:-1]), marks
    total = losses.sum()
    return total / len(losses) if reduction == _MEAN else total, marks


def _multilabel_margin_loss_backward(gradient: Any, x: Any, target: Any, reduction: int, is_target: Any) -> Any:
    """Return the share of a row for each margin: added to the class, and subtracted from the label."""
    labels, _, margins = _margins(x, target)
    classes = x.shape[-1]
    share = torch.full((), 1 / (classes * len(labels)) if reduction == _MEAN else 1 / classes, dtype=x.dtype)
    shares = torch.where(margins > 0, share, 0.0)
    by_class, by_label = shares.sum(1), -shares.sum(2)
    found = by_class.scatter_add(1, labels, by_label)
    if reduction == _NONE:
        gradient = gradient.reshape(-1, 1)
    return (found * gradient).view(x.shape)


STEPWISE: dict[str, Callable[..., Any]] = {
    "mse_loss": _mse_loss,
    "huber_loss": _huber_loss,
    "smooth_l1_loss": _smooth_l1_loss,
    "binary_cross_entropy": _binary_cross_entropy,
    "soft_margin_loss": _soft_margin_loss,
    "soft_margin_loss_backward": _soft_margin_loss_backward,
    "xlogy": _xlogy,
    "logit": _logit,
    "mse_loss_backward": _mse_loss_backward,
    "huber_loss_backward": _huber_loss_backward,
    "smooth_l1_loss_backward": _smooth_l1_loss_backward,
    "logit_backward": _logit_backward,
    "hardtanh_backward": _hardtanh_backward,
    "hardshrink_backward": _hardshrink_backward,
    "softshrink_backward": _hardshrink_backward,
    "hardsigmoid_backward": _hardsigmoid_backward,
    "hardswish_backward": _hardswish_backward,
    "elu_backward": _elu_backward,
    "glu_backward": _glu_backward,
    "mish_backward": _mish_backward,
    "addr": _addr,
    "linalg_cross": _cross,
    "multi_margin_loss": _multi_margin_loss,
    "multilabel_margin_loss_forward": _multilabel_margin_loss,
    "multilabel_margin_loss_backward": _multilabel_margin_loss_backward,
}
"""By the name of the ATen operation: a function of PyTorch operations."""
