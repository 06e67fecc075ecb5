"""The generators of random bits that libraries and hardware use, as seeds of stochastic rounding."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from floatsim.formats._validation import as_index, as_word
from floatsim.formats.random_source import Generator, RandomSource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["PHILOX_ARRANGEMENTS", "Lfsr", "Philox", "PhiloxArrangement", "RandomGenerator", "Threefry"]

_MAX_SEED = (1 << 64) - 1


class RandomGenerator:
    """A generator with its seed: the base of `Philox`, `Threefry` and `Lfsr`.

    >>> import floatsim as fs
    >>> isinstance(fs.Philox(1), fs.RandomGenerator)
    True
    """

    seed: int

    @property
    def source(self) -> RandomSource:
        """The generator without its seed."""
        raise NotImplementedError

    def draws(self, count: int, random_bits: int = 32, offset: int = 0) -> NDArray[np.uint64]:
        """Return the random integers that stochastic rounding takes for the elements offset, offset + 1, ...

        An element is rounded away from zero where its discarded fraction, in units of 2**-random_bits and cut to an
        integer, plus its draw is at least 2**random_bits.

        Parameters
        ----------
        count : int
            The number of elements.
        random_bits : int
            The bits of each draw, 1 to 64. A register has at most its width.
        offset : int
            The index of the first element.

        Returns
        -------
        ndarray of uint64, shape (count,)

        Raises
        ------
        TypeError, ValueError
            For numbers outside their range.

        Examples
        --------
        >>> import floatsim as fs
        >>> fs.Philox(42).draws(3, 16).tolist(), fs.Philox(42).draws(2, 16, offset=1).tolist()
        ([40170, 64731, 54124], [64731, 54124])
        """
        from floatsim.arrays.call import draw_arrays

        bits = as_index(random_bits, "random_bits", 1, 64)
        check_random_bits(self.source, bits)
        first, n = as_index(offset, "offset", 0, _MAX_SEED), as_index(count, "count", 0, (1 << 48) - 1)
        drawn: NDArray[np.uint64] = draw_arrays.draws(self.source, self.seed, first, n, bits)
        return drawn


def check_random_bits(source: RandomSource, random_bits: int) -> None:
    """Raise a ValueError if the draws of a register have fewer bits than are asked for."""
    if random_bits > source.width:
        raise ValueError(
            f"random_bits={random_bits} is more than the {source.width} bits of the register of the seed; pass "
            f"random_bits={source.width} or less, or a wider fs.Lfsr"
        )


# -- Philox ------------------------------------------------------------------------------------------------------------

PhiloxArrangement: TypeAlias = Literal["triton", "curand", "torch", "numpy"]


class _Arrangement(NamedTuple):
    """How a library numbers the words of Philox, and which bits of a word it takes."""

    generator: Generator
    per_counter: int
    first_counter: int
    low_bits: bool
    defined_by: str


PHILOX_ARRANGEMENTS: dict[PhiloxArrangement, _Arrangement] = {
    "triton": _Arrangement(Generator.PHILOX32, 1, 0, False, "tl.randint(seed, index)"),
    "curand": _Arrangement(Generator.PHILOX32, 4, 0, False, "curand_init(seed, 0, 0), then curand() for each element"),
    "torch": _Arrangement(Generator.PHILOX32, 4, 0, True, "at::Philox4_32(seed, 0, 0), then operator() % 2**bits"),
    "numpy": _Arrangement(Generator.PHILOX64, 4, 1, False, "numpy.random.Philox(key=seed).random_raw()"),
}
"""The arrangements of `Philox`, by name. Each row says which call of a library returns the words of the elements.

>>> import floatsim as fs
>>> fs.PHILOX_ARRANGEMENTS["numpy"].defined_by
'numpy.random.Philox(key=seed).random_raw()'
"""


@dataclass(frozen=True)
class Philox(RandomGenerator):
    """Philox with 10 rounds as the random bits of stochastic rounding: `seed=fs.Philox(42)`.

    The key is the seed. The counter of an element is its index, or a fourth of it, and the site of the rounding in the
    upper words (cuRAND's subsequence): a conversion has site 0, and the steps of a sum have others.

    Parameters
    ----------
    seed : int
        The key, 0 to 2**64 - 1.
    arrangement : str
        Which word belongs to an element, and which of its bits a draw is. All but "numpy" are Philox 4x32.

        - "triton": word 0 of the counter `index`, as `tl.randint(seed, index)`; the high bits. The default.
        - "curand": word `index % 4` of the counter `index // 4`, as `curand_init(seed, 0, 0)` and calls of `curand()`
          in one thread, and as `tl.randint4x(seed, counters)` with its four results side by side; the high bits.
        - "torch": the words of "curand", as `at::Philox4_32`; the low bits, which `torch.randint(0, 2**n)` takes.
        - "numpy": Philox 4x64, word `index % 4` of the counter `index // 4 + 1`, as `random_raw()` of
          `numpy.random.Philox(key=seed)`; the high bits.
    rounds : int
        The rounds of the generator, 1 to 16.

    Raises
    ------
    TypeError, ValueError
        For a seed or rounds outside their range, and for an unknown arrangement.

    Notes
    -----
    More than 32 random bits are two words of Philox 4x32, the high one first. `torch.rand` and `torch.randint` on a GPU
    distribute elements over threads by the size of the grid; the words of one thread are those of "torch". Salmon et
    al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), defines the generator.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.quantize([1.03] * 6, "e4m3", rounding="stochastic", seed=fs.Philox(42))
    array([1.   , 1.125, 1.125, 1.   , 1.   , 1.   ])
    """

    seed: int
    arrangement: PhiloxArrangement = "triton"
    rounds: int = 10

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", as_index(self.seed, "seed", 0, _MAX_SEED))
        as_word(self.arrangement, "arrangement", tuple(PHILOX_ARRANGEMENTS))
        object.__setattr__(self, "rounds", as_index(self.rounds, "rounds", 1, 16))

    @functools.cached_property
    def source(self) -> RandomSource:
        """The generator without its seed."""
        row = PHILOX_ARRANGEMENTS[self.arrangement]
        return RandomSource(row.generator, row.per_counter, row.first_counter, row.low_bits, self.rounds)


# -- Threefry ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Threefry(RandomGenerator):
    """Threefry 2x32 with 20 rounds, JAX's generator, as the random bits of stochastic rounding.

    The draws are those of `jax.random.bits(jax.random.key(seed), shape, dtype)`, for 8, 16, 32 and 64 bits, in JAX's
    default arrangement (`jax_threefry_partitionable`, since JAX 0.5): the counter is the index of the element, and a
    draw of at most 32 bits is the low bits of the exclusive or of the two words. The site of a rounding inside a sum is
    folded into the key, as `jax.random.fold_in` does.

    Parameters
    ----------
    seed : int
        The key, 0 to 2**64 - 1: its upper 32 bits are the first word.
    rounds : int
        The rounds of the generator, 1 to 32.

    Raises
    ------
    TypeError, ValueError
        For a seed or rounds outside their range.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.quantize([1.06] * 6, "e4m3", rounding="stochastic", seed=fs.Threefry(42))
    array([1.   , 1.125, 1.125, 1.125, 1.   , 1.125])
    """

    seed: int
    rounds: int = 20

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", as_index(self.seed, "seed", 0, _MAX_SEED))
        object.__setattr__(self, "rounds", as_index(self.rounds, "rounds", 1, 32))

    @functools.cached_property
    def source(self) -> RandomSource:
        """The generator without its seed."""
        return RandomSource(Generator.THREEFRY, low_bits=True, rounds=self.rounds)


# -- registers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lfsr(RandomGenerator):
    """A linear feedback shift register, as hardware has it, as the random bits of stochastic rounding.

    The register shifts right once a clock cycle. The exclusive or of the tapped bits enters at the top. A draw is the
    high bits of the register. Element n of a conversion takes the state after n * steps cycles. A site inside a sum has
    a first state of its own.

    Parameters
    ----------
    width : int
        The bits of the register, 2 to 64. A draw has at most so many: pass `random_bits=`.
    taps : sequence of int
        The tapped bits, 1 to width, as tables of maximal-length registers list them: tap t is bit width - t of the
        register, counted from the low end. `width` must be among them.
    seed : int
        The state of the first element, 1 to 2**width - 1. The state 0 would stay 0.
    steps : int
        The clock cycles between two draws. With 1, the default, a draw has all but one of the bits of the draw before,
        so that neighbouring elements are rounded by dependent bits.

    Raises
    ------
    TypeError, ValueError
        For numbers outside their range, and for taps without `width` or with a tap twice.

    Examples
    --------
    >>> import floatsim as fs
    >>> register = fs.Lfsr(16, (16, 14, 13, 11), seed=0xACE1)
    >>> [hex(state) for state in register.draws(3, 16).tolist()]
    ['0xace1', '0x5670', '0xab38']
    >>> fs.quantize([1.06] * 6, "e4m3", rounding="stochastic", seed=register, random_bits=8)
    array([1.125, 1.   , 1.125, 1.   , 1.   , 1.   ])
    """

    width: int
    taps: tuple[int, ...]
    seed: int = field(default=1, kw_only=True)
    steps: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        width = as_index(self.width, "width", 2, 64)
        taps = _checked_taps(self.taps, width)
        seed = as_index(self.seed, "seed", 0, (1 << width) - 1)
        if not seed:
            raise ValueError("seed=0 is the state that a register never leaves; pass seed=1")
        steps = as_index(self.steps, "steps", 1, 1 << 20)
        for name, value in (("width", width), ("taps", taps), ("seed", seed), ("steps", steps)):
            object.__setattr__(self, name, value)

    @functools.cached_property
    def source(self) -> RandomSource:
        """The generator without its seed."""
        taps = sum(1 << self.width - tap for tap in self.taps)
        return RandomSource(Generator.LFSR, width=self.width, taps=taps, steps=self.steps)


def _checked_taps(taps: Any, width: int) -> tuple[int, ...]:
    if isinstance(taps, str) or not isinstance(taps, Iterable):
        raise TypeError(f"taps must be a sequence of integers such as ({width}, {max(1, width - 1)}), not {taps!r}")
    checked = tuple(as_index(tap, "a tap", 1, width) for tap in taps)
    if width not in checked or len(set(checked)) != len(checked):
        raise ValueError(f"taps must be different and contain the width {width}, not {checked}")
    return checked
