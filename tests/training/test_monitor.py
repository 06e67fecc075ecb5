"""Monitors in the training loop: what is kept, which batches are skipped, and a run that is the same as without one."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import floatsim as fs
from floatsim import plot
from floatsim.training import Data, Monitor, SpikePolicy, Trainer, digits_data, skipped_batches, train


def small_data(n=24, factor=1.0):
    """A few images. The last one is multiplied by `factor`."""
    digits = digits_data(0)
    x = digits.x[:n].copy()
    x[-1] *= factor
    return Data(x, digits.y[:n], digits.test_x[:8], digits.test_y[:8])


def test_a_monitored_run_has_the_same_bits():
    options = {"data": small_data(), "epochs": 2, "batch": 8}
    monitor = Monitor(["fp16", "e5m2"], every=4, reference="fp32")
    plain, watched = train("fp16+scaling", **options), train("fp16+scaling", **options, monitor=monitor)
    assert watched.losses == plain.losses
    assert all((w.codes == plain.weights[name].codes).all() for name, w in watched.weights.items())
    assert watched.monitor is monitor
    assert plain.monitor is None
    assert "monitor" not in plain.to_dict()
    assert {row["step"] for row in watched.to_dict()["monitor"]["tensors"]} == {0, 4}
    assert {"input", "layer0.weight", "layer0.linear", "head.linear.gradient", "layer0.weight.gradient"} <= set(
        monitor.tensors
    )  # fmt: skip
    assert monitor.trace("loss_scale")[1] == plain.scales
    assert monitor.trace("loss")[1] == plain.losses
    assert monitor.trace("skipped")[1] == [float(step < plain.skipped) for step in range(6)]
    assert str(monitor).splitlines()[0].split() == ["tensor", "zeros", "FP16", "flushed", "overflowed", "E5M2",
                                                    "flushed", "overflowed"]  # fmt: skip


def test_updates_and_gradients_of_one_step():
    """Absorbed weights are those that did not move. The gradient is compared with that of FP32, unscaled."""
    monitor, data = Monitor("bf16", reference="fp32"), small_data()
    trainer = Trainer("bf16", lr=0.01, loss_scale=1024.0, micro_batches=2, monitor=monitor)
    before = {name: w.values.copy() for name, w in trainer.weights.items()}
    trainer.step(trainer.inputs(data.x[:8]), data.y[:8])
    name = "layer0.weight"
    gradient = trainer.gradients[name].values
    still = (trainer.weights[name].values == before[name])[gradient != 0]
    assert 0 < np.mean(still) == monitor.updates[name][0].absorbed < 1
    assert monitor.trace("gradient_norm")[1][0] == pytest.approx(
        math.sqrt(sum(np.sum((g.values / 1024) ** 2) for g in trainer.gradients.values()))
    )
    agreement = monitor.agreements[name][0]
    assert agreement.cosine > 0.999
    assert 1e-4 < agreement.relative_error < 0.02
    assert monitor.tensors[f"{name}.gradient"][0].max == gradient.max()


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "rmsprop", "adam", "adamw"])
def test_updates_are_the_changes_of_fp32_weights(optimizer):
    chosen = fs.training.as_optimizer(optimizer, 0.1, **({"weight_decay": 0.1} if optimizer == "adamw" else {}))
    weights = {"w": fs.array([1.0, -2.0, 0.5], "fp32")}
    for step in range(2):
        chosen.updates = {}
        after = chosen.step(weights, {"w": fs.array([0.3, step, -1e-3], "fp32")})
        moved = after["w"].values - weights["w"].values
        assert chosen.updates["w"] == pytest.approx(moved, abs=3e-7)
        weights = after


def test_spikes_are_skipped_in_a_run():
    """One image is 10,000 times as bright: each batch with it is skipped, as the policy says."""
    policy = SpikePolicy(factor=4, window=2)
    monitor = Monitor(every=100, spikes=policy)
    data = small_data(factor=1e4)
    run = train("fp32", data=data, epochs=4, batch=8, lr=1e-6, monitor=monitor)
    spikes = [event.step for event in run.events if event.kind == "spike"]
    norms = monitor.trace("gradient_norm")[1]
    assert 2 <= len(spikes) == run.skipped
    assert [step in spikes for step in range(12)] == skipped_batches(norms, policy)
    assert min(norms[step] for step in spikes) > 100 * np.median(norms)
    assert monitor.trace("skipped")[1] == [float(step in spikes) for step in range(12)]
    assert "gradient norm" in next(event.text for event in run.events if event.kind == "spike")


@pytest.mark.full
def test_pictures():
    monitor = Monitor("fp16", reference="fp32")
    train("fp16+scaling", data=small_data(), epochs=1, batch=12, monitor=monitor)
    figure = plot.monitor_figure(monitor, title="fp16")
    assert len(figure.axes) == 5  # tensors, updates, norms, scales, agreement
    assert [label.get_text() for label in monitor.plot("agreement").get_yticklabels()] == list(monitor.agreements)
    with pytest.raises(ValueError, match="no tensors"):
        plot.monitor_figure(Monitor())


def test_bad_values():
    with pytest.raises(ValueError, match="did you mean 'fp32'"):
        Monitor(reference="fp322")
    with pytest.raises(TypeError, match="spikes must be"):
        Monitor(spikes=3)


@pytest.mark.full
@pytest.mark.usefixtures("empty_folder")
def test_command(run):
    code, out, error = run("train", "fp16+scaling", "--epochs", 1, "--batch", 256, "--monitor", "--every", 2,
                           "--reference", "fp32", "--skip-spikes", 8, "-o", "p.svg")  # fmt: skip
    assert (code, error) == (0, "")
    assert "of the updates are absorbed" in out
    assert "p-monitor-fp16-scaling.svg" in out
    code, out, _ = run("train", "fp16", "--epochs", 1, "--batch", 512, "--monitor", "--json", "-o", "p.svg")
    found = json.loads(out)
    assert len(found["pictures"]) == 2
    assert found["runs"][0]["monitor"]["updates"]


@pytest.mark.usefixtures("empty_folder")
def test_bad_input_of_the_command(run):
    code, _, error = run("train", "fp16", "--reference", "fp32")
    assert (code, error) == (2, "floatsim: --reference needs --monitor\n")
