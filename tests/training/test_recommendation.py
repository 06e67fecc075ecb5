"""The recommendation of a format for gradients."""

from __future__ import annotations

import numpy as np
import pytest

import floatsim as fs
from floatsim.training import recommend_format


@pytest.mark.parametrize(("x", "fmt", "scale"), [
    ([1.0, 2.0], "FP16", 1.0),
    ([2.0**-25, 2.0**-3], "FP16", 1.0),  # the bin of 2^-25 is not flushed as a whole
    ([2.0**-26, 2.0**-3], "FP16", 2.0**16),  # 2^16 * 2^-3 = 2^13: two powers of two below 2^15
    ([2.0**14], "FP16", 0.5),  # no headroom: a loss scale below 1
    ([2.0**-30, 2.0**13], "BF16", 1.0),
    ([1e-30, 1e30], "BF16", 1.0),
])  # fmt: skip
def test_recommendation(x, fmt, scale):
    found = recommend_format(x)
    assert (found.format.name, found.loss_scale) == (fmt, scale)
    assert found.reasons
    assert found.flushed == found.overflowed == 0
    again = recommend_format(fs.exponent_histogram(x, "e4m3"))
    assert again == found


def test_limit_and_headroom_of_the_recommendation():
    x = np.r_[np.full(999, 1.0), 2.0**-40]
    assert recommend_format(x).format == fs.FP16
    assert recommend_format(x).flushed == 1e-3
    assert recommend_format(x, limit=1e-4).format == fs.BF16
    assert recommend_format([2.0**14], headroom=1).loss_scale == 1
    with pytest.raises(ValueError, match="limit must be from 0 to 1"):
        recommend_format(x, limit=2)
    with pytest.raises(ValueError, match="headroom"):
        recommend_format(x, headroom=-1)
    with pytest.raises(ValueError, match="no finite non-zero"):
        recommend_format([0.0])
