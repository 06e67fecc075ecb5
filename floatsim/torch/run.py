"""What happened in an emulation: counts for each layer and operation, the first events, and what was not covered."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from floatsim._extras import install_command
from floatsim.formats._validation import name_hint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["EVENTS", "Event", "Report", "Row", "Run", "Site", "Unverified"]

EVENTS = ("overflow", "clipped", "flushed", "absorbed")
"""The events that a run counts."""


class Unverified(NamedTuple):
    """An operation that is not known to have the bits of the policy's device.

    Attributes
    ----------
    operation : str
        The ATen operation.
    shapes : tuple of tuples of int
        The shapes of its tensors.
    why : str
        What was not compared with the device.
    """

    operation: str
    shapes: tuple[tuple[int, ...], ...]
    why: str

    def __str__(self) -> str:
        shapes = ", ".join("x".join(map(str, shape)) or "number" for shape in self.shapes)
        return f"{self.operation} ({shapes}): {self.why}"


class Site(NamedTuple):
    """Where an operation belongs: its layer, its name, its part of a training step, and the rule that decided."""

    module: str
    operation: str
    backward: bool
    rule: str = ""
    update: bool = False


_DIRECTIONS = ("forward", "backward", "update")
"""The parts of a training step, as tables name them."""


def _direction(backward: bool, update: bool) -> str:
    return _DIRECTIONS[2 if update else backward]


@dataclass(frozen=True)
class Event:
    """The first event of its kind.

    Attributes
    ----------
    kind : str
        "overflow": an operation with finite operands gave an infinity or a NaN, or a rounding inside it overflowed.
        "clipped": a number beyond the largest one of its format became that largest number, as in the blocks of MX.
        "flushed", "absorbed": as in `fs.record`.
    module : str
        The path of the module; "" outside of modules. In a step of an optimizer, the path of the weight, or "optimizer"
        where it is not known.
    operation : str
        The ATen operation.
    backward : bool
        Whether it happened in a backward pass.
    step : int
        The number of optimizer steps before.
    rule : str
        The rule of the policy that chose the formats.
    update : bool
        Whether it happened in a step of an optimizer.

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> with ft.emulate("fp16") as run:
    ...     y = torch.full((1, 2), 300.0) @ torch.full((2, 1), 300.0)
    >>> event = run.first("overflow")
    >>> event.kind, event.backward, event.step
    ('overflow', False, 0)
    """

    kind: str
    module: str
    operation: str
    backward: bool
    step: int
    rule: str = ""
    update: bool = False

    @property
    def direction(self) -> str:
        """The part of the step: "forward", "backward" or "update" (in an optimizer)."""
        return _direction(self.backward, self.update)

    def __str__(self) -> str:
        where = self.module or "outside of modules"
        return f"first {self.kind}: {where}, {self.operation}, {self.direction}, step {self.step} ({self.rule})"


@dataclass
class Row:
    """The counts of an operation in a layer.

    Attributes
    ----------
    module, operation : str
    backward, update : bool
        The layer, the ATen operation, and whether it belongs to a backward pass or to a step of an optimizer. All steps
        of optimizers belong to the layer "optimizer".
    calls, elements : int
        The calls that were counted, and the elements of their results.
    overflow, clipped, flushed, absorbed : int
        The events. Those of all roundings and sums of the operation are added. An overflow gave an infinity or a NaN.
    error, reference : float
        The sums of squares of the differences from PyTorch's own results on the same operands, and of these results.

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> with ft.emulate("bf16") as run:
    ...     y = torch.ones(2, 2) @ torch.ones(2, 2)
    >>> row = run.report().rows[0]
    >>> row.operation, row.calls, row.overflow
    ('mm', 1, 0)
    """

    module: str
    operation: str
    backward: bool
    calls: int = 0
    elements: int = 0
    overflow: int = 0
    clipped: int = 0
    flushed: int = 0
    absorbed: int = 0
    error: float = 0.0
    reference: float = 0.0
    update: bool = False

    @property
    def direction(self) -> str:
        """The part of the step: "forward", "backward" or "update" (in an optimizer)."""
        return _direction(self.backward, self.update)

    @property
    def relative_error(self) -> float:
        """The error of the results relative to PyTorch's own, in the Euclidean norm. NaN if it is not known."""
        return math.sqrt(self.error / self.reference) if self.reference else math.nan

    def cells(self) -> tuple[str, ...]:
        """Return the texts of a row of the table."""
        error = "-" if math.isnan(self.relative_error) else f"{self.relative_error:.1e}"
        counts = (str(each) for each in (self.elements, *(getattr(self, kind) for kind in EVENTS)))
        return (self.module, self.operation, self.direction, *counts, error)

    def to_dict(self) -> dict[str, Any]:
        """Return the columns of the table as numbers and texts. An error that is not known is None."""
        error = None if math.isnan(self.relative_error) else self.relative_error
        counts = {name: getattr(self, name) for name in ("calls", "elements", *EVENTS)}
        return {"module": self.module, "operation": self.operation, "pass": self.direction, **counts, "error": error}


_HEAD = ("module", "operation", "pass", "elements", *EVENTS, "error")


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

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> with ft.emulate("bf16") as run:
    ...     y = torch.ones(2, 2) @ torch.ones(2, 2)
    >>> [row.calls for row in run.report().rows]
    [1]
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

    def to_dict(self) -> dict[str, Any]:
        """Return the report as dicts, lists, texts and numbers, for JSON.

        Returns
        -------
        dict
            "rows", one dict for each row; "first", one for each event; "uncovered", the calls by operation.

        Examples
        --------
        >>> Report([Row("0", "mm", False, 1, 4)], [], {}).to_dict()["rows"][0]["elements"]
        4
        """
        first = [asdict(event) for event in self.first]
        return {"rows": [row.to_dict() for row in self.rows], "first": first, "uncovered": dict(self.uncovered)}

    def to_pandas(self) -> Any:
        """Return the rows as a DataFrame with the columns of the table and the number of calls.

        Raises
        ------
        ImportError
            If pandas is not installed.

        Examples
        --------
        >>> Report([Row("0", "mm", False, 1, 4)], [], {}).to_pandas()[["module", "elements"]].values.tolist()
        [['0', 4]]
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError(f"to_pandas() needs pandas: {install_command('pandas')}") from error
        return pandas.DataFrame([row.to_dict() for row in self.rows], columns=list(Row("", "", False).to_dict()))

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

        rows = [row for row in self.rows if row.backward == backward and not row.update]
        if not rows:
            raise ValueError(f"no operation of the {'backward' if backward else 'forward'} pass was counted")
        table: dict[str, dict[str, float | None]] = {}
        notes: dict[tuple[str, str], str] = {}
        for row in rows:
            name, error = row.module or "(outside)", row.relative_error
            table.setdefault(name, {})[row.operation] = None if math.isnan(error) else error
            counts = {kind: getattr(row, kind) for kind in EVENTS}
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
    cached : Counter of str
        Under a policy with a `cache`, the paths of the modules whose keys or values were stored, with the calls.
    unverified : Counter of Unverified
        Under a policy with a `device`, the operations that are not known to have the bits of the device, with their
        calls. Empty: every operation follows a rule that was compared with recordings of the device.
    scaler : torch.amp.GradScaler
        The loss scaler of the policy. It scales by 1 if the policy has no loss scaling.

    Examples
    --------
    >>> import torch, floatsim.torch as ft
    >>> with ft.emulate("bf16") as run:
    ...     y = torch.ones(2, 2) @ torch.ones(2, 2)
    >>> run.step, sum(run.operations.values())
    (0, 1)
    """

    step: int = 0
    uncovered: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    cached: Counter[str] = field(default_factory=Counter)
    unverified: Counter[Unverified] = field(default_factory=Counter)
    scaler: Any = None
    _rows: dict[Site, Row] = field(default_factory=dict, repr=False)
    _first: dict[str, Event] = field(default_factory=dict, repr=False)
    _emulation: Any = field(default=None, repr=False)

    def pause(self) -> AbstractContextManager[None]:
        """Leave the emulation for a block, for example for an evaluation in plain PyTorch, and continue after it.

        In the block PyTorch computes by itself, with the stored weights. Another `ft.emulate` may be used inside.

        Raises
        ------
        RuntimeError
            Outside of the block of the emulation, in a step of an optimizer, and in a pause.

        Examples
        --------
        >>> import torch, floatsim.torch as ft
        >>> with ft.emulate("bf16") as run:
        ...     with run.pause():
        ...         print(torch.tensor(1.0) + 2**-10)
        tensor(1.0010)
        """
        return self._emulation.pause()  # type: ignore[no-any-return]

    def state_dict(self) -> dict[str, Any]:
        """Return what a run keeps beside the tensors of the model and of the optimizer, to resume with the same bits.

        Returns
        -------
        dict
            The number of steps, the random draws, the loss scale, and the histories of scaling methods, as numbers,
            texts, lists, dicts and tensors. `torch.save` takes it.

        Examples
        --------
        >>> import torch, floatsim.torch as ft
        >>> with ft.emulate("te-fp8") as run:
        ...     _ = torch.ones(1, 2) @ torch.ones(2, 1)
        >>> sorted(run.state_dict())
        ['draws', 'loss_scaler', 'scaling', 'seed', 'step', 'version']
        """
        return self._emulation.state_dict()  # type: ignore[no-any-return]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the run that returned this state.

        Load the states of the model and of the optimizer first.

        Parameters
        ----------
        state : dict
            What `state_dict` of a run with the same policy returned.

        Raises
        ------
        ValueError
            For other objects, and for the state of a policy with another seed or without the same loss scaling.

        Examples
        --------
        >>> import torch, floatsim.torch as ft
        >>> with ft.emulate("te-fp8") as run:
        ...     saved = run.state_dict()
        >>> with ft.emulate("te-fp8") as run:
        ...     run.load_state_dict(saved)
        """
        self._emulation.load_state_dict(state)

    def first(self, kind: str = "overflow") -> Event | None:
        """Return the first event of a kind, or None.

        Parameters
        ----------
        kind : str
            "overflow", "clipped", "flushed" or "absorbed". Overflows are seen in every step, the other events in the
            counted ones.

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

    def row(self, site: Site) -> Row:
        """Return the row of an operation in a layer, a new one if it has none."""
        key = site._replace(rule="")
        if key not in self._rows:
            self._rows[key] = Row(site.module, site.operation, site.backward, update=site.update)
        return self._rows[key]

    def happened(self, kind: str, site: Site) -> None:
        """Keep an event if it is the first of its kind."""
        if kind not in self._first:
            module, operation, backward, rule, update = site
            self._first[kind] = Event(kind, module, operation, backward, self.step, rule, update)
