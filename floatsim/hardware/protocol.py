"""What a card is known by, and what everything that stands for one can be asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from floatsim.hardware.tables.compute_capability import Capability
from floatsim.hardware.tables.ptx_matrix import Variant

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Card", "Codes", "Dots"]

Codes: TypeAlias = "NDArray[np.unsignedinteger[Any]]"


@dataclass(frozen=True)
class Card:
    """Which card it is, and what drives it: the provenance of every result.

    >>> Card("NVIDIA H100 PCIe", (9, 0), "580.65.06", "13.0").capability
    (9, 0)
    """

    name: str
    capability: Capability
    driver: str
    cuda: str


class Dots(Protocol):
    """Whatever carries out dot products by single instructions: a card, or something that stands in for one."""

    @property
    def card(self) -> Card:
        """Which it is."""

    def can_run(self, variant: Variant) -> bool:
        """Whether it has the instruction."""

    def dots(self, variant: Variant, a: Codes, b: Codes, c: Codes, scales: tuple[Codes, Codes] | None = None) -> Codes:
        """Independent dot products, each by one instruction.

        Parameters
        ----------
        variant : Variant
            The instruction and its formats, from `floatsim.hardware.tables.ptx_matrix`.
        a, b : (n, variant.k)
            Codes, of the formats' code dtypes.
        c : (n,)
            Codes of the output's format.
        scales : ((n, k / every), (n, k / every)), optional
            Codes of the scales of a and of b, for an instruction that takes them.

        Returns
        -------
        (n,) codes of the output's format
            D, with silicon's own NaN.
        """
