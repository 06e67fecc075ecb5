"""`quantize_model`: rules by name, the report, the dequantized state dict, and clear errors."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
import numpy as np
import pytest

import floatsim as fs
from floatsim.quantization import GgufFile, Quantized, from_gguf, quantize_model, to_gguf


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_t(4, shape).astype(np.float32)


STATE = {
    "blocks.0.up.weight": weights(8, 256), "blocks.0.up.bias": weights(8, seed=1),
    "blocks.1.up.weight": weights(8, 256, seed=2), "head.weight": weights(4, 64, seed=3), "steps": np.arange(3),
}  # fmt: skip


def test_each_tensor_has_the_scheme_of_the_first_rule_that_fits():
    rules = {"head.*": None, "*.0.up.weight|none.*": "q4_k", "*.weight": "int4", "*.bias": "mxfp8"}
    model = quantize_model(STATE, rules)
    assert list(model) == list(STATE)
    assert [row.scheme for row in model.rows] == ["q4_k", "mxfp8", "int4", "", ""]
    assert [row.kept for row in model.rows] == ["", "", "", "the rule 'head.*'", "integers"]
    assert np.array_equal(
        model["blocks.0.up.weight"].values, from_gguf(to_gguf(STATE["blocks.0.up.weight"], "q4_k"), "q4_k").values
    )
    assert np.array_equal(
        model["blocks.1.up.weight"].codes, fs.quantize_blocks(STATE["blocks.1.up.weight"], "int4").codes
    )
    assert model["head.weight"] is STATE["head.weight"]
    assert [row.bits for row in model.rows[:2]] == [4.5, 8 + 8 / 8]
    assert model.rows[3].bits == 32
    assert model.rows[4].bits == 8 * STATE["steps"].itemsize


def test_one_scheme_is_for_tensors_with_two_axes_and_skip_keeps_some():
    model = quantize_model(STATE, "int8", skip="head.*|blocks.1.*")
    kept = {row.name: row.kept for row in model.rows}
    assert kept == {
        "blocks.0.up.weight": "", "blocks.0.up.bias": "no matrix", "blocks.1.up.weight": "skip 'head.*|blocks.1.*'",
        "head.weight": "skip 'head.*|blocks.1.*'", "steps": "integers",
    }  # fmt: skip
    assert [row.kept for row in quantize_model(STATE, {"head.*": "int8"}).rows][:4] == ["no rule"] * 3 + [""]


@pytest.mark.parametrize("scheme", ["int4", "nvfp4", "q4_k", "nf4", "e4m3", "w4a16"])
def test_the_report_is_what_plain_numpy_counts(scheme):
    x = weights(4, 512)
    model = quantize_model({"w": x}, scheme)
    row, made = model.rows[0], model["w"].values
    wide = x.astype(np.float64)
    assert row.error == pytest.approx(np.linalg.norm(made - wide) / np.linalg.norm(wide), rel=1e-12)
    assert row.sqnr == pytest.approx(-20 * math.log10(row.error))
    assert row.flushed == np.mean(made[wide != 0] == 0)
    kinds = fs.conversion_losses(x, model["w"])
    assert row.clipped == kinds.overflowed


def test_bits_and_bytes_include_scales_and_kept_tensors():
    model = quantize_model(STATE, "mxfp4", skip="blocks.1.*")
    sizes = [8 * 256 * 4.25, 8 * 32, 8 * 256 * 32, 4 * 64 * 4.25, 3 * 8 * STATE["steps"].itemsize]
    elements = sum(np.size(x) for x in STATE.values())
    assert model.bits == pytest.approx(sum(sizes) / elements)
    assert model.nbytes == math.ceil(sum(sizes) / 8)


def test_wide_formats_are_casts():
    x = weights(4, 64) * np.float32(1e30)
    model = quantize_model({"w": x}, "bf16")
    assert np.array_equal(model["w"].values, fs.quantize(fs.array(x, "fp32"), "bf16").values)
    assert model.rows[0].bits == 16


def test_a_tensor_without_loss_has_error_zero():
    row = quantize_model({"w": np.zeros((2, 32), np.float32)}, "int8").rows[0]
    assert (row.error, row.sqnr, row.clipped) == (0.0, math.inf, 0.0)
    assert row.to_dict()["sqnr"] is None


def test_state_dict_returns_arrays_of_the_former_dtype():
    state = {"h": weights(2, 32).astype(np.float16), "b": fs.array(weights(2, 32), "bf16"), "i": np.arange(2)}
    model = quantize_model(state, "int8")
    back = model.state_dict()
    assert back["h"].dtype == np.float16
    assert np.array_equal(back["h"], model["h"].dequantize("fp16").values.astype(np.float16))
    assert back["b"].format is fs.BF16
    assert back["i"] is state["i"]


def test_a_torch_model_loads_its_quantized_weights():
    torch = pytest.importorskip("torch")
    layers = torch.nn.Sequential(torch.nn.Linear(32, 8), torch.nn.LayerNorm(8)).bfloat16()
    model = quantize_model(layers.state_dict(), "mxfp8")
    layers.load_state_dict(model.state_dict())
    assert layers[0].weight.dtype is torch.bfloat16
    assert np.array_equal(layers[0].weight.detach().float().numpy(), model["0.weight"].dequantize("bf16").values)
    assert [row.source for row in model.rows] == ["BF16"] * 4


def gguf(tmp_path, tensors: dict[str, tuple[int, tuple[int, ...], bytes]]) -> GgufFile:
    """Write a GGUF file by hand: name to number of the type, shape, bytes."""
    header, data = b"GGUF" + np.uint32([3]).tobytes() + np.uint64([len(tensors), 0]).tobytes(), b""
    for name, (kind, shape, content) in tensors.items():
        header += np.uint64([len(name)]).tobytes() + name.encode() + np.uint32([len(shape)]).tobytes()
        header += np.uint64(shape[::-1]).tobytes() + np.uint32([kind]).tobytes() + np.uint64([len(data)]).tobytes()
        data += content.ljust(-(-len(content) // 32) * 32, b"\0")
    path = tmp_path / "model.gguf"
    path.write_bytes(header.ljust(-(-len(header) // 32) * 32, b"\0") + data)
    return GgufFile(path)


def test_tensors_of_a_gguf_file_are_dequantized_first(tmp_path):
    x = weights(2, 256)
    stored = to_gguf(x, "q8_0")
    file = gguf(tmp_path, {
        "w": (8, (2, 256), stored.tobytes()), "plain": (0, (2, 256), x.tobytes()),
        "ids": (26, (4,), np.arange(4, dtype="<i4").tobytes()),
    })  # fmt: skip
    model = quantize_model(file, {"w": "q4_k", "plain": None})
    before = from_gguf(stored, "q8_0").values
    assert [(row.source, row.kept) for row in model.rows] == [
        ("Q8_0", ""), ("F32", "the rule 'plain'"), ("I32", "integers"),
    ]  # fmt: skip
    assert isinstance(model["w"], Quantized)
    assert model.rows[0].error == pytest.approx(np.linalg.norm(model["w"].values - before) / np.linalg.norm(before))
    back = model.state_dict()
    assert np.array_equal(back["w"], model["w"].values.astype(np.float32))
    assert np.array_equal(back["plain"], x)
    assert quantize_model(file, "q4_k", skip="w").rows[0].bits == 8.5
    again = quantize_model(model, {"w": "int8"})  # a quantized model is a mapping of names, too
    assert again.rows[0].source == model["w"].format.name


def test_the_table_and_the_picture():
    pytest.importorskip("matplotlib")
    model = quantize_model(STATE, {"head.*": "int4", "*.up.weight": "q4_k"})
    lines = str(model).splitlines()
    assert lines[0].split() == [
        "tensor",
        "shape",
        "from",
        "scheme",
        "bits",
        "error",
        "SQNR",
        "dB",
        "clipped",
        "flushed",
    ]
    assert len(lines) == 2 + len(STATE)
    assert "kept: no rule" in lines[2]
    assert lines[-1].startswith("3 tensors quantized, 2 kept")
    assert "<td>kept: no rule</td>" in model._repr_html_()
    assert [row.name for row in model.worst(1)] == [max(model.quantized, key=lambda row: row.error).name]
    ax = model.plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == [row.name for row in model.quantized]
    drawn = sorted(float(x) for line in ax.lines for x in line.get_xdata())
    assert drawn == pytest.approx(sorted(row.error for row in model.quantized))
    plt.close("all")


@pytest.mark.parametrize(
    ("scheme", "skip", "message"),
    [
        ({"haed.weight": "int8"}, (), r"scheme: no tensor fits 'haed\.weight'; did you mean 'head\.weight'\?"),
        ("int8", "xyz", r"skip: no tensor fits 'xyz'; the tensors are blocks\.0\.up\.weight, "),
        ("q4_k", (), r"state_dict\['head\.weight'\] \(4, 64\): a row of q4_k has whole blocks of 256 elements, and "
         r"this one has 64: of the GGUF types q4_0, .*mxfp4.* can; the names of fs\.quantization\.SCHEMES can"),
        ({"*.bias": "q8_0"}, (), r"this one has 8: the names of fs\.quantization\.SCHEMES can"),
        ("q4_kk", (), r"did you mean 'q4_k'\?"),
        ("q8_k", (), r"the GGUF type Q8_K is only read"),
        ("awq", (), r"AWQ searches .* its format is fs\.quantization\.Scheme\('uint4'"),
        ("w8a9", (), r"did you mean 'w8a8'\?"),
        ({}, (), r"scheme has no rule"),
    ],
)  # fmt: skip
def test_a_clear_error_says_what_can_act(scheme, skip, message):
    with pytest.raises(ValueError, match=message):
        quantize_model(STATE, scheme, skip=skip)


def test_an_error_names_the_tensor():
    with pytest.raises(ValueError, match=r"state_dict\['w'\]: x has NaN or infinity"):
        quantize_model({"w": np.float32([[1, np.nan]])}, "int8")
    with pytest.raises(ValueError, match=r"state_dict\['w'\] \(\): mxfp8 has blocks"):
        quantize_model({"w": np.float32(1)}, {"w": "mxfp8"})
    with pytest.raises(TypeError, match=r"state_dict\['w'\]: "):
        quantize_model({"w": "text"}, "int8")
    with pytest.raises(TypeError, match=r"must map names to tensors, not list"):
        quantize_model([np.ones((2, 2))], "int8")
    with pytest.raises(TypeError, match="skip must be names"):
        quantize_model(STATE, "int8", skip=[3])
