"""`floatsim show` and `floatsim survey` on GGUF files."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("empty_folder")

CODES = np.arange(64) % 16
SCALES = np.float16([[0.5], [-2.0]])


def text(x: str) -> bytes:
    return struct.pack("<Q", len(x)) + x.encode()


@pytest.fixture(autouse=True)
def model(empty_folder):
    """A file with a tensor of type Q4_0 and one of type F32."""
    packed = np.uint8([CODES[:16] | CODES[16:32] << 4, CODES[32:48] | CODES[48:] << 4])
    blocks = np.concatenate([SCALES.view(np.uint8), packed], axis=1).tobytes()
    head = b"GGUF" + struct.pack("<I2Q", 3, 2, 1) + text("general.name") + struct.pack("<I", 8) + text("tiny")
    head += text("layer.w") + struct.pack("<I2QIQ", 2, 32, 2, 2, 0)
    head += text("norm") + struct.pack("<IQIQ", 1, 4, 0, 64)
    numbers = np.float32([0, 0.25, -8, np.nan]).tobytes()
    Path("model.gguf").write_bytes(head.ljust(-(-len(head) // 32) * 32, b"\0") + blocks.ljust(64, b"\0") + numbers)


def test_list_of_tensors(run):
    code, out, _ = run("show", "model.gguf")
    assert code == 0
    assert "general.name: 'tiny'" in out
    assert "layer.w  Q4_0   2x32   4.5" in out
    found = json.loads(run("show", "model.gguf", "--json")[1])
    assert found["metadata"] == {"general.name": "tiny"}
    assert found["tensors"][0] == {"name": "layer.w", "type": "Q4_0", "shape": [2, 32], "bits": 4.5}


def test_one_tensor(run):
    code, out, _ = run("show", "model.gguf", "--tensor", "layer.w")
    assert code == 0
    assert "scales       0.5, -2" in out
    found = json.loads(run("show", "model.gguf", "--tensor", "layer.w", "--json")[1])
    assert found["codes"] == (CODES[:12] - 8).tolist()
    assert found["values"] == ((CODES[:12] - 8) * 0.5).tolist()
    assert json.loads(run("show", "model.gguf", "--tensor", "norm", "--json")[1])["type"] == "F32"


def test_survey(run):
    code, out, _ = run("survey", "model.gguf")
    assert code == 0
    assert "2 tensors, 68 numbers, 6.118 bits for each" in out
    first, second = json.loads(run("survey", "model.gguf", "--json")[1])["tensors"]
    values = (CODES - 8).reshape(2, 32) * SCALES.astype(float)
    assert (first["zeros"], first["smallest"], first["largest"], first["not_finite"]) == (4, 0.5, 16, 0)
    assert first["rms"] == pytest.approx(np.sqrt(np.square(values).mean()))
    assert (second["zeros"], second["smallest"], second["largest"], second["not_finite"]) == (1, 0.25, 8, 1)


@pytest.mark.parametrize(("arguments", "message"), [
    (["show", "none.gguf"], "FILE: there is no file none.gguf"),
    (["show", "model.gguf", "--tensor", "layer.v"],
     "--tensor: model.gguf has no tensor 'layer.v'; did you mean 'layer.w'? it has layer.w, norm"),
    (["show", "1.5", "--tensor", "w"], "--tensor is for a checkpoint"),
    (["survey", "model.gguf", "a.npy"], "a checkpoint is surveyed alone"),
    (["survey", "model.gguf", "-m", "a @ b"], "a checkpoint is surveyed alone and without --multiply"),
    (["survey", "cut.gguf"], "FILES: cut.gguf cannot be read as a GGUF file: 'norm' has 16 bytes from byte"),
    (["survey", "."], "FILES: . must be one of"),
])  # fmt: skip
def test_errors(run, arguments, message):
    Path("cut.gguf").write_bytes(Path("model.gguf").read_bytes()[:-1])
    code, _, error = run(*arguments)
    assert code == 2
    assert message in error
