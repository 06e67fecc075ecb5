"""Where mismatches are: rows, columns, tiles, and residues of an index.

A place is named only if a chance arrangement of as many mismatches would lie in such a place with probability below
1 %. The probability counts all places of the same kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SIZES", "Place", "locate"]

SIZES = (8, 16, 32, 64, 128)
"""The tile sizes that are tried."""
_MODULI = (2, 4, *SIZES)
_CHANCE = math.log(0.01)
_FEW = 4  # rows or columns that are listed one by one
_LARGER = 1.3  # a tile is named in place of a part of it that is smaller by this factor at most
_MAIN = 0.9  # the share of the mismatches that one line or tile must hold, if not all lie in one place


@dataclass(frozen=True)
class Place:
    """A part of a result in which mismatches are.

    Attributes
    ----------
    text : str
        The place in words.
    mismatches, elements : int
        The number of mismatches in it, and of its elements.
    """

    text: str
    mismatches: int
    elements: int

    def __str__(self) -> str:
        return f"{self.text}: {self.mismatches} of its {self.elements} elements"


@dataclass(frozen=True)
class _Line:
    """A set of positions along one axis: its words, its number of positions, and ln of the chance that all fall in."""

    text: str
    size: int
    chance: float


def locate(differs: NDArray[np.bool_]) -> tuple[Place, ...]:
    """Return the smallest place that holds all mismatches, or 90 % of them, and the matrices of a stack that have any.

    Parameters
    ----------
    differs : (..., R, C) bool
        The mismatches. The leading axes count as one stack of matrices.

    Returns
    -------
    tuple of Place
        Empty if the mismatches are spread over the whole array, or there are fewer than two.

    Examples
    --------
    >>> import numpy as np
    >>> differs = np.zeros((64, 64), bool)
    >>> differs[16:32, 48:64] = True
    >>> print(*locate(differs))
    tile 16x16 at (16, 48): 256 of its 256 elements
    >>> differs = np.zeros((64, 64), bool)
    >>> differs[::3, 5] = True
    >>> print(*locate(differs))
    column 5: 22 of its 64 elements
    """
    if np.count_nonzero(differs) < 2:
        return ()
    if differs.ndim < 2:
        differs = differs.reshape(1, -1)
    stack = differs.reshape(-1, *differs.shape[-2:])
    matrices = np.flatnonzero(stack.any(axis=(1, 2)))
    flat = np.asarray(stack.any(axis=0))
    size = len(matrices)
    found = []
    if len(stack) > 1 and size < len(stack):
        chosen = _axis(np.repeat(matrices, stack[matrices].sum(axis=(1, 2))), len(stack), "matrix", "matrices")
        if chosen is not None:
            held = int(stack.sum())
            found.append(Place(f"{chosen.text} of the stack", held, chosen.size * flat.size))
    rows, columns = np.nonzero(flat)
    place = _place(rows, columns, flat.shape) or _main_part(rows, columns, flat)
    if place is not None:
        inside = int(stack[:, *place[1]].sum()) if place[1] else int(stack.sum())
        found.append(Place(place[0], inside, place[2] * size))
    return tuple(found)


def _place(rows: Any, columns: Any, shape: tuple[int, ...]) -> tuple[str, Any, int] | None:
    """Return the text, the slices (None: the whole array) and the size of the place of all these mismatches."""
    if len(rows) < 2:
        return None
    tile = _tile(rows, columns, shape)
    down = _axis(rows, shape[0], "row", "rows") if shape[0] > 1 else None
    across = _axis(columns, shape[1], "column", "columns")
    elements = (down.size if down else shape[0]) * (across.size if across else shape[1])
    if tile is not None and tile[2] <= _LARGER * elements:
        return tile
    triangle = _diagonal(rows, columns, shape)
    if triangle is not None and triangle[2] < elements:
        return triangle
    if down is None and across is None:
        return None
    return ", ".join(line.text for line in (down, across) if line is not None), None, elements


def _axis(positions: NDArray[np.int64], length: int, one: str, several: str) -> _Line | None:
    """Return the least likely set of positions along one axis that holds all mismatches."""
    best = min(_lines(positions, length, one, several), key=lambda line: line.chance, default=None)
    return best if best is not None and best.chance < _CHANCE else None


def _lines(positions: NDArray[np.int64], length: int, one: str, several: str) -> Iterator[_Line]:
    n, unique = len(positions), np.unique(positions)

    def line(text: str, size: int, choices: float) -> _Line:
        return _Line(text, size, n * math.log(size / length) + math.log(choices))

    if len(unique) <= _FEW < length:
        name = f"{one} {unique[0]}" if len(unique) == 1 else f"{several} {', '.join(map(str, unique))}"
        yield line(name, len(unique), math.comb(length, len(unique)))
    low, high = int(unique[0]), int(unique[-1])
    if 1 < high - low + 1 <= _MAIN * length:
        last = next((f", the incomplete last tile of {t}" for t in SIZES if 0 < length % t <= length - low), "")
        last = last if high == length - 1 and any(low == length - length % t for t in SIZES if length % t) else ""
        yield line(f"{several} {low} to {high}{last}", high - low + 1, length * length / 2)
    for m in (m for m in _MODULI if m < length):
        residues = np.unique(positions % m)
        if len(residues) <= min(_FEW, m // 2):
            named = ", ".join(map(str, residues))
            sign = f"== {named}" if len(residues) == 1 else f"in {{{named}}}"
            size = int(sum((length - 1 - residue) // m + 1 for residue in residues.tolist()))
            yield line(f"{several} with {one} % {m} {sign}", size, math.comb(m, len(residues)) * len(_MODULI))


def _tile(rows: Any, columns: Any, shape: tuple[int, ...]) -> tuple[str, Any, int] | None:
    """Return the smallest tile that holds all mismatches."""
    for t in SIZES:
        top, left = int(rows[0]) // t * t, int(columns[0]) // t * t
        if (rows // t * t == top).all() and (columns // t * t == left).all():
            height, width = min(t, shape[0] - top), min(t, shape[1] - left)
            tiles = -(-shape[0] // t) * -(-shape[1] // t)
            chance = len(rows) * math.log(height * width / math.prod(shape)) + math.log(tiles * len(SIZES))
            if chance < _CHANCE and height < shape[0] and width < shape[1]:
                slices = np.s_[top : top + height, left : left + width]
                return f"tile {t}x{t} at ({top}, {left})", slices, height * width
            return None
    return None


def _diagonal(rows: Any, columns: Any, shape: tuple[int, ...]) -> tuple[str, Any, int] | None:
    n, size = len(rows), math.prod(shape)
    below = int(np.tri(shape[0], shape[1]).sum())
    diagonal = min(shape)
    for holds, text, elements in (
        ((rows == columns).all(), "the diagonal", diagonal),
        ((rows > columns).all(), "below the diagonal", below - diagonal),
        ((rows >= columns).all(), "on and below the diagonal", below),
        ((rows < columns).all(), "above the diagonal", size - below),
        ((rows <= columns).all(), "on and above the diagonal", size - below + diagonal),
    ):
        if holds and n * math.log(max(elements, 1) / size) + math.log(5) < _CHANCE:
            return text, None, elements
    return None


def _main_part(rows: Any, columns: Any, flat: NDArray[np.bool_]) -> tuple[str, Any, int] | None:
    """Return the row, the column or the tile that holds most of the mismatches."""
    n, shape = len(rows), flat.shape
    if n < 2 * _FEW:
        return None
    for counts, axis, name in ((flat.sum(1), 0, "row"), (flat.sum(0), 1, "column")):
        most = int(counts.argmax())
        if counts[most] >= _MAIN * n and shape[axis] > _FEW:
            slices: Any = np.s_[most, :] if axis == 0 else np.s_[:, most]
            return f"{name} {most}, with {counts[most]} of the {n} mismatches", slices, shape[1 - axis]
    for t in SIZES:
        if max(shape) <= t or min(shape) < 2:
            continue
        width = -(-shape[1] // t)
        counts = np.bincount(rows // t * width + columns // t)
        most = int(counts.argmax())
        if counts[most] >= _MAIN * n:
            top, left = most // width * t, most % width * t
            slices = np.s_[top : top + t, left : left + t]
            return (
                f"tile {t}x{t} at ({top}, {left}), with {counts[most]} of the {n} mismatches",
                slices,
                flat[slices].size,
            )
    return None
