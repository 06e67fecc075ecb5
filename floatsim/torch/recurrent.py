"""ATen's fused recurrent layer and its backward pass: `fs.operators.lstm_cell` for each time step.

The operators of one time step are the definition. They run where events are counted and where a rounding draws random
numbers. Elsewhere the steps of all time steps that do not depend on each other run together, as one array: the elements
of an operation, and the sums of a product, do not depend on their neighbours. A test compares the two, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from floatsim.accumulation import rounds_stochastically
from floatsim.arrays.array.conversion import array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.call.options import get_context
from floatsim.arrays.elementwise.arithmetic import add, multiply, subtract
from floatsim.arrays.elementwise.functions import sigmoid, tanh
from floatsim.formats.value_sets import contains
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
    """Return the outputs, the last states, and an empty workspace. PyTorch calls it with the time steps first.

    The workspace keeps the steps for the backward pass.
    """
    if not _fits(c, mode, batch_sizes):
        return NotImplemented
    weights, given = _weights(c, (w0, w1, w2, w3), has_biases), c.array(x)
    hidden, cell = (c.array(each).reshape(-1, hidden_size) for each in (hx, cx))
    workspace, shape = x.new_empty(0), tuple(hx.shape)
    if _is_plain(c) and len(given):
        layer = _operands(c, given, weights, hidden, cell)
        steps = _forward(c, layer, reverse)
        if train:
            workspace.untyped_storage()._floatsim_lstm = layer, steps
        return steps.outputs, steps.last.reshape(*shape), steps.last_cell.reshape(*shape), workspace
    before, last, last_cell = _states(c, given, weights, hidden, cell, reverse)
    after = {t: before[t][0] for t in range(len(before))}
    outputs = [after[t - 1 if reverse else t + 1] if 0 <= (t - 1 if reverse else t + 1) < len(before) else last
               for t in range(len(before))]  # fmt: skip
    return _stacked(outputs), last.reshape(*shape), last_cell.reshape(*shape), workspace


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
    is_plain = _is_plain(c) and len(given) > 0
    before = [] if is_plain else _states(c, given, weights, hidden, cell, reverse)[0]  # draws before the gradients
    by_hidden, by_cell = (
        None if each is None else c.gradient(each).reshape(-1, hidden_size) for each in (grad_hy, grad_cy)
    )
    outputs = None if grad_output is None else c.gradient(grad_output)
    if is_plain:
        layer = _operands(c, given, weights, hidden, cell)
        kept = getattr(workspace.untyped_storage(), "_floatsim_lstm", None)
        steps = kept[1] if kept is not None and kept[0].equals(layer) else _forward(c, layer, reverse)
        found = _backward(c, layer, steps, outputs, by_hidden, by_cell, reverse)
    else:
        found = _cell_by_cell(c, given, weights, before, outputs, by_hidden, by_cell, reverse)
    by_input, by_weights, by_hidden, by_cell = found
    shape = tuple(hx.shape)
    biases = [by_weights[2], by_weights[3]] if has_biases else [None, None]
    return by_input, *by_weights[:2], *biases, by_hidden.reshape(*shape), by_cell.reshape(*shape)


def _cell_by_cell(
    c: Call, x: FloatArray, weights: tuple[Any, ...], before: list[tuple[FloatArray, FloatArray]],
    outputs: FloatArray | None, by_hidden: FloatArray | None, by_cell: FloatArray | None, reverse: bool,
) -> tuple[FloatArray, list[Any], Any, Any]:  # fmt: skip
    """Return the gradients by the input, the weights and the states, by the operator of one time step."""
    by_input: list[Any] = [None] * x.shape[0]
    by_weights: list[Any] = [None] * len(weights)
    for t in reversed(_steps(x.shape[0], reverse)):
        gradient = _plus(c, by_hidden, None if outputs is None else outputs[t])
        if gradient is None:
            gradient = zeros(before[t][0].shape, c.formats.out)
        found = c.operator(lstm_cell_backward, gradient, by_cell, x[t], *before[t], *weights)
        by_input[t], by_hidden, by_cell = found.x, found.hidden, found.cell
        parts = (found.weight_ih, found.weight_hh, found.bias_ih, found.bias_hh)[: len(weights)]
        by_weights = [_plus(c, total, part) for total, part in zip(by_weights, parts, strict=True)]
    return _stacked(by_input), by_weights, by_hidden, by_cell


# -- all time steps together -------------------------------------------------------------------------------------------


def _is_plain(c: Call) -> bool:
    """Return whether no event is counted and no rounding draws, so that steps may run in another order and together."""
    return c.is_plain and not any(map(rounds_stochastically, (c.formats.accumulate, c.formats.sums)))


class _Operands(NamedTuple):
    """The operands of a layer in their formats, and what the results depend on beside them.

    Shapes: x (times, rows, inputs), hidden and cell (rows, size), weights as PyTorch has them.
    """

    x: FloatArray
    weights: tuple[FloatArray, ...]
    hidden: FloatArray
    cell: FloatArray
    settings: tuple[Any, ...]

    def equals(self, other: _Operands) -> bool:
        """Return whether the steps of a forward pass are the same."""
        if self.settings != other.settings:
            return False
        mine, others = ((each.x, *each.weights, each.hidden, each.cell) for each in (self, other))
        return len(self.weights) == len(other.weights) and all(
            a.format == b.format and np.array_equal(a.codes, b.codes) for a, b in zip(mine, others, strict=True)
        )


def _operands(
    c: Call, x: FloatArray, weights: tuple[FloatArray, ...], hidden: FloatArray, cell: FloatArray
) -> _Operands:  # fmt: skip
    """Return the operands, each converted once. The tensors may be written before the backward pass: copies."""
    formats = c.formats
    kinds = [formats.weight] * 2 + [formats.operands] * 2
    found = [_own(c, each, fmt) for each, fmt in zip(weights, kinds[: len(weights)], strict=True)]
    states = _own(c, hidden, formats.operands), _own(c, cell, formats.inside)
    settings = formats.inside, formats.operands, formats.out, formats.accumulate, get_context()
    return _Operands(_own(c, x, formats.operands), tuple(found), *states, settings)


def _own(c: Call, x: FloatArray, fmt: Any) -> FloatArray:
    """Return x in a format, in memory of its own."""
    found = c.rounded(x, fmt)
    return found.copy() if found is x else found


class _Steps(NamedTuple):
    """The steps of the forward pass at all time steps, (times, rows, size) each.

    Attributes
    ----------
    outputs : FloatArray
        The hidden states after the time steps.
    last, last_cell : FloatArray
        The states at the end, (rows, size).
    hidden : FloatArray
        The hidden states before the time steps, as operands.
    gates : FloatArray
        The input gate, the forget gate, the output gate and the candidate, (times, 4, rows, size).
    memory, tanh : FloatArray
        The cell states before the time steps, as operands, and tanh of the ones after them.
    """

    outputs: FloatArray
    last: FloatArray
    last_cell: FloatArray
    hidden: FloatArray
    gates: FloatArray
    memory: FloatArray
    tanh: FloatArray


def _forward(c: Call, layer: _Operands, reverse: bool) -> _Steps:
    """Return the steps of `fs.operators.lstm_cell` for all time steps. The product of the input is one product.

    The rows of the weights are reordered to input, forget, output and candidate, so that three gates are neighbours.
    """
    formats, inside = c.formats, c.formats.inside
    is_exact = contains(inside, formats.out)  # then the cell state as an operand has the same values
    x, hidden, cell = layer.x, layer.hidden, layer.cell
    (times, rows, inputs), size = x.shape, hidden.shape[-1]
    order = np.r_[0 : 2 * size, 3 * size : 4 * size, 2 * size : 3 * size]
    w_ih, w_hh, *biases = (each[order] for each in layer.weights)
    by_input = c.matmul(x.reshape(-1, inputs), w_ih.T)
    if biases:
        by_input = c.value(add, by_input, biases[0])
    by_input, turned = by_input.reshape(times, rows, -1), FloatArray(np.ascontiguousarray(w_hh.codes.T), w_hh.format)
    outputs, states, all_gates, memory, tanhs = (list[Any]([None] * times) for _ in range(5))
    last, last_cell, remembered = hidden, cell, cell
    for t in _steps(times, reverse):
        states[t], memory[t] = c.rounded(last, formats.operands), remembered
        by_hidden = c.matmul(states[t], turned)
        if biases:
            by_hidden = c.value(add, by_hidden, biases[1])
        sums = c.value(add, by_input[t], by_hidden).codes
        gates = c.value(sigmoid, _parted(sums[:, : 3 * size], 3, inside))
        candidate = c.value(tanh, FloatArray(np.ascontiguousarray(sums[:, 3 * size :]), inside))
        factors = FloatArray(np.stack((candidate.codes, remembered.codes)), inside)
        new, kept = c.value(multiply, gates[:2], factors)
        last_cell = add(kept, new, format=formats.out)
        remembered = c.rounded(last_cell, inside)
        tanhs[t] = c.value(tanh, remembered if is_exact else last_cell)
        last = outputs[t] = c.result(c.value(multiply, gates[2], tanhs[t]))
        all_gates[t] = FloatArray(np.concatenate((gates.codes, candidate.codes[np.newaxis])), inside)
    return _Steps(_stacked(outputs), last, last_cell, *map(_stacked, (states, all_gates, memory, tanhs)))


def _parted(codes: Any, parts: int, fmt: Any) -> FloatArray:
    """Return (rows, parts * size) as (parts, rows, size)."""
    split = codes.reshape(len(codes), parts, -1)
    return FloatArray(np.ascontiguousarray(np.swapaxes(split, 0, 1)), fmt)


def _backward(
    c: Call, layer: _Operands, steps: _Steps, outputs: FloatArray | None, by_hidden: FloatArray | None,
    by_cell: FloatArray | None, reverse: bool,
) -> tuple[FloatArray, list[Any], Any, Any]:  # fmt: skip
    """Return the gradients by the input, the weights and the states, as `fs.operators.lstm_cell_backward` does.

    What depends on the forward pass alone, and the gradients by the input and by the weights of each time step, are
    computed for all time steps together. The gradients by the weights are then added in the order of the time steps.
    """
    formats, inside, weights = c.formats, c.formats.inside, layer.weights
    times, rows, size = steps.tanh.shape
    gates, memory, tanhs = steps.gates.codes, steps.memory.codes, steps.tanh.codes
    # gate_gradient = (gradient * slope) * gate, and of the candidate gradient * slope
    one = array(1.0, inside)
    complements = c.value(subtract, one, steps.gates[:, :3]).codes
    squared = FloatArray(np.stack((gates[:, 3], tanhs), 1), inside)
    of_candidate, of_tanh = np.moveaxis(c.value(subtract, one, c.value(multiply, squared, squared)).codes, 1, 0)
    slopes = np.stack((complements[:, 0], complements[:, 1], of_candidate, complements[:, 2]), 1)
    of_output = np.stack((tanhs, gates[:, 2]), 1)  # times the gradient: those of the output gate and of tanh
    of_cell = np.stack((gates[:, 3], memory, gates[:, 0], gates[:, 1]), 1)  # input, forget, candidate, and the cell
    sigmoids = np.ascontiguousarray(gates[:, :3])
    found = np.empty((times, rows, 4, size), inside.code_dtype)
    w_hh = weights[1]
    for t in reversed(_steps(times, reverse)):
        gradient = _plus(c, by_hidden, None if outputs is None else outputs[t])
        if gradient is None:
            gradient = zeros((rows, size), formats.out)
        gradient = c.rounded(gradient, formats.gradient)
        by_output, by_tanh = c.value(multiply, gradient, FloatArray(of_output[t], inside))
        total = c.value(multiply, by_tanh, FloatArray(of_tanh[t], inside))
        if by_cell is not None:
            total = c.value(add, total, c.rounded(by_cell, formats.gradient))
        parts = c.value(multiply, total, FloatArray(of_cell[t], inside)).codes
        by_cell = c.result(FloatArray(parts[3], inside))
        by_gates = FloatArray(np.concatenate((parts[:3], by_output.codes[np.newaxis])), inside)
        scaled = c.value(multiply, by_gates, FloatArray(slopes[t], inside)).codes
        three = c.value(multiply, FloatArray(scaled[_SIGMOIDS], inside), FloatArray(sigmoids[t], inside)).codes
        found[t][:, _SIGMOIDS] = np.swapaxes(three, 0, 1)
        found[t][:, _CANDIDATE] = scaled[_CANDIDATE]
        by_hidden = c.result(c.matmul(FloatArray(found[t].reshape(rows, -1), inside), w_hh))
    by_pre_activations = FloatArray(found.reshape(times, rows, -1), inside)
    by_input = c.result(c.matmul(by_pre_activations.reshape(times * rows, -1), weights[0]))
    by_weights = _summed(c, by_pre_activations, layer, steps, reverse)
    return by_input.reshape(times, rows, -1), by_weights, by_hidden, by_cell


_SIGMOIDS, _CANDIDATE = [0, 1, 3], 2
"""The places of the gates in PyTorch's order: input, forget, candidate, output."""


def _summed(c: Call, gradients: FloatArray, layer: _Operands, steps: _Steps, reverse: bool) -> list[FloatArray]:
    """Return the gradients by the weights and the biases: those of each time step, added from the last to the first.

    Both biases have one gradient.
    """
    turned = FloatArray(np.swapaxes(gradients.codes, 1, 2), gradients.format)
    parts = [c.matmul(turned, layer.x), c.matmul(turned, steps.hidden)]
    if len(layer.weights) > 2:
        parts.append(c.sum(gradients, 1).reshape(len(gradients), -1, 1))
    together = c.result(FloatArray(np.concatenate([each.codes for each in parts], -1), c.formats.inside))
    total: FloatArray | None = None
    for t in reversed(_steps(len(gradients), reverse)):
        total = _plus(c, total, together[t])
    assert total is not None
    inputs, size = layer.x.shape[-1], steps.hidden.shape[-1]
    by_weights = [total[:, :inputs], total[:, inputs : inputs + size]]
    return by_weights + [total[:, -1]] * (len(layer.weights) - 2)


RECURRENT: dict[str, tuple[str, Handler]] = {
    "mkldnn_rnn_layer": ("lstm_cell", _layer),
    "mkldnn_rnn_layer_backward": ("lstm_cell", _layer_backward),
}
"""By the name of the ATen operation: the operation of policies, and the handler."""
