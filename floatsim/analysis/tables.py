"""Tables of results as text and as HTML, and the patterns that select their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from html import escape
from typing import Any

from floatsim._extras import install_command

__all__ = ["data_frame", "fits", "html_table", "text_table"]


def fits(pattern: str, names: Iterable[str]) -> bool:
    """Return whether one of the names fits one of the alternatives of a pattern.

    Parameters
    ----------
    pattern : str
        Names with "*", "?" and "[...]" as in a shell, and alternatives with "|" between them.
    names : iterable of str
        The names.

    Returns
    -------
    bool

    Examples
    --------
    >>> fits("head.*|*.norm", ["blocks.0.norm"]), fits("head.*", ["blocks.0.head.weight"])
    (True, False)
    """
    return any(fnmatchcase(name, each.strip()) for name in names for each in pattern.split("|"))


def text_table(rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """Return rows of cells as lines with aligned columns.

    Parameters
    ----------
    rows : sequence of sequences of str
        The first row is the head. All rows have as many cells.
    texts : int
        The first columns, which are aligned to the left. The others are numbers, aligned to the right.

    Returns
    -------
    str

    Examples
    --------
    >>> print(text_table([("layer", "error"), ("head", "1e-3"), ("0", "0.25")]))
    layer  error
    head    1e-3
    0       0.25
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(width) if i < texts else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
    return "\n".join(lines)


def html_table(rows: Sequence[Sequence[str]], notes: Iterable[str] = ()) -> str:
    """Return rows of cells as an HTML table, the first one as its head, and notes as a list below it.

    >>> html_table([("a",), ("1 < 2",)], ["a note"])
    '<table><tr><th>a</th></tr><tr><td>1 &lt; 2</td></tr></table><ul><li>a note</li></ul>'
    """
    head, *body = rows
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body)
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<table><tr>{cells}</tr>{lines}</table>" + (f"<ul>{items}</ul>" if items else "")


def data_frame(records: Sequence[dict[str, Any]], columns: Sequence[str]) -> Any:
    """Return dicts as a pandas DataFrame with these columns. Raise an ImportError that says what to install.

    >>> data_frame([{"a": 1}], ["a"]).values.tolist()
    [[1]]
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"to_pandas() needs pandas: {install_command('pandas')}") from error
    return pandas.DataFrame(list(records), columns=list(columns))
