"""Events counted by the kernels on float32 against the integer kernels: counts, first k, results."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.emulator.dispatch.candidates import only
from floatsim.emulator.dispatch.counting import Counting, EventCounter
from floatsim.formats import rounding
from tests.emulator.planning import kernel_by

FORMATS = [fs.FP16, fs.BF16, fs.E4M3, fs.E5M2, fs.E4M3IEEE, fs.E3M4, fs.FloatFormat.ieee(6, 4)]
EVENTS = frozenset({"overflow"})
SETS = (None, ["overflow", "underflow", "nan"], ["flushed", "invalid"], ["absorbed", "overflow"])


def numbers(rng, fmt, shape):
    """Ordinary numbers, of all sizes, whose products underflow, or overflow; a tenth of them zeros."""
    x = rng.standard_normal(shape)
    kind = rng.integers(4)
    if kind == 1:
        x *= 2.0 ** rng.integers(-12, 12, shape)
    elif kind == 2:
        x *= 2.0 ** (fmt.emin / 2 + rng.integers(-4, 4, shape))
    elif kind == 3:
        x *= 2.0 ** (fmt.emax / 2 - rng.integers(0, 6, shape))
    return fs.array(x * (rng.random(shape) > 0.1), fmt, overflow="saturate_finite")


def recorded_product(a, b, c, accumulation, tininess, events):
    with fs.record(events=events) as log:
        result = fs.matmul(a, b, c, accumulate=accumulation, tininess=tininess)
    return np.asarray(result), log.counts, log.first


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
def test_equal_to_the_integer_kernels(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    used, record = [], EventCounter.record
    monkeypatch.setattr(EventCounter, "record", lambda self, *rest: (used.append(self.bfloat), record(self, *rest)))
    for _ in range(60):
        a_format, b_format, fmt = (FORMATS[i] for i in rng.integers(0, len(FORMATS), 3))
        if rng.random() < 0.5:
            a_format = b_format = fmt
        m, k, n = rng.integers(1, 5), rng.integers(0, 60), rng.integers(1, 70)
        a, b = numbers(rng, a_format, (2, m, k)), numbers(rng, b_format, (2, k, n))
        c = numbers(rng, fmt, (m, n)) if rng.random() < 0.3 else None
        every = int(rng.integers(1, 9))
        accumulation = (fs.Sequential(fmt), fs.Blocked(fmt, every, "fp32"), fs.Strided(fmt, every))[rng.integers(3)]
        tininess = fs.Tininess(int(rng.integers(2)))
        for events in SETS:
            result, counts, first = recorded_product(a, b, c, accumulation, tininess, events)
            with only("integer"):
                want, want_counts, want_first = recorded_product(a, b, c, accumulation, tininess, events)
            assert np.array_equal(result, want, equal_nan=True)
            assert counts == want_counts, (accumulation, events, a_format, b_format)
            assert not any(c.divide_by_zero for c in counts.values())
            assert all(np.array_equal(first[name], want_first[name]) for name in want_first), (accumulation, events)
    assert set(used) == {False, True}


def test_what_the_integer_kernels_do():
    """Infinite and NaN operands, products that float32 does not hold, and everything but ties to even."""
    one = np.ones((1, 1), np.float32)
    kernel = kernel_by(Counting(), fs.Sequential("bf16"), fs.BF16, fs.BF16, events=EVENTS)
    accepts = kernel._counter.accepts
    assert accepts(one, one) and accepts(one * 2.0**-126, one) and accepts(0 * one, one)
    for bad in np.inf, np.nan:
        assert not accepts(one * np.float32(bad), one)
    assert not accepts(one * 2.0**-64, one * 2.0**-63)
    for change in {"rounding": fs.Rounding.TOWARD_ZERO}, {"ftz": True}, {"daz": True}:
        attributes = rounding.RoundingAttributes(**change)
        assert kernel_by(Counting(), fs.Sequential("fp16"), fs.FP16, fs.FP16, attributes, events=EVENTS) is None
    for leaf in fs.Sequential("fp16", fused=True), fs.Kahan("fp16"), fs.Sequential("tf32"), fs.Sequential("e2m1"):
        assert kernel_by(Counting(), leaf, fs.FP16, fs.FP16, events=EVENTS) is None
