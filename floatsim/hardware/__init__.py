"""The same operations on real silicon, through CuPy: run them, compare them bit by bit, probe, capture, time a card.

`backend="hardware"`, as a keyword or in `fs.context`, carries convert, quantize, add, subtract, multiply, divide, sqrt,
fma, matmul, dot and sum out on the GPU. `instructions` and `scalars` are the tables of what can be issued, `device` a
card that issues it, `fragments` where operands lie, `build` the compiler.

>>> import floatsim as fs
>>> fs.hardware.is_available() in (True, False)
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from floatsim.hardware.about import Info

_HOMES = {
    "about": "Info",
    "comparisons": "compare_dots",
    "cuda": "UnavailableError",
    "device": "Device",
    "doors": "bench capture compare probe",
    "instructions": "Variant find variants",
    "libraries": "library_matmul",
    "probes": "probe_dots",
    "protocol": "Card Dots",
    "rates": "Rate Rates",
    "replay": "check_silicon",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted([*_HOME_OF, "info", "is_available"])  # noqa: PLE0605


def is_available() -> bool:
    """Whether there is a card that CuPy reaches. Never raises; `info` says what is missing.

    >>> import floatsim as fs
    >>> isinstance(fs.hardware.is_available(), bool)
    True
    """
    try:
        importlib.import_module("floatsim.hardware.cuda").Cuda()
    except Exception:  # whatever is wrong with an installation, there is no card
        return False
    return True


def info() -> Info:
    """The card, what drives it, and what it can run.

    Returns
    -------
    Info
        Its fields: card (name, capability, driver, cuda), architecture, compilers, instructions, operations, libraries;
        its text has them all.

    Raises
    ------
    UnavailableError
        Without CuPy or a card; the message says which, and what to do.
    """
    found: Info = importlib.import_module("floatsim.hardware.about").info()
    return found


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
