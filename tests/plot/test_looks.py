"""Sizes and styles of pictures: what `styled` changes, in a block only."""

from __future__ import annotations

import io
import itertools
import pickle

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
@pytest.mark.parametrize("styles", [(), ("dark",)], ids=str)
def test_no_number_of_a_map_is_hidden(draw, nothing, styles):
    with plot.styled(*styles):
        ax = draw()
        image = ax.images[0]
        tints = image.to_rgba(image.get_array())[0]
    colours = style.palette(ax)
    assert to_hex(tints[0]) == getattr(colours, nothing)
    for tint in tints[1:]:
        assert style.contrast(tint[:3], colours.background) > (3 if styles else 2)
        assert style.contrast(tint[:3], tints[0][:3]) > 1.9


def test_the_diagonal_of_an_order_differs_from_its_numbers_on_dark():
    with plot.styled("dark"):
        image = plot.order_map(fs.reveal_order("fp32", 8)).images[0]
        tints = image.to_rgba(image.get_array())
    for tint in tints[~np.eye(8, dtype=bool)]:
        assert style.contrast(tint[:3], tints[0, 0, :3]) > 3


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


@pytest.mark.parametrize("styles", [(), ("slide",)], ids=str)
@pytest.mark.parametrize("long", [False, True], ids=["short titles", "long titles"])
def test_maps_of_orders_in_a_grid_do_not_collide(styles, long):
    """In a constrained layout with one colour bar for all, as notebooks 4 and 5 have it."""
    counts = fs.reveal_order("fp32", 32)
    with plot.styled(*styles):
        figure, axes = plt.subplots(2, 3, figsize=(9.6, 6), layout="constrained")
        for ax in axes.flat:
            title = "Hopper, FP8 (mma.sync): 16 at once" if long else "sequential"
            plot.order_map(counts, ax=ax, title=title, colorbar=False)
        bar = figure.colorbar(axes[0, 0].images[0], ax=axes, label="terms", shrink=0.7)
        figure.canvas.draw()
    texts = [text for ax in axes.flat for text in (ax._left_title, ax.xaxis.label, ax.yaxis.label,
                                                   *ax.get_xticklabels(), *ax.get_yticklabels())]  # fmt: skip
    boxes = [*(style.text_extent(text) for text in texts), bar.ax.get_tightbbox()]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    page = figure.bbox
    assert all(page.x0 < box.x0 and box.x1 < page.x1 and page.y0 < box.y0 and box.y1 < page.y1 for box in boxes)


def test_a_title_has_space_beside_it():
    """It does not touch the edge of the figure, and the layout knows its number of lines."""
    title = "Error against PyTorch, operation by operation"
    figure = plot.heatmap({str(row): {"addmm": 0.1, "relu": None} for row in range(5)}, title=title).figure
    figure.canvas.draw()
    box, page = style.text_extent(figure.axes[0].title), figure.bbox
    assert page.x0 + 5 < box.x0 < box.x1 < page.x1 - 5
    assert page.y1 - 15 < box.y1 < page.y1
    assert pickle.loads(pickle.dumps(figure)).axes[0].get_title() == title


@pytest.mark.parametrize("styles", [(), ("dark",)], ids=str)
def test_labels_of_shades_can_be_read(styles):
    with plot.styled(*styles):
        ax = plot.running_sums(np.ones(300, np.float32), [f"blocked(bf16, {n}, bf16)" for n in (4, 8, 16, 32, 64)])
    tints = [to_rgb(text.get_color()) for text in ax.texts]
    assert len(tints) == 5
    assert min(style.contrast(tint, ax.get_facecolor()[:3]) for tint in tints) >= (4.49 if styles else 2.99)


@pytest.mark.parametrize(("styles", "words"), [
    (["slyde"], "styles has 'slyde'; did you mean 'slide'"), (["x"], "known are slide, print, dark, svg"),
    (["print", "slide"], "both print and slide; a picture has one size"),
])  # fmt: skip
def test_errors(styles, words):
    with pytest.raises(ValueError, match=words), plot.styled(*styles):
        pass
