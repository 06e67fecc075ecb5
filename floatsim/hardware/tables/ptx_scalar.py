"""Table of PTX instructions that round on CUDA cores: arithmetic and conversions, each with one rounding and policy.

Source: NVIDIA, "PTX ISA", 9.7.3 and 9.7.4 (arithmetic), 9.7.9.21 (cvt). Arithmetic has four rounding modes for FP32 and
FP64, and only ties to even for FP16 and BF16. Conversions to FP8, FP6 and FP4 always saturate. They round to nearest,
and on sm_100a and sm_103a also stochastically. Conversions to E8M0 are not in the table: cvt reads magnitudes and
returns 2^-127 for zero, where floatsim returns NaN for zeros and negative numbers.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from floatsim.formats import BF16, E2M1, E2M3, E3M2, E4M3, E5M2, E8M0, FP16, FP32, FP64, TF32, FloatFormat
from floatsim.formats.rounding import Overflow, Rounding, RoundingAttributes
from floatsim.hardware.tables.compute_capability import Capability, needs, runs_on, since

__all__ = ["SCALARS", "Scalar", "find_scalar", "memory_type"]


@dataclass(frozen=True)
class Scalar:
    """An operation of CUDA cores: a row of the table.

    Parameters
    ----------
    operation : str
        The emulator's name: "add", "fma", "convert".
    source, result : FloatFormat
        The formats of the operands and of the result.
    rounding, overflow
        The rounding mode (None for an exact operation), and the overflow policy.
    text : str
        The PTX, with %0 for the result and %1, %2, %3 for the operands. Missing operands are zeros.
    targets : tuple of str
        The targets that have the instruction.
    flushes : tuple of (daz, ftz)
        The options with which the instruction equals the operation.
    random_bits : int
        The number of random bits of a stochastic rounding. They are the second operand, as an integer.
    cuda : (major, minor)
        The oldest CUDA whose compiler takes the instruction, if not all compilers with the target do.
    """

    operation: str
    source: FloatFormat
    result: FloatFormat
    rounding: Rounding | None
    overflow: Overflow
    text: str
    targets: tuple[str, ...]
    flushes: tuple[tuple[bool, bool], ...] = ((False, False),)
    random_bits: int = 0
    cuda: tuple[int, int] = (0, 0)

    def supports(self, attributes: RoundingAttributes) -> bool:
        """Return whether the row rounds like this. An exact row fits any rounding, but does not saturate infinities."""
        if (attributes.daz and self._reads_subnormals, attributes.ftz) not in self.flushes:
            return False
        if self.rounding is None:
            return attributes.overflow is not Overflow.SATURATE_FINITE or not self.source.has_infinity
        if self.rounding is Rounding.STOCHASTIC and attributes.random_bits != self.random_bits:
            return False
        return (self.rounding, self.overflow) == (attributes.rounding, attributes.overflow)

    @property
    def _reads_subnormals(self) -> bool:
        """Return whether subnormal operands affect the result: not if a conversion rounds all of them to zeros."""
        nearest = self.rounding in (Rounding.TIES_TO_EVEN, Rounding.TIES_TO_AWAY, Rounding.TOWARD_ZERO)
        underflow = nearest and self.source.smallest_normal <= self.result.smallest_subnormal / 2
        return self.operation != "convert" or not underflow

    def runs_on(self, capability: Capability) -> bool:
        """Return whether a GPU of this compute capability has the instruction."""
        return any(runs_on(target, capability) for target in self.targets)

    def __str__(self) -> str:
        rounding = "exact" if self.rounding is None else self.rounding.name.lower()
        to = f" to {self.result}" if self.result != self.source else ""
        policy = "" if self.overflow is Overflow.INFINITY else f", {self.overflow.name.lower()}"
        bits = f" of {self.random_bits} bits" if self.random_bits else ""
        return f"{self.operation} {self.source}{to}, {rounding}{bits}{policy}{self._flush}"

    @property
    def _flush(self) -> str:
        """The flushing options as text; empty if the row keeps subnormals."""
        names = {(True, True): "daz and ftz", (True, False): "daz", (False, True): "ftz"}
        words = " or ".join(names[each] for each in self.flushes if each != (False, False))
        return f", {words}" if (False, False) not in self.flushes else ""

    @property
    def kernel(self) -> str:
        """The name of the kernel: "add_fp32_fp32_ties_to_even_infinity"."""
        rounding = "exact" if self.rounding is None else self.rounding.name
        words = [self.operation, self.source.name, self.result.name, rounding, self.overflow.name]
        return "_".join([*words, *self._flush.replace(",", "").split()]).lower()

    @property
    def to(self) -> _Register:
        """The register type of the result."""
        return _REGISTERS[_register_bits(self.result)]

    @property
    def line(self) -> str:
        """The kernel as a line of elementwise.cu."""
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
    """Return the unsigned C++ type that holds a code in memory."""
    return "unsigned char" if fmt.code_dtype.itemsize == 1 else _REGISTERS[_register_bits(fmt)].type


# -- arithmetic --------------------------------------------------------------------------------------------------------

_DIRECTIONS = {
    "rn": Rounding.TIES_TO_EVEN, "rz": Rounding.TOWARD_ZERO, "rp": Rounding.TOWARD_POSITIVE,
    "rm": Rounding.TOWARD_NEGATIVE,
}  # fmt: skip
_NAMES = {FP16: "f16", BF16: "bf16", TF32: "tf32", FP32: "f32", FP64: "f64"}
_OPERANDS = {"sqrt": "%1", "fma": "%1, %2, %3"}
_PTX = {"add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "sqrt": "sqrt", "fma": "fma"}

# BF16 on every GPU is fma: x + y = 1x + y, x - y = -1y + x, and xy = xy - 0, whose zero takes the product's sign.
_BF16 = {
    "add": "{.reg .b16 one; mov.b16 one, 0x3F80; fma.rn.bf16 %0, %1, one, %2;}",
    "subtract": "{.reg .b16 one; mov.b16 one, 0xBF80; fma.rn.bf16 %0, %2, one, %1;}",
    "multiply": "{.reg .b16 zero; mov.b16 zero, 0x8000; fma.rn.bf16 %0, %1, %2, zero;}",
    "fma": "fma.rn.bf16 %0, %1, %2, %3;",
}


_KEEPS, _BOTH = (False, False), (True, True)


def _arithmetic() -> list[Scalar]:
    rows = []
    for fmt in (FP32, FP64):
        for operation, ptx in _PTX.items():
            for short, rounding in _DIRECTIONS.items():
                text = f"{ptx}.{short}.{_NAMES[fmt]} %0, {_OPERANDS.get(operation, '%1, %2')};"
                kept = (_KEEPS, (False, True)) if operation == "sqrt" else (_KEEPS,)  # square roots are never subnormal
                rows.append(Scalar(operation, fmt, fmt, rounding, Overflow.INFINITY, text, since("sm_70"), kept))
    for operation in _BF16:
        text = f"{_PTX[operation]}.rn.f16 %0, {_OPERANDS.get(operation, '%1, %2')};"
        rows.append(Scalar(operation, FP16, FP16, Rounding.TIES_TO_EVEN, Overflow.INFINITY, text, since("sm_70")))
    for operation, text in _BF16.items():
        rows.append(Scalar(operation, BF16, BF16, Rounding.TIES_TO_EVEN, Overflow.INFINITY, text, since("sm_80")))
    return rows


# .ftz reads subnormals as zeros and returns zeros for them. It equals daz and ftz together where all definitions of
# tiny agree: in sums, which are exact there, and toward zero. With rounding to nearest, a product just below the
# smallest normal number may round up to it, and PTX does not define whether it is tiny. The same holds for directed
# roundings away from zero.
_FLUSHES = {
    "add": ("rn", "rz", "rp", "rm"), "subtract": ("rn", "rz", "rp", "rm"), "multiply": ("rz",), "divide": ("rz",),
    "fma": ("rz",),
}  # fmt: skip


def _flushing() -> list[Scalar]:
    policy, targets = Overflow.INFINITY, since("sm_70")
    rows = [
        Scalar(
            operation, FP32, FP32, _DIRECTIONS[short], policy,
            f"{_PTX[operation]}.{short}.ftz.f32 %0, {_OPERANDS.get(operation, '%1, %2')};", targets, (_BOTH,),
        )
        for operation, directions in _FLUSHES.items() for short in directions
    ]  # fmt: skip
    rows += [
        Scalar("sqrt", FP32, FP32, rounding, policy, f"sqrt.{short}.ftz.f32 %0, %1;", targets, ((True, False), _BOTH))
        for short, rounding in _DIRECTIONS.items()
    ]
    for operation in ("add", "subtract"):
        text = f"{_PTX[operation]}.rn.ftz.f16 %0, %1, %2;"
        rows.append(Scalar(operation, FP16, FP16, Rounding.TIES_TO_EVEN, policy, text, targets, (_BOTH,)))
    text = "cvt.rz.ftz.f32.f64 %0, %1;"
    return [*rows, Scalar("convert", FP64, FP32, Rounding.TOWARD_ZERO, policy, text, targets, ((False, True),))]


# -- conversions -------------------------------------------------------------------------------------------------------

_SPECIFIC = ("sm_100a", "sm_103a", "sm_120a", "sm_120f")  # sm_100f has no stochastic rounding
_STOCHASTIC = ("sm_100a", "sm_103a")
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


_NEWER = (13, 1)  # PTX 9.1: the compiler of CUDA 13.0 rejects it, 13.5 accepts it


def _narrow(result: FloatFormat, targets: tuple[str, ...]) -> list[Scalar]:
    """Return the conversions to FP8, FP6 and FP4, two at a time. The second operand gives the lower result."""
    name = result.name.lower()
    small = "{.reg .b8 x; %s cvt.u16.u8 %%0, x;}" if result == E2M1 else "{%s}"
    to = "x" if result == E2M1 else "%0"

    def row(source: FloatFormat, ptx: str, targets: tuple[str, ...], cuda: tuple[int, int] = (0, 0)) -> Scalar:
        operands = "%2, %1" if source == FP32 else "p"
        pair = "" if source == FP32 else ".reg .b32 p; mov.b32 p, {%1, %2}; "
        text = small % f"{pair}cvt.rn.satfinite.{name}x2.{ptx} {to}, {operands};"
        return Scalar("convert", source, result, Rounding.TIES_TO_EVEN, _FINITE, text, targets, cuda=cuda)

    of_half = (targets,) if result in (E4M3, E5M2) else (targets, _NEWER)
    return [row(FP32, "f32", targets), row(FP16, "f16x2", *of_half), row(BF16, "bf16x2", _SPECIFIC, _NEWER)]


def _stochastic() -> list[Scalar]:
    """Return the conversions from FP32 with random bits. Bits that PTX may read at several places are copied to all."""
    rows = []
    pair = "{{.reg .b32 d, z; .reg .b16 h; mov.b32 z, 0; cvt.rs{sat}.{to}x2.f32 d, z, %1, %2; mov.b32 {{%0, h}}, d;}}"
    for fmt, bits in ((FP16, 13), (BF16, 16)):
        for suffix, policy in (("", _WIDE), (".satfinite", _FINITE)):
            text = pair.format(sat=suffix, to=_NAMES[fmt])
            row = Scalar("convert", FP32, fmt, Rounding.STOCHASTIC, policy, text, _STOCHASTIC, random_bits=bits)
            rows.append(row)
    four = (
        "{{.reg .b32 d, z; .reg .b16 h; mov.b32 z, 0; "
        "cvt.rs.satfinite.{to}x4.f32 d, {{z, z, z, %1}}, %2; mov.b32 {{%0, h}}, d;}}"
    )
    small = (
        "{.reg .b32 r, z; mov.b32 z, 0; mul.lo.u32 r, %2, 0x01010101; "
        "cvt.rs.satfinite.e2m1x4.f32 %0, {z, z, z, %1}, r;}"
    )
    for fmt, bits in ((E4M3, 16), (E5M2, 16), (E3M2, 16), (E2M3, 16), (E2M1, 8)):
        text = small if fmt == E2M1 else four.format(to=fmt.name.lower())
        row = Scalar("convert", FP32, fmt, Rounding.STOCHASTIC, _FINITE, text, _STOCHASTIC, random_bits=bits)
        rows.append(row)
    return rows


def _exact(
    source: FloatFormat, result: FloatFormat, text: str, targets: tuple[str, ...], cuda: tuple[int, int] = (0, 0)
) -> Scalar:
    return Scalar("convert", source, result, None, _WIDE, text, targets, cuda=cuda)


def _unpacked(fmt: FloatFormat, targets: tuple[str, ...]) -> list[Scalar]:
    """Return the conversions from FP8, FP6 and FP4 to FP16 and BF16, two at a time."""
    operand = "z" if fmt == E2M1 else "%1"
    narrowed = ".reg .b8 z; cvt.u8.u16 z, %1; " if fmt == E2M1 else ""

    def text(to: str) -> str:
        body = f"cvt.rn.{to}.{fmt.name.lower()}x2 x, {operand}; mov.b32 {{%0, y}}, x;"
        return "{.reg .b32 x; .reg .b16 y; " + narrowed + body + "}"

    return [_exact(fmt, FP16, text("f16x2"), targets), _exact(fmt, BF16, text("bf16x2"), _SPECIFIC, _NEWER)]


_FROM_TF32 = "shr.b32 %0, %0, 13;"  # TF32 is in the upper 19 bits of a register


def _conversions() -> list[Scalar]:
    rows = [
        *_cvt(FP32, FP16, "rn rz rp rm", since("sm_70")),
        *_cvt(FP32, FP16, "rn rz", since("sm_80"), saturate=True),
        *_cvt(FP32, BF16, "rn rz", since("sm_80")),
        *_cvt(FP32, BF16, "rp rm", since("sm_90")),
        *_cvt(FP32, BF16, "rn rz", since("sm_80"), saturate=True),
        *_cvt(FP32, TF32, "rna", since("sm_80"), note=f"%0, %1; {_FROM_TF32}"),
        *_cvt(FP32, TF32, "rn rz", since("sm_90"), note=f"%0, %1; {_FROM_TF32}"),
        *_cvt(FP32, TF32, "rna", since("sm_80"), saturate=True, note=f"%0, %1; {_FROM_TF32}"),
        *_cvt(FP32, TF32, "rn rz", since("sm_100"), saturate=True, note=f"%0, %1; {_FROM_TF32}"),
        *_cvt(FP64, FP32, "rn rz rp rm", since("sm_70")),
        *_cvt(FP64, FP16, "rn rz rp rm", since("sm_70")),
        *_cvt(FP64, BF16, "rn rz rp rm", since("sm_90")),
        *_cvt(FP16, BF16, "rn rz rp rm", since("sm_90")),
        *_cvt(BF16, FP16, "rn rz rp rm", since("sm_90")),
        _exact(FP16, FP32, "cvt.f32.f16 %0, %1;", since("sm_70")),
        _exact(FP16, FP64, "cvt.f64.f16 %0, %1;", since("sm_70")),
        _exact(FP32, FP64, "cvt.f64.f32 %0, %1;", since("sm_70")),
        _exact(BF16, FP32, "cvt.f32.bf16 %0, %1;", since("sm_90")),
        _exact(BF16, FP64, "cvt.f64.bf16 %0, %1;", since("sm_90")),
        _exact(E8M0, BF16, "{.reg .b32 x; .reg .b16 y; cvt.rn.bf16x2.ue8m0x2 x, %1; mov.b32 {%0, y}, x;}", _SPECIFIC),
        *_stochastic(),
    ]
    for fmt, targets in {E4M3: since("sm_89"), E5M2: since("sm_89"), E3M2: _SPECIFIC, E2M3: _SPECIFIC,
                         E2M1: _SPECIFIC}.items():  # fmt: skip
        rows += [*_narrow(fmt, targets), *_unpacked(fmt, targets)]
    return rows


SCALARS = (*_arithmetic(), *_flushing(), *_conversions())
"""All operations that CUDA cores compute with one instruction."""


@functools.lru_cache(maxsize=1024)
def find_scalar(
    operation: str, source: FloatFormat, result: FloatFormat, attributes: RoundingAttributes, capability: Capability
) -> Scalar:
    """Return the row of the table for an operation on a GPU of this compute capability.

    Parameters
    ----------
    operation : str
        The emulator's name: "add", "fma", "convert".
    source, result : FloatFormat
        The formats of the operands and of the result.
    attributes : RoundingAttributes
        The rounding attributes.
    capability : (int, int)
        The compute capability.

    Raises
    ------
    ValueError
        If there is none. The message lists the supported roundings, and the compute capability that they need.

    Examples
    --------
    >>> find_scalar("convert", FP32, E4M3, RoundingAttributes(overflow=Overflow.SATURATE_FINITE), (9, 0)).text
    '{cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;}'
    """
    rows = [row for row in SCALARS if (row.operation, row.source, row.result) == (operation, source, result)]
    what = f"{operation} of {source}" + (f" to {result}" if operation == "convert" else "")
    if not rows:
        there = dict.fromkeys(f"{r.source} to {r.result}" if operation == "convert" else r.source.name
                              for r in SCALARS if r.operation == operation)  # fmt: skip
        raise ValueError(
            f"no GPU has {what} as an instruction; there is {operation} of {', '.join(there) or 'nothing'}"
        )
    fitting = [row for row in rows if row.supports(attributes)]
    if not fitting:
        raise ValueError(f"no GPU has {what} with {_keywords(attributes)}; there is {'; '.join(map(str, rows))}")
    usable = [row for row in fitting if row.runs_on(capability)]
    if not usable:
        required = needs(target for row in fitting for target in row.targets)
        raise ValueError(f"{fitting[0]} needs {required}; this GPU has {capability[0]}.{capability[1]}")
    return usable[0]


def _keywords(attributes: RoundingAttributes) -> str:
    """Return rounding attributes as keywords: the rounding, the overflow, and options that are not the default."""
    words = [f"rounding={attributes.rounding.name.lower()!r}"]
    words += [f"random_bits={attributes.random_bits}"] if attributes.rounding is Rounding.STOCHASTIC else []
    words += [f"{name}=True" for name in ("daz", "ftz") if getattr(attributes, name)]
    return f"{', '.join(words)} and overflow={attributes.overflow.name.lower()!r}"
