"""`fs.scaled_mm`: as torch._scaled_mm computes it, against NumPy's float32 and the recordings of an H200."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs

sys.path.insert(0, str(Path(__file__).parents[1] / "accumulation"))
from tests.accumulation import recorded_products as recorded
from tests.accumulation.recorded_products import needs_recordings

OUTPUTS = ("fp32", "bf16", "fp16", "e4m3", "e5m2")


def operands(m, k, n, a="e4m3", b="e4m3", kind="normal"):
    return recorded.operands(m, k, n, a, b, kind)


def sums_of(a, b, fast):
    text = "hopper" if fast else "blocked(hopper, 128, fp32)"
    return np.asarray(fs.matmul(a, b, accumulate=text).values, np.float32)


def stored(y, fmt):
    """FP32 numbers in the format of the result; 8 bits saturate."""
    return fs.encode(y, fmt, overflow="saturate_finite" if fs.as_format(fmt).bits == 8 else "infinity")


@pytest.mark.parametrize("fmt", OUTPUTS)
@pytest.mark.parametrize("fast", [False, True])
def test_scales_of_the_tensors(fmt, fast):
    for a, b in [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e4m3", "e5m2")]:
        x, y = operands(9, 300, 20, a, b)
        found = fs.scaled_mm(x, y, 1.7, np.float32(0.3), format=fmt, use_fast_accum=fast)
        scale = np.float32(1.7) * np.float32(0.3)
        assert np.array_equal(found.codes, stored(sums_of(x, y, fast) * scale, fmt))


@pytest.mark.parametrize("fmt", OUTPUTS)
def test_scales_of_rows_and_columns_and_a_bias(fmt):
    rng = np.random.default_rng(1)
    x, y = operands(9, 200, 20)
    rows, columns = (np.exp(rng.standard_normal(shape)).astype(np.float32) for shape in ((9, 1), (1, 20)))
    bias = fs.array(rng.standard_normal(20), "bf16")
    due = sums_of(x, y, True) * columns * rows
    assert np.array_equal(fs.scaled_mm(x, y, rows, columns, format=fmt, use_fast_accum=True).codes, stored(due, fmt))
    found = fs.scaled_mm(x, y, rows, columns, bias=bias, format=fmt, use_fast_accum=True)
    assert np.array_equal(found.codes, stored(due + np.asarray(bias.values, np.float32), fmt))


def test_the_scale_of_the_result_is_for_8_bits():
    x, y = operands(8, 64, 16)
    due = sums_of(x, y, False) * np.float32(2) * np.float32(0.3)
    for fmt in OUTPUTS:
        found = fs.scaled_mm(x, y, 2, 1, scale_result=0.3, format=fmt)
        expected = due if fs.as_format(fmt).bits == 8 else sums_of(x, y, False) * np.float32(2)
        assert np.array_equal(found.codes, stored(expected, fmt)), fmt


def test_zeros_saturation_and_empty_sums():
    zero = fs.array(np.zeros((1, 16)), "e4m3")
    assert fs.scaled_mm(zero, zero.T, -1, 1, format="fp32").codes.tolist() == [[0]]
    x = fs.array(np.full((1, 256), 448.0), "e4m3")
    assert fs.scaled_mm(x, x.T, 1, 1, format="e4m3").item() == 448
    assert fs.scaled_mm(x, x.T, 2.0**100, 2.0**20, format="bf16").item() == np.inf
    empty = fs.array(np.zeros((2, 0)), "e4m3")
    assert fs.scaled_mm(empty, empty.T, np.nan, 1).codes.tolist() == [[0, 0], [0, 0]]


def test_whole_descriptions_and_other_units():
    x, y = operands(8, 512, 16)
    found = fs.scaled_mm(x, y, 1, 1, format="fp32", use_fast_accum=True, accumulate="splitk(2, hopper, fp32, tile=128)")
    halves = [sums_of(x[:, part], y[part], True) for part in (slice(0, 256), slice(256, 512))]
    assert np.array_equal(found.values, halves[0] + halves[1])
    ada = fs.scaled_mm(x, y, 1, 1, format="fp32", accumulate="ada")
    assert np.array_equal(ada.codes, fs.matmul(x, y, accumulate="blocked(ada, 128, fp32)").codes)


def test_contexts_have_no_effect():
    x, y = operands(4, 64, 8)
    plain = fs.scaled_mm(x, y, 1.7, 0.3)
    with fs.context(rounding="toward_zero", daz=True, ftz=True, overflow="saturate_finite"):
        assert np.array_equal(fs.scaled_mm(x, y, 1.7, 0.3).codes, plain.codes)
    exact = fs.scaled_mm(x, y, 1.7, 0.3, scale_result=0.1, format="fp32")
    with fs.context(rounding="toward_positive"):  # of Python's numbers, too
        assert np.array_equal(fs.scaled_mm(x, y, 1.7, 0.3, scale_result=0.1, format="fp32").codes, exact.codes)
    out = fs.from_codes(np.zeros((4, 8), np.uint16), "bf16")
    assert fs.scaled_mm(x, y, 1.7, 0.3, out=out) is out and np.array_equal(out.codes, plain.codes)


@pytest.mark.parametrize(("keywords", "error", "says"), [
    ({"scale_a": np.ones((3, 1), np.float32)}, ValueError,
     r"scale_a \(3, 1\) and scale_b \(\) .* must be one number each; or \(4, 1\) and \(1, 8\)$"),
    ({"scale_a": np.ones((4, 1), np.float32)}, ValueError, r"must be one number each; or \(4, 1\) and \(1, 8\)"),
    ({"scale_result": np.ones(2, np.float32), "format": "e4m3"}, ValueError, r"scale_result \(2,\) must be one number"),
    ({"bias": np.ones(4, np.float32)}, ValueError, r"bias \(4,\) must have the shape \(8,\)"),
    ({"accumulate": "blocked(hopper, 64, fp32)"}, ValueError, "pass use_fast_accum=True, or a matrix unit"),
    ({"accumulate": "epilogue(hopper, fp32)", "use_fast_accum": True}, TypeError, "pass the inner description"),
    ({"accumulate": "ampere"}, ValueError, "does not multiply E4M3"),
    ({"use_fast_accum": 1}, TypeError, "use_fast_accum must be True or False"),
    ({"b": fs.array(np.ones((32, 8)), "e4m3")}, ValueError, "must be matrices"),
])  # fmt: skip
def test_what_is_refused(keywords, error, says):
    x, y = operands(4, 64, 8)
    with pytest.raises(error, match=says):
        fs.scaled_mm(**{"a": x, "b": y, "scale_a": 1, "scale_b": 1, **keywords})


def blocks(m, k, n, seed=9):
    """Scales of 1 x 128 of a and of 128 x 128 of b."""
    rng = np.random.default_rng(seed)
    return (np.exp(rng.standard_normal(shape)).astype(np.float32) for shape in ((m, k // 128), (k // 128, n // 128)))


@pytest.mark.parametrize("fmt", OUTPUTS)
def test_scales_of_blocks(fmt):
    """sum = fma(part, scale_a * scale_b, sum) for each 128 terms, by float64, which has products of FP32 exactly."""
    x, y = operands(5, 384, 256)
    rows, columns = blocks(5, 384, 256)
    due = np.zeros((5, 256), np.float32)
    for block in range(3):
        terms = slice(128 * block, 128 * (block + 1))
        scale = rows[:, block, np.newaxis] * np.repeat(columns[block], 128)
        exact = sums_of(x[:, terms], y[terms], True).astype(np.float64) * scale
        total = exact + due
        error = np.abs(total - np.float32(total)) / np.spacing(np.abs(np.float32(total)))
        assert (np.abs(error - 0.5) > 1e-6).all()  # no tie: float64 rounds the sum, which does not matter then
        due = total.astype(np.float32)
    assert np.array_equal(fs.scaled_mm(x, y, rows, columns, format=fmt).codes, stored(due, fmt))
    ones = np.ones((5, 3), np.float32), np.ones((3, 2), np.float32)
    plain = fs.scaled_mm(x, y, 1, 1, format=fmt)
    assert np.array_equal(fs.scaled_mm(x, y, *ones, format=fmt).codes, plain.codes)


@pytest.mark.parametrize(("keywords", "says"), [
    ({"scale_b": np.ones((2, 128), np.float32)}, "blocks of 1 x 128 of a and 1 x 128 of b were not recorded"),
    ({"scale_a": np.ones((1, 2), np.float32)}, "blocks of 128 x 128 of a and 128 x 128 of b were not recorded"),
    ({"use_fast_accum": True}, "use_fast_accum=True was not recorded; described is 'hopper' with use_fast_accum=False"),
    ({"accumulate": "ada"}, r"accumulate=tensorcore\(ada\) with scales of blocks"),
    ({"bias": np.ones(128, np.float32)}, "bias= with scales of blocks was not recorded"),
    ({"scale_result": 2.0}, "scale_result= with scales of blocks was not recorded"),
    ({"scale_a": np.ones((4, 3), np.float32)}, r"or \(4, 1\) and \(1, 128\); or \(4, 2\) and \(2, 1\)$"),
    ({"scale_a": fs.array(np.ones((4, 8)), "e8m0"), "scale_b": fs.array(np.ones((8, 128)), "e8m0"),
      "use_fast_accum": True}, "hopper takes no scales; blackwell"),
    ({"scale_a": fs.array(np.ones((4, 8)), "e8m0"), "scale_b": fs.array(np.ones((8, 128)), "e8m0")},
     "pass use_fast_accum=True and a matrix unit that takes them, such as accumulate='blackwell'"),
])  # fmt: skip
def test_scales_of_blocks_that_are_refused(keywords, says):
    x, y = operands(4, 256, 128)
    rows, columns = blocks(4, 256, 128)
    with pytest.raises(ValueError, match=says):
        fs.scaled_mm(**{"a": x, "b": y, "scale_a": rows, "scale_b": columns, **keywords})


@pytest.mark.parametrize(("fmt", "scale", "every"), [("e4m3", "e8m0", 32), ("e2m1", "e8m0", 32), ("e2m1", "e4m3", 16)])
def test_scales_of_instructions(fmt, scale, every):
    """MX and NVFP4: the sum of the unit, then bias and the rounding as with other scales."""
    rng = np.random.default_rng(every)
    x, y = (fs.array(rng.standard_normal(shape), fmt) for shape in ((4, 128), (128, 8)))
    left, right = (
        fs.array(2.0 ** rng.integers(-3, 4, shape), scale) for shape in ((4, 128 // every), (128 // every, 8))
    )
    bias = fs.array(rng.standard_normal(8), "bf16")
    found = fs.scaled_mm(x, y, left, right, bias=bias, accumulate="blackwell", use_fast_accum=True)
    sums = fs.matmul(x, y, accumulate="blackwell", scale_a=left, scale_b=right)
    due = np.asarray(sums.values, np.float32) + np.asarray(bias.values, np.float32)
    assert np.array_equal(found.codes, stored(due, "bf16"))


def test_one_row_has_scales_of_rows():
    x, y = operands(1, 64, 8)
    columns = np.exp(np.random.default_rng(2).standard_normal((1, 8))).astype(np.float32)
    due = sums_of(x, y, True) * columns * np.float32(3)
    found = fs.scaled_mm(x, y, np.float32([[3]]), columns, format="fp32", use_fast_accum=True)
    assert np.array_equal(found.values, due)


@pytest.mark.parametrize(("fmt", "nan"), [
    ("fp32", 0x7FFFFFFF), ("bf16", 0x7FFF), ("fp16", 0x7FFF), ("e4m3", 0x7F), ("e5m2", 0x7F),
])  # fmt: skip
def test_the_nan_of_a_gpu(fmt, nan):
    x = fs.array([[np.nan, 1.0], [2.0, 1.0]], "e4m3")
    found = fs.scaled_mm(x, x, 1, -1, format=fmt).codes
    assert found[0].tolist() == [nan, nan]
    assert fs.scaled_mm(x[1:], fs.array([[1.0], [1.0]], "e4m3"), 1, np.nan, format=fmt).codes.tolist() == [[nan]]


# -- recordings of an H200 ---------------------------------------------------------------------------------------------


@needs_recordings
@pytest.mark.full
def test_recorded_products():
    """432 products of three mixes of formats, three output formats, fast and promoted; scales of rows."""
    arrays, _ = recorded.recording("scaled")
    equal = Counter()
    for key in arrays.files:
        kind, *rest = key.split("|")
        if kind == "scaled":
            a, b, out, shape, inputs, fast = rest
            x, y = operands(*map(int, shape.split("x")), a, b, inputs)
            found = fs.scaled_mm(x[:64], y[:, :64], 1, 1, format=out, use_fast_accum=fast == "fast=True")
        elif kind == "rowwise":
            out, shape, fast = rest
            m, k, n = map(int, shape.split("x"))
            x, y = operands(m, k, n)
            rng = np.random.default_rng(9)
            scales = [np.exp(rng.standard_normal(size)).astype(np.float32) for size in ((m, 1), (1, n))]
            found = fs.scaled_mm(x, y, *scales, format=out, use_fast_accum=fast == "fast=True")
        else:
            continue
        equal[kind, np.array_equal(found.codes, arrays[key])] += 1
    assert equal == {("scaled", True): 432, ("rowwise", True): 6}, equal


@needs_recordings
@pytest.mark.full
def test_recorded_scales_and_biases():
    """Scales of tensors, of rows and of blocks, with a bias and without one; results in BF16 and FP32."""
    arrays, _ = recorded.recording("kernels/scaled2")
    equal = Counter()
    for key in arrays.files:
        kind, *rest = key.split("|")
        if kind in ("e4m3", "e5m2", "meta", "grouped_mm"):
            continue
        shape, fast, out = rest
        m, k, n = map(int, shape.split("x"))
        x, y = operands(m, k, n)
        rng = np.random.default_rng(9)
        rows, columns, bias, of_a, _, of_b = (
            np.exp(rng.standard_normal(size)).astype(np.float32)
            for size in ((m, 1), (1, n), n, (k // 128, m), (n, k // 128), (n // 128, k // 128))
        )
        scales = {
            "tensor-wise": (np.float32(1.7), np.float32(0.3)), "bias": (np.float32(1.7), np.float32(0.3)),
            "rowwise": (rows, columns), "rowwise-bias": (rows, columns), "1x128,128x128": (of_a.T, of_b.T),
        }[kind]  # fmt: skip
        result = out if kind in ("tensor-wise", "1x128,128x128") else "bf16"
        found = fs.scaled_mm(
            x, y, *scales, bias=fs.array(bias, "bf16") if "bias" in kind else None, format=result,
            use_fast_accum=fast == "fast=True" and "128" not in kind,
        )  # fmt: skip
        equal[kind, np.array_equal(found.codes[:64, :64], arrays[key])] += 1
    kinds = "tensor-wise", "bias", "rowwise", "rowwise-bias", "1x128,128x128"
    assert equal == {(kind, True): 8 for kind in kinds}, equal
