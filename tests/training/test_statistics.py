"""Monitors of a run: statistics, absorbed updates, agreement of gradients, the first non-finite operation, spikes."""

from __future__ import annotations

import math

import numpy as np
import pytest

import floatsim as fs
from floatsim import training as t


def test_statistics_of_a_tensor():
    x = np.array([[0.0, -2.0, 6.0], [np.nan, np.inf, 1e-9]])
    found = t.tensor_statistics(x, ["fp16", "e4m3"], name="x", step=3)
    assert (found.size, found.min, found.max, found.nans, found.infinities) == (6, -2.0, 6.0, 1, 1)
    assert found.mean == pytest.approx((4 + 1e-9) / 4)
    assert found.zeros == pytest.approx(1 / 6)
    assert not found.finite
    assert found.losses["FP16"] == fs.conversion_losses(x, "fp16")
    assert found.losses["E4M3"].flushed == pytest.approx(1 / 3)
    assert found.step == 3


@pytest.mark.parametrize("x", [np.zeros(3), np.array([np.nan]), np.zeros(0)])
def test_statistics_without_a_number(x):
    found = t.tensor_statistics(x)
    assert found.histogram is None
    assert found.losses == {}
    assert found.finite == (not np.isnan(x).any())
    assert math.isnan(found.mean) == (not x.size or bool(np.isnan(x).all()))


def test_statistics_of_a_float_array():
    x = fs.array([1.0, 448.0], "e4m3")
    assert t.tensor_statistics(x, "fp16").max == 448.0


# -- updates -----------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_updates_against_half_an_ulp():
    """BF16, weight 1: an ulp is 2^-7 above, and half as much below. Ties go to the even neighbour, which is 1."""
    half = 2.0**-8
    w = fs.array(np.ones(8), "bf16")
    u = np.float32([half, half * 1.01, -half / 2, -half / 2 * 1.01, 0, half * 0.99, -half * 0.6, 1e-10])
    found = t.update_statistics(w, u, name="w")
    changed = fs.add(w, u, format="bf16").values != 1
    assert found.absorbed == pytest.approx(1 - changed.sum() / 7)
    assert changed.tolist() == [False, True, False, True, False, False, True, False]
    assert found.below_half_ulp == pytest.approx(5 / 7)
    assert found.numbers.sum() == 7
    assert dict(zip(found.exponents.tolist(), found.numbers.tolist(), strict=True))[0] == 2
    assert found.ratio == pytest.approx(np.median(np.abs(u[u != 0])))


@pytest.mark.full
def test_updates_of_other_roundings():
    w, u = fs.array(np.ones(500), "bf16"), np.full(500, 1e-3, np.float32)
    assert t.update_statistics(w, u).absorbed == 1
    stochastic = t.update_statistics(w, u, rounding="stochastic", seed=1)
    assert stochastic.absorbed == pytest.approx(1 - 1e-3 * 128, abs=0.05)
    assert t.update_statistics(w, u, rounding="toward_positive").absorbed == 0


def test_no_update():
    found = t.update_statistics(np.float32([1, np.nan]), np.float32([0, 1]))
    assert (found.absorbed, found.numbers.size) == (0.0, 0)
    assert math.isnan(found.ratio)
    assert t.update_statistics(np.float32([0]), np.float32([1])).absorbed == 0
    with pytest.raises(ValueError, match="one shape"):
        t.update_statistics(np.float32([1]), np.float32([1, 2]))
    with pytest.raises(ValueError, match=r"stored \(2,\) must have the shape of weights, \(1,\)"):
        t.update_statistics(np.float32([1]), np.float32([1]), stored=np.float32([1, 2]))


def test_exponents_of_updates_are_exact():
    below = np.nextafter(8.0, 0.0) * 2.0**-24  # half an ulp of 1 is 2**-24
    assert t.update_statistics(np.float32([1]), np.array([below])).exponents.tolist() == [2]
    wide = t.update_statistics(np.float32([3e38, 1]), np.array([5e-324, 2.0**-24]))
    assert (wide.exponents[0], wide.exponents[-1], wide.numbers.sum()) == (-1074 - 103, 0, 2)
    least = t.update_statistics(np.array([0.0]), np.array([5e-324]))  # half an ulp is no FP64 number
    assert (least.exponents.tolist(), least.below_half_ulp) == ([1], 0.0)


def test_agreement_beyond_the_range_of_squares():
    for size in (1e300, 1e-200, 5e-324):
        found = t.gradient_agreement([size, 0.0], [size, size])
        assert found.cosine == pytest.approx(0.5**0.5)
        assert found.relative_error == pytest.approx(0.5**0.5)


# -- agreement ---------------------------------------------------------------------------------------------------------


def test_agreement():
    g = np.random.default_rng(0).normal(size=1000)
    same = t.gradient_agreement(g, g)
    assert (same.flipped, same.zeroed, same.relative_error) == (0, 0, 0)
    assert same.cosine == pytest.approx(1)
    turned = t.gradient_agreement(-g, g)
    assert turned.cosine == pytest.approx(-1)
    assert turned.flipped == 1
    flushed = t.gradient_agreement(fs.array(np.where(np.abs(g) < 0.1, 0, g), "fp32"), g)
    assert flushed.zeroed == np.mean(np.abs(g) < 0.1)
    assert math.isnan(t.gradient_agreement(g * 0, g).cosine)
    assert math.isnan(t.gradient_agreement(g * np.inf, g).cosine)
    with pytest.raises(ValueError, match="one shape"):
        t.gradient_agreement(g, g[:3])


# -- the first non-finite operation ------------------------------------------------------------------------------------


def run(factor):
    x, w = fs.array(np.full((2, 4), 8.0), "fp16"), fs.array(np.full((4, 4), factor), "fp16")
    with fs.record() as log:
        for layer in range(3):
            with fs.scope(f"layer{layer}"):
                x = fs.add(fs.matmul(x, w, accumulate="fp16"), 1.0)
        with fs.scope("head"):
            fs.subtract(x, x)
    return log


@pytest.mark.full
def test_the_first_non_finite_operation():
    found = t.first_non_finite(run(60.0))
    assert (found.layer, found.event, found.number, found.elements) == ("layer1", "overflow", 32, 32)
    assert str(found).startswith("layer1: matmul.product (call ")  # 1921 * 60
    assert t.first_non_finite(run(1.0)) is None


@pytest.mark.full
def test_other_causes():
    one = fs.array([1.0, -1.0], "fp16")
    for function, event in ((lambda: fs.divide(one, 0.0), "divide_by_zero"), (lambda: fs.sqrt(one), "invalid")):
        with fs.record() as log:
            function()
        assert t.first_non_finite(log).event == event
    with fs.record(calls=False) as log:
        fs.sqrt(one)
    with pytest.raises(ValueError, match="no calls"):
        t.first_non_finite(log)


# -- a run -------------------------------------------------------------------------------------------------------------


def test_a_monitor_keeps_every_nth_step_and_the_first_non_finite_tensor():
    monitor = t.Monitor("fp16", every=10)
    w = fs.array([1.0, 1.0], "bf16")
    for step in range(25):
        monitor.tensor(step, "a", [1.0, float(step)])
        kept = monitor.tensor(step, "b", [math.inf if step == 13 else 1.0, math.nan if step > 20 else 0.0])
        monitor.update(step, "a", w, np.float32([1e-3, 1.0]))
        monitor.scalars(step, loss=step, skipped=step == 13)
        assert (kept is None) == (step % 10 != 0)
    assert [found.max for found in monitor.tensors["a"]] == [1.0, 10.0, 20.0]
    assert [found.absorbed for found in monitor.updates["a"]] == [0.5] * 3
    assert (monitor.first_non_finite.name, monitor.first_non_finite.step) == ("b", 13)
    steps, losses = monitor.trace("loss")
    assert steps == losses == list(range(25))
    plain = monitor.to_dict()
    assert plain["tensors"][0]["losses"]["FP16"]["normal"] == 1.0
    assert plain["scalars"]["skipped"]["13"] == 1.0
    assert len(plain["updates"]) == 3


@pytest.mark.parametrize(("call", "message"), [
    (lambda: t.Monitor(every=0), "every must be at least 1"),
    (lambda: t.Monitor("fp61"), "unknown format"),
    (lambda: t.Monitor().scalars(0, los=1.0), "did you mean 'loss'"),
    (lambda: t.Monitor().trace("los"), "did you mean 'loss'"),
    (lambda: t.Monitor().plot("tensor"), "did you mean 'tensors'"),
    (lambda: t.SpikePolicy(factor=0.5), "factor"),
    (lambda: t.SpikePolicy(window=0), "window must be at least 1"),
    (lambda: t.SpikePolicy(factor=math.nan), "factor"),
])  # fmt: skip
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# -- spikes ------------------------------------------------------------------------------------------------------------


def test_spikes_are_skipped():
    policy = t.SpikePolicy(factor=8, window=4)
    norms = [1, 100, 1, 1, 1, 8, 8.1, math.nan, math.inf, 1]
    # the median of (100, 1, 1, 1) is 1, so that 8 is accepted; then of (1, 1, 1, 8) it is 1, and 8.1 is skipped
    assert t.skipped_batches(norms, policy) == [False] * 6 + [True, True, True, False]


def test_the_limit_of_skipped_batches():
    """A jump that lasts is accepted, and the window starts again."""
    policy = t.SpikePolicy(factor=2, window=2, limit=3)
    assert t.skipped_batches([1, 1, 9, 9, 9, 9, 9, 30, 9], policy) == [
        False, False, True, True, True, False, False, True, False,
    ]  # fmt: skip
    assert t.skipped_batches([math.nan] * 5, policy) == [True] * 5


def test_states_are_not_changed():
    policy, state = t.SpikePolicy(window=2), t.SpikeState((1.0, 1.0))
    skip, new = policy.step(100.0, state)
    assert (skip, new, state) == (True, t.SpikeState((1.0, 1.0), 1), t.SpikeState((1.0, 1.0), 0))
