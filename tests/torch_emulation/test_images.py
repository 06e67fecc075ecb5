"""Layers of torch.nn for images, sequences and volumes: covered, near PyTorch, and with scaled products."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")

from torch import nn  # noqa: E402

import floatsim as fs  # noqa: E402
import floatsim.torch as ft  # noqa: E402
from floatsim.training.scaling.methods import as_scaling  # noqa: E402
from tests.torch_emulation.by_hand import assert_equal, tensor  # noqa: E402
from tests.torch_emulation.test_table import Hand  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.full]

LINES = {
    "conv1d": lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2),
    "conv1d same": lambda: nn.Conv1d(4, 6, 3, padding="same"),
    "conv_transpose1d": lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
    "max_pool1d": lambda: nn.MaxPool1d(3, 2, 1), "avg_pool1d": lambda: nn.AvgPool1d(3, 2, 1, ceil_mode=True),
    "adaptive_avg_pool1d": lambda: nn.AdaptiveAvgPool1d(4), "adaptive_max_pool1d": lambda: nn.AdaptiveMaxPool1d(4),
    "upsample1d": lambda: nn.Upsample(scale_factor=3, mode="linear"), "lp_pool1d": lambda: nn.LPPool1d(2, 3),
}  # fmt: skip
IMAGES = {
    "conv2d": lambda: nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(2, 1), dilation=(2, 1), groups=2),
    "depthwise": lambda: nn.Conv2d(4, 8, 3, padding=1, groups=4),
    "conv2d reflect": lambda: nn.Conv2d(4, 2, 3, padding=1, padding_mode="reflect"),
    "conv2d circular": lambda: nn.Conv2d(4, 2, 3, padding=1, padding_mode="circular"),
    "conv2d replicate": lambda: nn.Conv2d(4, 2, 3, padding=1, padding_mode="replicate"),
    "conv_transpose2d": lambda: nn.ConvTranspose2d(4, 6, 3, 2, padding=1, output_padding=1, groups=2, dilation=2),
    "max_pool2d": lambda: nn.MaxPool2d((3, 2), (1, 2), (1, 0), ceil_mode=True),
    "max_pool2d dilated": lambda: nn.MaxPool2d(2, 1, dilation=2),
    "avg_pool2d": lambda: nn.AvgPool2d(3, 2, 1), "avg_pool2d ceil": lambda: nn.AvgPool2d((2, 3), 2, 1, ceil_mode=True),
    "avg_pool2d divisor": lambda: nn.AvgPool2d(2, divisor_override=3),
    "avg_pool2d without padding": lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    "adaptive_avg_pool2d": lambda: nn.AdaptiveAvgPool2d((4, 3)),
    "adaptive_max_pool2d": lambda: nn.AdaptiveMaxPool2d((4, None)),
    "lp_pool2d": lambda: nn.LPPool2d(2, 2), "instance_norm": lambda: nn.InstanceNorm2d(4, affine=True),
    "local response": lambda: nn.LocalResponseNorm(2), "unfold": lambda: nn.Unfold(2),
    "upsample": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    "upsample aligned": lambda: nn.Upsample((9, 4), mode="bilinear", align_corners=True),
    "upsample nearest": lambda: nn.Upsample(scale_factor=2),
    "pixel shuffle": lambda: nn.PixelShuffle(2), "zero pad": lambda: nn.ZeroPad2d(1),
    "channels last": lambda: nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last),
}  # fmt: skip
VOLUMES = {
    "conv3d": lambda: nn.Conv3d(4, 6, (2, 3, 1), stride=(1, 2, 1), padding=(1, 1, 0), dilation=(2, 1, 1), groups=2),
    "conv_transpose3d": lambda: nn.ConvTranspose3d(4, 2, 2, stride=2, padding=1, output_padding=1),
    "max_pool3d": lambda: nn.MaxPool3d((1, 2, 3), (1, 2, 2), (0, 0, 1)), "avg_pool3d": lambda: nn.AvgPool3d(2, 1, 1),
    "adaptive_avg_pool3d": lambda: nn.AdaptiveAvgPool3d((2, 3, 4)),
    "adaptive_max_pool3d": lambda: nn.AdaptiveMaxPool3d((2, 3, 4)),
    "upsample3d": lambda: nn.Upsample(scale_factor=2, mode="trilinear"),
    "batch_norm3d": lambda: nn.BatchNorm3d(4),
}  # fmt: skip
SHAPES = ((LINES, (2, 4, 7)), (IMAGES, (2, 4, 6, 5)), (VOLUMES, (2, 4, 3, 5, 4)))
LAYERS = [(name, make, shape) for layers, shape in SHAPES for name, make in layers.items()]


def gradients(layer, x):
    """The result and all gradients."""
    x = x.clone().requires_grad_()
    y = layer(x)
    y.backward(tensor(*y.shape, seed=7))
    return [y, x.grad, *(p.grad for p in layer.parameters())]


@pytest.mark.parametrize(("name", "make", "shape"), LAYERS, ids=[each[0] for each in LAYERS])
def test_layers_are_covered_and_near_torch(name, make, shape):
    torch.manual_seed(0)
    layer, x = make(), tensor(*shape)
    wanted = gradients(layer, x)
    for parameter in layer.parameters():
        parameter.grad = None
    with ft.emulate("native", layer, strict=True) as run:
        found = gradients(layer, x)
        with torch.inference_mode():
            layer(x)
    assert not run.uncovered
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 7), (4, 6, 5), (4, 3, 5, 4)], ids=str)
def test_pools_take_a_sample_without_a_batch(shape):
    axes = len(shape) - 1
    layers = (getattr(nn, f"{kind}Pool{axes}d")(2) for kind in ("Max", "Avg", "AdaptiveAvg", "AdaptiveMax"))
    for layer in layers:
        wanted = gradients(layer, tensor(*shape))
        with ft.emulate("native", strict=True):
            found = gradients(layer, tensor(*shape))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)


def rows_of(windows, order):
    return np.transpose(windows, order).reshape(np.prod([windows.shape[n] for n in order[:3]]), -1)


@pytest.mark.parametrize("scaling", ["current", "mx"])
def test_scaled_convolutions_multiply_windows_and_filters(scaling):
    """The scaled matrices are the windows, and the filters, of a convolution."""
    torch.manual_seed(0)
    layer, x = nn.Conv2d(8, 32, 2), tensor(2, 8, 5, 9) * 1e-4
    record = ft.Gemm("e4m3", backward="e5m2", accumulate="fp32", scaling=scaling, result="fp32")
    policy = ft.Policy("fp32", rules={"conv2d": record}, weights="fp32")
    with ft.emulate(policy, layer, strict=True):
        y, by_x, by_weight, by_bias = gradients(layer, x)
    scaler = as_scaling(scaling).start(0)

    def multiply(a, b, roles, product):
        formats = tuple({"input": "e4m3", "weight": "e4m3", "gradient": "e5m2"}[role] for role in roles)
        formats = tuple(map(fs.as_format, formats))
        return scaler.matmul(a, b, formats=formats, roles=roles, product=product, accumulate="fp32")

    images, w = fs.array(x.numpy()), fs.array(layer.weight.detach().numpy())
    view = np.lib.stride_tricks.sliding_window_view(images.codes, (2, 2), (2, 3))
    windows = fs.from_codes(rows_of(view, (0, 2, 3, 1, 4, 5)), "fp32")
    product = multiply(windows, w.reshape(32, -1).T, ("input", "weight"), "forward")
    bias = fs.array(layer.bias.detach().numpy())
    assert_equal(y, np.moveaxis(fs.add(product, bias).reshape(2, 4, 8, 32), -1, 1))
    gradient = tensor(*y.shape, seed=7)
    flat = fs.array(np.moveaxis(gradient.numpy(), 1, -1).reshape(-1, 32))
    found = multiply(flat.T, windows, ("gradient", "input"), "weight_gradient")
    assert_equal(by_weight, found.reshape(*w.shape))
    assert_equal(by_bias, fs.sum(flat, 0, accumulate="fp32"))
    padded = np.pad(gradient.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)))
    view = np.lib.stride_tricks.sliding_window_view(padded, (2, 2), (2, 3))
    turned = np.moveaxis(w.codes[..., ::-1, ::-1], 1, -1).reshape(-1, 8)
    terms = fs.array(rows_of(view, (0, 2, 3, 1, 4, 5)))
    found = multiply(terms, fs.from_codes(turned, "fp32"), ("gradient", "weight"), "input_gradient")
    assert_equal(by_x, np.moveaxis(found.reshape(2, 5, 9, 8), -1, 1))


def test_the_gradient_of_a_bias_beside_scaled_products_is_not_rounded():
    layer = nn.Linear(4, 3)
    record = ft.Gemm("e4m3", backward="e5m2", accumulate="fp32", scaling="current", result="fp32")
    with ft.emulate(ft.Policy("fp32", rules={"mm|addmm": record}), layer, strict=True):
        layer(tensor(5, 4)).backward(tensor(5, 3, seed=7) * 1e-9)
    wanted = fs.sum(fs.array((tensor(5, 3, seed=7) * 1e-9).numpy()), 0, accumulate="fp32")
    assert_equal(layer.bias.grad, wanted)


@pytest.mark.parametrize("causal", [False, True])
def test_scaled_attention(causal):
    """Tiny operands: without their scales, E4M3 would flush all of them to zero."""
    q, k, v = (tensor(1, 2, 4, 8, seed=i) * 1e-4 for i in range(3))
    q, k = q * 1e4, k * 1e4
    record = ft.Gemm("e4m3", backward="e5m2", accumulate="fp32", scaling="current", result="fp32")
    plain = [t.clone().requires_grad_() for t in (q, k, v)]
    wanted = nn.functional.scaled_dot_product_attention(*plain, is_causal=causal)
    wanted.backward(tensor(1, 2, 4, 8, seed=7))
    operands = [t.clone().requires_grad_() for t in (q, k, v)]
    with ft.emulate(ft.Policy("fp32", rules={"sdpa": record}), strict=True) as run:
        y = nn.functional.scaled_dot_product_attention(*operands, is_causal=causal)
        y.backward(tensor(1, 2, 4, 8, seed=7))
    assert run.operations["_scaled_dot_product_flash_attention_for_cpu_backward"] == 1
    pairs = [(y, wanted), *((t.grad, p.grad) for t, p in zip(operands, plain, strict=True))]
    for found, near in pairs:
        assert 0 < (found - near).norm() < 0.2 * near.norm()

    scaler = as_scaling("current").start(0)
    for n in range(2):  # the heads, by hand
        a, b, c = (fs.array(t[0, n].numpy()) for t in (q, k, v))
        formats = (fs.E4M3, fs.E4M3)
        words = {"formats": formats, "roles": ("input", "input"), "product": "forward", "accumulate": "fp32"}
        scores = fs.multiply(scaler.matmul(a, b.T, **words), fs.array(8**-0.5, "fp32"))
        if causal:
            scores = fs.array(np.where(np.tri(4, dtype=bool), scores.values, -np.inf), "fp32")
        shares = fs.operators.softmax(scores, recipe="fp32-inside", formats={"input": "fp32", "output": "fp32"})
        assert_equal(y[0, n], scaler.matmul(shares, c, **words))


def test_an_lstm_with_scaled_products_is_listed_as_uncovered():
    layer = nn.LSTM(4, 3)
    record = ft.Gemm("e4m3", accumulate="fp32", scaling="current", result="fp32")
    with ft.emulate(ft.Policy("fp32", rules={"lstm": record}), layer) as run:
        layer(tensor(2, 1, 4))
    assert list(run.uncovered) == ["aten.mkldnn_rnn_layer.default"]


def lines_between(length, count, align, scale):
    """For each result of a linear interpolation: the two elements beside it and its place between them, in FP32."""
    single, found = np.float32, []
    step = single((length - 1) / (count - 1) if align else 1 / scale if scale else length / count)
    for i in range(count):
        place = single(i) * step if align else max((single(i) + single(0.5)) * step - single(0.5), single(0))
        left = min(int(place), length - 1)
        found.append((left, min(left + 1, length - 1), min(place - single(left), single(1))))
    return found


def interpolated(hand, x, lines):
    """Along the last axis first: left * weight + right * weight, each step rounded."""
    for axis in reversed(range(2, x.ndim)):
        terms = []
        for side in 0, 1:
            places = [line[side] for line in lines[axis - 2]]
            shares = [np.float32(1) - line[2] if side == 0 else line[2] for line in lines[axis - 2]]
            weights = np.array(shares).reshape([-1 if n == axis else 1 for n in range(x.ndim)])
            values = fs.from_codes(np.take(x.codes, places, axis), hand.fmt)
            terms.append(hand.do("multiply", values, hand(torch.from_numpy(weights))))
        x = hand.do("add", *terms)
    return x


def interpolated_backward(hand, gradient, lines, shape):
    """Gradient times weight, added to each neighbour: results in C order, neighbours in the order of their places."""
    y = np.zeros((*shape[:2], np.prod(shape[2:])))
    total = fs.array(y, hand.fmt)
    for at in np.ndindex(*gradient.shape[2:]):
        for sides in itertools.product((0, 1), repeat=len(at)):
            weight, place = np.float32(1), []
            for i, side, between in zip(at, sides, lines, strict=True):
                place.append(between[i][side])
                share = np.float32(1) - between[i][2] if side == 0 else between[i][2]
                weight = share if len(place) == 1 else weight * share
            to = int(np.ravel_multi_index(place, shape[2:]))
            term = hand.do("multiply", gradient[(..., *at)], hand(torch.tensor(weight)))
            total.codes[..., to] = hand.do("add", total[..., to], term).codes
    return total.reshape(*shape)


LINEAR = [("linear", (2, 2, 5)), ("bilinear", (1, 2, 3, 4)), ("trilinear", (1, 2, 3, 2, 3))]


@pytest.mark.parametrize("fmt", ["bf16", "fp16", "e5m2"])
@pytest.mark.parametrize("how", [{"scale_factor": 2.5}, {"size": 7}, {"size": 4, "align_corners": True}], ids=str)
@pytest.mark.parametrize(("mode", "shape"), LINEAR, ids=[mode for mode, _ in LINEAR])
def test_linear_interpolation_bit_for_bit(mode, shape, how, fmt):
    layer, x, hand = nn.Upsample(mode=mode, **how), tensor(*shape), Hand(fmt)
    with ft.emulate(ft.Policy(fmt), strict=True):
        y, by_x = gradients(layer, x)
    align, scale = how.get("align_corners", False), how.get("scale_factor")
    lines = [lines_between(*sizes, align, scale) for sizes in zip(shape[2:], y.shape[2:], strict=True)]
    assert_equal(y, interpolated(hand, hand(x), lines))
    assert_equal(by_x, interpolated_backward(hand, hand(tensor(*y.shape, seed=7)), lines, shape))


def test_positions_of_long_lines_are_not_rounded():
    """BF16 has no odd numbers above 256: the neighbours would be wrong."""
    x = torch.arange(300, dtype=torch.float32).remainder(2).view(1, 1, 300)
    with ft.emulate(ft.Policy("bf16"), strict=True):
        found = nn.functional.interpolate(x, scale_factor=2, mode="linear")
    assert torch.equal(found, nn.functional.interpolate(x, scale_factor=2, mode="linear"))


def test_positions_of_bicubic_interpolation_and_grids_are_not_rounded():
    x = torch.arange(300.0).remainder(4).expand(1, 1, 40, 300).contiguous()
    grid = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 290), torch.linspace(-1, 1, 9), indexing="xy"), -1)[None]
    for call in (
        lambda: nn.functional.interpolate(x, size=(40, 512), mode="bicubic"),
        lambda: nn.functional.grid_sample(x, grid, align_corners=False),
    ):
        with ft.emulate(ft.Policy("bf16")) as run:
            found = call()
        torch.testing.assert_close(found, call().bfloat16().float(), rtol=0, atol=0)
        assert run.uncovered


@pytest.mark.parametrize("count", [0, 1])
def test_layers_of_an_empty_batch(count):
    x, w = tensor(count, 4, 5, 5), tensor(2, 4, 3, 3)
    with ft.emulate(ft.Policy("bf16", accumulate="fp32"), strict=True):
        assert nn.functional.conv2d(x, w).shape == (count, 2, 3, 3)
        assert nn.functional.avg_pool2d(x, 2).shape == (count, 4, 2, 2)
        assert nn.functional.group_norm(x, 2).shape == x.shape
