"""Cached hashes of frozen dataclasses, and caches with keys compared by identity."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

__all__ = ["IdentityCache", "hashed_once"]

T = TypeVar("T")


def hashed_once(cls: type[T]) -> type[T]:
    """Decorate a frozen dataclass: an object computes its hash once, and does not pickle it.

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
        # fields only: hashes differ by process
        return {f.name: getattr(self, f.name) for f in fields(self)}

    changed: Any = cls
    changed.__hash__, changed.__getstate__ = hash_of, state_of
    return cls


class IdentityCache:
    """A bounded cache whose keys are tuples of objects, compared by identity.

    Equality is the wrong comparison for some keys (0.0 == -0.0, 1 == True) and a slow one for others: every look-up
    would compute hashes in Python. The cache keeps its key objects, so that no other object gets one of their
    identities. An equal but different object is not found; intern texts (`sys.intern`) before they are part of a key.

    >>> cache = IdentityCache()
    >>> cache.keep(("fp16", None), 7)
    >>> cache.find(("fp16", None)), cache.find(("fp32", None))
    (7, None)
    """

    def __init__(self, size: int = 512) -> None:
        self._size = size
        self._entries: dict[tuple[int, ...], tuple[Any, tuple[Any, ...]]] = {}

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()

    def find(self, objects: tuple[Any, ...]) -> Any:
        """Return the stored value for these objects, or None."""
        entry = self._entries.get(tuple(map(id, objects)))
        return None if entry is None else entry[0]

    def keep(self, objects: tuple[Any, ...], value: Any) -> None:
        """Keep a value. A full cache is emptied first."""
        if len(self._entries) >= self._size:
            self._entries.clear()
        self._entries[tuple(map(id, objects))] = value, objects
