"""tools/on_device.sh on a GPU in NumPy, with a fault in each stage: nothing else is lost, and the summary names it.

Every kind of fault runs in some stage. FLOATSIM_EXHAUSTIVE=1 runs every fault in every stage, which takes ten minutes.
"""

from __future__ import annotations

import importlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from floatsim.hardware.tables.ptx_scalar import SCALARS
from tests.hardware.fake_cupy import write_package

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
STAGES = ("machine", "compile", "smoke", "capture", "replay", "probe", "tests", "bench", "compare")
INSTRUCTIONS = 4
"""The matrix instructions of compute capability 7.5."""
UNUSABLE = 99
LAUNCHING = ("smoke", "capture", "probe", "bench", "compare")


ALL = os.environ.get("FLOATSIM_EXHAUSTIVE") == "1"


def some(values: Sequence[str], first: int, every: int = 3) -> list[Any]:
    """Return test parameters of which one in `every` runs and the others are skipped, unless all faults run."""
    skip = pytest.mark.skipif(not ALL, reason="takes minutes: set FLOATSIM_EXHAUSTIVE=1")
    return [pytest.param(x, marks=[skip] if i % every != first else []) for i, x in enumerate(values)]


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


def command_of(folder: Path, *options: str, gpu: str = "7.5", fault: str = "") -> tuple[list[str], dict[str, str]]:
    """Return the command of the script for a GPU in NumPy, and its environment."""
    write_package(folder)
    command = ["bash", str(ROOT / "tools" / "on_device.sh"), str(folder / "out"), "--rows", "40", *options]
    return command, {"PYTHON": sys.executable, "PYTHONPATH": str(folder), "FAKE_GPU": gpu, "FAKE_FAULT": fault}


def on_device(folder: Path, *options: str, gpu: str = "7.5", fault: str = "", seconds: float = 120) -> Run:
    """Run the script on a GPU in NumPy."""
    command, names = command_of(folder, *options, "--seconds", str(seconds), gpu=gpu, fault=fault)
    done = subprocess.run(command, env=os.environ | names, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return Run(done.returncode, folder / "out", (folder / "out" / "summary.txt").read_text())


def names_in(archive: Path) -> list[str]:
    with tarfile.open(archive) as tar:
        return tar.getnames()


def text_in(archive: Path, name: str) -> str:
    with tarfile.open(archive) as tar:
        file = tar.extractfile(name)
        assert file is not None
        return file.read().decode()


def test_all_stages_but_the_tests(tmp_path):
    stages = [stage for stage in STAGES if stage != "tests"]
    run = on_device(tmp_path, "--stages", *stages, seconds=400)
    assert run.code == 0, run.summary
    assert sorted(p.name for p in run.out.iterdir()) == ["logs.tgz", "recordings.tgz", "summary.txt"]
    assert run.summary.startswith("a fake, compute capability 7.5 (turing)")
    assert [run.row(stage)[2:] for stage in stages] == [(0, 0)] * len(stages)
    files = INSTRUCTIONS + sum(row.runs_on((7, 5)) for row in SCALARS)
    assert [run.row(stage)[1] for stage in ("smoke", "capture", "replay")] == [INSTRUCTIONS, files, files]
    assert len([name for name in names_in(run.out / "recordings.tgz") if name.endswith(".npz")]) == files
    assert "logs/probe.jsonl" in names_in(run.out / "logs.tgz")


@pytest.mark.parametrize("gpu", some(["7.0", "8.0", "8.9", "9.0", "10.0", "12.0"], 3, every=6))
def test_every_instruction_of_a_gpu_runs(tmp_path, gpu):
    run = on_device(tmp_path, "--stages", "machine", "compile", "smoke", "capture", "replay", gpu=gpu, seconds=400)
    assert run.code == 0, run.summary
    assert run.row("capture")[1] == run.row("replay")[1] >= 2


FAULTS = [f"{kind}@{stage}" for kind in ("crash", "launch") for stage in LAUNCHING]


@pytest.mark.parametrize("fault", some(FAULTS, 0, every=10))  # a stage with few sets, each of which costs a process
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


@pytest.mark.parametrize("stage", some(LAUNCHING, 0, every=5))  # the shortest time limit
def test_a_launch_that_never_returns_is_stopped(tmp_path, stage):
    run = on_device(tmp_path, "--stages", "machine", stage, "--patience", "0.3", fault=f"hang@{stage}")
    assert run.code == 1, run.summary
    assert run.row(stage)[2] > 0
    assert "it took too long" in run.summary or "time is over" in run.summary


@pytest.mark.parametrize("fault", some(["crash@machine", "hang@machine", "crash@compile", "hang@compile"], 0, every=4))
def test_a_fault_of_a_stage_with_one_set(tmp_path, fault):
    stage = fault.partition("@")[2]
    run = on_device(tmp_path, "--stages", *dict.fromkeys(["machine", stage, "smoke"]), "--patience", "0.3",
                    fault=fault)  # fmt: skip
    assert run.code == 1, run.summary
    assert run.row(stage)[1] == 0
    assert run.row("smoke")[1] == INSTRUCTIONS


@pytest.mark.parametrize("kind", some(["crash", "hang", "launch"], 1))
def test_a_fault_of_the_replay(tmp_path, kind):
    run = on_device(tmp_path, "--stages", "machine", "capture", "replay", "compare", "--patience", "0.3",
                    fault=f"{kind}@replay")  # fmt: skip
    expected, ran, missing, _ = run.row("replay")
    assert run.code == 1, run.summary
    assert missing > 0 < ran < expected == run.row("capture")[1]
    assert run.row("compare")[1] == INSTRUCTIONS


@pytest.mark.parametrize("stage", some(["smoke", "capture", "probe", "compare"], 1, every=2))
def test_a_wrong_bit_is_a_finding(tmp_path, stage):
    """Every stage runs, and the exit code is 0. What was captured differs when it is replayed."""
    stages = ["capture", "replay"] if stage == "capture" else [stage]
    run = on_device(tmp_path, "--stages", "machine", *stages, fault=f"bit@{stage}")
    assert run.code == 0, run.summary
    assert run.row(stages[-1])[3] > 0


@pytest.mark.parametrize("stage", some(["compile", *LAUNCHING], 0, every=6))
def test_a_missing_compiler_is_named(tmp_path, stage):
    run = on_device(tmp_path, "--stages", "machine", stage, fault=f"compiler@{stage}")
    expected, ran, _, _ = run.row(stage)
    assert (run.code, ran) == (1, int(stage == "compile")), run.summary  # the emulator needs no CUDA compiler
    assert expected > 0
    assert "no CUDA compiler was found" in run.summary


@pytest.mark.parametrize("stage", some(["machine", "compile", *LAUNCHING], 0, every=7))
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
    assert "logs/tests.pytest" in names_in(run.out / "logs.tgz")
    if fault == "hang":  # the results of the tests before it are kept
        assert "PASSED" in text_in(run.out / "logs.tgz", "logs/tests.pytest")


def test_garbage_in_the_files_of_a_stage(tmp_path):
    run = on_device(tmp_path, "--stages", "machine", "capture", "replay", "smoke", fault="garbage@capture")
    files = INSTRUCTIONS + sum(row.runs_on((7, 5)) for row in SCALARS)
    assert run.code == 1, run.summary
    assert run.row("capture") == (files, files, 0, 0)
    assert run.row("replay") == (files + 1, files, 1, 0)
    assert "garbage: ValueError" in run.summary
    assert len([name for name in names_in(run.out / "recordings.tgz") if name.endswith(".npz")]) == files + 1


# -- the end of the script ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_ends_the_script_with_all_results(tmp_path, name):
    out, (command, names) = tmp_path / "out", command_of(tmp_path, "--stages", "machine", "capture", "probe",
                                                         fault="hang@capture")  # fmt: skip
    number, pipes = signal.Signals[name], {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(
        command, env=os.environ | names, **pipes,
        # a job in the background may ignore SIGINT
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # noqa: PLW1509  # no other thread holds a lock here
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while not [*out.glob("unfinished-*/recordings/*/*.npz")]:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(number)
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    run = Run(process.returncode, out, (out / "summary.txt").read_text())
    assert run.code == 2, run.summary
    assert run.row("machine") == (1, 1, 0, 0)
    assert run.row("capture")[1] == 1
    assert run.row("probe")[0] == 0
    assert f"interrupted by {name}" in run.summary
    assert f"probe: interrupted by {name} before it began" in run.summary
    assert len([each for each in names_in(out / "recordings.tgz") if each.endswith(".npz")]) == 1
    assert sorted(p.name for p in out.iterdir()) == ["logs.tgz", "recordings.tgz", "summary.txt"]


def test_results_that_cannot_be_written_are_kept(tmp_path):
    (tmp_path / "out" / "recordings.part").mkdir(parents=True)  # as a full disk, an OSError
    command, names = command_of(tmp_path, "--stages", "machine", "capture")
    done = subprocess.run(command, env=os.environ | names, capture_output=True, text=True, check=False)
    assert done.returncode == UNUSABLE, done.stderr
    (kept,) = (tmp_path / "out").glob("unfinished-*")
    assert f"recordings.tgz could not be written: [Errno 21] Is a directory: '{tmp_path}/out/recordings.part'" in (
        done.stdout
    )
    assert f"all results are in {kept}" in done.stdout
    assert len([*kept.rglob("*.npz")]) == INSTRUCTIONS + sum(row.runs_on((7, 5)) for row in SCALARS)
    assert "capture " in (tmp_path / "out" / "summary.txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: out"),
        (["OUT", "--stages", "smok"], "invalid choice: 'smok'"),
        (["OUT", "--rows", "3"], "--rows must be at least 10, not 3"),
        ([__file__], "cannot hold the results"),
    ],
)
def test_bad_arguments_are_no_number_of_stages(tmp_path, arguments, message):
    script = str(ROOT / "tools" / "on_device.sh")
    done = subprocess.run(["bash", script, *arguments], env=os.environ | {"PYTHON": sys.executable}, cwd=tmp_path,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == UNUSABLE
    assert message in done.stderr


def test_an_old_python_is_named(tmp_path):
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = subprocess.run(["bash", str(ROOT / "tools" / "on_device.sh"), str(tmp_path / "out")], check=False,
                          env=os.environ | {"PYTHON": str(old)}, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == UNUSABLE
    assert f"{old} is not Python 3.11 or newer" in done.stderr


# -- parts of the script -----------------------------------------------------------------------------------------------


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("on_device")


def test_caches_that_cannot_be_written_are_elsewhere(tmp_path, monkeypatch, script):
    """In a container without a home, and with a checkout that can only be read."""
    for name in ("FLOATSIM_CACHE", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert script.caches(tmp_path) == {}
    read_only = [tmp_path, script.ROOT / "kernels" / "floatsim_kernels"]
    monkeypatch.setattr(script.os, "access", lambda path, mode: path not in read_only)
    both = {"FLOATSIM_CACHE": f"{tmp_path}/caches", "NUMBA_CACHE_DIR": f"{tmp_path}/caches/numba"}
    assert script.caches(tmp_path) == both
    monkeypatch.setenv("FLOATSIM_CACHE", "/given")
    assert script.caches(tmp_path) == {"NUMBA_CACHE_DIR": both["NUMBA_CACHE_DIR"]}
    monkeypatch.setenv("HOME", "~")  # as without a home
    assert "NUMBA_CACHE_DIR" in script.caches(tmp_path)


@pytest.mark.parametrize("free", [0, 1 << 40])
def test_results_are_elsewhere_until_they_are_archived_if_the_disk_is_almost_full(tmp_path, monkeypatch, script, free):
    monkeypatch.setattr(script.shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    monkeypatch.setattr(script.tempfile, "tempdir", str(tmp_path))
    folder = script.working_folder(tmp_path / "out")
    assert folder.parent == (tmp_path / "out" if free else tmp_path)
    assert sorted(each.name for each in folder.iterdir()) == ["logs", "recordings"]


def test_archives_keep_their_limit(tmp_path, script):
    folder, rng = tmp_path / "recordings", np.random.default_rng(0)
    folder.mkdir()
    for number in range(9):
        (folder / f"{number}.npz").write_bytes(rng.bytes(2 << 20))
    notes = script.archive(tmp_path / "recordings.tgz", folder)
    assert [note.split(",")[0] for note in notes] == [f"recordings.tgz leaves out {n}.npz" for n in (7, 8)]
    assert names_in(tmp_path / "recordings.tgz") == [f"recordings/{n}.npz" for n in range(7)]
    assert (tmp_path / "recordings.tgz").stat().st_size <= script.MOST_BYTES


@pytest.mark.parametrize("size", [100, 10_000, 1 << 20])
def test_archives_of_many_files_keep_their_limit(tmp_path, script, size):
    """Also if the files together are only just below the limit: an archive has headers, and random bytes grow."""
    folder, rng, most = tmp_path / "logs", np.random.default_rng(0), 4 << 20
    folder.mkdir()
    for number in range(min(most // size, 2000)):
        (folder / str(number)).write_bytes(rng.bytes(size))
    script.archive(tmp_path / "logs.tgz", folder, most)
    assert 0 < (tmp_path / "logs.tgz").stat().st_size <= most


def test_long_logs_that_compress_well_are_kept(tmp_path, script):
    folder = tmp_path / "logs"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number}.out").write_bytes(b"a line\n" * (1 << 17))
    assert script.archive(tmp_path / "logs.tgz", folder) == []


def test_other_kinds_run_before_a_kind_that_fails(tmp_path, script):
    journal = script.Journal(tmp_path / "smoke.jsonl")
    journal.write(expected=["wgmma.k16 a", "wgmma.k16 b", "mma.m8n8k4 a", "mma.m16n8k8 b", "convert FP32"])
    assert journal.remaining()[0] == "wgmma.k16 a"
    journal.write(begin="wgmma.k16 a")
    assert journal.remaining() == ["mma.m8n8k4 a", "mma.m16n8k8 b", "convert FP32", "wgmma.k16 b"]
    journal.write(begin="mma.m8n8k4 a")
    journal.write(set="mma.m8n8k4 a", outcome="error", text="")
    assert journal.remaining() == ["convert FP32", "wgmma.k16 b", "mma.m16n8k8 b"]


def test_a_line_that_was_not_completed_does_not_cost_the_next_one(tmp_path, script):
    journal = script.Journal(tmp_path / "smoke.jsonl")
    journal.write(expected=["a", "b"])
    with journal.path.open("a") as file:
        file.write('{"begin": "a')
    journal.write(begin="b")
    assert journal.begun() == ["b"]


def test_a_signal_between_two_stages(tmp_path, script):
    stop = script.Interruption()
    stop.signal = "SIGHUP"
    result = script.run_stage(script.STAGES[2], tmp_path, 40, float("inf"), 1, stop)
    assert (result.ran, result.notes) == (False, ["interrupted by SIGHUP before it began"])


def test_a_process_that_cannot_be_killed(monkeypatch, script):
    """A call of the driver can block a process for ever. The script goes on."""
    monkeypatch.setattr(script, "KILLING", 0.1)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    monkeypatch.setattr(script.os, "killpg", lambda group, number: None)
    assert script.killed(process, "it took too long") == "it took too long, and its process could not be killed"
    process.kill()
    process.wait()


def test_a_closed_terminal_does_not_end_the_script(monkeypatch, script):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    script.tell("a line")
    script.tell("another line")
    sys.stdout.close()


def test_no_time_is_left(tmp_path):
    run = on_device(tmp_path, "--stages", "machine", "smoke", seconds=0.5)
    assert run.code == 2
    assert "no time was left" in run.summary


def test_tests_that_need_a_gpu_fail_without_one():
    """With FLOATSIM_REQUIRE_GPU=1 none passes, and the message names what is missing."""
    environment = os.environ | {"FLOATSIM_REQUIRE_GPU": "1"}
    file = ROOT / "tests" / "hardware" / "test_gpu.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(file)],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "passed" not in done.stdout
    assert "UnavailableError" in done.stdout
