"""The readable specification of the mathematical functions: exponentials, logarithms, trigonometry, activations.

Every function is correctly rounded: its exact value is rounded once, by `scalar.round_pack`. The exact value of a
transcendental function has infinitely many bits. So it is computed as an interval (see `intervals`), with more and more
bits until its first 128 bits are certain. More bits follow, since the value is no number of 128 bits: a sticky bit says
so. Values that have few bits, as exp2(3) and power(4, 0.5), are found first, and are exact.

Source: IEEE 754-2019, 9.2 and 9.2.1 (Table 9.1 and the special values); R. Brent and P. Zimmermann, "Modern Computer
Arithmetic", section 4; A. Ziv, "Fast evaluation of elementary mathematical functions", ACM TOMS 17 (1991).
GELU: D. Hendrycks and K. Gimpel, arXiv:1606.08415. SiLU: S. Elfwing et al., arXiv:1702.03118. Mish: D. Misra,
arXiv:1908.08681. Where a standard is silent, the value at an infinity is the limit: silu(-inf) is -0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from floatsim.formats import FloatFormat
from floatsim.formats.rounding import DIVIDE_BY_ZERO, INVALID, RoundingAttributes
from floatsim.reference import intervals
from floatsim.reference.intervals import Interval, enclose
from floatsim.reference.scalar import (
    NAN,
    Kind,
    Number,
    Result,
    from_fraction,
    infinite_result,
    nan_result,
    round_pack,
)

__all__ = ["BINARY", "FUNCTIONS", "UNARY", "apply", "is_out_of_range"]

_BITS = 128  # of every significand that is not exact
_GUARD = 64  # bits in the first attempt
_TINY = -140  # an argument below 2**_TINY changes no bit of the first terms of a series
_LARGEST_EXPONENT = 10_000  # 2**_LARGEST_EXPONENT is beyond the range of every format, and its inverse below
_FAR = 7_000  # exp(_FAR) is beyond that too: 7000 / log(2) > 10,000

Scaled: TypeAlias = tuple[Interval, int]
"""An interval and an exponent k: the numbers of the interval times 2**k."""


# -- results -----------------------------------------------------------------------------------------------------------


class _Pole(NamedTuple):
    """The exact infinite result of finite operands."""

    sign: int


def _finite(significand: int, exponent: int = 0, sign: int = 0, sticky: bool = False) -> Number:
    return Number(Kind.FINITE, sign, significand, exponent, sticky)


def _zero(sign: int = 0) -> Number:
    return _finite(0, 0, sign)


def _infinity(sign: int = 0) -> Number:
    return Number(Kind.INFINITE, sign)


_ONE = _finite(1)


def _exact(value: Fraction | int) -> Number:
    """Return a rational number, with a sticky bit if it needs more bits."""
    return from_fraction(Fraction(value))


def _huge(sign: int = 0) -> Number:
    """Return a number beyond the range of every format."""
    return _finite(1 << _BITS, _LARGEST_EXPONENT, sign, True)


def _minute(sign: int = 0) -> Number:
    """Return a number below the range of every format, which is not zero."""
    return _finite(1 << _BITS, -_LARGEST_EXPONENT - 2 * _BITS, sign, True)


def is_out_of_range(x: Number) -> bool:
    """Return whether a result only says that the value is beyond, or below, the range of every format.

    >>> from floatsim import reference
    >>> [is_out_of_range(UNARY["exp"](reference.from_fraction(n))) for n in (-10**6, 1, 10**6)]
    [True, False, True]
    """
    return replace(x, sign=0) in (_huge(), _minute())


def _above(x: Number) -> Number:
    """Return a number whose magnitude is above that of x by less than 2**-_BITS of it."""
    shift = max(0, 2 * _BITS - x.significand.bit_length())
    return replace(x, significand=x.significand << shift, exponent=x.exponent - shift, sticky=True)


def _below(x: Number) -> Number:
    """Return a number whose magnitude is below that of x by less than 2**-_BITS of it."""
    above = _above(x)
    return replace(above, significand=above.significand - 1)


def _halved(x: Number) -> Number:
    return replace(x, exponent=x.exponent - 1)


def _settled(evaluate: Callable[[int], Scaled], guard: int = 0) -> Number:
    """Return the first bits of a number that is no number of so few bits. `evaluate` takes the bits of its interval.

    The loop ends: the number has more bits than any precision, and the intervals become as narrow as needed.
    """
    precision = _BITS + _GUARD + guard
    while True:
        interval, exponent = evaluate(precision)
        sign = int(interval.high < 0)
        low, high = (-interval.high, -interval.low) if sign else (interval.low, interval.high)
        dropped = low.bit_length() - _BITS
        if low > 0 and dropped >= 0 and low >> dropped == (high - 1 >> dropped if high > low else low >> dropped):
            return _finite(low >> dropped, exponent - precision + dropped, sign, True)
        precision *= 2


# -- properties of arguments -------------------------------------------------------------------------------------------


def _log2(x: Number) -> int:
    """Return floor(log2(|x|))."""
    return x.exponent + x.significand.bit_length() - 1


def _is_tiny(x: Number) -> bool:
    return _log2(x) < _TINY


def _smallness(x: Number) -> int:
    """Return the bits that a fixed-point number needs for the first terms of a series in x."""
    return 4 * max(0, -_log2(x))


def _exceeds(x: Number, bound: int) -> bool:
    return x.is_infinite or abs(x.fraction) > bound


def _exp(argument: Callable[[int], Interval]) -> Callable[[int], Scaled]:
    """Return exp(argument) as a function of the precision."""
    return lambda precision: intervals.exp(argument(precision))


def _fixed(scaled: Scaled) -> Interval:
    """Return the numbers without an exponent of their own."""
    y, k = scaled
    return y * (1 << k) if k >= 0 else y.halved(-k)


def _exp_fixed(x: Fraction, precision: int) -> Interval:
    return _fixed(intervals.exp(enclose(x, precision)))


# -- exponentials ------------------------------------------------------------------------------------------------------


def _exponential(x: Number, base: int, log_of_base: Callable[[int], Interval]) -> Number:
    """Return base**x."""
    if x.is_infinite:
        return _zero() if x.sign else _infinity()
    if x.is_zero:
        return _ONE
    value = x.fraction
    if _exceeds(x, 4 * _LARGEST_EXPONENT):
        return _minute() if x.sign else _huge()
    if base and value.denominator == 1:
        return _exact(Fraction(base) ** int(value)) if base != 2 else _finite(1, int(value))
    if _is_tiny(x):
        return _below(_ONE) if x.sign else _above(_ONE)
    return _settled(_exp(lambda p: log_of_base(p) * enclose(value, p)), _smallness(x) + 64)


def _log_of_ten(precision: int) -> Interval:
    return intervals.log(enclose(Fraction(10, 8), precision)) + intervals.log_of_two(precision) * 3


def _expm1(x: Number) -> Number:
    if x.is_infinite:
        return _finite(1, 0, 1) if x.sign else x
    if x.is_zero:
        return x
    if _is_tiny(x):
        return _below(x) if x.sign else _above(x)
    if x.sign and _exceeds(x, 100):
        return _below(_finite(1, 0, 1))
    if _exceeds(x, _FAR):
        return _huge()
    value = x.fraction
    return _settled(lambda p: (_exp_fixed(value, p) - 1, 0), _smallness(x))


# -- logarithms --------------------------------------------------------------------------------------------------------


def _log_interval(value: Fraction, precision: int) -> Interval:
    """Return the logarithm of a positive rational number."""
    k = value.numerator.bit_length() - value.denominator.bit_length()
    scaled = value / Fraction(2) ** k
    if scaled > Fraction(4, 3):  # keep log(x) accurate for x a little below 1
        scaled, k = scaled / 2, k + 1
    return intervals.log(enclose(scaled, precision)) + intervals.log_of_two(precision) * k


def _logarithm(x: Number, base: int) -> Number | _Pole:
    """Return the logarithm to a base, or the natural one for 0."""
    if x.is_zero:
        return _Pole(1)
    if x.sign:
        return NAN
    if x.is_infinite:
        return x
    value = x.fraction
    if (exact := _exact_logarithm(value, base)) is not None:
        return _exact(exact)

    def evaluate(precision: int) -> Scaled:
        y = _log_interval(value, precision)
        if base:
            y = y / (intervals.log_of_two(precision) if base == 2 else _log_of_ten(precision))
        return y, 0

    return _settled(evaluate, 2 * max(0, -_log2(_exact(abs(value - 1)))))


def _exact_logarithm(value: Fraction, base: int) -> int | None:
    """Return the logarithm of powers of the base. All other logarithms of rational numbers are irrational."""
    if value == 1:
        return 0
    if base == 2:
        n = value.numerator.bit_length() - value.denominator.bit_length()
        return n if value == Fraction(2) ** n else None
    if base == 10 and value.denominator == 1:
        n = len(str(value.numerator)) - 1 if value.numerator < 10**400 else 0
        return n if value == 10**n else None
    return None


def _log1p(x: Number) -> Number | _Pole:
    if x.is_infinite:
        return NAN if x.sign else x
    if x.is_zero:
        return x
    if x.fraction <= -1:
        return _Pole(1) if x.fraction == -1 else NAN
    if _is_tiny(x):
        return _above(x) if x.sign else _below(x)
    value = x.fraction
    return _settled(lambda p: (_log_interval(1 + value, p), 0), _smallness(x))


# -- trigonometry ------------------------------------------------------------------------------------------------------


def _trigonometric(x: Number, of_tiny: Callable[[Number], Number], name: str) -> Number:
    if x.is_infinite:
        return NAN
    if x.is_zero:
        return _ONE if name == "cos" else x
    if _is_tiny(x):
        return of_tiny(x)
    value = x.fraction

    def evaluate(precision: int) -> Scaled:
        half_pi = intervals.pi(precision).halved(1)
        turns = round(value * (1 << precision) / half_pi.low)
        cosine, sine = intervals.cos_sin(enclose(value, precision) - half_pi * turns)
        quarter = turns % 4
        cosine, sine = ((cosine, sine), (-sine, cosine), (-cosine, -sine), (sine, -cosine))[quarter]
        if name == "tan":
            if cosine.low <= 0 <= cosine.high:  # more bits separate them
                return Interval(0, 1, precision), 0
            return sine / cosine, 0
        return (cosine if name == "cos" else sine), 0

    return _settled(evaluate, _smallness(x) + max(0, _log2(x)))


def _arc_tangent(value: Fraction, precision: int) -> Interval:
    """Return atan of a rational number that is not negative."""
    if value <= 1:
        return intervals.atan(enclose(value, precision))
    return intervals.pi(precision).halved(1) - intervals.atan(enclose(1 / value, precision))


def _atan(x: Number) -> Number:
    if x.is_infinite:
        return replace(_settled(lambda p: (intervals.pi(p).halved(1), 0)), sign=x.sign)
    if x.is_zero:
        return x
    if _is_tiny(x):
        return _below(x)
    value = abs(x.fraction)
    return replace(_settled(lambda p: (_arc_tangent(value, p), 0), _smallness(x) + 2 * abs(_log2(x))), sign=x.sign)


def _asin(x: Number) -> Number:
    if _exceeds(x, 1):
        return NAN
    if x.is_zero:
        return x
    if _is_tiny(x):
        return _above(x)
    value = abs(x.fraction)

    def evaluate(precision: int) -> Scaled:
        if value == 1:
            return intervals.pi(precision).halved(1), 0
        cosine = enclose(1 - value * value, precision).sqrt()
        if value > cosine.low / Fraction(1 << precision):
            return intervals.pi(precision).halved(1) - intervals.atan(cosine / enclose(value, precision)), 0
        return intervals.atan(enclose(value, precision) / cosine), 0

    return replace(_settled(evaluate, _smallness(x)), sign=x.sign)


def _acos(x: Number) -> Number:
    if _exceeds(x, 1):
        return NAN
    value = x.fraction
    if value == 1:
        return _zero()

    def evaluate(precision: int) -> Scaled:
        half_pi = intervals.pi(precision).halved(1)
        if value in (0, -1):
            return half_pi * (1 if value == 0 else 2), 0
        ratio = enclose((1 - abs(value)) / (1 + abs(value)), precision).sqrt()
        angle = intervals.atan(ratio) * 2
        return (angle if value > 0 else intervals.pi(precision) - angle), 0

    return _settled(evaluate, _smallness(_exact(1 - abs(value))) if abs(value) != 1 else 0)


# -- hyperbolic functions ----------------------------------------------------------------------------------------------


def _sinh(x: Number) -> Number:
    if x.is_infinite or x.is_zero:
        return x
    if _is_tiny(x):
        return _above(x)
    if _exceeds(x, _FAR):
        return _huge(x.sign)
    value = x.fraction
    return _settled(lambda p: ((_exp_fixed(value, p) - _exp_fixed(-value, p)).halved(1), 0), _smallness(x))


def _cosh(x: Number) -> Number:
    if x.is_infinite:
        return _infinity()
    if x.is_zero:
        return _ONE
    if _is_tiny(x):
        return _above(_ONE)
    if _exceeds(x, _FAR):
        return _huge()
    value = x.fraction
    return _settled(lambda p: ((_exp_fixed(value, p) + _exp_fixed(-value, p)).halved(1), 0), _smallness(x))


def _tanh(x: Number) -> Number:
    if x.is_infinite:
        return _finite(1, 0, x.sign)
    if x.is_zero:
        return x
    if _is_tiny(x):
        return _below(x)
    if _exceeds(x, 100):
        return _below(_finite(1, 0, x.sign))
    value = 2 * x.fraction

    def evaluate(precision: int) -> Scaled:
        y = _exp_fixed(value, precision)
        return (y - 1) / (y + 1), 0

    return _settled(evaluate, _smallness(x) + 300)


# -- the error function and activations --------------------------------------------------------------------------------


def _erf(x: Number) -> Number:
    if x.is_infinite:
        return _finite(1, 0, x.sign)
    if x.is_zero:
        return x
    if _exceeds(x, 12):  # erfc(12) < 2**-200
        return _below(_finite(1, 0, x.sign))
    value = abs(x.fraction)
    return replace(
        _settled(lambda p: (intervals.erf(enclose(value, p)), 0), _smallness(x) + 2 * int(value * value)), sign=x.sign
    )


def _reciprocal(x: Number) -> Number | _Pole:
    if x.is_zero:
        return _Pole(x.sign)
    return _zero(x.sign) if x.is_infinite else _exact(1 / x.fraction)


def _rsqrt(x: Number) -> Number | _Pole:
    if x.is_zero:
        return _Pole(x.sign)
    if x.sign:
        return NAN
    if x.is_infinite:
        return _zero()
    shift = 4 * _BITS + x.significand.bit_length()
    shift += (shift + x.exponent) & 1  # the exponent of 1 / x is even
    root, exponent = math.isqrt((1 << shift) // x.significand), -(shift + x.exponent) // 2
    return _finite(root, exponent, 0, root * root * x.significand != 1 << shift)


def _cbrt(x: Number) -> Number:
    if x.is_infinite or x.is_zero:
        return x
    shift = 6 * _BITS + (x.exponent % 3)
    radicand = x.significand << shift
    root = _integer_root(radicand, 3)
    return _finite(root, (x.exponent - shift) // 3, x.sign, root**3 != radicand)


def _integer_root(radicand: int, degree: int) -> int:
    """Return floor(radicand ** (1 / degree)), with Newton's method from above."""
    root = 1 << -(-radicand.bit_length() // degree)
    while True:
        better = ((degree - 1) * root + radicand // root ** (degree - 1)) // degree
        if better >= root:
            return root
        root = better


def _logistic(t: Interval) -> Scaled:
    """Return 1 / (1 + exp(-t)) without cancellation."""
    if t.high > 0:
        return enclose(1, t.precision) / (_fixed(intervals.exp(-t)) + 1), 0
    y, k = intervals.exp(t)
    return y / (_fixed((y, k)) + 1), k


def _sigmoid(x: Number) -> Number:
    if x.is_infinite:
        return _zero() if x.sign else _ONE
    if x.is_zero:
        return _finite(1, -1)
    if _is_tiny(x):
        return _below(_finite(1, -1)) if x.sign else _above(_finite(1, -1))
    if _exceeds(x, 100 if not x.sign else _FAR):
        return _minute() if x.sign else _below(_ONE)
    value = x.fraction
    return _settled(lambda p: _logistic(enclose(value, p)), _smallness(x))


def _activation(x: Number, saturates: bool, vanishes: bool, gate: Callable[[int], Scaled], halves: bool) -> Number:
    """Return x * gate, with the limits x and -0. `halves`: the gate is 1/2 + x for small x."""
    if x.is_infinite:
        return _zero(1) if x.sign else x
    if x.is_zero:
        return x
    if halves and _is_tiny(x):
        return _below(_halved(x)) if x.sign else _above(_halved(x))
    if saturates:
        return _below(x)
    if vanishes:
        return _minute(1)
    value = x.fraction

    def evaluate(precision: int) -> Scaled:
        y, k = gate(precision)
        return enclose(value, precision) * y, k

    return _settled(evaluate, _smallness(x))


def _silu(x: Number) -> Number:
    saturates, vanishes = not x.sign and _exceeds(x, 100), bool(x.sign) and _exceeds(x, 2 * _FAR)
    return _activation(x, saturates, vanishes, lambda p: _logistic(enclose(x.fraction, p)), True)


def _mish(x: Number) -> Number:
    saturates, vanishes = not x.sign and _exceeds(x, 100), bool(x.sign) and _exceeds(x, 2 * _FAR)

    def gate(precision: int) -> Scaled:
        """Return tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2), with e = exp(x)."""
        y, k = intervals.exp(enclose(x.fraction, precision))
        e = _fixed((y, k))
        return y * (e + 2) / (e * (e + 2) + 2), k

    return _activation(x, saturates, vanishes, gate, False)


def _gelu(x: Number) -> Number:
    """Return x * (1 + erf(x / sqrt(2))) / 2."""
    saturates, vanishes = not x.sign and _exceeds(x, 20), bool(x.sign) and _exceeds(x, 200)

    def gate(precision: int) -> Scaled:
        if abs(x.fraction) > 3:
            tail = intervals.normal_tail(enclose(abs(x.fraction), precision))
            return tail if x.sign else (-_fixed(tail) + 1, 0)
        error = intervals.erf(enclose(x.fraction**2 / 2, precision).sqrt())
        return (-error + 1 if x.sign else error + 1), -1

    return _activation(x, saturates, vanishes, gate, True)


def _gelu_tanh(x: Number) -> Number:
    """Return x * (1 + tanh(u)) / 2 = x / (1 + exp(-2u)), u = sqrt(2 / pi) * (x + 0.044715 * x**3)."""
    saturates, vanishes = not x.sign and _exceeds(x, 50), bool(x.sign) and _exceeds(x, 100)
    cubic = Fraction(0) if x.is_infinite else x.fraction + Fraction("0.044715") * x.fraction**3

    def gate(precision: int) -> Scaled:
        factor = (enclose(2, precision) / intervals.pi(precision)).sqrt() * 2
        return _logistic(factor * enclose(cubic, precision))

    return _activation(x, saturates, vanishes, gate, True)


def _softplus(x: Number) -> Number:
    """Return log(1 + exp(x))."""
    if x.is_infinite:
        return _zero() if x.sign else x
    if x.is_zero:
        return _settled(lambda p: (intervals.log_of_two(p), 0))
    if _exceeds(x, _FAR if x.sign else 100):
        return _minute() if x.sign else _above(x)
    value = x.fraction

    def evaluate(precision: int) -> Scaled:
        """Return max(x, 0) + log(1 + e), e = exp(-|x|): log(1 + e) = 2 atanh(e / (e + 2))."""
        y, k = intervals.exp(enclose(-abs(value), precision))
        e = _fixed((y, k))
        tail = y / (e + 2) * intervals.atanh_ratio(e / (e + 2)) * 2
        return (tail, k) if x.sign else (_fixed((tail, k)) + enclose(value, precision), 0)

    return _settled(evaluate, _smallness(x))


# -- functions of two numbers ------------------------------------------------------------------------------------------


def _hypot(x: Number, y: Number) -> Number:
    """Return sqrt(x*x + y*y)."""
    if x.is_infinite or y.is_infinite:
        return _infinity()
    if x.is_nan or y.is_nan:
        return NAN
    total = x.fraction**2 + y.fraction**2
    if total == 0:
        return _zero()
    shift = 1 - total.denominator.bit_length()  # the denominator is a power of two
    shift -= 4 * _BITS + (shift & 1)
    radicand = int(total / Fraction(2) ** shift)
    root = math.isqrt(radicand)
    return _finite(root, shift // 2, 0, root * root != radicand)


def _parity(y: Number) -> int | None:
    """Return 1 for odd whole numbers, 0 for even ones, and None for others."""
    if y.is_infinite:
        return 0
    return y.fraction.numerator & 1 if y.fraction.denominator == 1 else None


def _power(x: Number, y: Number) -> Number | _Pole:
    """Return x**y (pow of IEEE 754-2019, 9.2.1)."""
    if y.is_zero or (x.kind is Kind.FINITE and x.fraction == 1):
        return _ONE
    if x.is_nan or y.is_nan:
        return NAN
    parity = _parity(y)
    sign = x.sign if parity == 1 else 0
    if y.is_infinite:
        if x.kind is Kind.FINITE and abs(x.fraction) == 1:
            return _ONE
        grows = _exceeds(x, 1) != bool(y.sign)
        return _infinity() if grows else _zero()
    if x.is_zero:
        return _Pole(sign) if y.sign else _zero(sign)
    if x.is_infinite:
        return _zero(sign) if y.sign else _infinity(sign)
    if x.sign and parity is None:
        return NAN
    base, exponent = abs(x.fraction), y.fraction
    return replace(_power_of(base, exponent), sign=sign)


def _power_of(base: Fraction, exponent: Fraction) -> Number:
    """Return base**exponent for a positive base that is a dyadic rational, as is the exponent."""
    if base == 1:
        return _ONE
    bits = abs(exponent) * (abs(_log2(_exact(base))) + 1)
    if (exact := _exact_power(base, exponent)) is not None:
        return exact
    if bits > 4 * _LARGEST_EXPONENT:  # log2(base) may still be small, for a base next to 1
        estimate = _log_interval(base, 64 + 2 * abs(_log2(_exact(abs(base - 1)))))
        if abs(exponent) * min(abs(estimate.low), abs(estimate.high)) > _FAR << estimate.precision:
            return _huge() if (base > 1) == (exponent > 0) else _minute()
    size = max(0, _log2(_exact(abs(exponent)))), max(0, -_log2(_exact(abs(base - 1))))
    small = 4 * max(0, -_log2(_exact(abs(exponent)))) + 4 * size[1]

    return _settled(_exp(lambda p: _log_interval(base, p) * enclose(exponent, p)), size[0] + small + 64)


def _exact_power(base: Fraction, exponent: Fraction) -> Number | None:
    """Return base**exponent if it is a number of at most 4 * _BITS bits, or a rational number with a sticky bit."""
    twos = _trailing_zeros(base.numerator) - _trailing_zeros(base.denominator)
    odd = base.numerator >> max(twos, 0)  # base = odd * 2**twos
    for _ in range(exponent.denominator.bit_length() - 1):  # exponent = n / 2**k: k square roots, all exact
        root = math.isqrt(odd)
        if root * root != odd or twos & 1:
            return None
        odd, twos = root, twos >> 1
    n = exponent.numerator
    if odd == 1:
        scaled = max(-4 * _LARGEST_EXPONENT, min(twos * n, 4 * _LARGEST_EXPONENT))
        return _finite(1, scaled)
    if (odd.bit_length() - 1) * abs(n) > 4 * _BITS:
        return None
    if n > 0:
        return _finite(odd**n, twos * n)
    inverse = _exact(Fraction(1, odd**-n))
    return replace(inverse, exponent=inverse.exponent + twos * n)


def _trailing_zeros(n: int) -> int:
    return (n & -n).bit_length() - 1


# -- all functions -----------------------------------------------------------------------------------------------------

UNARY: dict[str, Callable[[Number], Number | _Pole]] = {
    "exp": lambda x: _exponential(x, 0, lambda p: enclose(1, p)),
    "exp2": lambda x: _exponential(x, 2, intervals.log_of_two),
    "exp10": lambda x: _exponential(x, 10, _log_of_ten),
    "expm1": _expm1,
    "log": lambda x: _logarithm(x, 0),
    "log2": lambda x: _logarithm(x, 2),
    "log10": lambda x: _logarithm(x, 10),
    "log1p": _log1p,
    "sin": lambda x: _trigonometric(x, _below, "sin"),
    "cos": lambda x: _trigonometric(x, lambda _: _below(_ONE), "cos"),
    "tan": lambda x: _trigonometric(x, _above, "tan"),
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "erf": _erf,
    "rsqrt": _rsqrt,
    "reciprocal": _reciprocal,
    "cbrt": _cbrt,
    "sigmoid": _sigmoid,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "softplus": _softplus,
    "mish": _mish,
}
"""The functions of one number: an exact number gives a number, NaN for an invalid operation, or a pole."""
BINARY: dict[str, Callable[[Number, Number], Number | _Pole]] = {"power": _power, "hypot": _hypot}
"""The functions of two numbers. They also take NaNs: power(NaN, 0) is 1, and hypot(inf, NaN) is inf."""
FUNCTIONS = UNARY.keys() | BINARY.keys()


def apply(
    name: str, operands: tuple[Number, ...], fmt: FloatFormat, attributes: RoundingAttributes, random: int = 0
) -> Result:
    """Return (code, events) of a function.

    >>> import floatsim as fs
    >>> from floatsim import reference
    >>> code, events = apply("exp", (reference.decode(0x3C00, fs.FP16),), fs.FP16, reference.RoundingAttributes())
    >>> reference.decode(code, fs.FP16).fraction
    Fraction(87, 32)
    """
    signaling = any(x.kind is Kind.SIGNALING_NAN for x in operands)
    if signaling or (name in UNARY and operands[0].is_nan):
        return nan_result(fmt, *operands)
    found = UNARY[name](*operands) if name in UNARY else BINARY[name](*operands)
    if isinstance(found, _Pole):
        return infinite_result(found.sign, fmt), DIVIDE_BY_ZERO
    if found.is_nan:
        quiet = any(x.is_nan for x in operands)
        return nan_result(fmt)[0], nan_result(fmt)[1] | (0 if quiet else INVALID)
    if found.is_infinite:
        return infinite_result(found.sign, fmt), 0
    return round_pack(found, fmt, attributes, random)
