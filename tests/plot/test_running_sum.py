"""Pictures of sums: which lines and cells are drawn, where, in which colours, with which words."""

from __future__ import annotations

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import same_color, to_rgb
from matplotlib.text import Text

import floatsim as fs
from floatsim import plot

pytestmark = pytest.mark.full


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def words(ax):
    return [text.get_text() for text in ax.texts]


def boxes(ax):
    FigureCanvasAgg(ax.figure).draw()
    return [Text.get_window_extent(text) for text in ax.texts]  # without the lines that lead to them


# -- running sums --------------------------------------------------------------------------------------------------


def test_running_sums_are_the_sums_of_the_first_terms():
    x = fs.array(np.ones(600), "fp32")
    ax = plot.running_sums(x, ["fp32", "bf16", fs.Kahan("bf16")], title="ones")
    exact, wide, narrow, kahan = ax.lines
    for line in (exact, wide):
        assert np.array_equal(line.get_xdata(), line.get_ydata())
    assert list(narrow.get_ydata()) == [min(n, 256) for n in narrow.get_xdata()]
    assert kahan.get_ydata()[-1] == 600
    assert list(exact.get_xdata()[[0, -1]]) == [1, 600]
    assert words(ax) == ["fp32: 600", "bf16: 256", "kahan(bf16): 600"]
    assert ax.get_title(loc="left") == "ones"
    assert ax.get_xlim() == (0, 600)
    assert ax.get_ylim()[0] == 0 and 600 < ax.get_ylim()[1] < 660
    assert ax.get_xlabel() == "terms added"


def test_running_sums_have_the_colour_of_the_format_in_which_they_add():
    ways = ["fp32", "bf16", "blocked(fp16, 4, fp32)"]
    ax = plot.running_sums(np.ones(8, np.float32), ways)
    expected = [plot.colour(fmt) for fmt in ("fp32", "bf16", "fp16")]
    for line, text, tint in zip(ax.lines[1:], ax.texts, expected, strict=True):
        assert same_color(line.get_color(), tint)
        assert same_color(text.get_color(), tint)


def luminance(tint):
    c = np.array(to_rgb(tint))
    return np.where(c <= 0.03928, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("looks", ["default", "dark_background"])
@pytest.mark.parametrize("fmt", plot.DEFAULT_FORMATS)
def test_lines_of_one_format_differ_in_lightness_and_in_dashes(fmt, looks):
    """From dark to light in the order given, by a contrast of at least 1.25, so that they differ for every reader."""
    adds = [fmt, f"kahan({fmt})", f"pairwise({fmt})", f"blocked({fmt}, 4, fp32)", f"strided({fmt}, 2)"]
    with plt.style.context(looks):
        lines = plot.running_sums(np.ones(8, np.float32), adds).lines[1:]
        background = luminance(plt.rcParams["axes.facecolor"])
    light = [luminance(line.get_color()) for line in lines]
    assert all(b + 0.05 > 1.25 * (a + 0.05) for a, b in itertools.pairwise(light))
    assert all(max(x + 0.05, background + 0.05) > 1.6 * (min(x, background) + 0.05) for x in light)
    assert len({str(line.get_linestyle()) + str(line._dash_pattern) for line in lines}) == 5


def test_names_at_the_ends_of_lines_do_not_overlap():
    ways = ["fp32", "kahan(bf16)", "pairwise(bf16)", "blocked(bf16, 64, fp32)", "bf16", "e4m3", "e5m2"]
    found = boxes(plot.running_sums(np.ones(300, np.float32), ways))
    for one, other in itertools.combinations(found, 2):
        assert not one.overlaps(other)


@pytest.mark.parametrize("layout", [None, "constrained", "tight"])
@pytest.mark.parametrize("size", [10, 16, 20])
def test_names_at_the_ends_of_lines_stay_on_a_slide(size, layout):
    """With the large letters of slides, in Axes of the caller: nothing is cut off at the right or covers the title."""
    ways = ["fp32", "kahan(bf16)", "blocked(hopper, 128, fp32)", "bf16", "fp16"]
    with plt.rc_context({"font.size": size}):
        figure, ax = plt.subplots(figsize=(10, 5.6), layout=layout)
        plot.running_sums(np.ones(1000, np.float16), ways, ax=ax, title="Where a sum of 1000 ones stops")
        figure.canvas.draw()
        found = [Text.get_window_extent(text) for text in (*ax.texts, ax._left_title)]
        frame, least = ax.get_window_extent(), min(text.get_fontsize() for text in ax.texts)
    plt.close(figure)
    assert len(ax.texts) == 5
    assert all(box.x1 <= figure.bbox.x1 for box in found)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(found, 2))
    assert frame.width > 0.3 * figure.bbox.width and least >= 7
    assert ax.get_in_layout()


def test_labels_end_before_the_next_axes():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 5.6))
    plot.running_sums(np.ones(300, np.float32), ["fp32", "pairwise(bf16)"], ax=left)
    figure.canvas.draw()
    assert max(Text.get_window_extent(text).x1 for text in left.texts) <= right.get_tightbbox().x0


def test_running_sums_of_overflow_and_stochastic_rounding():
    ax = plot.running_sums(np.full(9, 30000, np.float16), ["fp16", "sequential(bf16, rounding=stochastic)"], seed=3)
    assert words(ax)[0] == "fp16: inf"
    assert np.isinf(ax.lines[1].get_ydata()[-1])
    again = plot.running_sums(np.full(9, 30000, np.float16), ["sequential(bf16, rounding=stochastic)"], seed=3)
    assert np.array_equal(ax.lines[2].get_ydata(), again.lines[1].get_ydata())


# -- equality ------------------------------------------------------------------------------------------------------

RESULTS = {
    "one": np.float32([[1, 2], [3, 0.0]]),
    "same": np.float32([[1, 2], [3, 0.0]]),
    "zero": np.float32([[1, 2], [3, -0.0]]),
    "far": np.float32([[9, 8], [7, 6]]),
}


def test_equality_matrix_draws_every_pair():
    _, given = plt.subplots()
    ax = plot.equality_matrix(RESULTS, ax=given, title="pairs")
    assert ax is given and isinstance(ax, Axes)
    assert ax.get_title(loc="left") == "pairs"
    assert [t.get_text() for t in ax.get_yticklabels()] == [t.get_text() for t in ax.get_xticklabels()] == [*RESULTS]
    assert len(ax.patches) == 16 and len(ax.texts) == 12
    said = {(round(t.get_position()[1] - 0.52), round(t.get_position()[0] - 0.5)): t.get_text() for t in ax.texts}
    assert said[0, 1] == said[1, 0] == "100 %"
    assert said[0, 2] == "75 %" and said[0, 3] == "0 %"
    assert ax.get_ylim() == (4, 0)  # the first row on top
    light = [sum(p.get_facecolor()[:3]) for p in ax.patches]
    assert light[1] < light[2] < light[3]  # the more are equal, the darker


def test_all_is_written_only_where_all_is_equal():
    many = np.arange(5000, dtype=np.float32)
    other = many.copy()
    other[7] = -1
    assert words(plot.equality_matrix({"a": many, "b": other}))[0] == "99.9 %"


# -- the first k ---------------------------------------------------------------------------------------------------


def test_first_map_is_of_what_was_recorded():
    a, b = np.full((2, 40), 100, np.float16), np.ones((40, 3), np.float16)
    a[1] = 0
    b[:, 2] = 30
    with fs.record(events=["overflow"]) as log:
        fs.matmul(a, b, accumulate="fp16")
    assert log.first["overflow"].tolist() == [[-1, -1, 21], [-1, -1, -1]]  # 22 * 3000 > 65504
    ax = plot.first_map(log.first["overflow"], 40, event="overflow")
    (image,) = ax.images
    assert image.get_array().tolist() == [[None, None, 21], [None] * 3]
    assert image.get_clim() == (0, 39)
    assert same_color(image.cmap.get_bad(), "#f1f1f1")
    assert ax.get_title(loc="left") == "overflow: 1 of 6 elements (17 %)"
    assert ax.figure.axes[1].get_ylabel() == "first k (of 40)"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["never"]


def test_first_map_names_never_only_where_it_is_drawn():
    assert plot.first_map([[1, 2]], 4).get_legend() is None


def test_first_map_of_a_vector_is_one_row():
    assert plot.first_map(np.array([3, -1]), 4).images[0].get_array().shape == (1, 2)


# -- orders --------------------------------------------------------------------------------------------------------


def test_order_map_draws_the_counts_but_for_the_diagonal():
    counts = fs.reveal_order("fp32", 9)
    ax = plot.order_map(counts, title="one after the other")
    (image,) = ax.images
    drawn = image.get_array()
    assert np.array_equal(drawn.mask, np.eye(9, dtype=bool))
    assert np.array_equal(drawn.filled(-1), counts)
    assert image.get_clim() == (0, 7)
    assert ax.get_title(loc="left") == "one after the other"
    assert len(ax.figure.axes) == 2
    assert len(plot.order_map(counts, colorbar=False).figure.axes) == 1


# -- errors --------------------------------------------------------------------------------------------------------

ERRORS = {
    "fp16": {64: 1e-3, 1024: 2e-2},
    "blocked(fp16, 32, fp32)": {64: 1e-4, 256: 0.0, 1024: 1e-4},
    "mine": {64: 1e-2},
}


def test_error_curves_draw_every_error_above_zero():
    ax = plot.error_curves(ERRORS, title="errors", ylabel="error", formats={"mine": "e4m3"})
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [list(zip(*line.get_data(), strict=True)) for line in ax.lines] == [
        [(64, 1e-3), (1024, 2e-2)], [(64, 1e-4), (1024, 1e-4)], [(64, 1e-2)]
    ]  # fmt: skip
    assert same_color(ax.lines[2].get_color(), plot.colour("e4m3"))
    assert luminance(ax.lines[0].get_color()) < luminance(ax.lines[1].get_color())  # both FP16
    assert len({line.get_marker() for line in ax.lines}) == 3
    assert words(ax) == list(ERRORS)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["64", "1024"]
    assert (ax.get_title(loc="left"), ax.get_ylabel()) == ("errors", "error")


def test_lines_that_are_no_descriptions_are_ink():
    (line,) = plot.error_curves({"quantisation": {1: 0.5}}).lines
    ticks = plot.error_curves({"a": dict.fromkeys((1, 3, 9, 10, 55), 0.5)}).get_xticklabels()
    assert [tick.get_text() for tick in ticks] == ["1", "3", "9", "", "55"], "10 is too near to 9"
    assert same_color(line.get_color(), "#222222")


# -- what cannot be drawn ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "message"), [
    (lambda: plot.running_sums(np.ones((2, 2)), ["fp32"]), r"terms must be a vector.*\(2, 2\)"),
    (lambda: plot.running_sums(np.ones(2), []), "accumulate must name at least one"),
    (lambda: plot.equality_matrix({"a": np.float32([1]), "b": np.float32([1, 2])}), r"one format and shape"),
    (lambda: plot.first_map([[0.5]], 4), "matrix of integers"),
    (lambda: plot.first_map([[4]], 4), "first holds 4 to 4; with terms=4 it is -1 to 3"),
    (lambda: plot.order_map(np.ones((3, 4))), r"square matrix.*\(3, 4\)"),
    (lambda: plot.error_curves({"a": {1: -1.0}}), r"errors\['a'\] holds -1.0"),
    (lambda: plot.error_curves({"a": {0: 1.0}}), r"errors\['a'\] has the length 0"),
    (lambda: plot.error_curves({"a": {1: float("nan")}}), "holds nan"),
    (lambda: plot.error_curves({"a": {1: 0.0}}), "at least one number above 0"),
])  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
