"""The dot instructions of CPUs as their manuals write them, operation by operation, on codes.

x86: Intel SDM, operation sections of VDPBF16PS, TDPBF16PS and TDPFP16PS; Bochs for VDPPHPS, TDP*F8PS and TOP2BF16PS.
Arm: DDI 0487, functions BFDotAdd, BFAdd, BFMul, BFRound, FPDot, FPDotAdd, FPMulAdd and FP8DotAddFP. Each instruction is
a function of the codes of one row: (a, b, c) to D. Nothing here knows the models of floatsim.tensorcore.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import floatsim as fs
from floatsim import Overflow, Rounding, Tininess

from .decode import Layout, Value, layout
from .rounding import OracleRounding, Rounder

BF16, FP16, FP32 = fs.BF16, fs.FP16, fs.FP32
Dot = Callable[[Sequence[int], Sequence[int], int], int]

_PLAIN = OracleRounding(Rounding.TIES_TO_EVEN, Overflow.INFINITY)


def _rounded(x: Fraction, sign_of_zero: int, fmt: fs.FloatFormat, rounding: OracleRounding = _PLAIN) -> int:
    sign = int(x < 0) if x else sign_of_zero
    return Rounder(abs(x), sign, fmt)(rounding)[0]


# -- x86: operations with the NaN of the first operand that is one -----------------------------------------------------


def _quieted(code: int, own: Layout, to: Layout) -> int:
    """A NaN in another format: the sign, the payload at the left, the quiet bit."""
    sign, magnitude = divmod(code, own.sign_bit)
    payload = (magnitude % (1 << own.t)) * (1 << to.t) // (1 << own.t)
    return sign * to.sign_bit + ((to.inf + payload) | 1 << to.t - 1)


class X86:
    """Operations in one format. With `flush`: DAZ and FTZ, tininess after rounding."""

    def __init__(self, fmt: fs.FloatFormat, flush: bool) -> None:
        self.format, self.flush, self.to = fmt, flush, layout(fmt)
        self.rounding = OracleRounding(Rounding.TIES_TO_EVEN, Overflow.INFINITY, ftz=flush, tininess=Tininess.AFTER)

    def read(self, code: int, fmt: fs.FloatFormat) -> Value:
        x = layout(fmt).decode(code)
        if self.flush and x.kind == "finite" and x.magnitude < self.to.least_normal:
            return Value("finite", x.sign)
        return x

    def nan(self, *operands: tuple[int, fs.FloatFormat]) -> int:
        for code, fmt in operands:
            if layout(fmt).decode(code).is_nan:
                return _quieted(code, layout(fmt), self.to)
        return self.to.sign_bit + self.to.nan

    def fma(self, a: int, b: int, c: int, fmt: fs.FloatFormat) -> int:
        x, y, z = self.read(a, fmt), self.read(b, fmt), self.read(c, self.format)
        sign = x.sign ^ y.sign
        infinite = "infinite" in (x.kind, y.kind)
        invalid = infinite and (x.is_zero or y.is_zero)
        invalid |= infinite and z.kind == "infinite" and z.sign != sign
        if invalid or x.is_nan or y.is_nan or z.is_nan:
            return self.nan((a, fmt), (b, fmt), (c, self.format))
        if infinite or z.kind == "infinite":
            return self.to.infinity(sign if infinite else z.sign)
        product = x.magnitude * y.magnitude * (-1) ** sign
        zero = sign if sign == z.sign else 0
        return _rounded(product + z.magnitude * (-1) ** z.sign, zero, self.format, self.rounding)

    def add(self, a: int, b: int) -> int:
        x, y = self.read(a, self.format), self.read(b, self.format)
        if x.is_nan or y.is_nan or (x.kind == y.kind == "infinite" and x.sign != y.sign):
            return self.nan((a, self.format), (b, self.format))
        for each in (x, y):
            if each.kind == "infinite":
                return self.to.infinity(each.sign)
        total = x.magnitude * (-1) ** x.sign + y.magnitude * (-1) ** y.sign
        return _rounded(total, x.sign if x.sign == y.sign else 0, self.format, self.rounding)

    def multiply(self, a: int, b: int, fmt: fs.FloatFormat) -> int:
        x, y = self.read(a, fmt), self.read(b, fmt)
        if x.is_nan or y.is_nan or (x.kind == "infinite" and y.is_zero) or (x.is_zero and y.kind == "infinite"):
            return self.nan((a, fmt), (b, fmt))
        sign = x.sign ^ y.sign
        if "infinite" in (x.kind, y.kind):
            return self.to.infinity(sign)
        return _rounded(x.magnitude * y.magnitude * (-1) ** sign, sign, self.format, self.rounding)


_FLUSHING, _HALF, _SINGLE = X86(FP32, True), X86(FP16, False), X86(FP32, False)


def _odd_first(fmt: fs.FloatFormat) -> Dot:
    def dot(a: Sequence[int], b: Sequence[int], c: int) -> int:
        return _FLUSHING.fma(a[0], b[0], _FLUSHING.fma(a[1], b[1], c, fmt), fmt)

    return dot


def _amx(fmt: fs.FloatFormat) -> Dot:
    def dot(a: Sequence[int], b: Sequence[int], c: int) -> int:
        even = odd = 0
        for k in range(0, len(a), 2):
            even = _FLUSHING.fma(a[k], b[k], even, fmt)
            odd = _FLUSHING.fma(a[k + 1], b[k + 1], odd, fmt)
        return _FLUSHING.add(c, _FLUSHING.add(even, odd))

    return dot


def _amx_fp8(fmt: fs.FloatFormat) -> Dot:
    def dot(a: Sequence[int], b: Sequence[int], c: int) -> int:
        unit, low, high = _FLUSHING, 0, 0
        for k in range(0, len(a), 4):
            p = [unit.multiply(a[k + i], b[k + i], fmt) for i in range(4)]
            low, high = unit.add(low, unit.add(p[0], p[1])), unit.add(high, unit.add(p[2], p[3]))
        return unit.add(c, unit.add(low, high))

    return dot


def _ace(a: Sequence[int], b: Sequence[int], c: int) -> int:
    p, q = (_FLUSHING.multiply(x, y, BF16) for x, y in zip(a, b, strict=True))
    return _FLUSHING.add(c, _FLUSHING.add(p, q))


def _fma_chain(unit: X86) -> Dot:
    def dot(a: Sequence[int], b: Sequence[int], c: int) -> int:
        for x, y in zip(a, b, strict=True):
            c = unit.fma(x, y, c, unit.format)
        return c

    return dot


# -- Arm ---------------------------------------------------------------------------------------------------------------

DEFAULT_NAN = 0x7FC00000


def _bf_unpack(code: int) -> Value:
    x = layout(FP32).decode(code)
    return Value("finite", x.sign) if x.kind == "finite" and x.magnitude < layout(FP32).least_normal else x


def _bf_round(x: Fraction) -> int:
    """BFRound: the mantissa is cut to 23 bits, and an error sets its last bit."""
    sign, magnitude, exponent = int(x < 0) << 31, abs(x), 0
    while magnitude < 1:
        magnitude, exponent = magnitude * 2, exponent - 1
    while magnitude >= 2:
        magnitude, exponent = magnitude / 2, exponent + 1
    if exponent < -126:
        return sign
    mantissa = int(magnitude * (1 << 23))
    if mantissa != magnitude * (1 << 23):
        mantissa |= 1
    if exponent > 127:
        return sign | 0x7F800000
    return sign | exponent + 127 << 23 | mantissa & 0x7FFFFF


def _bf_mul(a: int, b: int) -> int:
    x, y = _bf_unpack(a << 16), _bf_unpack(b << 16)
    sign = (x.sign ^ y.sign) << 31
    infinite = "infinite" in (x.kind, y.kind)
    if x.is_nan or y.is_nan or (infinite and (x.is_zero or y.is_zero)):
        return DEFAULT_NAN
    if infinite:
        return sign | 0x7F800000
    if x.is_zero or y.is_zero:
        return sign
    return _bf_round(x.magnitude * y.magnitude * (-1) ** (sign >> 31))


def _bf_add(a: int, b: int) -> int:
    x, y = _bf_unpack(a), _bf_unpack(b)
    if x.is_nan or y.is_nan or (x.kind == y.kind == "infinite" and x.sign != y.sign):
        return DEFAULT_NAN
    for each in (x, y):
        if each.kind == "infinite":
            return each.sign << 31 | 0x7F800000
    if x.is_zero and y.is_zero and x.sign == y.sign:
        return x.sign << 31
    total = x.magnitude * (-1) ** x.sign + y.magnitude * (-1) ** y.sign
    return _bf_round(total) if total else 0


def _fp_dot(a: Sequence[int], b: Sequence[int], fmt: fs.FloatFormat) -> int:
    """FPDot: the sum of two products, rounded once."""
    x, y = ([layout(fmt).decode(code) for code in side] for side in (a, b))
    products = []
    for u, v in zip(x, y, strict=True):
        sign, infinite = u.sign ^ v.sign, "infinite" in (u.kind, v.kind)
        if u.is_nan or v.is_nan or (infinite and (u.is_zero or v.is_zero)):
            return DEFAULT_NAN
        products.append(Value("infinite", sign) if infinite else Value("finite", sign, u.magnitude * v.magnitude))
    return _fp_sum(*products)


def _fp_sum(x: Value, y: Value) -> int:
    if x.is_nan or y.is_nan or (x.kind == y.kind == "infinite" and x.sign != y.sign):
        return DEFAULT_NAN
    for each in (x, y):
        if each.kind == "infinite":
            return each.sign << 31 | 0x7F800000
    total = x.magnitude * (-1) ** x.sign + y.magnitude * (-1) ** y.sign
    return _rounded(total, x.sign if x.sign == y.sign else 0, FP32)


def _fp_add(a: int, b: int) -> int:
    return _fp_sum(layout(FP32).decode(a), layout(FP32).decode(b))


def _fp_mul(a: int, b: int) -> int:
    return _fp_dot([a, 0], [b, a & 1 << 31 ^ b & 1 << 31], FP32)  # with a zero of the product's own sign


def _fp_mul_add(fmt: fs.FloatFormat, output: fs.FloatFormat) -> Dot:
    """FPMulAdd with the default NaN, after an exact widening."""
    unit = X86(output, False)

    def dot(a: Sequence[int], b: Sequence[int], c: int) -> int:
        for x, y in zip(a, b, strict=True):
            c = unit.fma(x, y, c, fmt)
            if layout(output).decode(c).is_nan:
                c = layout(output).nan
        return c

    return dot


def _bf_dot(a: Sequence[int], b: Sequence[int], c: int) -> int:
    for k in range(0, len(a), 2):
        c = _bf_add(c, _bf_add(_bf_mul(a[k], b[k]), _bf_mul(a[k + 1], b[k + 1])))
    return c


def _pairs(fmt: fs.FloatFormat) -> Dot:
    def dot(a: Sequence[int], b: Sequence[int], c: int) -> int:
        for k in range(0, len(a), 2):
            c = _fp_add(c, _fp_dot(a[k : k + 2], b[k : k + 2], fmt))
        return c

    return dot


def _half_fmmla(a: Sequence[int], b: Sequence[int], c: int) -> int:
    return _fp_add(c, _fp_add(_fp_dot(a[:2], b[:2], FP16), _fp_dot(a[2:], b[2:], FP16)))


def _single_fmmla(a: Sequence[int], b: Sequence[int], c: int) -> int:
    return _fp_add(c, _fp_add(_fp_mul(a[0], b[0]), _fp_mul(a[1], b[1])))


def _fp8_dot_add(fmt: fs.FloatFormat, output: fs.FloatFormat) -> Dot:
    """FP8DotAddFP: the exact sum of all products and the addend, rounded once; the default NaN."""
    to = layout(output)

    def dot(a: Sequence[int], b: Sequence[int], c: int) -> int:
        terms = [to.decode(c)]
        for x, y in zip((layout(fmt).decode(v) for v in a), (layout(fmt).decode(v) for v in b), strict=True):
            infinite = "infinite" in (x.kind, y.kind)
            if x.is_nan or y.is_nan or (infinite and (x.is_zero or y.is_zero)):
                return to.nan
            magnitude = Fraction(0) if infinite else x.magnitude * y.magnitude
            terms.append(Value("infinite" if infinite else "finite", x.sign ^ y.sign, magnitude))
        signs = {x.sign for x in terms if x.kind == "infinite"}
        if terms[0].is_nan or len(signs) == 2:
            return to.nan
        if signs:
            return to.infinity(signs.pop())
        total = sum((x.magnitude * (-1) ** x.sign for x in terms), Fraction(0))
        return _rounded(total, int(all(x.is_zero and x.sign for x in terms)), output)

    return dot


UNITS: dict[tuple[str, str, str, str], Dot] = {
    ("avx512-bf16", "vdpbf16ps", "BF16", "FP32"): _odd_first(BF16),
    ("avx512-fp16", "vfmadd231ph", "FP16", "FP16"): _fma_chain(_HALF),
    ("fma3", "vfmadd231ps", "FP32", "FP32"): _fma_chain(_SINGLE),
    ("avx10.2", "vdpphps", "FP16", "FP32"): _odd_first(FP16),
    ("amx-bf16", "tdpbf16ps", "BF16", "FP32"): _amx(BF16),
    ("amx-fp16", "tdpfp16ps", "FP16", "FP32"): _amx(FP16),
    ("amx-fp8", "tdpf8ps", "E5M2", "FP32"): _amx_fp8(fs.E5M2),
    ("ace", "top2bf16ps", "BF16", "FP32"): _ace,
    ("arm-bfdot", "bfdot", "BF16", "FP32"): _bf_dot,
    ("arm-bfdot", "bfdot.ebf", "BF16", "FP32"): _pairs(BF16),
    ("arm-bfmmla", "bfmmla", "BF16", "FP32"): _bf_dot,
    ("arm-bfmmla", "bfmmla.ebf", "BF16", "FP32"): _pairs(BF16),
    ("arm-bfmlal", "bfmlalb", "BF16", "FP32"): _fp_mul_add(BF16, FP32),
    ("arm-fp16", "fdot", "FP16", "FP32"): _pairs(FP16),
    ("arm-fp16", "fmlal", "FP16", "FP32"): _fp_mul_add(FP16, FP32),
    ("arm-fp16", "fmmla", "FP16", "FP32"): _half_fmmla,
    ("arm-fp16", "fmla", "FP16", "FP16"): _fp_mul_add(FP16, FP16),
    **{
        ("arm-fp8", name, "E5M2", output.name): _fp8_dot_add(fs.E5M2, output)
        for output, names in ((FP32, ("fdot", "fmmla", "fmlall")), (FP16, ("fdot", "fmmla", "fmlal")))
        for name in names
    },
    ("arm-fmmla", "fmmla", "FP32", "FP32"): _single_fmmla,
    ("apple-amx", "fma16.fp32", "FP16", "FP32"): _fp_mul_add(FP16, FP32),
    ("apple-amx", "fma16.fp32", "BF16", "FP32"): _fp_mul_add(BF16, FP32),
    ("apple-amx", "fma16", "FP16", "FP16"): _fp_mul_add(FP16, FP16),
    ("apple-amx", "fma32", "FP32", "FP32"): _fp_mul_add(FP32, FP32),
    ("apple-amx", "fma64", "FP64", "FP64"): _fp_mul_add(fs.FP64, fs.FP64),
    ("riscv-zvfbfwma", "vfwmaccbf16", "BF16", "FP32"): _fp_mul_add(BF16, FP32),
}
"""The instructions: (architecture, instruction, format of a and b, format of D)."""
