"""`ft.sensitivity` and `ft.blame` on models with planted layers, which are found exactly."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")

from torch import nn  # noqa: E402

import floatsim.torch as ft  # noqa: E402
from floatsim.quantization import quantize_model  # noqa: E402
from floatsim.torch.layer_blame import _Search  # noqa: E402

pytestmark = pytest.mark.torch


class Branch(nn.Module):
    """A residual branch with a linear layer. A sensitive one has a large weight, which meets an input of 0."""

    def __init__(self, sensitive: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=False)
        weight = torch.randint(-7, 8, (4, 4)).float() / 64  # INT4 with a scale of 1 / 64 holds it without an error
        weight[0, 0] = 1000.0 if sensitive else 7 / 64
        self.linear.weight.data = weight

    def forward(self, x):
        return x + self.linear(x * torch.tensor([0.0, 1.0, 1.0, 1.0]))


def branches(count: int, sensitive: set[int]) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Branch(i in sensitive) for i in range(count)))


X = torch.tensor([[1.0, 0.5, -0.25, 2.0], [0.0, 1.0, 1.0, -1.0]])


@pytest.mark.parametrize(
    ("count", "planted"), [(64, {5, 30, 61}), (12, {0, 1, 11}), (7, {3}), (9, {0}), (5, {0, 1, 2, 3, 4}), (1, {0})]
)
def test_planted_layers_are_found_in_the_stated_number_of_runs(count, planted):
    found = ft.blame(branches(count, planted), X, "int4", tolerance=1e-6)
    assert found.layers == [f"{i}.linear" for i in sorted(planted)]
    assert found.error == 0
    assert found.runs <= len(planted) * (math.ceil(math.log2(count)) + 2)
    assert len({step.kept for step in found.steps}) == found.runs  # no run is repeated


def test_three_layers_of_64_take_at_most_24_runs():
    found = ft.blame(branches(64, {5, 30, 61}), X, "int4", tolerance=1e-6)
    assert found.runs <= 24


def test_no_layer_is_found_where_none_is_sensitive():
    found = ft.blame(branches(4, set()), X, "int4", tolerance=0.0)
    assert (found.layers, found.error, found.runs) == ([], 0.0, 1)
    assert "no layer needs more than int4" in str(found)


def test_a_search_that_is_not_monotone_ends_with_a_set_without_a_layer_too_many():
    """Errors cancel: two layers pass only together or with none of the others."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        names = [str(i) for i in range(6)]
        errors = rng.random(64)

        def error_of(kept, errors=errors):
            return errors[sum(1 << int(name) for name in kept)]

        search = _Search(names, error_of, 0.4)
        found = search.smallest()
        everything = len(found) == len(names)
        assert everything or error_of(found) <= 0.4
        assert not found or all(
            error_of([each for each in found if each != name]) > 0.4 for name in found if len(found) > 1
        )


def test_sensitivity_ranks_planted_layers_first_and_counts_runs():
    planted = {2, 5}
    model = branches(6, planted)
    found = ft.sensitivity(model, X, ["int4", "int8"])
    assert set(found.ranking("int4")[:2]) == {"2.linear", "5.linear"}
    rows = {row.layer: row for row in found.rows if row.format == "int4"}
    for i in range(6):
        row = rows[f"{i}.linear"]
        assert (row.alone > 0) == (i in planted)
        assert row.others > 0
    assert found.whole == found.every
    assert found.runs == 2 * (1 + 2 * 6)
    one = ft.sensitivity(branches(6, {2}), X, "int4")
    assert [row.others == 0 for row in one.rows] == [True] + [False] * 5
    assert math.isnan(ft.sensitivity(model, X, "int4", reverse=False).rows[0].others)


def test_a_scheme_is_that_of_quantize_model_and_the_model_is_left_as_it_was():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Dropout(0.5))
    before, x = copy.deepcopy(model.state_dict()), torch.randn(5, 32)
    found = ft.sensitivity(model, x, "nf4")
    assert [row.layer for row in sorted(found.rows, key=lambda row: row.layer)] == [
        "0",
        "2",
    ]  # batch norm has no matrix
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    other = copy.deepcopy(model)
    other[2].load_state_dict(quantize_model(model[2].state_dict(), "nf4").state_dict())
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        reference = model(x)
        torch.manual_seed(0)
        y = other(x)
    row = next(row for row in found.rows if row.layer == "2")
    wide = reference.double()
    assert row.alone == pytest.approx(float((y.double() - wide).norm() / wide.norm()), rel=1e-12)


@pytest.mark.full
def test_a_policy_runs_only_in_the_chosen_layers():
    """The same as `ft.emulate` with the other layers paused, and as the whole model where all layers are chosen."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4), nn.Tanh()), torch.randn(3, 8)
    before = copy.deepcopy(model.state_dict())
    found = ft.sensitivity(model, x, {"low": "bf16"})
    with torch.no_grad():
        reference = model(x).double()
        h = torch.tanh(model[0](x))
        last = copy.deepcopy(model[2])
        with ft.emulate("bf16", last):
            y = last(h)
        y = torch.tanh(y + 0.0)
    rows = {row.layer: row for row in found.rows}
    assert rows["2"].alone == pytest.approx(float((y.double() - reference).norm() / reference.norm()), rel=1e-12)
    assert rows["2"].alone == rows["0"].others
    low = copy.deepcopy(model)
    with torch.no_grad(), ft.emulate("bf16", low):
        y = low(x)
    assert found.whole["low"] == pytest.approx(float((y.double() - reference).norm() / reference.norm()), rel=1e-12)
    assert found.whole != found.every  # the last tanh belongs to no layer
    assert found.runs == 2 * 2 + 2
    assert all(torch.equal(before[name], x) for name, x in model.state_dict().items())  # the policy stores BF16 weights


def test_paths_of_a_policy_are_those_of_the_model():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))), torch.randn(2, 4)
    low = ft.Policy("fp32", accumulate="fp32", modules={"1.0": "e4m3"})
    errors = {row.layer: row.alone for row in ft.sensitivity(model, x, low, layers=["0", "1"]).rows}
    plain = ft.Policy("fp32", accumulate="fp32")
    exact = {row.layer: row.alone for row in ft.sensitivity(model, x, plain, layers=["0", "1"]).rows}
    assert errors["0"] == exact["0"] < 1e-6
    assert errors["1"] > 1e-3
    at_use = ft.Policy("fp32", accumulate="fp32", weights_at_use={"1.*.weight": "int4"})
    errors = {row.layer: row.alone for row in ft.sensitivity(model, x, at_use).rows}
    assert errors["0"] < 1e-6
    assert min(errors["1.0"], errors["1.1"]) > 1e-3


@pytest.mark.full
def test_overflows_are_planted_in_the_operations_of_a_transformer():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    model.layers[1].linear1.weight.data.mul_(1e6)  # beyond FP16; layer norm follows
    x = torch.randn(1, 3, 8)
    found = ft.blame(model, x, ft.Gemm("fp16", accumulate="fp32"), tolerance=0.1, layers="layers.*")
    assert found.layers == ["layers.1"]
    found = ft.blame(model, x, ft.Gemm("fp16", accumulate="fp32"), tolerance=0.1, layers="*.linear?")
    assert "layers.1.linear1" in found.layers


def test_inputs_and_errors_of_all_kinds():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 3)

        def forward(self, x, scale=1.0):
            return {"logits": self.head(x) * scale, "ids": torch.arange(2)}

    torch.manual_seed(0)
    model, x = Model(), torch.randn(2, 4)
    errors = [
        ft.sensitivity(model, inputs, "int4").every["int4"]
        for inputs in (x, (x, 1.0), {"x": x, "scale": 1.0}, [x, x], lambda m: m(x)["logits"])
    ]
    assert errors == pytest.approx([errors[0]] * 5)
    kl = ft.sensitivity(model, x, "int4", error="kl")
    with torch.no_grad():
        p = model(x)["logits"].double().log_softmax(-1)
        low = copy.deepcopy(model)
        low.load_state_dict(quantize_model(model.state_dict(), "int4").state_dict())
        q = low(x)["logits"].double().log_softmax(-1)
    assert kl.every["int4"] == pytest.approx(float((p.exp() * (p - q)).sum(-1).mean()), rel=1e-9)
    own = ft.sensitivity(model, x, "int4", error=lambda y, exact: (y["logits"] - exact["logits"]).abs().max())
    assert own.every["int4"] == pytest.approx(
        float((low(x)["logits"] - model(x)["logits"]).abs().max().detach()), rel=1e-6
    )


def test_tables_and_pictures():
    plt = pytest.importorskip("matplotlib.pyplot")
    found = ft.sensitivity(branches(3, {1}), X, ["int4", "int8"])
    lines = str(found).splitlines()
    assert lines[0].split() == [
        "layer",
        "kind",
        "weights",
        "int4",
        "alone",
        "all",
        "but",
        "int8",
        "alone",
        "all",
        "but",
    ]
    assert lines[1].split()[:3] == ["1.linear", "Linear", "16"]
    assert lines[-1] == f"relative error of the output; {found.runs} runs"
    assert "<th>int4 alone</th>" in found._repr_html_()
    assert found.to_dict()["rows"][0]["layer"] == "1.linear"
    ax = found.plot()
    assert ax.get_yticklabels()[0].get_text() == "1.linear"
    assert "int4, whole model" in [text.get_text() for text in ax.get_legend().get_texts()]
    result = ft.blame(branches(3, {1}), X, "int4", tolerance=1e-6)
    assert str(result).splitlines()[1].split()[:2] == ["1", "failed"]
    assert result.to_dict()["layers"] == ["1.linear"]
    ax = result.plot()
    assert len(ax.patches) == 3 * result.runs
    assert ax.texts[-1].get_text().endswith(("passed", "failed"))
    plt.close("all")


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"formats": "q4_k"}, r"q4_k cannot act on 0\.linear\.weight \(4, 4\): a row of q4_k has whole blocks of 256"),
        ({"formats": "e4m4"}, r"unknown format 'e4m4'; .*also the GGUF types .* policies are fp32, "),
        ({"formats": "te-fp9"}, r"Policies: did you mean 'te-fp8'\?"),
        ({"formats": []}, r"formats is empty"),
        ({"formats": ["int4", "int4"]}, r"two have the name 'int4'; give a mapping"),
        ({"layers": "liner"}, r"layers: no module fits 'liner'"),
        ({"inputs": 3}, r"inputs must be a tensor"),
        ({"inputs": []}, r"inputs is an empty list"),
        ({"error": "nrm"}, r"error='nrm' is not known; did you mean 'norm'\?"),
        ({"formats": "te-fp8+scalling"}, r"no modifier 'scalling'"),
        ({"formats": "bf16+kahan"}, r"kahan=True is for the optimizers of fs\.training"),
        ({"model": "model"}, r"model must be a torch\.nn\.Module"),
    ],
)  # fmt: skip
def test_a_clear_error_says_what_would_work(keywords, message):
    given = {"model": branches(2, set()), "inputs": X, "formats": "int4", **keywords}
    with pytest.raises((TypeError, ValueError), match=message):
        ft.sensitivity(given.pop("model"), given.pop("inputs"), given.pop("formats"), **given)


def test_a_scheme_names_the_layers_on_which_it_can_act():
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    with pytest.raises(ValueError, match=r"which 1 lacks; layers on which it can act: 0"):
        ft.sensitivity(model, X, "int4", layers=["0", "1"])
    with pytest.raises(ValueError, match=r"layers on which it can act: none"):
        ft.blame(nn.Sequential(nn.LayerNorm(4)), X, "int4", tolerance=0.1)
    with pytest.raises(ValueError, match="tolerance"):
        ft.blame(model, X, "int4", tolerance=-1)
    idle = nn.ModuleDict({"used": nn.Linear(4, 4), "idle": nn.Linear(4, 4)})
    with pytest.raises(ValueError, match=r"layers: idle did not run for these inputs; those that ran: used"):
        ft.sensitivity(idle, lambda m: m["used"](X), "int4", layers="*")
    assert ft.sensitivity(idle, lambda m: m["used"](X), "int4").ranking() == ["used"]
    with pytest.raises(ValueError, match=r"was not measured; measured are int4"):
        ft.sensitivity(model, X, "int4").ranking("int8")


def test_a_model_that_fails_leaves_no_trace():
    class Fails(nn.Linear):
        def forward(self, x):
            if self.weight.data_ptr() != place:
                raise RuntimeError("other weights")
            return super().forward(x)

    model = Fails(4, 4)
    place, before = model.weight.data_ptr(), model.weight.detach().clone()
    with pytest.raises(RuntimeError, match="other weights"):
        ft.sensitivity(model, X, "int2")
    assert "_call_impl" not in vars(model)
    assert model.weight.data_ptr() == place
    assert torch.equal(model.weight, before)
    assert torch.backends.mha.get_fastpath_enabled()
