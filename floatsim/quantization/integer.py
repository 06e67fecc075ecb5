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


INT2, INT3, INT4, INT5, INT6, INT7, INT8 = (
    IntegerFormat(f"INT{bits}", -(1 << bits - 1), (1 << bits - 1) - 1) for bits in range(2, 9)
)
UINT2, UINT3, UINT4, UINT5, UINT6, UINT7, UINT8 = (
    IntegerFormat(f"UINT{bits}", 0, (1 << bits) - 1) for bits in range(2, 9)
)
TERNARY = IntegerFormat("TERNARY", -1, 1)
"""-1, 0 and 1."""

MXINT8 = IntegerFormat("MXINT8", -128, 127, 6)
"""The INT8 of OCP MX 1.0: two's complement with the implied scale 2**-6, -2 to 127/64."""

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
