"""The values of formats and of the terms of sums: subset tests on exact integers."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from floatsim.formats.format import FloatFormat

__all__ = ["TermRange", "contains", "quantum"]


def quantum(fmt: FloatFormat) -> int:
    """Return the exponent of the smallest subnormal: every finite value is a multiple of 2**quantum.

    >>> import floatsim as fs
    >>> quantum(fs.FP16)
    -24
    """
    return fmt.emin - fmt.trailing_bits


def _largest(fmt: FloatFormat) -> tuple[int, int]:
    """Return (significand, exponent) of the largest finite number: significand * 2**exponent."""
    trailing = fmt.max_code & ((1 << fmt.trailing_bits) - 1)
    return (1 << fmt.trailing_bits) + trailing, fmt.emax - fmt.trailing_bits


class TermRange(NamedTuple):
    """The possible terms of a sum: the exact products of values of `a` and `b`, or without `b` the values of `a`.

    >>> import floatsim as fs
    >>> products = TermRange(fs.E5M2, fs.E5M2)
    >>> products.precision, products.lowest, products.highest
    (6, -32, 31)
    """

    a: FloatFormat
    b: FloatFormat | None = None

    @property
    def factors(self) -> tuple[FloatFormat, ...]:
        """The formats of the operands."""
        return (self.a,) if self.b is None else (self.a, self.b)

    @property
    def precision(self) -> int:
        """The largest number of significand bits of a term."""
        return sum(factor.precision for factor in self.factors)

    @property
    def lowest(self) -> int:
        """An exponent: every finite term is a multiple of 2**lowest."""
        return sum(quantum(factor) for factor in self.factors)

    @property
    def highest(self) -> int:
        """An exponent: the magnitude of every finite term is below 2**(highest + 1)."""
        return sum(factor.emax + 1 for factor in self.factors) - 1

    @property
    def largest(self) -> tuple[int, int]:
        """The largest finite term as (significand, exponent)."""
        significand, exponent = _largest(self.a)
        if self.b is not None:
            factor, more = _largest(self.b)
            significand, exponent = significand * factor, exponent + more
        return significand, exponent

    @property
    def has_infinity(self) -> bool:
        """Return whether a term can be infinite."""
        return any(factor.has_infinity for factor in self.factors)

    @property
    def has_nan(self) -> bool:
        """Return whether a term can be NaN: a NaN operand, or infinity times zero."""
        return any(factor.has_nan for factor in self.factors)

    @property
    def has_negative_zero(self) -> bool:
        """Return whether a term can be -0. A product can, even of formats without it: -1 * 0."""
        return self.b is not None or self.a.has_signed_zero


@lru_cache(maxsize=4096)
def contains(outer: FloatFormat, inner: FloatFormat | TermRange, specials: bool = True) -> bool:
    """Return whether every value of `inner` is a value of `outer`.

    Parameters
    ----------
    outer : FloatFormat
    inner : FloatFormat or TermRange
        A format, or the terms of a sum.
    specials : bool
        Whether infinities, NaN and -0 are compared, too. Otherwise only finite magnitudes are compared.

    Examples
    --------
    >>> import floatsim as fs
    >>> contains(fs.FP32, fs.TF32), contains(fs.FP16, fs.BF16), contains(fs.FP32, TermRange(fs.FP16, fs.FP16))
    (True, False, True)
    >>> contains(fs.E4M3, fs.E4M3IEEE), contains(fs.E4M3, fs.E4M3IEEE, specials=False)
    (False, True)
    """
    terms = TermRange(inner) if isinstance(inner, FloatFormat) else inner
    if terms.precision > outer.precision or terms.lowest < quantum(outer):
        return False
    (m, e), (most, limit) = terms.largest, _largest(outer)
    low = min(e, limit)
    if m << e - low > most << limit - low:
        return False
    if not specials:
        return True
    return (
        outer.has_infinity >= terms.has_infinity
        and outer.has_nan >= terms.has_nan
        and outer.has_signed_zero >= terms.has_negative_zero
        and outer.signed >= any(factor.signed for factor in terms.factors)
    )
