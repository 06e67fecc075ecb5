"""What a run found, as JSON and as tables: in the terminal, beside the JSON, and in docs/performance.md."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .cases import DATA, REQUIREMENTS

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- results: begin (python -m benchmarks --docs) -->", "<!-- results: end -->"

Cells = list[list[str]]
Tables = list[tuple[str, Cells]]
"""Titles and rows of text; the first row is the head."""


def _number(x: float | None) -> str:
    return "" if x is None else f"{x:.3g}" if x < 100 else f"{x:.0f}"


def _worst(checks: list[dict[str, Any]]) -> dict[str, Any] | None:
    measured = [check for check in checks if check["measured"] is not None]
    return min(measured, key=lambda check: check["measured"], default=None)


def all_checks(run: dict[str, Any]) -> list[dict[str, Any]]:
    return [check for part in (*run["cases"], *run["startup"].values()) for check in part["checks"]]


def requirements(run: dict[str, Any]) -> Cells:
    """One line for each target: how many of its checks hold, and the worst of them."""
    checks = defaultdict(list)
    for check in all_checks(run):
        checks[check["requirement"]].append(check)
    lines = [["target", "at least", "worst", "by fastest rounds", "where", "holds"]]
    for name, requirement in REQUIREMENTS.items():
        if name not in checks:
            continue
        worst = _worst(checks[name])
        holding, total = sum(check["holds"] is True for check in checks[name]), len(checks[name])
        unit = "" if requirement.unit == "x" else f" {requirement.unit}"
        lines.append([
            requirement.text, f"{requirement.at_least:.3g}{unit}",
            f"{_number(worst['measured'])}{unit}" if worst else "not measured",
            f"{_number(worst['fastest'])}{unit}" if worst else "", worst["what"] if worst else "",
            f"{holding} of {total}" if holding == total else f"**{holding}** of {total}",
        ])  # fmt: skip
    return lines


def _both(row: dict[str, Any], cell: Callable[[dict[str, Any]], str]) -> str:
    """A cell that holds something for easy and for wide data."""
    return " / ".join(cell(row[data]) for data in DATA)


def _differs(row: dict[str, Any]) -> str:
    if None in (counts := [row[data].get("differs") for data in DATA]):
        return ""
    wrong, compared = (sum(parts) for parts in zip(*counts, strict=True))
    return f"**{wrong}** of {compared}" if wrong else f"0 of {compared}"


def _ratio(row: dict[str, Any], own: dict[str, Any]) -> str:
    return " / ".join(_number(row[data]["median"] / own[data]["median"]) for data in DATA)


def _verdicts(case: dict[str, Any], label: str) -> str:
    """What the checks of a row say, in words."""
    found = []
    for check in case["checks"]:
        if check["row"] == label:
            requirement = REQUIREMENTS[check["requirement"]]
            what = check["against"] or ("easy against wide" if requirement.unit == "x" else "")
            verdict = {True: "holds", False: "**misses**", None: "not measured"}[check["holds"]]
            found.append(f"{what} {_number(check['measured'])}, needs {requirement.at_least:.3g}: {verdict}")
    return "; ".join(found)


def _elements(size: int) -> str:
    return f"{size >> 20}M" if size >= 1 << 20 else f"{size >> 10}K" if size >= 1 << 10 else str(size)


def _row_cells(case: dict[str, Any], row: dict[str, Any], first: bool) -> list[str]:
    title = case["title"] if first else ""
    if row["note"]:
        return [title, row["label"], row["note"], "", "", "", "", ""]
    own = next(other for other in case["rows"] if other["kind"] == "floatsim" and not other["note"])
    return [
        title, row["label"], _elements(row["easy"]["size"]),
        _both(row, lambda cell: _number(cell["median"])), _both(row, lambda cell: _number(cell["fastest"])),
        _ratio(row, own), _differs(row), _verdicts(case, row["label"]),
    ]  # fmt: skip


def _times_table(group: list[dict[str, Any]]) -> Cells:
    head = ["case", "who", "elements", "ns: easy / wide", "fastest", "times floatsim's time", "other bits", "target"]
    lines = [head]
    for case in group:
        rows = [row for row in case["rows"] if row["note"] != "does not offer it"]
        lines += [_row_cells(case, row, n == 0) for n, row in enumerate(rows)]
    return lines


def _flags_table(group: list[dict[str, Any]]) -> Cells:
    """One line for each operation: millions of results a second in its slowest mode, for each format."""
    rates: dict[str, dict[str, str]] = defaultdict(dict)
    wrong = 0
    for case in group:
        fmt, operation = case["title"].split()
        slowest = max(case["rows"], key=lambda row: max(row[data]["median"] for data in DATA))
        rate = 1e3 / max(slowest[data]["median"] for data in DATA)
        mode = "" if slowest["label"] == "floatsim" else f" ({slowest['label'].replace('_', ' ')})"
        rates[operation][fmt] = f"{rate:.0f}{mode}"
        wrong += sum((row[data].get("differs") or [0])[0] for row in case["rows"] for data in DATA)
    formats = list(dict.fromkeys(fmt for row in rates.values() for fmt in row))
    lines = [["M results/s, slowest mode", *formats]]
    lines += [[operation, *(row.get(fmt, "") for fmt in formats)] for operation, row in rates.items()]
    return [*lines, ["results or flags other than the reference's", str(wrong), *[""] * (len(formats) - 1)]]


def tables(run: dict[str, Any]) -> Tables:
    found: Tables = [("Targets", requirements(run))]
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for case in run["cases"]:
        groups[case["group"]].append(case)
    for name, group in groups.items():
        found.append((name, _flags_table(group) if name == "with flags" else _times_table(group)))
    startup = run["startup"]
    if "waiting" in startup:
        head = ["seconds", "median", "fastest"]
        rows = [[row["what"], f"{row['median']:.3f}", f"{row['min']:.3f}"] for row in startup["waiting"]["rows"]]
        found.append(("start", [head, *rows]))
    if "compiling" in startup:
        head = ["kernel", "argument types", "seconds, cold"]
        rows = [[row["kernel"], row["types"], f"{row['seconds']:.2f}"] for row in startup["compiling"]["rows"]]
        found.append(("kernels compiled cold", [head, *rows]))
    return found


def describe(run: dict[str, Any]) -> str:
    """One paragraph: the machine, the versions, how busy it was."""
    machine, versions = run["machine"], run["versions"]
    facts = ", ".join(f"{name} {version or 'not installed'}" for name, version in versions.items())
    quick = "A quick run, whose times mean nothing. " if run["quick"] else ""
    return (
        f"{quick}{run['date']}, floatsim commit {run['commit']}. {machine['cpu']} ({machine['llvm']}), "
        f"{machine['cores']} cores, {machine['os']}, {machine['features']}; huge pages: {machine['huge pages']}. "
        f"Load before and after: {run['load'][0]:.2f}, {run['load'][1]:.2f}. {facts}."
    )


def _markdown_table(cells: Cells) -> str:
    head, *rows = cells
    lines = ["| " + " | ".join(head) + " |", "| --- " + "| ---: " * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def markdown(run: dict[str, Any]) -> str:
    parts = [describe(run)]
    for title, cells in tables(run):
        parts += [f"### {title[0].upper()}{title[1:]}", _markdown_table(cells)]
    return "\n\n".join(parts)


_LEFT = ("who", "where", "target")


def show(run: dict[str, Any]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    for title, (head, *rows) in reversed(tables(run)):  # the targets last: that is where the eye is
        table = Table(title=title, title_justify="left")
        for n, name in enumerate(head):
            table.add_column(name, justify="left" if n == 0 or name in _LEFT else "right")
        for row in rows:
            table.add_row(*(re.sub(r"\*\*(.*?)\*\*", r"[bold red]\1[/]", cell) for cell in row))
        console.print(table)
    console.print(describe(run))


def save(run: dict[str, Any], name: str) -> Path:
    """Write results/<name>.json and .md."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(f"# Benchmark run `{name}`\n\n{markdown(run)}\n", encoding="utf-8")
    return path


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def write_docs(name: str) -> None:
    """Put a run's tables between the markers of docs/performance.md."""
    before, _, rest = DOCS.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    DOCS.write_text(f"{before}{BEGIN}\n\n{markdown(load(name))}\n\n{END}{after}", encoding="utf-8")
