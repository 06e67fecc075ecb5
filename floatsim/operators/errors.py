"""The error of an operator under a recipe: against float64, for each step swapped to a lower format, as tables."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from floatsim.accumulation import (
    Accumulation,
    Leaf,
    ProductLeaf,
    Residue,
    Sequential,
    SplitK,
    Tf32x3,
    as_accumulation,
)
from floatsim.arrays.array.conversion import array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.types import Floats
from floatsim.arrays.events.counts import Counts
from floatsim.arrays.events.record import record
from floatsim.datasets import digits
from floatsim.formats import FloatFormat, FormatLike, as_format
from floatsim.formats._validation import name_hint
from floatsim.formats.format import as_formats
from floatsim.operators.activations import gelu, relu, sigmoid, silu, softplus, tanh
from floatsim.operators.activations_backward import (
    gelu_backward,
    relu_backward,
    sigmoid_backward,
    silu_backward,
    softplus_backward,
    tanh_backward,
)
from floatsim.operators.attention import attention
from floatsim.operators.attention_backward import attention_backward
from floatsim.operators.cells import gru_cell, lstm_cell, rnn_cell
from floatsim.operators.cells_backward import gru_cell_backward, lstm_cell_backward, rnn_cell_backward
from floatsim.operators.computation import RecipeKeywords
from floatsim.operators.convolution import avg_pool, conv2d, embedding, max_pool
from floatsim.operators.convolution_backward import (
    avg_pool_backward,
    conv2d_backward,
    embedding_backward,
    max_pool_backward,
)
from floatsim.operators.linear import linear, residual_add
from floatsim.operators.linear_backward import linear_backward, residual_add_backward
from floatsim.operators.norms import batch_norm, layer_norm, rms_norm
from floatsim.operators.norms_backward import batch_norm_backward, layer_norm_backward, rms_norm_backward
from floatsim.operators.recipes import RECIPES, Recipe, RecipeLike, as_recipe
from floatsim.operators.softmax import cross_entropy, log_softmax, softmax
from floatsim.operators.softmax_backward import cross_entropy_backward, log_softmax_backward, softmax_backward
from floatsim.operators.steps import operator_steps

if TYPE_CHECKING:
    import pandas

__all__ = ["RecipeRow", "RecipeTable", "Sensitivity", "SensitivityRow", "recipe_table", "sensitivity"]

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        softmax, log_softmax, cross_entropy, layer_norm, rms_norm, batch_norm, linear, residual_add, attention, conv2d,
        max_pool, avg_pool, embedding, relu, tanh, sigmoid, softplus, silu, gelu, rnn_cell, lstm_cell, gru_cell,
        softmax_backward, log_softmax_backward, cross_entropy_backward, linear_backward, layer_norm_backward,
        rms_norm_backward, batch_norm_backward, residual_add_backward, attention_backward, conv2d_backward,
        max_pool_backward, avg_pool_backward, embedding_backward, relu_backward, tanh_backward, sigmoid_backward,
        softplus_backward, silu_backward, gelu_backward, rnn_cell_backward, lstm_cell_backward, gru_cell_backward,
    )
}  # fmt: skip

_NORMS_OF_BATCHES = ("batch_norm", "batch_norm_backward")
"""The operators whose keyword `training` selects the variant."""

_EVENTS = ("overflow", "invalid", "flushed", "absorbed")


# -- one call ----------------------------------------------------------------------------------------------------------


def _values(result: Any) -> NDArray[np.float64]:
    """Return the values of a result; of several results those of the first."""
    first = result[0] if isinstance(result, tuple) else result
    return first.values if isinstance(first, FloatArray) else np.asarray(first, np.float64)


def _error(found: NDArray[np.float64], exact: NDArray[np.float64]) -> tuple[float, int]:
    """Return the relative error in the Euclidean norm, and the number of results that are not finite but should be.

    The error is infinity if a result should be finite and is not.
    """
    usable = np.isfinite(exact)
    lost = int(np.count_nonzero(usable & ~np.isfinite(found)))
    if lost:
        return math.inf, lost
    size = float(np.linalg.norm(exact[usable]))
    distance = float(np.linalg.norm(found[usable] - exact[usable]))
    return (distance / size if size else distance), 0


def _counted(counts: Iterable[Counts]) -> dict[str, int]:
    listed = list(counts)
    return {event: sum(getattr(each, event) for each in listed) for event in _EVENTS}


def _table(rows: Sequence[Any]) -> str:
    """Return dataclass rows as text columns."""
    names = list(asdict(rows[0])) if rows else []
    cells = [names, *([_cell(value) for value in asdict(row).values()] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    texts = [isinstance(value, str) for value in asdict(rows[0]).values()] if rows else []
    return "\n".join(
        "  ".join(
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(line, widths, texts, strict=True)
        ).rstrip()
        for line in cells
    )


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.1e}" if isinstance(value, float) else str(value)


# -- sensitivity -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SensitivityRow:
    """One step in one lower format.

    Attributes
    ----------
    step, format : str
        The step, and its format. All other steps have the format of the recipe.
    error : float
        The error of the operator's result against float64, in the Euclidean norm, relative to the norm of the result.
        Infinity if a result that should be finite is not.
    nonfinite : int
        The number of these results.
    overflow, invalid, flushed, absorbed : int
        The events in this step.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.sensitivity("softmax", fs.array([20.0, 1.0], "fp32"), "fp16", variant="naive").rows[0].step)
    exp
    """

    step: str
    format: str
    error: float
    nonfinite: int
    overflow: int
    invalid: int
    flushed: int
    absorbed: int


@dataclass(frozen=True)
class Sensitivity:
    """The result of `fs.sensitivity`. Prints as a table, the largest error first.

    Attributes
    ----------
    operator, variant, recipe : str
        The operator, its variant, and the name of the recipe.
    baseline : float
        The error of the recipe without a swap.
    rows : tuple of SensitivityRow
        One row for each step and format, the largest error first.

    Examples
    --------
    >>> import floatsim as fs
    >>> found = fs.sensitivity("softmax", fs.array([20.0, 1.0], "fp32"), "fp16", variant="naive")
    >>> found.above(1e-2)
    ('exp', 'sum')
    """

    operator: str
    variant: str
    recipe: str
    baseline: float
    rows: tuple[SensitivityRow, ...]

    def above(self, error: float) -> tuple[str, ...]:
        """Return the steps with a larger error in some format: the steps to keep in the format of the recipe."""
        return tuple(dict.fromkeys(row.step for row in self.rows if not row.error <= error))

    def to_dict(self) -> dict[str, Any]:
        """Return the table for JSON."""
        return asdict(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a DataFrame."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self.rows])

    def __str__(self) -> str:
        head = f"{self.operator}, {self.variant}, {self.recipe}: error {self.baseline:.1e} without a swap"
        return f"{head}\n{_table(self.rows)}"


def _in_format(accumulation: Accumulation, fmt: FloatFormat) -> Accumulation:
    """Return an accumulation with all accumulators and products in one format. A matrix unit becomes sequential."""
    if isinstance(accumulation, SplitK) and accumulation.through is not None:
        accumulation = replace(accumulation, through=None)
    if isinstance(accumulation, Residue | Tf32x3):
        return _in_format(accumulation.inner, fmt)
    if accumulation.children:
        return accumulation.with_children(lambda child: _in_format(child, fmt))
    if isinstance(accumulation, ProductLeaf) and accumulation.product is not None:
        return replace(accumulation, format=fmt, product=fmt)
    return replace(accumulation, format=fmt) if isinstance(accumulation, Leaf) else Sequential(fmt)


def _swapped(recipe: Recipe, operator: str, step: str, fmt: FloatFormat) -> RecipeKeywords:
    """Return the keywords that put one step, and the accumulation of a sum, into another format."""
    keywords: RecipeKeywords = {"formats": {step: fmt}}
    if step in operator_steps(operator).sums:
        accumulate = recipe.accumulation_of(operator, step)
        if not isinstance(accumulate, str) or "same" not in accumulate:
            keywords["accumulations"] = {step: _in_format(as_accumulation(accumulate), fmt)}
    return keywords


def _check_operands(operator: Callable[..., Any], operands: tuple[Any, ...], given: Any) -> None:
    """Raise a TypeError if the operator takes another number of operands."""
    parameters = list(inspect.signature(operator).parameters.values())
    known = [p for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    needed = [p.name for p in known if p.default is inspect.Parameter.empty]
    if len(needed) <= len(operands) <= len(known):
        return
    names = ", ".join(p.name for p in known)
    what = "a list, which is one operand" if isinstance(given, list) else f"{len(operands)} operands"
    raise TypeError(f"{operator.__name__} takes the operands ({names}), as a tuple; inputs is {what}")


def sensitivity(
    function: Callable[..., Any] | str, inputs: Floats | tuple[Any, ...],
    formats: FormatLike | Iterable[FormatLike] = ("fp16", "bf16"), *, recipe: RecipeLike = "all-fp32",
    **keywords: Any,
) -> Sensitivity:  # fmt: skip
    """Swap one intermediate of an operator at a time to a lower format, and rank the errors of the result.

    Parameters
    ----------
    function : callable or str
        An operator, such as `fs.operators.softmax`, or its name.
    inputs : array_like of floats or tuple
        The operand, or a tuple of the operands, in the order of the operator. A list is one operand.
    formats : format or iterable of formats
        The lower formats.
    recipe : Recipe or str
        The formats of all other steps. The default is FP32 for all.
    **keywords
        Keywords of the operator, such as `variant` or `eps`.

    Returns
    -------
    Sensitivity
        One row for each step and format, the largest error first.

    Raises
    ------
    TypeError, ValueError
        For functions that are no operators, and for the errors of the operator.

    Notes
    -----
    The error is measured against the operator in float64 ("float64" in `fs.operators.RECIPES`). A sum is swapped
    together with its accumulators and products. Operands and the output are steps, too. There is no row for a format
    that a matrix unit of the recipe does not take.

    Examples
    --------
    The steps of a one-pass LayerNorm that need FP32:

    >>> import floatsim as fs, numpy as np
    >>> x = fs.array(np.random.default_rng(0).normal(10, 1, (8, 256)), "fp32")
    >>> fs.sensitivity("layer_norm", x, "fp16", variant="one-pass").above(0.01)
    ('sum', 'square_sum', 'mean')
    """
    operator = function if isinstance(function, str) else getattr(function, "__name__", repr(function))
    if operator not in _FUNCTIONS:
        raise ValueError(f"operator {operator!r} is not known; {name_hint(operator, _FUNCTIONS)}")
    call, operands = _FUNCTIONS[operator], inputs if isinstance(inputs, tuple) else (inputs,)
    _check_operands(call, operands, inputs)
    chosen = as_recipe(recipe)
    if operator in _NORMS_OF_BATCHES:
        variant = "training" if keywords.get("training") else "inference"
    else:
        variant = keywords.pop("variant", None) or chosen.variant_of(operator)
        keywords["variant"] = variant
    exact = _values(call(*operands, recipe="float64", **keywords))
    baseline, _ = _error(_values(call(*operands, recipe=chosen, **keywords)), exact)
    rows = []
    steps = operator_steps(operator).variants.get(variant, ())
    for fmt in as_formats(formats):
        for step in steps:
            try:
                with record(calls=False) as log:
                    found = call(*operands, recipe=chosen, **_swapped(chosen, operator, step, fmt), **keywords)
            except ValueError:  # the recipe itself runs: a matrix unit of it does not take this format
                continue
            error, nonfinite = _error(_values(found), exact)
            events = _counted(log.scopes.get(f"{operator}/{step}", {}).values())
            rows.append(SensitivityRow(step, fmt.name, error, nonfinite, **events))
    rows.sort(key=lambda row: -row.error)  # stable: equal errors keep the order of the steps
    return Sensitivity(operator, variant, chosen.name, baseline, tuple(rows))


# -- operator x recipe -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecipeRow:
    """One operator under one recipe.

    Attributes
    ----------
    operator, variant, recipe : str
        The operator, its variant, and the name of the recipe.
    error : float
        The error of the result against float64, in the Euclidean norm, relative to the norm of the result. Infinity if
        a result that should be finite is not.
    nonfinite : int
        The number of these results.
    overflow, invalid, flushed, absorbed : int
        The events of all steps.
    described : bool
        Whether the source of the recipe describes the operator. If not, the row has the recipe's default formats.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.operators.recipe_table(["softmax"], ["all-fp16"]).rows[0].variant)
    shifted
    """

    operator: str
    variant: str
    recipe: str
    error: float
    nonfinite: int
    overflow: int
    invalid: int
    flushed: int
    absorbed: int
    described: bool


@dataclass(frozen=True)
class RecipeTable:
    """The result of `recipe_table`. Prints as a table.

    Attributes
    ----------
    format : str
        The format of the operands.
    scale : float
        The factor of the operands.
    rows : tuple of RecipeRow
        One row for each operator and recipe.

    Examples
    --------
    >>> import floatsim as fs
    >>> len(fs.operators.recipe_table(["softmax"], ["all-fp16", "fp32-inside"]).rows)
    2
    """

    format: str
    scale: float
    rows: tuple[RecipeRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the table for JSON."""
        return asdict(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a DataFrame."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self.rows])

    def __str__(self) -> str:
        return _table(self.rows)


def _cell_weights(weights: FloatArray, gates: int) -> tuple[FloatArray, FloatArray]:
    """Return the weights of a recurrent cell with 8 hidden values and 64 inputs."""
    of_input = FloatArray(np.resize(weights.codes, (gates * 8, 64)), weights.format)
    return of_input, of_input[:, :8]


def _examples(fmt: FloatFormat, scale: float) -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return the operands and keywords of each operator, from a network trained on the UCI digits."""
    tensors: Mapping[str, NDArray[np.float64]] = {name: x.astype(np.float64) for name, x in digits().items()}
    rounded = {name: array(x * scale, fmt) for name, x in tensors.items()}
    activations, weights, gradients = rounded["activations"], rounded["weights"], rounded["gradients"]
    scores = tensors["activations"] @ tensors["weights"]
    logits = array(scores * scale, fmt)
    ones, zeros = array(np.ones(64), fmt), array(np.zeros(64), fmt)
    tokens = activations[:64]
    images = activations.reshape(512, 1, 8, 8)
    filters = array(np.random.default_rng(0).normal(0, 1 / 3, (8, 1, 3, 3)), fmt)
    state, state_gradients = activations[:, :8], gradients[:, :8]
    pooled_gradients = np.resize(gradients, (512, 1, 4, 4))
    activation_results = {"tanh": tanh(logits), "sigmoid": sigmoid(logits)}
    return {
        "softmax": ((logits,), {}),
        "log_softmax": ((logits,), {}),
        "cross_entropy": ((logits, scores.argmax(axis=-1)), {}),
        "layer_norm": ((activations, ones, zeros), {}),
        "rms_norm": ((activations, ones), {}),
        "batch_norm": ((activations, zeros, ones, ones, zeros), {"training": True}),
        "linear": ((activations, np.transpose(weights)), {}),
        "residual_add": ((activations, activations[::-1]), {}),
        "attention": ((tokens, tokens, tokens), {"causal": True, "block": 64}),
        "conv2d": ((images, filters), {"padding": 1}),
        "max_pool": ((images, 2), {}),
        "avg_pool": ((images, 2), {}),
        "embedding": ((np.arange(64), weights), {}),
        **{name: ((logits,), {}) for name in ("relu", "tanh", "sigmoid", "softplus", "silu", "gelu")},
        "rnn_cell": ((activations, state, *_cell_weights(weights, 1)), {}),
        "lstm_cell": ((activations, state, state, *_cell_weights(weights, 4)), {}),
        "softmax_backward": ((gradients, softmax(logits)), {}),
        "log_softmax_backward": ((gradients, log_softmax(logits)), {}),
        "cross_entropy_backward": ((logits, scores.argmax(axis=-1)), {}),
        "linear_backward": ((gradients, activations, np.transpose(weights)), {}),
        "layer_norm_backward": ((gradients, logits), {}),
        "rms_norm_backward": ((gradients, logits), {}),
        "attention_backward": ((tokens, tokens, tokens, tokens), {"causal": True, "block": 64}),
        "batch_norm_backward": ((gradients, logits, zeros[:32], ones[:32], ones[:32]), {"training": True}),
        "residual_add_backward": ((gradients, (32,)), {}),
        "conv2d_backward": ((np.resize(gradients, (512, 8, 8, 8)), images, filters), {"padding": 1}),
        "max_pool_backward": ((pooled_gradients, images, 2), {}),
        "avg_pool_backward": ((pooled_gradients, (8, 8), 2), {}),
        "embedding_backward": ((gradients, scores.argmax(axis=-1), 64), {}),
        **{
            f"{name}_backward": ((gradients, activation_results.get(name, logits)), {})
            for name in ("relu", "tanh", "sigmoid", "softplus", "silu", "gelu")
        },
        "rnn_cell_backward": ((state_gradients, activations, state, *_cell_weights(weights, 1)), {}),
        "lstm_cell_backward": ((state_gradients, None, activations, state, state, *_cell_weights(weights, 4)), {}),
        "gru_cell_backward": ((state_gradients, activations, state, *_cell_weights(weights, 3)), {}),
        "gru_cell": ((activations, state, *_cell_weights(weights, 3)), {}),
    }


def recipe_table(
    operators: Iterable[str] | None = None, recipes: Iterable[RecipeLike] | None = None, *,
    format: FormatLike = "fp16", scale: float = 1.0,
) -> RecipeTable:  # fmt: skip
    """Return the errors and events of operators under recipes, on real activations.

    The operands come from a network trained on the UCI digits (`fs.datasets.digits`): the activations and weights of
    its middle layer, and the products of both. Attention takes the activations of 64 images as query, key and value. A
    convolution takes them as images of 8 x 8, with random filters. The recurrent cells reuse the weights. The backward
    operators take the gradients of training, at the end of which they are small, repeated where they are too few.

    Parameters
    ----------
    operators : iterable of str, optional
        The names of operators. Default: all.
    recipes : iterable of Recipe or str, optional
        Default: all named recipes but "float64" and "all-fp32", for the operators that their sources describe.
    format : format
        The format of the operands.
    scale : float
        A factor of the operands. Large factors make narrow formats overflow.

    Returns
    -------
    RecipeTable

    Raises
    ------
    ValueError
        For unknown names, with the nearest match.

    Examples
    --------
    >>> import floatsim as fs
    >>> table = fs.operators.recipe_table(["rms_norm"], ["all-fp16", "fp32-inside"], scale=16)
    >>> [row.overflow > 0 for row in table.rows]
    [True, False]
    """
    fmt = as_format(format)
    examples = _examples(fmt, scale)
    if recipes is None:
        chosen = [recipe for name, recipe in RECIPES.items() if name not in ("float64", "all-fp32")]
    else:
        chosen = [as_recipe(recipe) for recipe in recipes]
    rows = []
    for operator in examples if operators is None else operators:
        operator_steps(operator)
        operands, keywords = examples[operator]
        call = _FUNCTIONS[operator]
        exact = {}
        for recipe in chosen:
            if recipes is None and recipe.operators and operator not in recipe.operators:
                continue
            variant = "training" if operator in _NORMS_OF_BATCHES else recipe.variant_of(operator)
            if variant not in exact:
                exact[variant] = _values(call(*operands, recipe="float64", variant=variant, **keywords))
            with record(calls=False) as log:
                found = call(*operands, recipe=recipe, **keywords)
            error, nonfinite = _error(_values(found), exact[variant])
            events, described = _counted(log.counts.values()), recipe.describes(operator)
            rows.append(RecipeRow(operator, variant, recipe.name, error, nonfinite, described=described, **events))
    return RecipeTable(fmt.name, scale, tuple(rows))
