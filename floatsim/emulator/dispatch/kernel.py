"""The protocol between plans and kernels: the methods of a candidate, and the arguments and results of a kernel.

A *candidate* is one way to carry out an accumulation. `plan.plan` tries the candidates of `candidates.py` in order:
`refusal(case)` returns None, or the reason why the candidate does not give the defined bits for this case (or would not
be faster). The first that does not refuse makes the kernel: `kernel(case, plan)`, which computes every parameter once.

A *kernel* carries out one accumulation over ranges of the terms of one tile:

    evaluate(work, source, ranges, seeds, start) -> Partials

- `source` holds the terms: products of two matrices, or values (operands.py).
- `ranges` is (R, 3) int64: start, stop and step of the terms of each result. `seeds` is (R,) uint64.
- `start` is c, an Operand of the tile's shape, or None. It is given for a single range only.
- The result has R rows of cells, in the accumulation's result format.

*Leaf kernels* derive from `LeafKernel`, which rounds and adds c, and implement `sum`; its `start` is codes of the
leaf's format. *Matrix kernels* (float32.py, float64.py, exact.py) are called by `FloatKernel` for one matrix after
the other:

    kernel(a, b, out, ranges, index, seeds, *more)

- a (M, K), b (K, N) and out (R, M, N) are C-contiguous floats of the carrier, values on their formats' grids.
- `index` is int64 (first, row, column): the flat index of an element for its draws is first + i * row + j * column.
- `more` is (fresh,) for sums in order: with fresh the sums start from +0, otherwise from the values in `out`. For
  trees it is the stack programs (orders, merges, depth), and `ranges` has a fourth column, each program's offset. For
  Exact it is empty.
- A kernel may bail out of rows that are not for its fast path; it marks them, and its fallback computes them.
- Zeros: a kernel returns IEEE's signs. `FloatKernel` clears the sign of zeros for formats without -0.

The floating-point environment is the default one (`Case.cpu.keeps_subnormals`), or the candidates on hardware floats
refuse. Directed kernels change the rounding direction of their thread and restore it; they allocate nothing in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

import numpy as np

from floatsim._types import Codes, Floats, Indices, Seeds
from floatsim.accumulation import (
    Accumulation,
    Exact,
    Leaf,
    Pairwise,
    Sequential,
    TreeLeaf,
    rounds_stochastically,
    settled,
)
from floatsim.accumulation.partition import count, rows
from floatsim.accumulation.tree_shape import TreeShape
from floatsim.accumulation.trees import program, stack_depth
from floatsim.emulator.dispatch.operands import Operand, Partials, Source, Values
from floatsim.emulator.dispatch.tiling import PARTIAL_RESULTS
from floatsim.emulator.planning import CPU
from floatsim.emulator.unpack import unpack
from floatsim.formats import FloatFormat
from floatsim.formats.rounding import Rounding, RoundingAttributes
from floatsim.formats.value_sets import TermRange
from floatsim.reference.random import Site, split_seeds
from floatsim.tensorcore.instructions import Scales

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "FIRST_EVENTS", "NEVER", "Candidate", "Case", "Conversion", "FloatKernel", "Kernel", "LastAdd", "LeafKernel",
    "Work", "lone_term", "programs",
]  # fmt: skip

FIRST_EVENTS = ("invalid", "nan", "overflow", "underflow", "flushed", "absorbed")
"""The events whose first k is kept, in the order of the kernels."""
NEVER = np.iinfo(np.int64).max
"""The first k of an event that did not happen."""

MatrixKernel: TypeAlias = Callable[..., None]
"""A kernel on floats for one product of matrices; the module's docstring defines its arguments."""

_WHOLE = np.array([[0, 1, 1]], np.int64)


@dataclass(frozen=True)
class Case:
    """The input of a plan: an accumulation, the formats of its terms, the call's options, and this processor."""

    accumulation: Accumulation
    terms: TermRange
    rounding: RoundingAttributes
    """The rounding attributes of the call. A leaf's own win; see `sums` and `products`."""
    cpu: CPU
    c: FloatFormat | None = None
    """The format of c, or None where there is no c."""
    events: frozenset[str] = frozenset()
    """The events to count."""
    by_vectors: bool = False
    """Whether the terms of each result lie together, many for each, so that kernels for single vectors pay."""
    scales: Scales | None = None
    """The operands' block scales."""
    many_draws: bool = False
    """Whether an element's index for its draws exceeds 32 bits."""

    @cached_property
    def sums(self) -> RoundingAttributes:
        """The rounding attributes of the leaf's sums."""
        return self._settled[0]

    @cached_property
    def products(self) -> RoundingAttributes:
        """The rounding attributes of the leaf's products."""
        return self._settled[1]

    @cached_property
    def _settled(self) -> tuple[RoundingAttributes, RoundingAttributes]:
        assert isinstance(self.accumulation, Leaf)
        return settled(self.accumulation, self.rounding)

    @cached_property
    def draws(self) -> bool:
        """Return whether a rounding is stochastic."""
        return self.rounding.rounding is Rounding.STOCHASTIC or rounds_stochastically(self.accumulation)

    def __str__(self) -> str:
        return f"{self.accumulation} of {' x '.join(factor.name.lower() for factor in self.terms.factors)}"

    def float_refusal(self) -> str | None:
        """Return why kernels on hardware floats are not for the case, whatever it sums."""
        if (reason := self.cpu.refusal()) is not None:
            return reason
        if self.events:
            return "events are counted"
        return "the indices of draws exceed 32 bits" if self.many_draws and self.draws else None


class Work:
    """The state that kernels share while they evaluate one tile: the counted events and their counts.

    `counts` is a histogram of event bytes for products and for sums, (2, 256); `first` the least k of every event,
    (events, batch, M, N). Both are empty where nothing is counted.
    """

    def __init__(self, events: frozenset[str], shape: tuple[int, ...], draws: bool) -> None:
        self.events, self.draws, self.record = events, draws, bool(events)
        self.counts, self.first = _NO_COUNTS, _NO_FIRST
        if self.record:
            self.counts = np.zeros((2, 256), np.int64)
            self.first = np.full((len(FIRST_EVENTS), *shape), NEVER, np.int64)

    def split(self, seeds: Seeds, n: Indices | int) -> Seeds:
        """Return the n-th seed of each; the seeds themselves where nothing draws."""
        return split_seeds(seeds, n) if self.draws else seeds

    def last(self, source: Source, ranges: Indices) -> Indices:
        """Return the largest original index in each range. Only events need it."""
        if not self.record:
            return np.zeros(len(ranges), np.int64)
        where = source.where
        return np.array([where[a:b:c].max(initial=0) for a, b, c in ranges], np.int64)


_NO_COUNTS = np.zeros((2, 256), np.int64)
_NO_FIRST = np.zeros((0, 0, 0, 0), np.int64)
_NOTHING_COUNTED = Work(frozenset(), (), False)


class Kernel(Protocol):
    """An accumulation with every parameter computed. The module's docstring defines the arguments."""

    @property
    def fast(self) -> bool:
        """Return whether the terms are summed at more than integer speed, so that tiles can be larger."""

    def evaluate(
        self, work: Work, source: Source, ranges: Indices, seeds: Seeds, start: Operand | None
    ) -> Partials: ...


class Planned(Protocol):
    """The part of a plan that a composite kernel reads."""

    @property
    def kernel(self) -> Any: ...


class Candidate(Protocol):
    """One way to carry out accumulations."""

    @property
    def name(self) -> str: ...

    @property
    def takes(self) -> tuple[type[Accumulation], ...]:
        """The accumulations that the candidate is for. Plans do not try it for others."""

    def refusal(self, case: Case) -> str | None: ...

    def kernel(self, case: Case, plan: Callable[[Case], Planned]) -> Any: ...


# -- leaves ------------------------------------------------------------------------------------------------------------


def _addend(start: Operand, source: Source, where: Indices) -> Values:
    """Return c as the only term of each cell."""
    return Values(Partials(start.format, start.wide.reshape(1, -1)), int(source.index[0]), where)


def lone_term(leaf: Leaf) -> Pairwise:
    """Return the accumulation that rounds single terms as the leaf rounds its sums."""
    return Pairwise(
        leaf.format, product=None, rounding=leaf.rounding, ftz=leaf.ftz, daz=leaf.daz, overflow=leaf.overflow
    )


class StartValue:
    """round(c), where the sums of a leaf start."""

    def __init__(self, leaf: Leaf, case: Case, plan: Callable[[Case], Planned]) -> None:
        self._kernel = plan(_of_c(case, lone_term(leaf))).kernel

    def __call__(self, work: Work, source: Source, seeds: Seeds, start: Operand) -> Partials:
        where = source.where[:1] if work.record and source.length else np.zeros(1, np.int64)
        values = _addend(start, source, where)
        rounded: Partials = self._kernel.sum(work, values, _WHOLE, work.split(seeds, Site.START), None, None)
        return rounded


class LastAdd:
    """round(result + c), with the rounding of a leaf, where c is added last."""

    def __init__(self, leaf: Leaf, case: Case, plan: Callable[[Case], Planned]) -> None:
        add = Sequential(
            leaf.format, fused=True, rounding=leaf.rounding, ftz=leaf.ftz, daz=leaf.daz, overflow=leaf.overflow
        )
        self._kernel = plan(_of_c(case, add)).kernel

    def __call__(self, work: Work, result: Partials, source: Source, seeds: Seeds, start: Operand) -> Partials:
        last = work.last(source, np.array([[0, source.length, 1]]))
        addend = _addend(start, source, last)
        added: Partials = self._kernel.sum(work, addend, _WHOLE, work.split(seeds, Site.LAST), result.codes, None)
        return added


class Conversion:
    """Converts results without rounding to a format that has all values of theirs."""

    def __init__(self, source: FloatFormat, target: FloatFormat, case: Case, plan: Callable[[Case], Planned]) -> None:
        self._source, self._target, self._kernel = source, target, None
        if source != target:
            exact = Pairwise(target, product=None)
            self._kernel = plan(Case(exact, TermRange(source), RoundingAttributes(), case.cpu)).kernel

    def __call__(self, results: Partials) -> Partials:
        if self._kernel is None:
            return results
        values = Values(Partials(self._source, results.codes.reshape(1, -1)), 0)
        found: Partials = self._kernel.sum(_NOTHING_COUNTED, values, _WHOLE, np.zeros(1, np.uint64), None, None)
        return Partials(self._target, found.codes.reshape(results.shape))


def _of_c(case: Case, leaf: Leaf) -> Case:
    """Return the case of a leaf whose terms are c."""
    assert case.c is not None
    return replace(case, accumulation=leaf, terms=TermRange(case.c), c=None, by_vectors=False, scales=None)


class LeafKernel:
    """A kernel of one leaf: `sum` adds its terms; the leaf defines how c enters."""

    fast: ClassVar[bool] = True

    def __init__(self, case: Case, plan: Callable[[Case], Planned]) -> None:
        assert isinstance(case.accumulation, Leaf)
        self.leaf = case.accumulation
        if case.c is not None and not isinstance(self.leaf, Exact):
            self._start = StartValue(self.leaf, case, plan)
            if isinstance(self.leaf, TreeLeaf):
                self._add_last = LastAdd(self.leaf, case, plan)

    def evaluate(self, work: Work, source: Source, ranges: Indices, seeds: Seeds, start: Operand | None) -> Partials:
        """Return the sums of every range; `start` is c."""
        if start is None or isinstance(self.leaf, Exact):
            return self.sum(work, source, ranges, seeds, None, start)
        if not isinstance(self.leaf, TreeLeaf):
            return self.sum(work, source, ranges, seeds, self.seed(work, source, seeds, start).codes, None)
        if not source.length:
            return self.seed(work, source, seeds, start)
        return self._add_last(work, self.sum(work, source, ranges, seeds, None, None), source, seeds, start)

    def seed(self, work: Work, source: Source, seeds: Seeds, start: Operand) -> Partials:
        """Return c rounded to the leaf's format."""
        return self._start(work, source, seeds, start)

    def sum(
        self, work: Work, source: Source, ranges: Indices, seeds: Seeds, start: Codes | None, term: Operand | None
    ) -> Partials:
        """Return the sums of every range: `start` holds codes of the leaf's format, `term` is one more exact term."""
        raise NotImplementedError


@lru_cache(maxsize=64)
def programs(tree: str | TreeShape, ranges: bytes) -> tuple[Indices, NDArray[np.int32], NDArray[np.int8], int]:
    """Return the stack programs of the trees over some ranges.

    Returns
    -------
    ranges : (R, 4)
        With the offset of each range's program in the fourth column.
    orders, merges : arrays
        The programs of all lengths, one after the other.
    depth : int
        Values on the stack at most.
    """
    table = rows(ranges)
    counts = [int(n) for n in count(table)]
    lengths = sorted({n for n in counts if n})
    made = [program(tree, n) for n in lengths]
    offsets = dict(zip(lengths, np.cumsum([0, *lengths]), strict=False))
    depth = max((stack_depth(p) for p in made), default=1)
    orders = np.concatenate([np.empty(0, np.int32), *(p.order for p in made)])
    merges = np.concatenate([np.empty(0, np.int8), *(p.merges for p in made)])
    column = np.array([offsets.get(n, 0) for n in counts], np.int64)
    return np.column_stack([table, column]), orders, merges, depth


class FloatKernel(LeafKernel):
    """A leaf whose terms and sums are hardware floats of a carrier format, summed by a matrix kernel."""

    def __init__(self, case: Case, plan: Callable[[Case], Planned], carrier: FloatFormat, kernel: MatrixKernel) -> None:
        super().__init__(case, plan)
        assert carrier.dtype is not None
        self.carrier, self.kernel, self._dtype = carrier, kernel, carrier.dtype
        self._tree = self.leaf.tree if isinstance(self.leaf, TreeLeaf) else None
        self._in_order = not isinstance(self.leaf, TreeLeaf | Exact)

    def sum(
        self, work: Work, source: Source, ranges: Indices, seeds: Seeds, start: Codes | None, term: Operand | None
    ) -> Partials:
        batch, m, n = source.shape
        out = PARTIAL_RESULTS.take((batch, len(ranges), m, n), self._dtype)
        if start is not None:
            fmt = self.leaf.format
            out[...] = unpack(start.astype(fmt.code_dtype), fmt, self.carrier).reshape(out.shape)
        more: tuple[Any, ...] = (start is None,) if self._in_order else ()
        if self._tree is not None:
            ranges, *more = programs(self._tree, ranges.tobytes())  # type: ignore[assignment]
        for one, (a, b, index) in zip(out, source.floats(self.carrier), strict=True):
            self.kernel(a, b, one, ranges, index, seeds, *more)
        if not self.leaf.format.has_signed_zero:
            out += 0.0
        return Partials(self.leaf.format, floats=(self.carrier, by_range(out)))


def by_range(out: Floats) -> Floats:
    """Return results (batch, R, M, N) as (R, cells)."""
    batch, parts, m, n = out.shape
    ordered = out if batch == 1 else np.ascontiguousarray(np.moveaxis(out, 1, 0))
    return ordered.reshape(parts, batch * m * n)
