"""Outputs of real GPUs, reproduced: every row of every file in the folder that FLOATSIM_SILICON names.

The outputs were published by F. A. Khattak and M. Mikaitis with "Accurate Models of NVIDIA Tensor Cores", in
north-numerical-computing/MATLAB-tensor-core, folder model_validation/ (BSD-2-Clause). Each file holds one dot product a
row as FP32 bits: `a`, `b` (rows, K), `c_fp32`, and what the GPU made of it, `d_fp32`, and `d_fp16` widened to FP32.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim.tensorcore.architectures import ARCHITECTURES, select
from floatsim.tensorcore.instructions import Evidence
from floatsim.tensorcore.reference import dot

FOLDER = os.environ.get("FLOATSIM_SILICON")
FILES = sorted(Path(FOLDER).glob("*.npz")) if FOLDER else []
SETS = [(path, key) for path in FILES for key in np.load(path).files if key.startswith("d_")]
needs_silicon = pytest.mark.skipif(
    not FOLDER, reason="FLOATSIM_SILICON names no folder; the head of this file says where the outputs are published"
)

ARCHITECTURE = {
    "V100": "volta", "A100": "ampere", "A2": "ampere", "Ada": "ada", "L40S": "ada", "H100": "hopper", "H200": "hopper",
    "B200": "blackwell",
}  # fmt: skip


def instruction(card: str, fmt: fs.FloatFormat, key: str) -> str:
    """Which instruction gave the outputs. TF32 rows have K = 4; the rest of the instruction is zeros."""
    if fmt == fs.TF32:
        return "mma.m16n8k8.tf32"
    if fmt.bits == 8:
        return "wgmma.k32" if card in ("H100", "H200") and key == "d_fp32" else "mma.m16n8k32"
    return {"V100": "mma.m8n8k4", "H100": "mma.m16n8k16", "H200": "mma.m16n8k16", "B200": "mma.m16n8k16"}.get(
        card, "mma.m16n8k8"
    )


def rows(path: Path, key: str):
    """(row of the table, format, codes of a, of b, of c, of d)."""
    card, _, name = path.stem.partition("_")
    data = {k: v.view(np.float32) for k, v in np.load(path).items()}
    fmt, output = fs.as_format(name), fs.FP16 if key == "d_fp16" else fs.FP32
    row = select(ARCHITECTURES[ARCHITECTURE[card]], instruction(card, fmt, key), fmt, fmt, output)
    c = data["c_fp32"]
    if row.name == "wgmma.k32":
        c = np.zeros_like(c)
    return row, fmt, fs.encode(data["a"], fmt), fs.encode(data["b"], fmt), fs.encode(c, output), fs.encode(
        data[key], output
    )  # fmt: skip


@needs_silicon
def test_nothing_is_missing():
    assert len(FILES) == 32
    assert len(SETS) == 48


@needs_silicon
@pytest.mark.parametrize(("path", "key"), SETS, ids=lambda x: x.stem if isinstance(x, Path) else x)
def test_every_row(path, key):
    row, fmt, a, b, c, d = rows(path, key)
    assert row.evidence is Evidence.SILICON
    assert path.stem.partition("_")[0].replace("Ada", "RTX 1000") in row.cards
    got = [dot(row, *terms, fmt, fmt, start).code for *terms, start in zip(a.tolist(), b.tolist(), c.tolist())]
    assert len(got) == 1000
    assert np.array_equal(got, d)
