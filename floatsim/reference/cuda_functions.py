"""The readable specification of CUDA's functions: one number at a time, on exact integers.

`floatsim.tensorcore.cuda_functions` has the sequences. `Single` is a number of FP32, and `ScalarMachine` has the
operations that are not operators. Every operation is one of `floatsim.reference.scalar`.

>>> import floatsim as fs
>>> hex(cuda_function("silu", fs.encode(1.0, "fp32").item(), fs.FP32))
'0x3f3b26a7'
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from floatsim.formats import FP32, FP64, FloatFormat
from floatsim.formats.rounding import Rounding, RoundingAttributes
from floatsim.reference import functions, scalar
from floatsim.reference.special_functions import approximate
from floatsim.tensorcore.cuda_functions import as_cuda_function, payne_hanek_words

__all__ = ["ScalarMachine", "Single", "cuda_function"]

_NEAREST = RoundingAttributes()
_TOWARD_ZERO = RoundingAttributes(Rounding.TOWARD_ZERO)
_SIGN, _INFINITY, _NAN = 0x80000000, 0x7F800000, 0x7FC00000


@dataclass(frozen=True)
class Single:
    """A number of FP32, by its code. Operators round to nearest, ties to even."""

    code: int

    @property
    def value(self) -> float:
        """The number as a Python float."""
        value: float = struct.unpack("<f", struct.pack("<I", self.code))[0]
        return value

    def __add__(self, other: Single) -> Single:
        return _rounded(scalar.add, self, other)

    def __sub__(self, other: Single) -> Single:
        return _rounded(scalar.subtract, self, other)

    def __mul__(self, other: Single) -> Single:
        return _rounded(scalar.multiply, self, other)

    def __truediv__(self, other: Single) -> Single:
        return _rounded(scalar.divide, self, other)

    def __neg__(self) -> Single:
        return Single(self.code ^ _SIGN)

    def __abs__(self) -> Single:
        return Single(self.code & ~_SIGN)

    def __lt__(self, other: Single) -> bool:
        return self.value < other.value

    def __le__(self, other: Single) -> bool:
        return self.value <= other.value

    def __gt__(self, other: Single) -> bool:
        return self.value > other.value

    def __ge__(self, other: Single) -> bool:
        return self.value >= other.value


def _rounded(operation: Callable[..., Any], *operands: Single, attributes: RoundingAttributes = _NEAREST) -> Single:
    code, _ = operation(*(scalar.decode(x.code, FP32) for x in operands), FP32, attributes)
    return Single(code)


def _from_float(value: float, attributes: RoundingAttributes = _NEAREST) -> Single:
    code, _ = scalar.convert(scalar.decode(struct.unpack("<Q", struct.pack("<d", value))[0], FP64), FP32, attributes)
    return Single(code)


class ScalarMachine:
    """The machine of `floatsim.tensorcore.cuda_functions` for single numbers."""

    def number(self, value: float) -> Single:
        return _from_float(value)

    def fma(self, a: Single, b: Single, c: Single) -> Single:
        return _rounded(scalar.fma, a, b, c)

    def add_toward_zero(self, a: Single, b: Single) -> Single:
        return _rounded(scalar.add, a, b, attributes=_TOWARD_ZERO)

    def sqrt(self, a: Single) -> Single:
        return _rounded(scalar.sqrt, a)

    def approximate(self, name: str, a: Single) -> Single:
        return Single(approximate(name, a.code, FP32, ftz=True))

    def nearest(self, name: str, a: Single) -> Single:
        code, _ = functions.apply(name, (scalar.decode(a.code, FP32),), FP32, _NEAREST, 0)
        return Single(code)

    def nearest_power(self, a: Single, exponent: float) -> Single:
        operands = tuple(scalar.decode(x.code, FP32) for x in (a, _from_float(exponent)))
        code, _ = functions.apply("power", operands, FP32, _NEAREST, 0)
        return Single(code)

    def select(self, condition: bool, a: Single, b: Single) -> Single:
        return a if condition else b

    def truncate(self, a: Single) -> Single:
        return _from_float(float(math.trunc(a.value))) if math.isfinite(a.value) else a

    def power_of_two(self, n: Single) -> Single:
        return Single((int(n.value) + 127) << 23) if -127 < n.value < 128 else Single(_NAN)

    def split(self, a: Single, least: float) -> tuple[Single, Single]:
        moved = a.code - _from_float(least).code >> 23
        return _from_float(float(moved)), Single(a.code - (moved << 23))

    def with_sign_of(self, a: Single, b: Single) -> Single:
        return Single(a.code & ~_SIGN | b.code & _SIGN)

    def is_odd(self, n: Single) -> bool:
        return math.isfinite(n.value) and int(n.value) % 2 == 1

    def reduce_large(self, a: Single) -> tuple[Single, Single]:
        significand, exponent = a.code & 0x7FFFFF | 1 << 23, (a.code >> 23 & 255) - 127
        if not 0 <= exponent < 128:
            return Single(_NAN), Single(_NAN)
        product = significand * payne_hanek_words()[exponent] >> 32  # 62 bits behind the point
        n = (product + (1 << 61)) >> 62
        rest = product - (n << 62)
        r, turns = _from_float(float(rest) * (math.pi / 2 * 2.0**-62)), _from_float(float(n % 4))
        return (-r, -turns) if a.code & _SIGN else (r, turns)


_MACHINE = ScalarMachine()


def cuda_function(name: str, code: int, format: FloatFormat, number: float | None = None) -> int:
    """Return the code of a function of CUDA's library of one code.

    Parameters
    ----------
    name : str
        A name of `floatsim.tensorcore.cuda_functions.CUDA_FUNCTIONS`.
    code : int
    format : FloatFormat
        FP32, FP16 or BF16, of the operand and of the result.
    number : float, optional
        The second operand.

    Returns
    -------
    int
        A NaN is 0x7FFFFFFF, or 0x7FFF in 16 bits.
    """
    x, _ = scalar.convert(scalar.decode(code, format), FP32, _NEAREST)
    numbers = () if number is None else (number,)
    result = as_cuda_function(name).steps(_MACHINE, Single(x), *numbers)
    if abs(result).code > _INFINITY:
        return (1 << format.bits - 1) - 1
    rounded, _ = scalar.convert(scalar.decode(result.code, FP32), format, _NEAREST)
    return rounded
