"""Independent oracles. Nothing in this file uses floatsim's reference or its kernels.

A format enters only through its five parameters; which codes are special, what a code is worth and how a value is
rounded are written out here a second time, in another way than in `floatsim.reference`:

* `Layout.neighbour_below` finds the two neighbours of an exact rational by bisection over the codes, comparing exact
  values; `choose` then picks one of them from the definitions. No shifts, no sticky bits, no exponents.
* `mpfr_exact` lets MPFR evaluate an operation toward zero with 64 bits to spare and turns its ternary value into an
  exact rational that lies on the right side of everything.
* `vector_*` are the same definitions on NumPy arrays, with float64 and an exact error term; good for every format
  of precision at most 24 whose values float64 holds with room (all but FP64). For formats of at most 16 bits the
  neighbours come from a search in the sorted table of values.
"""

from __future__ import annotations

import functools
import os
import subprocess
from bisect import bisect_right
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import gmpy2
import numpy as np

import floatsim as fs
from floatsim import Overflow, Rounding, Tininess
from floatsim.formats import Specials

INEXACT, UNDERFLOW, OVERFLOW, DIVIDE_BY_ZERO, INVALID = 1, 2, 4, 8, 16
FLUSHED, SUBNORMAL, ABSORBED = 32, 64, 128

DETERMINISTIC = tuple(m for m in Rounding if m is not Rounding.STOCHASTIC)
POLICIES = tuple(Overflow)
TININESS = tuple(Tininess)

NAMED = fs.named_formats()
ARITHMETIC = tuple(f for f in NAMED if not f.is_scale)
CUSTOM = (
    fs.FloatFormat.ieee(2, 1, "smallest"),
    fs.FloatFormat.ieee(6, 9, "DLFloat"),
    fs.FloatFormat.ieee(8, 15, "PXR24"),
    fs.FloatFormat("no subnormals", 4, 0, Specials.FN),
    fs.FloatFormat("below one", 3, 2, Specials.FINITE, 9),
    fs.FloatFormat("above one", 3, 3, Specials.FNUZ, -3),
    fs.FloatFormat("one exponent", 1, 4, Specials.FINITE),
    fs.FloatFormat("wide range", 9, 4),
    fs.FloatFormat("wide FN", 5, 6, Specials.FN, 20),
)
SMALL = tuple(f for f in (*ARITHMETIC, *CUSTOM) if f.bits <= 8)
UP_TO_16 = tuple(f for f in (*ARITHMETIC, *CUSTOM) if f.bits <= 16)
VECTOR = tuple(f for f in (*ARITHMETIC, *CUSTOM) if f.precision <= 24)


def test_seed() -> int:
    """The seed of this run's samples: FLOATSIM_TEST_SEED, else the commit's hash, else a fixed number."""
    if text := os.environ.get("FLOATSIM_TEST_SEED"):
        return int(text, 0)
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        ).stdout
        return int(commit[:8], 16)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return 20261121


test_seed.__test__ = False  # type: ignore[attr-defined]  # a helper, not a test


def rng(*salt: object) -> np.random.Generator:
    """A generator for one test: the run's seed and whatever tells this test from others."""
    text = "/".join(str(s) for s in salt)
    return np.random.default_rng([test_seed(), *text.encode()])


# -- one code at a time ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Value:
    """What a code stands for: kind is "finite", "infinite", "nan" or "snan"; magnitude is exact."""

    kind: str
    sign: int
    magnitude: Fraction = Fraction(0)

    @property
    def is_nan(self) -> bool:
        return self.kind in ("nan", "snan")

    @property
    def is_zero(self) -> bool:
        return self.kind == "finite" and self.magnitude == 0


class Layout:
    """A format's codes, from its parameters alone."""

    def __init__(self, w: int, t: int, bias: int, specials: str) -> None:
        self.w, self.t, self.bias, self.specials = w, t, bias, specials
        self.sign_bit = 0 if specials == "scale" else 1 << (w + t)
        self.bits = w + t + (specials != "scale")
        all_ones = (1 << (w + t)) - 1
        self.inf: int | None = None
        if specials == "ieee":
            self.inf = ((1 << w) - 1) << t
            self.largest, self.nan = self.inf - 1, self.inf + (1 << (t - 1))
        elif specials in ("fn", "scale"):
            self.largest, self.nan = all_ones - 1, all_ones
        elif specials == "fnuz":
            self.largest, self.nan = all_ones, self.sign_bit
        else:
            self.largest, self.nan = all_ones, None
        self.max = self.worth(self.largest)
        self.beyond = self.worth(self.largest + 1)  # what the next number would be with more exponents
        first_normal = 0 if specials == "scale" else 1 << t
        self.least_normal = self.worth(first_normal)
        # the largest number of p bits below the normal range, were there more exponents
        self.below_normal = self.least_normal * Fraction((1 << (t + 1)) - 1, 1 << (t + 1))

    def worth(self, magnitude: int) -> Fraction:
        """The value of a code without its sign, special or beyond the last or not."""
        field, trailing = divmod(magnitude, 1 << self.t)
        if field == 0 and self.specials != "scale":
            return Fraction(trailing, 1 << self.t) * Fraction(2) ** (1 - self.bias)
        return (1 + Fraction(trailing, 1 << self.t)) * Fraction(2) ** (field - self.bias)

    def decode(self, code: int, daz: bool = False) -> Value:
        if code == self.nan:
            return Value("nan", 0)
        sign, magnitude = divmod(code, self.sign_bit) if self.sign_bit else (0, code)
        if self.inf is not None and magnitude >= self.inf:
            if magnitude == self.inf:
                return Value("infinite", sign)
            return Value("snan" if magnitude < self.nan else "nan", sign)
        if magnitude > self.largest:
            return Value("nan", sign)
        if daz and self.specials != "scale" and magnitude < 1 << self.t:
            magnitude = 0
        return Value("finite", sign, self.worth(magnitude))

    def neighbour_below(self, x: Fraction) -> int:
        """The largest magnitude whose worth is at most x; x must be below `beyond`."""
        return bisect_right(range(self.largest + 1), x, key=self.worth) - 1

    def zero(self, sign: int) -> int:
        return 0 if self.specials == "fnuz" else sign * self.sign_bit

    def odd(self, magnitude: int) -> bool:
        """Whether the significand, hidden bit included, is odd."""
        return magnitude % 2 == 1 if self.t else magnitude > 0

    def infinity(self, sign: int) -> int:
        if self.inf is not None:
            return sign * self.sign_bit + self.inf
        return sign * self.sign_bit + self.largest if self.nan is None else self.nan


@functools.cache
def layout(fmt: fs.FloatFormat) -> Layout:
    return Layout(fmt.exponent_bits, fmt.trailing_bits, fmt.bias, fmt.specials.value)


@dataclass(frozen=True)
class How:
    """One way of rounding."""

    rounding: Rounding = Rounding.TIES_TO_EVEN
    overflow: Overflow = Overflow.INFINITY
    daz: bool = False
    ftz: bool = False
    tininess: Tininess = Tininess.AFTER
    random_bits: int = 32

    @property
    def attributes(self) -> object:
        from floatsim.reference import Attributes

        return Attributes(self.rounding, self.overflow, self.daz, self.ftz, self.tininess, self.random_bits)

    @property
    def keywords(self) -> dict[str, object]:
        return {"rounding": self.rounding, "overflow": self.overflow, "daz": self.daz, "ftz": self.ftz,
                "tininess": self.tininess}  # fmt: skip

    def __str__(self) -> str:
        words = [self.rounding.name.lower(), self.overflow.name.lower(), self.tininess.name.lower()]
        return " ".join(words + ["daz"] * self.daz + ["ftz"] * self.ftz)


def every_how(rounding: tuple[Rounding, ...] = DETERMINISTIC) -> list[How]:
    """All combinations of mode, policy, tininess, DAZ and FTZ."""
    return [
        How(m, o, daz, ftz, t)
        for m in rounding for o in POLICIES for daz in (False, True) for ftz in (False, True) for t in TININESS
    ]  # fmt: skip


def goes_up(x: Fraction, low: Fraction, high: Fraction, low_is_odd: bool, sign: int, how: How, random: int) -> bool:
    """Which neighbour: x lies strictly between low and high (magnitudes)."""
    mode = how.rounding
    twice, middle = 2 * x, low + high
    if mode is Rounding.TIES_TO_EVEN:
        return twice > middle or (twice == middle and low_is_odd)
    if mode is Rounding.TIES_TO_AWAY:
        return twice >= middle
    if mode is Rounding.TOWARD_ZERO:
        return False
    if mode is Rounding.TOWARD_POSITIVE:
        return not sign
    if mode is Rounding.TOWARD_NEGATIVE:
        return bool(sign)
    if mode is Rounding.TO_ODD:
        return not low_is_odd
    steps = (x - low) / (high - low) * 2**how.random_bits
    return steps.numerator // steps.denominator + random >= 2**how.random_bits


class Rounder:
    """All roundings of one exact magnitude: the neighbours are found once."""

    def __init__(self, x: Fraction, sign: int, fmt: fs.FloatFormat) -> None:
        self.x, self.sign, self.at = x, sign, layout(fmt)
        at = self.at
        self.far = x >= at.beyond
        if x and not self.far:
            self.low = at.neighbour_below(x)
            self.low_worth = at.worth(self.low)

    def __call__(self, how: How, random: int = 0) -> tuple[int, int]:
        at, x, sign = self.at, self.x, self.sign
        if at.specials == "scale":
            return self._scale(how, random)
        if x == 0:
            return at.zero(sign), 0
        if self.far:
            return self._overflow(how), OVERFLOW | INEXACT
        magnitude, exact = self.low, x == self.low_worth
        if not exact:
            high = at.worth(self.low + 1)
            magnitude += goes_up(x, self.low_worth, high, at.odd(self.low), sign, how, random)
        tiny = x < at.least_normal
        if tiny and how.tininess is Tininess.AFTER and x > at.below_normal:
            tiny = not goes_up(x, at.below_normal, at.least_normal, True, sign, how, random)
        if tiny and how.ftz:
            return at.zero(sign), UNDERFLOW | INEXACT | FLUSHED
        if magnitude > at.largest:
            return self._overflow(how), OVERFLOW | INEXACT
        flags = 0 if exact else INEXACT | (UNDERFLOW if tiny else 0)
        if magnitude == 0:
            return at.zero(sign), flags | FLUSHED
        if magnitude < 1 << at.t:
            flags |= SUBNORMAL
        return sign * at.sign_bit + magnitude, flags

    def _overflow(self, how: How) -> int:
        at, sign = self.at, self.sign
        stays = how.overflow is not Overflow.INFINITY or how.rounding in (
            Rounding.TOWARD_ZERO,
            Rounding.TO_ODD,
            Rounding.TOWARD_NEGATIVE if sign == 0 else Rounding.TOWARD_POSITIVE,
        )
        return sign * at.sign_bit + at.largest if stays else at.infinity(sign)

    def _scale(self, how: How, random: int) -> tuple[int, int]:
        at, x = self.at, self.x
        if x == 0 or self.sign:
            return at.nan, INVALID
        if x < at.least_normal:
            return 0, UNDERFLOW | INEXACT
        code, flags = at.largest + 1, INEXACT
        if not self.far:
            code, high = self.low, 2 * self.low_worth
            if x == self.low_worth:
                flags = 0
            elif how.rounding is Rounding.TIES_TO_EVEN:
                code += 2 * x >= self.low_worth + high
            else:
                code += goes_up(x, self.low_worth, high, True, 0, how, random)
        if code > at.largest:
            return (at.nan if how.overflow is Overflow.INFINITY else at.largest), OVERFLOW | INEXACT
        return code, flags


def nan_of(fmt: fs.FloatFormat, invalid: bool) -> tuple[int, int]:
    at = layout(fmt)
    return (at.largest, INVALID) if at.nan is None else (at.nan, INVALID if invalid else 0)


def convert(value: Value, fmt: fs.FloatFormat, how: How, random: int = 0) -> tuple[int, int]:
    at = layout(fmt)
    if value.is_nan:
        return nan_of(fmt, value.kind == "snan")
    if value.kind == "infinite":
        if at.specials != "scale" and how.overflow is Overflow.SATURATE_FINITE:
            return value.sign * at.sign_bit + at.largest, 0
        return at.infinity(value.sign), 0
    return Rounder(value.magnitude, value.sign, fmt)(how, random)


# -- MPFR --------------------------------------------------------------------------------------------------------

_EMIN, _EMAX = gmpy2.get_emin_min() // 2, gmpy2.get_emax_max() // 2


def to_mpfr(value: Value, precision: int = 64) -> gmpy2.mpfr:
    """Exactly this value (all formats have p <= 53)."""
    if value.is_nan:
        return gmpy2.nan()
    if value.kind == "infinite":
        return gmpy2.inf(-1 if value.sign else 1)
    if value.magnitude == 0:
        return gmpy2.zero(-1 if value.sign else 1)
    with gmpy2.context(gmpy2.context(), precision=precision, emin=_EMIN, emax=_EMAX):
        x = gmpy2.mpfr(gmpy2.mpq(value.magnitude.numerator, value.magnitude.denominator))
        assert x.rc == 0
        return -x if value.sign else x


MPFR_OPERATIONS = {
    "add": lambda ctx, a, b: ctx.add(a, b),
    "subtract": lambda ctx, a, b: ctx.sub(a, b),
    "multiply": lambda ctx, a, b: ctx.mul(a, b),
    "divide": lambda ctx, a, b: ctx.div(a, b),
    "sqrt": lambda ctx, a: ctx.sqrt(a),
    "fma": lambda ctx, a, b, c: ctx.fma(a, b, c),
}
ARITY = {name: f.__code__.co_argcount - 1 for name, f in MPFR_OPERATIONS.items()} | {"remainder": 2, "fmod": 2}


def _truth(x: gmpy2.mpfr) -> Fraction:
    """The exact magnitude behind a result truncated to many bits: itself, or a number just beyond it."""
    exact = abs(Fraction(*map(int, x.as_integer_ratio())))
    if x.rc == 0:
        return exact
    unit = Fraction(2) ** (gmpy2.get_exp(x) - x.precision)
    return exact + unit / 3


class Exact:
    """One operation on given operands, evaluated by MPFR; call it with the ways to round."""

    def __init__(self, operation: str, operands: tuple[Value, ...], fmt: fs.FloatFormat) -> None:
        self.fmt, self.operation, self.operands = fmt, operation, operands
        numbers = [to_mpfr(v) for v in operands]
        precision = 53 + 2 * 64  # room for p <= 53, for 64 random bits, and 64 to spare
        toward_zero = gmpy2.context(precision=precision, emin=_EMIN, emax=_EMAX, round=gmpy2.RoundToZero)
        down = gmpy2.context(precision=precision, emin=_EMIN, emax=_EMAX, round=gmpy2.RoundDown)
        self.result = MPFR_OPERATIONS[operation](toward_zero, *numbers)
        self.zero_below = gmpy2.is_signed(MPFR_OPERATIONS[operation](down, *numbers))
        self.divided_by_zero = toward_zero.divzero
        self.rounder = None
        if gmpy2.is_finite(self.result) and not gmpy2.is_zero(self.result):
            self.rounder = Rounder(_truth(self.result), int(gmpy2.is_signed(self.result)), fmt)

    def __call__(self, how: How, random: int = 0) -> tuple[int, int]:
        at, result = layout(self.fmt), self.result
        if gmpy2.is_nan(result):
            a = self.operands
            signalling = any(v.kind == "snan" for v in a)
            product_invalid = self.operation == "fma" and (
                (a[0].kind == "infinite" and a[1].is_zero) or (a[0].is_zero and a[1].kind == "infinite")
            )
            quiet = any(v.is_nan for v in a) and not product_invalid
            return nan_of(self.fmt, signalling or not quiet)
        sign = int(gmpy2.is_signed(result))
        if gmpy2.is_infinite(result):
            return at.infinity(sign), DIVIDE_BY_ZERO if self.divided_by_zero else 0
        if self.rounder is None:
            down = how.rounding is Rounding.TOWARD_NEGATIVE
            return at.zero(int(self.zero_below) if down else sign), 0
        code, flags = self.rounder(how, random)
        return code, flags | self._absorbed(code)

    def _absorbed(self, code: int) -> int:
        result = layout(self.fmt).decode(code)
        if result.kind != "finite" or self.operation not in ("add", "subtract", "fma"):
            return 0
        signed = (-1) ** result.sign * result.magnitude

        def number(v: Value) -> Fraction:
            return (-1) ** v.sign * v.magnitude

        if self.operation == "fma":
            a, b, c = self.operands
            return ABSORBED * bool(number(a) * number(b) != 0 and signed == number(c))
        a, b = (number(v) for v in self.operands)
        if self.operation == "subtract":
            b = -b
        return ABSORBED * bool((b != 0 and signed == a) or (a != 0 and signed == b))


def integer_remainder(operation: str, a: Value, b: Value, fmt: fs.FloatFormat, how: How) -> tuple[int, int]:
    """remainder and fmod on integers: both operands in units of their common quantum."""
    if a.is_nan or b.is_nan:
        return nan_of(fmt, "snan" in (a.kind, b.kind))
    if a.kind == "infinite" or b.is_zero:
        return nan_of(fmt, True)
    if b.kind == "infinite":
        return Rounder(a.magnitude, a.sign, fmt)(how)
    unit = Fraction(1, a.magnitude.denominator * b.magnitude.denominator)
    m, n = int(a.magnitude / unit), int(b.magnitude / unit)
    rest = m % n
    negative = a.sign
    if operation == "remainder" and (2 * rest > n or (2 * rest == n and (m // n) % 2 == 1)):
        rest, negative = n - rest, 1 - a.sign
    return Rounder(rest * unit, negative, fmt)(how)


# -- what rounds to integers or not at all -----------------------------------------------------------------------

_OWN_DIRECTION = {
    "floor": Rounding.TOWARD_NEGATIVE, "ceil": Rounding.TOWARD_POSITIVE, "trunc": Rounding.TOWARD_ZERO,
}  # fmt: skip


def whole_number(v: Value, how: How, random: int = 0) -> int:
    """A finite value's magnitude, rounded to an integer."""
    low = v.magnitude.numerator // v.magnitude.denominator
    if v.magnitude == low:
        return low
    return low + goes_up(v.magnitude, Fraction(low), Fraction(low + 1), low % 2 == 1, v.sign, how, random)


def integral(operation: str, v: Value, fmt: fs.FloatFormat, how: How, random: int = 0) -> tuple[int, int]:
    """rint, floor, ceil, trunc."""
    if v.is_nan:
        return nan_of(fmt, v.kind == "snan")
    if v.kind == "infinite":
        return layout(fmt).infinity(v.sign), 0
    direction = _OWN_DIRECTION.get(operation, how.rounding)
    whole = whole_number(v, replace(how, rounding=direction), random)
    code, flags = Rounder(Fraction(whole), v.sign, fmt)(how)
    return code, flags | (INEXACT if operation == "rint" and whole != v.magnitude else 0)


def to_integer(v: Value, low: int, high: int, how: How, random: int = 0) -> tuple[int, int]:
    if v.is_nan:
        return 0, INVALID
    if v.kind == "infinite":
        return (low if v.sign else high), INVALID
    whole = whole_number(v, how, random)
    signed = -whole if v.sign else whole
    if signed < low:
        return low, INVALID
    if signed > high:
        return high, INVALID
    return signed, 0 if whole == v.magnitude else INEXACT


def order_key(v: Value, zeros: bool = False) -> tuple[int, Fraction, int]:
    """Sorts numbers; with `zeros`, -0 before +0."""
    if v.kind == "infinite":
        return (-1 if v.sign else 1), Fraction(0), 0
    return 0, -v.magnitude if v.sign else v.magnitude, -v.sign if zeros and v.is_zero else 0


def compare(a: Value, b: Value) -> int | None:
    """-1, 0, 1 or None for unordered."""
    if a.is_nan or b.is_nan:
        return None
    ka, kb = order_key(a), order_key(b)
    return (ka > kb) - (ka < kb)


def extremum(operation: str, a: Value, b: Value, fmt: fs.FloatFormat, how: How) -> tuple[int, int]:
    """minimum, maximum, minimum_number, maximum_number (operands of the same format)."""
    loud = "snan" in (a.kind, b.kind)
    numbers = [v for v in (a, b) if not v.is_nan]
    if len(numbers) == 0 or (len(numbers) == 1 and not operation.endswith("_number")):
        return nan_of(fmt, loud)
    chosen = sorted(numbers, key=lambda v: order_key(v, zeros=True))[0 if operation.startswith("min") else -1]
    code, flags = (
        (layout(fmt).infinity(chosen.sign), 0)
        if chosen.kind == "infinite"
        else Rounder(chosen.magnitude, chosen.sign, fmt)(how)
    )
    return code, flags | (INVALID if loud else 0)


# -- many at a time ----------------------------------------------------------------------------------------------


@functools.cache
def _table(fmt: fs.FloatFormat) -> np.ndarray:
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
    at = layout(fmt)
    codes = np.asarray(codes).astype(np.uint64)
    negative = (codes & np.uint64(at.sign_bit)) != 0
    magnitude = (codes & np.uint64(~at.sign_bit & (2**64 - 1))).astype(np.int64)
    infinite = magnitude == at.inf if at.inf is not None else np.zeros(codes.shape, bool)
    if at.specials == "fnuz":
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


def _neighbours(x: np.ndarray, fmt: fs.FloatFormat, table: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Magnitude code and value of the neighbour at or below each finite x >= 0, and the value above."""
    at = layout(fmt)
    if table:
        values = _table(fmt)
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


def vector_round(
    x: np.ndarray, negative: np.ndarray, fmt: fs.FloatFormat, how: How, tail: np.ndarray | int = 0,
    table: bool | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Round finite float64 values; `tail` is the sign of (exact - x), an error term smaller than half an ulp of x.

    x == 0 means an exact zero of the given sign.
    """
    at, mode = layout(fmt), how.rounding
    ax = np.abs(x)
    tail = np.where(negative, -1, 1) * np.broadcast_to(np.asarray(tail), ax.shape)  # in terms of magnitudes
    low, low_value, high_value = _neighbours(ax, fmt, fmt.bits <= 16 if table is None else table)
    step = (ax == low_value) & (tail < 0)  # the exact value lies just below this number
    if step.any():
        below, below_value, _ = _neighbours(np.nextafter(ax, 0), fmt, fmt.bits <= 16 if table is None else table)
        high_value = np.where(step, low_value, high_value)
        low, low_value = np.where(step, below, low), np.where(step, below_value, low_value)
    beyond = float(at.beyond)
    far = (ax > beyond) | ((ax == beyond) & (tail >= 0))
    exact = (ax == low_value) & (tail == 0)
    middle = low_value + (high_value - low_value) / 2
    side = np.where(ax == middle, tail, np.where(ax > middle, 1, -1))
    odd = low % 2 == 1 if at.t else low > 0

    def up(side: np.ndarray, odd: np.ndarray | bool) -> np.ndarray:
        every = np.ones(ax.shape, bool)
        return {
            Rounding.TIES_TO_EVEN: (side > 0) | ((side == 0) & odd),
            Rounding.TIES_TO_AWAY: side >= 0,
            Rounding.TOWARD_ZERO: ~every,
            Rounding.TOWARD_POSITIVE: ~negative,
            Rounding.TOWARD_NEGATIVE: negative.copy(),
            Rounding.TO_ODD: every & ~np.asarray(odd),
        }[mode]

    magnitude = low + (up(side, odd) & ~exact)
    least, below = float(at.least_normal), float(at.below_normal)
    tiny = ((ax < least) | ((ax == least) & (tail < 0))) & (ax > 0)
    if how.tininess is Tininess.AFTER:
        above = tiny & ((ax > below) | ((ax == below) & (tail > 0)))
        middle = below + (least - below) / 2
        side = np.where(ax == middle, tail, np.where(ax > middle, 1, -1))
        tiny &= ~(above & up(side, True))
    over = (far | (magnitude > at.largest)) & ~(tiny & how.ftz)
    flags = np.where(exact, 0, INEXACT) | np.where(tiny & ~exact, UNDERFLOW, 0)
    flags = flags | np.where((magnitude == 0) & (ax > 0), FLUSHED, 0)
    flags = flags | np.where((magnitude > 0) & (magnitude < 1 << at.t), SUBNORMAL, 0)
    sign = np.where(negative, at.sign_bit, 0).astype(np.int64)
    zero = np.array([at.zero(0), at.zero(1)], dtype=np.int64)[negative.astype(np.int64)]
    code = np.where(magnitude == 0, zero, sign + magnitude)
    stays = np.full(ax.shape, how.overflow is not Overflow.INFINITY or mode in (Rounding.TOWARD_ZERO, Rounding.TO_ODD))
    if mode is Rounding.TOWARD_NEGATIVE:
        stays |= ~negative
    if mode is Rounding.TOWARD_POSITIVE:
        stays |= negative
    infinity = np.array([at.infinity(0), at.infinity(1)], dtype=np.int64)[negative.astype(np.int64)]
    code = np.where(over, np.where(stays, sign + at.largest, infinity), code)
    flags = np.where(over, OVERFLOW | INEXACT, flags)
    if how.ftz:
        code = np.where(tiny, zero, code)
        flags = np.where(tiny, UNDERFLOW | INEXACT | FLUSHED, flags)
    return code, flags


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded float64 sum and its exact error (Knuth)."""
    s = a + b
    bb = s - a
    return s, (a - (s - bb)) + (b - bb)


def vector_operation(
    operation: str, codes: tuple[np.ndarray, ...], fmt: fs.FloatFormat, how: How, table: bool | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """An operation on arrays of codes, all of one format: codes (int64) and events.

    Exact: sums by TwoSum; products of at most 24-bit significands are float64 values; a quotient or root that is
    no float64 midpoint-of-the-format differs from all of them by more than float64 can blur (53 >= 2p + 2).
    """
    at = layout(fmt)
    numbers = [vector_decode(c, fmt, how.daz) for c in codes]
    shape = np.broadcast_shapes(*(n.value.shape for n in numbers))
    numbers = [Decoded(*(np.broadcast_to(v, shape) for v in vars(n).values())) for n in numbers]
    a = numbers[0]
    any_nan = functools.reduce(np.logical_or, (n.nan for n in numbers))
    loud = functools.reduce(np.logical_or, (n.signalling for n in numbers))
    invalid = np.zeros(shape, bool)
    infinite = np.zeros(shape, bool)
    divided = np.zeros(shape, bool)
    tail: np.ndarray = np.zeros(shape)
    down = how.rounding is Rounding.TOWARD_NEGATIVE
    with np.errstate(all="ignore"):
        if operation in ("add", "subtract", "fma"):
            if operation == "fma":
                f, g, right = numbers
                invalid = (f.infinite & g.zero) | (f.zero & g.infinite)
                left_infinite, left_negative = f.infinite | g.infinite, f.negative ^ g.negative
                left = f.value * g.value
                left = np.where(left == 0, np.where(left_negative, -0.0, 0.0), left)
            else:
                right = numbers[1]
                left, left_infinite, left_negative = a.value, a.infinite, a.negative
                if operation == "subtract":
                    right = Decoded(-right.value, ~right.negative, right.nan, right.signalling, right.infinite)
            clash = left_infinite & right.infinite & (left_negative != right.negative) & ~any_nan
            invalid = invalid | clash
            infinite = left_infinite | right.infinite
            x, error = two_sum(left, right.value)
            tail = np.sign(error)
            zeros = (left == 0) & (right.value == 0)
            negative = np.where(zeros & (left_negative == right.negative), left_negative,
                                np.where(x == 0, down, x < 0))  # fmt: skip
            negative = np.where(infinite, np.where(left_infinite, left_negative, right.negative), negative)
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
        code, flags = vector_round(x, negative, fmt, how, tail, table)
    infinity = np.array([at.infinity(0), at.infinity(1)], dtype=np.int64)[negative.astype(np.int64)]
    code = np.where(infinite, infinity, code)
    flags = np.where(infinite, np.where(divided, DIVIDE_BY_ZERO, 0), flags)
    not_a_number = any_nan | invalid
    code = np.where(not_a_number, nan_of(fmt, False)[0], code)
    flags = np.where(not_a_number, np.where(invalid | loud | (at.nan is None), INVALID, 0), flags)
    if operation in ("add", "subtract", "fma"):
        result = vector_decode(code, fmt)
        finite = ~(not_a_number | infinite | result.infinite | result.nan)
        absorbed = (result.value == right.value) & (left != 0) if operation != "fma" else np.zeros(shape, bool)
        absorbed |= (result.value == left) & (right.value != 0) if operation != "fma" else (
            (result.value == right.value) & (left != 0))  # fmt: skip
        flags = np.where(absorbed & finite, flags | ABSORBED, flags)
    return code, flags


def vector_convert(
    codes: np.ndarray, source: fs.FloatFormat, fmt: fs.FloatFormat, how: How, table: bool | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Conversion between formats."""
    at, x = layout(fmt), vector_decode(codes, source, how.daz)
    index = x.negative.astype(np.int64)
    if at.specials == "scale":
        return _vector_scale(x, at, how)
    code, flags = vector_round(x.value, x.negative, fmt, how, 0, table)
    infinity = np.array([at.infinity(0), at.infinity(1)], dtype=np.int64)
    if how.overflow is Overflow.SATURATE_FINITE:
        infinity = np.array([at.largest, at.largest + at.sign_bit], dtype=np.int64)
    code = np.where(x.infinite, infinity[index], code)
    code = np.where(x.nan, nan_of(fmt, False)[0], code)
    flags = np.where(x.infinite, 0, flags)
    return code, np.where(x.nan, np.where(x.signalling | (at.nan is None), INVALID, 0), flags)


def _vector_scale(x: Decoded, at: Layout, how: How) -> tuple[np.ndarray, np.ndarray]:
    significand, exponent = np.frexp(np.where(x.value > 0, x.value, 1.0))  # significand in [0.5, 1)
    up = {
        Rounding.TIES_TO_EVEN: significand >= 0.75,
        Rounding.TIES_TO_AWAY: significand >= 0.75,
        Rounding.TOWARD_POSITIVE: significand > 0.5,
    }.get(how.rounding, np.zeros(significand.shape, bool))
    code = exponent.astype(np.int64) - 1 + at.bias + up
    flags = np.where(significand == 0.5, 0, INEXACT)
    under = x.value < float(at.least_normal)
    code, flags = np.where(under, 0, code), np.where(under, UNDERFLOW | INEXACT, flags)
    over = ~under & (code > at.largest)
    code = np.where(over, at.nan if how.overflow is Overflow.INFINITY else at.largest, code)
    flags = np.where(over, OVERFLOW | INEXACT, flags)
    invalid = x.negative | x.zero
    nan = x.nan | x.infinite | invalid
    flags = np.where(nan, np.where((invalid & ~x.infinite) | x.signalling, INVALID, 0), flags)
    return np.where(nan, at.nan, code), flags


def vector_integral(
    operation: str, codes: np.ndarray, fmt: fs.FloatFormat, how: How, table: bool | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """rint, floor, ceil, trunc."""
    at, x = layout(fmt), vector_decode(codes, fmt, how.daz)
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
    }[_OWN_DIRECTION.get(operation, how.rounding)]
    code, flags = vector_round(low + (up & (rest > 0)), x.negative, fmt, how, 0, table)
    if operation == "rint":
        flags = flags | np.where(rest > 0, INEXACT, 0)
    infinity = np.array([at.infinity(0), at.infinity(1)], dtype=np.int64)[x.negative.astype(np.int64)]
    code, flags = np.where(x.infinite, infinity, code), np.where(x.infinite, 0, flags)
    code = np.where(x.nan, nan_of(fmt, False)[0], code)
    return code, np.where(x.nan, np.where(x.signalling, INVALID, 0), flags)


# -- operands that hurt --------------------------------------------------------------------------------------------


def special_codes(fmt: fs.FloatFormat) -> np.ndarray:
    """Zeros, subnormal ends, powers of two and their neighbours, max, infinities, NaNs; both signs."""
    at = layout(fmt)
    one = at.bias << at.t if 0 < at.bias <= at.largest >> at.t else 1 << at.t
    first = 1 << at.t
    m = [0, 1, 2, 3, first // 2, first - 1, first, first + 1, 2 * first - 1, 2 * first, one - 1, one, one + 1, one + 2,
         one + first // 2, one + first, 2 * one - first, at.largest, at.largest - 1, at.largest - first,
         at.largest // 2, at.largest + 1, at.largest + 2, at.largest + 3]  # fmt: skip
    if at.nan is not None:
        m += [at.nan % (at.sign_bit or 2 * first + at.nan), (at.sign_bit or at.nan + 1) - 1]
    top = at.sign_bit or 1 << at.bits
    positive = sorted({k for k in m if 0 <= k < top})
    return np.array(positive + [k + at.sign_bit for k in positive if at.sign_bit], dtype=np.uint64)


def near_codes(x: np.ndarray, fmt: fs.FloatFormat) -> np.ndarray:
    """Codes of magnitudes close to |x| (truncated, clamped): good enough to aim with."""
    low, _, _ = _neighbours(np.minimum(np.abs(x), float(layout(fmt).max)), fmt, False)
    return low


def _patterned(r: np.random.Generator, n: int, fmt: fs.FloatFormat, low: int, high: int) -> np.ndarray:
    """Codes with exponent fields in low..high and trailing bits that are few, many, alternating or random."""
    at = layout(fmt)
    span = (1 << at.t) - 1
    kind = r.integers(0, 6, n)
    trailing = r.integers(0, span + 1, n)
    single = np.int64(1) << r.integers(0, max(at.t, 1), n)
    trailing = np.select(
        [kind == 0, kind == 1, kind == 2, kind == 3, kind == 4],
        [np.zeros(n, np.int64), np.full(n, span), single & span, span - (single & span), trailing & ~(single - 1)],
        trailing,
    )
    field = r.integers(max(low, 0), min(high, at.largest >> at.t) + 1, n)
    sign = r.integers(0, 2, n).astype(np.uint64) * np.uint64(at.sign_bit)
    return np.minimum((field << at.t) + trailing, at.largest).astype(np.uint64) + sign


def structured(fmt: fs.FloatFormat, arity: int, n: int, r: np.random.Generator) -> tuple[np.ndarray, ...]:
    """About n tuples of codes: cancellation, ties, exponent gaps, near overflow, subnormal, and random bits."""
    at = layout(fmt)
    top, p = at.largest >> at.t, at.t + 1
    part = max(n // 12, 1)
    middle = top // 2
    groups: list[tuple[np.ndarray, ...]] = []

    def sign(codes: np.ndarray) -> np.ndarray:
        return codes.astype(np.uint64) ^ r.integers(0, 2, len(codes)).astype(np.uint64) * np.uint64(at.sign_bit)

    def jitter(magnitude: np.ndarray, spread: int = 2) -> np.ndarray:
        moved = magnitude + r.integers(-spread, spread + 1, len(magnitude))
        return np.clip(moved, 0, at.largest).astype(np.uint64)

    def bits(k: int) -> np.ndarray:
        return r.integers(0, (1 << at.bits) - 1, k, dtype=np.uint64, endpoint=True)

    def magnitude(codes: np.ndarray) -> np.ndarray:
        return (codes & np.uint64(~at.sign_bit & (2**64 - 1))).astype(np.int64)

    def values(codes: np.ndarray) -> np.ndarray:
        return vector_decode(codes, fmt).value

    specials = special_codes(fmt)
    groups.append(tuple(bits(2 * part) for _ in range(arity)))
    groups.append(tuple(r.choice(specials, part) for _ in range(arity)))
    groups.append(tuple(r.choice(specials, part) if i == part % arity else bits(part) for i in range(arity)))
    groups.append(tuple(_patterned(r, part, fmt, 0, top) for _ in range(arity)))
    groups.append(tuple(_patterned(r, part, fmt, 0, 2) for _ in range(arity)))
    groups.append(tuple(_patterned(r, part, fmt, top - 2, top) for _ in range(arity)))
    if arity >= 2:
        a = _patterned(r, part, fmt, 0, top)  # exponent gaps around the precision
        gap = r.integers(-p - 3, p + 4, part)
        field = np.clip((magnitude(a) >> at.t) + gap, 0, top)
        b = _patterned(r, part, fmt, 0, 0)
        b = np.minimum((magnitude(b) & ((1 << at.t) - 1)) + (field << at.t), at.largest).astype(np.uint64)
        more = tuple(_patterned(r, part, fmt, middle - p, middle + p) for _ in range(arity - 2))
        groups.append((a, sign(b), *more))
        a = bits(part)  # cancellation
        groups.append((a, sign(jitter(magnitude(a))), *(bits(part) for _ in range(arity - 2))))
        with np.errstate(all="ignore"):
            for target in (float(at.least_normal), float(at.max), float(at.worth(1)) / 2, 1.0):
                a = _patterned(r, part, fmt, 0, top)  # products and quotients that land on an edge
                aim = np.abs(target / np.where(values(a) == 0, 1.0, values(a)))
                b = sign(jitter(near_codes(np.where(np.isfinite(aim), aim, 0.0), fmt), 3))
                more = tuple(_patterned(r, part, fmt, 0, top) for _ in range(arity - 2))
                groups.append((a, b, *more))
    if arity == 3:
        for k in range(4):
            a, b = _patterned(r, part, fmt, 0, top), _patterned(r, part, fmt, 0, top)
            if k % 2:
                a, b = (_patterned(r, part, fmt, middle - p // 2, middle + p // 2) for _ in "ab")
            with np.errstate(all="ignore"):
                product = np.abs(values(a) * values(b))
                shift = np.zeros(part) if k < 2 else r.integers(-p - 3, p + 4, part)
                near = near_codes(np.ldexp(product, shift.astype(np.int32)), fmt)
            groups.append((a, b, sign(jitter(near, 1))))
    if arity == 1:
        roots = bits(2 * part)  # squares and their neighbours
        squares = np.minimum(values(roots) ** 2 if at.t < 27 else np.abs(values(roots)), float(at.max))
        groups.append((jitter(near_codes(squares, fmt), 1),))
        groups.append((bits(3 * part),))
    return tuple(np.concatenate(column) for column in zip(*groups, strict=True))


def report(what: str, fmt: fs.FloatFormat, how: object, operands: tuple[int, ...], got: object, want: object) -> str:
    """One line that names everything needed to see a failure again."""
    digits = (fmt.bits + 3) // 4

    def show(x: object) -> str:
        if isinstance(x, tuple):
            return f"0x{int(x[0]):0{digits}X} flags {int(x[1])}"
        return str(x)

    given = " ".join(f"0x{int(c):0{digits}X}" for c in operands)
    return f"{what} {fmt.name} [{how}] {given}: got {show(got)}, expected {show(want)}"


def assert_equal_codes(
    what: str, fmt: fs.FloatFormat, how: object, operands: tuple[np.ndarray, ...], got: tuple, want: tuple
) -> None:
    """Exact equality of (codes, flags); the message shows the first few differences in hexadecimal."""
    differs = np.zeros(np.shape(got[0]), bool)
    for g, w in zip(got, want, strict=True):
        differs |= np.asarray(g).astype(np.int64) != np.asarray(w).astype(np.int64)
    if differs.any():
        shape = differs.shape
        where = np.flatnonzero(differs)
        columns = [np.broadcast_to(np.asarray(o), shape).ravel() for o in operands]

        def pick(arrays: tuple, i: int) -> tuple:
            return (*(np.ravel(x)[i] for x in arrays), 0)[:2]

        lines = [report(what, fmt, how, tuple(c[i] for c in columns), pick(got, i), pick(want, i)) for i in where[:5]]
        raise AssertionError(f"{len(where)} of {differs.size} differ (seed {test_seed()}):\n" + "\n".join(lines))
