"""Sums, means, norms and other reductions. The caller chooses the format, the rounding and the order of every sum.

The terms of a reduction are the elements along the reduced axes, in C order. Elements excluded by `where=` are removed
before the order is applied: lanes, blocks and trees consist of the remaining elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias, Unpack

import numpy as np
from numpy.typing import NDArray

from floatsim._types import Codes, Operand
from floatsim.accumulation import (
    Accumulation,
    Kahan,
    Neumaier,
    Pairwise,
    Parts,
    ProductLeaf,
    Sequential,
    Sklansky,
    Threads,
    Welford,
    leaves,
    settled,
    tensor_cores,
)
from floatsim.arrays.array.conversion import operand_codes, out_codes, read_floats
from floatsim.arrays.array.float_array import implements, wrap
from floatsim.arrays.array.interop import stays_on_device
from floatsim.arrays.array.operands import deliver
from floatsim.arrays.array.types import Axes, FloatResult, Floats, Summation
from floatsim.arrays.call.options import spell_out
from floatsim.arrays.events import record as recording
from floatsim.arrays.sums.accumulation_call import AccumulationCall, convert_result, resolve_call
from floatsim.arrays.sums.products import dot
from floatsim.formats import FP64, FloatFormat
from floatsim.formats._validation import as_flag, as_index, name_hint
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import RoundingAttributes
from floatsim.reference.random import Site, split_seed

__all__ = ["MeanAndSquares", "cumsum", "mean", "moments", "norm", "prod", "sum", "var", "vdot"]


_OWN = ("accumulate", "format", "result_rounding", "out", "backend")


# -- terms -------------------------------------------------------------------------------------------------------------


class _Sums(NamedTuple):
    """Codes of results, and the events on the way: see `recording.SumEvents`."""

    codes: Codes
    histograms: dict[str, NDArray[np.int64]]
    first: dict[str, NDArray[np.int64]]


@dataclass(frozen=True)
class _Terms:
    """The terms of every result, (K, cells), with the mask of the terms in use, and the shape of the results."""

    codes: Codes
    format: FloatFormat
    mask: NDArray[np.bool_] | None
    shape: tuple[int, ...]

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of terms of each result."""
        if self.mask is None:
            return np.full(self.codes.shape[1], self.codes.shape[0], np.int64)
        counts: NDArray[np.int64] = np.count_nonzero(self.mask, axis=0)
        return counts

    def term(self, cell: int, k: int) -> list[Operand]:
        """Return term k of a result, given its flat index."""
        return [(self.codes[k, cell], self.format)] if k < len(self.codes) else []


def _axes(axis: Axes, ndim: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    if any(isinstance(i, bool | np.bool_ | float) for i in given):
        raise TypeError(f"axis must be an integer or a tuple of integers, not {axis!r}")
    return tuple(sorted(np.lib.array_utils.normalize_axis_tuple(given, ndim, "axis")))


def _gather(x: NDArray[Any], axes: tuple[int, ...]) -> NDArray[Any]:
    """Return the elements along the axes in C order as (K, cells): a view where that is possible."""
    kept = [i for i in range(x.ndim) if i not in axes]
    cells = int(np.prod([x.shape[i] for i in kept], dtype=np.int64))
    return x.transpose(*kept, *axes).reshape(cells, x.size // cells if cells else 0).T


def _terms(x: Operand, axis: Axes, keepdims: bool, where: Any) -> _Terms:
    codes, fmt = x
    axes = _axes(axis, codes.ndim)
    shape = tuple([1 if i in axes else n for i, n in enumerate(codes.shape) if keepdims or i not in axes])
    mask = None
    if where is not None and where is not True:
        mask = _gather(_mask(where, codes.shape), axes)
        mask = None if mask.all() else mask
    return _Terms(_gather(codes, axes), fmt, mask, shape)


def _mask(where: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    mask = np.asarray(where)
    if mask.dtype != np.bool_:
        raise TypeError(f"where must be True or False for each element, not {mask.dtype}")
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise ValueError(f"where {mask.shape} does not fit x {shape}") from None


def _read(x: Any, argument: str = "x") -> tuple[Operand, bool]:
    codes, fmt, float_array = read_floats(x, argument)
    if fmt.is_scale:
        raise TypeError(f"{argument} is {fmt.name}, a scale format, which has no arithmetic; fs.convert it first")
    return (codes, fmt), float_array


def _start(initial: Any, terms: _Terms) -> Operand | None:
    """Return the start value of each result, (cells,). A Python number is exact."""
    if initial is None:
        return None
    (codes, fmt), _ = _read(initial, "initial")
    try:
        return np.broadcast_to(codes, terms.shape).reshape(-1), fmt
    except ValueError:
        raise ValueError(f"initial {codes.shape} does not fit the result {terms.shape}") from None


# -- groups of results with equally many terms -------------------------------------------------------------------------


class _Group(NamedTuple):
    """Results with equally many terms: codes (K, cells), indices of the results, source position of each term."""

    codes: Codes
    cells: NDArray[np.int64]
    places: NDArray[np.int64] | None

    def placed(self, k: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert positions among the terms to positions among all elements."""
        if self.places is None or not len(self.places):
            return k
        return np.where(k < 0, -1, self.places[k, np.arange(len(k))])


def _groups(terms: _Terms, one_by_one: bool) -> Iterator[_Group]:
    """Yield the results by their number of terms. With `one_by_one` each result has its own group and its own draws."""
    cells = np.arange(terms.codes.shape[1], dtype=np.int64)
    if terms.mask is None:
        yield _Group(terms.codes, cells, None)
        return
    if (terms.mask == terms.mask[:, :1]).all():
        rows = np.flatnonzero(terms.mask[:, 0])
        yield _Group(terms.codes[rows], cells, np.broadcast_to(rows[:, np.newaxis], (len(rows), len(cells))))
        return
    rows = np.ascontiguousarray(terms.mask.T)
    kept, places = terms.codes.T[rows], np.nonzero(rows)[1]  # the terms of each result in turn
    counts = terms.counts
    starts = np.cumsum(counts) - counts
    parts = list(cells[:, np.newaxis]) if one_by_one else [np.flatnonzero(counts == n) for n in np.unique(counts)]
    for part in parts:
        at = starts[part] + np.arange(counts[part[0]])[:, np.newaxis]
        yield _Group(kept[at], part, places[at])


Reduce: TypeAlias = Callable[[Codes, "Operand | None", int], _Sums]


def _reduced(terms: _Terms, start: Operand | None, fmt: FloatFormat, draws: bool, reduce: Reduce) -> _Sums:
    """Return every result of `reduce`, which takes codes (K, cells), start values and the index of the first result."""
    count = terms.codes.shape[1]
    codes = np.zeros(count, fmt.code_dtype)
    histograms: dict[str, NDArray[np.int64]] = {}
    first: dict[str, NDArray[np.int64]] = {}
    for group in _groups(terms, one_by_one=draws):
        if not len(group.cells):
            continue
        own = None if start is None else (start[0][group.cells], start[1])
        found = reduce(group.codes, own, int(group.cells[0]))
        codes[group.cells] = found.codes.reshape(-1)
        for site, histogram in found.histograms.items():
            histograms[site] = histograms.get(site, 0) + histogram
        for event, steps in found.first.items():
            k = group.placed(steps.reshape(-1))
            first.setdefault(event, np.full(count, -1, np.int64))[group.cells] = k
    return _Sums(codes, histograms, first)


# -- sums of terms and operations on them ------------------------------------------------------------------------------


def _summed(operation: str, terms: _Terms, start: Operand | None, call: AccumulationCall) -> Operand:
    """Return the sums, in the shape of the results and the format of the description."""
    accumulation, wanted = call.accumulation, recording.wanted()
    pair = np.zeros((1, 2), np.int64)

    def reduce(codes: Codes, start: Operand | None, base: int) -> Any:
        a, b = (codes, terms.format), None
        if tensor_cores(accumulation):
            ones = np.full((1, 1, len(codes)), operand_codes(1.0, terms.format, "one"))
            a, b = (ones, terms.format), (codes[np.newaxis], terms.format)
        c = None if start is None else (start[0].reshape(1, 1, -1), start[1])
        return call.backend.accumulate(a, b, c, pair, accumulation, call.options, wanted, operation, base)

    sums = _reduced(terms, start, accumulation.result_format, call.draws, reduce)
    recording.note_sums(operation, sums, terms.shape, accumulation.result_format, terms.term)
    return sums.codes.reshape(terms.shape), accumulation.result_format


def _sum_of_squares(operation: str, terms: _Terms, call: AccumulationCall) -> Operand:
    """Return the sums of the squares of the terms, as `_summed` does for the terms."""
    accumulation, wanted = call.accumulation, recording.wanted()
    leaf = _leaf_of_terms(accumulation)
    if (
        not wanted
        and not call.draws
        and not _has_parts(accumulation)
        and isinstance(leaf, ProductLeaf)
        and leaf.product is not None
    ):
        options = replace(call.options, attributes=settled(leaf, call.options.attributes)[1])
        x = terms.codes.T, terms.format  # the order in memory
        squares, _ = call.backend.elementwise("multiply", [x, x], leaf.product, options, False)
        return _summed(operation, replace(terms, codes=squares.T, format=leaf.product), None, call)

    def reduce(codes: Codes, start: Operand | None, base: int) -> Any:
        rows = np.ascontiguousarray(codes.T)
        pairs = np.stack([np.arange(len(rows))] * 2, axis=1)
        a, b = (rows[:, np.newaxis], terms.format), (rows[:, :, np.newaxis], terms.format)
        return call.backend.accumulate(a, b, None, pairs, accumulation, call.options, wanted, operation, base)

    sums = _reduced(terms, None, accumulation.result_format, call.draws, reduce)
    recording.note_sums(operation, sums, terms.shape, accumulation.result_format, terms.term)
    return sums.codes.reshape(terms.shape), accumulation.result_format


def _leaf_of_terms(accumulation: Accumulation) -> Accumulation:
    """Return the innermost description, which reads the terms."""
    return _leaf_of_terms(accumulation.children[0]) if accumulation.children else accumulation


def _has_parts(accumulation: Accumulation) -> bool:
    """Return whether parts of the terms have descriptions of their own, and so products of their own."""
    return isinstance(accumulation, Parts) or any(map(_has_parts, accumulation.children))


def _last_leaf(call: AccumulationCall) -> tuple[FloatFormat, RoundingAttributes]:
    """Return the format and the rounding attributes of the outermost accumulator."""
    ends = leaves(call.accumulation)  # a matrix unit has none, and no attributes
    attributes = settled(ends[-1], call.options.attributes)[0] if ends else RoundingAttributes()
    return call.accumulation.result_format, attributes


def _rounded(
    name: str, site: str, operands: list[Operand], fmt: FloatFormat, call: AccumulationCall, options: CallOptions
) -> Operand:
    """Carry out one operation on all results, and record its events under `site`."""
    codes, events = call.backend.elementwise(name, operands, fmt, options, bool(recording.wanted()))
    if events is not None:
        recording.note(site, events, operands, (codes, fmt))
    return codes, fmt


def _integers(n: NDArray[np.int64], shape: tuple[int, ...]) -> Operand:
    """Return exact integers as FP64."""
    return n.reshape(shape).astype(np.float64).view(np.uint64), FP64


# -- keywords ----------------------------------------------------------------------------------------------------------


def _settled(
    fmt: FloatFormat, options: Summation, special: type[Accumulation] | None = None
) -> tuple[AccumulationCall, Any]:
    """Return the resolved call, and `out`. `special` is a description that is no sum, and that the caller takes."""
    for name in options:
        if name not in Summation.__annotations__:
            raise TypeError(f"unknown keyword {name!r}; {name_hint(name, Summation.__annotations__)}")
    keywords: Any = {name: value for name, value in options.items() if name not in _OWN}
    call = resolve_call(
        options.get("accumulate"),
        fmt,
        fmt,
        options.get("format"),
        options.get("result_rounding"),
        options.get("backend"),
        keywords,
        special=special,
    )
    return call, options.get("out")


def _checked_out(out: Any, call: AccumulationCall, shape: tuple[int, ...]) -> None:
    if out is not None:
        out_codes(out, call.format, shape)


def _only(operation: str, kinds: tuple[type[Accumulation], ...], accumulation: Accumulation, why: str) -> None:
    if not isinstance(accumulation, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{operation} {why}: accumulate must be {names}, not {accumulation}")


# -- the public functions ----------------------------------------------------------------------------------------------


@stays_on_device
@recording.one_recorded_call
@spell_out(Summation)
def sum(
    x: Floats, axis: Axes = None, *, keepdims: bool = False, where: Any = None, initial: Any = None,
    **options: Unpack[Summation],
) -> FloatResult:  # fmt: skip
    """Sum the elements along axes, with the formats, the roundings and the order of a description.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    axis : int, tuple of int, optional
        The axes to reduce; None means all. The terms are in C order for every order of `axis` and every memory layout.
    keepdims : bool
        Keep the reduced axes, with length one.
    where : array_like of bool, optional
        The elements that are terms. The other elements are removed before the order is applied: lanes, blocks and trees
        consist of the remaining elements.
    initial : number or array_like of floats, optional
        Enters the sum as `c` does that of `matmul`: as the seed of Sequential, Kahan and Neumaier (rounded to their
        format), after the last add of Pairwise and Strided, as the seed of the outer sum of Blocked and SplitK, as one
        more term of Exact.
    {keywords}

    Returns
    -------
    FloatArray or ndarray
        A FloatArray if x is one, or if the format of the result has no dtype. Without terms, `initial` or +0.

    Raises
    ------
    TypeError
        For an x without a float format, for an `accumulate` that is no description, and for unknown keywords.
    ValueError
        For unknown names, for masks and start values of wrong shapes, and for stochastic rounding without a seed. An
        axis that x does not have raises NumPy's AxisError, a ValueError.

    Notes
    -----
    Under `fs.record`, "sum.sum" counts the roundings. `log.first` has, for every result, the first k of each event: the
    position along the reduced axes. Stochastic rounding draws for the flat index of the result.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = np.ones(4096, np.float16)
    >>> [float(fs.sum(x, accumulate=order)) for order in ("fp32", "fp16", "pairwise(fp16)")]
    [4096.0, 2048.0, 4096.0]
    """
    operand, float_array = _read(x)
    call, out = _settled(operand[1], options)
    terms = _terms(operand, axis, as_flag(keepdims, "keepdims"), where)
    start = _start(initial, terms)
    _checked_out(out, call, terms.shape)
    codes, _ = _summed("sum", terms, start, call)
    return deliver(convert_result("sum", codes, call), call.format, float_array, out)


@stays_on_device
@recording.one_recorded_call
def mean(
    x: Floats, axis: Axes = None, *, keepdims: bool = False, where: Any = None, **options: Unpack[Summation]
) -> FloatResult:  # fmt: skip
    """Return the sum divided by the number of its terms: one more rounding, to the format of the result.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    axis : int, tuple of int, optional
        The axes to reduce; None means all.
    keepdims : bool
        Keep the reduced axes, with length one.
    where : array_like of bool, optional
        The elements that are terms. The other elements are removed before the order is applied.
    **options : accumulate, format, out, backend, result_rounding and the rounding options
        As in `fs.sum`.

    Returns
    -------
    FloatArray or ndarray
        As in `fs.sum`. Without terms, NaN (0/0, INVALID).

    Raises
    ------
    TypeError, ValueError
        As in `fs.sum`.

    Notes
    -----
    Under `fs.record`, "mean.sum" counts the roundings of the sum and "mean.result" those of the division.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = np.full(4096, 3, np.float16)
    >>> fs.mean(x), fs.mean(x, accumulate="fp16")
    (np.float32(3.0), np.float16(2.0))
    """
    operand, float_array = _read(x)
    call, out = _settled(operand[1], options)
    terms = _terms(operand, axis, as_flag(keepdims, "keepdims"), where)
    _checked_out(out, call, terms.shape)
    total = _summed("mean", terms, None, call)
    count = _integers(terms.counts, terms.shape)
    codes, fmt = _rounded("divide", "mean.result", [total, count], call.format, call, call.result)
    return deliver(codes, fmt, float_array, out)


@stays_on_device
@recording.one_recorded_call
def norm(
    x: Floats, axis: Axes = None, *, keepdims: bool = False, where: Any = None, **options: Unpack[Summation]
) -> FloatResult:  # fmt: skip
    """Return the Euclidean norm: the sum of the squares as described, then its root, rounded once.

    The squares are rounded as the products of the description. They may overflow or underflow where the norm does not.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    axis : int, tuple of int, optional
        The axes to reduce; None means all.
    keepdims : bool
        Keep the reduced axes, with length one.
    where : array_like of bool, optional
        The elements that are terms. The other elements are removed before the order is applied.
    **options : accumulate, format, out, backend, result_rounding and the rounding options
        As in `fs.sum`.

    Returns
    -------
    FloatArray or ndarray
        As in `fs.sum`.

    Raises
    ------
    TypeError, ValueError
        As in `fs.sum`.

    Notes
    -----
    Under `fs.record`, "norm.result" counts the roundings of the root.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = np.float16([300, 400])
    >>> fs.norm(x), fs.norm(x, accumulate="fp16"), fs.norm(x, accumulate="sequential(fp16, product=fp32)")
    (np.float32(500.0), np.float16(inf), np.float16(inf))
    """
    operand, float_array = _read(x)
    call, out = _settled(operand[1], options)
    terms = _terms(operand, axis, as_flag(keepdims, "keepdims"), where)
    _checked_out(out, call, terms.shape)
    total = _sum_of_squares("norm", terms, call)
    codes, fmt = _rounded("sqrt", "norm.result", [total], call.format, call, call.result)
    return deliver(codes, fmt, float_array, out)


@stays_on_device
@recording.one_recorded_call
def var(
    x: Floats, axis: Axes = None, *, ddof: int = 0, keepdims: bool = False, where: Any = None,
    **options: Unpack[Summation],
) -> FloatResult:  # fmt: skip
    """Return the variance: the mean square of the differences from the mean.

    The mean and the differences are rounded in the accumulator's format and attributes. The sum of the squares follows
    the description, as in `norm`. The division by the number of terms - ddof is rounded to the format of the result.
    With `accumulate=fs.Welford(...)` the sum of the squares comes from one pass.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    axis : int, tuple of int, optional
        The axes to reduce; None means all.
    ddof : int
        Subtracted from the number of terms. A negative number of terms counts as zero, as in NumPy.
    keepdims : bool
        Keep the reduced axes, with length one.
    where : array_like of bool, optional
        The elements that are terms. The other elements are removed before the order is applied.
    **options : accumulate, format, out, backend, result_rounding and the rounding options
        As in `fs.sum`.

    Returns
    -------
    FloatArray or ndarray
        As in `fs.sum`. Without terms, NaN (0/0, INVALID).

    Raises
    ------
    TypeError, ValueError
        As in `fs.sum`; a ValueError also for a negative ddof, and for a TensorCore that does not multiply the format of
        its results.

    Notes
    -----
    Under `fs.record`: "var.mean.sum", "var.mean.result", "var.difference", "var.product", "var.sum" and "var.result".

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.var(np.float16([1, 2, 3, 4]), ddof=1)
    np.float32(1.6666666)
    """
    operand, float_array = _read(x)
    call, out = _settled(operand[1], options, Welford)
    delta = as_index(ddof, "ddof", 0, (1 << 53) - 1)
    terms = _terms(operand, axis, as_flag(keepdims, "keepdims"), where)
    _checked_out(out, call, terms.shape)
    if isinstance(call.accumulation, Welford):
        total = _moments(terms, call)[1]
        count = _integers(np.maximum(terms.counts - delta, 0), terms.shape)
        codes, fmt = _rounded("divide", "var.result", [total, count], call.format, call, call.result)
        return deliver(codes, fmt, float_array, out)
    _check_squares(call)
    differences = _differences(operand, axis, where, call)
    squares = _terms(differences, axis, keepdims, where)
    total = _sum_of_squares("var", squares, call)
    count = _integers(np.maximum(terms.counts - delta, 0), terms.shape)
    codes, fmt = _rounded("divide", "var.result", [total, count], call.format, call, call.result)
    return deliver(codes, fmt, float_array, out)


class MeanAndSquares(NamedTuple):
    """The results of `fs.moments`.

    Attributes
    ----------
    mean, squares : FloatArray
        The means, and the sums of squared differences from them, in the format of the description.
    """

    mean: Any
    squares: Any


def _moments(terms: _Terms, call: AccumulationCall) -> tuple[Operand, Operand]:
    """Return the means and the sums of squared differences, in the shape of the results."""
    order = call.accumulation
    assert isinstance(order, Welford)
    if not hasattr(call.backend, "moments"):
        raise ValueError(f"backend={call.backend.__name__!r} has no {order}; use backend='emulator'")
    if call.draws:
        raise ValueError(f"{order} does not support stochastic rounding")
    codes = np.zeros((2, terms.codes.shape[1]), order.format.code_dtype)
    for group in _groups(terms, one_by_one=False):
        if len(group.cells):
            rows = np.ascontiguousarray(group.codes.T)
            codes[:, group.cells] = call.backend.moments(order, rows, terms.format, call.options.attributes)
    means, squares = (each.reshape(terms.shape) for each in codes)
    return (means, order.format), (squares, order.format)


@stays_on_device
def moments(
    x: Floats, axis: Axes = None, *, keepdims: bool = False, where: Any = None, **options: Unpack[Summation]
) -> MeanAndSquares:  # fmt: skip
    """Return the mean and the sum of squared differences from it, in one pass by Welford's algorithm.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    axis : int, tuple of int, optional
        The axes to reduce; None means all.
    keepdims : bool
        Keep the reduced axes, with length one.
    where : array_like of bool, optional
        The elements that are terms. The other elements are removed before the order is applied.
    **options : accumulate, backend and the rounding options
        As in `fs.sum`. `accumulate` must be a `fs.Welford`. Events are not recorded.

    Returns
    -------
    MeanAndSquares
        Two FloatArrays in the format of the description. Without terms, zeros.

    Raises
    ------
    TypeError, ValueError
        As in `fs.sum`. A TypeError also for other descriptions, a ValueError also for stochastic rounding.

    Examples
    --------
    >>> import floatsim as fs
    >>> mean, squares = fs.moments(fs.array([1.0, 2.0, 6.0], "fp16"), accumulate="welford(fp32)")
    >>> mean.item(), squares.item()
    (3.0, 14.0)
    """
    operand, _ = _read(x)
    call, _ = _settled(operand[1], options, Welford)
    _only("moments", (Welford,), call.accumulation, "has one pass")
    terms = _terms(operand, axis, as_flag(keepdims, "keepdims"), where)
    return MeanAndSquares(*(wrap(codes, fmt, True) for codes, fmt in _moments(terms, call)))


def _check_squares(call: AccumulationCall) -> None:
    """Raise a ValueError if a matrix unit does not multiply the format that its sums are rounded to."""
    fmt = call.accumulation.result_format
    for unit in tensor_cores(call.accumulation):
        if not any(row.takes(fmt, fmt) for row in unit.architecture.instructions if row.name == unit.instruction):
            raise ValueError(
                f"var squares differences in the accumulator's format, {fmt}, which {unit} does not multiply; call "
                "fs.mean, round the differences with fs.convert, and sum their squares with fs.norm or fs.dot"
            )


def _differences(x: Operand, axis: Axes, where: Any, call: AccumulationCall) -> Operand:
    """Return x minus its mean along the axes, both rounded in the outermost accumulator's format and attributes."""
    fmt, attributes = _last_leaf(call)

    def split(number: int) -> CallOptions:
        return replace(call.options, seed=split_seed(call.options.seed, number))

    terms = _terms(x, axis, True, where)
    total = _summed("var.mean", terms, None, replace(call, options=split(Site.MEAN)))
    count = _integers(terms.counts, terms.shape)
    rounds = replace(split(Site.QUOTIENT), attributes=attributes)
    average = _rounded("divide", "var.mean.result", [total, count], fmt, call, rounds)
    rounds = replace(split(Site.DIFFERENCES), attributes=attributes)
    codes, events = call.backend.elementwise("subtract", [x, average], fmt, rounds, bool(recording.wanted()))
    if events is None:
        return codes, fmt
    if where is None or where is True:
        recording.note("var.difference", events, [x, average], (codes, fmt))
    else:
        used = np.broadcast_to(_mask(where, codes.shape), codes.shape)
        operands = [(np.broadcast_to(y, codes.shape)[used], own) for y, own in (x, average)]
        recording.note("var.difference", events[used], operands, (codes[used], fmt))
    return codes, fmt


@stays_on_device
@recording.one_recorded_call
def prod(
    x: Floats, axis: Axes = None, *, keepdims: bool = False, where: Any = None, initial: Any = None,
    **options: Unpack[Summation],
) -> FloatResult:  # fmt: skip
    """Multiply the elements along axes, in order or along a tree.

    Sequential: acc = 1, or `initial` rounded to the format; acc = round(acc * x), k ascending. Pairwise: the tree of
    the sum, with products; then round(product * initial). Threads: the tree of the sum, without the zeros at the start.
    Other descriptions have no product. The 1 at the start is
    exact, also in a format that does not contain it. Without factors the result is 1 rounded to the format: the largest
    number in a format below 1 that saturates.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    axis : int, tuple of int, optional
        The axes to reduce; None means all.
    keepdims : bool
        Keep the reduced axes, with length one.
    where : array_like of bool, optional
        The elements that are factors. The other elements are removed before the order is applied.
    initial : number or array_like of floats, optional
        One more factor.
    **options : accumulate, format, out, backend, result_rounding and the rounding options
        As in `fs.sum`.

    Returns
    -------
    FloatArray or ndarray
        As in `fs.sum`. Without factors, `initial` or 1.

    Raises
    ------
    TypeError, ValueError
        As in `fs.sum`; a TypeError also for other descriptions.

    Notes
    -----
    Under `fs.record`, "prod.product" counts the roundings.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> x = np.float16([300, 300, 0.01])
    >>> fs.prod(x), fs.prod(x, accumulate="fp16"), fs.prod(x[::-1], accumulate="fp16")
    (np.float32(900.19226), np.float16(inf), np.float16(900.0))
    """
    operand, float_array = _read(x)
    call, out = _settled(operand[1], options)
    _only("prod", (Sequential, Pairwise, Threads), call.accumulation, "multiplies in order or along a tree")
    terms = _terms(operand, axis, as_flag(keepdims, "keepdims"), where)
    start = _start(initial, terms)
    _checked_out(out, call, terms.shape)
    wanted = recording.wanted()

    def reduce(codes: Codes, start: Operand | None, base: int) -> Any:
        first = None if start is None else (start[0].reshape(1, -1), start[1])
        return call.backend.multiply_all(codes, terms.format, first, call.accumulation, call.options, wanted, base)

    products = _reduced(terms, start, call.accumulation.result_format, call.draws, reduce)
    recording.note_sums("prod", products, terms.shape, call.accumulation.result_format, terms.term)
    codes = convert_result("prod", products.codes.reshape(terms.shape), call)
    return deliver(codes, call.format, float_array, out)


@stays_on_device
@recording.one_recorded_call
def cumsum(x: Floats, axis: int | None = None, **options: Unpack[Summation]) -> FloatResult:
    """Return the running sum: element k is `fs.sum` of the elements 0 to k with the same description.

    The description must add in order: Sequential, Kahan or Neumaier; or it is a `fs.Sklansky`, without events. The last
    rounding of Kahan and Neumaier, of s + comp, applies to every element separately.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    axis : int, optional
        The axis of the sum; None flattens x.
    **options : accumulate, format, out, backend, result_rounding and the rounding options
        As in `fs.sum`.

    Returns
    -------
    FloatArray or ndarray
        In the shape of x, or flat without an axis.

    Raises
    ------
    TypeError, ValueError
        As in `fs.sum`; a TypeError also for other descriptions.

    Notes
    -----
    Under `fs.record`, "cumsum.sum" counts the roundings. `log.first` has the first k of each event up to every element.
    Stochastic rounding draws for the index of the whole sum, so that every element equals the sum of its terms.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.cumsum(fs.array([16.0, 0.5, 1.0, 1.0], "e4m3"), accumulate="e4m3")
    FloatArray([16.0, 16.0, 16.0, 16.0], E4M3)
    """
    operand, float_array = _read(x)
    call, out = _settled(operand[1], options, Sklansky)
    _only("cumsum", (Sequential, Kahan, Neumaier, Sklansky), call.accumulation, "adds in order")
    codes, fmt = operand
    if axis is None:
        codes, axis = codes.reshape(-1), 0
    (axis,) = _axes(as_index(axis, "axis", -(1 << 31), 1 << 31), codes.ndim)
    _checked_out(out, call, codes.shape)
    if isinstance(call.accumulation, Sklansky):
        sums = _network((np.moveaxis(codes, axis, -1), fmt), call.accumulation, call)
        sums = np.moveaxis(sums, -1, axis)
        return deliver(convert_result("cumsum", sums, call, axis), call.format, float_array, out)
    found = call.backend.running_sums(_gather(codes, (axis,)), fmt, call.accumulation, call.options, recording.wanted())
    kept = [n for i, n in enumerate(codes.shape) if i != axis]

    def placed(table: NDArray[Any]) -> NDArray[Any]:
        return np.moveaxis(table.T.reshape(*kept, codes.shape[axis]), -1, axis)

    first = {}
    for event, k in found.first.items():
        steps = np.arange(codes.shape[axis])[:, np.newaxis]
        first[event] = placed(np.where(k <= steps, k, -1))

    def term(element: int, k: int) -> list[Operand]:
        index = [int(i) for i in np.unravel_index(element, codes.shape)]
        index[axis] = k
        return [(codes[tuple(index)], fmt)]

    sums = placed(found.codes)
    noted = _Sums(sums, found.histograms, first)
    recording.note_sums("cumsum", noted, codes.shape, call.accumulation.result_format, term)
    return deliver(convert_result("cumsum", sums, call, axis), call.format, float_array, out)


def _network(x: Operand, order: Sklansky, call: AccumulationCall) -> Codes:
    """Return running sums along the last axis by `Sklansky`'s additions, many at a time."""
    if call.draws:
        raise ValueError(f"{order} does not support stochastic rounding")

    def plus(a: Codes, b: Codes) -> Codes:
        codes, _ = call.backend.elementwise("add", [(a, own), (b, own)], own, call.options, False)
        return codes  # type: ignore[no-any-return]

    own = order.format
    out: Codes = np.array(call.backend.convert(*x, own, call.options, False)[0])
    total = np.zeros((*out.shape[:-1], 1), own.code_dtype)
    for start in range(0, out.shape[-1], 2 * order.threads):
        tile = out[..., start : start + 2 * order.threads]
        tile[..., :1] = plus(tile[..., :1], total)
        distance = 1
        while distance < tile.shape[-1]:
            whole = tile.shape[-1] - tile.shape[-1] % (2 * distance)
            groups = tile[..., :whole].reshape(*out.shape[:-1], -1, 2 * distance)
            groups[..., distance:] = plus(groups[..., distance:], groups[..., distance - 1 : distance])
            tile[..., :whole] = groups.reshape(*out.shape[:-1], whole)
            rest = tile[..., whole:]
            rest[..., distance:] = plus(rest[..., distance:], rest[..., distance - 1 : distance])
            distance *= 2
        total = tile[..., -1:]
    return out


@stays_on_device
def vdot(a: Floats, b: Floats, **options: Any) -> FloatResult:
    """Return the dot product of two arrays of equal size, flattened in C order.

    Parameters
    ----------
    a, b : array_like of floats
        FloatArrays or arrays whose dtype is a format. Their shapes may differ.
    **options : c, alpha, beta, accumulate, format, out, backend and the rounding options
        As in `fs.matmul`.

    Returns
    -------
    scalar
        A FloatArray if an input is one, or if the format of the result has no dtype.

    Raises
    ------
    TypeError, ValueError
        As in `fs.matmul`; a ValueError also for different sizes.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> fs.vdot(np.ones((2, 3), np.float16), np.full((3, 2), 2, np.float16), accumulate="exact(fp16)")
    np.float16(12.0)
    """
    (x, x_format), x_float = _read(a, "a")
    (y, y_format), y_float = _read(b, "b")
    if x.size != y.size:
        raise ValueError(f"a {x.shape} and b {y.shape} have different sizes")
    flat = (wrap(codes.reshape(-1), fmt, own) for codes, fmt, own in ((x, x_format, x_float), (y, y_format, y_float)))
    return dot(*flat, **options)


# -- NumPy's functions -------------------------------------------------------------------------------------------------


def _keeping_format(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return NumPy's form of a reduction, which keeps the format of the operand."""

    def spelled(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, **options: Any) -> Any:
        if dtype is not None:
            raise TypeError(f"dtype={dtype!r}: use format= of the floatsim function of the same name")
        options.setdefault("format", read_floats(a, "a")[1])
        return function(a, axis, out=out, **options)

    return spelled


def _along_first_axis(spelled: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as a ufunc method, which reduces along the first axis by default."""
    return lambda a, axis=0, **options: spelled(a, axis, **options)


for _function, _names in {
    sum: (np.sum, np.add), mean: (np.mean, None), prod: (np.prod, np.multiply), var: (np.var, None),
}.items():  # fmt: skip
    _spelled = implements(_names[0])(_keeping_format(_function))
    if _names[1] is not None:
        implements((_names[1], "reduce"))(_along_first_axis(_spelled))
implements((np.add, "accumulate"))(_along_first_axis(implements(np.cumsum)(_keeping_format(cumsum))))


@implements(np.linalg.norm)
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    vectors = np.ndim(x) == 1 or isinstance(axis, int)
    if not (ord is None or (ord == 2 and vectors)):
        raise TypeError(f"ord={ord!r}: floatsim has the Euclidean norm, of vectors and of all elements")
    return _keeping_format(norm)(x, axis, keepdims=keepdims)


@implements(np.vdot)
def _vdot(a: Any, b: Any) -> Any:
    formats = {read_floats(x, name)[1] for x, name in ((a, "a"), (b, "b"))}
    return vdot(a, b, format=formats.pop() if len(formats) == 1 else None)
