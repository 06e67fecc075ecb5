"""`python -m benchmarks.operators`: elements per second of operators, one thread, the worst of several runs."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import floatsim as fs
from floatsim import operators as ops


class Row(NamedTuple):
    """A call, its number of elements, and the target in elements per second or in seconds."""

    name: str
    call: Callable[[], Any]
    elements: int
    rate: float | None = None
    seconds: float | None = None


def rows(size: int) -> list[Row]:
    """Return the calls. `size` is the number of rows of 1024 features, and of keys of attention."""
    rng = np.random.default_rng(0)
    x, w = fs.array(rng.standard_normal((8 * size, 1024)), "fp16"), fs.array(np.ones(1024), "fp16")
    found = [
        Row(f"{name}, {recipe}", call, x.size, target)
        for recipe, target in (("all-fp16", 50e6), ("all-bf16", None), ("fp32-inside", None))
        for name, call in (
            ("softmax", lambda r=recipe: ops.softmax(x, recipe=r)),
            ("log_softmax", lambda r=recipe: ops.log_softmax(x, recipe=r)),
            ("layer_norm", lambda r=recipe: ops.layer_norm(x, w, w, recipe=r)),
            ("rms_norm", lambda r=recipe: ops.rms_norm(x, w, recipe=r)),
            ("gelu", lambda r=recipe: ops.gelu(x, recipe=r)),
        )
    ]
    q, k, v = (fs.array(rng.standard_normal((8, size, 64)), "fp16") for _ in range(3))
    found += [
        Row(f"attention 8 x {size} x 64, {r}", lambda r=r: ops.attention(q, k, v, recipe=r), q.size, seconds=0.3)
        for r in ("all-fp16", "fp32-inside", "flash-attention-2")
    ]
    return found


def measure(size: int, rounds: int) -> list[dict[str, Any]]:
    """Return the worst and best time of each call, in rounds over all calls."""
    fs.set_num_threads(1)
    chosen = rows(size)
    times: list[list[float]] = [[] for _ in chosen]
    for number in range(rounds + 1):
        for row, found in zip(chosen, times, strict=True):
            start = time.perf_counter()
            row.call()
            if number:  # the first round compiles, and builds tables
                found.append(time.perf_counter() - start)
    results = []
    for row, found in zip(chosen, times, strict=True):
        limit = row.seconds or (row.elements / row.rate if row.rate else None)
        results.append(
            {
                "call": row.name, "worst_seconds": max(found), "best_seconds": min(found), "target_seconds": limit,
                "worst_elements_per_second": row.elements / max(found),
            }
        )  # fmt: skip
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small arrays: tests the harness, not the speed")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    results = measure(16, 1) if arguments.quick else measure(512, 7)
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    table = Table("call", "worst, M elements/s", "worst, s", "target, s", box=None)
    for row in results:
        limit = row["target_seconds"]
        table.add_row(
            row["call"], f"{row['worst_elements_per_second'] / 1e6:.0f}", f"{row['worst_seconds']:.3f}",
            "" if limit is None else f"{limit:.3f}",
        )  # fmt: skip
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
