"""CUDA's mathematical functions in FP32, as sequences of FP32 operations.

A sequence is a function of a *machine* and of a number. The machine has the operations: `floatsim.reference` has one
for single numbers on exact integers, and the emulator one for arrays. Both run the text of this module. All branches
are computed, and `select` takes the result of one.

Sources. The formulas of the activations are those of PyTorch (aten/src/ATen/native/cuda). Arguments are reduced as by
W. J. Cody and W. Waite, "Software Manual for the Elementary Functions", 1980, and by M. Payne and R. Hanek, "Radian
Reduction for Trigonometric Functions", ACM SIGNUM Newsletter 18, 1983; the CUDA programming guide states the bound
105615 between the two. The forms of the polynomials follow N. Juffa's public posts about functions in single precision
(stackoverflow.com, user njuffa). Their coefficients are not taken from a library: they were fitted to outputs that we
recorded on an NVIDIA H200 with CUDA 13.0 and torch 2.11.0, all of which they give. Other coefficients may give these
outputs, too, so that a result for another argument can differ in its last bit.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from floatsim.formats._validation import name_hint

__all__ = ["CUDA_FUNCTIONS", "CudaFunction", "Machine", "as_cuda_function", "payne_hanek_words"]

Single = Any
"""A number of FP32, or an array of numbers, with the operators + - * /, abs, negation, and comparisons."""


class Machine(Protocol):
    """The operations of a sequence besides the operators."""

    def number(self, value: float) -> Single:
        """Return the number nearest to a Python float."""

    def fma(self, a: Single, b: Single, c: Single) -> Single:
        """Return a * b + c, rounded once."""

    def add_toward_zero(self, a: Single, b: Single) -> Single:
        """Return a + b, rounded toward zero."""

    def sqrt(self, a: Single) -> Single:
        """Return the square root, rounded once."""

    def approximate(self, name: str, a: Single) -> Single:
        """Return the result of the special-function unit, in the form that flushes subnormal numbers to zero."""

    def nearest(self, name: str, a: Single) -> Single:
        """Return a mathematical function of the number, rounded once."""

    def nearest_power(self, a: Single, exponent: float) -> Single:
        """Return a power of the number, rounded once."""

    def select(self, condition: Any, a: Single, b: Single) -> Single:
        """Return a where the condition holds, else b."""

    def truncate(self, a: Single) -> Single:
        """Return the integer part."""

    def power_of_two(self, n: Single) -> Single:
        """Return 2**n for an integer n from -126 to 127. Other arguments may give anything."""

    def split(self, a: Single, least: float) -> tuple[Single, Single]:
        """Return (n, f) with a = 2**n * f and f from `least` to twice that, for a normal number above zero."""

    def with_sign_of(self, a: Single, b: Single) -> Single:
        """Return a with the sign of b."""

    def is_odd(self, n: Single) -> Any:
        """Return whether an integer below 2**24 in magnitude is odd; False for NaN."""

    def reduce_large(self, a: Single) -> tuple[Single, Single]:
        """Return (r, n) with a = r + n pi/2 modulo 2 pi for a large finite number; see `payne_hanek_words`."""


# -- parts -------------------------------------------------------------------------------------------------------------

_ROUND = 1.5 * 2**23
"""Added to a number below 2**22, it leaves the nearest integer in the last bits of the sum."""


def _polynomial(m: Machine, x: Single, coefficients: tuple[float, ...]) -> Single:
    """Return a polynomial by Horner's rule with fused multiply-adds, from the coefficient of the highest power."""
    result = m.number(coefficients[0])
    for coefficient in coefficients[1:]:
        result = m.fma(result, x, m.number(coefficient))
    return result


def _limited(m: Machine, x: Single, least: float, most: float) -> Single:
    """Return x limited to a range; NaN gives the least."""
    x = m.select(x > m.number(least), x, m.number(least))
    return m.select(x < m.number(most), x, m.number(most))


def _single(value: float) -> float:
    """Return a Python float, rounded to 24 bits."""
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(fraction, 24)), exponent - 24)


_LOG2_E = 1 / math.log(2)
_LOG2_E_HIGH = _single(_LOG2_E)
_LOG2_E_LOW = 1.925963033500011e-08
"""log2(e) = 1.4426950408889634074 minus its FP32 number, and so for the other constants in two parts."""
_LN_2_HIGH, _LN_2_LOW = _single(math.log(2)), -1.904654299957768e-09
_HALF_PI_FACTORS = (_single(0.933189452), _single(1.683255553))
"""Two FP32 numbers whose product is pi/2 to 2.4e-15."""


# -- exponentials ------------------------------------------------------------------------------------------------------


def _exp(m: Machine, x: Single) -> Single:
    """2**n * ex2(x log2(e) - n) with n = floor(x log2(e)) from -126 to 126."""
    share = _limited(m, m.fma(x, m.number(_LOG2_E / 252), m.number(0.5)), 0.0, 1.0)
    scale = m.number(252.0)
    n = m.fma(share, scale, m.number(_ROUND)) - m.number(_ROUND)
    n = m.select(m.fma(share, scale, -n) < m.number(0.0), n - m.number(1.0), n) - m.number(126.0)
    fraction = m.fma(x, m.number(_LOG2_E_LOW), m.fma(x, m.number(_LOG2_E_HIGH), -n))
    return m.approximate("ex2", fraction) * m.power_of_two(n)


def _exp2(m: Machine, x: Single) -> Single:
    """ex2(x), and ex2(x / 2)**2 below -126, where a result can be subnormal."""
    small = x < m.number(-126.0)
    power = m.approximate("ex2", m.select(small, x * m.number(0.5), x))
    return m.select(small, power * power, power)


_EXPM1 = (0.001387953758239746, 0.008382418192923069, 0.04166783019900322, 0.1666639745235443, 0.4999999403953552)


def _expm1(m: Machine, x: Single) -> Single:
    """2**n (1 + expm1(f)) - 1 with n = rint(x log2(e)) and f = x - n ln(2); n = 0 below 0.41."""
    one = m.number(1.0)
    n = m.fma(x, m.number(_LOG2_E_HIGH), m.number(_ROUND)) - m.number(_ROUND)
    n = m.select(abs(x) < m.number(0.41), m.number(0.0), n)
    f = m.fma(n, m.number(-_LN_2_LOW), m.fma(n, m.number(-_LN_2_HIGH), x))
    part = m.fma(_polynomial(m, f, _EXPM1) * f, f, f)
    last = m.number(128.0)
    at_end = (n >= last) & (n <= last)  # 2**128 is beyond FP32
    power = m.power_of_two(_limited(m, m.select(at_end, m.number(127.0), n), -126.0, 127.0))
    result = m.fma(part, power, power - one)
    result = m.select(at_end, result + result, result)
    result = m.select(n > last, m.number(math.inf), result)
    result = m.select(n < m.number(-40.0), -one, result)
    return m.select(abs(x) > m.number(0.0), result, x + x)


def _exp_quarter(m: Machine, x: Single) -> Single:
    """exp(x) / 4 of a number that is not negative, by n = trunc(x log2(e)), at most 126."""
    n = m.truncate(x * m.number(_LOG2_E_HIGH))
    n = m.select(n > m.number(126.0), m.number(126.0), n)
    f = m.fma(n, m.number(-_LN_2_LOW), m.fma(n, m.number(-_LN_2_HIGH), x))
    return m.approximate("ex2", f * m.number(_LOG2_E_HIGH)) * m.approximate("ex2", n - m.number(2.0))


_SINH = (2.816319465637207e-06, 0.00019835680723190308, 0.008333352394402027, 0.1666666716337204)


def _sinh(m: Machine, x: Single) -> Single:
    """x + x**3 P(x**2) below 1; else 2 e - 1 / (8 e) with e = exp(|x|) / 4."""
    square = x * x
    small = m.fma(_polynomial(m, square, _SINH) * square, x, x)
    quarter = _exp_quarter(m, abs(x))
    large = m.fma(m.number(-0.125), m.approximate("rcp", quarter), quarter + quarter)
    result = m.select(abs(x) >= m.number(1.0), m.with_sign_of(large, x), small)
    return m.select(abs(x) > m.number(0.0), result, x + x)


def _cosh(m: Machine, x: Single) -> Single:
    """2 e + 1 / (8 e) with e = exp(|x|) / 4."""
    quarter = _exp_quarter(m, abs(x))
    return m.fma(m.number(0.125), m.approximate("rcp", quarter), quarter + quarter)


_TANH = (0.015739653259515762, -0.05230395495891571, 0.13315297663211823, -0.33332768082618713)


def _tanh(m: Machine, x: Single) -> Single:
    """x + x**3 P(x**2) below 0.6; else 1 - 2 / (exp(2 |x|) + 1)."""
    square, one = x * x, m.number(1.0)
    small = m.fma(_polynomial(m, square, _TANH) * square, x, x)
    power = m.approximate("ex2", abs(x) * m.number(2 * _LOG2_E))
    large = m.with_sign_of(m.fma(m.approximate("rcp", power + one), m.number(-2.0), one), x)
    result = m.select(abs(x) < m.number(0.6), small, large)
    return m.select(abs(x) > m.number(0.0), result, x + x)


# -- logarithms --------------------------------------------------------------------------------------------------------

_LOG = (-0.13014259934425354, 0.14078186452388763, -0.12151964753866196, 0.13981400430202484, -0.166838601231575,
        0.20012280344963074, -0.24999679625034332, 0.333331823348999, -0.5)  # fmt: skip


def _scaled(m: Machine, x: Single) -> tuple[Single, Single]:
    """(x, 0), or (2**23 x, -23) for subnormal numbers; 1 for numbers that have no logarithm."""
    small = x < m.number(2.0**-126)
    normal = m.select(small, x * m.number(2.0**23), x)
    normal = m.select((normal > m.number(0.0)) & (normal < m.number(math.inf)), normal, m.number(1.0))
    return normal, m.select(small, m.number(-23.0), m.number(0.0))


def _of_pole(m: Machine, x: Single, result: Single) -> Single:
    """The result, or that of a logarithm at 0 and inf, beyond, and of NaN."""
    zero, infinity = m.number(0.0), m.number(math.inf)
    result = m.select((x > zero) & (x < infinity), result, x - x)
    result = m.select(x >= infinity, infinity, result)
    result = m.select((x >= zero) & (x <= zero), -infinity, result)
    return m.select(x < zero, m.number(math.nan), result)


def _log(m: Machine, x: Single) -> Single:
    """n ln(2) + log1p(f), x = 2**n (1 + f), f from -1/3 to 1/3, log1p(f) = f + f**2 P(f)."""
    normal, added = _scaled(m, x)
    n, f = m.split(normal, _single(2 / 3))
    f = f - m.number(1.0)
    part = m.fma(_polynomial(m, f, _LOG) * f, f, f)
    return _of_pole(m, x, m.fma(n + added, m.number(_LN_2_HIGH), part))


def _log10(m: Machine, x: Single) -> Single:
    """log(x) / ln(10)."""
    return _log(m, x) * m.number(1 / math.log(10))


_LOG1P = (-0.04534721374511719, 0.10546875, -0.13229751586914062, 0.14491453766822815, -0.16641563177108765,
          0.199888676404953, -0.2500019669532776, 0.33333510160446167, -0.5)  # fmt: skip


def _log1p(m: Machine, x: Single) -> Single:
    """n ln(2) + log1p(f), 1 + x = 2**n (1 + f), f from -1/4 to 1/2, log1p(f) = f + f**2 P(f)."""
    one, infinity = m.number(1.0), m.number(math.inf)
    inside = (x > -one) & (x < infinity)
    safe = m.select(inside, x, m.number(0.0))
    n, _ = m.split(m.add_toward_zero(one, safe), 0.75)
    scale = m.power_of_two(m.number(2.0) - n)  # 2**-n would be subnormal for large x
    f = safe * scale * m.number(0.25) + m.fma(m.number(0.25), scale, -one)
    part = m.fma(_polynomial(m, f, _LOG1P) * f, f, f)
    result = m.fma(n, m.number(_LN_2_HIGH), part)
    result = m.select(inside, result, x - x)
    result = m.select(x >= infinity, infinity, result)
    result = m.select((x >= -one) & (x <= -one), -infinity, result)
    result = m.select(x < -one, m.number(math.nan), result)
    return m.select(abs(x) > m.number(0.0), result, x + x)


# -- trigonometric functions -------------------------------------------------------------------------------------------

_SIN = (-0.00019574661564547569, 0.00833270326256752, -0.16666662693023682)
_COS = (2.4281442165374756e-05, -0.0013887871755287051, 0.041666727513074875, -0.4999999701976776, 1.0)
_TAN = (0.00933837890625, 0.003265380859375, 0.0242919921875, 0.053466796875, 0.13337790966033936, 0.3333323001861572)
_HALF_PI = (_single(1.570796012878418), _single(3.139164786504813e-07), _single(5.390302529957765e-15))
"""pi/2 in three parts."""
_LARGE = 105615.0
"""From here on the reduction is that of Payne and Hanek (CUDA C++ programming guide, trigonometric functions)."""
PAYNE_HANEK_BITS = 94
"""Bits of 2/pi behind the point of 2**e * 2/pi; see `payne_hanek_words`."""


@functools.cache
def payne_hanek_words() -> tuple[int, ...]:
    """Return floor(2**e * 2/pi * 2**94) modulo 2**96 for e from 0 to 127.

    An FP32 number is an integer times 2**(e - 23). The product of both without its last 32 bits is the number of
    quadrants: two bits before the point, and 62 behind it.
    """
    constant = _two_over_pi(PAYNE_HANEK_BITS + 127)
    return tuple((constant >> 127 - e + 23) % 2**96 for e in range(128))


def _two_over_pi(bits: int) -> int:
    """Return floor(2/pi * 2**bits), with pi by J. Machin's formula."""
    guard = bits + 64

    def arctangent(divisor: int) -> int:
        power = total = (1 << guard) // divisor
        k, sign = 1, 1
        while power:
            power //= divisor * divisor
            k, sign = k + 2, -sign
            total += sign * (power // k)
        return total

    pi = 4 * (4 * arctangent(5) - arctangent(239))
    return (2 << guard + bits) // pi


def _reduced(m: Machine, x: Single) -> tuple[Single, Single]:
    """(r, n) with x = r + n pi/2 modulo 2 pi, r from -pi/4 to pi/4."""
    n = (x * m.number(2 / math.pi) + m.number(_ROUND)) - m.number(_ROUND)
    r = x
    for part in _HALF_PI:
        r = m.fma(n, m.number(-part), r)
    large = abs(x) >= m.number(_LARGE)
    far, turns = m.reduce_large(x)
    r, n = m.select(large, far, r), m.select(large, turns, n)
    return m.select(abs(x) < m.number(math.inf), r, m.number(math.nan)), n


def _sine(m: Machine, r: Single) -> Single:
    square = r * r
    return m.fma(_polynomial(m, square, _SIN), m.fma(r, square, m.number(0.0)), r)


def _quarter_turns(m: Machine, r: Single, n: Single) -> Single:
    """The sine of r + n pi/2."""
    cosine = _polynomial(m, r * r, _COS)
    result = m.select(m.is_odd(n), cosine, _sine(m, r))
    half = (n - m.select(m.is_odd(n), m.number(1.0), m.number(0.0))) * m.number(0.5)
    return m.select(m.is_odd(half), -result, result)


def _sin(m: Machine, x: Single) -> Single:
    """sin(r) or cos(r) with its sign; r + r**3 P(r**2) and P(r**2)."""
    return _quarter_turns(m, *_reduced(m, x))


def _cos(m: Machine, x: Single) -> Single:
    """sin(x + pi/2)."""
    r, n = _reduced(m, x)
    return _quarter_turns(m, r, n + m.number(1.0))


def _tan(m: Machine, x: Single) -> Single:
    """tan(r) = r + r**3 P(r**2), or -1 / tan(r)."""
    r, n = _reduced(m, x)
    square = r * r
    tangent = m.fma(_polynomial(m, square, _TAN), r * square, r)
    return m.select(m.is_odd(n), m.approximate("rcp", -tangent), tangent)


_ATAN = (0.0024499038700014353, -0.014396741054952145, 0.03984961286187172, -0.07252972573041916, 0.10518480092287064,
         -0.1417180299758911, 0.19988775253295898, -0.3333294093608856)  # fmt: skip


def _atan(m: Machine, x: Single) -> Single:
    """a + a**3 P(a**2) with a = |x|, or pi/2 minus that of a = 1 / |x|."""
    size = abs(x)
    large = size > m.number(1.0)
    a = m.select(large, m.approximate("rcp", size), size)
    square = a * a
    angle = m.fma(_polynomial(m, square, _ATAN) * square, a, a)
    first, second = _HALF_PI_FACTORS
    angle = m.select(large, m.fma(m.number(first), m.number(second), -angle), angle)
    return m.with_sign_of(angle, x)


_ASIN = (0.0502471923828125, 0.018774986267089844, 0.04676873981952667, 0.0748230367898941, 0.16667181253433228)
_ASIN_LARGE = 0.56


def _asin(m: Machine, x: Single) -> Single:
    """a + a**3 P(a**2) with a = |x|; from 0.56 on, pi/2 minus twice that of a = sqrt((1 - |x|) / 2).

    The square root is rsqrt(h) h with one step of Newton's method.
    """
    size, half = abs(x), m.number(0.5)
    large = size > m.number(_ASIN_LARGE)
    h = m.fma(-half, size, half)
    inverse = m.approximate("rsqrt", h)
    root = h * inverse
    root = m.fma(root, m.fma(-root, half * inverse, half), root)
    root = m.select(h > m.number(0.0), root, h)
    a = m.select(large, root, size)
    square = a * a
    angle = m.fma(_polynomial(m, square, _ASIN) * square, a, a)
    first, second = _HALF_PI_FACTORS
    angle = m.select(large, m.fma(m.number(first), m.number(second), m.number(-2.0) * angle), angle)
    return m.with_sign_of(m.select(size <= m.number(1.0), angle, m.number(math.nan)), x)


_ERF_SMALL = (8.494725625496358e-05, -0.0008216145215556026, 0.005213787313550711, -0.026868892833590508,
              0.11284006386995316, -0.37612664699554443, 0.12837915122509003)  # fmt: skip
_ERF_LARGE = (0.00011235710553592071, -0.001328992540948093, 0.008401716127991676, -0.04025518149137497,
              0.15951088070869446, 0.9129158854484558, 0.6290600299835205)  # fmt: skip


def _erf(m: Machine, x: Single) -> Single:
    """x + x P(x**2) to 1.004; beyond, 1 - 2**-(a + a P(a)) with a = |x|."""
    size, one = abs(x), m.number(1.0)
    small = m.fma(_polynomial(m, x * x, _ERF_SMALL), x, x)
    power = m.approximate("ex2", m.fma(_polynomial(m, size, _ERF_LARGE), -size, -size))
    large = m.with_sign_of(one - power, x)
    return m.select(size < m.number(1.004), small, large)


# -- activations and arithmetic ----------------------------------------------------------------------------------------


def _sigmoid(m: Machine, x: Single) -> Single:
    """1 / (1 + exp(-x))."""
    return m.number(1.0) / (m.number(1.0) + _exp(m, -x))


def _silu(m: Machine, x: Single) -> Single:
    """x / (1 + exp(-x)); NaN at -inf."""
    return x / (m.number(1.0) + _exp(m, -x))


def _softplus(m: Machine, x: Single) -> Single:
    """log1p(exp(x)), and x above 20."""
    return m.select(x > m.number(20.0), x, _log1p(m, _exp(m, x)))


def _logsigmoid(m: Machine, x: Single) -> Single:
    """min(0, x) - log1p(exp(-|x|))."""
    return m.select(x > m.number(0.0), m.number(0.0), x) - _log1p(m, _exp(m, -abs(x)))


def _mish(m: Machine, x: Single) -> Single:
    """x tanh(log1p(exp(x))); NaN at -inf."""
    return x * _tanh(m, _log1p(m, _exp(m, x)))


def _elu(m: Machine, x: Single) -> Single:
    """x, and expm1(x) of negative numbers."""
    return m.select(x > m.number(0.0), x, _expm1(m, x))


def _hardswish(m: Machine, x: Single) -> Single:
    """x times the number x + 3 limited to the range from 0 to 6, times 1/6."""
    shifted = x + m.number(3.0)
    limited = m.select(shifted < m.number(0.0), m.number(0.0), shifted)
    limited = m.select(limited > m.number(6.0), m.number(6.0), limited)
    return x * limited * m.number(1 / 6)


def _gelu_tanh(m: Machine, x: Single) -> Single:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3)))."""
    inner = m.number(math.sqrt(2 / math.pi)) * m.fma(m.number(0.044715), x * x * x, x)
    return m.number(0.5) * x * (m.number(1.0) + _tanh(m, inner))


def _gelu(erf: Callable[[Machine, Single], Single]) -> Callable[[Machine, Single], Single]:
    def gelu(m: Machine, x: Single) -> Single:
        """x 0.5 (1 + erf(x sqrt(1/2)))."""
        return x * m.number(0.5) * (m.number(1.0) + erf(m, x * m.number(math.sqrt(0.5))))

    return gelu


def _rsqrt(m: Machine, x: Single) -> Single:
    """rsqrt(x) of the special-function unit; 2**12 rsqrt(2**24 x) of a subnormal number."""
    small = abs(x) < m.number(2.0**-126)
    result = m.approximate("rsqrt", m.select(small, x * m.number(2.0**24), x))
    return m.select(small, result * m.number(2.0**12), result)


def _nearest(name: str) -> Callable[[Machine, Single], Single]:
    return lambda m, x: m.nearest(name, x)


def _square(m: Machine, x: Single) -> Single:
    """x * x."""
    return x * x


@dataclass(frozen=True)
class CudaFunction:
    """A function of CUDA's library or of PyTorch's operators.

    Attributes
    ----------
    name : str
        The name in `fs.library_function`.
    steps : callable
        The sequence: a function of a machine, a number, and the second operand if there is one.
    in_fp32 : bool
        Whether the sequence is the one of FP32. Otherwise it is known to give the results of 16 bits only.
    fitted : bool
        Whether the sequence has coefficients that were fitted to recorded outputs in FP32.
    takes_number : bool
        Whether the function has a second operand, a Python number.
    numbers : tuple of float
        The second operands that were recorded; empty: all.
    """

    name: str
    steps: Callable[..., Single]
    in_fp32: bool = True
    fitted: bool = False
    takes_number: bool = False
    numbers: tuple[float, ...] = ()


def _with_number(operation: Callable[[Machine, Single, Single], Single]) -> Callable[..., Single]:
    return lambda m, x, number: operation(m, x, m.number(number))


def _power(m: Machine, x: Single, number: float) -> Single:
    """x * x, or x**number rounded once."""
    return x * x if number == 2 else m.nearest_power(x, number)


_ONE_OPERAND: dict[str, Callable[[Machine, Single], Single]] = {
    "exp": _exp, "exp2": _exp2, "expm1": _expm1, "sinh": _sinh, "cosh": _cosh, "tanh": _tanh,
    "log": _log, "log10": _log10, "log1p": _log1p, "sin": _sin, "cos": _cos, "tan": _tan, "asin": _asin,
    "sigmoid": _sigmoid, "silu": _silu, "softplus": _softplus, "logsigmoid": _logsigmoid, "mish": _mish, "elu": _elu,
    "hardswish": _hardswish, "gelu_tanh": _gelu_tanh, "rsqrt": _rsqrt, "square": _square,
    "sqrt": lambda m, x: m.sqrt(x), "reciprocal": lambda m, x: m.number(1.0) / x,
}  # fmt: skip
_IN_16_BITS: dict[str, Callable[[Machine, Single], Single]] = {
    "atan": _atan, "log2": _nearest("log2"), "erf": _erf, "gelu": _gelu(_erf),
}  # fmt: skip

_FITTED = (
    "expm1", "elu", "sinh", "tanh", "gelu_tanh", "log", "log10", "log1p", "sin", "cos", "tan", "asin", "softplus",
    "logsigmoid", "mish", "atan", "erf", "gelu",
)  # fmt: skip
"""Functions with fitted coefficients."""

CUDA_FUNCTIONS = {
    row.name: row
    for row in (
        *(CudaFunction(name, steps, fitted=name in _FITTED) for name, steps in _ONE_OPERAND.items()),
        *(CudaFunction(name, steps, in_fp32=False, fitted=name in _FITTED) for name, steps in _IN_16_BITS.items()),
        CudaFunction("power", _power, in_fp32=False, takes_number=True, numbers=(2.0, 2.5)),
        CudaFunction("add", _with_number(lambda m, x, b: x + b), takes_number=True),
        CudaFunction("multiply", _with_number(lambda m, x, b: x * b), takes_number=True),
        CudaFunction("divide", _with_number(lambda m, x, b: x * (m.number(1.0) / b)), takes_number=True),
    )
}
"""The functions by name."""


def as_cuda_function(name: str) -> CudaFunction:
    """Return a function by its name.

    >>> as_cuda_function("exp").in_fp32, as_cuda_function("erf").in_fp32
    (True, False)
    """
    if name not in CUDA_FUNCTIONS:
        raise ValueError(f"function {name!r} is not known; {name_hint(name, CUDA_FUNCTIONS)}")
    return CUDA_FUNCTIONS[name]
