"""The draws of generators of random bits as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from floatsim_kernels.rounding import random_sources

from floatsim._types import Seeds
from floatsim.emulator.params import source_params
from floatsim.formats.random_source import RandomSource
from floatsim.formats.rounding import Rounding, RoundingAttributes

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["source_draws", "with_draws"]


def source_draws(
    source: RandomSource, seed: int, offset: int, count: int, random_bits: int, site: int = 0
) -> NDArray[np.uint64]:
    """Return the draws of the elements offset, offset + 1, ..., each of `random_bits` bits, at a rounding site.

    >>> from floatsim.formats.random_source import Generator
    >>> source_draws(RandomSource(Generator.PHILOX32, rounds=10), 1, 0, 3, 8).tolist()
    [227, 172, 63]
    """
    out = np.empty(count, np.uint64)
    _fill(out, source, np.uint64(seed), np.uint64(site), np.uint64(offset), random_bits)
    return out


def with_draws(draws: Seeds, count: int, attributes: RoundingAttributes) -> Seeds:
    """Return the draws of integer kernels: seed and index, and for a generator that is not floatsim's own each draw."""
    if attributes.source is None or attributes.rounding is not Rounding.STOCHASTIC:
        return draws
    out = np.empty(draws.size + count, np.uint64)
    out[: draws.size] = draws
    _fill(out[draws.size :], attributes.source, draws[0], np.uint64(0), draws[1], attributes.random_bits)
    return out


def _fill(
    out: NDArray[np.uint64], source: RandomSource, seed: np.uint64, site: np.uint64, offset: np.uint64, bits: int
) -> None:
    random_sources.fill(out, source_params(source), seed, site, offset, bits)
