"""Small networks with explicit forward and backward passes, built on the operators: each rounding is in a recipe."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.conversion import array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.arithmetic import multiply
from floatsim.formats import FP32, FormatLike
from floatsim.formats._validation import as_index, name_hint
from floatsim.training.networks.execution import Execution
from floatsim.training.networks.layers import (
    Attention,
    Block,
    Convolution,
    Flatten,
    Layer,
    LayerNorm,
    Linear,
    MaxPool,
    Relu,
    Tensors,
)
from floatsim.training.policies.policy import Policy
from floatsim.training.policies.storage import store
from floatsim.training.scaling.layer_loss_scales import LayerLossScales

__all__ = ["Network", "Pass", "as_network", "mlp", "small_cnn", "transformer_block"]


class Pass(NamedTuple):
    """The result of one forward and backward pass.

    Attributes
    ----------
    loss : FloatArray
        The mean cross-entropy, without scales.
    logits : FloatArray, (batch, classes)
        The result of the last layer.
    gradients : dict of str to FloatArray
        The gradients of the scaled loss, by the path of the parameter.
    """

    loss: FloatArray
    logits: FloatArray
    gradients: dict[str, FloatArray]


class Network:
    """Layers in a row, and the cross-entropy of the last result.

    Parameters
    ----------
    name : str
        The name, for messages.
    layers : sequence of layers
        Each has a path, parameters and two passes.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> network = fs.training.mlp(2, 4, 3)
    >>> weights = network.initial(seed=0)
    >>> run = fs.training.Execution("bf16")
    >>> found = network.run(run, weights, fs.array(np.ones((5, 2)), "bf16"), np.zeros(5, int))
    >>> found.loss.format.name, found.gradients["head.weight"].shape
    ('BF16', (3, 4))
    """

    def __init__(self, name: str, layers: Sequence[Layer]) -> None:
        self.name, self.layers = name, list(layers)

    @property
    def paths(self) -> list[str]:
        """The paths of the layers with parameters."""
        return list(dict.fromkeys(name.rpartition(".")[0] for name in self.initial(0)))

    def used_weights(self, policy: Policy, weights: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
        """Return the weights as a step uses them: rounded by `weights_at_use` of the policy.

        >>> import floatsim as fs
        >>> network = mlp(2, 3, 2)
        >>> used = network.used_weights(fs.training.Policy(weights_at_use="e4m3"), network.initial())
        >>> used["head.weight"].format.name, used["head.bias"].format.name
        ('E4M3', 'FP32')
        """
        kinds = self.parameter_kinds()
        return {name: store(w, policy.weight_at_use([name], [kinds[name]])) for name, w in weights.items()}

    def parameter_kinds(self) -> dict[str, str]:
        """Return the class of the layer with the name of the parameter, for the path of each parameter.

        >>> mlp(2, 3, 2).parameter_kinds()["head.bias"]
        'Linear.bias'
        """
        kinds = {path: kind for layer in self.layers for path, kind in layer.kinds().items()}
        split = ((name, *name.rsplit(".", 1)) for name in self.initial())
        return {name: f"{kinds[path]}.{own}" for name, path, own in split}

    def initial(self, seed: int = 0, format: FormatLike = "fp32") -> dict[str, FloatArray]:
        """Return the first values of the parameters, rounded to a format.

        Parameters
        ----------
        seed : int
            The seed of the normal distribution, with the variance 2 / inputs.
        format : format
            The format of the parameters.

        Returns
        -------
        dict of str to FloatArray
            By path, such as "layer0.weight".
        """
        rng = np.random.default_rng(as_index(seed, "seed", 0, (1 << 64) - 1))
        drawn = {name: value for layer in self.layers for name, value in layer.initial(rng).items()}
        return {name: array(value, format) for name, value in drawn.items()}

    def forward(self, run: Execution, weights: Tensors, x: FloatArray) -> tuple[FloatArray, list[Any]]:
        """Return the result of the last layer, and what the backward pass needs.

        Parameters
        ----------
        run : Execution
            The policy at work.
        weights : mapping of str to FloatArray
            The parameters.
        x : FloatArray, (batch, inputs)
            The inputs.

        Returns
        -------
        logits : FloatArray, (batch, classes)
        saved : list
        """
        saved = []
        for layer in self.layers:
            x, kept = layer.forward(run, weights, x)
            saved.append(kept)
        return x, saved

    def backward(
        self, run: Execution, weights: Tensors, saved: list[Any], gradient: FloatArray,
        scales: LayerLossScales | None = None,
    ) -> dict[str, FloatArray]:  # fmt: skip
        """Return the gradients of all parameters.

        Parameters
        ----------
        run : Execution
            The policy at work.
        weights : mapping of str to FloatArray
            The parameters.
        saved : list
            From `forward`.
        gradient : FloatArray, (batch, classes)
            The gradient by the logits, with the loss scale of the last layer.
        scales : LayerLossScales, optional
            Loss scales of layers. Before a layer, the gradient is multiplied by the ratio of its scale and the scale
            before, and rounded to its format.

        Returns
        -------
        dict of str to FloatArray
            In the order of the layers.
        """
        found: dict[str, FloatArray] = {}
        scale = None if scales is None else scales.of(self.layers[-1].path)
        for layer, kept in zip(reversed(self.layers), reversed(saved), strict=True):
            if scales is not None and scale is not None and scales.of(layer.path) != scale:
                ratio = scales.of(layer.path) / scale
                gradient = multiply(gradient, array(ratio, FP32), format=gradient.format)
                scale = scales.of(layer.path)
            gradient, own = layer.backward(run, weights, kept, gradient)
            found |= own
        return {name: found[name] for name in weights if name in found}

    def run(
        self, run: Execution, weights: Tensors, x: FloatArray, target: NDArray[np.int64], loss_scale: float = 1.0,
        scales: LayerLossScales | None = None,
    ) -> Pass:  # fmt: skip
        """Return the loss, the logits and the gradients of one batch.

        Parameters
        ----------
        run : Execution
            The policy at work.
        weights : mapping of str to FloatArray
            The parameters.
        x : FloatArray, (batch, inputs)
            The inputs.
        target : ndarray of int, (batch,)
            The classes.
        loss_scale : float
            The factor of the loss in the backward pass.
        scales : LayerLossScales, optional
            Loss scales of layers. The factor of the last layer is that of the loss, too.

        Returns
        -------
        Pass
        """
        with run.options():
            logits, saved = self.forward(run, weights, x)
            loss = run.forward("cross_entropy", "loss", logits, target)
            factor = loss_scale * (1.0 if scales is None else scales.of(self.layers[-1].path))
            gradient = run.backward("cross_entropy", "loss", logits, target, loss_scale=factor)
            return Pass(loss, logits, self.backward(run, weights, saved, gradient, scales))


def mlp(*widths: int) -> Network:
    """Return a network of linear layers with ReLU between them.

    Parameters
    ----------
    *widths : int
        The width of the input, of each hidden layer, and the number of classes. Default: 64, 64, 10.

    Returns
    -------
    Network
        The layers are "layer0", "layer1" ... and "head".

    Raises
    ------
    ValueError
        For fewer than two widths.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.mlp(64, 32, 32, 10).paths
    ['layer0', 'layer1', 'head']
    """
    sizes = widths or (64, 64, 10)
    if len(sizes) < 2:
        raise ValueError(f"an MLP needs the widths of its input and output, not {sizes}")
    layers: list[Layer] = []
    for n, (inputs, outputs) in enumerate(itertools.pairwise(sizes[:-1])):
        layers += [Linear(f"layer{n}", inputs, outputs), Relu(f"layer{n}")]
    return Network("mlp", [*layers, Linear("head", sizes[-2], sizes[-1])])


def small_cnn(channels: int = 8, classes: int = 10) -> Network:
    """Return a network for images of 8 x 8 pixels: two convolutions with ReLU and max-pooling, one linear layer.

    Parameters
    ----------
    channels : int
        The channels of the first convolution. The second one has twice as many.
    classes : int
        The number of classes.

    Returns
    -------
    Network

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.small_cnn().paths
    ['conv0', 'conv1', 'head']
    """
    twice = 2 * channels
    return Network("cnn", [
        Flatten("image", (1, 8, 8)),
        Convolution("conv0", 1, channels), Relu("conv0"), MaxPool("pool0"),
        Convolution("conv1", channels, twice), Relu("conv1"), MaxPool("pool1"),
        Flatten("flat"), Linear("head", 4 * twice, classes),
    ])  # fmt: skip


def transformer_block(features: int = 32, heads: int = 2, classes: int = 10) -> Network:
    """Return a transformer with one block for images of 8 x 8 pixels, whose rows are the tokens.

    Parameters
    ----------
    features : int
        The width.
    heads : int
        The heads of the attention.
    classes : int
        The number of classes.

    Returns
    -------
    Network
        A linear embedding of each row, x + attention(norm(x)), x + mlp(norm(x)), a norm, a linear layer of all tokens.

    Raises
    ------
    ValueError
        If the heads do not divide the width.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.transformer_block().paths[:3]
    ['embedding', 'attention.norm', 'attention.query']
    """
    if features % heads:
        raise ValueError(f"features must be a multiple of heads, not {features} and {heads}")
    attention = [LayerNorm("attention.norm", features), Attention("attention", features, heads)]
    feed_forward = [LayerNorm("mlp.norm", features), Linear("mlp.up", features, 2 * features), Relu("mlp.up"),
           Linear("mlp.down", 2 * features, features)]  # fmt: skip
    return Network("transformer", [
        Flatten("image", (8, 8)), Linear("embedding", 8, features),
        Block("attention", attention), Block("mlp", feed_forward),
        LayerNorm("norm", features), Flatten("flat"), Linear("head", 8 * features, classes),
    ])  # fmt: skip


_NETWORKS = {"mlp": mlp, "cnn": small_cnn, "transformer": transformer_block}


def as_network(network: str | Network) -> Network:
    """Return a network by its name, or the network itself.

    Parameters
    ----------
    network : str or Network
        "mlp", "cnn" or "transformer", each for the images of digits.

    Returns
    -------
    Network

    Raises
    ------
    ValueError
        For an unknown name. The message has the nearest match.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.as_network("cnn").name
    'cnn'
    """
    if isinstance(network, Network):
        return network
    name = str(network).strip().lower()
    if name not in _NETWORKS:
        raise ValueError(f"network {network!r} is not known; {name_hint(name, _NETWORKS)}")
    made: Any = _NETWORKS[name]
    return made()  # type: ignore[no-any-return]
