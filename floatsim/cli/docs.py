"""`floatsim docs`: the pages of the documentation, which an installed package contains as Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from floatsim.cli.console import BadInputError, Json, print_columns, print_json, rich_console
from floatsim.formats._validation import name_hint

__all__ = ["docs_command", "folder", "page_names"]


def folder() -> Path:
    """Return the folder of the pages: `floatsim/data/docs` in an installed package, `docs` in a checkout.

    >>> (folder() / "glossary.md").is_file()
    True
    """
    package = Path(__file__).parents[1]
    installed = package / "data" / "docs"
    return installed if installed.is_dir() else package.parent / "docs"


def page_names() -> list[str]:
    """Return the names of the pages: "sums", "zh/tour".

    >>> "gpu-libraries" in page_names()
    True
    """
    return sorted(path.relative_to(folder()).with_suffix("").as_posix() for path in folder().rglob("*.md"))


def _title(text: str) -> str:
    """Return the first heading of a page. A link to another language may stand before it."""
    return next(line[2:] for line in text.splitlines() if line.startswith("# "))


def docs_command(
    page: Annotated[
        str | None, typer.Argument(help="A page, such as gpu-libraries. Default: list the pages.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Print a page of the documentation as Markdown, or list the pages.

    Messages of floatsim name pages in this way. The pages belong to the installed version, and need no network.
    """
    names = page_names()
    if page is None:
        titles = {name: _title(_text(name)) for name in names}
        if as_json:
            print_json({"folder": str(folder()), "pages": titles})
            return
        print_columns(rich_console(), [("page", "left"), ("title", "left")], list(titles.items()))
        return
    if page not in names:
        raise BadInputError(f"PAGE={page!r} is not known; {name_hint(page, names)}")
    if as_json:
        print_json({"page": page, "text": _text(page)})
    else:
        typer.echo(_text(page), nl=False)


def _text(name: str) -> str:
    return (folder() / f"{name}.md").read_text(encoding="utf-8")
