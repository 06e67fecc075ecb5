"""Read the storage of safetensors files: the header, and the stored tensors, which stay on disk until they are used.

The format is that of https://huggingface.co/docs/safetensors and of the Rust crate safetensors. Every length and offset
is compared with the size of the file before it is used.
"""

from __future__ import annotations

import itertools
import json
import math
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.float_array import FloatArray
from floatsim.formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    E8M0,
    FP16,
    FP32,
    FP64,
    FloatFormat,
)
from floatsim.quantization.packing import unpack
from floatsim.quantization.tensor_file import check_regular

__all__ = ["StoredTensor", "in_steps", "read_index", "read_json", "read_storage"]

Array: TypeAlias = NDArray[Any]

_LONGEST_HEADER = 100_000_000  # the limit of the crate
_FLOATS: dict[str, FloatFormat] = {
    "F64": FP64, "F32": FP32, "F16": FP16, "BF16": BF16, "F8_E4M3": E4M3, "F8_E5M2": E5M2, "F8_E8M0": E8M0,
    "F8_E4M3FNUZ": E4M3FNUZ, "F8_E5M2FNUZ": E5M2FNUZ, "F6_E2M3": E2M3, "F6_E3M2": E3M2, "F4": E2M1,
}  # fmt: skip
_INTEGERS = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
    "I64": "<i8",
}  # fmt: skip
_OTHERS = {"C64": 64}
_BITS = (
    {name: fmt.bits for name, fmt in _FLOATS.items()}
    | {name: 8 * np.dtype(code).itemsize for name, code in _INTEGERS.items()}
    | _OTHERS
)
"""The bits of an element of every dtype of the format."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as a safetensors file stores it. Its bytes are read when they are used.

    Attributes
    ----------
    name : str
        The name in the file.
    shape : tuple of int
        The shape. For F4 it counts elements, not bytes.
    dtype : str
        The name of the dtype, as "BF16" or "F8_E4M3".
    data : uint8 array
        The bytes in the file, mapped into memory.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: Array = field(repr=False, compare=False)

    @property
    def is_float(self) -> bool:
        """Whether the dtype is a floating-point format."""
        return self.dtype in _FLOATS

    @property
    def format(self) -> FloatFormat:
        """The floating-point format of the dtype."""
        return _FLOATS[self.dtype]

    def _array(self, dtype: str) -> Array:
        """Return the elements in the byte order of this machine, without a copy if they are aligned."""
        numbers = self.data.view(dtype)
        own = numbers.astype(numbers.dtype.newbyteorder("="), copy=not numbers.flags.aligned)
        return own.reshape(self.shape)

    def floats(self) -> FloatArray:
        """Return the numbers of a floating-point dtype. Codes of whole bytes are not copied."""
        fmt = _FLOATS[self.dtype]
        if fmt.bits % 8 == 0:
            return FloatArray(self._array(fmt.code_dtype.newbyteorder("<").str), fmt)
        if fmt.bits == 6:
            raise ValueError(f"{self.name} has the dtype {self.dtype}, whose packing the format does not define")
        codes = unpack(self.data, "low-nibble-first", bits=fmt.bits, shape=(math.prod(self.shape),))
        return FloatArray(codes.reshape(self.shape), fmt)

    def integers(self) -> Array:
        """Return the numbers of an integer dtype, and of BOOL as 0 and 1."""
        if self.dtype not in _INTEGERS:
            raise ValueError(f"{self.name} is stored as {self.dtype}, not as integers; use dequantize()")
        numbers = self._array(_INTEGERS[self.dtype])
        return numbers.view(np.uint8) if self.dtype == "BOOL" else numbers

    def part(self, start: int, stop: int) -> StoredTensor:
        """Return the elements from a flat index to another one, which begin and end at bytes."""
        bits = _BITS[self.dtype]
        return StoredTensor(self.name, (stop - start,), self.dtype, self.data[start * bits // 8 : stop * bits // 8])


# -- the header --------------------------------------------------------------------------------------------------------


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the name {key!r:.80} occurs twice")
        found[key] = value
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def read_json(content: bytes, what: str, *, strict: bool = True) -> dict[str, Any]:
    """Return the object in a JSON text, or raise a ValueError. `strict` refuses NaN, Infinity and names that repeat."""
    hooks: dict[str, Any] = {"object_pairs_hook": _pairs, "parse_constant": _no_number} if strict else {}
    try:
        found = json.loads(content.decode("utf-8"), **hooks)
    except UnicodeDecodeError:
        raise ValueError(f"{what} is no UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{what} is no JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"{what} is no JSON: it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"{what} must be a JSON object, not {type(found).__name__}")
    return found


def _is_size(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and x >= 0


def _entry(name: str, entry: Any, content: Array) -> tuple[int, int, StoredTensor]:
    """Return the first and last byte of a tensor in the content, and the tensor."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name!r:.80} must have dtype, shape and data_offsets, not {entry!r:.80}")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise ValueError(f"{name!r:.80} has the dtype {dtype!r:.40}; known are {', '.join(_BITS)}")
    if not isinstance(shape, list) or not all(_is_size(n) for n in shape):
        raise ValueError(f"{name!r:.80} has the shape {shape!r:.80}, which is no list of sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_size(n) for n in offsets):
        raise ValueError(f"{name!r:.80} has the data_offsets {offsets!r:.80}, which are no two positions")
    first, last = offsets
    if not first <= last <= content.size:
        raise ValueError(
            f"{name!r:.80} has bytes {first} to {last}, and the file has {content.size} bytes after its header"
        )
    bits = math.prod(shape) * _BITS[dtype]
    if bits != 8 * (last - first):
        raise ValueError(
            f"{name!r:.80} has {last - first} bytes, and the shape {tuple(shape)!s:.80} of {dtype} has {bits / 8:g}"
        )
    return first, last, StoredTensor(name, tuple(shape), dtype, content[first:last])


def read_storage(path: Path) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """Return the tensors of a file by name, and its metadata.

    Raises
    ------
    ValueError
        If the file is truncated, the header is longer than the file or no JSON, a dtype is not known, a name occurs
        twice, or the bytes of tensors overlap, have gaps, or do not fit the shapes.
    OSError
        If the file cannot be read.
    """
    check_regular(path)
    try:
        return _read(path)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as a safetensors file: {error}") from None


def _read(path: Path) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 8:
            raise ValueError("it has less than the 8 bytes of the length of a header")
        buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    length = int.from_bytes(buffer[:8], "little")
    if length > size - 8:
        raise ValueError(f"its header has {length} bytes, and the file has {size - 8} after the length")
    if length > _LONGEST_HEADER:
        raise ValueError(f"its header has {length} bytes; at most {_LONGEST_HEADER} are allowed")
    header = read_json(buffer[8 : 8 + length], "its header")
    metadata = header.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError(f"__metadata__ must have texts by name, not {metadata!r:.80}")
    content = np.frombuffer(buffer, np.uint8)[8 + length :]
    places = [_entry(name, entry, content) for name, entry in header.items()]
    _check_places(places, content.size)
    return {tensor.name: tensor for _, _, tensor in places}, metadata


def _check_places(places: list[tuple[int, int, StoredTensor]], size: int) -> None:
    """Raise a ValueError if the bytes of tensors overlap, or some bytes belong to no tensor."""
    ordered = sorted(((first, last, tensor.name) for first, last, tensor in places if first < last))
    for (_, end, one), (begin, _, other) in itertools.pairwise(ordered):
        if begin < end:
            raise ValueError(f"the bytes of {one!r:.80} and {other!r:.80} overlap")
    ends = [0, *(last for _, last, _ in ordered)]
    begins = [*((first, f"before {name!r:.80}") for first, _, name in ordered), (size, "at the end")]
    for end, (begin, where) in zip(ends, begins, strict=True):
        if begin > end:
            raise ValueError(f"{begin - end} bytes {where} belong to no tensor")


# -- files in parts ----------------------------------------------------------------------------------------------------


def read_index(path: Path) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """Return the tensors of the files that an index, `model.safetensors.index.json`, names, and their metadata.

    Raises
    ------
    ValueError
        If the index has no `weight_map`, names a file in another folder, or a tensor that its file lacks, and for
        the errors of `read_storage`.
    OSError
        If a file cannot be read.
    """
    check_regular(path)
    try:
        tensors = read_json(path.read_bytes(), "it").get("weight_map")
        if not isinstance(tensors, dict):
            raise ValueError("it has no object weight_map")
        for name, file in tensors.items():
            if not isinstance(file, str) or Path(file).name != file or file in ("", ".", ".."):
                raise ValueError(f"{name!r:.80} is in {file!r:.80}, which is no name of a file beside the index")
            if not (path.parent / file).is_file():
                raise ValueError(f"there is no file {file!r:.80}, which has {name!r:.80}")
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as an index of safetensors files: {error}") from None
    parts = {file: read_storage(path.parent / file) for file in sorted(set(tensors.values()))}
    found, metadata = {}, {}
    for name, file in tensors.items():
        if name not in parts[file][0]:
            raise ValueError(f"{path}: {file} has no tensor {name!r:.80}, which the index names")
        found[name] = parts[file][0][name]
    for _, texts in parts.values():
        metadata.update(texts)
    return found, metadata


def in_steps(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the starts and ends of steps of a size from 0 to a count."""
    for start in range(0, count, size):
        yield start, min(count, start + size)
