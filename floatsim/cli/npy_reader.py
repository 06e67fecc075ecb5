"""Read .npy and .npz files from anywhere: no pickles, no memory for data that the file does not have, no hang.

NumPy allocates the size that a header names before it reads the data. These functions compare it with the file first.
"""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["names_of", "read_npy", "read_npz"]

_HEADER = 10_000  # characters; NumPy reads no longer header
_LARGE = 1 << 28  # bytes; only larger members of an archive are compared with the size of the archive
_RATIO = 64  # of a large member to its compressed size; random bits do not shrink, and matrices of floats hardly do


def read_npy(path: Path) -> NDArray[Any]:
    """Return the array of a .npy file. Raise ValueError or OSError if the file has no array of plain elements."""
    _regular(path)
    with path.open("rb") as file:
        return _read(file, path.stat().st_size)


def read_npz(path: Path, chosen: str | None = None) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file by name, or the chosen one if it is there."""
    _regular(path)
    found = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name == member.filename or (chosen is not None and name != chosen):
                continue
            if member.file_size > max(_LARGE, _RATIO * member.compress_size):
                raise ValueError(
                    f"{name} unpacks from {member.compress_size} to {member.file_size} bytes: save it as a .npy file"
                )
            with archive.open(member) as file:
                found[name] = _read(file, member.file_size)
    return found


def names_of(path: Path) -> list[str]:
    """Return the names of the arrays of an .npz file, without reading them."""
    _regular(path)
    with zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def _regular(path: Path) -> None:
    if not path.is_file():  # a pipe or a device may never end
        raise ValueError("it is not a regular file")


def _read(file: IO[bytes], size: int) -> NDArray[Any]:
    """Return the array of an open .npy file of `size` bytes."""
    import numpy as np

    shape, fortran_order, dtype = _header(file)
    if dtype.hasobject or dtype.subdtype is not None or dtype.itemsize == 0:
        raise ValueError(f"it is not a NumPy file of plain numbers (dtype {dtype}), and pickles are not read")
    wanted, rest = math.prod(shape) * dtype.itemsize, size - file.tell()
    if wanted != rest:
        raise ValueError(
            f"its header names the shape {shape} of {dtype}, which is {_count(wanted)}, and {_count(rest)} follow"
        )
    data = file.read(wanted)
    if len(data) != wanted:
        raise ValueError(f"it is truncated: {_count(wanted)} of data expected, {_count(len(data))} found")
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran_order else "C")
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))


def _count(number: int) -> str:
    return f"{number} bytes" if number < 10**15 else "more bytes than any file has"


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and dtype. NumPy reads the header as literals of Python, of at most 10,000 characters."""
    import numpy as np

    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:  # version 3 has field names in UTF-8
        raise ValueError(f"it has version {version[0]}.{version[1]} of the .npy format; 1.0 and 2.0 hold plain arrays")
    length = file.read(2 if version == (1, 0) else 4)
    header = file.read(min(int.from_bytes(length, "little"), _HEADER))
    # np.save writes float8_e5m2 as "<f1", which np.load does not know. Its bytes are codes, like those of "|V1".
    readable = io.BytesIO(length + header.replace(b"'<f1'", b"'|V1'"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about headers of Python 2 and old names of dtypes
        shape, fortran_order, dtype = readers[version](readable)
    if any(isinstance(length, bool) or length < 0 for length in shape):
        raise ValueError(f"its header names the shape {shape}")
    return tuple(map(int, shape)), bool(fortran_order), dtype
