"""`floatsim show` and `floatsim survey` on GGUF and safetensors files."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from floatsim.quantization import SafetensorsFile

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


FILES = Path(__file__).parents[1] / "quantization" / "checkpoints"


def test_safetensors(run):
    path = FILES / "bitsandbytes.safetensors"
    code, out, _ = run("show", path)
    assert code == 0
    assert "layer8.weight  bitsandbytes-nf4   63x58  6.881" in out
    found = json.loads(run("show", path, "--tensor", "layer8.weight", "--json")[1])
    assert (found["package"], found["note"], found["group"]) == ("bitsandbytes", "nested absmax", 64)
    rows = {row["name"]: row for row in json.loads(run("survey", path, "--json")[1])["tensors"]}
    assert found["values"] == SafetensorsFile(path)["layer8.weight"].values.reshape(-1)[:12].tolist()
    values = np.abs(SafetensorsFile(path)["layer8.weight"].values)
    assert rows["layer8.weight"]["largest"] == values.max()
    assert rows["layer8.weight"]["smallest"] == values[values > 0].min()
    assert rows["layer8.weight"]["zeros"] == (values == 0).sum()


def test_parts_of_a_rule_are_shown(run):
    path = FILES / "compressed-tensors.safetensors"
    _, out, _ = run("show", path, "--tensor", "nvfp4.weight")
    assert "rule         code * (scale / global scale)" in out
    assert "tensor_scale 1801.38" in out
    assert "zero_points  " in run("show", path, "--tensor", "int4zero.weight")[1]


def test_safetensors_that_need_a_configuration(run):
    Path("model.safetensors").write_bytes((FILES / "gptq-v1.safetensors").read_bytes())
    code, _, error = run("show", "model.safetensors", "--tensor", "layer4.weight")
    assert code == 2
    assert "does not tell the zero points of GPTQ version 1" in error
    Path("config.json").write_text('{"quantization_config": {"checkpoint_format": "gptq"}}', encoding="utf-8")
    assert run("survey", "model.safetensors")[0] == 0
    found = json.loads(run("show", "model.safetensors", "--tensor", "layer4act.weight", "--json")[1])
    assert found["note"] == "zero points of version 1, act-order"


def test_an_index(run):
    Path("1.safetensors").write_bytes((FILES / "awq.safetensors").read_bytes())
    names = ["layer.qweight", "layer.qzeros", "layer.scales"]
    index = json.dumps({"weight_map": dict.fromkeys(names, "1.safetensors")})
    Path("model.safetensors.index.json").write_text(index, encoding="utf-8")
    assert "layer.weight  awq   64x128" in run("show", "model.safetensors.index.json")[1]


def test_matrices_in_safetensors(run):
    """Several files, products and formats multiply the matrices of a .safetensors file, as before."""
    pytest.importorskip("safetensors")
    header = json.dumps({name: {"dtype": "F32", "shape": [2, 2], "data_offsets": [16 * n, 16 * n + 16]}
                         for n, name in enumerate("ab")}).encode()  # fmt: skip
    Path("m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + np.ones(8, np.float32).tobytes())
    code, _, error = run("survey", "m.safetensors", "-m", "a @ c")
    assert code == 2
    assert "--multiply" in error
    assert "2 tensors, 8 numbers" in run("survey", "m.safetensors")[1]


NUM_BITS = {"config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8}}}}
WIDTHS = {"config_groups": {str(bits): {"targets": ["Linear"], "weights": {"num_bits": bits}} for bits in (3, 4, 5, 8)}}


@pytest.mark.parametrize(("name", "weight", "config", "message"), [
    ("gptq-v1", "layer4.weight", {"checkpoint_format": "gptq"}, "does not tell the zero points of GPTQ version 1"),
    ("gptq-v2", "layer4.weight", {"checkpoint_format": "gptq_v2"}, "does not tell the zero points of GPTQ version 1"),
    ("compressed-tensors", "int8.weight", WIDTHS, f"pass config={NUM_BITS} (in the command line --config FILE)"),
])  # fmt: skip
def test_one_unreadable_weight_does_not_hide_the_others(run, name, weight, config, message):
    path = FILES / f"{name}.safetensors"
    Path("given.json").write_text(json.dumps(config), encoding="utf-8")
    Path("model.json").write_text(json.dumps({"model_type": "x", "quantization_config": config}), encoding="utf-8")
    for command in ("show", "survey"):
        code, out, _ = run(command, path)
        assert code == 0
        assert message in out
        rows = {row["name"]: row for row in json.loads(run(command, path, "--json")[1])["tensors"]}
        assert (rows[weight]["shape"], message in rows[weight]["error"]) == (None, True)
        readable = [row for row in rows.values() if "error" not in row]
        assert len(readable) == (0 if name.startswith("gptq") else 11)
        assert all("largest" in row for row in readable) or command == "show"
        for file in ("given.json", "model.json"):
            found = json.loads(run(command, path, "--config", file, "--json")[1])["tensors"]
            assert [row["shape"] for row in found if "error" in row] == []
    code, _, error = run("show", path, "--tensor", weight)
    assert code == 2
    assert message in error
    assert run("show", path, "--tensor", weight, "--config", "given.json")[0] == 0


@pytest.mark.parametrize(("arguments", "message"), [
    (["show", "m.safetensors", "--config", "none.json"], "--config: none.json cannot be read as JSON"),
    (["show", "m.safetensors", "--config", "text.json"], "--config: text.json cannot be read as JSON"),
    (["show", "m.safetensors", "--config", "list.json"], "--config: config must be a dictionary, not [1]"),
    (["survey", "m.safetensors", "--config", "typo.json"],
     "--config: config has no key that a scheme reads, but 'nbits'; known keys are bits, w_bit"),
    (["show", "model.gguf", "--config", "list.json"], "--config: model.gguf needs no configuration"),
    (["show", "1.5", "--config", "list.json"], "--config is for a checkpoint"),
    (["survey", "a.npy", "--config", "list.json"], "--config is for a checkpoint"),
])  # fmt: skip
def test_errors_of_a_configuration(run, arguments, message):
    Path("m.safetensors").write_bytes((FILES / "awq.safetensors").read_bytes())
    for name, content in (("text", "{"), ("list", "[1]"), ("typo", '{"nbits": 4}')):
        Path(f"{name}.json").write_text(content, encoding="utf-8")
    code, _, error = run(*arguments)
    assert code == 2
    assert message in error
