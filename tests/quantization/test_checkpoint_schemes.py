"""The quantized weights of safetensors files, compared with the packages that made them: digests, and installed packages.

`pip install "floatsim[checkpoints]"` installs packages of the comparison.
"""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest

from floatsim.quantization import CHECKPOINT_SCHEMES, SafetensorsFile
from tests.quantization.checkpoint_vectors import DIGESTS, FOLDER, MAKERS, digest, numbers, written

STORED = json.loads(DIGESTS.read_text())


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
        assert x.format.dtype == {"bfloat16": "bfloat16"}.get(dtype, dtype), key
        if digest(x.values.astype(np.float32)) != expected or digest(found) != expected:
            different.append(key)
    assert not different


def test_every_scheme_has_a_file():
    found = set()
    for name, made in STORED.items():
        found |= {tensor.type for tensor in SafetensorsFile(FOLDER / f"{name}.safetensors", made["config"]).values()}
    assert set(CHECKPOINT_SCHEMES) - found == {"fp8-blocks"}
