"""Plans: which candidate is taken, why faster ones are not, and how short the way to a kernel is."""

from __future__ import annotations

import sys
from pathlib import Path

import floatsim_kernels
import numpy as np
import pytest

import floatsim as fs
from floatsim.accumulation import parse
from floatsim.emulator.dispatch.candidates import CANDIDATES, only
from floatsim.emulator.sums.plan import plan
from floatsim.formats.rounding import Rounding, RoundingAttributes
from tests.emulator.planning import case_of

CHOICES = [
    ("fp32", fs.FP32, fs.FP32, "native"),
    ("fp64", fs.FP64, fs.FP64, "native"),
    ("bf16", fs.BF16, fs.BF16, "float32"),
    ("e5m2", fs.E5M2, fs.E5M2, "float32"),
    ("kahan(e4m3)", fs.E4M3, fs.E4M3, "float32"),
    ("tf32", fs.TF32, fs.TF32, "float64"),
    ("ieee(5,23)", fs.FP16, fs.FP16, "float64"),
    ("exact(fp32)", fs.FP32, fs.FP32, "exact float64"),
    ("e2m1", fs.E2M1, fs.E2M1, "float32"),
    ("sequential(fp16, ftz)", fs.FP16, fs.FP16, "integer"),
    ("hopper", fs.FP16, fs.FP16, "tensorcore float32"),
    ("cdna1", fs.FP16, fs.FP16, "tensorcore float64"),
    ("arm-fp8", fs.E4M3, fs.E5M2, "tensorcore float64"),
    ("blocked(fp16, 4, fp32)", fs.FP16, fs.FP16, "parts"),
]


@pytest.mark.parametrize(("text", "a", "b", "candidate"), CHOICES)
def test_choices(text, a, b, candidate):
    accumulation = fs.accumulation.fitted(parse(text), a, b)
    made = plan(case_of(accumulation, a, b))
    assert made.candidate == candidate
    assert all(refusal.reason for refusal in made.refused)
    assert plan(case_of(accumulation, a, b)) is made


def test_stochastic_sums():
    attributes = RoundingAttributes(Rounding.STOCHASTIC)
    assert plan(case_of(parse("bf16"), fs.BF16, fs.BF16, attributes)).candidate == "stochastic bf16"
    assert plan(case_of(parse("fp16"), fs.FP16, fs.FP16, attributes)).candidate == "float64"
    far = case_of(parse("bf16"), fs.BF16, fs.BF16, attributes, many_draws=True)
    assert plan(far).candidate == "integer"
    reasons = dict(plan(far).refused)
    for candidate in "stochastic bf16", "float32", "float64":
        assert reasons[candidate] == "the indices of draws exceed 32 bits"


def test_events_and_vectors():
    events = frozenset({"overflow"})
    assert plan(case_of(parse("fp16"), fs.FP16, fs.FP16, events=events)).candidate == "counting float32"
    assert plan(case_of(parse("fp32"), fs.FP16, fs.FP16, events=events)).candidate == "integer"
    assert plan(case_of(parse("pairwise(fp16)"), fs.FP16, by_vectors=True)).candidate == "vectors"


def test_only_some_candidates():
    a = fs.array(np.arange(6.0).reshape(2, 3), "fp16")
    want = fs.matmul(a, a.T, accumulate="fp16").codes
    for candidate in CANDIDATES:
        with only(candidate.name):
            used = fs.explain_plan(a, a.T, accumulate="fp16")
            assert used.candidate in {candidate.name, "integer"}
            assert np.array_equal(fs.matmul(a, a.T, accumulate="fp16").codes, want)
    with pytest.raises(ValueError, match="unknown candidate"), only("float16"):
        pass


def test_the_last_candidates_never_refuse():
    """Every format and accumulation has a kernel, under every rounding."""
    for text in (
        "fp16",
        "pairwise(e2m1)",
        "kahan(e4m3fnuz)",
        "neumaier(fp64)",
        "exact(e3m2)",
        "blocked(fp16, 2, e2m1)",
    ):
        for rounding in Rounding:
            attributes = RoundingAttributes(rounding, daz=True, ftz=True, random_bits=64)
            assert plan(case_of(parse(text), fs.FP64, fs.E2M1, attributes)).candidate in ("integer", "parts")


def calls_of(function):
    """The Python calls of a function: (file, name) of every frame of floatsim, its kernels and generated code."""
    calls = []

    def note(frame, event, argument):
        if event == "call":
            calls.append((frame.f_code.co_filename, frame.f_code.co_name))

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    own = str(Path(fs.__file__).parent), str(Path(floatsim_kernels.__file__).parent), "<"
    return [call for call in calls if call[0].startswith(own)]


@pytest.mark.parametrize("accumulation", ["fp16", "bf16", "fp32"])
def test_a_warm_small_product_makes_few_calls(accumulation):
    rng = np.random.default_rng(0)
    a, b = fs.array(rng.standard_normal((16, 24)), "fp16"), fs.array(rng.standard_normal((24, 20)), "fp16")
    for _ in range(3):
        fs.matmul(a, b, accumulate=accumulation)
    calls = calls_of(lambda: fs.matmul(a, b, accumulate=accumulation))
    files = {file for file, _ in calls if not file.startswith("<")}  # generated code has no file
    assert len(calls) <= 60, calls
    assert len(files) <= 14, files
