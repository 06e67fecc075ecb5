"""A matrix instruction with the formats of its operands, on one architecture, and what the emulator makes of it.

The unit in which silicon and emulator are compared: a batch of independent dot products through one instruction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from floatsim.accumulation import TensorCore
from floatsim.emulator.tensorcore import Record, accumulate
from floatsim.emulator.tensorcore_operands import BlockScales, Matrix
from floatsim.formats import FP32, FloatFormat
from floatsim.tensorcore.architectures import ARCHITECTURES, as_architecture, as_instruction_name, select
from floatsim.tensorcore.instructions import Instruction, Scales

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Codes", "DotProducts", "ScaleCodes", "Unit", "named_unit", "units"]

Codes: TypeAlias = "NDArray[np.unsignedinteger[Any]]"


class ScaleCodes(NamedTuple):
    """Codes of the scales of a and of b, each (n, ceil(K / every))."""

    a: Codes
    b: Codes


class DotProducts(Protocol):
    """What multiplies: a batch of independent dot products, codes in and codes out.

    a, b (n, K), c (n,) and the result (n,) are unsigned codes; `scales` is given to block-scaled instructions alone.
    """

    def __call__(self, a: Codes, b: Codes, c: Codes, scales: ScaleCodes | None = None) -> Codes: ...


@dataclass(frozen=True)
class Unit:
    """An instruction of an architecture with the formats of its operands. Its `dots` are the emulator's.

    Attributes
    ----------
    arch : str
        As `fs.tensorcore.ARCHITECTURES` names it.
    row : Instruction
        Of its table.
    a, b : FloatFormat
        Of the operands, which the row takes.
    scales : Scales or None
        Those of block-scaled operands.

    Examples
    --------
    >>> import floatsim as fs
    >>> unit = named_unit("ada", "mma.m16n8k32", fs.E4M3, fs.E5M2)
    >>> str(unit)
    'ada mma.m16n8k32: E4M3 x E5M2 to FP32'
    >>> ones = np.full((2, 32), 0x38, np.uint8)
    >>> [hex(code) for code in unit.dots(ones, ones << 1, np.zeros(2, np.uint32))]  # 32 times 1 * 2**13
    ['0x48800000', '0x48800000']
    """

    arch: str
    row: Instruction
    a: FloatFormat
    b: FloatFormat
    scales: Scales | None = None

    @property
    def name(self) -> str:
        """The instruction's."""
        return self.row.name

    @property
    def k(self) -> int:
        """How many products one instruction takes."""
        return self.row.k

    @property
    def output(self) -> FloatFormat:
        """The format of c and D."""
        return self.row.output

    @property
    def how(self) -> TensorCore:
        """The description of its sums."""
        return TensorCore(self.arch, self.name, self.output)

    @property
    def scale_blocks(self) -> int:
        """How many scales each operand of a dot product has."""
        return -(-self.k // self.scales.every) if self.scales else 0

    def __str__(self) -> str:
        scales = f", a scale in {self.scales.format} for every {self.scales.every}" if self.scales else ""
        return f"{self.arch} {self.name}: {self.a} x {self.b} to {self.output}{scales}"

    def dots(self, a: Codes, b: Codes, c: Codes, scales: ScaleCodes | None = None) -> Codes:
        """What the emulator computes: c + the sum of a[:, k] * b[:, k], row by row.

        Parameters
        ----------
        a, b : (n, K) of unsigned integers
            Codes. K is any; an instruction's k, or less, is one instruction.
        c : (n,) of unsigned integers
            Codes of the output format.
        scales : ScaleCodes, optional
            For block-scaled operands.

        Returns
        -------
        (n,) of the output format's code dtype
        """
        n, length = a.shape
        out = c.astype(np.uint64).reshape(1, n, 1, 1)
        left, right = a.astype(np.uint64)[:, np.newaxis], b.astype(np.uint64)[:, :, np.newaxis]
        of = None
        if self.scales is not None:
            assert scales is not None
            of = BlockScales(scales.a[:, np.newaxis], scales.b[:, :, np.newaxis], self.scales)
        # a record asks for the kernels in integers, which take the batch at once
        record = Record(np.zeros(length, np.int64), np.zeros((2, 256), np.int64), np.zeros((0, 0, 0, 0), np.int64))
        operands = Matrix(left, self.a), Matrix(right, self.b)
        accumulate(self.row, *operands, out, np.array([[0, length]]), None, of, record)
        return out.ravel().astype(self.output.code_dtype)


def named_unit(
    arch: str, name: str | None, a: FloatFormat, b: FloatFormat, output: FloatFormat | None = None,
    scales: Scales | None = None,
) -> Unit:  # fmt: skip
    """The unit of an architecture that takes such operands; where no instruction is named, its own one.

    Raises
    ------
    ValueError
        Where there is none; the message lists what there is.
    """
    architecture = as_architecture(arch)
    known = None if name is None else as_instruction_name(architecture, name)
    return Unit(architecture.name, select(architecture, known, a, b, output, scales), a, b, scales)


def units(arch: str | None = None) -> Iterator[Unit]:
    """Every instruction of an architecture, or of all, with all the formats that it takes, in the table's order.

    >>> [str(unit) for unit in units("volta")]
    ['volta mma.m8n8k4: FP16 x FP16 to FP32', 'volta mma.m8n8k4: FP16 x FP16 to FP16']
    """
    for architecture in ARCHITECTURES.values() if arch is None else (as_architecture(arch),):
        for row in architecture.instructions:
            formats = (*row.inputs, FP32) if row.truncates else row.inputs
            for a in formats:
                for b in formats:
                    for scales in (row.scales or (None,)) if row.takes(a, b) else ():
                        yield Unit(architecture.name, row, a, b, scales)
