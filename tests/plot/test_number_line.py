"""Pictures of number lines, gaps and errors: what stands where."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import same_color

import floatsim as fs
from floatsim import plot
from floatsim.plot.number_line import numbers_between

pytestmark = pytest.mark.full

SMALL = [fmt for fmt in fs.named_formats() if fmt.bits <= 8]


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def words(ax):
    return [text.get_text() for text in ax.texts]


def ticks(collection):
    return [(segment[0][0], segment[1][1] - segment[0][1]) for segment in collection.get_segments()]


@pytest.mark.parametrize("fmt", SMALL, ids=str)
@pytest.mark.parametrize("limits", [(-1e9, 1e9), (0, 4), (-0.02, 0.01), (0.3, 0.31), (-5, -1), (1e6, 1e7), (448, 449)])
def test_numbers_between(fmt, limits):
    values = fs.decode(fmt.codes(), fmt)
    expected = np.unique(values[(limits[0] <= values) & (values <= limits[1])])
    found, count = numbers_between(fmt, *limits)
    assert found.tolist() == expected.tolist()
    assert count == expected.size


def test_numbers_between_of_wide_formats():
    found, count = numbers_between(fs.FP16, -1, 1)
    values = fs.decode(fs.FP16.codes(), "fp16")
    assert found.tolist() == np.unique(values[abs(values) <= 1]).tolist()
    assert count == found.size
    assert numbers_between(fs.FP32, 0, 8) == (None, 0x41000000 + 1)  # codes count upward from zero


def test_number_line_has_a_tick_for_each_number():
    ax = plot.number_line(["e2m1", "e3m2"], limits=(0, 6), title="line")
    normal, subnormal = ticks(ax.collections[0]), ticks(ax.collections[1])
    assert [x for x, _ in normal] == [0, 1, 1.5, 2, 3, 4, 6]
    assert [x for x, _ in subnormal] == [0.5]
    assert subnormal[0][1] < normal[0][1]
    assert same_color(ax.collections[0].get_color(), plot.colour("e2m1"))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["E2M1", "E3M2"]
    assert (ax.get_xlim(), ax.get_title()) == ((0, 6), "line")
    heights = [c.get_segments()[0][0][1] for c in (ax.collections[0], ax.collections[2])]
    assert heights == [1, 0]  # top to bottom


def test_number_line_without_subnormals():
    ax = plot.number_line("e2m1", limits=(0, 6), ftz=True, mark=0.5)
    assert [len(c.get_segments()) for c in ax.collections] == [7]
    assert words(ax) == ["0", "0.5"]  # a half is flushed to zero


def test_number_line_marks_the_nearest():
    ax = plot.number_line(["bf16", "e4m3"], limits=(0.09, 0.11), mark="0.1")
    assert words(ax) == ["0.1000977", "0.1015625", "0.1"]
    dots = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o"]
    assert dots == fs.quantize([0.1], "bf16").tolist() + fs.quantize([0.1], "e4m3").tolist()
    assert ax.lines[-1].get_xdata() == [0.1, 0.1]


def test_number_line_of_many_numbers_is_a_band():
    ax = plot.number_line("fp16", limits=(1, 2))
    assert words(ax) == ["1,025 numbers"]
    assert not ax.collections


@pytest.mark.parametrize("rows", [["fp16"], ["fp16", "e2m1"], ["e2m1", "fp16", "bf16"]])
def test_a_band_stands_on_the_line_of_its_format(rows):
    ax = plot.number_line(rows, limits=(0, 8))
    bands = [(p.get_x(), p.get_y(), p.get_width(), p.get_height()) for p in ax.patches]
    lines = [len(rows) - 1 - i for i, fmt in enumerate(rows) if fmt != "e2m1"]
    assert bands == [(0, base, 8, 0.62) for base in lines]


def test_a_band_without_subnormals_does_not_count_them():
    values = fs.decode(fs.FP16.codes(), "fp16")
    there = np.unique(values[(values >= 0) & (values <= 1)])
    assert words(plot.number_line("fp16", limits=(0, 1))) == [f"{there.size:,} numbers"]
    normal = there[(there == 0) | (there >= fs.FP16.smallest_normal)]
    assert words(plot.number_line("fp16", limits=(0, 1), ftz=True)) == [f"{normal.size:,} numbers"]


@pytest.mark.parametrize("limits", [(1, 1), (2, 1), (0, np.inf), (np.nan, 1)])
def test_limits_must_be_an_interval(limits):
    with pytest.raises(ValueError, match="limits must be two finite numbers"):
        plot.number_line(limits=limits)


def test_spacing_is_the_ulp_of_each_power_of_two():
    ax = plot.spacing(["fp16", "e4m3"], limits=(-12, 12))
    fp16, e4m3 = ax.lines
    x, y = e4m3.get_data()
    assert (x[0], x[-1]) == (-9, 9)  # from the smallest subnormal's power of two to the largest number's end
    assert [2.0**gap for gap in y[:-1]] == fs.ulp(np.ldexp(1.0, np.array(x[:-1], int)), "e4m3").tolist()
    assert same_color(fp16.get_color(), plot.colour("fp16"))
    assert words(ax) == ["FP16", "E4M3"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("size of the number", "gap to the next number")


def test_spacing_leaves_out_what_is_not_there():
    assert [line.get_color() for line in plot.spacing(["e4m3", "bf16"], limits=(20, 30)).lines] == [plot.colour("bf16")]


def test_worst_error_is_half_an_ulp_and_grows_where_numbers_are_subnormal():
    ax = plot.worst_error(["fp16", "e5m2"], limits=(-28, 20))
    errors = dict(zip(*ax.lines[0].get_data(), strict=True))
    assert max(errors) == 16  # numbers below 2**16; beyond, the line ends
    for e in range(-14, 16):
        assert 0.95 * 2**-11 < errors[e] <= 2**-11
    assert errors[-15] > errors[-14]
    assert errors[-24] == pytest.approx(1 / 3, abs=0.01)
    assert errors[-26] == 1
    assert ax.get_yscale() == "log"


def test_worst_error_with_flush_to_zero_is_one_at_once():
    line = plot.worst_error("fp16", limits=(-20, 0), ftz=True).lines[0]
    errors = dict(zip(*line.get_data(), strict=True))
    assert errors[-15] == 1
    assert errors[-14] < 2**-10
    assert line.get_linestyle() == "--"


def test_worst_error_ignores_the_ambient_context():
    with fs.context(rounding="toward_zero", ftz=True, overflow="saturate_finite"):
        inside = plot.worst_error("e4m3").lines[0].get_ydata()
    assert list(inside) == list(plot.worst_error("e4m3").lines[0].get_ydata())


@pytest.mark.parametrize("draw", [plot.number_line, plot.spacing, plot.worst_error])
def test_draws_into_the_axes_given_and_wants_a_format(draw):
    _, ax = plt.subplots()
    assert draw(ax=ax) is ax
    with pytest.raises(ValueError, match="at least one format"):
        draw([])
