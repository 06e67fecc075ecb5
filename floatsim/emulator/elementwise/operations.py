"""The table of element-wise operations: the facts about each, for kernels, compiled code, operators and tests.

Kernels stand here by name, so that the table imports none. `tests/emulator/test_operations.py` checks the names.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from floatsim.formats.rounding import FloatClass, Rounding

__all__ = ["FUNCTIONS", "OPERATIONS", "Compiled", "Family", "Operation", "arity"]


class Family(enum.Enum):
    """The kinds of operations that `candidates.py` tells apart."""

    CONVERSION = "conversion"
    """The operand, rounded to the format of the result."""
    QUANTIZATION = "quantization"
    """The operand, rounded to the values of a format and kept in its own format."""
    ARITHMETIC = "arithmetic"
    """Sums, products, quotients, square roots and fused multiply-adds."""
    INTEGRAL = "integral"
    """Roundings to integral values, which are exact but for their inexact flag."""
    EXTREMUM = "extremum"
    """The smaller or the larger of two operands."""
    FUNCTION = "function"
    """Mathematical functions, defined by `floatsim.reference.functions`."""
    OTHER = "other"
    """Operations with integer kernels alone, such as remainders."""


class Compiled(NamedTuple):
    """An operation in compiled code (`floatsim.njit`)."""

    entry: str
    """The name in `floatsim_kernels.elementwise.njit_entry`, or "function"."""
    extra: tuple[int | str, ...] = ()
    """The integers after the operands, or the names of integer arguments."""
    result: str = "value"
    """A "value" in the carrier, a "code" of the format, "bool", "int32", "uint8", or the "dtype" argument."""
    rounds: bool = True


@dataclass(frozen=True)
class Operation:
    """An element-wise operation.

    Attributes
    ----------
    name : str
        The name of the public function.
    operands : sequence of str
        The names of the float operands.
    clause : str
        The clause of IEEE 754-2019, or "" for operations beside the standard.
    family : Family, optional
        None for operations that no plan is made for: comparisons, classes, signs and exponents.
    loop : str
        The integer kernel in `floatsim_kernels.elementwise.loops`.
    numbers : tuple of int
        The integers between the operands and the result of the loop. Those of rint follow the call's rounding mode.
    packed : str
        The number of the operation in `floatsim_kernels.elementwise.packed`, by name.
    compiled : Compiled, optional
        The entry for compiled code.
    float64 : callable, optional
        The operation on float64 arrays, with NumPy's rounding.
    """

    name: str
    operands: Sequence[str]
    clause: str = ""
    family: Family | None = None
    loop: str = ""
    numbers: tuple[int, ...] = ()
    packed: str = ""
    compiled: Compiled | None = None
    float64: Callable[..., Any] | None = None


def _looped(
    name: str, operands: str, clause: str, family: Family, loop: str, numbers: tuple[int, ...] = (), packed: str = "",
    float64: Callable[..., Any] | None = None,
) -> Operation:  # fmt: skip
    """Return an operation whose entry for compiled code has the name and the numbers of the loop."""
    return Operation(name, operands, clause, family, loop, numbers, packed, Compiled(loop, numbers), float64)


def _integral(name: str, mode: Rounding, float64: Callable[..., Any]) -> Operation:
    entry = Compiled("rint_toward", (mode.value,))
    return Operation(
        name, "a", "5.9", Family.INTEGRAL, "rint", (mode.value, 0), name.upper(), entry, float64
    )  # fmt: skip


def _exact(name: str, operands: Sequence[str], clause: str, compiled: Compiled) -> Operation:
    """Return an operation without a plan and without a rounding."""
    return Operation(name, operands, clause, compiled=compiled._replace(rounds=False))


def _bits(*positions: int) -> int:
    return sum(1 << position for position in positions)


_LESS, _EQUAL, _GREATER, _UNORDERED = range(4)


def _comparison(name: str, *relations: int) -> Operation:
    return _exact(name, "ab", "5.6.1", Compiled("compare", (_bits(*relations), "signaling"), "bool"))


_NAN = _bits(FloatClass.SIGNALING_NAN, FloatClass.QUIET_NAN)
_INFINITE = _bits(FloatClass.NEGATIVE_INFINITY, FloatClass.POSITIVE_INFINITY)
_SUBNORMAL = _bits(FloatClass.NEGATIVE_SUBNORMAL, FloatClass.POSITIVE_SUBNORMAL)


def _predicate(name: str, classes: int) -> Operation:
    return _exact(name, "a", "5.7.2", Compiled("is_class", (classes,), "bool"))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


_erf = np.vectorize(math.erf, otypes=[np.float64])

_FUNCTIONS: dict[str, tuple[str, Callable[..., Any] | None]] = {
    "exp": ("9.2", np.exp), "exp2": ("9.2", np.exp2), "exp10": ("9.2", lambda x: 10.0**x), "expm1": ("9.2", np.expm1),
    "log": ("9.2", np.log), "log2": ("9.2", np.log2), "log10": ("9.2", np.log10), "log1p": ("9.2", np.log1p),
    "sin": ("9.2", np.sin), "cos": ("9.2", np.cos), "tan": ("9.2", np.tan), "asin": ("9.2", np.arcsin),
    "acos": ("9.2", np.arccos), "atan": ("9.2", np.arctan), "sinh": ("9.2", np.sinh), "cosh": ("9.2", np.cosh),
    "tanh": ("9.2", np.tanh), "power": ("9.2.1", np.power), "hypot": ("9.2", np.hypot), "cbrt": ("9.2", np.cbrt),
    "rsqrt": ("9.2", lambda x: 1 / np.sqrt(x)), "reciprocal": ("", np.reciprocal), "erf": ("", _erf),
    "sigmoid": ("", _sigmoid), "gelu": ("", lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2), "gelu_tanh": ("", None),
    "silu": ("", lambda x: x * _sigmoid(x)), "softplus": ("", lambda x: np.logaddexp(0, x)), "mish": ("", None),
}  # fmt: skip
"""The clause and the float64 twin of each mathematical function."""


def _function(name: str) -> Operation:
    clause, float64 = _FUNCTIONS[name]
    compiled = None if name == "gelu_tanh" else Compiled("function")  # gelu with an argument
    operands = "ab" if name in ("power", "hypot") else "a"
    return Operation(name, operands, clause, Family.FUNCTION, compiled=compiled, float64=float64)


_ROWS = (
    Operation("convert", "x", "5.4.2", Family.CONVERSION, "convert"),
    Operation("quantize", "x", "", Family.QUANTIZATION, compiled=Compiled("quantize")),
    _looped("add", "ab", "5.4.1", Family.ARITHMETIC, "add", (0,), "ADD", np.add),
    _looped("subtract", "ab", "5.4.1", Family.ARITHMETIC, "add", (1,), "SUBTRACT", np.subtract),
    _looped("multiply", "ab", "5.4.1", Family.ARITHMETIC, "multiply", (), "MULTIPLY", np.multiply),
    _looped("divide", "ab", "5.4.1", Family.ARITHMETIC, "divide", (), "DIVIDE", np.divide),
    _looped("sqrt", "a", "5.4.1", Family.ARITHMETIC, "sqrt", (), "SQRT", np.sqrt),
    _looped("fma", "abc", "5.4.1", Family.ARITHMETIC, "fma", (), "FMA", lambda a, b, c: a * b + c),
    _looped("remainder", "ab", "5.3.1", Family.OTHER, "remainder", (1,)),
    _looped("fmod", "ab", "", Family.OTHER, "remainder", (0,), "", np.fmod),
    _looped("minimum", "ab", "9.6", Family.EXTREMUM, "extremum", (0, 0), "", np.minimum),
    _looped("maximum", "ab", "9.6", Family.EXTREMUM, "extremum", (1, 0), "", np.maximum),
    _looped("minimum_number", "ab", "9.6", Family.EXTREMUM, "extremum", (0, 1), "", np.fmin),
    _looped("maximum_number", "ab", "9.6", Family.EXTREMUM, "extremum", (1, 1), "", np.fmax),
    Operation("rint", "a", "5.9", Family.INTEGRAL, "rint", (1,), "RINT", Compiled("rint"), np.rint),
    _integral("floor", Rounding.TOWARD_NEGATIVE, np.floor),
    _integral("ceil", Rounding.TOWARD_POSITIVE, np.ceil),
    _integral("trunc", Rounding.TOWARD_ZERO, np.trunc),
    *map(_function, _FUNCTIONS),
    Operation("encode", "x", "5.4.2", compiled=Compiled("encode", (), "code")),
    Operation("to_integer", "x", "5.8", compiled=Compiled("to_integer", ("dtype",), "dtype")),
    Operation("scalb", "a", "5.3.3", compiled=Compiled("scalb", ("n",))),
    _exact("decode", "", "5.4.2", Compiled("decode", ("codes",))),
    _exact("logb", "a", "5.3.3", Compiled("logb", (), "int32")),
    _exact("next_up", "a", "5.3.1", Compiled("neighbour", (1,))),
    _exact("next_down", "a", "5.3.1", Compiled("neighbour", (0,))),
    _exact("nextafter", ("a", "direction"), "", Compiled("nextafter")),
    _exact("negative", "a", "5.5.1", Compiled("negative")),
    _exact("absolute", "a", "5.5.1", Compiled("absolute")),
    _exact("copysign", "ab", "5.5.1", Compiled("copysign")),
    _comparison("equal", _EQUAL),
    _comparison("not_equal", _LESS, _GREATER, _UNORDERED),
    _comparison("less", _LESS),
    _comparison("less_equal", _LESS, _EQUAL),
    _comparison("greater", _GREATER),
    _comparison("greater_equal", _GREATER, _EQUAL),
    _comparison("unordered", _UNORDERED),
    _exact("classify", "a", "5.7.2", Compiled("classify", (), "uint8")),
    _predicate("isnan", _NAN),
    _predicate("isinf", _INFINITE),
    _predicate("isfinite", _bits(*FloatClass) & ~(_NAN | _INFINITE)),
    _predicate("issubnormal", _SUBNORMAL),
    _exact("signbit", "a", "5.7.2", Compiled("signbit", (), "bool")),
    _exact("total_order", "ab", "5.10", Compiled("total_order", (), "bool")),
)

OPERATIONS = {row.name: row for row in _ROWS}
"""Every element-wise operation by its name."""
FUNCTIONS = tuple(_FUNCTIONS)
"""The names of the mathematical functions."""


def arity(name: str) -> int:
    """Return the number of operands of an operation.

    >>> arity("fma"), arity("exp")
    (3, 1)
    """
    return len(OPERATIONS[name].operands)
