"""A priori bounds: no correct result is outside, the bounds are not far too wide, and bugs are."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import floatsim as fs
from floatsim.formats.value_sets import TermRange
from floatsim.testing.bounds.bounds import path_of
from floatsim.testing.bounds.compensated import kahan_growth, neumaier_growth
from tests.marks import cases

DESCRIPTIONS = (
    "fp32", "sequential(fp32, fused)", "pairwise(fp32)", "pairwise(fp32, halving)", "pairwise(fp32, numpy)", "fp16",
    "sequential(fp16, product=none)", "strided(fp32, 4)", "blocked(fp16, 16, fp32)", "splitk(3, fp32, fp32)",
    "exact(fp16)", "sequential(bf16, rounding=toward_zero)", "blocked(pairwise(fp16), 8, fp16)", "hopper", "ampere",
    "volta", "cdna1", "cdna2", "cdna3", "blocked(hopper, 32, fp32)", "sequential(fp16, ftz)", "kahan(fp32)",
    "neumaier(fp16)", "blocked(kahan(fp16), 16, neumaier(fp16))", "residue(hopper, 24)", "residue(cdna3, 7)",
    "splitk(3, residue(hopper, 24), converted(fp16, fp32), tile=16, dealt)", "converted(bf16, fp32)",
    "epilogue(hopper, fp32, through=fp16, relu)", "epilogue(splitk(2, fp32, fp32), bf16, fused=c)",
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


@pytest.mark.parametrize("description", cases(
    quick=["epilogue(converted(tf32, hopper, rounding=toward_zero), fp32, relu)"],
    full=[
        "converted(tf32, residue(hopper, 16))", "tf32x3(hopper)", "blocked(tf32x3(hopper), 32, fp32)",
        "splitk(3, fp32, fp32, tile=8, dealt)",
    ],
))  # fmt: skip
def test_fp32_operands_and_c(description):
    c = fs.array(np.random.default_rng(2).standard_normal((12, 12)) * 4, "fp16")
    for kind in ("normal", "cancelling", "subnormal"):
        for k in (1, 21, 70):
            a, b = fs.testing.hard_inputs((12, k, 12), "fp32", kind)
            for addend in (None, c):
                kernel = fs.matmul(a, b, addend, accumulate=description)
                bound = fs.testing.assert_within_bound(kernel, a, b, addend, accumulate=description).bound
                assert bound.factor < 5e-5


def test_exact_results_of_converted_operands():
    """What the sums read: operands in TF32, and three products of large and small parts."""
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 9), (9, 4)))
    found = fs.testing.error_bound(a, b, accumulate="converted(tf32, hopper)")
    x, y = (fs.array(z, "tf32").values.astype(float) for z in (a, b))
    assert np.array_equal(found.exact, fs.matmul(x, y, accumulate="exact(fp64)"))
    assert not np.array_equal(found.exact, fs.testing.error_bound(a, b, accumulate="fp32").exact)

    def parts(z):
        large = ((z.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
        return large.astype(float), ((z - large).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(float)

    (large_a, small_a), (large_b, small_b) = parts(a), parts(b)
    left = np.concatenate([small_a, large_a, large_a], 1)
    right = np.concatenate([large_b, small_b, large_b], 0)
    found = fs.testing.error_bound(a, b, accumulate="blocked(tf32x3(hopper), 4, fp32)")
    assert np.array_equal(found.exact, fs.matmul(left, right, accumulate="exact(fp64)"))
    relu = fs.testing.error_bound(a, b, accumulate="epilogue(fp32, fp32, relu)").exact
    assert (relu >= 0).all() and (relu == 0).any()


def test_an_epilogue_reads_its_own_c():
    """The leaf inside flushes its operands to zero, not the c of the epilogue."""
    zero, c = fs.array([[0.0]], "fp32"), fs.array([[2.0**-130]], "fp32")
    text = "epilogue(sequential(fp32, daz=true), fp32)"
    assert fs.testing.error_bound(zero, zero, c, accumulate=text).exact == 2.0**-130
    assert fs.matmul(zero, zero, c, accumulate=text).item() == 2.0**-130


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
    def steps(text, n, terms=TermRange(fs.FP16, fs.FP16), **options):
        return path_of(fs.as_accumulation(text), n, terms, **options).steps

    assert steps("fp32", 100) == 100  # a product and 99 additions: gamma_n of an inner product
    assert steps("fp32", 100, with_c=True) == 101
    assert steps("sequential(fp32, fused)", 100) == 100
    assert steps("pairwise(fp32)", 100) == 1 + 7
    assert steps("blocked(fp32, 10, fp32)", 100) == 1 + 9 + 9
    assert steps("strided(fp32, 4)", 100) == 1 + 24 + 2
    assert steps("exact(fp32)", 100) == 1
    assert steps("fp32", 100, TermRange(fs.FP32)) == 99
    assert steps("fp16", 100, TermRange(fs.FP32)) == 100  # the first addition rounds its term
    assert steps("pairwise(fp32, numpy)", 128) == 1 + 18
    assert steps("splitk(2, pairwise(fp32, numpy), fp32)", 257) == 1 + 18 + 1  # the higher tree has fewer terms
    assert steps("blocked(fp32, 10, fp16)", 100) == 1 + 9 + 10
    assert steps("avx512-bf16", 100, TermRange(fs.BF16, fs.BF16)) == 100
    assert steps("amx-bf16", 100, TermRange(fs.BF16, fs.BF16)) == 16 + 1 + 4
    assert steps("ace", 4, TermRange(fs.BF16, fs.BF16)) == 2 + 2  # the sum of two rounded products, and two additions
    assert steps("tensorcore(arm-bfdot, bfdot.ebf)", 4, TermRange(fs.BF16, fs.BF16)) == 1 + 2
    assert steps("cdna2", 16) == 1 + 2 + 4
    assert steps("tensorcore(hopper, mma.m16n8k32)", 64, TermRange(fs.E4M3, fs.E4M3)) == 2 * 2 + 2
    unit = 2 * 7  # 100 terms: 7 blocks, whose terms are cut and whose sum is rounded
    assert steps("hopper", 100) == unit
    assert steps("residue(hopper, 25)", 100) == steps("residue(hopper, 200)", 100) == unit
    assert steps("residue(hopper, 96)", 100) == 2 * (1 + 6)
    assert steps("residue(hopper, 90)", 100) == 2 * (1 + 6)  # 10 terms, and 90 in 6 blocks
    assert steps("residue(hopper, 81)", 100) == 2 * (2 + 6)
    assert steps("epilogue(hopper, fp32)", 100) == unit
    assert steps("epilogue(hopper, fp32)", 100, with_c=True) == unit + 1
    assert steps("epilogue(hopper, fp32, through=fp16)", 100, with_c=True) == unit + 2
    assert steps("epilogue(hopper, bf16)", 100) == unit + 1
    assert steps("converted(bf16, hopper)", 100) == unit
    assert steps("splitk(2, hopper, converted(fp16, fp32))", 100) == 2 * 4 + 1 + 1  # 50 terms, conversion, addition
    assert steps("splitk(2, hopper, converted(fp32, fp32))", 100) == 2 * 4 + 1
    assert steps("splitk(2, hopper, fp32, tile=16, dealt)", 100) == 2 * 4 + 1
    single = TermRange(fs.FP32, fs.FP32)
    assert steps("tf32x3(hopper)", 100, single) == 2 * 3 * 13
    assert steps("blocked(tf32x3(hopper), 32, fp32)", 100, single) == 2 * 3 * 4 + 3
    assert path_of(fs.as_accumulation("arm-bfdot"), 2, TermRange(fs.BF16, fs.BF16)).roundings == ((2.0**-23, 3),)
    assert path_of(fs.as_accumulation("volta"), 4, TermRange(fs.FP16, fs.FP16)).roundings[0] == (5 * 2.0**-23, 1)


_EIGHT = ([1, 2.0**-7], [1, 0.5])
_BLOCK = "tensorcore(hopper, wgmma.k16, output=fp16)"


@pytest.mark.parametrize(("description", "a", "b", "fmt", "options"), [
    ("blocked(fp32, 8, bf16)", *_EIGHT, "fp32", {"format": "fp32"}),  # the first addition rounds its term
    ("pairwise(bf16, product=fp32)", [1 + 2.0**-8], [1], "fp32", {"format": "fp32"}),
    ("sequential(fp16, product=fp32)", [1 + 2.0**-11], [1], "fp32", {"format": "fp32"}),
    ("sequential(fp32, daz=true)", [2.0**-70], [2.0**-60], "fp32", {}),  # subnormal terms and sums are read as 0
    ("sequential(fp32, fused, daz=true)", [1.5 * 2.0**-126, -(2.0**-126), 0], [1, 1, 1], "fp32", {}),
    ("blocked(fp32, 1, sequential(fp32, daz=true))", [2.0**-130], [1], "fp32", {}),
    ("sequential(fp32, product=fp16)", [300], [300], "fp16", {}),
    ("apple-amx", [2048] + [1] * 39, [1] * 40, "fp16", {"format": "fp16"}),
    ("volta", [2.0**-24] * 2, [1, 2.0**-14], "fp16", {}),  # subnormal operands are aligned as normal ones
    ("sequential(e5m2, rounding=toward_positive)", [2.0**-100] * 32, [1] * 32, "fp32", {"format": "fp32"}),
    *(pytest.param(*case, marks=pytest.mark.full) for case in [
        ("splitk(1, fp32, fp32, through=fp16)", [300], [300], "fp16", {}),  # formats between overflow
        (f"blocked({_BLOCK}, 16, fp32)", [300], [300], "fp16", {}),
        ("splitk(40, fp32, sequential(fp32, rounding=toward_zero), through=fp16)", [1] + [1.99 * 2.0**-10] * 39,
         [1] * 40, "fp32", {}),
        ("splitk(1, fp32, sequential(fp32, ftz=true), through=fp16)", [2.0**-15], [1], "fp32", {}),
        ("tensorcore(arm-fp8, fmlal, output=fp16)", [1.875, 2.0**-9], [1.875, 0.25], "e4m3", {}),  # results in FP16
    ]),
])  # fmt: skip
def test_worst_cases_are_within_the_bound(description, a, b, fmt, options):
    a, b = fs.array([a], fmt), fs.array(np.array(b, float)[:, np.newaxis], fmt)
    found = fs.testing.error_bound(a, b, accumulate=description, **options)
    result = float(np.asarray(fs.array(fs.matmul(a, b, accumulate=description, **options)).values)[0, 0])
    exact = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a.values[0], b.values[:, 0], strict=True))
    bound = float(found.bound[0, 0])
    assert math.isinf(bound) or abs(Fraction(result) - exact) <= Fraction(bound)
    assert math.isinf(result) == math.isinf(bound)


def test_operands_are_read_as_the_sums_read_them():
    """A subnormal c with DAZ, and FP32 operands of an instruction for TF32."""
    zero, c = fs.array([[0.0]], "fp32"), fs.array([[2.0**-130]], "fp32")
    assert fs.testing.error_bound(zero, zero, c, accumulate="sequential(fp32, daz=true)").exact == 0
    x, one = fs.array([[1 + 2.0**-11]], "fp32"), fs.array([[1.0]], "fp32")
    assert fs.testing.error_bound(x, one, accumulate="tensorcore(ampere, mma.m16n8k8.tf32)").exact == 1
    with fs.context(rounding="toward_zero", daz=True):
        assert fs.testing.error_bound(c, one).exact == 2.0**-130


@pytest.mark.parametrize("unit", cases(
    quick=["avx512-bf16", "amx-fp16", "arm-bfdot"],
    full=[
        "ace", "amx-bf16", "amx-fp8", "fma3", "avx512-fp16", "avx10.2", "arm-bfmmla", "arm-fp16", "arm-fp8",
        "arm-fmmla",
    ],
))  # fmt: skip
def test_cpu_units_have_bounds(unit):
    row = fs.tensorcore.ARCHITECTURES[unit].instructions[0]
    fmt = row.inputs[0]
    a, b = fs.testing.hard_inputs((8, 40, 8), fmt, "normal")
    report = fs.testing.assert_within_bound(fs.matmul(a, b, accumulate=unit), a, b, accumulate=unit)
    assert report.bound.factor < 50 * row.output.eps


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
    (lambda x: fs.testing.error_bound(x, x, accumulate="kahan(fp32)", probability=0.9), "or are compensated"),
    (lambda x: fs.testing.error_bound(x, x, probability=1.0), "probability must be between 0 and 1"),
    (lambda x: fs.testing.error_bound(x, x, accumulate="sequential(fp32, rounding=rtz)", probability=0.9), "truncate"),
    (lambda x: fs.testing.error_bound(x, x, format="e8m0"), "format=E8M0 is a scale format"),
    (lambda x: fs.testing.attention_bound(x, x[:, :1], x), r"q, k and v must be"),
    (lambda x: fs.testing.attention_bound(x, x[0], x), r"q, k and v must be"),
    (lambda x: fs.testing.attention_bound(np.ones((2, 2, 2)), np.ones((3, 2, 2)), x), "leading axes of q, k and v"),
    (lambda x: fs.testing.attention_bound(x, x, x, mask=np.ones((3, 3), bool)), r"mask has the shape \(3, 3\)"),
    (lambda x: fs.testing.attention_bound(x, x, x, mask=np.tri(2, k=-1, dtype=bool)), "query 0 reads none"),
    (lambda x: fs.testing.softmax_bound(np.ones((2, 0), np.float32)), "x must have rows of at least one score"),
    (lambda x: fs.testing.softmax_bound(x, accumulate="fma3"), "multiplies matrices"),
    (lambda x: fs.testing.attention_bound(x, x, x, accumulate="blocked(fma3, 8, fp32)"), "multiplies matrices"),
])  # fmt: skip
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call(np.ones((2, 2), np.float32))


@pytest.mark.parametrize(("call", "words"), [
    (lambda x: fs.testing.error_bound(x, x, probability="x"), "probability must be a number"),
    (lambda x: fs.testing.attention_bound(x, x, x, mask=np.zeros((2, 2))), "mask must be an array of bool"),
    (lambda x: fs.testing.check_bound(x, 3), "bound must be an ErrorBound, .*not 3"),
])  # fmt: skip
def test_wrong_types_are_named(call, words):
    with pytest.raises(TypeError, match=words):
        call(np.ones((2, 2), np.float32))


def test_softmax_of_a_narrow_accumulator_is_not_below_its_error():
    """The sum in E4M3 can be wrong by more than half: the bound grows with it, or is infinite."""
    x = np.zeros((1, 200), np.float32)
    assert np.isinf(fs.testing.softmax_bound(x, accumulate="e4m3").bound).all()
    bound = fs.testing.softmax_bound(x[:, :40], accumulate="fp16")
    assert bound.bound.max() < 0.1 * bound.exact.max()


# -- compensated sums --------------------------------------------------------------------------------------------------


def hard_terms(fmt, n, kind, rng):
    """Terms of one format: random ones, sums that cancel, or sums that grow so slowly that every addition rounds."""
    u = fmt.unit_roundoff
    if kind == "normal":
        x = rng.standard_normal(n)
    elif kind == "cancelling":
        x = np.ldexp(rng.standard_normal(n), rng.integers(-fmt.precision, fmt.precision // 2, n))
        x[n // 2 : 2 * (n // 2)] = -rng.permutation(x[: n // 2])
    elif kind == "swamped":
        x = np.full(n, 1.5 * u)
        x[0] = 1
    else:  # each term is just beyond half an ulp of the sum
        x = np.where(np.arange(n) % 2, u * (1 + 2 * u), 1.0)
        x[2::4] = -1
    return fs.convert(fs.array(x, "fp64"), fmt)


@pytest.mark.parametrize("kind", ["normal", "cancelling", "swamped", "midpoints"])
@pytest.mark.parametrize("mode", cases(quick=["ties_to_even"], full=["toward_zero", "toward_positive", "ties_to_away"]))
@pytest.mark.parametrize("fmt", cases(quick=[fs.FP32, fs.BF16], full=[fs.FP16, fs.E4M3]), ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("method", ["kahan", "neumaier"])
def test_compensated_sums_are_within_their_bounds(method, fmt, mode, kind):
    """Hard terms times one, in exact fractions: no error beyond the bound."""
    rng = np.random.default_rng(len(kind))
    for n in (1, 2, 3, 10, 60, 300):
        x = fs.array(hard_terms(fmt, n, kind, rng), fmt).reshape(1, n)
        ones = fs.array(np.ones((n, 1)), fmt)
        description = f"{method}({fmt.name.lower()})"
        value = fs.array(fs.matmul(x, ones, accumulate=description, rounding=mode)).values.item()
        bound = fs.testing.error_bound(x, ones, accumulate=description, rounding=mode)
        exact = sum(map(Fraction, x.values.ravel().tolist()))
        if np.isfinite(bound.bound.item()):
            assert abs(Fraction(value) - exact) <= Fraction(bound.bound.item()), (n, value)


@pytest.mark.parametrize(("method", "theorem"), [("kahan", "Higham 2002, section 4.3"), ("neumaier", "Rump and Oishi")])
def test_bounds_of_compensated_sums_are_small(method, theorem):
    """A few roundings for any length, where the sum in order has one for each term; an error comes near to them."""
    rng = np.random.default_rng(5)
    x, ones = rng.random((200, 4000)), np.ones((4000, 1), np.float32)
    x = (x * ((2050 + rng.random((200, 1))) / x.sum(1, keepdims=True))).astype(np.float32)  # just above a power of two
    found = fs.testing.error_bound(x, ones, accumulate=f"{method}(fp32)")
    assert theorem in str(found)
    assert found.factor < 5.01 * 2.0**-24  # one of the products
    assert found.factor < fs.testing.error_bound(x, ones, accumulate="fp32").factor / 700
    values = np.asarray(fs.matmul(x, ones, accumulate=f"{method}(fp32)")).astype(float)
    assert (np.abs(values - found.exact) / found.bound).max() > 0.1
    wrong = np.asarray(fs.matmul(x, ones, accumulate="fp32")).astype(float)
    assert (np.abs(wrong - found.exact) > found.bound).mean() > 0.5  # sums in order are outside


def test_growth_of_compensated_sums():
    """The bounds are infinite where n u**2 is too large, and grow with n and u."""
    for growth in (kahan_growth, lambda u, n: neumaier_growth(u, n, True), lambda u, n: neumaier_growth(u, n, False)):
        for u in (2.0**-24, 2.0**-11, 2.0**-8, 2.0**-4):
            found = [growth(u, n) for n in (1, 2, 10, 100, 1000)]
            assert found == sorted(found) and found[0] >= u
    assert kahan_growth(2.0**-4, 1000) == np.inf
    assert kahan_growth(0.6, 1) == np.inf
    assert neumaier_growth(2.0**-24, 1000, False) < 3.1 * 2.0**-24


def test_parts_have_bounds():
    """A format for each part, as in OpenBLAS's `sdot`; inside other descriptions the parts have none."""
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((20, 70)).astype(np.float32), rng.standard_normal((70, 20)).astype(np.float32)
    description = "parts([strided(sequential(fp32, fused), 8), sequential(fp64, product=fp32)], [64, 6], fp64)"
    result = fs.matmul(a, b, accumulate=description, format="fp32")
    bound = fs.testing.assert_within_bound(result, a, b, accumulate=description).bound
    assert bound.factor < fs.testing.error_bound(a, b, accumulate="fp32", format="fp32").factor / 4
    narrow = "parts([bf16, fp64], [64, 6], fp64)"
    assert fs.testing.error_bound(a, b, accumulate=narrow).factor > 2.0**-8
    with pytest.raises(ValueError, match="Parts stand inside another description"):
        fs.testing.error_bound(a, b, accumulate="blocked(parts([fp32, fp64], [30, 5], fp64), 35, fp64)")
