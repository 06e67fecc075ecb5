"""Scaling methods: the rules of TransformerEngine with exact numbers, and products against loops in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.quantization import NVFP4_SIGNS, hadamard
from floatsim.training import DelayedScaling, as_scaling, current_scale

E4M3 = (fs.E4M3, fs.E4M3)
FORWARD = {"roles": ("input", "weight"), "product": "forward"}
BACKWARD = {"roles": ("input", "gradient"), "product": "weight_gradient"}
FP32_MAX = float(np.finfo(np.float32).max)


def operands(shape_a, shape_b, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(fs.array(rng.normal(size=shape).astype(np.float32), "fp32") for shape in (shape_a, shape_b))


def relative_error(y, a, b):
    exact = a.values @ b.values
    return np.linalg.norm(y.values - exact) / np.linalg.norm(exact)


# -- scales of tensors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("amax", "options", "expected"), [
    (7.0, {}, 64.0), (0.0, {}, 1.0), (np.inf, {}, 1.0), (np.nan, {}, 1.0),
    (0.0, {"epsilon": 0.5}, 896.0), (np.nan, {"epsilon": 0.5}, 1.0),
    (3.0, {}, float(np.float32(448) / np.float32(3))), (3.0, {"power_of_two": True}, 128.0),
    (1e-40, {}, FP32_MAX), (1e-40, {"input_format": "bf16"}, fs.BF16.max), (1e-40, {"input_format": "fp16"}, 65504.0),
    (1e-40, {"power_of_two": True}, 2.0**127), (np.inf, {"power_of_two": True}, 1.0),
])  # fmt: skip
def test_current_scale(amax, options, expected):
    assert current_scale(amax, "e4m3", **options) == expected


def run(method, amaxes, fmt="e4m3"):
    state, factors = method.initial(), []
    for amax in amaxes:
        state = method.update(state.observe(amax), fmt)
        factors.append(state.factor)
    return state, factors


def kernel(amaxes, length, most_recent, largest=448.0):
    """kernel_bulk of delayed_scaling.cu, written for one tensor with Python lists."""
    history, scale, scales = [np.float32(0)] * length, np.float32(1), []
    for observed in amaxes:
        history[0] = np.float32(observed)
        last, amax = history[0], np.float32(0)
        if last != 0:
            moved = [history[i + 1] if i < length - 1 else last for i in range(length)]
            for entry in moved:
                amax = np.fmax(amax, entry)
            history = [np.float32(0), *moved[1:]]
        if most_recent:
            amax = last
        if np.isfinite(amax) and amax > 0:
            with np.errstate(over="ignore"):
                scale = np.float32(largest) / amax
        if np.isinf(scale):
            scale = np.finfo(np.float32).max
        scales.append(float(scale))
    return history, scales


@pytest.mark.parametrize("algorithm", ["max", "most_recent"])
@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_delayed_scaling_is_the_kernel(length, algorithm):
    rng = np.random.default_rng(length)
    amaxes = [*np.exp(rng.normal(size=40)), 0.0, 0.0, np.nan, 2.0, np.inf, 3.0, 1e-42, 0.0, *np.exp(rng.normal(size=9))]
    state, factors = run(DelayedScaling(history_length=length, algorithm=algorithm), amaxes)
    history, scales = kernel(amaxes, length, algorithm == "most_recent")
    assert factors == scales
    np.testing.assert_array_equal(state.history, np.float32(history))


def test_the_window_of_delayed_scaling():
    """A spike determines the scale for as many steps as the history is long."""
    _, factors = run(DelayedScaling(history_length=4), [1, 40, 1, 1, 1, 1, 1])
    assert [f == 448.0 for f in factors] == [True, False, False, False, False, True, True]
    _, factors = run(DelayedScaling(algorithm="most_recent"), [1, 40, 1])
    assert factors == [448.0, float(np.float32(448) / np.float32(40)), 448.0]


def test_margin_and_format():
    _, factors = run(DelayedScaling(margin=2), [1.0])
    assert factors == [112.0]
    _, factors = run(DelayedScaling(), [1.0], "e5m2")
    assert factors == [57344.0]


def test_observations_of_one_step_keep_the_largest():
    state = DelayedScaling(history_length=2).initial()
    assert state.observe(3.0).observe(2.0).history.tolist() == [3.0, 0.0]
    assert np.isnan(state.observe(np.nan).observe(2.0).history[0])
    assert state.history.tolist() == [0.0, 0.0]  # states are not changed


@pytest.mark.full
def test_delayed_scaling_clips_a_spike():
    """A tensor 40 times as large as before: nearly all elements saturate, and the error is that of the sheet."""
    rng = np.random.default_rng(0)
    x, scaler = rng.normal(size=(256, 256)).astype(np.float32), as_scaling("delayed").start()
    for _ in range(3):
        scaler.quantize(fs.array(x, "fp32"), "e4m3", role="input")
        scaler.finish_step()
    spike = fs.array(40 * x, "fp32")
    delayed = scaler.quantize(spike, "e4m3", role="input")
    current = as_scaling("current").quantize(spike, "e4m3")
    clipped = np.mean(np.abs(delayed.elements.values) == 448)
    errors = [np.linalg.norm(q.values - spike.values) / np.linalg.norm(spike.values) for q in (delayed, current)]
    assert clipped == pytest.approx(0.916, abs=0.02)
    assert errors == pytest.approx([0.918, 0.026], rel=0.1)


@pytest.mark.full
def test_conversions_saturate_and_keep_nan():
    x = fs.array(np.float32([np.inf, np.nan, -1e9, 1.0]), "fp32")
    q = as_scaling("current").quantize(x, "e4m3")
    assert q.scales.item() == 1.0
    assert q.values.tolist()[0] == 448.0
    assert np.isnan(q.values[1])
    assert q.values.tolist()[2:] == [-448.0, 1.0]


@pytest.mark.full
def test_scaled_elements_are_products_with_the_factor():
    x = np.random.default_rng(3).normal(size=1000).astype(np.float32)
    q = as_scaling("current").quantize(fs.array(x, "fp32"), "e4m3")
    factor = np.float32(448) / np.abs(x).max()
    assert q.codes.tolist() == fs.encode(x * factor, "e4m3", overflow="saturate_finite").tolist()
    assert q.scales.item() == float(np.float32(1) / factor)


@pytest.mark.full
def test_hybrid_formats_of_one_step():
    """E4M3 forward and E5M2 for gradients: each tensor has a state of its own, and the step uses the old factors."""
    x, w = operands((4, 8), (8, 3))
    x = fs.array(x.values.astype(np.float32) * np.float32(2**-8), "fp32")
    g = operands((4, 3), (1, 1), seed=5)[0]
    scaler = as_scaling("delayed").start()
    first = scaler.matmul(x, w, formats=E4M3, module="fc", **FORWARD)
    plain = [fs.convert(t, "e4m3", overflow="saturate_finite") for t in (x, w)]
    assert first.values.tolist() == fs.matmul(*plain).values.tolist()  # the first factor is 1
    scaler.matmul(x.T, g, formats=(fs.E4M3, fs.E5M2), module="fc", **BACKWARD)
    scaler.finish_step()
    amax = np.abs(g.values).max()
    assert scaler.states["fc", "gradient", fs.E5M2].factor == float(np.float32(57344) / np.float32(amax))
    assert set(scaler.states) == {("fc", "input", fs.E4M3), ("fc", "weight", fs.E4M3), ("fc", "gradient", fs.E5M2)}
    second = scaler.matmul(x, w, formats=E4M3, module="fc", **FORWARD)
    assert relative_error(second, x, w) < 0.05 < relative_error(first, x, w)  # inputs of 2^-8 were subnormal


# -- blocks ------------------------------------------------------------------------------------------------------------


def block_product(a, b, sa, sb, block, separate):
    """A loop in float32: a (M, K) codes' values with scales (M, parts), b (K, N) with scales (parts, N)."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for i, start in enumerate(range(0, a.shape[1], block)):
        acc = fs.matmul(a[:, start : start + block], b[start : start + block], accumulate="hopper").values
        of_a, of_b = sa[:, i : i + 1], sb[i : i + 1]
        if separate:
            scaled = (acc.astype(np.float32) * of_a).astype(np.float32) * of_b
            total = total + scaled.astype(np.float32)
        else:
            scale = (of_a * of_b).astype(np.float32)
            total = (acc * scale.astype(np.float64) + total).astype(np.float32)  # a fused multiply-add
    return total


@pytest.mark.parametrize("name", ["deepseek", "deepgemm"])
@pytest.mark.full
def test_deepseek_blocks(name):
    x, w = operands((5, 300), (300, 130))
    y = as_scaling(name).start().matmul(x, w, formats=E4M3, **FORWARD)
    a = fs.quantize_blocks(x, name)
    b = fs.quantize_blocks(w, f"{name}_weight")
    scales_b = np.repeat(b.scales.values.astype(np.float32), 128, axis=1)[:, :130]
    expected = block_product(
        a.elements, b.elements, a.scales.values.astype(np.float32), scales_b, 128, name == "deepseek"
    )
    if name == "deepseek":
        assert y.values.tolist() == expected.astype(np.float64).tolist()
    else:  # NumPy has no fused multiply-add: the loop rounds the exact product to float64 first
        assert np.abs(y.values - expected).max() <= 1e-6 * np.abs(expected).max()
    assert relative_error(y, x, w) < 0.06


@pytest.mark.full
def test_blocks_follow_the_roles():
    """Gradients have blocks of 1 x 128 along K on either side, weights square ones."""
    method = as_scaling("deepseek")
    x = operands((256, 384), (1, 1))[0]
    assert method.quantize(x, fs.E4M3, role="gradient", axis=1).scales.shape == (256, 3)
    assert method.quantize(x, fs.E4M3, role="gradient", axis=0).scales.shape == (2, 384)
    assert method.quantize(x, fs.E4M3, role="weight", axis=0).scales.shape == (2, 3)
    assert method.quantize(x, fs.E5M2, role="input", axis=1).format == fs.E5M2


@pytest.mark.full
def test_power_of_two_scales():
    x = operands((4, 200), (1, 1))[0]
    scales = as_scaling("te_block").quantize(x, fs.E4M3, role="input", axis=1).scales.values
    assert np.all(np.frexp(scales)[0] == 0.5)
    plain = as_scaling("deepseek").quantize(x, fs.E4M3, role="input", axis=1).scales.values
    assert not np.all(np.frexp(plain)[0] == 0.5)
    ue8m0 = as_scaling("deepseek", scheme=fs.quantization.Scheme("e4m3", 128, rule="rceil", least_amax=1e-4))
    scales = ue8m0.quantize(x, fs.E4M3, role="input", axis=1).scales.values
    assert scales.tolist() == np.exp2(np.ceil(np.log2(plain))).tolist()


@pytest.mark.full
def test_promotion_reduces_the_error_of_the_hopper_model():
    """The outcome of the sheet: products of positive numbers, summed with 14 bits, with promotion every 128."""
    rng = np.random.default_rng(0)
    x, w = (fs.array(rng.uniform(0, 1, size).astype(np.float32), "e4m3") for size in ((8, 4096), (4096, 8)))
    exact = x.values @ w.values
    errors = {
        name: np.abs(fs.matmul(x, w, accumulate=name).values - exact).max() / exact.max()
        for name in ("hopper", "blocked(hopper, 128, fp32)")
    }
    assert errors["hopper"] > 5e-3
    assert errors["blocked(hopper, 128, fp32)"] < errors["hopper"] / 20


@pytest.mark.full
def test_outliers_spoil_only_their_block():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(1, 1024)).astype(np.float32)
    x[0, 0] = 1e6
    rest = slice(128, None)
    whole = as_scaling("current").quantize(fs.array(x, "fp32"), "e4m3").values
    blocks = as_scaling("deepseek").quantize(fs.array(x, "fp32"), fs.E4M3, role="input", axis=1).values
    errors = [np.linalg.norm((y - x)[:, rest]) / np.linalg.norm(x[:, rest]) for y in (whole, blocks)]
    assert errors[0] > 0.8
    assert errors[1] < 0.04


# -- MX and NVFP4 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("formats", [(fs.E4M3, fs.E4M3), (fs.E5M2, fs.E4M3), (fs.E3M2, fs.E3M2), (fs.E2M1, fs.E2M1)])
@pytest.mark.full
def test_mx_products_are_those_of_the_dequantized_operands(formats):
    x, w = operands((3, 70), (70, 5))
    method = as_scaling("mx")
    quantized = method.quantize(x, formats[0], axis=1), method.quantize(w, formats[1], axis=0)
    exact = quantized[0].values @ quantized[1].values
    on_device = method.start().matmul(x, w, formats=formats, **FORWARD)
    in_fp32 = method.start().matmul(x, w, formats=formats, accumulate="fp32", **FORWARD)
    assert np.abs(on_device.values - exact).max() < 1e-5 * np.abs(exact).max()
    assert in_fp32.values.tolist() == fs.matmul(*(q.dequantize() for q in quantized), accumulate="fp32").values.tolist()


@pytest.mark.full
def test_rules_of_mx():
    """FLOOR saturates the largest element of some blocks of 32, RCEIL of none: 16.6 % and 0 % in the sheet."""
    x = fs.array(np.random.default_rng(0).normal(size=(4000, 32)).astype(np.float32), "fp32")
    shares = {}
    for name in ("mx", "te_mx"):
        q = as_scaling(name).quantize(x, fs.E4M3, axis=1)
        shares[name] = np.mean(np.abs(x.values).max(axis=1) / q.scales.values[:, 0] > 448)
    assert shares["mx"] == pytest.approx(0.166, abs=0.02)
    assert shares["te_mx"] == 0


@pytest.mark.full
def test_nvfp4_forward():
    x, w = operands((20, 48), (48, 24))
    y = as_scaling("nvfp4").start().matmul(x, w, formats=(fs.E2M1, fs.E2M1), **FORWARD)
    a, b = fs.quantize_blocks(x, "nvfp4"), fs.quantize_blocks(w, "nvfp4", block=(16, 16))
    alpha = np.float32(np.abs(x.values).max()) * np.float32(np.abs(w.values).max())
    alpha = np.float32(alpha * np.float32(1 / (6 * 6 * 448 * 448)))
    values_a = a.elements.values * np.repeat(a.scales.values, 16, axis=1)
    values_b = b.elements.values * np.repeat(np.repeat(b.scales.values, 16, axis=0), 16, axis=1)[:, :24]
    exact = values_a @ values_b  # every product and sum of these numbers is exact in float64
    in_fp32 = as_scaling("nvfp4", accumulate="exact(fp32)").start().matmul(x, w, formats=(fs.E2M1,) * 2, **FORWARD)
    assert in_fp32.values.tolist() == (exact.astype(np.float32) * alpha).astype(np.float64).tolist()
    assert np.abs(y.values - in_fp32.values).max() < 1e-5 * np.abs(y.values).max()
    assert relative_error(y, x, w) < 0.2


@pytest.mark.full
def test_nvfp4_weight_gradient_is_transformed_and_stochastic():
    x, g = operands((30, 24), (24, 20))  # K = 24 is padded to 32
    x = fs.array(x.values.astype(np.float32) + 100 * (np.arange(24) == 3).astype(np.float32), "fp32")
    results = {}
    for transform in (True, False):
        scaler = as_scaling("nvfp4", transform=transform, stochastic=False).start()
        results[transform] = scaler.matmul(x, g, formats=(fs.E2M1,) * 2, **BACKWARD)
    assert results[True].shape == (30, 20)
    assert results[True].values.tolist() != results[False].values.tolist()
    a, b = (as_scaling("nvfp4").start(seed) for seed in (1, 1))
    draws = [s.matmul(x, g, formats=(fs.E2M1,) * 2, **BACKWARD).values for s in (a, b, a)]
    assert draws[0].tolist() == draws[1].tolist()  # a seed repeats the run
    assert draws[0].tolist() != draws[2].tolist()  # each step draws new numbers
    forward = [
        as_scaling("nvfp4").start(seed).matmul(x, g, formats=(fs.E2M1,) * 2, **FORWARD).values for seed in (1, 2)
    ]
    assert forward[0].tolist() == forward[1].tolist()  # only gradients are rounded stochastically


@pytest.mark.full
def test_stochastic_gradients_are_unbiased():
    g = fs.array(np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32), "fp32")
    scaler = as_scaling("nvfp4").start(3)
    mean = np.mean([scaler.quantize(g, role="gradient", axis=1).values for _ in range(400)], axis=0)
    once = scaler.quantize(g, role="input", axis=1).values
    inside = np.abs(g.values) < 0.99 * np.abs(g.values).max(axis=1, keepdims=True)  # the largest may saturate
    assert np.abs(mean - g.values)[inside].max() < 0.2
    assert np.linalg.norm((mean - g.values)[inside]) < 0.2 * np.linalg.norm((once - g.values)[inside])


# -- the Hadamard transform --------------------------------------------------------------------------------------------


def sylvester(n):
    h = np.ones((1, 1))
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return h


@pytest.mark.parametrize("block", [1, 2, 4, 16, 32])
@pytest.mark.full
def test_hadamard_of_exact_numbers(block):
    """Small integers are exact in FP64 for blocks of 4^k: the result is that of the matrix."""
    x = np.random.default_rng(block).integers(-8, 9, (3, 2 * block)).astype(np.float64)
    signs = np.where(np.arange(block) % 3 == 1, -1, 1)
    y = hadamard(x, block, signs=signs)
    expected = (x.reshape(-1, block) * signs) @ sylvester(block) / np.sqrt(block)
    assert np.allclose(y.values.reshape(-1, block), expected, rtol=1e-15, atol=1e-14)
    if block in (1, 4, 16):
        assert y.values.reshape(-1, block).tolist() == expected.tolist()
    assert np.allclose(hadamard(y, block, signs=signs, inverse=True).values, x, atol=1e-14)


def test_every_step_is_rounded():
    """FP16 against a loop: neighbours first, and one rounding for each sum, each difference and the factor."""
    x = np.random.default_rng(0).normal(size=16).astype(np.float16)
    expected = (x * np.float16(NVFP4_SIGNS)).astype(np.float16)
    half = 1
    while half < 16:
        for start in range(0, 16, 2 * half):
            for i in range(start, start + half):
                a, b = expected[i], expected[i + half]
                expected[i], expected[i + half] = np.float16(a + b), np.float16(a - b)
        half *= 2
    expected = expected * np.float16(0.25)
    assert hadamard(x, signs=NVFP4_SIGNS).values.tolist() == expected.astype(np.float64).tolist()


@pytest.mark.full
def test_hadamard_as_a_product():
    x = np.random.default_rng(1).normal(size=(4, 32)).astype(np.float32)
    y = hadamard(x, 16, format="bf16", accumulate="fp32")
    narrow = fs.array(x, "bf16").values.reshape(-1, 16)
    exact = narrow @ sylvester(16) / 4
    assert (y.shape, y.format) == ((4, 32), fs.BF16)
    assert np.abs(y.values.reshape(-1, 16) - exact).max() <= 2.0**-8 * np.abs(exact).max()
    assert y.codes.tolist() == fs.array(y.values, "bf16").codes.tolist()


def test_axis_and_exact_products():
    rng = np.random.default_rng(2)
    a, b = rng.integers(-3, 4, (5, 32)).astype(np.float64), rng.integers(-3, 4, (32, 6)).astype(np.float64)
    left, right = hadamard(a, 16, signs=NVFP4_SIGNS), hadamard(b, 16, signs=NVFP4_SIGNS, axis=0)
    assert right.values.tolist() == hadamard(b.T.copy(), 16, signs=NVFP4_SIGNS).values.T.tolist()
    assert (left.values @ right.values).tolist() == (a @ b).tolist()


@pytest.mark.parametrize(("arguments", "message"), [
    ((np.ones(12, np.float32), 12), "power of two"), ((np.ones(12, np.float32), 8), "no blocks of 8"),
    ((np.ones(8, np.float32), 8, [1, -1]), "signs must be 8"), ((np.ones(2, np.float32), 2, [1, 0]), "signs must be 2"),
    ((np.float32(1), 2), "no blocks"), ((np.ones(4, np.float32), 0), "block must be"),
])  # fmt: skip
def test_errors_of_hadamard(arguments, message):
    x, block, *signs = arguments
    with pytest.raises(ValueError, match=message):
        hadamard(x, block, signs=signs[0] if signs else None)


# -- names and errors --------------------------------------------------------------------------------------------------


def test_names():
    assert sorted(fs.training.SCALING_METHODS) == sorted(fs.training.SCALINGS)
    for name in fs.training.SCALING_METHODS:
        assert as_scaling(name) == fs.training.SCALING_METHODS[name]
        assert as_scaling(name.replace("_", "-")) == as_scaling(name)
    method = as_scaling("delayed")
    assert as_scaling(method) is method
    assert as_scaling(method, margin=1).margin == 1


@pytest.mark.parametrize("name", ["current", "delayed", "te_block", "deepseek", "deepgemm", "mx", "te_mx", "nvfp4"])
@pytest.mark.full
def test_zeros_and_other_layers(name):
    """Operands of zeros give zeros, whatever the method; a (K,) of no multiple of a block is allowed."""
    formats = (fs.E2M1, fs.E2M1) if name == "nvfp4" else E4M3
    scaler = as_scaling(name).start(0)
    zero, w = fs.array(np.zeros((2, 19), np.float32), "fp32"), operands((19, 3), (1, 1))[0]
    for keywords in (FORWARD, BACKWARD):
        assert (
            scaler.matmul(zero, w, formats=formats, module="m", step=0, **keywords).values.tolist() == [[0.0] * 3] * 2
        )
    scaler.finish_step()
    x = operands((2, 19), (1, 1), seed=7)[0]
    for keywords in (FORWARD, BACKWARD):
        scaler.matmul(x, w, formats=formats, module="m", step=1, **keywords)
        scaler.finish_step()
        y = scaler.matmul(x, w, formats=formats, module="m", step=2, **keywords)
        assert y.format == fs.FP32
        assert relative_error(y, x, w) < (0.45 if name == "nvfp4" else 0.1)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: as_scaling("delyed"), ValueError, "did you mean 'delayed'"),
    (lambda: as_scaling(3), TypeError, "start"),
    (lambda: as_scaling("delayed", history_length=0), ValueError, "history_length must be at least 1"),
    (lambda: as_scaling("delayed", algorithm="maxx"), ValueError, "did you mean 'max'"),
    (lambda: as_scaling("delayed", margin=float("nan")), ValueError, "margin"),
    (lambda: as_scaling("mx", rule="flor"), ValueError, "did you mean 'floor'"),
    (lambda: as_scaling("deepseek", order="seperate"), ValueError, "did you mean 'separate'"),
    (lambda: as_scaling("deepseek", scheme="deepsek"), ValueError, "did you mean 'deepseek'"),
    (lambda: current_scale(1.0, "e4m3", epsilon=-1.0), ValueError, "epsilon"),
    (lambda: current_scale(1.0, "e4m4"), ValueError, "unknown format"),
])  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_nvfp4_refuses_other_formats():
    x, w = operands((2, 16), (16, 2))
    with pytest.raises(ValueError, match="E2M1, not E4M3"):
        as_scaling("nvfp4").start().matmul(x, w, formats=E4M3, **FORWARD)


@pytest.mark.parametrize("name", ["current", "delayed", "deepseek", "mx", "nvfp4"])
def test_unknown_roles_and_products(name):
    x, w = operands((4, 16), (16, 4))
    formats = (fs.E2M1, fs.E2M1) if name == "nvfp4" else E4M3
    for options, message in (({"roles": ("input", "wieght")}, "roles="), ({"product": "foward"}, "mean 'forward'")):
        with pytest.raises(ValueError, match=message):
            as_scaling(name).start(0).matmul(x, w, formats=formats, **{**FORWARD, **options})


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: fs.training.current_scale(-1, "e4m3"), ValueError, "amax must be at least 0"),
    (lambda: fs.training.current_scale("1", "e4m3"), TypeError, "amax must be a number"),
    (lambda: fs.training.current_scale(1, "e8m0"), TypeError, "format: E8M0 is a scale format"),
    (lambda: fs.training.current_scale(1, "e4m3", input_format="x"), ValueError, "input_format: unknown format"),
])  # fmt: skip
def test_bad_amax_and_formats(call, error, message):
    with pytest.raises(error, match=message):
        call()
