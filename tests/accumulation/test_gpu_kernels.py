"""The parts of GPU kernels: converted operands, the residue first, dealt tiles, three products, epilogues.

Each is compared with the reference, and with the same sum composed of plain products that are chained by c, of
NumPy's float32, or of exact fractions.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import oracles as o
import pytest

import floatsim as fs
from floatsim.accumulation import fitted
from floatsim.emulator.dispatch.candidates import only
from tests.arrays.test_products import check_by_reference, random_options
from tests.tensorcore.test_matmul import array

UNITS = {
    "fp16": ("hopper", "tensorcore(hopper, mma.m16n8k8)", "tensorcore(volta, output=fp16)", "cdna3", "amx-fp16"),
    "bf16": ("hopper", "cdna1", "avx512-bf16"),
    "tf32": ("hopper", "ampere"),
    "fp32": ("tensorcore(hopper, wgmma.k8.tf32)", "fma3"),
    "fp64": ("hopper",),
    "e4m3": ("hopper", "blackwell", "tensorcore(hopper, mma.m16n8k32)"),
}
CASES = [(fmt, unit) for fmt, units in UNITS.items() for unit in units]


def codes(x):
    return x.codes if isinstance(x, fs.FloatArray) else np.asarray(x).view(f"u{x.dtype.itemsize}")


def same(x, y):
    return np.array_equal(codes(x), codes(y))


def operands(rng, fmt, m, k, n, style="near"):
    fmt = fs.as_format(fmt)
    return array(rng, fmt, (m, k), style), array(rng, fmt, (k, n), style)


# -- the residue first -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fmt", "unit"), CASES)
def test_the_residue_is_a_chain_of_its_own(fmt, unit):
    """K of no tile, of less than one, one, and several, with and without a residue; also inside of parts."""
    rng = o.rng("residue", fmt, unit)
    for tile, k in [(16, 5), (16, 16), (16, 21), (16, 48), (32, 100), (8, 257), (7, 20), (64, 0), (64, 300)]:
        a, b = operands(rng, fmt, 5, k, 18)
        c = array(rng, fs.FP32, (5, 18))
        first = k % tile
        for addend in (None, c):
            found = fs.matmul(a, b, addend, accumulate=fs.Residue(unit, tile))
            head = fs.matmul(a[:, :first], b[:first], addend, accumulate=unit)
            assert same(found, fs.matmul(a[:, first:], b[first:], head, accumulate=unit)), (tile, k)
            with only("integer"):
                assert same(found, fs.matmul(a, b, addend, accumulate=fs.Residue(unit, tile))), (tile, k)


def test_the_residue_of_each_part():
    """K = 600 in three parts of 192, 192 and 216 terms; each part begins with its own residue."""
    rng = o.rng("residue in parts")
    a, b = operands(rng, "fp16", 9, 600, 33)
    found = fs.matmul(a, b, accumulate=fs.SplitK(3, fs.Residue("hopper", 32), "fp32", 8))
    due = np.zeros((9, 33), np.float32)
    for start, stop in ((0, 200), (200, 400), (400, 600)):
        first = start + (stop - start) % 32
        head = fs.matmul(a[:, start:first], b[start:first], accumulate="hopper")
        part = fs.matmul(a[:, first:stop], b[first:stop], head, accumulate="hopper")
        due = due + np.asarray(part, np.float32)
    assert same(found, due)


@pytest.mark.parametrize(("fmt", "unit"), CASES)
def test_residues_equal_the_reference(fmt, unit):
    """Codes, counts and first k of events, with c, alpha and beta."""
    rng = np.random.default_rng([len(fmt), len(unit)])
    for tile, k, style in [(8, 13, "near"), (16, 16, "specials"), (16, 35, "near"), (5, 3, "tiny"), (64, 0, "near")]:
        a, b = operands(rng, fmt, 2, k, 3, style)
        c = array(rng, fs.FP32, (2, 3), style) if rng.random() < 0.5 else None
        accumulation = fitted(fs.Residue(unit, tile), a.format, b.format)
        check_by_reference(a, b, accumulation, random_options(rng, fs.Rounding.TIES_TO_EVEN), c, 1.0, 1.0)
        accumulation = fs.SplitK(2, accumulation, fs.Converted("bf16", "fp32"), 3)
        check_by_reference(a, b, accumulation, random_options(rng, fs.Rounding.TOWARD_ZERO), c, -0.3, 1.0)


def test_what_a_residue_changes():
    """On cancelling products, residues of 12 and of 44 terms and no residue are three different sums."""
    a, b = fs.testing.hard_inputs((64, 300, 64), "fp16", "cancelling", seed=1)
    found = [fs.matmul(a, b, accumulate=text) for text in ("hopper", "residue(hopper, 32)", "residue(hopper, 64)")]
    assert len({codes(x).tobytes() for x in found}) == 3


@pytest.mark.parametrize("text", [
    "residue(hopper, 8)", "converted(tf32, residue(hopper, 8))", "tf32x3(hopper)", "permuted(swapped, hopper)",
    "converted(bf16, hopper)",
])  # fmt: skip
def test_factors_of_units_inside_other_descriptions(text):
    """alpha and beta round to nearest in FP32, as for a unit alone: the keywords of the call do not change units."""
    rng = o.rng("factors", text)
    a, b = operands(rng, "fp32" if "32" in text or "bf" in text else "fp16", 5, 21, 18)
    c = array(rng, fs.FP32, (5, 18))
    found = fs.matmul(a, b, c, alpha=0.3, beta=-1.5, accumulate=text, rounding="toward_zero", ftz=True)
    sums = fs.matmul(a, b, accumulate=text)
    due = fs.add(
        fs.multiply(fs.array(0.3, "fp64"), sums, format="fp32"), fs.multiply(c, np.float32(-1.5)), format="fp32"
    )
    assert same(found, fs.array(due, "fp32"))
    check_by_reference(a, b, fs.as_accumulation(text), {"rounding": "toward_zero", "seed": 1}, c, 0.3, -1.5)


# -- converted operands ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounding", [mode for mode in fs.Rounding if mode is not fs.Rounding.STOCHASTIC])
def test_operands_are_converted_once(rounding):
    rng = o.rng("converted", rounding)
    a, b = operands(rng, "fp32", 7, 90, 20, "specials")
    for to, inner in [("tf32", "hopper"), ("bf16", "fp32"), ("e4m3", "blocked(hopper, 32, fp32)"), ("fp32", "fp32")]:
        found = fs.matmul(a, b, accumulate=fs.Converted(to, inner, rounding))
        x, y = (fs.convert(z, to, rounding=rounding) for z in (a, b))
        assert same(found, fs.matmul(x, y, accumulate=inner)), to
    x = fs.convert(a, "bf16", rounding=rounding)
    assert same(fs.sum(a, 1, accumulate=fs.Converted("bf16", "fp32", rounding)), fs.sum(x, 1, accumulate="fp32"))


def test_partial_sums_in_16_bits():
    """As cuBLAS' splitKreduce_kernel<.., __half, ..> reads them: each part rounded to FP16, added in FP32."""
    rng = o.rng("partials")
    a, b = operands(rng, "fp16", 12, 500, 40)
    found = fs.matmul(a, b, accumulate="splitk(3, hopper, converted(fp16, fp32), tile=64)", format="fp16")
    due = np.zeros((12, 40), np.float32)
    for start, stop in ((0, 192), (192, 384), (384, 500)):
        part = fs.matmul(a[:, start:stop], b[start:stop], accumulate="hopper", format="fp16")
        due = due + np.asarray(part, np.float32)
    assert same(found, due.astype(np.float16))
    assert not same(found, fs.matmul(a, b, accumulate="splitk(3, hopper, fp32, tile=64)", format="fp16"))


@pytest.mark.parametrize("rounding", fs.Rounding)
def test_conversions_equal_the_reference(rounding):
    rng = np.random.default_rng(rounding.value)
    for text in (
        "converted(tf32, tensorcore(hopper))", "converted(bf16, fp16, rounding=toward_zero)",
        "blocked(fp32, 3, converted(e5m2, fp16, rounding=ties_to_away))",
        "strided(fp32, 4, converted(fp16, pairwise(fp32)))",
        "splitk(3, fp32, converted(bf16, fp32), tile=2, dealt)", "permuted(reversed, converted(e4m3, kahan(fp16)))",
    ):  # fmt: skip
        a, b = operands(rng, "fp32", 2, 11, 3, "specials")
        c = array(rng, fs.FP16, (2, 3)) if rng.random() < 0.5 else None
        check_by_reference(a, b, fs.as_accumulation(text), random_options(rng, rounding), c, 1.0, 1.0)


def test_a_conversion_is_not_the_calls():
    a = np.float32([[1 + 2.0**-9 + 2.0**-20, 2.0**-130]])
    plain = fs.matmul(a, a.T, accumulate="converted(bf16, fp32)")
    assert fs.matmul(a, a.T, accumulate="converted(bf16, sequential(fp32, daz=false))", daz=True) == plain
    assert fs.matmul(a, a.T, accumulate="converted(bf16, sequential(fp32, rounding=rne))", rounding="rtp") == plain


# -- dealt tiles -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("inner", "fmt"), [
    ("sequential(fp32, fused)", "fp32"), ("tensorcore(hopper)", "bf16"), ("sequential(fp64, fused)", "fp64"),
    ("strided(fp32, 3)", "fp16"), ("residue(hopper, 8)", "fp16"),
])  # fmt: skip
def test_tiles_are_dealt(inner, fmt):
    rng = o.rng("dealt", inner)
    wide = "fp64" if fmt == "fp64" else "fp32"
    for parts, tile, k in [(3, 16, 200), (4, 8, 33), (5, 32, 32), (2, 1, 9), (7, 16, 16 * 7), (2, 64, 0)]:
        a, b = operands(rng, fmt, 6, k, 17)
        found = fs.matmul(a, b, accumulate=fs.SplitK(parts, inner, wide, tile, "dealt"))
        due = np.zeros((6, 17), np.float64 if fmt == "fp64" else np.float32)
        for part in range(parts):
            terms = [term for term in range(k) if term // tile % parts == part]
            if terms:
                due = due + np.asarray(fs.matmul(a[:, terms], b[terms], accumulate=inner), due.dtype)
        assert same(found, due), (parts, tile, k)


def test_dealt_tiles_of_one_term_are_lanes():
    x = fs.array(o.rng("lanes").standard_normal(1000), "fp16")
    dealt, lanes = "splitk(7, fp16, pairwise(fp16), dealt)", "strided(fp16, 7)"
    assert same(fs.sum(x, accumulate=dealt), fs.sum(x, accumulate=lanes))
    assert np.array_equal(fs.reveal_order(dealt, 20), fs.reveal_order(lanes, 20))
    big = fs.SplitK(1 << 60, "fp16", "fp16", 1 << 61, "dealt")
    assert same(fs.sum(x, accumulate=big), fs.sum(x, accumulate="fp16"))


# -- three products of TF32 parts --------------------------------------------------------------------------------------


def parts_of(x):
    """The large and the small part of FP32 numbers, by integer operations on their bits."""
    bits = x.view(np.uint32)
    large = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    small = ((x - large).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return fs.array(large, "tf32"), fs.array(small, "tf32")


@pytest.mark.parametrize("unit", ["hopper", "ampere", "tensorcore(hopper, mma.m16n8k4.tf32)"])
def test_three_products_on_one_accumulator(unit):
    rng = o.rng("tf32x3", unit)
    for m, k, n in [(5, 70, 33), (40, 9, 3), (1, 256, 1), (3, 0, 2)]:  # also shapes whose transpose is faster
        a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
        c = rng.standard_normal((m, n)).astype(np.float32)
        (large_a, small_a), (large_b, small_b) = parts_of(a), parts_of(b)
        for addend in (None, c):
            found = fs.matmul(a, b, addend, accumulate=fs.Tf32x3(unit))
            acc = fs.matmul(small_a, large_b, addend, accumulate=unit)
            acc = fs.matmul(large_a, small_b, acc, accumulate=unit)
            assert same(found, fs.matmul(large_a, large_b, acc, accumulate=unit)), (m, k, n)


def test_three_products_equal_the_reference():
    rng = np.random.default_rng(3)
    for k, style in [(3, "near"), (9, "specials"), (20, "near"), (0, "near")]:
        a, b = operands(rng, "fp32", 2, k, 3, style)
        c = array(rng, fs.FP32, (2, 3), style) if k % 2 else None
        check_by_reference(a, b, fs.Tf32x3("hopper"), random_options(rng, fs.Rounding.TIES_TO_EVEN), c)
        blocked = fs.Blocked(fs.Tf32x3("ampere"), 8, "fp32")
        check_by_reference(a, b, blocked, random_options(rng, fs.Rounding.TOWARD_POSITIVE), c)


# -- the order of a convolution ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("descending", [False, True])
def test_the_order_of_a_convolution(descending):
    """Loops over blocks of channels, rows and columns of the filter, and channels, with one float32 accumulator."""
    rng = o.rng("convolution", descending)
    channels, rows, columns, block = 6, 3, 2, 2
    x, w = rng.standard_normal((2, channels, rows, columns)).astype(np.float32)
    acc = np.float32(0)
    for first in range(0, channels, block):
        for place in list(np.ndindex(rows, columns))[:: -1 if descending else 1]:
            for channel in range(first, first + block):
                acc = acc + x[channel][place] * w[channel][place]
    order = f"conv-{rows}x{columns}x{block}" + "-descending" * descending
    assert fs.dot(x.ravel(), w.ravel(), accumulate=fs.Permuted(order, "fp32")) == acc
    filters = fs.operators.conv2d(x[np.newaxis], w[np.newaxis], accumulations={"product": fs.Permuted(order, "fp32")})
    assert np.asarray(filters).item() == acc


# -- epilogues ---------------------------------------------------------------------------------------------------------


def rounded(x, fmt=fs.FP32):
    """A fraction rounded to the format, by the rational oracle."""
    code = o.Rounder(abs(x), int(x < 0), fmt)(next(iter(o.every_rounding())))[0]
    return Fraction(fs.from_codes(np.array(code, fmt.code_dtype), fmt).item())


@pytest.mark.parametrize("fused", ["sum", "c"])
@pytest.mark.parametrize("through", [None, "fp16"])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_an_epilogue_equals_exact_fractions(fused, through, activation):
    rng = o.rng("epilogue", fused, through, activation)
    a, b = operands(rng, "fp16", 6, 40, 9)
    c = fs.array(rng.standard_normal((6, 9)) * 8, "fp16")
    sums = [[Fraction(float(x)) for x in row] for row in np.asarray(fs.matmul(a, b, accumulate="hopper"), np.float64)]
    if through:
        sums = [[rounded(x, fs.FP16) for x in row] for row in sums]
    for alpha, beta in [(1, 1), (0.7, 0.3), (1, 0.3), (0.7, 1), (-2, 0), (1, 0)]:
        found = fs.matmul(
            a, b, c, alpha=alpha, beta=beta, accumulate=fs.Epilogue("hopper", "fp32", fused, through, activation)
        )
        x, y = rounded(Fraction(alpha)), rounded(Fraction(beta))
        for i, j in np.ndindex(6, 9):
            s, d = sums[i][j], Fraction(float(c.values[i, j]))
            if beta == 0:
                due = rounded(x * s)
            elif fused == "sum":
                due = rounded(x * s + rounded(y * d))
            else:
                due = rounded(y * d + rounded(x * s))
            if activation == "relu":
                due = max(due, Fraction(0))
            assert Fraction(float(found[i, j])) == due, (alpha, beta, i, j)


def test_a_bias_is_added_once_and_rounded_once():
    rng = o.rng("bias")
    a, b = operands(rng, "bf16", 8, 64, 20)
    bias = fs.array(rng.standard_normal(20), "bf16")
    found = fs.matmul(a, b, bias, accumulate="epilogue(hopper, fp32)", format="bf16")
    sums = np.asarray(fs.matmul(a, b, accumulate="hopper"), np.float32)
    assert same(found, fs.array(sums + np.asarray(bias, np.float32), "bf16"))
    first = fs.matmul(a, b, bias, accumulate="hopper", format="bf16")  # the unit starts from c
    assert found.format == first.format == fs.BF16
    relu = fs.matmul(a, b, bias, accumulate="epilogue(hopper, fp32, relu)", format="bf16")
    assert same(relu, fs.array(np.maximum(sums + np.asarray(bias, np.float32), np.float32(0)), "bf16"))
    plain = fs.matmul(a, b, accumulate="epilogue(hopper, fp32)")
    assert same(plain, sums)


def test_epilogues_equal_the_reference():
    rng = np.random.default_rng(11)
    for text in (
        "epilogue(hopper, fp32)", "epilogue(splitk(2, hopper, fp32), fp32, fused=c)",
        "epilogue(sequential(fp32, fused), bf16, through=fp16, relu)", "epilogue(kahan(fp16), fp64, fused=c, relu)",
    ):  # fmt: skip
        for alpha, beta, addend in [(1, 1, True), (1, 1, False), (0.7, 0.3, True), (-2.5, 0, True), (1.5, 1, False)]:
            a, b = operands(rng, "fp16", 2, 9, 3, "specials" if alpha == 1 else "near")
            c = array(rng, fs.FP32, (2, 3), "near") if addend else None
            options = random_options(rng, fs.Rounding(int(rng.integers(6))))
            check_by_reference(a, b, fs.as_accumulation(text), options, c, alpha, beta)


def test_where_an_epilogue_belongs():
    x = np.ones((2, 2), np.float32)
    text = "epilogue(fp32, fp32)"
    for call in (
        lambda: fs.sum(x, accumulate=text), lambda: fs.mean(x, accumulate=text), lambda: fs.norm(x, accumulate=text),
        lambda: fs.matmul(x, x, accumulate=f"blocked({text}, 2, fp32)"), lambda: fs.cumsum(x, 0, accumulate=text),
        lambda: fs.matmul(x, x, accumulate=f"epilogue({text}, fp32)"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=r"epilogue|cumsum"):
            call()
    assert fs.dot(x[0], x[0], np.float32(3), accumulate=text) == 5
    assert fs.matmul(x, x, accumulate=text).tolist() == [[2, 2], [2, 2]]
    stacks = fs.matmul(np.stack([x, 2 * x]), x, np.float32([1, 2]), accumulate=text)
    assert stacks.tolist() == [[[3, 4], [3, 4]], [[5, 6], [5, 6]]]
    assert str(fs.explain_plan(x, x, x, accumulate=text)) == str(fs.explain_plan(x, x, accumulate="fp32"))


def test_a_stochastic_result_of_an_epilogue_in_parts():
    rng = o.rng("epilogue in parts")
    a, b = operands(rng, "bf16", 8, 32, 10)
    c = fs.array(rng.standard_normal((8, 10)), "bf16")
    options = {
        "accumulate": "epilogue(hopper, fp32)", "format": "bf16", "result_rounding": "stochastic", "seed": 1
    }  # fmt: skip
    whole = fs.matmul(a, b, c, **options)
    part = fs.matmul(a[4:], b[:, 6:], c[4:, 6:], part=fs.Part((0, 4, 6), whole.shape), **options)
    assert same(part, whole[4:, 6:])
    assert not same(whole, fs.matmul(a, b, c, **{**options, "result_rounding": None, "seed": None}))


# -- bad input, plans --------------------------------------------------------------------------------------------------


def test_scales_are_refused():
    a, scale = fs.array(np.ones((4, 64)), "e4m3"), fs.array(np.ones((4, 2)), "e8m0")
    for text, says in [
        ("residue(blackwell, 64)", "takes no scales; pass its inner description"),
        ("converted(e5m2, blackwell)", "takes no scales"),
        ("splitk(2, blackwell, fp32, tile=32, dealt)", "reorders elements"),
    ]:
        with pytest.raises(ValueError, match=says):
            fs.matmul(a, a.T, accumulate=text, scale_a=scale, scale_b=scale.T)
    found = fs.matmul(a, a.T, accumulate="epilogue(blackwell, fp32)", scale_a=scale, scale_b=scale.T)
    assert same(found, fs.matmul(a, a.T, accumulate="blackwell", scale_a=scale, scale_b=scale.T))


def test_gelu_is_refused_with_the_reason():
    for call in (
        lambda: fs.Epilogue("hopper", activation="GELU"), lambda: fs.as_accumulation("epilogue(hopper, fp32, gelu)"),
        lambda: fs.as_accumulation("epilogue(hopper, fp32, activation=gelu)"),
    ):  # fmt: skip
        with pytest.raises(
            ValueError, match=r"is not described: it needs the bits of CUDA's own erff.*; described: relu"
        ):
            call()
    with pytest.raises(ValueError, match="activation='silu' is not known"):
        fs.Epilogue("hopper", activation="silu")


def test_plans():
    x = fs.array(np.ones((4, 300)), "fp16")
    assert str(fs.explain_plan(x, x.T, accumulate="residue(hopper, 64)")).splitlines() == [
        "residue(tensorcore(hopper, wgmma.k16, output=fp32), 64) of fp16 x fp16: residue",
        "  tensorcore(hopper, wgmma.k16, output=fp32) of fp16 x fp16: tensorcore float32",
    ]
    wide = np.ones((4, 300), np.float32)
    plan = str(fs.explain_plan(wide, wide.T, accumulate="converted(tf32, hopper)"))
    assert "tensorcore(hopper, wgmma.k8.tf32, output=fp32) of tf32 x tf32: tensorcore float32" in plan
    long = np.ones(5000, np.float32)
    for text, says in [
        ("splitk(4, fp32, fp32, dealt)", "the parts are not consecutive terms"),
        ("blocked(fp32, 64, converted(bf16, fp32))", "the terms are converted"),
    ]:
        assert says in str(fs.explain_plan(long, accumulate=text))
