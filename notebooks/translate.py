"""Chinese notebooks: the code of the English ones, with the texts that a reader sees translated.

`notebooks/zh/NN_name.py` has the same cells as `notebooks/NN_name.py`, and one more: the cell tagged "language" sets
the language of the pictures. Its text cells are written by hand. Its code is made here. `zh/strings.tsv` lists the
texts and comments in the code, and their translations. `run.py --update` writes the code before it runs the notebook.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import jupytext

HERE = Path(__file__).parent
CHINESE = HERE / "zh"
SOLUTION = re.compile(r"^```python\n.*?^```$", re.MULTILINE | re.DOTALL)


def original(path: Path) -> Path:
    """The source of the English notebook."""
    return HERE / path.name


def strings(name: str) -> list[tuple[str, str]]:
    """(English, Chinese) of each text in the code of a notebook, the longest first."""
    with (CHINESE / "strings.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return sorted(((a, b) for notebook, a, b in rows if notebook == name), key=lambda pair: -len(pair[0]))


def translated(code: str, pairs: list[tuple[str, str]]) -> str:
    """The code with its texts replaced.

    >>> translated('ax.set_title("sum")', [('"sum"', '"和"')])
    'ax.set_title("和")'
    """
    for english, chinese in pairs:
        code = code.replace(english, chinese)
    return code


def is_language(cell: Any) -> bool:
    """Whether a cell selects the language of the pictures."""
    return "language" in cell.metadata.get("tags", ())


def merged(path: Path) -> Any:
    """The notebook of a Chinese source, with the code and the solutions of the English one."""
    source, english = jupytext.read(path), jupytext.read(original(path))
    cells = [cell for cell in source.cells if not is_language(cell)]
    kinds, wanted = ([cell.cell_type for cell in some] for some in (cells, english.cells))
    if kinds != wanted:
        least = min(len(kinds), len(wanted))
        at = next((i for i in range(least) if kinds[i] != wanted[i]), least)
        raise ValueError(
            f"{path.name}: cell {at + 1} without the language's is not of the kind of {original(path).name}, which has "
            f"{len(wanted)} cells"
        )
    pairs = strings(path.stem)
    for mine, theirs in zip(cells, english.cells, strict=True):
        if mine.cell_type == "code":
            mine.source, mine.metadata = translated(theirs.source, pairs), theirs.metadata
        else:
            solutions = iter(SOLUTION.findall(theirs.source))
            mine.source = SOLUTION.sub(lambda m, found=solutions: next(found, m[0]), mine.source)
    return source


def write_code(path: Path) -> None:
    """Write the code of the English notebook into the Chinese source."""
    text = jupytext.writes(merged(path), fmt="py:percent")
    head = re.match(r"# ---\n.*?# ---\n", path.read_text(encoding="utf-8"), re.DOTALL)[0]
    path.write_text(head + re.sub(r"\A# ---\n.*?# ---\n", "", text, flags=re.DOTALL), encoding="utf-8")
