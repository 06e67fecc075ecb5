"""Large work in pieces: on several threads, with a progress bar where it takes long, and stopped by Ctrl-C.

The pieces are independent, so neither their size nor the number of threads can change a bit.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

__all__ = ["run"]

T = TypeVar("T")

_SHOW_BEYOND = 2.0  # seconds
_LOOK_AFTER = 0.5  # seconds until the whole time is guessed


def _watched() -> bool:
    """Whether somebody is looking: a terminal, or a notebook."""
    return "ipykernel" in sys.modules or sys.stderr.isatty()


class _Progress:
    """A bar that appears only when the work turns out to take long."""

    def __init__(self, total: int, title: str) -> None:
        self.total, self.title, self.done = total, title, 0
        self.start = time.perf_counter()
        self.watched = _watched()
        self.bar: Any = None

    def step(self) -> None:
        self.done += 1
        if self.bar is not None:
            self.bar.update()
        elif self.watched:
            spent = time.perf_counter() - self.start
            if spent > _LOOK_AFTER and spent * self.total / self.done > _SHOW_BEYOND:
                from tqdm.auto import tqdm

                self.bar = tqdm(total=self.total, initial=self.done, desc=self.title, leave=False)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def run(pieces: Sequence[T], work: Callable[[T], None], threads: int, title: str) -> None:
    """Call `work` on every piece, on as many threads. An exception, Ctrl-C too, stops at the end of running pieces."""
    if len(pieces) == 1:
        work(pieces[0])
        return
    progress = _Progress(len(pieces), title)
    try:
        if threads == 1:
            for piece in pieces:
                work(piece)
                progress.step()
        else:
            for _ in _in_threads(pieces, work, min(threads, len(pieces))):
                progress.step()
    finally:
        progress.close()


def _in_threads(pieces: Sequence[T], work: Callable[[T], None], threads: int) -> Iterator[None]:
    """Once for every piece that is done. Pieces are handed out a few at a time, so that stopping is prompt."""
    waiting = iter(pieces)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="floatsim")
    running: set[Future[None]] = set()
    try:
        for piece in waiting:
            running.add(pool.submit(work, piece))
            if len(running) >= 2 * threads:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                    yield
        for future in running:
            future.result()
            yield
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
