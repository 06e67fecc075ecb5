"""What a leaf's terms are, and what a fast kernel for it is: the vocabulary of the modules that choose kernels."""

from __future__ import annotations

from typing import NamedTuple

from floatsim.formats.format import FloatFormat

__all__ = ["Terms", "embeds", "holds", "quantum"]


def quantum(fmt: FloatFormat) -> int:
    """Exponent of the quantum of the subnormals."""
    return fmt.emin - fmt.trailing_bits


def embeds(fmt: FloatFormat, carrier: FloatFormat) -> bool:
    """Whether every finite value of a format is one of the carrier's."""
    return fmt.precision <= carrier.precision and quantum(fmt) >= quantum(carrier) and fmt.emax <= carrier.emax


class Terms(NamedTuple):
    """The exact terms of a sum: products of a format by another, or values of one."""

    a: FloatFormat
    b: FloatFormat | None = None

    @property
    def precision(self) -> int:
        """How many bits a term has at most."""
        return self.a.precision + (self.b.precision if self.b else 0)

    @property
    def lowest(self) -> int:
        """Every term is a multiple of 2**lowest."""
        return quantum(self.a) + (quantum(self.b) if self.b else 0)

    @property
    def highest(self) -> int:
        """Every finite term is below 2**(highest + 1)."""
        return self.a.emax + (self.b.emax + 1 if self.b else 0)


def holds(carrier: FloatFormat, fmt: FloatFormat) -> bool:
    """Whether every value of `fmt`, its specials included, is a value of `carrier`."""
    return (
        carrier.precision >= fmt.precision
        and carrier.emin - carrier.trailing_bits <= fmt.emin - fmt.trailing_bits
        and carrier.max >= fmt.max
        and carrier.has_infinity >= fmt.has_infinity
        and carrier.has_nan >= fmt.has_nan
        and carrier.has_signed_zero >= fmt.has_signed_zero
        and carrier.signed >= fmt.signed
    )
