"""Fake quantization with gradients, compared with PyTorch's own operators."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import floatsim as fs  # noqa: E402
import floatsim.torch as ft  # noqa: E402


def numbers(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("scheme", ["int4", "mxfp4", "nvfp4", "nvfp4_row", "nf4", "awq"])
def test_values_are_those_of_quantize_blocks(scheme):
    x = numbers(4, 64).requires_grad_()
    y = ft.fake_quantize(x, scheme)
    assert np.array_equal(y.detach().numpy(), fs.quantize_blocks(x.detach().numpy(), scheme).values.astype(np.float32))
    y.backward(torch.ones_like(y))
    assert 0.95 <= x.grad.mean() <= 1  # the largest element of a block may lie beyond the end by a rounding
    z = numbers(4, 64).requires_grad_()
    ft.fake_quantize(z, scheme, grad="ste").sum().backward()
    assert (z.grad == 1).all()


@pytest.mark.parametrize(("scheme", "low", "high"), [("int8", -128, 127), ("int4", -8, 7), ("uint4", 0, 15)])
def test_equal_to_the_learnable_operator_of_pytorch(scheme, low, high):
    """Values and gradients by x; the gradient by the scale is PyTorch's sum in FP32."""
    x, s = numbers(50, 60).requires_grad_(), torch.tensor([0.11], requires_grad=True)
    other, other_s = x.detach().clone().requires_grad_(), s.detach().clone().requires_grad_()
    y = ft.fake_quantize(x, scheme, scale=s.reshape(()), factor="reciprocal", scale_gradient=0.25)
    z = torch._fake_quantize_learnable_per_tensor_affine(other, other_s, torch.zeros(1), low, high, 0.25)
    assert torch.equal(y, z)
    weights = numbers(50, 60, seed=1)
    (y * weights).sum().backward()
    (z * weights).sum().backward()
    assert torch.equal(x.grad, other.grad)
    assert abs(s.grad - other_s.grad) < 1e-5 * abs(other_s.grad)


def test_one_learned_scale_for_each_channel():
    x, s = numbers(5, 64).requires_grad_(), torch.full((5, 1), 0.3).requires_grad_()
    other, other_s = x.detach().clone().requires_grad_(), s.detach().clone().reshape(5).requires_grad_()
    y = ft.fake_quantize(x, "int4", scale=s, block="row", factor="reciprocal", scale_gradient=1.0)
    z = torch._fake_quantize_learnable_per_channel_affine(other, other_s, torch.zeros(5), 0, -8, 7, 1.0)
    assert torch.equal(y, z)
    weights = numbers(5, 64, seed=1)
    (y * weights).sum().backward()
    (z * weights).sum().backward()
    assert torch.equal(x.grad, other.grad)
    assert torch.allclose(s.grad.reshape(5), other_s.grad, rtol=1e-4, atol=1e-5)


def test_the_factor_of_lsq():
    x = numbers(4, 32)
    scales = [torch.full((4, 2), 0.3, requires_grad=True) for _ in range(2)]
    for s, factor in zip(scales, (None, 1 / np.sqrt(16 * 7)), strict=True):
        ft.fake_quantize(x, "int4", scale=s, block=16, scale_gradient=factor).pow(2).sum().backward()
    assert torch.equal(scales[0].grad, scales[1].grad)


def test_a_learned_scale_stays_positive():
    quantizer = ft.FakeQuantize("int4", block="row", learned=True)
    x = numbers(2, 8)
    quantizer(x)
    quantizer.scale.data[0] = -0.1
    assert torch.isfinite(quantizer(x)).all()
    assert quantizer.scale.min().item() == 2.0**-23


def test_training_with_a_learned_scale_reduces_the_loss():
    torch.manual_seed(0)
    x, target = numbers(64, 16), numbers(64, 8, seed=1)
    target = x @ numbers(16, 8, seed=2) + 0.01 * target
    losses = []
    for learned in (False, True):
        torch.manual_seed(1)
        layer = torch.nn.Linear(16, 8)
        quantizer = ft.FakeQuantize("int3", block="row", learned=learned)
        torch.nn.utils.parametrize.register_parametrization(layer, "weight", quantizer)
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.2)
        for _ in range(20):
            optimizer.zero_grad()
            loss = ((layer(x) - target) ** 2).mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
        weight = layer.weight.detach().numpy()
        assert all(len(np.unique(row)) <= 8 for row in weight)
        assert (quantizer.scale is not None) == learned
    assert max(losses) < 0.35 * float((target**2).mean())


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: ft.fake_quantize(torch.ones(2, dtype=torch.int32), "int4"), TypeError, "floating-point numbers"),
    (lambda: ft.fake_quantize(numbers(2), "imt4"), ValueError, "did you mean 'int4'"),
    (lambda: ft.fake_quantize(numbers(2), "int4", grad="clip"), ValueError, "did you mean 'clipped'"),
    (lambda: ft.fake_quantize(numbers(2), "int4", scale=1.0), TypeError, "scale must be a tensor"),
    (lambda: ft.fake_quantize(numbers(2), "int4", scale=torch.tensor(-1.0)), ValueError, "positive and finite"),
    (lambda: ft.fake_quantize(numbers(2), "int4", blok=2), ValueError, "did you mean 'block'"),
    (lambda: ft.FakeQuantize("awq", learned=True), ValueError, "scales without zero points"),
])  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
