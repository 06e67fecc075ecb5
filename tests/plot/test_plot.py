"""The pictures: what is drawn, in which colours, with which words and limits."""

from __future__ import annotations

import base64
import inspect
import itertools
import subprocess
import sys
import types
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm, same_color, to_rgb

import floatsim as fs
from floatsim import datasets, plot
from floatsim.plot import heatmaps, style, survey

pytestmark = [pytest.mark.full, pytest.mark.versions]

ROOT = Path(__file__).parents[2]
X = np.array(
    [1e-9, 1e-6, 1.0, 1e6, 0.0, np.nan, np.inf]
)  # FP16: zero, subnormal, normal, overflow; and what is no data


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def words(ax):
    return [text.get_text() for text in ax.texts]


def bars(ax, colour):
    """Heights of the solid bars in that colour (the bands behind are paler)."""
    return [p.get_height() for p in ax.patches if same_color(p.get_facecolor(), colour) and p.get_alpha() is None]


# -- colours -------------------------------------------------------------------------------------------------------


def test_every_named_format_has_a_colour_of_its_own():
    colours = [plot.colour(fmt) for fmt in fs.named_formats()]
    assert len(set(colours)) == len(colours)
    assert plot.CUSTOM_COLOUR not in colours
    assert plot.colour("ieee(6,5)") == plot.CUSTOM_COLOUR
    assert plot.colour(np.float16) == plot.colour(fs.FloatFormat.ieee(5, 10)) == plot.COLOURS[fs.FP16]


def test_the_five_formats_differ_for_the_colour_blind():
    """Dichromats as Vienot, Brettel and Mollon (1999) simulate them, on linear RGB."""
    protan = [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]]
    deutan = [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]]
    linear = np.array([to_rgb(plot.colour(fmt)) for fmt in plot.DEFAULT_FORMATS]) ** 2.2
    for seen_by in (np.eye(3), protan, deutan):
        seen = np.clip(linear @ np.transpose(seen_by), 0, 1) ** (1 / 2.2)
        for one, other in itertools.combinations(seen, 2):
            assert np.abs(one - other).max() > 0.1


def contrast_of(one, other):
    low, high = sorted(
        np.where((c := np.array(to_rgb(each))) <= 0.03928, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
        @ [0.2126, 0.7152, 0.0722]
        for each in (one, other)
    )
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("background", ["black", "#111111", "#282c34"])
def test_colours_on_a_dark_background_can_be_read_and_told_apart(background):
    _, ax = plt.subplots(facecolor=background)
    ax.set_facecolor(background)
    colours = style.palette(ax)
    assert colours.dark
    assert colours.lost_name == "white"
    tints = [colours.format(fmt) for fmt in fs.named_formats()]
    assert len(set(tints)) == len(tints)
    for tint in (*tints, colours.ink, colours.lost):
        assert contrast_of(tint, background) >= 4.49
    assert 1.1 < contrast_of(colours.pale, background) < 2


def test_a_transparent_background_is_the_one_behind_it():
    figure, ax = plt.subplots(facecolor="black")
    ax.set_facecolor("none")
    assert style.palette(ax).dark
    figure.set_facecolor("none")
    assert not style.palette(ax).dark
    with plt.rc_context({"text.color": "white"}):
        assert style.palette(ax).dark
    assert not style.palette(plt.subplots()[1]).dark


GRADIENTS = np.ldexp(np.linspace(1, 2, 64), np.arange(-44, 20))
DRAWINGS = {
    "anatomy": lambda: plot.anatomy(6.5),
    "approximation_error": plot.approximation_error,
    "bit_strip": lambda: plot.bit_strip("0.1"),
    "code_grid": lambda: plot.code_grid("e5m2"),
    "conversion_losses": lambda: plot.conversion_losses({"FP16": fs.conversion_losses(GRADIENTS, "fp16")}),
    "exponent_histogram": lambda: plot.exponent_histogram(GRADIENTS),
    "expression_error": lambda: plot.expression_error("log(1 + x)", "bf16", "x", 0.01, 0.5, points=12),
    "first_map": lambda: plot.first_map([[-1, 7], [3, -1]], 16),
    "format_ranges": lambda: plot.format_ranges(fs.named_formats()),
    "heatmap": lambda: plot.heatmap({"FP16": {"a": 1e-3, "b": float("nan"), "c": float("inf")}}),
    "number_line": lambda: plot.number_line(["fp64", "e4m3"], limits=(0, 8), mark=3.3),
    "rounding_errors": lambda: plot.rounding_errors([1.1, 1.2]),
    "scale_sweep": lambda: plot.scale_sweep(GRADIENTS, mark=3),
    "spacing": plot.spacing,
    "staircase": lambda: plot.staircase("e4m3", limits=(380, 520)),
    "width_map": lambda: plot.width_map({"x": [1, 0.5, 0]}, [1, 2, 3]),
    "worst_error": lambda: plot.worst_error(["fp16"]),
}


@pytest.mark.parametrize("name", DRAWINGS)
@pytest.mark.parametrize("looks", ["default", "dark_background"])
def test_text_can_be_read_on_light_and_dark_backgrounds(name, looks):
    """All text has a contrast of at least 1.8 with what is drawn behind it (light formats' names have the least)."""
    with plt.style.context(looks):
        ax = DRAWINGS[name]()
        ax.figure.canvas.draw()
        page = ax.figure.get_facecolor()
        opaque = [p for p in ax.patches if p.get_fill() and p.get_facecolor()[3] == 1 and not p.get_hatch()]
        cells = [(p.get_window_extent(), p.get_facecolor()) for p in opaque]
        texts = [*ax.texts, *ax.get_xticklabels(), *ax.get_yticklabels(), ax.title, ax.xaxis.label, ax.yaxis.label]
        for text in texts:
            if not text.get_text():
                continue
            x, y = text.get_window_extent().get_points().mean(axis=0)
            behind = [colour for extent, colour in cells if extent.contains(x, y)]
            box = text.get_bbox_patch()
            face = box.get_facecolor() if box is not None else behind[-1] if behind else page
            assert contrast_of(text.get_color(), face) >= 1.8, (text.get_text(), text.get_color(), face)


@pytest.mark.parametrize("name", plot.__all__)
def test_signatures_are_short(name):
    """No default shows the parameters of a format, which take many lines."""
    value = getattr(plot, name)
    if inspect.isfunction(value):
        text = str(inspect.signature(value))
        assert "\n" not in text
        assert "FloatFormat " not in text
        assert all(len(str(p.default)) <= 130 for p in inspect.signature(value).parameters.values())


def test_importing_the_module_draws_nothing_in():
    code = "import floatsim.plot, sys; assert not {'matplotlib', 'numpy', 'numba'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_plot_is_below_surveys_and_commands():
    code = (
        "import floatsim.plot, sys; assert not {'floatsim.analysis.survey.survey', 'floatsim.cli'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# -- histograms ----------------------------------------------------------------------------------------------------


def test_exponent_histogram_draws_every_share():
    ax = plot.exponent_histogram(X, ["fp16", "fp32"], title="some numbers")
    assert isinstance(ax, Axes)
    assert ax.get_title() == "some numbers"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["FP16", "FP32"]
    assert [same_color(label.get_color(), plot.colour(label.get_text())) for label in ax.get_yticklabels()] == [
        True
    ] * 2
    assert words(ax) == ["25 % flushed to zero, 25 % overflow, 25 % subnormal", "all normal"]
    one = max(bars(ax, plot.colour("fp32")))  # each number stands alone in its power of two, so all bars are as high
    assert sorted(bars(ax, plot.LOST_COLOUR))[-2:] == pytest.approx([one] * 2)
    assert sum(bars(ax, plot.LOST_COLOUR)) == pytest.approx(2 * one)
    assert sum(bars(ax, plot.colour("fp16"))) == pytest.approx(one)
    assert sum(bars(ax, plot.colour("fp32"))) == pytest.approx(4 * one)
    hatched = [p for p in ax.patches if p.get_hatch() == "//////"]
    assert sum(p.get_height() for p in hatched) == pytest.approx(one)
    assert ax.get_xlabel() == "magnitude"


def test_exponent_histogram_words_stand_upon_their_own_row():
    ax = plot.exponent_histogram(X, ["fp32", "fp16"])
    FigureCanvasAgg(ax.figure).draw()
    bands = [p.get_window_extent() for p in ax.patches if p.get_alpha() == 0.16]
    for row, (text, band) in enumerate(zip(ax.texts, bands, strict=True)):
        box = text.get_window_extent()
        assert box.y0 >= band.y1 - 1
        above = ax.bbox.y1 if row == 0 else bands[row - 1].y0
        assert box.y0 - band.y1 < 0.5 * (above - box.y1)  # clearly nearer to its own row


def test_one_format_needs_no_list():
    assert "".join(words(plot.bit_strip(0.003, "e4m3"))) == "".join(words(plot.bit_strip(0.003, ["e4m3"])))
    assert words(plot.format_ranges(fs.FP16)) == ["11 bits"]
    assert len(plot.exponent_histogram(X, np.float16).get_yticklabels()) == 1


def test_exponent_histogram_bars_stand_on_their_powers_of_two():
    ax = plot.exponent_histogram([1.0, 1.5, 4.0], ["fp32"])
    tall = {p.get_x(): p.get_height() for p in ax.patches if p.get_height() > 0 and p.get_alpha() is None}
    assert set(tall) == {0, 2}
    assert tall[0] == pytest.approx(2 * tall[2])
    low, high = ax.get_xlim()
    assert low < 0
    assert high > 3


def test_exponent_histogram_shows_the_range():
    ax = plot.exponent_histogram([1.0], ["e4m3"], limits=(-20, 20))
    band, zone = (p for p in ax.patches if p.get_alpha() is not None)
    assert (band.get_x(), band.get_x() + band.get_width()) == (fs.E4M3.emin, fs.E4M3.emax + 1)
    assert (zone.get_x(), zone.get_x() + zone.get_width()) == (-10, fs.E4M3.emin)  # half the smallest is the end
    assert ax.get_xlim() == (-20, 20)


@pytest.mark.parametrize("draw", [
    lambda ax: plot.exponent_histogram(X, ax=ax),
    lambda ax: plot.heatmap({"FP16": {"fp32": 1.0}}, ax=ax),
    lambda ax: plot.format_ranges(ax=ax),
    lambda ax: plot.bit_strip(0.1, ax=ax),
])  # fmt: skip
def test_draws_into_the_axes_given(draw):
    _, ax = plt.subplots()
    assert draw(ax) is ax


@pytest.mark.parametrize("empty", [[0.0, np.nan], []])
def test_nothing_to_draw_is_an_error(empty):
    with pytest.raises(ValueError, match="no finite non-zero number"):
        plot.exponent_histogram(empty)


@pytest.mark.parametrize("draw", [lambda: plot.exponent_histogram(X, []), lambda: plot.format_ranges([]),
                                  lambda: plot.bit_strip(1, [])])  # fmt: skip
def test_no_format_is_an_error(draw):
    with pytest.raises(ValueError, match="at least one format"):
        draw()


@pytest.mark.parametrize(("share", "text"), [(0, "0 %"), (1, "100 %"), (0.9999, "99.9 %"), (0.995, "99.5 %"),
                                             (0.0004, "< 0.1 %"), (0.0234, "2.3 %"), (0.41, "41 %")])  # fmt: skip
def test_shares_in_words_never_claim_all_or_nothing(share, text):
    assert style.in_percent(share) == text


# -- heat maps -----------------------------------------------------------------------------------------------------


def test_heatmap_cells():
    table = {"FP16": {"fp16": 0.02, "fp32": 3e-5}, "E4M3": {"fp16": float("nan"), "fp32": None}}
    ax = plot.heatmap(table, notes={("FP16", "fp16"): "∞ 3 %"}, title="errors", label="error", limits=(1e-6, 1))
    assert words(ax) == ["∞ 3 %", "2 %", r"$3\cdot10^{-5}$", "-", "-"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["fp16", "fp32"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["FP16", "E4M3"]
    cell, note = ax.patches[:2]  # the error keeps its colour; what was lost stands on black, under it
    assert same_color(cell.get_facecolor(), colormaps["YlOrRd"](LogNorm(1e-6, 1)(0.02)))
    assert same_color(note.get_facecolor(), plot.LOST_COLOUR)
    assert cell.get_y() < note.get_y() < ax.texts[0].get_position()[1] < cell.get_y() + cell.get_height()
    assert same_color(ax.texts[0].get_color(), "white")
    assert ax.get_title() == "errors"
    assert (ax.collections[0].norm.vmin, ax.collections[0].norm.vmax) == (1e-6, 1)
    assert ax.figure.axes[1].get_ylabel() == "error"
    top, bottom = ax.get_ylim()
    assert top > bottom  # the first row is on top


def test_heatmap_cell_in_which_everything_was_lost_is_black():
    ax = plot.heatmap({"FP16": {"a": float("nan"), "b": 1e-3}}, notes={("FP16", "a"): "∞ 100 %"})
    assert words(ax) == ["∞ 100 %", "0.1 %"]
    assert same_color(ax.patches[0].get_facecolor(), plot.LOST_COLOUR)


def test_heatmap_is_darker_where_it_is_worse():
    ax = plot.heatmap({"FP16": {"a": 1e-6, "b": 1e-3, "c": 1.0}})
    brightness = [sum(p.get_facecolor()[:3]) for p in ax.patches]
    assert brightness == sorted(brightness, reverse=True)


def test_heatmap_words_can_be_read():
    """Contrast of 3:1 or better for large text (WCAG 2), whatever the error."""

    def luminance(colour):
        c = np.array(to_rgb(colour))
        return np.where(c <= 0.03928, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    ax = plot.heatmap({"r": {str(e): 10.0**e for e in np.arange(-8, 0.1, 0.25)}}, limits=(1e-8, 1))
    for patch, text in zip(ax.patches, ax.texts, strict=True):
        light, dark = sorted((luminance(patch.get_facecolor()[:3]), luminance(text.get_color())), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3


def test_heatmap_of_one_number_or_of_zeros():
    assert words(plot.heatmap({"FP16": {"a": 0.0}})) == ["0"]
    assert words(plot.heatmap({"FP16": {"a": 1e-3}})) == ["0.1 %"]
    assert words(plot.heatmap({"FP16": {"a": float("inf"), "b": 25.0}})) == ["∞", "2e+01"]


def test_heatmap_errors():
    with pytest.raises(ValueError, match="at least one row"):
        plot.heatmap({})
    with pytest.raises(ValueError, match="negative"):
        plot.heatmap({"a": {"b": -1.0}})


# -- formats -------------------------------------------------------------------------------------------------------


def test_format_ranges():
    ax = plot.format_ranges(["fp16", "e8m0"], title="ranges")
    assert words(ax) == ["11 bits", "1 bit"]
    assert ax.get_title() == "ranges"
    normal = next(p for p in ax.patches if same_color(p.get_facecolor(), plot.colour("fp16")))
    assert (normal.get_x(), normal.get_x() + normal.get_width()) == (-14, 16)
    low, high = ax.get_xlim()
    assert low < -127
    assert high > 128


def test_bit_strip():
    ax = plot.bit_strip("0.1", ["bf16", "e4m3"])
    assert "".join(words(ax)) == "0011110111001101" + "0.1001" + "00011101" + "0.1016"
    assert len(ax.patches) == 24
    assert [label.get_text() for label in ax.get_yticklabels()] == ["BF16", "E4M3"]


# -- the slide -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slide():
    report = fs.survey(limit=1 << 12)
    return report, plot.survey_figure(report)


def test_slide_shows_tensors_above_and_products_below(slide):
    report, figure = slide
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles[:3] == list(datasets.digits())
    assert titles[3:6] == [f"{p.name}\n{p.expression}" for p in report.products]
    assert figure.axes[6].get_ylabel() == "relative error (Frobenius norm)"
    assert figure.get_suptitle() == report.title
    width, height = figure.get_size_inches()
    assert width / height == pytest.approx(16 / 9)
    assert len({ax.get_xlim() for ax in figure.axes[:3]}) == 1  # one scale, so that tensors can be compared
    for ax in figure.axes[:6]:
        assert [label.get_text() for label in ax.get_yticklabels()] == [fmt.name for fmt in report.formats]
    assert [label.get_text() for label in figure.axes[3].get_xticklabels()] == [
        "same", "same,\nfused", "fp16", "bf16", "fp32", "exact\n(fp32)",
    ]  # fmt: skip


def test_slide_draws_the_numbers_of_the_report(slide):
    report, figure = slide
    for ax, product in zip(figure.axes[3:6], report.products, strict=True):
        expected = [v for row in report.table("relative_error", product.name).values() for v in row.values()]
        lost = [v for row in report.table("nonfinite", product.name).values() for v in row.values()]
        drawn = []
        for error, share in zip(expected, lost, strict=True):
            drawn += [f"∞ {style.in_percent(share)}"] if share else []
            drawn += [] if share == 1 else ["-" if error is None else heatmaps.power(error)]
        assert words(ax) == drawn


def test_slide_can_be_read(slide):
    """Nothing leaves the slide, no two words overlap, and none is smaller than 9 points."""
    _, figure = slide
    FigureCanvasAgg(figure).draw()
    texts = []
    for ax in figure.axes:
        texts += [ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label, *ax.texts]
        low, high = ax.get_xlim()
        texts += [*ax.get_yticklabels(), *(t for t in ax.get_xticklabels() if low <= t.get_position()[0] <= high)]
    for holder in (figure, *figure.subfigs):
        texts += [text for text in (holder._suptitle, holder._supxlabel) if text is not None]
        texts += [text for legend in holder.legends for text in legend.get_texts()]
    shown = [t for t in texts if t.get_text().strip() and t.get_visible()]
    boxes = [(t.get_text(), t.get_window_extent()) for t in shown]
    assert len(boxes) > 120
    page = figure.bbox
    for text, box in boxes:
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1, text
    level = [box for box, text in zip(boxes, shown, strict=True) if text.get_rotation() != 40]  # slanted ones are apart
    for (one, box), (other, second) in itertools.combinations(level, 2):
        width = min(box.x1, second.x1) - max(box.x0, second.x0)
        height = min(box.y1, second.y1) - max(box.y0, second.y0)
        assert min(width, height) <= 1, f"{one!r} overlaps {other!r}"
    assert min(t.get_fontsize() for t in texts) >= 9


def test_slide_says_what_it_leaves_out():
    report = fs.survey(np.array([[1.0, np.nan], [np.inf, -np.inf]]), formats="fp16", accumulators="same")
    assert plot.survey_figure(report).axes[0].get_title(loc="left") == "a (without 1 NaN and 2 infinities)"


def test_slide_of_one_matrix(tmp_path):
    report = fs.survey(np.eye(3), formats=["fp16"], accumulators=["same"])
    figure = plot.survey_figure(report)
    assert [ax.get_title(loc="left") for ax in figure.axes[:2]] == ["a", "a.T @ a"]
    figure.savefig(tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


# -- matrix units ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slide_of_units():
    report = fs.survey(accumulators="tensorcore", limit=1 << 14)
    return report, plot.survey_figure(report)


def test_slide_of_units_has_a_column_each_and_says_how_unlike_they_are(slide_of_units):
    report, figure = slide_of_units
    columns = [label.get_text() for label in figure.axes[3].get_xticklabels()]
    assert columns == [name for name, arch in fs.tensorcore.ARCHITECTURES.items() if arch.processor == "GPU"]
    assert figure.axes[6].get_ylabel() == "mean error (ulps of the result)"
    assert "bits differ" in figure.subfigs[1]._supxlabel.get_text()
    for ax, product in zip(figure.axes[3:6], report.products, strict=True):
        unlike = report.table("differs", product.name)
        shown = [text.partition("\n")[2] for text in words(ax)]
        expected = [share for row in unlike.values() for share in row.values()]
        assert [bool(text) for text in shown] == [share is not None for share in expected]
        assert [text == "=" for text in shown] == [share == 0 for share in expected]


def test_slide_of_units_can_be_read(slide_of_units):
    test_slide_can_be_read(slide_of_units)


@pytest.mark.parametrize(("ulps", "share", "text"), [
    (0.0, 0.0, "0\n="), (3.14, 0.414, "3\n≠41%"), (2e7, 1.0, "2e7\n≠100%"), (0.004, 0.0001, "<.01\n≠<1%"),
    (np.nan, 0.999, "-\n≠99%"), (8466.2, None, "8466"), (9.7, None, "10"), (0.5, None, "0.5"),
])  # fmt: skip
def test_cells_of_units(ulps, share, text):
    cell = ("FP16", "ada")
    assert survey._unit_texts({cell: ulps}, {} if share is None else {cell: share}) == {cell: text}


def test_heatmap_says_what_it_is_told():
    ax = plot.heatmap({"FP16": {"x": 1e-3, "y": 1e-2}}, texts={("FP16", "x"): "so"})
    assert words(ax) == ["so", "1 %"]


# -- sliders -------------------------------------------------------------------------------------------------------


def test_explore_without_a_notebook_draws_the_first_and_says_what_is_missing(capsys):
    seen = []
    plot.explore(lambda **chosen: seen.append(chosen), format=["fp16", "bf16"], n=(2, 9), flush=True, text="0.1")
    assert seen == [{"format": "fp16", "n": 2, "flush": True, "text": "0.1"}]
    assert capsys.readouterr().out.startswith("To choose format, n, flush, text, run this in a notebook")


WIDGET = "application/vnd.jupyter.widget-view+json"


class Notebook:
    """Stands in for IPython and ipywidgets; keeps what is published, and the results of the controlled function."""

    def __init__(self, monkeypatch, with_widgets=True):
        self.published, self.results, self.controls = [], [], []
        publisher = types.SimpleNamespace(publish=lambda data, metadata: self.published.append((data, metadata)))
        shell = types.SimpleNamespace(kernel=object(), display_pub=publisher)
        monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
        widgets = types.SimpleNamespace(interactive=self.interactive) if with_widgets else None
        monkeypatch.setitem(sys.modules, "ipywidgets", widgets)  # None: not installed

    def interactive(self, draw, **controls):
        self.results.append(draw(format="bf16"))
        self.controls.append(controls)
        return types.SimpleNamespace(
            _repr_mimebundle_=lambda: {WIDGET: {"model_id": "x"}, "text/plain": "interactive(...)"}
        )


def test_explore_in_a_notebook_makes_controls_and_keeps_the_first_picture(monkeypatch, capsys):
    notebook, drawn = Notebook(monkeypatch), []
    plot.explore(lambda format, ax=None: drawn.append(format) or plot.staircase(), format=["fp16", "bf16"])
    assert (notebook.results, notebook.controls, drawn) == ([None], [{"format": ["fp16", "bf16"]}], ["fp16", "bf16"])
    ((bundle, metadata),) = notebook.published
    assert bundle[WIDGET] == {"model_id": "x"}
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert metadata == {"floatsim": {"controls": ["format"]}}
    assert len(plt.get_fignums()) == 1  # that of the controlled function; the static one is closed
    assert capsys.readouterr().out == ""


def test_explore_in_a_notebook_keeps_what_is_printed(monkeypatch, capsys):
    notebook = Notebook(monkeypatch)
    plot.explore(lambda format: print("a picture of", format), format=["fp16", "bf16"])
    bundle, _ = notebook.published[0]
    assert bundle["text/plain"] == "a picture of fp16"
    assert "image/png" not in bundle
    assert capsys.readouterr().out == "a picture of bf16\n"


def test_explore_in_a_notebook_without_ipywidgets(monkeypatch, capsys):
    notebook, drawn = Notebook(monkeypatch, with_widgets=False), []
    plot.explore(lambda format: drawn.extend([format]), format=["fp16"])
    assert (notebook.published, drawn) == ([], ["fp16"])
    assert "pip install ipywidgets" in capsys.readouterr().out


@pytest.mark.parametrize(("controls", "words"), [
    ({}, "at least one control"), ({"format": []}, "control format must have at least one value"),
])  # fmt: skip
def test_explore_of_nothing_is_an_error(controls, words):
    with pytest.raises(ValueError, match=words):
        plot.explore(print, **controls)
