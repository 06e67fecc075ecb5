"""What a trace is made of: the terms, blocks and sums of one dot product, as exact numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import TypeAlias

from floatsim.accumulation import TensorCore
from floatsim.formats import FloatFormat
from floatsim.reference import Number, decode
from floatsim.tensorcore.instructions import Instruction

__all__ = ["TracedBlock", "TracedDot", "TracedTerm", "Value", "leading_bit", "lowest_bit", "power", "value_of"]

Value: TypeAlias = Fraction | float
"""An exact number; a float where it is an infinity or NaN."""


@dataclass(frozen=True)
class TracedTerm:
    """One term of a block: a product, a scaled group of products, or an accumulator.

    Attributes
    ----------
    name : str
        "a[3]*b[3]", of a group "k = 16 to 31"; "c", "acc" (what the block before gave), "sum" (of an instruction that
        adds c in the end).
    k : int or None
        Of the product; of a group's first. None for accumulators.
    factors : (float, float) or None
        a[k] and b[k] as the instruction reads them.
    value : Fraction or float
        Exact, block scales included; a float where it is infinite or NaN.
    exponent : int or None
        By which it is aligned; None for zeros and what is not finite.
    shift : int or None
        How far it lies below the largest exponent; None where nothing is aligned.
    kept, lost : Fraction or None
        The part that entered the sum, and the rest; None where nothing is aligned.
    bits_lost : int
        How many bits were cut off, from the cut down to the last bit that is set.
    quantum : int or None
        The exponent of the last bit that could be kept; None where nothing is aligned.
    scales : (float, float) or None
        The scales of a and of b that `value` includes; None where there are none.
    """

    name: str
    k: int | None
    factors: tuple[float, float] | None
    value: Value
    exponent: int | None
    shift: int | None = None
    kept: Fraction | None = None
    lost: Fraction | None = None
    bits_lost: int = 0
    quantum: int | None = None
    scales: tuple[float, float] | None = None

    @property
    def unscaled(self) -> Value | None:
        """The product, or the sum of a group's products, before its scales; None where these are zero or no numbers."""
        if self.scales is None or isinstance(self.value, float):
            return self.value
        by = [Fraction(x) for x in self.scales if isfinite(x) and x]
        return self.value / (by[0] * by[1]) if len(by) == 2 else None

    @property
    def lowest(self) -> int | None:
        """The exponent of its last bit that is set; None for zeros and what is not finite."""
        return lowest_bit(self.value)


@dataclass(frozen=True)
class TracedBlock:
    """One rounding of D: terms that were added at once, and what became of their sum.

    Attributes
    ----------
    instruction, number : int
        Which instruction of the chain, and which rounding within it, from 0.
    ks : sequence of int
        The k that it took, those beyond the operands' end among them.
    terms : tuple of TracedTerm
        Those of the operands' own k, then the accumulators.
    padding : int
        Products of zeros that fill the instruction up.
    exponent : int or None
        The common exponent; None where nothing is aligned.
    fraction_bits : int or None
        Kept below it, of c at least.
    total : Fraction or None
        The exact sum of what was kept. None for infinities and NaN, and where no single sum is rounded.
    normalised : int or None
        The exponent of the sum's leading bit.
    code : int
        D, in the trace's format.
    value : Fraction or float
        Its number.
    rounded_off : Fraction or None
        What the rounding of the sum took away: value - total is its negative.
    partials : tuple of (range, Fraction or float)
        Sums of products that were rounded before c came: which k, and what they came to. Of CDNA 2 alone.
    """

    instruction: int
    number: int
    ks: Sequence[int]
    terms: tuple[TracedTerm, ...]
    padding: int
    exponent: int | None
    fraction_bits: int | None
    total: Fraction | None
    normalised: int | None
    code: int
    value: Value
    rounded_off: Fraction | None
    partials: tuple[tuple[range, Value], ...] = ()

    @property
    def quantum(self) -> int | None:
        """The exponent of the last bit that is kept of c; None where nothing is aligned."""
        if self.exponent is None or self.fraction_bits is None:
            return None
        return self.exponent - self.fraction_bits


@dataclass(frozen=True)
class TracedDot:
    """A dot product in blocks: `analysis.trace.trace.Trace` without its looks, and says what the fields are."""

    how: TensorCore
    instruction: Instruction
    formats: tuple[FloatFormat, FloatFormat]
    length: int
    c: Value
    blocks: tuple[TracedBlock, ...]
    code: int
    exact: Fraction | None

    @property
    def format(self) -> FloatFormat:
        """The format of D."""
        return self.instruction.output

    @property
    def value(self) -> Value:
        """D as a number: exact, or a float where it is infinite or NaN."""
        return value_of(decode(self.code, self.format))

    @property
    def error(self) -> Fraction | None:
        """value - exact; None where one of the two is no number."""
        return self.value - self.exact if isinstance(self.value, Fraction) and self.exact is not None else None


# -- exact numbers -----------------------------------------------------------------------------------------------------


def value_of(x: Number) -> Value:
    """The number, or a float where it is infinite or NaN."""
    if x.is_nan:
        return float("nan")
    return float("-inf" if x.sign else "inf") if x.is_infinite else x.fraction


def lowest_bit(x: Value) -> int | None:
    """The exponent of the last bit that is set; None for zero and what is not finite."""
    if isinstance(x, float) or not x:
        return None
    if x.denominator > 1:
        return 1 - x.denominator.bit_length()
    return (x.numerator & -x.numerator).bit_length() - 1


def leading_bit(x: Value) -> int | None:
    """The exponent of the first bit; None for zero and what is not finite."""
    if isinstance(x, float) or not x:
        return None
    return abs(x.numerator).bit_length() - x.denominator.bit_length()


def power(n: int) -> Fraction:
    """2**n."""
    return Fraction(2) ** n
