"""Likely explanations of mismatches between two arrays: the patterns that common bugs leave in the bits.

A pattern must hold for every mismatch that is examined. `PATTERNS` lists them, the most specific first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.comparison import isnan
from floatsim.arrays.elementwise.ulps import ulp_distance

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["OF_STORAGE", "PATTERNS", "explain_arrays"]

_EXAMINED = 4096  # mismatches
_FAR = 8  # units in the last place between 1 and a factor
_MOST = 0.99  # the share of results with a common factor: subnormal ones do not have it exactly
_ALONE = 256  # elements: another order would change more than one of them
_TRUNCATED = 1 / 16  # the least share of a truncation, which changes half of the inexact results
_SEVERAL = 8  # mismatches with random signs agree by chance in 2 of 2**8 cases


@dataclass(frozen=True)
class Mismatches:
    """The mismatches of two arrays of one format: the first 4096, and the whole arrays.

    `roundings` is the text of a report about small differences: which functions find their cause.
    """

    actual: FloatArray
    desired: FloatArray
    differs: NDArray[np.bool_]
    roundings: str

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
    # numbers that round up to the smallest normal number are tiny before the rounding
    tiny = (expected != 0) & (np.abs(expected) <= x.desired.format.smallest_normal)
    return "subnormal results are flushed to zero (FTZ)" if (tiny & (got == 0)).all() else None


def _narrow_range(x: Mismatches) -> str | None:
    """All numbers below or above a threshold are wrong: the range of a format on the way is narrower.

    Other mismatches are 1 ulp, or as small as the smallest number of that format.
    """
    got, expected = x.values
    matching = np.abs(np.asarray(x.desired.values)[~x.differs])
    matching = matching[np.isfinite(matching) & (matching != 0)]
    numbers = np.isfinite(expected) & (expected != 0)
    if not x.several or not numbers.all() or not matching.size:
        return None
    magnitudes, near = np.abs(expected), x.ulps <= 1
    low, high = got == 0, ~np.isfinite(got) | ((np.abs(got) == x.desired.format.max) & ~near)
    text = "numbers {} in actual, and no {} ones: {}a conversion through a format with a narrower range"
    if low.any():
        quantum = magnitudes[low].max()
        if quantum < matching.min() and (near | (np.abs(got - expected) <= 2 * quantum)).all():
            return text.format(f"up to {quantum:.6g} are 0", "larger", "FTZ, or ")
    elif high.any():
        least = magnitudes[high].min()
        if least > matching.max() and (near | high).all():
            return text.format(f"from {least:.6g} up overflow", "smaller", "")
    return None


def _special_rule(x: Mismatches) -> str | None:
    """NaN, or infinity, is converted to one other value."""
    got, expected = x.values
    magnitudes = x.got.codes & x.got.codes.dtype.type(x.got.format.magnitude_mask)
    if len(np.unique(magnitudes)) != 1:
        return None
    for name, holds in (("NaN", np.isnan(expected)), ("infinity", np.isinf(expected))):
        if holds.all():
            return f"desired is {name}, actual {abs(got[0]):.6g}: another rule for {name}"
    return None


def _carry(x: Mismatches) -> str | None:
    fmt = x.desired.format
    trailing = x.desired.codes.dtype.type((1 << fmt.trailing_bits) - 1)
    if not x.several or not fmt.trailing_bits or (x.expected.codes & trailing).any():
        return None
    halved = x.got.codes.astype(np.uint64) + np.uint64(1 << fmt.trailing_bits) == x.expected.codes
    others = x.desired.codes[~x.differs]
    if not halved.all() or not np.isfinite(x.values[1]).all() or not (others & trailing).any():
        return None
    return (
        "the significand of desired is 1 in every mismatch, and actual is half of it: the carry of the rounding into "
        "the exponent is dropped"
    )


def _not_written(x: Mismatches) -> str | None:
    got, expected = x.values
    if not (got == 0).all():
        return None
    if x.several and (expected < 0).all() and not (np.asarray(x.actual.values) < 0).any():
        return "actual is 0 where desired is negative: an activation such as relu, or an unsigned format"
    return "actual is 0 there: these elements were not written, or no product was added"


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
    usable = np.isfinite(got) & np.isfinite(expected) & (got != 0) & (expected != 0)
    if not x.several or np.mean(usable) <= _MOST:
        return None
    ratio = got[usable] / expected[usable]
    factor = float(np.median(ratio))
    exact = np.frexp(abs(factor))[0] == 0.5
    eps = x.desired.format.eps
    far = abs(factor - 1) > _FAR * eps or (exact and factor != 1)
    if far and np.count_nonzero(np.abs(ratio / factor - 1) <= eps) > _MOST * len(got):
        return f"actual is {factor:.6g} times desired" + (
            ": a scale, alpha, or an exponent bias is wrong" if exact else ""
        )
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
    text = next((text for text, holds in words.items() if holds.all()), None)
    if text is None:
        return None
    share = int(np.count_nonzero(x.differs)) / max(int(np.count_nonzero(x.desired.values)), 1)
    if share >= _TRUNCATED:
        return f"every mismatch is 1 ulp {text}"
    return (
        f"every mismatch is 1 ulp {text.partition(':')[0]}, but only {100 * share:.2g} % of the numbers differ: "
        "another rule for ties, or a second rounding, through another format"
    )


def _small(x: Mismatches) -> str | None:
    if len(x.ulps) == 1 and x.ulps[0] == 1 and x.desired.codes.size >= _ALONE:
        return "the last bit of one element differs: a rounding, or a memory or transfer error"
    if x.ulps.max() == 1:
        return f"all differences are 1 ulp: {x.roundings}"
    if x.ulps.max() <= 1 << 4 and x.several:
        return f"all differences are a few ulps: {x.roundings}"
    return None


_ROUNDINGS = (
    "other roundings of a conversion, or another order or width of the sums; fs.testing.compare_conversion and "
    "compare_product find the cause from the operands"
)


PATTERNS: tuple[Pattern, ...] = (
    _zero_signs, _nan_bits, _flushed, _saturation, _special_rule, _unwritten_nan, _signs, _carry, _one_bit,
    _narrow_range, _not_written, _moved, _scaled, _truncated, _small,
)  # fmt: skip
OF_STORAGE: tuple[Pattern, ...] = (_zero_signs, _nan_bits, _unwritten_nan, _one_bit, _moved)
"""The patterns of results that no rounding explains."""


def explain_arrays(
    actual: FloatArray, desired: FloatArray, differs: NDArray[np.bool_], patterns: Sequence[Pattern] = PATTERNS,
    roundings: str = _ROUNDINGS,
) -> str | None:  # fmt: skip
    """Return the first pattern that holds for the mismatches of two arrays, or None.

    >>> import floatsim as fs
    >>> x, y = fs.array([[1.0, 0.0]], "fp16"), fs.array([[1.0, 1e-6]], "fp16")
    >>> explain_arrays(x, y, x.codes != y.codes)
    'subnormal results are flushed to zero (FTZ)'
    """
    got, expected = (FloatArray(np.atleast_1d(x.codes), x.format) for x in (actual, desired))
    mismatches = Mismatches(got, expected, np.atleast_1d(differs), roundings)
    found: Any = (pattern(mismatches) for pattern in patterns)
    return next((text for text in found if text is not None), None)
