"""`fs.significant_digits` equals the package significantdigits, and stochastic runs have the digits they should."""

from __future__ import annotations

import math

import numpy as np
import pytest

import floatsim as fs

SAMPLES = np.random.default_rng(0).normal(3.0, 1e-3, (12, 5)) * [1, -1e5, 1e-6, 1, 1]
SAMPLES[:, 3] = 3.0  # no variance, and exact
SAMPLES[:, 4] = 3.25  # no variance, and wrong
REFERENCE = np.array([3.0, -3e5, 3e-6, 3.0, 3.0])

OF_PACKAGE = {
    ("cnh", "relative"): (10.65737, 9.91965, 9.69524, 50.26544, 1.8504),
    ("cnh", "absolute"): (10.07241, 9.72505, 9.04185, 50.26544, 1.26544),
    ("general", "relative"): (11, 10, 10, 52, 3),
    ("general", "absolute"): (10, 10, 9, 52, 3),
}
"""The results of significantdigits 0.6.0 for SAMPLES and REFERENCE, with the other arguments at their defaults."""


@pytest.mark.parametrize(("method", "error"), OF_PACKAGE)
def test_the_published_results_of_the_package(method, error):
    found = fs.significant_digits(SAMPLES, REFERENCE, method=method, error=error)
    assert found == pytest.approx(OF_PACKAGE[method, error], abs=1e-5)


@pytest.mark.parametrize("error", ["relative", "absolute"])
@pytest.mark.parametrize("method", ["cnh", "general"])
@pytest.mark.parametrize("runs", [2, 3, 12, 200])
def test_equal_to_the_package_significantdigits(runs, method, error):
    package = pytest.importorskip("significantdigits", reason="needs significantdigits: the extra `significantdigits`")
    rng = np.random.default_rng(runs)
    exact = rng.normal(size=300) * np.exp2(rng.integers(-60, 60, 300))
    x = exact * (1 + rng.normal(size=(runs, 300)) * np.exp2(rng.integers(-55, 3, 300)))
    x[:, 0], x[:, 1] = exact[0], exact[1] * 1.25
    for probability, confidence in ((0.95, 0.95), (0.5, 0.99), (0.999, 0.6)):
        shared = {"method": method, "error": error, "probability": probability, "confidence": confidence}
        expected = package.significant_digits(x, exact, **shared)
        found = fs.significant_digits(x, exact, **shared)
        if method == "general":
            assert np.array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    single = x.astype(np.float32)
    shared = {"method": method, "error": error}
    expected = package.significant_digits(single[:, :2].astype(np.float64), exact[:2], dtype=np.float32, **shared)
    np.testing.assert_allclose(
        fs.significant_digits(single[:, :2], exact[:2], format="fp32", **shared), expected, rtol=0, atol=1e-9
    )
    decimal = package.significant_digits(x, exact, basis=10, **shared)
    np.testing.assert_allclose(fs.significant_digits(x, exact, base=10, **shared), decimal, rtol=0, atol=1e-9)


def test_the_mean_is_the_default_reference_and_any_axis_has_the_runs():
    x = SAMPLES[:, :3]
    assert np.array_equal(fs.significant_digits(x), fs.significant_digits(x, x.mean(axis=0)))
    assert np.array_equal(fs.significant_digits(x.T, REFERENCE[:3], axis=1), fs.significant_digits(x, REFERENCE[:3]))
    one = fs.significant_digits(x[:, 0], 3.0)
    assert one.shape == ()
    assert one == fs.significant_digits(x, REFERENCE[:3])[0]


def test_the_bound_holds_for_runs_that_were_not_used():
    """With 95 % probability, runs of a normal distribution have at least the digits; 95 % of the bounds hold."""
    rng = np.random.default_rng(1)
    x = 1 + rng.normal(size=(20, 2000)) * 2.0**-10
    bits = fs.significant_digits(x, 1.0)
    share = np.array([math.erf(2.0 ** (10 - each) / math.sqrt(2)) for each in bits])  # of |Z| <= 2**-bits
    assert 0.95 < np.mean(share >= 0.95) < 1


@pytest.mark.parametrize(("fmt", "low", "high"), [("bf16", 3, 8), ("fp16", 6, 11), ("fp32", 19, 24)])
def test_stochastic_runs_of_a_sum_have_nearly_the_bits_of_the_format(fmt, low, high):
    x = fs.array(np.random.default_rng(0).random(256), fmt)
    runs = fs.stochastic_samples(lambda: fs.sum(x, accumulate=f"pairwise({fmt})"), 12, seed=3)
    assert len(set(runs.tolist())) > 1
    assert np.array_equal(runs, fs.stochastic_samples(lambda: fs.sum(x, accumulate=f"pairwise({fmt})"), 12, seed=3))
    assert low < fs.significant_digits(runs, math.fsum(x.values), format=fmt) < high


def test_cancellation_has_no_significant_digit():
    a, b = fs.array([1.0, 1 / 3], "fp16"), fs.array([3.0, 3.0], "fp16")

    def function():
        return fs.subtract(fs.multiply(a, b), fs.array([3.0, 1.0], "fp16"))

    runs = fs.stochastic_samples(function, 16)
    assert fs.significant_digits(runs[:, 1]) < 2
    assert (runs[:, 0] == 0).all()


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((SAMPLES[:1],), {}, r"samples \(1, 5\) has 1 runs; at least 2 are needed"),
        ((SAMPLES,), {"axis": 2}, r"samples \(12, 5\) has no axis 2"),
        ((SAMPLES, [1.0, 2.0]), {}, r"reference \(2,\) must have the shape of one run, \(5,\)"),
        ((SAMPLES,), {"method": "cnhh"}, r"method='cnhh' is not known; did you mean 'cnh'\?"),
        ((SAMPLES,), {"error": "abs"}, r"error='abs' is not known"),
        ((SAMPLES,), {"probability": 1}, r"probability must lie between 0 and 1, not 1"),
        ((SAMPLES,), {"base": 1}, r"base must be above 1"),
    ],
)
def test_errors(arguments, keywords, message):
    with pytest.raises(ValueError, match=message):
        fs.significant_digits(*arguments, **keywords)


def test_too_few_runs():
    with pytest.raises(ValueError, match="runs must be at least 2"):
        fs.stochastic_samples(lambda: 1.0, 1)
