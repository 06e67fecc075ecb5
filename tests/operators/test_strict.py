"""`strict=True`: calls that were compared with a GPU are computed, all others are refused, operator by operator."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim import operators as ops
from floatsim.operators.evidence import EVIDENCE, evidence_table
from tests.operators import recorded_rows

DOCS = Path(__file__).parents[2] / "docs"
CALLS = [(recipe, operator) for recipe, operators in EVIDENCE.items() for operator in operators]
ATTENTION = [(recipe, operator) for recipe, operator in CALLS if operator.startswith("attention")]
ROWS = [operator for operator in EVIDENCE["pytorch-cuda"] if operator != "gelu"]
FACTS = {
    "format": "FP32", "rows": 4, "columns": 8, "axis": "last", "parameters": "weight and bias", "changes": "none",
    "context": "default", "heads": 2, "keys": 64, "d": 64, "shapes": "of one length", "mask": "none",
    "options": "default",
}  # fmt: skip
"""A call. Each test replaces facts of it."""
CHANGES = {"none": {}, "output in FP32": {"formats": {"output": "fp32"}}}


def drawn(shape, fmt, count=1):
    rng = np.random.default_rng(1)
    return [fs.array(rng.standard_normal(shape).astype(np.float32), fmt) for _ in range(count)]


def call(recipe, operator, facts, **keywords):
    """The result of a call with these facts."""
    of = FACTS | facts
    fmt = of["format"].lower()
    keywords = {"recipe": recipe} | CHANGES.get(of["changes"], {}) | keywords
    function = getattr(ops, operator)
    if operator.startswith("attention"):
        count = 4 if operator == "attention_backward" else 3
        operands = drawn((1, of["heads"], of["keys"], of["d"]), fmt, count)
        if of["shapes"] != "of one length":
            operands[-3] = operands[-3][..., :-1, :]
            operands[0] = operands[0][..., : operands[-3].shape[-2], :]
        keywords |= {"causal": True} if of["mask"] == "causal" else {}
        keywords |= {"mask": np.ones(of["keys"], bool)} if of["mask"] == "given" else {}
        keywords |= {"scale": 0.5} if of["options"] != "default" else {}
        return function(*operands, **keywords)
    x, g = drawn((of["rows"], of["columns"]), fmt, 2)
    if "softmax" in operator:
        operands = (g, ops.softmax(x)) if operator.endswith("backward") else (x,)
        return function(*operands, **keywords, axis=-1 if of["axis"] == "last" else 0)
    if operator.startswith("cross_entropy"):
        return function(x, np.zeros(of["rows"], int), **keywords)
    if "norm" in operator:
        names = of["parameters"].split(" and ")
        weight, bias = (drawn(of["columns"], fmt)[0] if name in names else None for name in ("weight", "bias"))
        operands = (g, x) if operator.endswith("backward") else (x,)
        return function(*operands, weight, *([bias] if operator == "layer_norm" else []), **keywords)
    return function(x, **keywords)


def least(row):
    """The facts of the smallest call that a row holds."""
    return {name: values[0] for name, values in row.facts.items()}


def codes_of(found):
    parts = found if isinstance(found, tuple) else (found,)
    return [part.codes.tolist() for part in parts if part is not None]


@pytest.mark.parametrize(("recipe", "operator"), CALLS)
def test_compared_calls_are_computed(recipe, operator):
    for row in EVIDENCE[recipe][operator]:
        facts = least(row)
        strict = call(recipe, operator, facts, strict=True, device="h200", version="2.11.0+cu130")
        assert codes_of(strict) == codes_of(call(recipe, operator, facts))


@pytest.mark.parametrize(("operator", "most"), [
    (operator, max(row.facts["columns"][-1] for row in EVIDENCE["pytorch-cuda"][operator])) for operator in ROWS
])  # fmt: skip
def test_the_widest_rows(operator, most):
    facts = {name: value for name, value in least(EVIDENCE["pytorch-cuda"][operator][0]).items() if name != "columns"}
    if operator != "cross_entropy_backward":
        call("pytorch-cuda", operator, facts | {"columns": most}, strict=True)
    with pytest.raises(fs.NotDescribedError, match=rf"{operator} with columns {most + 1:,} was not compared"):
        call("pytorch-cuda", operator, facts | {"columns": most + 1}, strict=True)


OUTSIDE = {
    "format": "FP64", "rows": 257, "columns": 3, "axis": "before the last", "parameters": "bias", "heads": 3,
    "keys": 65, "d": 60, "shapes": "of several lengths", "mask": "given", "options": "given",
}  # fmt: skip
"""A value of each fact that no row has."""
CASES = [
    (recipe, operator, name)
    for recipe, operator in CALLS
    for name in sorted({name for row in EVIDENCE[recipe][operator] for name in row.facts})
    if name not in ("changes", "context") and not (name == "parameters" and operator != "layer_norm")
]


@pytest.mark.parametrize(("recipe", "operator", "name"), CASES)
def test_other_calls_are_refused(recipe, operator, name):
    facts = least(EVIDENCE[recipe][operator][0]) | {name: OUTSIDE[name]}
    if name == "format":
        facts["format"] = "E5M2"  # no other format was recorded
    with pytest.raises(fs.NotDescribedError, match=rf"^{operator} .*was not compared with an NVIDIA H200.*compared: "):
        call(recipe, operator, facts, strict=True)
    if recipe == "pytorch-cuda" and name != "format":
        call(recipe, operator, facts)  # without strict, the rule applies


def test_norms_without_a_weight():
    for operator in ("rms_norm", "rms_norm_backward", "layer_norm_backward"):
        with pytest.raises(fs.NotDescribedError, match=f"{operator} with parameters none"):
            call("pytorch-cuda", operator, {"parameters": "none"}, strict=True)
        call("pytorch-cuda", operator, {"parameters": "none"})


@pytest.mark.parametrize(("keywords", "named"), [
    ({"variant": "online"}, "changes variant online"), ({"formats": {"exp": "bf16"}}, "changes exp in BF16"),
    ({"accumulations": {"sum": "fp32"}}, "changes another accumulation of sum"),
])  # fmt: skip
def test_a_changed_recipe_was_not_compared(keywords, named):
    with pytest.raises(fs.NotDescribedError, match=f"softmax with {named} was not compared"):
        call("pytorch-cuda", "softmax", {}, strict=True, **keywords)


def test_the_named_fact_is_that_of_the_row_of_the_same_format():
    """A row of FP32 with more columns lacks one fact as well."""
    (x,) = drawn((1, 8193), "bf16")
    with pytest.raises(fs.NotDescribedError, match="softmax with columns 8,193 was not compared"):
        ops.softmax(x, recipe="pytorch-cuda", strict=True)


def test_options_of_the_context_were_not_compared():
    with fs.context(ftz=True), pytest.raises(fs.NotDescribedError, match="softmax with context changed"):
        call("pytorch-cuda", "softmax", {}, strict=True)


def test_operands_of_two_formats_were_not_compared():
    (x,), (w,) = drawn((4, 8), "fp16"), drawn(8, "fp32")
    with pytest.raises(fs.NotDescribedError, match="layer_norm with format FP16 and FP32"):
        ops.layer_norm(x, w, w, recipe="pytorch-cuda", strict=True)


def test_gelu_of_fp32_is_refused_and_named():
    with pytest.raises(fs.NotDescribedError, match=r"gelu with format FP32 .*compared: format FP16 or BF16"):
        call("pytorch-cuda", "gelu", {}, strict=True)


def test_operators_and_recipes_without_recordings():
    (x,) = drawn((4, 8), "fp16")
    known = re.escape(", ".join(EVIDENCE["pytorch-cuda"]))
    for operator in (ops.relu, ops.silu):
        with pytest.raises(fs.NotDescribedError, match=f"was not compared with a device; compared: {known}$"):
            operator(x, recipe="pytorch-cuda", strict=True)
    own = ops.Recipe("pytorch-cuda")  # the name alone is not enough
    for recipe in ("fp32-inside", "pytorch-cpu", "float64", own):
        for keywords in ({"strict": True}, {"device": "h200"}):
            with pytest.raises(fs.NotDescribedError, match=r"was not compared with .*; compared: pytorch-cuda, flash"):
                ops.softmax(x, recipe=recipe, **keywords)


@pytest.mark.parametrize(("keywords", "error", "message"), [
    ({"device": "a100"}, fs.NotDescribedError, "device='a100' is not described; described: h200"),
    ({"device": "h200", "version": "2.12.0"}, fs.NotDescribedError, "version='2.12.0' .*described: 2.11.0"),
    ({"version": "2.11.0"}, TypeError, "pass device="), ({"strict": "yes"}, TypeError, "strict must be"),
    ({"device": 3}, TypeError, "device must be a text, such as 'h200', not 3"),
    ({"device": "h200", "version": 2.11}, TypeError, "version must be a text, such as '2.11.0', not 2.11"),
])  # fmt: skip
def test_devices_and_versions(keywords, error, message):
    with pytest.raises(error, match=message):
        call("pytorch-cuda", "softmax", {}, **keywords)


def test_the_table_is_in_the_documentation():
    assert evidence_table() in (DOCS / "gpu-known-bits.md").read_text()


@pytest.mark.skipif(recorded_rows.FOLDER is None, reason="FLOATSIM_H200 names the folder of an H200's recordings")
def test_rows_of_the_table_are_recorded():
    """The ends of each range of columns with four rows, and the numbers of keys, are recorded."""
    recorded = {tuple(key.split("|")[1:]) for key in recorded_rows.everything() if key.startswith("rows|")}
    for operator in ROWS:
        for row in EVIDENCE["pytorch-cuda"][operator]:
            columns = row.facts["columns"]
            if row.facts["rows"] not in (range(1, 5), (1,)):
                continue
            name = operator.replace("_backward", ".dx")
            name += "_plain" * (row.facts.get("parameters") == ("none",))
            name = "softmax32" if row.facts["changes"] != ("none",) else name
            for fmt in row.facts["format"]:
                assert {(name, fmt.lower(), str(columns[0])), (name, fmt.lower(), str(columns[-1]))} <= recorded


@pytest.mark.skipif(recorded_rows.FOLDER is None, reason="FLOATSIM_H200 names the folder of an H200's recordings")
@pytest.mark.parametrize("fmt", ["fp16", "bf16"])
def test_scores_of_a_transformer(fmt):
    """256 rows of 32 columns: the softmax of attention, and its gradient."""
    with np.load(Path(recorded_rows.FOLDER) / "training" / "attention.npz") as recorded:
        scores, p, dp = (
            fs.FloatArray(recorded[f"{name}|plain|{fmt}"], fs.as_format(fmt)) for name in ("scores", "p", "dp")
        )
        keywords = {"recipe": "pytorch-cuda", "strict": True}
        np.testing.assert_array_equal(ops.softmax(scores, **keywords).codes, p.codes)
        found = ops.softmax_backward(dp, p, **keywords)
        np.testing.assert_array_equal(found.codes, recorded[f"dscores|plain|{fmt}"])


@pytest.mark.skipif(recorded_rows.FOLDER is None, reason="FLOATSIM_H200 names the folder of an H200's recordings")
def test_shares_of_the_documentation():
    """The shares of conversions, optimizers and attention; other tests compare the rows and functions."""
    path = Path(__file__).parents[2] / "tools" / "measure_known_bits.py"
    spec = importlib.util.spec_from_file_location("measure_known_bits", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = (DOCS / "gpu-known-bits.md").read_text()
    lines = tool.table((tool.casts, tool.optimizers, tool.attention)).splitlines()
    assert len(lines) > 30
    assert [line for line in lines if line not in page] == []
