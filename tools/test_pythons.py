"""Run tests under every CPython from 3.11 on that this machine has, and once with the lowest versions of dependencies.

    python tools/test_pythons.py [--without X.Y] [--newest] [ARGUMENT OF PYTEST ...]

Pythons are searched on PATH, in pyenv's versions, and by the launcher `py` of Windows. One of each X.Y is used, in an
environment .venv-X.Y of its own; .venv-lowest has Python 3.11 and the versions of tests/constraints-lowest.txt. Without
arguments of pytest, the tests marked `versions` run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dev import OLDEST, ROOT, CannotRunError, Environment

ABOUT = """
import sys, sysconfig
import ensurepip, venv
if sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED"):
    print("%d.%d" % sys.version_info[:2])"""


@dataclass
class Outcome:
    """What one environment gave: a line of the table at the end, and whether it is a failure."""

    line: str
    failed: bool


def candidates() -> Iterator[str]:
    """Yield the paths of interpreters that may be on this machine."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    names = sorted({found.name for folder in folders for found in folder.glob("python3.*")})
    for name in names:
        if re.fullmatch(r"python3\.\d+(\.exe)?", name) and (path := shutil.which(name)):
            yield path
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for pattern in ("versions/*/bin/python", "pyenv-win/versions/*/python.exe"):
        yield from map(str, sorted(pyenv.glob(pattern)))
    if launcher := shutil.which("py"):
        listed = subprocess.run([launcher, "-0p"], capture_output=True, text=True, check=False).stdout
        yield from re.findall(r"\S+python\.exe", listed)


def pythons() -> dict[str, str]:
    """Return one interpreter for each version X.Y from 3.11 on that can make environments, in the order of versions."""
    found: dict[tuple[int, ...], str] = {}
    for path in candidates():
        about = subprocess.run([path, "-c", ABOUT], capture_output=True, text=True, check=False).stdout.strip()
        version = tuple(int(part) for part in about.split(".")) if about else ()
        if version >= OLDEST:
            found.setdefault(version, path)
    return {".".join(map(str, version)): found[version] for version in sorted(found)}


def declared(version: str) -> bool:
    """Return whether pyproject.toml declares the version: another one may be newer than the dependencies."""
    return f'Python :: {version}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def tested(name: str, python: str, arguments: list[str], extra: dict[str, str]) -> Outcome:
    """Run pytest in the environment .venv-NAME, with additional environment variables."""
    environment = Environment(f".venv-{name}", python)
    # The environment keeps the compiled kernels.
    variables = {**os.environ, **extra, "NUMBA_CACHE_DIR": str(environment.folder / "numba")}
    print(f"\n== {name}: {python} ==", flush=True)
    installing = [python, "tools/dev.py", "--venv", str(environment.folder), "install", "test"]
    installed = subprocess.run(installing, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    if installed.returncode:
        print("\n".join((installed.stdout + installed.stderr).splitlines()[-20:]))
        return Outcome(f"{name}: the dependencies could not be installed", name == "lowest" or declared(name))
    last = ""
    command = [str(environment.python), "-m", "pytest", "-n", "2", "--dist", "loadfile", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, encoding="utf-8", errors="replace",
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip(" =\n") or last
    return Outcome(f"{name}: {python}, exit code {process.returncode}, {last}", process.returncode != 0)


def main() -> int:
    """Run the tests in each environment and print a table. Return 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without", metavar="X.Y", help="leave out a Python that has been tested already")
    parser.add_argument("--newest", action="store_true", help="of the others, only the newest")
    given, arguments = parser.parse_known_args()
    arguments = arguments or ["-m", "versions and not full"]
    found = pythons()
    if not found:
        raise CannotRunError("No CPython 3.11 or newer with venv and ensurepip was found.")
    print("Pythons found:", *(f"    {version}  {path}" for version, path in found.items()), sep="\n")
    others = [version for version in found if version != given.without]
    if given.newest:
        others = others[-1:]
    outcomes = [tested(version, found[version], arguments, {"FLOATSIM_STRICT_WARNINGS": "1"}) for version in others]
    if "3.11" in found:
        constraints = {"PIP_CONSTRAINT": str(ROOT / "tests/constraints-lowest.txt")}
        outcomes.append(tested("lowest", found["3.11"], arguments, constraints))
    else:
        outcomes.append(Outcome("lowest: not run, these versions need Python 3.11", False))
    print("\nResults:", *(f"    {outcome.line}" for outcome in outcomes), sep="\n")
    return int(any(outcome.failed for outcome in outcomes))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CannotRunError as stopped:
        sys.exit(str(stopped))
