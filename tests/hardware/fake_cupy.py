"""CuPy for another process: a package whose GPU runs the kernels of floatsim_kernels/cuda in NumPy, with faults.

`write_package` writes a package `cupy` into a folder. A process with this folder on PYTHONPATH then has a GPU, whose
compute capability FAKE_GPU names ("9.0"). FAKE_FAULT=KIND@STAGE adds a fault to one stage of tools/on_device.sh, which
puts the name of the stage into FLOATSIM_STAGE:

- "crash": the process dies; "hang": a launch never returns; "launch": from one launch on, every launch raises;
- "garbage": one launch writes random bytes to all files of the stage, and a capture that is none;
- "bit": one bit of each result is wrong; "compiler": nothing can be compiled; "device": there is no GPU.

The GPU is that of `lanes`, but for matrix instructions, which it computes for all tiles at once.
"""

from __future__ import annotations

import os
import sys
import time
import types
from pathlib import Path

import numpy as np

from floatsim.hardware.compile import nvrtc as build
from floatsim.hardware.tables.compute_capability import architecture_of
from floatsim.hardware.tables.fragment_layouts import layouts, pack
from floatsim.hardware.tables.ptx_matrix import variants
from tests.hardware import libraries
from tests.hardware.lanes import Lanes, add, described, matches

FIRST_FAULT = 2
"""The launch of a stage at which its fault begins, so that some results are there before it."""


_PACKAGE = """
from tests.hardware.fake_cupy import package

globals().update(package())
"""

# Python runs this file at its start. The stage "replay" uses no GPU, so its fault is in the files that it reads.
_START = """
import os

if os.environ.get("FLOATSIM_STAGE") == "replay" and os.environ["FAKE_FAULT"].endswith("@replay"):
    import numpy

    from tests.hardware.fake_cupy import with_fault

    numpy.load = with_fault(numpy.load)
"""


def write_package(folder: Path) -> None:
    """Write the package into a folder for PYTHONPATH."""
    Path(folder, "cupy.py").write_text(_PACKAGE, encoding="utf-8")
    Path(folder, "sitecustomize.py").write_text(_START, encoding="utf-8")


def with_fault(load):
    """Return np.load with a fault from the second file on."""
    kind, files = os.environ["FAKE_FAULT"].partition("@")[0], 0

    def faulty(path, **keywords):
        nonlocal files
        files += 1
        if files >= FIRST_FAULT:
            begin_fault(kind)
        return load(path, **keywords)

    return faulty


def begin_fault(kind: str) -> None:
    """Let the process die, wait, raise an error or write garbage."""
    if kind == "crash":
        os.abort()
    if kind == "hang":
        time.sleep(3600)
    if kind == "launch":
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")
    if kind == "garbage":
        _, stage, folder, _ = sys.argv
        written = np.random.default_rng(0).bytes(3 << 20)
        lines = b'\n7\n[1]\n"begin"\n{"set": "x"}\n{"expected": 1}\n\xff\n{"set": "unfin'
        for ending, garbage in (("out", written), ("err", written), ("jsonl", lines)):
            with Path(folder, "logs", f"{stage}.{ending}").open("ab") as file:
                file.write(garbage)
        Path(folder, "recordings", "garbage.npz").write_bytes(written[:1000])


def tiles_of(words, layout, storage, dtype):
    """Return the tiles (n, rows, columns) of any layout in packed words. Of copies, the first is used."""
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")
    if storage.group:
        bits = bits.reshape(len(words), -1, 128)[:, :, : storage.group * storage.bits]
    bits = bits.reshape(len(words), layout.positions, storage.bits)
    codes = (bits.astype(np.uint64) << np.arange(storage.bits, dtype=np.uint64)).sum(axis=2) >> np.uint64(storage.shift)
    return codes[:, layout.first_positions].astype(dtype).reshape(len(words), *layout.shape)


class QuickLanes(Lanes):
    """`Lanes` whose matrix instructions compute all tiles of a launch at once."""

    def matrix(self, built, name, grid, block, a, b, scales_a, scales_b, c, d, columns=0, steps=1, every=0):
        v = [v for v in variants() if v.kernel.runs_on(self.capability) and matches(v, built)][-1]
        layout = layouts(v)
        tiles = {
            "a": tiles_of(a, *layout.a, v.a.code_dtype), "b": tiles_of(b, *layout.b, v.b.code_dtype),
            "c": tiles_of(c, *layout.d, v.output.code_dtype),
        }  # fmt: skip
        scales = None
        if v.scales is not None:
            byte = types.SimpleNamespace(bits=8, shift=0, group=0)
            sides = zip((scales_a, scales_b), layout.scales, strict=True)
            scales = [tiles_of(x, side, byte, np.uint8) for x, side in sides]
        n = np.arange(grid)
        of_a, of_b = (n, n) if name == "single" else (n // columns * steps, n % columns * steps)
        total = tiles["c"]
        for start in range(0, steps, every or steps):
            acc = np.zeros_like(total) if every else total
            for step in range(start, min(start + (every or steps), steps)):
                both = None if scales is None else (scales[0][of_a + step], scales[1][of_b + step])
                acc = self.execute(v, tiles["a"][of_a + step], tiles["b"][of_b + step], acc, both)
            total = add(total, acc, v.output) if every else acc
        d[...] = pack(total, *layout.d, d.dtype).reshape(d.shape)


def unwrapped(x):
    """Return the NumPy array of an array of the package."""
    return x.array if isinstance(x, libraries.ndarray) else x


class Faulty:
    """A GPU with a fault in one stage."""

    def __init__(self, capability: tuple[int, int], fault: str) -> None:
        self.lanes = QuickLanes(capability)
        kind, _, stage = fault.partition("@")
        self.kind = kind if stage == os.environ.get("FLOATSIM_STAGE") else ""
        self.launches = 0

    def kernel(self, code: bytes, name: str):
        launch = self.lanes.kernel(code, name)

        def call(grid, block, arguments):
            self.launches += 1
            if self.launches == FIRST_FAULT or (self.launches > FIRST_FAULT and self.kind != "garbage"):
                begin_fault(self.kind)
            operands = [*map(self._operand, arguments[:-1]), unwrapped(arguments[-1])]  # the last is no pointer, or D
            launch(grid[0], block[0], *operands)
            if self.kind == "bit":
                out = next(x for x in reversed(operands) if isinstance(x, np.ndarray) and x.size)
                out.reshape(-1).view(np.uint8)[0] ^= 1

        return call

    @staticmethod
    def _operand(x):
        return None if isinstance(x, np.uint64) and x == 0 else unwrapped(x)


def package() -> dict[str, object]:
    """Return the names of the package, and let floatsim describe programs in place of compiling them."""
    major, _, minor = os.environ["FAKE_GPU"].partition(".")
    gpu = Faulty((int(major), int(minor)), os.environ.get("FAKE_FAULT", ""))
    assert architecture_of(gpu.lanes.capability) is not None
    if os.environ.get("FLOATSIM_STAGE") in ("machine", "compile"):  # they launch nothing
        begin_fault(gpu.kind)
    module = libraries.cupy(gpu.lanes.capability)
    runtime, properties = module.cuda.runtime, module.cuda.runtime.getDeviceProperties
    runtime.getDeviceProperties = lambda number: properties(number) | {"multiProcessorCount": 3}

    if gpu.kind == "device":

        def no_device():
            raise RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")

        runtime.getDeviceCount = no_device

    def built(*arguments, **keywords):
        if gpu.kind == "compiler":
            raise build.CompileError("no CUDA compiler was found")
        return described(*arguments, **keywords)

    build.build = built
    clock = Clock(gpu.lanes)
    module.__dict__.update(
        asnumpy=lambda x: np.array(x.array),
        RawModule=lambda path: types.SimpleNamespace(
            get_function=lambda name: gpu.kernel(Path(path).read_bytes(), name)
        ),
    )
    module.cuda.__dict__.update(Event=clock.event, get_elapsed_time=lambda first, last: last.at - first.at)
    names = [name for name in module.__dict__ if name == "__version__" or not name.startswith("__")]
    return {name: module.__dict__[name] for name in names}


class Clock:
    """A clock of the GPU that counts the operations of the kernels "rate"."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes

    def event(self):
        event = types.SimpleNamespace(at=0.0, synchronize=lambda: None)

        def record():
            event.at = self.lanes.operations / self.lanes.speed

        event.record = record
        return event
