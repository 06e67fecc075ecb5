"""The stages of tools/on_device.sh: everything that needs a GPU, each stage in its own process, with a time limit.

Without --stage, this program runs the stages and imports only the standard library. With --stage, it is the process of
one stage. A stage consists of sets: one instruction, one operation, one file. Its process writes a line of JSON before
and after each set. If the process dies or a set takes too long, another process goes on with the next set. So a fault
costs one set, and what was computed before it is kept.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RAN = ("ok", "differs")
"""The outcomes of a set that ran. Every other set is missing."""
MOST_BYTES = 16 << 20
"""The largest archive."""
MOST_LOG = 1 << 20
"""The largest part of one log that is kept."""
MOST_PROCESSES = 6
"""How many processes a stage may use, one after another."""
DEVICE_IS_LOST = 75
"""The exit code of a process whose device no longer works; the next process has a new one."""


@dataclass(frozen=True)
class Stage:
    """A stage: its name, the seconds that it may take, and the seconds that one of its sets may take."""

    name: str
    seconds: float
    of_a_set: float


STAGES = (
    Stage("machine", 60, 45),
    Stage("compile", 120, 100),
    Stage("smoke", 60, 20),
    Stage("capture", 120, 30),
    Stage("replay", 60, 30),
    Stage("probe", 90, 30),
    Stage("tests", 150, 150),
    Stage("bench", 80, 20),
    Stage("compare", 120, 40),
)


# -- the process of one stage ------------------------------------------------------------------------------------------


class Journal:
    """The lines of JSON of a stage, in a file that several processes continue."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[dict[str, Any]]:
        """Return the complete lines."""
        if not self.path.is_file():
            return []
        found = []
        for line in self.path.read_text(errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:  # the last line of a process that died
                continue
        return found

    def write(self, **line: Any) -> None:
        """Add a line, and store it."""
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def expected(self) -> list[str] | None:
        """Return the names of the sets, if a process has listed them."""
        return next((line["expected"] for line in self.lines() if "expected" in line), None)

    def begun(self) -> list[str]:
        """Return the names of the sets that were begun, in order."""
        return [line["begin"] for line in self.lines() if "begin" in line]

    def outcomes(self) -> dict[str, tuple[str, str]]:
        """Return the outcome and the text of each set that ended."""
        return {line["set"]: (line["outcome"], line["text"]) for line in self.lines() if "set" in line}


Task = Callable[[], tuple[bool, str]]
"""Computes one set; returns whether everything is equal, and a text."""


def work(name: str, journal: Journal, recordings: Path, rows: int) -> int:
    """Compute the sets of a stage that no process has begun. Return the exit code."""
    tasks = dict(TASKS[name](recordings, rows))
    if journal.expected() is None:
        journal.write(expected=list(tasks))
    begun = set(journal.begun())
    for each in journal.expected() or []:
        if each in begun:
            continue
        journal.write(begin=each)
        try:
            equal, text = tasks[each]()
        except Exception as error:
            outcome, text = "error", f"{type(error).__name__}: {error}"
        else:
            outcome = "ok" if equal else "differs"
        print(f"{each}: {outcome}\n{text}\n", flush=True)
        journal.write(set=each, outcome=outcome, text=text[:2000])
        if outcome == "error" and device_is_lost():
            return DEVICE_IS_LOST
    return 0


def refuse(error: str) -> None:
    """Raise the error of a row that could not run."""
    if error:
        raise RuntimeError(error)


def device_is_lost() -> bool:
    """Return whether the device of this process no longer works: a CUDA error stays until the process ends."""
    import numpy as np

    try:
        from floatsim.hardware.device import Device

        device = Device()
        device.dots(device.variants[0], *_ones(device.variants[0], np))
    except Exception as error:
        return "CUDA" in f"{type(error).__name__} {error}"
    return False


def _ones(variant: Any, np: Any) -> tuple[Any, Any, Any]:
    """Return operands of ones, and zeros, for 64 dot products."""
    import floatsim as fs

    a, b = (np.full((64, variant.k), fs.encode(1.0, fmt), fmt.code_dtype) for fmt in (variant.a, variant.b))
    return a, b, np.zeros(64, variant.output.code_dtype)


def machine(recordings: Path, rows: int) -> Iterator[tuple[str, Task]]:
    """The GPU, the driver, the compilers, and the versions of the packages."""

    def facts() -> tuple[bool, str]:
        from importlib import metadata

        for command in (["nvidia-smi"], ["nvcc", "--version"]):
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
                print(done.stdout, done.stderr, flush=True)
            except (OSError, subprocess.TimeoutExpired) as error:
                print(f"{command[0]}: {error}", flush=True)
        print(sys.version)
        for package in sorted({p.metadata["Name"] or "" for p in metadata.distributions()}, key=str.lower):
            if any(part in package.lower() for part in ("numpy", "numba", "cupy", "nvidia", "cuda", "ml-dtypes")):
                print(package, metadata.version(package))
        import floatsim as fs

        return True, str(fs.hardware.info())

    yield "info", facts


def compile_all(recordings: Path, rows: int) -> Iterator[tuple[str, Task]]:
    """The machine code of all instructions and operations, by threads. The other stages read it from the cache."""

    def compiled() -> tuple[bool, str]:
        from concurrent.futures import ThreadPoolExecutor

        from floatsim.hardware.device import Device
        from floatsim.hardware.tables.ptx_scalar import SCALARS

        device = Device()
        scalars = [row for row in SCALARS if row.runs_on(device.identity.capability)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = [pool.submit(device.machine_code, each) for each in (*device.variants, *scalars)]
        errors = [str(each.exception()) for each in found if each.exception()]
        if errors:
            raise RuntimeError(f"{len(errors)} of {len(found)} programs do not compile: {errors[0]}")
        return True, f"{len(found)} programs"

    yield "all programs", compiled


def smoke(recordings: Path, rows: int) -> Iterator[tuple[str, Task]]:
    """Sums of ones through every instruction."""
    import numpy as np

    import floatsim as fs
    from floatsim.hardware.device import Device

    device = Device()

    def task(variant: Any) -> Task:
        def run() -> tuple[bool, str]:
            scales = None
            if variant.scales is not None:
                one = fs.encode(1.0, variant.scales.format)
                scales = (np.full((64, variant.k // variant.scales.every), one, np.uint8),) * 2
            d = fs.decode(device.dots(variant, *_ones(variant, np), scales), variant.output)
            return bool((d == variant.k).all()), f"a sum of {variant.k} ones is {d[:8]}"

        return run

    for variant in device.variants:
        yield str(variant), task(variant)


def capture(recordings: Path, rows: int) -> Iterator[tuple[str, Task]]:
    """The outputs of every instruction and operation, in files."""
    from floatsim.hardware.captures.write import capture as write
    from floatsim.hardware.device import Device
    from floatsim.hardware.session import to_capture

    def task(each: Any) -> Task:
        def run() -> tuple[bool, str]:
            (file,) = write([each], recordings, rows=rows, command="tools/on_device.sh")
            refuse(file.error)
            return True, f"{file.path.name}: {len(file.d)} rows"

        return run

    for each in to_capture(Device()):
        yield str(each.variant if hasattr(each, "variant") else each.row), task(each)


def replay(recordings: Path, rows: int) -> Iterator[tuple[str, Task]]:
    """The comparison of every file of the stage before with the emulator."""
    from floatsim.hardware.captures.replay import check_silicon

    def task(path: Path) -> Task:
        def run() -> tuple[bool, str]:
            (checked,) = check_silicon(path)
            refuse(checked.comparison.error)
            return bool(checked.comparison.equal), str(checked.comparison)

        return run

    for path in sorted(recordings.rglob("*.npz")):
        yield path.stem, task(path)


def probe(recordings: Path, rows: int) -> Iterator[tuple[str, Task]]:
    """The model of every instruction, inferred from its results."""
    from floatsim.hardware.device import Device
    from floatsim.hardware.session import probe_device, questions

    def task(question: Any) -> Task:
        def run() -> tuple[bool, str]:
            (found,) = probe_device([question])
            refuse(found.error)
            return bool(found.equal), str(found)

        return run

    for question in questions(Device()):
        yield str(question.variant), task(question)


def tests(recordings: Path, rows: int) -> Iterator[tuple[str, Task]]:
    """The tests that need a GPU."""

    def run() -> tuple[bool, str]:
        options = ["-p", "no:cacheprovider", "-q", "-rfE", "--tb=line", "-W", "default"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, "tests/hardware/test_hardware_gpu.py"],
            cwd=ROOT, capture_output=True, text=True, check=False,
            env=os.environ | {"FLOATSIM_REQUIRE_GPU": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        )  # fmt: skip
        last = (done.stdout.strip().splitlines() or [""])[-1]
        print(done.stdout, done.stderr, flush=True)
        if done.returncode not in (0, 1) or " passed" not in last:
            raise RuntimeError(f"pytest ended with exit code {done.returncode}: {last} {done.stderr[-300:]}")
        return done.returncode == 0, last

    yield "tests/hardware/test_hardware_gpu.py", run


def bench(recordings: Path, rows: int) -> Iterator[tuple[str, Task]]:
    """The throughput of every instruction and library."""
    from floatsim.hardware.device import Device
    from floatsim.hardware.throughput import measure
    from floatsim.hardware.throughput import tasks as measurements

    device = Device()

    def task(measurement: Any) -> Task:
        def run() -> tuple[bool, str]:
            (rate,) = measure(device, [measurement])
            refuse(rate.error)
            return True, json.dumps(rate.to_dict())

        return run

    for measurement in measurements(device):
        yield str(measurement), task(measurement)


def compare(recordings: Path, rows: int) -> Iterator[tuple[str, Task]]:
    """Ten times as many rows as were captured, from another seed, compared with the emulator."""
    from floatsim.hardware.device import Device
    from floatsim.hardware.session import compare_device, questions

    def task(question: Any) -> Task:
        def run() -> tuple[bool, str]:
            (found,) = compare_device([question], 10 * rows, seed=1)
            refuse(found.error)
            return bool(found.equal), str(found)

        return run

    for question in questions(Device()):
        yield str(question.variant), task(question)


TASKS: dict[str, Callable[[Path, int], Iterator[tuple[str, Task]]]] = {
    "machine": machine, "compile": compile_all, "smoke": smoke, "capture": capture, "replay": replay, "probe": probe,
    "tests": tests, "bench": bench, "compare": compare,
}  # fmt: skip


# -- all stages --------------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """What became of a stage."""

    stage: Stage
    expected: list[str]
    outcomes: dict[str, tuple[str, str]]
    seconds: float
    notes: list[str] = field(default_factory=list)

    @property
    def missing(self) -> list[str]:
        """The sets that did not run."""
        return [name for name in self.expected if self.outcomes.get(name, ("", ""))[0] not in RAN]

    @property
    def different(self) -> list[str]:
        """The sets that differ from the emulator."""
        return [name for name in self.expected if self.outcomes.get(name, ("", ""))[0] == "differs"]

    @property
    def ran(self) -> bool:
        """Whether the stage ran: it has sets, and none is missing."""
        return bool(self.expected) and not self.missing


def last_line(path: Path) -> str:
    """Return the last line of a log that is not empty."""
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()] if path.is_file() else []
    return lines[-1][:400] if lines else ""


def wait_for(process: subprocess.Popen[bytes], journal: Journal, until: float, of_a_set: float) -> str:
    """Wait for a process. Kill it and its children at a time, or when one set takes too long. Return a note."""
    size, since = -1, time.monotonic()
    while process.poll() is None:
        now = time.monotonic()
        written = journal.path.stat().st_size if journal.path.is_file() else 0
        if written != size:
            size, since = written, now
        late = "the stage's time is over" if now > until else "it took too long" if now - since > of_a_set else ""
        if late:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return late
        time.sleep(0.05)
    code = process.returncode
    return "" if code == 0 else f"its process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"


def run_stage(stage: Stage, folder: Path, rows: int, seconds: float, patience: float) -> Result:
    """Run the sets of a stage, in one process or, after a fault, in several."""
    started = time.monotonic()
    until = started + min(patience * stage.seconds, seconds)
    journal, notes = Journal(folder / "logs" / f"{stage.name}.jsonl"), list[str]()
    reasons: dict[str, str] = {}
    environment = os.environ | {"FLOATSIM_STAGE": stage.name, "PYTHONUNBUFFERED": "1", "MPLBACKEND": "Agg"}
    command = [sys.executable, __file__, "--stage", stage.name, "--rows", str(rows), str(folder)]
    for _ in range(MOST_PROCESSES):
        if time.monotonic() > until - 1:
            notes.append("no time was left")
            break
        with (folder / "logs" / f"{stage.name}.out").open("ab") as out, \
                (folder / "logs" / f"{stage.name}.err").open("ab") as err:  # fmt: skip
            process = subprocess.Popen(command, stdout=out, stderr=err, env=environment, start_new_session=True)
            note = wait_for(process, journal, until, patience * stage.of_a_set)
        ended, begun = journal.outcomes(), journal.begun()
        if note and begun and begun[-1] not in ended:
            reasons[begun[-1]] = note
        elif note and not note.endswith(str(DEVICE_IS_LOST)):
            notes.append(f"{note}: {last_line(folder / 'logs' / f'{stage.name}.err')}")
        expected = journal.expected()
        if expected is None or len(begun) == len(expected):
            break
    outcomes = journal.outcomes()
    outcomes |= {name: ("died", why) for name, why in reasons.items()}
    return Result(stage, journal.expected() or [], outcomes, time.monotonic() - started, notes)


def summary(results: list[Result], seconds: float, archives: list[str]) -> str:
    """Return the text of summary.txt."""
    info = next((r.outcomes["info"][1] for r in results if "info" in r.outcomes), "")
    lines = [
        info.splitlines()[0] if info else "no device",
        datetime.datetime.now(datetime.UTC).isoformat(" ", "seconds"),
        "",
    ]
    lines.append(f"{'stage':10}{'expected':>9}{'run':>6}{'missing':>9}{'differ':>8}{'seconds':>9}")
    for r in results:
        run = len(r.expected) - len(r.missing)
        numbers = f"{len(r.expected):9}{run:6}{len(r.missing):9}{len(r.different):8}{r.seconds:9.1f}"
        lines.append(f"{r.stage.name:10}{numbers}{'' if r.ran else '  DID NOT RUN'}")
    for r in results:
        lines += [f"\n{r.stage.name}: {note}" for note in r.notes]
        for title, names in (("missing", r.missing), ("differ", r.different)):
            if names:
                lines.append(f"\n{r.stage.name}, {title}:")
            for name in names:
                text = r.outcomes.get(name, ("", "it was not begun"))[1]
                lines.append(f"  {name}: {' '.join(text.split())[:300]}")
    failed = sum(not r.ran for r in results)
    lines += ["", *archives, f"{failed} stages did not run, {seconds:.0f} s"]
    return "\n".join(lines) + "\n"


def archive(path: Path, folder: Path, most: int = MOST_BYTES) -> list[str]:
    """Write a folder as an archive of at most `most` bytes. Return notes on files that it leaves out."""
    left_out, total = [], 0
    with tarfile.open(path, "w:gz") as tar:
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            size = file.stat().st_size
            if total + size > most:  # files of recordings are compressed already
                left_out.append(f"{path.name} leaves out {file.name}, {size} bytes: archives have at most {most} bytes")
                continue
            total += size
            tar.add(file, file.relative_to(folder.parent))
    return left_out


def shorten(log: Path) -> None:
    """Keep the beginning and the end of a long log."""
    data = log.read_bytes()
    if len(data) > MOST_LOG:
        log.write_bytes(data[: MOST_LOG // 2] + b"\n[...]\n" + data[-MOST_LOG // 2 :])


def run_all(out: Path, stages: list[Stage], rows: int, seconds: float, patience: float) -> int:
    """Run stages, and write the results after each. Return the number of stages that did not run."""
    out.mkdir(parents=True, exist_ok=True)
    started, results = time.monotonic(), list[Result]()
    with tempfile.TemporaryDirectory(prefix="floatsim-") as name:
        folder = Path(name)
        for part in ("logs", "recordings"):
            (folder / part).mkdir()
        for stage in stages:
            left = seconds - (time.monotonic() - started)
            results.append(run_stage(stage, folder, rows, left, patience))
            for log in (folder / "logs").iterdir():
                shorten(log)
            notes = [note for part in ("recordings", "logs") for note in archive(out / f"{part}.tgz", folder / part)]
            text = summary(results, time.monotonic() - started, notes)
            (out / "summary.txt").write_text(text)
            print(next(line for line in text.splitlines() if line.startswith(stage.name)), flush=True)
    print(text.splitlines()[-1])
    return sum(not r.ran for r in results)


def main() -> int:
    """Run all stages, or be the process of one."""
    parser = argparse.ArgumentParser(prog="on_device.sh", description="Run everything that needs a GPU.")
    parser.add_argument("out", type=Path, help="the folder of the results")
    parser.add_argument("--seconds", type=float, default=480, help="the time of all stages together (default 480)")
    parser.add_argument("--rows", type=int, default=20_000, help="dot products of an instruction (default 20000)")
    names = [stage.name for stage in STAGES]
    parser.add_argument("--stages", nargs="+", choices=names, default=names, help="only these stages (default: all)")
    parser.add_argument("--patience", type=float, default=1.0, help="a factor of the time limits of stages and sets")
    parser.add_argument("--stage", choices=names, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stage is None:
        stages = [stage for stage in STAGES if stage.name in given.stages]
        return run_all(given.out, stages, given.rows, given.seconds, given.patience)
    folder: Path = given.out
    return work(given.stage, Journal(folder / "logs" / f"{given.stage}.jsonl"), folder / "recordings", given.rows)


if __name__ == "__main__":
    sys.exit(main())
