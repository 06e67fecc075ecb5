"""Convolution, pooling and embedding."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise.arithmetic import add, divide
from floatsim.formats._validation import as_index
from floatsim.operators.computation import Array, Computation, RecipeKeywords, computation, count, operator

__all__ = [
    "avg_pool", "conv2d", "embedding", "flat_windows", "image", "max_pool", "pair", "table_rows", "window_rows",
    "windows_of",
]  # fmt: skip


def pair(given: int | tuple[int, int], argument: str, least: int) -> tuple[int, int]:
    """Return the numbers for rows and columns."""
    both = given if isinstance(given, tuple) else (given, given)
    if len(both) != 2:
        raise ValueError(f"{argument} must be one integer or two, not {given!r}")
    rows, columns = (as_index(n, argument, least, 1 << 31) for n in both)
    return rows, columns


def windows_of(
    c: Computation, x: Array, size: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int], fill: Any = 0
) -> Array:
    """Return the windows of a padded image: (..., rows, columns, *size). `fill` is the code of the padding."""
    (rows, columns), (top, left) = size, padding
    height, width = x.shape[-2] + 2 * top, x.shape[-1] + 2 * left
    if rows > height or columns > width:
        raise ValueError(f"a window of {size} does not fit the image {x.shape[-2:]} with padding {padding}")

    def cut(values: NDArray[Any]) -> NDArray[Any]:
        outside = [(0, 0)] * (values.ndim - 2) + [(top, top), (left, left)]
        padded = np.pad(values, outside, constant_values=fill)
        windows = np.lib.stride_tricks.sliding_window_view(padded, size, (-2, -1))
        return np.asarray(windows[..., :: stride[0], :: stride[1], :, :])

    return c.moved(cut, x)


def image(c: Computation, x: Any) -> Array:
    """Return the operand "input"."""
    operand = c.operand("input", x)
    if operand.ndim != 4:
        raise ValueError(f"x must have the shape (batch, channels, height, width), not {operand.shape}")
    return operand


def window_rows(c: Computation, windows: Array) -> Array:
    """Return one row for each window of (batch, channels, rows, columns, *size): its elements in C order."""
    count_of_windows = windows.shape[0] * windows.shape[2] * windows.shape[3]
    return c.moved(lambda v: np.moveaxis(v, 1, 3).reshape(count_of_windows, -1), windows)


@operator
def conv2d(
    x: Floats, weight: Floats, bias: Floats | None = None, *, stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0, **keywords: Unpack[RecipeKeywords],
) -> Any:  # fmt: skip
    """Return the two-dimensional cross-correlation of images with filters, plus bias.

    Parameters
    ----------
    x : array_like of floats, (batch, channels, height, width)
        A FloatArray or an array whose dtype is a format.
    weight : array_like of floats, (outputs, channels, rows, columns)
        The filters.
    bias : array_like of floats, (outputs,), optional
        Without it, the step "biased" is omitted.
    stride, padding : int or (int, int)
        The distance of the windows, and the number of zeros on each side, for rows and columns.
    {keywords}

    Returns
    -------
    FloatArray or ndarray, (batch, outputs, ...)
        An ndarray if x is one and the format of the step "output" has a dtype.

    {raises}

    Notes
    -----
    The steps: input, weight and bias, the conversions of the operands; product = the sums over channels, rows and
    columns of a window, in this order (C order), as a matrix product with the accumulation of the step. The zeros of
    the padding are terms. Then, by variant:

    - "bias-last": biased = product + bias.
    - "bias-first": the bias enters the sum, as `c` does that of `fs.matmul`.

    Last, output = the conversion of the last value.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = fs.array(np.arange(9.0).reshape(1, 1, 3, 3), "fp16")
    >>> fs.operators.conv2d(x, fs.array(np.ones((1, 1, 2, 2)), "fp16")).tolist()
    [[[[8.0, 12.0], [20.0, 24.0]]]]
    """
    with computation("conv2d", x, keywords) as c:
        images, w = image(c, x), c.operand("weight", weight)
        if w.ndim != 4 or w.shape[1] != images.shape[1]:
            raise ValueError(
                f"x {images.shape} and weight {w.shape} do not fit: weight must be (outputs, channels of x, rows, "
                "columns)"
            )
        b = None if bias is None else c.operand("bias", bias)
        if b is not None and b.shape != (w.shape[0],):
            raise ValueError(f"bias {b.shape} does not fit the {w.shape[0]} outputs of weight")
        size = w.shape[2], w.shape[3]
        windows = windows_of(c, images, size, pair(stride, "stride", 1), pair(padding, "padding", 0))
        batch, _, rows, columns = windows.shape[:4]
        terms = window_rows(c, windows)
        filters = c.moved(lambda v: v.reshape(w.shape[0], -1).T, w)
        product = c.product("product", terms, filters, b if c.variant == "bias-first" else None)
        if b is not None and c.variant == "bias-last":
            product = c.value("biased", add, product, b)
        output = c.converted("output", product)
        return c.result(np.moveaxis(output.reshape(batch, rows, columns, w.shape[0]), -1, 1))


@operator
def max_pool(
    x: Floats, size: int | tuple[int, int], *, stride: int | tuple[int, int] | None = None,
    **keywords: Unpack[RecipeKeywords],
) -> Any:  # fmt: skip
    """Return the largest element of each window of images. Nothing is rounded but the conversions.

    Parameters
    ----------
    x : array_like of floats, (batch, channels, height, width)
        A FloatArray or an array whose dtype is a format.
    size : int or (int, int)
        The rows and columns of a window.
    stride : int or (int, int), optional
        The distance of the windows. Default: their size.
    {keywords}

    Returns
    -------
    FloatArray or ndarray
        As in `fs.operators.conv2d`. A window with a NaN gives NaN.

    {raises}

    Notes
    -----
    The steps: input, the conversion of x; max = the largest element; output = the conversion of max.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = fs.array(np.arange(16.0).reshape(1, 1, 4, 4), "e4m3")
    >>> fs.operators.max_pool(x, 2).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """
    with computation("max_pool", x, keywords) as c:
        largest = c.maximum("max", flat_windows(c, x, size, stride))
        return c.result(c.converted("output", largest)[..., 0])


@operator
def avg_pool(
    x: Floats, size: int | tuple[int, int], *, stride: int | tuple[int, int] | None = None,
    **keywords: Unpack[RecipeKeywords],
) -> Any:  # fmt: skip
    """Return the mean of each window of images.

    Parameters
    ----------
    x : array_like of floats, (batch, channels, height, width)
        A FloatArray or an array whose dtype is a format.
    size : int or (int, int)
        The rows and columns of a window.
    stride : int or (int, int), optional
        The distance of the windows. Default: their size.
    {keywords}

    {results}

    Notes
    -----
    The steps: input, the conversion of x; sum = the sum of a window in C order; mean = sum / n, with the exact number n
    of elements; output = the conversion of mean.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = fs.array(np.arange(16.0).reshape(1, 1, 4, 4), "fp16")
    >>> fs.operators.avg_pool(x, 2).tolist()
    [[[[2.5, 4.5], [10.5, 12.5]]]]
    """
    with computation("avg_pool", x, keywords) as c:
        windows = flat_windows(c, x, size, stride)
        mean = c.value("mean", divide, c.sum("sum", windows), count(windows.shape[-1]))
        return c.result(c.converted("output", mean)[..., 0])


def flat_windows(c: Computation, x: Any, size: int | tuple[int, int], stride: int | tuple[int, int] | None) -> Array:
    """Return the windows with their elements along the last axis."""
    window = pair(size, "size", 1)
    steps = window if stride is None else pair(stride, "stride", 1)
    windows = windows_of(c, image(c, x), window, steps, (0, 0))
    return c.moved(lambda v: v.reshape(*v.shape[:-2], -1), windows)


@operator
def embedding(indices: Any, weight: Floats, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return the rows of a table.

    Parameters
    ----------
    indices : array_like of int
        The rows to return.
    weight : array_like of floats, (rows, features)
        The table: a FloatArray or an array whose dtype is a format.
    {keywords}

    Returns
    -------
    FloatArray or ndarray, (..., features)
        An ndarray if weight is one and the format of the step "output" has a dtype.

    Raises
    ------
    TypeError
        For a table without a float format, for indices that are not integers, and for unknown keywords.
    ValueError
        For unknown recipes and steps, with the nearest match, and for indices outside of the table.

    Notes
    -----
    The steps: weight, the conversion of the table; output = the conversion of the rows.

    Examples
    --------
    >>> import floatsim as fs
    >>> table = fs.array([[0.1, 0.2], [0.3, 0.4]], "bf16")
    >>> fs.operators.embedding([1, 0], table)
    FloatArray([[0.3008, 0.4004],
                [0.1001, 0.2002]], BF16)
    """
    with computation("embedding", weight, keywords) as c:
        table = c.operand("weight", weight)
        if table.ndim != 2:
            raise ValueError(f"weight must have the shape (rows, features), not {table.shape}")
        return c.result(c.converted("output", table[table_rows(indices, len(table))]))


def table_rows(indices: Any, rows: int) -> NDArray[np.int64]:
    """Return the indices of rows of a table."""
    found = np.asarray(indices)
    if found.dtype.kind not in "iu":
        raise TypeError(f"indices must be integers, not {found.dtype}")
    if found.size and not 0 <= found.min() <= found.max() < rows:
        raise ValueError(f"indices must be from 0 to {rows - 1}")
    return found.astype(np.int64)
