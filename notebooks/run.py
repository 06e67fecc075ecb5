"""Run the notebooks, and keep each pair equal: `NN_name.py`, the source, and `NN_name.ipynb`, the executed notebook.

    python notebooks/run.py                       run all, and compare the outputs with the stored ones
    python notebooks/run.py 01_bits               run only this one
    python notebooks/run.py --update              run all stale notebooks, and store the outputs
    python notebooks/run.py --update 01_bits ...  run these, and store the outputs

Chinese notebooks are called `zh/01_bits`. Their code is that of the English ones (`translate.py`), so they run only if
they are named, or stale under `--update`.

nbmake runs copies in a temporary folder, so a notebook that depends on its own folder fails. Text is compared. Pictures
are not compared, because fonts and library versions change them; they are stored with 150 dots per inch. The picture of
the cell tagged "picture" is also stored as `docs/pictures/NN_name.png`. Solutions are examples with prompts inside
`<details>`. They run after the last cell, and `--update` writes the output of each below its prompt. Needs
`pip install -e ".[notebooks]"`.
"""

from __future__ import annotations

import argparse
import base64
import doctest
import importlib.util
import io
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
from PIL import Image

sys.path.append(str(Path(__file__).parents[1]))

from notebooks import translate

HERE = Path(__file__).parent
PICTURES = HERE.parent / "docs" / "pictures"
NEEDS = {"07_pytorch": "torch", "09_twin": "torch"}
"""The notebooks that import an optional library. Without it, they do not run."""
BLOCK = re.compile(r"(?<=^```python\n)>>> .*?(?=^```$)", re.MULTILINE | re.DOTALL)

WIDGET = "application/vnd.jupyter.widget-view+json"
NO_WIDGET = "[Controls for {}: they appear here when the notebook runs with ipywidgets.]"
DRAWING = "figure.dpi: 150\n"  # matplotlibrc of the stored pictures
METADATA = {
    "jupytext": {"formats": "ipynb,py:percent"},
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
}

# Runs examples as doctest does, with the names of the notebook, and prints the output of each.
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


def absent() -> dict[str, str]:
    """The notebooks that cannot run here, with the library that each needs."""
    return {name: library for name, library in NEEDS.items() if importlib.util.find_spec(library) is None}


def sources() -> list[Path]:
    """The sources of the English notebooks, in order."""
    return sorted(HERE.glob("[0-9][0-9]_*.py"))


def translations() -> list[Path]:
    """The sources of the Chinese notebooks, in order."""
    return sorted(translate.CHINESE.glob("[0-9][0-9]_*.py"))


def name_of(path: Path) -> str:
    """The name of a notebook, such as "01_bits" or "zh/01_bits"."""
    return f"zh/{path.stem}" if path.parent.name == "zh" else path.stem


def copy_of(path: Path, folder: Path) -> Path:
    """The copy of a notebook that runs."""
    return folder / f"{name_of(path).replace('/', '-')}.ipynb"


def picture_file(path: Path) -> Path:
    """The file of the picture of a notebook."""
    return PICTURES / f"{name_of(path)}.png"


# -- pairs ---------------------------------------------------------------------------------------------------------


def differences(source: Any, executed: Any) -> Iterator[str]:
    """The faults of a pair as text; none if `executed` is `source` after a run without errors."""
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
    """The part of a cell's metadata that belongs to its source."""
    return tuple(cell.metadata.get("tags", ())), cell.metadata.get("jupyter", {}).get("source_hidden", False)


def stale(path: Path) -> list[str]:
    """The reasons why the pair of this source is stale; empty if it is not."""
    notebook = path.with_suffix(".ipynb")
    if not notebook.exists():
        return [f"{notebook.name} is missing"]
    executed = nbformat.read(notebook, as_version=4)
    source = translate.merged(path) if path in translations() else jupytext.read(path)
    found = list(differences(source, executed))
    picture = picture_file(path)
    if picture_of(executed) != (picture.read_bytes() if picture.exists() else None):
        found.append(f"{picture.name} is not the picture of the cell tagged 'picture'")
    return found


def picture_of(executed: Any) -> bytes | None:
    """The picture of the cell tagged "picture", as PNG."""
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
    """The text, with the printed outputs below its examples."""
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
    """Write copies to run, with the solutions as one last cell, and the settings of their pictures."""
    (folder / "matplotlibrc").write_text(DRAWING, encoding="utf-8")
    for path in paths:
        notebook = jupytext.read(path)
        notebook.metadata = nbformat.from_dict(METADATA)
        found = [example.source for cell in notebook.cells for example in examples(cell)]
        notebook.cells.append(nbformat.v4.new_code_cell(EXAMPLES.format(sources=json.dumps(found))))
        nbformat.write(notebook, copy_of(path, folder))


def execute(folder: Path, jobs: int) -> int:
    """Run the copies in the folder; pytest's exit code.

    With two jobs a Jupyter kernel and its client waited for each other in some environments. With one job nbclient can
    miss the reply of a cell with controls. It then waits for the time limit, without an error (November 2026).
    """
    unwanted = ("MPLBACKEND", "MATPLOTLIBRC", "FLOATSIM_SILICON")  # the stored outputs are those without captures
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    environment["FLOATSIM_PROGRESS"] = "0"  # lines and bars depend on what is compiled, and on the machine
    options = ["--nbmake", "--overwrite", "--nbmake-timeout=300", "--durations=0", "--durations-min=1"]
    command = [sys.executable, "-m", "pytest", "-n", str(jobs), "-p", "no:cacheprovider", *options, str(folder)]
    return subprocess.run(command, env=environment, cwd=folder, check=False).returncode


def result(path: Path) -> tuple[Any, list[str]]:
    """The executed notebook without volatile parts, and the outputs of the solutions."""
    notebook = nbformat.read(path, as_version=4)
    printed: list[str] = json.loads(whole(notebook.cells.pop().outputs)[-1].text)
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number:02}"
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = whole(kept for output in cell.outputs for kept in without_widget(output))
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    output.data["image/png"] = compressed(output.data["image/png"])
    return notebook, printed


def compressed(png: str) -> str:
    """The picture, base64-encoded, with a palette of 256 colours: about a third of the size, and no visible change."""
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    small = io.BytesIO()
    picture.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE).save(
        small, "PNG", optimize=True
    )
    return base64.b64encode(small.getvalue()).decode("ascii")


def without_widget(output: Any) -> list[Any]:
    """The outputs to store for an output: itself, or for a widget its static part and a note.

    Other widgets are progress bars, and are left out: they depend on the machine's speed. (In notebooks, tqdm ignores
    TQDM_DISABLE.)
    """
    data = output.get("data", {})
    if WIDGET not in data:
        return [output]
    controls = output.metadata.pop("floatsim", {}).get("controls")
    if controls is None:
        return []
    del data[WIDGET]
    note = nbformat.v4.new_output("display_data", {"text/plain": NO_WIDGET.format(", ".join(controls))})
    return [output, note]


def whole(outputs: Iterable[Any]) -> list[Any]:
    """The outputs, with consecutive printed texts joined: the kernel splits them at random places."""
    found: list[Any] = []
    for output in outputs:
        if found and "text" in output and output.get("name") == found[-1].get("name"):
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def texts(notebook: Any) -> list[list[str]]:
    """The printed or shown text of each cell."""
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
    """Store the executed notebook, its picture, and the solutions' outputs in both files."""
    source = path.read_text(encoding="utf-8")
    for cell in notebook.cells:
        if count := len(examples(cell)):
            old, cell.source = cell.source, with_outputs(cell.source, printed[:count])
            printed = printed[count:]
            source = source.replace(_commented(old), _commented(cell.source))
    path.write_text(source, encoding="utf-8")
    nbformat.write(notebook, path.with_suffix(".ipynb"))
    if (picture := picture_of(notebook)) is not None:
        picture_file(path).parent.mkdir(parents=True, exist_ok=True)
        picture_file(path).write_bytes(picture)


def _commented(text: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in text.split("\n"))


def compare(path: Path, notebook: Any, printed: list[str]) -> list[str]:
    """The differences between the run and the stored outputs, as text."""
    wanted = [example.want for cell in notebook.cells for example in examples(cell)]
    found = [f"solution: stored {want!r}, now {got!r}"
             for want, got in zip(wanted, printed, strict=True) if want != got]  # fmt: skip
    stored = path.with_suffix(".ipynb")
    if not stored.exists():
        return [*found, f"{stored.name} is missing"]
    pairs = enumerate(zip(texts(nbformat.read(stored, as_version=4)), texts(notebook), strict=False), 1)
    return found + [f"cell {i}: stored {old}, now {new}" for i, (old, new) in pairs if old != new]


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Run the notebooks; compare the outputs with the stored ones, or store them."
    )
    parser.add_argument("names", nargs="*", help="such as 01_bits; default: all, or with --update all stale ones")
    parser.add_argument("--update", action="store_true", help="store the outputs")
    parser.add_argument("--jobs", type=int, default=1, help="number of notebooks that run at a time (default: 1)")
    options = parser.parse_args()
    known = {name_of(path): path for path in (*sources(), *translations())}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no notebook is called {', '.join(unknown)}; known are {', '.join(known)}")
    unable = {name: library for name in known if (library := absent().get(name.rpartition("/")[2]))}
    if named := [name for name in options.names if name in unable]:
        parser.error(f"{named[0]} needs {unable[named[0]]}: pip install -e '.[{unable[named[0]]}]'")
    for name, library in unable.items() if not options.names else ():
        print(f"{name} is not run: it needs {library}")
    chosen = options.names or [name for name in known if options.update or "/" not in name]
    paths = [known[name] for name in chosen if name not in unable]
    if options.update and not options.names:
        paths = [path for path in paths if stale(path)]
        if not paths:
            print("No notebook is stale. Name one to run it anyway.")
            return 0
    for path in paths if options.update else ():
        if path in translations():
            translate.write_code(path)
    complaints = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stage(paths, folder)
        if failed := execute(folder, min(options.jobs, len(paths))):
            return failed
        for path in paths:
            ran = result(copy_of(path, folder))
            if options.update:
                update(path, *ran)
            else:
                complaints += [f"{name_of(path)}: {words}" for words in compare(path, *ran)]
            complaints += [f"{name_of(path)}: {words}" for words in stale(path)]
    if complaints:
        print(*complaints, "`make notebooks-update` stores the outputs.", sep="\n")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
