"""Integer formats: the codes are the integers of a range."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from floatsim.formats import FP32, FP64, FloatFormat, Specials

__all__ = [
    "FIXED_POINT", "INT2", "INT3", "INT4", "INT5", "INT6", "INT7", "INT8", "INTEGER_FORMATS", "MXINT8", "TERNARY",
    "UINT2", "UINT3", "UINT4", "UINT5", "UINT6", "UINT7", "UINT8", "IntegerFormat", "integer_format_of",
]  # fmt: skip


@dataclass(frozen=True, repr=False)
class IntegerFormat:
    """The integers from `min` to `max`. A code is the integer itself, as int8, or as uint8 if no integer is negative.

    With `fraction_bits` the numbers are fixed-point numbers: a code stands for itself times 2**-fraction_bits.

    Parameters
    ----------
    name : str
        The name of the format in tables and messages.
    min, max : int
        The smallest and the largest integer: from -128 to 127 or from 0 to 255.
    fraction_bits : int
        The bits after the binary point, 0 to 16. The INT8 of OCP MX has 6.

    Raises
    ------
    ValueError
        If the range is empty or does not fit 8 bits.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.quantization.INT4.min, fs.quantization.INT4.max, fs.quantization.INT4.bits
    (-8, 7, 4)
    >>> fs.quantization.IntegerFormat("narrow INT8", -127, 127).bits
    8
    """

    name: str = field(compare=False)
    min: int
    max: int
    fraction_bits: int = 0

    def __post_init__(self) -> None:
        low, high = self.min, self.max
        if not (isinstance(low, int) and isinstance(high, int) and isinstance(self.name, str)):
            raise TypeError(f"an integer format is a name and two integers, not {self.name!r}, {low!r}, {high!r}")
        if not (isinstance(self.fraction_bits, int) and 0 <= self.fraction_bits <= 16):
            raise ValueError(f"fraction_bits must be an integer from 0 to 16, not {self.fraction_bits!r}")
        if not (low < high and high > 0 and ((low >= -128 and high <= 127) or (low >= 0 and high <= 255))):
            raise ValueError(
                f"min and max must be a range with positive numbers within -128 to 127 or 0 to 255, not {low} to {high}"
            )

    @property
    def bits(self) -> int:
        """The smallest width of a code in bits."""
        return (self.max - self.min).bit_length()

    @property
    def code_dtype(self) -> np.dtype[np.integer[Any]]:
        """int8, or uint8 if no integer is negative."""
        return np.dtype(np.int8 if self.min < 0 else np.uint8)

    @property
    def largest(self) -> float:
        """The largest number: a symmetric scale maps the largest magnitude of a block to it."""
        return self.max * 2.0**-self.fraction_bits

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)

    def __repr__(self) -> str:
        fraction = f", times 2**-{self.fraction_bits}" if self.fraction_bits else ""
        return f"IntegerFormat {self.name} ({self.min} to {self.max}{fraction})"


INT2 = IntegerFormat("INT2", -2, 1)
"""Signed integers of 2 bits: -2 to 1.

>>> import floatsim as fs
>>> fs.quantization.INT2.min, fs.quantization.INT2.max
(-2, 1)
"""
INT3 = IntegerFormat("INT3", -4, 3)
"""Signed integers of 3 bits: -4 to 3.

>>> import floatsim as fs
>>> fs.quantization.INT3.min, fs.quantization.INT3.max
(-4, 3)
"""
INT4 = IntegerFormat("INT4", -8, 7)
"""Signed integers of 4 bits: -8 to 7.

>>> import floatsim as fs
>>> fs.quantization.INT4.min, fs.quantization.INT4.max
(-8, 7)
"""
INT5 = IntegerFormat("INT5", -16, 15)
"""Signed integers of 5 bits: -16 to 15.

>>> import floatsim as fs
>>> fs.quantization.INT5.min, fs.quantization.INT5.max
(-16, 15)
"""
INT6 = IntegerFormat("INT6", -32, 31)
"""Signed integers of 6 bits: -32 to 31.

>>> import floatsim as fs
>>> fs.quantization.INT6.min, fs.quantization.INT6.max
(-32, 31)
"""
INT7 = IntegerFormat("INT7", -64, 63)
"""Signed integers of 7 bits: -64 to 63.

>>> import floatsim as fs
>>> fs.quantization.INT7.min, fs.quantization.INT7.max
(-64, 63)
"""
INT8 = IntegerFormat("INT8", -128, 127)
"""Signed integers of 8 bits: -128 to 127.

>>> import floatsim as fs
>>> fs.quantization.INT8.min, fs.quantization.INT8.max
(-128, 127)
"""
UINT2 = IntegerFormat("UINT2", 0, 3)
"""Unsigned integers of 2 bits: 0 to 3.

>>> import floatsim as fs
>>> fs.quantization.UINT2.min, fs.quantization.UINT2.max
(0, 3)
"""
UINT3 = IntegerFormat("UINT3", 0, 7)
"""Unsigned integers of 3 bits: 0 to 7.

>>> import floatsim as fs
>>> fs.quantization.UINT3.min, fs.quantization.UINT3.max
(0, 7)
"""
UINT4 = IntegerFormat("UINT4", 0, 15)
"""Unsigned integers of 4 bits: 0 to 15.

>>> import floatsim as fs
>>> fs.quantization.UINT4.min, fs.quantization.UINT4.max
(0, 15)
"""
UINT5 = IntegerFormat("UINT5", 0, 31)
"""Unsigned integers of 5 bits: 0 to 31.

>>> import floatsim as fs
>>> fs.quantization.UINT5.min, fs.quantization.UINT5.max
(0, 31)
"""
UINT6 = IntegerFormat("UINT6", 0, 63)
"""Unsigned integers of 6 bits: 0 to 63.

>>> import floatsim as fs
>>> fs.quantization.UINT6.min, fs.quantization.UINT6.max
(0, 63)
"""
UINT7 = IntegerFormat("UINT7", 0, 127)
"""Unsigned integers of 7 bits: 0 to 127.

>>> import floatsim as fs
>>> fs.quantization.UINT7.min, fs.quantization.UINT7.max
(0, 127)
"""
UINT8 = IntegerFormat("UINT8", 0, 255)
"""Unsigned integers of 8 bits: 0 to 255.

>>> import floatsim as fs
>>> fs.quantization.UINT8.min, fs.quantization.UINT8.max
(0, 255)
"""
TERNARY = IntegerFormat("TERNARY", -1, 1)
"""-1, 0 and 1.

>>> import floatsim as fs
>>> fs.quantization.TERNARY
IntegerFormat TERNARY (-1 to 1)
"""

MXINT8 = IntegerFormat("MXINT8", -128, 127, 6)
"""The INT8 of OCP MX 1.0: two's complement with the implied scale 2**-6, -2 to 127/64.

>>> import floatsim as fs
>>> fs.quantization.MXINT8, fs.quantization.MXINT8.largest
(IntegerFormat MXINT8 (-128 to 127, times 2**-6), 1.984375)
"""

INTEGER_FORMATS = (
    INT2, INT3, INT4, INT5, INT6, INT7, INT8, UINT2, UINT3, UINT4, UINT5, UINT6, UINT7, UINT8, TERNARY, MXINT8,
)  # fmt: skip

_OF_DTYPES = {fmt.name.lower(): fmt for fmt in (INT2, INT4, INT8, UINT2, UINT4, UINT8)}


def integer_format_of(dtype: Any) -> IntegerFormat | None:
    """Return the format whose codes are the integers of a dtype of NumPy or ml_dtypes, or None.

    >>> import ml_dtypes
    >>> integer_format_of(ml_dtypes.int4), integer_format_of(np.dtype(np.uint8)), integer_format_of(np.float16)
    (IntegerFormat INT4 (-8 to 7), IntegerFormat UINT8 (0 to 255), None)
    """
    if not isinstance(dtype, np.dtype | type):
        return None
    try:
        name = np.dtype(dtype).name
    except TypeError:
        return None
    return _OF_DTYPES.get(name)


_TRAILING = 9
FIXED_POINT = FloatFormat("integers to 1023", 1, _TRAILING, Specials.FINITE, 1 - _TRAILING)
"""A format whose numbers are the integers from -1023 to 1023. To round to it is to round to an integer.

No code of an integer format is more than 255 away from another one, and zero points are codes. So a number beyond 1023
is clamped after the zero point is added, as any larger one would be.
"""
assert FIXED_POINT.smallest_subnormal == 1
assert FIXED_POINT.precision < FP32.precision < FP64.precision
