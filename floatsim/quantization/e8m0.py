"""The conversion of scales to E8M0 by PyTorch's rule, which is not that of `fs.encode`."""

from __future__ import annotations

from typing import Any

import numpy as np

from floatsim.arrays.array.conversion import read_floats
from floatsim.arrays.array.float_array import FloatArray
from floatsim.emulator.elementwise.execute import convert
from floatsim.formats import E8M0, FP32
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes

__all__ = ["torch_e8m0"]

_NEAREST = CallOptions(RoundingAttributes())
_FRACTION, _HALF = (1 << 23) - 1, 1 << 22  # of FP32


def torch_e8m0(x: Any) -> FloatArray:
    """Return x in E8M0 by PyTorch's rule, as `x.to(torch.float8_e8m0fnu)` converts it.

    The sign is dropped. Magnitudes from 2^-126 on are rounded to the nearest power of two, and ties go up, as by
    `fs.encode`. Magnitudes between 2^-127 and 2^-126 become 2^-126, smaller ones and zero 2^-127. Magnitudes from
    1.5 * 2^127 on, infinity and NaN become NaN. Other formats than FP32 are first rounded to FP32, ties to even.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray, or an array whose dtype is a format, of any shape.

    Returns
    -------
    FloatArray
        In E8M0, in the shape of x.

    Raises
    ------
    TypeError
        If x has no format.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = np.float32([-3.0, 0.0, 2.9, np.inf])
    >>> fs.quantization.torch_e8m0(x).codes, fs.encode(x, "e8m0")
    (array([129,   0, 128, 255], dtype=uint8), array([255, 255, 128, 255], dtype=uint8))
    """
    codes, fmt, _ = read_floats(x, "x")
    bits = codes if fmt == FP32 else convert(codes, fmt, FP32, _NEAREST, False)[0]
    exponent, fraction = (bits >> np.uint32(23)) & np.uint32(0xFF), bits & np.uint32(_FRACTION)
    up = (fraction >= _HALF) & ((exponent > 0) | (fraction > _HALF)) & (exponent < 255)
    return FloatArray((exponent + up).astype(np.uint8), E8M0)
