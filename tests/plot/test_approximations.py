"""The picture of an approximation's error: a line for each segment, and points at most 1 ulp below their line."""

from __future__ import annotations

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


@pytest.mark.parametrize(("name", "segments", "exact"), [
    ("ex2", 64, np.exp2), ("rcp", 128, np.reciprocal), ("rsqrt", 64, lambda x: 1 / np.sqrt(x)), ("sqrt", 64, np.sqrt),
])  # fmt: skip
def test_lines_are_the_segments_and_points_the_results(name, segments, exact):
    ax = plot.approximation_error(name, title="an error")
    zero, points, *lines = ax.lines
    assert (ax.get_title("left"), ax.get_xlabel(), ax.get_ylabel()) == ("an error", "argument", "error, ulp")
    assert list(zero.get_ydata()) == [0, 0]
    assert len(lines) == segments
    assert all(not same_color(a.get_color(), b.get_color()) for a, b in zip(lines, lines[1:], strict=False))
    assert [line.get_xdata()[0] for line in lines] == [1 + k / segments for k in range(segments)]
    x, y = (np.array(each) for each in points.get_data())
    results, ulp = getattr(fs.approx, name)(x.astype(np.float32)), 2.0 ** (np.floor(np.log2(exact(1.5))) - 23)
    assert np.array_equal(y, (results - exact(x)) / ulp)
    for k in range(0, segments, 7):
        inside = (x >= 1 + k / segments) & (x < 1 + (k + 1) / segments) & (x > 1)
        above = np.interp(x[inside], *lines[k].get_data()) - y[inside]
        assert -0.1 < above.min() and above.max() < 1.3  # the truncations, of the result and of the square


def test_errors():
    with pytest.raises(ValueError, match="function='tanh' has no such picture; .*ex2"):
        plot.approximation_error("tanh")
    with pytest.raises(ValueError, match="known are 'sm_90'"):
        plot.approximation_error(device="ada")
