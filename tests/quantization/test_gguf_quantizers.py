"""Quantization into the blocks of GGUF files: stored digests of the package libgguf, and installed packages."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from floatsim.quantization import GGUF_TYPES, from_gguf, to_gguf
from floatsim.quantization.gguf_points import neighbours_of
from floatsim.quantization.gguf_quantizers import QUANTIZED_TYPES
from floatsim.quantization.gguf_types import grid_of
from tests import marks
from tests.quantization.gguf_vectors import FILE, QUANTIZED, cases, quantized_by_package, random_matrix


def test_every_type_is_compared():
    assert list(QUANTIZED_TYPES) == list(QUANTIZED) == list(json.loads(FILE.read_text())["quantized"])


@pytest.mark.parametrize(
    "name", marks.cases(quick=["Q4_0", "Q2_K", "Q6_K", "IQ2_XXS", "IQ4_NL", "NVFP4"], full=QUANTIZED)
)
def test_equal_to_stored_digests(name):
    """Without and with weights; the matrix has rows of zeros, ties, one sign, subnormal and large numbers."""
    x, weights = random_matrix()
    found = [hashlib.sha256(to_gguf(x, name, weights=each).tobytes()).hexdigest() for each in cases(name, weights)]
    assert found == json.loads(FILE.read_text())["quantized"][name]
    assert (len(set(found)) == len(found)) == QUANTIZED_TYPES[name].weighted


@pytest.mark.parametrize("name", QUANTIZED)
def test_equal_to_libgguf(name):
    pytest.importorskip("libgguf", reason="compares with the package libgguf")
    x, weights = random_matrix(40, 1)
    for each in cases(name, weights):
        assert np.array_equal(to_gguf(x, name, weights=each), quantized_by_package(name, x, each))


@pytest.mark.full
@pytest.mark.parametrize("name", QUANTIZED)
def test_many_rows_equal_to_libgguf(name):
    pytest.importorskip("libgguf", reason="compares with the package libgguf")
    for seed in range(2, 6):
        x, weights = random_matrix(500, seed)
        for each in cases(name, weights):
            assert np.array_equal(to_gguf(x, name, weights=each), quantized_by_package(name, x, each))


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"])
def test_equal_to_gguf(name):
    """The package gguf has other signs of zero where the smallest element is a zero; that row is left out."""
    gguf = pytest.importorskip("gguf", reason="compares with the package gguf")
    x = np.delete(random_matrix(40, 1)[0], [2, 7], axis=0)
    with np.errstate(all="ignore"):
        assert np.array_equal(to_gguf(x, name), gguf.quants.quantize(x, gguf.GGMLQuantizationType[name]))


def test_rule_of_q4_0():
    """The largest element becomes the code 0, so that its scale may be negative; zeros have the scale -0."""
    x = np.zeros((2, 32), np.float32)
    x[0, :4] = 1.0, -0.5, 0.25, 0.0
    q = from_gguf(to_gguf(x, "q4_0"), "q4_0")
    assert q.codes[0, :4].tolist() == [-8, 4, -2, 0]
    assert q.scales.values.tolist() == [[-0.125], [0]]
    assert np.array_equal(q.values, x)


def test_rule_of_q8_0():
    """The codes are those of the FP32 scale, which is then stored as FP16."""
    x = (np.random.default_rng(7).normal(size=(8, 1024)) * 0.02).astype(np.float32)
    blocks = x.reshape(-1, 32)
    d = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
    t = blocks * (1 / d)
    q = from_gguf(to_gguf(x, "q8_0"), "q8_0")
    assert np.array_equal(q.codes.reshape(-1, 32), np.sign(t) * np.floor(np.abs(t) + np.float32(0.5)))
    assert np.array_equal(q.scales.values.reshape(-1, 1), d.astype(np.float16))


def test_weights_lower_the_weighted_error():
    x, weights = random_matrix()
    x = x[12:]
    for name, quantizer in QUANTIZED_TYPES.items():
        if quantizer.weighted and not quantizer.needs_weights:
            plain, weighted = (from_gguf(to_gguf(x, name, weights=each), name).values for each in (None, weights))
            assert (weights * (weighted - x) ** 2).sum() < (weights * (plain - x) ** 2).sum(), name


def test_other_formats_and_shapes():
    x = np.linspace(-1, 1, 64)
    assert np.array_equal(to_gguf(x, "Q8_0"), to_gguf(x.astype(np.float32), "q8_0"))
    assert to_gguf(np.zeros((2, 3, 64)), "q8_0").shape == (2, 3, 68)
    assert to_gguf(np.zeros((0, 64)), "q8_0").shape == (0, 68)
    assert to_gguf(np.zeros((3, 0)), "q8_0").shape == (3, 0)
    assert to_gguf(np.zeros((3, 0)), "q4_k", weights=np.zeros(0)).shape == (3, 0)


@pytest.mark.parametrize(
    ("x", "kind", "weights", "message"),
    [
        (np.zeros(31), "q4_0", None, r"x \(31,\): a row of Q4_0 has whole blocks of 32"),
        (np.float32(1), "q4_0", None, "whole blocks of 32"),
        (np.full(32, np.nan), "q4_0", None, "x has NaN or infinity"),
        (np.full(32, np.inf), "q4_0", None, "x has NaN or infinity"),
        (np.full(32, 2.0**128 - 2.0**103), "q4_0", None, "x has NaN or infinity in FP32"),
        (np.zeros(32), "q4_0", np.full(32, 1e300), "weights has NaN or infinity in FP32"),
        (np.zeros(32), "q4_9", None, "unknown type 'q4_9'"),
        (np.zeros(256), "q8_k", None, "type='Q8_K' is only read; .*known are"),
        (np.zeros(256), "iq2_xs", None, r"type='IQ2_XS' needs weights, an array \(256,\)"),
        (np.full((2, 256), 1e20), "iq3_s", None, r"weighted squares overflow FP32, so that no point of IQ3_S"),
        (np.full((2, 256), 1e20), "iq1_m", None, r"weighted squares overflow FP32, so that no point of IQ1_M"),
        (np.zeros((2, 32)), "q4_0", np.ones((2, 32)), r"weights \(2, 32\) must have the shape of a row of x, \(32,\)"),
        (np.zeros(32), "q4_0", np.full(32, -1.0), "weights must not be negative"),
        (np.zeros(32), "q4_0", np.full(32, np.nan), "weights has NaN"),
    ],
)
def test_bad_input(x, kind, weights, message):
    with pytest.raises(ValueError, match=message):
        to_gguf(x, kind, weights=weights)


def test_codes_round_trip():
    """Packing is the inverse of unpacking for every type that is written."""
    for name in QUANTIZED:
        x, _ = random_matrix()
        blocks = to_gguf(x[12:16], name, weights=np.ones(1024))
        assert from_gguf(blocks, name).shape == (4, 1024)
        assert blocks.shape[1] == 1024 // GGUF_TYPES[name].size * GGUF_TYPES[name].nbytes


@pytest.mark.parametrize(("name", "distances"), {"IQ2_S": 1, "IQ3_XXS": 2, "IQ3_S": 3, "IQ1_S": 3}.items())
def test_neighbours_are_the_nearest_points(name, distances):
    """By the definition, for some numbers: all points at the smallest distances, the nearest first."""
    grid, table = grid_of(name).astype(np.int64), neighbours_of(name)
    numbers = np.unique(grid)
    levels = np.searchsorted(numbers, grid)
    count, width = len(numbers), grid.shape[1]
    assert np.array_equal(table.places, levels + count * np.arange(width))
    for number in range(0, count**width, 97):
        digits = number // count ** np.arange(width) % count
        squared = ((levels - digits) ** 2).sum(axis=1)
        own = table.neighbours[table.starts[number] : table.starts[number + 1]].tolist()
        if squared.min() == 0:
            assert table.index_of[number] == squared.argmin()
            assert not own
        else:
            assert table.index_of[number] == -1
            smallest = sorted(set(squared))[:distances]
            assert own == [k for d in smallest for k in np.flatnonzero(squared == d)]


def test_groups_of_zeros_in_iq3_s():
    """ggml stores the points after a group of zeros one group earlier, where they are not read; floatsim, too."""
    x = np.ones((1, 256), np.float32)
    whole = to_gguf(x, "iq3_s")[0]
    x[0, :32] = 0
    damaged = to_gguf(x, "iq3_s")[0]
    assert np.array_equal(damaged[2 : 2 + 7 * 8], whole[2 + 8 : 2 + 64])
    assert not damaged[2 + 7 * 8 : 2 + 64].any()


def test_scales_of_nan():
    """Where all squares overflow, the scales of groups are NaN, which is never the largest scale: ggml stores zeros."""
    x, weights = random_matrix()
    blocks = to_gguf(x[12] * np.float32(1e25), "q3_k", weights=weights).reshape(4, 110)
    assert blocks[:, :96].any()
    assert not blocks[:, 96:].any()
