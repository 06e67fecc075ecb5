# Written by tools/write_stubs.py. Do not edit.

from floatsim.operators.activations import gelu, relu, sigmoid, silu, softplus, tanh
from floatsim.operators.activations_backward import (
    gelu_backward, relu_backward, sigmoid_backward, silu_backward, softplus_backward, tanh_backward,
)
from floatsim.operators.attention import attention
from floatsim.operators.attention_backward import AttentionGradients, attention_backward
from floatsim.operators.attention_kernels import key_splits
from floatsim.operators.cells import LSTMState, gru_cell, lstm_cell, rnn_cell
from floatsim.operators.cells_backward import CellGradients, gru_cell_backward, lstm_cell_backward, rnn_cell_backward
from floatsim.operators.convolution import avg_pool, conv2d, embedding, max_pool
from floatsim.operators.convolution_backward import (
    avg_pool_backward, conv2d_backward, embedding_backward, max_pool_backward,
)
from floatsim.operators.errors import RecipeRow, RecipeTable, Sensitivity, SensitivityRow, recipe_table
from floatsim.operators.linear import linear, residual_add
from floatsim.operators.linear_backward import (
    LinearGradients, ResidualGradients, linear_backward, residual_add_backward,
)
from floatsim.operators.mlp import mlp
from floatsim.operators.norms import BatchNorm, batch_norm, layer_norm, rms_norm
from floatsim.operators.norms_backward import NormGradients, batch_norm_backward, layer_norm_backward, rms_norm_backward
from floatsim.operators.recipes import RECIPES, Recipe, as_recipe
from floatsim.operators.softmax import cross_entropy, log_softmax, softmax
from floatsim.operators.softmax_backward import cross_entropy_backward, log_softmax_backward, softmax_backward
from floatsim.operators.steps import OPERATORS, OperatorSteps, operator_steps

__all__ = [
    "AttentionGradients", "BatchNorm", "CellGradients", "LSTMState", "LinearGradients", "NormGradients", "OPERATORS",
    "OperatorSteps", "RECIPES", "Recipe", "RecipeRow", "RecipeTable", "ResidualGradients", "Sensitivity",
    "SensitivityRow", "as_recipe", "attention", "attention_backward", "avg_pool", "avg_pool_backward", "batch_norm",
    "batch_norm_backward", "conv2d", "conv2d_backward", "cross_entropy", "cross_entropy_backward", "embedding",
    "embedding_backward", "gelu", "gelu_backward", "gru_cell", "gru_cell_backward", "key_splits", "layer_norm",
    "layer_norm_backward", "linear", "linear_backward", "log_softmax", "log_softmax_backward", "lstm_cell",
    "lstm_cell_backward", "max_pool", "max_pool_backward", "mlp", "operator_steps", "recipe_table", "relu",
    "relu_backward", "residual_add", "residual_add_backward", "rms_norm", "rms_norm_backward", "rnn_cell",
    "rnn_cell_backward", "sigmoid", "sigmoid_backward", "silu", "silu_backward", "softmax", "softmax_backward",
    "softplus", "softplus_backward", "tanh", "tanh_backward",
]
