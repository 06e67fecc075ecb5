"""Functions as PyTorch computes them on an H200, and the NaN codes of its conversions.

data/silicon/nvidia-h200/cuda-functions.zip has a part of the recorded results: 4,096 inputs of FP32, and every eighth
code of 16 bits. All results are compared if FLOATSIM_H200 names the folder of the recordings.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import floatsim as fs
from floatsim.arrays.elementwise.library_functions import DEVICES
from floatsim.emulator.elementwise import cuda_programs
from floatsim.emulator.elementwise.cuda_functions import sequence
from floatsim.reference import cuda_functions as reference
from floatsim.tensorcore.cuda_functions import CUDA_FUNCTIONS
from tests import marks

SAMPLE = Path(__file__).parents[2] / "data" / "silicon" / "nvidia-h200" / "cuda-functions.zip"
FOLDER = os.environ.get("FLOATSIM_H200")
needs_recordings = pytest.mark.skipif(FOLDER is None, reason="FLOATSIM_H200 names the folder of an H200's recordings")

NUMBERS = {
    "pow2.5": ("power", 2.5), "div3": ("divide", 3), "add_third": ("add", 1 / 3), "mul_third": ("multiply", 1 / 3)
}  # fmt: skip
"""Recorded functions that have a number."""
WITHOUT_FP32 = [name for name, row in CUDA_FUNCTIONS.items() if not row.in_fp32]
RECORDED = sorted({row.name for row in CUDA_FUNCTIONS.values() if not row.takes_number} | set(NUMBERS))
EVERY_CODE = np.arange(1 << 16, dtype=np.uint16)
EIGHT_BITS = np.arange(1 << 8, dtype=np.uint8)
CASTS = [
    f"{source}->{target}"
    for source in ("fp32", "fp16", "bf16")
    for target in ("fp32", "fp16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0")
] + ["e4m3->fp32", "e4m3->bf16", "e5m2->fp32", "e5m2->bf16"]


@functools.cache
def recorded(name: str) -> Any:
    return np.load(SAMPLE if name == "sample" else Path(FOLDER or "") / f"{name}.npz")


def computed(name: str, codes: np.ndarray, fmt: str) -> np.ndarray:
    function, number = NUMBERS.get(name, (name, None))
    return fs.library_function(function, fs.from_codes(codes, fmt), number).codes


def in_fp32(name: str) -> bool:
    return NUMBERS.get(name, (name, None))[0] not in WITHOUT_FP32


# -- against the GPU ---------------------------------------------------------------------------------------------------


@marks.needs_sample(SAMPLE)
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_sample(name):
    sample = recorded("sample")
    for fmt, codes in (("fp16", sample["codes"]), ("bf16", sample["codes"]), ("fp32", sample["fp32"])):
        if fmt != "fp32" or in_fp32(name):
            np.testing.assert_array_equal(computed(name, codes, fmt), sample[f"{name}|{fmt}"], err_msg=fmt)


@needs_recordings
@pytest.mark.parametrize("name", RECORDED)
def test_all_codes_of_16_bits(name):
    for fmt in ("fp16", "bf16"):
        want = recorded("unary16")[f"{name}|{fmt}"].view(np.uint16)
        np.testing.assert_array_equal(computed(name, EVERY_CODE, fmt), want, err_msg=fmt)


@needs_recordings
@pytest.mark.parametrize("name", [name for name in RECORDED if in_fp32(name)])
def test_all_recorded_inputs_of_fp32(name):
    x = recorded("unary32")["x"].view(np.uint32)
    np.testing.assert_array_equal(computed(name, x, "fp32"), recorded("unary32")[f"{name}|fp32"].view(np.uint32))


@marks.needs_sample(SAMPLE)
def test_every_recorded_function_is_known():
    assert {key.split("|")[0] for key in recorded("sample") if "|" in key and "->" not in key} == set(RECORDED)


# -- against the reference ---------------------------------------------------------------------------------------------


def hard_singles(rng: np.random.Generator) -> np.ndarray:
    """Special values, ends of branches with their neighbours, and random numbers of all sizes."""
    ends = [0.0, 0.41, 0.56, 0.6, 1.0, 1.004, 2 / 3, 1.5, 20.0, 88.7, 104.0, 126.0, 128.0, 105615.0, 2.0**-126, 3e38]
    near = np.float32(ends).view(np.uint32)[:, None] + np.arange(-1, 2, dtype=np.int64)
    special = np.float32([np.inf, np.nan, 2.0**-149]).view(np.uint32)
    sizes = (rng.standard_normal(20) * 10.0 ** rng.uniform(-3, 3, 20)).astype(np.float32).view(np.uint32)
    random = rng.integers(0, 1 << 31, 6)
    codes = np.concatenate([near.reshape(-1) % (1 << 31), special, sizes, random]).astype(np.uint32)
    return np.concatenate([codes, codes ^ np.uint32(1 << 31)])


@pytest.mark.parametrize("name", CUDA_FUNCTIONS)
def test_emulator_equals_reference(name):
    rng = np.random.default_rng(5)
    row = CUDA_FUNCTIONS[name]
    number = (row.numbers[-1] if row.numbers else -0.7) if row.takes_number else None
    for fmt in (fs.FP32, fs.FP16, fs.BF16):
        codes = hard_singles(rng) if fmt == fs.FP32 else rng.integers(0, 1 << 16, 20, dtype=np.uint16)
        if fmt == fs.FP32 and not row.in_fp32:
            continue
        got = fs.library_function(name, fs.from_codes(codes, fmt), number).codes
        want = [reference.cuda_function(name, code, fmt, number) for code in codes.tolist()]
        assert got.tolist() == want, fmt.name


@pytest.mark.parametrize("name", CUDA_FUNCTIONS)
def test_programs_equal_sequences(name):
    """Codes of all exponents, and the neighbours of the ends of branches."""
    row = CUDA_FUNCTIONS[name]
    rng = np.random.default_rng(7)
    codes = np.concatenate([rng.integers(0, 1 << 32, 3000, dtype=np.uint32), hard_singles(rng)])
    for number in (2.5, -0.0, 1e39) if row.takes_number else (None,):
        found = cuda_programs.program(name, number, "" if number is None else number.hex())
        if found is None:
            assert name in ("log2", "power")  # rounded once: no operations of the kernel
            continue
        got = np.empty_like(codes)
        cuda_programs.run(found, codes, got)
        np.testing.assert_array_equal(got, sequence(name, codes, number), err_msg=str(number))


@pytest.mark.parametrize("name", CUDA_FUNCTIONS)
def test_no_operation_of_a_program_writes_to_its_operands(name):
    number = 1.5 if CUDA_FUNCTIONS[name].takes_number else None
    found = cuda_programs.program(name, number, "" if number is None else number.hex())
    for _, result, *others in [] if found is None else found.steps.tolist():
        assert result > len(found.constants)
        assert result not in others[:1]
    assert found is None or found.registers <= 64


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 1500])
def test_programs_of_all_lengths(size):
    x = np.random.default_rng(3).standard_normal(2000).astype(np.float32)
    whole = fs.library_function("mish", x)
    np.testing.assert_array_equal(fs.library_function("mish", x[:size]), whole[:size])


def test_square_in_fp32_is_a_power():
    x = fs.array([1.1, -3.0, np.nan], "fp32")
    squares = fs.library_function("square", x).codes
    assert fs.power(x, 2, functions="cuda").codes.tolist() == squares.tolist()
    assert squares.tolist()[2] == reference.cuda_function("power", 0x7FC00000, fs.FP32, 2.0) == 0x7FFFFFFF


def test_long_arrays_in_all_shapes():
    x = np.random.default_rng(1).standard_normal((3, 100_003)).astype(np.float32)
    y = fs.exp(x, functions="cuda")
    assert y.shape == x.shape
    assert y[1, 5000:5100].tobytes() == fs.exp(x[1, 5000:5100], functions="cuda").tobytes()
    assert fs.exp(x.T, functions="cuda").tobytes() == np.ascontiguousarray(y.T).tobytes()
    assert fs.tanh(np.zeros((0, 2), np.float16), functions="cuda").shape == (0, 2)


# -- the public functions ----------------------------------------------------------------------------------------------

KEYWORD = (
    "exp", "exp2", "expm1", "log", "log10", "log1p", "sin", "cos", "tan", "asin", "sinh", "cosh", "tanh",
    "rsqrt", "reciprocal", "sigmoid", "silu", "softplus", "mish",
)  # fmt: skip


def test_keyword_of_the_functions():
    x = np.float32([-2.0, 0.3, 0.75])
    for name in KEYWORD:
        got = getattr(fs, name)(x, functions="cuda")
        assert got.dtype == np.float32
        assert got.tobytes() == fs.library_function(name, x).tobytes(), name
        assert getattr(fs, name)(x, functions="exact").tobytes() == getattr(fs, name)(x).tobytes(), name
    half = x.astype(np.float16)
    assert fs.gelu(half, functions="cuda").tobytes() == fs.library_function("gelu", half).tobytes()
    tanh = fs.gelu(x, approximate="tanh", functions="cuda")
    assert tanh.tobytes() == fs.library_function("gelu_tanh", x).tobytes()


def test_kinds_of_results():
    x = fs.array([[-np.inf, 1.0]], "bf16")
    result = fs.silu(x, functions="cuda")
    assert result.format == fs.BF16
    assert result.codes.tolist() == [[0x7FFF, 0x3F3B]]
    out = fs.array([[0.0, 0.0]], "bf16")
    assert fs.library_function("silu", x, out=out) is out
    assert out.codes.tolist() == result.codes.tolist()
    assert fs.silu(x, functions="cuda", out=out) is out
    with fs.context(rounding="toward_zero", daz=True):  # a GPU has its own
        assert fs.silu(x, functions="cuda").codes.tolist() == result.codes.tolist()


def test_division_by_a_number_is_a_product():
    x = np.random.default_rng(3).standard_normal(1000).astype(np.float32)
    got = fs.library_function("divide", x, 3)
    assert got.tobytes() == (x * (np.float32(1) / np.float32(3))).tobytes()
    assert got.tobytes() != (x / np.float32(3)).tobytes()


def test_numbers_that_are_equal_are_told_apart():
    zero = fs.array([-0.0], "fp16")
    assert fs.library_function("add", zero, -0.0).codes.tolist() == [0x8000]
    assert fs.library_function("add", zero, 0.0).codes.tolist() == [0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: fs.exp(x, functions="cudnn"), ValueError, "functions must be 'exact' or 'cuda', not 'cudnn'"),
        (lambda x: fs.exp(x, functions="cuda", rounding="RTZ"), TypeError, "one rounding, and takes no rounding="),
        (lambda x: fs.exp(x, functions="cuda", format="fp16"), TypeError, "one rounding, and takes no format="),
        (lambda x: fs.exp(x, functions="cuda", return_flags=True), TypeError, "and takes no return_flags="),
        (lambda x: fs.power(x, x, functions="cuda"), TypeError, "takes a Python number for b, not ndarray"),
        (lambda x: fs.cbrt(x, functions="cuda"), ValueError, "function 'cbrt' is not known"),
        (lambda x: fs.library_function("sigmod", x), ValueError, "'sigmod' is not known; did you mean 'sigmoid'"),
        (lambda x: fs.library_function("exp", x, device="h10"), fs.NotDescribedError, "described: h200"),
        (lambda x: fs.library_function("exp", x, device=None), TypeError, "device must be a text, such as 'h200'"),
        (lambda x: fs.library_function("exp", x, version=2.11), TypeError, "version must be a text, .* not 2.11"),
        (lambda x: fs.library_function("exp", x, 2), TypeError, "exp takes no number"),
        (lambda x: fs.library_function("add", x, "3"), TypeError, "number must be a Python number, not '3'"),
        (lambda x: fs.library_function("add", x, True), TypeError, "number must be a Python number, not True"),
        (lambda x: fs.library_function("add", x, 1j), TypeError, "number must be a Python number, not 1j"),
        (lambda x: fs.library_function("divide", x, x), TypeError, "number must be a Python number, not array"),
        (lambda x: fs.library_function("add", x, 10**400), ValueError, "number must be in the range of FP64"),
        (lambda x: fs.power(x, 10**400, functions="cuda"), ValueError, "number must be in the range of FP64"),
        (lambda x: fs.library_function("add", x), TypeError, "add takes a number"),
        (lambda x: fs.library_function("exp", fs.array(x, "e4m3")), TypeError, "x is E4M3, and .* FP32, FP16 and BF16"),
        (lambda x: fs.library_function("exp", x.astype(float)), TypeError, "x is FP64, and .* FP32, FP16 and BF16"),
        (lambda x: fs.power(x, 3, functions="cuda"), fs.NotDescribedError, "3 was not recorded"),
        (lambda x: fs.library_function("log2", x), fs.NotDescribedError, "log2: its operations in FP32 are not known"),
    ],
)  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(np.float32([1.0]))


@pytest.mark.parametrize("name", sorted(row.name for row in CUDA_FUNCTIONS.values() if row.in_fp32 and row.fitted))
def test_strict_refuses_fitted_coefficients_in_fp32(name):
    x = np.float32([0.3])
    with pytest.raises(fs.NotDescribedError, match=f"{name} in FP32 with coefficients fitted was not compared"):
        fs.library_function(name, x, strict=True)
    half = fs.library_function(name, x.astype(np.float16), strict=True)
    assert half.tobytes() == fs.library_function(name, x.astype(np.float16)).tobytes()


@pytest.mark.parametrize("name", ["exp", "sigmoid", "rsqrt", "divide"])
def test_strict_computes_sequences_without_fitted_coefficients(name):
    x, number = np.float32([0.3, 2.5]), 3 if name == "divide" else None
    strict = fs.library_function(name, x, number, strict=True, version="2.11.0")
    assert strict.tobytes() == fs.library_function(name, x, number).tobytes()


def test_functions_with_fitted_coefficients_are_marked_in_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "gpu-functions.md").read_text()
    rows = [line.split("|")[1:4] for line in page.splitlines() if line.startswith("| `") and "all codes" in line]
    marked = {name for names, _, fp32 in rows if "*" in fp32 for name in re.findall(r"`(\w+)`", names)}
    assert marked == {row.name for row in CUDA_FUNCTIONS.values() if row.in_fp32 and row.fitted}


def test_devices():
    assert list(DEVICES) == ["h200"]


# -- NaN codes of conversions ------------------------------------------------------------------------------------------


def converted(cast: str, codes: np.ndarray, rule: str) -> np.ndarray:
    source, target = cast.split("->")
    return fs.convert(fs.from_codes(codes, source), target, nan=rule).codes


@marks.needs_sample(SAMPLE)
@pytest.mark.parametrize("cast", CASTS)
def test_recorded_casts(cast):
    sample, source = recorded("sample"), cast.split("->")[0]
    codes = sample["fp32"] if source == "fp32" else sample["codes"] if source in ("fp16", "bf16") else EIGHT_BITS
    np.testing.assert_array_equal(converted(cast, codes, "cuda"), sample[f"{cast}|cuda"])


@needs_recordings
@pytest.mark.parametrize("cast", CASTS)
def test_all_recorded_casts(cast):
    source = cast.split("->")[0]
    x = recorded("unary32")["x"].view(np.uint32)
    codes = x if source == "fp32" else EVERY_CODE if source in ("fp16", "bf16") else EIGHT_BITS
    np.testing.assert_array_equal(converted(cast, codes, "cuda"), recorded("casts")[f"{cast}|cuda"])


@marks.needs_sample(SAMPLE)
def test_every_recorded_cast_is_tested():
    assert {key.removesuffix("|cuda") for key in recorded("sample") if "->" in key} == set(CASTS)


@pytest.mark.parametrize("source", ["fp16", "bf16", "e4m3", "e5m2", "e4m3fnuz"])
@pytest.mark.parametrize(
    "target", ["bf16", "fp16", "fp32", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e4m3b11fnuz", "e3m4", "e4m3ieee"]
)
def test_nan_codes_of_ml_dtypes(source, target):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    names = {
        "fp16": np.float16, "fp32": np.float32, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn,
        "e5m2": ml_dtypes.float8_e5m2, "e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
        "e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz, "e3m4": ml_dtypes.float8_e3m4, "e4m3ieee": ml_dtypes.float8_e4m3,
    }  # fmt: skip
    if source == target or {source, target} <= {"fp16", "fp32"}:
        pytest.skip("not a conversion of ml_dtypes")
    codes = EVERY_CODE if source in ("fp16", "bf16") else EIGHT_BITS
    with np.errstate(all="ignore"):
        want = codes.view(names[source]).astype(names[target])
    is_nan = np.isnan(want.astype(np.float32))
    got = converted(f"{source}->{target}", codes, "ml_dtypes")
    assert is_nan.any()
    np.testing.assert_array_equal(got[is_nan], want.view(got.dtype)[is_nan])


def test_the_canonical_rule_is_the_default():
    x = fs.from_codes(EVERY_CODE, "fp16")
    assert fs.convert(x, "e4m3", nan="canonical").codes.tolist() == fs.convert(x, "e4m3").codes.tolist()
    result, flags = fs.convert(x, "e4m3", nan="cuda", return_flags=True)
    assert result.codes.tolist() == fs.convert(x, "e4m3", nan="cuda").codes.tolist()
    assert flags.tolist() == fs.convert(x, "e4m3", return_flags=True)[1].tolist()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: fs.convert(x, "fp16", nan="quiet"), ValueError, "nan='quiet' is not known; known are canonical"),
        (lambda x: fs.convert(x, "e3m2", nan="cuda"), ValueError, "nan='cuda': FP32 to E3M2 was not recorded"),
        (lambda x: fs.convert(x, "fp16", nan="ml_dtypes"), ValueError, "FP32 to FP16 is a conversion of NumPy"),
        (lambda x: fs.convert([1, 2], "fp16", nan="cuda"), TypeError, "nan='cuda' takes arrays of floats, not int64"),
    ],
)
def test_errors_of_nan_rules(call, error, message):
    with pytest.raises(error, match=message):
        call(np.float32([1.0]))
