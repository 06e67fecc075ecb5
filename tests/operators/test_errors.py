"""`fs.sensitivity` and the table operator x recipe: their rows are the errors and events of plain calls."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import floatsim as fs
from floatsim import operators as ops

pytestmark = pytest.mark.full

NAIVE = fs.array([20.0, 1.0], "fp32")


def rms(found, exact):
    return float(np.linalg.norm(found.values - exact) / np.linalg.norm(exact))


def test_a_row_is_one_call_with_one_other_format():
    x = fs.array(np.random.default_rng(3).normal(10, 1, (4, 50)), "fp32")
    found = fs.sensitivity(ops.layer_norm, x, ["fp16", "bf16"])
    exact = ops.layer_norm(x, recipe="float64")
    assert len(found.rows) == 2 * len(ops.OPERATORS["layer_norm"].variants["two-pass"])
    assert found.baseline == rms(ops.layer_norm(x, recipe="all-fp32"), exact)
    for row in found.rows:
        alone = ops.layer_norm(x, recipe="all-fp32", formats={row.step: row.format})
        assert row.error == rms(alone, exact)
    errors = [row.error for row in found.rows]
    assert errors == sorted(errors, reverse=True)


def test_a_sum_is_swapped_with_its_accumulators():
    x = fs.array(np.ones((1, 4096)), "fp32")
    recipe = ops.Recipe("lanes", accumulate="strided(sequential(fp32), 2, pairwise(fp32))")
    (row,) = (row for row in fs.sensitivity("layer_norm", x, "fp16", recipe=recipe).rows if row.step == "sum")
    with fs.record() as log:
        fs.sum(x, accumulate="strided(sequential(fp16), 2, pairwise(fp16))")
    assert row.absorbed == log["sum.sum"].absorbed


def test_lost_results_rank_first():
    found = fs.sensitivity("softmax", NAIVE, "fp16", variant="naive")
    first = found.rows[0]
    assert (first.step, first.error, first.nonfinite, first.overflow) == ("exp", math.inf, 1, 1)
    assert found.above(1e-2) == ("exp", "sum")
    assert found.above(math.inf) == ()


def test_the_result_prints_and_exports():
    found = fs.sensitivity("softmax", NAIVE, "fp16", variant="naive")
    assert str(found).splitlines()[0].startswith("softmax, naive, all-fp32: error ")
    assert str(found).splitlines()[1].split()[:3] == ["step", "format", "error"]
    assert json.loads(json.dumps(found.to_dict()))["rows"][1]["step"] == "sum"
    assert found.to_pandas().shape == (5, 8)


def test_several_operands_and_batch_norm():
    x, w = fs.array(np.random.default_rng(1).standard_normal((6, 4)), "fp32"), fs.array(np.ones(4), "fp32")
    found = fs.sensitivity("batch_norm", (x, w, w), "e5m2", training=True)
    assert found.variant == "training"
    assert {row.step for row in found.rows} == set(ops.OPERATORS["batch_norm"].variants["training"])


def test_formats_that_a_matrix_unit_does_not_take():
    x = fs.array(np.random.default_rng(1).standard_normal((8, 16)), "fp16")
    found = fs.sensitivity("attention", (x, x, x), "bf16", recipe="flash-attention-2")
    steps = ops.OPERATORS["attention"].variants["flash-kernel"]
    assert [step for step in steps if step not in {row.step for row in found.rows}] == [
        "query", "key", "value", "probabilities",
    ]  # fmt: skip


def test_unknown_operators():
    with pytest.raises(ValueError, match="operator 'softmacks' is not known; did you mean 'softmax'"):
        fs.sensitivity("softmacks", NAIVE)
    with pytest.raises(ValueError, match="operator 'add' is not known"):
        fs.sensitivity(fs.add, NAIVE)


def test_the_table_has_the_errors_of_plain_calls():
    activations = fs.array(fs.datasets.digits()["activations"], "fp16")
    ones = fs.array(np.ones(64), "fp16")
    table = ops.recipe_table(["rms_norm"])
    assert [row.recipe for row in table.rows] == [
        name for name, recipe in ops.RECIPES.items()
        if name not in ("float64", "all-fp32") and (not recipe.operators or "rms_norm" in recipe.operators)
    ]  # fmt: skip
    exact = ops.rms_norm(activations, ones, recipe="float64")
    for row in table.rows:
        assert row.error == rms(ops.rms_norm(activations, ones, recipe=row.recipe), exact)


def test_the_table_has_every_operator():
    rows = ops.recipe_table(recipes=["fp32-inside"]).rows
    assert {row.operator for row in rows} == set(ops.OPERATORS)
    assert max(row.error for row in rows) < 0.03


def test_the_command(run):
    code, out, err = run("operators", "rms_norm,residual_add", "--recipe", "all-fp16", "--scale", 16, "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    expected = ops.recipe_table(["rms_norm", "residual_add"], ["all-fp16"], scale=16)
    assert data["rows"] == list(expected.to_dict()["rows"])
    assert data["rows"][0]["overflow"] > 0
    assert data["recipes"]["all-fp16"]["evidence"]
    code, out, _ = run("operators", "rms_norm", "-r", "all-fp16,fp32-inside")
    assert code == 0
    assert out.splitlines()[0].split()[:4] == ["operator", "variant", "recipe", "error"]
    assert "fp32-inside" in out


@pytest.mark.parametrize(("arguments", "message"), [
    (("softmacks",), "did you mean 'softmax'"), (("softmax", "-r", "all-fp61"), "did you mean 'all-fp16'"),
    (("softmax", "--operands", "fp61"), "--operands"), (("softmax", "--operands", "e8m0"), "scale"),
])  # fmt: skip
def test_bad_input_of_the_command(run, arguments, message):
    code, out, err = run("operators", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_operands_of_sensitivity_as_a_list():
    x = fs.array(np.ones((2, 4)), "fp32")
    with pytest.raises(TypeError, match=r"linear takes the operands \(x, weight, bias\), as a tuple; inputs is a list"):
        fs.sensitivity("linear", [x, x], "fp16")
    with pytest.raises(TypeError, match=r"softmax takes the operands .* inputs is 3 operands"):
        fs.sensitivity("softmax", (x, x, x), "fp16")
    assert fs.sensitivity("linear", (x, x), "fp16").rows


def test_rows_say_whether_the_source_describes_the_operator():
    rows = ops.recipe_table(["softmax", "relu"], ["pytorch-cuda", "all-fp16"]).rows
    assert [(row.operator, row.recipe, row.described) for row in rows if not row.described] == [
        ("relu", "pytorch-cuda", False)
    ]
