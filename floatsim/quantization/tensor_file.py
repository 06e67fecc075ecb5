"""What all readers of checkpoint files share: a mapping from the names of tensors to the tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from floatsim.formats._validation import near_or_first

__all__ = ["TensorFile", "check_regular"]

T = TypeVar("T")


def check_regular(path: Path) -> None:
    """Raise unless a path is a regular file: a pipe or a device may never end.

    Raises
    ------
    ValueError
        If it is another kind of file.
    FileNotFoundError
        If it is none.
    """
    path.stat()
    if not path.is_file():
        raise ValueError(f"{path} is not a regular file")


class TensorFile(Mapping[str, T]):
    """A file as a mapping. A reader sets `path` and `_tensors`."""

    path: Path
    _tensors: dict[str, T]

    def __getitem__(self, name: str) -> T:
        if name not in self._tensors:
            raise KeyError(f"{self.path} has no tensor {name!r:.80}; {near_or_first(name, self)}")
        return self._tensors[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, {len(self)} tensors)"
