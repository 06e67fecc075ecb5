"""The generators of random bits that libraries and hardware use, one draw at a time on Python's integers.

J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), defines
Philox and Threefry; the distribution Random123 has their known answers.
"""

from __future__ import annotations

from floatsim.formats.random_source import Generator, RandomSource
from floatsim.reference.random import draw, split_seed

__all__ = ["lfsr_state", "lfsr_step", "philox", "source_draw", "threefry2x32"]

_MULTIPLIERS = {32: (0xD2511F53, 0xCD9E8D57), 64: (0xD2E7470EE14C6C93, 0xCA5A826395121157)}
_KEY_STEPS = {32: (0x9E3779B9, 0xBB67AE85), 64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)}
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA
_M32, _M64 = (1 << 32) - 1, (1 << 64) - 1


def philox(counter: tuple[int, ...], key: tuple[int, int], width: int = 32, rounds: int = 10) -> tuple[int, ...]:
    """Return the four words of Philox 4 x width for a counter of four words and a key of two.

    >>> [hex(word) for word in philox((0, 0, 0, 0), (0, 0))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    mask = (1 << width) - 1
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        p, q = (factor * word for factor, word in zip(_MULTIPLIERS[width], (c0, c2), strict=True))
        c0, c1, c2, c3 = q >> width ^ c1 ^ k0, q & mask, p >> width ^ c3 ^ k1, p & mask
        k0, k1 = (k + step & mask for k, step in zip((k0, k1), _KEY_STEPS[width], strict=True))
    return c0, c1, c2, c3


def threefry2x32(key: tuple[int, int], counter: tuple[int, int], rounds: int = 20) -> tuple[int, int]:
    """Return the two words of Threefry 2x32.

    >>> [hex(word) for word in threefry2x32((0, 0), (0, 0))]
    ['0x6b200159', '0x99ba4efe']
    """
    keys = (*key, key[0] ^ key[1] ^ _PARITY)
    x0, x1 = (word + k & _M32 for word, k in zip(counter, key, strict=True))
    for i in range(rounds):
        n = _ROTATIONS[i % 8]
        x0 = x0 + x1 & _M32
        x1 = (x1 << n | x1 >> 32 - n) & _M32 ^ x0
        if i % 4 == 3:
            s = i // 4 + 1
            x0, x1 = x0 + keys[s % 3] & _M32, x1 + keys[(s + 1) % 3] + s & _M32
    return x0, x1


def lfsr_step(state: int, width: int, taps: int) -> int:
    """Return the next state of a Fibonacci register: it shifts right, and the sum of the bits `taps` enters at the top.

    >>> hex(lfsr_step(0xACE1, 16, 0b101101))
    '0x5670'
    """
    return state >> 1 | ((state & taps).bit_count() & 1) << width - 1


def _times(a: int, b: int, width: int, taps: int) -> int:
    """Return the product of two polynomials over GF(2) modulo that of the register, x**width = taps."""
    product = 0
    for j in reversed(range(width)):
        product <<= 1
        if product >> width:
            product ^= 1 << width | taps
        if b >> j & 1:
            product ^= a
    return product


def lfsr_state(state: int, steps: int, width: int, taps: int) -> int:
    """Return the state after a number of steps: x**steps modulo the register's polynomial, applied to the first state.

    >>> state = 0xACE1
    >>> for _ in range(1000):
    ...     state = lfsr_step(state, 16, 0b101101)
    >>> lfsr_state(0xACE1, 1000, 16, 0b101101) == state
    True
    """
    jump, power = 1, 2 if width > 1 else taps
    while steps:
        if steps & 1:
            jump = _times(jump, power, width, taps)
        power, steps = _times(power, power, width, taps), steps >> 1
    result = 0
    for j in reversed(range(width)):
        result = lfsr_step(result, width, taps)
        if jump >> j & 1:
            result ^= state
    return result


def source_draw(source: RandomSource | None, seed: int, index: int, random_bits: int = 32, site: int = 0) -> int:
    """Return the draw of element `index` at a rounding site, of any generator; None is that of `draw`.

    >>> from floatsim.formats.random_source import Generator, RandomSource
    >>> source_draw(None, 1, 0, 8), source_draw(RandomSource(Generator.PHILOX32, rounds=10), 1, 0, 8)
    (51, 227)
    """
    if source is None or source.generator is Generator.TRIPLE32:
        return draw(seed, index, random_bits, site)
    if source.generator is Generator.LFSR:
        first = split_seed(seed, site) if site else seed
        state = (first - 1 & _M64) % ((1 << source.width) - 1) + 1
        word, width = lfsr_state(state, index * source.steps, source.width, source.taps), source.width
    elif source.generator is Generator.THREEFRY:
        word, width = _of_threefry(source, seed, index, random_bits, site)
    else:
        word, width = _of_philox(source, seed, index, random_bits, site)
    return word & (1 << random_bits) - 1 if source.low_bits else word >> width - random_bits


def _of_philox(source: RandomSource, seed: int, index: int, random_bits: int, site: int) -> tuple[int, int]:
    """Return (word, its bits): the words of a counter in their order, two of 32 bits for more than 32 random bits."""
    width = 64 if source.generator is Generator.PHILOX64 else 32
    needed = 2 if random_bits > width else 1
    each = max(1, source.per_counter // needed)
    counter, first = source.first_counter + index // each, index % each * needed
    if width == 64:
        words = philox((counter, 0, site, 0), (seed, 0), 64, source.rounds)
    else:
        words = philox(
            (counter & _M32, counter >> 32, site & _M32, site >> 32), (seed & _M32, seed >> 32), 32, source.rounds
        )
    if needed == 2:
        return words[first] << 32 | words[first + 1], 64
    return words[first], width


def _of_threefry(source: RandomSource, seed: int, index: int, random_bits: int, site: int) -> tuple[int, int]:
    """Return (word, its bits): JAX's arrangement, with the site folded into the key as `jax.random.fold_in` does."""
    key = seed >> 32, seed & _M32
    if site:
        key = threefry2x32(key, (site >> 32, site & _M32), source.rounds)
    x0, x1 = threefry2x32(key, (index >> 32, index & _M32), source.rounds)
    return (x0 << 32 | x1, 64) if random_bits > 32 else (x0 ^ x1, 32)
