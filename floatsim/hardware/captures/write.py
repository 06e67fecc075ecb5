"""Capture the outputs of a GPU in files, so that models can be compared with them without the GPU."""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import floatsim
from floatsim.hardware.captures.capture_file import (
    AnyCapture,
    Capture,
    ScalarCapture,
    header_of,
    scalar_header,
    write_capture,
)
from floatsim.hardware.protocol import Compiled, OwnUnits, error_text
from floatsim.hardware.questions import Operation, Question
from floatsim.hardware.tables.ptx_matrix import Variant
from floatsim.hardware.tables.ptx_scalar import Scalar
from floatsim.testing.vectors.dot_inputs import ROWS, Inputs

__all__ = ["capture"]


def capture(
    tasks: Iterable[Question | Operation], out: Path | str, *, rows: int = ROWS, seed: int = 0,
    with_inputs: bool = False, command: str = "",
) -> Iterator[AnyCapture]:  # fmt: skip
    """Write one capture for each instruction, in a folder of the GPU's name.

    The error of one instruction is its row, and the next instruction follows. Such a row has no file.

    Parameters
    ----------
    tasks : iterable of Question or Operation
        The instructions, from `floatsim.hardware.questions.to_capture`.
    out : path
        The parent of the GPU's folder.
    rows : int
        The number of dot products of each matrix instruction, at least 10. Operations of CUDA cores have a fixed
        number of operands.
    seed : int
        The seed of the inputs.
    with_inputs : bool
        Whether the files also hold the inputs. They are then much larger, and need no generator to be read.
    command : str
        The command, for the header.

    Yields
    ------
    Capture or ScalarCapture
        Each after it is written.

    Raises
    ------
    OSError
        If the folder cannot be created.
    """
    for task in tasks:
        gpu = task.device.identity.name
        folder = Path(out) / _slug(gpu)
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(task, Operation):
            yield _capture_operation(task, folder, seed, with_inputs, command)
        else:
            yield _capture_question(task, folder, rows, seed, with_inputs, command)


def _capture_question(q: Question, folder: Path, rows: int, seed: int, with_inputs: bool, command: str) -> Capture:
    path, gpu, unit = folder / f"{_slug(str(q.variant))}.npz", q.device.identity.name, q.unit
    try:
        inputs = q.input_set(rows, seed)
        d = q.dots(*inputs)
        header = header_of(unit, inputs, seed) | _provenance(q.device, q.variant, command)
        captured = Capture(path, gpu, unit, inputs, d, header)
        write_capture(captured, with_inputs)
    except Exception as error:
        a, b, c = (np.zeros(0, fmt.code_dtype) for fmt in (unit.a, unit.b, unit.output))
        return Capture(path, gpu, unit, Inputs(a, b, c), c, error=error_text(error))
    return captured


def _capture_operation(
    task: Operation, folder: Path, seed: int, with_inputs: bool, command: str
) -> ScalarCapture:  # fmt: skip
    path, gpu, row = folder / f"{_slug(task.row.kernel)}.npz", task.device.identity.name, task.row
    try:
        operands = task.operands(seed)
        d = task.run(*operands)
        header = scalar_header(row, operands, seed) | _provenance(task.device, row, command)
        captured = ScalarCapture(path, gpu, row, operands, d, header)
        write_capture(captured, with_inputs)
    except Exception as error:
        return ScalarCapture(path, gpu, row, (), np.zeros(0, row.result.code_dtype), error=error_text(error))
    return captured


def _provenance(device: Any, operation: Variant | Scalar, command: str) -> dict[str, Any]:
    """Return the part of a header that describes the device, its software, and the machine code that ran.

    An emulated device runs no machine code. The compiler and the SHA-256 of the machine code are None then.
    """
    identity = device.identity
    common = {
        "card": identity.name,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command,
        "floatsim": floatsim.__version__,
    }
    if isinstance(device, OwnUnits):
        return common | device.provenance(operation)
    code = device.machine_code(operation) if isinstance(device, Compiled) else None
    return common | {
        "compute_capability": f"{identity.capability[0]}.{identity.capability[1]}",
        "driver": identity.driver,
        "driver_cuda": identity.driver_cuda,
        "cuda": identity.cuda,
        "compiler": None if code is None else code.compiler,
        "kernel_sha256": kernel_hash(operation),
        "cubin_sha256": None if code is None else code.sha256,
    }


def kernel_hash(operation: Variant | Scalar) -> str:
    """Return the SHA-256 of the source that issues an instruction, and of its definitions.

    The definition of an operation of CUDA cores is its own line of the source, which does not depend on the target.
    """
    from floatsim.hardware.compile.nvrtc import source
    from floatsim.hardware.compile.programs import of_variant

    if isinstance(operation, Scalar):
        name, definitions = "elementwise.cu", {"ROWS": operation.line}
    else:
        program = of_variant(operation)
        name, definitions = program.source, dict(program.definitions)
    defined = "".join(f"\0{name}={value}" for name, value in sorted(definitions.items()))
    return hashlib.sha256(f"{source(name)}{defined}".encode()).hexdigest()


def _slug(text: str) -> str:
    """Return a text as a file name.

    >>> _slug("NVIDIA H100 80GB HBM3"), _slug("mma.m16n8k64.nvf4 e2m1 e2m1 fp32 e4m3/16")
    ('nvidia-h100-80gb-hbm3', 'mma.m16n8k64.nvf4-e2m1-e2m1-fp32-e4m3-16')
    """
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")
