"""Narrow formats, as the kernels of `floatsim_kernels.grids` round float32 numbers to them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from floatsim_kernels import grids

from floatsim.formats import FP32, FloatFormat

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["is_narrow", "narrow_grid"]


def is_narrow(fmt: FloatFormat) -> bool:
    """Whether sums and products of the format, rounded to float32, are rounded right once more, and by addition."""
    return (
        2 * fmt.precision + 2 <= FP32.precision
        and fmt.emin - fmt.trailing_bits - 1 >= FP32.emin
        and fmt.emax + 1 + FP32.precision - fmt.precision <= FP32.emax
        and fmt.has_signed_zero
        and fmt.has_nan
        and not fmt.is_scale
    )


@lru_cache(maxsize=256)
def narrow_grid(fmt: FloatFormat) -> NDArray[np.uint32]:
    """The row that describes a narrow format to the kernels."""

    def bits(x: float) -> int:
        return int(np.float32(x).view(np.uint32))

    fields = {
        "emin": bits(fmt.smallest_normal),
        "limit": fmt.emax + 1 + FP32.bias << FP32.trailing_bits,
        "above": FP32.precision - fmt.precision << FP32.trailing_bits,
        "max": bits(fmt.max),
        "overflow": bits(np.inf if fmt.has_infinity else np.nan),
    }
    row = np.array([fields[name] for name in grids.NARROW_FIELDS], dtype=np.uint32)
    row.flags.writeable = False
    return row
