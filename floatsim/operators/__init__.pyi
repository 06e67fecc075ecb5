# Written by tools/write_stubs.py. Do not edit.

from floatsim.operators.activations import gelu, relu, sigmoid, silu, softplus, tanh
from floatsim.operators.backward import (
    AttentionGradients, LinearGradients, NormGradients, attention_backward, cross_entropy_backward, layer_norm_backward,
    linear_backward, log_softmax_backward, rms_norm_backward, softmax_backward,
)
from floatsim.operators.cells import LSTMState, gru_cell, lstm_cell, rnn_cell
from floatsim.operators.convolution import avg_pool, conv2d, embedding, max_pool
from floatsim.operators.errors import RecipeRow, RecipeTable, Sensitivity, SensitivityRow, recipe_table
from floatsim.operators.layers import linear, residual_add
from floatsim.operators.network import mlp
from floatsim.operators.norms import BatchNorm, batch_norm, layer_norm, rms_norm
from floatsim.operators.probabilities import cross_entropy, log_softmax, softmax
from floatsim.operators.recipes import RECIPES, Recipe, as_recipe
from floatsim.operators.scaled_dot_product import attention
from floatsim.operators.steps import OPERATORS, OperatorSteps, operator_steps

__all__ = [
    "AttentionGradients", "BatchNorm", "LSTMState", "LinearGradients", "NormGradients", "OPERATORS", "OperatorSteps",
    "RECIPES", "Recipe", "RecipeRow", "RecipeTable", "Sensitivity", "SensitivityRow", "as_recipe", "attention",
    "attention_backward", "avg_pool", "batch_norm", "conv2d", "cross_entropy", "cross_entropy_backward", "embedding",
    "gelu", "gru_cell", "layer_norm", "layer_norm_backward", "linear", "linear_backward", "log_softmax",
    "log_softmax_backward", "lstm_cell", "max_pool", "mlp", "operator_steps", "recipe_table", "relu", "residual_add",
    "rms_norm", "rms_norm_backward", "rnn_cell", "sigmoid", "silu", "softmax", "softmax_backward", "softplus", "tanh",
]
