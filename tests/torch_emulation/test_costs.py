"""`ft.costs`: the error of a model under policies, and of their parts."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")

from torch import nn  # noqa: E402

import floatsim as fs  # noqa: E402
import floatsim.torch as ft  # noqa: E402
from floatsim.quantization import Scheme  # noqa: E402

pytestmark = pytest.mark.torch


def small():
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True).eval(), torch.randn(1, 4, 32)


@pytest.fixture(autouse=True)
def without_the_fused_path():
    """Let PyTorch run encoder layers step by step, as the reference of `ft.costs` does."""
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(True)


def relative(found, exact):
    return pytest.approx(float((found.double() - exact.double()).norm() / exact.double().norm()), rel=1e-12)


def test_the_question_of_int4_smoothquant_and_an_fp8_cache():
    """One call: each error is that of a run by hand, of the whole policy and of its parts."""
    model, x = small()
    names = ["w4a8", "w4a8-smoothquant", "w4a8-smoothquant+fp8-cache"]
    found = ft.costs(model, x, names)
    assert [row.policy for row in found.rows] == names
    assert found.runs == 5
    last = found.rows[-1]
    with torch.no_grad():
        exact = model(x)
        by_hand = {"whole": names[-1], "operations": names[1], "cache": "native+fp8-cache"}
        for part, policy in by_hand.items():
            with ft.emulate(policy, model):
                output = model(x)
            assert getattr(last, part) == relative(output, exact)
    assert last.operations == found[names[1]].whole
    assert 0 < last.cache < last.whole
    assert math.isnan(found["w4a8"].cache)
    assert found["w4a8"].operations == found["w4a8"].whole
    assert str(found).splitlines()[0].split() == ["policy", "whole", "operations", "alone", "cache", "alone"]
    assert json.loads(json.dumps(found.to_dict()))["rows"][0]["cache"] is None
    ax = found.plot()
    assert [text.get_text() for text in ax.get_yticklabels()] == names
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"whole", "operations alone", "cache alone"}


def test_parts_of_policies_in_modules_and_of_weights():
    model, x = small()
    inner = ft.Policy("bf16", accumulate="fp32", cache="int4")
    policy = ft.Policy("fp32", accumulate="fp32", weights_at_use=Scheme("int4", "row"), modules={"self_attn": inner})
    row = ft.costs(model, x, {"mine": policy}).rows[0]
    assert 0 < row.operations < row.cache < row.whole
    assert 0 < row.weights < row.whole
    cache = dataclasses.replace(fs.training.POLICIES["native"], name="", cache={"self_attn": "int4"})
    with torch.no_grad(), ft.emulate(cache, model):
        stored = model(x)
    with torch.no_grad():
        assert row.cache == relative(stored, model(x))


def test_schemes_have_no_parts_and_one_part_is_the_whole():
    model, x = small()
    found = ft.costs(model, x, ["int8", "w4a16"], error="kl")
    assert found.runs == 2
    assert all(math.isnan(row.cache) and math.isnan(row.operations) for row in found.rows)
    assert math.isnan(found["int8"].weights)
    assert found["w4a16"].weights == found["w4a16"].whole
    assert 0 < found["int8"].whole < found["w4a16"].whole
    with pytest.raises(KeyError, match="'int4' was not measured; measured are int8, w4a16"):
        found["int4"]


def test_layers_of_sensitivity_use_the_cache_where_they_attend():
    torch.manual_seed(0)
    layers = (nn.TransformerEncoderLayer(16, 2, 16, dropout=0.0, batch_first=True) for _ in range(2))
    model, x = nn.Sequential(*layers).eval(), torch.randn(1, 3, 16)
    policies = {"both": ft.Policy(cache="int4"), "one": ft.Policy(cache={"1.self_attn": "int4", "0": None})}
    found = ft.sensitivity(model, x, policies, layers="[01]", reverse=False)
    rows = {(row.format, row.layer): row.alone for row in found.rows}
    assert rows["one", "0"] < 1e-6 < rows["one", "1"] == rows["both", "1"]
    assert found.whole["both"] > 1e-6
    leaves = ft.sensitivity(model[0], x, ft.Policy(cache="int4"), reverse=False)  # linear layers have no attention
    assert max(row.alone for row in leaves.rows if row.kind == "Linear") < 1e-6 < leaves.whole["policy"]


def test_errors():
    model, x = small()
    with pytest.raises(ValueError, match="policies is empty"):
        ft.costs(model, x, [])
    with pytest.raises(ValueError, match=r"policies: two have the name 'bf16'"):
        ft.costs(model, x, ["bf16", "bf16"])
    with pytest.raises(ValueError, match=r"did you mean 'w4a8-smoothquant'"):
        ft.costs(model, x, "w4a8-smothquant")
    with pytest.raises(ValueError, match="cache: nothing was stored"):
        ft.costs(nn.Linear(2, 2), torch.ones(1, 2), "native+fp8-cache")
    with pytest.raises(ValueError, match=r"policy 'int8' is not known; did you mean one of 'w8a8', 'w8a8-smoothquant'"):
        ft.emulate("int8")
    assert fs.training.as_policy("W4A8_SmoothQuant").name == "w4a8-smoothquant"
