"""What CUDA cores round by one instruction, as a table: arithmetic and conversions, each with one rounding and policy.

From NVIDIA's "PTX ISA": 9.7.3 and 9.7.4 (arithmetic), 9.7.9.21 (cvt). Arithmetic has the four directed and nearest
roundings for FP32 and FP64, and only ties to even for FP16 and BF16. Conversions to FP8, FP6 and FP4 saturate, always,
and are to the nearest.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from floatsim.formats import BF16, E2M1, E2M3, E3M2, E4M3, E5M2, FP16, FP32, FP64, TF32, FloatFormat
from floatsim.hardware.targets import Capability, needs, runs_on, since
from floatsim.rounding import Overflow, Rounding

__all__ = ["SCALARS", "Scalar", "find_scalar", "memory_type"]


@dataclass(frozen=True)
class Scalar:
    """One operation as CUDA cores carry it out: a row of the table.

    Parameters
    ----------
    operation : str
        As the emulator calls it: "add", "fma", "convert".
    source, result : FloatFormat
        Of the operands and of what becomes of them.
    rounding, overflow
        Where `rounding` is None nothing is rounded.
    text : str
        PTX, with %0 for the result and %1, %2, %3 for the operands, of which those that are missing are zeros.
    targets : tuple of str
        What it is compiled for.
    """

    operation: str
    source: FloatFormat
    result: FloatFormat
    rounding: Rounding | None
    overflow: Overflow
    text: str
    targets: tuple[str, ...]

    def runs_on(self, card: Capability) -> bool:
        """Whether a card of this compute capability has it."""
        return any(runs_on(target, card) for target in self.targets)

    def __str__(self) -> str:
        how = "exact" if self.rounding is None else self.rounding.name.lower()
        into = f" to {self.result}" if self.result != self.source else ""
        policy = "" if self.overflow is Overflow.INFINITY else f", {self.overflow.name.lower()}"
        return f"{self.operation} {self.source}{into}, {how}{policy}"

    @property
    def kernel(self) -> str:
        """The name of its kernel: "add_fp32_fp32_ties_to_even_infinity"."""
        rounding = "exact" if self.rounding is None else self.rounding.name
        return "_".join([self.operation, self.source.name, self.result.name, rounding, self.overflow.name]).lower()

    @property
    def to(self) -> _Register:
        """The register that holds its result."""
        return _REGISTERS[_register_bits(self.result)]

    @property
    def line(self) -> str:
        """Its kernel, as elementwise.cu has it."""
        source = _REGISTERS[_register_bits(self.source)]
        types = f'{self.to.type}, {source.type}, "{self.to.letter}", "{source.letter}"'
        return f'ROW({self.kernel}, "{self.text}", {types}, {memory_type(self.result)}, {memory_type(self.source)})'


@dataclass(frozen=True)
class _Register:
    letter: str
    type: str


_REGISTERS = {16: _Register("h", "unsigned short"), 32: _Register("r", "unsigned int"),
              64: _Register("l", "unsigned long long")}  # fmt: skip


def _register_bits(fmt: FloatFormat) -> int:
    return max(16, fmt.code_dtype.itemsize * 8)


def memory_type(fmt: FloatFormat) -> str:
    """The unsigned type of C++ that holds a code in memory."""
    return "unsigned char" if fmt.code_dtype.itemsize == 1 else _REGISTERS[_register_bits(fmt)].type


# -- arithmetic --------------------------------------------------------------------------------------------------------

_DIRECTIONS = {
    "rn": Rounding.TIES_TO_EVEN, "rz": Rounding.TOWARD_ZERO, "rp": Rounding.TOWARD_POSITIVE,
    "rm": Rounding.TOWARD_NEGATIVE,
}  # fmt: skip
_NAMES = {FP16: "f16", BF16: "bf16", TF32: "tf32", FP32: "f32", FP64: "f64"}
_OPERANDS = {"sqrt": "%1", "fma": "%1, %2, %3"}
_PTX = {"add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "sqrt": "sqrt", "fma": "fma"}

# every card's BF16 is fma: x + y = 1x + y, x - y = -1y + x, and xy = xy - 0, whose zero takes the product's sign
_BF16 = {
    "add": "{.reg .b16 one; mov.b16 one, 0x3F80; fma.rn.bf16 %0, %1, one, %2;}",
    "subtract": "{.reg .b16 one; mov.b16 one, 0xBF80; fma.rn.bf16 %0, %2, one, %1;}",
    "multiply": "{.reg .b16 zero; mov.b16 zero, 0x8000; fma.rn.bf16 %0, %1, %2, zero;}",
    "fma": "fma.rn.bf16 %0, %1, %2, %3;",
}


def _arithmetic() -> list[Scalar]:
    rows = []
    for fmt in (FP32, FP64):
        for operation, ptx in _PTX.items():
            for short, rounding in _DIRECTIONS.items():
                text = f"{ptx}.{short}.{_NAMES[fmt]} %0, {_OPERANDS.get(operation, '%1, %2')};"
                rows.append(Scalar(operation, fmt, fmt, rounding, Overflow.INFINITY, text, since("sm_70")))
    for operation in _BF16:
        text = f"{_PTX[operation]}.rn.f16 %0, {_OPERANDS.get(operation, '%1, %2')};"
        rows.append(Scalar(operation, FP16, FP16, Rounding.TIES_TO_EVEN, Overflow.INFINITY, text, since("sm_70")))
    for operation, text in _BF16.items():
        rows.append(Scalar(operation, BF16, BF16, Rounding.TIES_TO_EVEN, Overflow.INFINITY, text, since("sm_80")))
    return rows


# -- conversions -------------------------------------------------------------------------------------------------------

_SPECIFIC = ("sm_100a", "sm_120a")
_WIDE, _FINITE = Overflow.INFINITY, Overflow.SATURATE_FINITE


def _cvt(source: FloatFormat, result: FloatFormat, directions: str, targets: tuple[str, ...], saturate: bool = False,
         note: str = "%0, %1;") -> list[Scalar]:  # fmt: skip
    names = _DIRECTIONS | {"rna": Rounding.TIES_TO_AWAY}
    suffix, policy = (".satfinite", _FINITE) if saturate else ("", _WIDE)
    return [
        Scalar("convert", source, result, names[short], policy,
               f"cvt.{short}{suffix}.{_NAMES[result]}.{_NAMES[source]} {note}", targets)
        for short in directions.split()
    ]  # fmt: skip


def _narrow(result: FloatFormat, targets: tuple[str, ...]) -> list[Scalar]:
    """To FP8, FP6 and FP4, two at a time: what comes from the second operand is the lower."""
    name = result.name.lower()
    if result == E2M1:
        single = "{.reg .b8 x; cvt.rn.satfinite.e2m1x2.f32 x, %2, %1; cvt.u16.u8 %0, x;}"
        texts = {FP32: single}
    else:
        pair = "{.reg .b32 x; mov.b32 x, {%1, %2}; cvt.rn.satfinite." + name + "x2.f16x2 %0, x;}"
        texts = {FP32: f"cvt.rn.satfinite.{name}x2.f32 %0, %2, %1;", FP16: pair}
    return [
        Scalar("convert", source, result, Rounding.TIES_TO_EVEN, _FINITE, text, targets)
        for source, text in texts.items()
    ]


def _exact(source: FloatFormat, result: FloatFormat, text: str, targets: tuple[str, ...]) -> Scalar:
    return Scalar("convert", source, result, None, _WIDE, text, targets)


def _unpacked(fmt: FloatFormat, targets: tuple[str, ...]) -> Scalar:
    """From FP8, FP6 and FP4 to FP16, two at a time."""
    operand = "z" if fmt == E2M1 else "%1"
    narrowed = ".reg .b8 z; cvt.u8.u16 z, %1; " if fmt == E2M1 else ""
    text = f"cvt.rn.f16x2.{fmt.name.lower()}x2 x, {operand}; mov.b32 {{%0, y}}, x;"
    return _exact(fmt, FP16, "{.reg .b32 x; .reg .b16 y; " + narrowed + text + "}", targets)


_FROM_TF32 = "shr.b32 %0, %0, 13;"  # a TF32 is the upper 19 bits of a register


def _conversions() -> list[Scalar]:
    rows = [
        *_cvt(FP32, FP16, "rn rz rp rm", since("sm_70")),
        *_cvt(FP32, FP16, "rn rz", since("sm_80"), saturate=True),
        *_cvt(FP32, BF16, "rn rz", since("sm_80")),
        *_cvt(FP32, BF16, "rp rm", since("sm_90")),
        *_cvt(FP32, BF16, "rn rz", since("sm_80"), saturate=True),
        *_cvt(FP32, TF32, "rna", since("sm_80"), note=f"%0, %1; {_FROM_TF32}"),
        *_cvt(FP32, TF32, "rn rz", since("sm_90"), note=f"%0, %1; {_FROM_TF32}"),
        *_cvt(FP64, FP32, "rn rz rp rm", since("sm_70")),
        *_cvt(FP64, FP16, "rn rz rp rm", since("sm_70")),
        *_cvt(FP64, BF16, "rn rz rp rm", since("sm_90")),
        *_cvt(FP16, BF16, "rn rz rp rm", since("sm_90")),
        *_cvt(BF16, FP16, "rn rz rp rm", since("sm_90")),
        _exact(FP16, FP32, "cvt.f32.f16 %0, %1;", since("sm_70")),
        _exact(FP16, FP64, "cvt.f64.f16 %0, %1;", since("sm_70")),
        _exact(FP32, FP64, "cvt.f64.f32 %0, %1;", since("sm_70")),
        _exact(BF16, FP32, "cvt.f32.bf16 %0, %1;", since("sm_90")),
    ]
    for fmt, targets in {E4M3: since("sm_89"), E5M2: since("sm_89"), E3M2: _SPECIFIC, E2M3: _SPECIFIC,
                         E2M1: _SPECIFIC}.items():  # fmt: skip
        rows += [*_narrow(fmt, targets), _unpacked(fmt, targets)]
    return rows


SCALARS = (*_arithmetic(), *_conversions())
"""Every operation that a card can carry out by one instruction of its CUDA cores."""


@functools.lru_cache(maxsize=1024)
def find_scalar(
    operation: str, source: FloatFormat, result: FloatFormat, rounding: Rounding, overflow: Overflow, card: Capability
) -> Scalar:
    """The row for an operation on a card of this compute capability.

    Raises ValueError where there is none: the message says what the operation can be had with, and on which cards.

    >>> find_scalar("convert", FP32, E4M3, Rounding.TIES_TO_EVEN, Overflow.SATURATE_FINITE, (9, 0)).text
    'cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;'
    """
    rows = [row for row in SCALARS if (row.operation, row.source, row.result) == (operation, source, result)]
    what = f"{operation} of {source}" + (f" to {result}" if operation == "convert" else "")
    if not rows:
        there = dict.fromkeys(f"{r.source} to {r.result}" if operation == "convert" else str(r.source)
                              for r in SCALARS if r.operation == operation)  # fmt: skip
        raise ValueError(
            f"no card has {what} as an instruction; there is {operation} of {', '.join(there) or 'nothing'}"
        )
    # exact ones do not round, and their results are in range
    fitting = [row for row in rows if row.rounding is None or (row.rounding, row.overflow) == (rounding, overflow)]
    if not fitting:
        raise ValueError(f"no card has {what} with rounding={rounding.name.lower()!r} and overflow="
                         f"{overflow.name.lower()!r}; there is {'; '.join(map(str, rows))}")  # fmt: skip
    on_card = [row for row in fitting if row.runs_on(card)]
    if not on_card:
        what_it_needs = needs(target for row in fitting for target in row.targets)
        raise ValueError(f"{fitting[0]} needs {what_it_needs}; this card has {card[0]}.{card[1]}")
    return on_card[0]
