"""The normal distribution: erf and gelu, as the functions of `enclosures`, which this module extends by a table.

Phi(-x) = phi(x) m(x) for x >= 0, where phi is the density and m(x) = integral of exp(-x t - t**2 / 2) over t > 0 is
Mills' ratio. m solves m' = x m - 1, so that its Taylor coefficients follow from m(x) alone:
(n + 1) a[n + 1] = x a[n] + a[n - 1], a[1] = x a[0] - 1. Solving forward multiplies errors by exp(x**2 / 2), 2**990 at
x = 37; so the table is made with integers of 1,500 bits, in some hundredths of a second, when the module is imported.

Bounds: |a[n]| <= a[n] at 0 = 2**((n - 1) / 2) Gamma((n + 1) / 2) / n!, so that 17 coefficients cut terms below 2**-58
within 1/4 of a centre. The terms alternate in sign and fall: rounding adds at most 4 u.
"""

import math

import numpy as np

from ..runtime.intrinsics import contracted
from ..runtime.jit import inline
from . import enclosures as e

_BITS = 1500
_STEPS_PER_UNIT, _LIMIT, _COEFFICIENTS = 2, 37, 17


def _arc_tangent_of_inverse(n):
    """atan(1 / n) in units of 2**-_BITS."""
    term, total, k, sign = (1 << _BITS) // n, 0, 1, 1
    while term:
        total += sign * term // k
        term, k, sign = term // (n * n), k + 2, -sign
    return total


def _taylor(x, ratio, terms):
    """The coefficients at x / _STEPS_PER_UNIT from Mills' ratio there, in units of 2**-_BITS."""
    a = [ratio, x * ratio // _STEPS_PER_UNIT - (1 << _BITS)]
    for n in range(1, terms):
        a.append((x * a[n] // _STEPS_PER_UNIT + a[n - 1]) // (n + 1))
    return a


def _table():
    """The first coefficients at 0, 1/2, ..., _LIMIT as float64."""
    pi = 16 * _arc_tangent_of_inverse(5) - 4 * _arc_tangent_of_inverse(239)
    ratio = math.isqrt(pi << (_BITS - 1))  # m(0) = sqrt(pi / 2)
    rows = []
    for x in range(_STEPS_PER_UNIT * _LIMIT + 1):
        a = _taylor(x, ratio, 420)
        rows.append([c / (1 << _BITS) for c in a[:_COEFFICIENTS]])  # Python rounds quotients of integers once
        ratio = sum(c >> n for n, c in enumerate(a))  # at the next centre, 1/2 further on
    return np.array(rows)


_MILLS = _table()
_ONE_OVER_SQRT_2_PI = 1 / math.sqrt(2 * math.pi)
_SQRT_2 = math.sqrt(2)
_E45, _E46, _E50 = 2.0**-45, 2.0**-46, 2.0**-50
_FACTORS = tuple((-1.0) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(15))


@inline
def _mills(x):
    """Mills' ratio for x from 0 to _LIMIT."""
    row = int(x * _STEPS_PER_UNIT + 0.5)
    h = x - row / _STEPS_PER_UNIT
    y = _MILLS[row, _COEFFICIENTS - 1]
    for n in range(_COEFFICIENTS - 2, -1, -1):
        y = contracted(y, h, _MILLS[row, n])
    return y


@inline
def _tail(x):
    """The probability that a standard normal number exceeds x, for x from 0 to 37, with an error below 2**-48."""
    return e.exp_of(-0.5 * x * x) * _ONE_OVER_SQRT_2_PI * _mills(x)


@inline
def gelu(x):
    """x Phi(x): x**2 has 48 bits, and is exact."""
    a = min(abs(x), 36.0) if x == x else 0.0
    tail = _tail(a)
    gate = 1.0 - tail if x > 0.0 else tail
    return e.vanishing(x, 36.0, e.gated(x, gate * (1.0 - _E46), gate * (1.0 + _E46), 2.0**-44))


@inline
def _small_erf(x):
    """erf(x) / x for |x| <= 0.5: an alternating series whose terms fall below 2**-60."""
    z = x * x
    y = _FACTORS[14]
    y = contracted(y, z, _FACTORS[13])
    y = contracted(y, z, _FACTORS[12])
    y = contracted(y, z, _FACTORS[11])
    y = contracted(y, z, _FACTORS[10])
    y = contracted(y, z, _FACTORS[9])
    y = contracted(y, z, _FACTORS[8])
    y = contracted(y, z, _FACTORS[7])
    y = contracted(y, z, _FACTORS[6])
    y = contracted(y, z, _FACTORS[5])
    y = contracted(y, z, _FACTORS[4])
    y = contracted(y, z, _FACTORS[3])
    y = contracted(y, z, _FACTORS[2])
    y = contracted(y, z, _FACTORS[1])
    return contracted(y, z, _FACTORS[0])


@inline
def erf(x):
    """1 - 2 Phi(-x sqrt(2)): the error of x sqrt(2) changes the tail by a share of x**2 u, and the result by less."""
    a = min(abs(x), 6.0) if x == x else 0.0
    near = a * (2.0 * _SQRT_2 * _ONE_OVER_SQRT_2_PI) * _small_erf(min(a, 0.5))
    y = near if a <= 0.5 else 1.0 - 2.0 * _tail(a * _SQRT_2)
    low, high = y - y * _E45, min(y + y * _E45, 1.0)
    low, high = (1.0 - _E50 if a >= 6.0 else low), (1.0 if a >= 6.0 else high)
    ends = (-high if x < 0.0 else low), (-low if x < 0.0 else high)
    ends = (x if x == 0.0 else ends[0]), (x if x == 0.0 else ends[1])
    return e.at_infinities(x, ends, -1.0, 1.0)
