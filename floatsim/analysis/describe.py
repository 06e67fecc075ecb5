"""What is known of matrix instructions, in words and as a table: the model, its numbers, and the evidence."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from floatsim.accumulation import TensorCore
from floatsim.formats import FP16, FloatFormat, FormatLike, as_format
from floatsim.tensorcore.architectures import Architecture, as_architecture, as_instruction_name, select
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
    TwoHalves,
)

__all__ = ["Description", "describe", "evidence_text", "facts"]

HEADS = ("instruction", "A, B", "D", "k", "added at once", "F", "least exponent", "D is rounded", "checked against")


@dataclass(frozen=True)
class Description:
    """Instructions of one architecture, as the table has them. Prints as text; in notebooks as Markdown.

    Attributes
    ----------
    architecture : Architecture
    instructions : tuple of Instruction
        Those that were asked for, the architecture's own one first.
    detailed : bool
        Whether the model of the first is told, and not only its row.
    """

    architecture: Architecture
    instructions: tuple[Instruction, ...]
    detailed: bool = False

    def rows(self) -> list[tuple[str, ...]]:
        """The table, its head first: a row for what differs in more than its shape.

        >>> import floatsim as fs
        >>> fs.tensorcore.describe("volta").rows()[1]
        ('mma.m8n8k4', 'FP16', 'FP32', '4', '4', '23', '-131', 'toward zero', 'silicon: V100')
        """
        return [HEADS, *(_joined(alike) for alike in self._alike())]

    def _alike(self) -> list[list[Instruction]]:
        """The instructions, those together that differ in their shape alone."""
        found: dict[tuple[str, ...], list[Instruction]] = {}
        for row in self.instructions:
            found.setdefault(_cells(row), []).append(row)
        return list(found.values())

    def _table(self) -> Iterator[str]:
        """The table as text, notes below it."""
        notes = list(dict.fromkeys(row.note for row in self.instructions if row.note))
        rows = []
        for alike in self._alike():
            *cells, _ = _joined(alike)
            note = f" [{notes.index(alike[0].note) + 1}]" if alike[0].note else ""
            rows.append((*cells, evidence_text(alike[0], notes=False) + note))
        yield from _aligned([HEADS, *rows])
        yield from (f"[{i}] {note}" for i, note in enumerate(notes, 1))

    def __str__(self) -> str:
        lines = [f"{self.architecture.title}, {self.architecture.name!r}"]
        if self.detailed:
            lines += ["", *_told(self.instructions[0])]
        if not self.detailed or len(self.instructions) > 1:
            lines += ["", *self._table()]
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        first = self.instructions[0]
        told = [f"`{first.name}`", "", *(f"- **{k}**: {v}" for k, v in facts(first).items())] if self.detailed else []
        return "\n".join([f"**{self.architecture.title}**", "", *told, "", self.to_markdown()])

    def to_markdown(self) -> str:
        """The table in Markdown.

        >>> import floatsim as fs
        >>> fs.tensorcore.describe("volta").to_markdown().splitlines()[2]
        '| `mma.m8n8k4` | FP16 | FP32 | 4 | 4 | 23 | -131 | toward zero | silicon: V100 |'
        """
        head, *rows = self.rows()
        marked = [head, ("---",) * len(head), *((f"`{row[0].replace(', ', '`, `')}`", *row[1:]) for row in rows)]
        return "\n".join("| " + " | ".join(row) + " |" for row in marked)


def describe(
    arch: str | TensorCore, a_format: FormatLike | None = None, b_format: FormatLike | None = None, *,
    instruction: str | None = None, output: FormatLike | None = None,
) -> Description:  # fmt: skip
    """What a matrix unit computes, in words and numbers, and what that has been held against.

    Parameters
    ----------
    arch : str or TensorCore
        "volta" ... "cdna3"; a TensorCore names its instruction and output too.
    a_format, b_format : format, optional
        Of the operands; b's is a's if it is not given. Then the architecture's own instruction for them is told in
        full, and the others that take them are listed.
    instruction : str, optional
        Which one; told in full. It may also stand in place of the formats: `describe("hopper", "wgmma.k32")`.
    output : format, optional
        Of D; only instructions that give it.

    Returns
    -------
    Description
        Prints as text, and as Markdown in notebooks. With no format and no instruction: the table of all.

    Raises
    ------
    ValueError
        For what is not known, and where nothing takes the operands; the message lists what there is.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.tensorcore.describe("hopper", fs.E4M3, instruction="wgmma.k32", output="fp32"))
    NVIDIA Hopper (sm_90), 'hopper'
    <BLANKLINE>
    wgmma.k32
      operands     E4M3, E5M2, mixed; c and D in FP32
      products     exact, of any exponent, and not normalised (1.5 * 1.5 has the exponent 0); a subnormal operand
                   has the least exponent of its format
      sum          of 32 products and c at once; all are aligned to the largest exponent (at least -133) and cut
                   toward zero to F = 13 bits below it; nothing is left of the rest, and carries are kept
      c            is aligned and cut like a product: of an FP32 number the low 10 bits cannot count
      D            FP32: rounded once, toward zero, 13 fraction bits; beyond the largest number it is infinite;
                   every zero is +0
      specials     NaN, inf * 0 and inf - inf give NaN, all bits set but the sign; an infinity wins over finite
                   terms
      longer sums  chain instructions, D being c of the next; the last is filled up to k = 32 with zeros
      evidence     equal to the published outputs of H100, H200 (Khattak and Mikaitis). These are of ordinary
                   numbers, a and b in one format: for others, infinities, NaN, subnormals and overflow there is
                   mmasim 2.1.1, where it has the instruction; published with c = 0 only
    """
    if isinstance(arch, TensorCore):
        instruction, output = instruction or arch.instruction, output or arch.output
        arch = arch.arch
    architecture = as_architecture(arch)
    if instruction is None and b_format is None and _is_instruction(a_format):
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
            select(architecture, name, a, b, None if output is None else as_format(output))  # says what there is
        rows = taking
    return Description(architecture, tuple(rows), a_format is not None or name is not None)


def _is_instruction(name: object) -> bool:
    """Whether a text is meant to name an instruction, family.shape; no format's name has a dot in it."""
    return isinstance(name, str) and "." in name


# -- the table -------------------------------------------------------------------------------------------------------


def evidence_text(row: Instruction, notes: bool = True) -> str:
    """What a row has been held against, in few words; with what there is to say about it.

    >>> from floatsim.tensorcore.architectures import ARCHITECTURES
    >>> evidence_text(ARCHITECTURES["hopper"].instructions[3])
    'silicon: H100, H200 (published with c = 0 only)'
    """
    note = f" ({row.note})" if row.note and notes else ""
    return _EVIDENCE[row.evidence] + (f": {row.cards}" if row.cards else "") + note


_EVIDENCE = {
    Evidence.SILICON: "silicon", Evidence.ASSERTED: "authors' word, mmasim", Evidence.MODEL: "mmasim",
    Evidence.NOTHING: "nothing",
}  # fmt: skip


def _cells(row: Instruction) -> tuple[str, ...]:
    """The row of the table but for its name and k."""
    fused, model = row.fused, row.model
    bits = fused.fraction_bits if fused else getattr(model, "fraction_bits", "")
    return (
        _inputs(row), row.output.name, _at_once(row), str(bits), str(fused.floor) if fused else "",
        "ties to even" if fused is None else _rounding(fused, row.output), evidence_text(row),
    )  # fmt: skip


def _joined(rows: Sequence[Instruction]) -> tuple[str, ...]:
    inputs, output, *rest = _cells(rows[0])
    return ", ".join(row.name for row in rows), inputs, output, ", ".join(str(row.k) for row in rows), *rest


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
    return str(row.block)


def _rounding(fused: FusedBlocks, output: FloatFormat) -> str:
    how = fused.rounding.name.lower().replace("_", " ")
    return how if fused.grid == output else f"{how}, {fused.grid.trailing_bits} fraction bits"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))


# -- in words --------------------------------------------------------------------------------------------------------


def facts(row: Instruction) -> dict[str, str]:
    """What an instruction computes, topic by topic, and its evidence.

    >>> from floatsim.tensorcore.architectures import ARCHITECTURES
    >>> facts(ARCHITECTURES["cdna1"].instructions[0])["sum"]
    'exact, of 4 products and c'
    """
    told = {"operands": f"{_inputs(row)}; c and D in {row.output}", **_model_facts(row)}
    if row.truncates:
        told["FP32 operands"] = "are read as TF32: their low 13 bits are dropped, not rounded"
    if row.scales:
        told["scales"] = "multiply the products exactly; their sign is ignored, and a NaN gives NaN; c is not scaled"
    blocks = row.k // row.block
    if blocks > 1 and not isinstance(row.model, TwoHalves):
        told["chain"] = f"k = {row.k} is {blocks} blocks one after the other; D of each, rounded, is c of the next"
    told["longer sums"] = f"chain instructions, D being c of the next; the last is filled up to k = {row.k} with zeros"
    told["evidence"] = _EVIDENCE_TOLD[row.evidence].format(cards=row.cards) + (f"; {row.note}" if row.note else "")
    return told


_PRODUCTS = (
    "exact, of any exponent, and not normalised (1.5 * 1.5 has the exponent 0); a subnormal operand has the least "
    "exponent of its format"
)
_NVIDIA_SPECIALS = "NaN, inf * 0 and inf - inf give NaN, all bits set but the sign; an infinity wins over finite terms"
_AMD_SPECIALS = "NaN, inf * 0 and inf - inf give NaN (which one the cards give is not known); an infinity wins"
_FUSED_C = "is aligned and cut like a product"
_EVIDENCE_TOLD = {
    Evidence.SILICON: "equal to the published outputs of {cards} (Khattak and Mikaitis). These are of ordinary "
    "numbers, a and b in one format: for others, infinities, NaN, subnormals and overflow there is mmasim 2.1.1, where "
    "it has the instruction",
    Evidence.ASSERTED: "those who found the model say that it equals {cards}, but have published no outputs; equal to "
    "mmasim 2.1.1",
    Evidence.MODEL: "equal to mmasim 2.1.1, whose authors held that against {cards}; there are no published outputs",
    Evidence.NOTHING: "held against nothing: by analogy",
}  # fmt: skip


def _model_facts(row: Instruction) -> dict[str, str]:
    model = row.model
    match model:
        case TwoHalves():
            halves = f"{row.block} products at once, twice: of k % 4 = 0 or 1 onto +0, then of the others onto that"
            return {
                "how": "no hardware, but what ptxas makes of it: operands are converted to FP16 and multiplied there "
                "in two instructions",
                **_fused_facts(model.block, row, halves),
                "c": "is added in the end, as an ordinary instruction adds: ties to even",
            }
        case GroupedBlocks():
            groups = f"{model.terms // model.group} groups and c at once"
            return _fused_facts(model, row, groups) | {
                "products": f"exact, and so are the sums of {model.group}: these, times their scales, are the terms; "
                "a term's exponent is that of its scales, whatever the sum"
            }
        case FusedBlocks():
            return _fused_facts(model, row, f"{row.block} products and c at once")
        case FmaChain():
            how = "acc = fma(a, b, acc), one product after the other, as IEEE 754 has it"
            return {"sum": how, "D": f"{row.output}, ties to even, every time", "specials": "as in IEEE 754"}
        case ExactBlocks():
            return {
                "products": "exact", "sum": f"exact, of {row.block} products and c",
                "D": "rounded once to FP32, ties to even; subnormals are kept", "specials": _AMD_SPECIALS,
            }  # fmt: skip
        case FlushedTree():
            pairs = "(p0 + p1) + (p2 + p3)" if row.block == 4 else "p0 + p1"
            return {
                "products": "in FP32; subnormal operands are +0, and subnormal results zeros",
                "sum": f"{pairs}, then added to c: each in FP32, ties to even, subnormal results zeros",
                "specials": _AMD_SPECIALS,
            }
        case LateAccumulator():
            return _late_facts(model, row)


def _fused_facts(model: FusedBlocks, row: Instruction, terms: str) -> dict[str, str]:
    zeros = "every zero is +0"
    rounded = f"rounded once, {_rounding(model, row.output)}"
    limits = "ties to even from the whole sum" if model.grid == FP16 else "beyond the largest number it is infinite"
    low = row.output.trailing_bits - model.grid.trailing_bits
    return {
        "products": _PRODUCTS,
        "sum": f"of {terms}; all are aligned to the largest exponent (at least {model.floor}) and cut toward zero to "
        f"F = {model.fraction_bits} bits below it; nothing is left of the rest, and carries are kept",
        "c": _FUSED_C + (f": of an FP32 number the low {low} bits cannot count" if low else ""),
        "D": f"{row.output}: {rounded}; {limits}; {zeros}",
        "specials": _NVIDIA_SPECIALS,
    }


def _late_facts(model: LateAccumulator, row: Instruction) -> dict[str, str]:
    apart = isinstance(model, EvenAndOdd)
    bits = model.fraction_bits
    parts = f"{row.block // 2} even and {row.block // 2} odd ones apart" if apart else f"{row.block} of them at once"
    joined = "; the two sums are cut downward to the same place and added" if apart else ""
    dropped = f"; it is dropped where its exponent is more than {bits + 1} below" if apart else ""
    return {
        "products": f"exact, not normalised; infinite from 2**{row.output.emax + 1} on",
        "sum": f"of products alone, {parts}: aligned to the largest exponent and cut toward zero to {bits} bits "
        f"below it{joined}",
        "c": f"joins that sum: the sum is cut downward to {model.sum_bits + 1} bits below the larger exponent of the "
        f"two, c to {bits}{dropped}",
        "D": f"FP32: cut downward to {model.sum_bits} fraction bits, then ties to even",
        "specials": _AMD_SPECIALS,
    }


def _told(row: Instruction) -> Iterator[str]:
    """The facts as lines, the topics in a column."""
    yield row.name
    told = facts(row)
    width = max(map(len, told)) + 4
    for topic, text in told.items():
        first, *rest = textwrap.wrap(text, _WIDTH - width)
        yield f"  {topic:<{width - 2}}{first}"
        yield from (" " * width + line for line in rest)


_WIDTH = 110
