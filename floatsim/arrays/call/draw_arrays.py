"""The draws of stochastic rounding as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floatsim.arrays.call import backends
from floatsim.formats.random_source import RandomSource
from floatsim.reference import draws as own_draws

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["draws"]


def draws(
    source: RandomSource | None, seed: int, offset: int, count: int, random_bits: int
) -> NDArray[np.unsignedinteger]:
    """Return the draws of the elements offset, offset + 1, ... of a generator; None is floatsim's own.

    >>> draws(None, 1, 0, 4, 8).tolist()
    [51, 154, 150, 68]
    """
    if source is None:
        return own_draws(seed, offset, count, random_bits)
    drawn: NDArray[np.uint64] = backends.emulator().source_draws(source, seed, offset, count, random_bits)
    return drawn
