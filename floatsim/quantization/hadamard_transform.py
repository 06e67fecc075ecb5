"""The Hadamard transform of the blocks of a tensor, with a rounding at every step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from floatsim.accumulation import AccumulationLike
from floatsim.arrays.array.conversion import convert, read_floats
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise.arithmetic import add, multiply, negative, subtract
from floatsim.arrays.sums.products import matmul
from floatsim.formats import FormatLike, as_format
from floatsim.formats._validation import as_index
from floatsim.quantization.scales import number

__all__ = ["NVFP4_SIGNS", "hadamard"]

NVFP4_SIGNS = (1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1)
"""The signs of TransformerEngine's random Hadamard transform of 16 elements.

>>> import floatsim as fs
>>> len(fs.quantization.NVFP4_SIGNS), sum(fs.quantization.NVFP4_SIGNS)
(16, -4)
"""

_LARGEST_BLOCK = 1 << 16


def _checked_signs(signs: Any, block: int) -> NDArray[np.float64] | None:
    if signs is None:
        return None
    given = np.asarray(signs, np.float64)
    if given.shape != (block,) or not np.all(np.abs(given) == 1):
        raise ValueError(f"signs must be {block} numbers of 1 or -1, one for each element of a block, not {signs!r}")
    return given


def _matrix(block: int) -> NDArray[np.float64]:
    """Return Sylvester's matrix: H(1) = 1, H(2n) = [[H, H], [H, -H]]."""
    h = np.ones((1, 1))
    while len(h) < block:
        h = np.block([[h, h], [h, -h]])
    return h


def _butterflies(x: FloatArray, block: int) -> FloatArray:
    """Return x @ H by log2(block) steps of sums and differences of pairs, each rounded."""
    rows, half = x.size // block, 1
    while half < block:
        pairs = x.reshape(rows, block // (2 * half), 2, half)
        a, b = pairs[:, :, 0], pairs[:, :, 1]
        codes = np.stack([_codes(add(a, b)), _codes(subtract(a, b))], axis=2)
        x, half = FloatArray(codes, x.format), 2 * half
    return x.reshape(rows, block)


def _codes(x: Any) -> Any:
    return read_floats(x, "x")[0]


def hadamard(
    x: Floats,
    block: int = 16,
    *,
    signs: Any = None,
    axis: int = -1,
    format: FormatLike | None = None,
    accumulate: AccumulationLike | None = None,
    inverse: bool = False,
) -> FloatArray:
    """Return the Hadamard transform of blocks of neighbours: (x * signs) @ H / sqrt(block).

    H is Sylvester's matrix of ones and minus ones. The transform spreads an outlier over its block. Applied to both
    operands of a matrix product along K, it leaves the exact product unchanged, because H H^T / block is the identity.

    Parameters
    ----------
    x : array_like of floats
        The tensor. Its length along the axis is a multiple of `block`.
    block : int
        The length of a block, a power of two.
    signs : sequence of 1 and -1, optional
        One sign for each element of a block. `fs.quantization.NVFP4_SIGNS` are those of TransformerEngine. Default:
        no signs.
    axis : int
        The axis of the blocks.
    format : format, optional
        The format of x and of every step. x is rounded to it first. Default: the format of x.
    accumulate : description, format or text, optional
        The transform as a product with the matrix H / sqrt(block), rounded to the format: the sums have this
        accumulation, and one more rounding to the format. TransformerEngine runs it so on a Tensor Core. Default:
        log2(block) steps, in which each sum and difference of two elements is rounded to the format; then the product
        with 1 / sqrt(block), rounded to the format. For 16 elements that factor is 1/4, and exact.
    inverse : bool
        The inverse transform: x @ H / sqrt(block), then the signs.

    Returns
    -------
    FloatArray
        In the shape of x and in the format.

    Raises
    ------
    TypeError
        If x has no float format.
    ValueError
        For a block that is no power of two or does not divide the axis, and for wrong signs.

    Notes
    -----
    The first step joins neighbours, then neighbours of two, four and so on. Roundings follow the context.

    Examples
    --------
    An outlier is spread over its block:

    >>> import floatsim as fs, numpy as np
    >>> x = np.float32([8, 0, 0, 0, 1, 1, 1, 1])
    >>> y = fs.quantization.hadamard(x, 4)
    >>> y
    FloatArray([4.0, 4.0, 4.0, 4.0, 2.0, 0.0, 0.0, 0.0], FP32)
    >>> fs.quantization.hadamard(y, 4, inverse=True)
    FloatArray([8.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0], FP32)
    """
    size = as_index(block, "block", 1, _LARGEST_BLOCK)
    if size & (size - 1):
        raise ValueError(f"block must be a power of two, such as 16, not {size}")
    chosen = _checked_signs(signs, size)
    codes, own, _ = read_floats(x, "x")
    fmt = own if format is None else as_format(format)
    where = as_index(axis, "axis", -codes.ndim, codes.ndim - 1) if codes.ndim else 0
    if not codes.ndim or codes.shape[where] % size:
        raise ValueError(f"x {codes.shape} has no blocks of {size} along the axis {axis}; pad it with zeros")
    moved = FloatArray(np.ascontiguousarray(np.moveaxis(codes, where, -1)), own)
    blocks = _signed(moved.reshape(-1, size), None if inverse else chosen)
    converted = blocks if own == fmt else FloatArray(_codes(convert(blocks, fmt)), fmt)
    result = _transformed(converted, size, accumulate)
    result = _signed(result, chosen if inverse else None).reshape(moved.shape)
    return FloatArray(np.moveaxis(result.codes, -1, where), fmt)


def _transformed(x: FloatArray, block: int, accumulate: AccumulationLike | None) -> FloatArray:
    fmt, scale = x.format, block**-0.5
    if accumulate is not None:
        h = FloatArray(number(_matrix(block) * scale, fmt).codes, fmt)
        return FloatArray(_codes(matmul(x, h, accumulate=accumulate, format=fmt)), fmt)
    result = _butterflies(x, block)
    return result if block == 1 else FloatArray(_codes(multiply(result, number(scale, fmt))), fmt)


def _signed(x: FloatArray, signs: NDArray[np.float64] | None) -> FloatArray:
    """Return x with the opposite sign where a sign is -1."""
    if signs is None:
        return x
    return FloatArray(np.where(signs < 0, _codes(negative(x)), x.codes), x.format)
