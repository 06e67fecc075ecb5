"""Bounds of a product by two directed roundings, against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import floatsim as fs
from tests.marks import cases


def exact_products(a, b, c):
    rows = [[[Fraction(float(v)) for v in line] for line in x] for x in (a.values, b.values, c.values)]
    return [[sum(x * y for x, y in zip(line, column, strict=True)) + rows[2][i][j]
             for j, column in enumerate(zip(*rows[1], strict=True))] for i, line in enumerate(rows[0])]  # fmt: skip


@pytest.mark.parametrize(
    "accumulate",
    cases(
        quick=["fp32", "exact(bf16)"],
        full=["fp16", "bf16", "pairwise(fp16)", "blocked(fp16, 8, fp32)", "sequential(fp16, fused)"],
    ),
)
def test_bounds_enclose_the_exact_product(accumulate):
    draw = np.random.default_rng(7)
    for scale in (1.0, 2.0**-7):  # the second has subnormal products
        a, b, c = (fs.array(draw.standard_normal(shape) * scale, "fp16") for shape in ((4, 30), (30, 4), (4, 4)))
        low, high = fs.product_bounds(a, b, c, accumulate=accumulate)
        for i, line in enumerate(exact_products(a, b, c)):
            for j, exact in enumerate(line):
                assert Fraction(float(low.values[i, j])) <= exact <= Fraction(float(high.values[i, j]))
        assert (low.values < high.values).any()


def test_the_context_and_overflow_keep_the_bounds():
    tiny = fs.array([2.0**-24], "fp16")
    with fs.context(daz=True, ftz=True, overflow="saturate_finite", rounding="RTZ"):
        low, high = fs.product_bounds(-tiny, tiny, accumulate="fp32", format="fp16")
        assert float(low) == -(2.0**-24)
        large = fs.array([65504.0, 65504.0], "fp16")
        low, high = fs.product_bounds(large, large, accumulate="fp32", format="fp16")
    assert (float(low), float(high)) == (65504.0, np.inf)
    low, high = fs.product_bounds(large, fs.array([1.0, 1.0], "fp16"), accumulate="fp32", format="fp16")
    assert (float(low), float(high)) == (65504.0, np.inf)


@pytest.mark.parametrize(
    ("a", "b", "c", "result"),
    [
        ([np.inf, 1], [1, 1], None, np.inf),
        ([-np.inf, 1], [1, 1], None, -np.inf),
        ([1, 1], [1, 1], -np.inf, -np.inf),
        ([np.nan, 1], [1, 1], None, np.nan),
        ([np.inf, 1], [0, 1], None, np.nan),
        ([np.inf, np.inf], [1, -1], None, np.nan),
    ],
)
def test_special_values(a, b, c, result):
    a, b = fs.array(a, "fp16"), fs.array(b, "fp16")
    bounds = fs.product_bounds(a, b, None if c is None else fs.array(c, "fp16"), accumulate="fp32")
    for bound in bounds:
        assert np.array_equal(bound.values, result, equal_nan=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accumulate": "kahan(fp16)"}, "has no bounds by two directed roundings"),
        ({"accumulate": "hopper"}, "has no bounds by two directed roundings"),
        ({"accumulate": "blocked(hopper, 16, fp32)"}, "has no bounds by two directed roundings"),
        ({"accumulate": fs.Sequential("fp16", rounding="RTZ")}, "fixes rounding options"),
        ({"accumulate": fs.Sequential("fp16", overflow="saturate_finite")}, "fixes rounding options"),
        ({"accumulate": "e4m3"}, "E4M3 has no infinity"),
        ({"accumulate": "fp16", "format": "e4m3"}, "format=E4M3 has no infinity"),
    ],
)
def test_descriptions_without_bounds(options, message):
    x = fs.array([1.0], "fp16")
    with pytest.raises(ValueError, match=message):
        fs.product_bounds(x, x, **options)
