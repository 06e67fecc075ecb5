"""The models compared with mmasim (MMA-Sim, Microsoft), for its instructions. These tests need mmasim.

mmasim is no dependency of the package: it needs torch, and compiles C++ with ninja when it is imported. The extra
`mmasim` installs it: `pip install -e ".[mmasim]"`, then `pytest -m mmasim`.

All known differences are explained here. `skips` and `may_be_any_nan` implement them:
- FP8 `mma.sync` on Hopper and on Blackwell (sm_100), which ptxas emulates, is not in mmasim. Outputs of GPUs decide.
- FP32 operands of TF32 instructions: mmasim accepts only TF32. test_architectures.py tests the truncation.
- NaN on AMD and of FP64: mmasim returns 0x7FFFFFFF or the NaN of the processor, and its authors allow every NaN. The
  tests compare only whether a result is NaN.
- mmasim loses a NaN in c of CDNA 3's FP8 instructions if the products are large: it drops c by its exponent, and a
  NaN has an exponent there. In floatsim a NaN term always makes the sum NaN.
"""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import floatsim as fs
from floatsim.reference.tensorcore.dot import Scaled, dot
from floatsim.tensorcore.architectures import ARCHITECTURES
from floatsim.tensorcore.instructions import EvenAndOdd, Evidence, FlushedTree, FmaChain, TwoHalves
from tests.tensorcore.cases import Case, cases, codes

MISSING = importlib.util.find_spec("mmasim") is None
pytestmark = [
    pytest.mark.full,
    pytest.mark.mmasim,
    pytest.mark.skipif(MISSING, reason='mmasim is not installed: the extra "mmasim"'),
]

NAMES = {
    "volta": "Volta", "turing": "Turing", "ampere": "Ampere", "ada": "Ada Lovelace", "hopper": "Hopper",
    "blackwell": "Blackwell", "blackwell-rtx": "RTX Blackwell", "cdna1": "CDNA1", "cdna2": "CDNA2", "cdna3": "CDNA3",
}  # fmt: skip
TYPES = {
    fs.FP64: "f64", fs.FP32: "f32", fs.TF32: "tf32", fs.FP16: "f16", fs.BF16: "bf16", fs.E4M3: "e4m3", fs.E5M2: "e5m2",
    fs.E3M2: "e3m2", fs.E2M3: "e2m3", fs.E2M1: "e2m1", fs.E4M3FNUZ: "fp8", fs.E5M2FNUZ: "bf8",
}  # fmt: skip
BLOCKS_OF_CDNA3 = {  # of instructions with several blocks, which stand in their names
    "32x32x1": "2b_", "16x16x1": "4b_", "4x4x1": "16b_", "32x32x4": "2b_", "16x16x4": "4b_", "4x4x4": "16b_",
}  # fmt: skip
SCALE_TYPES = {fs.E8M0: "ue8m0", fs.E4M3: "ue4m3"}
KINDS = {"mxf8f6f4": "mxf8f6f4", "mxf4": "mxf4", "nvf4": "mxf4nvf4"}
ROWS = 24


def in_mmasim(case: Case) -> bool:
    row = case.row
    return (not isinstance(row.model, TwoHalves) and row.evidence is not Evidence.NOTHING and case.a != fs.FP32) or (
        isinstance(row.model, FmaChain)
    )  # fmt: skip


def may_be_any_nan(case: Case) -> bool:
    return case.arch.startswith("cdna") or case.a == fs.FP64


def skips(case: Case, accumulators) -> bool:
    """Return whether mmasim loses a NaN that is c of a block."""
    return isinstance(case.row.model, EvenAndOdd) and any(is_nan(c, case.row.output) for c in accumulators)


def theirs(case: Case):
    """The operation of mmasim."""
    from mmasim.amd import MFMA
    from mmasim.nv_ptx import MMA, WGMMA, MMABlockScale, TCGen05MMA, TCGen05MMABlockScale

    row, a, b, d = case.row, TYPES[case.a], TYPES[case.b], TYPES[case.row.output]
    arch, (family, shape, *rest) = NAMES[case.arch], row.name.split(".")
    if family == "mfma":
        return MFMA(arch, amd_name(case, shape, a, b, d))
    if case.scales is not None:
        kind, of = KINDS[rest[-1]], f"block{case.scales.every}"
        scale = SCALE_TYPES[case.scales.format]
        if family == "mma":
            return MMABlockScale(arch, f"{shape}.kind::{kind}.{of}.f32.{a}.{b}.f32.{scale}")
        return TCGen05MMABlockScale(arch, f"m128n8{shape}.kind::{kind}.{of}.f32.{a}.{b}.{scale}")
    if family == "wgmma":
        return WGMMA(arch, f"m64n8{shape}.{d}.{a}.{b}")
    if family == "tcgen05":
        return TCGen05MMA(
            arch, f"m64n8{shape}.kind::{ {'k8': 'tf32', 'k16': 'f16', 'k32': 'f8f6f4'}[shape] }.{d}.{a}.{b}"
        )
    kind = "kind::f8f6f4." if case.arch == "blackwell-rtx" and shape == "m16n8k32" else ""
    return MMA(arch, f"{shape}.{kind}{d}.{a}.{b}.{d}")


def amd_name(case: Case, shape: str, a: str, b: str, d: str) -> str:
    if case.arch != "cdna3":
        newer = isinstance(case.row.model, FlushedTree) and case.row.model.terms == 4 and a == "bf16"
        return f"{d}_{shape}{a}" + ("_1k" if newer else "")
    if a in ("fp8", "bf8"):
        return f"f32_{shape}_{a}_{b}"
    if a == "tf32":
        return f"f32_{shape}_xf32"
    if a == "f64":
        return f"f64_{shape}_{'4b_' if shape == '4x4x4' else ''}f64"
    several = BLOCKS_OF_CDNA3.get(shape, "") if (a == "f32") == shape.endswith("x1") else ""
    return f"{d}_{shape}_{several}{a}"


def tensor(x: np.ndarray, fmt: fs.FloatFormat, packed: bool = False):
    """Codes in mmasim's layout: FP6 and FP4 as bytes, FP4 in bits 5 to 2, or two in a byte."""
    import torch

    if fmt == fs.TF32:
        return torch.from_numpy((x << np.uint64(13)).astype(np.uint32).view(np.float32))
    if packed:
        return torch.from_numpy((x[:, 0::2] << np.uint64(4) | x[:, 1::2]).astype(np.uint8))
    if fmt.bits < 8:
        return torch.from_numpy((x << np.uint64(2 if fmt == fs.E2M1 else 0)).astype(np.uint8))
    types = {
        fs.FP64: torch.float64, fs.FP32: torch.float32, fs.FP16: torch.float16, fs.BF16: torch.bfloat16,
        fs.E4M3: torch.float8_e4m3fn, fs.E5M2: torch.float8_e5m2, fs.E4M3FNUZ: torch.float8_e4m3fnuz,
        fs.E5M2FNUZ: torch.float8_e5m2fnuz, fs.E8M0: torch.float8_e8m0fnu,
    }  # fmt: skip
    narrow = x.astype(f"u{fmt.bits // 8}").view("u1" if fmt.bits == 8 else f"i{fmt.bits // 8}")
    return torch.from_numpy(narrow).view(types[fmt])


def of_tensor(x, fmt: fs.FloatFormat) -> np.ndarray:
    import torch

    integers = {16: torch.int16, 32: torch.int32, 64: torch.int64}[fmt.bits]
    return x.contiguous().view(integers).numpy().view(f"u{fmt.bits // 8}").astype(np.uint64)


def is_nan(code: int, fmt: fs.FloatFormat) -> bool:
    return code & fmt.magnitude_mask > fmt.infinity_code


@pytest.mark.parametrize("arch", [name for name, arch in ARCHITECTURES.items() if arch.processor == "GPU"])
def test_equal_to_mmasim(arch):
    rng = np.random.default_rng(6)
    compared = 0
    for case in cases():
        if case.arch != arch or not in_mmasim(case):
            continue
        operation, row = theirs(case), case.row
        for style in ("bits", "near", "tiny", "sparse"):
            a, b = (codes(rng, fmt, (ROWS, row.k), style) for fmt in (case.a, case.b))
            c = codes(rng, row.output, (ROWS,), style)
            scales, factors = (), [None] * ROWS
            if case.scales is not None:
                of, parts = case.scales, row.k // case.scales.every
                left, right = (
                    codes(rng, of.format, (ROWS, parts), "near" if style != "bits" else "bits") for _ in "ab"
                )
                scales = tensor(left, of.format), tensor(right, of.format)
                factors = [Scaled(x, y, of) for x, y in zip(left.tolist(), right.tolist(), strict=True)]
            packed = row.k == 64
            operands = tensor(a, case.a, packed), tensor(b, case.b, packed), tensor(c, row.output)
            expected = of_tensor(operation.dpa(*operands, *scales), row.output).tolist()
            for i, terms in enumerate(zip(a.tolist(), b.tolist(), c.tolist(), factors, strict=True)):
                x, y, start, factor = terms
                result = dot(row, x, y, case.a, case.b, start, factor)
                if skips(case, [start, *(step.code for step in result.steps[:-1])]):
                    continue
                both_nan = is_nan(result.code, row.output) and is_nan(expected[i], row.output)
                assert result.code == expected[i] or (may_be_any_nan(case) and both_nan), (str(case), style, terms)
                compared += 1
    assert compared


@pytest.mark.parametrize(
    ("arch", "fmt", "name"),
    [("Hopper", fs.FP16, "m64n8k16.f32.f16.f16"), ("Hopper", fs.E4M3, "m64n8k32.f32.e4m3.e4m3")],
)
def test_whole_products(arch, fmt, name):
    """mmasim does not compare the shape of a product with the instruction's, and chains blocks as a K loop does."""
    from mmasim.nv_ptx import WGMMA

    rng = np.random.default_rng(7)
    a, b = codes(rng, fmt, (40, 128), "near"), codes(rng, fmt, (128, 40), "near")
    c = codes(rng, fs.FP32, (40, 40), "near")
    expected = WGMMA(arch, name)(tensor(a, fmt), tensor(b, fmt), tensor(c, fs.FP32))
    operands = [fs.from_codes(x.astype(f.code_dtype), f) for x, f in ((a, fmt), (b, fmt), (c, fs.FP32))]
    got = fs.matmul(*operands, accumulate=fs.TensorCore(arch))
    assert np.array_equal(got.codes, of_tensor(expected, fs.FP32))
