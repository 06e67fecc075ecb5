"""The storage types of GGUF files, compared with the packages gguf and libgguf: stored digests, and installed packages.

`pip install -e ".[gguf]"` installs the packages.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import floatsim as fs
from floatsim.quantization import GGUF_TYPES, IntegerFormat, Quantized, from_gguf
from floatsim.quantization.gguf_types import grid_of
from tests.quantization.gguf_vectors import FILE, by_package, digest, random_blocks

COMPARED = [name for name in GGUF_TYPES if name != "Q8_K"]


def numbers(q: Quantized) -> np.ndarray:
    return q.dequantize().codes.view(np.float32)


@pytest.mark.parametrize("name", COMPARED)
def test_equal_to_stored_digests(name):
    blocks = random_blocks(name, GGUF_TYPES[name].nbytes)
    assert digest(numbers(from_gguf(blocks, name))) == json.loads(FILE.read_text())["dequantized"][name]


def test_every_type_has_a_digest():
    assert set(json.loads(FILE.read_text())["dequantized"]) == set(COMPARED)


def equal_to_package(name: str, count: int, seed: int) -> None:
    blocks = random_blocks(name, GGUF_TYPES[name].nbytes, count, seed)
    found, desired = numbers(from_gguf(blocks, name)), by_package(name, blocks)
    different = (found.view(np.uint32) != desired.view(np.uint32)) & ~(np.isnan(found) & np.isnan(desired))
    assert not different.any(), f"{name}: block and element {np.argwhere(different)[0]}"


@pytest.mark.parametrize("name", COMPARED)
def test_equal_to_the_packages(name):
    pytest.importorskip("gguf", reason="compares with the package gguf")
    if name == "Q1_0":
        pytest.importorskip("libgguf", reason="compares with the package libgguf")
    equal_to_package(name, 1000, 1)


@pytest.mark.full
@pytest.mark.parametrize("name", COMPARED)
def test_a_million_blocks(name):
    pytest.importorskip("gguf", reason="compares with the package gguf")
    if name == "Q1_0":
        pytest.importorskip("libgguf", reason="compares with the package libgguf")
    for seed in range(2, 18):
        equal_to_package(name, 1 << 16, seed)


def test_q8_k_is_a_float_and_256_bytes():
    d, codes = np.float32([0.5, -2.0]), np.arange(512, dtype=np.uint8).astype(np.int8).reshape(2, 256)
    blocks = np.concatenate([d.view(np.uint8).reshape(2, 4), codes.view(np.uint8), np.ones((2, 32), np.uint8)], axis=1)
    assert np.array_equal(numbers(from_gguf(blocks, "q8_k")), codes * d[:, None])


def test_flush_to_zero_changes_no_bit(monkeypatch):
    """The integer kernels, which take over if a library has set flush-to-zero, return the same numbers."""
    cases = {name: random_blocks(name, GGUF_TYPES[name].nbytes, 40, 3) for name in ("Q4_0", "Q4_1", "Q2_K", "IQ1_S")}
    plain = {name: digest(numbers(from_gguf(blocks, name))) for name, blocks in cases.items()}
    monkeypatch.setattr("floatsim.emulator.elementwise.block_scales.environment_is_default", lambda: False)
    assert {name: digest(numbers(from_gguf(blocks, name))) for name, blocks in cases.items()} == plain


def test_parts_are_a_quantized_tensor():
    """Codes, scales and offsets by the definition of Q4_1 and Q4_0, in any shape."""
    rng = np.random.default_rng(0)
    d, m, codes = np.float16(rng.normal(size=(4, 1))), np.float16(rng.normal(size=(4, 1))), rng.integers(0, 16, (4, 32))
    packed = (codes[:, :16] | codes[:, 16:] << 4).astype(np.uint8)
    q = from_gguf(np.concatenate([d.view(np.uint8), m.view(np.uint8), packed], axis=1), "Q4_1", (2, 64))
    assert np.array_equal(q.codes.reshape(4, 32), codes)
    assert q.scales.format == q.offsets.format == fs.FP16
    assert np.array_equal(q.offsets.values.ravel(), m.astype(float).ravel())
    assert np.array_equal(numbers(q).reshape(4, 32), d.astype(np.float32) * codes.astype(np.float32) + m)
    assert q.nbits == 4 * 20 * 8
    assert "offsets" in repr(q)
    signed = from_gguf(np.concatenate([d.view(np.uint8), packed], axis=1).tobytes(), "q4_0", (4, 32))
    assert np.array_equal(signed.codes, codes - 8)
    assert np.any(signed.scales.values < 0)
    assert fs.dequantize_blocks(signed).shape == (4, 32)


def test_infinite_scales_stay_infinite():
    block = np.float16([np.inf]).tobytes() + bytes([0x9F] * 16)
    assert numbers(from_gguf(block, "q4_0"))[0] == np.inf


def test_offsets_are_checked():
    codes, scale = np.zeros((1, 4), np.int8), fs.array([[1.0]], "fp32")
    scheme = fs.quantization.Scheme("int4", (1, 4))
    with pytest.raises(ValueError, match=r"offsets \(2, 1\) do not have the shape of the scales"):
        Quantized(codes, scale, scheme, offsets=fs.array([[1.0], [2.0]], "fp32"))
    with pytest.raises(TypeError, match="offsets must be a FloatArray"):
        Quantized(codes, scale, scheme, offsets=np.zeros((1, 1)))
    with pytest.raises(ValueError, match="without zero points"):
        Quantized(codes, scale, scheme, np.zeros((1, 1), int), offsets=scale)
    with pytest.raises(ValueError, match="offsets are for an integer format"):
        Quantized(codes.view(np.uint8), scale, fs.quantization.Scheme("nf4", (1, 4)), offsets=scale)
    q = Quantized(codes, scale, scheme, offsets=scale)
    with pytest.raises(ValueError, match="without zero points, offsets"):
        fs.quantization.scaled_matmul(q, q, accumulate="fp32")


def test_losses_under_negative_scales():
    """A number beyond the largest code of its block has overflowed, also if the scale is negative."""
    scheme = fs.quantization.Scheme("int4", (1, 4))
    for sign in (1.0, -1.0):
        q = Quantized(int(sign) * np.int8([[7, 1, 0, -7]]), fs.array([[sign]], "fp32"), scheme)
        kinds = q.classify_losses(np.float32([[9.0, 1.0, 0.25, -9.0]]))
        assert kinds.tolist() == fs.quantize_blocks(
            np.float32([[9.0, 1.0, 0.25, -9.0]]), "int4", scale=1.0, block=4
        ).classify_losses(np.float32([[9.0, 1.0, 0.25, -9.0]])).tolist()  # fmt: skip


def test_rows_are_the_ones_of_ggml():
    gguf = pytest.importorskip("gguf", reason="compares with the package gguf")
    for row in GGUF_TYPES.values():
        kind = gguf.GGMLQuantizationType[row.name]
        assert (int(kind), gguf.GGML_QUANT_SIZES[kind]) == (row.number, (row.size, row.nbytes))
        assert row.size % row.group == 0
        assert isinstance(row.format, IntegerFormat)


@pytest.mark.parametrize(("name", "shape"), {
    "IQ2_XXS": (256, 8), "IQ2_XS": (512, 8), "IQ2_S": (1024, 8), "IQ3_XXS": (256, 4), "IQ3_S": (512, 4),
    "IQ1_S": (2048, 8),
}.items())  # fmt: skip
def test_grids_have_distinct_points(name, shape):
    assert len(np.unique(grid_of(name), axis=0)) == shape[0]
    assert grid_of(name).shape == shape


@pytest.mark.parametrize(
    ("data", "kind", "shape", "message"),
    [
        (bytes(17), "q4_0", None, "no rows of blocks of Q4_0, which have 18 bytes"),
        (bytes(18), "q4_0", (16,), "whole blocks of 32 elements"),
        (bytes(18), "q4_0", (64,), r"shape \(64,\) of Q4_0 has 36 bytes, and data has 18"),
        (bytes(18), "q4_0", (), "whole blocks"),
        (bytes(18), "q4_00", None, "unknown type 'q4_00'; did you mean 'Q4_0'"),
        (np.zeros((2, 17), np.uint8), "q4_0", None, "no rows of blocks"),
    ],
)
def test_bad_blocks(data, kind, shape, message):
    with pytest.raises(ValueError, match=message):
        from_gguf(data, kind, shape)


@pytest.mark.parametrize("data", [np.zeros(18), "text", np.uint8(3), None])
def test_bad_types_of_data(data):
    with pytest.raises(TypeError, match="data must be bytes or an array of uint8"):
        from_gguf(data, "q4_0")
    with pytest.raises(TypeError, match="type must be a name"):
        from_gguf(bytes(18), 2)


def test_no_blocks():
    assert from_gguf(np.zeros((3, 0), np.uint8), "q6_k").shape == (3, 0)
