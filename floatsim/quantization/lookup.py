"""Lookup formats: a code is an index into a table of numbers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from floatsim.emulator.elementwise.block_scales import LookUp

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BINARY", "BNB_FP4", "DYNAMIC8", "DYNAMIC8_UNSIGNED", "LOOKUP_FORMATS", "NF4", "LookupFormat"]


@dataclass(frozen=True, repr=False)
class LookupFormat:
    """A table of float32 numbers. A value is replaced by the nearest number of the table.

    Parameters
    ----------
    name : str
        The name of the format in messages.
    values : tuple of float
        The numbers by code. They are float32 numbers. Their largest magnitude is 1.
    order : tuple of int, optional
        The codes in ascending order of their numbers. Default: 0, 1, 2 ...
    thresholds : tuple of float, optional
        A value is assigned to order[n], where n is the number of thresholds below the value. They are float32 numbers
        in ascending order, one fewer than the numbers. Default: the midpoints, rounded to float32, ties to even. A
        value at a threshold is assigned to the smaller number.

    Raises
    ------
    ValueError
        If the thresholds or the order do not fit the numbers, or a number is no float32 number.

    Examples
    --------
    >>> import floatsim as fs
    >>> thirds = fs.quantization.LookupFormat("thirds", (-1.0, -0.25, 0.25, 1.0))
    >>> thirds.thresholds
    (-0.625, 0.0, 0.625)
    """

    name: str = field(compare=False)
    values: tuple[float, ...]
    order: tuple[int, ...] = ()
    thresholds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        values, n = self.values, len(self.values)
        if not 2 <= n <= 256 or max(abs(v) for v in values) != 1:
            raise ValueError(f"values must be 2 to 256 numbers with the largest magnitude 1, not {values}")
        if not self.order:
            object.__setattr__(self, "order", tuple(range(n)))
        if sorted(self.order) != list(range(n)):
            raise ValueError(f"order must have each code from 0 to {n - 1} once, not {self.order}")
        ascending = [values[code] for code in self.order]
        if not self.thresholds:
            middles = ((a + b) / 2 for a, b in itertools.pairwise(ascending))
            object.__setattr__(self, "thresholds", tuple(float(np.float32(m)) for m in middles))
        if len(self.thresholds) != n - 1:
            raise ValueError(f"thresholds must be {n - 1} numbers, not {len(self.thresholds)}")
        for what, numbers in (("values", ascending), ("thresholds", list(self.thresholds))):
            if numbers != sorted(numbers):
                raise ValueError(f"{what} must ascend (`order` lists the codes in the order of their values)")
            if any(float(np.float32(x)) != x for x in numbers):
                raise ValueError(f"{what} must be float32 numbers")

    @property
    def bits(self) -> int:
        """The smallest width of a code in bits."""
        return (len(self.values) - 1).bit_length()

    @property
    def code_dtype(self) -> np.dtype[np.uint8]:
        """The dtype of the codes: uint8."""
        return np.dtype(np.uint8)

    @property
    def largest(self) -> float:
        """The largest magnitude of the table, 1: a scale maps the largest magnitude of a block to it."""
        return 1.0

    @cached_property
    def table(self) -> NDArray[np.float32]:
        """The numbers by code."""
        table = np.array(self.values, np.float32)
        table.flags.writeable = False
        return table

    @cached_property
    def look_up(self) -> LookUp:
        """The assignment of numbers to codes."""
        return LookUp(np.array(self.thresholds, np.float32), np.array(self.order, self.code_dtype))

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)

    def __repr__(self) -> str:
        return f"LookupFormat {self.name} ({len(self.values)} numbers)"


NF4 = LookupFormat("NF4", (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
))  # fmt: skip
"""NormalFloat: 16 quantiles of the normal distribution (Dettmers et al., QLoRA, 2023), the numbers of bitsandbytes.

>>> import floatsim as fs
>>> fs.quantization.NF4.values[:3]
(-1.0, -0.6961928009986877, -0.5250730514526367)
"""

_FP4 = tuple(float(np.float32(x)) for x in (0, 0.0052083333, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25))
_FP4_ORDER = (0, 1, 6, 7, 4, 5, 2, 3)  # the codes of the magnitudes, ascending
_FP4_PIVOTS = tuple(
    float(np.float32(x)) for x in (0.00260417, 0.0859375, 0.20833333, 0.29166667, 0.4166667, 0.583333, 0.8333333)
)


def _below(x: float) -> float:
    """Return the largest float32 number below x."""
    return float(np.nextafter(np.float32(x), np.float32(-np.inf)))


BNB_FP4 = LookupFormat(
    "BNB_FP4",
    (*_FP4, *(-x for x in _FP4)),
    (*(code + 8 for code in reversed(_FP4_ORDER)), *_FP4_ORDER),
    (*(_below(-x) for x in reversed(_FP4_PIVOTS)), _below(0.0), *_FP4_PIVOTS),
)
"""The FP4 of bitsandbytes: a sign and the magnitudes 0, 1/192, 1/6, 1/4, 1/3, 1/2, 2/3 and 1, rounded to float32.

It is not E2M1, whose numbers divided by 6 have 1/12 in the place of 1/192. The thresholds of the magnitudes are the
decimals of bitsandbytes' `dQuantizeFP4`. A magnitude at a threshold is assigned to the smaller one. A negative value
that becomes zero is assigned to code 8.

>>> import floatsim as fs
>>> fs.quantization.BNB_FP4
LookupFormat BNB_FP4 (16 numbers)
"""

BINARY = LookupFormat("BINARY", (-1.0, 1.0), thresholds=(_below(0.0),))
"""-1 and 1: the sign of a value. Zero is assigned to 1 (Courbariaux et al., BinaryNet, 2016).

>>> import floatsim as fs
>>> fs.quantization.BINARY.values
(-1.0, 1.0)
"""


def _linspace(n: int) -> NDArray[np.float32]:
    """Return `torch.linspace(0.1, 1, n)` in FP32: half of the numbers from each end, by fused multiply-add.

    The sums are exact in float64, so that the conversion is the only rounding.
    """
    start, end, i = np.float32(0.1), np.float32(1), np.arange(n)
    step = np.float64((end - start) / np.float32(n - 1))
    return np.where(i < n // 2, start + step * i, end - step * (n - 1 - i)).astype(np.float32)


def _dynamic_map(signed: bool) -> tuple[float, ...]:
    """Return the numbers of bitsandbytes' dynamic map with 8 bits, ascending.

    For each of 7 decades, the midpoints of equal intervals from 0.1 to 1, times the decade. Each decade has twice the
    intervals of the decade below. Then 0 and 1.
    """
    numbers = [np.float32(0), np.float32(1)]
    for i in range(7):
        intervals = 2**i if signed else 2 ** (i + 1)
        ends = _linspace(intervals + 1)
        middles = np.float32(10.0 ** (i - 6)) * ((ends[:-1] + ends[1:]) / np.float32(2))
        numbers += [*middles, *(-middles if signed else [])]
    return tuple(sorted(float(number) for number in numbers))


DYNAMIC8 = LookupFormat("DYNAMIC8", _dynamic_map(True))
"""The signed dynamic map of bitsandbytes with 8 bits (Dettmers et al., 8-bit Optimizers, 2022).

>>> import floatsim as fs
>>> min(fs.quantization.DYNAMIC8.values), max(fs.quantization.DYNAMIC8.values)
(-0.992968738079071, 1.0)
"""
DYNAMIC8_UNSIGNED = LookupFormat("DYNAMIC8_UNSIGNED", _dynamic_map(False))
"""The dynamic map for numbers that are not negative.

>>> import floatsim as fs
>>> min(fs.quantization.DYNAMIC8_UNSIGNED.values), max(fs.quantization.DYNAMIC8_UNSIGNED.values)
(0.0, 1.0)
"""

LOOKUP_FORMATS = (NF4, BNB_FP4, BINARY, DYNAMIC8, DYNAMIC8_UNSIGNED)
