"""Entries of truth tables by MPFR: its operations and functions, and its rounding with `subnormalize`.

MPFR has no meaning for NaN operands, infinite operands of conversions, and results beyond the largest number of formats
that are not IEEE's: these follow the definitions of `decode` and `rounding`.
"""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any

import gmpy2

import floatsim as fs
from floatsim import Overflow

from .decode import DIVIDE_BY_ZERO, INEXACT, INVALID, OVERFLOW, UNDERFLOW, Value, layout
from .functions import Function
from .mpfr import MPFR_OPERATIONS, Exact, to_mpfr
from .rounding import OracleRounding, convert, nan_of

FLAGS = INVALID | DIVIDE_BY_ZERO | OVERFLOW | UNDERFLOW | INEXACT
_EMIN, _EMAX = gmpy2.get_emin_min() // 2, gmpy2.get_emax_max() // 2


@functools.lru_cache(maxsize=32)
def _codes(fmt: fs.FloatFormat) -> dict[Fraction, int]:
    at = layout(fmt)
    return {at.worth(code): code for code in range(at.largest + 1)}


@functools.lru_cache(maxsize=32)
def _contexts(fmt: fs.FloatFormat) -> tuple[Any, Any]:
    """MPFR's contexts with the precision of a format: with all exponents, and with those of its subnormal numbers."""
    least = fmt.emin - fmt.precision + 2  # MPFR's exponent of the smallest subnormal: its significands are below 1
    wide = gmpy2.context(precision=fmt.precision, emin=_EMIN, emax=_EMAX)
    return wide, gmpy2.context(precision=fmt.precision, emin=least, emax=_EMAX, subnormalize=True)


def rounded(x: gmpy2.mpfr, fmt: fs.FloatFormat, overflow: Overflow) -> tuple[int, int]:
    """Round a finite number to nearest, ties to even, by MPFR: the code and the flags."""
    at, sign = layout(fmt), int(gmpy2.is_signed(x))
    if gmpy2.is_zero(x):
        return at.zero(sign), 0
    wide, own = _contexts(fmt)
    unbounded = abs(Fraction(*map(int, wide.plus(x).as_integer_ratio())))
    if unbounded > at.max:
        code = at.infinity(sign) if overflow is Overflow.INFINITY else sign * at.sign_bit + at.largest
        return code, OVERFLOW | INEXACT
    own.clear_flags()
    found = own.plus(x)
    magnitude = abs(Fraction(*map(int, found.as_integer_ratio())))
    tiny = UNDERFLOW if unbounded < at.least_normal else 0
    code = sign * at.sign_bit + _codes(fmt)[magnitude] if magnitude else at.zero(sign)
    return code, INEXACT | tiny if found.rc or magnitude != abs(Fraction(*map(int, x.as_integer_ratio()))) else 0


def _convert(x: Value, fmt: fs.FloatFormat, rounding: OracleRounding) -> tuple[int, int]:
    return rounded(to_mpfr(x), fmt, rounding.overflow) if x.kind == "finite" else convert(x, fmt, rounding)


def _remainder(x: Value, y: Value, fmt: fs.FloatFormat, rounding: OracleRounding) -> tuple[int, int]:
    if x.is_nan or y.is_nan:
        return nan_of(fmt, "snan" in (x.kind, y.kind))
    context = gmpy2.context(precision=256, emin=_EMIN, emax=_EMAX)
    found = context.remainder(to_mpfr(x), to_mpfr(y))
    assert not context.inexact
    return nan_of(fmt, True) if gmpy2.is_nan(found) else rounded(found, fmt, rounding.overflow)


def entry(table: Any, values: list[Value], index: int) -> tuple[int, int]:
    """Return the code and the flags of an entry of a truth table; `values` has the values of all operand codes."""
    target = fs.as_format(table.result)
    rounding, operation = OracleRounding(overflow=Overflow[table.overflow.upper()]), table.operation
    operands = (values[index],) if table.operands == 1 else (values[index // len(values)], values[index % len(values)])
    if operation == "convert":
        code, flags = _convert(*operands, target, rounding)
    elif operation == "remainder":
        code, flags = _remainder(*operands, target, rounding)
    elif operation in MPFR_OPERATIONS:
        code, flags = Exact(operation, operands, target)(rounding)
    else:
        code, flags = Function(operation, operands, target)(rounding)
    return code, flags & FLAGS
