"""Capture the outputs of a GPU in files, so that models can be compared with them without the GPU."""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import floatsim
from floatsim.hardware.captures.capture_file import Capture, header_of, write_capture
from floatsim.hardware.session import Question
from floatsim.hardware.tables.ptx_matrix import Variant
from floatsim.testing.inputs import ROWS

__all__ = ["capture"]


def capture(
    questions: Iterable[Question], out: Path | str, *, rows: int = ROWS, seed: int = 0, with_inputs: bool = False,
    command: str = "",
) -> Iterator[Capture]:  # fmt: skip
    """Write one capture for each instruction, in a folder of the GPU's name.

    Parameters
    ----------
    questions : iterable of Question
        The instructions, from `floatsim.hardware.session.questions`.
    out : path
        The parent of the GPU's folder.
    rows : int
        The number of dot products of each instruction, at least 10.
    seed : int
        The seed of the inputs.
    with_inputs : bool
        Whether the files also hold the inputs. They are then much larger, and need no generator to be read.
    command : str
        The command, for the header.

    Yields
    ------
    Capture
        Each after it is written.
    """
    for q in questions:
        identity, inputs = q.device.identity, q.input_set(rows, seed)
        d = q.dots(*inputs)
        header = header_of(q.unit, inputs, seed) | {
            "card": identity.name,
            "compute_capability": f"{identity.capability[0]}.{identity.capability[1]}",
            "driver": identity.driver,
            "cuda": identity.cuda,
            "kernel_sha256": kernel_hash(q.variant),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": command,
            "floatsim": floatsim.__version__,
        }
        path = Path(out) / _slug(identity.name) / f"{_slug(str(q.variant))}.npz"
        captured = Capture(path, identity.name, q.unit, inputs, d, header)
        write_capture(captured, with_inputs)
        yield captured


def kernel_hash(variant: Variant) -> str:
    """Return the SHA-256 of the source that issues an instruction, and of its definitions."""
    from floatsim.hardware.compile.nvrtc import source
    from floatsim.hardware.compile.programs import of_variant

    program = of_variant(variant)
    defined = "".join(f"\0{name}={value}" for name, value in sorted(program.definitions.items()))
    return hashlib.sha256(f"{source(program.source)}{defined}".encode()).hexdigest()


def _slug(text: str) -> str:
    """Return a text as a file name.

    >>> _slug("NVIDIA H100 80GB HBM3"), _slug("mma.m16n8k64.nvf4 e2m1 e2m1 fp32 e4m3/16")
    ('nvidia-h100-80gb-hbm3', 'mma.m16n8k64.nvf4-e2m1-e2m1-fp32-e4m3-16')
    """
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")
