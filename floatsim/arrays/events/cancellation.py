"""Cancellation: how many leading bits of the largest operand an addition, a subtraction or an fma removes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from floatsim.arrays.call import backends
from floatsim.formats import FloatFormat
from floatsim.formats.rounding import INEXACT, OVERFLOW

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["CANCELLING", "Cancelled", "cancelled"]

CANCELLING = ("add", "subtract", "fma")
"""The operations that have a cancellation."""

_ZERO = -(1 << 20)  # the exponent of zero here: below the exponent of every number


class Cancelled(NamedTuple):
    """The number of results by the bits that cancelled, and the number of exact zeros, which are not among them."""

    bits: NDArray[np.int64]
    exact_zeros: int


def cancelled(
    operation: str,
    events: NDArray[np.uint8],
    operands: Sequence[tuple[NDArray[Any], FloatFormat]],
    result: tuple[NDArray[Any], FloatFormat],
    daz: bool,
) -> Cancelled:
    """Count the cancellations of an operation.

    The exponent of x is floor(log2(abs(x))). The bits that cancel are the largest exponent of an operand minus the
    exponent of the rounded result, or 0 if that is negative. The operands of an fma are the exact product and c.
    Results of infinities and NaNs, results that overflowed, and zeros are not among them. An exact zero is a zero
    without INEXACT whose operands are not all zero.
    """
    import numpy as np

    shape, events = events.shape, events.reshape(-1)
    values = [_values(codes, fmt, shape, daz) for codes, fmt in operands]
    rounded = _values(*result, shape, False)
    finite = np.isfinite(rounded)
    for x in values:
        finite = finite & np.isfinite(x)
    split = [np.frexp(np.where(np.isfinite(x), x, 0.0)) for x in values]
    exponents = [_exponents(fraction, power) for fraction, power in split]
    if operation == "fma":
        exponents = [_product_exponents(*split[:2]), exponents[2]]
    largest = np.maximum(*exponents)
    zeros = finite & (rounded == 0) & (events & INEXACT == 0) & (largest > _ZERO)
    counted = finite & (rounded != 0) & (events & OVERFLOW == 0)
    lost = np.maximum(largest - _exponents(*np.frexp(np.where(counted, rounded, 1.0))), 0)
    return Cancelled(np.bincount(lost[counted], minlength=1), int(np.count_nonzero(zeros)))


def _values(codes: NDArray[Any], fmt: FloatFormat, shape: tuple[int, ...], daz: bool) -> NDArray[np.float64]:
    """Return the values that the operation reads, in one dimension."""
    import numpy as np

    values: NDArray[np.float64] = backends.emulator().decode(np.broadcast_to(codes, shape).reshape(-1), fmt)
    return np.where(np.abs(values) < fmt.smallest_normal, 0.0, values) if daz else values


def _exponents(fraction: NDArray[np.float64], power: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the exponents of the numbers fraction * 2**power, 1/2 <= |fraction| < 1; those of zeros are `_ZERO`."""
    import numpy as np

    return np.where(fraction == 0, _ZERO, power.astype(np.int64) - 1)


def _product_exponents(
    a: tuple[NDArray[np.float64], NDArray[np.int32]], b: tuple[NDArray[np.float64], NDArray[np.int32]]
) -> NDArray[np.int64]:
    """Return the exponents of the exact products of numbers that `frexp` has split."""
    import numpy as np

    x, y = np.abs(a[0]), np.abs(b[0])
    product = x * y  # from 1/4 to below 1, rounded: 1/2 may stand for an exact product just below 1/2
    # x * y - 1/2 is at most 2**-55 in magnitude there, and in units of 2**-106 it is the wrapped product of integers
    difference = np.ldexp(x, 53).astype(np.int64) * np.ldexp(y, 53).astype(np.int64)
    half = (product > 0.5) | ((product == 0.5) & (difference >= 0))
    power = a[1].astype(np.int64) + b[1].astype(np.int64) - np.where(half, 1, 2)
    return np.where(product == 0, _ZERO, power)
