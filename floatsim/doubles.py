"""When kernels on float64 give the same bits as the general ones, and how they are called.

They take any format that float64 holds with margin, in all roundings.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from floatsim_kernels import gemm_doubles as loops

from floatsim import reference
from floatsim.accumulation import Kahan, Leaf, Neumaier, Pairwise, ProductLeaf
from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.leaves import FastLeaf, Terms, quantum
from floatsim.rounding import Attributes, Rounding

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["can_round", "leaf_kernel", "rows_of", "rule_of", "work_rows"]

_RULES = {
    Rounding.TIES_TO_EVEN: loops.EVEN,
    Rounding.TIES_TO_AWAY: loops.AWAY,
    Rounding.TOWARD_ZERO: loops.INWARD,
    Rounding.TOWARD_POSITIVE: loops.DOWN,  # with all signs turned
    Rounding.TOWARD_NEGATIVE: loops.DOWN,
    Rounding.TO_ODD: loops.ODD,
    Rounding.STOCHASTIC: loops.STOCHASTIC,
}

_FARTHEST = 900
"""Exponents up to which float64 has room for the constants of rounding."""


_HEIGHT = 96
"""Of trees: 64, or NumPy's: up to 64 halvings, 16 terms one after the other, 3 levels and 7 terms more."""


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


def can_round(fmt: FloatFormat, how: Attributes) -> bool:
    """Whether the kernels round to this format so."""
    stochastic = how.rounding is Rounding.STOCHASTIC
    return (
        not (how.daz or how.ftz)
        and fmt.has_nan
        and fmt.precision <= (20 if stochastic else 50)
        and how.random_bits <= (32 if stochastic else 64)
        and quantum(fmt) >= -_FARTHEST
        and fmt.emax <= _FARTHEST
    )


def _nearest_does(fmt: FloatFormat, terms: Terms, both_terms: bool) -> bool:
    """Whether sums may be rounded to nearest in float64 before they are to the format; of two terms, too, if told so.

    Let x = s + t be inexact in 53 bits, s of the format (p bits), t a term of P bits, and P + p <= 50. Then the smaller
    one's last bit is far below the larger one's first. If s is the larger, |t| is less than an eighth of its quantum:
    x and its rounding to 53 bits have s for nearest. If t is, only a tie can go wrong, a midpoint m = t of the format's
    grid, for every other midpoint is more than |s| away: x is beside m, and rounded to 53 bits it is m if |s| is at
    most 2**(e(t) - 53). But t is no midpoint if P <= p, and s is larger if the least quantum is; where t is beyond
    emax, the sum overflows either way. This holds for both kinds of ties.

    Of two terms on the format's grid, P <= p, neither is a midpoint.
    """
    p, bits, least = fmt.precision, terms.precision, quantum(fmt)
    lowest, highest = min(least, terms.lowest), max(fmt.emax + 1, terms.highest)
    if highest + 2 - lowest <= FP64.precision:
        return True  # the sums are exact
    if bits + p > 50 or p > 25:
        return False
    if both_terms:
        return bits <= p and terms.lowest >= least
    return bits <= p or least > min(terms.highest, fmt.emax) - FP64.precision


def _holds(fmt: FloatFormat, terms: Terms) -> bool:
    """Whether all terms are numbers of the format."""
    return (
        terms.precision <= fmt.precision
        and terms.lowest >= quantum(fmt)
        and terms.highest <= fmt.emax
        and fmt.has_signed_zero
        and (fmt.has_infinity or not _infinite(terms))
    )


def _infinite(terms: Terms) -> bool:
    return any(factor is not None and factor.has_infinity for factor in terms)


def leaf_kernel(leaf: Leaf, terms: Terms, attributes: Attributes, product_attributes: Attributes) -> FastLeaf | None:
    """The kernel that sums a leaf in float64, or None."""
    if not isinstance(leaf, ProductLeaf):
        return None
    fmt, product = leaf.format, leaf.product
    if terms.b is None or product is None or _holds(product, terms):
        product = None
    # products are exact in float64
    if terms.precision > FP64.precision or terms.lowest < quantum(FP64) or terms.highest > _FARTHEST:
        return None
    to_single = fmt == FP32 and attributes.rounding is Rounding.STOCHASTIC and not product
    if to_single:
        if not _holds(fmt, terms) or attributes.random_bits > 32 or attributes.daz or attributes.ftz:
            return None
    elif not can_round(fmt, attributes) or (product and not can_round(product, product_attributes)):
        return None
    # what is infinite stays so, and zeros keep their signs
    if product and ((_infinite(terms) and not product.has_infinity) or (fmt.has_signed_zero > product.has_signed_zero)):
        return None
    if (product.has_infinity if product else _infinite(terms)) and not fmt.has_infinity:
        return None
    rule, sign, grid = rule_of(fmt, attributes)
    rule = loops.STOCHASTIC_SINGLE if to_single else rule
    product_rule, turn, product_grid, least = loops.EXACT, 1.0, grid, fmt.precision
    if product:
        product_rule, product_sign, product_grid = rule_of(product, product_attributes)
        turn = sign * product_sign if product_rule == loops.DOWN else 1.0
        least = min(least, product.precision)
    if rule == loops.EVEN and not _nearest_does(fmt, Terms(product) if product else terms, isinstance(leaf, Pairwise)):
        rule = loops.EVEN_FROM_ODD
    # one rounding multiplies by at most 1 + 2**(1 - p) or adds a least quantum; and the bound itself is rounded
    tree = isinstance(leaf, Pairwise)
    growth = (1 + 2.0 ** (1 - least)) ** ((_HEIGHT if tree else loops.DEPTH) + 1) * (1 + 2.0**-40)
    slack = (1 if tree else loops.DEPTH) * sum(2.0 ** quantum(f) for f in (fmt, product or fmt))
    rules = np.array([rule, product_rule], np.int64)
    extra = (rules, sign, turn, grid, product_grid, growth, slack)
    if tree:
        return FastLeaf(FP64, _tree, extra)
    if isinstance(leaf, Kahan | Neumaier):
        return FastLeaf(FP64, _compensated, (int(isinstance(leaf, Neumaier)), *extra))
    return FastLeaf(FP64, _sequential, extra)


# -- calls -------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _numbers(stride: int) -> NDArray[np.uint32]:
    """The row NUMBERS."""
    numbers = (np.arange(loops.WIDTH, dtype=np.int64) * stride).astype(np.uint32)
    return numbers.reshape(-1, 2, 8).swapaxes(1, 2).reshape(-1)


def work_rows(n: int, index: NDArray[np.int64]) -> NDArray[np.float64]:
    """n rows for a kernel to work in. They begin at a cache line: vectors that lie across two cost twice."""
    memory = np.zeros(n * loops.WIDTH + 8)
    skip = -memory.__array_interface__["data"][0] // 8 % 8
    work = memory[skip : skip + n * loops.WIDTH].reshape(n, loops.WIDTH)
    work[loops.NUMBERS].view(np.uint32)[: loops.WIDTH] = _numbers(int(index[2]))
    return work


def rows_of(out: NDArray[np.float64]) -> NDArray[np.float64]:
    """The results (ranges, M, N) as one matrix."""
    return out.reshape(out.shape[0] * out.shape[1], out.shape[2])


def _sequential(a: Any, b: Any, out: Any, ranges: Any, index: Any, *arguments: Any) -> None:
    work = np.empty(loops.KEYS, np.uint64), work_rows(loops.SEQUENTIAL_ROWS, index)
    loops.sequential(a, b, rows_of(out), ranges, index, *arguments, *work)


def _compensated(a: Any, b: Any, out: Any, ranges: Any, index: Any, *arguments: Any) -> None:
    work = np.empty(loops.KEYS, np.uint64), work_rows(loops.COMPENSATED_ROWS, index)
    loops.compensated(a, b, rows_of(out), ranges, index, *arguments, *work)


def _tree(
    a: Any, b: Any, out: Any, ranges: Any, index: Any, seeds: Any, orders: Any, merges: Any, depth: int, *arguments: Any
) -> None:
    work = np.empty(loops.KEYS, np.uint64), work_rows(loops.rows_of_tree(depth), index)
    loops.tree(a, b, rows_of(out), ranges, index, seeds, orders, merges, depth, *arguments, *work)
