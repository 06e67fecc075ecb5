"""Counting what happens: `with record() as log`."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from floatsim.arrays import backends
from floatsim.formats import FloatFormat
from floatsim.formats._validation import as_flag, as_index
from floatsim.formats.rounding import (
    ABSORBED,
    DIVIDE_BY_ZERO,
    FLUSHED,
    INEXACT,
    INVALID,
    OVERFLOW,
    SUBNORMAL,
    UNDERFLOW,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ACTIVE_LOGS", "EVENTS", "Counts", "Event", "Log", "note", "note_sums", "record", "recording", "wanted"]

EVENTS = {
    "invalid": INVALID,
    "divide_by_zero": DIVIDE_BY_ZERO,
    "overflow": OVERFLOW,
    "underflow": UNDERFLOW,
    "flushed": FLUSHED,
    "subnormal": SUBNORMAL,
    "inexact": INEXACT,
    "absorbed": ABSORBED,
}
"""The counted events, and their bits in the kernels' event bytes."""


ALL = frozenset(EVENTS) | {"nan"}
"""The names that `record(events=...)` accepts: the counted events, and "nan", of which sums keep the first k."""


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


@dataclass(frozen=True)
class Event:
    """One event of one element: its index, its operands and its result.

    Values are float64; operands that were integers or texts are kept as they were.
    """

    operation: str
    kind: str
    index: tuple[int, ...]
    operands: tuple[Any, ...]
    result: float

    def __str__(self) -> str:
        at = ", ".join(map(str, self.index))
        given = ", ".join(f"{x:.17g}" if isinstance(x, float) else str(x) for x in self.operands)
        return f"{self.operation}[{at}] {self.kind}: ({given}) -> {self.result:.17g}"


class FirstSteps(dict[str, "NDArray[np.int64]"]):
    """The least k of each event. The error for an unknown event lists the known ones."""

    def __missing__(self, event: str) -> NDArray[np.int64]:
        there = ", ".join(self) or "nothing: no matrix product or reduction was recorded"
        raise KeyError(f"{event!r} is not in `first`; it has {there}")


@dataclass
class Log:
    """The counts of `record` by operation. Prints as a table; `log["add"].overflow` is a number.

    `where` holds, with `record(where=True)`, the first events of each kind. `first` belongs to the latest matrix
    product or reduction: for "invalid", "nan", "overflow", "underflow", "flushed" and "absorbed" an int64 array of the
    result's shape, with the least k at which that happened on the way to each element; -1 where it never did.
    """

    keep: int = 0
    counts: dict[str, Counts] = field(default_factory=dict)
    where: list[Event] = field(default_factory=list)
    first: FirstSteps = field(default_factory=FirstSteps)
    events: frozenset[str] = ALL

    def __getitem__(self, operation: str) -> Counts:
        """Return the counts of an operation. The KeyError for an unknown operation lists the recorded ones."""
        if operation not in self.counts:
            raise KeyError(f"{operation!r} was not recorded; recorded are: {', '.join(self.counts) or 'none'}")
        return self.counts[operation]

    @property
    def total(self) -> Counts:
        """The counts of all operations together."""
        total = self._new_counts()
        for name in self._columns():
            setattr(total, name, sum(getattr(c, name) for c in self.counts.values()))
        return total

    def _columns(self) -> list[str]:
        """Return the names of the counts."""
        return [name for name in asdict(Counts()) if name == "elements" or name in self.events]

    def _new_counts(self) -> Counts:
        return Counts(**dict.fromkeys(EVENTS.keys() - self.events))  # type: ignore[arg-type]  # None, all of them

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Return the counts as {operation: {event: count}}, for JSON."""
        return {op: {name: getattr(counts, name) for name in self._columns()} for op, counts in self.counts.items()}

    def to_pandas(self) -> Any:
        """A DataFrame with a row an operation. Raises ImportError with advice where pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: pip install pandas") from error
        return pandas.DataFrame.from_dict(self.to_dict(), orient="index", columns=self._columns())

    def _rows(self) -> list[list[str]]:
        head = ["operation", *(name.replace("_", " ") for name in self._columns())]
        return [head, *([op, *map(str, counts.values())] for op, counts in self.to_dict().items())]

    def __str__(self) -> str:
        if not self.counts:
            return "nothing recorded"
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]
        return "\n".join([*lines, *map(str, self.where)])

    def _repr_html_(self) -> str:
        head, *body = self._rows()
        cells = "".join(f"<th>{cell}</th>" for cell in head)
        rows = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in body)
        events = "".join(f"<li>{event}</li>" for event in self.where)
        return f"<table><tr>{cells}</tr>{rows}</table>" + (f"<ul>{events}</ul>" if events else "")

    # -- filled by the operations --------------------------------------------------------------------------
    def add_histogram(self, operation: str, histogram: NDArray[np.int64]) -> None:
        """Add the counts of a histogram of event bytes (256 entries)."""
        import numpy as np

        byte = np.arange(256)
        happened = {name: int(histogram[(byte & bit) != 0].sum()) for name, bit in EVENTS.items()}
        self.add_counts(operation, int(histogram.sum()), happened)

    def add_counts(self, operation: str, elements: int, happened: Mapping[str, int]) -> None:
        """Add the counts of an operation."""
        counts = self.counts.setdefault(operation, self._new_counts())
        counts.elements += elements
        for name in self._columns()[1:]:
            setattr(counts, name, getattr(counts, name) + happened.get(name, 0))

    def add_places(
        self,
        operation: str,
        events: NDArray[np.uint8],
        operands: Sequence[tuple[NDArray[Any], FloatFormat | None]],
        result: tuple[NDArray[Any], FloatFormat] | None,
    ) -> None:
        """Remember the first `keep` elements of each kind of event (inexact ones aside: they are everywhere)."""
        import numpy as np

        for kind, bit in EVENTS.items():
            if kind == "inexact" or kind not in self.events:
                continue
            known = sum(event.kind == kind and event.operation == operation for event in self.where)
            for flat in np.flatnonzero(events & bit)[: max(0, self.keep - known)]:
                index = tuple(int(i) for i in np.unravel_index(flat, events.shape))
                values = tuple(_at(index, codes, fmt, events.shape) for codes, fmt in operands)
                value = _at(index, *result, events.shape) if result else float("nan")
                self.where.append(Event(operation, kind, index, values, value))


def _at(index: tuple[int, ...], codes: NDArray[Any], fmt: FloatFormat | None, shape: tuple[int, ...]) -> Any:
    """The value of one element of codes (without a format: the number or text itself) broadcast to `shape`."""
    import numpy as np

    if fmt is None:
        item = np.broadcast_to(codes, shape)[index]
        return item.item() if isinstance(item, np.generic) else item
    return float(backends.emulator().decode(np.asarray(np.broadcast_to(codes, shape)[index]), fmt))


_ADDING = threading.Lock()
"""Held while logs are filled: `bind_context` lets several threads fill one log."""

ACTIVE_LOGS: ContextVar[tuple[Log, ...]] = ContextVar("floatsim_record", default=())


def recording() -> bool:
    """Return whether a `record` is open in this thread or task."""
    return bool(ACTIVE_LOGS.get())


def wanted() -> frozenset[str]:
    """Return the events that the open records count; none if no record is open."""
    logs = ACTIVE_LOGS.get()
    return logs[0].events if len(logs) == 1 else frozenset().union(*[log.events for log in logs])


def _known_events(events: Iterable[str] | None) -> frozenset[str]:
    if events is None:
        return ALL
    if isinstance(events, str):
        raise TypeError(f"events must be a collection of names, not {events!r}; write events=[{events!r}]")
    asked = list(events)
    for name in asked:
        if name not in ALL:
            near = difflib.get_close_matches(str(name), ALL, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(ALL))}"
            raise ValueError(f"events: {name!r} is no event; {hint}")
    if not asked:
        raise ValueError(f"events must name at least one of {', '.join(sorted(ALL))}")
    return frozenset(asked)


@contextmanager
def record(*, events: Iterable[str] | None = None, where: bool = False, keep: int = 10) -> Iterator[Log]:
    """Count events inside a `with` block: overflow, underflow, flushed to zero, subnormal, inexact, absorbed, ...

    Parameters
    ----------
    events : iterable of str, optional
        The events to count: "invalid", "divide_by_zero", "overflow", "underflow", "flushed", "subnormal", "inexact",
        "absorbed", and "nan" for `log.first` alone. Default: all; matrix products are faster with few.
    where : bool
        Keep the index, operands and result of the first events of each kind, too. For matrix products and reductions,
        `log.first` has the first k instead.
    keep : int
        The number of events of each kind and operation that `where` keeps.

    Yields
    ------
    Log
        Filled as operations run in this thread or task, and in functions that `fs.bind_context` wraps. `record` blocks
        may be nested: each counts.

    Raises
    ------
    TypeError, ValueError
        If `keep` is negative, or `events` has an unknown name.

    Notes
    -----
    *flushed*: a non-zero exact value became zero, by rounding or FTZ. *absorbed*: a non-zero addend left a finite sum
    unchanged. Without a `record`, nothing is counted and the fast kernels run.

    Examples
    --------
    >>> import floatsim as fs
    >>> with fs.record(where=True) as log:
    ...     y = fs.array([60000.0, 1e-4], "fp16") * fs.array([2.0, 1e-4], "fp16")
    >>> log["multiply"].overflow, log["multiply"].flushed
    (1, 1)
    >>> print(log.where[0])
    multiply[0] overflow: (60000, 2) -> inf
    """
    keep = as_index(keep, "keep", 0, 1 << 31)
    log = Log(keep if as_flag(where, "where") else 0, events=_known_events(events))
    token = ACTIVE_LOGS.set((*ACTIVE_LOGS.get(), log))
    try:
        yield log
    finally:
        ACTIVE_LOGS.reset(token)


def note(
    operation: str,
    events: NDArray[np.uint8],
    operands: Sequence[tuple[NDArray[Any], FloatFormat | None]],
    result: tuple[NDArray[Any], FloatFormat] | None,
) -> None:
    """Tell the open records what an element-wise operation did."""
    import numpy as np

    logs = ACTIVE_LOGS.get()
    if not logs:
        return
    histogram = np.bincount(events.ravel(), minlength=256)
    with _ADDING, _paused():
        for log in logs:
            log.add_histogram(operation, histogram)
            if log.keep:
                log.add_places(operation, events, operands, result)


class SumEvents(Protocol):
    """The events of a sum: histograms by rounding site, and the least k of each event."""

    @property
    def histograms(self) -> dict[str, NDArray[np.int64]]: ...

    @property
    def first(self) -> dict[str, NDArray[np.int64]]: ...


def note_sums(operation: str, sums: SumEvents, shape: tuple[int, ...]) -> None:
    """Add the events at the rounding sites of a matrix product or reduction to the open records."""
    logs = ACTIVE_LOGS.get()
    if not logs:
        return
    with _ADDING:
        for log in logs:
            for site, histogram in sums.histograms.items():
                log.add_histogram(f"{operation}.{site}", histogram)
            log.first = FirstSteps({name: k.reshape(shape) for name, k in sums.first.items() if name in log.events})


@contextmanager
def _paused() -> Iterator[None]:
    token = ACTIVE_LOGS.set(())
    try:
        yield
    finally:
        ACTIVE_LOGS.reset(token)
