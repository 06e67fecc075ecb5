"""What all tests share: the seed of the samples, and where reference material lies that the project does not ship."""

from __future__ import annotations

import os
import subprocess
import zlib
from pathlib import Path

import pytest
from hypothesis import settings

import floatsim

ROOT = Path(__file__).parents[1]

os.environ.setdefault("MPLBACKEND", "Agg")

# Examples are the same in every run of one commit, and the first call of a kernel may compile.
settings.register_profile("floatsim", deadline=None, derandomize=True)
settings.load_profile("floatsim")


def _commit() -> str:
    """The checkout's commit, or the package's version where this is no checkout."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        return found.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return floatsim.__version__


def _sample_seed() -> int:
    given = os.environ.get("FLOATSIM_TEST_SEED")
    return int(given) if given else zlib.crc32(_commit().encode())


SAMPLE_SEED = _sample_seed()


def pytest_report_header() -> str:
    return f"floatsim: samples drawn with FLOATSIM_TEST_SEED={SAMPLE_SEED} (by default from commit {_commit()[:12]})"


@pytest.fixture(scope="session")
def sample_seed() -> int:
    """Seeds whatever is too large to be tested whole: another sample at each commit, the same within one."""
    return SAMPLE_SEED


def _outside(variable: str) -> Path:
    given = os.environ.get(variable)
    if not given:
        pytest.skip(f"{variable} is not set")
    path = Path(given)
    if not path.exists():
        pytest.fail(f"{variable}={given} does not exist")
    return path


@pytest.fixture(scope="session")
def silicon() -> Path:
    """The folder of outputs that real GPUs produced; the project does not ship it."""
    return _outside("FLOATSIM_SILICON")


@pytest.fixture(scope="session")
def traps() -> Path:
    """The table of traps that the tests were written from; the project does not ship it."""
    return _outside("FLOATSIM_TRAPS")
