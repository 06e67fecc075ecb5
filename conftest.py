"""Fixtures and warning filters of all tests, including the examples in the docstrings."""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent

# The examples in the docstrings of floatsim.torch need the extra `torch`. Those of floatsim.triton need `triton`, in a
# process with TRITON_INTERPRET=1, which tests/triton_interpreter/test_run.py starts.
TORCH = importlib.util.find_spec("torch") is not None
TRITON = TORCH and importlib.util.find_spec("triton") is not None and os.environ.get("TRITON_INTERPRET") == "1"
collect_ignore_glob = [
    *([] if TORCH else ["floatsim/torch/*.py", "tests/torch_emulation/[!t]*.py"]),
    *([] if TRITON else ["floatsim/triton/*.py", "tests/triton_interpreter/[!t]*.py"]),
]

# Modules whose examples compile the kernels of many descriptions. `make test` leaves them to `make test-full`. A
# docstring has no place for a mark.
FULL_EXAMPLES = {
    "floatsim.hardware.captures.published",
    "floatsim.testing.assertions",
    "floatsim.testing.strength.check_strength",
    "floatsim.testing.compare.input_strength",
    "floatsim.testing.compare.faults",
    "floatsim.testing.identify.identification",
    "floatsim.testing.strength.published",
    "floatsim.testing.vectors.testfloat",
    "floatsim.testing.vectors.truth_tables",
}

# The formats for which `make test` runs the tests with the mark `formats`: one of each width, one of each kind of
# special values, and the custom formats at the ends of what a format can be. `make test-full` runs them for all.
QUICK_FORMATS = {
    "FP32", "FP16", "BF16", "E4M3", "E5M2", "E2M1", "E8M0", "smallest", "no subnormals", "below one", "above one",
    "one exponent",
}  # fmt: skip


def own_modules() -> str:
    """Return a regular expression, without a colon, that matches the names of floatsim's own modules.

    The code of a page runs as `docs_page`.
    """
    names = ("floatsim", "floatsim_kernels", "benchmarks", "notebooks", "studies", "tests", "oracles", "conftest")
    return rf"({'|'.join(names)}|docs_\w+)(\.|$)"


def warning_filters(*, strict: bool) -> list[str]:
    """Return the warning filters of a test run, in pytest's notation. Later lines take precedence.

    A warning that Python attributes to one of floatsim's own modules is an error. Deprecations are excepted: a new
    version of a dependency can add one at any time, and `stacklevel` attributes it to the caller, floatsim. A strict
    run makes every warning an error, deprecations and the warnings of third-party modules included. An exception that
    no code catches, in a thread or in `__del__`, reaches pytest as a warning, and is an error in both.
    """
    if strict:
        return ["error"]
    deprecations = ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning")
    uncaught = ("PytestUnraisableExceptionWarning", "PytestUnhandledThreadExceptionWarning")
    return [
        f"error:::{own_modules()}",
        *(f"error::pytest.{category}" for category in uncaught),
        *(f"default::{category}" for category in deprecations),
    ]


def pytest_configure(config: pytest.Config) -> None:
    """Set the warning filters: strict with FLOATSIM_STRICT_WARNINGS=1, which .ci/run sets for the newest versions."""
    for line in warning_filters(strict=os.environ.get("FLOATSIM_STRICT_WARNINGS", "0") not in ("", "0")):
        config.addinivalue_line("filterwarnings", line)


def formats_of(item: pytest.Item) -> set[str]:
    """Return the names of the formats among the parameters of a test."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return {x.name for x in parameters if type(x).__name__ == "FloatFormat"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the marks that follow from a table: those of examples, and those of tests that run for many formats."""
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            item.add_marker("versions")
            if item.name.startswith(tuple(f"{module}." for module in FULL_EXAMPLES)) or item.name in FULL_EXAMPLES:
                item.add_marker("full")
        elif item.get_closest_marker("formats") and not formats_of(item) <= QUICK_FORMATS:
            item.add_marker("full")


def pytest_collection_finish() -> None:
    """Except the collected tests from garbage collection: they are 700 000 objects, which take it 0.5 s each time."""
    gc.freeze()


FULL_FILE = re.compile(r"^pytestmark = (\[[^\]]*)?pytest\.mark\.full\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no test file whose every test is marked `full` in a run of the quick tests: that takes ten seconds."""
    if config.getoption("markexpr") != "not full" or not re.fullmatch(r"test_\w+\.py", collection_path.name):
        return None
    return True if FULL_FILE.search(collection_path.read_text(encoding="utf-8")) else None


@pytest.fixture(autouse=True)
def _no_figures_are_left():
    """Close all figures: pyplot keeps every figure until it is closed, and warns of many."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
