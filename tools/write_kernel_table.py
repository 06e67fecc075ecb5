"""Write `data/gpu-kernels/h200.json.gz`: the kernels of an H200's recorded products, by function, dtype and shape.

    python tools/write_kernel_table.py FOLDER

FOLDER has the recordings, which the variable FLOATSIM_H200 of the tests names, too. Only names and grids are kept, for
calls whose recorded result is deterministic. The same recordings give the same table.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "data" / "gpu-kernels" / "h200.json.gz"
TORCH, CUPY = "2.11.0", "14.2.0"
DTYPES = {
    "fp16": "float16", "bf16": "bfloat16", "tf32": "float32", "fp32": "float32", "fp64": "float64",
    "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
}  # fmt: skip
OPERATIONS = {
    "mm": ("torch.matmul", 0), "linear": ("torch.nn.functional.linear", 0), "addmm-full": ("torch.addmm", 0),
    "relu": ("torch._addmm_activation", 0), "bmm1": ("torch.bmm", 1), "bmm4": ("torch.bmm", 4),
    "bmm64": ("torch.bmm", 64), "baddbmm": ("torch.baddbmm", 4),
}  # fmt: skip
"""Recorded calls of cap2.py: the function and the number of matrices of a batch, 0 for none."""
RUNS: dict[str, tuple[int, list[tuple[int, int]]]] = {
    "mlp": (32, [(64, 128), (128, 10)]), "relu": (64, [(128, 256), (256, 256), (256, 32)]),
    "deep": (128, [(96, 256), (256, 256), (256, 64)]), "odd": (33, [(50, 100), (100, 7)]),
    "norm3": (96, [(64, 64), (64, 16)]),
}  # fmt: skip
"""The networks of cap4.py's training runs: the rows of a batch, and the inputs and outputs of the linear layers."""


class Seen(NamedTuple):
    """A recorded call."""

    function: str
    version: str
    dtype: str
    result: str
    settings: tuple[str, ...]
    layout: str
    shape: tuple[int, ...]
    kernels: list[Any]


def _calls(kernels: list[Any]) -> list[list[Any]]:
    """Return the kernels of each product of a step: those that multiply, with the kernels that belong to them."""
    calls: list[list[Any]] = []
    before: list[Any] = []
    for name, grid, *_ in kernels:
        if re.search("Memset|scal_kernel", name):
            before.append([name, grid])
        elif re.search("splitKreduce|cublasLt::epilogue", name):
            calls[-1].append([name, grid])
        elif re.search("nvjet|cutlass|gemm|gemv", name):
            calls.append([*before, [name, grid]])
            before = []
    return calls


def _layers(
    fmt: str, rows: int, layers: list[tuple[int, int]], kernels: list[Any], by_input: bool
) -> Iterator[Seen]:  # fmt: skip
    """Yield the products of linear layers: forward, then backward from the last layer, dx before dw.

    `by_input`: whether the gradient by the input of the first layer was computed.
    """
    dtype, settings = DTYPES[fmt], ("allow_tf32",) * (fmt == "tf32")
    products = [("torch.nn.functional.linear", "nt", (rows, n, k)) for k, n in layers]
    for place, (k, n) in reversed(list(enumerate(layers))):
        products += [("torch.matmul", "nn", (rows, k, n))] * (by_input or place > 0)
        products.append(("torch.matmul", "tn", (n, k, rows)))
    calls = _calls(kernels)
    if len(calls) == len(products):  # fewer where the profiler lost a kernel
        for (function, layout, shape), call in zip(products, calls, strict=True):
            yield Seen(function, TORCH, dtype, dtype, settings, layout, shape, call)


def _seen(folder: Path) -> Iterator[Seen]:
    def notes(name: str) -> dict[str, Any]:
        with np.load(folder / f"{name}.npz") as arrays:
            found: dict[str, Any] = json.loads(str(arrays["meta"]))
            return found

    def sizes(shape: str) -> tuple[int, ...]:
        m, k, n = map(int, shape.split("x"))
        return m, n, k

    def torch_settings(fmt: str) -> tuple[str, ...]:
        return ("allow_tf32",) if fmt == "tf32" else ()

    for name in ("kernels/sweep", "training/holdout"):
        for key, note in notes(name).items():
            if isinstance(note, dict) and note.get("kernels"):
                fmt, shape, layout = key.split("|")
                dtype = DTYPES[fmt]
                yield Seen(
                    "torch.matmul", TORCH, dtype, dtype, torch_settings(fmt), layout, sizes(shape), note["kernels"]
                )
    for key, kernels in notes("kernels/epilogues")["kernels"].items():
        operation, fmt, shape, *library = key.split("|")
        if operation in OPERATIONS:
            function, batch = OPERATIONS[operation]
            settings = torch_settings(fmt) + ("cublaslt",) * ("cublaslt" in library)
            layout = "nt" if operation in ("linear", "relu") else "nn"
            dtype = DTYPES[fmt]
            whole = ((batch,) if batch else ()) + sizes(shape)
            yield Seen(function, TORCH, dtype, dtype, settings, layout, whole, kernels)
    for key, note in notes("training/linears").items():
        if isinstance(note, dict):
            fmt, shape = key.split("|")
            rows, outputs, inputs = sizes(shape)
            yield from _layers(fmt, rows, [(inputs, outputs)], note["kernels"], True)
    for key, kernels in notes("training/train")["kernels"].items():
        name, fmt, *_ = key.split("|")
        if name in RUNS:
            yield from _layers(fmt, *RUNS[name], kernels, False)
    for key, kernels in notes("kernels/fp16acc")["kernels"].items():
        yield Seen("torch.matmul", TORCH, "float16", "float16", ("allow_fp16_accumulation",), "nn", sizes(key), kernels)
    for key, kernels in notes("kernels/cupy_mm")["kernels"].items():
        fmt, shape = key.split("|")
        yield Seen("cupy.matmul", CUPY, DTYPES[fmt], DTYPES[fmt], (), "nn", sizes(shape), kernels)
    for key, kernels in notes("kernels/scaled2")["kernels"].items():
        fmt, *rest = key.split("|")
        if fmt in ("e4m3", "e5m2"):
            _, shape, fast = rest
            settings = ("use_fast_accum",) * (fast == "fast=True")
            yield Seen("torch._scaled_mm", TORCH, DTYPES[fmt], "float32", settings, "nt", sizes(shape), kernels)


def table(folder: Path) -> dict[str, Any]:
    """Return the content of the table; raise if two recordings of a call differ."""
    names: dict[str, int] = {}
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for seen in _seen(folder):
        launches = [
            [names.setdefault(name, len(names)), *(grid or ())]
            for name, grid, *_ in seen.kernels
            if not (seen.function in ("torch.bmm", "torch.baddbmm") and "elementwise_kernel" in name)  # `repeat`
        ]
        shapes = groups.setdefault(seen[:6], {})
        shape = ",".join(map(str, seen.shape))
        if shapes.setdefault(shape, launches) != launches:
            raise ValueError(f"{seen}: another recording has other kernels")
    fields = ("function", "version", "dtype", "result", "settings", "layout")
    calls = [
        {**dict(zip(fields, key, strict=True)), "workspace": "default", "shapes": dict(sorted(shapes.items()))}
        for key, shapes in sorted(groups.items())
    ]
    return {"device": "NVIDIA H200", "date": "2026-11-27", "names": list(names), "calls": calls}


def content(folder: Path) -> bytes:
    """Return the compressed table."""
    return gzip.compress(json.dumps(table(folder), separators=(",", ":")).encode(), 9, mtime=0)


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_bytes(content(Path(sys.argv[1])))
    print(f"{TARGET.relative_to(ROOT)}: {TARGET.stat().st_size} bytes")
