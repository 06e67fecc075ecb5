"""Known outcomes of low precision in operators: limits of exp, sums of squares, running means, attention."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim import operators as ops
from tests.marks import cases


@pytest.mark.parametrize(("fmt", "limit"), [("fp16", 11.09), ("fp32", 88.72), ("bf16", 88.719)])
def test_the_naive_softmax_overflows(fmt, limit):
    formats = {"exp": fmt, "sum": fmt, "quotient": fmt, "output": fmt}
    for x, finite in ((limit - 0.01, True), (limit + 0.01, False)):
        logits = fs.array([x, 0.0], "fp32")
        naive = ops.softmax(logits, variant="naive", recipe="all-fp32", formats=formats)
        assert np.isfinite(naive.values).all() == finite
        assert np.isfinite(ops.softmax(logits, recipe="all-fp32", formats=formats).values).all()


@pytest.mark.parametrize(
    ("fmt", "gap"), [("fp16", 17.33), ("bf16", 92.88), ("fp32", 103.97), ("e5m2", 11.78), ("e4m3", 6.93)]
)
def test_the_gap_at_which_a_probability_becomes_zero(fmt, gap):
    formats = {"exp": fmt, "sum": fmt, "quotient": fmt, "output": fmt}
    for x, positive in ((gap - 0.01, True), (gap + 0.01, False)):
        found = ops.softmax(fs.array([0.0, -x], "fp32"), recipe="all-fp32", formats=formats)
        assert (found.values[1] > 0) == positive


def test_the_logarithm_of_a_softmax_is_infinite():
    """At a gap of 17.4, -log(softmax) in FP16 is infinite. A log_softmax from the shifted logits is not."""
    logits = fs.array([[17.4, 0.0]], "fp16")
    assert ops.cross_entropy(logits, [1], recipe="all-fp16", variant="naive").item() == np.inf
    for variant in ("shifted", "normalizer"):
        assert ops.cross_entropy(logits, [1], recipe="all-fp16", variant=variant).item() == 17.40625


@pytest.mark.parametrize("sigma", cases(quick=[4], full=[1, 5]))
def test_sums_of_squares(sigma):
    """n = 4096 in FP16, in order: 7 to 9 % too small, and infinite at sigma 5. FP32 inside is exact enough."""
    x = fs.array(np.random.default_rng(0).standard_normal((1, 4096)) * sigma, "fp16")
    with fs.record() as log:
        half = ops.rms_norm(x, recipe="all-fp16")
    squares = fs.multiply(x, x, format="fp16")
    total = fs.sum(squares, accumulate="fp16").item()
    exact = float(np.sum(x.values**2))
    if sigma == 5:
        assert total == np.inf
        assert log.scopes["rms_norm/square_sum"]["sum.sum"].overflow == 1
        assert (half.values == 0).all()
    else:
        assert 0.05 < 1 - total / exact < 0.1
        assert log.scopes["rms_norm/square_sum"]["sum.sum"].absorbed > 0
    inside = ops.rms_norm(x).values
    assert np.linalg.norm(inside - ops.rms_norm(x, recipe="float64")) < 3e-4 * np.linalg.norm(inside)


def test_a_running_mean_in_bf16_stalls():
    """Momentum 0.1 and the target 1: the running mean stops at 0.984375."""
    x, mean, var = fs.array([[1.0], [1.0]], "bf16"), fs.array([0.0], "bf16"), fs.array([1.0], "bf16")
    means = []
    for _ in range(100):
        _, mean, var = ops.batch_norm(x, mean, var, training=True, recipe="all-bf16")
        means.append(mean.item())
    assert means[-1] == means[50] == 0.984375
    mean = fs.array([0.0], "fp32")
    for _ in range(200):
        _, mean, _ = ops.batch_norm(x, mean, var, training=True)
    assert mean.item() > 0.9999


@pytest.mark.parametrize(
    ("sigma", "low", "high"),
    cases(
        quick=[pytest.param(1, 0, 0)],
        full=[pytest.param(40, 0, 1e-4), pytest.param(60, 0.02, 0.026), pytest.param(90, 0.29, 0.33)],
    ),
)
def test_scores_of_attention_overflow(sigma, low, high):
    """d = 64: the share of |q . k| beyond 65504 for normal operands. Scaling the query first removes the overflow."""
    rng = np.random.default_rng(1)
    q, k, v = (fs.array(rng.standard_normal((200, 64)) * sigma, "fp16") for _ in range(3))
    keywords = {"recipe": "fp32-inside", "formats": {"scores": "fp16"}, "accumulations": {"scores": "fp32"}}
    with fs.record() as log:
        ops.attention(q, k, v, **keywords)
    assert low <= log.scopes["attention/scores"]["matmul.result"].overflow / 200**2 <= high
    with fs.record() as log:
        ops.attention(q, k, v, variant="scale-before", **keywords)
    assert log.scopes["attention/scores"]["matmul.result"].overflow == 0


def test_probabilities_of_attention_in_narrow_formats():
    """The error of the output grows with the unit roundoff of the probabilities. The sums are in FP32."""
    rng = np.random.default_rng(1)
    q, k, v = (fs.array(rng.standard_normal((128, 64)), "fp32") for _ in range(3))
    exact = ops.attention(q, k, v, recipe="float64")
    errors = []
    for fmt in ("fp32", "fp16", "bf16", "e4m3"):
        found = ops.attention(q, k, v, recipe="all-fp32", formats={"probabilities": fmt})
        errors.append(float(np.linalg.norm(found.values - exact) / np.linalg.norm(exact)))
    assert errors[0] < 1e-6 < errors[1] < 1e-3 < errors[2] < 1e-2 < errors[3] < 1
