"""The data of a trace: the terms, blocks and sums of one dot product, as exact numbers."""

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
"""An exact number, or a float for infinities and NaN."""


@dataclass(frozen=True)
class TracedTerm:
    """One term of a block: a product, a scaled group of products, or an accumulator.

    Attributes
    ----------
    name : str
        "a[3]*b[3]" for a product, "k = 16 to 31" for a group, "c" for the accumulator, "acc" for the D of the block
        before, "sum" for the sum to which an instruction adds c last.
    k : int or None
        The index of the product, or of the group's first product. None for accumulators.
    factors : (float, float) or None
        a[k] and b[k] as the instruction reads them.
    value : Fraction or float
        The exact value, block scales included; a float for infinities and NaN.
    exponent : int or None
        The exponent by which the term is aligned; None for zeros, infinities and NaN.
    shift : int or None
        The distance of `exponent` below the largest exponent; None if the block aligns nothing.
    kept, lost : Fraction or None
        The part that enters the sum, and the discarded part; None if the block aligns nothing.
    bits_lost : int
        The number of discarded bits, down to the last bit that is set.
    quantum : int or None
        The exponent of the last bit that can be kept; None if the block aligns nothing.
    scales : (float, float) or None
        The scales of a and of b that `value` includes; None without scales.

    Examples
    --------
    >>> import floatsim as fs
    >>> x, y = fs.array([128.0, 128.0, 1.5], "e4m3"), fs.array([128.0, -128.0, 1.25], "e4m3")
    >>> found = fs.trace(x, y, accumulate="hopper")
    >>> term = found.blocks[0].terms[2]
    >>> term.name, term.value, term.shift
    ('a[2]*b[2]', Fraction(15, 8), 14)
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
        """The product, or the sum of a group's products, before scaling; None if a scale is zero or not finite."""
        if self.scales is None or isinstance(self.value, float):
            return self.value
        by = [Fraction(x) for x in self.scales if isfinite(x) and x]
        return self.value / (by[0] * by[1]) if len(by) == 2 else None

    @property
    def lowest(self) -> int | None:
        """The exponent of the last bit that is set; None for zeros, infinities and NaN."""
        return lowest_bit(self.value)


@dataclass(frozen=True)
class TracedBlock:
    """One rounding of D: the terms that are added at once, and their sum.

    Attributes
    ----------
    instruction, number : int
        The index of the instruction in the chain, and of the rounding within it, both from 0.
    ks : sequence of int
        The indices k of the block, including those beyond the operands' end.
    terms : tuple of TracedTerm
        The terms of the operands' k, then the accumulators.
    padding : int
        The number of products of zeros that fill the instruction up.
    exponent : int or None
        The largest exponent, to which the terms are aligned; None if the block aligns nothing.
    fraction_bits : int or None
        The number of bits kept below `exponent`; if terms keep different numbers, the number for c.
    total : Fraction or None
        The exact sum of the kept parts. None for infinities and NaN, and if no single sum is rounded.
    normalised : int or None
        The exponent of the sum's leading bit.
    code : int
        The code of D in the trace's format.
    value : Fraction or float
        The value of D.
    rounded_off : Fraction or None
        total - value: the part that the rounding of the sum discards.
    partials : tuple of (range, Fraction or float)
        The sums of products that are rounded before c is added: their k and their values. Only on CDNA 2.

    Examples
    --------
    >>> import floatsim as fs
    >>> x, y = fs.array([128.0, 128.0, 1.5], "e4m3"), fs.array([128.0, -128.0, 1.25], "e4m3")
    >>> found = fs.trace(x, y, accumulate="hopper")
    >>> block = found.blocks[0]
    >>> block.exponent, block.fraction_bits, block.padding
    (14, 13, 29)
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
        """The exponent of the last bit that is kept of c; None if the block aligns nothing."""
        if self.exponent is None or self.fraction_bits is None:
            return None
        return self.exponent - self.fraction_bits


@dataclass(frozen=True)
class TracedDot:
    """The data of a dot product in blocks. `Trace`, a subclass with text and pictures, describes the fields."""

    accumulation: TensorCore
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
        """D as an exact number, or a float for infinities and NaN."""
        return value_of(decode(self.code, self.format))

    @property
    def error(self) -> Fraction | None:
        """value - exact; None if one of them is infinite or NaN."""
        return self.value - self.exact if isinstance(self.value, Fraction) and self.exact is not None else None


# -- exact numbers -----------------------------------------------------------------------------------------------------


def value_of(x: Number) -> Value:
    """Return the number as a Fraction, or a float for infinities and NaN."""
    if x.is_nan:
        return float("nan")
    return float("-inf" if x.sign else "inf") if x.is_infinite else x.fraction


def lowest_bit(x: Value) -> int | None:
    """Return the exponent of the last bit that is set; None for zero, infinities and NaN."""
    if isinstance(x, float) or not x:
        return None
    if x.denominator > 1:
        return 1 - x.denominator.bit_length()
    return (x.numerator & -x.numerator).bit_length() - 1


def leading_bit(x: Value) -> int | None:
    """Return the exponent of the leading bit; None for zero, infinities and NaN."""
    if isinstance(x, float) or not x:
        return None
    return abs(x.numerator).bit_length() - x.denominator.bit_length()


def power(n: int) -> Fraction:
    """Return 2**n as a Fraction."""
    return Fraction(2) ** n
