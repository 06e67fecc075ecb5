"""The scale of each block by the rules of `quantize_blocks`.

All arithmetic is the project's own: each operation is one rounding, ties to even, in the format of the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.float_array import FloatArray
from floatsim.emulator.elementwise import convert, elementwise
from floatsim.emulator.quantization import Blocks, largest
from floatsim.formats import E4M3, FP64, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import Overflow, RoundingAttributes
from floatsim.quantization.integer import IntegerFormat
from floatsim.quantization.scheme import Scheme, largest_number

__all__ = ["Extremes", "Scaling", "given_scaling", "number", "rounded", "scaling_of", "to_format"]

Array: TypeAlias = NDArray[Any]

_NEAREST = CallOptions(RoundingAttributes())
_SATURATING = CallOptions(RoundingAttributes(overflow=Overflow.SATURATE_FINITE))


def to_format(x: FloatArray, fmt: FloatFormat) -> FloatArray:
    """Return x rounded to a format, ties to even; beyond the largest number, the largest number."""
    return FloatArray(convert(x.codes, x.format, fmt, _SATURATING, False)[0], fmt)


def number(value: float | Array, fmt: FloatFormat) -> FloatArray:
    """Return float64 numbers rounded to a format, ties to even."""
    return to_format(FloatArray(np.asarray(value, np.float64).view(np.uint64), FP64), fmt)


def rounded(name: str, x: FloatArray, y: FloatArray, *, saturate: bool = False) -> FloatArray:
    """Return the result of an operation on numbers of one format, rounded to it, ties to even."""
    fmt, options = x.format, _SATURATING if saturate else _NEAREST
    return FloatArray(elementwise(name, [(x.codes, fmt), (y.codes, fmt)], fmt, options, False)[0], fmt)


@dataclass(frozen=True)
class Scaling:
    """The scales of the blocks, and how an element is scaled; all arrays have the shape of the blocks.

    Attributes
    ----------
    scales : FloatArray
        The scales, in their format.
    factors : FloatArray
        What the elements are multiplied with, or divided by, in the format of the arithmetic.
    operation : str
        "multiply" or "divide".
    zero_points : int64 array or None
        The integers that are added to the elements.
    tensor_scale : FloatArray or None
        A further scale of the whole tensor.
    """

    scales: FloatArray
    factors: FloatArray
    operation: str
    zero_points: Array | None = None
    tensor_scale: FloatArray | None = None


class Extremes:
    """The largest magnitudes of the elements of each block, and the format of the arithmetic.

    Parameters
    ----------
    codes : ndarray
        A stack of matrices.
    fmt : FloatFormat
        The format of the codes, which is that of the arithmetic.
    blocks : Blocks
        The blocks of the matrices.
    """

    def __init__(self, codes: Array, fmt: FloatFormat, blocks: Blocks) -> None:
        self._codes, self.format, self.blocks = codes, fmt, blocks
        self._known: dict[str, FloatArray] = {}

    def magnitude(self, part: str = "magnitude") -> FloatArray:
        """Return the largest magnitude of each block, of the positive or of the negative elements."""
        if part not in self._known:
            self._known[part] = FloatArray(largest(self._codes, self.format, self.blocks, part), self.format)
        return self._known[part]

    def constant(self, value: float) -> FloatArray:
        return number(value, self.format)


def _replaced(x: FloatArray, where: Array, value: float) -> FloatArray:
    """Return x with a number in the place of some elements."""
    return FloatArray(np.where(where, number(value, x.format).codes, x.codes), x.format)


def _usable(scales: FloatArray, amax: Array) -> FloatArray:
    """Return positive scales: 1 for blocks of zeros and blocks with NaN or infinity, else at least the least number."""
    scales = _replaced(scales, ~(scales.values > 0), scales.format.smallest_subnormal)  # E8M0 has NaN in place of zero
    return _replaced(scales, (amax == 0) | ~np.isfinite(amax), 1.0)


def _with_factors(scheme: Scheme, scales: FloatArray, fmt: FloatFormat, **more: Any) -> Scaling:
    """Return the scaling by quotients, or by rounded reciprocals."""
    exact = to_format(scales, fmt)
    if scheme.factor == "divide":
        return Scaling(scales, exact, "divide", **more)
    return Scaling(scales, rounded("divide", number(1.0, fmt), exact, saturate=True), "multiply", **more)


def _at_least(x: FloatArray, least: float) -> FloatArray:
    """Return the larger of each number and a constant; NaN stays."""
    return _replaced(x, x.values < number(least, x.format).values, least) if least else x


def _absmax(x: Extremes, scheme: Scheme) -> Scaling:
    amax = _at_least(x.magnitude(), scheme.least_amax)
    values, limit, target = amax.values, x.constant(largest_number(scheme.format)), scheme.scale_format
    if scheme.factor != "multiplier":
        return _with_factors(scheme, _usable(to_format(rounded("divide", amax, limit), target), values), x.format)
    plain = (values == 0) | ~np.isfinite(values)
    factors = rounded("divide", limit, _replaced(amax, plain, 1.0), saturate=True)
    factors = _replaced(factors, plain, 1.0)
    scales = _usable(to_format(rounded("divide", x.constant(1.0), factors), target), values)
    return Scaling(scales, factors, "multiply")


def _full_range(x: Extremes, scheme: Scheme) -> Scaling:
    fmt = _integers(scheme)
    amax = _at_least(x.magnitude(), scheme.least_amax)
    doubled = rounded("add", amax, amax)
    scales = to_format(rounded("divide", doubled, x.constant(fmt.max - fmt.min)), scheme.scale_format)
    zero = np.full(amax.shape, (fmt.max + fmt.min + 1) // 2, np.int64)
    return _with_factors(scheme, _usable(scales, amax.values), x.format, zero_points=zero)


def _no_clipping(x: Extremes, scheme: Scheme) -> Scaling:
    fmt = _integers(scheme)
    if fmt.min == 0:
        raise ValueError(f"rule='no_clipping' needs negative integers, which {fmt.name} has not; use 'full_range'")
    up = rounded("divide", x.magnitude("positive"), x.constant(fmt.max))
    down = rounded("divide", x.magnitude("negative"), x.constant(-fmt.min))
    scales = to_format(rounded("maximum", up, down), scheme.scale_format)
    return _with_factors(scheme, _usable(scales, x.magnitude().values), x.format)


def _asymmetric(x: Extremes, scheme: Scheme) -> Scaling:
    fmt = _integers(scheme)
    high, low = x.magnitude("positive"), x.magnitude("negative")
    width = rounded("divide", rounded("add", high, low), x.constant(fmt.max - fmt.min))
    scales = _usable(to_format(width, scheme.scale_format), x.magnitude().values)
    below = rounded("divide", low, to_format(scales, x.format)).values
    zero = np.clip(fmt.min + np.rint(below), fmt.min, fmt.max).astype(np.int64)
    return _with_factors(scheme, scales, x.format, zero_points=zero)


def _integers(scheme: Scheme) -> IntegerFormat:
    assert isinstance(scheme.format, IntegerFormat)  # `Scheme` refuses these rules for others
    return scheme.format


_Exponent: TypeAlias = "Callable[[Array, Array, int, Scheme], Array]"


def _floor(fraction: Array, exponent: Array, bits: int, scheme: Scheme) -> Array:
    return exponent - _float_format(scheme).emax


def _ceil(fraction: Array, exponent: Array, bits: int, scheme: Scheme) -> Array:
    return exponent + (fraction > 0) - _float_format(scheme).emax


def _even(fraction: Array, exponent: Array, bits: int, scheme: Scheme) -> Array:
    fmt = _float_format(scheme)
    tie = (1 << bits) - (1 << bits - fmt.trailing_bits - 1)  # from here on, it rounds to the next power of two
    return exponent + (fraction >= tie) - fmt.emax


def _rceil(fraction: Array, exponent: Array, bits: int, scheme: Scheme) -> Array:
    half, above = math.frexp(largest_number(scheme.format))
    return exponent + (fraction > int((2 * half - 1) * 2.0**bits)) - (above - 1)


def _float_format(scheme: Scheme) -> FloatFormat:
    assert isinstance(scheme.format, FloatFormat)  # `Scheme` refuses these rules for others
    return scheme.format


def _power_of_two(exponent_of: _Exponent) -> Callable[[Extremes, Scheme], Scaling]:
    """Return the rule whose scales are powers of two, by a function of the largest magnitude.

    The function takes the trailing significand, the exponent and the trailing bits of its code, and the scheme. It
    returns the exponent of the scale, which is clamped to the powers of two in the format of the scales. A magnitude
    that is zero or a subnormal number has an exponent below all of these: where it has not in FP32, the code is FP64's.
    """

    def rule(x: Extremes, scheme: Scheme) -> Scaling:
        target, amax = scheme.scale_format, _at_least(x.magnitude(), scheme.least_amax)
        lowest = target.emin - target.trailing_bits
        if lowest + math.frexp(largest_number(scheme.format))[1] - 1 < amax.format.emin:
            amax = to_format(amax, FP64)
        fmt = amax.format
        bits = amax.codes.view(f"i{amax.codes.itemsize}")
        exponents = bits >> fmt.trailing_bits
        special = exponents > fmt.emax + fmt.bias
        fraction = bits & (1 << fmt.trailing_bits) - 1
        exponents = exponent_of(fraction, exponents - fmt.bias, fmt.trailing_bits, scheme)
        np.clip(exponents, lowest, target.emax, out=exponents)
        if not target.has_zero:
            codes = (exponents - target.emin).astype(target.code_dtype)
            codes[special] = target.canonical_nan
            scales = FloatArray(codes, target)
        else:
            exponents[special | (bits == 0)] = 0
            scales = number(np.ldexp(1.0, exponents), target)
        return _with_factors(scheme, scales, x.format)

    return rule


_NVFP4_LARGEST = 448.0 * 6.0


def _tensor_amax(amax: FloatArray) -> FloatArray:
    return FloatArray(amax.codes.max(initial=0), amax.format)  # codes of magnitudes are in the order of the values


def _nvfp4(x: Extremes, scheme: Scheme) -> Scaling:
    amax = x.magnitude()
    whole = _tensor_amax(amax)
    encode = rounded("divide", x.constant(_NVFP4_LARGEST), _replaced(whole, whole.values == 0, 1.0), saturate=True)
    encode = _replaced(encode, (whole.values == 0) | (encode.values == 0) | np.isnan(whole.values), 1.0)
    decode_scale = rounded("divide", x.constant(1.0), encode)
    sixth = rounded("multiply", encode, rounded("divide", x.constant(1.0), x.constant(6.0)))
    scales = to_format(rounded("multiply", amax, sixth, saturate=True), E4M3)
    product = rounded("multiply", to_format(scales, x.format), decode_scale)
    one = x.constant(1.0)
    factors = rounded("divide", one, _replaced(product, product.values == 0, 1.0), saturate=True)
    factors = _replaced(factors, product.values == 0, x.format.max)
    return Scaling(scales, factors, "multiply", tensor_scale=decode_scale)


def _nvfp4_torchao(x: Extremes, scheme: Scheme) -> Scaling:
    amax = x.magnitude()
    whole = rounded("divide", _tensor_amax(amax), x.constant(_NVFP4_LARGEST))
    whole = _replaced(whole, (whole.values == 0) | ~np.isfinite(whole.values), 1.0)
    scales = _torchao_scales(rounded("divide", rounded("divide", amax, x.constant(6.0)), whole, saturate=True))
    inverse = rounded("divide", x.constant(1.0), whole, saturate=True)
    factors = rounded("divide", inverse, to_format(scales, x.format))
    return Scaling(scales, factors, "multiply", tensor_scale=whole)


def _nvfp4_single(x: Extremes, scheme: Scheme) -> Scaling:
    return _with_factors(scheme, _torchao_scales(rounded("divide", x.magnitude(), x.constant(6.0))), x.format)


def _torchao_scales(x: FloatArray) -> FloatArray:
    return to_format(_at_least(x, E4M3.smallest_normal), E4M3)


_RULES: dict[str, Callable[[Extremes, Scheme], Scaling]] = {
    "absmax": _absmax,
    "full_range": _full_range,
    "no_clipping": _no_clipping,
    "asymmetric": _asymmetric,
    "floor": _power_of_two(_floor),
    "ceil": _power_of_two(_ceil),
    "even": _power_of_two(_even),
    "rceil": _power_of_two(_rceil),
    "nvfp4": _nvfp4,
    "nvfp4_torchao": _nvfp4_torchao,
    "nvfp4_single": _nvfp4_single,
}


def scaling_of(extremes: Extremes, scheme: Scheme) -> Scaling:
    """Return the scales of the blocks by the rule of the scheme."""
    return _RULES[scheme.rule](extremes, scheme)


def given_scaling(
    scale: FloatArray, zero_points: Array | None, fmt: FloatFormat, blocks: Blocks, scheme: Scheme
) -> Scaling:
    """Return the scaling by the scales of the caller, which are rounded to the format of the scales."""
    scales = _from_values(scale, scheme.scale_format)
    scales = FloatArray(scales.codes.reshape(blocks.grid), scales.format)
    zero = None if zero_points is None else zero_points.reshape(blocks.grid)
    if scheme.factor == "multiplier":
        scheme = Scheme(scheme.format, scheme.block, scheme.scale_format, "absmax", "reciprocal")
    return _with_factors(scheme, scales, fmt, zero_points=zero)


def _from_values(scale: FloatArray, target: FloatFormat) -> FloatArray:
    scales = scale if scale.format == target else to_format(scale, target)
    values = scales.values
    if not np.all(np.isfinite(scale.values) & (values > 0)):
        raise ValueError(f"scale must be positive and finite in {target.name}, the format of the scales; got {values}")
    return scales
