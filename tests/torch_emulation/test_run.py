"""Runs as a whole: optimizers, leaving and resuming, events of updates, weights at use, rules, threads, strictness."""

from __future__ import annotations

import copy
import io
import json
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import floatsim as fs  # noqa: E402
import floatsim.torch as ft  # noqa: E402
from tests.torch_emulation.by_hand import lies_in, tensor  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.full]

# -- stochastic rounding of weights, with every optimizer --------------------------------------------------------------

RATE = 2e-3
OPTIMIZERS = {
    "Adadelta": (torch.optim.Adadelta, {"lr": 0.5}),
    "Adafactor": (torch.optim.Adafactor, {}),
    "Adagrad": (torch.optim.Adagrad, {}),
    "Adam": (torch.optim.Adam, {}),
    "AdamW": (torch.optim.AdamW, {"weight_decay": 0.0}),
    "Adamax": (torch.optim.Adamax, {}),
    "ASGD": (torch.optim.ASGD, {}),
    "LBFGS": (torch.optim.LBFGS, {"max_iter": 1}),
    "Muon": (torch.optim.Muon, {"weight_decay": 0.0}),
    "NAdam": (torch.optim.NAdam, {}),
    "RAdam": (torch.optim.RAdam, {}),
    "RMSprop": (torch.optim.RMSprop, {}),
    "Rprop": (torch.optim.Rprop, {"step_sizes": (1e-6, 4e-3)}),
    "SGD": (torch.optim.SGD, {"momentum": 0.5}),
}
"""Each class of torch.optim, with its options. SparseAdam needs sparse gradients, which are not emulated."""
WAYS = {"default": {}, "foreach": {"foreach": True}, "for": {"foreach": False}, "fused": {"fused": True}}
FUSED = ("Adagrad", "Adam", "AdamW", "SGD")


def ways_of(name):
    """The ways in which PyTorch carries out the steps of an optimizer."""
    if name in ("LBFGS", "Muon"):
        return ["default"]
    return ["foreach", "for", *(["fused"] if name in FUSED else [])]


def trained(policy, make, steps=30):
    """The weights after steps whose gradients are ones; they are 2 before."""
    layer = nn.Linear(32, 32, bias=False)
    nn.init.constant_(layer.weight, 2.0)
    optimizer = make(layer.parameters())

    def closure():
        optimizer.zero_grad()
        loss = layer(torch.ones(1, 32)).sum()
        loss.backward()
        return loss

    with ft.emulate(policy, layer, count=0) as run:
        for _ in range(steps):
            optimizer.step(closure)
    assert not run.uncovered
    return layer.weight.detach().double().numpy()


@pytest.mark.parametrize(("name", "way"), [(name, way) for name in OPTIMIZERS for way in ways_of(name)])
def test_stochastic_updates_have_the_mean_of_unrounded_ones(name, way):
    """The weights alone are in BF16, 64 times too coarse for one update; the gradient does not depend on them."""
    assert set(OPTIMIZERS) | {"SparseAdam"} >= {
        key for key, each in vars(torch.optim).items()
        if isinstance(each, type) and issubclass(each, torch.optim.Optimizer) and each is not torch.optim.Optimizer
    }  # fmt: skip
    kind, options = OPTIMIZERS[name]
    make = lambda parameters: kind(parameters, **{"lr": RATE, **options, **WAYS[way]})  # noqa: E731
    beside = {"accumulate": "fp32", "state": "fp32", "weight_gradients": "fp32"}
    wanted = trained(ft.Policy("fp32", weights="fp32", **beside), make)
    found = trained(ft.Policy("fp32", weights="bf16", weight_rounding="stochastic", seed=7, **beside), make)
    assert np.ptp(wanted) == 0 or name == "Muon"
    assert (wanted != 2).all()
    assert lies_in(torch.tensor(found), "bf16")
    error = found.std() / np.sqrt(found.size)
    assert error > 0
    assert abs(found.mean() - wanted.mean()) <= 4 * error


@pytest.mark.parametrize(
    ("rounding", "wanted"), [("ties_to_even", 2.0), ("toward_zero", 1.9921875), ("toward_negative", 1.9921875)]
)
def test_other_roundings_of_weights(rounding, wanted):
    policy = ft.Policy("bf16", accumulate="fp32", weights="bf16", weight_rounding=rounding)
    found = trained(policy, lambda parameters: torch.optim.SGD(parameters, RATE), steps=1)
    assert (found == wanted).all()


# -- leaving and resuming ----------------------------------------------------------------------------------------------

RESUMED = {
    "SGD": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-2),
    "fused": lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
    "LBFGS": lambda p: torch.optim.LBFGS(p, 1e-2, max_iter=2),
}
POLICIES = {
    "bf16": "bf16",
    "stochastic": "bf16+stochastic",
    "te-fp8": "te-fp8",
    "nvfp4": "nvfp4",
    "autocast-fp16": "autocast-fp16",
    "fp32 moments": ft.Policy("bf16", accumulate="fp32", weights="bf16", state="fp32"),
    "8-bit moments": ft.Policy("bf16", accumulate="fp32", weights="fp32", state="dynamic8"),
    "int8 weights": ft.Policy("fp32", accumulate="fp32", weights="llm_int8"),
    "custom format": ft.Policy(
        "bf16", accumulate="fp32", rules={"linear": ft.Gemm(fs.FloatFormat.ieee(4, 2), scaling="delayed")}
    ),
}


class Training:
    """A small network, its optimizer, and its steps."""

    def __init__(self, make):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        self.optimizer = make(self.model.parameters())
        self.x, self.y = tensor(8, 8, seed=1), tensor(8, 4, seed=2)

    def steps(self, run, number):
        for _ in range(number):

            def closure():
                self.optimizer.zero_grad()
                loss = F.mse_loss(self.model(self.x), self.y)
                run.scaler.scale(loss).backward()
                return loss

            if isinstance(self.optimizer, torch.optim.LBFGS):
                self.optimizer.step(closure)
            else:
                closure()
                run.scaler.step(self.optimizer)
            run.scaler.update()

    @property
    def weights(self):
        return [each.detach().clone() for each in self.model.parameters()]


def whole_run(policy, make):
    training = Training(make)
    with ft.emulate(policy, training.model) as run:
        training.steps(run, 4)
    return training.weights


def equal(found, wanted):
    return all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("make", RESUMED.values(), ids=RESUMED)
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_saved_run_continues_with_the_same_bits(policy, make):
    wanted = whole_run(policy, make)
    training = Training(make)
    with ft.emulate(policy, training.model) as run:
        training.steps(run, 2)
        saved = run.state_dict()
    file = io.BytesIO()
    torch.save([training.model.state_dict(), training.optimizer.state_dict(), saved], file)
    file.seek(0)
    states = torch.load(file, weights_only=True)

    resumed = Training(make)
    resumed.model.load_state_dict(states[0])
    resumed.optimizer.load_state_dict(states[1])
    with ft.emulate(policy, resumed.model) as run:
        run.load_state_dict(states[2])
        assert run.step == 2
        resumed.steps(run, 2)
    assert equal(resumed.weights, wanted)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_pause_changes_nothing(policy):
    wanted = whole_run(policy, RESUMED["AdamW"])
    training = Training(RESUMED["AdamW"])
    with ft.emulate(policy, training.model) as run:
        training.steps(run, 2)
        with run.pause():
            inside = training.model(training.x)
            with ft.emulate("fp32"):
                training.model(training.x)
        stored = training.weights
        training.steps(run, 2)
    assert equal(training.weights, wanted)
    layer = Training(RESUMED["AdamW"]).model
    for parameter, weight in zip(layer.parameters(), stored, strict=True):
        parameter.data.copy_(weight)
    assert torch.equal(inside, layer(training.x))  # PyTorch's own result


@pytest.mark.parametrize("make", [RESUMED["SGD"], RESUMED["AdamW"], RESUMED["fused"]], ids=["SGD", "AdamW", "fused"])
def test_leaving_and_entering_again_keeps_the_bits_where_nothing_is_drawn_or_delayed(make):
    wanted = whole_run("bf16", make)
    training = Training(make)
    for _ in range(2):
        with ft.emulate("bf16", training.model) as run:
            training.steps(run, 2)
            states = training.optimizer.state.values()
            assert all(lies_in(each, "bf16") for state in states for each in state.values() if each.ndim)
    assert equal(training.weights, wanted)


@pytest.mark.parametrize("options", [{}, {"foreach": False}, {"fused": True}], ids=["foreach", "for", "fused"])
def test_moments_of_the_first_step_are_rounded_after_each_line(options):
    """A step with moments of zeros from a file equals the step that makes them."""
    policy = ft.Policy("fp32", accumulate="fp32", weights="fp32", state="e4m3")
    found = []
    for given in (False, True):
        parameter = nn.Parameter(tensor(64))
        optimizer = torch.optim.Adam([parameter], 1e-2, **options)
        if given:
            zeros = {"step": torch.tensor(0.0), "exp_avg": torch.zeros(64), "exp_avg_sq": torch.zeros(64)}
            optimizer.load_state_dict({**optimizer.state_dict(), "state": {0: zeros}})
        with ft.emulate(policy):
            parameter.grad = tensor(64, seed=1, scale=30.0)
            optimizer.step()
        state = optimizer.state[parameter]
        assert lies_in(state["exp_avg"], "e4m3")
        assert state["exp_avg"].any()
        found.append(parameter.detach())
    assert torch.equal(*found)


def test_weights_at_use_return_in_a_pause():
    layer = nn.Linear(4, 4)
    kept = layer.weight.detach().clone()
    with ft.emulate(ft.Policy("fp32", accumulate="fp32", weights_at_use="int4"), layer) as run:
        layer(torch.ones(1, 4))
        used = layer.weight.detach().clone()
        assert not torch.equal(used, kept)
        with run.pause():
            assert torch.equal(layer.weight, kept)
        layer(torch.ones(1, 4))
        assert torch.equal(layer.weight, used)


def test_bad_states_and_pauses():
    with ft.emulate("te-fp8") as run:
        saved = run.state_dict()
        with run.pause(), pytest.raises(RuntimeError, match="paused already"), run.pause():
            pass
        for bad in (None, {}, {**saved, "version": 0}, {**saved, "more": 1}):
            with pytest.raises(ValueError, match=r"state must be what run\.state_dict"):
                run.load_state_dict(bad)
        with pytest.raises(ValueError, match="seed=3, not seed=0"):
            run.load_state_dict({**saved, "seed": 3})
    with pytest.raises(RuntimeError, match=r"in the block of its ft\.emulate"), run.pause():
        pass
    with ft.emulate("autocast-fp16") as run, pytest.raises(ValueError, match="without loss scaling, not with it"):
        run.load_state_dict(saved)


# -- events ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"foreach": False}, {"fused": True}], ids=["foreach", "for", "fused"])
def test_a_nan_of_an_optimizer_is_seen(options):
    """eps = 1e-8 is zero in FP16, and 0 / 0 is NaN. Fused steps compute in FP32, and eps stays."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, **options)
    with ft.emulate("fp16", model) as run:
        model(tensor(2, 4)).pow(2).mean().backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
        assert run.first("overflow") is None
        optimizer.step()
    rows = [row for row in run.report().rows if row.update]
    assert rows
    assert {row.module for row in rows} == {"optimizer"}
    lost = sum(int((~each.isfinite()).sum()) for each in model.parameters())
    first = run.first("overflow")
    if "fused" in options:
        assert lost == 0
        assert first is None
    else:
        assert lost > 0
        assert (first.module, first.operation, first.direction) == ("0.weight", "addcdiv", "update")
        assert sum(row.overflow for row in rows) >= lost


def test_an_update_beyond_the_format_overflows():
    layer = nn.Linear(2, 2, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), 1e6)
    with ft.emulate(ft.Policy("fp16"), layer, count=0) as run:
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        assert run.first("overflow") is None or run.first("overflow").direction == "update"
    assert layer.weight.isfinite().all() == (run.first("overflow") is None)


SCALED = ["mxfp8", "mxfp8-te", "mxfp6", "mxfp4", "nvfp4", "te-fp8", "te-fp8-current", "deepseek"]


@pytest.mark.parametrize("policy", SCALED)
def test_clipping_is_no_overflow(policy):
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    x = torch.randn(16, 64)
    with ft.emulate(policy, model) as run:
        model(x).pow(2).mean().backward()
    assert model.weight.grad.isfinite().all()
    assert run.first("overflow") is None
    assert not any(row.overflow for row in run.report().rows)
    clips = policy in ("mxfp8", "mxfp6", "mxfp4", "nvfp4")  # the floor rule; the E4M3 scales of NVFP4
    assert any(row.clipped for row in run.report().rows) == clips
    assert (run.first("clipped") is not None) == clips


def test_overflows_beside_clipping_are_counted():
    model = nn.Linear(64, 64)
    nn.init.constant_(model.weight, 1e30)
    with ft.emulate("mxfp8", model) as run:
        model(torch.full((16, 64), 1e30))
    assert run.first("overflow").module == "Linear"
    assert sum(row.overflow for row in run.report().rows) >= 16 * 64


def test_reports_as_data():
    model = nn.Linear(4, 2)
    with ft.emulate("bf16", model) as run:
        model(torch.ones(1, 4)).sum().backward()
    report = run.report()
    table = report.to_pandas()
    assert list(table.columns[:4]) == ["module", "operation", "pass", "calls"]
    assert table["elements"].tolist() == [row.elements for row in report.rows]
    found = json.loads(json.dumps(report.to_dict()))
    assert [row["operation"] for row in found["rows"]] == [row.operation for row in report.rows]
    assert set(found) == {"rows", "first", "uncovered"}


# -- weights at use ----------------------------------------------------------------------------------------------------


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(4, 4)
        self.conv = nn.Conv1d(4, 4, 1)
        self.norm = nn.LayerNorm(4)
        self.attention = nn.MultiheadAttention(4, 2)
        self.up = nn.Linear(4, 4)
        self.head = nn.Linear(4, 4, bias=False)
        self.head.weight = self.embedding.weight
        for each in self.parameters():
            nn.init.normal_(each)

    def forward(self, ids):
        x = self.conv(self.embedding(ids).transpose(1, 2)).transpose(1, 2)
        x = self.norm(x)
        return self.head(self.up(x + self.attention(x, x, x)[0]))


def changed(policy):
    """The paths of the parameters that a policy rounds before use."""
    torch.manual_seed(0)
    model = Mixed()
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    with ft.emulate(policy, model):
        model(torch.tensor([[0, 1, 3]]))
        found = {name for name, each in model.named_parameters() if not torch.equal(each, before[name])}
    assert all(torch.equal(each, before[name]) for name, each in model.named_parameters())
    return found


LINEAR = {"conv.weight", "attention.in_proj_weight", "attention.out_proj.weight", "up.weight"}


def policy_at_use(rules, **more):
    return ft.Policy("fp32", accumulate="fp32", weights="fp32", weights_at_use=rules, **more)


def test_weights_of_linear_and_convolution_layers_are_rounded_at_use():
    assert changed(policy_at_use("int4")) == LINEAR


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ({"up.*": "int4"}, {"up.weight", "up.bias"}),
        ({"LayerNorm.weight|conv.bias": "int4"}, {"norm.weight", "conv.bias"}),
        ({"head.weight": "int4"}, {"embedding.weight"}),  # one parameter of two layers
        ({"up.bias": None, "Linear.*": "e2m1"}, {"up.weight", "attention.out_proj.weight", "attention.out_proj.bias",
                                                "embedding.weight"}),
    ],
)  # fmt: skip
def test_a_mapping_names_parameters(rules, wanted):
    assert changed(policy_at_use(rules)) == wanted


def test_modules_are_exempt_unless_their_policy_says_so():
    assert changed(policy_at_use("int4", modules={"up": "fp32"})) == LINEAR - {"up.weight"}
    inner = policy_at_use({"*": "int4"})
    assert changed(policy_at_use(None, modules={"up": inner})) == {"up.weight", "up.bias"}


def test_apex_keeps_batch_norm():
    model = nn.Sequential(nn.Conv1d(2, 2, 1), nn.BatchNorm1d(2))
    for each in model.parameters():
        nn.init.normal_(each)
    with ft.emulate("apex-o2", model):
        model(torch.ones(2, 2, 3))
        assert [lies_in(each, "fp16") for each in model.parameters()] == [True, True, False, False]


def test_parameters_that_are_not_there():
    with pytest.raises(ValueError, match=r"weights_at_use: no parameter fits 'upp.weight'; did you mean 'up.weight'"):
        changed(policy_at_use({"upp.weight": "int4"}))


# -- policies, rules, names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["typo", "fp8", "bf16-mixed", torch.bfloat16, 3, None])
def test_unknown_policies_are_named_at_the_call(name):
    with pytest.raises((TypeError, ValueError), match=r"autocast-bf16.*te-fp8"):
        ft.emulate(name)


@pytest.mark.parametrize("rule", ["cat", "stack", "mm|cat", "eq", "cosine_similarity"])
def test_rules_that_cannot_act_are_errors(rule):
    inner = ft.Policy("fp32", rules={rule: ft.Op("e2m1")})
    for policy in (inner, ft.Policy("fp32", modules={"0": inner})):
        with pytest.raises(ValueError, match=r"acts on no operation that rounds in PyTorch; rules act on linear, bmm"):
            ft.emulate(policy)


@pytest.mark.parametrize("rule", ["relu", "embedding", "softmax|conv*", "other", "*", "einsum"])
def test_rules_that_can_act_are_taken(rule):
    with ft.emulate(ft.Policy("fp32", rules={rule: ft.Op("fp32")})):
        pass


def test_the_root_module_has_the_name_of_its_class():
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(x) + 1

    for model, wanted in ((nn.Linear(2, 2), ["Linear"]), (Root(), ["layer", "Root"])):
        with ft.emulate("bf16", model) as run:
            model(torch.ones(1, 2))
        assert [row.module for row in run.report().rows] == wanted
    with ft.emulate(ft.Policy("fp32", modules={"Root": "e4m3"}), Root()):
        pass
    with pytest.raises(ValueError, match="no module fits 'Rot'; did you mean 'Root'"):
        ft.emulate(ft.Policy("fp32", modules={"Rot": "e4m3"}), Root())


def test_exported_programs_keep_their_modules():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 2), nn.ReLU())

        def forward(self, x, *, scale=None):
            return {"y": self.b(self.a(x)) * scale, "x": x}

    model = Model()
    given = (tensor(2, 3),), {"scale": torch.tensor(0.3)}
    program = torch.export.export(model, *given).module()
    rows = {}
    for name, each in {"model": model, "program": program}.items():
        with ft.emulate("bf16", each) as run:
            y = each(*given[0], **given[1])["y"]
        rows[name] = [(row.module, row.operation) for row in run.report().rows], y
    assert [module for module, _ in rows["program"][0][:3]] == ["a", "b.0", "b.1"]
    assert torch.equal(rows["program"][1], rows["model"][1])
    assert "forward" not in vars(program)
    outer = nn.Sequential(program)
    with ft.emulate("bf16", outer) as run:
        program(*given[0], **given[1])
    assert [row.module for row in run.report().rows][:3] == ["0.a", "0.b.0", "0.b.1"]


# -- what is not emulated ----------------------------------------------------------------------------------------------


def test_threads_that_compute_warn():
    def computing():
        return torch.ones(2) * 3

    with ft.emulate("bf16"):
        quiet = threading.Thread(target=lambda: torch.ones(2).view(1, 2))
        quiet.start()
        quiet.join()
        with pytest.warns(fs.FloatsimWarning, match="mul in the thread 'worker' is not emulated"):
            worker = threading.Thread(target=computing, name="worker")
            worker.start()
            worker.join()
    after = threading.Thread(target=computing)
    after.start()
    after.join()


def test_functions_as_operands_are_refused():
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 1, 16, 16)
    with ft.emulate("bf16"), pytest.raises(NotImplementedError, match="flex_attention takes functions"):
        flex_attention(q, q, q)


def test_sharded_and_nested_tensors_are_refused(tmp_path):
    import torch.distributed as dist
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    with ft.emulate("bf16"), pytest.raises(ValueError, match="not a nested Tensor"):
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        x = distribute_tensor(torch.ones(4, 4), init_device_mesh("cpu", (1,)), [Shard(0)])
        with ft.emulate("bf16"), pytest.raises(ValueError, match=r"add: .* DTensor, the sharded tensor of FSDP2"):
            x + x
        layer = nn.Linear(4, 4)
        layer.weight = nn.Parameter(x)
        with pytest.raises(ValueError, match=r"model: weight: .* DTensor"):
            ft.emulate("bf16", layer)
    finally:
        dist.destroy_process_group()


STRICT = {
    "quantize": lambda x: ft.quantize(x, "e4m3"),
    "Linear": lambda x: F.relu(ft.Linear(4, 2)(x)),
    "matmul": lambda x: ft.matmul(x, x.T),
    "forward derivative": lambda x: torch.func.jvp(lambda z: z * z, (x,), (x,))[1],
    "packed": lambda x: nn.utils.rnn.pad_packed_sequence(nn.utils.rnn.pack_padded_sequence(x[..., None], [4, 2, 1, 1])),
    "complex view": lambda x: torch.view_as_complex(x.view(-1, 2)),
    "foreach sign": lambda x: torch._foreach_sign([x]),
    "put": lambda x: x.put(torch.tensor([0]), torch.tensor([1.0])),
    "unique": lambda x: x.unique_consecutive(),
    "diagonal": lambda x: x.diagonal_scatter(torch.ones(4)),
}


@pytest.mark.parametrize("name", STRICT)
def test_strict_takes_what_rounds_nothing_and_the_own_blocks(name):
    x = tensor(4, 4)
    torch.manual_seed(0)
    wanted = STRICT[name](x)
    torch.manual_seed(0)
    with ft.emulate("native", strict=True) as run:
        found = STRICT[name](x)
    assert not run.uncovered
    for one, other in zip(
        *([each] if isinstance(each, torch.Tensor) else each for each in (found, wanted)), strict=True
    ):
        assert torch.equal(one, other)


def test_own_blocks_have_rows_and_keep_their_formats():
    x = torch.full((2, 4), 300.0)
    with ft.emulate("bf16", strict=True) as run:
        y = ft.quantize(x * 1, "e4m3")
        z = ft.matmul(x, torch.full((4, 2), 1.001))
    assert y.unique().tolist() == [288.0]
    assert not lies_in(z, "bf16")
    assert run.operations["quantize_with_gradient"] == run.operations["matmul"] == 1
    assert [row.operation for row in run.report().rows] == ["mul", "quantize_with_gradient", "matmul"]


def test_lazy_modules():
    layer = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    with ft.emulate(ft.Policy("bf16", accumulate="fp32", weights="bf16", weights_at_use="e4m3"), layer, strict=True):
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        for _ in range(2):
            layer(tensor(3, 5)).sum().backward()
            optimizer.step()
        layer(tensor(3, 5))
        assert lies_in(layer[0].weight, "e4m3")
    assert all(lies_in(each, "bf16") and lies_in(each.grad, "bf16") for each in layer.parameters())


# -- what a user does inside a block -----------------------------------------------------------------------------------


def test_overflows_beside_infinities_are_counted_by_element():
    x, y = torch.tensor([torch.inf, 1.0, 0.0, 1.0, torch.nan]), torch.tensor([1.0, 0.0, 0.0, 2.0, 0.0])
    with ft.emulate("fp16") as run:
        x / y
    assert [row.overflow for row in run.report().rows] == [2]  # 1 / 0 and 0 / 0
    with ft.emulate("fp16", count=0) as run:
        x / torch.ones(5)
        assert run.first("overflow") is None
        x / y
    assert run.first("overflow").operation == "div"


@pytest.mark.parametrize("policy", ["native", "bf16"])
def test_operations_in_place_keep_the_shape(policy):
    a = torch.arange(6.0)
    part, scalar, weight = a[:2], torch.tensor(2.0), nn.Parameter(torch.ones(2))
    with ft.emulate(policy), torch.no_grad():
        for target, other in ((part, torch.ones(3, 2)), (scalar, torch.zeros(0)), (weight, torch.ones(1, 2))):
            with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
                target.mul_(other)
    assert a.tolist() == [0, 1, 2, 3, 4, 5]
    assert (part.shape, scalar.shape, weight.shape) == ((2,), (), (2,))


OUT = {
    "sqrt": (lambda out: torch.sqrt(torch.tensor([1.0, -4.0]), out=out), [1.0, torch.nan]),
    "div": (lambda out: torch.div(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0]), out=out), [torch.inf, 2.0]),
    "mm": (lambda out: torch.mm(torch.full((1, 1), 3e38), torch.full((1, 1), 3e38), out=out), [[torch.inf]]),
}


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("name", OUT)
def test_out_is_resized(name, count):
    call, wanted = OUT[name]
    out = torch.empty(0)
    with ft.emulate("native", count=count):
        assert call(out) is out
    np.testing.assert_array_equal(out.numpy(), np.float32(wanted))


def test_the_dtype_of_out_rounds_nothing_else():
    out = torch.empty(2, dtype=torch.float64)
    with ft.emulate("native"):
        torch.mul(torch.tensor([0.1, 3.0]), torch.tensor([0.1, 1 / 3]), out=out)
    assert torch.equal(out, torch.mul(torch.tensor([0.1, 3.0]), torch.tensor([0.1, 1 / 3])).double())


def test_weights_that_are_written_in_the_block_stay():
    layer = nn.Linear(4, 4)
    with ft.emulate(ft.Policy("fp32", accumulate="fp32", weights="bf16", weights_at_use="int4"), layer):
        layer(torch.ones(1, 4))
        layer.load_state_dict({"weight": torch.full((4, 4), 0.7), "bias": torch.full((4,), 0.3)})
        layer(torch.ones(1, 4))
    assert layer.weight.unique().tolist() == [torch.tensor(0.7).bfloat16().item()]
    assert layer.bias.unique().tolist() == [torch.tensor(0.3).item()]


def test_an_entry_that_fails_changes_nothing():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).half())
    before = [each.detach().clone() for each in model.parameters()]
    for policy in (ft.Policy("bf16", weights="bf16"), ft.Policy("fp32", weights_at_use="bf16")):
        with pytest.raises(ValueError, match=r"torch\.float16 cannot hold BF16"), ft.emulate(policy, model):
            pass
        assert equal(model.parameters(), before)


@pytest.mark.parametrize("policy", ["bf16", ft.Policy("fp32", accumulate="fp32", weights_at_use="int4")], ids=str)
def test_a_model_can_be_copied_and_saved_in_the_block(policy):
    model, x = nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2)
    file = io.BytesIO()
    with ft.emulate(policy, model):
        model(x)
        copied = copy.deepcopy(model)
        torch.save(model, file)
        mean = torch.optim.swa_utils.AveragedModel(model)
        mean.update_parameters(model)
        used = model[0].weight.detach().clone()
        copied(x)
        assert torch.equal(model[0].weight, used)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    for other in (copied, loaded, mean):
        other(x).sum().backward()
    assert equal(copied.parameters(), loaded.parameters())
