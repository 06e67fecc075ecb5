"""The backends that carry operations out: modules with the functions of `floatsim.emulator.backend`."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

from floatsim.arrays.call.options import as_backend, get_context

__all__ = ["current", "emulator"]

_MODULES = {
    "emulator": "floatsim.emulator.backend",
    "hardware": "floatsim.hardware.backend",
    "native-cpu": "floatsim.hardware.cpu.backend",
}


@functools.cache
def _load(name: str) -> ModuleType:
    return importlib.import_module(_MODULES[name])


def current(name: str | None = None) -> ModuleType:
    """Return the backend of this name, by default the context's."""
    return _load(get_context().backend if name is None else as_backend(name, "backend"))


def emulator() -> ModuleType:
    """Return the emulator, for operations that no other backend has: decoding, comparison, classification."""
    return _load("emulator")
