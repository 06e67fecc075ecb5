"""The protocol between plans and kernels: the methods of a candidate, and the arguments of a kernel.

A *candidate* is one way to carry out operations of some families. `plan.plan` tries the candidates of `candidates.py`
in order: `refusal(case)` returns None, or the reason why the candidate does not give the defined bits for this case (or
would not be faster). The first that does not refuse makes the kernel: `kernel(case, plan)`, which computes every
parameter once. `plan(part, *names)` returns the plan of a part; with names, by these candidates and those that never
refuse.

A *kernel* is a function and the way its arrays are cut:

    run(codes, out, events, draws)

- `codes` has the codes of each operand, in its format's `code_dtype`; `out` gets the codes of the results, in that of
  `case.result`. All are flat and of one length, C-contiguous, and `out` shares no memory with the operands.
- `events` is uint8, for the event bytes of each element, or None if the case needs no events.
- `draws` is uint64: the seed, and the index of the first element among the draws. Element i draws for index + i.
- `Cut` describes which elements a call of `run` gets. A kernel for whole arrays may get broadcastable ones.

Kernels on hardware floats need the default floating-point environment (`Case.cpu`), or their candidates refuse. Fast
kernels find no events: `fast` adds a second pass that does (events.py). It leaves rare elements to the integer kernels.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from floatsim._types import Seeds
from floatsim.emulator.elementwise import events as event_kernels
from floatsim.emulator.elementwise.case import Case
from floatsim.emulator.elementwise.operations import Family
from floatsim.emulator.elementwise.pieces import Array, Events

__all__ = ["Candidate", "Cut", "Kernel", "PlanPart", "Run", "fast", "fast_refusal", "float_refusal"]

Run: TypeAlias = Callable[[Sequence[Array], Array, "Events | None", Seeds], None]
"""The function of a kernel. The module's docstring defines its arguments."""


class Cut(enum.Enum):
    """Which elements a call of a kernel gets."""

    BROADCAST = "broadcast"
    """All, in the shapes of the operands, which broadcast. `out` has the shape of the result."""
    WHOLE = "whole"
    """All, in flat arrays. The kernel cuts them itself."""
    PIECES = "pieces"
    """A piece of the flat arrays."""
    LONG_PIECES = "long pieces"
    """A long piece, for kernels that do 300 million elements a second or more."""


class Kernel(NamedTuple):
    """A function that computes an operation, and the way its arrays are cut."""

    run: Run
    cut: Cut = Cut.LONG_PIECES


class Planned(Protocol):
    """The part of a plan that a kernel reads."""

    @property
    def kernel(self) -> Kernel: ...


PlanPart: TypeAlias = "Callable[..., Planned]"
"""Called as `plan(part, *names)`, see above."""


class Candidate(Protocol):
    """One way to carry out operations."""

    @property
    def name(self) -> str: ...

    @property
    def takes(self) -> frozenset[Family]:
        """The families that the candidate is for. Plans do not try it for others."""

    def refusal(self, case: Case) -> str | None: ...

    def kernel(self, case: Case, plan: PlanPart) -> Kernel: ...


# -- fast kernels ------------------------------------------------------------------------------------------------------


def fast_refusal(case: Case) -> str | None:
    """Return why no fast kernel computes the case and its events, or None."""
    if case.fmt.is_scale:
        return f"{case.fmt.name} is a scale format"
    return event_kernels.refusal(case) if case.events else None


def float_refusal(case: Case) -> str | None:
    """Return why no kernel on hardware floats computes the case and its events, or None."""
    return case.cpu.refusal() or fast_refusal(case)


def fast(run: Callable[[Sequence[Array], Array, Seeds], Any], case: Case, plan: PlanPart) -> Kernel:
    """Return the kernel of `run(codes, out, draws)`, which finds no events, with a second pass for events."""
    if not case.events:
        return Kernel(lambda codes, out, events, draws: run(codes, out, draws))
    find, integers = event_kernels.finder(case), plan(case, "integers").kernel.run

    def with_events(codes: Sequence[Array], out: Array, events: Events | None, draws: Seeds) -> None:
        assert events is not None
        run(codes, out, draws)
        find(codes, out, events)
        event_kernels.complete(codes, out, events, draws, integers)

    return Kernel(with_events, Cut.PIECES)
