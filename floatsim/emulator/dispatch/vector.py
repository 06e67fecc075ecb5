"""Sums of one long vector by kernels that read its packed codes, where each description has a loop of its own.

The kernels of matrices take a sum's lanes from many results at once; a single result has none to offer. Here lanes come
from the description itself, from neighbouring blocks, or from many terms that may be added at once without a change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from floatsim_kernels.reduce import vector as loops
from floatsim_kernels.runtime import cpu as machine

from floatsim.accumulation import (
    Accumulation,
    Blocked,
    Leaf,
    Pairwise,
    ProductLeaf,
    Sequential,
    SplitK,
    Strided,
    leaves,
    settled,
)
from floatsim.emulator.unpack import narrow, widen
from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat
from floatsim.formats.rounding import Attributes, Overflow, Rounding
from floatsim.formats.value_sets import Terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["running_sums", "vector_dot", "vector_sums"]

Codes: TypeAlias = "NDArray[np.unsignedinteger[Any]]"
Floats: TypeAlias = "NDArray[np.floating[Any]]"

_GRIDS: dict[FloatFormat, Any] = {
    FP16: loops.HalfGrid(), BF16: loops.BfloatGrid(), FP32: loops.SingleGrid(), FP64: loops.DoubleGrid(),
}  # fmt: skip


def _holds(fmt: FloatFormat, terms: Terms) -> bool:
    """Whether every term is a number of the format, or beyond its largest in no case but infinity."""
    own = Terms(fmt)
    return terms.precision <= own.precision and terms.lowest >= own.lowest and terms.highest <= own.highest


# -- vectors as the kernels want to see them ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Values:
    """Codes, or floats that hold the values of a format."""

    data: NDArray[Any]
    format: FloatFormat

    @property
    def size(self) -> int:
        return len(self.data)

    def __getitem__(self, part: slice) -> _Values:
        return _Values(self.data[part], self.format)

    def terms(self, leaf: Leaf) -> Terms | None:
        return Terms(self.format)

    def source(self, leaf: Leaf) -> Any:
        data = np.ascontiguousarray(self.data)
        if data.dtype.kind == "f":
            return loops.Floats(data)
        if self.format in (FP32, FP64):
            return loops.Floats(data.view(f"f{data.itemsize}"))
        if self.format == BF16:
            return loops.Bfloats(data)
        if self.format == FP16 and machine.has_f16c():
            return loops.Halves(data)
        carrier = _carrier(self.format)
        if self.format.bits <= 8:
            return loops.Listed(data, _all_values(self.format, carrier))
        return loops.Floats(widen(data, self.format, carrier))


@dataclass(frozen=True)
class _Products:
    """The products of two vectors' elements, as the leaf that adds them rounds them."""

    a: _Values
    b: _Values

    @property
    def size(self) -> int:
        return self.a.size

    def __getitem__(self, part: slice) -> _Products:
        return _Products(self.a[part], self.b[part])

    def terms(self, leaf: Leaf) -> Terms | None:
        """None where the kernels' products would be rounded twice, or otherwise than the leaf says."""
        assert isinstance(leaf, ProductLeaf)
        exact, carrier = Terms(self.a.format, self.b.format), _carrier(leaf.format)
        if not all(_holds(carrier, Terms(x.format)) for x in (self.a, self.b)):
            return None
        if leaf.product is None:
            return exact if _holds(carrier, exact) else None
        if leaf.product not in _GRIDS or _carrier(leaf.product) != carrier or not _readable(leaf.product):
            return None
        # BF16's subnormals are few bits above float32's: wide products among them would be rounded twice
        double = leaf.product == BF16 and exact.precision > 16 and exact.lowest < Terms(FP32).lowest
        twice = leaf.product != carrier and (exact.precision > carrier.precision or double)
        return None if twice else Terms(leaf.product)

    def source(self, leaf: Leaf) -> Any:
        assert isinstance(leaf, ProductLeaf)
        grid = _GRIDS[_carrier(leaf.format) if leaf.product is None else leaf.product]
        return loops.Products(self.a.source(leaf), self.b.source(leaf), grid)


_Vector: TypeAlias = _Values | _Products


@lru_cache(maxsize=64)
def _all_values(fmt: FloatFormat, carrier: FloatFormat) -> Floats:
    """By code: 256 values, so that every uint8 is an index. Unused bits of a code do not count."""
    return np.resize(widen(fmt.codes(), fmt, carrier), 256)


def _carrier(fmt: FloatFormat) -> FloatFormat:
    return FP32 if _holds(FP32, Terms(fmt)) else FP64


def _readable(fmt: FloatFormat) -> bool:
    return fmt != FP16 or machine.has_f16c()


# -- leaves ------------------------------------------------------------------------------------------------------------

_BLOCK, _COLUMNS = 4096, 2048  # terms, and nodes of a tree, that stay in the cache
_MANY = 16  # blocks that are worth adding beside each other


@dataclass(frozen=True)
class _Call:
    """A leaf at work on a vector: the kernels' arguments, and how many terms there are."""

    leaf: Leaf
    vector: _Vector

    @property
    def dtype(self) -> Any:
        return _carrier(self.leaf.format).dtype

    def new(self, *shape: int) -> Floats:
        return np.zeros(shape, self.dtype)

    def run(self, kernel: Callable[..., None], *rest: Any) -> None:
        kernel(self.vector.source(self.leaf), _GRIDS[self.leaf.format], *rest)

    def lanes(self, number: int, every: int) -> Floats:
        """The sums of the lanes of blocks of `every` terms, one block after the other; no lane is empty."""
        acc = self.new(-(-self.vector.size // every), min(number, every))
        self.run(loops.lanes, self.vector.size, every, acc)
        return acc.reshape(-1)

    def blocks(self, every: int) -> Floats:
        """The sums of blocks of `every` terms."""
        out = self.new(-(-self.vector.size // every))
        if isinstance(self.leaf, Pairwise):
            self._trees(out, every)
        else:
            self._chains(out, every)
        return out

    def _chains(self, out: Floats, every: int) -> None:
        whole = self.vector.size // every
        done = whole if whole >= _MANY else 0
        if done:
            self.run(loops.sequential_blocks, every, out[:done], self.new(32, 64))
        rest = _Call(self.leaf, self.vector[done * every :])
        if done < len(out):
            rest.run(loops.sequential, rest.vector.size, every, out[done:], self.new(256))

    def _trees(self, out: Floats, every: int) -> None:
        assert isinstance(self.leaf, Pairwise)
        if self.leaf.tree == "numpy":
            self.run(loops.numpy_tree, self.vector.size, every, out, self.new(576))
        elif every > _BLOCK:
            for i in range(len(out)):
                part = _Call(self.leaf, self.vector[i * every : (i + 1) * every])
                out[i] = part._large_tree()
        elif self.leaf.tree == "halving":
            self.run(loops.halving, self.vector.size, every, out, self.new(every // 2 + 1))
        else:
            self.run(loops.adjacent, self.vector.size, every, out, *self._scratch(every))

    def _scratch(self, every: int) -> tuple[Any, Any]:
        """Two rows of packed numbers, and the same memory as pairs of them."""
        packed = self.leaf.format in (FP16, BF16)
        scratch = np.zeros((2, every + every % 2), np.uint16 if packed else self.dtype)
        return scratch, scratch.view(f"u{2 * scratch.itemsize}") if packed else scratch

    def _large_tree(self) -> Any:
        """A tree's upper levels are a tree over the nodes of a lower level, which are made first."""
        assert isinstance(self.leaf, Pairwise)
        n = self.vector.size
        if n <= _BLOCK:
            return self.blocks(max(n, 1))[0]
        if self.leaf.tree == "adjacent":
            nodes = self.blocks(_BLOCK)
        else:
            offsets, limits = _columns(n)
            nodes = self.new(int(limits[0]))
            stack = self.new(len(offsets).bit_length(), _COLUMNS)
            self.run(loops.halving_columns, offsets, limits, int(limits.min()), nodes, stack)
        return _Call(self.leaf, _Values(nodes, self.leaf.format))._large_tree()


@lru_cache(maxsize=8)
def _columns(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the leaves of a node lie, and which nodes have each, on the first small level of a tree "halving"."""
    sizes = [n]
    while sizes[-1] > 2 * _BLOCK:
        sizes.append(-(-sizes[-1] // 2))
    if len(sizes) == 1:
        sizes.append(-(-n // 2))
    offsets, limits = np.zeros(1, np.int64), np.array([sizes[-1]], np.int64)
    for above, size in zip(sizes[-2::-1], sizes[:0:-1], strict=True):
        limits = np.stack([limits, np.minimum(limits, above - offsets - size)], axis=1).reshape(-1)
        offsets = np.stack([offsets, offsets + size], axis=1).reshape(-1)
    return offsets, limits


# -- descriptions ------------------------------------------------------------------------------------------------------

_PLAIN = Attributes()


def _can_add(leaf: Leaf, vector: _Vector, attributes: Attributes) -> bool:
    if type(leaf) not in (Sequential, Pairwise) or leaf.format not in _GRIDS or not _readable(leaf.format):
        return False
    for how in settled(leaf, attributes):
        if how.rounding is not Rounding.TIES_TO_EVEN or how.ftz or how.daz or how.overflow is not Overflow.INFINITY:
            return False
    terms = vector.terms(leaf)
    return terms is not None and _holds(leaf.format, terms)


def _sums(how: Accumulation, vector: _Vector, length: int, attributes: Attributes) -> Floats | None:
    """The sums of rows of `length` terms, one after the other in the vector; None where there is no fast way."""
    if isinstance(how, Leaf):
        return _Call(how, vector).blocks(length) if _can_add(how, vector, attributes) else None
    inner = how.inner if isinstance(how, Strided | Blocked | SplitK) else None
    if not isinstance(inner, Leaf) or not _can_add(inner, vector, attributes):
        return None
    call = _Call(inner, vector)
    if isinstance(how, Strided):
        if not isinstance(inner, Sequential):
            return None
        parts, number = call.lanes(how.lanes, length), min(how.lanes, length)
    else:
        assert isinstance(how, Blocked | SplitK)
        every = min(how.every, length) if isinstance(how, Blocked) else -(-length // how.parts)
        number = -(-length // every)
        if length % every == 0 or vector.size == length:
            parts = call.blocks(every)
        else:  # the last block of every row is short
            rows = range(0, vector.size, length)
            parts = np.concatenate([_Call(inner, vector[i : i + length]).blocks(every) for i in rows])
    return _sums(how.outer, _Values(parts, inner.format), number, attributes)


def _codes(how: Accumulation, vector: _Vector, length: int, attributes: Attributes) -> Codes | None:
    if not machine.environment_is_default():
        return None
    sums = _sums(how, vector, length, attributes)
    fmt = how.result_format
    return None if sums is None else narrow(sums, _carrier(fmt), fmt)


def vector_sums(how: Accumulation, codes: Codes, fmt: FloatFormat, attributes: Attributes) -> Codes | None:
    """The sums of the rows of codes, (rows, K), as described, in the call's manner; None where there is no fast way.

    No events and no c. Ties to even, the default overflow, and neither FTZ nor DAZ have fast ways, in FP16, BF16, FP32
    and FP64, for Sequential, Pairwise, Strided lanes of Sequential, and blocks of either.

    >>> from floatsim.accumulation import parse
    >>> ones = np.full((1, 4096), 0x3C00, np.uint16)
    >>> [hex(vector_sums(parse(text), ones, FP16, Attributes())[0]) for text in ("fp16", "strided(fp16, 8)")]
    ['0x6800', '0x6c00']
    """
    rows, length = codes.shape
    if not codes.size:
        return np.zeros(rows, how.result_format.code_dtype)
    return _codes(how, _Values(codes.reshape(-1), fmt), length, attributes)


def vector_dot(
    how: Accumulation, a: Codes, a_format: FloatFormat, b: Codes, b_format: FloatFormat, attributes: Attributes
) -> int | None:
    """As `vector_sums`, of the products of two vectors' elements.

    >>> from floatsim.accumulation import parse
    >>> ones = np.full(4096, 0x3C00, np.uint16)
    >>> hex(vector_dot(parse("pairwise(fp16)"), ones, FP16, ones, FP16, Attributes()))
    '0x6c00'
    """
    if not all(isinstance(leaf, ProductLeaf) for leaf in leaves(how)):
        return None
    if not len(a):
        return 0
    codes = _codes(how, _Products(_Values(a, a_format), _Values(b, b_format)), len(a), attributes)
    return None if codes is None else int(codes[0])


def running_sums(how: Sequential, codes: Codes, fmt: FloatFormat, attributes: Attributes) -> Codes | None:
    """The sums of the first 1, 2, ... elements of each column, (K, columns); None where there is no fast way.

    >>> ones = np.full((4, 1), 0x3C00, np.uint16)
    >>> [hex(code) for code in running_sums(Sequential(FP16), ones, FP16, Attributes())[:, 0]]
    ['0x3c00', '0x4000', '0x4200', '0x4400']
    """
    vector = _Values(codes.reshape(-1), fmt)
    if not machine.environment_is_default() or not _can_add(how, vector, attributes):
        return None
    call = _Call(how, vector)
    out = call.new(*codes.shape)
    call.run(loops.running, call.new(codes.shape[1]), out)
    return narrow(out, _carrier(how.format), how.format)
