"""Plans of sums and of element-wise operations: their parts in common.

A *candidate* is one way to carry out a *case*. The candidates of a `Selection` are tried in order. Each refuses the
case with a reason, or makes the kernel. `emulator/sums/plan.py` plans sums, `emulator/elementwise/plan.py` the others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from floatsim_kernels.runtime import cpu

from floatsim.formats.random_source import RandomSource

__all__ = ["CPU", "BasePlan", "Refusal", "Selection", "processor"]


class CPU(NamedTuple):
    """The properties of this processor and thread that kernels on hardware floats depend on."""

    keeps_subnormals: bool
    """The floating-point environment is the default one: subnormals are kept, rounding is to nearest."""
    has_fma: bool
    has_half_conversion: bool
    has_half_arithmetic: bool

    def refusal(self) -> str | None:
        """Return why kernels on hardware floats do not run in this thread, or None."""
        if self.keeps_subnormals:
            return None
        return "this thread's floating-point environment flushes subnormals or does not round to nearest"


@functools.cache
def processor(keeps_subnormals: bool) -> CPU:
    """Return the properties of this processor; the caller passes its thread's floating-point environment."""
    return CPU(keeps_subnormals, cpu.has_fma(), cpu.has_half_conversion(), cpu.has_half_arithmetic())


class Refusal(NamedTuple):
    """A candidate, and why it does not carry out a case."""

    candidate: str
    reason: str


class _Candidate(Protocol):
    """The part of a candidate that a selection reads."""

    @property
    def name(self) -> str: ...

    def refusal(self, case: Any) -> str | None: ...


C = TypeVar("C", bound=_Candidate)
K = TypeVar("K")


class Selection(Generic[C]):
    """The candidates in order, the most specific first.

    Parameters
    ----------
    candidates : tuple
        Every candidate. The last ones never refuse.
    always : iterable of str
        The candidates that `only` never leaves out: those that never refuse.
    """

    def __init__(self, candidates: tuple[C, ...], *always: str) -> None:
        self.candidates = candidates
        self.always = frozenset(always)
        self.allowed: frozenset[str] | None = None
        """The names of the candidates that plans may use, or None for all; `only` sets it."""

    @contextmanager
    def only(self, *names: str) -> Iterator[None]:
        """Let plans use these candidates alone, with the integer kernels for what they refuse. For tests.

        It holds for the whole process, worker threads included.

        >>> import floatsim as fs
        >>> from floatsim.emulator.dispatch.candidates import only
        >>> with only("integer"):
        ...     fs.matmul([[1.0]], [[2.0]], accumulate="fp16")
        array([[2.]], dtype=float16)
        """
        known = {candidate.name for candidate in self.candidates}
        if unknown := set(names) - known:
            raise ValueError(f"unknown candidate {min(unknown)!r}; known are {', '.join(sorted(known))}")
        before, self.allowed = self.allowed, self.always | frozenset(names)
        try:
            yield
        finally:
            self.allowed = before

    def choose(
        self, case: Any, takes: Callable[[C], bool], names: frozenset[str] | None, source: RandomSource | None = None
    ) -> tuple[C, tuple[Refusal, ...]]:
        """Return the first candidate that does not refuse a case, and the refusals of those before it.

        `takes` returns whether a candidate is for cases of this kind; the others are not listed. `names` are the
        candidates to use, or None for all. `source` is the generator that the case draws from: only the candidates that
        never refuse have others than floatsim's own.
        """
        refused: list[Refusal] = []
        for candidate in filter(takes, self.candidates):
            if names is not None and candidate.name not in names:
                reason: str | None = "left out by `only`"
            elif source is not None and candidate.name not in self.always:
                reason = "draws come from another generator than floatsim's own"
            else:
                reason = candidate.refusal(case)
            if reason is None:
                return candidate, tuple(refused)
            refused.append(Refusal(candidate.name, reason))
        raise AssertionError(f"no candidate takes {case}")  # the last ones never refuse


@dataclass(frozen=True, repr=False)
class BasePlan(Generic[K]):
    """The kernel of a case, and why the candidates before it refused."""

    case: Any
    candidate: str
    kernel: K
    refused: tuple[Refusal, ...] = ()
    parts: tuple[BasePlan[Any], ...] = ()
    """The plans that the kernel uses."""

    def lines(self) -> list[str]:
        """Return the plan as lines of text: the kernel, the refusals, and the plans of the parts."""
        text = [f"{self.case}: {self.candidate}"]
        text += [f"  not {refusal.candidate}: {refusal.reason}" for refusal in self.refused]
        for part in self.parts:
            text += ["  " + line for line in part.lines()]
        return text

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__
