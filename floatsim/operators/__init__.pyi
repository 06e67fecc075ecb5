# Written by tools/write_stubs.py. Do not edit.

from floatsim.operators.errors import RecipeRow, RecipeTable, Sensitivity, SensitivityRow, recipe_table
from floatsim.operators.layers import linear, residual_add
from floatsim.operators.norms import BatchNorm, batch_norm, layer_norm, rms_norm
from floatsim.operators.probabilities import cross_entropy, log_softmax, softmax
from floatsim.operators.recipes import RECIPES, Recipe, as_recipe
from floatsim.operators.scaled_dot_product import attention
from floatsim.operators.steps import OPERATORS, OperatorSteps, operator_steps

__all__ = [
    "BatchNorm", "OPERATORS", "OperatorSteps", "RECIPES", "Recipe", "RecipeRow", "RecipeTable", "Sensitivity",
    "SensitivityRow", "as_recipe", "attention", "batch_norm", "cross_entropy", "layer_norm", "linear", "log_softmax",
    "operator_steps", "recipe_table", "residual_add", "rms_norm", "softmax",
]
