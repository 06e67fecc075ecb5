"""The LSTM with all time steps together equals the operators of one time step, bit for bit.

Steps whose events are counted run cell by cell, other steps together.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")

from torch import nn  # noqa: E402

import floatsim as fs  # noqa: E402
import floatsim.torch as ft  # noqa: E402
from floatsim.torch import recurrent  # noqa: E402
from tests.torch_emulation.by_hand import assert_equal, tensor  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.full]

POLICIES = {
    "bf16": "bf16",
    "fp16": "fp16",
    "native": "native",
    "autocast-bf16": "autocast-bf16",
    "mxfp8": "mxfp8",
    "toward zero": ft.Policy("bf16", accumulate="fp32", rounding="toward_zero"),
    "blocks": ft.Policy(ft.Op("fp16", inside="fp32", result="fp16"), accumulate="blocked(fp16, 4, fp32)"),
    "unlike formats": ft.Policy(
        "bf16",
        rules={"lstm": ft.Gemm("e5m2", backward="fp16", accumulate="fp16", backward_accumulate="bf16", result="fp16")},
    ),
    "narrow": ft.Policy(ft.Op("e4m3", inside="e5m2", result="e4m3"), accumulate="e5m2"),
}
LAYERS = {
    "two layers": {"num_layers": 2},
    "both directions": {"bidirectional": True, "batch_first": True},
    "no biases": {"bias": False},
}


def results(policy, count, change=lambda layer: None, dtype=torch.float32, times=4, **options):
    """Outputs, states and gradients of a layer, with or without a count of events."""
    torch.manual_seed(1)
    layer = nn.LSTM(5, 3, **options).to(dtype)
    x = tensor(2, times, 5, scale=2.0).to(dtype).requires_grad_()
    n = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    rows = 2 if options.get("batch_first") else times
    states = [tensor(n, rows, 3, seed=seed).to(dtype).requires_grad_() for seed in (1, 2)]
    with ft.emulate(policy, layer, count=count) as run:
        y, last = layer(x, states)
        change(layer)
        ((y * y).sum() + (last[0] * 3).sum() + last[1].sum()).backward()
    assert not run.uncovered
    return [y, *last, x.grad, *(each.grad for each in states), *(each.grad for each in layer.parameters())]


def assert_all_equal(found, wanted):
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert_equal(a.float(), b.float())


@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_time_steps_together_equal_cell_by_cell(policy, options):
    assert_all_equal(results(policy, 0, **options), results(policy, 1, **options))


@pytest.mark.parametrize("times", [1, 3])
def test_tensors_of_16_bits(times):
    options = {"dtype": torch.bfloat16, "times": times}
    assert_all_equal(results("native", 0, **options), results("native", 1, **options))


def test_the_two_ways_are_two(monkeypatch):
    calls = []
    for name in ("_forward", "_states"):
        function = getattr(recurrent, name)
        monkeypatch.setattr(
            recurrent, name, lambda *args, name=name, function=function: calls.append(name) or function(*args)
        )
    results("bf16", 0)
    assert calls == ["_forward"], "the backward pass has the steps of the forward pass"
    calls.clear()
    results(ft.Policy("bf16", accumulate="fp32", rounding="stochastic", seed=3), 0)
    assert calls == ["_states"] * 2, "random draws are numbered in the order of the definition"
    calls.clear()
    with fs.record() as log:
        results("bf16", 0)
    assert calls == ["_states"] * 2
    assert log.total.elements > 0


def by_data(layer):
    layer.weight_hh_l0.data.mul_(-3.0)


def by_numpy(layer):
    layer.weight_ih_l0.detach().numpy()[0] = 7.0


def by_assignment(layer):
    layer.bias_hh_l0.data = torch.full((12,), 0.5)


@pytest.mark.parametrize("change", [by_data, by_numpy, by_assignment])
def test_steps_of_the_forward_pass_are_not_used_with_other_weights(change):
    """PyTorch does not see these writes, so that the backward pass runs; it computes the gates again."""
    found, wanted = results("bf16", 0, change), results("bf16", 1, change)
    assert_all_equal(found, wanted)
    unchanged = results("bf16", 0)
    assert not np.array_equal(found[3], unchanged[3])


def test_backward_passes_that_keep_the_graph():
    torch.manual_seed(1)
    layer, x = nn.LSTM(5, 3), tensor(2, 4, 5).requires_grad_()
    with ft.emulate("bf16", layer, count=0):
        y = layer(x)[0].sum()
        first = torch.autograd.grad(y, x, retain_graph=True)[0]
        second = torch.autograd.grad(y, x)[0]
    assert_equal(first, second)
