"""The runner of `make test-exhaustive`: what is done is not done again, and an error of a chunk is no success."""

from __future__ import annotations

import pytest

from tests.exhaustive import runner
from tests.exhaustive.jobs import Job

pytestmark = pytest.mark.full
NAME = "reference-codes-e2m1"


def test_a_second_run_continues(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "STATE", tmp_path)
    (first,) = runner.run([NAME], processes=1, every=200)
    (file,) = tmp_path.rglob("*.jsonl")
    lines = file.read_text().splitlines()
    assert len(lines) == 1 + first.done
    assert (first.mismatches, first.cases > 0) == (0, True)
    (second,) = runner.run([NAME], processes=1, every=100, minutes=5)
    assert second.done == 2 * first.done or second.done == 2 * first.done - 1
    assert file.read_text().splitlines()[: len(lines)] == lines
    assert f"{second.cases:,}" in runner.report([second])


def test_an_error_counts_as_a_mismatch(monkeypatch):
    monkeypatch.setattr(runner, "jobs", lambda: {"job": Job("job", "a job", 2, lambda chunk: (1, 0, []))})
    good = {"chunk": 0, "error": None, **runner.evaluate("job", 0)}
    bad = {"chunk": 1, "error": "ValueError: no"}
    result = runner._summed("job", [good, bad])
    assert (result.done, result.cases, result.mismatches) == (1, 1, 1)
    assert result.examples == ["chunk 1 raised ValueError: no"]
