"""AMD's matrix units: one model for each generation, in exact integers.

All models round to FP32 last, ties to even. A NaN result is the format's canonical NaN; the bits that the GPUs return
are not known. A sum of zero is +0 if it is not an IEEE addition; the sign that the GPUs return is not known.

Filling up with zero terms changes no bit except the sign of a zero, as +0 + -0 is +0.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from floatsim.formats import FP32, FloatFormat
from floatsim.formats.rounding import RoundingAttributes
from floatsim.reference.scalar import Kind, Number, add, decode, fma, from_fraction, multiply, nan_result, round_pack
from floatsim.reference.tensorcore.alignment import Step, Term, cut, cut_down, events_of, highest, special, to_code
from floatsim.tensorcore.instructions import EvenAndOdd, ExactBlocks, LateAccumulator

__all__ = ["exact_block", "flushed_tree", "fma_step", "late_block"]

Operand: TypeAlias = tuple[int, FloatFormat]

_TO_EVEN = RoundingAttributes()
_NO_EXPONENT = -(1 << 20)  # of a sum of zeros: below every other


def _special_step(terms: Sequence[Term], last: int, output: FloatFormat = FP32) -> Step | None:
    """Return the step of terms with NaNs or infinities; None if all terms are finite."""
    what = special(terms)
    if what is None:
        return None
    number, events = what
    return Step(to_code(number, output, nan_result(output)[0]), events, last, tuple(terms))


def _rounded(total: int, quantum: int) -> tuple[int, int]:
    """Return the FP32 code of total * 2**quantum, ties to even. A sum of zero is +0."""
    return round_pack(Number(Kind.FINITE, int(total < 0), abs(total), quantum), FP32, _TO_EVEN)


def fma_step(a: Number, b: Number, c: int, output: FloatFormat, last: int) -> Step:
    """Return acc = fma(a, b, acc), as IEEE 754 defines it."""
    code, events = fma(a, b, decode(c, output), output, _TO_EVEN)
    return Step(code, events, last)


# -- CDNA 1: exact -----------------------------------------------------------------------------------------------------


def exact_block(model: ExactBlocks, products: Sequence[Term], c: Term, output: FloatFormat, last: int) -> Step:
    """Return the exact sum of the products and c, rounded once."""
    terms = (*products, c)
    if (step := _special_step(terms, last, output)) is not None:
        return step
    minus = model.signed_zero and all(term.number.is_zero and term.number.sign for term in terms)
    total = from_fraction(sum((term.number.fraction for term in terms), Fraction(0)), int(minus))
    code, events = round_pack(total, output, _TO_EVEN)
    return Step(code, events, last, terms)


# -- CDNA 2: multiply, add as neighbours, flush ------------------------------------------------------------------------

_FLUSHING = RoundingAttributes(ftz=True)


def flushed_tree(a: Sequence[Operand], b: Sequence[Operand], c: int, last: int) -> Step:
    """Add two or four FP32 products as neighbours, then add c. The events are those of all these operations.

    Subnormal operands, c included, and zeros of both signs are read as +0. A subnormal result is a zero of its sign.
    """
    seen = 0

    def rounded(result: tuple[int, int]) -> Number:
        nonlocal seen
        code, events = result
        seen |= events
        return decode(code, FP32)

    level = [rounded(multiply(_flushed(x), _flushed(y), FP32, _FLUSHING)) for x, y in zip(a, b, strict=True)]
    partials = []
    while len(level) > 1:
        level = [rounded(add(x, y, FP32, _FLUSHING)) for x, y in zip(level[::2], level[1::2], strict=True)]
        width = len(a) // len(level)
        partials += [(range(i * width, (i + 1) * width), x) for i, x in enumerate(level)]
    code, events = add(_flushed((c, FP32)), level[0], FP32, _FLUSHING)
    return Step(code, seen | events, last, partials=tuple(partials))


def _flushed(operand: Operand) -> Number:
    x = decode(*operand, daz=True)
    return Number(Kind.FINITE, 0) if x.is_zero else x


# -- CDNA 3: c comes late ----------------------------------------------------------------------------------------------


def late_block(model: LateAccumulator, products: Sequence[Term], c: Term, last: int) -> Step:
    """Align products to their largest exponent, truncate toward zero and add them; then add c.

    A product of 2**128 or more is an infinity. With `EvenAndOdd` the even and the odd products have separate sums. Both
    sums are rounded downward at the same place and added before c.
    """
    terms = (*[_overflowed(p) for p in products], c)
    if (step := _special_step(terms, last)) is not None:
        return step
    bits = model.fraction_bits
    apart = 2 if isinstance(model, EvenAndOdd) else 1
    exponents = [highest(terms[i:-1:apart], _NO_EXPONENT) for i in range(apart)]
    exponent = max(exponents)
    total, events = 0, 0
    kept = [(0, 0)] * len(products)
    for i, own in enumerate(exponents):
        part, quantum = terms[i:-1:apart], own - bits
        left = [cut(term.number, quantum) for term in part]
        kept[i::apart] = [(n, quantum) for n in left]
        events |= events_of(part, left, quantum)
        total += cut_down(sum(left), quantum, exponent - bits)
    joined = _join(model, total, exponent, c)
    return joined._replace(events=events | joined.events, last=last, terms=terms, kept=(*kept, *joined.kept))


def _overflowed(p: Term) -> Term:
    x = p.number
    large = x.kind is Kind.FINITE and x.exponent + x.significand.bit_length() > FP32.emax + 1
    return Term(Number(Kind.INFINITE, x.sign), None) if large else p


def _join(model: LateAccumulator, total: int, exponent: int, c: Term) -> Step:
    """Round total * 2**(exponent - fraction_bits) and c downward, add, round downward again, and round to FP32."""
    bits = model.fraction_bits
    at = FP32.emin if c.exponent is None else c.exponent
    top = max(exponent, at)
    fine, coarse = top - model.sum_bits - 1, top - bits
    x = cut_down(total, exponent - bits, fine)
    y = cut_down(cut(c.number, at - FP32.trailing_bits), at - FP32.trailing_bits, coarse)
    if isinstance(model, EvenAndOdd) and at < top - bits - 1:
        y = 0
    joined = x + (y << coarse - fine)
    lowest = max(fine + abs(joined).bit_length() - 1, FP32.emin) - model.sum_bits
    rounded = cut_down(joined, fine, lowest)
    code, events = _rounded(rounded, lowest)
    return Step(code, events, 0, exponent=top, kept=((y, coarse),), total=(rounded, lowest))
