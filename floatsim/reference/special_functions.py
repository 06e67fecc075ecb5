"""The readable specification of a GPU's special-function unit: approximations of functions, on integers.

A function of one FP32 code returns one FP32 code. It reads the argument as fixed point or as a significand, selects a
segment by the upper bits, evaluates the segment's polynomial at the lower bits, and truncates the value. Nothing is
rounded, except by a constant that the polynomials of some functions include. Then the special cases follow: zeros,
infinities and NaN, and results below the smallest normal number, which are 0.

The forms of 16 bits compute in FP32 and truncate the result. The forms without `.ftz` scale subnormal operands and
results (`SCALINGS` of `floatsim.tensorcore.special_functions`).

Sources: the interpolator is that of S. Oberman and M. Siu, ARITH 2005 (`floatsim.tensorcore.special_functions`). All
constants, the truncated square and the special cases were found in outputs that an NVIDIA H200 returned.

>>> hex(approximate("ex2", 0x3F000000))  # 2**0.5
'0x3fb504f3'
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from floatsim.formats import BF16, FP16, FP32, FloatFormat
from floatsim.formats.rounding import Rounding
from floatsim.reference.scalar import (
    Number,
    Result,
    RoundingAttributes,
    convert,
    decode,
    from_fraction,
    multiply,
    subtract,
)
from floatsim.tensorcore.special_functions import (
    SCALINGS,
    Interpolator,
    Scaling,
    SpecialFunctionUnit,
    as_form,
    as_unit,
)

__all__ = ["approximate", "divide", "interpolate", "truncated_square"]

_NAN, _INFINITY, _ONE, _SIGN = 0x7FFFFFFF, 0x7F800000, 0x3F800000, 0x80000000
_TRAILING, _BIAS = 23, 127
_LEADING = 1 << _TRAILING
_FRACTION = _LEADING - 1
_NEAREST = RoundingAttributes()
_TURN = 0x3E22F983
"""1 / (2 pi) in FP32: sin and cos multiply their argument by it."""


def truncated_square(x: int, bits: int) -> int:
    """Return the upper 15 bits of the square of a number of so many bits, without the carries from the lower ones.

    The square is the sum of partial products of bits i and j. Those of a weight below 2**(2 bits - 15) are left out.

    >>> truncated_square(0x1FFFF, 17), (0x1FFFF**2) >> 19
    (32759, 32767)
    """
    least, total = 2 * bits - 15, 0
    for i in range(bits):
        for j in range(i, bits):
            weight = 2 * i if i == j else i + j + 1
            if weight >= least and x >> i & x >> j & 1:
                total += 1 << weight - least
    return total


def interpolate(table: Interpolator, segment: int, x: int) -> int:
    """Return the value of a segment's polynomial at x, in units of 2**-fraction_bits."""
    c0, c1, c2 = table.rows[segment]
    square = truncated_square(x, table.low_bits)
    value = (c0 << table.c0_shift) + c1 * x + (c2 * square << table.c2_shift) + table.constant
    return value >> table.dropped_bits


def approximate(
    function: str, code: int, format: FloatFormat = FP32, *, ftz: bool | None = None, device: str = "sm_90"
) -> int:
    """Return the code of an approximated function of a code, both in `format`.

    Parameters
    ----------
    function : {"ex2", "rcp", "rsqrt", "sqrt", "lg2", "sin", "cos", "tanh"}
    code : int
    format : FloatFormat
        FP32; for ex2 and tanh also FP16 and BF16.
    ftz : bool, optional
        Whether subnormal operands and results are zeros. Default: False, where the instruction has such a form.
    device : str
        The GPU or its architecture.

    Returns
    -------
    int

    Raises
    ------
    TypeError, ValueError
        For a format or a form that the instruction does not have, and for unknown devices.
    """
    unit = as_unit(device)
    flush = as_form(function, "code", format, ftz, unit)
    evaluate = _evaluator(function, unit)
    if format == FP32:
        return evaluate(code) if flush else _scaled(SCALINGS.get(function, ()), code, evaluate)
    wide, _ = convert(decode(code, format), FP32, _NEAREST)
    return _truncated_to(evaluate(wide), format)


def divide(a: int, b: int, *, ftz: bool = False, device: str = "sm_90") -> int:
    """Return the code of a times the approximated reciprocal of b, rounded to nearest, all in FP32."""
    evaluate = _evaluator("rcp", as_unit(device))
    subnormal, _ = SCALINGS["rcp"]
    inverse = evaluate(b) if ftz else _scaled((subnormal,), b, evaluate)
    return _rounded(multiply, decode(a, FP32, ftz), decode(inverse, FP32, ftz), RoundingAttributes(daz=ftz, ftz=ftz))


def _evaluator(function: str, unit: SpecialFunctionUnit) -> Callable[[int], int]:
    """Return the function of FP32 codes with `.ftz`, or without a choice."""
    table, of = unit.interpolator(function), _FUNCTIONS[function]
    return lambda code: of(code, table)


def _scaled(scalings: tuple[Scaling, ...], code: int, evaluate: Callable[[int], int]) -> int:
    """Return the result of the form without `.ftz`."""
    for each in scalings:
        if each.first <= code & each.mask <= each.last:
            factor, operand = from_fraction(Fraction(each.factor)), from_fraction(Fraction(each.operand))
            result = decode(evaluate(_rounded(multiply, decode(code, FP32), factor)), FP32)
            if each.operation == "square":
                operand = result
            return _rounded(subtract if each.operation == "subtract" else multiply, result, operand)
    return evaluate(code)


def _rounded(operation: Callable[..., Result], a: Number, b: Number, attributes: RoundingAttributes = _NEAREST) -> int:
    """Return the code of an FP32 operation. Its NaN is that of the unit."""
    code, _ = operation(a, b, FP32, attributes)
    return _NAN if code & ~_SIGN > _INFINITY else code


_INFINITE = {FP16: 0x47800000, BF16: _INFINITY}
"""The FP32 codes from which on results in a format are infinite: 2**(emax + 1)."""


def _truncated_to(code: int, format: FloatFormat) -> int:
    """Return an FP32 code truncated to a format of 16 bits. A NaN has ones in all bits but the sign."""
    magnitude = code & ~_SIGN
    if magnitude > _INFINITY:
        return format.magnitude_mask
    if magnitude >= _INFINITE[format]:
        code = code & _SIGN | _INFINITY
    return convert(decode(code, FP32), format, RoundingAttributes(Rounding.TOWARD_ZERO))[0]


# -- functions of FP32 codes, with .ftz --------------------------------------------------------------------------------


def _fields(code: int) -> tuple[int, int, int]:
    """Return the sign bit in its place, the exponent field, and the trailing significand."""
    return code & _SIGN, code >> _TRAILING & 255, code & _FRACTION


def _fixed(code: int, fraction_bits: int) -> int:
    """Return the magnitude of a finite number in fixed point, truncated. Subnormal numbers are 0."""
    _, field, trailing = _fields(code)
    shift = field - _BIAS - _TRAILING + fraction_bits
    significand = _LEADING | trailing if field else 0
    return significand << shift if shift >= 0 else significand >> -shift


def _packed(field: int, trailing: int) -> int:
    """Return the code with these fields. trailing = 2**23 adds 1 to the exponent. Below the normal numbers it is 0."""
    code = (field << _TRAILING) + trailing
    return 0 if code < _LEADING else min(code, _INFINITY)


def _truncated(value: int, fraction_bits: int) -> int:
    """Return the code of value / 2**fraction_bits, truncated to 24 significant bits."""
    if value == 0:
        return 0
    exponent = value.bit_length() - 1
    shift = exponent - _TRAILING
    significand = value >> shift if shift >= 0 else value << -shift
    return (exponent - fraction_bits + _BIAS << _TRAILING) + significand - _LEADING


def _split(trailing: int, table: Interpolator) -> tuple[int, int]:
    """Return the segment and the operand of 23 bits."""
    return trailing >> table.low_bits, trailing & (1 << table.low_bits) - 1


def _ex2(code: int, table: Interpolator) -> int:
    """Return 2**x: the integer part of x is the exponent, and the fraction has 23 bits.

    A negative x that is no integer is the one's complement of its magnitude, 2**-23 below the two's complement.
    """
    sign, field, trailing = _fields(code)
    if field == 255 and trailing:
        return _NAN
    if field >= _BIAS + 7:
        return 0 if sign else _INFINITY
    x = _fixed(code, 23)
    if sign:
        x = ~x if x & _FRACTION else -x
    value = interpolate(table, *_split(x & _FRACTION, table))
    return _packed((x >> 23) + _BIAS, value)


def _rcp(code: int, table: Interpolator) -> int:
    sign, field, trailing = _fields(code)
    if field == 255:
        return _NAN if trailing else sign
    if field == 0:
        return sign | _INFINITY
    return sign | _packed(2 * _BIAS - 1 - field, interpolate(table, *_split(trailing, table)))


def _rsqrt(code: int, table: Interpolator) -> int:
    """Return 1 / sqrt(x). The parity of the exponent is the upper bit of the segment. Powers of 4 are exact."""
    sign, field, trailing = _fields(code)
    if field == 255 and trailing:
        return _NAN
    if field == 0:
        return sign | _INFINITY
    if sign:
        return _NAN
    if field == 255:
        return 0
    half, odd = divmod(field - _BIAS, 2)
    if not odd and not trailing:
        return _packed(_BIAS - half, 0)
    segment, x = _split(trailing, table)
    return _packed(_BIAS - 1 - half, interpolate(table, odd << 6 | segment, x))


def _sqrt(code: int, table: Interpolator) -> int:
    """Return sqrt(x), with segments as those of rsqrt. Powers of 4 are exact."""
    sign, field, trailing = _fields(code)
    if field == 255 and trailing:
        return _NAN
    if field == 0:
        return sign
    if sign:
        return _NAN
    if field == 255:
        return _INFINITY
    half, odd = divmod(field - _BIAS, 2)
    if not odd and not trailing:
        return _packed(_BIAS + half, 0)
    segment, x = _split(trailing, table)
    return _packed(_BIAS + half, interpolate(table, odd << 6 | segment, x))


def _lg2(code: int, table: Interpolator) -> int:
    """Return log2(x): the exponent of x and the polynomial of its significand, added in fixed point.

    A negative sum is complemented bit by bit. log2(1) is 0.
    """
    sign, field, trailing = _fields(code)
    if field == 255 and trailing:
        return _NAN
    if field == 0:
        return _SIGN | _INFINITY
    if sign:
        return _NAN
    if field == 255:
        return _INFINITY
    if field == _BIAS and trailing == 0:
        return 0
    value = (field - _BIAS << table.fraction_bits) + interpolate(table, *_split(trailing, table))
    return _SIGN | _truncated(~value, table.fraction_bits) if value < 0 else _truncated(value, table.fraction_bits)


def _turning(code: int, table: Interpolator, quarters: int) -> int:
    """Return sin(x + quarters * pi / 2). x is multiplied by 1 / (2 pi) and truncated to 24 bits, then to 2**-25 turns.

    The upper two of the 25 bits are the quadrant, and the others are complemented in odd quadrants.
    """
    sign, field, _ = _fields(code)
    if field == 255:
        return _NAN
    toward_zero = RoundingAttributes(Rounding.TOWARD_ZERO, ftz=True)
    turns, _ = multiply(decode(code, FP32, True), decode(_TURN, FP32), FP32, toward_zero)
    t = _fixed(turns, 25)
    quadrant = (t >> 23) + quarters & 3
    rest = (~t if quadrant & 1 else t) & _FRACTION
    value = min(_truncated(interpolate(table, *_split(rest, table)), table.fraction_bits), _ONE)
    negative = (quadrant >= 2) != (sign != 0 and quarters == 0)
    return _SIGN * negative | value


def _sin(code: int, table: Interpolator) -> int:
    return _turning(code, table, 0)


def _cos(code: int, table: Interpolator) -> int:
    return _turning(code, table, 1)


def _tanh(code: int, table: Interpolator) -> int:
    """Return tanh(x): x below 2**-8, 1 from 8 on, and between them segments whose number depends on the exponent."""
    sign, field, trailing = _fields(code)
    if field == 255 and trailing:
        return _NAN
    k = field - _BIAS + 8
    if k < 0:
        return code
    if k >= len(table.segments):
        return sign | _ONE
    index_bits, first = table.segments[k].bit_length() - 1, sum(table.segments[:k])
    upper = trailing >> _TRAILING - index_bits - table.low_bits
    segment, x = _split(upper, table)
    return sign | _truncated(interpolate(table, first + segment, x), table.fraction_bits)


_FUNCTIONS: dict[str, Callable[[int, Interpolator], int]] = {
    "ex2": _ex2, "rcp": _rcp, "rsqrt": _rsqrt, "sqrt": _sqrt, "lg2": _lg2, "sin": _sin, "cos": _cos, "tanh": _tanh,
}  # fmt: skip
