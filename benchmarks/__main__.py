"""`python -m benchmarks`: measure, print, and write results/<name>.json and .md."""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import json
import os
import sys
from typing import Any

# One thread for everybody, before anybody starts any.
for _library in ("OPENBLAS", "OMP", "MKL", "NUMBA"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"
os.environ["APYTYPES_THREAD_COUNT"] = "1"

from tqdm import tqdm  # noqa: E402

from . import cases, machine, report, running, startup  # noqa: E402

_OPTIONS: dict[str, dict[str, Any]] = {
    "--quick": {"action": "store_true", "help": "small arrays, few rounds: tries the harness, not the speed"},
    "--only": {"metavar": "PATTERN", "default": "*", "help": "cases whose name holds PATTERN (* ? as in a shell)"},
    "--list": {"action": "store_true", "help": "list the cases and stop"},
    "--json": {"action": "store_true", "help": "print JSON in place of tables"},
    "--name": {"help": "write results/NAME.json and .md (default: latest, for a whole run)"},
    "--docs": {"action": "store_true", "help": "only put results/NAME.json into docs/performance.md"},
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    for option, settings in _OPTIONS.items():
        parser.add_argument(option, **settings)
    return parser.parse_args()


def measure(quick: bool, pattern: str, quiet: bool) -> dict[str, Any]:
    settings = running.QUICK if quick else running.FULL
    start = machine.load()
    chosen: list[Any] = [case for case in cases.cases() if _matches(case.name, pattern)]
    found = [running.run(case, settings) for case in tqdm(chosen, disable=quiet or None, leave=False)]
    waiting: dict[str, Any] = {}
    if _matches("start: imports and first calls", pattern):
        waiting["waiting"] = startup.waiting(2 if quick else 11)
    if _matches("compile: kernels", pattern):
        waiting["compiling"] = startup.compiling(1, 20) if quick else startup.compiling(2)
    return {
        "date": datetime.date.today().isoformat(), "commit": machine.commit(), "quick": quick, "pattern": pattern,
        "machine": machine.machine(), "versions": machine.versions(), "load": [start, machine.load()],
        "cases": found, "startup": waiting,
    }  # fmt: skip


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatch(name.lower(), f"*{pattern.lower()}*")


def main() -> int:
    arguments = _arguments()
    whole = not arguments.quick and arguments.only == "*"
    if arguments.list:
        print("\n".join([*(case.name for case in cases.cases()), "start: imports and first calls", "compile: kernels"]))
        return 0
    if arguments.docs:
        report.write_docs(arguments.name or "latest")
        return 0
    run = measure(arguments.quick, arguments.only, arguments.json)
    if not run["cases"] and not run["startup"]:
        print(f"no case matches {arguments.only!r}; --list names them", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(run, indent=1))
    else:
        report.show(run)
    name = arguments.name or ("latest" if whole else None)
    if name:
        print(f"wrote {report.save(run, name).name} and .md into benchmarks/results", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
