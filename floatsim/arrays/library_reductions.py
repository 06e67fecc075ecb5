"""Reductions as a library computes them on a GPU: the sum of `fs.library_sum`, and the operations around it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from floatsim._types import Codes
from floatsim.accumulation.libraries import library_sum
from floatsim.accumulation.library_rules import NotDescribedError
from floatsim.arrays.array.conversion import array, convert, read_floats
from floatsim.arrays.array.float_array import FloatArray, wrap
from floatsim.arrays.array.interop import stays_on_device
from floatsim.arrays.array.types import Floats
from floatsim.arrays.elementwise.arithmetic import add, multiply, sqrt, subtract
from floatsim.arrays.elementwise.functions import exp, log
from floatsim.arrays.sums.products import matmul
from floatsim.arrays.sums.reductions import cumsum, prod, var
from floatsim.arrays.sums.reductions import sum as sum_of
from floatsim.formats import BF16, FP16, FP32, FloatFormat, FormatLike, as_format
from floatsim.formats._validation import as_index, name_hint

__all__ = ["library_reduction"]

_DTYPES = {FP32: "float32", FP16: "float16", BF16: "bfloat16"}


class _Call:
    """One reduction of rows, or of the columns of a matrix."""

    def __init__(
        self, function: str, x: FloatArray, axis: int, device: str, result: FloatFormat, correction: int, strict: bool
    ) -> None:
        self.function, self.x, self.axis, self.correction = function, x, axis, correction
        self.terms = x.shape[axis]
        self._keywords: Any = {"device": device, "axis": axis, "strict": strict, "result": _DTYPES[result]}

    def by_region(self, x: FloatArray, reduce: Callable[..., FloatArray], function: str | None = None) -> FloatArray:
        """Return `reduce` of each region's rows, with its description: (rows,), or (columns,) along axis 0."""
        regions = library_sum(function or self.function, _DTYPES[x.format], x.shape, **self._keywords)
        if self.axis == 0:
            return reduce(x, accumulate=regions[0].accumulate)
        found: Codes | None = None
        for region in regions:
            part = reduce(x[region.rows], accumulate=region.accumulate)
            if found is None:
                found = np.zeros((len(x), *part.shape[1:]), part.format.code_dtype)
            found[region.rows] = part.codes
        assert found is not None
        return FloatArray(found, part.format)


def _sum(call: _Call) -> Any:
    return call.by_region(call.x, lambda x, accumulate: sum_of(x, call.axis, accumulate=accumulate))


def _mean(call: _Call) -> Any:
    return multiply(_sum(call), array(np.float32(1 / call.terms) if call.terms else math.nan, FP32))


def _prod(call: _Call) -> Any:
    return call.by_region(call.x, lambda x, accumulate: prod(x, call.axis, accumulate=accumulate))


def _var(call: _Call) -> Any:
    return call.by_region(
        call.x, lambda x, accumulate: var(x, call.axis, ddof=call.correction, accumulate=accumulate)
    )  # fmt: skip


def _std(call: _Call) -> Any:
    return sqrt(_var(call))


def _squares(x: FloatArray, accumulate: Any) -> Any:
    return matmul(x[:, np.newaxis], x[:, :, np.newaxis], accumulate=accumulate).reshape(-1)


def _norm(call: _Call) -> Any:
    return sqrt(call.by_region(call.x, _squares))


def _cumsum(call: _Call) -> Any:
    return call.by_region(call.x, lambda x, accumulate: cumsum(x, -1, accumulate=accumulate))


def _logsumexp(call: _Call) -> Any:
    """Each step is rounded to the format of the operand, as PyTorch composes it of other operators."""
    x, fmt = call.x, call.x.format
    largest = np.max(x, axis=-1, keepdims=True)
    largest = FloatArray(np.where(np.isinf(largest.values), fmt.code_dtype.type(0), largest.codes), fmt)
    powers = _in(fmt, exp, subtract(x, largest, format=fmt))
    total = call.by_region(powers, lambda x, accumulate: sum_of(x, -1, accumulate=accumulate), "torch.logsumexp")
    return add(_in(fmt, log, convert(total, fmt)), largest.reshape(-1), format=fmt)


def _in(fmt: FloatFormat, function: Callable[..., Any], x: FloatArray) -> Any:
    """Return CUDA's function of x, computed in FP32 and rounded to a format."""
    return convert(function(convert(x, FP32), functions="cuda"), fmt)


_REDUCTIONS: dict[str, Callable[[_Call], Any]] = {
    "torch.sum": _sum, "torch.mean": _mean, "torch.prod": _prod, "torch.var": _var, "torch.std": _std,
    "torch.linalg.vector_norm": _norm, "torch.cumsum": _cumsum, "torch.logsumexp": _logsumexp,
}  # fmt: skip


@stays_on_device
def library_reduction(
    function: str, x: Floats, axis: int | None = -1, *, device: str, format: FormatLike | None = None,
    correction: int = 1, strict: bool = False,
) -> Any:  # fmt: skip
    """Return a reduction of a library on a GPU, to the bit: the sum of `fs.library_sum`, and the operations around it.

    In FP32: mean = sum * float32(1 / n); var = squares / (n - correction); std and norm = the square root. logsumexp is
    composed of operators that round to the format of x: max, x - max, exp, sum, log, + max. The result is rounded once
    more to the format of x.

    Parameters
    ----------
    function : str
        "torch.sum", "torch.mean", "torch.prod", "torch.var", "torch.std", "torch.linalg.vector_norm", "torch.cumsum" or
        "torch.logsumexp".
    x : array_like of floats
        In FP32, FP16 or BF16, contiguous on the GPU: along the last axis of any shape, along axis 0 of a matrix, or all
        elements.
    axis : int or None
        The axis to reduce. None means all elements.
    device : str
        "h200".
    format : format, optional
        The format of the result, as PyTorch's dtype: that of x (default), or FP32.
    correction : int
        Subtracted from the number of terms of "torch.var" and "torch.std".
    strict : bool
        As in `fs.library_sum`.

    Returns
    -------
    FloatArray or ndarray
        An ndarray if x is one and the format has a dtype.

    Raises
    ------
    NotDescribedError
        As in `fs.library_sum`.
    TypeError
        For an x without a float format.
    ValueError
        For unknown functions, with the nearest match.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = np.random.default_rng(0).standard_normal((4, 1000)).astype(np.float32)
    >>> fs.library_reduction("torch.sum", x, device="h200") - fs.sum(x, -1)
    array([ 0.0000000e+00, -1.2397766e-05,  7.6293945e-06, -2.2888184e-05],
          dtype=float32)
    """
    if function not in _REDUCTIONS:
        raise ValueError(f"function={function!r} is not known; {name_hint(function, _REDUCTIONS)}")
    codes, fmt, float_array = read_floats(x, "x")
    result = fmt if format is None else as_format(format)
    if fmt not in _DTYPES or result not in (fmt, FP32):
        known = ", ".join(each.name for each in _DTYPES)
        raise NotDescribedError(f"{function} of {fmt.name} to {result.name} is not described; described: {known}, each "
                                "to itself and to FP32")  # fmt: skip
    whole = FloatArray(codes.reshape(1, -1) if axis is None else codes, fmt)
    where = -1 if axis is None else np.lib.array_utils.normalize_axis_index(
        as_index(axis, "axis", -(1 << 31), 1 << 31), whole.ndim
    ) - whole.ndim  # fmt: skip
    if where != -1 and (whole.ndim != 2 or function not in ("torch.sum",)):
        raise NotDescribedError(
            f"{function} of shape {whole.shape} along axis {axis} is not described; described are the last axis, all "
            "elements, and torch.sum along axis 0 of a matrix"
        )
    rows = whole if where != -1 else whole.reshape(-1, whole.shape[-1])
    call = _Call(function, rows, 0 if where != -1 else -1, device, result, correction, strict)
    found = convert(_REDUCTIONS[function](call), result)
    if function == "torch.cumsum":
        shape = codes.shape
    elif axis is None:
        shape = ()
    else:
        shape = codes.shape[:-1] if where == -1 else codes.shape[1:]
    return wrap(found.codes.reshape(shape), result, float_array)
