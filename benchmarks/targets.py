"""Calls with a target of their own, a rate or a time: one thread, the worst of several interleaved runs."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

import floatsim as fs


class Row(NamedTuple):
    """A call, its number of elements, and the target in elements per second or in seconds."""

    name: str
    call: Callable[[], Any]
    elements: int
    rate: float | None = None
    seconds: float | None = None


def measure(rows: list[Row], rounds: int) -> list[dict[str, Any]]:
    """Return the worst and best time of each call, in rounds over all calls."""
    fs.set_num_threads(1)
    times: list[list[float]] = [[] for _ in rows]
    for number in range(rounds + 1):
        for row, found in zip(rows, times, strict=True):
            start = time.perf_counter()
            row.call()
            if number:  # the first round compiles, and builds tables
                found.append(time.perf_counter() - start)
    results = []
    for row, found in zip(rows, times, strict=True):
        limit = row.seconds or (row.elements / row.rate if row.rate else None)
        results.append(
            {
                "call": row.name, "worst_seconds": max(found), "best_seconds": min(found), "target_seconds": limit,
                "worst_elements_per_second": row.elements / max(found),
            }
        )  # fmt: skip
    return results


def program(name: str, description: str | None, rows: Callable[[int], list[Row]], *, quick: int, full: int) -> None:
    """Run `python -m benchmarks.<name>`: measure the rows of a size, and print a table or JSON."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--quick", action="store_true", help="small arrays: tests the harness, not the speed")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    results = measure(rows(quick), 1) if arguments.quick else measure(rows(full), 7)
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    table = Table("call", "worst, M elements/s", "best, s", "worst, s", "target, s", box=None)
    for row in results:
        limit = row["target_seconds"]
        table.add_row(
            row["call"], f"{row['worst_elements_per_second'] / 1e6:.2f}", f"{row['best_seconds']:.4f}",
            f"{row['worst_seconds']:.4f}", "" if limit is None else f"{limit:.3f}",
        )  # fmt: skip
    Console(highlight=False).print(table)
