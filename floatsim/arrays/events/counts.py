"""What a log holds: counts, single events, and calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from floatsim.formats import FloatFormat
from floatsim.formats.rounding import EVENT_BITS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "ALL", "CANCELLATION", "CLIPPED", "DEFAULT", "EVENTS", "Call", "Counts", "Event", "FirstSteps", "Operand",
    "SumEvents", "TermsAt",
]  # fmt: skip

EVENTS = EVENT_BITS
"""The counted events, and their bits in the kernels' event bytes."""

CANCELLATION = "cancellation"
"""The event that no kernel counts: it is computed from operands and results."""

CLIPPED = "clipped"
"""An overflow whose result is a finite number: it is computed from events and results of element-wise operations."""

DEFAULT = frozenset(EVENTS) | {"nan"}
"""The events that `record()` counts by default. Of "nan", sums keep the first k."""

ALL = DEFAULT | {CANCELLATION, CLIPPED}
"""The names that `record(events=...)` accepts."""


@dataclass
class Counts:
    """The number of results of an operation, and of each event among them; None if the event was not counted."""

    elements: int = 0
    invalid: int | None = 0
    divide_by_zero: int | None = 0
    overflow: int | None = 0
    underflow: int | None = 0
    flushed: int | None = 0
    subnormal: int | None = 0
    inexact: int | None = 0
    absorbed: int | None = 0
    clipped: int | None = None
    cancellation: int | None = None
    exact_zeros: int | None = None

    def add(self, elements: int, happened: Mapping[str, int]) -> None:
        """Add the counts of one operation. An event that `happened` lacks does not change."""
        self.elements += elements
        for name, number in happened.items():
            setattr(self, name, (getattr(self, name) or 0) + number)


@dataclass(frozen=True)
class Event:
    """One event of one element: its index, its operands and its result.

    Values are float64; operands that were integers or texts are kept as they were. For a matrix product or a reduction,
    `k` is the index of the term, the operands are those of term k, and the result is the sum of all terms.
    """

    operation: str
    kind: str
    index: tuple[int, ...]
    operands: tuple[Any, ...]
    result: float
    k: int | None = None
    call: int = 0
    scope: str = ""
    line: str | None = None

    def __str__(self) -> str:
        scope = f"{self.scope}: " if self.scope else ""
        at = ", ".join(map(str, self.index))
        term = "" if self.k is None else f" at k = {self.k}"
        given = ", ".join(f"{x:.17g}" if isinstance(x, float) else str(x) for x in self.operands)
        line = f", line {self.line}" if self.line else ""
        return f"{scope}{self.operation}[{at}] {self.kind}{term}: ({given}) -> {self.result:.17g}{line}"


class FirstSteps(dict[str, "NDArray[np.int64]"]):
    """The least k of each event. The error for an unknown event lists the known ones."""

    def __missing__(self, event: str) -> NDArray[np.int64]:
        there = ", ".join(self) or "nothing: no matrix product or reduction was recorded"
        raise KeyError(f"{event!r} is not in `first`; it has {there}")


class SumEvents(Protocol):
    """The sums of a matrix product or reduction, and their events by rounding site, with the least k of each event."""

    @property
    def codes(self) -> NDArray[Any]: ...

    @property
    def histograms(self) -> dict[str, NDArray[np.int64]]: ...

    @property
    def first(self) -> dict[str, NDArray[np.int64]]: ...


Operand: TypeAlias = "tuple[NDArray[Any], FloatFormat | None]"
TermsAt: TypeAlias = Callable[[int, int], Sequence[Operand]]
"""A function that returns the operands of term k of a result: (flat index of the result, k)."""


@dataclass(slots=True)
class Call:
    """One recorded call of a public function.

    Attributes
    ----------
    number : int
        The position in the order of the calls, from 0.
    operation : str
        The function, such as "matmul".
    scope : str
        The path of the `fs.scope` blocks around the call, such as "model/layer1". Empty outside of them.
    line : str or None
        The caller's file and line, "train.py:12", with `record(lines=True)`.
    counts : dict of str to Counts
        The counts by rounding site, such as "matmul.product" and "matmul.sum".
    """

    number: int
    operation: str
    scope: str = ""
    line: str | None = None
    counts: dict[str, Counts] = field(default_factory=dict)
    _first: dict[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    _cancelled: NDArray[np.int64] | None = field(default=None, repr=False)

    @property
    def first(self) -> FirstSteps:
        """The first k of each event, as `Log.first`, of this call. `var` has those of its sum of squares."""
        import numpy as np

        return FirstSteps({name: k.astype(np.int64) for name, k in self._first.items()})

    @property
    def cancelled_bits(self) -> NDArray[np.int64]:
        """The number of results by the bits that cancelled, as in `Log.cancelled_bits`. Empty if none were counted."""
        import numpy as np

        return np.zeros(0, np.int64) if self._cancelled is None else self._cancelled

    def keep_first(self, first: Mapping[str, NDArray[np.int64]]) -> None:
        """Keep the first k of each event in the smallest integer type; a log can have many calls."""
        self._first = {name: _smallest(k) for name, k in first.items()}

    def keep_cancelled(self, bits: NDArray[np.int64]) -> None:
        """Keep the number of results by the bits that cancelled."""
        self._cancelled = bits


_SMALL = 64  # elements of an array that is not worth the time of a conversion


def _smallest(k: NDArray[np.int64]) -> NDArray[Any]:
    """Return k, which is at least -1, in the smallest integer type. If all elements are -1, only one is stored."""
    import numpy as np

    if k.size <= _SMALL:
        return k
    highest = int(k.max(initial=-1))
    if highest < 0:
        return np.broadcast_to(np.int8(-1), k.shape)
    return k.astype(np.min_scalar_type(-1 - highest))
