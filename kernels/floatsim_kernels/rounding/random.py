"""The counter-based generator of stochastic rounding: a draw depends on (seed, site, element index) and on nothing
else.

The key of 2**32 consecutive elements comes from the mixing function of SplitMix64 (G. L. Steele, D. Lea and C. H.
Flood, "Fast splittable pseudorandom number generators", 2014). The 32 bits of an element come from C. Wellons'
"triple32" integer hash of its index; the key is added before two of its rounds. The multiplications have 32 bits, so
that the hash runs at memory speed in vector registers.
"""

import numpy as np

from ..runtime.intrinsics import add32, multiply32, right32
from ..runtime.jit import inline

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_R27, _R30, _R31, _R32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_H1, _H2, _H3 = np.uint32(0xED5AD4BB), np.uint32(0xAC4C1B51), np.uint32(0x31848BAB)
_S17, _S11, _S15, _S14 = np.uint32(17), np.uint32(11), np.uint32(15), np.uint32(14)


@inline
def mix64(z):
    """The mixing function of SplitMix64."""
    z = (z ^ (z >> _R30)) * _MIX1
    z = (z ^ (z >> _R27)) * _MIX2
    return z ^ (z >> _R31)


@inline
def draw_key(seed, site, block):
    """The 64-bit key of the elements whose index >> 32 is `block`; all arguments uint64."""
    return mix64(mix64(mix64(seed + GOLDEN) + site * GOLDEN) + block * GOLDEN)


@inline
def draw_word(key_low, key_high, index):
    """32 random bits of one element; all arguments uint32."""
    x = add32(index, key_low)
    x = multiply32(x ^ right32(x, _S17), _H1)
    x = multiply32(add32(x ^ right32(x, _S11), key_high), _H2)
    x = multiply32(x ^ right32(x, _S15), _H3)
    return np.uint32(x ^ right32(x, _S14))


def draw_words(key_low, key_high, index):
    """Emit `draw_word` on LLVM vectors (`simd.U32x16`)."""
    x = index + key_low
    x = (x ^ (x >> _S17)) * _H1
    x = ((x ^ (x >> _S11)) + key_high) * _H2
    x = (x ^ (x >> _S15)) * _H3
    return x ^ (x >> _S14)


@inline
def draw_of_keys(key, second_key, index, bits):
    """A draw of `bits` bits (1 to 64) for one element, as uint64. More than 32 bits need the second key."""
    low = np.uint32(index & _LOW)
    word = np.uint64(draw_word(np.uint32(key & _LOW), np.uint32(key >> _R32), low))
    if bits <= 32:
        return word >> np.uint64(32 - bits)
    second_word = np.uint64(draw_word(np.uint32(second_key & _LOW), np.uint32(second_key >> _R32), low))
    return ((word << _R32) | second_word) >> np.uint64(64 - bits)


@inline
def draw(seed, site, index, bits):
    """The draw of element `index`. `site` distinguishes the roundings of one element."""
    block = index >> _R32
    key = draw_key(seed, site + site, block)
    second_key = draw_key(seed, site + site + np.uint64(1), block) if bits > 32 else key
    return draw_of_keys(key, second_key, index, bits)
