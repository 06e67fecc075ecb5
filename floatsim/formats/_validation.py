"""Checks of plain arguments: each returns the value or raises an error that names the argument. Hints for names."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsFloat, TypeVar

__all__ = [
    "HINTS",
    "as_flag",
    "as_index",
    "as_real",
    "as_word",
    "every_name_hint",
    "name_hint",
    "near_or_first",
    "nearest_name",
    "refuse_unknown_keyword",
    "with_keyword_hints",
]  # fmt: skip

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


def near_or_first(name: object, known: Iterable[str], most: int = 12) -> str:
    """Return the end of an error message about an unknown name: the nearest one if there is one, and the first ones.

    >>> near_or_first("layer.v", ["layer.w", "norm"]), near_or_first("x", "abcdefghijklm", most=3)
    ("did you mean 'layer.w'? it has layer.w, norm", 'it has a, b, c, ...')
    """
    names = list(known)
    near = nearest_name(name, names)
    first = ", ".join(names[:most]) + (", ..." if len(names) > most else "")
    return f"{'' if near is None else f'did you mean {near!r}? '}it has {first or 'no tensor'}"


def as_word(value: Any, argument: str, known: Sequence[str]) -> str:
    """Return one of the known words, or raise a ValueError that names them."""
    if value not in known:
        raise ValueError(f"{argument}={value!r} is not known; {name_hint(value, known)}")
    return str(value)


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


def refuse_unknown_keyword(function: Callable[..., Any], keywords: Iterable[str]) -> None:
    """Raise a TypeError that lists all keywords of a function, the nearest first, if one of `keywords` is unknown."""
    function = inspect.unwrap(function)
    known: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            known += [parameter.name] * (parameter.kind is not parameter.VAR_POSITIONAL and parameter.name != "self")
        elif (options := _UNPACKED.fullmatch(str(parameter.annotation))) is None:
            return  # the function passes its keywords on
        else:
            known += function.__globals__[options[1]].__annotations__
    what = function.__qualname__.removesuffix(".__init__")
    for name in keywords:
        if name not in known:
            hint = every_name_hint(name, known) if known else "it takes no arguments"
            raise TypeError(f"{what}: unknown keyword {name!r}; {hint}") from None


_UNPACKED = re.compile(r"Unpack\[(\w+)\]")


def with_keyword_hints(value: T) -> T:
    """Return a function that raises a TypeError with all its keywords, the nearest first, for an unknown keyword.

    The constructor of a class is replaced in the class. Other values are returned as they are.
    """
    if inspect.isclass(value):
        owner = next(each for each in value.__mro__ if "__init__" in vars(each))
        constructor = vars(owner)["__init__"]
        if inspect.isfunction(constructor) and constructor.__module__.startswith("floatsim"):
            owner.__init__ = with_keyword_hints(constructor)  # type: ignore[misc]
    if not inspect.isfunction(value) or HINTS in vars(value):
        return value
    function: Callable[..., Any] = value

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        __tracebackhide__ = True
        try:
            return function(*args, **keywords)
        except TypeError:
            refuse_unknown_keyword(function, keywords)
            raise

    vars(call)[HINTS] = True
    return call  # type: ignore[return-value]


HINTS = "__keyword_hints__"
"""The attribute of functions that name the nearest keyword themselves."""
