"""The seeds of stochastic rounding."""

from __future__ import annotations

import threading
from typing import Any, TypeAlias

from floatsim.arrays.call.random_sources import RandomGenerator
from floatsim.formats._validation import as_index
from floatsim.formats.random_source import RandomSource

__all__ = ["RandomStream", "SeedLike", "checked_seed"]


def checked_seed(seed: Any) -> int | RandomGenerator:
    """Return a generator, or an integer below 2**64. Raise TypeError or ValueError for other values."""
    if isinstance(seed, RandomGenerator):
        return seed
    return as_index(seed, "seed", 0, (1 << 64) - 1, "an integer, a generator such as fs.Philox(42), or a RandomStream")


class RandomStream:
    """A seed that advances: every call that uses it draws new random numbers.

    An integer `seed=` gives the same draws at each call. In training that is wrong, because the same elements would be
    rounded up in every step. Pass one stream to all calls instead. Threads may share a stream; each call gets its own
    seed. A copy (`copy.copy`, `pickle`) continues with the same draws as the original, independently of it: give each
    process its own seed.

    Parameters
    ----------
    seed : int or generator
        The seed of the stream, 0 to 2**64 - 1. With `fs.Philox`, `fs.Threefry` or `fs.Lfsr`, each call gets a generator
        of this kind with a seed of its own.

    Examples
    --------
    >>> import floatsim as fs
    >>> stream = fs.RandomStream(1)
    >>> x = [1.03] * 8
    >>> [int(fs.encode(x, "e4m3", rounding="SR", seed=stream).sum()) for _ in range(3)]
    [449, 451, 451]
    """

    def __init__(self, seed: int | RandomGenerator) -> None:
        self.seed = checked_seed(seed)
        self.calls = 0
        self._lock = threading.Lock()

    def next_seed(self) -> int:
        """Return the seed of the next call, the next output of SplitMix64."""
        from floatsim.reference import split_seed

        with self._lock:
            self.calls += 1
            seed = self.seed if isinstance(self.seed, int) else self.seed.seed
            return split_seed(seed, self.calls)

    @property
    def source(self) -> RandomSource | None:
        """The generator without its seed, or None for floatsim's own."""
        return None if isinstance(self.seed, int) else self.seed.source

    def __getstate__(self) -> tuple[int | RandomGenerator, int]:
        """Return seed and calls. A copy, or a pickle in another process, draws what this stream will draw next."""
        with self._lock:
            return self.seed, self.calls

    def __setstate__(self, state: tuple[int | RandomGenerator, int]) -> None:
        self.seed, self.calls = state
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"RandomStream({self.seed}), {self.calls} calls"


SeedLike: TypeAlias = int | RandomGenerator | RandomStream
