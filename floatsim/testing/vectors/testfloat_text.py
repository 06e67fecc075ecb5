"""The text of Berkeley TestFloat: lines of hexadecimal numbers, read and written as whole blocks.

Source: J. Hauser, "Berkeley TestFloat", releases 3d and 3e, sections "Output Format" of testfloat_gen and "Input
Format" of testfloat_ver: operands, result and flags, in hexadecimal with leading zeros, separated by spaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["blocks", "columns_of", "format_lines", "parse_lines"]

_SPACE, _NEWLINE = b" \n"
_HEXADECIMAL = frozenset(b"0123456789abcdefABCDEF")
_BLOCK = 1 << 20  # bytes of a block; larger blocks leave the caches


def blocks(file: IO[bytes], size: int = _BLOCK) -> Iterator[bytes]:
    """Yield the whole lines of a file in blocks of about `size` bytes. A last line without an end gets one.

    >>> import io
    >>> list(blocks(io.BytesIO(b"12 34\\n56 78"), 7))
    [b'12 34\\n', b'56 78\\n']
    """
    rest = b""
    while True:
        read = file.read(size)
        if not read:
            break
        head, newline, tail = read.rpartition(b"\n")
        if newline:
            yield rest + head + newline
            rest = tail
        else:
            rest += read
            if len(rest) > max(16 * size, _BLOCK):
                raise ValueError(f"a line has more than {max(16 * size, _BLOCK)} characters")
    if rest:
        yield rest + b"\n"


def columns_of(block: bytes) -> int:
    """Return the number of columns in the first line.

    >>> columns_of(b"3C00 4000 4200 00\\n")
    4
    """
    return len(block[: block.index(b"\n")].split())


def parse_lines(block: bytes, bits: Sequence[int], first: int = 1) -> list[NDArray[Any]]:
    """Return the columns of a block of lines as unsigned integers.

    Parameters
    ----------
    block : bytes
        Whole lines.
    bits : sequence of int
        The number of bits of each column: 8, 16, 32 or 64.
    first : int
        The number of the first line, for errors.

    Returns
    -------
    list of arrays
        One for each column, uint8 to uint64.

    Raises
    ------
    ValueError
        If a line has other columns. The message has the number of the line.

    Examples
    --------
    >>> [column.tolist() for column in parse_lines(b"3C00 01\\n4000 00\\n", [16, 8])]
    [[15360, 16384], [1, 0]]
    """
    width = sum(number // 4 + 1 for number in bits)
    grid = np.frombuffer(block, np.uint8)
    if grid.size % width == 0 and (found := _fixed(grid.reshape(-1, width), bits)) is not None:
        return found
    return _parsed_one_by_one(block, bits, first)


def _fixed(grid: NDArray[np.uint8], bits: Sequence[int]) -> list[NDArray[Any]] | None:
    """Return the columns of lines that all have the full width; None if a character is in another place."""
    found: list[NDArray[Any]] = []
    end = -1
    for number in bits:
        start, end = end + 1, end + 1 + number // 4
        separator = _SPACE if end + 1 < grid.shape[1] else _NEWLINE
        letters = grid[:, start:end]
        if (grid[:, end] != separator).any() or not _are_digits(letters):
            return None
        digits = (letters & 15) + 9 * (letters >> 6)  # "A" is 0x41 and "a" 0x61
        pairs = digits[:, 0::2] << 4 | digits[:, 1::2]
        found.append(np.ascontiguousarray(pairs).view(f">u{number // 8}")[:, 0].astype(f"u{number // 8}"))
    return found


def _are_digits(letters: NDArray[np.uint8]) -> bool:
    """Return whether all characters are hexadecimal digits. The differences wrap around below 0."""
    return bool(((letters - 48 < 10) | ((letters | 32) - 97 < 6)).all())


def _parsed_one_by_one(block: bytes, bits: Sequence[int], first: int) -> list[NDArray[Any]]:
    """Return the columns of lines of any width, such as "1 0" for 0001 00."""
    rows = []
    for number, line in enumerate(block.splitlines(), first):
        cells = line.split()
        try:
            values = [int(cell, 16) if _HEXADECIMAL.issuperset(cell) else -1 for cell in cells]
        except ValueError:
            values = [-1]
        fits = len(values) == len(bits) and all(0 <= x < 1 << n for x, n in zip(values, bits, strict=True))
        if not fits:
            wanted = " ".join("0" * (n // 4) for n in bits)
            raise ValueError(f"line {number} is {_shown(line)!r}; it must have {len(bits)} numbers, such as {wanted!r}")
        rows.append(values)
    return [np.array([row[i] for row in rows], f"u{n // 8}") for i, n in enumerate(bits)]


def _shown(line: bytes) -> str:
    text = line.decode("latin1")
    return text if len(text) <= 60 else f"{text[:57]}..."


def format_lines(columns: Sequence[NDArray[Any]]) -> bytes:
    """Return lines of hexadecimal numbers, with all digits of each dtype.

    Parameters
    ----------
    columns : sequence of arrays
        Unsigned integers, of one length.

    Returns
    -------
    bytes

    Examples
    --------
    >>> format_lines([np.array([0x3C00, 1], np.uint16), np.array([1, 0], np.uint8)])
    b'3C00 01\\n0001 00\\n'
    """
    count = len(columns[0])
    widths = [2 * x.dtype.itemsize + 1 for x in columns]
    grid = np.full((count, sum(widths)), _SPACE, np.uint8)
    end = 0
    for x, width in zip(columns, widths, strict=True):
        big = np.ascontiguousarray(x, x.dtype.newbyteorder(">")).view(np.uint8).reshape(count, -1)
        for place, digits in enumerate((big >> 4, big & 15)):
            grid[:, end + place : end + width - 1 : 2] = digits + 48 + 7 * (digits > 9).view(np.uint8)
        end += width
    grid[:, -1] = _NEWLINE
    return grid.tobytes()
