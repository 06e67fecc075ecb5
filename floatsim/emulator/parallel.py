"""Work on several threads: independent pieces, with a progress bar for long work, and stopped by Ctrl-C.

The pieces are independent, so neither their size nor the number of threads changes a bit.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from floatsim_kernels.runtime import cpu

from floatsim.emulator.compile_notice import watched
from floatsim.formats._validation import as_index

__all__ = ["call", "get_num_threads", "run", "run_rows", "set_num_threads"]

T = TypeVar("T")

_SHOW_BEYOND = 2.0  # seconds
_LOOK_AFTER = 0.5  # seconds until the total time is estimated
_LOOK_EVERY = 0.1  # seconds between two looks at the progress


class _Progress:
    """A progress bar that appears only if the work takes long."""

    def __init__(self, total: int, title: str) -> None:
        self.total, self.title, self.done = total, title, 0
        self.start = time.perf_counter()
        self.watched = watched()
        self.bar: Any = None

    def show(self) -> None:
        if self.bar is not None:
            self.bar.update(self.done - self.bar.n)
        elif self.watched and self.done:
            spent = time.perf_counter() - self.start
            if spent > _LOOK_AFTER and spent * self.total / self.done > _SHOW_BEYOND:
                from tqdm.auto import tqdm

                self.bar = tqdm(total=self.total, initial=self.done, desc=self.title, leave=False)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def run(pieces: Sequence[T], work: Callable[[T], None], threads: int, title: str, *, leave: bool = False) -> None:
    """Call `work` on every piece, on several threads. An exception or Ctrl-C stops it after the running pieces.

    With `leave` the calling thread only waits, and Ctrl-C returns at once: the running pieces end in the background. So
    they may write only to memory that nobody else reads.
    """
    if len(pieces) == 1 and not leave:
        work(pieces[0])
        return
    progress = _Progress(len(pieces), title)
    try:
        _ThreadPool(pieces, work, progress).run(min(threads, len(pieces)), leave)
    finally:
        progress.close()


def run_rows(rows: int, step: int, work: Callable[[slice], None], threads: int, title: str) -> None:
    """Call `work` on slices of `step` rows, on several threads, as `run` does. Without rows nothing is called."""
    pieces = [slice(start, min(rows, start + step)) for start in range(0, rows, step)]
    if pieces:
        run(pieces, work, threads, title)


class _ThreadPool:
    """A thread pool. Each thread takes one piece after another."""

    def __init__(self, pieces: Sequence[Any], work: Callable[[Any], None], progress: _Progress) -> None:
        self._waiting, self._work, self._progress = iter(pieces), work, progress
        self._lock, self._caller = threading.Lock(), threading.current_thread()
        self._failures: list[BaseException] = []

    def run(self, threads: int, leave: bool) -> None:
        """Finish all pieces, in the calling thread too unless it may leave."""
        names = range(0 if leave else 1, threads)
        others = [threading.Thread(target=self._take_pieces, name=f"floatsim_{n}", daemon=leave) for n in names]
        for other in others:
            other.start()
        if not leave:
            self._take_pieces()
        try:
            for other in others:
                self._wait(other)
        except KeyboardInterrupt as failure:
            self._failures.append(failure)
            if not leave:
                for other in others:
                    other.join()
        if self._failures:
            raise self._failures[0]

    def _wait(self, other: threading.Thread) -> None:
        while other.is_alive():
            other.join(_LOOK_EVERY)
            self._progress.show()

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
        except BaseException as failure:  # also Ctrl-C, which only the main thread receives
            self._failures.append(failure)


_NOTHING = object()


def call(work: Callable[[], T], title: str, *, long: bool) -> T:
    """Return the result of one piece of work. If it is `long`, Ctrl-C returns at once (`leave` of `run`)."""
    if not long:
        return work()
    results: list[T] = []
    run([None], lambda _: results.append(work()), 1, title, leave=True)
    return results[0]


# -- the number of threads ---------------------------------------------------------------------------------------------

_chosen: int | None = None


def set_num_threads(n: int | None) -> None:
    """Set the number of threads that share the work of one call, in this process.

    Without this call it is the environment variable FLOATSIM_NUM_THREADS, by default NUMBA_NUM_THREADS, by default the
    number of cores that the process may use. The number of threads changes no bit.

    Parameters
    ----------
    n : int or None
        At least 1. None returns to the default.

    Raises
    ------
    TypeError, ValueError
        If n is no integer, or less than 1.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.set_num_threads(1)
    >>> fs.get_num_threads()
    1
    >>> fs.set_num_threads(None)
    """
    global _chosen  # noqa: PLW0603  # worker threads of a user see it, unlike a ContextVar
    _chosen = None if n is None else as_index(n, "n", 1, 1 << 16)


def get_num_threads() -> int:
    """Return the number of threads that share the work of one call (see `fs.set_num_threads`).

    Raises
    ------
    ValueError
        If FLOATSIM_NUM_THREADS is set to something else than an integer of at least 1.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.get_num_threads() >= 1
    True
    """
    if _chosen is not None:
        return _chosen
    text = os.environ.get("FLOATSIM_NUM_THREADS", "")
    if not text:
        return int(cpu.threads())
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"FLOATSIM_NUM_THREADS={text!r} is no integer of at least 1")
    return int(text)
