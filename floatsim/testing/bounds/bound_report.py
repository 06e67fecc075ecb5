"""Comparison of a result with an a priori error bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim.arrays.array.conversion import as_float_array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.testing.bounds.bounds import ErrorBound
from floatsim.testing.compare.location import Place, locate

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BoundReport", "check_bound"]

_SHOWN = 5


@dataclass(frozen=True)
class BoundReport:
    """The errors of a result, compared with a bound. Prints as text.

    Attributes
    ----------
    actual : FloatArray
        The result.
    bound : ErrorBound
        The bound and the exact result.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> a, b = fs.array(np.ones((2, 8)), "bf16"), fs.array(np.ones((8, 2)), "bf16")
    >>> report = fs.testing.check_bound(fs.matmul(a, b), fs.testing.error_bound(a, b))
    >>> report.actual.shape, report.bound.roundings
    ((2, 2), 9)
    """

    actual: FloatArray
    bound: ErrorBound

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """The error of each element, divided by its bound. NaN in place of a number counts as infinity."""
        values, limit = np.asarray(self.actual.values), np.asarray(self.bound.bound)
        exact = np.asarray(self.bound.exact)
        with np.errstate(all="ignore"):
            errors = np.where(values == exact, 0.0, np.abs(values - exact))
            shares = np.where(errors == 0, 0.0, errors / limit)
        shares = np.where(np.isnan(shares), np.inf, shares)
        unbounded = np.isinf(limit) | np.isnan(limit) | ~np.isfinite(exact)
        return np.where(unbounded, 0.0, shares)

    @property
    def outside(self) -> NDArray[np.bool_]:
        """The elements whose error is larger than the bound."""
        return np.asarray(self.shares > 1)

    @property
    def passed(self) -> bool:
        """Return whether every error is within the bound."""
        return not self.outside.any()

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Where the elements outside the bound are."""
        return locate(self.outside)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and the places in JSON types."""
        return {
            "rule": str(self.bound), "passed": self.passed, "format": self.actual.format.name,
            "elements": int(self.outside.size), "mismatches": int(np.count_nonzero(self.outside)),
            "where": [str(place) for place in self.places], "largest_share": float(self.shares.max(initial=0.0)),
        }  # fmt: skip

    def _lines(self) -> Iterator[str]:
        count = int(np.count_nonzero(self.outside))
        worst = float(self.shares.max(initial=0.0))
        if count == 0:
            yield f"all {self.outside.size} elements are within the bound; the largest error is {worst:.3g} of it"
        else:
            yield f"{count} of {self.outside.size} elements are outside the bound"
            yield f"the largest error is {worst:.3g} times its bound"
            yield from (f"where: {place}" for place in self.places)
            for place in np.argwhere(self.outside)[:_SHOWN].tolist():
                index = tuple(place)
                value, exact = float(self.actual.values[index]), float(np.asarray(self.bound.exact)[index])
                limit = float(np.asarray(self.bound.bound)[index])
                yield f"  [{', '.join(map(str, index))}] actual {value:.9g}, exact {exact:.9g}, bound {limit:.3g}"
        yield f"bound: {self.bound}"


def check_bound(actual: Any, bound: ErrorBound) -> BoundReport:
    """Return the report of a result against a bound, such as that of `softmax_bound` or `attention_bound`.

    Parameters
    ----------
    actual : array_like of floats
        The result, in the shape of the bound.
    bound : ErrorBound
        The bound.

    Returns
    -------
    BoundReport

    Raises
    ------
    AssertionError
        If the shapes differ.
    TypeError
        If `bound` is no ErrorBound.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> x = np.zeros((2, 4), np.float32)
    >>> check_bound(np.full((2, 4), 0.25, np.float32), fs.testing.softmax_bound(x)).passed
    True
    """
    if not isinstance(bound, ErrorBound):
        raise TypeError(f"bound must be an ErrorBound, such as error_bound(a, b), not {bound!r}")
    got = as_float_array(actual, "actual")
    if got.shape != np.shape(bound.exact):
        raise AssertionError(f"actual has the shape {got.shape}, the bound {np.shape(bound.exact)}")
    return BoundReport(got, bound)
