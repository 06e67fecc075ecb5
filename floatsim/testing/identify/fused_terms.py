"""Find which products of a kernel enter its sums without a rounding of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floatsim.formats import FP32, FloatFormat
from floatsim.testing.identify.tree_search import Meetings

__all__ = ["fused_terms"]

_S = FP32.precision // 2  # (1 + 2**-S) (1 + 2**-(S + 1)) exceeds its FP32 by 2**-(2 S + 1), a quarter of an ulp


def fused_terms(
    kernel: Callable[[Any, Any], NDArray[np.float64]], meetings: Meetings, shape: tuple[int, int, int],
    operands: tuple[FloatFormat, FloatFormat],
) -> NDArray[np.bool_] | None:  # fmt: skip
    """Return for each term whether its product is fused with an FP32 sum; None if that cannot be tested.

    All terms are zeros but two: a product that FP32 does not hold, and the negative of its rounded value in a term that
    it meets first. They leave nothing if the product is rounded before the addition. The first term of an accumulator
    is added to 0, and so it is rounded.

    >>> import floatsim as fs
    >>> from floatsim.testing.identify.tree_search import Meetings
    >>> def kernel(a, b):
    ...     return np.asarray(fs.matmul(fs.array(a, "fp32"), fs.array(b, "fp32"), accumulate="sequential(fp32, fused)"))
    >>> i, j = np.triu_indices(4, 1)
    >>> fused_terms(kernel, Meetings(i, j, j + 1), (8, 4, 8), (fs.FP32, fs.FP32)).tolist()
    [False, True, True, True]
    """
    m, k, n = shape
    if len(meetings.i) != k * (k - 1) // 2 or min(each.precision for each in operands) < FP32.precision:
        return None
    sizes = np.full((k, k), k + 1)
    sizes[meetings.i, meetings.j] = sizes[meetings.j, meetings.i] = meetings.sizes
    partners = sizes.argmin(1)
    product = 1 + 2.0**-_S + 2.0 ** -(_S + 1)
    found = np.zeros(k, bool)
    for start in range(0, k, min(m, n)):  # one term for each place of the diagonal
        terms = np.arange(start, min(start + min(m, n), k))
        places = np.arange(len(terms))
        a, b = np.zeros((m, k)), np.zeros((k, n))
        a[places, terms], b[terms, places] = 1 + 2.0**-_S, 1 + 2.0 ** -(_S + 1)
        a[places, partners[terms]], b[partners[terms], places] = -product, 1
        found[terms] = kernel(a, b)[places, places] != 0
    return found
