"""The conditions under which fast kernels give the same bits as the general ones."""

from __future__ import annotations

from floatsim.accumulation import ProductLeaf
from floatsim.formats import BF16, FP32, FP64, FloatFormat
from floatsim.formats.rounding import Attributes, Rounding
from floatsim.formats.value_sets import Terms, quantum

__all__ = [
    "FARTHEST", "add_exactly", "can_round", "exact_products", "holds", "infinite", "is_narrow", "is_narrow_packed",
    "nearest_does", "on_grid", "products_do",
]  # fmt: skip


def holds(fmt: FloatFormat, terms: Terms) -> bool:
    """Whether all terms are numbers of the format."""
    return on_grid(fmt, terms) and terms.highest <= fmt.emax


def on_grid(fmt: FloatFormat, terms: Terms) -> bool:
    """Whether all terms are numbers of the format, but for its range."""
    return terms.precision <= fmt.precision and terms.lowest >= quantum(fmt)


def add_exactly(terms: Terms) -> bool:
    """Whether float32 holds the sum of two terms."""
    return terms.highest + 2 - terms.lowest <= FP32.precision


def products_do(a: FloatFormat, b: FloatFormat, accumulator: FloatFormat) -> bool:
    """Whether a product rounded to float32, if it is not exact there, still rounds to the same accumulator code."""
    bits = a.precision + b.precision
    exact = quantum(a) + quantum(b) >= quantum(FP32)
    lost = quantum(accumulator) - 1 >= FP32.emin  # what float32 cannot hold is less than half a quantum
    # 16 bits and at least half of BF16's quantum, 2**-134: a multiple of float32's 2**-149; below that, it is lost
    short = bits <= 16 and quantum(accumulator) >= quantum(BF16)
    return bits <= FP32.precision and (exact or lost or short)


def exact_products(leaf: ProductLeaf, terms: Terms) -> bool:
    """Whether terms enter as they are: they are not rounded, or their rounding changes none."""
    fmt = leaf.product
    return terms.b is None or fmt is None or (holds(fmt, terms) and fmt.has_signed_zero)


FARTHEST = 900
"""Exponents up to which float64 has room for the constants of rounding."""


def can_round(fmt: FloatFormat, how: Attributes) -> bool:
    """Whether the kernels round to this format so."""
    stochastic = how.rounding is Rounding.STOCHASTIC
    return (
        not (how.daz or how.ftz)
        and fmt.has_nan
        and fmt.precision <= (20 if stochastic else 50)
        and how.random_bits <= (32 if stochastic else 64)
        and quantum(fmt) >= -FARTHEST
        and fmt.emax <= FARTHEST
    )


def nearest_does(fmt: FloatFormat, terms: Terms, both_terms: bool) -> bool:
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


def infinite(terms: Terms) -> bool:
    return any(factor is not None and factor.has_infinity for factor in terms)


def is_narrow_packed(fmt: FloatFormat) -> bool:
    """Whether float32 holds sums, products and quotients of the format well enough to round them once more."""
    lowest, highest = fmt.emin - fmt.trailing_bits, fmt.emax + 1
    return (
        2 * fmt.precision + 2 <= FP32.precision
        and min(2 * lowest, lowest - highest) >= FP32.emin
        and max(2 * highest, highest - lowest) <= FP32.emax
        and fmt.emin <= 0  # the scale between the exponents, and its inverse, are float32 numbers
        and fmt.has_signed_zero
        and not fmt.is_scale
    )


def is_narrow(fmt: FloatFormat) -> bool:
    """Whether sums and products of the format, rounded to float32, are rounded right once more, and by addition."""
    return (
        2 * fmt.precision + 2 <= FP32.precision
        and fmt.emin - fmt.trailing_bits - 1 >= FP32.emin
        and fmt.emax + 1 + FP32.precision - fmt.precision <= FP32.emax
        and fmt.has_signed_zero
        and fmt.has_nan
        and not fmt.is_scale
    )
