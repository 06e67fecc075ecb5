"""The input of a plan: an operation, the formats, the rounding, this processor, and a class of sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from floatsim.emulator.elementwise.operations import OPERATIONS, Operation
from floatsim.emulator.planning import CPU
from floatsim.formats import FloatFormat
from floatsim.formats._hashing import hashed_once
from floatsim.formats.rounding import Overflow, Rounding, RoundingAttributes
from floatsim.formats.value_sets import contains

__all__ = ["LONG", "SIZES", "TABLE_SHARE", "Case"]

TABLE_SHARE = 4
"""A table of n entries is made for calls of at least n / 4 elements."""
LONG = 1 << 12
"""Elements from which event kernels are worth their compilation. The integer kernels take 0.1 ms for so many."""
SIZES = (0, (1 << 8) // TABLE_SHARE, LONG, (1 << 16) // TABLE_SHARE)
"""The classes of sizes, by their least number of elements: few, a table of 8 bits, long, a table of 16 bits."""

_EXACT = RoundingAttributes()


@hashed_once
@dataclass(frozen=True)
class Case:
    """An operation on codes of some formats.

    >>> import floatsim as fs
    >>> from floatsim.emulator.planning import processor
    >>> print(Case("add", (fs.FP16, fs.FP16), fs.FP16, RoundingAttributes(), processor(True)))
    add of fp16 x fp16 to fp16
    """

    name: str
    sources: tuple[FloatFormat, ...]
    fmt: FloatFormat
    """The format to which results are rounded."""
    attributes: RoundingAttributes
    cpu: CPU
    events: bool = False
    """Whether the call needs the events of each element."""
    size: int = 0
    """The class of the number of elements: the largest of `SIZES` that it reaches."""

    @cached_property
    def operation(self) -> Operation:
        """The row of the operation in the table."""
        return OPERATIONS[self.name]

    @cached_property
    def result(self) -> FloatFormat:
        """The format of the results' codes: that of the operand for `quantize`."""
        return self.sources[0] if self.name == "quantize" else self.fmt

    @cached_property
    def draws(self) -> bool:
        """Return whether the rounding is stochastic."""
        return self.attributes.rounding is Rounding.STOCHASTIC

    @property
    def flushes(self) -> bool:
        """Return whether subnormal numbers are read as zeros, or flushed."""
        return self.attributes.daz or self.attributes.ftz

    @property
    def is_default(self) -> bool:
        """Return whether the attributes are those of the processor's arithmetic: IEEE 754's defaults."""
        nearest = self.attributes.rounding is Rounding.TIES_TO_EVEN
        return nearest and self.attributes.overflow is Overflow.INFINITY and not self.flushes

    @property
    def keeps_values(self) -> bool:
        """Return whether a conversion changes no value, infinity or zero."""
        (source,) = self.sources
        saturates = self.attributes.overflow is Overflow.SATURATE_FINITE and source.has_infinity
        return not (self.flushes or saturates) and contains(self.fmt, source)

    def conversion(
        self, source: FloatFormat, fmt: FloatFormat, attributes: RoundingAttributes = _EXACT, events: bool = False
    ) -> Case:
        """Return the case of a conversion that is a part of this one; without attributes it is exact."""
        return Case("convert", (source,), fmt, attributes, self.cpu, events, self.size)

    def mixed(self) -> str | None:
        """Return why kernels for operands of the result's format are not for the case, or None."""
        if all(source == self.fmt for source in self.sources):
            return None
        return f"the operands are not all {self.fmt.name}, as the result"

    def __str__(self) -> str:
        return f"{self.name} of {' x '.join(source.name.lower() for source in self.sources)} to {self.fmt.name.lower()}"
