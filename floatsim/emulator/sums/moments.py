"""Means and sums of squared differences by Welford's algorithm: in float32 where that is exact, else in integers."""

from __future__ import annotations

import numpy as np

from floatsim._types import Codes
from floatsim.accumulation import Welford
from floatsim.emulator.dispatch import threads
from floatsim.formats import FloatFormat
from floatsim.formats.rounding import RoundingAttributes
from floatsim.reference import moments as reference

__all__ = ["moments"]


def moments(order: Welford, rows: Codes, fmt: FloatFormat, attributes: RoundingAttributes) -> tuple[Codes, Codes]:
    """Return the codes of the means and of the sums of squared differences of rows of codes, (rows, terms)."""
    if rows.size and threads.moments_refusal(order, fmt, attributes) is None:
        means, squares = threads.moments(order, rows, fmt).view(np.uint32)
        return means, squares
    found = [reference.moments(order, row, fmt, attributes) for row in rows.tolist()]
    dtype = order.format.code_dtype
    return np.array([each.mean for each in found], dtype), np.array([each.squares for each in found], dtype)
