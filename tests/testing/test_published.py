"""The table of published rules in docs/cross-check.md: `python tests/testing/test_published.py` rewrites it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from floatsim.testing.strength.published import PUBLISHED, rate

pytestmark = pytest.mark.full

PAGE = Path(__file__).parents[2] / "docs" / "cross-check.md"
BLOCK = re.compile(r"(<!-- rules: begin -->\n).*?(<!-- rules: end -->)", re.DOTALL)


def table() -> str:
    lines = ["| rule | caught | correct result | missed |", "| --- | --- | --- | --- |"]
    for rule in PUBLISHED:
        found = rate(rule)
        count = len(found.caught) + len(found.missed)
        verdict = "rejected" if found.rejects_correct else "accepted"
        missed = "; ".join(found.missed) or "none"
        lines.append(f"| {rule.project}: {rule.text} | {len(found.caught)} of {count} | {verdict} | {missed} |")
    return "\n".join(lines)


def rewritten(text: str) -> str:
    return BLOCK.sub(lambda block: f"{block[1]}\n{table()}\n\n{block[2]}", text)


def test_the_table_is_up_to_date():
    text = PAGE.read_text(encoding="utf-8")
    assert BLOCK.search(text)
    assert rewritten(text) == text


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
