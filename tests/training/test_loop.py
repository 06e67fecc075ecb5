"""The training loop: outcomes of low precision on the digits, events, and divergence."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.training import Data, GradScaler, Policy, Trainer, compare_policies, digits_data, mlp, train
from floatsim.training.loop import Comparison, Epoch, Event, TrainingRun


def small_data(seed=0, n=24):
    """A few images."""
    digits = digits_data(seed)
    return Data(digits.x[:n], digits.y[:n], digits.test_x[:8], digits.test_y[:8])


def test_digits_data():
    data = digits_data(seed=3, test_images=100)
    assert (data.x.shape, data.test_x.shape) == ((1697, 64), (100, 64))
    assert (data.x.min(), data.x.max()) == (0.0, 1.0)
    rows = list(data.batches(32, 0, 0))
    assert sorted(np.concatenate(rows).tolist()) == list(range(1697))
    assert len(rows[-1]) == 1697 % 32
    assert next(data.batches(32, 0, 1)).tolist() != rows[0].tolist()


def test_a_run_is_reproducible():
    runs = [train("fp16+scaling", data=small_data(), epochs=2, batch=8) for _ in range(2)]
    assert runs[0].losses == runs[1].losses
    assert len(runs[0].losses) == 6
    assert runs[0].weights.keys() == runs[1].weights.keys()
    assert all(w.format == fs.FP16 for w in runs[0].weights.values())


def test_a_step_equals_the_operators_and_the_optimizer():
    """Everything FP16, by hand: the passes of the network, then w - round(lr * g), two roundings."""
    data, network = small_data(), mlp()
    trainer = Trainer("fp16", network, lr=0.1, seed=4)
    before = network.initial(4, "fp32")
    x = trainer.inputs(data.x[:8])
    trainer.step(x, data.y[:8])
    w = {name: each.astype("fp16") for name, each in before.items()}
    found = network.run(fs.training.Execution("fp16"), w, x, data.y[:8])
    for name, weight in w.items():
        lr = fs.array(-0.1, "fp16")
        change = fs.multiply(lr, found.gradients[name], format="fp16")
        assert trainer.weights[name].codes.tolist() == fs.add(change, weight, format="fp16").codes.tolist()


def test_micro_batches_clipping_and_weights_at_use():
    data = small_data()
    policy = Policy("bf16", accumulate="fp32", weights="fp32", weights_at_use="e4m3", weight_gradients="fp32")
    trainer = Trainer(policy, lr=1.0, clip=1e-3, micro_batches=4)
    before = {name: w.values.copy() for name, w in trainer.weights.items()}
    assert (fs.quantize(before["head.weight"], "e4m3") == trainer.used_weights()["head.weight"].values).all()
    trainer.step(trainer.inputs(data.x[:8]), data.y[:8])
    moved = np.sqrt(sum(np.sum((trainer.weights[name].values - w) ** 2) for name, w in before.items()))
    assert moved == pytest.approx(1e-3, rel=1e-3)
    assert {w.format for w in trainer.weights.values()} == {fs.FP32}


def test_micro_batches_have_the_update_of_the_batch():
    """Each loss is divided by the number of parts. In FP64, up to roundings, also with a loss scale and a factor."""
    data, found = small_data(), {}
    policy = Policy("fp64", accumulate="fp64", weights="fp64", activations="fp64")
    for parts in (1, 2, 4):
        trainer = Trainer(policy, lr=0.5, micro_batches=parts, loss_scale=8.0, loss_factor=0.5)
        loss = trainer.step(trainer.inputs(data.x[:8]), data.y[:8])
        found[parts] = loss.item(), trainer.weights["head.weight"].values
    for loss, weight in found.values():
        assert loss == pytest.approx(found[1][0], rel=1e-6)
        assert np.allclose(weight, found[1][1], rtol=1e-6, atol=1e-9)


def test_too_few_images_for_the_micro_batches():
    data = small_data()
    trainer = Trainer("fp32", micro_batches=4)
    for n in (0, 3):
        with pytest.raises(ValueError, match=f"micro_batches=4 needs a batch of as many images, not {n}"):
            trainer.step(trainer.inputs(data.x[:n]), data.y[:n])
    assert trainer.steps == 0
    with pytest.raises(ValueError, match="micro_batches=5 is more than the images of the smallest batch: 24 images"):
        train("fp32", data=data, batch=10, micro_batches=5)


def test_dynamic_scaling_skips_a_step():
    run = train("fp16+scaling", data=small_data(), epochs=1, batch=24)
    assert run.skipped == 1
    assert run.scales == [65536.0]
    assert [event.kind for event in run.events] == ["skipped", "scale"]
    assert run.events[0].text == "overflow: infinity in loss, cross_entropy, backward"
    assert run.events[1].text == "loss scale 65536 -> 32768"
    assert not run.diverged


def test_a_diverging_run_names_operation_and_layer():
    run = train("fp16", data=small_data(), epochs=20, batch=8, lr=1e4)
    assert run.diverged
    assert run.bad.kind == "infinity"
    assert (run.bad.module, run.bad.operation) in {("layer0", "linear"), ("head", "linear")}
    assert f"linear, layer {run.bad.module}, forward, step {run.bad.step}" in run.report()
    assert run.events[-1].kind == "diverged"


def test_a_run_of_skipped_steps_ends():
    """Infinite inputs: each step overflows, and no smaller scale helps."""
    data = small_data()
    broken = Data(np.where(data.x == data.x.max(), np.inf, data.x), data.y, data.test_x, data.test_y)
    run = train("fp16", data=broken, epochs=200, batch=24, loss_scale=GradScaler(allow_fp16=True))
    assert run.diverged
    assert len(run.losses) == 50
    assert run.report().startswith("fp16: 50 steps in a row were skipped. The first operation with")


def test_comparison():
    found = compare_policies(["fp32", "fp16"], data=small_data(), epochs=1, batch=8)
    text = str(found).splitlines()
    assert text[0].split() == ["policy", "accuracy", "loss", "zeros", "skipped", "scale", "outcome"]
    assert [line.split()[0] for line in text[1:]] == ["fp32", "fp16"]
    assert [run["policy"] for run in found.to_dict()["runs"]] == ["fp32", "fp16"]


@pytest.mark.parametrize(("call", "message"), [
    (lambda: train("fp61"), "policy 'fp61' is not known; did you mean 'fp16'"),
    (lambda: train("fp16", "mlpp"), "network 'mlpp' is not known"),
    (lambda: train("fp16", optimizer="sdg"), "did you mean 'sgd'"),
    (lambda: train("fp16", lr=float("nan")), "lr must be a finite number"),
    (lambda: train("fp16", loss_scale=0), "scale must be above 0"),
    (lambda: train("fp16", epochs=0), "epochs must be at least 1"),
    (lambda: Trainer(Policy(modules={"haed": "fp16"})), "no module fits 'haed'; did you mean 'head'"),
    (lambda: Trainer("fp16", clip=-1), "clip must be a finite number of at least 0, not -1"),
    (lambda: Trainer("fp16", clip=0), "clip must be above 0, not 0"),
    (lambda: compare_policies([]), "at least one policy"),
])  # fmt: skip
def test_bad_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bad_monitor():
    with pytest.raises(TypeError, match=r"monitor must be an fs\.training\.Monitor, not 3"):
        Trainer("fp16", monitor=3)


# -- the outcomes of the literature, on this data ----------------------------------------------------------------------


@pytest.mark.full
def test_loss_scaling_makes_fp16_train():
    """The loss times 1e-6: FP16 does not train without scaling, and trains with 256. BF16 needs none."""
    options = {"loss_factor": 1e-6, "lr": 1e5}
    plain = train("fp16+masters", loss_scale=1.0, **options)
    scaled = train("fp16+masters", loss_scale=256.0, **options)
    bf16 = train("bf16+masters", loss_scale=1.0, **options)
    assert plain.accuracy < 0.15
    assert plain.epochs[-1].zeros > 0.9
    assert scaled.accuracy > 0.95
    assert bf16.accuracy > 0.95


@pytest.mark.full
def test_a_loss_that_is_not_small_enough():
    """The loss times 2**-12: FP16 trains without scaling, too."""
    assert train("fp16+masters", loss_factor=2.0**-12, lr=0.1 * 2**12).accuracy > 0.95


@pytest.mark.full
def test_masters_and_stochastic_rounding():
    """A learning rate of 0.002: updates of BF16 weights are absorbed, less so in FP16."""
    found = {
        name: train(name, lr=0.002).accuracy
        for name in ("fp32", "bf16", "fp16", "bf16+masters", "bf16+stochastic", "bf16+kahan")
    }
    assert found["bf16"] < 0.15
    assert found["bf16"] < found["fp16"] < found["fp32"] - 0.03
    assert found["bf16+masters"] == pytest.approx(found["fp32"], abs=0.02)
    assert found["bf16+stochastic"] == pytest.approx(found["fp32"], abs=0.05)
    assert found["bf16+kahan"] == pytest.approx(found["fp32"], abs=0.02)


def test_the_optimizer_of_a_policy_with_kahan_compensates_its_updates():
    """The same steps as an optimizer with kahan=True, and other ones than without it."""
    compensated = fs.training.SGD(0.002, momentum=0.9, weights="bf16", kahan=True)
    cases = {"policy": ("bf16+kahan", "momentum"), "optimizer": ("bf16", compensated), "plain": ("bf16", "momentum")}
    runs = {name: Trainer(policy, optimizer=each, lr=0.002) for name, (policy, each) in cases.items()}
    x, y = np.random.default_rng(0).normal(size=(8, 64)), np.arange(8)
    weights = {}
    for name, trainer in runs.items():
        for _ in range(3):
            trainer.step(trainer.inputs(x), y)
        weights[name] = np.concatenate([each.values.ravel() for each in trainer.weights.values()])
    assert np.array_equal(weights["policy"], weights["optimizer"])
    assert not np.array_equal(weights["policy"], weights["plain"])
    assert runs["policy"].optimizer.moments["head.bias"]["compensation"].format is fs.BF16


@pytest.mark.full
def test_learning_rate_divided_by_the_scale():
    """SGD: dividing the gradient or the learning rate by the scale is the same. Both barely train."""
    once = train("fp32", loss_scale=256.0, epochs=3)
    instead = train("fp32", loss_factor=256.0, lr=0.1 / 256, epochs=3)
    twice = train("fp32", loss_scale=256.0, lr=0.1 / 256, epochs=3)
    assert once.accuracy == pytest.approx(instead.accuracy, abs=0.01)
    assert twice.accuracy < 0.5 * once.accuracy


@pytest.mark.full
@pytest.mark.parametrize("network", ["cnn", "transformer"])
def test_other_networks_train(network):
    digits = digits_data()
    data = Data(digits.x[:320], digits.y[:320], digits.test_x[:100], digits.test_y[:100])
    run = train("autocast-bf16", network, "adamw", lr=1e-2, epochs=3, data=data)
    assert run.accuracy > 0.5
    assert run.epochs[-1].loss < run.epochs[0].loss


def test_a_run_at_chance_level_is_not_trained():
    """Ten balanced classes: a guess is right in 10 % of 360 images, with a standard deviation of 1.6 %."""
    run = fs.training.train("fp32", epochs=1, batch=256, lr=0.0)
    assert 0.1 < run.chance < 0.2
    runs = [
        TrainingRun(
            name, "mlp", "sgd", [Epoch(2.3, accuracy, 0.0, 1.0)], events, chance=run.chance,
            diverged=bool(events),
        )
        for name, accuracy, events in (
            ("guess", 0.1, []), ("lucky", run.chance, []), ("fp16", 0.9, []),
            ("lost", 0.1, [Event(9, "diverged", "16 steps in a row were skipped")]),
        )
    ]  # fmt: skip
    outcomes = ["at chance level", "at chance level", "trained", "diverged: 16 steps in a row were skipped"]
    assert [each.outcome for each in runs] == outcomes
    table = str(Comparison(runs)).splitlines()
    assert all(line.endswith(words) for line, words in zip(table[1:], outcomes, strict=True))
