"""Addends c of matrix products that tell apart where a kernel adds c: first, last, or after a rounding of the sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from floatsim.arrays.array.conversion import encode
from floatsim.arrays.array.float_array import FloatArray
from floatsim.formats import FloatFormat
from floatsim.testing.compare.product import Product

__all__ = ["with_addend"]

_BELOW = 26  # the bits below the sum of magnitudes where the result of a sum of 0 is


def with_addend(product: Product, fmt: FloatFormat, shape: tuple[int, ...], seed: int) -> Product:
    """Return a product with an addend: random numbers between the size of the result and that of the sum of magnitudes.

    >>> import numpy as np, floatsim as fs
    >>> from floatsim.testing.compare.product import product_of
    >>> product = product_of(np.ones((2, 3), np.float32), np.ones((3, 4), np.float32), None, "fp32")
    >>> with_addend(product, fs.FP16, (4,), 0).c.shape
    (1, 4)
    """
    with np.errstate(all="ignore"):
        a, b = (np.nan_to_num(np.asarray(x.values, np.float64), posinf=0, neginf=0) for x in (product.a, product.b))
        most, exact = np.nan_to_num(np.abs(a) @ np.abs(b)), np.abs(np.nan_to_num(a @ b))
        least = np.maximum(exact, most * 2.0**-_BELOW)
    wide = (1,) * (2 - len(shape)) + shape
    axes = tuple(axis for axis in (0, 1) if wide[axis] == 1)
    high, low = (x.max(axis=axes, keepdims=True) for x in (most, least))
    rng = np.random.default_rng([seed, 1])
    with np.errstate(divide="ignore", invalid="ignore"):
        bottom, top = np.log2(low) - 3, np.log2(high) + 1
        exponents = np.floor(np.nan_to_num(bottom + rng.random(wide) * (top - bottom)))
    size = np.ldexp(1 + rng.random(wide), np.clip(exponents, -1074, 1023).astype(int))
    c = np.where(high > 0, size * (1.0 - 2.0 * rng.integers(0, 2, wide)), 0.0)
    return replace(product, c=FloatArray(encode(c, fmt, overflow="saturate_finite"), fmt))
