"""Public names of a package that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = ["lazy_exports", "plot_function"]


def lazy_exports(
    package: str, homes: dict[str, str], modules: str = "", optional: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and the sorted public names of a package.

    A public name may be that of the module that defines it: `fs.operators.softmax` is the function. The import system
    sets each imported module as an attribute of its package, which the package ignores for these names.

    `dir` lists the public names and the dunder names. A public function or constructor names the nearest keyword for an
    unknown one.

    Parameters
    ----------
    package : str
        The package's `__name__`.
    homes : dict
        Module, relative to the package (".linalg"), to the names that it defines, separated by spaces.
    modules : str
        Submodules that are public names themselves, separated by spaces.
    optional : str
        Submodules that need a library of the same name, separated by spaces. They are attributes of the package, and
        `dir` lists them where the library is installed. `import *` leaves them out.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}
    submodules = modules.split()
    public = sorted([*home_of, *submodules])

    class Package(ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:
            if name not in home_of or not isinstance(value, ModuleType):
                super().__setattr__(name, value)

    sys.modules[package].__class__ = Package

    def get(name: str) -> Any:
        if name in home_of:
            home = importlib.import_module(home_of[name], package)
            value = getattr(home, name)
            if name not in _MADE_OFTEN:
                hinted = importlib.import_module("floatsim.formats._validation").with_keyword_hints(value)
                if hinted is not value:  # pickle finds a function by its module and name
                    vars(home)[name] = vars(sys.modules[value.__module__])[name] = value = hinted
            vars(sys.modules[package])[name] = value
            return value
        if name in submodules or name in optional.split():
            return importlib.import_module(f".{name}", package)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        dunder = [name for name in vars(sys.modules[package]) if name.startswith("__")]
        return sorted({*dunder, *public, *(name for name in optional.split() if find_spec(name) is not None)})

    return get, names, public


_MADE_OFTEN = {"Context", "FloatArray"}
"""Classes whose constructor gives no hints: every call makes one."""


def plot_function(module: str, name: str) -> Any:
    """Return a function of a module of `floatsim.plot`: for `.plot()` methods of packages that may not import it."""
    return getattr(importlib.import_module(f"floatsim.plot.{module}"), name)
