"""The kernels of the K types of GGUF files against their readable form, and groups that are hard to fit."""

from __future__ import annotations

import numpy as np
import pytest

from floatsim.emulator.elementwise import group_fits
from floatsim.emulator.elementwise.group_fits import Search
from floatsim.reference import group_fits as reference
from tests import marks

SEARCHES = [Search(-0.9, 0.05, 36), Search(-1.0, 0.1, 20), Search(-0.5, 0.1, 15, absolute=True)]
WIDTHS = marks.cases(quick=[16, 32], full=[1, 2, 8, 16, 31, 32])


def hard_groups(width: int, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return groups with zeros, ties, one sign, one element, tiny and large numbers, and weights."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, width)).astype(np.float32)
    weights = np.abs(rng.standard_normal((count, width)).astype(np.float32))
    x[0], x[1], x[2], x[3], x[7, 1:], x[9] = 0, -0.0, np.abs(x[2]), -np.abs(x[3]), 0, 1
    x[6], x[14] = np.round(x[6] * 4) / 4, np.where(x[14] > 0, 1, -1)  # ties; peaks of both signs
    for row, factor in ((4, 1e-38), (5, 1e30), (8, 1e-20), (15, 5e37)):
        x[row] *= np.float32(factor)
    weights[10], weights[11], weights[12, ::2] = 0, np.inf, 0
    weights[13] *= np.float32(5e37)
    return x, weights


def assert_equal(found: tuple[np.ndarray, ...], expected: tuple[np.ndarray, ...]) -> None:
    """Compare the codes of FP32 numbers; any NaN equals any other."""
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype == np.float32
        assert one.shape == other.shape
        different = (one.view(np.uint32) != other.view(np.uint32)) & ~(np.isnan(one) & np.isnan(other))
        assert not different.any(), np.argwhere(different)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", [16, 33, 5000])
def test_kernels_equal_the_reference(width, count):
    """Tiles of 32 groups: less than one, one and a part, and several pieces for the threads."""
    x, weights = hard_groups(width, count)
    scales = np.abs(x)
    scales[20:30, width // 2] = np.nan  # groups whose squares overflow have such a scale
    scales[30:, 0] *= -1  # their codes are bytes
    scales[31:40, -1] *= -5  # -5 * 63 is below -256
    weights[40:60] = np.where(np.arange(width) == 3, np.float32(1e6), np.float32(1e-3))
    x[40:60] -= 5  # the minimum moves beyond the largest element, and codes beyond 2**22
    with np.errstate(all="ignore"):
        for nmax, search in zip((31, 15, 3), SEARCHES, strict=True):
            assert_equal(group_fits.affine(x, nmax, weights, search), reference.affine(x, nmax, weights, search))
        for nmax in (4, 8, 32):
            assert_equal(group_fits.symmetric(x, nmax, weights), reference.symmetric(x, nmax, weights))
            assert_equal(group_fits.symmetric(scales, nmax, weights), reference.symmetric(scales, nmax, weights))
        for nmax in (15, 63):
            assert_equal(group_fits.positive(scales, nmax, weights), reference.positive(scales, nmax, weights))
        assert_equal(group_fits.refined(x, 4), reference.refined(x, 4))


def test_codes_are_bytes():
    """ggml keeps the codes of scales in bytes: -1 is 255, and 255 enters the first error and the moves."""
    x, weights = np.float32([[1, -0.02, 0.5, 0.25]]), np.ones((1, 4), np.float32)
    for fit in (group_fits.positive, reference.positive):
        scales, codes = fit(x, 63, weights)
        assert codes.tolist() == [[63, 255, 32, 16]]
        assert scales[0] == np.float32(0.01581333391368389)  # the result of make_qp_quants, compiled


def test_zeros_of_sums():
    """ggml's sums begin with +0: products that underflow to -0 have the sum +0."""
    x, weights = np.float32([[1, -0.5, 0.25, -0.25]]) * np.float32(1e-7), np.full((1, 4), 1e-43, np.float32)
    for fit in (group_fits.symmetric, reference.symmetric):
        (scale,), _ = fit(x, 8, weights)
        assert scale == 0
        assert not np.signbit(scale)


def test_no_groups_and_wide_groups():
    scales, codes = group_fits.refined(np.zeros((0, 16), np.float32), 4)
    assert scales.shape == (0,)
    assert codes.shape == (0, 16)
    with pytest.raises(ValueError, match="1 to 32 elements"):
        group_fits.refined(np.zeros((1, 33), np.float32), 4)
