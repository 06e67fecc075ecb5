"""Products of matrix units with a sparse A: two of four elements along K are stored, with their positions.

Source: NVIDIA PTX ISA, "Matrix multiply-accumulate operation using mma.sp instruction with sparse matrix A", section
"Sparse matrix storage", and wgmma.mma_async.sp. The instructions multiply the stored elements by the elements of B at
their positions: K products of the shape become K / 2. No order inside the sparse instructions is published, and none
was compared with a GPU: the products are summed as the dense unit sums those of a matrix with K / 2 columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.accumulation import AccumulationLike
from floatsim.arrays.array.conversion import array, read_floats
from floatsim.arrays.array.float_array import FloatArray, from_codes
from floatsim.arrays.array.types import Values
from floatsim.arrays.sums.products import matmul
from floatsim.formats import FormatLike
from floatsim.formats._validation import as_flag, as_word
from floatsim.quantization.products import integer_matmul

__all__ = ["SPARSITIES", "SparseMatrix", "Sparsity", "compress", "prune", "sparse_matmul"]

Array: TypeAlias = NDArray[Any]

_EXACT = 1 << 53
"""Whole numbers up to this magnitude are FP64 numbers."""

_GATHERED = 1 << 24
"""The elements of B that are gathered at a time: 64 MiB of FP32. Rows of A beyond them form the next batch."""


@dataclass(frozen=True)
class Sparsity:
    """A pattern of stored elements along K.

    Attributes
    ----------
    name : str
        "2:4", "1:2" or "4:8".
    group : int
        The elements of a group.
    stored : int
        The elements of a group that are stored.
    unit : int
        The neighbours that are stored together: 2 in "4:8", whose positions are those of pairs.
    codes : tuple of int, optional
        The 4 bits of metadata of each position, if one position is stored in a group. None: 2 bits for each position.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.algorithms.SPARSITIES["4:8"]
    Sparsity(name='4:8', group=8, stored=4, unit=2, codes=None)
    """

    name: str
    group: int
    stored: int
    unit: int = 1
    codes: tuple[int, ...] | None = None

    @property
    def places(self) -> int:
        """The positions of a group.

        >>> SPARSITIES["4:8"].places
        4
        """
        return self.group // self.unit

    @property
    def kept(self) -> int:
        """The positions of a group that are stored.

        >>> SPARSITIES["4:8"].kept
        2
        """
        return self.stored // self.unit

    @property
    def columns_of_word(self) -> int:
        """The columns of A whose positions fill 32 bits of metadata: 4 bits for each group.

        >>> [each.columns_of_word for each in SPARSITIES.values()]
        [32, 16, 64]
        """
        return 8 * self.group


SPARSITIES = {
    each.name: each
    for each in (
        Sparsity("2:4", 4, 2),
        Sparsity("1:2", 2, 1, codes=(0b0100, 0b1110)),
        Sparsity("4:8", 8, 4, unit=2),
    )
}
"""The patterns of `mma.sp` by name: "2:4" for operands of 16 and 8 bits, "1:2" for TF32, "4:8" for 4 bits.

>>> import floatsim as fs
>>> list(fs.algorithms.SPARSITIES)
['2:4', '1:2', '4:8']
"""


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """The stored elements of a sparse matrix and their columns. `compress` and `SparseMatrix.from_metadata` return it.

    Attributes
    ----------
    values : FloatArray or int ndarray, (M, K / 2)
        The stored elements of each row.
    positions : int8 ndarray, (M, K / 2 / unit)
        The position in its group of each stored element, or pair in "4:8".
    sparsity : Sparsity
        The pattern.

    Examples
    --------
    >>> import floatsim as fs
    >>> a = fs.algorithms.compress(fs.array([[0.0, 3.0, 0.0, 5.0]], "fp16"))
    >>> a.values, a.positions.tolist()
    (FloatArray([[3.0, 5.0]], FP16), [[1, 3]])
    """

    values: Any
    positions: NDArray[np.int8]
    sparsity: Sparsity

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (M, K) of the matrix with its zeros.

        >>> import numpy as np
        >>> compress(np.zeros((2, 8), np.int8)).shape
        (2, 8)
        """
        rows, stored = self.values.shape
        return rows, stored * self.sparsity.group // self.sparsity.stored

    @property
    def columns(self) -> NDArray[np.int64]:
        """The column of each stored element, (M, K / 2).

        >>> import numpy as np
        >>> compress(np.int8([[0, 3, 0, 5, 0, 0, 7, 0]])).columns
        array([[1, 3, 4, 6]])
        """
        sparsity = self.sparsity
        firsts = np.arange(self.positions.shape[1]) // sparsity.kept * sparsity.group
        units = firsts + sparsity.unit * self.positions.astype(np.int64)
        return (units[:, :, np.newaxis] + np.arange(sparsity.unit)).reshape(self.values.shape)

    @property
    def metadata(self) -> NDArray[np.uint32]:
        """The positions of each row as the words of PTX, (M, words): the first position in the lowest bits.

        An instruction with K columns of the shape reads K * 4 / group bits of each row. The distribution of the words
        over the threads of a warp is not part of this.

        Raises
        ------
        ValueError
            If K does not fill the last word.

        Examples
        --------
        >>> import numpy as np
        >>> a = compress(np.tile(np.int8([0, 3, 0, 5]), 8)[np.newaxis])
        >>> [hex(word) for word in a.metadata[0]]
        ['0xdddddddd']
        """
        rows, k = self.shape
        sparsity = self.sparsity
        if k % sparsity.columns_of_word:
            raise ValueError(
                f"K={k} does not fill words of metadata; K must be a multiple of {sparsity.columns_of_word} for "
                f"{sparsity.name!r}"
            )
        grouped = self.positions.reshape(rows, k // sparsity.group, sparsity.kept).astype(np.uint32)
        if sparsity.codes is not None:
            bits = np.asarray(sparsity.codes, np.uint32)[grouped[..., 0]]
        else:
            bits = grouped[..., 0] | grouped[..., 1] << np.uint32(2)
        shifts = 4 * np.arange(8, dtype=np.uint32)
        words: NDArray[np.uint32] = np.bitwise_or.reduce(
            bits.reshape(rows, k // sparsity.columns_of_word, 8) << shifts, axis=-1
        )
        return words

    @classmethod
    def from_metadata(
        cls, values: Values, metadata: Any, sparsity: str = "2:4", *, ordered: bool = True
    ) -> SparseMatrix:  # fmt: skip
        """Return the matrix of stored elements and words of metadata.

        Parameters
        ----------
        values : array_like, (M, K / 2)
            The stored elements: numbers of a format, or integers.
        metadata : array_like of int, (M, words)
            As `metadata` returns it.
        sparsity : str
            "2:4", "1:2" or "4:8".
        ordered : bool
            True: the positions of a group increase, as in the instructions with `.sp::ordered_metadata`. False: they
            only differ.

        Raises
        ------
        ValueError
            For metadata of another shape, and for a group whose behavior PTX leaves undefined, with its place.

        Examples
        --------
        >>> import floatsim as fs, numpy as np
        >>> values = fs.array(np.arange(16.0)[np.newaxis], "fp16")
        >>> a = fs.algorithms.SparseMatrix.from_metadata(values, [[0x44444444]])
        >>> a.dense()[0, :6].tolist()
        [0.0, 1.0, 0.0, 0.0, 2.0, 3.0]
        """
        pattern, stored = _pattern(sparsity), _read(values, "values")
        as_flag(ordered, "ordered")
        words = np.asarray(metadata)
        if words.dtype.kind not in "iu":
            raise TypeError(f"metadata must be integers, not {words.dtype}")
        if stored.ndim != 2:
            raise ValueError(f"values {stored.shape} must be a matrix (M, K / 2)")
        k = stored.shape[1] * pattern.group // pattern.stored
        due = stored.shape[0], k // pattern.columns_of_word
        if k % pattern.columns_of_word or words.shape != due:
            raise ValueError(
                f"values {stored.shape} and metadata {words.shape} do not fit: {pattern.name!r} has a word for every "
                f"{pattern.columns_of_word // 2} stored elements of a row"
            )
        if words.size and not (words.min() >= 0 and words.max() < 1 << 32):
            raise ValueError(f"metadata must be words of 32 bits, not {words.min()} to {words.max()}")
        split = words.astype(np.uint32)[:, :, np.newaxis] >> 4 * np.arange(8, dtype=np.uint32) & 15
        nibbles = split.reshape(due[0], 8 * due[1])
        if pattern.codes is not None:
            known = np.full(16, -1, np.int8)
            known[list(pattern.codes)] = np.arange(len(pattern.codes))
            positions = known[nibbles]
            wrong, valid = positions < 0, ", ".join(f"0b{code:04b}" for code in pattern.codes)
        else:
            low, high = nibbles & 3, nibbles >> 2
            positions = np.stack([low, high], axis=-1).astype(np.int8).reshape(due[0], 16 * due[1])
            wrong = low >= high if ordered else low == high
            valid = "two increasing positions" if ordered else "two different positions"
        if wrong.any():
            row, group = (int(n) for n in np.argwhere(wrong)[0])
            raise ValueError(
                f"metadata of row {row}, group {group} is 0b{int(nibbles[row, group]):04b}; "
                f"{pattern.name!r} has {valid}"
            )
        return cls(stored, positions, pattern)

    def dense(self) -> Any:
        """Return the matrix with its zeros: a FloatArray, or an ndarray of integers.

        >>> import numpy as np
        >>> compress(np.int8([[0, 3, 0, 5]])).dense()
        array([[0, 3, 0, 5]], dtype=int8)
        """
        codes = self.values.codes if isinstance(self.values, FloatArray) else self.values
        found = np.zeros(self.shape, codes.dtype)
        np.put_along_axis(found, self.columns, codes, axis=1)
        return from_codes(found, self.values.format) if isinstance(self.values, FloatArray) else found


def _pattern(sparsity: Any) -> Sparsity:
    return SPARSITIES[as_word(sparsity, "sparsity", tuple(SPARSITIES))]


def _read(x: Any, argument: str) -> Any:
    """Return integers as they are, and floating-point numbers as a FloatArray."""
    if isinstance(x, np.ndarray) and x.dtype.kind in "iu":
        return x
    codes, fmt, _ = read_floats(x, argument)
    if not fmt.has_zero:
        raise TypeError(f"{argument} is in {fmt.name}, which has no zero for the elements that are not stored")
    return from_codes(codes, fmt)


def _read_as(x: Any, floats: bool, argument: str) -> Any:
    """Return an operand beside floating-point numbers, or beside integers: lists of whole numbers are integers, too."""
    return _read(np.asarray(x) if not floats and isinstance(x, int | list | tuple) else x, argument)


def _units(x: Any, pattern: Sparsity, argument: str) -> Array:
    """Return the values (..., groups, places, unit) of a matrix whose last axis is K."""
    if x.ndim < 1 or x.shape[-1] % pattern.group:
        raise ValueError(f"{argument} {x.shape}: K must be a multiple of {pattern.group} for {pattern.name!r}")
    numbers = np.asarray(array(x, "fp64")) if isinstance(x, FloatArray) else x
    units: Array = numbers.reshape(*x.shape[:-1], x.shape[-1] // pattern.group, pattern.places, pattern.unit)
    return units


def prune(x: Values, sparsity: str = "2:4") -> Any:
    """Return x with the smallest magnitudes of each group along the last axis set to zero.

    Parameters
    ----------
    x : array_like, (..., K)
        Numbers of a format, or an ndarray of integers.
    sparsity : str
        "2:4": two of four elements stay. "1:2": one of two. "4:8": two pairs of four, those with the largest sums of
        magnitudes. Of equal magnitudes the first stay. NaN counts as larger than every number. The sums are exact,
        except those beyond FP64.

    Returns
    -------
    FloatArray, or ndarray of integers
        Of x's format and shape. Elements that are dropped become +0.

    Raises
    ------
    TypeError
        If x is in a format without zero, such as E8M0.
    ValueError
        If K is no multiple of the group, or the pattern unknown; for integers beyond 2**53.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.algorithms.prune(fs.array([1.0, -4.0, 2.0, 3.0], "fp16"))
    FloatArray([0.0, -4.0, 0.0, 3.0], FP16)
    """
    pattern, read = _pattern(sparsity), _read(x, "x")
    units = _units(read, pattern, "x")
    magnitudes = np.abs(units.astype(np.float64))
    if not isinstance(read, FloatArray) and (magnitudes >= _EXACT).any() and np.abs(read.astype(object)).max() > _EXACT:
        raise ValueError("x has integers beyond 2**53; the instructions take integers of 4 and 8 bits")
    left: Any = magnitudes[..., 0]
    right: Any = magnitudes[..., 1] if pattern.unit == 2 else np.float64(0)
    with np.errstate(over="ignore", invalid="ignore"):
        size = left + right
        other = size - left
        rest = (left - (size - other)) + (right - other)  # size + rest is the exact sum (Knuth's TwoSum)
    nan = np.isnan(size)
    keys = [-np.where(np.isfinite(size), rest, 0), -np.where(nan, 0, size), ~nan]  # the last key is the first
    first = np.lexsort(keys, axis=-1)
    stays = np.zeros(size.shape, bool)
    np.put_along_axis(stays, first[..., : pattern.kept], True, axis=-1)
    mask = np.repeat(stays, pattern.unit, axis=-1).reshape(read.shape)
    if isinstance(read, FloatArray):
        return from_codes(np.where(mask, read.codes, read.codes.dtype.type(0)), read.format)
    return np.where(mask, read, read.dtype.type(0))


def compress(x: Values, sparsity: str = "2:4") -> SparseMatrix:
    """Return the stored elements of a matrix that has the pattern already.

    Parameters
    ----------
    x : array_like, (M, K)
        Numbers of a format, or an ndarray of integers.
    sparsity : str
        "2:4", "1:2" or "4:8".

    Returns
    -------
    SparseMatrix
        A group with fewer nonzero elements than the pattern stores also stores zeros at its first other positions.

    Raises
    ------
    ValueError
        If a group has more nonzero elements, with its row and columns; if x is no matrix; if K is no multiple of the
        group.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> try:
    ...     fs.algorithms.compress(np.int8([[0, 3, 0, 5, 1, 2, 0, 4]]))
    ... except ValueError as error:
    ...     print(error)
    x is not 2:4: row 0, columns 4 to 7 have 3 nonzero elements, and 2 are stored; see fs.algorithms.prune
    """
    pattern, read = _pattern(sparsity), _read(x, "x")
    if read.ndim != 2:
        raise ValueError(f"x {read.shape} must be a matrix (M, K)")
    used = (_units(read, pattern, "x") != 0).any(axis=-1)  # NaN is not equal to zero
    over = used.sum(axis=-1) > pattern.kept
    if over.any():
        row, group = (int(n) for n in np.argwhere(over)[0])
        word = "nonzero elements" if pattern.unit == 1 else "nonzero pairs"
        first = group * pattern.group
        raise ValueError(
            f"x is not {pattern.name}: row {row}, columns {first} to {first + pattern.group - 1} have "
            f"{int(used[row, group].sum())} {word}, and {pattern.kept} are stored; see fs.algorithms.prune"
        )
    chosen = np.sort(np.argsort(~used, axis=-1, kind="stable")[..., : pattern.kept], axis=-1)
    positions = chosen.astype(np.int8).reshape(used.shape[0], used.shape[1] * pattern.kept)
    empty = SparseMatrix(np.empty((read.shape[0], read.shape[1] // 2), np.int8), positions, pattern)
    codes = read.codes if isinstance(read, FloatArray) else read
    values = np.take_along_axis(codes, empty.columns, axis=1)
    stored = from_codes(values, read.format) if isinstance(read, FloatArray) else values
    return SparseMatrix(stored, positions, pattern)


def sparse_matmul(
    a: SparseMatrix, b: Values, c: Values | None = None, *, accumulate: AccumulationLike | None = None,
    format: FormatLike | None = None, instruction: str | None = None,
) -> Any:  # fmt: skip
    """Return the product of a sparse matrix and a matrix: each row of A with the rows of B at its stored columns.

    The sum of a result has K / 2 products, in the order in which the elements are stored, and is that of `fs.matmul`
    (or `fs.quantization.integer_matmul`) for a dense matrix with K / 2 columns. An infinite or NaN element of B at a
    column that is not stored has no effect.

    Parameters
    ----------
    a : SparseMatrix, (M, K)
        The result of `compress` or `SparseMatrix.from_metadata`.
    b : array_like, (K, N)
        Numbers of a format, or integers, as those of a.
    c : array_like, optional
        An addend, broadcastable to (M, N).
    accumulate : description, format or text, optional
        The sum of the K / 2 products, such as "hopper". As in `fs.matmul`. For numbers of a format only.
    format : format, optional
        The format of the result, as in `fs.matmul`. For numbers of a format only.
    instruction : str, optional
        The dense integer instruction with half the K of the sparse one: "mma.m16n8k32.s8.s8" for
        mma.sp.m16n8k64. For integers only.

    Returns
    -------
    FloatArray or int32 ndarray, (M, N)

    Raises
    ------
    TypeError
        If a is no SparseMatrix, or if an argument is of the other kind of numbers.
    ValueError
        For shapes that do not fit.

    Notes
    -----
    The structure is that of the PTX ISA. The sums inside the sparse instructions are not published, and no sparse
    instruction was compared with a GPU. Integer sums that wrap have one result in every order.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> a = fs.algorithms.compress(fs.array([[0.0, 3.0, 0.0, 5.0]], "fp16"))
    >>> b = fs.array([[np.inf], [1.0], [np.nan], [2.0]], "fp16")
    >>> fs.algorithms.sparse_matmul(a, b, accumulate="hopper")
    FloatArray([[13.0]], FP32)
    """
    if not isinstance(a, SparseMatrix):
        raise TypeError(f"a must be a SparseMatrix, not {type(a).__name__}; fs.algorithms.compress returns one")
    floats = isinstance(a.values, FloatArray)
    right = _read_as(b, floats, "b")
    if floats != isinstance(right, FloatArray):
        kinds = ["integers", "numbers of a format"]
        raise TypeError(f"a has {kinds[floats]}, and b has {kinds[not floats]}")
    if not floats and (accumulate is not None or format is not None):
        raise TypeError("accumulate= and format= are for numbers of a format; integers have instruction=")
    if floats and instruction is not None:
        raise TypeError("instruction= is for integers; numbers of a format have accumulate=")
    rows, k = a.shape
    if right.ndim != 2 or right.shape[0] != k:
        raise ValueError(f"a {a.shape} and b {right.shape} do not fit: b is (K, N) with K={k}")
    n = right.shape[1]
    addend = None if c is None else _addend(_read_as(c, floats, "c"), (rows, n), floats)
    columns, codes = a.columns, right.codes if floats else right
    step, parts = max(1, _GATHERED // max(1, columns.shape[1] * n)), []
    for first in range(0, max(rows, 1), step):
        some = slice(first, first + step)
        gathered = codes[columns[some]]
        left = a.values[some][:, np.newaxis, :]
        start = None if addend is None else addend[some][:, np.newaxis, :]
        if floats:
            part = matmul(left, from_codes(gathered, right.format), start, accumulate=accumulate, format=format)
            parts.append(part)
        else:
            parts.append(integer_matmul(left, gathered, start, instruction=instruction))
    if not floats:
        return np.concatenate(parts)[:, 0]
    return from_codes(np.concatenate([part.codes for part in parts])[:, 0], parts[0].format)


def _addend(c: Any, shape: tuple[int, int], floats: bool) -> Any:
    if floats != isinstance(c, FloatArray):
        raise TypeError("c must have the kind of numbers of a: numbers of a format, or integers")
    codes = c.codes if isinstance(c, FloatArray) else c
    try:
        whole = np.broadcast_to(codes, shape)
    except ValueError:
        raise ValueError(f"c {codes.shape} does not fit the result {shape}") from None
    return from_codes(whole, c.format) if isinstance(c, FloatArray) else whole
