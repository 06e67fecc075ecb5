"""Whole models: equal to the same network by hand, results in their formats, nothing uncovered."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import floatsim as fs  # noqa: E402
import floatsim.torch as ft  # noqa: E402
from floatsim import operators as ops  # noqa: E402
from floatsim.torch.emulation import Emulation  # noqa: E402
from tests.torch_emulation.by_hand import assert_equal, lies_in, rounded, tensor  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.full]


def one_format(fmt):
    return ops.Recipe("one format", format=fmt, accumulate=f"sequential({fmt})")


@pytest.mark.parametrize("fmt", ["fp16", "bf16"])
def test_an_mlp_equals_the_same_network_by_hand(fmt):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    x, target = tensor(5, 6), torch.tensor([0, 2, 1, 1, 0])
    with ft.emulate(ft.Policy(fmt), model, strict=True) as run:
        loss = F.cross_entropy(model(x), target)
        loss.backward()
    assert not run.uncovered

    recipe = {"recipe": one_format(fmt)}
    w1, b1, w2, b2 = (rounded(p, fmt) for p in model.parameters())
    x0 = rounded(x, fmt)
    z = ops.linear(x0, w1, b1, **recipe)
    hidden = ops.relu(z, **recipe)
    logits = ops.linear(hidden, w2, b2, **recipe)
    logs = ops.log_softmax(logits, **recipe)
    losses = fs.negative(logs[np.arange(5), target.numpy()])
    n = fs.array(5.0, "fp64")
    assert_equal(loss, fs.divide(fs.sum(losses, accumulate=fmt, format=fmt), n, format=fmt))

    share = fs.negative(fs.divide(fs.array(1.0, fmt), n, format=fmt)).item()
    by_logs = np.zeros((5, 3))
    by_logs[np.arange(5), target.numpy()] = share
    by_logits = ops.log_softmax_backward(fs.array(by_logs, fmt), logs, **recipe)
    second = ops.linear_backward(by_logits, hidden, w2, **recipe)
    first = ops.linear_backward(ops.relu_backward(second.x, hidden, **recipe), x0, w1, **recipe)
    for parameter, wanted in zip(
        model.parameters(), (first.weight, first.bias, second.weight, second.bias), strict=True
    ):
        assert_equal(parameter.grad, wanted)


def test_attention_with_a_mask_equals_the_operator():
    q, k, v, g = (tensor(1, 2, 4, 8, seed=i) for i in range(4))
    mask = torch.where(torch.ones(4, 4).tril() > 0, 0.0, -torch.inf)
    for t in (q, k, v):
        t.requires_grad_()
    with ft.emulate(ft.Policy("fp16"), strict=True) as run:
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        y.backward(g)
    assert run.operations["_scaled_dot_product_flash_attention_for_cpu_backward"] == 1
    recipe = {"recipe": one_format("fp16"), "mask": mask.numpy()}
    arrays = [rounded(each, "fp16") for each in (q, k, v)]
    assert_equal(y, ops.attention(*arrays, **recipe))
    wanted = ops.attention_backward(rounded(g, "fp16"), *arrays, **recipe)
    for t, each in zip((q, k, v), wanted, strict=True):
        assert_equal(t.grad, each)


# -- every result of every operation lies in its format ----------------------------------------------------------------


@pytest.fixture
def checked(monkeypatch):
    """Check each result of each operation against the format of the decision."""
    seen = []
    original = Emulation._tensor

    def tensor_in_format(self, x, dtype, role):
        found = original(self, x, dtype, role)
        assert lies_in(found, x.format)
        seen.append(x.format.name)
        return found

    monkeypatch.setattr(Emulation, "_tensor", tensor_in_format)
    return seen


class Lstm(nn.Module):
    """An LSTM with a linear layer, in PyTorch's order (time first)."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 5, 2, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0])


class Gru(nn.Module):
    """A GRU in both directions."""

    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(4, 5, bidirectional=True, batch_first=True), nn.Linear(10, 3)

    def forward(self, x):
        return self.head(self.gru(x)[0])


class Decoder(nn.Module):
    """A decoder layer with a causal mask, tied weights, an embedding, and recomputation."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4, padding_idx=0)
        self.layer = nn.TransformerDecoderLayer(4, 2, 8, batch_first=True)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        tokens = (x[..., 0].abs() * 3).long() % 7
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        y = self.embedding(tokens)
        y = checkpoint(self.layer, y, x, tgt_mask=mask, tgt_is_causal=True, use_reentrant=False)
        return self.head(y)


class InPlace(nn.Module):
    """Operations in place, views, and numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, x):
        y = self.first(x) * self.scale
        y += 0.1
        left, right = y.chunk(2, -1)
        z = torch.cat([left.clone().mul_(right), right], -1).reshape(*left.shape[:-1], 2, 3)
        return self.second(z.transpose(-1, -2).reshape(-1, 3).clamp(-2, 2).exp().div(3).sqrt())


def images():
    return nn.Sequential(
        nn.Unflatten(-1, (1, 2, 2)), nn.Flatten(0, 1), nn.Upsample(scale_factor=4), nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1), nn.Conv2d(4, 4, 3, groups=2, padding=1),
        nn.GroupNorm(2, 4), nn.SiLU(), nn.AvgPool2d(2), nn.ConvTranspose2d(4, 4, 2, stride=2), nn.GELU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(4, 3),
    )  # fmt: skip


MODELS = {
    "mlp": lambda: nn.Sequential(
        nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.3), nn.LayerNorm(6), nn.Linear(6, 3), nn.Softplus()
    ),
    "cnn": images,
    "encoder": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, activation="gelu"), 2
    ),
    "encoder norm first": lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True, norm_first=True),
    "decoder": Decoder,
    "lstm": Lstm,
    "gru": Gru,
    "rnn": lambda: nn.Sequential(
        nn.Linear(4, 4), nn.RMSNorm(4), nn.ELU(), nn.LeakyReLU(), nn.Hardswish(), nn.Linear(4, 2), nn.LogSigmoid()
    ),
    "in place": InPlace,
}
POLICIES = {
    "bf16": "bf16",
    "fp16": "fp16",
    "autocast": "autocast-fp16",
    "mixed": ft.Policy("bf16", accumulate="fp32", weights="fp32", weights_at_use="bf16", weight_gradients="fp32",
                       rules={"mm|bmm|sdpa": ft.Gemm("e4m3", backward="e5m2", accumulate="blocked(fp32, 8, fp32)"),
                              "softmax|layer_norm": ft.Op("fp32", result="bf16")}),
    "stochastic": ft.Policy("bf16", accumulate="fp32", rounding="stochastic", weights="bf16",
                            weight_rounding="stochastic", state="fp32", seed=3),
}  # fmt: skip


def losses(y, target):
    """One of several losses of PyTorch."""
    yield F.mse_loss(y, torch.zeros_like(y))
    yield F.cross_entropy(y.flatten(0, -2), target % y.shape[-1])
    yield (
        F.smooth_l1_loss(y, torch.ones_like(y)) + F.huber_loss(y, torch.ones_like(y)) + F.l1_loss(y, torch.ones_like(y))
    )
    yield F.binary_cross_entropy_with_logits(y, torch.full_like(y, 0.3))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", MODELS)
def test_training_and_inference(name, policy, checked):
    """Two steps of training, then inference: nothing is uncovered, and each result lies in its format."""
    torch.manual_seed(0)
    model = MODELS[name]()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    x = tensor(2, 3, 4)
    with ft.emulate(POLICIES[policy], model) as run:
        for step in range(2):
            y = model(x)
            loss = list(losses(y, torch.arange(y[..., 0].numel())))[step]
            run.scaler.scale(loss).backward()
            run.scaler.step(optimizer)
            optimizer.zero_grad()
        model.eval()
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                assert model(x).shape == y.shape
    assert not run.uncovered
    assert len(checked) > 20
    assert all(torch.isfinite(p).all() for p in model.parameters()) or policy == "fp16"


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(
    layers=st.lists(st.sampled_from([nn.ReLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.SiLU, nn.ELU, "norm", "drop"]),
                    min_size=1, max_size=4),
    width=st.integers(1, 6), batch=st.integers(1, 4), fmt=st.sampled_from(["bf16", "fp16", "e5m2", "e4m3"]),
    train=st.booleans(), seed=st.integers(0, 9),
)  # fmt: skip
def test_random_networks(layers, width, batch, fmt, train, seed, checked):
    checked.clear()  # the fixture is shared by all examples
    torch.manual_seed(seed)
    made = [nn.Linear(3, width)]
    for layer in layers:
        kind = nn.LayerNorm(width) if layer == "norm" else nn.Dropout(0.4) if layer == "drop" else layer()
        made += [kind, nn.Linear(width, width, bias=seed % 2 == 0)]
    model = nn.Sequential(*made).train(train)
    with ft.emulate(ft.Policy(fmt, accumulate="fp32"), model, strict=True) as run:
        model(tensor(batch, 3, seed=seed)).square().sum().backward()
    assert not run.uncovered
    assert set(checked) == {fs.as_format(fmt).name}
    assert all(lies_in(p.grad, fmt) for p in model.parameters())


# -- the report, the scaling methods, and bad input --------------------------------------------------------------------


def test_the_first_layer_that_overflows():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    nn.init.constant_(model[2][0].weight, 3e4)
    with ft.emulate("fp16", model) as run:
        model(torch.full((1, 4), 10.0)).sum().backward()
    event = run.first("overflow")
    assert (event.module, event.operation, event.backward, event.step) == ("2.0", "addmm", False, 0)
    report = run.report()
    assert report.first[0] == event or event in report.first
    assert "2.0" in str(report)
    assert "2.0" in report._repr_html_()
    assert {row.module for row in report.rows if row.backward} >= {"0", "2.0", "2.1"}
    assert report.plot().get_title()


def test_scaling_methods_and_modules_of_a_policy():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 4))
    record = ft.Gemm("e4m3", backward="e5m2", accumulate="fp32", scaling=ft.Delayed(16))
    policy = ft.Policy(
        "bf16", accumulate="fp32", modules={"1": "fp32"}, seed=1, weight_gradients="fp32", rules={"mm|addmm": record}
    )  # fmt: skip
    x = tensor(8, 32)
    with ft.emulate(policy, model, strict=True) as run:
        y = model(x)
        y.sum().backward()
    assert not lies_in(y, "bf16")
    assert not lies_in(model[0].weight.grad, "bf16")
    errors = {(row.module, row.backward): row.relative_error for row in run.report().rows if row.operation != "sum"}
    assert errors["0", False] > 100 * errors["1", False]


def test_module_of_a_layer_that_is_called_twice_and_recomputed():
    layer = nn.Linear(3, 3)
    model = nn.Sequential(layer, nn.Tanh(), nn.Sequential(layer, nn.ReLU()))
    with ft.emulate("bf16", model) as run:
        checkpoint(model, tensor(2, 3).requires_grad_(), use_reentrant=False).sum().backward()
    rows = {(row.module, row.operation) for row in run.report().rows if row.backward}
    assert {("0", "mm"), ("1", "tanh_backward"), ("2.1", "threshold_backward")} <= rows


def test_everything_is_restored():
    fast = torch.backends.mha.get_fastpath_enabled()
    methods = torch.amp.GradScaler.scale, torch.amp.GradScaler.step
    model = nn.Linear(2, 2)
    with pytest.raises(ZeroDivisionError), ft.emulate("bf16", model):
        raise ZeroDivisionError
    assert torch.backends.mha.get_fastpath_enabled() == fast
    assert methods == (torch.amp.GradScaler.scale, torch.amp.GradScaler.step)
    assert not torch.nn.modules.module._global_forward_hooks
    x = tensor(2, 2)
    assert torch.equal(model(x), F.linear(x, model.weight, model.bias))


@pytest.mark.parametrize(
    ("policy", "model", "error", "message"),
    [
        ("bf61", None, ValueError, "did you mean 'bf16'"),
        ("bf16", 3, TypeError, "model must be a torch.nn.Module"),
        (ft.Policy(modules={"haed": "fp32"}), nn.Sequential(), ValueError, "no module fits 'haed'"),
        (ft.Policy("fp32", weights="fp32"), nn.Linear(2, 2).half(), ValueError, "must be a subset"),
    ],
)
def test_bad_arguments(policy, model, error, message):
    with pytest.raises(error, match=message), ft.emulate(policy, model):
        pass


def test_bad_use():
    with ft.emulate("fp32") as run:
        with pytest.raises(RuntimeError, match="does not nest"), ft.emulate("fp32"):
            pass
        with pytest.raises(ValueError, match=r"the policy gives FP32, and the model computes in torch\.bfloat16"):
            torch.ones(2, dtype=torch.bfloat16) * 2
        assert (torch.arange(3) + 1).tolist() == [1, 2, 3]
        torch.special.i0(torch.ones(2))
    assert list(run.uncovered) == ["prims.bessel_i0.default"]
    with pytest.raises(ValueError, match="did you mean 'overflow'"):
        run.first("overflw")
    with ft.emulate("fp32", strict=True), pytest.raises(NotImplementedError, match="bessel_i0"):
        torch.special.i0(torch.ones(2))


@pytest.mark.parametrize("x", [torch.ones(2, device="meta"), torch.eye(2).to_sparse()], ids=["meta", "sparse"])
def test_tensors_without_dense_host_memory(x):
    with ft.emulate("bf16"), pytest.raises(ValueError, match="must be a dense tensor in host memory"):
        x * 0.3
    with ft.emulate("bf16"), pytest.raises(ValueError, match="must be a dense tensor in host memory"):
        torch.eye(2).to_sparse()


def test_complex_tensors_are_left_alone():
    x = torch.full((2,), 1.234567, dtype=torch.complex64)
    with ft.emulate("bf16", strict=True):
        y = x * 1.234567
    assert torch.equal(y, x * 1.234567)


@pytest.mark.parametrize("name", fs.training.POLICIES)
def test_named_policies_train_a_transformer_layer(name):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 2, 128, dropout=0.0, batch_first=True)
    optimizer = torch.optim.AdamW(layer.parameters(), 1e-3, eps=1e-3)
    x, found = tensor(2, 32, 64), []
    with ft.emulate(name, layer, count=0) as run:
        for _ in range(4):
            loss = F.mse_loss(layer(x), torch.zeros_like(x))
            found.append(loss.item())
            run.scaler.scale(loss).backward()
            run.scaler.step(optimizer)
            optimizer.zero_grad()
    assert not run.uncovered
    assert all(np.isfinite(found)) and found[-1] <= found[0]
