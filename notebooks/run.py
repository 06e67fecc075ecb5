"""Run the notebooks, and keep each pair one: `NN_name.py`, which is edited, and `NN_name.ipynb`, which is read.

    python notebooks/run.py                       run all, and compare what comes out with what is stored
    python notebooks/run.py 01_bits               only this one
    python notebooks/run.py --update              run those that are stale, and store what comes out
    python notebooks/run.py --update 01_bits ...  run these, and store what comes out

nbmake runs copies in a folder elsewhere, so that a notebook that only works in its own folder fails. Text is compared,
pictures are not: fonts and libraries draw differently. Of the cell tagged "picture", the picture is also kept as
`docs/pictures/NN_name.png`. Solutions stand in `<details>` as examples with prompts; they are run after the last cell,
and `--update` writes below each prompt what it printed. Needs `pip install -e ".[notebooks]"`.
"""

from __future__ import annotations

import argparse
import base64
import doctest
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbformat

HERE = Path(__file__).parent
PICTURES = HERE.parent / "docs" / "pictures"
BLOCK = re.compile(r"(?<=^```python\n)>>> .*?(?=^```$)", re.MULTILINE | re.DOTALL)

WIDGET = "application/vnd.jupyter.widget-view+json"
NO_WIDGET = "[Sliders. They appear here when the notebook is run where ipywidgets is installed.]"
METADATA = {
    "jupytext": {"formats": "ipynb,py:percent"},
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
}

# Runs examples as doctest would, in the notebook's own names, and prints what each has printed.
EXAMPLES = """
import contextlib as _contextlib, io as _io, json as _json, sys as _sys
_printed, _hook = [], _sys.displayhook
for _source in {sources}:
    with _contextlib.redirect_stdout(_io.StringIO()) as _text:
        _sys.displayhook = _sys.__displayhook__
        try:
            exec(compile(_source, "<solution>", "single"))
        finally:
            _sys.displayhook = _hook
    _printed.append(_text.getvalue())
print(_json.dumps(_printed))
"""


def sources() -> list[Path]:
    """The notebooks' sources, in order."""
    return sorted(HERE.glob("[0-9][0-9]_*.py"))


# -- pairs ---------------------------------------------------------------------------------------------------------


def differences(source: Any, executed: Any) -> Iterator[str]:
    """What is wrong with a pair, in words; nothing if `executed` is `source` after a run without errors."""
    mine, theirs = ([(c.cell_type, c.source, _marks(c)) for c in nb.cells] for nb in (source, executed))
    if mine != theirs:
        at = next(
            (i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs))
        )
        yield f"cell {at + 1} is not that of the source"
    for number, cell in enumerate(executed.cells, 1):
        if cell.cell_type == "code":
            if cell.execution_count is None:
                yield f"cell {number} has not been run"
            for output in cell.outputs:
                if output.output_type == "error":
                    yield f"cell {number} ended in an error: {output.ename}: {output.evalue}"
                elif output.get("name") == "stderr":
                    yield f"cell {number} wrote to stderr: {output.text.strip()}"


def _marks(cell: Any) -> tuple[Any, ...]:
    """What of a cell's metadata belongs to its source."""
    return tuple(cell.metadata.get("tags", ())), cell.metadata.get("jupyter", {}).get("source_hidden", False)


def stale(path: Path) -> list[str]:
    """Why the pair of this source is stale, or nothing."""
    notebook = path.with_suffix(".ipynb")
    if not notebook.exists():
        return [f"{notebook.name} is missing"]
    executed = nbformat.read(notebook, as_version=4)
    found = list(differences(jupytext.read(path), executed))
    picture = PICTURES / f"{path.stem}.png"
    if picture_of(executed) != (picture.read_bytes() if picture.exists() else None):
        found.append(f"{picture.name} is not the picture of the cell tagged 'picture'")
    return found


def picture_of(executed: Any) -> bytes | None:
    """The picture that the cell tagged "picture" has drawn, as PNG."""
    for cell in executed.cells:
        if "picture" in cell.metadata.get("tags", ()):
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    return base64.b64decode(output.data["image/png"])
    return None


# -- solutions -----------------------------------------------------------------------------------------------------


def examples(cell: Any) -> list[doctest.Example]:
    """The examples of a cell of text, in order."""
    blocks = BLOCK.findall(cell.source) if cell.cell_type == "markdown" else []
    return [example for block in blocks for example in doctest.DocTestParser().get_examples(block)]


def with_outputs(text: str, printed: Iterable[str]) -> str:
    """The text, with what they have printed below its examples."""
    outputs = iter(printed)

    def written(block: re.Match[str]) -> str:
        lines = []
        for example in doctest.DocTestParser().get_examples(block[0]):
            first, *more = example.source.rstrip("\n").split("\n")
            lines += [f">>> {first}", *(f"... {line}".rstrip() for line in more), *next(outputs).splitlines()]
        return "\n".join(lines) + "\n"

    return BLOCK.sub(written, text)


# -- running -------------------------------------------------------------------------------------------------------


def stage(paths: Iterable[Path], folder: Path) -> None:
    """Copies to be run, with the solutions as one last cell."""
    for path in paths:
        notebook = jupytext.read(path)
        notebook.metadata = nbformat.from_dict(METADATA)
        found = [example.source for cell in notebook.cells for example in examples(cell)]
        notebook.cells.append(nbformat.v4.new_code_cell(EXAMPLES.format(sources=json.dumps(found))))
        nbformat.write(notebook, folder / f"{path.stem}.ipynb")


def execute(folder: Path, jobs: int) -> int:
    """Runs the copies in that folder; pytest's exit code."""
    unwanted = ("MPLBACKEND", "FLOATSIM_SILICON")  # what is stored is what those see who have no recordings
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    options = ["--nbmake", "--overwrite", "--nbmake-timeout=300", "--durations=0", "--durations-min=1"]
    command = [sys.executable, "-m", "pytest", "-n", str(jobs), "-p", "no:cacheprovider", *options, str(folder)]
    return subprocess.run(command, env=environment, cwd=folder, check=False).returncode


def result(path: Path) -> tuple[Any, list[str]]:
    """The notebook as it has been run, tidy; and what the solutions have printed."""
    notebook = nbformat.read(path, as_version=4)
    printed: list[str] = json.loads(notebook.cells.pop().outputs[-1].text)
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number:02}"
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = whole(filter(None, map(without_widget, cell.outputs)))
    return notebook, printed


def without_widget(output: Any) -> Any:
    """The output, if it is no widget; of sliders a line of text; of others, progress bars that is, nothing.

    Bars come and go with the machine's speed. (In notebooks tqdm does not obey its TQDM_DISABLE.)
    """
    data = output.get("data", {})
    if WIDGET not in data:
        return output
    if not data.get("text/plain", "").startswith("interactive("):
        return None
    output.data = {"text/plain": NO_WIDGET}
    return output


def whole(outputs: Iterable[Any]) -> list[Any]:
    """The outputs, with what was printed in one piece: where the kernel cuts it is chance."""
    found: list[Any] = []
    for output in outputs:
        if found and "text" in output and output.get("name") == found[-1].get("name"):
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def texts(notebook: Any) -> list[list[str]]:
    """Cell by cell, the words that have been printed or shown."""
    found = []
    for cell in notebook.cells:
        words = []
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" not in data:
                words += [output.text] if "text" in output else [data[kind] for kind in sorted(data)]
        found.append(words)
    return found


def update(path: Path, notebook: Any, printed: list[str]) -> None:
    """Stores what came out: the executed notebook, its picture, and the solutions' outputs in both files."""
    source = path.read_text(encoding="utf-8")
    for cell in notebook.cells:
        if count := len(examples(cell)):
            old, cell.source = cell.source, with_outputs(cell.source, printed[:count])
            printed = printed[count:]
            source = source.replace(_commented(old), _commented(cell.source))
    path.write_text(source, encoding="utf-8")
    nbformat.write(notebook, path.with_suffix(".ipynb"))
    if (picture := picture_of(notebook)) is not None:
        PICTURES.mkdir(exist_ok=True)
        (PICTURES / f"{path.stem}.png").write_bytes(picture)


def _commented(text: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in text.split("\n"))


def compare(path: Path, notebook: Any, printed: list[str]) -> list[str]:
    """Where the run and what is stored differ, in words."""
    wanted = [example.want for cell in notebook.cells for example in examples(cell)]
    found = [f"solution: {want!r} is written, but {got!r} is printed"
             for want, got in zip(wanted, printed, strict=True) if want != got]  # fmt: skip
    stored = path.with_suffix(".ipynb")
    if not stored.exists():
        return [*found, f"{stored.name} is missing"]
    pairs = enumerate(zip(texts(nbformat.read(stored, as_version=4)), texts(notebook), strict=False), 1)
    return found + [f"cell {i}: stored {old}, now {new}" for i, (old, new) in pairs if old != new]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the notebooks; compare with what is stored, or store it.")
    parser.add_argument("names", nargs="*", help="such as 01_bits; default: all, or with --update those that are stale")
    parser.add_argument("--update", action="store_true", help="store what comes out")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default: 2)")
    options = parser.parse_args()
    known = {path.stem: path for path in sources()}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no notebook is called {', '.join(unknown)}; there are {', '.join(known)}")
    paths = [known[name] for name in options.names or known]
    if options.update and not options.names:
        paths = [path for path in paths if stale(path)]
        if not paths:
            print("No notebook is stale. Name one to run it all the same.")
            return 0
    complaints = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stage(paths, folder)
        if failed := execute(folder, min(options.jobs, len(paths))):
            return failed
        for path in paths:
            ran = result(folder / f"{path.stem}.ipynb")
            if options.update:
                update(path, *ran)
            else:
                complaints += [f"{path.name}: {words}" for words in compare(path, *ran)]
            complaints += [f"{path.name}: {words}" for words in stale(path)]
    if complaints:
        print(*complaints, "`make notebooks-update` stores what comes out.", sep="\n")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
