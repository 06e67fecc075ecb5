"""Matrices from .npy, .npz, .safetensors and .csv files, for commands.

An unusable file raises a `BadInputError` that names FILES.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import floatsim
from floatsim.arrays.array.interop import imported
from floatsim.cli.console import BadInputError, one_line
from floatsim.cli.npy_reader import names_of, read_npy, read_npz

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    AnyArray: TypeAlias = NDArray[Any] | floatsim.FloatArray

__all__ = ["READABLE", "load", "load_all", "load_csv", "read_arrays"]

READABLE = ".npy, .npz, .safetensors and .csv"


def load(argument: str) -> dict[str, NDArray[Any]]:
    """Return the matrices of a file by name. `file.npz:name` selects one. An unusable array raises `BadInputError`."""
    path, arrays = read_arrays(argument)
    found = {name: _values(x) for name, x in arrays.items()}
    flaws = {name: flaw for name, x in found.items() if (flaw := _flaw(x))}
    for name, flaw in flaws.items():
        others = ", ".join(other for other in found if other not in flaws)
        hint = f"; {path}:NAME picks one array, and NAME can be {others}" if others else ""
        raise BadInputError(f"FILES: {path}: {name} {flaw}{hint}")
    for name, x in found.items():
        if x.dtype.kind == "u":
            notice = f"{path}: {name} has dtype {x.dtype}, which is read as numbers, not as codes"
            print(f"floatsim: {notice}; save codes with fs.save(file, fs.from_codes(codes, format))", file=sys.stderr)
    return found


def _values(x: AnyArray) -> NDArray[Any]:
    """Return the numbers of an array that `fs.save` wrote; another array as it is."""
    return x.values if isinstance(x, floatsim.FloatArray) else x


def read_arrays(argument: str, option: str = "FILES") -> tuple[Path, dict[str, AnyArray]]:
    """Return the path and the arrays of a file by name, of any dtype. `file.npz:name` selects one.

    So does `file.safetensors:name`.

    An array written by `fs.save` is a FloatArray with the name of the file. Every other failure raises a
    `BadInputError` that names `option`: a file from anywhere can raise any exception in the parsers.
    """
    path, chosen = Path(argument), None
    if not path.exists() and ":" in argument:
        before, _, chosen = argument.rpartition(":")
        path = Path(before)
    if not path.exists():
        raise BadInputError(f"{option}: there is no file {argument}")
    if path.suffix.lower() not in _READERS:
        raise BadInputError(f"{option}: {path} must be one of {READABLE}")
    try:
        arrays = _READERS[path.suffix.lower()](path, chosen, option)
    except BadInputError:
        raise
    except Exception as error:
        why = one_line(error).partition(";")[0] or type(error).__name__
        if isinstance(error, ImportError):
            raise BadInputError(f"{option}: {path}: {why}") from None
        if "plain numbers" in why and path.suffix.lower() == ".npz" and chosen is None:
            why += f"; {path}:NAME picks one array"
        raise BadInputError(f"{option}: {path} cannot be read: {_shortened(why, 300)}") from None
    if chosen is not None:
        arrays = {chosen: arrays[_known(chosen, arrays, path, option)]}
    if not arrays:
        raise BadInputError(f"{option}: {path} holds no array; np.savez({path.name!r}, a=...) writes one")
    return path, arrays


def _flaw(x: NDArray[Any]) -> str:
    """Return why an array cannot be multiplied; empty if it can be."""
    kind = x.dtype.kind
    if kind == "V":
        return f"has dtype {x.dtype}: np.save forgets ml_dtypes; use fs.save"
    if kind in "UST":
        return f"holds text (dtype {x.dtype}), not numbers"
    if kind == "c":
        return "is complex: save its real and imaginary parts as two arrays"
    if kind == "f" and x.dtype.itemsize > 8:
        return f"is an array of longdouble (dtype {x.dtype}); save x.astype('float64')"
    if kind not in "fiu":
        return f"has dtype {x.dtype}; make it a float or integer array"
    return "" if x.ndim == 2 else f"must be a matrix (2 dimensions), but its shape is {x.shape}"


def _load_npz(path: Path, chosen: str | None, option: str) -> dict[str, AnyArray]:
    """Return the arrays of the file, or the chosen one. An array written by `fs.save` gets the file's name."""
    names = names_of(path)
    if set(names) == {"codes", "format"}:
        read_npz(path)  # its headers and sizes are correct
        return {path.stem: floatsim.load(path)}
    if chosen is not None:
        _known(chosen, names, path, option)
    return dict(read_npz(path, chosen))


def _known(chosen: str, names: Collection[str], path: Path, option: str) -> str:
    if chosen not in names:
        raise BadInputError(f"{option}: {path} has no {chosen!r}; it has {', '.join(names) or 'no array'}")
    return chosen


_OF_SAFETENSORS = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64",
    "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool", "C64": "complex64",
}  # fmt: skip
"""The names of dtypes in the files, and in NumPy or ml_dtypes. Packed FP4 and FP6 have no dtype there."""


def _load_safetensors(path: Path, chosen: str | None, option: str) -> dict[str, AnyArray]:
    """Return the tensors of the file, or the chosen one. BF16 and FP8 are FloatArrays."""
    if not path.is_file():
        raise BadInputError(f"{option}: {path} cannot be read: it is not a regular file")
    tensors = dict(sorted(imported("safetensors").deserialize(path.read_bytes()), key=lambda item: str(item[0])))
    names = tensors if chosen is None else [_known(chosen, tensors, path, option)]
    return {name: _tensor(**tensors[name]) for name in names}


def _tensor(dtype: str, shape: Sequence[int], data: bytes) -> AnyArray:
    import numpy as np

    if dtype not in _OF_SAFETENSORS:
        raise ValueError(f"a tensor has the dtype {dtype}, which no dtype of NumPy or ml_dtypes is")
    name = _OF_SAFETENSORS[dtype]
    if hasattr(np, name):
        return np.frombuffer(data, np.dtype(name).newbyteorder("<")).reshape(shape).astype(name, copy=False)
    fmt = floatsim.as_format(name)
    codes = np.frombuffer(data, fmt.code_dtype.newbyteorder("<")).reshape(shape)
    return floatsim.from_codes(codes.astype(fmt.code_dtype, copy=False), fmt)


_CSV = "write plain numbers, without quotes, separated by commas: 1,-2.5,3e-4"


def _csv_number(cell: str) -> float | None:
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _is_header(cells: list[str]) -> bool:
    """Return whether no cell is a number, also not one in quotes or between other separators."""
    pieces = [[piece for piece in re.split(r"[\s;\"']+", cell) if piece] for cell in cells]
    return not any(all(_csv_number(piece) is not None for piece in cell) for cell in pieces if cell)


def load_csv(path: Path, option: str = "FILES") -> NDArray[np.float64]:
    """Return the numbers of a .csv file, one row per line. A first line without numbers is skipped, with a notice.

    A first line that counts from 0, as pandas names columns, is read as numbers, with a notice. An index of pandas,
    below an empty first cell, is an error.
    """
    import numpy as np

    lines = enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1)
    rows = [(number, [cell.strip() for cell in line.split(",")]) for number, line in lines if line.strip()]
    first = rows[0][1] if len(rows) > 1 and len(rows[0][1]) > 1 else []
    if first and not first[0]:
        why = f"the first cell of row {rows[0][0]} is empty, as above the index that pandas writes"
        advice = "write the file with index=False and header=False"
        raise BadInputError(f"{option}: {path} cannot be read: {why}; {advice}")
    header = rows.pop(0) if rows and _is_header(rows[0][1]) else None
    if first and first == [str(n) for n in range(len(first))]:
        notice = f"{path}: row {rows[0][0]} counts from 0 and is read as numbers; if it is the header of pandas, write"
        print(f"floatsim: {notice} the file with header=False", file=sys.stderr)
    if not rows:
        raise BadInputError(f"{option}: {path} cannot be read: it has no row of numbers; {_CSV}")
    values = []
    for number, cells in rows:
        if len(cells) != len(rows[0][1]):
            raise BadInputError(f"{option}: {path} cannot be read: row {number} has {len(cells)} cells, and row "
                                f"{rows[0][0]} has {len(rows[0][1])}; {_CSV}")  # fmt: skip
        values.append([_csv_number(cell) for cell in cells])
        if None in values[-1]:
            position = values[-1].index(None)
            cell = f"row {number}, cell {position + 1}: {_shortened(cells[position])!r}"
            raise BadInputError(f"{option}: {path} cannot be read: {cell} is not a number; {_CSV}")
    if header is not None:
        names = ",".join(header[1])
        print(f"floatsim: {path}: row {header[0]} skipped as a header: {_shortened(names)}", file=sys.stderr)
    return np.array(values, np.float64)


def _shortened(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


_READERS: dict[str, Callable[[Path, str | None, str], dict[str, AnyArray]]] = {
    ".npz": _load_npz,
    ".npy": lambda path, chosen, option: {path.stem: read_npy(path)},
    ".safetensors": _load_safetensors,
    ".csv": lambda path, chosen, option: {path.stem: load_csv(path, option)},
}


def load_all(files: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return all matrices of the files by name. A number is added to a name that occurs again."""
    tensors: dict[str, NDArray[Any]] = {}
    for argument in files:
        for name, x in load(argument).items():
            unused = next(n for n in (name, *(f"{name}_{i}" for i in range(2, 1000))) if n not in tensors)
            tensors[unused] = x
    return tensors
