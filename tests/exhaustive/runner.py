"""Runs jobs in a few processes and remembers in .exhaustive/ which chunks are done for these sources of the package."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import multiprocessing
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tqdm import tqdm

from .jobs import EXAMPLES, Outcome, jobs

ROOT = Path(__file__).parents[2]
STATE = ROOT / ".exhaustive"


@dataclass
class Result:
    """How far a job has come; `seconds` is wall time, the waiting of stopped runs left out."""

    name: str
    chunks: int
    done: list[int] = field(default_factory=list)
    cases: int = 0
    mismatches: int = 0
    seconds: float = 0.0
    examples: list[str] = field(default_factory=list)


CARRIERS_OF_BITS = (
    "kernels", "floatsim/formats", "floatsim/tensorcore", "floatsim/accumulation", "floatsim/reference",
    "floatsim/emulator", "tests/exhaustive", "floatsim/arrays/options.py", "floatsim/arrays/random_stream.py",
    "floatsim/arrays/conversion.py", "floatsim/arrays/arithmetic.py", "floatsim/arrays/comparison.py",
    "floatsim/arrays/operands.py", "floatsim/arrays/linalg.py", "floatsim/arrays/accumulation_call.py",
    "tests/tensorcore/arrays.py", "tests/tensorcore/cases.py", "floatsim/arrays/reductions.py",
    "floatsim/arrays/events.py", "tests/path_oracle.py", "floatsim/hardware/cpu", "floatsim/testing/inputs.py",
)  # fmt: skip
"""The folders and files that results depend on; plots, commands and logs may change without a new run."""


def source_hash() -> str:
    """Of the kernels, of the modules that call them and of these tests: what a result stands for."""
    digest = hashlib.blake2b(digest_size=8)
    places = [ROOT / name for name in CARRIERS_OF_BITS]
    paths = [path for place in places for path in ([place] if place.is_file() else place.rglob("*.py"))]
    for path in sorted(paths):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def select(patterns: Iterable[str]) -> list[str]:
    """The names that match any of the patterns, in the order of the jobs."""
    wanted = list(patterns)
    return [name for name in jobs() if any(fnmatch.fnmatch(name, pattern) for pattern in wanted)]


def _load(path: Path) -> dict[str, Result]:
    if not path.exists():
        return {}
    return {name: Result(**fields) for name, fields in json.loads(path.read_text(encoding="utf-8")).items()}


def _save(path: Path, results: dict[str, Result]) -> None:
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps({name: asdict(r) for name, r in results.items()}), encoding="utf-8")
    partial.replace(path)


def _work(task: tuple[str, int]) -> tuple[int, Outcome]:
    name, chunk = task
    return chunk, jobs()[name].run(chunk)


def run(
    names: list[str], processes: int = 2, fresh: bool = False, every: int = 1, minutes: float | None = None
) -> list[Result]:
    """Run the jobs' chunks that are not done yet; what is done is kept after every few seconds."""
    path = STATE / f"{source_hash()}.json"
    results = {} if fresh else _load(path)
    end = None if minutes is None else time.monotonic() + 60 * minutes
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes) as pool:
        for name in names:
            job = jobs()[name]
            result = results.setdefault(name, Result(name, job.chunks))
            done = set(result.done)
            todo = [chunk for chunk in range(0, job.chunks, every) if chunk not in done]
            if end is not None and time.monotonic() > end:
                break
            if not todo:
                continue
            start = saved = time.monotonic()
            before = result.seconds
            with tqdm(total=job.chunks, initial=len(done), desc=name, unit="chunk", smoothing=0.05) as bar:
                for chunk, (cases, mismatches, examples) in pool.imap_unordered(_work, [(name, c) for c in todo]):
                    result.done.append(chunk)
                    result.cases += cases
                    result.mismatches += mismatches
                    result.examples = (result.examples + examples)[:EXAMPLES]
                    now = time.monotonic()
                    result.seconds = before + now - start
                    if mismatches:
                        bar.set_postfix(mismatches=result.mismatches)
                    bar.update()
                    if now - saved > 5:
                        _save(path, results)
                        saved = now
                    if end is not None and now > end:
                        pool.terminate()
                        break
            _save(path, results)
    _save(path, results)
    return [results[name] for name in names if name in results and results[name].done]


def report(results: list[Result]) -> str:
    """A table, and the first examples of whatever is wrong."""
    width = max((len(r.name) for r in results), default=3)
    lines = [f"{'job':<{width}}  {'part':>6}  {'cases':>14}  {'mismatches':>10}  {'seconds':>8}"]
    for r in results:
        part = f"{100 * len(r.done) / r.chunks:.0f} %"
        lines.append(f"{r.name:<{width}}  {part:>6}  {r.cases:>14,}  {r.mismatches:>10,}  {r.seconds:>8.1f}")
    whole = sum(r.cases for r in results), sum(r.mismatches for r in results), sum(r.seconds for r in results)
    lines.append(f"{'all':<{width}}  {'':>6}  {whole[0]:>14,}  {whole[1]:>10,}  {whole[2]:>8.1f}")
    for r in results:
        lines += [line if "\n" in line else f"  {line}" for line in r.examples]
    return "\n".join(lines)
