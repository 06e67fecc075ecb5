"""Carry out a plan: cut the result into tiles, evaluate each, and collect results and events."""

from __future__ import annotations

import functools
import math
import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from floatsim_kernels.gemm import integer
from floatsim_kernels.runtime import cpu

from floatsim._types import Codes, Indices, Seeds
from floatsim.accumulation import Accumulation, Leaf, TensorCore, is_symmetric, rounds_stochastically
from floatsim.accumulation.partition import partials
from floatsim.emulator import parallel
from floatsim.emulator.dispatch.candidates import SUMS
from floatsim.emulator.dispatch.kernel import FIRST_EVENTS, NEVER, Case, Work
from floatsim.emulator.dispatch.operands import Operand, Partials, Products, Source, Values
from floatsim.emulator.dispatch.tensorcore_operands import BlockScales
from floatsim.emulator.dispatch.tiling import (
    LANES,
    LONG_ROW,
    PARTIAL_RESULTS,
    WORTH_THREADS,
    Tile,
    by_vectors,
    single_rows,
    tiles,
)
from floatsim.emulator.planning import processor
from floatsim.emulator.sums.plan import Plan, plan
from floatsim.formats import FloatFormat
from floatsim.formats._hashing import IdentityCache
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import Rounding, RoundingAttributes
from floatsim.formats.value_sets import TermRange

if TYPE_CHECKING:
    from floatsim.tensorcore.instructions import Scales

    pass

__all__ = ["Sums", "accumulate", "plan_sums"]


class Sums(NamedTuple):
    """The codes (batch, M, N) of sums. If events are counted: histograms by site, and the first k of each event."""

    codes: Codes
    histograms: dict[str, Indices]
    first: dict[str, Indices]


_MASK = (1 << 64) - 1


def _prefers_transpose(rows: int, columns: int, accumulation: Accumulation, options: CallOptions) -> bool:
    """Return whether b.T @ a.T has the same bits, and rows that fill the lanes of vectors better than those of a @
    b."""
    if columns >= min(LANES, rows) or not is_symmetric(accumulation):
        return False
    return options.attributes.rounding is not Rounding.STOCHASTIC and not rounds_stochastically(accumulation)


_RECENT = IdentityCache()


def plan_sums(
    a: tuple[Codes, FloatFormat], b: tuple[Codes, FloatFormat] | None, c: tuple[Codes, FloatFormat] | None,
    pairs: Indices, accumulation: Accumulation, options: CallOptions, wanted: frozenset[str], base: int = 0,
    scales: BlockScales | None = None, whole: tuple[int, int] | None = None,
) -> tuple[Plan, tuple[int, int, int], int]:  # fmt: skip
    """Return (plan, shape of the result, terms of each element) of a call of `accumulate` with these arguments."""
    codes, fmt = a
    if b is None:
        depth, shape = codes.shape[0], (1, 1, codes.shape[1])
        together = codes.T.flags.c_contiguous
    else:
        depth, shape = codes.shape[2], (len(pairs), codes.shape[1], b[0].shape[2])
        together = False
    results = math.prod(shape)
    vectors = not wanted and c is None and depth >= LONG_ROW and by_vectors(results, depth, together)
    last = base + (results if whole is None else shape[0] * math.prod(whole))
    key = (
        accumulation,
        fmt,
        None if b is None else b[1],
        None if c is None else c[1],
        options.attributes,
        wanted,
        vectors,
        None if scales is None else scales.of,
        last > 1 << 32,
        cpu.environment_is_default(),
        SUMS.allowed,
    )
    found: Plan | None = _RECENT.find(key)
    if found is None:
        found = _planned(*key[:-1])
        _RECENT.keep(key, found)
    return found, shape, depth


def _planned(
    accumulation: Accumulation, a: FloatFormat, b: FloatFormat | None, c: FloatFormat | None,
    rounding: RoundingAttributes, events: frozenset[str], vectors: bool, scales: Scales | None, many_draws: bool,
    keeps_subnormals: bool,
) -> Plan:  # fmt: skip
    cpu_of_call = processor(keeps_subnormals)
    return plan(Case(accumulation, TermRange(a, b), rounding, cpu_of_call, c, events, vectors, scales, many_draws))


def accumulate(
    a: tuple[Codes, FloatFormat], b: tuple[Codes, FloatFormat] | None, c: tuple[Codes, FloatFormat] | None,
    pairs: Indices, accumulation: Accumulation, options: CallOptions, wanted: frozenset[str], title: str, base: int = 0,
    scales: BlockScales | None = None, whole: tuple[int, int] | None = None,
) -> Sums:  # fmt: skip
    """Return sums as described: products of a (stacks, M, K) and b (stacks, K, N), or without b the values a (K,
    cells).

    Parameters
    ----------
    a, b, c
        Codes and formats; c has the result's shape (batch, M, N).
    pairs : (batch, 2)
        Which matrices of a and b make each matrix of the result.
    accumulation, options
        The description, and the call's options.
    wanted : frozenset of str
        The events to count, and to keep the first k of.
    title : str
        The progress bar's.
    base : int
        The index, for draws, of the first result.
    scales : BlockScales, optional
        The scales of the blocks of a and b, stacks as theirs, for a TensorCore.
    whole : (rows, columns), optional
        The shape of the matrices by which the results are numbered for draws, if the results are a part of them.
    """
    if b is not None and not wanted and _prefers_transpose(a[0].shape[1], b[0].shape[2], accumulation, options):
        return _transposed(a, b, c, pairs, accumulation, options, title, scales)
    planned, shape, depth = plan_sums(a, b, c, pairs, accumulation, options, wanted, base, scales, whole)
    call = _Call(
        planned, Operand(*a), None if b is None else Operand(*b), c, pairs, shape, depth, options, base, scales, whole
    )
    results = math.prod(shape)
    if results:
        threads = parallel.get_num_threads() if results * depth > WORTH_THREADS else 1
        has_parts = not isinstance(accumulation, Leaf | TensorCore)
        each = partials(accumulation, depth) if has_parts else 1
        consecutive = planned.case.draws and (c is not None or has_parts)  # partial results are numbered without gaps
        pieces = tiles(shape, depth, each, planned.tile_work, threads, whole_rows=consecutive)
        if consecutive and whole not in (None, shape[1:]):
            pieces = [row for piece in pieces for row in single_rows(piece)]
        long = results * depth > planned.tile_work * threads
        if len(pieces) == 1 and not long:
            call.compute(pieces[0])
        else:
            parallel.run(pieces, call.compute, threads, title, leave=long)
    return call.sums()


def _transposed(
    a: tuple[Codes, FloatFormat], b: tuple[Codes, FloatFormat], c: tuple[Codes, FloatFormat] | None,
    pairs: Indices, accumulation: Accumulation, options: CallOptions, title: str, scales: BlockScales | None,
) -> Sums:  # fmt: skip
    """Return the sums of b.T @ a.T, transposed."""
    x, y = (np.swapaxes(b[0], 1, 2), b[1]), (np.swapaxes(a[0], 1, 2), a[1])
    z = None if c is None else (np.swapaxes(c[0], 1, 2), c[1])
    found = accumulate(
        x, y, z, pairs[:, ::-1], accumulation, options, frozenset(), title, scales=scales and scales.transposed()
    )
    return found._replace(codes=np.swapaxes(found.codes, 1, 2))


@functools.lru_cache(maxsize=64)
def _all_terms(depth: int) -> Indices:
    """Return the one range of a sum. Kernels only read ranges and seeds."""
    return np.array([[0, depth, 1]], np.int64)


@functools.lru_cache(maxsize=64)
def _seeds(seed: int) -> Seeds:
    return np.array([seed], np.uint64)


class _Call:
    """One call at work: its plan and operands, and the results, which each tile writes into."""

    def __init__(
        self, plan: Plan, left: Operand, right: Operand | None, c: tuple[Codes, FloatFormat] | None, pairs: Indices,
        shape: tuple[int, int, int], depth: int, options: CallOptions, base: int, scales: BlockScales | None,
        whole: tuple[int, int] | None,
    ) -> None:  # fmt: skip
        self._kernel, self._left, self._right, self._c, self._pairs = plan.kernel, left, right, c, pairs
        self._shape, self._depth, self._base, self._scales = shape, depth, base, scales
        self._whole = whole or shape[1:]
        self._events, self._draws = plan.case.events, plan.case.draws
        self._ranges, self._seeds = _all_terms(depth), _seeds(options.seed & _MASK)
        self._lock = threading.Lock()
        self._out = np.zeros(shape, plan.code_dtype)
        if self._events:
            self._first = np.full((len(FIRST_EVENTS), *shape), NEVER, np.int64)
            self._histograms = np.zeros((2, 256), np.int64)

    def compute(self, tile: Tile) -> None:
        """Write one tile of the result."""
        PARTIAL_RESULTS.clear()
        batch, rows, columns = tile
        shape = batch.stop - batch.start, rows.stop - rows.start, columns.stop - columns.start
        work = Work(self._events, shape, self._draws)
        start = None if self._c is None else Operand(self._c[0][tile], self._c[1])
        found = self._kernel.evaluate(work, self._source(tile), self._ranges, self._seeds, start)
        self._out[tile] = found.codes.reshape(shape)
        if self._events:
            self._first[:, *tile] = work.first
            with self._lock:
                self._histograms += work.counts

    def _source(self, tile: Tile) -> Source:
        if self._right is not None:
            return Products(self._left, self._right, tile, self._whole, self._pairs, self._base, self._scales)
        values = Partials(self._left.format, self._left.codes[:, tile.columns])
        return Values(values, self._base + tile.columns.start)

    def sums(self) -> Sums:
        """Return the results, and the events where they were counted."""
        if not self._events:
            return Sums(self._out, {}, {})
        flags = np.arange(256) & ~integer.NEW_NAN  # this bit only marks a place in `first`
        folded = [np.bincount(flags, histogram, minlength=256).astype(np.int64) for histogram in self._histograms]
        sites = {"sum": folded[1]}
        if folded[0].any():
            sites["product"] = folded[0]
        self._first[self._first == NEVER] = -1
        return Sums(self._out, sites, dict(zip(FIRST_EVENTS, self._first, strict=False)))
