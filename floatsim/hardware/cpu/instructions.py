"""The table of CPU instructions that floatsim can issue: their assembly, and the features that they need.

Names and formats are those of `floatsim.tensorcore`, whose rows define what an instruction *computes*. The rows here
define how it is *issued*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from floatsim.formats import BF16, FP16, FP32, FloatFormat
from floatsim.formats.rounding import Rounding
from floatsim.quantization.integer_instructions import INTEGER_DOTS, IntegerDot
from floatsim.tensorcore.architectures import as_architecture, select
from floatsim.tensorcore.instructions import Instruction, Scales

__all__ = [
    "CONVERSIONS", "DOTS", "INTEGERS", "AnyInstruction", "CpuConversion", "CpuDot", "CpuInteger", "find_conversion",
    "find_dot",
]  # fmt: skip


@dataclass(frozen=True)
class CpuDot:
    """A dot or matrix instruction with the formats of its operands.

    Attributes
    ----------
    arch, name : str
        The architecture and the instruction in `floatsim.tensorcore`.
    a, b, output : FloatFormat
        The formats of the operands, and of c and D.
    assembly : str
        The instruction in AT&T's syntax: $0 is c and D, $2 is a, $3 is b. For tiles, its mnemonic.
    features : tuple of str
        LLVM's names of the processor features that it needs.
    tiles : bool
        Whether it multiplies tiles of 16 rows, and not registers.

    >>> dot = find_dot("avx512-bf16", "vdpbf16ps", BF16, BF16, FP32)
    >>> str(dot), dot.k, dot.lanes
    ('vdpbf16ps bf16 bf16 fp32', 2, 16)
    """

    arch: str
    name: str
    a: FloatFormat
    b: FloatFormat
    output: FloatFormat
    assembly: str
    features: tuple[str, ...]
    tiles: bool = False

    @property
    def row(self) -> Instruction:
        """The instruction's row in the table of `floatsim.tensorcore`."""
        return select(as_architecture(self.arch), self.name, self.a, self.b, self.output)

    @property
    def k(self) -> int:
        """The number of products of one instruction."""
        return self.row.k

    @property
    def scales(self) -> Scales | None:
        """No CPU instruction of the table takes scales."""
        return None

    @property
    def lanes(self) -> int:
        """The number of dot products of one instruction: of a tile, those on its diagonal."""
        return 16 if self.tiles else 512 // self.output.bits

    def __str__(self) -> str:
        return f"{self.name} {self.a} {self.b} {self.output}".lower()


@dataclass(frozen=True)
class CpuConversion:
    """A conversion instruction.

    Attributes
    ----------
    name : str
        The name in `floatsim.tensorcore.conversions`.
    source, result : FloatFormat
        The formats of the operand and of the result.
    assembly : str
        The instruction in AT&T's syntax: $0 is the result, $1 the operand.
    features : tuple of str
        LLVM's names of the processor features that it needs.
    rounding : Rounding
        The rounding mode.
    """

    name: str
    source: FloatFormat
    result: FloatFormat
    assembly: str
    features: tuple[str, ...]
    rounding: Rounding = Rounding.TIES_TO_EVEN

    @property
    def lanes(self) -> int:
        """The number of conversions of one instruction."""
        return 512 // max(self.source.bits, self.result.bits)

    def __str__(self) -> str:
        return f"{self.name} {self.source} {self.result}, {self.rounding.name}".lower()


@dataclass(frozen=True)
class CpuInteger:
    """An integer dot instruction with an int32 accumulator.

    Attributes
    ----------
    row : IntegerDot
        The instruction in `floatsim.quantization.integer_instructions`.
    assembly, features, tiles
        As in `CpuDot`.
    """

    row: IntegerDot
    assembly: str
    features: tuple[str, ...]
    tiles: bool = False

    @property
    def name(self) -> str:
        """The name of the instruction."""
        return self.row.name

    @property
    def k(self) -> int:
        """The number of products of one instruction: a tile has 16 steps."""
        return self.row.products * (16 if self.tiles else 1)

    @property
    def lanes(self) -> int:
        """The number of dot products of one instruction: of a tile, those on its diagonal."""
        return 16

    def __str__(self) -> str:
        return f"{self.name} {self.row.a} {self.row.b} int32"


AnyInstruction: TypeAlias = CpuDot | CpuConversion | CpuInteger

_F = ("avx512f",)

DOTS = (
    CpuDot("avx512-bf16", "vdpbf16ps", BF16, BF16, FP32, "vdpbf16ps $3, $2, $0", (*_F, "avx512bf16")),
    CpuDot("avx512-fp16", "vfmadd231ph", FP16, FP16, FP16, "vfmadd231ph $3, $2, $0", (*_F, "avx512fp16")),
    CpuDot("fma3", "vfmadd231ps", FP32, FP32, FP32, "vfmadd231ps $3, $2, $0", _F),
    CpuDot("amx-bf16", "tdpbf16ps", BF16, BF16, FP32, "tdpbf16ps", ("amx-tile", "amx-bf16"), tiles=True),
    CpuDot("amx-fp16", "tdpfp16ps", FP16, FP16, FP32, "tdpfp16ps", ("amx-tile", "amx-fp16"), tiles=True),
)
"""The dot and matrix instructions."""

INTEGERS = (
    *(
        CpuInteger(INTEGER_DOTS[name], f"{name} $3, $2, $0", (*_F, "avx512vnni"))
        for name in ("vpdpbusd", "vpdpbusds", "vpdpwssd", "vpdpwssds")
    ),
    *(
        CpuInteger(INTEGER_DOTS[name], name, ("amx-tile", "amx-int8"), tiles=True)
        for name in ("tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud")
    ),
)
"""The integer dot instructions."""

_DIRECTIONS = (
    Rounding.TIES_TO_EVEN, Rounding.TOWARD_NEGATIVE, Rounding.TOWARD_POSITIVE, Rounding.TOWARD_ZERO,
)  # fmt: skip
"""The rounding modes of VCVTPS2PH in the order of its immediate operand."""

CONVERSIONS = (
    CpuConversion("vcvtneps2bf16", FP32, BF16, "vcvtneps2bf16 $1, $0", (*_F, "avx512bf16")),
    *(
        CpuConversion("vcvtps2ph", FP32, FP16, f"vcvtps2ph $${number}, $1, $0", _F, rounding)
        for number, rounding in enumerate(_DIRECTIONS)
    ),
    CpuConversion("vcvtph2ps", FP16, FP32, "vcvtph2ps $1, $0", _F),
)
"""The conversion instructions, one row for each rounding mode."""


def find_dot(arch: str, name: str, a: FloatFormat, b: FloatFormat, output: FloatFormat) -> CpuDot:
    """Return the instruction for operands of these formats.

    Raises
    ------
    ValueError
        If floatsim cannot issue it. The message lists the instructions that it can issue.
    """
    for dot in DOTS:
        if (dot.arch, dot.name, dot.a, dot.b, dot.output) == (arch, name, a, b, output):
            return dot
    listed = ", ".join(map(str, DOTS))
    raise ValueError(f"backend='native-cpu' cannot issue {name} of {arch} for {a}; it can issue {listed}")


def find_conversion(name: str, rounding: Rounding) -> CpuConversion:
    """Return the conversion of this name with a rounding mode.

    Raises
    ------
    ValueError
        If floatsim cannot issue it. The message lists the conversions that it can issue.
    """
    for conversion in CONVERSIONS:
        if (conversion.name, conversion.rounding) == (name, rounding):
            return conversion
    raise ValueError(
        f"backend='native-cpu' cannot issue {name}, {rounding.name.lower()}; it can issue "
        f"{'; '.join(map(str, CONVERSIONS))}"
    )
