"""The sum of a matrix unit as a description."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from floatsim.accumulation.base import Accumulation, accumulator_format, value_text
from floatsim.formats import FP32, FloatFormat, FormatLike
from floatsim.formats._hashing import hashed_once
from floatsim.tensorcore.architectures import (
    ARCHITECTURES,
    Architecture,
    as_architecture,
    as_instruction_name,
    enumerated,
    select,
)
from floatsim.tensorcore.instructions import Instruction, Scales

__all__ = ["TensorCore"]


@hashed_once
@dataclass(frozen=True, repr=False, init=False)
class TensorCore(Accumulation):
    """The sum of a matrix unit, bit for bit: products are exact, and a block of them is added at once.

    The K loop is that of a GEMM kernel. An instruction takes k terms. Its result D is the accumulator c of the next
    instruction, in D's format. The last instruction is filled up with zero terms, which changes no bit (except the sign
    of a zero in chains of IEEE additions: FP64, and AMD's). c is rounded to D's format first, ties to even. Without c
    the accumulator starts as +0.

    `fs.tensorcore` has the table of architectures and instructions, the model of each, and the evidence: verified on
    hardware, equal to another model, or unverified.

    Parameters
    ----------
    arch : str
        "volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell-rtx", "cdna1", "cdna2" or "cdna3", or the
        name of a GPU such as "H100". CPUs have "avx512-bf16", "amx-bf16", "arm-bfdot" and others:
        `fs.tensorcore.ARCHITECTURES` has all names.
    instruction : str, optional
        "mma.m16n8k16", "wgmma.k32", "tcgen05.k16", "mfma.32x32x8", ... Default: the main instruction of the
        architecture for the formats of the operands: mma up to Ada, wgmma on Hopper, tcgen05 on Blackwell, mma on RTX
        Blackwell. Instructions whose name ends in .tf32 accept FP32 operands and truncate them.
    output : format, optional
        The format of D, which is also that of the accumulator: FP32 or FP16; FP64 for FP64 operands. Default: FP32
        (FP64 for FP64 operands), whatever result the call requests: cuBLAS and PyTorch accumulate FP16 products in
        FP32 and round the sum once. "fp16" names the unit's FP16 accumulator.

    Raises
    ------
    ValueError
        For an unknown architecture or instruction, and for an output that the instruction does not have. The message
        lists the accepted values.
    TypeError
        For rounding options, which a matrix unit does not have.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.TensorCore("Hopper", "wgmma.k16", output="fp16"))
    tensorcore(hopper, wgmma.k16, output=fp16)
    >>> fs.Blocked("hopper", 128, "fp32")
    Blocked(TensorCore('hopper'), 128, Sequential(FP32))
    >>> a, b = fs.array([[1.0] * 32], "fp16"), fs.array([[2048.0]] + [[0.0625]] * 31, "fp16")
    >>> units = fs.TensorCore("hopper"), fs.TensorCore("hopper", output="fp16")
    >>> [fs.matmul(a, b, accumulate=unit, format="fp16").item() for unit in units]
    [2050.0, 2048.0]
    """

    text_form = "tensorcore(arch) or tensorcore(arch, instruction, output=fp16)"

    arch: str
    instruction: str | None = None
    output: FloatFormat | None = None

    def __init__(
        self, arch: str, instruction: str | None = None, output: FormatLike | None = None, **others: Any
    ) -> None:
        if others:
            names = ", ".join(f"{name}=" for name in others)
            raise TypeError(f"a TensorCore rounds as its hardware and takes no {names}; only arch, instruction, output")
        architecture = as_architecture(arch)
        name = None if instruction is None else as_instruction_name(architecture, instruction)
        fmt = None if output is None else accumulator_format(output, "output")
        outputs = {row.output: None for row in architecture.instructions if name in (None, row.name)}
        if fmt is not None and fmt not in outputs:
            where = architecture.name if name is None else f"{name} on {architecture.name}"
            raise ValueError(f"{where} gives {enumerated(outputs)}, not {fmt}")
        object.__setattr__(self, "arch", architecture.name)
        object.__setattr__(self, "instruction", name)
        object.__setattr__(self, "output", fmt)

    @property
    def architecture(self) -> Architecture:
        """The architecture in the table."""
        return ARCHITECTURES[self.arch]

    @property
    def result_format(self) -> FloatFormat:
        """The format of D. The default is FP32, although FP64 operands have an FP64 result: see `fitted`."""
        return FP32 if self.output is None else self.output

    def row(self, a: FloatFormat, b: FloatFormat, scales: Scales | None = None) -> Instruction:
        """Return the instruction for operands of these formats.

        >>> import floatsim as fs
        >>> fs.TensorCore("ada").row(fs.E4M3, fs.E5M2).name
        'mma.m16n8k32'
        """
        return _row(self, a, b, scales)

    def _texts(self, show: Any) -> list[str]:
        texts = [show(self.arch)] if self.instruction is None else [show(self.arch), show(self.instruction)]
        return texts if self.output is None else [*texts, f"output={value_text(self.output, show)}"]


@functools.lru_cache(maxsize=256)
def _row(unit: TensorCore, a: FloatFormat, b: FloatFormat, scales: Scales | None) -> Instruction:
    return select(unit.architecture, unit.instruction, a, b, unit.output, scales)
