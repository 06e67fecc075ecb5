"""Formats and manners of rounding as rows of integers, which is what the kernels know of them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
from floatsim_kernels import rounding as rows

from floatsim.formats import FloatFormat
from floatsim.rounding import Attributes

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["format_row", "manner_row"]


@functools.lru_cache(maxsize=256)
def format_row(fmt: FloatFormat) -> NDArray[np.int64]:
    """The kernels' description of a format."""
    fields = {
        "precision": fmt.precision,
        "emin": fmt.emin,
        "max_code": fmt.max_code,
        "infinity": -1 if fmt.infinity_code is None else fmt.infinity_code,
        "nan": -1 if fmt.canonical_nan is None else fmt.canonical_nan,
        "sign_shift": fmt.exponent_bits + fmt.trailing_bits,
        "quiet_bit": 1 << (fmt.trailing_bits - 1) if fmt.has_infinity else 0,
        "signed_zero": int(fmt.has_signed_zero),
        "is_scale": int(fmt.is_scale),
    }
    return _row(fields, rows.FORMAT_FIELDS)


@functools.lru_cache(maxsize=256)
def manner_row(attributes: Attributes) -> NDArray[np.int64]:
    """The kernels' description of a manner of rounding."""
    fields = {
        "rounding": attributes.rounding.value,
        "overflow": attributes.overflow.value,
        "daz": int(attributes.daz),
        "ftz": int(attributes.ftz),
        "tiny_before": attributes.tininess.value,
        "random_bits": attributes.random_bits,
    }
    return _row(fields, rows.MANNER_FIELDS)


def _row(fields: dict[str, int], order: tuple[str, ...]) -> NDArray[np.int64]:
    row = np.array([fields[name] for name in order], dtype=np.int64)
    row.flags.writeable = False
    return row
