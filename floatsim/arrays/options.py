"""The ambient defaults of every operation, as `decimal.localcontext` has them, and how keywords meet them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypedDict, Unpack

from floatsim.arrays.random_stream import RandomStream, SeedLike, checked_seed
from floatsim.formats._validation import as_flag, as_index
from floatsim.formats.call import Manner
from floatsim.formats.rounding import (
    Attributes,
    Overflow,
    OverflowLike,
    Rounding,
    RoundingLike,
    Tininess,
    TininessLike,
    as_member,
)

__all__ = ["BACKENDS", "CURRENT_CONTEXT", "Context", "How", "as_backend", "context", "get_context", "resolve"]

BACKENDS = ("emulator", "hardware")
"""Who carries operations out: kernels on this machine's processor, or a GPU."""


@dataclass(frozen=True)
class Context:
    """The defaults in force. Change them with `context`, read them with `get_context`.

    >>> import floatsim as fs
    >>> fs.Context().overflow.name, fs.Context().seed
    ('INFINITY', None)
    """

    rounding: Rounding = Rounding.TIES_TO_EVEN
    overflow: Overflow = Overflow.INFINITY
    daz: bool = False
    ftz: bool = False
    tininess: Tininess = Tininess.AFTER
    seed: SeedLike | None = None
    random_bits: int = 32
    backend: str = "emulator"

    @cached_property
    def attributes(self) -> Attributes:
        """Of a rounding under these defaults."""
        return Attributes(self.rounding, self.overflow, self.daz, self.ftz, self.tininess, self.random_bits)


CURRENT_CONTEXT: ContextVar[Context] = ContextVar("floatsim_context", default=Context())  # noqa: B039  # it is frozen


def get_context() -> Context:
    """The ambient defaults of this thread or task.

    >>> import floatsim as fs
    >>> fs.get_context().rounding.name
    'TIES_TO_EVEN'
    """
    return CURRENT_CONTEXT.get()


class Defaults(TypedDict, total=False):
    """The keywords of `context`."""

    rounding: RoundingLike
    overflow: OverflowLike
    daz: bool
    ftz: bool
    tininess: TininessLike
    seed: SeedLike | None
    random_bits: int
    backend: str


class How(TypedDict, total=False):
    """The keywords that every rounding operation takes. None, or leaving one out, means the context's.

    rounding : Rounding or str
        Direction: "ties_to_even" ("RNE"), "ties_to_away" ("RNA"), "toward_zero" ("RTZ"), "toward_positive" ("RTP"),
        "toward_negative" ("RTN"), "to_odd" ("RTO"), "stochastic" ("SR").
    overflow : Overflow or str
        "infinity", "saturate_finite" or "saturate_propagate".
    daz, ftz : bool
        Read subnormal operands as zeros; return zero for tiny results.
    tininess : Tininess or str
        "after" or "before" rounding.
    seed : int or RandomStream
        Of stochastic rounding, which is an error without one.
    random_bits : int
        Random bits of a stochastic rounding, 1 to 64.
    offset : int
        Index of the first element in the random sequence: a chunk of an array gets its own draws.
    return_flags : bool
        Return (result, flags), flags a uint8 array of INVALID 16, DIVIDE_BY_ZERO 8, OVERFLOW 4, UNDERFLOW 2, INEXACT 1.
    """

    rounding: RoundingLike | None
    overflow: OverflowLike | None
    daz: bool | None
    ftz: bool | None
    tininess: TininessLike | None
    seed: SeedLike | None
    random_bits: int | None
    offset: int
    return_flags: bool


def as_backend(value: Any, argument: str) -> str:
    """The name of a backend; a ValueError otherwise."""
    if value not in BACKENDS:
        raise ValueError(f"{argument}={value!r} is not known; known are {', '.join(map(repr, BACKENDS))}")
    return str(value)


def _seed(value: Any, argument: str) -> SeedLike | None:
    return value if value is None or isinstance(value, RandomStream) else checked_seed(value)


_CHECKS: dict[str, Any] = {
    "rounding": lambda v, a: as_member(Rounding, v, a),
    "overflow": lambda v, a: as_member(Overflow, v, a),
    "tininess": lambda v, a: as_member(Tininess, v, a),
    "daz": as_flag,
    "ftz": as_flag,
    "seed": _seed,
    "random_bits": lambda v, a: as_index(v, a, 1, 64),
    "backend": as_backend,
}


def _with(base: Context, given: dict[str, Any], known: tuple[str, ...]) -> Context:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise TypeError(f"unknown keyword {name!r}; {hint}")
    settled = {name: _CHECKS[name](value, name) for name, value in given.items() if value is not None}
    changes = {name: value for name, value in settled.items() if value != getattr(base, name)}
    return replace(base, **changes) if changes else base


_CONTEXT_KEYWORDS = tuple(f.name for f in fields(Context))


@contextmanager
def context(**defaults: Unpack[Defaults]) -> Iterator[Context]:
    """Change the defaults inside a `with` block; keywords of a call win over them.

    Parameters
    ----------
    rounding, overflow, daz, ftz, tininess, seed, random_bits
        As in every operation (see `floatsim.arrays.options.How`).
    backend : str
        Who carries the operations out: "emulator", or "hardware", a GPU (`floatsim.hardware`).

    Raises
    ------
    TypeError, ValueError
        For an unknown keyword or value; the message names the nearest match.

    Examples
    --------
    >>> import floatsim as fs
    >>> with fs.context(rounding="toward_zero", overflow="saturate_finite"):
    ...     fs.quantize([0.999, 1e6], "fp16")
    array([9.98535156e-01, 6.55040000e+04])
    """
    token = CURRENT_CONTEXT.set(_with(get_context(), dict(defaults), _CONTEXT_KEYWORDS))
    try:
        yield get_context()
    finally:
        CURRENT_CONTEXT.reset(token)


_OF_CALLS = ("offset", "return_flags")
_OF_CONTEXTS = tuple(name for name in How.__annotations__ if name not in _OF_CALLS)


def resolve(how: How) -> Manner:
    """Settle a call's keywords against the context; a stochastic rounding without a seed is an error."""
    for name, value in how.items():
        if value is not None or name not in _OF_CONTEXTS:
            break
    else:
        return _resolve_context(get_context())
    given: dict[str, Any] = dict(how)
    offset = as_index(given.pop("offset", 0), "offset", 0, (1 << 64) - 1)
    return_flags = as_flag(given.pop("return_flags", False), "return_flags")
    return _resolve_context(_with(get_context(), given, _OF_CONTEXTS), offset, return_flags)


def _resolve_context(settled: Context, offset: int = 0, return_flags: bool = False) -> Manner:
    seed = settled.seed
    if settled.rounding is not Rounding.STOCHASTIC:
        seed = 0
    elif seed is None:
        raise ValueError("stochastic rounding needs a seed: pass seed=, or set one with fs.context(seed=...)")
    elif isinstance(seed, RandomStream):
        seed = seed.next_seed()
    return Manner(settled.attributes, seed, offset, return_flags)
