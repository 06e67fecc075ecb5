"""Optimizers and clipping against PyTorch itself. Needs the extra `torch`.

PyTorch computes square roots of FP32 tensors on a CPU by a library that is off by one ulp in about 0.6 % of the
results. The tests of Adam and RMSProp in FP32 replace its square root by NumPy's, which is rounded correctly. In 16
bits, the last elements of a tensor, which do not fill a vector, have one more rounding there: the lengths are multiples
of 64.
"""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim import training
from floatsim.quantization.lookup import _linspace

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = {torch.float32: {"a": (17,), "b": (5, 8), "c": (300,)}}
SHAPES |= {dtype: {"a": (64,), "b": (16, 8), "c": (320,)} for dtype in DTYPES[1:]}


@pytest.fixture
def exact_roots(monkeypatch):
    """Square roots of FP32 tensors that are rounded correctly."""
    original = torch.Tensor.sqrt

    def root(x):
        return torch.from_numpy(np.sqrt(x.numpy())) if x.dtype == torch.float32 else original(x)

    monkeypatch.setattr(torch.Tensor, "sqrt", root)
    monkeypatch.setattr(torch.Tensor, "sqrt_", lambda x: x.copy_(root(x)))


def trajectory(own, theirs, parameters, steps, dtype, seed=3):
    """Compare the weights of both optimizers after each step, to the bit."""
    rng = np.random.default_rng(seed)
    kept = {name: fs.array(each.detach()) for name, each in parameters.items()}
    for step in range(steps):
        drawn = {name: rng.normal(0, 10.0 ** rng.uniform(-3, 1), shape) for name, shape in SHAPES[dtype].items()}
        gradients = {name: torch.from_numpy(each.astype(np.float32)).to(dtype) for name, each in drawn.items()}
        for name, parameter in parameters.items():
            parameter.grad = gradients[name].clone()
        theirs.step()
        kept = own.step(kept, {name: fs.array(each) for name, each in gradients.items()})
        for name, parameter in parameters.items():
            assert np.array_equal(kept[name].codes, fs.array(parameter.detach()).codes), (step, name)


def parameters_of(dtype):
    rng = np.random.default_rng(1)
    return {
        name: torch.nn.Parameter(torch.from_numpy(rng.normal(size=shape).astype(np.float32)).to(dtype))
        for name, shape in SHAPES[dtype].items()
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("options", [
    {}, {"momentum": 0.9}, {"momentum": 0.9, "weight_decay": 0.1, "dampening": 0.3},
    {"momentum": 0.8, "nesterov": True, "weight_decay": 1e-3},
], ids=str)  # fmt: skip
def test_torch_sgd(options, dtype):
    parameters = parameters_of(dtype)
    theirs = torch.optim.SGD(list(parameters.values()), lr=0.037, foreach=False, **options)
    trajectory(training.SGD(0.037, **options), theirs, parameters, 20, dtype)


@pytest.mark.usefixtures("exact_roots")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("own", ["adam", "adamw"])
@pytest.mark.parametrize("options", [
    {}, {"weight_decay": 0.1, "betas": (0.8, 0.99), "eps": 1e-4}, {"betas": (0.4, 0.99)}, {"betas": (0.1, 0.99)},
    {"betas": (0.5000000001, 0.99)},
], ids=str)  # fmt: skip
def test_torch_adam(own, options, dtype):
    parameters = parameters_of(dtype)
    options = {"weight_decay": 0.0, **options}
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[own]
    theirs = kind(list(parameters.values()), lr=0.01, foreach=False, **options)
    trajectory(training.as_optimizer(own, 0.01, **options), theirs, parameters, 20, dtype)


@pytest.mark.usefixtures("exact_roots")
@pytest.mark.parametrize("own", ["adam", "adamw", "rmsprop"])
def test_torch_parameter_without_a_gradient(own):
    """A parameter counts the steps in which it had a gradient."""
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop}[own]
    rng = np.random.default_rng(4)
    parameters = {name: torch.nn.Parameter(torch.ones(8)) for name in "ab"}
    theirs, optimizer = kind(list(parameters.values()), lr=0.1, foreach=False), training.as_optimizer(own, 0.1)
    kept = {name: fs.array(np.ones(8), "fp32") for name in "ab"}
    for present in ("a", "a", "ab", "b", "ab"):
        gradients = {name: rng.normal(size=8).astype(np.float32) for name in present}
        for name, parameter in parameters.items():
            parameter.grad = torch.from_numpy(gradients[name].copy()) if name in present else None
        theirs.step()
        kept = optimizer.step(kept, {name: fs.array(each) for name, each in gradients.items()})
        for name, parameter in parameters.items():
            assert np.array_equal(np.asarray(kept[name]), parameter.detach().numpy()), (present, name)


@pytest.mark.usefixtures("exact_roots")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("options", [
    {}, {"momentum": 0.9}, {"weight_decay": 0.01, "alpha": 0.9}, {"alpha": 0.4, "centered": True},
], ids=str)  # fmt: skip
def test_torch_rmsprop(options, dtype):
    parameters = parameters_of(dtype)
    theirs = torch.optim.RMSprop(list(parameters.values()), lr=0.01, foreach=False, **options)
    trajectory(training.RMSProp(0.01, **options), theirs, parameters, 20, dtype)


def dynamic_map(signed):
    """The map of bitsandbytes, functional.py, create_dynamic_map, for 8 bits."""
    numbers = [0.0, 1.0]
    for i in range(7):
        ends = torch.linspace(0.1, 1, 2 ** (i if signed else i + 1) + 1, dtype=torch.float32)
        means = (ends[:-1] + ends[1:]) / 2.0
        numbers += (10 ** (i - 6) * means).tolist()
        numbers += (-(10 ** (i - 6)) * means).tolist() if signed else []
    return tuple(torch.tensor(sorted(numbers), dtype=torch.float32).tolist())


def test_torch_dynamic_map():
    assert training.DYNAMIC8.format.values == dynamic_map(signed=True)
    assert training.DYNAMIC8_UNSIGNED.format.values == dynamic_map(signed=False)
    for n in range(2, 258):
        assert _linspace(n).tolist() == torch.linspace(0.1, 1, n).tolist()


@pytest.mark.parametrize("max_norm", [0.5, 3.0, 1e6])
def test_torch_clip_grad_norm(max_norm):
    """Also lengths that are no multiple of the 8 lanes of PyTorch's sum of squares."""
    rng = np.random.default_rng(5)
    for _ in range(30):
        sizes = (*range(1, 25), 31, 33, 64, 100, 257, 1000, 4096)
        numbers = {n: rng.normal(0, 10.0 ** rng.uniform(-3, 2), n).astype(np.float32) for n in sizes}
        parameters = [torch.nn.Parameter(torch.zeros(n)) for n in numbers]
        for parameter, gradient in zip(parameters, numbers.values(), strict=True):
            parameter.grad = torch.from_numpy(gradient.copy())
        norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm, foreach=False)
        found = training.clip_by_global_norm({str(n): fs.array(g, "fp32") for n, g in numbers.items()}, max_norm)
        assert float(found.norm) == norm.item()
        for parameter, name in zip(parameters, numbers, strict=True):
            assert np.array_equal(np.asarray(found.gradients[str(name)]), parameter.grad.numpy())


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
def test_torch_norm_of_one_tensor(dtype):
    """In 16 bits, random numbers rarely tell orders apart: the norms near the middle of two numbers are compared."""
    rng = np.random.default_rng(6)
    for n in (1, 2, 3, 4, 7, 9, 15, 23, 31, 33, 40, 100):
        drawn = rng.normal(size=(20 if dtype.itemsize > 2 else 20_000, n))
        tensors = torch.from_numpy(drawn).to(dtype)
        if dtype.itemsize == 2:
            exact = tensors.double().square().sum(dim=1).sqrt()
            near = (exact * (1 + 1e-6)).to(dtype) != (exact * (1 - 1e-6)).to(dtype)
            tensors = tensors[near][:20]
        for x in tensors:
            assert training.global_norm({"w": fs.array(x)}).item() == torch.linalg.vector_norm(x).item(), n


def test_torch_norm_of_several_formats():
    """PyTorch stacks FP16 and BF16 norms in FP32, in any order."""
    tensors = [torch.tensor([0.1, 0.3], dtype=dtype) for dtype in DTYPES[1:]]
    for order in (tensors, tensors[::-1]):
        wanted = torch.nn.utils.get_total_norm(order, foreach=False)
        found = training.global_norm({str(i): fs.array(x) for i, x in enumerate(order)})
        assert (found.format, found.item()) == (fs.FP32, wanted.item())


def test_torch_clip_in_fp64():
    """max_norm and the sums are in FP64."""
    for numbers in (np.random.default_rng(7).normal(size=11), np.array([1e30, 1e29])):
        parameter = torch.nn.Parameter(torch.zeros(numbers.size, dtype=torch.float64))
        parameter.grad = torch.from_numpy(numbers.copy())
        norm = torch.nn.utils.clip_grad_norm_([parameter], 0.3, foreach=False)
        found = training.clip_by_global_norm({"w": fs.array(numbers, "fp64")}, 0.3)
        assert found.norm.item() == norm.item()
        assert np.array_equal(found.gradients["w"].values, parameter.grad.numpy())
