"""The digits, in batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from floatsim import datasets
from floatsim.formats._validation import as_index

__all__ = ["Data", "digits_data"]


@dataclass(frozen=True)
class Data:
    """Images and their classes, for training and for testing.

    Attributes
    ----------
    x, y : float64 array (n, inputs), int64 array (n,)
        For training.
    test_x, test_y : arrays
        For testing.

    Examples
    --------
    >>> import floatsim as fs
    >>> data = fs.training.digits_data()
    >>> data.x.shape, data.test_x.shape
    ((1437, 64), (360, 64))
    """

    x: NDArray[np.float64]
    y: NDArray[np.int64]
    test_x: NDArray[np.float64]
    test_y: NDArray[np.int64]

    def batches(self, size: int, seed: int, epoch: int) -> Iterator[NDArray[np.intp]]:
        """Yield the indices of each batch of an epoch, in a random order. The last batch may be short."""
        order = np.random.default_rng([seed, epoch]).permutation(len(self.y))
        for start in range(0, len(order), size):
            yield order[start : start + size]


def digits_data(seed: int = 0, test_images: int = 360) -> Data:
    """Return the 1797 images of the UCI digits, in a random order, with pixels from 0 to 1.

    Parameters
    ----------
    seed : int
        The seed of the order.
    test_images : int
        The number of images for testing, from 1 to 1796.

    Returns
    -------
    Data

    Examples
    --------
    >>> import floatsim as fs
    >>> data = fs.training.digits_data()
    >>> data.x.shape, data.test_x.shape
    ((1437, 64), (360, 64))
    """
    as_index(test_images, "test_images", 1, 1796)
    net = datasets.digits_network()
    x = np.concatenate([net.training_images, net.images]).astype(np.float64) / 16
    y = np.concatenate([net.training_labels, net.labels])
    order = np.random.default_rng(as_index(seed, "seed", 0, (1 << 64) - 1)).permutation(len(y))
    train, test = order[test_images:], order[:test_images]
    return Data(x[train], y[train], x[test], y[test])
