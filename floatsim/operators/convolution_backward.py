"""Gradients of convolution, pooling and embedding."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise.arithmetic import divide
from floatsim.formats._validation import as_index
from floatsim.operators.computation import Array, Computation, RecipeKeywords, computation, count, operator
from floatsim.operators.convolution import image, pair, table_rows, window_rows, windows_of
from floatsim.operators.linear_backward import LinearGradients

__all__ = ["avg_pool_backward", "conv2d_backward", "embedding_backward", "max_pool_backward"]


def _windows_over(
    length: int, windows: int, size: int, stride: int, padding: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return the windows that contain each position of one axis, and the offset of the position in them.

    Each has the shape (length, slots), with the windows in ascending order. The third result is False in a slot without
    a window.
    """
    position = np.arange(length)[:, np.newaxis] + padding
    window = position // stride + np.arange(1 - -(-size // stride), 1)
    offset = position - window * stride
    found = (window >= 0) & (window < windows) & (offset < size)
    return np.where(found, window, 0), np.where(found, offset, 0), found


def _terms_of_elements(
    c: Computation, terms: Array, lengths: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
) -> Array:
    """Return the terms of each element of an image: those of the windows that contain it, in C order.

    Parameters
    ----------
    terms : Array, (..., rows, columns, *size)
        One term for each element of each window.

    Returns
    -------
    Array, (..., height, width, slots)
        A slot without a window has the term +0.
    """
    windows, size = terms.shape[-4:-2], terms.shape[-2:]
    (row, down, in_rows), (column, right, in_columns) = (
        _windows_over(*each) for each in zip(lengths, windows, size, stride, padding, strict=True)
    )
    found = in_rows[:, np.newaxis, :, np.newaxis] & in_columns[:, np.newaxis, :]

    def gathered(values: NDArray[Any]) -> NDArray[Any]:
        across = (slice(None), np.newaxis, slice(None), np.newaxis)
        picked = values[..., row[across], column[:, np.newaxis, :], down[across], right[:, np.newaxis, :]]
        return np.where(found, picked, values.dtype.type(0)).reshape(*picked.shape[:-2], -1)

    return c.moved(gathered, terms)


# -- conv2d ------------------------------------------------------------------------------------------------------------


def _transposed(
    c: Computation, g: Array, w: Array, lengths: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
) -> Array:
    """Return the gradient by the images as one sum over outputs and the rotated filter."""
    axes = []
    for length, windows, size, step, pad in zip(lengths, g.shape[-2:], w.shape[-2:], stride, padding, strict=True):
        place = np.arange(length)[:, np.newaxis] + pad - np.arange(size)[::-1]
        found = (place % step == 0) & (place >= 0) & (place < windows * step)
        axes.append((np.where(found, place // step, 0), found))
    (row, in_rows), (column, in_columns) = axes
    found = in_rows[:, np.newaxis, :, np.newaxis] & in_columns[:, np.newaxis, :]

    def gathered(values: NDArray[Any]) -> NDArray[Any]:
        picked = values[..., row[:, np.newaxis, :, np.newaxis], column[:, np.newaxis, :]]
        return np.where(found, picked, values.dtype.type(0))

    terms = window_rows(c, c.moved(gathered, g))
    filters = c.moved(lambda v: np.moveaxis(v[..., ::-1, ::-1], 1, -1).reshape(-1, w.shape[1]), w)
    found_rows = c.product("input_gradient", terms, filters)
    return np.moveaxis(found_rows.reshape(g.shape[0], *lengths, w.shape[1]), -1, 1)


def _through_columns(
    c: Computation, g: Array, w: Array, lengths: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
) -> Array:
    """Return the gradient by the images as the sum of the gradients by the windows."""
    rows = np.moveaxis(g, 1, -1)
    by_window = c.product("window_gradient", rows.reshape(-1, g.shape[1]), w.reshape(w.shape[0], -1))
    terms = np.moveaxis(by_window.reshape(*rows.shape[:-1], *w.shape[1:]), 3, 1)
    return c.sum("input_gradient", _terms_of_elements(c, terms, lengths, stride, padding))[..., 0]


@operator
def conv2d_backward(
    gradient: Floats, x: Floats, weight: Floats, *, stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0, **keywords: Unpack[RecipeKeywords],
) -> LinearGradients:  # fmt: skip
    """Return the gradients of conv2d by its operands.

    Parameters
    ----------
    gradient : array_like of floats, (batch, outputs, ...)
        The gradient of the loss by the result of conv2d.
    x : array_like of floats, (batch, channels, height, width)
    weight : array_like of floats, (outputs, channels, rows, columns)
        The operands of conv2d.
    stride, padding : int or (int, int)
        As in `fs.operators.conv2d`.
    {keywords}

    Returns
    -------
    LinearGradients
        The gradients, as ndarrays if gradient is one and their formats have dtypes.

    {raises}

    Notes
    -----
    The steps: gradient, input and weight, the conversions of the operands; the gradient by x, by variant:

    - "transposed": input_gradient = one sum over outputs, and rows and columns of the filter rotated by 180 degrees, in
      this order, as a matrix product. With zeros between and around the gradients, they are the windows of a
      convolution. These zeros are terms.
    - "columns": window_gradient = gradient @ weight, the sum over outputs, for each element of each window;
      input_gradient = the sum over the windows that contain the element, in C order. An axis has as many terms as
      windows of this size and stride overlap, and a window that does not exist gives the term +0.

    Then weight_gradient = the sum over images and windows in C order, as a matrix product (the zeros of the padding are
    terms); bias_gradient = the sum of gradient in the same order. Each is converted to the format of output.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x, weight = (fs.array(np.ones((1, 1, n, n)), "fp16") for n in (3, 2))
    >>> fs.operators.conv2d_backward(fs.array(np.ones((1, 1, 2, 2)), "fp16"), x, weight).x.tolist()
    [[[[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]]]
    """
    with computation("conv2d_backward", gradient, keywords) as c:
        g, images, w = c.operand("gradient", gradient), image(c, x), c.operand("weight", weight)
        steps, around = pair(stride, "stride", 1), pair(padding, "padding", 0)
        if w.ndim != 4 or w.shape[1] != images.shape[1]:
            raise ValueError(f"x {images.shape} and weight {w.shape} do not fit")
        windows = windows_of(c, images, w.shape[2:], steps, around)
        if g.shape != (images.shape[0], w.shape[0], *windows.shape[2:4]):
            raise ValueError(f"gradient {g.shape}, x {images.shape} and weight {w.shape} do not fit")
        by_images = {"transposed": _transposed, "columns": _through_columns}[c.variant]
        rows = np.moveaxis(g, 1, -1).reshape(-1, g.shape[1])
        found = (
            by_images(c, g, w, images.shape[2:], steps, around),
            c.product("weight_gradient", np.transpose(rows), window_rows(c, windows)).reshape(w.shape),
            c.sum("bias_gradient", rows, 0).reshape(-1),
        )
        return LinearGradients(*(c.result(c.converted("output", each)) for each in found))


# -- pooling -----------------------------------------------------------------------------------------------------------


@operator
def max_pool_backward(
    gradient: Floats, x: Floats, size: int | tuple[int, int], *, stride: int | tuple[int, int] | None = None,
    **keywords: Unpack[RecipeKeywords],
) -> Any:  # fmt: skip
    """Return the gradient of max_pool by its input.

    Parameters
    ----------
    gradient : array_like of floats, (batch, channels, ...)
        The gradient of the loss by the result of max_pool.
    x : array_like of floats, (batch, channels, height, width)
        The operand of max_pool.
    size : int or (int, int)
    stride : int or (int, int), optional
        As in `fs.operators.max_pool`.
    {keywords}

    Returns
    -------
    FloatArray or ndarray
        An ndarray if gradient is one and the format of the step "output" has a dtype.

    Raises
    ------
    TypeError, ValueError
        As in `fs.operators.max_pool`. Also for a gradient whose shape does not fit.

    Notes
    -----
    The steps: gradient and input, the conversions of the operands; sum = the sum of the terms of all windows that
    contain an element, in C order; output = the conversion of sum. The term of a window is its gradient for the first
    largest element in C order (for the first NaN, if there is one), and +0 for the others. An axis has as many terms
    as windows of this size and stride overlap, and a window that does not exist gives the term +0.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = fs.array([[[[1.0, 3.0, 2.0], [0.0, 1.0, 2.0]]]], "bf16")
    >>> fs.operators.max_pool_backward(fs.array([[[[1.0, 2.0]]]], "bf16"), x, 2, stride=1).tolist()
    [[[[0.0, 3.0, 0.0], [0.0, 0.0, 0.0]]]]
    """
    with computation("max_pool_backward", gradient, keywords) as c:
        g, images = c.operand("gradient", gradient), image(c, x)
        window = pair(size, "size", 1)
        steps = window if stride is None else pair(stride, "stride", 1)
        windows = windows_of(c, images, window, steps, (0, 0))
        if g.shape != windows.shape[:4]:
            raise ValueError(f"gradient has the shape {g.shape}, and the windows of x have {windows.shape[:4]}")
        first = np.argmax(windows.reshape(*g.shape, -1), axis=-1)
        chosen = first[..., np.newaxis] == np.arange(window[0] * window[1])
        terms = c.select(chosen.reshape(windows.shape), g[..., np.newaxis, np.newaxis], c.number(0.0, g))
        return _sum_over_windows(c, terms, images.shape[2:], steps)


@operator
def avg_pool_backward(
    gradient: Floats, lengths: tuple[int, int], size: int | tuple[int, int], *,
    stride: int | tuple[int, int] | None = None, **keywords: Unpack[RecipeKeywords],
) -> Any:  # fmt: skip
    """Return the gradient of avg_pool by its input.

    Parameters
    ----------
    gradient : array_like of floats, (batch, channels, ...)
        The gradient of the loss by the result of avg_pool.
    lengths : (int, int)
        The height and width of the operand of avg_pool.
    size : int or (int, int)
    stride : int or (int, int), optional
        As in `fs.operators.avg_pool`.
    {keywords}

    Returns
    -------
    FloatArray or ndarray, (batch, channels, height, width)
        As in `fs.operators.max_pool_backward`.

    {raises}

    Notes
    -----
    The steps: gradient, the conversion of the operand; share = gradient / n, with the exact number n of elements of a
    window; sum = the sum of the shares of all windows that contain an element, in C order; output = the conversion of
    sum. An axis has as many terms as windows of this size and stride overlap, and a window that does not exist gives
    the term +0.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.operators.avg_pool_backward(fs.array([[[[1.0, 2.0]]]], "bf16"), (2, 3), 2, stride=1).tolist()
    [[[[0.25, 0.75, 0.5], [0.25, 0.75, 0.5]]]]
    """
    with computation("avg_pool_backward", gradient, keywords) as c:
        g, image_lengths, window = c.operand("gradient", gradient), pair(lengths, "lengths", 1), pair(size, "size", 1)
        steps = window if stride is None else pair(stride, "stride", 1)
        numbers = tuple((n - k) // s + 1 for n, k, s in zip(image_lengths, window, steps, strict=True))
        if g.ndim != 4 or g.shape[2:] != numbers:
            raise ValueError(f"gradient has the shape {g.shape}, and the windows of {image_lengths} are {numbers}")
        share = c.value("share", divide, g, count(window[0] * window[1]))
        terms = c.moved(lambda v: np.broadcast_to(v[..., np.newaxis, np.newaxis], (*v.shape, *window)), share)
        return _sum_over_windows(c, terms, image_lengths, steps)


def _sum_over_windows(c: Computation, terms: Array, lengths: tuple[int, int], stride: tuple[int, int]) -> Any:
    total = c.sum("sum", _terms_of_elements(c, terms, lengths, stride, (0, 0)))
    return c.result(c.converted("output", total)[..., 0])


# -- embedding ---------------------------------------------------------------------------------------------------------


@operator
def embedding_backward(gradient: Floats, indices: Any, rows: int, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return the gradient of embedding by its table.

    Parameters
    ----------
    gradient : array_like of floats, (..., features)
        The gradient of the loss by the result of embedding.
    indices : array_like of int, (...)
        The rows that embedding returned.
    rows : int
        The number of rows of the table.
    {keywords}

    Returns
    -------
    FloatArray or ndarray, (rows, features)
        An ndarray if gradient is one and the format of the step "output" has a dtype.

    Raises
    ------
    TypeError, ValueError
        As in `fs.operators.embedding`. Also for a gradient whose shape does not fit.

    Notes
    -----
    The steps: gradient, the conversion of the operand; sum = for each row of the table, the sum of its gradients, in
    the C order of indices; output = the conversion of sum. A row without an index has the gradient +0.

    Examples
    --------
    A frequent word has many gradients. In BF16, the sum of these 300 stops at 256:

    >>> import floatsim as fs, numpy as np
    >>> ones = fs.array(np.ones((300, 1)), "bf16")
    >>> [
    ...     fs.operators.embedding_backward(ones, np.zeros(300, int), 2, recipe=recipe).tolist()
    ...     for recipe in ("all-bf16", "fp32-inside")
    ... ]
    [[[256.0], [0.0]], [[300.0], [0.0]]]
    """
    with computation("embedding_backward", gradient, keywords) as c:
        g, size = c.operand("gradient", gradient), as_index(rows, "rows", 1, 1 << 31)
        used = table_rows(indices, size)
        if not g.ndim or g.shape[:-1] != used.shape:
            raise ValueError(f"gradient {g.shape} and indices {used.shape} do not fit: they differ in the last axis")
        flat = g.reshape(-1, g.shape[-1])
        numbers = np.bincount(used.ravel(), minlength=size)
        by_row, starts = np.argsort(used.ravel(), kind="stable"), np.cumsum(numbers) - numbers
        sums, order = [], []
        for n in np.unique(numbers):  # rows with equal numbers of gradients are added together
            group = np.flatnonzero(numbers == n)
            terms = flat[by_row[starts[group][:, np.newaxis] + np.arange(n)]]
            sums.append(c.sum("sum", terms, 1)[:, 0])
            order.append(group)
        found = np.concatenate(sums, axis=0)[np.argsort(np.concatenate(order))]
        return c.result(c.converted("output", found))
