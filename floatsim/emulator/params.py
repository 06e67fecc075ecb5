"""Formats and manners of rounding as rows of integers, which is what the kernels know of them."""

from __future__ import annotations

import functools
import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from floatsim_kernels.gemm import float64 as loops
from floatsim_kernels.rounding import float32 as steps
from floatsim_kernels.rounding import integer as rows

from floatsim import reference
from floatsim.formats import BF16, FP32, FloatFormat
from floatsim.formats.rounding import Attributes, Rounding

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "NO_GRID", "WIDE_SHIFT", "format_row", "manner_row", "narrow_grid", "narrow_row", "quick_row", "rule_of",
    "shift_of",
]  # fmt: skip


@functools.lru_cache(maxsize=256)
def format_row(fmt: FloatFormat) -> NDArray[np.int64]:
    """The kernels' description of a format."""
    fields = {
        "precision": fmt.precision,
        "emin": fmt.emin,
        "max_code": fmt.max_code,
        "infinity": -1 if fmt.infinity_code is None else fmt.infinity_code,
        "nan": -1 if fmt.canonical_nan is None else fmt.canonical_nan,
        "sign_shift": fmt.exponent_bits + fmt.trailing_bits,
        "quiet_bit": 1 << (fmt.trailing_bits - 1) if fmt.has_infinity else 0,
        "signed_zero": int(fmt.has_signed_zero),
        "is_scale": int(fmt.is_scale),
    }
    return _row(fields, rows.FORMAT_FIELDS)


@functools.lru_cache(maxsize=256)
def manner_row(attributes: Attributes) -> NDArray[np.int64]:
    """The kernels' description of a manner of rounding."""
    fields = {
        "rounding": attributes.rounding.value,
        "overflow": attributes.overflow.value,
        "daz": int(attributes.daz),
        "ftz": int(attributes.ftz),
        "tiny_before": attributes.tininess.value,
        "random_bits": attributes.random_bits,
    }
    return _row(fields, rows.MANNER_FIELDS)


def _row(fields: dict[str, int], order: tuple[str, ...]) -> NDArray[np.int64]:
    row = np.array([fields[name] for name in order], dtype=np.int64)
    row.flags.writeable = False
    return row


def _float_bits(x: float) -> int:
    return int(np.float32(x).view(np.uint32))


def _power(exponent: int) -> float:
    return math.ldexp(1.0, exponent)


def _row32(fields: dict[str, int], order: tuple[str, ...]) -> NDArray[np.uint32]:
    row = np.zeros(steps.GRID_SIZE, np.uint32)
    row[: len(order)] = [fields[name] for name in order]
    row.flags.writeable = False
    return row


NO_GRID = np.zeros(steps.GRID_SIZE, np.uint32)


def _overflows_to(fmt: FloatFormat, how: Attributes) -> tuple[int, int, int, int]:
    """What overflow (+, -), an infinite sum, and NaN become: bits of float32 magnitudes."""

    def magnitude(number: reference.Number, how: Attributes) -> int:
        code, _ = reference.convert(number, fmt, how)
        return reference.convert(reference.decode(code, fmt), FP32, Attributes())[0] & ~FP32.sign_mask

    positive, negative = (magnitude(reference.Number(reference.Kind.FINITE, sign, 1, 5000), how) for sign in (0, 1))
    exact = Attributes()  # infinite sums do not saturate
    infinite = magnitude(reference.Number(reference.Kind.INFINITE, 0), exact)
    return positive, negative, infinite, magnitude(reference.NAN, exact)


def narrow_row(fmt: FloatFormat, how: Attributes) -> NDArray[np.uint32]:
    over, negative_over, infinity, nan = _overflows_to(fmt, how)
    fields = {
        "emin": _float_bits(_power(fmt.emin)),
        "limit": _float_bits(_power(fmt.emax + 1)),
        "above": FP32.precision - fmt.precision << FP32.trailing_bits,
        "max": _float_bits(fmt.max),
        "overflow": over,
        "negative_overflow": negative_over,
        "infinity": infinity,
        "nan": nan,
    }
    return _row32(fields, steps.NARROW_FIELDS)


def quick_row(
    fmt: FloatFormat, style: int, direction: int, how: Attributes, shift: int = 0
) -> NDArray[np.uint32] | None:
    """What the quick styles need to know; None where they are not for the format."""
    more = FP32.precision - fmt.precision
    factor, low, most, high, infinite = 1.5 * _power(more), -math.inf, math.inf, math.inf, 0
    if style == steps.NEAREST and fmt != BF16:
        shift = FP32.emax + 1 - fmt.emax - more
    elif fmt != BF16:
        overflow = _overflows_to(fmt, how)[direction == steps.TOWARD_NEGATIVE]
        low, most, high = -fmt.max, fmt.max, fmt.max
        if style == steps.UPWARD:
            shift = FP32.emax - fmt.emax - more
            if overflow != _float_bits(fmt.max):
                factor, high, infinite = _power(more + 1) - 2, _power(fmt.emax + 1), overflow
    if style == steps.INWARD:
        factor = _power(more)
    if fmt.precision > 11 or abs(shift) > -FP32.emin:
        return None
    scale = _power(shift)
    sign = -1 if direction == steps.TOWARD_NEGATIVE else 1
    fields = {
        "emin": _float_bits(_power(max(fmt.emin + shift, FP32.emin))),
        "factor": _float_bits(_power(more)),
        "more": _float_bits(factor),
        "scale": _float_bits(sign * scale),
        "unscale": _float_bits(sign / scale),
        "low": _float_bits(low * scale),
        "most": _float_bits(most * scale),
        "high": _float_bits(high * scale),
        "infinite": infinite,
        "zero": FP32.sign_mask if sign < 0 else 0,
        "mask": 2**32 - 2 ** max(32 - how.random_bits, 0),
    }
    return _row32(fields, steps.QUICK_FIELDS)


WIDE_SHIFT = -9  # BF16 sums as low as 2**-133 stay multiples of float32's 2**-149, those below 2**121 are in reach


def shift_of(row: NDArray[np.uint32]) -> int:
    """The exponent of the scale of a row."""
    return (int(row[steps.SCALE]) >> FP32.trailing_bits & 0xFF) - FP32.bias


_RULES = {
    Rounding.TIES_TO_EVEN: loops.EVEN,
    Rounding.TIES_TO_AWAY: loops.AWAY,
    Rounding.TOWARD_ZERO: loops.INWARD,
    Rounding.TOWARD_POSITIVE: loops.DOWN,  # with all signs turned
    Rounding.TOWARD_NEGATIVE: loops.DOWN,
    Rounding.TO_ODD: loops.ODD,
    Rounding.STOCHASTIC: loops.STOCHASTIC,
}


def _sign(how: Attributes) -> float:
    """-1 if the kernels round as is asked for when all signs are turned."""
    return -1.0 if how.rounding is Rounding.TOWARD_POSITIVE else 1.0


@functools.lru_cache(maxsize=256)
def _grid(fmt: FloatFormat, rule: int, how: Attributes) -> NDArray[np.float64]:
    """What the kernels need to know: see there."""

    turned = int(_sign(how) < 0)

    def overflow(sign: int) -> float:
        code, _ = reference.convert(reference.Number(reference.Kind.FINITE, sign, 1, 5000), fmt, how)
        number = reference.decode(code, fmt)
        return float("nan") if number.is_nan else float("inf") if number.is_infinite else fmt.max

    t = fmt.trailing_bits
    fields = {
        "lowest": 2.0**fmt.emin * (1.5 if rule in loops.BOTH_SIGNS else 1.0),
        "scale": 2.0 ** (52 - 32 - t if rule == loops.STOCHASTIC else 52 - t),
        "half": 2.0 ** (-t - 1),
        "max": fmt.max,
        "overflow": overflow(turned),
        "negative_overflow": overflow(1 - turned),
        "random_mask": float(2**32 - 2 ** max(32 - how.random_bits, 0)),
        "infinity": float("inf") if fmt.has_infinity else float("nan"),
    }
    row = np.array([fields[name] for name in loops.GRID_FIELDS])
    row.flags.writeable = False
    return row


def rule_of(fmt: FloatFormat, how: Attributes) -> tuple[int, float, NDArray[np.float64]]:
    """(rule, sign, grid) of the kernels for a rounding."""
    rule = _RULES[how.rounding]
    return rule, _sign(how), _grid(fmt, rule, how)


@lru_cache(maxsize=256)
def narrow_grid(fmt: FloatFormat) -> NDArray[np.uint32]:
    """The row that describes a narrow format to the kernels."""

    def bits(x: float) -> int:
        return int(np.float32(x).view(np.uint32))

    fields = {
        "emin": bits(fmt.smallest_normal),
        "limit": fmt.emax + 1 + FP32.bias << FP32.trailing_bits,
        "above": FP32.precision - fmt.precision << FP32.trailing_bits,
        "max": bits(fmt.max),
        "overflow": bits(np.inf if fmt.has_infinity else np.nan),
    }
    row = np.array([fields[name] for name in steps.NARROW_GRID_FIELDS], dtype=np.uint32)
    row.flags.writeable = False
    return row
