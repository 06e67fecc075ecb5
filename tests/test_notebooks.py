"""The stored notebooks: pairs are equal, executed and self-contained. `make notebooks` runs them."""

from __future__ import annotations

import base64
import io
import json
import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

jupytext = pytest.importorskip("jupytext")

import nbformat  # noqa: E402

from notebooks import run  # noqa: E402

pytestmark = pytest.mark.versions

ROOT = Path(__file__).parents[1]
SOURCES = run.sources()
ELSEWHERE = re.compile(
    r"/(?:home|Users|root|tmp|work|usr|opt|var)/|[A-Z]:\\|site-packages|File <?ipython|https?://[^/\s]*:\d"
)

each = pytest.mark.parametrize("path", SOURCES, ids=run.name_of)
each_of_both = pytest.mark.parametrize("path", [*SOURCES, *run.translations()], ids=run.name_of)


def stored(path):
    return nbformat.read(path.with_suffix(".ipynb"), as_version=4)


def test_there_are_notebooks():
    assert [path.stem[:2] for path in SOURCES] == [f"{n:02}" for n in range(1, len(SOURCES) + 1)]
    assert {path.stem for path in SOURCES} == {path.stem for path in run.HERE.glob("*.ipynb")}
    assert {path.name for path in run.translations()} <= {path.name for path in SOURCES}


@each_of_both
def test_pair_is_not_stale(path):
    assert not run.stale(path), "`make notebooks-update` runs stale notebooks and stores their outputs"


@each_of_both
def test_stored_notebook_is_small_and_names_no_machine(path):
    text = path.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert len(text) < 1_500_000
    notebook = stored(path)
    assert nbformat.validate(notebook) is None
    words = [word for cell in run.texts(notebook) for word in cell] + [cell.source for cell in notebook.cells]
    for word in words:
        assert not ELSEWHERE.search(word), word
        assert not re.search(r"(?<!\w)(Text\(|<matplotlib\.|<Axes)", word), f"the output of a last line: {word}"


@each_of_both
def test_opens_with_its_question_and_ends_with_three_exercises(path):
    cells = jupytext.read(path).cells
    assert re.match(r"# \d+\. .*[?？]$", cells[0].source.split("\n")[0])
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert re.findall(r"^\*\*(?:Exercise|练习) (\d)", text, re.MULTILINE) == ["1", "2", "3"]
    folded = re.findall(r"<details>\n<summary>.*?</summary>\n\n(.*?)\n\n</details>", text, re.DOTALL)
    assert len(folded) == text.count("<details>") == 3
    assert all(run.BLOCK.search(solution) for solution in folded)


@each_of_both
def test_answers_are_checked(path):
    """A cell checks the answers, all of which are open. Each solution ends with an answer that is correct."""
    notebook = stored(path)
    (checked,) = (cell for cell in notebook.cells if "check_answers(answers, DIGESTS)" in cell.source)
    assert checked.outputs[0].text == "".join(f"exercise {n}: no answer yet\n" for n in (1, 2, 3))
    found = [run.examples(cell) for cell in notebook.cells]
    last = [example for examples in found for example in examples if "check_answers(" in example.source]
    assert [example.want for example in last] == [f"exercise {n}: correct\n" for n in (1, 2, 3)]


@each_of_both
def test_the_picture_for_a_slide_has_a_title(path):
    (cell,) = (cell for cell in stored(path).cells if "picture" in cell.metadata.get("tags", ()))
    assert re.search(r"title=|set_title\(|report(\(\))?\.plot\(\)", cell.source)  # the plots of reports have a title


@each_of_both
def test_has_a_picture_for_a_slide(path):
    assert run.picture_of(stored(path)) is not None


def png_size(data):
    """(width, height) in pixels."""
    assert data.startswith(b"\x89PNG")
    return struct.unpack(">II", data[16:24])


@each_of_both
def test_pictures_are_sharp(path):
    """Each picture has at least 600 pixels across, and each call of `explore` leaves one, or a text."""
    outputs = [(cell, output) for cell in stored(path).cells for output in cell.get("outputs", ())]
    pictures = [base64.b64decode(o.data["image/png"]) for _, o in outputs if "image/png" in o.get("data", {})]
    assert pictures
    assert min(png_size(data)[0] for data in pictures) >= 600
    for cell in stored(path).cells:
        if "plot.explore(" in cell.source and cell.cell_type == "code":
            static, note = cell.outputs
            assert "image/png" in static.data or static.data["text/plain"].count("\n") > 5
            assert note.data["text/plain"].startswith("[Controls for ")


def test_copies_are_drawn_with_150_dots_per_inch(tmp_path):
    run.stage([], tmp_path)
    assert (tmp_path / "matplotlibrc").read_text() == "figure.dpi: 150\n"


@each
def test_is_in_the_index_with_its_question(path):
    question = jupytext.read(path).cells[0].source.split("\n")[0].partition(". ")[2]
    assert re.search(
        rf"\]\({path.stem}\.ipynb\) \| {re.escape(question)} \|", (run.HERE / "README.md").read_text("utf-8")
    )


def title(path):
    """The number and the question of a notebook."""
    return jupytext.read(path).cells[0].source.split("\n")[0].removeprefix("# ")


@each
def test_leads_to_the_next_notebook(path):
    text = "\n".join(cell.source for cell in jupytext.read(path).cells if cell.cell_type == "markdown")
    following = SOURCES[SOURCES.index(path) + 1 :][:1]
    assert re.findall(r"^Next: (.*)$", text, re.MULTILINE) == [f"[{title(n)}]({n.stem}.ipynb)" for n in following]


@each_of_both
def test_links_lead_somewhere(path):
    text = "\n".join(cell.source for cell in jupytext.read(path).cells if cell.cell_type == "markdown")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        assert re.match(r"https?:|#", target) or (path.parent / target.partition("#")[0]).exists(), target


@each_of_both
def test_uses_public_names_only(path):
    code = "\n".join(cell.source for cell in jupytext.read(path).cells if cell.cell_type == "code")
    assert not re.search(r"\b(?:fs|plot|floatsim)(?:\.\w+)*\._\w", code)
    assert "floatsim_kernels" not in code


@each_of_both
def test_without_floatsim_it_says_what_it_needs(path, monkeypatch):
    pytest.importorskip("IPython")
    for name in [name for name in sys.modules if name.split(".")[0] == "floatsim"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "floatsim", None)
    first = next(cell for cell in jupytext.read(path).cells if cell.cell_type == "code")
    needed = run.absent().get(path.stem, "floatsim")  # a library that is absent is imported first
    with pytest.raises(ModuleNotFoundError, match=rf"needs {needed}.*pip install -e"):
        exec(first.source, {})


# -- the machinery -------------------------------------------------------------------------------------------------


def pair(change=None):
    """A small source, and the same executed, with one thing changed."""
    source = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("a"), nbformat.v4.new_code_cell("1 + 1")])
    executed = nbformat.from_dict(json.loads(json.dumps(source)))
    executed.cells[1].execution_count = 1
    if change is not None:
        change(executed)
    return list(run.differences(source, executed))


def test_a_fresh_pair_has_no_differences():
    assert pair() == []


def set_source(notebook):
    notebook.cells[0].source = "b"


def drop_cell(notebook):
    notebook.cells.pop()


def tag(notebook):
    notebook.cells[1].metadata["tags"] = ["picture"]


def forget(notebook):
    notebook.cells[1].execution_count = None


def fail(notebook):
    notebook.cells[1].outputs = [nbformat.v4.new_output("error", ename="E", evalue="x", traceback=[])]


def warn(notebook):
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", name="stderr", text="w\n")]


@pytest.mark.parametrize(("change", "words"), [
    (set_source, "cell 1 is not that of the source"), (drop_cell, "cell 2 is not that of the source"),
    (tag, "cell 2 is not that of the source"), (forget, "cell 2 has not been run"),
    (fail, "cell 2 ended in an error: E: x"), (warn, "cell 2 wrote to stderr: w"),
])  # fmt: skip
def test_a_stale_pair_is_found(change, words):
    assert pair(change) == [words]


def test_a_missing_notebook_is_stale(tmp_path):
    source = tmp_path / "01_x.py"
    source.write_text("# %%\n1\n")
    assert run.stale(source) == ["01_x.ipynb is missing"]


SOLUTION = """<details>
<summary>Solution</summary>

```python
>>> 1 + 1
3
>>> for i in range(2):
...     print(i)
```

</details>"""


def test_solutions_get_what_they_print():
    cell = nbformat.v4.new_markdown_cell(SOLUTION)
    assert [(e.source, e.want) for e in run.examples(cell)] == [
        ("1 + 1\n", "3\n"), ("for i in range(2):\n    print(i)\n", ""),
    ]  # fmt: skip
    filled = run.with_outputs(SOLUTION, ["2\n", "0\n1\n"])
    assert filled == SOLUTION.replace("3\n", "2\n").replace("print(i)\n", "print(i)\n0\n1\n")
    assert run.with_outputs(filled, ["2\n", "0\n1\n"]) == filled


def test_examples_print_what_doctest_would_show(capsys):
    exec(run.EXAMPLES.format(sources=json.dumps(["x = 3\n", "x\n", "print('a'); None\n"])), {})
    assert json.loads(capsys.readouterr().out) == ["", "3\n", "a\n"]


def test_controls_leave_their_static_part_and_progress_bars_nothing(tmp_path):
    view = nbformat.v4.new_output(
        "display_data",
        {run.WIDGET: {"model_id": "x"}, "text/plain": "a picture of fp16"},
        metadata={"floatsim": {"controls": ["format", "k"]}},
    )
    bar = nbformat.v4.new_output("display_data", {run.WIDGET: {"model_id": "y"}, "text/plain": "HBox(children=(...))"})
    pieces = [nbformat.v4.new_output("stream", text=text) for text in ("[", "]", "\n")]  # a kernel under load splits it
    last = nbformat.v4.new_code_cell("", outputs=pieces)
    cells = [
        nbformat.v4.new_code_cell("s", outputs=[bar, view], metadata={"execution": {"iopub.status.idle": "2026"}}),
        last,
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "x.ipynb")
    notebook, printed = run.result(tmp_path / "x.ipynb")
    note = "[Controls for format, k: they appear here when the notebook runs with ipywidgets.]"
    assert (run.texts(notebook), printed) == ([["a picture of fp16", note]], [])
    assert all(output.metadata == {} and run.WIDGET not in output.data for output in notebook.cells[0].outputs)
    assert notebook.cells[0].metadata == {}


def test_pictures_are_compressed_and_look_the_same():
    pixels = np.zeros((200, 300, 3), np.uint8)
    pixels[:, :100] = 200, 30, 90
    pixels[50:100] += 40
    stored = io.BytesIO()
    Image.fromarray(pixels).save(stored, "PNG", compress_level=0)
    small = base64.b64decode(run.compressed(base64.b64encode(stored.getvalue()).decode()))
    assert len(small) < len(stored.getvalue()) / 10
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(small)).convert("RGB")), pixels)


def test_printed_text_is_one_piece():
    pieces = [("stdout", "a\n"), ("stdout", "b\n"), ("stderr", "c\n"), ("stdout", "d\n")]
    outputs = [nbformat.v4.new_output("stream", name=name, text=text) for name, text in pieces]
    outputs.insert(3, nbformat.v4.new_output("display_data", {"text/plain": "x"}))
    found = run.whole(outputs)
    assert [output.get("text") for output in found] == ["a\nb\n", "c\n", None, "d\n"]
