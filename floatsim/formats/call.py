"""The options of one call: keywords and context, resolved."""

from __future__ import annotations

from dataclasses import dataclass

from floatsim.formats.rounding import RoundingAttributes

__all__ = ["CallOptions"]


@dataclass(frozen=True)
class CallOptions:
    """The rounding attributes of one call, its seed and offset, and whether it returns flags."""

    attributes: RoundingAttributes
    seed: int = 0
    offset: int = 0
    return_flags: bool = False
