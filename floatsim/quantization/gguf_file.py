"""Read GGUF files: the header, the metadata and the tensors, which stay on disk until they are used.

The format is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3. Every length and
offset is compared with the size of the file before it is used.
"""

from __future__ import annotations

import itertools
import math
import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.float_array import FloatArray
from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat
from floatsim.quantization.gguf_types import GGUF_TYPES, GgufType, from_gguf
from floatsim.quantization.quantized import Quantized
from floatsim.quantization.tensor_file import TensorFile, check_regular

__all__ = ["GgufFile", "GgufTensor"]

Array: TypeAlias = NDArray[Any]

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The kinds of numbers in the metadata, as codes of the module struct."""
_ALIGNMENT = 32
_DIMENSIONS = 8  # ggml has 4
_DEPTH = 8  # of arrays in arrays

_NUMBERS = {0: "F32", 1: "F16", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 30: "BF16"}
"""The names of the types without blocks."""
_FLOATS: dict[str, FloatFormat] = {"F32": FP32, "F16": FP16, "F64": FP64, "BF16": BF16}
_INTEGERS = {"I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}
_BLOCKS: dict[int, GgufType] = {row.number: row for row in GGUF_TYPES.values()}


class _Cursor:
    """Reads the header of a file from a position, and never beyond its end."""

    def __init__(self, buffer: Any, order: str) -> None:
        self.buffer, self.order, self.at = buffer, order, 0

    def take(self, count: int, what: str) -> int:
        """Return the position of the next bytes, and move behind them."""
        start = self.at
        if count > len(self.buffer) - start:
            raise ValueError(
                f"{what} at byte {start} has {count} bytes, and the file has {len(self.buffer) - start} from there"
            )
        self.at += count
        return start

    def numbers(self, code: str, count: int, what: str) -> tuple[Any, ...]:
        layout = f"{self.order}{count}{code}" if count else ""
        start = self.take(count * struct.calcsize(self.order + code), what)
        return struct.unpack_from(layout, self.buffer, start)

    def number(self, code: str, what: str) -> Any:
        return self.numbers(code, 1, what)[0]

    def text(self, what: str) -> str:
        count = self.number("Q", f"the length of {what}")
        start = self.take(count, what)
        try:
            return bytes(self.buffer[start : self.at]).decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{what} at byte {start} is no UTF-8 text") from None

    def value(self, kind: int, what: str, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind], what)
        if kind == _STRING:
            return self.text(what)
        if kind != _ARRAY:
            raise ValueError(f"{what} has the kind {kind}; known are 0 to 12")
        if depth == _DEPTH:
            raise ValueError(f"{what} has arrays in arrays beyond a depth of {_DEPTH}")
        inner, count = self.number("I", what), self.number("Q", f"the length of {what}")
        if inner in _SCALARS:
            return list(self.numbers(_SCALARS[inner], count, what))
        if 8 * count > len(self.buffer) - self.at:  # a text or an array has at least its length
            raise ValueError(f"{what} has {count} entries, and the file has {len(self.buffer) - self.at} bytes left")
        return [self.value(inner, what, depth + 1) for _ in range(count)]


@dataclass(frozen=True)
class GgufTensor:
    """A tensor of a GGUF file. Its bytes are read when they are used.

    Parameters
    ----------
    name : str
        The name in the file.
    shape : tuple of int
        The shape, the fastest axis last. The file has the reverse order.
    type : str
        The name of the storage type, as "Q4_K" or "F16".
    data : uint8 array
        The bytes in the file, mapped into memory.

    Examples
    --------
    >>> import numpy as np
    >>> block = np.frombuffer(np.float16([0.5]).tobytes() + bytes([0x9F] * 16), np.uint8)
    >>> tensor = GgufTensor("w", (32,), "Q4_0", block)
    >>> tensor.nbits, tensor.values[:2]
    (144, array([3.5, 3.5]))
    """

    name: str
    shape: tuple[int, ...]
    type: str
    data: Array = field(repr=False, compare=False)

    @property
    def nbits(self) -> int:
        """The size in the file, in bits."""
        return 8 * self.data.size

    @property
    def is_quantized(self) -> bool:
        """Whether the type has blocks with scales."""
        return self.type in GGUF_TYPES

    def quantized(self) -> Quantized:
        """Return codes, scales and offsets.

        Raises
        ------
        ValueError
            If the tensor is stored as plain numbers.
        """
        if not self.is_quantized:
            raise ValueError(f"{self.name} is stored as {self.type}, without scales; use dequantize()")
        return from_gguf(self.data, self.type, self.shape)

    def dequantize(self) -> FloatArray:
        """Return the numbers: in FP32 for types with blocks, otherwise in the format of the file.

        Raises
        ------
        ValueError
            If the tensor holds integers.
        """
        if self.is_quantized:
            return self.quantized().dequantize()
        fmt = _FLOATS.get(self.type)
        if fmt is None:
            raise ValueError(f"{self.name} holds integers of type {self.type}; use integers()")
        codes = self.data.view(fmt.code_dtype.newbyteorder("<")).reshape(self.shape)
        return FloatArray(codes.astype(fmt.code_dtype), fmt)

    def integers(self) -> Array:
        """Return the integers of a tensor of type I8, I16, I32 or I64. Raise ValueError for another type."""
        dtype = _INTEGERS.get(self.type)
        if dtype is None:
            raise ValueError(f"{self.name} is stored as {self.type}, not as integers; use dequantize()")
        numbers = self.data.view(dtype).reshape(self.shape)
        return numbers.astype(numbers.dtype.newbyteorder("="))

    def pieces(self, size: int = 1 << 22) -> Iterator[Array]:
        """Yield the numbers in the order of memory, in one-dimensional arrays of about `size` elements.

        The arrays are float32 or float64, or integers. A tensor need not fit into memory.
        """
        row = GGUF_TYPES.get(self.type)
        if row is None:
            width = _dtype_of(self.type).itemsize
            for start in range(0, self.data.size, size * width):
                part = self.data[start : start + size * width]
                yield GgufTensor(self.name, (part.size // width,), self.type, part)._plain()
            return
        step = max(1, size // row.size) * row.nbytes
        for start in range(0, self.data.size, step):
            yield from_gguf(self.data[start : start + step], row).dequantize().codes.view(np.float32)

    def _plain(self) -> Array:
        """Return the numbers of a tensor without blocks as floats of at least 32 bits, or as integers."""
        if self.type not in _FLOATS:
            return self.integers()
        x = self.dequantize()
        numbers: Array = np.asarray(x.codes).view(np.dtype(x.format.dtype))
        return numbers if numbers.dtype.itemsize > 2 else numbers.astype(np.float32)

    @property
    def values(self) -> Array:
        """The numbers, exact: float64, or integers."""
        return self.integers() if self.type in _INTEGERS else self.dequantize().values


class GgufFile(TensorFile[GgufTensor]):
    """The tensors of a GGUF file by name, and its metadata. No package but NumPy reads it.

    Parameters
    ----------
    path : str or path
        The file. It is mapped into memory: a tensor is read when it is used.

    Attributes
    ----------
    metadata : dict
        The keys of the header, such as "general.architecture": numbers, texts, and lists of them.
    version : int
        The version of the format, 2 or 3.
    alignment : int
        The bytes to whose multiples tensors are aligned.

    Raises
    ------
    ValueError
        If the file is no GGUF file, is truncated, has a type that is not known, or lengths or offsets that do not fit.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import numpy as np, tempfile, pathlib
    >>> from floatsim.quantization import GgufFile
    >>> block = np.float16([0.5]).tobytes() + bytes([0x9F] * 16)
    >>> name = len(b"w").to_bytes(8, "little") + b"w"
    >>> info = name + np.uint32([1]).tobytes() + np.uint64([32]).tobytes() + bytes([2, 0, 0, 0]) + bytes(8)
    >>> header = b"GGUF" + np.uint32([3]).tobytes() + np.uint64([1, 0]).tobytes() + info
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.gguf"
    >>> _ = path.write_bytes(header.ljust(-(-len(header) // 32) * 32, bytes(1)) + block)
    >>> file = GgufFile(path)
    >>> file["w"], file["w"].values[:2]
    (GgufTensor(name='w', shape=(32,), type='Q4_0'), array([3.5, 3.5]))
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        check_regular(self.path)
        try:
            self._tensors = self._read()
        except ValueError as error:
            raise ValueError(f"{self.path} cannot be read as a GGUF file: {error}") from None

    def _read(self) -> dict[str, GgufTensor]:
        with self.path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < 24:
                raise ValueError("it has less than the 24 bytes of a header")
            buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if buffer[:4] != _MAGIC:
            raise ValueError(f"it begins with {buffer[:4]!r}, not with {_MAGIC!r}")
        cursor = _Cursor(buffer, "<")
        cursor.at = 4
        self.version = cursor.number("I", "the version")
        if self.version not in (2, 3):
            swapped = int.from_bytes(self.version.to_bytes(4, "little"), "big")
            why = " (big-endian files are not supported)" if swapped in (2, 3) else ""
            raise ValueError(f"it has version {self.version}{why}; versions 2 and 3 are known")
        tensors, keys = cursor.numbers("Q", 2, "the numbers of tensors and keys")
        self.metadata = self._metadata(cursor, keys)
        self.alignment = self.metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(self.alignment, int) or self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise ValueError(f"general.alignment must be a power of two, not {self.alignment!r:.40}")
        found = [self._info(cursor, n) for n in range(tensors)]
        start = -(-cursor.at // self.alignment) * self.alignment
        return self._placed(found, start, np.frombuffer(buffer, np.uint8))

    @staticmethod
    def _metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        for n in range(count):
            key = cursor.text(f"key {n} of the metadata")
            if key in metadata:
                raise ValueError(f"the key {key!r:.60} occurs twice")
            kind = cursor.number("I", f"the kind of {key!r:.60}")
            metadata[key] = cursor.value(kind, f"the value of {key!r:.60}")
        return metadata

    @staticmethod
    def _info(cursor: _Cursor, n: int) -> tuple[str, tuple[int, ...], int, int]:
        """Return the name, the shape, the number of the type and the offset of tensor n."""
        name = cursor.text(f"the name of tensor {n}")
        count = cursor.number("I", f"the number of axes of {name!r:.60}")
        if count > _DIMENSIONS:
            raise ValueError(f"{name!r:.60} has {count} axes; at most {_DIMENSIONS} are known")
        shape = cursor.numbers("Q", count, f"the shape of {name!r:.60}")
        kind = cursor.number("I", f"the type of {name!r:.60}")
        return name, shape[::-1], kind, cursor.number("Q", f"the offset of {name!r:.60}")

    def _placed(
        self, infos: list[tuple[str, tuple[int, ...], int, int]], start: int, content: Array
    ) -> dict[str, GgufTensor]:
        tensors: dict[str, GgufTensor] = {}
        places = []
        for name, shape, number, offset in infos:
            if name in tensors:
                raise ValueError(f"the tensor {name!r:.60} occurs twice")
            kind, nbytes = _size(name, shape, number)
            if offset % self.alignment:
                raise ValueError(f"{name!r:.60} has the offset {offset}, no multiple of the alignment {self.alignment}")
            first, last = start + offset, start + offset + nbytes
            if last > content.size:
                raise ValueError(
                    f"{name!r:.60} has {nbytes} bytes from byte {first} on, and the file has {content.size} bytes"
                )
            places.append((first, last, name))
            tensors[name] = GgufTensor(name, shape, kind, content[first:last])
        places = sorted(place for place in places if place[0] < place[1])
        for (_, end, one), (begin, _, other) in itertools.pairwise(places):
            if begin < end:
                raise ValueError(f"the bytes of {one!r:.60} and {other!r:.60} overlap")
        return tensors


def _dtype_of(kind: str) -> np.dtype[Any]:
    """Return the dtype of the codes or integers of a type without blocks."""
    return _FLOATS[kind].code_dtype if kind in _FLOATS else np.dtype(_INTEGERS[kind])


def _size(name: str, shape: tuple[int, ...], number: int) -> tuple[str, int]:
    """Return the name of a type and the bytes of a tensor."""
    count = math.prod(shape)
    if number in _NUMBERS:
        return _NUMBERS[number], count * _dtype_of(_NUMBERS[number]).itemsize
    if number not in _BLOCKS:
        names = ", ".join([*_NUMBERS.values(), *GGUF_TYPES])
        raise ValueError(f"{name!r:.60} has the type {number}; known are {names}")
    row = _BLOCKS[number]
    if not shape or shape[-1] % row.size:
        raise ValueError(f"{name!r:.60} has the shape {shape}; rows of {row.name} have whole blocks of {row.size}")
    return row.name, count // row.size * row.nbytes
