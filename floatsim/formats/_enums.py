"""Enums whose members are shown by name."""

from __future__ import annotations

import enum

__all__ = ["NamedEnum"]


class NamedEnum(enum.Enum):
    """An enum whose members are shown as `Rounding.TO_ODD`, in signatures and in the repr of dataclasses too."""

    __repr__ = enum.Enum.__str__
