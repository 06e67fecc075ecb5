"""Products of library kernels that an H200 recorded: the inputs, made again by NumPy, and the predicted results.

`FLOATSIM_H200` names the folder of the recordings, with sweep.npz and others in `kernels/` and `training/`.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import floatsim as fs

FOLDER = os.environ.get("FLOATSIM_H200")
needs_recordings = pytest.mark.skipif(FOLDER is None, reason="FLOATSIM_H200 names the folder of an H200's recordings")

DTYPES = {
    "fp16": "float16", "bf16": "bfloat16", "tf32": "float32", "fp32": "float32", "fp64": "float64",
    "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
}  # fmt: skip
ROWS, COLUMNS = 16, 32
"""The part of each result that is recorded."""


def recording(name: str) -> tuple[Any, dict[str, Any]]:
    """The arrays of a file of recordings, and its notes."""
    assert FOLDER is not None
    arrays = np.load(Path(FOLDER) / f"{name}.npz")
    return arrays, json.loads(str(arrays["meta"]))


@functools.lru_cache(maxsize=2)
def normal(m: int, k: int, n: int, seed: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, m, k, n])
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    if kind == "cancel" and k > 1:
        half = k // 2
        order = rng.permutation(half)
        a[:, k - half :] = -a[:, :half][:, order]
        b[k - half :] = b[:half][order]
    if kind == "wide":
        a *= np.exp2(rng.integers(-6, 7, a.shape)).astype(np.float32)
        b *= np.exp2(rng.integers(-6, 7, b.shape)).astype(np.float32)
    return a, b


def operands(m: int, k: int, n: int, a: str, b: str | None = None, kind: str = "cancel", seed: int = 0) -> Any:
    """The whole operands, rounded to their formats; the exact results of "cancel" are zero."""
    x, y = normal(m, k, n, seed, kind)
    fmt = {"tf32": "fp32"}
    return fs.array(x, fmt.get(a, a)), fs.array(y, fmt.get(b or a, b or a))


def codes_of(result: Any) -> np.ndarray:
    return result.codes if isinstance(result, fs.FloatArray) else np.asarray(result).view(f"u{result.dtype.itemsize}")


class Call(NamedTuple):
    """A recorded product: its key, format, sizes, kernels, and result."""

    key: str
    fmt: str
    m: int
    k: int
    n: int
    kernels: list[Any]

    @property
    def names(self) -> list[str]:
        return [name for name, *_ in self.kernels]

    @property
    def grid(self) -> list[int] | None:
        """The grid of the kernel that multiplies: the first one that copies nothing and adds no parts."""
        others = "splitKreduce", "elementwise_kernel", "Mem"
        launched = [(name, grid) for name, grid, *_ in self.kernels if grid and not any(x in name for x in others)]
        return launched[0][1] if launched else None


def described(call: Call, function: str = "torch.matmul") -> fs.accumulation.Accumulation:
    """The description by the rules; NotDescribedError where there is none."""
    (region,) = fs.library_sum(
        function, DTYPES[call.fmt], (call.m, call.n, call.k), device="h200", kernel=call.names, grid=call.grid
    )
    return region.accumulate


def result_format(fmt: str) -> str:
    return {"tf32": "fp32"}.get(fmt, fmt)


def predicted(
    call: Call, seed: int = 0, rows: slice = slice(0, ROWS), columns: slice = slice(0, COLUMNS)
) -> np.ndarray:
    accumulate = described(call)
    a, b = operands(call.m, call.k, call.n, call.fmt, seed=seed)
    return codes_of(fs.matmul(a[rows], b[:, columns], accumulate=accumulate, format=result_format(call.fmt)))


def calls(meta: dict[str, Any]) -> Iterator[Call]:
    """The recorded products of a file whose keys are format|MxKxN|layout."""
    for key, note in meta.items():
        if isinstance(note, dict) and note.get("kernels"):
            fmt, shape, *_ = key.split("|")
            m, k, n = map(int, shape.split("x"))
            yield Call(key, fmt, m, k, n, note["kernels"])


def outcome(call: Call, arrays: Any, seed: int = 0, ends: bool = False) -> str:
    """ "equal", "wrong" or "refused"."""
    try:
        found = predicted(call, seed)
    except fs.NotDescribedError:
        return "refused"
    same = np.array_equal(found, arrays[call.key])
    if ends and same:
        last = arrays[f"end|{call.key}"]
        rows, columns = slice(call.m - last.shape[0], call.m), slice(call.n - last.shape[1], call.n)
        same = np.array_equal(predicted(call, seed, rows, columns), last)
    return "equal" if same else "wrong"
