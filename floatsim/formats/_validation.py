"""Checks of plain arguments: each returns the value or raises an error that names the argument. Hints for names."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, SupportsFloat, TypeVar

__all__ = ["as_flag", "as_index", "as_real", "every_name_hint", "name_hint", "nearest_name", "with_keyword_hints"]


P = ParamSpec("P")
T = TypeVar("T")


def as_flag(value: Any, argument: str) -> bool:
    """Return a bool from Python's or NumPy's, or raise a TypeError."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise TypeError(f"{argument} must be True or False, not {value!r}")
    return bool(value)


def as_real(value: Any, argument: str, low: float = -math.inf) -> float:
    """Return a finite real number, not below `low`, or raise an error that names the argument."""
    if isinstance(value, bool | str) or not isinstance(value, SupportsFloat):
        raise TypeError(f"{argument} must be a number, not {value!r}")
    number = float(value)
    if not low <= number < math.inf:
        bound = "" if low == -math.inf else f" of at least {low:g}"
        raise ValueError(f"{argument} must be a finite number{bound}, not {value!r}")
    return number


def as_index(value: Any, argument: str, low: int, high: int, wanted: str = "an integer") -> int:
    """Return an integer from low to high, or raise a TypeError or ValueError."""
    if isinstance(value, bool):
        raise TypeError(f"{argument} must be {wanted}, not {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{argument} must be {wanted}, not {value!r}") from None
    if not low <= number <= high:
        # a number below `low` needs no upper bound in the message, if that bound is only the size of an integer
        bounds = f"at least {low}" if number < low and high >= 1 << 31 else f"{low} to {high}"
        raise ValueError(f"{argument} must be {bounds}, not {number}")
    return number


def nearest_name(name: object, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to an unknown one, or None."""
    return next(iter(difflib.get_close_matches(str(name), list(known), n=1)), None)


def name_hint(name: object, known: Iterable[str]) -> str:
    """Return the end of an error message about an unknown name: the nearest name, or all of them.

    >>> name_hint("fp61", ["fp16", "bf16"]), name_hint("x", ["fp16", "bf16"])
    ("did you mean 'fp16'?", 'known are fp16, bf16')
    """
    names = list(known)
    near = nearest_name(name, names)
    return f"did you mean {near!r}?" if near else f"known are {', '.join(names)}"


def every_name_hint(name: object, known: Iterable[str]) -> str:
    """Return the end of an error message about an unknown name: the nearest name if there is one, and all of them.

    The most similar names come first.

    >>> every_name_hint("fp61", ["bf16", "fp16"]), every_name_hint("x", ["fp16", "bf16"])
    ("did you mean 'fp16'? known are fp16, bf16", 'known are fp16, bf16')
    """
    names = list(known)
    near = nearest_name(name, names)
    names.sort(key=lambda other: -difflib.SequenceMatcher(None, str(name), other).ratio())
    return f"did you mean {near!r}? " * (near is not None) + f"known are {', '.join(names)}"


def with_keyword_hints(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function raise a TypeError that lists its keywords, the nearest first, for an unknown keyword."""
    parameters = inspect.signature(function).parameters.values()
    names = [x.name for x in parameters if x.kind in (x.KEYWORD_ONLY, x.POSITIONAL_OR_KEYWORD) and x.name != "self"]

    @functools.wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> T:
        for name in keywords:
            if name not in names:
                what = function.__qualname__.removesuffix(".__init__")
                raise TypeError(f"{what}: unknown keyword {name!r}; {every_name_hint(name, names)}")
        return function(*args, **keywords)

    return call
