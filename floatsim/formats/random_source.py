"""A generator of random bits as data, without its seed: how the draws of stochastic rounding are made."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from floatsim.formats._hashing import hashed_once

__all__ = ["Generator", "RandomSource"]


class Generator(enum.IntEnum):
    """The generators. TRIPLE32 is floatsim's own, which integer seeds use."""

    TRIPLE32 = 0
    """SplitMix64 and the hash triple32."""
    PHILOX32 = 1
    """Philox 4x32."""
    PHILOX64 = 2
    """Philox 4x64."""
    THREEFRY = 3
    """Threefry 2x32."""
    LFSR = 4
    """A linear feedback shift register."""


@hashed_once
@dataclass(frozen=True)
class RandomSource:
    """A generator and its arrangement: which word of which counter, and which of its bits, are the draw of an element.

    >>> RandomSource().generator.name
    'TRIPLE32'
    """

    generator: Generator = Generator.TRIPLE32
    per_counter: int = 1
    """The elements that share a counter, each with words of its own."""
    first_counter: int = 0
    """The counter of the first element."""
    low_bits: bool = False
    """Whether a draw is the low bits of its word; otherwise it is the high bits."""
    rounds: int = 0
    width: int = 64
    """The bits of a register. A draw has at most so many."""
    taps: int = 0
    """The bits of the register whose sum modulo 2 is the next bit."""
    steps: int = 1
    """The clock cycles of a register between two draws."""
