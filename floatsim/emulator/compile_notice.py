"""Lines on stderr when the compilation of kernels takes long.

A kernel that takes long has a line of its own if somebody watches. A task that compiles many kernels, such as the first
step of a model, has one line in all, also in a log file.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from floatsim_kernels.runtime.numba_compat import on_compilation

__all__ = ["announce_compilation", "one_line", "watched"]

_AFTER = 1.0  # seconds of compilation without a line


def _is_wanted() -> bool:
    return os.environ.get("FLOATSIM_PROGRESS") != "0"


def watched() -> bool:
    """Return whether the output is a terminal or a notebook, and FLOATSIM_PROGRESS is not 0."""
    return _is_wanted() and ("ipykernel" in sys.modules or sys.stderr.isatty())


class _Line:
    """A line that is printed once, after some seconds of compilation in all."""

    def __init__(self, text: str) -> None:
        self._text, self._left, self._is_printed = text, 2 * _AFTER, False
        self._start = 0.0
        self._timer: threading.Timer | None = None

    def start(self) -> None:
        """Print the line if the compilation that starts lasts longer than the seconds that are left."""
        if self._is_printed or not _is_wanted():
            return
        self._start = time.monotonic()
        self._timer = threading.Timer(self._left, self._print)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """Subtract the time of a compilation that ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left = max(0.0, self._left - (time.monotonic() - self._start))

    def _print(self) -> None:
        self._is_printed = True
        print(self._text, file=sys.stderr, flush=True)


_LINES: dict[str, _Line] = {}
"""The lines of this process by their text."""


@contextmanager
def one_line(text: str) -> Iterator[None]:
    """Print a line on stderr, once in a process, if the compilations in a block take more than two seconds in all.

    It is printed where nobody watches, too. FLOATSIM_PROGRESS=0 turns it off.

    >>> with one_line("compiling"):
    ...     pass
    """
    outer = _NOTICES.line
    _NOTICES.line = _LINES.setdefault(text, _Line(text))
    try:
        yield
    finally:
        _NOTICES.line = outer


class _Notices(threading.local):
    """The compilations of a thread. A kernel compiles the functions that it calls: only the outermost counts."""

    def __init__(self) -> None:
        self._depth = 0
        self._timer: threading.Timer | None = None
        self.line: _Line | None = None

    def start(self, function: Any) -> None:
        """Print a line after a while if the compilation of a kernel starts."""
        self._depth += 1
        module = function.__module__ or ""  # None for a function made by exec, as sympy.lambdify makes them
        if self._depth > 1 or not module.startswith("floatsim_kernels."):
            return
        if self.line is not None:
            self.line.start()
        if watched():
            name = f"{function.__module__}.{function.__qualname__}"
            name = name.removeprefix("floatsim_kernels.").replace(".<locals>", "")
            name = re.sub("_[0-9a-f]{16}$", "", name)  # what numba_compat.name_by_closure added
            self._timer = threading.Timer(_AFTER, _show, [name])
            self._timer.daemon = True
            self._timer.start()

    def end(self) -> None:
        """Print no line for a compilation that ends."""
        self._depth -= 1
        if self._depth > 0:
            return
        if self.line is not None:
            self.line.end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_NOTICES = _Notices()


def _show(name: str) -> None:
    print(f"floatsim: compiling the kernel {name} (once; `floatsim warmup` compiles the common ones)", file=sys.stderr)


def announce_compilation() -> None:
    """From now on, print a line on stderr if a kernel takes more than a second to compile."""
    on_compilation(_NOTICES.start, _NOTICES.end)
