"""The reader of safetensors files: what a file holds, and one clear error for every file that is damaged."""

from __future__ import annotations

import json
import re
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
    with pytest.raises(FileNotFoundError, match=r"'.*missing'"):
        SafetensorsFile(tmp_path / "missing")


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


# -- parts with other dtypes, and configurations that contradict the file ----------------------------------------------

INTEGERS = {"I8": np.int8, "U8": np.uint8, "I16": np.int16, "U16": np.uint16, "I32": np.int32, "U32": np.uint32,
            "I64": np.int64, "U64": np.uint64}  # fmt: skip
GROUPS = np.random.default_rng(2).permutation(np.arange(64) % 2)
V1 = {"checkpoint_format": "gptq"}


def packed(**changes) -> dict[str, tuple[str, np.ndarray]]:
    """An 8 x 64 weight of compressed-tensors with 4 bits and groups of 32."""
    rng = np.random.default_rng(5)
    tensors = {
        "weight_packed": ("I32", rng.integers(-(2**31), 2**31, (8, 8)).astype(np.int32)),
        "weight_scale": ("F32", np.float32(rng.random((8, 2)))),
        "weight_shape": ("I64", np.int64([8, 64])),
    } | changes
    return {f"a.{name}": value for name, value in tensors.items()}


def eight(**changes) -> dict[str, tuple[str, np.ndarray]]:
    """A 2 x 64 weight of 8-bit integers, one scale for a row."""
    tensors = {"weight": ("I8", np.arange(-64, 64, dtype=np.int8).reshape(2, 64)),
               "weight_scale": ("F32", np.float32([[1], [2]]))} | changes  # fmt: skip
    return {f"a.{name}": value for name, value in tensors.items()}


def awq() -> dict[str, tuple[str, np.ndarray]]:
    rng = np.random.default_rng(6)
    return {"a.qweight": ("I32", pack(rng.integers(0, 16, (64, 32)), "awq")),
            "a.qzeros": ("I32", pack(rng.integers(0, 16, (2, 32)), "awq")),
            "a.scales": ("F16", np.float16(rng.random((2, 32))))}  # fmt: skip


def four(**changes) -> dict[str, tuple[str, np.ndarray]]:
    tensors = {"weight_packed": ("U8", np.full((8, 32), 0x21, np.uint8)),
               "weight_scale": ("F8_E4M3", np.full((8, 4), 0x38, np.uint8)),
               "weight_global_scale": ("F32", np.float32([2]))} | changes  # fmt: skip
    return {f"a.{name}": value for name, value in tensors.items() if value is not None}


def deepseek(scales, dtype="F32") -> dict[str, tuple[str, np.ndarray]]:
    return {"a.weight": ("F8_E4M3", np.full((130, 40), 0x38, np.uint8)), "a.weight_scale_inv": (dtype, scales)}


def ct(*weights, **each) -> dict:
    return {"config_groups": {str(n): {"weights": x} for n, x in enumerate(weights or [each])}}


OPTIONAL = {
    "g_idx": (lambda x: gptq(g_idx=x), GROUPS, V1),
    "weight_g_idx": (lambda x: packed(weight_g_idx=x), GROUPS, {}),
    "weight_zero_point": (lambda x: eight(weight_zero_point=x), np.array([[1], [2]]), {}),
}


def weight(path: Path, tensors, config):
    return SafetensorsFile(saved(path / "model.safetensors", tensors), config)["a.weight"]


@pytest.mark.parametrize("part", OPTIONAL)
def test_optional_parts_of_every_integer_dtype(tmp_path, part):
    make, numbers, config = OPTIONAL[part]
    expected = weight(tmp_path, make(("I8", numbers.astype(np.int8))), config).values
    for dtype, kind in INTEGERS.items():
        assert np.array_equal(weight(tmp_path, make((dtype, numbers.astype(kind))), config).values, expected), dtype
    for dtype, kind in (("F32", np.float32), ("F16", np.float16), ("BOOL", np.bool_)):
        tensor = weight(tmp_path, make((dtype, numbers.astype(kind))), config)
        with pytest.raises(ValueError, match=rf"a.weight: {part} has the dtype {dtype}, and the scheme .* needs .*I8"):
            tensor.dequantize()


def test_zero_points_that_are_not_packed(tmp_path):
    zeros = np.random.default_rng(3).integers(-8, 8, (8, 2))
    q = weight(tmp_path, packed(), {}).quantized()
    expected = ((q.codes.astype(int) - np.repeat(zeros, 32, 1)) * np.repeat(q.scales.values, 32, 1)).astype(np.float32)
    for dtype in ("I8", "I16", "I64"):
        found = weight(tmp_path, packed(weight_zero_point=(dtype, zeros.astype(INTEGERS[dtype]))), {})
        assert np.array_equal(found.values, expected), dtype
    for dtype, value in (("I16", 8), ("U64", 2**63)):
        stored = np.full((8, 2), value, INTEGERS[dtype])
        with pytest.raises(ValueError, match=rf"zero_point.*{value}"):
            weight(tmp_path, packed(weight_zero_point=(dtype, stored)), {}).dequantize()


@pytest.mark.parametrize(("tensors", "message"), [
    (gptq(qzeros=("F32", np.zeros((2, 4), np.float32))), "qzeros has the dtype F32, and the scheme gptq needs I32"),
    (gptq(scales=("F64", np.ones((2, 32)))), "scales has the dtype F64, and the scheme gptq needs F16, BF16, F32"),
    (deepseek(np.ones((2, 1)), "F64"), "weight_scale_inv has the dtype F64, and the scheme fp8-blocks needs"),
    (eight(weight_scale=("F64", np.ones((2, 1)))), "weight_scale has the dtype F64, and the scheme int-quantized"),
    (eight(weight=("F8_E4M3FNUZ", np.zeros((2, 64), np.uint8))), "weight has the dtype F8_E4M3FNUZ, and the scheme"),
    (eight(weight_g_idx=("I32", np.zeros(64, np.int32))), "has weight_g_idx, which is not supported in .*int-"),
    (four(weight_global_scale=("F16", np.float16([2]))), "weight_global_scale has the dtype F16, .* needs F32"),
    (four(weight_scale=("U8", np.full((8, 2), 127, np.uint8))), "has weight_global_scale, which is not supported in"),
    (awq() | {"a.g_idx": ("I32", np.zeros(64, np.int32)), "a.scales": ("F16", np.ones((2, 32), np.float16))},
     "the file has g_idx, which is not supported in the scheme awq"),
])  # fmt: skip
def test_no_part_is_left_out(tmp_path, tensors, message):
    tensor = weight(tmp_path, tensors, V1)
    with pytest.raises(ValueError, match=f"a.weight: .*{message}"):
        tensor.dequantize()


def test_parts_that_say_nothing(tmp_path):
    """compressed-tensors has g_idx of -1 and zero points of 0, and weights of fake quantization with scales."""
    expected = weight(tmp_path, eight(), {}).values
    unset = eight(weight_g_idx=("I32", np.full(64, -1, np.int32)), weight_zero_point=("I8", np.zeros((2, 1), np.int8)))
    assert np.array_equal(weight(tmp_path, unset, {}).values, expected)
    plain = weight(tmp_path, eight(weight=("F32", np.float32([[3], [4]]))), {})
    assert (plain.type, plain.values.tolist()) == ("F32", [[3], [4]])


NO_IDX = {"bits": 4, "group_size": 32}
CUT = packed()["a.weight_packed"][1][:, :4].copy()


@pytest.mark.parametrize(("tensors", "config", "message"), [
    *((gptq(), V1 | {"bits": bits}, rf"bits={bits!r}, and the file has 4") for bits in (2, 3, 8, "4", 4.0, [4])),
    (gptq(), V1 | {"group_size": 128}, "group_size=128, and the file has 32"),
    (gptq(), V1 | {"group_size": -1}, "group_size=-1, and the file has 32"),
    (gptq(), V1 | {"bits": 8, "dynamic": {"b": {"bits": 2}}}, "bits=8, bits=2, and the file has 4"),
    (gptq(g_idx=None), NO_IDX | {"bits": 8}, "bits=8, and the file has 4"),
    (gptq(g_idx=None), NO_IDX | {"group_size": 16}, "group_size=16 does not fit 64 columns and 2 groups"),
    (gptq(g_idx=None), NO_IDX | {"desc_act": True}, "desc_act=True, whose groups g_idx tells, and .* no g_idx"),
    (awq(), {"bits": 8}, "bits=8, and the file has 4"),
    (awq(), {"w_bit": 8}, "w_bit=8, and the file has 4"),
    (awq(), {"group_size": 16}, "group_size=16, and the file has 32"),
    (awq(), {"q_group_size": 64}, "q_group_size=64, and the file has 32"),
    (packed(weight_packed=("I32", CUT)), ct(num_bits=4, group_size=32), "num_bits=4, and the file has 2"),
    *((packed(), ct(num_bits=bits, group_size=32), f"num_bits={bits}, and the file has 4") for bits in (2, 3, 8)),
    (packed(weight_scale=("F32", np.ones((8, 1), np.float32))), ct(num_bits=4, group_size=32),
     r"group_size=32, and weight_scale of shape \(8, 1\) has blocks of 1 x 64"),
    (packed(), ct(num_bits=4, strategy="channel"), r"strategy='channel', and weight_scale .* has blocks of 1 x 32"),
    (packed(), ct({"num_bits": 4, "group_size": 16}, {"num_bits": 8, "group_size": 32}), "group_size=16, and weight"),
    (packed(), ct(num_bits=4, group_size=0), "group_size=0 must be an integer of at least 1"),
    (packed(), ct(num_bits=[{}], group_size=32), r"num_bits=\[\{\}\], and the file has 4"),
    (packed(), ct(num_bits=4, group_size=32, symmetric=False), "symmetric=False, and the file has no weight_zero"),
    (packed(), ct(num_bits=4, group_size=32, actorder="group"), "actorder='group', and the file has no weight_g_idx"),
    (packed(weight_g_idx=("I32", np.int32([0] * 33 + [1] * 31))), ct(num_bits=4, group_size=32),
     "group_size=32, and the file has 33"),
    (eight(), ct(num_bits=8, group_size=32), r"group_size=32, and weight_scale of shape \(2, 1\) has blocks of 1 x 64"),
    (eight(), ct(num_bits=8, type="float"), "type='float', and the file has 'int'"),
    (eight(), ct(num_bits=8, block_structure=[1, 32]), r"block_structure=\[1, 32\], and weight_scale"),
    (eight(), ct(num_bits=8, block_structure=[1, [32]]), r"block_structure=\[1, \[32\]\] must be a height and a width"),
    (four(), ct(num_bits=8, type="float"), "num_bits=8, and the file has 4"),
    (four(), ct(num_bits=4, type="float", group_size=32), "group_size=32, and the file has 16"),
    (four(), {"quant_algo": "NVFP4", "group_size": 32}, "group_size=32, and the file has 16"),
])  # fmt: skip
def test_configurations_that_contradict_the_file(tmp_path, tensors, config, message):
    tensor = weight(tmp_path, tensors, config)
    with pytest.raises(ValueError, match=f"a.weight: .*{re.escape(message) if '[4]' in message else message}"):
        tensor.dequantize()


@pytest.mark.parametrize(("tensors", "config"), [
    (gptq(), V1 | NO_IDX),
    (gptq(), V1 | {"bits": 8, "dynamic": {"a": {"bits": 4, "group_size": 32}, "-:b": {}}}),
    (gptq(g_idx=None), {"bits": 8, "group_size": 64, "dynamic": {"a": NO_IDX}}),
    (awq(), {"w_bit": 4, "q_group_size": 32}),
    (awq(), {"bits": 8, "group_size": 64, "extra_config": {"a": NO_IDX}}),
    (packed(), ct({"num_bits": 8, "strategy": "channel"}, {"num_bits": 4, "type": "int", "group_size": 32})),
    (packed(), {"config_groups": {"W4A16": ["Linear"]}}),
    (eight(), ct(num_bits=8, type="int", strategy="group", group_size=128)),
    (eight(), ct(num_bits=4, type="int", strategy="channel")),
    (four(), ct(num_bits=4, type="float", strategy="tensor_group", group_size=16)),
])  # fmt: skip
def test_configurations_that_fit_the_file(tmp_path, tensors, config):
    neutral = {"awq": {}, "gptq": V1 | ({} if "a.g_idx" in tensors else NO_IDX)}
    tensor = weight(tmp_path, tensors, config)
    assert np.array_equal(tensor.values, weight(tmp_path, tensors, neutral.get(tensor.type, {})).values)


def test_the_configuration_gives_the_blocks(tmp_path):
    """Groups of 48 columns, whose last group is short: the shape of the scales alone does not tell them."""
    q = weight(tmp_path, packed(), ct(num_bits=4, group_size=48)).quantized()
    assert q.scheme.block == (1, 48)
    assert weight(tmp_path, packed(), {}).quantized().scheme.block == (1, 32)


@pytest.mark.parametrize("value", [[], {}, 1, "gptq_v3", True])
def test_formats_of_gptq_that_are_not_known(tmp_path, value):
    tensor = weight(tmp_path, gptq(), {"checkpoint_format": value})
    with pytest.raises(ValueError, match=rf"checkpoint_format={re.escape(repr(value))} is not supported; known are"):
        tensor.dequantize()


@pytest.mark.parametrize("groups", [[0] * 64, [1] * 64, [0] * 20 + [1] * 44])
def test_g_idx_without_some_group(tmp_path, groups):
    tensor = weight(tmp_path, gptq(g_idx=("I32", np.int32(groups))), V1)
    with pytest.raises(ValueError, match=r"a.weight: g_idx has groups of different sizes"):
        tensor.dequantize()


def test_scales_of_fp8_blocks(tmp_path):
    for shape in ((), (1, 1), (2, 2), (2,), (1, 2), (13, 4), (130, 1), (3, 1), (0, 1)):
        scales = np.ones(shape, np.float32)
        with pytest.raises(
            ValueError, match=r"weight_scale_inv has the shape .*, and .*\[128, 128\] .* needs \(2, 1\)"
        ):
            weight(tmp_path, deepseek(scales), {}).dequantize()
    scales = np.float32([[1], [2], [3]])
    found = weight(tmp_path, deepseek(scales), {"weight_block_size": [64, 64]})
    assert np.array_equal(found.values[:, 0], np.repeat([1, 2, 3], 64)[:130])
    with pytest.raises(ValueError, match=r"has the shape \(2, 1\), and weight_block_size=\[64, 64\] .* needs \(3, 1\)"):
        weight(tmp_path, deepseek(scales[:2]), {"weight_block_size": [64, 64]}).dequantize()
    whole = weight(tmp_path, deepseek(np.float32(3)), {"weight_block_size": None})
    assert np.array_equal(whole.values, np.full((130, 40), 3))
    for size in ([0, 128], [128], "128", {}, [True, 128], [128, 128.0]):
        with pytest.raises(ValueError, match=r"weight_block_size=.* must be a height and a width"):
            weight(tmp_path, deepseek(scales), {"weight_block_size": size}).dequantize()


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
    (state(dtype=[]), r"quant_state has dtype=\[\]"),
    (state() | {"a.weight.absmax": ("F16", np.ones(2, np.float16))}, "weight.absmax has the dtype F16, .* F32, U8"),
    (state() | {"a.weight.nested_absmax": ("F32", np.ones(1, np.float32))}, "weight.absmax has the dtype F32, not U8"),
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
