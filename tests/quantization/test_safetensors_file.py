"""The reader of safetensors files: what a file holds, and one clear error for every file that is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import floatsim as fs
from floatsim.quantization import SafetensorsFile, pack
from tests.quantization.checkpoint_vectors import DIGESTS, FOLDER

TENSORS = {
    "F64": np.float64([1, -2]), "F32": np.float32([[0.5, np.nan]]), "F16": np.float16([1.5]),
    "BF16": np.uint16([0x3F80, 0xC000]), "F8_E4M3": np.uint8([0x38, 0xC0]), "F8_E5M2": np.uint8([0x3C]),
    "F8_E8M0": np.uint8([127, 128]), "F8_E4M3FNUZ": np.uint8([0x40]), "F8_E5M2FNUZ": np.uint8([0x40]),
    "F4": np.uint8([0x72]), "BOOL": np.uint8([0, 1]), "U8": np.uint8([7]), "I8": np.int8([-7]), "U16": np.uint16([7]),
    "I16": np.int16([-7]), "U32": np.uint32([7]), "I32": np.int32([[-7]]), "U64": np.uint64([2**63]),
    "I64": np.int64([-(2**62)]),
}  # fmt: skip
VALUES = {
    "BF16": [1, -2], "F8_E4M3": [1, -2], "F8_E5M2": [1], "F8_E8M0": [1, 2], "F8_E4M3FNUZ": [1], "F8_E5M2FNUZ": [1],
    "F4": [1, 6],
}  # fmt: skip


def content(tensors=TENSORS, changes=None, metadata=None, header=None, length=None, tail=b"") -> bytes:
    """The bytes of a file. `changes` are the fields of a tensor's entry that are wrong, by its name."""
    entries, data = {} if metadata is None else {"__metadata__": metadata}, b""
    for name, x in tensors.items():
        shape = [2 * x.size] if name == "F4" else list(x.shape)
        entries[name] = {"dtype": name, "shape": shape, "data_offsets": [len(data), len(data) + x.nbytes]}
        entries[name] |= (changes or {}).get(name, {})
        data += x.tobytes()
    text = json.dumps(entries).encode() if header is None else header
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data + tail


@pytest.fixture
def read(tmp_path):
    def call(x: bytes) -> SafetensorsFile:
        (tmp_path / "model.safetensors").write_bytes(x)
        return SafetensorsFile(tmp_path / "model.safetensors")

    return call


def test_tensors_and_metadata(read):
    file = read(content(metadata={"format": "pt"}))
    assert list(file) == list(TENSORS)
    assert file.metadata == {"format": "pt"}
    assert repr(file).endswith(f"{len(TENSORS)} tensors)")
    for name, x in TENSORS.items():
        tensor = file[name]
        assert (tensor.type, tensor.nbits, tensor.is_quantized) == (name, 8 * x.nbytes, False)
        expected = np.array(VALUES.get(name, x.tolist()), tensor.values.dtype).reshape(tensor.shape)
        assert np.array_equal(tensor.values, expected, equal_nan=expected.dtype.kind == "f")
        pieces = np.concatenate(list(tensor.pieces(8)))
        assert np.array_equal(pieces, expected.ravel(), equal_nan=expected.dtype.kind == "f")


def test_tensors_need_no_alignment(read):
    tensors = {"U8": np.uint8([1]), "F32": np.float32([1.5]), "F64": np.float64([2.5])}
    file = read(content(tensors, header=None))
    assert [file[name].values.item() for name in tensors] == [1, 1.5, 2.5]


def test_only_what_a_tensor_has(read):
    tensors = {"C64": np.complex64([1j]), "F6_E2M3": np.uint8([0, 0, 0]), "I8": np.int8([1])}
    file = read(content(tensors, {"F6_E2M3": {"shape": [4]}}))
    with pytest.raises(ValueError, match="C64 is stored as C64, not as real floats"):
        file["C64"].dequantize()
    with pytest.raises(ValueError, match="C64 is stored as C64, not as integers"):
        file["C64"].integers()
    with pytest.raises(ValueError, match="F6_E2M3, whose packing the format does not define"):
        file["F6_E2M3"].dequantize()
    with pytest.raises(ValueError, match="I8 is stored as I8, without scales; use values"):
        file["I8"].quantized()
    with pytest.raises(TypeError, match="config must be a dictionary"):
        SafetensorsFile(file.path, config="gptq")


def entry(**changes) -> bytes:
    return json.dumps({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]} | changes}).encode()


BAD = {
    "less than the 8 bytes": b"\3\0",
    "its header has 1099511627776 bytes, and the file has": content(length=1 << 40),
    "its header has 4 bytes, and the file has 3": content({}, header=b"{} ", length=4),
    "its header is no JSON: Expecting": content({}, header=b'{"a": '),
    "its header is no JSON: Extra data": content({}, header=b"{}{}"),
    "its header is no JSON: it is nested too deeply": content({}, header=b'{"a":' * 200000),
    "its header is no UTF-8 text": content({}, header=b'{"\xff\xfe": 1}'),
    "its header must be a JSON object, not list": content({}, header=b"[]"),
    "NaN is no number of JSON": content({}, header=b'{"a": NaN}'),
    "the name 'a' occurs twice": content({}, header=entry()[:-1] + b", " + entry()[1:], tail=b"\0"),
    "__metadata__ must have texts": content({}, metadata={"a": 1}),
    "'a' must have dtype, shape and data_offsets": content({}, header=b'{"a": 5}'),
    "'a' has the dtype 'F7'; known are F64, F32": content({}, header=entry(dtype="F7"), tail=b"\0"),
    r"'a' has the dtype \[\]; known are": content({}, header=entry(dtype=[]), tail=b"\0"),
    r"'a' has the shape \[-1\]": content({}, header=entry(shape=[-1]), tail=b"\0"),
    r"'a' has the shape \[True\]": content({}, header=entry(shape=[True]), tail=b"\0"),
    r"'a' has the shape \[1.0\]": content({}, header=entry(shape=[1.0]), tail=b"\0"),
    "'a' has the shape 'x'": content({}, header=entry(shape="x"), tail=b"\0"),
    r"'a' has the data_offsets \[0\]": content({}, header=entry(data_offsets=[0]), tail=b"\0"),
    r"'a' has the data_offsets \[-1, 0\]": content({}, header=entry(data_offsets=[-1, 0]), tail=b"\0"),
    "'a' has bytes 1 to 0": content({}, header=entry(data_offsets=[1, 0]), tail=b"\0"),
    "'a' has bytes 0 to 18446744073709551616": content({}, header=entry(data_offsets=[0, 1 << 64]), tail=b"\0"),
    r"'a' has 1 bytes, and the shape \(3,\) of U8 has 3": content({}, header=entry(shape=[3]), tail=b"\0"),
    r"and the shape \(4294967296, 4294967296\) of U8": content({}, header=entry(shape=[1 << 32, 1 << 32]), tail=b"\0"),
    r"'a' has 1 bytes, and the shape \(1,\) of F4 has 0.5": content({}, header=entry(dtype="F4"), tail=b"\0"),
    "the bytes of 'F64' and 'I16' overlap": content(changes={"I16": {"data_offsets": [2, 4]}}),
    "3 bytes at the end belong to no tensor": content(tail=b"\0\0\0"),
    "1 bytes before 'a' belong to no tensor": content({}, header=entry(data_offsets=[1, 2]), tail=b"\0\0"),
}  # fmt: skip


@pytest.mark.parametrize(("message", "damaged"), BAD.items(), ids=list(BAD))
def test_damaged_files(read, message, damaged):
    with pytest.raises(ValueError, match=f"model.safetensors cannot be read as a safetensors file: .*{message}"):
        read(damaged)


def test_every_truncation_is_an_error(read):
    whole = content()
    for length in [*range(0, len(whole) - 40, 37), *range(len(whole) - 40, len(whole))]:
        with pytest.raises(ValueError, match="cannot be read as a safetensors file"):
            read(whole[:length])


def test_no_regular_file(tmp_path):
    with pytest.raises(ValueError, match="is not a regular file"):
        SafetensorsFile(tmp_path)


# -- files in parts ----------------------------------------------------------------------------------------------------


def test_index(tmp_path):
    (tmp_path / "1.safetensors").write_bytes(content({"F32": np.float32([1])}, metadata={"a": "1"}))
    (tmp_path / "2.safetensors").write_bytes(content({"F16": np.float16([2])}))
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(
        json.dumps({"metadata": {}, "weight_map": {"F16": "2.safetensors", "F32": "1.safetensors"}}), encoding="utf-8"
    )
    file = SafetensorsFile(index)
    assert [(name, tensor.values.item()) for name, tensor in file.items()] == [("F16", 2), ("F32", 1)]
    assert file.metadata == {"a": "1"}


@pytest.mark.parametrize(("index", "message"), [
    ({}, "has no object weight_map"),
    ({"weight_map": {"a": "../1.safetensors"}}, "'../1.safetensors', which is no name of a file beside the index"),
    ({"weight_map": {"a": 5}}, "is in 5, which is no name"),
    ({"weight_map": {"a": "3.safetensors"}}, "there is no file '3.safetensors', which has 'a'"),
    ({"weight_map": {"a": "1.safetensors"}}, "1.safetensors has no tensor 'a', which the index names"),
])  # fmt: skip
def test_damaged_indexes(tmp_path, index, message):
    (tmp_path / "1.safetensors").write_bytes(content({"F32": np.float32([1])}))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        SafetensorsFile(tmp_path / "model.safetensors.index.json")


# -- schemes that do not fit -------------------------------------------------------------------------------------------


def saved(path: Path, tensors: dict[str, tuple[str, np.ndarray]], metadata=None) -> Path:
    entries, data = {} if metadata is None else {"__metadata__": metadata}, b""
    for name, (dtype, x) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def gptq(**changes) -> dict[str, tuple[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    tensors = {
        "a.qweight": ("I32", pack(rng.integers(0, 16, (64, 32)), "gptq")),
        "a.qzeros": ("I32", pack(rng.integers(1, 16, (2, 32)), "gptq-zeros-v1")),
        "a.scales": ("F16", np.float16(rng.random((2, 32)))),
        "a.g_idx": ("I32", np.int32(np.arange(64) // 32)),
    }
    tensors |= {f"a.{name}": value for name, value in changes.items()}
    return {name: value for name, value in tensors.items() if value is not None}


def test_gptq_needs_the_version_of_its_zero_points(tmp_path):
    path = saved(tmp_path / "model.safetensors", gptq())
    with pytest.raises(ValueError, match=r"a.weight: the file does not tell .* pass config=\{'checkpoint_format': "):
        SafetensorsFile(path)["a.weight"].quantized()
    one = SafetensorsFile(path, {"checkpoint_format": "gptq"})["a.weight"]
    two = SafetensorsFile(path, {"checkpoint_format": "gptq_v2"})["a.weight"]
    assert (one.note, two.note) == ("zero points of version 1", "zero points of version 2")
    assert np.array_equal(one.quantized().zero_points, (two.quantized().zero_points + 1) % 16)
    (tmp_path / "quantize_config.json").write_text('{"bits": 4}')  # AutoGPTQ before version 2
    assert SafetensorsFile(path)["a.weight"].note == "zero points of version 1"
    (tmp_path / "config.json").write_text(
        '{"x": Infinity, "quantization_config": {"checkpoint_format": "gptq_v2"}}', encoding="utf-8"
    )
    assert SafetensorsFile(path)["a.weight"].note == "zero points of version 2"
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"config.json cannot be read as a configuration: it is no JSON"):
        SafetensorsFile(path)


def test_zero_points_of_version_1_are_those_of_gptqmodel(tmp_path):
    """GPTQModel writes version 1 by a subtraction of words, so that a zero point of 0 borrows from the next one."""
    zeros = np.random.default_rng(1).integers(0, 16, (2, 32))
    words = pack(zeros, "gptq-zeros-v2").view(np.uint32) - np.uint32(0x11111111)
    path = saved(tmp_path / "model.safetensors", gptq(qzeros=("I32", words.view(np.int32))))
    assert (zeros == 0).any()
    assert np.array_equal(SafetensorsFile(path, {"checkpoint_format": "gptq"})["a.weight"].quantized().zero_points,
                          zeros.T)  # fmt: skip


def test_act_order(tmp_path):
    groups = np.random.default_rng(2).permutation(np.arange(64) % 2).astype(np.int32)
    plain = saved(tmp_path / "plain.safetensors", gptq())
    mixed = saved(tmp_path / "mixed.safetensors", gptq(g_idx=("I32", groups)))
    config = {"checkpoint_format": "gptq"}
    one, two = (SafetensorsFile(path, config)["a.weight"] for path in (plain, mixed))
    assert one.columns is None
    q, codes = two.quantized(), one.quantized().codes
    assert np.array_equal(q.codes, codes[:, two.columns])
    scales = np.repeat(q.scales.values, 32, axis=1)
    zeros = np.repeat(q.zero_points, 32, axis=1)
    expected = np.empty((32, 64))
    expected[:, two.columns] = ((q.codes.astype(int) - zeros) * scales).astype(np.float16)
    assert np.array_equal(two.values, expected)


INT32 = np.zeros((8, 32), np.int32)


@pytest.mark.parametrize(("tensors", "message"), [
    (gptq(scales=None), "a.qweight is stored as I32, without scales: gptq needs a.scales; awq needs a.scales, which"),
    (gptq(qzeros=("I32", np.zeros((2, 5), np.int32))), r"qzeros has the shape \(2, 5\), and \(2, 4\) fits"),
    (gptq(g_idx=("I32", np.zeros(63, np.int32))), r"qweight \(8, 32\) holds no codes of 2, 3, 4 or 8 bits of 63"),
    (gptq(g_idx=("I32", np.int32([0] * 40 + [1] * 20 + [2] * 4))), "g_idx has groups 0 to 2, and there are 2"),
    (gptq(g_idx=("I32", np.int32([0] * 20 + [1] * 44))), "g_idx has groups of different sizes"),
    (gptq(g_idx=None), "a file without g_idx needs bits of 2, 3, 4 or 8 in its configuration, not None"),
    (gptq(scales=("F16", np.zeros((2, 31), np.float16))), r"a.weight: qweight \(8, 32\) and scales \(2, 31\) are no"),
    ({"a.weight_packed": ("I32", INT32), "a.weight_scale": ("F32", np.ones((8, 1), np.float32)),
      "a.weight_shape": ("I64", np.int64([8, 250]))}, "32 words for 250 codes fit 4 bits|weight_shape"),
    ({"a.weight_packed": ("I32", INT32), "a.weight_scale": ("F32", np.ones((8, 1), np.float32)),
      "a.weight_shape": ("I64", np.int64([7, 256]))}, r"weight_shape \(7, 256\) does not fit weight_packed \(8, 32\)"),
    ({"a.weight_packed": ("I32", INT32), "a.weight_scale": ("F32", np.ones((8, 1), np.float32)),
      "a.weight_shape": ("I64", np.int64([8, 9999]))}, "32 words for 9999 codes fit no width from 2 to 8 bits"),
    ({"a.weight_packed": ("I32", np.zeros((8, 1), np.int32)), "a.weight_scale": ("F32", np.ones((8, 1), np.float32)),
      "a.weight_shape": ("I64", np.int64([8, 2]))},
          "1 words for 2 codes fit 2, 3, 4, 5, 6, 7, 8 bits; put config.json with num_bits"),
    ({"a.weight": ("F8_E4M3", np.zeros((8, 32), np.uint8)), "a.weight_scale": ("F32", np.ones((3, 1), np.float32))},
     r"weight_scale of shape \(3, 1\) fits no blocks of the weight \(8, 32\)"),
    ({"a.weight_packed": ("U8", np.zeros((8, 12), np.uint8)), "a.weight_scale": ("U8", np.zeros((8, 1), np.uint8))},
     r"weight_scale has the shape|no whole groups of 32"),
    ({"a.weight": ("I8", np.zeros((8, 32), np.int8)), "a.SCB": ("F32", np.ones(7, np.float32))},
     r"SCB has the shape \(7,\), and \(8,\) fits the other parts"),
])  # fmt: skip
def test_parts_that_do_not_fit(tmp_path, tensors, message):
    path = saved(tmp_path / "model.safetensors", tensors)
    file = SafetensorsFile(path)
    name = "a.weight" if "a.weight" in file else "a.qweight"
    if "250" in message:
        assert file[name].quantized().shape == (8, 250)
        return
    with pytest.raises(ValueError, match=message):
        file[name].quantized()


def state(**changes) -> dict[str, tuple[str, np.ndarray]]:
    settings = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [2, 64]} | changes
    text = np.frombuffer(json.dumps(settings).encode(), np.uint8)
    return {"a.weight": ("U8", np.zeros((64, 1), np.uint8)), "a.weight.absmax": ("F32", np.ones(2, np.float32)),
            "a.weight.quant_state.bitsandbytes__nf4": ("U8", text)}  # fmt: skip


@pytest.mark.parametrize(("tensors", "message"), [
    (state(shape=[2, 65]), r"weight has 64 bytes, and the shape \(2, 65\) has 65"),
    (state(shape=5), "quant_state has shape=5"),
    (state(blocksize=0), "quant_state has blocksize=0, which must be an integer of at least 2"),
    (state(blocksize=32), r"weight.absmax has the shape \(2,\), and \(4,\) fits"),
    (state(dtype="float64"), "quant_state has dtype='float64'"),
    (state() | {"a.weight.absmax": ("U8", np.ones(2, np.uint8))}, "the file has no weight.nested_absmax"),
    (state() | {"a.weight.quant_state.bitsandbytes__nf4": ("U8", np.zeros(3, np.uint8))}, "quant_state of .* no JSON"),
])  # fmt: skip
def test_states_of_bitsandbytes_that_do_not_fit(tmp_path, tensors, message):
    with pytest.raises(ValueError, match=message):
        SafetensorsFile(saved(tmp_path / "model.safetensors", tensors))["a.weight"].quantized()


def test_blocks_of_deepseek(tmp_path):
    """FP8 with blocks of 128 x 128, whose last blocks are short."""
    rng = np.random.default_rng(3)
    codes, scales = rng.integers(0, 0x7F, (200, 300), np.uint8), np.float32(rng.random((2, 3)))
    path = saved(tmp_path / "model.safetensors",
                 {"a.weight": ("F8_E4M3", codes), "a.weight_scale_inv": ("F32", scales)})  # fmt: skip
    tensor = SafetensorsFile(path)["a.weight"]
    values = fs.from_codes(codes, "e4m3").values
    expected = values.astype(np.float32) * np.repeat(np.repeat(scales, 128, 0), 128, 1)[:200, :300]
    assert tensor.type == "fp8-blocks"
    assert np.array_equal(tensor.values, expected)
    assert np.array_equal(np.concatenate(list(tensor.pieces(1000))), expected.ravel())


# -- random changes ----------------------------------------------------------------------------------------------------

SMALL = [content(), *((FOLDER / f"{name}.safetensors").read_bytes() for name in ("awq", "gpt-oss"))]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.data())
def test_random_changes(tmp_path_factory, data):
    """A file with changed bytes is read, or is a ValueError; its tensors lie in the file."""
    whole = bytearray(data.draw(st.sampled_from(SMALL)))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, min(len(whole), 600) - 1))
        changed = data.draw(st.binary(min_size=1, max_size=4) | st.sampled_from([b"9", b"[", b'"', b"}", b",", b"-1"]))
        whole[start : start + len(changed)] = changed
    path = tmp_path_factory.mktemp("fuzz") / "model.safetensors"
    path.write_bytes(bytes(whole))
    try:
        for tensor in SafetensorsFile(path).values():
            if not tensor.type.startswith(("C64", "F6")):
                assert sum(piece.size for piece in tensor.pieces()) == int(np.prod(tensor.shape))
    except ValueError as error:
        assert str(path) in str(error) or ": " in str(error)


@pytest.mark.parametrize("name", json.loads(DIGESTS.read_text(encoding="utf-8")))
def test_random_parts(tmp_path, name):
    """Stored tensors of other dtypes, shapes and bytes: each weight is decoded, or is a ValueError."""
    rng = np.random.default_rng(7)
    file = SafetensorsFile(FOLDER / f"{name}.safetensors")
    stored = {key: (x.dtype, x.data.view("u1").reshape(-1), x.shape) for key, x in file.stored.items()}
    for _ in range(12):
        entries, data = {"__metadata__": file.metadata} if file.metadata else {}, b""
        for key, (dtype, content_, shape_) in stored.items():
            content, shape = content_, list(shape_)
            match rng.integers(0, 12):
                case 0 if len(shape) == 2:
                    shape = shape[::-1]
                case 1:
                    shape = [1, *shape]
                case 2:
                    content = rng.integers(0, 256, content.size, np.uint8)
                case 3 if shape and shape[0] > 1 and content.size % shape[0] == 0:
                    content, shape = content[: content.size // shape[0] * (shape[0] - 1)], [shape[0] - 1, *shape[1:]]
                case 4:
                    continue
            entries[key] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + content.size]}
            data += content.tobytes()
        text = json.dumps(entries).encode()
        path = tmp_path / "model.safetensors"
        path.write_bytes(len(text).to_bytes(8, "little") + text + data)
        for tensor in SafetensorsFile(path, {"checkpoint_format": "gptq", "bits": 4}).values():
            try:
                for piece in tensor.pieces():
                    assert piece.size
            except ValueError as error:
                assert tensor.name in str(error)


def test_names_and_keys_that_are_not_known(read):
    file = read(content())
    with pytest.raises(KeyError, match="has no tensor 'F23'; did you mean 'F32'"):
        file["F23"]
    assert "F23" not in file
    assert file.get("F23") is None
    with pytest.raises(ValueError, match="config has no key that a scheme reads, but 'num_bits'; known keys are bits"):
        SafetensorsFile(file.path, config={"num_bits": 8})
    given = {"quantization": {"quant_algo": "FP8"}}
    assert SafetensorsFile(file.path, config=given).config["quant_method"] == "modelopt"


@pytest.mark.parametrize(("suffix", "reader"), [("safetensors", "SafetensorsFile"), ("gguf", "GgufFile")])
def test_load_names_the_reader(suffix, reader):
    with pytest.raises(ValueError, match=rf"use fs.quantization.{reader}\('model.{suffix}'\)"):
        fs.load(f"model.{suffix}")
