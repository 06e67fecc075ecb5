"""The sums of CPU instructions that are computed in hardware floats, and the calls of their kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from floatsim_kernels.runtime import cpu as machine
from floatsim_kernels.tensorcore import steps_float as loops

from floatsim._types import Codes, Indices
from floatsim.emulator.dispatch.tensorcore_operands import BlockScales, Matrix, Record, floats_of, store, values_of
from floatsim.emulator.params import pack
from floatsim.formats import FP16, FP32
from floatsim.formats.rounding import Rounding
from floatsim.tensorcore.instructions import Instruction, RoundedSteps

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["COUNTED", "WIDTH", "accumulate", "can_do"]

Floats: TypeAlias = "NDArray[np.floating[Any]]"

WIDTH = loops.WIDTH
"""Columns of which a row is done, or left alone, together."""

_LEAST_NORMAL = np.float32(2.0**FP32.emin)


COUNTED = frozenset({"overflow", "invalid", "nan"})
"""The events that a call may count. The kernels count none: they leave rows with infinities or NaNs as they were."""


def can_do(row: Instruction) -> bool:
    """Return whether the kernels on hardware floats are for such sums."""
    if not isinstance(row.model, RoundedSteps):
        return False
    if row.output == FP16:
        return row.block == 1 and bool(machine.has_half_conversion())
    return row.output == FP32 and bool(machine.has_fma())


def accumulate(
    row: Instruction, a: Matrix, b: Matrix, out: Codes, ranges: Indices, scales: BlockScales | None,
    record: Record | None = None,
) -> NDArray[np.bool_]:  # fmt: skip
    """Sums of a (M, K) times b (K, N) over each range into out (ranges, M, N), codes.

    Returns which rows, of which groups of WIDTH columns, of each range are left as they were. `record` is not read:
    the others have no event of COUNTED.
    """
    model = row.model
    assert isinstance(model, RoundedSteps)
    sums = values_of(out, row.output)
    failed = np.zeros((*out.shape[:2], -(-out.shape[2] // WIDTH)), np.bool_)
    if not sums.size:
        return failed
    left, right = floats_of(a), floats_of(b)
    if model.flushes is not None:
        left, right = _flushed(left), _flushed(right)
    fields = {
        "terms": model.terms, "k": row.k, "lanes": model.lanes, "late": int(model.late),
        "from_zero": int(model.from_zero), "reverse": int(model.reverse), "fused": int(model.fused),
        "odd": int(model.rounding is Rounding.TO_ODD), "flushes": int(model.flushes is not None),
    }  # fmt: skip
    ranges = np.ascontiguousarray(ranges)
    if row.output == FP16:
        loops.half_chain(left, right, sums, ranges, failed)
    elif model.group == 1:
        loops.chains(left, right, sums, ranges, _chosen(loops.CHAIN_FIELDS, fields), failed)
    else:
        loops.pairs(left, right, sums, ranges, _chosen(loops.PAIR_FIELDS, fields), failed)
    store(sums, failed, WIDTH, out, row.output)
    return failed


def _chosen(names: tuple[str, ...], fields: dict[str, int]) -> Indices:
    return pack(names, {name: fields[name] for name in names}, np.int64)


def _flushed(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the values with subnormal numbers replaced by zeros of their sign."""
    return np.where(np.abs(values) < _LEAST_NORMAL, np.copysign(np.float32(0), values), values)
