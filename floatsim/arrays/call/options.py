"""The ambient defaults of every operation, as `decimal.localcontext` has them, and how keywords meet them."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, ParamSpec, TypeAlias, TypedDict, TypeVar, Unpack

from floatsim._warnings import warn
from floatsim.arrays.call.random_sources import RandomGenerator, check_random_bits
from floatsim.arrays.call.random_stream import RandomStream, SeedLike, checked_seed
from floatsim.formats._validation import as_flag, as_index, name_hint
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import (
    Overflow,
    OverflowLike,
    Rounding,
    RoundingAttributes,
    RoundingLike,
    Tininess,
    TininessLike,
    as_member,
)

__all__ = [
    "BACKENDS", "CURRENT_CONTEXT", "BackendName", "Context", "RoundingKeywords", "RoundingOptions", "as_backend",
    "bind_context", "context", "get_context", "one_call", "resolve", "spell_out",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")

BackendName: TypeAlias = Literal["emulator", "hardware", "native-cpu"]
BACKENDS: tuple[BackendName, ...] = ("emulator", "hardware", "native-cpu")
"""The backends: kernels on this machine's processor, a GPU, or this processor's own matrix and dot instructions."""


@dataclass(frozen=True)
class Context:
    """The defaults in force. Change them with `context`, read them with `get_context`.

    Attributes
    ----------
    rounding, overflow, daz, ftz, tininess, seed, random_bits, backend
        The keywords of `fs.context`, as members, booleans and integers.

    Examples
    --------
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
    backend: BackendName = "emulator"

    @cached_property
    def attributes(self) -> RoundingAttributes:
        """The attributes of a rounding under these defaults."""
        source = None
        if self.rounding is Rounding.STOCHASTIC and isinstance(self.seed, RandomGenerator | RandomStream):
            source = self.seed.source
        if source is not None:
            check_random_bits(source, self.random_bits)
        return RoundingAttributes(
            self.rounding, self.overflow, self.daz, self.ftz, self.tininess, self.random_bits, source
        )

    @cached_property
    def plain_call(self) -> CallOptions:
        """The options of a call without keywords, if the rounding draws nothing."""
        return CallOptions(self.attributes)


CURRENT_CONTEXT: ContextVar[Context] = ContextVar("floatsim_context", default=Context())  # noqa: B039  # it is frozen


class _SeedUse:
    """The number of calls that used the integer seed of one `context` block, nested blocks included."""

    def __init__(self) -> None:
        self._calls = 0
        self._lock = threading.Lock()  # `bind_context` shares the block with other threads

    def note(self, seed: int | RandomGenerator) -> None:
        """Count one call; the second one warns."""
        with self._lock:
            self._calls += 1
            repeated = self._calls == 2
        if repeated:
            given = f"fs.{seed}" if isinstance(seed, RandomGenerator) else seed
            warn(
                f"a second stochastic call uses seed={given} of the context and repeats the same random draws; "
                f"fs.context(seed=fs.RandomStream({given})) draws new ones at each call. To repeat the draws on "
                f"purpose, pass seed={given} to the call"
            )


_SEED_USE: ContextVar[_SeedUse | None] = ContextVar("floatsim_seed_use", default=None)
"""Of the context's seed; None where it advances."""


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
    backend: BackendName


class RoundingKeywords(TypedDict, total=False):
    """The rounding options of a call. `RoundingOptions` documents them."""

    rounding: RoundingLike | None
    overflow: OverflowLike | None
    daz: bool | None
    ftz: bool | None
    tininess: TininessLike | None
    seed: SeedLike | None
    random_bits: int | None
    offset: int


class RoundingOptions(RoundingKeywords, total=False):
    """The keywords that every rounding operation takes.

    rounding : Rounding or str, optional
        "ties_to_even" ("RNE"), "ties_to_away" ("RNA"), "toward_zero" ("RTZ"), "toward_positive" ("RTP"),
        "toward_negative" ("RTN"), "to_odd" ("RTO"), "stochastic" ("SR"). Default of this keyword and of the next six:
        the context's (`fs.context`).
    overflow : Overflow or str, optional
        The result beyond the largest finite number: "infinity", "saturate_finite" or "saturate_propagate".
    daz, ftz : bool, optional
        Read subnormal operands as zeros; return zero for tiny results.
    tininess : Tininess or str, optional
        When a result counts as tiny: "after" or "before" rounding.
    seed : int, generator or RandomStream, optional
        The seed of stochastic rounding, which is an error without one. An integer repeats the same draws at each call,
        a `fs.RandomStream` draws new ones. `fs.Philox`, `fs.Threefry` and `fs.Lfsr` draw the bits of other generators.
    random_bits : int, optional
        The random bits of a stochastic rounding, 1 to 64.
    offset : int, optional
        Index of the first element in the random sequence: a chunk of an array gets its own draws.
    return_flags : bool, optional
        Return (result, flags), flags a uint8 array of INVALID 16, DIVIDE_BY_ZERO 8, OVERFLOW 4, UNDERFLOW 2, INEXACT 1.

    Returns
    -------
    FloatArray or ndarray
        A FloatArray if an operand is one, or if the format has no dtype. With `return_flags`, (result, flags).

    Raises
    ------
    TypeError
        For different formats without `format=`, for scale formats, and for unknown keywords.
    ValueError
        For shapes that do not broadcast, for unknown names of options, and for stochastic rounding without a seed.
    """

    return_flags: bool


def spell_out(keywords: type) -> Callable[[F], F]:
    """Return a decorator that fills in the docstring of a function, by the docstring of the TypedDict of its keywords.

    - `{keywords}`: the keywords of the TypedDict.
    - `{results}`: its sections Returns and Raises. `{raises}`: the second one.
    - `{options}`: the function's own keywords `format` and `out`, `{keywords}` and `{results}`.
    - `{parameters}`: a section of parameters, with the operands and `{options}`.

    The docstring loses its indentation, as `inspect.getdoc` returns it.
    """

    def decorate(function: F) -> F:
        if not function.__doc__ or not keywords.__doc__:  # python -OO removes them
            return function
        listed, _, results = inspect.cleandoc(keywords.__doc__).partition("\n\n")[2].partition("\n\n")
        names = list(inspect.signature(function).parameters)
        operands = [name for name in names if name not in ("format", "out", "options")]
        options = "".join(text for name, text in _OPTIONS.items() if name in names) + f"{listed}\n\n{results}"
        shapes = " The shapes broadcast." if len(operands) > 1 else ""
        texts = {
            "{keywords}": listed, "{results}": results, "{raises}": results[results.find("Raises\n") :],
            "{options}": options,
            "{parameters}": f"Parameters\n----------\n{', '.join(operands)} : array_like of floats\n"
                            f"    FloatArrays, arrays whose dtype is a format, or Python numbers.{shapes}\n{options}",
        }  # fmt: skip
        doc = inspect.cleandoc(function.__doc__)
        for placeholder, text in texts.items():
            doc = doc.replace(placeholder, text)
        function.__doc__ = doc
        return function

    return decorate


_OPTIONS = {
    "format": "format : format, optional\n"
              "    The format of the result. Default: that of the operands. Required if their formats differ.\n",
    "out": "out : FloatArray or ndarray, optional\n    Where to write the result.\n",
}  # fmt: skip
"""The keywords next to the rounding options, and their documentation."""


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
            raise TypeError(f"unknown keyword {name!r}; {name_hint(name, known)}")
    settled = {name: _CHECKS[name](value, name) for name, value in given.items() if value is not None}
    changes = {name: value for name, value in settled.items() if value != getattr(base, name)}
    return replace(base, **changes) if changes else base


_CONTEXT_KEYWORDS = tuple(f.name for f in fields(Context))


@contextmanager
def context(**defaults: Unpack[Defaults]) -> Iterator[Context]:
    """Change the defaults inside a `with` block; keywords of a call win over them.

    Parameters
    ----------
    rounding : Rounding or str
        "ties_to_even" ("RNE"), "ties_to_away" ("RNA"), "toward_zero" ("RTZ"), "toward_positive" ("RTP"),
        "toward_negative" ("RTN"), "to_odd" ("RTO"), "stochastic" ("SR").
    overflow : Overflow or str
        The result beyond the largest finite number: "infinity", "saturate_finite" or "saturate_propagate".
    daz, ftz : bool
        Read subnormal operands as zeros; return zero for tiny results.
    tininess : Tininess or str
        When a result counts as tiny: "after" or "before" rounding.
    seed : int, generator or RandomStream
        The seed of stochastic rounding. A `fs.RandomStream` draws new random numbers at each call: use it for training
        and for all other repeated calls. An integer repeats the same draws at each call.
    random_bits : int
        The random bits of a stochastic rounding, 1 to 64.
    backend : str
        "emulator": compute on the CPU. "hardware": compute on a GPU (`floatsim.hardware`). "native-cpu": compute on
        this CPU's own matrix, dot and conversion instructions.

    Raises
    ------
    TypeError, ValueError
        For an unknown keyword or value; the message names the nearest match.

    Warns
    -----
    FloatsimWarning
        Once for each block, if a second stochastic call uses the integer seed of the context. Calls that pass `seed=`
        or a non-zero `offset=` do not count.

    Notes
    -----
    The block applies to the thread or task that enters it. `fs.bind_context` extends it to worker threads.

    Examples
    --------
    >>> import floatsim as fs
    >>> with fs.context(rounding="toward_zero", overflow="saturate_finite"):
    ...     fs.quantize([0.999, 1e6], "fp16")
    array([9.98535156e-01, 6.55040000e+04])
    """
    settled = _with(get_context(), dict(defaults), _CONTEXT_KEYWORDS)
    use = _SEED_USE.get()
    if defaults.get("seed") is not None:
        use = None if isinstance(settled.seed, RandomStream) else _SeedUse()
    token, use_token = CURRENT_CONTEXT.set(settled), _SEED_USE.set(use)
    try:
        yield settled
    finally:
        CURRENT_CONTEXT.reset(token)
        _SEED_USE.reset(use_token)


def bind_context(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that runs `function` with the defaults, records and scope of this thread, in any thread.

    Worker threads start with floatsim's initial defaults, and `fs.record` does not count their operations. Wrap the
    function that an executor runs.

    Parameters
    ----------
    function : callable
        The function to run in other threads.

    Returns
    -------
    callable
        It takes the arguments of `function`. Each call runs in a new copy of the context variables (`contextvars`) of
        the thread that called `bind_context`, so several threads can call it at the same time. A block of `fs.context`
        inside the function ends with the call.

    Notes
    -----
    A thread can call it after the block has ended: the defaults still apply, and the log is still filled. A process
    pool cannot use it.

    Examples
    --------
    >>> import floatsim as fs
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with fs.context(rounding="toward_positive"), fs.record() as log, ThreadPoolExecutor(2) as pool:
    ...     list(pool.map(fs.bind_context(lambda x: float(fs.quantize(x, "bf16"))), [0.1, 0.2]))
    [0.10009765625, 0.2001953125]
    >>> log["quantize"].inexact
    2
    """
    captured = copy_context()

    @functools.wraps(function)
    def bound(*args: P.args, **kwargs: P.kwargs) -> R:
        return captured.copy().run(function, *args, **kwargs)

    return bound


@contextmanager
def one_call() -> Iterator[None]:
    """Suppress the warning of a repeated seed, for a public call that makes several calls with the context's seed."""
    token = _SEED_USE.set(None)
    try:
        yield
    finally:
        _SEED_USE.reset(token)


_OF_CALLS = ("offset", "return_flags")
_OF_CONTEXTS = tuple(name for name in RoundingOptions.__annotations__ if name not in _OF_CALLS)


def resolve(options: RoundingOptions) -> CallOptions:
    """Settle a call's keywords against the context; a stochastic rounding without a seed is an error."""
    for name, value in options.items():
        if value is not None or name not in _OF_CONTEXTS:
            break
    else:
        return _resolve_context(get_context())
    given: dict[str, Any] = dict(options)
    offset = as_index(given.pop("offset", 0), "offset", 0, (1 << 64) - 1)
    return_flags = as_flag(given.pop("return_flags", False), "return_flags")
    own_draws = offset != 0 or given.get("seed") is not None
    return _resolve_context(_with(get_context(), given, _OF_CONTEXTS), offset, return_flags, own_draws)


def _resolve_context(
    settled: Context, offset: int = 0, return_flags: bool = False, own_draws: bool = False
) -> CallOptions:  # fmt: skip
    """The resolved options. `own_draws`: the call chose its draws itself, with `seed=` or `offset=`."""
    seed = settled.seed
    if settled.rounding is not Rounding.STOCHASTIC:
        if not (offset or return_flags):
            return settled.plain_call
        seed = 0
    elif seed is None:
        raise ValueError(
            "stochastic rounding needs a seed: pass seed=1, or set one for several calls with "
            "fs.context(seed=fs.RandomStream(1)), which draws new random numbers at each call"
        )
    elif isinstance(seed, RandomStream):
        seed = seed.next_seed()
    elif not own_draws and (use := _SEED_USE.get()) is not None:
        use.note(seed)
    first = seed.seed if isinstance(seed, RandomGenerator) else seed
    return CallOptions(settled.attributes, first, offset, return_flags)
