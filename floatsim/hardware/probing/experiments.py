"""What tells one model of a matrix unit from another: small sums, put to any `dot(a, b, c)`, and what D says.

Each experiment is a few rows of exact numbers of which only some survive. They come from M. Fasi et al., "Numerical
behavior of NVIDIA tensor cores" (PeerJ Computer Science 7:e330, 2021), from FPRev (P. Xie et al., "Revealing
floating-point accumulation orders", USENIX ATC 2025), from MMA-Sim (P. Xie et al.) and from F. A. Khattak and M.
Mikaitis, "Accurate Models of NVIDIA Tensor Cores"; restated for formats of any range.

Where the formats cannot hold the numbers that an experiment needs, what it asks for cannot be observed: it then
returns None.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from floatsim.formats import FP16, FP32, FP64, FloatFormat
from floatsim.formats.rounding import INEXACT, Attributes, Rounding
from floatsim.reference import Kind, decode, from_fraction, round_pack
from floatsim.tensorcore.instructions import E8M13, Scales
from floatsim.testing.dot_unit import DotProducts, ScaleCodes

__all__ = [
    "INF", "Bench", "C", "Row", "Tree", "bits_of_c", "bits_of_products", "blocks_of", "carried_whole", "cut_of_c",
    "cut_of_products", "exact_code", "grid_of", "group_of", "kept_of_d", "least_exponent", "operand_bits", "overflow",
    "product_is_exact", "products_normalised", "repeats", "rounding_of_d", "specials", "sticky_bits",
    "subnormals_normalised", "tree_of", "wrong_sum",
]  # fmt: skip

C = "c"
"""The accumulator's name among the summands."""

Exact: TypeAlias = Fraction | float  # a float where it is infinite, NaN or -0
Leaf: TypeAlias = int | str
Tree: TypeAlias = "Leaf | tuple[Tree, ...]"


# -- numbers -----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1 << 16)
def exact_code(x: Exact, fmt: FloatFormat) -> int | None:
    """The code of a number; None where the format does not have it."""
    if isinstance(x, float):
        if x == 0:
            return fmt.sign_mask if fmt.has_signed_zero else None
        if x != x:  # noqa: PLR0124
            return fmt.canonical_nan
        return None if fmt.infinity_code is None else fmt.infinity_code | (fmt.sign_mask if x < 0 else 0)
    if x and (abs(x) > Fraction(fmt.max) or x.denominator & (x.denominator - 1)):
        return None
    code, events = round_pack(from_fraction(x), fmt, Attributes())
    return None if events & INEXACT else code


def power(n: int) -> Fraction:
    """2**n."""
    return Fraction(2) ** n


@functools.lru_cache(maxsize=1 << 16)
def factors(x: Exact, a: FloatFormat, b: FloatFormat) -> tuple[int, int] | None:
    """Codes of two numbers whose product is x, normal ones if there are; None if there are none at all."""
    if isinstance(x, float) or not x:
        one = Fraction(1)
        pair = exact_code(x, a), exact_code(one, b)
        return None if pair[0] is None or pair[1] is None else (pair[0], pair[1])
    exponent = _exponent(x)
    middle = (a.emax + a.emin + exponent - b.emax - b.emin) // 2
    reach = a.emax - a.emin + b.emax - b.emin + a.trailing_bits + b.trailing_bits
    spare = None
    for i in sorted(range(middle - reach, middle + reach + 1), key=lambda i: abs(i - middle)):
        if not (a.emin - a.trailing_bits <= i <= a.emax and b.emin - b.trailing_bits <= exponent - i <= b.emax):
            continue
        pair = exact_code(x / power(exponent - i), a), exact_code(power(exponent - i), b)
        if pair[0] is None or pair[1] is None:
            continue
        if i >= a.emin and exponent - i >= b.emin:
            return pair[0], pair[1]
        spare = spare or (pair[0], pair[1])
    return spare


def _exponent(x: Fraction) -> int:
    """Of the leading bit."""
    x = abs(x)
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if power(e) <= x else e - 1


# -- rows --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One dot product: some products by their k, as numbers or as pairs of factors; all others are `rest`.

    `scale` has the product of the scales of a and b of some of the blocks that are scaled; of the others it is 1.
    """

    products: Mapping[int, Exact | tuple[Exact, Exact]]
    c: Exact = Fraction(0)
    rest: Exact = Fraction(0)
    scale: Mapping[int, Fraction] = field(default_factory=dict)


@dataclass(frozen=True)
class Bench:
    """What is probed: anything that multiplies, and the formats it takes."""

    dot: DotProducts
    a: FloatFormat
    b: FloatFormat
    output: FloatFormat
    k: int
    scales: Scales | None = None

    @property
    def highest(self) -> int:
        """The exponent of the largest power of two that is a product."""
        return self.a.emax + self.b.emax

    @property
    def lowest(self) -> int:
        """The exponent of the smallest that is one of normal numbers."""
        return self.a.emin + self.b.emin

    @property
    def smallest(self) -> int:
        """The exponent of the smallest product that is not zero."""
        return self.lowest - self.a.trailing_bits - self.b.trailing_bits

    @property
    def last_place(self) -> int:
        """The exponent of D's smallest number."""
        return self.output.emin - self.output.trailing_bits

    @property
    def scale_blocks(self) -> int:
        """How many scales a row of an operand has."""
        return self.k // self.scales.every if self.scales else 0

    def codes(self, row: Row) -> tuple[list[int], list[int], int, list[int], list[int]] | None:
        """(a, b, c, scales of a, scales of b); None where a format does not have a number."""
        c = exact_code(row.c, self.output)
        pairs = [self._pair(row.products.get(k, row.rest)) for k in range(self.k)]
        of = [self._scale(row.scale.get(n, Fraction(1))) for n in range(self.scale_blocks)]
        if c is None or None in pairs or None in of:
            return None
        sides = [[pair[side] for pair in pairs if pair] for side in (0, 1)]
        scales = [[pair[side] for pair in of if pair] for side in (0, 1)]
        return sides[0], sides[1], c, scales[0], scales[1]

    def _pair(self, x: Exact | tuple[Exact, Exact]) -> tuple[int, int] | None:
        if not isinstance(x, tuple):
            return factors(x, self.a, self.b)
        first, second = exact_code(x[0], self.a), exact_code(x[1], self.b)
        return None if first is None or second is None else (first, second)

    def _scale(self, x: Fraction) -> tuple[int, int] | None:
        assert self.scales is not None
        return factors(x, self.scales.format, self.scales.format)

    def run(self, rows: Sequence[Row]) -> list[int] | None:
        """The codes of D, in one batch; None where a row cannot be written in the formats."""
        written = [self.codes(row) for row in rows]
        if not all(written):
            return None
        a, b, c, of_a, of_b = (list(column) for column in zip(*(w for w in written if w), strict=True))
        of = None
        if self.scales:
            dtype = self.scales.format.code_dtype
            of = ScaleCodes(np.array(of_a, dtype), np.array(of_b, dtype))
        left, right, acc = (
            np.array(x, fmt.code_dtype) for x, fmt in ((a, self.a), (b, self.b), (c, self.output))
        )  # fmt: skip
        found = self.dot(left, right, acc) if of is None else self.dot(left, right, acc, of)
        return [int(code) for code in found]

    def number(self, code: int) -> Fraction | None:
        """What a code of D is; None where it is not finite."""
        x = decode(code, self.output)
        return x.fraction if x.kind is Kind.FINITE else None

    def numbers(self, rows: Sequence[Row]) -> list[Fraction | None] | None:
        """The values of D; None where a row cannot be written."""
        codes = self.run(rows)
        return None if codes is None else [self.number(code) for code in codes]

    def reach(
        self, at: Callable[[int], Row], survives: Callable[[int, Fraction | None], bool], most: int
    ) -> int | None:
        """The last n of 1, 2, ... at which something survives; None if it does as far as can be written, or never.

        What cannot be written before the first row that can is taken to survive.
        """
        rows: dict[int, Row] = {}
        for n in range(1, most + 1):
            if self.codes(row := at(n)) is not None:
                rows[n] = row
            elif rows:
                break
        found = self.numbers(list(rows.values())) if rows else None
        kept = [survives(n, d) for n, d in zip(rows, found or [], strict=True)]
        if all(kept) or not kept[0]:
            return None
        return min(rows) - 1 + kept.index(False)


# -- whether there is a sum at all -------------------------------------------------------------------------------------


def wrong_sum(bench: Bench) -> str | None:
    """What was asked, answered and expected where a sum of one or two ones is wrong; None where all are right.

    Whatever is answered can be read as some model: c alone as a block that loses every product. 1 + 1 is exact in every
    D, whatever is cut below it.
    """
    one = Fraction(1)
    asked = [(f"1 * 1 at k = {k}", Row({k: one}), one) for k in range(bench.k)]
    if bench.k > 1:
        last = bench.k - 1
        asked.append((f"1 * 1 at k = 0 and {last}", Row({0: one, last: one}), 2 * one))
    asked += [("c = 1", Row({}, one), one), ("1 * 1 at k = 0, c = 1", Row({0: one}, one), 2 * one)]
    rows = [row for _, row, _ in asked]
    codes = bench.run(rows)
    if codes is None:  # a format without 1 or 0
        return None
    if len(codes) != len(rows):
        return f"dot gave {len(codes)} codes of D for {len(rows)} rows of a, b and c; one for each is needed"
    for (words, _, right), code in zip(asked, codes, strict=True):
        if (found := bench.number(code)) != right:
            value = "no finite number" if found is None else f"{float(found):g}"
            return (
                f"with {words}, and 0 elsewhere, dot gave 0x{code:0{-(-bench.output.bits // 4)}X}, which is {value} in "
                f"{bench.output.name}; the sum is {right}. Does dot(a, b, c) take codes, not numbers, and return the "
                "codes of c + sum(a * b), row by row?"
            )
    return None


# -- the order of summation --------------------------------------------------------------------------------------------


def tree_of(bench: Bench) -> Tree | None:
    """The order of summation, as nested groups of what is added at once; None where nothing is seen of it.

    As in FPRev: all summands are one small unit, but for two large ones of opposite signs; those units survive that
    are added after the two have met. Where the formats are too narrow for that, by carries (`_by_carries`).
    """
    high = min(bench.highest, bench.output.emax, 40)
    low = bench.lowest if high - bench.lowest >= 40 else bench.smallest  # subnormal units only where they are needed
    low = max(low, bench.last_place, high - 70)
    large, unit = power(high), power(low)
    summands: list[Leaf] = [C, *range(bench.k)]
    pairs = [(i, j) for n, i in enumerate(summands) for j in summands[n + 1 :]]
    rows = [
        Row({j: -large} if i == C else {i: large, j: -large}, large if i == C else unit, rest=unit)  # type: ignore[dict-item]
        for i, j in pairs
    ]
    found = bench.numbers(rows)
    if found is None or any(d is None for d in found):
        return None
    under = {pair: len(summands) - int((d or 0) / unit) for pair, d in zip(pairs, found, strict=True)}
    if set(under.values()) == {2}:  # nothing is ever lost
        return _by_carries(bench)
    under |= {(j, i): n for (i, j), n in under.items()}
    exact = _exactly_summed(summands, under)
    return exact or _grown(summands, under)


def _grown(leaves: Sequence[Leaf], under: Mapping[tuple[Leaf, Leaf], int]) -> Tree:
    """The tree of these leaves; `under` says how many lie below where two of them meet."""
    first, *others = leaves
    tree: Tree = first
    for size in sorted({under[first, j] for j in others}):
        level = [j for j in others if under[first, j] == size]
        children: list[Tree] = []
        while level:
            near = [j for j in level if j == level[0] or under[level[0], j] < size]
            children.append(_grown(near, under))
            level = [j for j in level if j not in near]
        tree = (tree, *children)
    return tree


def _exactly_summed(summands: Sequence[Leaf], under: Mapping[tuple[Leaf, Leaf], int]) -> Tree | None:
    """Where three and more lose nothing to one another, sums within a block are exact: blocks in order, or None."""
    groups: list[list[Leaf]] = []
    for x in summands:
        group = next((g for g in groups if all(under[x, y] == 2 for y in g)), None)
        if group is None:
            groups.append([x])
        else:
            group.append(x)
    if max(map(len, groups)) < 3:
        return None
    tree: Tree = tuple(groups[0])
    for group in groups[1:]:
        tree = (tree, *group)
    return tree


def _by_carries(bench: Bench) -> Tree | None:
    """From c of all ones: 2 at i and 1 at j reach the next even number only if they enter together, or j first."""
    if bench.k == 1:
        return C, 0
    p = bench.output.precision
    for digits in range(p, 1, -1):  # as many as D keeps
        start = power(digits) - 1
        kept = bench.numbers([Row({}, start)])
        if kept and kept[0] == start:
            break
    else:
        return None
    pairs = [(i, j) for i in range(bench.k) for j in range(bench.k) if i != j]
    found = bench.numbers([Row({i: Fraction(2), j: Fraction(1)}, start) for i, j in pairs])
    if found is None:
        return None
    reached = {pair: d == start + 3 for pair, d in zip(pairs, found, strict=True)}
    blocks: list[list[Leaf]] = [[C, 0]]
    for k in range(1, bench.k):
        if all(reached[k, j] and reached[j, k] for j in blocks[-1] if isinstance(j, int)):
            blocks[-1].append(k)
        else:
            blocks.append([k])
    tree: Tree = tuple(blocks[0])
    for block in blocks[1:]:
        tree = (tree, *block)
    return tree


def blocks_of(tree: Tree | None) -> list[tuple[Leaf, ...]] | None:
    """A tree that is a chain, as its blocks in order; None for any other.

    >>> blocks_of((("c", 0, 1), 2, 3))
    [('c', 0, 1), (2, 3)]
    >>> blocks_of((("c", 0), (1, 2))) is None
    True
    """
    if tree is None:
        return None
    blocks: list[tuple[Leaf, ...]] = []
    while isinstance(tree, tuple):
        inner = [child for child in tree if isinstance(child, tuple)]
        if len(inner) > 1:
            return None
        blocks.insert(0, tuple(child for child in tree if not isinstance(child, tuple)))
        tree = inner[0] if inner else None
    return blocks


# -- what is kept of a term --------------------------------------------------------------------------------------------

_MOST = 80  # bits, of which an experiment looks for the end


def _cancelling(at: Sequence[int], top: Fraction) -> dict[int, Exact | tuple[Exact, Exact]]:
    return {at[0]: top, at[1]: -top}


def _top_for_c(bench: Bench) -> int:
    """An exponent of products from which c reaches far down."""
    return min(bench.highest, max(0, 40 + bench.last_place))


def bits_of_c(bench: Bench, at: Sequence[int], lower: int = 0) -> int | None:
    """How many bits below the largest exponent are kept of c; None if no end is seen."""
    top = _top_for_c(bench) + (-lower if _top_for_c(bench) >= lower else lower)
    large = power(top)
    return bench.reach(
        lambda f: Row(_cancelling(at, large), power(top - f)), lambda f, d: d == power(top - f), _MOST
    )  # fmt: skip


def bits_of_products(bench: Bench, at: Sequence[int]) -> int | None:
    """How many bits below the largest exponent are kept of a product; None if no end is seen."""
    if bench.scale_blocks > 1:  # the exponents are in the scales
        assert bench.scales is not None
        top = 2 * min(bench.scales.format.emax, 10)
        one = power(0)
        lowest = bench.scales.format.emin - bench.scales.format.trailing_bits

        def scaled(f: int) -> Row:
            below = max(top - f, 2 * lowest)
            rest = power(top - f - below)
            scale = {0: power(top), bench.scale_blocks - 1: power(below)}
            return Row({at[0]: one, at[1]: -one, bench.k - 1: rest}, scale=scale)

        return bench.reach(scaled, lambda f, d: d == power(top - f), _MOST)
    top = min(bench.highest, bench.output.emax + 1, 40)  # the first must fit D
    return bench.reach(
        lambda f: Row({**_cancelling(at, power(top)), at[2]: power(top - f)}), lambda f, d: d == power(top - f), _MOST
    )  # fmt: skip


_DIRECTIONS: Mapping[Rounding, Callable[[Fraction], int]] = {
    Rounding.TOWARD_ZERO: int,
    Rounding.TOWARD_NEGATIVE: lambda x: x.numerator // x.denominator,
    Rounding.TOWARD_POSITIVE: lambda x: -(-x.numerator // x.denominator),
    Rounding.TIES_TO_EVEN: round,
    Rounding.TIES_TO_AWAY: lambda x: int(abs(x) + Fraction(1, 2)) * (1 if x > 0 else -1),
}


def _direction(given: Sequence[Fraction], found: Sequence[Fraction]) -> Rounding | None:
    """The rounding to whole numbers that makes the one of the other."""
    fitting = [how for how, to in _DIRECTIONS.items() if all(to(x) == d for x, d in zip(given, found, strict=True))]
    return fitting[0] if len(fitting) == 1 else None


_PARTS = [Fraction(n, 4) for n in (-6, -3, -2, -1, 1, 2, 3, 6)]


def cut_of_c(bench: Bench, at: Sequence[int], bits: int) -> Rounding | None:
    """How c is cut to `bits` below the largest exponent."""
    top = _top_for_c(bench)
    found = bench.numbers([Row(_cancelling(at, power(top)), x * power(top - bits)) for x in _PARTS])
    if found is None:  # D has no quarter of the last place
        return None
    return _direction(_PARTS, [(d or Fraction(0)) / power(top - bits) for d in found])


def cut_of_products(bench: Bench, at: Sequence[int], bits: int) -> Rounding | None:
    """How products are cut to `bits` below the largest exponent."""
    if bench.scale_blocks > 1:
        return None
    top = min(bench.highest, bench.output.emax + 1, 40)  # the first must fit D
    found = bench.numbers([Row({**_cancelling(at, power(top)), at[2]: x * power(top - bits)}) for x in _PARTS])
    if found is None:
        return None
    return _direction(_PARTS, [(d or Fraction(0)) / power(top - bits) for d in found])


def products_normalised(bench: Bench, at: Sequence[int], bits: int, of_c: bool) -> bool | None:
    """Whether 1.5 * 1.5 is aligned by the exponent 1, and not 0: the last bit below it is then lost."""
    top = min(_top_for_c(bench) if of_c else bench.output.emax, bench.highest - 1)
    left = min(bench.a.emax, max(bench.a.emin, top // 2, top - bench.b.emax))
    x, y = (Fraction(3, 2) * power(e) for e in (left, top - left))
    last = power(top - bits)
    pair: dict[int, Exact | tuple[Exact, Exact]] = {at[0]: (x, y), at[1]: (x, -y)}
    found = bench.numbers([Row(pair, last) if of_c else Row({**pair, at[2]: last})]) if of_c or len(at) > 2 else None
    return None if found is None else found[0] != last


def subnormals_normalised(bench: Bench, at: Sequence[int], bits: int, of_c: bool) -> bool | None:
    """Whether the exponent of a subnormal operand is that of its leading bit, and not emin.

    Products of half the smallest normal number leave one bit more below them if so. It is in c, or in as many products
    as make it large enough for D.
    """
    if not bench.a.has_subnormals or bench.a.trailing_bits == 0:
        return None
    normal, by = power(bench.a.emin), power(min(bench.b.emax, 40))
    place = bench.a.emin + min(bench.b.emax, 40) - 1 - bits
    pair: dict[int, Exact | tuple[Exact, Exact]] = {at[0]: (normal / 2, by), at[1]: (normal / 2, -by)}
    rows = [Row(pair, power(place))] if of_c else []
    copies = at[2:]
    if copies:
        n = 1 << (len(copies).bit_length() - 1)
        rows.append(Row({**pair, **dict.fromkeys(copies[:n], power(place))}))
    for row in rows:
        left = row.c if row.c else power(place) * (len(row.products) - 2)
        if exact_code(left, bench.output) is None:
            continue
        found = bench.numbers([row])
        if found is not None:
            return found[0] == left
    return None


# -- D -----------------------------------------------------------------------------------------------------------------


def kept_of_d(bench: Bench, k: int) -> int | None:
    """How many bits below its leading one D has: of c = 11...1 and a product 2, whose sum is 10...01."""
    start = min(0, bench.highest - 1)
    unit = power(start)
    most = bench.output.precision
    rows = [Row({k: 2 * unit}, (power(p) - 1) * unit) for p in range(1, most + 1)]
    found = bench.numbers(rows)
    if found is None:
        return None
    kept = [d == (power(p) + 1) * unit for p, d in enumerate(found, 1)]
    return (kept.index(False) or None) if False in kept else most


_TIES: Mapping[tuple[int, ...], Rounding] = {
    # what is left of 1, 3, -1 and -3 beyond a power of two, where even numbers can be held
    (0, 4, 0, -4): Rounding.TIES_TO_EVEN,
    (2, 4, -2, -4): Rounding.TIES_TO_AWAY,
    (0, 2, 0, -2): Rounding.TOWARD_ZERO,
    (0, 2, -2, -4): Rounding.TOWARD_NEGATIVE,
    (2, 4, 0, -2): Rounding.TOWARD_POSITIVE,
    (2, 2, -2, -2): Rounding.TO_ODD,
}


def rounding_of_d(bench: Bench, at: Sequence[int], trailing: int, with_c: bool) -> Rounding | None:
    """How a sum is rounded to D: of c = 11...1, or products that come to it, and 2 or 4."""
    unit = power(0 if with_c else max(bench.lowest, bench.last_place))
    start, carried = power(trailing + 1) - 1, power(trailing + 1)
    rows = []
    for sign in (1, -1):
        for more in (2, 4):
            if with_c:
                rows.append(Row({at[0]: sign * more * unit}, sign * start * unit))
            else:
                products = {at[0]: sign * carried * unit, at[1]: -sign * unit, at[2]: sign * more * unit}
                rows.append(Row(products))
    found = bench.numbers(rows)
    if found is None or any(d is None for d in found):
        return None
    beyond = [int((d or 0) / unit - sign * carried) for d, sign in zip(found, (1, 1, -1, -1), strict=True)]
    return _TIES.get(tuple(beyond))


def sticky_bits(bench: Bench, at: Sequence[int], trailing: int) -> int | None:
    """How far below its leading bit a sum's smallest part still decides a tie; None where that cannot be seen."""
    start, carried = power(trailing + 1) - 1, power(trailing + 1)
    found = bench.reach(
        lambda s: Row({at[0]: Fraction(2), at[1]: power(-s)}, start), lambda _, d: d == carried + 2, _MOST
    )  # fmt: skip
    return None if found is None else found + trailing


def carried_whole(bench: Bench, first: int, second: int, trailing: int) -> bool | None:
    """Whether what one block hands to the next has more bits than D."""
    start = power(trailing + 1) - 1
    found = bench.numbers([Row({first: Fraction(2), second: Fraction(1)}, start)])
    return None if found is None else found[0] == start + 3


# -- the least exponent ------------------------------------------------------------------------------------------------


def least_exponent(bench: Bench, at: Sequence[int], bits: int, rounding: Rounding, lowest: int) -> int | None:
    """The exponent that is taken where all are smaller: from the last bit that is kept there.

    `lowest` is the exponent of D's smallest number. Toward zero, that number less something smaller is zero if the
    something is kept; to nearest, half of it and something more is not zero.
    """
    nearest = rounding is not Rounding.TOWARD_ZERO
    level = lowest - 1 if nearest else lowest
    sign = 1 if nearest else -1
    spread = max(0, min(4, len(at).bit_length() - 2))  # in 2**spread products, where their range is narrow
    for copies in (0, spread):
        large, others = at[: 1 << copies], at[-1]

        def row(s: int, large: Sequence[int] = large, copies: int = copies, other: int = others) -> Row:
            one = power(min(bench.highest, 0) if not bench.scales else 0)
            if bench.scale_blocks > 1:
                last = bench.scale_blocks - 1
                return Row(
                    {large[0]: one, bench.k - 1: sign * one}, scale={0: power(level), last: power(level - s)}
                )  # fmt: skip
            small, each = power(level - s), power(level - copies)
            if not bench.scales:
                return Row({**dict.fromkeys(large, each), other: sign * small})
            down = level - copies - min(bench.highest, 8)
            return Row(
                {**dict.fromkeys(large, each / power(down)), other: sign * small / power(down)}, scale={0: power(down)}
            )  # fmt: skip

        kept = bench.reach(row, lambda _, d: (d != 0) is nearest, _MOST)
        if kept is not None:
            found = level - kept + bits
            return found if found > level - copies else None
    return None


def group_of(bench: Bench, at: Sequence[int], bits: int) -> int | None:
    """How many products are summed exactly before anything is cut: two halves of the last place that is kept.

    c and a group with the last scales cancel, and set the place.
    """
    if bench.scale_blocks < 2 or bench.scales is None:
        return None
    top = 2 * min(bench.scales.format.emax, 10)
    last = power(top - bits)
    scale = {0: 2 * last, bench.scale_blocks - 1: power(top)}
    quarter = Fraction(1, 4)
    others = [k for k in range(1, bench.scales.every) if k in at]
    found = bench.numbers(
        [Row({0: quarter, k: quarter, bench.k - 1: power(0)}, -power(top), scale=scale) for k in others]
    )
    if found is None:
        return None
    return 1 + sum(d == last for d in found)


# -- infinities, NaN, zeros --------------------------------------------------------------------------------------------

INF, NAN, MINUS_ZERO = float("inf"), float("nan"), -0.0


def specials(bench: Bench, at: Sequence[int]) -> dict[str, int]:
    """The codes of D for infinities, NaN and zeros, of those that the formats have."""
    one, zero = Fraction(1), Fraction(0)
    i, j = at[0], at[-1]
    rows = {
        "NaN in a": Row({i: (NAN, one)}),
        "NaN in b": Row({j: (one, NAN)}),
        "NaN in c": Row({}, NAN),
        "inf * 0": Row({i: (INF, zero)}),
        "inf - inf": Row({i: (INF, one), j: (-INF, one)}) if i != j else Row({i: (INF, one)}, -INF),
        "inf - inf, c's": Row({i: (INF, one)}, -INF),
        "inf": Row({i: (INF, one), j: (INF, one)}),
        "-inf and a number": Row({i: (-INF, one)}, one),
        "c = inf": Row({i: one}, INF),
        "-0 alone": Row({}, MINUS_ZERO, rest=MINUS_ZERO),
        "1 - 1": Row({i: one}, -one),
    }
    found = {}
    for name, row in rows.items():
        codes = bench.run([row])
        if codes is not None:
            found[name] = codes[0]
    return found


def overflow(bench: Bench, at: Sequence[int]) -> int | None:
    """D where the sum is too large: of c = max and products of half its last place, twice."""
    half = power(bench.output.emax - bench.output.trailing_bits - 1)
    codes = bench.run(
        [Row(dict.fromkeys(at[:2], half) if len(at) > 1 else {at[0]: 2 * half}, Fraction(bench.output.max))]
    )
    return None if codes is None else codes[0]


def operand_bits(bench: Bench, k: int) -> int | None:
    """How many bits below the leading one of an operand count; None where D cannot tell."""
    most = min(bench.a.trailing_bits, bench.output.trailing_bits)
    rows = [Row({k: (1 + power(-p), Fraction(1))}) for p in range(1, most + 1)]
    found = bench.numbers(rows)
    if found is None:
        return None
    kept = [d != 1 for d in found]
    return kept.index(False) if False in kept else bench.a.trailing_bits if most == bench.a.trailing_bits else None


def repeats(bench: Bench) -> bool | None:
    """Whether the same sums have the same results again, alone, in another order, and beside other ones."""
    last = bench.k - 1
    rows = [
        Row({n % bench.k: Fraction(3), last - n % last if last else 0: Fraction(1, 2)}, power(n % 8)) for n in range(65)
    ]
    codes, backward = bench.run(rows), bench.run(rows[::-1])
    if codes is None or backward is None:
        return None
    alone = [bench.run([row]) for row in rows[:3]]
    return codes == backward[::-1] == bench.run(rows) and alone == [[code] for code in codes[:3]]


def product_is_exact(bench: Bench, k: int) -> bool | None:
    """Whether a product enters as it is, and not rounded to D: the fused multiply-add."""
    t = min(bench.a.trailing_bits, bench.b.trailing_bits)
    x = 1 + power(-t)
    found = bench.numbers([Row({k: (x, x)}, -(1 + power(1 - t)))])
    return None if found is None else found[0] == power(-2 * t)


GRIDS = {(fmt.exponent_bits, fmt.trailing_bits): fmt for fmt in (FP64, FP32, FP16, E8M13)}


def grid_of(output: FloatFormat, trailing: int) -> FloatFormat:
    """What has as many bits as are kept: D's own format, or a coarser one within it."""
    known = GRIDS.get((output.exponent_bits, trailing))
    return known or FloatFormat.ieee(output.exponent_bits, trailing)
