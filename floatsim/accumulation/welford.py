"""The description of a mean and a sum of squared differences in one pass, by Welford's algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from floatsim.accumulation.base import Accumulation
from floatsim.accumulation.composites import Blocked, _member
from floatsim.accumulation.leaves import Pairwise, Sequential
from floatsim.accumulation.text import AccumulationLike, as_accumulation
from floatsim.accumulation.threads import Threads
from floatsim.formats import FloatFormat
from floatsim.formats._hashing import hashed_once

__all__ = ["Welford"]

_STEPS = ("division", "reciprocal")


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class Welford(Accumulation):
    """The mean m and the sum q of squared differences from it, in one pass: in accumulators, which are then combined.

    An accumulator starts as m = q = n = 0. For each of its terms x, with one rounding for each operation and fma(a, b,
    c) = a * b + c:

    - "division": n = n + 1; d = x - m; m = m + d / n; q = fma(d, x - m, q), with the new m. Two accumulators a and b:
      n = na + nb; d = mb - ma; f = nb / n; m = fma(d, f, ma); q = fma(d * d * na, f, qa + qb). One without terms gives
      the other. So ATen's reductions compute (aten/src/ATen/native/SharedReduceOps.h, WelfordOps).
    - "reciprocal": n = n + 1; d = x - m; m = fma(d, 1 / n, m); q = fma(d, x - m, q). Two accumulators a and b: n = na +
      nb; c = 1 / n; fa = na * c; fb = nb * c; d = mb - ma; m = fma(fb, mb, ma * fa); q = fma(d * d * nb, fa, qb + qa).
      So PyTorch's LayerNorm kernel for vectors computes.

    Products of three factors are formed from left to right. B. P. Welford, "Note on a method for calculating corrected
    sums of squares and products", Technometrics 4(3), 1962; T. F. Chan, G. H. Golub and R. J. LeVeque, "Algorithms for
    computing the sample variance", The American Statistician 37(3), 1983, for the combination.

    Parameters
    ----------
    order : Threads, Sequential or Pairwise, or text
        Which accumulator gets which terms, and the order in which accumulators are combined: the additions of the
        description, with the earlier operand as a. With Pairwise each term has its own accumulator. Its format is that
        of every operation.
    steps : str
        "division" or "reciprocal".

    Raises
    ------
    TypeError
        If `order` is another description, or its parts are others than Sequential, Pairwise, Blocked and Threads.
    ValueError
        If `steps` or a text is unknown.

    Examples
    --------
    >>> import floatsim as fs
    >>> order = fs.Welford("threads(fp32, 2, fp32)")
    >>> print(order)
    welford(threads(sequential(fp32), 2, sequential(fp32)))
    >>> fs.var(fs.array([1.0, 2.0, 4.0], "fp16"), ddof=1, accumulate=order)
    FloatArray(2.33333325, FP32)
    """

    text_form = "welford(order) or welford(order, reciprocal)"
    text_words: ClassVar = {steps: {"steps": steps} for steps in _STEPS}

    order: Accumulation
    steps: str = "division"

    def __init__(self, order: AccumulationLike, steps: str = "division") -> None:
        description = as_accumulation(order, "order")
        if isinstance(description, Blocked) or not _combines(description):
            raise TypeError(
                f"order must be a Threads, Sequential or Pairwise, and its parts these or a Blocked, not {description}"
            )
        object.__setattr__(self, "order", description)
        object.__setattr__(self, "steps", _member(steps, "steps", _STEPS))

    @property
    def format(self) -> FloatFormat:
        """The format of every operation."""
        return self.order.result_format

    @property
    def result_format(self) -> FloatFormat:
        return self.order.result_format

    def with_children(self, change: Callable[[Accumulation], Accumulation]) -> Accumulation:
        return self

    @classmethod
    def is_word(cls, text: str) -> bool:
        return False

    def _texts(self, show: Any) -> list[str]:
        texts = [show(self.order)]
        if self.steps != "division":
            texts.append(f"steps={self.steps!r}" if show is repr else self.steps)
        return texts


def _combines(order: Accumulation) -> bool:
    """Return whether a description is made of additions in order and along trees."""
    if isinstance(order, Threads | Blocked):
        return _combines(order.inner) and _combines(order.outer)
    return isinstance(order, Sequential | Pairwise)
