"""Dot-product units: a matrix instruction of one architecture with operand formats, and its emulation.

A unit computes a batch of independent dot products with one instruction. GPU and emulator are compared by units.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from floatsim._types import Codes
from floatsim.accumulation import TensorCore
from floatsim.emulator.dispatch.tensorcore_calls import Record, accumulate
from floatsim.emulator.dispatch.tensorcore_operands import BlockScales, Matrix
from floatsim.formats import FP32, FloatFormat
from floatsim.tensorcore.architectures import ARCHITECTURES, as_architecture, as_instruction_name, select
from floatsim.tensorcore.instructions import Instruction, Scales

__all__ = ["DotProducts", "ScaleCodes", "Unit", "named_unit", "units"]


class ScaleCodes(NamedTuple):
    """Codes of the scales of a and of b, each (n, ceil(K / every))."""

    a: Codes
    b: Codes


class DotProducts(Protocol):
    """A callable that computes a batch of independent dot products on codes.

    a and b (n, K), c (n,) and the result (n,) are unsigned codes. Only block-scaled instructions take `scales`.
    """

    def __call__(self, a: Codes, b: Codes, c: Codes, scales: ScaleCodes | None = None) -> Codes: ...


@dataclass(frozen=True)
class Unit:
    """An instruction of an architecture with the formats of its operands. `dots` emulates it.

    Attributes
    ----------
    arch : str
        The architecture's name in `fs.tensorcore.ARCHITECTURES`.
    row : Instruction
        The instruction's row in the table.
    a, b : FloatFormat
        The formats of the operands.
    scales : Scales or None
        The block scales of the operands; None without block scaling.

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
        """The instruction's name."""
        return self.row.name

    @property
    def k(self) -> int:
        """The number of products that one instruction takes."""
        return self.row.k

    @property
    def output(self) -> FloatFormat:
        """The format of c and D."""
        return self.row.output

    @property
    def accumulation(self) -> TensorCore:
        """The description of the instruction's sums."""
        return TensorCore(self.arch, self.name, self.output)

    @property
    def scale_blocks(self) -> int:
        """The number of scales of each operand of a dot product."""
        return -(-self.k // self.scales.every) if self.scales else 0

    def __str__(self) -> str:
        scales = f", a scale in {self.scales.format} for every {self.scales.every}" if self.scales else ""
        return f"{self.arch} {self.name}: {self.a} x {self.b} to {self.output}{scales}"

    def dots(self, a: Codes, b: Codes, c: Codes, scales: ScaleCodes | None = None) -> Codes:
        """Emulate c + the sum of a[:, k] * b[:, k], row by row.

        Parameters
        ----------
        a, b : (n, K) of unsigned integers
            Codes of the operands. K products are one instruction up to K = k, and a chain beyond.
        c : (n,) of unsigned integers
            Codes of the output format.
        scales : ScaleCodes, optional
            The codes of the scales, for block-scaled operands.

        Returns
        -------
        (n,) of the output format's code dtype
            Codes of D.
        """
        n, length = a.shape
        out = c.astype(np.uint64).reshape(1, n, 1, 1)
        left, right = a.astype(np.uint64)[:, np.newaxis], b.astype(np.uint64)[:, :, np.newaxis]
        block_scales = None
        if self.scales is not None:
            assert scales is not None
            block_scales = BlockScales(scales.a[:, np.newaxis], scales.b[:, :, np.newaxis], self.scales)
        # With a record the emulator uses the integer kernels, which take the whole batch at once.
        record = Record(np.zeros(length, np.int64), np.zeros((2, 256), np.int64), np.zeros((0, 0, 0, 0), np.int64))
        operands = Matrix(left, self.a), Matrix(right, self.b)
        accumulate(self.row, *operands, out, np.array([[0, length]]), None, block_scales, record)
        return out.ravel().astype(self.output.code_dtype)


def named_unit(
    arch: str, name: str | None, a: FloatFormat, b: FloatFormat, output: FloatFormat | None = None,
    scales: Scales | None = None,
) -> Unit:  # fmt: skip
    """Return the unit of an architecture for operands of these formats. Default instruction: the architecture's own.

    Parameters
    ----------
    arch : str
        The architecture's name, as "hopper".
    name : str or None
        The instruction's name, as "wgmma.k16", or None for the default.
    a, b : FloatFormat
        The formats of the operands.
    output : FloatFormat, optional
        The format of c and D.
    scales : Scales, optional
        The block scales of the operands.

    Raises
    ------
    ValueError
        If there is no such unit. The message lists the supported formats.

    Examples
    --------
    >>> import floatsim as fs
    >>> named_unit("hopper", None, fs.FP16, fs.FP16).name
    'wgmma.k16'
    """
    architecture = as_architecture(arch)
    known = None if name is None else as_instruction_name(architecture, name)
    return Unit(architecture.name, select(architecture, known, a, b, output, scales), a, b, scales)


def units(arch: str | None = None) -> Iterator[Unit]:
    """Yield the units of an architecture, or of all, with all operand formats, in the order of the table.

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
