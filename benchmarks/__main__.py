"""`python -m benchmarks`: measure, print, and write results/<name>.json and .md."""

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
    "--name": {"help": "write results/NAME.json and .md (default: latest, for a whole run)"},
    "--merge": {"action": "store_true", "help": "replace only the measured cases in results/NAME, keep the others"},
    "--docs": {"action": "store_true", "help": "only write results/NAME.json into docs/performance.md and README.md"},
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    for option, settings in _OPTIONS.items():
        parser.add_argument(option, **settings)
    return parser.parse_args()


def measure(quick: bool, pattern: str, quiet: bool) -> dict[str, Any]:
    start = machine.load()
    chosen: list[Any] = [case for case in cases.cases() if cases.matches(case.name, pattern)]
    chosen += races.groups(row for row in sums.rows() if cases.matches(row.name, pattern))
    found: dict[str, Any] = {"cases": [], "sums": []}
    for part in tqdm(chosen, disable=quiet or None, leave=False):
        if isinstance(part, cases.Case):
            found["cases"].append(running.run(part, running.QUICK if quick else running.FULL))
        else:
            found["sums"] += races.run(part, races.QUICK if quick else races.FULL)
    waiting: dict[str, Any] = {}
    if cases.matches(_STARTUP["waiting"], pattern):
        waiting["waiting"] = startup.waiting(2 if quick else 11)
    if cases.matches(_STARTUP["compiling"], pattern):
        waiting["compiling"] = startup.compiling(1, 20) if quick else startup.compiling(2)
    if cases.matches(_STARTUP["products"], pattern):
        waiting["products"] = startup.first_products(1, 2) if quick else startup.first_products(3)
    part = {"date": datetime.date.today().isoformat(), "commit": machine.commit(), "pattern": pattern}
    return {
        "quick": quick, "parts": [part | {"load": [start, machine.load()]}],
        "machine": machine.machine(), "versions": machine.versions(), **found, "startup": waiting,
    }  # fmt: skip


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
        report.write_docs(arguments.name or "latest")
        return 0
    run = measure(arguments.quick, arguments.only, arguments.json)
    if not any(run[part] for part in ("cases", "sums", "startup")):
        print(f"no case matches {arguments.only!r}; --list names them", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(run, indent=1))
    else:
        report.show(run)
    name = arguments.name or ("latest" if whole or arguments.merge else None)
    if name:
        if arguments.merge:
            run = report.merged(name, run)
        print(f"wrote {report.save(run, name).name} and .md into benchmarks/results", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
