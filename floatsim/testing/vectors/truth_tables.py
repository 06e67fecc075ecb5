"""Truth tables: the results of an operation for all operands, as bytes with a defined order, and their digests.

A table lists the results for all codes of a format, or for all pairs of codes. The first operand varies slowest. The
bytes of a table are all result codes in little-endian order, one or two bytes each, and then one byte of flags for
each result. `digest` is the SHA-256 of these bytes. Rounding is to nearest, ties to even, with tininess after rounding.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim import datasets
from floatsim.arrays.array.conversion import convert
from floatsim.arrays.array.float_array import from_codes
from floatsim.arrays.elementwise import arithmetic, functions
from floatsim.emulator.elementwise.operations import arity
from floatsim.formats import FloatFormat, as_format
from floatsim.formats._validation import name_hint
from floatsim.formats.rounding import FLAGS, Overflow, RoundingAttributes
from floatsim.reference import functions as reference_functions
from floatsim.reference import scalar

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "SOURCES", "TRUTH_TABLES", "TruthTable", "digest", "first_difference", "stored_digests", "table_bytes",
    "write_digests",
]  # fmt: skip

SOURCES = ("emulator", "reference")
"""What computes a table: the kernels, or the readable specification on exact integers."""

_OPERATIONS = (
    "add", "subtract", "multiply", "divide", "remainder", "sqrt", "reciprocal", "rsqrt", "cbrt", "exp", "exp2", "log",
    "log2", "sin", "cos", "tanh", "sigmoid",
)  # fmt: skip
_OF_PAIRS = ("e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e4m3b11fnuz", "e4m3ieee", "e3m4")
_OF_UNARY = ("fp16", "bf16")


@dataclass(frozen=True)
class TruthTable:
    """An operation on all operands of a format.

    Attributes
    ----------
    name : str
        Such as "add-e4m3", "exp-bf16" or "convert-fp16-e5m2-saturate_finite".
    operation : str
    format : str
        The format of the operands.
    result : str
        The format of the results.
    operands : int
        1 or 2.
    overflow : str
        The overflow policy.
    """

    name: str
    operation: str
    format: str
    result: str
    operands: int = 1
    overflow: str = "infinity"

    @property
    def formats(self) -> tuple[FloatFormat, FloatFormat]:
        """The formats of the operands and of the results."""
        return as_format(self.format), as_format(self.result)

    @property
    def entries(self) -> int:
        """The number of results."""
        return 1 << self.operands * self.formats[0].bits

    @property
    def result_dtype(self) -> np.dtype[Any]:
        """The dtype of the result codes in the bytes of the table: little-endian."""
        return np.dtype(self.formats[1].code_dtype).newbyteorder("<")

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.entries * (self.result_dtype.itemsize + 1)


def _tables() -> dict[str, TruthTable]:
    found = [
        TruthTable(f"{name}-{fmt}", name, fmt, fmt, operands)
        for operands, formats in ((2, _OF_PAIRS), (1, _OF_UNARY))
        for fmt in formats
        for name in _OPERATIONS
        if arity(name) == operands
    ]
    for source in _OF_UNARY:
        found += [
            TruthTable(f"convert-{source}-{target}-{policy}", "convert", source, target, overflow=policy)
            for target in (*_OF_PAIRS, *_OF_UNARY, "e3m2", "e2m3", "e2m1")
            if target != source
            for policy in ("infinity", "saturate_finite")
        ]
    return {table.name: table for table in found}


TRUTH_TABLES = _tables()
"""All truth tables by name."""


def _table(name: str | TruthTable) -> TruthTable:
    if isinstance(name, TruthTable):
        return name
    if name not in TRUTH_TABLES:
        raise ValueError(f"unknown table {name!r}; {name_hint(name, TRUTH_TABLES)}")
    return TRUTH_TABLES[name]


def table_bytes(table: str | TruthTable, source: str = "emulator") -> bytes:
    """Return the bytes of a truth table.

    Parameters
    ----------
    table : str or TruthTable
        The name of a table in `TRUTH_TABLES`.
    source : {"emulator", "reference"}
        What computes the results. The reference takes from a second to a minute for a table.

    Returns
    -------
    bytes
        All result codes, little-endian, then one byte of flags for each.

    Raises
    ------
    ValueError
        If the table or the source is unknown.

    Examples
    --------
    >>> content = table_bytes("add-e4m3")
    >>> len(content), hex(content[0x38 * 256 + 0x38])  # 1 + 1 = 2
    (131072, '0x40')
    """
    if source not in SOURCES:
        raise ValueError(f"source must be one of {', '.join(SOURCES)}, not {source!r}")
    chosen = _table(table)
    codes, flags = (_by_reference if source == "reference" else _by_emulator)(chosen)
    return codes.astype(chosen.result_dtype).tobytes() + flags.astype(np.uint8).tobytes()


def _by_reference(table: TruthTable) -> tuple[NDArray[Any], NDArray[Any]]:
    source, target = table.formats
    attributes = RoundingAttributes(overflow=Overflow[table.overflow.upper()])
    numbers = [scalar.decode(code, source) for code in range(1 << source.bits)]
    if table.operands == 2:
        operation = getattr(scalar, table.operation)
        results = [operation(a, b, target, attributes) for a in numbers for b in numbers]
    elif table.operation in reference_functions.UNARY:
        results = [reference_functions.apply(table.operation, (a,), target, attributes) for a in numbers]
    else:
        operation = getattr(scalar, table.operation)
        results = [operation(a, target, attributes) for a in numbers]
    codes, events = np.array(results, np.int64).T
    return codes, events & FLAGS


def _by_emulator(table: TruthTable) -> tuple[NDArray[Any], NDArray[Any]]:
    source, target = table.formats
    codes = np.arange(1 << source.bits, dtype=source.code_dtype)
    options: Any = {
        "rounding": "ties_to_even", "tininess": "after", "overflow": table.overflow, "daz": False, "ftz": False,
        "return_flags": True,
    }  # fmt: skip
    result: Any
    if table.operands == 2:
        a, b = (from_codes(x, source) for x in (np.repeat(codes, len(codes)), np.tile(codes, len(codes))))
        result, flags = getattr(arithmetic, table.operation)(a, b, **options)
    elif table.operation == "convert":
        result, flags = convert(from_codes(codes, source), target, **options)
    else:
        home = arithmetic if table.operation == "sqrt" else functions
        result, flags = getattr(home, table.operation)(from_codes(codes, source), **options)
    return result.codes, flags


def digest(content: bytes) -> str:
    """Return the SHA-256 of the bytes of a table, in hexadecimal.

    >>> digest(table_bytes("add-e4m3")) == stored_digests()["add-e4m3"]
    True
    """
    return hashlib.sha256(content).hexdigest()


def _file() -> Path:
    return datasets.folder("truth") / "digests.json"


def stored_digests(path: Path | None = None) -> dict[str, str]:
    """Return the digests of the tables by name, as the reference computed them.

    Parameters
    ----------
    path : Path, optional
        A file of `write_digests`. Default: the file that floatsim ships.

    Returns
    -------
    dict of str to str

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is no file of digests.

    Examples
    --------
    >>> len(stored_digests()["exp-fp16"])
    64
    """
    place = _file() if path is None else path
    try:
        found = json.loads(place.read_text(encoding="utf-8"))["tables"]
        return {str(name): str(row["sha256"]) for name, row in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{place} is no file of digests: `floatsim verify --write FILE` writes one") from None


def write_digests(path: Path, names: Iterable[str], source: str = "reference") -> dict[str, str]:
    """Write the digests of tables to a file, with the number of their entries and bytes, and return them.

    Parameters
    ----------
    path : Path
        The JSON file to write.
    names : iterable of str
        The tables.
    source : {"emulator", "reference"}
        What computes the tables.

    Returns
    -------
    dict of str to str

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = write_digests(Path(folder) / "digests.json", ["add-e4m3"], "emulator")
    >>> written["add-e4m3"] == stored_digests()["add-e4m3"]
    True
    """
    tables = [_table(name) for name in names]
    found = {table.name: digest(table_bytes(table, source)) for table in tables}
    rows = {
        table.name: {"sha256": found[table.name], "entries": table.entries, "bytes": table.size} for table in tables
    }
    content = {"byte_order": "result codes, little-endian; then one byte of flags for each result", "tables": rows}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return found


def first_difference(table: str | TruthTable, content: bytes) -> str | None:
    """Return the first result that differs from the emulator's, as text; None if all are equal.

    Parameters
    ----------
    table : str or TruthTable
        The table.
    content : bytes
        The bytes of another implementation.

    Returns
    -------
    str or None

    Examples
    --------
    >>> content = bytearray(table_bytes("add-e4m3"))
    >>> content[0x3838] ^= 1
    >>> first_difference("add-e4m3", bytes(content))
    'entry 14392, operands 0x38 0x38: the code is 0x41, not 0x40'
    """
    chosen = _table(table)
    if len(content) != chosen.size:
        return f"the table has {chosen.size} bytes, not {len(content)}"
    expected = table_bytes(chosen)
    split = chosen.entries * chosen.result_dtype.itemsize
    sections = (("code", 0, split, chosen.result_dtype), ("flags", split, chosen.size, np.dtype(np.uint8)))
    for name, start, end, dtype in sections:
        got, wanted = (np.frombuffer(each[start:end], dtype) for each in (content, expected))
        where = np.flatnonzero(got != wanted)
        if where.size:
            entry, digits = int(where[0]), 2 * dtype.itemsize
            verb = "is" if name == "code" else "are"
            return (
                f"entry {entry}, operands {_operands(chosen, entry)}: the {name} {verb} "
                f"0x{int(got[entry]):0{digits}X}, not 0x{int(wanted[entry]):0{digits}X}"
            )
    return None


def _operands(table: TruthTable, entry: int) -> str:
    bits = table.formats[0].bits
    parts = [entry >> bits * place & (1 << bits) - 1 for place in reversed(range(table.operands))]
    return " ".join(f"0x{part:0{-(-bits // 4)}X}" for part in parts)
