"""Generators of random bits that libraries and hardware use, for stochastic rounding: Philox, Threefry and LFSRs.

A generator is a vector of int64 (SOURCE_FIELDS); floatsim/emulator/params.py makes it, and floatsim/reference/
random_sources.py is the readable definition, by which the tests verify these functions. J. K. Salmon et al., "Parallel
random numbers: as easy as 1, 2, 3" (SC 2011), defines Philox and Threefry.
"""

import numpy as np

from ..runtime.intrinsics import multiply_high, ones
from ..runtime.jit import inline, kernel
from .random import GOLDEN, draw_of_keys, mix64

SOURCE_FIELDS = ("generator", "per_counter", "first_counter", "low_bits", "rounds", "width", "taps", "steps")
GENERATOR, PER_COUNTER, FIRST_COUNTER, LOW_BITS, ROUNDS, WIDTH, TAPS, STEPS = range(8)

TRIPLE32, PHILOX32, PHILOX64, THREEFRY, LFSR = range(5)

_M32 = np.uint64(0xFFFFFFFF)
_0, _1, _2, _32, _64 = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(32), np.uint64(64)
_A32, _B32, _KA32, _KB32 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57), np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_A64, _B64 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_KA64, _KB64 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_PARITY = np.uint64(0x1BD11BDA)
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)


@inline
def source_fields(params, first):
    """The parameters of a generator as a tuple; they stand in `params` from the index `first` on."""
    p = params[first:]
    return p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]


@inline
def philox32(c0, c1, c2, c3, k0, k1, rounds):
    """Philox 4x32. All words are uint64 below 2**32."""
    for _ in range(rounds):
        p, q = c0 * _A32, c2 * _B32
        c0, c1, c2, c3 = (q >> _32) ^ c1 ^ k0, q & _M32, (p >> _32) ^ c3 ^ k1, p & _M32
        k0, k1 = (k0 + _KA32) & _M32, (k1 + _KB32) & _M32
    return c0, c1, c2, c3


@inline
def philox64(c0, c1, c2, c3, k0, k1, rounds):
    """Philox 4x64 on uint64."""
    for _ in range(rounds):
        p, q = c0 * _A64, c2 * _B64
        high_p, high_q = multiply_high(c0, _A64), multiply_high(c2, _B64)
        c0, c1, c2, c3 = high_q ^ c1 ^ k0, q, high_p ^ c3 ^ k1, p
        k0, k1 = k0 + _KA64, k1 + _KB64
    return c0, c1, c2, c3


@inline
def threefry(k0, k1, x0, x1, rounds):
    """Threefry 2x32. All words are uint64 below 2**32."""
    keys = (k0, k1, k0 ^ k1 ^ _PARITY)
    x0, x1 = (x0 + k0) & _M32, (x1 + k1) & _M32
    for i in range(rounds):
        n = np.uint64(_ROTATIONS[i % 8])
        x0 = (x0 + x1) & _M32
        x1 = (((x1 << n) | (x1 >> (_32 - n))) & _M32) ^ x0
        if i % 4 == 3:
            s = i // 4 + 1
            x0, x1 = (x0 + keys[s % 3]) & _M32, (x1 + keys[(s + 1) % 3] + np.uint64(s)) & _M32
    return x0, x1


@inline
def lfsr_step(state, width, taps):
    """The next state of a Fibonacci LFSR that shifts right; bit width - t of `taps` is tap t."""
    return (state >> _1) | ((np.uint64(ones(state & taps)) & _1) << np.uint64(width - 1))


@inline
def _ones_of(width):
    """The `width` low bits."""
    return np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - width)


@inline
def _times(a, b, width, taps):
    """The product of two polynomials over GF(2), modulo that of the recurrence: x**width = taps."""
    top, low = np.uint64(width - 1), _ones_of(width)
    product = _0
    for j in range(width):
        product = ((product << _1) & low) ^ (taps if (product >> top) & _1 else _0)
        if (b >> np.uint64(width - 1 - j)) & _1:
            product ^= a
    return product


@inline
def _power(a, n, width, taps):
    """a**n modulo the polynomial of the recurrence."""
    result = _1
    while n != _0:
        if n & _1:
            result = _times(result, a, width, taps)
        n >>= _1
        if n != _0:
            a = _times(a, a, width, taps)
    return result


@inline
def lfsr_state(seed, site, index, source):
    """The state of the register for draw `index`: x**(steps * index), applied to the first state."""
    width, taps = source[WIDTH], np.uint64(source[TAPS])
    if site != _0:
        seed = mix64(seed + site * GOLDEN)
    state = (seed - _1) % _ones_of(width) + _1
    x = _2 if width > 1 else taps
    jump = _power(_power(x, np.uint64(source[STEPS]), width, taps), index, width, taps)
    result = _0
    for j in range(width):
        result = lfsr_step(result, width, taps)
        if (jump >> np.uint64(width - 1 - j)) & _1:
            result ^= state
    return result


@inline
def _word(words, n):
    c0, c1, c2, c3 = words
    return (c0 if n == 0 else c1) if n < 2 else (c2 if n == 2 else c3)


@inline
def _of_counter(source, seed, site, index, bits):
    """(word, its bits) of Philox: the words of a counter in their order, two of 32 bits for more than 32."""
    width = 64 if source[GENERATOR] == PHILOX64 else 32
    needed = 2 if bits > width else 1
    each = np.uint64(max(1, source[PER_COUNTER] // needed))
    counter, first = np.uint64(source[FIRST_COUNTER]) + index // each, np.int64(index % each) * needed
    if width == 64:
        words = philox64(counter, _0, site, _0, seed, _0, source[ROUNDS])
        return _word(words, first), 64
    words = philox32(
        counter & _M32, counter >> _32, site & _M32, site >> _32, seed & _M32, seed >> _32, source[ROUNDS]
    )  # fmt: skip
    if needed == 2:
        return (_word(words, first) << _32) | _word(words, first + 1), 64
    return _word(words, first), 32


@inline
def _of_threefry(source, seed, site, index, bits):
    """(word, its bits) of Threefry in JAX's arrangement."""
    k0, k1 = seed >> _32, seed & _M32
    if site != _0:
        k0, k1 = threefry(k0, k1, site >> _32, site & _M32, source[ROUNDS])
    x0, x1 = threefry(k0, k1, index >> _32, index & _M32, source[ROUNDS])
    if bits > 32:
        return (x0 << _32) | x1, 64
    return x0 ^ x1, 32


@inline
def _cut(word, width, bits, low):
    """`bits` of the `width` bits of a word: the low ones or the high ones."""
    if low:
        return word & _ones_of(bits)
    return word >> np.uint64(width - bits)


@inline
def draw_from(source, seed, site, index, bits):
    """A draw of `bits` bits, as uint64, of a generator that is not TRIPLE32. seed, site and index are uint64."""
    if source[GENERATOR] == LFSR:
        return _cut(lfsr_state(seed, site, index, source), source[WIDTH], bits, source[LOW_BITS])
    if source[GENERATOR] == THREEFRY:
        word, width = _of_threefry(source, seed, site, index, bits)
    else:
        word, width = _of_counter(source, seed, site, index, bits)
    return _cut(word, width, bits, source[LOW_BITS])


@inline
def draw_at(source, key, second_key, index, bits):
    """The draw of an element by the keys of `gemm.integer.keys_of`; those of other sources are the seed and site."""
    if source[GENERATOR] == TRIPLE32:
        return draw_of_keys(key, second_key, index, bits)
    return draw_from(source, key, second_key, index, bits)


@kernel
def fill(out, params, seed, site, index, bits):
    """Write the draws of the elements index, index + 1, ... to out, uint64."""
    source = source_fields(params, 0)
    if source[GENERATOR] != LFSR:
        for i in range(out.size):
            out[i] = draw_from(source, seed, site, index + np.uint64(i), bits)
        return
    state, taps = lfsr_state(seed, site, index, source), np.uint64(source[TAPS])
    for i in range(out.size):
        out[i] = _cut(state, source[WIDTH], bits, source[LOW_BITS])
        for _ in range(source[STEPS]):
            state = lfsr_step(state, source[WIDTH], taps)
