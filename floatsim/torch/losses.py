"""Losses and functions that are written out with the steps of PyTorch's kernels, each of which is emulated.

Each step is rounded to the dtype, as in the kernels for 16 bits, unless the function says that the kernel computes in
FP32. The files are those of aten/src/ATen/native of PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["LOSSES"]

_NONE, _MEAN, _SUM = 0, 1, 2


def _reduced(losses: Any, reduction: int) -> Any:
    """Return the losses, their mean or their sum."""
    return {_NONE: lambda: losses, _MEAN: losses.mean, _SUM: losses.sum}[reduction]()


def _like(value: Any, x: Any) -> Any:
    """Return a number as a tensor like x, so that it is rounded as a tensor; tensors as they are."""
    return value if isinstance(value, torch.Tensor) else torch.full_like(x, value)


def _in_fp32(dtype: torch.dtype, *tensors: Any) -> tuple[Any, ...]:
    """Return tensors of this dtype in FP32, for a kernel that computes in FP32."""
    return tuple(x.float() if x.dtype == dtype else x for x in tensors)


def _mse_loss(x: Any, target: Any, reduction: int = _MEAN) -> Any:
    """Return (x - target) ** 2, as cpu/BinaryOpsKernel.cpp, mse_kernel."""
    difference = x - target
    return _reduced(difference * difference, reduction)


def _huber_loss(x: Any, target: Any, reduction: int = _MEAN, delta: float = 1.0) -> Any:
    """Return 0.5 * z * z for z = |x - target| up to delta, and delta * (z - 0.5 * delta) beyond, as huber_kernel.

    The kernel for FP16 computes in FP32.
    """
    left, right = _in_fp32(torch.float16, x, target)
    z = (left - right).abs()
    bound = _like(delta, z)
    losses = torch.where(z <= bound, z * 0.5 * z, bound * (z - bound * 0.5))
    return _reduced(losses.to(torch.promote_types(x.dtype, target.dtype)), reduction)


def _smooth_l1_loss(x: Any, target: Any, reduction: int = _MEAN, beta: float = 1.0) -> Any:
    """Return 0.5 * z * z / beta for z = |x - target| below beta, and z - 0.5 * beta elsewhere, as smooth_l1_kernel.

    The kernel for BF16 computes in FP32.
    """
    left, right = _in_fp32(torch.bfloat16, x, target)
    z = (left - right).abs()
    bound = _like(beta, z)
    losses = torch.where(z < bound, z * 0.5 * z / bound, z - bound * 0.5)
    return _reduced(losses.to(torch.promote_types(x.dtype, target.dtype)), reduction)


def _binary_cross_entropy(x: Any, target: Any, weight: Any = None, reduction: int = _MEAN) -> Any:
    """Return (target - 1) * max(log1p(-x), -100) - target * max(log(x), -100), as Loss.cpp."""
    first = (target - 1) * torch.log1p(-x).clamp_min(-100)
    losses = first - target * torch.log(x).clamp_min(-100)
    return _reduced(losses if weight is None else losses * weight, reduction)


def _soft_margin_loss(x: Any, target: Any, reduction: int = _MEAN) -> Any:
    """Return log1p(exp(-target * x)), as Loss.cpp."""
    return _reduced((-target * x).exp().log1p(), reduction)


def _soft_margin_loss_backward(gradient: Any, x: Any, target: Any, reduction: int) -> Any:
    norm = 1 / x.numel() if reduction == _MEAN else 1.0
    z = torch.exp(-target * x)
    return target * z * -norm / (z + 1) * gradient


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


# -- the margin loss of several labels ---------------------------------------------------------------------------------


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


LOSSES: dict[str, Callable[..., Any]] = {
    "mse_loss": _mse_loss,
    "huber_loss": _huber_loss,
    "smooth_l1_loss": _smooth_l1_loss,
    "binary_cross_entropy": _binary_cross_entropy,
    "soft_margin_loss": _soft_margin_loss,
    "soft_margin_loss_backward": _soft_margin_loss_backward,
    "xlogy": _xlogy,
    "logit": _logit,
    "addr": _addr,
    "linalg_cross": _cross,
    "multilabel_margin_loss_forward": _multilabel_margin_loss,
    "multilabel_margin_loss_backward": _multilabel_margin_loss_backward,
}
"""By the name of the ATen operation: a function of PyTorch operations."""
