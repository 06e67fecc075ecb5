"""`record_twin`: run the training steps of a definition, and write all their tensors to a file."""

from __future__ import annotations

import datetime
import hashlib
import platform
import subprocess
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import floatsim
from floatsim.formats._validation import as_index, name_hint, with_keyword_hints
from floatsim.torch.emulation import emulate
from floatsim.torch.twin.definition import Definition
from floatsim.torch.twin.kernels import profiled
from floatsim.torch.twin.recording import DESCRIBED, Recording
from floatsim.torch.twin.stepping import AUTOCAST, Stepper, settings

__all__ = ["facts_of_optimizer", "policy_of", "record_twin"]

_LIBRARIES = ("nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cublas-cu13", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13")
"""The packages whose versions are recorded beside PyTorch's, where they are installed."""

_LARGEST = 1 << 22


@with_keyword_hints
def record_twin(
    definition: Any, path: str | Path, *, device: str | None = None, steps: int = 3, autocast: str | None = None,
    largest: int = _LARGEST,
) -> Recording:  # fmt: skip
    """Record a training run: every module's output and gradient, the weights of every step, and the kernels of the GPU.

    Parameters
    ----------
    definition : path, or object
        A file MODEL.py, or an object, with the functions `build()`, `batch(step)`, `loss(output, batch)` and
        `optimizer(parameters)`. `forward(model, batch)` and `scaler(device)` are optional (`ft.Definition`).
    path : path
        The file to write.
    device : str, optional
        "cuda", this machine's GPU; "cpu", PyTorch on this CPU; or "h200", the emulation of an H200, which writes down
        what the GPU will compute. Default: "cuda".
    steps : int
        The number of training steps.
    autocast : str, optional
        "bf16" or "fp16": run the forward passes and the losses under autocast, with weights in FP32.
    largest : int
        Tensors with more elements are kept as hashes only.

    Returns
    -------
    Recording
        What was written.

    Raises
    ------
    FileNotFoundError
        If there is no file MODEL.py.
    ValueError
        For other devices, numbers of steps and names of autocast, and if a function of the definition is missing or
        fails.
    RuntimeError
        For "cuda" without a GPU that PyTorch can use.

    Notes
    -----
    `build` and `batch` run on the CPU, so that random weights and batches are those of the CPU's generator. The kernels
    are those of one more step after the recorded ones, under torch.profiler.

    Examples
    --------
    >>> import floatsim.torch as ft, tempfile, torch
    >>> from types import SimpleNamespace
    >>> run = SimpleNamespace(
    ...     build=lambda: torch.nn.Linear(2, 1), batch=lambda step: (torch.ones(1, 2),),
    ...     loss=lambda output, batch: output.sum(), optimizer=lambda weights: torch.optim.SGD(weights, lr=0.5),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     recording = ft.record_twin(run, f"{folder}/run.npz", device="cpu", steps=1)
    >>> [str(place) for place in recording.entries][2:6]
    ['step0/input/0', 'step0/forward/Linear', 'step0/loss', 'step0/gradient/Linear']
    """
    functions = Definition.of(definition)
    device = "cuda" if device is None else device
    steps, largest = as_index(steps, "steps", 1, 1 << 31), as_index(largest, "largest", 0, 1 << 62)
    if autocast is not None and autocast not in AUTOCAST:
        raise ValueError(f"autocast={autocast!r} is not supported; {name_hint(autocast, AUTOCAST)}")
    if device not in ("cuda", "cpu", *DESCRIBED):
        raise ValueError(f"device={device!r} is not supported; {name_hint(device, ('cuda', 'cpu', *DESCRIBED))}")
    if device == "cpu" and autocast is not None:
        raise ValueError("autocast is recorded on device='cuda', or under the emulation of a GPU such as 'h200'")
    if device == "cuda" and not torch.cuda.is_available():
        why = "it was built without CUDA" if torch.version.cuda is None else "it finds no GPU"
        raise RuntimeError(
            f"device='cuda' needs a GPU, and PyTorch {torch.__version__} has none: {why}; device='h200' records the "
            "emulation of an H200, and device='cpu' PyTorch on this CPU"
        )
    if not Path(path).parent.is_dir():
        raise ValueError(f"path={str(path)!r}: there is no folder {Path(path).parent}")
    recording = Recording()
    stepper = Stepper(
        functions, lambda place, x: recording.add(place, x, largest), "cuda" if device == "cuda" else "cpu", autocast
    )
    recording.facts = _facts(functions, stepper, device, steps, autocast)
    emulation: Any = nullcontext()
    if device in DESCRIBED:
        emulation = emulate(policy_of(device, autocast), stepper.model, count=0)
    stepper.initial()
    with emulation as run:
        for step in range(steps):
            stepper.run(step)
    if device == "cuda":
        recording.facts["kernels"] = profiled(
            stepper.model, lambda: stepper.run(steps, stepper.batch(0), observed=False)
        )
    elif run is not None:
        recording.facts["unverified"] = [str(each) for each in run.unverified]
    recording.write(path)
    return recording


def policy_of(device: str, autocast: str | None) -> str:
    """Return the name of the policy of a device.

    >>> policy_of("h200", "bf16")
    'h200-autocast-bf16'
    """
    return device if autocast is None else f"{device}-autocast-{autocast}"


def facts_of_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the class and the options of an optimizer, as JSON has them.

    >>> weight = torch.nn.Parameter(torch.ones(1))
    >>> facts_of_optimizer(torch.optim.SGD([weight], lr=0.5))["groups"][0]["lr"]
    0.5
    """
    groups = [
        {key: _plain(value) for key, value in group.items() if key != "params"} for group in optimizer.param_groups
    ]
    return {"class": type(optimizer).__name__, "groups": groups}


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value.item()
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def _facts(functions: Definition, stepper: Stepper, device: str, steps: int, autocast: str | None) -> dict[str, Any]:
    """Return the description of a run."""
    versions: dict[str, str | None] = {
        "floatsim": floatsim.__version__, "torch": torch.__version__, "cuda": torch.version.cuda,
        "python": platform.python_version(),
    }  # fmt: skip
    for name in _LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        **_device(device), "versions": versions, "settings": settings(), "steps": steps, "autocast": autocast,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "optimizer": facts_of_optimizer(stepper.optimizer), "scaler": functions.scaler is not None,
        "model": {"name": functions.name, "source": functions.source,
                  "sha256": hashlib.sha256(functions.source.encode("utf-8")).hexdigest()},
        "kernels": [],
    }  # fmt: skip


def _device(device: str) -> dict[str, Any]:
    """Return the device of a run: its name of `DESCRIBED`, and what the driver reports."""
    if device != "cuda":
        name = DESCRIBED[device]["name"] if device in DESCRIBED else platform.processor() or platform.machine()
        return {"device": device, "device_name": name, "emulated": device in DESCRIBED}
    name = torch.cuda.get_device_name()
    known = next((key for key, row in DESCRIBED.items() if row["name"] == name), name)
    major, minor = torch.cuda.get_device_capability()
    return {
        "device": known, "device_name": name, "emulated": False, "capability": f"{major}.{minor}", "driver": _driver(),
        "cudnn": torch.backends.cudnn.version(),
        "processors": torch.cuda.get_device_properties(0).multi_processor_count,
    }  # fmt: skip


def _driver() -> str | None:
    """Return the version of the driver, which nvidia-smi reports, or None."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip().splitlines()[0] if found.stdout.strip() else None
