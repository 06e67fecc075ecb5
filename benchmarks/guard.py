"""`python -m benchmarks.guard`: the time of each element-wise operation of 8 and 16 bits beside that of `add`.

These are the cases "beside add" of the benchmarks with fewer elements and rounds. They take less than a minute, and
find a kernel that LLVM does not vectorize: it takes 7 to 18 times as long. An operation takes too long above `FACTOR`
times the limit of its target, by the fastest rounds. On a processor with AVX-512 everything runs a second time, in a
process limited to AVX2. The exit status is 1 if an operation takes too long.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table
from tqdm import tqdm

import floatsim as fs

from . import cases, machine, running

SETTINGS = replace(running.FULL, sizes=dict.fromkeys(cases.FULL, 1 << 20), rounds=7, budget=0.2, sample=1)
FACTOR = 2
_AGAIN = 3


def measure(settings: running.Settings = SETTINGS, quiet: bool = False) -> list[dict[str, Any]]:
    """Return the checks of the cases. A case with a miss is run again, and the best ratio of each operation counts."""
    fs.set_num_threads(1)
    found = []
    for case in tqdm([x for x in cases.cases() if x.group in cases.BESIDE_ADD], disable=quiet or None, leave=False):
        best: dict[str, dict[str, Any]] = {}
        for _ in range(_AGAIN):
            for check in running.run(case, settings)["checks"]:
                best[check["what"]] = max(check, best.get(check["what"], check), key=lambda each: each["fastest"])
            if not any(map(misses, best.values())):
                break
        found += best.values()
    return found


def misses(check: dict[str, Any]) -> bool:
    """Return whether an operation takes too long, by the fastest rounds."""
    return bool(1 / check["fastest"] > _most(check))


def _most(check: dict[str, Any]) -> float:
    """Return the most that an operation may take, in times of `add`."""
    return FACTOR / cases.REQUIREMENTS[check["requirement"]].at_least


def _show(title: str, checks: list[dict[str, Any]]) -> None:
    table = Table("operation that takes too long", "times the time of add", "at most", box=None)
    for check in filter(misses, checks):
        table.add_row(check["what"], f"{1 / check['fastest']:.2f}", f"{_most(check):.3g}")
    console = Console(highlight=False)
    console.print(f"{title}: {table.row_count} of {len(checks)} operations take too long beside add")
    if table.row_count:
        console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON, and exit with status 0")
    arguments = parser.parse_args()
    checks = measure(quiet=arguments.json)
    if arguments.json:
        print(json.dumps(checks))
        return 0
    _show("this processor", checks)
    limited = machine.limited_to_avx2("benchmarks.guard")
    if limited is None:
        print("this processor has no AVX-512: nothing runs a second time")
    else:
        _show("limited to AVX2", limited)
    return int(any(map(misses, [*checks, *(limited or [])])))


if __name__ == "__main__":
    sys.exit(main())
