"""`floatsim questions`: questions about low-precision training, computed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from floatsim.cli.console import BadInputError, Json, one_line, print_json, rich_console, track
from floatsim.training import QUESTIONS, Answer, answer_questions

__all__ = ["questions_command"]


def questions_command(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of questions; --list prints them. Default: all.",
                                         show_default=False)
    ] = None,
    list_questions: Annotated[bool, typer.Option("--list", help="Print the names and the questions.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for pictures, one for each question. Default: none.")
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compute the answers to questions about low-precision training. Print each with its numbers; draw them."""
    if list_questions:
        rows = [{"name": name, "question": each.text, "options": each.options} for name, each in QUESTIONS.items()]
        if as_json:
            print_json(rows)
            return
        width = max(map(len, QUESTIONS))
        for name, each in QUESTIONS.items():
            rich_console().print(f"{name:{width}}  {each.text}", soft_wrap=True)
        return
    if out is not None and not out.is_dir():
        raise BadInputError(f"--out: there is no folder {out}")
    try:
        answers = answer_questions(names or None, progress=track)
    except ValueError as error:
        raise BadInputError(one_line(error)) from None
    pictures = [] if out is None else _draw(answers, out)
    if as_json:
        print_json({"answers": [each.to_dict() for each in answers], "pictures": pictures})
        return
    console = rich_console()
    for answer in answers:
        console.print(str(answer), soft_wrap=True)
    for picture in pictures:
        console.print(f"picture: {picture}", soft_wrap=True)


def _draw(answers: list[Answer], folder: Path) -> list[str]:
    """Write the picture of each answer. Return the files."""
    from matplotlib.figure import Figure

    from floatsim.plot import answer_chart

    files = []
    for each in answers:
        figure = Figure(figsize=(9, 4.2), dpi=120, layout="constrained")
        answer_chart(each, ax=figure.subplots())
        file = folder / f"{each.name}.png"
        try:
            figure.savefig(file)
        except OSError as error:
            raise BadInputError(f"--out: {file} cannot be written: {error.strerror}") from None
        files.append(str(file.resolve()))
    return files
