"""CUDA's mathematical functions on arrays of codes: `floatsim.tensorcore.cuda_functions` has the sequences.

FP32 runs a sequence on pieces of the array that stay in the processor's caches. In 16 bits, the results of all codes
are computed in FP32, rounded once, and kept in a table.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim._types import Codes
from floatsim.accumulation.library_rules import NotDescribedError
from floatsim.emulator.elementwise.approximations import approximate
from floatsim.emulator.elementwise.execute import convert, elementwise
from floatsim.formats import BF16, FP16, FP32, FloatFormat
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes
from floatsim.tensorcore.cuda_functions import CUDA_FUNCTIONS, as_cuda_function

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["cuda_function"]

_OPTIONS = CallOptions(RoundingAttributes())
_NAN = {FP32: 0x7FFFFFFF, FP16: 0x7FFF, BF16: 0x7FFF}
_PIECE = 1 << 13
"""Elements that a sequence computes at a time: its numbers take 32 kB each."""


def _of(name: str, *operands: _Singles) -> _Singles:
    codes, _ = elementwise(name, [(x.codes, FP32) for x in operands], FP32, _OPTIONS, False)
    return _Singles(codes)


@dataclass(frozen=True, eq=False)
class _Singles:
    """An array of FP32 numbers, by their codes. The arithmetic is that of the emulator, ties to even."""

    codes: Codes

    @property
    def values(self) -> NDArray[np.float32]:
        return self.codes.view(np.float32)

    def __add__(self, other: _Singles) -> _Singles:
        return _of("add", self, other)

    def __sub__(self, other: _Singles) -> _Singles:
        return _of("subtract", self, other)

    def __mul__(self, other: _Singles) -> _Singles:
        return _of("multiply", self, other)

    def __truediv__(self, other: _Singles) -> _Singles:
        return _of("divide", self, other)

    def __neg__(self) -> _Singles:
        return _Singles(self.codes ^ np.uint32(0x80000000))

    def __abs__(self) -> _Singles:
        return _Singles(self.codes & np.uint32(0x7FFFFFFF))

    def __lt__(self, other: _Singles) -> Any:
        return self.values < other.values

    def __le__(self, other: _Singles) -> Any:
        return self.values <= other.values

    def __gt__(self, other: _Singles) -> Any:
        return self.values > other.values

    def __ge__(self, other: _Singles) -> Any:
        return self.values >= other.values
