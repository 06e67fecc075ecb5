"""Questions about networks: depth, saturating activations, warm-up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from floatsim import array, convert, gelu, matmul, maximum, sigmoid, tanh
from floatsim.training import Monitor, Trainer, digits_data
from studies.questions.question import Chart, Found, Question, asked

QUESTIONS: dict[str, Question] = {}


@asked(QUESTIONS, "depth", "How does the rounding error grow with the depth of a network?")
def depth(layers: int = 100, width: int = 64) -> Found:
    """Products with random orthogonal matrices: the relative error of the activations after each layer, in FP64."""
    rng = np.random.default_rng(0)
    weights = [np.linalg.qr(rng.normal(size=(width, width)))[0] for _ in range(layers)]
    gains = {"": 1.0, ", gain 1.1": 1.1}
    series: dict[str, tuple[list[int], list[float]]] = {}
    numbers: dict[str, float] = {}
    for fmt in ("FP16", "BF16"):
        for label, gain in gains.items():
            series[fmt + label] = (list(range(1, layers + 1)), _errors(weights, fmt, gain, rng))
    for name, (xs, ys) in series.items():
        numbers[f"{name}: error after 1 layer"], numbers[f"{name}: error after {layers}"] = ys[0], ys[-1]
        numbers[f"{name}: exponent of the growth"] = float(np.polyfit(np.log(xs), np.log(ys), 1)[0])
    bf16 = series["BF16"][1]
    sentence = (
        f"With matrices that keep lengths, the error in BF16 is {bf16[0]:.2g} after 1 layer and {bf16[-1]:.2g} after "
        f"{layers}. It grows as the power {numbers['BF16: exponent of the growth']:.2f} of the depth, close to the "
        "square root. If each layer amplifies errors by 1.1, and the signal by 1, it is "
        f"{series['BF16, gain 1.1'][1][-1]:.2g}. The norms of the Jacobians decide, not the number of layers."
    )
    return Found(sentence, numbers, Chart(series, "layer", "relative error", log_x=True, log_y=True))


def _errors(weights: list[Any], fmt: str, gain: float, rng: np.random.Generator) -> list[float]:
    """Return the relative error after each layer. Directions across the exact signal are multiplied by `gain`."""
    exact = array(rng.normal(size=(16, len(weights[0]))), fmt).values
    rounded, found = array(exact, fmt), []
    for weight in weights:
        stored = array(weight, fmt)
        exact = exact @ stored.values
        product = matmul(rounded, stored, accumulate="fp32", format="fp32")
        difference = product.values - exact
        along = np.sum(difference * exact, axis=1, keepdims=True) / np.sum(exact**2, axis=1, keepdims=True) * exact
        rounded = array(exact + along + gain * (difference - along), fmt)
        found.append(float(np.linalg.norm(rounded.values - exact) / np.linalg.norm(exact)))
    return found


_ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "sigmoid": sigmoid, "tanh": tanh, "gelu": gelu, "relu": lambda x: maximum(x, array(0.0, "fp32")),
}  # fmt: skip


@asked(QUESTIONS, "saturation", "Do saturating activations damp rounding errors?")
def saturation(values: int = 4096) -> Found:
    """The RMS change of the result, divided by the RMS rounding error of the input in BF16, by regions of the input."""
    rng, starts = np.random.default_rng(0), np.arange(-8, 8)
    series: dict[str, tuple[list[float], list[float]]] = {}
    for name, function in _ACTIVATIONS.items():
        gains = []
        for start in starts:
            x = array(rng.uniform(start, start + 1, values), "fp32")
            rounded = convert(convert(x, "bf16"), "fp32")
            change = function(rounded).values - function(x).values
            gains.append(float(np.linalg.norm(change) / np.linalg.norm(rounded.values - x.values)))
        series[name] = ((starts + 0.5).tolist(), gains)
    numbers = {f"{name} at {region}": dict(zip(xs, ys, strict=True))[at] for name, (xs, ys) in series.items()
               for region, at in (("-4 to -3", -3.5), ("0 to 1", 0.5), ("4 to 5", 4.5))}  # fmt: skip
    sentence = (
        "Sigmoid and tanh damp them, for both signs. For inputs from 4 to 5, they multiply an input error by "
        f"{numbers['sigmoid at 4 to 5']:.2g} and {numbers['tanh at 4 to 5']:.2g}. ReLU and GELU pass errors of large "
        f"positive inputs on: {numbers['relu at 4 to 5']:.2g} and {numbers['gelu at 4 to 5']:.2g}. They damp those "
        "of negative inputs."
    )
    return Found(sentence, numbers, Chart(series, "input of the activation", "error of the result / error of x"))


def _warmed_up(policy: str, steps: int, epochs: int, lr: float) -> tuple[float, float, float]:
    """Return the accuracy with a linear warm-up of Adam, and the absorbed share of the first and of the last step."""
    data, monitor = digits_data(), Monitor("bf16")
    trainer = Trainer(policy, "mlp", "adam", lr=lr, monitor=monitor)
    x, step = trainer.inputs(data.x), 0
    last = epochs * len(list(data.batches(32, 0, 0))) - 1
    for epoch in range(epochs):
        for rows in data.batches(32, 0, epoch):
            step += 1
            trainer.optimizer.lr = lr * min(1.0, step / max(steps, 1))
            monitor.every = 1 if step - 1 in (0, last) else last + 2
            trainer.step(x[rows], data.y[rows])
    absorbed = monitor.updates["layer0.weight"]
    return trainer.accuracy(trainer.inputs(data.test_x), data.test_y), absorbed[0].absorbed, absorbed[-1].absorbed


@asked(QUESTIONS, "warm-up", "Does a warm-up of the learning rate help low precision?")
def warm_up(steps: int = 45, epochs: int = 2, lr: float = 0.01) -> Found:
    """Adam with and without a linear warm-up, in FP32, in BF16, and in BF16 with master weights."""
    names = {"FP32": "fp32", "BF16 + masters": "bf16+masters", "BF16": "bf16"}
    series: dict[str, tuple[list[str], list[float]]] = {"without warm-up": ([], []), "with warm-up": ([], [])}
    numbers: dict[str, float] = {}
    for name, policy in names.items():
        for label, length in (("without warm-up", 0), ("with warm-up", steps)):
            accuracy, first, end = _warmed_up(policy, length, epochs, lr)
            series[label][0].append(name)
            series[label][1].append(accuracy)
            numbers |= {f"{name} {label}": accuracy, f"{name} {label}, absorbed in step 0": first,
                        f"{name} {label}, absorbed in the last step": end}  # fmt: skip
    sentence = (
        f"It is no remedy for rounding. After {epochs} epochs of Adam at a rate of {lr:g}, the accuracy is "
        f"{numbers['FP32 with warm-up']:.3f} with and {numbers['FP32 without warm-up']:.3f} without warm-up in FP32, "
        f"and {numbers['BF16 with warm-up']:.3f} and {numbers['BF16 without warm-up']:.3f} in BF16. Its small first "
        "steps are absorbed by BF16 weights: "
        f"{numbers['BF16 with warm-up, absorbed in step 0']:.0%} in the first step, and "
        f"{numbers['BF16 without warm-up, absorbed in step 0']:.0%} without warm-up."
    )
    return Found(sentence, numbers, Chart(series, "policy", "accuracy on test images"))
