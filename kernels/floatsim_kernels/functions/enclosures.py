"""Mathematical functions of float64 numbers: two ends (low, high) between which the exact value lies.

If low < high, the exact value lies strictly between them. If low == high, it is that number, an exact infinity at a
pole, or NaN. If low > high, the kernel does not know the value.

Arguments have at most 24 significant bits and magnitudes of 0 or 2**-300 to 2**300; infinities and NaNs are allowed.
Every function computes y in float64, and widens it by a relative bound E. An operation of float64 has a relative error
of at most u = 2**-53. The bounds are far larger than the sums of the errors, which stand beside them:

- exp_of: the reduced argument has an error of 2 u, the polynomial of degree 12 cuts terms below 2**-52, and its
  evaluation has an error of 4 u: together below 2**-49. Far arguments are cut at _FAR: the result is beyond the range
  of every format in either case.
- _log_of: the series cuts terms below 2**-54; its argument, the sum, and the multiple of log(2) have errors of 4 u:
  below 2**-50.
- The two Taylor sums of `_sine_cosine`: they cut terms below 2**-57, and have errors of 4 u: below 2**-50. The reduced
  argument has a relative error below 2**-51 (see `_quarter_turns`).
- _atan_of: two reductions with three operations each, and a series of 13 terms that cuts below 2**-58: below 2**-48.

Next to values of few bits a relative bound does not help: sin(x) is x - x**3 / 6 + ..., and for a small x the
difference is below E. There the ends are x and a number next to it on the side of the next term.
"""

import math

import numpy as np

from ..runtime.intrinsics import bits_from_double, contracted, double_from_bits
from ..runtime.jit import inline

ARGUMENT_BITS, ARGUMENT_EXPONENT = 24, 300
"""The bounds of arguments: their significant bits, and the largest magnitude of exponents."""
RESULT_BITS, RESULT_EXPONENT = 30, 900
"""The bounds of formats to which the ends may be rounded."""
_INFINITY, _NAN = np.inf, np.nan
_SIGN = np.uint64(1 << 63)
_MAGIC = 6755399441055744.0  # 1.5 * 2**52: x + _MAGIC - _MAGIC is x rounded to an integer
_LOG2_E = float.fromhex("0x1.71547652b82fep+0")
_LOG_2 = float.fromhex("0x1.62e42fefa2000p-1"), float.fromhex("0x1.9ef35793c7673p-41")  # the first has 40 bits
_LOG_10 = float.fromhex("0x1.26bb1b8000000p+1"), float.fromhex("0x1.daaa8ac16ea56p-26")  # the first has 26 bits
_LOG_2_1, _LOG_2_2 = _LOG_2
_LOG_10_1, _LOG_10_2 = _LOG_10
_LOG2_10 = float.fromhex("0x1.a934f0979a371p+1")
_LOG10_2 = float.fromhex("0x1.34413509f6000p-2"), float.fromhex("0x1.9fef311f12b35p-42")
_LOG10_2_1, _LOG10_2_2 = _LOG10_2
_LOG10_E = float.fromhex("0x1.bcb7b1526e50ep-2")
_TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
_HALF_PI_1 = float.fromhex("0x1.921fb54400000p+0")  # 33 bits
_HALF_PI_2 = float.fromhex("0x1.0b4611a600000p-34")  # 33 bits
_HALF_PI_3 = float.fromhex("0x1.3198a2e037073p-69")
_PI_OVER_2 = math.pi / 2
_GELU = float.fromhex("0x1.9884533d43651p+0")  # 2 sqrt(2 / pi)
_FACTORIALS = tuple(1.0 / math.factorial(n) for n in range(20))
_2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, _16, _17 = _FACTORIALS[2:18]
_E44, _E45, _E46, _E47, _E48, _E50 = (2.0**-n for n in (44, 45, 46, 47, 48, 50))
_FAR = 690.0  # exp(_FAR) is below 2**996
_MINUTE, _HUGE = 2.0**-990, 2.0**990  # beyond the range of every format that the kernels write
_SMALL_ODD = 2.0**-21  # below it, the cubic term of an odd function is below 2**-43 of x
_SMALL = 2.0**-44  # below it, the quadratic term of exp(x) is below 2**-45 of x


# -- ends --------------------------------------------------------------------------------------------------------------


@inline
def _around(y, bound):
    """The ends of y with a relative error; an infinity or NaN is itself."""
    e = abs(y) * bound
    finite = e < _INFINITY
    return (y - e if finite else y), (y + e if finite else y)


@inline
def _if_both(condition, a, b):
    return (a[0] if condition else b[0]), (a[1] if condition else b[1])


@inline
def _between(a, b):
    """The ends a and b in order."""
    return min(a, b), max(a, b)


@inline
def _next_to(x, relative):
    """The ends of a value whose magnitude is larger than that of x by less than the relative amount, or smaller."""
    return _between(x, x + x * relative)


@inline
def _at_most(ends, limit):
    return ends[0], min(ends[1], limit)


@inline
def _at_least(ends, limit):
    return max(ends[0], limit), ends[1]


@inline
def inward(low, high):
    """The ends as numbers that lie between them, one float64 number further inside."""
    a, b = bits_from_double(low), bits_from_double(high)
    one = np.uint64(1)
    up = double_from_bits(np.uint64(a - one) if a & _SIGN else np.uint64(a + one))
    down = double_from_bits(np.uint64(b + one) if b & _SIGN or high == 0.0 else np.uint64(b - one))
    down = -double_from_bits(one) if high == 0.0 else down
    return (up if low < high else low), (down if low < high else high)


# -- exponentials ------------------------------------------------------------------------------------------------------


@inline
def _exp_tail(r):
    """(exp(r) - 1 - r) / r**2 for |r| <= 0.35."""
    y = _12
    y = contracted(y, r, _11)
    y = contracted(y, r, _10)
    y = contracted(y, r, _9)
    y = contracted(y, r, _8)
    y = contracted(y, r, _7)
    y = contracted(y, r, _6)
    y = contracted(y, r, _5)
    y = contracted(y, r, _4)
    y = contracted(y, r, _3)
    return contracted(y, r, _2)


@inline
def _power_of_two(k):
    """2**k for a whole float64 number from -1000 to 1000."""
    return double_from_bits(np.uint64((np.int64(k) + np.int64(1023)) << np.int64(52)))


@inline
def _reduced(x):
    """(r, k) with x = k log(2) + r, for |x| <= 700."""
    k = (x * _LOG2_E + _MAGIC) - _MAGIC
    return (x - k * _LOG_2_1) - k * _LOG_2_2, k


@inline
def exp_of(x):
    """exp(x) for |x| <= 700."""
    r, k = _reduced(x)
    return (1.0 + (r + r * r * _exp_tail(r))) * _power_of_two(k)


@inline
def _clamped(x):
    return min(max(x, -_FAR), _FAR)


@inline
def at_infinities(x, ends, low_limit, high_limit):
    """The ends, for infinities the limits, and NaN for NaN."""
    limit = high_limit if x > 0.0 else (low_limit if x < 0.0 else _NAN)
    inside = abs(x) < _INFINITY
    return (ends[0] if inside else limit), (ends[1] if inside else limit)


@inline
def _around_finite(y, bound):
    """As `_around`, for numbers that are never infinite."""
    e = abs(y) * bound
    return y - e, y + e


@inline
def _next_to_one(x, ends):
    """The ends of 1 + x + ... for a tiny x."""
    tiny = abs(x) < _SMALL
    low, high = (1.0 - _E44 if x < 0.0 else 1.0), (1.0 + _E44 if x > 0.0 else 1.0)
    return (low if tiny else ends[0]), (high if tiny else ends[1])


@inline
def exp(x):
    return at_infinities(x, _next_to_one(x, _around_finite(exp_of(_clamped(x)), _E48)), 0.0, _INFINITY)


@inline
def exp_inside(x):
    """exp(x) for |x| <= 87, with a relative error below 2**-49: as `exp_of`, with fewer operations.

    The low bits of `t` hold k; they are added to the exponent of exp(r), which is between 0.7 and 1.42.
    """
    t = contracted(x, _LOG2_E, _MAGIC)
    k = t - _MAGIC
    r = contracted(k, -_LOG_2_2, contracted(k, -_LOG_2_1, x))
    y = 1.0 + contracted(r * r, _exp_tail(r), r)
    return double_from_bits(np.uint64(bits_from_double(y) + (bits_from_double(t) << np.uint64(52))))


@inline
def exp2(x):
    t = min(max(x, -995.0), 995.0)
    k = (t + _MAGIC) - _MAGIC
    r = (t - k) * _LOG_2_1 + (t - k) * _LOG_2_2
    y = (1.0 + (r + r * r * _exp_tail(r))) * _power_of_two(k)
    ends = _next_to_one(x, _around_finite(y, 0.0 if t == k else _E48))
    return at_infinities(x, ends, 0.0, _INFINITY)


@inline
def exp10(x):
    t = min(max(x, -299.0), 299.0)
    k = (t * _LOG2_10 + _MAGIC) - _MAGIC
    r = (t * _LOG_10_1 - k * _LOG_2_1) + (t * _LOG_10_2 - k * _LOG_2_2)  # products of 26 and 24 bits are exact
    y = (1.0 + (r + r * r * _exp_tail(r))) * _power_of_two(k)
    return at_infinities(x, _next_to_one(x, _around_finite(y, _E47)), 0.0, _INFINITY)


@inline
def _expm1_of(x):
    """exp(x) - 1 for |x| <= 700, with a relative error below 2**-49."""
    r, k = _reduced(x)
    scale = _power_of_two(k)
    return scale * (r + r * r * _exp_tail(r)) + (scale - 1.0)


@inline
def expm1(x):
    ends = _at_least(_around_finite(_expm1_of(_clamped(x)), _E46), -1.0)
    ends = _if_both(abs(x) < _SMALL, (x, x + abs(x) * _E44), ends)
    return at_infinities(x, ends, -1.0, _INFINITY)


# -- logarithms --------------------------------------------------------------------------------------------------------


@inline
def _atanh_tail(square):
    """(atanh(s) / s - 1) / s**2 for s**2 = square <= 1/9."""
    z = square
    return 1 / 3 + z * (1 / 5 + z * (1 / 7 + z * (1 / 9 + z * (1 / 11 + z * (1 / 13 + z * (1 / 15 + z * (1 / 17 + z * (
        1 / 19 + z * (1 / 21 + z * (1 / 23 + z * (1 / 25 + z * (1 / 27 + z * (1 / 29 + z * (1 / 31 + z / 33)))))))))))
    )))  # fmt: skip


@inline
def _short_atanh_tail(square):
    """The same for s**2 <= 0.03."""
    z = square
    y = 1 / 19
    y = contracted(y, z, 1 / 17)
    y = contracted(y, z, 1 / 15)
    y = contracted(y, z, 1 / 13)
    y = contracted(y, z, 1 / 11)
    y = contracted(y, z, 1 / 9)
    y = contracted(y, z, 1 / 7)
    y = contracted(y, z, 1 / 5)
    return contracted(y, z, 1 / 3)


@inline
def _split(x):
    """(m, k) with x = m 2**k, m between sqrt(1/2) and sqrt(2), for a normal x."""
    bits = bits_from_double(x)
    k = np.int64(np.int64(bits - np.uint64(0x3FE6A09E667F3BCD)) >> np.int64(52))
    m = double_from_bits(np.uint64(np.int64(bits) - (k << np.int64(52))))
    return m, float(k)


@inline
def _log_of(f):
    """log(1 + f) for 1 + f between sqrt(1/2) and sqrt(2)."""
    s = f / (2.0 + f)
    z = s * s
    return 2.0 * s + 2.0 * s * z * _short_atanh_tail(z)


@inline
def _in_domain(x, ends):
    """The ends of a logarithm: -inf at 0, NaN below, and the values at infinity and NaN."""
    inside = x > 0.0 and x < _INFINITY
    limit = -_INFINITY if x == 0.0 else (_INFINITY if x > 0.0 else _NAN)
    return (ends[0] if inside else limit), (ends[1] if inside else limit)


@inline
def log_inside(x):
    """log(x) for positive normal x, with a relative error below 2**-49."""
    m, k = _split(x)
    return k * _LOG_2_1 + (_log_of(m - 1.0) + k * _LOG_2_2)


@inline
def log(x):
    return _in_domain(x, _around_finite(log_inside(x if x > 0.0 else 1.0), _E48))


@inline
def log2(x):
    m, k = _split(x if x > 0.0 else 1.0)
    y = k + _log_of(m - 1.0) * _LOG2_E
    return _in_domain(x, _around_finite(y, _E48 if m != 1.0 else 0.0))


@inline
def log10(x):
    m, k = _split(x if x > 0.0 else 1.0)
    y = k * _LOG10_2_1 + (_log_of(m - 1.0) * _LOG10_E + k * _LOG10_2_2)
    return _in_domain(x, _around_finite(y, _E48))


@inline
def log1p(x):
    near = abs(x) < 0.28
    m, k = _split(1.0 + x if x > -1.0 and not near else 1.0)
    f, k = (x if near else m - 1.0), (0.0 if near else k)
    y = k * _LOG_2_1 + (_log_of(f) + k * _LOG_2_2)
    ends = _if_both(abs(x) < _SMALL, (x - abs(x) * _E44, x), _around(y, _E46))
    return _if_both(x == 0.0, (x, x), _in_domain(1.0 + x if abs(x) >= 0.5 or x != x else 1.0, ends))


# -- trigonometry ------------------------------------------------------------------------------------------------------

_BITS_OF_TWO_OVER_PI = np.array(
    [0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561, 0xB7246E3A424DD2E0,
     0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484], np.uint64,
)  # fmt: skip
_32, _63, _64 = np.uint64(32), np.uint64(63), np.uint64(64)
_LOW = np.uint64(0xFFFFFFFF)


@inline
def _window(words, first, shift):
    """64 bits of an array of words, from a bit of a word on."""
    return words[first] if shift == np.uint64(0) else (words[first] << shift) | (words[first + 1] >> (_64 - shift))


@inline
def _turns_of_large(x):
    """(q, r) of |x| from 2**20 to 2**300, by M. Payne and R. Hanek's method, without the sign of x.

    |x| = m 2**e with 24 bits of m. Of the bits of 2/pi, those above 2**(2 - e) add multiples of four quarter turns. The
    next 128 bits times m give the rest with an error below 2**-101. No argument of 24 bits is nearer to a multiple of
    pi/2 than 2**-40, so the relative error of r is below 2**-52.
    """
    bits = bits_from_double(x)
    e = np.int64(bits >> np.uint64(52) & np.uint64(0x7FF)) - np.int64(1023 + 23)
    m = (bits & np.uint64((1 << 52) - 1) | np.uint64(1 << 52)) >> np.uint64(29)
    skipped = max(e - np.int64(2), np.int64(0))
    first, shift = skipped >> np.int64(6), np.uint64(skipped & np.int64(63))
    high, low = _window(_BITS_OF_TWO_OVER_PI, first, shift), _window(_BITS_OF_TWO_OVER_PI, first + 1, shift)
    less = np.uint64(max(np.int64(2) - e, np.int64(0)))
    if less:
        low = low >> less | high << (_64 - less)
        high = high >> less
    middle = m * (low >> _32) + (m * (low & _LOW) >> _32)
    total_high, total_low = m * high + (middle >> _32), m * low
    q = np.int64(total_high >> np.uint64(62))
    fraction_high = np.int64(total_high << np.uint64(2) | total_low >> np.uint64(62))
    fraction_low = total_low << np.uint64(2)
    if fraction_high < np.int64(0):
        q += np.int64(1)
    turns = float(fraction_high) * 2.0**-64 + float(fraction_low) * 2.0**-128
    return q, turns * _PI_OVER_2


@inline
def _turns_of_small(x):
    """(q, r) of |x| < 2**20: three parts of pi/2, the first two of 33 bits, so that their multiples are exact."""
    q = (x * _TWO_OVER_PI + _MAGIC) - _MAGIC
    return np.int64(q), ((x - q * _HALF_PI_1) - q * _HALF_PI_2) - q * _HALF_PI_3


@inline
def _quarter_turns(x):
    """(q, r) with x = q pi/2 + r modulo four quarter turns, |r| <= pi/4 and a little."""
    if abs(x) < 2.0**20:
        return _turns_of_small(x)
    q, r = _turns_of_large(x)
    return (q if x > 0.0 else -q), (r if x > 0.0 else -r)


@inline
def _sine_cosine(r):
    z = r * r
    sine = r - r * z * (_3 - z * (_5 - z * (_7 - z * (_9 - z * (_11 - z * (_13 - z * (_15 - z * _17)))))))
    cosine = 1.0 - z * (_2 - z * (_4 - z * (_6 - z * (_8 - z * (_10 - z * (_12 - z * (_14 - z * _16)))))))
    return sine, cosine


@inline
def sin_inside(x):
    """sin(x) for |x| < 2**20, with a relative error below 2**-48."""
    q, r = _turns_of_small(x)
    sine, cosine = _sine_cosine(r)
    y = cosine if q & 1 else sine
    return -y if q & 2 else y


@inline
def cos_inside(x):
    """cos(x) for |x| < 2**20, with a relative error below 2**-48."""
    q, r = _turns_of_small(x)
    sine, cosine = _sine_cosine(r)
    y = sine if q & 1 else cosine
    return -y if (q + 1) & 2 else y


@inline
def sin(x):
    finite = abs(x) < _INFINITY
    q, r = _quarter_turns(x if finite else 0.0)
    sine, cosine = _sine_cosine(r)
    y = cosine if q & 1 else sine
    ends = _around(-y if q & 2 else y, _E48)
    ends = _if_both(abs(x) < _SMALL_ODD, _next_to(x, -(2.0**-43)), ends)
    ends = _if_both(x == 0.0, (x, x), ends)
    return _if_both(finite, ends, (_NAN, _NAN))


@inline
def cos(x):
    finite = abs(x) < _INFINITY
    q, r = _quarter_turns(x if finite else 0.0)
    sine, cosine = _sine_cosine(r)
    y = sine if q & 1 else cosine
    ends = _around(-y if (q + 1) & 2 else y, _E48)
    ends = _if_both(abs(x) < 2.0**-22, (1.0 - _E44, 1.0), ends)
    ends = _if_both(x == 0.0, (1.0, 1.0), ends)
    return _if_both(finite, ends, (_NAN, _NAN))


@inline
def tan(x):
    finite = abs(x) < _INFINITY
    q, r = _quarter_turns(x if finite else 0.0)
    sine, cosine = _sine_cosine(r)
    y = -cosine / sine if q & 1 else sine / cosine
    ends = _if_both(abs(x) < _SMALL_ODD, _next_to(x, 2.0**-43), _around(y, _E47))
    ends = _if_both(x == 0.0, (x, x), ends)
    return _if_both(finite, ends, (_NAN, _NAN))


@inline
def _atan_of(x):
    """atan(x) of a number that is not negative, or infinite."""
    large = x > 1.0
    t = 1.0 / x if large else x
    t = t / (1.0 + math.sqrt(1.0 + t * t))
    t = t / (1.0 + math.sqrt(1.0 + t * t))
    z = -t * t
    series = 1 / 15 + z * (1 / 17 + z * (1 / 19 + z * (1 / 21 + z * (1 / 23 + z * (1 / 25 + z / 27)))))
    series = 1 / 3 + z * (1 / 5 + z * (1 / 7 + z * (1 / 9 + z * (1 / 11 + z * (1 / 13 + z * series)))))
    y = 4.0 * (t + t * z * series)
    return _PI_OVER_2 - y if large else y


@inline
def _odd(x, y, bound, side):
    """The ends of an odd function with the magnitude y; near 0 it is x and a cubic term of the sign of `side`."""
    ends = _around(math.copysign(y, x), bound)
    ends = _if_both(abs(x) < _SMALL_ODD, _next_to(x, side * 2.0**-43), ends)
    ends = _if_both(x == 0.0, (x, x), ends)
    return _if_both(x != x, (_NAN, _NAN), ends)


@inline
def atan(x):
    return _odd(x, _atan_of(abs(x)), _E46, -1.0)


@inline
def asin(x):
    a = min(abs(x), 1.0)
    ends = _odd(x, _atan_of(a / math.sqrt((1.0 - a) * (1.0 + a)) if a < 1.0 else _INFINITY), _E46, 1.0)
    return _if_both(abs(x) > 1.0, (_NAN, _NAN), ends)


@inline
def acos(x):
    a = min(max(x, -1.0), 1.0)
    ends = _around(2.0 * _atan_of(math.sqrt((1.0 - a) / (1.0 + a)) if a > -1.0 else _INFINITY), _E46)
    return _if_both(abs(x) <= 1.0, ends, (_NAN, _NAN))


# -- hyperbolic functions ----------------------------------------------------------------------------------------------


@inline
def sinh(x):
    a = min(abs(x), _FAR)
    z = a * a
    small = a + a * z * (_3 + z * (_5 + z * (_7 + z * (_9 + z * (_11 + z * _13)))))
    e = exp_of(a)
    ends = _odd(x, small if a < 0.35 else (e - 1.0 / e) * 0.5, _E46, 1.0)
    ends = _if_both(x > _FAR, (_HUGE, 2.0 * _HUGE), ends)
    ends = _if_both(x < -_FAR, (-2.0 * _HUGE, -_HUGE), ends)
    return _if_both(abs(x) == _INFINITY, (x, x), ends)


@inline
def cosh(x):
    a = min(abs(x), _FAR)
    e = exp_of(a)
    ends = _around((e + 1.0 / e) * 0.5, _E47)
    ends = _if_both(a < 2.0**-22, (1.0, 1.0 + _E44), ends)
    ends = _if_both(x == 0.0, (1.0, 1.0), ends)
    ends = _if_both(abs(x) > _FAR, (_HUGE, 2.0 * _HUGE), ends)
    ends = _if_both(abs(x) == _INFINITY, (_INFINITY, _INFINITY), ends)
    return _if_both(x != x, (_NAN, _NAN), ends)


@inline
def tanh(x):
    t = _expm1_of(-2.0 * min(abs(x), 300.0))
    low, high = _odd(x, -t / (t + 2.0), _E46, -1.0)
    ends = _if_both(abs(x) < 1.0, (low, high), (max(low, -1.0), min(high, 1.0)))
    return _if_both(abs(x) == _INFINITY, (math.copysign(1.0, x), math.copysign(1.0, x)), ends)


# -- activations (erf and gelu are in `normal`) ------------------------------------------------------------------------


@inline
def gated(x, low, high, width):
    """The ends of x times a gate between low and high, that is 1/2 + c x for a small x. `width`: see `_next_to`."""
    ends = _between(x * low, x * high)
    ends = (ends[0] - abs(ends[0]) * _E50, ends[1] + abs(ends[1]) * _E50)
    ends = (ends[0], min(ends[1], x)) if x > 0.0 else (ends[0], min(ends[1], -0.25 * _MINUTE))
    ends = _if_both(width > 0.0 and abs(x) < _SMALL, (0.5 * x, 0.5 * x + abs(x) * width), ends)
    ends = _if_both(x == 0.0 or x == _INFINITY, (x, x), ends)
    ends = _if_both(x == -_INFINITY, (-0.0, -0.0), ends)
    return _if_both(x != x, (_NAN, _NAN), ends)


@inline
def _logistic(t):
    """1 / (1 + exp(-t)) for |t| <= 690."""
    e = exp_of(-abs(t))
    return (1.0 if t >= 0.0 else e) / (1.0 + e)


@inline
def sigmoid(x):
    ends = _at_most(_around_finite(_logistic(_clamped(x)), _E48), 1.0)
    tiny = abs(x) < _SMALL
    low, high = (0.5 - _E45 if x < 0.0 else 0.5), (0.5 + _E45 if x > 0.0 else 0.5)
    ends = (low if tiny else ends[0]), (high if tiny else ends[1])
    return at_infinities(x, ends, 0.0, 1.0)


@inline
def vanishing(x, far, ends):
    """The ends of x times a gate that vanishes below -far."""
    return _if_both(x < -far and x > -_INFINITY, (-_MINUTE * 2.0**30, -0.25 * _MINUTE), ends)


@inline
def silu(x):
    y = _logistic(_clamped(x))
    return vanishing(x, _FAR, gated(x, y * (1.0 - _E47), y * (1.0 + _E47), _E45))


@inline
def gelu_tanh(x):
    t = _GELU * (x + 0.044715 * (x * x * x))
    y, bound = _logistic(_clamped(t)), _E46 + min(abs(t), _FAR) * 2.0**-50
    return (
        vanishing(t, _FAR, gated(x, y * (1.0 - bound), y * (1.0 + bound), _E44))
        if abs(t) < _INFINITY
        else (vanishing(t if abs(x) < _INFINITY else 0.0, _FAR, gated(x, 1.0 - _E50, 1.0, 0.0)))
    )


@inline
def mish(x):
    e = exp_of(min(_clamped(x), 40.0))
    y = e * (e + 2.0) / (e * (e + 2.0) + 2.0)
    return vanishing(x, _FAR, gated(x, y * (1.0 - _E47), y * (1.0 + _E47), 0.0))


@inline
def softplus(x):
    e = exp_of(-min(abs(x), _FAR))
    s = e / (2.0 + e)
    tail = 2.0 * s + 2.0 * s * (s * s) * _atanh_tail(s * s)
    ends = _at_least(_around(max(x, 0.0) + tail, _E47), max(x, 0.0))
    return at_infinities(x, ends, 0.0, _INFINITY)


# -- roots and quotients -----------------------------------------------------------------------------------------------


@inline
def reciprocal(x):
    return _around(1.0 / x, _E50)


@inline
def rsqrt(x):
    ends = _around(1.0 / math.sqrt(x), _E50) if x > 0.0 else (_NAN, _NAN)
    return _if_both(x == 0.0, (1.0 / x, 1.0 / x), ends)


@inline
def cbrt(x):
    """Halley's iteration: an error d becomes less than d**3. The first estimate has an error below 0.06."""
    a = abs(x)
    a = a if a > 0.0 and a < _INFINITY else 1.0
    y = double_from_bits(bits_from_double(a) // np.uint64(3) + np.uint64(0x2A9F7893B5A1B6E0))
    for _ in range(4):
        cube = y * y * y
        y = y * ((cube + 2.0 * a) / (2.0 * cube + a))
    ends = _around(math.copysign(y, x), _E48)
    return _if_both(x == 0.0 or abs(x) == _INFINITY or x != x, (x, x), ends)


# -- functions of two numbers ------------------------------------------------------------------------------------------


@inline
def hypot(x, y):
    ends = _around(math.sqrt(x * x + y * y), _E50)
    ends = _if_both(x == 0.0, (abs(y), abs(y)), _if_both(y == 0.0, (abs(x), abs(x)), ends))
    ends = _if_both(abs(x) == _INFINITY or abs(y) == _INFINITY, (_INFINITY, _INFINITY), ends)
    return _if_both((x != x or y != y) and ends[0] == _INFINITY, (1.0, -1.0), ends)  # the NaN may be signalling


@inline
def power(x, y):
    """x**y for finite numbers that are not 0. y log2(x) has a relative error below 2**-49. Other cases are unknown."""
    a = abs(x)
    if not (a > 0.0 and a < _INFINITY and abs(y) > 0.0 and abs(y) < _INFINITY):
        return 1.0, -1.0
    whole = abs(y) >= 2.0**30 or np.floor(y) == y
    if x < 0.0 and not whole:
        return _NAN, _NAN
    if y == 1.0:
        return x, x
    if y == 2.0:
        return a * a, a * a  # of 48 bits: exact
    if a == 1.0:
        one = -1.0 if x < 0.0 and abs(y) < 2.0**30 and int(y) & 1 else 1.0
        return one, one
    m, k = _split(a)
    t = y * (k + _log_of(m - 1.0) * _LOG2_E)
    if abs(t) > 990.0:
        low, high = (_HUGE, 2.0 * _HUGE) if t > 0.0 else (0.25 * _MINUTE, _MINUTE)
    elif abs(t) < 2.0**-45:
        low, high = (1.0, 1.0 + 2.0**-44) if t > 0.0 else (1.0 - 2.0**-44, 1.0)
    else:
        n = (t + _MAGIC) - _MAGIC
        r = (t - n) * _LOG_2_1 + (t - n) * _LOG_2_2
        low, high = _around((1.0 + (r + r * r * _exp_tail(r))) * _power_of_two(n), _E47 + abs(t) * 2.0**-48)
    negative = x < 0.0 and abs(y) < 2.0**30 and int(y) & 1
    return (-high, -low) if negative else (low, high)


INSIDE = {
    "exp": (exp_inside, np.uint32(0x7FFFFFFF), np.uint32(0), np.uint32(0x42AE0001)),  # |x| <= 87
    "log": (log_inside, np.uint32(0xFFFFFFFF), np.uint32(1), np.uint32(0x7F7FFFFF)),  # positive and finite
    "sin": (sin_inside, np.uint32(0x7FFFFFFF), np.uint32(0x00800000), np.uint32(0x49000000)),  # 2**-126 to 2**20
    "cos": (cos_inside, np.uint32(0x7FFFFFFF), np.uint32(0), np.uint32(0x49800000)),  # |x| < 2**20
}
"""Functions of float32 codes whose values are normal float32 numbers or zero, each with a relative error below 2**-47.

The arguments are the codes whose bits in a mask are `first` or one of `size` - 1 numbers after it.
"""
