"""Published outputs of GPUs, reproduced: every row of every file in the folder that FLOATSIM_SILICON names.

The outputs were published by F. A. Khattak and M. Mikaitis with "Accurate Models of NVIDIA Tensor Cores", in
north-numerical-computing/MATLAB-tensor-core, folder model_validation/ (BSD-2-Clause). The folder has them as
`<GPU>_<format>.npz`. `floatsim.hardware.captures.published` defines their contents and the instruction of each.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from floatsim.hardware.captures.published import GPUS, KEYS, read_npz
from floatsim.reference.tensorcore.dot import dot
from floatsim.tensorcore.instructions import Evidence

pytestmark = pytest.mark.full

FOLDER = os.environ.get("FLOATSIM_SILICON")
FILES = sorted(Path(FOLDER).glob("*.npz")) if FOLDER else []
SETS = [(path, key) for path in FILES for key in np.load(path).files if key.startswith("d_")]
needs_silicon = pytest.mark.skipif(
    not FOLDER, reason="FLOATSIM_SILICON names no folder; the head of this file says where the outputs are published"
)


def rows(path: Path, key: str):
    """(row of the table, format, codes of a, of b, of c, of d)."""
    (found,) = (each for each in read_npz(path) if each.unit.output == KEYS[key])
    return found.unit.row, found.unit.a, found.inputs.a, found.inputs.b, found.inputs.c, found.d


@needs_silicon
def test_nothing_is_missing():
    assert len(FILES) == 32
    assert len(SETS) == 48


@needs_silicon
@pytest.mark.parametrize(("path", "key"), SETS, ids=lambda x: x.stem if isinstance(x, Path) else x)
def test_every_row(path, key):
    row, fmt, a, b, c, d = rows(path, key)
    assert row.evidence in (Evidence.SILICON, Evidence.PROJECT)
    assert GPUS[path.stem.partition("_")[0]].name in row.published.split(", ")
    got = [dot(row, *terms, fmt, fmt, start).code for *terms, start in zip(a.tolist(), b.tolist(), c.tolist())]
    assert len(got) == 1000
    assert np.array_equal(got, d)
