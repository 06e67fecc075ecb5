"""Steps that count events change no bit, and compile the kernels of the steps that do not count."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import floatsim as fs  # noqa: E402
import floatsim.torch as ft  # noqa: E402
from tests.torch_emulation.by_hand import assert_equal, tensor  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.full]


class Net(nn.Module):
    """Layers with weights, running statistics, a recurrent state, and sums."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(4, 32, 3, padding=1), nn.BatchNorm1d(32)
        self.linear, self.lstm, self.head = nn.Linear(32, 32), nn.LSTM(32, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x))).transpose(1, 2)
        return self.head(self.lstm(F.gelu(self.linear(x)))[0]).mean(1)


OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-2),
    "foreach": lambda p: torch.optim.AdamW(p, 1e-2, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
}
POLICIES = {
    "bf16": "bf16",
    "stochastic": "bf16+stochastic",
    "stochastic inside": ft.Policy("bf16", accumulate="fp32", rounding="stochastic", seed=3),
    "te-fp8": "te-fp8",
    "nvfp4": "nvfp4",
    "autocast-fp16": "autocast-fp16",
}


def trained(policy, count, make=OPTIMIZERS["AdamW"], steps=3):
    """Weights, statistics and moments after some steps, and the state of the run."""
    torch.manual_seed(0)
    model, x, target = Net(), tensor(4, 4, 6), torch.tensor([0, 2, 1, 1])
    optimizer = make(model.parameters())
    with ft.emulate(policy, model, count=count) as run:
        for _ in range(steps):
            optimizer.zero_grad()
            run.scaler.scale(F.cross_entropy(model(x), target)).backward()
            run.scaler.step(optimizer)
        state = run.state_dict()
    moments = [x for each in optimizer.state.values() for x in each.values()]
    return [*model.parameters(), *model.buffers(), *moments], state


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_counting_changes_no_bit_and_no_state(policy):
    """In the last step that counts, operations run twice. The second time changes no statistic, history or draw."""
    wanted, state = trained(policy, 0)
    for count in (1, 2, 4):
        found, other = trained(policy, count)
        for a, b in zip(found, wanted, strict=True):
            assert_equal(a.float(), b.float())
        assert {key: other[key] for key in ("step", "draws")} == {key: state[key] for key in ("step", "draws")}
        assert repr(other["scaling"]) == repr(state["scaling"])


@pytest.mark.parametrize("name", ["foreach", "fused"])
def test_counting_changes_no_bit_of_an_optimizer(name):
    wanted, found = (trained("bf16+stochastic", count, OPTIMIZERS[name])[0] for count in (0, 2))
    for a, b in zip(found, wanted, strict=True):
        assert_equal(a.float(), b.float())


def test_streams_and_records_of_the_caller_are_left_alone():
    def logged(count):
        stream = fs.RandomStream(5)
        with fs.record() as log, fs.context(rounding="stochastic", seed=stream):
            trained("bf16", count, steps=1)
        return log.total.elements, stream.calls

    assert logged(1) == logged(0)


STEPS = """
import torch
from numba.core.registry import CPUDispatcher
import floatsim.torch as ft
from tests.torch_emulation.test_torch_counting import Net, OPTIMIZERS, F, tensor

compiled, compile_signature = [], CPUDispatcher.compile

def watched(self, signature):
    before = len(self.overloads)
    found = compile_signature(self, signature)
    if len(self.overloads) > before:
        compiled.append(self.py_func.__qualname__)
    return found

CPUDispatcher.compile = watched
torch.manual_seed(0)
model, x, target = Net(), tensor(4, 4, 6), torch.tensor([0, 2, 1, 1])
optimizer = OPTIMIZERS["AdamW"](model.parameters())
numbers = []
with ft.emulate({policy!r}, model, count={count}) as run:
    for _ in range(4):
        optimizer.zero_grad()
        run.scaler.scale(F.cross_entropy(model(x), target)).backward()
        run.scaler.step(optimizer)
        numbers.append(len(compiled))
print(*numbers, *compiled[numbers[{count} - 1]:])
"""


@pytest.mark.parametrize(("policy", "count"), [("bf16", 1), ("te-fp8", 2)])
def test_steps_after_the_counted_ones_compile_nothing(policy, count):
    """Counted in a process of its own, where each kernel is compiled, or read from disk, at its first use."""
    done = subprocess.run(
        [sys.executable, "-c", STEPS.format(policy=policy, count=count)], check=True, capture_output=True, text=True
    )
    first, *numbers = map(int, done.stdout.split()[:4])
    assert first > 5
    assert numbers[count - 1 :] == [numbers[count - 2] if count > 1 else first] * (4 - count), done.stdout
