"""Questions about gradients: mini-batch noise, batch size, the learning rate and the loss scale, FP16 or BF16."""

from __future__ import annotations

from typing import Any

import numpy as np

from floatsim import FloatArray, exponent_histogram, quantize
from floatsim.training import Data, Execution, Op, Policy, Trainer, as_policy, digits_data, recommend_format, train
from studies.questions.question import Chart, Found, Question, asked

QUESTIONS: dict[str, Question] = {}


def _trained(epochs: int) -> tuple[Trainer, Data]:
    """Return a trainer in FP32 after some epochs, and its data."""
    trainer, data = Trainer("fp32"), digits_data()
    x = trainer.inputs(data.x)
    for epoch in range(epochs):
        for rows in data.batches(32, 0, epoch):
            trainer.step(x[rows], data.y[rows])
    return trainer, data


def _rms(x: Any) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


def _gradients(trainer: Trainer, data: Data, policy: Policy, batches: Any, scale: float) -> dict[str, Any]:
    """Return the unscaled gradients of each batch under a policy, (batches, ...), for the weights of a trainer."""
    execution, found = Execution(policy), []
    weights = trainer.weights
    for rows in batches:
        x: FloatArray = trainer.inputs(data.x[rows])
        gradients = trainer.network.run(execution, weights, x, data.y[rows], scale).gradients
        found.append({name: gradient.values / scale for name, gradient in gradients.items()})
    return {name: np.stack([each[name] for each in found]) for name in weights}


@asked(QUESTIONS, "batch-noise", "Is the rounding error of gradients small against the noise of mini-batches?")
def batch_noise(batches: int = 20, epochs: int = 1, batch: int = 32, scale: float = 1024.0) -> Found:
    """Per layer: the RMS rounding error of the gradients, divided by their standard deviation over batches."""
    trainer, data = _trained(epochs)
    rows = [each for _, each in zip(range(batches), data.batches(batch, 1, 0), strict=False)]
    exact = _gradients(trainer, data, as_policy("fp32"), rows, 1.0)
    noise = {name: _rms(g - g.mean(axis=0)) for name, g in exact.items()}
    series: dict[str, tuple[list[str], list[float]]] = {}
    numbers: dict[str, float] = {}
    for fmt in ("FP16", "BF16", "E5M2"):
        found = _gradients(trainer, data, Policy(Op(fmt), accumulate="fp32", weight_gradients="fp32"), rows, scale)
        ratios = {name: _rms(found[name] - exact[name]) / noise[name] for name in noise}
        series[fmt] = (list(ratios), list(ratios.values()))
        numbers |= {f"{fmt} {name}": ratio for name, ratio in ratios.items()}
    worst = {fmt: max(ys) for fmt, (_, ys) in series.items()}
    sentence = (
        f"With batches of {batch}, the rounding error is at most {worst['FP16']:.2g} of the noise between batches in "
        f"FP16, {worst['BF16']:.2g} in BF16 and {worst['E5M2']:.2g} in E5M2. The choice of the images hides rounding "
        "in 16 bits."
    )
    return Found(sentence, numbers, Chart(series, "gradient", "rounding error / mini-batch noise", log_y=True))


@asked(QUESTIONS, "batch-size", "Why do larger batches need a larger loss scale?")
def batch_size(epochs: int = 8, gradient: float = 1e-4) -> Found:
    """The gradients of the mean loss by the logits are (p - y) / B: the share that FP16, BF16 and E5M2 flush."""
    trainer, data = _trained(epochs)
    logits, _ = trainer.network.forward(trainer.execution, trainer.weights, trainer.inputs(data.x))
    p = np.exp(logits.values - logits.values.max(axis=1, keepdims=True))
    by_logits = p / p.sum(axis=1, keepdims=True) - np.eye(10)[data.y]
    sizes = [2**k for k in range(5, 21)]
    series = {
        fmt: (sizes, [float(np.mean(quantize(by_logits / size, fmt) == 0)) for size in sizes])
        for fmt in ("FP16", "BF16", "E5M2")
    }  # fmt: skip
    candidates = np.arange(1, 100_000)
    largest = int(candidates[quantize(gradient / candidates, "fp16") != 0].max())
    numbers: dict[str, float] = {f"largest B for which {gradient:g} / B is not 0 in FP16": largest}
    numbers |= {f"{fmt}: flushed at B = {size}": ys[sizes.index(size)]
                for fmt, (_, ys) in series.items() for size in (32, 4096, 2**20)}  # fmt: skip
    fp16 = dict(zip(*series["FP16"], strict=True))
    sentence = (
        f"The mean divides each gradient by B. {gradient:g} / B is zero in FP16 for B above {largest}. Of the "
        f"gradients by the logits, FP16 flushes {fp16[32]:.1%} at B = 32, {fp16[4096]:.1%} at B = 4096 and "
        f"{fp16[2**20]:.0%} at B = 2^20. BF16 flushes {series['BF16'][1][-1]:.1%} at B = 2^20."
    )
    return Found(sentence, numbers, Chart(series, "batch size B", "share of gradients that become zero", log_x=True))


@asked(QUESTIONS, "learning-rate", "Must the learning rate be divided by the loss scale?")
def learning_rate(epochs: int = 3, scale: float = 256.0) -> Found:
    """Unscaled gradients, a learning rate divided by the scale, and both, for SGD and Adam."""
    rates = {"sgd": 0.1, "adam": 1e-3}
    cases: dict[str, dict[str, Any]] = {
        "gradients / S": {"loss_scale": scale},
        "lr / S": {"loss_factor": scale, "lr": 1 / scale},
        "both": {"loss_scale": scale, "lr": 1 / scale},
        "neither": {"loss_factor": scale},
    }
    series: dict[str, tuple[list[str], list[float]]] = {}
    for optimizer, rate in rates.items():
        runs = [train("fp32", "mlp", optimizer, epochs=epochs, **{**case, "lr": rate * case.get("lr", 1.0)})
                for case in cases.values()]  # fmt: skip
        series[optimizer] = (list(cases), [run.accuracy for run in runs])
    numbers = {f"{optimizer}, {case}": y for optimizer, (xs, ys) in series.items()
               for case, y in zip(xs, ys, strict=True)}  # fmt: skip
    sentence = (
        f"No: the gradients are divided. For SGD, dividing the learning rate instead gives the same accuracy in FP32 "
        f"after {epochs} epochs at a rate of {rates['sgd']:g} ({numbers['sgd, gradients / S']:.3f} "
        f"and {numbers['sgd, lr / S']:.3f}), and both barely train "
        f"({numbers['sgd, both']:.3f}). Adam does not depend on the size of gradients: it trains without any "
        f"division ({numbers['adam, neither']:.3f}), and not with lr / S ({numbers['adam, lr / S']:.3f})."
    )
    return Found(sentence, numbers, Chart(series, "divided by the loss scale S", "accuracy on test images"))


@asked(QUESTIONS, "fp16-or-bf16", "Which of FP16 and BF16 for given gradients?")
def fp16_or_bf16(values: int = 20_000, epochs: int = 2) -> Found:
    """The recommendation for gradients of the digits network and for normal logarithms of several widths."""
    rng = np.random.default_rng(0)
    trainer, _ = _trained(epochs)
    tensors = {
        "digits, layer0": trainer.gradients["layer0.weight"].values,
        "log2|g| of N(-12, 2)": np.exp2(rng.normal(-12, 2, values)),
        "log2|g| of N(-24, 3)": np.exp2(rng.normal(-24, 3, values)),
        "log2|g| of N(-24, 6)": np.exp2(rng.normal(-24, 6, values)),
    }
    series: dict[str, tuple[list[int], list[float]]] = {}
    numbers: dict[str, float] = {}
    words = []
    for name, x in tensors.items():
        histogram = exponent_histogram(x, ["fp16", "bf16"])
        found, fp16 = recommend_format(histogram), histogram.losses[0]
        series[name] = (histogram.exponents.tolist(), (histogram.numbers / histogram.numbers.sum()).tolist())
        numbers |= {f"{name}: flushed by FP16": fp16.flushed, f"{name}: bits of precision": found.format.precision,
                    f"{name}: log2 of the loss scale": float(np.log2(found.loss_scale))}  # fmt: skip
        scale = f" with a loss scale of 2^{np.log2(found.loss_scale):.0f}" if found.loss_scale != 1 else ""
        words.append(f"{name}: {found.format.name}{scale}")
    sentence = (
        "FP16 has 3 bits of precision more, if a loss scale moves the gradients into its 40 powers of two; "
        f"otherwise BF16. {'; '.join(words)}."
    )
    chart = Chart(series, "log2 of the magnitude; FP16 keeps -25 to 15 without a loss scale", "share of the values")
    return Found(sentence, numbers, chart)
