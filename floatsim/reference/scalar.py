"""The readable specification of scalar operations, on exact Python integers, one element at a time.

It is slow and simple. Operands are unpacked to `Number`s. NaNs and infinities are handled first, without rounding. The
exact result is computed with integers, and with a sticky bit where it has no finite binary expansion. One function,
`round_pack`, does all rounding, overflow, tininess and flags. The kernels are tested equal to this module, in bits and
flags.

Every operation returns `(code, events)`: the five IEEE flags and the three events of `floatsim.formats.rounding`.
`random` is the draw of stochastic rounding, an integer of `random_bits` bits (see `draw`).

Source: IEEE 754-2019 clauses 4, 5, 7 and 9.6. The page "Conventions" of the documentation lists the choices that the
standard leaves open. Numbers in parentheses in this module are clauses of the standard.

>>> import floatsim as fs
>>> from floatsim import reference
>>> one, tiny = reference.decode(0x3C00, fs.FP16), reference.decode(0x0001, fs.FP16)
>>> code, events = reference.add(one, tiny, fs.FP16, reference.RoundingAttributes(fs.Rounding.TOWARD_POSITIVE))
>>> hex(code), events == fs.INEXACT
('0x3c01', True)
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from floatsim.formats import FloatFormat
from floatsim.formats.rounding import (
    ABSORBED,
    DIVIDE_BY_ZERO,
    FLUSHED,
    INEXACT,
    INVALID,
    OVERFLOW,
    SUBNORMAL,
    UNDERFLOW,
    FloatClass,
    Overflow,
    Rounding,
    RoundingAttributes,
    Tininess,
)

__all__ = [
    "NAN", "Kind", "Number", "Result", "RoundingAttributes", "add", "below_zero", "ceil", "classify", "compare",
    "convert", "decode",
    "divide", "exact_dot", "floor", "fma", "fmod", "from_fraction", "from_text", "infinite_result", "integral", "logb",
    "maximum", "maximum_number", "minimum", "minimum_number", "multiply", "nan_result", "next_down", "next_up",
    "ordinal", "remainder", "rint", "round_pack", "round_significand", "scalb", "sqrt", "subtract", "to_integer",
    "total_order", "trunc",
]  # fmt: skip

Result = tuple[int, int]
"""The code of a result, and its flags.

>>> from floatsim import E4M3, reference
>>> result: reference.Result = reference.sqrt(reference.from_text('4'), E4M3, reference.RoundingAttributes())
>>> result
(64, 0)
"""

# At least 53 + 64 + 1: the precision of every format, all random bits of a stochastic rounding, and a guard bit.
_WORKING_BITS = 128
_TOO_FEW_BITS = "an inexact operand has too few working bits for this rounding"


class Kind(enum.Enum):
    """The kind of an unpacked number.

    >>> from floatsim import E4M3, reference
    >>> reference.decode(0x7F, E4M3).kind.name
    'QUIET_NAN'
    """

    FINITE = "finite"
    """A finite number, zeros included."""
    INFINITE = "infinite"
    """An infinity."""
    QUIET_NAN = "NaN"
    """A quiet NaN."""
    SIGNALING_NAN = "signalling NaN"
    """A signalling NaN."""


@dataclass(frozen=True)
class Number:
    """An unpacked value: (-1)**sign * significand * 2**exponent, an infinity, or a NaN.

    With `sticky`, the magnitude lies strictly between `significand` and `significand + 1` (times 2**exponent).

    >>> from floatsim import E4M3, reference
    >>> x = reference.decode(0x3C, E4M3)
    >>> x.significand, x.exponent, x.fraction
    (12, -3, Fraction(3, 2))
    """

    kind: Kind
    sign: int
    significand: int = 0
    exponent: int = 0
    sticky: bool = False

    @property
    def is_nan(self) -> bool:
        """Whether it is a NaN, quiet or signalling."""
        return self.kind in (Kind.QUIET_NAN, Kind.SIGNALING_NAN)

    @property
    def is_infinite(self) -> bool:
        """Whether it is an infinity."""
        return self.kind is Kind.INFINITE

    @property
    def is_zero(self) -> bool:
        """Whether it is +0 or -0."""
        return self.kind is Kind.FINITE and self.significand == 0 and not self.sticky

    @property
    def fraction(self) -> Fraction:
        """The exact value of a finite number."""
        scale = Fraction(2) ** self.exponent if self.exponent >= 0 else Fraction(1, 2**-self.exponent)
        return (-self.significand if self.sign else self.significand) * scale

    def __neg__(self) -> Number:
        return replace(self, sign=1 - self.sign)


NAN = Number(Kind.QUIET_NAN, 0)
"""A quiet NaN with the sign bit 0.

>>> from floatsim import E4M3, reference
>>> reference.NAN.is_nan, reference.NAN.is_infinite
(True, False)
"""


def _infinity(sign: int) -> Number:
    return Number(Kind.INFINITE, sign)


def _zero(sign: int) -> Number:
    return Number(Kind.FINITE, sign)


# -- codes to numbers ----------------------------------------------------------------------------------------


def decode(code: int, format: FloatFormat, daz: bool = False) -> Number:
    """Unpack a code (IEEE 754-2019, 3.4). With `daz`, subnormals are read as zeros of their sign.

    >>> from floatsim import E4M3, reference
    >>> reference.decode(0x3C, E4M3).fraction, reference.decode(0x7F, E4M3).kind.name
    (Fraction(3, 2), 'QUIET_NAN')
    """
    sign = 1 if code & format.sign_mask else 0
    magnitude = code & format.magnitude_mask
    if not format.has_zero:
        return NAN if magnitude > format.max_code else Number(Kind.FINITE, 0, 1, magnitude - format.bias)
    if not format.has_signed_zero and code == format.canonical_nan:
        return NAN
    if magnitude > format.max_code:
        if magnitude == format.infinity_code:
            return _infinity(sign)
        quiet = not format.quiet_bit or magnitude & format.quiet_bit
        return Number(Kind.QUIET_NAN if quiet else Kind.SIGNALING_NAN, sign)
    field, trailing = magnitude >> format.trailing_bits, magnitude & ((1 << format.trailing_bits) - 1)
    if field == 0:
        return Number(Kind.FINITE, sign, 0 if daz else trailing, format.emin - format.trailing_bits)
    return Number(Kind.FINITE, sign, trailing + (1 << format.trailing_bits), field - format.bias - format.trailing_bits)


def from_fraction(value: Fraction | int, sign_of_zero: int = 0) -> Number:
    """Return the largest number of `_WORKING_BITS` bits not above `value` in magnitude, sticky if it is not exact.

    >>> from fractions import Fraction
    >>> from floatsim import reference
    >>> reference.from_fraction(Fraction(3, 4)).fraction, reference.from_fraction(Fraction(1, 3)).sticky
    (Fraction(3, 4), True)
    """
    value = Fraction(value)
    if value == 0:
        return _zero(sign_of_zero)
    sign, value = int(value < 0), abs(value)
    exponent = value.numerator.bit_length() - value.denominator.bit_length() - _WORKING_BITS
    if value.denominator & (value.denominator - 1) == 0:  # a dyadic rational is exact
        exponent = min(exponent, 1 - value.denominator.bit_length())
    scaled = value / Fraction(2) ** exponent
    return Number(Kind.FINITE, sign, math.floor(scaled), exponent, scaled.denominator != 1)


_DECIMAL = re.compile(r"([+-]?)(\d+(?:_\d+)*)?(?:\.(\d+(?:_\d+)*)?)?(?:e([+-]?\d+))?", re.IGNORECASE)
_HEXADECIMAL = re.compile(r"([+-]?)0x([0-9a-f]*)\.?([0-9a-f]*)p([+-]?\d+)", re.IGNORECASE)
_FRACTION = re.compile(r"[+-]?(\d+)/(\d+)")
_MAX_DECIMAL_DIGITS = 4000  # no tie between float64 values needs more than 768; Python's int() takes 4300
_MAX_DECIMAL_EXPONENT = 5000  # beyond every format's range even after 4000 digits; keeps 10**e small
_EXPONENT_LIMIT = (
    10_000  # 2**_EXPONENT_LIMIT and 2**-_EXPONENT_LIMIT are beyond every format's range, products included
)


def _integer(digits: str) -> int:
    """Return the integer of any number of decimal digits. Python's int() takes 4300 at once."""
    number = 0
    for start in range(0, len(digits), _MAX_DECIMAL_DIGITS):
        part = digits[start : start + _MAX_DECIMAL_DIGITS]
        number = number * 10 ** len(part) + int(part)
    return number


def from_text(text: str) -> Number:
    """Exact value of decimal text, C99 hexadecimal text, a fraction, "inf", "infinity", "nan" or "snan".

    The text may have a sign, in any case of letters. Raises ValueError for all other texts (IEEE 754-2019, 5.12;
    fractions such as "1/3" are not in it).

    >>> from_text("-0x1.8p1").fraction, from_text("0.1").sticky, from_text("-3/4").fraction
    (Fraction(-3, 1), True, Fraction(-3, 4))
    """
    body = text.strip()
    sign = int(body.startswith("-"))
    word = body.lstrip("+-").lower()
    if len(body) - len(word) <= 1:
        if word in ("inf", "infinity"):
            return _infinity(sign)
        if nan := re.fullmatch(r"(s?)nan\d*", word):
            return Number(Kind.SIGNALING_NAN if nan[1] else Kind.QUIET_NAN, sign)
    if match := _HEXADECIMAL.fullmatch(body):
        digits = match[2] + match[3]
        if digits:
            significand, exponent = int(digits, 16), int(match[4]) - 4 * len(match[3])
            far = _EXPONENT_LIMIT + significand.bit_length()
            return Number(Kind.FINITE, sign, significand, max(-far, min(exponent, far)))
    elif (match := _DECIMAL.fullmatch(body)) and (match[2] or match[3]):
        whole, part = (match[2] or "").replace("_", ""), (match[3] or "").replace("_", "")
        digits = (whole + part).lstrip("0")
        if not digits:
            return _zero(sign)
        scale = int(match[4] or 0) - len(part)
        leading = scale + len(digits)  # the value is 0.digits * 10**leading
        if abs(leading) > _MAX_DECIMAL_EXPONENT:  # certain overflow or underflow, never exact in between
            return Number(
                Kind.FINITE, sign, 1 << _WORKING_BITS, _EXPONENT_LIMIT if leading > 0 else -_EXPONENT_LIMIT, True
            )
        kept, rest = digits[:_MAX_DECIMAL_DIGITS], digits[_MAX_DECIMAL_DIGITS:]
        x = from_fraction(int(kept) * Fraction(10) ** (scale + len(rest)))
        return replace(x, sign=sign, sticky=x.sticky or bool(rest.strip("0")))
    elif (match := _FRACTION.fullmatch(body)) and match[2].strip("0"):
        x = from_fraction(Fraction(_integer(match[1]), _integer(match[2])))
        return replace(x, sign=sign)
    raise ValueError(
        f"not a number: {text!r}; write decimal ('0.1', '1e-3'), hexadecimal ('0x1.8p3'), a fraction ('1/3'), inf or "
        "nan"
    )


# -- numbers to codes ----------------------------------------------------------------------------------------


def nan_result(format: FloatFormat, *operands: Number) -> Result:
    """Return the canonical NaN; INVALID if an operand is signalling. Formats without NaN: +max with INVALID.

    >>> from floatsim import E4M3, reference
    >>> code, flags = reference.nan_result(E4M3, reference.NAN)
    >>> hex(code), flags
    ('0x7f', 0)
    """
    events = INVALID if any(x.kind is Kind.SIGNALING_NAN for x in operands) else 0
    if format.canonical_nan is None:
        return format.max_code, INVALID
    return format.canonical_nan, events


def _invalid(format: FloatFormat) -> Result:
    return nan_result(format)[0], INVALID


def infinite_result(sign: int, format: FloatFormat) -> int:
    """Return the code of an exact infinity: infinity if the format has it, else NaN, else the largest number.

    >>> from floatsim import E4M3, E5M2, reference
    >>> hex(reference.infinite_result(1, E5M2)), hex(reference.infinite_result(1, E4M3))
    ('0xfc', '0x7f')
    """
    if sign and format.is_scale and format.canonical_nan is not None:
        return format.canonical_nan
    signed = sign * format.sign_mask
    if format.infinity_code is not None:
        return signed | format.infinity_code
    return signed | format.max_code if format.canonical_nan is None else format.canonical_nan


def _overflowed(sign: int, format: FloatFormat, attributes: RoundingAttributes) -> int:
    """Return the code for a rounded magnitude beyond max (7.4, and the saturating policies)."""
    if overflows_to_infinity(sign, attributes) or (attributes.overflow is Overflow.INFINITY and not format.has_zero):
        return infinite_result(sign, format)
    return sign * format.sign_mask | format.max_code


def overflows_to_infinity(sign: int, attributes: RoundingAttributes) -> bool:
    """Return whether a finite result of a sign becomes infinity where it is beyond the largest number (7.4)."""
    outward = {
        Rounding.TOWARD_ZERO: False,
        Rounding.TO_ODD: False,
        Rounding.TOWARD_POSITIVE: sign == 0,
        Rounding.TOWARD_NEGATIVE: sign == 1,
    }.get(attributes.rounding, True)
    return attributes.overflow is Overflow.INFINITY and outward


def below_zero(format: FloatFormat, attributes: RoundingAttributes) -> Result:
    """Return what a negative number becomes in an unsigned format: zero, its least number, or NaN.

    >>> from floatsim import E8M0, reference
    >>> reference.below_zero(E8M0, reference.RoundingAttributes())
    (255, 16)
    """
    if overflows_to_infinity(1, attributes):
        return _invalid(format)
    return 0, OVERFLOW | INEXACT


def _rounds_up(x: Number, kept: int, shift: int, attributes: RoundingAttributes, random: int) -> bool:
    """Return whether the magnitude goes up from `kept` to `kept + 1` ulps; `shift` low bits of x are discarded."""
    rest = x.significand & ((1 << shift) - 1)
    if rest == 0 and not x.sticky:
        return False
    half = 1 << (shift - 1)
    match attributes.rounding:
        case Rounding.TIES_TO_EVEN:
            return rest > half or (rest == half and (x.sticky or kept & 1 == 1))
        case Rounding.TIES_TO_AWAY:
            return rest >= half
        case Rounding.TOWARD_ZERO:
            return False
        case Rounding.TOWARD_POSITIVE:
            return x.sign == 0
        case Rounding.TOWARD_NEGATIVE:
            return x.sign == 1
        case Rounding.TO_ODD:
            return kept & 1 == 0
        case Rounding.STOCHASTIC:
            # floor(delta * 2**N) + r >= 2**N, with delta = (rest + sticky part) / 2**shift
            if x.sticky and shift < attributes.random_bits:
                raise ValueError(_TOO_FEW_BITS)
            return ((rest << attributes.random_bits) >> shift) + random >= 1 << attributes.random_bits


def round_significand(x: Number, lowest: int, attributes: RoundingAttributes, random: int) -> tuple[int, bool]:
    """Return x in units of 2**lowest, rounded to an integer, and whether that was inexact.

    >>> from floatsim import reference
    >>> reference.round_significand(reference.from_text("2.75"), 0, reference.RoundingAttributes(), random=0)
    (3, True)
    """
    shift = lowest - x.exponent
    if shift <= 0:
        if x.sticky:
            raise ValueError(_TOO_FEW_BITS)
        return x.significand << -shift, False
    kept = x.significand >> shift
    inexact = x.sticky or x.significand != kept << shift
    return kept + _rounds_up(x, kept, shift, attributes, random), inexact


def round_pack(x: Number, format: FloatFormat, attributes: RoundingAttributes, random: int = 0) -> Result:
    """Round a finite Number, exact but for its sticky bit, to a code and events. No other function rounds to a format.

    The function rounds to precision p, with the exponent unbounded above and the quantum of the subnormals below. Then
    it tests overflow. Then it sets the flags.

    >>> from floatsim import E4M3, reference
    >>> code, flags = reference.round_pack(reference.from_text("1/3"), E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(11, 32), 1)
    """
    signed = x.sign * format.sign_mask
    zero = signed if format.has_signed_zero else 0
    if not format.has_zero:
        return _round_pack_scale(x, format, attributes, random)
    if x.is_zero:
        return zero, 0
    t, emin = format.trailing_bits, format.emin
    e = x.exponent + x.significand.bit_length() - 1  # 2**e <= |x| < 2**(e+1)
    kept, inexact = round_significand(x, max(e, emin) - t, attributes, random)
    tiny = e < emin
    if tiny and attributes.tininess is Tininess.AFTER:  # unless its p bits round up to 2**emin
        tiny = e < emin - 1 or round_significand(x, e - t, attributes, random)[0] < 2 << t
    if tiny and attributes.ftz:
        return zero, UNDERFLOW | INEXACT | FLUSHED
    magnitude = ((max(e, emin) - emin) << t) + kept
    if x.sign and magnitude and format.is_scale:
        return below_zero(format, attributes)
    if magnitude > format.max_code:
        return _overflowed(x.sign, format, attributes), OVERFLOW | INEXACT
    events = INEXACT * inexact | UNDERFLOW * (tiny and inexact)
    if magnitude == 0:
        return zero, events | FLUSHED
    return signed | magnitude, events | SUBNORMAL * (magnitude >> t == 0)


def _round_pack_scale(x: Number, format: FloatFormat, attributes: RoundingAttributes, random: int) -> Result:
    """Round to a power of two (OCP MX 1.0, 5.4.1): ties go up; there is no zero and no sign."""
    if x.sign or x.is_zero:
        return _invalid(format)
    e = x.exponent + x.significand.bit_length() - 1
    if e < format.emin:
        return 0, UNDERFLOW | INEXACT
    if attributes.rounding is Rounding.TIES_TO_EVEN:
        attributes = replace(attributes, rounding=Rounding.TIES_TO_AWAY)
    kept, inexact = round_significand(x, e, attributes, random)
    code = e - format.emin + kept - 1
    if code > format.max_code:
        return _overflowed(0, format, attributes), OVERFLOW | INEXACT
    return code, INEXACT * inexact


def convert(x: Number, format: FloatFormat, attributes: RoundingAttributes, random: int = 0) -> Result:
    """Return x converted to `format` (convertFormat, 5.4.2).

    SATURATE_FINITE clamps infinities. No other operation does so.

    >>> from floatsim import E4M3, reference
    >>> code, flags = reference.convert(reference.from_text("0.1"), E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(13, 128), 1)
    """
    if x.is_nan:
        return nan_result(format, x)
    if x.is_infinite:
        if attributes.overflow is Overflow.SATURATE_FINITE and format.has_zero:
            return (0 if x.sign and format.is_scale else x.sign * format.sign_mask | format.max_code), 0
        return infinite_result(x.sign, format), 0
    return round_pack(x, format, attributes, random)


# -- arithmetic ----------------------------------------------------------------------------------------------


def _sum_of_zeros(a: Number, b: Number, attributes: RoundingAttributes) -> Number:
    """Return the exact sum of zeros, with its sign (6.3)."""
    if a.sign == b.sign:
        return _zero(a.sign)
    return _zero(int(attributes.rounding is Rounding.TOWARD_NEGATIVE))


def _exact_sum(a: Number, b: Number, attributes: RoundingAttributes) -> Number:
    """Return a + b for finite a and b without sticky bits."""
    if a.is_zero and b.is_zero:
        return _sum_of_zeros(a, b, attributes)
    exponent = min(a.exponent, b.exponent)
    total = sum((-1) ** x.sign * x.significand << (x.exponent - exponent) for x in (a, b))
    if total == 0:
        return _zero(int(attributes.rounding is Rounding.TOWARD_NEGATIVE))
    return Number(Kind.FINITE, int(total < 0), abs(total), exponent)


def _absorbed(code: int, format: FloatFormat, whole: Number, part: Number) -> int:
    """Return ABSORBED if the result has the value of `whole` although `part` is not zero."""
    result = decode(code, format)
    if part.is_zero or part.kind is not Kind.FINITE or result.kind is not Kind.FINITE:
        return 0
    return ABSORBED * (whole.kind is Kind.FINITE and result.fraction == whole.fraction)


def add(a: Number, b: Number, format: FloatFormat, attributes: RoundingAttributes, random: int = 0) -> Result:
    """Return a + b (5.4.1). ABSORBED if one operand, not zero, leaves the other one unchanged.

    >>> from floatsim import E4M3, reference
    >>> a, b = reference.from_text("16"), reference.from_text("0.25")
    >>> code, flags = reference.add(a, b, E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(16, 1), 129)
    """
    if a.is_nan or b.is_nan:
        return nan_result(format, a, b)
    if a.is_infinite or b.is_infinite:
        if a.is_infinite and b.is_infinite and a.sign != b.sign:
            return _invalid(format)
        return infinite_result((a if a.is_infinite else b).sign, format), 0
    code, events = round_pack(_exact_sum(a, b, attributes), format, attributes, random)
    return code, events | _absorbed(code, format, a, b) | _absorbed(code, format, b, a)


def subtract(a: Number, b: Number, format: FloatFormat, attributes: RoundingAttributes, random: int = 0) -> Result:
    """Return a - b (5.4.1).

    >>> from floatsim import E4M3, reference
    >>> a, b = reference.from_text("1.125"), reference.from_text("1")
    >>> code, flags = reference.subtract(a, b, E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(1, 8), 0)
    """
    return add(a, -b, format, attributes, random)


def _exact_product(a: Number, b: Number) -> Number:
    return Number(Kind.FINITE, a.sign ^ b.sign, a.significand * b.significand, a.exponent + b.exponent)


def multiply(a: Number, b: Number, format: FloatFormat, attributes: RoundingAttributes, random: int = 0) -> Result:
    """Return a * b (5.4.1).

    >>> from floatsim import E4M3, reference
    >>> a, b = reference.from_text("1.125"), reference.from_text("1.125")
    >>> code, flags = reference.multiply(a, b, E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(5, 4), 1)
    """
    if a.is_nan or b.is_nan:
        return nan_result(format, a, b)
    if a.is_infinite or b.is_infinite:
        if a.is_zero or b.is_zero:
            return _invalid(format)
        return infinite_result(a.sign ^ b.sign, format), 0
    return round_pack(_exact_product(a, b), format, attributes, random)


def divide(a: Number, b: Number, format: FloatFormat, attributes: RoundingAttributes, random: int = 0) -> Result:
    """Return a / b (5.4.1).

    >>> from floatsim import E4M3, reference
    >>> a, b = reference.from_text("1"), reference.from_text("3")
    >>> code, flags = reference.divide(a, b, E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(11, 32), 1)
    """
    sign = a.sign ^ b.sign
    if a.is_nan or b.is_nan:
        return nan_result(format, a, b)
    if (a.is_infinite and b.is_infinite) or (a.is_zero and b.is_zero):
        return _invalid(format)
    if a.is_infinite:
        return infinite_result(sign, format), 0
    if b.is_zero:
        return infinite_result(sign, format), DIVIDE_BY_ZERO
    if b.is_infinite or a.is_zero:
        return round_pack(_zero(sign), format, attributes)
    return round_pack(replace(from_fraction(abs(a.fraction / b.fraction)), sign=sign), format, attributes, random)


def sqrt(a: Number, format: FloatFormat, attributes: RoundingAttributes, random: int = 0) -> Result:
    """Return the square root (5.4.1). sqrt(-0) is -0.

    >>> from floatsim import E4M3, reference
    >>> code, flags = reference.sqrt(reference.from_text("2"), E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(11, 8), 1)
    """
    if a.is_nan:
        return nan_result(format, a)
    if a.is_zero:
        return round_pack(a, format, attributes)
    if a.sign:
        return _invalid(format)
    if a.is_infinite:
        return infinite_result(0, format), 0
    extra = 2 * _WORKING_BITS + (a.exponent & 1)  # makes the exponent even
    radicand = a.significand << extra
    root = math.isqrt(radicand)
    x = Number(Kind.FINITE, 0, root, (a.exponent - extra) // 2, root * root != radicand)
    return round_pack(x, format, attributes, random)


def fma(
    a: Number, b: Number, c: Number, format: FloatFormat, attributes: RoundingAttributes, random: int = 0
) -> Result:
    """Return a * b + c with one rounding (5.4.1). inf * 0 + NaN raises INVALID. ABSORBED if c is left unchanged.

    >>> from floatsim import E4M3, reference
    >>> a, b, c = map(reference.from_text, ("1.125", "1.125", "-1.25"))
    >>> code, flags = reference.fma(a, b, c, E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(1, 64), 0)
    """
    infinite_product = a.is_infinite or b.is_infinite
    if infinite_product and (a.is_zero or b.is_zero):
        return _invalid(format)
    if a.is_nan or b.is_nan or c.is_nan:
        return nan_result(format, a, b, c)
    sign = a.sign ^ b.sign
    if infinite_product:
        if c.is_infinite and c.sign != sign:
            return _invalid(format)
        return infinite_result(sign, format), 0
    if c.is_infinite:
        return infinite_result(c.sign, format), 0
    product = _exact_product(a, b)
    code, events = round_pack(_exact_sum(product, c, attributes), format, attributes, random)
    return code, events | _absorbed(code, format, c, product)


def _remainder(
    a: Number,
    b: Number,
    format: FloatFormat,
    attributes: RoundingAttributes,
    random: int,
    quotient: Callable[[Fraction], int],
) -> Result:
    if a.is_nan or b.is_nan:
        return nan_result(format, a, b)
    if a.is_infinite or b.is_zero:
        return _invalid(format)
    if b.is_infinite or a.is_zero:
        return round_pack(a, format, attributes, random)
    rest = a.fraction - quotient(a.fraction / b.fraction) * b.fraction
    return round_pack(from_fraction(rest, sign_of_zero=a.sign), format, attributes, random)


def remainder(a: Number, b: Number, format: FloatFormat, attributes: RoundingAttributes, random: int = 0) -> Result:
    """Return a - n*b, n being the integer nearest to a/b, ties to even (5.3.1). A zero has the sign of a.

    >>> from floatsim import E4M3, reference
    >>> a, b = reference.from_text("5"), reference.from_text("3")
    >>> code, flags = reference.remainder(a, b, E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(-1, 1), 0)
    """
    return _remainder(a, b, format, attributes, random, round)


def fmod(a: Number, b: Number, format: FloatFormat, attributes: RoundingAttributes, random: int = 0) -> Result:
    """Return a - n*b, n being a/b truncated, as C's fmod. The result has the sign of a.

    >>> from floatsim import E4M3, reference
    >>> a, b = reference.from_text("5"), reference.from_text("3")
    >>> code, flags = reference.fmod(a, b, E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(2, 1), 0)
    """
    return _remainder(a, b, format, attributes, random, math.trunc)


# -- to integral values, integers and neighbours ---------------------------------------------------------------


def integral(x: Number, attributes: RoundingAttributes, random: int = 0) -> tuple[int, bool]:
    """Return a finite x rounded to an integer magnitude, and whether that was inexact (5.8, 5.9).

    >>> from floatsim import reference
    >>> reference.integral(reference.from_text("2.5"), reference.RoundingAttributes())
    (2, True)
    """
    return round_significand(x, 0, attributes, random)


def rint(a: Number, format: FloatFormat, attributes: RoundingAttributes, random: int = 0) -> Result:
    """Return a rounded to an integral value (roundToIntegralExact, 5.9). INEXACT if it differs.

    >>> from floatsim import E4M3, reference
    >>> code, flags = reference.rint(reference.from_text("2.5"), E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(2, 1), 1)
    """
    if a.is_nan:
        return nan_result(format, a)
    if a.is_infinite:
        return infinite_result(a.sign, format), 0
    whole, inexact = integral(a, attributes, random)
    code, events = round_pack(Number(Kind.FINITE, a.sign, whole), format, attributes)
    return code, events | INEXACT * inexact


def _directed_integral(a: Number, format: FloatFormat, attributes: RoundingAttributes, rounding: Rounding) -> Result:
    if a.kind is not Kind.FINITE:
        return rint(a, format, attributes)
    whole, _ = integral(a, replace(attributes, rounding=rounding))
    return round_pack(Number(Kind.FINITE, a.sign, whole), format, attributes)


def floor(a: Number, format: FloatFormat, attributes: RoundingAttributes) -> Result:
    """Return the largest integral value not above a (roundToIntegralTowardNegative, 5.9), without INEXACT.

    >>> from floatsim import E4M3, reference
    >>> code, flags = reference.floor(reference.from_text("-2.5"), E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(-3, 1), 0)
    """
    return _directed_integral(a, format, attributes, Rounding.TOWARD_NEGATIVE)


def ceil(a: Number, format: FloatFormat, attributes: RoundingAttributes) -> Result:
    """Return the smallest integral value not below a (roundToIntegralTowardPositive, 5.9), without INEXACT.

    >>> from floatsim import E4M3, reference
    >>> code, flags = reference.ceil(reference.from_text("-2.5"), E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(-2, 1), 0)
    """
    return _directed_integral(a, format, attributes, Rounding.TOWARD_POSITIVE)


def trunc(a: Number, format: FloatFormat, attributes: RoundingAttributes) -> Result:
    """Return a without its fraction (roundToIntegralTowardZero, 5.9), without INEXACT.

    >>> from floatsim import E4M3, reference
    >>> code, flags = reference.trunc(reference.from_text("-2.5"), E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(-2, 1), 0)
    """
    return _directed_integral(a, format, attributes, Rounding.TOWARD_ZERO)


def to_integer(a: Number, low: int, high: int, attributes: RoundingAttributes, random: int = 0) -> Result:
    """Return the integer and flags (5.8). Values outside low..high saturate with INVALID. NaN gives 0 with INVALID.

    >>> from floatsim import reference
    >>> reference.to_integer(reference.from_text("300"), -128, 127, reference.RoundingAttributes())
    (127, 16)
    """
    if a.is_nan:
        return 0, INVALID
    if a.is_infinite:
        return (low if a.sign else high), INVALID
    whole, inexact = integral(a, attributes, random)
    value = -whole if a.sign else whole
    if not low <= value <= high:
        return (low if a.sign else high), INVALID
    return value, INEXACT * inexact


def scalb(a: Number, n: int, format: FloatFormat, attributes: RoundingAttributes, random: int = 0) -> Result:
    """Return a * 2**n, rounded once (5.3.3).

    >>> from floatsim import E4M3, reference
    >>> code, flags = reference.scalb(reference.from_text("1.5"), 3, E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(12, 1), 0)
    """
    n = max(-_EXPONENT_LIMIT, min(n, _EXPONENT_LIMIT))
    if a.is_nan:
        return nan_result(format, a)
    if a.is_infinite:
        return infinite_result(a.sign, format), 0
    return round_pack(replace(a, exponent=a.exponent + n), format, attributes, random)


def logb(a: Number) -> Result:
    """Return the exponent of a as an int32 (5.3.3): -2**31 with DIVIDE_BY_ZERO for 0, and 2**31 - 1 for infinity.

    >>> from floatsim import reference
    >>> reference.logb(reference.from_text("0.1")), reference.logb(reference.from_text("0"))
    ((-4, 0), (-2147483648, 8))
    """
    if a.is_nan:
        return -(2**31), INVALID
    if a.is_infinite:
        return 2**31 - 1, 0
    if a.is_zero:
        return -(2**31), DIVIDE_BY_ZERO
    return a.exponent + a.significand.bit_length() - 1, 0


def ordinal(code: int, format: FloatFormat) -> int:
    """Return the place of a number in the order of the format's numbers. Both zeros have 0. A NaN has no place.

    >>> from floatsim import E4M3, reference
    >>> reference.ordinal(0x38, E4M3), reference.ordinal(0xB8, E4M3)
    (56, -56)
    """
    magnitude = code & format.magnitude_mask
    return -magnitude if code & format.sign_mask else magnitude


def _from_ordinal(n: int, format: FloatFormat) -> int:
    return n if n >= 0 else format.sign_mask | -n


def _next(code: int, format: FloatFormat, daz: bool, up: bool) -> Result:
    """Return nextUp or nextDown (5.3.1), which round nothing.

    The outermost number of a format without infinity is followed by NaN, or by itself if the format has no NaN.
    """
    a = decode(code, format, daz)
    if a.is_nan:
        return nan_result(format, a)
    toward = 1 if up else -1
    here = 0 if a.is_zero else ordinal(code, format)
    if abs(here) > format.max_code:  # an infinity
        return (code if (here > 0) == up else _from_ordinal(here + toward, format)), 0
    there = here + toward
    if format.is_scale and there < 0:
        return nan_result(format)
    if abs(there) > format.max_code:
        return infinite_result(int(not up), format), 0
    if there == 0:
        return (format.sign_mask if up and format.has_signed_zero else 0), 0
    return _from_ordinal(there, format), 0


def next_up(code: int, format: FloatFormat, daz: bool = False) -> Result:
    """Return the least number greater than the code's (5.3.1). After the largest negative number comes -0.

    >>> from floatsim import E4M3, reference
    >>> reference.next_up(0x38, E4M3), reference.next_up(0x80, E4M3)
    ((57, 0), (1, 0))
    """
    return _next(code, format, daz, up=True)


def next_down(code: int, format: FloatFormat, daz: bool = False) -> Result:
    """Return the greatest number less than the code's (5.3.1).

    >>> from floatsim import E4M3, reference
    >>> code, flags = reference.next_down(0x00, E4M3)
    >>> hex(code), flags
    ('0x81', 0)
    """
    return _next(code, format, daz, up=False)


# -- comparison ------------------------------------------------------------------------------------------------


def _compare_key(x: Number) -> tuple[int, Fraction]:
    if x.is_infinite:
        return (-1 if x.sign else 1), Fraction(0)
    return 0, x.fraction


def compare(a: Number, b: Number, signaling: bool = False) -> tuple[int | None, int]:
    """Return -1, 0 or 1 for less, equal or greater, None for unordered; and flags (5.6.1, 5.11).

    >>> from floatsim import E4M3, reference
    >>> reference.compare(reference.from_text("-0"), reference.from_text("0"))
    (0, 0)
    >>> reference.compare(reference.NAN, reference.NAN)
    (None, 0)
    """
    if a.is_nan or b.is_nan:
        loud = signaling or Kind.SIGNALING_NAN in (a.kind, b.kind)
        return None, INVALID * loud
    ka, kb = _compare_key(a), _compare_key(b)
    return (ka > kb) - (ka < kb), 0


def _extremum(
    a: Number, b: Number, format: FloatFormat, attributes: RoundingAttributes, random: int, larger: bool, number: bool
) -> Result:
    """Return a minimum or maximum (9.6): -0 is less than +0, and one exact conversion comes last."""
    invalid = INVALID * (Kind.SIGNALING_NAN in (a.kind, b.kind))
    if a.is_nan or b.is_nan:
        if not number or (a.is_nan and b.is_nan):
            return nan_result(format, a, b)
        chosen = b if a.is_nan else a
    else:
        order, _ = compare(a, b)
        order = order or b.sign - a.sign  # zeros compare equal
        chosen = a if (order > 0) == larger else b
    if chosen.is_infinite:
        return infinite_result(chosen.sign, format), invalid
    code, events = round_pack(chosen, format, attributes, random)
    return code, events | invalid


def minimum(a: Number, b: Number, format: FloatFormat, attributes: RoundingAttributes, random: int = 0) -> Result:
    """Return the smaller number; NaN if an operand is NaN (9.6).

    >>> from floatsim import E4M3, reference
    >>> a, b = reference.from_text("-0.5"), reference.from_text("1")
    >>> code, flags = reference.minimum(a, b, E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(-1, 2), 0)
    """
    return _extremum(a, b, format, attributes, random, larger=False, number=False)


def maximum(a: Number, b: Number, format: FloatFormat, attributes: RoundingAttributes, random: int = 0) -> Result:
    """Return the larger number; NaN if an operand is NaN (9.6).

    >>> from floatsim import E4M3, reference
    >>> a, b = reference.from_text("-0"), reference.from_text("1")
    >>> code, flags = reference.maximum(a, b, E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(1, 1), 0)
    """
    return _extremum(a, b, format, attributes, random, larger=True, number=False)


def minimum_number(
    a: Number, b: Number, format: FloatFormat, attributes: RoundingAttributes, random: int = 0
) -> Result:
    """Return the smaller number; a number wins over a NaN (9.6).

    >>> from floatsim import E4M3, reference
    >>> a, b = reference.from_text("nan"), reference.from_text("1")
    >>> code, flags = reference.minimum_number(a, b, E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(1, 1), 0)
    """
    return _extremum(a, b, format, attributes, random, larger=False, number=True)


def maximum_number(
    a: Number, b: Number, format: FloatFormat, attributes: RoundingAttributes, random: int = 0
) -> Result:
    """Return the larger number; a number wins over a NaN (9.6).

    >>> from floatsim import E4M3, reference
    >>> a, b = reference.from_text("nan"), reference.from_text("1")
    >>> code, flags = reference.maximum_number(a, b, E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(1, 1), 0)
    """
    return _extremum(a, b, format, attributes, random, larger=True, number=True)


def classify(code: int, format: FloatFormat) -> FloatClass:
    """Return the class of a code (5.7.2).

    >>> from floatsim import E4M3, reference
    >>> reference.classify(0x01, E4M3).name
    'POSITIVE_SUBNORMAL'
    """
    x = decode(code, format)
    if x.is_nan:
        return FloatClass.SIGNALING_NAN if x.kind is Kind.SIGNALING_NAN else FloatClass.QUIET_NAN
    if x.is_infinite:
        positive = FloatClass.POSITIVE_INFINITY
    elif x.is_zero:
        positive = FloatClass.POSITIVE_ZERO
    elif x.exponent + x.significand.bit_length() - 1 < format.emin:
        positive = FloatClass.POSITIVE_SUBNORMAL
    else:
        positive = FloatClass.POSITIVE_NORMAL
    first, last = FloatClass.NEGATIVE_INFINITY, FloatClass.POSITIVE_INFINITY
    return FloatClass(first + last - positive) if x.sign else positive


def total_order(a: int, b: int, format: FloatFormat) -> bool:
    """Return totalOrder(a, b) of two codes (5.10): -NaN < -inf < ... < -0 < +0 < ... < +inf < NaN.

    >>> from floatsim import E4M3, reference
    >>> reference.total_order(0x80, 0x00, E4M3), reference.total_order(0x00, 0x80, E4M3)
    (True, False)
    """

    def place(code: int) -> int:
        if format.canonical_nan == format.sign_mask == code:  # FNUZ's NaN stands above everything
            return format.magnitude_mask + 1
        magnitude = code & format.magnitude_mask
        return -magnitude - 1 if code & format.sign_mask else magnitude

    return place(a) <= place(b)


# -- sums ------------------------------------------------------------------------------------------------------


def exact_dot(
    pairs: list[tuple[Number, Number]], format: FloatFormat, attributes: RoundingAttributes, random: int = 0
) -> Result:
    """Return the exact sum of exact products, rounded once.

    >>> from floatsim import E4M3, reference
    >>> one, tiny = reference.from_text("1"), reference.from_text("1/16")
    >>> code, flags = reference.exact_dot([(one, one), (tiny, one), (tiny, one)], E4M3, reference.RoundingAttributes())
    >>> reference.decode(code, E4M3).fraction, flags
    (Fraction(9, 8), 0)
    """
    invalid = any(
        (a.is_infinite and b.is_zero) or (a.is_zero and b.is_infinite) or Kind.SIGNALING_NAN in (a.kind, b.kind)
        for a, b in pairs
    )
    infinite = {a.sign ^ b.sign for a, b in pairs if a.is_infinite or b.is_infinite}
    if invalid or any(a.is_nan or b.is_nan for a, b in pairs) or len(infinite) == 2:
        nan_operand = any(a.is_nan or b.is_nan for a, b in pairs)
        code, events = nan_result(format)
        return code, INVALID if invalid or not nan_operand else events
    if infinite:
        return infinite_result(infinite.pop(), format), 0
    products = [_exact_product(a, b) for a, b in pairs]
    total = sum((p.fraction for p in products), Fraction(0))
    if total:
        return round_pack(from_fraction(total), format, attributes, random)
    signs = {p.sign for p in products if p.is_zero}
    if len(signs) == 1 and all(p.is_zero for p in products):
        return round_pack(_zero(signs.pop()), format, attributes)
    return round_pack(
        _zero(int(bool(products) and attributes.rounding is Rounding.TOWARD_NEGATIVE)), format, attributes
    )
