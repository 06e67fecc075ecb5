"""Read the arrays of a comparison: floats of any library, or codes with a format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from floatsim.arrays.conversion import convert, read, read_floats
from floatsim.arrays.float_array import FloatArray, from_codes
from floatsim.formats import FloatFormat, FormatLike, as_format
from floatsim.formats._validation import as_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floatsim.arrays.types import Floats

    Operands: TypeAlias = Sequence[Floats]

__all__ = ["as_float_array", "as_operand_formats", "as_shape", "in_format", "operand_format", "read_pair"]


def as_float_array(x: Any, argument: str, format: FormatLike | None = None) -> FloatArray:
    """Return an argument as a FloatArray of the same memory, where its library allows that.

    Parameters
    ----------
    x : array_like of floats, or codes
        A FloatArray, an array of NumPy, ml_dtypes, torch, JAX or CuPy, or numbers. An array of unsigned integers, or of
        the raw bytes ("V1", "V2") that `np.load` returns for ml_dtypes, holds codes of `format`.
    argument : str
        The name of the argument in error messages.
    format : format, optional
        The format of codes. For floats, `in_format` checks it.

    Raises
    ------
    TypeError
        If x holds integers or raw bytes and no `format` of their width is given, or if it holds no floats.
    """
    source = read(x.detach() if hasattr(x, "detach") else x, argument)
    if isinstance(source, np.ndarray):
        raw = source.dtype.kind == "V" and source.dtype.names is None and not _is_float(source.dtype)
        if raw or (source.dtype.kind == "u" and not isinstance(x, int | list | tuple)):
            return _from_codes(source, argument, format)
    codes, fmt, _ = read_floats(source, argument)
    return FloatArray(np.asarray(codes), fmt)


def _is_float(dtype: np.dtype[Any]) -> bool:
    try:
        as_format(dtype)
    except (TypeError, ValueError):
        return False
    return True


def _from_codes(x: Any, argument: str, format: FormatLike | None) -> FloatArray:
    if format is None:
        raise TypeError(
            f"{argument} has dtype {x.dtype}: it holds codes, not numbers; name their format, as in format='bf16'"
        )
    fmt = as_format(format)
    if x.dtype.itemsize != fmt.code_dtype.itemsize:
        raise TypeError(f"{argument} has dtype {x.dtype}; codes of {fmt.name} have {fmt.code_dtype}")
    return from_codes(x.view(fmt.code_dtype), fmt)


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
