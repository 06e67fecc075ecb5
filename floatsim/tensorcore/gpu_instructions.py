"""The matrix instructions of GPUs: the rows of the table, with the model of each and the evidence for it.

Numbers and evidence: F. A. Khattak and M. Mikaitis, "Accurate Models of NVIDIA Tensor Cores" (outputs of V100, A100,
A2, Ada, L40S, H100, H200 and B200, published in north-numerical-computing/MATLAB-tensor-core; without published
outputs, its RTXPRO6000TC.m equals its model of B200, and its A30TC.m that of A100); P. Xie et al., MMA-Sim
(the package mmasim 2.1.1, and the tests in its repository, which ran on the GPUs named). DeepSeek-V3 also reports the
fraction bits of FP8 on Hopper (arXiv 2412.19437, 3.3.2: "around 14 bits"). deepseek-ai/DeepGEMM#37 reports that its
`mma.sync` does not truncate, and NVIDIA/cutlass#1986 that its `mma.sync` is emulated. The rows of Hopper equal an
H200 that this project ran (data/silicon/nvidia-h200).
"""

from __future__ import annotations

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
from floatsim.formats.rounding import Rounding
from floatsim.tensorcore.instructions import (
    E8M13,
    Architecture,
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

__all__ = ["GPU_UNITS"]

# -- constructors of rows ----------------------------------------------------------------------------------------------

PROJECT, SILICON, ASSERTED, MODEL, _, NOTHING = Evidence

_FP16, _HALVES, _TF32, _FP8 = (FP16,), (FP16, BF16), (TF32,), (E4M3, E5M2)
_NARROW = (E4M3, E5M2, E3M2, E2M3, E2M1)
_FP4, _FP64, _FP32 = (E2M1,), (FP64,), (FP32,)
_FNUZ = (E4M3FNUZ, E5M2FNUZ)

_EIGHT_BITS = {E4M3, E4M3FNUZ}  # these formats may be mixed, and so may all narrower ones


def _rounding(grid: FloatFormat) -> Rounding:
    return Rounding.TIES_TO_EVEN if grid == FP16 else Rounding.TOWARD_ZERO


def _of(
    name: str, inputs: tuple[FloatFormat, ...], k: int, output: FloatFormat, model: Model, evidence: Evidence,
    gpus: str = "", note: str = "", published: str = "",
) -> Instruction:  # fmt: skip
    return Instruction(
        name, inputs, k, model, output, evidence, gpus, mixes=inputs[0] in _EIGHT_BITS, truncates=inputs == _TF32,
        note=note, published=published,
    )  # fmt: skip


def _fused(
    name: str, inputs: tuple[FloatFormat, ...], k: int, terms: int, fraction_bits: int, floor: int, grid: FloatFormat,
    evidence: Evidence, gpus: str = "", note: str = "", published: str = "",
) -> Instruction:  # fmt: skip
    model = FusedBlocks(terms, fraction_bits, floor, grid, _rounding(grid))
    return _of(name, inputs, k, FP16 if grid == FP16 else FP32, model, evidence, gpus, note, published)


def _two_halves(
    name: str, k: int, fraction_bits: int, floor: int, grid: FloatFormat, evidence: Evidence, gpus: str,
    note: str = "", published: str = "",
) -> Instruction:  # fmt: skip
    model = TwoHalves(FusedBlocks(k // 2, fraction_bits, floor, grid, _rounding(grid)))
    return _of(name, _FP8, k, grid, model, evidence, gpus, note, published)


def _fp64(evidence: Evidence, gpus: str, *shapes: str, note: str = "") -> tuple[Instruction, ...]:
    return tuple(_of(name, _FP64, int(name.split("k")[1]), FP64, FmaChain(), evidence, gpus, note) for name in shapes)


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
_H100_H200 = "H100, H200"
_ANY_NAN = "a NaN is compared with any NaN: the GPU's have payloads, which are not modelled"
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
    _fused("wgmma.k16",         _HALVES,  16, 16, 25, -133, FP32,  PROJECT,  "H200"),
    _fused("wgmma.k16",         _FP16,    16, 16, 25,  -21, FP16,  PROJECT,  "H200"),
    _fused("wgmma.k8.tf32",     _TF32,     8,  8, 25, -133, FP32,  PROJECT,  "H200"),
    _fused("wgmma.k32",         _FP8,     32, 32, 13, -133, E8M13, PROJECT,  "H200", _C_ZERO, _H100_H200),
    _fused("wgmma.k32",         _FP8,     32, 32, 13,  -21, FP16,  PROJECT,  "H200"),
    _fused("mma.m16n8k16",      _HALVES,  16, 16, 25, -133, FP32,  PROJECT,  "H200", "", _H100_H200),
    _fused("mma.m16n8k16",      _FP16,    16, 16, 25,  -21, FP16,  PROJECT,  "H200", "", _H100_H200),
    _fused("mma.m16n8k8",       _HALVES,   8,  8, 25, -133, FP32,  PROJECT,  "H200"),
    _fused("mma.m16n8k8",       _FP16,     8,  8, 25,  -21, FP16,  PROJECT,  "H200"),
    _fused("mma.m16n8k8.tf32",  _TF32,     8,  8, 25, -133, FP32,  PROJECT,  "H200", _HALF, _H100_H200),
    _fused("mma.m16n8k4.tf32",  _TF32,     4,  4, 25, -133, FP32,  PROJECT,  "H200"),
    _two_halves("mma.m16n8k32",           32,     25, -133, FP32,  PROJECT,  "H200"),
    _two_halves("mma.m16n8k32",           32,     25,  -21, FP16,  PROJECT,  "H200", "", _H100_H200),
    _two_halves("mma.m16n8k16",           16,     25, -133, FP32,  PROJECT,  "H200", _COMPILED),
    _two_halves("mma.m16n8k16",           16,     25,  -21, FP16,  PROJECT,  "H200", _COMPILED),
    *_fp64(PROJECT, "H200", "mma.m16n8k16", "mma.m16n8k8", "mma.m16n8k4", "mma.m8n8k4", note=_ANY_NAN),
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


def _unit(
    name: str, title: str, instructions: tuple[Instruction, ...], aliases: str, assumed: tuple[str, ...] = ()
) -> Architecture:
    return Architecture(name, title, instructions, assumed, aliases=tuple(aliases.split()))


GPU_UNITS = (
    _unit("volta", "NVIDIA Volta (sm_70)", _VOLTA, "sm70 v100 v100s titanv"),
    _unit("turing", "NVIDIA Turing (sm_75)", _TURING, "sm75 t4 rtx2060 rtx2070 rtx2080 titanrtx"),
    _unit(
        "ampere", "NVIDIA Ampere (sm_80, sm_86)", _AMPERE,
        "sm80 sm86 a100 a800 a2 a10 a16 a30 a40 rtx3050 rtx3060 rtx3070 rtx3080 rtx3090 rtxa2000 rtxa4000 rtxa4500 "
        "rtxa5000 rtxa5500 rtxa6000 sm87 orin jetsonorin agxorin jetsonagxorin",
        assumed=("NVIDIA Jetson Orin (sm_87)",),
    ),
    _unit(
        "ada", "NVIDIA Ada Lovelace (sm_89)", _ADA,
        "sm89 adalovelace l4 l20 l40 l40s rtx4050 rtx4060 rtx4070 rtx4080 rtx4090 rtx2000ada rtx4000ada rtx4500ada "
        "rtx5000ada rtx6000ada",
    ),
    _unit("hopper", "NVIDIA Hopper (sm_90)", _HOPPER, "sm90 sm90a h100 h200 h800 h20 gh200"),
    _unit(
        "blackwell", "NVIDIA Blackwell (sm_100)", _BLACKWELL,
        "sm100 sm100a sm100f b100 b200 gb200 sm103 sm103a sm103f b300 gb300 blackwellultra",
        assumed=("NVIDIA B300 (sm_103)",),
    ),
    _unit(
        "blackwell-rtx", "NVIDIA RTX Blackwell (sm_120)", _BLACKWELL_RTX,
        "sm120 sm120a sm120f sm121 sm121a sm121f gb10 dgxspark blackwellrtx rtxblackwell rtx5050 rtx5060 rtx5070 "
        "rtx5080 rtx5090 rtxpro2000 rtxpro4000 rtxpro4500 rtxpro5000 rtxpro6000",
        assumed=("NVIDIA GB10 (sm_121)",),
    ),
    _unit("cdna1", "AMD CDNA (gfx908)", _CDNA1, "gfx908 cdna mi100"),
    _unit("cdna2", "AMD CDNA 2 (gfx90a)", _CDNA2, "gfx90a mi210 mi250 mi250x"),
    _unit("cdna3", "AMD CDNA 3 (gfx942)", _CDNA3, "gfx942 mi300 mi300a mi300x mi325x"),
)  # fmt: skip
"""The GPUs, the oldest of each maker first."""
