"""Running sums, and products of many terms, which the kernels of sums do not compute."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from floatsim_kernels.reduce import scan as loops

from floatsim._types import Codes, Indices, Operand
from floatsim.accumulation import Kahan, Leaf, Neumaier, Pairwise, Sequential, Threads, leaves, settled, trees
from floatsim.accumulation.lane_programs import term_program
from floatsim.emulator import parallel
from floatsim.emulator.dispatch import vector
from floatsim.emulator.dispatch.kernel import FIRST_EVENTS, NEVER
from floatsim.emulator.dispatch.tiling import tile_work
from floatsim.emulator.params import format_params, rounding_params
from floatsim.formats import FP32, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.reference.random import Site, split_seed

__all__ = ["Scanned", "multiply_all", "running_sums"]


_LONG = tile_work(False, False)  # terms
_ONE = np.array(FP32.emax << FP32.trailing_bits, np.uint64)
_MASK = (1 << 64) - 1
_PASSES = {Sequential: "sequential", Kahan: "kahan", Neumaier: "neumaier"}


class Scanned(NamedTuple):
    """Codes, and with events wanted, histograms of event bytes by site and the first k of each event by column."""

    codes: Codes
    histograms: dict[str, Indices]
    first: dict[str, Indices]


class _Events:
    """The events that kernels count, and their first k. The arrays stay empty if events are not wanted."""

    def __init__(self, wanted: bool, columns: int) -> None:
        self.wanted = wanted
        self.counts = np.zeros(256, np.int64)
        self.first = np.full((len(FIRST_EVENTS) if wanted else 0, columns), NEVER, np.int64)

    def add(self, later: _Events, k: int) -> None:
        """Add the events of roundings after the term k."""
        self.counts += later.counts
        np.minimum(self.first, np.where(later.first == NEVER, NEVER, k), out=self.first)

    def scanned(self, site: str, codes: Codes) -> Scanned:
        self.first[self.first == NEVER] = -1
        flags = np.bincount(np.arange(256) & ~loops.NEW_NAN, self.counts, minlength=256).astype(np.int64)
        sites = {site: flags} if self.wanted else {}
        return Scanned(codes, sites, dict(zip(FIRST_EVENTS, self.first, strict=False)))


def running_sums(
    codes: Codes,
    fmt: FloatFormat,
    accumulation: Sequential | Kahan | Neumaier,
    options: CallOptions,
    wanted: frozenset[str],
) -> Scanned:
    """Return the sums of the first 1, 2, ... rows of codes, (K, columns), each equal to that of `accumulate`."""
    if (
        not wanted
        and isinstance(accumulation, Sequential)
        and vector.running_sums_refusal(accumulation, fmt, options.attributes) is None
    ):
        sums = parallel.call(
            lambda: vector.running_sums(accumulation, np.ascontiguousarray(codes), fmt),
            "cumsum",
            long=codes.size > tile_work(True, False),
        )
        return Scanned(sums, {}, {})
    attributes, _ = settled(accumulation, options.attributes)
    out, events = np.zeros(codes.shape, np.uint64), _Events(bool(wanted), codes.shape[1])
    arguments = (
        loops.PASSES[_PASSES[type(accumulation)]],
        isinstance(accumulation, Kahan),
        codes.astype(np.uint64),
        format_params(fmt),
        out,
        format_params(accumulation.format),
        rounding_params(attributes),
        np.uint64(options.seed & _MASK),
        events.counts,
        events.first,
    )
    parallel.call(lambda: loops.running_sums(*arguments), "cumsum", long=codes.size > _LONG)
    return events.scanned("sum", out.astype(accumulation.format.code_dtype))


@dataclass
class _Products:
    """Products with the format and options of one leaf, for columns whose first one has the index `base`."""

    format: FloatFormat
    options: CallOptions
    wanted: bool
    columns: int
    base: int
    events: _Events = field(init=False)

    def __post_init__(self) -> None:
        self.events = self._new_events()

    def _new_events(self) -> _Events:
        return _Events(self.wanted, self.columns)

    def _common(self, seed: int, events: _Events) -> tuple[Any, ...]:
        params = format_params(self.format), rounding_params(self.options.attributes)
        return *params, np.uint64(seed & _MASK), self.base, events.counts, events.first

    def chain(self, start: Operand, x: Operand, seed: int, after: int | None = None) -> Operand:
        """Multiply start by the rows of x in order. `after` is the k of all events."""
        out, events = np.zeros((1, self.columns), np.uint64), self.events if after is None else self._new_events()
        operands = _wide(x), format_params(x[1]), _wide(start), format_params(start[1]), out
        common = self._common(seed, events)
        parallel.call(lambda: loops.running_products(*operands, *common), "prod", long=x[0].size > _LONG)
        if after is not None:
            self.events.add(events, after)
        return out, self.format

    def tree(self, program: trees.Program, x: Operand, seed: int) -> Operand:
        """Multiply the rows of x along a tree."""
        out = np.zeros((1, self.columns), np.uint64)
        rows = format_params(x[1]), program.order, program.merges, trees.stack_depth(program), format_params(FP32)
        common = self._common(seed, self.events)
        parallel.call(lambda: loops.tree_products(_wide(x), *rows, out, *common), "prod", long=x[0].size > _LONG)
        return out, self.format


def _wide(x: Operand) -> Codes:
    return x[0].astype(np.uint64, copy=False)


def multiply_all(
    codes: Codes, fmt: FloatFormat, start: Operand | None, accumulation: Sequential | Pairwise | Threads,
    options: CallOptions, wanted: frozenset[str], base: int = 0,
) -> Scanned:  # fmt: skip
    """Return the products of the columns of codes, (K, columns), and of a start value for each, (1, columns).

    Sequential: acc = 1 or the start value, rounded; acc = round(acc * x), k ascending. Pairwise: a tree of products;
    then the start value. Threads: the tree of its additions, without the zeros at the start. Without terms: 1, or the
    start value, rounded.
    """
    leaf = leaves(accumulation)[-1] if isinstance(accumulation, Threads) else accumulation
    attributes, _ = settled(leaf, options.attributes)
    columns, x = codes.shape[1], (codes, fmt)
    products = _Products(leaf.format, replace(options, attributes=attributes), bool(wanted), columns, base)
    one = np.broadcast_to(_ONE, (1, columns)), FP32
    if not len(codes) and start is None:
        result = _Products(leaf.format, products.options, False, columns, base).chain(one, one, 0)
    elif isinstance(accumulation, Sequential) or not len(codes):
        first = one if start is None else products.chain(one, start, split_seed(options.seed, Site.START))
        result = products.chain(first, x, options.seed) if len(codes) else first
    else:
        result = products.tree(_product_tree(accumulation, len(codes)), x, options.seed)
        if start is not None:
            result = products.chain(result, start, split_seed(options.seed, Site.LAST), after=len(codes) - 1)
    return products.events.scanned("product", result[0][0].astype(leaf.format.code_dtype))


def _product_tree(accumulation: Pairwise | Threads, n: int) -> trees.Program:
    if isinstance(accumulation, Pairwise):
        return trees.program(accumulation.tree, n)
    made = term_program(accumulation, n)
    if made is None or len(set(map(_attributes, leaves(accumulation)))) > 1:
        raise TypeError(f"prod multiplies along one tree in one format, unlike {accumulation}")
    return made


def _attributes(leaf: Leaf) -> tuple[object, ...]:
    return leaf.format, leaf.rounding, leaf.ftz, leaf.daz, leaf.overflow
