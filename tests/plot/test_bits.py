"""Pictures of bits: which cells, which words, which colours."""

from __future__ import annotations

import itertools
import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import same_color

import floatsim as fs
from floatsim import plot

pytestmark = pytest.mark.full

SMALL = [fmt for fmt in fs.named_formats() if fmt.bits <= 8]


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def words(ax):
    return [text.get_text() for text in ax.texts]


# -- one number, taken apart ---------------------------------------------------------------------------------------


def test_anatomy_says_what_each_field_says():
    ax = plot.anatomy(6.5, "fp16")
    assert "".join(words(ax)[:16]) == "0100011010000000"
    assert words(ax)[16:21] == ["16", "8", "4", "2", "1"]
    assert words(ax)[21:31] == [f"1/{2**k}" for k in range(1, 11)]
    assert words(ax)[-3:] == [
        "sign\n+", "exponent\n10001 = 17\n17 − 15 = 2",
        "significand\n1.1010000000 = 1.625\n(the 1 before the point is not stored)",
    ]  # fmt: skip
    assert ax.get_title() == "FP16: + 1.625 × 2$^{2}$ = 6.5"


@pytest.mark.parametrize(("value", "fmt", "title", "fields"), [
    ("-0.1", "bf16", "BF16: − 1.6015625 × 2$^{-4}$ = −0.10009765625", ["sign\n−", "123 − 127 = −4", "1.1001101"]),
    (2.0**-9, "e4m3", "E4M3: + 0.125 × 2$^{-6}$ = 0.001953125", ["sign\n+", "subnormal\n1 − 7 = −6", "0.001 = 0.125"]),
    (0.0, "e5m2", "E5M2: + 0.0 × 2$^{-14}$ = 0.0", ["sign\n+", "00000 = 0", "0.00 = 0.0"]),
    ("-inf", "e5m2", "E5M2: − infinity", ["sign\n−", "11111 = 31", "none: infinity"]),
    ("nan", "e4m3", "E4M3: NaN, not a number", ["sign\n+", "1111 = 15", "no number"]),
    (4, "e8m0", "E8M0: + 1.0 × 2$^{2}$ = 4.0", ["10000001 = 129\n129 − 127 = 2"]),
    (2.0**-127, "e8m0", "E8M0: + 1.0 × 2$^{-127}$ = 5.877471754111438e-39", ["0 − 127 = −127"]),
])  # fmt: skip
def test_anatomy_of_hard_cases(value, fmt, title, fields):
    ax = plot.anatomy(value, fmt)
    assert ax.get_title() == title
    for text, part in zip(words(ax)[-len(fields) :], fields, strict=True):
        assert part in text


@pytest.mark.parametrize("fmt", SMALL, ids=str)
def test_anatomy_multiplies_to_the_value(fmt):
    """Every code of formats of at most 6 bits, every fifth of others."""
    _, ax = plt.subplots()
    for value in fs.decode(fmt.codes()[:: 5 if fmt.bits > 6 else 1], fmt).tolist():
        if math.isfinite(value) and math.copysign(1, value) > 0:
            ax.clear()
            equation = plot.anatomy(value, fmt, ax=ax).get_title().partition(": ")[2]
            significand, rest = equation.removeprefix("+ ").split(" × 2$^{")
            exponent, result = rest.split("}$ = ")
            assert math.ldexp(float(significand), int(exponent)) == float(result) == value


def test_anatomy_words_do_not_overlap():
    for value, fmt in [("0.1", "fp32"), (1e-7, "fp16"), (0.1, "e4m3"), (-0.1, "bf16"), (1e-40, "fp32")]:
        ax = plot.anatomy(value, fmt)
        FigureCanvasAgg(ax.figure).draw()
        boxes = [text.get_window_extent() for text in ax.texts[-3:]]
        for left, right in itertools.pairwise(boxes):
            assert left.x1 < right.x0 + 2, fmt


@pytest.mark.parametrize(("fmt", "width"), [("fp16", None), ("fp32", None), ("bf16", 5), ("fp16", 3), ("e4m3", 3)])
def test_anatomy_weights_do_not_overlap(fmt, width):
    ax = plot.anatomy(1.5, fmt, ax=None if width is None else plt.subplots(figsize=(width, 2))[1])
    FigureCanvasAgg(ax.figure).draw()
    weights = [text for text in ax.texts if text.get_position()[1] < 0]
    assert len(weights) > 3
    for left, right in itertools.pairwise(text.get_window_extent() for text in weights):
        assert left.x1 <= right.x0


def test_anatomy_errors():
    with pytest.raises(ValueError, match=r"at most 32 bits.*FP64 has 64"):
        plot.anatomy(1, "fp64")
    with pytest.raises(ValueError, match="one tenth"):
        plot.anatomy("one tenth")


# -- every code ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", SMALL, ids=str)
def test_code_grid_has_every_code_in_its_place(fmt):
    ax = plot.code_grid(fmt)
    values = fs.decode(fmt.codes(), fmt)
    assert len(ax.texts) == values.size
    for code, (text, value) in enumerate(zip(ax.texts, values.tolist(), strict=True)):
        column, row = (math.floor(place) for place in text.get_position())
        assert 16 * row + column == code
        shown = text.get_text().replace("−", "-").replace("∞", "inf")
        assert len(shown) <= 8
        if math.isnan(value):
            assert shown == "NaN"
        else:
            assert (float(shown) == value) is (text.get_style() == "normal")
            assert float(shown) == pytest.approx(value, rel=0.005)
            assert math.copysign(1, float(shown)) == math.copysign(1, value)
    rounded = any(text.get_style() == "italic" for text in ax.texts)
    assert ax.get_xlabel() == ("in italics: rounded to three digits" if rounded else "")


@pytest.mark.parametrize("fmt", SMALL, ids=str)
def test_code_grid_words_fit_their_cells(fmt):
    ax = plot.code_grid(fmt)
    ax.figure.draw_without_rendering()
    width = ax.transData.transform((1, 0))[0] - ax.transData.transform((0, 0))[0]
    widths = {text.get_text(): text.get_window_extent().width for text in ax.texts}
    assert max(widths.values()) < 0.95 * width, max(widths, key=widths.get)


def test_code_grid_is_exact_where_there_is_room():
    texts = [text.get_text() for text in plot.code_grid("e4m3").texts]
    assert texts[0x38:0x40] == ["1", "1.125", "1.25", "1.375", "1.5", "1.625", "1.75", "1.875"]
    assert texts[0x20:0x24] == [".125", ".140625", ".15625", ".171875"]
    assert (texts[0x18], texts[0x19], texts[0x81]) == (".0625", ".0703", "−.00195")
    assert plot.code_grid("e5m2").texts[1].get_text() == "1.53e-5"


def test_code_grid_tints():
    ax = plot.code_grid("e4m3")
    cells = [p for p in ax.patches if p.get_width() == 1]
    assert len(cells) == 256
    tint = [tuple(p.get_facecolor()) for p in cells]
    assert all(same_color(tint[code], plot.LOST_COLOUR) for code in (0x7F, 0xFF))
    assert all(same_color(tint[code], "white") for code in (0x00, 0x80))
    assert tint[8] == tint[15] != tint[16] == tint[23] != tint[24]  # one exponent, one tint
    assert sum(p.get_hatch() == "////" for p in ax.patches) == 14
    assert ax.get_title() == "E4M3: 256 codes, 14 subnormal, 2 NaN"
    assert [label.get_text() for label in ax.get_xticklabels()] == list("0123456789ABCDEF")
    assert plot.code_grid("e5m2", title="x").get_title() == "x"


def test_code_grid_counts_are_those_of_the_format():
    kinds = fs.classify(fs.from_codes(fs.E5M2.codes(), "e5m2"))
    names = np.array([fs.FloatClass(k).name for k in kinds])
    infinite, nan, subnormal = (sum(word in name for name in names) for word in ("INFINITY", "NAN", "SUBNORMAL"))
    assert (
        plot.code_grid("e5m2").get_title()
        == f"E5M2: 256 codes, {subnormal} subnormal, {infinite} infinities, {nan} NaN"
    )


def test_code_grid_of_a_wide_format_is_an_error():
    with pytest.raises(ValueError, match="at most 8 bits, such as 'e4m3'; FP16 has 16"):
        plot.code_grid("fp16")


@pytest.mark.parametrize("size", [10, 16, 20])
@pytest.mark.parametrize("fmt", ["e4m3", "e5m2", "e2m3"])
def test_words_fit_the_cells_of_a_slide(fmt, size):
    """With the large letters of slides, in Axes of the caller."""
    with plt.rc_context({"font.size": size}):
        figure, ax = plt.subplots(figsize=(10, 5.6))
        plot.code_grid(fmt, ax=ax)
        figure.canvas.draw()
        cells = ax.transData.transform([(0, 0), (1, 0)])
        widths = [text.get_window_extent().width for text in ax.texts]
    plt.close(figure)
    assert max(widths) <= 1.02 * (cells[1, 0] - cells[0, 0])
