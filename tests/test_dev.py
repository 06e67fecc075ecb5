"""The commands of the project: the same with make and without, and errors that say what would work."""

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DEV = runpy.run_path(str(ROOT / "tools/dev.py"))


def dev(*arguments):
    command = [sys.executable, str(ROOT / "tools/dev.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_make_has_every_command():
    (line,) = re.findall(r"^COMMANDS := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {*line.split(), "notebooks-update"} == {*DEV["COMMANDS"], "install", "clean"}


def test_extras_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {command.extra for command in DEV["COMMANDS"].values()} <= {"", *extras}
    for extra, contained in DEV["CONTAINED"].items():
        assert {extra, *contained} <= {"", *extras}


def test_without_a_command_all_are_listed():
    listed = dev()
    assert listed.returncode == 0
    for name, command in DEV["COMMANDS"].items():
        assert f"  {name:<20}{command.help}" in listed.stdout.splitlines()


def test_unknown_command():
    refused = dev("tests")
    assert refused.returncode == 2
    assert "invalid choice: 'tests'" in refused.stderr
    assert "test-full" in refused.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="the interpreters of this test are shell scripts")
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 1", "floatsim needs Python 3.11 or newer"),
        ('case "$2" in *ensurepip*) exit 1;; esac', "has no venv and ensurepip modules"),
        ('[ "$1" = -c ]', "-m venv"),
    ],
    ids=["old", "no-venv", "venv-fails"],
)
def test_an_interpreter_that_cannot_make_an_environment(tmp_path, script, message):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    python.chmod(0o755)
    refused = dev("--venv", str(tmp_path / "env"), "--python", str(python), "install")
    assert refused.returncode == 1
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr


def test_an_extra_is_installed_once(tmp_path):
    """What is installed is read from files in the environment: newer than pyproject.toml, or it is done again."""
    environment = DEV["Environment"](str(tmp_path / "env"))
    done = []
    environment.run = done.append
    environment.folder.mkdir()
    environment._mark("created")
    environment.install("test")
    environment.install("test")
    environment.install()  # contained in "test"
    assert [arguments[-1] for arguments in done] == [".[test]"]
    environment.install("dev")
    assert [arguments[-1] for arguments in done] == [".[test]", ".[dev]"]
