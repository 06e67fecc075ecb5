"""Pictures of roundings: every step is where the rounding puts it."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import same_color

import floatsim as fs
from floatsim import datasets, plot

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


def test_rounding_errors_errors():
    with pytest.raises(ValueError, match="at least one direction"):
        plot.rounding_errors([1.0], roundings=[])
    with pytest.raises(ValueError, match="no number that E4M3 can hold: all are beyond 448"):
        plot.rounding_errors([1e9], "e4m3")
    with pytest.raises(ValueError, match="no finite non-zero"):
        plot.rounding_errors([0.0])


# -- scaling -------------------------------------------------------------------------------------------------------


def test_scale_sweep_stacks_the_fates_of_each_scale():
    x = datasets.digits()["gradients"]
    ax = plot.scale_sweep(x, "e4m3", exponents=(0, 32), mark=20, title="sweep")
    columns = {}
    for patch in ax.patches:
        columns.setdefault(round(patch.get_x() + 0.5), []).append(patch)
    assert sorted(columns) == list(range(33))
    for k in (0, 9, 20, 32):
        fate = plot.fates(np.float64(x) * 2.0**k, "e4m3")
        heights = [patch.get_height() for patch in columns[k]]
        assert heights == pytest.approx([fate.flushed, fate.subnormal, fate.normal, fate.overflowed])
        assert [patch.get_y() for patch in columns[k]] == pytest.approx([0, *np.cumsum(heights)[:-1]])
        assert same_color(columns[k][0].get_facecolor(), plot.LOST_COLOUR)
        assert same_color(columns[k][2].get_facecolor(), plot.colour("e4m3"))
    assert words(ax) == ["lost to zero", "subnormal", "normal", "overflow"]
    assert ax.lines[-1].get_xdata() == [20, 20]
    assert (ax.get_ylim(), ax.get_title(), ax.get_xlabel()) == ((0, 1), "sweep", "multiplied by")


def test_scale_sweep_errors():
    with pytest.raises(ValueError, match="exponents must be two integers"):
        plot.scale_sweep([1.0], exponents=(3, 3))
    with pytest.raises(ValueError, match="no finite non-zero"):
        plot.scale_sweep([0.0])


@pytest.mark.parametrize("draw", [plot.staircase, lambda ax: plot.rounding_errors([1.1], ax=ax),
                                  lambda ax: plot.scale_sweep([1.1], ax=ax)])  # fmt: skip
def test_draws_into_the_axes_given(draw):
    _, ax = plt.subplots()
    assert draw(ax=ax) is ax
