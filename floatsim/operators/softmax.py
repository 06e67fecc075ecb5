"""Softmax, its logarithm, and the cross-entropy."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise.arithmetic import add, divide, multiply, subtract
from floatsim.arrays.elementwise.functions import exp, log, reciprocal
from floatsim.formats._validation import as_index
from floatsim.operators.computation import Array, Computation, RecipeKeywords, computation, count, operator

__all__ = ["along", "cross_entropy", "log_softmax", "softmax", "target_classes"]


@operator
def softmax(x: Floats, axis: int = -1, *, block: int = 1, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return exp(x) / sum(exp(x)) along an axis.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    axis : int
        The axis along which the results sum to 1.
    block : int
        The number of elements that the variant "online" adds at a time.
    {keywords}

    Returns
    -------
    FloatArray or ndarray
        An ndarray if x is one and the format of the step "output" has a dtype.

    Raises
    ------
    TypeError
        For an x without a float format, and for unknown keywords.
    ValueError
        For unknown recipes, variants and steps, with the nearest match, and for an axis without elements.

    Notes
    -----
    The steps of each variant, in order. Each is one operation, rounded once to the format of the step:

    - "shifted": max = largest x; shifted = x - max; exp = exp(shifted); sum = sum of exp; quotient = exp / sum.
    - "reciprocal": as "shifted", then inverse = 1 / sum; product = exp * inverse.
    - "naive": exp = exp(x); sum = sum of exp; quotient = exp / sum.
    - "online": m and l are the running maximum and sum. For each block b along the axis, max = the larger of m and the
      largest b; difference = m - max; factor = exp(difference); rescaled = l * factor; shifted = b - max; exp =
      exp(shifted); block_sum = sum of exp; sum = rescaled + block_sum. The first block has no rescaled sum. Then
      shifted = x - max; exp = exp(shifted); quotient = exp / sum. A running maximum of -infinity counts as 0.

    All variants start with input, the conversion of x, and end with output, the conversion of the last value.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.array([12.0, 0.0], "fp16")
    >>> fs.operators.softmax(x, recipe="all-fp16", variant="naive")
    FloatArray([nan, 0.0], FP16)
    >>> fs.operators.softmax(x, recipe="all-fp16")
    FloatArray([1.0, 6.1393e-06], FP16)
    """
    with computation("softmax", x, keywords) as c:
        rows = along(c, _rows(c, x, axis), axis)
        found = _VARIANTS[c.variant](c, rows, as_index(block, "block", 1, 1 << 31))
        return c.result(np.moveaxis(c.converted("output", found), -1, axis))


def along(c: Computation, x: Array, axis: int) -> Array:
    """Return an operand with an axis as its last one. Refuse a strict call of other shapes than the compared ones."""
    rows = np.moveaxis(x, axis, -1)
    last = np.lib.array_utils.normalize_axis_index(axis, x.ndim) == x.ndim - 1
    c.must_be_compared(
        rows=math.prod(rows.shape[:-1]), columns=rows.shape[-1], axis="last" if last else "before the last"
    )
    return rows


def _rows(c: Computation, x: Any, axis: int) -> Array:
    """Return the operand "input". A ValueError says that an axis is missing or empty."""
    operand = c.operand("input", x)
    if not operand.shape[np.lib.array_utils.normalize_axis_index(axis, operand.ndim)]:
        raise ValueError(f"{c.operator} along axis {axis} of shape {operand.shape} has no elements")
    return operand


def _exp_and_sum(c: Computation, x: Array) -> tuple[Array, Array, Array, Array]:
    """Return the steps max, shifted, exp and sum."""
    largest = c.maximum("max", x)
    shifted = c.value("shifted", subtract, x, largest)
    powers = c.value("exp", exp, shifted)
    return largest, shifted, powers, c.sum("sum", powers)


def _shifted(c: Computation, x: Array, block: int) -> Array:
    *_, powers, total = _exp_and_sum(c, x)
    return c.value("quotient", divide, powers, total)


def _reciprocal(c: Computation, x: Array, block: int) -> Array:
    *_, powers, total = _exp_and_sum(c, x)
    return c.value("product", multiply, powers, c.value("inverse", reciprocal, total))


def _naive(c: Computation, x: Array, block: int) -> Array:
    powers = c.value("exp", exp, x)
    return c.value("quotient", divide, powers, c.sum("sum", powers))


def _online(c: Computation, x: Array, block: int) -> Array:
    """Return the step "quotient". Only the running maximum and the running sum need a loop over the blocks."""
    full = x.shape[-1] - x.shape[-1] % block
    parts = [x[..., start:stop] for start, stop in ((0, full), (full, x.shape[-1])) if start < stop]
    blocks = [part.reshape(*x.shape[:-1], -1, min(block, part.shape[-1])) for part in parts]
    maxima = _columns(np.concatenate([c.maximum("max", part) for part in blocks], axis=-2))
    for k in range(1, len(maxima)):
        maxima[k] = c.larger("max", maxima[k - 1], maxima[k])
    running = np.stack(maxima, axis=-2)
    references = c.finite_or_zero(running)
    sums, start = [], 0
    for part in blocks:
        reference = references[..., start : start + part.shape[-2], :]
        powers = c.value("exp", exp, c.value("shifted", subtract, part, reference))
        sums.append(c.sum("block_sum", powers))
        start += part.shape[-2]
    block_sums = _columns(np.concatenate(sums, axis=-2))
    difference = c.value("difference", subtract, running[..., :-1, :], references[..., 1:, :])
    factors = _columns(c.value("factor", exp, difference))
    total = c.converted("sum", block_sums[0])
    for factor, block_sum in zip(factors, block_sums[1:], strict=True):
        total = c.value("sum", add, c.value("rescaled", multiply, total, factor), block_sum)
    powers = c.value("exp", exp, c.value("shifted", subtract, x, references[..., -1, :]))
    return c.value("quotient", divide, powers, total)


def _columns(x: Array) -> list[Array]:
    """Return the arrays (..., 1) of an array (..., n, 1)."""
    return [x[..., k, :] for k in range(x.shape[-2])]


_VARIANTS = {"shifted": _shifted, "reciprocal": _reciprocal, "naive": _naive, "online": _online}


def _log_probabilities(c: Computation, x: Array) -> Array:
    """Return the step "result" of log_softmax along the last axis."""
    if c.variant == "naive":
        return c.value("result", log, _naive(c, x, 1))
    largest, shifted, _, total = _exp_and_sum(c, x)
    logarithm = c.value("log", log, total)
    if c.variant == "shifted":
        return c.value("result", subtract, shifted, logarithm)
    return c.value("result", subtract, x, c.value("normalizer", add, largest, logarithm))


@operator
def log_softmax(x: Floats, axis: int = -1, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return the logarithm of softmax along an axis.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    axis : int
        The axis along which the exponentials of the results sum to 1.
    {keywords}

    {results}

    Notes
    -----
    The steps of each variant, after input and before output:

    - "shifted": max, shifted, exp and sum as in softmax; log = log(sum); result = shifted - log.
    - "normalizer": the same up to log; normalizer = max + log; result = x - normalizer.
    - "naive": exp, sum and quotient as in the naive softmax; result = log(quotient).

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.array([18.0, 0.0], "fp16")
    >>> fs.operators.log_softmax(x, recipe="all-fp16", variant="naive")
    FloatArray([nan, -inf], FP16)
    >>> fs.operators.log_softmax(x, recipe="all-fp16")
    FloatArray([0.0, -18.0], FP16)
    """
    with computation("log_softmax", x, keywords) as c:
        rows = along(c, _rows(c, x, axis), axis)
        return c.result(np.moveaxis(c.converted("output", _log_probabilities(c, rows)), -1, axis))


@operator
def cross_entropy(x: Floats, target: Any, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return the mean of -log(softmax(x)) at the target classes.

    Parameters
    ----------
    x : array_like of floats, (..., classes)
        The logits.
    target : array_like of int, (...)
        The class of each row.
    {keywords}

    Returns
    -------
    FloatArray or ndarray
        The loss, one number.

    Raises
    ------
    TypeError, ValueError
        As in `fs.operators.softmax`. Also for targets that are not integers, that do not fit the shape of x, or that
        are no class.

    Notes
    -----
    The steps of a variant of `fs.operators.log_softmax` up to result; then, of the results at the targets with inverted
    signs, total = their sum in C order; mean = total / n, with the exact n; output = the conversion of mean.

    Examples
    --------
    >>> import floatsim as fs
    >>> logits = fs.array([[18.0, 0.0], [0.0, 0.0]], "fp16")
    >>> [float(fs.operators.cross_entropy(logits, [1, 0], recipe="all-fp16", variant=v)) for v in ("naive", "shifted")]
    [inf, 9.34375]
    """
    with computation("cross_entropy", x, keywords) as c:
        rows = along(c, _rows(c, x, -1), -1)
        classes = target_classes(target, rows.shape)
        found = np.take_along_axis(_log_probabilities(c, rows), classes[..., np.newaxis], axis=-1)
        losses = c.negative(found).reshape(-1)
        total = c.sum("total", losses)
        return c.result(c.converted("output", c.value("mean", divide, total, count(classes.size))).reshape(()))


def target_classes(target: Any, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the target classes of rows of this shape."""
    classes = np.asarray(target)
    if classes.dtype.kind not in "iu":
        raise TypeError(f"target must be integers, not {classes.dtype}")
    if classes.shape != shape[:-1]:
        raise ValueError(f"target has the shape {classes.shape}, and the rows of x have {shape[:-1]}")
    if classes.size and not 0 <= classes.min() <= classes.max() < shape[-1]:
        raise ValueError(f"target must be classes from 0 to {shape[-1] - 1}")
    return classes.astype(np.int64)
