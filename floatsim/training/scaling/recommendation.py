"""Which of FP16 and BF16 for the gradients of a run: a recommendation with its reasons."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from floatsim.analysis.exponent_histogram import ExponentHistogram, exponent_histogram
from floatsim.formats import BF16, FP16, FloatFormat
from floatsim.formats._validation import as_index, as_real

__all__ = ["Recommendation", "recommend_format"]


@dataclass(frozen=True)
class Recommendation:
    """A format for a tensor, and why.

    Attributes
    ----------
    format : FloatFormat
        FP16 or BF16.
    loss_scale : float
        The loss scale that the format needs: a power of two, 1 without scaling.
    flushed, overflowed, subnormal : float
        The shares of the non-zero values in this format, with this loss scale.
    reasons : tuple of str
        The steps of the decision.
    """

    format: FloatFormat
    loss_scale: float
    flushed: float
    overflowed: float
    subnormal: float
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        scale = f" with a loss scale of 2^{math.log2(self.loss_scale):.0f}" if self.loss_scale != 1 else ""
        return "\n".join([f"{self.format.name}{scale}", *(f"- {reason}" for reason in self.reasons)])


def _shares(histogram: ExponentHistogram, fmt: FloatFormat, shift: int) -> tuple[float, float, float]:
    """Return the shares that a format flushes, overflows and makes subnormal, of the values times 2**shift.

    Bins are whole: a bin below half the least subnormal number is flushed, a bin above the largest exponent overflows.
    """
    exponents, numbers = histogram.exponents + shift, histogram.numbers
    flushed = exponents < fmt.emin - fmt.trailing_bits - 1
    kinds = flushed, exponents > fmt.emax, (exponents < fmt.emin) & ~flushed
    return tuple(float(numbers[kind].sum() / numbers.sum()) for kind in kinds)  # type: ignore[return-value]


def recommend_format(
    x: Any, *, limit: float = 1e-3, headroom: int = 2
) -> Recommendation:  # fmt: skip
    """Recommend FP16 or BF16 for gradients, by their exponents.

    Parameters
    ----------
    x : array_like or ExponentHistogram
        The gradients without a loss scale, or the result of `fs.exponent_histogram`. Zeros, infinities and NaNs are
        excluded.
    limit : float
        The largest share of values that may be flushed to zero.
    headroom : int
        The number of powers of two between the largest value and the largest number of FP16, because gradients change
        in a run.

    Returns
    -------
    Recommendation

    Raises
    ------
    ValueError
        If x has no finite non-zero value, and for a limit that is not from 0 to 1.

    Notes
    -----
    1. FP16 without a loss scale, if it flushes at most `limit` of the values and has the headroom.
    2. FP16 with the largest loss scale that leaves the headroom, if it flushes at most `limit`. This is the rule
       S <= 65504 / max|g| of Micikevicius et al. (Mixed Precision Training, 2018, section 3.2), with headroom.
    3. BF16, which has the exponents of FP32 and 3 bits of precision less.

    Values are counted by powers of two.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> print(fs.training.recommend_format([1e-9, 1e-7, 1e-5]))
    FP16 with a loss scale of 2^30
    - without a loss scale, FP16 flushes 33 % of the values: more than 0.1 %
    - with 2^30, FP16 flushes 0 % and overflows 0 %; the largest value keeps 2 powers of two of headroom
    - FP16 has 11 bits of precision, BF16 has 8
    >>> fs.training.recommend_format(np.exp2(np.random.default_rng(0).normal(-24, 6, 10_000))).format.name
    'BF16'
    """
    if as_real(limit, "limit", 0.0) > 1:
        raise ValueError(f"limit must be from 0 to 1, not {limit!r}")
    room = as_index(headroom, "headroom", 0, 30)
    histogram = x if isinstance(x, ExponentHistogram) else exponent_histogram(x, "fp16")
    largest = int(histogram.exponents[np.flatnonzero(histogram.numbers)[-1]])
    best = FP16.emax - room - largest
    reasons = []
    for shift in (0, best):
        flushed, overflowed, subnormal = _shares(histogram, FP16, shift)
        fits = shift <= best
        words = f"with 2^{shift}" if shift else "without a loss scale"
        if fits and flushed <= limit:
            reasons.append(f"{words}, FP16 flushes {_percent(flushed)} and overflows {_percent(overflowed)}; the "
                           f"largest value keeps {best - shift + room} powers of two of headroom")  # fmt: skip
            reasons.append("FP16 has 11 bits of precision, BF16 has 8")
            return Recommendation(FP16, 2.0**shift, flushed, overflowed, subnormal, tuple(reasons))
        why = f"flushes {_percent(flushed)} of the values: more than {_percent(limit)}" if fits else \
            f"has less than {room} powers of two of headroom, and overflows {_percent(overflowed)}"  # fmt: skip
        reasons.append(f"{words}, FP16 {why}")
    flushed, overflowed, subnormal = _shares(histogram, BF16, 0)
    reasons.append(f"BF16 flushes {_percent(flushed)} and overflows {_percent(overflowed)}, without a loss scale")
    return Recommendation(BF16, 1.0, flushed, overflowed, subnormal, tuple(reasons))


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
