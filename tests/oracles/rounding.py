"""An exact value rounded by the definitions, and operations that round to integers or not at all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import floatsim as fs
from floatsim import Overflow, Rounding, Tininess

from .decode import (
    DETERMINISTIC,
    FLUSHED,
    INEXACT,
    INVALID,
    OVERFLOW,
    POLICIES,
    SUBNORMAL,
    TININESS,
    UNDERFLOW,
    Value,
    layout,
)


@dataclass(frozen=True)
class OracleRounding:
    """One way of rounding."""

    rounding: Rounding = Rounding.TIES_TO_EVEN
    overflow: Overflow = Overflow.INFINITY
    daz: bool = False
    ftz: bool = False
    tininess: Tininess = Tininess.AFTER
    random_bits: int = 32

    @property
    def attributes(self) -> object:
        from floatsim.reference import RoundingAttributes

        return RoundingAttributes(self.rounding, self.overflow, self.daz, self.ftz, self.tininess, self.random_bits)

    @property
    def keywords(self) -> dict[str, object]:
        return {"rounding": self.rounding, "overflow": self.overflow, "daz": self.daz, "ftz": self.ftz,
                "tininess": self.tininess}  # fmt: skip

    def __str__(self) -> str:
        words = [self.rounding.name.lower(), self.overflow.name.lower(), self.tininess.name.lower()]
        return " ".join(words + ["daz"] * self.daz + ["ftz"] * self.ftz)


def every_rounding(rounding: tuple[Rounding, ...] = DETERMINISTIC) -> list[OracleRounding]:
    """All combinations of mode, policy, tininess, DAZ and FTZ."""
    return [
        OracleRounding(m, o, daz, ftz, t)
        for m in rounding for o in POLICIES for daz in (False, True) for ftz in (False, True) for t in TININESS
    ]  # fmt: skip


def goes_up(
    x: Fraction, low: Fraction, high: Fraction, low_is_odd: bool, sign: int, rounding: OracleRounding, random: int
) -> bool:
    """Which neighbour: x lies strictly between low and high (magnitudes)."""
    mode = rounding.rounding
    twice, middle = 2 * x, low + high
    if mode is Rounding.TIES_TO_EVEN:
        return twice > middle or (twice == middle and low_is_odd)
    if mode is Rounding.TIES_TO_AWAY:
        return twice >= middle
    if mode is Rounding.TOWARD_ZERO:
        return False
    if mode is Rounding.TOWARD_POSITIVE:
        return not sign
    if mode is Rounding.TOWARD_NEGATIVE:
        return bool(sign)
    if mode is Rounding.TO_ODD:
        return not low_is_odd
    steps = (x - low) / (high - low) * 2**rounding.random_bits
    return steps.numerator // steps.denominator + random >= 2**rounding.random_bits


class Rounder:
    """All roundings of one exact magnitude: the neighbours are found once."""

    def __init__(self, x: Fraction, sign: int, fmt: fs.FloatFormat) -> None:
        self.x, self.sign, self.at = x, sign, layout(fmt)
        at = self.at
        self.far = x >= at.beyond
        if x and not self.far:
            self.low = at.neighbour_below(x)
            self.low_worth = at.worth(self.low)

    def __call__(self, rounding: OracleRounding, random: int = 0) -> tuple[int, int]:
        at, x, sign = self.at, self.x, self.sign
        if at.specials == "scale":
            return self._scale(rounding, random)
        if x == 0:
            return at.zero(sign), 0
        if self.far:
            return self._overflow(rounding), OVERFLOW | INEXACT
        magnitude, exact = self.low, x == self.low_worth
        if not exact:
            high = at.worth(self.low + 1)
            magnitude += goes_up(x, self.low_worth, high, at.odd(self.low), sign, rounding, random)
        tiny = x < at.least_normal
        if tiny and rounding.tininess is Tininess.AFTER and x > at.below_normal:
            tiny = not goes_up(x, at.below_normal, at.least_normal, True, sign, rounding, random)
        if tiny and rounding.ftz:
            return at.zero(sign), UNDERFLOW | INEXACT | FLUSHED
        if magnitude > at.largest:
            return self._overflow(rounding), OVERFLOW | INEXACT
        flags = 0 if exact else INEXACT | (UNDERFLOW if tiny else 0)
        if magnitude == 0:
            return at.zero(sign), flags | FLUSHED
        if magnitude < 1 << at.t:
            flags |= SUBNORMAL
        return sign * at.sign_bit + magnitude, flags

    def _overflow(self, rounding: OracleRounding) -> int:
        at, sign = self.at, self.sign
        stays = rounding.overflow is not Overflow.INFINITY or rounding.rounding in (
            Rounding.TOWARD_ZERO,
            Rounding.TO_ODD,
            Rounding.TOWARD_NEGATIVE if sign == 0 else Rounding.TOWARD_POSITIVE,
        )
        return sign * at.sign_bit + at.largest if stays else at.infinity(sign)

    def _scale(self, rounding: OracleRounding, random: int) -> tuple[int, int]:
        at, x = self.at, self.x
        if x == 0 or self.sign:
            return at.nan, INVALID
        if x < at.least_normal:
            return 0, UNDERFLOW | INEXACT
        code, flags = at.largest + 1, INEXACT
        if not self.far:
            code, high = self.low, 2 * self.low_worth
            if x == self.low_worth:
                flags = 0
            elif rounding.rounding is Rounding.TIES_TO_EVEN:
                code += 2 * x >= self.low_worth + high
            else:
                code += goes_up(x, self.low_worth, high, True, 0, rounding, random)
        if code > at.largest:
            return (at.nan if rounding.overflow is Overflow.INFINITY else at.largest), OVERFLOW | INEXACT
        return code, flags


def nan_of(fmt: fs.FloatFormat, invalid: bool) -> tuple[int, int]:
    at = layout(fmt)
    return (at.largest, INVALID) if at.nan is None else (at.nan, INVALID if invalid else 0)


def convert(value: Value, fmt: fs.FloatFormat, rounding: OracleRounding, random: int = 0) -> tuple[int, int]:
    at = layout(fmt)
    if value.is_nan:
        return nan_of(fmt, value.kind == "snan")
    if value.kind == "infinite":
        if at.specials != "scale" and rounding.overflow is Overflow.SATURATE_FINITE:
            return value.sign * at.sign_bit + at.largest, 0
        return at.infinity(value.sign), 0
    return Rounder(value.magnitude, value.sign, fmt)(rounding, random)


OWN_DIRECTION = {
    "floor": Rounding.TOWARD_NEGATIVE, "ceil": Rounding.TOWARD_POSITIVE, "trunc": Rounding.TOWARD_ZERO,
}  # fmt: skip


def whole_number(v: Value, rounding: OracleRounding, random: int = 0) -> int:
    """A finite value's magnitude, rounded to an integer."""
    low = v.magnitude.numerator // v.magnitude.denominator
    if v.magnitude == low:
        return low
    return low + goes_up(v.magnitude, Fraction(low), Fraction(low + 1), low % 2 == 1, v.sign, rounding, random)


def integral(
    operation: str, v: Value, fmt: fs.FloatFormat, rounding: OracleRounding, random: int = 0
) -> tuple[int, int]:
    """rint, floor, ceil, trunc."""
    if v.is_nan:
        return nan_of(fmt, v.kind == "snan")
    if v.kind == "infinite":
        return layout(fmt).infinity(v.sign), 0
    direction = OWN_DIRECTION.get(operation, rounding.rounding)
    whole = whole_number(v, replace(rounding, rounding=direction), random)
    code, flags = Rounder(Fraction(whole), v.sign, fmt)(rounding)
    return code, flags | (INEXACT if operation == "rint" and whole != v.magnitude else 0)


def to_integer(v: Value, low: int, high: int, rounding: OracleRounding, random: int = 0) -> tuple[int, int]:
    if v.is_nan:
        return 0, INVALID
    if v.kind == "infinite":
        return (low if v.sign else high), INVALID
    whole = whole_number(v, rounding, random)
    signed = -whole if v.sign else whole
    if signed < low:
        return low, INVALID
    if signed > high:
        return high, INVALID
    return signed, 0 if whole == v.magnitude else INEXACT


def order_key(v: Value, zeros: bool = False) -> tuple[int, Fraction, int]:
    """Sorts numbers; with `zeros`, -0 before +0."""
    if v.kind == "infinite":
        return (-1 if v.sign else 1), Fraction(0), 0
    return 0, -v.magnitude if v.sign else v.magnitude, -v.sign if zeros and v.is_zero else 0


def compare(a: Value, b: Value) -> int | None:
    """-1, 0, 1 or None for unordered."""
    if a.is_nan or b.is_nan:
        return None
    ka, kb = order_key(a), order_key(b)
    return (ka > kb) - (ka < kb)


def extremum(operation: str, a: Value, b: Value, fmt: fs.FloatFormat, rounding: OracleRounding) -> tuple[int, int]:
    """minimum, maximum, minimum_number, maximum_number (operands of the same format)."""
    loud = "snan" in (a.kind, b.kind)
    numbers = [v for v in (a, b) if not v.is_nan]
    if len(numbers) == 0 or (len(numbers) == 1 and not operation.endswith("_number")):
        return nan_of(fmt, loud)
    chosen = sorted(numbers, key=lambda v: order_key(v, zeros=True))[0 if operation.startswith("min") else -1]
    code, flags = (
        (layout(fmt).infinity(chosen.sign), 0)
        if chosen.kind == "infinite"
        else Rounder(chosen.magnitude, chosen.sign, fmt)(rounding)
    )
    return code, flags | (INVALID if loud else 0)
