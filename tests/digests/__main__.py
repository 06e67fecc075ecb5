"""`python -m tests.digests`: compute the digests, compare them with the stored ones, print the cases that changed."""

from __future__ import annotations

import argparse
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from .case import Computed, digest
from .store import EXACT_WIDE, STORED, all_cases, describe_change, read, write

_PARSER = argparse.ArgumentParser(prog="python -m tests.digests", description=__doc__)
_PARSER.add_argument("patterns", nargs="*", default=["*"], help="cases, as 'matmul/*(fp16)/*'; default: all")
_PARSER.add_argument("--update", action="store_true", help="store the digests of these cases; report no change")
_PARSER.add_argument(
    "--baseline", action="store_true", help=f"leave out {EXACT_WIDE}/*, which may crash before its repair"
)
_PARSER.add_argument("--list", action="store_true", help="print the names of the cases and stop")
_PARSER.add_argument("--stored", type=Path, default=STORED, help="the file of digests")
_PARSER.add_argument("--keep", type=Path, metavar="FILE.npz", help="write the results of these cases, too")
_PARSER.add_argument(
    "--against", type=Path, metavar="FILE.npz", help="results that --keep wrote: say which elements of a case changed"
)


def _elements(computed: Computed, name: str, kept: np.lib.npyio.NpzFile) -> str:
    """Which elements of a case differ from the results that were kept."""
    texts = []
    for number, now in enumerate(computed.arrays):
        key = f"{name}#{number}"
        if key not in kept:
            texts.append(f"result {number}: not kept")
        elif kept[key].shape != now.shape or kept[key].dtype != now.dtype:
            texts.append(f"result {number}: {kept[key].dtype}{kept[key].shape} became {now.dtype}{now.shape}")
        elif (differs := np.argwhere(kept[key] != now)).size or not np.array_equal(kept[key], now):
            index = tuple(map(int, differs[0]))
            before, after = kept[key][index], now[index]
            texts.append(f"result {number}: {len(differs)} of {now.size}, first {index} {before:#x} -> {after:#x}")
    return "; ".join(texts)


def main() -> int:
    arguments = _PARSER.parse_args()
    cases = [case for case in all_cases() if any(fnmatch(case.name, p) for p in arguments.patterns)]
    if arguments.baseline:
        cases = [case for case in cases if not case.name.startswith(f"{EXACT_WIDE}/")]
    if not cases:
        print(f"no case matches {' '.join(arguments.patterns)}; --list prints them all", file=sys.stderr)
        return 2
    if arguments.list:
        print("\n".join(case.name for case in cases))
        return 0
    stored = read(arguments.stored)
    kept = np.load(arguments.against) if arguments.against else None
    results, arrays, changed, failed, start, shown = {}, {}, 0, 0, time.monotonic(), 0.0
    for number, case in enumerate(cases):
        try:
            computed = digest(case)
        except Exception as error:
            failed += 1
            print(f"{case.name}: {type(error).__name__}: {error}", flush=True)
            continue
        results[case.name] = computed.entry
        if arguments.keep:
            arrays |= {f"{case.name}#{i}": x for i, x in enumerate(computed.arrays)}
        change = None if arguments.update else describe_change(stored.get(case.name), computed.entry)
        if change is not None:
            changed += 1
            elements = "" if kept is None else _elements(computed, case.name, kept)
            print(f"{case.name}: {change}{'; ' * bool(elements)}{elements}", flush=True)
        if time.monotonic() - shown > 20:
            shown = time.monotonic()
            print(f"{number + 1} of {len(cases)}, {shown - start:.0f} s", file=sys.stderr, flush=True)
    if arguments.keep:
        np.savez_compressed(arguments.keep, **arrays)
    whole = arguments.patterns == ["*"]
    gone = sorted(stored.keys() - {case.name for case in cases}) if whole and not arguments.baseline else []
    if arguments.update:
        write(arguments.stored, results if whole else stored | results)
    else:
        for name in gone:
            print(f"{name}: no such case")
    spent = time.monotonic() - start
    said = f"{len(results)} stored" if arguments.update else f"{changed + len(gone)} changed"
    print(f"{len(cases)} cases, {said}, {failed} failed, {spent:.0f} s", file=sys.stderr)
    return int(bool(failed or ((changed or gone) and not arguments.update)))


if __name__ == "__main__":
    sys.exit(main())
