"""Experiments that measure the parameters of a matrix unit's model, with small sums through any `dot(a, b, c)`.

Each experiment computes a few rows of exact numbers, and infers a parameter from the terms that survive in D. The
experiments come from M. Fasi et al., "Numerical behavior of NVIDIA tensor cores" (PeerJ Computer Science 7:e330, 2021),
from FPRev (P. Xie et al., "Revealing floating-point accumulation orders", USENIX ATC 2025), from MMA-Sim (P. Xie et
al.) and from F. A. Khattak and M. Mikaitis, "Accurate Models of NVIDIA Tensor Cores". Here they work for formats of any
range.

If the formats cannot hold the numbers of an experiment, its parameter is not observable, and it returns None.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from floatsim.formats import FP16, FP32, FP64, FloatFormat
from floatsim.formats.rounding import INEXACT, Rounding, RoundingAttributes
from floatsim.reference import Kind, decode, from_fraction, round_pack
from floatsim.tensorcore.instructions import E8M13, Scales
from floatsim.testing.vectors.dot_unit import DotProducts, ScaleCodes

__all__ = [
    "INF", "Bench", "C", "Row", "Tree", "chain_blocks", "check_simple_sums", "exact_code", "grid_format",
    "measure_accumulator_bits", "measure_accumulator_truncation", "measure_block_carry", "measure_group",
    "measure_least_exponent", "measure_operand_bits", "measure_output_bits", "measure_output_rounding",
    "measure_overflow", "measure_product_bits", "measure_product_exactness", "measure_product_normalisation",
    "measure_product_truncation", "measure_repeatability", "measure_specials", "measure_sticky_bits",
    "measure_subnormal_normalisation", "measure_summation_tree",
]  # fmt: skip

C = "c"
"""The name of the accumulator among the summands."""

Exact: TypeAlias = Fraction | float  # a float for infinities, NaN and -0
Leaf: TypeAlias = int | str
Tree: TypeAlias = "Leaf | tuple[Tree, ...]"


# -- numbers -----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1 << 16)
def exact_code(x: Exact, fmt: FloatFormat) -> int | None:
    """Return the code of a number; None if the format does not have the number."""
    if isinstance(x, float):
        if x == 0:
            return fmt.sign_mask if fmt.has_signed_zero else None
        if x != x:  # noqa: PLR0124
            return fmt.canonical_nan
        return None if fmt.infinity_code is None else fmt.infinity_code | (fmt.sign_mask if x < 0 else 0)
    if x and (abs(x) > Fraction(fmt.max) or x.denominator & (x.denominator - 1)):
        return None
    code, events = round_pack(from_fraction(x), fmt, RoundingAttributes())
    return None if events & INEXACT else code


def power(n: int) -> Fraction:
    """Return 2**n as a Fraction."""
    return Fraction(2) ** n


@functools.lru_cache(maxsize=1 << 16)
def factors(x: Exact, a: FloatFormat, b: FloatFormat) -> tuple[int, int] | None:
    """Return codes of two numbers whose product is x, normal numbers if possible; None if there are none."""
    if isinstance(x, float) or not x:
        one = Fraction(1)
        pair = exact_code(x, a), exact_code(one, b)
        return None if pair[0] is None or pair[1] is None else (pair[0], pair[1])
    exponent = _exponent(x)
    middle = (a.emax + a.emin + exponent - b.emax - b.emin) // 2
    reach = a.emax - a.emin + b.emax - b.emin + a.trailing_bits + b.trailing_bits
    subnormal = None
    for i in sorted(range(middle - reach, middle + reach + 1), key=lambda i: abs(i - middle)):
        if not (a.emin - a.trailing_bits <= i <= a.emax and b.emin - b.trailing_bits <= exponent - i <= b.emax):
            continue
        pair = exact_code(x / power(exponent - i), a), exact_code(power(exponent - i), b)
        if pair[0] is None or pair[1] is None:
            continue
        if i >= a.emin and exponent - i >= b.emin:
            return pair[0], pair[1]
        subnormal = subnormal or (pair[0], pair[1])
    return subnormal


def _exponent(x: Fraction) -> int:
    """Return the exponent of the leading bit."""
    x = abs(x)
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if power(e) <= x else e - 1


# -- rows --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One dot product: products by their k, as numbers or as pairs of factors. All other products are `others`.

    `scale` gives the product of the two scales of a scaled block by its index. It is 1 for all other blocks.
    """

    products: Mapping[int, Exact | tuple[Exact, Exact]]
    c: Exact = Fraction(0)
    others: Exact = Fraction(0)
    scale: Mapping[int, Fraction] = field(default_factory=dict)


@dataclass(frozen=True)
class Bench:
    """The callable under test, with the formats that it takes. It runs rows and decodes their results."""

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
        """The exponent of the smallest product of normal numbers."""
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
        """The number of scales in a row of an operand."""
        return self.k // self.scales.every if self.scales else 0

    def codes(self, row: Row) -> tuple[list[int], list[int], int, list[int], list[int]] | None:
        """Return (a, b, c, scales of a, scales of b) as codes; None if a format does not have a number."""
        c = exact_code(row.c, self.output)
        pairs = [self._pair(row.products.get(k, row.others)) for k in range(self.k)]
        factors_of_scales = [self._scale(row.scale.get(n, Fraction(1))) for n in range(self.scale_blocks)]
        if c is None or None in pairs or None in factors_of_scales:
            return None
        sides = [[pair[side] for pair in pairs if pair] for side in (0, 1)]
        scales = [[pair[side] for pair in factors_of_scales if pair] for side in (0, 1)]
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
        """Return the codes of D of all rows, in one call; None if the formats do not have a number of a row."""
        encoded = [self.codes(row) for row in rows]
        if not all(encoded):
            return None
        a, b, c, scale_a, scale_b = (list(column) for column in zip(*(x for x in encoded if x), strict=True))
        scales = None
        if self.scales:
            dtype = self.scales.format.code_dtype
            scales = ScaleCodes(np.array(scale_a, dtype), np.array(scale_b, dtype))
        left, right, acc = (
            np.array(x, fmt.code_dtype) for x, fmt in ((a, self.a), (b, self.b), (c, self.output))
        )  # fmt: skip
        d = self.dot(left, right, acc) if scales is None else self.dot(left, right, acc, scales)
        return [int(code) for code in d]

    def value(self, code: int) -> Fraction | None:
        """Return the value of a code of D; None if it is not finite."""
        x = decode(code, self.output)
        return x.fraction if x.kind is Kind.FINITE else None

    def values(self, rows: Sequence[Row]) -> list[Fraction | None] | None:
        """Return the values of D of all rows; None if the formats do not have a number of a row."""
        codes = self.run(rows)
        return None if codes is None else [self.value(code) for code in codes]

    def last_survivor(
        self, row_of: Callable[[int], Row], survives: Callable[[int, Fraction | None], bool], most: int
    ) -> int | None:
        """Return the last n of 1, 2, ... for which the small term of a row survives in D.

        None if it survives in all rows, or in none. Rows are skipped up to the first whose numbers the formats have,
        and end before the next whose numbers they do not have.
        """
        rows: dict[int, Row] = {}
        for n in range(1, most + 1):
            if self.codes(row := row_of(n)) is not None:
                rows[n] = row
            elif rows:
                break
        results = self.values(list(rows.values())) if rows else None
        kept = [survives(n, d) for n, d in zip(rows, results or [], strict=True)]
        if all(kept) or not kept[0]:
            return None
        return min(rows) - 1 + kept.index(False)


# -- simple sums -------------------------------------------------------------------------------------------------------


def check_simple_sums(bench: Bench) -> str | None:
    """Return a message about the first wrong sum of one or two ones; None if all these sums are correct.

    Without this check, any callable would be read as a model: one that returns c as a block that discards every
    product. 1 + 1 is exact in every D, whatever the truncation.
    """
    one = Fraction(1)
    sums = [(f"1 * 1 at k = {k}", Row({k: one}), one) for k in range(bench.k)]
    if bench.k > 1:
        last = bench.k - 1
        sums.append((f"1 * 1 at k = 0 and {last}", Row({0: one, last: one}), 2 * one))
    sums += [("c = 1", Row({}, one), one), ("1 * 1 at k = 0, c = 1", Row({0: one}, one), 2 * one)]
    rows = [row for _, row, _ in sums]
    codes = bench.run(rows)
    if codes is None:  # a format without 1 or 0
        return None
    if len(codes) != len(rows):
        return (
            f"dot returned {len(codes)} codes of D for {len(rows)} rows of a, b and c; it must return one for each row"
        )
    for (terms, _, exact), code in zip(sums, codes, strict=True):
        if (value := bench.value(code)) != exact:
            text = "no finite number" if value is None else f"{float(value):g}"
            return (
                f"with {terms}, and 0 elsewhere, dot returned 0x{code:0{-(-bench.output.bits // 4)}X}, which is {text} "
                f"in {bench.output.name}; the sum is {exact}. Does dot(a, b, c) take codes, not numbers, and return "
                "the codes of c + sum(a * b), row by row?"
            )
    return None


# -- the summation order -----------------------------------------------------------------------------------------------


def measure_summation_tree(bench: Bench) -> Tree | None:
    """Return the summation tree as nested groups of terms that are added at once; None if it is not observable.

    The method is FPRev's: two summands are large and of opposite signs, all others are one small unit. The units that
    are added after the two large ones survive. Formats too narrow for that use carries instead (`_tree_by_carries`).
    """
    high = min(bench.highest, bench.output.emax, 40)
    low = bench.lowest if high - bench.lowest >= 40 else bench.smallest  # subnormal units only if needed
    low = max(low, bench.last_place, high - 70)
    large, unit = power(high), power(low)
    summands: list[Leaf] = [C, *range(bench.k)]
    pairs = [(i, j) for n, i in enumerate(summands) for j in summands[n + 1 :]]
    rows = [
        Row({j: -large} if i == C else {i: large, j: -large}, large if i == C else unit, others=unit)  # type: ignore[dict-item]
        for i, j in pairs
    ]
    results = bench.values(rows)
    if results is None or any(d is None for d in results):
        return None
    under = {pair: len(summands) - int((d or 0) / unit) for pair, d in zip(pairs, results, strict=True)}
    if set(under.values()) == {2}:  # all units survive in every row
        return _tree_by_carries(bench)
    under |= {(j, i): n for (i, j), n in under.items()}
    return _exact_blocks(summands, under) or _tree_from_counts(summands, under)


def _tree_from_counts(leaves: Sequence[Leaf], under: Mapping[tuple[Leaf, Leaf], int]) -> Tree:
    """Return the tree of these leaves. `under` counts the leaves of the smallest subtree that holds two leaves."""
    first, *others = leaves
    tree: Tree = first
    for size in sorted({under[first, j] for j in others}):
        level = [j for j in others if under[first, j] == size]
        children: list[Tree] = []
        while level:
            near = [j for j in level if j == level[0] or under[level[0], j] < size]
            children.append(_tree_from_counts(near, under))
            level = [j for j in level if j not in near]
        tree = (tree, *children)
    return tree


def _exact_blocks(summands: Sequence[Leaf], under: Mapping[tuple[Leaf, Leaf], int]) -> Tree | None:
    """Return the blocks if sums in a block are exact: three terms or more do not absorb each other. Or None."""
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


def _tree_by_carries(bench: Bench) -> Tree | None:
    """Return the blocks, with c of all ones: 2 at i and 1 at j give 3 only if they are added together, or j first."""
    if bench.k == 1:
        return C, 0
    p = bench.output.precision
    for digits in range(p, 1, -1):  # the bits that D keeps
        start = power(digits) - 1
        d = bench.values([Row({}, start)])
        if d and d[0] == start:
            break
    else:
        return None
    pairs = [(i, j) for i in range(bench.k) for j in range(bench.k) if i != j]
    results = bench.values([Row({i: Fraction(2), j: Fraction(1)}, start) for i, j in pairs])
    if results is None:
        return None
    reached = {pair: d == start + 3 for pair, d in zip(pairs, results, strict=True)}
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


def chain_blocks(tree: Tree | None) -> list[tuple[Leaf, ...]] | None:
    """Return the blocks of a tree that is a chain, in order; None for any other tree.

    >>> chain_blocks((("c", 0, 1), 2, 3))
    [('c', 0, 1), (2, 3)]
    >>> chain_blocks((("c", 0), (1, 2))) is None
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


# -- the kept bits of a term -------------------------------------------------------------------------------------------

_MOST = 80  # the largest number of bits that an experiment tries


def _cancelling(ks: Sequence[int], top: Fraction) -> dict[int, Exact | tuple[Exact, Exact]]:
    return {ks[0]: top, ks[1]: -top}


def _top_for_c(bench: Bench) -> int:
    """Return an exponent of products with at least 40 exponents of c below it, if the formats allow this."""
    return min(bench.highest, max(0, 40 + bench.last_place))


def measure_accumulator_bits(bench: Bench, ks: Sequence[int], lower: int = 0) -> int | None:
    """Return how many bits of c are kept below the largest exponent; None if c never loses bits."""
    top = _top_for_c(bench) + (-lower if _top_for_c(bench) >= lower else lower)
    large = power(top)
    return bench.last_survivor(
        lambda f: Row(_cancelling(ks, large), power(top - f)), lambda f, d: d == power(top - f), _MOST
    )  # fmt: skip


def measure_product_bits(bench: Bench, ks: Sequence[int]) -> int | None:
    """Return how many bits of a product are kept below the largest exponent; None if products never lose bits."""
    if bench.scale_blocks > 1:  # the scales set the exponents
        assert bench.scales is not None
        top = 2 * min(bench.scales.format.emax, 10)
        one = power(0)
        lowest = bench.scales.format.emin - bench.scales.format.trailing_bits

        def scaled(f: int) -> Row:
            below = max(top - f, 2 * lowest)
            factor = power(top - f - below)
            scale = {0: power(top), bench.scale_blocks - 1: power(below)}
            return Row({ks[0]: one, ks[1]: -one, bench.k - 1: factor}, scale=scale)

        return bench.last_survivor(scaled, lambda f, d: d == power(top - f), _MOST)
    top = min(bench.highest, bench.output.emax + 1, 40)  # the first must fit D
    return bench.last_survivor(
        lambda f: Row({**_cancelling(ks, power(top)), ks[2]: power(top - f)}), lambda f, d: d == power(top - f), _MOST
    )  # fmt: skip


_DIRECTIONS: Mapping[Rounding, Callable[[Fraction], int]] = {
    Rounding.TOWARD_ZERO: int,
    Rounding.TOWARD_NEGATIVE: lambda x: x.numerator // x.denominator,
    Rounding.TOWARD_POSITIVE: lambda x: -(-x.numerator // x.denominator),
    Rounding.TIES_TO_EVEN: round,
    Rounding.TIES_TO_AWAY: lambda x: int(abs(x) + Fraction(1, 2)) * (1 if x > 0 else -1),
}


def _direction(exact: Sequence[Fraction], rounded: Sequence[Fraction]) -> Rounding | None:
    """Return the only rounding to integers that turns the exact values into the rounded ones, or None."""
    fitting = [
        rounding
        for rounding, to_integer in _DIRECTIONS.items()
        if all(to_integer(x) == d for x, d in zip(exact, rounded, strict=True))
    ]
    return fitting[0] if len(fitting) == 1 else None


_PARTS = [Fraction(n, 4) for n in (-6, -3, -2, -1, 1, 2, 3, 6)]


def measure_accumulator_truncation(bench: Bench, ks: Sequence[int], bits: int) -> Rounding | None:
    """Return how c is truncated to `bits` bits below the largest exponent; None if D cannot show it."""
    top = _top_for_c(bench)
    results = bench.values([Row(_cancelling(ks, power(top)), x * power(top - bits)) for x in _PARTS])
    if results is None:  # D has no quarters of the last kept bit
        return None
    return _direction(_PARTS, [(d or Fraction(0)) / power(top - bits) for d in results])


def measure_product_truncation(bench: Bench, ks: Sequence[int], bits: int) -> Rounding | None:
    """Return how products are truncated to `bits` bits below the largest exponent; None if D cannot show it."""
    if bench.scale_blocks > 1:
        return None
    top = min(bench.highest, bench.output.emax + 1, 40)  # the first must fit D
    results = bench.values([Row({**_cancelling(ks, power(top)), ks[2]: x * power(top - bits)}) for x in _PARTS])
    if results is None:
        return None
    return _direction(_PARTS, [(d or Fraction(0)) / power(top - bits) for d in results])


def measure_product_normalisation(bench: Bench, ks: Sequence[int], bits: int, of_c: bool) -> bool | None:
    """Return whether products are normalised before alignment: 1.5 * 1.5 has the exponent 1, and loses one bit more."""
    top = min(_top_for_c(bench) if of_c else bench.output.emax, bench.highest - 1)
    left = min(bench.a.emax, max(bench.a.emin, top // 2, top - bench.b.emax))
    x, y = (Fraction(3, 2) * power(e) for e in (left, top - left))
    last = power(top - bits)
    pair: dict[int, Exact | tuple[Exact, Exact]] = {ks[0]: (x, y), ks[1]: (x, -y)}
    results = bench.values([Row(pair, last) if of_c else Row({**pair, ks[2]: last})]) if of_c or len(ks) > 2 else None
    return None if results is None else results[0] != last


def measure_subnormal_normalisation(bench: Bench, ks: Sequence[int], bits: int, of_c: bool) -> bool | None:
    """Return whether the exponent of a subnormal operand is the exponent of its leading bit, and not emin.

    If it is, products of half the smallest normal number keep one bit more below them. That bit is tested with c, or
    with enough equal products that their sum is large enough for D.
    """
    if not bench.a.has_subnormals or bench.a.trailing_bits == 0:
        return None
    normal, by = power(bench.a.emin), power(min(bench.b.emax, 40))
    last = bench.a.emin + min(bench.b.emax, 40) - 1 - bits
    pair: dict[int, Exact | tuple[Exact, Exact]] = {ks[0]: (normal / 2, by), ks[1]: (normal / 2, -by)}
    rows = [Row(pair, power(last))] if of_c else []
    copies = ks[2:]
    if copies:
        n = 1 << (len(copies).bit_length() - 1)
        rows.append(Row({**pair, **dict.fromkeys(copies[:n], power(last))}))
    for row in rows:
        expected = row.c if row.c else power(last) * (len(row.products) - 2)
        if exact_code(expected, bench.output) is None:
            continue
        results = bench.values([row])
        if results is not None:
            return results[0] == expected
    return None


# -- D -----------------------------------------------------------------------------------------------------------------


def measure_output_bits(bench: Bench, k: int) -> int | None:
    """Return how many bits D keeps below its leading bit, from c = 11...1 and a product 2 with the sum 10...01."""
    start = min(0, bench.highest - 1)
    unit = power(start)
    most = bench.output.precision
    rows = [Row({k: 2 * unit}, (power(p) - 1) * unit) for p in range(1, most + 1)]
    results = bench.values(rows)
    if results is None:
        return None
    kept = [d == (power(p) + 1) * unit for p, d in enumerate(results, 1)]
    return (kept.index(False) or None) if False in kept else most


_TIES: Mapping[tuple[int, ...], Rounding] = {
    # the distances of the rounded sums from a power of two, for the exact distances 1, 3, -1 and -3
    (0, 4, 0, -4): Rounding.TIES_TO_EVEN,
    (2, 4, -2, -4): Rounding.TIES_TO_AWAY,
    (0, 2, 0, -2): Rounding.TOWARD_ZERO,
    (0, 2, -2, -4): Rounding.TOWARD_NEGATIVE,
    (2, 4, 0, -2): Rounding.TOWARD_POSITIVE,
    (2, 2, -2, -2): Rounding.TO_ODD,
}


def measure_output_rounding(bench: Bench, ks: Sequence[int], trailing: int, with_c: bool) -> Rounding | None:
    """Return how a sum is rounded to D, from c = 11...1 (or products with this sum) and a product 2 or 4."""
    unit = power(0 if with_c else max(bench.lowest, bench.last_place))
    start, carried = power(trailing + 1) - 1, power(trailing + 1)
    rows = []
    for sign in (1, -1):
        for added in (2, 4):
            if with_c:
                rows.append(Row({ks[0]: sign * added * unit}, sign * start * unit))
            else:
                products = {ks[0]: sign * carried * unit, ks[1]: -sign * unit, ks[2]: sign * added * unit}
                rows.append(Row(products))
    results = bench.values(rows)
    if results is None or any(d is None for d in results):
        return None
    beyond = [int((d or 0) / unit - sign * carried) for d, sign in zip(results, (1, 1, -1, -1), strict=True)]
    return _TIES.get(tuple(beyond))


def measure_sticky_bits(bench: Bench, ks: Sequence[int], trailing: int) -> int | None:
    """Return how far below a sum's leading bit its smallest part still decides a tie; None if D cannot show it."""
    start, carried = power(trailing + 1) - 1, power(trailing + 1)
    results = bench.last_survivor(
        lambda s: Row({ks[0]: Fraction(2), ks[1]: power(-s)}, start), lambda _, d: d == carried + 2, _MOST
    )  # fmt: skip
    return None if results is None else results + trailing


def measure_block_carry(bench: Bench, first: int, second: int, trailing: int) -> bool | None:
    """Return whether the value that a block passes to the next has more bits than D."""
    start = power(trailing + 1) - 1
    results = bench.values([Row({first: Fraction(2), second: Fraction(1)}, start)])
    return None if results is None else results[0] == start + 3


# -- the least exponent ------------------------------------------------------------------------------------------------


def measure_least_exponent(bench: Bench, ks: Sequence[int], bits: int, rounding: Rounding, lowest: int) -> int | None:
    """Return the lower bound of the largest exponent, from the last bit that is kept at it.

    `lowest` is the exponent of D's smallest number. With rounding toward zero, that number minus a smaller one is zero
    if the smaller one is kept. With rounding to nearest, half of that number plus a smaller one is not zero.
    """
    nearest = rounding is not Rounding.TOWARD_ZERO
    level = lowest - 1 if nearest else lowest
    sign = 1 if nearest else -1
    spread = max(0, min(4, len(ks).bit_length() - 2))  # a sum of 2**spread products extends a narrow range
    for copies in (0, spread):
        large, others = ks[: 1 << copies], ks[-1]

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

        kept = bench.last_survivor(row, lambda _, d: (d != 0) is nearest, _MOST)
        if kept is not None:
            exponent = level - kept + bits
            return exponent if exponent > level - copies else None
    return None


def measure_group(bench: Bench, ks: Sequence[int], bits: int) -> int | None:
    """Return how many products are summed exactly before truncation, from two halves of the last kept bit.

    c and a group with the last scales cancel, and set the largest exponent.
    """
    if bench.scale_blocks < 2 or bench.scales is None:
        return None
    top = 2 * min(bench.scales.format.emax, 10)
    last = power(top - bits)
    scale = {0: 2 * last, bench.scale_blocks - 1: power(top)}
    quarter = Fraction(1, 4)
    others = [k for k in range(1, bench.scales.every) if k in ks]
    results = bench.values(
        [Row({0: quarter, k: quarter, bench.k - 1: power(0)}, -power(top), scale=scale) for k in others]
    )
    if results is None:
        return None
    return 1 + sum(d == last for d in results)


# -- infinities, NaN, zeros --------------------------------------------------------------------------------------------

INF, NAN, MINUS_ZERO = float("inf"), float("nan"), -0.0


def measure_specials(bench: Bench, ks: Sequence[int]) -> dict[str, int]:
    """Return the codes of D for the infinities, NaNs and zeros that the formats have, by the name of the sum."""
    one, zero = Fraction(1), Fraction(0)
    i, j = ks[0], ks[-1]
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
        "-0 alone": Row({}, MINUS_ZERO, others=MINUS_ZERO),
        "1 - 1": Row({i: one}, -one),
    }
    results: dict[str, int] = {}
    for name, row in rows.items():
        codes = bench.run([row])
        if codes is not None:
            results[name] = codes[0]
    return results


def measure_overflow(bench: Bench, ks: Sequence[int]) -> int | None:
    """Return D of a sum beyond its largest number: c = max, and products of half its last bit, twice."""
    half = power(bench.output.emax - bench.output.trailing_bits - 1)
    codes = bench.run(
        [Row(dict.fromkeys(ks[:2], half) if len(ks) > 1 else {ks[0]: 2 * half}, Fraction(bench.output.max))]
    )
    return None if codes is None else codes[0]


def measure_operand_bits(bench: Bench, k: int) -> int | None:
    """Return how many bits below its leading bit an operand keeps; None if D has too few bits."""
    most = min(bench.a.trailing_bits, bench.output.trailing_bits)
    rows = [Row({k: (1 + power(-p), Fraction(1))}) for p in range(1, most + 1)]
    results = bench.values(rows)
    if results is None:
        return None
    kept = [d != 1 for d in results]
    return kept.index(False) if False in kept else bench.a.trailing_bits if most == bench.a.trailing_bits else None


def measure_repeatability(bench: Bench) -> bool | None:
    """Return whether the same sums give the same results again: alone, in another order, and beside other sums."""
    last = bench.k - 1
    rows = [
        Row({n % bench.k: Fraction(3), last - n % last if last else 0: Fraction(1, 2)}, power(n % 8)) for n in range(65)
    ]
    codes, backward = bench.run(rows), bench.run(rows[::-1])
    if codes is None or backward is None:
        return None
    alone = [bench.run([row]) for row in rows[:3]]
    return codes == backward[::-1] == bench.run(rows) and alone == [[code] for code in codes[:3]]


def measure_product_exactness(bench: Bench, k: int) -> bool | None:
    """Return whether a product enters the sum exactly, as in a fused multiply-add, and not rounded to D."""
    t = min(bench.a.trailing_bits, bench.b.trailing_bits)
    x = 1 + power(-t)
    results = bench.values([Row({k: (x, x)}, -(1 + power(1 - t)))])
    return None if results is None else results[0] == power(-2 * t)


GRIDS = {(fmt.exponent_bits, fmt.trailing_bits): fmt for fmt in (FP64, FP32, FP16, E8M13)}


def grid_format(output: FloatFormat, trailing: int) -> FloatFormat:
    """Return the format of D with `trailing` trailing bits: D's own format, or a coarser one with its exponents."""
    named = GRIDS.get((output.exponent_bits, trailing))
    return named or FloatFormat.ieee(output.exponent_bits, trailing)
