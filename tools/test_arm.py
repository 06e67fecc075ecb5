"""Run tests of bits on an emulated 64-bit Arm processor: `python tools/test_arm.py`, on Debian 12 for x86-64.

    python tools/test_arm.py [--minutes M] [--full] [FILE OF TESTS ...]

The emulator is qemu, which is no silicon: it shows what the compiled code computes, not what a processor does. The
folder .venv-arm gets Debian's Python for Arm and the libraries' wheels for Arm, 250 MB, once. The files run one after
another, for M minutes (default 5); then the last one is stopped, and what it found until then counts. Without files, a
sample runs. With --full the long tests of the files run, without it the quick ones. Where the emulator or the packages
cannot be had, the reason is printed and the exit code is 0. Tests that start other processes are left out: the host
cannot start a program for Arm.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from dev import ROOT, CannotRunError

FOLDER = ROOT / ".venv-arm"
EMULATOR = "qemu-aarch64-static"
SAMPLE = [
    "tests/accumulation/test_libraries.py", "tests/accumulation/test_triton_dots.py",
    "tests/accumulation/test_recorded_kernels.py", "tests/accumulation/test_reordered_sums.py", "tests/formats",
]  # fmt: skip
# Python and what its standard library loads.
PACKAGES = [
    "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "python3.11", "libc6", "libgcc-s1",
    "libstdc++6", "zlib1g", "libexpat1", "libssl3", "libffi8", "libbz2-1.0", "liblzma5", "libsqlite3-0", "libatomic1",
    "libncursesw6", "libtinfo6", "libreadline8", "libuuid1", "libcrypt1",
]  # fmt: skip
PLATFORMS = ["manylinux2014", *(f"manylinux_2_{minor}" for minor in (17, 24, 26, 27, 28, 31, 34))]
OF_TESTS = ("pytest", "hypothesis", "gmpy2")
WITHOUT_PROCESSES = "not process and not subprocess and not loads_its_parts and not imports_no and not is_lazy"


def _run(command: list[str], folder: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-4:])
        raise CannotRunError(f"{command[0]} {command[1]} failed:\n{last}")


def emulator() -> str:
    """Return the path of qemu, which is installed if that is possible."""
    if shutil.which(EMULATOR) is None:
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            raise CannotRunError(f"{EMULATOR} is missing. On Debian: sudo apt install qemu-user-static")
        _run(["apt-get", "update", "-qq"])
        _run(["apt-get", "install", "-y", "-qq", "qemu-user-static"])
    return shutil.which(EMULATOR) or EMULATOR


def requirements() -> list[str]:
    """Return the dependencies of the project, and of the tests that run here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tests = [each for each in project["optional-dependencies"]["test"] if each.startswith(OF_TESTS)]
    return [*project["dependencies"], *(each for each in tests if not each.startswith("pytest-"))]


def made() -> None:
    """Make the folder with Python and the libraries for Arm, unless that was done."""
    if (FOLDER / "complete").exists():
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name in ("lists/partial", "packages", "root", "wheels", "site"):
        (FOLDER / name).mkdir(parents=True)
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise CannotRunError("apt-get and dpkg are missing: Python for Arm comes from Debian's packages")
    options = ["-oAPT::Architecture=arm64", "-oAPT::Architectures=arm64", "-oDir::State::status=/dev/null"]
    options.append(f"-oDir::State::Lists={FOLDER / 'lists'}")
    _run(["apt-get", *options, "update", "-qq"])
    _run(["apt-get", *options, "download", "-qq", *PACKAGES], FOLDER / "packages")
    for package in sorted((FOLDER / "packages").glob("*.deb")):
        _run(["dpkg", "-x", str(package), str(FOLDER / "root")])
    platforms = [word for name in PLATFORMS for word in ("--platform", f"{name}_aarch64")]
    tags = ["--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--abi", "abi3", "--abi", "none"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--only-binary=:all:"]
    _run([*pip, "-d", str(FOLDER / "wheels"), *tags, *platforms, *requirements()])
    for wheel in sorted((FOLDER / "wheels").glob("*.whl")):
        _run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(FOLDER / "site")])
    (FOLDER / "complete").touch()


def _tested(command: list[str], variables: dict[str, str], seconds: float) -> tuple[int | None, list[str]]:
    """Return the exit code of tests, None if they were stopped after some seconds, and the lines that they printed."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:  # a pipe loses its content when the time is over
        try:
            code: int | None = subprocess.run(
                command, cwd=ROOT, env=variables, stdout=output, stderr=subprocess.STDOUT, timeout=seconds, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
        output.seek(0)
        return code, output.read().splitlines() or ["no output"]


def main() -> int:
    """Run the files of tests and print a line for each. Return 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="stop after that many minutes (default: 5)")
    parser.add_argument("--full", action="store_true", help="run the long tests in place of the quick ones")
    parser.add_argument("files", nargs="*", default=SAMPLE, help="files of tests (default: a sample)")
    given = parser.parse_args()
    try:
        program = emulator()
        made()
    except CannotRunError as missing:
        print(f"Arm: not run: {missing}")
        return 0
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [FOLDER / "site", ROOT, ROOT / "kernels"])),
        "PYTHONHOME": str(FOLDER / "root/usr"),
        "NUMBA_CACHE_DIR": str(FOLDER / "numba"),
        "PYTHONUNBUFFERED": "1",
    }
    python = [program, "-L", str(FOLDER / "root"), str(FOLDER / "root/usr/bin/python3.11")]
    marked, start, failed = "full" if given.full else "not full", time.monotonic(), False
    for file in given.files:
        left = 60 * given.minutes - (time.monotonic() - start)
        if left <= 0:
            print(f"Arm: {file}: not run, {given.minutes:g} minutes are over")
            continue
        pytest = [*python, "-m", "pytest", file, "-q", "-m", marked, "-k", WITHOUT_PROCESSES, "-rf"]
        code, lines = _tested([*pytest, "-p", "no:cacheprovider"], variables, left)
        if code is None:
            marks = "".join(line.split()[0] for line in lines if re.match(r"[.sxXFE]+(\s+\[|$)", line))
            print(f"Arm: {file}: stopped, {given.minutes:g} minutes are over; {marks.count('.')} passed", flush=True)
            wrong = "F" in marks or "E" in marks
        else:
            print(f"Arm: {file}: exit code {code}, {lines[-1].strip('= ')}", flush=True)
            wrong = code not in (0, 5)  # 5: the file has no such test
        if wrong:
            print("\n".join(lines[-40:]))
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
