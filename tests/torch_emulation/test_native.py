"""The policy "native" against PyTorch itself: elementwise operations and optimizers, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")

import floatsim as fs  # noqa: E402
import floatsim.torch as ft  # noqa: E402
from tests.torch_emulation.by_hand import assert_equal, tensor  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.full]

SIZE = 1003  # with a part beside the vector registers
ELEMENTWISE = {
    "add": lambda x, y, z: x + y,
    "add alpha": lambda x, y, z: torch.add(x, y, alpha=0.3),
    "sub": lambda x, y, z: x - y,
    "sub alpha": lambda x, y, z: torch.sub(x, y, alpha=0.3),
    "rsub": lambda x, y, z: 1.7 - x,
    "mul": lambda x, y, z: x * y,
    "mul number": lambda x, y, z: x * 0.3,
    "div": lambda x, y, z: x / y,
    "div number": lambda x, y, z: x / 3,
    "reciprocal": lambda x, y, z: x.reciprocal(),
    "square": lambda x, y, z: x**2,
    "neg": lambda x, y, z: -x,
    "abs": lambda x, y, z: x.abs(),
    "floor": lambda x, y, z: x.floor(),
    "round": lambda x, y, z: x.round(),
    "maximum": lambda x, y, z: torch.maximum(x, y),
    "minimum": lambda x, y, z: torch.minimum(x, y),
    "clamp": lambda x, y, z: x.clamp(-0.3, 0.4),
    "relu": lambda x, y, z: torch.relu(x),
    "addcmul": lambda x, y, z: torch.addcmul(x, y, z, value=0.3),
    "addcdiv": lambda x, y, z: torch.addcdiv(x, y, z, value=0.3),
    "lerp": lambda x, y, z: torch.lerp(x, y, 0.3),
    "lerp high": lambda x, y, z: torch.lerp(x, y, 0.7),
    "where": lambda x, y, z: torch.where(x > 0, x, y),
    "masked": lambda x, y, z: x.masked_fill(y > 0, -1.5),
    "in place": lambda x, y, z: x.clone().mul_(y).add_(z),
    "mixed": lambda x, y, z: x * torch.tensor(0.3, dtype=torch.float64),
}


UNFUSED = {"add alpha", "sub alpha"}
"""With 16 bits, PyTorch's product has a rounding in a part of the vector."""
FUNCTIONS = {
    "sqrt": (lambda x, z: z.sqrt(), 1), "rsqrt": (lambda x, z: z.rsqrt(), 2), "exp": (lambda x, z: x.exp(), 1),
    "log": (lambda x, z: z.log(), 1), "tanh": (lambda x, z: x.tanh(), 2), "sigmoid": (lambda x, z: x.sigmoid(), 3),
    "gelu": (lambda x, z: torch.nn.functional.gelu(z), 5), "erf": (lambda x, z: x.erf(), 2),
    "silu": (lambda x, z: torch.nn.functional.silu(x), 3), "sin": (lambda x, z: x.sin(), 1),
    "log_softmax": (lambda x, z: torch.log_softmax(x, -1), 8), "softmax": (lambda x, z: torch.softmax(x, -1), 16),
}  # fmt: skip
"""Functions, and the largest distance from PyTorch in ulps of FP32."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_near_torch(name):
    function, ulps = FUNCTIONS[name]
    x, z = tensor(SIZE, scale=3.0), tensor(SIZE, seed=2, positive=True)
    wanted = function(x, z)
    with ft.emulate("native", strict=True, count=0):
        found = function(x, z)
    assert fs.ulp_distance(found.numpy(), wanted.numpy()).max() <= ulps


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_operations_equal_torch(name, dtype):
    x, y, z = (tensor(SIZE, seed=i, scale=3.0, positive=i == 2).to(dtype) for i in range(3))
    wanted = ELEMENTWISE[name](x, y, z)
    with ft.emulate("native", strict=True, count=0) as run:
        found = ELEMENTWISE[name](x, y, z)
    assert found.dtype == wanted.dtype == dtype
    assert not run.uncovered
    if name in UNFUSED and dtype.itemsize == 2:
        assert fs.ulp_distance(fs.array(found), fs.array(wanted)).max() <= 2
        assert (found != wanted).float().mean() < 0.01
    else:
        assert torch.equal(found, wanted)


F = torch.nn.functional
NORMS = {
    "layer_norm": lambda x, w, b: F.layer_norm(x, (64,), w, b),
    "rms_norm": lambda x, w, b: F.rms_norm(x, (64,), w) + 0 * b,
    "batch_norm": lambda x, w, b: F.batch_norm(x.view(8, 64, -1), torch.zeros(64), torch.ones(64), w, b, True),
    "batch_norm in inference": lambda x, w, b: F.batch_norm(x.view(8, 64, -1), torch.zeros(64), torch.ones(64), w, b),
    "group_norm": lambda x, w, b: F.group_norm(x.view(8, 64, -1), 4, w, b),
    "instance_norm": lambda x, w, b: F.instance_norm(x.view(8, 64, -1), None, None, w, b),
}
"""Norms of 64 features or channels."""
_OF_RESULTS, _OF_SUMS = 16, 64
"""The largest differences, in ulps of the largest element: of results and gradients by x, and of gradients by weights
and biases, which are sums of all rows."""


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def norm_gradients(name, size):
    """The result of a norm of so many elements, and its gradients."""
    x, w, b = (tensor(*shape, seed=i).requires_grad_() for i, shape in enumerate(((size // 64, 64), (64,), (64,))))
    y = NORMS[name](x, w, b)
    y.backward(tensor(size // 64, 64, seed=5).view(y.shape))
    return [y.detach(), x.grad, w.grad, b.grad]


@pytest.mark.parametrize("size", [16384, 32768, 65536])
@pytest.mark.parametrize("name", NORMS)
def test_norms_are_near_torch_with_any_number_of_threads(name, size, threads):
    """From 32,768 elements on PyTorch uses several threads. Some sums then have another order."""
    with ft.emulate("native", strict=True, count=0):
        found = norm_gradients(name, size)
    for count in (1, 2):
        threads(count)
        wanted = norm_gradients(name, size)
        for one, other, limit in zip(found, wanted, (_OF_RESULTS,) * 2 + (_OF_SUMS,) * 2, strict=True):
            ulp = np.spacing(other.abs().max().numpy())
            assert (one - other).abs().max() <= limit * ulp
        if name == "layer_norm" and count == 1:
            assert_equal(found[3], wanted[3])


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.1, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.1),
    "adamw foreach": lambda p: torch.optim.AdamW(p, 0.1, foreach=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.1, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
    "nadam": lambda p: torch.optim.NAdam(p, 0.1),
}


def trained(make, steps=3):
    parameter = torch.nn.Parameter(tensor(SIZE, scale=0.1))
    optimizer = make([parameter])
    for step in range(steps):
        parameter.grad = tensor(SIZE, seed=step + 1)
        optimizer.step()
    return parameter, optimizer


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_equal_torch(name):
    wanted, _ = trained(OPTIMIZERS[name])
    with ft.emulate("native", strict=True) as run:
        found, optimizer = trained(OPTIMIZERS[name])
    if name == "sgd":
        assert_equal(found, wanted)
    else:  # PyTorch's square root is within one ulp, so each step can change the last bit of a weight
        ulp = np.spacing(wanted.detach().abs().max().numpy())
        assert (found - wanted).abs().max() <= 3 * ulp
    assert run.step == 3
    assert not run.uncovered
    assert all(float(state.get("step", 3)) == 3 for state in optimizer.state.values())


FUSED = {
    "adam": lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.1, fused=True, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.1, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.1, weight_decay=0.1, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1, weight_decay=0.1, fused=True),
}


@pytest.mark.parametrize("name", FUSED)
def test_fused_optimizers_are_near_torch(name):
    """PyTorch's kernels contract products and sums as the compiler likes."""
    wanted, _ = trained(FUSED[name])
    with ft.emulate("native", strict=True) as run:
        found, _ = trained(FUSED[name])
    assert run.operations
    assert (found - wanted).detach().abs().max() <= 2.0**-21


def test_counters_and_the_loss_scale_are_not_rounded():
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=1)
    with ft.emulate(ft.Policy("bf16", weights="bf16"), model, strict=True, count=0):
        for _ in range(260):
            scaler.scale(model(torch.ones(1, 4)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    steps = {state["step"].item() for state in optimizer.state.values()}
    assert steps == {260.0}  # BF16 has 256, and then 258
    assert scaler.get_scale() == 2.0**127
