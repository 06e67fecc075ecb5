"""Sums in float32 against the general integer kernels: more rows and columns than a tile, and rows that it leaves."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.emulator.dispatch.candidates import only

FORMATS = [fs.FP16, fs.BF16, fs.E5M2, fs.FloatFormat.ieee(6, 9)]
LEAVES = [
    fs.Sequential,
    lambda fmt: fs.Sequential(fmt, fused=True),
    fs.Pairwise,
    lambda fmt: fs.Pairwise(fmt, tree="halving", product=None),
    fs.Kahan,
    fs.Neumaier,
]
NAMES = ["sequential", "fused", "pairwise", "exact terms", "kahan", "neumaier"]
ROUNDINGS = ["ties_to_even", "toward_zero", "toward_positive", "toward_negative", "stochastic"]


def operands(rng, fmt, shape):
    """Ordinary numbers, with rows that are too small, too large, or not finite."""
    m, k, n = shape
    scale = np.ones((m, 1))
    scale[1:5, 0] = 2.0 ** (fmt.emin // 2), 2.0**fmt.emin, 2.0 ** (fmt.emax - 1), 0.0
    a = rng.standard_normal((m, k)) * scale
    a[7, k // 2], a[9, 0] = np.inf, np.nan
    a[11] = np.abs(a[11]) * 2.0 ** (fmt.emax - 4)
    b = rng.standard_normal((k, n))
    b[:, n // 3] = -0.0
    return fs.array(a, fmt), fs.array(b, fmt)


@pytest.mark.full
@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("leaf", LEAVES, ids=NAMES)
def test_equals_the_integer_kernels(leaf, fmt):
    rng = np.random.default_rng(1)
    for rounding in ROUNDINGS:
        a, b = operands(rng, fmt, (70, 9, 530))
        keywords = {"accumulate": leaf(fmt), "rounding": rounding, "seed": 7}
        quick = fs.matmul(a, b, **keywords)
        with only("integer"):
            assert np.array_equal(fs.matmul(a, b, **keywords).codes, quick.codes), rounding


@pytest.mark.full
@pytest.mark.parametrize("random_bits", [1, 16, 17, 31, 32])
@pytest.mark.parametrize("fused", [False, True])
def test_stochastic_sums_whose_draws_tie(random_bits, fused):
    """Enough sums that the first 16 bits do not decide all of them: some dozens."""
    rng = np.random.default_rng(2)
    a, b = (fs.array(rng.standard_normal((k, n)), fs.BF16) for k, n in ((8, 700), (700, 256)))
    keywords = {"accumulate": fs.Sequential(fs.BF16, fused=fused), "random_bits": random_bits}
    quick = fs.matmul(a, b, rounding="stochastic", seed=3, **keywords)
    with only("integer"):
        assert np.array_equal(fs.matmul(a, b, rounding="stochastic", seed=3, **keywords).codes, quick.codes)


@pytest.mark.parametrize(("accumulator", "quantum"), [("e4m3", 2.0**-9), ("fp16", 2.0**-24), ("e5m2", 2.0**-16)])
def test_two_terms_beside_a_midpoint_of_the_subnormals(accumulator, quantum):
    """Midpoints of the subnormals' grid are numbers of few bits; what breaks the tie may be too small for float32."""
    tiny = 2.0**-50
    terms = np.array([[1.5 * quantum, -tiny], [1.5 * quantum, tiny], [0.5 * quantum, -tiny], [0.5 * quantum, tiny]])
    x = fs.array(np.repeat(terms, 20, axis=0), fs.FloatFormat.ieee(7, 1))
    for tree in "adjacent", "halving", "numpy":
        sums = fs.sum(x, axis=1, accumulate=fs.Pairwise(accumulator, tree=tree))
        assert np.array_equal(sums.values / quantum, np.repeat([1.0, 2.0, 0.0, 1.0], 20)), tree
