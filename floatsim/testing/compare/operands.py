"""Read the arrays of a comparison: floats of any library, or codes with a format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from floatsim.arrays.array.conversion import as_float_array, convert
from floatsim.arrays.array.float_array import FloatArray
from floatsim.formats import FloatFormat, FormatLike, as_format
from floatsim.formats._validation import as_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floatsim.arrays.array.types import Floats

    Operands: TypeAlias = Sequence[Floats]

__all__ = ["as_operand_formats", "as_shape", "in_format", "operand_format", "read_pair"]


def as_shape(shape: Any) -> tuple[int, int, int]:
    """Return the lengths M, K and N of a matrix product, or raise a ValueError."""
    try:
        m, k, n = (as_index(length, "shape", 1, 1 << 30) for length in shape)
    except (TypeError, ValueError) as error:
        raise ValueError(f"shape must be three lengths (M, K, N) of at least 1, not {shape!r}: {error}") from None
    return m, k, n


def operand_format(fmt: FormatLike, argument: str) -> FloatFormat:
    """Return a format that has a sign, or raise a ValueError."""
    named = as_format(fmt)
    if named.is_scale:
        raise ValueError(f"{argument}={named.name} is a scale format: it has no negative numbers")
    return named


def as_operand_formats(formats: Any) -> tuple[FloatFormat, FloatFormat]:
    """Return the formats of a and of b, from one format or two, or raise an error that names `formats`."""
    sides = list(formats) if isinstance(formats, list | tuple) else [formats, formats]
    if len(sides) != 2:
        raise ValueError(f"formats must be one format, or those of a and of b, not {formats!r}")
    return operand_format(sides[0], "formats"), operand_format(sides[1], "formats")


def in_format(x: FloatArray, fmt: FloatFormat, argument: str) -> FloatArray:
    """Return an array in a format that holds all of its values, or raise a TypeError that shows a value."""
    if x.format == fmt:
        return x
    converted = convert(x, fmt)
    back, values = np.asarray(converted.values), np.asarray(x.values)
    lost = (back != values) & ~(np.isnan(back) & np.isnan(values))
    if lost.any():
        raise TypeError(
            f"{argument} is {x.format.name}, and {values[lost].ravel()[0]!r} is no number of {fmt.name}; "
            f"round it first, as in fs.array({argument}, {fmt.name.lower()!r})"
        )
    return FloatArray(converted.codes, fmt)


def read_pair(actual: Any, desired: Any, format: FormatLike | None = None) -> tuple[FloatArray, FloatArray]:
    """Return two arrays of one format and shape.

    `format` is by default the format of `actual`. `desired` may have another one, if each of its values is a number of
    the format.

    Raises
    ------
    TypeError
        If an array holds no floats, or values that are no numbers of the format.
    AssertionError
        If the shapes differ.
    """
    got = as_float_array(actual, "actual", format)
    fmt = got.format if format is None else as_format(format)
    expected = as_float_array(desired, "desired", fmt)
    if got.shape != expected.shape:
        raise AssertionError(f"the shapes differ: actual {got.shape}, desired {expected.shape}")
    return in_format(got, fmt, "actual"), in_format(expected, fmt, "desired")
