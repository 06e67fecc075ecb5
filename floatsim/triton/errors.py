"""The error for operations of a kernel that have no definition."""

from __future__ import annotations

__all__ = ["UndefinedOperationError"]


class UndefinedOperationError(NotImplementedError):
    """A kernel uses an operation of Triton for which floatsim has no definition. The message says what to write.

    >>> import floatsim.triton as ftl
    >>> issubclass(ftl.UndefinedOperationError, NotImplementedError)
    True
    """
