"""Warnings about valid calls whose results are probably not intended, and their absence elsewhere."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import floatsim as fs


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize(
    ("fmt", "number", "becomes"),
    [("e4m3", 1e-3, "0.001953125"), ("e4m3", 1000, "nan"), ("fp16", 1e5, "inf"), ("e2m1", 0.7, "0.5"),
     ("fp16", 1e-9, "0.0"), ("e4m3", float("inf"), "nan"), ("e2m1", float("inf"), "6.0"), ("e5m2", 10**400, "inf"),
     ("e2m1", float("nan"), "6.0"), ("bf16", -1e-45, "-0.0")],
)  # fmt: skip
def test_numbers_that_change(fmt, number, becomes):
    x = fs.array([1.0], fmt)
    for call in (
        lambda: x * number,
        lambda: x < number,
        lambda: fs.add(number, x),
        lambda: np.where([True], x, number),
    ):
        with pytest.warns(fs.FloatsimWarning) as caught:
            call()
        (warning,) = [w for w in caught if issubclass(w.category, fs.FloatsimWarning)]
        assert f"becomes {becomes} in {fs.as_format(fmt).name}" in str(warning.message)
        assert warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fs.FloatsimWarning)
        x * number


@pytest.mark.parametrize(
    ("fmt", "number"),
    [("e4m3", 0.1), ("e4m3", 0.0), ("e4m3", -0.0), ("e4m3", 448), ("e4m3", 460.0), ("fp16", float("inf")),
     ("fp16", float("nan")), ("e2m1", 6), ("e2m1", 1.6), ("e3m2", 29), ("bf16", 1 / 3), ("fp64", 1e-320),
     ("e4m3fnuz", 0)],
)  # fmt: skip
def test_numbers_that_do_not(quiet, fmt, number):
    x = fs.array([1.0], fmt)
    x * number, x == number
    fs.array([number], fmt), fs.encode(number, "e4m3"), fs.convert(1e-3, "e4m3")


def test_the_margin():
    """In the normal range p >= 4 never changes by 10 %, and the exact computation decides for fewer bits."""
    rng = np.random.default_rng(2)
    for fmt in fs.E4M3, fs.E5M2, fs.E2M1, fs.E3M2, fs.FP16, fs.E4M3FNUZ:
        x = fs.array([1.0], fmt)
        for number in (rng.standard_normal(300) * 2.0 ** rng.integers(fmt.emin - 6, fmt.emax + 2, 300)).tolist():
            value = fs.decode(fs.encode(number, fmt), fmt)
            expected = not abs(value - number) <= 0.1 * abs(number)
            with warnings.catch_warnings(record=True, action="always") as caught:
                x + number
            assert bool(caught) == expected, (fmt, number)


@pytest.mark.full
def test_float64_operands_of_a_matrix_unit():
    ones = np.ones((16, 16))
    for text, a, fmt in (
        ("hopper", ones, "E4M3"), ("ampere", ones, "FP16"), ("blocked(hopper, 8, fp32)", ones * 1024, "E5M2"),
        ("hopper", ones * 1001, "FP16"), ("ampere", ones * 2.0**40, "BF16"),
    ):  # fmt: skip
        with pytest.warns(fs.FloatsimWarning, match=f"FP64 instruction .* numbers of {fmt}; ") as caught:
            fs.matmul(a, a, accumulate=text)
        assert caught[0].filename == __file__


def test_other_operands_of_a_matrix_unit(quiet):
    ones, wide = np.ones((16, 16)), np.full((16, 16), 1 + 2.0**-40)
    fs.matmul(wide, ones, accumulate="hopper")
    fs.matmul(ones, ones, accumulate=fs.TensorCore("hopper", "mma.m16n8k16"))
    fs.matmul(fs.array(ones, "fp64"), fs.array(ones, "fp64"), accumulate="hopper")
    fs.matmul(ones, ones, accumulate="fp32")
    fs.matmul(ones, ones)
    fs.matmul(np.zeros((4, 4)), ones[:4, :4], accumulate="hopper")
    fs.matmul(ones.astype(np.float16), ones.astype(np.float16), accumulate="hopper")
