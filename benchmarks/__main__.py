"""`python -m benchmarks`: measure, print, and write results/<name>.json and .md.

On a processor with AVX-512 every case but those of start-up runs a second time, in a process limited to AVX2.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from typing import Any

# One thread for everybody, before anybody starts any.
for _library in ("OPENBLAS", "OMP", "MKL", "NUMBA"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"
os.environ["APYTYPES_THREAD_COUNT"] = "1"

from tqdm import tqdm  # noqa: E402

from . import cases, machine, races, report, running, startup, sums  # noqa: E402

_OPTIONS: dict[str, dict[str, Any]] = {
    "--quick": {"action": "store_true", "help": "small arrays, few rounds: tests the harness, not the speed"},
    "--only": {"metavar": "PATTERN", "default": "*", "help": "cases whose name contains PATTERN (* ? as in a shell)"},
    "--list": {"action": "store_true", "help": "list the cases and stop"},
    "--json": {"action": "store_true", "help": "print JSON in place of tables"},
    "--name": {"help": "write results/NAME.json and .md (default for a whole run: latest; avx2 without AVX-512)"},
    "--no-startup": {"action": "store_true", "help": "leave out imports, first calls and cold compilation"},
    "--merge": {"action": "store_true", "help": "replace only the measured cases in results/NAME, keep the others"},
    "--docs": {"action": "store_true", "help": "only write the stored runs into docs/performance.md and README.md"},
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    for option, settings in _OPTIONS.items():
        parser.add_argument(option, **settings)
    return parser.parse_args()


def measure(quick: bool, pattern: str, quiet: bool, with_startup: bool = True) -> dict[str, Any]:
    """Return a run of the cases whose names match, as plain data."""
    start = machine.load()
    chosen: list[Any] = [case for case in cases.cases() if cases.matches(case.name, pattern)]
    chosen += races.groups(row for row in sums.rows() if cases.matches(row.name, pattern))
    found: dict[str, Any] = {"cases": [], "sums": []}
    for part in tqdm(chosen, disable=quiet or None, leave=False):
        if isinstance(part, cases.Case):
            found["cases"].append(running.run(part, running.QUICK if quick else running.FULL))
        else:
            found["sums"] += races.run(part, races.QUICK if quick else races.FULL)
    part = {"date": datetime.date.today().isoformat(), "commit": machine.commit(), "pattern": pattern}
    return {
        "quick": quick, "parts": [part | {"load": [start, machine.load()]}],
        "machine": machine.machine(), "versions": machine.versions(), **found,
        "startup": _startup(quick, pattern) if with_startup else {},
    }  # fmt: skip


def _startup(quick: bool, pattern: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if cases.matches(_STARTUP["waiting"], pattern):
        found["waiting"] = startup.waiting(2 if quick else 11)
    if cases.matches(_STARTUP["compiling"], pattern):
        found["compiling"] = startup.compiling(1, 20) if quick else startup.compiling(2)
    if cases.matches(_STARTUP["products"], pattern):
        found["products"] = startup.first_products(1, 2) if quick else startup.first_products(3)
    return found


_STARTUP = {
    "waiting": "start: imports and first calls",
    "compiling": "compile: kernels",
    "products": "compile: first products",
}


def main() -> int:
    arguments = _arguments()
    whole = not arguments.quick and arguments.only == "*"
    if arguments.list:
        print("\n".join([*(part.name for part in [*cases.cases(), *sums.rows()]), *_STARTUP.values()]))
        return 0
    if arguments.docs:
        report.write_docs()
        return 0
    runs = [measure(arguments.quick, arguments.only, arguments.json, not arguments.no_startup)]
    if not any(runs[0][part] for part in ("cases", "sums", "startup")):
        print(f"no case matches {arguments.only!r}; --list names them", file=sys.stderr)
        return 2
    options = ["--no-startup", "--only", arguments.only, *(["--quick"] * arguments.quick)]
    if limited := machine.limited_to_avx2("benchmarks", *options):
        runs += limited
    else:
        print("nothing runs a second time: this processor has no AVX-512", file=sys.stderr)
    if arguments.json:
        print(json.dumps(runs, indent=1))
    else:
        for run in runs:
            report.show(run)
    if whole or arguments.merge or arguments.name:
        for n, run in enumerate(runs):
            name = arguments.name + "-avx2" * n if arguments.name else report.record_of(run)
            found = report.merged(name, run) if arguments.merge else run
            print(f"wrote {report.save(found, name).name} and .md into benchmarks/results", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
