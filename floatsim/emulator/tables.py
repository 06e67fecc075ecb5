"""Results read from tables, which hold the result and the events of every operand, or of every pair of 8-bit operands.

Whoever reads a table passes the function that computes its entries, so a table is right where that function is right.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from floatsim_kernels.elementwise import tables as loops

from floatsim.emulator.pieces import Array, Arrays, Codes, Events
from floatsim.emulator.types import Seeds
from floatsim.formats import FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import Rounding, RoundingAttributes

__all__ = ["Compute", "is_worthwhile", "reader"]

Compute: TypeAlias = Callable[
    [str, "list[tuple[Array, FloatFormat]]", FloatFormat, CallOptions, bool], tuple[Codes, "Events | None"]
]
"""Called as `compute(name, operands, fmt, options, want_events)` with flat operands; it returns codes and events."""

_BITS = 16  # of all operands together
SHARE = 4
"""A table of n entries is made for calls of at least n / 4 elements."""


class _Table(NamedTuple):
    """The entries for every value of the operands' types, so that no code is beyond the end."""

    codes: Codes
    events: Events | None


def is_worthwhile(sources: tuple[FloatFormat, ...], attributes: RoundingAttributes, size: int) -> bool:
    """Return whether a call on `size` elements reads a table: the operands have few codes, and no result is drawn."""
    bits = _width(sources)
    return bits <= _BITS and attributes.rounding is not Rounding.STOCHASTIC and SHARE * size >= 1 << bits


def _width(sources: tuple[FloatFormat, ...]) -> int:
    return sum(8 * source.code_dtype.itemsize for source in sources)


@functools.lru_cache(maxsize=256)
def _table(
    compute: Compute, name: str, sources: tuple[FloatFormat, ...], fmt: FloatFormat, attributes: RoundingAttributes,
    want_events: bool,
) -> _Table:  # fmt: skip
    every = [np.resize(source.codes(), 1 << _width((source,))) for source in sources]
    grids = [grid.reshape(-1) for grid in np.meshgrid(*every, indexing="ij")]
    operands = list(zip(grids, sources, strict=True))
    return _Table(*compute(name, operands, fmt, CallOptions(attributes), want_events))


def reader(
    compute: Compute, name: str, sources: tuple[FloatFormat, ...], fmt: FloatFormat, attributes: RoundingAttributes,
    want_events: bool,
) -> Callable[[Arrays, Array, Seeds], None]:  # fmt: skip
    """Return a function for `run_in_pieces` that reads results, and events if wanted."""
    table = _table(compute, name, sources, fmt, attributes, want_events)
    gather = loops.gather if len(sources) == 1 else loops.gather_pairs

    def run(pieces: Arrays, written: Array, draws: Seeds) -> None:
        codes = pieces[: len(sources)]
        gather(*codes, table.codes, written)
        if want_events:
            gather(*codes, table.events, pieces[-1])

    return run
