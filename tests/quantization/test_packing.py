"""Packed codes: every layout against the loop that its library publishes, round trips, and clear errors.

A comparison with the package compressed-tensors needs `pip install -e ".[quantizers]"`.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import floatsim as fs
from floatsim.quantization import PACKED_LAYOUTS, pack, unpack

EVERY = [(name, bits) for name, row in PACKED_LAYOUTS.items() for bits in row.bits]
WORDS = [case for case in EVERY if PACKED_LAYOUTS[case[0]].tile is None]


def codes_of(name: str, bits: int, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Random codes, the first of which are all codes of the layout."""
    low = -(1 << (bits - 1)) if name.startswith("compressed") else int(name == "gptq-zeros-v1")
    codes = np.random.default_rng(seed).integers(low, low + (1 << bits), shape)
    every = np.arange(low, low + (1 << bits))[: codes.size]
    codes.reshape(-1)[: every.size] = every
    return codes


@pytest.mark.parametrize(("name", "bits"), EVERY)
def test_round_trip(name, bits):
    for shape in ((32, 64), (2, 32, 32), (1, 5), (3, 1), (7, 33), (129, 6), (0, 32), (32, 0)):
        codes, row = codes_of(name, bits, shape), PACKED_LAYOUTS[name]
        if not row.pads and shape[row.axis] % row.unit(bits)[0]:
            with pytest.raises(ValueError, match="has a multiple of"):
                pack(codes, name, bits=bits)
            continue
        packed = pack(codes, name, bits=bits)
        assert packed.dtype == row.word
        assert np.array_equal(unpack(packed, name, bits=bits, shape=shape), codes)
        if not row.pads:
            assert np.array_equal(unpack(packed, name, bits=bits), codes)
            assert np.array_equal(unpack(packed.view(np.uint32), name, bits=bits), codes)


# -- the loops of the libraries ----------------------------------------------------------------------------------------


def gptq_rows(codes: np.ndarray, bits: int) -> np.ndarray:
    """The rows of `pack` of GPTQ (IST-DASLab/gptq and AutoGPTQ), which has a branch for three bits."""
    codes = codes.astype(np.uint32)
    out = np.zeros((codes.shape[0] // 32 * bits, codes.shape[1]), np.uint32)
    i = row = 0
    while row < out.shape[0]:
        if bits in (2, 4, 8):
            for j in range(i, i + 32 // bits):
                out[row] |= codes[j] << np.uint32(bits * (j - i))
            i += 32 // bits
            row += 1
            continue
        for j in range(i, i + 10):
            out[row] |= codes[j] << np.uint32(3 * (j - i))
        i += 10
        out[row] |= codes[i] << np.uint32(30)
        row += 1
        out[row] |= (codes[i] >> np.uint32(2)) & np.uint32(1)
        i += 1
        for j in range(i, i + 10):
            out[row] |= codes[j] << np.uint32(3 * (j - i) + 1)
        i += 10
        out[row] |= codes[i] << np.uint32(31)
        row += 1
        out[row] |= (codes[i] >> np.uint32(1)) & np.uint32(3)
        i += 1
        for j in range(i, i + 10):
            out[row] |= codes[j] << np.uint32(3 * (j - i) + 2)
        i += 10
        row += 1
    return out.view(np.int32)


@pytest.mark.parametrize("bits", PACKED_LAYOUTS["gptq"].bits)
def test_gptq(bits):
    codes = codes_of("gptq", bits, (64, 32))
    assert np.array_equal(pack(codes, "gptq", bits=bits), gptq_rows(codes, bits))
    columns = np.ascontiguousarray(gptq_rows(codes.T.repeat(2, axis=0), bits).T)
    assert np.array_equal(pack(codes.repeat(2, axis=1), "gptq-zeros-v2", bits=bits), columns)
    assert np.array_equal(pack(codes.repeat(2, axis=1) + 1, "gptq-zeros-v1", bits=bits), columns)


def test_zero_points_of_gptq():
    """Symmetric 4-bit files have the zero point 8: 7 in each half of a byte in version 1, 8 in version 2."""
    eight = np.full((1, 8), 8)
    assert pack(eight, "gptq-zeros-v1").item() == 0x77777777
    assert pack(eight, "gptq-zeros-v2").view(np.uint32).item() == 0x88888888
    with pytest.raises(ValueError, match="codes must be 1 to 16, 4 bits of layout='gptq-zeros-v1', not 0"):
        pack(eight * 0, "gptq-zeros-v1")


def test_awq():
    """The loop of `WQLinear_GEMM.from_linear` of AutoAWQ."""
    codes = codes_of("awq", 4, (5, 24)).astype(np.int32)
    out = np.zeros((5, 3), np.int32)
    for col in range(3):
        for i, place in enumerate([0, 2, 4, 6, 1, 3, 5, 7]):
            out[:, col] |= codes[:, col * 8 + place] << np.int32(4 * i)
    assert np.array_equal(pack(codes, "awq"), out)


@pytest.mark.parametrize("bits", PACKED_LAYOUTS["compressed-tensors-words"].bits)
def test_compressed_tensors_with_whole_codes_in_words(bits):
    """The older loop of `pack_to_int32` of compressed-tensors: 32 // bits codes of a row in a word, then padding."""
    codes = codes_of("compressed-tensors-words", bits, (7, 45))
    value, factor = (codes + (1 << (bits - 1))).astype(np.uint32), 32 // bits
    value = np.pad(value, [(0, 0), (0, -45 % factor)])
    out = np.zeros((7, value.shape[1] // factor), np.uint32)
    for i in range(factor):
        out |= value[:, i::factor] << np.uint32(bits * i)
    assert np.array_equal(pack(codes, "compressed-tensors-words", bits=bits), out.view(np.int32))


@pytest.mark.parametrize("bits", PACKED_LAYOUTS["compressed-tensors"].bits)
def test_compressed_tensors(bits):
    """The formula of 0.20: code i begins at bit i * bits of its row, which has ceil(codes * bits / 32) words."""
    codes = codes_of("compressed-tensors", bits, (7, 45))
    count = -(-45 * bits // 32)
    rows = [sum((int(c) + (1 << (bits - 1))) << (i * bits) for i, c in enumerate(row)) for row in codes]
    expected = np.array([[(row >> (32 * k)) & 0xFFFFFFFF for k in range(count)] for row in rows], np.uint32)
    assert np.array_equal(pack(codes, "compressed-tensors", bits=bits), expected.view(np.int32))


@pytest.mark.parametrize("bits", PACKED_LAYOUTS["compressed-tensors"].bits)
def test_equal_to_the_package_compressed_tensors(bits):
    torch = pytest.importorskip("torch", reason="compares with compressed-tensors")
    helpers = pytest.importorskip("compressed_tensors.compressors.pack_quantized.helpers",
                                  reason="compares with compressed-tensors")  # fmt: skip
    codes = codes_of("compressed-tensors", bits, (7, 45)).astype(np.int8)
    packed = helpers.pack_to_int32(torch.from_numpy(codes), bits).numpy()
    assert np.array_equal(pack(codes, "compressed-tensors", bits=bits), packed)


@pytest.mark.parametrize("bits", PACKED_LAYOUTS["mlx"].bits)
def test_mlx(bits):
    """The steps of `quantize` of MLX: the bits of all codes, lowest first, 32 to a word."""
    codes = codes_of("mlx", bits, (3, 64))
    single = np.right_shift(codes[..., None], np.arange(bits)) & 1
    words = (single.reshape(3, -1, 32) << np.arange(32)).sum(axis=-1).astype(np.uint32)
    assert np.array_equal(pack(codes, "mlx", bits=bits), words)


def test_bytes():
    """ONNX has the first code in the low half of a byte, bitsandbytes in the high half; an odd end has a zero."""
    codes = codes_of("low-nibble-first", 4, (17,))
    even, odd = codes[::2], np.append(codes[1::2], 0)
    assert np.array_equal(pack(codes, "low-nibble-first"), even | odd << 4)
    assert np.array_equal(pack(codes, "high-nibble-first"), even << 4 | odd)
    quarters = codes_of("low-nibble-first", 2, (4, 4))
    assert np.array_equal(pack(quarters, "low-nibble-first", bits=2)[:, 0], quarters @ [1, 4, 16, 64])
    assert np.array_equal(pack(quarters, "high-nibble-first", bits=2)[:, 0], quarters @ [64, 16, 4, 1])


@pytest.mark.parametrize("bits", [3, 5, 6, 7])
def test_bytes_of_other_widths(bits):
    codes = codes_of("low-nibble-first", bits, (2, 11))
    single = (codes[..., None] >> np.arange(bits)) & 1
    expected = np.packbits(single.reshape(2, -1).astype(np.uint8), axis=-1, bitorder="little")
    assert np.array_equal(pack(codes, "low-nibble-first", bits=bits), expected)


@pytest.mark.parametrize("shape", [(1, 1), (128, 4), (130, 9), (300, 4)])
def test_tiles_of_scales(shape):
    """The formula of the cuBLAS manual: the offset of a scale in its tile, and the tiles of a row of tiles."""
    scales = np.random.default_rng(3).integers(0, 256, shape)
    across = -(-shape[1] // 4)
    out = np.zeros(-(-shape[0] // 128) * across * 512, np.uint8)
    for row, column in itertools.product(range(shape[0]), range(shape[1])):
        tile = row // 128 * across + column // 4
        out[512 * tile + (row % 32) * 16 + (row % 128) // 32 * 4 + column % 4] = scales[row, column]
    assert np.array_equal(pack(scales, "cublas-128x4"), out)
    assert np.array_equal(unpack(out, "cublas-128x4", shape=shape), scales)


# -- Quantized ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["int4", "uint4", "mxfp4", "nf4", "int8", "int2"])
def test_packed_codes_of_a_tensor(scheme):
    q = fs.quantize_blocks(np.random.default_rng(4).normal(size=(32, 64)), scheme, block=32)
    bits, codes = q.format.bits, q.codes.astype(np.int64)
    for name, row in PACKED_LAYOUTS.items():
        if bits not in row.bits or row.tile or "zeros" in name:
            with pytest.raises(ValueError, match=name):
                q.packed(name)
            continue
        found = unpack(q.packed(name), name, bits=bits).astype(np.int64)
        if getattr(q.format, "min", 0) < 0 and scheme.startswith("int"):
            found = found if row.stored == "code + half" else found - (1 << (bits - 1)) * (
                row.signed == "code + half")  # fmt: skip
            found = (found + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
        elif row.stored == "code + half":
            found = found + (1 << (bits - 1))
        assert np.array_equal(found, codes), name


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pack([1], "gtpq"), ValueError, "unknown layout='gtpq'; did you mean 'gptq'"),
        (lambda: pack([1], 4), ValueError, "unknown layout=4; "),
        (lambda: pack([[1]], "awq", bits=3), ValueError, "bits=3 is no width of layout='awq'; it has 4"),
        (lambda: pack([1], "awq", bits=9), ValueError, "bits must be 1 to 8, not 9"),
        (lambda: pack([16], "low-nibble-first"), ValueError, "codes must be 0 to 15"),
        (lambda: pack([-1], "low-nibble-first"), ValueError, "codes must be 0 to 15"),
        (lambda: pack([8], "compressed-tensors"), ValueError, "codes must be -8 to 7"),
        (lambda: pack([1.0], "awq"), TypeError, "codes must be integers, not float64"),
        (lambda: pack(fs.array([1.0], "e4m3"), "awq"), TypeError, "pass its `codes`"),
        (lambda: pack(range(8), "gptq"), ValueError, r"codes \(8,\): layout='gptq' needs at least 2 axes"),
        (lambda: pack(3, "low-nibble-first"), ValueError, r"needs at least 1 axes"),
        (lambda: unpack(3, "awq"), ValueError, r"needs at least 1 axes"),
        (lambda: unpack([256], "low-nibble-first"), ValueError, "packed must be 0 to 255"),
        (lambda: unpack([1 << 32], "awq"), ValueError, "packed must be -2147483648 to 4294967295"),
        (lambda: unpack([0.5], "awq"), TypeError, "packed must be integers"),
        (lambda: unpack([1], "awq", shape=(7,)), ValueError, r"packed \(1,\) does not fit shape=\(7,\)"),
        (lambda: unpack([1, 2], "low-nibble-first", shape=(2,)), ValueError, "does not fit"),
        (lambda: unpack([1, 2], "low-nibble-first", shape=(5,)), ValueError, "does not fit"),
        (lambda: unpack([1, 2], "low-nibble-first", shape=(2, 2)), ValueError, "does not fit"),
        (lambda: unpack([1], "low-nibble-first", shape=2), TypeError, "shape must be a tuple of integers, not 2"),
        (lambda: unpack([1] * 512, "cublas-128x4"), ValueError, "needs shape="),
        (lambda: unpack([1] * 512, "cublas-128x4", shape=(129, 4)), ValueError, "has no 1024 bytes"),
    ],
)  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
