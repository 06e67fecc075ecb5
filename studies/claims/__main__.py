"""`python -m studies.claims`: common claims about low-precision training, with the number behind each verdict."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from tqdm import tqdm

from studies.claims.claim import VERDICTS
from studies.claims.table import CLAIMS, ClaimTable, check_claims


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m studies.claims", description=__doc__)
    parser.add_argument("numbers", nargs="*", type=int, help=f"numbers of claims, 1 to {max(CLAIMS)}; default: all")
    parser.add_argument(
        "--verdict", "-v", type=str.upper, choices=VERDICTS, help="print the claims with this verdict only"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    try:
        table = check_claims(given.numbers or None, progress=lambda numbers, text: tqdm(numbers, text, disable=None))
    except ValueError as error:
        parser.error(str(error))
    if given.verdict is not None:
        table = ClaimTable(tuple(each for each in table.verdicts if each.verdict == given.verdict))
    print(json.dumps(table.to_dict(), indent=2) if given.json else table)


if __name__ == "__main__":
    main(sys.argv[1:])
