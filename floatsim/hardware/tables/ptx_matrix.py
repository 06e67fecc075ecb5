"""The table of matrix instructions that floatsim can issue: their PTX names, and the targets that have them.

Names, formats and k are those of `floatsim.tensorcore`, whose rows define what an instruction *computes*. The rows here
define how it is *issued*. Source: NVIDIA, "PTX ISA", 9.7.14.5 (mma.sync), 9.7.15 (wgmma), 9.7.16 (tcgen05).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from floatsim.formats import BF16, E2M1, E2M3, E3M2, E4M3, E5M2, E8M0, FP16, FP32, FP64, TF32, FloatFormat
from floatsim.hardware.tables.compute_capability import Capability, architecture_of, needs, runs_on, since
from floatsim.tensorcore.architectures import as_architecture, select
from floatsim.tensorcore.instructions import Instruction, Scales

__all__ = ["KERNELS", "MatrixKernel", "Variant", "find", "variants"]


@dataclass(frozen=True)
class MatrixKernel:
    """The description of how an instruction is issued: a row of the table.

    Parameters
    ----------
    name : str
        The name in `floatsim.tensorcore`.
    family : str
        "mma", "mma_scaled", "wgmma", "tcgen05" or "tcgen05_scaled". It selects the source file and the data layout.
    shape : (m, n, k)
        The shape of the tile of one instruction.
    inputs : formats
        The formats of A and of B.
    outputs : formats
        The formats of C and D.
    mnemonic : str
        The PTX name, with {a}, {b} and {d} for the types, and {s} for the type of scales.
    targets : tuple of str
        The compilation targets. The kernel also runs on later GPUs, unless the target is specific ("sm_90a").
    mixes : bool
        Whether A and B may have different formats.
    scales : Scales, optional
        The block scales of the operands.
    cuda : (major, minor)
        The oldest CUDA whose compiler takes the instruction, if not all compilers with the targets do.
    """

    name: str
    family: str
    shape: tuple[int, int, int]
    inputs: tuple[FloatFormat, ...]
    outputs: tuple[FloatFormat, ...]
    mnemonic: str
    targets: tuple[str, ...]
    mixes: bool = False
    scales: Scales | None = None
    cuda: tuple[int, int] = (0, 0)

    def runs_on(self, capability: Capability) -> bool:
        """Return whether a GPU of this compute capability has the instruction."""
        return any(runs_on(target, capability) for target in self.targets)

    @property
    def needs(self) -> str:
        """The required compute capability as text.

        >>> find("wgmma.k16", FP16, FP16).kernel.needs
        'compute capability 9.0 (sm_90a)'
        """
        return needs(self.targets)


@dataclass(frozen=True)
class Variant:
    """An instruction with the formats of its operands: the unit of comparison with the emulator.

    FP32 operands belong to the .tf32 instructions, which truncate them. TF32 operands need no truncation.

    Attributes
    ----------
    kernel : MatrixKernel
        The instruction.
    a, b : FloatFormat
        The formats of the operands.
    output : FloatFormat
        The format of c and D.

    >>> v = find("mma.m16n8k32", E4M3, E5M2, FP16)
    >>> str(v), v.k, v.kernel.needs
    ('mma.m16n8k32 e4m3 e5m2 fp16', 32, 'compute capability 8.9 or newer')
    """

    kernel: MatrixKernel
    a: FloatFormat
    b: FloatFormat
    output: FloatFormat

    @property
    def name(self) -> str:
        """The instruction's name in `floatsim.tensorcore`."""
        return self.kernel.name

    @property
    def k(self) -> int:
        """The number of products of one instruction."""
        return self.kernel.shape[2]

    @property
    def scales(self) -> Scales | None:
        """The block scales of the operands; None without block scaling."""
        return self.kernel.scales

    def __str__(self) -> str:
        words = [self.name, self.a, self.b, self.output]
        if self.scales:
            words += [f"{self.scales.format}/{self.scales.every}"]
        return " ".join(f"{word}".lower() for word in words)

    @property
    def mnemonic(self) -> str:
        """The PTX name.

        >>> find("mma.m16n8k16", BF16, BF16).mnemonic
        'mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32'
        """
        scale = {E4M3: "ue4m3", E8M0: "ue8m0"}[self.scales.format] if self.scales else ""
        return self.kernel.mnemonic.format(a=_operand(self.a), b=_operand(self.b), d=_PTX[self.output], s=scale)

    def model(self, capability: Capability) -> Instruction | None:
        """Return the row of `floatsim.tensorcore` for a GPU of this compute capability, or None.

        >>> find("mma.m16n8k16", FP16, FP16).model((9, 0)).block
        16
        """
        architecture = architecture_of(capability)
        if architecture is None:
            return None
        try:
            return select(as_architecture(architecture), self.name, self.a, self.b, self.output, self.scales)
        except ValueError:
            return None


_PTX = {
    FP16: "f16", BF16: "bf16", TF32: "tf32", FP32: "f32", FP64: "f64", E4M3: "e4m3", E5M2: "e5m2", E3M2: "e3m2",
    E2M3: "e2m3", E2M1: "e2m1",
}  # fmt: skip


def _operand(fmt: FloatFormat) -> str:
    return "tf32" if fmt == FP32 else _PTX[fmt]


# -- the table ---------------------------------------------------------------------------------------------------------

_FP8 = (E4M3, E5M2)
_NARROW = (E4M3, E5M2, E3M2, E2M3, E2M1)
_BOTH = (FP32, FP16)
_90A, _100, _120 = ("sm_90a",), ("sm_100a", "sm_100f"), ("sm_120a", "sm_120f")
_100_SCALED = ("sm_100a", "sm_103a")  # sm_100f has no .scale_vec
_UE4M3, _UE8M0 = Scales(16, E4M3), Scales(32, E8M0)

_DENSE = "mma.sync.aligned.{shape}.row.col.{{d}}.{{a}}.{{b}}.{{d}}"
_KIND = "mma.sync.aligned.{shape}.row.col.kind::f8f6f4.{{d}}.{{a}}.{{b}}.{{d}}"


def _mma(
    shape: str, inputs: tuple[FloatFormat, ...], outputs: tuple[FloatFormat, ...], targets: tuple[str, ...],
    suffix: str = "", mnemonic: str = _DENSE,
) -> MatrixKernel:  # fmt: skip
    m, n, k = (int(number) for number in shape.removeprefix("m").replace("n", "k").split("k"))
    written, mixes = mnemonic.format(shape=shape), inputs[0] == E4M3
    return MatrixKernel(f"mma.{shape}{suffix}", "mma", (m, n, k), inputs, outputs, written, targets, mixes)


def _scaled(
    k: int, suffix: str, inputs: tuple[FloatFormat, ...], kind: str, scales: Scales, cuda: tuple[int, int] = (0, 0)
) -> MatrixKernel:
    """Return a block-scaled instruction. `scale_vec` in PTX is the number of scales along k."""
    vector = f"scale_vec::{k // scales.every}X"
    mnemonic = f"mma.sync.aligned.m16n8k{k}.row.col.kind::{kind}.block_scale.{vector}.f32.{{a}}.{{b}}.f32.{{s}}"
    name = f"mma.m16n8k{k}.{suffix}"
    return MatrixKernel(name, "mma_scaled", (16, 8, k), inputs, (FP32,), mnemonic, _120, len(inputs) > 1, scales, cuda)


def _wgmma(k: int, inputs: tuple[FloatFormat, ...], outputs: tuple[FloatFormat, ...], suffix: str = "") -> MatrixKernel:
    mnemonic = f"wgmma.mma_async.sync.aligned.m64n8k{k}.{{d}}.{{a}}.{{b}}"
    return MatrixKernel(f"wgmma.k{k}{suffix}", "wgmma", (64, 8, k), inputs, outputs, mnemonic, _90A, inputs == _FP8)


def _tcgen05(
    k: int, inputs: tuple[FloatFormat, ...], outputs: tuple[FloatFormat, ...], kind: str, suffix: str = "",
    scales: Scales | None = None, cuda: tuple[int, int] = (0, 0),
) -> MatrixKernel:  # fmt: skip
    vector = f".block_scale.scale_vec::{k // scales.every}X" if scales else ""
    family, mixes = ("tcgen05_scaled" if scales else "tcgen05"), inputs == _NARROW
    mnemonic = f"tcgen05.mma.cta_group::1.kind::{kind}{vector}"
    name, targets = f"tcgen05.k{k}{suffix}", _100_SCALED if scales else _100
    return MatrixKernel(name, family, (128, 16, k), inputs, outputs, mnemonic, targets, mixes, scales, cuda)


KERNELS = (
    _mma("m8n8k4", (FP16,), _BOTH, since("sm_70")),
    _mma("m16n8k8", (FP16,), _BOTH, since("sm_75")),
    _mma("m16n8k8", (BF16,), (FP32,), since("sm_80")),
    _mma("m16n8k16", (FP16,), _BOTH, since("sm_80")),
    _mma("m16n8k16", (BF16,), (FP32,), since("sm_80")),
    _mma("m16n8k4", (TF32, FP32), (FP32,), since("sm_80"), ".tf32"),
    _mma("m16n8k8", (TF32, FP32), (FP32,), since("sm_80"), ".tf32"),
    _mma("m8n8k4", (FP64,), (FP64,), since("sm_80")),
    _mma("m16n8k4", (FP64,), (FP64,), since("sm_90")),
    _mma("m16n8k8", (FP64,), (FP64,), since("sm_90")),
    _mma("m16n8k16", (FP64,), (FP64,), since("sm_90")),
    _mma("m16n8k16", _FP8, _BOTH, since("sm_89")),
    _mma("m16n8k32", _FP8, _BOTH, since("sm_89")),
    _mma("m16n8k32", _NARROW, _BOTH, _120, mnemonic=_KIND),
    _scaled(32, "mxf8f6f4", _NARROW, "mxf8f6f4", _UE8M0),
    _scaled(64, "mxf4", (E2M1,), "mxf4", _UE8M0),
    _scaled(64, "nvf4", (E2M1,), "mxf4nvf4", _UE4M3),
    _scaled(64, "nvf4", (E2M1,), "mxf4nvf4", Scales(16, E8M0), cuda=(13, 1)),  # CUDA 13.0 rejects it, 13.5 accepts it
    _scaled(64, "nvf4", (E2M1,), "mxf4nvf4", _UE8M0),
    _wgmma(16, (FP16,), _BOTH),
    _wgmma(16, (BF16,), (FP32,)),
    _wgmma(8, (TF32, FP32), (FP32,), ".tf32"),
    _wgmma(32, _FP8, _BOTH),
    _tcgen05(16, (FP16,), _BOTH, "f16"),
    _tcgen05(16, (BF16,), (FP32,), "f16"),
    _tcgen05(8, (TF32, FP32), (FP32,), "tf32", ".tf32"),
    _tcgen05(32, _NARROW, _BOTH, "f8f6f4"),
    _tcgen05(32, _NARROW, (FP32,), "mxf8f6f4", ".mxf8f6f4", _UE8M0),
    _tcgen05(64, (E2M1,), (FP32,), "mxf4", ".mxf4", _UE8M0),
    _tcgen05(64, (E2M1,), (FP32,), "mxf4nvf4", ".nvf4", _UE4M3),
    _tcgen05(64, (E2M1,), (FP32,), "mxf4nvf4", ".nvf4", Scales(16, E8M0)),
    _tcgen05(64, (E2M1,), (FP32,), "mxf4nvf4", ".nvf4", _UE8M0),
)
"""All instructions that floatsim can issue. If several rows fit, the first that the GPU has is used."""


@functools.cache
def variants() -> tuple[Variant, ...]:
    """Return all instructions with all their formats, in the order of the table.

    >>> len(variants()) > 100
    True
    """
    return tuple(
        Variant(kernel, a, b, output)
        for kernel in KERNELS
        for output in kernel.outputs
        for a in kernel.inputs
        for b in kernel.inputs
        if kernel.mixes or a == b
    )


def find(
    name: str, a: FloatFormat, b: FloatFormat, output: FloatFormat | None = None, scales: Scales | None = None,
    capability: Capability | None = None,
) -> Variant:  # fmt: skip
    """Return the instruction of this name for operands of these formats.

    Parameters
    ----------
    name : str
        The name in `floatsim.tensorcore`: "mma.m16n8k16".
    a, b : FloatFormat
        The formats of the operands.
    output : FloatFormat, optional
        The format of D. Default: FP32, or FP64 for FP64 operands.
    scales : Scales, optional
        The block scales of the operands.
    capability : (major, minor), optional
        The compute capability of the GPU, which selects one of several rows.

    Returns
    -------
    Variant

    Raises
    ------
    ValueError
        If there is none. The message lists the formats of this instruction, or the names of all instructions.

    Examples
    --------
    >>> str(find("mma.m16n8k16", FP16, FP16))
    'mma.m16n8k16 fp16 fp16 fp32'
    """
    wanted = output or (FP64 if a == FP64 else FP32)
    named = [v for v in variants() if v.name == name]
    fitting = [v for v in named if (v.a, v.b, v.output, v.scales) == (a, b, wanted, scales)]
    if fitting:
        return next((v for v in fitting if capability is not None and v.kernel.runs_on(capability)), fitting[0])
    if not named:
        names = dict.fromkeys(kernel.name for kernel in KERNELS)
        raise ValueError(f"instruction={name!r} cannot be issued; there are {', '.join(names)}")
    listed = ", ".join(dict.fromkeys(str(v).removeprefix(f"{name} ") for v in named))
    given = Variant(named[0].kernel, a, b, wanted)
    asked = " ".join(fmt.name.lower() for fmt in (given.a, given.b, given.output))
    raise ValueError(f"{name} cannot be issued for {asked} (A, B, D); there are {listed}")
