"""The messages of a collective: the ranks' arrays, the format of the wire, and the rounding of one addition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from floatsim.arrays.arithmetic import add, multiply
from floatsim.arrays.float_array import FloatArray
from floatsim.arrays.random_stream import RandomStream, SeedLike
from floatsim.formats import FP16, FP32, FP64, FloatFormat, FormatLike, as_format
from floatsim.formats.rounding import OverflowLike, RoundingLike
from floatsim.quantization.scales import number
from floatsim.training.rounding import NEAREST, as_float_array, nearest, to_format

__all__ = ["NARROW_BITS", "Wire", "read_ranks"]

NARROW_BITS = 8
"""Formats of at most this width are added and multiplied through FP16 in NCCL (`src/device/reduce_kernel.h`)."""


def read_ranks(x: Any, wire: FormatLike | None, **options: Any) -> tuple[FloatArray, tuple[int, ...]]:
    """Return the messages as (ranks, elements) in the format of the wire, and the shape of one rank's array.

    Raises a ValueError for arrays without a first axis of at least one rank.
    """
    messages = as_float_array(x, "x")
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
        """Return the wire of a call. An integer seed becomes a stream: every hop draws its own random numbers."""
        narrow = fmt.bits <= NARROW_BITS
        partial = fmt if accumulate is None else as_format(accumulate)
        if partial.is_scale:
            raise ValueError(f"accumulate={partial.name} is a scale format, which has no arithmetic")
        stream = RandomStream(seed) if isinstance(seed, int) else seed
        policy = "saturate_finite" if narrow and overflow is None else overflow
        options = {"rounding": rounding, "overflow": policy, "seed": stream}
        return cls(fmt, partial, FP16 if narrow and accumulate is None else None, options)

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
