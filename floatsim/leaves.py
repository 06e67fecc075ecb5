"""What a leaf's terms are, and what a fast kernel for it is: the vocabulary of the modules that choose kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

from floatsim.formats import FloatFormat

__all__ = ["FastLeaf", "Terms", "embeds", "quantum"]


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


class FastLeaf(NamedTuple):
    """A kernel on hardware floats that sums a leaf, the format of its operands and accumulators, and its arguments."""

    carrier: FloatFormat
    kernel: Any
    extra: tuple[Any, ...] = ()
