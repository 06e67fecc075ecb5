"""Traces of dot products. Of matrix units: each term, its bits, and the bits that take part in the sum.

`floatsim.reference.tensorcore.dot` computes the steps. This module turns them into the data of a trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING, Any, overload

from floatsim._lazy import plot_function
from floatsim.accumulation import Accumulation, AccumulationLike, TensorCore, as_accumulation, tensor_cores
from floatsim.analysis.trace.steps import TracedBlock, TracedDot, TracedTerm, leading_bit, lowest_bit, power, value_of
from floatsim.analysis.trace.sums import SumTrace, trace_sum
from floatsim.analysis.trace.text import lines
from floatsim.arrays.array.conversion import read_floats
from floatsim.arrays.call.options import RoundingOptions
from floatsim.arrays.call.random_stream import SeedLike
from floatsim.arrays.sums.accumulation_call import resolve_call
from floatsim.arrays.sums.block_scaling import block_scales
from floatsim.formats import FloatFormat
from floatsim.formats.rounding import OverflowLike, RoundingLike, TininessLike
from floatsim.reference import decode
from floatsim.reference.tensorcore.alignment import Multiple, Step, Term
from floatsim.reference.tensorcore.dot import Operand, Scaled, dot, seeded
from floatsim.tensorcore.instructions import ExactBlocks, FmaChain, Instruction, TwoHalves

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

__all__ = ["Trace", "trace"]


@dataclass(frozen=True)
class Trace(TracedDot):
    """A dot product as a chain of matrix instructions computes it. Prints as a table; `plot` draws the bits.

    Attributes
    ----------
    accumulation : TensorCore
        The matrix unit, with its instruction and output.
    instruction : Instruction
        The instruction's row in the table.
    formats : (FloatFormat, FloatFormat)
        The formats of a and b.
    length : int
        The length K of a and b.
    c : Fraction or float
        The accumulator at the start, in D's format.
    blocks : tuple of TracedBlock
        The blocks in order.
    code : int
        The code of D in `format`.
    exact : Fraction or None
        The exact sum of all products and c; None if one of them is infinite or NaN.

    Examples
    --------
    >>> import floatsim as fs
    >>> x, y = fs.array([128.0, 128.0, 1.5], "e4m3"), fs.array([128.0, -128.0, 1.25], "e4m3")
    >>> found = fs.trace(x, y, accumulate="hopper")
    >>> found.instruction.name, found.exact, len(found.blocks)
    ('wgmma.k32', Fraction(15, 8), 1)
    """

    def __str__(self) -> str:
        return "\n".join(line.rstrip() for line in lines(self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def plot(self, ax: Axes | None = None, *, blocks: Any = None) -> Axes:
        """Draw the bits of every term on one axis of exponents: the kept and the discarded bits, the sum, and D.

        Parameters
        ----------
        ax : Axes, optional
            The axes to draw on. Default: a new figure.
        blocks : int or sequence of int, optional
            The indices of the blocks, from 0; negative ones count from the end. Default: the first blocks, as many as
            are readable.

        Returns
        -------
        Axes

        Raises
        ------
        ValueError
            If there is no such block, or the trace has no blocks.

        Examples
        --------
        >>> import floatsim as fs
        >>> x, y = fs.array([128.0, 128.0, 1.5], "e4m3"), fs.array([128.0, -128.0, 1.25], "e4m3")
        >>> ax = fs.tensorcore.trace(x, y, accumulate="hopper").plot()
        >>> [text.get_text() for text in ax.texts if "bits" in text.get_text()]
        ['1 + 13 bits']
        """
        drawn: Axes = plot_function("traces", "draw")(self, ax, blocks)
        return drawn


@overload
def trace(
    a: Any, b: Any, c: Any = None, *, accumulate: TensorCore, scale_a: Any = None, scale_b: Any = None,
) -> Trace: ...  # fmt: skip
@overload
def trace(
    a: Any, b: Any, c: Any = None, *, accumulate: AccumulationLike, scale_a: Any = None, scale_b: Any = None,
    rounding: RoundingLike | None = None, overflow: OverflowLike | None = None, daz: bool | None = None,
    ftz: bool | None = None, tininess: TininessLike | None = None, seed: SeedLike | None = None,
    random_bits: int | None = None,
) -> Trace | SumTrace: ...  # fmt: skip
def trace(
    a: Any, b: Any, c: Any = None, *, accumulate: AccumulationLike, scale_a: Any = None, scale_b: Any = None,
    rounding: RoundingLike | None = None, overflow: OverflowLike | None = None, daz: bool | None = None,
    ftz: bool | None = None, tininess: TininessLike | None = None, seed: SeedLike | None = None,
    random_bits: int | None = None,
) -> Trace | SumTrace:  # fmt: skip
    """Trace the dot product of a and b, plus c, step by step, as a matrix unit or IEEE operations compute it.

    Parameters
    ----------
    a, b : array_like of floats, (K,)
        FloatArrays, or arrays whose dtype is a format; for a matrix unit, one that the instruction takes.
    c : number, optional
        The accumulator at the start of a matrix unit, rounded to the format of D, ties to even; zero by default. For
        IEEE operations the addend of `fs.dot`.
    accumulate : accumulation or text
        A matrix unit: "hopper", "tensorcore(hopper, mma.m16n8k16, output=fp16)", fs.TensorCore("ada"). Or any
        accumulation without matrix units: "fp16", "kahan(fp16)", "pairwise(bf16)", "blocked(fp16, 8, fp32)".
    scale_a, scale_b : array_like, (ceil(K / every),), optional
        The scales of the blocks of a and of b, both E8M0 or both E4M3, for instructions that take scales.
    rounding, overflow, daz, ftz, tininess, seed, random_bits : optional
        The rounding options of IEEE operations, with the meanings that they have for `fs.dot`. A matrix unit takes
        none.

    Returns
    -------
    Trace or SumTrace
        A `Trace` of a matrix unit, with its blocks, or a `SumTrace` of IEEE operations, with every rounding. Its `code`
        equals the result of `fs.dot`.

    Raises
    ------
    TypeError
        If a matrix unit is a part of the accumulation, or gets rounding options; if an operand holds no floats.
    ValueError
        If a and b are not vectors of one length, c is not one number, or the unit does not take the operands. The
        message lists what the unit takes.

    Notes
    -----
    The steps come from the reference in exact integers (`floatsim.reference.tensorcore.dot` and
    `floatsim.reference.sums`). A K in the thousands takes seconds.

    Examples
    --------
    Hopper's FP8 units keep 13 bits below the largest exponent. Beside 2**14 they discard all of 1.875:

    >>> import floatsim as fs
    >>> x, y = fs.array([128.0, 128.0, 1.5], "e4m3"), fs.array([128.0, -128.0, 1.25], "e4m3")
    >>> print(fs.tensorcore.trace(x, y, accumulate="hopper"))
    hopper wgmma.k32: E4M3 x E4M3 to FP32, K = 3, c = 0
    <BLANKLINE>
    instruction 0: k = 0 to 31
    largest exponent 14, and 13 bits below it are kept: down to 2^1
      term                      factors   value  exponent  shift   lost  bits lost  bits
      a[0]*b[0]               128 * 128   16384        14      0                     10000000000000|
      a[1]*b[1]              128 * -128  -16384        14      0                    -10000000000000|
      a[2]*b[2]              1.5 * 1.25   1.875         0     14  1.875          4   ..............|1111
      sum                                     0
      D, E8M13, toward zero                   0
    (30 terms are zeros)
    <BLANKLINE>
    D = 0, 0x00000000
    exact sum 1.875, error -1.875

    Three FP16 terms, added in order. The accumulator absorbs the last two:

    >>> x, one = fs.array([2048.0, 1.0, 1.0], "fp16"), fs.array([1.0, 1.0, 1.0], "fp16")
    >>> print(fs.tensorcore.trace(x, one, accumulate="sequential(fp16, product=none)"))
    sequential(fp16, fused): FP16 x FP16 to FP16, K = 3
    <BLANKLINE>
      k  rounding  operands  exact  rounded  lost  events
      0  acc + x   0 + 2048   2048     2048
      1  acc + x   2048 + 1   2049     2048     1  absorbed
      2  acc + x   2048 + 1   2049     2048     1  absorbed
    <BLANKLINE>
    result 2048, 0x6800
    exact sum 2050, error -2
    """
    unit = as_accumulation(accumulate)
    options: RoundingOptions = {
        "rounding": rounding, "overflow": overflow, "daz": daz, "ftz": ftz, "tininess": tininess, "seed": seed,
        "random_bits": random_bits,
    }  # fmt: skip
    left, right = _vector(a, "a"), _vector(b, "b")
    if left[0].shape != right[0].shape:
        raise ValueError(f"a has {left[0].size} elements and b has {right[0].size}; they must have the same number")
    given = block_scales(scale_a, scale_b, left, right, unit)
    scales = None if given is None else Scaled(given.a.ravel().tolist(), given.b.ravel().tolist(), given.of)
    sides = [(codes.tolist(), fmt) for codes, fmt in (left, right)]
    (x, x_format), (y, y_format) = sides
    if not isinstance(unit, TensorCore):
        return _sum_trace(unit, sides, None if c is None else _number(c), options)
    if named := [name for name, value in options.items() if value is not None]:
        raise TypeError(f"{unit} takes no rounding options: remove {' and '.join(named)}")
    row = unit.row(x_format, y_format, None if scales is None else scales.of)
    start, _ = seeded(_number(0 if c is None else c), row.output)
    steps = dot(row, x, y, x_format, y_format, start, scales).steps
    blocks = tuple(_blocks(row, steps, [_values(row, codes, fmt) for codes, fmt in sides], scales))
    return Trace(
        accumulation=TensorCore(unit.arch, row.name, row.output),
        instruction=row,
        formats=(x_format, y_format),
        length=len(x),
        c=value_of(decode(start, row.output)),
        blocks=blocks,
        code=steps[-1].code if steps else start,
        exact=_exact(row, steps, start),
    )


def _sum_trace(
    accumulation: Accumulation, sides: list[tuple[list[int], FloatFormat]], c: tuple[int, FloatFormat] | None,
    options: RoundingOptions,
) -> SumTrace:  # fmt: skip
    if units := tensor_cores(accumulation):
        raise TypeError(
            f"accumulate must be one TensorCore or an accumulation without matrix units, not {accumulation}; trace "
            f"each part with accumulate={str(units[0])!r}"
        )
    a, b = sides
    for name, (_, fmt) in zip("ab", sides, strict=True):
        if fmt.is_scale:
            raise TypeError(f"{name} is {fmt.name}, a scale format, which has no arithmetic; fs.convert it first")
    return trace_sum(resolve_call(accumulation, a[1], b[1], None, None, "emulator", options), a, b, c)


def _vector(x: Any, argument: str) -> tuple[NDArray[np.unsignedinteger[Any]], FloatFormat]:
    codes, fmt, _ = read_floats(x, argument)
    if codes.ndim != 1:
        raise ValueError(f"{argument} must be a vector (K,), not of shape {codes.shape}")
    return codes, fmt


def _number(c: Any) -> tuple[int, FloatFormat]:
    codes, fmt, _ = read_floats(c, "c")
    if codes.size != 1 or fmt.is_scale:
        raise ValueError(f"c must be one number, not {fmt.name} of shape {codes.shape}")
    return int(codes.item()), fmt


# -- from the reference's steps --------------------------------------------------------------------------------------


def _values(row: Instruction, codes: Sequence[int], fmt: FloatFormat) -> list[float]:
    numbers = [decode(*operand) for operand in Operand(row, codes, fmt)[range(len(codes))]]
    return [-0.0 if x.is_zero and x.sign else float(value_of(x)) for x in numbers]


def _exact(row: Instruction, steps: Sequence[Step], start: int) -> Fraction | None:
    numbers = [decode(start, row.output), *(t.number for step in steps for t in step.terms[: len(step.ks)])]
    if any(x.is_nan or x.is_infinite for x in numbers):
        return None
    return sum((x.fraction for x in numbers), Fraction(0))


def _blocks(
    row: Instruction, steps: Sequence[Step], values: list[list[float]], scales: Scaled | None
) -> Iterator[TracedBlock]:
    for i, step in enumerate(steps):
        instruction, number = divmod(i, row.roundings)
        yield _block(row, step, instruction, number, values, _accumulators(row, instruction, number), scales)


def _accumulators(row: Instruction, instruction: int, number: int) -> list[str]:
    """Return the names of a step's accumulators: c, the D of the block before, or the sum to which c is added last."""
    if isinstance(row.model, TwoHalves):
        return ["sum", "acc" if instruction else "c"] if number == 2 else ["sum"]
    return ["acc" if instruction or number else "c"]


def _block(
    row: Instruction, step: Step, instruction: int, number: int, values: list[list[float]], accumulators: list[str],
    scales: Scaled | None,
) -> TracedBlock:  # fmt: skip
    length = len(values[0])
    inside = [k for k in step.ks if k < length]
    terms = [
        _product(row, term, kept, k, values, step, _scales_of(scales, k))
        for k, term, kept in zip(step.ks, step.terms, _kept(step), strict=False)
        if k < length
    ]
    added = zip(accumulators, step.terms[len(step.ks) :], _kept(step)[len(step.ks) :], strict=True)
    terms += [_term(name, None, None, term, kept, step) for name, term, kept in added]
    total = _total(row, step)
    value = value_of(decode(step.code, row.output))
    return TracedBlock(
        instruction, number, step.ks, tuple(terms), len(step.ks) - len(inside), step.exponent,
        None if step.exponent is None else step.exponent - step.kept[-1][1], total, leading_bit(total or 0), step.code,
        value, None if total is None or isinstance(value, float) else total - value,
        tuple((range(step.ks[0] + at.start, step.ks[0] + at.stop), value_of(x)) for at, x in step.partials),
    )  # fmt: skip


def _scales_of(scales: Scaled | None, k: int) -> tuple[float, float] | None:
    """Return the scales of the k-th elements without their signs, which the units ignore."""
    if scales is None:
        return None
    fmt = scales.of.format
    a, b = (value_of(decode(codes[k // scales.of.every] & fmt.magnitude_mask, fmt)) for codes in (scales.a, scales.b))
    return float(a), float(b)


def _kept(step: Step) -> Sequence[Multiple | None]:
    return step.kept or (None,) * len(step.terms)


def _total(row: Instruction, step: Step) -> Fraction | None:
    """Return the sum before rounding: of the kept parts, or of all terms in a model that discards nothing."""
    if step.total is not None:
        return step.total[0] * power(step.total[1])
    exactly = isinstance(row.model, ExactBlocks | FmaChain) or not step.ks
    if not exactly or any(term.number.is_nan or term.number.is_infinite for term in step.terms):
        return None
    return sum((term.number.fraction for term in step.terms), Fraction(0))


def _product(
    row: Instruction, term: Term, kept: Multiple | None, k: int, values: list[list[float]], step: Step,
    scales: tuple[float, float] | None,
) -> TracedTerm:  # fmt: skip
    group = row.group
    if group > 1:
        traced = _term(f"k = {k} to {min(k + group, len(values[0])) - 1}", k, None, term, kept, step)
    else:
        traced = _term(f"a[{k}]*b[{k}]", k, (values[0][k], values[1][k]), term, kept, step)
    return replace(traced, scales=scales)


def _term(
    name: str, k: int | None, factors: tuple[float, float] | None, term: Term, kept: Multiple | None, step: Step
) -> TracedTerm:
    value = value_of(term.number)
    if kept is None or step.exponent is None or isinstance(value, float):
        return TracedTerm(name, k, factors, value, term.exponent)
    n, quantum = kept
    part = n * power(quantum)
    shift = None if term.exponent is None else step.exponent - term.exponent
    return TracedTerm(
        name, k, factors, value, term.exponent, shift, part, value - part, _bits_below(value, quantum), quantum
    )


def _bits_below(value: Fraction, quantum: int) -> int:
    first, last = leading_bit(value), lowest_bit(value)
    return 0 if first is None or last is None else max(0, min(first + 1, quantum) - last)
