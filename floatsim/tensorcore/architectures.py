"""The table of architectures: their matrix instructions, the model of each, and the evidence for it.

Numbers and evidence: F. A. Khattak and M. Mikaitis, "Accurate Models of NVIDIA Tensor Cores" (outputs of V100, A100,
A2, Ada, L40S, H100, H200 and B200, published in north-numerical-computing/MATLAB-tensor-core; without published
outputs, its RTXPRO6000TC.m equals its model of B200, and its A30TC.m that of A100); P. Xie et al., MMA-Sim
(the package mmasim 2.1.1, and the tests in its repository, which ran on the GPUs named). DeepSeek-V3 also reports the
fraction bits of FP8 on Hopper (arXiv 2412.19437, 3.3.2: "around 14 bits"). deepseek-ai/DeepGEMM#37 reports that its
`mma.sync` does not truncate, and NVIDIA/cutlass#1986 that its `mma.sync` is emulated.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from floatsim.formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    E8M0,
    FP16,
    FP32,
    FP64,
    TF32,
    FloatFormat,
)
from floatsim.formats._validation import nearest_name
from floatsim.formats.rounding import Rounding
from floatsim.tensorcore.cpu_instructions import CPU_UNITS
from floatsim.tensorcore.instructions import (
    E8M13,
    EvenAndOdd,
    Evidence,
    ExactBlocks,
    FlushedTree,
    FmaChain,
    FusedBlocks,
    GroupedBlocks,
    Instruction,
    LateAccumulator,
    Model,
    Scales,
    TwoHalves,
)

__all__ = [
    "ARCHITECTURES", "GPUS", "Architecture", "as_architecture", "as_instruction_name", "enumerated", "is_architecture",
    "nearest", "select",
]  # fmt: skip


@dataclass(frozen=True)
class Architecture:
    """A generation of matrix units, or an instruction set of CPUs: its names and its instructions.

    The default instruction is the first one that takes the operands.

    Attributes
    ----------
    name : str
        The name in `fs.tensorcore.ARCHITECTURES`, such as "hopper".
    title : str
        The manufacturer's name.
    instructions : tuple of Instruction
        The matrix instructions.
    processor : str
        "GPU" or "CPU".
    assumed : tuple of str
        GPUs that are modelled in the same way, unverified: nothing is published about their arithmetic.
    """

    name: str
    title: str
    instructions: tuple[Instruction, ...]
    assumed: tuple[str, ...] = ()
    processor: str = "GPU"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the instructions, each once, in the order of the table."""
        return tuple(dict.fromkeys(row.name for row in self.instructions))


# -- constructors of rows ----------------------------------------------------------------------------------------------

SILICON, _, ASSERTED, MODEL, _, NOTHING = Evidence

_FP16, _HALVES, _TF32, _FP8 = (FP16,), (FP16, BF16), (TF32,), (E4M3, E5M2)
_NARROW = (E4M3, E5M2, E3M2, E2M3, E2M1)
_FP4, _FP64, _FP32 = (E2M1,), (FP64,), (FP32,)
_FNUZ = (E4M3FNUZ, E5M2FNUZ)

_EIGHT_BITS = {E4M3, E4M3FNUZ}  # these formats may be mixed, and so may all narrower ones


def _rounding(grid: FloatFormat) -> Rounding:
    return Rounding.TIES_TO_EVEN if grid == FP16 else Rounding.TOWARD_ZERO


def _of(
    name: str, inputs: tuple[FloatFormat, ...], k: int, output: FloatFormat, model: Model, evidence: Evidence,
    gpus: str = "", note: str = "",
) -> Instruction:  # fmt: skip
    return Instruction(
        name, inputs, k, model, output, evidence, gpus, mixes=inputs[0] in _EIGHT_BITS, truncates=inputs == _TF32,
        note=note,
    )  # fmt: skip


def _fused(
    name: str, inputs: tuple[FloatFormat, ...], k: int, terms: int, fraction_bits: int, floor: int, grid: FloatFormat,
    evidence: Evidence, gpus: str = "", note: str = "",
) -> Instruction:  # fmt: skip
    model = FusedBlocks(terms, fraction_bits, floor, grid, _rounding(grid))
    return _of(name, inputs, k, FP16 if grid == FP16 else FP32, model, evidence, gpus, note)


def _two_halves(
    name: str, k: int, fraction_bits: int, floor: int, grid: FloatFormat, evidence: Evidence, gpus: str,
    note: str = "",
) -> Instruction:  # fmt: skip
    model = TwoHalves(FusedBlocks(k // 2, fraction_bits, floor, grid, _rounding(grid)))
    return _of(name, _FP8, k, grid, model, evidence, gpus, note)


def _fp64(evidence: Evidence, gpus: str, *shapes: str) -> tuple[Instruction, ...]:
    return tuple(_of(name, _FP64, int(name.split("k")[1]), FP64, FmaChain(), evidence, gpus) for name in shapes)


def _scaled(family: str, gpus: str) -> tuple[Instruction, ...]:
    """The block-scaled instructions, alike on both Blackwells: one algorithm for k = 32, one for k = 64."""
    one = FusedBlocks(32, 25, -133, FP32, Rounding.TOWARD_ZERO)
    four = GroupedBlocks(64, 35, -139, FP32, Rounding.TOWARD_ZERO, group=16)
    by32, by16 = Scales(32, E8M0), (Scales(16, E4M3), Scales(16, E8M0))
    return (  # if both operands are FP4, kernels use the FP4 instructions
        Instruction(f"{family}k64.mxf4", _FP4, 64, four, FP32, MODEL, gpus, scales=(by32,)),
        Instruction(f"{family}k64.nvf4", _FP4, 64, four, FP32, MODEL, gpus, scales=(*by16, by32)),
        Instruction(f"{family}k32.mxf8f6f4", _NARROW, 32, one, FP32, MODEL, gpus, mixes=True, scales=(by32,)),
    )


# -- NVIDIA ------------------------------------------------------------------------------------------------------------
# fmt: off

_CHAIN = "a chain of two blocks; the published outputs fill one"
_HALF = "the published outputs fill the first four of its terms"
_C_ZERO = "published with c = 0 only"
_ON_B200 = "published with D in FP16 there, and with both on B200"
_COMPILED = "what ptxas 12.9 to 13.5 make of it: two HMMA.1688 and an addition"
_AS_B200 = "equal to the model of B200"
_FP8_AS_B200 = "E4M3 and E5M2: the authors of B200's model report that it equals its 32-term FP8"
_AS_MMA = "the model of mma.m16n8k16, which equals hardware outputs"
_AS_MMA_TF32 = "the model of mma.m16n8k8.tf32, which equals hardware outputs"

#           instruction          A, B      k   L   F  e_zero  D         evidence
_VOLTA = (
    _fused("mma.m8n8k4",        _FP16,     4,  4, 23, -131, FP32,  SILICON,  "V100"),
    _fused("mma.m8n8k4",        _FP16,     4,  4, 23,  -19, FP16,  SILICON,  "V100"),
)
_TURING = (
    _fused("mma.m16n8k8",       _FP16,     8,  8, 24, -132, FP32,  ASSERTED, "T4"),
    _fused("mma.m16n8k8",       _FP16,     8,  8, 24,  -20, FP16,  ASSERTED, "T4"),
    _fused("mma.m8n8k4",        _FP16,     4,  4, 23, -131, FP32,  MODEL,    "T4", "with Volta's numbers"),
    _fused("mma.m8n8k4",        _FP16,     4,  4, 23,  -19, FP16,  MODEL,    "T4", "with Volta's numbers"),
)
_AMPERE = (
    _fused("mma.m16n8k16",      _HALVES,  16,  8, 24, -132, FP32,  ASSERTED, "A100", _CHAIN),
    _fused("mma.m16n8k16",      _FP16,    16,  8, 24,  -20, FP16,  ASSERTED, "A100", _CHAIN),
    _fused("mma.m16n8k8",       _HALVES,   8,  8, 24, -132, FP32,  SILICON,  "A100, A2"),
    _fused("mma.m16n8k8",       _FP16,     8,  8, 24,  -20, FP16,  SILICON,  "A100, A2"),
    _fused("mma.m16n8k8.tf32",  _TF32,     8,  4, 24, -132, FP32,  SILICON,  "A100, A2", _CHAIN),
    _fused("mma.m16n8k4.tf32",  _TF32,     4,  4, 24, -132, FP32,  ASSERTED, "A100"),
    *_fp64(MODEL, "A100", "mma.m8n8k4"),
)
_ADA = (
    _fused("mma.m16n8k16",      _HALVES,  16,  8, 24, -132, FP32,  MODEL,    "RTX 4090", _CHAIN),
    _fused("mma.m16n8k16",      _FP16,    16,  8, 24,  -20, FP16,  MODEL,    "RTX 4090", _CHAIN),
    _fused("mma.m16n8k8",       _HALVES,   8,  8, 24, -132, FP32,  SILICON,  "RTX 1000, L40S"),
    _fused("mma.m16n8k8",       _FP16,     8,  8, 24,  -20, FP16,  SILICON,  "RTX 1000, L40S"),
    _fused("mma.m16n8k8.tf32",  _TF32,     8,  4, 24, -132, FP32,  SILICON,  "RTX 1000, L40S", _CHAIN),
    _fused("mma.m16n8k4.tf32",  _TF32,     4,  4, 24, -132, FP32,  MODEL,    "RTX 4090"),
    _fused("mma.m16n8k32",      _FP8,     32, 16, 13, -132, E8M13, SILICON,  "RTX 1000, L40S"),
    _fused("mma.m16n8k32",      _FP8,     32, 16, 13,  -20, FP16,  SILICON,  "RTX 1000"),
    _fused("mma.m16n8k16",      _FP8,     16, 16, 13, -132, E8M13, MODEL,    "RTX 4090"),
    _fused("mma.m16n8k16",      _FP8,     16, 16, 13,  -20, FP16,  MODEL,    "RTX 4090"),
    *_fp64(MODEL, "RTX 4090", "mma.m8n8k4"),
)
_HOPPER = (
    _fused("wgmma.k16",         _HALVES,  16, 16, 25, -133, FP32,  MODEL,    "H100", _AS_MMA),
    _fused("wgmma.k16",         _FP16,    16, 16, 25,  -21, FP16,  MODEL,    "H100", _AS_MMA),
    _fused("wgmma.k8.tf32",     _TF32,     8,  8, 25, -133, FP32,  MODEL,    "H100", _AS_MMA_TF32),
    _fused("wgmma.k32",         _FP8,     32, 32, 13, -133, E8M13, SILICON,  "H100, H200", _C_ZERO),
    _fused("wgmma.k32",         _FP8,     32, 32, 13,  -21, FP16,  MODEL,    "H100"),
    _fused("mma.m16n8k16",      _HALVES,  16, 16, 25, -133, FP32,  SILICON,  "H100, H200"),
    _fused("mma.m16n8k16",      _FP16,    16, 16, 25,  -21, FP16,  SILICON,  "H100, H200"),
    _fused("mma.m16n8k8",       _HALVES,   8,  8, 25, -133, FP32,  MODEL,    "H100"),
    _fused("mma.m16n8k8",       _FP16,     8,  8, 25,  -21, FP16,  MODEL,    "H100"),
    _fused("mma.m16n8k8.tf32",  _TF32,     8,  8, 25, -133, FP32,  SILICON,  "H100, H200", _HALF),
    _fused("mma.m16n8k4.tf32",  _TF32,     4,  4, 25, -133, FP32,  MODEL,    "H100"),
    _two_halves("mma.m16n8k32",           32,     25, -133, FP32,  NOTHING,  "", _ON_B200),
    _two_halves("mma.m16n8k32",           32,     25,  -21, FP16,  SILICON,  "H100, H200"),
    _two_halves("mma.m16n8k16",           16,     25, -133, FP32,  NOTHING,  "", _COMPILED),
    _two_halves("mma.m16n8k16",           16,     25,  -21, FP16,  NOTHING,  "", _COMPILED),
    *_fp64(MODEL, "H100", "mma.m16n8k16", "mma.m16n8k8", "mma.m16n8k4", "mma.m8n8k4"),
)
_BLACKWELL = (
    _fused("tcgen05.k16",       _HALVES,  16, 16, 25, -133, FP32,  MODEL,    "B200", _AS_MMA),
    _fused("tcgen05.k16",       _FP16,    16, 16, 25,  -21, FP16,  MODEL,    "B200", _AS_MMA),
    _fused("tcgen05.k8.tf32",   _TF32,     8,  8, 25, -133, FP32,  MODEL,    "B200", _AS_MMA_TF32),
    _fused("tcgen05.k32",       _NARROW,  32, 32, 25, -133, FP32,  MODEL,    "B200"),
    _fused("tcgen05.k32",       _NARROW,  32, 32, 25,  -21, FP16,  MODEL,    "B200"),
    *_scaled("tcgen05.", "B200"),
    _fused("mma.m16n8k16",      _HALVES,  16, 16, 25, -133, FP32,  SILICON,  "B200"),
    _fused("mma.m16n8k16",      _FP16,    16, 16, 25,  -21, FP16,  SILICON,  "B200"),
    _fused("mma.m16n8k8",       _HALVES,   8,  8, 25, -133, FP32,  MODEL,    "B200"),
    _fused("mma.m16n8k8",       _FP16,     8,  8, 25,  -21, FP16,  MODEL,    "B200"),
    _fused("mma.m16n8k8.tf32",  _TF32,     8,  8, 25, -133, FP32,  SILICON,  "B200", _HALF),
    _fused("mma.m16n8k4.tf32",  _TF32,     4,  4, 25, -133, FP32,  MODEL,    "B200"),
    _two_halves("mma.m16n8k32",           32,     25, -133, FP32,  SILICON,  "B200"),
    _two_halves("mma.m16n8k32",           32,     25,  -21, FP16,  SILICON,  "B200"),
    _two_halves("mma.m16n8k16",           16,     25, -133, FP32,  NOTHING,  "", _COMPILED),
    _two_halves("mma.m16n8k16",           16,     25,  -21, FP16,  NOTHING,  "", _COMPILED),
    *_fp64(MODEL, "B200", "mma.m8n8k4"),
)
_BLACKWELL_RTX = (
    _fused("mma.m16n8k16",      _HALVES,  16, 16, 25, -133, FP32,  ASSERTED, "RTX PRO 6000", _AS_B200),
    _fused("mma.m16n8k16",      _FP16,    16, 16, 25,  -21, FP16,  ASSERTED, "RTX PRO 6000", _AS_B200),
    _fused("mma.m16n8k8",       _HALVES,   8,  8, 25, -133, FP32,  MODEL,    "RTX PRO 6000"),
    _fused("mma.m16n8k8",       _FP16,     8,  8, 25,  -21, FP16,  MODEL,    "RTX PRO 6000"),
    _fused("mma.m16n8k8.tf32",  _TF32,     8,  8, 25, -133, FP32,  ASSERTED, "RTX PRO 6000", _AS_B200),
    _fused("mma.m16n8k4.tf32",  _TF32,     4,  4, 25, -133, FP32,  MODEL,    "RTX PRO 6000"),
    _fused("mma.m16n8k32",      _NARROW,  32, 32, 25, -133, FP32,  MODEL,    "RTX PRO 6000", _FP8_AS_B200),
    _fused("mma.m16n8k32",      _NARROW,  32, 32, 25,  -21, FP16,  MODEL,    "RTX PRO 6000"),
    _fused("mma.m16n8k16",      _FP8,     16, 16, 25, -133, FP32,  MODEL,    "RTX PRO 6000"),
    _fused("mma.m16n8k16",      _FP8,     16, 16, 25,  -21, FP16,  MODEL,    "RTX PRO 6000"),
    *_scaled("mma.m16n8", "RTX PRO 6000"),
    *_fp64(MODEL, "RTX PRO 6000", "mma.m8n8k4"),
)

# -- AMD: the shapes for one kind of input differ only in the number of chained blocks ---------------------------------


def _mfma(
    gpus: str, inputs: tuple[FloatFormat, ...], model: Model, *shapes: str, output: FloatFormat = FP32
) -> tuple[Instruction, ...]:
    return tuple(
        _of(f"mfma.{shape}", inputs, int(shape.split(".")[0].split("x")[2]), output, model, MODEL, gpus)
        for shape in shapes
    )


_FP32_SHAPES = ("32x32x2", "32x32x1", "16x16x4", "16x16x1", "4x4x1")
_HALF_SHAPES = ("32x32x8", "32x32x4", "16x16x16", "16x16x4", "4x4x4")
_OLD_SHAPES = ("32x32x4", "32x32x2", "16x16x8", "16x16x2", "4x4x2")
_NEW_SHAPES = ("32x32x8", "16x16x16", "16x16x4", "4x4x4", "32x32x4.bf16_1k")

_CDNA1 = (
    *_mfma("MI100", _FP16, ExactBlocks(4), *_HALF_SHAPES),
    *_mfma("MI100", (BF16,), ExactBlocks(2), *_OLD_SHAPES),
    *_mfma("MI100", _FP32, FmaChain(), *_FP32_SHAPES),
)
_CDNA2 = (
    *_mfma("MI250X", _FP16, FlushedTree(4), *_HALF_SHAPES),
    *_mfma("MI250X", (BF16,), FlushedTree(4), *_NEW_SHAPES),
    *_mfma("MI250X", (BF16,), FlushedTree(2), *_OLD_SHAPES),
    *_mfma("MI250X", _FP32, FmaChain(), *_FP32_SHAPES),
    *_mfma("MI250X", _FP64, FmaChain(), "16x16x4", "4x4x4", output=FP64),
)
_CDNA3 = (
    *_mfma("MI300X", _HALVES, LateAccumulator(8, 24, 31), *_HALF_SHAPES),
    *_mfma("MI300X", _TF32, LateAccumulator(4, 24, 31), "32x32x4.xf32", "16x16x8.xf32"),
    *_mfma("MI300X", _FNUZ, EvenAndOdd(16, 24, 31), "32x32x16", "16x16x32"),
    *_mfma("MI300X", _FP32, FmaChain(), *_FP32_SHAPES),
    *_mfma("MI300X", _FP64, FmaChain(), "16x16x4", "4x4x4", output=FP64),
)
# fmt: on

# -- all ---------------------------------------------------------------------------------------------------------------

ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        Architecture("volta", "NVIDIA Volta (sm_70)", _VOLTA),
        Architecture("turing", "NVIDIA Turing (sm_75)", _TURING),
        Architecture("ampere", "NVIDIA Ampere (sm_80, sm_86)", _AMPERE, ("NVIDIA Jetson Orin (sm_87)",)),
        Architecture("ada", "NVIDIA Ada Lovelace (sm_89)", _ADA),
        Architecture("hopper", "NVIDIA Hopper (sm_90)", _HOPPER),
        Architecture("blackwell", "NVIDIA Blackwell (sm_100)", _BLACKWELL, ("NVIDIA B300 (sm_103)",)),
        Architecture("blackwell-rtx", "NVIDIA RTX Blackwell (sm_120)", _BLACKWELL_RTX, ("NVIDIA GB10 (sm_121)",)),
        Architecture("cdna1", "AMD CDNA (gfx908)", _CDNA1),
        Architecture("cdna2", "AMD CDNA 2 (gfx90a)", _CDNA2),
        Architecture("cdna3", "AMD CDNA 3 (gfx942)", _CDNA3),
        *(Architecture(unit.name, unit.title, unit.instructions, processor="CPU") for unit in CPU_UNITS),
    )
}
"""The architectures by name: GPUs, the oldest of each maker first, then the instruction sets of CPUs."""

GPUS = {
    gpu: architecture
    for architecture, gpus in {
        "volta": "sm70 v100 v100s titanv",
        "turing": "sm75 t4 rtx2060 rtx2070 rtx2080 titanrtx",
        "ampere": (
            "sm80 sm86 a100 a800 a2 a10 a16 a30 a40 rtx3050 rtx3060 rtx3070 rtx3080 rtx3090 rtxa2000 rtxa4000 rtxa4500 "
            "rtxa5000 rtxa5500 rtxa6000 sm87 orin jetsonorin agxorin jetsonagxorin"
        ),
        "ada": (
            "sm89 adalovelace l4 l20 l40 l40s rtx4050 rtx4060 rtx4070 rtx4080 rtx4090 rtx2000ada rtx4000ada rtx4500ada "
            "rtx5000ada rtx6000ada"
        ),
        "hopper": "sm90 sm90a h100 h200 h800 h20 gh200",
        "blackwell": "sm100 sm100a sm100f b100 b200 gb200 sm103 sm103a sm103f b300 gb300 blackwellultra",
        "blackwell-rtx": (
            "sm120 sm120a sm120f sm121 sm121a sm121f gb10 dgxspark blackwellrtx rtxblackwell rtx5050 rtx5060 rtx5070 "
            "rtx5080 rtx5090 rtxpro2000 rtxpro4000 rtxpro4500 rtxpro5000 rtxpro6000"
        ),
        "cdna1": "gfx908 cdna mi100",
        "cdna2": "gfx90a mi210 mi250 mi250x",
        "cdna3": "gfx942 mi300 mi300a mi300x mi325x",
    }.items()
    for gpu in gpus.split()
} | {unit.name.replace("-", ""): unit.name for unit in CPU_UNITS}  # fmt: skip
"""The architectures of GPUs, of compilation targets and of CPUs. The names are written without spaces and hyphens."""

_MISSING = {
    gpu: title
    for title, gpus in {
        "NVIDIA Jetson Thor (sm_110)": "sm101 sm101a sm110 sm110a sm110f thor jetsonthor",
        "AMD CDNA 4 (gfx950)": "gfx950 cdna4 mi350 mi350x mi355x",
    }.items()
    for gpu in gpus.split()
}
"""GPUs and targets whose matrix units are not in the table: nothing is published about their arithmetic."""

_INTEGERS = {"avx512vnni": "VPDPBUSD", "avxvnni": "VPDPBUSD", "amxint8": "TDPBSSD"}
"""Instruction sets of CPUs for integers, with an instruction of each."""

_WITHOUT_MEANING = re.compile(
    r"nvidia|geforce|amd|instinct|tesla|ti|super|laptop|gpu|pcie|sxm\d?|nvl|hbm\d\w?|\d+gb|workstation|server|edition|"
    r"generation"
)
"""Words in the names of GPUs that do not decide the architecture."""


_CAPABILITY = re.compile(r"(?:(?:compute capability|cc) ?)?(\d+)\.(\d)|compute_(\d+[af]?)")
"""A compute capability, as "10.3", and its name as a compilation target, "compute_103"."""


def _key(name: str) -> str:
    text = name.strip().lower()
    if capability := _CAPABILITY.fullmatch(text):
        text = f"sm_{''.join(filter(None, capability.groups()))}"
    words = re.split(r"[\s_-]+", text)
    key = "".join(word for word in words if not _WITHOUT_MEANING.fullmatch(word))
    if key.startswith("rtxpro"):  # the driver's name of the GPU ends with the name of the architecture
        key = key.removesuffix("blackwell")
    return GPUS.get(key, key)


def is_architecture(name: str) -> bool:
    """Return whether this names an architecture, a GPU or a compilation target, also if the table does not have it.

    >>> is_architecture("H100"), is_architecture("B300"), is_architecture("fp16")
    (True, True, False)
    """
    key = _key(name)
    return key in ARCHITECTURES or key in _MISSING or key in _INTEGERS


def nearest(name: str) -> str | None:
    """Return the name of the nearest architecture, or None."""
    key = _key(name)
    for near in difflib.get_close_matches(key, ARCHITECTURES):
        if "".join(filter(str.isdigit, near)) == "".join(filter(str.isdigit, key)):  # CDNA 4 is not CDNA 3
            return near
    return None


def as_architecture(name: Any) -> Architecture:
    """The architecture of this name, of a GPU ("RTX 4090"), a compilation target ("sm_90a") or a compute capability
    ("10.3"); an error lists all.

    >>> as_architecture("Ada").title, as_architecture("MI300X").name, as_architecture("10.3").name
    ('NVIDIA Ada Lovelace (sm_89)', 'cdna3', 'blackwell')
    """
    if not isinstance(name, str):
        raise TypeError(f"an architecture is named by a text such as 'hopper', not {name!r}")
    key = _key(name)
    if key in ARCHITECTURES:
        return ARCHITECTURES[key]
    if key in _MISSING:
        raise ValueError(
            f"{name!r} is {_MISSING[key]}, which is not modelled yet; known architectures are "
            f"{', '.join(ARCHITECTURES)}"
        )
    if key in _INTEGERS:
        raise ValueError(
            f"{name!r} multiplies integers: fs.quantization.integer_matmul(a, b, "
            f"instruction={_INTEGERS[key].lower()!r}) computes as it does"
        )
    near = nearest(name)
    hint = f"did you mean {near!r}? " if near else ""
    raise ValueError(f"unknown architecture {name!r}; {hint}known are {', '.join(ARCHITECTURES)}")


def as_instruction_name(architecture: Architecture, name: Any) -> str:
    """Return the name of an instruction of the architecture.

    The error lists all names, or the architectures that have the instruction.

    >>> as_instruction_name(as_architecture("hopper"), "WGMMA.k16")
    'wgmma.k16'
    """
    if not isinstance(name, str):
        raise TypeError(f"an instruction is named by a text such as {architecture.names[0]!r}, not {name!r}")
    key = name.strip().lower()
    if key in architecture.names:
        return key
    owners = [other.name for other in ARCHITECTURES.values() if key in other.names]
    near = nearest_name(key, architecture.names)
    hint = f"{', '.join(owners)} has it; " if owners else f"did you mean {near!r}? " if near else ""
    raise ValueError(
        f"{architecture.name} has no instruction {name!r}; {hint}there are {', '.join(architecture.names)}"
    )


def select(
    architecture: Architecture, name: str | None, a: FloatFormat, b: FloatFormat, output: FloatFormat | None = None,
    scales: Scales | None = None,
) -> Instruction:  # fmt: skip
    """Return the row of the table for operands of these formats, by default the architecture's main instruction.

    `output` None selects FP32, or FP64 for FP64 operands. Block-scaled operands need their `scales`. If no row fits,
    the ValueError lists the rows that exist.

    >>> from floatsim.formats import BF16, TF32, FP32
    >>> select(as_architecture("hopper"), None, BF16, BF16).name
    'wgmma.k16'
    >>> select(as_architecture("volta"), None, BF16, BF16)
    Traceback (most recent call last):
    ValueError: volta does not multiply BF16 by BF16; it takes FP16 (mma.m8n8k4)
    """
    named = [row for row in architecture.instructions if name in (None, row.name)]
    where = architecture.name if name is None else f"{name} on {architecture.name}"
    rows = [row for row in named if bool(row.scales) == (scales is not None)]
    if not rows:
        with_scales = [row.name for row in architecture.instructions if row.scales]
        if scales is None:
            raise ValueError(f"{where} takes scales, which were not given: scale_a= and scale_b=")
        owners = [other.name for other in ARCHITECTURES.values() if any(row.scales for row in other.instructions)]
        has = f"instructions with scales are {', '.join(with_scales)}" if with_scales else f"{', '.join(owners)} do"
        raise ValueError(f"{where} takes no scales; {has}")
    taking = [row for row in rows if _reads(row, a, b, name)]
    if not taking:
        alone = [fmt for fmt in (a, b) if any(_reads(row, fmt, fmt, name) for row in rows)]
        advice = f"both must be {a}, or both {b}" if len(alone) == 2 and a != b else _what_it_takes(rows, a, b)
        raise ValueError(f"{where} does not multiply {a} by {b}; {advice}")
    if scales is not None:
        fitting = [row for row in taking if scales in row.scales]
        if not fitting:
            every = {f"{s.format} for every {s.every}": None for row in taking for s in row.scales}
            given = f"{scales.format} for every {scales.every}"
            raise ValueError(f"{where} takes no scales of {given} elements; there are {', '.join(every)}")
        taking = fitting
    wanted = [row for row in taking if output is None or row.output == output]
    if not wanted:
        there = dict.fromkeys(row.output for row in taking)
        raise ValueError(f"{where} gives {enumerated(there)} for {a}, not {output}")
    return wanted[0]


def _reads(row: Instruction, a: FloatFormat, b: FloatFormat, name: str | None) -> bool:
    """Return whether an instruction reads such operands. FP32 is read as TF32 only if the instruction is named."""
    return row.takes(a, b) and (name is not None or not row.truncates or FP32 not in (a, b))


def enumerated(items: Iterable[object]) -> str:
    """Return the items as a list in words.

    >>> enumerated(["FP32", "FP16", "FP64"])
    'FP32, FP16 and FP64'
    """
    *before, last = (f"{item}" for item in items)
    return f"{', '.join(before)} and {last}" if before else last


def _what_it_takes(rows: list[Instruction], a: FloatFormat, b: FloatFormat) -> str:
    """Return a text: the formats that instructions take, and a hint that FP32 needs a named instruction."""
    by_inputs: dict[str, dict[str, None]] = {}
    for row in rows:
        listed = ", ".join(fmt.name for fmt in row.inputs)
        by_inputs.setdefault(f"any mix of {listed}" if row.mixes else listed, {})[row.name] = None
    takes = "; ".join(f"{inputs} ({', '.join(names)})" for inputs, names in by_inputs.items())
    tf32 = [row.name for row in rows if row.truncates]
    hint = f". FP32 operands are read as TF32 where the instruction is named: {', '.join(tf32)}"
    return f"it takes {takes}" + (hint if tf32 and FP32 in (a, b) else _kin(rows, a, b))


_KIN = {E4M3: E4M3FNUZ, E5M2: E5M2FNUZ, E4M3FNUZ: E4M3, E5M2FNUZ: E5M2}
"""AMD's CDNA 3 and NVIDIA have different FP8 formats."""


def _kin(rows: list[Instruction], a: FloatFormat, b: FloatFormat) -> str:
    """Return a hint to convert to the other manufacturer's FP8 format, if that is accepted; else ""."""
    taken = {fmt for row in rows for fmt in row.inputs}
    kin = {fmt: _KIN[fmt] for fmt in (a, b) if fmt in _KIN and fmt not in taken and _KIN[fmt] in taken}
    return "".join(
        f". In place of {fmt} it has {of} (max {of.max:g}): fs.convert(x, {of.name.lower()!r})"
        for fmt, of in kin.items()
    )
