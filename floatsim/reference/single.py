"""Arithmetic of FP32 numbers with operators, for readable sequences of FP32 operations such as `cuda_functions`.

Each operation is one of `scalar`, rounded to nearest, ties to even, without flags. Every NaN is 0x7FFFFFFF, the NaN of
NVIDIA's arithmetic.

>>> from floatsim.reference.single import Single, fma, single
>>> third = single(1.0) / single(3.0)
>>> hex(third.code), fma(third, single(3.0), single(-1.0)).value
('0x3eaaaaab', 2.9802322387695312e-08)
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from floatsim.formats import FP32, FP64
from floatsim.formats.rounding import RoundingAttributes
from floatsim.reference import scalar

__all__ = ["NAN_CODE", "Single", "fma", "single", "sqrt"]

NAN_CODE = 0x7FFFFFFF
"""The NaN of NVIDIA's FP32 arithmetic."""
_NEAREST = RoundingAttributes()


@dataclass(frozen=True)
class Single:
    """A number of FP32, by its code."""

    code: int

    @property
    def value(self) -> float:
        """The number as a Python float."""
        value: float = struct.unpack("<f", struct.pack("<I", self.code))[0]
        return value

    @property
    def is_nan(self) -> bool:
        """Return whether the number is NaN."""
        return self.code & 0x7FFFFFFF > 0x7F800000

    def __add__(self, other: Single) -> Single:
        return _rounded(scalar.add, self, other)

    def __sub__(self, other: Single) -> Single:
        return _rounded(scalar.subtract, self, other)

    def __mul__(self, other: Single) -> Single:
        return _rounded(scalar.multiply, self, other)

    def __truediv__(self, other: Single) -> Single:
        return _rounded(scalar.divide, self, other)

    def __neg__(self) -> Single:
        return Single(self.code ^ 0x80000000)

    def __abs__(self) -> Single:
        return Single(self.code & 0x7FFFFFFF)

    def __lt__(self, other: Single) -> bool:
        return self.value < other.value

    def __le__(self, other: Single) -> bool:
        return self.value <= other.value

    def __gt__(self, other: Single) -> bool:
        return self.value > other.value

    def __ge__(self, other: Single) -> bool:
        return self.value >= other.value

    def with_sign_of(self, other: Single) -> Single:
        """Return the number with the sign of another one."""
        return Single(self.code & 0x7FFFFFFF | other.code & 0x80000000)


def single(value: float) -> Single:
    """Return the number of FP32 nearest to a Python float."""
    code, _ = scalar.convert(_float64(value), FP32, _NEAREST)
    return Single(code)


def fma(a: Single, b: Single, c: Single) -> Single:
    """Return a * b + c, rounded once."""
    return _rounded(scalar.fma, a, b, c)


def sqrt(a: Single) -> Single:
    """Return the square root, rounded once."""
    return _rounded(scalar.sqrt, a)


def _float64(value: float) -> scalar.Number:
    return scalar.decode(struct.unpack("<Q", struct.pack("<d", value))[0], FP64)


def _rounded(operation: Callable[..., Any], *operands: Single) -> Single:
    code, _ = operation(*(scalar.decode(x.code, FP32) for x in operands), FP32, _NEAREST)
    result = Single(code)
    return Single(NAN_CODE) if result.is_nan else result
