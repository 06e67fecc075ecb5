"""Warnings about arguments whose valid results are probably not intended."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floatsim._warnings import warn
from floatsim.accumulation import AccumulationLike, as_accumulation, fitted, tensor_cores
from floatsim.arrays.call import backends
from floatsim.formats import BF16, E4M3, E5M2, FP16, FP64, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes

__all__ = ["warn_of_fp64_instruction", "warn_of_rounded_number"]

_MOST = 0.1
"""The relative change of a Python number from which it is probably not intended."""
_SAFE_PRECISION = 4
"""In the normal range the nearest number is at most 2**-p / (1 + 2**-p) away, relative to x: 5.9 % for p = 4."""


_TO_NEAREST = CallOptions(RoundingAttributes())


def warn_of_rounded_number(x: int | float, codes: NDArray[Any], fmt: FloatFormat, argument: str) -> None:
    """Warn if a Python number beside an array changed by more than 10 % when it was rounded to the array's format."""
    try:
        size = float(abs(x))
    except OverflowError:  # an int beyond float64
        size = math.inf
    if size == 0 and fmt.has_signed_zero:
        return
    if fmt.precision >= _SAFE_PRECISION and fmt.smallest_normal <= size <= fmt.max:
        return
    value = float(backends.emulator().decode(codes, fmt))
    if value == x or (math.isnan(value) and math.isnan(size)):
        return
    if not (math.isfinite(value) and math.isfinite(size) and abs(value - x) <= _MOST * size):
        warn(
            f"{argument} = {x!r} becomes {value!r} in {fmt.name}, the format of the array; for the exact number use "
            f"np.float64({x!r}) in comparisons, and format= in arithmetic"
        )


def warn_of_fp64_instruction(a: NDArray[Any], b: NDArray[Any], accumulate: AccumulationLike) -> None:
    """Warn if float64 operands, given as codes, select the FP64 instruction of a matrix unit without need."""
    accumulation = as_accumulation(accumulate)
    units = [unit for unit in tensor_cores(accumulation) if unit.instruction is None]
    if not units:
        return
    x, y = (codes.view(np.float64).ravel() for codes in (a, b))
    if not (x.any() and y.any()):
        return
    for fmt in (E4M3, E5M2, FP16, BF16):
        if all(_holds(fmt, part) for part in (x[:64], y[:64], x, y)):
            try:
                fitted(accumulation, fmt, fmt)
            except ValueError:  # no instruction for this format
                continue
            warn(
                f"float64 operands select the FP64 instruction of {units[0].arch}, but all their values are "
                f"numbers of {fmt.name}; fs.array(a, {fmt.name.lower()!r}) selects the instruction for {fmt.name}, and "
                "fs.array(a, 'fp64') or instruction= keeps this one without a warning"
            )
            return


def _holds(fmt: FloatFormat, values: NDArray[np.float64]) -> bool:
    """Return whether all values are numbers of the format, infinities and NaNs aside."""
    codes, _ = backends.emulator().convert(values.view(np.uint64), FP64, fmt, _TO_NEAREST)
    rounded = backends.emulator().decode(codes, fmt)
    return bool(np.all((rounded == values) | ~np.isfinite(values)))
