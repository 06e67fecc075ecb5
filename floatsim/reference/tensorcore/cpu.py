"""Matrix and dot instructions of CPUs: operations that round one after the other, in exact integers.

An operation reads codes of D's format and returns a code, because the NaN of x86 carries its payload from operation to
operation. Operands of narrower formats are widened first, which is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from floatsim.formats import FloatFormat
from floatsim.formats.rounding import OVERFLOW, RoundingAttributes, Tininess
from floatsim.reference.scalar import Kind, Number, add, decode, fma, multiply
from floatsim.reference.tensorcore.alignment import Step
from floatsim.tensorcore.instructions import NanRule, RoundedSteps

__all__ = ["rounded_steps"]

Operand: TypeAlias = tuple[int, FloatFormat]


def rounded_steps(model: RoundedSteps, a: Sequence[Operand], b: Sequence[Operand], c: int, fmt: FloatFormat) -> Step:
    """Return one block. The events are those of all its operations; `partials` has the sums of groups and of lanes."""
    unit = _Operations(model, fmt)
    starts = range(0, model.terms, model.group)
    lanes: list[int | None] = [0 if model.from_zero else None] * model.lanes if model.late else [c]
    partials = []
    for number, start in enumerate(reversed(starts) if model.reverse else starts):
        lane, at = number % model.lanes, range(start, start + model.group)
        own = lanes[lane]
        if model.group == 1:
            lanes[lane] = unit.fma(a[start], b[start], 0 if own is None else own)
            continue
        total = unit.pair([a[k] for k in at], [b[k] for k in at])
        partials.append((at, decode(total, fmt)))
        lanes[lane] = total if own is None else unit.add(own, total)
    code, *others = (lane for lane in lanes if lane is not None)
    for other in others:
        code = unit.add(code, other)
    if model.late:
        partials.append((range(model.terms), decode(code, fmt)))
        code = unit.add(c, code)
    return Step(code, unit.events, 0, partials=tuple(partials))


class _Operations:
    """The operations of a model on codes of one format. `events` is the union of their events."""

    def __init__(self, model: RoundedSteps, fmt: FloatFormat) -> None:
        self.model, self.format, self.events = model, fmt, 0
        flushes = model.flushes is not None
        self.attributes = RoundingAttributes(
            model.rounding, daz=flushes, ftz=flushes, tininess=model.flushes or Tininess.AFTER
        )

    def fma(self, a: Operand, b: Operand, c: int) -> int:
        """Return a * b + c, rounded once."""
        result = fma(self._read(a), self._read(b), self._read((c, self.format)), self.format, self.attributes)
        return self._finished(result, a, b, (c, self.format))

    def add(self, a: int, b: int) -> int:
        """Return a + b."""
        x, y = (a, self.format), (b, self.format)
        return self._finished(add(self._read(x), self._read(y), self.format, self.attributes), x, y)

    def pair(self, a: Sequence[Operand], b: Sequence[Operand]) -> int:
        """Return a[0] * b[0] + a[1] * b[1], rounded once or in three operations."""
        if not self.model.fused:
            p, q = (
                self._finished(multiply(self._read(x), self._read(y), self.format, self.attributes), x, y)
                for x, y in zip(a, b, strict=True)
            )
            return self.add(p, q)
        (x, u), (y, v) = ([self._read(operand) for operand in side] for side in (a, b))
        result = fma(x, y, _exact_product(u, v), self.format, self.attributes)
        return self._finished(result, a[0], b[0], a[1], b[1])

    def _read(self, operand: Operand) -> Number:
        """Return an operand. With flushing, a number below D's least normal number is a zero of its sign."""
        x = decode(*operand)
        tiny = x.kind is Kind.FINITE and x.exponent + x.significand.bit_length() - 1 < self.format.emin
        return Number(Kind.FINITE, x.sign) if tiny and self.attributes.daz else x

    def _finished(self, result: tuple[int, int], *operands: Operand) -> int:
        """Return the code of a result: an infinity for an overflow, and the NaN of the model."""
        code, events = result
        self.events |= events
        sign, fmt = code & self.format.sign_mask, self.format
        assert fmt.infinity_code is not None
        if events & OVERFLOW:
            return sign | fmt.infinity_code
        if code & fmt.magnitude_mask <= fmt.infinity_code or self.model.nan is NanRule.CANONICAL:
            return code
        return next((_quiet(*x, fmt) for x in operands if decode(*x).is_nan), code | fmt.sign_mask)


def _exact_product(a: Number, b: Number) -> Number:
    """Return a * b without rounding; inf * 0 is a signalling NaN, whose use is invalid."""
    if a.is_nan or b.is_nan or a.is_infinite or b.is_infinite:
        any_nan, any_zero = a.is_nan or b.is_nan, a.is_zero or b.is_zero
        invalid = Kind.SIGNALING_NAN in (a.kind, b.kind) or (any_zero and not any_nan)
        kind = Kind.SIGNALING_NAN if invalid else Kind.QUIET_NAN if any_nan else Kind.INFINITE
        return Number(kind, a.sign ^ b.sign)
    return Number(Kind.FINITE, a.sign ^ b.sign, a.significand * b.significand, a.exponent + b.exponent)


def _quiet(code: int, own: FloatFormat, fmt: FloatFormat) -> int:
    """Return a NaN of one format in another one: its sign, its payload, and the quiet bit."""
    assert fmt.infinity_code is not None
    payload = code & (1 << own.trailing_bits) - 1
    shift = fmt.trailing_bits - own.trailing_bits
    sign = fmt.sign_mask if code & own.sign_mask else 0
    return sign | fmt.infinity_code | 1 << fmt.trailing_bits - 1 | payload << shift
