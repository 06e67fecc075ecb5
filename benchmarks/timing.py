"""Interleaved timing: in each round every contestant runs once, so that a slow moment of the machine hits all alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Timing:
    """Nanoseconds an element, over the rounds that were run."""

    median: float
    fastest: float
    rounds: int


_AT_LEAST = 5_000_000  # nanoseconds


def interleave(runs: list[tuple[Callable[[], Any], int]], rounds: int, budget: float) -> list[Timing]:
    """Time (call, elements) pairs in turn, `rounds` times.

    Freeing a result is not timed, making it is; but calls shorter than five milliseconds are repeated, and timed
    together. A contestant that has used up its `budget` in seconds sits out the rounds after its third.
    """
    taken: list[list[float]] = [[] for _ in runs]
    repeats = []
    for run, _ in runs:
        run()  # compile, load, touch
        start = time.perf_counter_ns()
        run()
        repeats.append(max(1, _AT_LEAST // max(time.perf_counter_ns() - start, 1)))
    gc.collect()
    gc.disable()
    try:
        for n in range(rounds):
            for i in range(len(runs)):
                i = (i + n) % len(runs)  # nobody always runs after the same neighbour's cache misses  # noqa: PLW2901
                if len(taken[i]) >= 3 and sum(taken[i]) > budget * 1e9:
                    continue
                run = runs[i][0]
                start = time.perf_counter_ns()
                for _ in range(repeats[i] - 1):
                    run()
                result = run()
                taken[i].append((time.perf_counter_ns() - start) / repeats[i])
                del result
    finally:
        gc.enable()
    return [
        Timing(statistics.median(ns) / size, min(ns) / size, len(ns)) for ns, (_, size) in zip(taken, runs, strict=True)
    ]
