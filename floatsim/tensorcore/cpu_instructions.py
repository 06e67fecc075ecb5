"""The matrix and dot instructions of CPUs: the rows of the table, with the model of each and the evidence for it.

Sources: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual" (VDPBF16PS, TDPBF16PS, TDPFP16PS); Bochs
783b58f, cpu/avx (AMX-FP8, VDPPHPS, TOP2BF16PS); Arm, "Arm Architecture Reference Manual" DDI 0487, pseudocode BFAdd,
BFMul, FPDot, FPMulAdd; corsix/amx (Apple); RISC-V, "Zvfbfwma". The rows that are verified on hardware were compared
with an Intel processor with AMX, whose CPUID reports family 6, model 167, and two of them with an AMD processor of
family 25, model 17 (Zen 4).
"""

from __future__ import annotations

from floatsim.formats import BF16, E4M3, E5M2, FP16, FP32, FP64, FloatFormat
from floatsim.formats.rounding import Rounding, Tininess
from floatsim.tensorcore.instructions import (
    Architecture,
    Evidence,
    ExactBlocks,
    FmaChain,
    Instruction,
    Model,
    NanRule,
    RoundedSteps,
)

__all__ = ["CPU_UNITS"]


def _unit(name: str, title: str, instructions: tuple[Instruction, ...]) -> Architecture:
    return Architecture(name, title, instructions, processor="CPU", aliases=(name.replace("-", ""),))


_INTEL, _AMD = "Intel Xeon with AMX", "AMD EPYC (Zen 4)"
_RUN_ON = {"vdpbf16ps": f"{_INTEL}, {_AMD}", "vfmadd231ps": f"{_INTEL}, {_AMD}"}
_PROJECT, _SPECIFIED = Evidence.PROJECT, Evidence.SPECIFIED


def _row(
    name: str, inputs: tuple[FloatFormat, ...], k: int, model: Model, output: FloatFormat = FP32,
    evidence: Evidence = _SPECIFIED, note: str = "", mixes: bool = False,
) -> Instruction:  # fmt: skip
    ran = _RUN_ON.get(name, _INTEL) if evidence is _PROJECT else ""
    return Instruction(name, inputs, k, model, output, evidence, ran, mixes=mixes, note=note)


# -- x86 ---------------------------------------------------------------------------------------------------------------


def _two_lanes(terms: int, group: int = 1) -> RoundedSteps:
    """Return the model of AMX: even and odd groups apart, from zero, then joined and added to c."""
    return RoundedSteps(
        terms, group, fused=group == 1, lanes=2, late=True, nan=NanRule.FIRST_OPERAND, flushes=Tininess.AFTER
    )


_ODD_FIRST = RoundedSteps(2, reverse=True, nan=NanRule.FIRST_OPERAND, flushes=Tininess.AFTER)
_X86_CHAIN = RoundedSteps(1, nan=NanRule.FIRST_OPERAND)
_X86_PAIR = RoundedSteps(2, 2, fused=False, nan=NanRule.FIRST_OPERAND, flushes=Tininess.AFTER)
_FP8 = (E5M2, E4M3)
_BOCHS_FP8 = "equal to Bochs; the text of clang's header describes an exact sum instead"

# -- Arm ---------------------------------------------------------------------------------------------------------------

_BF_STEP = RoundedSteps(2, 2, fused=False, rounding=Rounding.TO_ODD, flushes=Tininess.BEFORE)
_FUSED_PAIR = RoundedSteps(2, 2)
_CHAIN = RoundedSteps(1)
_EBF = "with FPCR.EBF = 1; FPCR has its default modes otherwise"
_NO_EBF = "with FPCR.EBF = 0, also without FEAT_EBF16"
_DN = "with FPCR.DN = 1"
_NEAREST = "with MXCSR.RC to nearest; DAZ and FTZ have no effect"
_FP8_MODES = "with FPMR.LSCALE = 0 and FPMR.OSM = 0"
_APPLE = "corsix/amx; its author tested M1 to M4"


def _fp8(name: str, terms: int, output: FloatFormat) -> Instruction:
    """Return an FP8 instruction of Arm: an exact sum of products and c, rounded once."""
    return _row(name, _FP8, terms, ExactBlocks(terms, signed_zero=True), output, note=_FP8_MODES, mixes=True)


# -- all ---------------------------------------------------------------------------------------------------------------

CPU_UNITS = (
    _unit("avx512-bf16", "x86 AVX512_BF16",
            (_row("vdpbf16ps", (BF16,), 2, _ODD_FIRST, evidence=_PROJECT),)),
    _unit("avx512-fp16", "x86 AVX512-FP16",
            (_row("vfmadd231ph", (FP16,), 1, _X86_CHAIN, FP16, _PROJECT, _NEAREST),)),
    _unit("fma3", "x86 FMA",
            (_row("vfmadd231ps", (FP32,), 1, _X86_CHAIN, FP32, _PROJECT, "with the default MXCSR"),)),
    _unit("avx10.2", "x86 AVX10.2", (_row("vdpphps", (FP16,), 2, _ODD_FIRST, note="equal to Bochs"),)),
    _unit("amx-bf16", "x86 AMX-BF16",
            (_row("tdpbf16ps", (BF16,), 32, _two_lanes(32), evidence=_PROJECT),)),
    _unit("amx-fp16", "x86 AMX-FP16", (_row("tdpfp16ps", (FP16,), 32, _two_lanes(32)),)),
    _unit("amx-fp8", "x86 AMX-FP8",
            (_row("tdpf8ps", _FP8, 64, _two_lanes(64, 2), note=_BOCHS_FP8, mixes=True),)),
    _unit("ace", "x86 ACE v1", (_row("top2bf16ps", (BF16,), 2, _X86_PAIR, note="equal to Bochs"),)),
    _unit("arm-bfdot", "Arm BFDOT", (
        _row("bfdot", (BF16,), 2, _BF_STEP, note=_NO_EBF), _row("bfdot.ebf", (BF16,), 2, _FUSED_PAIR, note=_EBF),
    )),
    _unit("arm-bfmmla", "Arm BFMMLA", (
        _row("bfmmla", (BF16,), 4, _BF_STEP, note=_NO_EBF), _row("bfmmla.ebf", (BF16,), 4, _FUSED_PAIR, note=_EBF),
    )),
    _unit("arm-bfmlal", "Arm BFMLALB and BFMLALT", (_row("bfmlalb", (BF16,), 1, FmaChain(), note=_DN),)),
    _unit("arm-fp16", "Arm FP16", (
        _row("fdot", (FP16,), 2, _FUSED_PAIR), _row("fmlal", (FP16,), 1, FmaChain(), note=_DN),
        _row("fmmla", (FP16,), 4, RoundedSteps(4, 2, lanes=2, late=True, from_zero=False)),
        _row("fmla", (FP16,), 1, _CHAIN, FP16, note=_DN),
    )),
    _unit("arm-fp8", "Arm FP8", (
        _fp8("fdot", 4, FP32), _fp8("fmmla", 8, FP32), _fp8("fmlall", 1, FP32), _fp8("fdot", 2, FP16),
        _fp8("fmmla", 4, FP16), _fp8("fmlal", 1, FP16),
    )),
    _unit("arm-fmmla", "Arm FMMLA", (_row("fmmla", (FP32,), 2, RoundedSteps(2, 2, fused=False), note=_DN),)),
    _unit("apple-amx", "Apple AMX", (
        _row("fma16.fp32", (FP16, BF16), 1, FmaChain(), note=_APPLE),
        _row("fma16", (FP16,), 1, _CHAIN, FP16, note=_APPLE),
        _row("fma32", (FP32,), 1, FmaChain(), note=_APPLE), _row("fma64", (FP64,), 1, FmaChain(), FP64, note=_APPLE),
    )),
    _unit("riscv-zvfbfwma", "RISC-V Zvfbfwma", (_row("vfwmaccbf16", (BF16,), 1, FmaChain()),)),
)  # fmt: skip
"""The instruction sets of CPUs, in the order of the table."""
