"""The messages of a collective: the ranks' arrays, the format of the wire, and the rounding of one addition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from floatsim.arrays.array.conversion import as_float_array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.call.options import get_context
from floatsim.arrays.call.random_stream import RandomStream, SeedLike
from floatsim.arrays.elementwise.arithmetic import add, multiply
from floatsim.formats import FP16, FP32, FP64, FloatFormat, FormatLike, as_format
from floatsim.formats.rounding import OverflowLike, Rounding, RoundingLike, as_member
from floatsim.formats.value_sets import contains
from floatsim.quantization.scales import number
from floatsim.training.policies.conversions import NEAREST, nearest, to_format

__all__ = ["NARROW_BITS", "Wire", "as_messages", "read_ranks"]

NARROW_BITS = 8
"""Formats of at most this width are added and multiplied through FP16 in NCCL (`src/device/reduce_kernel.h`)."""


def as_messages(x: Any) -> FloatArray:
    """Return the arrays of the ranks as one FloatArray. A list of FloatArrays is stacked in their format."""
    if not (isinstance(x, list | tuple) and any(isinstance(rank, FloatArray) for rank in x)):
        return as_float_array(x, "x")
    kinds = [(rank.format.name, rank.shape) if isinstance(rank, FloatArray) else type(rank).__name__ for rank in x]
    if len(set(kinds)) > 1:
        raise ValueError(f"x: the ranks must be FloatArrays of one format and one shape, not {kinds[0]} and "
                         f"{next(kind for kind in kinds if kind != kinds[0])}")  # fmt: skip
    return FloatArray(np.stack([rank.codes for rank in x]), x[0].format)


def read_ranks(x: Any, wire: FormatLike | None, **options: Any) -> tuple[FloatArray, tuple[int, ...]]:
    """Return the messages as (ranks, elements) in the format of the wire, and the shape of one rank's array.

    Raises a ValueError for arrays without a first axis of at least one rank.
    """
    messages = as_messages(x)
    if not messages.ndim or not messages.shape[0]:
        raise ValueError(f"x {messages.shape} has no rank: the first axis is the ranks, at least 1")
    fmt = messages.format if wire is None else as_format(wire)
    if fmt.is_scale:
        raise ValueError(f"{fmt.name} is a scale format, which has no arithmetic; use another format of the wire")
    ranks, shape = messages.shape[0], messages.shape[1:]
    flat = messages.reshape(ranks, int(np.prod(shape, dtype=np.int64)))
    if fmt.bits <= NARROW_BITS and not options.get("overflow"):
        options["overflow"] = "saturate_finite"
    return to_format(flat, fmt, **options), shape


@dataclass(frozen=True)
class Wire:
    """The roundings of a collective. `fs.training.all_reduce` documents them.

    Attributes
    ----------
    format : FloatFormat
        The format of the messages.
    partial : FloatFormat
        The format of the partial sums.
    through : FloatFormat or None
        The format that results are rounded to before they are rounded to `partial`.
    options : dict
        The rounding options of each operation.
    """

    format: FloatFormat
    partial: FloatFormat
    through: FloatFormat | None
    options: dict[str, Any]

    @classmethod
    def of(
        cls, fmt: FloatFormat, accumulate: FormatLike | None, rounding: RoundingLike | None,
        overflow: OverflowLike | None, seed: SeedLike | None,
    ) -> Wire:  # fmt: skip
        """Return the wire of a call. An integer seed becomes a stream: every hop draws its own random numbers.

        NCCL's additions in FP16 are to nearest. In other modes, each operation is rounded once, to the partial sums.
        """
        mode = get_context().rounding if rounding is None else as_member(Rounding, rounding, "rounding")
        if seed is None and mode is Rounding.STOCHASTIC:
            seed = get_context().seed
        stream = seed if seed is None or isinstance(seed, RandomStream) else RandomStream(seed)
        narrow = fmt.bits <= NARROW_BITS
        partial = fmt if accumulate is None else as_format(accumulate)
        if partial.is_scale:
            raise ValueError(f"accumulate={partial.name} is a scale format, which has no arithmetic")
        policy = "saturate_finite" if narrow and overflow is None else overflow
        options = {"rounding": mode, "overflow": policy, "seed": stream}
        by_nccl = narrow and accumulate is None and mode is Rounding.TIES_TO_EVEN and contains(FP16, fmt, False)
        return cls(fmt, partial, FP16 if by_nccl else None, options)

    def _round(self, x: FloatArray, y: FloatArray, function: Any) -> FloatArray:
        if self.through is None:
            return as_float_array(function(x, y, format=self.partial, **self.options), "x")
        wide = as_float_array(function(x, y, format=self.through, **NEAREST), "x")
        return to_format(wide, self.partial, **self.options)

    def add(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return x + y, one hop."""
        return self._round(x, y, add)

    def start(self, x: FloatArray) -> FloatArray:
        """Return a rank's own numbers in the format of the partial sums."""
        return to_format(x, self.partial, **self.options)

    def finish(self, x: FloatArray) -> FloatArray:
        """Return the sums in the format of the wire."""
        return to_format(x, self.format, **self.options)

    def premultiplied(self, x: FloatArray, ranks: int) -> FloatArray:
        """Return x times 1/N, where 1/N is rounded to the format of the partial sums, to nearest and saturating."""
        factor = number(1.0 / ranks, FP64)
        if self.partial != FP64:  # NCCL rounds 1/N to FP32 first
            factor = nearest(nearest(factor, FP32), self.partial, saturate=True)
        return self._round(x, factor, multiply)
