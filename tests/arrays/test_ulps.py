"""ulp by its three definitions, compared with a search among the numbers; ulp_distance compared with sorting."""

from __future__ import annotations

import math
from bisect import bisect
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import floatsim as fs

pytestmark = pytest.mark.formats

SMALL = [fmt for fmt in fs.named_formats() if fmt.bits <= 8 and not fmt.is_scale]
SMALL += [fs.FloatFormat("fn(3,1)", 3, 1, "fn"), fs.FloatFormat("p1", 4, 0, "finite")]


def numbers(fmt):
    """The non-negative numbers of a format, ascending."""
    return [Fraction(v) for v in fs.decode(np.arange(fmt.max_code + 1), fmt)]


def samples(fmt):
    grid = numbers(fmt)
    low, high = Fraction(fmt.smallest_subnormal), Fraction(fmt.max)
    between = [a + (b - a) * t for a, b in pairwise(grid) for t in map(Fraction, ("1/8", "3/8", "5/8", "7/8"))]
    return [*grid, *between, low / 3, high * 3 / 2, high * 5]


@pytest.mark.parametrize("fmt", SMALL, ids=str)
def test_goldberg(fmt):
    for x in samples(fmt):
        e = math.frexp(float(x))[1] - 1 if x else fmt.emin
        assert fs.ulp(float(x), fmt) == 2.0 ** (max(e, fmt.emin) - fmt.precision + 1)


@pytest.mark.parametrize("fmt", SMALL, ids=str)
def test_kahan_is_the_interval_of_the_two_nearest_numbers(fmt):
    grid = numbers(fmt)
    every = sorted({*grid, *(-v for v in grid)})
    for x in samples(fmt):
        place = bisect(every, x)
        near = every[max(place - 3, 0) : place + 3]  # the three nearest numbers are among them
        distances = sorted(abs(v - x) for v in near)
        if len(distances) > 2 and distances[1] == distances[2]:
            continue  # a tie for the second nearest: either interval is one
        first, second = sorted(near, key=lambda v: abs(v - x))[:2]
        assert fs.ulp(float(x), fmt, kind="kahan") == abs(first - second), (fmt, x)


@pytest.mark.parametrize("fmt", SMALL, ids=str)
def test_harrison_is_the_closest_straddling_pair(fmt):
    grid = numbers(fmt)
    for x in samples(fmt):
        if not 0 < x <= grid[-1]:
            continue
        pairs = [b - a for a, b in pairwise(grid) if a <= x <= b]
        assert fs.ulp(float(x), fmt, kind="harrison") == min(pairs), (fmt, x)


def test_arrays_formats_and_specials():
    x = fs.array([1.0, 2.0, np.inf, np.nan, 0.0], "bf16")
    assert np.array_equal(fs.ulp(x), [2.0**-7, 2.0**-6, np.nan, np.nan, fs.BF16.smallest_subnormal], equal_nan=True)
    assert fs.ulp(1, "fp16") == fs.ulp(-1.0, "fp16") == 2.0**-10
    assert fs.ulp(5e-324, "fp64") == 5e-324
    for wrong, match in ((("fp16", "muller"), "kind must be"), (("e8m0",), "scale format")):
        with pytest.raises(ValueError, match=match):
            fs.ulp(1.0, *wrong)


@pytest.mark.parametrize("fmt", [*SMALL, fs.FP16], ids=str)
def test_distance_counts_numbers(fmt):
    rng = np.random.default_rng(1)
    codes = fmt.codes()
    values = fs.decode(codes, fmt)
    place = {v: i for i, v in enumerate(sorted(set(values[~np.isnan(values)])))}
    a, b = (codes[rng.integers(0, codes.size, 400)] for _ in range(2))
    got = fs.ulp_distance(fs.from_codes(a, fmt), fs.from_codes(b, fmt))
    for x, y, d in zip(fs.decode(a, fmt), fs.decode(b, fmt), got, strict=True):
        assert d == (2**64 - 1 if np.isnan(x) or np.isnan(y) else abs(place[x] - place[y]))


def test_distance_of_zeros_nans_and_python_numbers():
    x = fs.array([0.0, np.nan, 1.0], "fp16")
    assert fs.ulp_distance(x, -0.0)[0] == 0
    assert fs.ulp_distance(x, x).tolist() == [0, 2**64 - 1, 0]
    assert fs.ulp_distance(x, x, equal_nan=True).tolist() == [0, 0, 0]
    assert fs.ulp_distance(np.float64(-1.7976931348623157e308), 1.7976931348623157e308) == 2 * 0x7FEFFFFFFFFFFFFF
    with pytest.raises(TypeError, match="within one format"):
        fs.ulp_distance(x, fs.array(1.0, "bf16"))


@pytest.mark.filterwarnings("ignore:b = 1e-07 becomes:floatsim.FloatsimWarning")
@pytest.mark.parametrize("ambient", [{"rounding": "RTZ"}, {"rounding": "SR"}, {"ftz": True}], ids=str)
def test_python_numbers_do_not_follow_the_context(ambient):
    with fs.context(**ambient), fs.record() as log:
        assert fs.ulp_distance(fs.from_codes([0x3C01], "fp16"), 1.0009).item() == 0
        assert fs.ulp_distance(fs.from_codes([3], "fp16"), 1e-7).item() == 1
    assert log.counts == {}
