"""Record what a card answers, so that others can hold the emulator, or their own, against it without the card."""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import floatsim
from floatsim.hardware.captures.capture_file import Recording, header_of, write_recording
from floatsim.hardware.session import Question
from floatsim.hardware.tables.ptx_matrix import Variant
from floatsim.testing.inputs import ROWS

__all__ = ["capture"]


def capture(
    asked: Iterable[Question], out: Path | str, *, rows: int = ROWS, seed: int = 0, with_inputs: bool = False,
    command: str = "",
) -> Iterator[Recording]:  # fmt: skip
    """Write one recording for each instruction, in a folder of the card's name.

    Parameters
    ----------
    asked : Questions
        As `floatsim.hardware.session.questions` gives them.
    out : path
        Where the card's folder is to be.
    rows : int
        Dot products of each instruction; at least 10.
    seed : int
        Of the inputs.
    with_inputs : bool
        Whether files hold their inputs too, for those who cannot make them again. They are then much larger.
    command : str
        What was typed, for the header.

    Yields
    ------
    Recording
        When it is written.
    """
    for q in asked:
        card, inputs = q.card.card, q.input_set(rows, seed)
        d = q.dots(*inputs)
        header = header_of(q.unit, inputs, seed) | {
            "card": card.name,
            "compute_capability": f"{card.capability[0]}.{card.capability[1]}",
            "driver": card.driver,
            "cuda": card.cuda,
            "kernel_sha256": kernel_hash(q.variant),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": command,
            "floatsim": floatsim.__version__,
        }
        path = Path(out) / _slug(card.name) / f"{_slug(str(q.variant))}.npz"
        recording = Recording(path, card.name, q.unit, inputs, d, header)
        write_recording(recording, with_inputs)
        yield recording


def kernel_hash(variant: Variant) -> str:
    """SHA-256 of the source that issues an instruction, and of what is defined for it."""
    from floatsim.hardware.compile.nvrtc import source
    from floatsim.hardware.compile.programs import of_variant

    program = of_variant(variant)
    defined = "".join(f"\0{name}={value}" for name, value in sorted(program.definitions.items()))
    return hashlib.sha256(f"{source(program.source)}{defined}".encode()).hexdigest()


def _slug(text: str) -> str:
    """As a file's name.

    >>> _slug("NVIDIA H100 80GB HBM3"), _slug("mma.m16n8k64.nvf4 e2m1 e2m1 fp32 e4m3/16")
    ('nvidia-h100-80gb-hbm3', 'mma.m16n8k64.nvf4-e2m1-e2m1-fp32-e4m3-16')
    """
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")
