"""Block scales: the arguments scale_a= and scale_b= of matrix products with block-scaled instructions.

This module reads the scales and checks their formats and shapes. `floatsim.tensorcore` defines their effect on a sum.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from floatsim._types import Operand
from floatsim.accumulation import (
    Accumulation,
    Blocked,
    Converted,
    Epilogue,
    Parts,
    Permuted,
    Residue,
    SplitK,
    TensorCore,
    Tf32x3,
    tensor_cores,
)
from floatsim.accumulation.partition import is_dealt
from floatsim.arrays.array.conversion import read_floats
from floatsim.emulator.dispatch.tensorcore_operands import BlockScales
from floatsim.formats import FP32, FloatFormat
from floatsim.tensorcore.architectures import select
from floatsim.tensorcore.instructions import Scales

__all__ = ["block_scales"]


def block_scales(
    scale_a: Any, scale_b: Any, a: Operand, b: Operand, accumulation: Accumulation | None
) -> BlockScales | None:
    """Return the scales of a, (..., M, K), and of b, (..., K, N), as stacks of matrices; None without scales.

    Their format and shape determine how many elements share a scale. Raises ValueError for scales of one operand alone,
    for an accumulation that takes none, and for wrong formats and shapes. The message names accepted values.

    >>> import numpy as np
    >>> from floatsim import E4M3, E8M0, TensorCore, from_codes
    >>> x = np.zeros((4, 64), np.uint8), E4M3
    >>> y = np.zeros((64, 3), np.uint8), E4M3
    >>> of_rows, of_columns = (from_codes(np.zeros(s, np.uint8), E8M0) for s in ((4, 2), (2, 3)))
    >>> block_scales(of_rows, of_columns, x, y, TensorCore("blackwell")).of.every
    32
    """
    if scale_a is None and scale_b is None:
        return None
    if scale_a is None or scale_b is None:
        missing = "scale_a" if scale_a is None else "scale_b"
        raise ValueError(f"{missing} is missing: both operands need scales; scales of 1 change nothing")
    units = [] if accumulation is None else tensor_cores(accumulation)
    if accumulation is None or not units:
        said = "the default accumulation" if accumulation is None else accumulation
        raise ValueError(
            f"scale_a and scale_b are for a TensorCore, such as fs.TensorCore('blackwell'), not for {said}"
        )
    (codes_a, fmt), (codes_b, other) = (
        read_floats(x, name)[:2] for x, name in ((scale_a, "scale_a"), (scale_b, "scale_b"))
    )
    if fmt != other:
        raise ValueError(f"scale_a is {fmt} and scale_b is {other}; an instruction takes scales of one format")
    of = _fitting(units[0], fmt, (codes_a.shape, codes_b.shape), a, b)
    _check_parts(accumulation, a[0].shape[-1], of.every)
    rows, columns = codes_a.shape[-2:], codes_b.shape[-2:]
    return BlockScales(
        codes_a.reshape(math.prod(codes_a.shape[:-2]), *([1] * (2 - len(rows))), *rows),
        codes_b.reshape(math.prod(codes_b.shape[:-2]), *columns, *([1] * (2 - len(columns)))),
        of,
    )


_Shapes: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


def _shapes(of: Scales, a: tuple[int, ...], b: tuple[int, ...]) -> _Shapes:
    """Return the shapes of the scales for operands of these shapes. The last block may be short."""
    parts = -(-a[-1] // of.every)
    return (*a[:-1], parts), (*b[:-2], parts, *b[-1:]) if len(b) > 1 else (parts,)


def _fitting(unit: TensorCore, fmt: FloatFormat, shapes: _Shapes, a: Operand, b: Operand) -> Scales:
    """Return the scales of the selected instructions that have this format and these shapes."""
    rows = [row for row in unit.architecture.instructions if unit.instruction in (None, row.name)]
    there = list(dict.fromkeys(scales for row in rows if row.takes(a[1], b[1]) for scales in row.scales))
    hint = "; fs.quantization.scaled_matmul takes FP32 scales for blocks of K" * (fmt == FP32)
    if not there:
        try:
            select(unit.architecture, unit.instruction, a[1], b[1], unit.output, Scales(32, fmt))
        except ValueError as error:
            raise ValueError(f"{error}{hint}") from None
    known = [scales for scales in there if scales.format == fmt]
    if not known:
        listed = ", ".join(f"{scales.format} for every {scales.every}" for scales in there)
        raise ValueError(f"{unit} takes no scales of {fmt} for {a[1]} by {b[1]}; it takes {listed} elements{hint}")
    for scales in known:
        if _shapes(scales, a[0].shape, b[0].shape) == shapes:
            return scales
    wanted = " or ".join(
        "{} and {} (one for every {} along K)".format(*_shapes(scales, a[0].shape, b[0].shape), scales.every)
        for scales in known
    )
    raise ValueError(
        f"scale_a {shapes[0]} and scale_b {shapes[1]} do not fit a {a[0].shape} and b {b[0].shape}; {fmt} scales are "
        f"{wanted}"
    )


def _check_parts(accumulation: Accumulation, length: int, every: int) -> None:
    """Raise a ValueError if a part of K ends inside a block that shares a scale."""
    if isinstance(accumulation, Permuted) or is_dealt(accumulation):
        raise ValueError(f"{accumulation} reorders elements that share a scale")
    if isinstance(accumulation, Converted | Residue | Tf32x3):
        raise ValueError(f"{accumulation} takes no scales; pass its inner description, {accumulation.inner}")
    if isinstance(accumulation, Epilogue):
        _check_parts(accumulation.inner, length, every)
    if not isinstance(accumulation, Blocked | SplitK | Parts) or not length:
        return
    *inners, _ = accumulation.children
    runs = accumulation.runs(length)
    for n, (part, number) in enumerate(runs):
        if part % every and (number > 1 or n + 1 < len(runs)):
            raise ValueError(
                f"{accumulation} splits K = {length} into parts of {part}, "
                f"inside a block of {every} elements that share a scale; use parts of a multiple of {every}"
            )
        _check_parts(inners[n if isinstance(accumulation, Parts) else 0], part, every)
