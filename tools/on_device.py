"""The stages of tools/on_device.sh: everything that needs a GPU, each stage in its own process, with a time limit.

This program imports only the standard library. The processes that it starts run tools/device_stages.py. A stage
consists of sets: one instruction, one operation, one file. Its process writes a line of JSON before and after each set.
If the process dies or a set takes too long, another process goes on with the next set. So a fault costs one set, and
what was computed before it is kept. SIGTERM, SIGINT and SIGHUP end the stage, and the results are written.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RAN = ("ok", "differs")
"""The outcomes of a set that ran. Every other set is missing."""
MOST_BYTES = 16 << 20
"""The largest archive."""
IN_BUFFERS = 512 << 10
"""More bytes than an archive that is being written holds in memory: Python's buffer and zlib's have 128 KiB each."""
ROOM = 256 << 20
"""The room that OUT needs for the results before they are archived. The recordings of a B200 are 11 MB."""
MOST_LOG = 1 << 20
"""The largest part of one log that is kept."""
MOST_PROCESSES = 12
"""How many processes a stage may use, one after another. Each takes some seconds to start."""
MOST_IDLE = 2
"""How many processes, one after another, may end without having begun a set."""
KILLING = 5
"""The seconds that a killed process may take to end. A call of the driver can block it for ever."""
DEVICE_IS_LOST = 75
"""The exit code of a process whose device no longer works; the next process has a new one."""
UNUSABLE = 99
"""The exit code if nothing could be started, or the results could not be written."""


@dataclass(frozen=True)
class Stage:
    """A stage: its name, the seconds that it may take, and the seconds that one of its sets may take."""

    name: str
    seconds: float
    of_a_set: float


STAGES = (
    Stage("machine", 60, 45),
    Stage("compile", 180, 150),
    Stage("smoke", 60, 30),
    Stage("capture", 180, 30),
    Stage("replay", 90, 30),
    Stage("probe", 150, 30),
    Stage("tests", 180, 180),
    Stage("bench", 80, 20),
    Stage("compare", 300, 40),
)


class Journal:
    """The lines of JSON of a stage, in a file that several processes continue."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[dict[str, Any]]:
        """Return the complete lines."""
        if not self.path.is_file():
            return []
        found = []
        for line in self.path.read_text(errors="replace").split("\n"):
            try:
                found.append(json.loads(line))
            except ValueError:  # the last line of a process that died
                continue
        return [line for line in found if isinstance(line, dict)]

    def write(self, **line: Any) -> None:
        """Add a line, and store it. A line that a process could not complete is ended before."""
        with self.path.open("ab+") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            end = b"" if file.read(1) in (b"", b"\n") else b"\n"
            file.write(end + json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def expected(self) -> list[str] | None:
        """Return the names of the sets, if a process has listed them."""
        return next((line["expected"] for line in self.lines() if isinstance(line.get("expected"), list)), None)

    def begun(self) -> list[str]:
        """Return the names of the sets that were begun, in order."""
        return [line["begin"] for line in self.lines() if "begin" in line]

    def outcomes(self) -> dict[str, tuple[str, str]]:
        """Return the outcome and the text of each set that ended."""
        complete = [line for line in self.lines() if {"set", "outcome", "text"} <= set(line)]
        return {line["set"]: (line["outcome"], line["text"]) for line in complete}

    def remaining(self) -> list[str]:
        """Return the sets that were not begun. Those whose kind has failed most often come last.

        A fault often concerns all instructions of a kind, such as `wgmma`. The others run first then.
        """
        begun, ended = self.begun(), self.outcomes()
        failed = [kind_of(name) for name in begun if ended.get(name, ("died", ""))[0] not in RAN]
        left = [name for name in self.expected() or [] if name not in set(begun)]
        return sorted(left, key=lambda name: failed.count(kind_of(name)))


def kind_of(name: str) -> str:
    """Return the kind of a set: "wgmma" for "wgmma.k16 fp16 fp16 fp32"."""
    return name.partition(" ")[0].partition(".")[0].partition("-")[0]


# -- processes ---------------------------------------------------------------------------------------------------------


class Interruption:
    """The first signal that asks this program to end. It is false as long as there was none."""

    def __init__(self) -> None:
        self.signal = ""

    def __bool__(self) -> bool:
        return bool(self.signal)

    @property
    def before(self) -> str:
        """The note of a stage that does not begin any more."""
        return f"interrupted by {self.signal} before it began"

    def watch(self) -> None:
        """Let signals be noted from now on, except those that are ignored, as nohup does."""
        for name in ("SIGTERM", "SIGINT", "SIGHUP"):
            if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
                signal.signal(getattr(signal, name), self._note)

    def _note(self, number: int, frame: Any) -> None:
        self.signal = self.signal or signal.Signals(number).name


@dataclass
class Result:
    """What became of a stage."""

    stage: Stage
    expected: list[str] = field(default_factory=list)
    outcomes: dict[str, tuple[str, str]] = field(default_factory=dict)
    seconds: float = 0.0
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
    lines = (
        [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        if path.is_file()
        else []
    )
    return lines[-1][:400] if lines else ""


def killed(process: subprocess.Popen[bytes], reason: str) -> str:
    """Kill a process and its children. Return the reason as a note, which also says if the process does not end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(KILLING)
    except subprocess.TimeoutExpired:
        return f"{reason}, and its process could not be killed"
    return reason


def wait_for(
    process: subprocess.Popen[bytes], journal: Journal, until: float, of_a_set: float, interruption: Interruption
) -> str:
    """Wait for a process. Kill it at a time, when one set takes too long, or after a signal. Return a note."""
    size, since = -1, time.monotonic()
    while process.poll() is None:
        now = time.monotonic()
        written = journal.path.stat().st_size if journal.path.is_file() else 0
        if written != size:
            size, since = written, now
        if interruption:
            return killed(process, f"interrupted by {interruption.signal}")
        if now > until:
            return killed(process, "the stage's time is over")
        if now - since > of_a_set:
            return killed(process, "it took too long")
        time.sleep(0.05)
    code = process.returncode
    return "" if code == 0 else f"its process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"


def can_write(path: Path) -> bool:
    """Return whether a folder can be written, or created."""
    existing = next((each for each in (path, *path.parents) if each.exists()), path)
    return path.is_absolute() and os.access(existing, os.W_OK)


def caches(folder: Path) -> dict[str, str]:
    """Return variables that put the caches of compiled kernels into a folder, if their own folders cannot be written.

    Without one, Numba compiles nothing, and every process compiles the CUDA kernels anew.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 (raises nothing)
    needed = {} if can_write(home) else {"FLOATSIM_CACHE": str(folder / "caches")}
    if needed and not can_write(ROOT / "kernels" / "floatsim_kernels"):
        needed["NUMBA_CACHE_DIR"] = str(folder / "caches" / "numba")
    return {name: path for name, path in needed.items() if name not in os.environ}


def run_stage(stage: Stage, folder: Path, rows: int, until: float, patience: float, stop: Interruption) -> Result:
    """Run the sets of a stage, in one process or, after a fault, in several."""
    if stop:
        return Result(stage, notes=[stop.before])
    started, idle = time.monotonic(), 0
    until = min(until, started + patience * stage.seconds)
    logs = folder / "logs"
    journal, notes, reasons = Journal(logs / f"{stage.name}.jsonl"), list[str](), dict[str, str]()
    environment = os.environ | {"FLOATSIM_STAGE": stage.name, "PYTHONUNBUFFERED": "1", "MPLBACKEND": "Agg"}
    environment |= caches(folder)
    command = [sys.executable, str(ROOT / "tools" / "device_stages.py"), stage.name, str(folder), str(rows)]
    for number in range(MOST_PROCESSES + 1):
        if stop or idle == MOST_IDLE:
            break
        if time.monotonic() > until - 1 or number == MOST_PROCESSES:
            notes.append("no time was left" if number < MOST_PROCESSES else f"{number} processes have failed")
            break
        before = len(journal.begun())
        with (logs / f"{stage.name}.out").open("ab") as out, (logs / f"{stage.name}.err").open("ab") as err:
            process = subprocess.Popen(command, stdout=out, stderr=err, env=environment, start_new_session=True)
            note = wait_for(process, journal, until, patience * stage.of_a_set, stop)
        ended, begun = journal.outcomes(), journal.begun()
        if note and begun and begun[-1] not in ended:
            reasons.setdefault(begun[-1], note)
        elif note and not note.endswith(str(DEVICE_IS_LOST)):
            notes.append(f"{note}: {last_line(logs / f'{stage.name}.err')}")
        if journal.expected() is None or not journal.remaining():
            break
        idle = 0 if len(begun) > before else idle + 1
    if journal.expected() == []:
        notes.append("there was nothing to compute")
    outcomes = journal.outcomes() | {name: ("died", why) for name, why in reasons.items()}
    return Result(stage, journal.expected() or [], outcomes, time.monotonic() - started, list(dict.fromkeys(notes)))


# -- results -----------------------------------------------------------------------------------------------------------


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
    """Write a folder as an archive of at most `most` bytes, small files first. Return notes on files that it leaves
    out. The archive appears when it is complete."""
    left_out, unfinished = [], path.with_suffix(".part")
    files = sorted((p for p in folder.rglob("*") if p.is_file()), key=lambda p: (p.stat().st_size, p))
    with unfinished.open("wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for file in files:
            size = file.stat().st_size  # a file that cannot be compressed grows by less than 1 in 1000
            if raw.tell() + size + size // 1000 + min(IN_BUFFERS, most // 2) > most:
                left_out.append(f"{path.name} leaves out {file.name}, {size} bytes: archives have at most {most} bytes")
                continue
            tar.add(file, file.relative_to(folder.parent))
    unfinished.replace(path)
    return left_out


def shorten(log: Path) -> None:
    """Keep the beginning and the end of a long log."""
    data = log.read_bytes()
    if len(data) > MOST_LOG:
        log.write_bytes(data[: MOST_LOG // 2] + b"\n[...]\n" + data[-MOST_LOG // 2 :])


def tell(text: str) -> None:
    """Print a text. A reader that has gone, such as a closed terminal, is no reason to end."""
    try:
        print(text, flush=True)
    except OSError:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (it stays open to the end)


def store(out: Path, folder: Path, results: list[Result], seconds: float) -> tuple[str, bool]:
    """Write the archives and the summary. Return the text of the summary, and whether everything was written."""
    notes, written = [], True

    def attempt(name: str, write: Callable[[], list[str]]) -> None:
        nonlocal written
        try:
            notes.extend(write())
        except OSError as error:
            written = False
            notes.append(f"{name} could not be written: {error}; all results are in {folder}")
            with contextlib.suppress(OSError):
                (out / name).with_suffix(".part").unlink(missing_ok=True)

    def write_summary() -> list[str]:
        unfinished = out / "summary.part"
        unfinished.write_text(summary(results, seconds, notes))
        unfinished.replace(out / "summary.txt")
        return []

    attempt("logs.tgz", lambda: shorten_all(folder / "logs") or archive(out / "logs.tgz", folder / "logs"))
    attempt("recordings.tgz", lambda: archive(out / "recordings.tgz", folder / "recordings"))
    attempt("summary.txt", write_summary)
    return summary(results, seconds, notes), written


def shorten_all(logs: Path) -> None:
    """Shorten all logs of a folder."""
    for log in logs.iterdir():
        shorten(log)


def working_folder(out: Path) -> Path:
    """Create the folder of the results until they are archived: in OUT, where they survive the loss of the machine.

    If OUT has little room, it is in the folder for temporary files.
    """
    out.mkdir(parents=True, exist_ok=True)
    parent = out.resolve() if shutil.disk_usage(out).free >= ROOM else None
    folder = Path(tempfile.mkdtemp(prefix="unfinished-", dir=parent))
    for part in ("logs", "recordings"):
        (folder / part).mkdir()
    return folder


def run_all(out: Path, stages: list[Stage], rows: int, seconds: float, patience: float) -> int:
    """Run stages, and write the results after each. Return the number of stages that did not run."""
    interruption = Interruption()
    interruption.watch()
    folder, started, results = working_folder(out), time.monotonic(), list[Result]()
    for stage in stages:
        results.append(run_stage(stage, folder, rows, started + seconds, patience, interruption))
        if interruption:
            results += [Result(each, notes=[interruption.before]) for each in stages[len(results) :]]
        text, written = store(out, folder, results, time.monotonic() - started)
        tell(next(line for line in text.splitlines() if line.startswith(stage.name)))
        if interruption:
            break
    if not written:
        tell(text)
        return UNUSABLE
    shutil.rmtree(folder, ignore_errors=True)
    tell(text.splitlines()[-1])
    return sum(not r.ran for r in results)


class Parser(argparse.ArgumentParser):
    """A parser whose exit code cannot be read as a number of stages."""

    def error(self, message: str) -> Any:
        """Print the usage, and end."""
        self.print_usage(sys.stderr)
        self.exit(UNUSABLE, f"{self.prog}: {message}\n")


def main() -> int:
    """Run all stages."""
    parser = Parser(prog="on_device.sh", description="Run everything that needs a GPU.")
    parser.add_argument("out", type=Path, help="the folder of the results")
    parser.add_argument("--seconds", type=float, default=480, help="the time of all stages together (default 480)")
    parser.add_argument("--rows", type=int, default=20_000, help="dot products of an instruction (default 20000)")
    names = [stage.name for stage in STAGES]
    parser.add_argument("--stages", nargs="+", choices=names, default=names, help="only these stages (default: all)")
    parser.add_argument("--patience", type=float, default=1.0, help="a factor of the time limits of stages and sets")
    given = parser.parse_args()
    if given.rows < 10:
        parser.error(f"--rows must be at least 10, not {given.rows}")
    stages = [stage for stage in STAGES if stage.name in given.stages]
    try:
        return run_all(given.out, stages, given.rows, given.seconds, given.patience)
    except OSError as error:
        print(f"on_device.sh: {given.out} cannot hold the results: {error}", file=sys.stderr)
    except Exception:  # the exit code of Python is 1, which means one stage
        traceback.print_exc()
    return UNUSABLE


if __name__ == "__main__":
    sys.exit(main())
