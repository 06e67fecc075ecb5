"""The options of one call: keywords and context, resolved."""

from __future__ import annotations

from dataclasses import dataclass

from floatsim.formats.rounding import Attributes

__all__ = ["Manner"]


@dataclass(frozen=True)
class Manner:
    """The rounding attributes of one call, its seed and offset, and whether it returns flags."""

    attributes: Attributes
    seed: int = 0
    offset: int = 0
    return_flags: bool = False
