"""Networks: gradients checked numerically in FP64, the trace of formats, the first overflow."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim import operators as ops
from floatsim.training import Execution, LayerLossScales, Op, Policy, as_network, as_policy, mlp

FP64 = Policy("fp64", accumulate="fp64")


def batch(n, seed=0, fmt="fp64"):
    rng = np.random.default_rng(seed)
    return fs.array(rng.uniform(0, 1, (n, 64)), fmt), rng.integers(0, 10, n)


def loss_of(network, weights, x, target):
    logits, _ = network.forward(Execution(FP64), weights, x)
    return float(ops.cross_entropy(logits, target, recipe="float64"))


@pytest.mark.full
@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer"])
def test_gradients_equal_differences_in_fp64(name):
    """Central differences of single elements of every parameter."""
    network, (x, target), step = as_network(name), batch(3), 1e-5
    weights = network.initial(1, "fp64")
    gradients = network.run(Execution(FP64), weights, x, target).gradients
    assert list(gradients) == list(weights)
    rng = np.random.default_rng(2)
    for key, weight in weights.items():
        assert gradients[key].shape == weight.shape
        index = tuple(rng.integers(0, n) for n in weight.shape)
        losses = []
        for sign in (1, -1):
            moved = weight.values.copy()
            moved[index] += sign * step
            losses.append(loss_of(network, {**weights, key: fs.array(moved, "fp64")}, x, target))
        expected = (losses[0] - losses[1]) / (2 * step)
        assert gradients[key].values[index] == pytest.approx(expected, rel=1e-5, abs=1e-9), key


def test_mlp_equals_the_operators():
    """Everything FP16: the same bits as the operators with the recipe all-fp16, called by hand."""
    network, (x, target) = mlp(), batch(32, fmt="fp16")
    w = network.initial(0, "fp16")
    found = network.run(Execution("fp16"), w, x, target, loss_scale=64.0)
    recipe = {"recipe": "all-fp16"}
    hidden = ops.linear(x, w["layer0.weight"], w["layer0.bias"], **recipe)
    active = ops.relu(hidden, **recipe)
    logits = ops.linear(active, w["head.weight"], w["head.bias"], **recipe)
    g = ops.cross_entropy_backward(logits, target, loss_scale=64.0, **recipe)
    head = ops.linear_backward(g, active, w["head.weight"], **recipe)
    first = ops.linear_backward(ops.relu_backward(head.x, hidden, **recipe), x, w["layer0.weight"], **recipe)
    assert found.logits.codes.tolist() == logits.codes.tolist()
    assert found.loss.codes == ops.cross_entropy(logits, target, **recipe).codes
    expected = {
        "layer0.weight": first.weight,
        "layer0.bias": first.bias,
        "head.weight": head.weight,
        "head.bias": head.bias,
    }
    for key, each in expected.items():
        assert found.gradients[key].codes.tolist() == each.codes.tolist()


def test_trace_of_autocast():
    network, (x, target) = mlp(), batch(4, fmt="fp32")
    run = Execution("autocast-fp16", tracing=True)
    network.run(run, network.initial(), x, target)
    rows = [(row.module, row.operation, row.backward, row.inputs[0], row.compute, row.result) for row in run.trace]
    assert rows == [
        ("layer0", "linear", False, "FP32", "FP16", "FP16"),
        ("layer0", "relu", False, "FP16", "FP16", "FP16"),
        ("head", "linear", False, "FP16", "FP16", "FP16"),
        ("loss", "cross_entropy", False, "FP16", "FP32", "FP32"),
        ("loss", "cross_entropy", True, "FP16", "FP32", "FP32"),
        ("head", "linear", True, "FP32", "FP16", "FP16"),
        ("layer0", "relu", True, "FP16", "FP16", "FP16"),
        ("layer0", "linear", True, "FP16", "FP16", "FP16"),
    ]


@pytest.mark.full
def test_every_network_under_policies():
    """All results lie in the formats of the policy."""
    for name in ("mlp", "cnn", "transformer"):
        network, (x, target) = as_network(name), batch(2, fmt="fp32")
        for policy in ("fp32", "bf16", "fp16", "autocast-bf16", "O2"):
            run = Execution(policy, tracing=True)
            chosen = as_policy(policy)
            weights = network.initial(0, chosen.weights or "fp32")
            found = network.run(run, weights, x.astype(chosen.activations or "fp32"), target)
            assert run.bad is None
            assert np.isfinite(found.loss.item())
            half = {"bf16": "BF16", "fp16": "FP16"}.get(policy)
            assert half is None or {row.result for row in run.trace} == {half}


def test_gradients_of_weights_in_their_own_format():
    network, (x, target) = mlp(), batch(4, fmt="fp32")
    for kept in ("fp32", "bf16"):
        policy = Policy("bf16", accumulate="fp32", weight_gradients=kept)
        found = network.run(Execution(policy), network.initial(), x, target)
        assert {each.format.name for each in found.gradients.values()} == {kept.upper()}
    in_fp32 = network.run(
        Execution(Policy("bf16", accumulate="fp32", weight_gradients="fp32")), network.initial(), x, target
    )
    values = in_fp32.gradients["head.weight"].values
    assert (fs.quantize(values, "bf16") != values).any()  # no rounding to BF16 in between


def test_first_overflow_is_named():
    network, (x, target) = mlp(), batch(8, fmt="fp16")
    weights = network.initial(0, "fp16")
    run = Execution("fp16")
    run.start_step(7)
    network.run(run, weights, x, target, loss_scale=2.0**15)
    assert run.bad is None
    weights["head.weight"] = fs.array(np.full((10, 64), 60000.0), "fp16")
    network.run(run, weights, x, target)
    assert str(run.bad) == "infinity in head, linear, forward, step 7"


def test_loss_scales_of_layers():
    """With scales that are powers of two and no underflow, the gradients are the same times the scale."""
    network, (x, target) = mlp(), batch(4, fmt="fp32")
    weights, policy = network.initial(), Policy("fp32", accumulate="fp32")
    plain = network.run(Execution(policy), weights, x, target).gradients
    scaled = network.run(
        Execution(policy), weights, x, target, scales=LayerLossScales({"layer0": 256.0, "head": 4.0})
    ).gradients  # fmt: skip
    assert (scaled["head.weight"].values == 4 * plain["head.weight"].values).all()
    assert (scaled["layer0.weight"].values == 256 * plain["layer0.weight"].values).all()


@pytest.mark.full
def test_stochastic_rounding_draws_new_numbers_in_each_step():
    network, (x, target) = mlp(), batch(4, fmt="fp32")
    policy = Policy(Op("bf16"), accumulate="fp32", rounding="stochastic", seed=3)
    run = Execution(policy)
    first, second = (network.run(run, network.initial(), x, target).logits for _ in range(2))
    again = network.run(Execution(policy), network.initial(), x, target).logits
    assert first.codes.tolist() != second.codes.tolist()
    assert first.codes.tolist() == again.codes.tolist()


@pytest.mark.parametrize(("call", "message"), [
    (lambda: as_network("ccn"), "did you mean 'cnn'"),
    (lambda: mlp(64), "needs the widths"),
    (lambda: as_network("mlp").initial(-1), "seed must be at least 0"),
])  # fmt: skip
def test_bad_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()
