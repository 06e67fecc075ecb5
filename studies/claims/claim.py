"""A claim as data: its words, its constants, and the computation that decides it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from floatsim import FloatFormat, context

VERDICTS = ("TRUE", "FALSE", "MISLEADING", "PARTLY TRUE", "OUTDATED", "UNVERIFIED", "UNSUPPORTED")
"""The verdicts. Computed are the first three."""


@dataclass(frozen=True)
class Finding:
    """What a computation found about a claim.

    Attributes
    ----------
    holds : bool
        Whether the statement holds with the claim's constants.
    measured : str
        The computed numbers, in words.
    misleading : bool
        Whether the statement holds, but a condition or a conclusion that it suggests does not.
    """

    holds: bool
    measured: str
    misleading: bool = False


@dataclass(frozen=True)
class Claim:
    """A claim about low-precision training.

    Attributes
    ----------
    number : int
        The number of the claim.
    text : str
        The claim.
    constants : mapping of str to number
        The numbers that the claim states.
    check : function or None
        The constants to a `Finding`. None: the claim is not computed.
    verdict : str
        The verdict that was reached from sources, for a claim that is not computed.
    reason : str
        Why the claim is not computed.
    """

    number: int
    text: str
    constants: Mapping[str, Any] = field(default_factory=dict)
    check: Callable[..., Finding] | None = None
    verdict: str = ""
    reason: str = ""

    def run(self, **constants: Any) -> Verdict:
        """Return the verdict. Keywords replace constants of the claim; an unknown one is a ValueError."""
        unknown = set(constants) - set(self.constants)
        if unknown:
            known = ", ".join(self.constants) or "none"
            raise ValueError(f"claim {self.number} has no constant {min(unknown)!r}; its constants: {known}")
        if self.check is None:
            return Verdict(self, self.verdict, self.reason)
        with context(rounding="ties_to_even", overflow="infinity", daz=False, ftz=False, tininess="after"):
            found = self.check(**{**self.constants, **constants})
        words = "FALSE" if not found.holds else "MISLEADING" if found.misleading else "TRUE"
        return Verdict(self, words, found.measured)


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim.

    Attributes
    ----------
    claim : Claim
        The claim.
    verdict : str
        One of `VERDICTS`.
    measured : str
        The computed numbers; for a claim that is not computed, the reason.
    """

    claim: Claim
    verdict: str
    measured: str

    @property
    def computed(self) -> bool:
        """Whether the verdict was computed."""
        return self.claim.check is not None

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        return {
            "number": self.claim.number, "claim": self.claim.text,
            "constants": dict(self.claim.constants), "computed": self.computed, "verdict": self.verdict,
            "measured" if self.computed else "reason": self.measured,
        }  # fmt: skip


def computed(
    claims: dict[int, Claim], number: int, text: str, /, **constants: Any
) -> Callable[[Callable[..., Finding]], Callable[..., Finding]]:
    """Return a decorator that adds a claim to a table, with the function as its check."""

    def add(check: Callable[..., Finding]) -> Callable[..., Finding]:
        claims[number] = Claim(number, text, constants, check)
        return check

    return add


def not_computed(claims: dict[int, Claim], number: int, text: str, verdict: str, reason: str) -> None:
    """Add a claim that is not computed, with its verdict from sources and the reason."""
    claims[number] = Claim(number, text, verdict=verdict, reason=reason)


def near(claimed: float, value: float, tolerance: float = 0.01) -> bool:
    """Return whether a claimed number is a value, rounded in decimal: within a relative tolerance of it.

    >>> near(6.1e-5, 2.0**-14), near(5.96e-8, 2.0**-14)
    (True, False)
    """
    return abs(claimed - value) <= tolerance * abs(value)


def decimal(value: float) -> str:
    """Return a number with at most five significant digits.

    >>> decimal(2.0**-14), decimal(65504.0)
    ('6.1035e-05', '65504')
    """
    return f"{value:.5g}"


def exact_text(fmt: FloatFormat) -> str:
    """Return the range of a format in words: its least subnormal, its least normal and its largest number."""
    return (
        f"{fmt.name}: least subnormal {decimal(fmt.smallest_subnormal)}, least normal {decimal(fmt.smallest_normal)}, "
        f"largest {decimal(fmt.max)}"
    )
