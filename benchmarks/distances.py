"""`python -m benchmarks.distances`: `ulp_stats` of large arrays against `np.copyto` of one of them, in shared rounds.

The target is 30 % of the copy's speed. Both arrays are read, where a copy reads and writes one. Arrays of every format
have the same size in bytes, far larger than caches: a copy of less than the last cache would run at the cache's speed.
`near` elements differ in the last bit, `far` ones are independent random numbers.
"""

from __future__ import annotations

import argparse
import functools
import json
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import floatsim as fs

from .timing import interleave

FORMATS = ("fp32", "fp16", "bf16", "e4m3")
SHARES = (0.01, 0.1, 0.5, 1.0)
TARGET = 0.3


def operands(name: str, kind: str, share: float, nbytes: int) -> tuple[fs.FloatArray, fs.FloatArray]:
    """Return normal random numbers, and a copy of which a share differs; each has `nbytes` bytes."""
    rng, size = np.random.default_rng(0), nbytes // fs.as_format(name).code_dtype.itemsize
    a, other = (fs.encode(rng.standard_normal(size), name) for _ in range(2))
    changed = a ^ a.dtype.type(1) if kind == "near" else other
    return fs.from_codes(a, name), fs.from_codes(np.where(rng.random(size) < share, changed, a), name)


def measure(nbytes: int, rounds: int, threads: int) -> list[dict[str, Any]]:
    """Return the medians and the fastest times of `ulp_stats` and of the copy, in ns for each element."""
    fs.set_num_threads(threads)
    rows = []
    for name in FORMATS:
        for kind in ("near", "far"):
            for share in SHARES:
                a, b = operands(name, kind, share, nbytes)
                copy = functools.partial(np.copyto, np.empty_like(a.codes), a.codes)
                stats = functools.partial(fs.testing.ulp_stats, a, b)
                ours, limit = interleave([(stats, a.size), (copy, a.size)], rounds, 2.0)
                rows.append(
                    {
                        "format": name, "different": share, "kind": kind, "threads": threads, "ns": ours.median,
                        "fastest_ns": ours.fastest, "copy_ns": limit.median, "fastest_copy_ns": limit.fastest,
                        "share_of_copy": limit.fastest / ours.fastest,
                    }
                )  # fmt: skip
    fs.set_num_threads(None)
    return rows


def main() -> None:
    """Print a table or JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distances", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small arrays: tests the harness, not the speed")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    rows = measure(*((1 << 14, 2) if arguments.quick else (1 << 26, 15)), arguments.threads)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    table = Table("format", "kind", "different", "ns", "copy, ns", "share of copy", f"at least {TARGET:.0%}", box=None)
    for row in rows:
        share = row["share_of_copy"]
        table.add_row(
            row["format"], row["kind"], f"{row['different']:.0%}", f"{row['fastest_ns']:.3f}",
            f"{row['fastest_copy_ns']:.3f}", f"{share:.0%}", "yes" if share >= TARGET else "no",
        )  # fmt: skip
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
