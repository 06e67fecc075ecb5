"""Listeners that receive the report of every comparison, such as the pytest plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["listening", "record"]

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


def record(report: Any) -> None:
    """Pass a report to the listeners."""
    for listener in _listeners:
        listener(report)
