"""Operations shared by all models: exact terms, their alignment and truncation, and sums with infinities and NaNs."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from floatsim.formats import FloatFormat
from floatsim.formats.rounding import ABSORBED, FLUSHED, INEXACT, INVALID, UNDERFLOW
from floatsim.reference.scalar import NAN, Kind, Number, decode

__all__ = [
    "ZERO", "Multiple", "Step", "Term", "cut", "cut_down", "events_of", "highest", "product", "read", "special",
    "to_code",
]  # fmt: skip


class Term(NamedTuple):
    """An exact number, and the exponent that aligns it; None for zeros, infinities and NaNs."""

    number: Number
    exponent: int | None


ZERO = Term(Number(Kind.FINITE, 0), None)
_INVALID = Term(Number(Kind.SIGNALING_NAN, 0), None)


Multiple: TypeAlias = tuple[int, int]
"""The number n * 2**q as (n, q)."""


class Step(NamedTuple):
    """One rounding of D: the code, its events, and the largest k of its products.

    `terms` are the exact terms: the products, then the accumulators. `ks` has the k of each product (of a group, the
    first k). If the terms are aligned, `exponent` is their common exponent, `kept` the truncated terms, as (n, q) for n
    * 2**q, and `total` the sum before the rounding, in the same form. If products are added to each other in roundings
    of their own, `partials` has these sums: the places of the products, and the sum.
    """

    code: int
    events: int
    last: int
    terms: tuple[Term, ...] = ()
    exponent: int | None = None
    kept: tuple[Multiple, ...] = ()
    total: Multiple | None = None
    ks: Sequence[int] = ()
    partials: tuple[tuple[range, Number], ...] = ()


@functools.lru_cache(maxsize=1 << 16)
def read(code: int, fmt: FloatFormat) -> Term:
    """Return a code as a term. Subnormal numbers keep the exponent emin: they are not normalised."""
    number = decode(code, fmt)
    if number.kind is not Kind.FINITE or number.is_zero:
        return Term(number, None)
    return Term(number, number.exponent + fmt.trailing_bits)


def product(a: Term, b: Term) -> Term:
    """Return a * b, exact and not normalised: its exponent is the sum of both exponents. inf * 0 is invalid."""
    x, y = a.number, b.number
    if (x.is_infinite and y.is_zero) or (x.is_zero and y.is_infinite) or Kind.SIGNALING_NAN in (x.kind, y.kind):
        return _INVALID
    if x.is_nan or y.is_nan:
        return Term(NAN, None)
    if x.is_infinite or y.is_infinite:
        return Term(Number(Kind.INFINITE, x.sign ^ y.sign), None)
    exact = Number(Kind.FINITE, x.sign ^ y.sign, x.significand * y.significand, x.exponent + y.exponent)
    known = a.exponent is not None and b.exponent is not None
    return Term(exact, a.exponent + b.exponent if known else None)  # type: ignore[operator]


def special(terms: Iterable[Term]) -> tuple[Number, int] | None:
    """Return the sum of terms with NaNs or infinities, and its flags; None if all terms are finite.

    A NaN, or infinities of both signs, make the sum NaN. Otherwise an infinity wins.
    """
    numbers = [term.number for term in terms if term.number.kind is not Kind.FINITE]
    if not numbers:
        return None
    signs = {x.sign for x in numbers if x.is_infinite}
    if any(x.is_nan for x in numbers) or len(signs) == 2:
        quiet = any(x.is_nan for x in numbers) and all(x.kind is not Kind.SIGNALING_NAN for x in numbers)
        return NAN, 0 if quiet else INVALID
    return Number(Kind.INFINITE, signs.pop()), 0


def to_code(x: Number, fmt: FloatFormat, nan: int) -> int:
    """Return the code of a NaN or an infinity."""
    if x.is_nan:
        return nan
    assert fmt.infinity_code is not None
    return x.sign * fmt.sign_mask | fmt.infinity_code


def highest(terms: Iterable[Term], floor: int) -> int:
    """Return the largest exponent of the terms, but at least the floor."""
    return max([floor, *(term.exponent for term in terms if term.exponent is not None)])


def cut(x: Number, quantum: int) -> int:
    """Return x in units of 2**quantum, truncated toward zero."""
    shift = x.exponent - quantum
    magnitude = x.significand << shift if shift >= 0 else x.significand >> -shift
    return -magnitude if x.sign else magnitude


def cut_down(x: int, exponent: int, quantum: int) -> int:
    """Return x * 2**exponent in units of 2**quantum, rounded toward negative."""
    return x << exponent - quantum if exponent >= quantum else x >> quantum - exponent


def events_of(terms: Sequence[Term], kept: Sequence[int], quantum: int) -> int:
    """Return the events of a truncation of terms.

    INEXACT if a term lost bits. ABSORBED if a non-zero term lost all its bits. FLUSHED if every non-zero term lost all
    its bits: their exact sum is then smaller than every non-zero number of D.
    """
    lost = any(_loses(term.number, quantum) for term in terms)
    absorbed = any(k == 0 and not term.number.is_zero for term, k in zip(terms, kept, strict=True))
    flushed = absorbed and not any(kept)
    return INEXACT * lost | ABSORBED * absorbed | (FLUSHED | UNDERFLOW) * flushed


def _loses(x: Number, quantum: int) -> bool:
    """Return whether x has bits below 2**quantum."""
    below = quantum - x.exponent
    return below > 0 and x.significand & ((1 << below) - 1) != 0
