"""The slides of the notebooks: one file, complete, and without a network."""

from __future__ import annotations

import re

import pytest

from notebooks import slides

pytestmark = pytest.mark.versions

NAMES = [path.stem for path in sorted(slides.HERE.glob("[0-9][0-9]_*.ipynb"))]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    file = tmp_path_factory.mktemp("slides") / "new" / "slides.html"
    assert slides.main(["--out", str(file)]) == 0
    return file.read_text(encoding="utf-8")


def test_each_notebook_has_its_question_and_a_picture(written):
    kinds = re.findall(r'<section class="(\w+)">', written)
    assert kinds.count("question") == len(NAMES)
    groups = " ".join(kinds).split("question")[1:]
    assert all("picture" in group for group in groups)


def test_nothing_is_loaded(written):
    text = re.sub(r'src="data:image/png;base64,[A-Za-z0-9+/=]+"', "", written)
    assert not re.search(r"src=|href=|url\(|@import|fetch\(|https?://", text)
    assert len(written) < 8_000_000


def test_headings_are_those_of_the_sections(written):
    assert "<h1>What do the bits mean, and why is 0.1 not 0.1?</h1>" in written
    assert "<h2>The fields of one number</h2><figure>" in written
    assert "Exercise" not in written


def test_markdown():
    cell = {
        "cell_type": "markdown",
        "source": ["## What to remember\n", "\n", "- One [a](b.md)\n", "  two.\n- `x < y`"],
    }
    (slide,) = slides.slides_of({"cells": [cell]})
    assert slide == ("text", "What to remember", "<ul><li>One a two.</li><li><code>x &lt; y</code></li></ul>")


def test_an_unknown_notebook_is_refused(capsys):
    with pytest.raises(SystemExit):
        slides.main(["99_x"])
    assert "no notebook is called 99_x; known are 01_bits" in capsys.readouterr().err
