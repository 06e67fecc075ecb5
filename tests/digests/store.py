"""All cases, and the file of their digests."""

from __future__ import annotations

import json
from pathlib import Path

from . import elements, known_wrong, sums, tensorcores
from .case import Case

__all__ = ["EXACT_WIDE", "STORED", "all_cases", "describe_change", "read", "write"]

STORED = Path(__file__).with_name("stored.json")

EXACT_WIDE = "exact-wide"
"""Cases of `Exact` sums whose products have more than 53 bits. Before their repair they wrote beyond an array."""

_PARTS = ("shapes", "results", "events", "results while recording")


def all_cases() -> list[Case]:
    """Return every case; their names are unique."""
    return [*sums.cases(), *tensorcores.cases(), *elements.cases(), *known_wrong.cases()]


def read(path: Path = STORED) -> dict[str, list[str]]:
    """Return the stored digests by case, none if there is no file."""
    if not path.exists():
        return {}
    groups = json.loads(path.read_text(encoding="utf-8"))
    return {f"{group}/{name}": text.split("|") for group, cases in groups.items() for name, text in cases.items()}


def write(path: Path, digests: dict[str, list[str]]) -> None:
    """Store digests, one line a case, in groups by the first part of their names."""
    groups: dict[str, dict[str, str]] = {}
    for name in sorted(digests):
        group, rest = name.split("/", 1)
        groups.setdefault(group, {})[rest] = "|".join(digests[name])
    path.write_text(json.dumps(groups, indent=0) + "\n", encoding="utf-8")


def _whole(entry: list[str]) -> list[str]:
    """All four digests. Without a recorded call the last two are ""; without a fourth the results are the same."""
    return [*entry, "", ""] if len(entry) == 2 else [*entry, entry[1]][:4]


def describe_change(stored: list[str] | None, now: list[str]) -> str | None:
    """Return what differs from the stored digest of a case; None if nothing does."""
    if stored is None:
        return f"not stored ({now[0]})"
    if stored == now:
        return None
    before, after = _whole(stored), _whole(now)
    parts = [part for part, x, y in zip(_PARTS, before, after, strict=True) if x != y]
    agree = "" if len(now) < 4 else "; results with and without recording differ"
    return f"{', '.join(parts)} changed ({now[0]}){agree}"
