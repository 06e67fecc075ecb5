"""Relative errors of quantized normal data that are quoted elsewhere, computed again."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs


def normal(shape: tuple[int, int] = (256, 4096), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def relative_rms(x: np.ndarray, approximation: np.ndarray) -> float:
    wide = x.astype(np.float64)
    return float(np.linalg.norm(approximation - wide) / np.linalg.norm(wide))


@pytest.mark.parametrize(("scheme", "keywords", "error"), [
    ("int8", {"block": "row"}, 0.0087), ("int4", {"block": "row"}, 0.157), ("int4", {"block": 128}, 0.117),
    ("nf4", {}, 0.092), ("e4m3", {}, 0.026), ("bf16", {"scale": 1.0}, 0.0017), ("fp16", {"scale": 1.0}, 0.00021),
])  # fmt: skip
def test_errors_of_normal_weights(scheme, keywords, error):
    """N(0, 1) in rows of 4096: relative RMS errors, to the printed digits."""
    x = normal()
    found = relative_rms(x, fs.quantize_blocks(x, scheme, **keywords).values)
    assert found == pytest.approx(error, rel=0.03)


@pytest.mark.parametrize(("fmt", "error"), [("e4m3", 0.026), ("e5m2", 0.053)])
def test_per_tensor_scaling(fmt, error):
    """The scale that maps amax to the largest number."""
    x = normal()
    assert relative_rms(x, fs.quantize_blocks(x, fmt).values) == pytest.approx(error, rel=0.03)


OUTLIERS = [
    ("e4m3", "tensor", 1e4, 0.027), ("e4m3", "tensor", 1e5, 0.128), ("e4m3", "tensor", 1e6, 0.96),
    ("e4m3", 128, 1e4, 0.026), ("e4m3", 128, 1e5, 0.034), ("e4m3", 128, 1e6, 0.169),
]  # fmt: skip


@pytest.mark.parametrize(("fmt", "block", "outlier", "error"), OUTLIERS)
def test_outliers_hurt_the_elements_that_share_their_scale(fmt, block, outlier, error):
    """The relative RMS error of the other elements, if 1 in 4096 is an outlier."""
    x = normal()
    x[:, 0] = outlier
    rest = np.s_[:, 1:]
    found = relative_rms(x[rest], fs.quantize_blocks(x, fmt, block=block).values[rest])
    assert found == pytest.approx(error, rel=0.06)


def test_int8_with_one_scale_loses_everything_beside_an_outlier():
    x = normal()
    x[:, 0] = 1e3
    assert relative_rms(x[:, 1:], fs.quantize_blocks(x, "int8").values[:, 1:]) > 0.9


def test_floor_saturates_and_rceil_does_not():
    """The share of blocks of 32 of N(0, 1) whose largest element, scaled, is beyond 448: 16.6 % by the rule "floor"."""
    x = normal()
    amax = np.abs(x).reshape(256, 128, 32).max(axis=2)
    shares = [
        np.mean(amax > 448 * fs.quantize_blocks(x, "mxfp8", rule=rule).scales.values) for rule in ("floor", "rceil")
    ]
    assert shares[0] == pytest.approx(0.166, abs=0.01)
    assert shares[1] == 0
