"""Work on several threads: independent pieces, with a progress bar for long work, and stopped by Ctrl-C.

The pieces are independent, so neither their size nor the number of threads changes a bit.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

__all__ = ["run"]

T = TypeVar("T")

_SHOW_BEYOND = 2.0  # seconds
_LOOK_AFTER = 0.5  # seconds until the total time is estimated


def _watched() -> bool:
    """Return whether the output is a terminal or a notebook."""
    return "ipykernel" in sys.modules or sys.stderr.isatty()


class _Progress:
    """A progress bar that appears only if the work takes long."""

    def __init__(self, total: int, title: str) -> None:
        self.total, self.title, self.done = total, title, 0
        self.start = time.perf_counter()
        self.watched = _watched()
        self.bar: Any = None

    def show(self) -> None:
        if self.bar is not None:
            self.bar.update(self.done - self.bar.n)
        elif self.watched:
            spent = time.perf_counter() - self.start
            if spent > _LOOK_AFTER and spent * self.total / self.done > _SHOW_BEYOND:
                from tqdm.auto import tqdm

                self.bar = tqdm(total=self.total, initial=self.done, desc=self.title, leave=False)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def run(pieces: Sequence[T], work: Callable[[T], None], threads: int, title: str) -> None:
    """Call `work` on every piece, on several threads. An exception or Ctrl-C stops it after the running pieces."""
    if len(pieces) == 1:
        work(pieces[0])
        return
    progress = _Progress(len(pieces), title)
    try:
        _ThreadPool(pieces, work, progress).run(min(threads, len(pieces)))
    finally:
        progress.close()


class _ThreadPool:
    """A thread pool that includes the calling thread. Each thread takes one piece after another."""

    def __init__(self, pieces: Sequence[Any], work: Callable[[Any], None], progress: _Progress) -> None:
        self._waiting, self._work, self._progress = iter(pieces), work, progress
        self._lock, self._caller = threading.Lock(), threading.current_thread()
        self._failures: list[BaseException] = []

    def run(self, threads: int) -> None:
        others = [threading.Thread(target=self._take_pieces, name=f"floatsim_{n}") for n in range(1, threads)]
        for other in others:
            other.start()
        self._take_pieces()
        for other in others:
            try:
                other.join()
            except KeyboardInterrupt as failure:  # while other threads finish the last pieces
                self._failures.append(failure)
                other.join()
        if self._failures:
            raise self._failures[0]

    def _take_pieces(self) -> None:
        try:
            while not self._failures:
                with self._lock:
                    piece = next(self._waiting, _NOTHING)
                if piece is _NOTHING:
                    return
                self._work(piece)
                with self._lock:
                    self._progress.done += 1
                if threading.current_thread() is self._caller:  # a notebook shows bars of this thread only
                    self._progress.show()
        except BaseException as failure:  # also Ctrl-C, which only the calling thread receives
            self._failures.append(failure)


_NOTHING = object()
