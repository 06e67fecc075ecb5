"""Train a small network on the UCI digits and store it with its images: `python data/digits/make_digits.py`.

The network: 64 raw pixels (0 to 16) -> 64 -> 32 -> 10, ReLU, softmax cross-entropy averaged over the batch, stochastic
gradient descent with momentum. All computation is in float64 NumPy. The activations and gradients belong to the middle
layer, for one training batch, after the last step. Nothing is scaled, clipped or chosen by value: the survey shows
underflow because the gradients of a trained network are that small.

Needs NumPy and, to load the images, scikit-learn. Takes a few seconds.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SIZES = (64, 64, 32, 10)
BATCH, BATCHES = 512, 3  # 1536 training images; the other 261 of the 1797 are for testing
EPOCHS, RATE, MOMENTUM, SEED = 300, 2e-3, 0.9, 2026

Array = NDArray[np.float64]


def initial(rng: np.random.Generator) -> tuple[list[Array], list[Array]]:
    """Weights after He et al. (2015), and zero biases."""
    weights = [rng.normal(0, np.sqrt(2 / n), (n, m)) for n, m in pairwise(SIZES)]
    return weights, [np.zeros(m) for m in SIZES[1:]]


def forward(x: Array, weights: list[Array], biases: list[Array]) -> list[Array]:
    """The input of every layer, and last the logits."""
    activations = [x]
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        activations.append(np.maximum(activations[-1] @ w + b, 0))
    return [*activations, activations[-1] @ weights[-1] + biases[-1]]


def backward(activations: list[Array], labels: NDArray[np.int64], weights: list[Array]) -> list[Array]:
    """The gradient of the batch's mean loss by the pre-activations of every layer."""
    logits = activations[-1]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    p[rows, labels] = 0
    p[rows, labels] = -p.sum(axis=1)  # p - 1 without the cancellation
    deltas = [p / len(labels)]
    for w, h in zip(weights[:0:-1], activations[-2:0:-1], strict=True):
        deltas.insert(0, (deltas[0] @ w.T) * (h > 0))
    return deltas


def main() -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = digits.data, digits.target
    n = BATCH * BATCHES
    rng = np.random.default_rng(SEED)
    weights, biases = initial(rng)
    parameters = [*weights, *biases]
    velocities = [np.zeros_like(p) for p in parameters]
    for _ in range(EPOCHS):
        for batch in rng.permutation(n).reshape(BATCHES, BATCH):
            activations = forward(images[batch], weights, biases)
            deltas = backward(activations, labels[batch], weights)
            gradients = [h.T @ d for h, d in zip(activations, deltas, strict=False)]
            gradients += [d.sum(axis=0) for d in deltas]
            for i, gradient in enumerate(gradients):
                velocities[i] = MOMENTUM * velocities[i] - RATE * gradient
                parameters[i] += velocities[i]

    def accuracy(part: slice) -> float:
        return float((forward(images[part], weights, biases)[-1].argmax(axis=1) == labels[part]).mean())

    print(f"right: {accuracy(slice(0, n)):.2%} of the training images, {accuracy(slice(n, None)):.2%} of the others")

    activations = forward(images[:BATCH], weights, biases)
    deltas = backward(activations, labels[:BATCH], weights)
    here = Path(__file__).parent
    np.savez_compressed(here / "forward.npz", activations=np.float32(activations[1]), weights=np.float32(weights[1]))
    np.savez_compressed(here / "backward.npz", gradients=np.float32(deltas[1]))
    layers = {f"weights_{i}": np.float32(w) for i, w in enumerate(weights)}
    layers |= {f"biases_{i}": np.float32(b) for i, b in enumerate(biases)}
    np.savez_compressed(here / "network.npz", **layers)
    np.savez_compressed(here / "images.npz", images=images.astype(np.uint8), labels=labels.astype(np.uint8))
    for path in sorted(here.glob("*.npz")):
        with np.load(path) as arrays:
            for name, x in arrays.items():
                size = np.abs(x[x != 0])
                print(
                    f"{path.name}: {name} {x.shape} {x.dtype}, {np.mean(x == 0):.0%} zeros, "
                    f"others {size.min():.1e} to {size.max():.1e}, median {np.median(size):.1e}"
                )


if __name__ == "__main__":
    main()
