"""The choice of the runtime: CuPy, or the driver alone where CuPy is not installed."""

from __future__ import annotations

from typing import Any

from floatsim.hardware.compile import cupy_runtime, driver_runtime

__all__ = ["open_runtime", "why_unavailable"]


def open_runtime(number: int = 0) -> Any:
    """Return the GPU of this index, by CuPy if it is installed.

    Raises
    ------
    UnavailableError
        If neither CuPy nor the driver can use the GPU. The message names both.
    """
    try:
        return cupy_runtime.Cuda(number)
    except cupy_runtime.NoCuPyError as missing:
        try:
            return driver_runtime.DriverCuda(number)
        except cupy_runtime.UnavailableError as error:
            raise cupy_runtime.UnavailableError(f"{missing}; without CuPy, {error}") from None


def why_unavailable() -> str | None:
    """Return the reason why no GPU can be used, or None if one can be used.

    >>> from floatsim.hardware import is_available
    >>> (why_unavailable() is None) == is_available()
    True
    """
    try:
        open_runtime()
    except Exception as error:  # any fault of an installation means that no GPU can be used
        return str(error) or type(error).__name__
    return None
