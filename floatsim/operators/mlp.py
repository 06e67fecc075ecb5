"""A network of linear layers under recipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from floatsim.arrays.array.interop import stays_on_device
from floatsim.arrays.array.types import Floats
from floatsim.arrays.events.record import scope
from floatsim.operators.activations import relu
from floatsim.operators.linear import linear
from floatsim.operators.recipes import RecipeLike, as_recipe

__all__ = ["mlp"]


@stays_on_device
def mlp(
    x: Floats, weights: Sequence[Any], biases: Sequence[Any], *, recipe: RecipeLike = "fp32-inside",
    layer_recipes: Mapping[int, RecipeLike] | None = None,
) -> Any:  # fmt: skip
    """Return the outputs of linear layers with ReLU between them.

    Parameters
    ----------
    x : array_like of floats, (..., inputs)
        A FloatArray or an array whose dtype is a format.
    weights : sequence of array_like of floats, (outputs, inputs) each
        The weights of the layers, as in `fs.operators.linear`.
    biases : sequence of array_like of floats, (outputs,) each
        The biases of the layers. None for a layer without a bias.
    recipe : Recipe or str
        The recipe of all layers.
    layer_recipes : mapping of int to Recipe or str, optional
        The recipes of single layers, by their index. A negative index counts from the end.

    Returns
    -------
    FloatArray or ndarray, (..., outputs)
        The result of the last layer, without ReLU.

    Raises
    ------
    TypeError, ValueError
        As in `fs.operators.linear`. Also for numbers of weights and biases that differ, and for an index without a
        layer.

    Notes
    -----
    Each layer is `fs.operators.linear`, and each but the last is followed by `fs.operators.relu`. Under `fs.record`,
    the scopes are "layer0/linear/product" and so on.

    Examples
    --------
    A network that reads digits, with formats for all values of each layer, and its accuracy on 261 test images:

    >>> import floatsim as fs
    >>> net = fs.datasets.digits_network()
    >>> weights = [w.T for w in net.weights]
    >>> for fmt in ("bf16", "e4m3", "e3m2", "e2m1"):
    ...     recipe = fs.operators.Recipe(fmt, format=fmt, accumulate="fp32")
    ...     accuracy = net.accuracy(fs.operators.mlp(net.images, weights, net.biases, recipe=recipe))
    ...     print(f"{fmt} {accuracy:.3f}")
    bf16 0.874
    e4m3 0.874
    e3m2 0.858
    e2m1 0.100
    """
    if len(weights) != len(biases) or not len(weights):
        raise ValueError(f"mlp needs as many weights as biases, and at least one: {len(weights)} and {len(biases)}")
    last, chosen = len(weights) - 1, [as_recipe(recipe)] * len(weights)
    for index, other in (layer_recipes or {}).items():
        if not -len(weights) <= index <= last:
            raise ValueError(f"layer_recipes has the index {index}, and there are {len(weights)} layers")
        chosen[index] = as_recipe(other)
    result: Any = x
    for n, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        with scope(f"layer{n}"):
            result = linear(result, weight, bias, recipe=chosen[n])
            if n < last:
                result = relu(result, recipe=chosen[n])
    return result
