"""Helpers of the tests of `floatsim.torch`: tensors, their values in a format, and comparison bit for bit."""

from __future__ import annotations

import numpy as np
import torch

import floatsim as fs


def tensor(*shape, seed=0, scale=1.0, positive=False):
    """A float32 tensor of normal numbers, some of them large or small."""
    numbers = np.random.default_rng([seed, *shape]).standard_normal(shape) * scale
    return torch.from_numpy((np.abs(numbers) + 0.01 if positive else numbers).astype(np.float32))


def rounded(x, fmt):
    """The FloatArray of a tensor in a format."""
    return fs.convert(fs.array(x.detach().numpy()), fmt)


def bits(x):
    """The bits of a tensor or FloatArray as float32 numbers, with one pattern for NaN."""
    numbers = x.detach().numpy() if isinstance(x, torch.Tensor) else x.values
    numbers = np.asarray(numbers, np.float32)
    return np.where(np.isnan(numbers), np.uint32(0x7FC00000), numbers.view(np.uint32))


def assert_equal(found, wanted):
    """Assert equal shapes and bits."""
    assert tuple(found.shape) == tuple(wanted.shape)
    np.testing.assert_array_equal(bits(found), bits(wanted))


def lies_in(x, fmt):
    """Whether all values of a tensor are values of a format."""
    return np.array_equal(bits(x), bits(rounded(x.float(), fmt)))
