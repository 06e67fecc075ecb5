"""`fs.approx`: equal to what an H200 returned, and clear about devices, forms and formats.

A sample of the recorded outputs is in data/silicon/nvidia-h200/special-functions.zip. The others are tested if
FLOATSIM_H200 names their folder.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim.tensorcore.special_functions import FORMS
from tests import marks
from tests.accumulation.recorded_products import FOLDER, needs_recordings

SAMPLE = Path(__file__).parents[2] / "data" / "silicon" / "nvidia-h200" / "special-functions.zip"
NAMES = {"rsq": "rsqrt", "sqr": "sqrt"}
FUNCTIONS = sorted(FORMS)
X = fs.array([0.5, 1.5, 3.0], "fp32")


def approx(instruction, *operands, fmt="fp32"):
    """The codes of an instruction, such as "ex2" or "ex2.ftz", of codes."""
    name, _, ftz = instruction.partition(".")
    given = None if name == "tanh" else bool(ftz)
    return getattr(fs.approx, name)(*(fs.from_codes(x, fmt) for x in operands), device="sm_90", ftz=given).codes


def differing(got, want):
    return int((got != want).sum())


# -- what an H200 returned ---------------------------------------------------------------------------------------------


def sampled():
    with np.load(SAMPLE) as arrays:
        return {key[2:] for key in arrays if key.startswith("y|")}


@marks.needs_sample(SAMPLE)
def test_a_sample_of_recordings():
    assert len(sampled()) == 8 + 4 + 4 + 1
    with np.load(SAMPLE) as arrays:
        for key in sampled():
            fmt, instruction = key.split("|")
            operands = [arrays[f"{name}|{key}"] for name in ("x", "a", "b") if f"{name}|{key}" in arrays]
            assert differing(approx(instruction, *operands, fmt=fmt), arrays[f"y|{key}"]) == 0, key


def recorded(name):
    return Path(FOLDER) / "mufu" / name


@needs_recordings
def test_recorded_exponents():
    """All upper halves of codes, with zeros and with random numbers below: all special values."""
    upper = np.arange(65536, dtype=np.uint32) << np.uint32(16)
    codes = {"high": upper, "rand": upper | np.random.default_rng(5).integers(0, 65536, 65536).astype(np.uint32)}
    arrays = np.load(recorded("mufu_high.npz"))
    assert len(arrays.files) == 19
    for key in arrays.files:
        name, pattern = key.split("|")
        flushes = name in ("sin", "tanh") or not name.endswith("n")
        name = name if flushes else name[:-1]
        instruction = NAMES.get(name, name) + ".ftz" * flushes
        assert differing(approx(instruction, codes[pattern]), arrays[key]) == 0, key


@needs_recordings
def test_recorded_forms_of_16_bits_and_quotients():
    arrays, codes = np.load(recorded("mufu_half.npz")), np.arange(65536, dtype=np.uint16)
    for key, instruction, fmt in (
        ("ex2_f16", "ex2", "fp16"), ("tanh_f16", "tanh", "fp16"), ("ex2_bf16", "ex2.ftz", "bf16"),
        ("tanh_bf16", "tanh", "bf16"),
    ):  # fmt: skip
        assert differing(approx(instruction, codes, fmt=fmt), arrays[key]) == 0, key
    rng = np.random.default_rng(6)
    a, b = (rng.integers(0x3F000000, 0x41000000, 1 << 16).astype(np.uint32) for _ in range(2))
    assert differing(approx("div.ftz", a, b), arrays["div_approx"]) == 0
    assert differing(approx("div", a, b), arrays["div_full"]) == 0  # inside the range that needs no scaling


def digest(instruction, codes):
    return hashlib.sha256(approx(instruction, codes).tobytes()).hexdigest()


@pytest.mark.full
@needs_recordings
def test_recorded_tables():
    """51 million results by their SHA-256."""
    tables = json.loads(recorded("log.json").read_text())["tables"]
    assert len(tables) == 16
    for key, table in tables.items():
        codes = np.uint32(table["start"]) + np.arange(table["size"], dtype=np.uint32) * np.uint32(table["step"])
        assert digest(f"{NAMES.get(table['instruction'], table['instruction'])}.ftz", codes) == table["sha256"], key


@pytest.mark.full
@needs_recordings
def test_recorded_octaves():
    """Consecutive codes: sqrt from 1 to 4, sin from 1/2 to 2 and from -1/2 to -0.75, cos from 1/2 to 2."""
    log = json.loads(recorded("all_codes/log.json").read_text())
    spans = [key for key in log if "+" in key]
    assert len(spans) == 5
    for key in spans:
        name, start, size = key.replace("+", " ").split()
        codes = np.uint32(int(start, 16)) + np.arange(int(size), dtype=np.uint32)
        assert digest(f"{name}.ftz", codes) == log[key], key


@needs_recordings
def test_recorded_lg2_that_an_earlier_constant_missed():
    """4,096 of 5,056 codes of which a constant of 836 in place of 837 returned other results."""
    codes, want, before = np.load(recorded("all_codes/bad_lg2.npy")).T
    assert differing(want, before) == want.size
    assert differing(approx("lg2.ftz", codes), want) == 0


@needs_recordings
def test_recorded_square_roots():
    for first in (0x3F800000, 0x40000000):
        codes = np.arange(first, first + (1 << 23), dtype=np.uint32)
        nearest = np.sqrt(codes.view(np.float32)).view(np.uint32).astype(np.int64)
        distances = np.frombuffer(lzma.decompress(recorded(f"all_codes/sqrt_{first:x}.xz").read_bytes()), np.int8)
        assert differing(approx("sqrt.ftz", codes), nearest + distances) == 0


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "expected"), [
    (lambda: fs.approx.ex2(fs.array([-3, 0, 5], "fp32")), [0.125, 1, 32]),
    (lambda: fs.approx.ex2(fs.array([-0.5], "fp32")), [np.nextafter(np.float32(0.5) ** 0.5, 0, dtype=np.float32)]),
    (lambda: fs.approx.ex2(fs.array([-140], "fp32")), [2.0**-140]),
    (lambda: fs.approx.ex2(fs.array([-140], "fp32"), ftz=True), [0]),
    (lambda: fs.approx.ex2(fs.array([16, 15, -24, -25], "fp16")), [np.inf, 32768, 2.0**-24, 0]),
    (lambda: fs.approx.rcp(fs.array([2.0**-127, 2.0**127], "fp32")), [2.0**127, 2.0**-127]),
    (lambda: fs.approx.rcp(fs.array([2.0**-127, 2.0**127], "fp32"), ftz=True), [np.inf, 0]),
    (lambda: fs.approx.sqrt(fs.array([2.0**-140, 16], "fp32")), [2.0**-70, 4]),
    (lambda: fs.approx.rsqrt(fs.array([2.0**-140, 16], "fp32")), [2.0**70, 0.25]),
    (lambda: fs.approx.lg2(fs.array([2.0**-140, 8], "fp32")), [-140, 3]),
    (lambda: fs.approx.div(fs.array([1, 3], "fp32"), fs.array([4, 2.0**127], "fp32")), [0.25, 0]),
    (lambda: fs.approx.sin(fs.array([2.0**-30, 0], "fp32")), [0, 0]),
    (lambda: fs.approx.tanh(fs.array([2.0**-140, -20], "fp32")), [2.0**-140, -1]),
])  # fmt: skip
def test_values(call, expected):
    assert call().values.tolist() == expected


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nans_have_all_ones(name):
    operands = [np.uint32([0x7F800001, 0xFFC00000])] * (2 if name == "div" else 1)
    assert approx(name, *operands).tolist() == [0x7FFFFFFF] * 2
    assert approx(f"{name}.ftz", *operands).tolist() == [0x7FFFFFFF] * 2


@pytest.mark.parametrize("name", FUNCTIONS)
def test_kinds_shapes_and_out(name):
    function = getattr(fs.approx, name)
    operands = [X.reshape(3, 1)] * (2 if name == "div" else 1)
    expected = function(*operands)
    assert isinstance(expected, fs.FloatArray) and expected.format is fs.FP32 and expected.shape == (3, 1)
    arrays = [x.values.astype(np.float32) for x in operands]
    assert np.array_equal(function(*arrays).view(np.uint32), expected.codes)
    strided = [np.repeat(x, 2, axis=1)[:, ::2] for x in arrays]
    assert np.array_equal(function(*strided).view(np.uint32), expected.codes)
    swapped = [x.astype(">f4") for x in arrays]
    assert np.array_equal(function(*swapped).view(np.uint32), expected.codes)
    out = np.zeros((3, 2), np.float32)
    for place in (out[:, :1], np.zeros((3, 1), np.float32), arrays[0]):  # strided, contiguous, an operand
        assert function(*arrays, out=place) is place
        assert np.array_equal(np.ascontiguousarray(place).view(np.uint32), expected.codes)
        arrays[0] = operands[0].values.astype(np.float32)
    assert function(*[x[:0] for x in arrays]).shape == (0, 1)
    assert function(*[x[0, 0] for x in arrays]).shape == ()


def test_operands_of_div_broadcast():
    a, b = np.float32([[1], [2]]), np.float32([1, 2, 3])
    want = [[fs.approx.div(x, y) for y in b] for x in a[:, 0]]
    assert np.array_equal(fs.approx.div(a, b), want)


def test_long_arrays_on_several_threads():
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 1 << 32, (1 << 20) + 7, np.uint32)
    whole = approx("ex2", codes)
    assert np.array_equal(whole, np.concatenate([approx("ex2", part) for part in np.array_split(codes, 50)]))


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: fs.approx.ex2(X, device="a100"), ValueError, "the unit of NVIDIA Ampere .*known are 'sm_90'"),
    (lambda: fs.approx.ex2(X, device="mi300x"), ValueError, r"not measured; known are 'sm_90' \(hopper: h200, h100\)"),
    (lambda: fs.approx.ex2(X, device="sm_9O"), ValueError, "device='sm_9O' is not known; known are 'sm_90'"),
    (lambda: fs.approx.ex2(X, device=90), TypeError, "device=90 is not a text; known are 'sm_90'"),
    (lambda: fs.approx.ex2([0.5]), TypeError, "a is FP64, but sm_90 has ex2.approx for FP32, FP16 and BF16; con"),
    (lambda: fs.approx.rcp(fs.array([1.0], "fp16")), TypeError, "rcp: a is FP16, but sm_90 has rcp.approx for FP32; c"),
    (lambda: fs.approx.div(X, np.float16([1])), TypeError, "mixed formats: a is FP32 and b is FP16"),
    (lambda: fs.approx.tanh(X, ftz=True), ValueError, "ftz=True is not a form of tanh.approx for FP32, .*without"),
    (lambda: fs.approx.ex2(fs.array([1.0], "bf16"), ftz=False), ValueError, "for BF16, which has only the form with"),
    (lambda: fs.approx.ex2(X, ftz=1), TypeError, "ftz must be"),
    (lambda: fs.approx.ex2(X, out=np.zeros(2, np.float32)), ValueError, r"out is FP32 \(2,\), but the result is"),
    (lambda: fs.approx.ex2("x"), TypeError, "a "),
])  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("device", ["sm_90", "sm_90a", "H100", "h200", "hopper", "NVIDIA H200", "9.0"])
def test_names_of_the_device(device):
    assert np.array_equal(fs.approx.ex2(X, device=device).codes, fs.approx.ex2(X).codes)
