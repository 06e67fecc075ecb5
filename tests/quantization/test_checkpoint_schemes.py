"""The quantized weights of safetensors files, compared with the packages that made them: digests, installed packages.

`pip install "floatsim[checkpoints]"` installs packages of the comparison.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from floatsim.quantization import CHECKPOINT_SCHEMES, SafetensorsFile
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
