"""AMD's models compared with the MATLAB models of Khattak and Mikaitis, which ran under GNU Octave.

`tools/matlab_tensor_core.py` made the records. A record has the SHA-256 of all results of the toolbox, and the results
that differ from floatsim's. So every result is compared, though the file is small. A NaN equals every NaN, and zeros
are equal. The known differences, each tested below:

- A product of 2^128 or more is an infinity. The toolbox's one is positive, whatever the sign of the product. floatsim
  and mmasim keep the sign.
- CDNA 2 flushes subnormal operands to zero. An infinity times a flushed number is NaN in floatsim and mmasim. The
  toolbox looks for infinities before it flushes the numbers.
- CDNA 3 with FP16, BF16 and TF32: the toolbox stops with an error under Octave if all products are zero and c is not.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs

ROOT = Path(__file__).parents[2]
STORED = json.loads((Path(__file__).parent / "matlab_tensor_core.json").read_text(encoding="utf-8"))
RECORDS = {f"{row['model']}-{row['format']}": row for row in STORED["results"]}


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("matlab_tensor_core", ROOT / "tools" / "matlab_tensor_core.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_model_has_a_record(tool):
    assert set(RECORDS) == {f"{model}-{informat}" for model, informat in tool.CASES}
    assert sum(row["rows"] for row in RECORDS.values()) >= 30_000


@pytest.mark.parametrize("row", RECORDS.values(), ids=RECORDS)
def test_all_results_equal_the_toolbox(tool, row):
    a, b, c, ours = tool.operands(row["format"], row["model"], row["rows"])
    fmt = fs.as_format(tool.CASES[row["model"], row["format"]][0])
    x, y, z = (np.asarray(fs.from_codes(codes, f).values, float) for codes, f in ((a, fmt), (b, fmt), (c, fs.FP32)))
    with np.errstate(invalid="ignore"):
        products = x * y
    ran = np.ones(len(c), bool)
    ran[row["failed"]] = False
    assert (products[~ran] == 0).all()
    assert (z[~ran] != 0).all()
    results = tool.canonical(ours)
    smallest = 2.0**fmt.emin
    for index, theirs in row["different"].items():
        i = int(index)
        assert results[i] != theirs
        results[i] = theirs
        assert np.isinf(np.uint32(theirs).view(np.float32))
        flushed = (abs(x[i]) > 0) & (abs(x[i]) < smallest) | (abs(y[i]) > 0) & (abs(y[i]) < smallest)
        infinite_times_flushed = ((np.isinf(x[i]) | np.isinf(y[i])) & flushed).any() and row["model"] == "MI210MC"
        assert infinite_times_flushed or (abs(products[i]) >= 2.0**128).any()
    assert tool.digest(results[ran]) == row["sha256"]
