"""The scale of each block by the rules of `quantize_blocks`.

All arithmetic is the project's own: each operation is one rounding, ties to even, in the format of the arithmetic.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.float_array import FloatArray
from floatsim.emulator.elementwise.block_scales import (
    Blocks,
    Piece,
    largest,
    largest_of_piece,
    largest_of_signs,
    largest_of_signs_of_piece,
    nearest,
    numbers_of,
    nvfp4_scales,
    powers_of_two,
    usable_scales,
)
from floatsim.emulator.elementwise.execute import convert
from floatsim.emulator.proofs import reciprocals_of_powers_are_exact
from floatsim.formats import E2M1, E4M3, FP64, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import Overflow, RoundingAttributes
from floatsim.formats.value_sets import contains
from floatsim.quantization.integer import IntegerFormat
from floatsim.quantization.scheme import FOUR_OVER_SIX, UE5M3, Scheme, largest_number

__all__ = [
    "SIGNED_RULES", "Extremes", "OfTensor", "OuterGroups", "Scaling", "given_scaling", "number", "rounded",
    "scaling_of", "to_format",
]  # fmt: skip

Array: TypeAlias = NDArray[Any]

_NEAREST = CallOptions(RoundingAttributes())
_SATURATING = CallOptions(RoundingAttributes(overflow=Overflow.SATURATE_FINITE))


def to_format(x: FloatArray, fmt: FloatFormat) -> FloatArray:
    """Return x rounded to a format, ties to even; beyond the largest number, the largest number."""
    own = x.format
    options = _SATURATING
    if contains(fmt, own, specials=False):  # only infinity changes
        infinite = own.has_infinity and np.any((x.codes & own.magnitude_mask) == own.infinity_code)
        options = _SATURATING if infinite else _NEAREST
    return FloatArray(convert(x.codes, own, fmt, options, False)[0], fmt)


def number(value: float | Array, fmt: FloatFormat) -> FloatArray:
    """Return float64 numbers rounded to a format, ties to even."""
    return to_format(FloatArray(np.asarray(value, np.float64).view(np.uint64), FP64), fmt)


@functools.lru_cache(maxsize=256)
def _constant(value: float, fmt: FloatFormat) -> FloatArray:
    """Return a positive number, rounded to a format."""
    return number(value, fmt)


def rounded(name: str, x: FloatArray, y: FloatArray, *, saturate: bool = False) -> FloatArray:
    """Return the result of an operation on numbers of one format, rounded to it, ties to even."""
    return FloatArray(nearest(name, x.codes, y.codes, x.format, saturate), x.format)


@dataclass
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
        A further scale of the whole tensor, or one for each group of blocks.
    zeros : ndarray or None
        The zero points as floats of the arithmetic.
    overflowed : bool ndarray or None
        The blocks whose scale is beyond the largest number of its format.
    """

    scales: FloatArray
    factors: FloatArray
    operation: str
    zero_points: Array | None = None
    tensor_scale: FloatArray | None = None
    zeros: Array | None = None
    overflowed: Array | None = None

    def __post_init__(self) -> None:
        if self.zero_points is not None:
            self.zeros = self.zero_points.astype(self.factors.format.dtype)

    @classmethod
    def empty(cls, x: Extremes, scheme: Scheme) -> Scaling:
        """Return a scaling whose numbers are not set yet."""
        grid, target = x.blocks.grid, scheme.scale_format
        scales, factors = np.empty(grid, target.code_dtype), np.empty(grid, x.format.code_dtype)
        zero_points = np.zeros(grid, np.int64) if scheme.rule in _WITH_ZERO_POINTS else None
        overflowed = np.zeros(grid, np.bool_)
        codes = FloatArray(scales, target), FloatArray(factors, x.format)
        return cls(*codes, "", zero_points, overflowed=overflowed)

    def store(self, index: Any, part: Scaling) -> None:
        """Set the numbers of the blocks of an index, and what all blocks have in common."""
        self.scales.codes[index], self.factors.codes[index] = part.scales.codes, part.factors.codes
        if self.zero_points is not None and self.zeros is not None:
            self.zero_points[index], self.zeros[index] = part.zero_points, part.zeros
        if self.overflowed is not None and part.overflowed is not None:
            self.overflowed[index] = part.overflowed
        self.operation, self.tensor_scale = part.operation, part.tensor_scale


class OuterGroups(NamedTuple):
    """The blocks that share a second scale: `size` neighbours of the `across` blocks of a row of blocks."""

    across: int
    size: int

    def largest(self, codes: Array) -> Array:
        """Return the largest code of each group, (rows of blocks, groups)."""
        rows = codes.reshape(codes.size // self.across, self.across)
        groups = -(-self.across // self.size)
        padded = np.pad(rows, ((0, 0), (0, groups * self.size - self.across)))
        found: Array = padded.reshape(len(rows), groups, self.size).max(axis=2, initial=0)
        return found

    def spread(self, codes: Array, grid: tuple[int, ...]) -> Array:
        """Return one code for each block."""
        return np.repeat(codes, self.size, axis=-1)[..., : self.across].reshape(grid)


class OfTensor(NamedTuple):
    """What the caller gives in place of the largest magnitude of the tensor, or of those of the groups of blocks."""

    amax: FloatArray | None = None
    scale: FloatArray | None = None

    @property
    def is_given(self) -> bool:
        return self.amax is not None or self.scale is not None


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
    groups : OuterGroups, optional
        The blocks that share a second scale. Default: all.
    of_tensor : OfTensor
        What the caller gives.
    """

    def __init__(
        self, codes: Array, fmt: FloatFormat, blocks: Blocks, groups: OuterGroups | None = None,
        of_tensor: OfTensor = OfTensor(),  # noqa: B008  # immutable
    ) -> None:  # fmt: skip
        self._codes, self.format, self.blocks, self.groups, self.given = codes, fmt, blocks, groups, of_tensor
        self._known: FloatArray | None = None
        self._signs: tuple[FloatArray, FloatArray] | None = None
        self._of_tensor: dict[Any, tuple[FloatArray, ...]] = {}
        self._outer_scale: FloatArray | None = None
        self._outer_amax: FloatArray | None = None
        self._tensor: Extremes = self
        self._piece: Piece | None = None

    def of(self, piece: Piece) -> Extremes:
        """Return those of the blocks of a piece, which has whole blocks."""
        part = Extremes(self._codes, self.format, self.blocks, self.groups, self.given)
        part._tensor, part._piece = self, piece
        return part

    def magnitude(self) -> FloatArray:
        """Return the largest magnitude of each block."""
        if self._known is None:
            self._known = FloatArray(self._largest(), self.format)
        return self._known

    def _largest(self) -> Array:
        if self._piece is None:
            return largest(self._codes, self.format, self.blocks)
        if self._tensor._known is not None:
            return self._tensor._known.codes[self._piece.of_grid(self.blocks)]
        return largest_of_piece(self._codes, self.format, self.blocks, self._piece)

    def of_signs(self) -> tuple[FloatArray, FloatArray]:
        """Return the largest magnitudes of the positive and of the negative elements, read once.

        The larger one is the largest magnitude of the block.
        """
        if self._signs is None:
            what = self._codes, self.format, self.blocks
            up, down = largest_of_signs(*what) if self._piece is None else largest_of_signs_of_piece(*what, self._piece)
            self._signs = FloatArray(up, self.format), FloatArray(down, self.format)
            self._known = FloatArray(np.maximum(up, down), self.format)
        return self._signs

    def outer_amax(self) -> FloatArray:
        """Return the largest magnitude of the tensor, or of each group of blocks, as it is or as it is given."""
        if self._tensor is not self:
            return self._tensor.outer_amax()
        if self.given.amax is not None:
            return self.given.amax
        if self._outer_amax is None:
            codes = self.magnitude().codes  # codes of magnitudes are in the order of the values
            found = codes.max(initial=0) if self.groups is None else self.groups.largest(codes)
            self._outer_amax = FloatArray(np.asarray(found, self.format.code_dtype), self.format)
        return self._outer_amax

    def of_tensor(self, rule: _TensorRule, limit: float) -> tuple[FloatArray, ...]:
        """Return the numbers that follow from the largest magnitude of the tensor, computed once.

        They are one number each, or arrays in the shape of the blocks.
        """
        if self._tensor is not self:
            found = self._tensor.of_tensor(rule, limit)
            if self._piece is None or self.groups is None:
                return found
            index = self._piece.of_grid(self.blocks)
            return tuple(FloatArray(each.codes[index], each.format) for each in found)
        if rule not in self._of_tensor:
            numbers = rule(self, limit)
            self._outer_scale = numbers[0]
            groups, grid = self.groups, self.blocks.grid
            if groups is not None:
                numbers = tuple(FloatArray(groups.spread(each.codes, grid), each.format) for each in numbers)
            self._of_tensor[rule] = numbers
        return self._of_tensor[rule]

    def outer_scale(self) -> FloatArray | None:
        """Return the scale of the tensor, or those of the groups of blocks, after `of_tensor`."""
        return self._tensor._outer_scale

    def may_overflow(self) -> bool:
        """Return whether a block scale may be too large: its second scale does not follow from the tensor."""
        if self.given.is_given:
            return True
        return not np.all(np.isfinite(self.outer_amax().values))

    def elements(self) -> Array:
        """Return the codes of the elements as a stack of matrices: all, or those of the piece."""
        return self._codes if self._piece is None else self._piece.of(self._codes)[np.newaxis]

    def constant(self, value: float) -> FloatArray:
        return _constant(float(value), self.format)


_TensorRule: TypeAlias = "Callable[[Extremes, float], tuple[FloatArray, ...]]"
"""From what is known of the tensor and the largest block scale to the scale of the tensor and what follows from it."""


def _replaced(x: FloatArray, where: Array, value: float) -> FloatArray:
    """Return x with a positive number in the place of some elements."""
    if not where.any():
        return x
    return FloatArray(np.where(where, _constant(float(value), x.format).codes, x.codes), x.format)


def _usable(scales: FloatArray, amax: Array) -> FloatArray:
    """Return positive scales: 1 for blocks of zeros and blocks with NaN or infinity, else at least the least number."""
    # E8M0 has NaN in place of zero
    scales = _replaced(scales, ~(numbers_of(scales) > 0), scales.format.smallest_subnormal)
    return _replaced(scales, (amax == 0) | ~np.isfinite(amax), 1.0)


def _with_factors(scheme: Scheme, scales: FloatArray, fmt: FloatFormat, **more: Any) -> Scaling:
    """Return the scaling by quotients, or by rounded reciprocals."""
    exact = to_format(scales, fmt)
    if scheme.factor == "divide":
        return Scaling(scales, exact, "divide", **more)
    return Scaling(scales, rounded("divide", _constant(1.0, fmt), exact, saturate=True), "multiply", **more)


def _from_codes(found: tuple[Array, Array], scheme: Scheme, fmt: FloatFormat, divides: bool, **more: Any) -> Scaling:
    """Return the scaling of the results of a kernel."""
    scales, factors = FloatArray(found[0], scheme.scale_format), FloatArray(found[1], fmt)
    return Scaling(scales, factors, "divide" if divides else "multiply", **more)


def _rounded_scales(scheme: Scheme, quotients: FloatArray, amax: FloatArray, **more: Any) -> Scaling:
    """Return the scaling by quotients that are rounded to the format of the scales and then made usable."""
    fmt, target, divides = amax.format, scheme.scale_format, scheme.factor == "divide"
    found = usable_scales(quotients.codes, amax.codes, fmt, target, not divides)
    if found is not None:
        return _from_codes(found, scheme, fmt, divides, **more)
    return _with_factors(scheme, _usable(to_format(quotients, target), numbers_of(amax)), fmt, **more)


def _at_least(x: FloatArray, least: float) -> FloatArray:
    """Return the larger of each number and a constant; NaN stays."""
    return _replaced(x, numbers_of(x) < numbers_of(_constant(least, x.format)), least) if least else x


def _absmax(x: Extremes, scheme: Scheme) -> Scaling:
    amax, limit = _at_least(x.magnitude(), scheme.least_amax), x.constant(largest_number(scheme.format))
    if scheme.factor != "multiplier":
        return _with_nan_scales(_rounded_scales(scheme, rounded("divide", amax, limit), amax), amax)
    values, target = numbers_of(amax), scheme.scale_format
    plain = (values == 0) | ~np.isfinite(values)
    factors = rounded("divide", limit, _replaced(amax, plain, 1.0), saturate=True)
    factors = _replaced(factors, plain, 1.0)
    scales = _usable(to_format(rounded("divide", x.constant(1.0), factors), target), values)
    return _with_nan_scales(Scaling(scales, factors, "multiply"), amax)


def _with_nan_scales(scaling: Scaling, amax: FloatArray) -> Scaling:
    """Return the scaling with NaN for blocks with NaN, if the scales are those of an NVFP4 without a second level."""
    fmt = scaling.scales.format
    missing = np.isnan(numbers_of(amax)) if fmt == UE5M3 else np.False_
    if not np.any(missing):
        return scaling
    scales, factors = scaling.scales.copy(), scaling.factors.copy()
    for numbers in (scales, factors):
        nan = numbers.format.canonical_nan
        assert nan is not None
        numbers.codes[missing] = nan
    return replace(scaling, scales=scales, factors=factors)


def _full_range(x: Extremes, scheme: Scheme) -> Scaling:
    fmt = _integers(scheme)
    amax = _at_least(x.magnitude(), scheme.least_amax)
    quotients = rounded("divide", rounded("add", amax, amax), x.constant(fmt.max - fmt.min))
    zero = np.full(amax.shape, (fmt.max + fmt.min + 1) // 2, np.int64)
    return _rounded_scales(scheme, quotients, amax, zero_points=zero)


def _no_clipping(x: Extremes, scheme: Scheme) -> Scaling:
    fmt = _integers(scheme)
    if fmt.min == 0:
        raise ValueError(f"rule='no_clipping' needs negative integers, which {fmt.name} has not; use 'full_range'")
    high, low = x.of_signs()
    up, down = rounded("divide", high, x.constant(fmt.max)), rounded("divide", low, x.constant(-fmt.min))
    return _rounded_scales(scheme, rounded("maximum", up, down), x.magnitude())


def _asymmetric(x: Extremes, scheme: Scheme) -> Scaling:
    fmt = _integers(scheme)
    high, low = x.of_signs()
    width = rounded("divide", rounded("add", high, low), x.constant(fmt.max - fmt.min))
    scaling = _rounded_scales(scheme, width, x.magnitude())
    exact = scaling.factors if scaling.operation == "divide" else to_format(scaling.scales, x.format)
    below = numbers_of(rounded("divide", low, exact))
    zero = np.clip(fmt.min + np.rint(below), fmt.min, fmt.max).astype(np.int64)
    return replace(scaling, zero_points=zero)


def _integers(scheme: Scheme) -> IntegerFormat:
    assert isinstance(scheme.format, IntegerFormat)  # `Scheme` refuses these rules for others
    return scheme.format


_Carry: TypeAlias = "Callable[[int, Scheme], tuple[int, int]]"


def _emax(scheme: Scheme) -> int:
    """Return the exponent of the largest number of the format of the elements."""
    return math.frexp(largest_number(scheme.format))[1] - 1


def _floor(bits: int, scheme: Scheme) -> tuple[int, int]:
    return 1 << bits, _emax(scheme)


def _ceil(bits: int, scheme: Scheme) -> tuple[int, int]:
    return 0, _emax(scheme)


def _even(bits: int, scheme: Scheme) -> tuple[int, int]:
    fmt = _float_format(scheme)
    tie = (1 << bits) - (1 << bits - fmt.trailing_bits - 1)  # from here on, it rounds to the next power of two
    return tie - 1, fmt.emax


def _rceil(bits: int, scheme: Scheme) -> tuple[int, int]:
    half, above = math.frexp(largest_number(scheme.format))
    return int((2 * half - 1) * 2.0**bits), above - 1


def _float_format(scheme: Scheme) -> FloatFormat:
    assert isinstance(scheme.format, FloatFormat)  # `Scheme` refuses these rules for others
    return scheme.format


def _power_of_two(carry_and_offset: _Carry) -> Callable[[Extremes, Scheme], Scaling]:
    """Return the rule whose scales are powers of two, 2**(floor(log2(amax)) - offset).

    The exponent is one more if the trailing significand of amax is larger than `carry`. The function returns both, by
    the number of trailing bits and the scheme. The exponent is clamped to the powers of two in the scales' format.
    """

    def rule(x: Extremes, scheme: Scheme) -> Scaling:
        fmt, target, amax = x.format, scheme.scale_format, x.magnitude()
        divides = scheme.factor == "divide" and not reciprocals_of_powers_are_exact(target, fmt)
        carry, offset = carry_and_offset(FP64.trailing_bits, scheme)
        least = float(_constant(scheme.least_amax, fmt).values) if scheme.least_amax else 0.0
        found = powers_of_two(amax.codes, fmt, target, least, carry, offset, not divides)
        if found is not None:
            return _from_codes(found, scheme, fmt, divides)
        wide = convert(_at_least(amax, least).codes, fmt, FP64, _NEAREST, False)[0]
        return _with_factors(scheme, _powers(FloatArray(wide, FP64), target, carry, offset), fmt)

    return rule


def _powers(amax: FloatArray, target: FloatFormat, carry: int, offset: int) -> FloatArray:
    """Return the powers of two by the codes of amax in FP64. Subnormal numbers have an exponent below all results."""
    bits = amax.codes.view(np.int64)
    fields, fraction = bits >> FP64.trailing_bits, bits & (1 << FP64.trailing_bits) - 1
    special = fields > FP64.emax + FP64.bias
    exponents = fields - FP64.bias + (fraction > carry) - offset
    exponents = np.clip(exponents, target.emin - target.trailing_bits, target.emax)
    if not target.has_zero:
        codes = (exponents - target.emin).astype(target.code_dtype)
        codes[special] = target.canonical_nan
        return FloatArray(codes, target)
    exponents[special | (bits == 0)] = 0
    return number(np.ldexp(1.0, exponents), target)


# -- NVFP4 -------------------------------------------------------------------------------------------------------------

_SIX = E2M1.max
_OVERFLOW = E4M3.max + 2.0 ** (E4M3.emax - E4M3.trailing_bits - 1)
"""A block scale above this number, half a unit above the largest one, overflows."""


def _e4m3_scales(quotients: FloatArray, scheme: Scheme) -> tuple[FloatArray, Array]:
    """Return block scales, and which of them overflow: they become the largest number, or NaN."""
    numbers = numbers_of(quotients)
    overflowed = np.asarray((numbers > _OVERFLOW) & np.isfinite(numbers))
    if scheme.scale_overflow == "nan":
        return FloatArray(convert(quotients.codes, quotients.format, E4M3, _NEAREST, False)[0], E4M3), overflowed
    return to_format(quotients, E4M3), overflowed


def _te_of_tensor(x: Extremes, limit: float) -> tuple[FloatArray, ...]:
    """Return the scale of the tensor, its reciprocal S, S / 6, and the largest magnitude."""
    one, whole, sixth = x.constant(1.0), x.constant(limit * _SIX), rounded("divide", x.constant(1.0), x.constant(_SIX))
    if x.given.scale is not None:
        scale = x.given.scale
        encode = rounded("divide", one, scale, saturate=True)
        return scale, encode, rounded("multiply", encode, sixth), rounded("multiply", scale, whole)
    amax = x.outer_amax()
    zero = amax.values == 0
    encode = rounded("divide", whole, _replaced(amax, zero, 1.0), saturate=True)
    plain = zero | (encode.values == 0) | np.isnan(amax.values)
    encode = _replaced(encode, plain, 1.0)
    return rounded("divide", one, encode), encode, rounded("multiply", encode, sixth), _replaced(
        amax, plain, limit * _SIX
    )  # fmt: skip


def _te_factors(scales: FloatArray, decode: FloatArray, x: Extremes) -> FloatArray:
    """Return what the elements are multiplied with; the largest number where a scale is zero."""
    product = rounded("multiply", to_format(scales, x.format), decode)
    zero = numbers_of(product) == 0
    factors = rounded("divide", x.constant(1.0), _replaced(product, zero, 1.0), saturate=True)
    return _replaced(factors, zero, x.format.max)


def _nvfp4(x: Extremes, scheme: Scheme) -> Scaling:
    decode, _, sixth, _ = x.of_tensor(_te_of_tensor, scheme.scale_limit)
    if x.groups is None and not x.may_overflow():
        found = nvfp4_scales("nvfp4", x.magnitude().codes, sixth.codes, decode.codes, True)
        if found is not None:
            return _from_codes(found, scheme, x.format, False, tensor_scale=x.outer_scale())
    scales, over = _e4m3_scales(rounded("multiply", x.magnitude(), sixth, saturate=True), scheme)
    return Scaling(
        scales, _te_factors(scales, decode, x), "multiply", tensor_scale=x.outer_scale(), overflowed=over
    )  # fmt: skip


def _torchao_of_tensor(x: Extremes, limit: float) -> tuple[FloatArray, ...]:
    """Return the scale of the tensor, its reciprocal, and six times the scale."""
    scale = x.given.scale
    if scale is None:
        scale = rounded("divide", x.outer_amax(), x.constant(limit * _SIX))
        scale = _replaced(scale, (scale.values == 0) | ~np.isfinite(scale.values), 1.0)
    inverse = rounded("divide", x.constant(1.0), scale, saturate=True)
    return scale, inverse, rounded("multiply", scale, x.constant(_SIX), saturate=True)


def _nvfp4_torchao(x: Extremes, scheme: Scheme) -> Scaling:
    whole, inverse, _ = x.of_tensor(_torchao_of_tensor, scheme.scale_limit)
    if x.groups is None and not x.may_overflow():
        found = nvfp4_scales("nvfp4_torchao", x.magnitude().codes, whole.codes, inverse.codes, True)
        if found is not None:
            return _from_codes(found, scheme, x.format, False, tensor_scale=x.outer_scale())
    sixth = rounded("divide", x.magnitude(), x.constant(_SIX))
    scales, over = _torchao_scales(rounded("divide", sixth, whole, saturate=True), scheme)
    factors = rounded("divide", inverse, to_format(scales, x.format), saturate=True)
    return Scaling(scales, factors, "multiply", tensor_scale=x.outer_scale(), overflowed=over)


def _nvfp4_modelopt(x: Extremes, scheme: Scheme) -> Scaling:
    whole, _, six = x.of_tensor(_torchao_of_tensor, scheme.scale_limit)
    quotients = rounded("divide", x.magnitude(), six, saturate=True)
    quotients = _at_least(_replaced(quotients, numbers_of(quotients) == 0, 1.0), E4M3.smallest_subnormal)
    scales, over = _e4m3_scales(quotients, scheme)
    product = rounded("multiply", to_format(scales, x.format), whole)
    product = _replaced(product, numbers_of(product) == 0, x.format.smallest_subnormal)
    more: dict[str, Any] = {"tensor_scale": x.outer_scale(), "overflowed": over}
    if scheme.factor == "divide":
        return Scaling(scales, product, "divide", **more)
    return Scaling(scales, rounded("divide", x.constant(1.0), product, saturate=True), "multiply", **more)


def _nvfp4_single(x: Extremes, scheme: Scheme) -> Scaling:
    amax, one, divides = x.magnitude(), x.constant(1.0), scheme.factor == "divide"
    if not np.any(numbers_of(amax) > _OVERFLOW * _SIX):
        found = nvfp4_scales("nvfp4_single", amax.codes, one.codes, one.codes, not divides)
        if found is not None:
            return _from_codes(found, scheme, x.format, divides)
    scales, over = _torchao_scales(rounded("divide", amax, x.constant(_SIX)), scheme)
    return _with_factors(scheme, scales, x.format, overflowed=over)


def _torchao_scales(x: FloatArray, scheme: Scheme) -> tuple[FloatArray, Array]:
    return _e4m3_scales(_at_least(x, E4M3.smallest_normal), scheme)


# -- 4over6 ------------------------------------------------------------------------------------------------------------


def _four_over_six(x: Extremes, scheme: Scheme) -> Scaling:
    """Scale the largest magnitude of each block to 6 or to 4, whichever has the smaller error; to 6 if both are equal.

    The errors are those of elements that are rounded to nearest, ties to even.
    """
    decode, encode, _, amax = x.of_tensor(_te_of_tensor, scheme.scale_limit)
    to_six = rounded("multiply", rounded("divide", x.magnitude(), x.constant(_SIX)), encode, saturate=True)
    found = []
    for quotients in (to_six, rounded("multiply", to_six, x.constant(_SIX / 4), saturate=True)):
        scales, over = _e4m3_scales(quotients, scheme)
        factors = _te_factors(scales, decode, x)
        found.append((scales, factors, over, _block_errors(x, scales, factors, amax, scheme)))
    (scales, factors, over, error), (of_four, factors_of_four, over_of_four, error_of_four) = found
    takes_four = error_of_four < error
    return Scaling(
        FloatArray(np.where(takes_four, of_four.codes, scales.codes), E4M3),
        FloatArray(np.where(takes_four, factors_of_four.codes, factors.codes), x.format),
        "multiply", tensor_scale=x.outer_scale(), overflowed=np.where(takes_four, over_of_four, over),
    )  # fmt: skip


def _block_errors(x: Extremes, scales: FloatArray, factors: FloatArray, amax: FloatArray, scheme: Scheme) -> Array:
    """Return the error of each block: the sum of magnitudes or squares, or the largest magnitude."""
    kind, limit, whole = FOUR_OVER_SIX[scheme.rule], scheme.scale_limit, scheme.block
    fmt, height, width = x.format, x.blocks.height, x.blocks.width
    stack = x.elements()
    stack = np.pad(stack, ((0, 0), (0, -stack.shape[1] % height), (0, -stack.shape[2] % width)))
    parts, rows, columns = stack.shape
    elements = FloatArray(stack.reshape(parts, rows // height, height, columns // width, width), fmt)

    def of_blocks(numbers: FloatArray) -> FloatArray:
        codes = numbers.codes
        return numbers if not codes.ndim else FloatArray(codes[:, :, np.newaxis, :, np.newaxis], fmt)

    scaled = rounded("multiply", elements, of_blocks(factors))
    codes = convert(scaled.codes, fmt, E2M1, _SATURATING, False)[0]
    numbers = FloatArray(convert(codes, E2M1, fmt, _NEAREST, False)[0], fmt)
    numbers = rounded("multiply", numbers, of_blocks(to_format(scales, fmt)))
    numbers = rounded("divide", rounded("multiply", numbers, of_blocks(amax)), x.constant(limit * _SIX))
    errors = rounded("subtract", numbers, elements)
    if kind.error == "mse":
        errors = rounded("multiply", errors, errors)
    else:
        errors = FloatArray(errors.codes & fmt.code_dtype.type(fmt.magnitude_mask), fmt)
    missing = [(0, whole[0] - height), (0, whole[1] - width), (0, 0), (0, 0), (0, 0)]  # zeros fill short blocks
    each = FloatArray(np.pad(np.moveaxis(errors.codes, (2, 4), (0, 1)), missing), fmt)
    if kind.error == "absmax":
        largest_error: Array = numbers_of(each).max(axis=(0, 1))
        return largest_error
    return numbers_of(_in_rows(each) if kind.order == "rows" else _in_lanes(each))


def _total(terms: FloatArray) -> FloatArray:
    """Return the sum along the first axis, one term after the other."""
    total = terms[0]
    for i in range(1, terms.shape[0]):
        total = rounded("add", total, terms[i])
    return total


def _in_rows(errors: FloatArray) -> FloatArray:
    """Return the sums of the elements of each row in order, then of the rows in halves."""
    rows = FloatArray(
        np.stack([_total(errors[i]).codes for i in range(errors.shape[0])]), errors.format
    )  # fmt: skip
    while rows.shape[0] > 1:
        half = rows.shape[0] // 2
        rows = rounded("add", rows[:half], rows[half:])
    return rows[0]


_LANES, _ACCUMULATORS = 8, 4  # ATen/native/cpu/SumKernel.cpp with vectors of 256 bits, at most 512 terms


def _in_lanes(errors: FloatArray) -> FloatArray:
    """Return the sums as PyTorch's CPU kernel adds 16 or 256 contiguous numbers with vectors of 8."""
    height, width, *rest = errors.shape
    vectors = errors.reshape(height * width // _LANES, _LANES, *rest)
    count = vectors.shape[0]
    if count >= _ACCUMULATORS:
        parts = [_total(vectors[i::_ACCUMULATORS]) for i in range(_ACCUMULATORS)]
        vectors = FloatArray(np.stack([part.codes for part in parts]), errors.format)
    return _total(_total(vectors))


_WITH_ZERO_POINTS = ("full_range", "asymmetric")
SIGNED_RULES = ("no_clipping", "asymmetric")
"""The rules whose scales depend on the largest magnitudes of the positive and of the negative elements."""
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
    "nvfp4_modelopt": _nvfp4_modelopt,
    "nvfp4_single": _nvfp4_single,
    **dict.fromkeys(FOUR_OVER_SIX, _four_over_six),
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
    given = scale.values
    scales = scale if scale.format == target else to_format(scale, target)
    usable = np.isfinite(given) & (scales.values > 0) & (given <= target.max)
    if not np.all(usable):
        wrong = np.asarray(given)[~np.asarray(usable)].flat[0]
        raise ValueError(
            f"scale must be positive and finite in {target.name}, the format of the scales, and at most its largest "
            f"number, {target.max:g}; got {wrong:g}"
        )
    return scales
