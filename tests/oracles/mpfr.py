"""Operations by MPFR: with 64 bits to spare, and a ternary value that makes them exact."""

from __future__ import annotations

from fractions import Fraction

import gmpy2

import floatsim as fs
from floatsim import Rounding

from .decode import ABSORBED, DIVIDE_BY_ZERO, Value, layout
from .rounding import OracleRounding, Rounder, nan_of

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

    def __call__(self, rounding: OracleRounding, random: int = 0) -> tuple[int, int]:
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
            down = rounding.rounding is Rounding.TOWARD_NEGATIVE
            return at.zero(int(self.zero_below) if down else sign), 0
        code, flags = self.rounder(rounding, random)
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


def integer_remainder(
    operation: str, a: Value, b: Value, fmt: fs.FloatFormat, rounding: OracleRounding
) -> tuple[int, int]:
    """remainder and fmod on integers: both operands in units of their common quantum."""
    if a.is_nan or b.is_nan:
        return nan_of(fmt, "snan" in (a.kind, b.kind))
    if a.kind == "infinite" or b.is_zero:
        return nan_of(fmt, True)
    if b.kind == "infinite":
        return Rounder(a.magnitude, a.sign, fmt)(rounding)
    unit = Fraction(1, a.magnitude.denominator * b.magnitude.denominator)
    m, n = int(a.magnitude / unit), int(b.magnitude / unit)
    rest = m % n
    negative = a.sign
    if operation == "remainder" and (2 * rest > n or (2 * rest == n and (m // n) % 2 == 1)):
        rest, negative = n - rest, 1 - a.sign
    return Rounder(rest * unit, negative, fmt)(rounding)
