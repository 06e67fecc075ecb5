"""What happened in an emulation: counts for each layer and operation, the first events, and what was not covered."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floatsim.formats._validation import name_hint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["EVENTS", "Event", "Report", "Row", "Run"]

EVENTS = ("overflow", "flushed", "absorbed")
"""The events that a run counts."""


@dataclass(frozen=True)
class Event:
    """The first event of its kind.

    Attributes
    ----------
    kind : str
        "overflow": an operation with finite operands gave an infinity or a NaN. "flushed", "absorbed": as in
        `fs.record`.
    module : str
        The path of the module; "" outside of modules.
    operation : str
        The ATen operation.
    backward : bool
        Whether it happened in a backward pass.
    step : int
        The number of optimizer steps before.
    rule : str
        The rule of the policy that chose the formats.
    """

    kind: str
    module: str
    operation: str
    backward: bool
    step: int
    rule: str = ""

    def __str__(self) -> str:
        where = self.module or "outside of modules"
        direction = "backward" if self.backward else "forward"
        return f"first {self.kind}: {where}, {self.operation}, {direction}, step {self.step} ({self.rule})"


@dataclass
class Row:
    """The counts of an operation in a layer.

    Attributes
    ----------
    module, operation : str
    backward : bool
        The layer, the ATen operation, and the direction.
    calls, elements : int
        The calls that were counted, and the elements of their results.
    overflow, flushed, absorbed : int
        The events. Those of all roundings and sums of the operation are added.
    error, reference : float
        The sums of squares of the differences from PyTorch's own results on the same operands, and of these results.
    """

    module: str
    operation: str
    backward: bool
    calls: int = 0
    elements: int = 0
    overflow: int = 0
    flushed: int = 0
    absorbed: int = 0
    error: float = 0.0
    reference: float = 0.0

    @property
    def relative_error(self) -> float:
        """The error of the results relative to PyTorch's own, in the Euclidean norm. NaN if it is not known."""
        return math.sqrt(self.error / self.reference) if self.reference else math.nan

    def cells(self) -> tuple[str, ...]:
        """Return the texts of a row of the table."""
        error = "-" if math.isnan(self.relative_error) else f"{self.relative_error:.1e}"
        counts = (str(each) for each in (self.elements, self.overflow, self.flushed, self.absorbed))
        return (self.module, self.operation, "backward" if self.backward else "forward", *counts, error)


_HEAD = ("module", "operation", "pass", "elements", "overflow", "flushed", "absorbed", "error")


@dataclass
class Report:
    """The table of a run. Prints as text, and is an HTML table in a notebook.

    Attributes
    ----------
    rows : list of Row
        In the order of their first call.
    first : list of Event
        The first event of each kind.
    uncovered : dict of str to int
        The operations that ran natively, with their calls.
    """

    rows: list[Row]
    first: list[Event]
    uncovered: dict[str, int]

    def __str__(self) -> str:
        table = [_HEAD, *(row.cells() for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(w) if i < 3 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in table
        ]
        ran = [f"not covered: {', '.join(f'{name} ({n})' for name, n in self.uncovered.items())}"] * bool(
            self.uncovered
        )
        return "\n".join([*(line.rstrip() for line in lines), *map(str, self.first), *ran])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{cell}</th>" for cell in _HEAD)
        body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row.cells()) + "</tr>" for row in self.rows)
        notes = "".join(f"<li>{event}</li>" for event in self.first)
        return f"<table><tr>{head}</tr>{body}</table><ul>{notes}</ul>"

    def by_module(self) -> list[tuple[str, float]]:
        """Return the modules by the largest error of an operation, the largest first."""
        found: dict[str, float] = {}
        for row in self.rows:
            if not math.isnan(row.relative_error):
                found[row.module] = max(found.get(row.module, 0.0), row.relative_error)
        return sorted(found.items(), key=lambda each: -each[1])

    def plot(self, ax: Axes | None = None, *, backward: bool = False) -> Axes:
        """Draw layer x operation: the error as a colour, and the share of lost results as a note. Return the Axes.

        Parameters
        ----------
        ax : Axes, optional
            Axes to draw into. Default: a new figure.
        backward : bool
            Whether to draw the backward pass.

        Raises
        ------
        ValueError
            If no operation of this pass was counted.
        """
        from floatsim.plot import heatmap

        rows = [row for row in self.rows if row.backward == backward]
        if not rows:
            raise ValueError(f"no operation of the {'backward' if backward else 'forward'} pass was counted")
        table: dict[str, dict[str, float | None]] = {}
        notes: dict[tuple[str, str], str] = {}
        for row in rows:
            name, error = row.module or "(outside)", row.relative_error
            table.setdefault(name, {})[row.operation] = None if math.isnan(error) else error
            counts = {"overflow": row.overflow, "flushed": row.flushed, "absorbed": row.absorbed}
            if text := ", ".join(f"{n} {kind}" for kind, n in counts.items() if n):
                notes[name, row.operation] = text
        return heatmap(table, ax=ax, title="Error against PyTorch, operation by operation", notes=notes)


@dataclass
class Run:
    """What `ft.emulate` yields.

    Attributes
    ----------
    step : int
        The number of optimizer steps so far.
    uncovered : Counter of str
        The operations that ran natively, with their calls. Their results were rounded to the policy's format.
    operations : Counter of str
        The operations that were emulated, with their calls.
    scaler : torch.amp.GradScaler
        The loss scaler of the policy. It scales by 1 if the policy has no loss scaling.
    """

    step: int = 0
    uncovered: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    scaler: Any = None
    _rows: dict[tuple[str, str, bool], Row] = field(default_factory=dict, repr=False)
    _first: dict[str, Event] = field(default_factory=dict, repr=False)

    def first(self, kind: str = "overflow") -> Event | None:
        """Return the first event of a kind, or None.

        Parameters
        ----------
        kind : str
            "overflow", "flushed" or "absorbed". Overflows are seen in every step, the other events in the counted ones.

        Raises
        ------
        ValueError
            For another kind. The message has the nearest match.

        Examples
        --------
        >>> Run().first("overflow") is None
        True
        """
        if kind not in EVENTS:
            raise ValueError(f"kind={kind!r} is no event; {name_hint(kind, EVENTS)}")
        return self._first.get(kind)

    def report(self) -> Report:
        """Return the table of all layers and operations that were counted.

        Returns
        -------
        Report
            Its `plot()` draws it.
        """
        return Report(list(self._rows.values()), list(self._first.values()), dict(self.uncovered))

    def row(self, module: str, operation: str, backward: bool) -> Row:
        """Return the row of an operation in a layer, a new one if it has none."""
        key = module, operation, backward
        if key not in self._rows:
            self._rows[key] = Row(*key)
        return self._rows[key]

    def happened(self, kind: str, module: str, operation: str, backward: bool, rule: str) -> None:
        """Keep an event if it is the first of its kind."""
        if kind not in self._first:
            self._first[kind] = Event(kind, module, operation, backward, self.step, rule)
