"""The kernels that a training step launches on a GPU, by module, from a trace of torch.profiler."""

from __future__ import annotations

import bisect
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from floatsim.torch.modules import paths

__all__ = ["annotated", "kernels_by_module", "profiled"]

_PREFIX = "floatsim: "
"""The start of the names of annotations in a trace. The path of a module follows."""

_LAUNCHES = ("cuda_runtime", "cuda_driver")
_RUNS = ("kernel", "gpu_memset")


@contextmanager
def annotated(model: torch.nn.Module) -> Iterator[None]:
    """Annotate the forward passes of modules in a block, for torch.profiler.

    >>> model = torch.nn.Linear(2, 1)
    >>> with annotated(model):
    ...     _ = model(torch.ones(1, 2))
    """
    names = {id(module): name for name, module in paths(model)}
    spans: list[Any] = []

    def enter(module: torch.nn.Module, _: Any) -> None:
        if id(module) in names:
            span = torch.profiler.record_function(_PREFIX + names[id(module)])
            span.__enter__()
            spans.append(span)

    def leave(module: torch.nn.Module, *_: Any) -> None:
        if id(module) in names and spans:
            spans.pop().__exit__(None, None, None)

    handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def profiled(model: torch.nn.Module, step: Callable[[], Any]) -> list[dict[str, Any]]:
    """Return the kernels of a training step on a GPU.

    Parameters
    ----------
    model : torch.nn.Module
        The model on the GPU.
    step : callable
        Runs the step.

    Returns
    -------
    list of dict
        As `kernels_by_module` returns them.

    Examples
    --------
    >>> profiled(torch.nn.Linear(2, 1), lambda: None)  # without a GPU there is no kernel
    []
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with annotated(model), torch.profiler.profile(activities=activities) as profile:
        step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        return kernels_by_module(json.loads(path.read_text(encoding="utf-8")))


class _Spans:
    """Events of a trace with a beginning and an end, by thread."""

    def __init__(self, events: list[Mapping[str, Any]]) -> None:
        self._by_thread: dict[Any, tuple[list[float], list[Mapping[str, Any]]]] = {}
        for event in sorted(events, key=lambda each: each["ts"]):
            starts, found = self._by_thread.setdefault(event.get("tid"), ([], []))
            starts.append(event["ts"])
            found.append(event)

    def around(self, thread: Any, time: float) -> Iterator[Mapping[str, Any]]:
        """Yield the events that contain a time, the innermost first."""
        starts, found = self._by_thread.get(thread, ([], []))
        for n in range(bisect.bisect_right(starts, time) - 1, -1, -1):
            if time <= found[n]["ts"] + found[n].get("dur", 0):
                yield found[n]


def kernels_by_module(trace: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the kernels of a trace in the order of their start, each with the module that launched it.

    A kernel belongs to the module whose annotation contains its launch. A kernel of the backward pass belongs to the
    module whose forward operation has the sequence number of the node of autograd that launched it.

    Parameters
    ----------
    trace : mapping
        The content of the JSON file that `export_chrome_trace` writes.

    Returns
    -------
    list of dict
        "module" ("" outside of modules), "direction" ("forward", "backward" or ""), "kernel" (its name) and "grid"
        (three numbers, or None).

    Examples
    --------
    >>> kernels_by_module({"traceEvents": [
    ...     {"ph": "X", "cat": "user_annotation", "name": "floatsim: 0", "ts": 1, "dur": 5, "tid": 7},
    ...     {"ph": "X", "cat": "cuda_runtime", "ts": 2, "dur": 1, "tid": 7, "args": {"correlation": 3}},
    ...     {"ph": "X", "cat": "kernel", "name": "k", "ts": 9, "args": {"correlation": 3, "grid": [2, 1, 1]}}]})
    [{'module': '0', 'direction': 'forward', 'kernel': 'k', 'grid': [2, 1, 1]}]
    """
    events = [each for each in trace["traceEvents"] if each.get("ph") == "X"]
    marks = _Spans([
        each for each in events if each.get("cat") == "user_annotation" and each["name"].startswith(_PREFIX)
    ])  # fmt: skip
    operations = [
        each for each in events if each.get("cat") == "cpu_op" and "Sequence number" in each.get("args", {})
    ]  # fmt: skip
    nodes = _Spans([each for each in operations if each["args"].get("Fwd thread id")])
    modules: dict[int, str] = {}
    for each in operations:
        if not each["args"].get("Fwd thread id"):
            for mark in marks.around(each.get("tid"), each["ts"]):
                modules.setdefault(each["args"]["Sequence number"], mark["name"].removeprefix(_PREFIX))
                break
    launches = {
        each["args"]["correlation"]: each
        for each in events
        if each.get("cat") in _LAUNCHES and "correlation" in each.get("args", {})
    }
    found = []
    for each in sorted((each for each in events if each.get("cat") in _RUNS), key=lambda each: each["ts"]):
        args = each.get("args", {})
        launch = launches.get(args.get("correlation"), each)
        module, direction = _owner(marks, nodes, modules, launch.get("tid"), launch["ts"])
        grid = [int(n) for n in args.get("grid") or ()] or None
        found.append({"module": module, "direction": direction, "kernel": each["name"], "grid": grid})
    return found


def _owner(marks: _Spans, nodes: _Spans, modules: dict[int, str], thread: Any, time: float) -> tuple[str, str]:
    """Return the module and the direction of a launch."""
    for mark in marks.around(thread, time):
        return mark["name"].removeprefix(_PREFIX), "forward"
    for node in nodes.around(thread, time):
        return modules.get(node["args"]["Sequence number"], ""), "backward"
    return "", ""
