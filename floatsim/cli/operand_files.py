"""Operands and results of kernels from files: numbers, or codes whose format an option names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floatsim.arrays.array.conversion import array, as_float_array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.cli.console import BadInputError, named_format, one_line, split
from floatsim.cli.matrix_files import READABLE, read_arrays
from floatsim.formats import FloatFormat

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Codes", "Operands", "code_formats", "names_codes", "read_operand", "rounded"]

Codes = Annotated[
    list[str] | None,
    typer.Option("--codes", help="The format of files that hold codes (uint8, uint16, V1, V2): 'bf16' for all of them, "
                                 "'a=e4m3,out=bf16' for single ones."),
]  # fmt: skip
Operands = Annotated[str | None, typer.Option("--operands", help="Round the operands a and b to this format first.")]


def code_formats(texts: Sequence[str] | None, names: Sequence[str]) -> dict[str, FloatFormat]:
    """Return the format of the codes in each named file, from texts such as "bf16" and "a=e4m3,out=bf16"."""
    found: dict[str, FloatFormat] = {}
    single: dict[str, FloatFormat] = {}
    for part in (part for text in texts or () for part in split(text)):
        name, equals, fmt = part.partition("=")
        if not equals:
            found |= dict.fromkeys(names, named_format(part, "--codes"))
        elif name.strip() in names:
            single[name.strip()] = named_format(fmt.strip(), "--codes")
        else:
            raise BadInputError(f"--codes: {name.strip()!r} is no file of this command; known are {', '.join(names)}")
    return found | single


def names_codes(texts: Sequence[str] | None, name: str) -> bool:
    """Return whether --codes names the format of one file, as in "a=e4m3"."""
    return any(part.partition("=")[0].strip() == name for text in texts or () for part in split(text) if "=" in part)


def read_operand(
    argument: str, name: str, codes: FloatFormat | None = None, *, must_be_codes: bool = False,
    text: FloatFormat | None = None,
) -> FloatArray:  # fmt: skip
    """Return the array of a file, given by the option --`name`. With `must_be_codes`, numbers are an error.

    Floats of 16, 32 and 64 bits are numbers. Unsigned integers and raw bytes are codes of the format `codes`. Other
    dtypes raise a `BadInputError`, and so do codes without a format. The decimal numbers of a .csv file are rounded to
    the format `text`, once, to nearest, with a notice if one changes: the shortest decimals of FP32 are FP32 again.
    """
    option = f"--{name}"
    path, arrays = read_arrays(argument, option)
    if len(arrays) != 1:
        raise BadInputError(f"{option}: {path} has {len(arrays)} arrays; {path}:NAME picks one: {', '.join(arrays)}")
    (x,) = arrays.values()
    if must_be_codes and (isinstance(x, FloatArray) or x.dtype.kind == "f"):
        raise BadInputError(f"--codes: {path} holds numbers, not codes; omit {name}=, or round with --operands")
    if isinstance(x, FloatArray):
        return x
    if flaw := _flaw(x, name, codes):
        raise BadInputError(f"{option}: {path} {flaw}")
    try:
        found = as_float_array(x, option, codes)
    except (TypeError, ValueError) as error:
        raise BadInputError(f"{option}: {path}: {one_line(error)}") from None
    if text is not None and path.suffix.lower() == ".csv":
        return rounded(found, text, name)
    if x.dtype.kind in "uV":
        print(f"floatsim: {option}: {path} holds codes of {found.format.name}", file=sys.stderr)
    return found


def _flaw(x: NDArray[Any], name: str, codes: FloatFormat | None) -> str:
    """Return why the array holds neither numbers nor codes; empty if it does."""
    kind, dtype = x.dtype.kind, x.dtype
    if kind == "f":
        return "" if dtype.itemsize <= 8 else f"has dtype {dtype}, which is no format; save x.astype('float64')"
    if kind == "i":
        return f"has dtype {dtype}: save codes as x.view('uint{8 * dtype.itemsize}'), and numbers as floats"
    if kind not in "uV" or dtype.names is not None:
        return f"has dtype {dtype}; it must hold floats of {READABLE} files, or codes (uint8, uint16, V1, V2)"
    if codes is None:
        return f"has dtype {dtype}: it holds codes, not numbers; name their format, as in --codes {name}=bf16"
    if dtype.itemsize != codes.code_dtype.itemsize:
        return f"has dtype {dtype}; codes of {codes.name} have {8 * codes.code_dtype.itemsize} bits"
    return ""


def rounded(x: FloatArray, fmt: FloatFormat | None, name: str) -> FloatArray:
    """Return the operand rounded to a format. Report on stderr how many values changed."""
    if fmt is None or x.format == fmt:
        return x
    found: FloatArray = array(x, fmt)
    changed = int(((found.values != x.values) & ~((found.values != found.values) & (x.values != x.values))).sum())
    if changed:
        print(f"floatsim: --{name}: {changed} of {x.size} values were rounded to {fmt.name}", file=sys.stderr)
    return found
