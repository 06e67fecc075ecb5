"""Descriptions of matrix instructions as text and as a table: the model, its parameters, and the evidence for it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from floatsim.accumulation import TensorCore
from floatsim.formats import FP16, FloatFormat, FormatLike, as_format
from floatsim.formats.rounding import Rounding, Tininess
from floatsim.tensorcore.architectures import Architecture, as_architecture, as_instruction_name, enumerated, select
from floatsim.tensorcore.instructions import (
    EvenAndOdd,
    Evidence,
    ExactBlocks,
    FlushedTree,
    FmaChain,
    FusedBlocks,
    GroupedBlocks,
    Instruction,
    LateAccumulator,
    NanRule,
    RoundedSteps,
    TwoHalves,
)

__all__ = ["Description", "describe", "evidence_text", "facts"]

HEADS = ("instruction", "A, B", "D", "k", "added at once", "F", "least exponent", "D is rounded", "evidence")


@dataclass(frozen=True)
class Description:
    """The instructions of one architecture, as the table lists them. Prints as text; in notebooks as Markdown.

    Attributes
    ----------
    architecture : Architecture
    instructions : tuple of Instruction
        The selected instructions. The default instruction of the architecture is the first.
    detailed : bool
        Whether the model of the first instruction is described in full, and not only by its row.

    Examples
    --------
    >>> import floatsim as fs
    >>> found = fs.tensorcore.describe("volta")
    >>> found.architecture.name, found.instructions[0].name
    ('volta', 'mma.m8n8k4')
    """

    architecture: Architecture
    instructions: tuple[Instruction, ...]
    detailed: bool = False

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table as text cells, its head first. Instructions that differ only in their shape share a row.

        >>> import floatsim as fs
        >>> fs.tensorcore.describe("volta").rows()[1]
        ('mma.m8n8k4', 'FP16', 'FP32', '4', '4', '23', '-131', 'toward zero', 'verified on hardware: V100')
        """
        return [HEADS, *(_joined(group) for group in self._grouped())]

    def _grouped(self) -> list[list[Instruction]]:
        """Group the instructions that differ only in their shape."""
        groups: dict[tuple[str, ...], list[Instruction]] = {}
        for row in self.instructions:
            groups.setdefault(_cells(row), []).append(row)
        return list(groups.values())

    def _table(self) -> Iterator[str]:
        """Yield the lines of the table as text, with the notes below it."""
        notes = list(dict.fromkeys(row.note for row in self.instructions if row.note))
        rows = []
        for group in self._grouped():
            *cells, _ = _joined(group)
            note = f" [{notes.index(group[0].note) + 1}]" if group[0].note else ""
            rows.append((*cells, evidence_text(group[0], notes=False) + note))
        yield from _aligned([HEADS, *rows])
        yield from (f"[{i}] {note}" for i, note in enumerate(notes, 1))

    def __str__(self) -> str:
        lines = [f"{self.architecture.title}, {self.architecture.name!r}"]
        if self.detailed:
            lines += ["", *_model_lines(self.instructions[0])]
        if not self.detailed or len(self.instructions) > 1:
            lines += ["", *self._table()]
        if self.architecture.assumed:
            lines += ["", f"also used for {enumerated(self.architecture.assumed)}, unverified"]
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        first = self.instructions[0]
        model = [f"`{first.name}`", "", *(f"- **{k}**: {v}" for k, v in facts(first).items())] if self.detailed else []
        return "\n".join([f"**{self.architecture.title}**", "", *model, "", self.to_markdown()])

    def to_markdown(self) -> str:
        """Return the table in Markdown.

        >>> import floatsim as fs
        >>> fs.tensorcore.describe("volta").to_markdown().splitlines()[2]
        '| `mma.m8n8k4` | FP16 | FP32 | 4 | 4 | 23 | -131 | toward zero | verified on hardware: V100 |'
        """
        head, *rows = self.rows()
        marked = [head, ("---",) * len(head), *((f"`{row[0].replace(', ', '`, `')}`", *row[1:]) for row in rows)]
        return "\n".join("| " + " | ".join(row) + " |" for row in marked)


def describe(
    arch: str | TensorCore, a_format: FormatLike | None = None, b_format: FormatLike | None = None, *,
    instruction: str | None = None, output: FormatLike | None = None,
) -> Description:  # fmt: skip
    """Describe what a matrix unit computes, and the evidence for its model.

    Parameters
    ----------
    arch : str or TensorCore
        "volta" ... "cdna3", "avx512-bf16" ... A TensorCore also gives its instruction and its output format.
    a_format, b_format : format, optional
        The formats of the operands. Default of `b_format`: `a_format`. With them, the architecture's default
        instruction for these operands is described in full, and the other instructions that take them are listed.
    instruction : str, optional
        The instruction to describe in full. It may also take the place of the formats:
        `describe("hopper", "wgmma.k32")`.
    output : format, optional
        The format of D. Only instructions with this output are listed.

    Returns
    -------
    Description
        Prints as text, and as Markdown in notebooks. Without a format and an instruction: the table of all
        instructions of the architecture.

    Raises
    ------
    ValueError
        For an unknown architecture or instruction, and if no instruction takes the operands. The message lists the
        supported ones.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.tensorcore.describe("hopper", fs.E4M3, instruction="wgmma.k32", output="fp32"))
    NVIDIA Hopper (sm_90), 'hopper'
    <BLANKLINE>
    wgmma.k32
      operands     E4M3, E5M2, mixed; c and D in FP32
      products     exact, with an unlimited exponent, and not normalised (1.5 * 1.5 has the exponent 0); a
                   subnormal operand has the least exponent of its format
      sum          of 32 products and c at once; all are aligned to the largest exponent (at least -133) and
                   truncated toward zero to F = 13 bits below it; the bits below that are discarded, and carries
                   are kept
      c            is aligned and truncated like a product: the low 10 bits of an FP32 number are always discarded
      D            FP32: rounded once, toward zero, 13 fraction bits; a sum beyond the largest number gives an
                   infinity; every zero is +0
      specials     NaN, inf * 0 and inf - inf give NaN, all bits set but the sign; an infinity wins over finite
                   terms
      longer sums  instructions are chained: D is c of the next; the last is filled up to k = 32 with zeros
      evidence     verified by the project: equal to the instruction itself on H200, special values and NaN
                   included; the tests replay a capture, and run the instruction where it exists; also equal to
                   the published outputs of H100, H200 (Khattak and Mikaitis); published with c = 0 only
    """
    if isinstance(arch, TensorCore):
        instruction, output = instruction or arch.instruction, output or arch.output
        arch = arch.arch
    architecture = as_architecture(arch)
    if instruction is None and b_format is None and _is_instruction(architecture, a_format):
        instruction, a_format = str(a_format), None
    name = None if instruction is None else as_instruction_name(architecture, instruction)
    rows = [row for row in architecture.instructions if name in (None, row.name)]
    if output is not None:
        wanted = as_format(output)
        outputs = dict.fromkeys(row.output.name for row in rows)
        rows = [row for row in rows if row.output == wanted]
        if not rows:
            raise ValueError(f"{name or architecture.name} gives {' and '.join(outputs)}, not {wanted}")
    if a_format is None and b_format is not None:
        raise ValueError("b_format is given without a_format")
    if a_format is not None:
        a = as_format(a_format)
        b = a if b_format is None else as_format(b_format)
        taking = [row for row in rows if row.takes(a, b)]
        if not taking:
            select(architecture, name, a, b, None if output is None else as_format(output))  # raises; lists the formats
        rows = taking
    return Description(architecture, tuple(rows), a_format is not None or name is not None)


def _is_instruction(architecture: Architecture, name: object) -> bool:
    """Return whether a text names an instruction, or has the form family.shape. No format's name contains a dot."""
    return isinstance(name, str) and ("." in name or name.strip().lower() in architecture.names)


# -- the table -------------------------------------------------------------------------------------------------------


def evidence_text(row: Instruction, notes: bool = True) -> str:
    """Return the evidence for the model of an instruction as a short text, with the note of its row.

    >>> from floatsim.tensorcore.architectures import ARCHITECTURES
    >>> evidence_text(ARCHITECTURES["hopper"].instructions[3])
    'verified by the project: H200; published outputs: H100, H200 (published with c = 0 only)'
    """
    note = f" ({row.note})" if row.note and notes else ""
    also = row.published and row.evidence is not Evidence.SILICON
    published = f"; published outputs: {row.published}" if also else ""
    return _EVIDENCE[row.evidence] + (f": {row.gpus}" if row.gpus else "") + published + note


_EVIDENCE = {
    Evidence.SILICON: "verified on hardware", Evidence.ASSERTED: "reported by the authors, equal to mmasim",
    Evidence.MODEL: "equal to mmasim", Evidence.NOTHING: "unverified", Evidence.PROJECT: "verified by the project",
    Evidence.SPECIFIED: "equal to the specification",
}  # fmt: skip


def _cells(row: Instruction) -> tuple[str, ...]:
    """Return the cells of an instruction's row, without its name and k."""
    fused, model = row.fused, row.model
    bits = fused.fraction_bits if fused else getattr(model, "fraction_bits", "")
    return (
        _inputs(row), row.output.name, _at_once(row), str(bits), str(fused.floor) if fused else "",
        _direction(row) if fused is None else _of_fused(fused, row), evidence_text(row),
    )  # fmt: skip


def _joined(rows: Sequence[Instruction]) -> tuple[str, ...]:
    inputs, output, *others = _cells(rows[0])
    return ", ".join(row.name for row in rows), inputs, output, ", ".join(str(row.k) for row in rows), *others


def _inputs(row: Instruction) -> str:
    formats = [fmt.name for fmt in row.inputs] + ["or FP32 cut to it"] * row.truncates
    scales = [f"{s.format} for every {s.every}" for s in row.scales]
    return ", ".join(formats) + (", mixed" if row.mixes else "") + (f"; scales {' or '.join(scales)}" if scales else "")


def _at_once(row: Instruction) -> str:
    match row.model:
        case TwoHalves():
            return f"{row.block} + {row.block}, then c"
        case GroupedBlocks(group=group):
            return f"{row.block // group} groups of {group}"
        case EvenAndOdd():
            return f"{row.block // 2} even + {row.block // 2} odd, then c"
        case LateAccumulator():
            return f"{row.block}, then c"
        case FlushedTree():
            return f"{row.block} in pairs, then c"
        case RoundedSteps(group=group, lanes=lanes):
            joined = f"{group} in {lanes} lanes" if lanes > 1 else f"{group}"
            return f"{joined}, then c" if group > 1 or lanes > 1 else joined
    return str(row.block)


def _direction(row: Instruction) -> str:
    """Return the rounding mode of an instruction without fused blocks."""
    mode = row.model.rounding if isinstance(row.model, RoundedSteps) else Rounding.TIES_TO_EVEN
    return mode.name.lower().replace("_", " ")


def _of_fused(fused: FusedBlocks, row: Instruction) -> str:
    """Return the rounding of D, and of the addition of c where it is another one."""
    blocks = _rounding(fused, row.output)
    apart = isinstance(row.model, TwoHalves) and fused.rounding is not Rounding.TIES_TO_EVEN
    return f"blocks {blocks}; the addition of c ties to even" if apart else blocks


def _rounding(fused: FusedBlocks, output: FloatFormat) -> str:
    direction = fused.rounding.name.lower().replace("_", " ")
    return direction if fused.grid == output else f"{direction}, {fused.grid.trailing_bits} fraction bits"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))


# -- the model as text -----------------------------------------------------------------------------------------------


def facts(row: Instruction) -> dict[str, str]:
    """Return what an instruction computes, by topic, with the evidence for it.

    >>> from floatsim.tensorcore.architectures import ARCHITECTURES
    >>> facts(ARCHITECTURES["cdna1"].instructions[0])["sum"]
    'exact, of 4 products and c'
    """
    texts = {"operands": f"{_inputs(row)}; c and D in {row.output}", **_model_facts(row)}
    if row.truncates:
        texts["FP32 operands"] = "are read as TF32: their low 13 bits are dropped, without rounding"
    if row.scales:
        texts["scales"] = "multiply the products exactly; their sign is ignored, and a NaN gives NaN; c is not scaled"
    blocks = row.k // row.block
    if blocks > 1 and not isinstance(row.model, TwoHalves):
        texts["chain"] = f"k = {row.k} is {blocks} blocks in sequence; the rounded D of a block is c of the next"
    texts["longer sums"] = (
        f"instructions are chained: D is c of the next; the last is filled up to k = {row.k} with zeros"
    )
    evidence = [_EVIDENCE_IN_FULL[row.evidence].format(gpus=row.gpus)]
    if row.published and row.evidence is not Evidence.SILICON:
        evidence.append(f"also equal to the published outputs of {row.published} (Khattak and Mikaitis)")
    texts["evidence"] = "; ".join([*evidence, *filter(None, [row.note])])
    return texts


_PRODUCTS = (
    "exact, with an unlimited exponent, and not normalised (1.5 * 1.5 has the exponent 0); a subnormal operand has the "
    "least exponent of its format"
)
_NVIDIA_SPECIALS = "NaN, inf * 0 and inf - inf give NaN, all bits set but the sign; an infinity wins over finite terms"
_AMD_SPECIALS = "NaN, inf * 0 and inf - inf give NaN (its code is not known); an infinity wins over finite terms"
_FUSED_C = "is aligned and truncated like a product"
_EVIDENCE_IN_FULL = {
    Evidence.SILICON: "verified on hardware: equal to the published outputs of {gpus} (Khattak and Mikaitis), which "
    "cover ordinary numbers with a and b in one format; other formats, infinities, NaN, subnormals and overflow are "
    "equal to mmasim 2.1.1, if it has the instruction",
    Evidence.ASSERTED: "reported by the authors of the model to equal {gpus}; they have published no outputs; equal "
    "to mmasim 2.1.1",
    Evidence.MODEL: "equal to mmasim 2.1.1, whose authors compared it with {gpus}; there are no published outputs",
    Evidence.NOTHING: "unverified: inferred by analogy",
    Evidence.PROJECT: "verified by the project: equal to the instruction itself on {gpus}, special values and NaN "
    "included; the tests replay a capture, and run the instruction where it exists",
    Evidence.SPECIFIED: "equal to the specification, which the tests have as a second implementation; not compared "
    "with hardware",
}  # fmt: skip


def _model_facts(row: Instruction) -> dict[str, str]:
    model = row.model
    match model:
        case TwoHalves():
            halves = f"{row.block} products at once, twice: first k % 4 = 0 or 1 with +0, then the others with that sum"
            return {
                "hardware": "none: ptxas expands the instruction; operands are converted to FP16 and multiplied there "
                "in two instructions",
                **(of_blocks := _fused_facts(model.block, row, halves)),
                "c": "is added last, by an ordinary addition: ties to even",
                "D": of_blocks["D"].replace("rounded once", "each block is rounded once")
                + "; the sum of both blocks and c is rounded ties to even",
            }
        case GroupedBlocks():
            groups = f"{model.terms // model.group} groups and c at once"
            return _fused_facts(model, row, groups) | {
                "products": f"exact; sums of {model.group} products are exact too, and times their scales they are the "
                "terms; the exponent of a term is the exponent of its scales, whatever the sum"
            }
        case FusedBlocks():
            return _fused_facts(model, row, f"{row.block} products and c at once")
        case FmaChain():
            chain = "acc = fma(a, b, acc), one product after the other, as IEEE 754 defines it"
            return {"sum": chain, "D": f"{row.output}, ties to even in each step", "specials": "as in IEEE 754"}
        case ExactBlocks():
            return {
                "products": "exact", "sum": f"exact, of {row.block} products and c",
                "D": f"rounded once to {row.output}, ties to even; subnormals are kept",
                "specials": _NAN[NanRule.CANONICAL] if model.signed_zero else _AMD_SPECIALS,
            }  # fmt: skip
        case FlushedTree():
            pairs = "(p0 + p1) + (p2 + p3)" if row.block == 4 else "p0 + p1"
            return {
                "products": "rounded to FP32; subnormal operands are read as +0, subnormal results are flushed to zero",
                "sum": f"{pairs}, then added to c: each step in FP32, ties to even, subnormal results flushed to zero",
                "specials": _AMD_SPECIALS,
            }
        case LateAccumulator():
            return _late_facts(model, row)
        case RoundedSteps():
            return _step_facts(model, row)


def _fused_facts(model: FusedBlocks, row: Instruction, terms: str) -> dict[str, str]:
    zeros = "every zero is +0"
    rounded = f"rounded once, {_rounding(model, row.output)}"
    limits = (
        "ties to even from the whole sum"
        if model.grid == FP16
        else ("a sum beyond the largest number gives an infinity")
    )
    low = row.output.trailing_bits - model.grid.trailing_bits
    return {
        "products": _PRODUCTS,
        "sum": f"of {terms}; all are aligned to the largest exponent (at least {model.floor}) and truncated toward "
        f"zero to F = {model.fraction_bits} bits below it; the bits below that are discarded, and carries are kept",
        "c": _FUSED_C + (f": the low {low} bits of an FP32 number are always discarded" if low else ""),
        "D": f"{row.output}: {rounded}; {limits}; {zeros}",
        "specials": _NVIDIA_SPECIALS,
    }


def _late_facts(model: LateAccumulator, row: Instruction) -> dict[str, str]:
    apart = isinstance(model, EvenAndOdd)
    bits = model.fraction_bits
    parts = f"{row.block // 2} even and {row.block // 2} odd ones separately" if apart else f"{row.block} at once"
    joined = "; the two sums are truncated downward to the same place and added" if apart else ""
    dropped = f"; c is dropped if its exponent is more than {bits + 1} below" if apart else ""
    return {
        "products": f"exact, not normalised; infinite from 2**{row.output.emax + 1} on",
        "sum": f"of the products without c, {parts}: aligned to the largest exponent and truncated toward zero to "
        f"{bits} bits below it{joined}",
        "c": f"joins that sum: the sum is truncated downward to {model.sum_bits + 1} bits below the larger of the two "
        f"exponents, c to {bits}{dropped}",
        "D": f"FP32: truncated downward to {model.sum_bits} fraction bits, then rounded, ties to even",
        "specials": _AMD_SPECIALS,
    }


_NAN = {
    NanRule.CANONICAL: "NaN, inf * 0 and inf - inf give the canonical NaN",
    NanRule.FIRST_OPERAND: "of several NaN operands of an operation, the first one is returned, quiet, with its sign "
    "and payload: of a, b and the accumulator, or of the two addends; inf * 0 and inf - inf give the NaN with the sign",
}
_DETECTED = {Tininess.AFTER: "after", Tininess.BEFORE: "before"}


def _step_facts(model: RoundedSteps, row: Instruction) -> dict[str, str]:
    last = "from the last product to the first" if model.reverse else "one product after the other"
    step = f"acc = fma(a, b, acc), {last}"
    if model.group > 1:
        pair = "a0*b0 + a1*b1, rounded once" if model.fused else "a0*b0 + a1*b1, each of the three operations rounded"
        step = f"{pair}, then added to {'its lane' if model.late else 'acc'}"
    elif model.late:
        step = "lane = fma(a, b, lane)"
    texts = {"sum": f"operations round one after the other: {step}"}
    if model.late:
        start = "from +0" if model.from_zero else "from its first pair"
        what = "pairs" if model.group > 1 else "products"
        texts["sum"] += f"; the even and the odd {what} have a lane each, {start}; then c + (even + odd), two additions"
    texts["D"] = f"{row.output}, {_direction(row)} in each operation; overflow gives an infinity"
    if model.flushes is not None:
        texts["subnormals"] = (
            f"operands, c and results below 2**{row.output.emin} are zeros of their sign; tininess is detected "
            f"{_DETECTED[model.flushes]} rounding"
        )
    return texts | {"specials": _NAN[model.nan]}


def _model_lines(row: Instruction) -> Iterator[str]:
    """Yield the facts as lines, with the topics in a column."""
    yield row.name
    texts = facts(row)
    width = max(map(len, texts)) + 4
    for topic, text in texts.items():
        first, *continued = textwrap.wrap(text, _WIDTH - width)
        yield f"  {topic:<{width - 2}}{first}"
        yield from (" " * width + line for line in continued)


_WIDTH = 110
