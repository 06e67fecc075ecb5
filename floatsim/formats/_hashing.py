"""Hashes of frozen dataclasses that are keys of tables wherever an operation starts."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

__all__ = ["hashed_once"]

T = TypeVar("T")


def hashed_once(cls: type[T]) -> type[T]:
    """Decorate a frozen dataclass: an object computes its hash once, and does not take it into another process.

    >>> from dataclasses import dataclass
    >>> @hashed_once
    ... @dataclass(frozen=True)
    ... class Point:
    ...     x: int
    >>> hash(Point(3)) == hash(Point(3)), Point(3).__getstate__()
    (True, {'x': 3})
    """
    compute: Any = cls.__hash__

    def hash_of(self: Any) -> int:
        found: int | None = self.__dict__.get("_hash")
        if found is None:
            found = self.__dict__["_hash"] = compute(self)
        return found

    def state_of(self: Any) -> dict[str, Any]:
        # nothing that is derived: hashes differ by process
        return {f.name: getattr(self, f.name) for f in fields(self)}

    changed: Any = cls
    changed.__hash__, changed.__getstate__ = hash_of, state_of
    return cls
