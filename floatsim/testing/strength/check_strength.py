"""The strength of a check: which bugs it catches, and whether it accepts a correct result."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from floatsim.accumulation import AccumulationLike
from floatsim.arrays.array.float_array import FloatArray, wrap
from floatsim.formats import FP64, FormatLike
from floatsim.testing.compare.descriptions import brief
from floatsim.testing.compare.product import product_of
from floatsim.testing.strength.mutations import MUTATIONS, Mutation

__all__ = ["CheckStrength", "strength"]

Check = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class CheckStrength:
    """What a check catches. Prints as a table.

    Attributes
    ----------
    description : str
        The sums of the product.
    caught, missed : tuple of str
        The mutations that the check rejects, and those that it accepts.
    unchanged : tuple of str
        The mutations that change no bit on these inputs. They say nothing about the check.
    rejects_correct : bool
        Whether the check rejects the correct result.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> a, b = fs.testing.hard_inputs((16, 32, 16), "bf16", "normal")
    >>> bugs = fs.testing.MUTATIONS[:1]
    >>> found = fs.testing.strength(lambda x, y: np.isfinite(np.float32(x)).all(), a, b, mutations=bugs)
    >>> found.caught, found.missed
    ((), ('the output is zero',))
    """

    description: str
    caught: tuple[str, ...]
    missed: tuple[str, ...]
    unchanged: tuple[str, ...]
    rejects_correct: bool

    @property
    def share(self) -> float:
        """The share of the mutations with other bits that the check catches; 1 if there is none."""
        count = len(self.caught) + len(self.missed)
        return len(self.caught) / count if count else 1.0

    def __str__(self) -> str:
        count = len(self.caught) + len(self.missed)
        lines = [f"{len(self.caught)} of {count} bugs caught, in products with {self.description}"]
        if self.rejects_correct:
            lines.append("THE CORRECT RESULT IS REJECTED")
        for title, names in (("caught", self.caught), ("missed", self.missed), ("no bit changes", self.unchanged)):
            lines += [f"  {title:<15}{name}" for name in names]
        return "\n".join(lines)

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Return the lists in JSON types."""
        return {
            "description": self.description, "caught": list(self.caught), "missed": list(self.missed),
            "unchanged": list(self.unchanged), "rejects_correct": self.rejects_correct, "share": self.share,
        }  # fmt: skip

    def to_json(self) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2)


def strength(
    check: Check, a: Any, b: Any, c: Any = None, *, accumulate: AccumulationLike = "fp32",
    format: FormatLike | None = None, reference: Any = None, mutations: Sequence[Mutation] = MUTATIONS, **options: Any,
) -> CheckStrength:  # fmt: skip
    """Return which bugs of a matrix product a check catches.

    Parameters
    ----------
    check : callable
        Called as check(actual, reference) with arrays. It rejects by an AssertionError, or by returning False.
    a, b : array_like of floats, (..., M, K) and (..., K, N)
        The operands, as the test has them.
    c : array_like of floats, optional
        The accumulator at the start.
    accumulate : accumulation or text
        The sums of the correct kernel.
    format : format, optional
        The format of the result. Default: the accumulator's.
    reference : array_like, optional
        The second argument of the check. "exact": the exact product, rounded to FP64. Default: the correct result.
    mutations : sequence of Mutation
        The bugs to try.
    **options
        Other keywords of `fs.matmul`.

    Returns
    -------
    CheckStrength

    Examples
    --------
    A tolerance of 10 % does not catch an accumulator in FP16.

    >>> import numpy as np
    >>> import floatsim as fs
    >>> a, b = fs.testing.hard_inputs((64, 256, 64), "bf16", "normal")
    >>> found = strength(lambda x, y: np.allclose(x, y, rtol=0.1, atol=0.1), a, b)
    >>> "the accumulator is FP16" in found.missed, "the output is zero" in found.caught
    (True, True)
    """
    if not callable(check):
        raise TypeError(f"check must be a function of the result and the reference, not {check!r}")
    product = product_of(a, b, c, accumulate, format, options)
    correct = product.result()
    desired: Any = correct if reference is None else reference
    if isinstance(reference, str):
        if reference != "exact":
            raise ValueError(f"reference must be 'exact' or an array, not {reference!r}")
        desired = product.result("exact(fp64)", FP64)
    second = wrap(desired.codes, desired.format, False) if isinstance(desired, FloatArray) else desired

    def accepts(x: FloatArray) -> bool:
        try:
            verdict = check(wrap(x.codes.copy(), x.format, False), second)
        except AssertionError:
            return False
        return verdict is None or not _is_false(verdict)

    caught: list[str] = []
    missed: list[str] = []
    unchanged: list[str] = []
    for mutation in mutations:
        wrong = mutation.apply(product, correct)
        if wrong is None:
            continue
        if np.array_equal(wrong.codes, correct.codes):
            unchanged.append(mutation.name)
        else:
            (missed if accepts(wrong) else caught).append(mutation.name)
    return CheckStrength(
        brief(product.accumulate), tuple(caught), tuple(missed), tuple(unchanged), not accepts(correct)
    )


def _is_false(verdict: Any) -> bool:
    """Return whether a check returned False: Python's or NumPy's bool, or a report that did not pass."""
    return not getattr(verdict, "passed", verdict)
