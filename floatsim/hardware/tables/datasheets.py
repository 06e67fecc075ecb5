"""The table of vendors' data sheets: TFLOP/s of the matrix units of each GPU on dense matrices, by format.

NVIDIA's data sheets often give the throughput with sparsity, or of eight GPUs. The table gives it for one GPU and dense
matrices. It refers to the boost clock, which a GPU under load may not reach. The page "Checking a GPU" of the
documentation lists the numbers that were checked twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from floatsim.formats import BF16, E2M1, FP16, FP64, TF32, FloatFormat

__all__ = ["SHEETS", "Sheet", "peak"]


@dataclass(frozen=True)
class Sheet:
    """The TFLOP/s of one GPU; None if the data sheet has no number, or the GPU no such unit.

    Parameters
    ----------
    names : str
        A regular expression for the name that the driver reports.
    source : str
        The name of the data sheet.
    half, half_fp16 : float
        FP16 and BF16 operands with sums in FP32; FP16 operands with sums in FP16.
    fp64, tf32 : float
        FP64 and TF32 operands.
    fp8, fp8_fp16 : float
        FP8 operands (also FP6 and FP4 through the same instructions), with sums in FP32 and in FP16.
    fp4 : float
        FP4 operands with block scales.
    """

    names: str
    source: str
    half: float
    half_fp16: float
    fp64: float | None = None
    tf32: float | None = None
    fp8: float | None = None
    fp8_fp16: float | None = None
    fp4: float | None = None


def _even(
    names: str, source: str, half: float, fp64: float | None = None, tf32: float | None = None,
    fp8: float | None = None, fp4: float | None = None,
) -> Sheet:  # fmt: skip
    """Return the row of a GPU with equal throughput for sums in FP32 and in FP16."""
    return Sheet(names, source, half, half, fp64, tf32, fp8, fp8, fp4)


SHEETS = (
    # NVIDIA, "V100 Tensor Core GPU" (2020) and "T4 Tensor Core GPU" (2019), data sheets: "mixed-precision"
    _even(r"V100S-PCIE", "V100S data sheet", 130),
    _even(r"V100-PCIE", "V100 data sheet", 112),
    _even(r"V100-SXM", "V100 data sheet", 125),
    _even(r"\bT4\b", "T4 data sheet", 65),
    # NVIDIA, data sheets of A100 (2022), A30 (2022), A40 (2021), A10 (2021), A2 (2021)
    _even(r"\bA100\b", "A100 data sheet", 312, 19.5, 156),
    _even(r"\bA30\b", "A30 data sheet", 165, 10.3, 82),
    _even(r"\bA40\b", "A40 data sheet", 149.7, None, 74.8),
    _even(r"\bA10\b", "A10 data sheet", 125, None, 62.5),
    _even(r"\bA2\b", "A2 data sheet", 18, None, 9),
    # NVIDIA, "Ampere GA102 GPU Architecture" (2021), appendix
    _even(r"RTX A6000", "GA102 white paper", 154.8, None, 77.4),
    Sheet(r"RTX 3090$", "GA102 white paper", 71, 142, None, 35.6),
    # NVIDIA, data sheets of L4, L40 and L40S (2023)
    _even(r"\bL4\b", "L4 data sheet", 121, None, 60, 242.5),
    _even(r"\bL40\b", "L40 data sheet", 181.05, None, 90.5, 362),
    _even(r"\bL40S\b", "L40S data sheet", 362.05, None, 183, 733),
    # NVIDIA, "Ada GPU Architecture" (2023), appendix
    _even(r"RTX 6000 Ada", "Ada white paper", 364.2, None, 182.1, 728.5),
    Sheet(r"RTX 4090$", "Ada white paper", 165.2, 330.3, None, 82.6, 330.3, 660.6),
    # NVIDIA, data sheets of H100 (2024: SXM5 and NVL; 2023: PCIe), H200 (2024) and GH200 (2023), halved: with sparsity
    _even(r"\bH100 PCIe\b", "H100 data sheet", 756.5, 51, 378, 1513),
    _even(r"\bH100 NVL\b", "H100 data sheet", 835.5, 60, 417.5, 1670.5),
    _even(r"\bH100 80GB HBM3\b", "H100 data sheet", 989.5, 67, 494.5, 1979),
    _even(r"\bH200 NVL\b", "H200 data sheet", 835.5, 60, 417.5, 1670.5),
    _even(r"\bH200\b", "H200 data sheet", 989.5, 67, 494.5, 1979),
    _even(r"\bGH200\b", "GH200 data sheet", 989.5, 67, 494.5, 1979),
    # NVIDIA, "HGX B200" and "GB200 NVL72", data sheets (2025), "individual Blackwell GPU", halved: with sparsity
    _even(r"\bB200\b", "HGX B200 data sheet", 2250, 37, 1100, 4500, 9000),
    _even(r"\bGB200\b", "GB200 NVL72 data sheet", 2500, 40, 1250, 5000, 10000),
    # NVIDIA, "RTX Blackwell GPU Architecture" and "RTX PRO Blackwell" (2025), appendices
    Sheet(r"RTX 5090$", "RTX Blackwell white paper", 209.5, 419, None, 104.8, 419, 838, 1676),
    _even(r"RTX PRO 6000 Blackwell Workstation", "RTX PRO Blackwell white paper", 503.8, None, 251.9, 1007.6, 2015.2),
)
"""All data sheets. If several rows fit a name, the first is used."""


def peak(gpu: str, operands: FloatFormat, output: FloatFormat, scaled: bool = False) -> tuple[float | None, str]:
    """Return the TFLOP/s of a GPU's data sheet, and its name; (None, "") if the table has none.

    Parameters
    ----------
    gpu : str
        The name that the driver reports.
    operands, output : FloatFormat
        The format of A and B, and the format of D.
    scaled : bool
        Whether the instruction is for block-scaled FP4 only, which has its own throughput.

    >>> peak("NVIDIA H100 80GB HBM3", BF16, FP16), peak("NVIDIA GeForce RTX 4090", FP16, FP16)
    ((989.5, 'H100 data sheet'), (330.3, 'Ada white paper'))
    >>> peak("an unknown GPU", BF16, FP16)
    (None, '')
    """
    sheet = next((row for row in SHEETS if re.search(row.names, gpu)), None)
    if sheet is None:
        return None, ""
    narrow = "fp4" if operands == E2M1 and scaled else "fp8_fp16" if output == FP16 else "fp8"
    half = "half_fp16" if operands == output == FP16 else "half"
    names = {FP64: "fp64", TF32: "tf32", FP16: half, BF16: half}
    tflops: float | None = getattr(sheet, names.get(operands, narrow))
    return tflops, sheet.source if tflops is not None else ""
