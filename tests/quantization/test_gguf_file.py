"""The reader of GGUF files: what a file holds, and one clear error for every file that is damaged."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floatsim.quantization import GgufFile, from_gguf
from tests.quantization.gguf_vectors import random_blocks

TENSORS = {"w": ((2, 64), 2, random_blocks("Q4_0", 18, 4)), "f": ((3,), 0, np.float32([1, -2, 0.5]).view(np.uint8)),
           "h": ((2, 2), 30, np.uint16([0x3F80, 0xC000, 0, 0x7F80]).view(np.uint8)),
           "n": ((2,), 26, np.int32([7, -1]).view(np.uint8))}  # fmt: skip


def text(x: str | bytes) -> bytes:
    content = x.encode() if isinstance(x, str) else x
    return struct.pack("<Q", len(content)) + content


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


KEYS = [entry("a.text", 8, text("naïve")), entry("a.count", 4, struct.pack("<I", 7)), entry("a.flag", 7, b"\1"),
        entry("a.sizes", 9, struct.pack("<IQ3h", 3, 3, 1, -2, 3)), entry("a.real", 12, struct.pack("<d", 0.25)),
        entry("a.words", 9, struct.pack("<IQ", 8, 2) + text("x") + text("yz"))]  # fmt: skip


def content(tensors=TENSORS, keys=KEYS, version=3, alignment=32, changes=None, counts=None) -> bytes:
    """The bytes of a file. `changes` are the fields of a tensor's entry that are wrong, by its name."""
    infos, data = b"", b""
    for name, (shape, kind, blocks) in tensors.items():
        fields = {"name": name, "axes": len(shape), "shape": shape, "type": kind, "offset": len(data)}
        fields |= (changes or {}).get(name, {})
        infos += text(fields["name"]) + struct.pack("<I", fields["axes"])
        infos += struct.pack(f"<{len(fields['shape'])}Q", *fields["shape"][::-1])
        infos += struct.pack("<IQ", fields["type"], fields["offset"])
        data += blocks.tobytes().ljust(-(-blocks.size // alignment) * alignment, b"\0")
    head = b"GGUF" + struct.pack("<I2Q", version, *(counts or (len(tensors), len(keys)))) + b"".join(keys) + infos
    return head.ljust(-(-len(head) // alignment) * alignment, b"\0") + data


@pytest.fixture
def read(tmp_path):
    def call(x: bytes) -> GgufFile:
        (tmp_path / "model.gguf").write_bytes(x)
        return GgufFile(tmp_path / "model.gguf")

    return call


@pytest.mark.parametrize("version", [2, 3])
def test_tensors_and_metadata(read, version):
    file = read(content(version=version))
    assert list(file) == ["w", "f", "h", "n"]
    assert file.metadata == {"a.text": "naïve", "a.count": 7, "a.flag": True, "a.sizes": [1, -2, 3], "a.real": 0.25,
                             "a.words": ["x", "yz"]}  # fmt: skip
    assert (file["w"].type, file["w"].shape, file["w"].nbits) == ("Q4_0", (2, 64), 4 * 18 * 8)
    q = file["w"].quantized()
    assert np.array_equal(q.values, from_gguf(TENSORS["w"][2], "q4_0", (2, 64)).values, equal_nan=True)
    assert file["f"].values.tolist() == [1, -2, 0.5]
    assert file["h"].values.tolist() == [[1, -2], [0, np.inf]]
    assert file["n"].values.tolist() == [7, -1]
    assert repr(file).endswith("4 tensors)")


def test_alignment(read):
    keys = [entry("general.alignment", 4, struct.pack("<I", 64))]
    assert read(content(keys=keys, alignment=64))["f"].values.tolist() == [1, -2, 0.5]


def test_pieces_are_the_numbers(read):
    file = read(content())
    for name in file:
        pieces = list(file[name].pieces(32))
        assert np.array_equal(np.concatenate(pieces), file[name].values.ravel(), equal_nan=True)
        assert len(pieces) == (4 if name == "w" else 1)


def test_nothing_is_decoded_before_it_is_used(read, monkeypatch):
    monkeypatch.setattr("floatsim.quantization.gguf_file.from_gguf", None)
    assert read(content())["w"].is_quantized


def test_only_what_a_tensor_has(read):
    file = read(content())
    with pytest.raises(ValueError, match=r"n holds integers of type I32; use integers\(\)"):
        file["n"].dequantize()
    with pytest.raises(ValueError, match=r"f is stored as F32, not as integers"):
        file["f"].integers()
    with pytest.raises(ValueError, match=r"f is stored as F32, without scales"):
        file["f"].quantized()


BIG = (1 << 64) - 32
BAD = {
    "begins with b'GGML'": b"GGML" + content()[4:],
    "less than the 24 bytes": b"GGUF\3\0",
    "big-endian files are not supported": b"GGUF" + struct.pack(">I", 3) + content()[8:],
    "has version 9;": content(version=9),
    "the file has .* from there": content(counts=(4, 1 << 60)),
    "the length of the name of tensor 0 at byte 24 has 8 bytes, and the file has 0": content({}, [], counts=(1, 0))[
        :24
    ],
    "the key 'a.count' occurs twice": content(keys=[*KEYS, KEYS[1]]),
    "has the kind 13": content(keys=[entry("a", 13, b"")]),
    "beyond a depth of 8": content(keys=[entry("a", 9, struct.pack("<IQ", 9, 1) * 9 + struct.pack("<IQ", 4, 0))]),
    "has 1152921504606846976 entries": content(keys=[entry("a", 9, struct.pack("<IQ", 8, 1 << 60))]),
    "is no UTF-8 text": content(keys=[entry("a", 8, text(b"\xff\xfe"))]),
    "general.alignment must be a power of two, not 0": content(
        keys=[entry("general.alignment", 4, struct.pack("<I", 0))]
    ),
    "general.alignment must be a power of two, not 'x'": content(keys=[entry("general.alignment", 8, text("x"))]),
    "'w' has the type 5; known are F32, F16": content(changes={"w": {"type": 5}}),
    "'w' has 9 axes": content(changes={"w": {"axes": 9, "shape": (1,) * 9}}),
    "rows of Q4_0 have whole blocks of 32": content(changes={"w": {"shape": (4, 31)}}),
    "'w' has .* bytes from byte .* and the file has": content(changes={"w": {"shape": (1 << 62, 1 << 62)}}),
    "'f' has 12 bytes from byte .* and the file has": content(changes={"f": {"offset": BIG}}),
    "'f' has the offset 97": content(changes={"f": {"offset": 97}}),
    "the bytes of 'w' and 'f' overlap": content(changes={"f": {"offset": 32}}),
    "the tensor 'w' occurs twice": content(changes={"f": {"name": "w"}}),
}


@pytest.mark.parametrize(("message", "damaged"), BAD.items(), ids=list(BAD))
def test_damaged_files(read, message, damaged):
    with pytest.raises(ValueError, match=f"model.gguf cannot be read as a GGUF file: .*{message}"):
        read(damaged)


def test_every_truncation_is_an_error(read):
    whole = content()
    last = len(whole) - 24  # the padding of the last tensor may be missing
    for length in [*range(0, 400, 7), *range(last - 40, last, 5)]:
        with pytest.raises(ValueError, match="cannot be read as a GGUF file"):
            read(whole[:length])
    assert read(whole[:last])["n"].values.tolist() == [7, -1]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_changes(tmp_path_factory, data):
    """A file with changed bytes is read, or is a ValueError; its tensors lie in the file."""
    whole = bytearray(content())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(whole) - 1))
        changed = data.draw(st.binary(min_size=1, max_size=8))
        whole[start : start + len(changed)] = changed
    path = tmp_path_factory.mktemp("fuzz") / "model.gguf"
    path.write_bytes(bytes(whole))
    try:
        file = GgufFile(path)
    except ValueError as error:
        assert "cannot be read as a GGUF file" in str(error)
        return
    for tensor in file.values():
        assert sum(piece.size for piece in tensor.pieces()) == int(np.prod(tensor.shape))


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200))
def test_random_headers(tmp_path_factory, tail):
    path = tmp_path_factory.mktemp("fuzz") / "model.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<I", 3) + tail)
    try:
        GgufFile(path)
    except ValueError as error:
        assert "cannot be read as a GGUF file" in str(error)


def test_no_regular_file(tmp_path):
    with pytest.raises(ValueError, match="is not a regular file"):
        GgufFile(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"'.*missing'"):
        GgufFile(tmp_path / "missing")


def test_equal_to_the_reader_of_gguf(tmp_path):
    gguf = pytest.importorskip("gguf", reason="compares with the package gguf")
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("a.words", ["a", "é"])
    x = np.random.default_rng(0).normal(size=(6, 512)).astype(np.float32)
    for kind in ("Q4_0", "Q5_1", "Q8_0", "TQ1_0", "MXFP4", "BF16"):
        number = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(kind, gguf.quants.quantize(x, number), raw_dtype=number)
    writer.add_tensor("f16", x.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file, other = GgufFile(path), gguf.GGUFReader(path)
    assert file.metadata == {"general.architecture": "llama", "a.words": ["a", "é"]}
    assert list(file) == [tensor.name for tensor in other.tensors]
    for tensor in other.tensors:
        assert file[tensor.name].shape == (6, 512)
        assert np.array_equal(file[tensor.name].values, gguf.quants.dequantize(tensor.data, tensor.tensor_type))
