"""The warnings of floatsim, attributed to the user's line."""

from __future__ import annotations

import sys
import warnings

__all__ = ["FloatsimWarning", "caller_level", "warn"]

_PASSED = ("floatsim", "numpy")  # whose frames are not the user's


class FloatsimWarning(UserWarning):
    """A call is valid, but its result is probably not what was intended.

    >>> import floatsim as fs, warnings
    >>> with warnings.catch_warnings(record=True, action="always", category=fs.FloatsimWarning) as caught:
    ...     with fs.context(rounding="stochastic", seed=1):
    ...         x = fs.quantize(1.001, "bf16"), fs.quantize(1.002, "bf16")
    >>> len(caught)
    1
    """


def caller_level() -> int:
    """Return the `stacklevel` with which the calling function warns the nearest frame outside floatsim and NumPy.

    The operators of a FloatArray are methods that NumPy defines.
    """
    level, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED:
        level, frame = level + 1, frame.f_back
    return level + 1


def warn(message: str) -> None:
    """Emit a FloatsimWarning for the user's line that called floatsim."""
    warnings.warn(message, FloatsimWarning, stacklevel=caller_level())
