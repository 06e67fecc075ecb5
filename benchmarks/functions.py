"""`python -m benchmarks.functions`: mathematical functions beside NumPy's float32 functions, one thread."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import floatsim as fs

from .timing import interleave

Functions = dict[str, Callable[[np.ndarray], np.ndarray] | None]

FAST: Functions = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "rsqrt": None, "reciprocal": np.reciprocal, "sigmoid": None,
}  # fmt: skip
OTHERS: Functions = {
    "expm1": np.expm1, "log1p": np.log1p, "tan": np.tan, "atan": np.arctan, "erf": None, "gelu": None, "silu": None,
    "softplus": None,
}  # fmt: skip
TARGETS = {name: 400e6 if name in ("exp", "log") else 100e6 for name in FAST}
"""Results a second in FP32, written to an array that exists (`out=`), as the target of `encode`: the pages of a new
array cost time. In formats of 16 bits every function has the target TABLE."""
TABLE, FIRST = 1e9, 0.2


def _first(name: str) -> float:
    """Return the seconds of a first call in FP16: its kernels are compiled, and its table is not made."""
    x = fs.from_codes(fs.FP16.codes(), "fp16")
    options: list[dict[str, Any]] = [{}, {"daz": True}]
    getattr(fs, name)(x, **options[0])
    start = time.perf_counter()
    getattr(fs, name)(x, **options[1])
    return time.perf_counter() - start


def measure(size: int, rounds: int) -> list[dict[str, Any]]:
    """Return results per second of each function, and of NumPy's float32 function, on positive normal data."""
    fs.set_num_threads(1)
    x = np.abs(np.random.default_rng(0).standard_normal(size)).astype(np.float32) + np.float32(0.01)
    half = fs.array(x, "fp16")
    out = np.empty_like(x)
    rows = []
    for name, peer in (FAST | OTHERS).items():
        ours = getattr(fs, name)
        runs: list[tuple[Callable[[], Any], int]] = [
            (lambda ours=ours: ours(x), size), (lambda ours=ours: ours(x, out=out), size),
            (lambda ours=ours: ours(half), size),
        ]  # fmt: skip
        if peer is not None:
            runs.append((lambda peer=peer: peer(x, out=out), size))
        fp32, fp32_out, fp16, *of_peer = (1e9 / timing.median for timing in interleave(runs, rounds, 20.0))
        rows.append(
            {
                "function": name, "fp32_per_second": fp32, "fp32_out_per_second": fp32_out,
                "fp32_target": TARGETS.get(name), "fp16_per_second": fp16, "fp16_target": TABLE,
                "numpy_per_second": of_peer[0] if of_peer else None,
                "first_table_seconds": _first(name), "first_table_target": FIRST,
            }
        )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.functions", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small arrays: tests the harness, not the speed")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    rows = measure(1 << 14, 1) if arguments.quick else measure(1 << 22, 9)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    names = ("function", "FP32, new array, M/s", "`out=`, M/s", "target", "NumPy float32, M/s", "FP16, M/s", "target",
             "table, s")  # fmt: skip
    table = Table(*names, box=None)
    for row in rows:
        numbers = [row[key] for key in ("fp32_per_second", "fp32_out_per_second", "fp32_target",
                                        "numpy_per_second", "fp16_per_second", "fp16_target")]  # fmt: skip
        cells = ["" if x is None else f"{x / 1e6:.0f}" for x in numbers]
        table.add_row(row["function"], *cells, f"{row['first_table_seconds']:.3f}")
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
