"""Fits of groups of elements by scales and codes: the K types of GGUF files, and Q4 and Q5 with weights.

`floatsim.reference.group_fits` has the readable form of each function. The kernels compute in hardware floats: they
need `environment_is_default()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from floatsim_kernels.quantization import fits as loops

from floatsim.emulator import parallel
from floatsim.reference.group_fits import Search

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

__all__ = ["Search", "affine", "positive", "refined", "symmetric"]

_PIECE = 1 << 15  # elements that one thread takes at a time: about a millisecond


def _fitted(groups: Array, weights: Array | None, scales: int, fit: Callable[..., None]) -> tuple[Array, ...]:
    """Return arrays of scales, `scales` of them, and of codes, which `fit` fills, on all threads."""
    count, width = groups.shape
    if not 0 < width <= loops.WIDEST:
        raise ValueError(f"groups {groups.shape} must have 1 to {loops.WIDEST} elements each")
    operands = [np.ascontiguousarray(groups, np.float32)]
    if weights is not None:
        operands.append(np.ascontiguousarray(np.broadcast_to(weights, groups.shape), np.float32))
    out = *(np.empty(count, np.float32) for _ in range(scales)), np.empty((count, width), np.float32)

    def work(part: slice) -> None:
        fit([each[part] for each in operands], [each[part] for each in out])

    parallel.run_rows(count, _PIECE // width, work, parallel.get_num_threads(), "quantize")
    return out


def symmetric(x: Array, nmax: int, weights: Array) -> tuple[Array, ...]:
    """Return scales and codes, from 0 to 2 nmax - 1, of the best of 19 scales around -nmax / (largest element)."""
    return _fitted(x, weights, 1, lambda given, out: loops.symmetric(*given, np.float32(nmax), *out))


def refined(x: Array, nmax: int) -> tuple[Array, ...]:
    """Return scales and codes, from 0 to 2 nmax - 1, for the weights x * x (Q3_K)."""
    return _fitted(x, None, 1, lambda given, out: loops.refined(*given, np.float32(nmax), *out))


def positive(x: Array, nmax: int, weights: Array) -> tuple[Array, ...]:
    """Return a scale and codes, from 0 to nmax, for numbers that are not negative: the scales of groups."""
    return _fitted(x, weights, 1, lambda given, out: loops.positive(*given, np.float32(nmax), *out))


def affine(x: Array, nmax: int, weights: Array, search: Search) -> tuple[Array, ...]:
    """Return scales, minima (their negatives) and codes, from 0 to nmax, of the best weighted fit."""
    numbers = np.float32(nmax), np.float32(search.first), np.float32(search.step), search.steps, search.absolute
    return _fitted(x, weights, 2, lambda given, out: loops.affine(*given, *numbers, *out))
