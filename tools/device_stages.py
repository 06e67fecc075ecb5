"""The sets of each stage of tools/on_device.sh, and the process that computes them: device_stages.py STAGE FOLDER ROWS.

tools/on_device.py starts these processes. The sets of a stage depend on the GPU: one for each instruction, operation or
file. A set returns whether everything is equal, and a text. A set that cannot run raises an error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from on_device import DEVICE_IS_LOST, ROOT, Journal, last_line

Task = Callable[[], tuple[bool, str]]
"""Computes one set; returns whether everything is equal, and a text."""


def work(name: str, journal: Journal, recordings: Path, rows: int) -> int:
    """Compute the sets of a stage that no process has begun. Return the exit code."""
    tasks = dict(TASKS[name](recordings, rows))
    if journal.expected() is None:
        journal.write(expected=list(tasks))
    for each in journal.remaining():
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

    from floatsim.hardware.compile.nvrtc import CompileError
    from floatsim.hardware.device import Device

    try:
        device = Device()
        device.dots(device.variants[0], *_ones(device.variants[0], np))
    except CompileError:
        return False
    except Exception as error:
        return "cuda" in f"{type(error).__name__} {error}".lower()
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
    """All machine code: of the GPU, by threads, and of the emulator, by processes. Other stages read it from caches."""

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

    def emulator() -> tuple[bool, str]:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        from floatsim.hardware.device import Device
        from floatsim.hardware.questions import Emulated, to_capture

        identity = Device().identity
        groups = list(dict.fromkeys(map(group_of, to_capture(Emulated(identity)))))
        with ProcessPoolExecutor(min(len(groups), os.cpu_count() or 1), get_context("spawn")) as pool:
            list(pool.map(compile_emulator, [identity] * len(groups), groups))
        return True, f"{len(groups)} groups: {', '.join(groups)}"

    yield "kernels of the GPU", compiled
    yield "kernels of the emulator", emulator


def group_of(each: Any) -> str:
    """Return the group of an instruction or operation. Different groups use mostly different kernels of the emulator.

    Matrix instructions come first, because their kernels take longest.
    """
    words = str(each.title).split()
    if hasattr(each, "row"):
        return f"{words[0]} {each.row.source}"
    return f"matrix {each.variant.output if each.variant.output.bits == 64 else ''}".strip()


def compile_emulator(identity: Any, group: str) -> None:
    """Compile the kernels of the emulator for one group of a GPU's instructions and operations.

    Numba keeps them on disk. A comparison with a wrong bit also compiles the kernels that describe a difference.
    """
    from floatsim.hardware.comparison import compare_dots
    from floatsim.hardware.questions import Emulated, Operation, to_capture

    for each in to_capture(Emulated(identity)):
        if group_of(each) != group:
            continue
        if isinstance(each, Operation):
            each.run(*each.operands())
        else:
            inputs = each.input_set(2000)
            compare_dots(each.unit, inputs, each.dots(*inputs) ^ 1, "", first=1)


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
    from floatsim.hardware.questions import to_capture

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
    from floatsim.hardware.questions import probe_device, questions

    def task(question: Any) -> Task:
        def run() -> tuple[bool, str]:
            (found,) = probe_device([question])
            refuse(found.error)
            return bool(found.equal), str(found)

        return run

    for question in questions(Device()):
        yield str(question.variant), task(question)


def tests(recordings: Path, rows: int) -> Iterator[tuple[str, Task]]:
    """The tests that need a GPU. The log has a line for each test, from its beginning on."""
    file, log = "tests/hardware/test_gpu.py", recordings.parent / "logs" / "tests.pytest"

    def run() -> tuple[bool, str]:
        options = ["-p", "no:cacheprovider", "-v", "-rfE", "--tb=line", "-W", "default"]
        # every conversion of all FP32 numbers takes longer than the whole script
        chosen = {"FLOATSIM_REQUIRE_GPU": "1", "FLOATSIM_EXHAUSTIVE": "0", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        with log.open("ab") as output:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *options, file],
                cwd=ROOT, stdout=output, check=False, env=os.environ | chosen,
            )  # fmt: skip
        last = last_line(log)
        if done.returncode not in (0, 1) or " passed" not in last:
            raise RuntimeError(f"pytest ended with exit code {done.returncode}: {last}")
        return done.returncode == 0, last

    yield file, run


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
    from floatsim.hardware.questions import compare_device, questions

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


if __name__ == "__main__":
    stage, folder, rows = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    sys.exit(work(stage, Journal(folder / "logs" / f"{stage}.jsonl"), folder / "recordings", rows))
