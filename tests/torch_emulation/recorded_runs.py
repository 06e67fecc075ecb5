"""Training runs of PyTorch on an NVIDIA H200 (torch 2.11.0, CUDA 13.0): networks, batches, and the comparison.

`data/silicon/nvidia-h200/training-runs.zip` has two steps of small networks. `FLOATSIM_H200` names the folder of all
recordings, whose training/train.npz and kernels/model_steps.npz have whole runs. `python -m
tests.torch_emulation.recorded_runs FOLDER` writes the sample from the folder.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import floatsim.torch as ft

FOLDER = os.environ.get("FLOATSIM_H200")
SAMPLE = Path(__file__).parents[2] / "data" / "silicon" / "nvidia-h200" / "training-runs.zip"
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}
NETWORKS = {
    "mlp": ((32, 64), 10, lambda: [nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10)]),
    "relu": ((64, 128), 32, lambda: [
        nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 32)]),
    "deep": ((128, 96), 64, lambda: [
        nn.Linear(96, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 256), nn.SiLU(), nn.LayerNorm(256),
        nn.Linear(256, 64)]),
    "odd": ((33, 50), 7, lambda: [nn.Linear(50, 100), nn.Tanh(), nn.LayerNorm(100), nn.Linear(100, 7)]),
    "norm3": ((4, 24, 64), 16, lambda: [nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 16)]),
}  # fmt: skip
"""The shape of a batch, the number of outputs, and the layers."""
OPTIMIZERS = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.01),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9, weight_decay=0.01),
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=0.01, weight_decay=0.1),
    "fused-adamw": lambda weights: torch.optim.AdamW(weights, lr=0.01, weight_decay=0.1, fused=True),
}
FORECAST = {
    "mlp|bf16|sgd|mse": 20, "mlp|fp16|sgd|mse": 20, "mlp|bf16|momentum|mse": 20, "relu|bf16|sgd|mse": 20,
    "norm3|bf16|sgd|mse": 10,
}  # fmt: skip
"""Runs, with their steps, whose weights were computed before the GPU ran them."""
OTHERS = {
    "mlp|bf16|adamw|mse": 20, "mlp|bf16|sgd|ce": 20, "mlp|bf16|fused-adamw|mse": 20, "odd|bf16|sgd|mse": 10,
    "deep|bf16|sgd|mse": 10, "deep|fp16|sgd|mse": 10, "relu|fp16|adamw|ce": 10,
    "mlp|bf16|sgd|mse-autocast": 10, "mlp|fp16|sgd|mse-autocast": 10,
}  # fmt: skip
"""The other runs in 16 bits without convolutions."""


def codes(x):
    """The codes of a tensor, which later changes of the tensor do not reach."""
    kind = {2: torch.int16, 4: torch.int32}[x.element_size()]
    numbers = x.detach().contiguous().view(kind).numpy()
    return numbers.view(f"uint{8 * x.element_size()}").copy()


def network(name):
    """The network with its initial weights, in FP32."""
    torch.manual_seed(4)
    return nn.Sequential(*NETWORKS[name][2]())


def batch(name, step, loss):
    """The batch of a step, in FP32."""
    shape, outputs, _ = NETWORKS[name]
    rng = np.random.default_rng([29, step, len(name)])
    x = torch.from_numpy(rng.standard_normal(shape).astype(np.float32))
    if loss == "ce":
        return x, torch.from_numpy(rng.integers(0, outputs, shape[:-1]))
    return x, torch.from_numpy(rng.standard_normal((*shape[:-1], outputs)).astype(np.float32))


def watched(model, kept):
    """Keep the result of each module, and its gradient, by name."""

    def keep(name, result):
        kept[f"fwd.{name}"] = result.detach().clone()
        if result.requires_grad:
            result.register_hook(lambda gradient: kept.__setitem__(f"bwd.{name}", gradient.clone()))

    for name, module in model.named_modules():
        module.register_forward_hook(lambda _, given, result, name=name: keep(name, result))


def trained(key, steps, model=None, **options):
    """A run under a policy: what `ft.emulate` yields, and the codes of everything that a recording may have."""
    name, fmt, how, loss = key.split("|")
    loss, autocast = loss.removesuffix("-autocast"), loss.endswith("-autocast")
    dtype = torch.float32 if autocast else DTYPES[fmt]
    policy = f"h200-autocast-{fmt}" if autocast else "h200"
    model = (network(name) if model is None else model).to(dtype)
    optimizer = OPTIMIZERS[how](model.parameters())
    found, losses, kept = {}, [], {}
    watched(model, kept)
    with ft.emulate(policy, model, count=0, **options) as run:
        for step in range(steps):
            x, target = batch(name, step, loss)
            kept.clear()
            optimizer.zero_grad()
            y = model(x.to(dtype)).float()
            if loss == "ce":
                value = F.cross_entropy(y.reshape(-1, y.shape[-1]), target.reshape(-1))
            else:
                value = F.mse_loss(y, target)
            value.backward()
            kept |= {f"grad.{each}": p.grad.clone() for each, p in model.named_parameters()}
            optimizer.step()
            losses.append(value.detach())
            if step in (0, steps - 1):
                found |= {f"{each}|step{step}|{key}": codes(x) for each, x in kept.items()}
            found |= {f"after{step}.{each}|{key}": codes(p) for each, p in model.named_parameters()}
    return run, found | {f"losses|{key}": codes(torch.stack(losses))}


# -- recordings of floatsim twin ---------------------------------------------------------------------------------------

VERSIONS = {"torch": "2.11.0+cu130", "cuda": "13.0", "floatsim": "0.1.0", "python": "3.12"}


def definition(key, model=None):
    """The functions of a run, for `ft.record_twin` and `ft.check_twin`."""
    name, fmt, how, loss = key.split("|")
    loss, autocast = loss.removesuffix("-autocast"), loss.endswith("-autocast")
    dtype = torch.float32 if autocast else DTYPES[fmt]

    def make_batch(step):
        x, target = batch(name, step, loss)
        return x.to(dtype), target

    def loss_of(y, given):
        y = y.float()
        if loss == "ce":
            return F.cross_entropy(y.reshape(-1, y.shape[-1]), given[1].reshape(-1))
        return F.mse_loss(y, given[1])

    return SimpleNamespace(
        build=lambda: (network(name) if model is None else model).to(dtype), batch=make_batch, loss=loss_of,
        optimizer=OPTIMIZERS[how],
    )  # fmt: skip


PARTS = {"fwd": "forward", "bwd": "gradient", "grad": "weight_gradient"}


def place_of(name, key):
    """The place of a recorded tensor, such as "fwd.0|step0|KEY" or "after4.0.weight|KEY"."""
    what, _, rest = name.removesuffix(f"|{key}").partition(".")
    if what.startswith("after"):
        return ft.Place(int(what.removeprefix("after")), "updated", rest)
    module, _, step = rest.partition("|step")
    return ft.Place(int(step), PARTS[what], module or "Sequential")


def as_recording(key, recorded, steps):
    """A recorded run as `floatsim twin record` would have written it. It lacks batches, and modules of most steps."""
    _, fmt, _, loss = key.split("|")
    recording = ft.Recording({
        "device": "h200", "device_name": "NVIDIA H200", "emulated": False, "versions": VERSIONS, "steps": steps,
        "settings": {}, "autocast": fmt if loss.endswith("-autocast") else None, "kernels": [],
    })  # fmt: skip
    for each, x in definition(key).build().state_dict().items():
        recording.add(ft.Place(-1, "initial", each), x)
    for each in recorded.files:
        if each.endswith(f"|{key}") and each.split(".")[0] in {*PARTS, *(f"after{n}" for n in range(steps))}:
            recording.add(place_of(each, key), tensor(recorded[each], fmt))
    for step, code in enumerate(recorded[f"losses|{key}"][:steps]):
        recording.add(ft.Place(step, "loss"), tensor(np.array(code), "fp32"))
    return recording


def tensor(numbers, fmt):
    """The tensor of codes, in FP32 or in the format of the run."""
    dtype = torch.float32 if numbers.dtype == np.uint32 else DTYPES[fmt]
    return torch.from_numpy(numbers.view(f"int{8 * numbers.itemsize}").copy()).view(dtype)


# -- the sample --------------------------------------------------------------------------------------------------------

SAMPLED = [
    "mlp|bf16|sgd|mse", "mlp|fp16|sgd|mse", "mlp|bf16|momentum|mse", "mlp|bf16|adamw|mse", "mlp|bf16|sgd|ce",
    "mlp|bf16|fused-adamw|mse", "mlp|fp16|sgd|mse-autocast", "odd|bf16|sgd|mse",
]  # fmt: skip


def write_sample(folder):
    """Write the initial weights, step 0 of the first run, and losses and weights of two steps of all."""
    with np.load(folder / "training" / "train.npz") as recorded:
        hashes = json.loads(str(recorded["meta"]))["init"]
        arrays = {}
        for name in ("mlp", "odd"):
            for each, x in network(name).state_dict().items():
                assert hashlib.sha256(codes(x).tobytes()).hexdigest() == hashes[f"{name}.{each}"]
                arrays[f"init.{each}|{name}"] = codes(x)
        for key in SAMPLED:
            arrays[f"losses|{key}"] = recorded[f"losses|{key}"][:2]
            wanted = ("after1.", "step0") if key in (SAMPLED[0], SAMPLED[-1]) else ("after1.",)
            arrays |= {
                each: recorded[each] for each in recorded.files if each.endswith(key) and any(w in each for w in wanted)
            }
    with SAMPLE.open("wb") as file:
        np.savez_compressed(file, **arrays)


# -- the recording of the notebook ---------------------------------------------------------------------------------

TWIN = SAMPLE.with_name("twin-mlp.zip")
MODEL = '''"""An MLP of 64-128-10 with GELU and LayerNorm, in BF16: one of the runs that an H200 carried out."""

import numpy as np
import torch
from torch import nn


def build():
    torch.manual_seed(4)
    layers = nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10)
    return nn.Sequential(*layers).bfloat16()


def batch(step):
    rng = np.random.default_rng([29, step, 3])
    x, target = (torch.from_numpy(rng.standard_normal(shape).astype(np.float32)) for shape in ((32, 64), (32, 10)))
    return x.bfloat16(), target


def loss(output, batch):
    return nn.functional.mse_loss(output.float(), batch[1])


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.01)
'''


def write_twin(folder):
    """Write one of the runs that were forecast as a recording: all weights, losses, and large results as hashes."""
    key = SAMPLED[0]
    with np.load(folder / "training" / "train.npz") as recorded:
        found = as_recording(key, recorded, FORECAST[key])
        launches = json.loads(str(recorded["meta"]))["kernels"][key]
    source = {"name": "mlp.py", "source": MODEL, "sha256": hashlib.sha256(MODEL.encode()).hexdigest()}
    kernels = [{"module": "", "direction": "", "kernel": name, "grid": grid} for name, grid, *_ in launches if grid]
    found.facts |= {
        "capability": "9.0", "driver": "580.159.04", "date": "2026-11-27", "model": source, "kernels": kernels,
        "versions": {"torch": "2.11.0+cu130", "cuda": "13.0", "cublas": "13.1.0.3"},
    }  # fmt: skip
    for place, entry in found.entries.items():
        if place.part not in ("updated", "loss") and math.prod(entry.shape) > 320:
            found.entries[place] = entry._replace(stored=False)
            del found.codes[place]
    found.write(TWIN)


if __name__ == "__main__":
    write_sample(Path(sys.argv[1]))
    write_twin(Path(sys.argv[1]))
