"""The log of `fs.record`: counts by operation, by scope and by call, and the places of events."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from floatsim._extras import install_command
from floatsim.arrays.call import backends
from floatsim.arrays.events.cancellation import Cancelled
from floatsim.arrays.events.counts import (
    CANCELLATION,
    CLIPPED,
    DEFAULT,
    EVENTS,
    Call,
    Counts,
    Event,
    FirstSteps,
    Operand,
    TermsAt,
)
from floatsim.formats import FloatFormat

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Log"]


@dataclass
class Log:
    """The events of `record`. Prints as a table; `log["add"].overflow` is a number.

    Attributes
    ----------
    counts : dict of str to Counts
        The counts by operation. Matrix products and reductions have one operation for each rounding site, such as
        "matmul.product" and "matmul.sum".
    scopes : dict of str to dict
        The counts by scope and operation. The scope "" has the operations outside of `fs.scope`. A scope does not
        include the scopes inside it.
    calls : list of Call
        One entry for each call, in order. Empty with `record(calls=False)`.
    where : list of Event
        With `record(where=True)`, the first events of each kind, operation and scope.
    first : dict of str to int64 array
        Of the latest matrix product or reduction: for "invalid", "nan", "overflow", "underflow", "flushed" and
        "absorbed" the least k at which that happened on the way to each element; -1 where it never did. The arrays have
        the result's shape. `log.calls[n].first` has those of call n.
    cancelled_bits : dict of str to int64 array
        With the event "cancellation": by operation, the number of results by the bits that cancelled.
    """

    keep: int = 0
    counts: dict[str, Counts] = field(default_factory=dict)
    where: list[Event] = field(default_factory=list)
    first: FirstSteps = field(default_factory=FirstSteps)
    events: frozenset[str] = DEFAULT
    keeps_calls: bool = True
    lines: bool = False
    calls: list[Call] = field(default_factory=list)
    scopes: dict[str, dict[str, Counts]] = field(default_factory=dict)
    cancelled_bits: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    _number: int = field(default=0, repr=False)
    _kept: Counter[tuple[str, str, str]] = field(default_factory=Counter, repr=False)

    def __getitem__(self, operation: str) -> Counts:
        """Return the counts of an operation. The KeyError for an unknown operation lists the recorded ones."""
        if operation not in self.counts:
            raise KeyError(f"{operation!r} was not recorded; recorded are: {', '.join(self.counts) or 'none'}")
        return self.counts[operation]

    @property
    def total(self) -> Counts:
        """The counts of all operations together."""
        total = self._new_counts()
        for each in self.counts.values():
            counted = {name: getattr(each, name) for name in self._columns()[1:]}
            total.add(each.elements, {name: number for name, number in counted.items() if number is not None})
        return total

    def _columns(self) -> list[str]:
        """Return the names of the counts."""
        shown = {"elements", *self.events, *(["exact_zeros"] if CANCELLATION in self.events else [])}
        return [name for name in asdict(Counts()) if name in shown]

    def _new_counts(self) -> Counts:
        return Counts(**dict.fromkeys(EVENTS.keys() - self.events))  # type: ignore[arg-type]  # None, all of them

    def _dict(self, counts: Counts) -> dict[str, int]:
        return {name: getattr(counts, name) for name in self._columns()}

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Return the counts as {operation: {event: count}}, for JSON."""
        return {operation: self._dict(counts) for operation, counts in self.counts.items()}

    def records(self) -> list[dict[str, Any]]:
        """Return one flat record for each call and rounding site, in the order of the calls.

        The keys are "scope", "operation", "call", with `record(lines=True)` "line", and the names of the counts.

        Raises
        ------
        ValueError
            If the log has no calls because of `record(calls=False)`.

        Examples
        --------
        >>> import floatsim as fs
        >>> x = fs.array([6e4, 1.0], "fp16")
        >>> with fs.record(events=["overflow"]) as log, fs.scope("layer1"):
        ...     y = fs.add(x, 6e4)
        >>> log.records()
        [{'scope': 'layer1', 'operation': 'add', 'call': 0, 'elements': 2, 'overflow': 1}]
        """
        if not self.keeps_calls:
            raise ValueError("the log has no calls, because of record(calls=False); log.scopes has the totals")
        return [
            {
                **{"scope": call.scope, "operation": operation, "call": call.number},
                **({"line": call.line} if self.lines else {}),
                **self._dict(counts),
            }
            for call in self.calls
            for operation, counts in call.counts.items()
        ]

    def to_pandas(self, by: str = "call") -> Any:
        """Return the counts as a DataFrame, whose index is the operation.

        Parameters
        ----------
        by : str
            "call": one row for each call and rounding site, with the columns scope, operation, call (its number) and,
            with `record(lines=True)`, line. "operation": one row for each operation, with the totals of all calls.

        Raises
        ------
        ImportError
            If pandas is not installed.
        ValueError
            For another `by`, and for by="call" if the log has no calls because of `record(calls=False)`.

        Examples
        --------
        >>> import floatsim as fs
        >>> x = fs.array([6e4, 1.0], "fp16")
        >>> with fs.record(events=["overflow"]) as log:
        ...     for name in ("layer1", "layer2"):
        ...         with fs.scope(name):
        ...             y = fs.add(x, 6e4)
        >>> log.to_pandas()[["scope", "operation", "call", "overflow"]].values.tolist()
        [['layer1', 'add', 0, 1], ['layer2', 'add', 1, 1]]
        >>> log.to_pandas(by="operation").loc["add", "overflow"].item()
        2
        """
        if by not in ("call", "operation"):
            raise ValueError(f"by must be 'call' or 'operation', not {by!r}")
        try:
            import pandas
        except ImportError as error:
            raise ImportError(f"to_pandas() needs pandas: {install_command('pandas')}") from error
        if by == "operation":
            return pandas.DataFrame.from_dict(self.to_dict(), orient="index", columns=self._columns())
        records = self.records()
        columns = ["scope", "operation", "call", *(["line"] if self.lines else []), *self._columns()]
        return pandas.DataFrame(records, index=[record["operation"] for record in records], columns=columns)

    def _rows(self) -> list[list[str]]:
        head = ["operation", *(name.replace("_", " ") for name in self._columns())]
        rows = [
            [scope, operation, *("-" if n is None else str(n) for n in self._dict(counts).values())]
            for scope, operations in self.scopes.items()
            for operation, counts in operations.items()
        ]
        return [["scope", *head], *rows] if any(self.scopes) else [head, *(row[1:] for row in rows)]

    def __str__(self) -> str:
        if not self.counts:
            return "nothing recorded"
        rows = self._rows()
        texts = len(rows[0]) - len(self._columns())
        columns = [
            [cell.ljust(width) if i < texts else cell.rjust(width) for cell in column]
            for i, column in enumerate(zip(*rows, strict=True))
            for width in [max(map(len, column))]
        ]
        return "\n".join(["  ".join(row) for row in zip(*columns, strict=True)] + list(map(str, self.where)))

    def _repr_html_(self) -> str:
        head, *body = self._rows()
        cells = "".join(f"<th>{cell}</th>" for cell in head)
        rows = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in body)
        events = "".join(f"<li>{event}</li>" for event in self.where)
        return f"<table><tr>{cells}</tr>{rows}</table>" + (f"<ul>{events}</ul>" if events else "")

    # -- filled by the operations --------------------------------------------------------------------------
    def new_call(self, operation: str, scope: str, line: str | None) -> Call:
        """Return the next call. It is kept if the log keeps calls."""
        call = Call(self._number, operation, scope, line if self.lines else None)
        self._number += 1
        if self.keeps_calls:
            self.calls.append(call)
        return call

    def add_histogram(self, call: Call, operation: str, histogram: NDArray[np.int64]) -> None:
        """Add the counts of a histogram of event bytes (256 entries)."""
        numbers = (histogram @ _event_bits()).tolist()
        happened = {name: number for name, number in zip(EVENTS, numbers, strict=True) if name in self.events}
        self._add(call, operation, int(histogram.sum()), happened)

    def _add(self, call: Call, operation: str, elements: int, happened: Mapping[str, int]) -> None:
        for table in (self.counts, self.scopes.setdefault(call.scope, {}), call.counts):
            if operation not in table:
                table[operation] = self._new_counts()
            table[operation].add(elements, happened)

    def add_clipped(self, call: Call, operation: str, number: int) -> None:
        """Add the clipped results of an operation whose histogram was added."""
        self._add(call, operation, 0, {CLIPPED: number})

    def add_cancelled(self, call: Call, operation: str, cancelled: Cancelled) -> None:
        """Add the cancellations of an operation whose histogram was added."""
        import numpy as np

        happened = {CANCELLATION: int(cancelled.bits[1:].sum()), "exact_zeros": cancelled.exact_zeros}
        self._add(call, operation, 0, happened)
        call.keep_cancelled(cancelled.bits)
        total = self.cancelled_bits.get(operation, np.zeros(0, np.int64))
        longer, shorter = sorted((total, cancelled.bits), key=len, reverse=True)
        self.cancelled_bits[operation] = longer + np.pad(shorter, (0, len(longer) - len(shorter)))

    def add_places(
        self,
        call: Call,
        operation: str,
        events: NDArray[np.uint8],
        operands: Sequence[Operand],
        result: tuple[NDArray[Any], FloatFormat] | None,
    ) -> None:
        """Remember the first `keep` elements of each kind of event (inexact ones aside: they are everywhere)."""
        for kind, bit in EVENTS.items():
            if kind != "inexact" and kind in self.events:
                for index in self._first_places(call, operation, kind, (events & bit) != 0):
                    values = tuple(_at(index, codes, fmt, events.shape) for codes, fmt in operands)
                    value = _at(index, *result, events.shape) if result else float("nan")
                    self.where.append(self._event(call, operation, kind, index, values, value))

    def add_terms(
        self, call: Call, operation: str, first: Mapping[str, NDArray[np.int64]],
        result: tuple[NDArray[Any], FloatFormat], terms: TermsAt,
    ) -> None:  # fmt: skip
        """Remember, for the first `keep` sums with each kind of event, the first k and the operands of its term."""
        import numpy as np

        for kind, steps in first.items():
            for index in self._first_places(call, operation, kind, steps >= 0):
                k, flat = int(steps[index]), int(np.ravel_multi_index(index, steps.shape)) if index else 0
                values = tuple(_at((), codes, fmt, ()) for codes, fmt in terms(flat, k))
                value = _at((flat,), result[0].reshape(-1), result[1], (steps.size,))
                self.where.append(self._event(call, operation, kind, index, values, value, k))

    def _event(
        self, call: Call, operation: str, kind: str, index: tuple[int, ...], operands: tuple[Any, ...], result: float,
        k: int | None = None,
    ) -> Event:  # fmt: skip
        return Event(operation, kind, index, operands, result, k, call.number, call.scope, call.line)

    def _first_places(
        self, call: Call, operation: str, kind: str, happened: NDArray[np.bool_]
    ) -> list[tuple[int, ...]]:
        """Return the indices of the first elements that are still to be kept, and count them as kept."""
        import numpy as np

        key = (call.scope, operation, kind)
        room = self.keep - self._kept[key]
        places = np.flatnonzero(happened)[:room] if room else np.zeros(0, np.int64)
        self._kept[key] += len(places)
        return [tuple(int(i) for i in np.unravel_index(flat, happened.shape)) for flat in places]


@functools.cache
def _event_bits() -> NDArray[np.int64]:
    """Return the table (256, events) that is 1 where an event byte has the bit of an event."""
    import numpy as np

    bits = np.array(list(EVENTS.values()))
    return np.array(np.arange(256)[:, np.newaxis] & bits != 0, np.int64)


def _at(index: tuple[int, ...], codes: NDArray[Any], fmt: FloatFormat | None, shape: tuple[int, ...]) -> Any:
    """The value of one element of codes (without a format: the number or text itself) broadcast to `shape`."""
    import numpy as np

    if fmt is None:
        item = np.broadcast_to(codes, shape)[index]
        return item.item() if isinstance(item, np.generic) else item
    return float(backends.emulator().decode(np.asarray(np.broadcast_to(codes, shape)[index]), fmt))
