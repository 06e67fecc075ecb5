"""Write the results of a benchmark run as JSON, as tables (terminal, Markdown), and into the documentation.

`results/<name>.md` has every table. docs/performance.md shows the targets (`summary`), README.md the
targets of products and sums (`quote`).
"""

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
from .sums import FASTER, MICROSECONDS, SLOWER, TARGETS

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs" / "performance.md"
README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- results: begin (python -m benchmarks --docs) -->", "<!-- results: end -->"

RECORDS = {"AVX-512": "latest", "AVX2": "avx2"}
"""The stored run that the pages show, for each set of vector instructions."""

Cells = list[list[str]]
Tables = list[tuple[str, Cells]]
"""Pairs of a title and rows of text. The first row is the table's head."""


def _number(x: float | None) -> str:
    return "" if x is None else f"{x:.3g}" if x < 100 else f"{x:.0f}"


def _measured(checks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [check for check in checks if check["measured"] is not None]


def _worst(checks: list[dict[str, Any]]) -> dict[str, Any] | None:
    return min(_measured(checks), key=lambda check: check["measured"], default=None)


def _holding(checks: list[dict[str, Any]]) -> str:
    """Return how many of the measured checks hold, in bold if not all do, and how many were not measured."""
    measured = _measured(checks)
    holding, missing = sum(check["holds"] is True for check in measured), len(checks) - len(measured)
    found = f"{holding} of {len(measured)}" if holding == len(measured) else f"**{holding}** of {len(measured)}"
    parts = ([found] if measured else []) + ([f"{missing} not measured"] if missing else [])
    return ", ".join(parts)


def all_checks(run: dict[str, Any]) -> list[dict[str, Any]]:
    return [check for part in (*run["cases"], *run["startup"].values()) for check in part["checks"]]


def requirements(run: dict[str, Any]) -> Cells:
    """Return one row for each target of element-wise operations and start-up: its worst check, and how many hold."""
    checks = defaultdict(list)
    for check in all_checks(run):
        checks[check["requirement"]].append(check)
    lines = [["target", "at least", "worst", "by fastest rounds", "where", "holds"]]
    for name, requirement in REQUIREMENTS.items():
        if name not in checks:
            continue
        worst = _worst(checks[name])
        unit = "" if requirement.unit == "x" else f" {requirement.unit}"
        lines.append([
            requirement.text, f"{requirement.at_least:.3g}{unit}",
            f"{_number(worst['measured'])}{unit}" if worst else "not measured",
            f"{_number(worst['fastest'])}{unit}" if worst else "", worst["what"] if worst else "",
            _holding(checks[name]),
        ])  # fmt: skip
    return lines


def _both(row: dict[str, Any], cell: Callable[[dict[str, Any]], str]) -> str:
    """Return a cell with one value for easy data and one for wide data."""
    return " / ".join(cell(row[data]) for data in DATA)


def _differs(row: dict[str, Any]) -> str:
    if None in (counts := [row[data].get("differs") for data in DATA]):
        return ""
    wrong, compared = (sum(parts) for parts in zip(*counts, strict=True))
    return f"**{wrong}** of {compared}" if wrong else f"0 of {compared}"


def _ratio(row: dict[str, Any], own: dict[str, Any]) -> str:
    return " / ".join(_number(row[data]["median"] / own[data]["median"]) for data in DATA)


def _verdicts(case: dict[str, Any], label: str) -> str:
    """Return the results of a row's checks as text."""
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
    """Return one row for each operation: millions of results per second in the slowest mode, for each format."""
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
    lines = [["M results/s, slowest rounding mode", *formats]]
    lines += [[operation, *(row.get(fmt, "") for fmt in formats)] for operation, row in rates.items()]
    return [*lines, ["results or flags other than the reference's", str(wrong), *[""] * (len(formats) - 1)]]


# -- matrix products and sums --------------------------------------------------------------------------------------


def _times(unit: str, x: float | None) -> str:
    return "" if x is None else f"{_number(x)} us" if unit == MICROSECONDS else f"{_number(x)}x"


def _limit(unit: str, limit: float) -> str:
    words = {SLOWER: "at most {}", FASTER: "at least {} faster", MICROSECONDS: "at most {}"}
    return words[unit].format(_times(unit, limit))


def sum_targets(run: dict[str, Any]) -> Cells:
    """Return one row for each target of products and sums: its worst measurement, and how many measurements hold."""
    lines = [["target", "must", "aim", "worst", "by fastest rounds", "where", "holds"]]
    for name, target in TARGETS.items():
        rows = [row for row in run["sums"] if row["target"] == name]
        if not rows:
            continue
        pick = min if target.unit == FASTER else max
        worst = pick(_measured(rows), key=lambda row: row["measured"], default=None)
        lines.append([
            target.text, _limit(target.unit, target.must), _times(target.unit, target.aim),
            _times(target.unit, worst["measured"]) if worst else "not measured",
            _times(target.unit, worst["fastest"]) if worst else "", worst["name"] if worst and len(rows) > 1 else "",
            _holding(rows),
        ])  # fmt: skip
    return lines


def _call_cells(call: dict[str, Any]) -> list[str]:
    """Return size, nanoseconds and differing bits of a call. A shape smaller than the requested one is marked."""
    if "note" in call:
        return [call["note"], "", "", ""]
    shape = " x ".join(map(str, call["shape"])) + " (smaller)" * (call["shape"] != call["wanted"])
    wrong, compared = call["bits"] or (None, None)
    bits = "" if wrong is None else f"**{wrong}** of {compared}" if wrong else f"0 of {compared}"
    return [shape, _number(call["median"]), _number(call["fastest"]), bits]


def _sums_table(rows: list[dict[str, Any]]) -> Cells:
    """Return one row for each call, with the results of all its comparisons."""
    said: dict[str, list[str]] = defaultdict(list)
    calls: dict[str, dict[str, Any]] = {}
    for row in rows:
        for call in row["against"], row["work"]:
            if call:
                calls.setdefault(call["what"], call)
        said[row["work"]["what"]].append(_verdict(row))
    head = ["call", "M x N x K", "ns a term", "fastest", "other bits", "target"]
    return [head, *([what, *_call_cells(call), "; ".join(said[what])] for what, call in calls.items())]


def _verdict(row: dict[str, Any]) -> str:
    """Return the measured ratio of a comparison, and whether it meets its target."""
    target = TARGETS.get(row["target"] or "")
    unit = target.unit if target else FASTER
    other = f" than {row['against']['what']}" if row["against"] else ""
    words = {SLOWER: f" slower{other}", FASTER: f" faster{other}", MICROSECONDS: ""}[unit]
    found = "not measured" if row["measured"] is None else _times(unit, row["measured"]) + words
    if target is None:
        return found if row["against"] else ""
    limit = f"must {_times(unit, target.must)}"
    verdict = "reaches the aim" if row["reaches"] else "holds" if row["holds"] else "**misses**"
    return f"{found}, {limit}" if row["holds"] is None else f"{found}, {limit}: {verdict}"


def _rates_table(groups: dict[str, list[dict[str, Any]]]) -> Cells:
    """Return terms per nanosecond: one row for each shape, one column for each description."""
    names = list(dict.fromkeys(row["work"]["what"] for rows in groups.values() for row in rows))
    lines = [["M x N x K, billions of terms a second", *names]]
    for group, rows in groups.items():
        rates = {row["work"]["what"]: _rate(row["work"]) for row in rows}
        lines.append([group.removeprefix("rate "), *(rates.get(name, "") for name in names)])
    return lines


def _rate(call: dict[str, Any]) -> str:
    if "note" in call:
        return str(call["note"])
    return _number(1 / call["median"]) + " (smaller)" * (call["shape"] != call["wanted"])


def _sum_tables(run: dict[str, Any]) -> Tables:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in run["sums"]:
        groups[row["group"]].append(row)
    rates = {name: groups.pop(name) for name in list(groups) if name.startswith("rate ")}
    found = [(name, _sums_table(rows)) for name, rows in groups.items()]
    return [*found, ("rates by shape", _rates_table(rates))] if rates else found


# -- all of it -----------------------------------------------------------------------------------------------------


def tables(run: dict[str, Any]) -> Tables:
    found: Tables = []
    if run["cases"] or run["startup"]:
        found.append(("Targets", requirements(run)))
    if len(targets := sum_targets(run)) > 1:
        found.append(("Targets of products and sums", targets))
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for case in run["cases"]:
        groups[case["group"]].append(case)
    for name, group in groups.items():
        found.append((name, _flags_table(group) if name == "with flags" else _times_table(group)))
    found += _sum_tables(run)
    startup = run["startup"]
    if "waiting" in startup:
        head = ["seconds", "median", "fastest"]
        rows = [[row["what"], f"{row['median']:.3f}", f"{row['min']:.3f}"] for row in startup["waiting"]["rows"]]
        found.append(("start", [head, *rows]))
    if "compiling" in startup:
        head = ["kernel", "argument types", "seconds, cold"]
        rows = [[row["kernel"], row["types"], f"{row['seconds']:.2f}"] for row in startup["compiling"]["rows"]]
        found.append(("kernels compiled cold", [head, *rows]))
    if "products" in startup:
        head = ["first product of a process", "seconds, cold", "at most", "with import and operand"]
        rows = [[row["what"], f"{row['seconds']:.2f}", f"{row['limit']:.1f}", f"{row['process']:.2f}"]
                for row in startup["products"]["rows"]]  # fmt: skip
        found.append(("first products, compiled cold", [head, *rows]))
    return [*found, ("runs", _runs(run))]


def describe(run: dict[str, Any]) -> str:
    """Return one paragraph with the machine and the versions."""
    machine, versions = run["machine"], run["versions"]
    facts = ", ".join(f"{name} {version or 'not installed'}" for name, version in versions.items())
    quick = "A quick run: the timings are not meaningful. " if run["quick"] else ""
    return (
        f"{quick}{machine['cpu']} ({machine['llvm']}), {machine['cores']} cores, {machine['os']}, "
        f"{machine['features']}; huge pages: {machine['huge pages']}. {facts}."
    )


def _runs(run: dict[str, Any]) -> Cells:
    """Return one row for each part of a merged run: date, commit, cases, and the load of the machine."""
    head = ["date", "floatsim commit", "cases", "load before", "load after"]
    rows = [
        [part["date"], part["commit"], "all" if part["pattern"] == "*" else f"`{part['pattern']}`",
         *(f"{load:.2f}" for load in part["load"])]
        for part in run["parts"]
    ]  # fmt: skip
    return [head, *rows]


def _markdown_table(cells: Cells) -> str:
    head, *rows = cells
    lines = ["| " + " | ".join(head) + " |", "| --- " + "| ---: " * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def markdown(run: dict[str, Any]) -> str:
    """Return all tables of a run."""
    return _markdown(describe(run), tables(run))


def _markdown(text: str, found: Tables) -> str:
    parts = [text]
    for title, cells in found:
        parts += [f"### {title[0].upper()}{title[1:]}", _markdown_table(cells)]
    return "\n\n".join(parts)


def _columns(cells: Cells, names: dict[str, str]) -> Cells:
    """Return some columns of a table, under new names."""
    places = [cells[0].index(name) for name in names]
    return [list(names.values()), *([row[n] for n in places] for row in cells[1:])]


def instructions(run: dict[str, Any]) -> str:
    """Return the vector instructions of a run, or "" if they are neither AVX-512 nor AVX2."""
    features = run["machine"]["features"].split()
    return next((name for feature, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if feature in features), "")


def record_of(run: dict[str, Any]) -> str:
    """Return the name under which a whole run is stored."""
    return RECORDS.get(instructions(run), "latest")


def records() -> list[dict[str, Any]]:
    """Return the stored runs that the pages show."""
    return [load(name) for name in RECORDS.values() if (RESULTS / f"{name}.json").exists()]


def _beside(runs: list[dict[str, Any]], table: Callable[[dict[str, Any]], Cells], names: dict[str, str]) -> Cells:
    """Return the targets of several runs as one table: target and limit, and the other columns once for each run."""
    shared, other = list(names.values())[:2], list(names.values())[2:]
    titles = [f"{instructions(run)}, " * (len(runs) > 1) for run in runs]
    lines: dict[tuple[str, ...], list[list[str]]] = {}
    for n, run in enumerate(runs):
        for row in _columns(table(run), names)[1:]:
            lines.setdefault(tuple(row[:2]), [[""] * len(other) for _ in runs])[n] = row[2:]
    head = shared + [title + name for title in titles for name in other]
    return [head, *([*key, *(cell for part in parts for cell in part)] for key, parts in lines.items())]


def summary(runs: list[dict[str, Any]]) -> str:
    """Return the targets of stored runs, as docs/performance.md shows them."""
    found: Tables = []
    if any(run["cases"] or run["startup"] for run in runs):
        names = {"target": "target", "at least": "at least", "worst": _WORST, "where": "case", "holds": "met"}
        found.append(("Element-wise operations and start-up", _beside(runs, requirements, names)))
    if any(run["sums"] for run in runs):
        names = {"target": "target", "must": "limit", "worst": _WORST, "where": "case", "holds": "met"}
        found.append(("Matrix products and sums", _beside(runs, sum_targets, names)))
    head = ["instructions", *_runs(runs[0])[0]]
    found.append(("Runs", [head, *([instructions(run), *row] for run in runs for row in _runs(run)[1:])]))
    return _markdown("\n\n".join(map(describe, runs)), found)


_WORST = "worst of several runs"
_LEFT = ("who", "where", "target")


def show(run: dict[str, Any]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    for title, (head, *rows) in reversed(tables(run)):  # the targets last, where a terminal shows them
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


def merged(name: str, run: dict[str, Any]) -> dict[str, Any]:
    """Return the stored run `name` with the measurements of `run` in place of its own, or `run` if none is stored."""
    if not (RESULTS / f"{name}.json").exists():
        return run
    old = load(name)
    for fact in "machine", "versions", "quick":
        if old[fact] != run[fact]:
            raise ValueError(f"results/{name} has another {fact}: {old[fact]}, not {run[fact]}; give another --name")
    parts = {
        part: list(({item["name"]: item for item in old[part]} | {item["name"]: item for item in run[part]}).values())
        for part in ("cases", "sums")
    }
    return run | parts | {"startup": old["startup"] | run["startup"], "parts": old["parts"] + run["parts"]}


def quote(runs: list[dict[str, Any]]) -> str:
    """Return the targets of products and sums, and the machines, as README.md shows them."""
    names = {"target": "one thread, 512 x 512 x 512", "must": "target", "worst": _WORST}
    table = _markdown_table(_beside([run for run in runs if run["sums"]], _with_misses, names))
    parts = [(run["machine"]["cpu"], instructions(run), run["parts"][-1]) for run in runs]
    machines = [f"{cpu}, {vectors}, {part['date']}, commit {part['commit']}." for cpu, vectors, part in parts]
    return "\n\n".join([table, *machines])


def _with_misses(run: dict[str, Any]) -> Cells:
    """Return the targets of products and sums; the worst measurement says whether one missed."""
    head, *rows = sum_targets(run)
    worst, holds = head.index("worst"), head.index("holds")
    return [head, *([*row[:worst], row[worst] + ", missed" * ("**" in row[holds]), *row[worst + 1 :]] for row in rows)]


def write_docs() -> None:
    """Write the targets of the stored runs between the markers of docs/performance.md and of README.md."""
    runs = records()
    for page, text in ((DOCS, summary(runs)), (README, quote(runs))):
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
