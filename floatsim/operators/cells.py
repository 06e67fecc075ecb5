"""Recurrent cells: one time step of an RNN, an LSTM and a GRU."""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import numpy as np

from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise.arithmetic import add, multiply, subtract
from floatsim.arrays.elementwise.functions import sigmoid, tanh
from floatsim.operators.computation import Array, Computation, RecipeKeywords, computation, operator

__all__ = [
    "GRUSteps", "LSTMState", "LSTMSteps", "PreActivations", "gru_cell", "gru_steps", "lstm_cell", "lstm_steps",
    "pre_activations", "rnn_activation", "rnn_cell",
]  # fmt: skip


class PreActivations(NamedTuple):
    """The operands of a cell, and the pre-activations of all gates.

    Attributes
    ----------
    x, hidden, weight_ih, weight_hh : Array
        The operands.
    by_input, by_hidden : Array
        The pre-activations from the input and from the hidden state.
    """

    x: Array
    hidden: Array
    weight_ih: Array
    weight_hh: Array
    by_input: Array
    by_hidden: Array


def pre_activations(
    c: Computation, x: Any, hidden: Any, weights: tuple[Any, Any], biases: tuple[Any, Any], gates: int
) -> PreActivations:
    """Return the operands, and the pre-activations of all gates."""
    operands = c.operand("input", x), c.operand("hidden", hidden)
    found, used = [], []
    for name, suffix, operand, weight, bias in zip(
        ("input", "hidden"), ("ih", "hh"), operands, weights, biases, strict=True
    ):
        w = c.operand(f"weight_{suffix}", weight)
        size = gates * operands[1].shape[-1]
        if w.shape != (size, operand.shape[-1]):
            raise ValueError(f"weight_{suffix} has the shape {w.shape}, and must have {(size, operand.shape[-1])}")
        product = c.product(f"{name}_product", operand, np.transpose(w))
        if bias is not None:
            b = c.operand(f"bias_{suffix}", bias)
            if b.shape != (size,):
                raise ValueError(f"bias_{suffix} has the shape {b.shape}, and must have {(size,)}")
            product = c.value(f"{name}_biased", add, product, b)
        found.append(product)
        used.append(w)
    return PreActivations(*operands, *used, *found)


def _gates(p: PreActivations, x: Array, gates: int) -> list[Array]:
    """Return the parts of the gates."""
    size = p.hidden.shape[-1]
    return [x[..., n * size : (n + 1) * size] for n in range(gates)]


@operator
def rnn_cell(
    x: Floats, hidden: Floats, weight_ih: Floats, weight_hh: Floats, bias_ih: Floats | None = None,
    bias_hh: Floats | None = None, **keywords: Unpack[RecipeKeywords],
) -> Any:  # fmt: skip
    """Return the next hidden state of an RNN: tanh(x @ weight_ih.T + bias_ih + hidden @ weight_hh.T + bias_hh).

    Parameters
    ----------
    x : array_like of floats, (..., inputs)
    hidden : array_like of floats, (..., size)
    weight_ih : array_like of floats, (size, inputs)
    weight_hh : array_like of floats, (size, size)
        FloatArrays or arrays whose dtype is a format.
    bias_ih, bias_hh : array_like of floats, (size,), optional
        Without them, their steps are omitted.
    {keywords}

    Returns
    -------
    FloatArray or ndarray
        An ndarray if x is one and the format of the step "output" has a dtype.

    {raises}

    Notes
    -----
    The steps, after the conversions of the operands: input_product = x @ weight_ih.T; input_biased = input_product +
    bias_ih; hidden_product = hidden @ weight_hh.T; hidden_biased = hidden_product + bias_hh; total = input_biased +
    hidden_biased; activation = tanh(total); output = the conversion of activation.

    Examples
    --------
    >>> import floatsim as fs
    >>> one = fs.array([[1.0]], "fp16")
    >>> fs.operators.rnn_cell(one, one, fs.array([[0.25]], "fp16"), fs.array([[0.25]], "fp16"))
    FloatArray([[0.46216]], FP16)
    """
    with computation("rnn_cell", x, keywords) as c:
        p = pre_activations(c, x, hidden, (weight_ih, weight_hh), (bias_ih, bias_hh), 1)
        return c.result(c.converted("output", rnn_activation(c, p)))


def rnn_activation(c: Computation, p: PreActivations) -> Array:
    """Return the steps total and activation."""
    return c.value("activation", tanh, c.value("total", add, p.by_input, p.by_hidden))


class LSTMState(NamedTuple):
    """The result of `lstm_cell`.

    Attributes
    ----------
    hidden, cell : FloatArray or ndarray
        The next hidden state, which is the output, and the next cell state.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> one, weight = fs.array([[1.0]], "bf16"), fs.array(np.full((4, 1), 0.5), "bf16")
    >>> state = fs.operators.lstm_cell(one, one, one, weight, weight)
    >>> state.hidden, state.cell
    (FloatArray([[0.6289]], BF16), FloatArray([[1.289]], BF16))
    """

    hidden: Any
    cell: Any


@operator
def lstm_cell(
    x: Floats, hidden: Floats, cell: Floats, weight_ih: Floats, weight_hh: Floats, bias_ih: Floats | None = None,
    bias_hh: Floats | None = None, **keywords: Unpack[RecipeKeywords],
) -> LSTMState:  # fmt: skip
    """Return the next hidden state and cell state of an LSTM.

    Parameters
    ----------
    x : array_like of floats, (..., inputs)
    hidden, cell : array_like of floats, (..., size)
    weight_ih : array_like of floats, (4 * size, inputs)
    weight_hh : array_like of floats, (4 * size, size)
        FloatArrays or arrays whose dtype is a format. The gates have PyTorch's order: input, forget, candidate, output.
    bias_ih, bias_hh : array_like of floats, (4 * size,), optional
        Without them, their steps are omitted.
    {keywords}

    Returns
    -------
    LSTMState
        The states, as ndarrays if x is one and their formats have dtypes.

    {raises}

    Notes
    -----
    The steps, after the conversions of the operands: input_product to hidden_biased as in `fs.operators.rnn_cell`;
    gates = input_biased + hidden_biased; input_gate, forget_gate and output_gate = sigmoid(gates); candidate =
    tanh(gates); kept = forget_gate * cell; new = input_gate * candidate; updated_cell = kept + new; tanh =
    tanh(updated_cell); product = output_gate * tanh; output = the conversion of product. "same" of updated_cell is the
    format of cell.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> one, weight = fs.array([[1.0]], "bf16"), fs.array(np.full((4, 1), 0.5), "bf16")
    >>> fs.operators.lstm_cell(one, one, one, weight, weight).hidden
    FloatArray([[0.6289]], BF16)
    """
    with computation("lstm_cell", x, keywords) as c:
        p = pre_activations(c, x, hidden, (weight_ih, weight_hh), (bias_ih, bias_hh), 4)
        steps = lstm_steps(c, p, cell)
        product = c.value("product", multiply, steps.output_gate, steps.tanh)
        return LSTMState(c.result(c.converted("output", product)), c.result(steps.updated_cell))


class LSTMSteps(NamedTuple):
    """The steps of an LSTM from cell to tanh, by name."""

    cell: Array
    input_gate: Array
    forget_gate: Array
    candidate: Array
    output_gate: Array
    updated_cell: Array
    tanh: Array


def lstm_steps(c: Computation, p: PreActivations, cell: Any) -> LSTMSteps:
    """Return the steps from cell to tanh."""
    memory = c.operand("cell", cell)
    if memory.shape != p.hidden.shape:
        raise ValueError(f"cell {memory.shape} and hidden {p.hidden.shape} must have one shape")
    parts = _gates(p, c.value("gates", add, p.by_input, p.by_hidden), 4)
    inward = c.value("input_gate", sigmoid, parts[0])
    forget = c.value("forget_gate", sigmoid, parts[1])
    candidate = c.value("candidate", tanh, parts[2])
    outward = c.value("output_gate", sigmoid, parts[3])
    kept = c.value("kept", multiply, forget, memory)
    updated = c.value("updated_cell", add, kept, c.value("new", multiply, inward, candidate), same=memory)
    return LSTMSteps(memory, inward, forget, candidate, outward, updated, c.value("tanh", tanh, updated))


@operator
def gru_cell(
    x: Floats, hidden: Floats, weight_ih: Floats, weight_hh: Floats, bias_ih: Floats | None = None,
    bias_hh: Floats | None = None, **keywords: Unpack[RecipeKeywords],
) -> Any:  # fmt: skip
    """Return the next hidden state of a GRU.

    Parameters
    ----------
    x : array_like of floats, (..., inputs)
    hidden : array_like of floats, (..., size)
    weight_ih : array_like of floats, (3 * size, inputs)
    weight_hh : array_like of floats, (3 * size, size)
        FloatArrays or arrays whose dtype is a format. The gates have PyTorch's order: reset, update, candidate.
    bias_ih, bias_hh : array_like of floats, (3 * size,), optional
        Without them, their steps are omitted.
    {keywords}

    {results}

    Notes
    -----
    The steps, after the conversions of the operands: input_product to hidden_biased as in `fs.operators.rnn_cell`, here
    i and h, each with three parts; reset_sum = i + h; reset = sigmoid(reset_sum); update_sum = i + h; update =
    sigmoid(update_sum); gated = reset * h; candidate_sum = i + gated; candidate = tanh(candidate_sum); difference =
    hidden - candidate; weighted = update * difference; total = candidate + weighted; output = the conversion of total.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> one, weight = fs.array([[1.0]], "bf16"), fs.array(np.full((3, 1), 0.5), "bf16")
    >>> fs.operators.gru_cell(one, one, weight, weight)
    FloatArray([[0.918]], BF16)
    """
    with computation("gru_cell", x, keywords) as c:
        p = pre_activations(c, x, hidden, (weight_ih, weight_hh), (bias_ih, bias_hh), 3)
        steps = gru_steps(c, p)
        weighted = c.value("weighted", multiply, steps.update, steps.difference)
        return c.result(c.converted("output", c.value("total", add, steps.candidate, weighted)))


class GRUSteps(NamedTuple):
    """The steps of a GRU from reset to difference, by name.

    Attributes
    ----------
    by_hidden : Array
        The pre-activation of the candidate from the hidden state.
    """

    reset: Array
    update: Array
    by_hidden: Array
    candidate: Array
    difference: Array


def gru_steps(c: Computation, p: PreActivations) -> GRUSteps:
    """Return the steps from reset_sum to difference."""
    i, h = _gates(p, p.by_input, 3), _gates(p, p.by_hidden, 3)
    reset = c.value("reset", sigmoid, c.value("reset_sum", add, i[0], h[0]))
    update = c.value("update", sigmoid, c.value("update_sum", add, i[1], h[1]))
    gated = c.value("gated", multiply, reset, h[2])
    candidate = c.value("candidate", tanh, c.value("candidate_sum", add, i[2], gated))
    return GRUSteps(reset, update, h[2], candidate, c.value("difference", subtract, p.hidden, candidate))
