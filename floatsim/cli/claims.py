"""`floatsim claims`: common claims about low-precision training, computed."""

from __future__ import annotations

from typing import Annotated

import typer

from floatsim.cli.console import BadInputError, Json, one_line, print_json, rich_console, track
from floatsim.training.claims.claim import NOTES, VERDICTS
from floatsim.training.claims.table import CLAIMS, ClaimTable, check_claims

__all__ = ["claims_command"]


def claims_command(
    numbers: Annotated[
        list[int] | None, typer.Argument(help="Numbers of claims, 1 to 76. Default: all.", show_default=False)
    ] = None,
    verdict: Annotated[
        str | None, typer.Option("--verdict", "-v", help="Print the claims with this verdict only, as 'false'.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute common claims about low-precision training. Print each verdict with the number behind it."""
    wanted = None if verdict is None else verdict.strip().upper()
    if wanted is not None and wanted not in VERDICTS:
        raise BadInputError(f"--verdict: {verdict!r} is not known; known are {', '.join(VERDICTS)}")
    try:
        table = check_claims(numbers or None, progress=track)
    except (ValueError, TypeError) as error:
        raise BadInputError(one_line(error)) from None
    if wanted is not None:
        table = ClaimTable(tuple(each for each in table.verdicts if each.verdict == wanted))
    if as_json:
        print_json({**table.to_dict(), "notes": NOTES})
        return
    console = rich_console()
    styles = {"TRUE": "green", "FALSE": "red", "MISLEADING": "yellow"}
    for each in table.verdicts:
        console.print(f"{each.claim.number:3}  {each.verdict:<11}", style=styles.get(each.verdict, "dim"), end="  ")
        console.print(each.claim.text, soft_wrap=True)
        reason = each.measured if each.computed else f"not computed: {each.measured}"
        console.print(f"     {reason}", style="dim", soft_wrap=True)
    counts = ", ".join(f"{number} {name}" for name, number in table.counts.items()) or "none"
    console.print(f"{len(table.verdicts)} of {len(CLAIMS)} claims: {counts}; {table.computed} computed")
