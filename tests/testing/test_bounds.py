"""A priori bounds: no correct result is outside, the bounds are not far too wide, and bugs are."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import floatsim as fs
from floatsim.testing.bounds import path_of

DESCRIPTIONS = (
    "fp32", "sequential(fp32, fused)", "pairwise(fp32)", "pairwise(fp32, halving)", "pairwise(fp32, numpy)", "fp16",
    "sequential(fp16, product=none)", "strided(fp32, 4)", "blocked(fp16, 16, fp32)", "splitk(3, fp32, fp32)",
    "exact(fp16)", "sequential(bf16, rounding=toward_zero)", "blocked(pairwise(fp16), 8, fp16)", "hopper", "ampere",
    "volta", "cdna1", "cdna2", "cdna3", "blocked(hopper, 32, fp32)", "sequential(fp16, ftz)",
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("kind", ["normal", "cancelling", "integers", "subnormal", "one_k"])
@pytest.mark.parametrize("description", DESCRIPTIONS)
def test_no_correct_result_is_outside(description, kind):
    for seed, k in enumerate((1, 5, 64, 130)):
        a, b = fs.testing.hard_inputs((20, k, 20), "fp16", kind, accumulator="fp16", seed=seed)
        for format in (None, "bf16"):
            kernel = fs.matmul(a, b, accumulate=description, format=format)
            report = fs.testing.assert_within_bound(kernel, a, b, accumulate=description)
            assert report.passed


@pytest.mark.full
def test_fp8_and_c():
    rng = np.random.default_rng(0)
    for unit in ("hopper", "ada", "blackwell", "tensorcore(hopper, mma.m16n8k32)"):
        a, b = fs.testing.hard_inputs((20, 100, 20), "e4m3", "cancelling")
        c = rng.standard_normal((20, 20)).astype(np.float32)
        fs.testing.assert_within_bound(fs.matmul(a, b, c, accumulate=unit), a, b, c, accumulate=unit)
    a, b = fs.testing.hard_inputs((20, 100, 20), "bf16", "normal")
    kernel = fs.matmul(a, b, c, accumulate="pairwise(fp32)")
    fs.testing.assert_within_bound(kernel, a, b, c, accumulate="pairwise(fp32)")


def test_the_bound_holds_for_exact_fractions():
    """Independent of the emulator: NumPy's float32 sums in order, against sums of fractions."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 40), (40, 6)))
    kernel = np.add.accumulate(a[:, :, np.newaxis] * b[np.newaxis], axis=1)[:, -1]
    bound = fs.testing.error_bound(a, b, accumulate="fp32").bound
    for i, j in np.ndindex(6, 6):
        exact = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[i], b[:, j], strict=True))
        error = abs(Fraction(float(kernel[i, j])) - exact)
        assert error <= Fraction(float(bound[i, j]))
        assert bound[i, j] <= 1.1 * 41 * 2.0**-24 * (np.abs(a[i]) @ np.abs(b[:, j]))


def test_paths_have_the_published_lengths():
    fp16 = fs.FP16

    def steps(text, n, **options):
        return path_of(fs.as_accumulation(text), n, fp16, fp16, **options).steps

    assert steps("fp32", 100) == 100  # a product and 99 additions: gamma_n of an inner product
    assert steps("fp32", 100, with_c=True) == 101
    assert steps("sequential(fp32, fused)", 100) == 100
    assert steps("pairwise(fp32)", 100) == 1 + 7
    assert steps("blocked(fp32, 10, fp32)", 100) == 1 + 9 + 9
    assert steps("strided(fp32, 4)", 100) == 1 + 24 + 2
    assert steps("exact(fp32)", 100) == 1
    assert steps("fp32", 100, products=False) == 99


def test_probabilistic_bounds_grow_with_the_root():
    a, b = np.ones((1, 4096), np.float32), np.ones((4096, 1), np.float32)
    plain = fs.testing.error_bound(a, b)
    likely = fs.testing.error_bound(a, b, probability=0.999)
    assert plain.factor == pytest.approx(4096 * 2.0**-24, rel=1e-3)
    scale = math.sqrt(2 * math.log(2 * 4096 / 0.001))
    assert likely.factor == pytest.approx(scale * 64 * 2.0**-24, rel=1e-2)
    assert "Higham and Mary 2019" in str(likely) and "Lemma 3.1" in str(plain)


@pytest.mark.full
def test_bugs_are_outside():
    a, b = fs.testing.hard_inputs((32, 256, 32), "bf16", "normal")
    cut = np.array(a)
    cut[:, 100] = 0
    for wrong in (fs.matmul(a, b, accumulate="fp16"), fs.matmul(cut, b, accumulate="fp32")):
        with pytest.raises(AssertionError, match=r"elements are outside the bound"):
            fs.testing.assert_within_bound(wrong, a, b)


@pytest.mark.parametrize("ulps", [0.5, 2.0])
def test_softmax(ulps):
    rng = np.random.default_rng(2)
    for spread in (0.1, 5, 60):
        x = (rng.standard_normal((30, 200)) * spread).astype(np.float32)
        shifted = x - x.max(-1, keepdims=True)
        terms = np.exp(shifted, dtype=np.float32) if ulps == 2.0 else np.exp(shifted.astype(np.float64)).astype("f4")
        computed = terms / np.add.accumulate(terms, axis=1, dtype=np.float32)[:, -1:]
        bound = fs.testing.softmax_bound(x, exp_ulps=ulps)
        assert fs.testing.check_bound(computed, bound).passed
        assert not fs.testing.check_bound(computed * np.float32(1.001), bound).passed


def test_attention():
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((40, 64)).astype(np.float32) for _ in range(3))
    mask = np.tri(40, dtype=bool)
    scores = np.where(mask, np.float32(1 / 8) * (q @ k.T), np.float32(-np.inf))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    computed = (weights / weights.sum(-1, keepdims=True)) @ v
    bound = fs.testing.attention_bound(q, k, v, mask=mask)
    assert fs.testing.check_bound(computed, bound).passed
    assert not fs.testing.check_bound(np.roll(computed, 1, 0), bound).passed
    assert bound.bound.max() < 1e-3


@pytest.mark.parametrize(("call", "words"), [
    (lambda x: fs.testing.error_bound(x, x, accumulate="kahan(fp32)"), "published bounds of compensated sums"),
    (lambda x: fs.testing.error_bound(x, x, probability=1.0), "probability must be between 0 and 1"),
    (lambda x: fs.testing.error_bound(x, x, accumulate="sequential(fp32, rounding=rtz)", probability=0.9), "truncate"),
    (lambda x: fs.testing.attention_bound(x, x[:, :1], x), r"q, k and v must be"),
])  # fmt: skip
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call(np.ones((2, 2), np.float32))
