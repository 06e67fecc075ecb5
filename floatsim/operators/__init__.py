"""Operators of neural networks, with every intermediate in a chosen format: softmax, norms, attention, linear layers.

A *recipe* names the format of every intermediate and the accumulation of every sum. Each step of an operator is one
public function of floatsim, rounded once to the format of the step.

>>> import floatsim as fs
>>> x = fs.array([[1.0, 2.0, 3.0]], "fp16")
>>> fs.operators.softmax(x, recipe="all-fp16")
FloatArray([[0.090027, 0.24463, 0.66504]], FP16)
>>> fs.operators.softmax(x, recipe="all-fp16", formats={"exp": "e4m3"})
FloatArray([[0.092773, 0.24744, 0.65967]], FP16)
"""

from __future__ import annotations

from floatsim._lazy import lazy_exports

_HOMES = {
    ".steps": "OPERATORS OperatorSteps operator_steps",
    ".recipes": "RECIPES Recipe as_recipe",
    ".softmax": "cross_entropy log_softmax softmax",
    ".norms": "BatchNorm batch_norm layer_norm rms_norm",
    ".linear": "linear residual_add",
    ".attention": "attention",
    ".attention_kernels": "key_splits",
    ".convolution": "avg_pool conv2d embedding max_pool",
    ".activations": "gelu relu sigmoid silu softplus tanh",
    ".cells": "LSTMState gru_cell lstm_cell rnn_cell",
    ".attention_backward": "AttentionGradients attention_backward",
    ".linear_backward": "LinearGradients ResidualGradients linear_backward residual_add_backward",
    ".norms_backward": "NormGradients batch_norm_backward layer_norm_backward rms_norm_backward",
    ".softmax_backward": "cross_entropy_backward log_softmax_backward softmax_backward",
    ".activations_backward": (
        "gelu_backward relu_backward sigmoid_backward silu_backward softplus_backward tanh_backward"
    ),
    ".convolution_backward": "avg_pool_backward conv2d_backward embedding_backward max_pool_backward",
    ".cells_backward": "CellGradients gru_cell_backward lstm_cell_backward rnn_cell_backward",
    ".mlp": "mlp",
    ".errors": "RecipeRow RecipeTable Sensitivity SensitivityRow recipe_table",
}
__getattr__, __dir__, __all__ = lazy_exports(__name__, _HOMES)
