"""What all tests share."""

from __future__ import annotations

import os

import oracles

os.environ.setdefault("MPLBACKEND", "Agg")  # no windows


def pytest_report_header() -> str:
    return f"samples: FLOATSIM_TEST_SEED={oracles.test_seed()} repeats them (by default from the commit's hash)"
