"""Candidates of `identify_quantizer` as rows of data: rules of scales and zero points, divisions and roundings.

Numbers are float64 arrays. Each operation is rounded to the format of the arithmetic: float64 has more than twice the
precision of FP32 and two bits more, so that the second rounding does not matter (S. Figueroa, "When is double rounding
innocuous?", 1995). FP64 arithmetic has one rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.conversion import quantize
from floatsim.emulator.elementwise.block_scales import LookUp, environment_is_default
from floatsim.formats import E2M1, E4M3, FP32, FP64, FloatFormat
from floatsim.quantization import BNB_FP4, NF4, IntegerFormat, LookupFormat
from floatsim.quantization.scheme import FOUR_OVER_SIX, ElementFormat, largest_number

__all__ = [
    "FORMS", "PLACEMENTS", "POWER_RULES", "SCALE_LIMITS", "SCALE_RULES", "SCHEME_RULES", "TENSOR_RULES",
    "TWO_LEVEL_RULES", "WHOLE_ROUNDINGS", "ZERO_RULES", "Arithmetic", "Factors", "Form", "ScaleRule", "SchemeRule",
    "Statistics", "TensorRule", "TwoLevelRule", "ZeroRule", "rounded_to", "table_roundings",
]  # fmt: skip

Array: TypeAlias = NDArray[Any]


def rounded_to(fmt: FloatFormat, x: Any, rounding: str = "ties_to_even", overflow: str = "infinity") -> Array:
    """Return float64 numbers rounded to a format. The options of the context have no effect."""
    numbers = np.asarray(x, np.float64)
    if fmt == FP64:
        return numbers
    if fmt == FP32 and (rounding, overflow) == ("ties_to_even", "infinity") and environment_is_default():
        with np.errstate(all="ignore"):
            return numbers.astype(np.float32).astype(np.float64)
    options: dict[str, Any] = {"rounding": rounding, "overflow": overflow, "daz": False, "ftz": False}
    return np.asarray(quantize(numbers, fmt, **options), np.float64)


@dataclass(frozen=True)
class Arithmetic:
    """The operations of a format, on float64 arrays of its numbers."""

    format: FloatFormat

    def __call__(self, x: Any) -> Array:
        """Return numbers rounded to the format."""
        return rounded_to(self.format, x)

    def divide(self, x: Any, y: Any) -> Array:
        with np.errstate(all="ignore"):
            return self(np.divide(x, y))

    def multiply(self, x: Any, y: Any) -> Array:
        with np.errstate(all="ignore"):
            return self(np.multiply(x, y))

    def add(self, x: Any, y: Any) -> Array:
        with np.errstate(all="ignore"):
            return self(np.add(x, y))


@dataclass(frozen=True)
class Statistics:
    """The extremes of the elements of each block, and the largest magnitude of the tensor.

    `high` and `low` count a zero as an element. `signed` is the first element of the largest magnitude.
    """

    amax: Array
    largest: Array
    smallest: Array
    signed: Array
    whole: float

    @property
    def high(self) -> Array:
        return np.maximum(self.largest, 0.0)

    @property
    def low(self) -> Array:
        return np.minimum(self.smallest, 0.0)

    def part(self, where: Any) -> Statistics:
        """Return the statistics of some blocks, as vectors."""
        return Statistics(self.amax[where], self.largest[where], self.smallest[where], self.signed[where], self.whole)


# -- scales ------------------------------------------------------------------------------------------------------------


class ScaleRule(NamedTuple):
    """A rule of the scale of a block, before its rounding to the format of the scales.

    `number` returns None for formats of elements that the rule is not for. `stores` says what the number is: "scale",
    "amax", or "multiplier", what the elements are multiplied with. Rules that are not `usual` differ from a usual one
    in few blocks only, and are tried if no usual rule has the scales of all blocks.
    """

    name: str
    text: str
    number: Callable[[Arithmetic, Statistics, ElementFormat], Array | None]
    stores: str = "scale"
    usual: bool = True


def _width(fmt: ElementFormat) -> int | None:
    """Return max - min of integers without fraction bits."""
    return fmt.max - fmt.min if isinstance(fmt, IntegerFormat) and not fmt.fraction_bits else None


def _of_integers(number: Callable[[Arithmetic, Statistics, int], Array]) -> Any:
    def found(a: Arithmetic, x: Statistics, fmt: ElementFormat) -> Array | None:
        width = _width(fmt)
        return None if width is None else number(a, x, width)

    return found


def _of_ends(number: Callable[[Arithmetic, Statistics, int, int], Array], unsigned_only: bool = False) -> Any:
    """Return the rule with the ends of integers, min and max. Those of unsigned integers count from the middle."""

    def found(a: Arithmetic, x: Statistics, fmt: ElementFormat) -> Array | None:
        if not isinstance(fmt, IntegerFormat) or fmt.fraction_bits or (unsigned_only and fmt.min < 0):
            return None
        middle = (fmt.max + fmt.min + 1) // 2 if fmt.min == 0 else 0
        return number(a, x, fmt.min - middle, fmt.max - middle)

    return found


def _no_table(number: Callable[[Arithmetic, Statistics, float], Array]) -> Any:
    """Return the rule for formats whose largest number is not 1."""

    def found(a: Arithmetic, x: Statistics, fmt: ElementFormat) -> Array | None:
        return None if isinstance(fmt, LookupFormat) else number(a, x, largest_number(fmt))

    return found


def _gptq(a: Arithmetic, x: Statistics, width: int) -> Array:
    return a.divide(np.where(x.smallest < 0, a.add(x.amax, x.amax), x.amax), width)


def _at_least(least: float) -> Any:
    return lambda a, x, fmt: a.divide(np.maximum(x.amax, a(least)), largest_number(fmt))


SCALE_RULES: tuple[ScaleRule, ...] = (
    ScaleRule("absmax", "amax / max", lambda a, x, fmt: a.divide(x.amax, largest_number(fmt))),
    ScaleRule("absmax_product", "amax * (1 / max)", _no_table(lambda a, x, m: a.multiply(x.amax, a.divide(1.0, m)))),
    ScaleRule("inverse_multiplier", "1 / (max / amax)",
              _no_table(lambda a, x, m: a.divide(1.0, a.divide(m, x.amax)))),
    ScaleRule("amax", "amax, not divided", _no_table(lambda a, x, m: x.amax), "amax"),
    ScaleRule("multiplier", "max / amax, the reciprocal", _no_table(lambda a, x, m: a.divide(m, x.amax)), "multiplier"),
    ScaleRule("full_range", "2 amax / (max - min)", _of_integers(lambda a, x, w: a.divide(a.add(x.amax, x.amax), w))),
    ScaleRule("to_min", "amax / -min", _of_ends(lambda a, x, low, high: a.divide(x.amax, -low))),
    ScaleRule("absmax_middle", "amax / (max - middle)",
              _of_ends(lambda a, x, low, high: a.divide(x.amax, high), unsigned_only=True)),
    ScaleRule("no_clipping", "the larger one of high / max and low / min",
              _of_ends(lambda a, x, low, high: np.maximum(a.divide(x.high, high), a.divide(x.low, low)))),
    ScaleRule("asymmetric", "(high - low) / (max - min)",
              _of_integers(lambda a, x, w: a.divide(a.add(x.high, -x.low), w))),
    ScaleRule("asymmetric_ends", "(largest - smallest) / (max - min), without zero",
              _of_integers(lambda a, x, w: a.divide(a.add(x.largest, -x.smallest), w)), usual=False),
    ScaleRule("signed", "the element of the largest magnitude / min: the scale may be negative",
              _of_ends(lambda a, x, low, high: a.divide(x.signed, low))),
    ScaleRule("gptq", "2 amax / (max - min), and amax / (max - min) where no element is negative",
              _of_integers(_gptq), usual=False),
    *(ScaleRule(f"absmax_{least:g}", f"amax / max, amax at least {least:g}", _at_least(least), usual=False)
      for least in (1e-4, 1e-5, 1e-8, 1e-10, 1e-12)),
)  # fmt: skip


class PowerRule(NamedTuple):
    """A rule whose scales are powers of two: the exponents of the scales."""

    name: str
    text: str
    exponents: Callable[[Statistics, ElementFormat], Array | None]


def _log2(x: Array) -> Array:
    """Return floor(log2(x)), exactly."""
    return np.frexp(x)[1].astype(np.int64) - 1


def _emax(fmt: ElementFormat) -> int:
    return math.frexp(largest_number(fmt))[1] - 1


def _up(x: Array, power: Array) -> Array:
    return (x > np.ldexp(1.0, power)).astype(np.int64)


def _ceil(x: Statistics, fmt: ElementFormat) -> Array:
    e = _log2(x.amax)
    return e + _up(x.amax, e) - _emax(fmt)


def _quotient(x: Statistics, fmt: ElementFormat) -> tuple[Array, Array]:
    """Return e = floor(log2(amax / max)) and amax / max / 2**e from 1 to 2, rounded to float64."""
    top = largest_number(fmt)
    e = _log2(x.amax) - _emax(fmt)
    e = e - (x.amax < np.ldexp(top, e)).astype(np.int64)
    return e, np.ldexp(x.amax, -e) / top


def _rceil(x: Statistics, fmt: ElementFormat) -> Array:
    e, _ = _quotient(x, fmt)
    return e + (x.amax > np.ldexp(largest_number(fmt), e)).astype(np.int64)


def _even(bits: int | None) -> Any:
    def found(x: Statistics, fmt: ElementFormat) -> Array | None:
        if not isinstance(fmt, FloatFormat) or (bits is not None and fmt.trailing_bits <= bits):
            return None
        trailing = fmt.trailing_bits if bits is None else bits
        fraction, e = np.frexp(x.amax)
        return e.astype(np.int64) - 1 + (2 * fraction >= 2 - 2.0 ** -(trailing + 1)) - _emax(fmt)

    return found


def _nearest(x: Statistics, fmt: ElementFormat) -> Array:
    e, m = _quotient(x, fmt)
    return e + (m >= 1.5)


def _nearest_log2(x: Statistics, fmt: ElementFormat) -> Array:
    e, m = _quotient(x, fmt)
    return e + (m >= math.sqrt(2))


def _amax_nearest_log2(x: Statistics, fmt: ElementFormat) -> Array:
    fraction, e = np.frexp(x.amax)
    return e.astype(np.int64) - 1 + (2 * fraction >= math.sqrt(2)) - _emax(fmt)


POWER_RULES: tuple[PowerRule, ...] = (
    PowerRule("floor", "2**(floor(log2(amax)) - emax)", lambda x, fmt: _log2(x.amax) - _emax(fmt)),
    PowerRule("ceil", "2**(ceil(log2(amax)) - emax)", _ceil),
    PowerRule("even", "2**(floor(log2(amax rounded to the precision of the elements)) - emax)", _even(None)),
    PowerRule("even_1", "2**(floor(log2(amax rounded to two significant bits)) - emax)", _even(1)),
    PowerRule("rceil", "2**ceil(log2(amax / max))", _rceil),
    PowerRule("quotient_floor", "2**floor(log2(amax / max))", lambda x, fmt: _quotient(x, fmt)[0]),
    PowerRule("nearest", "amax / max to the nearest power of two, ties up", _nearest),
    PowerRule("nearest_log2", "2**round(log2(amax / max))", _nearest_log2),
    PowerRule("amax_nearest_log2", "2**(round(log2(amax)) - emax)", _amax_nearest_log2),
)


class TensorRule(NamedTuple):
    """What a second scale, of the whole tensor, is. `top` is the largest scale times the largest element."""

    name: str
    decode: bool
    number: Callable[[Arithmetic, Any, float, float], Array]


TENSOR_RULES: tuple[TensorRule, ...] = (
    TensorRule("amax / top", True, lambda a, amax, m, s: a.divide(amax, m * s)),
    TensorRule("amax / max / largest scale", True, lambda a, amax, m, s: a.divide(a.divide(amax, m), s)),
    TensorRule("1 / (top / amax)", True, lambda a, amax, m, s: a.divide(1.0, a.divide(m * s, amax))),
    TensorRule("top / amax", False, lambda a, amax, m, s: a.divide(m * s, amax)),
    TensorRule("top * (1 / amax)", False, lambda a, amax, m, s: a.multiply(a.divide(1.0, amax), m * s)),
    TensorRule("1 / (amax / top)", False, lambda a, amax, m, s: a.divide(1.0, a.divide(amax, m * s))),
)


SCALE_LIMITS: dict[FloatFormat, tuple[float, ...]] = {E4M3: (E4M3.max, 256.0)}
"""The largest scales of blocks to which a scale of the tensor maps: the largest number, unless 4over6 needs room."""


class TwoLevelRule(NamedTuple):
    """The scale of a block before its rounding, with p, the scale of the tensor, and q, its reciprocal."""

    name: str
    text: str
    number: Callable[[Arithmetic, Array, float, Any, Any], Array]


TWO_LEVEL_RULES: tuple[TwoLevelRule, ...] = (
    TwoLevelRule("(amax / max) / p", "(amax / max) / p", lambda a, x, m, p, q: a.divide(a.divide(x, m), p)),
    TwoLevelRule("amax / (max * p)", "amax / (max * p)", lambda a, x, m, p, q: a.divide(x, a.multiply(m, p))),
    TwoLevelRule("q * (amax / max)", "(1 / p) * (amax / max)", lambda a, x, m, p, q: a.multiply(q, a.divide(x, m))),
    TwoLevelRule("amax * (q * (1 / max))", "amax * ((1 / p) * (1 / max))",
                 lambda a, x, m, p, q: a.multiply(x, a.multiply(q, a.divide(1.0, m)))),
    TwoLevelRule("q * (amax * (1 / max))", "(1 / p) * (amax * (1 / max))",
                 lambda a, x, m, p, q: a.multiply(q, a.multiply(x, a.divide(1.0, m)))),
)  # fmt: skip


class SchemeRule(NamedTuple):
    """Scales that depend on more than the extremes of a block: `fs.quantize_blocks` computes them by this scheme.

    `tensor_rule` is the rule of the scale of the tensor, "" without one. `rounding` and `stored` say how the scales of
    blocks are stored, and `blocks` are the blocks that the rule is for, () for all.
    """

    name: str
    text: str
    formats: tuple[ElementFormat, ...]
    scale_format: FloatFormat
    tensor_rule: str
    rounding: str
    stored: str
    blocks: tuple[tuple[int, int], ...]
    scheme: dict[str, Any]


_ERRORS = {"mae": "sum of magnitudes", "mse": "sum of squares", "absmax": "largest magnitude"}
_ORDERS = {"rows": "row by row", "lanes": "in lanes of 8"}

SCHEME_RULES: tuple[SchemeRule, ...] = (
    *(SchemeRule(
        name, f"(1 / p) * (amax / 6) or that times 1.5, by the errors: {_ERRORS[kind.error]}"
        + ("" if kind.error == "absmax" else f", added {_ORDERS[kind.order]}"),
        (E2M1,), E4M3, "1 / (top / amax)", "ties_to_even", "", ((1, 16), (16, 16)),
        {"rule": name, "factor": "reciprocal"},
    ) for name, kind in FOUR_OVER_SIX.items()),
    SchemeRule("nested", "amax / max", (NF4, BNB_FP4), FP32, "", "nearest of the table",
               "DYNAMIC8, less their mean", (), {"factor": "reciprocal", "nested": "dynamic8"}),
)  # fmt: skip


# -- elements ----------------------------------------------------------------------------------------------------------


class Factors(NamedTuple):
    """What an element is scaled with: the scale and amax of its block, and the scale of the tensor with its inverse."""

    s: Array
    amax: Array
    max: float
    p: Any = None
    q: Any = None


class Form(NamedTuple):
    """How an element x is scaled. `stores` says what the stored scale is: as in `ScaleRule`, or "two levels"."""

    name: str
    stores: str
    number: Callable[[Arithmetic, Array, Factors], Array]


FORMS: tuple[Form, ...] = (
    Form("x / scale", "scale", lambda a, x, f: a.divide(x, f.s)),
    Form("x * (1 / scale)", "scale", lambda a, x, f: a.multiply(x, a.divide(1.0, f.s))),
    Form("x * (max / amax)", "scale", lambda a, x, f: a.multiply(x, a.divide(f.max, f.amax))),
    Form("x * (max / scale)", "amax", lambda a, x, f: a.multiply(x, a.divide(f.max, f.s))),
    Form("x / (scale / max)", "amax", lambda a, x, f: a.divide(x, a.divide(f.s, f.max))),
    Form("x * (max * (1 / scale))", "amax", lambda a, x, f: a.multiply(x, a.multiply(a.divide(1.0, f.s), f.max))),
    Form("(x * max) / scale", "amax", lambda a, x, f: a.divide(a.multiply(x, f.max), f.s)),
    Form("(x / scale) * max", "amax", lambda a, x, f: a.multiply(a.divide(x, f.s), f.max)),
    Form("x * scale", "multiplier", lambda a, x, f: a.multiply(x, f.s)),
    Form("x / (1 / scale)", "multiplier", lambda a, x, f: a.divide(x, a.divide(1.0, f.s))),
    Form("x / (scale * p)", "two levels", lambda a, x, f: a.divide(x, a.multiply(f.s, f.p))),
    Form("x * (1 / (scale * p))", "two levels",
         lambda a, x, f: a.multiply(x, a.divide(1.0, a.multiply(f.s, f.p)))),
    Form("x / (scale / q)", "two levels", lambda a, x, f: a.divide(x, a.divide(f.s, f.q))),
    Form("x * (1 / (scale / q))", "two levels", lambda a, x, f: a.multiply(x, a.divide(1.0, a.divide(f.s, f.q)))),
    Form("x * (q / scale)", "two levels", lambda a, x, f: a.multiply(x, a.divide(f.q, f.s))),
    Form("(x * q) / scale", "two levels", lambda a, x, f: a.divide(a.multiply(x, f.q), f.s)),
    Form("(x / p) / scale", "two levels", lambda a, x, f: a.divide(a.divide(x, f.p), f.s)),
)  # fmt: skip
"""A quotient of a number and a tensor is number * (1 / tensor) in PyTorch: "x * (max * (1 / scale))"."""


def table_roundings(fmt: LookupFormat) -> dict[str, LookUp]:
    """Return the assignments of numbers to codes of a table: by its thresholds, and by midpoints if these differ.

    With midpoints, the codes are in the stable order of their numbers: of two zeros the first one takes 0.
    """
    order = tuple(sorted(range(len(fmt.values)), key=lambda code: fmt.values[code]))
    other = LookupFormat(fmt.name, fmt.values, order)
    found = {"nearest of the table": fmt.look_up}
    if other.thresholds != fmt.thresholds:
        found["nearest of the table by midpoints"] = other.look_up
    return found


def _away(t: Array) -> Array:
    whole = np.trunc(t)
    return whole + np.where(np.abs(t - whole) >= 0.5, np.sign(t), 0.0)


WHOLE_ROUNDINGS: dict[str, Callable[[Arithmetic, Array], Array]] = {
    "ties_to_even": lambda a, t: np.rint(t),
    "ties_to_away": lambda a, t: _away(t),
    "floor(t + 1/2)": lambda a, t: np.floor(a.add(t, 0.5)),
    "toward_zero": lambda a, t: np.trunc(t),
    "toward_negative": lambda a, t: np.floor(t),
    "toward_positive": lambda a, t: np.ceil(t),
}
"""Roundings of a scaled element t to an integer."""

PLACEMENTS = ("after the rounding", "before the rounding", "as scale * zero point, before the division")
"""Where a zero point is added."""


class ZeroRule(NamedTuple):
    """A rule of the zero point, from the statistics of a block and its scale.

    Rules that are not `usual` are named if no usual one has the zero points of all blocks.
    """

    name: str
    number: Callable[[Arithmetic, Statistics, Array, Any], Array]
    usual: bool = True


ZERO_RULES: tuple[ZeroRule, ...] = (
    ZeroRule("0", lambda a, x, s, fmt: np.zeros(s.shape)),
    ZeroRule("(max + min + 1) // 2", lambda a, x, s, fmt: np.full(s.shape, (fmt.max + fmt.min + 1) // 2)),
    ZeroRule("min - round(low / scale)", lambda a, x, s, fmt: fmt.min - np.rint(a.divide(x.low, s))),
    ZeroRule("round(min - low / scale)", lambda a, x, s, fmt: np.rint(a.add(fmt.min, -a.divide(x.low, s)))),
    ZeroRule("min - round(smallest / scale)", lambda a, x, s, fmt: fmt.min - np.rint(a.divide(x.smallest, s)), False),
    ZeroRule("min - trunc(low / scale)", lambda a, x, s, fmt: fmt.min - np.trunc(a.divide(x.low, s)), False),
    ZeroRule("max - round(high / scale)", lambda a, x, s, fmt: fmt.max - np.rint(a.divide(x.high, s)), False),
)  # fmt: skip
