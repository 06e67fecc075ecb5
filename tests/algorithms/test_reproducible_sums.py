"""Sums with one result in every order: `fs.algorithms.binned_sum` against ReproBLAS, exact sums against bitrep."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import floatsim as fs
from floatsim.algorithms import binned_sum
from tests.algorithms import sum_vectors as vectors

ROWS = json.loads(vectors.FILE.read_text())
SEEDS = range(vectors.COUNT)


@pytest.mark.parametrize("fold", vectors.FOLDS)
def test_binned_sums_of_reproblas(fold):
    """240 lists of eight kinds: all exponents, subnormal numbers, sums beyond FP64, cancellation."""
    found = [binned_sum(vectors.numbers(seed), fold) for seed in SEEDS]
    assert vectors.digest(found) == ROWS["ReproBLAS 2.1.0, FP64"][str(fold)]


def test_exact_sums_of_bitrep():
    """bitrep returns +0 for a zero sum."""
    found = [float(fs.sum(vectors.numbers(seed), accumulate="exact(fp64)")) + 0.0 for seed in SEEDS]
    assert vectors.digest(found) == ROWS["bitrep 0.5.1"]["SumF64"]
    found = [float(fs.sum(vectors.single(seed), accumulate="exact(fp32)")) + 0.0 for seed in SEEDS]
    assert vectors.digest(found) == ROWS["bitrep 0.5.1"]["SumF32"]
    found = [float(fs.dot(*vectors.pairs(seed), accumulate="exact(fp64)")) + 0.0 for seed in SEEDS]
    assert vectors.digest(found) == ROWS["bitrep 0.5.1"]["dot"]


def test_the_order_has_no_effect():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(2000) * np.exp2(rng.integers(-80, 80, 2000))
    due = binned_sum(x)
    assert all(binned_sum(rng.permutation(x)) == due for _ in range(5))
    assert binned_sum(x.reshape(20, 100)) == due and binned_sum(fs.array(x, "fp64")) == due
    assert math.fsum(x) == pytest.approx(due, rel=1e-12)


def test_more_bins_are_more_accurate():
    x = np.array([2.0**60, 1.0, 2.0**-50, -(2.0**60)])
    assert [binned_sum(x, fold) for fold in (2, 3, 4)] == [1.0, 1.0 + 2.0**-50, 1.0 + 2.0**-50]


def test_chunks(monkeypatch):
    x = np.random.default_rng(1).standard_normal(1000)
    due = binned_sum(x)
    monkeypatch.setattr("floatsim.algorithms.binned._CHUNK", 64)
    assert binned_sum(x) == due


def test_special_values():
    assert binned_sum([]) == 0 and binned_sum([-0.0]) == 0
    assert binned_sum([np.inf, 1.0]) == np.inf and binned_sum([-np.inf, 1.0]) == -np.inf
    assert math.isnan(binned_sum([np.inf, -np.inf])) and math.isnan(binned_sum([np.nan, np.inf]))
    assert binned_sum(np.float16([1.5, 2])) == 3.5
    assert binned_sum([2.0**-1058] * 9) == 0 and binned_sum([2.0**-1055] * 9) == 9 * 2.0**-1055  # the last bin ends


@pytest.mark.parametrize("fold", [1, 53])
def test_folds_that_are_refused(fold):
    with pytest.raises(ValueError, match="fold must be"):
        binned_sum([1.0], fold)
