"""Machine code with its compiler, and the cache of machine code on disk.

A file of the cache is found by the source, the target, the definitions and the options. Its name ends with the
compiler. A machine without a compiler can therefore use a cache that another machine has filled.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CachedProgram", "Cubin"]


@dataclass(frozen=True)
class Cubin:
    """Machine code, and the compiler that produced it.

    Attributes
    ----------
    code : bytes
        The contents of a cubin file.
    compiler : str
        The name and version of the compiler, as "NVRTC 13.0".

    >>> Cubin(b"", "NVRTC 13.0").sha256[:8]
    'e3b0c442'
    """

    code: bytes
    compiler: str

    @property
    def sha256(self) -> str:
        """The SHA-256 of the machine code in hexadecimal digits."""
        return hashlib.sha256(self.code).hexdigest()


@dataclass(frozen=True)
class CachedProgram:
    """The files of one program and target in the cache, one for each compiler.

    Parameters
    ----------
    name : str
        The start of the file names: the source and the target.
    key : tuple of str
        All that decides the machine code, except the compiler.
    """

    name: str
    key: tuple[str, ...]

    @property
    def _stem(self) -> str:
        return f"{self.name}-{hashlib.sha256(chr(0).join(self.key).encode()).hexdigest()[:32]}-"

    def read(self, compiler: str) -> Cubin | None:
        """Return the machine code of a compiler, or None."""
        try:
            return Cubin(self._path(compiler).read_bytes(), compiler)
        except OSError:
            return None

    def newest(self, newest: int | None, oldest: tuple[int, int]) -> Cubin | None:
        """Return the machine code of the newest compiler, or None.

        Compilers newer than the major CUDA version `newest`, or older than `oldest`, are excluded. Of two compilers of
        one version, NVRTC is used.
        """
        usable: dict[tuple[tuple[int, int], bool], str] = {}
        for path in _folder().glob(f"{self._stem}*.cubin"):
            compiler = path.stem.removeprefix(self._stem).replace("_", " ")
            found = re.search(r" (\d+)\.(\d+)$", compiler)
            version = (int(found[1]), int(found[2])) if found else (0, 0)
            if found and version >= oldest and (newest is None or version[0] <= newest):
                usable[version, compiler.startswith("NVRTC")] = compiler
        return self.read(usable[max(usable)]) if usable else None

    def write(self, cubin: Cubin) -> None:
        """Write a file atomically, because other processes may write the same one. Without access, skip it."""
        path = self._path(cubin.compiler)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
                file.write(cubin.code)
            Path(file.name).replace(path)
        except OSError:
            return

    def _path(self, compiler: str) -> Path:
        return _folder() / f"{self._stem}{compiler.replace(' ', '_')}.cubin"


def _folder() -> Path:
    home = os.environ.get("FLOATSIM_CACHE") or Path(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "floatsim"
    )
    return Path(home) / "cuda"
