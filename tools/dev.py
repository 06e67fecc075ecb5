"""Run the commands of the project on every system: `python tools/dev.py test`. It needs Python 3.11 or newer.

    python tools/dev.py [--venv FOLDER] [--python INTERPRETER] [COMMAND [ARGUMENT ...]]

Without a command it lists them. It makes an environment, installs what the command needs, and runs it there. The first
run of a command needs the network, later runs do not: files in the environment say what is installed already. Further
arguments are passed on: `python tools/dev.py test -k rounding`. The Makefile runs this file.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OLDEST = (3, 11)

# What else is there once an extra is installed: a later command that needs less has nothing to install.
CONTAINED = {"test": [""], "dev": ["", "test"], "test-libraries": ["", "test", "notebooks"], "notebooks": [""]}


@dataclass(frozen=True)
class Command:
    """What is done, the extra of pyproject.toml that it needs, and its steps: arguments of the environment's Python.

    Arguments of the user go to the last step. `variables` are added to the steps' environment variables.
    """

    help: str
    extra: str
    steps: Sequence[Sequence[str]]
    variables: Mapping[str, str] = field(default_factory=dict)


def _pytest(*arguments: str) -> list[str]:
    return ["-m", "pytest", *arguments]


LIBRARIES = "test_torch or test_jax or test_interop or with_libraries"
COMMANDS = {
    "demo": Command(
        "the main job: survey real matrices in five formats, write one picture", "", [["-m", "floatsim", "survey"]]
    ),
    "test": Command("the quick tests", "test", [_pytest("-n", "2", "--dist", "loadfile", "-m", "not full")]),
    "test-full": Command("all tests", "test", [_pytest("-n", "2")]),
    "test-pythons": Command(
        "tests that depend on versions, under every Python here and with the lowest versions",
        "",
        [["tools/test_pythons.py"]],
    ),
    "test-arm": Command(
        "tests of bits on an emulated Arm processor; needs Debian 12, and root for qemu", "", [["tools/test_arm.py"]]
    ),
    "test-libraries": Command(
        "exchange of arrays with torch and JAX, floatsim.torch and its notebooks",
        "test-libraries",
        [
            _pytest(
                *["tests/arrays", "tests/operators", "tests/training", "tests/hardware", "tests/test_docs.py"],
                *["-k", LIBRARIES],
            ),
            _pytest(
                *["tests/torch_emulation", "floatsim/torch", "tests/triton_interpreter"],
                "tests/testing/test_real_kernels.py",
            ),
            ["notebooks/run.py", "07_pytorch", "09_twin"],
        ],
    ),
    "notebooks": Command(
        "run the notebooks and compare with what is stored, in at most ten minutes",
        "notebooks",
        [["notebooks/run.py"]],
    ),
    "notebooks-update": Command(
        "run those that are outdated, or the named ones, and store what comes out",
        "notebooks",
        [["notebooks/run.py", "--update"]],
    ),
    "slides": Command(
        "the pictures of the notebooks as slides, out/slides.html: one file, no network", "", [["notebooks/slides.py"]]
    ),
    "test-exhaustive": Command(
        "whole input spaces (long; resumes where it was stopped)", "test", [["-m", "tests.exhaustive"]]
    ),
    "bench": Command(
        "speed against other libraries, in one interleaved run (twenty minutes, forty with AVX-512)",
        "bench",
        [["-m", "benchmarks.guard"], ["-m", "benchmarks"]],
    ),
    "lint": Command(
        "ruff (rules and format), mypy, and the generated types",
        "dev",
        [
            ["-m", "ruff", "check", "."],
            ["-m", "ruff", "format", "--check", "."],
            ["-m", "mypy"],
            ["tools/write_stubs.py", "--check"],
        ],
    ),
    "docs": Command(
        "the documentation as a site with a search, into build/site; any warning fails",
        "docs",
        [["-m", "mkdocs", "build", "--strict", "--quiet"], ["-m", "tools.site.check", "build/site"]],
        {"NO_MKDOCS_2_WARNING": "1"},  # Material's announcement, which --strict takes for a warning
    ),
    "build": Command("the wheel, into dist/", "", [["-m", "pip", "wheel", "--no-deps", "--wheel-dir", "dist", "."]]),
}
CACHES = ("build", "dist", "out", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis")


class CannotRunError(Exception):
    """A command that cannot go on, with the message for the user."""


class Environment:
    """A virtual environment in which commands run.

    `folder` is relative to the project or absolute. `python` is the interpreter that makes it: this one by default.
    """

    def __init__(self, folder: str = ".venv", python: str | None = None) -> None:
        self.folder = ROOT / folder
        self.maker = python or sys.executable
        self.python = self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def _create(self) -> None:
        if self._is_marked("created"):
            return
        check = f"import sys; sys.exit(sys.version_info < {OLDEST})"
        if subprocess.run([self.maker, "-c", check], check=False).returncode:
            raise CannotRunError(
                f"floatsim needs Python 3.11 or newer, and {self.maker} is older. Run this file with a newer one."
            )
        if subprocess.run(
            [self.maker, "-c", "import ensurepip, venv"], check=False, stderr=subprocess.DEVNULL
        ).returncode:
            raise CannotRunError(
                f"{self.maker} has no venv and ensurepip modules. On Debian and Ubuntu: sudo apt install python3-venv"
            )
        print(f"Creating {self.folder} with {self.maker}", flush=True)
        if subprocess.run([self.maker, "-m", "venv", str(self.folder)], check=False).returncode:
            raise CannotRunError(f"{self.maker} -m venv {self.folder} failed")
        self._mark("created")

    def _stamp(self, name: str) -> Path:
        return self.folder / f".{name}"

    def _is_marked(self, name: str) -> bool:
        return self._stamp(name).exists()

    def _mark(self, name: str) -> None:
        self._stamp(name).touch()

    def install(self, extra: str = "") -> None:
        """Install the project with one of its extras, unless that was done since pyproject.toml changed."""
        self._create()
        stamp = self._stamp(f"installed-{extra}" if extra else "installed")
        if stamp.exists() and stamp.stat().st_mtime >= (ROOT / "pyproject.toml").stat().st_mtime:
            return
        # Without --no-compile, pip compiles every module of every package, which takes twenty seconds. Python
        # compiles those that it imports.
        target = f".[{extra}]" if extra else "."
        self.run(["-m", "pip", "--disable-pip-version-check", "install", "--no-compile", "-e", target])
        for name in [extra, *CONTAINED.get(extra, [])]:
            self._mark(f"installed-{name}" if name else "installed")

    def run(self, arguments: Sequence[str]) -> None:
        """Run the environment's Python in the project's folder. An exit code other than 0 ends the command with it."""
        print(shlex.join(["python", *arguments]), flush=True)
        if code := subprocess.run([str(self.python), *arguments], cwd=ROOT, check=False).returncode:
            raise SystemExit(code)


def clean() -> None:
    """Remove the environments, the caches and the results of builds."""
    for path in [*ROOT.glob(".venv*"), *(ROOT / name for name in CACHES), *ROOT.rglob("__pycache__")]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def listing() -> str:
    """Return the list of commands."""
    lines = ["floatsim: low-precision floating point, bit for bit. Commands:", ""]
    rows = {name: command.help for name, command in COMMANDS.items()}
    rows |= {"install": "make the environment, and install an extra: install test", "clean": "remove what was made"}
    last = "On a machine with a GPU, without installing anything: bash tools/on_device.sh OUT"
    return "\n".join([*lines, *(f"  {name:<20}{text}" for name, text in rows.items()), "", last])


def main() -> None:
    """Read the command line and run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", default=".venv", help="the folder of the environment (default: .venv)")
    parser.add_argument("--python", help="the interpreter of a new environment (default: the one that runs this file)")
    parser.add_argument("command", nargs="?", choices=[*COMMANDS, "install", "clean"], help="what to do")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed on to the command")
    given = parser.parse_args()
    environment = Environment(given.venv, given.python)
    if given.command is None:
        print(listing())
    elif given.command == "clean":
        clean()
    elif given.command == "install":
        for extra in given.arguments or [""]:
            environment.install(extra)
    else:
        command = COMMANDS[given.command]
        environment.install(command.extra)
        os.environ.update(command.variables)
        for step in command.steps[:-1]:
            environment.run(step)
        environment.run([*command.steps[-1], *given.arguments])


if __name__ == "__main__":
    try:
        main()
    except CannotRunError as stopped:
        sys.exit(str(stopped))
