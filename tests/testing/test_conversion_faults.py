"""Conversions under test: every seeded fault is named, and correct conversions raise no alarm."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import oracles as o
import pytest

import floatsim as fs
from floatsim.testing import compare_arrays, compare_conversion
from tests.marks import cases

FORMATS = ("e4m3", "e5m2", "bf16", "fp16", "e2m1", "e4m3fnuz", "e3m2")


def source(fmt, seed=0, n=6000, special=True):
    """FP32 numbers over the range of a format: below its subnormals, ties and their neighbours, beyond its maximum."""
    rng, fmt = np.random.default_rng(seed), fs.as_format(fmt)
    low, high = fmt.emin - fmt.trailing_bits - 2, fmt.emax + 2
    numbers = np.ldexp(rng.uniform(1, 2, n), rng.integers(max(low, -140), min(high, 127), n)) * rng.choice([-1, 1], n)
    codes = rng.integers(0, fmt.max_code, n // 3).astype(fmt.code_dtype)
    below, above = fs.decode(codes, fmt), fs.decode(codes + 1, fmt)
    ties = np.float32((below + above) / 2)
    beside = np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))
    subnormal = rng.uniform(-1, 1, n // 8) * fmt.smallest_normal
    beyond, most = fmt.max * (1 + fmt.eps / 8), float(np.finfo(np.float32).max)
    ends = [0.0, -0.0, fmt.max, -fmt.max, fmt.smallest_normal, beyond, -beyond, most, -most,
            *([np.nan, -np.nan, np.inf, -np.inf] if special else [])]  # fmt: skip
    with np.errstate(over="ignore"):
        x = np.concatenate([numbers, ties, *beside, subnormal, np.repeat(ends, 4)]).astype(np.float32)
    x = x if special else x[np.isfinite(x)]
    return rng.permutation(x[: len(x) // 8 * 8])


def named(actual, x, fmt, **options):
    report = compare_conversion(actual, x, fmt, **options)
    assert not report.passed
    return report.explanation


MODES = ["ties_to_away", "toward_zero", "toward_positive", "toward_negative", "to_odd"]
QUICK_MODES = cases(quick=MODES[:2], full=MODES)
SATURATED = {"overflow": "saturate_finite"}


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("mode", QUICK_MODES)
def test_another_rounding_mode(fmt, mode):
    for seed in range(3):
        x = source(fmt, seed)
        assert f"rounding='{mode}'" in named(fs.array(x, fmt, rounding=mode), x, fmt)
        assert "rounding='ties_to_even'" in named(fs.array(x, fmt), x, fmt, rounding=mode)


@pytest.mark.parametrize("fmt", ["e4m3", "bf16", "fp16"])
def test_stochastic_rounding_is_recognized(fmt):
    for seed in range(5):
        x = source(fmt, seed)
        assert named(fs.array(x, fmt, rounding="stochastic", seed=seed), x, fmt).startswith("stochastic rounding")


@pytest.mark.parametrize("way", ["fp16", "bf16"])
@pytest.mark.parametrize("fmt", ["e4m3", "e5m2", "e2m1", "e4m3fnuz"])
@pytest.mark.parametrize(("words", "options"), [
    ("", {}), (" toward zero", {"rounding": "toward_zero"}), (", saturated", SATURATED), (" with FTZ", {"ftz": True}),
])  # fmt: skip
def test_a_format_on_the_way(fmt, way, words, options):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = np.concatenate([source(fmt, seed), np.float32(rng.uniform(-1, 1, 4000) * fs.as_format(fmt).max)])
        mid = fs.array(fs.convert(x, way, **options), way)
        text = named(fs.array(mid, fmt), x, fmt)
        assert f"first rounded to {way.upper()}" in text
        same = np.array_equal(fs.array(mid, fmt).codes, fs.array(fs.convert(x, way), fmt).codes)
        assert same or f"{way.upper()}{words}: two roundings" in text


@pytest.mark.parametrize("fmt", ["e4m3", "e5m2", "fp16", "bf16", "e4m3fnuz"])
@pytest.mark.parametrize("overflow", ["saturate_finite", "saturate_propagate"])
def test_another_overflow_policy(fmt, overflow):
    for seed in range(3):
        x = source(fmt, seed)
        assert f"overflow='{overflow}'" in named(fs.array(x, fmt, overflow=overflow), x, fmt)
        assert "overflow='infinity'" in named(fs.array(x, fmt), x, fmt, overflow=overflow)


def with_fault(x, fmt, where, code, **options):
    """Return the right conversion with another code, of the sign of x, in some places."""
    fmt, right = fs.as_format(fmt), fs.encode(x, fmt, **options)
    signs = np.where(np.signbit(x), fmt.sign_mask, 0).astype(fmt.code_dtype)
    return fs.from_codes(np.where(where, code | signs, right).astype(fmt.code_dtype), fmt)


@pytest.mark.parametrize("fmt", ["e4m3", "e5m2", "fp16", "bf16"])
@pytest.mark.parametrize("kind", ["NaN", "infinity"])
@pytest.mark.parametrize("fill", ["0", "max"])
def test_another_rule_for_special_values(fmt, kind, fill):
    x, known = source(fmt), fs.as_format(fmt)
    where = np.isnan(x) if kind == "NaN" else np.isinf(x)
    text = named(with_fault(x, fmt, where, {"0": 0, "max": known.max_code}[fill]), x, fmt)
    assert f"{'NaNs' if kind == 'NaN' else 'infinities'} become +-{fill}" in text


@pytest.mark.parametrize("fmt", ["e4m3", "e5m2", "fp16", "bf16"])
def test_the_sign_of_nan(fmt):
    x, known = source(fmt), fs.as_format(fmt)
    assert "NaNs keep their sign" in named(with_fault(x, fmt, np.isnan(x), known.canonical_nan), x, fmt)
    assert compare_conversion(with_fault(x, fmt, np.isnan(x), known.canonical_nan), x, fmt, equal_nan=True).passed


def test_codes_of_nan_that_are_rounded_or_cut():
    """The two classical mistakes of hand-written conversions from FP32 to BF16."""
    x = source("bf16")
    x[:8] = np.uint32([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7FFFC000] * 2).view(np.float32)
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    assert "the code of NaN is rounded as an integer" in named(rounded, x, "bf16")
    assert "the first bits of each code are taken" in named((bits >> 16).astype(np.uint16), x, "bf16")


@pytest.mark.parametrize("fmt", ["e4m3", "e5m2", "fp16", "e2m1", "e4m3fnuz"])
def test_subnormal_results_and_operands(fmt):
    x, known = source(fmt), fs.as_format(fmt)
    assert "ftz=True" in named(fs.array(x, fmt, ftz=True), x, fmt)
    assert "ftz=False" in named(fs.array(x, fmt), x, fmt, ftz=True)
    right = fs.array(x, fmt)
    tiny = (np.abs(right.values) < known.smallest_normal) & (right.values != 0)
    zero = right.codes & known.code_dtype.type(known.sign_mask if known.has_signed_zero else 0)
    by_hand = fs.from_codes(np.where(tiny, zero, right.codes), fmt)
    assert "FTZ" in named(by_hand, x, fmt)
    y = fs.convert(source("fp16"), "fp16")  # its subnormal numbers are numbers of BF16
    assert "daz=True" in named(fs.array(y, "bf16", daz=True), y, "bf16")


@pytest.mark.parametrize("fmt", ["e4m3", "e5m2", "fp16", "bf16", "e3m2", "e4m3fnuz"])
@pytest.mark.parametrize("step", [-2, -1, 1, 2])
def test_a_wrong_bias(fmt, step):
    known, x = fs.as_format(fmt), source(fmt, special=False)
    other = fs.FloatFormat("other", known.exponent_bits, known.trailing_bits, known.specials, known.bias + step)
    assert f"the exponent bias is {other.bias}, not {known.bias}" in named(fs.encode(x, other), x, fmt)


@pytest.mark.parametrize(("fmt", "written"), [
    ("e4m3", "e4m3fnuz"), ("e4m3", "e5m2"), ("e5m2", "e5m2fnuz"), ("fp16", "bf16"), ("bf16", "fp16"), ("e3m2", "e2m3"),
])  # fmt: skip
def test_codes_of_another_format(fmt, written):
    x = source(fmt)
    assert f"the codes are those of {written.upper()}" in named(fs.encode(x, written), x, fmt)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("factor", [2, 0.5, 4, 0.25, 256, 1 / 16])
def test_a_wrong_factor(fmt, factor):
    x = source(fmt, special=False)
    assert f"multiplied by {factor:g} before" in named(fs.array(x.astype(np.float64) * factor, fmt), x, fmt)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("kept", [False, True])
def test_a_dropped_carry(fmt, kept):
    x, known = source(fmt, special=False), fs.as_format(fmt)
    x = x[np.abs(x) < known.max]
    right, cut, t = fs.encode(x, fmt), fs.encode(x, fmt, rounding="toward_zero"), known.trailing_bits
    codes = np.where(right >> t != cut >> t, cut if kept else cut >> t << t, right).astype(known.code_dtype)
    assert "carry into the exponent is dropped" in named(codes, x, fmt)


@pytest.mark.parametrize("fmt", ["e4m3", "e5m2", "fp16"])
def test_the_range(fmt):
    x, known = source(fmt, special=False), fs.as_format(fmt)
    wide = fs.FloatFormat("wide", known.exponent_bits + 2, known.trailing_bits, "finite", known.bias)
    signs = np.where(np.signbit(x), known.sign_mask, 0)
    codes = (fs.encode(x, wide) & known.magnitude_mask | signs).astype(known.code_dtype)
    assert "the exponent field wraps" in named(codes, x, fmt)
    early = with_fault(x, fmt, np.abs(x) > known.max, known.infinity_code or known.canonical_nan)
    if not known.has_infinity:
        codes = np.where(np.abs(x) > known.max, known.canonical_nan, fs.encode(x, fmt)).astype(known.code_dtype)
        early = fs.from_codes(codes, fmt)
    assert "tested before the rounding" in named(early, x, fmt)


@pytest.mark.parametrize("change", ["dropped", "inverted"])
@pytest.mark.parametrize("fmt", ["e4m3", "bf16", "e2m1"])
def test_the_sign(fmt, change):
    x, known = source(fmt, special=False), fs.as_format(fmt)
    right = fs.encode(x, fmt, overflow="saturate_finite")
    mask = known.code_dtype.type(known.sign_mask)
    actual = right & ~mask if change == "dropped" else right ^ mask
    assert f"the sign is {change}" in named(actual, x, fmt, overflow="saturate_finite")


def test_zeros_that_lose_their_sign():
    x = source("e4m3")
    codes = fs.encode(x, "e4m3")
    assert "zeros lose their sign" in named(np.where(codes == 0x80, 0, codes).astype(np.uint8), x, "e4m3")


@pytest.mark.parametrize("fmt", ["e2m1", "bf16", "fp16"])
def test_the_order_of_nibbles_and_bytes(fmt):
    x = source(fmt).reshape(8, -1)
    codes = fs.encode(x, fmt)
    swapped = codes.reshape(-1, 2)[:, ::-1].reshape(codes.shape) if fmt == "e2m1" else codes.byteswap()
    assert ("order of the nibbles" if fmt == "e2m1" else "the byte order") in named(swapped, x, fmt)


def test_two_faults_at_once():
    x = source("e4m3")
    actual = fs.array(x, "e4m3", rounding="toward_zero", overflow="saturate_finite")
    assert "rounding='toward_zero', and overflow='saturate_finite'" in named(actual, x, "e4m3")
    actual = fs.array(x, "e5m2", rounding="ties_to_away", ftz=True)
    assert "rounding='ties_to_away', and ftz=True" in named(actual, x, "e5m2")


# -- blocks ------------------------------------------------------------------------------------------------------------


def tensor(seed=0, shape=(16, 256)):
    rng = np.random.default_rng(seed)
    return np.float32(rng.standard_normal(shape) * np.exp2(rng.integers(-6, 6, (shape[0], 1))))


@pytest.mark.parametrize(("scheme", "rule"), cases(
    quick=[pytest.param("mxfp8", "rceil"), pytest.param("nvfp4", "nvfp4_single")],
    full=[pytest.param(*case) for case in (
        ("mxfp8", "ceil"), ("mxfp8", "even"), ("te_mxfp8", "floor"), ("mxfp4", "rceil"), ("mxfp6", "ceil"),
        ("gptq", "asymmetric"),
    )],
))  # fmt: skip
def test_another_rule_of_the_scales(scheme, rule):
    x = tensor()
    assert f"rule={rule!r}" in named(fs.quantize_blocks(x, scheme, rule=rule), x, scheme)


@pytest.mark.parametrize("scheme", ["mxfp8", "mxfp4", "deepseek", fs.quantization.Scheme("int8", "row")], ids=str)
@pytest.mark.parametrize("step", [1, -1])
def test_a_scale_that_is_one_step_off(scheme, step):
    """In the codes and in what is stored, in the stored scales alone, in the codes alone; of all blocks or of some."""
    x = tensor()
    right = fs.quantize_blocks(x, scheme)
    moved = fs.from_codes(
        (right.scales.codes.astype(np.int64) + step).astype(right.scales.codes.dtype), right.scales.format
    )
    wrong = fs.quantize_blocks(x, scheme, scale=moved)
    side, name = ("too large" if step > 0 else "too small"), right.scales.format.name
    assert f"every block one step of {name} {side}" in named(wrong, x, scheme)
    stored = fs.quantization.Quantized(right.codes, moved, right.scheme)
    assert "the stored scale is off by one step" in named(stored, x, scheme)
    if right.scales.format == fs.E8M0:
        codes = fs.quantization.Quantized(wrong.codes, right.scales, right.scheme)
        assert "the codes are computed with a scale that is off by one step" in named(codes, x, scheme)
        part = right.scales.codes.copy()
        part[3:5] = moved.codes[3:5]
        some = fs.quantize_blocks(x, scheme, scale=fs.from_codes(part, fs.E8M0))
        assert f"in 16 of 128 blocks one step of E8M0 {side}" in named(some, x, scheme)


@pytest.mark.parametrize("scheme", ["mxfp4", "nvfp4", "gptq", "nf4"])
def test_nibbles_of_blocks(scheme):
    x = tensor()
    codes = fs.quantize_blocks(x, scheme).codes
    assert "order of the nibbles" in named(codes.reshape(-1, 2)[:, ::-1].reshape(codes.shape), x, scheme)


@pytest.mark.parametrize("mode", QUICK_MODES)
def test_rounding_of_blocks(mode):
    x = fs.quantize(tensor(), "bf16")  # with ties
    for scheme in ("mxfp8", "nvfp4", "llm_int8") if mode != "ties_to_away" else ("mxfp8", "mxfp4"):
        assert f"rounding='{mode}'" in named(fs.quantize_blocks(x, scheme, rounding=mode), x, scheme)


def test_blocks_along_the_other_axis():
    x = tensor(shape=(64, 64))
    turned = fs.quantize_blocks(np.ascontiguousarray(x.T), "mxfp8")
    q = fs.quantization.Quantized(
        np.ascontiguousarray(turned.codes.T),
        fs.from_codes(np.ascontiguousarray(turned.scales.codes.T).reshape(64, 2), fs.E8M0), turned.scheme,
    )  # fmt: skip
    assert named(q, x, "mxfp8") == "the blocks lie along the other axis"


# -- no false alarm ----------------------------------------------------------------------------------------------------


def correct_run(run):
    """Return a correct conversion, its source and its options: another implementation where there is one."""
    rng = np.random.default_rng(run)
    fmt = FORMATS[run % len(FORMATS)]
    mode = ["ties_to_even", *MODES][run % 6]
    options = {
        "rounding": mode, "overflow": ["infinity", "saturate_finite", "saturate_propagate"][run % 3],
        "ftz": run % 5 == 0, "daz": run % 7 == 0,
    }  # fmt: skip
    x = source(fmt, run, n=400)
    if run % 4 == 0:
        x = x.astype(np.float64) * (1 + rng.uniform(-1e-9, 1e-9, x.size))
    if run % 10 == 1 and fmt in ("e4m3", "e5m2", "bf16", "fp16"):
        dtype = fs.as_format(fmt).dtype
        with np.errstate(all="ignore"):
            x = x.astype(np.float32)
            return x.astype(dtype), x, fmt, {"equal_nan": True}
    return fs.encode(x, fmt, **options), x, fmt, options


def check_correct_runs(runs):
    for run in runs:
        actual, x, fmt, options = correct_run(run)
        report = compare_conversion(actual, x, fmt, **options)
        assert report.passed and report.explanation is None, (run, str(report))


def check_corrupted_runs(runs):
    """Codes that change at random have no cause that a conversion explains."""
    for run in runs:
        actual, x, fmt, options = correct_run(run)
        rng, known = np.random.default_rng(run), fs.as_format(fmt)
        codes = np.array(actual.view(known.code_dtype))
        where = rng.choice(codes.size, 40, replace=False)
        codes[where] ^= rng.integers(1, 1 << known.bits - 1, 40).astype(known.code_dtype)
        report = compare_conversion(codes, x, fmt, **options)
        assert report.explanation == "no known fault of a conversion gives these bits", (run, str(report))


def test_no_false_name_in_twenty_runs():
    check_correct_runs(range(20))
    check_corrupted_runs(range(4))


@pytest.mark.full
def test_no_false_name_in_hundreds_of_correct_runs():
    """Runs in a row, of which the commit's seed chooses the first. FLOATSIM_EXHAUSTIVE=1 takes 1000 of them.

    `correct_run` combines options whose periods have the least common multiple 420: every combination is there once.
    The formats, modes and policies of the corrupted runs repeat after 42.
    """
    every = os.environ.get("FLOATSIM_EXHAUSTIVE") == "1"
    first = int(o.rng("correct runs").integers(580))
    check_correct_runs(range(1000) if every else range(first, first + 420))
    first %= 58
    check_corrupted_runs(range(100) if every else range(first, first + 42))


def test_codes_alone_name_the_rule():
    x = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    for rule in ("rceil", "ceil"):
        codes = fs.quantize_blocks(x, "mxfp8", rule=rule).elements
        why = fs.testing.compare_conversion(codes, x, "mxfp8").explanation
        assert f"the scales follow rule={rule!r}, not 'floor'" in why


# -- arrays without their source ---------------------------------------------------------------------------------------


def cast_faults():
    """Pairs of arrays with faults of casts, and words of the explanation."""
    rng = np.random.default_rng(0)
    wide = np.float32(rng.uniform(-448, 448, 1 << 16))
    small = np.float32(rng.normal(size=1 << 14) * 0.03)
    right, cut = fs.array(wide, "e4m3"), fs.array(wide, "e4m3", rounding="toward_zero")
    carried = np.where(right.codes >> 3 != cut.codes >> 3, cut.codes >> 3 << 3, right.codes).astype(np.uint8)
    nan = np.where(rng.random(1 << 12) < 0.1, np.nan, wide[: 1 << 12])
    tiny = np.exp2(rng.uniform(-40, 0, 1 << 12))
    huge = np.exp2(rng.uniform(0, 30, 1 << 12))
    return {
        "a second rounding": (fs.array(fs.quantize(wide, "fp16", rounding="toward_zero"), "e4m3"), right),
        "FTZ": (fs.array(small, "e4m3", ftz=True), fs.array(small, "e4m3")),
        "the carry of the rounding into": (fs.from_codes(carried, "e4m3"), right),
        "an exponent bias is wrong": (fs.array(wide / 2, "e4m3"), right),
        "another rule for NaN": (fs.array(np.nan_to_num(nan), "e4m3"), fs.array(nan, "e4m3")),
        "format with a narrower range": (fs.array(fs.convert(tiny, "fp16"), "bf16"), fs.array(tiny, "bf16")),
        "numbers from": (fs.array(fs.convert(huge, "fp16"), "bf16"), fs.array(huge, "bf16")),
    }  # fmt: skip


@pytest.mark.parametrize("words", cast_faults())
def test_faults_of_casts_are_no_order_of_sums(words):
    text = compare_arrays(*cast_faults()[words]).explanation
    assert words in text
    assert not [each for each in ("another order", "not written", "truncation") if each in text]


# -- inputs ------------------------------------------------------------------------------------------------------------


def test_kinds_of_input():
    x = np.float32([[0.1, 300.0], [1.5, 2.0]])
    right = fs.array(x, "bf16")
    for actual in (right, right.codes, x.astype(ml_dtypes.bfloat16), right.values):
        assert compare_conversion(actual, x, "bf16").passed
    assert compare_conversion(fs.array([], "bf16"), np.float32([]), "bf16").passed
    assert compare_conversion(np.float32(0.5), np.float64(0.5), "fp32").passed
    draws = {"rounding": "stochastic", "seed": 3}
    assert compare_conversion(fs.array(x, "e4m3", **draws), x, "e4m3", **draws).passed
    with fs.context(rounding="toward_zero"):
        assert compare_conversion(fs.array(x, "e4m3"), x, "e4m3").passed
    q = fs.quantize_blocks(x, "int8", block="row")
    scheme = fs.quantization.Scheme("int8", "row")
    assert compare_conversion(q, x, scheme).passed and compare_conversion(q.codes, x, scheme).passed
    assert compare_conversion(fs.quantize_blocks(x, "int8", scale=2.0), x, "int8", scale=2.0).passed
    assert fs.testing.assert_conversion(right, x, "bf16").passed
    with pytest.raises(AssertionError, match=r"likeliest explanation: .*rounding='toward_zero'"):
        fs.testing.assert_conversion(fs.array(x, "bf16", rounding="toward_zero"), x, "bf16")


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: compare_conversion([1.0], [1.0, 2.0], "bf16"), AssertionError, r"actual \(1,\), x \(2,\)"),
    (lambda: compare_conversion([1.001], [1.0], "bf16"), TypeError, r"1.001\) is no number of BF16"),
    (lambda: compare_conversion([1.0], [1.0], "bf61"), ValueError, "did you mean 'bf16'"),
    (lambda: compare_conversion([1], [1.0], "mxfp8", ftz=True), TypeError, "ftz is a keyword of a cast"),
    (lambda: compare_conversion([1.0], [1.0], fs.BF16, scale=2.0), TypeError, "scale is a keyword of a scheme"),
    (lambda: compare_conversion(np.float32([1.0]), [1.0], "int8"), TypeError, "actual has dtype float32"),
    (lambda: compare_conversion(np.uint8([1, 2]), [1.0], "uint4"), AssertionError, r"actual \(2,\), x \(1,\)"),
    (lambda: compare_conversion([1.0], [1.0], "bf16", rounding="sr", seed=fs.RandomStream(1)), TypeError, "seed must"),
    (lambda: compare_conversion(fs.quantize_blocks([1.0], "int4"), [1.0], "int8"), TypeError, "elements of INT4"),
])  # fmt: skip
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("name", ["e4m3", "e4m3fnuz", "e5m2"])
def test_ftz_by_the_other_rule_of_tininess_is_named(name):
    """Numbers that round up to the least normal number are tiny before the rounding only."""
    x = (np.random.default_rng(5).standard_normal(8192) * 0.03).astype(np.float32)
    actual = fs.array(x, name, ftz=True, tininess="before")
    found = fs.testing.compare_conversion(actual, x, name).explanation
    assert found == "actual has the bits of ftz=True, tininess='before'"
    found = fs.testing.compare_conversion(actual, x, name, ftz=True).explanation
    assert found == "actual has the bits of tininess='before'"
    back = fs.array(x, name, ftz=True)
    found = fs.testing.compare_conversion(back, x, name, ftz=True, tininess="before").explanation
    assert found == "actual has the bits of tininess='after'"


@pytest.mark.parametrize("seed", [fs.Philox(42), fs.Threefry(42), fs.Lfsr(16, (16, 14, 13, 11)), 42])
def test_draws_of_a_generator(seed):
    """A kernel with the draws of a generator is equal to it, and differs from one with another seed."""
    x = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    draws = {"rounding": "stochastic", "random_bits": 16}
    kernel = fs.encode(x, "bf16", seed=seed, **draws)
    assert compare_conversion(kernel, x, "bf16", seed=seed, **draws).passed
    assert not compare_conversion(kernel, x, "bf16", seed=fs.Philox(43), **draws).passed
    q = fs.quantize_blocks(x.reshape(16, 256), "mxfp4", seed=seed, **draws)
    assert compare_conversion(q, x.reshape(16, 256), "mxfp4", seed=seed, **draws).passed
    assert not compare_conversion(q, x.reshape(16, 256), "mxfp4", seed=fs.Philox(43), **draws).passed
    for scheme in ("bf16", "mxfp4"):
        with pytest.raises(TypeError, match=r"seed must be an integer, or a generator such as fs.Philox\(42\)"):
            compare_conversion(kernel, x, scheme, seed=fs.RandomStream(1), **draws)


def test_a_kernel_that_adds_the_high_bits_of_philox():
    """The integer kernel of BF16: add the draw, and cut. `fs.Philox` is compared with Triton elsewhere."""
    x = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    draws = fs.Philox(42).draws(x.size, 32).astype(np.uint32)
    kernel = ((x.view(np.uint32) + (draws >> 16)) >> 16).astype(np.uint16)
    assert compare_conversion(kernel, x, "bf16", rounding="stochastic", seed=fs.Philox(42), random_bits=16).passed


def test_equal_values_with_other_codes_and_scales_are_counted():
    x = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    q, other = fs.quantize_blocks(x, "mxfp4"), fs.quantize_blocks(x, "mxfp4", rule="rceil")
    report = compare_conversion(other, x, "mxfp4")
    differ = int((q.values != other.values).sum())
    assert 0 < differ < report.mismatches
    assert f"{differ} values differ; the others have other codes or scales with equal values" in str(report)
    assert "fail: equal codes and scales, against the quantization to E2M1" in str(report)
    assert "values differ" not in str(compare_conversion(fs.encode(x, "bf16") + np.uint16(1), x, "bf16"))
