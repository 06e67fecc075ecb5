"""Candidates of `identify`: sums of matrix units as the kernels of GPU libraries compose them.

A candidate is composed of rows: how operands are converted, the unit, the order of its parts, the sum of the parts, and
what the kernel does after the sum. A new kind of kernel is one more row.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from floatsim.accumulation import (
    Accumulation,
    Converted,
    Epilogue,
    Permuted,
    Residue,
    Sequential,
    TensorCore,
    Tf32x3,
    tensor_cores,
)
from floatsim.accumulation.partition import positions
from floatsim.formats import BF16, E4M3, E5M2, FP16, FP32, FP64, TF32, FloatFormat
from floatsim.formats.rounding import Rounding
from floatsim.tensorcore.architectures import ARCHITECTURES, as_architecture
from floatsim.tensorcore.instructions import FusedBlocks, Instruction
from floatsim.testing.identify.orders_of_parts import RESIDUES, Layout, Order, ends_of_blocks, every_order, layout_of
from floatsim.testing.identify.orders_of_parts import matches as _matches
from floatsim.testing.identify.sum_forms import unit_model
from floatsim.testing.identify.tree_search import Meetings

__all__ = [
    "CONVERSIONS", "architecture_of", "epilogues", "matched_layouts", "of_each_architecture", "on_architecture",
    "unit_sums",
]  # fmt: skip

_HALVES = (FP16, BF16)
_TRITON = tuple(k for half in range(2) for k in range(32) if k // 2 % 2 == half)
"""The order of FP8 terms that Triton converts to FP16: of each four the first two, then the others of all 32."""


class Conversion(NamedTuple):
    """What a kernel does with operands of some formats: the format of the unit's operands, the sum, and the chains.

    `order` is the order of the terms, if the kernel changes it with the conversion.
    """

    operands: tuple[FloatFormat, ...]
    reads: FloatFormat | None
    whole: Callable[[Accumulation], Accumulation]
    chain: Callable[[Accumulation], Accumulation]
    order: tuple[int, ...] | None = None


def _as_it_is(x: Accumulation) -> Accumulation:
    return x


CONVERSIONS = (
    Conversion((), None, _as_it_is, _as_it_is),
    Conversion((FP32,), TF32, lambda x: Converted(TF32, x), _as_it_is),
    Conversion((FP32,), TF32, lambda x: Converted(TF32, x, Rounding.TOWARD_ZERO), _as_it_is),
    Conversion((FP32,), TF32, lambda x: Converted(TF32, x, Rounding.TIES_TO_AWAY), _as_it_is),
    Conversion((FP32,), TF32, _as_it_is, Tf32x3),
    Conversion((FP32,), BF16, lambda x: Converted(BF16, x), _as_it_is),
    Conversion((E4M3, E5M2), FP16, lambda x: Converted(FP16, x), _as_it_is, _TRITON),
)
"""The conversions of operands; no format stands for all."""


_FILTERS = ("3x3", "5x5", "7x7", "1x3", "3x1")
_CHANNELS = (8, 16, 32, 64, 128, 256)
_WAYS = ("", "-descending")


def _orders_of_terms(conversion: Conversion, k: int) -> list[tuple[int, ...] | str | None]:
    """Return the orders of the terms: that of the conversion, or as they are, then those of convolutions."""
    if conversion.order is not None:
        return [conversion.order]
    convolutions = [
        f"conv-{each}x{channels}{way}" for each in _FILTERS for channels in _CHANNELS for way in _WAYS
        if k % (int(each[0]) * int(each[-1]) * channels) == 0
    ]  # fmt: skip
    return [None, *convolutions]


class Sum(NamedTuple):
    """How the results of the parts are added."""

    outer: Accumulation
    through: FloatFormat | None = None


def _sums(narrow: Sequence[FloatFormat], results: FloatFormat | None = None) -> list[Sum]:
    """Return the sums of the parts: in FP32, of parts stored in a narrow format, with a stored sum, and narrow.

    Of results in a narrow format, the first three are two: a conversion does nothing, and a stored sum is narrow.
    """
    found = [Sum(Sequential(FP32))]
    for fmt in narrow:
        stored = [Sum(Converted(fmt, Sequential(FP32))), Sum(Sequential(FP32), fmt)]
        found += [*(stored if fmt != results else []), Sum(Sequential(fmt))]
    return found


@functools.lru_cache(maxsize=64)
def _classes(a: FloatFormat, b: FloatFormat, architecture: str | None) -> tuple[tuple[TensorCore, int], ...]:
    """Return units of fused blocks for operands of these formats, one for each function, and the terms of a block."""
    found: dict[object, tuple[TensorCore, int]] = {}
    for name in ARCHITECTURES if architecture is None else (architecture,):
        for unit, row in _units(name, a, b):
            if isinstance(row.model, FusedBlocks):
                found.setdefault(unit_model(row), (unit, row.block))
    return tuple(found.values())


@functools.lru_cache(maxsize=256)
def _units(
    architecture: str, a: FloatFormat, b: FloatFormat
) -> tuple[tuple[TensorCore, Instruction], ...]:  # fmt: skip
    """Return the units of an architecture for operands of these formats, and their rows, the shortest text first."""
    found: list[tuple[TensorCore, Instruction]] = []
    table = ARCHITECTURES[architecture]
    for name in (None, *dict.fromkeys(row.name for row in table.instructions)):
        for output in (None, FP16):
            try:
                unit = TensorCore(architecture, name, output)
                found.append((unit, unit.row(a, b)))
            except ValueError:  # there is no such instruction
                continue
    return tuple(found)


# -- candidates --------------------------------------------------------------------------------------------------------


def matched_layouts(
    meetings: Meetings, k: int, block: int, residues: Sequence[int] = RESIDUES
) -> Iterator[tuple[list[Order], int]]:
    """Yield the orders whose chains of blocks have these meetings, as orders with one layout and the residue's tile."""
    seen: dict[bytes, list[Order]] = {}
    layouts: dict[bytes, Layout] = {}
    for order in every_order(k):
        layout = layout_of(order, k)
        key = b"".join(each.tobytes() for each in layout)
        seen.setdefault(key, []).append(order)
        layouts.setdefault(key, layout)
    for key, orders in seen.items():
        tried: set[bytes] = set()
        for residue in residues:
            ends = ends_of_blocks(layouts[key], block, residue)
            if ends.tobytes() in tried:
                continue
            tried.add(ends.tobytes())
            if _matches(layouts[key], ends, meetings):
                yield orders, residue


def unit_sums(
    meetings: Meetings, k: int, a: FloatFormat, b: FloatFormat, result: FloatFormat, architecture: str | None = None
) -> list[Accumulation]:
    """Return the composed sums of matrix units whose terms meet as in a kernel.

    >>> import numpy as np, floatsim as fs
    >>> i, j = np.triu_indices(40, 1)  # three instructions of 16 terms
    >>> meetings = Meetings(i, j, np.minimum((j // 16 + 1) * 16, 40))
    >>> [str(each) for each in unit_sums(meetings, 40, fs.BF16, fs.BF16, fs.BF16, "hopper")]
    ['tensorcore(hopper)']
    """
    narrow = [fmt for fmt in _HALVES if fmt in (a, b, result)]
    found: dict[Accumulation, None] = {}
    layouts: dict[object, list[tuple[list[Order], int]]] = {}
    rows = [row for row in CONVERSIONS if not row.operands or {a, b} <= set(row.operands)]
    tried = ((row, order) for row in rows for order in _orders_of_terms(row, k))
    for conversion, terms in sorted(tried, key=lambda pair: isinstance(pair[1], str)):
        if isinstance(terms, str) and found:  # convolutions, if the terms do not ascend
            break
        x, y = (conversion.reads or fmt for fmt in (a, b))
        for unit, block in _classes(x, y, architecture):
            if unit.row(x, y).truncates and FP32 in (x, y):
                continue
            if (block, terms) not in layouts:
                residues = RESIDUES if terms is None else (0,)
                layouts[block, terms] = list(matched_layouts(_reordered(meetings, terms, k), k, block, residues))
            for orders, residue in layouts[block, terms]:
                for each in _composed(conversion, unit, orders, residue, terms, narrow):
                    found.setdefault(each)
    return list(found)


def _reordered(meetings: Meetings, terms: tuple[int, ...] | str | None, k: int) -> Meetings:
    """Return the meetings with the places of the terms in an order in place of their numbers."""
    if terms is None:
        return meetings
    places = np.argsort(positions(Permuted(terms, Sequential(FP32)), k))
    return dataclasses.replace(meetings, i=places[meetings.i], j=places[meetings.j])


def _composed(
    conversion: Conversion, unit: TensorCore, orders: Sequence[Order], residue: int,
    terms: tuple[int, ...] | str | None, narrow: Sequence[FloatFormat],
) -> Iterator[Accumulation]:  # fmt: skip
    chain: Accumulation = Residue(unit, residue) if residue else unit
    try:
        chain = conversion.chain(chain)
    except TypeError:  # no residue in three products
        return
    for each in _sums(narrow, unit.output) if orders[0].rule != "chain" else _sums(())[:1]:
        for order in orders:
            try:
                inner = order.of(chain, *each)
            except ValueError:  # the order does not store its sum
                continue
            yield conversion.whole(inner if terms is None else Permuted(terms, inner))
            break


# -- after the sum -----------------------------------------------------------------------------------------------------


def epilogues(
    result: FloatFormat, with_c: bool, never_negative: bool
) -> list[Callable[[Accumulation], Accumulation]]:  # fmt: skip
    """Return what a kernel may do after the sum, as functions of descriptions."""
    fmt = FP64 if result == FP64 else FP32
    activations = ("relu", None) if never_negative else (None,)
    throughs = (None, result) if with_c and result in _HALVES else (None,)
    found = [
        functools.partial(Epilogue, format=fmt, through=through, activation=activation)
        for activation in activations
        for through in throughs
        if with_c or activation
    ]
    return [*found, _as_it_is]


# -- architectures -----------------------------------------------------------------------------------------------------


def on_architecture(description: Accumulation, architecture: str | None) -> bool:
    """Return whether all units of a description belong to an architecture; None for any."""
    return architecture is None or all(unit.arch == architecture for unit in tensor_cores(description))


def of_each_architecture(
    description: Accumulation, a: FloatFormat, b: FloatFormat, architecture: str | None = None
) -> list[Accumulation]:
    """Return the same function with the units of all architectures that have it, one for each.

    >>> import floatsim as fs
    >>> [str(each) for each in of_each_architecture(fs.as_accumulation("hopper"), fs.BF16, fs.BF16)]
    ['tensorcore(hopper)', 'tensorcore(blackwell)', 'tensorcore(blackwell-rtx)']
    """
    if not tensor_cores(description):
        return [description]
    found: dict[Accumulation, None] = {}
    for name in ARCHITECTURES if architecture is None else (architecture,):
        other = _with_units_of(description, a, b, name)
        if other is not None:
            found[other] = None
    return list(found) or [description]


def _with_units_of(
    description: Accumulation, a: FloatFormat, b: FloatFormat, architecture: str
) -> Accumulation | None:  # fmt: skip
    if isinstance(description, TensorCore):
        row = description.row(a, b)
        wanted = unit_model(row), row.truncates and FP32 in (a, b)
        for unit, other in _units(architecture, a, b):
            if (unit_model(other), other.truncates and FP32 in (a, b)) == wanted:
                return unit
        return None
    if not tensor_cores(description):
        return description
    x, y = description.operand_formats(a, b)
    children = {child: _with_units_of(child, x, y, architecture) for child in description.children}
    if any(child is None for child in children.values()):
        return None
    return description.with_children(lambda child: children[child])  # type: ignore[arg-type,return-value]


def architecture_of(device: str | None) -> str | None:
    """Return the name of a device's architecture; None for no device.

    >>> architecture_of("NVIDIA H200"), architecture_of(None)
    ('hopper', None)
    """
    return None if device is None else as_architecture(device).name
