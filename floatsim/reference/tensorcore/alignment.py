"""What all models share: exact terms, how they are aligned and cut, and what infinities and NaNs make of a sum."""

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
    """An exact number, and the exponent by which it is aligned; None: by none, as zeros are."""

    number: Number
    exponent: int | None


ZERO = Term(Number(Kind.FINITE, 0), None)
_INVALID = Term(Number(Kind.SIGNALING_NAN, 0), None)


Multiple: TypeAlias = tuple[int, int]
"""n * 2**q as (n, q)."""


class Step(NamedTuple):
    """What one rounding of D gave, the events it counts for, and the largest k of its products.

    It also tells how. `terms` are the exact terms, the products first, and `ks` says which k each product belongs to
    (of a group's, the first); the rest are accumulators. Where terms are aligned there is their common exponent, what
    was `kept` of each, as (n, q) for n * 2**q, and the `total` that was rounded, written alike. Where products are
    added to each other in roundings of their own, `partials` are those sums: the places of what was added, and the
    number.
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
    """A code as a term. Subnormal numbers keep the exponent emin: they are not normalised."""
    number = decode(code, fmt)
    if number.kind is not Kind.FINITE or number.is_zero:
        return Term(number, None)
    return Term(number, number.exponent + fmt.trailing_bits)


def product(a: Term, b: Term) -> Term:
    """a * b, exact and not normalised: its exponent is the sum of the two. inf * 0 is invalid."""
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
    """What NaNs and infinities among the terms make of their sum, and the flags; None if there are none.

    A NaN, or infinities of both signs, make it NaN; otherwise an infinity wins, and the finite terms do not count.
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
    """The code of a NaN or an infinity."""
    if x.is_nan:
        return nan
    assert fmt.infinity_code is not None
    return x.sign * fmt.sign_mask | fmt.infinity_code


def highest(terms: Iterable[Term], floor: int) -> int:
    """The largest exponent of the terms that have one, but at least the floor."""
    return max([floor, *(term.exponent for term in terms if term.exponent is not None)])


def cut(x: Number, quantum: int) -> int:
    """x in units of 2**quantum, the rest of its magnitude cut off."""
    shift = x.exponent - quantum
    magnitude = x.significand << shift if shift >= 0 else x.significand >> -shift
    return -magnitude if x.sign else magnitude


def cut_down(x: int, exponent: int, quantum: int) -> int:
    """x * 2**exponent in units of 2**quantum, rounded toward negative."""
    return x << exponent - quantum if exponent >= quantum else x >> quantum - exponent


def events_of(terms: Sequence[Term], kept: Sequence[int], quantum: int) -> int:
    """INEXACT if cutting took bits of a term; ABSORBED if all bits of a term that is not zero; FLUSHED if of every
    such term: what they came to is then below every number of D."""
    lost = any(_loses(term.number, quantum) for term in terms)
    absorbed = any(k == 0 and not term.number.is_zero for term, k in zip(terms, kept, strict=True))
    flushed = absorbed and not any(kept)
    return INEXACT * lost | ABSORBED * absorbed | (FLUSHED | UNDERFLOW) * flushed


def _loses(x: Number, quantum: int) -> bool:
    below = quantum - x.exponent
    return below > 0 and x.significand & ((1 << below) - 1) != 0
