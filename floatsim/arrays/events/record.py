"""Counting what happens: `with record() as log`, and naming where: `with scope("layer1")`."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from floatsim.arrays.call import backends
from floatsim.arrays.events.cancellation import CANCELLING, cancelled
from floatsim.arrays.events.counts import ALL, CANCELLATION, CLIPPED, DEFAULT, Call, FirstSteps, SumEvents, TermsAt
from floatsim.arrays.events.log import Log
from floatsim.formats import FloatFormat
from floatsim.formats._validation import as_flag, as_index, name_hint
from floatsim.formats.rounding import OVERFLOW

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ACTIVE_LOGS", "note", "note_sums", "one_recorded_call", "record", "recording", "scope", "wanted"]

P = ParamSpec("P")
R = TypeVar("R")

_ADDING = threading.Lock()
"""Held while logs are filled: `bind_context` lets several threads fill one log."""

ACTIVE_LOGS: ContextVar[tuple[Log, ...]] = ContextVar("floatsim_record", default=())

_SCOPE: ContextVar[str] = ContextVar("floatsim_scope", default="")

_OPEN_CALL: ContextVar[dict[int, Call] | None] = ContextVar("floatsim_open_call", default=None)
"""The call at work, by the identity of the log; None outside of `one_recorded_call`."""


def recording() -> bool:
    """Return whether a `record` is open in this thread or task."""
    return bool(ACTIVE_LOGS.get())


_NO_EVENTS: frozenset[str] = frozenset()


def wanted() -> frozenset[str]:
    """Return the events that kernels count for the open records; none if no record is open.

    Equal sets are one object: plans are cached by the identity of the set.
    """
    logs = ACTIVE_LOGS.get()
    return _wanted(*[log.events for log in logs]) if logs else _NO_EVENTS


@functools.lru_cache(maxsize=256)
def _wanted(*events: frozenset[str]) -> frozenset[str]:
    asked = _NO_EVENTS.union(*events)
    return asked - {CANCELLATION, CLIPPED} | ({"overflow"} if CLIPPED in asked else _NO_EVENTS)


def _known_events(events: Iterable[str] | None) -> frozenset[str]:
    if events is None:
        return DEFAULT
    if isinstance(events, str):
        raise TypeError(f"events must be a collection of names, not {events!r}; write events=[{events!r}]")
    asked = list(events)
    for name in asked:
        if name not in ALL:
            raise ValueError(f"events: {name!r} is no event; {name_hint(name, sorted(ALL))}")
    if not asked:
        raise ValueError(f"events must name at least one of {', '.join(sorted(ALL))}")
    return frozenset(asked)


# -- the public blocks -------------------------------------------------------------------------------------------------


@contextmanager
def record(
    *, events: Iterable[str] | None = None, where: bool = False, keep: int = 10, calls: bool = True,
    lines: bool = False,
) -> Iterator[Log]:  # fmt: skip
    """Count events inside a `with` block: overflow, underflow, flushed to zero, subnormal, inexact, absorbed, ...

    Parameters
    ----------
    events : iterable of str, optional
        The events to count: "invalid", "divide_by_zero", "overflow", "underflow", "flushed", "subnormal", "inexact",
        "absorbed", "nan" for `log.first` alone, "cancellation" of `add`, `subtract` and `fma`, and "clipped". Default:
        all but the last two, which take more time. Matrix products are faster with few.
    where : bool
        Keep the index, operands and result of the first events of each kind, too. Matrix products and reductions keep
        the first k of the element, and the operands of term k.
    keep : int
        The number of events of each kind, operation and scope that `where` keeps.
    calls : bool
        Keep an entry for each call in `log.calls`, with its counts, and with the first k of each event for each element
        of its result. False keeps the totals alone, for long computations.
    lines : bool
        Keep the file and line of the caller for each call and event.

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
    unchanged. *cancellation*: the exponent of the result is below the largest exponent of an operand; `exact_zeros`
    counts the zeros from operands that are not all zero. *clipped*: a result of an element-wise operation, a conversion
    or a quantization overflowed, and is a finite number by saturation or by a directed rounding mode; *overflow* counts
    it, too. Without a `record`, nothing is counted and the fast kernels
    run.

    `log["add"]` has the totals of an operation, `log.total` those of all operations. `log.scopes` has the totals of
    each `fs.scope`, and `log.calls` the counts of each call. `log.to_pandas()` has one row for each call and rounding
    site.

    Examples
    --------
    >>> import floatsim as fs
    >>> with fs.record(where=True) as log:
    ...     y = fs.array([60000.0, 1e-4], "fp16") * fs.array([2.0, 1e-4], "fp16")
    >>> log["multiply"].overflow, log["multiply"].flushed
    (1, 1)
    >>> print(log.where[0])
    multiply[0] overflow: (60000, 2) -> inf

    The first k of each product, and the operands of that term:

    >>> a, b = fs.array([[60000.0, 6000.0]], "fp16"), fs.array([[1.0], [1.0]], "fp16")
    >>> with fs.record(events=["overflow", "absorbed"], where=True) as log:
    ...     y = fs.matmul(a, b, accumulate="fp16"), fs.matmul(a, a.T, accumulate="fp16")
    >>> [call.first["overflow"].tolist() for call in log.calls]
    [[[1]], [[0]]]
    >>> print(log.where[0])
    matmul[0, 0] overflow at k = 1: (6000, 1) -> inf
    """
    keep = as_index(keep, "keep", 0, 1 << 31)
    log = Log(
        keep if as_flag(where, "where") else 0,
        events=_known_events(events),
        keeps_calls=as_flag(calls, "calls"),
        lines=as_flag(lines, "lines"),
    )
    token = ACTIVE_LOGS.set((*ACTIVE_LOGS.get(), log))
    try:
        yield log
    finally:
        ACTIVE_LOGS.reset(token)


@contextmanager
def scope(name: str) -> Iterator[str]:
    """Name a part of a computation, such as a layer: `fs.record` counts the operations inside under this name.

    Parameters
    ----------
    name : str
        The name. Inside another scope the two names are joined by a slash, as in "model/layer1".

    Yields
    ------
    str
        The path of names.

    Raises
    ------
    TypeError
        If `name` is no str.
    ValueError
        If `name` or a part of it between slashes is empty.

    Notes
    -----
    The block applies to the thread or task that enters it. `fs.bind_context` extends it to worker threads. Operations
    do not read the scope unless a `record` is open. `fs.scope` is a decorator, too.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.array([6e4, 1.0], "fp16")
    >>> with fs.record(events=["overflow"]) as log, fs.scope("model"):
    ...     y = x + x
    ...     with fs.scope("layer1"):
    ...         y = x * x
    >>> print(log)
    scope         operation  elements  overflow
    model         add               2         1
    model/layer1  multiply          2         1
    >>> log.scopes["model/layer1"]["multiply"].overflow, log["multiply"].overflow
    (1, 1)
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, such as 'layer1', not {name!r}")
    if not all(name.split("/")):
        raise ValueError(f"name must be one name, or names joined by single slashes, not {name!r}")
    outer = _SCOPE.get()
    path = f"{outer}/{name}" if outer else name
    token = _SCOPE.set(path)
    try:
        yield path
    finally:
        _SCOPE.reset(token)


# -- called by the operations ------------------------------------------------------------------------------------------


def one_recorded_call(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function that notes several times: the open records see one call."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        if not ACTIVE_LOGS.get():
            return function(*args, **kwargs)
        token = _OPEN_CALL.set({})
        try:
            return function(*args, **kwargs)
        finally:
            _OPEN_CALL.reset(token)

    return called


_PACKAGE = str(Path(__file__).parents[1])


def _caller() -> str:
    """Return the file and line of the nearest caller outside of floatsim and NumPy."""
    import numpy as np

    frame, inside = sys._getframe(1), (_PACKAGE + os.sep, str(Path(np.__file__).parent) + os.sep)
    while frame.f_code.co_filename.startswith(inside) and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _calls(logs: tuple[Log, ...], operation: str) -> list[tuple[Log, Call]]:
    """Return the logs, each with the call that events of this operation belong to."""
    opened = _OPEN_CALL.get()
    if opened is None:
        opened = {}
    if new := [log for log in logs if id(log) not in opened]:
        line = _caller() if any(log.lines for log in new) else None
        for log in new:
            opened[id(log)] = log.new_call(operation.partition(".")[0], _SCOPE.get(), line)
    return [(log, opened[id(log)]) for log in logs]


def note(
    operation: str,
    events: NDArray[np.uint8],
    operands: Sequence[tuple[NDArray[Any], FloatFormat | None]],
    result: tuple[NDArray[Any], FloatFormat] | None,
    daz: bool = False,
) -> None:
    """Tell the open records what an element-wise operation did. `daz`: subnormal operands were read as zeros."""
    logs = ACTIVE_LOGS.get()
    if not logs:
        return
    histogram = backends.emulator().event_histogram(events)
    with _ADDING, _paused():
        lost = None
        if operation in CANCELLING and any(CANCELLATION in log.events for log in logs):
            lost = cancelled(operation, events, operands, result, daz)  # type: ignore[arg-type]  # they have formats
        finite = _clipped(events, result) if any(CLIPPED in log.events for log in logs) else 0
        for log, call in _calls(logs, operation):
            log.add_histogram(call, operation, histogram)
            if CLIPPED in log.events:
                log.add_clipped(call, operation, finite)
            if lost is not None and CANCELLATION in log.events:
                log.add_cancelled(call, operation, lost)
            if log.keep:
                log.add_places(call, operation, events, operands, result)


def _clipped(events: NDArray[np.uint8], result: tuple[NDArray[Any], FloatFormat] | None) -> int:
    """Return the number of results that overflowed and are finite. Integers, and codes of tables, always are."""
    import numpy as np

    places = (events & OVERFLOW) != 0
    if result is None or not places.any():
        return int(places.sum())
    codes, fmt = result
    return int(np.isfinite(backends.emulator().decode(np.broadcast_to(codes, events.shape)[places], fmt)).sum())


def note_sums(
    operation: str, sums: SumEvents, shape: tuple[int, ...], fmt: FloatFormat, terms: TermsAt
) -> None:  # fmt: skip
    """Add the events at the rounding sites of a matrix product or reduction to the open records.

    `fmt` is the format of the sums, before the last rounding. `terms` returns the operands of a term.
    """
    logs = ACTIVE_LOGS.get()
    if not logs:
        return
    with _ADDING, _paused():
        for log, call in _calls(logs, operation):
            for site, histogram in sums.histograms.items():
                log.add_histogram(call, f"{operation}.{site}", histogram)
            log.first = FirstSteps({name: k.reshape(shape) for name, k in sums.first.items() if name in log.events})
            if log.keeps_calls:
                call.keep_first(log.first)
            if log.keep:
                log.add_terms(call, operation, log.first, (sums.codes, fmt), terms)


@contextmanager
def _paused() -> Iterator[None]:
    token = ACTIVE_LOGS.set(())
    try:
        yield
    finally:
        ACTIVE_LOGS.reset(token)
