"""Pictures of roundings: every step is where the rounding puts it."""

from __future__ import annotations

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest

import floatsim as fs
from floatsim import plot

pytestmark = pytest.mark.full

FIXED = [r for r in fs.Rounding if r is not fs.Rounding.STOCHASTIC]


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def words(ax):
    return [text.get_text() for text in ax.texts]


def steps(ax):
    return [(*map(float, left), float(right[0])) for left, right in ax.collections[0].get_segments()]


@pytest.mark.parametrize("rounding", FIXED, ids=lambda r: r.name)
@pytest.mark.parametrize(("fmt", "limits"), [
    ("e2m1", (-7, 9)), ("e4m3", (400, 500)), ("e4m3", (-0.02, 0.02)), ("e4m3fnuz", (200, 300)), ("e5m2", (5e4, 7e4)),
    ("ieee(3,1)", (-1, 1)), ("e2m3", (6.5, 9)),
])  # fmt: skip
def test_every_step_is_where_the_rounding_puts_it(fmt, limits, rounding):
    """Of many numbers, those on a step are rounded to it; those on none are rounded to no number."""
    ax = plot.staircase(fmt, rounding=rounding, limits=limits)
    x = np.random.default_rng(0).uniform(*limits, 2000)
    rounded = fs.quantize(x, fmt, rounding=rounding)
    drawn = np.full(x.size, np.nan)
    for left, y, right in steps(ax):
        drawn[(left < x) & (x < right)] = y
    assert np.array_equal(np.where(np.isfinite(rounded), rounded, np.nan), drawn, equal_nan=True)
    for line in ax.lines[1:]:
        for px, py in zip(*line.get_data(), strict=True):
            assert fs.quantize(px, fmt, rounding=rounding) == py
    assert ax.get_xlim() == limits
    assert ax.get_title() == rounding.name.lower().replace("_", " ")


def test_dots_are_on_ties_of_the_nearest_and_numbers_of_the_others():
    ties = plot.staircase("e2m1", limits=(0.1, 3)).lines[1].get_xdata()
    assert ties.tolist() == [0.25, 0.75, 1.25, 1.75, 2.5]
    numbers = plot.staircase("e2m1", limits=(0.1, 3), rounding="RTZ").lines[1].get_xdata()
    assert numbers.tolist() == [0.5, 1, 1.5, 2]


def test_staircase_ticks_are_numbers_of_the_format():
    for fmt, limits in [("e2m1", (-3, 3)), ("e5m2", (44_000, 72_000)), ("e4m3", (380, 520)), ("e2m3", (-3, 3))]:
        ax = plot.staircase(fmt, limits=limits)
        values = fs.decode(fs.as_format(fmt).codes(), fmt)
        for axis, (low, high) in ((ax.xaxis, limits), (ax.yaxis, ax.get_ylim())):
            labelled, rest = axis.get_ticklocs().tolist(), axis.get_ticklocs(minor=True).tolist()
            there = set(values[(low <= values) & (values <= high)].tolist())
            assert set(labelled) | set(rest) == there
            assert labelled
        assert ax.get_xlim() == limits


def test_staircase_tick_labels_do_not_overlap():
    for fmt, limits in [("e2m3", (-3, 3)), ("e5m2", (44_000, 72_000)), ("e3m2", (-0.3, 0.4))]:
        ax = plot.staircase(fmt, limits=limits)
        ax.figure.canvas.draw()
        for labels in (ax.get_xticklabels(), ax.get_yticklabels()):
            boxes = [label.get_window_extent() for label in labels]
            assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_what_overflows_is_hatched_and_named():
    ax = plot.staircase("e4m3", limits=(400, 500))
    assert words(ax) == ["NaN"]
    area = next(p for p in ax.patches if p.get_hatch())
    assert (area.get_x(), area.get_x() + area.get_width()) == (464, 500)
    assert words(plot.staircase("ieee(3,1)", limits=(-20, 20))) == ["−∞", "+∞"]
    assert words(plot.staircase("e4m3", limits=(400, 500), overflow="saturate_finite")) == []


def test_flushed_steps():
    flat = [(a, b) for a, y, b in steps(plot.staircase("e2m1", limits=(-1, 1), ftz=True)) if y == 0]
    assert (flat[0][0], flat[-1][1]) == (-0.75, 0.75)


def test_stochastic_steps_are_as_dark_as_they_are_probable():
    ax = plot.staircase("e2m1", rounding="stochastic", limits=(2, 3))
    low, high = ax.collections
    for collection, level in ((low, 2), (high, 3)):
        segments = np.array(collection.get_segments())
        middle = segments[:, :, 0].mean(axis=1)
        assert set(segments[:, :, 1].ravel()) == {level}
        chance = 3 - middle if level == 2 else middle - 2
        assert collection.get_colors()[:, 3] == pytest.approx(chance, abs=1e-9)


def test_staircase_errors():
    with pytest.raises(ValueError, match=r"at most 200 numbers.*hold 1,025 of FP16"):
        plot.staircase("fp16", limits=(1, 2))
    with pytest.raises(ValueError, match="at most 200 numbers"):
        plot.staircase("fp32", limits=(1, 2))
    with pytest.raises(ValueError, match="rounding='up' is not known"):
        plot.staircase(rounding="up")
    with pytest.raises(ValueError, match="overflow='wrap' is not known"):
        plot.staircase(overflow="wrap")
    with pytest.raises(ValueError, match="limits must be"):
        plot.staircase(limits=(1, 0))


# -- errors --------------------------------------------------------------------------------------------------------


def test_rounding_errors_draws_the_mean_of_each_direction():
    x = np.random.default_rng(1).uniform(1, 2, 5000)
    ax = plot.rounding_errors(x, "bf16", title="errors")
    errors = {r: ((fs.quantize(x, "bf16", rounding=r, seed=0) - x) / 2**-7).mean() for r in fs.Rounding}
    assert words(ax) == [f"mean {e:+.3f} ulp".replace("-", "−") for e in errors.values()]
    drawn = [c.get_segments()[0][0][0] for c in ax.collections]
    assert drawn == pytest.approx(list(errors.values()), abs=1e-12)
    assert ax.get_yticklabels()[0].get_text() == "ties to even"
    assert [text.get_fontweight() == "bold" for text in ax.texts] == [False, False, True, True, True, False, False]
    assert ax.get_title() == "errors"


def test_rounding_errors_draws_where_errors_are():
    ax = plot.rounding_errors([1.25 + 1e-9, 1.75], "e5m2", roundings=["RTP"])  # one goes up a whole ulp, one stays
    tall = [(p.get_x(), p.get_x() + p.get_width()) for p in ax.patches if p.get_height() > 0]
    assert len(tall) == 2
    assert tall[0][0] < 0 < tall[0][1]
    assert tall[1][0] < 1 <= tall[1][1] + 1e-12


def drawn_errors(ax, row):
    """(left, right) of the bars in a row that are not empty, row 0 at the bottom."""
    tall = [p for p in ax.patches if p.get_height() > 0 and p.get_y() == row]
    return [(p.get_x(), p.get_x() + p.get_width()) for p in tall]


def test_rounding_errors_stay_within_the_bounds_of_their_mode():
    x = np.concatenate([np.random.default_rng(2).uniform(1, 2, 3000), 1 + np.arange(128) / 128 + 2.0**-8])  # and ties
    ax = plot.rounding_errors(x, "bf16")
    half, down, up, both = (-0.5, 0.5), (-1, 0), (0, 1), (-1, 1)
    names = [rounding.name for rounding in fs.Rounding]
    bounds = dict(zip(names, [half, half, down, up, down, both, both], strict=True))
    for row, name in enumerate(reversed(bounds)):
        found = drawn_errors(ax, row)
        assert min(left for left, _ in found) >= bounds[name][0] - 1e-12, name
        assert max(right for _, right in found) <= bounds[name][1] + 1e-12, name
    assert ax.get_xticks().tolist() == [-1, -0.5, 0, 0.5, 1]


def test_exact_results_have_a_bar_at_zero():
    ((left, right),) = drawn_errors(plot.rounding_errors([1.0, 2.0], "bf16", roundings=["RTZ"]), 0)
    assert left < 0 < right
    assert right - left < 0.02


def test_rounding_errors_errors():
    with pytest.raises(ValueError, match="at least one rounding mode"):
        plot.rounding_errors([1.0], roundings=[])
    with pytest.raises(ValueError, match="no number in the range of E4M3: all are beyond 448"):
        plot.rounding_errors([1e9], "e4m3")
    with pytest.raises(ValueError, match="no finite non-zero"):
        plot.rounding_errors([0.0])
    with pytest.raises(ValueError, match="no number in the range of E8M0"):
        plot.rounding_errors([-1.0], "e8m0")


@pytest.mark.parametrize("draw", [plot.staircase, lambda ax: plot.rounding_errors([1.1], ax=ax)])
def test_draws_into_the_axes_given(draw):
    _, ax = plt.subplots()
    assert draw(ax=ax) is ax
