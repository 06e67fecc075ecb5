"""The scales of blocks from their largest magnitudes, in hardware floats: they need `cpu.environment_is_default()`.

`amax` has the largest magnitude of each block, `factors` gets what the elements of a block are multiplied with, or
divided by. Both are flat arrays of float32 or float64, the dtype of the arithmetic. A reciprocal beyond the largest
number is that number. The readable rules are in floatsim/quantization/scales.py.
"""

import functools

import numpy as np

from ..elementwise import quantize, unpack
from ..rounding.integer import TIES_TO_EVEN
from ..runtime.intrinsics import bits_from_double, bits_from_float, double_from_bits, wide_vectors
from ..runtime.jit import inline, kernel

_TRAILING, _BIAS, _SPECIAL = 52, 1023, 0x7FF
_FRACTION = np.int64((1 << _TRAILING) - 1)


@inline
def factor_of(scale, one, largest, inverts):
    """The scale, or its reciprocal."""
    inverse = one / scale
    return (largest if inverse > largest else inverse) if inverts else scale


@kernel
def powers_of_two(amax, least, carry, offset, ends, of_zero, of_special, inverts, largest, scales, factors):
    """Write the scale 2**(floor(log2(amax)) - offset) of each block, clamped to exponents between `ends`.

    The exponent is one more if the trailing significand of amax, as float64, is larger than `carry`. amax counts as at
    least `least`. `of_zero` and `of_special` are the scales for 0 and for NaN and infinity.
    """
    wide_vectors()
    lowest, highest = ends
    for i in range(amax.size):
        a = amax[i]
        bits = np.int64(bits_from_double(np.float64(least if a < least else a)))
        field = bits >> _TRAILING
        exponent = field - _BIAS - offset + (1 if (bits & _FRACTION) > carry else 0)
        exponent = min(max(exponent, lowest), highest)
        scale = double_from_bits(np.uint64((exponent + _BIAS) << _TRAILING))
        scale = of_zero if bits == 0 else scale
        scale = of_special if field == _SPECIAL else scale
        scales[i] = scale
        factors[i] = factor_of(factors.dtype.type(scale), factors.dtype.type(1), largest, inverts)


@kernel
def usable(amax, least, largest_scale, inverts, largest, scales, factors):
    """Turn rounded scales into positive ones, in place: 1 for 0, NaN and infinity, else from `least` to the largest."""
    wide_vectors()
    one = factors.dtype.type(1)
    for i in range(amax.size):
        scale = scales[i]
        scale = scale if scale > 0 else least
        scale = largest_scale if scale > largest_scale else scale
        scale = scale if 0 < amax[i] <= largest else one
        scales[i] = scale
        factors[i] = factor_of(scale, one, largest, inverts)


TENSOR, QUOTIENT, SINGLE = range(3)
"""NVFP4 as TransformerEngine computes it, as torchao does with two levels, and as torchao does with one."""
_KIND, _MASKS = quantize.carrier(32)
_SIX, _1, _0 = np.float32(6), np.float32(1), np.float32(0)


@inline
def nvfp4_quotient(variant, a, first, least):
    """The scale of a block before it is rounded."""
    if variant == TENSOR:
        return a * first
    q = a / _SIX if variant == SINGLE else (a / _SIX) / first
    return least if q < least else q


@inline
def nvfp4_factor(variant, scale, second, largest, inverts):
    """What the elements are multiplied with."""
    if variant == QUOTIENT:
        quotient = second / scale
        return largest if quotient > largest else quotient
    if variant == SINGLE:
        return factor_of(scale, _1, largest, inverts)
    product = scale * second
    inverse = _1 / (_1 if product == _0 else product)
    inverse = largest if inverse > largest else inverse
    return largest if product == _0 else inverse


@functools.cache
def nvfp4(variant):
    """Return the kernel that writes the codes of the scales of NVFP4 and the factors, in float32.

    `first` and `second` are the numbers of the tensor: what amax is multiplied with and what a scale is multiplied with
    (TENSOR); what amax / 6 is divided by and what is divided by a scale (QUOTIENT). `write` holds the fields of
    quantize.ROUNDING_FIELDS for codes, `read` those of unpack.UNPACK_FIELDS.
    """

    @kernel
    def loop(amax, first, second, least, largest, inverts, write, read, codes, factors):
        wide_vectors()
        w, r = quantize.fields_of(write), unpack.fields_of(read)
        for i in range(amax.size):
            q = nvfp4_quotient(variant, amax[i], first, least)
            code = quantize.rounded_element(_KIND, _MASKS, TIES_TO_EVEN, quantize.CODES, bits_from_float(q), w)
            codes[i] = code
            factors[i] = nvfp4_factor(variant, unpack.number_of(code, r), second, largest, inverts)

    return loop
