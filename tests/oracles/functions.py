"""Mathematical functions by MPFR: one evaluation toward zero with a ternary value, or compositions with 600 bits.

No result of a composition (sigmoid, gelu, ...) is exact, and none is nearer than 2**-600 to a number of few bits
unless it saturates or its argument is tiny. If it saturates, it lies beside the limit, on the side in `_SATURATES`. For
a tiny x, x times a gate lies beside x times the gate at 0: the gates rise, so they are larger where x is positive.
"""

from __future__ import annotations

from fractions import Fraction

import gmpy2

import floatsim as fs

from .decode import DIVIDE_BY_ZERO, Value, layout
from .mpfr import to_mpfr
from .rounding import OracleRounding, Rounder, nan_of

_PRECISION, _MANY = 53 + 2 * 64, 600
_EMIN, _EMAX = gmpy2.get_emin_min() // 2, gmpy2.get_emax_max() // 2
_OF_MPFR = {
    "exp": gmpy2.exp, "exp2": gmpy2.exp2, "exp10": gmpy2.exp10, "expm1": gmpy2.expm1, "log": gmpy2.log,
    "log2": gmpy2.log2, "log10": gmpy2.log10, "log1p": gmpy2.log1p, "sin": gmpy2.sin, "cos": gmpy2.cos,
    "tan": gmpy2.tan, "asin": gmpy2.asin, "acos": gmpy2.acos, "atan": gmpy2.atan, "sinh": gmpy2.sinh,
    "cosh": gmpy2.cosh, "tanh": gmpy2.tanh, "erf": gmpy2.erf, "rsqrt": gmpy2.rec_sqrt,
    "reciprocal": lambda x: gmpy2.div(1, x), "cbrt": gmpy2.cbrt, "power": lambda x, y: x**y, "hypot": gmpy2.hypot,
}  # fmt: skip


def _gelu_tanh(x: gmpy2.mpfr) -> gmpy2.mpfr:
    u = gmpy2.sqrt(2 / gmpy2.const_pi()) * (x + gmpy2.mpfr("0.044715") * x**3)
    return x / (1 + gmpy2.exp(-2 * u))


_COMPOSITIONS = {
    "sigmoid": lambda x: 1 / (1 + gmpy2.exp(-x)),
    "silu": lambda x: x / (1 + gmpy2.exp(-x)),
    "softplus": lambda x: gmpy2.log1p(gmpy2.exp(x)),
    "mish": lambda x: x * gmpy2.tanh(gmpy2.log1p(gmpy2.exp(x))),
    "gelu": lambda x: x * gmpy2.erfc(-x / gmpy2.sqrt(gmpy2.mpfr(2))) / 2,
    "gelu_tanh": _gelu_tanh,
}
_GATES_AT_ZERO = {  # x times a rising gate: the gate at 0
    "silu": Fraction(1, 2), "mish": Fraction(3, 5), "gelu": Fraction(1, 2), "gelu_tanh": Fraction(1, 2),
}  # fmt: skip
_TINY = Fraction(1, 2**300)  # below, the gate is its value at 0 and a little more or less
_SATURATES = {"sigmoid": -1, "silu": -1, "softplus": 1, "mish": -1, "gelu": -1, "gelu_tanh": -1}
_LARGEST, _LEAST = Fraction(2) ** 2000, Fraction(1, 2**2000)  # beyond all formats
_FAR = 10**6  # arguments beyond it have results beyond all formats, or saturate
FUNCTIONS = (*_OF_MPFR, *_COMPOSITIONS)
_LIMITS = {  # of the compositions, at -inf and +inf: the magnitude, and the sign
    "sigmoid": ((0, 0), (1, 0)), "softplus": ((0, 0), ("inf", 0)), "silu": ((0, 1), ("inf", 0)),
    "mish": ((0, 1), ("inf", 0)), "gelu": ((0, 1), ("inf", 0)), "gelu_tanh": ((0, 1), ("inf", 0)),
}  # fmt: skip


def _fraction(x: gmpy2.mpfr) -> Fraction:
    return Fraction(*map(int, x.as_integer_ratio()))


class Function:
    """One function of given operands, evaluated by MPFR; call it with the ways to round."""

    def __init__(self, name: str, operands: tuple[Value, ...], fmt: fs.FloatFormat) -> None:
        self.fmt, self.name, self.operands = fmt, name, operands
        self.kind, self.sign, self.rounder, self.pole = "finite", 0, None, False
        if any(v.kind == "snan" for v in operands):
            self.kind = "nan"
        elif name in _COMPOSITIONS:
            self._compose(operands[0])
        else:
            self._evaluate()

    def _round(self, magnitude: Fraction, sign: int) -> None:
        self.rounder = Rounder(magnitude, sign, self.fmt)

    def _evaluate(self) -> None:
        name, operands = self.name, self.operands
        numbers = [to_mpfr(v) for v in operands]
        with gmpy2.context(precision=_PRECISION, emin=_EMIN, emax=_EMAX, round=gmpy2.RoundToZero) as context:
            result = _OF_MPFR[name](*numbers)
        self.pole = context.divzero
        self.sign = int(gmpy2.is_signed(result))
        if name == "rsqrt" and operands[0].is_zero:  # MPFR returns +inf for -0
            self.sign, self.pole = operands[0].sign, True
        if gmpy2.is_nan(result):
            self.kind = "nan"
        elif gmpy2.is_infinite(result) and not context.overflow:
            self.kind = "infinite"
        elif context.overflow or gmpy2.is_infinite(result):
            self._round(_LARGEST, self.sign)
        elif context.underflow or (result and abs(gmpy2.get_exp(result)) > 2000):
            far = context.underflow or gmpy2.get_exp(result) < 0
            self._round(_LEAST if far else _LARGEST, self.sign)
        else:
            unit = Fraction(2) ** (gmpy2.get_exp(result) - result.precision) if result.rc else Fraction(0)
            self._round(abs(_fraction(result)) + unit / 3, self.sign)

    def _compose(self, x: Value) -> None:
        if x.is_nan:
            self.kind = "nan"
            return
        if x.kind == "infinite":
            magnitude, self.sign = _LIMITS[self.name][1 - x.sign]
            if magnitude == "inf":
                self.kind = "infinite"
            else:
                self._round(Fraction(magnitude), self.sign)
            return
        gate = self.name in _GATES_AT_ZERO
        if x.is_zero and gate:
            self._round(Fraction(0), x.sign)
            return
        limited = min(x.magnitude, Fraction(_FAR)) if x.sign else x.magnitude
        saturated = not x.sign and x.magnitude > _FAR
        few = {x.magnitude, Fraction(1)}
        with gmpy2.context(precision=_MANY, emin=_EMIN, emax=_EMAX):
            if saturated:
                result = abs(gmpy2.mpfr(gmpy2.mpq(x.magnitude))) if self.name != "sigmoid" else gmpy2.mpfr(1)
            else:
                value = gmpy2.mpfr(gmpy2.mpq(limited.numerator, limited.denominator))
                result = _COMPOSITIONS[self.name](-value if x.sign else value)
            if x.is_zero and self.name == "sigmoid":
                self._round(Fraction(1, 2), 0)
                return
            self.sign = int(x.sign if gate else 0)
            tiny = not result or gmpy2.get_exp(result) < -2000
            magnitude = _LEAST if tiny else abs(_fraction(result))
        if x.magnitude < _TINY and self.name != "softplus":
            at_zero = x.magnitude * _GATES_AT_ZERO[self.name] if gate else Fraction(1, 2)
            magnitude = at_zero * (1 + Fraction(-1 if x.sign else 1, 2**3000))
        elif magnitude in few:
            magnitude *= 1 + Fraction(_SATURATES[self.name], 2**3000)
        self._round(magnitude, self.sign)

    def __call__(self, rounding: OracleRounding, random: int = 0) -> tuple[int, int]:
        if self.kind == "nan":
            signalling = any(v.kind == "snan" for v in self.operands)
            return nan_of(self.fmt, signalling or not any(v.is_nan for v in self.operands))
        if self.kind == "infinite":
            return layout(self.fmt).infinity(self.sign), DIVIDE_BY_ZERO if self.pole else 0
        assert self.rounder is not None
        return self.rounder(rounding, random)
