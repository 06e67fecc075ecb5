"""Gathered windows of empty batches keep their shapes, and places beside the ends read zeros."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: the extra `torch`")

from floatsim.torch.windows import gathered, regular_windows

pytestmark = [pytest.mark.torch, pytest.mark.full]


@pytest.mark.parametrize("batch", [0, 2])
def test_windows_of_two_axes(batch):
    images = np.arange(batch * 3 * 4 * 5, dtype=np.uint16).reshape(batch, 3, 4, 5) + 1
    axes = [regular_windows(length, length, 3, 1, 1).elements for length in (4, 5)]
    found, exists = gathered(images, axes)
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    wanted = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    assert found.shape == (batch, 3, 4, 5, 3, 3)
    assert np.array_equal(found, wanted)
    assert exists.shape == (4, 5, 3, 3)
