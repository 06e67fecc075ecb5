"""The recipe pytorch-cpu against PyTorch itself. Needs the extra `torch`."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim import operators as ops

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")
F = torch.nn.functional

LANES = 16
"""The lanes of a sum on a processor with AVX-512, which the recipe has."""


def normal(dtype, *shape, seed=1, scale=3):
    drawn = np.random.default_rng(seed).normal(0, scale, shape).astype(np.float32)
    return torch.from_numpy(drawn).to(dtype)


def distances(found, tensor):
    return fs.ulp_distance(fs.array(found), fs.array(tensor))


def results(operator, x):
    """The results of the recipe and of PyTorch."""
    n, keywords = x.shape[-1], {"recipe": "pytorch-cpu"}
    w, b = (normal(x.dtype, n, seed=seed, scale=1) for seed in (2, 3))
    g = normal(x.dtype, *x.shape, seed=4, scale=1)
    y = F.softmax(x, -1)
    pairs = {
        "softmax": lambda: (ops.softmax(x, **keywords), y),
        "log_softmax": lambda: (ops.log_softmax(x, **keywords), F.log_softmax(x, -1)),
        "layer_norm": lambda: (ops.layer_norm(x, w, b, **keywords), F.layer_norm(x, (n,), w, b)),
        "rms_norm": lambda: (ops.rms_norm(x, w, **keywords), F.rms_norm(x, (n,), w, None)),
        "silu": lambda: (ops.silu(x, **keywords), F.silu(x)),
        "softmax_backward": lambda: (
            ops.softmax_backward(g, y, **keywords), torch._softmax_backward_data(g, y, -1, x.dtype),
        ),
    }  # fmt: skip
    return pairs[operator]()


@pytest.mark.parametrize("n", [16, 100, 1000, 1024])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("operator", ["softmax", "log_softmax", "layer_norm", "rms_norm", "silu", "softmax_backward"])
def test_torch_results_of_16_bits(operator, dtype, n):
    found, expected = results(operator, normal(dtype, 200, n))
    assert isinstance(found, torch.Tensor)
    assert found.dtype == dtype
    apart = distances(found, expected)
    assert np.mean(apart == 0) >= 0.997
    if operator in ("softmax", "rms_norm", "silu"):  # the others subtract, and cancel
        assert apart.max() <= 1


@pytest.mark.parametrize("n", [16, 100, 1000, 1024])
@pytest.mark.parametrize(("operator", "most"), [("softmax", 6), ("rms_norm", 5), ("silu", 2)])
def test_torch_results_of_fp32(operator, most, n):
    """The bounds are the largest distances of 20 seeds, with PyTorch 2.15.0."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("the recipe has the lanes of AVX-512")
    assert distances(*results(operator, normal(torch.float32, 200, n))).max() <= most


@pytest.mark.parametrize("n", [LANES, 4 * LANES, 1024])
def test_torch_sums_in_lanes(n):
    """The backward pass of softmax has no exponential: all bits are equal."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("the recipe has the lanes of AVX-512")
    assert not distances(*results("softmax_backward", normal(torch.float32, 200, n))).any()


def test_torch_named_tuples_have_tensors():
    x = normal(torch.bfloat16, 3, 4)
    found = ops.linear_backward(x, x, normal(torch.bfloat16, 4, 4))
    assert isinstance(found, ops.LinearGradients)
    assert all(isinstance(each, torch.Tensor) for each in found)
