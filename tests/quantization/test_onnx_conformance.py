"""The table of docs/onnx.md: its rows, and some of them again with the packages onnx and onnxruntime."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs

ROOT = Path(__file__).parents[2]
STORED = json.loads((Path(__file__).parent / "onnx_conformance.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def conformance():
    pytest.importorskip("ml_dtypes")
    spec = importlib.util.spec_from_file_location("onnx_conformance", ROOT / "tools" / "onnx_conformance.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look the module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_page_has_the_stored_rows(conformance):
    rows = [conformance.Row(**row) for row in STORED["rows"]]
    page = conformance.PAGE.read_text(encoding="utf-8")
    assert conformance.table(rows) in page
    assert all(f"{name} {version}" in page for name, version in STORED["versions"].items())
    cases = list(conformance.cases())
    assert len(rows) == len(cases) * len(conformance.LIBRARIES)
    assert {row.target for row in rows} == {*conformance.TARGETS, *conformance.INTEGERS}


def test_expected_results(conformance):
    """Rows of the tables of ONNX's page "Float stored in 8 bits", and of QuantizeLinear, by hand."""
    x = fs.array([0.0, -0.0, np.nan, np.inf, -np.inf, 448.0, 464.0, 465.0, 1e6, -1e6], "fp32")
    e4m3 = {1: "00 80 7F 7E FE 7E 7E 7E 7E FE", 0: "00 80 7F 7F FF 7E 7E 7F 7F FF"}
    fnuz = {1: "00 00 80 7F FF 7F 7F 7F 7F FF", 0: "00 00 80 80 80 80 80 80 80 80"}
    for target, expected in (("FLOAT8E4M3FN", e4m3), ("FLOAT8E4M3FNUZ", fnuz)):
        for saturate, codes in expected.items():
            wanted = np.array([int(code, 16) for code in codes.split()], np.uint8)
            got, known = conformance.expected_cast(x, target, saturate)
            assert conformance.same(got, wanted, target).all(), (target, saturate)
            assert known.all()
    powers = fs.array([1.0, 1.25, 1.5, 1.75, -1.0], "fp32")
    for mode, codes in (("up", [127, 128, 128, 128]), ("down", [127] * 4), ("nearest", [127, 127, 128, 128])):
        got, known = conformance.expected_cast(powers, "FLOAT8E8M0", 1, mode)
        assert got[known].tolist() == codes
    got, known = conformance.expected_quantized(fs.array([2.5, 3.5, -1e9, 1e9, np.nan], "fp32"), "INT4", 1.0, 1)
    assert got[known].tolist() == [2, 4, 0xF8, 7]
    x = fs.array([0.5, 1.5, -2.5, 7.5, 7.25, -8.5, -8.75, 9.0, -0.25, np.nan, np.inf], "fp32")
    got, known = conformance.expected_cast(x, "INT4", 1)
    assert got[known].tolist() == [0, 2, 0xFE, 7, 0xF8, 0]
    assert known.tolist() == [True] * 3 + [False, True, True] + [False] * 2 + [True] + [False] * 2
    got, known = conformance.expected_cast(x, "UINT2", 1)
    assert got[known].tolist() == [0, 2, 0]


def test_special_values_of_float8e8m0(conformance):
    """The table of the operator Cast: 0, -0, NaN, infinity, and numbers beyond the largest and the smallest one."""
    x = fs.array([0.0, -0.0, np.nan, np.inf, -np.inf, 3e38, 1e-45, -1.0, 2.0**127, 2.0**-127], "fp32")
    for mode, saturate, codes, outside in (
        ("up", 1, [0, 0xFF, 0xFE, 0xFE, 0, 254, 0], [1, 4, 7]),
        ("nearest", 0, [0xFF, 0xFF, 0xFF, 254, 0], [1, 4, 5, 6, 7]),
        ("down", 1, [254, 0], [0, 1, 2, 3, 4, 5, 6, 7]),
    ):
        got, known = conformance.expected_cast(x, "FLOAT8E8M0", saturate, mode)
        assert (got[known].tolist(), np.flatnonzero(~known).tolist()) == (codes, outside), mode


QUICK = [("Cast", "FLOAT16", "FLOAT8E5M2", 0, 1.0), ("Cast", "BFLOAT16", "FLOAT8E8M0", 1, 1.0),
         ("QuantizeLinear", "FLOAT", "UINT4", 1, 1.0), ("QuantizeLinear", "FLOAT16", "FLOAT4E2M1", 1, 1.0)]  # fmt: skip


@pytest.mark.parametrize("case", QUICK, ids=lambda case: "-".join(map(str, case[:3])))
def test_rows_are_computed_again(conformance, case):
    pytest.importorskip("onnx", reason="the extra onnx")
    pytest.importorskip("onnxruntime", reason="the extra onnx")
    found = [asdict(row) for row in conformance.compare(*case)]
    if any(conformance.versions()[name] != STORED["versions"][name] for name in ("onnx", "onnxruntime")):
        pytest.skip(f"the table was made with {STORED['versions']}: run tools/onnx_conformance.py")
    for row in found:
        assert row in STORED["rows"]
