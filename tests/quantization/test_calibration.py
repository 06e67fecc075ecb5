"""`fs.best_scale` and the losses of quantizers, by plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

import floatsim as fs
from floatsim.quantization import Scheme


def sample(size: int = 500, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_t(3, size).astype(np.float32)


@pytest.mark.parametrize("fmt", ["int4", "int8", "nf4", "e2m1", "e4m3"])
def test_mse_takes_the_least_error_of_all_candidates(fmt):
    x = sample()
    top = {"int4": 7, "int8": 127, "nf4": 1, "e2m1": 6, "e4m3": 448}[fmt]
    amax = float(np.abs(x).max())
    scheme = Scheme(fmt)
    errors = {}
    for i in range(50):
        scale = np.float32(amax * (1 - i / 50) / top)
        wide = fs.quantize_blocks(x, scheme, scale=scale).values - x.astype(np.float64)
        errors[float(scale)] = math.fsum(wide**2)
    best = fs.best_scale(x, scheme, candidates=50)
    assert best.format is fs.FP32
    assert best.shape == ()
    assert errors[best.item()] == min(errors.values())


def test_blocks_are_calibrated_one_by_one():
    x = sample(7 * 40).reshape(7, 40)
    for block in ("row", 16, (3, 8), "column"):
        scales = fs.best_scale(x, "int4", block=block, candidates=20, scale_format="fp16")
        assert scales.format is fs.FP16
        assert scales.shape == fs.quantize_blocks(x, "int4", block=block).scales.shape
        first = {"row": x[:1], 16: x[:1, :16], (3, 8): x[:3, :8], "column": x[:, :1]}[block]
        assert scales[0, 0].item() == fs.best_scale(first, "int4", candidates=20, scale_format="fp16").item()
        errors = [
            np.linalg.norm(fs.quantize_blocks(x, "int4", block=block, scale=which).values - x)
            for which in (scales, fs.best_scale(x, "int4", block=block, method="min_max"))
        ]
        assert errors[0] < errors[1]


def test_min_max_is_the_rule_absmax():
    x = sample(64 * 4).reshape(4, 64)
    for scheme in ("int8", "e4m3", "nf4"):
        found = fs.best_scale(x, scheme, method="min_max", block=32)
        exact = np.float32(np.abs(x.astype(np.float64)).reshape(4, 2, 32).max(axis=2)) / np.float32(
            {"int8": 127, "e4m3": 448, "nf4": 1}[scheme]
        )
        assert np.array_equal(np.float32(found.values), exact)


@pytest.mark.parametrize("percentile", [100, 99.9, 90, 50.5, 0.1])
def test_percentile_is_the_magnitude_of_a_rank(percentile):
    x = sample(997)
    rank = math.ceil(percentile / 100 * x.size)
    magnitude = sorted(abs(float(v)) for v in x)[rank - 1]
    found = fs.best_scale(x, "int8", method="percentile", percentile=percentile)
    assert found.item() == np.float32(magnitude / 127)


def divergence(counts: list[float], kept: int, levels: int) -> float:
    """The Kullback-Leibler divergence of TensorRT's calibration, in plain Python."""
    p = [*counts[: kept - 1], counts[kept - 1] + sum(counts[kept:])]
    q = [0.0] * kept
    for level in range(levels):
        low, high = level * kept // levels, (level + 1) * kept // levels
        filled = sum(c > 0 for c in counts[low:high])
        for k in range(low, high):
            q[k] = sum(counts[low:high]) / filled if counts[k] else 0.0
    total_p, total_q = sum(p), sum(q)
    if any(a > 0 and b == 0 for a, b in zip(p, q, strict=True)):
        return math.inf
    return sum(a / total_p * math.log((a / total_p) / (b / total_q)) for a, b in zip(p, q, strict=True) if a)


@pytest.mark.parametrize("fmt", ["int4", "int5", "uint4"])
def test_kl_takes_the_least_divergence(fmt):
    x = np.abs(sample(5000, 2))
    bins, levels = 100, {"int4": 8, "int5": 16, "uint4": 16}[fmt]
    top = float(x.max())
    counts = [0.0] * bins
    for value in x:
        counts[min(int(float(value) / top * bins), bins - 1)] += 1
    found = {kept: divergence(counts, kept, levels) for kept in range(levels, bins + 1)}
    best = min(found, key=found.__getitem__)
    limit = min((best + 0.5) * top / bins, top)
    assert best < bins
    scale = fs.best_scale(x, fmt, method="kl", bins=bins)
    assert scale.item() == pytest.approx(limit / fs.quantization.as_element_format(fmt).max, rel=1e-6)


def test_clipping_helps_int4_and_not_e4m3():
    x = np.random.default_rng(3).normal(size=20_000).astype(np.float32)
    amax = float(np.abs(x).max())
    assert fs.best_scale(x, "int4").item() < 0.8 * amax / 7
    assert fs.best_scale(x, "e4m3").item() > 0.5 * amax / 448


@pytest.mark.parametrize("method", ["min_max", "percentile", "mse", "kl"])
def test_zeros_have_the_scale_one(method):
    x = np.zeros((2, 8), np.float32)
    x[1] = 1
    scales = fs.best_scale(x, "int4", block="row", method=method).values
    assert scales[0] == 1
    assert scales[1] < 1


@pytest.mark.parametrize(("keywords", "message"), [
    ({"method": "msee"}, "did you mean 'mse'"), ({"candidates": 0}, "candidates"), ({"percentile": 0}, "percentile"),
    ({"percentile": 101}, "percentile"), ({"bins": 1}, "bins"), ({"block": "rows"}, "did you mean 'row'"),
])  # fmt: skip
def test_errors(keywords, message):
    with pytest.raises(ValueError, match=message):
        fs.best_scale(sample(), "int8", **keywords)


def test_other_errors():
    with pytest.raises(ValueError, match="integer format"):
        fs.best_scale(sample(), "e4m3", method="kl")
    with pytest.raises(ValueError, match="finite"):
        fs.best_scale(np.float32([1, np.nan]), "int8")


# -- losses ------------------------------------------------------------------------------------------------------------


def test_losses_of_integers():
    x = np.float32([0.4, 0.6, 5, 7.4, 7.5, 100, -8, -9, 0])
    q = fs.quantize_blocks(x, "int4", scale=1.0)
    losses = fs.conversion_losses(x, q)
    assert losses == fs.ConversionLosses(flushed=1 / 8, subnormal=0, normal=3 / 8, overflowed=4 / 8)
    zero = fs.quantize_blocks(x, "uint4", scale=1.0, zero_point=8)
    assert fs.conversion_losses(x, zero) == losses


def test_losses_of_floating_point_blocks():
    x = np.float32([[2.0**-10, 2.0**-11, 1, 448, 449, 1000, np.nan, 0]])
    q = fs.quantize_blocks(x, "e4m3", scale=1.0)
    losses = fs.conversion_losses(x, q)
    assert losses == fs.ConversionLosses(flushed=2 / 6, subnormal=0, normal=2 / 6, overflowed=2 / 6)
    scaled = fs.conversion_losses(x / 2**4, fs.quantize_blocks(x / 2**4, "e4m3", scale=2.0**-5))
    assert scaled == fs.ConversionLosses(flushed=1 / 6, subnormal=1 / 6, normal=1 / 6, overflowed=3 / 6)


def test_losses_of_tables():
    x = np.float32([0.01, 0.5, -1, 3])
    losses = fs.conversion_losses(x, fs.quantize_blocks(x, "nf4", scale=1.0))
    assert losses == fs.ConversionLosses(flushed=0.25, subnormal=0, normal=0.5, overflowed=0.25)


def test_losses_of_a_scale_of_the_largest_magnitude():
    x = sample(10_000)
    for scheme in ("int8", "int4", "nf4", "e4m3", "mxfp8", "te_mxfp8"):
        losses = fs.conversion_losses(x, fs.quantize_blocks(x, scheme))
        assert (losses.overflowed > 0) == (scheme == "mxfp8")  # only the rule "floor" saturates


def test_errors_of_losses():
    x = sample()
    q = fs.quantize_blocks(x, "int8")
    with pytest.raises(ValueError, match="not the tensor"):
        fs.conversion_losses(x[:4], q)
    with pytest.raises(ValueError, match="quantized already"):
        fs.conversion_losses(x, q, rounding="toward_zero")
    with pytest.raises(ValueError, match="quantize_blocks"):
        fs.conversion_losses(x, "int8")
