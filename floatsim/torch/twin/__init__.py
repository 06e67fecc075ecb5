"""Record a training run on a GPU, and check the recording on a CPU: the first bits that differ, and their likely cause.

`definition` reads MODEL.py, `recording` is the file, `stepping` runs and observes the steps, `record` and `check` are
the two commands, and `operations` and `causes` look for the cause of the first difference.
"""

from __future__ import annotations

from floatsim.torch.twin.causes import KINDS
from floatsim.torch.twin.check import Counted, Difference, TwinReport, check_twin
from floatsim.torch.twin.definition import Definition
from floatsim.torch.twin.record import record_twin
from floatsim.torch.twin.recording import DESCRIBED, Entry, Place, Recording

__all__ = [
    "DESCRIBED",
    "KINDS",
    "Counted",
    "Definition",
    "Difference",
    "Entry",
    "Place",
    "Recording",
    "TwinReport",
    "check_twin",
    "record_twin",
]
