"""Sums of single long vectors by kernels that read packed codes, with a loop for each accumulation.

The matrix kernels sum many results at the same time, one in each lane of a vector register. A single result has no
lanes to offer. Here lanes come from the accumulation itself, from neighbouring blocks, or from many terms whose
additions do not depend on their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from floatsim_kernels.reduce import vector as loops
from floatsim_kernels.runtime import cpu

from floatsim._types import Codes, Floats, Indices, Seeds
from floatsim.accumulation import (
    Accumulation,
    Blocked,
    Composite,
    Converted,
    Leaf,
    Pairwise,
    Permuted,
    ProductLeaf,
    Sequential,
    SplitK,
    Strided,
    settled,
)
from floatsim.accumulation.composites import Runs
from floatsim.accumulation.partition import is_dealt
from floatsim.emulator.dispatch.kernel import Case, Planned, Work
from floatsim.emulator.dispatch.operands import Operand, Partials, Source, Values
from floatsim.emulator.proofs import product_rounds_once
from floatsim.emulator.unpack import pack, unpack
from floatsim.formats import BF16, FP16, FP32, FP64, FloatFormat
from floatsim.formats.rounding import Overflow, Rounding, RoundingAttributes
from floatsim.formats.value_sets import TermRange, contains

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["VectorKernel", "Vectors", "running_sums", "running_sums_refusal"]

_GRIDS: dict[FloatFormat, Any] = {
    FP16: loops.FP16Accumulator(),
    BF16: loops.BF16Accumulator(),
    FP32: loops.FP32Accumulator(),
    FP64: loops.FP64Accumulator(),
}


_RUN, _PIECE = 256, 4096  # terms: of a block of the kernel for other orders, and of its table if the order repeats
_FAR = 1 << 16  # terms of a group beyond the second-level cache: two operands, one after the other, miss it less often

# -- vectors in the layout of the kernels ------------------------------------------------------------------------------


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

    def buffer(self) -> _Values:
        """Return room for the values of a block."""
        return _Values(np.zeros(_RUN, self.data.dtype), self.format)

    def permuted(self, order: Permuted, length: int) -> _Values:
        """Return rows of `length` values, each in another order."""
        rows = self.data.reshape(-1, length)
        found = np.empty(rows.shape, rows.dtype)
        moves = _moves(order, length)
        loops.rearrange(rows, moves.pieces, moves.table, found)
        return _Values(found.reshape(-1), self.format)

    def backwards(self) -> _Values:
        """Return a view whose source reads from the last value to the first."""
        return _Values(self.data[::-1], self.format)

    def source(self, leaf: Leaf) -> Any:
        if self.data.strides[0] < 0:
            return loops.Backwards(self.backwards().source(leaf), self.size - 1)
        data = np.ascontiguousarray(self.data)
        if data.dtype.kind == "f":
            return loops.Values(data)
        if self.format in (FP32, FP64):
            return loops.Values(data.view(f"f{data.itemsize}"))
        if self.format == BF16:
            return loops.BF16Codes(data)
        if self.format == FP16 and cpu.has_half_conversion():
            return loops.FP16Codes(data)
        carrier = _carrier(self.format)
        if self.format.bits <= 8:
            return loops.TableCodes(data, _all_values(self.format, carrier))
        return loops.Values(unpack(data, self.format, carrier))


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

    def buffer(self) -> _Products:
        """Return room for the products of a block."""
        return _Products(self.a.buffer(), self.b.buffer())

    def permuted(self, order: Permuted, length: int) -> _Products:
        """Return rows of `length` products, each in another order."""
        return _Products(self.a.permuted(order, length), self.b.permuted(order, length))

    def backwards(self) -> _Products:
        """Return a view whose source reads from the last product to the first."""
        return _Products(self.a.backwards(), self.b.backwards())

    def source(self, leaf: Leaf) -> Any:
        assert isinstance(leaf, ProductLeaf)
        grid = _GRIDS[_carrier(leaf.format) if leaf.product is None else leaf.product]
        return loops.Products(self.a.source(leaf), self.b.source(leaf), grid)


_Vector: TypeAlias = _Values | _Products


class _Moves(NamedTuple):
    """An order of terms as the kernels read it: `loops.reordered` documents the fields."""

    pieces: Indices
    table: NDArray[np.int32]
    every: int = _RUN
    own: bool = False


@lru_cache(maxsize=16)
def _moves(order: Permuted, n: int) -> _Moves:
    """Return the moves of n terms."""
    if order.group is None:
        lanes = order.lanes or 1
        ends = [(lane, -(-(n - lane) // lanes)) for lane in range(min(lanes, n))]
        rows = [(lane + i * lanes, 0, min(_PIECE, count - i)) for lane, count in ends for i in range(0, count, _PIECE)]
        table = np.arange(0, _PIECE * lanes, lanes, dtype=np.int32)
        if order.lanes is None:  # reversed
            return _Moves(_pieces([(n - 1 - base, start, stop) for base, start, stop in rows]), -table)
        return _Moves(_pieces(rows), table)
    group = np.array(order.group, np.int32)
    every = max(_RUN // len(group), 1) * len(group)
    size = max(_PIECE // every, 1) * every
    whole = n - n % len(group)
    table = (np.arange(0, size, len(group), dtype=np.int32)[:, np.newaxis] + group).reshape(-1)
    rows = [(base, 0, min(size, whole - base)) for base in range(0, whole, size)]
    if n > whole:
        rows.append((whole, size, size + n - whole))
        table = np.concatenate([table, np.arange(n - whole, dtype=np.int32)])
    return _Moves(_pieces(rows), table, min(every, _RUN), every <= _RUN)


def _pieces(rows: list[tuple[int, int, int]]) -> Indices:
    return np.array(rows, np.int64).reshape(-1, 3)


@lru_cache(maxsize=64)
def _all_values(fmt: FloatFormat, carrier: FloatFormat) -> Floats:
    """Return the 256 values of all uint8 codes. Unused bits of a code are ignored."""
    return np.resize(unpack(fmt.codes(), fmt, carrier), 256)


def _carrier(fmt: FloatFormat) -> FloatFormat:
    return FP32 if contains(FP32, fmt, specials=False) else FP64


def _readable(fmt: FloatFormat) -> bool:
    return fmt != FP16 or cpu.has_half_conversion()


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

    def reordered(self, moves: _Moves) -> Floats:
        """The sum of all terms in another order."""
        out = self.new(1)
        self.run(loops.reordered, *moves, self.vector.buffer().source(self.leaf), out, self.new(_RUN))
        return out

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
    """Return the leaves of each node, and the nodes of each leaf, on the first small level of a tree "halving"."""
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


def _leaf_refusal(leaf: Accumulation, terms: TermRange, call: RoundingAttributes) -> str | None:
    """Return why these kernels do not sum the terms by a leaf."""
    if not isinstance(leaf, Sequential | Pairwise):
        return "only Sequential, Pairwise, and composites of these"
    fmt = leaf.format
    if fmt not in _GRIDS or not _readable(fmt):
        return f"no vector kernel for {fmt} on this processor"
    for attributes in settled(leaf, call):
        if (
            attributes.rounding is not Rounding.TIES_TO_EVEN
            or attributes.ftz
            or attributes.daz
            or attributes.overflow is not Overflow.INFINITY
        ):
            return "only ties to even, without saturation, FTZ and DAZ"
    entering = terms if terms.b is None else _entering(leaf, terms)
    if entering is None:
        return "products would be rounded twice, or in another format"
    if not contains(fmt, entering, specials=False):
        return f"terms are not all numbers of {fmt}"
    return None


def _entering(leaf: ProductLeaf, terms: TermRange) -> TermRange | None:
    """Return the terms after the rounding of products, or None where the kernels round them otherwise."""
    carrier = _carrier(leaf.format)
    if not all(contains(carrier, factor, specials=False) for factor in terms.factors):
        return None
    product = leaf.product
    if product is None:
        return terms
    if product not in _GRIDS or _carrier(product) != carrier or not _readable(product):
        return None
    return TermRange(product) if product == carrier or product_rounds_once(terms, product) else None


def _refusal(accumulation: Accumulation, terms: TermRange, call: RoundingAttributes) -> str | None:
    if isinstance(accumulation, Permuted):
        return _refusal(accumulation.inner, terms, call)
    if isinstance(accumulation, Converted):
        return "the terms are converted"
    if not isinstance(accumulation, Composite):
        return _leaf_refusal(accumulation, terms, call)
    if isinstance(accumulation, SplitK) and accumulation.through is not None:
        return "running sums are rounded to a format in memory"
    if is_dealt(accumulation):
        return "the parts are not consecutive terms"
    inner, outer = accumulation.inner, accumulation.outer
    if isinstance(accumulation, Strided) and not isinstance(inner, Sequential):
        return "lanes are summed by Sequential only"
    if inner.children:
        return "parts of parts, or parts in another order"
    return _leaf_refusal(inner, terms, call) or _refusal(outer, TermRange(inner.result_format), call)


def _sums(accumulation: Accumulation, vector: _Vector, length: int) -> Floats:
    """Return the sums of rows of `length` terms, one after the other in the vector."""
    if isinstance(accumulation, Leaf):
        return _Call(accumulation, vector).blocks(length)
    if isinstance(accumulation, Permuted):
        inner, far = accumulation.inner, len(accumulation.group or ()) > _FAR
        if not isinstance(inner, Sequential) or length < vector.size or far:
            return _sums(inner, vector.permuted(accumulation, length), length)
        if accumulation.order == "reversed":
            return _sums(inner, vector.backwards(), length)
        return _Call(inner, vector).reordered(_moves(accumulation, length))
    assert isinstance(accumulation, Composite)
    inner = accumulation.inner
    assert isinstance(inner, Leaf)
    if isinstance(accumulation, Strided):
        parts = _Call(inner, vector).lanes(accumulation.lanes, length)
        number = min(accumulation.lanes, length)
    else:
        assert isinstance(accumulation, Blocked | SplitK)
        runs = accumulation.runs(length)
        parts, number = _blocks(inner, vector, length, runs), sum(many for _, many in runs)
    return _sums(accumulation.outer, _Values(parts, inner.format), number)


def _blocks(inner: Leaf, vector: _Vector, length: int, runs: Runs) -> Floats:
    """Return the sums of the blocks of rows of `length` terms."""
    every = runs[0][0]
    regular = len(runs) == 1 or (len(runs) == 2 and runs[1][1] == 1 and runs[1][0] < every)
    if regular and (len(runs) == 1 or vector.size == length):
        return _Call(inner, vector).blocks(every)
    rows = [vector[i : i + length] for i in range(0, vector.size, length)]
    if regular:  # the last block of every row is short
        return np.concatenate([_Call(inner, row).blocks(every) for row in rows])
    found = []
    for row in rows:
        at = 0
        for each, many in runs:
            found.append(_Call(inner, row[at : at + each * many]).blocks(each))
            at += each * many
    return np.concatenate(found)


class VectorKernel:
    """An accumulation of rows of codes, or of the products of a row and a column, each for itself."""

    fast: ClassVar[bool] = True

    def __init__(self, case: Case) -> None:
        self._accumulation, self._format = case.accumulation, case.accumulation.result_format
        self._terms = case.terms

    def evaluate(self, work: Work, source: Source, ranges: Indices, seeds: Seeds, start: Operand | None) -> Partials:
        """Return the sums over the whole range; there is no c."""
        rows = math.prod(source.shape)
        if not source.length or not rows:
            return Partials(self._format, np.zeros((1, rows), self._format.code_dtype))
        if isinstance(source, Values):
            codes = np.ascontiguousarray(source.values.codes.T)
            vector: _Vector = _Values(codes.reshape(-1), self._terms.a)
            sums = _sums(self._accumulation, vector, source.length)
        else:
            a, b = self._terms
            assert b is not None
            pairs = [_Products(_Values(x, a), _Values(y, b)) for x, y in source.vectors()]
            sums = np.concatenate([_sums(self._accumulation, pair, source.length) for pair in pairs])
        return Partials(self._format, pack(sums, _carrier(self._format), self._format).reshape(1, -1))


class Vectors:
    """Few results of many terms each: FP16, BF16, FP32 and FP64, ties to even, without events and c."""

    name = "vectors"
    takes = (Sequential, Pairwise, Composite, Permuted)

    def refusal(self, case: Case) -> str | None:
        if not case.by_vectors:
            return "many results, few terms for each, events, or c"
        return case.float_refusal() or _refusal(case.accumulation, case.terms, case.rounding)

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> VectorKernel:
        return VectorKernel(case)


# -- running sums ------------------------------------------------------------------------------------------------------


def running_sums_refusal(accumulation: Sequential, fmt: FloatFormat, call: RoundingAttributes) -> str | None:
    """Return why `running_sums` does not carry out a scan of values of a format."""
    if not cpu.environment_is_default():
        return "this thread's floating-point environment flushes subnormals or does not round to nearest"
    return _leaf_refusal(accumulation, TermRange(fmt), call)


def running_sums(accumulation: Sequential, codes: Codes, fmt: FloatFormat) -> Codes:
    """Return the sums of the first 1, 2, ... elements of each column of codes, (K, columns).

    >>> ones = np.full((4, 1), 0x3C00, np.uint16)
    >>> [hex(code) for code in running_sums(Sequential(FP16), ones, FP16)[:, 0]]
    ['0x3c00', '0x4000', '0x4200', '0x4400']
    """
    call = _Call(accumulation, _Values(codes.reshape(-1), fmt))
    out = call.new(*codes.shape)
    call.run(loops.running, call.new(codes.shape[1]), out)
    return pack(out, _carrier(accumulation.format), accumulation.format)
