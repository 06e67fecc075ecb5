"""tools/on_device.sh on a GPU in NumPy, with a fault in each stage: nothing else is lost, and the summary names it.

Every fault runs in some stages, and every stage has some faults. FLOATSIM_EXHAUSTIVE=1 runs every fault in every stage,
which takes six minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from floatsim.hardware.tables.ptx_scalar import SCALARS
from tests.hardware.fake_cupy import write_package

ROOT = Path(__file__).parents[2]
STAGES = ("machine", "compile", "smoke", "capture", "replay", "probe", "tests", "bench", "compare")
INSTRUCTIONS = 4
"""The matrix instructions of compute capability 7.5."""
LAUNCHING = ("smoke", "capture", "probe", "bench", "compare")


ALL = os.environ.get("FLOATSIM_EXHAUSTIVE") == "1"


def some(values: Sequence[str], first: int) -> list[Any]:
    """Return test parameters of which two in three are skipped, unless all faults run."""
    skip = pytest.mark.skipif(not ALL, reason="takes minutes: set FLOATSIM_EXHAUSTIVE=1")
    return [pytest.param(x, marks=[skip] if i % 3 != first else []) for i, x in enumerate(values)]


class Run(NamedTuple):
    """A run of the script: its exit code, the files that it wrote, and the table of the summary."""

    code: int
    out: Path
    summary: str

    def row(self, stage: str) -> tuple[int, int, int, int]:
        """(expected, run, missing, differ) of a stage."""
        (line,) = (line for line in self.summary.splitlines() if line.startswith(f"{stage} ") and "  " in line)
        expected, run, missing, differ = map(int, line.split()[1:5])
        assert ("DID NOT RUN" in line) == (missing > 0 or expected == 0)
        return expected, run, missing, differ


def on_device(folder: Path, *options: str, gpu: str = "7.5", fault: str = "", seconds: float = 120) -> Run:
    """Run the script on a GPU in NumPy."""
    write_package(folder)
    command = ["bash", str(ROOT / "tools" / "on_device.sh"), str(folder / "out"), "--rows", "40", *options]
    names = {"PYTHON": sys.executable, "PYTHONPATH": str(folder), "FAKE_GPU": gpu, "FAKE_FAULT": fault}
    done = subprocess.run(
        [*command, "--seconds", str(seconds)], env=os.environ | names, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Run(done.returncode, folder / "out", (folder / "out" / "summary.txt").read_text())


def names_in(archive: Path) -> list[str]:
    with tarfile.open(archive) as tar:
        return tar.getnames()


def test_all_stages_but_the_tests(tmp_path):
    stages = [stage for stage in STAGES if stage != "tests"]
    run = on_device(tmp_path, "--stages", *stages)
    assert run.code == 0, run.summary
    assert sorted(p.name for p in run.out.iterdir()) == ["logs.tgz", "recordings.tgz", "summary.txt"]
    assert run.summary.startswith("a fake, compute capability 7.5 (turing)")
    assert [run.row(stage)[2:] for stage in stages] == [(0, 0)] * len(stages)
    files = INSTRUCTIONS + sum(row.runs_on((7, 5)) for row in SCALARS)
    assert [run.row(stage)[1] for stage in ("smoke", "capture", "replay")] == [INSTRUCTIONS, files, files]
    assert len([name for name in names_in(run.out / "recordings.tgz") if name.endswith(".npz")]) == files
    assert "logs/probe.jsonl" in names_in(run.out / "logs.tgz")


@pytest.mark.parametrize("gpu", some(["7.0", "8.0", "8.9", "9.0", "10.0", "12.0"], 0))
def test_every_instruction_of_a_gpu_runs(tmp_path, gpu):
    run = on_device(tmp_path, "--stages", "machine", "compile", "smoke", "capture", "replay", gpu=gpu, seconds=400)
    assert run.code == 0, run.summary
    assert run.row("capture")[1] == run.row("replay")[1] >= 2


FAULTS = [f"{kind}@{stage}" for kind in ("crash", "launch") for stage in LAUNCHING]


@pytest.mark.parametrize("fault", some(FAULTS, 1))
def test_a_fault_costs_its_sets_only(tmp_path, fault):
    """Each process of the stage loses the set of its second launch, or the one after it; the others run."""
    kind, _, stage = fault.partition("@")
    run = on_device(tmp_path, "--stages", "machine", stage, "compare" if stage != "compare" else "smoke", fault=fault)
    expected, ran, missing, _ = run.row(stage)
    assert run.code == 1, run.summary
    assert expected >= INSTRUCTIONS
    assert missing > 0
    assert ran > 0 or stage in ("probe", "bench"), run.summary  # one of their sets launches more than once
    assert ("signal 6" if kind == "crash" else "CUDA_ERROR_ILLEGAL_ADDRESS") in run.summary


@pytest.mark.parametrize("stage", some(LAUNCHING, 2))
def test_a_launch_that_never_returns_is_stopped(tmp_path, stage):
    run = on_device(tmp_path, "--stages", "machine", stage, "--patience", "0.3", fault=f"hang@{stage}")
    assert run.code == 1, run.summary
    assert run.row(stage)[2] > 0
    assert "it took too long" in run.summary or "time is over" in run.summary


@pytest.mark.parametrize("kind", ["crash", "hang"])
@pytest.mark.parametrize("stage", ["machine", "compile"])
def test_a_fault_of_a_stage_with_one_set(tmp_path, stage, kind):
    run = on_device(tmp_path, "--stages", *dict.fromkeys(["machine", stage, "smoke"]), "--patience", "0.3",
                    fault=f"{kind}@{stage}")  # fmt: skip
    assert run.code == 1, run.summary
    assert run.row(stage)[1] == 0
    assert run.row("smoke")[1] == INSTRUCTIONS


@pytest.mark.parametrize("kind", ["crash", "hang", "launch"])
def test_a_fault_of_the_replay(tmp_path, kind):
    run = on_device(tmp_path, "--stages", "machine", "capture", "replay", "compare", "--patience", "0.3",
                    fault=f"{kind}@replay")  # fmt: skip
    expected, ran, missing, _ = run.row("replay")
    assert run.code == 1, run.summary
    assert missing > 0 < ran < expected == run.row("capture")[1]
    assert run.row("compare")[1] == INSTRUCTIONS


@pytest.mark.parametrize("stage", ["smoke", "capture", "probe", "compare"])
def test_a_wrong_bit_is_a_finding(tmp_path, stage):
    """Every stage runs, and the exit code is 0. What was captured differs when it is replayed."""
    stages = ["capture", "replay"] if stage == "capture" else [stage]
    run = on_device(tmp_path, "--stages", "machine", *stages, fault=f"bit@{stage}")
    assert run.code == 0, run.summary
    assert run.row(stages[-1])[3] > 0


@pytest.mark.parametrize("stage", some(["compile", *LAUNCHING], 0))
def test_a_missing_compiler_is_named(tmp_path, stage):
    run = on_device(tmp_path, "--stages", "machine", stage, fault=f"compiler@{stage}")
    expected, ran, _, _ = run.row(stage)
    assert (run.code, ran) == (1, 0), run.summary
    assert expected > 0
    assert "no CUDA compiler was found" in run.summary


@pytest.mark.parametrize("stage", some(["machine", "compile", *LAUNCHING], 0))
def test_a_missing_device_is_named(tmp_path, stage):
    run = on_device(tmp_path, "--stages", *dict.fromkeys(["machine", stage]), fault=f"device@{stage}")
    assert (run.code, run.row(stage)[1]) == (1, 0), run.summary
    assert "no CUDA-capable device is detected" in run.summary


@pytest.mark.parametrize("fault", some(["", "crash", "launch", "hang", "bit", "compiler", "device"], 0))
def test_the_stage_of_tests(tmp_path, fault):
    run = on_device(
        tmp_path, "--stages", "tests", "--patience", "0.15" if fault == "hang" else "3", fault=f"{fault}@tests",
        gpu="7.0", seconds=400,
    )  # fmt: skip
    ran, differs = run.row("tests")[1], run.row("tests")[3]
    assert (ran, differs) == {"": (1, 0), "bit": (1, 1), "launch": (1, 1), "compiler": (1, 1)}.get(fault, (0, 0)), (
        run.summary
    )
    assert run.code == 1 - ran


def test_no_time_is_left(tmp_path):
    run = on_device(tmp_path, "--stages", "machine", "smoke", seconds=0.5)
    assert run.code == 2
    assert "no time was left" in run.summary


def test_tests_that_need_a_gpu_fail_without_one():
    """With FLOATSIM_REQUIRE_GPU=1 none passes, and the message names what is missing."""
    environment = os.environ | {"FLOATSIM_REQUIRE_GPU": "1"}
    file = ROOT / "tests" / "hardware" / "test_hardware_gpu.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(file)],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "passed" not in done.stdout
    assert "UnavailableError" in done.stdout
