"""Loss scalers: the state machines step by step, with the numbers of the libraries' sources."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.training import (
    ApexLossScaler,
    DeepSpeedLossScaler,
    GradScaler,
    KerasLossScaler,
    LayerLossScales,
    StaticLossScaler,
    as_loss_scaler,
    overflowed,
    replay,
)  # fmt: skip

T, F = True, False


def scales(scaler, flags):
    """The scale of each step, then the scale after the last."""
    steps = replay(scaler, flags)
    return [step.scale for step in steps] + [scaler.scale]


# -- PyTorch -----------------------------------------------------------------------------------------------------------


def test_grad_scaler_defaults():
    scaler = GradScaler()
    assert (scaler.scale, scaler.growth_factor, scaler.backoff_factor, scaler.growth_interval) == (
        65536.0,
        2,
        0.5,
        2000,
    )
    replay(scaler, [F] * 1999)
    assert (scaler.scale, scaler.tracker) == (65536.0, 1999)
    scaler.update(overflow=F)
    assert (scaler.scale, scaler.tracker) == (131072.0, 0)


def test_grad_scaler_overflow_resets_the_tracker():
    scaler = GradScaler(1024.0, growth_interval=3)
    assert scales(scaler, [F, F, T, F, F, F]) == [1024, 1024, 1024, 512, 512, 512, 1024]


def test_grad_scaler_does_not_grow_to_infinity():
    """The growth is blocked, and the tracker is reset."""
    scaler = GradScaler(2.0**127, growth_interval=2)
    assert scales(scaler, [F, F, F]) == [2.0**127] * 4
    assert scaler.tracker == 1


def test_grad_scaler_has_no_lower_bound():
    """The scale becomes smaller than 1, subnormal in FP32, and zero."""
    found = scales(GradScaler(4.0), [T] * 153)
    assert found[3] == 0.5
    assert found[151] == 2.0**-149
    assert found[152:] == [0.0, 0.0]


def test_grad_scaler_rounds_to_fp32():
    scaler = GradScaler(1.0, growth_factor=1.1, growth_interval=1)
    scaler.update(overflow=F)
    assert scaler.scale == float(np.float32(1.1))


def test_grad_scaler_unscales_in_fp32():
    scaler = GradScaler(3.0, growth_interval=1)
    gradients = {"w": fs.array([3.0, 1.0, 1e-30], "fp32"), "b": fs.array([3.0], "bf16")}
    found = scaler.unscale(gradients)
    inverse = np.float32(1 / 3)
    assert found["w"].tolist() == [float(np.float32(x) * inverse) for x in (3.0, 1.0, 1e-30)]
    assert found["b"].format == fs.BF16
    assert not scaler.found
    assert not scaler.update()
    assert scaler.scale == 6.0


def test_grad_scaler_finds_infinity_in_the_scaled_gradient_and_unscales_all():
    scaler = GradScaler(4.0)
    found = scaler.unscale({"w": fs.array([np.inf, 4.0], "fp32"), "b": fs.array([8.0], "fp32")})
    assert found["w"].tolist() == [np.inf, 1.0]
    assert found["b"].tolist() == [2.0]
    assert scaler.update()
    assert scaler.scale == 2.0


def test_grad_scaler_with_two_optimizers():
    scaler = GradScaler(4.0)
    scaler.unscale({"w": fs.array([np.nan], "fp32")}, "first")
    scaler.unscale({"w": fs.array([1.0], "fp32")}, "second")
    with pytest.raises(RuntimeError, match="since the last update"):
        scaler.unscale({"w": fs.array([1.0], "fp32")}, "second")
    assert scaler.update()
    with pytest.raises(RuntimeError, match="update needs overflow"):
        scaler.update()


def test_grad_scaler_refuses_fp16():
    gradients = {"layer0.weight": fs.array([1.0], "fp16")}
    with pytest.raises(ValueError, match=r"'layer0\.weight' is in FP16, which PyTorch does not unscale"):
        GradScaler().unscale(gradients)
    assert GradScaler(2.0, allow_fp16=True).unscale(gradients)["layer0.weight"].tolist() == [0.5]


# -- the others --------------------------------------------------------------------------------------------------------


def test_apex():
    assert ApexLossScaler() == ApexLossScaler(2.0**16, 2000, None, 2.0**24)
    assert scales(ApexLossScaler(2.0**22, window=2), [F] * 6) == [2.0**k for k in (22, 22, 23, 23, 24, 24, 24)]
    assert scales(ApexLossScaler(8.0, window=2, least=4.0), [F, T, T, F, F]) == [8, 8, 4, 4, 4, 8]


def test_apex_tests_the_sum():
    """Finite elements, and an infinite sum in FP32."""
    gradients = {"w": fs.array([3e38, 3e38], "fp32")}
    assert not overflowed(gradients)
    assert ApexLossScaler().overflowed(gradients)
    assert not GradScaler().overflowed(gradients)


def test_deepspeed_defaults():
    scaler = DeepSpeedLossScaler()
    assert (scaler.scale, scaler.window, scaler.least, scaler.hysteresis) == (65536.0, 1000, 1.0, 2)


def test_deepspeed_hysteresis():
    """The first overflow reduces the hysteresis only. Without growth it is not refilled."""
    assert scales(DeepSpeedLossScaler(64.0), [T, F, F, T, F, T]) == [64, 64, 64, 64, 32, 32, 16]
    assert scales(DeepSpeedLossScaler(64.0, consecutive_hysteresis=True), [T, F, F, T, F, T]) == [64] * 7
    assert scales(DeepSpeedLossScaler(64.0, hysteresis=1), [T, T]) == [64, 32, 16]


def test_deepspeed_window():
    """With a window of 2: the clean steps after the last overflow are counted from the step after next."""
    assert scales(DeepSpeedLossScaler(8.0, window=2), [F] * 7) == [8, 8, 8, 16, 16, 32, 32, 64]
    scaler = DeepSpeedLossScaler(8.0, window=2)
    assert scales(scaler, [T, F, F, F, T, T]) == [8, 8, 8, 8, 16, 16, 8]  # growth has refilled the hysteresis


def test_deepspeed_at_the_least_scale():
    scaler = DeepSpeedLossScaler(2.0, hysteresis=1)
    scaler.update(overflow=T)
    with pytest.raises(OverflowError, match="least loss scale"):
        scaler.update(overflow=T)
    assert scales(DeepSpeedLossScaler(1.0, hysteresis=1, raise_at_least=False), [T, T]) == [1, 1, 1]


def test_keras():
    assert (KerasLossScaler().scale, KerasLossScaler().dynamic_growth_steps) == (32768.0, 2000)
    assert scales(KerasLossScaler(8.0, dynamic_growth_steps=2), [F, F, F, T, F]) == [8, 8, 16, 16, 8, 8]
    assert scales(KerasLossScaler(2.0**127, dynamic_growth_steps=1), [F]) == [2.0**127, np.inf]  # no bound
    assert KerasLossScaler(3.0).unscale({"w": fs.array([1.0], "fp32")})["w"].item() == float(np.float32(1 / 3))


def test_static():
    assert scales(StaticLossScaler(1024.0), [F, T, F]) == [1024.0] * 4


def test_scales_of_layers():
    dynamic = GradScaler(16.0)
    found = LayerLossScales({"embedding": 256.0, "layer*": dynamic}, default=2.0)
    gradients = {
        "embedding.weight": fs.array([256.0], "fp32"), "layer0.weight": fs.array([np.inf], "fp32"),
        "layer1.bias": fs.array([16.0], "fp32"), "head.weight": fs.array([2.0], "fp32"),
    }  # fmt: skip
    unscaled, skipped = found.unscale(gradients)
    assert list(unscaled) == list(gradients)
    assert [each.item() for each in unscaled.values()] == [1.0, np.inf, 1.0, 1.0]
    assert skipped
    assert (found.of("layer7"), found.of("embedding"), found.of("norm")) == (8.0, 256.0, 2.0)


# -- the underflow of gradients ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "share"), [
    (1, 0.435), (8, 0.253), (128, 0.091), (1024, 0.034), (2**15, 0.0039), (2**16, 0.0024),
])  # fmt: skip
def test_share_of_zeros_among_log_normal_gradients(scale, share):
    """log2 |g| ~ N(-24, 6**2), in FP16."""
    gradients = 2.0 ** np.random.default_rng(0).normal(-24, 6, 1_000_000)
    zeros = np.mean(fs.quantize(gradients * scale, "fp16") == 0)
    assert zeros == pytest.approx(share, rel=0.05)


def test_fp64_gradients_are_unscaled_in_fp64():
    for scaler in (StaticLossScaler(2.0), KerasLossScaler(2.0)):
        assert scaler.unscale({"w": fs.array([1e300], "fp64")})["w"].item() == 5e299


# -- names and bad values ----------------------------------------------------------------------------------------------


def test_names():
    assert as_loss_scaler("dynamic") == GradScaler(allow_fp16=True)
    assert as_loss_scaler("DeepSpeed") == DeepSpeedLossScaler()
    assert as_loss_scaler(8) == StaticLossScaler(8.0)
    assert as_loss_scaler("8") == StaticLossScaler(8.0)
    scaler = GradScaler()
    assert as_loss_scaler(scaler) is scaler


@pytest.mark.parametrize(("call", "message"), [
    (lambda: as_loss_scaler(0), "scale must be above 0"),
    (lambda: as_loss_scaler("0"), "scale must be above 0"),
    (lambda: as_loss_scaler(-1.0), "scale must be a finite number of at least 0"),
    (lambda: as_loss_scaler(float("nan")), "scale must be a finite number"),
    (lambda: as_loss_scaler("dynamik"), "did you mean 'dynamic'"),
    (lambda: GradScaler(1e300), "scale must be above 0 and finite in FP32, such as 65536.0, not 1e[+]300"),
    (lambda: KerasLossScaler(1e300), "scale must be above 0 and finite in FP32"),
    (lambda: GradScaler(1e-300), "scale must be above 0 and finite in FP32"),
    (lambda: DeepSpeedLossScaler(least=-1), "least must be a finite number of at least 0, not -1"),
    (lambda: ApexLossScaler(least=2.0**25), "least must be at most largest"),
    (lambda: GradScaler(growth_factor=1.0), "growth_factor must be above 1"),
    (lambda: GradScaler(backoff_factor=1.0), "backoff_factor must be between 0 and 1"),
    (lambda: GradScaler(growth_interval=0), "growth_interval must be at least 1"),
    (lambda: DeepSpeedLossScaler(factor=1.0), "factor must be above 1"),
    (lambda: LayerLossScales({"a": 0.0}), "scale must be above 0"),
])  # fmt: skip
def test_bad_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_flags_must_be_booleans():
    with pytest.raises(TypeError, match="overflow must be True or False"):
        replay(GradScaler(), [0.5])
