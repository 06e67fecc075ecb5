"""ATen's fused recurrent layer and its backward pass: `fs.operators.lstm_cell` for each time step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from floatsim.arrays.arithmetic import add
from floatsim.arrays.float_array import FloatArray
from floatsim.operators.cells import lstm_cell
from floatsim.operators.cells_backward import lstm_cell_backward
from floatsim.torch.call import Call, Handler
from floatsim.torch.products import zeros

__all__ = ["RECURRENT"]

_LSTM = 2


def _steps(n: int, reverse: bool) -> range:
    """Return the order of the time steps."""
    return range(n - 1, -1, -1) if reverse else range(n)


def _stacked(parts: Sequence[FloatArray]) -> FloatArray:
    return FloatArray(np.stack([each.codes for each in parts]), parts[0].format)


def _states(
    c: Call, x: FloatArray, weights: tuple[Any, ...], hidden: FloatArray, cell: FloatArray, reverse: bool
) -> tuple[list[tuple[FloatArray, FloatArray]], FloatArray, FloatArray]:
    """Return hidden and cell state before each time step, and those after the last step."""
    before: list[Any] = [None] * x.shape[0]
    for t in _steps(x.shape[0], reverse):
        before[t] = (hidden, cell)
        hidden, cell = c.operator(lstm_cell, x[t], hidden, cell, *weights)
    return before, hidden, cell


def _weights(c: Call, tensors: Sequence[Any], has_biases: bool) -> tuple[Any, ...]:
    return tuple(c.array(each) for each in tensors[: 4 if has_biases else 2])


def _fits(c: Call, mode: int, batch_sizes: Sequence[int]) -> bool:
    """Return whether a call is an LSTM of sequences of one length, without a scaling method.

    PyTorch calls it for each layer and direction.
    """
    return mode == _LSTM and not batch_sizes and c.formats.scaling is None


def _layer(
    c: Call, x: Any, w0: Any, w1: Any, w2: Any, w3: Any, hx: Any, cx: Any, reverse: bool, batch_sizes: Any, mode: int,
    hidden_size: int, num_layers: int, has_biases: bool, bidirectional: bool, batch_first: bool, train: bool,
) -> Any:  # fmt: skip
    """Return the outputs, the last states, and an empty workspace. PyTorch calls it with the time steps first."""
    if not _fits(c, mode, batch_sizes):
        return NotImplemented
    weights, given = _weights(c, (w0, w1, w2, w3), has_biases), c.array(x)
    hidden, cell = (c.array(each).reshape(-1, hidden_size) for each in (hx, cx))
    before, last, last_cell = _states(c, given, weights, hidden, cell, reverse)
    after = {t: before[t][0] for t in range(len(before))}
    outputs = [after[t - 1 if reverse else t + 1] if 0 <= (t - 1 if reverse else t + 1) < len(before) else last
               for t in range(len(before))]  # fmt: skip
    shape = tuple(hx.shape)
    return _stacked(outputs), last.reshape(*shape), last_cell.reshape(*shape), x.new_empty(0)


def _plus(c: Call, a: FloatArray | None, b: FloatArray | None) -> FloatArray | None:
    """Return the sum of two gradients, in the format of the results."""
    if a is None or b is None:
        return b if a is None else a
    return c.result(c.value(add, a, b))


def _layer_backward(
    c: Call, x: Any, w0: Any, w1: Any, w2: Any, w3: Any, hx: Any, cx: Any, output: Any, hy: Any, cy: Any,
    grad_output: Any, grad_hy: Any, grad_cy: Any, reverse: bool, mode: int, hidden_size: int, num_layers: int,
    has_biases: bool, train: bool, bidirectional: bool, batch_sizes: Any, batch_first: bool, workspace: Any,
) -> Any:  # fmt: skip
    """Return the gradients: the cell backward from the last time step to the first, and sums of its gradients."""
    if not _fits(c, mode, batch_sizes):
        return NotImplemented
    weights, given = _weights(c, (w0, w1, w2, w3), has_biases), c.array(x)
    hidden, cell = (c.array(each).reshape(-1, hidden_size) for each in (hx, cx))
    before, _, _ = _states(c, given, weights, hidden, cell, reverse)
    by_hidden, by_cell = (
        None if each is None else c.gradient(each).reshape(-1, hidden_size) for each in (grad_hy, grad_cy)
    )
    outputs = None if grad_output is None else c.gradient(grad_output)
    by_input: list[Any] = [None] * given.shape[0]
    by_weights: list[Any] = [None] * len(weights)
    for t in reversed(_steps(given.shape[0], reverse)):
        gradient = _plus(c, by_hidden, None if outputs is None else outputs[t])
        if gradient is None:
            gradient = zeros(hidden.shape, c.formats.out)
        found = c.operator(lstm_cell_backward, gradient, by_cell, given[t], *before[t], *weights)
        by_input[t], by_hidden, by_cell = found.x, found.hidden, found.cell
        parts = (found.weight_ih, found.weight_hh, found.bias_ih, found.bias_hh)[: len(weights)]
        by_weights = [_plus(c, total, part) for total, part in zip(by_weights, parts, strict=True)]
    shape = tuple(hx.shape)
    biases = [by_weights[2], by_weights[3]] if has_biases else [None, None]
    parameters = [*by_weights[:2], *biases]
    assert by_hidden is not None
    assert by_cell is not None
    return _stacked(by_input), *parameters, by_hidden.reshape(*shape), by_cell.reshape(*shape)


RECURRENT: dict[str, tuple[str, Handler]] = {
    "mkldnn_rnn_layer": ("lstm_cell", _layer),
    "mkldnn_rnn_layer_backward": ("lstm_cell", _layer_backward),
}
"""By the name of the ATen operation: the operation of policies, and the handler."""
