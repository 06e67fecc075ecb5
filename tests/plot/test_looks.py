"""Sizes and styles of pictures: what `styled` changes, in a block only."""

from __future__ import annotations

import io

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.colors import to_rgb

from floatsim import plot
from floatsim.plot import style

pytestmark = pytest.mark.versions


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def size(ax):
    return tuple(np.round(ax.figure.get_size_inches(), 3))


def test_sizes_of_a_slide_and_of_print():
    plain = plot.format_ranges(["fp16", "bf16"])
    with plot.styled("slide"):
        slide = plot.format_ranges(["fp16", "bf16"])
        assert rcParams["font.size"] == 14
    with plot.styled("print"):
        printed = plot.format_ranges(["fp16", "bf16"])
    assert np.multiply(size(slide), slide.figure.dpi).tolist() == [1920, 1080]
    assert size(printed)[0] == 6.3
    assert printed.figure.dpi == 300
    assert size(printed)[1] / 6.3 == pytest.approx(size(plain)[1] / size(plain)[0], rel=1e-3)


def test_the_block_ends():
    before = dict(rcParams)
    plain = size(plot.format_ranges(["fp16"]))
    with pytest.raises(RuntimeError, match="x"), plot.styled("slide", "dark"):
        raise RuntimeError("x")
    assert size(plot.format_ranges(["fp16"])) == plain
    assert dict(rcParams) == before


def test_dark_keeps_the_size_of_a_block_around_it():
    with plot.styled("slide"), plot.styled("dark"):
        ax = plot.format_ranges(["fp16"])
    assert size(ax) == (10, 5.625)
    assert style.palette(ax).dark


def test_text_on_dark_can_be_read():
    with plot.styled("dark"):
        ax = plot.running_sums(np.ones(300, np.float32), ["fp32", "bf16"], title="sums")
    background = ax.get_facecolor()
    texts = [ax.title, ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels(), *ax.texts]
    assert min(style.contrast(to_rgb(text.get_color()), background[:3]) for text in texts) >= 4.4


def test_text_of_svg_stays_text():
    saved = {}
    for styles in ((), ("svg",)):
        with plot.styled(*styles):
            ax = plot.format_ranges(["fp16"], title="ranges of a format")
            file = io.StringIO()
            ax.figure.savefig(file, format="svg")
        saved[styles] = "ranges of a format</text>" in file.getvalue()
    assert saved == {(): False, ("svg",): True}


def test_a_given_ax_keeps_its_size():
    _, ax = plt.subplots(figsize=(3, 2))
    with plot.styled("slide"):
        plot.format_ranges(["fp16"], ax=ax)
    assert size(ax) == (3, 2)


@pytest.mark.parametrize(("styles", "words"), [
    (["slyde"], "styles has 'slyde'; did you mean 'slide'"), (["x"], "known are slide, print, dark, svg"),
    (["print", "slide"], "both print and slide; a picture has one size"),
])  # fmt: skip
def test_errors(styles, words):
    with pytest.raises(ValueError, match=words), plot.styled(*styles):
        pass
