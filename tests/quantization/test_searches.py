"""Searches for factors and scales, against plain loops and the error of the rules without a search."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.quantization import awq_factors, best_range, smoothquant_factors


def layer(n: int = 16, k: int = 64, samples: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """A weight, and inputs with large channels that depend on each other."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(samples, k)) @ (np.eye(k) + 0.3 * rng.normal(size=(k, k)))
    x[:, ::16] *= 30
    return rng.normal(size=(n, k)).astype(np.float32), x.astype(np.float32)


def test_awq_is_the_search_of_its_definition():
    w, x = layer()
    found = awq_factors(w, x, "int4", block="row", grid=5)
    errors = []
    for i in range(5):
        s = np.abs(x.astype(np.float64)).mean(axis=0) ** (i / 5)
        s = (s / np.sqrt(s.max() * s.min())).astype(np.float32)
        q = fs.quantize_blocks(w * s, "int4", block="row").values / s
        errors.append(np.mean((x.astype(np.float64) @ (q - w).T) ** 2))
    assert np.allclose(found.errors, errors, rtol=1e-5)
    assert found.exponent == np.argmin(errors) / 5 > 0
    assert found.errors.min() < 0.7 * found.errors[0]
    s = found.factors.values
    assert s.max() * s.min() == pytest.approx(1, rel=1e-6)


def test_smoothquant_with_and_without_a_search():
    w, x = layer()
    paper = smoothquant_factors(w, x, alpha=0.5)
    s = np.sqrt(np.abs(x).max(axis=0).astype(np.float64) / np.abs(w).max(axis=0))
    assert np.array_equal(paper.factors.values.astype(np.float32), s.astype(np.float32))
    found = smoothquant_factors(w, x, grid=10)
    assert found.errors.shape == (11,)
    assert found.errors[5] == paper.errors[0]
    assert found.errors.min() <= found.errors[5] < 0.5 * found.errors[0]
    assert found.exponent == np.argmin(found.errors) / 10
    x[:, 3] = 0
    assert smoothquant_factors(w, x, alpha=0.5).factors.values[3] == 1


@pytest.mark.parametrize("block", ["tensor", "row", 20, (4, 16)])
@pytest.mark.parametrize("fmt", ["uint4", "int4"])
def test_the_best_range_of_each_block(fmt, block):
    """Against every candidate of one block, computed alone."""
    rng = np.random.default_rng(1)
    x = rng.exponential(size=(8, 50)).astype(np.float32) - np.float32(0.2)
    x[2] = 0
    scale, zero = best_range(x, fmt, block=block, candidates=10)
    q = fs.quantize_blocks(x, fmt, block=block, scale=scale, zero_point=zero)
    own = fs.quantize_blocks(x, fmt, block=block, rule="asymmetric")
    assert scale.shape == zero.shape == own.scales.shape
    assert np.sum((q.values - x) ** 2) < (1 + 1e-6) * np.sum((own.values - x) ** 2)  # it is one of the candidates
    height, width = {"tensor": (8, 50), "row": (1, 50), 20: (1, 20)}.get(block, block)
    for i in range(0, 8, height):
        for j in range(0, 50, width):
            alone = best_range(x[i : i + height, j : j + width], fmt, candidates=10)
            at = () if block == "tensor" else (i // height, j // width)
            assert (scale.values[at], zero[at]) == (alone[0].item(), alone[1].item())
    if block == "tensor":
        low, high = min(x.min(), 0), x.max()
        ends = fs.quantization.as_element_format(fmt)
        errors = []
        for i in range(10):
            s = np.float32((np.float64(high) - low) * (1 - i / 10) / 15)
            z = int(np.clip(ends.min - np.rint(np.float64(low) * (1 - i / 10) / np.float64(s)), ends.min, ends.max))
            each = fs.quantize_blocks(x, fmt, scale=s, zero_point=z).values
            errors.append((np.sum((each - x.astype(np.float64)) ** 2), s, z))
        best = min(errors, key=lambda found: found[0])
        assert (scale.item(), zero.item()) == (float(best[1]), best[2])


@pytest.mark.parametrize(("call", "message"), [
    (lambda w, x: awq_factors(w, x[:, :3]), "do not fit: w is"),
    (lambda w, x: awq_factors(w, x, grid=0), "grid"),
    (lambda w, x: awq_factors(w, np.full_like(x, np.nan)), "x has NaN or infinity"),
    (lambda w, x: awq_factors(w, x, "aqw"), "did you mean 'awq'"),
    (lambda w, x: awq_factors(w[0], x), "must be a matrix"),
    (lambda w, x: smoothquant_factors(w, x, alpha=1.5), "alpha must be from 0 to 1"),
    (lambda w, x: best_range(x, "nf4"), "rule='asymmetric' is not for NF4"),
    (lambda w, x: best_range(np.float32([np.inf]), "int4"), "NaN or infinity"),
])  # fmt: skip
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(*layer())
