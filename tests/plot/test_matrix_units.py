"""Pictures of matrix units: which bits are drawn, which are black, where terms are cut."""

from __future__ import annotations

import math
from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import same_color

import floatsim as fs
from floatsim import plot

pytestmark = pytest.mark.full


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def traces(units, c=0, n=16, seed=0, fmt="fp16"):
    rng = np.random.default_rng(seed)
    x, y = (fs.array(rng.normal(size=n), fmt) for _ in range(2))
    return {unit: fs.tensorcore.trace(x, y, c, accumulate=unit) for unit in units}


def drawn_bits(ax, row):
    """{place: digit} of a row."""
    bits = [t for t in ax.texts if t.get_text() in ("0", "1") and row < t.get_position()[1] < row + 1]
    return {math.floor(t.get_position()[0]): int(t.get_text()) for t in bits if t.get_fontfamily() == ["monospace"]}


def value_of(bits):
    return sum((bit * Fraction(2) ** place for place, bit in bits.items()), Fraction(0))


def test_side_by_side_draws_the_bits_of_the_exact_sum_and_of_each_result():
    found = traces(["volta", "ampere", "hopper"])
    ax = plot.side_by_side(found, title="three")
    assert [t.get_text() for t in ax.get_yticklabels()] == ["exact", *found]
    exact = next(iter(found.values())).exact
    assert value_of(drawn_bits(ax, 0)) == abs(exact)
    for row, each in enumerate(found.values(), 1):
        bits = drawn_bits(ax, row)
        assert value_of(bits) == abs(each.value)
        assert len(bits) == 24  # FP32's
    assert ax.get_title(loc="left") == "three"


def test_side_by_side_bits_unlike_the_exact_sums_are_black():
    x, y = fs.array([1.0, 2.0**-10, 2.0**-10], "fp16"), fs.array([1.0, 2.0**-14, 1.5 * 2.0**-14], "fp16")
    found = {unit: fs.tensorcore.trace(x, y, 2.0, accumulate=unit) for unit in ("volta", "blackwell")}
    found["exactly"] = fs.tensorcore.trace(x, y, 2.0, accumulate="cdna1")
    ax = plot.side_by_side(found)
    assert found["volta"].exact == 3 + Fraction(5, 2**25)
    wrong = 0
    for row, each in enumerate(found.values(), 1):
        black = {
            math.floor(p.get_x()): same_color(p.get_facecolor(), plot.LOST_COLOUR)
            for p in ax.patches
            if row < p.get_y() < row + 1 and same_color(p.get_edgecolor(), plot.LOST_COLOUR)
        }
        differ = {
            place: bool(bit) for place, bit in drawn_bits(ax, row).items()
            if bit != int(each.exact // Fraction(2) ** place % 2)
        }  # fmt: skip
        assert black == differ
        wrong += len(differ)
    assert wrong
    notes = [t.get_text().split() for t in ax.texts if t.get_text().startswith("3")]
    assert notes[0] == ["3.00000015"]
    for note, each in zip(notes[1:], found.values(), strict=True):
        assert note[1:] == (["off", "by", f"{float(each.error):+.1e}"] if each.error else ["exact"])


def test_side_by_side_cuts_stand_behind_the_last_place_kept():
    found = traces(["ampere", "hopper", "cdna1"], seed=3)
    ax = plot.side_by_side(found)
    cuts = {
        round(line.get_ydata()[0] - 0.02): line.get_xdata()[0] for line in ax.lines if len(set(line.get_xdata())) == 1
    }
    quanta = {
        row: max(block.quantum for block in each.blocks)
        for row, each in enumerate(found.values(), 1)
        if each.blocks[0].quantum is not None
    }
    assert cuts == quanta
    assert set(cuts) == {1, 2}  # CDNA 1 cuts nothing


def test_side_by_side_has_the_colours_of_the_grids():
    found = traces(["hopper", "blackwell"], fmt="e4m3")
    labels = plot.side_by_side(found).get_yticklabels()
    assert same_color(labels[0].get_color(), plot.colour("e4m3"))
    assert same_color(labels[1].get_color(), plot.CUSTOM_COLOUR)  # FP32 with 13 fraction bits
    assert same_color(labels[2].get_color(), plot.colour("fp32"))


GAPS = range(10, 16)
SHARES = {"cut": [1, 14 / 15, 12 / 15, 8 / 15, 0, 0], "rounded": [1, 1, 16 / 15, 0, np.nan, np.nan]}


def test_width_map_draws_all_parts_and_nothing():
    ax = plot.width_map(SHARES, GAPS, formats={"cut": "e4m3"}, title="widths")
    assert [t.get_text() for t in ax.texts] == ["93", "80", "53", "107"]
    assert len(ax.patches) == 10  # what is NaN is not drawn
    first = [p for p in ax.patches if p.get_y() < 1]
    assert same_color(first[0].get_facecolor(), plot.colour("e4m3"))
    assert [p.get_height() < 0.5 for p in first] == [False] * 4 + [True] * 2
    assert all(same_color(p.get_facecolor(), plot.LOST_COLOUR) for p in first[4:])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["cut", "rounded"]
    assert same_color(ax.get_yticklabels()[0].get_color(), plot.colour("e4m3"))
    assert [t.get_text() for t in ax.get_xticklabels()] == [str(gap) for gap in GAPS]
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 6), (2, 0))
    assert ax.get_title(loc="left") == "widths"


X = fs.array([1.0], "fp16")


@pytest.mark.parametrize(("call", "message"), [
    (lambda: plot.side_by_side({}), "at least one trace"),
    (lambda: plot.side_by_side(traces(["hopper"]) | {"other": fs.tensorcore.trace(X, X, accumulate="volta")}),
     "one dot product; their exact sums are hopper: .*, other: 1"),
    (lambda: plot.side_by_side({"zero": fs.tensorcore.trace(X, -X, 1, accumulate="volta")}), "not zero"),
    (lambda: plot.side_by_side({"inf": fs.tensorcore.trace(X, X, np.inf, accumulate="volta")}), "must be a number"),
    (lambda: plot.width_map({}, GAPS), "at least one row"),
    (lambda: plot.width_map({"a": [1, 0]}, GAPS), r"shares\['a'\] has the shape \(2,\); there are 6 gaps"),
])  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
