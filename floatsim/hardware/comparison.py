"""Bitwise comparison of the emulator with other results: counts, distances in ulps, and the first mismatches.

>>> import numpy as np
>>> import floatsim as fs
>>> a, b = fs.array(np.ones((2, 16)), "fp16"), fs.array(np.ones((16, 2)), "fp16")
>>> recorded = fs.from_codes([[0x41800000, 0x41800000], [0x41800001, 0x41800000]], "fp32")
>>> report = fs.hardware.compare(a, b, accumulate="hopper", against=recorded)
>>> report.mismatches, report.share_equal, report.first[0].index
(1, 0.75, (1, 0))
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from floatsim._types import Codes
from floatsim.accumulation import Accumulation, AccumulationLike, TensorCore
from floatsim.arrays.array.conversion import read_floats
from floatsim.arrays.array.float_array import FloatArray, from_codes
from floatsim.arrays.elementwise.comparison import isnan
from floatsim.arrays.elementwise.ulps import ulp_distance
from floatsim.arrays.sums.products import matmul
from floatsim.formats import FP64, FloatFormat, FormatLike
from floatsim.hardware.protocol import error_text
from floatsim.testing.compare.input_strength import Strength, described, input_strength, not_excluded, strength_line
from floatsim.testing.compare.product import product_of
from floatsim.testing.vectors.dot_inputs import Inputs
from floatsim.testing.vectors.dot_unit import Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from floatsim.analysis.trace.trace import Trace

__all__ = [
    "FIRST", "UNKNOWN_NANS", "Comparison", "Mismatch", "compare_codes", "compare_dots", "compare_products",
    "could_not_run",
]  # fmt: skip

FIRST = 5
"""The default number of mismatches that a report keeps with their inputs."""

UNKNOWN_NANS = frozenset({FP64})
"""The output formats in which NaN against NaN is equal, whatever its bits. What DMMA returns for NaN is not known until
a capture says it. In all other formats, NaNs of matrix instructions are compared bit for bit."""

_SHOWN = 6
"""The largest number of elements of an operand that the text lists. A trace lists all of them."""


class Operands(NamedTuple):
    """The operands of one result, as FloatArrays. Scales are None without block scaling.

    An operation of CUDA cores has one to three operands: a, b and c.
    """

    a: FloatArray
    b: FloatArray | None = None
    c: FloatArray | None = None
    scale_a: FloatArray | None = None
    scale_b: FloatArray | None = None


@dataclass(frozen=True)
class Mismatch:
    """One result that differs.

    Attributes
    ----------
    index : tuple of int
        Its index in the result.
    expected, got : int
        The codes of the emulator, and of the compared result.
    ulps : int
        Their distance in ulps; 2**64 - 1 if one is NaN.
    operands : Operands
        The operands of its dot product or operation.
    trace : Trace or None
        The trace of the emulated sum, if it is one TensorCore's.
    """

    index: tuple[int, ...]
    expected: int
    got: int
    ulps: int
    operands: Operands
    trace: Trace | None


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison. Prints as text; `plot` draws the distances.

    Attributes
    ----------
    title, source : str
        The emulated calculation, and the source of the results that are compared with it.
    format : FloatFormat
        The format of the results.
    expected, got : FloatArray
        The emulator's results, and the compared ones.
    first : tuple of Mismatch
        The first mismatches in the order of their indices.
    nan_equal : bool
        Whether NaN against NaN is equal, whatever its bits. Otherwise NaNs are compared bit for bit.
    error : str
        The type and the message of the error, if the calculation could not run. Then there are no results, and `equal`
        is None.
    strength : Strength or None
        Which other descriptions of the sums these inputs cannot exclude, if all bits of a matrix product are equal.
    unlike : tuple of str
        The descriptions that the inputs should exclude, and do not.
    """

    title: str
    source: str
    format: FloatFormat
    expected: FloatArray
    got: FloatArray
    first: tuple[Mismatch, ...]
    nan_equal: bool = False
    error: str = ""
    strength: Strength | None = None
    unlike: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of results."""
        return int(self.expected.codes.size)

    @cached_property
    def mismatches(self) -> int:
        """The number of results with at least one different bit; without those of `nan_other_bits`."""
        return int(np.count_nonzero(_differ(self.expected, self.got, self.nan_equal)))

    @cached_property
    def nan_other_bits(self) -> int:
        """The number of NaNs with other bits that count as equal; 0 unless `nan_equal`."""
        return int(np.count_nonzero(self.expected.codes != self.got.codes)) - self.mismatches

    @property
    def equal(self) -> bool | None:
        """Return whether all bits are equal; None if the calculation could not run."""
        return None if self.error else self.mismatches == 0

    @property
    def passed(self) -> bool:
        """Return whether all bits are equal, and the inputs exclude every description of `unlike`."""
        return self.equal is True and not self.unlike

    @property
    def share_equal(self) -> float:
        """The share of results with equal bits; 1 if there are no results, and 0 if the calculation could not run."""
        return 0.0 if self.error else 1 - self.mismatches / self.count if self.count else 1.0

    @cached_property
    def histogram(self) -> dict[str, int]:
        """The number of results by distance in ulps.

        The names are "equal"; "NaN, other bits", which count as equal; "0, other bits"; "1"; "2"; "3-4"; "5-8"; ...;
        "NaN", for NaN against a number.
        """
        differ = _differ(self.expected, self.got, self.nan_equal)
        apart = ulp_distance(self.expected, self.got, equal_nan=True)[differ]
        counts = {"equal": self.count - apart.size - self.nan_other_bits}
        if self.nan_other_bits:
            counts["NaN, other bits"] = self.nan_other_bits
        zero, nan = int(np.count_nonzero(apart == 0)), int(np.count_nonzero(apart == 2**64 - 1))
        if zero:
            counts["0, other bits"] = zero
        finite = [int(x) for x in apart if 0 < int(x) < 2**64 - 1]
        classes = [(x - 1).bit_length() for x in finite]
        for n in range(max(classes, default=-1) + 1):
            low, high = (1 << n - 1) + 1 if n else 1, 1 << n
            counts[str(high) if low == high else f"{low}-{high}"] = classes.count(n)
        return counts | ({"NaN": nan} if nan else {})

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _lines(self) -> Iterator[str]:
        yield f"{self.title}, against {self.source}"
        if self.error:
            yield f"could not run: {self.error}"
            return
        if self.equal:
            yield f"all {self.count} results are equal, bit for bit{self._nans}"
            if line := strength_line(self.strength, self.unlike):
                yield line
            return
        yield f"{self.mismatches} of {self.count} results differ ({100 * self.share_equal:.6g} % are equal)"
        yield "distance in ulps: " + ", ".join(f"{name}: {n}" for name, n in self.histogram.items() if n)
        digits = -(-self.format.bits // 4)
        for each in self.first:
            index = ", ".join(map(str, each.index))
            values = [from_codes([code], self.format).values[0] for code in (each.expected, each.got)]
            yield ""
            yield (
                f"[{index}] emulated 0x{each.expected:0{digits}X} = {values[0]:.9g}, "
                f"got 0x{each.got:0{digits}X} = {values[1]:.9g}"
            )
            yield from (f"  {name} = {_listed(x)}" for name, x in each.operands._asdict().items() if x is not None)
            if each.trace is not None:
                yield from (f"  {line}".rstrip() for line in str(each.trace).splitlines())

    @property
    def _nans(self) -> str:
        """The NaNs with other bits as the end of a line; empty if there are none."""
        return f"; NaN, other bits: {self.nan_other_bits}" if self.nan_other_bits else ""

    @property
    def line(self) -> str:
        """The result in one line.

        >>> x = from_codes([0x7FF8000000000000], FP64)
        >>> Comparison("a sum", "a GPU", FP64, x, from_codes([0x7FFFFFFFFFFFFFFF], FP64), (), nan_equal=True).line
        'a sum, against a GPU: 1 results, all equal; NaN, other bits: 1'
        """
        if self.error:
            return f"{self.title}, against {self.source}: could not run: {self.error}"
        differ = "all equal" if self.equal else f"{self.mismatches} differ"
        return f"{self.title}, against {self.source}: {self.count} results, {differ}{self._nans}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the number of results by distance in ulps as bars, and return the Axes.

        >>> import floatsim as fs
        >>> x = fs.from_codes([[0x3C00]], "fp16")
        >>> axes = fs.hardware.compare(x, x, accumulate="fp16", against=fs.from_codes([[0x3C01]], "fp16")).plot()
        >>> [label.get_text() for label in axes.get_xticklabels()]
        ['equal', '1']
        """
        from floatsim.plot import CUSTOM_COLOUR

        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(layout="constrained")[1]
        counts = self.histogram
        positions = range(len(counts))
        ax.bar(positions, list(counts.values()), color=CUSTOM_COLOUR)
        ax.set_yscale("symlog", linthresh=1)
        ax.set_ylim(bottom=0)
        ax.set_xticks(positions, list(counts))
        for position, n in zip(positions, counts.values(), strict=True):
            ax.annotate(str(n), (position, n), ha="center", va="bottom")
        ax.set_xlabel(f"distance in ulps of {self.format.name}")
        ax.set_ylabel("results")
        ax.set_title(f"{self.title}\nagainst {self.source}")
        return ax

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, and the first mismatches with their inputs as codes, in JSON types."""
        return {
            "title": self.title,
            "source": self.source,
            "format": self.format.name,
            "results": self.count,
            "equal": self.equal,
            "mismatches": self.mismatches,
            "nan_other_bits": self.nan_other_bits,
            "share_equal": self.share_equal,
            "histogram": self.histogram,
            "first": [_mismatch_dict(each) for each in self.first],
            "error": self.error or None,
            "indistinguishable": None if self.strength is None else list(self.strength.same),
            "unlike": list(self.unlike),
        }

    def to_json(self) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2)


def _listed(x: FloatArray) -> str:
    values = x.values.ravel().tolist()
    shown = ", ".join(f"{value:.9g}" for value in values[:_SHOWN])
    return f"{shown}, ... ({len(values)} in all)" if len(values) > _SHOWN else shown


def _mismatch_dict(each: Mismatch) -> dict[str, Any]:
    operands = {
        name: {"format": x.format.name, "codes": x.codes.ravel().tolist()}
        for name, x in each.operands._asdict().items()
        if x is not None
    }
    return {
        "index": list(each.index), "expected": each.expected, "got": each.got, "ulps": each.ulps, "operands": operands,
        "trace": None if each.trace is None else str(each.trace),
    }  # fmt: skip


# -- comparisons -------------------------------------------------------------------------------------------------------


def _differ(expected: FloatArray, got: FloatArray, nan_equal: bool) -> NDArray[np.bool_]:
    """Return which results differ in their bits. With `nan_equal`, NaN against NaN does not differ."""
    differ: NDArray[np.bool_] = expected.codes != got.codes
    return differ & ~(isnan(expected) & isnan(got)) if nan_equal and differ.any() else differ


def _compared(
    title: str, source: str, expected: FloatArray, got: FloatArray, operands: Callable[[tuple[int, ...]], Operands],
    accumulation: TensorCore | None, first: int, nan_equal: bool,
) -> Comparison:  # fmt: skip
    mismatches = []
    for differing in np.argwhere(_differ(expected, got, nan_equal))[:first].tolist():
        index = tuple(differing)
        own = operands(index)
        x, y = (from_codes(side.codes[index], side.format) for side in (expected, got))
        ulps = int(ulp_distance(x, y, equal_nan=True))
        mismatches.append(Mismatch(index, int(x.codes), int(y.codes), ulps, own, _traced(own, accumulation)))
    return Comparison(title, source, expected.format, expected, got, tuple(mismatches), nan_equal)


def could_not_run(title: str, source: str, format: FloatFormat, error: Exception) -> Comparison:
    """Return the row of a calculation that could not run: it has no results, and the text of the error."""
    none = FloatArray(np.zeros(0, format.code_dtype), format)
    return Comparison(title, source, format, none, none, (), error=error_text(error))


def _traced(operands: Operands, accumulation: TensorCore | None) -> Trace | None:
    from floatsim.analysis.trace.trace import trace

    if accumulation is None:
        return None
    a, b, c, scale_a, scale_b = operands
    assert b is not None
    start: Any = 0 if c is None else c
    return trace(a, b, start, accumulate=accumulation, scale_a=scale_a, scale_b=scale_b)


def compare_dots(unit: Unit, inputs: Inputs, d: Codes, source: str, first: int = FIRST) -> Comparison:
    """Compare the dot products of one instruction with the emulator.

    Parameters
    ----------
    unit : Unit
        The instruction with its formats.
    inputs : Inputs
        The operands of the dot products.
    d : (n,) codes of the output's format
        The results to compare.
    source : str
        The name of the source of `d`, for the report.
    first : int
        The number of mismatches to keep with their inputs and a trace.

    Returns
    -------
    Comparison
        Its indices are (row,).

    Raises
    ------
    ValueError
        If `d` has not one result for each dot product.

    Examples
    --------
    >>> import floatsim as fs
    >>> from floatsim.testing.vectors.dot_inputs import input_set
    >>> from floatsim.testing.vectors.dot_unit import named_unit
    >>> unit = named_unit("volta", None, fs.FP16, fs.FP16)
    >>> inputs = input_set(unit, rows=20)
    >>> fs.hardware.compare_dots(unit, inputs, unit.dots(*inputs), "the emulator itself").equal
    True
    """
    if d.shape != inputs.c.shape:
        raise ValueError(f"d has the shape {d.shape}; the inputs are {len(inputs.c)} dot products")

    def operands(index: tuple[int, ...]) -> Operands:
        scales: list[FloatArray | None] = [None, None]
        if unit.scales is not None and inputs.scales is not None:
            scales = [from_codes(side[index], unit.scales.format) for side in inputs.scales]
        a, b = from_codes(inputs.a[index], unit.a), from_codes(inputs.b[index], unit.b)
        return Operands(a, b, from_codes(inputs.c[index], unit.output), *scales)

    expected = from_codes(unit.dots(*inputs), unit.output)
    got = from_codes(d.astype(unit.output.code_dtype), unit.output)
    nan_equal = unit.output in UNKNOWN_NANS
    return _compared(str(unit), source, expected, got, operands, unit.accumulation, first, nan_equal)


def compare_codes(
    title: str, expected: FloatArray, got: Codes, operands: Sequence[FloatArray], source: str, first: int = FIRST
) -> Comparison:
    """Compare the results of an operation on every element with the emulator. NaN against NaN is equal."""
    of_row = FloatArray(got, expected.format)
    return _compared(
        title, source, expected, of_row, lambda index: Operands(*(x[index] for x in operands)), None, first, True
    )


def compare_products(
    a: Any, b: Any, c: Any, accumulate: Accumulation, result_of: Callable[[FloatFormat], Any], source: str, first: int,
    format: FormatLike | None = None, scale_a: Any = None, scale_b: Any = None, *, title: str | None = None,
    unlike: AccumulationLike | Iterable[AccumulationLike] = (), **options: Any,
) -> Comparison:  # fmt: skip
    """Compare a matrix product with the emulator. `result_of` returns the product, given the result's format.

    The title of the report is `title`, by default the description of the sums. If all bits are equal, the report has
    the strength of the inputs; `unlike` are descriptions that they must exclude.

    Raises
    ------
    TypeError, ValueError
        If the product has another format or another shape, and the errors of `fs.matmul`.
    """
    product = matmul(a, b, c, accumulate=accumulate, format=format, scale_a=scale_a, scale_b=scale_b, **options)
    expected = _floats(product, "the result")
    got = _floats(result_of(expected.format), "against")
    if got.format != expected.format:
        raise TypeError(f"against is {got.format.name}, the result {expected.format.name}; convert one, or use format=")
    if got.shape != expected.shape:
        raise ValueError(f"against has the shape {got.shape}, the result {expected.shape}")
    traced = accumulate if isinstance(accumulate, TensorCore) else None
    operands = _operands_of_matmul([_floats(x, "operand") for x in (a, b)], c, scale_a, scale_b, expected)
    nan_equal = expected.format in UNKNOWN_NANS
    found = _compared(title or str(accumulate), source, expected, got, operands, traced, first, nan_equal)
    excluded = described(unlike, "unlike")
    if not found.equal or not found.count:
        return found
    scales = {name: x for name, x in (("scale_a", scale_a), ("scale_b", scale_b)) if x is not None}
    strength = _strength(a, b, c, accumulate, expected, {**options, **scales}, excluded)
    return replace(found, strength=strength, unlike=not_excluded(strength, excluded))


def _strength(
    a: Any, b: Any, c: Any, accumulate: Accumulation, expected: FloatArray, options: dict[str, Any],
    unlike: list[Accumulation],
) -> Strength:  # fmt: skip
    """Return the strength of the operands of `fs.matmul`. A vector is a matrix of one row or column."""
    sides = [_floats(x, "operand") for x in (a, b)]
    left, right = (x.codes if x.ndim > 1 else np.expand_dims(x.codes, axis) for axis, x in enumerate(sides))
    shape = (*np.broadcast_shapes(left.shape[:-2], right.shape[:-2]), left.shape[-2], right.shape[-1])
    product = product_of(
        FloatArray(left, sides[0].format), FloatArray(right, sides[1].format),
        None if c is None else _reshaped(_floats(c, "c"), expected.shape, shape), accumulate, expected.format, options,
    )  # fmt: skip
    return input_strength(product, FloatArray(expected.codes.reshape(shape), expected.format), unlike)


def _reshaped(c: FloatArray, result: tuple[int, ...], shape: tuple[int, ...]) -> FloatArray:
    return FloatArray(np.broadcast_to(c.codes, result).reshape(shape), c.format)


def _floats(x: Any, argument: str) -> FloatArray:
    codes, fmt, _ = read_floats(x, argument)
    return FloatArray(np.asarray(codes), fmt)


def _operands_of_matmul(
    sides: list[FloatArray], c: Any, scale_a: Any, scale_b: Any, result: FloatArray
) -> Callable[[tuple[int, ...]], Operands]:
    """Return a function from the index of a result to its row of a, its column of b and its element of c."""
    a, b = sides
    rows, columns = a.codes.ndim > 1, b.codes.ndim > 1
    batch = result.codes.shape[: result.codes.ndim - rows - columns]

    def line(x: FloatArray, batch_index: tuple[int, ...], matrix: bool, axis: int, position: int) -> FloatArray:
        if not matrix:
            return x
        stack = np.broadcast_to(x.codes, (*batch, *x.codes.shape[-2:]))[batch_index]
        return FloatArray(np.ascontiguousarray(stack.take(position, axis)), x.format)

    def operands(index: tuple[int, ...]) -> Operands:
        outer, inner = index[: len(batch)], list(index[len(batch) :])
        i, j = inner[0] if rows else 0, inner[-1] if columns else 0
        start = None if c is None else _floats(c, "c")
        if start is not None:
            whole = np.broadcast_to(start.codes, result.codes.shape)
            start = FloatArray(np.asarray(whole[index]), start.format)
        scales = [None if s is None else _floats(s, "scale") for s in (scale_a, scale_b)]
        return Operands(
            line(a, outer, rows, 0, i), line(b, outer, columns, 1, j), start,
            None if scales[0] is None else line(scales[0], outer, rows, 0, i),
            None if scales[1] is None else line(scales[1], outer, columns, 1, j),
        )  # fmt: skip

    return operands
