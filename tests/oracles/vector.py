"""The definitions on NumPy arrays."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

import floatsim as fs
from floatsim import Overflow, Rounding, Tininess

from .decode import ABSORBED, DIVIDE_BY_ZERO, FLUSHED, INEXACT, INVALID, OVERFLOW, SUBNORMAL, UNDERFLOW, Layout, layout
from .rounding import OWN_DIRECTION, OracleRounding, nan_of


@functools.cache
def table_of_values(fmt: fs.FloatFormat) -> np.ndarray:
    """float64 values of the magnitudes 0, 1, ..., largest, and of the one beyond."""
    at = layout(fmt)
    return np.array([float(at.worth(m)) for m in range(at.largest + 2)])


@dataclass
class Decoded:
    value: np.ndarray  # float64; 0 where not finite
    negative: np.ndarray
    nan: np.ndarray
    signalling: np.ndarray
    infinite: np.ndarray

    @property
    def zero(self) -> np.ndarray:
        return (self.value == 0) & ~self.nan & ~self.infinite


def vector_decode(codes: np.ndarray, fmt: fs.FloatFormat, daz: bool = False) -> Decoded:
    """Decode codes; those of a format of at most 16 bits are looked up in a table of all its codes."""
    if fmt.bits > 16:
        return _decode(codes, fmt, daz)
    index = np.asarray(codes).astype(np.intp)
    return Decoded(*(column[index] for column in vars(_decoded_codes(fmt, daz)).values()))


@functools.cache
def _decoded_codes(fmt: fs.FloatFormat, daz: bool) -> Decoded:
    return _decode(np.arange(1 << fmt.bits), fmt, daz)


def _decode(codes: np.ndarray, fmt: fs.FloatFormat, daz: bool) -> Decoded:
    at = layout(fmt)
    codes = np.asarray(codes).astype(np.uint64)
    negative = (codes & np.uint64(at.sign_bit)) != 0
    magnitude = (codes & np.uint64(~at.sign_bit & (2**64 - 1))).astype(np.int64)
    infinite = magnitude == at.inf if at.inf is not None else np.zeros(codes.shape, bool)
    if not at.signed_zero:
        nan = codes == np.uint64(at.nan)
    else:
        nan = (magnitude > at.largest) & ~infinite
    signalling = nan & (magnitude < at.nan) if at.specials == "ieee" else np.zeros(codes.shape, bool)
    finite = np.where(nan | infinite, 0, magnitude)
    field, trailing = finite >> at.t, finite & ((1 << at.t) - 1)
    significand = np.where(field > 0, trailing + (1 << at.t), 0 if daz else trailing)
    if at.specials == "scale":
        significand, field = np.ones_like(field), field + 1
    exponent = np.maximum(field, 1) - (at.bias + at.t) - (at.specials == "scale")
    value = np.ldexp(significand.astype(np.float64), exponent.astype(np.int32))
    return Decoded(np.where(negative & ~nan, -value, value), negative & ~nan, nan, signalling, infinite)


def neighbours(x: np.ndarray, fmt: fs.FloatFormat, table: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Magnitude code and value of the neighbour at or below each finite x >= 0, and the value above."""
    at = layout(fmt)
    if table:
        values = table_of_values(fmt)
        low = np.searchsorted(values, x, side="right") - 1
        low = np.minimum(low, at.largest)
        return low, values[low], values[low + 1]
    emin = 1 - at.bias
    exponent = np.maximum(np.frexp(np.where(x == 0, 1.0, x))[1] - 1, emin).astype(np.int64)
    exponent = np.where(x == 0, emin, exponent)
    top = at.largest >> at.t
    exponent = np.minimum(exponent, top - at.bias)
    unit = np.ldexp(1.0, (exponent - at.t).astype(np.int32))
    with np.errstate(over="ignore"):  # what is far beyond stays far beyond
        kept = np.minimum(np.floor(x / unit), 2.0 ** (at.t + 1) - 1).astype(np.int64)
    low = np.minimum(((exponent - emin) << at.t) + kept, at.largest)
    kept = low - ((exponent - emin) << at.t)
    return low, kept * unit, (kept + 1) * unit


@dataclass
class Located:
    """Finite numbers between their neighbours in a format: all that the roundings of them have in common."""

    fmt: fs.FloatFormat
    negative: np.ndarray
    zero: np.ndarray
    low: np.ndarray  # the code of the magnitude at or below
    odd: np.ndarray
    exact: np.ndarray
    side: np.ndarray  # below the middle of the neighbours, on it, or above: -1, 0, 1
    far: np.ndarray  # at or above the number that would follow the largest one
    tiny: np.ndarray
    nearly_normal: np.ndarray  # tiny, and above the last number below the normal ones with unbounded exponents
    side_of_normal: np.ndarray


def locate(
    x: np.ndarray, negative: np.ndarray, fmt: fs.FloatFormat, tail: np.ndarray | int = 0, table: bool | None = None
) -> Located:
    """Find the neighbours of finite float64 values; `tail` as for `vector_round`."""
    at = layout(fmt)
    ax = np.abs(x)
    tail = np.where(negative, -1, 1) * np.broadcast_to(np.asarray(tail), ax.shape)  # in terms of magnitudes
    low, low_value, high_value = neighbours(ax, fmt, fmt.bits <= 16 if table is None else table)
    step = (ax == low_value) & (tail < 0)  # the exact value lies just below this number
    if step.any():
        below, below_value, _ = neighbours(np.nextafter(ax, 0), fmt, fmt.bits <= 16 if table is None else table)
        high_value = np.where(step, low_value, high_value)
        low, low_value = np.where(step, below, low), np.where(step, below_value, low_value)
    beyond, least, below = float(at.beyond), float(at.least_normal), float(at.below_normal)

    def side(middle: np.ndarray | float) -> np.ndarray:
        return np.where(ax == middle, tail, np.where(ax > middle, 1, -1))

    tiny = ((ax < least) | ((ax == least) & (tail < 0))) & (ax > 0)
    return Located(
        fmt, negative, ax == 0, low,
        odd=low % 2 == 1 if at.t else low > 0,
        exact=(ax == low_value) & (tail == 0),
        side=side(low_value + (high_value - low_value) / 2),
        far=(ax > beyond) | ((ax == beyond) & (tail >= 0)),
        tiny=tiny,
        nearly_normal=tiny & ((ax > below) | ((ax == below) & (tail > 0))),
        side_of_normal=side(below + (least - below) / 2),
    )  # fmt: skip


def round_located(given: Located, rounding: OracleRounding) -> tuple[np.ndarray, np.ndarray]:
    """Round numbers between their neighbours: codes and events."""
    at, mode, negative = layout(given.fmt), rounding.rounding, given.negative

    def up(side: np.ndarray, odd: np.ndarray | bool) -> np.ndarray:
        every = np.ones(side.shape, bool)
        return {
            Rounding.TIES_TO_EVEN: lambda: (side > 0) | ((side == 0) & odd),
            Rounding.TIES_TO_AWAY: lambda: side >= 0,
            Rounding.TOWARD_ZERO: lambda: ~every,
            Rounding.TOWARD_POSITIVE: lambda: ~negative,
            Rounding.TOWARD_NEGATIVE: negative.copy,
            Rounding.TO_ODD: lambda: every & ~np.asarray(odd),
        }[mode]()

    exact, magnitude = given.exact, given.low + (up(given.side, given.odd) & ~given.exact)
    tiny = given.tiny
    if rounding.tininess is Tininess.AFTER:
        tiny = tiny & ~(given.nearly_normal & up(given.side_of_normal, True))
    over = (given.far | (magnitude > at.largest)) & ~(tiny & rounding.ftz)
    flags = np.where(exact, 0, INEXACT) | np.where(tiny & ~exact, UNDERFLOW, 0)
    flags = flags | np.where((magnitude == 0) & ~given.zero, FLUSHED, 0)
    flags = flags | np.where((magnitude > 0) & (magnitude < 1 << at.t), SUBNORMAL, 0)
    sign = np.where(negative, at.sign_bit, 0).astype(np.int64)
    zero = np.where(negative, at.zero(1), at.zero(0)).astype(np.int64)
    code = np.where(magnitude == 0, zero, sign + magnitude)
    stays = np.full(
        exact.shape, rounding.overflow is not Overflow.INFINITY or mode in (Rounding.TOWARD_ZERO, Rounding.TO_ODD)
    )
    if mode is Rounding.TOWARD_NEGATIVE:
        stays |= ~negative
    if mode is Rounding.TOWARD_POSITIVE:
        stays |= negative
    infinity = np.where(negative, at.infinity(1), at.infinity(0)).astype(np.int64)
    code = np.where(over, np.where(stays, sign + at.largest, infinity), code)
    flags = np.where(over, OVERFLOW | INEXACT, flags)
    if rounding.ftz:
        code = np.where(tiny, zero, code)
        flags = np.where(tiny, UNDERFLOW | INEXACT | FLUSHED, flags)
    return code, flags


def vector_round(
    x: np.ndarray, negative: np.ndarray, fmt: fs.FloatFormat, rounding: OracleRounding, tail: np.ndarray | int = 0,
    table: bool | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Round finite float64 values; `tail` is the sign of (exact - x), an error term smaller than half an ulp of x.

    x == 0 means an exact zero of the given sign.
    """
    return round_located(locate(x, negative, fmt, tail, table), rounding)


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded float64 sum and its exact error (Knuth)."""
    s = a + b
    bb = s - a
    return s, (a - (s - bb)) + (b - bb)


@dataclass
class Unrounded:
    """The exact results of an operation on codes, whose parts all roundings have in common."""

    operation: str
    located: Located
    exact_zero: np.ndarray  # sums of which the rounding chooses the sign
    any_nan: np.ndarray
    loud: np.ndarray
    invalid: np.ndarray
    infinite: np.ndarray
    divided: np.ndarray
    left: np.ndarray | None  # the values of which a sum can absorb one
    right: np.ndarray | None


def vector_operation(
    operation: str,
    codes: tuple[np.ndarray, ...],
    fmt: fs.FloatFormat,
    rounding: OracleRounding,
    table: bool | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """An operation on arrays of codes, all of one format: codes (int64) and events."""
    return round_operation(unrounded(operation, codes, fmt, rounding.daz, table), rounding)


def unrounded(
    operation: str, codes: tuple[np.ndarray, ...], fmt: fs.FloatFormat, daz: bool, table: bool | None = None
) -> Unrounded:
    """The results of an operation on arrays of codes, all of one format, for any number of roundings with this DAZ.

    Exact: sums by TwoSum; products of at most 24-bit significands are float64 values; a quotient or root that is
    no float64 midpoint-of-the-format differs from all of them by more than float64 can blur (53 >= 2p + 2).
    """
    numbers = [vector_decode(c, fmt, daz) for c in codes]
    shape = np.broadcast_shapes(*(n.value.shape for n in numbers))
    numbers = [Decoded(*(np.broadcast_to(v, shape) for v in vars(n).values())) for n in numbers]
    a = numbers[0]
    any_nan = functools.reduce(np.logical_or, (n.nan for n in numbers))
    loud = functools.reduce(np.logical_or, (n.signalling for n in numbers))
    invalid = np.zeros(shape, bool)
    infinite = np.zeros(shape, bool)
    divided = np.zeros(shape, bool)
    tail: np.ndarray = np.zeros(shape)
    exact_zero, left, right = np.zeros(shape, bool), None, None
    with np.errstate(all="ignore"):
        if operation in ("add", "subtract", "fma"):
            if operation == "fma":
                f, g, addend = numbers
                invalid = (f.infinite & g.zero) | (f.zero & g.infinite)
                left_infinite, left_negative = f.infinite | g.infinite, f.negative ^ g.negative
                left = f.value * g.value
                left = np.where(left == 0, np.where(left_negative, -0.0, 0.0), left)
            else:
                addend = numbers[1]
                left, left_infinite, left_negative = a.value, a.infinite, a.negative
                if operation == "subtract":
                    addend = Decoded(-addend.value, ~addend.negative, addend.nan, addend.signalling, addend.infinite)
            right = addend.value
            clash = left_infinite & addend.infinite & (left_negative != addend.negative) & ~any_nan
            invalid = invalid | clash
            infinite = left_infinite | addend.infinite
            x, error = two_sum(left, right)
            tail = np.sign(error)
            one_sign = (left == 0) & (right == 0) & (left_negative == addend.negative)
            exact_zero = (x == 0) & ~one_sign & ~infinite
            negative = np.where(one_sign, left_negative, x < 0)
            negative = np.where(infinite, np.where(left_infinite, left_negative, addend.negative), negative)
        elif operation == "multiply":
            b = numbers[1]
            invalid = (a.infinite & b.zero) | (a.zero & b.infinite)
            infinite = a.infinite | b.infinite
            x, negative = a.value * b.value, a.negative ^ b.negative
        elif operation == "divide":
            b = numbers[1]
            negative = a.negative ^ b.negative
            invalid = ((a.infinite & b.infinite) | (a.zero & b.zero)) & ~any_nan
            divided = b.zero & ~a.zero & ~a.infinite & ~any_nan
            infinite = a.infinite | divided
            x = np.where(b.infinite | b.zero, 0.0, a.value / np.where(b.value == 0, 1.0, b.value))
        elif operation == "sqrt":
            invalid = a.negative & ~a.zero & ~any_nan
            infinite, negative = a.infinite, a.negative
            x = np.sqrt(np.abs(a.value))
            x = np.where(invalid, 0.0, x)
        elif operation in ("remainder", "fmod"):
            b = numbers[1]
            invalid = (a.infinite | b.zero) & ~any_nan
            divisor = np.where(b.value == 0, 1.0, np.abs(b.value))
            m = np.abs(a.value)
            negative = a.negative.copy()
            if operation == "fmod":
                x = np.fmod(m, divisor)
            else:
                x = np.fmod(m, 2 * divisor)
                once = (2 * x > divisor) & (2 * x < 3 * divisor)
                twice = 2 * x >= 3 * divisor
                x = np.where(once, x - divisor, np.where(twice, x - 2 * divisor, x))
            x = np.where(b.infinite, m, x)
            negative = negative ^ (x < 0)
        else:
            raise ValueError(operation)
        negative = np.asarray(negative, bool)
        x = np.where(infinite | invalid | any_nan, 0.0, x)
        tail = np.where(infinite | invalid | any_nan, 0.0, tail)
        located = locate(x, negative, fmt, tail, table)
    return Unrounded(operation, located, exact_zero, any_nan, loud, invalid, infinite, divided, left, right)


def round_operation(given: Unrounded, rounding: OracleRounding) -> tuple[np.ndarray, np.ndarray]:
    """Round the results of an operation: codes (int64) and events. Their DAZ must be that of the rounding."""
    located, fmt = given.located, given.located.fmt
    at, infinite = layout(fmt), given.infinite
    if rounding.rounding is Rounding.TOWARD_NEGATIVE:
        located = replace(located, negative=located.negative | given.exact_zero)
    with np.errstate(all="ignore"):
        code, flags = round_located(located, rounding)
    infinity = np.where(located.negative, at.infinity(1), at.infinity(0)).astype(np.int64)
    code = np.where(infinite, infinity, code)
    flags = np.where(infinite, np.where(given.divided, DIVIDE_BY_ZERO, 0), flags)
    not_a_number = given.any_nan | given.invalid
    code = np.where(not_a_number, nan_of(fmt, False)[0], code)
    flags = np.where(not_a_number, np.where(given.invalid | given.loud | (at.nan is None), INVALID, 0), flags)
    if (left := given.left) is not None and (right := given.right) is not None:
        result = vector_decode(code, fmt)
        finite = ~(not_a_number | infinite | result.infinite | result.nan)
        absorbed = (result.value == right) & (left != 0)
        if given.operation != "fma":
            absorbed |= (result.value == left) & (right != 0)
        flags = np.where(absorbed & finite, flags | ABSORBED, flags)
    return code, flags


def vector_convert(
    codes: np.ndarray, source: fs.FloatFormat, fmt: fs.FloatFormat, rounding: OracleRounding, table: bool | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Conversion between formats."""
    at, x = layout(fmt), vector_decode(codes, source, rounding.daz)
    index = x.negative.astype(np.int64)
    if at.specials == "scale":
        return _vector_scale(x, at, rounding)
    code, flags = vector_round(x.value, x.negative, fmt, rounding, 0, table)
    infinity = np.array([at.infinity(0), at.infinity(1)], dtype=np.int64)
    if rounding.overflow is Overflow.SATURATE_FINITE:
        infinity = np.array([at.largest, at.largest + at.sign_bit], dtype=np.int64)
    code = np.where(x.infinite, infinity[index], code)
    code = np.where(x.nan, nan_of(fmt, False)[0], code)
    flags = np.where(x.infinite, 0, flags)
    return code, np.where(x.nan, np.where(x.signalling | (at.nan is None), INVALID, 0), flags)


def _vector_scale(x: Decoded, at: Layout, rounding: OracleRounding) -> tuple[np.ndarray, np.ndarray]:
    significand, exponent = np.frexp(np.where(x.value > 0, x.value, 1.0))  # significand in [0.5, 1)
    up = {
        Rounding.TIES_TO_EVEN: significand >= 0.75,
        Rounding.TIES_TO_AWAY: significand >= 0.75,
        Rounding.TOWARD_POSITIVE: significand > 0.5,
    }.get(rounding.rounding, np.zeros(significand.shape, bool))
    code = exponent.astype(np.int64) - 1 + at.bias + up
    flags = np.where(significand == 0.5, 0, INEXACT)
    under = x.value < float(at.least_normal)
    code, flags = np.where(under, 0, code), np.where(under, UNDERFLOW | INEXACT, flags)
    over = ~under & (code > at.largest)
    code = np.where(over, at.nan if rounding.overflow is Overflow.INFINITY else at.largest, code)
    flags = np.where(over, OVERFLOW | INEXACT, flags)
    invalid = x.negative | x.zero
    nan = x.nan | x.infinite | invalid
    flags = np.where(nan, np.where((invalid & ~x.infinite) | x.signalling, INVALID, 0), flags)
    return np.where(nan, at.nan, code), flags


def vector_integral(
    operation: str, codes: np.ndarray, fmt: fs.FloatFormat, rounding: OracleRounding, table: bool | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """rint, floor, ceil, trunc."""
    at, x = layout(fmt), vector_decode(codes, fmt, rounding.daz)
    magnitude = np.abs(x.value)
    low = np.floor(magnitude)
    rest = magnitude - low
    odd = np.fmod(low, 2) == 1
    never = np.zeros(low.shape, bool)
    up = {
        Rounding.TIES_TO_EVEN: (rest > 0.5) | ((rest == 0.5) & odd),
        Rounding.TIES_TO_AWAY: rest >= 0.5,
        Rounding.TOWARD_ZERO: never,
        Rounding.TOWARD_POSITIVE: ~x.negative,
        Rounding.TOWARD_NEGATIVE: x.negative,
        Rounding.TO_ODD: ~odd,
    }[OWN_DIRECTION.get(operation, rounding.rounding)]
    code, flags = vector_round(low + (up & (rest > 0)), x.negative, fmt, rounding, 0, table)
    if operation == "rint":
        flags = flags | np.where(rest > 0, INEXACT, 0)
    infinity = np.array([at.infinity(0), at.infinity(1)], dtype=np.int64)[x.negative.astype(np.int64)]
    code, flags = np.where(x.infinite, infinity, code), np.where(x.infinite, 0, flags)
    code = np.where(x.nan, nan_of(fmt, False)[0], code)
    return code, np.where(x.nan, np.where(x.signalling, INVALID, 0), flags)
