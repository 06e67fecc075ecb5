"""Traces of sums of IEEE operations: every rounding of one dot product, as data and as a table.

`floatsim.reference.sums` computes the roundings. This module turns them into the data of a trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from html import escape
from math import prod
from typing import TYPE_CHECKING

from floatsim import reference
from floatsim._lazy import plot_function
from floatsim.accumulation import Accumulation
from floatsim.analysis.trace.steps import Value, value_of
from floatsim.analysis.trace.text import number, table
from floatsim.arrays.sums.accumulation_call import AccumulationCall
from floatsim.formats import FloatFormat
from floatsim.formats.rounding import Rounding
from floatsim.reference import Kind, decode
from floatsim.reference.sums import EVENTS, Code, Rounded, accumulate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["SumTrace", "TracedRounding", "trace_sum"]

_MOST_LINES, _FIRST, _LAST = 64, 40, 12


@dataclass(frozen=True)
class TracedRounding:
    """One rounding of a sum.

    Attributes
    ----------
    part : str
        The part of a composite that contains it: "part 2", "outer", "part 0, part 1"; empty without parts.
    name : str
        The operation: "a[3]*b[3]" for a product, "acc + x", "y = x - comp", "left + right", "c" for the conversion of
        c, "sum + c", "sum of all terms", "one term", "result" for the conversion to the result's range.
    k : int
        The largest index of the products that it contains: the index of its events in `fs.record`.
    operator : str
        "*", "+" or "-"; "+" also for one operand alone.
    operands : tuple of (Fraction or float)
        The exact operands; a float for infinities and NaN.
    exact : Fraction or None
        The exact result of the operation; None if an operand is infinite or NaN.
    code : int
        The code of the rounded result in `format`.
    format : FloatFormat
        The format to which the operation rounds.
    events : tuple of str
        "invalid", "nan" (a new NaN), "overflow", "underflow", "flushed", "absorbed".

    Examples
    --------
    >>> import floatsim as fs
    >>> found = fs.trace([1.0, 1.0], [2048.0, 1.0], accumulate="fp16")
    >>> step = found.roundings[-1]
    >>> step.name, step.operator, step.exact
    ('acc + x', '+', Fraction(2049, 1))
    """

    part: str
    name: str
    k: int
    operator: str
    operands: tuple[Value, ...]
    exact: Fraction | None
    code: int
    format: FloatFormat
    events: tuple[str, ...]

    @property
    def value(self) -> Value:
        """The rounded result as an exact number, or a float for infinities and NaN."""
        return value_of(decode(self.code, self.format))

    @property
    def rounded_off(self) -> Fraction | None:
        """exact - value: the part that the rounding discards; None if one of them is infinite or NaN."""
        value = self.value
        return None if self.exact is None or isinstance(value, float) else self.exact - value


@dataclass(frozen=True)
class SumTrace:
    """A dot product as an accumulation of IEEE operations computes it. Prints as a table; `plot` draws the bits.

    Attributes
    ----------
    accumulation : Accumulation
        The description of the sum.
    formats : (FloatFormat, FloatFormat)
        The formats of a and b.
    length : int
        The length K of a and b.
    c : Fraction, float or None
        The addend, before it is rounded to the format of the accumulator; None without c.
    roundings : tuple of TracedRounding
        Every rounding, in the order of the computation.
    code : int
        The code of the result in `format`.
    exact : Fraction or None
        The exact sum of all products and c; None if one of them is infinite or NaN.

    Examples
    --------
    >>> import floatsim as fs
    >>> found = fs.trace([1.0, 1.0], [2048.0, 1.0], accumulate="fp16")
    >>> len(found.roundings), found.exact, fs.decode(found.code, found.format).item()
    (4, Fraction(2049, 1), 2048.0)
    """

    accumulation: Accumulation
    formats: tuple[FloatFormat, FloatFormat]
    length: int
    c: Value | None
    roundings: tuple[TracedRounding, ...]
    code: int
    exact: Fraction | None

    @property
    def format(self) -> FloatFormat:
        """The format of the result."""
        return self.accumulation.result_format

    @property
    def value(self) -> Value:
        """The result as an exact number, or a float for infinities and NaN."""
        return value_of(decode(self.code, self.format))

    @property
    def error(self) -> Fraction | None:
        """value - exact; None if one of them is infinite or NaN."""
        return self.value - self.exact if isinstance(self.value, Fraction) and self.exact is not None else None

    def __str__(self) -> str:
        return "\n".join(line.rstrip() for line in _lines(self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the bits of the exact result of each operation, and the bits that its rounding discards.

        Of more than 40 roundings, the first 40 are drawn.

        Parameters
        ----------
        ax : Axes, optional
            The axes to draw on. Default: a new figure.

        Returns
        -------
        Axes

        Raises
        ------
        ValueError
            If nothing is rounded.

        Examples
        --------
        >>> import floatsim as fs
        >>> x = fs.array([1.0, 2.0**-9], "bf16")
        >>> ax = fs.tensorcore.trace(x, x, accumulate="sequential(bf16, product=none)").plot()
        >>> [label.get_text() for label in ax.get_yticklabels()]
        ['k = 0: acc + x', 'k = 1: acc + x']
        """
        drawn: Axes = plot_function("traces", "draw_roundings")(self, ax)
        return drawn


def trace_sum(
    call: AccumulationCall, a: tuple[list[int], FloatFormat], b: tuple[list[int], FloatFormat],
    c: tuple[int, FloatFormat] | None,
) -> SumTrace:  # fmt: skip
    """Return the trace of the dot product of two vectors of codes."""
    (x, x_format), (y, y_format) = a, b
    terms = [(Code(p, x_format), Code(q, y_format)) for p, q in zip(x, y, strict=True)]
    start = None if c is None else Code(*c)
    log: list[Rounded] = []
    code = accumulate(call.accumulation, terms, call.options, start=start, log=log).code
    roundings = [_traced(rounded) for rounded in log]
    if call.converts:
        roundings.append(_converted(call, code, len(x)))
        code = roundings[-1].code
    products = [[decode(*p), decode(*q)] for p, q in terms] + ([] if start is None else [[decode(*start)]])
    return SumTrace(
        accumulation=call.accumulation,
        formats=(x_format, y_format),
        length=len(x),
        c=None if start is None else value_of(decode(*start)),
        roundings=tuple(roundings),
        code=code,
        exact=_sum_of_products(products),
    )


def _sum_of_products(products: list[list[reference.Number]]) -> Fraction | None:
    if any(x.kind is not Kind.FINITE for factors in products for x in factors):
        return None
    return sum((prod((x.fraction for x in factors), start=Fraction(1)) for factors in products), Fraction(0))


def _traced(rounded: Rounded) -> TracedRounding:
    name = f"a[{rounded.k}]*b[{rounded.k}]" if rounded.name == "product" else rounded.name
    part = ", ".join(at if isinstance(at, str) else f"part {at}" for at in rounded.part)
    operands = tuple(map(value_of, rounded.operands))
    events = tuple(event for event, bit in EVENTS.items() if rounded.events & bit)
    exact = _exact(rounded.operator, rounded.operands)
    return TracedRounding(
        part, name, rounded.k, rounded.operator, operands, exact, rounded.code, rounded.format, events
    )  # fmt: skip


def _exact(operator: str, operands: tuple[reference.Number, ...]) -> Fraction | None:
    if any(x.kind is not Kind.FINITE for x in operands):
        return None
    first, *others = (x.fraction for x in operands)
    if operator == "*":
        return prod(others, start=first)
    return sum(others, first) if operator == "+" else first - sum(others)


def _converted(call: AccumulationCall, code: int, length: int) -> TracedRounding:
    """Return the conversion of the sum to the result's range: SATURATE_FINITE clamps an infinity."""
    fmt, number_of = call.format, decode(code, call.format)
    attributes = replace(call.result.attributes, daz=False, ftz=False)
    converted, events = reference.convert(number_of, fmt, replace(attributes, rounding=Rounding.TOWARD_ZERO))
    return _traced(Rounded((), "result", "+", (number_of,), converted, fmt, events, max(length - 1, 0)))


# -- as text -----------------------------------------------------------------------------------------------------------


def _lines(trace: SumTrace) -> Iterator[str]:
    a, b = trace.formats
    c = "" if trace.c is None else f", c = {number(trace.c)}"
    yield f"{trace.accumulation}: {a} x {b} to {trace.format}, K = {trace.length}{c}"
    yield ""
    rows = [_cells(rounding) for rounding in trace.roundings]
    if rows:
        hidden = len(rows) - _FIRST - _LAST if len(rows) > _MOST_LINES else 0
        lines = list(table(rows, ("part", "k", "rounding", "operands", "exact", "rounded", "lost", "events")))
        yield from lines[: 1 + _FIRST] if hidden else lines
        if hidden:
            yield f"  ... {hidden} more roundings, in .roundings ..."
            yield from lines[-_LAST:]
        yield ""
    yield f"result {number(trace.value)}, 0x{trace.code:0{(trace.format.bits + 3) // 4}X}"
    if trace.exact is not None and trace.error is not None:
        yield f"exact sum {number(trace.exact)}, error {number(trace.error) if trace.error else 'none'}"


def _operands(rounding: TracedRounding) -> str:
    """Return the operation with its operands, such as "1 - (-2)"; of more than two operands, their number."""
    if len(rounding.operands) > 2:
        return f"{len(rounding.operands)} terms"
    first, *others = map(number, rounding.operands)
    return "".join([first, *(f" {rounding.operator} {f'({x})' if x[0] == '-' else x}" for x in others)])


def _cells(rounding: TracedRounding) -> dict[str, str]:
    return {
        "part": rounding.part,
        "k": str(rounding.k),
        "rounding": rounding.name,
        "operands": _operands(rounding),
        "exact": "" if rounding.exact is None else number(rounding.exact),
        "rounded": number(rounding.value),
        "lost": number(rounding.rounded_off) if rounding.rounded_off else "",
        "events": ", ".join(rounding.events),
    }
