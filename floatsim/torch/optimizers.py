"""ATen's fused optimizers and the unscaling of gradients: FP32 inside, one rounding when a tensor is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.arithmetic import add, divide, fma, maximum, multiply, negative, sqrt, subtract
from floatsim.torch.call import Call
from floatsim.torch.tensors import read

__all__ = ["FUSED"]

Store = Callable[[torch.Tensor, FloatArray], None]


def _skipped(found_inf: Any) -> bool:
    return found_inf is not None and float(found_inf) == 1.0


def _unscaled(c: Call, store: Store, gradient: torch.Tensor, scale: Any, maximize: bool) -> FloatArray:
    """Return a gradient divided by the loss scale, which is stored, too; with the other sign to maximize."""
    g = c.operand(gradient)
    if scale is not None:
        g = c.value(divide, g, read(scale))
        store(gradient, g)
    return negative(g) if maximize else g


def _adam(decoupled: bool) -> Callable[..., None]:
    """Return the handler of Adam, or of AdamW with decoupled weight decay.

    The lines of aten/src/ATen/native/cpu/FusedAdamKernel.cpp, PyTorch 2.13. Each is in FP32; m, v and w are rounded
    when they are stored, and used before that rounding.
    """

    def run(
        c: Call, store: Store, params: Sequence[Any], grads: Sequence[Any], means: Sequence[Any],
        squares: Sequence[Any], largest: Sequence[Any], steps: Sequence[Any], *, lr: Any, beta1: float, beta2: float,
        weight_decay: float, eps: float, amsgrad: bool, maximize: bool, grad_scale: Any = None, found_inf: Any = None,
    ) -> None:  # fmt: skip
        if _skipped(found_inf):
            return
        rate, n = float(lr), c.number
        for i, param in enumerate(params):
            g = _unscaled(c, store, grads[i], grad_scale, maximize)
            w, m, v, step = c.operand(param), c.operand(means[i]), c.operand(squares[i]), float(steps[i])
            if weight_decay and decoupled:
                w = c.value(multiply, w, n(1 - rate * weight_decay))
            elif weight_decay:
                g = c.value(fma, w, n(weight_decay), g)
            small = 1 - beta1 < 0.5
            factor = n(1 - beta1 if small else -beta1)
            m = c.value(fma, factor, c.value(subtract, g, m), m if small else g)
            added = c.value(multiply, c.value(multiply, n(1 - beta2), g), g)
            v = c.value(add, c.value(multiply, v, n(beta2)), added)
            store(means[i], m)
            store(squares[i], v)
            if amsgrad:
                v = c.value(maximum, c.operand(largest[i]), v)
                store(largest[i], v)
            root = c.value(divide, c.value(sqrt, v), n((1 - beta2**step) ** 0.5))
            change = c.value(multiply, n(-rate / (1 - beta1**step)), m)
            store(param, c.value(add, w, c.value(divide, change, c.value(add, root, n(eps)))))

    return run


def _sgd(
    c: Call, store: Store, params: Sequence[Any], grads: Sequence[Any], moments: Sequence[Any], *,
    weight_decay: float, momentum: float, lr: Any, dampening: float, nesterov: bool, maximize: bool,
    is_first_step: bool, grad_scale: Any = None, found_inf: Any = None,
) -> None:  # fmt: skip
    """Carry out a step of SGD, as aten/src/ATen/native/cpu/FusedSGDKernel.cpp of PyTorch 2.13."""
    if _skipped(found_inf):
        return
    for i, param in enumerate(params):
        g, w = _unscaled(c, store, grads[i], grad_scale, maximize), c.operand(param)
        if weight_decay:
            g = c.value(fma, w, c.number(weight_decay), g)
        if momentum:
            b = (
                g
                if is_first_step
                else c.value(
                    fma, c.operand(moments[i]), c.number(momentum), c.value(multiply, g, c.number(1 - dampening))
                )
            )
            store(moments[i], b)
            g = c.value(fma, b, c.number(momentum), g) if nesterov else b
        store(param, c.value(fma, g, c.number(-float(lr)), w))


def _adagrad(
    c: Call, store: Store, params: Sequence[Any], grads: Sequence[Any], sums: Sequence[Any], steps: Sequence[Any], *,
    lr: Any, lr_decay: float, weight_decay: float, eps: float, maximize: bool, grad_scale: Any = None,
    found_inf: Any = None,
) -> None:  # fmt: skip
    """Carry out a step of Adagrad, as aten/src/ATen/native/cpu/FusedAdagradKernel.cpp of PyTorch 2.13."""
    if _skipped(found_inf):
        return
    for i, param in enumerate(params):
        g, w = _unscaled(c, store, grads[i], grad_scale, maximize), c.operand(param)
        if weight_decay:
            g = c.value(fma, w, c.number(weight_decay), g)
        total = c.value(fma, g, g, c.operand(sums[i]))
        store(sums[i], total)
        rate = float(lr) / (1 + (float(steps[i]) - 1) * lr_decay)
        denominator = c.value(add, c.value(sqrt, total), c.number(eps))
        store(param, c.value(subtract, w, c.value(divide, c.value(multiply, c.number(rate), g), denominator)))


def _unscale(c: Call, store: Store, grads: Sequence[Any], found_inf: Any, inverse: Any) -> None:
    """Multiply gradients by 1 / scale, and set found_inf to 1 if one is not finite. The scale is not rounded."""
    factor = read(inverse)
    for gradient in grads:
        if not np.isfinite(read(gradient).values).all():
            found_inf.fill_(1.0)
        store(gradient, c.value(multiply, c.operand(gradient), factor))


FUSED: dict[str, Callable[..., None]] = {
    "_fused_adam_": _adam(False),
    "_fused_adamw_": _adam(True),
    "_fused_sgd_": _sgd,
    "_fused_adagrad_": _adagrad,
    "_amp_foreach_non_finite_check_and_unscale_": _unscale,
}
"""By the name of the ATen operation: the handler, which stores its results itself."""
