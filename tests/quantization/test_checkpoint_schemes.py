"""The quantized weights of safetensors files, compared with the packages that made them: digests, installed packages.

`pip install -e ".[checkpoints]"` installs packages of the comparison.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import floatsim as fs
from floatsim.quantization import CHECKPOINT_SCHEMES, Quantized, SafetensorsFile, Scheme
from tests.quantization.checkpoint_vectors import DIGESTS, FOLDER, MAKERS, digest, numbers, written

STORED = json.loads(DIGESTS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", STORED)
def test_equal_to_stored_digests(name):
    made = STORED[name]
    file = SafetensorsFile(FOLDER / f"{name}.safetensors", made["config"])
    assert set(file) == set(made["weights"])
    different = []
    for key, (dtype, shape, expected) in made["weights"].items():
        x = file[key].dequantize()
        found = np.concatenate(list(file[key].pieces(1 << 11)))
        assert list(x.shape) == shape
        assert x.format.dtype == dtype, key
        if digest(x.values.astype(np.float32)) != expected or digest(found) != expected:
            different.append(key)
    assert not different


def test_every_scheme_has_a_file():
    found = set()
    for name, made in STORED.items():
        found |= {tensor.type for tensor in SafetensorsFile(FOLDER / f"{name}.safetensors", made["config"]).values()}
    assert set(CHECKPOINT_SCHEMES) - found == {"fp8-blocks"}


@pytest.mark.parametrize("rule", ["multiply", "divide", "multiply_values"])
def test_rules_of_a_tensor_scale(rule):
    rng = np.random.default_rng(4)
    codes, scales, whole = rng.integers(-128, 128, (8, 64)), np.float32(rng.random((8, 2))), np.float32(0.3)
    q = Quantized(codes, fs.array(scales, "fp32"), Scheme("int8", 32), tensor_scale=fs.array(whole, "fp32"),
                  tensor_scale_rule=rule)  # fmt: skip
    each, x = np.repeat(scales, 32, axis=1), codes.astype(np.float32)
    expected = {"multiply": x * (each * whole), "divide": x * (each / whole), "multiply_values": (x * each) * whole}
    assert np.array_equal(q.values, expected[rule])
    assert sum(np.array_equal(expected[rule], other) for other in expected.values()) == 1
    assert ("(" + rule in repr(q)) == (rule != "multiply")


def test_an_unknown_rule_of_a_tensor_scale():
    with pytest.raises(ValueError, match="tensor_scale_rule='divides' is not known; did you mean 'divide'"):
        Quantized(np.zeros(2, int), fs.array(1.0, "fp32"), Scheme("int8"), tensor_scale_rule="divides")


PACKAGES = {"compressed-tensors": "compressed_tensors", "bitsandbytes": "bitsandbytes", "torchao": "torchao"}


def equal_to_package(name: str, size: tuple[int, int], seed: int, path) -> int:
    """Compare files that a package makes with what it decodes from them. Return the number of values."""
    made = MAKERS[name](*size, seed)
    written(made, path)
    file, count = SafetensorsFile(path, made.config), 0
    for key, x in made.decoded.items():
        found, expected = file[key].dequantize().values.astype(np.float32), numbers(x)
        different = (found.view(np.uint32) != expected.view(np.uint32)) & ~(np.isnan(found) & np.isnan(expected))
        assert not different.any(), f"{key}: {different.sum()} of {different.size}"
        count += different.size
    return count


@pytest.mark.parametrize("name", PACKAGES)
def test_equal_to_the_packages(name, tmp_path):
    pytest.importorskip("torch", reason="compares with packages that need PyTorch")
    pytest.importorskip(PACKAGES[name], reason=f"compares with the package {name}")
    equal_to_package(name, (64, 256), 2, tmp_path / "model.safetensors")


@pytest.mark.full
@pytest.mark.parametrize("name", PACKAGES)
def test_a_million_values_of_each_weight(name, tmp_path):
    pytest.importorskip("torch", reason="compares with packages that need PyTorch")
    pytest.importorskip(PACKAGES[name], reason=f"compares with the package {name}")
    equal_to_package(name, (1024, 1024), 3, tmp_path / "model.safetensors")
