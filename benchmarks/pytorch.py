"""`python -m benchmarks.pytorch`: a training step under `ft.emulate` beside PyTorch's own in FP32, interleaved.

The model is two layers of `torch.nn.TransformerEncoderLayer`, 256 wide, with a batch of 2, a sequence of 32, and AdamW.
Each ratio is of the best wall times. The ratio of processor times stands beside it, because other work on the machine
delays both sides differently. The overhead of an operation is measured on the same model with a width of 8, where
arithmetic takes next to no time, for each ATen operation that PyTorch dispatches. The memory is the peak of a process
above what it has before the model is made.

The models of `benchmarks.torch_models` have small operations. Their ratios are of the best processor times of one
thread, of a warm step under the policy "bf16" and of PyTorch's own, in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

TARGETS = {
    "BF16, FP32 sums: times PyTorch in FP32": 15.0,
    "BF16, FP32 sums, stochastic: times PyTorch in FP32": 40.0,
    "overhead of an operation, us": 150.0,
    "memory, BF16: times PyTorch in FP32": 2.0,
    "GPT, 2 layers, 64 wide: times PyTorch, one thread": 25.0,
    "GPT, 2 layers, 256 wide: times PyTorch, one thread": 15.0,
    "ResNet, 7 convolutions: times PyTorch, one thread": 20.0,
    "LSTM, 2 layers, 64 wide: times PyTorch, one thread": 40.0,
}
"""The largest values that are wanted."""
_POLICIES = {"BF16, FP32 sums": "ties_to_even", "BF16, FP32 sums, stochastic": "stochastic"}


def step_of(width: int) -> Callable[[], None]:
    """Return a training step of a new model."""
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    x, target = torch.randn(2, 32, width), torch.zeros(2, 32, width)

    def step() -> None:
        torch.nn.functional.mse_loss(model(x), target).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def emulation(rounding: str) -> Any:
    """Return the context of a run in BF16 with FP32 sums, without counts of events."""
    import floatsim.torch as ft

    return ft.emulate(ft.Policy("bf16", accumulate="fp32", rounding=rounding), count=0)


def seconds(step: Callable[[], None], rounding: str | None) -> tuple[float, float]:
    """Return the wall time and the processor time of a step."""
    with contextlib.nullcontext() if rounding is None else emulation(rounding):
        start, used = time.perf_counter(), time.process_time()
        step()
        return time.perf_counter() - start, time.process_time() - used


def interleaved(width: int, roundings: list[str | None], rounds: int) -> list[tuple[float, float]]:
    """Return the best wall and processor time of a step in each way, of rounds after one to warm up."""
    steps = [step_of(width) for _ in roundings]
    times: list[list[tuple[float, float]]] = [[] for _ in roundings]
    for number in range(rounds + 1):
        for step, rounding, found in zip(steps, roundings, times, strict=True):
            taken = seconds(step, rounding)
            if number:
                found.append(taken)
    return [(min(wall for wall, _ in found), min(used for _, used in found)) for found in times]


def warm_times(step: Callable[[], None], repeats: int) -> float:
    """Return the best processor time of a step, after one that is not measured."""
    step()
    found = []
    for _ in range(repeats):
        start = time.process_time()
        step()
        found.append(time.process_time() - start)
    return min(found)


def model_ratios(rounds: int) -> dict[str, tuple[float, float]]:
    """Return the processor times of a step of each model, in PyTorch and under the policy "bf16"; one thread."""
    import torch

    import floatsim.torch as ft

    from .torch_models import MODELS

    def step_of_model(model: Any, loss: Any) -> Callable[[], None]:
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

        def step() -> None:
            optimizer.zero_grad()
            loss(model).backward()
            optimizer.step()

        return step

    times: dict[str, list[tuple[float, float]]] = {name: [] for name in MODELS}
    torch.manual_seed(0)
    pairs = {name: (make(), make()) for name, make in MODELS.items()}
    steps = {name: [step_of_model(*each) for each in pair] for name, pair in pairs.items()}
    for _ in range(rounds):
        for name, (plain, emulated) in steps.items():
            own = warm_times(plain, 10)
            with ft.emulate("bf16", pairs[name][1][0], count=0):
                times[name].append((own, warm_times(emulated, 3)))
    return {name: (min(own for own, _ in found), min(used for _, used in found)) for name, found in times.items()}


def dispatches() -> int:
    """Return the number of ATen operations that a step dispatches."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):  # type: ignore[misc]
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += 1
            return func(*args, **(kwargs or {}))

    step = step_of(8)
    step()
    with Counter() as counter:
        step()
    return counter.count


def memory_of(emulated: bool, width: int) -> int:
    """Return the peak of this process in two steps, in bytes, above what it has before. Linux only."""

    def status(name: str) -> int:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))

    with emulation("ties_to_even") if emulated else contextlib.nullcontext():
        step_of(8)()  # loads the kernels
        before = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # resets the peak
        step = step_of(width)
        step()
        step()
    return status("VmHWM") - before


def _memory(width: int, threads: int) -> dict[str, int]:
    """Return the memory of PyTorch and of the emulation, each measured in a process of its own."""
    found = {}
    for name in ("torch", "emulated"):
        command = [sys.executable, "-m", "benchmarks.pytorch", "--memory", name]
        command += ["--width", str(width), "--threads", str(threads)]
        found[name] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def measure(width: int, threads: int, rounds: int) -> dict[str, Any]:
    """Return the measured values by the names of TARGETS, and the times behind them."""
    import torch

    import floatsim as fs

    names: list[str | None] = [None, *_POLICIES.values()]
    plain, *emulated = interleaved(width, names, rounds)
    small_plain, small = interleaved(8, [None, "ties_to_even"], rounds)
    count = dispatches()
    values = {f"{name}: times PyTorch in FP32": t[0] / plain[0] for name, t in zip(_POLICIES, emulated, strict=True)}
    overhead, used = ((x - y) / count * 1e6 for x, y in zip(small, small_plain, strict=True))
    values["overhead of an operation, us"] = overhead
    torch.set_num_threads(1)
    fs.set_num_threads(1)
    models = model_ratios(rounds)
    torch.set_num_threads(threads)
    fs.set_num_threads(threads)
    values |= {f"{name}: times PyTorch, one thread": used / own for name, (own, used) in models.items()}
    memory = _memory(width, threads) if sys.platform == "linux" else {}
    if memory:
        values["memory, BF16: times PyTorch in FP32"] = memory["emulated"] / memory["torch"]
    return {
        "values": values, "dispatches": count, "bytes": memory,
        "wall and processor seconds": {"PyTorch": plain, **dict(zip(_POLICIES, emulated, strict=True))},
        "processor times PyTorch": {name: t[1] / plain[1] for name, t in zip(_POLICIES, emulated, strict=True)},
        "overhead in processor time, us": used, "processor seconds of models, PyTorch and emulated": models,
    }  # fmt: skip


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pytorch", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small model: tests the harness, not the speed")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--memory", choices=["torch", "emulated"], help="print only the memory of one process")
    parser.add_argument("--width", type=int, default=256, help="the width of the model")
    parser.add_argument("--threads", type=int, default=2, help="the threads of PyTorch and of floatsim")
    arguments = parser.parse_args()
    import torch

    import floatsim as fs

    torch.set_num_threads(arguments.threads)
    fs.set_num_threads(arguments.threads)
    if arguments.memory:
        print(memory_of(arguments.memory == "emulated", arguments.width))
        return
    found = measure(16, arguments.threads, 1) if arguments.quick else measure(arguments.width, arguments.threads, 9)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    table = Table("measured", "value", "target", box=None)
    for name, value in found["values"].items():
        table.add_row(name, f"{value:.2f}", f"{TARGETS[name]:.0f}")
    Console(highlight=False).print(table)
    for name in (
        "dispatches",
        "bytes",
        "wall and processor seconds",
        "processor times PyTorch",
        "overhead in processor time, us",
        "processor seconds of models, PyTorch and emulated",
    ):
        print(f"{name}: {found[name]}")


if __name__ == "__main__":
    main()
