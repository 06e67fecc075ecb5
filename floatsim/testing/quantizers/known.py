"""Published quantizers, as rows of the properties that identify them. `docs/checkpoints.md` has the versions."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["KNOWN", "Known"]


class Known(NamedTuple):
    """A published quantizer: the values of its properties. A property may have several values."""

    name: str
    properties: dict[str, tuple[str, ...]]

    def matches(self, row: Any) -> bool:
        """Return whether a row has these properties."""
        return all(getattr(row, key) in values for key, values in self.properties.items())


KNOWN: tuple[Known, ...] = ()
