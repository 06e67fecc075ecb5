"""`floatsim explorer`: write the page of the explorer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from floatsim.cli.console import BadInputError, Json, bad_input, print_json

__all__ = ["explorer_command"]


def explorer_command(
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("explorer.html"),
    language: Annotated[str, typer.Option(help="The language at the start: en or zh.")] = "en",
    theme: Annotated[str, typer.Option(help="The colours at the start: auto, light, dark or projector.")] = "auto",
    as_json: Json = False,
) -> None:
    """Write a page to click: bits, operations, sums, a Tensor Core's dot product, block scales. It works offline."""
    from floatsim.explorer import page_html

    try:
        html = page_html(language, theme)
    except ValueError as error:
        raise bad_input(error) from None
    try:
        out.write_text(html, encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"--out: {out} cannot be written: {error.strerror}") from None
    size = len(html.encode())
    if as_json:
        print_json({"page": str(out.resolve()), "bytes": size})
    else:
        print(f"page: {out.resolve()} ({size // 1000} KB); open it in a browser")
