"""A line on stderr when the compilation of a kernel takes long and somebody watches."""

from __future__ import annotations

import os
import re
import sys
import threading
from typing import Any

from floatsim_kernels.runtime.numba_compat import on_compilation

__all__ = ["announce_compilation", "watched"]

_AFTER = 1.0  # seconds of compilation without a line


def watched() -> bool:
    """Return whether the output is a terminal or a notebook, and FLOATSIM_PROGRESS is not 0."""
    if os.environ.get("FLOATSIM_PROGRESS") == "0":
        return False
    return "ipykernel" in sys.modules or sys.stderr.isatty()


class _Notices(threading.local):
    """The compilations of a thread. A kernel compiles the functions that it calls: only the outermost counts."""

    def __init__(self) -> None:
        self._depth = 0
        self._timer: threading.Timer | None = None

    def start(self, function: Any) -> None:
        """Print a line after a while if the compilation of a kernel starts."""
        self._depth += 1
        module = function.__module__ or ""  # None for a function made by exec, as sympy.lambdify makes them
        if self._depth == 1 and module.startswith("floatsim_kernels.") and watched():
            name = f"{function.__module__}.{function.__qualname__}"
            name = name.removeprefix("floatsim_kernels.").replace(".<locals>", "")
            name = re.sub("_[0-9a-f]{16}$", "", name)  # what numba_compat.name_by_closure added
            self._timer = threading.Timer(_AFTER, _show, [name])
            self._timer.daemon = True
            self._timer.start()

    def end(self) -> None:
        """Print no line for a compilation that ends."""
        self._depth -= 1
        if self._depth == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _show(name: str) -> None:
    print(f"floatsim: compiling the kernel {name} (once; `floatsim warmup` compiles the common ones)", file=sys.stderr)


def announce_compilation() -> None:
    """From now on, print a line on stderr if a kernel takes more than a second to compile."""
    notices = _Notices()
    on_compilation(notices.start, notices.end)
