"""Claims 21 to 30 and 38 to 41: updates of weights, and the moments of Adam."""

from __future__ import annotations

import numpy as np

from floatsim import BF16, FP16, FP32, FloatFormat, add, array, divide, fma, multiply, quantize, subtract, ulp
from studies.claims.claim import Claim, Finding, computed, decimal

CLAIMS: dict[int, Claim] = {}


def _moved(weight: float, update: float, fmt: FloatFormat) -> float:
    """Return the weight after an exact update."""
    change = array(np.float64(update), "fp64")
    return float(np.asarray(add(array(weight, fmt), change, format=fmt), np.float64))


@computed(CLAIMS, 21, "In FP16, 1.0 + 0.0001 is 1.0.", weight=1.0, update=1e-4)
def _absorbed(weight: float, update: float) -> Finding:
    value = _moved(weight, update, FP16)
    return Finding(value == weight, f"{weight:g} + {update:g} is {decimal(value)} in FP16")


@computed(CLAIMS, 22, "0.0001 is absorbed by 1.0 in FP16 because it is below 2^-10.", exponent=-10, update=1e-4)
def _threshold(exponent: int, update: float) -> Finding:
    absorbed = _moved(1.0, update, FP16) == 1.0
    other = 2.0**exponent * 0.513  # below the claimed threshold, and above half of it
    text = f"the threshold is half an ulp, 2^-11 = {2.0**-11:.4g}; 1 + {decimal(other)} is {_moved(1.0, other, FP16)}"
    return Finding(absorbed and update < 2.0**exponent, text, _moved(1.0, other, FP16) != 1.0)


@computed(CLAIMS, 23, "An update of an FP16 weight is lost if gradient / weight is below 2^-10.", exponent=-10)
def _ratio(exponent: int) -> Finding:
    ratio = 2.0**exponent * 0.99
    weights = (1.0, 1.5, 1.9990234375)
    kept = [w for w in weights if _moved(w, w * ratio, FP16) != w]
    ends = [float(ulp(w, FP16) / 2 / w) for w in (1.0, 1.9990234375)]
    text = f"an update of {ratio / 2**-10:.2f} * 2^-10 of the weight is kept at {len(kept)} of 3 weights"
    return Finding(not kept, f"{text}; the limit is the update, and is {decimal(ends[1])} to {decimal(ends[0])}")


@computed(CLAIMS, 24, "An update of 1e-7 is lost in BF16 weights.", update=1e-7, least_weight=2.0**-15)
def _update_of_bf16(update: float, least_weight: float) -> Finding:
    weights = [least_weight * 2.0**n for n in range(12)]
    lost = all(_moved(w, update, BF16) == w for w in weights)
    below = _moved(least_weight / 2, update, BF16) != least_weight / 2
    return Finding(lost, f"lost for weights from {decimal(least_weight)} on; kept at half of that: {below}")


def _square(x: float, fmt: FloatFormat) -> float:
    g = array(x, fmt)
    return float(np.asarray(multiply(g, g), np.float64))


@computed(CLAIMS, 25, "The square of a gradient of 1e-5 is below BF16's range, and becomes 0.", gradient=1e-5)
def _square_of_bf16(gradient: float) -> Finding:
    value = _square(gradient, BF16)
    return Finding(value == 0, f"{decimal(value)}; it is 0 for gradients of at most 2^-67 = {2.0**-67:.2g}")


@computed(CLAIMS, 26, "The square of a gradient of 1e-5 becomes 0 in FP16.", gradient=1e-5)
def _square_of_fp16(gradient: float) -> Finding:
    value = _square(gradient, FP16)
    return Finding(value == 0, f"{decimal(value)}; it is 0 for gradients of at most 2^-12.5 = {2.0**-12.5:.3g}")


@computed(CLAIMS, 27, "For a gradient of 1000, Adam's v overflows in FP16: g^2 = 1e6.", gradient=1000.0, beta2=0.999)
def _second_moment(gradient: float, beta2: float) -> Finding:
    value = _square(gradient, FP16)
    g, share = array(gradient, FP16), array(1 - beta2, FP16)
    other = float(np.asarray(multiply(multiply(share, g), g), np.float64))
    text = f"g^2 is {value}; in the order ((1 - beta2) g) g, v is {decimal(other)}"
    return Finding(bool(np.isinf(value)), text, bool(np.isfinite(other)))


@computed(CLAIMS, 28, "For a gradient of 100, g^2 = 10000 is in the range of FP16.", gradient=100.0)
def _square_in_range(gradient: float) -> Finding:
    value = _square(gradient, FP16)
    return Finding(bool(np.isfinite(value)), f"g^2 is {decimal(value)}")


@computed(CLAIMS, 29, "If Adam's v is infinite, the update m / (sqrt(v) + eps) is 0.", moment=1.0)
def _infinite_v(moment: float) -> Finding:
    v = array(np.inf, FP16)
    value = float(np.asarray(divide(array(moment, FP16), add(v, 1e-3)), np.float64))
    after = float(np.asarray(multiply(v, 0.999), np.float64))
    return Finding(value == 0, f"the update is {value}, and stays so: beta2 v is {after}")


@computed(CLAIMS, 30, "(1e18)^2 is in the range of BF16.", gradient=1e18)
def _large_square(gradient: float) -> Finding:
    value = _square(gradient, BF16)
    return Finding(bool(np.isfinite(value)), f"{decimal(value)}; it overflows from 1.841e19 on")


@computed(
    CLAIMS, 38, "Without FP32 masters, a larger loss scale keeps small updates.",
    scales=(1.0, 256.0, 65536.0), update=1e-4,
)  # fmt: skip
def _scale_for_masters(scales: tuple[float, ...], update: float) -> Finding:
    weights = []
    for scale in scales:
        unscaled = divide(multiply(array(update, FP32), scale), scale)
        weights.append(_moved(1.0, -float(np.asarray(unscaled, np.float64)), BF16))
    text = f"the scale is divided out before the update: 1 - {update:g} is {weights} in BF16 with S = {list(scales)}"
    return Finding(any(w != 1.0 for w in weights), text)


@computed(CLAIMS, 39, "In BF16, Adam's eps must be raised from 1e-8 to 1e-7: 1e-8 is lost.", eps=1e-8, raised=1e-7)
def _epsilon(eps: float, raised: float) -> Finding:
    table = {fmt: [float(quantize(np.float64(x), fmt)) for x in (eps, raised)] for fmt in (BF16, FP16)}
    text = "; ".join(f"{fmt.name}: {decimal(a)}, {decimal(b)}" for fmt, (a, b) in table.items())
    helps = any(values[0] == 0 and values[1] > 0 for values in table.values())
    return Finding(helps, f"{eps:g} and {raised:g} are {text}", table[BF16][0] != 0)


def _stalls_at(beta2: float, steps: int) -> float:
    """Return v after so many steps with the gradient 1, all in BF16: v = v + (1 - beta2) (g^2 - v)."""
    v, share = array(0.0, BF16), array(1 - beta2, BF16)
    one = array(1.0, BF16)
    for _ in range(steps):
        following = fma(share, subtract(one, v), v)
        if following == v:
            break
        v = following
    return float(np.asarray(v, np.float64))


@computed(
    CLAIMS, 40, "A larger beta2 of Adam, 0.9999 in the place of 0.999, makes v in BF16 more accurate.",
    usual=0.999, raised=0.9999,
)  # fmt: skip
def _beta2(usual: float, raised: float) -> Finding:
    stalled = [_stalls_at(beta2, 20_000) for beta2 in (usual, raised)]
    rounded = [float(quantize(np.float64(beta2), BF16)) for beta2 in (usual, raised)]
    text = f"with g = 1, v stalls at {stalled[0]:g} and {stalled[1]:g} of 1; in BF16 beta2 is {rounded}"
    return Finding(stalled[1] > stalled[0], text)


@computed(
    CLAIMS, 41, "Gradient accumulation makes gradients larger, so that fewer underflow.",
    gradient=1e-8, micro_batches=64,
)  # fmt: skip
def _accumulated(gradient: float, micro_batches: int) -> Finding:
    total = array(0.0, FP16)
    for _ in range(micro_batches):
        total = add(total, array(np.float64(gradient), FP16))
    value, wide = float(np.asarray(total, np.float64)), float(np.float32(gradient) * micro_batches)
    text = f"{micro_batches} * {gradient:g} is {decimal(value)} in FP16: each micro-batch underflows alone"
    return Finding(value > 0, f"{text}; in {FP32.name} it is {decimal(wide)}")
