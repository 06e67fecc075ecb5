"""The end of every assertion: its report goes to the listeners, such as the pytest plugin, and raises if it failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

__all__ = ["checked", "listening"]

_listeners: list[Callable[[Any], None]] = []


@contextmanager
def listening(listener: Callable[[Any], None]) -> Iterator[None]:
    """Call `listener` with the report of every assertion inside the block.

    >>> import floatsim as fs
    >>> reports = []
    >>> with listening(reports.append):
    ...     report = fs.testing.assert_bit_equal(fs.array([1.0], "fp16"), fs.array([1.0], "fp16"))
    >>> [report.passed for report in reports]
    [True]
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


class AnyReport(Protocol):
    """A report of a comparison; its text says what differs."""

    @property
    def passed(self) -> bool: ...


R = TypeVar("R", bound=AnyReport)


def checked(report: R) -> R:
    """Pass a report to the listeners. Return it if it passed, or raise an AssertionError with its text."""
    __tracebackhide__ = True
    for listener in _listeners:
        listener(report)
    if not report.passed:
        raise AssertionError(str(report))
    return report
