"""The form of a sum: what a description does with k terms, without the names that several descriptions have for it.

Two descriptions with equal forms have equal bits on every input of this length. `blocked(hopper, 128, fp32)` and
`splitk(4, hopper, fp32)` have one form for K = 512. All instructions with one model have one form: `wgmma.k16` of
Hopper and `tcgen05.k16` of Blackwell.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Sequence
from typing import TypeAlias

import numpy as np

from floatsim.accumulation import (
    Accumulation,
    Composite,
    Converted,
    Epilogue,
    Leaf,
    Parts,
    Permuted,
    Residue,
    SplitK,
    TensorCore,
    Tf32x3,
)
from floatsim.accumulation.partition import is_dealt, partition, positions
from floatsim.formats import FP32, TF32, FloatFormat
from floatsim.formats.rounding import Rounding
from floatsim.formats.value_sets import contains
from floatsim.tensorcore.instructions import FusedBlocks, Instruction

__all__ = ["sum_form", "unit_model"]

_Items: TypeAlias = "Sequence[Hashable]"


def sum_form(description: Accumulation, a: FloatFormat, b: FloatFormat, k: int) -> Hashable:
    """Return the form of a sum of k products of operands of these formats.

    Raises
    ------
    TypeError, ValueError
        If the description does not take such operands or such a number of terms.

    Examples
    --------
    >>> import floatsim as fs
    >>> texts = "blocked(hopper, 128, fp32)", "splitk(4, blackwell, fp32)"
    >>> one, other = map(fs.as_accumulation, texts)
    >>> [sum_form(one, fs.BF16, fs.BF16, k) == sum_form(other, fs.BF16, fs.BF16, k) for k in (512, 640)]
    [True, False]
    """
    return _form(description, a, b, list(range(k)))


def _form(description: Accumulation, a: FloatFormat, b: FloatFormat, items: _Items) -> Hashable:
    """Return the form of a sum whose terms are these items: numbers of terms, or forms of parts."""
    n = len(items)
    if isinstance(description, Leaf):
        return str(description), tuple(items)
    if isinstance(description, TensorCore):
        return _chain(description, a, b, [items])
    if isinstance(description, Residue):
        assert isinstance(description.inner, TensorCore)
        ends = np.cumsum([0, *(length for length, _ in description.runs(n))]).tolist()
        pieces = [items[start:end] for start, end in itertools.pairwise(ends)]
        return _chain(description.inner, a, b, pieces)
    if isinstance(description, Converted):
        inside = _form(description.inner, description.format, description.format, items)
        exact = all(contains(description.format, fmt) for fmt in (a, b))
        return inside if exact else ("converted", description.format.name, description.rounding, inside)
    if isinstance(description, Tf32x3 | Epilogue):
        x, y = description.operand_formats(a, b)
        own = [type(description).__name__]
        if isinstance(description, Epilogue):
            own += [str(value) for value in (description.format, description.fused, description.through)]
            own.append(str(description.activation))
        return (*own, _form(description.inner, x, y, items))
    if isinstance(description, Permuted):
        return _form(description.inner, a, b, [items[i] for i in positions(description, n).tolist()])
    if not isinstance(description, Composite | Parts):
        raise TypeError(f"{description} is no sum of parts")
    *inners, outer = description.children
    if is_dealt(description):
        assert isinstance(description, SplitK)
        items = [items[i] for i in positions(description, n).tolist()]
    ranges = partition(description, np.array([[0, n, 1]]).tobytes()).parts.tolist()
    if not isinstance(description, Parts):
        inners *= len(ranges)
    parts = [
        _form(inner, a, b, items[start:stop:step]) for inner, (start, stop, step) in zip(inners, ranges, strict=True)
    ]
    result = description.part_format if isinstance(description, Parts) else description.children[0].result_format
    joined = _form(outer, result, result, parts)
    through = description.through if isinstance(description, SplitK) else None
    return joined if through is None else ("through", through.name, joined)


def unit_model(row: Instruction) -> Hashable:
    """Return what an instruction does with its terms: equal for instructions that are one function.

    A chain of blocks has the same sum, whatever number of blocks is an instruction, as zero terms change no bit. In
    other models they may change the sign of a zero.
    """
    if isinstance(row.model, FusedBlocks):
        return dataclasses.replace(row.model, terms=row.block), row.output.name
    return row.model, row.output.name, row.k


def _chain(unit: TensorCore, a: FloatFormat, b: FloatFormat, pieces: Sequence[_Items]) -> Hashable:
    """Return the form of a chain of instructions on one accumulator. Each piece fills instructions of its own."""
    row = unit.row(a, b)
    every = row.block if isinstance(row.model, FusedBlocks) else row.k
    blocks = [tuple(piece[start : start + every]) for piece in pieces for start in range(0, len(piece), every)]
    form: Hashable = ("unit", unit_model(row), tuple(blocks))
    if row.truncates and FP32 in (a, b):
        form = ("converted", TF32.name, Rounding.TOWARD_ZERO, form)
    return form
