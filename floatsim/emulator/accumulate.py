"""Carries out accumulations: composites cut K into ranges, and one kernel call sums a leaf over all of them.

The terms of a sum come from a *source*: products of two matrices, or values. A composite evaluates its inner
description over the sub-ranges of each range, and its outer one over the results, a source of values in their turn.
"""

from __future__ import annotations

import copy
import math
import threading
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from floatsim_kernels.gemm import integer as sums
from floatsim_kernels.runtime import cpu as machine

from floatsim import reference
from floatsim.accumulation import (
    Accumulation,
    Blocked,
    Exact,
    Kahan,
    Leaf,
    Neumaier,
    Pairwise,
    ProductLeaf,
    Sequential,
    SplitK,
    Strided,
    TensorCore,
    leaves,
    rounds_stochastically,
    settled,
    trees,
)
from floatsim.accumulation import partition as cuts
from floatsim.emulator import parallel as tiles
from floatsim.emulator import tensorcore as matrix_units
from floatsim.emulator.dispatch import candidates as choice
from floatsim.emulator.dispatch import counting as recorded
from floatsim.emulator.dispatch import vector as vectors
from floatsim.emulator.dispatch.kernel import FastLeaf
from floatsim.emulator.operands import Operand, Partials, Products, Source, Tile, Values
from floatsim.emulator.params import format_row, manner_row
from floatsim.emulator.tensorcore_operands import BlockScales
from floatsim.emulator.tiling import (
    FAST_TILE,
    GENERAL_TILE,
    MEMORY,
    RECORDED_TILE,
    WORTH_THREADS,
    lies_better_turned,
    tiles_of,
)
from floatsim.emulator.types import Codes, Floats, Indices, Seeds
from floatsim.emulator.unpack import widen
from floatsim.formats import FP32, FloatFormat
from floatsim.formats.call import Manner
from floatsim.formats.rounding import Attributes, Rounding
from floatsim.formats.value_sets import Terms

if TYPE_CHECKING:
    pass

__all__ = ["FIRST_EVENTS", "Operand", "Sums", "accumulate"]


FIRST_EVENTS = ("invalid", "nan", "overflow", "underflow", "flushed", "absorbed")
"""The events whose first k is kept, in the kernels' order."""
NEVER = np.iinfo(np.int64).max

# seeds of what is drawn besides a leaf's own sites: see `reference.split_seed`
LAST, OUTER, SEED, PARTS = 2, 3, 4, 16


# -- one evaluation ----------------------------------------------------------------------------------------------------


@dataclass
class _Evaluation:
    """What all the leaves of one tile's evaluation share, and what they count."""

    attributes: Attributes
    wanted: frozenset[str]
    sizes: tuple[int, int, int]
    draws: bool
    record: bool = field(init=False)
    counts: Indices = field(init=False)
    first: Indices = field(init=False)
    may_use_floats: bool = field(default_factory=machine.environment_is_default)

    def __post_init__(self) -> None:
        self.record = bool(self.wanted)
        self.counts = np.zeros((2, 256), np.int64)
        self.first = np.empty((len(FIRST_EVENTS) if self.record else 0, *self.sizes), np.int64)
        self.first.fill(NEVER)

    def evaluate(
        self, how: Accumulation, source: Source, ranges: Indices, seeds: Seeds, start: Operand | None = None
    ) -> Partials:
        """(ranges, cells) results of `how`; `start` is c, for a single range."""
        if isinstance(how, Leaf):
            return self._leaf(how, source, ranges, seeds, start)
        if isinstance(how, TensorCore):
            return self._matrix_unit(how, source, ranges, seeds, start)
        assert isinstance(how, Blocked | SplitK | Strided)
        plan = cuts.plan(how, ranges.tobytes())
        inner_seeds = self._split(np.repeat(seeds, plan.counts), PARTS + plan.numbers)
        inner = self.evaluate(how.inner, source, plan.parts, inner_seeds)
        values = Values(inner, int(source.index[0]), self._last(source, plan.parts))
        outer_seeds = self._split(seeds, OUTER)
        if not isinstance(how, Strided) or not source.length:  # nothing to add c to: it is the result
            return self.evaluate(how.outer, values, plan.groups, outer_seeds, start)
        result = self.evaluate(how.outer, values, plan.groups, outer_seeds)
        return self._add_last(leaves(how)[-1], result, start, source, seeds)

    def _split(self, seeds: Seeds, n: Indices | int) -> Seeds:
        """`reference.split_seed`, element by element; zeros where nobody draws."""
        if not self.draws:
            return seeds
        with np.errstate(over="ignore"):
            z = seeds + np.asarray(n).astype(np.uint64) * np.uint64(reference.GOLDEN)
            for shift, factor in zip((30, 27), reference.MIX, strict=True):
                z = (z ^ z >> np.uint64(shift)) * np.uint64(factor)
        split: Seeds = z ^ z >> np.uint64(31)
        return split

    def _last(self, source: Source, ranges: Indices) -> Indices:
        """The largest original index under each range; only records ask."""
        if not self.record:
            return np.zeros(len(ranges), np.int64)
        where = source.where
        return np.array([where[a:b:c].max(initial=0) for a, b, c in ranges], np.int64)

    def _add_last(self, leaf: Leaf, result: Partials, start: Operand | None, source: Source, seeds: Seeds) -> Partials:
        """round(result + c), where there is a c."""
        if start is None:
            return result
        addend = self._start_values(start, source, source.where.max(initial=0, keepdims=True))
        how = Sequential(
            leaf.format, fused=True, rounding=leaf.rounding, ftz=leaf.ftz, daz=leaf.daz, overflow=leaf.overflow
        )
        return self._sum(how, addend, _WHOLE, self._split(seeds, LAST), result.codes)

    def _start_values(self, start: Operand, source: Source, where: Indices) -> Values:
        return Values(Partials(start.format, start.wide.reshape(1, -1)), int(source.index[0]), where)

    def _leaf(self, leaf: Leaf, source: Source, ranges: Indices, seeds: Seeds, start: Operand | None) -> Partials:
        if start is None or isinstance(leaf, Exact):
            return self._sum(leaf, source, ranges, seeds, None, start)
        if isinstance(leaf, Pairwise) and source.length:
            return self._add_last(leaf, self._sum(leaf, source, ranges, seeds), start, source, seeds)
        seed = self._seed(leaf, source, seeds, start)
        return seed if isinstance(leaf, Pairwise) else self._sum(leaf, source, ranges, seeds, seed.codes)

    def _seed(self, leaf: Leaf, source: Source, seeds: Seeds, start: Operand) -> Partials:
        """c, rounded as the leaf's sums are."""
        lone = Pairwise(leaf.format, product=None, rounding=leaf.rounding, ftz=leaf.ftz, daz=leaf.daz,
                        overflow=leaf.overflow)  # fmt: skip
        where = source.where[:1] if source.length else np.zeros(1, np.int64)
        return self._sum(lone, self._start_values(start, source, where), _WHOLE, self._split(seeds, SEED))

    # -- one kernel call -----------------------------------------------------------------------------------
    def _sum(
        self, leaf: Leaf, source: Source, ranges: Indices, seeds: Seeds, start: Codes | None = None,
        extra_term: Operand | None = None,
    ) -> Partials:  # fmt: skip
        fast = None
        if self.may_use_floats and extra_term is None and not (self.draws and _last_index(source) >= 1 << 32):
            fast = choice.leaf_kernel(leaf, source.terms, self.attributes)
        if fast is not None and not self.record:
            return self._in_floats(fast, leaf, source, ranges, seeds, start)
        how, products = settled(leaf, self.attributes)
        if self.may_use_floats and self.record and extra_term is None:
            recorder = recorded.recorder(leaf, source.terms, how, products)
            if recorder is not None:
                found = self._recorded(recorder, fast, leaf, source, ranges, seeds, start)
                if found is not None:
                    return found
        return self._in_integers(leaf, source, ranges, seeds, start, extra_term, how, products)

    def _matrix_unit(
        self, how: TensorCore, source: Source, ranges: Indices, seeds: Seeds, start: Operand | None
    ) -> Partials:
        """Every range by the instructions of a matrix unit; c is rounded to D's format, ties to even."""
        assert isinstance(source, Products)
        (a, b), scales = source.matrices(), source.scales()
        row = how.row(a.format, b.format, how.output, scales and scales.of)
        out = np.zeros((len(ranges), *source.shape), row.output.code_dtype)
        if start is not None:
            plain = copy.copy(self)  # which counts as this, but rounds as no call says
            plain.attributes = Attributes()
            out[...] = plain._seed(Sequential(row.output), source, seeds, start).codes.reshape(out.shape)
        record = None
        if self.record:
            record = matrix_units.Record(source.where, self.counts, self.first.reshape(len(self.first), *source.shape))
        if source.length:
            matrix_units.accumulate(row, a, b, out, ranges, scales, record)
        codes = out.reshape(len(ranges), math.prod(source.shape))
        return Partials(row.output, codes, (FP32, codes.view(np.float32)) if row.output == FP32 else None)

    def _in_integers(
        self, leaf: Leaf, source: Source, ranges: Indices, seeds: Seeds, start: Codes | None,
        extra_term: Operand | None, how: Attributes, products: Attributes,
    ) -> Partials:  # fmt: skip
        a, a_format, b, b_format = source.codes()
        shape = (len(ranges), *source.shape)
        out = np.zeros(shape, np.uint64)
        if start is not None:
            out[...] = start.reshape(shape)
        where = source.where if self.record else np.zeros(source.length, np.int64)
        first = self.first.reshape(len(self.first), *source.shape)
        operands = (a, format_row(a_format), b, format_row(b_format), out, format_row(leaf.format), manner_row(how))
        if isinstance(leaf, Exact):
            lowest, limbs = _limbs(source.terms, extra_term.format if extra_term else None)
            c, c_row = _NO_TERM, format_row(leaf.format)
            if extra_term is not None:
                c, c_row = extra_term.wide.reshape(source.shape), format_row(extra_term.format)
            sums.exact(*operands, ranges, seeds, source.index, where, self.counts, first, limbs, lowest, c, c_row)
        else:
            assert isinstance(leaf, ProductLeaf)
            keep_exact = leaf.product is None or isinstance(source, Values)
            product_row = _KEEP_EXACT if keep_exact else format_row(leaf.product)
            common = (*operands, product_row, manner_row(products))
            tail = (seeds, source.index, where, self.counts, first)
            if isinstance(leaf, Pairwise):
                programs, orders, merges, depth = _programs(leaf.tree, ranges.tobytes())
                sums.tree(*common, programs, *tail, orders, merges, depth)
            else:
                _GENERAL[type(leaf)](*common, ranges, *tail)
        return Partials(leaf.format, codes=out.reshape(len(ranges), math.prod(source.shape)))

    def _recorded(
        self, recorder: recorded.Recorder, fast: FastLeaf | None, leaf: Leaf, source: Source, ranges: Indices,
        seeds: Seeds, start: Codes | None,
    ) -> Partials | None:  # fmt: skip
        """The sums, and their events counted by kernels on float32; None if the numbers are not for these."""
        operands = list(source.floats(FP32))
        if not all(recorder.takes(a, b) for a, b in operands):
            return None
        batch, rows, columns = source.shape
        out = np.zeros((batch, len(ranges), rows, columns), np.float32)
        if start is not None:  # one range
            out[...] = widen(start.astype(leaf.format.code_dtype), leaf.format, FP32).reshape(out.shape)
        for n, (a, b) in enumerate(operands):

            def sums_alone(a: Floats = a, b: Floats = b, n: int = n) -> None:
                assert fast is not None
                fast.kernel(a, b, out[n], ranges, source.index[1:], seeds, start is None, *fast.extra)

            quick = sums_alone if fast is not None and fast.carrier == FP32 else None
            recorder.record(a, b, out[n], ranges, source.where, self.wanted, self.counts, self.first[:, n], quick)
        return Partials(leaf.format, floats=(FP32, _by_range(out)))

    def _in_floats(
        self, fast: FastLeaf, leaf: Leaf, source: Source, ranges: Indices, seeds: Seeds, start: Codes | None
    ) -> Partials:
        carrier = fast.carrier
        batch, rows, columns = source.shape
        out = MEMORY.take((batch, len(ranges), rows, columns), np.dtype(carrier.dtype))
        if start is not None:  # one range
            out[...] = widen(start.astype(leaf.format.code_dtype), leaf.format, carrier).reshape(out.shape)
        more: tuple[Any, ...] = ()
        if isinstance(leaf, Pairwise):
            ranges, *more = _programs(leaf.tree, ranges.tobytes())  # type: ignore[assignment]
        elif not isinstance(leaf, Exact):
            more = (start is None,)
        base, matrix, row, column = source.index.tolist()
        for n, (a, b) in enumerate(source.floats(carrier)):
            index = np.array([base + n * matrix, row, column], np.int64)
            fast.kernel(a, b, out[n], ranges, index, seeds, *more, *fast.extra)
        if not leaf.format.has_signed_zero:
            out += 0.0  # kernels round to zeros of both signs
        return Partials(leaf.format, floats=(carrier, _by_range(out)))


def _by_range(out: Floats) -> Floats:
    """Results (batch, ranges, M, N) as (ranges, cells)."""
    batch, parts, rows, columns = out.shape
    by_range = out if batch == 1 else np.ascontiguousarray(np.moveaxis(out, 1, 0))
    return by_range.reshape(parts, batch * rows * columns)


_GENERAL = {Sequential: sums.sequential, Kahan: sums.kahan, Neumaier: sums.neumaier}
_KEEP_EXACT = np.zeros_like(format_row(FP32))
_NO_TERM = np.empty((0, 0, 0), np.uint64)
_WHOLE = np.array([[0, 1, 1]], np.int64)
_MASK = (1 << 64) - 1


def _last_index(source: Source) -> int:
    return int(source.index[0] + sum((s - 1) * step for s, step in zip(source.shape, source.index[1:], strict=True)))


def _limbs(terms: Terms, c: FloatFormat | None) -> tuple[int, Indices]:
    """(weight of the lowest bit, scratch limbs) of an accumulator that holds every sum of terms, and c, exactly."""
    # room for every product bit, for the carries of 2**31 terms, and for the 128-bit window of the smallest term
    both = [terms] if c is None else [terms, Terms(c)]
    lowest = min(t.lowest - t.precision - 128 for t in both)
    highest = max(t.highest for t in both) + 2 + 31
    return lowest, np.zeros((highest - lowest) // 32 + 6, np.int64)


@lru_cache(maxsize=64)
def _programs(tree: str, ranges: bytes) -> tuple[Indices, Indices, Indices, int]:
    """The programs of some lengths, one after the other: (ranges with the offsets of theirs, orders, merges, depth of
    the stack)."""
    rows = cuts.rows(ranges)
    counts = [int(n) for n in cuts.count(rows)]
    lengths = sorted({n for n in counts if n})
    programs = [trees.program(tree, n) for n in lengths]
    offsets = dict(zip(lengths, np.cumsum([0, *lengths]), strict=False))
    depth = max((int(np.cumsum(1 - p.merges.astype(np.int64)).max() + p.merges.max()) for p in programs), default=1)
    orders = np.concatenate([np.empty(0, np.int32), *(p.order for p in programs)])
    merges = np.concatenate([np.empty(0, np.int8), *(p.merges for p in programs)])
    column = np.array([offsets.get(n, 0) for n in counts], np.int64)
    return np.column_stack([rows, column]), orders, merges, depth


# -- the whole result --------------------------------------------------------------------------------------------------


class Sums(NamedTuple):
    """(batch, M, N) codes; with events wanted, histograms of event bytes by site, and the first k of every event."""

    codes: Codes
    histograms: dict[str, Indices]
    first: dict[str, Indices]


def _draws(how: Accumulation, manner: Manner) -> bool:
    return manner.attributes.rounding is Rounding.STOCHASTIC or rounds_stochastically(how)


_FEW, _LONG = 4, 256  # results, and their terms, for kernels that sum one vector
_LONG_ROW = 32  # terms of a result, one after the other in memory, for the same


def _as_vectors(
    a: tuple[Codes, FloatFormat], b: tuple[Codes, FloatFormat] | None, pairs: Indices, how: Accumulation,
    call: Attributes,
) -> Codes | None:  # fmt: skip
    """A few results of many terms each, by kernels made for single vectors; None where they cannot."""
    (left, fmt), found = a, []
    if b is None:
        shape, depth = (1, 1, left.shape[1]), left.shape[0]
    else:
        shape, depth = (len(pairs), left.shape[1], b[0].shape[2]), left.shape[2]
    if math.prod(shape) > _FEW or depth < _LONG:
        return None
    if b is None:
        sums = vectors.vector_sums(how, np.ascontiguousarray(left.T), fmt, call)
        return None if sums is None else sums.reshape(shape)
    for n, i, j in np.ndindex(shape):
        x, y = pairs[n]
        code = vectors.vector_dot(how, left[x, i], fmt, b[0][y, :, j], b[1], call)
        if code is None:
            return None
        found.append(code)
    return np.array(found, how.result_format.code_dtype).reshape(shape)


def accumulate(
    a: tuple[Codes, FloatFormat], b: tuple[Codes, FloatFormat] | None, c: tuple[Codes, FloatFormat] | None,
    pairs: Indices, how: Accumulation, manner: Manner, wanted: frozenset[str], title: str, base: int = 0,
    scales: BlockScales | None = None,
) -> Sums:  # fmt: skip
    """Sums as described: products of a (stacks, M, K) and b (stacks, K, N), or without b the values a (K, cells).

    Parameters
    ----------
    a, b, c
        Codes and formats; c has the result's shape (batch, M, N).
    pairs : (batch, 2)
        Which matrices of a and b make each matrix of the result.
    how, manner
        The description, and how the call rounds.
    wanted : frozenset of str
        The events to count, and to keep the first k of.
    title : str
        Of the progress bar.
    base : int
        The index, for draws, of the first result.
    scales : BlockScales, optional
        Of a's and b's blocks, stacks as theirs, for a TensorCore.
    """
    if b is not None and not wanted and lies_better_turned(a[0], b[0]) and not _draws(how, manner):
        turned_c = None if c is None else (np.swapaxes(c[0], 1, 2), c[1])
        turned = (np.swapaxes(b[0], 1, 2), b[1]), (np.swapaxes(a[0], 1, 2), a[1]), turned_c
        turned_scales = scales and scales.turned()
        found = accumulate(*turned, pairs[:, ::-1], how, manner, wanted, title, scales=turned_scales)
        return found._replace(codes=np.swapaxes(found.codes, 1, 2))
    if not wanted and c is None and (codes := _as_vectors(a, b, pairs, how, manner.attributes)) is not None:
        return Sums(codes, {}, {})
    record = bool(wanted)
    left, right = Operand(*a), None if b is None else Operand(*b)
    depth = a[0].shape[0] if right is None else a[0].shape[2]
    shape = (1, 1, a[0].shape[1]) if right is None else (len(pairs), a[0].shape[1], right.codes.shape[2])
    out = np.zeros(shape, how.result_format.code_dtype)
    if record:
        first = np.full((len(FIRST_EVENTS), *shape), NEVER, np.int64)
        histograms = np.zeros((2, 256), np.int64)
    terms = Terms(left.format, right.format if right else None)
    work_of_a_tile = GENERAL_TILE
    if math.prod(shape) * depth > work_of_a_tile and choice.is_fast(how, terms, manner.attributes):
        work_of_a_tile = RECORDED_TILE if record else FAST_TILE
    threads, draws = machine.threads(), _draws(how, manner)
    whole = np.array([[0, depth, 1]], np.int64)
    seeds = np.array([manner.seed & _MASK], np.uint64)

    in_rows = right is None and c is None and not wanted and depth >= _LONG_ROW and left.codes.T.flags.c_contiguous
    lock = threading.Lock()

    def work(tile: Tile) -> None:
        MEMORY.clear()
        sizes = tuple(s.stop - s.start for s in tile)
        if in_rows:
            found = vectors.vector_sums(how, left.codes.T[tile.columns], left.format, manner.attributes)
            if found is not None:
                out[tile] = found
                return
        evaluation = _Evaluation(manner.attributes, wanted, sizes, draws)
        source: Source
        if right is None:
            values = Partials(left.format, np.ascontiguousarray(left.codes[:, tile.columns]))
            source = Values(values, tile.columns.start, np.arange(depth, dtype=np.int64))
        else:
            source = Products(left, right, tile, shape, pairs, scales)
        source.index[0] += base
        start = None if c is None else Operand(c[0][tile], c[1])
        partials = evaluation.evaluate(how, source, whole, seeds, start)
        out[tile] = partials.codes.reshape(sizes)
        if record:
            first[:, *tile] = evaluation.first
            with lock:
                histograms[...] += evaluation.counts

    parts = cuts.partials(how, depth)
    pieces = tiles_of(shape, depth, parts, work_of_a_tile, threads)
    if math.prod(shape):
        tiles.run(pieces, work, threads if math.prod(shape) * depth > WORTH_THREADS else 1, title)
    if not record:
        return Sums(out, {}, {})
    bytes_of_flags = np.arange(256) & ~sums.NEW_NAN  # a place in `first` is all that this bit is for
    folded = [np.bincount(bytes_of_flags, histogram, minlength=256).astype(np.int64) for histogram in histograms]
    sites = {"sum": folded[1]}
    if folded[0].any():
        sites["product"] = folded[0]
    first[first == NEVER] = -1
    return Sums(out, sites, dict(zip(FIRST_EVENTS, first, strict=False)))
