"""Policies with a device: PyTorch models with the bits of an NVIDIA H200, and what is not known to have them."""

from __future__ import annotations

import hashlib
import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import floatsim as fs  # noqa: E402
import floatsim.torch as ft  # noqa: E402
from tests.torch_emulation import recorded_runs as runs  # noqa: E402

pytestmark = [pytest.mark.torch]
STEPS = runs.SAMPLE.with_name("optimizer-steps.zip")
needs_sample = pytest.mark.skipif(not runs.SAMPLE.exists(), reason="data/silicon/nvidia-h200 is only in a clone")
needs_recordings = pytest.mark.skipif(
    runs.FOLDER is None, reason="FLOATSIM_H200 names the folder of an H200's recordings"
)

# -- recordings --------------------------------------------------------------------------------------------------------


def assert_equal(found, recorded, least):
    """All codes that both have are equal, and they are at least so many.

    Under autocast, tensors of FP32 hold the numbers that have 16 bits on the GPU. Only the gradient of a result that
    the model converts by `.float()` is rounded later, by the operation that takes it.
    """
    shared = found.keys() & set(recorded.files)
    for key in sorted(shared):
        codes, expected = found[key], recorded[key]
        if codes.dtype == np.uint32 != expected.dtype:
            fmt = next(part for part in key.split("|") if part in ("bf16", "fp16"))
            given = fs.FloatArray(codes, fs.FP32)
            codes = fs.convert(given, fmt, nan="cuda").codes
            assert "bwd" in key or (fs.convert(fs.FloatArray(codes, fs.as_format(fmt)), "fp32") == given).all()
        np.testing.assert_array_equal(codes, expected, err_msg=key)
    assert sum(recorded[key].size for key in shared) >= least


@needs_sample
@pytest.mark.parametrize("key", runs.SAMPLED)
def test_two_steps_of_a_sample(key):
    with np.load(runs.SAMPLE) as recorded:
        name = key.split("|")[0]
        model = runs.network(name)
        state = {
            each: torch.from_numpy(recorded[f"init.{each}|{name}"].view(np.float32)) for each in model.state_dict()
        }
        model.load_state_dict(state)
        run, found = runs.trained(key, 2, model, strict=True)
        assert_equal(found, recorded, 5000)
    assert not run.unverified and not run.uncovered and run.step == 2


@needs_recordings
@pytest.mark.full
@pytest.mark.parametrize(("key", "steps"), {**runs.FORECAST, **runs.OTHERS}.items())
def test_whole_runs(key, steps):
    """The initial weights have the recorded hashes, every operation is known, and every recorded code is equal."""
    with np.load(Path(runs.FOLDER) / "training" / "train.npz") as recorded:
        name = key.split("|")[0]
        hashes = json.loads(str(recorded["meta"]))["init"]
        for each, x in runs.network(name).state_dict().items():
            assert hashlib.sha256(runs.codes(x).tobytes()).hexdigest() == hashes[f"{name}.{each}"]
        run, found = runs.trained(key, steps)
        assert not run.unverified and not run.uncovered
        own = {each for each in recorded.files if each.endswith(key)}
        assert own <= found.keys()
        assert_equal(found, recorded, 50_000)


@needs_recordings
@pytest.mark.full
@pytest.mark.parametrize("fmt", ["bf16", "fp16"])
def test_every_module_of_a_step(fmt):
    """An MLP with the gradient of its input: the outputs of all modules, and all gradients."""
    key = f"mlp|{fmt}|native"
    with np.load(Path(runs.FOLDER) / "kernels" / "model_steps.npz") as recorded:
        model = nn.Sequential(*runs.NETWORKS["mlp"][2]())
        model.load_state_dict({
            each: torch.from_numpy(recorded[f"state.{each}|mlp"].view(np.float32)) for each in model.state_dict()
        })  # fmt: skip
        model.to(runs.DTYPES[fmt])
        rng = np.random.default_rng(19)
        x, target = (torch.from_numpy(rng.standard_normal(n).astype(np.float32)) for n in ((32, 64), (32, 10)))
        x = x.to(runs.DTYPES[fmt]).requires_grad_()
        kept = {}
        runs.watched(model, kept)
        with ft.emulate("h200", model, count=0) as run:
            ((model(x).float() - target) ** 2).sum().backward()
        kept |= {"dx": x.grad} | {f"grad.{each}": p.grad for each, p in model.named_parameters()}
        found = {f"{each}|{key}": runs.codes(value) for each, value in kept.items()}
        assert {each for each in recorded.files if each.endswith(key)} <= found.keys()
        assert_equal(found, recorded, 37_000)
    assert not run.unverified


# -- known or unverified -----------------------------------------------------------------------------------------------


def normal(*shape, dtype=torch.bfloat16, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).to(dtype)


def noted(function):
    """The notes of a computation under "h200", which a strict run refuses."""
    with ft.emulate("h200", count=0) as run:
        function()
    if run.unverified:
        with ft.emulate("h200", strict=True), pytest.raises(NotImplementedError, match="strict=True"):
            function()
    return list(run.unverified)


def test_aligned_products_are_one_chain():
    a, b = normal(24, 1024), normal(1024, 40, seed=1)
    with ft.emulate("h200", strict=True):
        y = a @ b
    expected = fs.matmul(fs.array(a.float().numpy(), "bf16"), fs.array(b.float().numpy(), "bf16"),
                         accumulate="hopper", format="bf16")  # fmt: skip
    np.testing.assert_array_equal(runs.codes(y), expected.codes)


@pytest.mark.parametrize(("a", "b"), [
    ((24, 1032), (1032, 40)), ((1, 64), (64, 40)), ((24, 20), (20, 40)), ((24, 64), (64, 36)),
], ids=str)  # fmt: skip
def test_other_products_are_noted(a, b):
    (note,) = noted(lambda: normal(*a) @ normal(*b))
    assert note.operation == "mm" and note.shapes == (a, b)
    assert "not recorded" in note.why and str(note).startswith(f"mm ({a[0]}x{a[1]}, {b[0]}x{b[1]}): ")


def test_the_layout_decides():
    """The rows of a transposed operand start at multiples of 16 bytes only if its own rows have such a length."""
    assert not noted(lambda: normal(64, 24).t() @ normal(64, 40))
    assert noted(lambda: normal(64, 20).t() @ normal(64, 40))
    assert noted(lambda: normal(24, 72)[:, 1:65] @ normal(64, 40))
    assert not noted(lambda: normal(24, 72)[:, 8:72] @ normal(64, 40))


def test_recorded_shapes_are_known():
    """Layers whose kernels were recorded, with 7 columns and a batch of 33."""
    layer = nn.Linear(100, 7).bfloat16()
    assert not noted(lambda: layer(normal(33, 100)))
    assert noted(lambda: layer(normal(34, 100)))


@pytest.mark.parametrize(("function", "why"), [
    (torch.asinh, "the operation was not compared"),
    (lambda x: x.view(4, 4, 4).sum(1), "between others"),
    (lambda x: x.t().sum(0), "not contiguous"),
    (lambda x: x.double() * 2.5, "another dtype"),
    (lambda x: F.gelu(x.float()), "gelu: its operations in FP32 are not known"),
    (lambda x: x**3, "power: 3 was not recorded"),
    (lambda x: torch.softmax(x, 0), "another axis"),
    (lambda x: F.rms_norm(x, (8,)), "takes it apart"),
    (lambda x: F.huber_loss(x, x + 1), "the operation was not compared"),
    (lambda x: torch.sum(x, -1, dtype=torch.float32), "converted first"),
], ids=range(10))  # fmt: skip
def test_operations_that_were_not_compared(function, why):
    x = normal(8, 8)
    notes = noted(lambda: function(x))
    assert any(why in note.why for note in notes), notes


def test_known_operations():
    """Each has a row of the device: nothing is noted."""
    x, y = normal(8, 16), normal(8, 16, seed=1)
    assert not noted(lambda: [
        x + y, x * y, x - y, x / y, x / 3, -x, x.abs(), F.relu(x), torch.exp(x), torch.tanh(x), F.gelu(x), F.silu(x),
        x.sum(), x.sum(0), x.mean(-1), torch.softmax(x, -1), F.log_softmax(x, -1), F.layer_norm(x, (16,)),
        x**2, x.float(),
    ])  # fmt: skip


@pytest.mark.parametrize("function", [
    lambda x, w: F.layer_norm(x, (16,), w), lambda x, w: F.log_softmax(x * w, -1),
    lambda x, w: torch.softmax(x * w, -1), lambda x, w: torch.tanh(x * w), lambda x, w: F.silu(x * w),
], ids=range(5))  # fmt: skip
def test_known_gradients(function):
    """Nothing is noted, and the gradients are near those of PyTorch in FP32."""
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        x, w = (normal(*shape, seed=n).to(dtype).requires_grad_() for n, shape in enumerate([(8, 16), (16,)]))
        if dtype == torch.float32:
            function(x, w).backward(normal(8, 16, seed=2).float())
        else:
            with ft.emulate("h200", count=0, strict=True) as run:
                function(x, w).backward(normal(8, 16, seed=2))
            assert not run.unverified
        found.append([x.grad.float().numpy(), w.grad.float().numpy()])
    for emulated, exact in zip(*found, strict=True):
        np.testing.assert_allclose(emulated, exact, atol=0.05, rtol=0.05)


# -- other rules -------------------------------------------------------------------------------------------------------


def test_fp32_beside_16_bits_stays_fp32():
    """The loss of a 16-bit model is computed in FP32."""
    x = normal(4, 8)
    with ft.emulate("h200", strict=True):
        y = x.float() - torch.full((4, 8), 1 / 3)
        loss = F.mse_loss(x.float(), torch.zeros(4, 8))
    np.testing.assert_array_equal(y.numpy(), x.float().numpy() - np.float32(1 / 3))
    assert loss.dtype == torch.float32 and loss.item() != loss.bfloat16().item()


def test_numbers_are_in_fp32():
    """PyTorch on a GPU keeps a Python number in FP32 beside 16-bit tensors, and rounds a tensor without dimensions."""
    x = torch.tensor([-0.09912109375, 3.0], dtype=torch.bfloat16)
    wide, tenth = x.float().numpy(), np.float32(0.1)
    with ft.emulate("h200", strict=True):
        found = [x + 0.1, x - 0.1, 0.1 - x, x * 0.1, x + torch.tensor(0.1), x * torch.tensor(0.1)]
    rounded = np.float32(0.10009765625)
    expected = [wide + tenth, wide - tenth, tenth - wide, wide * tenth, wide + rounded, wide * rounded]
    for y, numbers in zip(found, expected, strict=True):
        np.testing.assert_array_equal(runs.codes(y), fs.array(numbers, "bf16").codes)


def test_nan_has_the_code_of_a_gpu():
    x = torch.tensor([np.inf, -np.inf], dtype=torch.float16)
    with ft.emulate("h200"):
        made = [x - x, (-x.float() * 0).half(), torch.exp(x.float()) * 0]
    assert [runs.codes(each).tolist() for each in made] == [[0x7FFF] * 2, [0x7FFF] * 2, [0x7FFFFFFF, 0]]
    signed = torch.tensor([-np.nan], dtype=torch.float32)
    with ft.emulate("h200"):
        assert runs.codes(signed.bfloat16()).tolist() == [0x7FFF]
        stored = torch.zeros(1, dtype=torch.float16)
        stored.copy_(signed)
        assert runs.codes(stored).tolist() == [0x7FFF]


OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {"lr": 1e-3}), "adamw": (torch.optim.AdamW, {"lr": 1e-3}),
}  # fmt: skip
WAYS = {"cuda": {"foreach": False}, "cuda-foreach": {}, "cuda-fused": {"fused": True}}


@pytest.mark.skipif(not STEPS.exists(), reason="data/silicon/nvidia-h200 is only in a clone")
@pytest.mark.parametrize("fmt", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name, way, fmt):
    """Five steps of PyTorch's own optimizers. By default they run on lists of tensors, as on a GPU."""
    kind, options = OPTIMIZERS[name]
    integer, dtype = {"fp32": (np.int32, torch.float32), "bf16": (np.int16, torch.bfloat16),
                      "fp16": (np.int16, torch.float16)}[fmt]  # fmt: skip
    with np.load(STEPS) as recorded:
        weights, gradients = (torch.from_numpy(recorded[f"{key}|{fmt}"].view(integer).copy()).view(dtype)
                              for key in ("weights", "gradients"))  # fmt: skip
        expected = recorded[f"{name}|{way}|{fmt}|weights"]
    weight = nn.Parameter(weights)
    optimizer = kind([weight], **options, **WAYS[way])
    with ft.emulate("h200", count=0, strict=True):
        for gradient, codes in zip(gradients, expected, strict=True):
            weight.grad = gradient.clone()
            optimizer.step()
            np.testing.assert_array_equal(runs.codes(weight), codes)


def test_optimizers_run_on_lists_only_inside():
    """PyTorch's own default on a CPU is a loop over the tensors."""
    weight = [nn.Parameter(torch.ones(1))]
    with ft.emulate("h200"):
        assert import_module("torch.optim.optimizer")._default_to_fused_or_foreach(weight, False) == (False, True)
    assert import_module("torch.optim.optimizer")._default_to_fused_or_foreach(weight, False) == (False, False)


def test_the_device_of_a_policy():
    policy = fs.training.as_policy("h200")
    assert policy.device == "h200" and ft.Policy(device="NVIDIA H200").device == "h200"
    with pytest.raises(ValueError, match="device='h100' is not described; described: h200"):
        ft.Policy(device="h100")
    with pytest.raises(ValueError, match=r"policy 'h200' computes as the kernels of a GPU.*ft\.emulate"):
        fs.training.Trainer(policy)
