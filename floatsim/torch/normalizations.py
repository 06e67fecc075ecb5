"""ATen's softmax, norms and losses, on `floatsim.operators`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from floatsim.arrays.array.conversion import convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.arithmetic import add, divide, multiply
from floatsim.formats import FP64
from floatsim.formats.value_sets import contains
from floatsim.operators.computation import count
from floatsim.operators.norms import batch_norm, layer_norm, rms_norm
from floatsim.operators.norms_backward import batch_norm_backward, layer_norm_backward, rms_norm_backward
from floatsim.operators.softmax import log_softmax, softmax
from floatsim.operators.softmax_backward import log_softmax_backward, softmax_backward
from floatsim.torch.call import Call, Handler
from floatsim.torch.products import zeros
from floatsim.torch.tensors import format_of_dtype, tensor_of

__all__ = ["NORMALIZATIONS", "eps_of", "norm_of_rows"]


# -- softmax -----------------------------------------------------------------------------------------------------------


def _softmax(c: Call, x: Any, dim: int, half_to_float: bool = False) -> FloatArray:
    return c.operator(softmax, c.array(x), dim)  # type: ignore[no-any-return]


def _log_softmax(c: Call, x: Any, dim: int, half_to_float: bool = False) -> FloatArray:
    return c.operator(log_softmax, c.array(x), dim)  # type: ignore[no-any-return]


def _safe_softmax(c: Call, x: Any, dim: int, dtype: Any = None) -> FloatArray:
    """Return softmax, and zeros for a row of -infinity, as a mask that removes all keys makes it."""
    given = c.array(x)
    found = c.operator(softmax, given, dim)
    empty = np.isneginf(given.values).all(axis=dim, keepdims=True)
    return FloatArray(np.where(empty, found.codes.dtype.type(0), found.codes), found.format)


def _softmax_backward(c: Call, gradient: Any, y: Any, dim: int, dtype: Any) -> FloatArray:
    return c.operator(softmax_backward, c.array(gradient), c.array(y), dim)  # type: ignore[no-any-return]


def _log_softmax_backward(c: Call, gradient: Any, y: Any, dim: int, dtype: Any) -> FloatArray:
    return c.operator(log_softmax_backward, c.array(gradient), c.array(y), dim)  # type: ignore[no-any-return]


# -- norms -------------------------------------------------------------------------------------------------------------


def _flat(c: Call, x: Any, size: int) -> FloatArray | None:
    return None if x is None else c.array(x).reshape(-1, size)


def _parameter(c: Call, x: Any) -> FloatArray | None:
    return None if x is None else c.array(x).reshape(-1)


def _promoted(x: Any, weight: Any) -> torch.dtype:
    """Return the dtype of means and roots, as PyTorch: FP32 for 16-bit numbers beside FP32 weights, else that of x."""
    return torch.promote_types(x.dtype, x.dtype if weight is None else weight.dtype)


def _statistics(
    c: Call, rows: FloatArray, shape: Sequence[int], dtype: torch.dtype, eps: float
) -> tuple[Any, Any]:  # fmt: skip
    """Return mean and 1 / sqrt(variance + eps) of rows in float64, rounded once to the format of the intermediates.

    PyTorch returns them for its backward pass. The emulated backward pass computes its own again, and reads eps from
    the storage of the second tensor.
    """
    numbers = c.rounded(rows, c.formats.operands).values
    with np.errstate(all="ignore"):
        found = numbers.mean(-1), 1 / np.sqrt(numbers.var(-1) + eps)
    mean, root = (
        tensor_of(c.rounded(FloatArray(each.reshape(tuple(shape)).view(np.uint64), FP64), c.formats.inside), dtype)
        for each in found
    )
    root.untyped_storage()._floatsim_eps = eps
    return mean, root


def eps_of(root: Any) -> float:
    """Return the eps of the forward pass of a norm, 1e-5 if that was not emulated.

    >>> import torch
    >>> eps_of(torch.ones(1))
    1e-05
    """
    found: float = getattr(root.untyped_storage(), "_floatsim_eps", 1e-5)
    return found


def _layer_norm(c: Call, x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> tuple[FloatArray, ...]:
    return norm_of_rows(c, layer_norm, x, shape, (weight, bias), eps)


def norm_of_rows(
    c: Call, function: Any, x: Any, shape: Sequence[int], parameters: Sequence[Any], eps: float, recipe: Any = None
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Return layer_norm or rms_norm of the last axes, and the means and roots that PyTorch keeps for the gradient.

    Parameters
    ----------
    c : Call
    function : callable
        The operator: `fs.operators.layer_norm` or `rms_norm`.
    x : torch.Tensor
    shape : sequence of int
        The last axes, which are normalized.
    parameters : sequence of torch.Tensor or None
        The weight, and the bias of layer_norm.
    eps : float
    recipe : Recipe or str, optional
        The recipe of the operator. Default: that of the call.
    """
    rows = (c.array(x) if recipe is None else c.operand(x)).reshape(-1, math.prod(shape))
    chosen = c.formats.recipe if recipe is None else recipe
    output = function(rows, *(_parameter(c, each) for each in parameters), eps=eps, recipe=chosen)
    leading = (*x.shape[: x.ndim - len(shape)], *[1] * len(shape))
    dtype = _promoted(x, parameters[0]) if function is layer_norm else torch.promote_types(x.dtype, torch.float32)
    return (output.reshape(*x.shape), *_statistics(c, rows, leading, dtype, eps))


def _layer_norm_backward(
    c: Call, gradient: Any, x: Any, shape: Sequence[int], mean: Any, root: Any, weight: Any, bias: Any,
    mask: Sequence[bool],
) -> tuple[FloatArray | None, ...]:  # fmt: skip
    eps = eps_of(root)
    size = math.prod(shape)
    rows = _flat(c, gradient, size), _flat(c, x, size)
    found = c.operator(layer_norm_backward, *rows, _parameter(c, weight), eps=eps, formats=_inner(c))
    shapes = (x.shape, tuple(shape), tuple(shape))
    return _gradients(c, [each.reshape(*to) for each, to in zip(found, shapes, strict=True)], mask)


def _inner(c: Call) -> dict[str, Any]:
    """Return formats that leave the rounding of results to `_gradients`."""
    return {"output": c.formats.inside}


def _gradients(c: Call, found: Sequence[Any], mask: Sequence[bool]) -> tuple[FloatArray | None, ...]:
    """Return the gradient by the input and those by the parameters, in their formats; None for those not wanted."""
    roundings = [c.result, *[c.weight_result] * (len(found) - 1)]
    return tuple(
        rounding(each) if wanted and each is not None else None
        for rounding, each, wanted in zip(roundings, found, mask, strict=True)
    )


def _rms_norm(c: Call, x: Any, shape: Sequence[int], weight: Any, eps: float | None) -> tuple[FloatArray, FloatArray]:
    output, _, root = norm_of_rows(c, rms_norm, x, shape, (weight,), 2.0**-23 if eps is None else eps)
    return output, root


def _rms_norm_backward(
    c: Call, gradient: Any, x: Any, shape: Sequence[int], root: Any, weight: Any, mask: Sequence[bool]
) -> tuple[FloatArray | None, ...]:
    size = math.prod(shape)
    rows = _flat(c, gradient, size), _flat(c, x, size)
    found = c.operator(rms_norm_backward, *rows, _parameter(c, weight), eps=eps_of(root), formats=_inner(c))
    by_weight = None if weight is None else found.weight.reshape(*shape)
    return _gradients(c, (found.x.reshape(*x.shape), by_weight), mask)


def _batch_norm(
    c: Call, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    """Return the normalized batch and empty statistics. Running statistics are updated in place."""
    channels = x.shape[1]
    one = FloatArray(np.full(channels, 1.0).view(np.uint64), count(1).format)
    running = [one if each is None else c.array(each) for each in (mean, var)]
    found = c.operator(
        batch_norm, c.array(x), *running, _parameter(c, weight), _parameter(c, bias), training=training,
        momentum=momentum, eps=eps,
    )  # fmt: skip
    if training:
        for tensor, updated in ((mean, found.running_mean), (var, found.running_var)):
            if tensor is not None:
                c.update(tensor, updated)
    empty = x.new_empty(0)
    return found.output, empty, empty


def _batch_norm_no_stats(
    c: Call, x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    return _batch_norm(c, x, weight, bias, None, None, training, momentum, eps)


def _batch_norm_with_update(
    c: Call, x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> tuple[Any, ...]:
    return (*_batch_norm(c, x, weight, bias, mean, var, True, momentum, eps), x.new_empty(0))


def _batch_norm_inference(
    c: Call, x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> tuple[Any, ...]:
    return _batch_norm(c, x, weight, bias, mean, var, False, momentum, eps)


def _batch_norm_backward(
    c: Call, gradient: Any, x: Any, weight: Any, mean: Any, var: Any, save_mean: Any, save_root: Any, train: bool,
    eps: float, mask: Sequence[bool],
) -> tuple[FloatArray | None, ...]:  # fmt: skip
    one = FloatArray(np.full(x.shape[1], 1.0).view(np.uint64), count(1).format)
    running = [one if each is None else c.array(each) for each in (mean, var)]
    found = c.operator(
        batch_norm_backward, c.array(gradient), c.array(x), *running, _parameter(c, weight), training=train, eps=eps,
        formats=_inner(c),
    )  # fmt: skip
    return _gradients(c, found, mask)


def _group_norm(
    c: Call, x: Any, weight: Any, bias: Any, n: int, channels: int, size: int, groups: int, eps: float
) -> tuple[FloatArray, ...]:
    """Return each group normalized as a row of layer_norm, then times weight plus bias for each channel."""
    rows = c.array(x).reshape(n * groups, -1)
    found = c.operator(layer_norm, rows, eps=eps, formats=_inner(c)).reshape(n, channels, -1)
    for parameter, function in ((weight, multiply), (bias, add)):
        if parameter is not None:
            found = c.value(function, found, c.operand(parameter).reshape(-1, 1))
    return (c.result(found).reshape(*x.shape), *_statistics(c, rows, (n, groups), _promoted(x, weight), eps))


def _group_norm_backward(
    c: Call, gradient: Any, x: Any, mean: Any, root: Any, weight: Any, n: int, channels: int, size: int, groups: int,
    mask: Sequence[bool],
) -> tuple[FloatArray | None, ...]:  # fmt: skip
    eps = eps_of(root)
    g, rows = c.gradient(gradient).reshape(n, channels, -1), c.array(x).reshape(n * groups, -1)
    weighted = g if weight is None else c.value(multiply, g, c.operand(weight).reshape(-1, 1))
    kept = {"gradient": c.formats.inside, **_inner(c)}
    by_x = c.operator(layer_norm_backward, weighted.reshape(n * groups, -1), rows, eps=eps, formats=kept).x
    normalized = c.operator(layer_norm, rows, eps=eps, formats=_inner(c)).reshape(n, channels, -1)
    by_weight, by_bias = c.sum(c.value(multiply, g, normalized), (0, 2)), c.sum(g, (0, 2))
    return _gradients(c, (by_x.reshape(*x.shape), by_weight, by_bias), mask)


# -- the loss of a classification --------------------------------------------------------------------------------------

_MEAN, _SUM = 1, 2


def _classes(target: Any, ignore_index: int) -> tuple[Any, Any]:
    """Return the class of each row, 0 for rows to ignore, and which rows are kept."""
    indices = target.numpy()
    kept = indices != ignore_index
    return np.where(kept, indices, 0), kept


def _nll_loss(
    c: Call, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int
) -> tuple[FloatArray, FloatArray]:
    """Return minus the log-probabilities at the targets: their sum in C order, divided by the sum of the weights."""
    classes, kept = _classes(target, ignore_index)
    operand = c.operand(x)
    rows = np.moveaxis(operand.codes, 1, -1) if x.ndim > 1 else operand.codes
    chosen = np.take_along_axis(rows, classes[..., np.newaxis], -1)[..., 0]
    losses = FloatArray(chosen ^ operand.format.code_dtype.type(operand.format.sign_mask), operand.format)
    weights = None if weight is None else _kept(c.operand(weight)[classes], kept)
    if weights is not None:
        losses = c.value(multiply, losses, weights)
    losses = _kept(losses, kept)
    total_weight = count(int(kept.sum())) if weights is None else c.sum(weights)
    kept_weight = _held(c.rounded(total_weight, c.formats.inside), x.dtype)
    if reduction not in (_MEAN, _SUM):
        return c.result(losses), kept_weight
    loss = c.sum(losses)
    if reduction == _MEAN:
        loss = c.value(divide, loss, total_weight)
    return c.result(loss), kept_weight


def _held(x: FloatArray, dtype: torch.dtype) -> FloatArray:
    """Return numbers in their format if the dtype holds it, else in that of the dtype."""
    own = format_of_dtype(dtype)
    return x if contains(own, x.format) else convert(x, own)


def _kept(x: FloatArray, kept: Any) -> FloatArray:
    return FloatArray(np.where(kept, x.codes, x.codes.dtype.type(0)), x.format)


def _nll_loss_backward(
    c: Call, gradient: Any, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total_weight: Any
) -> FloatArray:
    """Return minus the gradient at the targets, divided by the sum of the weights, and 0 elsewhere."""
    classes, kept = _classes(target, ignore_index)
    share = c.gradient(gradient)
    if reduction == _MEAN:
        divisor = count(int(kept.sum())) if weight is None else c.intermediate(total_weight)
        share = c.value(divide, share, divisor)
    if weight is not None:
        share = c.value(multiply, share, c.operand(weight)[classes])
    share = c.result(share)
    sign = share.codes.dtype.type(share.format.sign_mask)
    negative = np.where(kept, np.broadcast_to(share.codes, kept.shape) ^ sign, share.codes.dtype.type(0))
    axis = 1 if x.ndim > 1 else 0
    result = np.moveaxis(zeros(tuple(x.shape), share.format).codes, axis, -1)
    np.put_along_axis(result, classes[..., np.newaxis], negative[..., np.newaxis], -1)
    return FloatArray(np.moveaxis(result, -1, axis), share.format)


NORMALIZATIONS: dict[str, tuple[str, Handler]] = {
    "_softmax": ("softmax", _softmax),
    "_safe_softmax": ("softmax", _safe_softmax),
    "_log_softmax": ("log_softmax", _log_softmax),
    "_softmax_backward_data": ("softmax", _softmax_backward),
    "_log_softmax_backward_data": ("log_softmax", _log_softmax_backward),
    "native_layer_norm": ("layer_norm", _layer_norm),
    "native_layer_norm_backward": ("layer_norm", _layer_norm_backward),
    "_fused_rms_norm": ("rms_norm", _rms_norm),
    "_fused_rms_norm_backward": ("rms_norm", _rms_norm_backward),
    "native_batch_norm": ("batch_norm", _batch_norm),
    "_native_batch_norm_legit": ("batch_norm", _batch_norm),
    "_native_batch_norm_legit_no_training": ("batch_norm", _batch_norm_inference),
    "_batch_norm_with_update": ("batch_norm", _batch_norm_with_update),
    "native_batch_norm_backward": ("batch_norm", _batch_norm_backward),
    "native_group_norm": ("group_norm", _group_norm),
    "native_group_norm_backward": ("group_norm", _group_norm_backward),
    "nll_loss_forward": ("nll_loss", _nll_loss),
    "nll_loss2d_forward": ("nll_loss", _nll_loss),
    "nll_loss_backward": ("nll_loss", _nll_loss_backward),
    "nll_loss2d_backward": ("nll_loss", _nll_loss_backward),
}
"""By the name of the ATen operation: the operation of policies, and the handler."""
