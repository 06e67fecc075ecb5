"""Reports of comparisons: how many elements differ, where, by how much, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from floatsim._lazy import plot_function
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.elementwise.comparison import isnan
from floatsim.arrays.elementwise.ulps import ulp_distance
from floatsim.testing.compare.input_strength import Strength, strength_line
from floatsim.testing.compare.location import Place, locate
from floatsim.testing.compare.patterns import explain_arrays
from floatsim.testing.compare.ulps import UlpStats, stats_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

__all__ = ["Difference", "Report", "differing", "report_of"]

_SHOWN = 5


@dataclass(frozen=True)
class Difference:
    """One element that differs: its index, both codes, both values, and the distance in ulps (2**64 - 1: NaN)."""

    index: tuple[int, ...]
    actual: int
    desired: int
    values: tuple[float, float]
    ulps: int


@dataclass(frozen=True)
class Report:
    """The result of a comparison. Prints as text; `plot` draws a map of the mismatches.

    Attributes
    ----------
    rule : str
        The condition that each element must meet.
    actual, desired : FloatArray
        The compared arrays, of one format and shape.
    differs : bool array
        The elements that break the rule.
    stats : UlpStats
        The distances of all elements.
    places : tuple of Place
        Where the mismatches are.
    explanation : str or None
        The likeliest explanation.
    strength : Strength or None
        Which other descriptions the inputs cannot exclude; None for arrays without operands.
    unlike : tuple of str
        The descriptions that the inputs should exclude, and do not.

    Examples
    --------
    >>> import floatsim as fs
    >>> x, y = fs.array([1.0, 2.0], "bf16"), fs.array([1.0, 2.03125], "bf16")
    >>> report = fs.testing.compare_arrays(x, y)
    >>> report.differs.tolist(), report.stats.max
    ([False, True], 2)
    """

    rule: str
    actual: FloatArray
    desired: FloatArray
    differs: NDArray[np.bool_]
    stats: UlpStats
    places: tuple[Place, ...] = ()
    explanation: str | None = None
    strength: Strength | None = None
    unlike: tuple[str, ...] = ()

    @cached_property
    def mismatches(self) -> int:
        """The number of elements that break the rule."""
        return int(np.count_nonzero(self.differs))

    @property
    def passed(self) -> bool:
        """Return whether every element meets the rule, and the inputs exclude every description of `unlike`."""
        return self.mismatches == 0 and not self.unlike

    @cached_property
    def first(self) -> tuple[Difference, ...]:
        """The first mismatches in the order of their indices."""
        flat = np.flatnonzero(self.differs.ravel())[:_SHOWN]
        found = []
        for place in flat.tolist():
            x, y = (FloatArray(side.codes.reshape(-1)[place], side.format) for side in (self.actual, self.desired))
            index = tuple(int(i) for i in np.unravel_index(place, self.differs.shape))
            ulps = int(ulp_distance(x, y, equal_nan=True))
            found.append(Difference(index, int(x.codes), int(y.codes), (float(x.values), float(y.values)), ulps))
        return tuple(found)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _lines(self) -> Iterator[str]:
        if self.mismatches == 0:
            yield f"all {self.stats.count} elements of {self.stats.format.name} pass: {self.rule}"
        else:
            share = 100 * self.mismatches / self.stats.count
            yield f"{self.mismatches} of {self.stats.count} elements ({share:.3g} %) fail: {self.rule}"
            yield str(self.stats)
            same = int(np.count_nonzero(self.differs & (self.actual.codes == self.desired.codes)))
            if same:  # of a quantization in blocks
                yield f"{self.mismatches - same} values differ; the others have other codes or scales with equal values"
            yield from (f"where: {place}" for place in self.places)
            if not self.places and self.mismatches > 1:
                yield "where: spread over the whole array"
            yield from (self._line(each) for each in self.first)
            if self.explanation is not None:
                yield f"likeliest explanation: {self.explanation}"
        if line := strength_line(self.strength, self.unlike):
            yield line

    def _line(self, each: Difference) -> str:
        digits = -(-self.stats.format.bits // 4)
        sides = zip(("actual", "desired"), each.values, (each.actual, each.desired), strict=True)
        texts = ", ".join(f"{name} {value:.9g} = 0x{code:0{digits}X}" for name, value, code in sides)
        apart = "NaN" if each.ulps == 2**64 - 1 else f"{each.ulps} ulp{'s' * (each.ulps != 1)}"
        return f"  [{', '.join(map(str, each.index))}] {texts}: {apart}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw a map of the mismatches: the distance of each element in ulps, and return the Axes.

        >>> import floatsim as fs
        >>> report = fs.testing.compare_arrays(fs.array([[1.0, 2.0]], "fp16"), fs.array([[1.0, 3.0]], "fp16"))
        >>> report.plot().get_title(loc="left")
        '1 of 2 elements differ'
        """
        distances = np.asarray(ulp_distance(self.actual, self.desired, equal_nan=True))
        title = f"{self.mismatches} of {self.stats.count} elements differ"
        axes: Axes = plot_function("mismatches", "mismatch_map")(distances, differs=self.differs, ax=ax, title=title)
        return axes

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, the places, the first mismatches as codes, and the texts, in JSON types."""
        return {
            "rule": self.rule,
            "passed": self.passed,
            "format": self.stats.format.name,
            "elements": self.stats.count,
            "mismatches": self.mismatches,
            "histogram": self.stats.histogram,
            "max_ulps": self.stats.max,
            "p99_ulps": self.stats.p99,
            "where": [str(place) for place in self.places],
            "first": [
                {"index": list(each.index), "actual": each.actual, "desired": each.desired, "ulps": each.ulps}
                for each in self.first
            ],
            "explanation": self.explanation,
            "indistinguishable": None if self.strength is None else list(self.strength.same),
            "unlike": list(self.unlike),
        }

    def to_json(self) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2)


def differing(actual: FloatArray, desired: FloatArray, equal_nan: bool) -> NDArray[np.bool_]:
    """Return which elements differ in a bit. With `equal_nan`, a NaN equals every NaN."""
    differs: NDArray[np.bool_] = np.asarray(actual.codes != desired.codes)
    if equal_nan and differs.any():
        differs = differs & ~(np.asarray(isnan(actual)) & np.asarray(isnan(desired)))
    return differs


def report_of(
    rule: str, actual: FloatArray, desired: FloatArray, differs: NDArray[np.bool_], explanation: str | None = None,
    strength: Strength | None = None, unlike: tuple[str, ...] = (),
) -> Report:  # fmt: skip
    """Return the report of a comparison, with the places of the mismatches and an explanation, if none is given."""
    stats = stats_of(actual, desired)
    if not differs.any():
        return Report(rule, actual, desired, differs, stats, strength=strength, unlike=unlike)
    why = explain_arrays(actual, desired, differs) if explanation is None else explanation
    return Report(rule, actual, desired, differs, stats, locate(differs), why, strength, unlike)
