"""`python -m tests.exhaustive`: run whole input spaces, show progress, stop and go on, tell what came out."""

from __future__ import annotations

import argparse
import sys

from .runner import report, run, select


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.exhaustive", description=__doc__)
    parser.add_argument("jobs", nargs="*", default=["*"], help="names or patterns, as 'pairs-bf16-*'; default: all")
    parser.add_argument("--list", action="store_true", help="list the jobs and stop")
    parser.add_argument("--fresh", action="store_true", help="forget what has been run before")
    parser.add_argument("--processes", type=int, default=2, help="how many at a time (default 2)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th chunk: a sample")
    parser.add_argument("--minutes", type=float, default=None, help="stop after that time; a later run goes on")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="run on the workers of a dask scheduler, not here")
    arguments = parser.parse_args()
    names = select(arguments.jobs)
    if not names:
        print(f"no job matches {' '.join(arguments.jobs)}; --list shows them all", file=sys.stderr)
        return 2
    if arguments.list:
        print("\n".join(names))
        return 0
    results = run(names, arguments.processes, arguments.fresh, arguments.every, arguments.minutes, arguments.scheduler)
    print(report(results))
    return int(any(r.mismatches for r in results))


if __name__ == "__main__":
    sys.exit(main())
