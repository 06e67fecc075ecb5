"""The pytest plugin, in runs of pytest of its own."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.full

pytest_plugins = ["pytester"]

INSTALLED = any(point.name == "floatsim" for point in importlib.metadata.entry_points(group="pytest11"))
LOAD = () if INSTALLED else ("-p", "floatsim.testing.pytest_plugin")

TESTS = """
import ml_dtypes
import numpy as np
import pytest
import floatsim as fs

@pytest.mark.floatsim(shape=(8, 40, 8), formats="bf16", result="bf16", kinds=["integers", "one_k"])
def test_kinds(floatsim_case):
    x = floatsim_case.a.astype(np.float32)
    assert floatsim_case.kind in ("integers", "one_k")
    fs.testing.assert_bit_equal(x, x)

def test_wrong():
    fs.testing.assert_bit_equal(np.float32([1.0, 2.0, 3.0]), np.float32([1.0, 2.0, 4.0]))

def test_scalars():
    assert ml_dtypes.bfloat16(1.0) == ml_dtypes.bfloat16(1.0078125)

def test_inputs(floatsim_inputs):
    assert floatsim_inputs((2, 3, 4), "fp16", "normal").a.shape == (2, 3)
"""


@pytest.fixture
def outcome(pytester):
    pytester.makepyfile(TESTS)
    return lambda *options: pytester.runpytest_inprocess(*LOAD, "-p", "no:cacheprovider", *options)


def test_cases_messages_and_reports(outcome, tmp_path):
    result = outcome(
        "--strict-markers", f"--floatsim-json={tmp_path / 'r.json'}", f"--floatsim-html={tmp_path / 'r.html'}"
    )
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(
        ["*1 of 3 elements (33.3 %) fail: every bit is equal", "*1 = 0x3F80 == 1.0078125 = 0x3F81", "*1 ulp of BF16"]
    )
    tests = json.loads((tmp_path / "r.json").read_text())["tests"]
    assert [(test["outcome"], len(test["comparisons"])) for test in tests] == [("passed", 1)] * 2 + [("failed", 1)]
    assert tests[2]["comparisons"][0]["first"][0]["index"] == [2]
    page = (tmp_path / "r.html").read_text()
    assert "test_wrong" in page and "[2] actual 3 = 0x40400000" in page and "3 tests with comparisons, 1 failed" in page


def test_the_marker_is_required(pytester):
    pytester.makepyfile("def test_it(floatsim_case): pass")
    result = pytester.runpytest_inprocess(*LOAD)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*the fixture floatsim_case needs a marker*"])


def test_the_import_loads_neither_numpy_nor_numba():
    """Each run of pytest pays for the import of the plugin."""
    code = "import pytest, sys, floatsim.testing.pytest_plugin; sys.exit(bool({'numpy', 'numba'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)
