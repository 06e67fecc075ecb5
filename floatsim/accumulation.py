"""How a sum is carried out: descriptions, not code. A kernel or a backend carries them out.

Terms enter exactly, and there is one rounding for each add: acc = round(acc + term).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from floatsim.formats import FloatFormat, FormatLike, as_format

__all__ = ["Accumulation", "Exact", "Sequential", "as_accumulation", "parse"]


@dataclass(frozen=True)
class Sequential:
    """One accumulator, k ascending: acc = +0; acc = round(acc + p) with p = round(a*b).

    With `fused`, acc = round(a*b + acc): the product is not rounded, as in a chain of fused multiply-adds.

    Parameters
    ----------
    format : format
        Of the accumulator, and of the rounded products.
    fused : bool
        Whether products enter unrounded.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.Sequential("bf16", fused=True))
    sequential(bf16, fused)
    """

    format: FloatFormat
    fused: bool = False

    def __init__(self, format: FormatLike, fused: bool = False) -> None:
        object.__setattr__(self, "format", _accumulator_format(format))
        object.__setattr__(self, "fused", bool(fused))

    def __str__(self) -> str:
        return f"sequential({self.format.name.lower()}{', fused' if self.fused else ''})"

    def __repr__(self) -> str:
        return f"Sequential({self.format.name}{', fused=True' if self.fused else ''})"


@dataclass(frozen=True)
class Exact:
    """The exact sum of the exact products, rounded once to `format`.

    An exact zero: all terms +0 give +0, all -0 give -0, otherwise +0 (-0 when rounding toward negative). NaN, or
    infinities of both signs, give NaN; else an infinity wins.

    Parameters
    ----------
    format : format
        What the sum is rounded to.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.Exact(fs.FP16))
    exact(fp16)
    """

    format: FloatFormat

    def __init__(self, format: FormatLike) -> None:
        object.__setattr__(self, "format", _accumulator_format(format))

    def __str__(self) -> str:
        return f"exact({self.format.name.lower()})"

    def __repr__(self) -> str:
        return f"Exact({self.format.name})"


Accumulation: TypeAlias = Sequential | Exact


def _accumulator_format(fmt: FormatLike) -> FloatFormat:
    named = as_format(fmt)
    if named.is_scale:
        raise TypeError(f"{named.name} is a scale format and cannot accumulate")
    return named


_FORM = re.compile(r"(sequential|exact)\s*\((.*?)(,\s*fused\s*)?\)", re.IGNORECASE)


def parse(text: str) -> Accumulation:
    """An accumulation from its text form; `fp16` alone is short for `sequential(fp16)`.

    Raises ValueError, naming the forms there are.

    >>> parse("fp16"), parse("sequential(bf16, fused)"), parse("exact(fp32)")
    (Sequential(FP16), Sequential(BF16, fused=True), Exact(FP32))
    """
    if not (match := _FORM.fullmatch(text.strip())):
        try:
            return Sequential(as_format(text))
        except ValueError as error:
            raise ValueError(
                f"unknown accumulation {text!r} ({error}); write a format, sequential(fmt), sequential(fmt, fused) "
                "or exact(fmt)"
            ) from None
    kind, fmt, fused = match[1].lower(), as_format(match[2]), match[3] is not None
    if kind == "exact":
        if fused:
            raise ValueError(f"{text!r}: an exact sum has no product rounding to fuse")
        return Exact(fmt)
    return Sequential(fmt, fused)


def as_accumulation(x: Accumulation | FloatFormat | str) -> Accumulation:
    """An accumulation as such or from its text form; a format is short for its Sequential. TypeError otherwise."""
    if isinstance(x, Sequential | Exact):
        return x
    if isinstance(x, FloatFormat | type) or type(x).__module__ == "numpy.dtypes":
        return Sequential(as_format(x))
    if isinstance(x, str):
        return parse(x)
    raise TypeError(f"accumulate must be fs.Sequential(fmt), fs.Exact(fmt) or text like 'sequential(fp16)', not {x!r}")
