"""Claims 31 to 37, 60 and 61: loss scaling, and the scales of FP8."""

from __future__ import annotations

import numpy as np

from floatsim import BF16, E4M3, FP16, FP32, array, conversion_losses, convert, divide, multiply, quantize
from floatsim.training import DelayedScaling, GradScaler, current_scale, replay
from studies.claims.claim import Claim, Finding, computed, decimal, not_computed

CLAIMS: dict[int, Claim] = {}


def _gradients(scale: float = 1.0) -> np.ndarray:
    """Return numbers as gradients are: log2 |g| is normal with mean -24 and standard deviation 6."""
    rng = np.random.default_rng(0)
    return rng.choice([-1.0, 1.0], 50_000) * np.exp2(rng.normal(-24, 6, 50_000)) * scale


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


@computed(CLAIMS, 31, "Training in BF16 needs loss scaling.", format="bf16", tolerated=1e-3)
def _scaling_of_bf16(format: str, tolerated: float) -> Finding:
    losses = {fmt: conversion_losses(_gradients(), fmt).flushed for fmt in (BF16, FP16)}
    flushed = conversion_losses(_gradients(), format).flushed
    text = ", ".join(f"{_percent(share)} in {fmt.name}" for fmt, share in losses.items())
    return Finding(flushed > tolerated, f"of log-normal gradients around 2^-24 become 0: {text}")


@computed(CLAIMS, 32, "Loss scaling compensates for the few bits of BF16's significand.", scale=1024.0)
def _scaling_and_precision(scale: float) -> Finding:
    errors = []
    for factor in (1.0, scale):
        x = _gradients(factor)
        errors.append(float(np.sqrt(np.mean((quantize(x, BF16) / x - 1) ** 2))))
    text = f"the relative error of BF16 is {decimal(errors[0])} without, {decimal(errors[1])} with S = {scale:g}"
    return Finding(errors[1] < 0.9 * errors[0], text)


@computed(CLAIMS, 33, "With too large a loss scale, gradients overflow in BF16 beyond 3.4e38.", scaled=3.4e38)
def _overflow_of_bf16(scaled: float) -> Finding:
    value = float(quantize(np.float64(scaled), BF16))
    text = f"{scaled:g} becomes {value}; with S = 65536 this needs a gradient of {decimal(scaled / 65536)}"
    return Finding(not np.isfinite(value), text)


@computed(
    CLAIMS, 34, "With loss scaling, the learning rate is divided by the scale: 0.001 / 1024.",
    rate=1e-3, scale=1024.0,
)  # fmt: skip
def _divided_rate(rate: float, scale: float) -> Finding:
    scaled = multiply(array(0.5, FP16), array(scale, FP16))  # the gradient that the backward pass returns
    gradient = divide(convert(scaled, FP32), scale)
    both, once = (float(np.asarray(multiply(gradient, lr), np.float64)) for lr in (rate / scale, rate))
    text = f"gradients are unscaled before the step: the update is {decimal(once)}, and {decimal(both)} with both"
    return Finding(both == once, text)


@computed(
    CLAIMS, 35, "A good initial loss scale is twice the largest gradient.", largest=1e-3, factor=2.0
)  # fmt: skip
def _initial_scale(largest: float, factor: float) -> Finding:
    x = _gradients()
    x = x[np.abs(x) <= largest]
    scales = (factor * largest, 65504 / largest)
    flushed = [conversion_losses(x * scale, FP16).flushed for scale in scales]
    text = f"S = {scales[0]:g} flushes {_percent(flushed[0])} to zero in FP16, S = 65504 / max = {scales[1]:.3g} "
    return Finding(flushed[0] <= 1.5 * flushed[1] + 1e-3, f"{text}flushes {_percent(flushed[1])}")


not_computed(
    CLAIMS, 36, "Loss scales grow by 2.0 and back off by 0.5, in windows of 100 to 1000 steps.", "PARTLY TRUE",
    "defaults of libraries: the factors are right; the windows are 2000 in PyTorch and apex, 1000 in DeepSpeed",
)  # fmt: skip


@computed(
    CLAIMS, 37, "GradScaler starts at 2^16, doubles after 2000 clean steps, halves and skips at overflow.",
    first=2.0**16, window=2000, growth=2.0, backoff=0.5,
)  # fmt: skip
def _grad_scaler(first: float, window: int, growth: float, backoff: float) -> Finding:
    steps = replay(GradScaler(), [*[False] * window, True, False])
    scales = [steps[0].scale, steps[-2].scale, steps[-1].scale]
    holds = scales == [first, first * growth, first * growth * backoff] and steps[-3].scale == first
    text = f"scales {', '.join(f'{scale:g}' for scale in scales)}: the first, after {window} clean steps, after an "
    return Finding(holds, f"{text}overflow; it does not grow to infinity, and has no least scale")


@computed(
    CLAIMS, 60, "Delayed scaling of FP8 uses the amax of the step before.", algorithm="max", history=1024
)  # fmt: skip
def _window(algorithm: str, history: int) -> Finding:
    method = DelayedScaling(history_length=history, algorithm=algorithm)
    state, factors = method.initial(), []
    for amax in (1.0, 40.0, 1.0, 1.0):
        state = method.update(state.observe(amax), E4M3)
        factors.append(state.factor)
    follows = factors[3] == factors[0]
    text = f"after amax 1, 40, 1, 1 the factors are {', '.join(decimal(f) for f in factors)}: TransformerEngine's "
    return Finding(True, f"{text}default is the largest amax of {history} steps", not follows)


@computed(CLAIMS, 61, "The FP8 scale is the largest number divided by amax: 448 / amax.", largest=448.0)
def _scale(largest: float) -> Finding:
    amaxes = [0.1, 3.0, 1e4]
    holds = all(current_scale(a, E4M3) == float(np.float32(largest) / np.float32(a)) for a in amaxes)
    guards = [current_scale(a, E4M3) for a in (0.0, np.inf, np.nan)]
    return Finding(holds, f"an amax of zero, infinity and NaN needs a guard: TransformerEngine uses {guards}")
