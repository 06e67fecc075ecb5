"""`ft.quantize`, `ft.matmul` and `ft.Linear`: bits, gradients, fake tensors, vmap, and torch.compile."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")

import floatsim as fs  # noqa: E402
import floatsim.torch as ft  # noqa: E402
from tests.torch_emulation.by_hand import assert_equal, rounded, tensor  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.full]
X, W = tensor(3, 8), tensor(8, 5, seed=1)


@pytest.mark.parametrize("fmt", ["bf16", "e4m3", "e2m1", fs.FloatFormat.ieee(4, 5)])
def test_quantize_rounds_as_floatsim(fmt):
    assert_equal(ft.quantize(X, fmt), rounded(X, fmt))
    saturated = fs.convert(fs.array((X * 1e4).numpy()), fmt, rounding="toward_zero", overflow="saturate_finite")
    assert_equal(ft.quantize(X * 1e4, fmt, rounding="toward_zero", overflow="saturate_finite"), saturated)


@pytest.mark.parametrize("grad", ["ste", "none", "e5m2"])
def test_gradient_of_quantize(grad):
    x, g = X.clone().requires_grad_(), tensor(3, 8, seed=2)
    ft.quantize(x, "e4m3", grad).backward(g)
    wanted = {"ste": g, "none": torch.zeros_like(g), "e5m2": rounded(g, "e5m2")}[grad]
    assert_equal(x.grad, wanted)


def test_stochastic_rounding_has_a_seed():
    drawn = [ft.quantize(X, "bf16", rounding="stochastic", seed=seed) for seed in (1, 1, 2)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_matmul_and_its_gradients():
    a, b = X.clone().requires_grad_(), W.clone().requires_grad_()
    y = ft.matmul(a, b, accumulate="fp16", format="fp16", backward="fp32")
    assert_equal(y, fs.matmul(fs.array(X.numpy()), fs.array(W.numpy()), accumulate="fp16", format="fp16"))
    g = rounded(tensor(3, 5, seed=3), "fp16")
    y.backward(torch.from_numpy(g.values.astype(np.float32)))
    wide = g.values.astype(np.float32)
    assert_equal(a.grad, fs.matmul(fs.array(wide), fs.array(W.numpy().T), accumulate="fp32", format="fp16"))
    assert_equal(b.grad, fs.matmul(fs.array(X.numpy().T), fs.array(wide), accumulate="fp32", format="fp16"))


@pytest.mark.parametrize("dims", [(0, None), (None, 1), (0, 2), (1, 0)])
def test_vmap(dims):
    stacks = [tensor(3, 4, seed=1), tensor(4, 2, seed=2)]
    operands = [x if d is None else torch.stack([x, x * 2], d) for x, d in zip(stacks, dims, strict=True)]
    found = torch.vmap(lambda a, b: ft.matmul(ft.quantize(a, "bf16"), b, accumulate="bf16"), dims)(*operands)
    for i in range(2):
        a, b = (x if d is None else x.select(d, i) for x, d in zip(operands, dims, strict=True))
        assert_equal(found[i], ft.matmul(ft.quantize(a, "bf16"), b, accumulate="bf16"))


def test_checks_of_torch_library():
    options = (ft.blocks._name("bf16", X), "TIES_TO_EVEN", "INFINITY", 0, "ste")
    torch.library.opcheck(torch.ops.floatsim.quantize_with_gradient.default, (X, *options))
    texts = (ft.blocks._text("fp32"), ft.blocks._name("fp32", X), ft.blocks._text("fp32"), "||")
    operands = (X.clone().requires_grad_(), W.clone().requires_grad_())
    names = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.floatsim.matmul.default, (*operands, *texts), test_utils=names)


def test_torch_compile_does_not_break():
    layer = ft.Linear(8, 5, format="e4m3", grad="e5m2", accumulate="fp32")
    x = X.clone().requires_grad_()
    wanted = layer(x)
    wanted.sum().backward()
    kept, x.grad = x.grad, None
    found = torch.compile(layer, backend="aot_eager", fullgraph=True)(x)
    found.sum().backward()
    assert torch.equal(found, wanted)
    assert torch.equal(x.grad, kept)


def test_linear_equals_the_operator():
    layer = ft.Linear(8, 5, format="fp16", accumulate="fp16")
    product = fs.matmul(rounded(X, "fp16"), rounded(layer.weight.T, "fp16"), accumulate="fp16", format="fp32")
    assert_equal(layer(X), fs.add(product, fs.array(layer.bias.detach().numpy()), format="fp32"))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ft.quantize(torch.arange(3), "bf16"), TypeError, "x must be a tensor of floating-point numbers"),
        (lambda: ft.quantize(X.half(), "bf16"), ValueError, "BF16 is no subset of torch.float16"),
        (lambda: ft.quantize(X, "bf61"), ValueError, "bf16|BF16"),
        (lambda: ft.quantize(X, "bf16", "stee"), ValueError, "did you mean 'ste'"),
        (lambda: ft.matmul(X, X), ValueError, "do not fit"),
        (lambda: ft.matmul(X[0], W), ValueError, "a must have at least two axes"),
        (lambda: ft.matmul(X, W, accumulate="hoper"), ValueError, "hopper"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_matmul_rounds_operands_for_a_tensor_core():
    a, b = X.clone().requires_grad_(), W.clone().requires_grad_()
    y = ft.matmul(a, b, accumulate="hopper", backward="fp32", operands="e4m3", grad="e5m2")
    left, right = rounded(X, "e4m3"), rounded(W, "e4m3")
    assert_equal(y, fs.matmul(left, right, accumulate="hopper", format="fp32"))
    g = tensor(3, 5, seed=3)
    y.backward(g)
    assert_equal(a.grad, fs.matmul(rounded(g, "e5m2"), np.transpose(right), accumulate="fp32", format="fp32"))
    assert_equal(b.grad, fs.matmul(np.transpose(left), rounded(g, "e5m2"), accumulate="fp32", format="fp32"))
