"""Dot products by matrix instructions, and longer sums as chains of instructions: the readable specification.

The models of `floatsim.reference.tensorcore.nvidia`, `amd` and `cpu` are joined to K loops. An instruction takes k
terms. The D that it returns, a number of D's format, is c of the next instruction. The last instruction is filled up
with zeros, as GEMM kernels load them.

>>> from floatsim import FP16
>>> from floatsim.tensorcore.architectures import as_architecture, select
>>> for name in ("volta", "ampere"):  # 1 + 4 * 2**-14 * 2**-10
...     row = select(as_architecture(name), None, FP16, FP16)
...     hex(dot(row, [0x0400] * 4, [0x1400] * 4, FP16, FP16, c=0x3F800000).code)
'0x3f800000'
'0x3f800002'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from floatsim.formats import FP32, TF32, FloatFormat
from floatsim.formats.rounding import RoundingAttributes
from floatsim.reference.scalar import convert, decode
from floatsim.reference.tensorcore import amd, cpu, nvidia
from floatsim.reference.tensorcore.alignment import Step, Term, product, read
from floatsim.tensorcore.instructions import (
    ExactBlocks,
    FlushedTree,
    FmaChain,
    FusedBlocks,
    GroupedBlocks,
    Instruction,
    LateAccumulator,
    Model,
    RoundedSteps,
    Scales,
    TwoHalves,
)

__all__ = ["Dot", "Operand", "Scaled", "dot", "seeded"]


class Dot(NamedTuple):
    """The code of D, and one step for each rounding of D."""

    code: int
    steps: tuple[Step, ...]


class Scaled(NamedTuple):
    """The codes of the scales of a and of b, one for each `of.every` elements."""

    a: Sequence[int]
    b: Sequence[int]
    of: Scales


def seeded(c: tuple[int, FloatFormat] | None, output: FloatFormat) -> tuple[int, int]:
    """Return c rounded to the format of D, ties to even, and the events; +0 for None."""
    if c is None:
        return 0, 0
    return convert(decode(*c), output, RoundingAttributes())


def dot(
    row: Instruction, a: Sequence[int], b: Sequence[int], a_format: FloatFormat, b_format: FloatFormat, c: int = 0,
    scales: Scaled | None = None,
) -> Dot:  # fmt: skip
    """Return the sum of a[k] * b[k] and c by an instruction or a chain of instructions.

    Parameters
    ----------
    row : Instruction
    a, b : codes
        Equally many of each. Without elements, the result is c.
    a_format, b_format : FloatFormat
        The formats of the operands. The instruction must take them.
    c : int
        A code of the instruction's output format.
    scales : Scaled, optional
        The block scales, for an instruction that takes them.

    Raises
    ------
    ValueError
        If a and b have different lengths.
    """
    if len(a) != len(b):
        raise ValueError(f"a has {len(a)} elements and b has {len(b)}")
    steps: list[Step] = []
    left, right = Operand(row, a, a_format), Operand(row, b, b_format)
    for start in range(0, len(a), row.k):
        for step in _instruction(row, left, right, c, start, min(start + row.k, len(a)) - 1, scales):
            steps.append(step)
            c = step.code
    return Dot(c, tuple(steps))


class Operand:
    """The elements of a row of A or a column of B as (code, format), filled up with zeros.

    An instruction that truncates reads FP32 as TF32.
    """

    def __init__(self, row: Instruction, codes: Sequence[int], fmt: FloatFormat) -> None:
        self.codes, self.format = codes, fmt
        if row.truncates and fmt == FP32:
            self.codes, self.format = [code >> FP32.trailing_bits - TF32.trailing_bits for code in codes], TF32

    def __getitem__(self, k: range) -> list[tuple[int, FloatFormat]]:
        n = len(self.codes)
        return [(self.codes[i] if i < n else 0, self.format) for i in k]


def _instruction(
    row: Instruction, a: Operand, b: Operand, c: int, start: int, last: int, scales: Scaled | None
) -> Iterator[Step]:
    """Yield the steps of one instruction over k = start, start + 1, ..., `last`."""
    model, output = row.model, row.output
    if isinstance(model, TwoHalves):
        k = range(start, start + row.k)
        for step in nvidia.two_halves(model, a[k], b[k], c, output, last):
            yield step._replace(ks=[start + i for i in step.ks])
        return
    for first in range(start, start + row.k, row.block):
        k = range(first, first + row.block)
        step = _block(model, k, a[k], b[k], c, output, max(min(k[-1], last), start), scales)
        yield step._replace(ks=k[:: model.group] if isinstance(model, GroupedBlocks) else k)
        c = step.code


def _block(
    model: Model, k: range, a: list[tuple[int, FloatFormat]], b: list[tuple[int, FloatFormat]], c: int,
    output: FloatFormat, last: int, scales: Scaled | None,
) -> Step:  # fmt: skip
    pairs = [(read(*x), read(*y)) for x, y in zip(a, b, strict=True)]
    products = [product(x, y) for x, y in pairs]
    if scales is not None:
        factors = [_scale(scales, i) for i in k]
        if isinstance(model, GroupedBlocks):
            products = list(nvidia.group_terms(model, pairs, factors))
        else:
            products = [product(p, factor) for p, factor in zip(products, factors, strict=True)]
    acc = read(c, output)
    match model:
        case FusedBlocks():
            return nvidia.block(model, products, acc, output, last)
        case FmaChain():
            step = amd.fma_step(pairs[0][0].number, pairs[0][1].number, c, output, last)
        case ExactBlocks():
            step = amd.exact_block(model, products, acc, output, last)
        case FlushedTree():
            step = amd.flushed_tree(a, b, c, last)
        case LateAccumulator():
            step = amd.late_block(model, products, acc, last)
        case RoundedSteps():
            step = cpu.rounded_steps(model, a, b, c, output)._replace(last=last)
        case _:
            raise TypeError(f"no model: {model!r}")
    return step._replace(terms=step.terms or (*products, acc))


def _scale(scales: Scaled, k: int) -> Term:
    """Return the product of the two scales of the k-th elements, and 1 past the end, where the elements are zeros.

    The sign of a scale is ignored.
    """
    fmt, i = scales.of.format, k // scales.of.every
    one = fmt.bias << fmt.trailing_bits
    x, y = (codes[i] & fmt.magnitude_mask if i < len(codes) else one for codes in (scales.a, scales.b))
    return product(read(x, fmt), read(y, fmt))
