"""TensorCore as accumulate= of matmul and of reductions: alone, and as the inner sum of a composite; bad input."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim import reference
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes
from floatsim.reference import sums as reference_sums
from floatsim.reference.sums import Code
from floatsim.tensorcore.architectures import ARCHITECTURES
from tests.arrays.test_products import check_by_reference, random_leaf, random_options
from tests.marks import cases as marked
from tests.tensorcore.cases import STYLES, cases, codes

pytestmark = pytest.mark.versions

CASES = {arch: [case for case in cases() if case.arch == arch] for arch in ARCHITECTURES}


def array(rng, fmt, shape, style="near"):
    return fs.from_codes(codes(rng, fmt, shape, style).astype(fmt.code_dtype), fmt)


def description(rng, unit, every, k):
    """The unit alone, or in parts of a multiple of `every`, and about k, once or twice."""
    kind = rng.integers(5)
    parts = every * int(rng.integers(1, max(k // every, 1), endpoint=True))
    if kind < 2:
        return unit
    if kind == 2 and every == 1:
        return fs.SplitK(int(rng.integers(1, 4)), unit, random_leaf(rng))
    inner = fs.Blocked(unit, parts, random_leaf(rng))
    return inner if kind < 4 else fs.Blocked(inner, 2 * parts, random_leaf(rng))


@pytest.mark.full
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_equals_the_reference(arch):
    """Codes, counts and first k, for all options of the call, with c, alpha and beta."""
    rng = np.random.default_rng(list(ARCHITECTURES).index(arch))
    for _ in range(40):
        case = CASES[arch][rng.integers(len(CASES[arch]))]
        row, every = case.row, case.scales.every if case.scales else 1
        accumulation = description(rng, fs.TensorCore(arch, row.name, row.output), every, row.k)
        m, k, n = (int(x) for x in (rng.integers(1, 4), rng.integers(0, 2 * row.k + 3), rng.integers(1, 4)))
        style = STYLES[rng.integers(len(STYLES))]
        a, b = array(rng, case.a, (m, k), style), array(rng, case.b, (k, n), style)
        c = None
        if rng.random() < 0.5:
            c = array(rng, (fs.FP32, fs.FP16, fs.FP64)[rng.integers(3)], (m, n), STYLES[rng.integers(len(STYLES))])
        scales = None
        if case.scales is not None:
            shapes = (m, -(-k // every)), (-(-k // every), n)
            kind = "bits" if style == "bits" else "near"
            scales = *(array(rng, case.scales.format, shape, kind) for shape in shapes), case.scales
        alpha, beta = float(rng.choice([1, 1, -0.3])), float(rng.choice([1, 0, 0.7])) if c is not None else 1.0
        options = random_options(rng, fs.Rounding(int(rng.integers(7))))
        check_by_reference(a, b, accumulation, options, c, alpha, beta, scales)


def test_promotion_is_blocks_added_in_fp32():
    rng = np.random.default_rng(2)
    a, b = array(rng, fs.E4M3, (4, 300)), array(rng, fs.E4M3, (300, 6))
    got = fs.matmul(a, b, accumulate="blocked(hopper, 128, fp32)")
    acc = np.zeros((4, 6), np.float32)
    for k in range(0, 300, 128):
        acc = acc + np.asarray(fs.matmul(a[:, k : k + 128], b[k : k + 128], accumulate="hopper"))
    assert np.array_equal(np.asarray(got), acc)


@pytest.mark.parametrize(
    "accumulation",
    marked(quick=["hopper"], full=["cdna3", "blocked(hopper, 128, fp32)", "splitk(3, ampere, kahan(fp16))"]),
)
def test_long_vectors(accumulation):
    """A few results of many terms, for which other descriptions have special kernels."""
    rng = np.random.default_rng(9)
    a, b = array(rng, fs.FP16, (6, 700)), array(rng, fs.FP16, (700, 5))
    whole = fs.matmul(a, b, accumulate=accumulation).codes
    assert np.array_equal(fs.matmul(a[:2], b[:, :2], accumulate=accumulation).codes, whole[:2, :2])
    assert [[fs.dot(x, y, accumulate=accumulation).codes for y in b.T] for x in a] == whole.tolist()


def test_alpha_beta_and_the_format_of_the_result():
    a = fs.array(np.full((2, 16), 0.5), "fp16")
    c = fs.array(np.ones((2, 2)), "fp32")
    assert np.array_equal(np.asarray(fs.matmul(a, a.T, c, alpha=2, beta=3, accumulate="hopper")), np.full((2, 2), 11.0))
    assert fs.matmul(a, a.T, accumulate="hopper", format="fp16").format == fs.FP16
    assert fs.matmul(a, a.T, accumulate="hopper").format == fs.FP32


_BOTH = [
    (architecture.name, fmt)
    for architecture in fs.tensorcore.ARCHITECTURES.values()
    for fmt in (fs.FP16, fs.E4M3)
    if {fs.FP16, fs.FP32} <= {r.output for r in architecture.instructions if r.takes(fmt, fmt) and not r.scales}
]


@pytest.mark.parametrize(("arch", "fmt"), _BOTH)
def test_an_fp16_result_is_an_fp32_sum_rounded_once(arch, fmt):
    """As cuBLAS and PyTorch compute 16-bit products; `output=fp16` names the FP16 accumulator."""
    rng = np.random.default_rng(7)
    a, b = array(rng, fmt, (16, 200)), array(rng, fmt, (200, 24))
    found = fs.matmul(a, b, accumulate=arch, format="fp16")
    wide = fs.matmul(a, b, accumulate=fs.TensorCore(arch, output="fp32"))
    assert np.array_equal(found.codes, fs.convert(wide, "fp16").codes)
    assert not np.array_equal(found.codes, fs.matmul(a, b, accumulate=fs.TensorCore(arch, output="fp16")).codes)


def test_the_architectures_with_both_accumulators_are_known():
    assert {arch for arch, _ in _BOTH} >= {"volta", "turing", "ampere", "ada", "hopper", "blackwell"}


def test_c_is_rounded_to_d_and_recorded():
    a = fs.array(np.zeros((1, 16)), "fp16")
    with fs.record() as log:
        got = fs.matmul(a, a.T, np.float32([[1e6]]), accumulate="tensorcore(hopper, output=fp16)")
    assert np.isposinf(got.item())
    assert log["matmul.sum"].overflow == 1


# -- what the call says does not reach inside --------------------------------------------------------------------------


def test_keywords_of_the_call_stay_outside():
    rng = np.random.default_rng(3)
    a, b = array(rng, fs.FP16, (5, 40), "tiny"), array(rng, fs.FP16, (40, 7))
    for accumulation in "hopper", "cdna2", "tensorcore(volta, output=fp16)":
        plain = fs.matmul(a, b, accumulate=accumulation)
        got = fs.matmul(a, b, accumulate=accumulation, rounding="rtp", daz=True, ftz=True, tininess="before")
        assert np.array_equal(got.codes, plain.codes)
        # the conversion to the result's format is the call's
        up = fs.matmul(a, b, accumulate=accumulation, format="e5m2", result_rounding="rtp", overflow="saturate_finite")
        assert np.array_equal(up.codes, fs.convert(plain, "e5m2", rounding="rtp", overflow="saturate_finite").codes)


@pytest.mark.parametrize("keyword", ["rounding", "product_rounding", "ftz", "daz", "overflow", "product", "fused"])
def test_keywords_of_a_unit_are_errors(keyword):
    with pytest.raises(TypeError, match=f"takes no {keyword}=; only arch, instruction, output"):
        fs.TensorCore("hopper", **{keyword: True})
    with pytest.raises(ValueError, match=f"unknown argument '{keyword}'"):
        fs.as_accumulation(f"tensorcore(hopper, {keyword}=rtz)")


# -- reductions: products with ones ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "accumulation",
    marked(quick=["hopper", "tensorcore(ampere, output=fp16)"], full=["blocked(cdna3, 8, fp32)", "cdna1"]),
)
def test_sums_are_products_with_ones(accumulation):
    rng = np.random.default_rng(4)
    x = array(rng, fs.FP16, (6, 37))
    ones = fs.array(np.ones((37, 1)), "fp16")
    want = fs.matmul(x, ones, accumulate=accumulation)[:, 0]
    got = fs.sum(x, axis=1, accumulate=accumulation)
    assert got.format == want.format
    assert np.array_equal(got.codes, want.codes)
    assert np.array_equal(np.asarray(fs.sum(x.T, axis=0, accumulate=accumulation)), np.asarray(want))
    where = rng.random(x.shape) < 0.5
    for row, mask, total in zip(x, where, fs.sum(x, axis=1, accumulate=accumulation, where=where), strict=True):
        assert total.codes == fs.matmul(row[mask], ones[: mask.sum(), 0], accumulate=accumulation).codes
    mean = fs.mean(x, axis=1, accumulate=accumulation)
    assert np.array_equal(mean.codes, fs.divide(got, fs.array(37.0, got.format)).codes)
    assert np.array_equal(fs.dot(x, ones, accumulate=accumulation).codes[:, 0], want.codes)
    assert fs.vdot(x[0], x[1], accumulate=accumulation).codes == fs.matmul(x[0], x[1], accumulate=accumulation).codes
    squares = fs.matmul(x[0], x[0], accumulate=accumulation)
    assert fs.norm(x[0], accumulate=accumulation).codes == fs.sqrt(squares).codes


def test_sums_tell_where():
    x = fs.array([1.0] + [0.0] * 20 + [2.0**-24, 1.0], "fp16")
    with fs.record() as log:
        fs.sum(x, accumulate="ampere")
    assert log.first["absorbed"] == -1
    with fs.record() as log:
        fs.sum(x, accumulate="volta", initial=8.0)
    assert log.first["absorbed"] == 22, "the last term of the block in which it was cut off"


def test_initial_is_c():
    x = fs.array(np.ones(16), "fp16")
    assert fs.sum(x, initial=0.5, accumulate="hopper").item() == 16.5


@pytest.mark.full
def test_variances_need_a_unit_that_multiplies_what_it_returns():
    x = fs.array(np.arange(8.0), "fp16")
    for accumulation in "tensorcore(hopper, output=fp16)", "blocked(hopper, 16, fp16)":
        assert fs.var(x, accumulate=accumulation, rounding="rtz").item() == 5.25
    with pytest.raises(ValueError, match="var squares differences in the accumulator's format, FP32, which tensorcore"):
        fs.var(x, accumulate="hopper")
    y = fs.array([1.0, 2.0, 4.0], "fp16")
    up = fs.var(y, accumulate="tensorcore(hopper, output=fp16)", result_rounding="rtp")
    mean = fs.array(7 / 3, "fp16")  # ties to even, whatever the call says
    d = fs.subtract(y, mean)
    total = fs.dot(d, d, accumulate="tensorcore(hopper, output=fp16)")
    assert up.codes == fs.divide(total, fs.array(3.0, "fp16"), rounding="rtp").codes


@pytest.mark.parametrize("operation", [fs.cumsum, fs.prod])
def test_reductions_that_no_unit_does(operation):
    with pytest.raises(TypeError, match=r"hopper"):
        operation(fs.array(np.ones(16), "fp16"), accumulate="hopper")


# -- scales ------------------------------------------------------------------------------------------------------------


def test_kinds_of_scales():
    """The result is the exact product of the scaled operands, where that needs no rounding."""
    rng = np.random.default_rng(5)
    for a_format, b_format, scale, every, name in (
        ("e4m3", "e4m3", "e8m0", 32, "tcgen05.k32.mxf8f6f4"), ("e5m2", "e3m2", "e8m0", 32, "tcgen05.k32.mxf8f6f4"),
        ("e2m1", "e2m1", "e8m0", 32, "tcgen05.k64.mxf4"), ("e2m1", "e2m1", "e4m3", 16, "tcgen05.k64.nvf4"),
        ("e2m1", "e2m1", "e8m0", 16, "tcgen05.k64.nvf4"), ("e2m1", "e2m3", "e8m0", 32, "tcgen05.k32.mxf8f6f4"),
    ):  # fmt: skip
        a = fs.array(rng.integers(-2, 3, (2, 3, 96)).astype(np.float32), a_format)
        b = fs.array(rng.integers(-2, 3, (96, 5)).astype(np.float32), b_format)
        powers = [2.0 ** rng.integers(-2, 3, shape) for shape in ((2, 3, 96 // every), (96 // every, 5))]
        scale_a, scale_b = (fs.array(x, scale) for x in powers)
        exact = (a.values * powers[0].repeat(every, 2)) @ (b.values * powers[1].repeat(every, 0))
        for accumulation in (
            "blackwell",
            f"tensorcore(blackwell, {name})",
            "blackwell-rtx",
            "blocked(blackwell, 32, fp32)",
        ):
            got = fs.matmul(a, b, accumulate=accumulation, scale_a=scale_a, scale_b=scale_b)
            assert np.array_equal(np.asarray(got), exact)
        fit = fs.accumulation.fitted(fs.TensorCore("blackwell"), a.format, b.format, fs_scales(every, scale))
        assert fit.instruction == name
        turned = fs.matmul(b.T, a[0, :1].T, accumulate="blackwell", scale_a=scale_b.T, scale_b=scale_a[0, :1].T)
        assert np.array_equal(np.asarray(turned)[:, 0], exact[0, 0]), "thin products are turned around"


def fs_scales(every, scale):
    from floatsim.tensorcore.instructions import Scales

    return Scales(every, fs.as_format(scale))


def test_vectors_with_scales():
    x = fs.array(np.ones(40), "e4m3")
    scale = fs.array([2.0, 4.0], "e8m0")
    assert fs.matmul(x, x, accumulate="blackwell", scale_a=scale, scale_b=scale).item() == 32 * 4 + 8 * 16
    assert fs.dot(x, x, accumulate="blackwell", scale_a=scale, scale_b=scale).item() == 32 * 4 + 8 * 16


def test_nan_scales_give_nan():
    a, b = fs.array(np.ones((2, 32)), "e2m1"), fs.array(np.ones((32, 3)), "e2m1")
    for scale, nan in ("e8m0", 0xFF), ("e4m3", 0x7F), ("e4m3", 0xFF):
        ones = [fs.array(np.ones(shape), scale) for shape in ((2, 2), (2, 3))]
        scale_a = fs.from_codes(np.where([[0, 0], [0, 1]], np.uint8(nan), ones[0].codes), scale)
        got = fs.matmul(a, b, accumulate="blackwell", scale_a=scale_a, scale_b=ones[1])
        assert (got.codes[0] == 0x42000000).all()
        assert (got.codes[1] == 0x7FFFFFFF).all()


def test_nan_scales_hide_no_invalid_product():
    """inf * 0 raises INVALID for every scale. A quiet NaN raises nothing."""
    a, b = fs.array([[np.inf] * 32, [1.0] * 32], "e5m2"), fs.array(np.zeros((32, 1)), "e5m2")
    scale_a, scale_b = fs.from_codes(np.full((2, 1), 0xFF, np.uint8), "e8m0"), fs.array([[1.0]], "e8m0")
    with fs.record() as log:
        got = fs.matmul(a, b, accumulate="blackwell", scale_a=scale_a, scale_b=scale_b)
    assert (got.codes == 0x7FFFFFFF).all()
    assert log.first["invalid"].tolist() == [[31], [-1]]
    assert log.first["nan"].tolist() == [[31], [31]]


def test_signs_of_scales_do_not_count():
    a, b = fs.array(np.ones((1, 16)), "e2m1"), fs.array(np.ones((16, 1)), "e2m1")
    scale = fs.array([[-2.0]], "e4m3")
    assert fs.matmul(a, b, accumulate="blackwell", scale_a=scale, scale_b=scale).item() == 64


FP4, FP8 = fs.E2M1, fs.E4M3


def of_ones(fmt, *shape):
    return fs.array(np.ones(shape), fmt)


@pytest.mark.parametrize(
    ("accumulation", "fmt", "scales", "says"),
    [
        ("blackwell", FP8, ((4, 4, "e8m0"), None), "scale_b is missing: both operands need scales"),
        ("blackwell", FP8, (None, (4, 4, "e8m0")), "scale_a is missing"),
        (None, FP8, ((4, 4, "e8m0"), (4, 5, "e8m0")), "not for the default accumulation"),
        ("fp32", FP8, ((4, 4, "e8m0"), (4, 5, "e8m0")), r"are for a TensorCore, .* not for sequential\(fp32\)"),
        ("hopper", FP8, ((4, 4, "e8m0"), (4, 5, "e8m0")), "hopper takes no scales; blackwell, blackwell-rtx do"),
        ("blackwell", fs.FP16, ((4, 4, "e8m0"), (4, 5, "e8m0")), "blackwell does not multiply FP16 by FP16"),
        ("tensorcore(blackwell, tcgen05.k32)", FP8, ((4, 4, "e8m0"), (4, 5, "e8m0")),
         "tcgen05.k32 on blackwell takes no scales; instructions with scales are tcgen05.k64.mxf4"),
        ("blackwell", FP8, ((4, 8, "e4m3"), (8, 5, "e4m3")), "no scales of E4M3 .* it takes E8M0 for every 32"),
        ("blackwell", FP4, ((4, 8, "fp16"), (8, 5, "fp16")), "no scales of FP16 .* E4M3 for every 16"),
        ("blackwell", FP4, ((4, 8, "e8m0"), (8, 5, "e4m3")), "scale_a is E8M0 and scale_b is E4M3"),
        ("blackwell", FP8, ((4, 3, "e8m0"), (4, 5, "e8m0")),
         r"scale_a \(4, 3\) .* E8M0 scales are \(4, 4\) and \(4, 5\) \(one for every 32 along K\)"),
        ("blackwell", FP8, ((4, 4, "e8m0"), (5, 4, "e8m0")), r"scale_b \(5, 4\) do not fit a \(4, 128\) and b"),
        ("blackwell", FP4, ((4, 5, "e8m0"), (5, 5, "e8m0")),
         r"\(4, 4\) and .* every 32 .* or \(4, 8\) and .* every 16"),
        ("blocked(blackwell, 48, fp32)", FP8, ((4, 4, "e8m0"), (4, 5, "e8m0")),
         "into parts of 48, inside a block of 32 elements that share a scale; use parts of a multiple of 32"),
        ("splitk(3, blackwell, fp32)", FP8, ((4, 4, "e8m0"), (4, 5, "e8m0")), "into parts of 43"),
        ("tensorcore(blackwell, tcgen05.k64.mxf4)", FP4, (None, None), "which were not given: scale_a= and scale_b="),
    ],
)  # fmt: skip
def test_scales_that_do_not_fit(accumulation, fmt, scales, says):
    a, b = of_ones(fmt, 4, 128), of_ones(fmt, 128, 5)
    scale_a, scale_b = (None if x is None else of_ones(x[2], *x[:2]) for x in scales)
    with pytest.raises(ValueError, match=says):
        fs.matmul(a, b, accumulate=accumulation, scale_a=scale_a, scale_b=scale_b)


def test_scales_are_floats():
    a = of_ones(FP8, 4, 32)
    with pytest.raises(TypeError, match="scale_a"):
        fs.matmul(a, a.T, accumulate="blackwell", scale_a=np.ones((4, 1), np.uint8), scale_b=of_ones("e8m0", 1, 4))


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accumulation", "formats", "says"),
    [
        ("hopper", ("fp32", "fp32"), r"FP32 operands are read as TF32 where the instruction is named: wgmma.k8.tf32"),
        ("volta", ("e4m3", "e4m3"), r"volta does not multiply E4M3 by E4M3; it takes FP16 \(mma.m8n8k4\)"),
        ("hopper", ("fp16", "bf16"), "hopper does not multiply FP16 by BF16; both must be FP16, or both BF16$"),
        ("hopper", ("fp64", "e4m3"), "hopper does not multiply FP64 by E4M3; both must be FP64, or both E4M3$"),
        ("hopper", ("fp16", "fp32"), "hopper does not multiply FP16 by FP32; it takes .*wgmma.k8.tf32"),
        ("volta", ("fp16", "bf16"), r"volta does not multiply FP16 by BF16; it takes FP16 \(mma.m8n8k4\)$"),
        ("ampere", ("e2m1", "e2m1"), "ampere does not multiply E2M1"),
        ("cdna3", ("e4m3", "e4m3"), "cdna3 does not multiply E4M3 by E4M3; it takes .* E4M3FNUZ, E5M2FNUZ"),
        ("cdna3", ("e4m3", "e5m2"), r"In place of E4M3 it has E4M3FNUZ \(max 240\): fs.convert\(x, 'e4m3fnuz'\)."),
        ("hopper", ("e4m3fnuz", "e4m3fnuz"), r"In place of E4M3FNUZ it has E4M3 \(max 448\): fs.convert\(x, 'e4m3'\)$"),
        ("tensorcore(hopper, wgmma.k16)", ("e4m3", "e4m3"), "wgmma.k16 on hopper does not multiply E4M3"),
        ("tensorcore(hopper, output=fp16)", ("bf16", "bf16"), "hopper gives FP32 for BF16, not FP16"),
        ("blocked(hopper, 128, fp32)", ("e3m4", "e3m4"), "hopper does not multiply E3M4"),
    ],
)
def test_operands_that_the_unit_does_not_take(accumulation, formats, says):
    with pytest.raises(ValueError, match=says):
        fs.matmul(of_ones(formats[0], 2, 16), of_ones(formats[1], 16, 2), accumulate=accumulation)
    if formats[0] == formats[1]:
        with pytest.raises(ValueError, match=says):
            fs.sum(of_ones(formats[0], 16), accumulate=accumulation)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: fs.TensorCore("pascal"), "unknown architecture 'pascal'; known are volta, turing"),
        (lambda: fs.TensorCore("ampere", "wgmma.k16"), "hopper has it; there are mma.m16n8k16"),
        (lambda: fs.TensorCore("hopper", output="bf16"), "hopper gives FP32, FP16 and FP64, not BF16"),
        (lambda: fs.as_accumulation("tensorcore(ampere, wgmma.k16)"), "hopper has it"),
    ],
)
def test_what_there_is_not(build, says):
    with pytest.raises(ValueError, match=says):
        build()


@pytest.mark.parametrize(
    "build",
    [
        lambda: fs.Strided("hopper", 4, "fp32"),
        lambda: fs.Blocked("fp16", 4, "hopper"),
        lambda: fs.SplitK(4, "hopper", "hopper"),
        lambda: fs.Blocked("fp16", 4, "blocked(hopper, 8, fp32)"),
    ],
)
def test_where_a_unit_cannot_stand(build):
    with pytest.raises(TypeError, match=r"cannot be .*hopper"):
        build()


@pytest.mark.parametrize(
    "accumulation",
    marked(quick=["hopper", "cdna2"], full=["tensorcore(hopper, mma.m16n8k8)", "volta", "ampere", "cdna3"]),
)
def test_any_k_is_filled_up_with_zeros(accumulation):
    """Every K is accepted, and appended zeros change no bit."""
    rng = np.random.default_rng(6)
    for k in range(36):
        a, b, c = array(rng, fs.FP16, (3, k)), array(rng, fs.FP16, (k, 2)), array(rng, fs.FP32, (3, 2))
        longer = [fs.array(np.pad(x.values, pad), "fp16") for x, pad in ((a, ((0, 0), (0, 9))), (b, ((0, 9), (0, 0))))]
        assert np.array_equal(
            fs.matmul(a, b, c, accumulate=accumulation).codes, fs.matmul(*longer, c, accumulate=accumulation).codes
        )


def test_the_reference_takes_codes_alone():
    options = CallOptions(RoundingAttributes())
    one = reference.Number(reference.Kind.FINITE, 0, 1)
    with pytest.raises(TypeError, match="multiplies codes"):
        reference_sums.accumulate(fs.TensorCore("hopper"), [(one, one)], options)
    nothing = reference_sums.accumulate(fs.TensorCore("hopper"), [], options, start=Code(0x3C00, fs.FP16))
    assert nothing.code == 0x3F800000
