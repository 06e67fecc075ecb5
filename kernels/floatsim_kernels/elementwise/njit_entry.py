"""Operations on one number: the kernels that users' own jitted code calls (see floatsim/njit.py).

All have one shape. Operands are codes of a *carrier*, float64 or float32, each with its format parameters; integers may
follow. Then come the parameters f of the result's format, c of the result's carrier and m of the rounding, all tuples
of int64; `draws` (NO_SEED, SEEDED or NEGATIVE; seed; index) as uint64; and `want`. They return (bits, events).
Everything is inlined, so that constants of the call are folded, except for the general operations on codes, which are
compiled once.

With want = 0 no events are wanted, and some operations first try a fast path: the hardware computes the exact result if
it is a float64, and the code of that is rounded to the format. Each time the fast path proves that the result of the
hardware is exact and normal, which does not depend on the floating-point environment. Otherwise the general path
follows.
"""

import numpy as np

from ..rounding.integer import (
    DAZ,
    EMIN,
    FINITE,
    FTZ,
    INF,
    INFINITE,
    MAX,
    NAN,
    RANDOM_BITS,
    ROUNDING,
    SCALE,
    SIGN,
    STOCHASTIC,
    TIES_TO_AWAY,
    TIES_TO_EVEN,
    TO_ODD,
    TOWARD_NEGATIVE,
    TOWARD_POSITIVE,
    U0,
    U1,
    ZERO,
    P,
    left,
    right,
    unpack,
)
from ..rounding.random import draw
from ..runtime.intrinsics import bits_from_double, double_from_bits, float_from_bits
from ..runtime.jit import inline, kernel
from ..runtime.numba_compat import force_inline
from . import scalar_ops as op

NO_SEED, SEEDED, NEGATIVE = np.uint64(0), np.uint64(1), np.uint64(2)
_SITE = np.uint64(0)
_MAGNITUDE, _SIGN = np.uint64((1 << 63) - 1), np.uint64(1 << 63)
_LOW = np.uint64((1 << 27) - 1)


def entry(function):
    """Compile a kernel that is inlined where users' jitted code calls it."""
    dispatcher = kernel(function)
    force_inline(dispatcher)
    return dispatcher


# -- common parts ------------------------------------------------------------------------------------------------------


@inline
def check(f, c):
    """Raise an error if a format known only at run time has no meaning in this call."""
    if f[SCALE]:
        raise TypeError("a scale format has no arithmetic")
    check_holds(f, c)


@inline
def check_holds(f, c):
    """Raise an error if the carrier does not hold every number of the format."""
    t = f[P] - 1
    if f[P] > c[P] or f[EMIN] - t < c[EMIN] - c[P] + 1 or (f[MAX] >> t) + f[EMIN] > (c[MAX] >> (c[P] - 1)) + c[EMIN]:
        raise TypeError("float32 cannot hold all values of the format; use float64")


@inline
def random_of(m, draws):
    """The random bits of a rounding, 0 for deterministic rounding modes."""
    if m[ROUNDING] != STOCHASTIC:
        return U0
    if draws[0] == NO_SEED:
        raise ValueError("stochastic rounding needs a seed: pass seed=")
    if draws[0] == NEGATIVE:
        raise ValueError("seed and offset must be 0 to 2**64 - 1")
    return draw(draws[1], _SITE, draws[2], m[RANDOM_BITS])


@inline
def to_carrier(code, f, c):
    """The code in the carrier c of a code of format f; exact."""
    k, s, e, h = unpack(code, f, np.int64(0))
    t = c[P] - 1
    if k == FINITE:
        if e < c[EMIN]:
            magnitude = right(h, 62 - t + c[EMIN] - e)
        else:
            magnitude = left(np.uint64(e - c[EMIN]), t) + right(h, 62 - t)
    elif k == ZERO:
        magnitude = U0
    elif k == INFINITE:
        magnitude = np.uint64(c[INF])
    else:
        return np.uint64(c[NAN])
    return magnitude | left(np.uint64(s), c[SIGN])


# -- the fast path -----------------------------------------------------------------------------------------------------


@inline
def double_of(code, c):
    """The float64 number of a code of the carrier c."""
    if c[P] == 53:
        return double_from_bits(code)
    return np.float64(float_from_bits(np.uint32(code)))


@inline
def is_normal(x):
    """Whether a float64 is normal: not zero, subnormal or infinite, and not NaN."""
    e = (bits_from_double(x) & _MAGNITUDE) >> np.uint64(52)
    return e - U1 < np.uint64(2046)


@inline
def exact_sum(x, y):
    """(whether x + y is normal and exact, x + y), for normal x and y.

    It is exact if the sum less each operand is the other operand, in every rounding direction of the hardware.
    """
    s = x + y
    return is_normal(s) and s - x == y and s - y == x, s


@inline
def exact_product(x, y):
    """(whether x * y is normal and exact, x * y), for normal x and y of at most 26 significant bits."""
    p = x * y
    short = ((bits_from_double(x) | bits_from_double(y)) & _LOW) == U0
    size = np.abs(p)  # far from overflow and underflow
    return short and size >= 2.0**-1000 and size <= 2.0**1000, p


@inline
def fast_rounded(x, f, c, m, random):
    """(whether the fast path applies, the code in the carrier) of a normal float64 rounded to f."""
    u = bits_from_double(x)
    sign, magnitude = u & _SIGN, u & _MAGNITUDE
    e, t, emin = np.int64(magnitude >> np.uint64(52)), f[P] - 1, f[EMIN] + 1023
    tiny = e < emin
    drop = 52 - t
    if tiny:
        drop += emin - e
    if drop < 1 or drop > 51 or f[SCALE] or (tiny and m[FTZ]):
        return False, U0
    below = left(U1, drop) - U1
    discarded = magnitude & below
    kept = magnitude - discarded
    rounding = m[ROUNDING]
    if rounding == TIES_TO_EVEN:
        r = (magnitude + (below >> U1) + (right(magnitude, drop) & U1)) & ~below
    elif rounding == TIES_TO_AWAY:
        r = (magnitude + (below >> U1) + U1) & ~below
    elif rounding == TOWARD_POSITIVE:
        r = (magnitude + below) & ~below if sign == U0 else kept
    elif rounding == TOWARD_NEGATIVE:
        r = (magnitude + below) & ~below if sign != U0 else kept
    elif rounding == TO_ODD:
        r = kept | (below + U1) if discarded != U0 else kept
    elif rounding == STOCHASTIC:
        spare = np.uint64(64 - m[RANDOM_BITS])
        fraction = (left(discarded, 64 - drop) >> spare) << spare
        r = kept + (below + U1) if fraction + (random << spare) < fraction else kept
    else:
        r = kept
    top = left(np.uint64(emin), 52) + left(np.uint64(f[MAX] - (np.int64(1) << t)), 52 - t)
    if r > top:
        return False, U0
    if c[P] == 53:
        return True, sign | r
    smallest = np.uint64((1023 - 126) << 52)
    return r >= smallest, (sign >> np.uint64(32)) | ((r - smallest + np.uint64(1 << 52)) >> np.uint64(29))


# -- the general path --------------------------------------------------------------------------------------------------


@kernel
def general_convert(a, fa, f, m, random):
    return op.convert(a, fa, f, m, random)


@kernel
def general_add(a, fa, b, fb, negate, f, m, random):
    return op.add(a, fa, b, fb, negate, f, m, random)


@kernel
def general_multiply(a, fa, b, fb, f, m, random):
    return op.multiply(a, fa, b, fb, f, m, random)


@kernel
def general_divide(a, fa, b, fb, f, m, random):
    return op.divide(a, fa, b, fb, f, m, random)


@kernel
def general_remainder(a, fa, b, fb, to_nearest, f, m, random):
    return op.remainder(a, fa, b, fb, to_nearest, f, m, random)


@kernel
def general_extremum(a, fa, b, fb, larger, number, f, m, random):
    return op.extremum(a, fa, b, fb, larger, number, f, m, random)


@kernel
def general_sqrt(a, fa, f, m, random):
    return op.sqrt(a, fa, f, m, random)


@kernel
def general_fma(a, fa, b, fb, c, fc, f, m, random):
    return op.fma(a, fa, b, fb, c, fc, f, m, random)


@kernel
def general_rint(a, fa, rounding, exact, f, m, random):
    return op.rint(a, fa, rounding, exact, f, m, random)


@kernel
def general_scalb(a, fa, n, f, m, random):
    return op.scalb(a, fa, n, f, m, random)


# -- the operations: (carrier's code, events) --------------------------------------------------------------------------


@entry
def quantize(a, fa, f, c, m, draws, want):
    check_holds(f, c)
    random = random_of(m, draws)
    x = double_of(a, fa)
    if not want and not m[DAZ] and is_normal(x):
        done, code = fast_rounded(x, f, c, m, random)
        if done:
            return code, np.int64(0)
    code, events = general_convert(a, fa, f, m, random)
    return to_carrier(code, f, c), events


@entry
def add(a, fa, b, fb, negate, f, c, m, draws, want):
    check(f, c)
    random = random_of(m, draws)
    x, y = double_of(a, fa), double_of(b, fb)
    if not want and not m[DAZ] and is_normal(x) and is_normal(y):
        exact, s = exact_sum(x, -y if negate else y)
        if exact:
            done, code = fast_rounded(s, f, c, m, random)
            if done:
                return code, np.int64(0)
    code, events = general_add(a, fa, b, fb, negate, f, m, random)
    return to_carrier(code, f, c), events


@entry
def multiply(a, fa, b, fb, f, c, m, draws, want):
    check(f, c)
    random = random_of(m, draws)
    x, y = double_of(a, fa), double_of(b, fb)
    if not want and not m[DAZ] and is_normal(x) and is_normal(y):
        exact, p = exact_product(x, y)
        if exact:
            done, code = fast_rounded(p, f, c, m, random)
            if done:
                return code, np.int64(0)
    code, events = general_multiply(a, fa, b, fb, f, m, random)
    return to_carrier(code, f, c), events


@entry
def fma(a, fa, b, fb, addend, fc, f, c, m, draws, want):
    check(f, c)
    random = random_of(m, draws)
    x, y, z = double_of(a, fa), double_of(b, fb), double_of(addend, fc)
    if not want and not m[DAZ] and is_normal(x) and is_normal(y) and is_normal(z):
        exact, p = exact_product(x, y)
        if exact:
            exact, s = exact_sum(p, z)
            if exact:
                done, code = fast_rounded(s, f, c, m, random)
                if done:
                    return code, np.int64(0)
    code, events = general_fma(a, fa, b, fb, addend, fc, f, m, random)
    return to_carrier(code, f, c), events


@entry
def divide(a, fa, b, fb, f, c, m, draws, want):
    check(f, c)
    code, events = general_divide(a, fa, b, fb, f, m, random_of(m, draws))
    return to_carrier(code, f, c), events


@entry
def remainder(a, fa, b, fb, to_nearest, f, c, m, draws, want):
    check(f, c)
    code, events = general_remainder(a, fa, b, fb, to_nearest, f, m, random_of(m, draws))
    return to_carrier(code, f, c), events


@entry
def extremum(a, fa, b, fb, larger, number, f, c, m, draws, want):
    check(f, c)
    code, events = general_extremum(a, fa, b, fb, larger, number, f, m, random_of(m, draws))
    return to_carrier(code, f, c), events


@entry
def sqrt(a, fa, f, c, m, draws, want):
    check(f, c)
    code, events = general_sqrt(a, fa, f, m, random_of(m, draws))
    return to_carrier(code, f, c), events


@entry
def encode(a, fa, f, c, m, draws, want):
    """(code in f, events)."""
    return general_convert(a, fa, f, m, random_of(m, draws))


@entry
def decode(code, f, c, m, draws, want):
    bits = f[SIGN] + (f[SCALE] == 0)
    if bits < 64 and right(np.uint64(code), bits) != U0:
        raise ValueError("codes do not fit the format")
    return to_carrier(np.uint64(code), f, c), np.int64(0)


# -- in the operand's own format ---------------------------------------------------------------------------------------


@entry
def rint(a, fa, f, c, m, draws, want):
    return general_rint(a, fa, m[ROUNDING], np.int64(1), f, m, random_of(m, draws))


@entry
def rint_toward(a, fa, rounding, f, c, m, draws, want):
    """Return floor, ceil or trunc."""
    return general_rint(a, fa, rounding, np.int64(0), f, m, random_of(m, draws))


@entry
def scalb(a, fa, n, f, c, m, draws, want):
    return general_scalb(a, fa, n, f, m, random_of(m, draws))


@entry
def neighbour(a, fa, up, f, c, m, draws, want):
    return op.neighbour(a, fa, m[DAZ], up)


@entry
def nextafter(a, fa, b, fb, f, c, m, draws, want):
    """The neighbour of a in the direction of b. If they are equal it is a, and a zero has the sign of b."""
    relation, events = op.compare(a, fa, b, fb, m[DAZ], 0)
    if relation == op.UNORDERED:
        return op.nan_code(fa, events)
    if relation != op.EQUAL:
        return op.neighbour(a, fa, m[DAZ], np.int64(relation == op.LESS))
    kind, _, _, _ = op.unpack(a, fa, m[DAZ])
    if kind == op.ZERO:
        return op.zero_code(np.int64(right(b, fb[SIGN]) & U1), fa), np.int64(0)
    return a, np.int64(0)


@entry
def negative(a, fa, f, c, m, draws, want):
    return a ^ left(U1, fa[SIGN]), np.int64(0)


@entry
def absolute(a, fa, f, c, m, draws, want):
    return a & ~left(U1, fa[SIGN]), np.int64(0)


@entry
def copysign(a, fa, b, fb, f, c, m, draws, want):
    return (a & ~left(U1, fa[SIGN])) | left(right(b, fb[SIGN]), fa[SIGN]), np.int64(0)


# -- integer results: (the bits, events) -------------------------------------------------------------------------------


@entry
def to_integer(a, fa, low, high, f, c, m, draws, want):
    return op.to_integer(a, fa, np.uint64(low), np.uint64(high), m, random_of(m, draws))


@entry
def logb(a, fa, f, c, m, draws, want):
    exponent, events = op.logb(a, fa, m[DAZ])
    return np.uint64(exponent), events


@entry
def compare(a, fa, b, fb, holds, signaling, f, c, m, draws, want):
    """`holds`: a bit for each of LESS, EQUAL, GREATER and UNORDERED."""
    relation, events = op.compare(a, fa, b, fb, m[DAZ], signaling)
    return right(np.uint64(holds), np.int64(relation)) & U1, events


@entry
def classify(a, fa, f, c, m, draws, want):
    return np.uint64(op.classify(a, fa)), np.int64(0)


@entry
def is_class(a, fa, holds, f, c, m, draws, want):
    """`holds`: a bit for each class."""
    return right(np.uint64(holds), np.int64(op.classify(a, fa))) & U1, np.int64(0)


@entry
def signbit(a, fa, f, c, m, draws, want):
    return right(a, fa[SIGN]), np.int64(0)


@entry
def total_order(a, fa, b, fb, f, c, m, draws, want):
    return np.uint64(op.order_place(a, fa) <= op.order_place(b, fb)), np.int64(0)


@entry
def draw_checked(seed, index, random_bits, site):
    """A draw for integers of any type."""
    if seed < 0 or index < 0 or site < 0:
        raise ValueError("seed, index and site must be 0 to 2**64 - 1")
    if random_bits < 1 or random_bits > 64:
        raise ValueError("random_bits must be 1 to 64")
    return draw(np.uint64(seed), np.uint64(site), np.uint64(index), np.int64(random_bits))
