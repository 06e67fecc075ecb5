"""How one call rounds: keywords and context, resolved."""

from __future__ import annotations

from dataclasses import dataclass

from floatsim.formats.rounding import Attributes

__all__ = ["Manner"]


@dataclass(frozen=True)
class Manner:
    """How one call rounds: keywords and context, resolved."""

    attributes: Attributes
    seed: int = 0
    offset: int = 0
    return_flags: bool = False
