"""What all tests share."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")  # no windows


def pytest_report_header() -> str:
    try:
        import oracles
    except ImportError as error:  # tests on a GPU need no oracle, and may run where nothing can be installed
        return f"samples: no oracles ({error})"
    return f"samples: FLOATSIM_TEST_SEED={oracles.test_seed()} repeats them (by default from the commit's hash)"


@pytest.fixture
def run(capsys):
    """(exit code, stdout, stderr) of a command line."""
    from floatsim import cli

    def call(*arguments):
        with pytest.raises(SystemExit) as exit_:
            cli.main([str(a) for a in arguments])
        return (exit_.value.code, *capsys.readouterr())

    return call


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    """The working directory of a test that may leave files."""
    monkeypatch.chdir(tmp_path)
