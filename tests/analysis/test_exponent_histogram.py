"""Exponent histograms: the numbers, and that the picture draws them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib import pyplot as plt

import floatsim as fs

FORMATS = [fs.FP16, fs.E4M3, fs.E5M2, fs.FP32]
KINDS = ("flushed", "subnormal", "normal", "overflowed")


def values():
    rng = np.random.default_rng(4)
    x = np.ldexp(rng.standard_normal(400), rng.integers(-40, 25, 400))
    edges = [edge for fmt in FORMATS[:3] for edge in (fmt.max, fmt.smallest_normal, fmt.smallest_subnormal)]
    return np.concatenate([x, edges, np.nextafter(edges, 0), np.nextafter(edges, np.inf)])


def test_each_bin_has_the_numbers_of_its_power_of_two():
    x = values()
    found = fs.exponent_histogram(np.append(x, [0.0, np.nan, -np.inf]).reshape(2, -1), FORMATS)
    exponents = np.array([math.frexp(number)[1] - 1 for number in x])
    assert found.formats == tuple(FORMATS)
    assert found.exponents.tolist() == list(range(exponents.min(), exponents.max() + 1))
    for e, number in zip(found.exponents, found.numbers, strict=True):
        assert number == np.count_nonzero((np.abs(x) >= 2.0**e) & (np.abs(x) < 2.0 ** (e + 1)))
    for row, fmt in enumerate(FORMATS):
        assert found.losses[row] == fs.conversion_losses(x, fmt)
        for column, e in enumerate(found.exponents):
            if found.numbers[column]:
                shares = fs.conversion_losses(x[exponents == e], fmt)
                numbers = [getattr(found, kind)[row, column] for kind in KINDS]
                assert [getattr(shares, kind) * found.numbers[column] for kind in KINDS] == pytest.approx(numbers)
            else:
                assert not any(getattr(found, kind)[row, column] for kind in KINDS)


def test_a_context_does_not_change_the_numbers():
    plain = fs.exponent_histogram(values(), FORMATS)
    with fs.context(rounding="toward_zero", ftz=True, daz=True, overflow="saturate_finite"):
        other = fs.exponent_histogram(values(), FORMATS)
    assert all(np.array_equal(getattr(plain, kind), getattr(other, kind)) for kind in KINDS)


def test_the_picture_draws_the_numbers():
    x = values()
    found = fs.exponent_histogram(x, ["fp16", "e4m3"])
    ax = fs.plot.exponent_histogram(x, ["fp16", "e4m3"])
    drawn = {}
    for bar in (bar for bar in ax.patches if bar.get_width() == pytest.approx(0.9) and bar.get_height() > 0):
        row = 1 - math.floor(bar.get_y())
        drawn.setdefault((row, bar.get_x()), []).append(bar.get_height())
    scale = max(sum(heights) for heights in drawn.values()) / found.numbers.max()
    for row in range(2):
        for column, e in enumerate(found.exponents):
            numbers = [n for kind in KINDS if (n := getattr(found, kind)[row, column])]
            assert sorted(drawn.pop((row, e), [])) == pytest.approx(sorted(scale * n for n in numbers))
    assert not drawn
    plt.close("all")


def test_one_format_and_arrays_of_a_format():
    x = fs.array([1.0, 0.0, 6e-8, 448.0], "fp16")
    found = fs.exponent_histogram(x, "e4m3")
    assert found.formats == (fs.E4M3,) and found.exponents[[0, -1]].tolist() == [-24, 8]
    assert (found.flushed.sum(), found.normal.sum(), found.numbers.sum()) == (1, 2, 3)


@pytest.mark.parametrize(("x", "formats", "message"), [([0.0, np.inf], "fp16", "x has no finite non-zero number"),
                                                       ([1.0], [], "formats must name at least one")])  # fmt: skip
def test_bad_arguments(x, formats, message):
    with pytest.raises(ValueError, match=message):
        fs.exponent_histogram(x, formats)
