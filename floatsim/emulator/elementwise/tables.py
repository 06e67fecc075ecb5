"""Results read from tables, which hold the result and the events of every operand, or of every pair of 8-bit operands.

The integer kernels, or the kernels of a function, compute the entries: a table is correct where they are.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from floatsim_kernels.elementwise import tables as loops

from floatsim._types import Codes, Seeds
from floatsim.emulator.elementwise.case import TABLE_SHARE, Case
from floatsim.emulator.elementwise.kernel import Kernel, PlanPart, Run
from floatsim.emulator.elementwise.operations import Family
from floatsim.emulator.elementwise.pieces import NO_DRAWS, Array, Events
from floatsim.formats import FloatFormat

__all__ = ["LastTable", "Table"]

_BITS = 16  # of all operands together


class _Entries(NamedTuple):
    """The entries for every value of the operands' types, so that no code is beyond the end."""

    codes: Codes
    events: Events | None


def _width(sources: tuple[FloatFormat, ...]) -> int:
    return sum(8 * source.code_dtype.itemsize for source in sources)


class _Reader:
    """Reads a table, which is computed at the first use."""

    def __init__(self, case: Case, compute: Run) -> None:
        self.case, self.compute = case, compute
        self._gather = loops.gather if len(case.sources) == 1 else loops.gather_pairs

    def run(self, codes: Sequence[Array], out: Array, events: Events | None, draws: Seeds) -> None:
        table = _entries(self)
        self._gather(*codes, table.codes, out)
        if events is not None:
            self._gather(*codes, table.events, events)


@functools.lru_cache(maxsize=256)
def _entries(reader: _Reader) -> _Entries:
    """Return the table of a reader. Plans outlive it: their number is larger, and a table has up to 0.6 MB."""
    case = reader.case
    every = [np.resize(source.codes(), 1 << _width((source,))) for source in case.sources]
    grids = [grid.reshape(-1) for grid in np.meshgrid(*every, indexing="ij")]
    size = grids[0].size
    table = _Entries(np.empty(size, case.result.code_dtype), np.empty(size, np.uint8) if case.events else None)
    reader.compute(grids, table.codes, table.events, NO_DRAWS)
    return table


class Table:
    """Reads results of functions, and of other operations on 8-bit operands, for which a table is the fastest way."""

    name = "table"
    takes = frozenset({Family.ARITHMETIC, Family.OTHER, Family.INTEGRAL, Family.FUNCTION})

    def refusal(self, case: Case) -> str | None:
        is_slow = case.operation.family is Family.FUNCTION
        if not is_slow and any(source.bits > 8 for source in case.sources):
            return "tables of wider operands than 8 bits are tried last"
        return _refusal(case)

    def kernel(self, case: Case, plan: PlanPart) -> Kernel:
        names = () if case.operation.family is Family.FUNCTION else ("integers",)
        return Kernel(_Reader(case, plan(replace(case, size=0), *names).kernel.run).run)


class LastTable(Table):
    """Reads results that otherwise the integer kernels compute."""

    name = "last table"
    takes = frozenset(Family) - {Family.FUNCTION, Family.QUANTIZATION}

    def refusal(self, case: Case) -> str | None:
        return _refusal(case)


def _refusal(case: Case) -> str | None:
    """Return why results are not read from a table: it has many entries, or the results are drawn."""
    bits = _width(case.sources)
    if bits > _BITS:
        return f"a table of {bits} bits is too large"
    if case.draws:
        return "results are drawn"
    few = TABLE_SHARE * case.size < 1 << bits
    return f"a table of 2**{bits} entries is made for a fourth as many elements" if few else None
