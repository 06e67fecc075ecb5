"""Questions about weights: integers for inference and for training, the straight-through estimator, weight decay."""

from __future__ import annotations

import numpy as np

from floatsim import FloatArray, Rounding, array, quantize_blocks
from floatsim.quantization import INT2, INT3, INT4, INT8, IntegerFormat, Scheme
from floatsim.training import AdamW, Policy, Trainer, digits_data, train
from studies.questions.question import Chart, Found, Question, asked

QUESTIONS: dict[str, Question] = {}


def _per_row(fmt: IntegerFormat) -> Scheme:
    """Return integers with one scale for each row of a matrix, the weights of one output."""
    return Scheme(fmt, (1, None))


_STORED = {"stored in training": Rounding.TIES_TO_EVEN, "stored, stochastic rounding": Rounding.STOCHASTIC}
"""The rounding modes of stored weights, by the names of the cases."""


def _stored(x: FloatArray, scheme: Scheme) -> FloatArray:
    """Return the numbers of integers with a scale for each row. A vector is one row."""
    quantized = quantize_blocks(x.reshape(1, -1) if x.ndim < 2 else x, scheme)
    return quantized.dequantize().reshape(tuple(x.shape))


def _accuracy(weights: dict[str, FloatArray], scheme: Scheme) -> float:
    """Return the accuracy on the test images in FP32, for weights that are stored in another way."""
    trainer, data = Trainer("fp32"), digits_data()
    trainer.weights = {name: _stored(weight, scheme) for name, weight in weights.items()}
    return trainer.accuracy(trainer.inputs(data.test_x), data.test_y)


@asked(QUESTIONS, "stored-weights", "Why do INT8 and INT4 weights serve inference, but ruin training if stored?")
def stored_weights(epochs: int = 6, lr: float = 0.02) -> Found:
    """The same network three times: rounded after training, stored in integers, and stored with stochastic rounding."""
    trained = train("fp32", epochs=epochs, lr=lr)
    normal = array(np.random.default_rng(0).normal(size=(256, 4096)), "fp32")
    groups: dict[str, list[float]] = {"inference": [], "stored in training": [], "stored, stochastic rounding": []}
    numbers = {"FP32": trained.accuracy}
    for fmt in (INT8, INT4):
        scheme = _per_row(fmt)
        error = _stored(normal, scheme).values - normal.values
        numbers[f"{fmt.name} relative error of N(0, 1)"] = float(np.linalg.norm(error) / np.linalg.norm(normal.values))
        groups["inference"].append(_accuracy(trained.weights, scheme))
        for name, rounding in _STORED.items():
            policy = Policy("fp32", weights=scheme, state="fp32", weight_rounding=rounding)
            groups[name].append(train(policy, epochs=epochs, lr=lr).accuracy)
    numbers |= {f"{fmt} {name}": y for name, ys in groups.items() for fmt, y in zip(("INT8", "INT4"), ys, strict=True)}
    sentence = (
        f"Accuracy {trained.accuracy:.3f} in FP32, after {epochs} epochs of SGD at a rate of {lr:g}; with weights that "
        f"are rounded once, after training, "
        f"{numbers['INT8 inference']:.3f} (INT8) and {numbers['INT4 inference']:.3f} (INT4). With weights that are "
        f"stored in each step {numbers['INT8 stored in training']:.3f} and {numbers['INT4 stored in training']:.3f}: "
        "an update is below half a step of the integers, and is absorbed."
    )
    series = {"FP32": (["FP32"], [trained.accuracy]), **{name: (["INT8", "INT4"], ys) for name, ys in groups.items()}}
    return Found(sentence, numbers, Chart(series, "format of the weights", "accuracy on test images"))


@asked(QUESTIONS, "straight-through", "What does a straight-through estimator recover of quantized weights?")
def straight_through(epochs: int = 6, lr: float = 0.1) -> Found:
    """Quantization after training against quantization in each step, whose gradient changes FP32 weights as it is."""
    trained = train("fp32", epochs=epochs, lr=lr)
    formats = (INT8, INT4, INT3, INT2)
    after = [_accuracy(trained.weights, _per_row(fmt)) for fmt in formats]
    within = [
        train(Policy("fp32", weights="fp32", weights_at_use=_per_row(fmt)), epochs=epochs, lr=lr).accuracy
        for fmt in formats
    ]  # fmt: skip
    names = [fmt.name for fmt in formats]
    numbers = {"FP32": trained.accuracy}
    numbers |= {f"{name} after training": y for name, y in zip(names, after, strict=True)}
    numbers |= {f"{name} straight-through": y for name, y in zip(names, within, strict=True)}
    sentence = (
        f"With 2 bits, quantization after training has an accuracy of {after[-1]:.3f}, training with quantized "
        f"weights {within[-1]:.3f}; FP32 has {trained.accuracy:.3f}, after {epochs} epochs of SGD at a rate of {lr:g}. "
        "The forward pass uses the quantized weights, "
        "and the gradient by them changes FP32 weights."
    )
    series = {"after training": (names, after), "straight-through": (names, within)}
    return Found(sentence, numbers, Chart(series, "format of the weights", "accuracy on test images"))


@asked(QUESTIONS, "weight-decay", "When is weight decay absorbed by BF16 weights?")
def weight_decay(weights: int = 20_000) -> Found:
    """One step of AdamW with a gradient of zero: the share of unchanged weights, by the decay lr * weight_decay."""
    values = np.random.default_rng(0).normal(0, 0.05, weights)
    exponents, zero = list(range(-4, -28, -1)), array(np.zeros(weights), "fp32")
    series: dict[str, tuple[list[float], list[float]]] = {}
    for name in ("FP32", "FP16", "BF16"):
        w, shares = array(values, name), []
        for exponent in exponents:
            step = AdamW(2.0**exponent, weight_decay=1.0, eps=1.0)  # 1e-8 is 0 in FP16
            shares.append(float(np.mean(step.step({"w": w}, {"w": zero.astype(name)})["w"].values == w.values)))
        series[name] = ([2.0**e for e in exponents], shares)
    absorbed = {name: [e for e, y in zip(exponents, ys, strict=True) if y > 0.999] for name, (_, ys) in series.items()}
    numbers = {f"{name}: log2 of the largest decay absorbed by all weights": float(max(found))
               for name, found in absorbed.items() if found}  # fmt: skip
    numbers["BF16: share absorbed at lr * decay = 2^-13"] = series["BF16"][1][exponents.index(-13)]
    sentence = (
        f"In BF16, at lr * weight_decay = 2^{max(absorbed['BF16'])} and below: each decay is at most half an ulp of "
        f"its weight, and all weights stay as they are. In FP16 the limit is 2^{max(absorbed['FP16'])}. A learning "
        "rate of 1e-3 and a decay of 0.1 make 1e-4. In BF16 without master weights, this decay has no effect."
    )
    return Found(sentence, numbers, Chart(series, "lr * weight_decay", "share of unchanged weights", log_x=True))
