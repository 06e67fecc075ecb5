"""The definitions of `fs.quantize_blocks` on exact rationals, element by element, and the trees of bitsandbytes.

Only the oracles round here: neither floatsim's conversions nor its kernels take part.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import oracles as o

import floatsim as fs
from floatsim import FP32, FP64, Overflow, Rounding
from floatsim.quantization import IntegerFormat, LookupFormat, Scheme

NEAREST = o.OracleRounding(overflow=Overflow.SATURATE_FINITE)


def nearest(x: Fraction, fmt: fs.FloatFormat) -> Fraction:
    """x rounded to nearest, ties to even; beyond the largest number, that number."""
    at = o.layout(fmt)
    code, _ = o.Rounder(abs(x), int(x < 0), fmt)(NEAREST)
    return at.worth(code & ~at.sign_bit) * (-1 if x < 0 else 1)


def to_whole(x: Fraction, mode: Rounding) -> int:
    """x rounded to an integer."""
    whole = abs(x).numerator // abs(x).denominator
    if whole != abs(x):
        low, high = Fraction(whole), Fraction(whole + 1)
        whole += o.goes_up(abs(x), low, high, whole % 2 == 1, int(x < 0), o.OracleRounding(mode), 0)
    return -whole if x < 0 else whole


def exponent_of(x: Fraction) -> int:
    """floor(log2(x)), exactly."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1


@dataclass
class Block:
    """The scale of a block, what elements are divided by or multiplied with, and the zero point."""

    scale: Fraction
    factor: Fraction
    divides: bool
    zero: int = 0


def largest_of(fmt: object) -> Fraction:
    if isinstance(fmt, LookupFormat):
        return Fraction(1)
    return Fraction(fmt.max) / unit_of(fmt)


def unit_of(fmt: object) -> int:
    """The reciprocal of the number that the code 1 stands for."""
    return 1 << fmt.fraction_bits if isinstance(fmt, IntegerFormat) else 1


def powers(rule: str, amax: Fraction, fmt: object) -> int:
    """The exponent of the scale by the rules with powers of two."""
    if rule == "rceil":
        e = exponent_of(amax / largest_of(fmt))
        return e if Fraction(2) ** e * largest_of(fmt) >= amax else e + 1
    e = exponent_of(amax)
    if rule == "ceil" and Fraction(2) ** e != amax:
        e += 1
    if rule == "even":
        ulp = Fraction(2) ** (e - fmt.trailing_bits)
        e = exponent_of((amax / ulp + Fraction(1, 2)).__floor__() * ulp)
    return e - exponent_of(largest_of(fmt))


def block(values: list[Fraction], scheme: Scheme, carrier: fs.FloatFormat, tensor: list[Fraction]) -> Block:
    """The scale of a block with finite values."""
    fmt, target, rule = scheme.format, scheme.scale_format, scheme.rule

    def rn(x: Fraction) -> Fraction:
        return nearest(x, carrier)

    def scale(x: Fraction) -> Fraction:
        if amax == 0:
            return Fraction(1)
        return nearest(rn(x), target) or Fraction(target.smallest_subnormal)

    def finished(s: Fraction, zero: int = 0) -> Block:
        return Block(s, s, True, zero) if scheme.factor == "divide" else Block(s, rn(1 / s), False, zero)

    amax = max(*(abs(v) for v in values), rn(Fraction(scheme.least_amax)))
    if rule in ("floor", "ceil", "rceil", "even"):
        if amax == 0:
            e = target.emin if target.is_scale else 0
        else:
            e = min(max(powers(rule, amax, fmt), target.emin - target.trailing_bits), target.emax)
        return finished(Fraction(2) ** e)
    if rule == "absmax":
        if scheme.factor == "multiplier":
            m = rn(largest_of(fmt) / amax) if amax else Fraction(1)
            return Block(scale(1 / m), m, False)
        return finished(scale(amax / largest_of(fmt)))
    if rule == "full_range":
        return finished(scale(rn(2 * amax) / (fmt.max - fmt.min)), (fmt.max + fmt.min + 1) // 2)
    high, low = max(*values, Fraction(0)), min(*values, Fraction(0))
    if rule == "no_clipping":
        return finished(scale(max(rn(high / fmt.max), rn(low / fmt.min))))
    if rule == "asymmetric":
        s = scale(rn(high - low) / (fmt.max - fmt.min))
        zero = fmt.min - to_whole(rn(low / s), Rounding.TIES_TO_EVEN)
        return finished(s, min(max(zero, fmt.min), fmt.max))
    whole = max(abs(v) for v in tensor)
    limit = Fraction(scheme.scale_max or (256 if "4over6" in rule or "fouroversix" in rule else 448))
    largest, six = limit * 6, Fraction(6)
    if rule == "nvfp4" or "4over6" in rule or "fouroversix" in rule:
        encode = rn(largest / whole) if whole else Fraction(1)

        def of_scale(s: Fraction) -> Block:
            product = rn(s * rn(1 / encode))
            return Block(s, rn(1 / product) if product else Fraction(carrier.max), False)

        if rule == "nvfp4":
            return of_scale(nearest(rn(amax * rn(encode * rn(1 / six))), target))
        base = rn(rn(amax / six) * encode)
        both = [of_scale(nearest(rn(base * Fraction(expansion)), target)) for expansion in (1, 1.5)]
        errors = [error_of(values, each, rn(each.scale), whole, limit, scheme, carrier) for each in both]
        return both[errors[1] < errors[0]]
    least = Fraction(1, 64)
    if rule == "nvfp4_single":
        return finished(nearest(max(rn(amax / six), least), target))
    p = rn(whole / largest) or Fraction(1)
    if rule == "nvfp4_modelopt":
        s = nearest(max(rn(amax / rn(6 * p)) or Fraction(1), Fraction(1, 512)), target)
        return Block(s, rn(s * p), True)
    assert rule == "nvfp4_torchao"
    s = nearest(max(rn(rn(amax / six) / p), least), target)
    return Block(s, rn(rn(1 / p) / s), False)


def error_of(
    values: list[Fraction], of: Block, scale: Fraction, whole: Fraction, limit: Fraction, scheme: Scheme,
    carrier: fs.FloatFormat,
) -> Fraction:  # fmt: skip
    """The error of a block by a rule of 4over6. Short blocks are filled with zeros."""

    def rn(x: Fraction) -> Fraction:
        return nearest(x, carrier)

    terms = []
    for x in values:
        element = nearest(rn(x * of.factor), scheme.format)
        error = rn(rn(rn(rn(element * scale) * whole) / rn(limit * 6)) - x)
        terms.append(rn(error * error) if scheme.rule.endswith("mse") else abs(error))
    if scheme.rule.endswith("absmax"):
        return max(terms)

    def total(parts: list[Fraction]) -> Fraction:
        found = parts[0]
        for each in parts[1:]:
            found = rn(found + each)
        return found

    terms += [Fraction(0)] * (16 - len(terms))
    if scheme.rule.startswith("te_"):
        return total(terms)
    return total([rn(terms[i] + terms[i + 8]) for i in range(8)])


def tensor_scale(tensor: list[Fraction], scheme: Scheme) -> Fraction | None:
    whole, rule = max(abs(v) for v in tensor), scheme.rule
    largest = 6 * (scheme.scale_max or (256 if "4over6" in rule or "fouroversix" in rule else 448))
    if rule == "nvfp4" or "4over6" in rule or "fouroversix" in rule:
        return nearest(1 / nearest(largest / whole, FP32), FP32) if whole else Fraction(1)
    if rule in ("nvfp4_torchao", "nvfp4_modelopt"):
        return nearest(whole / largest, FP32) or Fraction(1)
    return None


def outer_group(exact: list[list[Fraction]], scheme: Scheme, at: tuple[int, int]) -> list[Fraction]:
    """The elements that share the second scale of a block."""
    if scheme.outer == "tensor":
        return [v for row in exact for v in row]
    row = exact[at[0]]
    start = 0 if scheme.outer == "row" else at[1] * scheme.block[1] // scheme.outer * scheme.outer
    return row if scheme.outer == "row" else row[start : start + scheme.outer]


def nf4_code(x: float) -> int:
    """The decision tree of bitsandbytes, as the thresholds it compares with."""
    pivots = (
        -0.8480964004993439, -0.6106329262256622, -0.4599952697753906, -0.33967943489551544, -0.23460740596055984,
        -0.13791173323988914, -0.045525018125772476, 0.03979014977812767, 0.1202552504837513, 0.2035212516784668,
        0.2920137718319893, 0.3893125355243683, 0.5016634166240692, 0.6427869200706482, 0.8614784181118011,
    )  # fmt: skip
    return sum(x > fs.quantize(pivot, "fp32") for pivot in pivots)


def fp4_code(x: float) -> int:
    """The decision tree of bitsandbytes' dQuantizeFP4."""
    sign, x = (8 if x < 0 else 0), abs(x)
    a, b, c, d, e, f, g = (
        fs.quantize(p, "fp32") for p in (0.29166667, 0.583333, 0.8333333, 0.4166667, 0.0859375, 0.20833333, 0.00260417)
    )
    if x > a:
        if x > b:
            return sign + (3 if x > c else 2)
        return sign + (5 if x > d else 4)
    if x > e:
        return sign + (7 if x > f else 6)
    return sign + (1 if x > g else 0)


def dynamic8_code(x: float) -> int:
    """The number of midpoints, rounded to FP32, below x."""
    return sum(x > pivot for pivot in _DYNAMIC8_PIVOTS)


_DYNAMIC8_PIVOTS = [
    float(nearest(Fraction((a + b) / 2), FP32)) for a, b in itertools.pairwise(fs.quantization.DYNAMIC8.values)
]


def nested_scales(scales: list[Fraction], scheme: Scheme) -> list[Fraction]:
    """FP32 scales as they are read back: less their mean, quantized as one vector, plus their mean."""
    offset = nearest(Fraction(math.fsum(map(float, scales)) / len(scales)), FP32)
    rest = [nearest(s - offset, FP32) for s in scales]
    width = scheme.block[1]
    found = []
    for start in range(0, len(rest), width):
        part = rest[start : start + width]
        of = block(part, scheme, FP32, rest)
        codes = [code(x, of, scheme, FP32, Rounding.TIES_TO_EVEN, x < 0) for x in part]
        numbers = [nearest(Fraction(scheme.format.values[c]) * of.scale, FP32) for c in codes]
        found += [nearest(x + offset, FP32) for x in numbers]
    return found


LOOKUP = {"NF4": nf4_code, "DYNAMIC8": dynamic8_code, "BNB_FP4": fp4_code, "BINARY": lambda x: int(x >= 0)}


def code(x: Fraction, of: Block, scheme: Scheme, carrier: fs.FloatFormat, mode: Rounding, negative: bool) -> int:
    """The code of one element. `negative` is the sign bit of x, also of a zero."""
    t = nearest(x / of.factor if of.divides else x * of.factor, carrier)
    fmt = scheme.format
    if isinstance(fmt, LookupFormat):
        return LOOKUP[fmt.name](-0.0 if not t and x < 0 else float(t))
    if isinstance(fmt, IntegerFormat):
        return min(max(to_whole(t * unit_of(fmt), mode) + of.zero, fmt.min), fmt.max)
    rounding = o.OracleRounding(mode, Overflow.SATURATE_FINITE)
    return o.Rounder(abs(t), int(negative), fmt)(rounding)[0]


def carrier_of(scheme: Scheme, dtype: object) -> fs.FloatFormat:
    exact = isinstance(scheme.format, LookupFormat) or scheme.rule.startswith(("nvfp4", "te_4over6", "fouroversix"))
    return FP64 if str(dtype) == "float64" and not exact else FP32


def blocks_of(shape: tuple[int, int], scheme: Scheme) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """The indices of the elements of each block of a matrix."""
    rows, columns = shape
    height, width = (rows, columns) if scheme.block == "tensor" else scheme.block
    height, width = height or rows, width or columns
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for i in range(rows):
        for j in range(columns):
            found.setdefault((i // height, j // width), []).append((i, j))
    return found
