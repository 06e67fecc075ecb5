"""Gradients of recurrent cells."""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import numpy as np

from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise.arithmetic import add, multiply, subtract
from floatsim.operators.activations_backward import through_sigmoid, through_tanh
from floatsim.operators.cells import PreActivations, gru_steps, lstm_steps, pre_activations, rnn_activation
from floatsim.operators.computation import Array, Computation, RecipeKeywords, computation, operator

__all__ = ["CellGradients", "gru_cell_backward", "lstm_cell_backward", "rnn_cell_backward"]


class CellGradients(NamedTuple):
    """The result of the backward operators of recurrent cells.

    Attributes
    ----------
    x, hidden, cell, weight_ih, weight_hh, bias_ih, bias_hh : FloatArray or ndarray
        The gradients by the operands. `cell` is None but for `lstm_cell_backward`.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> one, weight = fs.array([[1.0]], "bf16"), fs.array(np.full((4, 1), 0.5), "bf16")
    >>> found = fs.operators.lstm_cell_backward(one, None, one, one, one, weight, weight)
    >>> found.cell, found.weight_ih.shape
    (FloatArray([[0.1406]], BF16), (4, 1))
    """

    x: Any
    hidden: Any
    cell: Any
    weight_ih: Any
    weight_hh: Any
    bias_ih: Any
    bias_hh: Any


def _operand(c: Computation, step: str, given: Any, like: Array) -> Array:
    """Return an operand of the shape of the hidden state."""
    operand = c.operand(step, given)
    if operand.shape != like.shape:
        raise ValueError(f"{step} {operand.shape} and hidden {like.shape} must have one shape")
    return operand


def _cell(
    c: Computation, x: Any, hidden: Any, weights: tuple[Any, Any], biases: tuple[Any, Any], gates: int
) -> PreActivations:
    p = pre_activations(c, x, hidden, weights, biases, gates)
    if p.x.shape[:-1] != p.hidden.shape[:-1]:
        raise ValueError(f"x {p.x.shape} and hidden {p.hidden.shape} must have equal leading axes")
    return p


def _products(c: Computation, p: PreActivations, by_input: Array, by_hidden: Array) -> tuple[Array, ...]:
    """Return the gradients by x, hidden, the weights and the biases from those by the two pre-activations."""
    rows, hidden_rows = (g.reshape(-1, g.shape[-1]) for g in (by_input, by_hidden))
    x, hidden = (v.reshape(-1, v.shape[-1]) for v in (p.x, p.hidden))
    return (
        c.product("input_gradient", by_input, p.weight_ih),
        c.product("hidden_gradient", by_hidden, p.weight_hh),
        c.product("weight_ih_gradient", np.transpose(rows), x),
        c.product("weight_hh_gradient", np.transpose(hidden_rows), hidden),
        c.sum("bias_ih_gradient", rows, 0).reshape(-1),
        c.sum("bias_hh_gradient", hidden_rows, 0).reshape(-1),
    )


def _results(c: Computation, x: Array, hidden: Array, cell: Array | None, *parameters: Array) -> CellGradients:
    outputs = [None if each is None else c.result(c.converted("output", each)) for each in (x, hidden, cell)]
    return CellGradients(*outputs, *(c.result(c.converted("output", each)) for each in parameters))


@operator
def rnn_cell_backward(
    gradient: Floats, x: Floats, hidden: Floats, weight_ih: Floats, weight_hh: Floats, bias_ih: Floats | None = None,
    bias_hh: Floats | None = None, **keywords: Unpack[RecipeKeywords],
) -> CellGradients:  # fmt: skip
    """Return the gradients of rnn_cell by its operands. The activation is computed again.

    Parameters
    ----------
    gradient : array_like of floats, (..., size)
        The gradient of the loss by the next hidden state.
    x : array_like of floats, (..., inputs)
    hidden : array_like of floats, (..., size)
    weight_ih : array_like of floats, (size, inputs)
    weight_hh : array_like of floats, (size, size)
    bias_ih, bias_hh : array_like of floats, (size,), optional
        The operands of rnn_cell. The leading axes of x and hidden are equal.
    {keywords}

    Returns
    -------
    CellGradients
        The gradients, as ndarrays if gradient is one and their formats have dtypes.

    {raises}

    Notes
    -----
    The steps: the conversions of the operands; input_product to activation as in `fs.operators.rnn_cell`; square =
    activation * activation; slope = 1 - square; gate_gradient = gradient * slope; input_gradient = gate_gradient @
    weight_ih; hidden_gradient = gate_gradient @ weight_hh. Then, over all rows in C order, weight_ih_gradient =
    gate_gradient.T @ x; weight_hh_gradient = gate_gradient.T @ hidden; bias_ih_gradient and bias_hh_gradient = the sums
    of gate_gradient. The results are converted to the format of output.

    Examples
    --------
    >>> import floatsim as fs
    >>> one, weight = fs.array([[1.0]], "fp16"), fs.array([[0.25]], "fp16")
    >>> fs.operators.rnn_cell_backward(one, one, one, weight, weight).weight_ih
    FloatArray([[0.78662]], FP16)
    """
    with computation("rnn_cell_backward", gradient, keywords) as c:
        p = _cell(c, x, hidden, (weight_ih, weight_hh), (bias_ih, bias_hh), 1)
        g = _operand(c, "gradient", gradient, p.hidden)
        g = through_tanh(c, g, rnn_activation(c, p), "gate_gradient")
        by_x, by_hidden, *parameters = _products(c, p, g, g)
        return _results(c, by_x, by_hidden, None, *parameters)


@operator
def lstm_cell_backward(
    gradient: Floats, cell_gradient: Floats | None, x: Floats, hidden: Floats, cell: Floats, weight_ih: Floats,
    weight_hh: Floats, bias_ih: Floats | None = None, bias_hh: Floats | None = None,
    **keywords: Unpack[RecipeKeywords],
) -> CellGradients:  # fmt: skip
    """Return the gradients of lstm_cell by its operands. The gates are computed again.

    Parameters
    ----------
    gradient : array_like of floats, (..., size)
        The gradient of the loss by the next hidden state.
    cell_gradient : array_like of floats, (..., size), or None
        The gradient of the loss by the next cell state. None if the loss does not depend on it.
    x : array_like of floats, (..., inputs)
    hidden, cell : array_like of floats, (..., size)
    weight_ih : array_like of floats, (4 * size, inputs)
    weight_hh : array_like of floats, (4 * size, size)
    bias_ih, bias_hh : array_like of floats, (4 * size,), optional
        The operands of lstm_cell. The leading axes of x and hidden are equal.
    {keywords}

    Returns
    -------
    CellGradients
        As in `fs.operators.rnn_cell_backward`.

    {raises}

    Notes
    -----
    The steps: the conversions of the operands; input_product to tanh as in `fs.operators.lstm_cell`;
    output_gate_gradient = gradient * tanh; tanh_gradient = gradient * output_gate; square = tanh * tanh; slope = 1 -
    square; through_tanh = tanh_gradient * slope; total_cell_gradient = through_tanh + cell_gradient (without
    cell_gradient, through_tanh); input_gate_gradient = total_cell_gradient * candidate; forget_gate_gradient =
    total_cell_gradient * cell; candidate_gradient = total_cell_gradient * input_gate; memory_gradient =
    total_cell_gradient * forget_gate, the gradient by cell.

    For the input gate, the forget gate and the output gate, complement = 1 - gate; scaled = its gradient * complement;
    gate_gradient = scaled * gate. For the candidate, square = candidate * candidate; slope = 1 - square; gate_gradient
    = candidate_gradient * slope. From all gate gradients, input_gradient to bias_hh_gradient as in
    `fs.operators.rnn_cell_backward`. The results are converted to the format of output.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> one, weight = fs.array([[1.0]], "bf16"), fs.array(np.full((4, 1), 0.5), "bf16")
    >>> fs.operators.lstm_cell_backward(one, None, one, one, one, weight, weight).cell
    FloatArray([[0.1406]], BF16)
    """
    with computation("lstm_cell_backward", gradient, keywords) as c:
        p = _cell(c, x, hidden, (weight_ih, weight_hh), (bias_ih, bias_hh), 4)
        s = lstm_steps(c, p, cell)
        g = _operand(c, "gradient", gradient, p.hidden)
        by_output_gate = c.value("output_gate_gradient", multiply, g, s.tanh)
        by_cell = through_tanh(c, c.value("tanh_gradient", multiply, g, s.output_gate), s.tanh, "through_tanh")
        if cell_gradient is not None:
            also = _operand(c, "cell_gradient", cell_gradient, p.hidden)
            by_cell = c.value("total_cell_gradient", add, by_cell, also)
        by_input_gate = c.value("input_gate_gradient", multiply, by_cell, s.candidate)
        by_forget_gate = c.value("forget_gate_gradient", multiply, by_cell, s.cell)
        by_candidate = c.value("candidate_gradient", multiply, by_cell, s.input_gate)
        by_memory = c.value("memory_gradient", multiply, by_cell, s.forget_gate)
        gates = (
            through_sigmoid(c, by_input_gate, s.input_gate, "gate_gradient"),
            through_sigmoid(c, by_forget_gate, s.forget_gate, "gate_gradient"),
            through_tanh(c, by_candidate, s.candidate, "gate_gradient"),
            through_sigmoid(c, by_output_gate, s.output_gate, "gate_gradient"),
        )
        g = np.concatenate(gates, axis=-1)
        by_x, by_hidden, *parameters = _products(c, p, g, g)
        return _results(c, by_x, by_hidden, by_memory, *parameters)


@operator
def gru_cell_backward(
    gradient: Floats, x: Floats, hidden: Floats, weight_ih: Floats, weight_hh: Floats, bias_ih: Floats | None = None,
    bias_hh: Floats | None = None, **keywords: Unpack[RecipeKeywords],
) -> CellGradients:  # fmt: skip
    """Return the gradients of gru_cell by its operands. The gates are computed again.

    Parameters
    ----------
    gradient : array_like of floats, (..., size)
        The gradient of the loss by the next hidden state.
    x : array_like of floats, (..., inputs)
    hidden : array_like of floats, (..., size)
    weight_ih : array_like of floats, (3 * size, inputs)
    weight_hh : array_like of floats, (3 * size, size)
    bias_ih, bias_hh : array_like of floats, (3 * size,), optional
        The operands of gru_cell. The leading axes of x and hidden are equal.
    {keywords}

    Returns
    -------
    CellGradients
        As in `fs.operators.rnn_cell_backward`.

    {raises}

    Notes
    -----
    The steps: the conversions of the operands; input_product to difference as in `fs.operators.gru_cell`, where h is
    the part of the candidate of hidden_biased; update_gradient = gradient * difference; difference_gradient = gradient
    * update; candidate_gradient = gradient - difference_gradient. For the candidate, square = candidate * candidate;
    slope = 1 - square; gate_gradient = candidate_gradient * slope, and reset_gradient = gate_gradient * h. For the
    gradient by h, gate_gradient = the gate_gradient of the candidate * reset. For reset and update, complement = 1 -
    gate; scaled = its gradient * complement; gate_gradient = scaled * gate.

    Then input_gradient to bias_hh_gradient as in `fs.operators.rnn_cell_backward`. Those of the hidden state have the
    gate_gradient by h in the place of that of the candidate. total_hidden_gradient = hidden_gradient +
    difference_gradient. The results are converted to the format of output.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> one, weight = fs.array([[1.0]], "bf16"), fs.array(np.full((3, 1), 0.5), "bf16")
    >>> fs.operators.gru_cell_backward(one, one, one, weight, weight).hidden
    FloatArray([[0.8164]], BF16)
    """
    with computation("gru_cell_backward", gradient, keywords) as c:
        p = _cell(c, x, hidden, (weight_ih, weight_hh), (bias_ih, bias_hh), 3)
        s = gru_steps(c, p)
        g = _operand(c, "gradient", gradient, p.hidden)
        by_update = c.value("update_gradient", multiply, g, s.difference)
        by_difference = c.value("difference_gradient", multiply, g, s.update)
        by_candidate = c.value("candidate_gradient", subtract, g, by_difference)
        candidate = through_tanh(c, by_candidate, s.candidate, "gate_gradient")
        by_reset = c.value("reset_gradient", multiply, candidate, s.by_hidden)
        gated = c.value("gate_gradient", multiply, candidate, s.reset)
        reset = through_sigmoid(c, by_reset, s.reset, "gate_gradient")
        update = through_sigmoid(c, by_update, s.update, "gate_gradient")
        by_input, by_hidden = (np.concatenate((reset, update, last), axis=-1) for last in (candidate, gated))
        by_x, by_state, *parameters = _products(c, p, by_input, by_hidden)
        total = c.value("total_hidden_gradient", add, by_state, by_difference)
        return _results(c, by_x, total, None, *parameters)
