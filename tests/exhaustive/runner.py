"""Runs jobs by `fs.sweep`, which keeps in .exhaustive/ the chunks that are done for these sources of the package."""

from __future__ import annotations

import fnmatch
import hashlib
import multiprocessing
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import floatsim as fs

from .jobs import EXAMPLES, jobs

ROOT = Path(__file__).parents[2]
STATE = ROOT / ".exhaustive"
_CHUNKS_OF_A_SWEEP = 256


@dataclass
class Result:
    """How far a job has come; `seconds` is the time of all its chunks, one after the other."""

    name: str
    chunks: int
    done: int = 0
    cases: int = 0
    mismatches: int = 0
    seconds: float = 0.0
    examples: list[str] = field(default_factory=list)


CARRIERS_OF_BITS = (
    "kernels",
    "floatsim/formats",
    "floatsim/tensorcore",
    "floatsim/accumulation",
    "floatsim/reference",
    "floatsim/emulator",
    "tests/exhaustive",
    "floatsim/arrays/call/options.py",
    "floatsim/arrays/call/random_stream.py",
    "floatsim/arrays/array/conversion.py",
    "floatsim/arrays/elementwise/arithmetic.py",
    "floatsim/arrays/elementwise/approximations.py",
    "floatsim/arrays/elementwise/comparison.py",
    "floatsim/arrays/array/operands.py",
    "floatsim/arrays/sums/products.py",
    "floatsim/arrays/sums/accumulation_call.py",
    "tests/tensorcore/arrays.py",
    "tests/tensorcore/cases.py",
    "floatsim/arrays/sums/reductions.py",
    "floatsim/arrays/events/record.py",
    "tests/oracles/sums.py",
    "floatsim/hardware/cpu",
    "floatsim/testing/vectors/dot_inputs.py",
)
"""The folders and files that results depend on; plots, commands and logs may change without a new run."""


def source_hash() -> str:
    """Of the kernels, of the modules that call them and of these tests: what a result stands for."""
    digest = hashlib.blake2b(digest_size=8)
    places = [ROOT / name for name in CARRIERS_OF_BITS]
    paths = [path for place in places for path in ([place] if place.is_file() else place.rglob("*"))]
    for path in sorted(path for path in paths if path.suffix in (".py", ".json")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def select(patterns: Iterable[str]) -> list[str]:
    """The names that match any of the patterns, in the order of the jobs."""
    wanted = list(patterns)
    return [name for name in jobs() if any(fnmatch.fnmatch(name, pattern) for pattern in wanted)]


def evaluate(job: str, chunk: int) -> dict[str, Any]:
    """Run one chunk of a job."""
    start = time.monotonic()
    cases, mismatches, examples = jobs()[job].run(chunk)
    seconds = round(time.monotonic() - start, 3)
    return {"cases": cases, "mismatches": mismatches, "examples": examples[:EXAMPLES], "seconds": seconds}


def run(
    names: list[str], processes: int = 2, fresh: bool = False, every: int = 1, minutes: float | None = None,
    scheduler: str | None = None,
) -> list[Result]:  # fmt: skip
    """Run the jobs' chunks that are not done yet, on processes of this machine or on a dask scheduler's workers.

    Each finished chunk is a line of a file of the job. Without a time limit a job is one sweep, with one it is a few.
    """
    folder = STATE / source_hash()
    folder.mkdir(parents=True, exist_ok=True)
    end = None if minutes is None else time.monotonic() + 60 * minutes
    results = []
    with _executor(processes, scheduler) as executor:
        for name in names:
            file = folder / f"{name}.jsonl"
            if fresh:
                file.unlink(missing_ok=True)
            chunks = range(0, jobs()[name].chunks, every)
            step = len(chunks) if end is None else _CHUNKS_OF_A_SWEEP
            rows: list[dict[str, Any]] = []
            for first in range(0, len(chunks), step):
                if end is not None and time.monotonic() > end:
                    break
                grid = {"job": [name], "chunk": list(chunks[first : first + step])}
                print(f"{name}: chunks {first + 1} to {first + len(grid['chunk'])} of {len(chunks)}", file=sys.stderr)
                rows += fs.sweep(evaluate, grid, executor=executor, file=file, retry_errors=True)
            if rows:
                results.append(_summed(name, rows))
    return results


def _executor(processes: int, scheduler: str | None) -> Any:
    if scheduler is None:
        return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))
    from distributed import Client

    return Client(scheduler)


def _summed(name: str, rows: list[dict[str, Any]]) -> Result:
    """Return the sums of the chunks of a job. A chunk that raised an error counts as a mismatch, not as done."""
    result = Result(name, jobs()[name].chunks)
    for row in rows:
        if row["error"] is not None:
            result.mismatches += 1
            result.examples.append(f"chunk {row['chunk']} raised {row['error']}")
            continue
        result.done += 1
        result.cases += row["cases"]
        result.mismatches += row["mismatches"]
        result.seconds += row["seconds"]
        result.examples += row["examples"]
    result.examples = result.examples[:EXAMPLES]
    return result


def report(results: list[Result]) -> str:
    """A table, and the first examples of whatever is wrong."""
    width = max((len(r.name) for r in results), default=3)
    lines = [f"{'job':<{width}}  {'part':>6}  {'cases':>14}  {'mismatches':>10}  {'seconds':>8}"]
    for r in results:
        part = f"{100 * r.done / r.chunks:.0f} %"
        lines.append(f"{r.name:<{width}}  {part:>6}  {r.cases:>14,}  {r.mismatches:>10,}  {r.seconds:>8.1f}")
    whole = sum(r.cases for r in results), sum(r.mismatches for r in results), sum(r.seconds for r in results)
    lines.append(f"{'all':<{width}}  {'':>6}  {whole[0]:>14,}  {whole[1]:>10,}  {whole[2]:>8.1f}")
    for r in results:
        lines += [line if "\n" in line else f"  {line}" for line in r.examples]
    return "\n".join(lines)
