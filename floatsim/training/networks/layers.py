"""The layers of the small networks: two explicit passes each, every operation under a policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.float_array import FloatArray
from floatsim.training.networks.execution import Execution

__all__ = [
    "Attention", "Block", "Convolution", "Flatten", "Layer", "LayerNorm", "Linear", "MaxPool", "Relu", "Tensors",
]  # fmt: skip

Tensors: TypeAlias = Mapping[str, FloatArray]
Gradients: TypeAlias = dict[str, FloatArray]
Random: TypeAlias = np.random.Generator


class Layer:
    """A layer: its path, its parameters, and its two passes. `saved` is what the forward pass keeps."""

    inner: Sequence[Layer] = ()
    """The layers that it consists of."""

    def __init__(self, path: str) -> None:
        self.path = path

    def kinds(self) -> dict[str, str]:
        """Return the class of the layer of each path, of the inner layers too."""
        found = {self.path: type(self).__name__}
        for layer in self.inner:
            found |= layer.kinds()
        return found

    def initial(self, rng: Random) -> dict[str, NDArray[np.float64]]:
        """Return the first values of the parameters, by path."""
        return {}

    def forward(self, run: Execution, weights: Tensors, x: FloatArray) -> tuple[FloatArray, Any]:
        """Return the result, and what the backward pass needs."""
        raise NotImplementedError

    def backward(self, run: Execution, weights: Tensors, saved: Any, g: FloatArray) -> tuple[FloatArray, Gradients]:
        """Return the gradient by the input, and those by the parameters."""
        raise NotImplementedError


class Linear(Layer):
    """y = x @ weight.T + bias."""

    def __init__(self, path: str, inputs: int, outputs: int) -> None:
        super().__init__(path)
        self.inputs, self.outputs = inputs, outputs

    def initial(self, rng: Random) -> dict[str, NDArray[np.float64]]:
        scale = math.sqrt(2 / self.inputs)
        weight = rng.normal(0, scale, (self.outputs, self.inputs))
        return {f"{self.path}.weight": weight, f"{self.path}.bias": np.zeros(self.outputs)}

    def forward(self, run: Execution, weights: Tensors, x: FloatArray) -> tuple[FloatArray, Any]:
        weight, bias = weights[f"{self.path}.weight"], weights[f"{self.path}.bias"]
        return run.forward("linear", self.path, x, weight, bias), x

    def backward(self, run: Execution, weights: Tensors, saved: Any, g: FloatArray) -> tuple[FloatArray, Gradients]:
        by_x, by_weight, by_bias = run.backward("linear", self.path, g, saved, weights[f"{self.path}.weight"])
        return by_x, {f"{self.path}.weight": by_weight, f"{self.path}.bias": by_bias}


class Relu(Layer):
    """y = max(x, 0)."""

    def forward(self, run: Execution, weights: Tensors, x: FloatArray) -> tuple[FloatArray, Any]:
        return run.forward("relu", self.path, x), x

    def backward(self, run: Execution, weights: Tensors, saved: Any, g: FloatArray) -> tuple[FloatArray, Gradients]:
        return run.backward("relu", self.path, g, saved), {}


class Convolution(Layer):
    """A convolution of images (batch, channels, height, width), with a padding that keeps the size."""

    def __init__(self, path: str, channels: int, outputs: int, size: int = 3) -> None:
        super().__init__(path)
        self.shape, self.padding = (outputs, channels, size, size), size // 2

    def initial(self, rng: Random) -> dict[str, NDArray[np.float64]]:
        scale = math.sqrt(2 / math.prod(self.shape[1:]))
        return {
            f"{self.path}.weight": rng.normal(0, scale, self.shape),
            f"{self.path}.bias": np.zeros(self.shape[0]),
        }

    def forward(self, run: Execution, weights: Tensors, x: FloatArray) -> tuple[FloatArray, Any]:
        weight, bias = weights[f"{self.path}.weight"], weights[f"{self.path}.bias"]
        return run.forward("conv2d", self.path, x, weight, bias, padding=self.padding), x

    def backward(self, run: Execution, weights: Tensors, saved: Any, g: FloatArray) -> tuple[FloatArray, Gradients]:
        weight = weights[f"{self.path}.weight"]
        by_x, by_weight, by_bias = run.backward("conv2d", self.path, g, saved, weight, padding=self.padding)
        return by_x, {f"{self.path}.weight": by_weight, f"{self.path}.bias": by_bias}


class MaxPool(Layer):
    """The largest element of each 2 x 2 window."""

    def forward(self, run: Execution, weights: Tensors, x: FloatArray) -> tuple[FloatArray, Any]:
        return run.forward("max_pool", self.path, x, size=2), x

    def backward(self, run: Execution, weights: Tensors, saved: Any, g: FloatArray) -> tuple[FloatArray, Gradients]:
        return run.backward("max_pool", self.path, g, saved, size=2), {}


class Flatten(Layer):
    """All axes but the first as one. Nothing is rounded."""

    def __init__(self, path: str, shape: tuple[int, ...] = (-1,)) -> None:
        super().__init__(path)
        self.shape = shape

    def forward(self, run: Execution, weights: Tensors, x: FloatArray) -> tuple[FloatArray, Any]:
        return x.reshape(x.shape[0], *self.shape), x.shape

    def backward(self, run: Execution, weights: Tensors, saved: Any, g: FloatArray) -> tuple[FloatArray, Gradients]:
        return g.reshape(*saved), {}


class LayerNorm(Layer):
    """Layer normalization along the last axis."""

    def __init__(self, path: str, features: int) -> None:
        super().__init__(path)
        self.features = features

    def initial(self, rng: Random) -> dict[str, NDArray[np.float64]]:
        return {f"{self.path}.weight": np.ones(self.features), f"{self.path}.bias": np.zeros(self.features)}

    def forward(self, run: Execution, weights: Tensors, x: FloatArray) -> tuple[FloatArray, Any]:
        weight, bias = weights[f"{self.path}.weight"], weights[f"{self.path}.bias"]
        return run.forward("layer_norm", self.path, x, weight, bias), x

    def backward(self, run: Execution, weights: Tensors, saved: Any, g: FloatArray) -> tuple[FloatArray, Gradients]:
        weight = weights[f"{self.path}.weight"]
        by_x, by_weight, by_bias = run.backward("layer_norm", self.path, g, saved, weight)
        return by_x, {f"{self.path}.weight": by_weight, f"{self.path}.bias": by_bias}


class Attention(Layer):
    """Self-attention with heads: three linear layers, attention, one linear layer. x is (batch, tokens, features)."""

    def __init__(self, path: str, features: int, heads: int) -> None:
        super().__init__(path)
        self.heads = heads
        self.inner = [Linear(f"{path}.{name}", features, features) for name in ("query", "key", "value", "output")]

    def initial(self, rng: Random) -> dict[str, NDArray[np.float64]]:
        return {name: value / math.sqrt(2) for part in self.inner for name, value in part.initial(rng).items()}

    def _split(self, x: FloatArray) -> FloatArray:
        """Return (batch, heads, tokens, features of a head)."""
        batch, tokens, features = x.shape
        turned: Any = np.swapaxes(x.reshape(batch, tokens, self.heads, features // self.heads), 1, 2)
        return turned  # type: ignore[no-any-return]

    def _joined(self, x: FloatArray) -> FloatArray:
        batch, _, tokens, _ = x.shape
        turned: Any = np.swapaxes(x, 1, 2)
        return turned.reshape(batch, tokens, -1)  # type: ignore[no-any-return]

    def forward(self, run: Execution, weights: Tensors, x: FloatArray) -> tuple[FloatArray, Any]:
        *projections, output = self.inner
        q, k, v = (self._split(part.forward(run, weights, x)[0]) for part in projections)
        mixed = self._joined(run.forward("attention", self.path, q, k, v))
        return output.forward(run, weights, mixed)[0], (x, q, k, v, mixed)

    def backward(self, run: Execution, weights: Tensors, saved: Any, g: FloatArray) -> tuple[FloatArray, Gradients]:
        x, q, k, v, mixed = saved
        *projections, output = self.inner
        g, gradients = output.backward(run, weights, mixed, g)
        of_heads = run.backward("attention", self.path, self._split(g), q, k, v)
        by_x: Any = None
        for part, gradient in zip(projections, of_heads, strict=True):
            found, own = part.backward(run, weights, x, self._joined(gradient))
            by_x = found if by_x is None else run.forward("residual_add", self.path, by_x, found)
            gradients |= own
        return by_x, gradients


class Block(Layer):
    """A residual block: y = x + inner(norm(x))."""

    def __init__(self, path: str, layers: Sequence[Layer]) -> None:
        super().__init__(path)
        self.inner = layers

    def initial(self, rng: Random) -> dict[str, NDArray[np.float64]]:
        return {name: value for layer in self.inner for name, value in layer.initial(rng).items()}

    def forward(self, run: Execution, weights: Tensors, x: FloatArray) -> tuple[FloatArray, Any]:
        saved, y = [], x
        for layer in self.inner:
            y, kept = layer.forward(run, weights, y)
            saved.append(kept)
        return run.forward("residual_add", self.path, y, x), saved

    def backward(self, run: Execution, weights: Tensors, saved: Any, g: FloatArray) -> tuple[FloatArray, Gradients]:
        gradients: Gradients = {}
        inner, through = run.backward("residual_add", self.path, g)
        for layer, kept in zip(reversed(self.inner), reversed(saved), strict=True):
            inner, own = layer.backward(run, weights, kept, inner)
            gradients |= own
        return run.forward("residual_add", self.path, inner, through), gradients
