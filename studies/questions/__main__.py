"""`python -m studies.questions`: questions about low-precision training, with the numbers of each answer."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from studies.questions.question import Answer
from studies.questions.table import QUESTIONS, answer_questions


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m studies.questions", description=__doc__)
    parser.add_argument("names", nargs="*", help="names of questions, which --list prints; default: all")
    parser.add_argument("--list", action="store_true", help="print the names and the questions")
    parser.add_argument("--out", "-o", type=Path, help="folder for pictures, one for each question; default: none")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    if given.list:
        rows = [{"name": name, "question": each.text, "options": each.options} for name, each in QUESTIONS.items()]
        width = max(map(len, QUESTIONS))
        lines = [f"{row['name']:{width}}  {row['question']}" for row in rows]
        print(json.dumps(rows, indent=2) if given.json else "\n".join(lines))
        return
    if given.out is not None and not given.out.is_dir():
        parser.error(f"--out: there is no folder {given.out}")
    try:
        answers = answer_questions(given.names or None, progress=lambda names, text: tqdm(names, text, disable=None))
    except ValueError as error:
        parser.error(str(error))
    pictures = [] if given.out is None else [_draw(each, given.out) for each in answers]
    if given.json:
        print(json.dumps({"answers": [each.to_dict() for each in answers], "pictures": pictures}, indent=2))
    else:
        print("\n".join([*map(str, answers), *(f"picture: {file}" for file in pictures)]))


def _draw(answer: Answer, folder: Path) -> str:
    """Write the picture of an answer. Return the file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.2), dpi=120, layout="constrained")
    answer.plot(ax=figure.subplots())
    file = folder / f"{answer.name}.png"
    figure.savefig(file)
    return str(file.resolve())


if __name__ == "__main__":
    main(sys.argv[1:])
