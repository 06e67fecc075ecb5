"""Formats and roundings as the parameter vectors that kernels read.

Each kernel module names the fields of its vectors and their order; `pack` builds one from a dict. All functions are
cached, and their arrays are read-only.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from floatsim_kernels.elementwise import ordering as ordering_loops
from floatsim_kernels.elementwise import quantize as quantize_loops
from floatsim_kernels.elementwise import unpack as unpack_loops
from floatsim_kernels.gemm import float32_counting as counting_loops
from floatsim_kernels.gemm import float64 as float64_loops
from floatsim_kernels.rounding import float32 as steps
from floatsim_kernels.rounding import integer as integer_rounding
from floatsim_kernels.rounding import random_sources

from floatsim.formats import BF16, FP32, FloatFormat
from floatsim.formats.random_source import RandomSource
from floatsim.formats.rounding import Overflow, Rounding, RoundingAttributes, Tininess
from floatsim.formats.value_sets import contains
from floatsim.reference import NAN, Kind, Number, convert, decode, nan_result

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "carrier_rounding", "counting_rounding", "fast_float32_rounding", "float32_bits", "float32_rounding",
    "float64_rounding", "format_params", "order_params", "overflow_results", "pack", "rounding_params",
    "scale_exponent", "source_params", "unpack_params",
]  # fmt: skip


def pack(layout: tuple[str, ...], fields: Mapping[str, Any], dtype: Any, size: int = 0) -> NDArray[Any]:
    """Return the fields in the order of a layout, as a read-only vector of at least `size` elements.

    >>> pack(("emin", "max"), {"max": 7, "emin": -2}, np.int64)
    array([-2,  7])
    """
    params = np.zeros(max(size, len(layout)), dtype)
    params[: len(layout)] = [fields[name] for name in layout]
    params.flags.writeable = False
    return params


def float32_bits(x: float) -> int:
    """Return the bits of a number as float32."""
    return int(np.float32(x).view(np.uint32))


def _power(exponent: int) -> float:
    return math.ldexp(1.0, exponent)


# -- integer kernels ---------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def format_params(fmt: FloatFormat) -> NDArray[np.int64]:
    """Return a format's parameters for the integer kernels."""
    fields = {
        "precision": fmt.precision,
        "emin": fmt.emin,
        "max_code": fmt.max_code,
        "infinity": -1 if fmt.infinity_code is None else fmt.infinity_code,
        "nan": -1 if fmt.canonical_nan is None else fmt.canonical_nan,
        "sign_shift": fmt.exponent_bits + fmt.trailing_bits,
        "quiet_bit": fmt.quiet_bit,
        "signed_zero": int(fmt.has_signed_zero),
        "is_scale": int(not fmt.has_zero),
    }
    return pack(integer_rounding.FORMAT_FIELDS, fields, np.int64)


@functools.lru_cache(maxsize=256)
def rounding_params(attributes: RoundingAttributes) -> NDArray[np.int64]:
    """Return the parameters of a rounding for the integer kernels, those of its generator included."""
    fields = {
        "rounding": attributes.rounding.value,
        "overflow": attributes.overflow.value,
        "daz": int(attributes.daz),
        "ftz": int(attributes.ftz),
        "tiny_before": attributes.tininess.value,
        "random_bits": attributes.random_bits,
    }
    own = pack(integer_rounding.ROUNDING_FIELDS, fields, np.int64)
    return _joined(own, source_params(attributes.source or RandomSource()))


def _joined(*parts: NDArray[np.int64]) -> NDArray[np.int64]:
    params = np.concatenate(parts)
    params.flags.writeable = False
    return params


@functools.lru_cache(maxsize=64)
def source_params(source: RandomSource) -> NDArray[np.int64]:
    """Return the parameters of a generator of random bits."""
    fields = {
        "generator": int(source.generator),
        "per_counter": source.per_counter,
        "first_counter": source.first_counter,
        "low_bits": int(source.low_bits),
        "rounds": source.rounds,
        "width": source.width,
        "taps": source.taps - (source.taps >> 63 << 64),  # the bits of an int64
        "steps": source.steps,
    }
    return pack(random_sources.SOURCE_FIELDS, fields, np.int64)


# -- what overflow becomes ---------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def overflow_results(fmt: FloatFormat, attributes: RoundingAttributes) -> tuple[float, float, float, float]:
    """Return what overflow (+, -), an infinite sum, and NaN become in a format, as magnitudes.

    The reference decides; 2**5000 is beyond every format. Infinite sums do not saturate: the overflow policy is of
    finite sums. NaN stands for NaN.
    """

    def magnitude(number: Number, attributes: RoundingAttributes) -> float:
        code, _ = convert(number, fmt, attributes)
        result = decode(code, fmt)
        return math.nan if result.is_nan else math.inf if result.is_infinite else fmt.max

    positive, negative = (magnitude(Number(Kind.FINITE, sign, 1, 5000), attributes) for sign in (0, 1))
    exact = RoundingAttributes()
    return positive, negative, magnitude(Number(Kind.INFINITE, 0), exact), magnitude(NAN, exact)


# -- float32 kernels ---------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def float32_rounding(fmt: FloatFormat, attributes: RoundingAttributes) -> NDArray[np.uint32]:
    """Return the parameters of the general rounding from float32: any direction and every number.

    `proofs.rounds_by_addition` defines the supported formats.
    """
    overflow, negative_overflow, infinity, nan = (float32_bits(x) for x in overflow_results(fmt, attributes))
    fields = {
        "emin": float32_bits(_power(fmt.emin)),
        "limit": float32_bits(_power(fmt.emax + 1)),
        "above": FP32.precision - fmt.precision << FP32.trailing_bits,
        "max": float32_bits(fmt.max),
        "overflow": overflow,
        "negative_overflow": negative_overflow,
        "infinity": infinity,
        "nan": nan,
    }
    return pack(steps.GENERAL_FIELDS, fields, np.uint32, steps.PARAMS_SIZE)


@functools.lru_cache(maxsize=256)
def fast_float32_rounding(
    fmt: FloatFormat, style: int, direction: int, attributes: RoundingAttributes, shift: int = 0
) -> NDArray[np.uint32] | None:
    """Return the parameters of a fast style of rounding from float32, or None where it is not for the format.

    Sums are scaled by 2**shift, such that those which overflow the format overflow float32, too; BF16's by the given
    shift.
    """
    if fmt.precision > 11:
        return None
    more = FP32.precision - fmt.precision
    factor, low, most, high, infinite = 1.5 * _power(more), -math.inf, math.inf, math.inf, 0
    if style == steps.RNE and fmt != BF16:
        shift = FP32.emax + 1 - fmt.emax - more
    elif fmt != BF16:
        positive, negative, _, _ = overflow_results(fmt, attributes)
        overflow = float32_bits(negative if direction == steps.TOWARD_NEGATIVE else positive)
        low, most, high = -fmt.max, fmt.max, fmt.max
        if style == steps.DIRECTED:
            shift = FP32.emax - fmt.emax - more
            if overflow != float32_bits(fmt.max):
                factor, high, infinite = _power(more + 1) - 2, _power(fmt.emax + 1), overflow
    if style == steps.RTZ:
        factor = _power(more)
    if abs(shift) > -FP32.emin:
        return None
    scale = _power(shift)
    sign = -1 if direction == steps.TOWARD_NEGATIVE else 1
    fields = {
        "emin": float32_bits(_power(max(fmt.emin + shift, FP32.emin))),
        "factor": float32_bits(_power(more)),
        "clamp_factor": float32_bits(factor),
        "scale": float32_bits(sign * scale),
        "unscale": float32_bits(sign / scale),
        "lowest": float32_bits(low * scale),
        "highest": float32_bits(most * scale),
        "above_highest": float32_bits(high * scale),
        "infinite_result": infinite,
        "zero": FP32.sign_mask if sign < 0 else 0,
        "random_mask": 2**32 - 2 ** max(32 - attributes.random_bits, 0),
    }
    return pack(steps.FAST_FIELDS, fields, np.uint32, steps.PARAMS_SIZE)


@functools.lru_cache(maxsize=256)
def counting_rounding(fmt: FloatFormat, tininess: Tininess) -> NDArray[np.uint32]:
    """Return the parameters of the kernels that count events while they round to the format, ties to even.

    "tiny" is the least magnitude that is not tiny: 2**emin, or after rounding what rounds up to it with unbounded
    exponent.
    """
    least = fmt.smallest_normal
    fields = {
        "emin": float32_bits(least),
        "limit": fmt.emax + 1 + FP32.bias << FP32.trailing_bits,
        "above": FP32.precision - fmt.precision << FP32.trailing_bits,
        "max": float32_bits(fmt.max),
        "overflow": float32_bits(math.inf if fmt.has_infinity else math.nan),
        "tiny": float32_bits(least if tininess is Tininess.BEFORE else least * (1 - 2.0 ** -(fmt.precision + 1))),
        "smallest_normal": float32_bits(least),
    }
    return pack(counting_loops.COUNTING_FIELDS, fields, np.uint32)


def scale_exponent(params: NDArray[np.uint32]) -> int:
    """Return the exponent of the scale in the parameters of a fast style."""
    return (int(params[steps.SCALE]) >> FP32.trailing_bits & 0xFF) - FP32.bias


@functools.lru_cache(maxsize=64)
def unpack_params(fmt: FloatFormat) -> NDArray[np.uint32] | None:
    """Return the parameters that turn codes into float32 and back by shifts; None where that is not exact.

    2**emin must be a normal float32 number. Without NaN or infinity no code may equal the numbers in their places.
    """
    if not contains(FP32, fmt, specials=False) or fmt.is_scale or fmt.emin < FP32.emin or fmt.bits > 32:
        return None
    if fmt.canonical_nan is None and fmt.bits == 32:
        return None
    fields = {
        "sign": fmt.sign_mask,
        "magnitude": fmt.magnitude_mask,
        "sign_shift": 32 - fmt.bits,
        "shift": FP32.trailing_bits - fmt.trailing_bits,
        "emin": float32_bits(_power(fmt.emin)),
        "max_code": fmt.max_code,
        "infinity": 0xFFFFFFFF if fmt.infinity_code is None else fmt.infinity_code,
        "nan": 0xFFFFFFFF if fmt.canonical_nan is None else fmt.canonical_nan,
        "infinite_result": fmt.infinity_code or 0,
        "nan_result": nan_result(fmt)[0],
        "zero_sign": 0xFFFFFFFF if fmt.has_signed_zero else 0,
    }
    return pack(unpack_loops.UNPACK_FIELDS, fields, np.uint32)


@functools.lru_cache(maxsize=256)
def order_params(fmt: FloatFormat) -> NDArray[np.unsignedinteger[Any]]:
    """Return the parameters of the comparisons of packed codes."""
    half, everything = 1 << 8 * fmt.code_dtype.itemsize - 1, (1 << 8 * fmt.code_dtype.itemsize) - 1
    largest, nan = fmt.max_code if fmt.infinity_code is None else fmt.infinity_code, fmt.canonical_nan
    if nan is None:
        nans = 0, 0, 0
    elif not fmt.sign_mask:  # the codes above the largest
        nans = half, everything, (largest - half) & everything
    elif nan & fmt.magnitude_mask > largest:
        nans = 0, fmt.magnitude_mask, largest
    else:  # one code: it becomes the largest signed integer
        nans = (nan - (half - 1)) & everything, everything, half - 2
    fields = {
        "sign": fmt.sign_mask,
        "magnitude": fmt.magnitude_mask,
        "flip": 0 if fmt.magnitude_mask < half else half,
        **dict(zip(("nan_base", "nan_mask", "nan_limit"), nans, strict=True)),
        "nan_result": nan_result(fmt)[0],
    }
    return pack(ordering_loops.ORDER_FIELDS, fields, fmt.code_dtype)


# -- rounding from the codes of a carrier ------------------------------------------------------------------------------


class _FromCarrier(NamedTuple):
    """A rounding from codes of a carrier to values of the carrier, or with `codes` to codes of the format."""

    carrier: FloatFormat
    fmt: FloatFormat
    attributes: RoundingAttributes
    codes: bool

    def power(self, exponent: int) -> int:
        """Return the carrier's code of a power of two."""
        return exponent + self.carrier.bias << self.carrier.trailing_bits

    def result(self, number: Number) -> int:
        """Return the code of a rounded number, in the format of the results."""
        code, _ = convert(number, self.fmt, self.attributes)
        return code if self.codes else convert(decode(code, self.fmt), self.carrier, RoundingAttributes())[0]

    def clamp(self, overflow: int) -> int:
        """Return the carrier's code of the magnitude whose code is that of overflow, if that is max or the next one."""
        fmt = self.fmt
        beyond = (overflow & fmt.magnitude_mask) - fmt.max_code
        if not self.codes or beyond not in (0, 1):
            return 0
        quantum, largest = max(fmt.emax, fmt.emin) - fmt.trailing_bits, decode(fmt.max_code, fmt)
        steps = (largest.significand << largest.exponent - quantum) + beyond
        return convert(Number(Kind.FINITE, 0, steps, quantum), self.carrier, RoundingAttributes())[0]

    def first_nan(self, sign: int) -> int:
        """Return the least magnitude of the carrier that becomes NaN. All larger ones do."""
        nan, bit = self.result(NAN), sign * self.carrier.sign_mask
        infinity = self.power(self.carrier.emax + 1)
        return bisect.bisect_left(
            range(infinity), True, key=lambda magnitude: self.result(decode(magnitude | bit, self.carrier)) == nan
        )


@functools.lru_cache(maxsize=256)
def carrier_rounding(
    carrier: FloatFormat, fmt: FloatFormat, rounding: Rounding, overflow: Overflow, codes: bool, exact_infinity: bool
) -> NDArray[Any]:
    """Return the parameters of the kernels that round the carrier's codes, to values of the carrier or to codes.

    `exact_infinity`: infinities are exact results of an operation, to which no overflow policy applies.
    """
    to = _FromCarrier(carrier, fmt, RoundingAttributes(rounding, overflow), codes)
    of_infinity = to._replace(attributes=RoundingAttributes(rounding)) if exact_infinity else to
    infinite = [of_infinity.result(Number(Kind.INFINITE, sign)) for sign in (0, 1)]
    overflows = [to.result(Number(Kind.FINITE, sign, 1, 5000)) for sign in (0, 1)]
    dropped = carrier.trailing_bits - fmt.trailing_bits
    fields = {
        "emin": to.power(fmt.emin),
        "limit": to.power(fmt.emax + 2) - 1,
        "below": fmt.trailing_bits << carrier.trailing_bits,
        "above": dropped << carrier.trailing_bits,
        "max": to.result(decode(fmt.max_code, fmt)),
        "overflow": overflows[0],
        "negative_overflow": overflows[1],
        "infinity": infinite[0],
        "negative_infinity": infinite[1],
        "nan": to.result(NAN),
        "zero_sign": (fmt if codes else carrier).sign_mask if fmt.has_signed_zero else 0,
        "sign_shift": carrier.bits - fmt.bits if codes else 0,
        "origin": to.power(fmt.emin + dropped),
        "dropped": dropped if codes else 0,
    }
    nan, infinity = fields["nan"], to.power(carrier.emax + 1)
    for sign, prefix in enumerate(("", "negative_")):
        code = overflows[sign]
        # without NaN in the format, its result is the code of a number
        overflow_is_nan = code == infinite[sign] == nan and fmt.has_nan and rounding is not Rounding.STOCHASTIC
        signed = not sign or code & fmt.sign_mask
        fields[prefix + "clamp"] = fields["limit"] if overflow_is_nan else to.clamp(code) if signed else 0
        last = infinity if infinite[sign] != nan or not fmt.has_nan else infinity - 1
        fields[prefix + "last"] = to.first_nan(sign) - 1 if overflow_is_nan else last
    return pack(quantize_loops.ROUNDING_FIELDS, fields, carrier.code_dtype)


# -- float64 kernels ---------------------------------------------------------------------------------------------------

_RULES = {
    Rounding.TIES_TO_EVEN: float64_loops.TIES_TO_EVEN,
    Rounding.TIES_TO_AWAY: float64_loops.TIES_TO_AWAY,
    Rounding.TOWARD_ZERO: float64_loops.TOWARD_ZERO,
    Rounding.TOWARD_POSITIVE: float64_loops.TOWARD_NEGATIVE,  # with all signs changed
    Rounding.TOWARD_NEGATIVE: float64_loops.TOWARD_NEGATIVE,
    Rounding.TO_ODD: float64_loops.TO_ODD,
    Rounding.STOCHASTIC: float64_loops.STOCHASTIC,
}


@functools.lru_cache(maxsize=256)
def float64_rounding(fmt: FloatFormat, attributes: RoundingAttributes) -> tuple[int, float, NDArray[np.float64]]:
    """Return (rule, sign, parameters) of a rounding from float64.

    `sign` is -1 if the kernels need the negated operands for this rounding direction. `proofs.rounds_in_float64`
    defines the supported formats.
    """
    rule, sign = _RULES[attributes.rounding], -1.0 if attributes.rounding is Rounding.TOWARD_POSITIVE else 1.0
    positive, negative, _, _ = overflow_results(fmt, attributes)
    if sign < 0:
        positive, negative = negative, positive
    t = fmt.trailing_bits
    fields = {
        "lowest": 2.0**fmt.emin * (1.5 if rule in float64_loops.BOTH_SIGNS else 1.0),
        "scale": 2.0 ** (52 - 32 - t if rule == float64_loops.STOCHASTIC else 52 - t),
        "half": 2.0 ** (-t - 1),
        "max": fmt.max,
        "overflow": positive,
        "negative_overflow": negative,
        "random_mask": float(2**32 - 2 ** max(32 - attributes.random_bits, 0)),
        "infinity": float("inf") if fmt.has_infinity else float("nan"),
    }
    return rule, sign, pack(float64_loops.ROUNDING_FIELDS, fields, np.float64)
