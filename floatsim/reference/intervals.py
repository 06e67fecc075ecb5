"""Intervals of fixed-point numbers: exponential, logarithm, trigonometric and error functions with certain bounds.

An `Interval` has two integers in units of 2**-precision. Each operation rounds the lower end down and the upper end up,
and each cut series adds a bound of its remainder. So the exact result of a function of any point of the operands lies
in the interval, and no function needs an analysis of errors.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

__all__ = [
    "Interval", "atan", "atanh_ratio", "cos_sin", "enclose", "erf", "exp", "log", "log_of_two",
    "normal_tail", "pi",
]  # fmt: skip


@dataclass(frozen=True)
class Interval:
    """The numbers from low to high, both in units of 2**-precision."""

    low: int
    high: int
    precision: int

    def _of(self, *ends: int) -> Interval:
        """Return the smallest interval around numbers in units of 2**(-2 * precision)."""
        return Interval(min(ends) >> self.precision, -(-max(ends) >> self.precision), self.precision)

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low, self.precision)

    def __add__(self, other: Interval | int) -> Interval:
        if isinstance(other, int):
            return Interval(self.low + (other << self.precision), self.high + (other << self.precision), self.precision)
        return Interval(self.low + other.low, self.high + other.high, self.precision)

    def __sub__(self, other: Interval | int) -> Interval:
        return self + -other

    def __mul__(self, other: Interval | int) -> Interval:
        if isinstance(other, int):
            ends = self.low * other, self.high * other
            return Interval(min(ends), max(ends), self.precision)
        a, b, c, d = self.low, self.high, other.low, other.high
        return self._of(a * c, a * d, b * c, b * d)

    def __truediv__(self, other: Interval | int) -> Interval:
        if isinstance(other, int):
            ends = (self.low, self.high) if other > 0 else (-self.high, -self.low)
            return Interval(ends[0] // abs(other), -(-ends[1] // abs(other)), self.precision)
        if other.low <= 0 <= other.high:
            raise ZeroDivisionError("the interval of the divisor holds zero")
        a, b = self.low << self.precision, self.high << self.precision
        pairs = [(n, d) for n in (a, b) for d in (other.low, other.high)]
        return Interval(min(n // d for n, d in pairs), max(-(-n // d) for n, d in pairs), self.precision)

    def sqrt(self) -> Interval:
        """Return the square root of numbers that are not negative."""
        low, high = self.low << self.precision, self.high << self.precision
        root = math.isqrt(high)
        return Interval(math.isqrt(low), root + (root * root != high), self.precision)

    def halved(self, times: int) -> Interval:
        """Return the interval divided by 2**times."""
        return Interval(self.low >> times, -(-self.high >> times), self.precision)

    def widened(self, units: int) -> Interval:
        """Return the interval with units of 2**-precision added at both ends."""
        return Interval(self.low - units, self.high + units, self.precision)

    @property
    def magnitude(self) -> int:
        """The largest magnitude, in units of 2**-precision."""
        return max(abs(self.low), abs(self.high))


def enclose(value: Fraction | int, precision: int) -> Interval:
    """Return the smallest interval around a number."""
    value = Fraction(value)
    scaled = value.numerator << precision
    return Interval(scaled // value.denominator, -(-scaled // value.denominator), precision)


def _power_series(x: Interval, first: Interval, sign: int) -> Interval:
    """Return the sum of sign**n * first * x**(2n) / (2n + 1), for x**2 below 1/2."""
    square, power, total, n = x * x, first, first, 0
    while power.magnitude > 1:
        n += 1
        power = power * square
        total = total + power * sign**n / (2 * n + 1)
    return total.widened(power.magnitude + 1)  # the terms that are left: at most a geometric series of ratio 1/2


@functools.lru_cache(maxsize=64)
def log_of_two(precision: int) -> Interval:
    """Return log(2) = 2 atanh(1/3)."""
    third = enclose(Fraction(1, 3), precision)
    return _power_series(third, third, 1) * 2


@functools.lru_cache(maxsize=64)
def pi(precision: int) -> Interval:
    """Return pi = 16 atan(1/5) - 4 atan(1/239) (J. Machin)."""
    fifth, small = enclose(Fraction(1, 5), precision), enclose(Fraction(1, 239), precision)
    return _power_series(fifth, fifth, -1) * 16 - _power_series(small, small, -1) * 4


def atanh_ratio(x: Interval) -> Interval:
    """Return atanh(x) / x, for x between 0 and 2/3."""
    return _power_series(x, enclose(1, x.precision), 1)


def exp(x: Interval) -> tuple[Interval, int]:
    """Return (y, k) with exp(x) = y * 2**k and y between 1/2 and 2."""
    precision, halvings = x.precision, 8
    k = round(Fraction(x.low, log_of_two(precision).low))
    reduced = (x - log_of_two(precision) * k).halved(halvings)
    term = total = enclose(1, precision)
    n = 0
    while term.magnitude > 1:
        n += 1
        term = term * reduced / n
        total = total + term
    total = total.widened(term.magnitude + 1)  # each term is at most half the one before
    for _ in range(halvings):
        total = total * total
    return total, k


def log(x: Interval) -> Interval:
    """Return the logarithm of numbers between 1/2 and 2."""
    roots = 3
    for _ in range(roots):
        x = x.sqrt()
    ratio = (x - 1) / (x + 1)  # log(x) = 2 atanh(ratio)
    return _power_series(ratio, ratio, 1) * (2 << roots)


def cos_sin(x: Interval) -> tuple[Interval, Interval]:
    """Return the cosine and the sine of numbers between -1 and 1."""
    sums = [enclose(0, x.precision)] * 2
    term, n = enclose(1, x.precision), 0
    while term.magnitude > 1:
        sums[n % 2] = sums[n % 2] + term * (-1) ** (n // 2)
        n += 1
        term = term * x / n
    cosine, sine = (total.widened(2 * (term.magnitude + 1)) for total in sums)
    return cosine, sine


def atan(x: Interval) -> Interval:
    """Return the arc tangent of numbers that are not negative. It uses atan(x) = 2 atan(x / (1 + sqrt(1 + x*x)))."""
    halvings = 3
    for _ in range(halvings):
        x = x / ((x * x + 1).sqrt() + 1)
    return _power_series(x, x, -1) * (1 << halvings)


def erf(x: Interval) -> Interval:
    """Return the error function of numbers that are not negative: a series of positive terms (DLMF, 7.6.2)."""
    square = x * x
    term = total = x
    n = 0
    while term.magnitude > 1 or n << x.precision < 2 * square.high:
        n += 1
        term = term * square * 2 / (2 * n + 1)
        total = total + term
    total = total.widened(term.magnitude + 1)  # from here on, each term is at most half the one before
    decay, k = exp(-square)
    scaled = decay.halved(-k) if k < 0 else decay * (1 << k)
    return total * scaled * 2 / pi(x.precision).sqrt()


def normal_tail(x: Interval) -> tuple[Interval, int]:
    """Return (y, k): y * 2**k is the probability that a standard normal number exceeds x, for x from 3 on.

    It is the density times Laplace's continued fraction 1 / (x + 1 / (x + 2 / (x + 3 / ...))) (DLMF, 7.9.4). Its
    convergents lie above and below the value in turn, so that two in a row enclose it.
    """
    precision = x.precision
    n = precision**2 * (1 << precision) ** 2 // (16 * x.low**2) + 10  # an error of about exp(-2 x sqrt(2 n))
    odd, even = x, x + enclose(n + 1, precision) / x
    for i in range(n, 0, -1):
        odd, even = x + enclose(i, precision) / odd, x + enclose(i, precision) / even
    y, k = exp(-(x * x).halved(1))
    density = y / (pi(precision) * 2).sqrt()
    return density / Interval(min(odd.low, even.low), max(odd.high, even.high), precision), k
