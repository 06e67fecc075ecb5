"""NVIDIA's matrix units: one algorithm, in exact integers.

A block adds the products of its terms and c at once:

1. Products are exact, with unbounded exponents, and not normalised: 1.5 * 1.5 is 2.25 with the exponent 0. A subnormal
   operand has the exponent emin of its format. c is a term like the products.
2. All terms are aligned to the largest exponent of the non-zero terms, and truncated toward zero to F fraction bits.
   There are no guard or sticky bits.
3. The integers are added exactly.
4. The sum is rounded once to D: toward zero to FP32 or to E8M13, or ties to even to FP16. Every zero is +0.

Instructions with more terms than a block chain blocks through D, and longer sums chain instructions. A NaN operand,
inf * 0, or infinities of both signs give the NaN whose bits are all set except the sign. Otherwise an infinite term
gives that infinity.

Filling up with zero terms changes no bit. A zero product has no exponent and adds nothing. c has the format that the
block before rounded to, and a block of zeros returns it unchanged. The first block is an exception: its c may be -0, or
have more bits than E8M13, and every block changes such a c.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from floatsim.formats import FP16, FloatFormat
from floatsim.formats.rounding import OVERFLOW, RoundingAttributes
from floatsim.reference.scalar import Kind, Number, add, convert, decode, round_pack
from floatsim.reference.tensorcore.alignment import Step, Term, cut, events_of, highest, product, read, special, to_code
from floatsim.tensorcore.instructions import FusedBlocks, GroupedBlocks, TwoHalves

__all__ = ["block", "group_terms", "nan_of", "two_halves"]

Pair: TypeAlias = tuple[Term, Term]


def nan_of(fmt: FloatFormat) -> int:
    """Return the NaN of the units: all bits set except the sign."""
    return fmt.magnitude_mask


def block(model: FusedBlocks, products: Sequence[Term], c: Term, output: FloatFormat, last: int = 0) -> Step:
    """Return one block: the products and c, added at once and rounded once."""
    terms = (*products, c)
    if (what := special(terms)) is not None:
        number, events = what
        return Step(to_code(number, output, nan_of(output)), events, last, terms)
    exponent = highest(terms, model.floor)
    quantum = exponent - model.fraction_bits
    kept = [cut(term.number, quantum) for term in terms]
    total = sum(kept)
    code, events = _rounded(total, quantum, model, output)
    events |= events_of(terms, kept, quantum)
    return Step(code, events, last, terms, exponent, tuple((n, quantum) for n in kept), (total, quantum))


def _rounded(total: int, quantum: int, model: FusedBlocks, output: FloatFormat) -> tuple[int, int]:
    """Return the code of total * 2**quantum. A zero is +0. Overflow gives infinity, also toward zero."""
    grid, sign = model.grid, int(total < 0)
    code, events = round_pack(Number(Kind.FINITE, sign, abs(total), quantum), grid, RoundingAttributes(model.rounding))
    if events & OVERFLOW:
        code = to_code(Number(Kind.INFINITE, sign), grid, nan_of(grid))
    if not code & grid.magnitude_mask:
        code = 0
    return code << output.trailing_bits - grid.trailing_bits, events


def group_terms(model: GroupedBlocks, pairs: Sequence[Pair], scales: Sequence[Term]) -> Iterator[Term]:
    """Yield one term for each group: the exact sum of its products, times its scale. `scales` has one for each product.

    The exponent is the scale's, for every value of the sum. If all products of the group are zeros, there is no
    exponent.
    """
    for start in range(0, len(pairs), model.group):
        products = [product(a, b) for a, b in pairs[start : start + model.group]]
        scale = scales[start]
        if scale.number.kind is not Kind.FINITE:
            yield scale
            continue
        lowest = min((p.number.exponent for p in products), default=0)
        total = sum(cut(p.number, lowest) for p in products)  # nothing is below the lowest
        counts = scale.exponent is not None and not all(p.number.is_zero for p in products)
        number = Number(
            Kind.FINITE, int(total < 0) ^ scale.number.sign, abs(total) * scale.number.significand,
            lowest + scale.number.exponent,
        )  # fmt: skip
        yield Term(number, scale.exponent if counts else None)


def two_halves(
    model: TwoHalves, a: Sequence[tuple[int, FloatFormat]], b: Sequence[tuple[int, FloatFormat]], c: int,
    output: FloatFormat, last: int,
) -> Iterator[Step]:  # fmt: skip
    """Compute FP8 with FP16: a block over k % 4 in {0, 1}, a block over k % 4 in {2, 3}, then acc + c, ties to even."""
    products = [product(_as_fp16(*x), _as_fp16(*y)) for x, y in zip(a, b, strict=True)]
    step = Step(0, 0, last)
    for half in ((0, 1), (2, 3)):
        places = [k for k in range(len(products)) if k % 4 in half]
        step = block(model.block, [products[k] for k in places], read(step.code, output), output, last)
        yield step._replace(ks=places)
    yield _plus(step.code, c, output, last)


def _as_fp16(code: int, fmt: FloatFormat) -> Term:
    """Return the number exactly, as a code of FP16, where subnormal FP8 numbers are normal."""
    return read(convert(decode(code, fmt), FP16, RoundingAttributes())[0], FP16)


def _plus(acc: int, c: int, output: FloatFormat, last: int) -> Step:
    """Return acc + c as the ordinary instruction adds them."""
    x, y = read(acc, output), read(c, output)
    if (what := special((x, y))) is not None:
        number, events = what
        return Step(to_code(number, output, nan_of(output)), events, last, (x, y))
    code, events = add(x.number, y.number, output, RoundingAttributes())
    return Step(code, events, last, (x, y))
