"""Policies with a device: PyTorch models with the bits of an NVIDIA H200, and what is not known to have them."""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

import floatsim as fs  # noqa: E402
import floatsim.torch as ft  # noqa: E402
from tests import marks  # noqa: E402
from tests.torch_emulation import recorded_runs as runs  # noqa: E402

pytestmark = [pytest.mark.torch]
STEPS = runs.SAMPLE.with_name("optimizer-steps.zip")
needs_sample = marks.needs_sample(runs.SAMPLE)
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


OF_ATTENTION = ("dx", "grad.self_attn.in_proj_weight", "grad.self_attn.in_proj_bias")
"""The gradients behind that of attention, which is noted: its head size of 16 was not compared."""


@needs_recordings
@pytest.mark.full
@pytest.mark.parametrize("how", ["native", "autocast"])
@pytest.mark.parametrize("fmt", ["bf16", "fp16"])
@pytest.mark.parametrize("name", ["mlp", "encoder"])
def test_every_module_of_a_step(name, fmt, how):
    """An MLP and a layer of an encoder: the outputs of all modules, and all gradients, that of the input too."""
    key = f"{name}|{fmt}|{how}"
    with np.load(Path(runs.FOLDER) / "kernels" / "model_steps.npz") as recorded:
        shape, outputs = ((32, 64), 10) if name == "mlp" else ((2, 32, 64), 64)
        model = (
            nn.Sequential(*runs.NETWORKS["mlp"][2]())
            if name == "mlp"
            else nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        )
        model.load_state_dict({
            each: torch.from_numpy(recorded[f"state.{each}|{name}"].view(np.float32)) for each in model.state_dict()
        })  # fmt: skip
        rng = np.random.default_rng(19)
        x, target = (
            torch.from_numpy(rng.standard_normal(n).astype(np.float32)) for n in (shape, (*shape[:-1], outputs))
        )
        if how == "native":
            model, x = model.to(runs.DTYPES[fmt]), x.to(runs.DTYPES[fmt])
        x.requires_grad_()
        kept = {}
        runs.watched(model, kept)
        with ft.emulate("h200" if how == "native" else f"h200-autocast-{fmt}", model, count=0) as run:
            ((model(x).float() - target) ** 2).sum().backward()
        kept |= {"dx": x.grad} | {f"grad.{each}": p.grad for each, p in model.named_parameters()}
        found = {f"{each}|{key}": runs.codes(value) for each, value in kept.items()}
        assert {each for each in recorded.files if each.endswith(key)} <= found.keys()
        noted = [note.operation for note in run.unverified]
        assert noted == ["_scaled_dot_product_flash_attention_for_cpu_backward"] * (name == "encoder")
        for each in OF_ATTENTION if name == "encoder" else ():
            codes, expected = found.pop(f"{each}|{key}"), recorded[f"{each}|{key}"]
            if codes.dtype == expected.dtype:
                assert np.mean(codes == expected) > 0.98, each
        assert_equal(found, recorded, 37_000)


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
    (lambda x: torch.log(x.float()), "coefficients"),
    (lambda x: x**3, "power: 3 was not recorded"),
    (lambda x: torch.softmax(x, 0), "another axis"),
    (lambda x: F.scaled_dot_product_attention(x, x, x), "math: cuBLAS's kernels for this shape"),
    (lambda x: F.huber_loss(x, x + 1), "the operation was not compared"),
    (lambda x: torch.sum(x, -1, dtype=torch.float32), "converted first"),
], ids=range(11))  # fmt: skip
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
        F.rms_norm(x, (16,)), x**2, x.float(),
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


# -- attention, norms and batched products -----------------------------------------------------------------------------


def leaves(*shape, count, dtype=torch.bfloat16):
    return [normal(*shape, dtype=dtype, seed=n).requires_grad_() for n in range(count)]


def array_of(x):
    return fs.FloatArray(runs.codes(x), fs.as_format({torch.bfloat16: "bf16", torch.float16: "fp16"}[x.dtype]))


@pytest.mark.parametrize(("backends", "recipe"), [
    (None, "cudnn-attention"), ([SDPBackend.FLASH_ATTENTION], "flash-attention-2"), ([SDPBackend.MATH], "math"),
    ([SDPBackend.CUDNN_ATTENTION], "cudnn-attention"),
    ([SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION], "flash-attention-2"),
], ids=str)  # fmt: skip
def test_attention_is_that_of_the_chosen_implementation(backends, recipe):
    """The backward pass belongs to the implementation of the forward pass, also where another one is enabled then."""
    q, k, v = leaves(1, 2, 64, 64, count=3)
    gradient = normal(1, 2, 64, 64, seed=3)
    chosen = sdpa_kernel(backends, set_priority=len(backends) > 1) if backends else nullcontext()
    with ft.emulate("h200", strict=True, count=0) as run:
        with chosen:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=recipe != "math")
        y.backward(gradient)
    arrays = list(map(array_of, (q, k, v)))
    expected = fs.operators.attention(*arrays, causal=recipe != "math", recipe=recipe)
    np.testing.assert_array_equal(runs.codes(y), expected.codes)
    gradients = fs.operators.attention_backward(
        array_of(gradient), *arrays, causal=recipe != "math", recipe=recipe
    )  # fmt: skip
    for x, each in zip((q, k, v), gradients, strict=True):
        np.testing.assert_array_equal(runs.codes(x.grad), each.codes)
    assert not run.unverified


@pytest.mark.parametrize(("arguments", "why"), [
    ({"shape": (1, 2, 16, 32)}, "cudnn: recorded with a head size of 16"),
    ({"shape": (1, 2, 64, 192)}, "flash: recorded with a head size of 64"),
    ({"mask": torch.ones(16, 16).tril().bool()}, "cudnn: a mask"),
    ({"mask": torch.zeros(16, 16, dtype=torch.bfloat16)}, "cudnn: a mask"),
    ({"mask": torch.zeros(16, 16, dtype=torch.bfloat16).requires_grad_()}, "a mask that requires a gradient"),
    ({"dtype": torch.float32}, "efficient: operands in FP32"), ({"keys": 24}, "keys or values of another shape"),
    ({"scale": 0.3}, "cudnn: scale=0.3"),
    ({"dropout_p": 0.5}, "dropout_p=0.5"), ({"shape": (2, 16, 64)}, "math: cuBLAS's kernels"),
    ({"heads": 1, "enable_gqa": True}, "keys or values of another shape"),
], ids=range(11))  # fmt: skip
def test_attention_that_was_not_compared(arguments, why):
    """It is noted, and near PyTorch's own."""
    shape, dtype = arguments.get("shape", (1, 2, 16, 64)), arguments.get("dtype", torch.bfloat16)
    others = (*shape[:-3], arguments.get("heads", shape[-3]), arguments.get("keys", shape[-2]), shape[-1])
    q, k, v = (normal(*s, dtype=dtype, seed=n).requires_grad_() for n, s in enumerate((shape, others, others)))
    words = {key: each for key, each in arguments.items() if key in ("dropout_p", "enable_gqa", "scale")}
    mask = arguments.get("mask")

    def attend(*operands):
        return F.scaled_dot_product_attention(*operands, attn_mask=mask, is_causal="keys" in arguments, **words)

    with ft.emulate("h200", count=0) as run:
        y = attend(q, k, v)
        y.float().sum().backward()
    notes = [note.why for note in run.unverified]
    assert any(why in note for note in notes), notes
    if "dropout_p" not in words:
        exact = (
            attend(*(x.detach().float() for x in (q, k, v))) if mask is None else attend(*map(torch.detach, (q, k, v)))
        )
        np.testing.assert_allclose(y.detach().float().numpy(), exact.detach().float().numpy(), atol=0.05)
    assert all(torch.isfinite(x.grad).all() for x in (q, k, v))


def test_attention_without_an_implementation():
    x = normal(1, 2, 16, 64, dtype=torch.float32)
    with ft.emulate("h200"), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        with pytest.raises(
            RuntimeError, match=r"no enabled implementation of the GPU takes queries.*in FP32.*enabled: "
        ):
            F.scaled_dot_product_attention(x, x, x)
        with pytest.raises(RuntimeError, match="give attn_mask or is_causal=True, not both"):
            F.scaled_dot_product_attention(x, x, x, attn_mask=torch.ones(16, 16), is_causal=True)


@pytest.mark.parametrize("policy", ["native", "h200"])
def test_the_causal_mask_begins_at_the_first_key(policy):
    q, k = normal(1, 1, 2, 8), normal(1, 1, 5, 8, seed=1)
    with ft.emulate(policy):
        y = F.scaled_dot_product_attention(q, k, k, is_causal=True)
    np.testing.assert_array_equal(runs.codes(y)[0, 0, 0], runs.codes(k)[0, 0, 0])


def test_rms_norm_is_one_operation():
    """As PyTorch has it on a GPU; the parts that it has on a CPU round more often."""
    norm, gradient = nn.RMSNorm(64).bfloat16(), normal(8, 64, seed=1)
    nn.init.normal_(norm.weight)
    x = normal(8, 64).requires_grad_()
    with ft.emulate("h200", norm, count=0, strict=True) as run:
        y = norm(x)
        y.backward(gradient)
    rows, weight = array_of(x), array_of(norm.weight)
    expected = fs.operators.rms_norm(rows, weight, eps=2.0**-23, recipe="pytorch-cuda")
    gradients = fs.operators.rms_norm_backward(array_of(gradient), rows, weight, eps=2.0**-23, recipe="pytorch-cuda")
    for found, each in ((y, expected), (x.grad, gradients.x), (norm.weight.grad, gradients.weight)):
        np.testing.assert_array_equal(runs.codes(found), each.codes)
    assert not run.unverified and set(run.operations) >= {"_fused_rms_norm", "_fused_rms_norm_backward"}
    assert torch.equal(F.rms_norm(x, (64,)), torch.rms_norm(x, (64,)))


def test_batched_products():
    """Aligned ones are one chain; PyTorch copies a batch whose matrices have neither contiguous rows nor columns."""
    a, b = normal(6, 24, 64), normal(6, 64, 40, seed=1)
    strided = normal(6, 64, 80, seed=2)[:, :, ::2]
    with ft.emulate("h200", strict=True, count=0):
        found = [torch.bmm(a, b), a @ strided, a @ normal(6, 40, 64, seed=3).transpose(1, 2)]
    for y, right in zip(found, (b, strided, normal(6, 40, 64, seed=3).transpose(1, 2)), strict=True):
        expected = fs.matmul(array_of(a), array_of(right), accumulate="hopper", format="bf16")
        np.testing.assert_array_equal(runs.codes(y), expected.codes)
    assert noted(lambda: torch.bmm(normal(6, 24, 20), normal(6, 20, 40)))
    assert noted(lambda: torch.bmm(normal(2, 24, 16).float(), normal(2, 16, 40).float()))


def test_the_parts_of_a_linear_layer_under_autocast():
    """The input is not contiguous: a product, then the bias, both in 16 bits."""
    layer, x = nn.Linear(16, 8), normal(4, 2, 16, dtype=torch.float32).transpose(0, 1)
    with ft.emulate("h200-autocast-bf16", layer, strict=True, count=0):
        y = layer(x)
    rows, weight, bias = (
        fs.array(t.detach().numpy(), "bf16") for t in (x.reshape(-1, 16), layer.weight.t(), layer.bias)
    )
    expected = fs.add(fs.matmul(rows, weight, accumulate="hopper", format="bf16"), bias, format="bf16")
    np.testing.assert_array_equal(y.detach().numpy().reshape(-1, 8), expected.values)


def test_dropout_draws_other_numbers():
    (note,) = noted(lambda: F.dropout(normal(8, 8), 0.5))
    assert note.operation == "bernoulli_" and "those of the CPU" in note.why
    assert not noted(lambda: F.dropout(normal(8, 8), 0.5, training=False))


class Decoder(nn.Module):
    """A small GPT: embeddings, one block, and a head that is the table of the embedding."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(32, 64), nn.Embedding(16, 64)
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(3))
        self.qkv, self.out, self.up, self.down = (nn.Linear(*n) for n in ((64, 192), (64, 64), (64, 128), (128, 64)))
        self.head = nn.Linear(64, 32, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        x = self.tokens(x) + self.places.weight[: x.shape[1]]
        heads = self.qkv(self.norms[0](x)).view(*x.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        x = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return self.head(self.norms[2](x))


@pytest.mark.parametrize("draw", [
    lambda x: torch.multinomial(x.float().softmax(-1), 1), lambda x: torch.normal(x.float(), 1.0),
    lambda x: x.clone().exponential_(), lambda x: torch.poisson(x.float().abs()), torch.rand_like,
], ids=["multinomial", "normal", "exponential_", "poisson", "rand_like"])  # fmt: skip
def test_draws_are_noted(draw):
    (note,) = noted(lambda: draw(normal(4, 8)))
    assert note.why == "the random numbers are those of the CPU"


def test_draws_of_a_module_are_noted():
    """Outside of modules, the same functions make weights and batches, which have the CPU's numbers on a GPU, too."""

    class Noise(nn.Module):
        def forward(self, x):
            return torch.empty(8).normal_(), torch.rand(8)

    with ft.emulate("h200", strict=True):
        nn.Linear(8, 8)
        torch.randn(8)
    noise = Noise()
    with ft.emulate("h200", noise) as run:
        noise(normal(4, 8))
    assert sorted(note.operation for note in run.unverified) == ["normal_", "rand"]


@pytest.mark.parametrize(("layer", "name"), [
    (nn.LSTM(8, 8), "lstm"), (nn.GRU(8, 8), "gru"), (nn.RNN(8, 8), "rnn_tanh"), (nn.GRUCell(8, 8), "gru_cell"),
], ids=["lstm", "gru", "rnn", "cell"])  # fmt: skip
def test_recurrent_layers_are_noted(layer, name):
    """A GPU does not compute their steps one by one."""
    layer, x = layer.bfloat16(), normal(8, 8) if name == "gru_cell" else normal(3, 8, 8)
    before = vars(torch._VF).copy()
    with ft.emulate("h200", layer) as run:
        layer(x)
        with run.pause():
            layer(x)
    notes = [(note, calls) for note, calls in run.unverified.items() if note.operation == name]
    assert [(note.why, calls) for note, calls in notes] == [("a GPU has one kernel for it; computed step by step", 1)]
    assert getattr(torch._VF, name) is before.get(name, getattr(torch._C._VariableFunctions, name))


def test_fused_inference_is_noted():
    """The recordings are of training: an encoder layer of an inference is another kernel on a GPU."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True).bfloat16()
    x = normal(2, 32, 64)

    def notes():
        with ft.emulate("h200", layer) as run:
            layer(x)
        return sorted(note.operation for note in run.unverified if "fused path of inference" in note.why)

    assert notes() == []
    with torch.no_grad():
        assert notes() == []
        layer.eval()
        assert notes() == ["MultiheadAttention", "TransformerEncoderLayer"]
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            assert notes() == []
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
    assert notes() == []


@pytest.mark.parametrize("function", [
    torch.exp, F.gelu, F.silu, torch.tanh, torch.sqrt, lambda x: x**3, lambda x: x @ x, lambda x: torch.softmax(x, -1),
    lambda x: F.scaled_dot_product_attention(*3 * [x[None, None]]), lambda x: F.layer_norm(x, (8,)), torch.sum,
], ids=range(11))  # fmt: skip
def test_fp64_is_noted_and_has_the_bits_of_a_policy_without_a_device(function):
    """No recording has FP64."""
    found = []
    for policy in ("h200", "native"):
        x = normal(8, 8, dtype=torch.float64).abs().requires_grad_()
        with ft.emulate(policy) as run:
            y = function(x)
            y.sum().backward()
        found.append([each.detach().numpy().view(np.uint64) for each in (y, x.grad)])
        assert bool(run.unverified) == (policy == "h200")
    for emulated, expected in zip(*found, strict=True):
        np.testing.assert_array_equal(emulated, expected)


@pytest.mark.parametrize("policy", ["autocast-bf16", "autocast-fp16", "h200-autocast-bf16", "h200-autocast-fp16"])
@pytest.mark.parametrize("function", [
    lambda x: x @ x, lambda x: F.linear(x, x, x[0]), torch.exp, lambda x: torch.softmax(x, -1), torch.sum,
    lambda x: F.layer_norm(x, (8,)), lambda x: torch.addcmul(x, x, x), lambda x: F.conv1d(x[None], x[:, :, None]),
], ids=range(8))  # fmt: skip
def test_autocast_leaves_fp64(function, policy):
    """As torch.autocast, which casts no float64 tensor."""
    found = []
    for each in (policy, "native"):
        x = normal(8, 8, dtype=torch.float64).requires_grad_()
        with ft.emulate(each, count=0):
            y = function(x)
            y.sum().backward()
        found.append([each.detach().numpy().view(np.uint64) for each in (y, x.grad)])
    for emulated, expected in zip(*found, strict=True):
        np.testing.assert_array_equal(emulated, expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert function(normal(8, 8, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("fused", [False, True])
def test_optimizers_in_fp64(fused):
    layer = nn.Linear(8, 8).double()
    optimizer = torch.optim.Adam(layer.parameters(), fused=fused)
    with ft.emulate("h200", layer) as run:
        layer(normal(4, 8, dtype=torch.float64)).sum().backward()
        optimizer.step()
    assert any("another dtype" in note.why for note in run.unverified)
    assert all(bool(torch.isfinite(weight).all()) for weight in layer.parameters())


def test_complex_numbers_are_noted():
    z = torch.ones(8, dtype=torch.complex64)
    for function in (lambda: z * torch.ones(8), z.abs, lambda: z @ z):
        assert [note.why for note in noted(function)] == ["complex numbers, computed by PyTorch on the CPU"]


def test_casts_to_8_bits_have_the_nan_of_a_gpu():
    x = torch.tensor([0xFFC1, 0x7FC1, 0xFF80, 0x7F80, 0xBF80, 0x0001], dtype=torch.int32).to(torch.int16)
    x = x.view(torch.bfloat16)
    with ft.emulate("h200", strict=True):
        found = [x.to(dtype) for dtype in (torch.float8_e4m3fn, torch.float8_e5m2)]
        back = [each.to(torch.bfloat16) for each in found]
    assert found[0].view(torch.uint8).tolist() == [0xFF, 0x7F, 0xFF, 0x7F, 0xB8, 0]
    assert found[1].view(torch.uint8).tolist() == [0xFF, 0x7F, 0xFC, 0x7C, 0xBC, 0]
    for each, y in zip(("e4m3", "e5m2"), back, strict=True):
        codes = fs.from_codes(found[each == "e5m2"].view(torch.uint8).numpy(), each)
        np.testing.assert_array_equal(runs.codes(y), fs.convert(codes, "bf16", nan="cuda").codes)


@pytest.mark.parametrize("policy", ["h200", "h200-autocast-fp16"])
def test_a_small_gpt(policy):
    """The forward pass is known. Two accumulated batches, clipped gradients, and a step; what is noted is named."""
    torch.manual_seed(0)
    model = Decoder() if "autocast" in policy else Decoder().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = torch.from_numpy(np.random.default_rng(1).integers(0, 32, (2, 2, 17)))
    with ft.emulate(policy, model, strict=True, count=0), torch.no_grad():
        assert torch.isfinite(model(batches[0, :, :-1])).all()
    with ft.emulate(policy, model, count=0) as run:
        for batch in batches:
            logits = model(batch[:, :-1])
            loss = F.cross_entropy(logits.float().reshape(-1, 32), batch[:, 1:].reshape(-1)) / 2
            run.scaler.scale(loss).backward()
        run.scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        run.scaler.step(optimizer)
        run.scaler.update()
    assert {note.operation for note in run.unverified} <= {
        "_scaled_dot_product_flash_attention_for_cpu_backward", "embedding_dense_backward", "linalg_vector_norm",
        "index_put", "select_backward",
    }, run.unverified  # fmt: skip
    assert not run.uncovered and run.step == 1


# -- other rules -------------------------------------------------------------------------------------------------------


def test_a_policy_may_state_an_order():
    """Of one module and one pass. It is noted, and a strict run refuses it."""
    layer, x = nn.Linear(64, 40, bias=False).half(), normal(32, 64, dtype=torch.float16).requires_grad_()
    layer.weight.data = normal(40, 64, dtype=torch.float16, seed=2)
    stated = ft.Gemm("fp16", accumulate="sequential(fp16)", backward_accumulate="fp32")
    policy = replace(fs.training.POLICIES["h200"], name="one order", modules={"Linear": stated})
    with ft.emulate(policy, layer) as run:
        y = layer(x)
        y.backward(normal(32, 40, dtype=torch.float16, seed=1))
    a, w, g = (fs.FloatArray(runs.codes(each), fs.FP16)
               for each in (x, layer.weight, normal(32, 40, dtype=torch.float16, seed=1)))  # fmt: skip
    expected = fs.matmul(a, w.T, accumulate="sequential(fp16)", format="fp16")
    np.testing.assert_array_equal(runs.codes(y), expected.codes)
    assert (expected.codes != fs.matmul(a, w.T, accumulate="hopper", format="fp16").codes).any()
    np.testing.assert_array_equal(runs.codes(x.grad), fs.matmul(g, w, accumulate="hopper", format="fp16").codes)
    ((note, calls),) = run.unverified.items()
    assert (note.operation, calls) == ("mm", 1) and "the policy states the order" in note.why
    with ft.emulate(policy, layer, strict=True), pytest.raises(NotImplementedError, match="states the order"):
        layer(x)


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


@marks.needs_sample(STEPS)
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
