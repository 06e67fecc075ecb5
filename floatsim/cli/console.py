"""Functions that all commands share: the console, JSON output, progress bars, and errors about bad input."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floatsim.formats import FloatFormat, as_format

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "BAD_INPUT", "DIFFERENT", "EXIT_CODES", "FAILED", "BadInputError", "Json", "bad_input", "finish", "json_value",
    "named_format", "named_formats_of", "one_line", "print_columns", "print_json", "rich_console", "split",
    "track",
]  # fmt: skip

DIFFERENT, BAD_INPUT, FAILED = 1, 2, 3
"""The exit codes other than 0: something differs; bad input, or no device; a row could not run, or an unhandled
error."""

EXIT_CODES = (
    "Exit codes: 0 all equal, 1 something differs, 2 bad input or no GPU, 3 a row could not run, or an unhandled "
    "error. A difference outranks a row that could not run."
)

Json = Annotated[bool, typer.Option("--json", help="Write JSON to stdout, and nothing else.")]


class BadInputError(Exception):
    """Bad input of the user. The message names the input, and gives a valid one."""


def rich_console(*, error: bool = False) -> Console:
    """Return Rich's console. If the output is not a terminal, it is at least 120 columns wide, for the tables."""
    from rich.console import Console

    console = Console(stderr=error, highlight=False, markup=False)
    if not console.is_terminal:
        console.width = max(120, console.width)
    return console


_GAP = 2  # spaces after a column


def print_columns(console: Console, heads: Sequence[tuple[str, Any]], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table whose cells are never cut.

    Columns that do not fit the console follow in further tables, which repeat the first column. A cell that is wider
    than the rest of the console continues in the next line.

    Parameters
    ----------
    console : Console
        Where to print.
    heads : sequence of (str, str)
        The heading of each column, which may have several lines, and "left" or "right".
    rows : sequence of sequences of str or Text
        The cells of each row.
    """
    from rich.cells import cell_len
    from rich.table import Table

    widths = [
        max(cell_len(line) for cell in (head, *(row[n] for row in rows)) for line in str(cell).splitlines() or [""])
        + _GAP
        for n, (head, _) in enumerate(heads)
    ]
    groups: list[list[int]] = [[0]]
    for n in range(1, len(heads)):
        if len(groups[-1]) > 1 and sum(widths[k] for k in [*groups[-1], n]) - _GAP > console.width:
            groups.append([0])
        groups[-1].append(n)
    for number, group in enumerate(groups):
        fits = sum(widths[n] for n in group) - _GAP <= console.width
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
        for n in group:
            table.add_column(heads[n][0], justify=heads[n][1], vertical="bottom", no_wrap=fits, overflow="fold")
        for row in rows:
            table.add_row(*(row[n] for n in group))
        if number:
            console.print()
        console.print(table)


def json_value(value: Any) -> Any:
    """Return the value in JSON types, with NaN and infinities as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: json_value(item) for key, item in value.items()}
    return [json_value(item) for item in value] if isinstance(value, list | tuple) else value


def print_json(value: Any) -> None:
    """Print the value as JSON on stdout, with NaN and infinities as text."""
    print(json.dumps(json_value(value), indent=2, allow_nan=False))


def bad_input(error: Exception) -> BadInputError:
    """Return a function's error about its arguments as an error about the command's options."""
    text = re.sub(r"^x is not", "VALUE is not", one_line(error))
    text = re.sub(r"\bproducts(?= must|:|=)", "--multiply", text).replace("--multiply='", "--multiply '")
    return BadInputError(re.sub(r"needs a seed: .*", "needs a seed: add --seed 1, or any other integer", text))


def finish(*, differ: bool, failed: bool) -> None:
    """Exit with `DIFFERENT` or `FAILED`. Return if nothing differs and every row could run."""
    if differ or failed:
        raise typer.Exit(DIFFERENT if differ else FAILED)


def one_line(error: object) -> str:
    """Return the text of an error without line breaks."""
    return " ".join(str(error).split())


def named_format(text: str, option: str) -> FloatFormat:
    """Return the format of this name. Raise `BadInputError` with the option's name if there is none."""
    try:
        return as_format(text)
    except ValueError as error:
        raise BadInputError(f"{option}: {error}") from None


def named_formats_of(texts: Sequence[str], option: str) -> list[FloatFormat]:
    """Return formats, each given alone or separated by commas. "ieee(4,3)" stays whole."""
    names: list[str] = []
    for text in texts:
        names += split(text)
    return [named_format(name, option) for name in names]


def split(text: str) -> list[str]:
    """Split a text at the commas outside parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def track(tasks: Sequence[Any], description: str = "multiplying") -> Iterator[Any]:
    """Yield the tasks, with a progress bar on stderr if that is a terminal."""
    from rich.progress import Progress

    stderr = rich_console(error=True)
    # Rich prints stdout through stderr while a bar is shown. A stdout that is no terminal must stay apart.
    redirect = sys.stdout.isatty()
    disable = not stderr.is_terminal
    with Progress(console=stderr, transient=True, disable=disable, redirect_stdout=redirect) as progress:
        yield from progress.track(tasks, description=description)
