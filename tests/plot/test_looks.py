"""Sizes and styles of pictures: what `styled` changes, in a block only."""

from __future__ import annotations

import io

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.colors import rgb_to_hsv, to_hex, to_rgb

import floatsim as fs
from floatsim import plot
from floatsim.plot import style
from floatsim.plot.line_labels import line_colours

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


def test_colours_of_formats_on_dark_can_be_read():
    """Also those of `plot.colour`, with which pictures of one's own are drawn."""
    with plot.styled("dark"):
        tints = {fmt.name: plot.colour(fmt) for fmt in fs.named_formats()}
        background = rcParams["axes.facecolor"]
    assert len(set(tints.values())) == len(tints)
    assert min(style.contrast(tint, background) for tint in tints.values()) >= 4.5
    assert {name: plot.colour(name) for name in tints} == {fmt.name: fmt.colour for fmt in fs.named_formats()}


def test_shades_of_lines_keep_the_hue_of_their_format():
    """On dark too, so that no light line of FP16 looks like BF16."""
    for styles in ((), ("dark",)):
        with plot.styled(*styles):
            colours = style.palette(plt.subplots()[1])
        for fmt in ("fp16", "bf16", "e4m3", "e5m2"):
            hue = rgb_to_hsv(to_rgb(plot.colour(fmt)))[0]
            shades = [tint for tint, _ in line_colours([fs.as_format(fmt)] * 5, colours)]
            assert len(set(shades)) == 5
            assert max(abs(rgb_to_hsv(to_rgb(tint))[0] - hue) for tint in shades) < 0.01


@pytest.mark.parametrize(("draw", "nothing"), [
    (lambda: plot.mismatch_map([[0, 1, 1 << 15]]), "background"),
    (lambda: plot.first_map([[-1, 0, 15]], 16), "pale"),
], ids=["mismatch_map", "first_map"])  # fmt: skip
def test_no_number_of_a_map_is_hidden_on_dark(draw, nothing):
    with plot.styled("dark"):
        ax = draw()
        image = ax.images[0]
        tints = image.to_rgba(image.get_array())[0]
    colours = style.palette(ax)
    assert to_hex(tints[0]) == getattr(colours, nothing)
    for tint in tints[1:]:
        assert style.contrast(tint[:3], colours.background) > 3
        assert style.contrast(tint[:3], tints[0][:3]) > 2


LONG = "One product, twelve correct results: the share of elements with equal bits"
ROWS = ["32 lanes (a warp), then pairs", "first half + second half", "compensated (Kahan)"]


@pytest.mark.parametrize("draw", [
    lambda: plot.equality_matrix(dict.fromkeys(ROWS, np.ones(4)), title=LONG),
    lambda: plot.format_ranges(["fp16"], title=LONG),
], ids=["left", "centre"])  # fmt: skip
@pytest.mark.parametrize("styles", [(), ("slide",)], ids=str)
def test_titles_stay_inside_the_figure(draw, styles):
    with plot.styled(*styles):
        ax = draw()
        ax.figure.canvas.draw()
    titles = [title for title in (ax.title, ax._left_title, ax._right_title) if title.get_text()]
    assert len(titles) == 1
    box, page = titles[0].get_window_extent(), ax.figure.bbox
    assert page.x0 <= box.x0 < box.x1 <= page.x1
    assert page.y0 <= box.y0 < box.y1 <= page.y1


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
