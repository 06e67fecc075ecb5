"""Pictures of conversion losses: which shares are drawn, in which colours, with which words."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import same_color

import floatsim as fs
from floatsim import datasets, plot

pytestmark = pytest.mark.full


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def words(ax):
    return [text.get_text() for text in ax.texts]


def test_conversion_losses_are_stacked_from_the_left():
    losses = {"FP16": fs.ConversionLosses(0.1, 0.2, 0.4, 0.3), "mine": fs.ConversionLosses(0, 0, 1, 0)}
    ax = plot.conversion_losses(losses, title="losses")
    for row, (name, each) in enumerate(losses.items()):
        bars = [p for p in ax.patches if p.get_y() == pytest.approx(row - 0.35)]
        expected = [each.flushed, each.subnormal, each.normal, each.overflowed]
        assert [p.get_width() for p in bars] == pytest.approx(expected)
        assert [p.get_x() for p in bars] == pytest.approx([0, *np.cumsum(expected)[:-1]])
        assert same_color(bars[0].get_facecolor(), plot.LOST_COLOUR)
        assert same_color(bars[3].get_facecolor(), plot.LOST_COLOUR)
        assert bars[1].get_hatch()
        assert same_color(bars[2].get_facecolor(), plot.colour("fp16") if name == "FP16" else "#222222")
    assert words(ax) == ["10 % flushed to zero, 30 % overflow, 20 % subnormal", "all normal"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["FP16", "mine"]
    assert (ax.get_xlim(), ax.get_title()) == ((0, 1), "losses")
    low, high = ax.get_ylim()
    assert low > high  # the first row is on top


def test_conversion_losses_need_a_result():
    with pytest.raises(ValueError, match=r"at least one result of fs\.conversion_losses"):
        plot.conversion_losses({})


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'SIX'"):
        plot.SIX


# -- scaling -------------------------------------------------------------------------------------------------------


def test_scale_sweep_stacks_the_losses_of_each_scale():
    x = datasets.digits()["gradients"]
    ax = plot.scale_sweep(x, "e4m3", exponents=(0, 32), mark=20, title="sweep")
    columns = {}
    for patch in ax.patches:
        columns.setdefault(round(patch.get_x() + 0.5), []).append(patch)
    assert sorted(columns) == list(range(33))
    for k in (0, 9, 20, 32):
        losses = fs.conversion_losses(np.float64(x) * 2.0**k, "e4m3")
        heights = [patch.get_height() for patch in columns[k]]
        assert heights == pytest.approx([losses.flushed, losses.subnormal, losses.normal, losses.overflowed])
        assert [patch.get_y() for patch in columns[k]] == pytest.approx([0, *np.cumsum(heights)[:-1]])
        assert same_color(columns[k][0].get_facecolor(), plot.LOST_COLOUR)
        assert same_color(columns[k][2].get_facecolor(), plot.colour("e4m3"))
    assert words(ax) == ["flushed to zero", "subnormal", "normal", "overflow"]
    assert ax.lines[-1].get_xdata() == [20, 20]
    assert (ax.get_ylim(), ax.get_title(), ax.get_xlabel()) == ((0, 1), "sweep", "multiplied by, then rounded to E4M3")


def test_scale_sweep_errors():
    with pytest.raises(ValueError, match="exponents must be two integers"):
        plot.scale_sweep([1.0], exponents=(3, 3))
    with pytest.raises(ValueError, match="no finite non-zero"):
        plot.scale_sweep([0.0])


@pytest.mark.parametrize("draw", [
    lambda ax: plot.scale_sweep([1.1], ax=ax),
    lambda ax: plot.conversion_losses({"x": fs.ConversionLosses(1, 0, 0, 0)}, ax=ax),
])  # fmt: skip
def test_draws_into_the_axes_given(draw):
    _, ax = plt.subplots()
    assert draw(ax) is ax


@pytest.mark.parametrize("looks", [(), ("dark",)], ids=str)
def test_the_line_of_a_mark_does_not_cross_a_word(looks):
    """A word's box has the colour of its area, so that the line ends at both sides of the word."""
    with plot.styled(*looks):
        ax = plot.scale_sweep([1e-4, 1e-3, 1e-2], "e5m2", exponents=(-20, 12), mark=-14)
        ax.figure.canvas.draw()
        pixels = np.asarray(ax.figure.canvas.buffer_rgba())[::-1, :, :3].astype(int)
    flushed = next(text for text in ax.texts if text.get_text() == "flushed to zero")
    box, (column, _) = flushed.get_window_extent(), ax.transData.transform((-14, 0.5))
    assert box.x0 < column < box.x1
    strip = pixels[:, round(column) - 4 : round(column) + 4]
    behind = strip[round(box.y0) - 30, 0]  # of the area, beside the line

    def differs(rows):
        return (np.abs(strip[rows] - behind).max(axis=-1) > 60).any(axis=-1).mean()

    assert differs(slice(round(box.y1) + 8, round(box.y1) + 40)) > 0.9  # the line above the word
    assert differs(slice(round(box.y1), round(box.y1) + 2)) == 0  # the edge of the word's box


@pytest.mark.parametrize("size", [10, 16, 20])
def test_words_of_a_sweep_stay_inside_the_axes(size):
    """With the large letters of slides: long words are broken, and smaller."""
    x = np.random.default_rng(0).normal(size=500) * 1e-3
    with plt.rc_context({"font.size": size}):
        figure, ax = plt.subplots(figsize=(10, 5.6))
        plot.scale_sweep(x, "e4m3", ax=ax)
        figure.canvas.draw()
        frame = ax.get_window_extent()
        boxes = [text.get_window_extent() for text in ax.texts]
    plt.close(figure)
    assert [text.get_text().replace("\n", " ") for text in ax.texts] == ["flushed to zero", "subnormal", "normal",
                                                                         "overflow"]  # fmt: skip
    for box in boxes:
        assert frame.x0 <= box.x0 and box.x1 <= frame.x1
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])
