"""Conversions to nearest, whatever the context, for models of systems that always round so."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from floatsim.arrays.conversion import convert, read_floats
from floatsim.arrays.float_array import FloatArray
from floatsim.arrays.options import Context, context
from floatsim.formats import FloatFormat

__all__ = ["NEAREST", "as_float_array", "check_tensors", "nearest", "plain", "to_format"]

NEAREST: dict[str, Any] = {
    "rounding": "ties_to_even", "overflow": "infinity", "daz": False, "ftz": False, "tininess": "after",
}  # fmt: skip
"""The options of IEEE's default rounding."""


def plain() -> AbstractContextManager[Context]:
    """Return a context in which every rounding is to nearest, and nothing is flushed.

    >>> import floatsim as fs
    >>> with fs.context(rounding="toward_zero"), plain():
    ...     fs.array(0.1, "bf16")
    FloatArray(0.1001, BF16)
    """
    return context(**NEAREST)


def as_float_array(x: Any, argument: str) -> FloatArray:
    """Return a FloatArray of an operand, whose dtype is a format or which is a FloatArray."""
    codes, fmt, _ = read_floats(x, argument)
    return FloatArray(codes, fmt)


def check_tensors(tensors: Any, argument: str) -> None:
    """Raise a TypeError unless the argument is a mapping of names to FloatArrays."""
    if not isinstance(tensors, Mapping):
        raise TypeError(f"{argument} must be a mapping of names to FloatArrays, not {type(tensors).__name__}")
    for name, x in tensors.items():
        if not isinstance(x, FloatArray):
            kind = type(x).__name__
            raise TypeError(f"{argument}[{name!r}] must be a FloatArray, not {kind}; use fs.array(x, format)")


def to_format(x: FloatArray, fmt: FloatFormat, **options: Any) -> FloatArray:
    """Return x rounded to a format; x itself if it has the format already."""
    return x if x.format == fmt else as_float_array(convert(x, fmt, **options), "x")


def nearest(x: FloatArray, fmt: FloatFormat, *, saturate: bool = False) -> FloatArray:
    """Return x rounded to a format, to nearest, ties to even, whatever the context.

    With `saturate`, numbers beyond the largest one and infinities become the largest one.
    """
    overflow = "saturate_finite" if saturate else "infinity"
    return to_format(x, fmt, **{**NEAREST, "overflow": overflow})
