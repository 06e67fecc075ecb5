"""The windows of convolutions and pools over one, two or three axes, as indices for each axis.

An `Axis` has, for each row of a result, the places of an axis that it reads, and which of them exist. A place that does
not exist reads a zero.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Axis", "Windows", "adaptive_windows", "filter_places", "flat_places", "gathered", "regular_windows"]


class Axis(NamedTuple):
    """The places that rows of a result read on one axis.

    Attributes
    ----------
    place : int array, (rows, slots)
    exists : bool array, (rows, slots)
    """

    place: NDArray[np.int64]
    exists: NDArray[np.bool_]


class Windows(NamedTuple):
    """The windows of one axis, and the windows that contain each element.

    Attributes
    ----------
    elements : Axis, (windows, size)
        The elements of each window, in ascending order.
    containing : Axis, (elements, slots)
        The windows that contain each element, in ascending order.
    """

    elements: Axis
    containing: Axis


@functools.lru_cache(maxsize=256)
def regular_windows(length: int, count: int, size: int, step: int, pad: int, apart: int = 1) -> Windows:
    """Return windows of one size at equal distances.

    Parameters
    ----------
    length : int
        The length of the axis.
    count : int
        The number of windows.
    size, step, pad, apart : int
        The elements of a window, the distance of windows, the padding before the first element, and the distance of
        the elements of a window.

    Examples
    --------
    >>> found = regular_windows(4, 2, 3, 2, 1)
    >>> found.elements.place.tolist(), found.elements.exists.tolist()
    ([[-1, 0, 1], [1, 2, 3]], [[False, True, True], [True, True, True]])
    >>> found.containing.place.tolist()
    [[-1, 0], [0, 1], [0, 1], [1, 2]]
    """
    place = np.arange(count)[:, np.newaxis] * step - pad + np.arange(size) * apart
    span = (size - 1) * apart + 1
    position = np.arange(length)[:, np.newaxis] + pad
    window = position // step + np.arange(1 - -(-span // step), 1)
    offset = position - window * step
    found = (window >= 0) & (window < count) & (offset < span) & (offset % apart == 0)
    return Windows(Axis(place, (place >= 0) & (place < length)), Axis(window, found))


@functools.lru_cache(maxsize=256)
def adaptive_windows(length: int, count: int) -> Windows:
    """Return the windows of PyTorch's adaptive pools: from floor(i * length / count) to ceil((i + 1) * length / count).

    A shorter window has places that do not exist behind its last element.

    Examples
    --------
    >>> found = adaptive_windows(5, 3)
    >>> found.elements.place.tolist(), found.elements.exists.sum(1).tolist()
    ([[0, 1, 2], [1, 2, 3], [3, 4, 5]], [2, 3, 2])
    """
    n, position = np.arange(count), np.arange(length)
    start, stop = n * length // count, -(-(n + 1) * length // count)
    place = start[:, np.newaxis] + np.arange((stop - start).max())
    contains = (position[:, np.newaxis] >= start) & (position[:, np.newaxis] < stop)
    last = np.searchsorted(start, position, "right") - 1
    window = last[:, np.newaxis] + np.arange(1 - contains.sum(1).max(), 1)
    found = (window >= 0) & np.take_along_axis(contains, np.maximum(window, 0), 1)
    return Windows(Axis(place, place < stop[:, np.newaxis]), Axis(window, found))


@functools.lru_cache(maxsize=256)
def filter_places(length: int, count: int, size: int, step: int, pad: int, apart: int) -> Axis:
    """Return the windows that each element is in with each element of the filter, which is rotated by 180 degrees.

    >>> filter_places(3, 2, 2, 1, 0, 1).place.tolist()
    [[-1, 0], [0, 1], [1, 2]]
    """
    place = np.arange(length)[:, np.newaxis] + pad - apart * np.arange(size)[::-1]
    found = (place % step == 0) & (place >= 0) & (place < count * step)
    return Axis(place // step, found)


def gathered(values: NDArray[Any], axes: Sequence[Axis]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return values (batch, channels, *lengths) as (batch, channels, *rows, *slots), and which of them exist.

    >>> values, exists = gathered(np.array([[[5, 6, 7]]]), [regular_windows(3, 2, 2, 2, 0).elements])
    >>> values.tolist(), exists.tolist()
    ([[[[5, 6], [7, 0]]]], [[True, True], [True, False]])
    """
    order = *range(0, 2 * len(axes), 2), *range(1, 2 * len(axes), 2)  # rows before slots
    exists = functools.reduce(np.logical_and.outer, (axis.exists for axis in axes)).transpose(order)
    place = np.zeros((), np.int64)
    for axis, length in zip(axes, values.shape[2:], strict=True):
        place = np.add.outer(place * length, axis.place)
    place, flat = place.transpose(order), values.reshape(*values.shape[:2], math.prod(values.shape[2:]))
    if not exists.all():
        place = np.where(exists, place, flat.shape[-1])
        flat = np.concatenate([flat, np.zeros((*flat.shape[:2], 1), flat.dtype)], -1)
    return np.take(flat, place, -1), exists


def flat_places(lengths: Sequence[int]) -> NDArray[np.int64]:
    """Return the place of each element in C order.

    >>> flat_places((2, 2)).tolist()
    [[0, 1], [2, 3]]
    """
    return np.arange(math.prod(lengths)).reshape(tuple(lengths))
