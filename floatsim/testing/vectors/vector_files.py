"""Files of test vectors for hardware and other languages: TestFloat lines, CSV, JSON lines, `$readmemh` and C arrays.

Every type of file is a row of `FILE_TYPES`: the texts around the numbers, as data. All lines of a file have one width,
so that a block of vectors is one array of characters.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from floatsim.formats import FloatFormat
from floatsim.formats._validation import name_hint

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FILE_TYPES", "Column", "FileType", "VectorWriter", "as_file_type", "read_results"]

LARGEST_WORD = 1 << 16
"""Bits of the widest vector that every Verilog simulator must support (IEEE 1800-2017, 6.9.1)."""
_RESULTS = ("result", "flags")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-FxXzZ_]+)")
_PAIRS = np.array([b"%02X" % code for code in range(256)]).view(np.uint16)
"""The two hexadecimal digits of each byte."""


@dataclass(frozen=True)
class Column:
    """One operand, the result, or the flags.

    Attributes
    ----------
    name : str
        "a", "b", "c", "x", "result" or "flags".
    bits : int
        The bits of one number.
    count : int
        How many numbers a vector has: K for the operands of a dot product, otherwise 1.
    kind : FloatFormat or dtype, optional
        The format of the numbers, or their integer type.
    note : str
        What the bits mean, for the comments of a file. Default: the name of the format.
    """

    name: str
    bits: int
    count: int = 1
    kind: FloatFormat | np.dtype[Any] | None = None
    note: str = ""

    @property
    def digits(self) -> int:
        """The hexadecimal digits of one number."""
        return -(-self.bits // 4)

    @property
    def storage(self) -> int:
        """The bits of the smallest unsigned integer that holds one number: 8, 16, 32 or 64."""
        return next(width for width in (8, 16, 32, 64) if self.bits <= width)


@dataclass(frozen=True)
class FileType:
    """The texts of a type of file. `{...}` in `head` and `tail` are filled in by `VectorWriter`.

    Attributes
    ----------
    name : str
        The name of the type.
    endings : tuple of str
        The endings of file names.
    head, tail : str
        The text before and after the lines.
    line : tuple of str
        The text before the first number of a line, between numbers, and after the last one.
    group : tuple of str
        The same for the numbers of one column, if it has several.
    prefix, suffix : str
        The text around a number. `{name}` is the column's name.
    label : str
        The text before a column.
    padded : bool
        Whether numbers have the digits of 8, 16, 32 or 64 bits.
    last_first : bool
        Whether the last number of a column comes first.
    word : bool
        Whether a line is one word of memory.
    """

    name: str
    endings: tuple[str, ...]
    head: str = ""
    tail: str = ""
    line: tuple[str, str, str] = ("", " ", "\n")
    group: tuple[str, str, str] = ("", " ", "")
    prefix: str = ""
    suffix: str = ""
    label: str = ""
    padded: bool = False
    last_first: bool = False
    word: bool = False


_C_HEAD = """\
/* {title}
   {count} vectors, seed {seed}. Source: floatsim {version}. */
#include <stdint.h>

#define VECTORS {count}

static const struct {{ {fields} }} vectors[VECTORS] = {{
"""
_MEMORY_HEAD = """\
// {title}
// {count} vectors, seed {seed}. Source: floatsim {version}.
// word [{top}:0]: {places}
"""

FILE_TYPES = {
    row.name: row
    for row in (
        FileType("testfloat", (".txt", ".testfloat"), padded=True),
        FileType("csv", (".csv",), head="{names}\n", line=("", ",", "\n"), group=("", ",", ""), prefix="0x"),
        FileType(
            "jsonl", (".jsonl", ".ndjson"), line=("{", ",", "}\n"), group=("[", ",", "]"), prefix='"0x', suffix='"',
            label='"{name}":',
        ),
        FileType(
            "readmemh", (".mem", ".hex", ".memh"), head=_MEMORY_HEAD, line=("", "_", "\n"), group=("", "_", ""),
            last_first=True, word=True,
        ),
        FileType(
            "c", (".h", ".c", ".inc"), head=_C_HEAD, tail="}};\n", line=("  {", ", ", "},\n"), group=("{", ", ", "}"),
            prefix="0x",
        ),
    )
}  # fmt: skip
"""The types of files by name."""


def as_file_type(name: str | None, file_name: str = "") -> FileType:
    """Return a type of file by its name, or by the ending of a file name. Default: "testfloat".

    >>> as_file_type(None, "adder.mem").name, as_file_type("csv").name
    ('readmemh', 'csv')
    """
    if name is None:
        ending = "." + file_name.rpartition(".")[2].lower() if "." in file_name else ""
        return next((row for row in FILE_TYPES.values() if ending in row.endings), FILE_TYPES["testfloat"])
    if name not in FILE_TYPES:
        raise ValueError(f"unknown file type {name!r}; {name_hint(name, FILE_TYPES)}")
    return FILE_TYPES[name]


class VectorWriter:
    """The text of a file of test vectors: its head, lines and tail.

    Parameters
    ----------
    kind : FileType
        The type of the file.
    columns : sequence of Column
        The operands, the result, and the flags if the unit has them.
    width : int, optional
        The bits of a word of `$readmemh`. The words are extended by zeros on the left. Default: as many as needed.

    Raises
    ------
    ValueError
        If a vector is wider than a word, or `width` is given for another type of file.

    Examples
    --------
    >>> columns = [Column("a", 8), Column("b", 8), Column("result", 8), Column("flags", 5)]
    >>> codes = [np.array([code], np.uint8) for code in (0x38, 0x01, 0x38, 1)]
    >>> for kind in ("testfloat", "csv", "jsonl", "readmemh", "c"):
    ...     print(VectorWriter(FILE_TYPES[kind], columns).lines(codes).decode().strip())
    38 01 38 01
    0x38,0x01,0x38,0x01
    {"a":"0x38","b":"0x01","result":"0x38","flags":"0x01"}
    38_01_38_01
    {0x38, 0x01, 0x38, 0x01},
    """

    def __init__(self, kind: FileType, columns: Sequence[Column], width: int | None = None) -> None:
        self.kind, self.columns = kind, tuple(columns)
        needed = 4 * sum(self._digits(x) * x.count for x in columns)
        if width is not None and not kind.word:
            raise ValueError(f"width={width}: only files of $readmemh have words, not {kind.name}")
        most = LARGEST_WORD if width is None else width
        if kind.word and needed > most:
            whose = f"width={width}" if width is not None else f"the largest word of Verilog, {LARGEST_WORD} bits"
            raise ValueError(
                f"a vector needs {needed} bits: too wide for {whose}; write shorter dot products, or the type "
                "testfloat, csv, jsonl or c"
            )
        self.width = max(needed, width or 0)
        self.padding = "0" * (-(-self.width // 4) - needed // 4)
        pieces: list[str] = []
        self.starts: list[list[int]] = [[0] * x.count for x in columns]
        """The place of each number of a column in a line."""
        length = 0
        for piece in self._pieces():
            if isinstance(piece, str):
                text = piece
            else:
                column, element = piece
                self.starts[column][element] = length
                text = "0" * self._digits(self.columns[column])
            pieces.append(text)
            length += len(text)
        self.template = np.frombuffer("".join(pieces).encode(), np.uint8)

    def _digits(self, column: Column) -> int:
        return column.storage // 4 if self.kind.padded else column.digits

    def _pieces(self) -> Iterator[str | tuple[int, int]]:
        """Yield the texts of a line, and (column, element) where a number stands."""
        kind = self.kind
        yield kind.line[0] + (f"{self.padding}_" if self.padding else "")
        for i, column in enumerate(self.columns):
            yield (kind.line[1] if i else "") + kind.label.replace("{name}", column.name)
            start, between, end = kind.group if column.count > 1 else ("", "", "")
            yield start
            elements = range(column.count)
            for n, element in enumerate(reversed(elements) if kind.last_first else elements):
                yield (between if n else "") + kind.prefix
                yield i, element
                yield kind.suffix
            yield end
        yield kind.line[2]

    def lines(self, columns: Sequence[NDArray[Any]]) -> bytes:
        """Return the lines of a block.

        Parameters
        ----------
        columns : sequence of arrays
            Unsigned integers, one array for each column: (n,), or (n, count).

        Returns
        -------
        bytes
        """
        grid = np.empty((len(columns[0]), self.template.size), np.uint8)
        grid[:] = self.template
        for i, x in enumerate(columns):
            big = np.ascontiguousarray(x, x.dtype.newbyteorder(">"))
            texts = _PAIRS[big.view(np.uint8)].view(np.uint8).reshape(len(x), -1, 2 * x.dtype.itemsize)
            starts, digits = self.starts[i], self._digits(self.columns[i])
            step = starts[1] - starts[0] if len(starts) > 1 else digits  # the numbers of a column have equal distances
            first = min(starts)
            numbers = as_strided(grid[:, first:], (len(x), len(starts), digits), (grid.strides[0], abs(step), 1))
            numbers[...] = (texts if step > 0 else texts[:, ::-1])[:, :, -digits:]
        return grid.tobytes()

    def head(self, title: str, count: int, seed: int, version: str) -> bytes:
        """Return the text before the lines."""
        return self._filled(self.kind.head, title, count, seed, version)

    def tail(self) -> bytes:
        """Return the text after the lines."""
        return self._filled(self.kind.tail, "", 0, 0, "")

    def _filled(self, text: str, title: str, count: int, seed: int, version: str) -> bytes:
        names = [f"{x.name}{i}" if x.count > 1 else x.name for x in self.columns for i in range(x.count)]
        fields = " ".join(f"uint{x.storage}_t {x.name}{f'[{x.count}]' if x.count > 1 else ''};" for x in self.columns)
        places, low = [], 0
        for x in reversed(self.columns):
            high = low + 4 * x.digits * x.count
            words = x.note or (x.kind.name if x.kind is not None else "")
            each = f" of {4 * x.digits} bits, {x.name}[0] lowest" if x.count > 1 else ""
            places.append(f"{x.name} [{high - 1}:{low}]{f' {words}' if words else ''}{each}")
            low = high
        return text.format(
            title=title, count=count, seed=seed, version=version, names=",".join(names), fields=fields,
            top=self.width - 1, places="; ".join(reversed(places)),
        ).encode()  # fmt: skip


# -- results of a simulation -------------------------------------------------------------------------------------------


def read_results(file: IO[bytes], kind: FileType, columns: Sequence[Column]) -> list[list[int | None]]:
    """Return the results, and the flags if the file has them, that a simulation wrote.

    Parameters
    ----------
    file : binary file
        Whole vectors in the layout of `VectorWriter`, or only the results, or results and flags. In a file of
        `$readmemh`, addresses (`@0`) and comments are skipped.
    kind : FileType
        The type of the file: any but "c".
    columns : sequence of Column
        The columns of the whole vectors.

    Returns
    -------
    list of lists of int or None
        The results, and then the flags if the file has them. None stands for digits `x` or `z` of a simulator.

    Raises
    ------
    ValueError
        If a line has another number of fields, or a number that does not fit. The message has its line or word.

    Examples
    --------
    >>> import io
    >>> columns = [Column("a", 8), Column("result", 8), Column("flags", 5)]
    >>> read_results(io.BytesIO(b"// DUT\\n38_40_01\\n00_xx_00\\n"), FILE_TYPES["readmemh"], columns)
    [[64, None], [1, 0]]
    >>> read_results(io.BytesIO(b"40\\n00\\n"), FILE_TYPES["testfloat"], columns)
    [[64, 0]]
    """
    if kind.name == "c":
        raise ValueError("results are not read from C arrays: write them as testfloat, csv, jsonl or readmemh")
    text = file.read().decode("latin1")
    outputs = [x for x in columns if x.name in _RESULTS]
    operands = sum(x.count for x in columns if x.name not in _RESULTS)
    rows = _READERS.get(kind.name, _lines)(text, outputs, operands)
    found: list[list[int | None]] = []
    for where, numbers in rows:
        values = numbers[operands:] if len(numbers) == operands + len(outputs) else numbers
        found = found or [[] for _ in values]
        if not 1 <= len(values) <= len(outputs) or len(values) != len(found):
            names = ", ".join(x.name for x in outputs)
            raise ValueError(
                f"{where} has {len(numbers)} numbers; it must have {operands + len(outputs)} (a whole vector), or only "
                f"{names}, as the first line"
            )
        for column, output, value in zip(found, outputs, values, strict=False):
            column.append(_number(value, output, where))
    return found


def _number(digits: str, column: Column, where: str) -> int | None:
    digits = digits.replace("_", "")
    if re.search("[xXzZ]", digits):
        return None
    value = int(digits, 16)
    if value >> column.storage or (value >> column.bits and column.name == "result"):
        raise ValueError(f"{where}: {column.name} is 0x{digits}, wider than its {column.bits} bits")
    return value


def _lines(text: str, outputs: Sequence[Column], operands: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the numbers of each line of text, in hexadecimal with or without 0x. A line of names is skipped."""
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell for cell in re.split(r"[\s,;]+", line.strip()) if cell]
        matches = [_HEX.fullmatch(cell) for cell in cells]
        if not cells or (number == 1 and any(cell in _RESULTS for cell in cells)):
            continue
        if not all(matches):
            raise ValueError(f"line {number} is {line[:60]!r}; it must have hexadecimal numbers")
        yield f"line {number}", [match[1] for match in matches if match]


def _json_lines(text: str, outputs: Sequence[Column], operands: int) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(text.splitlines(), 1):
        try:
            row = json.loads(line)
            values = [str(row[x.name]) for x in outputs if x.name in row]
            matches = [_HEX.fullmatch(value) for value in values]
        except (ValueError, TypeError, KeyError, RecursionError):
            matches = []
        if not matches or not all(matches):
            raise ValueError(f'line {number} is {line[:60]!r}; it must be JSON, such as {{"result":"0x40"}}')
        yield f"line {number}", [match[1] for match in matches if match]


def _words(text: str, outputs: Sequence[Column], operands: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the results of each word of a memory: its last digits. A word has a whole vector or only the results."""
    digits = [x.digits for x in outputs]
    for number, word in enumerate(_COMMENT.sub(" ", text).split()):
        if word.startswith("@"):
            continue
        plain = word.replace("_", "")
        if not re.fullmatch("[0-9a-fA-FxXzZ]+", plain):
            raise ValueError(f"word {number} is {word[:60]!r}; it must have hexadecimal digits")
        widths = digits if len(plain) >= sum(digits) else digits[:1]
        plain = plain.rjust(sum(widths), "0")
        ends = list(itertools.accumulate(reversed(widths), initial=0))
        yield (
            f"word {number}",
            [plain[len(plain) - high : len(plain) - low] for low, high in reversed(list(itertools.pairwise(ends)))],
        )


_READERS = {"jsonl": _json_lines, "readmemh": _words}
