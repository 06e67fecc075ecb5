"""`python -m benchmarks.compiled`: the speed of every compiled kernel beside the same kernel compiled in another way.

The other way is Numba's own compiler, or the sources of another checkout. Both run in processes of their own, and the
calls run in turn, so that a slow moment of the machine affects both. The fastest round counts. A call that seems slower
is measured again. The exit status is 1 if a call takes more than `SLOWER` times as long.

The first run with Numba's compiler compiles every kernel, which takes some minutes. Later runs take one minute.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from floatsim_kernels.runtime import jit
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

import floatsim as fs

from . import cases, functions, races, running, sums

ROOT = Path(__file__).parents[1]
_NO_NEW_PAGES = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
"""Let glibc keep freed memory: new pages can cost more than a fast kernel."""
SLOWER = 1.1
_ROUNDS, _MORE_ROUNDS, _SECONDS = 3, 30, 0.003
_TERMS, _FLAGS, _ELEMENTS = 1 << 20, 1 << 14, 1 << 18
"""Terms of a product or sum, elements with flags, and elements of other calls: 0.05 to some milliseconds each."""

Call = Callable[[], Any]


# -- the calls, in a process of their own ------------------------------------------------------------------------------


def _element_wise() -> Iterator[tuple[str, Callable[[], Call]]]:
    for case in cases.cases():
        for row in case.rows:
            if row.kind == "floatsim" and case.size_class != "small":
                yield f"{case.name}, {row.label}", functools.partial(_job, case, row)
    for name in functions.FAST | functions.OTHERS:
        yield f"function: FP32 {name}", functools.partial(_function, name)


def _job(case: cases.Case, row: cases.Row) -> Call:
    operands = running.operands_of(case, "wide", _FLAGS if case.size_class == "flags" else _ELEMENTS)
    found = running.job(case, row, operands)
    assert not isinstance(found, str), found
    return found.call


def _function(name: str) -> Call:
    return functools.partial(getattr(fs, name), np.random.default_rng(0).uniform(0.01, 4, _FLAGS).astype(np.float32))


def _products() -> Iterator[tuple[str, Callable[[], Call]]]:
    calls = [call for row in sums.rows() for call in (row.work, row.against) if call and call.who == sums.OURS]
    for call in dict.fromkeys(replace(call, shape=_shape(call.shape), threads=1) for call in calls):
        yield f"sum: {call}, {' x '.join(map(str, call.shape))}", functools.partial(_race, call)


def _shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Halve the longest length of a shape until it has few enough terms."""
    lengths = list(shape)
    while math.prod(lengths) > _TERMS:
        lengths[lengths.index(max(lengths))] //= 2
    return tuple(lengths)


def _race(call: sums.Call) -> Call:
    found = races.job(call, sums.codes(call, call.shape))
    assert not isinstance(found, str), found
    return found.call


def serve() -> None:
    """Print whether Numba's own compiler serves, and the names of the calls, as JSON.

    Then read pairs of numbers, a call and a placement, and print nanoseconds.
    Operands are made anew for each placement, behind a block of memory of another size: some addresses are slower.
    """
    fs.set_num_threads(1)
    calls = [*_element_wise(), *_products()]
    _say(getattr(jit, "FASTER", True) is None)
    _say([name for name, _ in calls])

    @functools.lru_cache(1)
    def prepared(n: int, placement: int) -> tuple[Call, Any]:
        block = np.empty(placement * 1216, np.uint8)
        call = calls[n][1]()
        call()  # compile, and build tables
        return call, block

    for line in sys.stdin:
        with np.errstate(all="ignore"):
            _say(_fastest(prepared(*map(int, line.split()))[0]))


def _say(found: Any) -> None:
    print(json.dumps(found), flush=True)


def _fastest(call: Call) -> int:
    """Return the nanoseconds of the fastest of several calls."""
    taken: list[int] = []
    while len(taken) < 3 or sum(taken) < _SECONDS * 1e9:
        start = time.perf_counter_ns()
        result = call()
        taken.append(time.perf_counter_ns() - start)
        del result
    return min(taken)


# -- comparison --------------------------------------------------------------------------------------------------------


class Contestant:
    """A process that runs the calls: of this checkout, of another, or of this one with Numba's compiler."""

    def __init__(self, checkout: Path, plain: bool = False):
        paths = [str(checkout), str(checkout / "kernels")]
        lines = ["import sys", f"sys.path[:0] = {paths!r}", "import floatsim, floatsim_kernels",
                 f"sys.path.insert(0, {str(ROOT)!r})",
                 "from benchmarks import compiled", "compiled.serve()"]  # fmt: skip
        settings = _NO_NEW_PAGES | ({"FLOATSIM_NUMBAS_COMPILER": "1"} if plain else {})
        self._process = subprocess.Popen(
            [sys.executable, "-c", "\n".join(lines)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | settings,
        )  # fmt: skip
        self.numbas_compiler: bool = self._read()
        self.names: list[str] = self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a process of the comparison ended; its error is above")
        return json.loads(line)

    def time(self, number: int, placement: int) -> int:
        """Return the nanoseconds of the fastest of several runs of a call, with operands in one place."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number} {placement}\n")
        self._process.stdin.flush()
        return int(self._read())

    def end(self) -> None:
        """End the process."""
        self._process.communicate()


def measure(ours: Contestant, other: Contestant, pattern: str, quiet: bool = False) -> list[dict[str, Any]]:
    """Return the times of each call whose name matches in both ways, in microseconds, and their ratio."""
    rows = []
    chosen = [n for n, name in enumerate(ours.names) if cases.matches(name, pattern)]
    for n in tqdm(chosen, disable=quiet or None, leave=False):
        pairs: list[tuple[int, int]] = []
        while len(pairs) < _ROUNDS or (len(pairs) < _MORE_ROUNDS and _ratio(pairs) > SLOWER):
            placement = len(pairs) // _ROUNDS
            pairs.append((ours.time(n, placement), other.time(n, placement)))
        mine, others = (min(times) / 1e3 for times in zip(*pairs, strict=True))
        rows.append({"call": ours.names[n], "microseconds": mine, "other_microseconds": others, "ratio": mine / others})
    return rows


def _ratio(pairs: list[tuple[int, int]]) -> float:
    mine, others = map(min, zip(*pairs, strict=True))
    return mine / others


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table("call", "us", "other, us", "ratio", box=None)
    for row in sorted(rows, key=lambda row: -row["ratio"]):
        times = (f"{row[key]:.1f}" for key in ("microseconds", "other_microseconds"))
        table.add_row(row["call"], *times, f"{row['ratio']:.2f}")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled", description=__doc__)
    parser.add_argument("--against", metavar="FOLDER", type=Path, help="another checkout (default: Numba's compiler)")
    parser.add_argument("--only", metavar="PATTERN", default="*", help="calls whose name contains PATTERN")
    parser.add_argument("--all", action="store_true", help="print every call, not only the slower ones")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # both processes on one core: other programs then slow both down
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    other = arguments.against
    contestants = Contestant(ROOT), Contestant(other.resolve()) if other else Contestant(ROOT, plain=True)
    rows = measure(*contestants, arguments.only, arguments.json)
    for contestant in contestants:
        contestant.end()
    slower = [row for row in rows if row["ratio"] > SLOWER]
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        console = Console(highlight=False, soft_wrap=True)
        console.print(_table(rows if arguments.all else slower))
        mean = statistics.geometric_mean(row["ratio"] for row in rows) if rows else math.nan
        console.print(f"{len(rows)} calls, {len(slower)} take more than {SLOWER} times as long; mean ratio {mean:.3f}")
    return 1 if slower or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
