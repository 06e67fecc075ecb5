"""What all tests share, the examples in the docstrings among them."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def _no_figures_are_left():
    """pyplot keeps every figure until it is closed, and warns of many."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
