"""Integer products, requantization, LLM.int8() and products of scaled blocks, against plain Python."""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy as np
import pytest

import floatsim as fs
from floatsim.quantization import (
    integer_matmul,
    llm_int8_matmul,
    quantize_multiplier,
    requantize,
    scaled_matmul,
)
from tests.accumulation import recorded_products as recorded
from tests.quantization import definitions as d


def in_int32(total: int, overflow: str) -> int:
    if overflow == "saturate":
        return min(max(total, -(2**31)), 2**31 - 1)
    return (total + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize("overflow", ["wrap", "saturate"])
def test_integer_products(overflow):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (3, 50), np.int8), rng.integers(0, 256, (50, 4), np.uint8)
    c = rng.integers(-(2**31), 2**31, (3, 4))
    c[0, 0], c[1, 1] = 2**31 - 1, -(2**31)
    zero_a, zero_b = rng.integers(-128, 128, (3, 1)), rng.integers(0, 256, (1, 4))
    found = integer_matmul(a, b, c, zero_a=zero_a, zero_b=zero_b, accumulator_overflow=overflow)
    assert found.dtype == np.int32
    for i in range(3):
        for j in range(4):
            terms = (
                (int(x) - int(zero_a[i, 0])) * (int(y) - int(zero_b[0, j])) for x, y in zip(a[i], b[:, j], strict=True)
            )
            assert found[i, j] == in_int32(sum(terms) + int(c[i, j]), overflow)


def test_batches_of_integer_products():
    rng = np.random.default_rng(1)
    a, b = rng.integers(-128, 128, (5, 3, 20), np.int8), rng.integers(-128, 128, (20, 2), np.int8)
    found = integer_matmul(a, b)
    assert np.array_equal(found, np.einsum("bik,kj->bij", a.astype(np.int64), b.astype(np.int64)))
    assert integer_matmul(a[:, :, :0], b[:0]).tolist() == np.zeros((5, 3, 2), int).tolist()


@pytest.mark.parametrize(("name", "low", "high"), [
    ("vpdpbusd", (0, -128), (255, 127)), ("vpdpbusds", (0, -128), (255, 127)),
    ("vpdpwssd", (-32768, -32768), (32767, 32767)), ("vpdpwssds", (-32768, -32768), (32767, 32767)),
    ("tdpbssd", (-128, -128), (127, 127)), ("tdpbuud", (0, 0), (255, 255)),
])  # fmt: skip
def test_integer_instructions_by_python_integers(name, low, high):
    """A step adds its products and the accumulator exactly, and then wraps or saturates."""
    rng = np.random.default_rng(8)
    size = 2 if "w" in name else 4
    for _ in range(40):
        k = int(rng.integers(1, 20))
        a, b = (rng.choice([x, y, *rng.integers(x, y, 3)], k) for x, y in zip(low, high, strict=True))
        acc = c = int(rng.choice([0, 2**31 - 1, -(2**31), int(rng.integers(-(2**31), 2**31))]))
        for start in range(0, k, size):
            acc += sum(int(x) * int(y) for x, y in zip(a[start : start + size], b[start : start + size], strict=True))
            acc = min(max(acc, -(2**31)), 2**31 - 1) if name.endswith("ds") else (acc + 2**31) % 2**32 - 2**31
        assert integer_matmul(a[np.newaxis], b[:, np.newaxis], [[c]], instruction=name).item() == acc


@pytest.mark.parametrize(
    ("name", "low", "high", "products"),
    [
        ("mma.m16n8k32.s8.s8", (-128, -128), (127, 127), 32),
        ("wgmma.k32.u8.s8.satfinite", (0, -128), (255, 127), 32),
        ("mma.m8n8k16.u8.u8.satfinite", (0, 0), (255, 255), 16),
        ("mma.m16n8k64.s4.u4", (-8, 0), (7, 15), 64),
        ("mma.m8n8k32.s4.s4.satfinite", (-8, -8), (7, 7), 32),
    ],
)
def test_integer_matrix_instructions_by_python_integers(name, low, high, products):
    """PTX: the exact sum of an instruction and the accumulator wraps, or is clamped once with .satfinite."""
    rng = np.random.default_rng(9)
    clamped = 0
    for _ in range(30):
        k = int(rng.integers(1, 3 * products))
        a, b = (rng.choice([x, y, *rng.integers(x, y, 3)], k) for x, y in zip(low, high, strict=True))
        acc = c = int(rng.choice([2**31 - 1, -(2**31), int(rng.integers(-(2**31), 2**31))]))
        for start in range(0, k, products):
            terms = zip(a[start : start + products], b[start : start + products], strict=True)
            exact = acc + sum(int(x) * int(y) for x, y in terms)
            inside = -(2**31) <= exact < 2**31
            clamped += not inside
            acc = min(max(exact, -(2**31)), 2**31 - 1) if "satfinite" in name else (exact + 2**31) % 2**32 - 2**31
        assert integer_matmul(a[np.newaxis], b[:, np.newaxis], [[c]], instruction=name).item() == acc
    assert clamped > 5


def test_integer_matrix_instructions_refuse_other_integers():
    one, eight = np.ones((1, 1), np.int8), np.full((1, 1), 8, np.int8)
    with pytest.raises(ValueError, match=r"mma\.m16n8k64\.s4\.u4 reads a as int4, and a has numbers from 8 to 8"):
        integer_matmul(eight, eight, instruction="mma.m16n8k64.s4.u4")
    with pytest.raises(ValueError, match="reads b as uint4, and b has numbers from -1 to -1"):
        integer_matmul(one, -one, instruction="mma.m16n8k64.s4.u4")
    with pytest.raises(ValueError, match=r"those of GPUs such as 'mma\.m16n8k32\.s8\.u8'"):
        integer_matmul(one, one, instruction="mma.m16n8k32")


RECORDED_INT_MM = "be9ae750b20691df90f9aaba52cb414ce8ee4c202ffd650464ecd19f10c82fe3"
"""SHA-256 of the int32 numbers (little-endian) that torch._int_mm returned on an H200, recorded in 2026."""


@pytest.mark.parametrize("instruction", [None, "wgmma.k32.s8.s8", "mma.m16n8k32.s8.s8"])
def test_int_mm_of_an_h200(instruction):
    """torch._int_mm of (64, 256) and (256, 64) int8 numbers. No sum leaves int32, so that every order has its bits."""
    a = np.random.default_rng(1).integers(-128, 128, (64, 256), dtype=np.int8)
    b = np.random.default_rng(2).integers(-128, 128, (256, 64), dtype=np.int8)
    found = integer_matmul(a, b, instruction=instruction)
    assert hashlib.sha256(found.astype("<i4").tobytes()).hexdigest() == RECORDED_INT_MM
    if recorded.FOLDER is not None:
        arrays, _ = recorded.recording("scaled")
        assert np.array_equal(found, arrays["int_mm"].view(np.int32))


def test_errors_of_integer_instructions():
    ones = np.ones((2, 2), np.int8)
    with pytest.raises(ValueError, match="did you mean 'vpdpbusd'"):
        integer_matmul(ones, ones, instruction="vpdpbus")
    with pytest.raises(ValueError, match="vpdpbusd reads a as uint8, and a has numbers from -1 to -1"):
        integer_matmul(-ones, ones, instruction="vpdpbusd")
    with pytest.raises(ValueError, match=r"'avx512-vnni' multiplies integers: fs.quantization.integer_matmul\(a, b, "):
        fs.as_accumulation("avx512-vnni")


def test_errors_of_integer_products():
    ones = np.ones((2, 2), np.int8)
    with pytest.raises(TypeError, match="integers"):
        integer_matmul(ones.astype(float), ones)
    with pytest.raises(ValueError, match="do not fit"):
        integer_matmul(ones, np.ones((3, 2), int))
    with pytest.raises(ValueError, match="did you mean 'wrap'"):
        integer_matmul(ones, ones, accumulator_overflow="warp")
    with pytest.raises(ValueError, match="not exact"):
        integer_matmul(np.full((1, 2), 2**31), np.full((2, 1), 2**31))


def requantized(acc: int, m: int, shift: int, zero: int, low: int, high: int) -> int:
    """gemmlowp's definition, with exact rationals."""
    x = min(max(acc * 2 ** max(shift, 0), -(2**31)), 2**31 - 1)
    half = Fraction(x * m, 2**31)
    up = (half + Fraction(1, 2)).__floor__()  # ties up
    scaled = Fraction(up, 2 ** max(-shift, 0))
    nearest = (abs(scaled) + Fraction(1, 2)).__floor__()  # ties away
    return min(max((nearest if scaled >= 0 else -nearest) + zero, low), high)


def test_requantization():
    rng = np.random.default_rng(2)
    acc = np.concatenate([rng.integers(-(2**31), 2**31, 300), rng.integers(-1000, 1000, 600), [2**31 - 1, -(2**31), 0]])
    for multiplier in (2.0**-9, 0.003, 0.5, 0.9999999999, 1.0, 1.5, 3.25, 2.0**-30, 0.75 * 2.0**-6):
        m, shift = quantize_multiplier(multiplier)
        assert abs(Fraction(m) * Fraction(2) ** (shift - 31) / Fraction(multiplier) - 1) <= Fraction(1, 2**31)
        for fmt, zero in (("int8", -3), ("uint8", 128), ("int4", 0)):
            element = fs.quantization.as_element_format(fmt)
            expected = [requantized(int(x), m, shift, zero, element.min, element.max) for x in acc]
            assert requantize(acc, m, shift, zero, fmt).tolist() == expected


def test_ties_of_requantization():
    """The high half ties up, the shift ties away: 2.5 is 3, -2.5 is -3 by a shift, and -2 by the multiplier alone."""
    half, nothing = quantize_multiplier(0.5)
    assert (half, nothing) == (2**30, 0)
    assert requantize([5, -5], half, 0).tolist() == [3, -2]
    assert requantize([5, -5], 2**31 - 1, -1).tolist() == [3, -3]


def test_multipliers_for_each_column():
    pairs = [quantize_multiplier(x) for x in (0.1, 0.02)]
    m, shift = (np.array(x) for x in zip(*pairs, strict=True))
    assert requantize([[100, 100], [-50, 1000]], m, shift).tolist() == [[10, 2], [-5, 20]]


@pytest.mark.parametrize("multiplier", [-1.0, float("nan"), float("inf"), 2.0**30])
def test_multipliers_that_are_refused(multiplier):
    with pytest.raises(ValueError, match="multiplier"):
        quantize_multiplier(multiplier)


def test_the_least_multipliers():
    assert quantize_multiplier(0.0) == (0, 0)
    assert quantize_multiplier(2.0**-40) == (0, 0)
    assert quantize_multiplier(1 - 2.0**-40) == (2**30, 1)  # the significand rounds to 2**31


def test_errors_of_requantization():
    for arguments, error in (
        (([2**31], 2**30, 0), ValueError), (([1], -1, 0), ValueError), (([1], 2**30, 31), ValueError),
        (([1.5], 2**30, 0), TypeError), (([1], 2**30, 0, 0, "e4m3"), ValueError),
    ):  # fmt: skip
        with pytest.raises(error):
            requantize(*arguments)


# -- LLM.int8() --------------------------------------------------------------------------------------------------------


def llm_element(a: list[Fraction], b: list[Fraction], amax_a: Fraction, amax_b: Fraction) -> Fraction:
    """The INT8 part of one element, in FP32, from FP16 numbers."""

    def rn(x: Fraction) -> Fraction:
        return d.nearest(x, fs.FP32)

    def code(x: Fraction, amax: Fraction) -> int:
        return round(rn(x * rn(Fraction(127) / amax))) if amax else 0

    acc = sum(code(x, amax_a) * code(y, amax_b) for x, y in zip(a, b, strict=True))
    return rn(rn(rn(Fraction(acc) * amax_a) * amax_b) * rn(Fraction(float(1 / 127**2))))


@pytest.mark.parametrize("threshold", [0.0, 6.0, 1.0])
def test_llm_int8(threshold):
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(3, 24)).astype(np.float16), rng.normal(size=(24, 4)).astype(np.float16)
    a[:, 5], a[1, 9], a[2] = 20, -6.0, 0
    outliers = [k for k in range(24) if threshold and any(abs(float(v)) >= threshold for v in a[:, k])]
    found = llm_int8_matmul(a, b, threshold=threshold)
    assert found.format is fs.FP16
    x = [[Fraction(0) if k in outliers else Fraction(float(v)) for k, v in enumerate(row)] for row in a]
    y = [[Fraction(float(v)) for v in column] for column in b.T]
    for i in range(3):
        for j in range(4):
            value = d.nearest(llm_element(x[i], y[j], max(map(abs, x[i])), max(map(abs, y[j]))), fs.FP16)
            if outliers:
                acc = np.float32(0)
                for k in outliers:
                    acc += np.float32(a[i, k]) * np.float32(b[k, j])
                value = d.nearest(value + Fraction(float(np.float16(acc))), fs.FP16)
            assert found[i, j].item() == float(value)


def test_outlier_columns_keep_the_other_columns():
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(16, 128)), rng.normal(size=(128, 16))
    a[:, 3] *= 100
    errors = [np.abs(llm_int8_matmul(a, b, threshold=t).values - a @ b).max() for t in (0.0, 6.0)]
    assert errors[1] < errors[0] / 10


def test_errors_of_llm_int8():
    ones = np.ones((2, 2))
    with pytest.raises(ValueError, match="threshold"):
        llm_int8_matmul(ones, ones, threshold=-1)
    with pytest.raises(ValueError, match="do not fit"):
        llm_int8_matmul(ones, np.ones((3, 2)))


# -- products of scaled blocks -----------------------------------------------------------------------------------------


def operands(k: int = 300, seed: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(5, k)).astype(np.float32), rng.normal(size=(k, 7)).astype(np.float32)


@pytest.mark.parametrize("order", ["product_first", "separate"])
@pytest.mark.parametrize("accumulate", ["hopper", "fp32"])
def test_scaled_blocks(order, accumulate):
    """One element after the other, each rounding by the oracle."""
    x, w = operands()
    a, b = fs.quantize_blocks(x, "deepgemm"), fs.quantize_blocks(w, "deepgemm_weight")
    found = scaled_matmul(a, b, accumulate=accumulate, order=order)

    def rn(v: Fraction) -> Fraction:
        return d.nearest(v, fs.FP32)

    p, q = a.elements, b.elements
    for i, j in ((0, 0), (4, 6), (2, 3)):
        total = Fraction(0)
        for block, start in enumerate(range(0, 300, 128)):
            part = slice(start, start + 128)
            acc = Fraction(float(fs.dot(p[i, part], q[part, j], accumulate=accumulate)))
            sa, sb = Fraction(a.scales[i, block].item()), Fraction(b.scales[block, 0].item())
            total = rn(acc * rn(sa * sb) + total) if order == "product_first" else rn(total + rn(rn(acc * sa) * sb))
        assert found[i, j].item() == float(total)


def test_the_orders_differ_and_are_close():
    x, w = operands(1024)
    a, b = fs.quantize_blocks(x, "deepgemm"), fs.quantize_blocks(w, "deepgemm_weight")
    first, separate = (scaled_matmul(a, b, order=order).values for order in ("product_first", "separate"))
    assert not np.array_equal(first, separate)
    assert np.allclose(first, separate, rtol=1e-4, atol=1e-4)


def test_scales_of_rows_columns_and_tensors():
    x, w = operands(256)
    exact = x.astype(np.float64) @ w
    for block_a, block_b in (("row", "column"), ("tensor", "tensor"), (128, (128, 1)), ("row", (64, 2)), (2, (2, 7))):
        a, b = fs.quantize_blocks(x, "int8", block=block_a), fs.quantize_blocks(w, "int8", block=block_b)
        y = scaled_matmul(a, b)
        assert np.abs(y.values - a.values @ b.values).max() < 1e-4
        assert np.linalg.norm(y.values - exact) < 0.03 * np.linalg.norm(exact)


def test_one_scale_is_the_scaled_product():
    x, w = operands(64)
    a, b = fs.quantize_blocks(x, "e4m3"), fs.quantize_blocks(w, "e4m3")
    product = fs.matmul(a.elements, b.elements, accumulate="hopper")
    scaled = fs.multiply(product, fs.multiply(a.scales, b.scales))
    assert np.array_equal(scaled_matmul(a, b, accumulate="hopper").codes, scaled.codes)
    rounded = scaled_matmul(a, b, accumulate="hopper", format="bf16")
    assert np.array_equal(rounded.codes, fs.convert(scaled, "bf16").codes)


def test_the_context_changes_no_scaling():
    x, w = operands(256)
    a, b = fs.quantize_blocks(x, "deepgemm"), fs.quantize_blocks(w, "deepgemm_weight")
    plain = scaled_matmul(a, b, accumulate="hopper")
    with fs.context(rounding="toward_zero", ftz=True):
        assert np.array_equal(scaled_matmul(a, b, accumulate="hopper").codes, plain.codes)


def test_errors_of_scaled_products():
    x, w = operands(256)
    a, b = fs.quantize_blocks(x, "deepgemm"), fs.quantize_blocks(w, "e4m3", block=(64, 64))
    with pytest.raises(ValueError, match="64 and 128"):
        scaled_matmul(a, b)
    with pytest.raises(TypeError, match=r"fs\.quantize_blocks"):
        scaled_matmul(x, w)
    with pytest.raises(ValueError, match="zero points"):
        scaled_matmul(a, fs.quantize_blocks(w, "gptq"))
    with pytest.raises(ValueError, match="do not fit"):
        scaled_matmul(a, fs.quantize_blocks(w[:128], "deepgemm_weight"))
    with pytest.raises(ValueError, match="did you mean 'separate'"):
        scaled_matmul(a, a, order="seperate")


def test_mx_and_nvfp4_operands_on_a_matrix_unit():
    """The results of fs.quantize_blocks are operands of fs.matmul."""
    x, w = operands(150)
    exact = x.astype(np.float64) @ w
    a, b = fs.quantize_blocks(x, "mxfp8"), fs.quantize_blocks(w, "mxfp8", block=(32, 1))
    y = fs.matmul(a.elements, b.elements, accumulate="blackwell", scale_a=a.scales, scale_b=b.scales)
    assert np.linalg.norm(y.values - exact) < 0.06 * np.linalg.norm(exact)
    a, b = fs.quantize_blocks(x, "nvfp4"), fs.quantize_blocks(w, "nvfp4", block=(16, 1))
    alpha = a.tensor_scale.item() * b.tensor_scale.item()
    y = fs.matmul(a.elements, b.elements, accumulate="blackwell", scale_a=a.scales, scale_b=b.scales, alpha=alpha)
    assert np.linalg.norm(y.values - exact) < 0.2 * np.linalg.norm(exact)


def test_matmul_names_the_function_for_fp32_scales():
    a = fs.quantize_blocks(matrix_of_ones(4, 256), "deepgemm")
    b = fs.quantize_blocks(matrix_of_ones(256, 4), "deepgemm_weight")
    for unit in ("hopper", "blackwell"):
        with pytest.raises(ValueError, match=r"takes no scales.*fs\.quantization\.scaled_matmul"):
            fs.matmul(a.elements, b.elements, accumulate=unit, scale_a=a.scales, scale_b=b.scales)
    for call in (lambda: fs.matmul(a, b, accumulate="hopper"), lambda: np.asarray(a)):
        with pytest.raises(TypeError, match=r"values.*fs\.quantization\.scaled_matmul"):
            call()


def matrix_of_ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)
