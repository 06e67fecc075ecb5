"""Optimizers: the outcomes of low precision that the literature describes, and the formats of every line."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.training import DYNAMIC8, DYNAMIC8_UNSIGNED, SGD, Adam, AdamW, Arithmetic, RMSProp, as_optimizer


def weights(number, fmt):
    return {"w": fs.array([number], fmt)}


def moment(optimizer, key):
    return optimizer.moments["w"][key].item()


# -- updates -----------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_small_updates_in_fp32():
    """10000 updates of -1e-4 on a weight of 1."""
    optimizer, found, gradient = SGD(1e-4), weights(1.0, "fp32"), weights(1.0, "fp32")
    for _ in range(10_000):
        found = optimizer.step(found, gradient)
    assert found["w"].item() == pytest.approx(-5.36e-5, abs=1e-7)


@pytest.mark.parametrize("fmt", ["fp16", "bf16"])
def test_small_updates_are_absorbed(fmt):
    """A weight of 1 that does not change in one step never changes."""
    assert SGD(1e-4).step(weights(1.0, fmt), weights(1.0, fmt))["w"].item() == 1.0


def test_stochastic_rounding_keeps_small_updates():
    """1000 weights, 100 updates of -1e-4: the mean is 0.99, and each step draws new numbers."""
    optimizer = SGD(1e-4, weight_rounding="stochastic", seed=1)
    found, gradient = {"w": fs.array(np.ones(1000), "bf16")}, {"w": fs.array(np.ones(1000), "bf16")}
    first = optimizer.step(found, gradient)
    second = optimizer.step(found, gradient)
    assert first["w"].codes.tolist() != second["w"].codes.tolist()
    for _ in range(100):
        found = optimizer.step(found, gradient)
    assert found["w"].format == fs.BF16
    assert np.mean(found["w"].values) == pytest.approx(0.99, abs=5e-4)


def test_kahan_keeps_small_updates():
    optimizer, found = SGD(1e-4, kahan=True), weights(1.0, "bf16")
    for _ in range(100):
        found = optimizer.step(found, weights(1.0, "bf16"))
    assert found["w"].item() == pytest.approx(0.99, abs=2.0**-8)
    assert moment(optimizer, "compensation") != 0


def test_masters_in_fp32():
    optimizer = SGD(1e-4, weights="fp32", state="fp32", momentum=0.9)
    found = optimizer.step(weights(1.0, "fp32"), weights(1.0, "fp16"))
    assert found["w"].format == fs.FP32
    assert found["w"].item() == float(np.float32(1) - np.float32(1e-4))


def test_weight_decay_is_absorbed_in_bf16():
    """The decay of a weight of 1.5 is absorbed up to lr * weight_decay = 2**-8 / 1.5 = 0.0026."""
    for lr, absorbed in ((1e-2, True), (2.6e-2, True), (2.7e-2, False), (1e-1, False)):
        found = AdamW(lr, weight_decay=0.1).step(weights(1.5, "bf16"), weights(0.0, "bf16"))
        assert (found["w"].item() == 1.5) == absorbed


@pytest.mark.parametrize("rounding", ["line", "operation", "step"])
@pytest.mark.parametrize(("mode", "expected"), [
    ("toward_zero", 0.99609375), ("toward_negative", 0.99609375), ("toward_positive", 1.0), ("ties_to_away", 1.0),
    ("to_odd", 0.99609375),
])  # fmt: skip
def test_directed_weight_rounding(rounding, mode, expected):
    """The weight has its format already: 1 - 1e-3 in BF16."""
    optimizer = SGD(1.0, weight_rounding=mode, rounding=rounding)
    assert optimizer.step(weights(1.0, "bf16"), weights(1e-3, "bf16"))["w"].item() == expected


@pytest.mark.parametrize(("fmt", "below"), [("fp32", 1 - 2.0**-24), ("fp64", 1 - 2.0**-53)])
def test_weight_rounding_in_the_format_of_the_computation(fmt, below):
    """The last operation has the mode. 1e-17 is below half an ulp."""
    for optimizer in (SGD, RMSProp, Adam):
        found = optimizer(1e-17, weight_rounding="toward_zero").step(weights(1.0, fmt), weights(1.0, fmt))
        assert found["w"].item() == below
    drawn = SGD(2.0**-26, weight_rounding="stochastic").step({"w": fs.array(np.ones(200), "fp32")},
                                                             {"w": fs.array(np.ones(200), "fp32")})  # fmt: skip
    assert set(drawn["w"].values.tolist()) == {1.0, 1 - 2.0**-24}


@pytest.mark.parametrize("rounding", ["line", "operation", "step"])
def test_the_rounding_mode_of_the_context_does_not_apply(rounding):
    expected = Adam(1e-3, rounding=rounding).step(weights(1.0, "bf16"), weights(0.3, "bf16"))
    with fs.context(rounding="toward_zero"):
        found = Adam(1e-3, rounding=rounding).step(weights(1.0, "bf16"), weights(0.3, "bf16"))
    assert found["w"].item() == expected["w"].item()


def test_updates_have_the_decay():
    """Also with Kahan's compensation: -0.1 by the decay, -0.1 by the step."""
    for kahan in (False, True):
        optimizer = AdamW(0.1, weight_decay=1.0, kahan=kahan)
        optimizer.updates = {}
        found = optimizer.step(weights(1.0, "fp32"), weights(1.0, "fp32"))
        assert optimizer.updates["w"].item() == pytest.approx(-0.2, rel=1e-6)
        assert found["w"].item() == pytest.approx(0.8, rel=1e-6)


def test_each_weight_has_its_own_number_of_steps():
    """As in PyTorch: the first gradient of `b` is in step 3."""
    optimizer = Adam(0.1)
    parameters = {name: fs.array([0.0], "fp32") for name in "ab"}
    for step in range(3):
        parameters = optimizer.step(parameters, {name: fs.array([1.0], "fp32") for name in "ab"[: 1 + (step == 2)]})
    assert parameters["b"].item() == pytest.approx(-0.1, rel=1e-6)
    assert (optimizer.steps, optimizer.weight_steps) == (3, {"a": 3, "b": 1})


def test_a_failed_step_changes_nothing():
    optimizer = Adam(0.1, weight_rounding="stochastic")
    parameters = {"a": fs.array([1.0], "bf16"), "b": fs.array([1.0], "bf16")}
    optimizer.step(parameters, parameters)
    before, other = optimizer.moments["a"]["mean"], {**parameters, "b": fs.array([1.0, 2.0], "bf16")}
    with pytest.raises(ValueError, match=r"moments\['b'\]\['mean'\] \(1,\) does not fit the parameter \(2,\)"):
        optimizer.step(other, other)
    assert (optimizer.steps, optimizer.weight_steps, optimizer._stream.calls) == (1, {"a": 1, "b": 1}, 2)
    assert optimizer.moments["a"]["mean"] is before


@pytest.mark.parametrize("make", [lambda: SGD(0.1, momentum=0.9), lambda: Adam(0.1), lambda: SGD(0.1, kahan=True)])
def test_moments_of_another_shape(make):
    optimizer = make()
    optimizer.step({"w": fs.array(np.ones((2, 2)), "fp32")}, {"w": fs.array(np.ones((2, 2)), "fp32")})
    with pytest.raises(ValueError, match=r"moments\['w'\].* \(2, 2\) does not fit the parameter \(2,\)"):
        optimizer.step({"w": fs.array(np.ones(2), "fp32")}, {"w": fs.array(np.ones(2), "fp32")})


@pytest.mark.parametrize(("parameters", "gradients", "message"), [
    ({"w": np.ones(1, np.float32)}, weights(1.0, "fp32"), r"parameters\['w'\] must be a FloatArray, not ndarray"),
    ({"w": [1.0]}, weights(1.0, "fp32"), r"parameters\['w'\] must be a FloatArray, not list"),
    (weights(1.0, "fp32"), {"w": None}, r"gradients\['w'\] must be a FloatArray, not NoneType"),
    (weights(1.0, "fp32"), [1.0], "gradients must be a mapping of names to FloatArrays, not list"),
])  # fmt: skip
def test_tensors_that_are_no_float_arrays(parameters, gradients, message):
    with pytest.raises(TypeError, match=message):
        SGD(0.1).step(parameters, gradients)


# -- Adam in low precision ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1e-6, 1e-5, 1e-4, 1e-3])
def test_first_step_of_adam_in_fp16(number):
    """The square of the gradient and eps are zero in FP16."""
    found = Adam(1e-3, rounding="operation").step(weights(0.0, "fp16"), weights(number, "fp16"))
    assert not np.isfinite(found["w"].item())


@pytest.mark.parametrize("number", [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 100.0, 1000.0])
def test_first_step_of_adam_in_bf16(number):
    found = Adam(1e-3).step(weights(0.0, "bf16"), weights(number, "bf16"))
    assert 9.99e-4 <= -found["w"].item() <= 1.0075e-3


@pytest.mark.parametrize(("beta2", "stalled", "decayed"), [
    (0.9, 0.984375, False), (0.99, 0.8046875, False), (0.999, 0.25, True), (0.9999, 0.03125, True),
])  # fmt: skip
def test_second_moment_in_bf16(beta2, stalled, decayed):
    """Gradients of 1: the mean of the squares should become 1. Then gradients of 0: it should decay."""
    state = {"w": {"squares": fs.array([stalled], "bf16")}}
    optimizer = Adam(0.0, betas=(0.9, beta2), rounding="step", state="bf16")
    below = fs.next_down(fs.array([stalled], "bf16"))
    optimizer.moments = {"w": {"squares": below}}
    optimizer.step(weights(0.0, "bf16"), weights(1.0, "bf16"))
    assert moment(optimizer, "squares") == stalled  # it still grows to this number
    optimizer.moments = state
    optimizer.step(weights(0.0, "bf16"), weights(1.0, "bf16"))
    assert moment(optimizer, "squares") == stalled  # and stays there
    optimizer.moments = {"w": {"squares": fs.array([1.0], "bf16")}}
    optimizer.step(weights(0.0, "bf16"), weights(0.0, "bf16"))
    assert (moment(optimizer, "squares") == 1.0) == decayed


def test_numbers_as_the_format_represents_them():
    lines = Arithmetic("operation")
    zero = fs.array([0.0], "fp16")
    assert [lines.raised(zero, eps).item() for eps in (1e-8, 1e-7)] == [0.0, 2.0**-23]
    assert lines.raised(fs.array([0.0], "bf16"), 1e-8).item() == pytest.approx(1.001e-8, rel=1e-3)
    assert lines.scaled(fs.array([1.0], "bf16"), 0.9999).item() == 1.0
    assert lines.scaled(fs.array([1.0], "fp16"), 0.9999).item() == 1.0
    assert lines.scaled(fs.array([1.0], "fp16"), 0.999).item() == 0.9990234375


def test_rmsprop_and_momentum():
    optimizer = RMSProp(0.1, alpha=0.5, eps=0.0, momentum=0.5, centered=True)
    found = optimizer.step(weights(0.0, "fp32"), weights(2.0, "fp32"))
    # v = 2, m = 1, d = 1, b = 2
    assert found["w"].item() == float(np.float32(0.1) * np.float32(-2))
    nesterov = SGD(1.0, momentum=0.5, nesterov=True)
    assert nesterov.step(weights(0.0, "fp32"), weights(1.0, "fp32"))["w"].item() == -1.5


# -- numbers do not depend on earlier calls, nor on the context -----------------------------------------------------


def test_zero_keeps_its_sign():
    """A learning rate of 0 makes the factor -0.0, after any step that rounded 0.0."""
    Adam(1e-3, eps=0.0).step(weights(1.0, "fp32"), weights(1.0, "fp32"))
    found = SGD(0.0).step(weights(-0.0, "fp32"), weights(1.0, "fp32"))["w"]
    assert np.signbit(found.item())


@pytest.mark.parametrize(("make", "context", "weight", "gradient", "expected"), [
    (lambda: Adam(1e-3, betas=(0, 0), eps=3e-7, rounding="operation"), {"ftz": True}, 1.0, 0.0, 1.0),
    (lambda: SGD(1.1e6), {"overflow": "saturate_finite"}, 1.0, 1e-3, -np.inf),
])  # fmt: skip
def test_numbers_do_not_depend_on_an_earlier_context(make, context, weight, gradient, expected):
    with fs.context(**context):
        make().step(weights(weight, "fp16"), weights(gradient, "fp16"))
    assert make().step(weights(weight, "fp16"), weights(gradient, "fp16"))["w"].item() == expected


def test_a_record_does_not_depend_on_earlier_steps():
    totals = []
    for _ in range(2):
        with fs.record() as log:
            SGD(0.123).step(weights(1.0, "fp16"), weights(1.0, "fp16"))
        totals.append([row["operation"] for row in log.records()])
    assert totals[0] == totals[1]


# -- moments in blocks -------------------------------------------------------------------------------------------------


def test_dynamic_map():
    """The largest numbers, the smallest ones and their count, of bitsandbytes' create_dynamic_map."""
    signed, unsigned = DYNAMIC8.format.values, DYNAMIC8_UNSIGNED.format.values
    assert len(signed) == len(unsigned) == 256
    assert (signed[-1], unsigned[-1]) == (1.0, 1.0)
    assert signed[-2] == pytest.approx(1 - 0.9 / 128, rel=1e-6)
    assert min(x for x in signed if x > 0) == pytest.approx(0.55e-6)
    assert min(x for x in unsigned if x > 0) == pytest.approx(0.325e-6)
    assert sum(x < 0 for x in signed) == 127
    assert min(unsigned) == 0


@pytest.mark.full
def test_moments_in_8_bits():
    rng = np.random.default_rng(0)
    gradients = [{"w": fs.array(rng.normal(size=600), "fp32")} for _ in range(5)]
    found = {}
    for state in ("fp32", "bf16", "dynamic8"):
        optimizer = Adam(1e-2, state=state)
        parameters = {"w": fs.array(np.zeros(600), "fp32")}
        for gradient in gradients:
            parameters = optimizer.step(parameters, gradient)
        found[state] = parameters["w"].values
    size = np.linalg.norm(found["fp32"])
    errors = {state: np.linalg.norm(x - found["fp32"]) / size for state, x in found.items()}
    assert 0 < errors["bf16"] < 0.01 < errors["dynamic8"] < 0.2


def test_state_is_stored_in_its_format():
    optimizer = Adam(1e-2, state="bf16")
    optimizer.step(weights(1.0, "fp32"), weights(0.3, "fp32"))
    assert {each.format for each in optimizer.moments["w"].values()} == {fs.BF16}


# -- names and bad values ----------------------------------------------------------------------------------------------


def test_names():
    assert isinstance(as_optimizer("AdamW", 0.1), AdamW)
    assert as_optimizer("momentum", 0.1) == SGD(0.1, momentum=0.9)
    optimizer = Adam(0.1)
    assert as_optimizer(optimizer) is optimizer


@pytest.mark.parametrize(("call", "message"), [
    (lambda: SGD(float("nan")), "lr must be a finite number of at least 0, not nan"),
    (lambda: SGD(-1.0), "lr must be a finite number of at least 0"),
    (lambda: SGD(0.1).step(weights(1.0, "fp32"), weights(1.0, "fp32"), lr=float("nan")), "lr must be a finite number"),
    (lambda: Adam(0.1, betas=(0.9, 1.0)), "beta2 must be below 1"),
    (lambda: SGD(0.1, nesterov=True), "nesterov=True needs a momentum"),
    (lambda: SGD(0.1, rounding="lines"), "did you mean 'line'"),
    (lambda: SGD(0.1, state="bf17"), "state: .*bf17"),
    (lambda: SGD(0.1, state="dynamic9"), "did you mean 'dynamic8'"),
    (lambda: SGD(0.1, kahan=True, weight_rounding="stochastic"), "exclude each other"),
    (lambda: SGD(0.1, kahan=True, weight_rounding="toward_zero"), "weight_rounding='toward_zero' exclude each other"),
    (lambda: Adam(0.1, betas=(0.9, 0.99, 0.999)), "betas must be two numbers"),
    (lambda: Adam(0.1, betas=0.9), r"betas must be two numbers, such as \(0.9, 0.999\), not 0.9"),
    (lambda: as_optimizer("adamm"), "did you mean 'adam"),
    (lambda: SGD(0.1).step(weights(1.0, "fp32"), {"v": fs.array([1.0], "fp32")}), "there is no parameter 'v'"),
    (lambda: SGD(0.1).step(weights(1.0, "fp32"), {"w": fs.array(1.0, "fp32")}), "does not fit the parameter"),
])  # fmt: skip
def test_bad_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# -- scalars in a format -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [Adam, AdamW])
def test_scalars_in_bf16_stop_adam(make):
    """beta2 = 0.999 is 1.0 in BF16: v stays 0 and the root of the correction is 0, so the first step divides 0 by 0."""
    gradient = weights(0.5, "fp32")
    for betas in ((0.9, 0.999), (0.9, 1.0)):
        optimizer = make(1e-2, betas=betas, scalars="bf16")
        assert np.isnan(optimizer.step(weights(1.0, "fp32"), gradient)["w"].item())
        assert moment(optimizer, "squares") == 0.0
    assert make(1e-2).step(weights(1.0, "fp32"), gradient)["w"].item() < 1
    with pytest.raises(ValueError, match="beta2 must be below 1"):
        make(1e-2, betas=(0.9, 1.0))
    with pytest.raises(ValueError, match=r"beta2 must be below 1, not 1\.5"):
        make(1e-2, betas=(0.9, 1.5), scalars="bf16")


@pytest.mark.parametrize("fmt", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_scalars_are_rounded_one_by_one(fmt, decay):
    """Written out a second time, on weights and moments in FP64."""

    def to(x):
        return fs.array(np.float64(x), fmt).item()

    lr, beta1, beta2, eps = to(3e-3), to(0.9), to(0.99), to(1e-8)
    optimizer = AdamW(3e-3, betas=(0.9, 0.99), weight_decay=decay, scalars=fmt, rounding="operation")
    found, w, m, v = weights(1.0, "fp64"), 1.0, 0.0, 0.0
    for t in range(1, 6):
        g = 0.1 * t
        found = optimizer.step(found, weights(g, "fp64"))
        w = w * to(1 - to(lr * to(decay))) if decay else w
        m = m + to(1 - beta1) * (g - m)
        v = beta2 * v
        v = v + (to(1 - beta2) * g) * g
        size, root = to(lr / to(1 - to(beta1**t))), to(to(1 - to(beta2**t)) ** 0.5)
        w = w + (-size * m) / (v**0.5 / root + eps)
        assert found["w"].item() == w


def test_scalars_in_fp64_change_nothing():
    gradient = weights(0.3, "bf16")
    for make in (Adam, AdamW):
        plain, wide = make(1e-3, weight_decay=0.1), make(1e-3, weight_decay=0.1, scalars="fp64")
        x = y = weights(1.0, "bf16")
        for _ in range(5):
            x, y = plain.step(x, gradient), wide.step(y, gradient)
        assert x["w"].codes == y["w"].codes
    with pytest.raises(ValueError, match="did you mean 'bf16'"):
        Adam(1e-3, scalars="bf61")
