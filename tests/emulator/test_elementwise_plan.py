"""Plans of element-wise operations: the candidate, the reasons of the others, and the calls of a warm call."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import floatsim_kernels
import numpy as np
import pytest
from floatsim_kernels.runtime import cpu as machine

import floatsim as fs
from floatsim.emulator.elementwise.candidates import CANDIDATES, ELEMENTWISE, only
from floatsim.emulator.elementwise.case import LONG, SIZES
from floatsim.emulator.elementwise.operations import OPERATIONS, Family, arity
from floatsim.emulator.elementwise.plan import plan
from floatsim.emulator.planning import CPU
from tests.emulator.planning import elementwise_case, elementwise_plan

EVERY = CPU(True, True, True, True)
NO_FMA, NO_F16C = EVERY._replace(has_fma=False), EVERY._replace(has_half_conversion=False)
FLUSHING = EVERY._replace(keeps_subnormals=False)
P24, P25 = fs.FloatFormat.ieee(8, 23), fs.FloatFormat.ieee(8, 24)
FEW = {"size": 0}
SR = {"rounding": "stochastic"}

# a candidate; a case that it takes; cases that it refuses, one step beyond each of its conditions. A case is the name,
# the formats of the operands and of the result, and keywords.
BOTH_SIDES = [
    ("native", ("add", (fs.FP32, fs.FP16), fs.FP32, {}), [
        ("add", (fs.FP32, fs.FP64), fs.FP32, {}),
        ("add", (fs.FP16, fs.FP16), fs.FP16, {}),
        ("fma", (fs.FP32,) * 3, fs.FP32, {}),
        ("add", (fs.FP32, fs.FP16), fs.FP32, {"rounding": "toward_zero"}),
        ("add", (fs.FP32, fs.FP16), fs.FP32, {"overflow": "saturate_finite"}),
        ("add", (fs.FP32, fs.FP16), fs.FP32, {"ftz": True}),
        ("add", (fs.FP32, fs.FP16), fs.FP32, {"events": True}),
        ("add", (fs.FP32, fs.FP16), fs.FP32, {"cpu": FLUSHING}),
    ]),
    ("table", ("add", (fs.E4M3, fs.E5M2), fs.FP16, {}), [
        ("add", (fs.E4M3, fs.E5M2), fs.FP16, {"size": LONG}),
        ("add", (fs.E4M3, fs.FP16), fs.FP16, {}),
        ("add", (fs.E4M3, fs.E5M2), fs.FP16, SR),
        ("sqrt", (fs.FP16,), fs.FP16, {}),
    ]),
    ("table", ("exp", (fs.FP16,), fs.FP16, {"events": True}), [
        ("exp", (fs.FP16,), fs.FP16, {"size": LONG}),
        ("exp", (fs.TF32,), fs.TF32, {}),
        ("exp", (fs.FP16,), fs.FP16, SR),
    ]),
    ("rounded", ("convert", (fs.FP32,), fs.E4M3, {"events": True}), [
        ("convert", (fs.FP32,), P25, {}),
        ("convert", (fs.FP32,), fs.E4M3, {"daz": True}),
        ("convert", (fs.FP32,), fs.E4M3, {"ftz": True}),
        ("convert", (fs.FP32,), fs.E4M3, SR | {"random_bits": 33}),
        ("convert", (fs.FP32,), fs.E4M3, SR | {"events": True}),
        ("convert", (fs.FP32,), fs.E4M3, {"events": True, "size": SIZES[1]}),
        ("convert", (fs.FP32,), fs.E8M0, {}),
        ("convert", (fs.FP32,), fs.E4M3, {"cpu": FLUSHING}),
    ]),
    ("rounded", ("quantize", (fs.FP64,), fs.FP16, {}), [
        ("quantize", (fs.FP64,), fs.FP16, {"events": True}),
        ("quantize", (fs.FP64,), fs.FP64, {}),
        ("quantize", (fs.TF32,), fs.BF16, {}),
    ]),
    ("widened", ("convert", (fs.BF16,), fs.FP64, {}), [
        ("convert", (fs.BF16,), fs.FP64, {"daz": True}),
        ("convert", (fs.BF16,), fs.FP64, {"overflow": "saturate_finite"}),
        ("convert", (fs.BF16,), fs.TF32, {}),
        ("convert", (P25,), fs.FP64, {}),
        ("convert", (fs.BF16,), fs.FP64, {"cpu": FLUSHING}),
    ]),
    ("widened", ("convert", (fs.FP64,), fs.FP64, {"cpu": FLUSHING}), [
        ("convert", (fs.FP64,), fs.FP64, {"ftz": True}),
        ("convert", (fs.FP64,), fs.FP64, {"overflow": "saturate_finite"}),
        ("convert", (fs.FP64,), fs.FP32, {}),
        ("convert", (fs.FP64,), fs.FP64, {"events": True, "cpu": FLUSHING}),
    ]),
    ("rounded", ("convert", (fs.FP16,), fs.E5M2, SR), [
        ("convert", (P25,), fs.E5M2, {}),
        ("convert", (fs.FP16,), fs.FP32, {}),
        ("convert", (fs.FP16,), fs.E5M2, {"daz": True}),
        ("convert", (fs.FP16,), fs.E5M2, {"cpu": FLUSHING}),
    ]),
    ("looked up", ("convert", (fs.E4M3,), fs.FP16, {"daz": True, "cpu": FLUSHING}), [
        ("convert", (fs.FP16,), fs.FP16, {"daz": True}),
        ("convert", (fs.E4M3,), fs.FP16, SR | {"daz": True}),
        ("convert", (fs.E8M0,), fs.E8M0, {}),
        ("convert", (fs.E4M3,), fs.FP16, {"daz": True, "events": True}),
    ]),
    ("ordered", ("maximum", (fs.FP64,) * 2, fs.FP64, {"cpu": FLUSHING, "rounding": "to_odd"}), [
        ("maximum", (fs.FP64,) * 2, fs.FP64, {"daz": True}),
        ("maximum", (fs.FP32, fs.FP64), fs.FP64, {}),
        ("maximum", (fs.FP64,) * 2, fs.FP64, {"events": True}),
    ]),
    ("fused native", ("fma", (fs.BF16, fs.FP32, fs.E4M3), fs.FP32, {"cpu": EVERY}), [
        ("fma", (fs.FP32,) * 3, fs.FP16, {"cpu": EVERY}),
        ("fma", (fs.FP32,) * 3, fs.FP32, {"cpu": NO_FMA}),
        ("fma", (fs.FP32, fs.FP64, fs.FP32), fs.FP32, {"cpu": EVERY}),
        ("fma", (fs.FP32,) * 3, fs.FP32, {"cpu": EVERY, "events": True}),
        ("fma", (fs.FP32,) * 3, fs.FP32, {"cpu": EVERY, "rounding": "toward_zero"}),
        ("fma", (fs.FP32,) * 3, fs.FP32, {"cpu": FLUSHING}),
        ("add", (fs.FP32,) * 2, fs.FP32, {"cpu": EVERY}),
    ]),
    ("own format", ("add", (fs.FP16,) * 2, fs.FP16, {"cpu": EVERY}), [
        ("add", (fs.FP16,) * 2, fs.FP16, {"cpu": NO_F16C}),
        ("add", (fs.FP16,) * 2, fs.FP16, {"cpu": EVERY._replace(keeps_subnormals=False)}),
        ("add", (fs.E5M2, fs.FP16), fs.FP16, {"cpu": EVERY}),
        ("add", (fs.E4M3,) * 2, fs.E4M3, {"size": 0}),
        ("add", (fs.FP16,) * 2, fs.FP16, {"cpu": EVERY, "overflow": "saturate_finite"}),
        ("add", (fs.FP16,) * 2, fs.FP16, {"cpu": EVERY, "rounding": "toward_zero"}),
        ("rint", (fs.FP16,), fs.FP16, {"cpu": EVERY, "rounding": "to_odd", "size": 0}),
        ("fma", (fs.FP16,) * 3, fs.FP16, {"cpu": EVERY}),
        ("add", (fs.FP16,) * 2, fs.FP16, {"cpu": EVERY, "daz": True}),
    ]),
    ("float32", ("add", (fs.E4M3,) * 2, fs.E4M3, {"size": 0}), [
        ("add", (fs.FloatFormat.ieee(5, 11),) * 2, fs.FloatFormat.ieee(5, 11), {}),  # 2 p + 2 = 26
        ("add", (fs.E4M3,) * 2, fs.E4M3, {"size": 0, "rounding": "toward_zero"}),
        ("add", (fs.E4M3,) * 2, fs.E4M3, {"size": 0, "ftz": True}),
        ("fma", (fs.E4M3,) * 3, fs.E4M3, {}),
        ("add", (fs.E5M2, fs.E4M3), fs.E4M3, {"size": 0}),
        ("add", (fs.E4M3,) * 2, fs.E4M3, {"size": 0, "cpu": FLUSHING}),
    ]),
    ("carried", ("multiply", (fs.BF16,) * 2, fs.BF16, SR), [
        ("divide", (fs.BF16,) * 2, fs.BF16, SR),
        ("multiply", (fs.FP16,) * 2, fs.FP16, SR),
        ("multiply", (fs.BF16,) * 2, fs.BF16, SR | {"random_bits": 33}),
        ("multiply", (fs.BF16,) * 2, fs.BF16, SR | {"overflow": "saturate_finite"}),
        ("multiply", (fs.BF16,) * 2, fs.BF16, {"rounding": "toward_zero"}),
        ("multiply", (fs.FP32, fs.BF16), fs.BF16, SR),
        ("multiply", (fs.BF16,) * 2, fs.BF16, SR | {"cpu": FLUSHING}),
    ]),
    ("odd float64", ("fma", (fs.FP16,) * 3, fs.FP16, {"cpu": EVERY}), [
        ("fma", (fs.FP16,) * 3, fs.FP16, {"cpu": NO_FMA}),
        ("fma", (fs.FP16,) * 3, fs.FP16, {"cpu": EVERY, "daz": True}),
        ("fma", (P25,) * 3, P25, {"cpu": EVERY}),
        ("fma", (fs.FP16, fs.FP16, fs.FP32), fs.FP16, {"cpu": EVERY}),
        ("fma", (fs.FP16,) * 3, fs.FP16, SR | {"cpu": EVERY, "random_bits": 33}),
        ("fma", (fs.FP16,) * 3, fs.FP16, {"cpu": FLUSHING}),
        ("remainder", (fs.FP16,) * 2, fs.FP16, {"cpu": EVERY}),
    ]),
    ("single stochastic", ("add", (fs.FP32, fs.BF16), fs.FP32, SR | {"cpu": EVERY}), [
        ("add", (fs.FP32, fs.BF16), fs.FP32, SR | {"cpu": NO_FMA}),
        ("add", (fs.FP32, fs.BF16), fs.FP32, SR | {"cpu": EVERY, "random_bits": 33}),
        ("add", (fs.FP32, fs.FP64), fs.FP32, SR | {"cpu": EVERY}),
        ("add", (fs.FP32, fs.BF16), fs.FP32, {"cpu": EVERY, "rounding": "to_odd"}),
        ("add", (fs.FP32, fs.BF16), fs.FP32, SR | {"cpu": EVERY, "events": True}),
        ("add", (fs.FP32, fs.BF16), fs.FP32, SR | {"cpu": FLUSHING}),
    ]),
    ("nearest float32", ("exp", (fs.FP32,), fs.FP32, {}), [
        ("exp", (fs.FP32,), fs.FP32, {"events": True}),
        ("exp", (fs.FP32,), fs.FP32, {"rounding": "toward_zero"}),
        ("exp", (fs.FP32,), fs.FP16, {}),
        ("power", (fs.FP32,) * 2, fs.FP32, {}),
        ("exp", (fs.FP32,), fs.FP32, {"cpu": FLUSHING}),
    ]),
    ("enclosed", ("exp", (P24,), fs.FloatFormat.ieee(8, 29), {"events": True}), [
        ("exp", (P25,), fs.FP32, {}),
        ("exp", (fs.FP32,), fs.FloatFormat.ieee(8, 30), {}),
        ("exp", (fs.FP32,), fs.FP16, {"cpu": FLUSHING}),
    ]),
    ("last table", ("remainder", (fs.E4M3,) * 2, fs.E4M3, {}), [
        ("remainder", (fs.E4M3,) * 2, fs.E4M3, {"size": LONG}),
        ("remainder", (fs.E4M3, fs.FP16), fs.FP16, {}),
        ("minimum", (fs.E4M3,) * 2, fs.E4M3, SR | {"events": True}),
    ]),
]  # fmt: skip


def candidate_of(name):
    return next(each for each in CANDIDATES if each.name == name)


@pytest.mark.parametrize(("name", "taken", "refused"), BOTH_SIDES, ids=lambda x: x if isinstance(x, str) else "")
def test_both_sides_of_each_refusal(name, taken, refused):
    candidate = candidate_of(name)
    operation, sources, fmt, keywords = taken
    assert OPERATIONS[operation].family in candidate.takes
    assert candidate.refusal(elementwise_case(operation, sources, fmt, **keywords)) is None
    for operation, sources, fmt, keywords in refused:
        case = elementwise_case(operation, sources, fmt, **keywords)
        takes = OPERATIONS[operation].family in candidate.takes
        assert not takes or candidate.refusal(case), (str(case), keywords)


def test_every_candidate_that_refuses_is_tested():
    never = ELEMENTWISE.always
    assert {name for name, *_ in BOTH_SIDES} == {candidate.name for candidate in CANDIDATES} - never
    for name in never:
        case = elementwise_case("add", (fs.E8M0,), fs.E8M0, cpu=FLUSHING, daz=True, events=True)
        assert candidate_of(name).refusal(case) is None


def test_each_family_has_a_candidate_that_never_refuses():
    last = [candidate for candidate in CANDIDATES if candidate.name in ELEMENTWISE.always]
    for family in Family:
        assert sum(family in candidate.takes for candidate in last) == 1


CHOICES = [
    ("add", fs.FP32, {}, "native"),
    ("add", fs.FP32, {"rounding": "to_odd"}, "odd float64"),
    ("add", fs.FP32, SR, "single stochastic"),
    ("add", fs.E4M3, {}, "table"),
    ("add", fs.E4M3, FEW, "float32"),
    ("add", fs.FP16, {"rounding": "toward_zero"}, "odd float64"),
    ("add", fs.BF16, SR, "carried"),
    ("add", fs.FP64, {"rounding": "to_odd"}, "integers"),
    ("maximum", fs.E4M3, {}, "ordered"),
    ("maximum", fs.E4M3, {"daz": True}, "last table"),
    ("remainder", fs.FP16, {}, "integers"),
    ("convert", fs.FP16, {}, "rounded"),
    ("exp", fs.FP16, {}, "table"),
    ("exp", fs.FP16, FEW, "enclosed"),
    ("exp", fs.FP32, {}, "nearest float32"),
    ("exp", fs.FP64, {}, "reference"),
    ("quantize", fs.FP32, {"daz": True}, "two conversions"),
]


@pytest.mark.parametrize(("name", "fmt", "keywords", "candidate"), CHOICES)
def test_choices(name, fmt, keywords, candidate):
    if candidate in ("odd float64", "single stochastic") and not machine.has_fma():
        candidate = "integers"
    made = elementwise_plan(name, (fmt,) * arity(name), fs.E5M2 if name in ("convert", "quantize") else fmt, **keywords)
    assert made.candidate == candidate
    assert all(refusal.reason for refusal in made.refused)
    assert plan(replace(made.case)) is made


def test_only_some_candidates_compute_the_same_bits():
    """Each candidate alone, with the integer kernels for what it refuses."""
    rng = np.random.default_rng(1)
    x, y = (fs.from_codes(rng.choice(fs.E4M3.codes(), 1 << 14), "e4m3") for _ in range(2))
    calls = {
        "add": (x, y), "remainder": (x, y), "maximum": (x, y), "floor": (x,), "fma": (x, y, y), "tanh": (x,),
    }  # fmt: skip
    want = {name: getattr(fs, name)(*operands, return_flags=True) for name, operands in calls.items()}
    used = set()
    for candidate in CANDIDATES:
        with only(candidate.name, "enclosed"):
            for name, operands in calls.items():
                used.add(fs.explain_plan(name, *operands).candidate)
                got, (codes, flags) = getattr(fs, name)(*operands), getattr(fs, name)(*operands, return_flags=True)
                assert np.array_equal(got.codes, want[name][0].codes), (candidate.name, name)
                assert np.array_equal(codes.codes, want[name][0].codes), (candidate.name, name)
                assert np.array_equal(flags, want[name][1]), (candidate.name, name)
    assert {"table", "last table", "ordered", "float32", "enclosed", "integers"} <= used
    with pytest.raises(ValueError, match="unknown candidate 'float16'"), only("float16"):
        pass


def test_a_plan_is_printed_with_its_refusals_and_parts():
    x = fs.array([1.0, 2.0], "bf16")
    lines = str(fs.explain_plan("exp", x, format="fp32", return_flags=True)).splitlines()
    assert lines[0] == "exp of bf16 to fp32: enclosed"
    assert "  convert of bf16 to fp64: integers" in lines
    assert "    not widened: the integer kernels find the events of few elements" in lines
    assert fs.explain_plan("fma", x, x, 2.0).candidate in ("odd float64", "integers")
    with fs.record():
        assert fs.explain_plan("add", x, x).candidate == "integers"
    assert fs.explain_plan("add", x, x).candidate == "own format"
    with pytest.raises(ValueError, match=r"no plan is made for 'expp'.*'exp'"):
        fs.explain_plan("expp", x)
    with pytest.raises(TypeError, match="add takes 2 operands, not 1"):
        fs.explain_plan("add", x)


def test_undecided_blocks_have_a_plan_of_the_integer_kernels():
    made = elementwise_plan("add", (fs.FP32,) * 2, fs.FP32, cpu=EVERY, **SR)
    assert [part.candidate for part in made.parts] == ["integers"]


# -- the number of calls -----------------------------------------------------------------------------------------------

FOLDERS = str(Path(fs.__file__).parent), str(Path(floatsim_kernels.__file__).parent)


def calls_of(function):
    """The number of calls of floatsim's own Python functions in a warm call, in a process without torch and jax."""
    for _ in range(3):
        function()
    calls = []
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code) if event == "call" else None)
    try:
        function()
    finally:
        sys.setprofile(None)
    return sum(code.co_filename.startswith(FOLDERS) for code in calls)


def limits():
    rng = np.random.default_rng(0)
    x, y = (fs.array(rng.standard_normal(100), "fp16") for _ in range(2))
    rows = fs.array(rng.standard_normal((8, 16)), "fp16")
    a, b = fs.array(rng.standard_normal((16, 24)), "fp16"), fs.array(rng.standard_normal((24, 20)), "fp16")
    left, right = np.ones((16, 24), np.float16), np.ones((24, 20), np.float16)
    return {
        "exp": (60, lambda: fs.exp(x)),
        "add": (45, lambda: fs.add(x, y)),
        "softmax": (330, lambda: fs.operators.softmax(rows)),
        "a @ b": (70, lambda: a @ b),
        "matmul": (46, lambda: fs.matmul(left, right, accumulate="fp16")),
        "matmul by a description": (48, lambda: fs.matmul(left, right, accumulate=fs.Sequential("fp16"))),
        "quantize": (37, lambda: fs.quantize(np.ones(100, np.float32), "bf16")),
        "encode": (44, lambda: fs.encode(np.ones(100, np.float32), "bf16")),
    }


@pytest.mark.parametrize("name", limits())
def test_a_warm_call_makes_few_calls(name, monkeypatch):
    """Counted, not timed; a comprehension is a call before Python 3.12."""
    for library in ("torch", "jax"):  # where one is imported, every operand is asked whether it is its array
        monkeypatch.delitem(sys.modules, library, raising=False)
    limit, function = limits()[name]
    assert calls_of(function) <= limit
