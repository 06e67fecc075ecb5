"""Silicon and emulator side by side, bit by bit: how many differ, by how much, where first, and how they were summed.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from floatsim.accumulation import Accumulation, TensorCore
from floatsim.arrays.conversion import read_floats
from floatsim.arrays.float_array import FloatArray, from_codes
from floatsim.arrays.linalg import matmul
from floatsim.arrays.ulps import ulp_distance
from floatsim.formats import FloatFormat, FormatLike
from floatsim.testing.dot_unit import Codes, Unit
from floatsim.testing.inputs import Inputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from floatsim.analysis.trace.trace import Trace

__all__ = ["FIRST", "Comparison", "Mismatch", "compare_dots", "compare_products"]

FIRST = 5
"""How many mismatches a report keeps with their inputs."""

_SHOWN = 6
"""How many elements of an operand its text lists: a row may have hundreds, and a trace lists them all."""


class Operands(NamedTuple):
    """Those of one dot product, as FloatArrays; scales are None where there are none."""

    a: FloatArray
    b: FloatArray
    c: FloatArray | None
    scale_a: FloatArray | None = None
    scale_b: FloatArray | None = None


@dataclass(frozen=True)
class Mismatch:
    """One element that differs.

    Attributes
    ----------
    index : tuple of int
        Where in the result.
    expected, got : int
        Codes: the emulator's, and what it was compared with.
    ulps : int
        How many numbers apart; 2**64 - 1 where one is NaN.
    operands : Operands
        Of its dot product.
    trace : Trace or None
        Of the emulated sum, where that is one TensorCore's.
    """

    index: tuple[int, ...]
    expected: int
    got: int
    ulps: int
    operands: Operands
    trace: Trace | None


@dataclass(frozen=True)
class Comparison:
    """What was found. Prints as text; `plot` draws the distances.

    Attributes
    ----------
    title, source : str
        What was computed, and what the emulator was compared with.
    format : FloatFormat
        Of the results.
    expected, got : FloatArray
        The emulator's results, and the others.
    first : tuple of Mismatch
        The first that differ, in the order of their indices.
    """

    title: str
    source: str
    format: FloatFormat
    expected: FloatArray
    got: FloatArray
    first: tuple[Mismatch, ...]

    @property
    def count(self) -> int:
        """How many results."""
        return int(self.expected.codes.size)

    @cached_property
    def mismatches(self) -> int:
        """How many differ in any bit."""
        return int(np.count_nonzero(self.expected.codes != self.got.codes))

    @property
    def equal(self) -> bool:
        """Whether all bits are equal."""
        return self.mismatches == 0

    @property
    def share_equal(self) -> float:
        """The share of results all of whose bits are equal; 1 of none."""
        return 1 - self.mismatches / self.count if self.count else 1.0

    @cached_property
    def histogram(self) -> dict[str, int]:
        """How many results are how many numbers (ulps) apart: equal; 0, but other bits; 1; 2; 3-4; 5-8; ...; NaN."""
        differ = self.expected.codes != self.got.codes
        apart = ulp_distance(self.expected, self.got, equal_nan=True)[differ]
        found = {"equal": self.count - apart.size}
        zero, nan = int(np.count_nonzero(apart == 0)), int(np.count_nonzero(apart == 2**64 - 1))
        if zero:
            found["0, other bits"] = zero
        finite = [int(x) for x in apart if 0 < int(x) < 2**64 - 1]
        classes = [(x - 1).bit_length() for x in finite]
        for n in range(max(classes, default=-1) + 1):
            low, high = (1 << n - 1) + 1 if n else 1, 1 << n
            found[str(high) if low == high else f"{low}-{high}"] = classes.count(n)
        return found | ({"NaN": nan} if nan else {})

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _lines(self) -> Iterator[str]:
        yield f"{self.title}, against {self.source}"
        if self.equal:
            yield f"all {self.count} results are equal, bit for bit"
            return
        yield f"{self.mismatches} of {self.count} results differ ({100 * self.share_equal:.6g} % are equal)"
        yield "numbers apart: " + ", ".join(f"{name}: {n}" for name, n in self.histogram.items() if n)
        digits = -(-self.format.bits // 4)
        for each in self.first:
            where = ", ".join(map(str, each.index))
            values = [from_codes([code], self.format).values[0] for code in (each.expected, each.got)]
            yield ""
            yield (
                f"[{where}] emulated 0x{each.expected:0{digits}X} = {values[0]:.9g}, "
                f"got 0x{each.got:0{digits}X} = {values[1]:.9g}"
            )
            yield from (f"  {name} = {_listed(x)}" for name, x in each.operands._asdict().items() if x is not None)
            if each.trace is not None:
                yield from (f"  {line}".rstrip() for line in str(each.trace).splitlines())

    def plot(self, ax: Axes | None = None) -> Axes:
        """How many results are how many numbers apart, as bars; returns the Axes.

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
        places = range(len(counts))
        ax.bar(places, list(counts.values()), color=CUSTOM_COLOUR)
        ax.set_yscale("symlog", linthresh=1)
        ax.set_ylim(bottom=0)
        ax.set_xticks(places, list(counts))
        for place, n in zip(places, counts.values(), strict=True):
            ax.annotate(str(n), (place, n), ha="center", va="bottom")
        ax.set_xlabel(f"numbers of {self.format.name} apart")
        ax.set_ylabel("results")
        ax.set_title(f"{self.title}\nagainst {self.source}")
        return ax

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the counts, and the first mismatches with their inputs as codes."""
        return {
            "title": self.title,
            "source": self.source,
            "format": self.format.name,
            "results": self.count,
            "mismatches": self.mismatches,
            "share_equal": self.share_equal,
            "histogram": self.histogram,
            "first": [_mismatch_dict(each) for each in self.first],
        }

    def to_json(self) -> str:
        """`to_dict` as text."""
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


# -- making them -------------------------------------------------------------------------------------------------------


def _compared(
    title: str, source: str, expected: FloatArray, got: FloatArray, operands: Callable[[tuple[int, ...]], Operands],
    how: TensorCore | None, first: int,
) -> Comparison:  # fmt: skip
    found = []
    for place in np.argwhere(expected.codes != got.codes)[:first].tolist():
        index = tuple(place)
        one = operands(index)
        x, y = (from_codes(side.codes[index], side.format) for side in (expected, got))
        ulps = int(ulp_distance(x, y, equal_nan=True))
        found.append(Mismatch(index, int(x.codes), int(y.codes), ulps, one, _traced(one, how)))
    return Comparison(title, source, expected.format, expected, got, tuple(found))


def _traced(one: Operands, how: TensorCore | None) -> Trace | None:
    from floatsim.analysis.trace.trace import trace

    if how is None:
        return None
    c: Any = 0 if one.c is None else one.c
    return trace(one.a, one.b, c, accumulate=how, scale_a=one.scale_a, scale_b=one.scale_b)


def compare_dots(unit: Unit, inputs: Inputs, d: Codes, source: str, first: int = FIRST) -> Comparison:
    """Dot products through one instruction, compared with the emulator.

    Parameters
    ----------
    unit : Unit
    inputs : Inputs
        What was asked.
    d : (n,) codes of the output's format
        What was answered.
    source : str
        By whom.
    first : int
        How many mismatches to keep with their inputs and a trace.

    Returns
    -------
    Comparison
        Its indices are (row,).

    Raises
    ------
    ValueError
        If there are not as many answers as questions.
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
    return _compared(str(unit), source, expected, got, operands, unit.accumulation, first)


def compare_products(
    a: Any, b: Any, c: Any, accumulate: Accumulation, answer: Callable[[FloatFormat], Any], source: str, first: int,
    format: FormatLike | None = None, scale_a: Any = None, scale_b: Any = None, *, title: str | None = None, **how: Any,
) -> Comparison:  # fmt: skip
    """A matrix product compared with the emulator's, which tells `answer` the result's format.

    The report is called `title`, or else what the sums are.

    Raises
    ------
    TypeError, ValueError
        If the answer has another format, or another shape; and whatever `fs.matmul` raises.
    """
    product = matmul(a, b, c, accumulate=accumulate, format=format, scale_a=scale_a, scale_b=scale_b, **how)
    expected = _floats(product, "the result")
    got = _floats(answer(expected.format), "against")
    if got.format != expected.format:
        raise TypeError(f"against is {got.format.name}, the result {expected.format.name}; fs.convert one, or format=")
    if got.shape != expected.shape:
        raise ValueError(f"against has the shape {got.shape}, the result {expected.shape}")
    one = accumulate if isinstance(accumulate, TensorCore) else None
    of = _of_matmul([_floats(x, "operand") for x in (a, b)], c, scale_a, scale_b, expected)
    return _compared(title or str(accumulate), source, expected, got, of, one, first)


def _floats(x: Any, argument: str) -> FloatArray:
    codes, fmt, _ = read_floats(x, argument)
    return FloatArray(np.asarray(codes), fmt)


def _of_matmul(
    sides: list[FloatArray], c: Any, scale_a: Any, scale_b: Any, result: FloatArray
) -> Callable[[tuple[int, ...]], Operands]:
    """The row of a, the column of b and the element of c that make one element of the result."""
    a, b = sides
    rows, columns = a.codes.ndim > 1, b.codes.ndim > 1
    batch = result.codes.shape[: result.codes.ndim - rows - columns]

    def line(x: FloatArray, index: tuple[int, ...], matrix: bool, axis: int, place: int) -> FloatArray:
        if not matrix:
            return x
        stack = np.broadcast_to(x.codes, (*batch, *x.codes.shape[-2:]))[index]
        return FloatArray(np.ascontiguousarray(stack.take(place, axis)), x.format)

    def operands(index: tuple[int, ...]) -> Operands:
        of, places = index[: len(batch)], list(index[len(batch) :])
        i, j = places[0] if rows else 0, places[-1] if columns else 0
        start = None if c is None else _floats(c, "c")
        if start is not None:
            whole = np.broadcast_to(start.codes, result.codes.shape)
            start = FloatArray(np.asarray(whole[index]), start.format)
        scales = [None if s is None else _floats(s, "scale") for s in (scale_a, scale_b)]
        return Operands(
            line(a, of, rows, 0, i), line(b, of, columns, 1, j), start,
            None if scales[0] is None else line(scales[0], of, rows, 0, i),
            None if scales[1] is None else line(scales[1], of, columns, 1, j),
        )  # fmt: skip

    return operands
