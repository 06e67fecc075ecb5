"""The 76 claims together, and the run of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from studies.claims import formats, operators, scaling, systems, updates
from studies.claims.claim import VERDICTS, Claim, Verdict

_MODULES = (formats, updates, scaling, operators, systems)

CLAIMS: Mapping[int, Claim] = MappingProxyType(
    dict(sorted((number, claim) for module in _MODULES for number, claim in module.CLAIMS.items()))
)
"""The claims by their numbers."""


@dataclass(frozen=True)
class ClaimTable:
    """The verdicts on claims.

    Attributes
    ----------
    verdicts : tuple of Verdict
        One for each claim, in the order of the numbers.
    """

    verdicts: tuple[Verdict, ...]

    @property
    def counts(self) -> dict[str, int]:
        """The number of claims with each verdict."""
        found = Counter(each.verdict for each in self.verdicts)
        return {verdict: found[verdict] for verdict in VERDICTS if found[verdict]}

    @property
    def computed(self) -> int:
        """The number of claims whose verdict was computed."""
        return sum(each.computed for each in self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain data."""
        return {
            "claims": [each.to_dict() for each in self.verdicts], "counts": self.counts, "computed": self.computed,
        }  # fmt: skip

    def __str__(self) -> str:
        lines = []
        for each in self.verdicts:
            mark = "computed" if each.computed else "not computed"
            lines += [f"{each.claim.number:3}  {each.verdict} ({mark})  {each.claim.text}", f"     {each.measured}"]
        counts = ", ".join(f"{number} {verdict}" for verdict, number in self.counts.items())
        return "\n".join([*lines, f"{len(self.verdicts)} claims: {counts}; {self.computed} computed"])


def check_claims(
    numbers: Iterable[int] | int | None = None,
    *,
    progress: Callable[[list[int], str], Iterable[int]] | None = None,
    **constants: Any,
) -> ClaimTable:
    """Return verdicts on common claims about low-precision training, each with the computed numbers.

    Parameters
    ----------
    numbers : int or iterable of int, optional
        The numbers of the claims, 1 to 76. Default: all.
    progress : function, optional
        It gets the numbers and a text, and yields the numbers: a progress bar.
    **constants
        Other constants for one claim.

    Returns
    -------
    ClaimTable

    Raises
    ------
    ValueError
        For a number without a claim, and for constants that the claim does not have.

    Notes
    -----
    A claim is TRUE or FALSE by its own words and constants. It is MISLEADING if it holds, but a condition or a
    conclusion that it suggests does not. Claims about libraries, datasheets and events are not computed; they have the
    verdict of their sources and the reason.

    Examples
    --------
    >>> print(check_claims(9))
      9  FALSE (computed)  A gradient of 1e-5 becomes 0 in FP16.
         1e-05 becomes 1.0014e-05, a relative error of 0.136 %
    1 claims: 1 FALSE; 1 computed
    >>> check_claims(9, gradient=1e-8).verdicts[0].verdict
    'TRUE'
    """
    given = list(CLAIMS) if numbers is None else [numbers] if isinstance(numbers, int) else list(numbers)
    chosen = [int(number) for number in given]
    for number in chosen:
        if number not in CLAIMS:
            raise ValueError(f"numbers must be from 1 to {max(CLAIMS)}, not {number}")
    if constants and len(chosen) != 1:
        raise ValueError(f"constants {', '.join(constants)} need one claim, not {len(chosen)}")
    steps = chosen if progress is None else progress(chosen, "checking")
    return ClaimTable(tuple(CLAIMS[number].run(**constants) for number in steps))
