"""The loss scaler of PyTorch against PyTorch itself. Needs the extra `torch`."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.training import GradScaler

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")


def pair(scale, growth, backoff, interval):
    """A scaler, and PyTorch's with an optimizer of one parameter."""
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=scale, growth_factor=growth, backoff_factor=backoff, growth_interval=interval
    )
    scaler.scale(torch.zeros(()))  # creates the state
    return GradScaler(scale, growth, backoff, interval), scaler, parameter, optimizer


@pytest.mark.parametrize(("scale", "growth", "backoff", "interval", "share"), [
    (65536.0, 2.0, 0.5, 3, 0.2), (2.0**126, 2.0, 0.5, 2, 0.05), (4.0, 2.0, 0.5, 5, 0.9), (1.7, 1.3, 0.7, 2, 0.3),
    (3e38, 1.01, 0.99, 1, 0.1),
])  # fmt: skip
def test_torch_trajectories_of_the_scale(scale, growth, backoff, interval, share):
    """The scale, the tracker and the unscaled gradients of 400 steps, to the bit."""
    rng = np.random.default_rng(1)
    own, scaler, parameter, optimizer = pair(scale, growth, backoff, interval)
    for _ in range(400):
        gradient = rng.normal(0, 1e3, 3).astype(np.float32)
        if rng.random() < share:
            gradient[rng.integers(3)] = rng.choice([np.inf, -np.inf, np.nan])
        parameter.grad = torch.from_numpy(gradient.copy())
        parameter.data.zero_()
        scaler.unscale_(optimizer)
        found = own.unscale({"w": fs.array(gradient, "fp32")})["w"]
        assert np.array_equal(np.asarray(found), parameter.grad.numpy(), equal_nan=True)
        scaler.step(optimizer)
        scaler.update()
        skipped = own.update()
        assert skipped == (not parameter.data.any())
        assert own.scale == scaler.get_scale()
        assert own.tracker == scaler.state_dict()["_growth_tracker"]


def test_torch_refuses_fp16_too():
    _, scaler, parameter, optimizer = pair(2.0, 2.0, 0.5, 2)
    half = torch.nn.Parameter(parameter.detach().half())
    optimizer = torch.optim.SGD([half], lr=1.0)
    half.grad = torch.ones(3, dtype=torch.float16)
    with pytest.raises(ValueError, match="FP16"):
        scaler.unscale_(optimizer)
