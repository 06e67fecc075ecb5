"""Likely explanations of mismatches between two arrays: the patterns that common bugs leave in the bits.

A pattern must hold for every mismatch that is examined. `PATTERNS` lists them, the most specific first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.arrays.comparison import isnan
from floatsim.arrays.float_array import FloatArray
from floatsim.arrays.ulps import ulp_distance

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PATTERNS", "explain_arrays"]

_EXAMINED = 4096  # mismatches
_FAR = 8  # units in the last place between 1 and a factor
_MOST = 0.99  # the share of results with a common factor: subnormal ones do not have it exactly
_ALONE = 256  # elements: another order would change more than one of them
_SEVERAL = 8  # mismatches with random signs agree by chance in 2 of 2**8 cases


@dataclass(frozen=True)
class Mismatches:
    """The mismatches of two arrays of one format: the first 4096, and the whole arrays."""

    actual: FloatArray
    desired: FloatArray
    differs: NDArray[np.bool_]

    @cached_property
    def places(self) -> tuple[NDArray[np.intp], ...]:
        """The indices of the examined mismatches."""
        chosen = np.flatnonzero(self.differs.ravel())[:_EXAMINED]
        return np.unravel_index(chosen, self.differs.shape)

    @cached_property
    def got(self) -> FloatArray:
        return FloatArray(self.actual.codes[self.places], self.actual.format)

    @cached_property
    def expected(self) -> FloatArray:
        return FloatArray(self.desired.codes[self.places], self.desired.format)

    @cached_property
    def values(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The values of both arrays at the mismatches."""
        return np.asarray(self.got.values), np.asarray(self.expected.values)

    @cached_property
    def ulps(self) -> NDArray[np.uint64]:
        return np.asarray(ulp_distance(self.got, self.expected, equal_nan=True))

    @property
    def several(self) -> bool:
        """Return whether there are enough mismatches for a pattern of signs."""
        return len(self.ulps) >= _SEVERAL


Pattern = Callable[[Mismatches], str | None]


def _zero_signs(x: Mismatches) -> str | None:
    return "only the signs of zeros differ" if (x.ulps == 0).all() and (x.values[0] == 0).all() else None


def _nan_bits(x: Mismatches) -> str | None:
    both = np.isnan(x.values[0]) & np.isnan(x.values[1])
    return "both are NaN, with other bits; equal_nan=True accepts this" if both.all() else None


def _flushed(x: Mismatches) -> str | None:
    got, expected = x.values
    tiny = (expected != 0) & (np.abs(expected) < x.desired.format.smallest_normal)
    return "subnormal results are flushed to zero (FTZ)" if (tiny & (got == 0)).all() else None


def _not_written(x: Mismatches) -> str | None:
    got, _ = x.values
    return "actual is 0 there: these elements were not written, or no product was added" if (got == 0).all() else None


def _saturation(x: Mismatches) -> str | None:
    got, expected = x.values
    largest = x.desired.format.max
    if ((np.abs(got) == largest) & ~np.isfinite(expected)).all():
        return "actual saturates to the largest finite number; desired overflows"
    if (~np.isfinite(got) & (np.abs(expected) == largest)).all():
        return "actual overflows; desired saturates to the largest finite number"
    return None


def _unwritten_nan(x: Mismatches) -> str | None:
    nan = np.asarray(isnan(x.got)) & np.isfinite(x.values[1])
    return "actual is NaN where desired is finite: memory without a value, or inf - inf" if nan.all() else None


def _signs(x: Mismatches) -> str | None:
    got, expected = x.values
    return "actual has the opposite sign" if ((got == -expected) & (expected != 0)).all() else None


def _one_bit(x: Mismatches) -> str | None:
    bits = x.got.codes.astype(np.uint64) ^ x.expected.codes.astype(np.uint64)
    if len(np.unique(bits)) != 1 or int(bits[0]).bit_count() != 1 or (x.ulps == 1).all():
        return None
    position, t = int(bits[0]).bit_length() - 1, x.desired.format.trailing_bits
    field = "trailing significand" if position < t else "sign" if position == x.desired.format.bits - 1 else "exponent"
    return f"bit {position} of the code is flipped ({field}): a memory or transfer error"


def _scaled(x: Mismatches) -> str | None:
    got, expected = x.values
    if not x.several or not (np.isfinite(got) & np.isfinite(expected) & (got != 0) & (expected != 0)).all():
        return None
    ratio = got / expected
    factor = float(np.median(ratio))
    exact = np.frexp(abs(factor))[0] == 0.5
    eps = x.desired.format.eps
    if abs(factor - 1) > _FAR * eps and np.mean(np.abs(ratio / factor - 1) <= eps) > _MOST:
        return f"actual is {factor:.6g} times desired" + (": a scale, or alpha, is applied wrongly" if exact else "")
    return None


_ROLLS = (1, -1, 4, -4, 8, -8, 16, -16, 32, -32)


def _moved(x: Mismatches) -> str | None:
    """Values of desired at another place: transposed, or moved along an axis."""
    if x.differs.ndim < 2 or len(x.ulps) < 2 or len(np.unique(x.got.codes)) < 2:
        return None
    codes = x.desired.codes
    if codes.shape[-1] == codes.shape[-2] and np.array_equal(np.swapaxes(codes, -1, -2)[x.places], x.got.codes):
        return "actual has the values of desired transposed"
    for axis, name in ((-2, "row"), (-1, "column")):
        for step in _ROLLS:
            if abs(step) < codes.shape[axis] and np.array_equal(np.roll(codes, step, axis)[x.places], x.got.codes):
                side = "lower" if step > 0 else "higher"
                return f"actual has the values of desired from the {name} with an index {abs(step)} {side}"
    return None


def _truncated(x: Mismatches) -> str | None:
    got, expected = x.values
    if not x.several or not (x.ulps == 1).all():
        return None
    words = {
        "toward zero: a truncation instead of rounding to nearest": np.abs(got) < np.abs(expected),
        "away from zero": np.abs(got) > np.abs(expected),
        "downward": got < expected,
        "upward": got > expected,
    }
    return next((f"every mismatch is 1 ulp {text}" for text, holds in words.items() if holds.all()), None)


def _small(x: Mismatches) -> str | None:
    if len(x.ulps) == 1 and x.ulps[0] == 1 and x.desired.codes.size >= _ALONE:
        return "the last bit of one element differs: a rounding, or a memory or transfer error"
    if x.ulps.max() == 1:
        return "all differences are 1 ulp: another order or width of the sums, or a second rounding"
    if x.ulps.max() <= 1 << 4 and x.several:
        return "all differences are a few ulps: another order or width of the sums"
    return None


PATTERNS: tuple[Pattern, ...] = (
    _zero_signs, _nan_bits, _flushed, _saturation, _unwritten_nan, _signs, _one_bit, _not_written, _moved, _scaled,
    _truncated, _small,
)  # fmt: skip


def explain_arrays(actual: FloatArray, desired: FloatArray, differs: NDArray[np.bool_]) -> str | None:
    """Return the first pattern that holds for the mismatches of two arrays, or None.

    >>> import floatsim as fs
    >>> x, y = fs.array([[1.0, 0.0]], "fp16"), fs.array([[1.0, 1e-6]], "fp16")
    >>> explain_arrays(x, y, x.codes != y.codes)
    'subnormal results are flushed to zero (FTZ)'
    """
    got, expected = (FloatArray(np.atleast_1d(x.codes), x.format) for x in (actual, desired))
    mismatches = Mismatches(got, expected, np.atleast_1d(differs))
    found: Any = (pattern(mismatches) for pattern in PATTERNS)
    return next((text for text in found if text is not None), None)
