"""Assertions, places and explanations: seeded faults are located, and correct results raise no alarm."""

from __future__ import annotations

import itertools
import json
import math
import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import floatsim as fs
from floatsim.emulator.elementwise import distances
from floatsim.testing.compare.location import locate
from tests.marks import cases

FORMATS = ("fp32", "fp16", "bf16", "e4m3", "e5m2", "e2m1", "fp64", "e4m3fnuz")


def with_code(x, index, change):
    """A copy whose code at an index is changed."""
    codes = x.codes.copy()
    codes[index] ^= codes.dtype.type(change)
    return fs.from_codes(codes, x.format)


# -- statistics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cases(quick=["bf16"], full=FORMATS))
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 3000), spread=st.sampled_from([1, 3, 12, 60]))
@settings(max_examples=20, deadline=None)
def test_statistics_equal_those_of_the_distances(name, seed, n, spread):
    """Against sorted distances: random codes, NaNs included, and codes of which few differ a little."""
    fmt, rng = fs.as_format(name), np.random.default_rng(seed)
    a = rng.integers(0, 1 << min(fmt.bits, 63), n, dtype=np.uint64).astype(fmt.code_dtype)
    steps = rng.integers(0, 1 << min(spread, fmt.bits), n, dtype=np.uint64).astype(fmt.code_dtype)
    b = np.where(rng.random(n) < 0.5, a, a ^ steps)
    x, y = fs.from_codes(a, fmt), fs.from_codes(b, fmt)
    found = fs.testing.ulp_stats(x, y)
    apart = np.sort(np.where(a == b, 0, fs.ulp_distance(x, y, equal_nan=True)))
    assert found.equal == (a == b).sum()
    assert found.max == apart[-1]
    assert found.p99 == apart[math.ceil(0.99 * n) - 1]
    assert sum(found.histogram.values()) == found.count == n
    assert found.histogram.get("NaN", 0) == (apart == 2**64 - 1).sum()
    assert found.histogram.get("2", 0) == (apart == 2).sum()
    assert found.histogram.get("3-4", 0) == ((apart == 3) | (apart == 4)).sum()


@pytest.mark.parametrize("fmt", [
    fs.FP16, fs.E4M3, fs.FP32, fs.FP64, fs.E2M1, fs.FloatFormat("Full32", 8, 23, "finite"),
], ids=lambda fmt: fmt.name)  # fmt: skip
@pytest.mark.parametrize("share", [0.001, pytest.param(0.3, marks=pytest.mark.full), 1.0])
def test_statistics_of_long_arrays(fmt, share):
    """All blocks, pieces, threads and passes: the last block is incomplete, the middle of the array is equal."""
    rng, n = np.random.default_rng(round(1000 * share)), (1 << 20) + 3001
    a = rng.integers(0, 1 << min(fmt.bits, 63), n, dtype=np.uint64).astype(fmt.code_dtype)
    other = rng.integers(0, 1 << min(fmt.bits, 63), n, dtype=np.uint64).astype(fmt.code_dtype)
    differs = rng.random(n) < share
    differs[n // 3 : n // 2] = False
    x, y = fs.from_codes(a, fmt), fs.from_codes(np.where(differs, other, a), fmt)
    apart = np.sort(np.where(x.codes == y.codes, 0, fs.ulp_distance(x, y, equal_nan=True)))
    for found in (fs.testing.ulp_stats(x, y), fs.testing.ulp_stats(y, x)):
        assert (found.max, found.p99) == (apart[-1], apart[math.ceil(0.99 * n) - 1])
        assert found.equal == (x.codes == y.codes).sum()
        steps, numbers = [0, 1, 2, 4, 8, 2**12, 2**20, 2**64 - 2], apart[apart < 2**64 - 1]
        for low, high in itertools.pairwise(steps[:4]):
            name = str(high) if high == low + 1 else f"{low + 1}-{high}"
            assert found.histogram.get(name, 0) == ((numbers > low) & (numbers <= high)).sum()
        assert sum(found.histogram.values()) == n
        assert found.histogram.get("NaN", 0) == (apart == 2**64 - 1).sum()


@pytest.mark.parametrize("name", ["fp16", "fp32", "fp64"])
def test_percentiles_at_the_ends_of_the_counted_ranges(name):
    """Distances of 2**n and one beside it: each is alone at its rank."""
    fmt = fs.as_format(name)
    distances = sorted({2**n + e for n in range(fmt.bits - 2) for e in (-1, 0, 1)} - {0})
    for d in distances:
        a = np.zeros(200, fmt.code_dtype)
        b = np.where(np.arange(200) < 2, a, a + fmt.code_dtype.type(d))
        b[-2:] = min(distances[-1], d + 1)
        x, y = fs.from_codes(a, fmt), fs.from_codes(b, fmt)
        assert fs.testing.ulp_stats(x, y).p99 == d


def test_large_distances_have_an_exact_percentile():
    a = np.zeros(5000, np.float64)
    b = np.ldexp(1.0, np.arange(5000) % 1000) * (1 + np.arange(5000) / 7)
    apart = np.sort(fs.ulp_distance(a, b))
    assert fs.testing.ulp_stats(a, b).p99 == apart[math.ceil(0.99 * 5000) - 1]


def assert_statistics(a, b, fmt):
    """Assert that the largest distance, the percentile and the histogram are those of the sorted distances."""
    x, y = fs.from_codes(a, fmt), fs.from_codes(b, fmt)
    found = fs.testing.ulp_stats(x, y)
    apart = np.sort(np.where(a == b, 0, fs.ulp_distance(x, y, equal_nan=True)))
    assert (found.max, found.p99) == (apart[-1], apart[math.ceil(0.99 * a.size) - 1])
    numbers = apart[apart < 2**64 - 1]
    for name, count in found.histogram.items():
        if re.fullmatch(r"\d+(-\d+)?", name):
            ends = [int(n) for n in name.split("-")]
            assert count == ((numbers >= ends[0]) & (numbers <= ends[-1])).sum()
    assert sum(found.histogram.values()) == a.size


@pytest.mark.parametrize("fmt", [fs.FP16, fs.FP32, fs.FP64], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("case", [
    "sorted", "descending", "periodic", "two values", "heavy at the rank", "all different", "tail alone", "NaN",
])  # fmt: skip
def test_percentiles_where_a_sample_misleads(fmt, case):
    """Long arrays, whose percentile is first enclosed by bounds from a sample of their distances."""
    n = 60_001
    i, top = np.arange(n), int(fmt.max_code)
    spread = np.linspace(0, top, n).astype(np.uint64) if top < 1 << 52 else i.astype(np.uint64) * np.uint64(top // n)
    few = np.arange(n) >= math.ceil(0.99 * n)
    steps = {
        "sorted": spread,
        "descending": spread[::-1],
        "periodic": np.where(i % 8 == 0, spread, 1),
        "two values": np.where(few, top, 1),
        "heavy at the rank": np.select([i % 50 == 0, i % 200 == 1], [1000, 1001], i % 999),
        "all different": np.random.default_rng(3).permutation(spread),
        "tail alone": np.where(np.roll(few, 5000), spread, 0),
        "NaN": np.where(few, fmt.canonical_nan, spread % np.uint64(7)),
    }[case]  # fmt: skip
    a = np.zeros(n, fmt.code_dtype)
    assert_statistics(a, steps.astype(fmt.code_dtype), fmt)
    assert_statistics(steps.astype(fmt.code_dtype), a, fmt)


@pytest.mark.parametrize("fmt", [fs.FP16, fs.FP32], ids=lambda fmt: fmt.name)
def test_bounds_that_miss_the_rank_are_replaced(fmt, monkeypatch):
    """Bounds next to the rank in a small sample often miss it. That costs another pass and changes no bit."""
    monkeypatch.setattr(distances, "_SAMPLE", 512)
    monkeypatch.setattr(distances, "_WIDTHS", (0, 0.5))
    passes = []
    count = distances._count
    monkeypatch.setattr(distances, "_count", lambda *args: passes.append(args[3:]) or count(*args))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        a, b = (rng.integers(0, fmt.max_code, 5000).astype(fmt.code_dtype) for _ in range(2))
        assert_statistics(a, b, fmt)
    assert len(passes) > 2 * 20 + 5  # two passes each, over the sample and over the arrays, and more


@pytest.mark.parametrize("n", [0, 1, 2047, 2048, 2049, 1 << 20, (1 << 20) + 1])
@pytest.mark.parametrize("fmt", [fs.FP16, fs.E4M3FNUZ, fs.E8M0, fs.p3109(8, 3, signed=False)], ids=lambda fmt: fmt.name)
def test_statistics_of_special_arrays(fmt, n):
    """Equal arrays, NaNs alone, both zeros, NaNs with other bits, and no elements; formats without a sign, too."""
    codes = np.full(n, fmt.canonical_nan, fmt.code_dtype)
    everything_equal = fs.testing.ulp_stats(fs.from_codes(codes, fmt), fs.from_codes(codes, fmt))
    assert (everything_equal.equal, everything_equal.max, everything_equal.p99) == (n, 0, 0)
    against_numbers = fs.testing.ulp_stats(fs.from_codes(codes, fmt), fs.from_codes(codes * 0 + 1, fmt))
    assert (against_numbers.max, against_numbers.p99) == ((2**64 - 1,) * 2 if n else (0, 0))
    if n and fmt.signed:
        zeros = np.where(np.arange(n) % 2, 0, fmt.sign_mask).astype(fmt.code_dtype)
        assert_statistics(zeros, np.zeros_like(zeros), fmt)
    if n:
        largest = np.full_like(codes, fmt.max_code)
        assert_statistics(largest, largest * 0, fmt)
    if n and fmt == fs.FP16:
        others = fs.testing.ulp_stats(fs.from_codes(codes, fmt), fs.from_codes(codes + 1, fmt))
        assert (others.max, others.p99, others.histogram) == (0, 0, {"equal": 0, "NaN, other bits": n})


def test_threads_do_not_change_statistics():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(3 << 20).astype(np.float32) for _ in range(2))
    found = set()
    for threads in (1, 2, 5):
        fs.set_num_threads(threads)
        found.add(repr(fs.testing.ulp_stats(a, b)))
    fs.set_num_threads(None)
    assert len(found) == 1


# -- inputs of other libraries -----------------------------------------------------------------------------------------


def test_codes_need_a_format():
    codes = fs.encode([1.0, 2.0], "bf16")
    with pytest.raises(TypeError, match=r"actual has dtype uint16: it holds codes.*format='bf16'"):
        fs.testing.assert_bit_equal(codes, codes)
    with pytest.raises(TypeError, match=r"codes of FP32 have uint32"):
        fs.testing.assert_bit_equal(codes, codes, "fp32")
    assert fs.testing.assert_bit_equal(codes, np.array([1.0, 2.0], ml_dtypes.bfloat16), "bf16").passed
    assert fs.testing.assert_bit_equal(codes.view("V2"), codes, "bf16").passed  # what np.load returns for BF16


def test_an_ml_dtypes_array_is_not_copied():
    from floatsim.arrays.array.conversion import as_float_array

    x = np.ones(4, ml_dtypes.bfloat16)
    assert np.shares_memory(as_float_array(x, "x").codes, x)


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    x = torch.ones(4, dtype=torch.bfloat16, requires_grad=True)
    assert fs.testing.assert_bit_equal(x, np.ones(4, ml_dtypes.bfloat16)).passed


def test_values_of_another_format():
    assert fs.testing.assert_max_ulp(fs.array([1.0], "bf16"), np.float32([1.0078125])).passed
    with pytest.raises(TypeError, match=r"desired is FP32, and .*1\.00.* is no number of BF16; round it first"):
        fs.testing.assert_max_ulp(fs.array([1.0], "bf16"), np.float32([1.001]))


# -- rules -------------------------------------------------------------------------------------------------------------


def test_nan_and_zeros():
    nan = fs.from_codes([0x7FC0, 0x7FC1], "bf16")
    quiet = fs.from_codes([0x7FC0, 0x7FC0], "bf16")
    fs.testing.assert_bit_equal(nan, quiet, equal_nan=True)
    fs.testing.assert_max_ulp(nan, quiet)
    with pytest.raises(AssertionError, match=r"both are NaN, with other bits"):
        fs.testing.assert_bit_equal(nan, quiet)
    with pytest.raises(AssertionError, match=r": NaN"):
        fs.testing.assert_max_ulp(nan, fs.array([1.0, math.nan], "bf16"), 2**60)
    fs.testing.assert_max_ulp(np.float32([0.0]), np.float32([-0.0]), 1)
    with pytest.raises(AssertionError, match="signs of zeros"):
        fs.testing.assert_bit_equal(np.float32([0.0]), np.float32([-0.0]))


@pytest.mark.parametrize("apart", [1, 2, 5])
def test_max_ulp_is_the_largest_accepted_distance(apart):
    x, y = fs.from_codes([0x3C00], "fp16"), fs.from_codes([0x3C00 + apart], "fp16")
    fs.testing.assert_max_ulp(x, y, apart)
    with pytest.raises(AssertionError, match=f": {apart} ulp"):
        fs.testing.assert_max_ulp(x, y, apart - 1)


def test_shapes_must_be_equal():
    with pytest.raises(AssertionError, match=r"shapes differ: actual \(2,\), desired \(1,\)"):
        fs.testing.assert_bit_equal(np.float32([1, 2]), np.float32([1]))


def test_measures():
    x, y = np.float32([1.0, 2.0]), np.float32([1.0, 2.5])
    assert fs.testing.calc_diff(x, x) == 0
    assert fs.testing.calc_diff(x, y) == pytest.approx(1 - 2 * 6.0 / (5 + 7.25))
    assert fs.testing.error_ratio(x, x, y) == 0
    assert fs.testing.error_ratio(y, x, x) == math.inf
    assert math.isnan(fs.testing.error_ratio(np.float32([math.nan, 1]), x, x))


# -- places ------------------------------------------------------------------------------------------------------------


def mask(*index, shape=(256, 320)):
    x = np.zeros(shape, bool)
    x[index] = True
    return x


PLACES = {
    "row 17": mask(17, np.s_[::5]),
    "column 300": mask(np.s_[::7], 300),
    "tile 16x16 at (32, 48)": mask(np.s_[32:48], np.s_[48:64]),
    "tile 128x128 at (128, 128)": mask(np.s_[130:256], np.s_[128:250]),
    "rows with row % 8 == 3": mask(np.s_[3::8], np.s_[:]),
    "columns with column % 32 in {5, 6}": mask(np.s_[:], (np.arange(320) % 32 == 5) | (np.arange(320) % 32 == 6)),
    "rows 192 to 255": mask(np.s_[192:], np.s_[::3]),
    "above the diagonal": np.triu(np.ones((200, 200), bool), 1),
    "columns 320 to 324, the incomplete last tile of 8": mask(np.s_[:], np.s_[320:], shape=(40, 325)),
    "matrix 3 of the stack": mask(3, np.s_[::3], np.s_[::5], shape=(9, 64, 64)),
}


@pytest.mark.parametrize("text", PLACES)
def test_places_are_named(text):
    assert [place.text for place in locate(PLACES[text])] == [text]


def test_noise_has_no_place():
    rng = np.random.default_rng(1)
    named = sum(bool(locate(rng.random((100, 100)) < share)) for share in (0.001, 0.01, 0.1, 0.5) for _ in range(50))
    assert named <= 6  # chance: below 1 % for each of two axes


# -- seeded faults -----------------------------------------------------------------------------------------------------


def test_one_bit_of_one_element_of_512_squared():
    rng = np.random.default_rng(2)
    x = fs.array(rng.standard_normal((512, 512)), "bf16")
    report = fs.testing.compare_arrays(with_code(x, (377, 41), 1 << 9), x)
    assert report.mismatches == 1
    assert report.first[0].index == (377, 41)
    assert report.explanation == "bit 9 of the code is flipped (exponent): a memory or transfer error"
    assert "[377, 41]" in str(report)
    assert json.loads(report.to_json())["first"][0]["index"] == [377, 41]


def patterns():
    rng = np.random.default_rng(5)
    x = fs.array(rng.standard_normal((64, 64)), "fp16")
    tiny = fs.array(rng.standard_normal((64, 64)) * 6e-5, "fp16")
    huge = fs.array(np.where(rng.random((64, 64)) < 0.1, np.inf, 1.0), "fp16")
    wide = rng.standard_normal((64, 64))
    return {
        "flushed to zero": (fs.array(np.where(np.abs(tiny.values) < 2**-14, 0, tiny.values), "fp16"), tiny),
        "saturates": (fs.array(np.minimum(huge.values, 65504.0), "fp16"), huge),
        "transposed": (x.T, x),
        "row with an index 8 lower": (fs.from_codes(np.roll(x.codes, 8, 0), "fp16"), x),
        "0.5 times desired: a scale": (fs.array(x.values / 2, "fp16"), x),
        "opposite sign": (fs.from_codes(x.codes ^ np.uint16(0x8000), "fp16"), x),
        "toward zero: a truncation": (fs.array(wide, "fp16", rounding="toward_zero"), fs.array(wide, "fp16")),
        "actual is 0 there": (fs.array(np.where(np.arange(64) < 60, x.values, 0), "fp16"), x),
    }  # fmt: skip


@pytest.mark.parametrize("words", patterns())
def test_patterns_are_explained(words):
    assert words in fs.testing.compare_arrays(*patterns()[words]).explanation


def test_the_map_has_the_mismatches():
    x = fs.array(np.ones((700, 30)), "fp16")
    ax = fs.testing.compare_arrays(with_code(x, (600, 7), 1 << 4), x).plot()
    drawn = ax.images[0].get_array()
    assert drawn.shape == (350, 30)
    assert np.argwhere(drawn.filled(0)).tolist() == [[300, 7]]


def test_numbers_without_an_axis():
    with pytest.raises(AssertionError, match="1 of 1 elements") as caught:
        fs.testing.assert_bit_equal(np.float32(1), np.float32(2))
    assert "actual 1 = 0x3F800000, desired 2 = 0x40000000" in str(caught.value)
    assert fs.testing.assert_max_ulp(np.float32(1), np.nextafter(np.float32(1), np.float32(2))).passed
    assert fs.testing.compare_arrays(np.float32(1), np.float32(2)).to_dict()["mismatches"] == 1


@pytest.mark.parametrize(("x", "y", "expected"), [
    ([1e300, 1], [1e300, 1], 0), ([1e-300], [-1e-300], 2), ([5e-324], [5e-324], 0), ([1.7e308, 0], [0, 1.7e308], 1),
    ([0.0], [0.0], 0), ([], [], 0), ([math.inf], [1.0], math.nan),
])  # fmt: skip
def test_calc_diff_at_the_ends_of_the_range(x, y, expected):
    found = fs.testing.calc_diff(np.array(x, np.float64), np.array(y, np.float64))
    assert found == expected or (math.isnan(found) and math.isnan(expected))


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: fs.testing.assert_max_ulp(1.0, 1.0, -1), ValueError, "maxulp must be at least 0"),
    (lambda: fs.testing.assert_bit_equal(np.ones(2, int), np.ones(2, int)), TypeError, "int64"),
])  # fmt: skip
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.full
def test_products_with_block_scales():
    """Samples of rows and columns take their scales along, and descriptions without scales are not tried."""
    rng = np.random.default_rng(0)
    a, b = fs.array(rng.normal(size=(60, 128)), "e4m3"), fs.array(rng.normal(size=(128, 70)), "e4m3")
    scales = {name: fs.array(2.0 ** rng.integers(-3, 3, shape), "e8m0")
              for name, shape in (("scale_a", (60, 4)), ("scale_b", (4, 70)))}  # fmt: skip
    product = {"accumulate": "blackwell", **scales}
    kernel = np.array(fs.matmul(a, b, **product).values, np.float32)
    report = fs.testing.compare_product(kernel, a, b, **product)
    assert report.passed and report.strength.same == ("blackwell-rtx",) and not report.strength.different
    kernel[3, 5] += 1
    report = fs.testing.compare_product(kernel, a, b, **product)
    assert report.mismatches == 1 and "[3, 5]" in str(report)


@pytest.mark.parametrize("description", ["blocked(hopper, 128, fp32)", "splitk(2, blackwell, fp32)"])
def test_reports_try_promoted_sums_of_units(description):
    a, b = fs.testing.hard_inputs((32, 512, 32), "e4m3", "cancelling", result="bf16")
    actual = fs.matmul(a, b, accumulate=description, format="bf16")
    report = fs.testing.compare_product(actual, a, b, accumulate="fp32")
    assert report.explanation.startswith("actual has the bits of ") and description in report.explanation


def test_the_report_of_a_product_does_not_refer_to_itself():
    a, b = (fs.array(np.random.default_rng(seed).random((32, 32)), "fp32") for seed in (0, 1))
    actual = fs.matmul(a, b, accumulate="strided(fp32, 3)")
    explanation = fs.testing.compare_product(actual, a, b, accumulate="fp32").explanation
    assert "fs.identify" in explanation and "compare_product" not in explanation
    both = fs.testing.compare_arrays(actual, fs.matmul(a, b, accumulate="fp32"))
    assert "compare_product find the cause" in both.explanation


def test_the_last_bit_of_one_element_alone_is_no_other_order():
    x = fs.array(np.ones((20, 20)), "bf16")
    report = fs.testing.compare_arrays(with_code(x, (3, 4), 1), x)
    assert report.explanation == "the last bit of one element differs: a rounding, or a memory or transfer error"
    few = fs.array(np.ones((2, 2)), "bf16")
    assert "another order" in fs.testing.compare_arrays(with_code(few, (1, 1), 1), few).explanation
