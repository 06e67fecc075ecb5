"""A fast kernel that a leaf can be summed with."""

from __future__ import annotations

from typing import Any, NamedTuple

from floatsim.formats import FloatFormat

__all__ = ["FastLeaf"]


class FastLeaf(NamedTuple):
    """A kernel on hardware floats that sums a leaf, the format of its operands and accumulators, and its arguments."""

    carrier: FloatFormat
    kernel: Any
    extra: tuple[Any, ...] = ()
