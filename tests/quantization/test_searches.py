"""Searches for factors and scales, against plain loops and the error of the rules without a search."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.quantization import awq_factors, best_range, sign_round, smoothquant_factors


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


def test_sign_round_by_loops():
    """One factor for each row, without zero points: every sum a loop over the elements."""
    w, x = layer(3, 8, 20)
    found = sign_round(w, x, "int4", block="row", steps=12)
    own = fs.quantize_blocks(w, "int4", block="row").scales.values.ravel()
    v, factor, errors = np.zeros((3, 8)), np.ones(3), []
    for k in range(13):
        total, rate = 0.0, (1 - k / 12) / 12
        for row in range(3):
            s = np.float64(np.float32(own[row] * factor[row]))
            raw = [round(float(w[row, j] / np.float32(s)) + v[row, j]) for j in range(8)]
            codes = [min(max(c, -8), 7) for c in raw]
            of_sample = [sum(float(a[j]) * (s * codes[j] - float(w[row, j])) for j in range(8)) for a in x]
            total += sum(e * e for e in of_sample) / 20
            of_factor = 0.0
            for j in range(8):
                gradient = sum(e * float(a[j]) for e, a in zip(of_sample, x, strict=True))
                inside = raw[j] == codes[j]
                of_factor += gradient * (codes[j] - inside * float(w[row, j]) / s)
                v[row, j] = min(max(v[row, j] - rate * inside * np.sign(gradient), -0.5), 0.5)
            factor[row] = min(max(factor[row] - rate * np.sign(of_factor), 0), 1)
        errors.append(total / 3)
    assert np.allclose(found.errors, errors, rtol=1e-9)
    assert min(errors) < errors[0]


@pytest.mark.parametrize("block", ["tensor", "row", 20, (4, 16)])
@pytest.mark.parametrize("rule", ["absmax", "asymmetric"])
def test_sign_round_by_autograd(rule, block):
    """The gradients of PyTorch through roundings with the gradient 1."""
    torch = pytest.importorskip("torch", reason="derives with torch")
    w, x = layer(8, 40, 50)
    w[2] = 0
    fmt = fs.quantization.INT4 if rule == "absmax" else fs.quantization.UINT4
    found = sign_round(w, x, fmt, rule=rule, block=block, steps=8)
    nearest = fs.quantize_blocks(w, fmt, rule=rule, block=block)
    height, width = {"tensor": (8, 40), "row": (1, 40), 20: (1, 20)}.get(block, block)
    grid = -(-8 // height), -(-40 // width)
    weight, inputs = torch.tensor(w).double(), torch.tensor(x).double()

    def spread(numbers):
        return numbers.repeat_interleave(height, 0)[:8].repeat_interleave(width, 1)[:, :40]

    def through(numbers, result):
        return numbers + (result - numbers).detach()

    def ends(function):
        parts = [[function(part) for part in rows.split(width, 1)] for rows in weight.split(height)]
        return torch.tensor(parts, dtype=torch.float64)

    high, low = ends(lambda part: part.max().clamp(min=0)), ends(lambda part: part.min().clamp(max=0))
    v, top, bottom = (torch.zeros(8, 40).double(), torch.ones(grid).double(), torch.ones(grid).double())
    own, errors = torch.tensor(nearest.scales.values.reshape(grid)), []
    for k in range(9):
        leaves = [each.requires_grad_() for each in (v, top, bottom)]
        if rule == "absmax":
            scale, zero = own * top, torch.zeros(grid).double()
        else:
            scale = torch.where(high > low, (high * top - low * bottom) / 15, 1.0)
        scale = through(scale, scale.float().double())
        if rule == "asymmetric":
            zero = -low * bottom / scale
            zero = through(zero, zero.round())
        s, z = spread(scale), spread(zero)
        t = through(weight / s, (weight.float() / s.float()).double()) + v
        codes = (through(t, t.round()) + z).clamp(fmt.min, fmt.max) - z
        loss = (((s * codes - weight) @ inputs.T) ** 2).mean()
        errors.append(loss.item())
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        rate = (1 - k / 8) / 8
        moved = [
            leaf.detach() if g is None else leaf.detach() - rate * g.sign()
            for leaf, g in zip(leaves, gradients, strict=True)
        ]
        v, top, bottom = moved[0].clamp(-0.5, 0.5), moved[1].clamp(0, 1), moved[2].clamp(0, 1)
    assert np.allclose(found.errors, errors, rtol=1e-9)
    best = sign_round(w, x, fmt, rule=rule, block=block, steps=8).quantized
    outputs = (best.values - w) @ x.astype(np.float64).T
    assert np.mean(outputs**2) == pytest.approx(min(errors), rel=1e-5)
    assert best.scales.shape == nearest.scales.shape


def test_sign_round_of_no_steps_is_nearest():
    w, x = layer()
    found = sign_round(w, x, "gptq", block=32, steps=0)  # the largest element is a tie, 7.5 times the scale
    nearest = fs.quantize_blocks(w, "gptq", block=32)
    assert np.array_equal(found.quantized.codes, nearest.codes)
    assert found.errors.shape == (1,)


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
    (lambda w, x: sign_round(w, x, "nf4"), "sign_round is for integer formats"),
    (lambda w, x: sign_round(w, x, "nvfp4"), "sign_round is for integer formats"),
    (lambda w, x: sign_round(w, x[:, 1:]), "do not fit"),
    (lambda w, x: best_range(np.float32([np.inf]), "int4"), "NaN or infinity"),
])  # fmt: skip
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(*layer())
