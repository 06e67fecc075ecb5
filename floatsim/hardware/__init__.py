"""The same operations on real silicon, through CuPy: run them, compare them bit by bit, probe, capture, time a card.

`backend="hardware"`, as a keyword or in `fs.context`, carries convert, quantize, add, subtract, multiply, divide, sqrt,
fma, matmul, dot and sum out on the GPU. `tables` has what can be issued and where operands lie, `device` a card that
issues it, `compile` the compiler.

>>> import floatsim as fs
>>> fs.hardware.is_available() in (True, False)
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from floatsim._lazy import lazy_exports

if TYPE_CHECKING:
    from floatsim.hardware.device_info import Info

_HOMES = {
    ".device_info": "Info",
    ".comparison": "compare_dots",
    ".compile.cupy_runtime": "UnavailableError",
    ".device": "Device",
    ".api": "bench capture compare probe",
    ".tables.ptx_matrix": "Variant find variants",
    ".vendor_gemm": "library_matmul",
    ".probing.probe": "probe_dots",
    ".protocol": "Card Dots",
    ".throughput": "Rate Rates",
    ".captures.replay": "check_silicon",
}
__getattr__, __dir__, _lazy_names = lazy_exports(__name__, _HOMES)
__all__ = sorted([*_lazy_names, "info", "is_available"])  # noqa: PLE0605


def is_available() -> bool:
    """Whether there is a card that CuPy reaches. Never raises; `info` says what is missing.

    >>> import floatsim as fs
    >>> isinstance(fs.hardware.is_available(), bool)
    True
    """
    try:
        importlib.import_module("floatsim.hardware.compile.cupy_runtime").Cuda()
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
    found: Info = importlib.import_module("floatsim.hardware.device_info").info()
    return found
