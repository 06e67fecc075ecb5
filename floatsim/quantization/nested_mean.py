"""The mean of the scales of nested scales, in the order in which torch adds FP32 numbers on a CPU."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["torch_mean"]

Floats32: TypeAlias = NDArray[np.float32]

_LANES = 32
"""The partial sums that torch adds side by side: four vectors of eight numbers, on every CPU."""
_LEVELS = 4


def torch_mean(x: Floats32) -> np.float32:
    """Return `torch.Tensor.mean` of a vector on a CPU with one thread, as bitsandbytes computes it of scales.

    The order is that of `fs.library_sum("torch.sum", "float32", n)`, which describes it for any sum. This function is
    fast for millions of numbers. Several threads of torch add parts of 32,768 numbers or more. A GPU has another order.

    Parameters
    ----------
    x : ndarray of float32, shape (n,)
        The numbers.

    Returns
    -------
    float32
        The sum divided by n, two roundings; 0 for no numbers.

    >>> torch_mean(np.float32([1, 2, 4.5]))
    np.float32(2.5)
    """
    if not x.size:
        return np.float32(0)
    with np.errstate(all="ignore"):  # a sum may overflow, as torch's does
        rows = x.size // _LANES
        lanes = _cascade(x[: rows * _LANES].reshape(rows, _LANES)).reshape(4, 8)
        rest = x[rows * _LANES :]
        whole = rest.size // 8 * 8
        for vector in rest[:whole].reshape(-1, 8):
            lanes[0] += vector
        for other in lanes[1:]:
            lanes[0] += other
        total = np.float32(0)
        for number in (*rest[whole:], *lanes[0]):
            total += number
        return np.float32(total / np.float32(x.size))


def _cascade(x: Floats32) -> Floats32:
    """Add rows in blocks: four levels of partial sums, each of which adds the sums of the level before it."""
    rows = len(x)
    power = max(4, int(rows - 1).bit_length() // _LEVELS) if rows > 1 else 4
    step = 1 << power
    blocks = rows // step
    of_blocks = np.zeros((blocks, x.shape[1]), np.float32)
    parts = x[: blocks * step].reshape(blocks, step, x.shape[1])
    for row in range(step):
        of_blocks += parts[:, row]
    levels = np.zeros((_LEVELS, x.shape[1]), np.float32)
    for n, block in enumerate(of_blocks, 1):
        levels[0] = block
        for level in range(1, _LEVELS):
            levels[level] += levels[level - 1]
            levels[level - 1] = 0
            if n * step & ((step - 1) << level * power):
                break
    for row in x[blocks * step :]:
        levels[0] += row
    for level in levels[1:]:
        levels[0] += level
    total: Floats32 = levels[0]
    return total
