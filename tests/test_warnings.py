"""Which warnings fail a test: the filters of the root conftest.py, tried in a small project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.full, pytest.mark.versions]

ROOT = Path(__file__).parents[1]

OWN = """
import warnings
import library

def warns_here():
    warnings.warn("own", UserWarning, stacklevel=1)

def warns_its_caller():
    warnings.warn("own", UserWarning, stacklevel=2)

def uses_deprecated():
    library.deprecated()

def computes():
    library.invalid_value()
"""
LIBRARY = """
import warnings

def deprecated():
    warnings.warn("do not call this", DeprecationWarning, stacklevel=2)

def invalid_value():
    warnings.warn("invalid value", RuntimeWarning, stacklevel=2)

def warns_here(category):
    warnings.warn("of the library itself", category, stacklevel=1)
"""
TESTS = """
import threading
import library
import pytest
from floatsim import part

def fails(): raise ValueError

def test_own_module(): part.warns_here()
def test_own_module_warns_the_test(): part.warns_its_caller()
def test_library_warns_of_own_call(): part.computes()
def test_thread_fails():
    thread = threading.Thread(target=fails)
    thread.start()
    thread.join()
def test_library_deprecates_what_own_module_calls(): part.uses_deprecated()
def test_library_deprecates_what_the_test_calls(): library.deprecated()
@pytest.mark.parametrize("category", [DeprecationWarning, UserWarning, RuntimeWarning, ResourceWarning])
def test_library_warns_of_itself(category): library.warns_here(category)
def test_no_warning(): pass
"""
ALWAYS_FAIL = {
    "test_own_module", "test_own_module_warns_the_test", "test_library_warns_of_own_call", "test_thread_fails",
}  # fmt: skip
FAIL_WHEN_STRICT = {
    "test_library_deprecates_what_own_module_calls", "test_library_deprecates_what_the_test_calls",
    *(f"test_library_warns_of_itself[{name}]" for name in
      ("DeprecationWarning", "UserWarning", "RuntimeWarning", "ResourceWarning")),
}  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "floatsim").mkdir()
    (folder / "tests").mkdir()
    (folder / "floatsim" / "__init__.py").touch()
    (folder / "floatsim" / "part.py").write_text(OWN, encoding="utf-8")
    (folder / "library.py").write_text(LIBRARY, encoding="utf-8")
    (folder / "tests" / "test_part.py").write_text(TESTS, encoding="utf-8")
    (folder / "pytest.ini").write_text(
        "[pytest]\naddopts = --import-mode=importlib\npythonpath = .\nmarkers = versions\n", encoding="utf-8"
    )
    shutil.copy(ROOT / "conftest.py", folder)
    return folder


@pytest.mark.parametrize(
    ("switch", "expected"),
    [("0", ALWAYS_FAIL), ("1", ALWAYS_FAIL | FAIL_WHEN_STRICT)],
    ids=["a user's run", "strict"],
)
def test_warnings_that_fail_a_test(project, switch, expected):
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHONPATH"))}
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-rA",
            *(part for plugin in ("cacheprovider", "xdist", "floatsim") for part in ("-p", f"no:{plugin}")), "tests",
        ],
        cwd=project, env=settings | {"FLOATSIM_STRICT_WARNINGS": switch}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    outcomes = {name: word for word, name in re.findall(r"^(PASSED|FAILED) \S+::(\S+)", done.stdout, re.MULTILINE)}
    assert {name for name, word in outcomes.items() if word == "FAILED"} == expected, done.stdout + done.stderr
    assert {name for name, word in outcomes.items() if word == "PASSED"} == (
        {"test_no_warning"} | ALWAYS_FAIL | FAIL_WHEN_STRICT
    ) - expected
