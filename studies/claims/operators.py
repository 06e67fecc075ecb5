"""Claims 42 to 47, 66, 70, 72 and 76: operators, gradients and activations."""

from __future__ import annotations

import numpy as np

from floatsim import (
    BF16,
    E4M3,
    E5M2,
    FP16,
    FP32,
    FP64,
    add,
    array,
    exp,
    matmul,
    maximum,
    multiply,
    quantize,
    quantize_blocks,
    subtract,
)
from floatsim.operators import softmax
from studies.claims.claim import Claim, Finding, computed, decimal, not_computed

CLAIMS: dict[int, Claim] = {}

not_computed(
    CLAIMS, 42, "GPUs run operations that are no matrix products on CUDA cores, at lower precision.", "FALSE",
    "source of PyTorch: its point-wise kernels and reductions compute in FP32 and round when they store",
)  # fmt: skip


@computed(CLAIMS, 43, "The error of a low-precision gradient is amplified layer by layer.", layers=64)
def _depth(layers: int) -> Finding:
    rng, width = np.random.default_rng(0), 32
    errors = {}
    for gain in (1.0, 0.9):
        exact = narrow = rng.normal(size=width)
        for layer in range(1, layers + 1):
            w = gain * np.linalg.qr(rng.normal(size=(width, width)))[0]
            exact = w @ exact
            narrow = np.asarray(matmul(array(w, FP64), array(narrow, FP64), format=BF16), np.float64)
            if layer in (1, layers):
                errors[gain, layer] = float(np.linalg.norm(narrow - exact) / np.linalg.norm(exact))
    growth = errors[1.0, layers] / errors[1.0, 1]
    absolute = errors[0.9, layers] * 0.9**layers
    text = f"orthogonal layers in BF16: {layers} layers have {growth:.0f} times the relative error of one, about the "
    shrinks = f"root of {layers}; with Jacobians of norm 0.9 it shrinks with the gradient, to {decimal(absolute)}"
    return Finding(growth > 1, text + shrinks, growth < layers / 2)


@computed(CLAIMS, 44, "ReLU saturates for large inputs and so hides errors.", inputs=(10.0, 100.0, 1000.0))
def _relu(inputs: tuple[float, ...]) -> Finding:
    x, noise = array(inputs, FP64), 0.5
    change = np.asarray(subtract(maximum(add(x, noise), 0.0), maximum(x, 0.0)), np.float64)
    text = f"a change of {noise} at {', '.join(f'{v:g}' for v in inputs)} becomes {change.tolist()}: the slope is 1"
    return Finding(bool(np.all(change < noise)), text)


@computed(CLAIMS, 45, "Gradients in INT8 or INT4 with one scale fail.", scheme="int8", deviation=6.0)
def _integer_gradients(scheme: str, deviation: float) -> Finding:
    rng = np.random.default_rng(0)
    g = (rng.choice([-1.0, 1.0], 50_000) * np.exp2(rng.normal(-24, deviation, 50_000))).astype(np.float32)
    zeros = float(np.mean(quantize_blocks(g, scheme).codes == 0))
    return Finding(zeros > 0.5, f"{100 * zeros:.2f} % of gradients with log2|g| ~ N(-24, {deviation:g}^2) become 0")


@computed(CLAIMS, 46, "exp(1000) overflows.", exponent=1000.0)
def _exponential(exponent: float) -> Finding:
    values = {fmt: float(np.asarray(exp(array(exponent, fmt)), np.float64)) for fmt in (FP64, FP32, BF16, FP16)}
    shifted = np.asarray(softmax(array([exponent, 0.0], FP32)), np.float64).tolist()
    text = f"in every format, {', '.join(fmt.name for fmt in values)}; softmax subtracts the largest first: {shifted}"
    return Finding(all(np.isinf(v) for v in values.values()), text)


@computed(
    CLAIMS,
    47,
    "The product q k of attention with 64 dimensions easily overflows in FP16.",
    dimensions=64,
    deviation=60.0,
)
def _scores(dimensions: int, deviation: float) -> Finding:
    rng = np.random.default_rng(0)
    shares = {}
    for sigma in (1.0, deviation):
        q, k = (rng.normal(0, sigma, (500, dimensions)) for _ in range(2))
        shares[sigma] = float(np.mean(np.isinf(quantize(q @ k.T, FP16))))
    text = ", ".join(f"{100 * share:.1f} % with elements of N(0, {sigma:g}^2)" for sigma, share in shares.items())
    return Finding(shares[deviation] > 0, f"products that overflow: {text}", shares[1.0] == 0)


@computed(CLAIMS, 66, "The product of attention weights and V must be in FP32.", probabilities="fp16", limit=1e-3)
def _weighted_values(probabilities: str, limit: float) -> Finding:
    rng = np.random.default_rng(0)
    p = np.asarray(softmax(array(rng.normal(size=(16, 256)), FP32)), np.float64)
    v = quantize(rng.normal(size=(256, 32)), FP16)
    exact = p @ v
    errors = {}
    for name, accumulate in (("fp32", "fp32"), (probabilities, "fp32"), (probabilities, probabilities)):
        y = matmul(array(p, name), array(v, name), accumulate=accumulate)
        errors[f"{name} in {accumulate}"] = float(
            np.linalg.norm(np.asarray(y, np.float64) - exact) / np.linalg.norm(exact)
        )
    text = ", ".join(f"{name} {decimal(error)}" for name, error in errors.items())
    found = list(errors.values())
    return Finding(found[2] > found[0], f"relative errors of P V: {text}", found[1] < limit)


@computed(CLAIMS, 70, "GLM-130B shrinks the gradient of the embedding to 0.1 of its size.", share=0.1)
def _shrink(share: float) -> Finding:
    w, step = np.random.default_rng(0).normal(size=10_000), 1e-6
    slope = float(np.median(((w + step) * share + w * (1 - share) - (w * share + w * (1 - share))) / step))
    x = array(w, BF16)
    kept = add(multiply(x, share, format=BF16), multiply(x, 1 - share, format=BF16))
    changed = float(np.mean(np.asarray(kept, np.float64) != x.values))
    text = f"the gradient of w a + stop(w) (1 - a) is {slope:.3f} of that of w"
    text += f"; in BF16 the sum differs from w in {100 * changed:.0f} % of the weights"
    return Finding(abs(slope - 0.1) < 1e-3, text)


@computed(
    CLAIMS, 72, "The statistics of batch normalization can be kept in BF16 buffers.", momentum=0.1, target=1.0
)  # fmt: skip
def _running_mean(momentum: float, target: float) -> Finding:
    mean, kept, share = array(0.0, BF16), array(1 - momentum, BF16), array(momentum * target, BF16)
    for _ in range(300):
        mean = add(multiply(mean, kept), share)
    value = float(np.asarray(mean, np.float64))
    text = f"a running mean with momentum {momentum:g} and target {target:g} stalls at {value}"
    return Finding(abs(value - target) < 0.05 * abs(target), text, value != target)


@computed(
    CLAIMS, 76, "Eight exponent bits prevent overflow and underflow.", exponent_bits=8, exponents=(-200.0, 200.0)
)  # fmt: skip
def _exponent_bits(exponent_bits: int, exponents: tuple[float, float]) -> Finding:
    ranges = {fmt.name: fmt.max / fmt.smallest_normal for fmt in (BF16, FP32, FP16, E5M2, E4M3)}
    holds = exponent_bits == BF16.exponent_bits and ranges["BF16"] > 0.99 * ranges["FP32"] > 1e20 * ranges["FP16"]
    low, high = (float(exp(array(exponent, BF16))) for exponent in exponents)
    text = "largest / least normal: " + ", ".join(f"{name} {value:.0e}" for name, value in ranges.items())
    functions = f"; exp({exponents[0]:g}) is {low:g} and exp({exponents[1]:g}) is {high:g} in BF16 all the same"
    return Finding(holds, text + functions, low == 0 or np.isinf(high))
