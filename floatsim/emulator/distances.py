"""Counts of the distances of two arrays in ulps, on several threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from floatsim_kernels.elementwise import distances as loops

from floatsim.emulator.parallel import get_num_threads, run
from floatsim.emulator.params import order_params
from floatsim.formats import FloatFormat

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Distances", "count_distances"]

_PIECE = 1 << 20  # elements of one piece of work: a multiple of the kernel's blocks


class Distances(NamedTuple):
    """The number of pairs by distance. NaNs of both arrays are 0 apart; a NaN and a number have no distance.

    `window` counts the distances from `low` on, 2**shift to a place. `classes[n]` counts the distances d > 0 with n
    bits in d - 1: 1, 2, 3-4, 5-8 and so on.
    """

    elements: int
    equal: int
    zeros: int
    nans: int
    nan: int
    largest: int
    window: NDArray[np.uint64]
    classes: NDArray[np.uint64]


def count_distances(a: NDArray[Any], b: NDArray[Any], fmt: FloatFormat, low: int = 0, shift: int = 0) -> Distances:
    """Count the distances of two arrays of codes, of one format and shape."""
    left, right = (np.ascontiguousarray(x).reshape(-1) for x in (a, b))
    words = [x[: x.size // 8 * 8].view(np.uint64) for x in (left, right)]
    window, classes = np.zeros(loops.WINDOW, np.uint64), np.zeros(loops.CLASSES, np.uint64)
    totals, lock = np.zeros(5, np.uint64), threading.Lock()
    kernel, params = loops.count(32 if fmt.bits <= 32 else 64), order_params(fmt)

    def work(start: int) -> None:
        part, first = slice(start, start + _PIECE), start * left.itemsize // 8
        of_words = slice(first, first + _PIECE * left.itemsize // 8)
        counts = np.zeros_like(window), np.zeros_like(classes), np.zeros_like(totals)
        kernel(
            left[part], right[part], words[0][of_words], words[1][of_words], params, np.uint64(low), np.uint64(shift),
            *counts,
        )  # fmt: skip
        with lock:
            largest = max(totals[loops.LARGEST], counts[2][loops.LARGEST])
            for whole, own in zip((window, classes, totals), counts, strict=True):
                np.add(whole, own, out=whole)
            totals[loops.LARGEST] = largest

    if left.size:
        run(range(0, left.size, _PIECE), work, get_num_threads(), "distances")
    if low == shift == 0:
        window[0] = 0
        used = np.flatnonzero(window)
        totals[loops.LARGEST] = max(totals[loops.LARGEST], used[-1] if used.size else 0)
        for n, d in ((int(d - 1).bit_length(), d) for d in used):
            classes[n] += window[d]
    equal, zeros, nans, nan, largest = totals.tolist()
    return Distances(left.size, equal, zeros, nans, nan, largest, window, classes)
