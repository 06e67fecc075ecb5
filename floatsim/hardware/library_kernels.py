"""The kernels of cuBLAS, cuDNN and Triton: what their names and arguments say about their sums; recording them."""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from floatsim._extras import install_command
from floatsim.accumulation.gpu_libraries import describe_kernel
from floatsim.accumulation.recorded_kernels import Launches, recorded_kernels
from floatsim.accumulation.triton_dots import triton_dot
from floatsim.hardware.compile.cupy_runtime import UnavailableError

__all__ = ["Launches", "describe_kernel", "kernels", "launches_of", "recorded_kernels", "triton_dot"]


def kernels(function: Callable[..., Any], *tensors: Any) -> Launches:
    """Return the kernels that a function launches on the GPU, with their grids, recorded by torch.profiler.

    The function is called twice: the first call loads kernels and allocates workspaces, the second one is recorded.

    Parameters
    ----------
    function : callable
        A function of tensors, such as `torch.matmul`.
    *tensors : torch.Tensor
        Its arguments. Tensors must be on the GPU; other arguments are passed on as they are.

    Returns
    -------
    Launches
        `names` and `grid` are the arguments `kernel` and `grid` of `fs.library_sum`. A function that launches no kernel
        has no launches.

    Raises
    ------
    TypeError
        If `function` cannot be called.
    UnavailableError
        Without PyTorch, without a GPU, or if PyTorch was built without CUDA.
    ValueError
        If a tensor is not on the GPU.

    Examples
    --------
    On a machine with a GPU::

        found = fs.hardware.kernels(torch.matmul, a, b)
        region, = fs.library_sum(
            "torch.matmul", "float16", (64, 64, 300), device="h200", kernel=found.names, grid=found.grid
        )

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.hardware.kernels("torch.matmul")
    Traceback (most recent call last):
        ...
    TypeError: function must be callable, such as torch.matmul, not 'torch.matmul'
    """
    if not callable(function):
        raise TypeError(f"function must be callable, such as torch.matmul, not {function!r}")
    torch = _torch()
    for number, tensor in enumerate(tensors):
        if isinstance(tensor, torch.Tensor) and not tensor.is_cuda:
            raise ValueError(f"tensors[{number}] is on the device {tensor.device}; move it to the GPU: tensor.cuda()")
    function(*tensors)
    torch.cuda.synchronize()
    profiler = torch.profiler
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]) as profile:
        function(*tensors)
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        return launches_of(json.loads(path.read_text(encoding="utf-8")))


def launches_of(trace: Mapping[str, Any]) -> Launches:
    """Return the kernels of a trace of torch.profiler, in the order of their start.

    Parameters
    ----------
    trace : mapping
        The content of the JSON file that `export_chrome_trace` writes.

    Returns
    -------
    Launches
        The kernels and the Memsets of the trace.

    Examples
    --------
    >>> event = {"ph": "X", "cat": "kernel", "name": "nvjet_sm90_hsh", "ts": 7, "args": {"grid": [2, 1, 1]}}
    >>> launches_of({"traceEvents": [event]})
    Launches(launches=(('nvjet_sm90_hsh', (2, 1, 1)),))
    """
    events = [event for event in trace["traceEvents"] if event.get("cat") in ("kernel", "gpu_memset")]
    found = []
    for event in sorted(events, key=lambda event: event["ts"]):
        x, y, z = (*map(int, event.get("args", {}).get("grid") or ()), 0, 0, 0)[:3]
        found.append((event["name"], (x, y, z) if x else None))
    return Launches(tuple(found))


def _torch() -> Any:
    """Return PyTorch with a GPU, or raise an error that names the missing part."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise UnavailableError(
            "fs.hardware.kernels records with torch.profiler, and PyTorch is not installed: " + install_command("torch")
        ) from None
    if not torch.cuda.is_available():
        why = "it was built without CUDA" if torch.version.cuda is None else "it finds no GPU"
        raise UnavailableError(
            f"fs.hardware.kernels needs a GPU, and PyTorch {torch.__version__} has none: {why}. "
            "fs.hardware.recorded_kernels has the kernels of recorded shapes"
        )
    return torch
