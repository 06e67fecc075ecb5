"""A warning for operations in threads that start inside an emulation: PyTorch's dispatch modes belong to one thread."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from floatsim._warnings import warn
from floatsim.torch.call import floats_of
from floatsim.torch.table import entry_of

__all__ = ["threads_warn"]


class _Warning(TorchDispatchMode):  # type: ignore[misc]
    """Warns once for the first operation of a thread that an emulation would round."""

    def __init__(self, mode: Any) -> None:
        super().__init__()
        self._mode, self._warns = mode, True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation in PyTorch."""
        if self._warns and self._mode.at_work and floats_of(args):
            entry = entry_of(func)
            if entry.kind not in ("view", "unrounded"):
                self._warns = False
                warn(
                    f"{entry.name} in the thread {threading.current_thread().name!r} is not emulated: ft.emulate holds "
                    "for the thread that enters its block; compute in that thread"
                )
        return func(*args, **(kwargs or {}))


@contextmanager
def threads_warn(mode: Any) -> Iterator[None]:
    """Let threads that start in the block warn if they compute with floating-point tensors."""
    start = threading.Thread.start

    @functools.wraps(start)
    def watched(self: threading.Thread) -> None:
        run = self.run

        def watched_run() -> None:
            with _Warning(mode):
                run()

        self.run = watched_run  # type: ignore[method-assign]
        start(self)

    threading.Thread.start = watched  # type: ignore[method-assign]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]
